"""Chooses gates: opinions that may be final at a promised rate, by exact tests on labelled samples.

Opinions of one tier with the same outcome, after the same outcome of the tier before, form a *chain*: the
gate with the largest margin lies within the next one, and so on up to the whole class. A chain's gates are
tested in that order, each at the chain's full level, up to the first that fails (fixed-sequence testing,
Maurer, Hothorn and Lehmacher, 1995; Angelopoulos and others, "Learn then test", arXiv:2110.01052, use it for
risk control). Chains split the total error by Bonferroni. So with the promised confidence *every* chosen
gate holds, and no label is kept back for a second look.

The opinions alone decide which gates are tried, never the labels. The one exception is a deeper tier: the
samples that reach it depend on the gates won by the tier before. So its level is divided among all results
that chain could have had.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import TIERS, ModeName, Outcome, TierName
from judgekit.errors import InputError
from judgekit.evaluation.cases import ALL_TIERS, Case
from judgekit.evaluation.likelihood import learn_likelihood
from judgekit.evaluation.samples import Sample, Walked, find_common_ways, find_options, walk
from judgekit.evaluation.tasks import build_ranking_task, choose_task, read_samples
from judgekit.judging import calibration
from judgekit.judging.binomial import count_labels_needed
from judgekit.judging.calibration import CalibratedRule, Calibration, Promise, RefusedRule, bound
from judgekit.judging.finality import FinalityRules, measure_distance_towards
from judgekit.judging.questions_hash import hash_questions
from judgekit.judging.steps import EscalationRules
from judgekit.judging.verdict import RubricRef

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from judgekit.evaluation.ranking_task import RankedCase
    from judgekit.judging.score import DocumentJudge
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Rubric

# The most gates in a chain: each should let through many more opinions than the one before.
MAX_GATES = 6
# The same if a chain holds both trusted and untrusted opinions: finer, so it can end in between.
MAX_LEANING_GATES = 300
MAX_COARSE_MARGINS = 20  # different leanings
_SIDES: tuple[Outcome, Outcome] = ("accept", "reject")
# The first gate is wide enough to hold even with errors at this share of the promised rate.
FIRST_GATE_ERROR_SHARE = 0.25
# Each gate lets through at least this many times the opinions of the one before.
MIN_WIDENING_RATIO = 1.15


class Chain(NamedTuple):
    """Opinions with `tier`'s outcome after another's, or a tier's wins that may stand against its tie.

    For a decision model, it's all opinions, those furthest towards the outcome first: if it leans to one
    side throughout, its smallest leanings may be right about the other side.
    """

    tier: TierName
    outcome: Outcome
    preceding_outcome: Outcome | None
    standing_tier: TierName | None = None
    """The tier whose win may stand against the tie of `tier`."""
    is_by_leaning: bool = False
    """Whether these are a decision model's opinions, ordered by how far each leans to the outcome."""

    def margin(self, sample: Sample) -> float:
        if self.is_by_leaning:
            return measure_distance_towards(self.outcome, sample.leanings[self.tier])
        return sample.margin(self.standing_tier or self.tier) or 0.0

    def build_margin_fields(self, value: float) -> dict[str, float | None]:
        """Build the fields for a gate with this least margin or leaning."""
        if self.is_by_leaning:
            return {"least_margin": 0.0, "leaning": value}
        return {"least_margin": value}

    def is_wrong(self, sample: Sample) -> bool:
        """Whether the sample would get a wrong result if a gate of this chain made its opinion final."""
        makes_win_final = self.standing_tier is not None
        if makes_win_final:
            return sample.label != "accept"  # a pair's label accepts if the winner is really better
        if self.is_by_leaning:
            # The gate makes the chain's outcome final, even if the tier itself leans the other way.
            return not sample.is_right(self.outcome)
        return sample.is_wrong(self.tier)


Chains: TypeAlias = dict[Chain, list[Sample]]


class _ChainTest(NamedTuple):
    """A chain's widest gate that holds, the next one, which doesn't, and the number tested.

    `widest_gate` is None if no gate holds, `refused_gate` if all do.
    """

    widest_gate: CalibratedRule | None
    refused_gate: RefusedRule | None
    tested_gate_count: int


class ChosenRules(NamedTuple):
    """The gates that hold, with the evidence for each, and the classes without one."""

    finality: FinalityRules
    gates: list[CalibratedRule]
    refused_gates: list[RefusedRule]


