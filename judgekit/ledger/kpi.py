"""The six KPIs over the lines of a ledger, and whether they let a gate block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.ledger import rates
from judgekit.ledger.rates import LEAST, Stratum
from judgekit.ledger.records import Fault, Label, ModeChange, OverrideLine, VerdictLine, same_blob
from judgekit.ledger.store import LineFilter
from judgekit.text import rubric_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from judgekit.ledger.rates import Interval, Quality
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
WINDOW = timedelta(days=30)  # what decides about promotion
CALIBRATION = timedelta(days=14)  # what it must reach back, at least


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
        if self.closed and value in (self.low, self.high):
            return True
        return (self.low is None or value > self.low) and (self.high is None or value < self.high)

    def excludes(self, span: Interval) -> bool:
        below = self.low is not None and span.high < self.low
        return below or (self.high is not None and span.low > self.high)

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{value:.1f} s" if self.unit == "seconds" else f"{value:.1%}".replace("%", " %")

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"wanted {self.text(self.low)} to {self.text(self.high)}"
        if self.low is not None:
            return f"wanted above {self.text(self.low)}"
        below = f"wanted below {self.text(self.high or 0)}"
        return f"{below}, the interval up to {self.text(2 * (self.high or 0))}" if self.rate else below


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
        holds = self.limit.holds(self.value)
        if self.limit.rate:
            holds &= self.interval is not None and self.interval.high <= 2 * (self.limit.high or 0)
        elif self.limit.labelled:
            holds = self.interval is not None and all(map(self.limit.holds, self.interval))
        return "holds" if holds else "open"

    def __str__(self) -> str:
        if self.value is None and self.interval is None:
            return f"{self.limit.title}: nothing measured yet ({self.limit})"
        value = "unknown" if self.value is None else self.limit.text(self.value)
        of = "labelled verdicts" if self.limit.labelled else "verdicts"
        of = f"{'from' if self.limit.rate else 'of'} {self.total} {of}"
        ends = " to ".join(map(self.limit.text, self.interval or ()))
        span = f", 95 % interval {ends}" if ends else ""
        return f"{self.limit.title} {value} {of}{span} ({self.limit})"


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
        strata = []
        for (word, decided), members in sorted(groups.items()):
            good = sum(self.labels.get(member.id) == "go" for member in members)
            strata.append(Stratum(word, len(members), sum(map(self.sure, members)), good, decided))
        return strata


def evidence(records: Iterable[Record], rubric: str | None = None) -> Evidence:
    """Return what can be measured: the gate's verdicts that models were asked for, and what people said.

    Each content counts once: its last verdict, one that models answered before one that they did not. What
    people said of a content counts whichever of its verdicts they said it of. With a `rubric`, `id@version`,
    only verdicts under it are measured; an older record names no version and counts for each.
    """
    measured: dict[str, VerdictLine] = {}
    contents, tasks = dict[str, str](), dict[str, str]()
    labels, overrides, unjudged = list[Label](), list[OverrideLine](), set[str]()
    for record in records:
        if isinstance(record, VerdictLine) and not record.of_task:
            name = contents[record.id] = tasks[record.task_id] = content(record)
            unversioned = record.imported is not None and not record.rubric.version
            version = rubric.rpartition("@")[2] if rubric and unversioned else record.rubric.version
            if not used_again(record) and rubric in (None, f"{record.rubric.id}@{version}"):
                measured[name] = max(
                    measured.get(name, record),
                    record,
                    key=lambda verdict: (verdict.answered, verdict.timestamp),
                )
        elif isinstance(record, Label):
            labels.append(record)
        elif isinstance(record, OverrideLine) and record.terminal:
            overrides.append(record)
        elif isinstance(record, Fault):
            unjudged.update(record.paths or [f"\0{record.id}"])
    said = [label.model_copy(update={"of": contents[label.of]}) for label in labels if label.of in contents]
    decided: set[str] = set()
    for override in overrides:  # who accepts a content says that it should go
        by_task = (name for task, name in tasks.items() if same_blob(task, override.task_id))
        of = _joined(override.subjects) or next(by_task, None)
        if of is not None:
            word: LabelWord = "go" if override.decision == "accept" else "no-go"
            said.append(Label(of=of, label=word, who=override.who, timestamp=override.timestamp))
            decided |= {measured[of].id} if of in measured else set()
    words = agreed(said)
    by_id = {verdict.id: words[name] for name, verdict in measured.items() if name in words}
    return Evidence(list(measured.values()), by_id, len(unjudged), decided)


def used_again(verdict: VerdictLine) -> bool:
    """Whether no model was asked for a verdict: the gate took an earlier one."""
    return verdict.gate is not None and verdict.gate.cached


def content(verdict: VerdictLine) -> str:
    """Return what was judged: the hashes of its files; of an older record without them, its task."""
    return _joined([subject.sha256 for subject in verdict.subjects]) or verdict.task_id


def _joined(hashes: Sequence[str]) -> str:
    return "\n".join(sorted(hashes)) if all(hashes) else ""


def agreed(labels: Iterable[Label]) -> dict[str, LabelWord]:
    """Return the label of each labelled verdict: each person's last word, the majority, `unsure` on a tie."""
    last: dict[str, dict[str, LabelWord]] = {}
    for label in sorted(labels, key=lambda label: label.timestamp):
        last.setdefault(label.of, {})[label.who] = label.label
    found: dict[str, LabelWord] = {}
    for of, said in last.items():
        ranked = Counter(word for word in said.values() if word != "withdrawn").most_common(2)
        tie = len(ranked) > 1 and ranked[0][1] == ranked[1][1]
        found[of] = "unsure" if tie else ranked[0][0] if ranked else "withdrawn"
    return found


