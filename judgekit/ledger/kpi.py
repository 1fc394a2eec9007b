"""The six KPIs over the lines of a ledger, and whether they let a gate block."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.ledger import rates
from judgekit.ledger.rates import MIN_COUNT, Interval, Quality, Stratum
from judgekit.ledger.records import Fault, Label, ModeChange, OverrideLine, VerdictLine
from judgekit.ledger.store import LineFilter
from judgekit.task_ids import is_same_task
from judgekit.text import format_count, format_rubric_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from judgekit.ledger.records import GateWord, LabelWord, Record

State: TypeAlias = Literal["holds", "missed", "open"]
_Name: TypeAlias = Literal[
    "go", "undetermined", "availability", "latency", "wrong_nogo", "wrong_go"
]
KpiName: TypeAlias = Literal["false_positive_rate", "false_negative_rate"] | _Name

RELIANCE_KPIS: tuple[KpiName, KpiName] = ("wrong_nogo", "wrong_go")
"""Not KPIs themselves: how often a NO-GO, or a GO, turned out wrong."""
WINDOW = timedelta(days=30)  # how far back verdicts count for a promotion
_DATE_SUFFIX_PATTERN = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|\d{6}|latest)$")
MIN_CALIBRATION_TIME = timedelta(days=14)  # the verdicts must cover at least this long


class Limit(NamedTuple):
    """The range that a measure must be in: from `low` to `high`, and with both if `includes_bounds`.

    A measure that `needs_labels` is estimated from a sample; any other counts every verdict. With a
    `word_and_quality`, such as ("accept", "bad"), the measure is a rate: its estimate must be in range, and
    its interval must end within twice the limit. Otherwise, the whole interval must be in range.
    """

    title: str
    low: float | None = None
    high: float | None = None
    includes_bounds: bool = False
    needs_labels: bool = False
    word_and_quality: tuple[GateWord, Quality] | None = None
    unit: Literal["share", "seconds"] = "share"

    def holds(self, value: float) -> bool:
        """Whether a value is between `low` and `high`.

        The bounds themselves count only if `includes_bounds`.
        """
        if self.includes_bounds and value in (self.low, self.high):
            return True
        if self.low is not None and value <= self.low:
            return False
        return self.high is None or value < self.high

    def format_value(self, value: float) -> str:
        """Format a value with its unit: `12.5 s`, `90.0 %`."""
        if self.unit == "seconds":
            return f"{value:.1f} s"
        return f"{100 * value:.1f} %"

    def range_text(self, interval: Interval) -> str:
        return f"{self.format_value(interval.low)} to {self.format_value(interval.high)}"

    def __str__(self) -> str:
        """Describe the range: `wanted 70.0 % to 90.0 %`."""
        if self.low is None:
            return self._describe_upper_limit(self.high or 0.0)
        low_text = self.format_value(self.low)
        if self.high:
            return f"wanted {low_text} to {self.format_value(self.high)}"
        return f"wanted above {low_text}"

    def _describe_upper_limit(self, high: float) -> str:
        """Describe a range that has only an upper limit: `wanted below 15.0 %`."""
        description = f"wanted below {self.format_value(high)}"
        if self.word_and_quality:
            # A rate's interval must end within twice the limit.
            return f"{description}, the interval up to {self.format_value(2 * high)}"
        return description


LIMITS: Mapping[KpiName, Limit] = {
    "false_positive_rate": Limit(
        "false-positive rate", high=0.10, needs_labels=True, word_and_quality=("NO-GO", "good")
    ),
    "false_negative_rate": Limit(
        "false-negative rate", high=0.05, needs_labels=True, word_and_quality=("GO", "bad")
    ),
    "go": Limit("GO", low=0.70, high=0.90, includes_bounds=True),
    "undetermined": Limit("UNDETERMINED", high=0.15),
    "availability": Limit("availability", low=0.95),
    "latency": Limit("median latency", high=30.0, unit="seconds"),
    "wrong_nogo": Limit("wrong NO-GO", high=0.10, needs_labels=True),
    "wrong_go": Limit("wrong GO", high=0.05, needs_labels=True),
}


class Kpi(NamedTuple):
    """One measure: its value (None if nothing was measured), its 95 % interval, and the sample size."""

    name: KpiName
    value: float | None
    interval: Interval | None
    sample_size: int
    hit_count: int = 0

    @property
    def limit(self) -> Limit:
        return LIMITS[self.name]

    @property
    def state(self) -> State:
        """Whether the measure meets its limit: "holds", "missed" or "open".

        "missed" means that the entire interval is out of range. "open" means that the evidence isn't enough.
        """
        has_enough_verdicts = self.sample_size >= MIN_COUNT
        if not has_enough_verdicts:
            return "open"
        if self._is_interval_out_of_range():
            return "missed"

        is_in_range = self.value is not None and self.limit.holds(self.value)
        if not is_in_range:
            return "open"

        # People label only a sample of the verdicts, so the value can be right by chance. Check the interval.
        if self.limit.needs_labels:
            return "holds" if self._is_interval_within_limit() else "open"
        return "holds"

    def _is_interval_out_of_range(self) -> bool:
        """Whether the entire interval is below or above the range; False without an interval."""
        if self.interval is None:
            return False
        lowest_allowed = self.limit.low or 0.0
        highest_allowed = self.limit.high or inf
        return self.interval.high < lowest_allowed or self.interval.low > highest_allowed

    def _is_interval_within_limit(self) -> bool:
        """Whether the interval is narrow enough to show that a labelled measure meets its limit."""
        interval = self.interval
        limit = self.limit
        if interval is None:
            return False
        if limit.word_and_quality:
            # A rate's estimate must be within the limit, but its interval may extend to twice the limit.
            highest_allowed = 2 * (limit.high or 0)
            return interval.high <= highest_allowed
        return limit.holds(interval.low) and limit.holds(interval.high)

    def __str__(self) -> str:
        """Format the measure as a line: its title, value, sample size, interval and limit."""
        limit = self.limit
        if self.value is None and self.interval is None:
            return f"{limit.title}: nothing measured yet ({limit})"

        value = "unknown" if self.value is None else limit.format_value(self.value)
        interval = ""
        if self.interval is not None:
            interval = f", 95 % interval {limit.range_text(self.interval)}"
        noun = "labelled verdict" if limit.needs_labels else "verdict"
        sample = format_count(self.sample_size, noun, f"{noun}s")
        # A rate is estimated from the sample. Other values describe the sample itself.
        preposition = "from" if limit.word_and_quality else "of"
        return f"{limit.title} {value} {preposition} {sample}{interval} ({limit})"


class Evidence(NamedTuple):
    """The verdicts to measure (the last of each content), people's labels by verdict id, unjudged files."""

    verdicts: Sequence[VerdictLine]
    labels: Mapping[str, LabelWord]
    fault_count: int = 0
    overridden_ids: Collection[str] = frozenset()

    def restrict_to(self, verdicts: Sequence[VerdictLine]) -> Evidence:
        """Return the evidence about these verdicts only, without faults."""
        # A fault doesn't belong to any rubric or model, by which callers select verdicts.
        return Evidence(verdicts, self.labels, overridden_ids=self.overridden_ids)

    def has_clear_label(self, verdict: VerdictLine) -> bool:
        """Whether most labels of a verdict agree that its content is good, or that it's bad."""
        return self.labels.get(verdict.id) in ("go", "no-go")

    def count_strata(self) -> list[Stratum]:
        """Group the verdicts by word, and count the labels in each group.

        Overridden verdicts form separate groups. They're no random sample, because people choose which
        verdicts to override.
        """
        groups: dict[tuple[GateWord, bool], list[VerdictLine]] = defaultdict(list)
        for verdict in self.verdicts:
            is_overridden = self._is_clearly_overridden(verdict)
            groups[verdict.word, is_overridden].append(verdict)

        strata = []
        for (word, is_overridden), verdicts in sorted(groups.items()):
            counts = Counter(self.labels.get(verdict.id) for verdict in verdicts)
            good_count = counts["go"]
            label_count = good_count + counts["no-go"]
            strata.append(
                Stratum(word, len(verdicts), label_count, good_count, is_overridden=is_overridden)
            )
        return strata

    def _is_clearly_overridden(self, verdict: VerdictLine) -> bool:
        """Whether a person has overridden a verdict, and no other person's label contradicts that."""
        has_override = verdict.id in self.overridden_ids
        return has_override and self.has_clear_label(verdict)


