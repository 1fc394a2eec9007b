"""The task `compare`: which of two texts is better, asked in both orders of every model."""

from __future__ import annotations

import hashlib
import random
import re
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import TIE
from judgekit.judging import outgoing, panel, prompt
from judgekit.judging.documents import CONTEXT_CHARS, LEAST, ComparisonInput, Part, is_cut
from judgekit.judging.fence import Fence, labels
from judgekit.judging.jury import (
    ORDERS,
    WINS,
    TierVote,
    Vote,
    favourite,
    of_calls,
    outcomes,
    tier_vote,
)
from judgekit.judging.orchestrator import Judge
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.question import AnyRubric, ModelTurn, TierQuestion
from judgekit.judging.round import Answer, Calls, Session, run_round
from judgekit.judging.verdict import CompareRound, Comparison, Consensus, Contestant, failures
from judgekit.providers.base import CallKey, Endpoint, Messages, Reply, Request
from judgekit.redaction import redact
from judgekit.replies.forms import CompareReply, compare_reply_model
from judgekit.rubric.schema import CompareRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.escalation import EscalationRules, Final
    from judgekit.judging.state import JudgingState

    Compared: TypeAlias = JudgingState[ComparisonInput]
    # Another model's choice, by its label, and its reasoning.
    Told: TypeAlias = tuple[str | None, str]
    SubjectScore: TypeAlias = tuple[float, TierName]


class ComparisonResult(NamedTuple):
    """The end of a comparison: the word, by how much, the tier that settled it, the families behind it."""

    verdict: str = "undetermined"
    consensus: Consensus = "none"
    judge_tier: TierName | None = None
    lead: float | None = None
    reasoning: str = ""
    degraded: str | None = None
    truncated: bool = False
    families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonJudge(Judge[AnyRubric, ComparisonInput, Comparison]):
    def attributed(self, subject: ComparisonInput) -> ComparisonInput:
        return subject.written_by(self.settings.author_family)

    def redacted(self, subject: ComparisonInput) -> tuple[ComparisonInput, int]:
        if not self.settings.redact:
            return subject, 0
        question = redact.redact(subject.prompt)
        secrets = question.secrets
        files = []
        for file in subject.files:
            clean, count = outgoing.redact_file(file)
            files.append(clean)
            secrets += count
        return replace(subject, prompt=question.text, files=tuple(files)), secrets

    def examine(self, state: Compared) -> None:
        if len(state.subject.distinct) == 1:
            state.refused = "no model compares a text with itself"

    def comparison(
        self,
        state: Compared,
        result: ComparisonResult,
        note: str = "",
        scores: Mapping[str, SubjectScore] = {},
    ) -> Comparison:
        """Return the record; `scores` holds the mean of each subject and the name of its last tier."""
        subject = state.subject
        rounds = state.rounds
        not_judged = None
        if len(subject.distinct) == 1:
            texts = "two texts" if len(subject.files) == LEAST else "texts"
            result = ComparisonResult(TIE, lead=0.0, reasoning=f"The {texts} are the same.")
        elif not rounds and (reason := state.refused or self.settings.no_model_reason):
            not_judged = f"not judged: {reason}"
        result = self._refuse_own_family(result, subject)
        degraded = [
            not_judged,
            result.degraded,
            failures(rounds),
            note,
            self.settings.calibration_warning,
        ]
        asked = set()
        for row in rounds:
            for endpoint in self.models_by_tier[row.tier]:
                asked.add(endpoint.profile.provider)
        question = subject.prompt.encode("utf-8", "surrogatepass")
        record = Comparison(
            id=uuid.uuid4().hex,
            subjects=_contestants(subject, scores),
            question_sha256=hashlib.sha256(question).hexdigest(),
            verdict=result.verdict,
            consensus=result.consensus,
            judge_tier=result.judge_tier,
            lead=None if result.lead is None else round(result.lead, 4),
            reasoning=result.reasoning,
            degraded="; ".join(filter(None, degraded)) or None,
            truncated=result.truncated,
            families=result.families,
            independent=panel.is_independent(subject.wrote, result.families),
            redacted=state.secrets if rounds else 0,
            substitutes=sorted(asked & self.settings.replacement_providers),
            timestamp=datetime.now(UTC),
            **state.measured(self.settings),
        )
        if self.settings.redact:
            return outgoing.redact_replies(record)
        return record

    def _refuse_own_family(
        self, result: ComparisonResult, subject: ComparisonInput
    ) -> ComparisonResult:
        """Return the result; a win by the winner's own family alone is none, if it has to be another's."""
        if result.verdict not in tuple(subject.letters):
            return result
        reason = panel.lacking(
            self.settings.independence, subject.families(result.verdict), result.families
        )
        if reason is None:
            return result
        return ComparisonResult(
            degraded="; ".join(filter(None, (reason, result.degraded))),
            truncated=result.truncated,
            families=result.families,
        )


