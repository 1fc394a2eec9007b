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
    from collections.abc import Collection, Iterable, Mapping, Sequence

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


def labels_wanted(found: Evidence) -> dict[KpiName, rates.Wanted | None]:
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


WINDOW = timedelta(days=30)  # what is looked at
CALIBRATION = timedelta(days=14)  # what it must reach back, at least


class BlockingStatus(NamedTuple):
    """Whether people's labels speak against blocking: `why` has a line for each rate that is shown missed.

    `told` says that the ledger already has the line about this return to advisory.
    """

    advisory: bool
    why: list[str]
    told: bool = False


class Readiness(NamedTuple):
    """Whether a gate may be promoted; `missing` says for each KPI (and for the time) what it lacks.

    `found` is what was measured, and `labels` how many labels more settle the rates, by word.
    """

    kpis: list[Kpi]
    missing: list[str]
    since: datetime | None
    found: Evidence
    labels: Mapping[GateWord, int]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


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
    lines = _recent(records, now or datetime.now(UTC))
    changes = sorted(
        (line for line in lines if isinstance(line, ModeChange)), key=lambda each: each.timestamp
    )
    promoted = max((change.timestamp for change in changes if change.mode == "blocking"), default=None)
    since = [line for line in lines if promoted is None or line.timestamp >= promoted]
    found = measure(evidence(since, rubric))
    why = [kpi_text(each) for each in found if each.limit.rate and each.state == "missed"]
    return BlockingStatus(bool(why), why, bool(changes) and changes[-1].mode == "advisory")


def readiness(records: Iterable[Record], rubric: str | None = None, now: datetime | None = None) -> Readiness:
    """Tell what a promotion to blocking still lacks, from the records of the last `WINDOW`."""
    now = now or datetime.now(UTC)
    own_evidence = evidence(_recent(records, now), rubric)
    kpis = measure(own_evidence)
    since = min((verdict.timestamp for verdict in own_evidence.verdicts), default=None)
    wanted_labels = labels_wanted(own_evidence)
    missing = [_lack(each, wanted_labels.get(each.name)) for each in kpis if each.state != "holds"]
    if since is None or now - since < CALIBRATION:
        days = 0 if since is None else (now - since).days
        missing.insert(0, f"time: verdicts reach back {days} days; {CALIBRATION.days} are needed")
    labels: dict[GateWord, int] = {}
    for wanted_label in wanted_labels.values():
        labels |= {word: max(count, labels.get(word, 0)) for word, count in (wanted_label or {}).items()}
    return Readiness(kpis, missing, since, own_evidence, labels)


def kpi_text(each: Kpi) -> str:
    """Return a KPI in one line: value, interval, limit."""
    if each.value is None and each.interval is None:
        return f"{each.limit.title}: nothing measured yet ({limit_text(each)})"
    value = "unknown" if each.value is None else number(each, each.value)
    of = "labelled verdicts" if each.limit.labelled else "verdicts"
    of = f"from {each.total} {of}" if each.limit.rate else f"of {each.total} {of}"
    span = (
        f", 95 % interval {' to '.join(number(each, end) for end in each.interval)}" if each.interval else ""
    )
    return f"{each.limit.title} {value} {of}{span} ({limit_text(each)})"


def limit_text(each: Kpi) -> str:
    """Return what a measure must be."""
    low, high = each.limit.low, each.limit.high
    if low is not None and high is not None:
        return f"wanted {number(each, low)} to {number(each, high)}"
    if low is not None:
        return f"wanted above {number(each, low)}"
    below = f"wanted below {number(each, high or 0)}"
    return f"{below}, the interval up to {number(each, 2 * (high or 0))}" if each.limit.rate else below


def _lack(each: Kpi, labels: rates.Wanted | None) -> str:
    if each.limit.rate:
        return f"{kpi_text(each)}: {_needed(each, labels)}"
    few = each.value is not None and each.total < LEAST
    return f"{kpi_text(each)}: at least {LEAST} verdicts are needed" if few else kpi_text(each)


def _needed(each: Kpi, labels: rates.Wanted | None) -> str:
    """Say what settles whether a rate holds."""
    if each.state == "missed":
        return "the labels show that it is missed; change the rubric or the models"
    if labels is None:
        return "labels of all these verdicts would not settle it; more verdicts are needed"
    counts = " and ".join(f"{count} more {word} verdicts" for word, count in sorted(labels.items()))
    misses = each.value is not None and not each.limit.holds(each.value)
    told = (
        "the estimate misses it, and to tell whether by chance" if misses else "not enough labels to be sure"
    )
    return f"{told}: label {counts} (judgekit label asks for them first)"


def _recent(records: Iterable[Record], now: datetime) -> Sequence[Record]:
    """Return the records of the last `WINDOW`; one that is dated later than now waits for its time."""
    return [record for record in records if now - WINDOW <= record.timestamp <= now]


def number(each: Kpi, value: float) -> str:
    """Return a value of a KPI with its unit."""
    return f"{value:.1f} s" if each.limit.unit == "seconds" else f"{value:.1%}".replace("%", " %")
