"""Asks models, or a recording of them, about labelled cases, for three commands.

`eval judge` and `calibrate` ask for every tier's opinion (`ask`), whichever tier would have settled it.
`rubric check --run` asks for the verdicts of normal judging (`trial`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import MODES, ModeName, TierName
from judgekit.config import settings as configuration
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.calibrate import Opinions
from judgekit.evaluation.cases import Case, Recorded, Variant
from judgekit.evaluation.document_task import read_text
from judgekit.evaluation.samples import WHOLE_CASE_KEY
from judgekit.evaluation.stats import UNDECIDED
from judgekit.evaluation.task import UnaskedError, join_answers
from judgekit.evaluation.tasks import choose_task
from judgekit.judging import service
from judgekit.judging.calibration_fit import fingerprint_panel
from judgekit.judging.finality import FinalityRules
from judgekit.judging.named_inputs import NamedInputs
from judgekit.judging.panel import resolve_panel
from judgekit.judging.request import JudgeRequest
from judgekit.judging.score import DocumentJudge
from judgekit.judging.state import JudgingState
from judgekit.ledger import rates
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import open_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from judgekit.evaluation.task import Tried
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.question import Subject
    from judgekit.ledger.rates import Interval
    from judgekit.providers.base import Gateway
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Case as RubricCase
    from judgekit.rubric.schema import WrongCase

AnyJudge: TypeAlias = "Judge[Any, Any, Any]"
Progress: TypeAlias = "Callable[[int], None]"


def _check_paths(cases: Iterable[Case], inputs: NamedInputs) -> None:
    """Raise `InputError` if a case's file can't be read."""
    for case in cases:
        if case.text is None and case.path is not None:
            read_text(case, inputs)


# --- Every tier's opinion


def ask(
    cases: Sequence[Case],
    inputs: NamedInputs,
    loaded: LoadedRubric,
    mode: ModeName,
    project: Path | None = None,
    progress: Progress = lambda _: None,
    *,
    models: Sequence[str | None] = (None,),
    at_once: int = service.DEFAULT_CONCURRENCY,
) -> Opinions:
    """Ask every tier about every case, and return the cases with the answers.

    `models` are asked one after the other, and each one's answers are recorded under its name. None stands
    for all configured tiers. `progress` is called with the number of answers so far. Cases that no model may
    see are omitted.

    Raises `UnaskedError` if no case remains, `UsageError` if no model is configured, `ConfigError` or
    `InputError`.
    """
    config = configuration.load(project)
    _check_paths(cases, inputs)  # before any costs arise

    def build_judge(gateway: Gateway, model: str | None) -> DocumentJudge:
        """Build a judge with `model`, or with the configured models if it's None.

        Raises `UsageError` if no model is configured.
        """
        request = JudgeRequest(mode=mode, model=model)
        settings = service.judge_settings(config, loaded, project, request)
        if not settings.models_by_tier:
            raise UsageError(f"no model to ask: {settings.no_model_reason}")
        return DocumentJudge(gateway, settings, service.open_reply_cache(request))

    async def ask_all() -> Opinions:
        """Ask one model after the other, and collect the cases with all their answers."""
        async with aclosing(open_gateway(environment.environ())) as gateway:
            # Build all judges first, so that a missing model is noticed before any call costs something.
            judges = [build_judge(gateway, model) for model in models]
            survey = _Survey(inputs, progress, at_once)
            answered_cases = list(cases)
            for model, judge in zip(models, judges, strict=True):
                # Each model adds its answers to the cases that the previous one has answered.
                answered_cases = await survey.ask_model(model, judge, answered_cases)

            errors = list(survey.error_by_case_id.values())
            if errors and not answered_cases:
                raise errors[0]

            # With several models, no caller needs the judge and its panel, so give them the first one.
            first_judge = judges[0]
            panel = fingerprint_panel(first_judge.settings)
            return Opinions(
                answered_cases,
                panel.models,
                panel.asking,
                judge=first_judge,
                unasked_reasons=[error.reason for error in errors],
            )

    return running.run(ask_all())


@dataclass
class _Survey:
    """The questions to all models about all cases: the number of answers so far, and what went unasked."""

    inputs: NamedInputs
    progress: Progress
    at_once: int
    answer_count: int = 0
    error_by_case_id: dict[str, UnaskedError] = field(default_factory=dict)

    async def ask_model(
        self, model: str | None, judge: DocumentJudge, cases: Sequence[Case]
    ) -> list[Case]:
        """Ask a model, or all tiers if it's None, about cases. Returns the cases with the answers.

        A case that no model may see is left out, and the error is noted.
        """
        tier_judge = _build_judge_of_all_tiers(judge, model)
        ask_tiers = partial(_ask_unless_refused, tier_judge, inputs=self.inputs)
        limit = service.max_concurrency(tier_judge, self.at_once)

        answered_cases = []
        async with aclosing(map_concurrently(ask_tiers, cases, limit)) as answers:
            async for case, answers_or_error in answers:
                self.answer_count += 1
                self.progress(self.answer_count)
                if isinstance(answers_or_error, UnaskedError):
                    # For cases with the same id, one error is enough.
                    error = answers_or_error
                    self.error_by_case_id.setdefault(error.case_id, error)
                else:
                    answered_cases.append(_add_answers(case, model, answers_or_error))
        return answered_cases


def _add_answers(case: Case, model: str | None, answers: Mapping[TierName, Recorded]) -> Case:
    """Add answers to a case: by the model's name if it's a single model, otherwise by tier."""
    if model:
        return case.with_judges({model: answers["quick"]})  # a single model is asked as this tier
    return case.with_judges(answers)


async def _ask_unless_refused(
    judge: DocumentJudge, case: Case, inputs: NamedInputs
) -> dict[TierName, Recorded] | UnaskedError:
    """Call every tier for a case. If no model may see the case, return the error instead of raising it."""
    try:
        return await ask_about_case(judge, case, inputs)
    except UnaskedError as error:
        return error


def _build_judge_of_all_tiers(judge: DocumentJudge, model: str | None) -> DocumentJudge:
    """Build a judge that never stops before the last tier. If `model` is given, it's called only once."""
    models_by_tier = judge.models_by_tier
    if model:
        # Every tier of this judge has the given model, so one of them is enough.
        models_by_tier = {"quick": models_by_tier["quick"]}
    return judge.with_settings(
        models_by_tier=models_by_tier,
        finality=FinalityRules(),  # no opinion is final
        calibration_warning=None,  # the calibration isn't used, so there's nothing to warn about
        author_family=None,  # so that models can judge texts of their own family
    )