def collect_evidence(records: Iterable[Record], rubric: str | None = None) -> Evidence:
    """Collect a ledger's verdicts to measure, and people's labels for them.

    Only the gate's own verdicts count, and only the best one for each content. If given, `rubric`
    (`id@version`) restricts them to that rubric.
    """
    records = list(records)
    all_verdicts = [record for record in records if isinstance(record, VerdictLine)]
    # Verdicts `of_task` are on agents' tasks and weren't given by the gate.
    gate_verdicts = [verdict for verdict in all_verdicts if not verdict.of_task]
    measured_by_content = _choose_best_verdicts(gate_verdicts, rubric)

    # Assign labels by content, since people may have labelled another verdict on the same content.
    labels = _collect_labels(records, gate_verdicts)
    override_labels = _collect_override_labels(records, gate_verdicts)
    label_by_content = find_majority_labels([*labels, *override_labels])
    overridden_contents = {label.of for label in override_labels}

    # From here on, use the ids of the measured verdicts instead of their contents.
    label_by_id = {}
    overridden_ids = set()
    for content, verdict in measured_by_content.items():
        if content in label_by_content:
            label_by_id[verdict.id] = label_by_content[content]
        if content in overridden_contents:
            overridden_ids.add(verdict.id)

    verdicts = list(measured_by_content.values())
    return Evidence(verdicts, label_by_id, _count_unjudged_files(records), overridden_ids)


