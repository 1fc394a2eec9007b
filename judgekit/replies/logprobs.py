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
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.providers.base import Reply
    from judgekit.replies.forms import ScoreReply

# Alternatives to request for each token: five points and other spellings of them. xAI gives no more.
ALTERNATIVES = 8
# With less probability on the scale's points, the model was about to write something else.
MIN_PROBABILITY_MASS = 0.8
# An expectation nearer than this to the number is the number: whole thresholds are not missed by a hair.
MAX_SCORE_DEVIATION = 0.05
_MAX_CANDIDATES = 32  # with more candidate numbers in a reply, none is examined
_TOLERANCE = 0.01  # rounding can raise the sum of probabilities above 1 by this much
_CHARS_BEFORE_NUMBER = " \t\r\n\"'“”:"  # what a number's token may also contain
_CHARS_AFTER_NUMBER = " \t\r\n\"'“”,}]"
_SCORE_NUMBER_PATTERN = re.compile(r""":\s*+["'“]?(\d{1,4})(?=["'”]?\s*+(?:[,}\n]|\Z))""")


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

    token_ends = list(accumulate(map(len, reply.tokens)))
    scores: dict[str, int] = answer.model_dump()["scores"]
    expected = {}
    for name, (start, end) in locate_scores(reply.text, answer, points).items():
        index = _find_single_token(token_ends, offset + start, offset + end)
        if index is None:  # there's no probability for a number of several tokens
            continue
        mean = compute_expectation(reply.tokens[index], reply.logprobs[index], scores[name], points)
        if mean is not None:
            # Tiny probabilities of other points shouldn't turn a score of 4 into 3.9998.
            expected[name] = _snap_to_score(mean, scores[name])
    return expected


def _find_single_token(token_ends: Sequence[int], start: int, end: int) -> int | None:
    """Return the index of the token with the characters from `start` to `end`; None if it takes several."""
    index = bisect_right(token_ends, start)
    spans_multiple_tokens = end > token_ends[index]
    return None if spans_multiple_tokens else index


def _snap_to_score(mean: float, score: int) -> float:
    """Return the written score if the mean is almost that, to ignore tiny probabilities of other points."""
    is_almost_score = abs(mean - score) < MAX_SCORE_DEVIATION
    return float(score) if is_almost_score else mean


def _find_token_offset(reply: Reply) -> int | None:
    """Return the offset from a position in the reply text to the same position in the joined tokens.

    It's often not 0, because servers remove whitespace, thoughts or trailing marks from either the text or
    the tokens. Returns None if the tokens don't contain the text.
    """
    stripped = reply.text.strip()
    if not stripped:
        return None

    # Thoughts before the answer can contain the same text, so the last one counts.
    position_in_tokens = "".join(reply.tokens).rfind(stripped)
    if position_in_tokens < 0:
        return None
    position_in_text = reply.text.index(stripped)
    return position_in_tokens - position_in_text


def locate_scores(text: str, answer: ScoreReply, points: range) -> dict[str, tuple[int, int]]:
    """Locate the scores in a reply's text. Returns the start and end of each dimension's score.

    Scores that can't be located with certainty are omitted.
    """
    has_negative_points = points.start < 0
    if has_negative_points:  # not supported, because `_SCORE_NUMBER_PATTERN` doesn't match a sign
        return {}

    scores: dict[str, int] = answer.model_dump()["scores"]
    candidates = [
        match for match in _SCORE_NUMBER_PATTERN.finditer(text) if int(match[1]) in scores.values()
    ]
    if len(candidates) > _MAX_CANDIDATES:
        return {}

    # Replace one number at a time. If this changes exactly one score, the number is that score.
    spans = {}
    for match in candidates:
        start, end = match.span(1)
        other_point = next(point for point in points if point != int(match[1]))
        changed_text = f"{text[:start]}{other_point}{text[end:]}"
        changes = _find_changes(changed_text, type(answer), scores)
        if list(changes.values()) == [other_point]:
            (name,) = changes
            spans[name] = start, end
    return spans


def _find_changes(
    changed_text: str, model: type[ScoreReply], old_scores: Mapping[str, int]
) -> dict[str, int]:
    """Extract the answer from a changed text, and return the scores that differ; {} if there's no answer."""
    try:
        changed_answer = extract(changed_text, model)
    except InvalidReply:
        return {}
    new_scores: dict[str, int] = changed_answer.model_dump()["scores"]
    return {name: new_scores[name] for name in old_scores if new_scores[name] != old_scores[name]}


def compute_expectation(
    token: str, alternatives: Mapping[str, float], value: int, points: range
) -> float | None:
    """Calculate the expected score on a scale of `points`, from the token probabilities in `alternatives`.

    `token` is the token that the model wrote as its score `value`. `alternatives` maps this token and others
    to their log probabilities. Returns None if `token` doesn't spell `value`, if the points' total
    probability is invalid or too low, or if a point could begin a longer number.
    """
    spells_value = _strip_token(token) == str(value)
    if not spells_value or token not in alternatives:
        return None

    probabilities = _sum_probabilities(alternatives, points)
    total = sum(probabilities.values())
    is_total_valid = MIN_PROBABILITY_MASS <= total <= 1 + _TOLERANCE
    if not is_total_valid:
        return None
    if _may_begin_longer_number(probabilities):  # such as "1", which can begin "10"
        return None
    return sum(point * probability for point, probability in probabilities.items()) / total


def _strip_token(token: str) -> str:
    """Remove the characters that a token can have around a number, such as the space in " 4"."""
    return token.lstrip(_CHARS_BEFORE_NUMBER).rstrip(_CHARS_AFTER_NUMBER)


def _sum_probabilities(alternatives: Mapping[str, float], points: range) -> dict[int, float]:
    """Calculate each point's probability: the sum for all tokens that spell it, such as "4" and " 4"."""
    probabilities = dict.fromkeys(points, 0.0)
    points_by_text = {str(point): point for point in points}
    for token, logprob in alternatives.items():
        point = points_by_text.get(_strip_token(token))
        if point is None:
            continue
        is_valid = logprob <= _TOLERANCE  # a probability is at most 1, and its logarithm at most 0
        if is_valid:
            probabilities[point] += math.exp(logprob)
    return probabilities


def _may_begin_longer_number(probabilities: Mapping[int, float]) -> bool:
    """Whether a likely point such as 1 could just be the first token of a longer number such as 10."""
    ambiguous_probability = 0.0
    for point, probability in probabilities.items():
        longer_points = _list_longer_points(point, probabilities)

        # If even one longer number such as 10 is a single token, the tokenizer doesn't split numbers.
        is_single_token = any(probabilities[longer] for longer in longer_points)
        if is_single_token:
            return False
        if longer_points:
            ambiguous_probability += probability

    negligible_probability = _TOLERANCE * sum(probabilities.values())
    return ambiguous_probability > negligible_probability


def _list_longer_points(point: int, points: Iterable[int]) -> list[int]:
    """List the other points that begin with the same digits, such as 10 for 1."""
    others = [other for other in points if other != point]
    return [other for other in others if str(other).startswith(str(point))]
