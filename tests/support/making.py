"""What tests hand to judges and gateways, made in one place: a new or renamed field costs one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.errors import CallUsage
from judgekit.providers.base import Reply

if TYPE_CHECKING:
    from judgekit.errors import CostSource


def call_usage(
    input_tokens: int = 0,
    output_tokens: int = 0,
    cost_usd: float | None = None,
    cost_source: CostSource | None = None,
    *,
    cache_read_tokens: int = 0,
    cache_write_tokens: int = 0,
    unpriced_calls: int = 0,
) -> CallUsage:
    """Return what a call took; it is nothing unless a test says what."""
    return CallUsage(
        input_tokens,
        output_tokens,
        cost_usd,
        cost_source,
        cache_read_tokens,
        cache_write_tokens,
        unpriced_calls,
    )


def reply(
    text: str = "yes",
    model: str = "m",
    usage: CallUsage | None = None,
    *,
    logprobs: tuple[dict[str, float], ...] = (),
    tokens: tuple[str, ...] = (),
    held: bool = False,
) -> Reply:
    """Return what a model answered; it took nothing unless a test says what."""
    return Reply(text, model, usage or call_usage(), logprobs, tokens, held)
