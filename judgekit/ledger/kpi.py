"""The six KPIs over the lines of a ledger, and whether they let a gate block."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.ledger import rates
from judgekit.ledger.rates import LEAST, Interval, Quality, Stratum
from judgekit.ledger.records import Fault, Label, ModeChange, OverrideLine, VerdictLine
from judgekit.ledger.store import LineFilter
from judgekit.task_ids import same_blob
from judgekit.text import counted, rubric_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from judgekit.ledger.records import GateWord, LabelWord, Record

State: TypeAlias = Literal["holds", "missed", "open"]
_Name: TypeAlias = Literal[
    "go", "undetermined", "availability", "latency", "wrong_nogo", "wrong_go"
]
KpiName: TypeAlias = Literal["false_positive_rate", "false_negative_rate"] | _Name

RELIANCE: tuple[KpiName, KpiName] = ("wrong_nogo", "wrong_go")
"""Not KPIs themselves: how often a NO-GO, or a GO, turned out wrong."""
WINDOW = timedelta(days=30)  # how far back verdicts count for a promotion
_DATE = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|latest)$")
CALIBRATION = timedelta(days=14)  # the verdicts must cover at least this long


class Limit(NamedTuple):
    """The range that a measure must be in: above `low` and below `high`, or equal to them if `closed`.

    `labelled` measures are estimated from a sample. A `rate`, given as (word, quality), holds if its estimate
    is in range and its interval ends within twice the limit; any other labelled measure needs the whole
    interval in range. Measures that aren't labelled count every verdict.
    """

    title: str
    low: float | None = None
    high: float | None = None
    closed: bool = False
    labelled: bool = False
    rate: tuple[GateWord, Quality] | None = None
    unit: Literal["share", "seconds"] = "share"

    def holds(self, value: float) -> bool:
        if self.closed and value in (self.low, self.high):
            return True
        if self.low is not None and value <= self.low:
            return False
        return self.high is None or value < self.high

    def text(self, value: float) -> str:
        if self.unit == "seconds":
            return f"{value:.1f} s"
        return f"{value:.1%}".replace("%", " %")

    def range_text(self, interval: Interval) -> str:
        return f"{self.text(interval.low)} to {self.text(interval.high)}"

    def __str__(self) -> str:
        if self.low is not None:
            low = self.text(self.low)
            if self.high:
                return f"wanted {low} to {self.text(self.high)}"
            return f"wanted above {low}"
        if self.rate:
            more = f", the interval up to {self.text(2 * (self.high or 0))}"
        else:
            more = ""
        return f"wanted below {self.text(self.high or 0)}{more}"


LIMITS: Mapping[KpiName, Limit] = {
    "false_positive_rate": Limit(
        "false-positive rate", high=0.10, labelled=True, rate=("NO-GO", "good")
    ),
    "false_negative_rate": Limit(
        "false-negative rate", high=0.05, labelled=True, rate=("GO", "bad")
    ),
    "go": Limit("GO", low=0.70, high=0.90, closed=True),
    "undetermined": Limit("UNDETERMINED", high=0.15),
    "availability": Limit("availability", low=0.95),
    "latency": Limit("median latency", high=30.0, unit="seconds"),
    "wrong_nogo": Limit("wrong NO-GO", high=0.10, labelled=True),
    "wrong_go": Limit("wrong GO", high=0.05, labelled=True),
}


class Kpi(NamedTuple):
    """One measure: its value (None if nothing was measured), its 95 % interval, and the sample size."""

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
        """Whether the measure holds, is missed (the whole interval is out of range), or lacks evidence."""
        limit = self.limit
        interval = self.interval
        if self.total < LEAST:
            return "open"
        if interval:
            is_below = interval.high < (limit.low or 0.0)
            is_above = interval.low > (limit.high or inf)
            if is_below or is_above:
                return "missed"
        holds = self.value is not None and limit.holds(self.value)
        if limit.rate:
            holds &= interval is not None and interval.high <= 2 * (limit.high or 0)
        elif limit.labelled:
            holds &= interval is not None and all(map(limit.holds, interval.bounds))
        return "holds" if holds else "open"

    def __str__(self) -> str:
        limit = self.limit
        if self.value is None and self.interval is None:
            return f"{limit.title}: nothing measured yet ({limit})"
        value = "unknown" if self.value is None else limit.text(self.value)
        what = "labelled verdict" if limit.labelled else "verdict"
        of = "from" if limit.rate else "of"
        if self.interval:
            span = f", 95 % interval {limit.range_text(self.interval)}"
        else:
            span = ""
        total = counted(self.total, what, f"{what}s")
        return f"{limit.title} {value} {of} {total}{span} ({limit})"


class Evidence(NamedTuple):
    """The verdicts to measure (the last of each content), people's labels by verdict id, unjudged files."""

    verdicts: Sequence[VerdictLine]
    labels: Mapping[str, LabelWord]
    faults: int = 0
    decided: Collection[str] = frozenset()

    def only(self, verdicts: Sequence[VerdictLine]) -> Evidence:
        """Restrict the evidence to some verdicts, without faults, which belong to no rubric or model."""
        return Evidence(verdicts, self.labels, decided=self.decided)

    def sure(self, verdict: VerdictLine) -> bool:
        return self.labels.get(verdict.id) in ("go", "no-go")

    def strata(self) -> list[Stratum]:
        """Group the verdicts by word; those that people decided about form groups of their own."""
        groups: dict[tuple[GateWord, bool], list[VerdictLine]] = defaultdict(list)
        for verdict in self.verdicts:
            decided = verdict.id in self.decided and self.sure(verdict)
            groups[verdict.word, decided].append(verdict)
        strata = []
        for (word, decided), members in sorted(groups.items()):
            labels = sum(map(self.sure, members))
            good = sum(self.labels.get(member.id) == "go" for member in members)
            strata.append(Stratum(word, len(members), labels, good, decided))
        return strata


