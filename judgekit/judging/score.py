"""The task `score`: a document's gaps, the question to each tier, and the verdict."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from judgekit.judging import decisions, independence, outgoing
from judgekit.judging.documents import Document, is_cut, parse_families
from judgekit.judging.evidence import Evidence, Speakers, read_document
from judgekit.judging.kinds import DECIDES, get_model_kind
from judgekit.judging.orchestrator import Judge
from judgekit.judging.reservations import (
    Reservation,
    ReservationKind,
    has_kind,
    join_reservations,
    list_failures,
)
from judgekit.judging.rows import explain_independence_problem, find_families
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.score_source import SOURCE_WORDS, score_source
from judgekit.judging.steps import OWN_FAMILY_ROW, End, EscalationRules
from judgekit.judging.verdict import JudgedFile, Round, Verdict
from judgekit.redaction import redact
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.jury import Opinion
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.state import JudgingState
    from judgekit.providers.base import Endpoint


@dataclass(frozen=True, slots=True)
class DocumentJudge(Judge[ScoreRubric, Document, Verdict]):
    """Judges documents."""

    def attribute_subject(self, subject: Document) -> Document:
        """Add the author families in the settings to those in the document."""
        if not self.settings.author_family and subject.author.family is None:
            return subject
        # Even without families in the settings, the document may name models, which become families here.
        configured_families = parse_families(self.settings.author_family)
        families = dict.fromkeys([*subject.author_families, *configured_families])
        author = replace(subject.author, family=", ".join(families) or None)
        return replace(subject, author=author)

    def redact_subject(self, subject: Document) -> tuple[Document, int]:
        """Replace the secrets in a document, if redaction is on. Return the new document and their number."""
        if self.settings.redact:
            return outgoing.redact_document(subject)
        return (subject, 0)

    def note_refusal_and_cuts(self, state: JudgingState[Document]) -> None:
        """Refuse a document that lacks an input that the rubric needs, and note the tiers that see it cut."""
        document = state.subject
        state.refusal_reason = state.refusal_reason or document.lacks(self.rubric) or ""
        state.cut_tiers = {tier for tier in self.models_by_tier if self._is_cut_for(tier, document)}

    def _is_cut_for(self, tier: TierName, document: Document) -> bool:
        """Whether any of a tier's models sees the document cut."""
        limits = getattr(self.rubric.tiers, tier)
        models = self.models_by_tier[tier]
        return any(is_cut(document.visible_files(limits, model)) for model in models)

    def build_question(self, tier: TierName, state: JudgingState[Document]) -> ScoreQuestion:
        """Build the question for a tier."""
        question = ScoreQuestion(self.settings, state.subject, tier)
        if tier != "tiebreaker":
            return question

        # The tiebreaker also sees the other tiers' opinions.
        tier_opinions = [opinion for opinion in state.opinions.values() if opinion]
        is_jury_divided = any(opinion.divided is not None for opinion in tier_opinions)
        # Tiers that agree usually end the judging, so two opinions count as a disagreement.
        has_disagreement = len(tier_opinions) > 1 or is_jury_divided
        # Without a disagreement, there's nothing to settle, so use the deep tier's instructions.
        instructions: TierName = "tiebreaker" if has_disagreement else "deep"
        return replace(
            question, instructions_tier=instructions, earlier_opinions=_shuffle_opinions(state)
        )

    def read_evidence(self, state: JudgingState[Document]) -> Evidence:
        """Convert each tier's opinion to the evidence that decides about the next step."""
        finality = self.settings.finality
        evidence_by_tier = {}
        for tier, opinion in state.opinions.items():
            evidence = read_document(
                opinion,
                self.rubric,
                self.settings.mode,
                decides=tier in self.settings.deciding_tiers,
                sees_all=tier not in state.cut_tiers,
                speakers=_find_speakers(tier, state),
            )
            # The calibration's rules need a margin. Remove it if the calibration doesn't cover this opinion.
            if finality is not None and not finality.knows(tier, _list_sources(tier, state)):
                evidence = evidence.without_margin()
            evidence_by_tier[tier] = evidence
        return evidence_by_tier

    def build_rules(self, state: JudgingState[Document]) -> EscalationRules:
        """Return the rules for documents, with the author's families."""
        authors: dict[Outcome, Sequence[str]] = {"accept": state.subject.author_families}
        return replace(self.settings.build_escalation_rules("document"), authors=authors)

    def record(self, state: JudgingState[Document], end: End) -> Verdict:
        """Build the verdict. If redaction is on, secrets are removed from the models' replies."""
        document = state.subject
        families = find_families(self.read_evidence(state), self.build_rules(state), end)
        files = [JudgedFile(path=file.path, sha256=file.sha256) for file in document.files]
        opinion: Opinion | None = state.opinions[end.tier] if end.tier else None
        average = None
        if opinion and opinion.scores:
            average = round(self.rubric.mean(opinion.scores), 2)
        models = [row.model for row in state.rounds if row.tier == end.tier and row.opinion]

        verdict = Verdict(
            task_id=document.task_id,
            subjects=files,
            verdict=end.verdict,
            scores=opinion.scores if opinion else None,
            average=average,
            reasoning=opinion.reasoning if opinion else "",
            findings=list(opinion.findings) if opinion else [],
            judge_tier=end.tier,
            model=", ".join(models) or None,
            truncated=self._is_truncated(state, end),
            consensus=end.consensus,
            because=end.because,
            degraded=join_reservations(self._list_reservations(end, state)),
            author=document.author,
            independent=independence.is_independent(document.author_families, families),
            commit=document.commit,
            **state.build_verdict_fields(self.settings),
        )
        if state.rounds and self.settings.redact:
            verdict = outgoing.redact_replies(verdict)
        # Add the requested model names, which are only for the ledger. Do it last, because redaction rebuilds
        # the verdict, and drops them.
        verdict = verdict.model_copy(update={"configured": _map_names_to_asked(verdict, state)})
        return verdict.model_copy(update={"rounds": _name_deciders(verdict.rounds, state)})

    def _is_truncated(self, state: JudgingState[Document], end: End) -> bool:
        """Whether the text was truncated for the tier that decided, or for any tier if none decided."""
        # A tier has also decided if its result was overruled because of the author's family.
        tier = end.tier
        if end.because == OWN_FAMILY_ROW and end.overruled_end is not None:
            tier = end.overruled_end.tier
        if tier is None:
            return bool(state.cut_tiers)
        return tier in state.cut_tiers

    def _list_reservations(self, end: End, state: JudgingState[Document]) -> list[Reservation]:
        """List the reasons to trust the verdict less, in the order of its `degraded` field."""
        evidence = self.read_evidence(state)
        reservations = []

        # If only the author's family supports an acceptance, it was overruled. Explain that, and go on with
        # the models' own result.
        models_end = end
        if end.because == OWN_FAMILY_ROW and end.overruled_end is not None:
            models_end = end.overruled_end
            problem = explain_independence_problem(evidence, self.build_rules(state), models_end)
            if problem:
                reservations.append(Reservation(ReservationKind.OWN_FAMILY, problem))

        # List the failures, or the reason why no model was called.
        if state.rounds:
            reservations += list_failures(state.rounds)
        else:
            reason = f"not judged: {state.refusal_reason or self.settings.no_model_reason}"
            reservations.append(Reservation(ReservationKind.NOT_JUDGED, reason))

        # List problems with the calibration, and acceptances without one.
        reservations += self._list_calibration_reservations(state)
        if models_end.verdict == "accept" and self._is_uncalibrated(models_end, evidence):
            answered = {tier for tier, tier_evidence in evidence.items() if tier_evidence.outcome}
            reason = decisions.explain_uncalibrated(_list_models(state, answered))
            reservations.append(Reservation(ReservationKind.UNCALIBRATED, reason))

        # The reason for an undetermined verdict comes first.
        if models_end.verdict == "undetermined":
            obstacle = self._find_obstacle(state, reservations)
            if obstacle:
                reservations.insert(0, obstacle)
        return reservations

    def _find_obstacle(
        self, state: JudgingState[Document], others: Sequence[Reservation]
    ) -> Reservation | None:
        """Explain why the verdict is undetermined although a tier accepted the text.

        Returns None if no tier accepted the text, or if `others` contains a failure that already explains it.
        """
        evidence = self.read_evidence(state)
        rules = self.build_rules(state)
        accepting_tiers = {tier for tier in evidence if evidence[tier].outcome == "accept"}
        if not accepting_tiers:
            return None

        is_cut_for_all = not any(evidence[tier].sees_whole_text for tier in accepting_tiers)
        if is_cut_for_all:
            # The model that failed might have seen the whole text, so its failure is the reason.
            if has_kind(others, ReservationKind.FAILURE):
                return None
            reason = "no model saw the whole text, so it cannot be accepted"
            return Reservation(ReservationKind.CUT, reason)

        if rules.needs_proof and accepting_tiers <= set(rules.deciding_tiers):
            reason = decisions.explain_unproven(_list_models(state, accepting_tiers))
            return Reservation(ReservationKind.UNPROVEN, reason)
        return None

    def _list_calibration_reservations(self, state: JudgingState[Document]) -> list[Reservation]:
        """List the reasons why a calibration wasn't used at all, or not for all opinions."""
        reasons = [self.settings.calibration_warning]
        if self.settings.finality:
            reasons.append(self._explain_uncovered_tiers(self.settings.finality, state))
        return [Reservation(ReservationKind.CALIBRATION, reason) for reason in reasons if reason]

    def _is_uncalibrated(self, end: End, evidence: Evidence) -> bool:
        """Whether only decision models support an acceptance, without a calibration or a promise."""
        if self.settings.is_promised:
            return False
        answered = {tier for tier, tier_evidence in evidence.items() if tier_evidence.outcome}
        if not answered or not answered <= set(self.settings.deciding_tiers):
            return False
        finality = self.settings.finality
        return finality is None or end.tier is None or not finality.has_rule(end.tier, "accept")

    def _explain_uncovered_tiers(
        self, finality: FinalityRules, state: JudgingState[Document]
    ) -> str | None:
        """Explain which tiers' opinions the calibration (`finality`) doesn't cover.

        A calibration only covers scores that were read in the same way as when it was made, such as from
        token probabilities. Returns None if it covers all opinions.
        """
        configured_tiers = list(self.models_by_tier)
        uncovered_tiers = []
        source_words = set()
        for tier in state.opinions:
            sources = _list_sources(tier, state)
            # No tier comes after the last one, so its opinions are final without a calibration.
            is_last = bool(configured_tiers) and tier == configured_tiers[-1]
            if is_last or finality.knows(tier, sources):
                continue
            uncovered_tiers.append(tier)
            source_words |= {SOURCE_WORDS[source] for _, source in sources}
        if not uncovered_tiers:
            return None

        tiers = ", ".join(uncovered_tiers)
        how_read = f"its scores were {' and '.join(sorted(source_words))}"
        return f"calibration {finality.id} does not cover {tiers}: {how_read}"


