"""The team's ledger behind the server, and how far a client's wish goes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from judgekit import assess
from judgekit.engine.team.asked import Kept
from judgekit.ledger import Ledger, Wanted, project, read, times
from judgekit.ledger.person import signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.engine.team.asked import WishSent
    from judgekit.judging.documents import DocumentJudge
    from judgekit.ledger import Record

_PART = 32_768  # bytes
_FIRST, _LAST = 2000, 2200  # years; the first and last there are cannot be told in another zone


def limited(judge: DocumentJudge, wish: WishSent) -> DocumentJudge:
    """Return the judge with the client's limits, where they are below the server's own.

    Raises `UsageError` for a limit on the cost of models that have no price.
    """
    assess.check_prices(judge.seats, wish.max_cost_usd, asked=True)
    costs = [each for each in (judge.max_cost_usd, wish.max_cost_usd) if each is not None]
    seconds = min(judge.deadline, wish.deadline or judge.deadline)
    return replace(judge, deadline=seconds, max_cost_usd=min(costs, default=None))


def keep(lines: Sequence[dict[str, Any]], holder: str) -> Kept:
    """Add lines to the ledgers that they name, as acts of `holder` whatever they say.

    Raises `LedgerError` when the disk does not take them.
    """
    refused: dict[int, str] = {}
    by_name: dict[str, list[Record]] = {}
    for place, each in enumerate(lines):
        found = read.parse(json.dumps(each).encode())
        if isinstance(found, str):
            refused[place] = found
        elif not project.is_name(found.project):
            refused[place] = "project: expected the name of a ledger"
        elif not _FIRST <= found.timestamp.year <= _LAST:
            refused[place] = "timestamp: no time at which anything was judged"
        else:
            by_name.setdefault(found.project, []).append(signed(found, holder))
    for name, records in by_name.items():
        Ledger(project.home() / name, name).add(*records)
    return Kept(taken=sum(map(len, by_name.values())), refused=refused)


def lines(since: str, name: str) -> Iterator[bytes]:
    """Yield the lines of a ledger, or of all, each once. Raises `UsageError` for a time that is none."""
    wanted = Wanted(since=times.point(since), project=None if name == "all" else name)
    places = [project.home()] if read.exists(project.home()) else []
    return _together(found.raw + b"\n" for found in read.entries(places, wanted))


def _together(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines in parts of one size: short ones together, long ones in pieces."""
    held = bytearray()
    for each in lines:
        held += each
        while len(held) >= _PART:
            yield bytes(held[:_PART])
            del held[:_PART]
    if held:
        yield bytes(held)
