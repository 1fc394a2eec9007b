"""A promise of agreement: which first opinions may stand for a strong judge's verdicts, by a sample of these.

The strong judge is asked about each row with the same probability, the rate. So each row on which the two
disagree is in the sample with that probability, whatever its place, its text or its sureness. Go through the
rows in any order that doesn't look ahead. The number of disagreements that the sample shows before the
(budget + 1)-th one that it doesn't show has a negative binomial distribution, and nothing else matters. Stop
before the sample shows more of them than that distribution has in its lower tail, and at most `budget` are
left among the rows that nobody else looked at. The test is exact, needs no correction for the number of
places at which one could have stopped, and lets the order follow what the sample has shown so far.

Inverse sampling goes back to J. B. S. Haldane, "On a method of estimating frequencies", Biometrika 33(3),
1945. Cascades with other tests: BARGAIN (arXiv 2509.02896) and LOTUS (arXiv 2407.11418).
"""

from __future__ import annotations

import functools
import math
import random
from collections import deque
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.judging.binomial import compute_lower_tail
from judgekit.judging.evidence import FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.evaluation.samples import Sample
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.verdict import VerdictWord

    StrongVerdicts: TypeAlias = Mapping[int, VerdictWord]

SIGNIFICANCE_LEVEL = 0.05  # of breaking a promise: 1 in 20
MIN_ROWS = 50
"""With fewer, the strong judge is asked about all."""
_RATES = [percent / 100 for percent in range(2, 96)]
# The fraction of rows that a judge decides grows roughly with the square root of the disagreements
# allowed. That holds for true probabilities, and for the recorded pairs in `bench/judged`.
_DECIDED_ROWS_EXPONENT = 0.5
_MAX_REMEMBERED_ROWS = 50  # sampled rows whose agreement predicts that of the next ones
_PRIOR_ROWS = 1.0
_PRIOR_DISAGREEMENT = 0.1
_ACCEPTED_PARTS = 4  # the surest one, two, three or all quarters of the acceptances may be final
_ROUNDING = 1e-9
_SIMULATED_RUNS = 5
_SEED = 1

Agrees: TypeAlias = Literal["verdict", "accepted"]


class Promise(NamedTuple):
    """The promise: this `share` of rows has the strong judge's verdict, with 95 % confidence."""

    share: float
    on: Agrees = "verdict"
    """Whether verdicts agree if they're the same word, or if both accept or neither does."""
    strict: bool = False
    """Whether the final acceptances also keep the promise by themselves."""

    def holds_for(self, first: Outcome, strong: str) -> bool:
        """Whether the first tier's verdict agrees with the strong judge's. False if the latter is undecided.

        With `on="accepted"`, an improve and a reject agree, because neither accepts.
        """
        is_decided = strong in ("accept", "improve", "reject")
        if not is_decided:
            return False
        if self.on == "accepted":
            first_accepts = first == "accept"
            strong_accepts = strong == "accept"
            return first_accepts == strong_accepts
        return first == strong

    def budget(self, rows: int) -> int:
        """Return the number of disagreements that the promise allows among `rows` rows."""
        # Compensate floating-point errors: (1 - 0.9) * 10 is slightly less than 1.
        return math.floor((1 - self.share) * rows + _ROUNDING)


class FirstOpinion(NamedTuple):
    """The first tier's opinion of a row."""

    row_number: int
    outcome: Outcome
    sureness: float
    """The distance to another opinion; only its order matters."""
    sampling_draw: float
    """An independent random number from 0 to 1; below the rate, the row is in the sample."""
    tie_breaker: float = 0.0
    """Another one, which orders equally sure opinions."""


class Plan(NamedTuple):
    """The plan for asking the strong judge, made before any of its verdicts is known."""

    promise: Promise
    rows: int
    groups: tuple[Group, ...]

    def rates(self) -> dict[int, float]:
        """Return the sampling rate of each row that is in a group."""
        rates = {}
        for group in self.groups:
            for opinion in group.opinions:
                rates[opinion.row_number] = group.sampling_rate
        return rates

    @property
    def sampled(self) -> frozenset[int]:
        """The rows that the strong judge always judges, chosen before any of its verdicts is known."""
        rows = set()
        for group in self.groups:
            for opinion in group.opinions:
                if group.is_in_sample(opinion):
                    rows.add(opinion.row_number)
        return frozenset(rows)


