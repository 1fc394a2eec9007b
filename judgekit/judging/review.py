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

from judgekit.errors import CallUsage
from judgekit.judging import panel, prompt, redact
from judgekit.judging.fence import folded
from judgekit.judging.replies import ReviewReply
from judgekit.judging.round import Answer, gather_limited, run_round
from judgekit.judging.score import REPLY_TOKENS, DocumentJudge, ScoreTask
from judgekit.judging.verdict import Depth, Finding, ReviewedFinding, Verdict
from judgekit.providers.base import CallKey, Endpoint, Request
from judgekit.providers.servers import with_family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from judgekit.config import TierName
    from judgekit.judging.documents import Document
    from judgekit.judging.orchestrator import JudgingState, ModelTurn

    Chosen = Callable[[Document], Depth]

LEAST_QUOTE = 10  # characters: shorter ones are in many texts
MOST_CUTS = 5  # in a quote
MOST = 40  # findings of one text that are reviewed
_ELLIPSIS = re.compile(r"\u2026|\.\.\.")


async def at_depth(chosen: Chosen, judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
    """Return the verdict on a prepared text at the depth that is `chosen` for it."""
    judge, depth = await asyncio.to_thread(deepened, judge, chosen(state.subject), state.subject)
    verdict = await (_reviewed(judge, state) if depth.depth == "peers" else judge.run(state))
    return verdict.model_copy(update={"depth": depth})


def deepened(judge: DocumentJudge, depth: Depth, subject: Document) -> tuple[DocumentJudge, Depth]:
    """Return the judge with the models of a depth; as it is where a panel lacks a second family."""
    models: dict[TierName, tuple[Endpoint, ...]]
    if depth.depth == "tiers":
        return judge, depth
    if depth.depth == "quick":
        models = {"quick": judge.panel["quick"]}
    else:
        known = {tier: tuple(map(with_family, jury)) for tier, jury in judge.panel.items()}
        found = panel.voices(known, judge.others if judge.options.mixed else tuple, subject.wrote)
        if len(found) < 2:  # noqa: PLR2004 - as a review says of itself
            rule = f"{depth.rule}: {depth.depth}, but no second family of models is there"
            return judge, Depth(depth="tiers", rule=rule)
        models = {"deep": found}
    why, finality = judge.calibration_warning, judge.finality
    if finality is not None:
        why = f"calibration {finality.id} not used: it holds for the tiers, not for {depth.depth}"
    return replace(judge, panel=models, finality=None, calibration_warning=why), depth


@dataclass
class _Raised:
    """A finding, the families that raised it, and those that confirmed or refuted it with a quote."""

    finding: Finding
    by: dict[str, None] = field(default_factory=dict)
    confirmed: list[str] = field(default_factory=list)
    refuted: list[str] = field(default_factory=list)
    dropped: str = ""

    def record(self) -> ReviewedFinding:
        held = not self.dropped and bool(self.confirmed or (self.finding.quote and len(self.by) > 1))
        families = {"raised_by": [*self.by], "confirmed_by": self.confirmed, "refuted_by": self.refuted}
        return ReviewedFinding(**self.finding.model_dump(), **families, held=held, dropped=self.dropped)


async def _reviewed(judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
    verdict = await judge.run(state)
    jury = [(endpoint, opinion.findings) for _, endpoint, opinion in state.voices]
    text = _plain("\n".join(file.text for file in state.subject.files))
    raised = _raised(((endpoint.family, finding) for endpoint, own in jury for finding in own), text)
    if len({endpoint.family for endpoint, _ in jury}) == 1 or not raised:
        return verdict
    # In an order that does not tell who raised what.
    random.Random(state.subject.sha256).shuffle(raised)  # noqa: S311 - an order, not a secret
    asking = [partial(_ask, judge, state, own, raised) for own, _ in jury]
    reviews = await gather_limited(asking, state.session)
    for (endpoint, _), answer in zip(jury, reviews, strict=True):
        for check in answer.value.checks if answer.value else ():
            each = raised[check.finding - 1] if 0 < check.finding <= len(raised) else None
            if each and endpoint.family not in each.by and is_quoted(check.quote, text):
                (each.confirmed if check.holds else each.refuted).append(endpoint.family)
                if check.holds and not each.finding.quote:
                    each.finding = each.finding.model_copy(update={"quote": check.quote})
    review = [each.record() for each in raised]
    verdict = await _again(judge, state, [own for own, _ in jury], reviews, review)
    fields = set(Finding.model_fields)
    held = [Finding.model_validate(each.model_dump(include=fields)) for each in review if each.held]
    verdict = verdict.model_copy(update={"review": review, "findings": held})
    return redact.replies(verdict) if judge.options.redact else verdict


def _raised(found: Iterable[tuple[str, Finding]], text: str) -> list[_Raised]:
    """Return what families found, each once; dropped where a quote is not in the `text`."""
    merged: dict[tuple[str, str], _Raised] = {}
    for family, finding in found:
        same = finding.dimension, _plain(finding.quote or finding.issue)
        merged.setdefault(same, _Raised(finding)).by[family] = None
    for number, each in enumerate(merged.values()):
        if each.finding.quote and not is_quoted(each.finding.quote, text):
            each.dropped = "its quote is not in the text"
        elif number >= MOST:
            each.dropped = f"only {MOST} findings are reviewed"
    return list(merged.values())


def is_quoted(quote: str, text: str) -> bool:
    """Whether all parts of a quote, cut at ellipses, stand in a text that `_plain` has made plain."""
    parts = [part for each in _ELLIPSIS.split(quote, MOST_CUTS) if (part := _plain(each))]
    return sum(map(len, parts)) >= LEAST_QUOTE and all(part in text for part in parts)


def _plain(text: str) -> str:
    letters = text if text.isascii() else folded(text).replace("\0", "")
    return " ".join(letters.casefold().split()).strip("\"' ")


async def _ask(
    judge: DocumentJudge, state: JudgingState[Document], endpoint: Endpoint, raised: list[_Raised]
) -> Answer[ReviewReply]:
    """Have a model check what other families found; no value and no failure where there is nothing for it."""
    shown = {
        number: _words(each.finding)
        for number, each in enumerate(raised, 1)
        if not each.dropped and endpoint.family not in each.by
    }
    if not shown or endpoint.pointwise:
        return Answer(None, None, CallUsage(), 0, endpoint.model)
    subject, limits, session = state.subject, judge.rubric.tiers.deep, state.session
    key = CallKey(subject.sha256, judge.rubric.ref, "deep", "review")
    request = Request((), key, limits.timeout, REPLY_TOKENS)
    parts = subject.seen_by(limits, endpoint)
    made = partial(prompt.review_messages, judge.rubric, parts, subject.task, shown)
    size, form = subject.size, ReviewReply
    return await run_round(session, endpoint, request, made, size, form, lambda found, _: found)


def _words(finding: Finding) -> str:
    where = ", ".join(filter(None, (finding.dimension, finding.location)))
    quote = f"\nQuote: {finding.quote}" if finding.quote else ""
    return redact.words(f"{where}: {finding.issue}{quote}")


async def _again(
    judge: DocumentJudge,
    state: JudgingState[Document],
    jury: list[Endpoint],
    reviews: list[Answer[ReviewReply]],
    review: list[ReviewedFinding],
) -> Verdict:
    """Have the scores given once more, in the light of what held; without, the first ones stand."""
    held = [_words(each) for each in review if each.held]
    # In the tier that reads what others said, with the instructions of the first reading.
    task = ScoreTask(judge.rubric, judge.mode, state.subject, "tiebreaker", judge.options, "deep", held=held)
    asking = [partial(task.ask, endpoint, state.session) for endpoint in jury]
    turns = await gather_limited(asking, state.session)
    state.rounds += task.rounds(len(state.rounds) + 1, list(map(_both, turns, reviews)))
    voices = [(turn.endpoint, turn.answer.value) for turn in turns]
    if opinion := task.combine(voices):
        judge = replace(judge, panel={"tiebreaker": tuple(jury)})
        state.opinions = {"tiebreaker": opinion}
        state.voices = [("tiebreaker", endpoint, own) for endpoint, own in voices if own]
    return await judge.run(state)  # which asks nobody: the tier has its opinion


def _both(turn: ModelTurn[Any], review: Answer[ReviewReply]) -> ModelTurn[Any]:
    """Return a model's turn with the time and cost of its review."""
    answer = turn.answer
    usage, latency = review.usage.plus(answer.usage), review.latency_ms + answer.latency_ms
    failure = answer.failure or review.failure
    return replace(turn, answer=replace(answer, usage=usage, latency_ms=latency, failure=failure))