def choose_rules(
    samples: Sequence[Sample], tiers: Sequence[TierName], promise: Promise
) -> ChosenRules:
    """Choose the widest gates that keep the promise. A gate lets a tier's sure opinions become final.

    `tiers` are the panel's tiers in order. A chain is a series of gates for the same kind of opinions, such
    as a tier's acceptances. Each gate includes all opinions that the previous one includes.
    """
    chains = _group_by_chain(samples, tiers, promise.reference)
    doubt = 1 - promise.confidence  # the probability of error that all tests share
    testable = _find_testable(chains, doubt, promise)

    gates: list[CalibratedRule] = []
    refused = []
    tested_gate_counts: dict[Chain, int] = {}
    # Earlier tiers come first, because their gates decide which samples are left for later tiers.
    for chain, members in chains.items():
        if chain not in testable:
            level = doubt / (len(testable) + 1)  # as if this chain were tested, too
            refusal = _refuse_untested(chain, members, level, promise)
        else:
            # The chains share the doubt equally. A later tier's samples depend on the previous tier's result,
            # so the chain's share must be enough for each result that was possible.
            share = doubt / len(testable)
            level = share / _count_possible_results(chain, tiers, tested_gate_counts)
            earlier_tiers = tiers[: tiers.index(chain.tier)]
            open_samples = _select_open(members, earlier_tiers, gates)
            test = _test_chain(chain, open_samples, level, promise)
            tested_gate_counts[chain] = test.tested_gate_count
            if test.widest_gate is not None:
                gates.append(test.widest_gate)
            refusal = _choose_refusal(chain, open_samples, level, promise, test)
        if refusal is not None:
            refused.append(refusal)

    remaining_gates = _drop_overlaps(gates)
    finality = FinalityRules(rules=tuple(remaining_gates), last_tier=promise.reference)
    return ChosenRules(finality, remaining_gates, refused)


def _refuse_untested(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise
) -> RefusedRule | None:
    """Build the refusal for a chain with too few labels to be tested. It says how many more are needed.

    Returns None if a gate would hold after all, at this level.
    """
    if chain.is_by_leaning:
        return _find_widest_refusal(chain, members, level, promise)

    # Try the gate that includes all opinions, because it has the most labels.
    least_margin = min(chain.margin(member) for member in members)
    gate = _test_gate(chain, least_margin, members, level, promise)
    if isinstance(gate, RefusedRule):
        return gate
    return None


def _test_chain(
    chain: Chain, samples: Sequence[Sample], level: float, promise: Promise
) -> _ChainTest:
    """Test a chain's gates on labelled samples, from narrow to wide, until one fails."""
    widest = None
    steps = 0
    for least_margin in _choose_margins(chain, samples, level, promise):
        steps += 1
        members = [sample for sample in samples if chain.margin(sample) >= least_margin]
        gate = _test_gate(chain, least_margin, members, level, promise)
        if isinstance(gate, RefusedRule):
            return _ChainTest(widest, gate, steps)
        widest = gate
    return _ChainTest(widest, None, steps)


def _choose_refusal(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise, test: _ChainTest
) -> RefusedRule | None:
    """Choose the refused gate to report: the first one that failed the test. Returns None if none did.

    For decision models, a gate with opinions that lean to the other outcome isn't reported.
    """
    first_refused = test.refused_gate
    if not chain.is_by_leaning:
        return first_refused

    no_gate_holds = test.widest_gate is None
    if no_gate_holds:
        return _find_widest_refusal(chain, members, level, promise)

    if first_refused is None:
        return None
    # Opinions that lean to the other outcome have leanings below 0.
    includes_other_side = (first_refused.leaning or 0.0) < 0
    return None if includes_other_side else first_refused


def _find_widest_refusal(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise
) -> RefusedRule | None:
    """Find the widest refused gate that more labels could prove, or else the widest refused gate.

    Only opinions that lean to the chain's outcome are included.
    """
    samples_on_side = [sample for sample in members if chain.margin(sample) >= 0]
    widest_refused = None
    # The smaller the margin, the wider the gate
    for margin in sorted({chain.margin(sample) for sample in samples_on_side}):
        included = [sample for sample in samples_on_side if chain.margin(sample) >= margin]
        result = _test_gate(chain, margin, included, level, promise)
        if not isinstance(result, RefusedRule):
            continue  # this gate holds

        more_labels_could_prove_it = result.more is not None
        if more_labels_could_prove_it:
            return result
        if widest_refused is None:
            widest_refused = result
    return widest_refused


