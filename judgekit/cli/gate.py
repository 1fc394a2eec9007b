"""`judgekit gate`: judges the changes of a push or a branch, and in blocking mode stops the push."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from judgekit.cli import formats, options, output
from judgekit.cli.options import NoEngine
from judgekit.cli.output import note, warn
from judgekit.cli.progress import is_watched
from judgekit.errors import Exit, UsageError
from judgekit.gate import STOPS, UNKNOWN, Begin, Omission, Report, Row, Run, describe_run
from judgekit.hooks import pre_push as hook
from judgekit.hooks import watchdog
from judgekit.text import escape_name, format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.ledger.records import GateMode

_PRE_PUSH_OPTION = Option(metavar="REMOTE URL", help="Judge the push that git puts on stdin.")


def gate(
    base: Annotated[
        str | None, Option(metavar="REF", help="Judge the files changed since REF.")
    ] = None,
    pre_push: Annotated[tuple[str, str] | None, _PRE_PUSH_OPTION] = None,
    advise: Annotated[bool, Option("--advise", help="Always exit with 0.")] = False,
    block: Annotated[bool, Option("--block", help="Exit with 1 on a NO-GO.")] = False,
    format_: formats.FormatOption = "table",
    also: formats.AlsoOption = None,
    blocked_code: Annotated[int, Option(min=1, max=125, help="Exit code of a blocking NO-GO.")] = 1,
    no_engine: NoEngine = False,
    _model: options.ModelOption = None,  # reading it sets a variable, also for the engine
    _out: options.OutOption = None,
) -> int:
    """Judge changed files before a push. Exit code: 0, or 1 when a blocking gate stops the push."""
    has_base = bool(base)
    is_pre_push = pre_push is not None
    if has_base == is_pre_push:  # both or neither
        raise UsageError("give --base REF, or --pre-push REMOTE URL as git's hook does")
    mode = _choose_mode(advise=advise, block=block)
    also_files = formats.read_also(also)

    run = _prepare_run(mode, blocked_code)
    remote, url = pre_push or ("", "")
    report = hook.check(run, remote, url, base=base or None, use_engine=not no_engine, warn=warn)
    if report is None:  # the gate was skipped, or the push is empty
        return Exit.ACCEPTED

    _print_report(report, format_, base)
    formats.write_also(also_files, lambda renderer: renderer.render_gate(report))
    found_nothing = report.word is None
    # Git's hook runs on every push, also without selected files, so there this would be noise.
    if has_base and found_nothing:
        note(
            f"nothing to judge: no file selected by gate.paths and gate.authors changed since {base}"
        )

    # This can take long, so do it after everything is printed.
    if _is_escalation_on(report):
        _notify_and_open_issues(report, url)
    return blocked_code if report.is_blocked else Exit.ACCEPTED


def _choose_mode(*, advise: bool, block: bool) -> GateMode | None:
    """Choose the gate's mode by the options; None leaves it to the settings.

    Raises `UsageError` if both options are given.
    """
    if advise and block:
        raise UsageError("--advise and --block cannot be combined")
    if advise:
        return "advisory"
    if block:
        return "blocking"
    return None


def _prepare_run(mode: GateMode | None, blocked_code: int) -> Run:
    """Prepare a run of the gate, which shows its progress if somebody is watching."""

    def start(begin: Begin) -> None:
        """Extend the time limit by the run's budget, and say how many files are judged."""
        # A run that takes too long leaves files undetermined, so it blocks the push if those do.
        late_code = blocked_code if begin["holds"] else Exit.ACCEPTED
        seconds = begin["budget"] + hook.GRACE_SECONDS
        watchdog.extend(seconds, late_code)
        if is_watched():
            note(f"judging {format_count(begin['count'], 'changed file', 'changed files')}")

    def note_row(row: Row) -> None:
        """Print a file's word as soon as it's known."""
        if is_watched():
            note(f"{row['word'].lower():12}  {escape_name(row['path'])}")

    return Run(mode, on_verdict=note_row, on_start=start)


def _is_escalation_on(report: Report) -> bool:
    """Whether the settings want issues to be opened or people to be notified."""
    opens_issues = report.escalate.get("issues") == "on"
    notifies = bool(report.escalate.get("notify"))
    return opens_issues or notifies


def _notify_and_open_issues(report: Report, address: str) -> None:
    """Notify people and open issues about the verdicts, as configured. Prints the messages about that."""
    from judgekit.config.settings import EscalateConfig
    from judgekit.gate import github
    from judgekit.judging.verdict import Verdict

    verdicts = [Verdict.model_validate(row["verdict"]) for row in report.rows]
    settings = EscalateConfig.model_validate(report.escalate)
    # The work is done here. It returns messages for people.
    warn(*github.notify_and_open_issues(verdicts, Path.cwd(), settings, address))


