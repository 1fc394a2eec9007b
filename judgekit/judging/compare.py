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
from judgekit.judging.escalation import UNDETERMINED, EscalationRules, Final
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
from judgekit.judging.orchestrator import AnyRubric, Judge, JudgingState, ModelTurn, TierQuestion
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.round import Answer, Calls, Session, run_round
from judgekit.judging.verdict import CompareRound, Comparison, Consensus, Contestant, failures
from judgekit.providers.base import CallKey, Endpoint, Messages, Request
from judgekit.redaction import redact
from judgekit.replies.forms import compare_reply_model
from judgekit.rubric.schema import CompareRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import ModeName, TierName

    Compared: TypeAlias = JudgingState[ComparisonInput]
    Told: TypeAlias = tuple[
        str | None, str
    ]  # another model's choice, by its label, and its reasoning
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
        return subject.written_by(self.written_by)

    def redacted(self, subject: ComparisonInput) -> tuple[ComparisonInput, int]:
        if not self.options.redact:
            return subject, 0
        question = redact.redact(subject.prompt)
        files = [outgoing.redact_file(file) for file in subject.files]
        secrets = question.secrets + sum(count for _, count in files)
        return replace(
            subject, prompt=question.text, files=tuple(file for file, _ in files)
        ), secrets

    async def run(self, state: Compared) -> Comparison:
        if len(state.subject.distinct) == 1:  # no model compares a text with itself
            return self.record(state, UNDETERMINED)
        return await Judge.run(self, state)

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
        reason = state.refused or self.no_model_reason
        if len(subject.distinct) == 1:
            if len(subject.files) == LEAST:
                few = "two texts"
            else:
                few = "texts"
            reason = ""
            result = ComparisonResult(TIE, lead=0.0, reasoning=f"The {few} are the same.")
        if result.verdict in tuple(subject.letters):
            # A win by the winner's own family alone is none, if it has to be another's.
            why = panel.lacking(
                self.independence, subject.families(result.verdict), result.families
            )
            if why is not None:
                why = "; ".join(filter(None, (why, result.degraded)))
                result = ComparisonResult(
                    degraded=why, truncated=result.truncated, families=result.families
                )
        if reason and not rounds:
            nothing = f"not judged: {reason}"
        else:
            nothing = None
        degraded = [nothing, result.degraded, failures(rounds), note, self.calibration_warning]
        asked = set()
        for own in rounds:
            for endpoint in self.panel[own.tier]:
                asked.add(endpoint.profile.provider)
        if result.lead is None:
            lead = None
        else:
            lead = round(result.lead, 4)
        subjects = []
        for letter, file in zip(subject.letters, subject.files, strict=True):
            subjects.append(
                Contestant(
                    letter=letter,
                    path=file.path,
                    sha256=file.sha256,
                    family=", ".join(subject.families(letter)) or None,
                    score=round(scores[letter][0], 4) if letter in scores else None,
                    tier=scores[letter][1] if letter in scores else None,
                )
            )
        question_sha256 = hashlib.sha256(
            subject.prompt.encode("utf-8", "surrogatepass")
        ).hexdigest()
        independent = panel.is_independent(subject.wrote, result.families)
        record = Comparison(
            id=uuid.uuid4().hex,
            subjects=subjects,
            question_sha256=question_sha256,
            **result._replace(
                lead=lead, degraded="; ".join(filter(None, degraded)) or None
            )._asdict(),
            independent=independent,
            redacted=state.secrets if rounds else 0,
            substitutes=sorted(asked & self.replacement_providers),
            timestamp=datetime.now(UTC),
            **self.measured(state),
        )
        return outgoing.redact_replies(record) if self.options.redact else record