def _drop_overlaps(gates: Sequence[CalibratedRule]) -> list[CalibratedRule]:
    """Drop every gate that overlaps with another gate which has more labels."""
    remaining_gates = []
    for gate in gates:
        is_smaller = False
        for other_gate in gates:
            if _are_overlapping(gate, other_gate) and gate.labels < other_gate.labels:
                is_smaller = True
        if not is_smaller:
            remaining_gates.append(gate)
    return remaining_gates


def _are_overlapping(gate: CalibratedRule, other: CalibratedRule) -> bool:
    """Whether one gate can accept a decision model's opinion that the other gate rejects."""
    if gate.leaning is None or other.leaning is None:
        return False
    if gate.tier != other.tier or gate.outcome == other.outcome:
        return False
    # Each gate measures leanings towards its own outcome. So if the gate for an acceptance starts from 0.1,
    # and the one for a rejection from -0.2, leanings from 0.1 to 0.2 pass both.
    lowest = gate.leaning
    highest_of_other = -other.leaning
    return lowest <= highest_of_other


def _find_testable(chains: Chains, doubt: float, promise: Promise) -> set[Chain]:
    """Find the largest set of chains that can be tested together, because each has enough labels to pass.

    `doubt` is the probability of error that all tests share. Each chain gets an equal part.
    """
    largest_first = sorted(chains, key=lambda chain: len(chains[chain]), reverse=True)
    testable_count = 0
    for count in range(1, len(largest_first) + 1):
        # Try the `count` largest chains. If the smallest of them has enough labels, all of them do.
        smallest_chain = largest_first[count - 1]
        least_labels = _count_labels_for_promise(promise, level=doubt / count)
        if least_labels is None:
            continue
        if len(chains[smallest_chain]) >= least_labels:
            testable_count = count
    return set(largest_first[:testable_count])


def _count_possible_results(
    chain: Chain, tiers: Sequence[TierName], tested_gate_counts: Mapping[Chain, int]
) -> int:
    """Count the possible results of the previous tier's tests.

    Which samples are in this chain depends on these results: they're those that no gate has made final.
    `tested_gate_counts` contains the number of gates that were tested in each chain. Without a previous tier,
    the count is 1.
    """
    if chain.preceding_outcome is None:
        return 1

    previous_tier = tiers[tiers.index(chain.tier) - 1]
    results = 1  # one possible result is that no gate holds
    for tested_chain, gate_count in tested_gate_counts.items():
        is_of_previous_tier = tested_chain.tier == previous_tier
        has_previous_outcome = tested_chain.outcome == chain.preceding_outcome
        if is_of_previous_tier and has_previous_outcome:
            results += gate_count  # each of these gates could be the widest that holds
    return results


def _select_open(
    members: Iterable[Sample],
    earlier_tiers: Sequence[TierName],
    earlier_gates: Iterable[CalibratedRule],
) -> list[Sample]:
    """Select the samples that no gate of an earlier tier makes final."""
    finality = FinalityRules(rules=tuple(earlier_gates))
    open_samples = []
    for sample in members:
        if not _is_final_after(earlier_tiers, sample, finality):
            open_samples.append(sample)
    return open_samples


def _is_final_after(tiers: Sequence[TierName], sample: Sample, finality: FinalityRules) -> bool:
    """Whether a gate of any of these tiers makes the sample final."""
    outcomes = {tier: sample.combined_outcome(tier) for tier in tiers}
    margins = sample.margins
    leanings = sample.leanings
    for tier in tiers:
        is_final_by_margin = finality.is_final(tier, outcomes, margins)
        # For decision models, gates use the leaning instead of the margin.
        is_final_by_leaning = finality.find_decided_outcome(tier, leanings) is not None
        if is_final_by_margin or is_final_by_leaning:
            return True
    return False


