"""How a score was read: directly from a reply, or from its tokens' probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.judging.kinds import get_model_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.judging.jury import Opinion
    from judgekit.providers.base import Endpoint

ScoreSource: TypeAlias = Literal["whole", "expected", "partly", "untold", "points", "decided"]
"""`whole`: as written.

If a model was asked for its reply's token probabilities, scores are `expected` if it gave them for all,
`partly` for some, `untold` for none. `points`: one question at a time, answered by single tokens'
probabilities. `decided`: by a decision model.
"""

SOURCE_WORDS: Mapping[ScoreSource, str] = {
    "whole": "taken as it stood in the reply",
    "expected": "an expectation over tokens' probabilities",
    "partly": "in part an expectation over tokens' probabilities",
    "untold": "taken as it stood in the reply, without the probabilities that were asked for",
    "points": "the probability of single tokens",
    "decided": "an expectation over a decision model's probabilities",
}


def score_source(endpoint: Endpoint, opinion: Opinion | None) -> ScoreSource:
    """Return the way in which scores were read, such as from whole numbers or token probabilities."""
    source = get_model_kind(endpoint).source
    if source is not None:
        return source
    if not endpoint.has_logprobs or opinion is None:
        return "whole"
    # `expected` has the dimensions whose score is an expected value over token probabilities.
    if not opinion.expected_value_names:
        return "untold"
    are_all_expected = set(opinion.scores) <= set(opinion.expected_value_names)
    return "expected" if are_all_expected else "partly"


def possible_sources(endpoint: Endpoint, *, scores: bool) -> frozenset[ScoreSource]:
    """Return all ways in which a model's opinions could be read. `scores` means that they have scores."""
    source = get_model_kind(endpoint).source
    if source is not None:
        return frozenset({source})
    if endpoint.has_logprobs and scores:
        return frozenset({"expected", "partly", "untold"})
    return frozenset({"whole"})
