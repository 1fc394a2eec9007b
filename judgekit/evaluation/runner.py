"""Asks models, or a recording of them, about labelled cases, for three commands.

`eval judge` and `calibrate` ask for every tier's opinion (`ask`), whichever tier would have settled it.
`rubric check --run` asks for the verdicts of normal judging (`trial`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import MODES, ModeName, TierName
from judgekit.config import settings as configuration
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.calibrate import Opinions
from judgekit.evaluation.cases import Case, Recorded, Variant
from judgekit.evaluation.document_task import read_text
from judgekit.evaluation.samples import WHOLE
from judgekit.evaluation.stats import UNDECIDED
from judgekit.evaluation.task import UnaskedError, join_answers
from judgekit.evaluation.tasks import choose_task
from judgekit.judging import service
from judgekit.judging.calibration_fit import fingerprint
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
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from judgekit.evaluation.task import Tried
    from judgekit.judging.orchestrator import Judge
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
    at_once: int = service.AT_ONCE,
) -> Opinions:
    """Ask every tier about every case, and return the cases with the answers.

    Each of `models` is asked alone and becomes a judge with its name. None stands for all configured tiers.
    `progress` is called with the number of cases so far. Cases that lack something the rubric needs are
    omitted.

    Raises `UnaskedError` if no case remains, `UsageError` if no model is configured, `ConfigError` or
    `InputError`.
    """
    config = configuration.load(project)
    _check_paths(cases, inputs)  # before any costs arise

    def build_judge(gateway: Gateway, model: str | None) -> DocumentJudge:
        """Build a judge with `model`, or with the configured models.

        Raises `UsageError` if there are none.
        """
        request = JudgeRequest(mode=mode, model=model)
        settings = service.judge_settings(config, loaded, project, request)
        if not settings.models_by_tier:
            raise UsageError(f"no model to ask: {settings.no_model_reason}")
        return DocumentJudge(gateway, settings, service.reply_cache(request))

    async def ask_all() -> Opinions:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            # Build all judges first, so that a missing model is noticed before any call costs something.
            judges = [build_judge(gateway, model) for model in models]
            asked_cases = list(cases)
            unasked: dict[str, UnaskedError] = {}  # by case id
            count = 0  # cases done, over all models

            for model, judge in zip(models, judges, strict=True):
                tier_judge = _build_judge_of_all_tiers(judge, model)
                ask_tiers = partial(_ask_unless_refused, tier_judge, inputs=inputs)
                limit = service.max_concurrency(tier_judge, at_once)
                answered_cases = []
                async with aclosing(map_concurrently(ask_tiers, asked_cases, limit)) as answers:
                    async for case, answers_or_error in answers:
                        count += 1
                        progress(count)
                        if isinstance(answers_or_error, UnaskedError):
                            unasked.setdefault(answers_or_error.case_id, answers_or_error)
                        elif model:  # A single model was called as the quick tier.
                            answer = answers_or_error["quick"]
                            answered_cases.append(case.with_judges({model: answer}))
                        else:
                            answered_cases.append(case.with_judges(answers_or_error))
                # The next model adds its answers to these cases.
                asked_cases = answered_cases

            if unasked and not asked_cases:
                raise next(iter(unasked.values()))  # the first error

            panel = fingerprint(judges[0].settings)
            reasons = [error.why for error in unasked.values()]
            return Opinions(
                asked_cases, panel.models, panel.asking, judge=judges[0], unasked=reasons
            )

    return running.run(ask_all())


async def _ask_unless_refused(
    judge: DocumentJudge, case: Case, inputs: NamedInputs
) -> dict[TierName, Recorded] | UnaskedError:
    """Call every tier for a case. If no model may see the case, return the error instead of raising it."""
    try:
        return await ask_about_case(judge, case, inputs)
    except UnaskedError as error:
        return error


def _build_judge_of_all_tiers(judge: DocumentJudge, model: str | None) -> DocumentJudge:
    """Build a judge that calls all tiers for every text. If `model` is given, it's the only tier."""
    models_by_tier = judge.models_by_tier
    if model:
        models_by_tier = {"quick": models_by_tier["quick"]}
    return judge.with_settings(
        models_by_tier=models_by_tier,
        finality=FinalityRules(),  # no opinion is final
        calibration_warning=None,
        author_family=None,  # so that models can judge texts of their own family
    )


def unanswered(cases: Sequence[Case]) -> str | None:
    """Describe in one line how many cases lack a tier's answer, and for which reasons.

    Returns None if all cases have all answers.
    """
    omitted_by_judge = Counter[str]()  # by tier: the number of cases without an answer
    reasons = set[str]()
    incomplete_cases = 0
    has_answer = False
    for case in cases:
        failures = {}
        for name, recorded in case.judges.items():
            if recorded.unanswered:
                failures[name] = str(recorded.unanswered)
        omitted_by_judge.update(failures.keys())
        reasons.update(failures.values())
        if failures:
            incomplete_cases += 1
        if len(failures) < len(case.judges):
            has_answer = True

    if not incomplete_cases:
        return None

    if has_answer:
        problem = "not every tier answered"
        omitted = [f"{count} of {name}" for name, count in omitted_by_judge.items()]
        effect = f"the figures omit {', '.join(omitted)}"
    else:
        problem = "no model answered"
        effect = "there are no figures"

    affected = f"{incomplete_cases} of {len(cases)} cases"
    reasons_text = ", ".join(sorted(reasons))
    hint = "test the models with judgekit provider check"
    return f"{problem} {affected} ({reasons_text}); {effect}; {hint}"


