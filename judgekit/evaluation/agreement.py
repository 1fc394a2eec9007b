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

from judgekit.judging.binomial import at_most
from judgekit.judging.evidence import FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.evaluation.samples import Sample
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.verdict import VerdictWord

    StrongVerdicts: TypeAlias = Mapping[int, VerdictWord]

LEVEL = 0.05  # of breaking a promise: 1 in 20
LEAST_ROWS = 50
"""With fewer, the strong judge is asked about all."""
_RATES = [percent / 100 for percent in range(2, 96)]
# The share of rows that a judge decides grows roughly with the square root of the disagreements
# allowed. That holds for true probabilities, and for the recorded pairs in `bench/judged`.
_GROWTH = 0.5
_REMEMBERED = 50  # sampled rows whose agreement predicts that of the next ones
_PRIOR_ROWS = 1.0
_PRIOR_DISAGREEMENT = 0.1
_ACCEPTED_PARTS = 4  # the surest one, two, three or all quarters of the acceptances may be final
_ROUNDING = 1e-9
_FORESEEN_RUNS = 5
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
        """Whether two verdicts agree. If the strong judge is undecided, nothing agrees with its verdict."""
        if strong not in ("accept", "improve", "reject"):
            return False
        if self.on == "accepted":
            return (first == "accept") == (strong == "accept")
        return first == strong

    def budget(self, rows: int) -> int:
        """Count the disagreements allowed among this many rows."""
        # `_ROUNDING`, so that (1 - 0.9) * 10, which is a little less than 1 here, counts as 1.
        return math.floor((1 - self.share) * rows + _ROUNDING)


class FirstOpinion(NamedTuple):
    """The first tier's opinion of a row."""

    row: int
    outcome: Outcome
    sureness: float
    """The distance to another opinion; only its order matters."""
    draw: float
    """An independent random number from 0 to 1; below the rate, the row is in the sample."""
    tie: float = 0.0
    """Another one, which orders equally sure opinions."""


class Plan(NamedTuple):
    """The plan for asking the strong judge, made before any of its verdicts is known."""

    promise: Promise
    rows: int
    groups: tuple[Group, ...]

    def rates(self) -> dict[int, float]:
        """Map each row in the plan's groups to the sampling rate of its group.

        Rows without an opinion of the first tier have none.
        """
        rates = {}
        for group in self.groups:
            for opinion in group.opinions:
                rates[opinion.row] = group.rate
        return rates

    @property
    def sampled(self) -> frozenset[int]:
        """The rows that the strong judge is asked about in any case, whatever the results are."""
        rows = set()
        for group in self.groups:
            rows |= {opinion.row for opinion in group.opinions if opinion.draw < group.rate}
        return frozenset(rows)


class Group(NamedTuple):
    """Opinions that share a budget of disagreements and a sampling rate."""

    opinions: tuple[FirstOpinion, ...]
    rate: float
    level: float
    is_apart: bool = False
    """Whether these are the acceptances that keep the promise by themselves."""


class Settled(NamedTuple):
    """The conclusions from a sample about the rows outside it."""

    final: frozenset[int]
    """The rows whose first opinion is final."""
    counted: frozenset[int]
    """The sampled rows that show the quality of the final ones."""


NOTHING_FINAL = Settled(frozenset(), frozenset())


def plan(opinions: Sequence[FirstOpinion], rows: int, promise: Promise) -> Plan:
    """Choose at which rates the strong judge samples the first tier's opinions.

    `opinions` are those that may become final, among `rows` rows in the run. In strict mode, acceptances are
    a group of their own, with a part of the budget of disagreements.
    """
    if rows < LEAST_ROWS or not opinions:
        return Plan(promise, rows, groups=())

    budget = promise.budget(rows)
    if not promise.strict:
        group = Group(tuple(opinions), rate=choose_rate(budget, LEVEL), level=LEVEL)
        return Plan(promise, rows, (group,))

    accepted = tuple(opinion for opinion in opinions if opinion.outcome == "accept")
    other_opinions = tuple(opinion for opinion in opinions if opinion.outcome != "accept")
    level_apart = level_of(is_strict=True, is_apart=True)
    level = level_of(is_strict=True, is_apart=False)
    accepted_budget = promise.budget(len(accepted))
    groups = (
        Group(accepted, choose_rate(accepted_budget, level_apart), level_apart, is_apart=True),
        Group(other_opinions, choose_rate(budget - accepted_budget, level), level),
    )
    return Plan(promise, rows, groups)


def level_of(*, is_strict: bool, is_apart: bool) -> float:
    """Compute the probability with which a group of opinions may break the promise.

    In strict mode there are two groups, and each has half of the promise's probability. The group of
    acceptances splits its half among the parts that are tried.
    """
    if not is_strict:
        return LEVEL
    level_of_group = LEVEL / 2
    return level_of_group / _ACCEPTED_PARTS if is_apart else level_of_group


