"""Judges a text at another depth than the usual tiers, up to a review of each finding by other families.

In a review, each model of a panel gives scores and findings. Models of other families confirm or refute each
finding with a quote, and code drops it unless a quote is really in the text. Then the scores are given once
more.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from judgekit.errors import Usage
from judgekit.judging import outgoing, panel, prompt
from judgekit.judging.kinds import kind_of
from judgekit.judging.reservations import Reservation, ReservationKind, with_reservation
from judgekit.judging.round import Answer, gather_limited, run_round
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.verdict import Depth, Finding, ReviewedFinding, Verdict
from judgekit.judging.writing import SCORE_TOKENS
from judgekit.providers import running
from judgekit.providers.base import CallKey, Endpoint, Request
from judgekit.redaction import redact
from judgekit.redaction.lookalikes import fold_to_ascii
from judgekit.replies.forms import CheckReply, ReviewReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.config import TierName
    from judgekit.judging.documents import Document
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.settings import JudgeSettings
    from judgekit.judging.state import JudgingState

MIN_QUOTE = 10  # characters: shorter quotes occur in many texts
MAX_CUTS = 5  # in one quote
MAX_REVIEWED = 40  # findings about one text
_NOT_CHECKED = Reservation(
    ReservationKind.NO_REVIEW, "no finding could be checked, so the first scores stand"
)
_ELLIPSIS = re.compile(r"\u2026|\.\.\.")


async def judge_at_depth(
    choose: Callable[[Document], Depth], judge: DocumentJudge, state: JudgingState[Document]
) -> Verdict:
    """Judge a prepared document at the depth that `choose` returns for it, such as "quick"."""
    judge.note_refusal_and_cuts(state)
    if state.refused:  # the verdict has no depth
        return await judge.run(state)

    # Use a thread, because this may query servers for their models.
    document = state.subject
    find_models = partial(with_depth, judge, choose(document), document)
    judge, depth = await running.run_in_thread(find_models)

    # At the depth "peers", models also check each other's findings.
    if depth.depth == "peers":
        verdict = await _judge_with_review(judge, state)
    else:
        verdict = await judge.run(state)
    return verdict.model_copy(update={"depth": depth})


def with_depth(
    judge: DocumentJudge, depth: Depth, subject: Document
) -> tuple[DocumentJudge, Depth]:
    """Return a judge with the models for a depth, and the depth that is possible.

    For "peers", models of two families are needed. If there's only one, the depth is "tiers" instead.
    """
    settings = judge.settings
    if depth.depth == "tiers" or not settings.models_by_tier:
        return judge, depth

    models_by_tier: dict[TierName, tuple[Endpoint, ...]]
    if depth.depth == "quick":
        models_by_tier = {"quick": settings.models_by_tier["quick"]}
    else:
        models = _choose_panel(settings, subject)
        if len(models) < 2:  # noqa: PLR2004 - one model finds, another checks
            rule = f"{depth.rule}: {depth.depth}, but no second family of models is there"
            return judge, Depth(depth="tiers", rule=rule)
        models_by_tier = {"deep": models}

    # A calibration (`finality`) is only valid for the depth "tiers".
    warning = settings.calibration_warning
    finality = settings.finality
    if finality is not None:
        misfit = f"it holds for the tiers, not for {depth.depth}"
        warning = f"calibration {finality.id} not used: {misfit}"
    judge_at_depth = judge.with_settings(
        models_by_tier=models_by_tier, finality=None, calibration_warning=warning
    )
    return judge_at_depth, depth


def _choose_panel(settings: JudgeSettings, subject: Document) -> tuple[Endpoint, ...]:
    """Pick a reviewing model from each family, except for families that wrote the subject."""
    models_by_tier = panel.fill_in_families(settings.models_by_tier)
    # Only a mixed panel can have models of other providers.
    find_others = settings.others if settings.is_mixed else tuple
    return panel.pick_model_per_family(models_by_tier, find_others, subject.author_families)


@dataclass
class _RaisedFinding:
    """A finding with the families that raised it, and other families' checks by family.

    `dropped` is the reason why it isn't reviewed, or "". `checked` if another family has answered.
    """

    finding: Finding
    by: dict[str, None] = field(default_factory=dict)
    checks: dict[str, CheckReply] = field(default_factory=dict)
    dropped: str = ""
    checked: bool = False

    def is_for(self, family: str) -> bool:
        """Whether a family should check the finding."""
        return not self.dropped and family not in self.by

    def record(self) -> ReviewedFinding:
        """Build the record of the finding's review. Its field `held` is whether the finding is upheld."""
        confirmed_by = []
        refuted_by = []
        quotes = {}
        for family, check in self.checks.items():
            quotes[family] = check.quote
            if check.holds:
                confirmed_by.append(family)
            else:
                refuted_by.append(family)

        # If two families raised the finding with the same quote, they confirm each other.
        was_raised_twice = self.finding.quote != "" and len(self.by) > 1
        is_supported = bool(confirmed_by) or was_raised_twice
        return ReviewedFinding(
            **self.finding.model_dump(),
            raised_by=[*self.by],
            confirmed_by=confirmed_by,
            refuted_by=refuted_by,
            evidence=quotes,
            held=is_supported and not self.dropped,
            checked=self.checked,
            dropped=self.dropped,
        )