def _shuffle_opinions(state: JudgingState[Document]) -> list[Opinion]:
    """Return all opinions without secrets, shuffled so that their order doesn't reveal the models."""
    tiers = list(state.opinions)

    def sorting_key(voice: tuple[TierName, Endpoint, Opinion]) -> tuple[int, str]:
        tier, endpoint, _ = voice
        return (tiers.index(tier), endpoint.model)

    # Sort before shuffling, so that the result doesn't depend on the order of the configured models.
    opinions = []
    for _, _, opinion in sorted(state.voices, key=sorting_key):
        opinions.append(replace(opinion, reasoning=redact.words(opinion.reasoning)))
    random.Random(state.subject.sha256).shuffle(opinions)  # noqa: S311 - an order, not a secret
    return opinions


def _list_models(state: JudgingState[Document], tiers: Iterable[TierName]) -> list[str]:
    """List the models that answered in the given tiers, by their requested names."""
    return [endpoint.model for tier, endpoint, _ in state.voices if tier in tiers]


def _find_speakers(tier: TierName, state: JudgingState[Document]) -> Speakers:
    """Return a tier's models with an opinion, and their families."""
    endpoints = [endpoint for voice_tier, endpoint, _ in state.voices if voice_tier == tier]
    models = frozenset(endpoint.model for endpoint in endpoints)
    return Speakers(models, frozenset(endpoint.family for endpoint in endpoints))


