"""`--estimate`: prints what judging would take, before anything is sent."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Any

from judgekit.cli.layout import render_grid
from judgekit.cli.output import emit, get_terminal_width, say
from judgekit.text import escape_name, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.data.estimate import Estimate, ModelEstimate

_JSON_FORMATS = ("json", "jsonl")


def print_estimate(
    estimate: Estimate, format_: str | None, rows: str = "", left_out: Sequence[str] = ()
) -> None:
    """Print an estimate, for people or as JSON.

    `rows` is the name of a file of rows, if any. `left_out` are lines about rows that won't be judged.
    """
    if format_ in _JSON_FORMATS:
        record = {**_build_record(estimate), "left_out": list(left_out)}
        emit(json.dumps(record, ensure_ascii=False))
        return

    subjects = format_count(estimate.subject_count, "text", "texts")
    if rows:
        subjects = f"{rows}: {format_count(estimate.subject_count, 'row', 'rows')}"
    say(escape_name("; ".join([f"{subjects} to judge", *left_out])))
    if not estimate.models:
        say(
            "  calls, tokens and costs are unknown: no model is known here (judgekit doctor says why)"
        )
        say("  nothing was sent")
        return

    for model_line in _render_models(estimate):
        say(f"  {model_line}")
    _say_totals(estimate)
    say(escape_name(f"  {_describe_assumptions(estimate)}; nothing was sent"))


def _render_models(estimate: Estimate) -> list[str]:
    """Render a table of the models, as lines."""
    rows = [["tier", "model", "calls", "tokens read", "written", "USD"]]
    # Only the first tier is certain to be asked about everything, so other figures are "up to".
    first_tier = estimate.models[0].tier
    for model in estimate.models:
        up_to = "" if model.tier == first_tier else "up to "
        usd = "unknown" if model.usd is None else f"{up_to}{model.usd:.4f}"
        cells = [
            model.tier,
            escape_name(model.model),
            f"{up_to}{model.calls:,}",
            f"{up_to}{model.tokens_read:,}",
            f"{up_to}{model.tokens_written:,}",
            usd,
        ]
        rows.append(cells)

    return render_grid(rows, width=get_terminal_width())


def _say_totals(estimate: Estimate) -> None:
    """Print the calls, the cost and the time of all models together, as ranges."""
    # The first tier sees every text. The later ones may see none or all.
    calls = _format_range(_sum_calls(estimate.first_tier_models), _sum_calls(estimate.models))
    least_usd = _sum_usd(estimate.first_tier_models)
    most_usd = _sum_usd(estimate.models)
    cost = _describe_cost(least_usd, most_usd, estimate.unpriced_models)
    say(f"  {calls} calls; {cost}; {_describe_minutes(estimate)}")


def _sum_calls(models: Sequence[ModelEstimate]) -> int:
    return sum(model.calls for model in models)


def _sum_usd(models: Sequence[ModelEstimate]) -> float:
    """Add up the known costs."""
    return sum(model.usd or 0.0 for model in models)


def _sum_minutes(models: Sequence[ModelEstimate]) -> int:
    """Add up the models' times, rounded up to minutes."""
    seconds = sum(model.seconds for model in models)
    return ceil(seconds / 60)


def _format_range(low: float, high: float, form: str = ",d") -> str:
    """Format a range, or a single number if both ends look the same."""
    low_text = format(low, form)
    high_text = format(high, form)
    if low_text == high_text:
        return low_text
    return f"{low_text} to {high_text}"


def _describe_cost(low: float, high: float, unpriced: Sequence[str]) -> str:
    """Describe the range of the cost, and the models without a price."""
    names = ", ".join(map(escape_name, unpriced))
    if unpriced and not high:
        return f"cost unknown (no price for {names})"
    cost = f"{_format_range(low, high, '.4f')} USD"
    if unpriced:
        return f"at least {cost} (no price for {names})"
    return cost


def _describe_minutes(estimate: Estimate) -> str:
    minutes = _format_range(_sum_minutes(estimate.first_tier_models), _sum_minutes(estimate.models))
    if minutes in ("0", "1"):
        return "about a minute"
    return f"about {minutes} minutes"


def _describe_assumptions(estimate: Estimate) -> str:
    from judgekit.data.estimate import REPLY_TOKENS, SECONDS_A_CALL

    pace = f"{estimate.at_once} texts at a time, {SECONDS_A_CALL:g} s a call"
    return f"assuming 4 characters a token, replies of {REPLY_TOKENS} tokens, {pace}, none cached"


def _build_record(estimate: Estimate) -> dict[str, Any]:
    """Build an estimate's JSON record. Totals are pairs: for the first tier alone, and for all tiers."""
    models = [model._asdict() for model in estimate.models]
    return {
        "schema": "judgekit/estimate@1",
        "texts": estimate.subject_count,
        "models": models,
        "calls": [_sum_calls(estimate.first_tier_models), _sum_calls(estimate.models)],
        "usd": [_sum_usd(estimate.first_tier_models), _sum_usd(estimate.models)],
        "minutes": [_sum_minutes(estimate.first_tier_models), _sum_minutes(estimate.models)],
        "unpriced": estimate.unpriced_models,
    }
