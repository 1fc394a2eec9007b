"""Judges a text at another depth than the usual tiers, up to a review of each finding by other families.

In a review each model of a panel gives scores and findings. Models of other families confirm or refute each
finding with a quote; code drops what no quote from the text shows. Then the scores are given once more.
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from judgekit.errors import Usage
from judgekit.judging import outgoing, panel, prompt
from judgekit.judging.round import Answer, gather_limited, run_round
from judgekit.judging.score_question import REPLY_TOKENS, ScoreQuestion
from judgekit.judging.verdict import Depth, Finding, ReviewedFinding, Verdict
from judgekit.providers.base import CallKey, Endpoint, Request
from judgekit.providers.proxies import with_family
from judgekit.redaction import redact
from judgekit.redaction.lookalikes import folded
from judgekit.replies.forms import CheckReply, ReviewReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.config import TierName
    from judgekit.judging.documents import Document
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.state import JudgingState

    Chosen = Callable[[Document], Depth]

LEAST_QUOTE = 10  # characters: shorter ones are in many texts
MOST_CUTS = 5  # in a quote
MOST = 40  # findings of one text that are reviewed
_ELLIPSIS = re.compile(r"\u2026|\.\.\.")


async def at_depth(chosen: Chosen, judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
    """Return the verdict on a prepared text at the depth that is `chosen` for it."""
    judge.examine(state)
    if state.refused:
        return await judge.run(state)
    judge, depth = await asyncio.to_thread(deepened, judge, chosen(state.subject), state.subject)
    verdict = await (_reviewed(judge, state) if depth.depth == "peers" else judge.run(state))
    return verdict.model_copy(update={"depth": depth})


def deepened(judge: DocumentJudge, depth: Depth, subject: Document) -> tuple[DocumentJudge, Depth]:
    """Return the judge with the models of a depth; as it is where a panel lacks a second family."""
    settings = judge.settings
    models: dict[TierName, tuple[Endpoint, ...]]
    if depth.depth == "tiers":
        return judge, depth
    if depth.depth == "quick":
        models = {"quick": settings.models_by_tier["quick"]}
    else:
        known = {}
        for tier, jury in settings.models_by_tier.items():
            known[tier] = tuple(map(with_family, jury))
        found = panel.voices(known, settings.others if settings.is_mixed else tuple, subject.wrote)
        if len(found) < 2:  # noqa: PLR2004 - as a review says of itself
            rule = f"{depth.rule}: {depth.depth}, but no second family of models is there"
            return judge, Depth(depth="tiers", rule=rule)
        models = {"deep": found}
    why = settings.calibration_warning
    finality = settings.finality
    if finality is not None:
        why = f"calibration {finality.id} not used: it holds for the tiers, not for {depth.depth}"
    judge = judge.with_settings(models_by_tier=models, finality=None, calibration_warning=why)
    return judge, depth


@dataclass
class _Raised:
    """A finding, the families that raised it, and what other families say of it, with their quotes."""

    finding: Finding
    by: dict[str, None] = field(default_factory=dict)
    said: dict[str, CheckReply] = field(default_factory=dict)
    dropped: str = ""
    checked: bool = False

    def record(self) -> ReviewedFinding:
        confirmed, refuted = (
            [family for family, check in self.said.items() if check.holds is holds]
            for holds in (True, False)
        )
        evidence = {family: check.quote for family, check in self.said.items()}
        upheld = not self.dropped and bool(confirmed or (self.finding.quote and len(self.by) > 1))
        return ReviewedFinding(
            **self.finding.model_dump(),
            raised_by=[*self.by],
            confirmed_by=confirmed,
            refuted_by=refuted,
            evidence=evidence,
            held=upheld,
            checked=self.checked,
            dropped=self.dropped,
        )


async def _reviewed(judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
    verdict = await judge.run(state)
    voices = [(endpoint.family, opinion.findings) for _, endpoint, opinion in state.voices]
    text = _plain("\n".join(file.text for file in state.subject.files))
    raised = _raised(((family, finding) for family, own in voices for finding in own), text)
    if len({family for family, _ in voices}) == 1 or not raised:
        return verdict
    # In an order that does not tell who raised what.
    random.Random(state.subject.sha256).shuffle(raised)  # noqa: S311 - an order, not a secret
    turns = state.turns["deep"]
    calls = [partial(_ask, judge, state, turn, raised) for turn in turns]
    reviews = await gather_limited(calls, state.session)
    for turn, answer in zip(turns, reviews, strict=True):
        if answer.value:
            _count(raised, turn.endpoint.family, answer.value.checks, text)
    state.rounds = [*judge.question("deep", state).rounds(1, list(map(_both, turns, reviews)))]
    review = [each.record() for each in raised]
    if not any(each.checked or each.dropped for each in review):
        verdict = await judge.run(state)  # which asks nobody: the tier has its opinion
        why = "no finding could be checked, so the first scores stand"
        verdict = verdict.model_copy(
            update={"degraded": "; ".join(filter(None, (verdict.degraded, why)))}
        )
    else:
        verdict = await _again(judge, state, review)
    fields = set(Finding.model_fields)
    left = []
    for each in review:
        if each.held or not (each.checked or each.dropped):
            left.append(each)
    findings = [Finding.model_validate(each.model_dump(include=fields)) for each in left]
    verdict = verdict.model_copy(update={"review": review, "findings": findings})
    return outgoing.redact_replies(verdict) if judge.settings.redact else verdict


def _raised(found: Iterable[tuple[str, Finding]], text: str) -> list[_Raised]:
    """Return what families found, each once; dropped where a quote is not in the `text`."""
    merged: dict[tuple[str, ...], _Raised] = {}
    for family, finding in found:
        same = finding.dimension, _plain(finding.issue), _plain(finding.quote)
        merged.setdefault(same, _Raised(finding)).by[family] = None
    for number, each in enumerate(merged.values()):
        if each.finding.quote and not is_quoted(each.finding.quote, text):
            each.dropped = f"its quote is not in the text, or shorter than {LEAST_QUOTE} characters"
        elif number >= MOST:
            each.dropped = f"only {MOST} findings are reviewed"
    return list(merged.values())


def _count(raised: Sequence[_Raised], family: str, checks: Iterable[CheckReply], text: str) -> None:
    """Note what a family says of others' findings: with a quote from the text, and not both."""
    shown = {number: each for number, each in enumerate(raised, 1) if _is_shown(each, family)}
    said: dict[int, dict[bool, CheckReply]] = {}
    for check in checks:
        if check.finding in shown and is_quoted(check.quote, text):
            said.setdefault(check.finding, {}).setdefault(check.holds, check)
    for number, each in shown.items():
        # Who says nothing that counts of any finding has checked none.
        each.checked |= bool(said)
        own = said.get(number, {})
        if len(own) == 1:
            each.said[family] = next(iter(own.values()))


