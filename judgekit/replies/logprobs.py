"""Scores by the probabilities of a reply's tokens: a 4 may have nearly been a 3.

If a provider gives the alternatives of each token, a score is the expectation over the scale's points at the
position of its number. If any of this is in doubt, the number itself stays.
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

# Alternatives to request for each token: five points and other spellings of them. xAI gives no more.
ALTERNATIVES = 8
# With less probability on the scale's points, the model was about to write something else.
LEAST_MASS = 0.8
# An expectation nearer than this to the number is the number: whole thresholds are not missed by a hair.
SURE = 0.05
_MOST_PLACES = 32  # with more candidate numbers in a text, none is examined
_SLACK = 0.01  # how far rounding may push a sum of probabilities above 1
_BEFORE = " \t\r\n\"'“”:"
_BEHIND = " \t\r\n\"'“”,}]"
_NUMBER = re.compile(r""":\s*+["'“]?(\d{1,4})(?=["'”]?\s*+(?:[,}\n]|\Z))""")


def compute_expectations(reply: Reply, answer: ScoreReply, points: range) -> dict[str, float]:
    """Calculate scores by the probabilities of tokens: the mean of `points`, weighted by these.

    Returns them by dimension. A score whose token, or whose probabilities, can't be told for certain is left
    out; without tokens that's all of them.
    """
    if not reply.tokens or len(reply.tokens) != len(reply.logprobs):
        return {}
    shift = _find_shift(reply)
    if shift is None:
        return {}
    token_ends = list(accumulate(map(len, reply.tokens)))
    scores: dict[str, int] = answer.model_dump()["scores"]
    expected = {}
    for name, (start, end) in locate_scores(reply.text, answer, points).items():
        token = bisect_right(token_ends, shift + start)
        if shift + end > token_ends[token]:
            continue  # a number of several tokens has no probability of its own
        score = scores[name]
        mean = compute_expectation(reply.tokens[token], reply.logprobs[token], score, points)
        if mean is not None:
            expected[name] = float(score) if abs(mean - score) < SURE else mean
    return expected


def _find_shift(reply: Reply) -> int | None:
    """Find by how many characters the text of a reply's tokens is ahead of the reply's text.

    The two may differ: servers strip blanks, leading thoughts and trailing marks from one of them. So their
    common part is aligned. None if there's no such part.
    """
    core = reply.text.strip()
    core_in_tokens = "".join(reply.tokens).rfind(core)
    if not core or core_in_tokens < 0:
        return None
    return core_in_tokens - reply.text.index(core)


def locate_scores(text: str, answer: ScoreReply, points: range) -> dict[str, tuple[int, int]]:
    """Locate the scores in the text of a reply, as (start, end) by dimension.

    A number is a score if another point in its place would change this score, and nothing else, of the answer
    that is read. Scores that aren't found that way are left out.
    """
    scores: dict[str, int] = answer.model_dump()["scores"]
    candidates = [match for match in _NUMBER.finditer(text) if int(match[1]) in scores.values()]
    has_negative_points = points.start < 0  # `_NUMBER` reads no sign
    if has_negative_points or len(candidates) > _MOST_PLACES:
        return {}
    spans = {}
    for match in candidates:
        start, end = match.span(1)
        other_point = next(point for point in points if point != int(match[1]))
        changed_text = f"{text[:start]}{other_point}{text[end:]}"
        try:
            changed_answer = extract(changed_text, type(answer))
        except InvalidReply:
            continue
        changed_scores = changed_answer.model_dump()["scores"]
        changed_names = [name for name in scores if changed_scores[name] != scores[name]]
        if len(changed_names) != 1:
            continue
        name = changed_names[0]
        if changed_scores[name] == other_point:
            spans[name] = start, end
    return spans


def compute_expectation(
    token: str, alternatives: Mapping[str, float], value: int, points: range
) -> float | None:
    """Calculate the expected point by the log probabilities of a token's alternatives, itself among them.

    Returns None if `token` doesn't spell `value`, if too little probability is on `points`, or if a point may
    be the beginning of a longer number.
    """
    if token.lstrip(_BEFORE).rstrip(_BEHIND) != str(value) or token not in alternatives:
        return None
    probabilities = dict.fromkeys(points, 0.0)
    points_by_text = {str(point): point for point in points}
    for text, logprob in alternatives.items():
        point = points_by_text.get(text.lstrip(_BEFORE).rstrip(_BEHIND))
        if point is not None and logprob <= _SLACK:  # one above 0 is no log probability
            probabilities[point] += math.exp(logprob)
    total = sum(probabilities.values())
    if not LEAST_MASS <= total <= 1 + _SLACK:
        return None
    if _may_begin_longer_number(probabilities):
        return None
    return sum(point * probability for point, probability in probabilities.items()) / total


def _may_begin_longer_number(probabilities: Mapping[int, float]) -> bool:
    """Whether a likely point may be the start of a longer number, as 1 is of 10.

    It can't if a longer number is among the alternatives, too: then numbers are single tokens.
    """
    doubtful_probability = 0.0
    for point, probability in probabilities.items():
        longer = [other for other in probabilities if str(other).startswith(str(point))]
        longer.remove(point)  # each number begins with itself
        if any(probabilities[other] for other in longer):
            return False
        if longer:
            doubtful_probability += probability
    return doubtful_probability > _SLACK * sum(probabilities.values())