def describe_unanswered(cases: Sequence[Case]) -> str | None:
    """Describe in one line how many cases lack a tier's answer, and for which reasons.

    Returns None if all cases have all answers.
    """
    failures_by_case = [_find_failures(case) for case in cases]
    incomplete_cases = [failures for failures in failures_by_case if failures]
    if not incomplete_cases:
        return None

    if any(_has_answer(case) for case in cases):
        problem = "not every tier answered"
        effect = f"the figures omit {_count_failures_by_tier(incomplete_cases)}"
    else:
        problem = "no model answered"
        effect = "there are no figures"

    affected = f"{len(incomplete_cases)} of {len(cases)} cases"
    reasons = {reason for failures in incomplete_cases for reason in failures.values()}
    reasons_text = ", ".join(sorted(reasons))
    hint = "test the models with judgekit provider check"
    return f"{problem} {affected} ({reasons_text}); {effect}; {hint}"


def _find_failures(case: Case) -> dict[str, str]:
    """Find the tiers that didn't answer, each with the reason."""
    failures = {}
    for tier, recorded in case.judges.items():
        reason = recorded.unanswered
        if reason is not None:
            failures[tier] = reason
    return failures


def _has_answer(case: Case) -> bool:
    """Say if any tier answered."""
    return any(not recorded.unanswered for recorded in case.judges.values())


def _count_failures_by_tier(failures_by_case: Iterable[Mapping[str, str]]) -> str:
    """Count the cases that each tier didn't answer, as in "2 of quick, 1 of deep"."""
    counts = Counter[str]()
    for failures in failures_by_case:
        counts.update(failures.keys())
    return ", ".join(f"{count} of {tier}" for tier, count in counts.items())


