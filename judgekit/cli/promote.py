"""`judgekit promote`: from advisory to blocking, when the figures allow it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli.ledger import Ledgers, damaged, here, places
from judgekit.cli.output import complain, say
from judgekit.errors import ConfigError, Exit, UsageError


def promote(
    force: Annotated[
        bool, typer.Option("--force", help="Promote although something is missing; the ledger keeps that.")
    ] = False,
    ledger: Ledgers = None,
) -> int:
    """Make the gate block pushes, once all KPIs hold over at least 14 days; exit code 1 when they do not.

    Writes `gate.mode: blocking` into the project's .judgekit/config.yaml, for the team to commit.
    """
    from judgekit import config, datafile, library
    from judgekit.ledger import ModeChange, person, read, standing

    project = _repository()
    path = config.project_file(project)
    _refuse_links(path)
    rubric = library.configured_rubric("gate", config.load(project).gate.rubric, project).rubric.ref
    found = standing.readiness(read.records(places(ledger, None), standing.window(), damaged), rubric)
    say(f"{rubric}, verdicts of the last {standing.WINDOW.days} days:")
    for each in found.kpis:
        say(f"  {'ok' if each.state == 'holds' else 'missing':<8} {standing.said(each)}")
    for lack in found.missing:
        complain(f"missing: {lack}")
    if not (found.ready or force):
        complain("not promoted; judgekit kpi shows the figures, --force promotes all the same")
        return Exit.REJECTED
    change = ModeChange(mode="blocking", who=person.who(project), forced=not found.ready, why=found.missing)
    datafile.put(path, "gate", "mode", "blocking")
    say(f"{path}: gate.mode is blocking now; commit it, and it holds for the team")
    here().add(change)  # last: the ledger must not tell of a promotion that failed
    return 0


def _repository() -> Path:
    """Return the folder that the gate reads the rules of; raises `UsageError` where there is none."""
    from judgekit.git import GitError, Repository

    try:
        told = Repository(Path.cwd()).ask("rev-parse", "--show-toplevel").removesuffix(b"\n")
    except GitError as error:
        raise UsageError(
            f"promote needs a git repository, whose pushes the gate can block ({error})"
        ) from None
    return Path(os.fsdecode(told))


def _refuse_links(path: Path) -> None:
    """Raise `ConfigError` for a file that git would commit as a link: the gate reads none."""
    for each in (path.parent, path):
        if each.is_symlink():
            raise ConfigError("a link, which the gate does not follow; put the file itself there", path=each)
