"""When judging ends, and why: `decide`, a pure function of the evidence of all tiers so far, and its table.

The rows stand in `TABLE` in the order in which they apply; docs/escalation.md has them in words. The first
row that applies says which tier is asked now, or how the judging ends. Rows that overrule look at such an
end, and may put another in its place. Each end has the name of its row: `because`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.config import TIERS, TierName
from judgekit.judging import independence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from judgekit.config import ModeName, Outcome
    from judgekit.judging.evidence import Evidence, TierEvidence
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.independence import Independence
    from judgekit.judging.verdict import Consensus, VerdictWord

Task: TypeAlias = Literal["document", "candidate", "pair", "ranking"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Go on: ask this tier, of a ranking `about` these subjects alone."""

    tier: TierName
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The end of judging: the verdict, how much agreement it has, the tier that settled it, and why.

    `overruled` is the end that there would be without the last row that applied.
    """

    verdict: VerdictWord
    consensus: Consensus = "none"
    tier: TierName | None = None
    because: str = ""
    overruled: End | None = None


Step: TypeAlias = Ask | End
UNASKED = End("undetermined", because="no model was asked")
EQUAL_TEXTS = End("improve", because="the texts are the same")
EACH_HAS_ITS_OWN = End("undetermined", because="each candidate has its own end")


@dataclass(frozen=True, slots=True)
class EscalationRules:
    """What governs one judging, beside the evidence. One model in several tiers is one voice."""

    confirm: Literal["accept", "reject"]
    """The quick outcome that a second tier must confirm."""
    tiers: tuple[TierName, ...] = TIERS
    task: Task = "document"
    mode: ModeName = "strict"
    models: Mapping[TierName, Collection[str]] = field(default_factory=dict)
    """The models of each tier."""
    deciding: Collection[TierName] = ()
    """The tiers whose models only decide: they give probabilities, and no reasons."""
    finality: FinalityRules | None = None
    """With it no opinions of the first tier are final but those that it lets through."""
    margin: float = 0.0
    """Without `finality`: an opinion with less is not final alone, if another model can be asked."""
    needs_proof: bool = False
    """Whether decision models accept by a calibration only."""
    explains: bool = False
    """Whether a rejection owes reasons."""
    independence: Independence = "prefer"
    authors: Mapping[Outcome, Sequence[str]] = field(default_factory=dict)
    """The families that wrote what an end with this outcome would favour."""
    letters: tuple[str, ...] = ()
    """The subjects of a ranking."""
    copied: Collection[str] = ()
    """Those of which there is another copy."""


def decide(evidence_by_tier: Evidence, rules: EscalationRules) -> Step:
    """Return the tier to ask now, or the end, by the rows of `TABLE`."""
    case = Case(evidence_by_tier, rules)
    step: Step | None = None
    for row in TABLE:
        if rules.task not in row.tasks:
            continue
        if row.overrules:
            if isinstance(step, End) and row.applies(case, step):
                step = _named(row, row.come_to(case, step), overruled=step)
        elif step is None and row.applies(case):
            step = _named(row, row.come_to(case))
    assert step is not None, "the last row that ends a judging applies whenever no other did"  # noqa: S101
    if isinstance(step, End):
        return replace(step, consensus=_count_agreement(case, step))
    return step


def _named(row: Row, step: Step, overruled: End | None = None) -> Step:
    if isinstance(step, Ask):
        return step
    return replace(step, because=row.name, overruled=overruled)


# --- The evidence, as the rows look at it


@dataclass(frozen=True)
class Case:
    """All that is known when it's decided whether to go on."""

    evidence: Evidence
    rules: EscalationRules

    @cached_property
    def outcomes(self) -> dict[TierName, Outcome | None]:
        """The outcome of each tier so far.

        None for one that failed, and for a divided jury that another tier can settle.
        """
        outcomes: dict[TierName, Outcome | None] = {}
        for tier, evidence in self.evidence.items():
            is_left_open = evidence.is_divided and not self.is_last_word(tier)
            outcomes[tier] = None if is_left_open else evidence.outcome
        return outcomes

    @cached_property
    def margins(self) -> dict[TierName, float]:
        """The margins that gates of a calibration may look at."""
        margins = {}
        for tier, evidence in self.evidence.items():
            if evidence.margin is not None:
                margins[tier] = evidence.margin
        return margins

    @property
    def leanings(self) -> dict[TierName, float]:
        leanings = {}
        for tier, evidence in self.evidence.items():
            if evidence.leaning is not None:
                leanings[tier] = evidence.leaning
        return leanings

    @property
    def quick(self) -> Outcome | None:
        return self.outcomes.get("quick") if self.rules.tiers[0] == "quick" else None

    @property
    def deep(self) -> Outcome | None:
        return self.outcomes.get("deep")

    @property
    def third(self) -> Outcome | None:
        return self.outcomes.get("tiebreaker")

    @property
    def first_two(self) -> set[Outcome]:
        """What quick and deep said, if they didn't fail."""
        return {outcome for outcome in (self.quick, self.deep) if outcome is not None}

    @property
    def latest_tier(self) -> TierName:
        return list(self.evidence)[-1]

    @property
    def latest(self) -> TierEvidence:
        return self.evidence[self.latest_tier]

    def can_ask(self, tier: TierName) -> bool:
        return tier in self.rules.tiers and tier not in self.evidence

    def is_last_word(self, tier: TierName) -> bool:
        """Whether no tier is left to settle what divides the jury of this one."""
        return tier == self.rules.tiers[-1] or (tier == "deep" and not self.has_third_voice)

    @property
    def has_third_voice(self) -> bool:
        """Whether the tiebreaker has a voice that neither quick nor deep had."""
        quick, deep, third = self.models_by_tier
        return "tiebreaker" in self.rules.tiers and (not third or bool(third - quick - deep))

    @property
    def models_by_tier(self) -> list[set[str]]:
        return [set(self.rules.models.get(tier, ())) for tier in TIERS]

    def is_unexplained(self, tier: TierName, outcome: VerdictWord) -> bool:
        """Whether an end with this outcome needs reasons that the tier doesn't give."""
        if self.evidence[tier].gives_reasons:
            return False
        return outcome == "improve" or (outcome == "reject" and self.rules.explains)

    def is_weak(self, tier: TierName) -> bool:
        """Whether an opinion isn't final alone if another model can be asked.

        So it is with one of the winner's own family, one that `lacks_reasons`, and one that is close. If its
        margin isn't known it isn't close, and under a calibration its gates look at the margin.
        """
        evidence = self.evidence[tier]
        if evidence.is_own_family or self.lacks_reasons(tier):
            return True
        if self.rules.finality is not None or evidence.margin is None:
            return False
        return evidence.margin < self.rules.margin

    def lacks_reasons(self, tier: TierName) -> bool:
        """Whether a tier says improve without reasons.

        If a calibration would let such an opinion through, no other tier without reasons ends it, either.
        """
        let_through = self.let_through
        if let_through is not None and self.calibrated_end is None:
            return tier in self.rules.deciding
        evidence = self.evidence[tier]
        return evidence.outcome == "improve" and not evidence.gives_reasons

    @cached_property
    def let_through(self) -> End | None:
        """The end by the first opinion that a calibration lets through, with reasons or without."""
        finality = self.rules.finality
        if finality is None or (len(self.rules.tiers) == 1 and self.rules.task != "ranking"):
            return None
        for tier in self.rules.tiers:
            if tier not in self.evidence:
                return None
            outcome = self.outcomes[tier]
            if outcome is None:
                continue
            by_leaning = None
            if finality.has_leaning_rule(tier):
                by_leaning = finality.decided(tier, self.leanings)
            final_outcome = by_leaning or outcome
            is_final = by_leaning is not None or finality.final(tier, self.outcomes, self.margins)
            evidence = self.evidence[tier]
            is_barred = final_outcome == "accept" and not evidence.sees_all
            if is_final and not is_barred and not evidence.is_own_family:
                outcomes = set(self.outcomes.values())
                do_all_agree = len(self.outcomes) > 1 and outcomes == {final_outcome}
                return End(final_outcome, "unanimous" if do_all_agree else "single", tier)
        return None

    @property
    def calibrated_end(self) -> End | None:
        """The end by the first opinion that a calibration lets through; none by an unexplained improve."""
        end = self.let_through
        if end is None or end.tier is None or end.verdict != "improve":
            return end
        return None if self.is_unexplained(end.tier, "improve") else end

    @property
    def tier_for_reasons(self) -> TierName | None:
        """The first tier that gives reasons, or can be asked for them; None if there is none."""
        for tier in self.rules.tiers:
            if tier in self.rules.deciding:
                continue
            if tier not in self.evidence or self.evidence[tier].outcome is not None:
                return tier
        return None

    def tiers_for(self, outcome: VerdictWord) -> set[TierName]:
        return {tier for tier, word in self.outcomes.items() if word == outcome}

    def has_seen_all(self, tiers: Collection[TierName]) -> bool:
        return any(self.evidence[tier].sees_all for tier in tiers)

    # Of rankings

    @property
    def is_ranking(self) -> bool:
        return self.rules.task == "ranking"

    @property
    def complete(self) -> list[TierEvidence]:
        """The evidence of the tiers of which enough models answered."""
        return [evidence for evidence in self.evidence.values() if evidence.standing]

    @property
    def next_tier(self) -> TierName | None:
        """The tier that a ranking can ask now: no tiebreaker of which every model was heard."""
        tiers = self.rules.tiers
        later_tiers = tiers[tiers.index(self.latest_tier) + 1 :]
        if not later_tiers:
            return None
        next_tier = later_tiers[0]
        deep = self.evidence.get("deep")
        if next_tier == "tiebreaker" and deep is not None and deep.standing:
            latest_standing = self.complete[-1].standing
            models = set(self.rules.models.get(next_tier, ()))
            if latest_standing is not None and models <= latest_standing.heard:
                return None
        return next_tier

    @property
    def contenders(self) -> tuple[str, ...]:
        """The subjects that go up: those near the best, and the next one at least."""
        if not self.complete or self.complete[-1].standing is None:
            return self.rules.letters
        standing = self.complete[-1].standing
        return standing.order[: max(standing.near, 2)]


