"""The task `score`: what a document lacks, which tiers are asked about it, and the verdict on it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from judgekit.judging import decisions, outgoing, panel
from judgekit.judging.documents import Document, is_cut, named
from judgekit.judging.escalation import ESCALATE, Final, FinalityRules, margin
from judgekit.judging.kinds import DECIDES, kind_of
from judgekit.judging.orchestrator import Judge
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.score_source import SOURCE_WORDS, score_source
from judgekit.judging.verdict import JudgedFile, Verdict, failures
from judgekit.redaction import redact
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.config import Outcome, TierName
    from judgekit.judging.jury import Opinion
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.state import JudgingState
    from judgekit.judging.verdict import Consensus
    from judgekit.providers.base import Endpoint


@dataclass(frozen=True, slots=True)
class DocumentJudge(Judge[ScoreRubric, Document, Verdict]):
    """Judges documents."""

    def attributed(self, subject: Document) -> Document:
        if not self.settings.author_family and subject.author.family is None:
            return subject
        families = dict.fromkeys([*subject.author_families, *named(self.settings.author_family)])
        return replace(subject, author=replace(subject.author, family=", ".join(families) or None))

    def redacted(self, subject: Document) -> tuple[Document, int]:
        if self.settings.redact:
            return outgoing.redact_document(subject)
        return (subject, 0)

    def note_refusal_and_cuts(self, state: JudgingState[Document]) -> None:
        document = state.subject
        state.refused = state.refused or document.lacks(self.rubric) or ""
        state.cut = {tier for tier in self.models_by_tier if self._is_cut_for(tier, document)}

    def _is_cut_for(self, tier: TierName, document: Document) -> bool:
        """Whether some model of a tier does not see the whole document."""
        limits = getattr(self.rubric.tiers, tier)
        return any(
            is_cut(document.visible_files(limits, endpoint))
            for endpoint in self.models_by_tier[tier]
        )

    def question(self, tier: TierName, state: JudgingState[Document]) -> ScoreQuestion:
        """Return what a tier is asked; the tiebreaker is shown the opinions of the others."""
        question = ScoreQuestion(self.settings, state.subject, tier)
        if tier != "tiebreaker":
            return question
        tier_opinions = [opinion for opinion in state.opinions.values() if opinion]
        is_jury_divided = any(opinion.divided is not None for opinion in tier_opinions)
        has_disagreement = len(tier_opinions) > 1 or is_jury_divided
        # Without a disagreement the tiebreaker stands in for the deep tier, with its instructions.
        instructions: TierName = "tiebreaker" if has_disagreement else "deep"
        return replace(
            question, instructions_tier=instructions, earlier_opinions=_shuffled_opinions(state)
        )

    def step(self, state: JudgingState[Document]) -> TierName | Final:
        """Return the tier to ask now, or the end; decision models end nothing that needs reasons."""
        finality = self.settings.finality
        outcomes: dict[TierName, Outcome | None] = {}
        margins: dict[TierName, float] = {}
        divided: dict[TierName, bool] = {}
        leanings: dict[TierName, float] = {}
        for tier, opinion in state.opinions.items():
            if not opinion:
                outcomes[tier] = None
                continue
            outcomes[tier] = opinion.outcome
            if finality is None or finality.knows(tier, _sources(tier, state)):
                margins[tier] = margin(self.rubric, opinion.scores, self.settings.mode)
                leanings[tier] = margin(
                    self.rubric, opinion.scores, self.settings.mode, signed=True
                )
            if opinion.divided is not None:
                divided[tier] = opinion.divided
        rules = self.settings.escalation_rules(state.cut, self.settings.margin)
        step = rules.next(outcomes, margins, divided, leanings)
        if not isinstance(step, Final) or not self._owes_reasons(step, state):
            return step
        if step.verdict == "reject":
            # It stands without reasons, too: who is asked for them can't turn it into an acceptance.
            return self._next_for_reasons(step, state)
        # Beside a tier that writes, those that only decide end nothing.
        stricter_rules = replace(rules, partial=self.settings.deciding_tiers)
        stricter_step = stricter_rules.next(outcomes, margins, divided, leanings)
        if isinstance(stricter_step, Final) and self._owes_reasons(stricter_step, state):
            return self._next_for_reasons(stricter_step, state)
        return stricter_step

    def _owes_reasons(self, step: TierName | Final, state: JudgingState[Document]) -> bool:
        """Whether a judging ends with what needs reasons, by models that give none; findings are reasons."""
        if not isinstance(step, Final) or step.tier not in self.settings.deciding_tiers:
            return False
        if state.opinions[step.tier].findings:
            return False
        is_explained = self.settings.request.explain
        return step.verdict == "improve" or (step.verdict == "reject" and is_explained)

    def _next_for_reasons(self, end: Final, state: JudgingState[Document]) -> TierName | Final:
        """Return the first tier that can give reasons for an `end`; once it has answered, the new end.

        That has its reasons where it agrees, and is to escalate where it does not. Where no tier can, or all
        failed, it is `end` itself.
        """
        for tier in self.models_by_tier:
            if tier in self.settings.deciding_tiers:
                continue
            if tier not in state.opinions:
                return tier
            opinion: Opinion | None = state.opinions[tier]
            if opinion is None:
                continue
            if opinion.outcome == end.verdict:
                return Final(end.verdict, "unanimous", tier)
            return ESCALATE
        return end

    def record(self, state: JudgingState[Document], final: Final) -> Verdict:
        """Return the verdict; an acceptance by the author's own family is none, where that is required."""
        document = state.subject
        families = _families_behind(final, state)
        files = [JudgedFile(path=file.path, sha256=file.sha256) for file in document.files]
        verdict = Verdict(
            task_id=document.task_id,
            subjects=files,
            verdict=final.verdict,
            **self._fields_of_deciding_tier(state, final.tier),
            consensus=_consensus(final, state),
            degraded=self._degraded_reason(final, state),
            author=document.author,
            independent=panel.is_independent(document.author_families, families),
            commit=document.commit,
            **state.verdict_fields(self.settings),
        )
        if state.rounds and self.settings.redact:
            verdict = outgoing.redact_replies(verdict)
        # After redaction: it makes the record anew, without names that only the ledger has.
        verdict = verdict.model_copy(update={"configured": _configured_names(verdict, state)})
        _note_names_of_deciders(verdict, state)
        if self.settings.independence == "require" and final.verdict == "accept":
            return self.refuse_own_family(verdict, document, families)
        return verdict

    def _fields_of_deciding_tier(
        self, state: JudgingState[Document], tier: TierName | None
    ) -> dict[str, Any]:
        """Return what a verdict says of the tier that settled it, if one did."""
        if tier is None:
            return {"truncated": bool(state.cut)}
        models = [row.model for row in state.rounds if row.tier == tier and row.opinion]
        fields: dict[str, Any] = {
            "judge_tier": tier,
            "model": ", ".join(models) or None,
            "truncated": tier in state.cut,
        }
        opinion: Opinion | None = state.opinions.get(tier)
        if opinion is None:
            return fields
        fields |= {
            "scores": opinion.scores,
            "reasoning": opinion.reasoning,
            "findings": list(opinion.findings),
        }
        if opinion.scores:
            fields["average"] = round(self.rubric.mean(opinion.scores), 2)
        return fields

    def _degraded_reason(self, final: Final, state: JudgingState[Document]) -> str | None:
        """Say in one line what the verdict lacks, if there is something."""
        if state.rounds:
            failure = failures(state.rounds)
        else:
            failure = f"not judged: {state.refused or self.settings.no_model_reason}"
        uncovered = None
        if self.settings.finality:
            uncovered = self._uncovered_reason(self.settings.finality, state)
        reasons = [failure, self.settings.calibration_warning, uncovered]
        if final.verdict == "accept" and self._is_uncalibrated(final, state):
            deciding = [tier for tier, opinion in state.opinions.items() if opinion]
            reasons.append(decisions.uncalibrated_reason(_names(state, deciding)))
        accepting = set()
        for tier, opinion in state.opinions.items():
            if opinion and opinion.outcome == "accept":
                accepting.add(tier)
        if final.verdict == "undetermined" and accepting:
            if accepting <= set(state.cut):
                if failure is None:
                    reasons.insert(0, "no model saw the whole text, so it cannot be accepted")
            elif self._is_unproven(accepting):
                reasons.insert(0, decisions.unproven_reason(_names(state, accepting)))
        return "; ".join(filter(None, reasons)) or None

    def _is_uncalibrated(self, final: Final, state: JudgingState[Document]) -> bool:
        """Whether decision models alone came to an end, and no calibration says when to believe them."""
        answered = {tier for tier, opinion in state.opinions.items() if opinion}
        if not answered or not answered <= set(self.settings.deciding_tiers):
            return False
        finality = self.settings.finality
        return finality is None or final.tier is None or not finality.has_rule(final.tier, "accept")

    def _is_unproven(self, accepting: set[TierName]) -> bool:
        """Whether only decision models accept, where an acceptance needs more than that."""
        is_strict = self.settings.mode == "strict"
        return is_strict and accepting <= set(self.settings.deciding_tiers)

    def refuse_own_family(
        self, verdict: Verdict, document: Document, families: Iterable[str]
    ) -> Verdict:
        """Return an acceptance as it is; undetermined, where the author's own family may not accept alone.

        `families` are those behind it.
        """
        reason = panel.independence_problem(
            self.settings.independence, document.author_families, set(families)
        )
        if not reason:
            return verdict
        changes: dict[str, Any] = {
            "verdict": "undetermined",
            "consensus": "none",
            "scores": None,
            "average": None,
            "judge_tier": None,
            "model": None,
            "reasoning": "",
            "findings": [],
            "degraded": "; ".join(filter(None, (reason, verdict.degraded))),
        }
        return verdict.model_copy(update=changes)

    def _uncovered_reason(
        self, finality: FinalityRules, state: JudgingState[Document]
    ) -> str | None:
        """Say in one line which opinions were read otherwise than those of the calibration."""
        last_tiers = list(self.models_by_tier)[-1:]  # whose opinions need no gate
        unknown_tiers = []
        ways = set()
        for tier in state.opinions:
            sources = _sources(tier, state)
            if tier in last_tiers or finality.knows(tier, sources):
                continue
            unknown_tiers.append(tier)
            ways |= {SOURCE_WORDS[source] for _, source in sources}
        if not unknown_tiers:
            return None
        tiers = ", ".join(unknown_tiers)
        scores = f"its scores were {' and '.join(sorted(ways))}"
        return f"calibration {finality.id} does not cover {tiers}: {scores}"