def evidence(records: Iterable[Record], rubric: str | None = None) -> Evidence:
    """Collect the measurable evidence: gate verdicts that asked models, and what people said about them.

    Each content counts once, with its last verdict; one that models answered takes precedence. With a
    `rubric`, `id@version`, only verdicts under it are measured; an older record without a version counts for
    every rubric.
    """
    records = list(records)
    measured: dict[str, VerdictLine] = {}  # by content
    content_by_id = {}
    content_by_task = {}
    for record in records:
        if isinstance(record, VerdictLine) and not record.of_task:
            name = content(record)
            content_by_id[record.id] = name
            content_by_task[record.task_id] = name
            if _is_under(record, rubric) and not used_again(record):
                best = measured.setdefault(name, record)
                if (record.answered, record.timestamp) > (best.answered, best.timestamp):
                    measured[name] = record
    labels = []
    overrides = []
    overridden_ids = set()
    unjudged = set()
    for record in records:
        if isinstance(record, Label) and record.of in content_by_id:
            labels.append(record.model_copy(update={"of": content_by_id[record.of]}))
        elif isinstance(record, OverrideLine) and record.terminal:
            label = _make_label(record, content_by_task)
            if label is not None:
                overrides.append(label)
                if label.of in measured:
                    overridden_ids.add(measured[label.of].id)
        elif isinstance(record, Fault):
            unjudged.update(record.paths or [f"\0{record.id}"])
    words_by_id = {}
    for name, word in agreed([*labels, *overrides]).items():
        if name in measured:
            words_by_id[measured[name].id] = word
    verdicts = list(measured.values())
    return Evidence(verdicts, words_by_id, faults=len(unjudged), decided=overridden_ids)


def _is_under(verdict: VerdictLine, rubric: str | None) -> bool:
    """Whether a verdict was given under this rubric version; older records without a version always match."""
    if rubric is None:
        return True
    version = verdict.rubric.version
    if verdict.imported is not None and not version:
        version = rubric.rpartition("@")[2]
    return rubric == f"{verdict.rubric.id}@{version}"


def _make_label(override: OverrideLine, tasks: Mapping[str, str]) -> Label | None:
    """Turn an override into a label of its content: whoever accepts content says it should be a GO."""
    by_task = (tasks[task] for task in tasks if same_blob(task, override.task_id))
    content = _joined(override.subjects) or next(by_task, None)
    if content is None:
        return None
    word: LabelWord = "go" if override.decision == "accept" else "no-go"
    return Label(of=content, label=word, who=override.who, timestamp=override.timestamp)


def used_again(verdict: VerdictLine) -> bool:
    """Whether the gate reused an earlier verdict, so that no model was asked."""
    return verdict.gate is not None and verdict.gate.cached


def content(verdict: VerdictLine) -> str:
    """Identify judged content by the hashes of its files; older records without hashes, by their task."""
    return _joined(verdict.hashes) or verdict.task_id


def _joined(hashes: Sequence[str]) -> str:
    return "\n".join(sorted(hashes)) if all(hashes) else ""


def agreed(labels: Iterable[Label]) -> dict[str, LabelWord]:
    """Return the label of each labelled verdict: each person's last word, the majority, `unsure` on a tie."""
    last: dict[str, dict[str, LabelWord]] = defaultdict(dict)
    for label in sorted(labels, key=lambda label: label.timestamp):
        last[label.of][label.who] = label.label
    return {of: _choose_majority(words.values()) for of, words in last.items()}


