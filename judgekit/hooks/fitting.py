"""Fits thresholds to people's answers about memories, and writes them: for a store, and for a model."""

from __future__ import annotations

import operator
import time
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from judgekit import environment, outputs
from judgekit.config import settings, yaml_text
from judgekit.errors import ConfigError
from judgekit.evaluation.stats import ReportPart
from judgekit.hooks.trial import MIN_LABELS, MIN_PRECISION, Share, measure_share
from judgekit.retrieval import profiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.hooks.relevance import Answers
    from judgekit.hooks.trial import PromptTrial
    from judgekit.retrieval.confidence import Candidate

MAX_INTERVAL_WIDTH = 0.3  # interval of a precision that a threshold may rest on
HIGH_THRESHOLD_NAME = "high"
INJECT_ABOVE = "inject_above"
MIN_YES_PROBABILITY = 0.5  # the least probability of a model's yes
_MAX_LABELS = 1_000  # labels to ask a user for


class Fit(ReportPart):
    """A threshold for one kind of store, or for a model that judges: what's injected, and above which value.

    `refused` says why it stays as it is, `more` how many labels are lacking.
    """

    kind: str
    """The kind of store, or the name of the model."""
    is_model: bool = Field(default=False, exclude_if=operator.not_)
    before: dict[str, float]
    after: dict[str, float]
    precision: Share | None = None
    coverage: Share | None = None
    refused: str | None = None
    more: int | None = None
    written: list[str] = []


class _Threshold(NamedTuple):
    """A threshold that was tried: the precision of its injections, and the number of prompts they cover."""

    value: float
    precision: Share
    coverage: Share


class _Injections(NamedTuple):
    """The memories that a threshold injects for a prompt. Its precision depends on those of `rated`."""

    trial: PromptTrial
    injected: Sequence[Candidate]
    rated: Sequence[Candidate]


def fit_store(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    limit: int,
) -> Fit:
    """Fit the "high" threshold for one kind of store to people's answers.

    The best value injects a relevant memory for the most prompts, at a precision of at least `MIN_PRECISION`.
    `labels` are the current thresholds by kind, and `limit` is the maximum number of memories per prompt.
    """
    before = labels[kind]
    thresholds = _try_thresholds(kind, trials, answers, labels, limit)
    unchanged = Fit(kind=kind, before=before, after=before)
    fitted = _choose_threshold(
        unchanged, HIGH_THRESHOLD_NAME, thresholds, present=before[HIGH_THRESHOLD_NAME]
    )

    # The "high" threshold must remain the highest threshold, so lower any others that exceed it now.
    highest = fitted.after[HIGH_THRESHOLD_NAME]
    lowered = {name: min(value, highest) for name, value in fitted.after.items()}
    return fitted.model_copy(update={"after": lowered})


def fit_model(
    model: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    present: float | None,
    limit: int,
) -> Fit:
    """Fit a judging model's threshold, by the same rule as `fit_store`.

    A memory is injected if `model` gives it at least this probability. `present` is the configured threshold,
    None if there's none, and `limit` is the maximum number of memories per prompt.
    """
    thresholds = _try_probabilities(model, trials, answers, limit)
    before = {} if present is None else {INJECT_ABOVE: present}
    unchanged = Fit(kind=model, is_model=True, before=before, after=before)
    # A model without a configured threshold uses the default.
    threshold_in_use = present or MIN_YES_PROBABILITY
    return _choose_threshold(unchanged, INJECT_ABOVE, thresholds, present=threshold_in_use)


def _try_probabilities(
    model: str, trials: Sequence[PromptTrial], answers: Answers, limit: int
) -> list[_Threshold]:
    """Try each of a model's probabilities as its threshold, and measure the injections. The lowest is first.

    A threshold is skipped if it would inject a memory that nobody has answered about.
    """
    judged_trials = [trial for trial in trials if trial.model == model]
    probabilities: list[float] = []
    for trial in judged_trials:
        probabilities += trial.sureness.values()

    thresholds = []
    for value in _make_thresholds(probabilities):
        injections = [_choose_surest(trial, value, limit) for trial in judged_trials]
        threshold = _measure_threshold(value, injections, answers)
        if threshold is not None:
            thresholds.append(threshold)
    return thresholds


def _choose_surest(trial: PromptTrial, threshold: float, limit: int) -> _Injections:
    """Choose up to `limit` memories whose probability reaches a threshold."""
    surest = trial.list_surest(limit)
    injected = [hit for hit in surest if trial.sureness[hit.path] >= threshold]
    return _Injections(trial, injected, rated=injected)