def measure(found: Evidence) -> list[Kpi]:
    strata = found.strata()
    words = Counter(verdict.word for verdict in found.verdicts)
    total = len(found.verdicts) + found.faults
    seconds = sorted(verdict.duration_ms / 1000 for verdict in found.verdicts if verdict.imported is None)
    estimates = {name: rates.rate(strata, *of) for name, of in RATES.items()}
    return [
        *(Kpi(name, rate.estimate, rate.interval, rate.labels) for name, rate in estimates.items()),
        share("go", words["GO"], total),
        share("undetermined", words["UNDETERMINED"] + found.faults, total),
        share("availability", sum(verdict.answered for verdict in found.verdicts), total),
        Kpi("latency", median(seconds) if seconds else None, rates.median_interval(seconds), len(seconds)),
    ]


def reliance(found: Evidence) -> list[Kpi]:
    """Return how often NO-GO, and how often GO, was wrong, among what is labelled."""
    labels = {
        word: Counter(found.labels.get(verdict.id) for verdict in found.verdicts if verdict.word == word)
        for word in ("NO-GO", "GO")
    }
    totals = {word: counts["go"] + counts["no-go"] for word, counts in labels.items()}
    return [
        share("wrong_nogo", labels["NO-GO"]["go"], totals["NO-GO"]),
        share("wrong_go", labels["GO"]["no-go"], totals["GO"]),
    ]


def share(name: KpiName, hits: int, total: int) -> Kpi:
    return Kpi(name, hits / total if total else None, rates.share_interval(hits, total), total, hits)


def by_rubric(found: Evidence) -> dict[str, Evidence]:
    """Return the evidence of each rubric's version, the newest verdict's first."""
    return _grouped(
        found,
        lambda verdict: rubric_name(
            f"{verdict.rubric.id}@{verdict.rubric.version or 'imported'}", verdict.rubric.source
        ),
    )


def by_model(found: Evidence) -> dict[str, Evidence]:
    """Return the evidence of each model that decided; where none did, of the first that was asked."""
    return _grouped(
        found, lambda verdict: verdict.model or next((each.model for each in verdict.rounds), "no model")
    )


def _grouped(found: Evidence, key: Callable[[VerdictLine], str]) -> dict[str, Evidence]:
    members: dict[str, list[VerdictLine]] = {}
    for verdict in sorted(found.verdicts, key=lambda verdict: verdict.timestamp, reverse=True):
        members.setdefault(key(verdict), []).append(verdict)
    return {name: found.only(verdicts) for name, verdicts in members.items()}


