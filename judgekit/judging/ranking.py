"""The task `compare` by scores: subjects go up a tier only while the best ones are close to each other.

`standing` computes how subjects rank by the scores of all tiers so far.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from judgekit.config import TIE
from judgekit.judging.compare import ComparisonJudge, ComparisonResult
from judgekit.judging.documents import ComparisonInput, Document, TaskDescription, is_cut
from judgekit.judging.evidence import Evidence, read_ranking
from judgekit.judging.fence import Fence
from judgekit.judging.jury import Opinion
from judgekit.judging.kinds import get_model_kind
from judgekit.judging.question import ModelTurn, TierQuestion
from judgekit.judging.reservations import Reservation, ReservationKind
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.score_source import ScoreSource, score_source
from judgekit.judging.standing import (
    RankedTier,
    Voter,
    lead_of,
    list_contenders,
    rank,
    usual_margins,
)
from judgekit.judging.steps import (
    COPIED_ROW,
    CUT_TEXTS_ROW,
    OWN_FAMILY_ROW,
    Ask,
    End,
    EscalationRules,
)
from judgekit.judging.verdict import CompareRound, Comparison
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.compare import SubjectScore
    from judgekit.judging.round import Answer, Calls, Session
    from judgekit.judging.state import JudgingState
    from judgekit.providers.base import Endpoint, Messages

_NOT_WHOLE = Reservation(
    ReservationKind.CUT, "no model saw the whole of the best texts, so the result is open"
)
ANONYMOUS_NAME = "text"  # the name that models see, because a path could reveal the author


@dataclass(frozen=True, kw_only=True)
class RankingQuestion(TierQuestion[ScoreRubric, ComparisonInput, Opinion, dict[str, Opinion]]):
    """Asks a tier's models about each of these `letters` as about a document."""

    earlier_rankings: Sequence[RankedTier]
    endpoints: Sequence[Endpoint]
    letters: Sequence[str]

    def score_question(self, letter: str) -> ScoreQuestion:
        """Build the question that scores one subject by itself."""
        # Models see the same name for all subjects, because a path could reveal the author.
        file = replace(self.subject.file(letter), alias=ANONYMOUS_NAME)
        document = Document((file,), letter, TaskDescription(self.subject.prompt))
        # The tiebreaker doesn't see other tiers' opinions here, so it gets the instructions of the deep tier.
        instructions_tier: TierName = "deep" if self.tier == "tiebreaker" else self.tier
        return ScoreQuestion(
            self.settings, document, self.tier, instructions_tier, is_for_comparison=True
        )

    @property
    def is_cut(self) -> bool:
        """Whether a subject is truncated for any of the tier's models."""
        for letter in self.letters:
            document = self.score_question(letter).subject
            for model in self.endpoints:
                if is_cut(document.visible_files(self.limits, model)):
                    return True
        return False

    def build_prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        """Build a model's prompts, subject by subject."""
        prompts = []
        for letter in self.letters:
            prompts += self.score_question(letter).build_prompts(endpoint, fence)
        return prompts

    def sample_plans(self, endpoint: Endpoint) -> list[Sequence[int]]:
        """Plan a single sample, because each subject's question plans its own."""
        del endpoint
        return [[0]]

    def count_concurrent_calls(self, endpoint: Endpoint) -> int:
        """Return the number of calls that a subject's question makes at once."""
        if not get_model_kind(endpoint).gives_reasons:
            return 1
        return self.settings.count_calls_at_once(len(self.rubric.dimensions))

    def build_calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Opinion]:
        del sample  # the calls about each subject have their own
        return [partial(self._ask_about, endpoint, session, letter) for letter in self.letters]

    async def _ask_about(
        self, endpoint: Endpoint, session: Session, letter: str
    ) -> Answer[Opinion]:
        """Ask about one subject in a separate session, and add the cost to `session`."""
        # Subjects share neither a fence nor remembered replies. The new session starts with the cost so far.
        spent_before = session.spent_usd
        own_session = replace(session, fence=Fence(), remembered={})
        turn = await self.score_question(letter).ask(endpoint, own_session)

        # Other subjects' costs may have been added to `session` meanwhile, so only add this subject's.
        own_cost = own_session.spent_usd - spent_before
        session.spent_usd += own_cost
        session.has_unpriced_calls |= own_session.has_unpriced_calls
        return turn.answer

    def combine_samples(self, samples: Sequence[Sequence[Opinion | None]]) -> dict[str, Opinion]:
        """Return a model's opinion about each text, by letter. Texts without an opinion are omitted."""
        opinions = {}
        (only_sample,) = samples  # `sample_plans` only plans one
        for letter, opinion in zip(self.letters, only_sample, strict=True):
            if opinion:
                opinions[letter] = opinion
        return opinions

    def combine(self, voices: Sequence[tuple[Endpoint, dict[str, Opinion] | None]]) -> RankedTier:
        """Rank the subjects by the models' scores in this tier and in earlier ones."""
        answered = [(endpoint, opinions) for endpoint, opinions in voices if opinions]
        # A calibration only covers the ways of reading scores it was made with. Without one, all are fine.
        calibration = self.settings.finality
        is_known = calibration is None or calibration.knows(self.tier, _collect_sources(answered))
        return rank(
            self.earlier_rankings,
            self.tier,
            self.letters,
            self._collect_means(answered),
            asked=len(self.settings.model_names[self.tier]),
            is_cut=self.is_cut,
            is_known=is_known,
        )

    def _collect_means(
        self, answered: Sequence[tuple[Endpoint, dict[str, Opinion]]]
    ) -> dict[Voter, dict[str, list[float]]]:
        """Collect each model's mean scores of each subject, by letter."""
        means_by_voter: dict[Voter, dict[str, list[float]]] = {}
        for endpoint, opinion_by_letter in answered:
            # A model that's listed twice in the tier gives two means of a subject.
            voter = Voter(endpoint.model, endpoint.family)
            means_by_letter = means_by_voter.setdefault(voter, {})
            for letter, opinion in opinion_by_letter.items():
                mean = self.rubric.mean(opinion.scores)
                means_by_letter.setdefault(letter, []).append(mean)
        return means_by_voter

    def build_rounds(
        self, first: int, turns: Sequence[ModelTurn[dict[str, Opinion]]]
    ) -> list[CompareRound]:
        """Record each model's call about each subject as a round. The rounds are numbered from `first`."""
        rounds: list[CompareRound] = []
        for position, letter in enumerate(self.letters):
            score_question = self.score_question(letter)
            for turn in turns:
                call = turn.call_answers[position]  # the answers are in the order of the letters
                opinion = call.record_value(score_question.record)
                rounds.append(
                    CompareRound(
                        round=first + len(rounds),
                        tier=self.tier,
                        order=[letter],
                        opinion=opinion,
                        **call.build_round_fields(),
                    )
                )
        return rounds


