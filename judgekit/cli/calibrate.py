"""`judgekit calibrate`: learn from labels which opinions of which tier may be final."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from judgekit import environment
from judgekit.cli.evaluate import progress
from judgekit.cli.output import emit, say, warn
from judgekit.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.config.names import ModeName
    from judgekit.evaluation.cases import Case
    from judgekit.evaluation.runner import Opinions
    from judgekit.judging.calibration import CalibratedRule, Calibration, Measured, Promised, RefusedRule
    from judgekit.rubric.loader import LoadedRubric

_LEAST_RATE = 0.001  # below it one decimal of a percent may show nothing


def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="LABELS.jsonl|accept FILE",
            help="Labelled cases, one a line; or `accept` and a project's calibration to allow.",
        ),
    ],
    rubric: Annotated[
        str | None, typer.Option(help="ID, ID@VERSION or a YAML file (needed to learn).")
    ] = None,
    mode: Annotated[
        Literal["strict", "lenient"] | None,
        typer.Option(help="Which error is the costly one (needed to learn)."),
    ] = None,
    error: Annotated[
        float | None, typer.Option(metavar="RATE", help="Promise at most this error rate (default 0.05).")
    ] = None,
    excess: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Promise at most this much more error than the deep tier alone."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the promise must be.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it instead of your own folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> int:
    """Learn which opinions of which tier may be final at a promised error rate.

    `calibrate accept FILE` shows what a project's calibration lets through, and lets it count for you.
    Exit code 2 when a model that was asked did not answer.
    """
    if len(files) == 2 and str(files[0]) == "accept":  # noqa: PLR2004 - the word and the file
        return _accept(files[1])
    if len(files) > 1:
        raise UsageError(f"expected one file of labels, got {len(files)}; put all cases into one")
    if rubric is None or mode is None:
        missing = "--rubric" if rubric is None else "--mode"
        raise UsageError(f"{missing} is missing; a calibration is for one rubric in one mode")
    (labels,) = files

    from judgekit.evaluation import cases as labelled
    from judgekit.evaluation import runner
    from judgekit.evaluation.calibrate import learn
    from judgekit.judging import calibration
    from judgekit.judging.calibration import Promise
    from judgekit.rubric import loader

    promise = Promise(*_rates(error, excess, confidence), reference=None if excess is None else "deep")
    calibration.check(out)
    project = Path(environment.project_root(str(Path.cwd())))
    loaded = loader.find_rubric(rubric, project)
    given = labelled.read(labels)
    opinions = _said(given, labels, loaded, mode, project)
    lacking = None if any(case.judges for case in given) else runner.unanswered(opinions.cases)
    known = learn(
        opinions.cases,
        opinions.models,
        loaded,
        mode,
        promise,
        made=datetime.now(UTC),
        labels_sha256=labelled.sha256(labels),
        asking=opinions.asking,
    )
    if as_json:
        emit(known.text().rstrip())
    else:
        for line in _lines(known):
            say(line)
    if known.gates or out is not None:
        path = out or calibration.default_path(known)
        calibration.write(known, path)
        calibration.accept(path)
        warn(f"written: {path}")
    else:
        warn("nothing could be promised, so nothing is written; the rubric's own rules stay in force")
    if lacking is None:
        return 0
    warn(lacking)
    return Exit.HUMAN_NEEDED


def _accept(path: Path) -> int:
    from judgekit.judging import calibration

    known = calibration.read(path)
    for line in _lines(known):
        say(line)
    say(f"Made {known.made:%Y-%m-%d} from labels {known.labels_sha256[:12]}, which are not in the file")
    if sys.stdin.isatty() and not typer.confirm("Let it count wherever a project brings this file?"):
        warn("not accepted; the rubric's own rules stay in force")
        return Exit.REJECTED
    calibration.accept(path)
    warn(f"accepted: {path}; a changed file must be accepted again")
    return 0


def _rates(error: float | None, excess: float | None, confidence: float) -> tuple[float, float]:
    """Return the promised rate and the confidence; raises `UsageError` for what cannot be promised."""
    if error is not None and excess is not None:
        raise UsageError("--error and --excess are two different promises; give one")
    rate = next((each for each in (error, excess) if each is not None), 0.05)
    for name, value in (("--error or --excess", rate), ("--confidence", confidence)):
        if not 0 < value < 1:
            raise UsageError(f"{name}: expected a number between 0 and 1, got {value:g}")
    return rate, confidence


def _said(cases: list[Case], path: Path, loaded: LoadedRubric, mode: ModeName, project: Path) -> Opinions:
    """Return the cases with the opinions of the tiers: those in the file, or the models are asked."""
    from judgekit.evaluation import runner, samples

    if any(case.judges for case in cases):
        return runner.Opinions(cases, samples.models(cases), {})
    return runner.ask(cases, path.parent, loaded, mode, project, progress(len(cases), "cases"))


def _lines(known: Calibration) -> Iterator[str]:
    from judgekit.judging.logprobs import WORDS

    rubric = f"{known.rubric.id}@{known.rubric.version}, {known.mode}"
    models = ", ".join(f"{tier} {model}" for tier, model in known.models.items())
    yield f"{known.id}: {rubric}; {models}; {known.cases} labelled"
    yield f"Promised with {known.promise.confidence:.0%} confidence: {_promise(known.promise)}"
    yield ""
    yield "May be final" if known.gates else "May be final: nothing"
    for shown in known.gates:
        yield f"  {_class(shown, known):<44} {_seen(shown)}"
    if known.not_promised:
        yield "Cannot be promised"
    for refused in known.not_promised:
        yield f"  {_class(refused, known):<44} {_seen(refused)}; {_why(refused)}"
    for tier, count in known.read_otherwise.items():
        how = " and ".join(sorted(WORDS[each] for each in set(known.read[tier].values())))
        yield f"Left out: {count} of {tier}; what it said was {how} elsewhere, and not in these"
    yield ""
    yield from _table(known)


def _promise(promise: Promised) -> str:
    if promise.reference is None:
        return f"an opinion that is final differs from its label in at most {_exact(promise.rate)}"
    return (
        f"at most {_exact(promise.rate)} more errors than {promise.reference} alone, which has the last word"
    )


def _rate(value: float) -> str:
    """Return a rate in percent; one that is not zero never reads as zero."""
    return f"{value:.1%}" if value >= _LEAST_RATE or not value else f"{100 * value:.2g}%"


def _exact(rate: float) -> str:
    """Return a promised rate in percent, with all the digits that were asked for."""
    return f"{rate:.1%}" if round(rate, 3) == rate else f"{100 * rate:.10g}%"


def _class(each: CalibratedRule | RefusedRule, known: Calibration) -> str:
    if known.subjects:
        after = {"accept": " after a lead", "improve": " after a tie"}.get(each.after or "", "")
        return f"best of {each.tier}{after}, ahead by {each.least_margin:g} or more"
    if each.stands:
        return f"a win of {each.stands} against a tie of {each.tier}, lead {each.least_margin:g} or more"
    after = f" after {each.after}" if each.after else ""
    margin = f", margin {each.least_margin:g} or more" if each.least_margin else ""
    return f"{each.tier} {each.outcome}{after}{margin}"


def _seen(each: CalibratedRule | RefusedRule) -> str:
    gains = f" and {each.gains} gained" if each.gains else ""
    return f"{each.errors} wrong{gains} of {each.labels}, at most {_rate(each.bound)}"


def _why(refused: RefusedRule) -> str:
    if refused.more is None:
        return "too many errors, more labels would not help"
    return f"too few labels, about {refused.more} more of these would do"


def _table(known: Calibration) -> Iterator[str]:
    yield f"{f'On these {known.cases} labels':<46}{'calibrated':>12}{'without':>12}"
    both = (known.with_gates, known.without)
    yield _row("ended by a gate", *(f"{measured.by_gate / known.cases:.1%}" for measured in both))
    yield _row("decided", *(f"{measured.decided / known.cases:.1%}" for measured in both))
    yield _row("wrong among the decided", *map(_wrong, both))
    for tier in known.models:
        yield _row(f"calls of {tier}", *(str(each.calls.get(tier, 0)) for each in both))
    asked = known.subjects.all if known.subjects else known.cases
    least = asked * sum(tier != "tiebreaker" for tier in known.models)
    saved = [1 - sum(each.calls.values()) / least if least else 0.0 for each in both]
    yield _row("calls saved against asking quick and deep", *(f"{each:.1%}" for each in saved))


def _wrong(each: Measured) -> str:
    return f"{each.errors / each.decided:.1%}" if each.decided else "-"


def _row(name: str, calibrated: str, without: str) -> str:
    return f"  {name:<44}{calibrated:>12}{without:>12}"
