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
from typing import TYPE_CHECKING

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
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from judgekit.ledger.records import GateWord, Record

_SHOWN_BYTES = 4_000_000  # bytes; larger files aren't shown
_WORDS: tuple[GateWord, ...] = ("GO", "NO-GO", "UNDETERMINED")


def list_waiting(
    records: Iterable[Record], who: str, lacking: kpi.Readiness | None = None
) -> list[VerdictLine]:
    """List the verdicts that `who` should label, one per content, most important first.

    `lacking` contains the number of labels that a gate needs before it can block pushes. Verdicts for these
    labels come first. The others follow, alternating between GO and NO-GO.
    """
    # Shuffle the verdicts in a repeatable way, so that the first ones with a word are a fair sample.
    unlabelled = sorted(_find_unlabelled(records, who), key=_draw_lot)
    needed_counts: Mapping[
        GateWord, int
    ] = {}  # by verdict word: the number of labels that the gate needs
    unsure_ids = (
        set()
    )  # verdicts on whose content people's labels don't agree, or that have no label
    if lacking:
        needed_counts = lacking.labels
        evidence = lacking.evidence
        unsure_ids = {line.id for line in evidence.verdicts if not evidence.has_clear_label(line)}

    # Each queue contains verdicts with their position, by which the queue is sorted below.
    needed_queue: list[tuple[float, VerdictLine]] = []
    other_queue: list[tuple[float, VerdictLine]] = []
    for word in _WORDS:
        # Queue the verdicts that the gate needs.
        verdicts = [verdict for verdict in unlabelled if verdict.word == word]
        unsure_verdicts = [verdict for verdict in verdicts if verdict.id in unsure_ids]
        needed_verdicts = unsure_verdicts[: needed_counts.get(word, 0)]
        for rank, verdict in enumerate(needed_verdicts):
            # Spread each word's verdicts over positions from 0 to 1, to mix the words evenly.
            position = (rank + _draw_fraction(verdict)) / len(needed_verdicts)
            needed_queue.append((position, verdict))

        # Queue the others. Labels for UNDETERMINED verdicts help only if the gate needs them.
        if word == "UNDETERMINED":
            continue
        needed_ids = {verdict.id for verdict in needed_verdicts}
        other_verdicts = [verdict for verdict in verdicts if verdict.id not in needed_ids]
        for rank, verdict in enumerate(other_verdicts):
            # Each GO and NO-GO of the same rank gets a position between two whole numbers, so they alternate.
            other_queue.append((rank + _draw_fraction(verdict), verdict))

    needed_queue.sort(key=lambda entry: entry[0])
    other_queue.sort(key=lambda entry: entry[0])
    return [verdict for _, verdict in [*needed_queue, *other_queue]]


def _find_unlabelled(records: Iterable[Record], who: str) -> list[VerdictLine]:
    """List one verdict for each content that `who` hasn't labelled. Withdrawn labels don't count.

    If the same content has multiple verdicts, list the one that error rates are measured with.
    """
    labels = []
    verdicts = []
    for record in records:
        if isinstance(record, Label) and record.who == who:
            labels.append(record)
        elif isinstance(record, VerdictLine) and not record.of_task:
            verdicts.append(record)

    label_by_id = kpi.find_majority_labels(labels)

    # The last verdict on each content overwrites earlier ones below. Error rates prefer verdicts that weren't
    # reused, then answered ones, then the newest, so sort in this order.
    verdicts.sort(key=lambda line: (not kpi.is_reused(line), line.answered, line.timestamp))
    verdict_by_content = {}
    labelled_contents = set()
    for verdict in verdicts:
        judged_content = kpi.identify_content(verdict)
        verdict_by_content[judged_content] = verdict
        label = label_by_id.get(verdict.id)
        if label is not None and label != "withdrawn":
            labelled_contents.add(judged_content)

    for judged_content in labelled_contents:
        del verdict_by_content[judged_content]
    return list(verdict_by_content.values())


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
        text_by_path[subject.path] = None
        for data in _read_contents(subject.path, verdict.commit, project):
            is_judged_content = hashlib.sha256(data).hexdigest() == subject.sha256
            # Imported verdicts have no hashes: show the first content found.
            if is_judged_content or not subject.sha256:
                text_by_path[subject.path] = visible(data.decode("utf-8", "replace"))
                break
    return text_by_path


