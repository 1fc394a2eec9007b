"""Replies that tell the probabilities of their tokens."""

from __future__ import annotations

import math
import re

from judgekit.errors import CallUsage
from judgekit.providers.base import Reply


def beside(text: str, doubt: dict[str, float]) -> list[dict[str, float]]:
    """Return the alternatives of each token of a text in which every number is in the same doubt."""
    tokens = re.findall(r" ?[^\W\d]+|\d| ?[^\w\s]+|\s", text)
    assert "".join(tokens) == text
    doubtful = {token: math.log(each) for token, each in doubt.items()}
    return [doubtful if token.isdigit() else {token: 0.0} for token in tokens]


def reply(text: str, doubt: dict[str, float]) -> Reply:
    """Return a reply with such alternatives."""
    logprobs = beside(text, doubt)
    tokens = tuple(next(iter(logprob)) for logprob in logprobs)
    return Reply(text, "m-1", CallUsage(100, 10, 0.001), tuple(logprobs), tokens)