def _print_report(report: Report, form: str, base: str | None) -> None:
    """Print the rows in the format `form`, and on stderr everything else about the run."""
    formats.print_gate(form, report)
    # After a fault nothing was examined, and the reason was printed already.
    if not report.fault:
        _warn_unexamined(report)
    warn(*report.notes)
    _note_substitutes(report)

    # With --base and nothing to count, the caller prints that there's nothing to judge.
    is_push = not base
    has_counts = bool(report.rows or report.skipped or report.not_examined)
    if is_push or has_counts:
        warn(_describe_counts(report))
    _print_effect(report, is_push=is_push)


def _warn_unexamined(report: Report) -> None:
    """Print each file or ref that wasn't examined, with the reason."""
    for omission in report.unexamined:
        warn(f"UNDETERMINED: {escape_name(omission['name'])}: {omission['reason']}")


def _note_substitutes(report: Report) -> None:
    """Print the providers that judged in place of models of the authors' own family."""
    substitutes: list[str] = []
    for row in report.rows:
        substitutes += row["verdict"].get("substitutes", ())
    output.note_sent(substitutes)


def _describe_counts(report: Report) -> str:
    """Build the last line, which counts the files. Reasons that were printed before aren't repeated."""
    omissions = []
    for omission in report.not_examined:
        reason = _shorten_reason(omission["reason"], report)
        omissions.append(Omission(name=omission["name"], reason=reason))
    counts_line = describe_run(report.judged_rows, report.skipped, omissions)
    return f"nothing was judged: {counts_line}" if report.fault else counts_line


def _shorten_reason(reason: str, report: Report) -> str:
    """Cut a reason to 80 characters; if it was printed before, refer to it."""
    was_printed = report.fault or reason in report.notes
    return "the reason is above" if was_printed else shorten_to_line(reason, 80)


def _print_effect(report: Report, *, is_push: bool) -> None:
    """Print whether the push continues, and if not, how to proceed."""
    if report.fault:  # this was printed before
        return
    if report.is_blocked:
        _print_block(report, is_push=is_push)
        return

    nogo_count = sum(row["word"] == STOPS for row in report.rows)
    if nogo_count == 0:
        return
    if report.mode == "advisory":
        note(f"advisory: {nogo_count} NO-GO; the push continues")
    else:
        # A blocking gate lets a NO-GO through only if another run could well decide differently.
        note(f"{nogo_count} NO-GO within the noise; the push continues")


def _print_block(report: Report, *, is_push: bool) -> None:
    """Print why the push is blocked, and how to proceed."""
    counts = _count_blocking_words(report)
    warn(f"blocked: {counts}. Fix the findings above, commit, and push again;")

    # An override refers to a verdict in the ledger. A lost verdict isn't there, so offer no override.
    has_lost_verdict = any(row["lost"] for row in report.stopping_rows)
    if has_lost_verdict:
        if is_push:
            note("or skip the gate once: JUDGEKIT_SKIP=1 git push (overrides need a ledger)")
        return

    # In CI, only reviewers' overrides count. Elsewhere, there are no reviewers (None).
    if report.reviewers is not None:
        _print_reviewers(report.reviewers)
    nobody_can_override = report.reviewers == []
    if nobody_can_override:
        return

    for row in report.stopping_rows:
        _note_override(row["verdict"])
    if is_push:
        note("or skip the gate once, which the ledger records: JUDGEKIT_SKIP=1 git push")


def _count_blocking_words(report: Report) -> str:
    """Count what blocks the push, by word: `2 NO-GO, 1 UNDETERMINED`."""
    words = [row["word"] for row in report.stopping_rows]
    if report.holds:  # unexamined files block the push as well
        words += [UNKNOWN] * len(report.unexamined)
    counts = [f"{words.count(word)} {word}" for word in (STOPS, UNKNOWN) if word in words]
    return ", ".join(counts)


def _note_override(verdict: Mapping[str, Any]) -> None:
    """Print the command that accepts a file despite its verdict, if that's possible."""
    # An override holds until the content changes, so the content's hash must be known.
    has_all_hashes = all(subject["sha256"] for subject in verdict["subjects"])
    if not has_all_hashes:
        return

    task = verdict["task_id"]
    is_printable = escape_name(task) == task
    looks_like_option = task.startswith("-")
    can_be_typed = is_printable and not looks_like_option
    name = shlex.quote(task) if can_be_typed else verdict["id"]
    note(f"or accept it: judgekit override {name} accept --why '...'")


def _print_reviewers(names: Sequence[str]) -> None:
    """Print whose overrides count in CI."""
    if names:
        note(f"or have a reviewer accept it who did not write it ({', '.join(names)}):")
    else:
        note(
            "overrides do not count here: name reviewers in gate.reviewers of the default branch's "
            ".judgekit/config.yaml, by their tokens of the shared judge"
        )
