"""Judges the changes in a push, and may block it.

The result of a run is defined here as plain objects, the same from this process as from the engine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from judgekit.errors import JudgekitError
from judgekit.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.ledger.records import GateMode

PASSES = "GO"
STOPS = "NO-GO"
UNKNOWN = "UNDETERMINED"
WORDS = (PASSES, STOPS, UNKNOWN)
MAX_NAMES = 100  # names listed for one skip reason


class PushBlocked(JudgekitError):  # noqa: N818 - the push is
    """Nothing could be judged, and the rules let nothing pass unjudged; the text says why."""


class Begin(TypedDict):
    """The `count` of files, the `budget` left in seconds, and whether undetermined files block the push."""

    count: int
    budget: float
    holds: bool


class Omission(TypedDict):
    """A file or ref that wasn't examined, by its `name`, with the reason."""

    name: str
    reason: str


class SkipGroup(TypedDict):
    """The number of files or refs skipped for one reason, and the first of their names."""

    reason: str
    count: int
    names: list[str]


class Skipped:
    """The parts of a push that needn't be judged, by reason."""

    def __init__(self) -> None:
        # A dict of names for each reason: unlike a set, it keeps their order.
        self._names: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def add(self, reason: str, name: str) -> None:
        """Add a name under a reason, once."""
        self._names[reason][name] = None

    def remove(self, names: Iterable[str]) -> None:
        """Remove names under all reasons, for files that are judged as part of another ref."""
        for name in names:
            for skipped in self._names.values():
                skipped.pop(name, None)

    def group_by_reason(self) -> list[SkipGroup]:
        """Group the skipped names by reason: at most `MAX_NAMES` each, escaped for the terminal."""
        groups: list[SkipGroup] = []
        for reason, names in self._names.items():
            if names:
                first_names = [escape_name(name) for name in islice(names, MAX_NAMES)]
                groups.append(SkipGroup(reason=reason, count=len(names), names=first_names))
        return groups


class Row(TypedDict):
    """The gate's line for a file: its `verdict` as in the ledger, with some context.

    The file was changed by the `author` of a `commit`; `lost` if the ledger couldn't be written.
    """

    path: str
    word: str
    commit: str
    author: str
    lost: bool
    verdict: Mapping[str, Any]


class Run(NamedTuple):
    """The options of a run: `mode` overrides the configured one, and `spent_seconds` are already used.

    If it's restarted with the same `id`, its verdicts keep their ids, so that a ledger counts none twice.
    """

    mode: GateMode | None
    on_verdict: Callable[[Row], None]
    on_start: Callable[[Begin], None]
    id: str = ""
    spent_seconds: float = 0.0


class Report(NamedTuple):
    """A row for each file, the mode that applied, lines for people, and the rules' `escalate` section.

    `holds`: while blocking, `unexamined` and UNDETERMINED stop a push. `fault`: nothing could be judged, and
    the user has been told. `reviewers` are the tokens whose overrides count in CI; None elsewhere.
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
    def stopping_rows(self) -> list[Row]:
        """The rows that would block the push."""
        # `holds` means that undetermined verdicts stop a push as well.
        stopping_words = {STOPS, UNKNOWN} if self.holds else {STOPS}
        rows = []
        for row in self.rows:
            # A verdict within the judges' noise could differ in another run, so it never blocks.
            is_within_noise = bool(row["verdict"].get("noise"))
            if row["word"] in stopping_words and not is_within_noise:
                rows.append(row)
        return rows

    @property
    def is_blocked(self) -> bool:
        """Whether the push is blocked, by a file's verdict or because something wasn't examined."""
        if self.mode != "blocking":
            return False
        if self.stopping_rows:
            return True
        # With `holds`, undetermined files block the push. A file that wasn't examined is undetermined.
        return self.holds and bool(self.unexamined)

    @property
    def judged_rows(self) -> list[Row]:
        """The rows of files that models or a person decided on."""
        return [row for row in self.rows if is_examined(row)]

    @property
    def not_examined(self) -> list[Omission]:
        """Everything that wasn't examined: refs, unreadable files, and files not sent to a model."""
        omissions = list(self.unexamined)
        for row in self.rows:
            if not is_examined(row):
                # `degraded` says why the file is undetermined. It can be None.
                reason = row["verdict"]["degraded"] or ""
                omissions.append(Omission(name=row["path"], reason=reason))
        return omissions

    @property
    def word(self) -> str | None:
        """The push's verdict: the most severe one of its files, or None if there was nothing to judge."""
        words = {row["word"] for row in self.rows}
        if self.unexamined:
            words.add(UNKNOWN)
        for word in (STOPS, UNKNOWN, PASSES):  # the most severe first
            if word in words:
                return word
        return None


def is_examined(row: Row) -> bool:
    """Whether models or a person decided on a file, whatever the outcome."""
    return bool(row["verdict"]["rounds"] or row["verdict"]["human_override"])


def describe_run(
    judged: Sequence[Row], skipped: Sequence[SkipGroup], not_examined: Sequence[Omission]
) -> str:
    """Summarise a run in a line: how many files were judged, skipped or not examined, and why."""
    # The words are verdicts such as GO.
    counts = Counter(row["word"] for row in judged)
    count_by_word = {word: counts[word] for word in WORDS if counts[word]}  # in the order of WORDS
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
    """Describe a total and its parts: `3 judged (2 GO, 1 NO-GO)`."""
    total = f"{sum(counts.values()):,} {name}"
    if not counts:
        return total
    # A single part has the same number as the total, so don't repeat it: `3 judged (GO)`.
    if len(counts) == 1:
        (only_part,) = counts
        return f"{total} ({only_part})"
    parts = [f"{count:,} {part}" for part, count in counts.items()]
    return f"{total} ({', '.join(parts)})"
