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
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.config import TIERS, ModeName, Outcome, TierName
from judgekit.errors import InputError
from judgekit.evaluation.cases import COURSE, Case
from judgekit.evaluation.likelihood import learn_likelihood
from judgekit.evaluation.samples import Sample, Walked, find_common_ways, find_options, walk
from judgekit.evaluation.tasks import choose_task, ranking_task, read_samples
from judgekit.judging import calibration
from judgekit.judging.binomial import count_labels_needed
from judgekit.judging.calibration import CalibratedRule, Calibration, Promise, RefusedRule, bound
from judgekit.judging.finality import FinalityRules, towards
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
STEPS = 6
# The same if a chain holds both trusted and untrusted opinions: finer, so it can end in between.
LEANING_STEPS = 300
COARSE = 20  # different leanings
_SIDES: tuple[Outcome, Outcome] = ("accept", "reject")
# The first gate is wide enough to hold even with errors at this share of the promised rate.
FREE_SHARE = 0.25
# Each gate lets through at least this many times the opinions of the one before.
WIDER = 1.15


class Chain(NamedTuple):
    """Opinions with `tier`'s outcome after another's, or a tier's wins that may stand against its tie.

    For a decision model, it's all opinions, those furthest towards the outcome first: if it leans to one
    side throughout, its smallest leanings may be right about the other side.
    """

    tier: TierName
    outcome: Outcome
    after: Outcome | None
    stands: TierName | None = None
    leans: bool = False

    def margin(self, sample: Sample) -> float:
        if self.leans:
            return towards(self.outcome, sample.leanings[self.tier])
        return sample.margin(self.stands or self.tier) or 0.0

    def margin_fields(self, value: float) -> dict[str, float | None]:
        """Build the fields for a gate with this least margin or leaning."""
        if self.leans:
            return {"least_margin": 0.0, "leaning": value}
        return {"least_margin": value}

    def is_wrong(self, sample: Sample) -> bool:
        """Whether the sample would get a wrong result if a gate of this chain made its opinion final."""
        if self.stands is not None:  # then the win becomes final
            return sample.label != "accept"
        if self.leans:
            return not sample.is_right(self.outcome)
        return sample.is_wrong(self.tier)


Chains: TypeAlias = dict[Chain, list[Sample]]


class _ChainTest(NamedTuple):
    """A chain's widest gate that holds, the next one, which doesn't, and the number tested.

    `widest` is None if no gate holds, `refused` if all do.
    """

    widest: CalibratedRule | None
    refused: RefusedRule | None
    steps: int


_NO_TEST = _ChainTest(widest=None, refused=None, steps=0)


class ChosenRules(NamedTuple):
    """The gates that hold, with the evidence for each, and the classes without one."""

    finality: FinalityRules
    gates: list[CalibratedRule]
    refused: list[RefusedRule]


def choose_rules(
    samples: Sequence[Sample], tiers: Sequence[TierName], promise: Promise
) -> ChosenRules:
    """Choose the widest gates that keep the promise. A gate lets a tier's sure opinions become final.

    `tiers` are the panel's tiers in order. A chain is a series of gates that include each other, such as
    those for a tier's acceptances.
    """
    chains = _group_by_chain(samples, tiers, promise.reference)
    doubt = 1 - promise.confidence  # the probability of error that all tests share
    testable = _find_testable(chains, doubt, promise)

    gates: list[CalibratedRule] = []
    refused = []
    steps: dict[Chain, int] = {}  # how many of a chain's gates were tested

    for chain, members in chains.items():
        if chain in testable:
            # Split the doubt equally among the chains. Then split a chain's part among the results that the
            # previous tier's chains could have had, because they decide which samples get here.
            level = doubt / len(testable) / _count_possible_results(chain, tiers, steps)
            earlier_tiers = tiers[: tiers.index(chain.tier)]
            earlier_gates = FinalityRules(rules=tuple(gates))
            open_samples = _select_open(members, earlier_tiers, earlier_gates)
            test = _test_chain(chain, open_samples, level, promise)
            steps[chain] = test.steps
            if test.widest is not None:
                gates.append(test.widest)
            refusal = test.refused
            if chain.leans:
                refusal = _find_refusal_on_side(chain, open_samples, level, promise, test)
        else:
            # Report how many labels the chain needs, at the level that it would have if it were tested, too.
            level = doubt / (len(testable) + 1)
            refusal = _refuse_untested(chain, members, level, promise)
        if refusal is not None:
            refused.append(refusal)

    remaining_gates = _drop_overlaps(gates)
    finality = FinalityRules(rules=tuple(remaining_gates), last=promise.reference)
    return ChosenRules(finality, remaining_gates, refused)


