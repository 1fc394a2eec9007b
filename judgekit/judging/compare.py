"""The task `compare`: which of two texts is better, asked in both orders of every model.

Models are to answer with their reasoning first, then one label or `tie`.
"""

from __future__ import annotations

import hashlib
import random
import re
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from judgekit.judging import panel, prompt, redact
from judgekit.judging.documents import CONTEXT_CHARS, LEAST, ComparisonInput, Part, is_cut
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.fence import Fence, labels
from judgekit.judging.jury import ORDERS, WINS, TierVote, Vote, favourite, of_calls, outcomes, tier_vote
from judgekit.judging.orchestrator import AnyRubric, Judge, JudgingState, ModelTurn, Task
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.replies import MAX_REASONING, _text
from judgekit.judging.round import Answer, Question, ms_since, run_round
from judgekit.judging.verdict import TIE, CompareRound, Comparison, Contestant, cost_of, failures, rubric_ref
from judgekit.providers.base import CallKey
from judgekit.rubric.schema import CompareRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.escalation import EscalationRules
    from judgekit.judging.round import Session
    from judgekit.judging.verdict import Consensus
    from judgekit.providers.base import Endpoint, Message


class Ended(NamedTuple):
    """The end of a comparison: the word, by how much, the tier that settled it, the families behind it."""

    verdict: str = "undetermined"
    consensus: Consensus = "none"
    tier: TierName | None = None
    lead: float | None = None
    reasoning: str = ""
    degraded: str | None = None
    truncated: bool = False
    families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonJudge(Judge[AnyRubric, ComparisonInput, Comparison]):
    """Compares texts; whether they are two or several, their record is the same."""

    def attributed(self, subject: ComparisonInput) -> ComparisonInput:
        return subject.written_by(self.written_by)

    def redacted(self, subject: ComparisonInput) -> tuple[ComparisonInput, int]:
        if not self.options.redact:
            return subject, 0
        question, files = redact.redact(subject.prompt), [redact.file(file) for file in subject.files]
        secrets = question.secrets + sum(count for _, count in files)
        return replace(subject, prompt=question.text, files=tuple(file for file, _ in files)), secrets

    async def run(self, state: JudgingState[ComparisonInput]) -> Comparison:
        if len(state.subject.distinct) == 1:  # no model compares a text with itself
            return self.record(state, UNDETERMINED)
        return await Judge.run(self, state)

    def comparison(
        self,
        state: JudgingState[ComparisonInput],
        ended: Ended,
        note: str | None = None,
        scores: Mapping[str, tuple[float, TierName]] | None = None,
    ) -> Comparison:
        """Return the record; `scores` holds the mean of each subject and the name of its last tier."""
        subject, rounds, known = state.subject, state.rounds, scores or {}
        nobody = state.refused or self.nobody
        if len(subject.distinct) == 1:
            few, nobody = "two texts" if len(subject.files) == LEAST else "texts", ""
            ended = Ended(TIE, lead=0.0, reasoning=f"The {few} are the same.")
        if ended.verdict in tuple(subject.letters):
            # A win by the winner's own family alone is none, if it has to be another's.
            why = panel.lacking(self.independence, subject.families(ended.verdict), ended.families)
            if why is not None:
                why = "; ".join(filter(None, (why, ended.degraded)))
                ended = Ended(degraded=why, truncated=ended.truncated, families=ended.families)
        nothing = f"not judged: {nobody}" if nobody and not rounds else None
        degraded = [nothing, ended.degraded, failures(rounds), note, self.calibration_warning]
        asked = {endpoint.profile.provider for own in rounds for endpoint in self.panel[own.tier]}
        record = Comparison(
            id=uuid.uuid4().hex,
            subjects=[
                Contestant(
                    letter=letter,
                    path=file.path,
                    sha256=file.sha256,
                    family=", ".join(subject.families(letter)) or None,
                    score=round(known[letter][0], 4) if letter in known else None,
                    tier=known[letter][1] if letter in known else None,
                )
                for letter, file in zip(subject.letters, subject.files, strict=True)
            ],
            question_sha256=hashlib.sha256(subject.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
            rubric=rubric_ref(self.loaded),
            mode=self.mode,
            prompt_sha256=self.rubric.prompt.sha256,
            calibration=self.finality.id if self.finality else None,
            verdict=ended.verdict,
            lead=None if ended.lead is None else round(ended.lead, 4),
            reasoning=ended.reasoning,
            consensus=ended.consensus,
            judge_tier=ended.tier,
            rounds=list(rounds),
            degraded="; ".join(filter(None, degraded)) or None,
            truncated=ended.truncated,
            families=list(ended.families),
            independent=panel.is_independent(subject.wrote, ended.families),
            redacted=state.secrets if rounds else 0,
            substitutes=sorted(asked & self.substitutes),
            timestamp=datetime.now(UTC),
            duration_ms=ms_since(state.session.started),
            **cost_of(rounds),
        )
        return redact.replies(record) if self.options.redact else record


REPLY_TOKENS = 1024
LEAST_LEANING = 0.55
"""Of a model that answers in one token: the probability from which on a text is preferred.

The 1.5B model of the demo gave 0.46 to 0.54 to the ten labelled pairs of `answer-preference` whatever their
label was (22 November 2026): that is no preference.
"""

_NO_WINNER = frozenset({TIE, "both", "neither", "equal", "none"})
FIRST, SECOND = POINTS = ("1", "2")
"""What a pointwise model calls the two, in the order in which it sees them."""


class EarlierOpinion(NamedTuple):
    """An earlier opinion: the label of the better text, or None for a tie, and why."""

    better: str | None
    reasoning: str


class CompareReply(BaseModel):
    """Which of two is better; the labels are added by `compare_reply_model`."""

    model_config = ConfigDict(serialize_by_alias=True)

    offered: ClassVar[dict[str, str]] = {}
    reasoning: Annotated[str, _text(MAX_REASONING)] = ""
    better: str

    @field_validator("better")
    @classmethod
    def _was_offered(cls, given: str) -> str:
        word = given.strip().removeprefix("[").removesuffix("]").strip().casefold()
        if word in _NO_WINNER:
            return TIE
        if word not in cls.offered:
            raise ValueError(f"expected {', '.join(cls.offered.values())} or {TIE}")
        return cls.offered[word]


def compare_reply_model(offered: Sequence[str]) -> type[CompareReply]:
    choices: Any = Field(json_schema_extra={"enum": [*offered, TIE]})
    model = create_model("CompareReply", __base__=CompareReply, better=(Annotated[str, choices], ...))
    model.offered = {label.casefold(): label for label in offered}
    return model


def pair_messages(
    rubric: CompareRubric,
    tier: TierName,
    question: str,
    shown: Sequence[Part],
    earlier: Sequence[EarlierOpinion] = (),
) -> tuple[Message, ...]:
    """Return the messages that ask `tier` which of `shown` (their paths are labels) is better.

    `earlier` opinions are told without their authors, in an order that depends on the texts alone.
    """
    fence = Fence()
    offered = [part.path for part in shown]
    # In which order a jury's models are named plays no part.
    told = sorted(earlier, key=lambda opinion: (opinion.better or "", opinion.reasoning))
    random.Random("".join(sorted(offered))).shuffle(told)  # noqa: S311 - an order, not a secret
    answer = f'{{"reasoning": "<what decided it>", "better": "<{" or ".join([*offered, TIE])}>"}}'
    rules = [getattr(rubric.prompt.instructions, tier), _criteria_text(rubric)]
    blocks = [
        prompt.pair_context(fence, question, shown),
        *(["Earlier opinions, in no order:"] if told else []),
        *(fence.around(f"better: {opinion.better or TIE}\n{opinion.reasoning}") for opinion in told),
        f"{prompt.ANSWER}\n{answer}",
    ]
    return prompt.messages(rubric.prompt.system, rules, fence, blocks)


def _criteria_text(rubric: CompareRubric) -> str:
    asked = [f"- {name}: {text}" for name, text in rubric.criteria.items()]
    return "\n".join(["Questions, the most important first:", *asked])


@dataclass(frozen=True)
class CompareTask(Task[CompareRubric, ComparisonInput, Vote, Vote]):
    """What a tier is asked about two texts; `told` are earlier opinions."""

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        pairs = [(rubric, order) for rubric in self.parts.values() for order in ORDERS]
        if endpoint is not None and endpoint.pointwise:
            return [messages for pair in pairs for messages in self._points(*pair, endpoint, fence).prompts()]
        return [self._messages(*pair, endpoint) for pair in pairs]

    def calls(
        self, endpoint: Endpoint, session: Session, sample: int
    ) -> list[Callable[[], Awaitable[Answer[Vote]]]]:
        return [
            partial(self._once, endpoint, session, order, criterion, sample)
            for criterion in self.parts
            for order in ORDERS
        ]

    def opinion(self, samples: Sequence[Sequence[Vote | None]]) -> Vote | None:
        return of_calls([vote for sample in samples for vote in sample], len(self.parts))

    def combine(self, voices: Sequence[tuple[Endpoint, Vote | None]]) -> TierVote:
        return tier_vote(voices, self.options.jury)

    def record(self, opinion: Vote) -> dict[str, Any]:
        return {"better": opinion.word, "reasoning": self.readable(opinion.reasoning)}

    def rounds(self, first: int, turns: Sequence[ModelTurn[Vote]]) -> list[CompareRound]:
        """Return the record: each call is a round of its own."""
        found: list[CompareRound] = []
        for turn in turns:
            samples = len(turn.calls) // (len(self.parts) * len(ORDERS))
            about = [
                (order, criterion, sample)
                for sample in (range(1, samples + 1) if samples > 1 else [None])
                for criterion in self.parts
                for order in ORDERS
            ]
            for (order, criterion, sample), answer in zip(about, turn.calls, strict=True):
                found.append(
                    CompareRound(
                        round=first + len(found),
                        tier=self.tier,
                        order=list(order),
                        criterion=criterion or None,
                        sample=sample,
                        opinion=self.record(answer.value) if answer.value else None,
                        **answer.record(),
                    )
                )
        return found

    def cut(self, endpoint: Endpoint) -> str:
        """Return the letters of the texts that a model of the tier does not see whole."""
        return "".join(letter for letter in WINS if is_cut((self._part(endpoint, letter, letter),)))

    def readable(self, text: str) -> str:
        """Return a model's words with the letters of the texts, which users know, for their labels."""
        letters = {self.label(letter): letter for letter in WINS}
        named = re.compile(rf"\b({'|'.join(map(re.escape, letters))})\b")
        return named.sub(lambda found: letters[found[0]], text)

    def label(self, letter: str) -> str:
        return self._labels[self.subject.file(letter).sha256]

    @property
    def _labels(self) -> dict[str, str]:
        """The label of each text by its hash: the same in both orders and in every tier."""
        return labels(self.subject.prompt, sorted(file.sha256 for file in self.subject.files))

    async def _once(
        self, endpoint: Endpoint, session: Session, order: str, criterion: str, sample: int
    ) -> Answer[Vote]:
        rubric, timeout = self.parts[criterion], self.limits.timeout
        if endpoint.pointwise:
            points = self._points(rubric, order, endpoint, session.fence, criterion)
            answer = await ask_pointwise(session, endpoint, points, timeout)
            vote = None
            if answer.value:
                first, second = (answer.value["better"][point] for point in POINTS)
                leans = max(first, second) >= LEAST_LEANING
                vote = Vote(("A" if (first > second) == (order == ORDERS[0]) else "B") if leans else "tie")
            return Answer(vote, answer.failure, answer.usage, answer.latency_ms, answer.model)
        hashes = {label: sha256 for sha256, label in self._labels.items()}
        letters = {self.label(letter): letter for letter in WINS}
        question = Question(
            partial(self._messages, rubric, order, endpoint),
            self.subject.size,
            compare_reply_model(list(hashes)),
            lambda reply, _: Vote(letters.get(reply.better, "tie"), visible(reply.reasoning)),
            CallKey(self.subject.shown_sha256(order), self.rubric.ref, self.tier, criterion),
            REPLY_TOKENS,
            hashes,
            sample,
        )
        return await run_round(session, endpoint, question, timeout)

    def _messages(self, rubric: CompareRubric, order: str, endpoint: Endpoint | None) -> tuple[Message, ...]:
        shown = [self._part(endpoint, letter, self.label(letter)) for letter in order]
        return pair_messages(rubric, self.words or self.tier, self.subject.prompt, shown, self.told)

    def _points(
        self, rubric: CompareRubric, order: str, endpoint: Endpoint, fence: Fence, criterion: str = ""
    ) -> Points:
        """Return the question for one order, to a model that answers in one token."""
        shown = [self._part(endpoint, letter, point) for letter, point in zip(order, POINTS, strict=True)]
        ask = f"Which of the two texts is better, {FIRST} or {SECOND}? Answer with one number."
        return Points(
            f"{rubric.prompt.system} {fence.guard}",
            prompt.pair_context(fence, self.subject.prompt, shown),
            {"better": f"{_criteria_text(rubric)}\n{ask}"},
            POINTS,
            CallKey(self.subject.shown_sha256(order), self.rubric.ref, self.tier, criterion),
        )

    def _part(self, endpoint: Endpoint | None, letter: str, label: str) -> Part:
        """Return one of the texts as a model sees it under a label: each gets half of the characters."""
        context_limit = endpoint.profile.limits.context_chars if endpoint else None
        file = self.subject.file(letter)
        most = min(self.limits.max_chars or CONTEXT_CHARS, context_limit or CONTEXT_CHARS) // len(WINS)
        return Part(label, file.text[:most], file.total)


@dataclass(frozen=True, slots=True)
class PairJudge(ComparisonJudge[CompareRubric]):
    """Compares two texts."""

    async def run(self, state: JudgingState[ComparisonInput]) -> Comparison:
        state.cut = {tier for tier in self.panel if self.cut(tier, state)}
        return await ComparisonJudge.run(self, state)

    def task(self, tier: TierName, state: JudgingState[ComparisonInput]) -> CompareTask:
        compare_task = CompareTask(self.rubric, self.mode, state.subject, tier, self.options)
        if tier != "tiebreaker":
            return compare_task
        heard = [tier_vote for tier_vote in state.opinions.values() if tier_vote.votes]
        told = [
            EarlierOpinion(
                None if vote.word == TIE else compare_task.label(vote.word), redact.words(vote.reasoning)
            )
            for tier_vote in heard
            for vote in tier_vote.votes
        ]
        # Without a disagreement the tiebreaker stands in for the deep tier, with its instructions.
        return replace(compare_task, words=tier if len(heard) > 1 else "deep", told=told)

    def step(self, state: JudgingState[ComparisonInput]) -> TierName | Final:
        leads = {tier: tier_vote.lead for tier, tier_vote in state.opinions.items()}
        return self._rules(state).next(outcomes(state.opinions), leads)

    def _rules(self, state: JudgingState[ComparisonInput]) -> EscalationRules:
        """Return the rules; a win that only models of the winner's own family voted for is not final."""
        subject, votes = state.subject, state.opinions
        own = {
            tier
            for tier, vote in votes.items()
            if vote.word in WINS
            and vote.behind
            and vote.behind <= set(subject.families(vote.word)) & set(subject.sided)
        }
        return replace(self.rules(state.cut), partial=own)

    def record(self, state: JudgingState[ComparisonInput], final: Final) -> Comparison:
        votes: dict[TierName, TierVote] = state.opinions
        found = ended(final, votes, self.mode, self._rules(state))
        # Where nothing was settled the families are those behind the votes of each tier.
        behind = [vote for vote in votes.values() if found.tier is None or vote.word == found.verdict]
        families = tuple(sorted({family for vote in behind for family in vote.behind}))
        consensus = found.consensus
        if found.tier is not None:
            consensus = votes[found.tier].agreement or consensus
            if consensus == "unanimous" and any(vote.agreement for vote in behind):
                consensus = "majority"
            # One model in two tiers is one voice, however often it agrees with itself.
            if len({endpoint.model for tier in votes for endpoint in self.panel[tier]}) == 1:
                consensus = "single"
        reasoning = self.task("quick", state).readable(found.reasoning)
        found = found._replace(reasoning=reasoning, consensus=consensus, families=families)
        cut = {tier: letters for tier in votes if (letters := self.cut(tier, state))}
        told = ", ".join(f"{' and '.join(letters)} for {tier}" for tier, letters in cut.items())
        return self.comparison(state, found, f"cut: {told}" if cut else "")

    def cut(self, tier: TierName, state: JudgingState[ComparisonInput]) -> list[str]:
        """Return the letters of the texts of which some model of a tier does not see all."""
        task = self.task(tier, state)
        return sorted({letter for endpoint in self.panel[tier] for letter in task.cut(endpoint)})


def ended(
    final: Final, tier_votes: Mapping[TierName, TierVote], mode: ModeName, rules: EscalationRules
) -> Ended:
    """Return the end of a comparison to which the rules led, with what they know of the tiers."""
    first, cut = favourite(tier_votes), rules.truncated
    other = WINS[first == "A"] if first else None
    words = {"accept": first, "reject": other, "improve": TIE}
    word, tier, consensus = words.get(final.verdict) or final.verdict, final.tier, final.consensus
    # In lenient mode the tie of the next tier does not undo a win, where labels allow it and the win neither
    # rests on a cut text nor on none but the winner's own family.
    if mode == "lenient" and rules.finality is not None and final.verdict == "improve" and tier is not None:
        barred = {*rules.truncated, *rules.partial}
        leads = {name: vote.lead for name, vote in tier_votes.items() if name not in barred}
        winner = rules.finality.stands(tier, outcomes(tier_votes), leads)
        if winner is not None:
            word, tier, consensus = str(first), winner, "single"
    said = first if final.verdict == "undetermined" else word
    sayers = [name for name, vote in tier_votes.items() if vote.word == said and said is not None]
    if sayers and all(sayer in cut for sayer in sayers):
        why = "no model saw the whole of both texts, so the result is open"
        return Ended(degraded=why, truncated=True)
    if tier is None:
        return Ended(word, consensus, truncated=bool(cut))
    vote = tier_votes[tier]
    return Ended(word, consensus, tier, vote.lead, vote.reasoning, truncated=tier in cut)
