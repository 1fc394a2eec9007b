"""What calls took: tokens, US dollars, and who says so. Standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.errors import GatewayError

CostSource: TypeAlias = Literal["provider", "profile", "litellm", "cache", "local", "mixed"]
"""Who says what a call cost: the reply itself, the price in the provider's profile, litellm's table.

"local" is a model on this machine, which costs nothing. "cache" is a reply that was kept from an earlier call
and cost nothing, "mixed" a sum of several.
"""


class Usage(NamedTuple):
    """What one call or several took. The cost is None where nothing says it.

    `input_tokens` hold those read from a provider's cache and those written to it. `unpriced_calls` counts
    the calls that a cost leaves out because nobody says what they cost.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    unpriced_calls: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum; a cost that is known for one of them counts."""
        cost, source = added((self, other))
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            cost,
            source,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.unpriced_calls + other.unpriced_calls,
        )

    def of_call(self) -> Usage:
        """Return this as the usage of one call that was made: where it has no cost, that is counted."""
        if self.cost_usd is not None or self.unpriced_calls:
            return self
        return self._replace(unpriced_calls=1)


def free(usage: Usage) -> Usage:
    """Return the usage of a call to a model on this machine: nothing, unless somebody says otherwise."""
    if usage.cost_usd is not None:
        return usage
    return usage._replace(cost_usd=0.0, cost_source="local", unpriced_calls=0)


def of_failure(error: GatewayError) -> Usage:
    """Return what a call took that failed: what the failure says, else nothing, or nobody knows."""
    if error.usage is not None:
        return error.usage
    return Usage(unpriced_calls=1 if error.kind.may_have_cost else 0)


KEPT = Usage(cost_usd=0.0, cost_source="cache")
"""What a reply takes that was kept from an earlier call."""


def added(usages: Sequence[Usage]) -> tuple[float | None, CostSource | None]:
    """Return the sum of the known costs and who says it, None and None where none is known.

    That a reply was kept says nothing of the others: beside calls that nobody prices, it is no sum.
    """
    known = [each for each in usages if each.cost_usd is not None]
    sources = {each.cost_source for each in known}
    if "local" in sources:  # what a local model replied before cost nothing either
        sources.discard("cache")
    if not known or (sources == {"cache"} and any(each.unpriced_calls for each in usages)):
        return None, None
    return sum(each.cost_usd or 0.0 for each in known), sources.pop() if len(sources) == 1 else "mixed"