class Group(NamedTuple):
    """Opinions that share a budget of disagreements and a sampling rate."""

    opinions: tuple[FirstOpinion, ...]
    sampling_rate: float
    level: float
    is_separate: bool = False
    """Whether these are the acceptances that keep the promise by themselves."""

    def is_in_sample(self, opinion: FirstOpinion) -> bool:
        """Whether an opinion's row is in the sample, because its random number is below the rate."""
        return opinion.sampling_draw < self.sampling_rate


class Settled(NamedTuple):
    """The conclusions from a sample about the rows outside it."""

    final: frozenset[int]
    """The rows whose first opinion is final."""
    counted: frozenset[int]
    """The sampled rows that show the quality of the final ones."""


NOTHING_FINAL = Settled(frozenset(), frozenset())


def plan(opinions: Sequence[FirstOpinion], rows: int, promise: Promise) -> Plan:
    """Choose the rates at which the strong judge checks samples of the first tier's opinions.

    `opinions` are the first tier's opinions that can become final. `rows` is the total number of rows, and
    `promise` limits how many final opinions the strong judge would disagree with.
    """
    if rows < MIN_ROWS or not opinions:
        return Plan(promise, rows, groups=())

    budget = promise.budget(rows)  # the number of disagreements that the promise allows
    if promise.strict:
        return Plan(promise, rows, _build_strict_groups(opinions, budget, promise))
    group = Group(
        tuple(opinions),
        sampling_rate=choose_rate(budget, SIGNIFICANCE_LEVEL),
        level=SIGNIFICANCE_LEVEL,
    )
    return Plan(promise, rows, (group,))


def _build_strict_groups(
    opinions: Sequence[FirstOpinion], budget: int, promise: Promise
) -> tuple[Group, Group]:
    """Group the opinions into acceptances and others, and divide the budget between the two groups."""
    accepted = tuple(opinion for opinion in opinions if opinion.outcome == "accept")
    other_opinions = tuple(opinion for opinion in opinions if opinion.outcome != "accept")

    # The acceptances must also keep the promise by themselves, so their number sets their budget.
    accepted_budget = promise.budget(len(accepted))
    accepted_level = compute_level(is_strict=True, is_separate=True)
    accepted_rate = choose_rate(accepted_budget, accepted_level)

    other_level = compute_level(is_strict=True, is_separate=False)
    other_rate = choose_rate(budget - accepted_budget, other_level)
    return (
        Group(accepted, sampling_rate=accepted_rate, level=accepted_level, is_separate=True),
        Group(other_opinions, sampling_rate=other_rate, level=other_level),
    )


def compute_level(*, is_strict: bool, is_separate: bool) -> float:
    """Compute the probability with which a group of opinions may break the promise.

    In strict mode, the acceptances are a separate group, which must keep the promise by itself.
    """
    if not is_strict:
        return SIGNIFICANCE_LEVEL

    # There are two groups, and together they may break the promise with a probability of
    # `SIGNIFICANCE_LEVEL`.
    group_level = SIGNIFICANCE_LEVEL / 2
    if is_separate:
        # The surest quarter of the acceptances is tested, then the surest half, and so on. Each test may be
        # wrong, so they share the group's level.
        return group_level / _ACCEPTED_PARTS
    return group_level


def settle(plan: Plan, strong_verdicts: StrongVerdicts) -> Settled:
    """Find the rows whose first opinion becomes final, using the strong judge's verdicts on the sample.

    A sampled row without a verdict counts as a disagreement. If the strong judge has judged further rows,
    these don't become final. Returns the final rows, and the sampled rows that prove them.
    """
    final: set[int] = set()
    counted: set[int] = set()  # sampled rows
    budget = plan.promise.budget(plan.rows)
    for group in plan.groups:
        walk = _Walk(group, plan.promise, strong_verdicts)
        if group.is_separate:
            group_settled = walk.settle_separately()
            # The separate group comes first, and the other one gets what remains of the budget.
            budget -= plan.promise.budget(len(group_settled.final))
        else:
            group_settled = walk.settle_within(budget)
        final |= group_settled.final
        counted |= group_settled.counted
    return Settled(frozenset(final), frozenset(counted))


