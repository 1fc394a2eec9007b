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
from judgekit.judging.kinds import get_model_kind
from judgekit.judging.reservations import Reservation, ReservationKind, add_reservation
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
    from judgekit.judging.jury import Opinion
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.settings import JudgeSettings
    from judgekit.judging.state import JudgingState

MIN_QUOTE_CHARS = 10  # characters: shorter quotes occur in many texts
MAX_CUTS = 5  # in one quote
MAX_REVIEWED = 40  # findings about one text
_NOT_CHECKED = Reservation(
    ReservationKind.NO_REVIEW, "no finding could be checked, so the first scores stand"
)
_ELLIPSIS_PATTERN = re.compile(r"\u2026|\.\.\.")


async def judge_at_depth(
    choose: Callable[[Document], Depth], judge: DocumentJudge, state: JudgingState[Document]
) -> Verdict:
    """Judge a prepared document at a depth, such as "quick". `choose` returns the depth for a document."""
    judge.note_refusal_and_cuts(state)
    if state.refusal_reason:  # the verdict has no depth
        return await judge.run(state)

    document = state.subject
    wanted_depth = choose(document)
    # `choose_depth_models` may query servers for their models, so run it in a thread.
    limit_judge = partial(choose_depth_models, judge, wanted_depth, document)
    limited_judge, depth = await running.run_in_thread(limit_judge)

    # At the depth "peers", models also check each other's findings.
    if depth.depth == "peers":
        verdict = await _judge_with_review(limited_judge, state)
    else:
        verdict = await limited_judge.run(state)
    return verdict.model_copy(update={"depth": depth})


def choose_depth_models(
    judge: DocumentJudge, depth: Depth, subject: Document
) -> tuple[DocumentJudge, Depth]:
    """Return a judge with the models for a depth, and the depth that it can really use.

    The depth "peers" becomes "tiers" if all models are of one family.
    """
    settings = judge.settings
    if depth.depth == "tiers" or not settings.models_by_tier:
        return judge, depth
    if depth.depth == "quick":
        quick_models = settings.models_by_tier["quick"]
        return _limit_models(judge, depth, {"quick": quick_models}), depth

    # The depth is "peers": models check the findings of other families.
    peers = _choose_panel(settings, subject)  # one model per family
    has_second_family = len(peers) > 1
    if not has_second_family:
        rule = f"{depth.rule}: {depth.depth}, but no second family of models is there"
        return judge, Depth(depth="tiers", rule=rule)
    return _limit_models(judge, depth, {"deep": peers}), depth


def _limit_models(
    judge: DocumentJudge, depth: Depth, models_by_tier: dict[TierName, tuple[Endpoint, ...]]
) -> DocumentJudge:
    """Return a judge with only these models and without its calibration."""
    # A calibration holds for the depth "tiers" only.
    reason = f"it holds for the tiers, not for {depth.depth}"
    settings = judge.settings.without_calibration(reason)
    limited_settings = replace(settings, models_by_tier=models_by_tier)
    return replace(judge, settings=limited_settings)


def _choose_panel(settings: JudgeSettings, subject: Document) -> tuple[Endpoint, ...]:
    """Pick a reviewing model from each family, except for families that wrote the subject."""
    models_by_tier = panel.fill_in_families(settings.models_by_tier)
    author_families = subject.author_families
    if settings.needs_mixed_families:  # only a mixed panel can have models of other providers
        return panel.pick_model_per_family(
            models_by_tier, settings.find_other_panels, author_families
        )
    return panel.pick_model_per_family(models_by_tier, author_families=author_families)


