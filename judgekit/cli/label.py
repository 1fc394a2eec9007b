"""`judgekit label`, `override`, `escalate`: records people's opinions on verdicts, and opens issues."""

from __future__ import annotations

import csv
import functools
import os
import posixpath
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from typer import Argument, Option

from judgekit import task_ids
from judgekit.cli.formats.table import render_verdict
from judgekit.cli.interruption import set_kept
from judgekit.cli.ledger import (
    Since,
    TeamLedger,
    add_to_ledger,
    find_ledger,
    measure_readiness,
    warn_damaged,
)
from judgekit.cli.output import emit, get_project_path, read_key, say, warn
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import escape_ci_commands, format_count, shorten_to_line, split_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from judgekit.config.settings import EscalateConfig
    from judgekit.judging.verdict import Finding
    from judgekit.ledger import Label, Ledger, OverrideLine, VerdictLine
    from judgekit.ledger.records import LabelWord

AnyLedger: TypeAlias = "Ledger | TeamLedger"
_LABEL_BY_KEY: dict[str, LabelWord] = {"g": "go", "n": "no-go", "u": "unsure"}
# A file may also use a judge's words, which are read as the gate reads them.
_LABEL_BY_VERDICT: dict[str, LabelWord] = {"accept": "go", "improve": "no-go", "reject": "no-go"}
_LABEL_BY_FILE_WORD = _LABEL_BY_VERDICT | {word: word for word in _LABEL_BY_KEY.values()}
_KEY_HELP = "g go, n no-go, u unsure, s skip, b back (undo), a all of the text, q quit"
_MAX_TEXT_CHARS = 100  # characters shown of an unusable line
_MIN_ID_DIGITS = 8  # of an abbreviated verdict id
_MAX_LINES = 40  # of each file, unless `a` is pressed
_VERDICT_ARGUMENT = Argument(metavar="ID", help="With --dismiss: id of a verdict, or its PATH.")
_DISMISS_OPTION = Option(
    min=1, metavar="N", help="Finding N of a verdict, as printed, is no problem."
)
_FROM_OPTION = Option(
    "--from", metavar="FILE", help="Read lines `id,accept|improve|reject|unsure`; or -."
)
_TEAM_OPTION = Option("--team", help="Use the ledger of the shared judge.")
_TASK_ARGUMENT = Argument(
    metavar="TASK", help="PATH[@SHA256] of a verdict; by default all open verdicts."
)


def label(
    verdict: Annotated[str | None, _VERDICT_ARGUMENT] = None,
    dismiss: Annotated[int | None, _DISMISS_OPTION] = None,
    undo: Annotated[
        bool, Option("--undo", help="With --dismiss: the finding counts again.")
    ] = False,
    blind: Annotated[bool, Option("--blind", help="Hide the verdict and its findings.")] = False,
    since: Since = None,
    limit: Annotated[int, Option("-n", min=1, help="Label at most this many.")] = 1_000_000,
    from_: Annotated[str | None, _FROM_OPTION] = None,
    team: Annotated[bool, _TEAM_OPTION] = False,
) -> int:
    """Label verdicts as right or wrong, so that the gate's errors can be counted.

    Asks first for the labels that promote needs, and continues where you stopped. Each label is saved at
    once; b undoes the last one.
    """
    from judgekit.ledger import labels

    ledger = TeamLedger() if team else find_ledger()
    who = labels.identify_user()
    is_about_finding = verdict is not None or dismiss is not None or undo
    if is_about_finding:
        return _judge_finding(ledger, verdict, dismiss, who, undo=undo)
    if from_ is not None:
        return _add_labels_of_file(ledger, from_, who)
    if not labels.is_at_terminal():
        raise UsageError("labelling needs a terminal; use --from FILE to read labels from a file")

    open_verdicts = _list_most_useful(ledger, who, since)[:limit]
    count = _ask_for_labels(ledger, open_verdicts, who, blind=blind)
    say(f"{count} labelled, {len(open_verdicts) - count} left")
    return 0


def _judge_finding(
    ledger: AnyLedger, verdict: str | None, dismiss: int | None, who: str, *, undo: bool
) -> int:
    """Dismiss a verdict's finding, or undo that.

    Raises `UsageError` for the shared judge's ledger, or if the verdict or the finding isn't named.
    """
    if isinstance(ledger, TeamLedger) and dismiss is not None:
        raise UsageError(
            "--team: a dismissal holds in the ledger of one machine; leave --team out there"
        )
    if verdict is None or dismiss is None:
        raise UsageError(
            "name a verdict and one of its findings: judgekit label ID --dismiss N [--undo]"
        )
    return _dismiss_finding(ledger, verdict, dismiss, who, undo=undo)


