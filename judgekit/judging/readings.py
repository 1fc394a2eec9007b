"""How what a model said was read: as it stands in the reply, or from the probabilities of tokens.

The same model gives other opinions when they are read otherwise: a 4 that was nearly a 3 is a 3.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from judgekit.gateway.base import Endpoint

How: TypeAlias = Literal["whole", "expected", "partly", "untold", "points"]
"""`whole`: as it stands there. Scores of a model that is asked for the probabilities of a reply's tokens are
`expected` where it gave them for all, `partly` for some, `untold` for none. `points`: one question at a time,
answered by the probabilities of single tokens."""

WORDS: Mapping[How, str] = {
    "whole": "taken as it stood in the reply",
    "expected": "an expectation over tokens' probabilities",
    "partly": "in part an expectation over tokens' probabilities",
    "untold": "taken as it stood in the reply, without the probabilities that were asked for",
    "points": "the probability of single tokens",
}


def how(seat: Endpoint, scores: Collection[str] | None, expected: Collection[str] = ()) -> How:
    """Return how an opinion was read; `scores` are the dimensions scored, None for what is no score."""
    if seat.pointwise:
        return "points"
    if not seat.logprobs or scores is None:
        return "whole"
    if not expected:
        return "untold"
    return "expected" if set(expected) >= set(scores) else "partly"


def able(seat: Endpoint, *, scores: bool) -> frozenset[How]:
    """Return how opinions of a model may be read here."""
    if seat.pointwise:
        return frozenset({"points"})
    return frozenset({"expected", "partly", "untold"} if seat.logprobs and scores else {"whole"})