def _group_by_chain(
    samples: Sequence[Sample], tiers: Sequence[TierName], reference: TierName | None
) -> Chains:
    """Group samples by the chains that their opinions belong to. Chains of earlier tiers come first.

    A chain is a tier's outcome after the previous tier's outcome, such as "accept" after "improve".
    """
    chains: Chains = {}
    # The reference tier's opinion is always final, so gates are only needed before it. Without a reference,
    # the last tier takes its place.
    always_final_tier = reference or tiers[-1]
    tiers_with_gates = tiers[: tiers.index(always_final_tier)]
    previous_tier = None
    for tier in tiers_with_gates:
        for sample in samples:
            for chain in _list_chains(sample, tier, previous_tier, reference):
                chains.setdefault(chain, []).append(sample)
        previous_tier = tier

    _add_standing_chain(chains, samples, tiers)
    return chains


def _add_standing_chain(
    chains: Chains, samples: Sequence[Sample], tiers: Sequence[TierName]
) -> None:
    """Add the chain for comparisons in which the first tier sees a winner, and the second one a tie.

    Its gates make the first tier's winner final.
    """
    first_tier, second_tier = tiers[:2]
    standing_chain = Chain(
        second_tier, "improve", preceding_outcome="accept", standing_tier=first_tier
    )
    for sample in samples:
        if _may_win_stand(sample, first_tier, second_tier):
            chains.setdefault(standing_chain, []).append(sample)


def _list_chains(
    sample: Sample, tier: TierName, previous_tier: TierName | None, reference: TierName | None
) -> list[Chain]:
    """List the chains that a tier's opinion on a sample belongs to.

    If no gate can be learned from the opinion, the list is empty.
    """
    outcome = sample.combined_outcome(tier)
    if outcome is None or sample.margin(tier) is None:
        return []
    if reference is not None and not sample.is_measured_by(reference):
        return []

    if previous_tier is None:
        return _list_first_chains(sample, tier, outcome)

    previous_outcome = sample.combined_outcome(previous_tier)
    needs_gate = reference is not None or _would_go_on(sample, outcome, previous_outcome)
    if needs_gate:
        return [Chain(tier, outcome, previous_outcome)]
    # The judging ends here even without a gate. Testing one would only use up some of the permitted error
    # probability.
    return []


def _list_first_chains(sample: Sample, tier: TierName, outcome: Outcome) -> list[Chain]:
    """List the chains of the first tier's opinion. A decision model's opinion is in both outcomes' chains."""
    is_of_decision_model = tier in sample.leanings
    if is_of_decision_model:
        return [Chain(tier, side, None, is_by_leaning=True) for side in _SIDES]
    return [Chain(tier, outcome, None)]


def _would_go_on(sample: Sample, outcome: Outcome, previous_outcome: Outcome | None) -> bool:
    """Whether the judging would go on after a later tier's opinion if there were no gate."""
    is_ranking = sample.wrong_tiers is not None  # only set for rankings
    if is_ranking:
        # Opinions that end a ranking have no margin, and those without a margin aren't in any chain.
        return True
    # Two opinions only need a third one if they contradict each other.
    return {previous_outcome, outcome} == {"accept", "reject"}


def _may_win_stand(sample: Sample, first_tier: TierName, second_tier: TierName) -> bool:
    """Whether the first tier sees a winner and the second one a tie, and the win may be final."""
    is_win = sample.combined_outcome(first_tier) == "accept"
    is_tie_after = sample.combined_outcome(second_tier) == "improve"
    has_margin = sample.margin(first_tier) is not None
    return sample.can_win_stand and has_margin and is_win and is_tie_after


def _count_labels_for_promise(
    promise: Promise, level: float, error_rate: float = 0.0
) -> int | None:
    """Count the labels needed to prove a promise at this error rate. Returns None if no number is enough."""
    # With a reference, the other half of the level is for the bound on gains.
    level_for_errors = level / 2 if promise.reference else level
    return count_labels_needed(promise.rate, level_for_errors, error_rate)


def _choose_margins(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise
) -> list[float]:
    """Choose the margins to try as gates, largest first, without looking at the labels.

    A gate includes all opinions with at least its margin, so each gate includes more opinions than the
    previous one. The last gate includes all.
    """
    margins = sorted((chain.margin(member) for member in members), reverse=True)
    first_size = _choose_first_size(chain, margins, level, promise)
    if first_size is None or len(margins) <= first_size:
        return margins[-1:]

    max_steps = MAX_LEANING_GATES if chain.is_by_leaning else MAX_GATES
    ratio = _choose_growth(chain, len(margins) / first_size, max_steps)
    chosen: list[float] = []
    size = float(first_size)
    for _ in range(max_steps - 1):  # the last step is reserved for all opinions
        if size >= len(margins):
            break
        margin = margins[ceil(size) - 1]
        chosen.append(margin)
        # Other opinions may share this margin, so the gate can include more of them than `size`.
        included = sum(other_margin >= margin for other_margin in margins)
        size = max(included * ratio, included + 1)

    smallest_margin = margins[-1]
    if smallest_margin not in chosen:
        chosen.append(smallest_margin)
    return chosen


