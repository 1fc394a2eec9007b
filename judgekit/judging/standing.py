"""Ranks several subjects by the tiers' scores: means over models, the leader, and those close to it.

A subject's score is the mean over all models of all tiers so far; within a tier each family has equal
weight.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.judging import jury
from judgekit.judging.finality import MARGIN_DECIMALS

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from judgekit.config import TierName
    from judgekit.rubric.schema import ScoreRubric

EQUAL_WITHIN = 1e-9  # the rounding error of two means of the same numbers
# Default margins, as fractions of the scale's length
QUICK_SHARE = 0.1
DEEP_SHARE = 0.05

# A model's means over dimensions, by letter.
DimensionMeans: TypeAlias = "Mapping[str, Sequence[float]]"
Margins: TypeAlias = "Mapping[TierName, float]"


class Voter(NamedTuple):
    model: str
    family: str

    @property
    def name(self) -> str:
        return jury.voter(self.model, self.family)


# Of one tier; a model listed twice there has twice as many.
MeansByVoter: TypeAlias = "Mapping[Voter, DimensionMeans]"


def usual_margins(rubric: ScoreRubric) -> dict[TierName, float]:
    """Return a rubric's margins in points of its scale, by default a fraction of its length."""
    length = rubric.scale.max - rubric.scale.min
    deep = DEEP_SHARE * length
    return {"quick": QUICK_SHARE * length, "deep": deep, "tiebreaker": deep, **rubric.margins}


def average_scores(
    means_by_group: Iterable[tuple[Hashable, DimensionMeans]],
    letters: Collection[str],
    asked: int | None = None,
) -> dict[str, float] | None:
    """Return each subject's mean score, by letter. Only models that scored all subjects count.

    `means_by_group` has a pair for each model: its group, such as its family, and its scores. All groups have
    equal weight. Returns None if no model scored all subjects. With `asked`, the number of queried models,
    more than half of them must have scored all.
    """
    complete = []  # groups and scores of the models that scored all subjects
    for group, model_points in means_by_group:
        if _has_scored_all(model_points, letters):
            complete.append((group, model_points))

    if not complete:
        return None
    if asked is not None and not jury.has_quorum(len(complete), asked):
        return None

    model_counts = Counter(group for group, _ in complete)
    return {letter: _average_points(complete, model_counts, letter) for letter in letters}


def _has_scored_all(points_by_letter: DimensionMeans, letters: Iterable[str]) -> bool:
    """Whether a model has given each subject a score."""
    return all(points_by_letter.get(letter) for letter in letters)


def _average_points(
    points_by_group: Iterable[tuple[Hashable, DimensionMeans]],
    model_counts: Mapping[Hashable, int],
    letter: str,
) -> float:
    """Average a subject's points. A model in a group of three counts a third."""
    points: list[float] = []
    weights: list[float] = []
    for group, points_by_letter in points_by_group:
        weight = 1 / model_counts[group]
        for model_points in points_by_letter[letter]:
            points.append(model_points)
            weights.append(weight)
    return fmean(points, weights)


def list_contenders(means: Mapping[str, float], margin: float) -> list[str]:
    """List the subjects within `margin` of the best, best first."""
    least_mean = max(means.values()) - margin - EQUAL_WITHIN
    near_best = [letter for letter, mean in means.items() if mean >= least_mean]
    # Sort equal means by letter.
    return sorted(near_best, key=lambda letter: (-means[letter], letter))


def lead_of(means: Mapping[str, float]) -> float:
    """Return the best subject's lead over the second best."""
    best, second_best, *_ = sorted(means.values(), reverse=True)
    return best - second_best


def count_calls(means_by_voter: MeansByVoter, letters: Collection[str]) -> int:
    """Count a tier's calls: at least one for each model and text, even if it gave no score."""
    calls = 0
    for points_by_letter in means_by_voter.values():
        for letter in letters:
            scores = points_by_letter.get(letter, ())
            calls += max(1, len(scores))  # without a score, a call has failed
    return calls


class RankedTier(NamedTuple):
    """A tier's ranking of the subjects it was asked about."""

    tier: TierName
    means_by_voter: MeansByVoter
    means: Mapping[str, float] | None = None
    """The mean scores by all tiers so far; None if too few of this tier's models answered."""
    leader: str = ""
    """The best by this tier alone."""
    voters: frozenset[Voter] = frozenset()
    """The models behind `means`."""
    is_cut: bool = False
    """Whether some model saw a subject cut."""
    matches_calibration: bool = True
    """Whether its scores were read like those the calibration was learned from."""

    @property
    def lead(self) -> float:
        """The best subject's lead over the second best; 0 for a tie, or if there are no means."""
        return round(lead_of(self.means), MARGIN_DECIMALS) if self.means else 0.0

    @property
    def best(self) -> str | None:
        """The subject with the highest mean over all tiers so far, or None for a tie or without means."""
        is_tie = not self.lead  # the best one's lead is 0
        if not self.means or is_tie:
            return None
        best_letters = list_contenders(self.means, margin=0.0)
        return best_letters[0]


RankedTiers: TypeAlias = "Sequence[RankedTier]"


def rank(
    before: RankedTiers,
    tier: TierName,
    letters: Sequence[str],
    means_by_voter: MeansByVoter,
    *,
    asked: int,
    is_cut: bool = False,
    is_known: bool = True,
) -> RankedTier:
    """Rank the subjects by a tier's scores and the scores of earlier tiers (`before`).

    `asked` is the number of queried models. The result has mean scores only if more than half of them have
    scored all subjects. `is_cut` means that some model saw a subject cut, and `is_known` that the scores were
    read like those the calibration was learned from.
    """
    without_means = RankedTier(tier, means_by_voter, is_cut=is_cut, matches_calibration=is_known)
    means_by_name = [(voter.name, points) for voter, points in means_by_voter.items()]
    tier_means = average_scores(means_by_name, letters, asked=asked)
    if tier_means is None:
        return without_means

    complete_tiers = [earlier for earlier in before if earlier.means is not None]
    pooled_means, voters = _pool_tiers([*complete_tiers, without_means], letters)
    tier_leader = _find_best_letter(tier_means)  # by this tier alone
    return without_means._replace(means=pooled_means, leader=tier_leader, voters=voters)


def _find_best_letter(means: Mapping[str, float]) -> str:
    """Find the letter with the highest mean; the first of several equal ones."""
    return max(means, key=means.__getitem__)


def _pool_tiers(
    tiers: RankedTiers, letters: Sequence[str]
) -> tuple[dict[str, float], frozenset[Voter]]:
    """Average the subjects' scores over all tiers. Also return the models that scored every subject."""
    means_by_group = []
    complete_voters = set()
    for ranked_tier in tiers:
        for voter, points_by_letter in ranked_tier.means_by_voter.items():
            # A voter's name is that of its family, if known, so families have equal weight within a tier.
            family_in_tier = (ranked_tier.tier, voter.name)
            means_by_group.append((family_in_tier, points_by_letter))
            if _has_scored_all(points_by_letter, letters):
                complete_voters.add(voter)

    # Some model of the latest tier has scored every subject, so there are means.
    means = average_scores(means_by_group, letters) or {}
    return means, frozenset(complete_voters)
