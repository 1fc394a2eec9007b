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
MIN_ROWS = 50
"""With fewer, the strong judge is asked about all."""
_RATES = [percent / 100 for percent in range(2, 96)]
# The fraction of rows that a judge decides grows roughly with the square root of the disagreements
# allowed. That holds for true probabilities, and for the recorded pairs in `bench/judged`.
_GROWTH = 0.5
_REMEMBERED = 50  # sampled rows whose agreement predicts that of the next ones
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
        """Whether the first tier's verdict agrees with the strong judge's, in the sense of `on`."""
        if strong not in ("accept", "improve", "reject"):
            return False  # nothing agrees with an undecided judge
        if self.on == "accepted":
            return (first == "accept") == (strong == "accept")
        return first == strong

    def budget(self, rows: int) -> int:
        """Return the number of disagreements that the promise allows among `rows` rows."""
        # Compensate floating-point errors: (1 - 0.9) * 10 is slightly less than 1.
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
        """Return the sampling rate of each row that is in a group."""
        rates = {}
        for group in self.groups:
            for opinion in group.opinions:
                rates[opinion.row] = group.rate
        return rates

    @property
    def sampled(self) -> frozenset[int]:
        """The rows that the strong judge always judges, chosen before any of its verdicts is known."""
        rows = set()
        for group in self.groups:
            rows |= {opinion.row for opinion in group.opinions if opinion.draw < group.rate}
        return frozenset(rows)


class Group(NamedTuple):
    """Opinions that share a budget of disagreements and a sampling rate."""

    opinions: tuple[FirstOpinion, ...]
    rate: float
    level: float
    is_separate: bool = False
    """Whether these are the acceptances that keep the promise by themselves."""


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
    if not promise.strict:
        group = Group(tuple(opinions), rate=choose_rate(budget, LEVEL), level=LEVEL)
        return Plan(promise, rows, (group,))

    # In strict mode, the acceptances must also keep the promise by themselves, so they get a separate budget.
    accepted = tuple(opinion for opinion in opinions if opinion.outcome == "accept")
    other_opinions = tuple(opinion for opinion in opinions if opinion.outcome != "accept")
    accepted_level = compute_level(is_strict=True, is_separate=True)
    other_level = compute_level(is_strict=True, is_separate=False)
    accepted_budget = promise.budget(len(accepted))
    other_budget = budget - accepted_budget
    groups = (
        Group(
            accepted, choose_rate(accepted_budget, accepted_level), accepted_level, is_separate=True
        ),
        Group(other_opinions, choose_rate(other_budget, other_level), other_level),
    )
    return Plan(promise, rows, groups)


def compute_level(*, is_strict: bool, is_separate: bool) -> float:
    """Compute the probability with which a group of opinions may break the promise."""
    if not is_strict:
        return LEVEL

    # There are two groups. In the separate group of acceptances, each part is another attempt.
    group_level = LEVEL / 2
    return group_level / _ACCEPTED_PARTS if is_separate else group_level