# --- The rows: when they apply


def is_nobody_asked(case: Case) -> bool:
    """Whether nobody was asked yet."""
    return not case.evidence


def is_failed_but_not_last(case: Case) -> bool:
    """Whether the tier failed, and there is another one."""
    return case.latest.outcome is None and case.next_tier is not None


def is_failed_and_last(case: Case) -> bool:
    """Whether the tier failed, and there is no other."""
    return case.latest.outcome is None


def is_last_of_ranking(case: Case) -> bool:
    """Whether no other tier can be asked, or this one is the reference of a calibration."""
    finality = case.rules.finality
    is_reference = finality is not None and finality.last == case.latest_tier
    return is_reference or case.next_tier is None


def is_one_ahead(case: Case) -> bool:
    """Whether one is ahead of all others by more than the margin, in texts that were seen whole.

    The first tier alone settles it in lenient mode only, without a calibration, and not by the own family of
    the best.
    """
    if case.latest.standing is None or case.latest.standing.near > 1:
        return False
    is_first = len(case.complete) == 1
    needs_second = case.rules.finality is not None or case.rules.mode == "strict"
    if is_first and (needs_second or case.latest.is_own_family):
        return False
    return case.latest.sees_all


def is_undecided(_: Case) -> bool:
    """Whether no row before this one applies: several are near the best, or it may not win by this alone."""
    return True


