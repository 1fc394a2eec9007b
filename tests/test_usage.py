"""What calls took, added up without losing what is not known."""

from __future__ import annotations

import pytest
from making import call_usage

from judgekit.errors import KEPT, CallUsage, FailureKind, GatewayError, added, free, of_failure

TOLD = call_usage(100, 10, 0.25, "provider", cache_read_tokens=40, cache_write_tokens=5)
LISTED = call_usage(10, 1, 0.5, "litellm")


def test_nothing_is_added_to_nothing() -> None:
    assert call_usage().plus(call_usage()) == call_usage()
    assert call_usage().plus(TOLD) == TOLD.plus(call_usage()) == TOLD


@pytest.mark.parametrize(
    ("parts", "cost", "source", "unpriced"),
    [
        ([TOLD, TOLD], 0.5, "provider", 0),
        ([TOLD, LISTED], 0.75, "mixed", 0),
        ([TOLD, LISTED, TOLD], 1.0, "mixed", 0),
        ([TOLD, call_usage(5, 5).of_call()], 0.25, "provider", 1),
        ([call_usage(5, 5).of_call(), call_usage().of_call()], None, None, 2),
        ([KEPT, KEPT], 0.0, "cache", 0),
        ([KEPT, LISTED], 0.5, "mixed", 0),
        ([KEPT, call_usage(5, 5).of_call()], None, None, 1),
        ([call_usage(5, 5).of_call(), KEPT, KEPT], None, None, 1),
        ([KEPT, call_usage(5, 5).of_call(), LISTED], 0.5, "litellm", 1),
        ([KEPT, call_usage()], 0.0, "cache", 0),
    ],
)
def test_costs_are_added_with_who_says_them(
    parts: list[CallUsage], cost: float | None, source: str | None, unpriced: int
) -> None:
    total = call_usage()
    for part in parts:
        total = total.plus(part)
    assert (total.cost_usd, total.cost_source, total.unpriced_calls) == (cost, source, unpriced)
    assert total.input_tokens == sum(part.input_tokens for part in parts)
    assert total.cache_read_tokens == sum(part.cache_read_tokens for part in parts)


def test_a_call_counts_as_unpriced_once() -> None:
    assert TOLD.of_call() == TOLD
    assert call_usage(1, 1).of_call() == call_usage(1, 1).of_call().of_call()


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_costs_what_it_says_or_nothing_unless_a_model_may_have_worked(kind: FailureKind) -> None:
    may = {"timeout", "invalid_reply", "command_failed"}
    assert of_failure(GatewayError(kind, "failed")).unpriced_calls == (1 if kind in may else 0)
    assert of_failure(GatewayError(kind, "failed", usage=TOLD)) == TOLD
    assert of_failure(GatewayError(kind, "failed", usage=call_usage())) == call_usage()


def test_what_a_local_model_replied_before_costs_nothing_either() -> None:
    assert added([free(call_usage(10, 1)), KEPT]) == (0.0, "local")
