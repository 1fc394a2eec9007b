"""`judgekit rubric`: lists, shows, checks and compares rubrics, and starts new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import options
from judgekit.cli.evaluate import keep_noise, say_judges, warn_unanswered
from judgekit.cli.options import OutOption, check_finite
from judgekit.cli.output import emit, get_project_path, note, say, warn
from judgekit.cli.progress import count_to
from judgekit.config import MODES, ModeName
from judgekit.errors import ConfigError, Exit, InputError, UsageError
from judgekit.text import format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.evaluation.calibrate import Opinions
    from judgekit.evaluation.runner import Agreement
    from judgekit.evaluation.task import Tried
    from judgekit.rubric.lint import Remark
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Case as RubricCase
    from judgekit.rubric.schema import Rubric, WrongCase
    from judgekit.rubric.search_path import Head, Origin

app = typer.Typer(no_args_is_help=True, help="Rubrics: what is good, as versioned YAML.")
terms = typer.Typer(no_args_is_help=True, help="The words that assign a remark to a dimension.")
app.add_typer(terms, name="terms")

_REFERENCE = "ID[@VERSION]|FILE"
_REFERENCES_ARGUMENT = Argument(
    metavar=f"{_REFERENCE}...", help="Rubrics to check; by default all."
)
_AT_LEAST_OPTION = Option(
    min=0, max=1, callback=check_finite, metavar="SHARE", help="Exit with 1 when fewer cases agree."
)
_LIKE_OPTION = Option("--from", metavar=_REFERENCE, help="Copy this with its cases.")
_TASK_OPTION = Option(help="Score documents (default), select memories, or compare two texts.")
_EXIT_CODES_BEST_FIRST = (Exit.ACCEPTED, Exit.HUMAN_NEEDED, Exit.REJECTED, Exit.BAD_CONFIG)

_Reference = Annotated[str, Argument(metavar=_REFERENCE, help="Which rubric.")]
_OneMode = Annotated[ModeName | None, Option("--mode", help="Run only this mode.")]


@app.command("list")
def list_() -> int:
    """List all usable rubrics and their origins."""
    from judgekit.rubric import search_path

    code = Exit.ACCEPTED
    for origin, path in search_path.rubric_files(get_project_path()):
        try:
            head = _read_head(path, origin)
        except ConfigError as error:
            warn(str(error))
            code = Exit.BAD_CONFIG
            continue
        say(f"{head.ref:<28} {head.task:<7} {origin:<8} {head.title}")
    return code


def _read_head(path: Path, origin: Origin) -> Head:
    """Read a rubric's reference, task and title; raises `ConfigError` for an invalid rubric."""
    from judgekit.rubric import search_path

    head = search_path.read_head(path)
    if head is not None:
        return head

    # An unpublished rubric must be read completely, to see if it's valid.
    from judgekit.rubric import loader

    rubric = loader.load_rubric(path, origin).rubric
    return search_path.Head(rubric.ref, rubric.task, rubric.title)


@app.command()
def show(
    reference: _Reference,
    prompt: Annotated[
        bool, Option("--prompt", help="Print only the prompt text for one mode.")
    ] = False,
    mode: Annotated[ModeName, Option(help="The mode of --prompt.")] = "strict",
) -> None:
    """Print a rubric."""
    loaded = _load_rubric(reference)
    if prompt:
        from judgekit.judging.questions import get_question_class

        say(get_question_class(loaded.rubric).write_agent_text(loaded.rubric, mode))
    else:
        say(loaded.path.read_text(encoding="utf-8").rstrip())


@app.command("path")
def print_path(reference: _Reference) -> None:
    """Print the path of a rubric's file."""
    say(str(_load_rubric(reference).path))