@dataclass
class _RaisedFinding:
    """A finding with the families that raised it, and other families' checks by family.

    `drop_reason` is the reason why it isn't reviewed, or "". `is_checked` if another family has answered.
    """

    finding: Finding
    raising_families: dict[str, None] = field(default_factory=dict)
    checks: dict[str, CheckReply] = field(default_factory=dict)
    drop_reason: str = ""
    is_checked: bool = False

    def is_for(self, family: str) -> bool:
        """Whether a family should check the finding."""
        return not self.drop_reason and family not in self.raising_families

    def record(self) -> ReviewedFinding:
        """Build the record of the finding's review."""
        confirming_families = [family for family, check in self.checks.items() if check.holds]
        refuting_families = [family for family, check in self.checks.items() if not check.holds]
        quotes = {family: check.quote for family, check in self.checks.items()}
        # Two families for a finding are enough, even if others refute it.
        is_supported = bool(confirming_families) or self._was_raised_twice()
        return ReviewedFinding(
            **self.finding.model_dump(),
            raised_by=list(self.raising_families),
            confirmed_by=confirming_families,
            refuted_by=refuting_families,
            evidence=quotes,
            held=is_supported and not self.drop_reason,
            checked=self.is_checked,
            dropped=self.drop_reason,
        )

    def _was_raised_twice(self) -> bool:
        """Whether several families raised the finding with a quote, so that they confirm each other."""
        has_quote = self.finding.quote != ""  # it's the same one, or they'd be different findings
        return has_quote and len(self.raising_families) > 1


async def _judge_with_review(judge: DocumentJudge, state: JudgingState[Document]) -> Verdict:
    """Judge a document, let models of other families check each finding, and score the document again."""
    first_verdict = await judge.run(state)  # also adds the models' opinions to `state.voices`
    normalised_text = _normalise("\n".join(file.text for file in state.subject.files))
    raised = _collect_findings(state, normalised_text)
    families = {endpoint.family for _tier, endpoint, _opinion in state.voices}
    has_one_family = len(families) == 1
    if has_one_family or not raised:  # nobody could check, or there's nothing to check
        return first_verdict

    # Shuffle the findings, so that their order doesn't reveal which model raised them.
    random.Random(state.subject.sha256).shuffle(raised)  # noqa: S311 - an order, not a secret
    await _check_findings(raised, normalised_text, judge, state)
    review = [finding.record() for finding in raised]
    verdict = await _judge_after_review(judge, state, review)
    findings = _list_findings_to_report(review)
    verdict = verdict.model_copy(update={"review": review, "findings": findings})
    if judge.settings.redact:
        return outgoing.redact_replies(verdict)
    return verdict


def _collect_findings(state: JudgingState[Document], text: str) -> list[_RaisedFinding]:
    """Collect the unique findings of all model families.

    Findings with a wrong quote are marked as dropped, as are those beyond the first `MAX_REVIEWED`.
    """
    findings = _merge_findings(state)
    for number, raised in enumerate(findings, 1):
        raised.drop_reason = _find_reason_to_drop(number, raised.finding, text)
    return findings


def _merge_findings(state: JudgingState[Document]) -> list[_RaisedFinding]:
    """List each finding once, with all the families that raised it."""
    findings_by_key: dict[tuple[str, ...], _RaisedFinding] = {}
    for _tier, endpoint, opinion in state.voices:
        for finding in opinion.findings:
            key = (finding.dimension, _normalise(finding.issue), _normalise(finding.quote))
            raised = findings_by_key.setdefault(key, _RaisedFinding(finding))
            raised.raising_families[endpoint.family] = (
                None  # a dictionary is used as an ordered set
            )
    return list(findings_by_key.values())


def _find_reason_to_drop(number: int, finding: Finding, text: str) -> str:
    """Return the reason why the finding with this number isn't reviewed, or "" if it is."""
    has_wrong_quote = finding.quote != "" and not is_quoted(finding.quote, text)
    if has_wrong_quote:
        return f"its quote is not in the text, or shorter than {MIN_QUOTE_CHARS} characters"
    if number > MAX_REVIEWED:
        return f"only {MAX_REVIEWED} findings are reviewed"
    return ""


