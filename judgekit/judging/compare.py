"""The task `compare`: which of two texts is better, asked in both orders of every model."""

from __future__ import annotations

import hashlib
import random
import re
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import TIE
from judgekit.judging import decisions, independence, outgoing, prompt
from judgekit.judging.decisions import State
from judgekit.judging.documents import (
    LEAST_TEXTS,
    ComparisonInput,
    VisibleFile,
    characters_seen,
    is_cut,
)
from judgekit.judging.evidence import Evidence, read_pair
from judgekit.judging.fence import Fence, labels
from judgekit.judging.finality import DIGITS
from judgekit.judging.jury import (
    ORDERS,
    WINS,
    TierVote,
    Vote,
    favourite,
    of_calls,
    tier_vote,
)
from judgekit.judging.orchestrator import Judge
from judgekit.judging.pointwise import PointwiseQuestions, ask_pointwise
from judgekit.judging.question import AnyRubric, ModelTurn, TierQuestion
from judgekit.judging.round import Answer, Calls, Session, joined, run_round
from judgekit.judging.rows import find_families, independence_problem
from judgekit.judging.steps import CUT_TEXTS, EQUAL_TEXTS, OWN_FAMILY, End, EscalationRules
from judgekit.judging.verdict import CompareRound, Comparison, Contestant, failures
from judgekit.providers.base import CallKey, Endpoint, Messages, Reply, Request
from judgekit.redaction import redact
from judgekit.replies.forms import CompareReply, compare_reply_model
from judgekit.rubric.schema import CompareRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import Outcome, TierName
    from judgekit.judging.jury import PairWord
    from judgekit.judging.state import JudgingState
    from judgekit.providers.decisions import DecisionQuestion

    Compared: TypeAlias = JudgingState[ComparisonInput]
    # Another model's choice, by its label, and its reasoning.
    EarlierOpinion: TypeAlias = tuple[str | None, str]
    SubjectScore: TypeAlias = tuple[float, TierName]


class ComparisonResult(NamedTuple):
    """What a record says of the end of a comparison, beside its verdict: by how much, why, what it lacks."""

    verdict: str = "undetermined"
    lead: float | None = None
    reasoning: str = ""
    degraded: str | None = None
    truncated: bool = False
    families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonJudge(Judge[AnyRubric, ComparisonInput, Comparison]):
    """Compares texts: what pairs and rankings have in common."""

    def attributed(self, subject: ComparisonInput) -> ComparisonInput:
        return subject.written_by(self.settings.author_family)

    def redacted(self, subject: ComparisonInput) -> tuple[ComparisonInput, int]:
        if not self.settings.redact:
            return subject, 0
        prompt_text, secrets = redact.redact(subject.prompt)
        files = []
        for file in subject.files:
            redacted_file, secrets_of_file = outgoing.redact_file(file)
            files.append(redacted_file)
            secrets += secrets_of_file
        return replace(subject, prompt=prompt_text, files=tuple(files)), secrets

    def note_refusal_and_cuts(self, state: Compared) -> None:
        if state.subject.is_one_text:
            state.refused = "no model compares a text with itself"

    def comparison(
        self,
        state: Compared,
        end: End,
        result: ComparisonResult,
        note: str = "",
        scores: Mapping[str, SubjectScore] = {},
    ) -> Comparison:
        """Return the record of what the tiers came to; equal texts are a tie, whatever that was.

        `scores` holds by letter the mean of a subject and the tier that gave it. `note` joins the other
        reasons of `degraded`.
        """
        subject = state.subject
        if subject.is_one_text:
            end = EQUAL_TEXTS
            result = _tie_of_equal_texts(subject)
        degradations = [
            self._why_not_judged(state),
            result.degraded,
            failures(state.rounds),
            note,
            self.settings.calibration_warning,
        ]
        # A prompt may hold half a surrogate pair, which UTF-8 alone would refuse.
        prompt_bytes = subject.prompt.encode("utf-8", "surrogatepass")
        comparison = Comparison(
            subjects=_contestants(subject, scores),
            question_sha256=hashlib.sha256(prompt_bytes).hexdigest(),
            verdict=result.verdict,
            consensus=end.consensus,
            because=end.because,
            judge_tier=end.tier,
            lead=None if result.lead is None else round(result.lead, DIGITS),
            reasoning=result.reasoning,
            degraded="; ".join(filter(None, degradations)) or None,
            truncated=result.truncated,
            families=result.families,
            independent=independence.is_independent(subject.author_families, result.families),
            **state.verdict_fields(self.settings),
        )
        if self.settings.redact:
            return outgoing.redact_replies(comparison)
        return comparison

    def _why_not_judged(self, state: Compared) -> str | None:
        """Return why no model was asked; None where one was, and where equal texts need none."""
        if state.rounds or state.subject.is_one_text:
            return None
        reason = state.refused or self.settings.no_model_reason
        return f"not judged: {reason}" if reason else None

    def families(self, state: Compared, end: End) -> tuple[str, ...]:
        """Return the families behind an end, in order of the alphabet."""
        return tuple(sorted(find_families(self.evidence(state), self.rules(state), end)))

    def refused_result(self, state: Compared, end: End, *, truncated: bool) -> ComparisonResult:
        """Return the result of a win by the winner's own family alone, if somebody else is to decide."""
        return ComparisonResult(
            degraded=independence_problem(
                self.evidence(state), self.rules(state), end.overruled or end
            ),
            truncated=truncated,
            families=self.families(state, end),
        )


