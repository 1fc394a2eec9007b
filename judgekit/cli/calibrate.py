"""`judgekit calibrate`: which opinions may be final, learned from labels at a promised error rate."""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import options, output_files
from judgekit.cli.evaluate import WIDTH, answered, read_cases
from judgekit.cli.options import AsJson
from judgekit.cli.output import emit, note, project_path, say, warn
from judgekit.cli.progress import count_to
from judgekit.cli.row_options import Id, Map
from judgekit.config import ModeName
from judgekit.errors import Exit, UsageError
from judgekit.text import counted, escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.judging.calibration import CalibratedRule, Calibration, Measured, Promise

_FILES = Argument(
    metavar="LABELS.jsonl|accept FILE", help="Labelled cases; or `accept` and a calibration."
)
_EXCESS = Option(metavar="RATE", help="Promise at most this much more error than deep alone.")
_OUT = Option(
    metavar="FILE", callback=output_files.unread, help="Write to this file, not your folder."
)


def calibrate(
    files: Annotated[list[Path], _FILES],
    rubric: options.RubricOption = None,
    mode: options.ModeOption = None,
    error: Annotated[
        float | None, Option(metavar="RATE", help="Promise this error rate (or 0.05).")
    ] = None,
    excess: Annotated[float | None, _EXCESS] = None,
    confidence: Annotated[float, Option(help="Confidence of the promise, between 0 and 1.")] = 0.95,
    map_: Map = None,
    id_: Id = None,
    out: Annotated[Path | None, _OUT] = None,
    as_json: AsJson = False,
    _model: options.ModelOption = None,
) -> int:
    """Learn which opinions of which tier may be final at a promised error rate; needs --rubric and --mode.

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
    if error is not None and excess is not None:
        raise UsageError("--error and --excess are two different promises; give one")
    rate = next((each for each in (error, excess) if each is not None), 0.05)
    for name, value in (("--error or --excess", rate), ("--confidence", confidence)):
        if not 0 < value < 1:
            raise UsageError(f"{name}: expected a number between 0 and 1, got {value:g}")
    from judgekit.judging.calibration import Promise

    promise = Promise(
        rate=rate, confidence=confidence, reference=None if excess is None else "deep"
    )
    return _learn(files[0], rubric, mode, promise, out, map_, id_, as_json=as_json)


def _learn(
    labels: Path,
    rubric: str,
    mode: ModeName,
    promise: Promise,
    out: Path | None,
    map_: list[str] | None,
    id_: str | None,
    *,
    as_json: bool,
) -> int:
    from judgekit.evaluation import runner, samples
    from judgekit.evaluation.calibrate import Opinions, learn
    from judgekit.judging import calibration_files
    from judgekit.rubric import loader

    calibration_files.check(out)
    project = project_path()
    loaded = loader.find_rubric(rubric, project)
    given, left_out = read_cases(labels, loaded.rubric, mode, map_, id_)
    if left_out.told():
        note(escaped(f"{labels}: left out: {left_out.told()}"))
    missing = None
    if any(case.judges for case in given):
        if environment.environ().get("JUDGEKIT_ONLY_MODEL"):
            raise UsageError(
                "--model asks a model, and these cases have recorded answers; leave one out"
            )
        opinions = Opinions(given, samples.models(given), {})
    else:
        opinions = runner.ask(
            given, labels.parent, loaded, mode, project, count_to(len(given), "cases")
        )
        missing = runner.unanswered(opinions.cases)
    digest = hashlib.sha256(labels.read_bytes()).hexdigest()
    known = learn(opinions, loaded, mode, promise, made=datetime.now(UTC), digest=digest)
    if as_json:
        emit(known.text().rstrip())
    else:
        _say_calibration(known)
    if known.gates or out is not None:
        path = calibration_files.write(known, out)
        calibration_files.accept(path)
        note(f"Wrote {path}")
    else:
        note(
            "these labels support no promise, so no file was written; the rubric's own rules apply"
        )
    return answered(missing)


def _accept(path: Path) -> int:
    from judgekit.judging import calibration_files

    known = calibration_files.read(path)
    _say_calibration(known)
    say(
        f"Made {known.made:%Y-%m-%d} from labels {known.labels_sha256[:12]}, which are not in the file"
    )
    question = "Accept this calibration in every project that has this file?"
    if sys.stdin.isatty() and not typer.confirm(question):
        warn("not accepted; the rubric's own rules apply")
        return Exit.REJECTED
    calibration_files.accept(path)
    note(f"accepted: {path}; a changed file must be accepted again")
    return 0


def _say_calibration(known: Calibration) -> None:
    from judgekit.judging.score_source import SOURCE_WORDS

    rubric = f"{known.rubric.id}@{known.rubric.version}, {known.mode}"
    models = ", ".join(f"{tier} {model}" for tier, model in known.models.items())
    say(f"{known.id}: {rubric}; {models}; {known.cases} labelled")
    rate = known.promise.rate
    reference = known.promise.reference
    exact = f"{rate:.1%}" if round(rate, 3) == rate else f"{100 * rate:.10g}%"
    promise = f"an opinion that is final differs from its label in at most {exact}"
    if reference is not None:
        promise = f"at most {exact} more errors than {reference} alone, which has the last word"
    say(f"Promised with {known.promise.confidence:.0%} confidence: {promise}\n")
    say("May be final" if known.gates else "May be final: nothing")
    for gate in known.gates:
        say(_rule_line(gate, known))
    if known.not_promised:
        say("Cannot be promised")
    for refused in known.not_promised:
        why = "many errors; more labels would not help"
        if refused.more is not None:
            why = f"few labels; about {refused.more} more are needed"
        say(f"{_rule_line(refused, known)}; too {why}")
    for tier, count in known.read_otherwise.items():
        sources = set(known.read[tier].values())
        how = " and ".join(sorted(SOURCE_WORDS[source] for source in sources))
        say(f"Left out: {count} of {tier}; its scores were {how} in other cases, but not in these")
    title = f"On these {counted(known.cases, 'label', 'labels')}"
    say(f"\n{title:<46}{'calibrated':>12}{'without':>12}")
    subjects = known.subjects.all if known.subjects else known.cases
    least = subjects * sum(tier != "tiebreaker" for tier in known.models)

    def row(name: str, figure: Callable[[Measured], str]) -> None:
        say(f"  {name:<{WIDTH}}{figure(known.with_gates):>12}{figure(known.without):>12}")

    def share_of_wrong(measured: Measured) -> str:
        return f"{measured.errors / measured.decided:.1%}" if measured.decided else "-"

    def share_of_saved(measured: Measured) -> str:
        return f"{1 - sum(measured.calls.values()) / least if least else 0.0:.1%}"

    row("final by calibration", lambda measured: f"{measured.by_gate / known.cases:.1%}")
    row("decided", lambda measured: f"{measured.decided / known.cases:.1%}")
    row("wrong among the decided", share_of_wrong)
    for tier in known.models:
        row(f"calls of {tier}", lambda measured, tier=tier: str(measured.calls.get(tier, 0)))  # type: ignore[misc]
    row("calls saved against quick and deep", share_of_saved)
    if known.saved is not None:
        amounts = []
        if known.saved.usd is not None:
            amounts.append(f"{known.saved.usd:.4f} USD")
        if known.saved.seconds is not None:
            amounts.append(f"{known.saved.seconds:g} s of waiting")
        if amounts:
            say(f"  Of a hundred, the calibration saves {' and '.join(amounts)}")
    for tier, curve in known.likelihoods.items():
        places = [curve.points[0], curve.points[len(curve.points) // 2], curve.points[-1]]
        texts = [f"{leaning:+g}: {share:.0%}" for leaning, share in places]
        shares = ", ".join(dict.fromkeys(texts))
        say(f"Accepted by the labels, by how far {tier} leans to it ({curve.kind}): {shares}")


def _rule_line(rule: CalibratedRule, known: Calibration) -> str:
    """Return which opinions a rule is about, how many of them were wrong, and the bound of their rate."""
    margin = f"{rule.least_margin:g} or more"
    if known.subjects:
        after = {"accept": " after a lead", "improve": " after a tie"}.get(rule.after or "", "")
        what = f"best of {rule.tier}{after}, ahead by {margin}"
    elif rule.stands:
        what = f"a win of {rule.stands} against a tie of {rule.tier}, lead {margin}"
    else:
        what = f"{rule.tier} {rule.outcome}"
        if rule.after:
            what = f"{what} after {rule.after}"
        if rule.leaning is not None:
            what = f"{what}, leaning {rule.leaning:g} or more"
        if rule.least_margin:
            what = f"{what}, margin {margin}"
    gains = f" and {rule.gains} gained" if rule.gains else ""
    bound = rule.bound
    if bound > 0:
        bound = max(bound, 0.001)  # never "at most 0.0%"
    return f"  {what:<{WIDTH}} {rule.errors} wrong{gains} of {rule.labels}, at most {bound:.1%}"
