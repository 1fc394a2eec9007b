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
from judgekit.hooks.trial import BAR, MIN_LABELS, Share, measure_share
from judgekit.retrieval import profiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.hooks.relevance import Answers
    from judgekit.hooks.trial import PromptTrial
    from judgekit.retrieval.confidence import Candidate

MAX_INTERVAL_WIDTH = 0.3  # interval of a precision that a threshold may rest on
HIGH = "high"
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
    """The memories that a threshold injects for a prompt. Its precision depends on the `counted` ones."""

    trial: PromptTrial
    injected: Sequence[Candidate]
    counted: Sequence[Candidate]


def fit_store(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    limit: int,
) -> Fit:
    """Fit the thresholds for stores of a `kind` to people's answers, and return the old and new values.

    The best threshold covers the most prompts (injects a relevant memory for them) at a precision of at least
    `BAR`. `labels` are the current thresholds by kind, and `limit` is the maximum number of memories per
    prompt.
    """
    before = labels[kind]
    thresholds = _try_thresholds(kind, trials, answers, labels, limit)
    unchanged = Fit(kind=kind, before=before, after=before)
    fitted = _choose_threshold(unchanged, HIGH, thresholds, present=before[HIGH])

    # HIGH must remain the highest threshold, so lower any others that exceed it now.
    highest = fitted.after[HIGH]
    lowered = {name: min(value, highest) for name, value in fitted.after.items()}
    return fitted.model_copy(update={"after": lowered})


def fit_model(
    model: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    present: float | None,
    limit: int,
) -> Fit:
    """Fit the probability at which a memory is injected that `model` judged, by the same rule as `fit_store`.

    `present` is the current threshold or None, and `limit` is the maximum number of memories per prompt.
    """
    before = {} if present is None else {INJECT_ABOVE: present}

    judged_trials = [trial for trial in trials if trial.model == model]
    probabilities: list[float] = []
    for trial in judged_trials:
        probabilities += trial.sureness.values()

    # Try the probabilities that occurred. Skip a threshold if people gave no answer about a memory that would
    # be injected.
    thresholds = []
    for value in _make_thresholds(probabilities):
        injections = [_choose_surest(trial, value, limit) for trial in judged_trials]
        threshold = _measure_threshold(value, injections, answers)
        if threshold is not None:
            thresholds.append(threshold)

    unchanged = Fit(kind=model, is_model=True, before=before, after=before)
    return _choose_threshold(
        unchanged, INJECT_ABOVE, thresholds, present=present or MIN_YES_PROBABILITY
    )


def _choose_surest(trial: PromptTrial, threshold: float, limit: int) -> _Injections:
    """Choose up to `limit` memories whose probability reaches a threshold."""
    surest = trial.list_surest(limit)
    injected = [hit for hit in surest if trial.sureness[hit.path] >= threshold]
    return _Injections(trial, injected, counted=injected)


def _choose_threshold(
    unchanged: Fit, name: str, thresholds: Sequence[_Threshold], present: float
) -> Fit:
    """Return a copy of `unchanged` with the best value for the threshold `name`.

    If the answers don't justify a change, the copy has the reason instead. `present` is the current value.
    """
    if not thresholds:
        reason = "no threshold has an answer about each injection"
        return unchanged.model_copy(update={"refused": reason})

    best_threshold = _choose_best(thresholds, present)
    precision = best_threshold.precision
    interval_width = precision.high - precision.low
    is_uncertain = precision.of < MIN_LABELS or interval_width > MAX_INTERVAL_WIDTH

    result: dict[str, Any] = {"precision": precision, "coverage": best_threshold.coverage}
    if precision.value < BAR:
        problem = f"no threshold reaches a precision of {BAR:.2f}"
        result["refused"] = f"{problem}; the best is {name}: {best_threshold.value:g}"
    elif is_uncertain:
        result["refused"] = f"too few labels for {name}: {best_threshold.value:g}"
        result["more"] = estimate_more_labels(precision)
    else:
        result["after"] = unchanged.before | {name: best_threshold.value}

    return unchanged.model_copy(update=result)


def _try_thresholds(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    limit: int,
) -> list[_Threshold]:
    """Measure each possible threshold for stores of a `kind`, lowest first.

    Skips a threshold if people gave no answer about a memory that would be injected.
    """
    # Try each confidence that occurred, and the current threshold.
    confidences = []
    for trial in trials:
        confidences += [hit.confidence for hit in trial.hits if hit.kind == kind]
    values = _make_thresholds(confidences, extra=labels[kind][HIGH])

    # The thresholds for all other kinds of stores stay as they are.
    high_by_kind = {name: kind_labels[HIGH] for name, kind_labels in labels.items()}

    thresholds = []
    for value in values:
        high_by_kind[kind] = value
        injections = []
        for trial in trials:
            # Memories of any kind can cover a prompt, but only this kind's count for its precision.
            injected = _choose_injected(trial, high_by_kind)[:limit]
            counted = [hit for hit in injected if hit.kind == kind]
            injections.append(_Injections(trial, injected, counted))

        threshold = _measure_threshold(value, injections, answers)
        if threshold is not None:
            thresholds.append(threshold)
    return thresholds