def _list_most_useful(ledger: AnyLedger, who: str, since: str | None) -> list[VerdictLine]:
    """List the verdicts that a person hasn't labelled.

    Those that `judgekit promote` needs labels for come first, except in the shared judge's ledger.
    """
    from judgekit.ledger import LineFilter, labels, store

    line_filter = LineFilter(since=store.parse_time(since) if since else None)
    warn_once = functools.cache(warn_damaged)  # the files are read twice
    readiness = None
    if not isinstance(ledger, TeamLedger):
        readiness, _ = measure_readiness(get_project_path(), on_damage=warn_once)
    records = ledger.read_records(line_filter, warn_once)
    return labels.list_waiting(records, who, readiness)


def _dismiss_finding(ledger: AnyLedger, name: str, number: int, who: str, *, undo: bool) -> int:
    """Record that a finding is no problem, or with `undo`, that it counts again.

    Raises `UsageError` if there's no such verdict or finding, or if the finding has no quote.
    """
    from judgekit.ledger import DismissalLine

    verdict = _get_verdict(ledger, name)
    finding = _get_quoting_finding(verdict, number)
    dismissal = DismissalLine(
        of=verdict.id,
        rubric=verdict.rubric.id,
        quote_hash=finding.quote_hash,
        who=who,
        withdrawn=undo,
    )
    add_to_ledger(ledger, dismissal)

    effect = f"dismissed by {who}, for this quote under {verdict.rubric.id}"
    if undo:
        effect = "counts again"
    issue = shorten_to_line(finding.issue, _MAX_TEXT_CHARS)
    say(f"{verdict.task_id}: finding {number} {effect}: {issue}")
    return 0


def _get_verdict(ledger: AnyLedger, name: str) -> VerdictLine:
    """Get the verdict that `name` stands for; raises `UsageError` if there's none."""
    verdict = _find_verdict(ledger, name)
    if verdict is None:
        raise UsageError(
            f"{name}: no verdict on it in {ledger.folder}; judgekit triage lists verdicts"
        )
    return verdict


def _get_quoting_finding(verdict: VerdictLine, number: int) -> Finding:
    """Get a verdict's finding by its number, from 1.

    Raises `UsageError` if it doesn't exist or quotes nothing.
    """
    if number > len(verdict.findings):
        findings = format_count(len(verdict.findings), "finding", "findings")
        raise UsageError(f"--dismiss {number}: the verdict on {verdict.task_id} has {findings}")

    finding = verdict.findings[number - 1]
    if not finding.quote_hash:
        why = "it quotes nothing, so it cannot be recognised in other files"
        raise UsageError(f"--dismiss {number}: {why}; override the verdict, or change the file")
    return finding


def _ask_for_labels(
    ledger: AnyLedger, open_verdicts: Sequence[VerdictLine], who: str, *, blind: bool
) -> int:
    """Ask a person about each verdict, and save each label at once. Returns the number of labels."""
    from judgekit.ledger import Label

    labelled_positions: set[int] = set()

    def add_label(verdict: VerdictLine, word: LabelWord) -> None:
        new_label = Label(of=verdict.id, label=word, who=who, blind=blind, project=verdict.project)
        ledger.add(new_label)

    def withdraw_label(position: int) -> None:
        if position in labelled_positions:
            labelled_positions.remove(position)
            add_label(open_verdicts[position], "withdrawn")

    position = 0
    while position < len(open_verdicts):
        # This is printed if the person interrupts the command from here on.
        count = format_count(len(labelled_positions), "label is", "labels are")
        set_kept("label", f"{count} saved; judgekit label continues there")

        verdict = open_verdicts[position]
        key = _ask_about(verdict, f"{position + 1} of {len(open_verdicts)}", blind=blind)
        if key == "q":  # quit
            break
        if key == "b":  # back
            position = max(0, position - 1)
            withdraw_label(position)
            continue

        if key in _LABEL_BY_KEY:  # otherwise, the person skips the verdict
            add_label(verdict, _LABEL_BY_KEY[key])
            labelled_positions.add(position)
        position += 1

    return len(labelled_positions)


