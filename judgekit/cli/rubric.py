"""`judgekit rubric`: lists, shows, checks and compares rubrics, and begins new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import options
from judgekit.cli.evaluate import answered, keep_noise, say_judges
from judgekit.cli.options import OutOption, finite
from judgekit.cli.output import emit, note, project_path, say, warn
from judgekit.cli.progress import count_to
from judgekit.config import ModeName
from judgekit.errors import ConfigError, Exit, InputError, UsageError
from judgekit.text import counted, short_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.evaluation.runner import Agreement, Tried
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import WrongCase

app = typer.Typer(no_args_is_help=True, help="Rubrics: what is good, as versioned YAML.")
terms = typer.Typer(no_args_is_help=True, help="The words that assign a remark to a dimension.")
app.add_typer(terms, name="terms")

_REFERENCE = "ID[@VERSION]|FILE"
_REFERENCES = Argument(metavar=f"{_REFERENCE}...", help="Rubrics to check; by default all.")
_AT_LEAST = Option(
    min=0, max=1, callback=finite, metavar="SHARE", help="Exit with 1 when fewer cases agree."
)
_LIKE = Option("--from", metavar=_REFERENCE, help="Copy this with its cases.")
_TASK = Option(help="Score documents (default), select memories, or compare two texts.")
_BY_BADNESS = (Exit.ACCEPTED, Exit.HUMAN_NEEDED, Exit.REJECTED, Exit.BAD_CONFIG)

_Reference = Annotated[str, Argument(metavar=_REFERENCE, help="Which rubric.")]
_OneMode = Annotated[ModeName | None, Option("--mode", help="Run only this mode.")]


@app.command("list")
def list_() -> int:
    """List all usable rubrics and where they come from."""
    from judgekit.rubric import search_path

    code = Exit.ACCEPTED
    for origin, path in search_path.rubric_files(project_path()):
        try:
            head = search_path.head(path)
            if head is None:  # not a published one: it is read whole to see whether it is sound
                from judgekit.rubric import loader

                rubric = loader.load_rubric(path, origin).rubric
                head = search_path.Head(rubric.ref, rubric.task, rubric.title)
        except ConfigError as error:
            warn(str(error))
            code = Exit.BAD_CONFIG
        else:
            say(f"{head.ref:<28} {head.task:<7} {origin:<8} {head.title}")
    return code


@app.command()
def show(
    reference: _Reference,
    prompt: Annotated[
        bool, Option("--prompt", help="Print only the prompt text for one mode.")
    ] = False,
    mode: Annotated[ModeName, Option(help="The mode of --prompt.")] = "strict",
) -> None:
    """Print a rubric."""
    loaded = _loaded(reference)
    if prompt:
        from judgekit.judging.prompt import rubric_text

        say(rubric_text(loaded.rubric, mode))
    else:
        say(loaded.path.read_text(encoding="utf-8").rstrip())


@app.command()
def path(reference: _Reference) -> None:
    """Print the path of a rubric's file."""
    say(str(_loaded(reference).path))