def _choose_best_verdicts(
    verdicts: Iterable[VerdictLine], rubric: str | None
) -> dict[str, VerdictLine]:
    """Choose the best verdict on each content. Reused verdicts and those under other rubrics don't count."""
    best_by_content: dict[str, VerdictLine] = {}
    for verdict in verdicts:
        if is_reused(verdict) or not _is_under_rubric(verdict, rubric):
            continue
        content = identify_content(verdict)
        if _outranks(verdict, best_by_content.get(content)):
            best_by_content[content] = verdict
    return best_by_content


def _is_under_rubric(verdict: VerdictLine, rubric: str | None) -> bool:
    """Whether a verdict was given under a rubric (`id@version`). None matches any rubric."""
    if rubric is None:
        return True
    version = verdict.rubric.version
    if verdict.imported is not None and not version:
        # Imported verdicts often lack the version. Let them match every version of their rubric.
        _, _, version = rubric.rpartition("@")
    return rubric == f"{verdict.rubric.id}@{version}"


def _outranks(verdict: VerdictLine, other: VerdictLine | None) -> bool:
    """Whether to measure a verdict in place of `other`, which is on the same content.

    An answered verdict outranks an unanswered one, then the newer outranks the older.
    """
    if other is None:
        return True
    return (verdict.answered, verdict.timestamp) > (other.answered, other.timestamp)


def _collect_labels(records: Iterable[Record], verdicts: Iterable[VerdictLine]) -> list[Label]:
    """Collect people's labels of these verdicts, as labels of the verdicts' contents."""
    content_by_id = {verdict.id: identify_content(verdict) for verdict in verdicts}
    labels = []
    for record in records:
        if isinstance(record, Label) and record.of in content_by_id:
            # Several verdicts can be on the same content. A label of one of them counts for all.
            content = content_by_id[record.of]
            labels.append(record.model_copy(update={"of": content}))
    return labels


def _collect_override_labels(
    records: Iterable[Record], verdicts: Iterable[VerdictLine]
) -> list[Label]:
    """Convert the overrides that people typed at a terminal to labels of the overridden contents."""
    content_by_task = {verdict.task_id: identify_content(verdict) for verdict in verdicts}
    labels = []
    for record in records:
        if isinstance(record, OverrideLine) and record.terminal:
            label = _make_label(record, content_by_task)
            if label is not None:
                labels.append(label)
    return labels


def _make_label(override: OverrideLine, content_by_task: Mapping[str, str]) -> Label | None:
    """Convert an override to a label for the overridden content; None if the content is unknown."""
    # The content's key is made of the hashes of its files.
    content: str | None = _join_hashes(override.subjects)
    if not content:  # the override has no file hashes
        content = _find_content_of_task(override.task_id, content_by_task)
    if content is None:
        return None
    word: LabelWord = "go" if override.decision == "accept" else "no-go"
    return Label(of=content, label=word, who=override.who, timestamp=override.timestamp)