def is_divided_to_the_end(case: Case) -> bool:
    """Whether a jury is divided without a majority, and no other tier can settle it."""
    for tier, evidence in case.evidence.items():
        if evidence.is_divided and not evidence.has_majority and case.is_last_word(tier):
            return True
    return False


def is_calibrated(case: Case) -> bool:
    """Whether a calibration lets the opinion of a tier through.

    It may not be an acceptance of a cut text, an improve without reasons, or a win by the own family of the
    winner.
    """
    return case.calibrated_end is not None


def is_reference_ahead(case: Case) -> bool:
    """Whether the tier that is the last word by a calibration was not asked yet."""
    finality = case.rules.finality
    if finality is None or len(case.rules.tiers) == 1:
        return False
    for place, tier in enumerate(case.rules.tiers):
        if tier not in case.evidence:
            return finality.last in case.rules.tiers[place:]
    return False


def is_only_tier(case: Case) -> bool:
    """Whether there is one tier, and it has an opinion."""
    return len(case.rules.tiers) == 1 and case.outcomes[case.rules.tiers[0]] is not None


def is_only_tier_failed(case: Case) -> bool:
    """Whether there is one tier, and it failed."""
    return len(case.rules.tiers) == 1


def is_quick_final(case: Case) -> bool:
    """Whether quick says what needs no confirmation in this mode, and no calibration is used.

    It may not be improve, close, an acceptance of a cut text, or a win by the own family of the winner.
    """
    if case.rules.finality is not None or case.quick in (None, "improve", case.rules.confirm):
        return False
    if case.quick == "accept" and not case.evidence["quick"].sees_all:
        return False
    return not case.is_weak("quick")