def _tie_of_equal_texts(subject: ComparisonInput) -> ComparisonResult:
    texts = "two texts" if len(subject.files) == LEAST_TEXTS else "texts"
    return ComparisonResult(verdict=TIE, lead=0.0, reasoning=f"The {texts} are the same.")


def _contestants(subject: ComparisonInput, scores: Mapping[str, SubjectScore]) -> list[Contestant]:
    """Return the subjects as a record has them, with the scores of those that have one."""
    contestants = []
    for letter, file in zip(subject.letters, subject.files, strict=True):
        score = None
        tier = None
        if letter in scores:
            mean, tier = scores[letter]
            score = round(mean, DIGITS)
        contestant = Contestant(
            letter=letter,
            path=file.path,
            sha256=file.sha256,
            family=", ".join(subject.families(letter)) or None,
            score=score,
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
    texts: Sequence[VisibleFile],
    earlier: Sequence[EarlierOpinion] = (),
) -> Messages:
    """Return the messages that ask which of two texts is better; their paths are labels."""
    fence = Fence()
    labels_of_texts = [text.path for text in texts]
    # In which order a jury's models are named plays no part.
    opinions = sorted(earlier, key=lambda opinion: (opinion[0] or "", opinion[1]))
    random.Random("".join(sorted(labels_of_texts))).shuffle(opinions)  # noqa: S311 - an order, not a secret
    choices = " or ".join([*labels_of_texts, TIE])
    answer = f'{{"reasoning": "<what decided it>", "better": "<{choices}>"}}'
    rules = [getattr(rubric.prompt.instructions, tier), _criteria_text(rubric)]
    blocks = [prompt.pair_context(fence, question, texts)]
    if opinions:
        blocks.append("Earlier opinions, in no order:")
    for better, reasoning in opinions:
        blocks.append(fence.around(f"better: {better or TIE}\n{reasoning}"))
    blocks.append(f"{prompt.ANSWER}\n{answer}")
    return prompt.messages(rubric.prompt.system, rules, fence, blocks)


def _criteria_text(rubric: CompareRubric) -> str:
    lines = ["Questions, the most important first:"]
    for name, text in rubric.criteria.items():
        lines.append(f"- {name}: {text}")
    return "\n".join(lines)


