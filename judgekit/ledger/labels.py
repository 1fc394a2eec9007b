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
    mine = kpi.agreed(line for line in lines if isinstance(line, Label) and line.who == who)
    verdicts = [line for line in lines if isinstance(line, VerdictLine) and not line.of_task]
    labelled = {kpi.content(each) for each in verdicts if mine.get(each.id, "withdrawn") != "withdrawn"}
    last: dict[str, VerdictLine] = {}
    for verdict in verdicts:
        name = kpi.content(verdict)
        last[name] = max(last.get(name, verdict), verdict, key=_measured)
    fresh = sorted((verdict for name, verdict in last.items() if name not in labelled), key=_draw)
    open_ids = {each.id for each in evidence.verdicts if not evidence.sure(each)} if evidence else set[str]()
    placed: list[tuple[float, VerdictLine]] = []  # from each group in proportion to what it holds
    for word, count in (wanted or {}).items():
        group = [verdict for verdict in fresh if verdict.word == word and verdict.id in open_ids][:count]
        lots = ((rank + int(_draw(each)[:8], 16) / 2**32) / len(group) for rank, each in enumerate(group))
        placed += zip(lots, group, strict=True)
    ahead = [verdict for _, verdict in sorted(placed, key=lambda pair: pair[0])]
    taken = {verdict.id for verdict in ahead}
    rest = [verdict for verdict in fresh if verdict.id not in taken]
    go, nogo = ([each for each in rest if each.word == word] for word in ("GO", "NO-GO"))
    while go and nogo:  # the toss of a coin
        ahead.append((go if int(_draw(go[0], nogo[0]), 16) % 2 else nogo).pop(0))
    return [*ahead, *go, *nogo]


def _measured(verdict: VerdictLine) -> tuple[bool, bool, datetime]:
    """Rank a content's verdicts: the one that is measured last."""
    return not kpi.used_again(verdict), verdict.answered, verdict.timestamp


def _draw(*verdicts: VerdictLine) -> str:
    return hashlib.sha256("".join(verdict.id for verdict in verdicts).encode()).hexdigest()


def who(folder: Path | None = None) -> str:
    """Return the person's address as git knows it in `folder`, else the login name at this machine."""
    try:
        email = (
            Repository(folder or Path.cwd()).ask("config", "user.email").decode("utf-8", "replace").strip()
        )
    except GitError:
        email = ""
    if email:
        return email
    try:
        login = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        login = "unknown"
    return f"{login}@{socket.gethostname()}"


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


_MOST = 4_000_000  # bytes of one file; a larger one is not shown


def texts(verdict: VerdictLine, project: Path) -> dict[str, str | None]:
    """Return each judged file's text by its path, from the verdict's commit or the working tree.

    None where it is gone or is not what was judged any more; control characters are left out.
    """
    found: dict[str, str | None] = {}
    for subject in verdict.subjects:
        found[subject.path] = None
        for read in (_pushed, _present):
            data = read(subject.path, verdict.commit, project)
            same = data is not None and subject.sha256 in ("", hashlib.sha256(data).hexdigest())
            if data is not None and same:
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