async def ask_about_case(
    judge: DocumentJudge, case: Case, inputs: NamedInputs
) -> dict[TierName, Recorded]:
    """Call every tier for a case, and record the answers. Returns a record for each tier.

    Raises `UnaskedError` if no model may see the case.
    """
    # A rerun tests if the answer changes, so it must not get the same reply from the cache again.
    if case.variant == "rerun":
        judge = replace(judge, cache=None)

    task = choose_task(judge.rubric, judge.settings.mode, case)
    task_judge = task.judge(judge)
    state = _start_judging(task_judge, task.build_subject(case, inputs))
    await task.ask_tiers(task_judge, case, state)

    recorded_by_tier = {}
    for tier, turns in state.turns.items():
        # A tier can have multiple models, each with a turn.
        answers = [task.record(case, turn, task_judge.settings) for turn in turns]
        is_cut = tier in state.cut_tiers
        recorded_by_tier[tier] = join_answers(answers, task_judge.settings, is_cut=is_cut)
    return recorded_by_tier


def _start_judging(judge: Judge[Any, Subject, Any], subject: Subject) -> JudgingState[Subject]:
    """Start to judge a subject, with its secrets removed before any model sees it."""
    redacted_subject, secrets = judge.redact_subject(subject)
    # The settings can forbid sending a subject in which secrets were found.
    refusal = judge.settings.explain_refusal(secrets)
    return JudgingState(
        redacted_subject, judge.open_session(), refusal_reason=refusal, secret_count=secrets
    )


def add_variants(cases: Sequence[Case], times: int = 1, *, swapped: bool = True) -> list[Case]:
    """Add variants after each original case: reruns and, if `swapped`, one with reordered candidates."""
    extended_cases = []
    for case in cases:
        extended_cases.append(case)
        is_original = case.variant == "original"
        if is_original:
            extended_cases += _build_reruns(case, times)
        if is_original and swapped and len(case.candidates) > 1:
            extended_cases.append(_copy_as_variant(case, "swapped", "swapped"))
    return extended_cases


def _build_reruns(case: Case, times: int) -> list[Case]:
    """Build the reruns of a case, named "rerun", "rerun 1", "rerun 2" and so on."""
    reruns = []
    for number in range(times):
        name = "rerun" if number == 0 else f"rerun {number}"
        reruns.append(_copy_as_variant(case, "rerun", name))
    return reruns


def _copy_as_variant(case: Case, variant: Variant, name: str) -> Case:
    """Copy a case as a variant, whose `pair` is the original's id."""
    changes = {"id": f"{case.id} ({name})", "variant": variant, "pair": case.id}
    return case.model_copy(update=changes)


# --- The verdicts of normal judging


class Agreement(NamedTuple):
    """The number of questions decided, those decided as labelled, and their share."""

    right: int
    decided: int
    undecided: int
    share: Interval | None


def judge_cases(
    loaded: LoadedRubric,
    cases: Sequence[RubricCase],
    project: Path | None = None,
    *,
    modes: Sequence[ModeName] = MODES,
    progress: Callable[[Tried], None] = lambda _: None,
) -> list[Tried]:
    """Judge each case in each mode, and compare the results with the labels.

    `progress` is called with each comparison. Returns all comparisons. Raises `UsageError` if no model is
    configured.
    """
    config = configuration.load(project)
    # The tasks expect this module's class of cases. It has all fields of a rubric's case, and more.
    labelled_cases = [Case.model_validate(case.model_dump()) for case in cases]

    # The tasks build their own judges, so only check here that there are models.
    models_by_tier, no_model_reason = resolve_panel(config, project)
    if not models_by_tier:
        raise UsageError(f"no model to ask: {no_model_reason}")

    async def judge_all() -> list[Tried]:
        """Judge the labelled cases in one mode after the other."""
        trials = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            for mode in modes:
                mode_trials = _judge_in_mode(gateway, loaded, labelled_cases, project, mode)
                async with aclosing(mode_trials):
                    async for tried in mode_trials:
                        progress(tried)
                        trials.append(tried)
        return trials

    return running.run(judge_all())


async def _judge_in_mode(
    gateway: Gateway,
    loaded: LoadedRubric,
    cases: Sequence[Case],
    project: Path | None,
    mode: ModeName,
) -> AsyncGenerator[Tried, None]:
    """Judge cases concurrently. As soon as a case is judged, yield its comparisons with the label."""
    request = JudgeRequest(rubric=str(loaded.path), mode=mode)
    task = choose_task(loaded.rubric, mode)
    configured_judge = task.build_configured_judge(gateway, loaded, project, request)
    limit = service.max_concurrency(configured_judge, task.trials_at_once)
    judge_case = partial(_judge_case, task.judge(configured_judge))

    # A rubric's cases contain their texts, so no files are read.
    cases_with_subjects = [(case, task.build_subject(case, inputs=None)) for case in cases]
    async with aclosing(map_concurrently(judge_case, cases_with_subjects, limit)) as results:
        async for (case, _), record in results:
            for tried in task.compare_with_label(case, record):
                yield tried


