"""`judgekit label`, `override`, `escalate`: what people say about verdicts, and issues that ask them."""

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
from judgekit.cli.formats.table import verdict_text
from judgekit.cli.interruption import keeps
from judgekit.cli.ledger import Since, TeamLedger, damaged, here, measure_readiness
from judgekit.cli.output import emit, pressed, project_path, say, warn
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import counted, lines_of, short_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.ledger import Label, Ledger, VerdictLine
    from judgekit.ledger.records import LabelWord

AnyLedger: TypeAlias = "Ledger | TeamLedger"
_WORDS: dict[str, LabelWord] = {"g": "go", "n": "no-go", "u": "unsure"}
# A file may also use the words of a judge, as the gate reads them.
_OF_JUDGES: dict[str, LabelWord] = {"accept": "go", "improve": "no-go", "reject": "no-go"}
_IN_FILES = _OF_JUDGES | {word: word for word in _WORDS.values()}
_KEYS = "g go, n no-go, u unsure, s skip, b back (undo), a all of the text, q quit"
_SHOWN = 100  # characters of a line that cannot be used
_START = 8  # digits of a verdict's id, at least
_LINES = 40  # of each file, until `a` is pressed
_VERDICT = Argument(metavar="ID", help="With --dismiss: id of a verdict, or its PATH.")
_DISMISS = Option(min=1, metavar="N", help="Finding N of a verdict, as printed, is no problem.")
_FROM = Option("--from", metavar="FILE", help="Read lines `id,accept|improve|reject|unsure`; or -.")
_TEAM = Option("--team", help="Use the ledger of the shared judge.")
_TASK = Argument(metavar="TASK", help="PATH[@SHA256] of a verdict; by default all open verdicts.")


def label(
    verdict: Annotated[str | None, _VERDICT] = None,
    dismiss: Annotated[int | None, _DISMISS] = None,
    undo: Annotated[
        bool, Option("--undo", help="With --dismiss: the finding counts again.")
    ] = False,
    blind: Annotated[bool, Option("--blind", help="Hide the verdict and its findings.")] = False,
    since: Since = None,
    limit: Annotated[int, Option("-n", min=1, help="Label at most this many.")] = 1_000_000,
    from_: Annotated[str | None, _FROM] = None,
    team: Annotated[bool, _TEAM] = False,
) -> int:
    """Label verdicts as right or wrong, so that the gate's errors can be counted.

    Asks first for the labels that promote needs, and continues where you stopped. Each label is saved at
    once; b undoes the last one.
    """
    from judgekit.ledger import LineFilter, labels, store

    ledger = TeamLedger() if team else here()
    who = labels.who()
    if isinstance(ledger, TeamLedger) and dismiss is not None:
        raise UsageError(
            "--team: a dismissal holds in the ledger of one machine; leave --team out there"
        )
    if verdict is not None and dismiss is not None:
        return _dismiss(ledger, verdict, dismiss, who, undo=undo)
    if verdict is not None or dismiss is not None or undo:
        raise UsageError(
            "name a verdict and one of its findings: judgekit label ID --dismiss N [--undo]"
        )
    if from_ is not None:
        return _from_file(ledger, from_, who)
    if not labels.at_terminal():
        raise UsageError("labelling needs a terminal; use --from FILE to read labels from a file")
    wanted = LineFilter(since=store.point(since) if since else None)
    say_damage = functools.cache(damaged)  # the same files are read twice
    if team:
        lacking = None
    else:
        lacking = measure_readiness(project_path(), on_damage=say_damage)[0]
    waiting = labels.waiting(ledger.records(wanted, say_damage), who, lacking)[:limit]
    count = _go_through(ledger, waiting, who, blind=blind)
    say(f"{count} labelled, {len(waiting) - count} left")
    return 0


def _dismiss(ledger: AnyLedger, name: str, number: int, who: str, *, undo: bool) -> int:
    from judgekit.ledger import DismissalLine

    verdict = _last_verdict(ledger, name)
    if verdict is None:
        raise UsageError(
            f"{name}: no verdict on it in {ledger.folder}; judgekit triage lists verdicts"
        )
    if number > len(verdict.findings):
        counted = f"the verdict on {verdict.task_id} has {len(verdict.findings)} findings"
        raise UsageError(f"--dismiss {number}: {counted}")
    finding = verdict.findings[number - 1]
    if not finding.quote_hash:
        why = "it quotes nothing, so it cannot be recognised in other files"
        raise UsageError(f"--dismiss {number}: {why}; override the verdict, or change the file")
    about = {"of": verdict.id, "rubric": verdict.rubric.id, "quote_hash": finding.quote_hash}
    ledger.add(DismissalLine(**about, who=who, withdrawn=undo))
    if undo:
        what = "counts again"
    else:
        what = f"dismissed by {who}, for this quote under {verdict.rubric.id}"
    say(f"{verdict.task_id}: finding {number} {what}: {short_line(finding.issue, _SHOWN)}")
    return 0


