"""`judgekit gate`: judges what a push or a branch changes, and in blocking mode stops the push."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from judgekit.cli import formats, options, output
from judgekit.cli.options import NoEngine
from judgekit.cli.output import note, warn
from judgekit.cli.progress import is_watched
from judgekit.errors import Exit, UsageError
from judgekit.gate import STOPS, UNKNOWN, Begin, Omission, Report, Row, Run, ending
from judgekit.hooks import pre_push as hook
from judgekit.hooks import watchdog
from judgekit.text import escaped, short_line

if TYPE_CHECKING:
    from judgekit.ledger.records import GateMode

_PRE_PUSH = Option(metavar="REMOTE URL", help="Judge the push that git puts on stdin.")


def gate(
    base: Annotated[
        str | None, Option(metavar="REF", help="Judge the files changed since REF.")
    ] = None,
    pre_push: Annotated[tuple[str, str] | None, _PRE_PUSH] = None,
    advise: Annotated[bool, Option("--advise", help="Always exit with 0.")] = False,
    block: Annotated[bool, Option("--block", help="Exit with 1 on a NO-GO.")] = False,
    format_: formats.FormatOption = "table",
    blocked_code: Annotated[int, Option(min=1, max=125, help="Exit code of a blocking NO-GO.")] = 1,
    no_engine: NoEngine = False,
    _model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> int:
    """Judge changed files before a push. Exit code: 0, or 1 when a blocking gate stops the push."""
    if bool(base) == (pre_push is not None):
        raise UsageError("give --base REF, or --pre-push REMOTE URL as git's hook does")
    if advise and block:
        raise UsageError("--advise and --block cannot be combined")
    mode: GateMode | None = "advisory" if advise else "blocking" if block else None

    def on_start(begin: Begin) -> None:
        # Should the run not end in time, the exit code is that of a block where nothing may pass unjudged.
        watchdog.extend(
            begin["budget"] + hook.GRACE, blocked_code if begin["holds"] else Exit.ACCEPTED
        )
        if is_watched():
            note(f"judging {begin['count']} changed file{'s' if begin['count'] != 1 else ''}")

    def on_row(row: Row) -> None:
        if is_watched():
            note(f"{row['word'].lower():12}  {escaped(row['path'])}")

    run = Run(mode, on_row, on_start)
    report = hook.check(
        run, *(pre_push or ()), base=base or None, use_engine=not no_engine, warn=warn
    )
    if report is None:
        return Exit.ACCEPTED
    _print(report, format_, base)
    # A person asked for it; for a push that changes other files it would be noise.
    if base and report.word is None:
        note(
            f"nothing to judge: no file selected by gate.paths and gate.authors changed since {base}"
        )
    # At the end, when all else has been said.
    if report.escalate.get("issues") == "on" or report.escalate.get("notify"):
        from judgekit.config.settings import EscalateConfig
        from judgekit.gate import github
        from judgekit.judging.verdict import Verdict

        verdicts = [Verdict.model_validate(row["verdict"]) for row in report.rows]
        settings = EscalateConfig.model_validate(report.escalate)
        address = pre_push[1] if pre_push else ""
        for line in github.notify_and_open_issues(verdicts, Path.cwd(), settings, address):
            warn(line)
    return blocked_code if report.blocked else Exit.ACCEPTED


def _print(report: Report, form: str, base: str | None) -> None:
    formats.print_gate(form, report)
    if not report.fault:
        warn(
            *(
                f"UNDETERMINED: {escaped(each['name'])}: {each['reason']}"
                for each in report.unexamined
            )
        )
    warn(*report.notes)
    output.tell_sent(name for row in report.rows for name in row["verdict"].get("substitutes", ()))
    if report.rows or report.skipped or report.not_examined or not base:
        warn(_ending(report))
    _print_effect(report)


def _ending(report: Report) -> str:
    """Return the last line about files; a long reason that stands above is not given again."""
    omissions = []
    for omission in report.not_examined:
        is_told = report.fault or omission["reason"] in report.notes
        if is_told:
            reason = "the reason is above"
        else:
            reason = short_line(omission["reason"], 80)
        omissions.append(Omission(name=omission["name"], reason=reason))
    line = ending(report.judged, report.skipped, omissions)
    return f"nothing was judged: {line}" if report.fault else line


def _print_effect(report: Report) -> None:
    """Say whether the push continues, and how to go on where it does not."""
    stopping = report.stopping
    words = [row["word"] for row in stopping]
    if report.fault:  # it has been said
        return
    if not report.blocked:
        if count := sum(row["word"] == STOPS for row in report.rows):
            if report.mode == "advisory":
                before = "advisory: "
                after = ""
            else:
                before = ""
                after = " within the noise"
            note(f"{before}{count} NO-GO{after}; the push continues")
        return
    # What could not be judged at all.
    words += [UNKNOWN] * len(report.unexamined) if report.holds else []
    counted = []
    for word in (STOPS, UNKNOWN):
        if word in words:
            counted.append(f"{words.count(word)} {word}")
    warn(f"blocked: {', '.join(counted)}. Fix the findings above, commit, and push again;")
    if any(row["lost"] for row in stopping):
        note("or skip the gate once: JUDGEKIT_SKIP=1 git push (overrides need a ledger)")
        return
    for verdict in (row["verdict"] for row in stopping):
        if all(subject["sha256"] for subject in verdict["subjects"]):
            task = verdict["task_id"]
            plain = escaped(task) == task and not task.startswith("-")
            if plain:
                name = shlex.quote(task)
            else:
                name = verdict["id"]
            note(f"or accept it: judgekit override {name} accept --why '...'")
    note("or skip the gate once, which the ledger records: JUDGEKIT_SKIP=1 git push")
