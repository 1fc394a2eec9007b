"""Scores by the probabilities of a reply's tokens: a 4 may have been nearly a 3.

Where a provider gives the alternatives of each token, a score is the expectation over the scale's points at
the place of its number. The number itself stays where any of this is in doubt.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from judgekit.errors import InvalidReply
from judgekit.replies.extract import extract

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.providers.base import Reply
    from judgekit.replies.forms import ScoreReply

# Alternatives of each token that are requested: five points and other ways to write them. xAI gives no more.
ALTERNATIVES = 8
# With less probability on the scale's points, the model was about to write something else there.
LEAST_MASS = 0.8
# An expectation nearer than this to the number is the number: whole thresholds are not missed by a hair.
SURE = 0.05
_MOST_PLACES = 32  # in a text with more numbers that may be scores, none is looked for
_SLACK = 0.01  # how far above 1 rounding may bring a sum of probabilities
_BEFORE = " \t\r\n\"'“”:"
_BEHIND = " \t\r\n\"'“”,}]"
_NUMBER = re.compile(r""":\s*+["'“]?(\d{1,4})(?=["'”]?\s*+(?:[,}\n]|\Z))""")


def expectations(reply: Reply, answer: ScoreReply, points: range) -> dict[str, float]:
    """Return the mean of the `points`, weighted by their probabilities, of each score that is certain."""
    if not reply.tokens or len(reply.tokens) != len(reply.logprobs):
        return {}
    # Servers cut blanks, thinking before the text and marks behind it out of the one and not of the other.
    core = reply.text.strip()
    at = "".join(reply.tokens).rfind(core)
    if not core or at < 0:
        return {}
    start = at - reply.text.index(core)
    ends = list(accumulate(map(len, reply.tokens)))
    scores: dict[str, int] = answer.model_dump()["scores"]
    expected = {}
    for name, (first, last) in places(reply.text, answer, points).items():
        at = bisect_right(ends, start + first)
        if start + last <= ends[at]:  # a number of several tokens has no probability of its own
            score = scores[name]
            mean = expectation(reply.tokens[at], reply.logprobs[at], score, points)
            if mean is not None:
                expected[name] = float(score) if abs(mean - score) < SURE else mean
    return expected


def places(text: str, answer: ScoreReply, points: range) -> dict[str, tuple[int, int]]:
    """Return where in `text` scores stand: another number there changes this one score of the reply alone."""
    scores: dict[str, int] = answer.model_dump()["scores"]
    numbers = []
    for match in _NUMBER.finditer(text):
        if int(match[1]) in scores.values():
            numbers.append(match)
    if points.start < 0 or len(numbers) > _MOST_PLACES:
        return {}
    places = {}
    for match in numbers:
        start, end = match.span(1)
        other = next(point for point in points if point != int(match[1]))
        changed_text = f"{text[:start]}{other}{text[end:]}"
        try:
            reply = extract(changed_text, type(answer))
        except InvalidReply:
            continue
        changed = reply.model_dump()["scores"]
        differing = [name for name in scores if changed[name] != scores[name]]
        if len(differing) == 1 and changed[differing[0]] == other:
            places[differing[0]] = start, end
    return places


def expectation(token: str, beside: Mapping[str, float], value: int, points: range) -> float | None:
    """Return the expected point where `token` stands for `value`; None where too little is on `points`."""
    if token.lstrip(_BEFORE).rstrip(_BEHIND) != str(value) or token not in beside:
        return None
    mass = dict.fromkeys(points, 0.0)
    texts = {str(point): point for point in points}
    for text, logprob in beside.items():
        point = texts.get(text.lstrip(_BEFORE).rstrip(_BEHIND))
        if point is not None and logprob <= _SLACK:
            mass[point] += math.exp(logprob)
    total = sum(mass.values())
    # A point that counts may be the beginning of a longer one, as 1 is of 10. It is not where a longer one is
    # among the alternatives: then numbers are single tokens.
    begun = 0.0
    has_longer = False
    for text, point in texts.items():
        longer = [mass[other] for other in points if other != point and str(other).startswith(text)]
        if longer:
            begun += mass[point]
            has_longer = has_longer or any(longer)
    may_go_on = begun > _SLACK * total and not has_longer
    if not LEAST_MASS <= total <= 1 + _SLACK or may_go_on:
        return None
    return sum(point * share for point, share in mass.items()) / total
