"""The task `select`: each tier's models choose among candidates, and only contested ones go up a tier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from judgekit.judging import decisions, documents
from judgekit.judging.documents import Candidates, PromptCandidate, Query
from judgekit.judging.escalation import decide
from judgekit.judging.evidence import Evidence, read_candidate
from judgekit.judging.orchestrator import Judge
from judgekit.judging.prompt import write_candidate_text
from judgekit.judging.reservations import (
    Reservation,
    ReservationKind,
    join_reservations,
    list_failures,
)
from judgekit.judging.select_question import SelectQuestion
from judgekit.judging.steps import PER_CANDIDATE_END, UNASKED, Ask, End, EscalationRules, Step
from judgekit.judging.verdict import Decision, Selection
from judgekit.redaction import redact
from judgekit.rubric.schema import SelectRubric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import TierName
    from judgekit.judging.state import JudgingState


@dataclass(frozen=True, slots=True)
class CandidateJudge(Judge[SelectRubric, Candidates, Selection]):
    """Decides which candidates to keep."""

    async def select(self, query: Query, candidates: Sequence[PromptCandidate]) -> Selection:
        """Decide on each candidate, in the given order; failures are in the result, never raised."""
        return await self.adapt_to_query(query).judge(Candidates(query, tuple(candidates)))

    def adapt_to_query(self, query: Query) -> CandidateJudge:
        """Return the judge, without its calibration if the query has earlier turns of a conversation."""
        # Calibrations are made from requests without earlier turns, so they're only valid for such requests.
        if self.settings.finality is None or not query.turns:
            return self
        reason = (
            "its labelled requests had no earlier conversation; set retrieval.context_turns to 0"
        )
        return replace(self, settings=self.settings.without_calibration(reason))

    def redact_subject(self, subject: Candidates) -> tuple[Candidates, int]:
        """Replace the secrets in the query and the candidates, if redaction is on.

        Returns the new subject and the number of secrets.
        """
        if not self.settings.redact:
            return subject, 0

        # Only redact the start of the query's texts, because prompts show no more of them. To show a turn, up
        # to 4 * `TURN_CHARS` are read, as some are removed. The margin is for a secret that crosses the cut:
        # half a secret wouldn't be recognised.
        turn_limit = 4 * documents.TURN_CHARS + redact.SEARCH_MARGIN_CHARS
        query_limit = documents.PROMPT_CHARS + redact.SEARCH_MARGIN_CHARS
        turns = [redact.words(turn[:turn_limit]) for turn in subject.query.turns]
        query_text = redact.words(subject.query.text[:query_limit])
        candidates = tuple(map(_redact_candidate, subject.candidates))

        redacted_texts = [query_text, *turns, *map(write_candidate_text, candidates)]
        secrets = sum(text.count(redact.REDACTION_PREFIX) for text in redacted_texts)
        return Candidates(Query(query_text, tuple(turns)), candidates), secrets

    def build_question(self, tier: TierName, state: JudgingState[Candidates]) -> SelectQuestion:
        """Build the question for a tier, about the candidates that need it."""
        subject = state.subject
        open_candidates = []
        for candidate in subject.candidates:
            step = self._choose_candidate_step(candidate.id, state)
            if isinstance(step, Ask) and step.tier == tier:
                open_candidates.append(candidate)

        deep_marks = state.opinions.get("deep", {}).values()
        lacks_deep_marks = all(mark is None for mark in deep_marks)
        instructions_tier = tier
        if tier == "tiebreaker" and lacks_deep_marks:
            # There's no difference between tiers to settle, so the tiebreaker does the deep tier's job.
            instructions_tier = "deep"

        return SelectQuestion(
            self.settings,
            subject._replace(candidates=tuple(open_candidates)),
            tier,
            instructions_tier=instructions_tier,
        )

    def choose_step(self, state: JudgingState[Candidates]) -> Step:
        """Ask the first tier that any candidate still needs. If none needs one, end."""
        needed_tiers = set()
        for candidate in state.subject.candidates:
            candidate_step = self._choose_candidate_step(candidate.id, state)
            if isinstance(candidate_step, Ask):
                needed_tiers.add(candidate_step.tier)
        for tier in self.models_by_tier:
            if tier in needed_tiers:
                return Ask(tier)
        return PER_CANDIDATE_END

    def read_evidence(self, state: JudgingState[Candidates], candidate: str = "") -> Evidence:
        """Convert the marks of a candidate (given by its id) to evidence, by tier."""
        evidence_by_tier = {}
        for tier, marks in state.opinions.items():
            if candidate in marks:
                is_decision_model = tier in self.settings.deciding_tiers
                evidence_by_tier[tier] = read_candidate(marks[candidate], decides=is_decision_model)
        return evidence_by_tier

    def build_rules(self, state: JudgingState[Candidates]) -> EscalationRules:
        """Return the escalation rules for candidates."""
        del state  # the rules don't depend on it
        rules = self.settings.build_escalation_rules("candidate")
        if len(self.models_by_tier) == 1:
            # Callers that only use one tier, such as the prompt hook, want its answer even without proof.
            rules = replace(rules, needs_proof=False)
        return rules

    def _choose_candidate_step(self, candidate: str, state: JudgingState[Candidates]) -> Step:
        """Return the tier to ask next about a candidate, given by id, or the end of its judging."""
        return decide(self.read_evidence(state, candidate), self.build_rules(state))

    def build_unjudged_record(self, state: JudgingState[Candidates], why: str) -> Selection:
        return self.record(state, UNASKED).model_copy(update={"degraded": why})

    def record(self, state: JudgingState[Candidates], end: End) -> Selection:
        """Build the record with the decisions on all candidates, and the reasons if some are undetermined."""
        del end  # judging ends separately for each candidate
        all_decisions = [
            self._build_decision(state, candidate.id) for candidate in state.subject.candidates
        ]
        reservations = []
        if any(decision.decision == "undetermined" for decision in all_decisions):
            reservations = list_failures(state.rounds) or self._explain_unproven(state)
        if state.refusal_reason:  # it explains everything, so it replaces other reasons
            reason = f"not judged: {state.refusal_reason}"
            reservations = [Reservation(ReservationKind.NOT_JUDGED, reason)]
        return Selection(
            stale=self.settings.calibration_warning,
            by_decisions=self._is_by_decisions(state),
            decisions=all_decisions,
            degraded=join_reservations(reservations),
            **state.build_common_fields(self.settings),
        )

    def _is_by_decisions(self, state: JudgingState[Candidates]) -> bool:
        """Whether only decision models were asked."""
        asked_tiers = set(state.opinions)
        return bool(state.rounds) and asked_tiers <= set(self.settings.deciding_tiers)

    def _explain_unproven(self, state: JudgingState[Candidates]) -> list[Reservation]:
        """Explain that in strict mode, decision models alone can't keep a candidate."""
        is_strict = self.settings.mode == "strict"
        if not is_strict or not self._is_by_decisions(state):
            return []
        reason = decisions.explain_unproven(row.model for row in state.rounds)
        return [Reservation(ReservationKind.UNPROVEN, reason)]

    def _build_decision(self, state: JudgingState[Candidates], candidate: str) -> Decision:
        """Build the decision on the candidate with the id `candidate`."""
        step = self._choose_candidate_step(candidate, state)
        end = step if isinstance(step, End) else UNASKED
        # `improve` is exactly between keeping and dropping, so it decides nothing.
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


def _redact_candidate(candidate: PromptCandidate) -> PromptCandidate:
    """Return a copy of a candidate with the secrets in its texts replaced."""
    return replace(
        candidate,
        title=redact.words(candidate.title),
        category=redact.words(candidate.category),
        tags=tuple(map(redact.words, candidate.tags)),
        text=redact.words(candidate.text),
    )
