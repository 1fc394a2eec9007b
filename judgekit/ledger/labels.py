"""The work that's waiting for a person: verdicts to label and others to look at. Also, who that person is."""

from __future__ import annotations

import getpass
import hashlib
import socket
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from judgekit.git import GitError, Repository
from judgekit.ledger import kpi
from judgekit.ledger.records import (
    Fault,
    Label,
    ModeChange,
    OverrideLine,
    Skip,
    VerdictLine,
    find_newest_override,
)
from judgekit.task_ids import task_name
from judgekit.text import remove_invisible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from judgekit.ledger.records import GateWord, Record

# A verdict with its position in a queue.
_PlacedVerdict: TypeAlias = "tuple[float, VerdictLine]"
_SHOWN_BYTES = 4_000_000  # bytes; larger files aren't shown
_GATE_WORDS: tuple[GateWord, ...] = ("GO", "NO-GO", "UNDETERMINED")


def list_waiting(
    records: Iterable[Record], who: str, readiness: kpi.Readiness | None = None
) -> list[VerdictLine]:
    """List the verdicts that `who` should label, one per content, most important first.

    Verdicts that the gate needs labels for, according to its `readiness` to block pushes, come first.
    """
    # Shuffle the verdicts in a repeatable way, so that the first ones with a word are a fair sample.
    unlabelled = sorted(_find_unlabelled(records, who), key=_draw_lot)
    needed = _choose_needed(unlabelled, readiness) if readiness else []
    needed_ids = {verdict.id for verdict in needed}
    others = [verdict for verdict in unlabelled if verdict.id not in needed_ids]

    needed_queue: list[_PlacedVerdict] = []
    other_queue: list[_PlacedVerdict] = []
    for word in _GATE_WORDS:
        # Mix the words over the whole queue, in proportion to their numbers.
        needed_queue += _spread_evenly(_select_word(needed, word))
        # Alternate between GO and NO-GO. Labels for UNDETERMINED verdicts help only if the gate needs them.
        if word != "UNDETERMINED":
            other_queue += _place_by_rank(_select_word(others, word))

    return [*_sort_by_position(needed_queue), *_sort_by_position(other_queue)]


def _choose_needed(
    unlabelled: Sequence[VerdictLine], readiness: kpi.Readiness
) -> list[VerdictLine]:
    """For each word, choose as many verdicts as the gate still needs labels for."""
    # If other people's labels of a verdict agree, another label would add nothing.
    undecided_ids = _find_undecided_ids(readiness.evidence)
    undecided = [verdict for verdict in unlabelled if verdict.id in undecided_ids]
    needed: list[VerdictLine] = []
    for word, count in readiness.missing_labels_by_word.items():
        needed += _select_word(undecided, word)[:count]
    return needed


def _select_word(verdicts: Iterable[VerdictLine], word: GateWord) -> list[VerdictLine]:
    """Select the verdicts with this word."""
    return [verdict for verdict in verdicts if verdict.word == word]


def _find_unlabelled(records: Iterable[Record], who: str) -> list[VerdictLine]:
    """List one verdict for each content that `who` hasn't labelled. Withdrawn labels don't count.

    Of several verdicts on the same content, choose the same as the error rates.
    """
    labels, verdicts = _collect_labels_and_verdicts(records, who)
    # All labels are by one person, so the majority is just this person's last label.
    label_by_id = kpi.find_majority_labels(labels)

    # Below, a later verdict on the same content replaces an earlier one. So the error rates' choice is last.
    verdicts.sort(key=_rank_for_error_rates)
    verdict_by_content = {}
    labelled_contents = set()
    for verdict in verdicts:
        content = kpi.identify_content(verdict)
        verdict_by_content[content] = verdict
        label = label_by_id.get(verdict.id)
        if label is not None and label != "withdrawn":
            labelled_contents.add(content)

    for content in labelled_contents:
        del verdict_by_content[content]
    return list(verdict_by_content.values())


def _collect_labels_and_verdicts(
    records: Iterable[Record], who: str
) -> tuple[list[Label], list[VerdictLine]]:
    """Collect a person's labels, and all verdicts except those on an agent's task."""
    labels = []
    verdicts = []
    for record in records:
        if isinstance(record, Label) and record.who == who:
            labels.append(record)
        elif isinstance(record, VerdictLine) and not record.of_task:
            verdicts.append(record)
    return labels, verdicts


def _rank_for_error_rates(verdict: VerdictLine) -> tuple[bool, bool, datetime]:
    """Rank a verdict among those on the same content. The error rates use the highest-ranking one.

    New judgements rank above reused ones, then answered verdicts above others, then later ones above earlier.
    """
    is_new_judgement = not kpi.is_reused(verdict)
    return is_new_judgement, verdict.answered, verdict.timestamp