class _Walk:
    """Walks through a group's opinions, the surest first, following the sample's verdicts."""

    def __init__(self, group: Group, promise: Promise, strong_verdicts: StrongVerdicts) -> None:
        self._group = group
        self._promise = promise
        self._strong_verdicts = strong_verdicts

    def settle_within(self, budget: int) -> Settled:
        """Make opinions final, one by one, until the sample shows too many disagreements for the budget.

        Returns the rows with final opinions, and the sampled rows that were counted.
        """
        group = self._group
        allowed_disagreements = max_sampled_disagreements(budget, group.sampling_rate, group.level)
        if allowed_disagreements < 0:
            return NOTHING_FINAL

        final: list[int] = []
        counted: list[int] = []
        disagreements = 0
        queues = _Queues(group.opinions)
        while (opinion := queues.take_next()) is not None:
            if group.is_in_sample(opinion):
                disagrees = self._disagrees(opinion)
                # After a disagreement, the next opinion is less likely to come from the same queue.
                queues.note(opinion.outcome, disagrees=disagrees)
                if disagrees:
                    disagreements += 1
                if disagreements > allowed_disagreements:
                    break
                counted.append(opinion.row_number)
            # If the strong judge has judged a row outside the sample, its verdict counts instead of this
            # opinion.
            elif self._lacks_strong_verdict(opinion):
                final.append(opinion.row_number)
        return Settled(frozenset(final), frozenset(counted))

    def settle_separately(self) -> Settled:
        """Make as many of the surest opinions final as keep the promise by themselves.

        Returns the rows with final opinions, and the sampled rows that were counted.
        """
        opinions = sorted(self._group.opinions, key=_rank_by_sureness)
        settled = NOTHING_FINAL

        # Try the surest quarter, then the surest half, and so on. The largest part that passes counts. The
        # level takes into account that there are multiple attempts.
        for part_number in range(1, _ACCEPTED_PARTS + 1):
            surest_count = len(opinions) * part_number // _ACCEPTED_PARTS
            settled_part = self._settle_part(opinions[:surest_count])
            if settled_part is not None:
                settled = settled_part
        return settled

    def _settle_part(self, opinions: Sequence[FirstOpinion]) -> Settled | None:
        """Make the opinions outside the sample final.

        Returns None if there are none, or if the strong judge disagrees too often in the sample.
        """
        group = self._group
        sampled = []
        final = []
        for opinion in opinions:
            if group.is_in_sample(opinion):
                sampled.append(opinion)
            elif self._lacks_strong_verdict(opinion):
                final.append(opinion.row_number)
        if not final:
            return None

        budget = self._promise.budget(len(final))
        allowed_disagreements = max_sampled_disagreements(budget, group.sampling_rate, group.level)
        disagreements = sum(self._disagrees(opinion) for opinion in sampled)
        if disagreements > allowed_disagreements:
            return None
        counted = frozenset(opinion.row_number for opinion in sampled)
        return Settled(frozenset(final), counted)

    def _lacks_strong_verdict(self, opinion: FirstOpinion) -> bool:
        return opinion.row_number not in self._strong_verdicts

    def _disagrees(self, opinion: FirstOpinion) -> bool:
        """Whether the strong judge's verdict differs from the first opinion, or is missing."""
        strong = self._strong_verdicts.get(opinion.row_number, "undetermined")
        return not self._promise.holds_for(opinion.outcome, strong)