@app.command()
def check(
    references: Annotated[list[str] | None, _REFERENCES_ARGUMENT] = None,
    run: Annotated[
        bool, Option("--run", help="Judge the labelled cases with the models here.")
    ] = False,
    mode: _OneMode = None,
    at_least: Annotated[float, _AT_LEAST_OPTION] = 0.0,
    repeat: options.Repeat = 1,
    keep: options.Keep = False,
    as_json: Annotated[
        bool, Option("--json", help="Print the results of --run as JSON Lines.")
    ] = False,
    model: options.ModelOption = None,
    _out: OutOption = None,
) -> int:
    """Check rubrics: keys, types, thresholds, published versions, labelled cases.

    Exit code: 78 when a rubric is wrong; with --run, 2 when a case stays undecided.
    """
    from judgekit.rubric import search_path

    # Check the options.
    needing_run = {"--json": as_json, "--model": model, "--repeat": repeat > 1, "--keep": keep}
    for option, value in needing_run.items():
        if value and not run:
            raise UsageError(f"{option} is for the cases of --run; add --run")

    if keep and repeat == 1:
        raise UsageError("--keep keeps what --repeat measures; add --repeat 3, or more")

    if not references:
        references = [str(path) for _, path in search_path.rubric_files(get_project_path())]

    # Check each rubric, and if wanted, judge its cases.
    codes = [Exit.ACCEPTED]
    for reference in references:
        checked = _read_if_sound(reference)
        if checked is None:
            codes.append(Exit.BAD_CONFIG)
            continue

        loaded, cases, wrong = checked
        if not as_json:
            count = format_count(len(cases), "labelled case", "labelled cases")
            summary = f"is valid, {count}, SHA-256 {loaded.sha256}"
            say(f"{loaded.path}: {loaded.rubric.ref} {summary}")

        if not run:
            continue

        modes = (mode,) if mode else MODES
        codes += _judge_cases(loaded, cases, modes, at_least, as_json=as_json)

        for one_mode in modes:
            if wrong:
                _judge_wrong_texts(loaded, wrong, one_mode, as_json=as_json)
            if cases and repeat > 1:
                code = _judge_repeatedly(
                    loaded, cases, one_mode, repeat, keep=keep, as_json=as_json
                )
                codes.append(code)

    return max(codes, key=_EXIT_CODES_BEST_FIRST.index)


class _SoundRubric(NamedTuple):
    """A rubric without errors, its labelled cases, and its texts that are known to be wrong."""

    loaded: LoadedRubric
    cases: Sequence[RubricCase]
    wrong_cases: Sequence[WrongCase]


def _read_if_sound(reference: str) -> _SoundRubric | None:
    """Read a rubric and print remarks about it; None if it has errors."""
    from judgekit.rubric import loader
    from judgekit.rubric.lint import list_remarks

    try:
        loaded = _load_rubric(reference)
        cases = loader.read_cases(loaded)
        wrong = loader.read_wrong_cases(loaded)
        is_sound = _print_remarks(list_remarks(loaded, cases, wrong))
    except ConfigError as error:
        warn(str(error))
        return None

    return _SoundRubric(loaded, cases, wrong) if is_sound else None


def _print_remarks(remarks: Iterable[Remark]) -> bool:
    """Print remarks about a rubric, and return False if any is an error."""
    is_sound = True
    for remark in remarks:
        if remark.is_error:
            is_sound = False
            warn(str(remark))
        else:
            note(f"note: {remark}")
    return is_sound


def _judge_cases(
    loaded: LoadedRubric,
    cases: Sequence[RubricCase],
    modes: Sequence[ModeName],
    at_least: float,
    *,
    as_json: bool,
) -> list[Exit]:
    """Judge a rubric's cases and print them, with each mode's agreement with the labels.

    Returns an exit code for each mode. `at_least` is the agreement that a mode needs.
    """
    from judgekit.evaluation import runner

    print_case = _emit_case if as_json else _say_case
    trials = runner.judge_cases(loaded, cases, get_project_path(), modes=modes, progress=print_case)
    codes = []
    for mode in modes:
        trials_in_mode = [tried for tried in trials if tried.mode == mode]
        code = _say_agreement(mode, trials_in_mode, at_least)
        codes.append(code)
    return codes


def _emit_case(tried: Tried) -> None:
    """Print a judged case as JSON."""
    record = {**tried._asdict(), "agrees": tried.agrees}
    emit(json.dumps(record, ensure_ascii=False))