REPLY_TOKENS = 1024
LEAST_LEANING = 0.55  # of a pointwise model: the probability from which on a text is preferred
FIRST, SECOND = POINTS = (
    "1",
    "2",
)  # what a pointwise model calls the two, in the order of its prompt


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
    blocks = [
        prompt.pair_context(fence, question, shown),
        *(["Earlier opinions, in no order:"] if told else []),
        *(fence.around(f"better: {better or TIE}\n{reasoning}") for better, reasoning in told),
        f"{prompt.ANSWER}\n{answer}",
    ]
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
        for rubric in self.parts.values():
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
        return [partial(once, *each) for each in product(self.parts, ORDERS)]

    def opinion(self, samples: Sequence[Sequence[Vote | None]]) -> Vote | None:
        return of_calls([vote for sample in samples for vote in sample], len(self.parts))

    def combine(self, voices: Sequence[tuple[Endpoint, Vote | None]]) -> TierVote:
        return tier_vote(voices, self.options.jury)

    def record(self, opinion: Vote) -> dict[str, Any]:
        return {"better": opinion.word, "reasoning": self.readable(opinion.reasoning)}

    def rounds(self, first: int, turns: Sequence[ModelTurn[Vote]]) -> list[CompareRound]:
        found: list[CompareRound] = []
        for turn in turns:
            samples = len(turn.calls) // (len(self.parts) * len(ORDERS))
            numbers: Sequence[int | None] = range(1, samples + 1) if samples > 1 else [None]
            about = product(numbers, self.parts, ORDERS)
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
        rubric = self.parts[criterion]
        timeout = self.limits.timeout
        if endpoint.pointwise:
            points = self._points(rubric, order, endpoint, session.fence, criterion)
            answer = await ask_pointwise(session, endpoint, points, timeout)
            vote = None
            if answer.value:
                first, second = (answer.value["better"][point] for point in POINTS)
                leans = max(first, second) >= LEAST_LEANING
                vote = Vote(
                    ("A" if (first > second) == (order == ORDERS[0]) else "B") if leans else "tie"
                )
            return Answer(vote, answer.failure, answer.usage, answer.latency_ms, answer.model)
        hashes = {label: sha256 for sha256, label in self._labels.items()}
        letters = {self.label(letter): letter for letter in WINS}
        key = CallKey(self.subject.shown_sha256(order), self.rubric.ref, self.tier, criterion)
        return await run_round(
            session,
            endpoint,
            Request((), key, timeout, REPLY_TOKENS, labels=hashes, sample=sample),
            partial(self._messages, rubric, order, endpoint),
            self.subject.size,
            compare_reply_model(list(hashes)),
            lambda reply, _: Vote(letters.get(reply.better, "tie"), visible(reply.reasoning)),
        )

    def _messages(self, rubric: CompareRubric, order: str, endpoint: Endpoint | None) -> Messages:
        shown = [self.part(endpoint, letter, self.label(letter)) for letter in order]
        return pair_messages(rubric, self.words or self.tier, self.subject.prompt, shown, self.told)

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
            CallKey(self.subject.shown_sha256(order), self.rubric.ref, self.tier, criterion),
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
    async def run(self, state: Compared) -> Comparison:
        state.cut = self.cut(state)
        return await ComparisonJudge.run(self, state)

    def question(self, tier: TierName, state: Compared) -> CompareQuestion:
        compare_question = CompareQuestion(
            self.rubric, self.mode, state.subject, tier, self.options
        )
        if tier != "tiebreaker":
            return compare_question
        heard = [tier_vote for tier_vote in state.opinions.values() if tier_vote.votes]
        votes = [vote for tier_vote in heard for vote in tier_vote.votes]
        label = compare_question.label
        told = []
        for one in votes:
            told.append((None if one.word == TIE else label(one.word), redact.words(one.reasoning)))
        # Without a disagreement the tiebreaker stands in for the deep tier, with its instructions.
        return replace(compare_question, words=tier if len(heard) > 1 else "deep", told=told)

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
        return replace(self.rules(state.cut), partial=own)

    def record(self, state: Compared, final: Final) -> Comparison:
        votes: dict[TierName, TierVote] = state.opinions
        end = decide(final, votes, self.mode, self._rules(state))
        # One model in two tiers is one voice, however often it agrees with itself.
        if (
            end.judge_tier
            and len({endpoint.model for tier in votes for endpoint in self.panel[tier]}) == 1
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
        for tier, models in self.panel.items():
            part = CompareQuestion(self.rubric, self.mode, state.subject, tier).part
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
    words = {"accept": first, "reject": WINS[first == "A"] if first else None, "improve": TIE}
    word = words.get(final.verdict) or final.verdict
    tier = final.tier
    consensus = final.consensus
    why = None
    # In lenient mode the tie of the next tier does not undo a win, where labels allow it and the win neither
    # rests on a cut text nor on none but the winner's own family.
    if (
        mode == "lenient"
        and rules.finality is not None
        and final.verdict == "improve"
        and tier is not None
    ):
        barred = {*rules.truncated, *rules.partial}
        leads = {}
        for name, vote in votes.items():
            if name not in barred:
                leads[name] = vote.lead
        winner = rules.finality.stands(tier, outcomes(votes), leads)
        if winner is not None:
            word = str(first)
            tier = winner
            consensus = "single"
    said = first if final.verdict == "undetermined" else word
    sayers = []
    for name, vote in votes.items():
        if vote.word == said and said is not None:
            sayers.append(name)
    if sayers and all(sayer in rules.truncated for sayer in sayers):
        word = "undetermined"
        tier = None
        consensus = "none"
        why = "no model saw the whole of both texts, so the result is open"
    # Where nothing was settled the families are those behind the votes of each tier.
    behind = []
    for vote in votes.values():
        if tier is None or vote.word == word:
            behind.append(vote)
    families = tuple(sorted({family for vote in behind for family in vote.behind}))
    if tier is None:
        return ComparisonResult(
            word, consensus, None, None, "", why, bool(rules.truncated), families
        )
    consensus = votes[tier].agreement or consensus
    if consensus == "unanimous" and any(vote.agreement for vote in behind):
        consensus = "majority"
    cut = tier in rules.truncated
    lead = votes[tier].lead
    reasoning = votes[tier].reasoning
    return ComparisonResult(word, consensus, tier, lead, reasoning, None, cut, families)