class _Queues:
    """Queues opinions by outcome, the surest first. The queue with the best record is next."""

    def __init__(self, opinions: Sequence[FirstOpinion]) -> None:
        self._queues: dict[Outcome, deque[FirstOpinion]] = {}
        for opinion in sorted(opinions, key=_rank_by_sureness):
            self._queues.setdefault(opinion.outcome, deque()).append(opinion)
        # Whether the strong judge disagreed with each queue's latest sampled opinions
        self._latest_disagreements: dict[Outcome, deque[bool]] = {}
        for outcome in self._queues:
            self._latest_disagreements[outcome] = deque(maxlen=_MAX_REMEMBERED_ROWS)

    def take_next(self) -> FirstOpinion | None:
        """Take the next opinion from the queue with the lowest rate of recent disagreements.

        Returns None if all queues are empty.
        """
        nonempty_outcomes = [outcome for outcome, queue in self._queues.items() if queue]
        if not nonempty_outcomes:
            return None
        best = min(nonempty_outcomes, key=self._rank)
        return self._queues[best].popleft()

    def note(self, outcome: Outcome, *, disagrees: bool) -> None:
        """Record the strong judge's answer on a sampled row."""
        self._latest_disagreements[outcome].append(disagrees)

    def _rank(self, outcome: Outcome) -> tuple[float, float]:
        """Return a sort key: a queue's rate of recent disagreements, then its next opinion's sureness."""
        latest_disagreements = self._latest_disagreements[outcome]
        # A queue without sampled rows needs a rate, too, so add a made-up row to each queue.
        rows = len(latest_disagreements) + _PRIOR_ROWS
        disagreements = sum(latest_disagreements) + _PRIOR_ROWS * _PRIOR_DISAGREEMENT
        rate = disagreements / rows

        next_opinion = self._queues[outcome][0]
        return rate, -next_opinion.sureness  # negative, so that the surest one comes first


def _rank_by_sureness(opinion: FirstOpinion) -> tuple[float, float]:
    return -opinion.sureness, opinion.tie_breaker


@functools.lru_cache(maxsize=4096)
def max_sampled_disagreements(budget: int, rate: float, level: float) -> int:
    """Compute how many disagreements a sample may have and still prove that at most `budget` are outside it.

    `rate` is the sampling rate. The proof is wrong with a probability of at most `level`. Returns -1 if not
    even a sample without disagreements would be a proof.
    """
    if budget < 0:
        return -1

    def proves_budget(in_sample: int) -> bool:
        # Suppose that one disagreement too many is outside the sample. The budget is proved if the sample
        # would then rarely have as few disagreements as `in_sample`.
        total = in_sample + budget + 1
        probability = compute_lower_tail(in_sample, total, rate)
        return probability <= level

    # Double the number until it's too large, then bisect.
    too_many = 1
    while proves_budget(too_many):
        too_many *= 2
    few_enough = -1
    while too_many - few_enough > 1:
        middle = (few_enough + too_many) // 2
        if proves_budget(middle):
            few_enough = middle
        else:
            too_many = middle
    return few_enough


@functools.lru_cache(maxsize=4096)
def max_unsampled_disagreements(disagreements: int, rate: float, level: float) -> int:
    """Compute an upper bound for the number of disagreements outside a sample.

    `disagreements` is the number in the sample, and `rate` is the sampling rate. The bound is too low with a
    probability of at most `level`.
    """
    # Raise the bound while the sample has too many disagreements to prove it.
    outside = 0
    while disagreements > max_sampled_disagreements(outside, rate, level):
        outside += 1
    return outside


@functools.lru_cache(maxsize=1024)
def choose_rate(budget: int, level: float) -> float:
    """Choose the sampling rate at which the strong judge will probably need to judge the fewest rows.

    The strong judge's verdicts mustn't influence the rate, because the sample would then prove nothing.
    """

    def estimate_gain(rate: float) -> float:
        """Estimate how many rows the strong judge is spared, up to a constant factor."""
        allowed = max_sampled_disagreements(budget, rate, level)
        if allowed < 0:
            return 0.0
        # Rows become final until the sample has one disagreement more than `allowed`, so add a half.
        sampled_disagreements = allowed + 0.5
        total_disagreements = sampled_disagreements / rate
        # The least sure rows come last, so each further disagreement decides fewer rows.
        decided_rows = math.pow(total_disagreements, _DECIDED_ROWS_EXPONENT)
        spared_fraction = 1 - rate  # the strong judge judges the sampled rows anyway
        return spared_fraction * decided_rows

    return max(_RATES, key=estimate_gain)


