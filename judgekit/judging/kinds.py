"""The kinds of models, and what judging must know of each: the one place that tells them apart.

How each kind is asked is in a module of its own, and `asking.py` lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint


class ModelKind(NamedTuple):
    """What models of a kind have in common, beside the words in which they are asked."""

    name: Literal["writes", "decides", "reads tokens"]
    gives_reasons: bool = False
    """Whether it writes why, and may say something else when it is asked again."""
    shows_probabilities: bool = False
    """Whether an opinion has the probability of each answer."""
    sees_all: bool = False
    """Whether the limit of a tier is none for it: at a hundredth of the price it saves nothing."""
    names_texts: bool = False
    """Whether two texts have drawn labels for it: what it writes could name them otherwise."""
    candidates_at_once: int | None = None
    """How many candidates it is asked about together; None for all."""
    is_bound_by_words: bool = False
    """Whether a recording holds only for the words in which it was asked."""
    source: Literal["decided", "points"] | None = None
    """How its scores are read; None where the reply says."""


WRITES = ModelKind(
    "writes",
    gives_reasons=True,
    names_texts=True,
    candidates_at_once=15,  # of a long list it overlooks more, and takes longer
)
DECIDES = ModelKind(
    "decides",
    shows_probabilities=True,
    sees_all=True,
    is_bound_by_words=True,
    source="decided",
)
READS_TOKENS = ModelKind("reads tokens", candidates_at_once=1, source="points")
KINDS = (WRITES, DECIDES, READS_TOKENS)


def kind_of(endpoint: Endpoint | None) -> ModelKind:
    """Return the kind of a model; where none is set up, that of one that writes."""
    if endpoint is None or endpoint.writes:
        return WRITES
    if endpoint.decides:
        return DECIDES
    return READS_TOKENS