def _collect_sources(
    answered: Sequence[tuple[Endpoint, dict[str, Opinion]]],
) -> set[tuple[str, ScoreSource]]:
    """Collect pairs of a model and the way its scores were read."""
    sources = set()
    for endpoint, opinion_by_letter in answered:
        for opinion in opinion_by_letter.values():
            sources.add((endpoint.model, score_source(endpoint, opinion)))
    return sources


@dataclass(frozen=True, slots=True)
class RankingJudge(ComparisonJudge[ScoreRubric]):
    """Ranks subjects by their scores."""

    def note_refusal_and_cuts(self, state: JudgingState[ComparisonInput]) -> None:
        """Do the same as in other comparisons. Also refuse if the rubric needs an input that they lack."""
        # `super()` fails here, because `@dataclass(slots=True)` replaces the class by a new one.
        ComparisonJudge.note_refusal_and_cuts(self, state)
        if state.refusal_reason or not self.models_by_tier:
            return

        # The rubric is for single documents, so check one of the texts as a document.
        # Any tier's question will do.
        first_tier = next(iter(self.models_by_tier))
        question_about_a = self.build_question(first_tier, state).score_question("A")
        document = question_about_a.subject
        state.refusal_reason = document.lacks(self.rubric) or ""

    def build_question(
        self, tier: TierName, state: JudgingState[ComparisonInput]
    ) -> RankingQuestion:
        """Build the question for a tier: about all subjects, or for later tiers only about the contenders."""
        return RankingQuestion(
            self.settings,
            state.subject,
            tier,
            earlier_rankings=list(state.opinions.values()),
            endpoints=self.models_by_tier.get(tier, ()),
            letters=self._choose_letters(state),
        )

    def _choose_letters(self, state: JudgingState[ComparisonInput]) -> Sequence[str]:
        """Choose the letters of the subjects that the next tier is asked about."""
        is_first_tier = not state.opinions
        if is_first_tier:
            return state.subject.distinct_letters
        step = self.choose_step(state)
        if isinstance(step, Ask):
            return step.letters
        # The judging has ended, so no tier is asked, and any choice will do.
        return state.subject.distinct_letters

    def read_evidence(self, state: JudgingState[ComparisonInput]) -> Evidence:
        """Convert the tiers' rankings to evidence."""
        subject = state.subject
        # A model family may favour the subjects it wrote. If it wrote all of them, it has none to favour.
        favouring_families = {}
        for letter in subject.letters:
            # These families wrote some of the texts, but not all.
            families = set(subject.families(letter)) & set(subject.families_of_some_texts)
            favouring_families[letter] = families
        tiers: list[RankedTier] = list(state.opinions.values())
        return read_ranking(tiers, usual_margins(self.rubric), favouring_families)

    def build_rules(self, state: JudgingState[ComparisonInput]) -> EscalationRules:
        """Return the escalation rules for a ranking, adapted to its subjects."""
        subject = state.subject
        return replace(
            self.settings.build_escalation_rules("ranking"),
            letters=subject.distinct_letters,
            copied_letters=[
                letter for letter in subject.distinct_letters if _has_copies(subject, letter)
            ],
            authors=_find_best_authors(state),
        )

    def record(self, state: JudgingState[ComparisonInput], end: End) -> Comparison:
        """Build the record of the result, with each subject's last score."""
        scores = _collect_last_scores(state.subject, state.opinions.values())
        return self.build_comparison(
            state, end, self._build_result(state, end, scores), scores=scores
        )

    def _build_result(
        self,
        state: JudgingState[ComparisonInput],
        end: End,
        scores: Mapping[str, SubjectScore],
    ) -> ComparisonResult:
        """Build the result: the winner or a tie, with the lead and the supporting model families."""
        if end.because == CUT_TEXTS_ROW:
            return ComparisonResult(reservation=_NOT_WHOLE, truncated=True)
        if end.because == OWN_FAMILY_ROW:
            return self.build_refused_result(state, end, truncated=False)
        if end.tier is None:  # no tier settled it
            return ComparisonResult()

        best = _find_best(state)
        is_accepted = end.verdict == "accept"
        verdict = TIE
        if is_accepted and best is not None:
            verdict = best
        # A best subject with copies only ties with them, but its reasoning still explains the result.
        reasoning = ""
        if is_accepted or end.because == COPIED_ROW:
            reasoning = _find_last_reasoning(state, best)

        # The lead can be 0: a subject that the last tier didn't score keeps its score from an earlier tier,
        # and that can equal the winner's.
        means = {letter: mean for letter, (mean, _) in scores.items()}
        return ComparisonResult(
            verdict=verdict,
            lead=lead_of(means),
            reasoning=reasoning,
            families=self.list_families(state, end),
        )


