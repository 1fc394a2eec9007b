"""Judges what a push changes, and may hold the push up.

What a run came to is here, as plain objects: the same from this process as from the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from judgekit.errors import JudgekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.ledger.records import GateMode

STOPS, UNKNOWN = "NO-GO", "UNDETERMINED"


class Held(JudgekitError):  # noqa: N818 - the push is
    """Nothing could be judged, and the rules let nothing pass that is not judged; the text says why."""


class Begin(TypedDict):
    """The `count` of files, the `budget` left in seconds, and whether undetermined files hold up the push."""

    count: int
    budget: float
    holds: bool


class Row(TypedDict):
    """The result for one file, by the `author` of a `commit`; `lost` if the ledger could not be written."""

    path: str
    word: str
    commit: str
    author: str
    lost: bool
    verdict: Mapping[str, Any]


class Run(NamedTuple):
    """How a run is wanted: `mode` before the configured one, `spent` seconds of the budget, by its `id`."""

    mode: GateMode | None
    on_verdict: Callable[[Row], None]
    on_start: Callable[[Begin], None]
    id: str = ""  # begun again with the same, its verdicts have the same ids: a ledger counts none twice
    spent: float = 0.0


class Report(NamedTuple):
    """A row for each file, the mode that held, lines for a person, and the rules' section `escalate`.

    `holds`: while blocking, `unjudged` and UNDETERMINED stop a push.
    """

    rows: Sequence[Row]
    mode: str
    notes: Sequence[str]
    escalate: Mapping[str, Any]
    unjudged: Sequence[str] = ()
    holds: bool = False

    @property
    def stopping(self) -> list[Row]:
        """The rows that stop a push while blocking: no NO-GO within the noise of its judges."""
        stops = (STOPS, UNKNOWN) if self.holds else (STOPS,)
        return [row for row in self.rows if row["word"] in stops and not row["verdict"].get("noise")]

    @property
    def blocked(self) -> bool:
        return self.mode == "blocking" and bool(self.stopping or (self.holds and self.unjudged))
