"""Evaluates judges of several texts: which is the best by the scores given to each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config import TIE
from judgekit.evaluation.samples import (
    WHOLE_CASE_KEY,
    Sample,
    Walked,
    answers_by_tier,
    find_cut_tiers,
)
from judgekit.evaluation.task import CaseTask, RecordedAnswer, Tried
from judgekit.judging.documents import ComparisonInput, make_file
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import read_ranking
from judgekit.judging.finality import FinalityRules
from judgekit.judging.jury import Opinion
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.round import gather_limited
from judgekit.judging.score_source import score_source
from judgekit.judging.standing import Voter, count_calls, rank, usual_margins
from judgekit.judging.steps import LEAD_CALIBRATED_ROW, Ask, End, EscalationRules
from judgekit.judging.verdict import Comparison
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.evaluation.cases import Case, Recorded
    from judgekit.judging.evidence import TierEvidence
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.round import Answer
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.settings import JudgeSettings
    from judgekit.judging.standing import Margins, MeansByVoter, RankedTier
    from judgekit.judging.state import JudgingState
    from judgekit.judging.steps import Step


class RankingTask(CaseTask[ScoreRubric, ComparisonInput, dict[str, Opinion], Comparison]):
    """Several texts that answer one prompt, each scored."""

    name = "ranking"
    label_kind = "winner"

    def judge(self, judge: DocumentJudge) -> RankingJudge:
        return judge.as_judge(RankingJudge)

    def build_subject(self, case: Case, inputs: NamedInputs | None) -> ComparisonInput:
        del inputs
        return ComparisonInput(case.prompt, tuple(map(make_file, case.letters, case.subjects)))

    async def ask_tiers(
        self,
        judge: Judge[ScoreRubric, ComparisonInput, Comparison],
        case: Case,
        state: JudgingState[ComparisonInput],
    ) -> None:
        """Call every tier for all texts, and add the tiers' turns to `state`.

        A normal ranking only passes the best texts to the next tier. The rules for that are learned from
        these scores, so every tier must score all texts.
        """
        del case  # other tasks use it
        all_letters = tuple(state.subject.letters)
        ranking_judge = judge.as_judge(RankingJudge)
        tiers_with_shortened_texts = []
        for tier, models in judge.models_by_tier.items():
            usual_question = ranking_judge.build_question(tier, state)
            question = replace(usual_question, letters=all_letters)

            calls = [partial(question.ask, endpoint, state.session) for endpoint in models]
            state.turns[tier] = await gather_limited(calls, state.session)
            if question.is_cut:
                tiers_with_shortened_texts.append(tier)
        state.cut_tiers = tiers_with_shortened_texts

    def read_turn(self, case: Case, turn: ModelTurn[dict[str, Opinion]]) -> RecordedAnswer:
        """Turn a model's opinions into a record: each text's mean points, and how they were read.

        Returns {} if there are no opinions.
        """
        del case  # other tasks use it
        opinions = turn.answer.value
        if not opinions:
            return {}

        points = {}
        sources = set()
        for letter, opinion in opinions.items():
            # A record lists each text's means, in case there are several calls. This is one call.
            points[letter] = [self.rubric.mean(opinion.scores)]
            sources.add(score_source(turn.endpoint, opinion))

        # "partly" means that only some texts' scores were read from probabilities.
        has_one_source = len(sources) == 1
        source = sources.pop() if has_one_source else "partly"
        return {"points": points, "read": source}

    def list_answered_calls(self, turn: ModelTurn[dict[str, Opinion]]) -> Sequence[Answer[Any]]:
        return turn.call_answers

    def count_calls(self, turn: ModelTurn[dict[str, Opinion]], settings: JudgeSettings) -> int:
        calls_per_text = super().count_calls(turn, settings)
        return calls_per_text * len(turn.call_answers)

    def read_answers(self, case: Case, recorded: Recorded) -> dict[str, str | None]:
        """Read which text a recorded answer ranks best: its letter, `TIE`, or None if it ranks nothing.

        The only key is `WHOLE_CASE_KEY`.
        """
        points = read_points(case, recorded)
        # Rank the answer by itself, as if it came from a first tier. Any tier's name would do.
        tier: TierName = "quick"
        # With `asked=1`, there's no quorum: the answer counts even if few jurors gave scores.
        ranked = rank([], tier, case.letters, points, asked=1)
        evidence = read_ranking([ranked], margins={})
        standing = evidence[tier].standing

        if standing is None:
            return {WHOLE_CASE_KEY: None}
        if not standing.is_won(self.mode):
            return {WHOLE_CASE_KEY: TIE}
        best_letter = standing.ranked_letters[0]
        return {WHOLE_CASE_KEY: best_letter}

    def label_words(self, case: Case) -> Sequence[str]:
        return (*case.letters, TIE)

    def read_ranked_case(
        self, case: Case, deviating_tiers: Collection[TierName] = ()
    ) -> RankedCase:
        """Read a case's scores by tier. No gate is learned from the leads of `deviating_tiers`."""
        scores_by_tier = {}
        for tier, recorded in answers_by_tier(case).items():
            scores_by_tier[tier] = read_points(case, recorded)
        return RankedCase(
            case=case,
            rubric=self.rubric,
            mode=self.mode,
            scores_by_tier=scores_by_tier,
            labelled_winner=self.read_labels(case)[WHOLE_CASE_KEY],
            deviating_tiers=frozenset(deviating_tiers),
        )

    def build_samples(
        self, case: Case, deviating_tiers: Collection[TierName] = ()
    ) -> Iterator[Sample]:
        yield self.read_ranked_case(case, deviating_tiers).sample()

    def compare_with_label(self, case: Case, record: Comparison) -> Iterator[Tried]:
        why = record.degraded or record.reasoning
        yield Tried(case.id, self.mode, self.label_word(case), said=record.verdict, why=why)


