"""The six KPIs that decide whether a gate may block, over the lines of a ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.ledger import rates
from judgekit.ledger.overrides import same_blob
from judgekit.ledger.rates import LEAST, Stratum
from judgekit.ledger.records import Fault, Label, OverrideLine, VerdictLine
from judgekit.text import rubric_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from judgekit.ledger.rates import Interval, Quality, Rate
    from judgekit.ledger.records import GateWord, LabelWord, Record

State: TypeAlias = Literal["holds", "missed", "open"]
RateName: TypeAlias = Literal["false_positive_rate", "false_negative_rate"]
KpiName: TypeAlias = Literal[
    RateName, "wrong_nogo", "wrong_go", "go", "undetermined", "availability", "latency"
]

RATES: Mapping[RateName, tuple[GateWord, Quality]] = {
    "false_positive_rate": ("NO-GO", "good"),
    "false_negative_rate": ("GO", "bad"),
}
RELIANCE: tuple[KpiName, KpiName] = ("wrong_nogo", "wrong_go")
"""No KPIs: how often a NO-GO, or a GO, can be relied upon."""


class Limit(NamedTuple):
    """What a measure must be: more than `low` and less than `high` (`closed`: they may be reached).

    `labelled` measures are of a sample. A `rate` holds when its estimate does and its interval ends within
    twice the limit; of any other labelled one the whole interval must be inside; others count every verdict.
    """

    title: str
    low: float | None = None
    high: float | None = None
    closed: bool = False
    labelled: bool = False
    rate: bool = False
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
    "false_positive_rate": Limit("false-positive rate", high=0.10, labelled=True, rate=True),
    "false_negative_rate": Limit("false-negative rate", high=0.05, labelled=True, rate=True),
    "go": Limit("GO", low=0.70, high=0.90, closed=True),
    "undetermined": Limit("UNDETERMINED", high=0.15),
    "availability": Limit("availability", low=0.95),
    "latency": Limit("median latency", high=30.0, unit="seconds"),
    "wrong_nogo": Limit("wrong NO-GO", high=0.10, labelled=True),
    "wrong_go": Limit("wrong GO", high=0.05, labelled=True),
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

        Missed means the whole interval is outside the limit. Fewer than `LEAST` verdicts (of a rate: labels)
        show nothing.
        """
        if self.total < LEAST:
            return "open"
        if self.interval is not None and self.limit.excludes(self.interval):
            return "missed"
        if self.value is None:
            return "open"
        if self.limit.rate:
            sure = self.interval is not None and self.interval.high <= 2 * (self.limit.high or 0)
            return "holds" if sure and self.limit.holds(self.value) else "open"
        if self.limit.labelled:
            return "holds" if self.interval and all(map(self.limit.holds, self.interval)) else "open"
        return "holds" if self.limit.holds(self.value) else "open"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The verdicts to measure, what people said of their content, by their ids, and files left unjudged.

    Of a content that was judged several times the last verdict counts. `decided` are the ids of those about
    whose content a person decided by an override.
    """

    verdicts: Sequence[VerdictLine]
    labels: Mapping[str, LabelWord]
    faults: int = 0
    decided: Collection[str] = field(default_factory=frozenset)

    def only(self, verdicts: Sequence[VerdictLine]) -> Evidence:
        """Return the same labels over some of the verdicts; faults belong to no rubric or model."""
        return Evidence(verdicts, self.labels, decided=self.decided)

    def sure(self, verdict: VerdictLine) -> bool:
        """Whether people said of a verdict's content that it should go, or that it should not."""
        return self.labels.get(verdict.id) in ("go", "no-go")

    def strata(self) -> list[Stratum]:
        """Return the verdicts by word, those that people decided about apart."""
        groups: dict[tuple[GateWord, bool], list[VerdictLine]] = {}
        for verdict in self.verdicts:
            decided = verdict.id in self.decided and self.sure(verdict)
            groups.setdefault((verdict.word, decided), []).append(verdict)
        return [
            Stratum(
                word,
                len(members),
                sum(map(self.sure, members)),
                sum(self.labels.get(member.id) == "go" for member in members),
                decided,
            )
            for (word, decided), members in sorted(groups.items())
        ]


def evidence(records: Iterable[Record], rubric: str | None = None) -> Evidence:
    """Return what can be measured: the gate's verdicts that models were asked for, and what people said.

    Each content counts once: its last verdict, one that models answered before one that they did not. What
    people said of a content counts whichever of its verdicts they said it of. With a `rubric`, `id@version`,
    only verdicts under it are measured.
    """
    asked: dict[str, VerdictLine] = {}
    contents: dict[str, str] = {}
    tasks: dict[str, str] = {}
    labels: list[Label] = []
    overrides: list[OverrideLine] = []
    unjudged: list[str] = []
    for record in records:
        if isinstance(record, VerdictLine) and not record.of_task:
            name = contents[record.id] = tasks[record.task_id] = content(record)
            if not used_again(record) and (rubric is None or _is_of(record, rubric)):
                asked[name] = max(asked.get(name, record), record, key=_newer)
        elif isinstance(record, Label):
            labels.append(record)
        elif isinstance(record, OverrideLine) and record.terminal:
            overrides.append(record)
        elif isinstance(record, Fault):
            unjudged += record.paths or [f"\0{record.id}"]
    said = [label.model_copy(update={"of": contents[label.of]}) for label in labels if label.of in contents]
    decisions = list(_decisions(overrides, tasks))
    words = agreed([*said, *decisions])
    return Evidence(
        verdicts=list(asked.values()),
        labels={verdict_line.id: words[name] for name, verdict_line in asked.items() if name in words},
        faults=len(set(unjudged)),
        decided={asked[decision.of].id for decision in decisions if decision.of in asked},
    )