async def ask_about_case(
    judge: DocumentJudge, case: Case, inputs: NamedInputs
) -> dict[TierName, Recorded]:
    """Call every tier for a case, and record the answers. Returns a record for each tier.

    Raises `UnaskedError` if no model may see the case.
    """
    # A rerun tests if the answer changes, so it must not get the same reply from the cache again.
    if case.variant == "rerun":
        judge = replace(judge, cache=None)

    # Remove secrets from the case before any model sees it.
    task = choose_task(judge.rubric, judge.settings.mode, case)
    task_judge = task.judge(judge)
    subject, secrets = task_judge.redacted(task.subject(case, inputs))
    state = JudgingState(
        subject,
        task_judge.session(),
        refused=task_judge.settings.refusal(secrets),
        secrets=secrets,
    )

    await task.ask_tiers(task_judge, case, state)

    # A tier can have multiple models. Join their answers.
    recorded_by_tier = {}
    for tier, turns in state.turns.items():
        answers = [task.record(case, turn, task_judge.settings) for turn in turns]
        recorded_by_tier[tier] = join_answers(
            answers, task_judge.settings, is_cut=tier in state.cut
        )
    return recorded_by_tier


def add_variants(cases: Sequence[Case], times: int = 1, *, swapped: bool = True) -> list[Case]:
    """Add variants after each original case: reruns and, if `swapped`, one with reordered candidates."""
    repeated = []
    for case in cases:
        repeated.append(case)
        if case.variant != "original":
            continue
        for number in range(times):
            name = f"rerun {number}" if number else "rerun"
            repeated.append(_copy_as_variant(case, "rerun", name))
        if swapped and len(case.candidates) > 1:
            repeated.append(_copy_as_variant(case, "swapped", "swapped"))
    return repeated


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
    labelled = [Case.model_validate(case.model_dump()) for case in cases]
    panel, reason = resolve_panel(config, project)
    if not panel:
        raise UsageError(f"no model to ask: {reason}")

    async def judge_all() -> list[Tried]:
        trials = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            for mode in modes:
                request = JudgeRequest(rubric=str(loaded.path), mode=mode)
                task = choose_task(loaded.rubric, mode)
                usual_judge = task.configured_judge(gateway, loaded, project, request)
                limit = service.max_concurrency(usual_judge, task.trials_at_once)
                judge_case = partial(_judge_case, task.judge(usual_judge))

                # Judge the cases concurrently, and compare each result as soon as it's known.
                subjects = [(case, task.subject(case, None)) for case in labelled]
                results = map_concurrently(judge_case, subjects, limit)
                async with aclosing(results):
                    async for (case, _), record in results:
                        for tried in task.compare_with_label(case, record):
                            progress(tried)
                            trials.append(tried)
        return trials

    return running.run(judge_all())


async def _judge_case(judge: AnyJudge, case_and_subject: tuple[Case, Any]) -> Any:  # noqa: ANN401 - a task's record
    _, subject = case_and_subject
    return await judge.judge(subject)


def agreement(tried: Iterable[Tried]) -> Agreement:
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


def leniency(
    loaded: LoadedRubric,
    wrong: Sequence[WrongCase],
    mode: ModeName,
    project: Path,
    progress: Progress,
) -> dict[str, dict[str, Agreement]]:
    """Count how many deliberately wrong texts each tier accepts, by tier and by kind of text.

    Raises `InputError` if a text can't be judged.
    """
    cases = [Case.model_validate(text.model_dump(exclude={"kind"})) for text in wrong]
    opinions = ask(cases, NamedInputs.of(loaded.path), loaded, mode, project, progress)
    if opinions.unasked:
        raise InputError(f"{loaded.path}: a wrong text is not judged: {opinions.unasked[0]}")

    # Collect each tier's answers by kind of text, and count the acceptances.
    kind_by_id = {text.id: text.kind for text in wrong}
    accepted: dict[str, dict[str, Agreement]] = {}
    for tier, model in opinions.models.items():
        words_by_kind = defaultdict[str, list[str | None]](list)
        for case in opinions.cases:
            if tier in case.judges:
                task = choose_task(loaded.rubric, mode, case)
                words = task.read_answers(case, case.judges[tier])
                words_by_kind[kind_by_id[case.id]].append(words[WHOLE])

        # List the kinds in their original order, without those that the tier wasn't asked about.
        for kind in dict.fromkeys(kind_by_id.values()):
            if kind in words_by_kind:
                accepted_by_kind = accepted.setdefault(f"{tier} ({model})", {})
                accepted_by_kind[kind] = _count_accepted(words_by_kind[kind])
    return accepted


def _count_accepted(words: Sequence[str | None]) -> Agreement:
    """Count the acceptances, the readable verdicts and the unreadable ones, which are None."""
    accepted = words.count("accept")
    unreadable_count = words.count(None)
    readable_count = len(words) - unreadable_count
    return Agreement(
        accepted,
        readable_count,
        unreadable_count,
        share=rates.wilson_interval(accepted, readable_count),
    )


def flips(before: Sequence[Tried], after: Sequence[Tried]) -> list[tuple[str, Tried]]:
    """Find cases that got different answers in two runs. Returns each earlier answer with the new trial."""
    words_before = {(tried.case, tried.mode): tried.said for tried in before}
    flipped = []
    for tried in after:
        old_word = words_before.get((tried.case, tried.mode))
        if old_word is not None and old_word != tried.said:
            flipped.append((old_word, tried))
    return flipped
