"""The task `compare`: picks the better of two texts, asking every model in both orders."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.config import TIE
from judgekit.judging import independence, outgoing
from judgekit.judging.compare_question import CompareQuestion, EarlierOpinion
from judgekit.judging.documents import (
    MIN_TEXTS,
    ComparisonInput,
    is_cut,
)
from judgekit.judging.evidence import Evidence, read_pair
from judgekit.judging.finality import MARGIN_DECIMALS
from judgekit.judging.jury import (
    WINS,
    TierVote,
    find_favourite,
)
from judgekit.judging.orchestrator import Judge
from judgekit.judging.question import AnyRubric
from judgekit.judging.reservations import (
    Reservation,
    ReservationKind,
    join_reservations,
    list_failures,
)
from judgekit.judging.rows import explain_independence_problem, find_families
from judgekit.judging.steps import CUT_TEXTS_ROW, EQUAL_TEXTS, OWN_FAMILY_ROW, End, EscalationRules
from judgekit.judging.verdict import Comparison, Contestant
from judgekit.redaction import redact
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.jury import PairWord, Vote
    from judgekit.judging.state import JudgingState
    from judgekit.providers.base import Endpoint

    Compared: TypeAlias = JudgingState[ComparisonInput]

    SubjectScore: TypeAlias = tuple[float, TierName]


class ComparisonResult(NamedTuple):
    """A comparison's verdict with its lead, reasoning, reservation and families."""

    verdict: str = "undetermined"
    lead: float | None = None
    reasoning: str = ""
    reservation: Reservation | None = None
    truncated: bool = False
    families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonJudge(Judge[AnyRubric, ComparisonInput, Comparison]):
    """Compares texts: the part that pairs and rankings share."""

    def attribute_subject(self, subject: ComparisonInput) -> ComparisonInput:
        return subject.fill_in_author(self.settings.author_family)

    def redact_subject(self, subject: ComparisonInput) -> tuple[ComparisonInput, int]:
        """Replace the secrets in the prompt and the texts, if redaction is on.

        Return the new subject and the number of secrets.
        """
        if not self.settings.redact:
            return subject, 0
        prompt_text, secrets = redact.redact(subject.prompt)
        files = []
        for file in subject.files:
            redacted_file, file_secrets = outgoing.redact_file(file)
            files.append(redacted_file)
            secrets += file_secrets
        return replace(subject, prompt=prompt_text, files=tuple(files)), secrets

    def note_refusal_and_cuts(self, state: Compared) -> None:
        if state.subject.is_one_text:
            state.refusal_reason = "no model compares a text with itself"

    def build_comparison(
        self,
        state: Compared,
        end: End,
        result: ComparisonResult,
        note: Reservation | None = None,
        scores: Mapping[str, SubjectScore] = {},
    ) -> Comparison:
        """Build the record of a comparison.

        `note` is added to the reservations of the result and the calls. `scores` maps a text's letter to its
        mean score and the tier that gave it.
        """
        subject = state.subject
        # Equal texts are a tie without asking a model, so the given end and result say nothing.
        if subject.is_one_text:
            end = EQUAL_TEXTS
            result = _build_equal_texts_tie(subject)
        lead = result.lead
        if lead is not None:
            lead = round(lead, MARGIN_DECIMALS)

        comparison = Comparison(
            subjects=_list_contestants(subject, scores),
            question_sha256=_hash_prompt(subject.prompt),
            verdict=result.verdict,
            consensus=end.consensus,
            because=end.because,
            judge_tier=end.tier,
            lead=lead,
            reasoning=result.reasoning,
            degraded=self._describe_reservations(state, result, note),
            truncated=result.truncated,
            families=result.families,
            independent=independence.is_independent(subject.author_families, result.families),
            **state.build_verdict_fields(self.settings),
        )
        if self.settings.redact:
            return outgoing.redact_replies(comparison)
        return comparison

    def _describe_reservations(
        self, state: Compared, result: ComparisonResult, note: Reservation | None
    ) -> str | None:
        """Describe everything that limits how far the result can be trusted."""
        possible_reservations = [
            self._explain_not_judged(state),
            result.reservation,
            *list_failures(state.rounds),
            note,
            self._explain_uncalibrated(),
        ]
        reservations = filter(None, possible_reservations)
        return join_reservations(reservations)

    def _explain_not_judged(self, state: Compared) -> Reservation | None:
        """Explain why no model was called, or return None if there's nothing to explain."""
        was_judged = bool(state.rounds)
        if was_judged or state.subject.is_one_text:  # equal texts need no model
            return None
        reason = state.refusal_reason or self.settings.no_model_reason
        if not reason:
            return None
        return Reservation(ReservationKind.NOT_JUDGED, f"not judged: {reason}")

    def _explain_uncalibrated(self) -> Reservation | None:
        """Explain why a calibration wasn't used, or return None."""
        warning = self.settings.calibration_warning
        if not warning:
            return None
        return Reservation(ReservationKind.CALIBRATION, warning)

    def list_families(self, state: Compared, end: End) -> tuple[str, ...]:
        """List the families behind an outcome, alphabetically."""
        return tuple(sorted(find_families(self.read_evidence(state), self.build_rules(state), end)))

    def build_refused_result(
        self, state: Compared, end: End, *, truncated: bool
    ) -> ComparisonResult:
        """Build the undetermined result for a win that only the winner's own family supports."""
        # A refusal has always overruled a win, so `or end` is only for the type checker.
        overruled_win = end.overruled_end or end
        problem = explain_independence_problem(
            self.read_evidence(state), self.build_rules(state), overruled_win
        )
        reservation = None
        if problem:
            reservation = Reservation(ReservationKind.OWN_FAMILY, problem)
        return ComparisonResult(
            reservation=reservation,
            truncated=truncated,
            families=self.list_families(state, end),
        )