def is_deep_unasked(case: Case) -> bool:
    """Whether deep was not asked yet."""
    return case.can_ask("deep")


def do_two_agree(case: Case) -> bool:
    """Whether quick and deep agree."""
    return case.deep is not None and case.quick == case.deep


def is_deep_final(case: Case) -> bool:
    """Whether deep has an opinion that does not contradict quick.

    If it is close, without the reasons that it owes, or a win by the own family of the winner, then only if
    the tiebreaker is no other model.
    """
    if case.deep is None or {case.quick, case.deep} == {"accept", "reject"}:
        return False
    return not (case.is_weak("deep") and case.has_third_voice)


def would_third_repeat(case: Case) -> bool:
    """Whether quick and deep contradict each other, and the tiebreaker is one of them."""
    if {case.quick, case.deep} != {"accept", "reject"}:
        return False
    quick, deep, third = case.models_by_tier
    return bool(third) and quick != deep and third <= quick | deep


def is_third_unasked(case: Case) -> bool:
    """Whether the tiebreaker was not asked yet."""
    return case.can_ask("tiebreaker")


def is_contradiction_open(case: Case) -> bool:
    """Whether quick and deep contradict each other, and no tiebreaker answered."""
    return case.third is None and {"accept", "reject"} <= case.first_two


def is_open(case: Case) -> bool:
    """Whether a confirmation is missing: the tier that was to give it failed, or there is none."""
    return case.third is None


def is_third_with_all(case: Case) -> bool:
    """Whether the tiebreaker agrees with the only other opinion, or with both."""
    return case.first_two == {case.third}


def is_third_with_one(case: Case) -> bool:
    """Whether the tiebreaker agrees with one of two."""
    return case.third in case.first_two


def is_third_against(case: Case) -> bool:
    """Whether no two agree, and one accepts what another rejects."""
    return {"accept", "reject"} <= {*case.first_two, case.third}


def is_third_alone(case: Case) -> bool:
    """Whether the tiebreaker has an opinion that contradicts none."""
    return case.third is not None


# --- The rows that overrule an end


def is_divided_and_open(case: Case, end: End) -> bool:
    """Whether the end would be undetermined, and a jury was divided."""
    return end.verdict == "undetermined" and any(
        evidence.is_divided for evidence in case.evidence.values()
    )


def does_win_stand(case: Case, end: End) -> bool:
    """Whether a calibration lets the win of a tier stand against the tie of the next one, in lenient mode.

    The win may rest neither on cut texts nor on the own family of the winner.
    """
    return case.rules.mode == "lenient" and _standing_win(case, end) is not None


def is_best_copied(case: Case, end: End) -> bool:
    """Whether the best text is there twice."""
    standing = case.latest.standing
    return (
        end.verdict == "accept" and standing is not None and standing.order[0] in case.rules.copied
    )


def is_ranking_cut(case: Case, end: End) -> bool:
    """Whether the tier that settled it did not see all of the texts."""
    return end.tier is not None and not case.evidence[end.tier].sees_all


def is_pair_cut(case: Case, end: End) -> bool:
    """Whether no tier behind it saw all of both texts; if it's left open, no tier that saw a winner."""
    behind = case.tiers_for("accept" if end.verdict == "undetermined" else end.verdict)
    return bool(behind) and not case.has_seen_all(behind)


def is_acceptance_cut(case: Case, end: End) -> bool:
    """Whether it would be accepted, and no tier that accepts saw all of the text."""
    return end.verdict == "accept" and not case.has_seen_all(_accepting(case, end))