def _choose_threshold(
    unchanged: Fit, name: str, thresholds: Sequence[_Threshold], present: float
) -> Fit:
    """Return a copy of `unchanged` with the best value for the threshold `name`.

    If the answers don't justify a change, the copy's `refused` says why. `present` is the current value.
    """
    if not thresholds:
        reason = "no threshold has an answer about each injection"
        return unchanged.model_copy(update={"refused": reason})

    best_threshold = _choose_best(thresholds, present)
    precision = best_threshold.precision
    best_setting = f"{name}: {best_threshold.value:g}"

    fields: dict[str, Any] = {"precision": precision, "coverage": best_threshold.coverage}
    if precision.value < MIN_PRECISION:
        fields["refused"] = (
            f"no threshold reaches a precision of {MIN_PRECISION:.2f}; the best is {best_setting}"
        )
    elif _is_uncertain(precision):
        fields["refused"] = f"too few labels for {best_setting}"
        fields["more"] = estimate_more_labels(precision)
    else:
        fields["after"] = unchanged.before | {name: best_threshold.value}

    return unchanged.model_copy(update=fields)


def _is_uncertain(precision: Share) -> bool:
    """Whether a precision comes from too few labels, or has too wide a confidence interval."""
    label_count = precision.of
    interval_width = precision.high - precision.low
    return label_count < MIN_LABELS or interval_width > MAX_INTERVAL_WIDTH


def _try_thresholds(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    limit: int,
) -> list[_Threshold]:
    """Measure each possible threshold for one kind of store, lowest first.

    A threshold is skipped if it would inject a memory that nobody has answered about.
    """
    # Only this kind's threshold varies. Those of the other kinds stay as they are.
    high_by_kind = {name: kind_labels[HIGH_THRESHOLD_NAME] for name, kind_labels in labels.items()}

    thresholds = []
    for value in _list_possible_thresholds(kind, trials, current=labels[kind][HIGH_THRESHOLD_NAME]):
        high_by_kind[kind] = value
        injections = [_choose_injections(trial, kind, high_by_kind, limit) for trial in trials]
        threshold = _measure_threshold(value, injections, answers)
        if threshold is not None:
            thresholds.append(threshold)
    return thresholds


def _list_possible_thresholds(
    kind: str, trials: Sequence[PromptTrial], *, current: float
) -> list[float]:
    """List each confidence that occurred for a kind of store, rounded down, and the current threshold."""
    confidences = []
    for trial in trials:
        confidences += [hit.confidence for hit in trial.hits if hit.kind == kind]
    return _make_thresholds(confidences, extra=current)


def _choose_injections(
    trial: PromptTrial, kind: str, high_by_kind: Mapping[str, float], limit: int
) -> _Injections:
    """Choose the memories that the thresholds inject for a prompt, up to `limit`.

    Those from stores of `kind` are the `rated` ones.
    """
    injected = _choose_injected(trial, high_by_kind)[:limit]
    # A memory of any kind can cover the prompt, but the precision is measured for this kind alone.
    hits_of_kind = [hit for hit in injected if hit.kind == kind]
    return _Injections(trial, injected, rated=hits_of_kind)


def _choose_injected(trial: PromptTrial, high_by_kind: Mapping[str, float]) -> list[Candidate]:
    """List the undamaged hits that reach the threshold for their kind. Kinds without one inject nothing."""
    injected = []
    for hit in trial.hits:
        threshold = high_by_kind.get(hit.kind)
        if threshold is None or hit.is_damaged:
            continue
        if hit.confidence >= threshold:
            injected.append(hit)
    return injected


def _make_thresholds(values: Iterable[float], extra: float | None = None) -> list[float]:
    """Round the values down to hundredths. Returns them sorted and without duplicates, with `extra` added."""
    # Round down, so that a threshold doesn't exclude the value that it was made from.
    thresholds = {floor(100 * value) / 100 for value in values}
    if extra is not None:
        thresholds.add(extra)
    return sorted(thresholds)


def _measure_threshold(
    value: float, injections: Sequence[_Injections], answers: Answers
) -> _Threshold | None:
    """Measure a threshold's precision and coverage from people's answers about the injected memories.

    Returns None if an answer is missing, or if none of them is yes or no.
    """
    given_answers = _list_answers(injections, answers)
    if given_answers is None:
        return None

    # Precision is the fraction of memories that are relevant. Unclear answers don't count.
    relevant = given_answers.count(True)
    irrelevant = given_answers.count(False)
    precision = measure_share(relevant, relevant + irrelevant)

    # Coverage is the fraction of prompts that get a relevant memory.
    covered_prompts = _count_covered_prompts(injections, answers)
    coverage = measure_share(covered_prompts, len(injections))

    if precision is None or coverage is None:  # a fraction of 0 memories or prompts
        return None
    return _Threshold(value, precision, coverage)


def _list_answers(injections: Sequence[_Injections], answers: Answers) -> list[bool | None] | None:
    """List people's answers about the rated memories: True if relevant, None if the person couldn't tell.

    Returns None instead of a list if nobody has answered about one of the memories.
    """
    given_answers = []
    for trial, _, rated in injections:
        for hit in rated:
            pair = trial.make_pair(hit)
            if pair not in answers:
                return None
            given_answers.append(answers[pair])
    return given_answers


