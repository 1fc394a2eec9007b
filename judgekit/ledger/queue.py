"""Which verdicts a person labels next: a fair sample of GO and NO-GO, in an order that gives nothing away."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from judgekit.ledger import kpi
from judgekit.ledger.records import Label, VerdictLine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.ledger.records import Record


def waiting(records: Iterable[Record], who: str) -> list[VerdictLine]:
    """Return the GO and NO-GO verdicts that `who` has not labelled, each content once.

    Their order is drawn from hashes of their ids: it is the same the next time, a part of it is a random
    sample, and as many GO as NO-GO come up as long as there are both.
    """
    found = list(records)
    mine = [each for each in found if isinstance(each, Label) and each.who == who]
    done = {of for of, word in kpi.agreed(mine).items() if word != "withdrawn"}
    verdicts = [
        each
        for each in found
        if isinstance(each, VerdictLine) and each.word != "UNDETERMINED" and not each.of_task
    ]
    labelled = {kpi.content(each) for each in verdicts if each.id in done}
    # The one that a model was asked for comes last, and stays: it is the one that is measured.
    ranked = sorted(verdicts, key=kpi.used_again, reverse=True)
    fresh = {kpi.content(each): each for each in ranked if kpi.content(each) not in labelled}
    drawn = sorted(fresh.values(), key=_draw)
    strata = [[each for each in drawn if each.word == word] for word in ("GO", "NO-GO")]
    return _interleaved(*strata)


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
    order += [each for each in (heads, tails) if each]
    return [*order, *first, *second]


def _draw(*verdicts: VerdictLine) -> str:
    return hashlib.sha256("".join(each.id for each in verdicts).encode()).hexdigest()