async def _judge_with_review(judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
    """Judge a document, let models of other families check each finding, and score the document again."""
    first_verdict = await judge.run(state)
    text = _normalise("\n".join(file.text for file in state.subject.files))
    raised = _collect_findings(state, text)
    families = {endpoint.family for _, endpoint, _ in state.voices}
    if len(families) == 1 or not raised:  # there's no other family, or nothing to check
        return first_verdict

    # Shuffle the findings, so that their order doesn't reveal which model raised them.
    random.Random(state.subject.sha256).shuffle(raised)  # noqa: S311 - an order, not a secret
    await _check_findings(raised, text, judge, state)
    review = [finding.record() for finding in raised]
    if any(finding.checked or finding.dropped for finding in review):
        verdict = await _score_again(judge, state, review)
    else:
        # Nothing was checked. Build the verdict anew from the tiers' opinions, without further calls.
        verdict = await judge.run(state)
        verdict = with_reservation(verdict, _NOT_CHECKED)

    findings = _list_findings_to_report(review)
    verdict = verdict.model_copy(update={"review": review, "findings": findings})
    if judge.settings.redact:
        return outgoing.redact_replies(verdict)
    return verdict


def _list_findings_to_report(review: Sequence[ReviewedFinding]) -> list[Finding]:
    """List the findings that were upheld or never checked, without the details of their reviews."""
    findings = []
    for finding in review:
        is_unchecked = not (finding.checked or finding.dropped)
        if finding.held or is_unchecked:
            fields = finding.model_dump(include=set(Finding.model_fields))
            findings.append(Finding.model_validate(fields))
    return findings


def _collect_findings(state: JudgingState[Document], text: str) -> list[_RaisedFinding]:
    """Collect the unique findings of all model families.

    Findings with a wrong quote are marked as dropped, as are those beyond the first `MAX_REVIEWED`.
    """
    findings_by_key: dict[tuple[str, ...], _RaisedFinding] = {}
    for _, endpoint, opinion in state.voices:
        for finding in opinion.findings:
            key = (finding.dimension, _normalise(finding.issue), _normalise(finding.quote))
            if key not in findings_by_key:
                findings_by_key[key] = _RaisedFinding(finding)
            raised_by = findings_by_key[key].by  # an ordered set
            raised_by[endpoint.family] = None

    # Set `dropped` to the reason why a finding won't be reviewed.
    findings = list(findings_by_key.values())
    for number, raised in enumerate(findings, 1):
        quote = raised.finding.quote
        if quote and not is_quoted(quote, text):
            raised.dropped = f"its quote is not in the text, or shorter than {MIN_QUOTE} characters"
        elif number > MAX_REVIEWED:
            raised.dropped = f"only {MAX_REVIEWED} findings are reviewed"
    return findings


async def _check_findings(
    raised: Sequence[_RaisedFinding],
    text: str,
    judge: DocumentJudge,
    state: JudgingState[Document],
) -> None:
    """Let each model check the findings of other families, and add the checks to the findings in `raised`.

    The rounds in `state` are replaced by rounds that include the time and cost of the checks.
    """
    turns = state.turns["deep"]
    calls = [partial(_ask_for_checks, judge, state, turn, raised) for turn in turns]
    reviews = await gather_limited(calls, state.session)
    turns_with_reviews = []
    for turn, review in zip(turns, reviews, strict=True):
        if review.value:
            _add_checks(raised, turn.endpoint.family, review.value.checks, text)
        turns_with_reviews.append(_add_cost(turn, review))
    state.rounds = [*judge.question("deep", state).rounds(1, turns_with_reviews)]


def _add_checks(
    raised: Sequence[_RaisedFinding], family: str, checks: Iterable[CheckReply], text: str
) -> None:
    """Add a model family's checks to the findings of other families in `raised`.

    A check only counts if it quotes the text. If the family both confirms and refutes a finding, neither
    check counts.
    """
    # Find the first confirmation and the first refutation of each finding, by the finding's number.
    findings = _number_findings_for(family, raised)
    confirmations: dict[int, CheckReply] = {}
    refutations: dict[int, CheckReply] = {}
    for check in checks:
        if check.finding in findings and is_quoted(check.quote, text):
            checks_by_number = confirmations if check.holds else refutations
            checks_by_number.setdefault(check.finding, check)
    if not confirmations and not refutations:
        return

    for number, finding in findings.items():
        finding.checked = True
        confirmation = confirmations.get(number)
        refutation = refutations.get(number)
        contradicts_itself = confirmation and refutation
        if contradicts_itself:
            continue
        family_check = confirmation or refutation
        if family_check:
            finding.checks[family] = family_check


def _number_findings_for(
    family: str, raised: Sequence[_RaisedFinding]
) -> dict[int, _RaisedFinding]:
    """Return the findings that a family should check, by number."""
    return {number: finding for number, finding in enumerate(raised, 1) if finding.is_for(family)}


def is_quoted(quote: str, text: str) -> bool:
    """Whether a quote is long enough, and all its parts between ellipses occur in the normalised text."""
    quote_parts = [_normalise(part) for part in _ELLIPSIS.split(quote, MAX_CUTS)]
    length = sum(len(part) for part in quote_parts)
    return length >= MIN_QUOTE and all(part in text for part in quote_parts)


def _normalise(text: str) -> str:
    """Normalise case, blanks and lookalike letters, so that inexact quotes are found."""
    plain_text = text
    if not text.isascii():
        plain_text = fold_to_ascii(text).replace("\0", "")
    words = plain_text.casefold().split()
    return " ".join(words).strip("\"' ")


async def _ask_for_checks(
    judge: DocumentJudge,
    state: JudgingState[Document],
    turn: ModelTurn[Any],
    raised: Sequence[_RaisedFinding],
) -> Answer[ReviewReply]:
    """Let a model check the findings of other families.

    If there's nothing to check, or if the model can't check findings, the answer has neither a value nor a
    failure.
    """
    endpoint = turn.endpoint
    document = state.subject
    limits = judge.rubric.tiers.deep

    findings = {}  # the findings' texts by number
    for number, raised_finding in _number_findings_for(endpoint.family, raised).items():
        findings[number] = _write_finding(raised_finding.finding)
    can_check = kind_of(endpoint).gives_reasons and turn.answer.value
    if not findings or not can_check:
        return Answer(value=None, failure=None, usage=Usage(), latency_ms=0, model=endpoint.model)

    request = Request(
        messages=(),  # `run_round` fills them in
        call_key=CallKey(document.sha256, judge.rubric.ref, "deep", "review"),
        timeout=limits.timeout,
        max_tokens=SCORE_TOKENS,
    )
    files = document.visible_files(limits, endpoint)
    return await run_round(
        state.session,
        endpoint,
        request,
        make_messages=partial(prompt.review_messages, judge.rubric, files, document.task, findings),
        characters=document.size,
        form=ReviewReply,
        make_value=lambda form, _: form,
    )


def _add_cost(turn: ModelTurn[Any], review: Answer[ReviewReply]) -> ModelTurn[Any]:
    """Add the time and cost of a model's review, and its failure if it failed, to the model's turn."""
    first_answer = turn.answer
    failure = first_answer.failure
    if review.failure:
        message = f"its review: {review.failure.message}"
        failure = review.failure.model_copy(update={"message": message})
    answer = replace(
        first_answer,
        usage=review.usage.plus(first_answer.usage),
        latency_ms=review.latency_ms + first_answer.latency_ms,
        failure=failure,
    )
    return replace(turn, answer=answer)


def _write_finding(finding: Finding) -> str:
    """Write a finding for models, without secrets."""
    heading = ", ".join(filter(None, (finding.dimension, finding.location)))
    text = f"{heading}: {finding.issue}"
    if finding.quote:
        text += f"\nQuote: {finding.quote}"
    return redact.words(text)


async def _score_again(
    judge: DocumentJudge, state: JudgingState[Document], review: Iterable[ReviewedFinding]
) -> Verdict:
    """Ask the models for new scores, showing them the review's result, and return the verdict.

    The new opinions replace those in `state`, unless too few models answer.
    """
    upheld = []
    unchecked = []
    for finding in review:
        if finding.dropped:
            continue
        if finding.held:
            upheld.append(_write_finding(finding))
        elif not finding.checked:
            unchecked.append(_write_finding(finding))

    # The tiebreaker's limits leave room for other opinions, but it's another first reading.
    question = ScoreQuestion(
        judge.settings,
        state.subject,
        tier="tiebreaker",
        instructions_tier="deep",
        findings=(upheld, unchecked),
    )
    models = tuple(endpoint for _, endpoint, _ in state.voices)
    calls = [partial(question.ask, endpoint, state.session) for endpoint in models]
    turns = await gather_limited(calls, state.session)
    state.rounds += question.rounds(len(state.rounds) + 1, turns)
    voices = [(turn.endpoint, turn.answer.value) for turn in turns]
    opinion = question.combine(voices)
    if not opinion:
        return await judge.run(state)  # asks no model, because the deep tier already has an opinion

    state.opinions = {"tiebreaker": opinion}
    state.voices = []
    for endpoint, voice in voices:
        if voice:
            state.voices.append(("tiebreaker", endpoint, voice))
    # Its only tier already has an opinion, so this judge asks no model.
    final_judge = judge.with_settings(models_by_tier={"tiebreaker": models})
    return await final_judge.run(state)