def _find_undecided_ids(evidence: kpi.Evidence) -> set[str]:
    """Find the ids of verdicts that people's labels don't agree on, or that have no label yet."""
    return {line.id for line in evidence.verdicts if not evidence.has_clear_label(line)}


def _spread_evenly(verdicts: Sequence[VerdictLine]) -> list[_PlacedVerdict]:
    """Place a word's verdicts at positions from 0 to 1. Sorted by position, the words mix evenly."""
    count = len(verdicts)
    return [(position / count, verdict) for position, verdict in _place_by_rank(verdicts)]


def _place_by_rank(verdicts: Sequence[VerdictLine]) -> list[_PlacedVerdict]:
    """Give the first verdict a position from 0 to 1, the second one from 1 to 2, and so on.

    A queue with the verdicts of two words, placed in this way, takes one of each in turn.
    """
    placed = []
    for rank, verdict in enumerate(verdicts):
        # The fraction decides by chance which word comes first in a turn.
        position = rank + _draw_fraction(verdict)
        placed.append((position, verdict))
    return placed


def _sort_by_position(queue: Iterable[_PlacedVerdict]) -> list[VerdictLine]:
    """Return the verdicts of a queue in the order of their positions."""
    by_position = sorted(queue, key=lambda placed: placed[0])
    return [verdict for _, verdict in by_position]


def _draw_lot(verdict: VerdictLine) -> str:
    """Return a hash of a verdict's id, for a random but repeatable order."""
    return hashlib.sha256(verdict.id.encode()).hexdigest()


def _draw_fraction(verdict: VerdictLine) -> float:
    """Return a random but repeatable number for a verdict, from 0 to below 1."""
    last_32_bits = _draw_lot(verdict)[-8:]  # in hexadecimal
    return int(last_32_bits, 16) / 2**32


def identify_user(folder: Path | None = None) -> str:
    """Return the user's e-mail address in git's configuration, or else `LOGIN@HOST`."""
    with suppress(GitError):
        raw_email = Repository(folder or Path.cwd()).ask("config", "user.email")
        email = raw_email.decode("utf-8", "replace").strip()
        if email:
            return email
    try:
        login = getpass.getuser()
    except (OSError, KeyError, ImportError):  # e.g. a container's user without a name
        login = "unknown"
    return f"{login}@{socket.gethostname()}"


def sign_record(record: Record, name: str) -> Record:
    """Return a copy of a record from the network with `name` as its author.

    The sender has proved by a token to be `name`, so any other author in the record is replaced.
    """
    if isinstance(record, VerdictLine):
        return _sign_verdict(record, name)
    if "who" in type(record).model_fields:
        return record.model_copy(update={"who": name})
    return record.model_copy()


def _sign_verdict(verdict: VerdictLine, name: str) -> VerdictLine:
    """Return a copy of a verdict with `name` as the author of its override and dismissals."""
    signature = {"who": name}
    override = verdict.human_override
    if override:
        override = override.model_copy(update=signature)
    findings = []
    for finding in verdict.findings:
        dismissed = finding.dismissed
        if dismissed:
            dismissed = dismissed.model_copy(update=signature)
        findings.append(finding.model_copy(update={"dismissed": dismissed}))

    return verdict.model_copy(update={"human_override": override, "findings": findings})


def is_at_terminal() -> bool:
    """Whether a person may be typing at a terminal. Programs can fake that, so don't rely on it."""
    if sys.stdin is None or sys.stderr is None:  # closed before Python started
        return False
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_judged_files(verdict: VerdictLine, project: Path) -> dict[str, str | None]:
    """Return the judged content of each file by path, escaped for display.

    It's None if the file is gone or has changed since.
    """
    text_by_path: dict[str, str | None] = {}
    for subject in verdict.subjects:
        contents = _read_contents(subject.path, verdict.commit, project)
        judged = _find_judged_content(contents, subject.sha256)
        if judged is None:
            text_by_path[subject.path] = None
        else:
            text_by_path[subject.path] = remove_invisible(judged.decode("utf-8", "replace"))
    return text_by_path


def _read_contents(path: str, commit: str | None, project: Path) -> Iterator[bytes]:
    """Yield a file's content in the commit, then its content in the working tree.

    One that can't be read is left out. Large files are truncated.
    """
    committed = _read_committed(path, commit, project)
    if committed is not None:
        yield committed
    with suppress(OSError, ValueError):  # ValueError: a NUL in the path
        data = (project / path).read_bytes()
        yield data[:_SHOWN_BYTES]