@app.command()
def check(
    references: Annotated[list[str] | None, _REFERENCES] = None,
    run: Annotated[
        bool, Option("--run", help="Judge the labelled cases with the models here.")
    ] = False,
    mode: _OneMode = None,
    at_least: Annotated[float, _AT_LEAST] = 0.0,
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
    from judgekit.rubric import loader, search_path
    from judgekit.rubric.lint import MODES, remarks

    given = {"--json": as_json, "--model": model, "--repeat": repeat > 1, "--keep": keep}
    if not run and (option := next(filter(given.get, given), None)):
        raise UsageError(f"{option} is for the cases of --run; add --run")
    if keep and repeat == 1:
        raise UsageError("--keep keeps what --repeat measures; add --repeat 3, or more")
    codes = [Exit.ACCEPTED]
    for reference in references or [
        str(path) for _, path in search_path.rubric_files(project_path())
    ]:
        try:
            loaded = _loaded(reference)
            cases = loader.read_cases(loaded)
            wrong = loader.read_wrong(loaded)
            found = remarks(loaded, cases, wrong)
            for remark in found:
                (warn if remark.wrong else note)(f"{'' if remark.wrong else 'note: '}{remark}")
            is_wrong = any(remark.wrong for remark in found)
        except ConfigError as error:
            warn(str(error))
            is_wrong = True
        if is_wrong:
            codes.append(Exit.BAD_CONFIG)
            continue
        if not as_json:
            summary = f"is valid, {len(cases)} labelled cases, SHA-256 {loaded.sha256}"
            say(f"{loaded.path}: {loaded.rubric.ref} {summary}")
        if run:
            codes += _try_out(loaded, mode, at_least, as_json=as_json)
            for each in [mode] if mode else MODES:
                _try_wrong(loaded, wrong, each, as_json=as_json)
                if cases and repeat > 1:
                    codes.append(_repeat(loaded, each, repeat, keep=keep, as_json=as_json))
    return max(codes, key=_BY_BADNESS.index)


def _try_out(
    loaded: LoadedRubric, mode: ModeName | None, at_least: float, *, as_json: bool
) -> list[Exit]:
    """Judge a rubric's cases, say how far each mode agrees with their labels, and return the exit codes."""
    from judgekit.evaluation import runner
    from judgekit.rubric.loader import read_cases

    def on_case(each: Tried) -> None:
        if as_json:
            emit(json.dumps(each._asdict() | {"agrees": each.agrees}, ensure_ascii=False))
            return
        if each.agrees:
            mark = "  "
            wanted = ""
        else:
            mark = "! "
            wanted = f", not {each.expected}"
        scores = "".join(f"  {name} {value:g}" for name, value in (each.scores or {}).items())
        say(f"{mark}{each.mode:<8} {each.case:<28} {each.said}{wanted}{scores}")

    modes = (mode,) if mode else runner.MODES
    codes = []
    everything = runner.trial(
        loaded, read_cases(loaded), project_path(), modes=modes, progress=on_case
    )
    for one in modes:
        tried = [each for each in everything if each.mode == one]
        agreed = runner.agreement(tried)
        if agreed.share is None:
            why = next(
                (each.why for each in tried if each.why), "it has no cases" if not tried else ""
            )
            warn(f"{one}: no case was decided{f': {why}' if why else ''}")
            codes.append(Exit.HUMAN_NEEDED)
            continue
        if agreed.undecided:
            left = f", {agreed.undecided} undecided"
        else:
            left = ""
        note(f"{one}: {agreed.right} of {agreed.decided} as labelled, {_share(agreed)}{left}")
        if agreed.undecided:
            undecided = Exit.HUMAN_NEEDED
        else:
            undecided = Exit.ACCEPTED
        codes.append(Exit.REJECTED if agreed.share.value < at_least else undecided)
    return codes


def _share(found: Agreement) -> str:
    share = found.share
    if share is None:
        return "none was read"
    return f"{share.value:.0%} (95 % interval {share.low:.0%} to {share.high:.0%})"


def _try_wrong(
    loaded: LoadedRubric, wrong: Sequence[WrongCase], mode: ModeName, *, as_json: bool
) -> None:
    """Say which share of the wrong texts beside a rubric each model accepts."""
    from judgekit.evaluation import runner

    shown = count_to(len(wrong), "wrong texts")
    if wrong:
        found = runner.leniency(loaded, wrong, mode, project_path(), shown)
    else:
        found = {}
    for judge, kinds in found.items():
        if as_json:
            shares = {}
            for kind, share in kinds.items():
                shares[kind] = {
                    "right": share.right,
                    "decided": share.decided,
                    "undecided": share.undecided,
                    "bounds": share.share.bounds if share.share else None,
                    "share": share.share.value if share.share else None,
                }
            emit(
                json.dumps(
                    {"mode": mode, "judge": judge, "accepted_wrong": shares}, ensure_ascii=False
                )
            )
            continue
        parts = []
        for kind, each in kinds.items():
            parts.append(f"{each.right} of {each.decided} {kind}, {_share(each)}")
        note(f"{mode}: {judge} accepts of wrong texts {'; '.join(parts)}")


def _repeat(loaded: LoadedRubric, mode: ModeName, times: int, *, keep: bool, as_json: bool) -> Exit:
    """Ask every tier again about a rubric's cases; say how often outcomes flip, and how far scores move."""
    from judgekit.evaluation import report, runner
    from judgekit.evaluation.cases import Case
    from judgekit.rubric.loader import read_cases

    cases = [Case.model_validate(case.model_dump()) for case in read_cases(loaded)]
    cases = runner.again(cases, times - 1, swapped=False)
    shown = count_to(len(cases), "answers")
    asked = runner.ask(cases, loaded.path.parent, loaded, mode, project_path(), shown)
    measured = report.report(
        asked.with_course(loaded.rubric, mode), loaded.rubric.ref, loaded, mode
    )
    say_judges(measured, as_json=as_json)
    if keep:
        kept = keep_noise(measured, asked.judge)
    else:
        kept = Exit.ACCEPTED
    return answered(runner.unanswered(asked.cases)) or kept


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
    if model and not run:
        raise UsageError("--model is for the cases of --run; add --run")
    from judgekit.rubric.lint import changes

    old = _loaded(before)
    new = _loaded(after)
    if old.rubric.task != new.rubric.task:
        tasks = (
            f"{old.rubric.ref} is for {old.rubric.task!r}, {new.rubric.ref} for {new.rubric.task!r}"
        )
        raise UsageError(f"{tasks}; rubrics of one task can be compared")
    say("\n".join(map(str, changes(old.rubric, new.rubric))) or "no difference")
    if not run:
        return
    from judgekit.evaluation import runner
    from judgekit.rubric.loader import read_cases

    cases = read_cases(new) or read_cases(old)
    if not cases:
        raise UsageError(f"neither {old.rubric.ref} nor {new.rubric.ref} has labelled cases to try")
    modes = (mode,) if mode else runner.MODES
    both = []
    for loaded in (old, new):
        both.append(runner.trial(loaded, cases, project_path(), modes=modes))
    for earlier, now in runner.flips(*both):
        if now.agrees:
            worth = "better"
        else:
            worth = "worse" if earlier == now.expected else "still not right"
        say(
            f"{now.mode:<8} {now.case:<28} {earlier} -> {now.said} (labelled {now.expected}: {worth})"
        )
    for each in modes:
        shares = []
        for tried in both:
            share = runner.agreement(one for one in tried if one.mode == each).share
            shares.append("none decided" if share is None else f"{share.value:.0%}")
        words = " -> ".join(shares)
        note(f"{each}: as labelled {words} of {counted(len(cases), 'case', 'cases')}")


@app.command()
def new(
    name: Annotated[str, Argument(metavar="ID[@VERSION]", help="The default version is 1.0.0.")],
    like: Annotated[str | None, _LIKE] = None,
    task: Annotated[Literal["score", "select", "compare"] | None, _TASK] = None,
    user: Annotated[
        bool, Option("--user", help="Write to your own folder, not to the project's.")
    ] = False,
) -> None:
    """Write a commented rubric, labelled cases and the schema for editors; overwrites nothing."""
    from judgekit.rubric.loader import begin

    if like is not None and task is not None:
        raise UsageError("--from copies the rubric's task; remove --task")
    if user:
        folder = Path(environment.RUBRICS.path())
    else:
        folder = project_path() / ".judgekit" / "rubrics"
    begun = begin(name, folder, task=task or "score", like=None if like is None else _loaded(like))
    for path in begun:
        say(str(path))
    note(f"edit both, then run: judgekit rubric check {begun[0].stem}")


@terms.command("import")
def import_(
    file: Annotated[
        Path, Argument(metavar="FILE", help="Lines `term: dimension`, or a thesaurus as JSON.")
    ],
    rubric: Annotated[
        str, Option("--rubric", metavar=_REFERENCE, help="A rubric of your own to change.")
    ],
) -> int:
    """Add terms to the dimensions of a rubric of yours. Exit code 65 when a dimension does not exist."""
    from judgekit.rubric.terms import add, parse

    loaded = _loaded(rubric)
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            reason = error.strerror
        else:
            reason = "not UTF-8"
        raise InputError(f"{file}: cannot be read ({reason})") from None
    pairs = parse(text, str(file))
    added, unknown = add(loaded, pairs)
    for name, new in added.items():
        say(f"{name}: {len(new)} added: {', '.join(new)}")
    count = sum(map(len, added.values()))
    say(f"{loaded.path}: {count} terms added, {len(pairs) - count - unknown.total()} known")
    for name, count in unknown.items():
        warn(
            f"no dimension {short_line(name, 100)!r} in {loaded.rubric.ref}: {count} terms left out"
        )
    return Exit.BAD_INPUT if unknown else 0


def _loaded(reference: str) -> LoadedRubric:
    from judgekit.rubric import loader

    return loader.find_rubric(reference, project_path())
