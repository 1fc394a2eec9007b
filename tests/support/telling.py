"""Replies that tell the probabilities of their tokens."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from making import call_usage, reply

if TYPE_CHECKING:
    from judgekit.providers.base import Reply


def beside(text: str, doubt: dict[str, float]) -> list[dict[str, float]]:
    """Return the alternatives of each token of a text in which every number is in the same doubt."""
    tokens = re.findall(r" ?[^\W\d]+|\d| ?[^\w\s]+|\s", text)
    assert "".join(tokens) == text
    doubtful = {token: math.log(each) for token, each in doubt.items()}
    return [doubtful if token.isdigit() else {token: 0.0} for token in tokens]


def telling_reply(text: str, doubt: dict[str, float]) -> Reply:
    """Return a reply with such alternatives."""
    logprobs = beside(text, doubt)
    tokens = tuple(next(iter(logprob)) for logprob in logprobs)
    return reply(text, "m-1", call_usage(100, 10, 0.001), logprobs=tuple(logprobs), tokens=tokens)