def _choose_injected(trial: PromptTrial, high_by_kind: Mapping[str, float]) -> list[Candidate]:
    """List the undamaged hits that reach the threshold for their kind."""
    injected = []
    for hit in trial.hits:
        high = high_by_kind.get(hit.kind)
        if high is not None and hit.confidence >= high and not hit.damaged:
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
    """Measure the precision and coverage of a threshold from people's answers about the injected memories.

    Precision is the fraction of relevant memories, and coverage the fraction of prompts with a relevant one.
    Returns None if an answer about a memory is missing, or if no answer is clear.
    """
    relevant = 0
    irrelevant = 0
    covered_prompts = 0

    for trial, injected, counted in injections:
        if any(answers.get(trial.make_pair(hit)) for hit in injected):
            covered_prompts += 1

        for hit in counted:
            pair = trial.make_pair(hit)
            if pair not in answers:
                return None

            answer = answers[pair]  # None if the person couldn't tell
            if answer is True:
                relevant += 1
            elif answer is False:
                irrelevant += 1

    precision = measure_share(relevant, relevant + irrelevant)
    coverage = measure_share(covered_prompts, len(injections))
    if precision is None or coverage is None:
        return None

    return _Threshold(value, precision, coverage)


def _choose_best(thresholds: Sequence[_Threshold], present: float) -> _Threshold:
    """Choose the threshold that covers most prompts at a precision of at least `BAR`.

    If no threshold is that precise, return the most precise one.
    """
    precise = [threshold for threshold in thresholds if threshold.precision.value >= BAR]
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
    """Estimate the number of labels still missing, if the precision stays the same.

    Returns None if the total would reach `_MAX_LABELS`, which is more than anyone would answer.
    """
    if precision is None:
        return MIN_LABELS
    for label_count in range(max(precision.of, MIN_LABELS), _MAX_LABELS):
        relevant = round(precision.value * label_count)
        expected = measure_share(relevant, label_count)
        if expected is not None and expected.high - expected.low <= MAX_INTERVAL_WIDTH:
            return label_count - precision.of
    return None


def write_labels(fitted: Fit, project: Path) -> Fit:
    """Write the fitted thresholds into the user's profile for this kind of store.

    Returns a copy of `fitted` with the paths of the written files. An existing profile is backed up first.
    Raises `ConfigError` if a file can't be written, or if the project has a profile, which would take
    precedence.
    """
    source = profiles.find(fitted.kind, project)
    users_file = Path(environment.STORE_PROFILES.path(f"{fitted.kind}.yaml"))
    if source.is_relative_to(project / ".judgekit"):
        labels = ", ".join(f"{name}: {value:g}" for name, value in fitted.after.items())
        problem = f"this file comes before yours, so none is written; set {{{labels}}} here"
        raise ConfigError(problem, path=source, key="labels")

    written = [str(users_file)]

    # Copy the profile: as a backup, or if the user has none, as the start of the user's profile.
    copy = users_file
    if users_file.exists():
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        copy = users_file.with_name(f"{users_file.name}.{moment}")
        written.append(str(copy))

    try:
        outputs.make_folder(str(users_file.parent), private=True)
        outputs.write_atomically(str(copy), source.read_bytes(), private=True)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=users_file) from None

    # `mention` and `medium` can only have been lowered. Write them first, so that they never exceed `high`.
    for name in ("mention", "medium", "high"):
        yaml_text.put_value(users_file, "labels", name, float(f"{fitted.after[name]:g}"))
    return fitted.model_copy(update={"written": written})


def write_model_threshold(fitted: Fit) -> Fit:
    """Write a model's fitted threshold into the user's configuration.

    Returns a copy of `fitted` with the path of the written file. Raises `ConfigError` if it can't be changed.
    """
    path = settings.user_file()
    threshold = fitted.after[INJECT_ABOVE]

    def put_threshold(data: dict[str, Any]) -> None:
        retrieval = data.setdefault("retrieval", {})
        retrieval.setdefault(INJECT_ABOVE, {})[fitted.kind] = threshold

    key = f"retrieval.{INJECT_ABOVE}"
    remedy = f"set it to {{{fitted.kind}: {threshold:g}}} by hand"
    yaml_text.change(path, put_threshold, remedy, key)
    return fitted.model_copy(update={"written": [str(path)]})
