"""Evaluates judges of two texts: which is better, asked in both orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from judgekit.config import TIE
from judgekit.evaluation.samples import (
    WHOLE_CASE_KEY,
    Sample,
    answers_by_tier,
    drop_margins,
    find_cut_tiers,
)
from judgekit.evaluation.task import CaseTask, RecordedAnswer, Tried
from judgekit.judging import jury
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import ComparisonInput, make_file
from judgekit.judging.evidence import read_pair
from judgekit.judging.jury import ORDERS, TierVote, Vote
from judgekit.judging.score_source import score_source
from judgekit.judging.verdict import Comparison
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.evaluation.cases import Case, Recorded
    from judgekit.judging.evidence import Evidence
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.round import Answer
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.settings import JudgeSettings
    from judgekit.rubric.schema import Better

_PAIR_WORDS = (*jury.WINS, TIE)


class PairTask(CaseTask[CompareRubric, ComparisonInput, Vote, Comparison]):
    """Two texts that answer one prompt."""

    name = "pair"
    label_kind = "winner"

    def judge(self, judge: DocumentJudge) -> PairJudge:
        return judge.as_judge(PairJudge)

    def build_subject(self, case: Case, inputs: NamedInputs | None) -> ComparisonInput:
        del inputs
        if not (case.a and case.b):
            raise case.build_error("expected the texts a and b, or what judges said")
        return ComparisonInput(case.prompt, (make_file("A", case.a), make_file("B", case.b)))

    def read_turn(self, case: Case, turn: ModelTurn[Vote]) -> RecordedAnswer:
        """Turn a model's answers for both orders of the texts into a record, or {} if they're unreadable."""
        del case  # other tasks use it
        source = score_source(turn.endpoint, opinion=None)  # a vote has no scores

        words = [call.value.word if call.value else None for call in turn.call_answers]
        has_one_call_per_order = len(words) == len(ORDERS)
        has_readable_word = any(words)
        if has_one_call_per_order and has_readable_word:
            first, second = words
            return {"orders": {"AB": first, "BA": second}, "read": source}

        vote = turn.answer.value
        if not vote:
            return {}
        # The model was called several times for each order, so record the combined preference.
        # A positive lean is towards A, a negative one towards B.
        preferences = {"A": max(vote.lean, 0.0), "B": max(-vote.lean, 0.0)}
        return {"probabilities": preferences, "read": source}

    def list_answered_calls(self, turn: ModelTurn[Vote]) -> Sequence[Answer[Any]]:
        return turn.call_answers

    def count_calls(self, turn: ModelTurn[Vote], settings: JudgeSettings) -> int:
        del settings
        return len(turn.call_answers)

    def find_failure(self, calls: Sequence[Answer[Any]]) -> str:
        has_failed = any(call.failure for call in calls)
        if not has_failed and any(call.value for call in calls):
            return "invalid_reply"  # the calls are readable, but have no combined result
        return super().find_failure(calls)

    def read_answers(self, case: Case, recorded: Recorded) -> dict[str, str | None]:
        return {WHOLE_CASE_KEY: _read_tier_vote(case, recorded).word}

    def label_words(self, case: Case) -> Sequence[str]:
        del case  # other tasks use it
        return _PAIR_WORDS

    def build_samples(
        self, case: Case, deviating_tiers: Collection[TierName] = ()
    ) -> Iterator[Sample]:
        """Yield the pair as a sample. Its label says if the tiers' favourite really is better.

        The opinions of `deviating_tiers` get no margins, so that no gate is learned from them.
        """
        votes = {}
        for tier, answer in answers_by_tier(case).items():
            votes[tier] = _read_tier_vote(case, answer)
        evidence = read_pair(votes, cut=find_cut_tiers(case))
        favourite = jury.find_favourite(votes)

        # In lenient mode, missing a winner is the costly error. So a tie after another tier's win doesn't
        # count as right, and a calibration may keep the win in spite of the tie.
        is_lenient = self.mode == "lenient"
        yield Sample(
            id=case.id,
            label=self._compare_label(favourite, case),
            opinions=drop_margins(evidence, deviating_tiers),
            right_tie_tiers=_find_ties(evidence, until_win=is_lenient),
            can_win_stand=is_lenient,
        )

    def _compare_label(self, favourite: str | None, case: Case) -> Outcome:
        """Compare the case's label with the tiers' favourite: "accept" if they agree, otherwise "reject".

        A case that's labelled as a tie is "improve".
        """
        label = self.read_labels(case)[WHOLE_CASE_KEY]
        if label == TIE:
            return "improve"
        return "accept" if label == favourite else "reject"

    def compare_with_label(self, case: Case, record: Comparison) -> Iterator[Tried]:
        why = record.degraded or record.reasoning
        yield Tried(case.id, self.mode, self.label_word(case), said=record.verdict, why=why)


def _find_ties(evidence: Evidence, *, until_win: bool) -> frozenset[TierName]:
    """Find the tiers that see a tie. If `until_win`, stop at the first tier that sees a winner."""
    ties = []
    for tier, opinion in evidence.items():
        # In a comparison, "accept" means a winner, and "improve" a tie.
        sees_winner = opinion.outcome == "accept"
        sees_tie = opinion.outcome == "improve"
        if until_win and sees_winner:
            break
        if sees_tie:
            ties.append(tier)
    return frozenset(ties)


def _read_tier_vote(case: Case, recorded: Recorded) -> TierVote:
    """Combine a tier's votes on two texts. Raises `InputError` for an unsuitable answer."""
    votes = [(juror.endpoint, _read_vote(case, juror)) for juror in recorded.jurors]
    return jury.combine_votes(votes, recorded.rule)


def _read_vote(case: Case, recorded: Recorded) -> Vote | None:
    """Read one model's vote on a pair of texts, or None if the model gave no readable answer.

    Raises `InputError` if the recorded answer is invalid.
    """
    # A vote is recorded in one of three forms: a word for each order of the texts, probabilities, or a
    # choice.
    if recorded.orders is not None:
        votes = [Vote(word) if word else None for word in recorded.orders.values()]
        return jury.combine_orders(votes)

    if recorded.probabilities is not None:
        return _read_probabilities(case, recorded.probabilities)

    if recorded.choice in _PAIR_WORDS:
        return Vote(cast("Better", recorded.choice))

    if recorded.failure is not None:
        return None
    raise case.build_error(f"expected orders or a choice of {', '.join(_PAIR_WORDS)}")


def _read_probabilities(case: Case, probabilities: Mapping[str, float]) -> Vote:
    """Read a vote from the probabilities that A or B is better. The vote's weight is their difference.

    Raises `InputError` if there are other letters than A and B.
    """
    has_both_letters = sorted(probabilities) == sorted(jury.WINS)
    if not has_both_letters:
        shown_letters = ", ".join(sorted(probabilities)) or "nothing"
        raise case.build_error(f"probabilities: expected A and B, got {shown_letters}")

    lean = probabilities["A"] - probabilities["B"]
    weight = 1.0 if lean == 0 else abs(lean)  # A tie has no difference, but it's a full vote.
    return Vote(jury.get_favoured_text(lean), share=weight)
