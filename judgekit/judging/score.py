"""The task `score`: each tier's models rate a document, and the rubric's thresholds decide."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.judging import jury, outgoing, panel, pointwise, prompt
from judgekit.judging.documents import Document, is_cut, named
from judgekit.judging.escalation import Final, FinalityRules, margin
from judgekit.judging.jury import Opinion
from judgekit.judging.orchestrator import Judge, JudgingState, ModelTurn, TierQuestion
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.round import Answer, Calls, Session, joined, run_round
from judgekit.judging.score_source import SOURCE_WORDS, score_source
from judgekit.judging.verdict import Finding, JudgedFile, Verdict, failures
from judgekit.providers.base import CallKey, Endpoint, Message, Reply, Request
from judgekit.redaction import redact
from judgekit.replies import logprobs
from judgekit.replies.forms import ScoreReply, score_reply_model
from judgekit.retrieval.terms import fold, stem, words
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.fence import Fence
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.verdict import Consensus

    ElsewhereJudge: TypeAlias = "Callable[[DocumentJudge, Document], Awaitable[Verdict]]"

REPLY_TOKENS = 2048
MAX_FINDINGS = 50  # of one reply


class RatedReply(NamedTuple):
    """One reply; `word` is the verdict that a model may add, `expected` is as in an opinion."""

    scores: Mapping[str, float]
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    word: str | None = None
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScoreQuestion(TierQuestion[ScoreRubric, Document, RatedReply, Opinion]):
    """What a tier is asked about a document; scores that are `compared` are taken as first given.

    After a review it is shown the findings that were upheld, and those that nobody checked.
    """

    compared: bool = False
    findings: tuple[Sequence[str], Sequence[str]] | None = None

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        if endpoint is not None and endpoint.pointwise:
            return self._points(endpoint, fence).prompts()
        return [self._messages(rubric, endpoint) for rubric in self.parts.values()]

    async def ask(
        self,
        endpoint: Endpoint,
        session: Session,
        samples: Sequence[int] | None = None,
        at_once: int = 1,
    ) -> ModelTurn[Opinion]:
        if not endpoint.logprobs or self.settings.samples == 1:
            return await TierQuestion.ask(self, endpoint, session, samples, at_once)
        started = time.monotonic()
        once = await TierQuestion.ask(self, endpoint, session, [0])
        opinion = once.answer.value
        # Token probabilities leave nothing to repeat.
        if opinion and len(opinion.expected) == len(self.rubric.dimensions):
            return once
        turn = await TierQuestion.ask(self, endpoint, session, samples)
        answers = [*once.calls, *turn.calls]
        return ModelTurn(endpoint, answers, joined(answers, turn.answer.value, started))

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[RatedReply]:
        if endpoint.pointwise:
            return [partial(self._ask_pointwise, endpoint, session)]
        scale = self.rubric.scale
        key = CallKey(self.subject.sha256, self.rubric.ref, self.tier)
        binary = frozenset(name for name, each in self.rubric.dimensions.items() if each.scale)
        calls: Calls[RatedReply] = []
        for part, rubric in self.parts.items():
            request = Request(
                messages=(),
                call_key=key.within(part),
                timeout=self.limits.timeout,
                max_tokens=REPLY_TOKENS,
                top_logprobs=logprobs.ALTERNATIVES if endpoint.logprobs else 0,
                sample=sample,
            )
            call = partial(
                run_round,
                session,
                endpoint,
                request,
                messages=partial(self._messages, rubric, endpoint),
                size=self.subject.size,
                form=score_reply_model(tuple(rubric.dimensions), scale.min, scale.max, binary),
                value=partial(self._read, part),
            )
            calls.append(call)
        return calls

    def opinion(self, samples: Sequence[Sequence[RatedReply | None]]) -> Opinion | None:
        opinions = []
        for sample in samples:
            replies = [reply for reply in sample if reply]
            if len(replies) == len(sample):
                opinions.append(self._sample_opinion(replies))
        if not jury.has_quorum(len(opinions), len(samples)):
            return None
        if len(samples) == 1:
            return opinions[0]
        mean = self._opinion_of_scores(jury.mean_scores(opinions))
        nearest = jury.nearest(opinions, mean)
        return replace(
            nearest,
            outcome=mean.outcome,
            scores=mean.scores,
            said=None,
            expected=(),
            samples=len(opinions),
        )

    def _sample_opinion(self, replies: Sequence[RatedReply]) -> Opinion:
        """Return the opinion of one sample: of a reply about all dimensions, or of one reply for each."""
        scores: dict[str, float] = {}
        findings: list[Finding] = []
        expected: list[str] = []
        for reply in replies:
            scores |= reply.scores
            findings += reply.findings
            expected += reply.expected
        if len(replies) == 1:
            reasoning = replies[0].reasoning
            word = replies[0].word
        else:
            reasoning = _reasoning_by_dimension(replies)
            word = None
        return replace(
            self._opinion_of_scores(scores),
            reasoning=reasoning,
            findings=place_findings(findings, self.rubric),
            said=word,
            dimensions=tuple(mentions(reasoning, self.rubric)),
            expected=tuple(expected),
        )

    def combine(self, voices: Sequence[tuple[Endpoint, Opinion | None]]) -> Opinion | None:
        known = [(endpoint, opinion) for endpoint, opinion in voices if opinion]
        if not jury.has_quorum(len(known), len(voices)):
            return None
        return jury.opinion(known, self.settings.jury, partial(self.rubric.decide, mode=self.mode))

    def record(self, opinion: Opinion) -> dict[str, Any]:
        record: dict[str, Any] = {
            "outcome": opinion.outcome,
            "scores": opinion.scores,
            "reasoning": opinion.reasoning,
            "dimensions": list(opinion.dimensions),
            "findings": [finding.model_dump() for finding in opinion.findings],
            "said": opinion.said,
        }
        if opinion.samples > 1:
            record["samples"] = opinion.samples
        if opinion.expected:
            record["expected"] = list(opinion.expected)
        return record

    def _read(self, part: str, form: ScoreReply, reply: Reply) -> RatedReply:
        """Return what a reply says about `part`, or about all dimensions where that is empty."""
        scale = self.rubric.scale
        content = form.model_dump()
        scores: dict[str, float] = {}
        for name, answer in content["scores"].items():
            if isinstance(answer, str):
                scores[name] = scale.answers[answer]
            else:
                scores[name] = answer
        expected: dict[str, float] = {}
        if reply.tokens:
            points = range(scale.min, scale.max + 1)
            expected = logprobs.expectations(reply, form, points)
        return RatedReply(
            scores=scores | expected,
            reasoning=visible(form.reasoning),
            findings=_read_findings(part, content["findings"]),
            word=visible(form.verdict) or None,
            expected=tuple(expected),
        )

    def _messages(self, rubric: ScoreRubric, endpoint: Endpoint | None) -> tuple[Message, ...]:
        earlier = []
        for opinion in self.earlier_opinions:
            scores = {name: opinion.scores[name] for name in rubric.dimensions}
            earlier.append(replace(opinion, scores=scores))
        return prompt.score_messages(
            rubric,
            self.instructions_tier or self.tier,
            self.subject.seen_by(self.limits, endpoint),
            self.subject.task,
            earlier,
            self.findings,
        )

    async def _ask_pointwise(self, endpoint: Endpoint, session: Session) -> Answer[RatedReply]:
        """Ask about each dimension; where that would accept the text, about an idle subject too."""
        started = time.monotonic()
        timeout = self.limits.timeout
        scale = self.rubric.scale
        points = self._points(endpoint, session.fence)
        answer = await ask_pointwise(session, endpoint, points, timeout)
        scores: dict[str, float] = {}
        for name, likely in (answer.value or {}).items():
            scores[name] = pointwise.expectation(likely, answers=scale.answers)
        if not scores:
            return joined([answer], None, started)
        if self.compared or self._opinion_of_scores(scores).outcome != "accept":
            return joined([answer], RatedReply(scores), started)
        # Numbers are compared with a number, yes and no with yes and no.
        forms: dict[str, str] = {}
        questions: dict[str, str] = {}
        for name, dimension in self.rubric.dimensions.items():
            form = str(dimension.scale or "idle")
            forms[name] = form
            questions[form] = prompt.idle_question(self.rubric, dimension.scale)
        idle_points = points._replace(questions=questions)
        idle = await ask_pointwise(session, endpoint, idle_points, timeout)
        if not idle.value:
            return joined([answer, idle], None, started)
        bar = getattr(self.rubric.modes, self.mode).accept.each
        span = scale.max - scale.min
        for form, likely in idle.value.items():
            alike = {name: score for name, score in scores.items() if forms[name] == form}
            idle_score = pointwise.expectation(likely, answers=scale.answers)
            scores |= pointwise.earned_scores(alike, idle_score, bar, span)
        return joined([answer, idle], RatedReply(scores), started)

    def _points(self, endpoint: Endpoint, fence: Fence) -> Points:
        scale = self.rubric.scale
        dimensions = self.rubric.dimensions
        kinds = {dimension.scale for dimension in dimensions.values()}
        tokens: list[str] = []
        if None in kinds:
            tokens += map(str, range(scale.min, scale.max + 1))
        if "binary" in kinds:
            tokens += scale.answers
        questions = {}
        for name, dimension in dimensions.items():
            questions[name] = prompt.rating_question(self.rubric, dimension)
        shown = self.subject.seen_by(self.limits, endpoint)
        return Points(
            prompt.rating_system(self.rubric, fence),
            prompt.document_context(fence, shown, self.subject.task, self.rubric.given),
            questions,
            tokens,
            CallKey(self.subject.sha256, self.rubric.ref, self.tier),
        )

    def _opinion_of_scores(self, scores: Mapping[str, float]) -> Opinion:
        rounded = {name: round(float(score), 2) for name, score in scores.items()}
        return Opinion(self.rubric.decide(scores, self.mode), rounded)


def _reasoning_by_dimension(replies: Sequence[RatedReply]) -> str:
    """Return the reasoning of several replies, a line for each dimension with the reasoning about it."""
    lines = []
    for reply in replies:
        for name in reply.scores:
            if reply.reasoning:
                lines.append(f"{name}: {reply.reasoning}")
    return "\n".join(lines)


def _read_findings(part: str, replied: Sequence[Mapping[str, str]]) -> tuple[Finding, ...]:
    """Return the findings of a reply; a dimension that was asked about alone is what they are about."""
    findings = []
    for finding in replied:
        # A model's words are shown on terminals and written as JSON: no escapes, no lone surrogates.
        words = {name: visible(text) for name, text in finding.items()}
        words["issue"] = words["issue"] or words["suggestion"]
        words["dimension"] = part or words["dimension"]
        if words["issue"]:
            findings.append(Finding(**words))
    return tuple(findings[:MAX_FINDINGS])


@dataclass(frozen=True, slots=True)
class DocumentJudge(Judge[ScoreRubric, Document, Verdict]):
    """Judges documents; `elsewhere` is another program's judging, `deeper` judging at another depth."""

    elsewhere: ElsewhereJudge | None = None
    deeper: Callable[[DocumentJudge, JudgingState[Document]], Awaitable[Verdict]] | None = None

    def attributed(self, subject: Document) -> Document:
        if not self.settings.author_family and subject.author.family is None:
            return subject
        families = dict.fromkeys([*subject.wrote, *named(self.settings.author_family)])
        return replace(subject, author=replace(subject.author, family=", ".join(families) or None))

    def redacted(self, subject: Document) -> tuple[Document, int]:
        if self.settings.redact:
            return outgoing.redact_document(subject)
        return (subject, 0)

    async def run(self, state: JudgingState[Document]) -> Verdict:
        document = state.subject
        if self.elsewhere is not None and not state.refused:
            return await self._judge_elsewhere(self.elsewhere, state)
        state.refused = state.refused or document.lacks(self.rubric) or ""
        if self.deeper and self.models_by_tier and not state.refused:
            return await self.deeper(replace(self, deeper=None), state)
        state.cut = {tier for tier in self.models_by_tier if self._cuts(tier, document)}
        return await Judge.run(self, state)

    async def _judge_elsewhere(
        self, elsewhere: ElsewhereJudge, state: JudgingState[Document]
    ) -> Verdict:
        """Return another program's verdict, with the secrets that were left out here."""
        document = state.subject
        verdict = await elsewhere(self, document)
        verdict = verdict.model_copy(update={"redacted": state.secrets + verdict.redacted})
        if verdict.verdict != "accept" or verdict.independent or verdict.human_override:
            return verdict
        return self._refuse_own_family(verdict, document, ())

    def _cuts(self, tier: TierName, document: Document) -> bool:
        """Whether some model of a tier does not see the whole document."""
        limits = getattr(self.rubric.tiers, tier)
        return any(
            is_cut(document.seen_by(limits, endpoint)) for endpoint in self.models_by_tier[tier]
        )

    def question(self, tier: TierName, state: JudgingState[Document]) -> ScoreQuestion:
        question = ScoreQuestion(self.settings, state.subject, tier)
        if tier != "tiebreaker":
            return question
        # In which order a jury's models are named plays no part.
        tiers = list(state.opinions)
        voices = sorted(state.voices, key=lambda voice: (tiers.index(voice[0]), voice[1].model))
        earlier = []
        for _, _, opinion in voices:
            earlier.append(replace(opinion, reasoning=redact.words(opinion.reasoning)))
        # Shuffled by the subject: the tiebreaker cannot learn whose opinion stands first.
        random.Random(state.subject.sha256).shuffle(earlier)  # noqa: S311 - an order, not a secret
        opinions = [opinion for opinion in state.opinions.values() if opinion]
        disagree = len(opinions) > 1 or any(opinion.divided is not None for opinion in opinions)
        # Without a disagreement the tiebreaker stands in for the deep tier, with its instructions.
        instructions: TierName = "tiebreaker" if disagree else "deep"
        return replace(question, instructions_tier=instructions, earlier_opinions=earlier)

    def step(self, state: JudgingState[Document]) -> TierName | Final:
        finality = self.settings.finality
        outcomes: dict[TierName, Outcome | None] = {}
        margins: dict[TierName, float] = {}
        divided: dict[TierName, bool] = {}
        for tier, opinion in state.opinions.items():
            if not opinion:
                outcomes[tier] = None
                continue
            outcomes[tier] = opinion.outcome
            if finality is None or finality.knows(tier, _sources(tier, state)):
                margins[tier] = margin(self.rubric, opinion.scores, self.settings.mode)
            if opinion.divided is not None:
                divided[tier] = opinion.divided
        rules = self.settings.escalation_rules(state.cut, self.settings.margin)
        return rules.next(outcomes, margins, divided)

    def record(self, state: JudgingState[Document], final: Final) -> Verdict:
        document = state.subject
        rounds = state.rounds
        deciding: Opinion | None = None
        truncated = bool(state.cut)
        if final.tier:
            deciding = state.opinions.get(final.tier)
            truncated = final.tier in state.cut
        average = None
        if deciding and deciding.scores:
            average = round(self.rubric.mean(deciding.scores), 2)
        asked = set()
        for tier in state.opinions:
            for endpoint in self.models_by_tier[tier]:
                asked.add(endpoint.profile.provider)
        models = []
        for row in rounds:
            if row.tier == final.tier and row.opinion:
                models.append(row.model)
        families = _families_behind(final, state)
        verdict = Verdict(
            id=uuid.uuid4().hex,
            task_id=document.task_id,
            subjects=[JudgedFile(path=file.path, sha256=file.sha256) for file in document.files],
            verdict=final.verdict,
            scores=deciding.scores if deciding else None,
            average=average,
            reasoning=deciding.reasoning if deciding else "",
            findings=list(deciding.findings) if deciding else [],
            consensus=_consensus(final, state),
            judge_tier=final.tier,
            model=", ".join(models) or None,
            degraded=self._degraded(final, state),
            truncated=truncated,
            redacted=state.secrets if rounds else 0,
            substitutes=sorted(asked & self.settings.replacement_providers),
            author=document.author,
            independent=panel.is_independent(document.wrote, families),
            commit=document.commit,
            timestamp=datetime.now(UTC),
            **self.measured(state),
        )
        if rounds and self.settings.redact:
            verdict = outgoing.redact_replies(verdict)
        verdict = verdict.model_copy(update={"configured": _configured_names(verdict, state)})
        if self.settings.independence == "require" and final.verdict == "accept":
            return self._refuse_own_family(verdict, document, families)
        return verdict

    def _degraded(self, final: Final, state: JudgingState[Document]) -> str | None:
        """Say in one line what the verdict lacks, if there is something."""
        if state.rounds:
            reason = failures(state.rounds)
        else:
            reason = f"not judged: {state.refused or self.settings.no_model_reason}"
        accepting = set()
        for tier, opinion in state.opinions.items():
            if opinion and opinion.outcome == "accept":
                accepting.add(tier)
        if final.verdict == "undetermined" and accepting and accepting <= set(state.cut):
            reason = reason or "no model saw the whole text, so it cannot be accepted"
        unread = None
        if self.settings.finality:
            unread = self._unread(self.settings.finality, state)
        return "; ".join(filter(None, (reason, self.settings.calibration_warning, unread))) or None

    def _refuse_own_family(
        self, verdict: Verdict, document: Document, families: Iterable[str]
    ) -> Verdict:
        """Return an acceptance; undetermined, where the author's own family is not to accept alone."""
        reason = panel.lacking(self.settings.independence, document.wrote, set(families))
        if not reason:
            return verdict
        undetermined: dict[str, Any] = {
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
        return verdict.model_copy(update=undetermined)

    def _unread(self, finality: FinalityRules, state: JudgingState[Document]) -> str | None:
        """Say in one line which opinions were read otherwise than those of the calibration."""
        last_tiers = list(self.models_by_tier)[-1:]
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


def _families_behind(final: Final, state: JudgingState[Document]) -> set[str]:
    """Return the families whose tier came to the verdict; all that answered, where no tier settled it."""
    families = set()
    for tier, endpoint, _ in state.voices:
        if final.tier is None or state.opinions[tier].outcome == final.verdict:
            families.add(endpoint.family)
    return families


def _consensus(final: Final, state: JudgingState[Document]) -> Consensus:
    if not final.tier:
        return final.consensus
    # One model in two tiers is one voice, however often it agrees with itself.
    if len({endpoint.model for _, endpoint, _ in state.voices}) == 1:
        return "single"
    tiers = [tier for tier, opinion in state.opinions.items() if opinion]
    if final.consensus == "single" and tiers == [final.tier]:
        return "unanimous"  # a jury by itself
    return final.consensus


def _sources(tier: TierName, state: JudgingState[Document]) -> list[tuple[str, ScoreSource]]:
    sources = []
    for voice_tier, endpoint, opinion in state.voices:
        if voice_tier == tier:
            sources.append((endpoint.model, score_source(endpoint, opinion)))
    return sources


def _configured_names(verdict: Verdict, state: JudgingState[Document]) -> dict[str, str]:
    """Return the names under which models were asked, by the other ones that their replies gave."""
    endpoints = []
    for turns in state.turns.values():
        for turn in turns:
            endpoints.append(turn.endpoint)
    names: dict[str, str] = {}
    for each, endpoint in zip(verdict.rounds, endpoints, strict=False):
        if each.model != endpoint.model:
            names[each.model] = endpoint.model
    return names


def place_findings(findings: Iterable[Finding], rubric: ScoreRubric) -> tuple[Finding, ...]:
    """Return findings, each with the dimension it names or alone mentions most; quotes do not count."""
    result = []
    names = {_stems(name): name for name in reversed(rubric.dimensions)}
    for finding in findings:
        name = names.get(_stems(finding.dimension), finding.dimension)
        if name not in rubric.dimensions:
            counts = mentions(f"{finding.dimension}. {finding.issue}. {finding.suggestion}", rubric)
            best = [name for name, count in counts.items() if count == max(counts.values())]
            if len(best) == 1:
                name = best[0]
        result.append(finding.model_copy(update={"dimension": name}))
    return tuple(result)


def mentions(text: str, rubric: ScoreRubric) -> dict[str, int]:
    """Return how many different terms of each dimension stand in a text, for those that it mentions."""
    stems = _stems(text)
    counts: dict[str, int] = {}
    for name, dimension in rubric.dimensions.items():
        terms = {_stems(term) for term in (name, *dimension.terms)}
        places = {}
        for size in map(len, terms):
            places[size] = range(len(stems) - size + 1)
        phrases = set()
        for size, starts in places.items():
            phrases |= {stems[at : at + size] for at in starts}
        count = len(terms & phrases)
        if count:
            counts[name] = count
    return counts


@lru_cache(maxsize=1024)
def _stems(text: str) -> tuple[str, ...]:
    return tuple(_stem(word) for word in words(fold(text)))


_stem = lru_cache(maxsize=20_000)(stem)  # the words of rubrics and of judges come again and again