# --- The results of recorded scores, tier after tier


class Turn(NamedTuple):
    """One tier of a ranking: the number of its calls, and the decision after it."""

    call_count: int
    ranked_tier: RankedTier
    evidence: TierEvidence
    step: Step

    @property
    def best_letter(self) -> str | None:
        """The best subject. None if too few models answered."""
        return self.evidence.standing.ranked_letters[0] if self.evidence.standing else None


def build_ranking_rules(
    letters: Sequence[str],
    scores_by_tier: Mapping[TierName, MeansByVoter],
    mode: ModeName,
    finality: FinalityRules | None = None,
) -> EscalationRules:
    """Build the escalation rules for replaying a ranking, with the tiers and models that have scores."""
    models_by_tier = {}
    for tier, means in scores_by_tier.items():
        models_by_tier[tier] = {voter.model for voter in means}

    return EscalationRules(
        # Rankings don't use this, but the field is required. It's the usual value for the mode.
        outcome_to_confirm="accept" if mode == "strict" else "reject",
        tiers=tuple(scores_by_tier),
        task="ranking",
        mode=mode,
        models=models_by_tier,
        finality=finality,
        letters=tuple(letters),
    )


def walk_ranking(
    scores_by_tier: Mapping[TierName, MeansByVoter],
    rules: EscalationRules,
    margins: Margins,
    *,
    cut: Collection[TierName] = (),
    deviating_tiers: Collection[TierName] = (),
) -> list[Turn]:
    """Replay a ranking tier by tier, using recorded scores instead of calling models.

    Returns a turn for each tier that the rules call. The tiers in `cut` saw a shortened text.
    """
    turns: list[Turn] = []
    ranked_tiers: list[RankedTier] = []
    step = decide({}, rules)
    while isinstance(step, Ask):
        tier = step.tier
        scores = scores_by_tier[tier]
        ranked = rank(
            ranked_tiers,
            tier,
            step.letters,
            scores,
            asked=len(rules.models[tier]),
            is_cut=tier in cut,
            # A deviating tier doesn't answer as usual, so no gate may use its lead.
            is_known=tier not in deviating_tiers,
        )
        ranked_tiers.append(ranked)

        calls = count_calls(scores, step.letters)
        evidence = read_ranking(ranked_tiers, margins)
        next_step = decide(evidence, rules)
        turns.append(Turn(calls, ranked, evidence[tier], next_step))
        step = next_step
    return turns