def _say_case(tried: Tried) -> None:
    """Print a judged case as a line, which starts with "!" if the verdict isn't as labelled."""
    mark = "  " if tried.agrees else "! "
    answer = tried.said if tried.agrees else f"{tried.said}, not {tried.expected}"
    for name, value in (tried.scores or {}).items():
        answer += f"  {name} {value:g}"
    say(f"{mark}{tried.mode:<8} {tried.case:<28} {answer}")


def _say_agreement(mode: ModeName, trials: Sequence[Tried], at_least: float) -> Exit:
    """Print how many cases were judged as labelled in a mode, and return the exit code.

    Undecided cases need a person. If fewer than `at_least` agree, the rubric is rejected.
    """
    from judgekit.evaluation import runner

    agreement = runner.count_agreements(trials)
    if agreement.share is None:
        _warn_undecided(mode, trials)
        return Exit.HUMAN_NEEDED

    count = f"{agreement.right} of {agreement.decided} as labelled"
    undecided = f", {agreement.undecided} undecided" if agreement.undecided else ""
    note(f"{mode}: {count}, {_describe_share(agreement)}{undecided}")

    if agreement.share.value < at_least:
        return Exit.REJECTED
    if agreement.undecided:
        return Exit.HUMAN_NEEDED
    return Exit.ACCEPTED


def _warn_undecided(mode: ModeName, trials: Sequence[Tried]) -> None:
    """Warn that no case was decided in a mode, with the first reason if there's any."""
    reasons = [tried.why for tried in trials if tried.why]
    if not trials:
        reasons = ["it has no cases"]
    reason = f": {reasons[0]}" if reasons else ""
    warn(f"{mode}: no case was decided{reason}")


def _describe_share(agreement: Agreement) -> str:
    """Format the fraction of texts judged as expected, with its interval."""
    share = agreement.share
    if share is None:
        return "none was read"
    return f"{share.value:.0%} (95 % interval {share.low:.0%} to {share.high:.0%})"


def _judge_wrong_texts(
    loaded: LoadedRubric, wrong: Sequence[WrongCase], mode: ModeName, *, as_json: bool
) -> None:
    """Judge intentionally wrong texts, and print which fraction of each kind a tier accepts."""
    from judgekit.evaluation import runner

    progress = count_to(len(wrong), "wrong texts")
    leniency = runner.measure_leniency(loaded, wrong, mode, get_project_path(), progress)
    for judge, accepted_by_kind in leniency.items():
        if as_json:
            _emit_leniency(mode, judge, accepted_by_kind)
        else:
            _note_leniency(mode, judge, accepted_by_kind)


def _emit_leniency(mode: ModeName, judge: str, accepted_by_kind: Mapping[str, Agreement]) -> None:
    """Print as JSON how many wrong texts of each kind a judge accepts."""
    shares = {kind: _build_share_record(accepted) for kind, accepted in accepted_by_kind.items()}
    record = {"mode": mode, "judge": judge, "accepted_wrong": shares}
    emit(json.dumps(record, ensure_ascii=False))


def _build_share_record(agreement: Agreement) -> dict[str, Any]:
    """Build the JSON record of how many texts were judged as expected."""
    share = agreement.share
    return {
        "right": agreement.right,
        "decided": agreement.decided,
        "undecided": agreement.undecided,
        "bounds": share.bounds if share else None,
        "share": share.value if share else None,
    }


def _note_leniency(mode: ModeName, judge: str, accepted_by_kind: Mapping[str, Agreement]) -> None:
    """Print in one line how many wrong texts of each kind a judge accepts."""
    parts = []
    for kind, accepted in accepted_by_kind.items():
        # Here, `right` is the number of accepted texts, although these are wrong.
        count = f"{accepted.right} of {accepted.decided} {kind}"
        parts.append(f"{count}, {_describe_share(accepted)}")
    note(f"{mode}: {judge} accepts of wrong texts {'; '.join(parts)}")