@dataclass(frozen=True)
class CompareQuestion(TierQuestion[CompareRubric, ComparisonInput, Vote, Vote]):
    """What a tier is asked about two texts: which is better, for each part of the rubric in both orders."""

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        prompts = []
        for rubric, order in product(self.rubrics_by_part.values(), ORDERS):
            if endpoint is not None and endpoint.decides:
                state = _state_of(self._pointwise_questions(rubric, order, endpoint, fence))
                prompts.append(decisions.shown(state, [_pair_question(rubric)]))
            elif endpoint is not None and endpoint.pointwise:
                prompts += self._pointwise_questions(rubric, order, endpoint, fence).prompts()
            else:
                prompts.append(self._messages(rubric, order, endpoint))
        return prompts

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Vote]:
        """Return a call for each part of the rubric in each order; `rounds` counts on this order of calls."""
        calls: Calls[Vote] = []
        for part, order in product(self.rubrics_by_part, ORDERS):
            if endpoint.decides:
                call = partial(self._ask_decisions, endpoint, session, part, order)
            elif endpoint.pointwise:
                call = partial(self._ask_pointwise, endpoint, session, part, order)
            else:
                call = partial(self._ask, endpoint, session, sample, part, order)
            calls.append(call)
        return calls

    def opinion(self, samples: Sequence[Sequence[Vote | None]]) -> Vote | None:
        return of_calls([vote for sample in samples for vote in sample], len(self.rubrics_by_part))

    def combine(self, voices: Sequence[tuple[Endpoint, Vote | None]]) -> TierVote:
        return tier_vote(voices, self.settings.jury)

    def record(self, opinion: Vote) -> dict[str, Any]:
        record: dict[str, Any] = {
            "better": opinion.word,
            "reasoning": self.readable(opinion.reasoning),
        }
        if opinion.probabilities:
            record["probabilities"] = decisions.rounded({"better": opinion.probabilities})
        return record

    def rounds(self, first: int, turns: Sequence[ModelTurn[Vote]]) -> list[CompareRound]:
        """Return a round for each call, numbered from `first`."""
        rounds: list[CompareRound] = []
        for turn in turns:
            samples = len(turn.calls) // (len(self.rubrics_by_part) * len(ORDERS))
            sample_numbers: Sequence[int | None] = [None]  # a single sample has no number
            if samples > 1:
                sample_numbers = range(1, samples + 1)
            asked = product(sample_numbers, self.rubrics_by_part, ORDERS)
            for (sample, criterion, order), answer in zip(asked, turn.calls, strict=True):
                row = CompareRound(
                    round=first + len(rounds),
                    tier=self.tier,
                    order=[*order],
                    criterion=criterion or None,
                    sample=sample,
                    **answer.record(self.record),
                )
                rounds.append(row)
        return rounds

    def readable(self, text: str) -> str:
        """Return a model's words with the letters of the texts, which users know, for their labels."""
        letter_by_label = {self.label(letter): letter for letter in WINS}
        any_label = re.compile(rf"\b({'|'.join(map(re.escape, letter_by_label))})\b")
        return any_label.sub(lambda match: letter_by_label[match[0]], text)

    def label(self, letter: str) -> str:
        return self._labels[self.subject.file(letter).sha256]

    @property
    def _labels(self) -> dict[str, str]:
        """The label of each text by its hash: the same in both orders and in every tier."""
        return labels(self.subject.prompt, sorted(file.sha256 for file in self.subject.files))

    async def _ask(
        self, endpoint: Endpoint, session: Session, sample: int, criterion: str, order: str
    ) -> Answer[Vote]:
        hash_by_label = {label: sha256 for sha256, label in self._labels.items()}
        letter_by_label = {self.label(letter): letter for letter in WINS}
        request = Request(
            messages=(),
            call_key=self._key(criterion, order),
            timeout=self.limits.timeout,
            max_tokens=REPLY_TOKENS,
            labels=hash_by_label,
            sample=sample,
        )

        def read_vote(reply: CompareReply, _: Reply) -> Vote:
            return Vote(letter_by_label.get(reply.better, "tie"), visible(reply.reasoning))

        return await run_round(
            session,
            endpoint,
            request,
            make_messages=partial(self._messages, self.rubrics_by_part[criterion], order, endpoint),
            characters=self.subject.size,
            form=compare_reply_model(list(hash_by_label)),
            make_value=read_vote,
        )

    async def _ask_pointwise(
        self, endpoint: Endpoint, session: Session, criterion: str, order: str
    ) -> Answer[Vote]:
        rubric = self.rubrics_by_part[criterion]
        points = self._pointwise_questions(rubric, order, endpoint, session.fence, criterion)
        answer = await ask_pointwise(session, endpoint, points, self.limits.timeout)
        vote = None
        if answer.value:
            vote = _vote_of_points(answer.value["better"], order)
        return Answer(
            value=vote,
            failure=answer.failure,
            usage=answer.usage,
            latency_ms=answer.latency_ms,
            model=answer.model,
        )

    async def _ask_decisions(
        self, endpoint: Endpoint, session: Session, criterion: str, order: str
    ) -> Answer[Vote]:
        started = time.monotonic()
        rubric = self.rubrics_by_part[criterion]
        points = self._pointwise_questions(rubric, order, endpoint, session.fence, criterion)
        state = _state_of(points)
        answer = await decisions.ask_decisions(
            session, endpoint, state, [_pair_question(rubric)], self.limits.timeout
        )
        if not answer.value:
            return joined([answer], None, started)
        by_point = answer.value["better"]
        by_letter = {}
        for letter, point in zip(order, POINTS, strict=True):
            by_letter[letter] = by_point[point]
        vote = _vote_of_points(by_point, order)._replace(probabilities=by_letter)
        return joined([answer], vote, started)

    def _key(self, criterion: str, order: str) -> CallKey:
        return CallKey(self.subject.shown_sha256(order), self.rubric.ref, self.tier, criterion)

    def _messages(self, rubric: CompareRubric, order: str, endpoint: Endpoint | None) -> Messages:
        return pair_messages(
            rubric=rubric,
            tier=self.instructions_tier or self.tier,
            question=self.subject.prompt,
            texts=[self.visible_file(endpoint, letter, self.label(letter)) for letter in order],
            earlier=self.earlier_opinions,
        )

    def _pointwise_questions(
        self,
        rubric: CompareRubric,
        order: str,
        endpoint: Endpoint,
        fence: Fence,
        criterion: str = "",
    ) -> PointwiseQuestions:
        texts = []
        for letter, point in zip(order, POINTS, strict=True):
            texts.append(self.visible_file(endpoint, letter, point))
        ask = f"Which of the two texts is better, {FIRST} or {SECOND}? Answer with one number."
        return PointwiseQuestions(
            system=f"{rubric.prompt.system} {fence.guard}",
            context=prompt.pair_context(fence, self.subject.prompt, texts),
            questions={"better": f"{_criteria_text(rubric)}\n{ask}"},
            tokens=POINTS,
            call_key=self._key(criterion, order),
        )

    def visible_file(self, endpoint: Endpoint | None, letter: str, label: str) -> VisibleFile:
        """Return one of the texts as a model sees it under a label: each gets half of the characters."""
        file = self.subject.file(letter)
        limit = characters_seen(self.limits, endpoint) // len(WINS)
        return VisibleFile(label, file.text[:limit], file.total)