def _find_content_of_task(task_id: str, content_by_task: Mapping[str, str]) -> str | None:
    """Find the content that was judged under a task's id; None if there's none."""
    # The ids can differ: one of them may have a shorter hash.
    for known_task_id, content in content_by_task.items():
        if is_same_task(known_task_id, task_id):
            return content
    return None


def _count_unjudged_files(records: Iterable[Record]) -> int:
    """Count the distinct files that couldn't be judged because of faults."""
    paths = set()
    for record in records:
        if isinstance(record, Fault):
            # A fault without paths counts as one file. A NUL in its name keeps it distinct from any path.
            paths.update(record.paths or [f"\0{record.id}"])
    return len(paths)


def is_reused(verdict: VerdictLine) -> bool:
    """Whether the gate reused an earlier verdict instead of asking a model."""
    return verdict.gate is not None and verdict.gate.cached


def identify_content(verdict: VerdictLine) -> str:
    """Return a key for the judged content: the file hashes, or else the task id."""
    return _join_hashes(verdict.hashes) or verdict.task_id


def _join_hashes(hashes: Sequence[str]) -> str:
    """Join hashes in sorted order; "" if there are none or any is missing."""
    if not all(hashes):
        return ""
    return "\n".join(sorted(hashes))


def find_majority_labels(labels: Iterable[Label]) -> dict[str, LabelWord]:
    """Map each key that labels are `of` to its majority label; `unsure` on a tie.

    A key is a verdict's id, or a content. If a person labelled it several times, the last label counts.
    """
    labels_by_key: dict[str, dict[str, LabelWord]] = defaultdict(dict)
    for label in sorted(labels, key=lambda label: label.timestamp):
        label_by_person = labels_by_key[label.of]
        label_by_person[label.who] = label.label  # replaces the person's earlier label

    return {
        key: _choose_majority(label_by_person.values())
        for key, label_by_person in labels_by_key.items()
    }


def _choose_majority(words: Iterable[LabelWord]) -> LabelWord:
    """Return the most frequent label, ignoring withdrawn ones; `unsure` on a tie.

    If all were withdrawn, returns `withdrawn`.
    """
    counts = Counter(words)
    del counts["withdrawn"]
    if not counts:
        return "withdrawn"
    highest = max(counts.values())
    winners = [word for word, count in counts.items() if count == highest]
    return winners[0] if len(winners) == 1 else "unsure"


def measure_kpis(evidence: Evidence) -> list[Kpi]:
    """Measure each KPI over the evidence."""
    words = Counter(verdict.word for verdict in evidence.verdicts)
    answered_count = sum(verdict.answered for verdict in evidence.verdicts)
    # A file that couldn't be judged counts as an UNDETERMINED verdict that no model answered.
    undetermined_count = words["UNDETERMINED"] + evidence.fault_count
    total = len(evidence.verdicts) + evidence.fault_count
    return [
        *_measure_error_rates(evidence),
        make_share_kpi("go", words["GO"], total),
        make_share_kpi("undetermined", undetermined_count, total),
        make_share_kpi("availability", answered_count, total),
        _measure_latency(evidence),
    ]


def _measure_error_rates(evidence: Evidence) -> list[Kpi]:
    """Estimate the error rates from people's labels."""
    strata = evidence.count_strata()  # groups of verdicts with the same word
    kpis = []
    for name, limit in LIMITS.items():
        if limit.word_and_quality:
            # The rate is the share of content with this quality that got this word.
            word, quality = limit.word_and_quality
            rate = rates.estimate_rate(strata, word, quality)
            kpis.append(Kpi(name, rate.estimate, rate.interval, sample_size=rate.label_count))
    return kpis


def _measure_latency(evidence: Evidence) -> Kpi:
    """Measure the median duration of the verdicts, except imported ones, which lack a duration."""
    durations = []
    for verdict in evidence.verdicts:
        if verdict.imported is None:
            durations.append(verdict.duration_ms / 1000)
    durations.sort()
    median_seconds = median(durations) if durations else None
    return Kpi(
        "latency", median_seconds, rates.median_interval(durations), sample_size=len(durations)
    )