def _read_contents(path: str, commit: str | None, project: Path) -> Iterator[bytes]:
    """Yield a file's content in the commit and in the working tree, if it exists there.

    Large files are truncated.
    """
    with suppress(GitError, ValueError):  # ValueError: a NUL in the path
        # git would take a commit that starts with a dash for an option.
        if commit and not commit.startswith("-"):
            blob = Repository(project).ask("cat-file", "blob", f"{commit}:{path}")
            yield blob[:_SHOWN_BYTES]
    with suppress(OSError, ValueError):
        data = (project / path).read_bytes()
        yield data[:_SHOWN_BYTES]


@dataclass(slots=True)
class Triage:
    """The lines a person must look at, newest first; `settled` counts paths fixed or overridden since.

    `verdicts` holds every verdict that was read.
    """

    overrides: list[OverrideLine] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    changes: list[ModeChange] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    nogo: list[VerdictLine] = field(default_factory=list)
    unclear: list[VerdictLine] = field(default_factory=list)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    settled: int = 0
    verdicts: list[VerdictLine] = field(default_factory=list)

    @property
    def unjudged(self) -> list[VerdictLine]:
        """The verdicts in `unclear` on pushes during which no model answered."""
        return [verdict for verdict in self.unclear if _is_unjudged_push(verdict)]


def _is_unjudged_push(verdict: VerdictLine) -> bool:
    is_push = verdict.gate is not None and bool(verdict.commit)
    return is_push and not verdict.answered


def triage_records(records: Iterable[Record]) -> Triage:
    """Collect the records that need a person's attention, and count settled tasks and failures.

    Only a task's newest verdict counts.
    """
    lines = sorted(records, key=lambda record: record.timestamp)
    triage = Triage()
    newest_verdicts: dict[tuple[str, str], VerdictLine] = {}  # by project and task
    once_unsettled_tasks = set()  # tasks with any verdict that wasn't a GO

    for line in lines:
        if isinstance(line, OverrideLine):
            triage.overrides.insert(0, line)  # newest first
        elif isinstance(line, Skip):
            triage.skips.insert(0, line)
        elif isinstance(line, ModeChange):
            triage.changes.insert(0, line)
        elif isinstance(line, Fault):
            triage.faults[line.problem] += 1
        elif isinstance(line, VerdictLine):
            triage.verdicts.append(line)
            _count_failures(triage.failures, line)
            task = (line.project, task_name(line.task_id))
            # Remove the task's older verdict first, so that the newest verdict comes last in the dictionary.
            newest_verdicts.pop(task, None)
            newest_verdicts[task] = line
            if line.word != "GO":
                once_unsettled_tasks.add(task)

    # Sort the tasks by their newest verdict. A GO or a person's override settles a task.
    for task, verdict in reversed(newest_verdicts.items()):
        overrides = [line for line in triage.overrides if line.project == verdict.project]
        override = find_newest_override(overrides, verdict.task_id, verdict.hashes)
        if verdict.word == "GO" or override is not None:
            # Count the task as settled only if there was something to settle.
            if task in once_unsettled_tasks:
                triage.settled += 1
        elif verdict.word == "NO-GO":
            triage.nogo.append(verdict)
        else:
            triage.unclear.append(verdict)

    return triage


def _count_failures(failures: Counter[tuple[str, str, str]], verdict: VerdictLine) -> None:
    """Count the failed calls of a verdict by kind, model and message."""
    for round_ in verdict.rounds:
        failure = round_.failure
        if failure:
            failures[failure.kind, round_.model, failure.message] += 1