def _refuse_untested(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise
) -> RefusedRule | None:
    """Build the refusal for a chain that has too few labels. It contains how many more are needed."""
    if chain.leans:
        return _find_refusal_on_side(chain, members, level, promise, _NO_TEST)
    least_margin = min(map(chain.margin, members))
    gate = _test_gate(chain, least_margin, members, level, promise)
    return gate if isinstance(gate, RefusedRule) else None


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


def _find_refusal_on_side(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise, test: _ChainTest
) -> RefusedRule | None:
    """Find the refused gate to report for a decision model's chain, or None if there's nothing to report.

    A gate makes a tier's opinions final if their margin is large enough. If no gate holds, the widest gate
    that more labels could prove is reported. Failing that, it's the gate for all opinions that lean to this
    outcome.
    """
    # The chain also contains opinions that lean to the other outcome, with margins below 0. These can't
    # become final, so a refused gate for them isn't reported.
    if test.widest is not None:
        is_on_side = test.refused is not None and (test.refused.leaning or 0.0) >= 0
        return test.refused if is_on_side else None

    # No gate holds. Look for a gate that more labels could prove, starting with the widest.
    samples_on_side = [sample for sample in members if chain.margin(sample) >= 0]
    margins = sorted({chain.margin(sample) for sample in samples_on_side})
    widest_refused = None
    for margin in margins:
        samples_in_class = [sample for sample in samples_on_side if chain.margin(sample) >= margin]
        gate = _test_gate(chain, margin, samples_in_class, level, promise)
        if not isinstance(gate, RefusedRule):
            continue
        if gate.more is not None:  # the number of further labels that would prove the gate
            return gate
        widest_refused = widest_refused or gate
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
    if gate.leaning is None or other.leaning is None or gate.tier != other.tier:
        return False
    # The two leanings are measured in opposite directions, so the gates touch if they add up to 0.
    return gate.outcome != other.outcome and gate.leaning + other.leaning <= 0


def _find_testable(chains: Chains, doubt: float, promise: Promise) -> set[Chain]:
    """Find the largest set of chains that all have enough labels to pass if they split the doubt equally."""
    largest_first = sorted(chains, key=lambda chain: -len(chains[chain]))
    testable = set[Chain]()
    for count, chain in enumerate(largest_first, 1):
        # The current chain is the smallest of these, so if it has enough labels, all of them do.
        least_labels = _count_labels_for_promise(promise, doubt / count)
        if least_labels is not None and len(chains[chain]) >= least_labels:
            testable = set(largest_first[:count])
    return testable


def _count_possible_results(
    chain: Chain, tiers: Sequence[TierName], steps: Mapping[Chain, int]
) -> int:
    """Count the possible test results of the previous tier's chains, which decide which samples get here.

    `steps` contains the number of gates that were tested in each chain.
    """
    if chain.after is None:  # there's no previous tier
        return 1
    previous_tier = tiers[tiers.index(chain.tier) - 1]
    results = 1  # the result that no gate holds
    for tested_chain, count in steps.items():
        if (tested_chain.tier, tested_chain.outcome) == (previous_tier, chain.after):
            results += count
    return results


def _select_open(
    members: Iterable[Sample], earlier_tiers: Sequence[TierName], finality: FinalityRules
) -> list[Sample]:
    """Select the samples that aren't final yet after the gates of earlier tiers."""
    open_samples = []
    for sample in members:
        outcomes = {tier: sample.combined_outcome(tier) for tier in earlier_tiers}
        is_final = any(finality.final(tier, outcomes, sample.margins) for tier in outcomes)
        # For decision models, gates use the leaning instead of the margin.
        is_decided = any(finality.decided(tier, sample.leanings) for tier in outcomes)
        if not is_final and not is_decided:
            open_samples.append(sample)
    return open_samples


