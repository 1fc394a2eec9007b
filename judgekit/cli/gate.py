"""`judgekit gate`: judges the changes of a push or a branch, and in blocking mode stops the push."""

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
from judgekit.gate import STOPS, UNKNOWN, Begin, Omission, Report, Row, Run, describe_run
from judgekit.hooks import pre_push as hook
from judgekit.hooks import watchdog
from judgekit.text import counted, escaped, short_line

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    also: formats.AlsoOption = None,
    blocked_code: Annotated[int, Option(min=1, max=125, help="Exit code of a blocking NO-GO.")] = 1,
    no_engine: NoEngine = False,
    _model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> int:
    """Judge changed files before a push. Exit code: 0, or 1 when a blocking gate stops the push."""
    has_base = bool(base)
    is_pre_push = pre_push is not None
    if has_base == is_pre_push:  # both or neither
        raise UsageError("give --base REF, or --pre-push REMOTE URL as git's hook does")
    if advise and block:
        raise UsageError("--advise and --block cannot be combined")

    also_files = formats.read_also(also)
    mode: GateMode | None = None
    if advise:
        mode = "advisory"
    elif block:
        mode = "blocking"

    def on_start(begin: Begin) -> None:
        # The exit code to use if the run takes too long.
        late_code = blocked_code if begin["holds"] else Exit.ACCEPTED
        watchdog.extend(begin["budget"] + hook.GRACE_SECONDS, late_code)
        if is_watched():
            note(f"judging {counted(begin['count'], 'changed file', 'changed files')}")

    def on_row(row: Row) -> None:
        if is_watched():
            note(f"{row['word'].lower():12}  {escaped(row['path'])}")

    run = Run(mode, on_row, on_start)
    report = hook.check(
        run, *(pre_push or ()), base=base or None, use_engine=not no_engine, warn=warn
    )
    if report is None:
        return Exit.ACCEPTED

    _print_report(report, format_, base)
    formats.write_also(also_files, lambda renderer: renderer.render_gate(report))
    # On a push, this would be noise. But with --base, the user asked for it.
    if base and report.word is None:
        note(
            f"nothing to judge: no file selected by gate.paths and gate.authors changed since {base}"
        )

    # This can take long, so do it after everything is printed.
    if report.escalate.get("issues") == "on" or report.escalate.get("notify"):
        _notify_and_open_issues(report, pre_push[1] if pre_push else "")
    return blocked_code if report.blocked else Exit.ACCEPTED


def _notify_and_open_issues(report: Report, address: str) -> None:
    """Notify people and open issues about the verdicts, if configured; warn if that fails."""
    from judgekit.config.settings import EscalateConfig
    from judgekit.gate import github
    from judgekit.judging.verdict import Verdict

    verdicts = [Verdict.model_validate(row["verdict"]) for row in report.rows]
    settings = EscalateConfig.model_validate(report.escalate)
    warn(*github.notify_and_open_issues(verdicts, Path.cwd(), settings, address))


def _print_report(report: Report, form: str, base: str | None) -> None:
    """Print the rows in a format, and on stderr everything else about the run."""
    formats.print_gate(form, report)
    if not report.fault:
        for omission in report.unexamined:
            warn(f"UNDETERMINED: {escaped(omission['name'])}: {omission['reason']}")

    warn(*report.notes)
    substitutes: list[str] = []
    for row in report.rows:
        substitutes += row["verdict"].get("substitutes", ())
    output.note_sent(substitutes)
    # With --base and nothing to judge, the caller prints a note instead.
    has_counts = report.rows or report.skipped or report.not_examined
    if has_counts or not base:
        warn(_describe_counts(report))
    _print_effect(report, is_push=not base)


def _describe_counts(report: Report) -> str:
    """Build the last line, which counts the files. Reasons that were printed before aren't repeated."""
    omissions = []
    for omission in report.not_examined:
        if report.fault or omission["reason"] in report.notes:
            reason = "the reason is above"
        else:
            reason = short_line(omission["reason"], 80)
        omissions.append(Omission(name=omission["name"], reason=reason))
    counts_line = describe_run(report.judged, report.skipped, omissions)
    return f"nothing was judged: {counts_line}" if report.fault else counts_line


def _print_effect(report: Report, *, is_push: bool) -> None:
    """Print whether the push continues, and if not, how to proceed."""
    if report.fault:  # this was printed before
        return
    if report.blocked:
        _print_block(report, is_push=is_push)
        return

    count = sum(row["word"] == STOPS for row in report.rows)
    if not count:
        return

    if report.mode == "advisory":
        note(f"advisory: {count} NO-GO; the push continues")
    else:
        note(f"{count} NO-GO within the noise; the push continues")


def _print_block(report: Report, *, is_push: bool) -> None:
    """Print why the push is blocked, and how to proceed."""
    words = [row["word"] for row in report.stopping]
    if report.holds:  # unexamined files block the push as well
        words += [UNKNOWN] * len(report.unexamined)
    counts = [f"{words.count(word)} {word}" for word in (STOPS, UNKNOWN) if word in words]
    warn(f"blocked: {', '.join(counts)}. Fix the findings above, commit, and push again;")
    # Overrides refer to verdicts in the ledger, which these aren't in.
    if any(row["lost"] for row in report.stopping):
        if is_push:
            note("or skip the gate once: JUDGEKIT_SKIP=1 git push (overrides need a ledger)")
        return

    if report.reviewers is not None:
        _print_reviewers(report.reviewers)
    if report.reviewers == []:  # no overrides count
        return

    for row in report.stopping:
        verdict = row["verdict"]
        if all(subject["sha256"] for subject in verdict["subjects"]):
            task = verdict["task_id"]
            fits_into_command = escaped(task) == task and not task.startswith("-")
            name = shlex.quote(task) if fits_into_command else verdict["id"]
            note(f"or accept it: judgekit override {name} accept --why '...'")

    if is_push:
        note("or skip the gate once, which the ledger records: JUDGEKIT_SKIP=1 git push")


def _print_reviewers(names: Sequence[str]) -> None:
    """Print whose overrides count in CI."""
    if names:
        note(f"or have a reviewer accept it who did not write it ({', '.join(names)}):")
    else:
        note(
            "overrides do not count here: name reviewers in gate.reviewers of the default branch's "
            ".judgekit/config.yaml, by their tokens of the shared judge"
        )
