"""`judgekit rubric`: list, show and find rubrics; check, compare and begin them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from judgekit import environment
from judgekit.cli.judge import Mode
from judgekit.cli.output import emit, finite, say, warn
from judgekit.errors import ConfigError, Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.runner import Tried
    from judgekit.rubric.loader import LoadedRubric


def check(
    references: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID[@VERSION]|FILE...", help="Rubrics to check; by default all."),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Judge the labelled cases with the models set up here.")
    ] = False,
    mode: Annotated[Mode | None, typer.Option(help="Run only this mode.")] = None,
    at_least: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            metavar="SHARE",
            help="Exit with 1 when a lower share of cases agrees in a mode.",
        ),
    ] = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results of --run as JSON Lines.")
    ] = False,
) -> int:
    """Check rubrics: keys, types, thresholds, published versions, labelled cases.

    Exit code: 78 when a rubric is wrong; with --run, 2 when a case stays undecided.
    """
    from judgekit.rubric import search_path

    if as_json and not run:
        raise UsageError("--json prints the results of --run; add --run")
    worst = Exit.ACCEPTED
    project = _project()
    for reference in references or [str(path) for _, path in search_path.rubric_files(project)]:
        try:
            code = _check(reference, project, run=run, mode=mode, at_least=at_least, as_json=as_json)
        except ConfigError as error:
            warn(str(error))
            code = Exit.BAD_CONFIG
        worst = max(worst, code, key=_badness)
    return worst


def _badness(code: Exit) -> int:
    order = (Exit.ACCEPTED, Exit.HUMAN_NEEDED, Exit.REJECTED, Exit.BAD_CONFIG)
    return order.index(code)


def _check(
    reference: str, project: Path, *, run: bool, mode: ModeName | None, at_least: float, as_json: bool
) -> Exit:
    """Check one rubric, print what there is to say, and return the exit code."""
    from judgekit.rubric import loader
    from judgekit.rubric.lint import remarks
    from judgekit.rubric.loader import read_cases

    loaded = loader.find_rubric(reference, project)
    cases = read_cases(loaded)
    said = remarks(loaded, cases)
    for remark in said:
        warn(f"{remark}" if remark.wrong else f"note: {remark}")
    if any(each.wrong for each in said):
        return Exit.BAD_CONFIG
    if not as_json:
        told = f"{loaded.rubric.ref} is valid, {len(cases)} labelled cases, SHA-256 {loaded.sha256}"
        say(f"{loaded.path}: {told}")
    return _run(loaded, project, mode, at_least, as_json=as_json) if run else Exit.ACCEPTED


def _run(
    loaded_rubric: LoadedRubric, project: Path, mode: ModeName | None, at_least: float, *, as_json: bool
) -> Exit:
    from judgekit.evaluation import runner
    from judgekit.rubric.loader import read_cases

    modes = (mode,) if mode else runner.MODES
    tried = runner.trial(
        loaded_rubric,
        read_cases(loaded_rubric),
        project,
        modes=modes,
        progress=_print_json if as_json else _print,
    )
    codes = [_sum_up(mode, [one for one in tried if one.mode == mode], at_least) for mode in modes]
    return max(codes, key=_badness)


def _sum_up(mode: ModeName, tried: Sequence[Tried], at_least: float) -> Exit:
    """Say how far one mode agrees with the labels, and return the exit code."""
    from judgekit.evaluation import runner

    agreed = runner.agreement(tried)
    if agreed.share is None or agreed.bounds is None:
        why = next((each.why for each in tried if each.why), "it has no cases" if not tried else "")
        warn(f"{mode}: no case was decided{f': {why}' if why else ''}")
        return Exit.HUMAN_NEEDED
    low, high = (f"{bound:.0%}" for bound in agreed.bounds)
    left = f", {agreed.undecided} undecided" if agreed.undecided else ""
    share = (
        f"{agreed.right} of {agreed.decided} as labelled, {agreed.share:.0%} (95 % interval {low} to {high})"
    )
    warn(f"{mode}: {share}{left}")
    if agreed.share < at_least:
        return Exit.REJECTED
    return Exit.HUMAN_NEEDED if agreed.undecided else Exit.ACCEPTED


def _print(each: Tried) -> None:
    mark = "  " if each.agrees else "! "
    scores = "".join(f"  {name} {value:g}" for name, value in (each.scores or {}).items())
    wanted = "" if each.agrees else f", not {each.expected}"
    say(f"{mark}{each.mode:<8} {each.case:<28} {each.said}{wanted}{scores}")


def _print_json(each: Tried) -> None:
    import json

    emit(json.dumps(each._asdict() | {"agrees": each.agrees}, ensure_ascii=False))


_REFERENCE = "ID[@VERSION]|FILE"


def diff(
    before: Annotated[str, typer.Argument(metavar=f"BEFORE:{_REFERENCE}", help="The old rubric.")],
    after: Annotated[str, typer.Argument(metavar=f"AFTER:{_REFERENCE}", help="The new rubric.")],
    run: Annotated[bool, typer.Option("--run", help="Judge the cases of the new rubric under both.")] = False,
    mode: Annotated[Mode | None, typer.Option(help="Run only this mode.")] = None,
) -> int:
    """Show what changed between two rubrics, key by key; with --run, also which verdicts change."""
    from judgekit.rubric import loader
    from judgekit.rubric.diff import changes

    project = _project()
    old, new = (loader.find_rubric(each, project) for each in (before, after))
    if old.rubric.task != new.rubric.task:
        tasks = f"{old.rubric.ref} is for {old.rubric.task!r}, {new.rubric.ref} for {new.rubric.task!r}"
        raise UsageError(f"{tasks}; rubrics of one task can be compared")
    found = changes(old.rubric, new.rubric)
    for change in found:
        say(str(change))
    if not found:
        say("no difference")
    if run:
        _rubric_diff_run(old, new, project, mode)
    return 0


def _rubric_diff_run(old: LoadedRubric, new: LoadedRubric, project: Path, mode: ModeName | None) -> None:
    from judgekit.evaluation import runner
    from judgekit.rubric.loader import read_cases

    cases = read_cases(new) or read_cases(old)
    if not cases:
        raise UsageError(f"neither {old.rubric.ref} nor {new.rubric.ref} has labelled cases to try")
    modes = (mode,) if mode else runner.MODES
    both = [runner.trial(loaded_rubric, cases, project, modes=modes) for loaded_rubric in (old, new)]
    for flip in runner.flips(*both):
        worth = {True: "better", False: "worse", None: "still not right"}[flip.better]
        said = f"{flip.before} -> {flip.after} (labelled {flip.expected}: {worth})"
        say(f"{flip.mode:<8} {flip.case:<28} {said}")
    for each in modes:
        shares = [runner.agreement(one for one in tried if one.mode == each).share for tried in both]
        said = " -> ".join("none decided" if share is None else f"{share:.0%}" for share in shares)
        warn(f"{each}: as labelled {said} of {len(cases)} cases")


def new(
    name: Annotated[
        str, typer.Argument(metavar="ID[@VERSION]", help="ID or ID@VERSION; the default version is 1.0.0.")
    ],
    like: Annotated[
        str | None,
        typer.Option("--from", metavar="ID[@VERSION]|FILE", help="Copy this rubric with its cases."),
    ] = None,
    task: Annotated[
        Literal["score", "select", "compare"] | None,
        typer.Option(help="Task: score documents (default), select memories, or compare two texts."),
    ] = None,
    user: Annotated[
        bool,
        typer.Option("--user", help="Write to your own folder, not to the project's .judgekit/rubrics."),
    ] = False,
) -> int:
    """Write a commented rubric and labelled cases to start from; overwrites nothing."""
    from judgekit.rubric import loader
    from judgekit.rubric.loader import begin

    if like is not None and task is not None:
        raise UsageError("--from copies the rubric's task; remove --task")
    project = _project()
    folder = Path(environment.config_home()) / "rubrics" if user else project / ".judgekit" / "rubrics"
    source = loader.find_rubric(like, project) if like is not None else None
    begun = begin(name, folder, task=task or "score", like=source)
    for path in begun:
        say(str(path))
    warn(f"edit both, then run: judgekit rubric check {begun.rubric.stem}")
    return 0


app = typer.Typer(no_args_is_help=True, help="Rubrics: what is good, as versioned YAML.")
Reference = Annotated[str, typer.Argument(metavar=_REFERENCE, help="Which rubric.")]


@app.command("list")
def list_() -> int:
    """List all usable rubrics and where they come from."""
    from judgekit.rubric import search_path

    code = Exit.ACCEPTED
    for origin, path in search_path.rubric_files(_project()):
        try:
            head = search_path.head(path)
            if head is None:  # of one's own, which is read whole to see whether it is sound
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
    reference: Reference,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print only the prompt text for one mode.")
    ] = False,
    mode: Annotated[Mode, typer.Option(help="The mode of --prompt.")] = "strict",
) -> int:
    """Print a rubric."""
    from judgekit.rubric import loader

    loaded = loader.find_rubric(reference, _project())
    if prompt:
        from judgekit.judging.prompt import rubric_text

        say(rubric_text(loaded.rubric, mode))
    else:
        say(loaded.path.read_text(encoding="utf-8").rstrip())
    return 0


@app.command()
def path(reference: Reference) -> int:
    """Print the path of a rubric's file."""
    from judgekit.rubric import loader

    say(str(loader.find_rubric(reference, _project()).path))
    return 0


app.command("check")(check)
app.command("diff")(diff)
app.command("new")(new)


def _project() -> Path:
    return Path(environment.project_root(str(Path.cwd())))
