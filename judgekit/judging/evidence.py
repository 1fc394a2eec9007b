"""The facts about a tier's opinion that can decide anything; every opinion, live or recorded, is read here.

Each task has a function that reads its opinions: `read_document`, `read_candidate`, `read_pair`,
`read_ranking`. Judging and `judgekit.evaluation` both call it, and `escalation.decide` sees nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.judging import jury
from judgekit.judging.finality import MARGIN_DECIMALS
from judgekit.judging.standing import list_contenders

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.judging.jury import Mark, Opinion, TierVote
    from judgekit.judging.standing import Margins, RankedTier, RankedTiers
    from judgekit.judging.verdict import Consensus
    from judgekit.rubric.schema import ScoreMode, ScoreRubric


class Standing(NamedTuple):
    """The subjects ordered by all tiers so far, best first."""

    ranked_letters: tuple[str, ...]
    near_best_count: int
    """The number of subjects near enough to the best to go up with it, including itself."""
    best_count: int
    """The number of subjects with the best score."""
    leader: str
    """The best by this tier alone."""
    heard_models: frozenset[str]
    """The models behind the scores."""

    def is_won(self, mode: ModeName) -> bool:
        """Whether the best is far enough ahead to win; in lenient mode any lead is enough."""
        return (self.near_best_count if mode == "strict" else self.best_count) == 1


@dataclass(frozen=True, slots=True)
class TierEvidence:
    """The decisive facts about one tier's opinion. A pair's are seen from the first winner's side."""

    outcome: Outcome | None
    """None if the tier failed."""
    margin: float | None = 0.0
    """The distance from another outcome; None if no gate of a calibration may use it."""
    leaning: float | None = None
    """A decision model's lean towards acceptance."""
    agreement: Consensus | None = None
    """How many of a tier's families agree with its outcome; None if all do."""
    is_divided: bool = False
    """Whether its jury is so divided that another tier must settle it."""
    sees_whole_text: bool = True
    gives_reasons: bool = True
    is_own_family: bool = False
    """Whether only models from the winner's own family came to this outcome."""
    models: frozenset[str] = frozenset()
    """The models heard; none if the tier failed."""
    families: frozenset[str] = frozenset()
    """The families behind the outcome."""
    standing: Standing | None = None
    """For several subjects that are ranked."""

    @property
    def has_majority(self) -> bool:
        """Whether most families of a divided jury came to its outcome."""
        return self.agreement == "majority"

    def without_margin(self) -> TierEvidence:
        """Drop everything a calibration reads, if it was learned from opinions of another kind."""
        return replace(self, margin=None, leaning=None)


FAILED = TierEvidence(None, margin=None)
Evidence: TypeAlias = "Mapping[TierName, TierEvidence]"
"""The evidence of each tier asked, in order."""


class Speakers(NamedTuple):
    """The models and families heard in a tier."""

    models: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()


NOBODY = Speakers()


def read_document(
    opinion: Opinion | None,
    rubric: ScoreRubric,
    mode: ModeName,
    *,
    decides: bool = False,
    sees_all: bool = True,
    speakers: Speakers = NOBODY,
) -> TierEvidence:
    """Convert a tier's opinion about a document to evidence. An opinion of None means that the tier failed.

    `decides` means that the tier's models are decision models, which give probabilities without reasons.
    `sees_all` means that they were shown the complete document. `speakers` are the models that answered.
    """
    if not opinion:
        return replace(FAILED, sees_whole_text=sees_all)

    # How far the scores are above the threshold for an acceptance, or below it if negative.
    leaning = None
    if decides:
        leaning = measure_margin(rubric, opinion.scores, mode, signed=True)
    gives_reasons = True
    if decides:  # a decision model's only reasons are its findings
        gives_reasons = bool(opinion.findings)
    return TierEvidence(
        outcome=opinion.outcome,
        margin=measure_margin(rubric, opinion.scores, mode),
        leaning=leaning,
        agreement=_read_agreement(opinion.divided),
        is_divided=opinion.divided is not None,
        sees_whole_text=sees_all,
        gives_reasons=gives_reasons,
        models=speakers.models,
        families=speakers.families,
    )


def read_candidate(
    mark: Mark | None, *, decides: bool = False, sees_all: bool = True
) -> TierEvidence:
    """Convert a tier's mark on a candidate to evidence. A mark of None means that the tier failed.

    `decides` means that a decision model gave the mark. Such a mark has a leaning: the distance of its
    probability from 50 %.
    """
    if mark is None:
        return replace(FAILED, sees_whole_text=sees_all)
    leaning = None
    if decides and mark.probability is not None:
        leaning = round(mark.probability - jury.EVEN, MARGIN_DECIMALS)
    return TierEvidence(
        outcome=mark.outcome,
        margin=certainty(mark.probability),
        leaning=leaning,
        agreement=_read_agreement(mark.divided),
        is_divided=mark.divided is not None,
        sees_whole_text=sees_all,
    )