def _hash_prompt(prompt: str) -> str:
    """Hash a prompt, even if it has a lone surrogate, which plain UTF-8 refuses."""
    prompt_bytes = prompt.encode("utf-8", "surrogatepass")
    return hashlib.sha256(prompt_bytes).hexdigest()


def _build_equal_texts_tie(subject: ComparisonInput) -> ComparisonResult:
    """Build the result for subjects with the same text."""
    texts = "two texts" if len(subject.files) == MIN_TEXTS else "texts"
    return ComparisonResult(verdict=TIE, lead=0.0, reasoning=f"The {texts} are the same.")


def _list_contestants(
    subject: ComparisonInput, scores: Mapping[str, SubjectScore]
) -> list[Contestant]:
    """List the compared texts for the record, with their scores if they have any."""
    contestants = []
    for letter, file in zip(subject.letters, subject.files, strict=True):
        score = None
        scoring_tier = None
        if letter in scores:
            mean, scoring_tier = scores[letter]
            score = round(mean, MARGIN_DECIMALS)
        contestant = Contestant(
            letter=letter,
            path=file.path,
            sha256=file.sha256,
            family=", ".join(subject.families(letter)) or None,
            score=score,
            tier=scoring_tier,
        )
        contestants.append(contestant)
    return contestants