def _count_covered_prompts(injections: Sequence[_Injections], answers: Answers) -> int:
    """Count the prompts for which a relevant memory was injected."""
    covered_prompts = 0
    for trial, injected, _ in injections:
        if any(answers.get(trial.make_pair(hit)) for hit in injected):
            covered_prompts += 1
    return covered_prompts


def _choose_best(thresholds: Sequence[_Threshold], present: float) -> _Threshold:
    """Choose the threshold that covers most prompts at a precision of at least `MIN_PRECISION`.

    If no threshold is that precise, return the most precise one.
    """
    precise = [threshold for threshold in thresholds if threshold.precision.value >= MIN_PRECISION]
    if not precise:
        return max(thresholds, key=lambda threshold: threshold.precision.value)

    # If thresholds cover equally many prompts, prefer the most precise one, and then the one nearest to the
    # present value.
    def rank(threshold: _Threshold) -> tuple[int, float, float]:
        covered_prompts = threshold.coverage.count
        distance = abs(threshold.value - present)
        return covered_prompts, threshold.precision.value, -distance

    return max(precise, key=rank)


def estimate_more_labels(precision: Share | None) -> int | None:
    """Estimate how many more labels would make a precision certain enough, if its value stays the same.

    Returns None if `_MAX_LABELS` or more would be needed in total, since nobody would answer so many.
    """
    if precision is None:  # there are no labels yet
        return MIN_LABELS

    current_count = precision.of
    first_count = max(current_count, MIN_LABELS)
    for label_count in range(first_count, _MAX_LABELS):
        if _is_enough(label_count, precision.value):
            return label_count - current_count
    return None


def _is_enough(label_count: int, precision: float) -> bool:
    """Whether this many labels would make the confidence interval of a precision narrow enough."""
    relevant = round(precision * label_count)
    expected = measure_share(relevant, label_count)
    if expected is None:
        return False
    return expected.high - expected.low <= MAX_INTERVAL_WIDTH


def write_labels(fitted: Fit, project: Path) -> Fit:
    """Write the fitted thresholds into the user's profile for this kind of store.

    Returns a copy of `fitted` with the paths of the written files. Raises `ConfigError` if the project has
    its own profile, or if a file can't be written.
    """
    profile = profiles.find(fitted.kind, project)
    _refuse_project_profile(profile, project, fitted)

    users_file = Path(environment.STORE_PROFILES.path(f"{fitted.kind}.yaml"))
    written = [str(users_file)]
    if users_file.exists():  # then `profile` is the same file, so back it up
        backup = _name_backup(users_file)
        written.append(str(backup))
        _copy_profile(profile, copy=backup, users_file=users_file)
    else:  # the user's profile begins as a copy of the bundled one
        _copy_profile(profile, copy=users_file, users_file=users_file)

    # `mention` and `medium` can only have been lowered. Write them first, so that they never exceed `high`.
    for name in ("mention", "medium", "high"):
        short_text = f"{fitted.after[name]:g}"  # such as 0.4 instead of 0.39999999999999997
        yaml_text.put_value(users_file, "labels", name, float(short_text))
    return fitted.model_copy(update={"written": written})


def _refuse_project_profile(profile: Path, project: Path, fitted: Fit) -> None:
    """Raise `ConfigError` if `profile` is the project's, because it would override the user's."""
    is_in_project = profile.is_relative_to(project / ".judgekit")
    if is_in_project:
        labels = ", ".join(f"{name}: {value:g}" for name, value in fitted.after.items())
        problem = f"this file comes before yours, so none is written; set {{{labels}}} here"
        raise ConfigError(problem, path=profile, key="labels")


def _name_backup(file: Path) -> Path:
    """Name a file's backup by the time in UTC, such as `notes.yaml.20250131T120000Z`."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return file.with_name(f"{file.name}.{moment}")


def _copy_profile(source: Path, copy: Path, users_file: Path) -> None:
    """Copy a profile to `copy`, which is the user's profile itself or a backup next to it.

    Raises `ConfigError`, which names the user's profile, if that fails.
    """
    try:
        outputs.make_folder(str(users_file.parent), private=True)
        outputs.write_atomically(str(copy), source.read_bytes(), private=True)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=users_file) from None


def write_model_threshold(fitted: Fit) -> Fit:
    """Write a model's fitted threshold into the user's configuration.

    Returns a copy of `fitted` with the path of the written file. Raises `ConfigError` if it can't be changed.
    """
    path = settings.get_user_config_path()
    model = fitted.kind
    threshold = fitted.after[INJECT_ABOVE]

    def put_threshold(data: dict[str, Any]) -> None:
        retrieval = data.setdefault("retrieval", {})
        threshold_by_model = retrieval.setdefault(INJECT_ABOVE, {})
        threshold_by_model[model] = threshold

    key = f"retrieval.{INJECT_ABOVE}"
    remedy = f"set it to {{{model}: {threshold:g}}} by hand"
    yaml_text.change(path, put_threshold, remedy=remedy, key=key)
    return fitted.model_copy(update={"written": [str(path)]})
