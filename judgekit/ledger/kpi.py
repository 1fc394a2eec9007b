"""The six measures that decide whether a gate may block, over the lines of a ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.ledger import interval
from judgekit.ledger.records import Fault, Label, VerdictLine
from judgekit.text import rubric_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.ledger.interval import Interval
    from judgekit.ledger.records import GateWord, LabelWord, Record

LEAST = 20  # verdicts; the interval of a handful is too sure of itself, and a gate must not flip on a bad day
State: TypeAlias = Literal["holds", "missed", "open"]
KpiName: TypeAlias = Literal["wrong_nogo", "wrong_go", "go", "undetermined", "availability", "latency"]


class Limit(NamedTuple):
    """What a measure must be: more than `low` and less than `high` (`closed`: they may be reached).

    `labelled` measures are of a sample, so their whole interval must be inside; others count every verdict.
    """

    title: str
    low: float | None = None
    high: float | None = None
    closed: bool = False
    labelled: bool = False
    unit: Literal["share", "seconds"] = "share"

    def holds(self, value: float) -> bool:
        """Whether a value is inside."""
        if self.closed:
            return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return (self.low is None or value > self.low) and (self.high is None or value < self.high)

    def excludes(self, span: Interval) -> bool:
        """Whether a whole interval is outside."""
        below = self.low is not None and span.high < self.low
        return below or (self.high is not None and span.low > self.high)


LIMITS: Mapping[KpiName, Limit] = {
    "wrong_nogo": Limit("wrong NO-GO", high=0.10, labelled=True),
    "wrong_go": Limit("wrong GO", high=0.05, labelled=True),
    "go": Limit("GO", low=0.70, high=0.90, closed=True),
    "undetermined": Limit("UNDETERMINED", high=0.15),
    "availability": Limit("availability", low=0.95),
    "latency": Limit("median latency", high=30.0, unit="seconds"),
}


class Kpi(NamedTuple):
    """One measure: its value (None without anything to measure), its 95 % interval, and out of how many."""

    name: KpiName
    value: float | None
    interval: Interval | None
    total: int
    hits: int = 0

    @property
    def limit(self) -> Limit:
        """What it must be."""
        return LIMITS[self.name]

    @property
    def state(self) -> State:
        """Whether it holds, is shown to be missed, or is open for lack of evidence.

        A labelled one holds when its whole interval is inside the limit, any other when its value is. Missed
        means the whole interval is outside. Fewer than `LEAST` verdicts show nothing.
        """
        if self.value is None or self.total < LEAST:
            return "open"
        if self.interval is not None and self.limit.excludes(self.interval):
            return "missed"
        if self.limit.labelled:
            return "holds" if self.interval and all(map(self.limit.holds, self.interval)) else "open"
        return "holds" if self.limit.holds(self.value) else "open"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The verdicts to measure, the labels of their ids, and how many files faults left unjudged."""

    verdicts: Sequence[VerdictLine]
    labels: Mapping[str, LabelWord]
    faults: int = 0

    def only(self, verdicts: Sequence[VerdictLine]) -> Evidence:
        """Return the same labels over some of the verdicts; faults belong to no rubric or model."""
        return Evidence(verdicts, self.labels)


def evidence(records: Iterable[Record]) -> Evidence:
    """Return what can be measured: the gate's verdicts that models were asked for, and their labels.

    A label of a verdict that was used again counts for the one that a model was asked for.
    """
    verdicts: list[VerdictLine] = []
    labels: list[Label] = []
    again: list[VerdictLine] = []
    faults = 0
    for each in records:
        if isinstance(each, VerdictLine) and not each.of_task:
            (again if used_again(each) else verdicts).append(each)
        elif isinstance(each, Label):
            labels.append(each)
        elif isinstance(each, Fault):
            faults += max(1, len(each.paths))
    return Evidence(verdicts, agreed(_of_asked(labels, again, verdicts)), faults)


def used_again(verdict: VerdictLine) -> bool:
    """Whether no model was asked for a verdict: the gate took what it was told before."""
    return verdict.gate is not None and verdict.gate.cached


