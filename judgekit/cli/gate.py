"""`judgekit gate`: what a push or a branch changes is judged, and in blocking mode held up."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.output import Format, coloured, complain, emit, say, verdict_text
from judgekit.errors import Exit, UsageError
from judgekit.text import escaped

if TYPE_CHECKING:
    from judgekit.gate.flow import Passed
    from judgekit.gate.push import Outcome, Run

_KIND = {"GO": "accept", "NO-GO": "reject", "UNDETERMINED": "undetermined"}


def gate(
    base: Annotated[
        str | None, typer.Option(metavar="REF", help="Judge what the commits since REF changed.")
    ] = None,
    pre_push: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="REMOTE URL", help="Judge the push that git describes on stdin."),
    ] = None,
    advise: Annotated[bool, typer.Option("--advise", help="Exit with 0 whatever is found.")] = False,
    block: Annotated[bool, typer.Option("--block", help="Exit with 1 when there is a NO-GO.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="How to print verdicts.")] = Format.TABLE,
    blocked_code: Annotated[
        int, typer.Option(min=1, max=125, help="Exit with this code, not 1, for a NO-GO that blocks.")
    ] = 1,
) -> int:
    """Judge changed files before they leave. Exit code: 0, or 1 for a NO-GO while the gate is blocking."""
    from judgekit.gate.push import Run

    if bool(base) == (pre_push is not None):
        raise UsageError("give --base REF, or --pre-push REMOTE URL as git's hook does")
    if advise and block:
        raise UsageError("--advise and --block exclude each other")
    run = Run("advisory" if advise else "blocking" if block else None, _progress, _begin)
    if pre_push is not None:
        return _push(*pre_push, run, format_, blocked_code)
    return _since(base or "", run, format_, blocked_code)


def _push(remote: str, url: str, run: Run, format_: Format, blocked_code: int) -> int:
    from judgekit.hooks import pre_push

    outcome = pre_push.check(remote, url, run, complain)
    if outcome is not None:
        _report(outcome, format_)
        _escalate(outcome, url)
    return pre_push.code(outcome, blocked_code)


def _since(base: str, run: Run, format_: Format, blocked_code: int) -> int:
    from judgekit.gate.commits import UnknownCommit
    from judgekit.gate.push import check_since
    from judgekit.git import Repository
    from judgekit.hooks import pre_push

    try:
        outcome = check_since(Repository(Path.cwd()), base, run)
    except UnknownCommit:
        raise  # whoever runs this can mend it
    except Exception as error:  # noqa: BLE001 - as for a push: our own fault holds up nothing
        pre_push.fault(error, complain)
        return Exit.ACCEPTED
    _report(outcome, format_)
    _escalate(outcome)
    return pre_push.code(outcome, blocked_code)


def _escalate(outcome: Outcome, address: str = "") -> None:
    """Open issues where that is configured: at the end, when all else has been said."""
    verdicts = [each.verdict for each in outcome.passed if each.verdict.verdict in ("escalate", "reject")]
    if not verdicts:
        return
    from judgekit.escalate import flow

    for line in flow.by_itself(verdicts, flow.Place(Path.cwd(), address), outcome.escalate):
        complain(line)


def _report(outcome: Outcome, format_: Format) -> None:
    if format_ is Format.TABLE:
        for each in outcome.passed:
            say(_row(each))
    else:
        from judgekit.cli import formats

        emit(formats.render(format_, [each.verdict.record() for each in outcome.passed]))
    for note in outcome.notes:
        complain(note)
    _advise(outcome)


def _row(passed: Passed) -> str:
    commit = passed.pushed.change.commit
    word = coloured(passed.word.ljust(12), _KIND[passed.word])
    author = escaped(commit.author.partition(" <")[0])
    head = f"{word}  {escaped(passed.pushed.path)}  ({commit.oid[:7]} {author})"
    decided = passed.verdict.human_override
    if decided is not None:
        return f"{head}\n    {decided.decision}ed by {decided.who}: {decided.why}"
    if not passed.verdict.rounds:
        return f"{head}\n    {passed.verdict.degraded}"
    return head if passed.word == "GO" else f"{head}\n    {verdict_text(passed.verdict.record())}"


def _advise(outcome: Outcome) -> None:
    """Say what a NO-GO means here and how to go on."""
    stopped = [each for each in outcome.passed if each.word == "NO-GO"]
    if not stopped:
        return
    if not outcome.blocked:
        complain(f"advisory: {len(stopped)} NO-GO, and the push goes on")
        return
    complain(f"blocked: {len(stopped)} NO-GO. Mend what is found above and commit, then push again;")
    if any(each.lost for each in stopped):
        complain(
            "or go past the gate this once: JUDGEKIT_SKIP=1 git push (no override holds without a ledger)"
        )
        return
    for each in stopped:
        task = each.verdict.task_id
        plain = escaped(task) == task and not task.startswith("-")
        name = shlex.quote(task) if plain else each.verdict.id
        complain(f"or accept it: judgekit override {name} accept --why '...'")
    complain("or go past the gate this once, which is noted: JUDGEKIT_SKIP=1 git push")


def _begin(count: int) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        complain(f"judging {count} changed file{'s' if count != 1 else ''}")


def _progress(passed: Passed) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        complain(f"{passed.word.lower():12}  {escaped(passed.pushed.path)}")
