"""`judgekit override`: a person's decision about one blob; `escalate`: an issue that asks for one."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from judgekit.cli.ledger import damaged, here
from judgekit.cli.output import emit, keeps, say, warn
from judgekit.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.settings import EscalateConfig
    from judgekit.ledger import Ledger, VerdictLine


Decision: TypeAlias = Literal["accept", "reject"]


def override(
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="PATH@SHA256 of a verdict, or a path for its last verdict."),
    ],
    decision: Annotated[Decision, typer.Argument(metavar="accept|reject", help="Your decision.")],
    why: Annotated[str, typer.Option(help="Your reason, recorded in the ledger.")],
) -> int:
    """Override the verdict on a file until the file changes."""
    from judgekit.config import settings
    from judgekit.ledger import OverrideLine, labels, records

    if not why.strip():
        raise UsageError("--why is empty; give a reason")
    ledger = here()
    verdict = last_verdict(ledger, task)
    if verdict is None and not records.is_one_blob(task):
        told = f"give PATH@SHA256 as the gate prints it, {records.DIGITS} digits or more"
        raise UsageError(f"{task}: no verdict on it in {ledger.folder}; {told}")
    line = OverrideLine(
        task_id=verdict.task_id if verdict else task,
        decision=decision,
        why=why,
        who=labels.who(),
        terminal=labels.at_terminal(),
        subjects=[subject.sha256 for subject in verdict.subjects if subject.sha256] if verdict else [],
    )
    ledger.add(line)
    say(f"{line.task_id}: {decision} by {line.who}, until it changes")
    if verdict is None:
        warn(f"no verdict on {task} in {ledger.folder} yet; the override applies to the next one")
    if not line.terminal and not settings.load(None).gate.override_without_terminal:
        told = f"it does not count unless {settings.user_file()} has gate.override_without_terminal: true"
        warn(f"this override was given without a terminal: {told}")
    return 0


def last_verdict(ledger: Ledger, task: str) -> VerdictLine | None:
    """Return the last verdict on a task, on a path, or with an id.

    A path is meant from the current folder, else from the repository's; a task's id as the gate prints it,
    else from the current folder.
    """
    from judgekit.ledger import LineFilter, VerdictLine, records

    names = dict.fromkeys([task, _from_root(task)] if records.is_blob(task) else [_from_root(task), task])
    last: dict[str, VerdictLine] = {}
    for record in ledger.records(LineFilter(kinds=[VerdictLine]), damaged):
        if isinstance(record, VerdictLine):
            for name in (name for name in names if _is_on(record, name)):
                last[name] = max(
                    record, last.get(name, record), key=lambda verdict_line: verdict_line.timestamp
                )
    return next((last[name] for name in names if name in last), None)


def _is_on(verdict: VerdictLine, name: str) -> bool:
    from judgekit.ledger import records

    known = (verdict.id, verdict.task_id, verdict.task_id.rpartition("@")[0])
    return name in known or records.same_blob(verdict.task_id, name)


def _from_root(name: str) -> str:
    """Return a path in the current folder as one from the repository's; any other text as it is."""
    from judgekit.git import GitError, Repository

    try:
        prefix = Repository(Path.cwd()).ask("rev-parse", "--show-prefix").removesuffix(b"\n")
    except GitError:
        return name
    return posixpath.normpath(posixpath.join(os.fsdecode(prefix), name))


def escalate(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="PATH@SHA256 of a verdict, or a path for its last verdict; without it, all open verdicts.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the issues; open none.")] = False,
) -> int:
    """Open or update one GitHub issue for each task with gh. Exit code 2 when one could not be opened."""
    from judgekit import environment
    from judgekit.config.settings import load
    from judgekit.gate import github, issues

    settings = load(Path(environment.project_root(str(Path.cwd())))).escalate
    verdicts = _wanted(task, settings)
    if not verdicts:
        say("nothing needs a person")
    if not verdicts or dry_run:
        for issue in (issues.of(verdict, text=settings.text) for verdict in verdicts):
            emit(f"{issue.title}\n\n{issue.body}\n")
        return Exit.ACCEPTED
    done, rest = 0, f"of {len(verdicts)} issues are up to date; run judgekit escalate for the rest"
    keeps(f"0 {rest}", ";")
    try:
        # Someone waits for it: each may take as long as all do where it happens by itself.
        seconds = github.SECONDS * len(verdicts)
        opened = github.ensure(verdicts, settings, Path.cwd(), seconds=seconds)
        for done, line in enumerate(opened, 1):
            keeps(f"{done} {rest}", ";")
            say(str(line))
    except github.GhError as error:
        warn(f"no issue was opened for {len(verdicts) - done}: {error}")
        return Exit.HUMAN_NEEDED
    return Exit.ACCEPTED


def _wanted(task: str | None, settings: EscalateConfig) -> Sequence[VerdictLine]:
    """Return what is to be escalated, newest first."""
    from judgekit.gate import github
    from judgekit.ledger import LineFilter, OverrideLine, VerdictLine

    ledger = here()
    if task is None:
        records = ledger.records(LineFilter(kinds=[VerdictLine, OverrideLine]), damaged)
        return github.unsettled(records, rejects=settings.rejects)
    verdict = last_verdict(ledger, task)
    if verdict is None:
        raise UsageError(f"{task}: no verdict on it in {ledger.folder}")
    if verdict.verdict == "accept":
        raise UsageError(f"{task}: it was accepted; there is nothing to escalate")
    return [verdict]
