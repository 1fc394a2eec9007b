"""The task `compare`: which of two texts is better, asked in both orders of every model."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import GatewayError
from judgekit.judging import prompt, redact
from judgekit.judging.comparison import comparison, identical, terms_of, unprepared
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.fence import Fence
from judgekit.judging.judge import Judge
from judgekit.judging.jury import ORDERS, WINS, TierVote, Vote, ended, of_calls, outcomes, tier_vote
from judgekit.judging.pair_replies import (
    POINTS,
    EarlierOpinion,
    compare_reply_model,
    pair_labels,
    pair_messages,
    point_question,
)
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.round import Question, Stopwatch, gather_limited, run_round
from judgekit.judging.subject import CONTEXT_CHARS, Part, is_cut
from judgekit.judging.verdict import TIE, CompareRound, Usage
from judgekit.providers.base import CallKey
from judgekit.rubric.schema import CompareRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.config.names import TierName
    from judgekit.judging.comparison import Comparison, ComparisonInput, Ended
    from judgekit.judging.jury import PairWord
    from judgekit.judging.options import JudgeOptions
    from judgekit.judging.round import Answer, Session
    from judgekit.providers.base import Endpoint, Message


REPLY_TOKENS = 1024
LEAST_LEANING = 0.55
"""Of a model that answers in one token: the probability from which on a text is preferred.

The 1.5B model of the demo gave 0.46 to 0.54 to the ten labelled pairs of `answer-preference` whatever their
label was (22 November 2026): that is no preference.
"""


class Call(NamedTuple):
    """One call: the letters in the order in which the model saw them, and what came of it.

    `criterion` is the one that was asked about alone; of several replies `sample` is the number, from 1.
    """

    order: str
    criterion: str
    sample: int
    answer: Answer[Vote]


@dataclass(frozen=True, slots=True)
class CompareTask:
    """What a tier is asked about two texts.

    `words` is the tier whose instructions are given, `told` are the earlier opinions that the tiebreaker
    is shown.
    """

    rubric: CompareRubric
    comparison_input: ComparisonInput
    tier: TierName
    options: JudgeOptions
    words: TierName
    told: Sequence[EarlierOpinion] = ()

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model: a prompt for each order, for each criterion asked alone."""
        pairs = [(rubric, order) for rubric in self._asked().values() for order in ORDERS]
        if endpoint is not None and endpoint.pointwise:
            return [messages for pair in pairs for messages in self._points(*pair, endpoint, fence).prompts()]
        return [self._messages(*pair, endpoint) for pair in pairs]

    async def ask(self, endpoint: Endpoint, session: Session) -> list[Call]:
        """Return all calls of a model, by sample, by criterion, by order."""
        samples = self.options.samples_of(endpoint)
        numbers = range(1, samples + 1) if samples > 1 else (0,)
        calls = [
            partial(self._once, endpoint, session, order, criterion, number)
            for number in numbers
            for criterion in self._asked()
            for order in ORDERS
        ]
        return await gather_limited(calls, session, endpoint)

    def vote(self, calls: Sequence[Call]) -> Vote | None:
        """Return what all calls of a model come to; None where too many failed."""
        return of_calls([call.answer.value for call in calls], len(self._asked()))

    def cut(self, endpoint: Endpoint) -> str:
        """Return the letters of the texts that a model of the tier does not see whole."""
        return "".join(each for each in WINS if is_cut((self._part(endpoint, each, each),)))

    def readable(self, told: str) -> str:
        """Return what a model said with the letters of the texts, which users know, for their labels."""
        letters = {self.label(each): each for each in WINS}
        named = re.compile(rf"\b({'|'.join(map(re.escape, letters))})\b")
        return named.sub(lambda found: letters[found[0]], told)

    def label(self, letter: str) -> str:
        """Return what a text is called in prompts."""
        return self._labels[self.comparison_input.file(letter).sha256]

    def _asked(self) -> dict[str, CompareRubric]:
        return self.options.asked(self.rubric)

    async def _once(
        self, endpoint: Endpoint, session: Session, order: str, criterion: str, sample: int
    ) -> Call:
        compare_rubric, timeout = self._asked()[criterion], getattr(self.rubric.tiers, self.tier).timeout
        if endpoint.pointwise:
            points = self._points(compare_rubric, order, endpoint, session.fence, criterion)
            found = await ask_pointwise(session, endpoint, points, timeout)
            vote = found.map(lambda likely: Vote(_likelier(likely["better"], order)))
            return Call(order, criterion, sample, vote)
        ids = {label: each for each, label in self._labels.items()}
        question = Question(
            partial(self._messages, compare_rubric, order, endpoint),
            self.comparison_input.size,
            compare_reply_model(list(ids)),
            self._matter(order, criterion),
            REPLY_TOKENS,
            ids,
            sample,
        )
        reply = await run_round(session, endpoint, question, timeout)
        vote = reply.map(lambda said: Vote(self._word(ids.get(said.better)), visible(said.reasoning)))
        return Call(order, criterion, sample, vote)

    def _messages(self, rubric: CompareRubric, order: str, endpoint: Endpoint | None) -> tuple[Message, ...]:
        shown = [self._part(endpoint, each, self.label(each)) for each in order]
        return pair_messages(rubric, self.words, self.comparison_input.prompt, shown, self.told)

    def _points(
        self, rubric: CompareRubric, order: str, endpoint: Endpoint, fence: Fence, criterion: str = ""
    ) -> Points:
        """Return the question for one order, to a model that answers in one token."""
        shown = [self._part(endpoint, each, point) for each, point in zip(order, POINTS, strict=True)]
        return Points(
            f"{rubric.prompt.system} {fence.guard}",
            prompt.pair_context(fence, self.comparison_input.prompt, shown),
            {"better": point_question(rubric)},
            POINTS,
            self._matter(order, criterion),
        )

    def _part(self, endpoint: Endpoint | None, letter: str, label: str) -> Part:
        """Return one of the texts as a model sees it under a label: each gets half of the characters."""
        context_limit = endpoint.profile.limits.context_chars if endpoint else None
        limit = getattr(self.rubric.tiers, self.tier).max_chars
        file = self.comparison_input.file(letter)
        most = min(limit or CONTEXT_CHARS, context_limit or CONTEXT_CHARS) // len(WINS)
        return Part(label, file.text[:most], file.total)

    def _matter(self, order: str, criterion: str) -> CallKey:
        return CallKey(self.comparison_input.subject(order), self.rubric.ref, self.tier, criterion)

    @property
    def _labels(self) -> dict[str, str]:
        return pair_labels(
            self.comparison_input.prompt, [file.sha256 for file in self.comparison_input.files]
        )

    def _word(self, sha256: str | None) -> PairWord:
        return next((each for each in WINS if self.comparison_input.file(each).sha256 == sha256), "tie")