def _go_through(ledger: AnyLedger, waiting: Sequence[VerdictLine], who: str, *, blind: bool) -> int:
    """Ask about each verdict, keep the answers, and return how many verdicts are labelled."""
    from judgekit.ledger import Label

    def of(verdict: VerdictLine, word: LabelWord) -> Label:
        return Label(of=verdict.id, label=word, who=who, blind=blind, project=verdict.project)

    labelled: set[int] = set()  # by position
    position = 0
    while position < len(waiting):
        count = counted(len(labelled), "label is", "labels are")
        keeps("label", f"{count} saved; judgekit label continues there")
        verdict = waiting[position]
        if verdict.commit:
            commit = f", commit {verdict.commit[:12]}"
        else:
            commit = ""
        count = f"{position + 1} of {len(waiting)}"
        say(
            f"\n{'=' * 72}\n{count}: {verdict.task_id}{commit}, {verdict.timestamp:%Y-%m-%d %H:%M} UTC\n"
        )
        _show_texts(verdict, _LINES)
        if not blind:
            say(verdict_text(verdict.record()))
        say("\nShould this go?")
        key = ""
        while key not in {*_WORDS, "s", "b", "q"}:
            say(_KEYS)
            key = pressed()
            if key == "a":
                _show_texts(verdict, None)
        if key == "q":
            break
        if key == "b":
            position = max(0, position - 1)
            if position in labelled:
                labelled.remove(position)
                ledger.add(of(waiting[position], "withdrawn"))
            continue
        if key in _WORDS:
            ledger.add(of(verdict, _WORDS[key]))
            labelled.add(position)
        position += 1
    return len(labelled)


def _show_texts(verdict: VerdictLine, most: int | None) -> None:
    from judgekit.ledger.labels import texts

    for path, text in texts(verdict, Path.cwd()).items():
        if text is None:
            lines = ["(no longer in this repository)"]
        else:
            lines = lines_of(text)
        shown = lines[:most]
        say(f"--- {path}")
        say("\n".join(f"  {line}" for line in shown))
        if len(shown) < len(lines):
            say(f"  … {len(lines) - len(shown)} more lines (a shows them)")
    say("---")


def _from_file(ledger: AnyLedger, name: str, who: str) -> int:
    """Keep the labels in a file; exit code 65 when a line cannot be used."""
    from judgekit.ledger import Label, LineFilter, VerdictLine

    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            reason = error.strerror
        else:
            reason = "not UTF-8"
        raise InputError(f"{name}: cannot be read ({reason})") from None
    ids = {
        line.id: line.project for line in ledger.records(LineFilter(kinds=[VerdictLine]), damaged)
    }
    labels: list[Label] = []
    wrong = 0
    for number, line in enumerate(lines_of(text), 1):
        try:
            row = []
            for cells in csv.reader([line]):
                for cell in cells:
                    row.append(cell.strip())
        except csv.Error:  # a field of more than 128 KB
            row = [line]
        if not row or (number == 1 and row[:2] == ["id", "label"]):
            continue
        given = short_line(row[0], _SHOWN)
        said = short_line("".join(row[1:2]), _SHOWN)
        matching = [each for each in ids if each.startswith(row[0])]
        exact = [each for each in matching if each == row[0]] or matching
        if not row[1:]:
            problem = f"expected ID,LABEL, got {given!r}"
        elif len(exact) != 1:
            found = (
                f"{len(exact)} verdicts have an id that starts so" if exact else "no verdict has it"
            )
            problem = f"id must be that of one verdict; got {given!r}, and {found}"
        elif (word := _IN_FILES.get(row[1])) is None:
            problem = f"label must be accept, improve or reject; got {said or 'nothing'}"
        else:
            own = {"who": "".join(row[2:3]) or who, "project": ids[exact[0]]}
            labels.append(Label(of=exact[0], label=word, **own))
            continue
        wrong += 1
        warn(f"{name}:{number}: {problem}")
    ledger.add(*labels)
    say(f"{len(labels)} labelled")
    return Exit.BAD_INPUT if wrong else 0


