"""Scores by the probabilities of a reply's tokens: how sure a model was of each number that it wrote.

A reply that gives a 4 may have been nearly a 3. Where a provider tells what else each token could have
been, a score is the expectation over the scale's points at the place where its number stands. The number
itself stays wherever any of this is in doubt.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from judgekit.errors import InvalidReply
from judgekit.judging.extract import extract

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.judging.replies import ScoreReply
    from judgekit.providers.base import Endpoint, Reply


ALTERNATIVES: Final = 8
"""How many alternatives of each token are asked for: a scale of five points and other ways to write them.

It is the most that xAI gives; others give 20.
"""

LEAST_MASS: Final = 0.8
"""With less probability on the scale's points, the model was about to write something else there."""

SURE: Final = 0.05
"""An expectation nearer than this to the number is the number: whole thresholds are not missed by a hair."""

_MOST_PLACES: Final = 32
"""In a text with more numbers than this that may be scores, none is looked for."""

_SLACK: Final = 0.01
"""How far above 1 rounding may bring a sum of probabilities."""

_BEFORE: Final = " \t\r\n\"'“”:"
_BEHIND: Final = " \t\r\n\"'“”,}]"
_NUMBER: Final = re.compile(r""":\s*+["'“]?(\d{1,4})(?=["'”]?\s*+(?:[,}\n]|\Z))""")


class NumberSpan(NamedTuple):
    """Where a number stands in a text: its first character, and the one behind it."""

    start: int
    end: int


def expectations(reply: Reply, told: ScoreReply, points: range) -> dict[str, float]:
    """Return the expected score of each dimension of `told`, read from `reply`, for which it can be told.

    The value is the mean of the scale's `points`, each weighted with its probability among them.
    """
    if not reply.tokens or len(reply.tokens) != len(reply.logprobs):
        return {}
    start = aligned(reply.text, reply.tokens)
    if start is None:
        return {}
    ends = list(accumulate(map(len, reply.tokens)))
    expected: dict[str, float] = {}
    scores = _scores(told)
    for name, place in places(reply.text, told, points).items():
        at = bisect_right(ends, start + place.start)
        if start + place.end <= ends[at]:  # a number of several tokens has no probability of its own
            mean = expectation(reply.tokens[at], reply.logprobs[at], scores[name], points)
            if mean is not None:
                expected[name] = float(scores[name]) if abs(mean - scores[name]) < SURE else mean
    return expected


def aligned(text: str, tokens: Sequence[str]) -> int | None:
    """Return at which character of the joined `tokens` the `text` begins, or None when it is not in them.

    Servers cut blanks, thinking before the text and marks behind it out of the one and not of the other.
    """
    core = text.strip()
    at = "".join(tokens).rfind(core) if core else -1
    return None if at < 0 else at - text.index(core)


def places(text: str, told: ScoreReply, points: range) -> dict[str, NumberSpan]:
    """Return where in `text` the score of each dimension of `told` stands, for those that are certain.

    A place is certain when another number there gives the same reply but for this one score.
    """
    scores = _scores(told)
    numbers = [
        NumberSpan(*each.span(1)) for each in _NUMBER.finditer(text) if int(each[1]) in scores.values()
    ]
    if points.start < 0 or len(numbers) > _MOST_PLACES:
        return {}
    found: dict[str, NumberSpan] = {}
    for place in numbers:
        value = int(text[place.start : place.end])
        other = next(point for point in points if point != value)
        try:
            changed = _scores(extract(f"{text[: place.start]}{other}{text[place.end :]}", type(told)))
        except InvalidReply:
            continue
        differing = [name for name, score in scores.items() if changed[name] != score]
        if len(differing) == 1 and changed[differing[0]] == other:
            found[differing[0]] = place
    return found


def expectation(token: str, beside: Mapping[str, float], value: int, points: range) -> float | None:
    """Return the expected point at the place of a `token` that stands for `value`, or None.

    `beside` holds the logarithms of the probabilities of the alternatives and of the token. It cannot be
    told when the token is more than the number, or when too little of the probability is on `points`.
    """
    if _bare(token) != str(value) or token not in beside:
        return None
    mass = dict.fromkeys(points, 0.0)
    texts = {str(point): point for point in points}
    for text, logprob in beside.items():
        point = texts.get(_bare(text))
        if point is not None and logprob <= _SLACK:
            mass[point] += math.exp(logprob)
    total = sum(mass.values())
    # A point that counts may be the beginning of a longer one, as 1 is of 10. It is not where a longer one is
    # among the alternatives: then numbers are single tokens.
    longer = {
        point: [other for other in mass if other != point and str(other).startswith(str(point))]
        for point in mass
    }
    begins = sum(mass[point] for point, others in longer.items() if others) > _SLACK * total
    may_go_on = begins and not any(mass[other] for others in longer.values() for other in others)
    if not LEAST_MASS <= total <= 1 + _SLACK or may_go_on:
        return None
    return sum(point * share for point, share in mass.items()) / total


def _bare(token: str) -> str:
    return token.lstrip(_BEFORE).rstrip(_BEHIND)


def _scores(told: ScoreReply) -> dict[str, int]:
    found: dict[str, int] = told.model_dump()["scores"]
    return found


ScoreSource: TypeAlias = Literal["whole", "expected", "partly", "untold", "points"]
"""`whole`: as it stands there. Scores of a model that is asked for the probabilities of a reply's tokens are
`expected` where it gave them for all, `partly` for some, `untold` for none. `points`: one question at a time,
answered by the probabilities of single tokens."""

WORDS: Mapping[ScoreSource, str] = {
    "whole": "taken as it stood in the reply",
    "expected": "an expectation over tokens' probabilities",
    "partly": "in part an expectation over tokens' probabilities",
    "untold": "taken as it stood in the reply, without the probabilities that were asked for",
    "points": "the probability of single tokens",
}


def score_source(
    endpoint: Endpoint, scores: Collection[str] | None, expected: Collection[str] = ()
) -> ScoreSource:
    """Return how an opinion was read; `scores` are the dimensions scored, None for what is no score."""
    if endpoint.pointwise:
        return "points"
    if not endpoint.logprobs or scores is None:
        return "whole"
    if not expected:
        return "untold"
    return "expected" if set(expected) >= set(scores) else "partly"


def able(endpoint: Endpoint, *, scores: bool) -> frozenset[ScoreSource]:
    """Return how opinions of a model may be read here."""
    if endpoint.pointwise:
        return frozenset({"points"})
    return frozenset({"expected", "partly", "untold"} if endpoint.logprobs and scores else {"whole"})