def settle(plan: Plan, strong_verdicts: StrongVerdicts) -> Settled:
    """Find the rows whose first opinion is final, going by the strong judge's verdicts on the sample.

    A sampled row without a verdict counts as a disagreement. If the strong judge was asked about a row for
    another reason, that row isn't final: its verdict is already known.
    """
    final: set[int] = set()
    counted: set[int] = set()
    budget = plan.promise.budget(plan.rows)
    for group in plan.groups:
        walk = _Walk(group, plan.promise, strong_verdicts)
        if group.is_apart:
            group_settled = walk.settle_apart()
            budget -= plan.promise.budget(len(group_settled.final))  # the other group has the rest
        else:
            group_settled = walk.settle_within(budget)
        final |= group_settled.final
        counted |= group_settled.counted
    return Settled(frozenset(final), frozenset(counted))


class _Walk:
    """Goes through a group's opinions, the surest first, following the sample's verdicts."""

    def __init__(self, group: Group, promise: Promise, strong_verdicts: StrongVerdicts) -> None:
        self._group = group
        self._promise = promise
        self._strong_verdicts = strong_verdicts

    def settle_within(self, budget: int) -> Settled:
        """Make opinions final until the sample shows one disagreement too many for the budget."""
        group = self._group
        allowed_disagreements = most_sampled(budget, group.rate, group.level)
        if allowed_disagreements < 0:
            return NOTHING_FINAL

        final: list[int] = []
        counted: list[int] = []
        disagreements = 0
        queues = _Queues(group.opinions)
        while (opinion := queues.next()) is not None:
            is_sampled = opinion.draw < group.rate
            if not is_sampled:
                if self._is_unknown(opinion):
                    final.append(opinion.row)
                continue
            disagrees = self._disagrees(opinion)
            queues.note(opinion.outcome, disagrees=disagrees)
            disagreements += disagrees
            if disagreements > allowed_disagreements:
                break
            counted.append(opinion.row)
        return Settled(frozenset(final), frozenset(counted))

    def settle_apart(self) -> Settled:
        """Find the largest part of the opinions that keeps the promise by itself.

        The parts (the surest quarter, the surest half and so on) are fixed in advance, and the level is
        split among them.
        """
        group = self._group
        opinions = sorted(group.opinions, key=_rank_by_sureness)
        settled = NOTHING_FINAL
        for part_number in range(1, _ACCEPTED_PARTS + 1):
            surest = opinions[: len(opinions) * part_number // _ACCEPTED_PARTS]
            sampled = [opinion for opinion in surest if opinion.draw < group.rate]
            unsampled = [opinion for opinion in surest if opinion.draw >= group.rate]
            final = [opinion.row for opinion in unsampled if self._is_unknown(opinion)]
            disagreements = sum(map(self._disagrees, sampled))
            budget = self._promise.budget(len(final))
            if final and disagreements <= most_sampled(budget, group.rate, group.level):
                counted = frozenset(opinion.row for opinion in sampled)
                settled = Settled(frozenset(final), counted)
        return settled

    def _is_unknown(self, opinion: FirstOpinion) -> bool:
        """Whether the strong judge wasn't asked about a row, for this or any other reason."""
        return opinion.row not in self._strong_verdicts

    def _disagrees(self, opinion: FirstOpinion) -> bool:
        """Whether the strong judge's verdict on a row differs from its first opinion, or is missing."""
        strong = self._strong_verdicts.get(opinion.row, "undetermined")
        return not self._promise.holds_for(opinion.outcome, strong)


class _Queues:
    """Queues of opinions by outcome, the surest first; the queue with the best record is next."""

    def __init__(self, opinions: Sequence[FirstOpinion]) -> None:
        self._queues: dict[Outcome, deque[FirstOpinion]] = {}
        for opinion in sorted(opinions, key=_rank_by_sureness):
            self._queues.setdefault(opinion.outcome, deque()).append(opinion)
        self._latest: dict[Outcome, deque[bool]] = {}
        for outcome in self._queues:
            self._latest[outcome] = deque(maxlen=_REMEMBERED)

    def next(self) -> FirstOpinion | None:
        """Take the next opinion, from the queue whose latest sampled rows disagreed least.

        None if all queues are empty.
        """
        nonempty_outcomes = [outcome for outcome, queue in self._queues.items() if queue]
        if not nonempty_outcomes:
            return None
        best = min(nonempty_outcomes, key=self._rank)
        return self._queues[best].popleft()

    def note(self, outcome: Outcome, *, disagrees: bool) -> None:
        """Record the strong judge's answer on a sampled row."""
        self._latest[outcome].append(disagrees)

    def _rank(self, outcome: Outcome) -> tuple[float, float]:
        """Rank a queue by the share of its latest sampled rows that disagreed.

        Among queues with the same share, the one with the surest next opinion comes first.
        """
        latest_disagreed = self._latest[outcome]
        # A few imagined rows, so that a queue without sampled rows has a share, too.
        disagreements = sum(latest_disagreed) + _PRIOR_ROWS * _PRIOR_DISAGREEMENT
        sureness = self._queues[outcome][0].sureness
        return disagreements / (len(latest_disagreed) + _PRIOR_ROWS), -sureness


def _rank_by_sureness(opinion: FirstOpinion) -> tuple[float, float]:
    return -opinion.sureness, opinion.tie


@functools.lru_cache(maxsize=4096)
def most_sampled(budget: int, rate: float, level: float) -> int:
    """Compute the most disagreements in a sample that still prove that at most `budget` are outside it.

    If `budget` + 1 were outside, a sample at this rate would show so few, c, with a probability of at most
    `level`: P(X <= c) for X from the binomial distribution of c + budget + 1 trials. Returns -1 if not even
    a sample without any disagreement would prove it.
    """
    if budget < 0:
        return -1

    too_many = 1
    while at_most(too_many, too_many + budget + 1, rate) <= level:
        too_many *= 2
    # Halve the interval between a number that's few enough and one that isn't.
    few_enough = -1
    while too_many - few_enough > 1:
        middle = (few_enough + too_many) // 2
        if at_most(middle, middle + budget + 1, rate) <= level:
            few_enough = middle
        else:
            too_many = middle
    return few_enough


@functools.lru_cache(maxsize=4096)
def most_unsampled(disagreements: int, rate: float, level: float) -> int:
    """Compute the most disagreements that there can be outside a sample which shows this many."""
    outside = 0
    while most_sampled(outside, rate, level) < disagreements:
        outside += 1
    return outside


@functools.lru_cache(maxsize=1024)
def choose_rate(budget: int, level: float) -> float:
    """Choose the sampling rate that's expected to spare the strong judge the most rows.

    The choice depends on nothing that a verdict of the strong judge could change.
    """

    def expected_gain(rate: float) -> float:
        allowed = most_sampled(budget, rate, level)
        if allowed < 0:
            return 0.0
        # Half a disagreement more, since the walk ends between the last allowed one and the next.
        disagreements_in_all = (allowed + 0.5) / rate
        spared_share = 1 - rate
        return spared_share * math.pow(disagreements_in_all, _GROWTH)

    return max(_RATES, key=expected_gain)


def expect_share(
    pilot: Sequence[FirstOpinion],
    strong_verdicts: StrongVerdicts,
    pilot_rows: int,
    rows: int,
    promise: Promise,
) -> float:
    """Estimate the share of rows that the first tier will decide, from rows that both tiers judged.

    `pilot_rows` is the number of those rows, and `pilot` holds the first tier's opinions on them that may
    become final. The estimate tends to be too high, for two reasons. The walk through these rows may have
    one disagreement more than its part of the budget. In strict mode, the estimate is that of lenient mode.
    """
    if not pilot:
        return 0.0
    rate = choose_rate(promise.budget(rows), LEVEL)
    allowed = most_sampled(promise.budget(rows), rate, LEVEL)
    if allowed < 0:
        return 0.0

    # The disagreements in all rows, as in `choose_rate`, scaled down to those of the pilot.
    allowed_in_pilot = (allowed + 0.5) / rate * pilot_rows / rows + 1
    queues = _Queues(pilot)
    passed = 0
    disagreements = 0
    while (opinion := queues.next()) is not None:
        strong = strong_verdicts.get(opinion.row, "undetermined")
        disagrees = not promise.holds_for(opinion.outcome, strong)
        queues.note(opinion.outcome, disagrees=disagrees)
        disagreements += disagrees
        if disagreements > allowed_in_pilot:
            break
        passed += 1
    return (1 - rate) * passed / pilot_rows


def foresee(
    samples: Sequence[Sample], first: TierName, strong: TierName, rows: int, promise: Promise
) -> float | None:
    """Estimate the share of `rows` that the first tier would decide, from documents that both tiers judged.

    It's the mean over imagined runs, whose rows are drawn from these documents. None if both tiers judged
    fewer than `LEAST_ROWS` documents.
    """
    judged_by_both = []
    for sample in samples:
        if sample.outcome(strong) is not None:
            judged_by_both.append(sample)
    if len(judged_by_both) < LEAST_ROWS:
        return None

    rng = random.Random(_SEED)  # noqa: S311 - an estimate
    shares = []
    for _ in range(_FORESEEN_RUNS):
        opinions = []
        strong_verdicts: dict[int, VerdictWord] = {}
        for row, sample in enumerate(rng.choices(judged_by_both, k=rows)):
            opinion = _read_first_opinion(sample.voices.get(first, FAILED), row, rng)
            if opinion is not None:
                opinions.append(opinion)
            strong_verdicts[row] = sample.outcome(strong) or "undetermined"

        run_plan = plan(opinions, rows, promise)
        verdicts_on_sample = {row: strong_verdicts[row] for row in run_plan.sampled}
        settled = settle(run_plan, verdicts_on_sample)
        shares.append(len(settled.final) / rows)
    return fmean(shares)


def _read_first_opinion(
    evidence: TierEvidence, row: int, rng: random.Random
) -> FirstOpinion | None:
    """Read the first tier's opinion on a row; None if the opinion can't become final."""
    if evidence.outcome is None or evidence.margin is None or evidence.is_divided:
        return None
    is_unexplained = evidence.outcome == "improve" and not evidence.gives_reasons
    if is_unexplained or not evidence.sees_all:
        return None
    return FirstOpinion(
        row, evidence.outcome, sureness=evidence.margin, draw=rng.random(), tie=rng.random()
    )