def measure_reliance(evidence: Evidence) -> list[Kpi]:
    """Measure how often verdicts are wrong, as a share of the labelled NO-GOs and of the labelled GOs."""
    counts: Counter[tuple[GateWord, LabelWord | None]] = Counter()
    for verdict in evidence.verdicts:
        label = evidence.labels.get(verdict.id)
        counts[verdict.word, label] += 1

    wrong_nogo = counts["NO-GO", "go"]
    labelled_nogo = wrong_nogo + counts["NO-GO", "no-go"]
    wrong_go = counts["GO", "no-go"]
    labelled_go = wrong_go + counts["GO", "go"]
    return [
        make_share_kpi("wrong_nogo", wrong_nogo, total=labelled_nogo),
        make_share_kpi("wrong_go", wrong_go, total=labelled_go),
    ]


class Cost(NamedTuple):
    """The cost of verdicts in US dollars; `is_complete` is False if the cost of some calls is unknown."""

    usd: float
    is_complete: bool

    def __str__(self) -> str:
        if self.is_complete:
            return f"cost {self.usd:.4f} USD"
        return f"cost at least {self.usd:.4f} USD"

    def record(self) -> dict[str, float | bool]:
        return {"usd": round(self.usd, 6), "complete": self.is_complete}


def sum_up_cost(verdicts: Iterable[VerdictLine]) -> Cost:
    """Add up verdicts' costs. The sum is incomplete if any model call's cost is unknown."""
    usd = 0.0
    is_complete = True
    for verdict in verdicts:
        usd += verdict.cost_usd or 0.0
        if not _is_cost_known(verdict):
            is_complete = False
    return Cost(usd, is_complete)


def _is_cost_known(verdict: VerdictLine) -> bool:
    """Whether the costs of all of a verdict's model calls are known."""
    called_models = bool(verdict.rounds)
    if not called_models:
        return True
    if verdict.cost_usd is None:
        return False
    # Older versions didn't record `cost_complete`, so it's None. Trust their costs.
    return verdict.cost_complete is not False


def make_share_kpi(name: KpiName, hits: int, total: int) -> Kpi:
    """Build the KPI for `hits` in `total`; its value is None if `total` is 0."""
    interval = rates.wilson_interval(hits, total)
    if interval is None:
        return Kpi(name, None, None, total, hit_count=hits)
    return Kpi(name, interval.value, interval, total, hit_count=hits)


def split_by_rubric_and_model(
    evidence: Evidence,
) -> tuple[dict[str, Evidence], dict[str, Evidence]]:
    """Split the evidence by rubric version, and separately by model.

    Returns the evidence by rubric, and the evidence by model. In each dict, the names with the newest
    verdicts come first.
    """
    # Use the models' configured names, since replies can name the same model differently.
    configured_names = _find_configured_names(evidence.verdicts)
    verdicts_by_rubric = defaultdict[str, list[VerdictLine]](list)
    verdicts_by_model = defaultdict[str, list[VerdictLine]](list)

    newest_first = sorted(evidence.verdicts, key=lambda verdict: verdict.timestamp, reverse=True)
    for verdict in newest_first:
        rubric = _name_rubric(verdict)
        verdicts_by_rubric[rubric].append(verdict)
        models = _name_models(verdict, configured_names)
        verdicts_by_model[models].append(verdict)

    return _restrict_each(evidence, verdicts_by_rubric), _restrict_each(evidence, verdicts_by_model)


def _name_rubric(verdict: VerdictLine) -> str:
    """Return the name of a verdict's rubric with its version, which imported verdicts often lack."""
    rubric = verdict.rubric
    versioned_id = f"{rubric.id}@{rubric.version or 'imported'}"
    return format_rubric_name(versioned_id, rubric.source)


def _name_models(verdict: VerdictLine, configured_names: Mapping[str, str]) -> str:
    """Return the configured names of the models behind a verdict, separated by commas.

    If no model decided, name those of the first round. Without any rounds, return "no model".
    """
    if verdict.model:
        models = verdict.model.split(", ")
    elif verdict.rounds:
        models = verdict.rounds[0].model.split(", ")
    else:
        return "no model"
    names = {**configured_names, **verdict.configured}
    return ", ".join(names.get(model, model) for model in models)