def is_unproven(case: Case, end: End) -> bool:
    """Whether decision models alone accept in strict mode, and no calibration lets it through."""
    if end.verdict != "accept" or not case.rules.needs_proof or end.because == CALIBRATED:
        return False
    return _accepting(case, end) <= set(case.rules.deciding)


def are_reasons_unasked(case: Case, end: End) -> bool:
    """Whether a decision model owes reasons, and a model that writes was not asked yet.

    It owes them for improve, and with `--explain` for a rejection; its findings are reasons.
    """
    return _owes_reasons(case, end) and case.tier_for_reasons not in {None, *case.evidence}


def are_reasons_given(case: Case, end: End) -> bool:
    """Whether a decision model owes reasons, and a model that writes agrees with it."""
    tier = case.tier_for_reasons
    return (
        _owes_reasons(case, end) and tier is not None and case.evidence[tier].outcome == end.verdict
    )


def are_reasons_against(case: Case, end: End) -> bool:
    """Whether a decision model owes reasons, and a model that writes disagrees with it."""
    return _owes_reasons(case, end) and case.tier_for_reasons is not None


def is_own_family_alone(case: Case, end: End) -> bool:
    """Whether only models of the author's own family, or of an unknown one, are behind it.

    That matters for an acceptance or a win, if `judge.independence` is `require`.
    """
    return independence_problem(case.evidence, case.rules, end) is not None


# --- What the rows come to


def ask_first(case: Case) -> Ask:
    """Ask the first tier."""
    return Ask(case.rules.tiers[0], case.rules.letters)


def ask_about_contenders(case: Case) -> Ask:
    """Ask the next tier about those near the best, at least about two."""
    tier = case.next_tier
    assert tier is not None, "a ranking without a next tier has ended"  # noqa: S101
    return Ask(tier, case.contenders)


def end_ranking(case: Case) -> End:
    """Let the best win if it is ahead (strict: by more than the margin), else call it a tie."""
    standing = case.latest.standing
    is_won = standing is not None and standing.is_won(case.rules.mode)
    return End("accept" if is_won else "improve", tier=case.latest_tier)


def end_with_best(case: Case) -> End:
    """Let the best win."""
    return End("accept", tier=case.latest_tier)


def end_as_calibrated(case: Case) -> End:
    """Decide as this tier does."""
    assert case.calibrated_end is not None, "the row applies only then"  # noqa: S101
    return case.calibrated_end


def ask_next(case: Case) -> Ask:
    """Ask the next tier."""
    return Ask(next(tier for tier in case.rules.tiers if tier not in case.evidence))


def ask_deep(_: Case) -> Ask:
    """Ask deep."""
    return Ask("deep")


def ask_third(_: Case) -> Ask:
    """Ask the tiebreaker."""
    return Ask("tiebreaker")


def end_as_only_tier(case: Case) -> End:
    """Decide as it does."""
    return _end_as(case, case.rules.tiers[0], "single")


def end_as_quick(case: Case) -> End:
    """Decide as quick does."""
    return _end_as(case, "quick", "single")


def end_as_both(case: Case) -> End:
    """Decide as both do."""
    return _end_as(case, "deep", "unanimous")


def end_as_deep(case: Case) -> End:
    """Decide as deep does."""
    return _end_as(case, "deep", "single")


def end_as_all(case: Case) -> End:
    """Decide as both do."""
    return _end_as(case, "tiebreaker", "unanimous")


def end_as_most(case: Case) -> End:
    """Decide as two of three do."""
    return _end_as(case, "tiebreaker", "majority")


def end_as_third(case: Case) -> End:
    """Decide as the tiebreaker does."""
    return _end_as(case, "tiebreaker", "single")


def escalate(case: Case, end: End | None = None) -> End:
    """Escalate."""
    del case, end
    return End("escalate")


def leave_open(case: Case, end: End | None = None) -> End:
    """Leave it undetermined."""
    del case, end
    return End("undetermined")


def let_win_stand(case: Case, end: End) -> End:
    """Let the win stand."""
    return End("accept", "single", _standing_win(case, end))


def call_tie(_: Case, end: End) -> End:
    """Call it a tie."""
    return replace(end, verdict="improve")


