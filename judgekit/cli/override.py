"""`judgekit override`: a person's decision about one blob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from judgekit.cli.ledger import damaged, here
from judgekit.cli.output import complain, say
from judgekit.errors import UsageError

if TYPE_CHECKING:
    from judgekit.ledger import Ledger, VerdictLine

Decision: TypeAlias = Literal["accept", "reject"]


def override(
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="A verdict's task, PATH@SHA256; or a path: its last verdict."),
    ],
    decision: Annotated[Decision, typer.Argument(metavar="accept|reject", help="What holds instead.")],
    why: Annotated[str, typer.Option(help="The reason, for whoever reads the ledger.")],
) -> int:
    """Decide about a file yourself; the gate honours it until the file changes."""
    from judgekit import config
    from judgekit.ledger import OverrideLine, overrides, person

    if not why.strip():
        raise UsageError("--why is empty; say the reason")
    ledger = here()
    verdict = last_verdict(ledger, task)
    if verdict is None and not overrides.is_blob(task):
        raise UsageError(
            f"{task}: no verdict on it in {ledger.folder}; give PATH@SHA256 as the gate prints it"
        )
    line = OverrideLine(
        task_id=verdict.task_id if verdict else task,
        decision=decision,
        why=why,
        who=person.who(),
        terminal=person.at_terminal(),
        subjects=[each.sha256 for each in verdict.subjects if each.sha256] if verdict else [],
    )
    ledger.add(line)
    say(f"{line.task_id}: {decision} by {line.who}, until it changes")
    if verdict is None:
        complain(f"no verdict on {task} is in {ledger.folder} yet; it holds for the next one")
    if not line.terminal and not config.load(None).gate.override_without_terminal:
        told = f"it does not count unless {config.user_file()} says gate.override_without_terminal: true"
        complain(f"this override was given without a terminal: {told}")
    return 0


def last_verdict(ledger: Ledger, task: str) -> VerdictLine | None:
    """Return the last verdict on a task, on a path, or with an id."""
    from judgekit.ledger import VerdictLine, Wanted, overrides

    last = None
    for each in ledger.records(Wanted(kinds=[VerdictLine]), damaged):
        if isinstance(each, VerdictLine) and (
            task in (each.id, each.task_id, each.task_id.rpartition("@")[0])
            or overrides.same_blob(each.task_id, task)
        ):
            last = each if last is None or each.timestamp >= last.timestamp else last
    return last