def _choose_majority(words: Iterable[LabelWord]) -> LabelWord:
    """Return the most frequent word; `unsure` on a tie, `withdrawn` if every label was withdrawn."""
    counts = Counter(words)
    del counts["withdrawn"]
    if not counts:
        return "withdrawn"
    (first, most), *others = counts.most_common(2)
    if any(count == most for _, count in others):
        return "unsure"
    return first


def measure(evidence: Evidence) -> list[Kpi]:
    """Measure each KPI over the evidence."""
    strata = evidence.strata()
    kpis = []
    for name, limit in LIMITS.items():
        if limit.rate:
            word, quality = limit.rate
            rate = rates.rate(strata, word, quality)
            kpis.append(Kpi(name, rate.estimate, rate.interval, rate.labels))
    words = Counter(verdict.word for verdict in evidence.verdicts)
    answered = sum(verdict.answered for verdict in evidence.verdicts)
    total = len(evidence.verdicts) + evidence.faults
    kpis.append(share("go", words["GO"], total))
    kpis.append(share("undetermined", words["UNDETERMINED"] + evidence.faults, total))
    kpis.append(share("availability", answered, total))
    kpis.append(_measure_latency(evidence))
    return kpis


def _measure_latency(evidence: Evidence) -> Kpi:
    seconds = []
    for verdict in evidence.verdicts:
        if verdict.imported is None:
            seconds.append(verdict.duration_ms / 1000)
    seconds.sort()
    middle = median(seconds) if seconds else None
    return Kpi("latency", middle, rates.median_interval(seconds), total=len(seconds))


def reliance(evidence: Evidence) -> list[Kpi]:
    """Measure how often a labelled NO-GO, or GO, was wrong."""
    counts = Counter(
        (verdict.word, evidence.labels.get(verdict.id)) for verdict in evidence.verdicts
    )
    nogo = counts["NO-GO", "go"] + counts["NO-GO", "no-go"]
    go = counts["GO", "go"] + counts["GO", "no-go"]
    return [
        share("wrong_nogo", counts["NO-GO", "go"], nogo),
        share("wrong_go", counts["GO", "no-go"], go),
    ]


class Cost(NamedTuple):
    """The cost of verdicts in US dollars; `complete` is False if the cost of some calls is unknown."""

    usd: float
    complete: bool

    def __str__(self) -> str:
        amount = f"{self.usd:.4f} USD"
        return f"cost {amount}" if self.complete else f"cost at least {amount}"

    def record(self) -> dict[str, float | bool]:
        return {"usd": round(self.usd, 6), "complete": self.complete}


def sum_up_cost(verdicts: Iterable[VerdictLine]) -> Cost:
    """Add up the cost of verdicts; one for which no model was asked costs nothing."""
    usd = 0.0
    complete = True
    for verdict in verdicts:
        usd += verdict.cost_usd or 0.0
        is_known = verdict.cost_usd is not None and verdict.cost_complete is not False
        if verdict.rounds and not is_known:
            complete = False
    return Cost(usd, complete)


def share(name: KpiName, hits: int, total: int) -> Kpi:
    interval = rates.share_interval(hits, total)
    value = interval.value if interval else None
    return Kpi(name, value, interval, total, hits=hits)


def by_rubric_and_model(evidence: Evidence) -> tuple[dict[str, Evidence], dict[str, Evidence]]:
    """Split the evidence by rubric version, and by model under its configured name.

    The configured name is used because a reply may give another one, and a failure gives none.
    """
    aliases = _configured_names(evidence.verdicts)
    rubrics = defaultdict[str, list[VerdictLine]](list)
    models = defaultdict[str, list[VerdictLine]](list)
    for verdict in sorted(evidence.verdicts, key=lambda verdict: verdict.timestamp, reverse=True):
        name = f"{verdict.rubric.id}@{verdict.rubric.version or 'imported'}"
        rubrics[rubric_name(name, verdict.rubric.source)].append(verdict)
        models[_model_name(verdict, aliases)].append(verdict)
    by_rubric = {name: evidence.only(group) for name, group in rubrics.items()}
    by_model = {name: evidence.only(group) for name, group in models.items()}
    return by_rubric, by_model


def _model_name(verdict: VerdictLine, aliases: Mapping[str, str]) -> str:
    """Return the configured names of the models that decided, or of the first model asked if none did."""
    replied = verdict.model
    if not replied:
        replied = verdict.rounds[0].model if verdict.rounds else "no model"
    names = {**aliases, **verdict.configured}
    return ", ".join(names.get(name, name) for name in replied.split(", "))