def _likelier(found: Mapping[str, float], order: str) -> PairWord:
    """Return the likelier of the two texts; a model that hardly leans to either says it is a tie."""
    first, second = (found[point] for point in POINTS)
    if max(first, second) < LEAST_LEANING:
        return "tie"
    return "A" if (first > second) == (order == ORDERS[0]) else "B"


def compare_round(
    number: int, tier: TierName, call: Call, readable: Callable[[str], str] = str
) -> CompareRound:
    """Return the record of one call about a pair, its reasons as `readable` makes them."""
    answer = call.answer
    vote = answer.value
    return CompareRound(
        round=number,
        tier=tier,
        model=answer.model,
        order=list(call.order),
        criterion=call.criterion or None,
        sample=call.sample or None,
        opinion={"better": vote.word, "reasoning": readable(vote.reasoning)} if vote else None,
        failure=answer.failure,
        latency_ms=answer.latency_ms,
        usage=Usage(**answer.usage._asdict()),
    )


@dataclass(slots=True)
class _Course:
    """The votes of the tiers that were asked, in order, and every call."""

    tier_votes: dict[TierName, TierVote] = field(default_factory=dict)
    rounds: list[CompareRound] = field(default_factory=list)

    def partial(self, comparison_input: ComparisonInput) -> set[TierName]:
        """Return the tiers of which only models of the family voted for a win that wrote the winner."""
        return {tier for tier, vote in self.tier_votes.items() if _is_partial(vote, comparison_input)}