def _group_by_chain(
    samples: Sequence[Sample], tiers: Sequence[TierName], reference: TierName | None
) -> Chains:
    """Group samples by the chains that their opinions belong to. Chains of earlier tiers come first.

    A chain is a tier's outcome after the previous tier's outcome, such as "accept" after "improve".
    """
    chains: Chains = {}

    # The reference tier always decides, so this tier and later ones need no gates. By default, it's the last.
    tiers_with_gates = tiers[: tiers.index(reference or tiers[-1])]
    for tier_index, tier in enumerate(tiers_with_gates):
        previous_tier = tiers[tier_index - 1] if tier_index else None
        for sample in samples:
            for chain in _list_chains(sample, tier, previous_tier, reference):
                chains.setdefault(chain, []).append(sample)

    # When comparing two texts, the first tier can see a winner and the second one a tie. Add a chain for
    # gates that let the win stand.
    first_tier, second_tier = tiers[:2]
    for sample in samples:
        is_win = sample.combined_outcome(first_tier) == "accept"
        is_tie_after = sample.combined_outcome(second_tier) == "improve"
        may_stand = sample.stands and sample.margin(first_tier) is not None
        if may_stand and is_win and is_tie_after:
            chain = Chain(second_tier, "improve", after="accept", stands=first_tier)
            chains.setdefault(chain, []).append(sample)
    return chains


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

    # the first tier
    if previous_tier is None:
        if tier in sample.leanings:  # A decision model's opinion belongs to both outcomes' chains.
            return [Chain(tier, side, None, leans=True) for side in _SIDES]
        return [Chain(tier, outcome, None)]

    # a later tier
    previous_outcome = sample.combined_outcome(previous_tier)
    is_dispute = sample.wrong is not None or {outcome, previous_outcome} == {"accept", "reject"}
    if reference is None and not is_dispute:
        # Without a dispute, the judging ends here even without a gate. Testing a gate would only use up some
        # of the permitted error probability.
        return []
    return [Chain(tier, outcome, previous_outcome)]


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
    margins = sorted(map(chain.margin, members), reverse=True)
    # If there are only a few different margins, many opinions share each, so start with the smallest gate
    # that can hold. Otherwise start with a gate that holds even with a few errors.
    is_coarse = chain.leans and len(set(margins)) <= COARSE
    error_rate = 0.0 if is_coarse else promise.rate * FREE_SHARE
    first_size = _count_labels_for_promise(promise, level, error_rate)
    if first_size is None or len(margins) <= first_size:
        return margins[-1:]

    # Let the number of opinions grow by a constant ratio, so that the last gate includes all.
    max_steps = LEANING_STEPS if chain.leans else STEPS
    min_ratio = 1.0 if chain.leans else WIDER
    even_ratio = (len(margins) / first_size) ** (1 / (max_steps - 1))
    ratio = max(min_ratio, even_ratio)
    chosen: list[float] = []
    size = float(first_size)
    max_chosen = max_steps - 1  # the last step is reserved for all opinions
    while size < len(margins) and len(chosen) < max_chosen:
        margin = margins[ceil(size) - 1]
        count_inside = sum(other_margin >= margin for other_margin in margins)
        chosen.append(margin)
        size = max(count_inside * ratio, count_inside + 1)

    # Add the gate for all opinions, unless the last one already includes them.
    if not chosen or chosen[-1] > margins[-1]:
        chosen.append(margins[-1])
    return chosen


def _test_gate(
    chain: Chain, least_margin: float, members: Sequence[Sample], level: float, promise: Promise
) -> CalibratedRule | RefusedRule:
    """Test the gate for the chain's opinions with at least this margin. Returns the gate or a refusal.

    `members` are the samples with such opinions. The gate holds if the bound on its error rate, at this
    `level`, is within the promise. A refusal says how many more labels would be enough at the same error
    rate.
    """
    errors = 0
    gains = 0
    for member in members:
        is_wrong = chain.is_wrong(member)
        is_reference_wrong = _is_reference_wrong(member, promise.reference)
        if is_wrong:
            # An error that the reference also makes doesn't count. But a win that stands against the
            # reference's tie is worse than the tie, so it does.
            if chain.stands is not None or not is_reference_wrong:
                errors += 1
        elif is_reference_wrong:
            gains += 1

    labels = len(members)
    error_bound = bound(labels, errors, gains, level, promise)
    evidence = {
        "tier": chain.tier,
        "outcome": chain.outcome,
        "after": chain.after,
        "stands": chain.stands,
        **chain.margin_fields(least_margin),
        "labels": labels,
        "errors": errors,
        "gains": gains,
        "bound": round(error_bound, 6),
    }

    if error_bound <= promise.rate:
        return CalibratedRule(**evidence)

    error_rate = max(0.0, (errors - gains) / labels)
    labels_needed = _count_labels_for_promise(promise, level, error_rate)
    if labels_needed is None:
        return RefusedRule(**evidence, why="too many errors", more=None)
    more = max(1, labels_needed - labels)  # even if that's rounded to 0
    return RefusedRule(**evidence, why="too few labels", more=more)