def _contestants(subject: ComparisonInput, scores: Mapping[str, SubjectScore]) -> list[Contestant]:
    contestants = []
    for letter, file in zip(subject.letters, subject.files, strict=True):
        mean = None
        tier = None
        if letter in scores:
            mean, tier = scores[letter]
            mean = round(mean, 4)
        contestant = Contestant(
            letter=letter,
            path=file.path,
            sha256=file.sha256,
            family=", ".join(subject.families(letter)) or None,
            score=mean,
            tier=tier,
        )
        contestants.append(contestant)
    return contestants


REPLY_TOKENS = 1024
LEAST_LEANING = 0.55  # of a pointwise model: the probability from which on a text is preferred
# What a pointwise model calls the two, in the order of its prompt.
FIRST, SECOND = POINTS = (
    "1",
    "2",
)


def pair_messages(
    rubric: CompareRubric,
    tier: TierName,
    question: str,
    shown: Sequence[Part],
    earlier: Sequence[Told] = (),
) -> Messages:
    """Return the messages that ask which of `shown` is better; their paths are labels."""
    fence = Fence()
    offered = [part.path for part in shown]
    # In which order a jury's models are named plays no part.
    told = sorted(earlier, key=lambda opinion: (opinion[0] or "", opinion[1]))
    random.Random("".join(sorted(offered))).shuffle(told)  # noqa: S311 - an order, not a secret
    answer = f'{{"reasoning": "<what decided it>", "better": "<{" or ".join([*offered, TIE])}>"}}'
    rules = [getattr(rubric.prompt.instructions, tier), _criteria_text(rubric)]
    blocks = [prompt.pair_context(fence, question, shown)]
    if told:
        blocks.append("Earlier opinions, in no order:")
    for better, reasoning in told:
        blocks.append(fence.around(f"better: {better or TIE}\n{reasoning}"))
    blocks.append(f"{prompt.ANSWER}\n{answer}")
    return prompt.messages(rubric.prompt.system, rules, fence, blocks)


def _criteria_text(rubric: CompareRubric) -> str:
    asked = []
    for name, text in rubric.criteria.items():
        asked.append(f"- {name}: {text}")
    return "\n".join(["Questions, the most important first:", *asked])


