"""`judgekit promote`: from advisory to blocking, when the figures allow it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from judgekit.cli.ledger import Ledgers, damaged, here, places
from judgekit.cli.output import complain, say
from judgekit.errors import Exit


def promote(
    force: Annotated[
        bool, typer.Option("--force", help="Promote although something is missing; the ledger keeps that.")
    ] = False,
    ledger: Ledgers = None,
) -> int:
    """Make the gate block pushes, once all KPIs hold over at least 14 days; exit code 1 when they do not.

    Writes `gate.mode: blocking` into the project's .judgekit/config.yaml, for the team to commit.
    """
    from judgekit import config, datafile, library, paths
    from judgekit.ledger import ModeChange, person, read, standing

    project = Path(paths.project_root(str(Path.cwd())))
    rubric = library.score_rubric(config.load(project).gate.rubric, project).rubric.ref
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
    here().add(change)
    path = config.project_file(project)
    datafile.put(path, "gate", "mode", "blocking")
    say(f"{path}: gate.mode is blocking now; commit it, and it holds for the team")
    return 0