def read_pair(
    votes: Mapping[TierName, TierVote],
    *,
    cut: Collection[TierName] = (),
    favouring_families: Mapping[str, Collection[str]] = {},
) -> dict[TierName, TierEvidence]:
    """Convert the tiers' votes on two texts to evidence.

    `cut` contains the tiers that didn't see all of both texts. `favouring_families` maps a text's letter to
    the model families that wrote only that text, and so may favour it.
    """
    # A vote counts as an acceptance if it's for the same text as the first vote for any text.
    outcomes = jury.convert_to_outcomes(votes)
    evidence = {}
    for tier, vote in votes.items():
        evidence[tier] = TierEvidence(
            outcome=outcomes[tier],
            margin=vote.lead,
            agreement=vote.agreement,
            sees_whole_text=tier not in cut,
            is_own_family=_is_vote_by_own_family(vote, favouring_families),
            models=vote.models,
            families=vote.families,
        )
    return evidence


def _is_vote_by_own_family(
    vote: TierVote, favouring_families: Mapping[str, Collection[str]]
) -> bool:
    """Whether all voters are of families that may favour the text that won their vote."""
    winner = vote.word  # a letter, "tie", or None if the tier failed
    if winner is None or not vote.families:
        return False
    winners_families = favouring_families.get(winner, ())
    return all(family in winners_families for family in vote.families)


def read_ranking(
    tiers: RankedTiers,
    margins: Margins,
    favouring_families: Mapping[str, Collection[str]] = {},
) -> dict[TierName, TierEvidence]:
    """Convert the tiers' rankings of texts to evidence. If a text leads, that counts as an acceptance.

    `margins` contains, by tier, the distance within which a text counts as near the best.
    `favouring_families` maps a text's letter to the model families that wrote that text but not all texts,
    and so may favour it.
    """
    evidence = {}
    for ranked in tiers:
        if not ranked.means:  # the tier failed
            evidence[ranked.tier] = replace(FAILED, sees_whole_text=not ranked.is_cut)
            continue
        near_margin = margins.get(ranked.tier, 0.0)
        standing = _build_standing(ranked, ranked.means, near_margin)
        evidence[ranked.tier] = _read_ranked_tier(ranked, standing, favouring_families)
    return evidence


def _build_standing(ranked: RankedTier, means: Mapping[str, float], near_margin: float) -> Standing:
    """Order a tier's texts, best first, and count those that are near or equal to the best."""
    order = list_contenders(means, float("inf"))  # at any distance, so all texts
    near_best = list_contenders(means, near_margin)
    equal_to_best = list_contenders(means, 0.0)
    return Standing(
        ranked_letters=tuple(order),
        near_best_count=len(near_best),
        best_count=len(equal_to_best),
        leader=ranked.leader,
        heard_models=frozenset(voter.model for voter in ranked.voters),
    )


def _read_ranked_tier(
    ranked: RankedTier, standing: Standing, favouring_families: Mapping[str, Collection[str]]
) -> TierEvidence:
    """Convert a tier's ranking to evidence, which includes its standing."""
    best = standing.ranked_letters[0]
    families = frozenset(voter.family for voter in ranked.voters)
    # A calibration only applies to a lead on whole texts, with scores read as when it was made.
    is_usable = ranked.matches_calibration and not ranked.is_cut
    margin = None
    if ranked.lead and is_usable:
        margin = ranked.lead
    return TierEvidence(
        outcome="accept" if ranked.lead else "improve",
        margin=margin,
        sees_whole_text=not ranked.is_cut,
        is_own_family=families.issubset(favouring_families.get(best, ())),
        models=standing.heard_models,
        families=families,
        standing=standing,
    )


def _read_agreement(divided: bool | None) -> Consensus | None:  # noqa: FBT001 - an opinion's field
    """Convert an opinion's `divided` to the agreement of its jury's families, or None if all agree."""
    if divided is None:
        return None
    return "majority" if divided else "none"


def measure_margin(
    rubric: ScoreRubric, scores: Mapping[str, float], mode: ModeName, *, signed: bool = False
) -> float:
    """Return by how many points the scores would have to change for another outcome.

    If `signed`, return their distance above the threshold for an acceptance instead, negative if below it.
    """
    rule: ScoreMode = getattr(rubric.modes, mode)
    above_acceptance = _measure_above_acceptance(rubric, rule, scores)
    if signed:
        return round(above_acceptance, MARGIN_DECIMALS)

    below_rejection = rule.reject.any_below - _find_lowest_score(rubric, scores)
    outcome = rubric.decide(scores, mode)
    if outcome == "accept":
        return round(above_acceptance, MARGIN_DECIMALS)
    if outcome == "reject":
        return round(below_rejection, MARGIN_DECIMALS)
    # An improve is above one threshold and below the other. The nearer one counts.
    return round(min(-below_rejection, -above_acceptance), MARGIN_DECIMALS)


def _measure_above_acceptance(
    rubric: ScoreRubric, rule: ScoreMode, scores: Mapping[str, float]
) -> float:
    """Return the scores' distance above the threshold for an acceptance, negative if below it."""
    above_acceptance = _find_lowest_score(rubric, scores) - rule.accept.each
    if rule.accept.mean is None:
        return above_acceptance
    # The mean has a threshold of its own.
    mean_above_acceptance = rubric.mean(scores) - rule.accept.mean
    return min(above_acceptance, mean_above_acceptance)


def _find_lowest_score(rubric: ScoreRubric, scores: Mapping[str, float]) -> float:
    return min(scores[name] for name in rubric.dimensions)


def certainty(probability: float | None) -> float:
    """Return a candidate's distance from even odds. Without a probability, that's 0."""
    if probability is None:
        return 0.0
    return round(abs(probability - 0.5), MARGIN_DECIMALS)