def _ask_about(verdict: VerdictLine, place: str, *, blind: bool) -> str:
    """Show a verdict and its files until a person presses an answer key. Returns the key.

    `place` is its place in the list: `3 of 9`.
    """
    commit = f", commit {verdict.commit[:12]}" if verdict.commit else ""
    time = f"{verdict.timestamp:%Y-%m-%d %H:%M} UTC"
    say(f"\n{'=' * 72}\n{place}: {verdict.task_id}{commit}, {time}\n")
    _print_texts(verdict, limit=_MAX_LINES)
    if not blind:
        say(render_verdict(verdict.record()))
    say("\nShould this go?")

    answer_keys = {*_LABEL_BY_KEY, "s", "b", "q"}  # a label, or skip, back, quit
    while True:
        say(_KEY_HELP)
        key = read_key()
        if key == "a":  # show all of the files, and ask again
            _print_texts(verdict, limit=None)
        if key in answer_keys:
            return key


def _print_texts(verdict: VerdictLine, limit: int | None) -> None:
    """Print up to `limit` lines of each file that a verdict is about."""
    from judgekit.ledger.labels import read_judged_files

    for path, text in read_judged_files(verdict, Path.cwd()).items():
        lines = ["(no longer in this repository)"] if text is None else split_lines(text)
        first_lines = lines[:limit]
        say(f"--- {path}")
        say("\n".join(f"  {line}" for line in first_lines))
        left_out = len(lines) - len(first_lines)
        if left_out:
            say(f"  … {format_count(left_out, 'more line', 'more lines')} (a shows them)")

    say("---")


def _add_labels_of_file(ledger: AnyLedger, name: str, who: str) -> int:
    """Add a file's labels to the ledger. Returns exit code 65 if any line is invalid, else 0.

    Raises `InputError` if the file can't be read.
    """
    from judgekit.ledger import Label

    text = _read_text(name)
    projects_by_id = _map_ids_to_projects(ledger)
    labels: list[Label] = []
    has_invalid_line = False
    for number, row in enumerate(map(_read_cells, split_lines(text)), 1):
        is_header = number == 1 and row[:2] == ["id", "label"]
        if is_header or not row:
            continue
        try:
            verdict_id, word = _read_label(row, projects_by_id)
        except ValueError as problem:
            has_invalid_line = True
            warn(f"{name}:{number}: {problem}")
            continue
        author = _read_author(row) or who
        project = projects_by_id[verdict_id]
        labels.append(Label(of=verdict_id, label=word, who=author, project=project))

    ledger.add(*labels)
    say(f"{len(labels)} labelled")
    return Exit.BAD_INPUT if has_invalid_line else 0


def _map_ids_to_projects(ledger: AnyLedger) -> dict[str, str]:
    """Map the id of each verdict in a ledger to its project."""
    from judgekit.ledger import LineFilter, VerdictLine

    projects = {}
    for verdict_line in ledger.read_records(LineFilter(kinds=[VerdictLine]), warn_damaged):
        projects[verdict_line.id] = verdict_line.project
    return projects


def _read_text(name: str) -> str:
    """Read a file, or standard input for `-`; raises `InputError` if that fails."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return raw.decode()
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{name}: cannot be read (not UTF-8)") from None


def _read_cells(line: str) -> list[str]:
    """Split a CSV line into cells; [] if it's blank. A line that isn't CSV is a single cell."""
    try:
        rows = list(csv.reader([line]))
    except csv.Error:  # e.g. a cell is larger than 128 KB
        return [line]  # the caller needs two cells, so it reports this line
    return [cell.strip() for row in rows for cell in row]


def _read_label(row: Sequence[str], ids: Collection[str]) -> tuple[str, LabelWord]:
    """Parse a row's verdict id and label. The id may be abbreviated; the full one is returned.

    Raises `ValueError` with the problem if the row is invalid.
    """
    if len(row) == 1:  # the caller skips empty rows
        raise ValueError(f"expected ID,LABEL, got {shorten_to_line(row[0], _MAX_TEXT_CHARS)!r}")

    short_id, written_word, *_ = row
    verdict_id = _complete_id(short_id, ids)
    word = _LABEL_BY_FILE_WORD.get(written_word)
    if word is None:
        shown_word = shorten_to_line(written_word, _MAX_TEXT_CHARS) or "nothing"
        raise ValueError(f"label must be accept, improve or reject; got {shown_word}")
    return verdict_id, word


def _complete_id(start: str, ids: Collection[str]) -> str:
    """Return the only id that starts so; raises `ValueError` if there's none or several."""
    if start in ids:  # a whole id could also be the start of others
        return start
    matches = [verdict_id for verdict_id in ids if verdict_id.startswith(start)]
    if len(matches) == 1:
        return matches[0]

    problem = "no verdict has it"
    if matches:
        problem = f"{len(matches)} verdicts have an id that starts so"
    shown_start = shorten_to_line(start, _MAX_TEXT_CHARS)
    raise ValueError(f"id must be that of one verdict; got {shown_start!r}, and {problem}")


