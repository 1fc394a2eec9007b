"""Figures as lines for people: a name in a column, followed by a value with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.cli.output import say

if TYPE_CHECKING:
    from judgekit.hooks.trial import Share
    from judgekit.ledger.rates import Interval

NAME_WIDTH = 44  # of the first column


def say_figure(name: str, interval: Interval | Share | None, more: str = "") -> None:
    """Print a figure with its interval in brackets, or `-` if it's None."""
    value = "    -"
    if interval is not None:
        value = f"{interval.value:.3f}  [{interval.low:.3f}, {interval.high:.3f}]"
    say_line(name, f"{value}{more}")


def say_line(name: str, text: str) -> None:
    say(f"  {name:<{NAME_WIDTH}}{text}")