def _list_sources(tier: TierName, state: JudgingState[Document]) -> list[tuple[str, ScoreSource]]:
    """List the models of a tier that have an opinion, each with the way its scores were read."""
    sources = []
    for opinion_tier, endpoint, opinion in state.voices:  # a voice is one model's opinion
        if opinion_tier == tier:
            sources.append((endpoint.model, score_source(endpoint, opinion)))
    return sources


def _list_asked_endpoints(state: JudgingState[Document]) -> list[Endpoint]:
    """List the endpoints that were called in each round, in order."""
    endpoints = []
    for turns in state.turns.values():
        for turn in turns:
            endpoints.append(turn.endpoint)
    return endpoints


def _name_deciders(rounds: Sequence[Round], state: JudgingState[Document]) -> list[Round]:
    """Add the requested model name to opinions of decision models, if the reply has a different name."""
    named_rounds = list(rounds)
    # There can be more rounds than endpoints: a review ends by scoring once more, outside the tiers' turns.
    for index, (row, endpoint) in enumerate(
        zip(rounds, _list_asked_endpoints(state), strict=False)
    ):
        has_other_name = row.model != endpoint.model
        if row.opinion and has_other_name and get_model_kind(endpoint) is DECIDES:
            opinion = row.opinion.model_copy(update={"asked": endpoint.model})
            named_rounds[index] = row.model_copy(update={"opinion": opinion})
    return named_rounds


def _map_names_to_asked(verdict: Verdict, state: JudgingState[Document]) -> dict[str, str]:
    """Map the name of each model in a reply to the requested name, if they differ."""
    asked_names: dict[str, str] = {}
    # There can be more rounds than endpoints: a review ends by scoring once more, outside the tiers' turns.
    for row, endpoint in zip(verdict.rounds, _list_asked_endpoints(state), strict=False):
        if row.model != endpoint.model:
            asked_names[row.model] = endpoint.model
    return asked_names
