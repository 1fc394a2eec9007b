"""What calls took, added up without losing what is not known."""

from __future__ import annotations

import pytest

from judgekit.errors import KEPT, FailureKind, GatewayError, Usage, added, free, of_failure

TOLD = Usage(100, 10, 0.25, "provider", 40, 5)
LISTED = Usage(10, 1, 0.5, "litellm")


def test_nothing_is_added_to_nothing() -> None:
    assert Usage().plus(Usage()) == Usage()
    assert Usage().plus(TOLD) == TOLD.plus(Usage()) == TOLD


@pytest.mark.parametrize(
    ("parts", "cost", "source", "unpriced"),
    [
        ([TOLD, TOLD], 0.5, "provider", 0),
        ([TOLD, LISTED], 0.75, "mixed", 0),
        ([TOLD, LISTED, TOLD], 1.0, "mixed", 0),
        ([TOLD, Usage(5, 5).of_call()], 0.25, "provider", 1),
        ([Usage(5, 5).of_call(), Usage().of_call()], None, None, 2),
        ([KEPT, KEPT], 0.0, "cache", 0),
        ([KEPT, LISTED], 0.5, "mixed", 0),
        ([KEPT, Usage(5, 5).of_call()], None, None, 1),
        ([Usage(5, 5).of_call(), KEPT, KEPT], None, None, 1),
        ([KEPT, Usage(5, 5).of_call(), LISTED], 0.5, "litellm", 1),
        ([KEPT, Usage()], 0.0, "cache", 0),
    ],
)
def test_costs_are_added_with_who_says_them(
    parts: list[Usage], cost: float | None, source: str | None, unpriced: int
) -> None:
    total = Usage()
    for each in parts:
        total = total.plus(each)
    assert (total.cost_usd, total.cost_source, total.unpriced_calls) == (cost, source, unpriced)
    assert total.input_tokens == sum(each.input_tokens for each in parts)
    assert total.cache_read_tokens == sum(each.cache_read_tokens for each in parts)


def test_a_call_counts_as_unpriced_once() -> None:
    assert TOLD.of_call() == TOLD
    assert Usage(1, 1).of_call() == Usage(1, 1).of_call().of_call()


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_costs_what_it_says_or_nothing_unless_a_model_may_have_worked(kind: FailureKind) -> None:
    may = {"timeout", "invalid_reply", "command_failed"}
    assert of_failure(GatewayError(kind, "failed")).unpriced_calls == (1 if kind in may else 0)
    assert of_failure(GatewayError(kind, "failed", usage=TOLD)) == TOLD
    assert of_failure(GatewayError(kind, "failed", usage=Usage())) == Usage()


def test_what_a_local_model_replied_before_costs_nothing_either() -> None:
    assert added([free(Usage(10, 1)), KEPT]) == (0.0, "local")