@dataclass(frozen=True)
class CompareQuestion(TierQuestion[CompareRubric, ComparisonInput, Vote, Vote]):
    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        pairs = []
        for rubric in self.rubrics_by_part.values():
            for order in ORDERS:
                pairs.append((rubric, order))
        if endpoint is not None and endpoint.pointwise:
            return [
                messages
                for pair in pairs
                for messages in self._points(*pair, endpoint, fence).prompts()
            ]
        return [self._messages(*pair, endpoint) for pair in pairs]

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Vote]:
        once = partial(self._once, endpoint, session, sample)
        return [partial(once, *each) for each in product(self.rubrics_by_part, ORDERS)]

    def opinion(self, samples: Sequence[Sequence[Vote | None]]) -> Vote | None:
        return of_calls([vote for sample in samples for vote in sample], len(self.rubrics_by_part))

    def combine(self, voices: Sequence[tuple[Endpoint, Vote | None]]) -> TierVote:
        return tier_vote(voices, self.settings.jury)

    def record(self, opinion: Vote) -> dict[str, Any]:
        return {"better": opinion.word, "reasoning": self.readable(opinion.reasoning)}

    def rounds(self, first: int, turns: Sequence[ModelTurn[Vote]]) -> list[CompareRound]:
        found: list[CompareRound] = []
        for turn in turns:
            samples = len(turn.calls) // (len(self.rubrics_by_part) * len(ORDERS))
            numbers: Sequence[int | None] = range(1, samples + 1) if samples > 1 else [None]
            about = product(numbers, self.rubrics_by_part, ORDERS)
            for (sample, criterion, order), answer in zip(about, turn.calls, strict=True):
                more = {
                    "criterion": criterion or None,
                    "sample": sample,
                    **answer.record(self.record),
                }
                found.append(
                    CompareRound(round=first + len(found), tier=self.tier, order=[*order], **more)
                )
        return found

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
        self, endpoint: Endpoint, session: Session, sample: int, criterion: str, order: str
    ) -> Answer[Vote]:
        rubric = self.rubrics_by_part[criterion]
        if endpoint.pointwise:
            return await self._ask_pointwise(endpoint, session, criterion, order)
        hashes = {label: sha256 for sha256, label in self._labels.items()}
        letters = {self.label(letter): letter for letter in WINS}
        request = Request(
            messages=(),
            call_key=self._key(criterion, order),
            timeout=self.limits.timeout,
            max_tokens=REPLY_TOKENS,
            labels=hashes,
            sample=sample,
        )

        def read_vote(reply: CompareReply, _: Reply) -> Vote:
            return Vote(letters.get(reply.better, "tie"), visible(reply.reasoning))

        return await run_round(
            session,
            endpoint,
            request,
            messages=partial(self._messages, rubric, order, endpoint),
            size=self.subject.size,
            form=compare_reply_model(list(hashes)),
            value=read_vote,
        )

    async def _ask_pointwise(
        self, endpoint: Endpoint, session: Session, criterion: str, order: str
    ) -> Answer[Vote]:
        points = self._points(
            self.rubrics_by_part[criterion], order, endpoint, session.fence, criterion
        )
        answer = await ask_pointwise(session, endpoint, points, self.limits.timeout)
        vote = None
        if answer.value:
            first = answer.value["better"][FIRST]
            second = answer.value["better"][SECOND]
            if max(first, second) < LEAST_LEANING:
                vote = Vote("tie")
            elif (first > second) == (order == ORDERS[0]):
                vote = Vote("A")
            else:
                vote = Vote("B")
        return Answer(
            value=vote,
            failure=answer.failure,
            usage=answer.usage,
            latency_ms=answer.latency_ms,
            model=answer.model,
        )

    def _key(self, criterion: str, order: str) -> CallKey:
        return CallKey(self.subject.shown_sha256(order), self.rubric.ref, self.tier, criterion)

    def _messages(self, rubric: CompareRubric, order: str, endpoint: Endpoint | None) -> Messages:
        shown = [self.part(endpoint, letter, self.label(letter)) for letter in order]
        return pair_messages(
            rubric,
            self.instructions_tier or self.tier,
            self.subject.prompt,
            shown,
            self.earlier_opinions,
        )

    def _points(
        self,
        rubric: CompareRubric,
        order: str,
        endpoint: Endpoint,
        fence: Fence,
        criterion: str = "",
    ) -> Points:
        shown = []
        for letter, point in zip(order, POINTS, strict=True):
            shown.append(self.part(endpoint, letter, point))
        ask = f"Which of the two texts is better, {FIRST} or {SECOND}? Answer with one number."
        return Points(
            f"{rubric.prompt.system} {fence.guard}",
            prompt.pair_context(fence, self.subject.prompt, shown),
            {"better": f"{_criteria_text(rubric)}\n{ask}"},
            POINTS,
            self._key(criterion, order),
        )

    def part(self, endpoint: Endpoint | None, letter: str, label: str) -> Part:
        """Return one of the texts as a model sees it under a label: each gets half of the characters."""
        context_limit = endpoint.profile.limits.context_chars if endpoint else None
        file = self.subject.file(letter)
        most = min(self.limits.max_chars or CONTEXT_CHARS, context_limit or CONTEXT_CHARS) // len(
            WINS
        )
        return Part(label, file.text[:most], file.total)