def override(
    task: Annotated[
        str, Argument(metavar="TASK", help="PATH@SHA256 of a verdict, or PATH for the last.")
    ],
    decision: Annotated[
        Literal["accept", "reject"], Argument(metavar="accept|reject", help="You decide.")
    ],
    why: Annotated[str, Option(help="Your reason, recorded in the ledger.")],
    team: Annotated[bool, _TEAM] = False,
) -> None:
    """Override the verdict on a file until the file changes."""
    from judgekit.config import settings
    from judgekit.ledger import OverrideLine, labels

    if not why.strip():
        raise UsageError("--why is empty; give a reason")
    ledger = TeamLedger() if team else here()
    verdict = _last_verdict(ledger, task)
    if verdict is None and (team or not task_ids.is_blob(task, task_ids.DIGITS)):
        needed = f"give PATH@SHA256 as the gate prints it, {task_ids.DIGITS} digits or more"
        raise UsageError(f"{task}: no verdict on it in {ledger.folder}; {needed}")
    if verdict:
        subjects = [subject.sha256 for subject in verdict.subjects if subject.sha256]
    else:
        subjects = []
    line = OverrideLine(
        task_id=verdict.task_id if verdict else task,
        decision=decision,
        why=why,
        who=labels.who(),
        terminal=labels.at_terminal(),
        subjects=subjects,
        project=verdict.project if verdict else "",
    )
    ledger.add(line)
    counts = line.terminal or settings.load(None).gate.override_without_terminal
    if not counts:
        needed = (
            f"it counts only if {settings.user_file()} has gate.override_without_terminal: true"
        )
        say(f"{line.task_id}: recorded, but it does not count")
        warn(f"this override was given without a terminal: {needed}")
        return
    say(f"{line.task_id}: {decision} by {line.who}, until it changes")
    if verdict is None:
        warn(f"no verdict on {task} in {ledger.folder} yet; the override applies to the next one")


def _last_verdict(ledger: AnyLedger, task: str) -> VerdictLine | None:
    """Return the last verdict on a task, an id (or its start), or a path, from the folder or repository."""
    from judgekit.git import GitError, Repository
    from judgekit.ledger import LineFilter, VerdictLine

    try:
        prefix = Repository(Path.cwd()).ask("rev-parse", "--show-prefix").removesuffix(b"\n")
        from_root = posixpath.normpath(posixpath.join(os.fsdecode(prefix), task))
    except GitError:
        from_root = task
    names = dict.fromkeys([task, from_root] if task_ids.is_blob(task) else [from_root, task])
    last: dict[str, VerdictLine] = {}
    begun: dict[str, VerdictLine] = {}
    for record in ledger.records(LineFilter(kinds=[VerdictLine]), damaged):
        if isinstance(record, VerdictLine):
            begun |= {record.id: record} if record.id.startswith(task) else {}
            known = (record.id, record.task_id, record.task_id.rpartition("@")[0])
            for name in names:
                if name in known or task_ids.same_blob(record.task_id, name):
                    last[name] = max(
                        record, last.get(name, record), key=lambda line: line.timestamp
                    )
    if len(begun) == 1 and len(task) >= _START:
        only = next(iter(begun.values()))
    else:
        only = None
    return next((last[name] for name in names if name in last), only)


def escalate(
    task: Annotated[str | None, _TASK] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the issues; open none.")] = False,
) -> int:
    """Open or update one GitHub issue for each task with gh. Exit code 2 when one could not be opened."""
    from judgekit.config.settings import load
    from judgekit.gate import github, issues
    from judgekit.ledger import LineFilter, OverrideLine, VerdictLine

    settings = load(project_path()).escalate
    ledger = here()
    if task is None:
        records = ledger.records(LineFilter(kinds=[VerdictLine, OverrideLine]), damaged)
        verdicts: Sequence[VerdictLine] = github.list_unsettled(
            records, with_rejects=settings.rejects
        )
    elif (verdict := _last_verdict(ledger, task)) is None:
        raise UsageError(f"{task}: no verdict on it in {ledger.folder}")
    elif verdict.verdict == "accept":
        raise UsageError(f"{task}: it was accepted; there is nothing to escalate")
    else:
        verdicts = [verdict]
    if not verdicts:
        say("nothing needs a person")
    if not verdicts or dry_run:
        for issue in (issues.build_issue(verdict, with_text=settings.text) for verdict in verdicts):
            emit(f"{issue.title}\n\n{issue.body}\n")
        return Exit.ACCEPTED
    done = 0
    try:
        # Someone waits for it: each may take as long as all do where it happens by itself.
        for _, line in github.ensure_issues(
            verdicts, settings, Path.cwd(), seconds=github.SECONDS * len(verdicts)
        ):
            say(line)
            done += 1
    except github.GhError as error:
        warn(f"no issue was opened for {len(verdicts) - done}: {error}")
        return Exit.HUMAN_NEEDED
    return Exit.ACCEPTED
