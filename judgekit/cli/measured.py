"""Measured figures as lines for people: `judgekit eval` prints them so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from judgekit.cli.interruption import AGAIN, REPLIES, keeps

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.evaluation.bootstrap import Interval
    from judgekit.evaluation.report import Resampling

LABEL_WIDTH = 44


def figure(name: str, found: Interval | None) -> str:
    """Return a line with a figure and, in brackets, its interval; `-` where there is none."""
    if found is None:
        return f"  {name:<{LABEL_WIDTH}}    -"
    return f"  {name:<{LABEL_WIDTH}}{found.value:.3f}  [{found.low:.3f}, {found.high:.3f}]"


def resampling(how: Resampling, what: str) -> str:
    """Return the line that says what the brackets are."""
    return f"In brackets {how.level:.0%} intervals: {how.resamples} draws of the {what}, seed {how.seed}"


def progress(total: int, what: str) -> Callable[[int], None]:
    """Return what shows on a terminal how many are done."""
    terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(done: int) -> None:
        keeps(f"{done} of {total} {what} are done, {REPLIES}; {AGAIN}")
        if not terminal:
            return
        sys.stderr.write(f"\r{done} of {total} {what}" if done < total else "\r\x1b[K")
        sys.stderr.flush()

    return show
