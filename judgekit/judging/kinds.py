"""The kinds of models and their traits: the one place in judging that tells kinds apart.

Each kind's way of asking is in a module of its own; `asking.py` lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint


class ModelKind(NamedTuple):
    """The traits that models of a kind share, apart from the words used to ask them."""

    name: Literal["writes", "decides", "reads tokens"]
    gives_reasons: bool = False
    """Whether it gives reasons, and may answer differently when asked again."""
    shows_probabilities: bool = False
    """Whether an opinion has the probability of each answer."""
    ignores_tier_limit: bool = False
    """Whether it ignores a tier's limit: at a hundredth of the price the limit saves nothing."""
    needs_random_labels: bool = False
    """Whether two texts get random labels, because a model's text could otherwise name them."""
    candidates_at_once: int | None = None
    """The number of candidates it's asked about together; None for all."""
    is_bound_by_words: bool = False
    """Whether a recording only holds for the exact words it was asked in."""
    source: Literal["decided", "points"] | None = None
    """How its scores are read; None if the reply tells."""


WRITES = ModelKind(
    "writes",
    gives_reasons=True,
    needs_random_labels=True,
    candidates_at_once=15,  # with a longer list it overlooks more and takes longer
)
DECIDES = ModelKind(
    "decides",
    shows_probabilities=True,
    ignores_tier_limit=True,
    is_bound_by_words=True,
    source="decided",
)
READS_TOKENS = ModelKind("reads tokens", candidates_at_once=1, source="points")
KINDS = (WRITES, DECIDES, READS_TOKENS)


def get_model_kind(endpoint: Endpoint | None) -> ModelKind:
    """Return the kind of a model, which is the form of its answers. The default is to write text."""
    if endpoint is None or endpoint.writes:
        return WRITES
    if endpoint.decides:  # it gives the probability of each possible answer, and no text
        return DECIDES
    return READS_TOKENS  # its answer is read from the probabilities of a single token