def _judge_repeatedly(
    loaded: LoadedRubric,
    cases: Sequence[RubricCase],
    mode: ModeName,
    times: int,
    *,
    keep: bool,
    as_json: bool,
) -> Exit:
    """Judge a rubric's cases `times` times, and print how much the verdicts vary. Returns the exit code.

    If `keep`, the measured noise is saved for the gate.
    """
    from judgekit.evaluation import report, runner

    opinions = _ask_repeatedly(loaded, cases, mode, times)
    # The report also needs the result that all tiers reach together.
    judged_cases = opinions.add_combined_result(loaded.rubric, mode)
    measured = report.report(judged_cases, loaded.rubric.ref, loaded, mode)
    say_judges(measured, as_json=as_json)

    code = Exit.ACCEPTED
    if keep:
        code = keep_noise(measured, opinions.judge)
    unanswered = runner.describe_unanswered(opinions.cases)
    # If the figures don't cover all cases, a person is needed, even if the noise was saved.
    if unanswered is not None:
        code = warn_unanswered(unanswered)
    return code


def _ask_repeatedly(
    loaded: LoadedRubric, cases: Sequence[RubricCase], mode: ModeName, times: int
) -> Opinions:
    """Ask the models about each case `times` times; raises `InputError` if a case isn't judged."""
    from judgekit.evaluation import runner
    from judgekit.evaluation.cases import Case
    from judgekit.judging.named_inputs import NamedInputs

    # The runner takes an evaluation's cases, so convert those of the rubric.
    converted_cases = [Case.model_validate(case.model_dump()) for case in cases]
    # Each case is asked about once as it is. The other times are reruns.
    repeated_cases = runner.add_variants(converted_cases, times - 1, swapped=False)
    progress = count_to(len(repeated_cases), "answers")
    named_inputs = NamedInputs.of(loaded.path)
    opinions = runner.ask(repeated_cases, named_inputs, loaded, mode, get_project_path(), progress)
    if opinions.unasked_reasons:
        first_reason = opinions.unasked_reasons[0]
        raise InputError(f"{loaded.path}: a case is not judged: {first_reason}")
    return opinions


@app.command()
def diff(
    before: Annotated[str, Argument(metavar=f"BEFORE:{_REFERENCE}", help="The old rubric.")],
    after: Annotated[str, Argument(metavar=f"AFTER:{_REFERENCE}", help="The new rubric.")],
    run: Annotated[
        bool, Option("--run", help="Judge the cases of the new rubric under both.")
    ] = False,
    mode: _OneMode = None,
    model: options.ModelOption = None,
) -> None:
    """Show what changed between two rubrics, key by key; with --run, also which verdicts change."""
    # The option's parser has already applied the model.
    if model and not run:
        raise UsageError("--model is for the cases of --run; add --run")

    from judgekit.rubric.lint import list_changes

    old = _load_rubric(before)
    new = _load_rubric(after)
    _check_same_task(old.rubric, new.rubric)

    changes = list_changes(old.rubric, new.rubric)
    lines = [str(change) for change in changes]
    say("\n".join(lines) or "no difference")
    if run:
        _compare_verdicts(old, new, mode)


def _check_same_task(old: Rubric, new: Rubric) -> None:
    """Raise `UsageError` if two rubrics are for different tasks."""
    if old.task != new.task:
        tasks = f"{old.ref} is for {old.task!r}, {new.ref} for {new.task!r}"
        raise UsageError(f"{tasks}; rubrics of one task can be compared")


def _compare_verdicts(old: LoadedRubric, new: LoadedRubric, mode: ModeName | None) -> None:
    """Judge the same cases under both rubrics, and print changed verdicts.

    The cases are those of the new rubric, or else of the old one. Raises `UsageError` if neither has any.
    """
    from judgekit.evaluation import runner
    from judgekit.rubric.loader import read_cases

    cases = read_cases(new) or read_cases(old)
    if not cases:
        raise UsageError(f"neither {old.rubric.ref} nor {new.rubric.ref} has labelled cases to try")

    modes = (mode,) if mode else MODES
    old_trials = runner.judge_cases(old, cases, get_project_path(), modes=modes)
    new_trials = runner.judge_cases(new, cases, get_project_path(), modes=modes)
    for old_verdict, tried in runner.find_flips(old_trials, new_trials):
        _say_flip(old_verdict, tried)

    count = format_count(len(cases), "case", "cases")
    for one_mode in modes:
        old_share = _describe_share_as_labelled(old_trials, one_mode)
        new_share = _describe_share_as_labelled(new_trials, one_mode)
        note(f"{one_mode}: as labelled {old_share} -> {new_share} of {count}")


