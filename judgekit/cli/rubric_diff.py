"""`judgekit rubric diff`: what changed between two rubrics, and which verdicts change with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit import paths
from judgekit.cli.judge import Mode
from judgekit.cli.output import complain, say
from judgekit.errors import UsageError

if TYPE_CHECKING:
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName

_REFERENCE = "ID[@VERSION]|FILE"


def diff(
    before: Annotated[str, typer.Argument(metavar=f"BEFORE:{_REFERENCE}", help="The rubric as it was.")],
    after: Annotated[str, typer.Argument(metavar=f"AFTER:{_REFERENCE}", help="The rubric as it is now.")],
    run: Annotated[
        bool, typer.Option("--run", help="Ask the models set up here about the cases of AFTER under both.")
    ] = False,
    mode: Annotated[Mode | None, typer.Option(help="Only this mode of --run.")] = None,
) -> int:
    """Say what changed between two rubrics, key by key; with --run, which verdicts on their cases change."""
    from judgekit import library
    from judgekit.workshop import differences

    project = Path(paths.project_root(str(Path.cwd())))
    old, new = (library.find_rubric(each, project) for each in (before, after))
    if old.rubric.task != new.rubric.task:
        tasks = f"{old.rubric.ref} is for {old.rubric.task!r}, {new.rubric.ref} for {new.rubric.task!r}"
        raise UsageError(f"{tasks}; rubrics of one task can be compared")
    found = differences.changes(old.rubric, new.rubric)
    for change in found:
        say(str(change))
    if not found:
        say("nothing differs")
    if run:
        _run(old, new, project, mode)
    return 0


def _run(old: LoadedRubric, new: LoadedRubric, project: Path, mode: ModeName | None) -> None:
    from judgekit.cases import read_cases
    from judgekit.workshop import differences, trial

    cases = read_cases(new) or read_cases(old)
    if not cases:
        raise UsageError(f"neither {old.rubric.ref} nor {new.rubric.ref} has labelled cases to try")
    modes = (mode,) if mode else trial.MODES
    both = [trial.run(each, cases, project, modes=modes) for each in (old, new)]
    for flip in differences.flips(*both):
        worth = {True: "better", False: "worse", None: "still not right"}[flip.better]
        said = f"{flip.before} -> {flip.after} (labelled {flip.expected}: {worth})"
        say(f"{flip.mode:<8} {flip.case:<28} {said}")
    for each in modes:
        shares = [trial.agreement(one for one in tried if one.mode == each).share for tried in both]
        said = " -> ".join("none decided" if share is None else f"{share:.0%}" for share in shares)
        complain(f"{each}: as labelled {said} of {len(cases)} cases")