async def _judge_case(judge: AnyJudge, case_and_subject: tuple[Case, Any]) -> Any:  # noqa: ANN401 - a task's record
    _, subject = case_and_subject
    return await judge.judge(subject)


def count_agreements(tried: Iterable[Tried]) -> Agreement:
    """Count how often the judge agrees with the labels. Undecided answers are counted separately."""
    right = 0
    decided = 0
    undecided = 0
    for answer in tried:
        if answer.said in UNDECIDED:
            undecided += 1
            continue
        decided += 1
        if answer.agrees:
            right += 1
    return Agreement(right, decided, undecided, share=rates.wilson_interval(right, decided))


def measure_leniency(
    loaded: LoadedRubric,
    wrong: Sequence[WrongCase],
    mode: ModeName,
    project: Path,
    progress: Progress,
) -> dict[str, dict[str, Agreement]]:
    """Count how many deliberately wrong texts each tier accepts, by tier and by kind of text.

    Raises `InputError` if a text can't be judged.
    """
    # An ordinary case has no kind, so keep the kinds separately.
    kind_by_id = {text.id: text.kind for text in wrong}
    cases = [_convert_to_case(text) for text in wrong]
    opinions = ask(cases, NamedInputs.of(loaded.path), loaded, mode, project, progress)
    if opinions.unasked_reasons:
        raise InputError(
            f"{loaded.path}: a wrong text is not judged: {opinions.unasked_reasons[0]}"
        )

    accepted: dict[str, dict[str, Agreement]] = {}
    for tier, model in opinions.models.items():
        verdicts_by_kind = _collect_verdicts(opinions.cases, tier, kind_by_id, loaded, mode)
        was_asked = bool(verdicts_by_kind)
        if was_asked:
            accepted[f"{tier} ({model})"] = {
                kind: _count_accepted(verdicts) for kind, verdicts in verdicts_by_kind.items()
            }
    return accepted


def _convert_to_case(text: WrongCase) -> Case:
    """Convert a wrong text to an ordinary case, which has no kind."""
    fields = text.model_dump(exclude={"kind"})
    return Case.model_validate(fields)


def _collect_verdicts(
    cases: Iterable[Case],
    tier: TierName,
    kind_by_id: Mapping[str, str],
    loaded: LoadedRubric,
    mode: ModeName,
) -> dict[str, list[str | None]]:
    """Collect a tier's verdicts by kind of text. Leaves out kinds that the tier wasn't asked about."""
    # Start with all kinds, to keep their order.
    verdicts_by_kind: dict[str, list[str | None]] = {kind: [] for kind in kind_by_id.values()}
    for case in cases:
        if tier in case.judges:
            task = choose_task(loaded.rubric, mode, case)
            answers = task.read_answers(case, case.judges[tier])
            kind = kind_by_id[case.id]
            verdicts_by_kind[kind].append(answers[WHOLE_CASE_KEY])
    return {kind: verdicts for kind, verdicts in verdicts_by_kind.items() if verdicts}


def _count_accepted(verdicts: Sequence[str | None]) -> Agreement:
    """Count the acceptances, the readable verdicts and the unreadable ones, which are None."""
    accepted = verdicts.count("accept")
    unreadable_count = verdicts.count(None)
    readable_count = len(verdicts) - unreadable_count
    return Agreement(
        accepted,
        readable_count,
        unreadable_count,
        share=rates.wilson_interval(accepted, readable_count),
    )


def find_flips(before: Sequence[Tried], after: Sequence[Tried]) -> list[tuple[str, Tried]]:
    """Find cases that got different answers in two runs. Returns each earlier answer with the new trial."""
    words_before = {(tried.case, tried.mode): tried.said for tried in before}
    flipped = []
    for tried in after:
        old_word = words_before.get((tried.case, tried.mode))
        if old_word is not None and old_word != tried.said:
            flipped.append((old_word, tried))
    return flipped