def _shuffled_opinions(state: JudgingState[Document]) -> list[Opinion]:
    """Return all models' opinions without secrets, in an order that depends on the subject alone.

    So the tiebreaker cannot learn whose opinion stands first.
    """
    tiers = list(state.opinions)
    # In which order a jury's models are named plays no part.
    voices = sorted(state.voices, key=lambda voice: (tiers.index(voice[0]), voice[1].model))
    opinions = []
    for _, _, opinion in voices:
        opinions.append(replace(opinion, reasoning=redact.words(opinion.reasoning)))
    random.Random(state.subject.sha256).shuffle(opinions)  # noqa: S311 - an order, not a secret
    return opinions


def _names(state: JudgingState[Document], tiers: Iterable[TierName]) -> list[str]:
    """Return the models that answered in some tiers, by the names under which they were asked."""
    return [endpoint.model for tier, endpoint, _ in state.voices if tier in tiers]


def _families_behind(final: Final, state: JudgingState[Document]) -> set[str]:
    """Return the families whose tier came to the verdict; all that answered, where no tier settled it."""
    families = set()
    for tier, endpoint, _ in state.voices:
        if final.tier in (None, tier) or state.opinions[tier].outcome == final.verdict:
            families.add(endpoint.family)
    return families


def _consensus(final: Final, state: JudgingState[Document]) -> Consensus:
    """Return the consensus of an end: `single` where one model alone answered, however often."""
    if not final.tier:
        return final.consensus
    models = {endpoint.model for _, endpoint, _ in state.voices}
    if len(models) == 1:
        return "single"
    tiers = [tier for tier, opinion in state.opinions.items() if opinion]
    if final.consensus == "single" and tiers == [final.tier]:
        return "unanimous"  # a jury by itself
    return final.consensus