def _is_reference_wrong(member: Sample, reference: TierName | None) -> bool:
    """Whether the reference tier is wrong about a sample."""
    # Being right where the reference is wrong counts as a gain. If it failed, there's nothing to gain.
    if reference is None or member.outcome(reference) is None or reference in member.ties:
        return False
    return member.is_wrong(reference)


# --- The results of rules on labelled cases


def measured(walks: Sequence[Walked], tiers: Sequence[TierName]) -> calibration.Measured:
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

        if walked.right is not None:
            decided += 1
        if walked.right is False:
            errors += 1
        if walked.by_gate:
            by_gate += 1
    return calibration.Measured(decided=decided, errors=errors, by_gate=by_gate, calls=calls)


def read_ranked_cases(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[RankedCase]:
    """Read the scores of cases that compare texts. Returns [] if no case compares texts.

    Raises `InputError` if only some cases compare texts, or if a label or score is invalid.
    """
    if not any(case.subjects for case in cases):
        return []

    task = ranking_task(rubric, mode)
    ranked_cases = []
    deviating_tiers_by_case = find_common_ways(cases).deviating_tiers_by_case
    for case, deviating_tiers in zip(cases, deviating_tiers_by_case, strict=True):
        if len(case.subjects) < 2:  # noqa: PLR2004 - one text is not compared
            expected = "at least two texts" if case.subjects else "in all cases, or in none"
            raise case.wrong(f"subjects: expected {expected}")
        ranked_cases.append(task.ranked_case(case, deviating_tiers))
    return ranked_cases


class Opinions(NamedTuple):
    """The cases with the models' answers, each tier's model, a hash of how it's asked, and who answered.

    `unasked` gives, for each case left out, the reason no model was asked.
    """

    cases: list[Case]
    models: Mapping[TierName, str]
    asking: calibration.Asking
    judge: DocumentJudge | None = None
    unasked: Sequence[str] = ()

    def with_course(self, rubric: Rubric, mode: ModeName) -> list[Case]:
        """Return the cases with the tiers' combined result added, as the answer of a judge called `COURSE`.

        Cases that compare texts and cases with recorded answers are returned unchanged.
        """
        if self.judge is None or any(case.subjects for case in self.cases):
            return self.cases

        task = choose_task(rubric, mode)
        rules = self.judge.settings.escalation_rules(task.name)
        deviating_tiers_by_case = find_common_ways(self.cases).deviating_tiers_by_case
        cases = []
        for case, deviating_tiers in zip(self.cases, deviating_tiers_by_case, strict=True):
            course = task.record_course(case, deviating_tiers, rules)
            if course is None:
                cases.append(case)
            else:
                cases.append(case.with_judges({COURSE: course}))
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
    """Learn from labelled cases what can be promised. `digest` is the hash of their labels.

    Raises `InputError` if the cases don't match the rubric or each other, or if there are too few tiers.
    """
    cases = opinions.cases
    models = opinions.models
    rubric = loaded.rubric
    tiers = _list_tiers(models, promise)
    ways = find_common_ways(cases)

    ranked_cases = read_ranked_cases(cases, rubric, mode)
    if ranked_cases:
        choice = _choose_for_rankings(ranked_cases, tiers, promise)
    else:
        samples = read_samples(cases, rubric, mode)
        default_rules = _build_default_rules(rubric, mode, models, ways.read)
        choice = _choose_for_samples(samples, tiers, promise, default_rules)

    saved = None
    if choice.likelihoods:
        saved = _estimate_saved_per_hundred(cases, choice.with_gates, tiers)

    learned = Calibration(
        schema=calibration.SCHEMA,
        id="",  # replaced below by a hash of the rest
        made=made,
        rubric=RubricRef(id=rubric.rubric, version=rubric.version, sha256=loaded.sha256),
        mode=mode,
        prompt_sha256=rubric.prompt.sha256,
        questions_sha256=hash_questions(loaded, mode),
        models=dict(models),
        asked=find_options(cases),
        read=ways.read,
        answered=_complete_names(models, ways.answered),
        asking=opinions.asking,
        subjects=_count_subjects(ranked_cases),
        promise=promise,
        gates=choice.rules.gates,
        not_promised=choice.rules.refused,
        read_otherwise=_count_deviating(ways.deviating_tiers_by_case),
        cases=len(choice.without_gates),
        labels_sha256=digest,
        with_gates=measured(choice.with_gates, tiers),
        without=measured(choice.without_gates, tiers),
        likelihoods=choice.likelihoods,
        saved=saved,
    )
    return learned.model_copy(update={"id": f"{rubric.rubric}-{mode}-{_hash_contents(learned)}"})


def _list_tiers(models: Mapping[TierName, str], promise: Promise) -> tuple[TierName, ...]:
    """List the tiers that have models, in order. Raises `InputError` if there are too few to learn from."""
    tiers = tuple(tier for tier in TIERS if tier in models)
    lacks_reference = promise.reference is not None and promise.reference not in tiers
    if len(tiers) < 2 or lacks_reference:  # noqa: PLR2004 - a gate only saves calls to the next tier
        problem = f"judges: expected opinions of quick and deep, got {', '.join(tiers) or 'none'}"
        raise InputError(f"{problem}; a calibration needs a next tier")
    return tiers


def _complete_names(
    models: Mapping[TierName, str], answered: calibration.Answered
) -> calibration.Answered:
    """Map each requested model to the model that answered. If no answer is known, map it to itself."""
    names: calibration.Answered = {}
    for tier, joined_models in models.items():
        names[tier] = {}
        for model in joined_models.split(calibration.TOGETHER):
            names[tier][model] = answered.get(tier, {}).get(model, model)
    return names


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
    """Choose rules for samples, and replay the samples with and without these rules."""
    rules = choose_rules(labelled, tiers, promise)
    gated_rules = replace(default_rules, finality=rules.finality)
    with_gates = [walk(sample, gated_rules) for sample in labelled]
    without_gates = [walk(sample, default_rules) for sample in labelled]
    return _Choice(rules, with_gates, without_gates, likelihoods=_learn_likelihoods(labelled))


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

    `models` maps each tier to the joined names of its models. `readings` contains the source that each
    model's scores were read from.
    """
    models_by_tier = {}
    deciding = []  # tiers of decision models
    for tier in TIERS:
        if tier in models:
            models_by_tier[tier] = frozenset(models[tier].split(calibration.TOGETHER))
        if set(readings.get(tier, {}).values()) == {"decided"}:
            deciding.append(tier)

    return EscalationRules(
        confirm=getattr(rubric.modes, mode).confirm,
        tiers=tuple(models_by_tier),
        task=choose_task(rubric, mode).name,
        mode=mode,
        models=models_by_tier,
        deciding=deciding,
        needs_proof=mode == "strict",  # a decision model alone can't accept in strict mode
    )


def _learn_likelihoods(samples: Sequence[Sample]) -> dict[TierName, calibration.Likelihood]:
    """Learn a curve from leaning to the probability of acceptance, for each tier with a decision model."""
    likelihoods = {}
    for tier in TIERS:
        labelled = []
        for sample in samples:
            if tier in sample.leanings:
                labelled.append((sample.leanings[tier], sample.label == "accept"))
        curve = learn_likelihood(labelled)
        if curve is not None:
            likelihoods[tier] = curve
    return likelihoods


def _estimate_saved_per_hundred(
    cases: Sequence[Case], walks: Sequence[Walked], tiers: Sequence[TierName]
) -> calibration.Saved:
    """Estimate the money and time that the gates save per hundred subjects by sparing second-tier calls.

    A figure is None if it's unknown for all cases.
    """
    # Collect the second tier's recorded costs, and its latencies in seconds.
    second_tier = tiers[1]
    costs = []
    waits = []
    for case in cases:
        recorded = case.judges.get(second_tier)
        if recorded is None:
            continue
        if recorded.cost_usd is not None:
            costs.append(recorded.cost_usd)
        if recorded.latency_ms is not None:
            waits.append(recorded.latency_ms / 1000)

    # A gate spares the second tier's calls if it ends the judging before that tier.
    spared = sum(walked.by_gate and second_tier not in walked.calls for walked in walks)
    spared_per_hundred = 100 * spared / len(walks)
    usd = None
    seconds = None
    if costs:
        usd = round(spared_per_hundred * fmean(costs), 6)
    if waits:
        seconds = round(spared_per_hundred * fmean(waits), 1)
    return calibration.Saved(usd=usd, seconds=seconds)


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
    return calibration.sha256(content)[:12]
