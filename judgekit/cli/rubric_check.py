"""`judgekit rubric check`: whether a rubric is sound, and what models make of its cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit import paths
from judgekit.cli.judge import Mode
from judgekit.cli.output import complain, emit, finite, say
from judgekit.errors import ConfigError, Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName
    from judgekit.workshop.trial import Tried


def check(
    references: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID[@VERSION]|FILE...", help="Rubrics; all, if none is named."),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Ask the models set up here about its cases.")] = False,
    mode: Annotated[Mode | None, typer.Option(help="Only this mode of --run.")] = None,
    at_least: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            metavar="SHARE",
            help="Exit with 1 where fewer cases agree in a mode.",
        ),
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what --run found as JSON lines.")] = False,
) -> int:
    """Check rubrics: keys, types, thresholds, published versions, labelled cases.

    Exit code: 78 where one is wrong; with --run, 2 where a case stays undecided.
    """
    if as_json and not run:
        raise UsageError("--json prints what --run found; add --run")
    worst = Exit.ACCEPTED
    project = Path(paths.project_root(str(Path.cwd())))
    for reference in references or _all(project):
        try:
            code = _check(reference, project, run=run, mode=mode, at_least=at_least, as_json=as_json)
        except ConfigError as error:
            complain(str(error))
            code = Exit.BAD_CONFIG
        worst = max(worst, code, key=_badness)
    return worst


def _badness(code: Exit) -> int:
    order = (Exit.ACCEPTED, Exit.HUMAN_NEEDED, Exit.REJECTED, Exit.BAD_CONFIG)
    return order.index(code)


def _all(project: Path) -> list[str]:
    from judgekit import shelf

    return [str(path) for _, path in shelf.rubric_files(project)]


def _check(
    reference: str, project: Path, *, run: bool, mode: ModeName | None, at_least: float, as_json: bool
) -> Exit:
    """Check one rubric, print what there is to say, and return the exit code."""
    from judgekit import library
    from judgekit.cases import read_cases
    from judgekit.workshop.sound import remarks

    found = library.find_rubric(reference, project)
    cases = read_cases(found)
    said = remarks(found, cases)
    for each in said:
        complain(f"{each}" if each.wrong else f"note: {each}")
    if any(each.wrong for each in said):
        return Exit.BAD_CONFIG
    if not as_json:
        told = f"{found.rubric.ref} is sound, {len(cases)} labelled cases, SHA-256 {found.sha256}"
        say(f"{found.path}: {told}")
    return _run(found, project, mode, at_least, as_json=as_json) if run else Exit.ACCEPTED


def _run(
    found: LoadedRubric, project: Path, mode: ModeName | None, at_least: float, *, as_json: bool
) -> Exit:
    from judgekit.cases import read_cases
    from judgekit.workshop import trial

    modes = (mode,) if mode else trial.MODES
    tried = trial.run(
        found, read_cases(found), project, modes=modes, progress=_print_json if as_json else _print
    )
    codes = [_sum_up(each, [one for one in tried if one.mode == each], at_least) for each in modes]
    return max(codes, key=_badness)


def _sum_up(mode: ModeName, tried: Sequence[Tried], at_least: float) -> Exit:
    """Say how far one mode agrees with the labels, and return the exit code."""
    from judgekit.workshop import trial

    found = trial.agreement(tried)
    if found.share is None or found.bounds is None:
        why = next((each.why for each in tried if each.why), "there are no cases" if not tried else "")
        complain(f"{mode}: nothing was decided{f': {why}' if why else ''}")
        return Exit.HUMAN_NEEDED
    low, high = (f"{bound:.0%}" for bound in found.bounds)
    left = f", {found.undecided} undecided" if found.undecided else ""
    share = f"{found.right} of {found.decided} as labelled, {found.share:.0%} (95 % interval {low} to {high})"
    complain(f"{mode}: {share}{left}")
    if found.share < at_least:
        return Exit.REJECTED
    return Exit.HUMAN_NEEDED if found.undecided else Exit.ACCEPTED


def _print(each: Tried) -> None:
    mark = "  " if each.agrees else "! "
    scores = "".join(f"  {name} {value:g}" for name, value in (each.scores or {}).items())
    wanted = "" if each.agrees else f", not {each.expected}"
    say(f"{mark}{each.mode:<8} {each.case:<28} {each.said}{wanted}{scores}")


def _print_json(each: Tried) -> None:
    import json

    emit(json.dumps(each._asdict() | {"agrees": each.agrees}, ensure_ascii=False))
