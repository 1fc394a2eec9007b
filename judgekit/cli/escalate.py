"""`judgekit escalate`: an issue on GitHub for what a person must settle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.ledger import damaged, here
from judgekit.cli.output import emit, keeps, say, warn
from judgekit.cli.override import last_verdict
from judgekit.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.settings import EscalateConfig
    from judgekit.ledger import VerdictLine


def escalate(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="A verdict's task, PATH@SHA256, or a path: its last verdict. Without it, all that are open.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the issues; send nothing.")] = False,
) -> int:
    """Open or update one GitHub issue a task, through gh. Exit code 2 when one could not be opened."""
    from judgekit import environment
    from judgekit.config.settings import load

    settings = load(Path(environment.project_root(str(Path.cwd())))).escalate
    verdicts = _wanted(task, settings)
    if not verdicts:
        say("nothing waits for a person")
        return Exit.ACCEPTED
    if dry_run:
        return _show(verdicts, settings)
    return _send(verdicts, settings)


def _wanted(task: str | None, settings: EscalateConfig) -> Sequence[VerdictLine]:
    """Return what is to be escalated, newest first."""
    from judgekit.gate import github
    from judgekit.ledger import LineFilter, OverrideLine, VerdictLine

    ledger = here()
    if task is None:
        records = ledger.records(LineFilter(kinds=[VerdictLine, OverrideLine]), damaged)
        return github.unsettled(records, rejects=settings.rejects)
    verdict_line = last_verdict(ledger, task)
    if verdict_line is None:
        raise UsageError(f"{task}: no verdict on it in {ledger.folder}")
    if verdict_line.verdict == "accept":
        raise UsageError(f"{task}: it was accepted; there is nothing to escalate")
    return [verdict_line]


def _show(verdicts: Sequence[VerdictLine], settings: EscalateConfig) -> int:
    from judgekit.gate import issues

    for verdict in verdicts:
        wanted = issues.of(verdict, text=settings.text)
        emit(f"{wanted.title}\n\n{wanted.body}\n")
    return Exit.ACCEPTED


def _send(verdicts: Sequence[VerdictLine], settings: EscalateConfig) -> int:
    from judgekit.gate import github
    from judgekit.gate.github import GhError

    done = 0
    try:
        # Someone waits for it: each may take as long as all do where it happens by itself.
        seconds = github.SECONDS * len(verdicts)
        issues = github.ensure(verdicts, settings, github.IssueTarget(Path.cwd()), seconds=seconds)
        keeps(f"0 of {len(verdicts)} issues are seen to; judgekit escalate does the rest", ";")
        for done, each in enumerate(issues, 1):
            keeps(f"{done} of {len(verdicts)} issues are seen to; judgekit escalate does the rest", ";")
            say(str(each))
    except GhError as error:
        warn(f"no issue was opened for {len(verdicts) - done}: {error}")
        return Exit.HUMAN_NEEDED
    return Exit.ACCEPTED