def ask_for_reasons(case: Case, _: End) -> Ask:
    """Ask the first tier that writes."""
    assert case.tier_for_reasons is not None, "the row applies only then"  # noqa: S101
    return Ask(case.tier_for_reasons)


def end_with_reasons(case: Case, end: End) -> End:
    """Decide as both do, with its reasons."""
    return replace(end, consensus="unanimous", tier=case.tier_for_reasons)


def _end_as(case: Case, tier: TierName, consensus: Consensus) -> End:
    outcome = case.outcomes[tier]
    assert outcome is not None, "a tier that failed settles nothing"  # noqa: S101
    return End(outcome, consensus, tier)


def _accepting(case: Case, end: End) -> set[TierName]:
    """Return the tiers that accept; by its leaning one may accept what its scores do not."""
    accepting = case.tiers_for("accept")
    if end.tier is not None:
        accepting.add(end.tier)
    return accepting


def _owes_reasons(case: Case, end: End) -> bool:
    return end.tier is not None and case.is_unexplained(end.tier, end.verdict)


def _standing_win(case: Case, end: End) -> TierName | None:
    """Return the tier whose win a calibration lets stand against the tie of the next one."""
    finality = case.rules.finality
    if finality is None or end.tier is None or end.verdict != "improve":
        return None
    margins = {}
    for tier, margin in case.margins.items():
        # Without its lead a win does not stand.
        if case.evidence[tier].sees_all and not case.evidence[tier].is_own_family:
            margins[tier] = margin
    return finality.stands(end.tier, case.outcomes, margins)


# --- What is said of an end


def find_families(evidence: Evidence, rules: EscalationRules, end: End) -> frozenset[str]:
    """Collect the families behind an end: those whose tier came to it, or all if no tier settled it.

    Of an end that was refused to the author's own family, it's those behind the refused one. In a ranking the
    latest tier speaks for all.
    """
    if end.because == OWN_FAMILY and end.overruled is not None:
        end = end.overruled
    families: set[str] = set()
    for tier, tier_evidence in evidence.items():
        is_behind = tier == end.tier
        if rules.task != "ranking" and not is_behind:
            is_behind = end.tier is None or tier_evidence.outcome == end.verdict
        if is_behind:
            families |= tier_evidence.families
    return frozenset(families)


def independence_problem(evidence: Evidence, rules: EscalationRules, end: End) -> str | None:
    """Say in one line why an acceptance, or a win, may not stand; None if it may."""
    authors = [
        family for word, names in rules.authors.items() if word == end.verdict for family in names
    ]
    families = find_families(evidence, rules, end)
    return independence.independence_problem(rules.independence, authors, families)


def _count_agreement(case: Case, end: End) -> Consensus:
    """Return the consensus of the tiers: one model alone is `single`, however often it agrees with itself."""
    if end.tier is None:
        return end.consensus
    models: set[str] = set()
    for evidence in case.evidence.values():
        models |= evidence.models
    if len(models) == 1:
        return "single"
    if case.is_ranking:
        return _count_leaders(case, end)
    evidence_of_end = case.evidence[end.tier]
    agreement = evidence_of_end.agreement
    if evidence_of_end.is_divided and agreement == "none":
        return "single"  # it only gave reasons for what another tier says
    if agreement is not None:
        return agreement
    is_split = any(case.evidence[tier].agreement for tier in case.tiers_for(end.verdict))
    if case.rules.task == "pair" and end.consensus == "unanimous" and is_split:
        return "majority"  # of one of these tiers not all families agreed
    if case.rules.task == "document" and end.consensus == "single" and len(models) > 1:
        answered = [
            tier for tier, evidence in case.evidence.items() if evidence.outcome is not None
        ]
        if answered == [end.tier]:
            return "unanimous"  # a jury by itself
    return end.consensus


def _count_leaders(case: Case, end: End) -> Consensus:
    """Return the consensus of the tiers on the best; one alone is `single`."""
    standings = [evidence.standing for evidence in case.complete if evidence.standing]
    leaders = {standing.leader for standing in standings}
    if len(standings) == 1:
        return "single"
    has_best = end.verdict == "accept" or end.because == COPIED
    return "unanimous" if has_best and leaders == {standings[-1].order[0]} else "majority"