def _find_best_authors(state: JudgingState[ComparisonInput]) -> dict[Outcome, Sequence[str]]:
    """Find the families that wrote the best subject, by the outcome that favours them; {} without a best."""
    best = _find_best(state)
    if best is None:
        return {}
    # To accept a ranking means to accept its best subject.
    return {"accept": state.subject.families(best)}


def _find_last_reasoning(state: JudgingState[ComparisonInput], letter: str | None) -> str:
    """Find the last reasoning about a subject. Returns "" if no model gave one."""
    for past_round in reversed(state.rounds):
        # Each round of a ranking is about one subject.
        is_about_subject = past_round.order == [letter]
        if is_about_subject and past_round.opinion and past_round.opinion.reasoning:
            reasoning: str = past_round.opinion.reasoning  # the opinion has no type of its own
            return reasoning
    return ""


def _find_best(state: JudgingState[ComparisonInput]) -> str | None:
    """Return the letter of the latest tier's best subject, or None if there's no ranking yet."""
    ranked_tiers: list[RankedTier] = list(state.opinions.values())
    if not ranked_tiers:
        return None
    means = ranked_tiers[-1].means
    if not means:  # too few models answered
        return None
    # If several are equal, the first letter counts.
    best_letters = list_contenders(means, margin=0.0)
    return best_letters[0]


def _collect_last_scores(
    subject: ComparisonInput, tiers: Iterable[RankedTier]
) -> dict[str, SubjectScore]:
    """Return each subject's mean score and the tier that gave it, by letter.

    If multiple tiers scored a subject, the last one counts.
    """
    scores_by_letter: dict[str, SubjectScore] = {}
    for ranked in tiers:
        if ranked.means:
            for letter, mean in ranked.means.items():
                scores_by_letter[letter] = (mean, ranked.tier)  # replaces an earlier tier's

    scores = {}
    for letter in subject.letters:
        scored_letter = subject.original(letter)
        if scored_letter in scores_by_letter:
            scores[letter] = scores_by_letter[scored_letter]
    return scores


def _has_copies(subject: ComparisonInput, letter: str) -> bool:
    """Whether another subject has the same text."""
    original = subject.original(letter)
    originals = [subject.original(other) for other in subject.letters]
    return originals.count(original) > 1