def _restrict_each(
    evidence: Evidence, groups: Mapping[str, Sequence[VerdictLine]]
) -> dict[str, Evidence]:
    """Restrict the evidence to the verdicts of each group, by the group's name."""
    return {name: evidence.restrict_to(verdicts) for name, verdicts in groups.items()}


def _find_configured_names(verdicts: Iterable[VerdictLine]) -> dict[str, str]:
    """Map model names in replies to the configured names.

    Some lines, such as those by older versions, lack configured names. For these, use a configured name from
    another line that differs only in its provider prefix or date suffix. For example, "gpt-4o-2024-08-06" can
    become "openai/gpt-4o". Names in replies that match several configured names are left out.
    """
    verdicts = list(verdicts)
    candidates_by_reply_name = _collect_recorded_names(verdicts)
    configured_names = _collect_configured_names(verdicts)
    for reply_name in _collect_reply_names(verdicts):
        has_candidates = reply_name in candidates_by_reply_name
        is_configured_name = reply_name in configured_names  # then it needs no mapping
        if not has_candidates and not is_configured_name:
            similar_names = _find_similar_names(reply_name, configured_names)
            candidates_by_reply_name[reply_name] = similar_names

    configured_name_by_reply_name = {}
    for reply_name, candidates in candidates_by_reply_name.items():
        if len(candidates) == 1:
            configured_name_by_reply_name[reply_name] = candidates.pop()
    return configured_name_by_reply_name


def _collect_recorded_names(verdicts: Iterable[VerdictLine]) -> dict[str, set[str]]:
    """Collect the configured names that verdicts record for each model name in replies."""
    configured_names_by_reply_name = defaultdict[str, set[str]](set)
    for verdict in verdicts:
        for reply_name, configured_name in verdict.configured.items():
            configured_names_by_reply_name[reply_name].add(configured_name)
    return configured_names_by_reply_name


def _collect_configured_names(verdicts: Iterable[VerdictLine]) -> set[str]:
    """Collect the configured names of models that appear in verdicts."""
    configured_names: set[str] = set()
    for verdict in verdicts:
        configured_names.update(verdict.configured.values())
        for round_ in verdict.rounds:
            # The round of a failed call has the configured name, unless there was an unusable reply. Then the
            # round has the reply's name.
            has_failed = round_.opinion is None
            is_reply_name = round_.model in verdict.configured
            if has_failed and not is_reply_name:
                configured_names.add(round_.model)
    return configured_names


def _collect_reply_names(verdicts: Iterable[VerdictLine]) -> set[str]:
    """Collect the names of models in replies."""
    names = set()
    for verdict in verdicts:
        for round_ in verdict.rounds:
            if round_.opinion is not None:
                names.add(round_.model)
    return names


def _find_similar_names(name: str, configured_names: Iterable[str]) -> set[str]:
    """Find the configured names that differ from `name` only in the provider or the date."""
    bare_name = _strip_provider_and_date(name)
    return {other for other in configured_names if _strip_provider_and_date(other) == bare_name}


def _strip_provider_and_date(model: str) -> str:
    """Shorten a model's name: `openai/gpt-4o-2024-08-06` becomes `gpt-4o`."""
    _, _, name = model.rpartition("/")
    return _DATE_SUFFIX_PATTERN.sub("", name)


class Readiness(NamedTuple):
    """Progress to promotion: an explanation of each unmet need, and the number of missing labels by word."""

    kpis: list[Kpi]
    unmet_needs: list[str]
    evidence: Evidence
    missing_labels_by_word: Mapping[GateWord, int]


def make_window_filter() -> LineFilter:
    """Return a filter for the recent records that `find_missed_rates` and `assess_readiness` use."""
    kinds = (VerdictLine, Label, OverrideLine, ModeChange, Fault)
    return LineFilter(since=datetime.now(UTC) - WINDOW, kinds=kinds)


def find_missed_rates(
    records: Iterable[Record], rubric: str | None = None, now: datetime | None = None
) -> tuple[list[str], bool]:
    """Return the error rates that miss their limit, and whether the gate has already been made advisory.

    Only records since the gate became blocking count, if it has.
    """
    recent = sorted(_select_recent(records, now), key=lambda record: record.timestamp)
    mode_changes = [record for record in recent if isinstance(record, ModeChange)]
    is_advisory = bool(mode_changes) and mode_changes[-1].mode == "advisory"

    missed_rates = []
    evidence = collect_evidence(_select_since_promotion(recent), rubric)
    for kpi in measure_kpis(evidence):
        # Only these rates are based on people's labels. Anyone who pushes can influence the other measures.
        is_error_rate = kpi.limit.word_and_quality is not None
        if is_error_rate and kpi.state == "missed":
            missed_rates.append(str(kpi))
    return missed_rates, is_advisory