async def _check_findings(
    raised: Sequence[_RaisedFinding],
    text: str,
    judge: DocumentJudge,
    state: JudgingState[Document],
) -> None:
    """Let each model check the findings of other families, and add its checks to `raised`.

    Also adds the time and cost of the checks to the rounds in `state`.
    """
    turns = state.turns["deep"]
    calls = [partial(_ask_for_checks, judge, state, turn, raised) for turn in turns]
    reviews = await gather_limited(calls, state.session)
    turns_with_reviews = []
    for turn, review in zip(turns, reviews, strict=True):
        if review.value:
            _add_checks(raised, turn.endpoint.family, review.value.checks, text)
        turns_with_reviews.append(_add_review(turn, review))

    # Build the rounds again from the longer turns. There's only the deep tier, so they start at 1.
    question = judge.build_question("deep", state)
    rounds = question.build_rounds(1, turns_with_reviews)
    state.rounds = list(rounds)


def _add_checks(
    raised: Sequence[_RaisedFinding], family: str, checks: Iterable[CheckReply], text: str
) -> None:
    """Add a model family's checks to the findings of other families in `raised`.

    A check only counts if it quotes the text. If the family both confirms and refutes a finding, neither
    check counts.
    """
    findings = _number_findings_for(family, raised)
    checks_by_number: dict[int, list[CheckReply]] = {}
    for check in checks:
        if check.finding in findings and is_quoted(check.quote, text):
            checks_by_number.setdefault(check.finding, []).append(check)
    if not checks_by_number:  # the family hasn't really answered, so the findings stay unchecked
        return

    for number, finding in findings.items():
        # The family was asked about all of these, so even a finding that it didn't mention is checked.
        finding.is_checked = True
        family_check = _choose_check(checks_by_number.get(number, []))
        if family_check:
            finding.checks[family] = family_check


def _choose_check(checks: Sequence[CheckReply]) -> CheckReply | None:
    """Return the first of a family's checks of a finding, or None if they contradict each other."""
    is_confirmed = any(check.holds for check in checks)
    is_refuted = any(not check.holds for check in checks)
    contradicts_itself = is_confirmed and is_refuted
    if contradicts_itself or not checks:
        return None
    return checks[0]


def _number_findings_for(
    family: str, raised: Sequence[_RaisedFinding]
) -> dict[int, _RaisedFinding]:
    """Return the findings that a family should check, by number."""
    return {number: finding for number, finding in enumerate(raised, 1) if finding.is_for(family)}


def is_quoted(quote: str, text: str) -> bool:
    """Whether a quote is long enough, and all its parts between ellipses occur in the normalised text."""
    quote_parts = [_normalise(part) for part in _ELLIPSIS_PATTERN.split(quote, MAX_CUTS)]
    length = sum(len(part) for part in quote_parts)
    return length >= MIN_QUOTE_CHARS and all(part in text for part in quote_parts)


def _normalise(text: str) -> str:
    """Normalise case, blanks and lookalike letters, so that inexact quotes are found."""
    plain_text = text
    if not text.isascii():
        # Combining marks and invisible characters become NUL.
        plain_text = fold_to_ascii(text).replace("\0", "")
    words = plain_text.casefold().split()
    one_line = " ".join(words)
    return one_line.strip("\"' ")


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
    findings = _write_findings_for(endpoint.family, raised)
    # Only ask models that can give reasons and that answered before.
    has_answered = bool(turn.answer.value)
    can_check = get_model_kind(endpoint).gives_reasons and has_answered
    if not (findings and can_check):
        return Answer(value=None, failure=None, usage=Usage(), latency_ms=0, model=endpoint.model)

    document = state.subject
    limits = judge.rubric.tiers.deep
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
        make_messages=partial(
            prompt.write_review_messages, judge.rubric, files, document.task, findings
        ),
        characters=document.char_count,
        form=ReviewReply,
        make_value=lambda form, _reply: form,  # the filled-in form already is the value
    )


def _write_findings_for(family: str, raised: Sequence[_RaisedFinding]) -> dict[int, str]:
    """Write the findings that a family should check, by number."""
    findings = {}
    for number, raised_finding in _number_findings_for(family, raised).items():
        findings[number] = _write_finding(raised_finding.finding)
    return findings


def _write_finding(finding: Finding) -> str:
    """Write a finding for models, without secrets."""
    heading = ", ".join(filter(None, (finding.dimension, finding.location)))
    text = f"{heading}: {finding.issue}"
    if finding.quote:
        text += f"\nQuote: {finding.quote}"
    return redact.words(text)