def _read_author(row: Sequence[str]) -> str:
    """Read who gave a row's label, from its third cell; "" if it's empty or missing."""
    has_author = len(row) > 2  # noqa: PLR2004 - the third cell
    return row[2] if has_author else ""


def override(
    task: Annotated[
        str, Argument(metavar="TASK", help="PATH@SHA256 of a verdict, or PATH for the last.")
    ],
    decision: Annotated[
        Literal["accept", "reject"], Argument(metavar="accept|reject", help="You decide.")
    ],
    why: Annotated[str, Option(help="Your reason, recorded in the ledger.")],
    team: Annotated[bool, _TEAM_OPTION] = False,
) -> None:
    """Override the verdict on a file until the file changes."""
    if not why.strip():
        raise UsageError("--why is empty; give a reason")

    ledger = TeamLedger() if team else find_ledger()
    verdict = _find_verdict(ledger, task)
    if verdict is None:
        _require_exact_content(task, ledger)
    line = _build_override(task, verdict, decision, why)
    add_to_ledger(ledger, line)

    if not _counts(line):
        _say_uncounted(line)
        return
    say(f"{line.task_id}: {decision} by {line.who}, until it changes")
    if verdict is None:
        warn(f"no verdict on {task} in {ledger.folder} yet; the override applies to the next one")


def _require_exact_content(task: str, ledger: AnyLedger) -> None:
    """Raise `UsageError` if a task without a verdict can't be overridden.

    It can be if it's given as PATH@SHA256, but never in the shared judge's ledger.
    """
    has_hash = task_ids.is_blob(task, task_ids.HASH_DIGITS)
    if has_hash and not isinstance(ledger, TeamLedger):
        return
    remedy = f"give PATH@SHA256 as the gate prints it, {task_ids.HASH_DIGITS} digits or more"
    raise UsageError(f"{task}: no verdict on it in {ledger.folder}; {remedy}")


def _build_override(
    task: str, verdict: VerdictLine | None, decision: Literal["accept", "reject"], why: str
) -> OverrideLine:
    """Build the override of a verdict.

    If `verdict` is None, the override applies to the next verdict on the task's content.
    """
    from judgekit.ledger import OverrideLine, labels

    task_id = task
    project = ""
    hashes: list[str] = []
    if verdict is not None:
        task_id = verdict.task_id
        project = verdict.project
        hashes = [subject.sha256 for subject in verdict.subjects if subject.sha256]

    return OverrideLine(
        task_id=task_id,
        decision=decision,
        why=why,
        who=labels.identify_user(),
        terminal=labels.is_at_terminal(),
        subjects=hashes,
        project=project,
    )


def _counts(line: OverrideLine) -> bool:
    """Whether an override counts: it was given at a terminal, or the user's settings don't need one."""
    from judgekit.config import settings

    return line.terminal or settings.load(None).gate.override_without_terminal


def _say_uncounted(line: OverrideLine) -> None:
    """Print that an override was recorded without counting, and the setting by which it counts."""
    from judgekit.config import settings

    say(f"{line.task_id}: recorded, but it does not count")
    setting = f"{settings.get_user_config_path()} has gate.override_without_terminal: true"
    warn(f"this override was given without a terminal: it counts only if {setting}")


def _find_verdict(ledger: AnyLedger, task: str) -> VerdictLine | None:
    """Find the latest verdict on a task or path. If there's none, `task` may be the id of a verdict.

    Paths are relative to the current folder or the repository. Ids may be abbreviated.
    """
    names = [_make_relative_to_root(task), task]  # in order of preference
    if task_ids.is_blob(task):  # an exact task id, so prefer it
        names.reverse()
    last_by_name: dict[str, VerdictLine] = {}
    id_matches: dict[str, VerdictLine] = {}  # by the whole id, which starts with `task`
    for verdict in _read_verdicts(ledger):
        if verdict.id.startswith(task):
            id_matches[verdict.id] = verdict
        for name in names:
            if _is_verdict_on(name, verdict):
                _keep_latest(last_by_name, name, verdict)

    for name in names:
        if name in last_by_name:
            return last_by_name[name]
    is_long_enough = len(task) >= _MIN_ID_DIGITS
    if is_long_enough and len(id_matches) == 1:
        (only_verdict,) = id_matches.values()
        return only_verdict
    return None


