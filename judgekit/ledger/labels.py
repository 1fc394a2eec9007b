"""What a person has to do: which verdict to label next, and what else must be looked at; who that is."""

from __future__ import annotations

import getpass
import hashlib
import socket
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.git import GitError, Repository
from judgekit.ledger import kpi
from judgekit.ledger.records import Fault, Label, ModeChange, OverrideLine, Skip, VerdictLine, newest_override
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.ledger.kpi import Evidence
    from judgekit.ledger.records import GateWord, Record

_MOST = 4_000_000  # bytes of one file; a larger one is not shown


def waiting(
    records: Iterable[Record],
    who: str,
    wanted: Mapping[GateWord, int] | None = None,
    evidence: Evidence | None = None,
) -> list[VerdictLine]:
    """Return the GO and NO-GO verdicts whose content `who` has not labelled, each content once.

    First come so many of each word as are `wanted`, of those verdicts in `evidence` that nobody has labelled.
    The order is drawn from hashes of their ids: it is the same the next time, and a part of it is a random
    sample of each word's verdicts; after those that are wanted, as many GO as NO-GO come up as long as there
    are both.
    """
    lines = list(records)
    mine = kpi.agreed(line for line in lines if isinstance(line, Label) and line.who == who)
    verdicts = [line for line in lines if isinstance(line, VerdictLine) and not line.of_task]
    labelled = {kpi.content(each) for each in verdicts if mine.get(each.id, "withdrawn") != "withdrawn"}
    last: dict[str, VerdictLine] = {}  # of a content's verdicts the one that is measured
    for verdict in sorted(
        verdicts, key=lambda each: (not kpi.used_again(each), each.answered, each.timestamp)
    ):
        last[kpi.content(verdict)] = verdict
    fresh = sorted((verdict for name, verdict in last.items() if name not in labelled), key=_draw)
    open_ids = {each.id for each in evidence.verdicts if not evidence.sure(each)} if evidence else set[str]()
    placed: list[tuple[float, VerdictLine]] = []  # from each group in proportion to what it holds
    for word, count in (wanted or {}).items():
        group = [verdict for verdict in fresh if verdict.word == word and verdict.id in open_ids][:count]
        lots = ((rank + int(_draw(each)[:8], 16) / 2**32) / len(group) for rank, each in enumerate(group))
        placed += zip(lots, group, strict=True)
    ahead = [verdict for _, verdict in sorted(placed, key=lambda pair: pair[0])]
    taken = {verdict.id for verdict in ahead}
    go, nogo = (
        [verdict for verdict in fresh if verdict.word == word and verdict.id not in taken]
        for word in ("GO", "NO-GO")
    )
    while go and nogo:  # the toss of a coin
        ahead.append((go if int(_draw(go[0], nogo[0]), 16) % 2 else nogo).pop(0))
    return [*ahead, *go, *nogo]


def _draw(*verdicts: VerdictLine) -> str:
    return hashlib.sha256("".join(verdict.id for verdict in verdicts).encode()).hexdigest()


def who(folder: Path | None = None) -> str:
    """Return the person's address as git knows it in `folder`, else the login name at this machine."""
    try:
        email = Repository(folder or Path.cwd()).ask("config", "user.email").decode("utf-8", "replace")
    except GitError:
        email = ""
    if email.strip():
        return email.strip()
    try:
        login = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        login = "unknown"
    return f"{login}@{socket.gethostname()}"


def signed(record: Record, name: str) -> Record:
    """Return a record that came over the network as said by `name`, whoever it names itself."""
    if isinstance(record, VerdictLine):
        override = record.human_override
        signed_override = override and override.model_copy(update={"who": name})
        return record.model_copy(update={"human_override": signed_override})
    return record.model_copy(update={"who": name} if "who" in type(record).model_fields else {})


def at_terminal() -> bool:
    """Whether a person can be typing: standard input and error are terminals.

    A program can pretend to be one; this tells carelessness from intent, it is no lock.
    """
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def texts(verdict: VerdictLine, project: Path) -> dict[str, str | None]:
    """Return each judged file's text by its path, from the verdict's commit or the working tree.

    None where it is gone or is not what was judged any more; control characters are left out.
    """
    found: dict[str, str | None] = {}
    for subject in verdict.subjects:
        found[subject.path] = None
        for read in (_pushed, _present):
            data = read(subject.path, verdict.commit, project)
            if data is not None and subject.sha256 in ("", hashlib.sha256(data).hexdigest()):
                found[subject.path] = visible(data.decode("utf-8", "replace"))
                break
    return found


def _pushed(path: str, commit: str | None, project: Path) -> bytes | None:
    if not commit or commit.startswith("-"):
        return None
    try:
        repository = Repository(project)
        blob = repository.ask("rev-parse", "--verify", "--quiet", f"{commit}:{path}").decode().strip()
        return next(content for _, content in repository.blobs([blob], _MOST))
    except (GitError, ValueError):  # ValueError: a NUL in the path
        return None


def _present(path: str, _commit: str | None, project: Path) -> bytes | None:
    try:
        return (project / path).read_bytes()[:_MOST]
    except (OSError, ValueError):
        return None


@dataclass(slots=True)
class Triage:
    """What a person must look at, newest first.

    `nogo` and `unclear` hold the last verdict on a path or task alone, and none that a person overrode.
    `failures` counts what kept models from answering by `kind, model, message`. `settled` counts paths whose
    last verdict is GO after one that was not, or that were overridden.
    """

    nogo: list[VerdictLine] = field(default_factory=list)
    unclear: list[VerdictLine] = field(default_factory=list)
    overrides: list[OverrideLine] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    changes: list[ModeChange] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    settled: int = 0


def triage(records: Iterable[Record]) -> Triage:
    """Sort records into what needs a person."""
    lines = sorted(records, key=lambda record: record.timestamp)
    newest, last = lines[::-1], dict[tuple[str, str], VerdictLine]()
    found = Triage(
        overrides=[line for line in newest if isinstance(line, OverrideLine)],
        skips=[line for line in newest if isinstance(line, Skip)],
        changes=[line for line in newest if isinstance(line, ModeChange)],
        faults=Counter(line.problem for line in lines if isinstance(line, Fault)),
    )
    stumbled: set[tuple[str, str]] = set()
    for line in lines:
        if isinstance(line, VerdictLine):
            key = (line.project, line.task_id.rpartition("@")[0] or line.task_id)
            last.pop(key, None)  # so that the newest stands last
            last[key] = line
            stumbled |= {key} if line.word != "GO" else set()
            for each in line.rounds:
                if each.failure:
                    found.failures[each.failure.kind, each.model, each.failure.message] += 1
    for key, verdict in reversed(last.items()):
        overrides = [override for override in found.overrides if override.project == verdict.project]
        hashes = [subject.sha256 for subject in verdict.subjects]
        if verdict.word == "GO" or newest_override(overrides, verdict.task_id, hashes):
            found.settled += key in stumbled
        else:
            (found.nogo if verdict.word == "NO-GO" else found.unclear).append(verdict)
    return found