def _add_review(turn: ModelTurn[Any], review: Answer[ReviewReply]) -> ModelTurn[Any]:
    """Add the time and cost of a model's review to its turn. If the review failed, also add the failure."""
    first_answer = turn.answer
    failure = first_answer.failure
    if review.failure:
        failure_message = f"its review: {review.failure.message}"
        failure = review.failure.model_copy(update={"message": failure_message})
    answer = replace(
        first_answer,
        usage=review.usage.plus(first_answer.usage),
        latency_ms=review.latency_ms + first_answer.latency_ms,
        failure=failure,
    )
    return replace(turn, answer=answer)


async def _judge_after_review(
    judge: DocumentJudge, state: JudgingState[Document], review: Sequence[ReviewedFinding]
) -> Verdict:
    """Score the document again if the review brought anything. If not, the first scores stand."""
    has_result = any(finding.checked or finding.dropped for finding in review)
    if has_result:
        return await _score_again(judge, state, review)
    # Each tier already has an opinion, so this calls no model. It builds the verdict with the review's cost.
    verdict = await judge.run(state)
    return add_reservation(verdict, _NOT_CHECKED)


async def _score_again(
    judge: DocumentJudge, state: JudgingState[Document], review: Iterable[ReviewedFinding]
) -> Verdict:
    """Let the models score the document again, knowing the review's result, and return the verdict.

    The new opinions replace those in `state`. If too few models answer, the first opinions stand.
    """
    question = ScoreQuestion(
        judge.settings,
        state.subject,
        tier="tiebreaker",  # its limits leave room for the findings
        instructions_tier="deep",  # there's no tie to break, so instruct as for a first reading
        findings=_write_reviewed_findings(review),
    )
    models = tuple(endpoint for _tier, endpoint, _opinion in state.voices)
    calls = [partial(question.ask, endpoint, state.session) for endpoint in models]
    turns = await gather_limited(calls, state.session)
    state.rounds += question.build_rounds(len(state.rounds) + 1, turns)

    # Both judges below ask no model, because each tier already has an opinion. They only build the verdict.
    answers = [(turn.endpoint, turn.answer.value) for turn in turns]
    opinion = question.combine(answers)
    if not opinion:  # too few models answered
        return await judge.run(state)
    _replace_opinions(state, opinion, answers)
    final_judge = judge.with_settings(models_by_tier={"tiebreaker": models})
    return await final_judge.run(state)


def _write_reviewed_findings(review: Iterable[ReviewedFinding]) -> tuple[list[str], list[str]]:
    """Write the upheld findings and the unchecked ones, without those that were dropped or refuted."""
    upheld = []
    unchecked = []
    for finding in review:
        if finding.dropped:
            continue
        if finding.held:
            upheld.append(_write_finding(finding))
        elif not finding.checked:
            unchecked.append(_write_finding(finding))
    return upheld, unchecked


def _replace_opinions(
    state: JudgingState[Document],
    opinion: Opinion,
    answers: Sequence[tuple[Endpoint, Opinion | None]],
) -> None:
    """Replace the opinions in `state` by the joint `opinion` and each model's own one."""
    state.opinions = {"tiebreaker": opinion}
    state.voices = []
    for endpoint, model_opinion in answers:
        if model_opinion:  # the model didn't fail
            state.voices.append(("tiebreaker", endpoint, model_opinion))


def _list_findings_to_report(review: Sequence[ReviewedFinding]) -> list[Finding]:
    """List the findings that were upheld or never checked, without the details of their reviews."""
    return [_remove_review(finding) for finding in review if _is_to_report(finding)]


def _is_to_report(finding: ReviewedFinding) -> bool:
    """Whether a finding was upheld, or neither checked nor dropped."""
    if finding.held:
        return True
    was_reviewed = finding.checked or finding.dropped != ""
    return not was_reviewed


def _remove_review(finding: ReviewedFinding) -> Finding:
    """Return a finding without the details of its review."""
    finding_fields = set(Finding.model_fields)
    return Finding.model_validate(finding.model_dump(include=finding_fields))