def _choose_first_size(
    chain: Chain, margins: Sequence[float], level: float, promise: Promise
) -> int | None:
    """Choose the number of opinions in the first gate. Returns None if no number is enough."""
    is_coarse = chain.is_by_leaning and len(set(margins)) <= MAX_COARSE_MARGINS
    if is_coarse:
        # Many opinions share each of the few margins, so start with the smallest gate that can hold.
        return _count_labels_for_promise(promise, level, error_rate=0.0)
    # Start with a gate that's wide enough to hold in spite of a few errors.
    return _count_labels_for_promise(
        promise, level, error_rate=promise.rate * FIRST_GATE_ERROR_SHARE
    )


def _choose_growth(chain: Chain, total_growth: float, max_steps: int) -> float:
    """Choose a gate's size relative to the one before, so that equal steps lead to the total growth."""
    even_ratio: float = total_growth ** (1 / (max_steps - 1))
    min_ratio = 1.0 if chain.is_by_leaning else MIN_WIDENING_RATIO
    return max(min_ratio, even_ratio)


def _test_gate(
    chain: Chain, least_margin: float, members: Sequence[Sample], level: float, promise: Promise
) -> CalibratedRule | RefusedRule:
    """Test the gate for the chain's opinions with at least this margin. Returns the gate or a refusal.

    `members` are the samples with such opinions. The gate holds if the bound on its error rate, at this
    `level`, is within the promise. A refusal says how many more labels would be enough at the same error
    rate.
    """
    labels = len(members)
    errors, gains = _count_errors_and_gains(chain, members, promise)
    error_bound = bound(labels, errors, gains, level, promise)
    evidence = {
        "tier": chain.tier,
        "outcome": chain.outcome,
        "after": chain.preceding_outcome,
        "stands": chain.standing_tier,
        **chain.build_margin_fields(least_margin),
        "labels": labels,
        "errors": errors,
        "gains": gains,
        "bound": round(error_bound, 6),
    }
    if error_bound <= promise.rate:
        return CalibratedRule(**evidence)

    net_error_rate = max(0.0, (errors - gains) / labels)  # each gain makes up for an error
    labels_needed = _count_labels_for_promise(promise, level, net_error_rate)
    if labels_needed is None:
        return RefusedRule(**evidence, why="too many errors", more=None)
    # The number needed is an estimate, and can be too low. As the gate failed, it needs at least one more.
    more = max(1, labels_needed - labels)
    return RefusedRule(**evidence, why="too few labels", more=more)


def _count_errors_and_gains(
    chain: Chain, members: Sequence[Sample], promise: Promise
) -> tuple[int, int]:
    """Count the samples that the gate gets wrong and the reference doesn't, and the other way round."""
    errors = 0
    gains = 0
    makes_win_final = chain.standing_tier is not None
    for member in members:
        is_reference_wrong = _is_reference_wrong(member, promise.reference)
        if chain.is_wrong(member):
            # It's no error if the reference is wrong, too. But a wrong win that a gate makes final is worse
            # than the reference's wrong tie, so it's always an error.
            if makes_win_final or not is_reference_wrong:
                errors += 1
        elif is_reference_wrong:
            gains += 1
    return errors, gains


def _is_reference_wrong(member: Sample, reference: TierName | None) -> bool:
    """Whether the reference tier is wrong about a sample. A failure isn't wrong."""
    if reference is None:
        return False
    has_failed = member.outcome(reference) is None
    # `is_wrong` compares a tie with the label, but some tiers' ties count as right in any case.
    is_right_tie = reference in member.right_tie_tiers
    if has_failed or is_right_tie:
        return False
    return member.is_wrong(reference)


# --- The results of rules on labelled cases


