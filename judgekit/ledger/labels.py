"""Labels of people: which verdict to label next, who labels it, and the content it was about."""

from __future__ import annotations

import getpass
import hashlib
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.git import GitError, Repository
from judgekit.ledger import kpi
from judgekit.ledger.records import Label, VerdictLine
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from judgekit.ledger.kpi import Evidence
    from judgekit.ledger.records import GateWord, Record


def waiting(
    records: Iterable[Record],
    who: str,
    wanted: Mapping[GateWord, int] | None = None,
    evidence: Evidence | None = None,
) -> list[VerdictLine]:
    """Return the GO and NO-GO verdicts whose content `who` has not labelled, each content once.

    First come so many of each word as are `wanted`, of those verdicts in `found` that nobody has labelled.
    The order is drawn from hashes of their ids: it is the same the next time, and a part of it is a random
    sample of each word's verdicts; after those that are wanted, as many GO as NO-GO come up as long as there
    are both.
    """
    lines = list(records)
    mine = [line for line in lines if isinstance(line, Label) and line.who == who]
    done = {of for of, word in kpi.agreed(mine).items() if word != "withdrawn"}
    verdicts = [line for line in lines if isinstance(line, VerdictLine) and not line.of_task]
    labelled = {kpi.content(verdict) for verdict in verdicts if verdict.id in done}
    last: dict[str, VerdictLine] = {}
    for verdict in verdicts:
        name = kpi.content(verdict)
        last[name] = max(last.get(name, verdict), verdict, key=_measured)
    fresh = sorted((verdict_line for name, verdict_line in last.items() if name not in labelled), key=_draw)
    unlabelled = (
        {verdict.id for verdict in evidence.verdicts if not evidence.sure(verdict)} if evidence else set()
    )
    first = [
        [
            verdict_line
            for verdict_line in fresh
            if verdict_line.word == word and verdict_line.id in unlabelled
        ][:count]
        for word, count in (wanted or {}).items()
    ]
    ahead = _mixed(first)
    taken = {line.id for line in ahead}
    rest = [
        [each for each in fresh if each.word == word and each.id not in taken] for word in ("GO", "NO-GO")
    ]
    return [*ahead, *_interleaved(*rest)]


def _measured(verdict: VerdictLine) -> tuple[bool, bool, datetime]:
    """Rank a content's verdicts: the one that is measured last."""
    return not kpi.used_again(verdict), verdict.answered, verdict.timestamp


def _mixed(groups: Iterable[list[VerdictLine]]) -> list[VerdictLine]:
    """Take from all groups by lot, from each in proportion to what it holds."""
    placed = [
        ((rank + int(_draw(verdict_line)[:8], 16) / 2**32) / len(group), verdict_line)
        for group in groups
        for rank, verdict_line in enumerate(group)
    ]
    return [verdict_line for _, verdict_line in sorted(placed, key=lambda pair: pair[0])]


def _interleaved(one: list[VerdictLine], other: list[VerdictLine]) -> list[VerdictLine]:
    """Take from both by the toss of a coin, the rest at the end."""
    first, second = iter(one), iter(other)
    order: list[VerdictLine] = []
    heads, tails = next(first, None), next(second, None)
    while heads and tails:
        if int(_draw(heads, tails), 16) % 2:
            order.append(heads)
            heads = next(first, None)
        else:
            order.append(tails)
            tails = next(second, None)
    order += [verdict_line for verdict_line in (heads, tails) if verdict_line]
    return [*order, *first, *second]


def _draw(*verdicts: VerdictLine) -> str:
    return hashlib.sha256("".join(verdict.id for verdict in verdicts).encode()).hexdigest()


def who(folder: Path | None = None) -> str:
    """Return the person's address as git knows it in `folder`, else the login name at this machine."""
    try:
        found = (
            Repository(folder or Path.cwd()).ask("config", "user.email").decode("utf-8", "replace").strip()
        )
    except GitError:
        found = ""
    return found or f"{_login()}@{socket.gethostname()}"


def signed(record: Record, name: str) -> Record:
    """Return a record that came over the network as said by `name`, whoever it names itself."""
    if isinstance(record, VerdictLine):
        given = record.human_override
        return record.model_copy(update={"human_override": given and given.model_copy(update={"who": name})})
    return record.model_copy(update={"who": name} if "who" in type(record).model_fields else {})


def at_terminal() -> bool:
    """Whether a person can be typing: standard input and error are terminals.

    A program can pretend to be one; this tells carelessness from intent, it is no lock.
    """
    return all(each is not None and each.isatty() for each in (sys.stdin, sys.stderr))


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        return "unknown"


_MOST = 4_000_000  # bytes of one file; a larger one is not shown


def texts(verdict: VerdictLine, project: Path) -> dict[str, str | None]:
    """Return each judged file's text by its path, from the verdict's commit or the working tree.

    None where it is gone or is not what was judged any more; control characters are left out.
    """
    return {
        subject.path: _text(subject.path, subject.sha256, verdict.commit, project)
        for subject in verdict.subjects
    }


def _text(path: str, sha256: str, commit: str | None, project: Path) -> str | None:
    for data in (_pushed(path, commit, project), _present(project / path)):
        if data is not None and (not sha256 or hashlib.sha256(data).hexdigest() == sha256):
            return visible(data.decode("utf-8", "replace"))
    return None


def _pushed(path: str, commit: str | None, project: Path) -> bytes | None:
    if not commit or commit.startswith("-"):
        return None
    try:
        repository = Repository(project)
        blob = repository.ask("rev-parse", "--verify", "--quiet", f"{commit}:{path}").decode().strip()
        return next(content for _, content in repository.blobs([blob], _MOST))
    except (GitError, ValueError):  # ValueError: a NUL in the path
        return None


def _present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()[:_MOST]
    except (OSError, ValueError):
        return None