def content(verdict: VerdictLine) -> tuple[object, ...]:
    """Return what makes two labels one: what was judged, by which rubric, with which outcome."""
    files = tuple(each.sha256 or each.path for each in verdict.subjects)
    return (verdict.task_id, files, verdict.rubric.id, verdict.rubric.version, verdict.word)


def agreed(labels: Iterable[Label]) -> dict[str, LabelWord]:
    """Return the label of each labelled verdict: each person's last word, the majority, `unsure` on a tie."""
    last: dict[str, dict[str, LabelWord]] = {}
    for each in sorted(labels, key=lambda label: label.timestamp):
        last.setdefault(each.of, {})[each.who] = each.label
    return {of: _majority(said.values()) for of, said in last.items()}


def measure(found: Evidence) -> list[Kpi]:
    """Return the six measures."""
    words = Counter(each.word for each in found.verdicts)
    total = len(found.verdicts) + found.faults
    answered = sum(each.answered for each in found.verdicts)
    return [
        _wrong("wrong_nogo", found, "NO-GO", "go"),
        _wrong("wrong_go", found, "GO", "no-go"),
        _share("go", words["GO"], total),
        _share("undetermined", words["UNDETERMINED"] + found.faults, total),
        _share("availability", answered, total),
        _latency(found.verdicts),
    ]


def by_rubric(found: Evidence) -> dict[str, Evidence]:
    """Return the evidence of each rubric's version, the newest verdict's first."""
    return _grouped(found, {each.id: _rubric(each) for each in found.verdicts})


def by_model(found: Evidence) -> dict[str, Evidence]:
    """Return the evidence of each model that decided; where none did, of the first that was asked."""
    return _grouped(found, {each.id: decider(each) for each in found.verdicts})


def decider(verdict: VerdictLine) -> str:
    """Return the model that decided, else the first that was asked."""
    return verdict.model or next((each.model for each in verdict.rounds), "no model")


def _rubric(verdict: VerdictLine) -> str:
    ref = f"{verdict.rubric.id}@{verdict.rubric.version or 'imported'}"
    return rubric_name(ref, verdict.rubric.source)


def _grouped(found: Evidence, groups: Mapping[str, str]) -> dict[str, Evidence]:
    members: dict[str, list[VerdictLine]] = {}
    for each in sorted(found.verdicts, key=lambda verdict: verdict.timestamp, reverse=True):
        members.setdefault(groups[each.id], []).append(each)
    return {name: found.only(verdicts) for name, verdicts in members.items()}


def _of_asked(
    labels: Iterable[Label], again: Iterable[VerdictLine], asked: Iterable[VerdictLine]
) -> list[Label]:
    """Return the labels, those of a verdict that was used again as labels of its first one."""
    first = {content(each): each.id for each in asked}
    ids = {each.id: first.get(content(each), each.id) for each in again}
    return [each.model_copy(update={"of": ids.get(each.of, each.of)}) for each in labels]


def _majority(said: Iterable[LabelWord]) -> LabelWord:
    ranked = Counter(word for word in said if word != "withdrawn").most_common(2)
    if not ranked:
        return "withdrawn"
    tie = len(ranked) > 1 and ranked[0][1] == ranked[1][1]
    return "unsure" if tie else ranked[0][0]


def _wrong(name: KpiName, found: Evidence, word: GateWord, contrary: LabelWord) -> Kpi:
    """Measure, among verdicts of one word whose label is sure, the share that the label contradicts."""
    labels = [found.labels.get(each.id) for each in found.verdicts if each.word == word]
    return _share(name, labels.count(contrary), labels.count("go") + labels.count("no-go"))


def _share(name: KpiName, hits: int, total: int) -> Kpi:
    return Kpi(name, hits / total if total else None, interval.share(hits, total), total, hits)


def _latency(verdicts: Iterable[VerdictLine]) -> Kpi:
    seconds = sorted(each.duration_ms / 1000 for each in verdicts if each.imported is None)
    value = median(seconds) if seconds else None
    return Kpi("latency", value, interval.median(seconds), len(seconds))