@dataclass(frozen=True, slots=True)
class PairJudge(ComparisonJudge[CompareRubric]):
    """Compares two texts by asking which is better."""

    def note_refusal_and_cuts(self, state: Compared) -> None:
        ComparisonJudge.note_refusal_and_cuts(self, state)
        state.cut_tiers = self.cut_texts(state)

    def build_question(self, tier: TierName, state: Compared) -> CompareQuestion:
        """Build the question for a tier. The tiebreaker also sees the earlier votes with their reasons."""
        question = CompareQuestion(self.settings, state.subject, tier)
        if tier != "tiebreaker":
            return question

        tiers_with_votes = [tier_vote for tier_vote in state.opinions.values() if tier_vote.votes]
        earlier_opinions: list[EarlierOpinion] = []
        for tier_vote in tiers_with_votes:
            for vote in tier_vote.votes:
                earlier_opinions.append(_describe_vote(vote, question))

        # If only one tier has voted, there's nothing to settle, so use the deep tier's instructions.
        instructions_tier: TierName = "tiebreaker" if len(tiers_with_votes) > 1 else "deep"
        return replace(
            question, instructions_tier=instructions_tier, earlier_opinions=earlier_opinions
        )

    def read_evidence(self, state: Compared) -> Evidence:
        """Convert the tiers' votes to evidence."""
        subject = state.subject
        # A model family that wrote only one of the two texts may favour that text.
        favouring_families: dict[str, set[str]] = {}
        for letter in WINS:
            families = set(subject.families(letter)) & set(subject.families_of_some_texts)
            favouring_families[letter] = families
        return read_pair(
            state.opinions,
            cut=state.cut_tiers,
            favouring_families=favouring_families,
        )

    def build_rules(self, state: Compared) -> EscalationRules:
        """Return the escalation rules for pairs.

        Their `authors` are, by outcome, those of the text that wins.
        """
        escalation_rules = self.settings.build_escalation_rules("pair")
        first_winner = find_favourite(state.opinions)
        if first_winner is None:  # no outcome makes a text win
            return replace(escalation_rules, authors={})

        # An acceptance is a win for the first winner, and a rejection is a win for the other text.
        other_text = _choose_other_letter(first_winner)
        families_by_outcome: dict[Outcome, Sequence[str]] = {
            "accept": state.subject.families(first_winner),
            "reject": state.subject.families(other_text),
        }
        return replace(escalation_rules, authors=families_by_outcome)

    def record(self, state: Compared, end: End) -> Comparison:
        """Build the record of a comparison, with a note about the texts that were cut."""
        cuts = []
        for tier, letters in self.cut_texts(state).items():
            was_asked = tier in state.opinions
            if was_asked:
                cuts.append(f"{letters} for {tier}")
        note = None
        if cuts:
            note = Reservation(ReservationKind.CUT, f"cut: {', '.join(cuts)}")
        result = self._build_result(state, end)
        return self.build_comparison(state, end, result, note)

    def _build_result(self, state: Compared, end: End) -> ComparisonResult:
        """Build the result from the vote of the tier that decided. If none did, the result has no vote."""
        if end.because == OWN_FAMILY_ROW:
            return self._refuse_win_by_own_family(state, end)
        if end.tier is None:
            return self._build_undecided_result(state, end)

        votes: dict[TierName, TierVote] = state.opinions
        vote = votes[end.tier]
        # All tiers have the same labels, so any tier's question can translate them.
        reasoning = self.build_question("quick", state).replace_labels(vote.reasoning)
        return ComparisonResult(
            verdict=convert_end_to_word(end, find_favourite(votes)),
            lead=vote.lead,
            reasoning=reasoning,
            truncated=end.tier in state.cut_tiers,
            families=self.list_families(state, end),
        )

    def _refuse_win_by_own_family(self, state: Compared, end: End) -> ComparisonResult:
        """Build the result for a win that doesn't count, because only the winner's family voted for it."""
        refused_end = end.overruled_end
        was_cut = refused_end is not None and refused_end.tier in state.cut_tiers
        return self.build_refused_result(state, end, truncated=was_cut)

    def _build_undecided_result(self, state: Compared, end: End) -> ComparisonResult:
        """Build the result without a vote, because no tier decided."""
        reservation = NOT_WHOLE if end.because == CUT_TEXTS_ROW else None
        return ComparisonResult(
            verdict=end.verdict,
            reservation=reservation,
            truncated=bool(state.cut_tiers),
            families=self.list_families(state, end),
        )

    def cut_texts(self, state: Compared) -> dict[TierName, str]:
        """Return, by tier, the texts that must be cut for any of its models, such as "A and B".

        Tiers that cut no text are omitted.
        """
        letters_by_tier: dict[TierName, str] = {}
        for tier, models in self.models_by_tier.items():
            question = CompareQuestion(self.settings, state.subject, tier)
            letters = [letter for letter in WINS if _is_cut_for_any(models, question, letter)]
            if letters:
                letters_by_tier[tier] = " and ".join(letters)
        return letters_by_tier


def _describe_vote(vote: Vote, question: CompareQuestion) -> EarlierOpinion:
    """Describe a vote for the tiebreaker, with the preferred text's label. A tie has none."""
    label = None if vote.word == TIE else question.label(vote.word)
    reasoning = redact.words(vote.reasoning)
    return EarlierOpinion(label, reasoning)


def _is_cut_for_any(models: Iterable[Endpoint], question: CompareQuestion, letter: str) -> bool:
    """Whether a text is too long for one of the models."""
    label = letter  # any label will do
    visible_texts = [question.visible_file(model, letter, label) for model in models]
    return is_cut(visible_texts)


NOT_WHOLE = Reservation(
    ReservationKind.CUT, "no model saw the whole of both texts, so the result is open"
)


def convert_end_to_word(end: End, first_winner: PairWord | None) -> str:
    """Convert an end's verdict to the better text's letter or "tie". An open verdict stays as it is."""
    # The escalation rules judge if the first winner is better. "accept" means that it is, "reject" that the
    # other text is, and "improve" that neither is.
    word_by_verdict: dict[str, str] = {"improve": TIE}
    if first_winner is not None:
        word_by_verdict["accept"] = first_winner
        word_by_verdict["reject"] = _choose_other_letter(first_winner)
    return word_by_verdict.get(end.verdict, end.verdict)


def _choose_other_letter(winner: PairWord) -> str:
    return "B" if winner == "A" else "A"