class BlockingStatus(NamedTuple):
    """Whether people's labels speak against blocking: `why` has a line for each rate that is shown missed.

    `told` says that the ledger already has the line about this return to advisory.
    """

    advisory: bool
    why: list[str]
    told: bool = False


class Readiness(NamedTuple):
    """What a promotion needs: `missing` says for each KPI (and for the time) what it lacks.

    `found` is what was measured, and `labels` how many labels more settle the rates, by word.
    """

    kpis: list[Kpi]
    missing: list[str]
    found: Evidence
    labels: Mapping[GateWord, int]


def window(now: datetime | None = None) -> LineFilter:
    """Return what to read for `standing` and `readiness`: the other files of a ledger stay closed."""
    kinds = (VerdictLine, Label, OverrideLine, ModeChange, Fault)
    return LineFilter(since=(now or datetime.now(UTC)) - WINDOW, kinds=kinds)


def standing(
    records: Iterable[Record], rubric: str | None = None, now: datetime | None = None
) -> BlockingStatus:
    """Tell whether blocking must be treated as advisory, from the records of the last `WINDOW`.

    Only what people said of verdicts can show that: a share of verdicts, or how long they took, is in the
    hands of whoever pushes. Only evidence since the last promotion counts (who promoted knew the earlier
    one), of the rubric's version `id@version` where it is given. A lack of labels is no evidence.
    """
    recent = _recent(records, now)
    changes = [line for line in recent if isinstance(line, ModeChange)]
    changes.sort(key=lambda line: line.timestamp)
    promoted = max((change.timestamp for change in changes if change.mode == "blocking"), default=None)
    since = [record for record in recent if promoted is None or record.timestamp >= promoted]
    kpis = measure(evidence(since, rubric))
    why = [str(kpi) for kpi in kpis if kpi.limit.rate and kpi.state == "missed"]
    return BlockingStatus(bool(why), why, bool(changes) and changes[-1].mode == "advisory")


def readiness(records: Iterable[Record], rubric: str | None = None, now: datetime | None = None) -> Readiness:
    """Tell what a promotion to blocking still lacks, from the records of the last `WINDOW`."""
    found = evidence(_recent(records, now), rubric)
    strata = found.strata()
    wanted: dict[KpiName, rates.Wanted | None] = {
        name: rates.wanted(strata, *of, LIMITS[name].high or 0) for name, of in RATES.items()
    }
    kpis = measure(found)
    missing = [_lack(kpi, wanted) for kpi in kpis if kpi.state != "holds"]
    now = now or datetime.now(UTC)
    covered = now - min((verdict.timestamp for verdict in found.verdicts), default=now)
    if covered < CALIBRATION:
        missing.insert(0, f"time: verdicts cover {covered.days} days; {CALIBRATION.days} are needed")
    labels: dict[GateWord, int] = {}
    for counts in wanted.values():
        labels |= {word: max(count, labels.get(word, 0)) for word, count in (counts or {}).items()}
    return Readiness(kpis, missing, found, labels)


def _lack(kpi: Kpi, wanted: Mapping[KpiName, rates.Wanted | None]) -> str:
    """Say what settles whether a KPI holds; `wanted` are the labels that each rate lacks."""
    if not kpi.limit.rate:
        few = kpi.value is not None and kpi.total < LEAST
        return f"{kpi}: at least {LEAST} verdicts are needed" if few else str(kpi)
    if kpi.state == "missed":
        return f"{kpi}: the labels show a miss; change the rubric or the models"
    labels = wanted[kpi.name]
    if labels is None:
        return f"{kpi}: labelling all these verdicts would not settle it; more verdicts are needed"
    counts = " and ".join(f"{count} more {word} verdicts" for word, count in sorted(labels.items()))
    told = "not enough labels to be sure"
    if kpi.value is not None and not kpi.limit.holds(kpi.value):
        told = "the estimate misses it, perhaps by chance; to decide"
    return f"{kpi}: {told}: label {counts} (judgekit label asks for them first)"


def _recent(records: Iterable[Record], now: datetime | None) -> Sequence[Record]:
    """Return the records of the last `WINDOW`; one that is dated later than now waits for its time."""
    now = now or datetime.now(UTC)
    return [record for record in records if now - WINDOW <= record.timestamp <= now]