def _configured_names(verdicts: Iterable[VerdictLine]) -> dict[str, str]:
    """Map each model name found in replies to its configured name, if only one is possible.

    Lines of older versions, and of a shared judge, don't record the configured name. Then it's a name that
    other verdicts were asked under and that differs only by a provider in front or a date at the end.
    """
    learned = defaultdict[str, set[str]](set)
    configured = set()
    replied = set()
    for verdict in verdicts:
        for name, behind in verdict.configured.items():
            learned[name].add(behind)
            configured.add(behind)
        for round_ in verdict.rounds:
            if round_.opinion is not None:
                replied.add(round_.model)
            elif round_.model not in verdict.configured:
                configured.add(round_.model)
    for name in replied - learned.keys() - configured:
        learned[name] = {
            other
            for other in configured
            if _strip_provider_and_date(other) == _strip_provider_and_date(name)
        }
    aliases = {}
    for name, names in learned.items():
        if len(names) == 1:
            aliases[name] = names.pop()
    return aliases


def _strip_provider_and_date(model: str) -> str:
    """Return a model's name without its provider and its date."""
    return _DATE.sub("", model.rpartition("/")[2])


class Readiness(NamedTuple):
    """Progress to promotion: `missing` explains each unmet need, `labels` counts those to add by word."""

    kpis: list[Kpi]
    missing: list[str]
    evidence: Evidence
    labels: Mapping[GateWord, int]


def window() -> LineFilter:
    """Select the lines that `standing` and `readiness` need, so that a ledger's other files stay closed."""
    kinds = (VerdictLine, Label, OverrideLine, ModeChange, Fault)
    return LineFilter(since=datetime.now(UTC) - WINDOW, kinds=kinds)


def standing(
    records: Iterable[Record], rubric: str | None = None, now: datetime | None = None
) -> tuple[list[str], bool]:
    """Return the reasons to treat blocking as advisory, and whether the ledger already records that.

    Only what people said since the last promotion counts: whoever pushes can influence shares and times.
    """
    is_recorded = False
    since: list[Record] = []
    for record in sorted(_select_recent(records, now), key=lambda record: record.timestamp):
        if isinstance(record, ModeChange):
            is_recorded = record.mode == "advisory"
            if not is_recorded:
                since = []
        since.append(record)
    missed = []
    for kpi in measure(evidence(since, rubric)):
        if kpi.limit.rate and kpi.state == "missed":
            missed.append(str(kpi))
    return missed, is_recorded


def readiness(
    records: Iterable[Record], rubric: str | None = None, now: datetime | None = None
) -> Readiness:
    """Compare the evidence with everything that a promotion needs."""
    recent = evidence(_select_recent(records, now), rubric)
    strata = recent.strata()
    now = now or datetime.now(UTC)
    covered = now - min((verdict.timestamp for verdict in recent.verdicts), default=now)
    missing = []
    if covered < CALIBRATION:
        days = counted(covered.days, "day", "days")
        missing.append(f"time: verdicts cover {days}; {CALIBRATION.days} are needed")
    labels: dict[GateWord, int] = {}
    kpis = measure(recent)
    for kpi in kpis:
        wanted: rates.Wanted | None = {}
        if kpi.limit.rate:
            word, quality = kpi.limit.rate
            wanted = rates.wanted(strata, word, quality, kpi.limit.high or 0)
            for word, count in (wanted or {}).items():
                labels[word] = max(count, labels.get(word, 0))
        if kpi.state != "holds":
            missing.append(f"{kpi}{_suggest_remedy(kpi, wanted)}")
    return Readiness(kpis, missing, recent, labels)


def _suggest_remedy(kpi: Kpi, wanted: rates.Wanted | None) -> str:
    if not kpi.limit.rate:
        few = kpi.value is not None and kpi.total < LEAST
        return f": at least {LEAST} verdicts are needed" if few else ""
    if kpi.state == "missed":
        return ": the labels show a miss; change the rubric or the models"
    if wanted is None:
        return ": labelling all these verdicts would not settle it; more verdicts are needed"
    why = "not enough labels to be sure"
    if kpi.value is not None and not kpi.limit.holds(kpi.value):
        why = "the estimate misses it, perhaps by chance; to decide"
    phrases = []
    for word, count in sorted(wanted.items()):
        phrases.append(counted(count, f"more {word} verdict", f"more {word} verdicts"))
    counts = " and ".join(phrases)
    return f": {why}: label {counts} (judgekit label asks for them first)"


def _select_recent(records: Iterable[Record], now: datetime | None) -> list[Record]:
    """Return the records of the last `WINDOW`; one dated in the future is left out until then."""
    now = now or datetime.now(UTC)
    return [record for record in records if now - WINDOW <= record.timestamp <= now]