class Row(NamedTuple):
    """A row of the table. The docstrings of its functions are its words in docs/escalation.md."""

    name: str
    applies: Callable[..., bool]
    come_to: Callable[..., Step]
    tasks: tuple[Task, ...]
    overrules: bool = False
    """Whether it looks at an end that a row above came to."""


COPIED = "the best text is there twice"
CUT_TEXTS = "nobody saw all of the texts"
LEAD_CALIBRATED = "a calibration lets the lead through"
CALIBRATED = "a calibration lets it through"
OWN_FAMILY = "the author's own family alone"

DOCUMENT: tuple[Task, ...] = ("document",)
PAIR: tuple[Task, ...] = ("pair",)
RANKING: tuple[Task, ...] = ("ranking",)
ONE_TEXT: tuple[Task, ...] = ("document", "candidate")
VOTED: tuple[Task, ...] = ("document", "candidate", "pair")
ALL: tuple[Task, ...] = ("document", "candidate", "pair", "ranking")

TABLE: list[Row] = [
    Row("the first tier is next", is_nobody_asked, ask_first, ALL),
    # In a ranking each tier's scores are pooled with those before it, so the latest tier speaks for all.
    Row("the tier failed", is_failed_but_not_last, ask_about_contenders, RANKING),
    Row("the last tier failed", is_failed_and_last, leave_open, RANKING),
    Row("the last tier has spoken", is_last_of_ranking, end_ranking, RANKING),
    Row(LEAD_CALIBRATED, is_calibrated, end_with_best, RANKING),
    Row("one is ahead", is_one_ahead, end_with_best, RANKING),
    Row("several are near the best", is_undecided, ask_about_contenders, RANKING),
    # In the other tasks each tier has a vote.
    Row("the jury is divided", is_divided_to_the_end, escalate, VOTED),
    Row(CALIBRATED, is_calibrated, end_as_calibrated, VOTED),
    Row("the calibration's last word is to come", is_reference_ahead, ask_next, VOTED),
    Row("the only tier decides", is_only_tier, end_as_only_tier, VOTED),
    Row("the only tier failed", is_only_tier_failed, leave_open, VOTED),
    Row("quick needs no confirmation", is_quick_final, end_as_quick, VOTED),
    Row("deep is next", is_deep_unasked, ask_deep, VOTED),
    Row("quick and deep agree", do_two_agree, end_as_both, VOTED),
    Row("deep decides", is_deep_final, end_as_deep, VOTED),
    Row("a third opinion would be one of the two", would_third_repeat, escalate, VOTED),
    Row("the tiebreaker is next", is_third_unasked, ask_third, VOTED),
    Row("the contradiction stays open", is_contradiction_open, escalate, VOTED),
    Row("a confirmation is missing", is_open, leave_open, VOTED),
    Row("the tiebreaker confirms", is_third_with_all, end_as_all, VOTED),
    Row("two of three agree", is_third_with_one, end_as_most, VOTED),
    Row("no two agree", is_third_against, escalate, VOTED),
    Row("the tiebreaker decides", is_third_alone, end_as_third, VOTED),
    # What an end may not rest on
    Row("a divided jury stays open", is_divided_and_open, escalate, VOTED, overrules=True),
    Row("a win stands against a tie", does_win_stand, let_win_stand, PAIR, overrules=True),
    Row(COPIED, is_best_copied, call_tie, RANKING, overrules=True),
    Row(CUT_TEXTS, is_ranking_cut, leave_open, RANKING, overrules=True),
    Row(CUT_TEXTS, is_pair_cut, leave_open, PAIR, overrules=True),
    Row("nobody saw all of the text", is_acceptance_cut, leave_open, ONE_TEXT, overrules=True),
    Row("decision models are not proven", is_unproven, leave_open, VOTED, overrules=True),
    Row("reasons are owed", are_reasons_unasked, ask_for_reasons, DOCUMENT, overrules=True),
    Row(
        "a model that writes agrees", are_reasons_given, end_with_reasons, DOCUMENT, overrules=True
    ),
    Row("a model that writes disagrees", are_reasons_against, escalate, DOCUMENT, overrules=True),
    Row(OWN_FAMILY, is_own_family_alone, leave_open, ALL, overrules=True),
]