def _read_verdicts(ledger: AnyLedger) -> Iterator[VerdictLine]:
    """Yield a ledger's verdicts, with warnings about unreadable lines."""
    from judgekit.ledger import LineFilter, VerdictLine

    for record in ledger.read_records(LineFilter(kinds=[VerdictLine]), warn_damaged):
        # The filter yields no others, but the type checker can't know it.
        if isinstance(record, VerdictLine):
            yield record


def _is_verdict_on(name: str, verdict: VerdictLine) -> bool:
    """Whether `name` is a verdict's id, its path, or its task id, which may be abbreviated."""
    path, _, _ = verdict.task_id.rpartition("@")
    is_exact = name in (verdict.id, verdict.task_id, path)
    return is_exact or task_ids.is_same_task(verdict.task_id, name)


def _keep_latest(last_by_name: dict[str, VerdictLine], name: str, verdict: VerdictLine) -> None:
    """Put a verdict under a name unless there's a later one. Of two at the same time, the last counts."""
    earlier = last_by_name.get(name)
    if earlier is None or verdict.timestamp >= earlier.timestamp:
        last_by_name[name] = verdict


def _make_relative_to_root(path: str) -> str:
    """Make a path relative to the repository's root. Outside a repository, it stays as it is."""
    from judgekit.git import GitError, Repository

    try:
        answer = Repository(Path.cwd()).ask("rev-parse", "--show-prefix")
    except GitError:
        return path
    current_folder = os.fsdecode(answer.removesuffix(b"\n"))  # from the root
    path_from_root = posixpath.join(current_folder, path)
    return posixpath.normpath(path_from_root)


def escalate(
    task: Annotated[str | None, _TASK_ARGUMENT] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the issues; open none.")] = False,
) -> int:
    """Open or update one GitHub issue for each task with gh. Exit code 2 when one could not be opened."""
    from judgekit.config.settings import load

    settings = load(get_project_path()).escalate
    verdicts = _choose_verdicts(find_ledger(), task, with_rejects=settings.rejects)
    if not verdicts:
        say("nothing needs a person")
        return Exit.ACCEPTED
    if dry_run:
        _print_issues(verdicts, settings)
        return Exit.ACCEPTED
    return _open_issues(verdicts, settings)


def _choose_verdicts(
    ledger: Ledger, task: str | None, *, with_rejects: bool
) -> Sequence[VerdictLine]:
    """Choose the verdicts to open issues about: a task's latest one, or all that need a person.

    Raises `UsageError` if the task has no verdict or was accepted.
    """
    from judgekit.gate import github
    from judgekit.ledger import LineFilter, OverrideLine, VerdictLine

    if task is None:
        records = ledger.read_records(LineFilter(kinds=[VerdictLine, OverrideLine]), warn_damaged)
        return github.list_unsettled(records, with_rejects=with_rejects)

    verdict = _find_verdict(ledger, task)
    if verdict is None:
        raise UsageError(f"{task}: no verdict on it in {ledger.folder}")
    if verdict.verdict == "accept":
        raise UsageError(f"{task}: it was accepted; there is nothing to escalate")
    return [verdict]


def _print_issues(verdicts: Sequence[VerdictLine], settings: EscalateConfig) -> None:
    """Print the issue for each verdict."""
    from judgekit.gate import issues

    for verdict in verdicts:
        issue = issues.build_issue(verdict, with_text=settings.text)
        emit(f"{issue.title}\n\n{issue.body}\n", escape=escape_ci_commands)


def _open_issues(verdicts: Sequence[VerdictLine], settings: EscalateConfig) -> Exit:
    """Open or update the issue for each verdict, and print what was done. Returns the exit code."""
    from judgekit.gate import github

    # `MAX_TOTAL_SECONDS` is for a whole unattended run. Here a person waits, so each issue gets that long.
    time_limit = github.MAX_TOTAL_SECONDS * len(verdicts)
    opened_count = 0
    try:
        for _, outcome in github.ensure_issues(verdicts, settings, Path.cwd(), seconds=time_limit):
            say(outcome)
            opened_count += 1
    except github.GhError as error:
        unopened_count = len(verdicts) - opened_count
        warn(f"no issue was opened for {unopened_count}: {error}")
        return Exit.HUMAN_NEEDED
    return Exit.ACCEPTED