def _select_since_promotion(records: Sequence[Record]) -> Sequence[Record]:
    """Select the records since the gate last became blocking; all of them if there's no such record."""
    start = 0
    for index, record in enumerate(records):
        if isinstance(record, ModeChange) and record.mode == "blocking":
            start = index
    return records[start:]


def assess_readiness(
    records: Iterable[Record], rubric: str | None = None, now: datetime | None = None
) -> Readiness:
    """Check whether recent verdicts and labels meet the requirements for letting the gate block pushes."""
    evidence = collect_evidence(_select_recent(records, now), rubric)
    unmet_needs = _describe_missing_time(evidence, now or datetime.now(UTC))

    strata = evidence.count_strata()
    needed_labels: dict[GateWord, int] = {}
    kpis = measure_kpis(evidence)
    for kpi in kpis:
        if kpi.limit.word_and_quality:
            # An error rate: ("GO", "bad") means the share of bad content that got GO.
            word, quality = kpi.limit.word_and_quality
            highest_rate = kpi.limit.high or 0
            # If the labels already show that the rate holds, no more are wanted.
            wanted = rates.count_wanted_labels(strata, word, quality, bar=highest_rate)
            _raise_counts(needed_labels, wanted or {})
            remedy = _ask_for_labels(kpi, wanted)
        else:
            remedy = _ask_for_verdicts(kpi)

        if kpi.state != "holds":
            unmet_needs.append(f"{kpi}{remedy}")

    return Readiness(kpis, unmet_needs, evidence, needed_labels)


def _describe_missing_time(evidence: Evidence, now: datetime) -> list[str]:
    """Return a message if the verdicts don't cover enough time, else an empty list."""
    times = [verdict.timestamp for verdict in evidence.verdicts]
    first_time = min([now, *times])  # without verdicts, no time is covered
    covered_time = now - first_time
    if covered_time >= MIN_CALIBRATION_TIME:
        return []
    days = format_count(covered_time.days, "day", "days")
    return [f"time: verdicts cover {days}; {MIN_CALIBRATION_TIME.days} are needed"]


def _raise_counts(counts: dict[GateWord, int], wanted: rates.Wanted) -> None:
    """Raise the count of each word to the wanted one, if that's higher."""
    # The same labels can help two rates, so take the larger count instead of adding them up.
    for word, count in wanted.items():
        counts[word] = max(count, counts.get(word, 0))


def _ask_for_verdicts(kpi: Kpi) -> str:
    """Request more verdicts if a measured KPI has too few; else return ""."""
    if kpi.value is None or kpi.sample_size >= MIN_COUNT:
        return ""
    return f": at least {MIN_COUNT} verdicts are needed"


def _ask_for_labels(kpi: Kpi, wanted: rates.Wanted | None) -> str:
    """Describe how to find out whether a rate meets its limit. The text is appended to the rate's line.

    `wanted` is the number of further labels needed for each word, or None if labels alone can't decide it.
    """
    if kpi.state == "missed":
        return ": the labels show a miss; change the rubric or the models"
    if wanted is None:
        return ": labelling all these verdicts would not settle it; more verdicts are needed"

    may_meet_limit = kpi.value is None or kpi.limit.holds(kpi.value)
    if may_meet_limit:
        reason = "not enough labels to be sure"
    else:
        reason = "the estimate misses it, perhaps by chance; to decide"

    phrases = []
    for word, count in sorted(wanted.items()):
        phrases.append(format_count(count, f"more {word} verdict", f"more {word} verdicts"))
    counts = " and ".join(phrases)
    return f": {reason}: label {counts} (judgekit label asks for them first)"


def _select_recent(records: Iterable[Record], now: datetime | None) -> list[Record]:
    """Return the records of the last `WINDOW` before `now`, without any dated in the future."""
    now = now or datetime.now(UTC)
    oldest = now - WINDOW
    return [record for record in records if oldest <= record.timestamp <= now]