class RankedCase(NamedTuple):
    """A case with its subjects' scores by tier; `deviating_tiers` are tiers that were read in another way."""

    case: Case
    rubric: ScoreRubric
    mode: ModeName
    scores_by_tier: Mapping[TierName, MeansByVoter]
    labelled_winner: str
    deviating_tiers: frozenset[TierName] = frozenset()

    def replay_turns(self, finality: FinalityRules | None) -> list[Turn]:
        """Replay the ranking, and return all tiers' turns."""
        return walk_ranking(
            self.scores_by_tier,
            build_ranking_rules(self.case.letters, self.scores_by_tier, self.mode, finality),
            usual_margins(self.rubric),
            cut=find_cut_tiers(self.case),
            deviating_tiers=self.deviating_tiers,
        )

    def walk(self, finality: FinalityRules | None) -> Walked:
        """Replay the ranking, and compare its winner with the text that the label names as best."""
        turns = self.replay_turns(finality)
        calls = {turn.ranked_tier.tier: turn.call_count for turn in turns}

        last_turn = turns[-1]
        end = last_turn.step
        assert isinstance(end, End), "the last turn ends the ranking"  # noqa: S101
        # A gate ends a ranking before its last tier, if the best text's lead is large enough.
        is_ended_by_gate = end.because == LEAD_CALIBRATED_ROW

        is_undecided = end.tier is None
        if is_undecided:
            return Walked(calls, is_right=None, is_ended_by_gate=is_ended_by_gate)

        winner = last_turn.best_letter if end.verdict == "accept" else TIE
        return Walked(
            calls, is_right=winner == self.labelled_winner, is_ended_by_gate=is_ended_by_gate
        )

    def sample(self) -> Sample:
        """Build a sample to learn gates from, with the tiers' opinions."""
        opinions = {}
        tied_tiers = set()
        wrong_tiers = set()
        # Replay with a calibration that has no gates. Without any, the first tier could end the ranking.
        no_gates = FinalityRules()
        for turn in self.replay_turns(no_gates):
            tier = turn.ranked_tier.tier
            opinions[tier] = _read_opinion(turn)
            if self._sees_tie(turn.evidence):
                tied_tiers.add(tier)
            if not self._finds_best(turn.ranked_tier):
                wrong_tiers.add(tier)

        return Sample(
            id=self.case.id,
            label="accept",  # required, but not used: `wrong_tiers` says who misses the labelled winner
            opinions=opinions,
            right_tie_tiers=frozenset(tied_tiers),
            wrong_tiers=frozenset(wrong_tiers),
        )

    def _sees_tie(self, evidence: TierEvidence) -> bool:
        """Say if a tier saw the complete texts, and none of them wins."""
        standing = evidence.standing
        if standing is None:
            return False
        # A tie between shortened texts doesn't count, because the difference may be in the missing part.
        if not evidence.sees_whole_text:
            return False
        return not standing.is_won(self.mode)

    def _finds_best(self, ranked: RankedTier) -> bool:
        """Say if a tier's best text is the labelled one, or if it has none and the label is a tie."""
        labelled_best = None if self.labelled_winner == TIE else self.labelled_winner
        return ranked.best == labelled_best


def _read_opinion(turn: Turn) -> TierEvidence:
    """Read a tier's opinion. Its margin is dropped if a gate on it would change nothing."""
    ends_judging = isinstance(turn.step, End) and turn.step.tier is not None
    if ends_judging:
        # The judging ends after this tier, whatever its margin is.
        return turn.evidence.without_margin()
    return turn.evidence


def read_points(case: Case, recorded: Recorded) -> MeansByVoter:
    """Read the scores that each model gave to each text. A model that failed has no scores.

    Returns lists of scores by model, then by the text's letter. Raises `InputError` if a model that didn't
    fail lacks scores, or has scores for unknown letters.
    """
    scores_by_voter: dict[Voter, Mapping[str, list[float]]] = {}
    for juror in recorded.jurors:
        has_failed = juror.failure is not None
        if not has_failed and not _has_valid_points(juror, case):
            raise case.build_error(
                f"expected points for {', '.join(case.letters)}, what each was given"
            )

        # The same model can appear more than once in a jury, so add its scores to any earlier ones.
        voter = Voter(juror.model, juror.endpoint.family)
        scores_by_letter = scores_by_voter.setdefault(voter, defaultdict(list))
        points = juror.points or {}
        for letter, scores in points.items():
            scores_by_letter[letter].extend(scores)
    return scores_by_voter


def _has_valid_points(juror: Recorded, case: Case) -> bool:
    """Say if a model has scores, and only for letters of the case's texts."""
    if juror.points is None:
        return False
    known_letters = set(case.letters)
    return all(letter in known_letters for letter in juror.points)