def _state_of(points: PointwiseQuestions) -> State:
    """Return what a decision model reads of what a pointwise model would."""
    return State(points.system, points.context, points.call_key)


def _pair_question(rubric: CompareRubric) -> DecisionQuestion:
    return decisions.pair_question(_criteria_text(rubric), POINTS)


def _vote_of_points(probabilities: Mapping[str, float], order: str) -> Vote:
    """Return the vote by how likely a model prefers the text that it was shown first, and the second.

    In `order` the letter of the first text comes first.
    """
    first = probabilities[FIRST]
    second = probabilities[SECOND]
    if max(first, second) < LEAST_LEANING:
        return Vote("tie")
    is_a_first = order == ORDERS[0]
    if (first > second) == is_a_first:
        return Vote("A")
    return Vote("B")


@dataclass(frozen=True, slots=True)
class PairJudge(ComparisonJudge[CompareRubric]):
    """Compares two texts by asking which is better."""

    def note_refusal_and_cuts(self, state: Compared) -> None:
        ComparisonJudge.note_refusal_and_cuts(self, state)
        state.cut = self.cut_texts(state)

    def question(self, tier: TierName, state: Compared) -> CompareQuestion:
        question = CompareQuestion(self.settings, state.subject, tier)
        if tier != "tiebreaker":
            return question
        answered_tiers = [opinion for opinion in state.opinions.values() if opinion.votes]
        earlier_opinions: list[EarlierOpinion] = []
        for opinion in answered_tiers:
            for vote in opinion.votes:
                label = None if vote.word == TIE else question.label(vote.word)
                earlier_opinions.append((label, redact.words(vote.reasoning)))
        # Without a disagreement the tiebreaker stands in for the deep tier, with its instructions.
        instructions: TierName = "tiebreaker" if len(answered_tiers) > 1 else "deep"
        return replace(question, instructions_tier=instructions, earlier_opinions=earlier_opinions)

    def evidence(self, state: Compared) -> Evidence:
        """Read the votes; a family that wrote both texts has no favourite."""
        subject = state.subject
        favouring_families: dict[str, set[str]] = {}
        for letter in WINS:
            families = set(subject.families(letter)) & set(subject.families_of_some_texts)
            favouring_families[letter] = families
        return read_pair(
            state.opinions,
            cut=state.cut,
            models=self.settings.model_names,
            favouring_families=favouring_families,
        )

    def rules(self, state: Compared) -> EscalationRules:
        authors: dict[Outcome, Sequence[str]] = {}
        first_winner = favourite(state.opinions)
        if first_winner is not None:
            authors["accept"] = state.subject.families(first_winner)
            authors["reject"] = state.subject.families(_other(first_winner))
        return replace(self.settings.escalation_rules("pair"), authors=authors)

    def record(self, state: Compared, end: End) -> Comparison:
        """Return the record of what the tiers voted, with a note on the texts that were cut."""
        votes: dict[TierName, TierVote] = state.opinions
        cuts = []
        for tier, letters in self.cut_texts(state).items():
            if tier in votes:
                cuts.append(f"{letters} for {tier}")
        note = f"cut: {', '.join(cuts)}" if cuts else ""
        return self.comparison(state, end, self._result(state, end), note)

    def _result(self, state: Compared, end: End) -> ComparisonResult:
        """Build the record's part on the votes of the tier that settled it, if one did."""
        votes: dict[TierName, TierVote] = state.opinions
        if end.because == OWN_FAMILY:
            won = end.overruled
            is_cut = won is not None and won.tier in state.cut
            return self.refused_result(state, end, truncated=is_cut)
        if end.tier is None:
            return ComparisonResult(
                verdict=end.verdict,
                degraded=NOT_WHOLE if end.because == CUT_TEXTS else None,
                truncated=bool(state.cut),
                families=self.families(state, end),
            )
        vote = votes[end.tier]
        # Labels are the same in every tier: any tier's question can read them.
        reasoning = self.question("quick", state).readable(vote.reasoning)
        return ComparisonResult(
            verdict=word_of_end(end, favourite(votes)),
            lead=vote.lead,
            reasoning=reasoning,
            truncated=end.tier in state.cut,
            families=self.families(state, end),
        )

    def cut_texts(self, state: Compared) -> dict[TierName, str]:
        """Return by tier in words which texts some model of it does not see whole; no tier that sees all."""
        letters_by_tier: dict[TierName, str] = {}
        for tier, models in self.models_by_tier.items():
            question = CompareQuestion(self.settings, state.subject, tier)
            letters = []
            for letter in WINS:
                if is_cut([question.visible_file(model, letter, letter) for model in models]):
                    letters.append(letter)
            if letters:
                letters_by_tier[tier] = " and ".join(letters)
        return letters_by_tier


NOT_WHOLE = "no model saw the whole of both texts, so the result is open"


def word_of_end(end: End, first_winner: PairWord | None) -> str:
    """Return the letter of the better text, or another word; an end is seen from the first winner."""
    words: dict[str, str] = {"improve": TIE}
    if first_winner is not None:
        words["accept"] = first_winner
        words["reject"] = _other(first_winner)
    return words.get(end.verdict, end.verdict)


def _other(winner: PairWord) -> str:
    return "B" if winner == "A" else "A"
