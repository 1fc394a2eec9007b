"""`judgekit calibrate`: learns from labels which opinions may be final at a promised error rate."""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import options, output_files
from judgekit.cli.evaluate import read_cases, warn_unanswered
from judgekit.cli.figures import NAME_WIDTH
from judgekit.cli.options import AsJson
from judgekit.cli.output import emit, get_project_path, note, say, warn
from judgekit.cli.progress import count_to
from judgekit.cli.row_options import Id, Map
from judgekit.config import ModeName, TierName
from judgekit.errors import Exit, UsageError
from judgekit.text import escape_name, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.evaluation.calibrate import Opinions
    from judgekit.evaluation.cases import Case
    from judgekit.judging.calibration import CalibratedRule, Calibration, Measured, Promise, Saved
    from judgekit.rubric.loader import LoadedRubric

_DEFAULT_RATE = 0.05
_STRONGEST_TIER: TierName = "deep"
_EXAMPLE_AGREEMENT = 0.95  # of the promise of agreement that serves as an example
_EXAMPLE_ROWS = 2_000
_FILES_ARGUMENT = Argument(
    metavar="LABELS.jsonl|accept FILE", help="Labelled cases; or `accept` and a calibration."
)
_EXCESS_OPTION = Option(
    metavar="RATE", help="Promise at most this much more error than deep alone."
)
_OUT_OPTION = Option(
    metavar="FILE",
    callback=output_files.refuse_input,
    help="Write to this file, not your folder.",
)


