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
MIN_MASS = 0.8
# An expectation nearer than this to the number is the number: whole thresholds are not missed by a hair.
SURE = 0.05
_MAX_CANDIDATES = 32  # with more candidate numbers in a reply, none is examined
_TOLERANCE = 0.01  # rounding can raise the sum of probabilities above 1 by this much
_LEADING = " \t\r\n\"'“”:"  # what a number's token may also contain
_TRAILING = " \t\r\n\"'“”,}]"
_NUMBER = re.compile(r""":\s*+["'“]?(\d{1,4})(?=["'”]?\s*+(?:[,}\n]|\Z))""")


def compute_expectations(reply: Reply, answer: ScoreReply, points: range) -> dict[str, float]:
    """Calculate each dimension's expected score: the mean of `points`, weighted by token probabilities.

    For example, with probabilities of 0.5 for "4" and 0.5 for "5", the expected score is 4.5. A score is
    omitted if its token or probabilities are uncertain. Returns {} if the reply has no tokens.
    """
    if not reply.tokens or len(reply.tokens) != len(reply.logprobs):
        return {}

    # The tokens can start with text, such as thoughts, that isn't in the reply's text.
    offset = _find_token_offset(reply)
    if offset is None:
        return {}

    # Find the token of each score in the text, and the probabilities of its alternatives.
    token_ends = list(accumulate(map(len, reply.tokens)))
    scores: dict[str, int] = answer.model_dump()["scores"]
    expected = {}
    for name, (start, end) in locate_scores(reply.text, answer, points).items():
        token_index = bisect_right(token_ends, offset + start)
        spans_multiple_tokens = offset + end > token_ends[token_index]
        if spans_multiple_tokens:  # There's no probability for the complete number.
            continue

        token = reply.tokens[token_index]
        score = scores[name]
        mean = compute_expectation(token, reply.logprobs[token_index], score, points)
        if mean is not None:
            # Ignore tiny probabilities of other points.
            is_almost_score = abs(mean - score) < SURE
            expected[name] = float(score) if is_almost_score else mean
    return expected


def _find_token_offset(reply: Reply) -> int | None:
    """Return the number to add to a position in the reply text, to get the position in the joined tokens.

    It's often not 0, because servers remove whitespace, thoughts or trailing marks from one of the two.
    Returns None if the tokens don't contain the text.
    """
    stripped = reply.text.strip()
    position_in_tokens = "".join(reply.tokens).rfind(stripped)
    if not stripped or position_in_tokens < 0:
        return None
    position_in_text = reply.text.index(stripped)
    return position_in_tokens - position_in_text


def locate_scores(text: str, answer: ScoreReply, points: range) -> dict[str, tuple[int, int]]:
    """Locate the scores in a reply's text. Returns the start and end of each dimension's score.

    Scores that can't be located with certainty are omitted.
    """
    # Each number with the value of a score is a candidate.
    scores: dict[str, int] = answer.model_dump()["scores"]
    candidates = [match for match in _NUMBER.finditer(text) if int(match[1]) in scores.values()]
    has_negative_points = (
        points.start < 0
    )  # These aren't supported, as `_NUMBER` doesn't match a sign.
    if has_negative_points or len(candidates) > _MAX_CANDIDATES:
        return {}

    # Replace one number at a time, and extract the answer again. If exactly one score changes to the new
    # value, that number is the score.
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
    """Calculate the expected score on a scale of `points`, from the token probabilities in `alternatives`.

    `token` is the token that the model wrote as its score `value`. `alternatives` maps this token and others
    to their log probabilities. Returns None if `token` doesn't spell `value`, if the points' total
    probability is invalid or too low, or if a point could begin a longer number.
    """
    spells_value = token.lstrip(_LEADING).rstrip(_TRAILING) == str(value)
    if not spells_value or token not in alternatives:
        return None

    # Multiple tokens, such as "4" and " 4", can spell the same point, so add their probabilities.
    probabilities = dict.fromkeys(points, 0.0)
    points_by_text = {str(point): point for point in points}
    for text, logprob in alternatives.items():
        point = points_by_text.get(text.lstrip(_LEADING).rstrip(_TRAILING))
        if point is not None and logprob <= _TOLERANCE:  # a positive logarithm is invalid
            probabilities[point] += math.exp(logprob)

    total = sum(probabilities.values())
    if not MIN_MASS <= total <= 1 + _TOLERANCE:
        return None
    if _may_begin_longer_number(probabilities):  # such as "1", which can begin "10"
        return None
    return sum(point * probability for point, probability in probabilities.items()) / total


def _may_begin_longer_number(probabilities: Mapping[int, float]) -> bool:
    """Whether a likely point such as 1 could just be the first token of a longer number such as 10."""
    doubtful_probability = 0.0
    for point, probability in probabilities.items():
        longer_points = []
        for other in probabilities:
            if other != point and str(other).startswith(str(point)):
                longer_points.append(other)

        # If the longer number has a probability, it's a single token. So the tokenizer doesn't split numbers.
        if any(probabilities[longer] for longer in longer_points):
            return False
        if longer_points:
            doubtful_probability += probability
    return doubtful_probability > _TOLERANCE * sum(probabilities.values())
