"""How a verdict's cost reads on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from judgekit.cli.output import verdict_text

if TYPE_CHECKING:
    from judgekit.errors import CostSource

RECORD: dict[str, Any] = {
    "verdict": "accept",
    "scores": {"semantic": 4},
    "average": 4,
    "task_id": "a.md@1",
    "rubric": {"id": "kls", "version": "1.0.0"},
    "mode": "strict",
    "rounds": [
        {
            "tier": "quick",
            "model": "custom/m",
            "opinion": {"outcome": "accept"},
            "failure": None,
            "usage": {"unpriced_calls": 1},
        }
    ],
    "model": "m",
    "consensus": "single",
    "duration_ms": 1500,
    "degraded": None,
    "reasoning": "",
    "findings": [],
}


@pytest.mark.parametrize(
    ("cost", "source", "complete", "end"),
    [
        (0.0123, "provider", True, "1.5 s, $0.0123 (the provider says so)"),
        (0.0123, "litellm", False, "1.5 s, at least $0.0123 (by litellm's prices)"),
        (0.0123, "profile", True, "1.5 s, $0.0123 (by the prices in its profile)"),
        (0.0123, "mixed", True, "1.5 s, $0.0123 (from several sources)"),
        (0.0, "cache", True, "1.5 s, $0.0000 (all replies were kept)"),
        (None, None, False, "1.5 s, cost unknown (no price for custom/m)"),
        (0.0, "local", True, "1.5 s, cost 0 (local)"),
        (None, None, True, "1.5 s"),
        (0.0123, None, None, "1.5 s, $0.0123"),
    ],
)
def test_the_line_says_what_it_cost_and_how_sure_that_is(
    cost: float | None, source: CostSource | None, *, complete: bool | None, end: str
) -> None:
    record = RECORD | {"cost_usd": cost, "cost_source": source, "cost_complete": complete}
    assert verdict_text(record).endswith(end)
    assert verdict_text(RECORD | {"cost_usd": 0.5}).endswith("$0.5000")  # of an older version