def estimate_decided_fraction(
    pilot: Sequence[FirstOpinion],
    strong_verdicts: StrongVerdicts,
    pilot_rows: int,
    rows: int,
    promise: Promise,
) -> float:
    """Estimate the fraction of `rows` that the first tier will decide, from a pilot that both tiers judged.

    `pilot` contains the first tier's opinions that can become final, among `pilot_rows` rows. The estimate
    tends to be too high, particularly for a strict promise.
    """
    if not pilot:
        return 0.0

    budget = promise.budget(rows)
    rate = choose_rate(budget, SIGNIFICANCE_LEVEL)
    allowed_in_sample = max_sampled_disagreements(budget, rate, SIGNIFICANCE_LEVEL)
    if allowed_in_sample < 0:
        return 0.0

    # Compute the total number of allowed disagreements, as in `choose_rate`, and scale it down to the pilot.
    allowed = (allowed_in_sample + 0.5) / rate
    # An estimate that's too high is better than one that's too low, so add a disagreement.
    allowed_in_pilot = allowed * pilot_rows / rows + 1
    passed = _count_passed(pilot, strong_verdicts, promise, allowed=allowed_in_pilot)
    unsampled_fraction = 1 - rate  # the strong judge decides the sampled rows
    return unsampled_fraction * passed / pilot_rows


def _count_passed(
    pilot: Sequence[FirstOpinion],
    strong_verdicts: StrongVerdicts,
    promise: Promise,
    *,
    allowed: float,
) -> int:
    """Count the opinions, in the order of a real run, before there are more disagreements than `allowed`."""
    queues = _Queues(pilot)
    passed = 0
    disagreements = 0
    while (opinion := queues.take_next()) is not None:
        strong = strong_verdicts.get(opinion.row_number, "undetermined")
        disagrees = not promise.holds_for(opinion.outcome, strong)
        queues.note(opinion.outcome, disagrees=disagrees)
        if disagrees:
            disagreements += 1
        if disagreements > allowed:
            break
        passed += 1
    return passed


def simulate_decided_fraction(
    samples: Sequence[Sample], first: TierName, strong: TierName, rows: int, promise: Promise
) -> float | None:
    """Estimate the fraction of `rows` that the first tier would decide, by simulating runs with the samples.

    Returns None if the strong tier judged fewer than `MIN_ROWS` of the samples.
    """
    # Only these samples show if the tiers agree.
    judged_by_strong = [sample for sample in samples if sample.outcome(strong) is not None]
    if len(judged_by_strong) < MIN_ROWS:
        return None

    rng = random.Random(_SEED)  # noqa: S311 - an estimate
    final_fractions = []
    for _ in range(_SIMULATED_RUNS):
        drawn = rng.choices(judged_by_strong, k=rows)  # with repetition
        opinions = _make_first_opinions(drawn, first, rng)
        run_plan = plan(opinions, rows, promise)
        settled = settle(run_plan, _collect_sampled_verdicts(run_plan, drawn, strong))
        final_fractions.append(len(settled.final) / rows)
    return fmean(final_fractions)


def _make_first_opinions(
    drawn: Sequence[Sample], first: TierName, rng: random.Random
) -> list[FirstOpinion]:
    """Make the first tier's opinions that can become final. Each drawn sample is a row."""
    opinions = []
    for row, sample in enumerate(drawn):
        opinion = _make_first_opinion(sample.opinions.get(first, FAILED), row, rng)
        if opinion is not None:
            opinions.append(opinion)
    return opinions


def _make_first_opinion(
    evidence: TierEvidence, row: int, rng: random.Random
) -> FirstOpinion | None:
    """Build the first tier's opinion on a row. Returns None if the opinion can't become final.

    These are the same rules as in a real run, see `judgekit.judging.rows.is_promised`.
    """
    if evidence.outcome is None or evidence.margin is None:
        return None
    if evidence.is_divided or not evidence.sees_whole_text:
        return None
    # An improve needs reasons, because they say what to improve.
    lacks_reasons = evidence.outcome == "improve" and not evidence.gives_reasons
    if lacks_reasons:
        return None
    return FirstOpinion(
        row,
        evidence.outcome,
        sureness=evidence.margin,
        sampling_draw=rng.random(),
        tie_breaker=rng.random(),
    )


def _collect_sampled_verdicts(
    run_plan: Plan, drawn: Sequence[Sample], strong: TierName
) -> dict[int, VerdictWord]:
    """Collect the strong judge's verdicts on the sampled rows. A real run wouldn't have any others."""
    verdicts: dict[int, VerdictWord] = {}
    for row in run_plan.sampled:
        verdicts[row] = drawn[row].outcome(strong) or "undetermined"
    return verdicts
