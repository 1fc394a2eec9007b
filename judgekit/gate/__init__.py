"""Judges what a push changes, and may hold the push up.

What a run came to is here, as plain objects: the same from this process as from the engine.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from judgekit.errors import JudgekitError
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.ledger.records import GateMode

PASSES = "GO"
STOPS = "NO-GO"
UNKNOWN = "UNDETERMINED"
WORDS = (PASSES, STOPS, UNKNOWN)
MAX_NAMES = 100  # of what is skipped for one reason


class PushBlocked(JudgekitError):  # noqa: N818 - the push is
    """Nothing could be judged, and the rules let nothing pass that is not judged; the text says why."""


class Begin(TypedDict):
    """The `count` of files, the `budget` left in seconds, and whether undetermined files hold up the push."""

    count: int
    budget: float
    holds: bool


class Omission(TypedDict):
    """What was not examined, a file or a ref by its `name`, and why."""

    name: str
    reason: str


class SkipGroup(TypedDict):
    """How many files or refs are not judged for one reason, and the names of the first."""

    reason: str
    count: int
    names: list[str]


class Skipped:
    """What a push brings that need not be judged, by the reason."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}  # a dict keeps their order

    def add(self, reason: str, name: str) -> None:
        self._names.setdefault(reason, {})[name] = None

    def remove(self, names: Iterable[str]) -> None:
        """Leave names out: they are judged as another ref of the push has them."""
        for name in names:
            for skipped in self._names.values():
                skipped.pop(name, None)

    def groups(self) -> list[SkipGroup]:
        groups: list[SkipGroup] = []
        for reason, names in self._names.items():
            if names:
                first_names = [escaped(name) for name in islice(names, MAX_NAMES)]
                groups.append(SkipGroup(reason=reason, count=len(names), names=first_names))
        return groups


class Row(TypedDict):
    """What the gate shows of a file: its `verdict` as the ledger has it, and what stands around that.

    The file is by the `author` of a `commit`; `lost` if the ledger could not be written.
    """

    path: str
    word: str
    commit: str
    author: str
    lost: bool
    verdict: Mapping[str, Any]


class Run(NamedTuple):
    """How a run is wanted: `mode` goes before the configured one, `spent` are seconds of the budget.

    Begun again with the same `id`, its verdicts have the same ids: a ledger counts none twice.
    """

    mode: GateMode | None
    on_verdict: Callable[[Row], None]
    on_start: Callable[[Begin], None]
    id: str = ""
    spent: float = 0.0


class Report(NamedTuple):
    """A row for each file, the mode that held, lines for a person, and the rules' section `escalate`.

    `holds`: while blocking, `unexamined` and UNDETERMINED stop a push. `fault`: nothing could be judged, and
    that has been said. `reviewers` are the tokens whose overrides count in CI; None elsewhere.
    """

    rows: Sequence[Row]
    mode: GateMode
    notes: Sequence[str]
    escalate: Mapping[str, Any]
    skipped: Sequence[SkipGroup] = ()
    unexamined: Sequence[Omission] = ()
    holds: bool = False
    fault: bool = False
    reviewers: Sequence[str] | None = None

    @property
    def stopping(self) -> list[Row]:
        """The rows that stop a push while blocking: no NO-GO within the noise of its judges."""
        words = {STOPS, UNKNOWN} if self.holds else {STOPS}
        rows = []
        for row in self.rows:
            if row["word"] in words and not row["verdict"].get("noise"):
                rows.append(row)
        return rows

    @property
    def blocked(self) -> bool:
        if self.mode != "blocking":
            return False
        return bool(self.stopping or (self.holds and self.unexamined))

    @property
    def judged(self) -> list[Row]:
        """The rows of files that models or a person decided about."""
        return [row for row in self.rows if is_examined(row)]

    @property
    def not_examined(self) -> list[Omission]:
        """What nobody decided about: refs, files that cannot be read, files that no model was asked about."""
        omissions = list(self.unexamined)
        for row in self.rows:
            if not is_examined(row):
                reason = row["verdict"]["degraded"] or ""
                omissions.append(Omission(name=row["path"], reason=reason))
        return omissions

    @property
    def word(self) -> str | None:
        """The word for all together, the gravest of all; None where there was nothing to judge."""
        words = {row["word"] for row in self.rows}
        if self.unexamined:
            words.add(UNKNOWN)
        return next((word for word in (STOPS, UNKNOWN, PASSES) if word in words), None)


def is_examined(row: Row) -> bool:
    """Whether models or a person decided about a file, whatever they came to."""
    return bool(row["verdict"]["rounds"] or row["verdict"]["human_override"])


def describe_run(
    judged: Sequence[Row], skipped: Sequence[SkipGroup], not_examined: Sequence[Omission]
) -> str:
    """Return the line that ends a run: what was judged, what was skipped and why, what was not examined."""
    counts = Counter(row["word"] for row in judged)
    count_by_word = {word: counts[word] for word in WORDS if counts[word]}  # in this order
    skips_by_reason = {group["reason"]: group["count"] for group in skipped}
    omissions_by_reason = Counter(omission["reason"] for omission in not_examined)
    return "; ".join(
        [
            _describe_part("judged", count_by_word),
            _describe_part("skipped", skips_by_reason),
            _describe_part("not examined", omissions_by_reason),
        ]
    )


def _describe_part(name: str, counts: Mapping[str, int]) -> str:
    """Return how many there are, and of what: a single kind is named without its count."""
    total = f"{sum(counts.values()):,} {name}"
    if not counts:
        return total
    if len(counts) == 1:
        return f"{total} ({next(iter(counts))})"
    details = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    return f"{total} ({details})"