def _sources(tier: TierName, state: JudgingState[Document]) -> list[tuple[str, ScoreSource]]:
    """Return the models of a tier that answered, each with how its scores were read."""
    sources = []
    for voice_tier, endpoint, opinion in state.voices:
        if voice_tier == tier:
            sources.append((endpoint.model, score_source(endpoint, opinion)))
    return sources


def _asked_endpoints(state: JudgingState[Document]) -> list[Endpoint]:
    """Return the model of each round."""
    endpoints = []
    for turns in state.turns.values():
        for turn in turns:
            endpoints.append(turn.endpoint)
    return endpoints


def _note_names_of_deciders(verdict: Verdict, state: JudgingState[Document]) -> None:
    """Note in the opinions of decision models under which name they were asked, where another answered."""
    for row, endpoint in zip(verdict.rounds, _asked_endpoints(state), strict=False):
        if kind_of(endpoint) is DECIDES and row.opinion and row.model != endpoint.model:
            row.opinion["asked"] = endpoint.model


def _configured_names(verdict: Verdict, state: JudgingState[Document]) -> dict[str, str]:
    """Return the names under which models were asked, by the other ones that their replies gave."""
    names: dict[str, str] = {}
    for row, endpoint in zip(verdict.rounds, _asked_endpoints(state), strict=False):
        if row.model != endpoint.model:
            names[row.model] = endpoint.model
    return names