def used_again(verdict: VerdictLine) -> bool:
    """Whether no model was asked for a verdict: the gate took what it was told before."""
    return verdict.gate is not None and verdict.gate.cached


def content(verdict: VerdictLine) -> str:
    """Return what was judged: the hashes of its files; of an older record without them, its task."""
    return _content([subject.sha256 for subject in verdict.subjects]) or verdict.task_id


def _content(hashes: Sequence[str]) -> str:
    return "\n".join(sorted(hashes)) if all(hashes) else ""


def _newer(verdict: VerdictLine) -> tuple[bool, datetime]:
    return verdict.answered, verdict.timestamp


def _decisions(overrides: Iterable[OverrideLine], tasks: Mapping[str, str]) -> Iterable[Label]:
    """Yield overrides, each as the label of a content: who accepts it says that it should go."""
    for override in overrides:
        named = (of for task, of in tasks.items() if same_blob(task, override.task_id))
        of = _content(override.subjects) or next(named, None)
        if of is not None:
            word: LabelWord = "go" if override.decision == "accept" else "no-go"
            yield Label(of=of, label=word, who=override.who, timestamp=override.timestamp)


def agreed(labels: Iterable[Label]) -> dict[str, LabelWord]:
    """Return the label of each labelled verdict: each person's last word, the majority, `unsure` on a tie."""
    last: dict[str, dict[str, LabelWord]] = {}
    for each in sorted(labels, key=lambda label: label.timestamp):
        last.setdefault(each.of, {})[each.who] = each.label
    return {of: _majority(said.values()) for of, said in last.items()}


def measure(found: Evidence) -> list[Kpi]:
    """Return the six KPIs."""
    strata = found.strata()
    words = Counter(verdict.word for verdict in found.verdicts)
    total = len(found.verdicts) + found.faults
    answered = sum(verdict.answered for verdict in found.verdicts)
    return [
        *(_rate(name, rates.rate(strata, *of)) for name, of in RATES.items()),
        _share("go", words["GO"], total),
        _share("undetermined", words["UNDETERMINED"] + found.faults, total),
        _share("availability", answered, total),
        _latency(found.verdicts),
    ]


def reliance(found: Evidence) -> list[Kpi]:
    """Return how often NO-GO, and how often GO, was wrong, among what is labelled."""
    return [_wrong("wrong_nogo", found, "NO-GO", "go"), _wrong("wrong_go", found, "GO", "no-go")]


def wanted(found: Evidence) -> dict[KpiName, rates.Wanted | None]:
    """Return for each rate how many labels more, by word, settle it; None where those of all would not do."""
    strata = found.strata()
    return {
        name: rates.wanted(strata, word, quality, LIMITS[name].high or 0)
        for name, (word, quality) in RATES.items()
    }


def by_rubric(found: Evidence) -> dict[str, Evidence]:
    """Return the evidence of each rubric's version, the newest verdict's first."""
    return _grouped(found, {verdict.id: _rubric(verdict) for verdict in found.verdicts})


def by_model(found: Evidence) -> dict[str, Evidence]:
    """Return the evidence of each model that decided; where none did, of the first that was asked."""
    return _grouped(found, {verdict.id: decider(verdict) for verdict in found.verdicts})


def decider(verdict: VerdictLine) -> str:
    """Return the model that decided, else the first that was asked."""
    return verdict.model or next((each.model for each in verdict.rounds), "no model")


def _rubric(verdict: VerdictLine) -> str:
    ref = f"{verdict.rubric.id}@{verdict.rubric.version or 'imported'}"
    return rubric_name(ref, verdict.rubric.source)


def _grouped(found: Evidence, groups: Mapping[str, str]) -> dict[str, Evidence]:
    members: dict[str, list[VerdictLine]] = {}
    for verdict_line in sorted(found.verdicts, key=lambda verdict: verdict.timestamp, reverse=True):
        members.setdefault(groups[verdict_line.id], []).append(verdict_line)
    return {name: found.only(verdicts) for name, verdicts in members.items()}


def _is_of(verdict: VerdictLine, rubric: str) -> bool:
    """Whether a verdict counts for a rubric's version; an older record names none and counts for each."""
    if verdict.imported is not None and not verdict.rubric.version:
        return rubric.startswith(f"{verdict.rubric.id}@")
    return rubric == f"{verdict.rubric.id}@{verdict.rubric.version}"


def _majority(said: Iterable[LabelWord]) -> LabelWord:
    ranked = Counter(word for word in said if word != "withdrawn").most_common(2)
    if not ranked:
        return "withdrawn"
    tie = len(ranked) > 1 and ranked[0][1] == ranked[1][1]
    return "unsure" if tie else ranked[0][0]


def _wrong(name: KpiName, found: Evidence, word: GateWord, contrary: LabelWord) -> Kpi:
    """Measure, among verdicts of one word whose label is sure, the share that the label contradicts."""
    labels = [found.labels.get(verdict.id) for verdict in found.verdicts if verdict.word == word]
    return _share(name, labels.count(contrary), labels.count("go") + labels.count("no-go"))


def _rate(name: RateName, rate: Rate) -> Kpi:
    return Kpi(name, rate.estimate, rate.interval, rate.labels)


def _share(name: KpiName, hits: int, total: int) -> Kpi:
    return Kpi(name, hits / total if total else None, rates.share_interval(hits, total), total, hits)


def _latency(verdicts: Iterable[VerdictLine]) -> Kpi:
    seconds = sorted(verdict.duration_ms / 1000 for verdict in verdicts if verdict.imported is None)
    value = median(seconds) if seconds else None
    return Kpi("latency", value, rates.median_interval(seconds), len(seconds))