def calibrate(
    files: Annotated[list[Path], _FILES_ARGUMENT],
    rubric: options.RubricOption = None,
    mode: options.ModeOption = None,
    error: Annotated[
        float | None, Option(metavar="RATE", help="Promise this error rate (or 0.05).")
    ] = None,
    excess: Annotated[float | None, _EXCESS_OPTION] = None,
    confidence: Annotated[float, Option(help="Confidence of the promise, between 0 and 1.")] = 0.95,
    map_: Map = None,
    id_: Id = None,
    base: options.Base = None,
    out: Annotated[Path | None, _OUT_OPTION] = None,
    as_json: AsJson = False,
    _model: options.ModelOption = None,  # reading it sets a variable, which is used later
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
    promise = _build_promise(error, excess, confidence)
    return _learn(files[0], rubric, mode, promise, out, map_, id_, base=base, as_json=as_json)


def _build_promise(error: float | None, excess: float | None, confidence: float) -> Promise:
    """Build a promise that limits the error rate, or its excess over the deep tier's. Raises `UsageError`."""
    from judgekit.judging.calibration import Promise

    if error is not None and excess is not None:
        raise UsageError("--error and --excess are two different promises; give one")

    rate = _DEFAULT_RATE if error is None else error
    reference: Literal["deep"] | None = None
    if excess is not None:  # in addition to the deep tier's errors
        rate = excess
        reference = "deep"

    for name, value in (("--error or --excess", rate), ("--confidence", confidence)):
        if not 0 < value < 1:
            raise UsageError(f"{name}: expected a number between 0 and 1, got {value:g}")
    return Promise(rate=rate, confidence=confidence, reference=reference)


def _learn(
    labels: Path,
    rubric: str,
    mode: ModeName,
    promise: Promise,
    out: Path | None,
    map_: list[str] | None,
    id_: str | None,
    *,
    base: Path | None,
    as_json: bool,
) -> int:
    """Learn from labels and print the result. Write it to a file if it promises anything, or with `out`."""
    from judgekit.evaluation import runner
    from judgekit.evaluation.calibrate import learn
    from judgekit.judging import calibration_files
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.rubric import loader

    calibration_files.check_writable(out)  # before any model is called

    project = get_project_path()
    loaded = loader.find_rubric(rubric, project)
    cases, left_out = read_cases(labels, loaded.rubric, mode, map_, id_)
    unanswered = None  # stays None if no model is asked
    has_recorded_answers = any(case.judges for case in cases)
    if has_recorded_answers:
        opinions = _use_recorded_answers(cases)
    else:
        progress = count_to(len(cases), "cases")
        named_inputs = NamedInputs.of(labels, base)
        opinions = runner.ask(cases, named_inputs, loaded, mode, project, progress)
        left_out.add_unasked(opinions.unasked_reasons)
        unanswered = runner.describe_unanswered(opinions.cases)
    if left_out.describe():
        note(escape_name(f"{labels}: left out: {left_out.describe()}"))

    digest = hashlib.sha256(labels.read_bytes()).hexdigest()
    calibration = learn(opinions, loaded, mode, promise, made=datetime.now(UTC), digest=digest)
    if as_json:
        emit(calibration.format_json().rstrip())
    else:
        _say_agreement(opinions.cases, loaded, mode)
        _say_calibration(calibration)
    _write_if_useful(calibration, out)
    if unanswered is not None:
        return warn_unanswered(unanswered)
    return Exit.ACCEPTED


def _use_recorded_answers(cases: list[Case]) -> Opinions:
    """Take the answers from the cases instead of asking models. Raises `UsageError` if `--model` is given."""
    from judgekit.evaluation import samples
    from judgekit.evaluation.calibrate import Opinions

    if environment.environ().get("JUDGEKIT_ONLY_MODEL"):
        raise UsageError(
            "--model asks a model, and these cases have recorded answers; leave one out"
        )
    return Opinions(cases, samples.find_models(cases), asking={})


def _write_if_useful(calibration: Calibration, out: Path | None) -> None:
    """Write a calibration and accept it for this user.

    If it promises nothing, do so only if `out` is given.
    """
    from judgekit.judging import calibration_files

    if not calibration.gates and out is None:
        note(
            "these labels support no promise, so no file was written; the rubric's own rules apply"
        )
        return
    path = calibration_files.write(calibration, out)
    calibration_files.accept(path)
    note(f"Wrote {path}")


def _say_agreement(cases: Sequence[Case], loaded: LoadedRubric, mode: ModeName) -> None:
    """Print how many rows `judge --agree` would probably leave to the first tier."""
    from judgekit.evaluation import agreement, samples, tasks
    from judgekit.rubric.schema import ScoreRubric

    # There are at least two tiers, or no calibration could have been learned.
    tiers = list(samples.find_models(cases))

    # Agreement can only be estimated for scores.
    has_scores = isinstance(loaded.rubric, ScoreRubric)
    has_comparisons = any(case.subjects for case in cases)
    if not has_scores or has_comparisons:
        return

    has_no_cheaper_tier = bool(tiers) and tiers[0] == _STRONGEST_TIER
    if has_no_cheaper_tier:
        return

    promise = agreement.Promise(_EXAMPLE_AGREEMENT, strict=mode == "strict")
    case_samples = tasks.read_samples(cases, loaded.rubric, mode)
    share = agreement.simulate_decided_fraction(
        case_samples, tiers[0], _STRONGEST_TIER, _EXAMPLE_ROWS, promise
    )
    if share is None:  # the strong tier judged too few cases
        return

    decided = f"{tiers[0]} decide about {share:.0%} of {_EXAMPLE_ROWS:,} rows like these"
    say(f"Without labels, judge --data FILE --agree {_EXAMPLE_AGREEMENT:g} would let {decided}")
    say("With these labels, a calibration says how often an opinion is right:\n")


def _accept(path: Path) -> int:
    """Show what a calibration allows, and if the user agrees, let their judges follow it."""
    from judgekit.judging import calibration_files

    calibration = calibration_files.read_calibration(path)
    _say_calibration(calibration)
    labels = f"labels {calibration.labels_sha256[:12]}"
    say(f"Made {calibration.made:%Y-%m-%d} from {labels}, which are not in the file")
    question = "Accept this calibration in every project that has this file?"
    # Without a terminal nobody can be asked, so the command itself is the agreement.
    if sys.stdin.isatty() and not typer.confirm(question):
        warn("not accepted; the rubric's own rules apply")
        return Exit.REJECTED

    calibration_files.accept(path)
    note(f"accepted: {path}; a changed file must be accepted again")
    return 0


def _say_calibration(calibration: Calibration) -> None:
    """Print a calibration's promise, the opinions that may be final, and the effect on the labels."""
    _say_promise(calibration)
    _say_rules(calibration)
    _say_left_out(calibration)
    _say_effect(calibration)
    _say_likelihoods(calibration)


def _say_promise(calibration: Calibration) -> None:
    """Print the rubric, the models, the number of labels, and the promised error rate."""
    rubric = f"{calibration.rubric.id}@{calibration.rubric.version}, {calibration.mode}"
    models = ", ".join(f"{tier} {model}" for tier, model in calibration.models.items())
    say(f"{calibration.id}: {rubric}; {models}; {calibration.cases} labelled")

    rate = _format_rate(calibration.promise.rate)
    reference = calibration.promise.reference
    if reference is None:
        promise = f"an opinion that is final differs from its label in at most {rate}"
    else:
        promise = f"at most {rate} more errors than {reference} alone, which has the last word"
    say(f"Promised with {calibration.promise.confidence:.0%} confidence: {promise}\n")


def _format_rate(rate: float) -> str:
    """Format a rate as a percentage: 5.0%, or with all its digits if there are more, as 0.25%."""
    has_more_digits = round(rate, 3) != rate
    if has_more_digits:
        return f"{100 * rate:.10g}%"
    return f"{rate:.1%}"


def _say_rules(calibration: Calibration) -> None:
    """Print the opinions that may be final, and those about which nothing can be promised."""
    say("May be final" if calibration.gates else "May be final: nothing")
    for gate in calibration.gates:
        say(_format_rule(gate, calibration))

    if calibration.not_promised:
        say("Cannot be promised")
    for refused in calibration.not_promised:
        reason = "too many errors; more labels would not help"
        if refused.more is not None:
            reason = f"too few labels; about {refused.more} more are needed"
        say(f"{_format_rule(refused, calibration)}; {reason}")


def _say_left_out(calibration: Calibration) -> None:
    """Print how many of a tier's answers were left out, and how the others were given.

    An answer is left out if its model, or the source of its scores, isn't the usual one.
    """
    from judgekit.judging.score_source import SOURCE_WORDS

    for tier, count in calibration.read_otherwise.items():
        sources = set(calibration.read[tier].values())
        source_words = " and ".join(sorted(SOURCE_WORDS[source] for source in sources))
        models = set(calibration.answered.get(tier, {}).values())
        names = " and ".join(sorted(models))
        usual_way = f"in other cases {names} answered, and its scores were {source_words}"
        say(f"Left out: {count} of {tier}; {usual_way}")


def _say_effect(calibration: Calibration) -> None:
    """Print how judging would have gone on the labelled cases, with and without the calibration."""
    cases = calibration.cases
    title = f"On these {format_count(cases, 'label', 'labels')}"
    say(f"\n{title:<46}{'calibrated':>12}{'without':>12}")
    outcomes = (calibration.with_gates, calibration.without)
    # Cases can also be decided without a gate, by the rubric's own rules.
    _say_row("final by calibration", [f"{outcome.by_gate / cases:.1%}" for outcome in outcomes])
    _say_row("decided", [f"{outcome.decided / cases:.1%}" for outcome in outcomes])
    _say_row("wrong among the decided", [_describe_wrong(outcome) for outcome in outcomes])
    for tier in calibration.models:
        _say_row(f"calls of {tier}", [str(outcome.calls.get(tier, 0)) for outcome in outcomes])

    quick_and_deep_calls = _count_usual_calls(calibration)
    saved_calls = [_describe_saved_calls(outcome, quick_and_deep_calls) for outcome in outcomes]
    _say_row("calls saved against quick and deep", saved_calls)
    if calibration.saved is not None:
        _say_saved_amounts(calibration.saved)


def _say_row(name: str, figures: Sequence[str]) -> None:
    """Print a figure with the calibration, and the same one without it."""
    calibrated, without = figures
    say(f"  {name:<{NAME_WIDTH}}{calibrated:>12}{without:>12}")


def _describe_wrong(measured: Measured) -> str:
    """Format the error rate among the decided cases; "-" if none was decided."""
    if not measured.decided:
        return "-"
    return f"{measured.errors / measured.decided:.1%}"


def _count_usual_calls(calibration: Calibration) -> int:
    """Count the calls that asking both quick and deep about each subject would take."""
    subject_count = calibration.cases
    if calibration.subjects:  # each case compares several subjects
        subject_count = calibration.subjects.all
    usual_tiers = [tier for tier in calibration.models if tier != "tiebreaker"]
    return subject_count * len(usual_tiers)


def _describe_saved_calls(measured: Measured, usual_calls: int) -> str:
    """Format the fraction of the usual calls that judging would have saved."""
    if not usual_calls:
        return f"{0.0:.1%}"
    return f"{1 - sum(measured.calls.values()) / usual_calls:.1%}"


def _say_saved_amounts(saved: Saved) -> None:
    """Print the money and time that a hundred subjects save, as far as they're known."""
    amounts = []
    if saved.usd is not None:
        amounts.append(f"{saved.usd:.4f} USD")
    if saved.seconds is not None:
        amounts.append(f"{saved.seconds:g} s of waiting")
    if amounts:
        say(f"  Of a hundred, the calibration saves {' and '.join(amounts)}")


def _say_likelihoods(calibration: Calibration) -> None:
    """Print the share of labels that accept, at each tier's lowest, middle and highest leaning."""
    for tier, curve in calibration.likelihoods.items():
        middle = len(curve.points) // 2
        points = [curve.points[0], curve.points[middle], curve.points[-1]]
        shares_by_leaning = [f"{leaning:+g}: {share:.0%}" for leaning, share in points]
        # In a short curve, points can coincide.
        shares = ", ".join(dict.fromkeys(shares_by_leaning))
        say(f"Accepted by the labels, by how far {tier} leans to it ({curve.kind}): {shares}")


def _format_rule(rule: CalibratedRule, calibration: Calibration) -> str:
    """Format a rule as a line: its opinions, their errors and gains, and the bound of the error rate."""
    opinions_text = _describe_opinions(rule, is_of_comparisons=bool(calibration.subjects))
    # A gain is a label that only the reference tier got wrong.
    gains = f" and {rule.gains} gained" if rule.gains else ""
    bound = rule.bound
    # A bound of the excess over the reference tier can also be 0 or negative.
    if bound > 0:
        bound = max(bound, 0.001)  # don't round it to 0.0%
    return f"  {opinions_text:<{NAME_WIDTH}} {rule.errors} wrong{gains} of {rule.labels}, at most {bound:.1%}"


def _describe_opinions(rule: CalibratedRule, *, is_of_comparisons: bool) -> str:
    """Describe a rule's opinions, such as "quick accept, margin 0.5 or more"."""
    margin = f"{rule.least_margin:g} or more"
    if is_of_comparisons:
        # For these, "accept" means that one text leads, and "improve" that there's a tie.
        after = ""
        if rule.after == "accept":
            after = " after a lead"
        elif rule.after == "improve":
            after = " after a tie"
        return f"best of {rule.tier}{after}, ahead by {margin}"
    if rule.stands:  # the tier whose win stays final although `rule.tier` sees a tie
        return f"a win of {rule.stands} against a tie of {rule.tier}, lead {margin}"

    text = f"{rule.tier} {rule.outcome}"
    if rule.after:
        text = f"{text} after {rule.after}"
    if rule.leaning is not None:
        text = f"{text}, leaning {rule.leaning:g} or more"
    if rule.least_margin:
        text = f"{text}, margin {margin}"
    return text