@dataclass(frozen=True, slots=True)
class PairJudge(ComparisonJudge[CompareRubric]):
    def examine(self, state: Compared) -> None:
        ComparisonJudge.examine(self, state)
        state.cut = self.cut(state)

    def question(self, tier: TierName, state: Compared) -> CompareQuestion:
        compare_question = CompareQuestion(self.settings, state.subject, tier)
        if tier != "tiebreaker":
            return compare_question
        heard = [tier_vote for tier_vote in state.opinions.values() if tier_vote.votes]
        votes = [vote for tier_vote in heard for vote in tier_vote.votes]
        label = compare_question.label
        told = []
        for one in votes:
            told.append((None if one.word == TIE else label(one.word), redact.words(one.reasoning)))
        # Without a disagreement the tiebreaker stands in for the deep tier, with its instructions.
        instructions: TierName = tier if len(heard) > 1 else "deep"
        return replace(compare_question, instructions_tier=instructions, earlier_opinions=told)

    def step(self, state: Compared) -> TierName | Final:
        leads = {tier: tier_vote.lead for tier, tier_vote in state.opinions.items()}
        return self._rules(state).next(outcomes(state.opinions), leads)

    def _rules(self, state: Compared) -> EscalationRules:
        """Return the rules; a win that only models of the winner's own family voted for is not final."""
        subject = state.subject
        votes = state.opinions
        own: set[TierName] = set()
        for tier, vote in votes.items():
            if vote.word in WINS:
                favouring = set(subject.families(vote.word)) & set(subject.families_of_some_texts)
            else:
                favouring = set()
            if vote.behind and vote.behind <= favouring:
                own.add(tier)
        return replace(self.settings.escalation_rules(state.cut), partial=own)

    def record(self, state: Compared, final: Final) -> Comparison:
        votes: dict[TierName, TierVote] = state.opinions
        end = decide(final, votes, self.settings.mode, self._rules(state))
        # One model in two tiers is one voice, however often it agrees with itself.
        if (
            end.judge_tier
            and len({endpoint.model for tier in votes for endpoint in self.models_by_tier[tier]})
            == 1
        ):
            end = end._replace(consensus="single")
        end = end._replace(reasoning=self.question("quick", state).readable(end.reasoning))
        cut = [
            f"{letters} for {tier}" for tier, letters in self.cut(state).items() if tier in votes
        ]
        return self.comparison(state, end, f"cut: {', '.join(cut)}" if cut else "")

    def cut(self, state: Compared) -> dict[TierName, str]:
        """Return by tier, which texts some model of it does not see whole."""
        found: dict[TierName, str] = {}
        for tier, models in self.models_by_tier.items():
            part = CompareQuestion(self.settings, state.subject, tier).part
            shown = {}
            for letter in WINS:
                shown[letter] = [part(model, letter, letter) for model in models]
            found[tier] = " and ".join(
                letter for letter, parts in shown.items() if is_cut(tuple(parts))
            )
        return {tier: letters for tier, letters in found.items() if letters}


def decide(
    final: Final, votes: Mapping[TierName, TierVote], mode: ModeName, rules: EscalationRules
) -> ComparisonResult:
    """Return the end of a comparison to which the rules led, with what they know of the tiers."""
    first = favourite(votes)
    other = WINS[first == "A"] if first else None
    words = {"accept": first, "reject": other, "improve": TIE}
    word = words.get(final.verdict) or final.verdict
    tier = final.tier
    consensus = final.consensus
    if mode == "lenient" and final.verdict == "improve":
        winning_tier = _win_that_stands(tier, votes, rules)
        if winning_tier is not None:
            word = str(first)
            tier = winning_tier
            consensus = "single"
    leading_word = first if final.verdict == "undetermined" else word
    if leading_word is not None and _only_cut_tiers(leading_word, votes, rules):
        return ComparisonResult(
            degraded="no model saw the whole of both texts, so the result is open",
            truncated=bool(rules.truncated),
            families=_families(votes.values()),
        )
    if tier is None:
        return ComparisonResult(
            verdict=word,
            consensus=consensus,
            truncated=bool(rules.truncated),
            families=_families(votes.values()),
        )
    behind = [vote for vote in votes.values() if vote.word == word]
    consensus = votes[tier].agreement or consensus
    if consensus == "unanimous" and any(vote.agreement for vote in behind):
        consensus = "majority"
    return ComparisonResult(
        verdict=word,
        consensus=consensus,
        judge_tier=tier,
        lead=votes[tier].lead,
        reasoning=votes[tier].reasoning,
        truncated=tier in rules.truncated,
        families=_families(behind),
    )


def _win_that_stands(
    tier: TierName | None, votes: Mapping[TierName, TierVote], rules: EscalationRules
) -> TierName | None:
    """Return the tier whose win the tie of the next one, `tier`, does not undo in lenient mode.

    Labels must allow it, and the win may rest neither on a cut text nor on none but the winner's own family.
    """
    if rules.finality is None or tier is None:
        return None
    barred = {*rules.truncated, *rules.partial}
    leads = {name: vote.lead for name, vote in votes.items() if name not in barred}
    return rules.finality.stands(tier, outcomes(votes), leads)


def _only_cut_tiers(word: str, votes: Mapping[TierName, TierVote], rules: EscalationRules) -> bool:
    """Whether some tier voted for a word, and each of those did not see the whole of both texts."""
    tiers = [tier for tier, vote in votes.items() if vote.word == word]
    return bool(tiers) and all(tier in rules.truncated for tier in tiers)


def _families(votes: Iterable[TierVote]) -> tuple[str, ...]:
    """Return the families behind votes, in order of the alphabet."""
    families: set[str] = set()
    for vote in votes:
        families |= vote.behind
    return tuple(sorted(families))
