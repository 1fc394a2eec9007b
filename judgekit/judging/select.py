"""The task `select`: each tier's models choose among candidates, and only contested ones go up a tier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from judgekit.judging import decisions, documents
from judgekit.judging.documents import Candidates, PromptCandidate, Query
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import Evidence, read_candidate
from judgekit.judging.orchestrator import Judge
from judgekit.judging.prompt import candidate_text
from judgekit.judging.reservations import (
    Reservation,
    ReservationKind,
    failures,
    in_words,
)
from judgekit.judging.select_question import SelectQuestion
from judgekit.judging.steps import EACH_HAS_ITS_OWN, UNASKED, Ask, End, EscalationRules, Step
from judgekit.judging.verdict import Decision, Selection
from judgekit.redaction import redact
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import TierName
    from judgekit.judging.state import JudgingState


@dataclass(frozen=True, slots=True)
class CandidateJudge(Judge[SelectRubric, Candidates, Selection]):
    """Decides on each of several candidates."""

    async def select(self, query: Query, candidates: Sequence[PromptCandidate]) -> Selection:
        """Decide on each candidate, in the given order; failures are in the result, never raised."""
        return await self.measured_for(query).judge(Candidates(query, tuple(candidates)))

    def measured_for(self, query: Query) -> CandidateJudge:
        """Drop the learned thresholds if models see more than they did then: earlier turns."""
        finality = self.settings.finality
        if finality is None or not query.turns:
            return self
        why = "its labelled requests had no earlier conversation; set retrieval.context_turns to 0"
        notes = [f"calibration {finality.id} not used: {why}", self.settings.calibration_warning]
        return self.with_settings(finality=None, calibration_warning="; ".join(filter(None, notes)))

    def redacted(self, subject: Candidates) -> tuple[Candidates, int]:
        """Remove the secrets from the query and the candidates, and count them."""
        if not self.settings.redact:
            return subject, 0
        # Prompts hold less of each text; the margin keeps a secret from being cut before it's
        # found.
        turns = []
        for turn in subject.query.turns:
            turns.append(redact.words(turn[: 4 * documents.TURN_CHARS + redact.MARGIN]))
        text = redact.words(subject.query.text[: documents.PROMPT_CHARS + redact.MARGIN])
        candidates = tuple(map(_redacted, subject.candidates))
        shown_texts = (text, *turns, *map(candidate_text, candidates))
        secrets = sum(shown_text.count(redact.MARK) for shown_text in shown_texts)
        return Candidates(Query(text, tuple(turns)), candidates), secrets

    def question(self, tier: TierName, state: JudgingState[Candidates]) -> SelectQuestion:
        """Build the question for a tier, about the candidates that need it and no others."""
        subject = state.subject
        contested = []
        for candidate in subject.candidates:
            step = self._step_for(candidate.id, state)
            if isinstance(step, Ask) and step.tier == tier:
                contested.append(candidate)
        # If the deep tier failed, the tiebreaker replaces it, as there's no disagreement.
        has_deep_marks = any(state.opinions.get("deep", {}).values())
        stands_in = tier == "tiebreaker" and not has_deep_marks
        return SelectQuestion(
            self.settings,
            subject._replace(candidates=tuple(contested)),
            tier,
            instructions_tier="deep" if stands_in else tier,
        )

    def step(self, state: JudgingState[Candidates]) -> Step:
        """Find the first tier that some candidate needs, or an end, when each candidate has its own."""
        waiting = set()
        for candidate in state.subject.candidates:
            step = self._step_for(candidate.id, state)
            if isinstance(step, Ask):
                waiting.add(step.tier)
        for tier in self.models_by_tier:
            if tier in waiting:
                return Ask(tier)
        return EACH_HAS_ITS_OWN

    def evidence(self, state: JudgingState[Candidates], candidate: str = "") -> Evidence:
        """Read the tiers' opinions of one candidate, by its id."""
        evidence = {}
        for tier, marks in state.opinions.items():
            if candidate in marks:
                decides = tier in self.settings.deciding_tiers
                evidence[tier] = read_candidate(marks[candidate], decides=decides)
        return evidence

    def rules(self, state: JudgingState[Candidates]) -> EscalationRules:
        """Return the rules for candidates."""
        del state
        rules = self.settings.escalation_rules("candidate")
        if len(self.models_by_tier) == 1:
            # Callers who set a single tier, like the prompt hook, want its answer as it is.
            rules = replace(rules, needs_proof=False)
        return rules

    def _step_for(self, candidate: str, state: JudgingState[Candidates]) -> Step:
        """Find the tier to ask about one candidate, by its id, or its end."""
        return decide(self.evidence(state, candidate), self.rules(state))

    def unjudged(self, state: JudgingState[Candidates], why: str) -> Selection:
        return self.record(state, UNASKED).model_copy(update={"degraded": why})

    def record(self, state: JudgingState[Candidates], end: End) -> Selection:
        """Build the decisions on all candidates; `degraded` explains why some are undetermined."""
        del end  # each candidate has an end of its own
        decided = [self._decision(state, candidate.id) for candidate in state.subject.candidates]
        reservations = []
        if any(decision.decision == "undetermined" for decision in decided):
            reservations = failures(state.rounds) or self._why_unproven(state)
        if state.refused:
            reason = f"not judged: {state.refused}"
            reservations = [Reservation(ReservationKind.NOT_JUDGED, reason)]
        return Selection(
            stale=self.settings.calibration_warning,
            by_decisions=self._is_by_decisions(state),
            decisions=decided,
            degraded=in_words(reservations),
            **state.common_fields(self.settings),
        )

    def _is_by_decisions(self, state: JudgingState[Candidates]) -> bool:
        """Whether only decision models were asked."""
        return bool(state.rounds) and set(state.opinions) <= set(self.settings.deciding_tiers)

    def _why_unproven(self, state: JudgingState[Candidates]) -> list[Reservation]:
        """Explain why candidates that every tier kept are undecided; empty if there are none."""
        is_strict = self.settings.mode == "strict"
        if not is_strict or not self._is_by_decisions(state):
            return []
        reason = decisions.unproven_reason(row.model for row in state.rounds)
        return [Reservation(ReservationKind.UNPROVEN, reason)]

    def _decision(self, state: JudgingState[Candidates], candidate: str) -> Decision:
        """Combine the tiers' marks of one candidate, by its id, into a decision."""
        step = self._step_for(candidate, state)
        end = step if isinstance(step, End) else UNASKED
        # `improve` means exactly between keeping and dropping, so it decides nothing.
        if end.tier is None or end.verdict == "improve":
            return Decision(id=candidate, decision="undetermined", because=end.because)
        mark = state.opinions[end.tier][candidate]
        return Decision(
            id=candidate,
            decision="kept" if end.verdict == "accept" else "dropped",
            tier=end.tier,
            probability=mark.probability if mark else None,
            because=end.because,
        )


def _redacted(candidate: PromptCandidate) -> PromptCandidate:
    """Return a copy of a candidate with the secrets in its texts replaced."""
    return replace(
        candidate,
        title=redact.words(candidate.title),
        category=redact.words(candidate.category),
        tags=tuple(map(redact.words, candidate.tags)),
        text=redact.words(candidate.text),
    )
