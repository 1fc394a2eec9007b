"""The task `score`: each tier's models rate a document, and the rubric's thresholds decide."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

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

    from judgekit.config import TierName
    from judgekit.judging.fence import Fence
    from judgekit.judging.score_source import ScoreSource

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
        if not endpoint.logprobs or self.options.samples == 1:
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
        likely = logprobs.ALTERNATIVES if endpoint.logprobs else 0
        timeout = self.limits.timeout
        request = Request((), key, timeout, REPLY_TOKENS, top_logprobs=likely, sample=sample)
        found: Calls[RatedReply] = []
        for part, rubric in self.parts.items():
            form = score_reply_model(tuple(rubric.dimensions), scale.min, scale.max, binary)
            asked = replace(request, call_key=key.within(part))
            read = partial(self._read, part)
            made = partial(self._messages, rubric, endpoint)
            found.append(
                partial(run_round, session, endpoint, asked, made, self.subject.size, form, read)
            )
        return found

    def opinion(self, samples: Sequence[Sequence[RatedReply | None]]) -> Opinion | None:
        opinions = []
        for sample in samples:
            replies = [reply for reply in sample if reply]
            if len(replies) < len(sample):
                continue
            alone = len(replies) == 1
            reasoning = replies[0].reasoning
            if not alone:
                named = []
                for reply in replies:
                    for name in reply.scores:
                        named.append((name, reply.reasoning))
                reasoning = "\n".join(f"{name}: {why}" for name, why in named if why)
            findings = placed(
                [finding for reply in replies for finding in reply.findings], self.rubric
            )
            expected = tuple(name for reply in replies for name in reply.expected)
            opinion = replace(
                self._rated(
                    {name: score for reply in replies for name, score in reply.scores.items()}
                ),
                reasoning=reasoning,
                findings=findings,
                said=replies[0].word if alone else None,
                dimensions=tuple(mentions(reasoning, self.rubric)),
                expected=expected,
            )
            opinions.append(opinion)
        if not jury.has_quorum(len(opinions), len(samples)):
            return None
        if len(samples) == 1:
            return opinions[0]
        mean = self._rated(jury.mean_scores(opinions))
        near = jury.nearest(opinions, mean)
        count = len(opinions)
        return replace(
            near, outcome=mean.outcome, scores=mean.scores, said=None, expected=(), samples=count
        )

    def combine(self, voices: Sequence[tuple[Endpoint, Opinion | None]]) -> Opinion | None:
        known = [(endpoint, opinion) for endpoint, opinion in voices if opinion]
        if not jury.has_quorum(len(known), len(voices)):
            return None
        return jury.opinion(known, self.options.jury, partial(self.rubric.decide, mode=self.mode))

    def record(self, opinion: Opinion) -> dict[str, Any]:
        findings = [finding.model_dump() for finding in opinion.findings]
        return {
            "outcome": opinion.outcome,
            "scores": opinion.scores,
            "reasoning": opinion.reasoning,
            "dimensions": list(opinion.dimensions),
            "findings": findings,
            "said": opinion.said,
            **({"samples": opinion.samples} if opinion.samples > 1 else {}),
            **({"expected": list(opinion.expected)} if opinion.expected else {}),
        }

    def _read(self, part: str, found: ScoreReply, reply: Reply) -> RatedReply:
        scale = self.rubric.scale
        content = found.model_dump()
        points = range(scale.min, scale.max + 1)
        if reply.tokens:
            expected = logprobs.expectations(reply, found, points)
        else:
            expected = {}
        findings = []
        for finding in content["findings"]:
            # A model's words are shown on terminals and written as JSON: no escapes, no lone surrogates.
            words = {name: visible(text) for name, text in finding.items()}
            words["issue"] = words["issue"] or words["suggestion"]
            # A dimension that was asked about alone is what its findings are about.
            words["dimension"] = part or words["dimension"]
            if words["issue"]:
                findings.append(Finding(**words))
        said = content["scores"]
        scores = {}
        for name, each in said.items():
            if isinstance(each, str):
                scores[name] = scale.answers[each]
            else:
                scores[name] = each
        return RatedReply(
            scores | expected,
            visible(found.reasoning),
            tuple(findings[:MAX_FINDINGS]),
            visible(found.verdict) or None,
            tuple(expected),
        )

    def _messages(self, rubric: ScoreRubric, endpoint: Endpoint | None) -> tuple[Message, ...]:
        asked = rubric.dimensions
        told = [
            replace(own, scores={name: own.scores[name] for name in asked}) for own in self.told
        ]
        shown = self.subject.seen_by(self.limits, endpoint)
        words = self.words or self.tier
        return prompt.score_messages(rubric, words, shown, self.subject.task, told, self.findings)

    async def _ask_pointwise(self, endpoint: Endpoint, session: Session) -> Answer[RatedReply]:
        """Ask about each dimension; where that would accept the text, about an idle subject too."""
        started = time.monotonic()
        timeout = self.limits.timeout
        points = self._points(endpoint, session.fence)
        answer = await ask_pointwise(session, endpoint, points, timeout)
        rule = getattr(self.rubric.modes, self.mode)
        scale = self.rubric.scale
        mean = partial(pointwise.expectation, answers=scale.answers)
        scores = {name: mean(likely) for name, likely in (answer.value or {}).items()}
        if not scores or self.compared or self._rated(scores).outcome != "accept":
            return joined([answer], RatedReply(scores) if scores else None, started)
        # Numbers are compared with a number, yes and no with yes and no.
        forms = {}
        for name, each in self.rubric.dimensions.items():
            forms[name] = each.scale
        asked = {
            str(form or "idle"): prompt.idle_question(self.rubric, form) for form in forms.values()
        }
        points = points._replace(questions=asked)
        idle = await ask_pointwise(session, endpoint, points, timeout)
        if not idle.value:
            return joined([answer, idle], None, started)
        bar = rule.accept.each
        span = scale.max - scale.min
        for form, likely in idle.value.items():
            alike = {}
            for name, score in scores.items():
                if (forms[name] or "idle") == form:
                    alike[name] = score
            scores |= pointwise.earned_scores(alike, mean(likely), bar, span)
        return joined([answer, idle], RatedReply(scores), started)

    def _points(self, endpoint: Endpoint, fence: Fence) -> Points:
        scale = self.rubric.scale
        shown = self.subject.seen_by(self.limits, endpoint)
        dimensions = self.rubric.dimensions
        kinds = {each.scale for each in dimensions.values()}
        if None in kinds:
            tokens = []
            for value in range(scale.min, scale.max + 1):
                tokens.append(str(value))
        else:
            tokens = []
        tokens += scale.answers if "binary" in kinds else []
        return Points(
            prompt.rating_system(self.rubric, fence),
            prompt.document_context(fence, shown, self.subject.task, self.rubric.given),
            {name: prompt.rating_question(self.rubric, each) for name, each in dimensions.items()},
            tokens,
            CallKey(self.subject.sha256, self.rubric.ref, self.tier),
        )

    def _rated(self, scores: Mapping[str, float]) -> Opinion:
        rounded = {}
        for name, value in scores.items():
            rounded[name] = round(float(value), 2)
        return Opinion(self.rubric.decide(scores, self.mode), rounded)


@dataclass(frozen=True, slots=True)
class DocumentJudge(Judge[ScoreRubric, Document, Verdict]):
    """Judges documents; `elsewhere` is another program's judging, `deeper` judging at another depth."""

    elsewhere: Callable[[DocumentJudge, Document], Awaitable[Verdict]] | None = None
    deeper: Callable[[DocumentJudge, JudgingState[Document]], Awaitable[Verdict]] | None = None

    def attributed(self, subject: Document) -> Document:
        if not self.written_by and subject.author.family is None:
            return subject
        families = dict.fromkeys([*subject.wrote, *named(self.written_by)])
        return replace(subject, author=replace(subject.author, family=", ".join(families) or None))

    def redacted(self, subject: Document) -> tuple[Document, int]:
        if self.options.redact:
            return outgoing.redact_document(subject)
        return (subject, 0)

    async def run(self, state: JudgingState[Document]) -> Verdict:
        subject = state.subject
        tiers = self.rubric.tiers
        if self.elsewhere is None or state.refused:
            state.refused = state.refused or subject.lacks(self.rubric) or ""
            if self.deeper and self.panel and not state.refused:
                return await self.deeper(replace(self, deeper=None), state)
            state.cut = {
                tier
                for tier, jury in self.panel.items()
                if any(is_cut(subject.seen_by(getattr(tiers, tier), endpoint)) for endpoint in jury)
            }
            return await Judge.run(self, state)
        verdict = await self.elsewhere(self, subject)
        verdict = verdict.model_copy(update={"redacted": state.secrets + verdict.redacted})
        accepted = (
            verdict.verdict == "accept" and not verdict.independent and not verdict.human_override
        )
        return self._demanding(verdict, subject, ()) if accepted else verdict

    def question(self, tier: TierName, state: JudgingState[Document]) -> ScoreQuestion:
        score_question = ScoreQuestion(self.rubric, self.mode, state.subject, tier, self.options)
        if tier != "tiebreaker":
            return score_question
        # In which order a jury's models are named plays no part.
        tiers = list(state.opinions)
        voices = sorted(state.voices, key=lambda voice: (tiers.index(voice[0]), voice[1].model))
        told = []
        for _, _, opinion in voices:
            told.append(replace(opinion, reasoning=redact.words(opinion.reasoning)))
        # Shuffled by the subject: the tiebreaker cannot learn whose opinion stands first.
        random.Random(state.subject.sha256).shuffle(told)  # noqa: S311 - an order, not a secret
        known = [opinion for opinion in state.opinions.values() if opinion]
        # Without a disagreement the tiebreaker stands in for the deep tier, with its instructions.
        disagree = len(known) > 1 or any(opinion.divided is not None for opinion in known)
        return replace(score_question, words=tier if disagree else "deep", told=told)

    def step(self, state: JudgingState[Document]) -> TierName | Final:
        opinions: dict[TierName, Opinion | None] = state.opinions
        known = {tier: opinion for tier, opinion in opinions.items() if opinion}
        margins = {}
        for tier, opinion in known.items():
            if self.finality is None or self.finality.knows(tier, _sources(tier, state)):
                margins[tier] = margin(self.rubric, opinion.scores, self.mode)
        return self.rules(state.cut, self.options.margin).next(
            {tier: opinion.outcome if opinion else None for tier, opinion in opinions.items()},
            margins,
            {
                tier: opinion.divided
                for tier, opinion in known.items()
                if opinion.divided is not None
            },
        )

    def record(self, state: JudgingState[Document], final: Final) -> Verdict:
        document = state.subject
        rounds = state.rounds
        opinions: dict[TierName, Opinion | None] = state.opinions
        if final.tier:
            deciding = opinions.get(final.tier)
        else:
            deciding = None
        scores = deciding.scores if deciding else None
        heard = {tier: opinion for tier, opinion in opinions.items() if opinion}
        behind = set()
        for tier, endpoint, _ in state.voices:
            if final.tier is None or heard[tier].outcome == final.verdict:
                behind.add(endpoint.family)
        # One model in two tiers is one voice, however often it agrees with itself.
        alone = len({endpoint.model for _, endpoint, _ in state.voices}) == 1
        if final.tier and alone:
            consensus = "single"
        else:
            consensus = final.consensus
        if final.tier and not alone and consensus == "single" and list(heard) == [final.tier]:
            consensus = "unanimous"  # a jury by itself
        if rounds:
            degraded = failures(rounds)
        else:
            degraded = f"not judged: {state.refused or self.no_model_reason}"
        accepted = {tier for tier, opinion in heard.items() if opinion.outcome == "accept"}
        if final.verdict == "undetermined" and accepted and accepted <= set(state.cut):
            degraded = degraded or "no model saw the whole text, so it cannot be accepted"
        asked = set()
        for tier in opinions:
            for endpoint in self.panel[tier]:
                asked.add(endpoint.profile.provider)
        models = []
        for own in rounds:
            if own.tier == final.tier and own.opinion:
                models.append(own.model)
        if self.finality:
            unread = self._unread(self.finality, state)
        else:
            unread = None
        subjects = [JudgedFile(path=file.path, sha256=file.sha256) for file in document.files]
        if scores:
            average = round(self.rubric.mean(scores), 2)
        else:
            average = None
        if final.tier:
            truncated = final.tier in state.cut
        else:
            truncated = bool(state.cut)
        verdict = Verdict(
            id=uuid.uuid4().hex,
            task_id=document.task_id,
            subjects=subjects,
            verdict=final.verdict,
            scores=scores,
            average=average,
            reasoning=deciding.reasoning if deciding else "",
            findings=list(deciding.findings) if deciding else [],
            consensus=consensus,
            judge_tier=final.tier,
            model=", ".join(models) or None,
            degraded="; ".join(filter(None, (degraded, self.calibration_warning, unread))) or None,
            truncated=truncated,
            redacted=state.secrets if rounds else 0,
            substitutes=sorted(asked & self.replacement_providers),
            author=document.author,
            independent=panel.is_independent(document.wrote, behind),
            commit=document.commit,
            timestamp=datetime.now(UTC),
            **self.measured(state),
        )
        if rounds and self.options.redact:
            verdict = outgoing.redact_replies(verdict)
        verdict = verdict.model_copy(update={"configured": _configured_names(verdict, state)})
        demanding = self.independence == "require" and final.verdict == "accept"
        return self._demanding(verdict, document, behind) if demanding else verdict

    def _demanding(self, verdict: Verdict, document: Document, behind: Iterable[str]) -> Verdict:
        """Return an acceptance; undetermined, where the author's own family is not to accept alone."""
        why = panel.lacking(self.independence, document.wrote, set(behind))
        if not why:
            return verdict
        nothing: dict[str, Any] = dict.fromkeys(("scores", "average", "judge_tier", "model"))
        nothing |= {"verdict": "undetermined", "consensus": "none", "reasoning": "", "findings": []}
        degraded = "; ".join(filter(None, (why, verdict.degraded)))
        return verdict.model_copy(update={**nothing, "degraded": degraded})

    def _unread(self, finality: FinalityRules, state: JudgingState[Document]) -> str | None:
        """Say in one line which opinions were read otherwise than those of the calibration."""
        asked = {}
        for tier in state.opinions:
            if tier not in list(self.panel)[-1:]:
                asked[tier] = _sources(tier, state)
        other = {}
        for tier, sources in asked.items():
            if not finality.knows(tier, sources):
                other[tier] = sources
        how = sorted({SOURCE_WORDS[how] for sources in other.values() for _, how in sources})
        told = f"its scores were {' and '.join(how)}"
        if other:
            return f"calibration {finality.id} does not cover {', '.join(other)}: {told}"
        return None


def _sources(tier: TierName, state: JudgingState[Document]) -> list[tuple[str, ScoreSource]]:
    voices = [(endpoint, opinion) for asked, endpoint, opinion in state.voices if asked == tier]
    return [(endpoint.model, score_source(endpoint, opinion)) for endpoint, opinion in voices]


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


def placed(findings: Iterable[Finding], rubric: ScoreRubric) -> tuple[Finding, ...]:
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
        count = len(terms & {stems[at : at + size] for size, ats in places.items() for at in ats})
        if count:
            counts[name] = count
    return counts


@lru_cache(maxsize=1024)
def _stems(text: str) -> tuple[str, ...]:
    return tuple(_stem(word) for word in words(fold(text)))


_stem = lru_cache(maxsize=20_000)(stem)  # the words of rubrics and of judges come again and again