def measure_walks(walks: Sequence[Walked], tiers: Sequence[TierName]) -> calibration.Measured:
    """Count the cases that were decided, decided wrongly, or decided by a gate, and each tier's calls.

    `walks` are the replays of the cases, tier by tier.
    """
    calls = dict.fromkeys(tiers, 0)
    decided = 0
    errors = 0
    by_gate = 0
    for walked in walks:
        for tier in tiers:
            calls[tier] += walked.calls.get(tier, 0)

        if walked.is_right is not None:
            decided += 1
        if walked.is_right is False:
            errors += 1
        if walked.is_ended_by_gate:
            by_gate += 1
    return calibration.Measured(decided=decided, errors=errors, by_gate=by_gate, calls=calls)


def read_ranked_cases(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[RankedCase]:
    """Read the scores of cases that compare texts. Returns [] if no case compares texts.

    Raises `InputError` if only some cases compare texts, or if a label or score is invalid.
    """
    if not any(case.subjects for case in cases):
        return []

    task = build_ranking_task(rubric, mode)
    # A tier deviates in a case if another model answered than usual, or the answer was read in another way.
    # Such answers teach no gates.
    deviating_tiers_by_case = find_common_ways(cases).deviating_tiers_by_case
    ranked_cases = []
    for case, deviating_tiers in zip(cases, deviating_tiers_by_case, strict=True):
        _check_subjects(case)
        ranked_cases.append(task.read_ranked_case(case, deviating_tiers))
    return ranked_cases


def _check_subjects(case: Case) -> None:
    """Raise `InputError` if a case has fewer than two texts to compare."""
    if not case.subjects:
        raise case.build_error("subjects: expected in all cases, or in none")
    if len(case.subjects) == 1:
        raise case.build_error("subjects: expected at least two texts")


class Opinions(NamedTuple):
    """The cases with the models' answers, each tier's model, a hash of how it's asked, and who answered.

    `unasked_reasons` gives, for each case left out, the reason no model was asked.
    """

    cases: list[Case]
    models: Mapping[TierName, str]
    asking: calibration.Asking
    judge: DocumentJudge | None = None
    unasked_reasons: Sequence[str] = ()

    def add_combined_result(self, rubric: Rubric, mode: ModeName) -> list[Case]:
        """Return the cases with the tiers' combined result added, as the answer of the judge `ALL_TIERS`.

        Cases that compare texts and cases with recorded answers are returned unchanged.
        """
        if self.judge is None:  # no model was asked, so the answers are recorded ones
            return self.cases
        if any(case.subjects for case in self.cases):
            return self.cases

        task = choose_task(rubric, mode)
        rules = self.judge.settings.build_escalation_rules(task.name)
        # A tier deviates in a case if another model answered than usual, or the answer was read in another
        # way. No gate makes such an answer final.
        deviating_tiers_by_case = find_common_ways(self.cases).deviating_tiers_by_case
        cases = []
        for case, deviating_tiers in zip(self.cases, deviating_tiers_by_case, strict=True):
            course = task.record_course(case, deviating_tiers, rules)
            if course is None:
                cases.append(case)
            else:
                cases.append(case.with_judges({ALL_TIERS: course}))
        return cases


class _Choice(NamedTuple):
    """The chosen rules, and each judging's end with and without them.

    `likelihoods` are for tiers whose models decide; there are none for rankings.
    """

    rules: ChosenRules
    with_gates: list[Walked]
    without_gates: list[Walked]
    likelihoods: dict[TierName, calibration.Likelihood]


def learn(
    opinions: Opinions,
    loaded: LoadedRubric,
    mode: ModeName,
    promise: Promise,
    *,
    made: datetime,
    digest: str,
) -> Calibration:
    """Learn gates that keep a promise from labelled cases. `digest` is the hash of the labels.

    Raises `InputError` if the cases don't match the rubric or each other, or if there are too few tiers.
    """
    cases = opinions.cases
    models = opinions.models
    rubric = loaded.rubric
    tiers = _list_tiers(models, promise)
    common_ways = find_common_ways(cases)

    ranked_cases = read_ranked_cases(cases, rubric, mode)
    if ranked_cases:
        choice = _choose_for_rankings(ranked_cases, tiers, promise)
    else:
        samples = read_samples(cases, rubric, mode)
        default_rules = _build_default_rules(rubric, mode, models, common_ways.common_sources)
        choice = _choose_for_samples(samples, tiers, promise, default_rules)

    learned = Calibration(
        schema=calibration.SCHEMA,
        id="",  # set below, because it contains a hash of the rest
        made=made,
        rubric=RubricRef(id=rubric.rubric, version=rubric.version, sha256=loaded.sha256),
        mode=mode,
        prompt_sha256=rubric.prompt.sha256,
        questions_sha256=hash_questions(loaded, mode),
        models=dict(models),
        asked=find_options(cases),
        read=common_ways.common_sources,
        answered=_complete_names(models, common_ways.common_models),
        asking=opinions.asking,
        subjects=_count_subjects(ranked_cases),
        promise=promise,
        read_otherwise=_count_deviating(common_ways.deviating_tiers_by_case),
        labels_sha256=digest,
        **_describe_choice(choice, cases, tiers),
    )
    calibration_id = f"{rubric.rubric}-{mode}-{_hash_contents(learned)}"
    return learned.model_copy(update={"id": calibration_id})


def _list_tiers(models: Mapping[TierName, str], promise: Promise) -> tuple[TierName, ...]:
    """List the tiers that have models, in order.

    Raises `InputError` if there's only one, or if the promise's reference tier has no models.
    """
    tiers = tuple(tier for tier in TIERS if tier in models)
    has_next_tier = len(tiers) >= 2  # noqa: PLR2004 - a gate only saves calls to the next tier
    has_reference = promise.reference is None or promise.reference in tiers
    if has_next_tier and has_reference:
        return tiers
    problem = f"judges: expected opinions of quick and deep, got {', '.join(tiers) or 'none'}"
    raise InputError(f"{problem}; a calibration needs a next tier")


def _complete_names(
    models: Mapping[TierName, str], answered: calibration.Answered
) -> calibration.Answered:
    """Map each requested model to the model that answered. If no answer is known, map it to itself."""
    names: calibration.Answered = {}
    for tier, joined_models in models.items():
        names[tier] = {}
        for model in joined_models.split(calibration.MODEL_SEPARATOR):
            names[tier][model] = answered.get(tier, {}).get(model, model)
    return names


def _describe_choice(
    choice: _Choice, cases: Sequence[Case], tiers: Sequence[TierName]
) -> dict[str, Any]:
    """Describe the chosen rules and their effect on the cases, as fields of a calibration."""
    saved = None
    # Only decision models have likelihoods, and savings are only reported for them.
    has_decision_models = bool(choice.likelihoods)
    if has_decision_models:
        saved = _estimate_saved_per_hundred(cases, choice.with_gates, tiers)
    return {
        "gates": choice.rules.gates,
        "not_promised": choice.rules.refused_gates,
        "cases": len(choice.without_gates),
        "with_gates": measure_walks(choice.with_gates, tiers),
        "without": measure_walks(choice.without_gates, tiers),
        "likelihoods": choice.likelihoods,
        "saved": saved,
    }


def _choose_for_rankings(
    ranked_cases: Sequence[RankedCase], tiers: Sequence[TierName], promise: Promise
) -> _Choice:
    """Choose rules for cases that compare texts, and replay the cases with and without these rules."""
    rules = choose_rules([case.sample() for case in ranked_cases], tiers, promise)
    with_gates = [case.walk(rules.finality) for case in ranked_cases]
    without_gates = [case.walk(None) for case in ranked_cases]
    return _Choice(rules, with_gates, without_gates, likelihoods={})


def _choose_for_samples(
    labelled: Sequence[Sample],
    tiers: Sequence[TierName],
    promise: Promise,
    default_rules: EscalationRules,
) -> _Choice:
    """Choose gates for labelled samples, and replay the samples with and without them."""
    chosen = choose_rules(labelled, tiers, promise)
    rules_with_gates = replace(default_rules, finality=chosen.finality)
    with_gates = [walk(sample, rules_with_gates) for sample in labelled]
    without_gates = [walk(sample, default_rules) for sample in labelled]
    return _Choice(chosen, with_gates, without_gates, likelihoods=_learn_likelihoods(labelled))


def _count_deviating(
    deviating_tiers_by_case: Sequence[Collection[TierName]],
) -> dict[TierName, int]:
    """Count the cases in which each tier deviates from its common way of answering, omitting zeros."""
    counts = {}
    for tier in TIERS:
        count = sum(tier in deviating_tiers for deviating_tiers in deviating_tiers_by_case)
        if count:
            counts[tier] = count
    return counts


def _build_default_rules(
    rubric: Rubric, mode: ModeName, models: Mapping[TierName, str], readings: calibration.Readings
) -> EscalationRules:
    """Build the default escalation rules, without any gates.

    `models` has the names of each tier's models, joined by `calibration.MODEL_SEPARATOR`. `readings` says how
    each model's scores were read, such as "decided" for a decision model.
    """
    separate_models = {}
    for tier in TIERS:
        if tier in models:
            separate_models[tier] = frozenset(models[tier].split(calibration.MODEL_SEPARATOR))

    return EscalationRules(
        outcome_to_confirm=getattr(rubric.modes, mode).confirm,
        tiers=tuple(separate_models),
        task=choose_task(rubric, mode).name,
        mode=mode,
        models=separate_models,
        deciding_tiers=_list_deciding_tiers(readings),
        needs_proof=mode == "strict",  # a decision model alone can't accept in strict mode
    )


def _list_deciding_tiers(readings: calibration.Readings) -> list[TierName]:
    """List the tiers that have only decision models."""
    deciding_tiers = []
    for tier in TIERS:
        tier_readings = readings.get(tier, {}).values()
        has_models = bool(tier_readings)
        has_only_decision_models = all(reading == "decided" for reading in tier_readings)
        if has_models and has_only_decision_models:
            deciding_tiers.append(tier)
    return deciding_tiers


def _learn_likelihoods(samples: Sequence[Sample]) -> dict[TierName, calibration.Likelihood]:
    """Learn how likely an acceptance is at each leaning of a tier's decision model.

    A leaning is how far the model's opinion is on the side of acceptance. Tiers without a decision model, or
    with too few labels, are omitted.
    """
    likelihoods = {}
    for tier in TIERS:
        leanings_and_acceptances = []
        for sample in samples:
            if tier in sample.leanings:
                is_accepted = sample.label == "accept"
                leanings_and_acceptances.append((sample.leanings[tier], is_accepted))
        likelihood = learn_likelihood(leanings_and_acceptances)
        if likelihood is not None:
            likelihoods[tier] = likelihood
    return likelihoods


def _estimate_saved_per_hundred(
    cases: Sequence[Case], walks: Sequence[Walked], tiers: Sequence[TierName]
) -> calibration.Saved:
    """Estimate the money and time that the gates save per hundred subjects by sparing second-tier calls.

    A figure is None if it's unknown for all cases.
    """
    second_tier = tiers[1]
    answers = [case.judges[second_tier] for case in cases if second_tier in case.judges]
    costs = [answer.cost_usd for answer in answers if answer.cost_usd is not None]
    waits = [answer.latency_ms / 1000 for answer in answers if answer.latency_ms is not None]

    spared_per_hundred = 100 * _count_spared(walks, second_tier) / len(walks)
    usd = None
    seconds = None
    if costs:
        usd = round(spared_per_hundred * fmean(costs), 6)
    if waits:
        seconds = round(spared_per_hundred * fmean(waits), 1)
    return calibration.Saved(usd=usd, seconds=seconds)


def _count_spared(walks: Iterable[Walked], tier: TierName) -> int:
    """Count the judgings that a gate ended before the tier was asked."""
    spared = 0
    for walked in walks:
        is_unasked = tier not in walked.calls
        if walked.is_ended_by_gate and is_unasked:
            spared += 1
    return spared


def _count_subjects(ranked_cases: Sequence[RankedCase]) -> calibration.Subjects | None:
    """Count the texts that the cases compare. Returns None if the cases don't compare any."""
    if not ranked_cases:
        return None
    counts = [len(ranked_case.case.subjects) for ranked_case in ranked_cases]
    return calibration.Subjects(least=min(counts), most=max(counts), all=sum(counts))


def _hash_contents(learned: Calibration) -> str:
    """Hash a calibration's gates and inputs, such as the rubric, models and labels, to 12 digits."""
    content = [
        learned.rubric.sha256,
        learned.mode,
        learned.models,
        learned.prompt_sha256,
        learned.labels_sha256,
        learned.asked.model_dump(),
        learned.read,
        learned.answered,
        learned.asking,
        learned.promise.model_dump(),
        [gate.model_dump() for gate in learned.gates],
    ]
    return calibration.hash_json(content)[:12]
