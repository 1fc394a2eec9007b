"""`judgekit gate`: what a push or a branch changes is judged, and in blocking mode held up."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.output import (
    Format,
    NoEngine,
    coloured,
    emit,
    partiality,
    say,
    tell_sent,
    verdict_text,
    warn,
)
from judgekit.errors import Exit, UsageError
from judgekit.gate import STOPS, UNKNOWN
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate import Begin, Report, Row
    from judgekit.ledger.records import GateMode

_KIND = {"GO": "accept", "NO-GO": "reject", "UNDETERMINED": "undetermined"}


def gate(
    base: Annotated[
        str | None, typer.Option(metavar="REF", help="Judge the files changed since REF.")
    ] = None,
    pre_push: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="REMOTE URL", help="Judge the push that git describes on stdin."),
    ] = None,
    advise: Annotated[bool, typer.Option("--advise", help="Always exit with 0.")] = False,
    block: Annotated[bool, typer.Option("--block", help="Exit with 1 on a NO-GO.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TABLE,
    blocked_code: Annotated[
        int, typer.Option(min=1, max=125, help="Exit code of a blocking NO-GO, in place of 1.")
    ] = 1,
    no_engine: NoEngine = False,
) -> int:
    """Judge changed files before a push. Exit code: 0, or 1 when a blocking gate stops the push."""
    from judgekit.hooks import pre_push as hook

    if bool(base) == (pre_push is not None):
        raise UsageError("give --base REF, or --pre-push REMOTE URL as git's hook does")
    if advise and block:
        raise UsageError("--advise and --block cannot be combined")
    mode: GateMode | None = "advisory" if advise else "blocking" if block else None

    def on_start(begin: Begin) -> None:
        hook.begun(begin, blocked_code)
        if sys.stderr is not None and sys.stderr.isatty():
            warn(f"judging {begin['count']} changed file{'s' if begin['count'] != 1 else ''}")

    wanted = hook.GateOptions(mode, _progress, on_start, warn, engine=not no_engine)
    report = hook.check(*pre_push, wanted) if pre_push else hook.since(base or "", wanted)
    if report is None:
        return Exit.ACCEPTED
    if base and not report.escalate:  # nothing was judged, which has been said
        return blocked_code
    _report(report, format_)
    # A person asked; a push of other files is no news.
    if base and not (report.rows or report.notes or report.unjudged):
        warn(f"nothing to judge: no file selected by gate.paths and gate.authors changed since {base}")
    _escalate(report, pre_push[1] if pre_push else "")
    return blocked_code if report.blocked else Exit.ACCEPTED


def _escalate(report: Report, address: str) -> None:
    """Open issues where that is configured: at the end, when all else has been said."""
    words = ("escalate", "reject", "improve")
    found = [row["verdict"] for row in report.rows if row["verdict"]["verdict"] in words]
    if not found or report.escalate["issues"] != "on":
        return
    from judgekit.config.settings import EscalateConfig
    from judgekit.gate import github
    from judgekit.judging.verdict import Verdict

    verdicts = [Verdict.model_validate(each) for each in found]
    settings = EscalateConfig.model_validate(report.escalate)
    for line in github.by_itself(verdicts, Path.cwd(), settings, address):
        warn(line)


def _report(report: Report, format_: Format) -> None:
    if format_ is Format.TABLE:
        for row in report.rows:
            say(_row(row, report.notes))
    else:
        from judgekit.cli import formats

        emit(formats.render(format_, [row["verdict"] for row in report.rows]))
    for line in report.unjudged:
        warn(f"UNDETERMINED: {line}")
    for note in report.notes:
        warn(note)
    tell_sent(name for row in report.rows for name in row["verdict"].get("substitutes", ()))
    _advise(report)


def _row(row: Row, notes: Sequence[str]) -> str:
    """Return a file's lines; a reason that is one of the `notes` is not said with each file."""
    verdict, word = row["verdict"], row["word"]
    shown = coloured(word.ljust(12), _KIND[word])
    head = f"{shown}  {escaped(row['path'])}  ({row['commit'][:7]} {escaped(row['author'])})"
    decided = verdict["human_override"]
    if decided is not None:
        return f"{head}\n    {decided['decision']}ed by {decided['who']}: {decided['why']}"
    if not verdict["rounds"]:
        return head if verdict["degraded"] in notes else f"{head}\n    {verdict['degraded']}"
    if word == "GO":
        return "\n    ".join([head, *partiality(verdict)])
    return f"{head}\n    {verdict_text(verdict, headed=False)}"


def _advise(report: Report) -> None:
    """Say what a NO-GO means here and how to go on."""
    stopped = report.stopping
    if not report.blocked:
        rejected = sum(each["word"] == STOPS for each in stopped)
        if rejected:
            warn(f"advisory: {rejected} NO-GO; the push continues")
        return
    words = [row["word"] for row in stopped]
    words += [UNKNOWN] * len(report.unjudged) if report.holds else []  # what could not be judged at all
    counted = [f"{words.count(word)} {word}" for word in (STOPS, UNKNOWN) if word in words]
    warn(f"blocked: {', '.join(counted)}. Fix the findings above, commit, and push again;")
    if any(each["lost"] for each in stopped):
        warn("or skip the gate once: JUDGEKIT_SKIP=1 git push (overrides need a ledger)")
        return
    for each in (row for row in stopped if all(one["sha256"] for one in row["verdict"]["subjects"])):
        task = each["verdict"]["task_id"]
        plain = escaped(task) == task and not task.startswith("-")
        name = shlex.quote(task) if plain else each["verdict"]["id"]
        warn(f"or accept it: judgekit override {name} accept --why '...'")
    warn("or skip the gate once, which the ledger records: JUDGEKIT_SKIP=1 git push")


def _progress(row: Row) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        warn(f"{row['word'].lower():12}  {escaped(row['path'])}")