def _is_shown(each: _Raised, family: str) -> bool:
    return not each.dropped and family not in each.by


def is_quoted(quote: str, text: str) -> bool:
    """Whether all parts of a quote, cut at ellipses, stand in a text that `_plain` has made plain."""
    parts = []
    for each in _ELLIPSIS.split(quote, MOST_CUTS):
        if part := _plain(each):
            parts.append(part)
    return sum(map(len, parts)) >= LEAST_QUOTE and all(part in text for part in parts)


def _plain(text: str) -> str:
    if text.isascii():
        letters = text
    else:
        letters = folded(text).replace("\0", "")
    return " ".join(letters.casefold().split()).strip("\"' ")


async def _ask(
    judge: DocumentJudge,
    state: JudgingState[Document],
    turn: ModelTurn[Any],
    raised: Sequence[_Raised],
) -> Answer[ReviewReply]:
    """Have a model that gave an opinion check what others found; nothing where there is nothing for it."""
    endpoint = turn.endpoint
    subject = state.subject
    limits = judge.rubric.tiers.deep
    numbered = enumerate(raised, 1)
    shown = {}
    for number, each in numbered:
        if _is_shown(each, endpoint.family):
            shown[number] = _words(each.finding)
    if not shown or endpoint.pointwise or not turn.answer.value:
        return Answer(None, None, Usage(), 0, endpoint.model)
    key = CallKey(subject.sha256, judge.rubric.ref, "deep", "review")
    request = Request((), key, limits.timeout, REPLY_TOKENS)
    session = state.session
    parts = subject.seen_by(limits, endpoint)
    size = subject.size
    form = ReviewReply
    made = partial(prompt.review_messages, judge.rubric, parts, subject.task, shown)
    return await run_round(session, endpoint, request, made, size, form, lambda found, _: found)


def _both(turn: ModelTurn[Any], review: Answer[ReviewReply]) -> ModelTurn[Any]:
    """Return a model's first turn with the time and cost of its review, and why that brought nothing."""
    failure = turn.answer.failure
    answer = turn.answer
    usage = review.usage.plus(answer.usage)
    latency = review.latency_ms + answer.latency_ms
    if review.failure:
        failure = review.failure.model_copy(
            update={"message": f"its review: {review.failure.message}"}
        )
    return replace(turn, answer=replace(answer, usage=usage, latency_ms=latency, failure=failure))


def _words(finding: Finding) -> str:
    where = ", ".join(filter(None, (finding.dimension, finding.location)))
    if finding.quote:
        quote = f"\nQuote: {finding.quote}"
    else:
        quote = ""
    return redact.words(f"{where}: {finding.issue}{quote}")


async def _again(
    judge: DocumentJudge, state: JudgingState[Document], review: Iterable[ReviewedFinding]
) -> Verdict:
    """Have the scores given once more, in the light of what held; without, the first ones stand."""
    known = [(each, _words(each)) for each in review if not each.dropped]
    upheld = [words for each, words in known if each.held]
    unchecked = []
    for each, words in known:
        if not each.held and not each.checked:
            unchecked.append(words)
    # In the tier that reads what others said, with the instructions of the first reading.
    task = ScoreQuestion(
        judge.settings,
        state.subject,
        "tiebreaker",
        "deep",
        findings=(upheld, unchecked),
    )
    jury = tuple(endpoint for _, endpoint, _ in state.voices)
    asking = [partial(task.ask, endpoint, state.session) for endpoint in jury]
    turns = await gather_limited(asking, state.session)
    state.rounds += task.rounds(len(state.rounds) + 1, turns)
    voices = [(turn.endpoint, turn.answer.value) for turn in turns]
    if opinion := task.combine(voices):
        judge = judge.with_settings(models_by_tier={"tiebreaker": jury})
        state.opinions = {"tiebreaker": opinion}
        state.voices = [("tiebreaker", endpoint, own) for endpoint, own in voices if own]
    return await judge.run(state)  # which asks nobody: the tier has its opinion