def settle(plan: Plan, strong_verdicts: StrongVerdicts) -> Settled:
    """Find the rows whose first opinion becomes final, using the strong judge's verdicts on the sample.

    A sampled row without a verdict counts as a disagreement. Rows outside the sample that the strong judge
    has also judged don't become final. Returns the final rows, and the sampled rows that prove them.
    """
    final: set[int] = set()
    counted: set[int] = set()  # sampled rows
    budget = plan.promise.budget(plan.rows)
    for group in plan.groups:
        walk = _Walk(group, plan.promise, strong_verdicts)
        if group.is_separate:
            group_settled = walk.settle_separately()
            # The other group gets the remaining budget.
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
        allowed_disagreements = max_sampled_disagreements(budget, group.rate, group.level)
        if allowed_disagreements < 0:
            return NOTHING_FINAL

        final: list[int] = []
        counted: list[int] = []
        disagreements = 0
        queues = _Queues(group.opinions)
        while (opinion := queues.next()) is not None:
            is_sampled = opinion.draw < group.rate
            if not is_sampled:
                # If the strong judge has judged this row for another reason, its verdict is used instead.
                if self._is_unknown(opinion):
                    final.append(opinion.row)
                continue

            # The strong judge has judged this sampled row. A disagreement makes it less likely that the next
            # opinion is taken from the same queue.
            disagrees = self._disagrees(opinion)
            queues.note(opinion.outcome, disagrees=disagrees)
            disagreements += disagrees
            if disagreements > allowed_disagreements:
                break
            counted.append(opinion.row)
        return Settled(frozenset(final), frozenset(counted))

    def settle_separately(self) -> Settled:
        """Make as many of the surest opinions final as keep the promise by themselves.

        Returns the rows with final opinions, and the sampled rows that were counted.
        """
        group = self._group
        opinions = sorted(group.opinions, key=_rank_by_sureness)
        settled = NOTHING_FINAL

        # Try the surest quarter, then the surest half, and so on. The largest part that passes counts. The
        # level takes into account that there are multiple attempts.
        for part_number in range(1, _ACCEPTED_PARTS + 1):
            surest = opinions[: len(opinions) * part_number // _ACCEPTED_PARTS]
            sampled = [opinion for opinion in surest if opinion.draw < group.rate]
            unsampled = [opinion for opinion in surest if opinion.draw >= group.rate]
            final = [opinion.row for opinion in unsampled if self._is_unknown(opinion)]
            disagreements = sum(map(self._disagrees, sampled))
            budget = self._promise.budget(len(final))

            if final and disagreements <= max_sampled_disagreements(
                budget, group.rate, group.level
            ):
                counted = frozenset(opinion.row for opinion in sampled)
                settled = Settled(frozenset(final), counted)
        return settled

    def _is_unknown(self, opinion: FirstOpinion) -> bool:
        """Whether the strong judge hasn't judged the row."""
        return opinion.row not in self._strong_verdicts

    def _disagrees(self, opinion: FirstOpinion) -> bool:
        """Whether the strong judge's verdict differs from the first opinion, or is missing."""
        strong = self._strong_verdicts.get(opinion.row, "undetermined")
        return not self._promise.holds_for(opinion.outcome, strong)


class _Queues:
    """Queues opinions by outcome, the surest first. The queue with the best record is next."""

    def __init__(self, opinions: Sequence[FirstOpinion]) -> None:
        self._queues: dict[Outcome, deque[FirstOpinion]] = {}
        for opinion in sorted(opinions, key=_rank_by_sureness):
            self._queues.setdefault(opinion.outcome, deque()).append(opinion)
        self._latest: dict[Outcome, deque[bool]] = {}
        for outcome in self._queues:
            self._latest[outcome] = deque(maxlen=_REMEMBERED)

    def next(self) -> FirstOpinion | None:
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
        self._latest[outcome].append(disagrees)

    def _rank(self, outcome: Outcome) -> tuple[float, float]:
        """Return a sort key: a queue's rate of recent disagreements, then its next opinion's sureness."""
        latest_disagreed = self._latest[outcome]
        # Add fictitious prior rows, so that a queue without sampled rows also has a rate.
        disagreements = sum(latest_disagreed) + _PRIOR_ROWS * _PRIOR_DISAGREEMENT
        sureness = self._queues[outcome][0].sureness
        return disagreements / (len(latest_disagreed) + _PRIOR_ROWS), -sureness


def _rank_by_sureness(opinion: FirstOpinion) -> tuple[float, float]:
    return -opinion.sureness, opinion.tie


@functools.lru_cache(maxsize=4096)
def max_sampled_disagreements(budget: int, rate: float, level: float) -> int:
    """Compute how many disagreements a sample can contain and still prove that the rest has at most `budget`.

    `rate` is the sampling rate. The proof is wrong with a probability of at most `level`. Returns -1 if not
    even a sample without disagreements would be a proof.
    """
    if budget < 0:
        return -1

    # Suppose that `budget` + 1 disagreements are outside. Then the probability that the sample contains at
    # most c of them is P(X <= c), for a binomial X with c + `budget` + 1 trials. Find the largest c for which
    # this probability is at most `level`: first double c until it's too large, then bisect.
    too_many = 1
    while at_most(too_many, too_many + budget + 1, rate) <= level:
        too_many *= 2
    few_enough = -1
    while too_many - few_enough > 1:
        middle = (few_enough + too_many) // 2
        if at_most(middle, middle + budget + 1, rate) <= level:
            few_enough = middle
        else:
            too_many = middle
    return few_enough


@functools.lru_cache(maxsize=4096)
def max_unsampled_disagreements(disagreements: int, rate: float, level: float) -> int:
    """Compute an upper bound for the disagreements outside a sample that contains `disagreements`.

    That's the smallest number that so few disagreements in the sample confirm at this `level`.
    """
    outside = 0
    while max_sampled_disagreements(outside, rate, level) < disagreements:
        outside += 1
    return outside


@functools.lru_cache(maxsize=1024)
def choose_rate(budget: int, level: float) -> float:
    """Choose the sampling rate at which the strong judge will probably need to judge the fewest rows.

    The choice doesn't depend on any of the strong judge's verdicts, because that would invalidate the test.
    """

    def estimate_gain(rate: float) -> float:
        allowed = max_sampled_disagreements(budget, rate, level)
        if allowed < 0:
            return 0.0
        # Rows become final until the sample has one disagreement too many. On average, that's halfway between
        # the last allowed disagreement and the next one, so add a half.
        total_disagreements = (allowed + 0.5) / rate
        spared_fraction = 1 - rate
        return spared_fraction * math.pow(total_disagreements, _GROWTH)

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

    rate = choose_rate(promise.budget(rows), LEVEL)
    allowed = max_sampled_disagreements(promise.budget(rows), rate, LEVEL)
    if allowed < 0:
        return 0.0

    # Compute the total number of allowed disagreements, as in `choose_rate`, and scale it down to the pilot.
    allowed_in_pilot = (allowed + 0.5) / rate * pilot_rows / rows + 1

    # Pass opinions, in the order of a real run, until the pilot has too many disagreements.
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

    # The sampled rows don't become final, because the strong judge decides them.
    return (1 - rate) * passed / pilot_rows


def simulate_decided_fraction(
    samples: Sequence[Sample], first: TierName, strong: TierName, rows: int, promise: Promise
) -> float | None:
    """Estimate the fraction of `rows` that the first tier would decide, by simulating runs with the samples.

    Returns None if the strong tier judged fewer than `MIN_ROWS` of the samples.
    """
    # Only these samples show if the tiers agree.
    judged_by_strong = []
    for sample in samples:
        if sample.outcome(strong) is not None:
            judged_by_strong.append(sample)
    if len(judged_by_strong) < MIN_ROWS:
        return None

    # In each simulated run, draw rows from the samples, with repetition.
    rng = random.Random(_SEED)  # noqa: S311 - an estimate
    final_fractions = []
    for _ in range(_SIMULATED_RUNS):
        opinions = []
        strong_verdicts: dict[int, VerdictWord] = {}
        for row, sample in enumerate(rng.choices(judged_by_strong, k=rows)):
            opinion = _make_first_opinion(sample.opinions.get(first, FAILED), row, rng)
            if opinion is not None:
                opinions.append(opinion)
            strong_verdicts[row] = sample.outcome(strong) or "undetermined"

        # A real run would only have the strong judge's verdicts on the sampled rows.
        run_plan = plan(opinions, rows, promise)
        verdicts_on_sample = {row: strong_verdicts[row] for row in run_plan.sampled}
        settled = settle(run_plan, verdicts_on_sample)
        final_fractions.append(len(settled.final) / rows)
    return fmean(final_fractions)


def _make_first_opinion(
    evidence: TierEvidence, row: int, rng: random.Random
) -> FirstOpinion | None:
    """Build the first tier's opinion on a row. Returns None if the opinion can't become final."""
    if evidence.outcome is None or evidence.margin is None or evidence.is_divided:
        return None
    is_unexplained = evidence.outcome == "improve" and not evidence.gives_reasons
    if is_unexplained or not evidence.sees_all:
        return None
    return FirstOpinion(
        row, evidence.outcome, sureness=evidence.margin, draw=rng.random(), tie=rng.random()
    )