@dataclass(frozen=True, slots=True)
class PairJudge(Judge[CompareRubric]):
    """Compares two texts."""

    async def judge(self, comparison_input: ComparisonInput) -> Comparison:
        """Return which is better; what failed on the way is in it, never raised."""
        comparison_input = comparison_input.written_by(self.written_by)
        # In a thread: it may ask local servers, or a proxy, of whom they are.
        judge = (
            await asyncio.to_thread(self.for_subject, comparison_input)
            if comparison_input.wrote and self.panel
            else self
        )
        return await PairJudge._judge(judge, comparison_input)

    def for_subject(self, comparison_input: ComparisonInput) -> PairJudge:
        """Return the judge without models that may favour one of the texts, where others are there."""
        told = comparison_input.written_by(self.written_by)
        return self.excluding_families(told.wrote, told.sided)

    async def _judge(self, comparison_input: ComparisonInput) -> Comparison:
        watch, session = Stopwatch(), self.session()
        try:
            sent, left_out = await session.aside(
                partial(redact.comparison_input, comparison_input, self.options), comparison_input.size
            )
        except GatewayError as error:
            return unprepared(comparison_input, self.loaded, self.mode, error, watch.ms)
        comparison_input = sent
        refusal = self.options.refusal(left_out)
        cut = {tier for tier in self.panel if self._is_cut(tier, comparison_input)}
        rules = self.rules(cut)
        state = _Course()
        same = len(comparison_input.distinct) == 1
        step = rules.next({}) if self.panel and not same and not refusal else UNDETERMINED
        while not isinstance(step, Final):
            await self._ask(step, comparison_input, state, session)
            rules = replace(rules, partial=state.partial(comparison_input))
            leads = {tier: vote.lead for tier, vote in state.tier_votes.items()}
            step = rules.next(outcomes(state.tier_votes), leads)
        outcome = identical(comparison_input) if same else ended(step, state.tier_votes, self.mode, rules)
        nobody = "" if same else refusal or self.nobody
        terms = terms_of(self, nobody, self._cuts(comparison_input, state), left_out, state.rounds)
        agreed = self._agreed(outcome, state)
        if not same:
            readable = CompareTask(self.rubric, comparison_input, "quick", self.options, "quick").readable
            agreed = replace(agreed, reasoning=readable(agreed.reasoning))
        found = comparison(comparison_input, terms, agreed, state.rounds, watch.ms)
        return redact.replies(found) if self.options.redact else found

    def prompts(
        self, tier: TierName, comparison_input: ComparisonInput, endpoint: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: a prompt for each order.

        Of several models that sit there `endpoint` is the one that is meant, the first where none is given.
        """
        comparison_input, left_out = redact.comparison_input(comparison_input, self.options)
        if self.options.refusal(left_out):
            return []
        first = endpoint or next(iter(self.models_by_tier.get(tier, ())), None)
        return self._preference(tier, comparison_input, _Course()).prompts(first, Fence())

    def _is_cut(self, tier: TierName, comparison_input: ComparisonInput) -> bool:
        return bool(self._cut(tier, comparison_input))

    def _cut(self, tier: TierName, comparison_input: ComparisonInput) -> str:
        """Return the texts of which some model of a tier does not see all."""
        task = self._preference(tier, comparison_input, _Course())
        found = {letter for endpoint in self.models_by_tier[tier] for letter in task.cut(endpoint)}
        return "".join(sorted(found))

    def _cuts(self, comparison_input: ComparisonInput, state: _Course) -> str:
        """Say which texts the tiers that were asked did not see whole; "" where they saw all."""
        cut = {tier: self._cut(tier, comparison_input) for tier in state.tier_votes}
        told = [f"{' and '.join(letters)} for {tier}" for tier, letters in cut.items() if letters]
        return f"cut: {', '.join(told)}" if told else ""

    def _preference(self, tier: TierName, comparison_input: ComparisonInput, state: _Course) -> CompareTask:
        compare_task = CompareTask(self.rubric, comparison_input, tier, self.options, tier)
        if tier != "tiebreaker":
            return compare_task
        heard = [each for each in state.tier_votes.values() if each.votes]
        told = [
            EarlierOpinion(
                None if vote.word == TIE else compare_task.label(vote.word), redact.words(vote.reasoning)
            )
            for one in heard
            for vote in one.votes
        ]
        # Where nobody disagrees the tiebreaker stands in for the deep tier, and is told what that is told.
        return replace(compare_task, words=tier if len(heard) > 1 else "deep", told=told)

    async def _ask(
        self, tier: TierName, comparison_input: ComparisonInput, state: _Course, session: Session
    ) -> None:
        """Ask every model of a tier, and note in `state` what each call brings and what they come to."""
        endpoints, task = self.models_by_tier[tier], self._preference(tier, comparison_input, state)
        asked = await gather_limited(
            [partial(task.ask, endpoint, session) for endpoint in endpoints], session
        )
        for call in (call for calls in asked for call in calls):
            state.rounds.append(compare_round(len(state.rounds) + 1, tier, call, task.readable))
        said = [(endpoint, task.vote(calls)) for endpoint, calls in zip(endpoints, asked, strict=True)]
        state.tier_votes[tier] = tier_vote(said, self.options.jury)

    def _agreed(self, found: Ended, state: _Course) -> Ended:
        """Return the end with the agreement that there is, and the families of the models behind it.

        Where nothing was settled these are the families behind what each tier said.
        """
        settled = found.tier is not None
        words = [one for one in state.tier_votes.values() if not settled or one.word == found.verdict]
        found = replace(found, families=tuple(sorted({each for word in words for each in word.behind})))
        if found.tier is None:
            return found
        consensus = state.tier_votes[found.tier].agreement or found.consensus
        if consensus == "unanimous" and any(word.agreement for word in words):
            consensus = "majority"
        # One model in two tiers is one voice, however often it agrees with itself.
        if len({endpoint.model for tier in state.tier_votes for endpoint in self.models_by_tier[tier]}) == 1:
            consensus = "single"
        return replace(found, consensus=consensus)


def _is_partial(vote: TierVote, comparison_input: ComparisonInput) -> bool:
    if vote.word is None or vote.word == TIE:
        return False
    return bool(vote.behind) and vote.behind <= set(comparison_input.families(vote.word)) & set(
        comparison_input.sided
    )
