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
    from collections.abc import Callable

    from judgekit.config import ModeName, TierName
    from judgekit.judging.calibration import CalibratedRule, Calibration, Measured

_LEAST_RATE = 0.001  # below it one decimal of a percent may show nothing


def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="LABELS.jsonl|accept FILE",
            help="A file of labelled cases (JSON Lines); or `accept` and a calibration of the project.",
        ),
    ],
    rubric: Annotated[
        str | None, typer.Option(help="Rubric: ID, ID@VERSION or a YAML file (needed to learn).")
    ] = None,
    mode: Annotated[
        Literal["strict", "lenient"] | None,
        typer.Option(help="strict avoids wrong acceptance, lenient wrong rejection (needed to learn)."),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Promise an error rate of at most this (default 0.05)."),
    ] = None,
    excess: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", help="Promise at most this much more error than the deep tier alone makes."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the promise, between 0 and 1.")] = 0.95,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the calibration to this file, not to your own folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> int:
    """Learn which opinions of which tier may be final at a promised error rate.

    `calibrate accept FILE` shows what a project's calibration allows, and accepts it for you.
    Exit code 2 when a model did not answer.
    """
    if len(files) == 2 and str(files[0]) == "accept":  # noqa: PLR2004 - the word and the file
        return _accept(files[1])
    if len(files) > 1:
        raise UsageError(f"expected one file of labels, got {len(files)}; put all cases into one")
    if rubric is None or mode is None:
        missing = "--rubric" if rubric is None else "--mode"
        raise UsageError(f"{missing} is missing; a calibration is for one rubric in one mode")
    rate, confidence = _rates(error, excess, confidence)
    reference: TierName | None = None if excess is None else "deep"
    return _learn(files[0], rubric, mode, (rate, confidence, reference), out, as_json=as_json)


def _learn(
    labels: Path,
    rubric: str,
    mode: ModeName,
    promise: tuple[float, float, TierName | None],
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    from judgekit.evaluation import cases, runner, samples
    from judgekit.evaluation.calibrate import learn
    from judgekit.judging import calibration
    from judgekit.rubric import loader

    calibration.check(out)
    project = Path(environment.project_root(str(Path.cwd())))
    loaded = loader.find_rubric(rubric, project)
    given, missing = cases.read(labels), None
    if any(case.judges for case in given):
        opinions = runner.Opinions(given, samples.models(given), {})
    else:
        opinions = runner.ask(given, labels.parent, loaded, mode, project, progress(len(given), "cases"))
        missing = runner.unanswered(opinions.cases)
    known = learn(
        opinions.cases,
        opinions.models,
        loaded,
        mode,
        calibration.Promise(*promise),
        made=datetime.now(UTC),
        labels_sha256=cases.sha256(labels),
        asking=opinions.asking,
    )
    if as_json:
        emit(known.text().rstrip())
    else:
        _say(known)
    if known.gates or out is not None:
        path = out or calibration.default_path(known)
        calibration.write(known, path)
        calibration.accept(path)
        warn(f"written: {path}")
    else:
        warn("these labels support no promise, so no file was written; the rubric's own rules apply")
    if missing is None:
        return 0
    warn(missing)
    return Exit.HUMAN_NEEDED


def _accept(path: Path) -> int:
    from judgekit.judging import calibration

    known = calibration.read(path)
    _say(known)
    say(f"Made {known.made:%Y-%m-%d} from labels {known.labels_sha256[:12]}, which are not in the file")
    if sys.stdin.isatty() and not typer.confirm(
        "Accept this calibration in every project that has this file?"
    ):
        warn("not accepted; the rubric's own rules apply")
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


def _say(known: Calibration) -> None:
    from judgekit.judging.logprobs import WORDS

    rubric = f"{known.rubric.id}@{known.rubric.version}, {known.mode}"
    models = ", ".join(f"{tier} {model}" for tier, model in known.models.items())
    say(f"{known.id}: {rubric}; {models}; {known.cases} labelled")
    rate, reference = _exact(known.promise.rate), known.promise.reference
    promise = f"an opinion that is final differs from its label in at most {rate}"
    if reference is not None:
        promise = f"at most {rate} more errors than {reference} alone, which has the last word"
    say(f"Promised with {known.promise.confidence:.0%} confidence: {promise}")
    say()
    say("May be final" if known.gates else "May be final: nothing")
    for gate in known.gates:
        say(f"  {_class(gate, known):<44} {_seen(gate)}")
    if known.not_promised:
        say("Cannot be promised")
    for refused in known.not_promised:
        why = f"too few labels; about {refused.more} more are needed"
        if refused.more is None:
            why = "too many errors; more labels would not help"
        say(f"  {_class(refused, known):<44} {_seen(refused)}; {why}")
    for tier, count in known.read_otherwise.items():
        how = " and ".join(sorted(WORDS[each] for each in set(known.read[tier].values())))
        say(f"Left out: {count} of {tier}; its scores were {how} in other cases, but not in these")
    say()
    _say_table(known)


def _exact(rate: float) -> str:
    """Return a promised rate in percent, with all the digits that were asked for."""
    return f"{rate:.1%}" if round(rate, 3) == rate else f"{100 * rate:.10g}%"


def _class(rule: CalibratedRule, known: Calibration) -> str:
    if known.subjects:
        after = {"accept": " after a lead", "improve": " after a tie"}.get(rule.after or "", "")
        return f"best of {rule.tier}{after}, ahead by {rule.least_margin:g} or more"
    if rule.stands:
        return f"a win of {rule.stands} against a tie of {rule.tier}, lead {rule.least_margin:g} or more"
    after = f" after {rule.after}" if rule.after else ""
    margin = f", margin {rule.least_margin:g} or more" if rule.least_margin else ""
    return f"{rule.tier} {rule.outcome}{after}{margin}"


def _seen(rule: CalibratedRule) -> str:
    gains = f" and {rule.gains} gained" if rule.gains else ""
    # A bound that is not zero never reads as zero.
    one_decimal = rule.bound >= _LEAST_RATE or not rule.bound
    bound = f"{rule.bound:.1%}" if one_decimal else f"{100 * rule.bound:.2g}%"
    return f"{rule.errors} wrong{gains} of {rule.labels}, at most {bound}"


def _say_table(known: Calibration) -> None:
    say(f"{f'On these {known.cases} labels':<46}{'calibrated':>12}{'without':>12}")
    subjects = known.subjects.all if known.subjects else known.cases
    least = subjects * sum(tier != "tiebreaker" for tier in known.models)

    def row(name: str, figure: Callable[[Measured], str]) -> None:
        say(f"  {name:<44}{figure(known.with_gates):>12}{figure(known.without):>12}")

    row("final by calibration", lambda each: f"{each.by_gate / known.cases:.1%}")
    row("decided", lambda each: f"{each.decided / known.cases:.1%}")
    row("wrong among the decided", lambda each: f"{each.errors / each.decided:.1%}" if each.decided else "-")
    for tier in known.models:
        row(f"calls of {tier}", lambda each, tier=tier: str(each.calls.get(tier, 0)))  # type: ignore[misc]
    saved = "calls saved against quick and deep"
    row(saved, lambda each: f"{1 - sum(each.calls.values()) / least if least else 0.0:.1%}")