def _read_committed(path: str, commit: str | None, project: Path) -> bytes | None:
    """Return the start of a file's content in a commit; None if it can't be read."""
    if not commit:
        return None
    # git would take a commit that starts with a dash for an option.
    if commit.startswith("-"):
        return None
    try:
        blob = Repository(project).ask("cat-file", "blob", f"{commit}:{path}")
    except (GitError, ValueError):  # ValueError: a NUL in the path
        return None
    return blob[:_SHOWN_BYTES]


def _find_judged_content(contents: Iterable[bytes], sha256: str) -> bytes | None:
    """Find the content with a hash, or the first content if there's no hash."""
    is_imported = not sha256  # imported verdicts have no hashes
    for content in contents:
        if is_imported or hashlib.sha256(content).hexdigest() == sha256:
            return content
    return None


@dataclass(slots=True)
class Triage:
    """The lines a person must look at, newest first; `settled_count` counts paths fixed or overridden since.

    `verdicts` holds every verdict that was read.
    """

    overrides: list[OverrideLine] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    mode_changes: list[ModeChange] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    nogo_verdicts: list[VerdictLine] = field(default_factory=list)
    unclear_verdicts: list[VerdictLine] = field(default_factory=list)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    settled_count: int = 0
    verdicts: list[VerdictLine] = field(default_factory=list)

    @property
    def unjudged_verdicts(self) -> list[VerdictLine]:
        """The unclear verdicts on pushes during which no model answered."""
        return [verdict for verdict in self.unclear_verdicts if _is_unjudged_push(verdict)]


def _is_unjudged_push(verdict: VerdictLine) -> bool:
    is_push = verdict.gate is not None and bool(verdict.commit)
    return is_push and not verdict.answered


def triage_records(records: Iterable[Record]) -> Triage:
    """Collect the records that need a person's attention, and count settled tasks and failures.

    A task needs attention if its newest verdict isn't GO and nobody has overridden it.
    """
    triage = Triage()
    for record in sorted(records, key=lambda record: record.timestamp):
        _add_record(triage, record)

    # A task that only ever got GO had nothing to settle.
    troubled_tasks = {
        _identify_task(verdict) for verdict in triage.verdicts if verdict.word != "GO"
    }
    for verdict in _list_newest_verdicts(triage.verdicts):
        if _is_settled(verdict, triage.overrides):
            if _identify_task(verdict) in troubled_tasks:
                triage.settled_count += 1
        elif verdict.word == "NO-GO":
            triage.nogo_verdicts.append(verdict)
        else:
            triage.unclear_verdicts.append(verdict)

    return triage


def _add_record(triage: Triage, record: Record) -> None:
    """Add a record to the list or count for its kind. Records must be added oldest first."""
    # People are shown these lists newest first, so insert each record at the front.
    if isinstance(record, OverrideLine):
        triage.overrides.insert(0, record)
    elif isinstance(record, Skip):
        triage.skips.insert(0, record)
    elif isinstance(record, ModeChange):
        triage.mode_changes.insert(0, record)
    elif isinstance(record, Fault):
        triage.faults[record.problem] += 1
    elif isinstance(record, VerdictLine):
        triage.verdicts.append(record)  # unlike the others, oldest first
        _count_failures(triage.failures, record)


def _count_failures(failures: Counter[tuple[str, str, str]], verdict: VerdictLine) -> None:
    """Count the failed calls of a verdict by kind, model and message."""
    for round_ in verdict.rounds:
        failure = round_.failure
        if failure:
            failures[failure.kind, round_.model, failure.message] += 1


def _identify_task(verdict: VerdictLine) -> tuple[str, str]:
    """Return a verdict's project and task."""
    return verdict.project, task_name(verdict.task_id)


def _list_newest_verdicts(verdicts: Sequence[VerdictLine]) -> list[VerdictLine]:
    """List each task's newest verdict, newest first, from verdicts that come oldest first."""
    newest_by_task: dict[tuple[str, str], VerdictLine] = {}
    for verdict in reversed(verdicts):
        newest_by_task.setdefault(_identify_task(verdict), verdict)
    return list(newest_by_task.values())


def _is_settled(verdict: VerdictLine, overrides: Iterable[OverrideLine]) -> bool:
    """Whether a task's newest verdict is a GO, or a person has overridden it."""
    if verdict.word == "GO":
        return True
    project_overrides = [line for line in overrides if line.project == verdict.project]
    override = find_newest_override(project_overrides, verdict.task_id, verdict.hashes)
    return override is not None