def _say_flip(old_verdict: str, tried: Tried) -> None:
    """Print a changed verdict, and if it's better or worse than the old one."""
    if tried.agrees:
        effect = "better"
    elif old_verdict == tried.expected:
        effect = "worse"
    else:
        effect = "still not right"
    flip = f"{old_verdict} -> {tried.said} (labelled {tried.expected}: {effect})"
    say(f"{tried.mode:<8} {tried.case:<28} {flip}")


def _describe_share_as_labelled(trials: Sequence[Tried], mode: ModeName) -> str:
    """Describe which share of the decided cases is judged as labelled in a mode, such as "85%"."""
    from judgekit.evaluation import runner

    trials_in_mode = [tried for tried in trials if tried.mode == mode]
    share = runner.count_agreements(trials_in_mode).share
    return "none decided" if share is None else f"{share.value:.0%}"


@app.command("new")
def begin_rubric(
    name: Annotated[str, Argument(metavar="ID[@VERSION]", help="The default version is 1.0.0.")],
    like: Annotated[str | None, _LIKE_OPTION] = None,
    task: Annotated[Literal["score", "select", "compare"] | None, _TASK_OPTION] = None,
    user: Annotated[
        bool, Option("--user", help="Write to your own folder, not to the project's.")
    ] = False,
) -> None:
    """Write a commented rubric, labelled cases and the schema for editors; overwrites nothing."""
    from judgekit.rubric.loader import create_rubric

    # `like` is the option --from.
    if like is not None and task is not None:
        raise UsageError("--from copies the rubric's task; remove --task")

    folder = get_project_path() / ".judgekit" / "rubrics"
    if user:
        folder = Path(environment.RUBRICS.path())
    original = None if like is None else _load_rubric(like)
    files = create_rubric(name, folder, task=task or "score", like=original)
    for file in files:
        say(str(file))

    rubric_file, _cases_file, *_schema = files  # the first two are to be edited
    note(f"edit both, then run: judgekit rubric check {rubric_file.stem}")


@terms.command("import")
def import_(
    file: Annotated[
        Path,
        Argument(
            metavar="FILE", help="Lines `term: dimension`, a thesaurus as JSON, or a folder of one."
        ),
    ],
    rubric: Annotated[
        str, Option("--rubric", metavar=_REFERENCE, help="A rubric of your own to change.")
    ],
) -> int:
    """Add terms to the dimensions of a rubric of yours. Exit code 65 when a dimension does not exist."""
    from judgekit.rubric.terms import add_terms, read_terms

    loaded = _load_rubric(rubric)
    pairs = read_terms(file)
    added_terms, left_out_counts = add_terms(loaded, pairs)
    for dimension, new_terms in added_terms.items():
        say(f"{dimension}: {len(new_terms)} added: {', '.join(new_terms)}")

    added_count = sum(len(new_terms) for new_terms in added_terms.values())
    left_out_count = left_out_counts.total()
    known_count = len(pairs) - added_count - left_out_count
    say(f"{loaded.path}: {format_count(added_count, 'term', 'terms')} added, {known_count} known")

    for dimension, count in left_out_counts.items():
        problem = f"no dimension {shorten_to_line(dimension, 100)!r} in {loaded.rubric.ref}"
        warn(f"{problem}: {format_count(count, 'term', 'terms')} left out")
    return Exit.BAD_INPUT if left_out_counts else 0


def _load_rubric(reference: str) -> LoadedRubric:
    """Load a rubric by its id, with or without version, or from its file."""
    from judgekit.rubric import loader

    return loader.find_rubric(reference, get_project_path())
