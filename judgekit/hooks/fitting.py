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
from judgekit.hooks.trial import BAR, FEWEST, Share, measure_share
from judgekit.retrieval import profiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.hooks.relevance import Answers
    from judgekit.hooks.trial import PromptTrial
    from judgekit.retrieval.confidence import Candidate

WIDEST = 0.3  # interval of a precision that a threshold may rest on
HIGH = "high"
INJECT_ABOVE = "inject_above"
EVEN = 0.5  # the least probability of a model's yes
_MOST = 1_000  # labels to ask a user for


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
    """The memories that a threshold gives a prompt, and those of them that count for its precision."""

    trial: PromptTrial
    injected: Sequence[Candidate]
    counted: Sequence[Candidate]


def fit(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    most: int,
) -> Fit:
    """Fit the thresholds of `kind`: cover as many prompts as possible at a precision of `BAR` or more.

    `labels` has the thresholds of every kind of store. A prompt gets `most` memories. A threshold is only
    tried if every memory that it injects has an answer.
    """
    before = labels[kind]
    thresholds = _try_thresholds(kind, trials, answers, labels, most)
    unchanged = Fit(kind=kind, before=before, after=before)
    fitted = _choose_threshold(unchanged, HIGH, thresholds, present=before[HIGH])
    # The lower thresholds never exceed the highest.
    highest = fitted.after[HIGH]
    lowered = {name: min(value, highest) for name, value in fitted.after.items()}
    return fitted.model_copy(update={"after": lowered})


def fit_model(
    model: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    present: float | None,
    most: int,
) -> Fit:
    """Fit the threshold on `model`'s probability of keeping a memory, by the same rule as `fit`.

    A prompt gets the `most` likeliest memories. `present` is the current threshold; None if there's none yet.
    """
    before = {} if present is None else {INJECT_ABOVE: present}
    judged_trials = [trial for trial in trials if trial.model == model]
    probabilities: list[float] = []
    for trial in judged_trials:
        probabilities += trial.sureness.values()
    thresholds = []
    for value in _round_down(probabilities):
        injections = [_choose_surest(trial, value, most) for trial in judged_trials]
        threshold = _measure_threshold(value, injections, answers)
        if threshold is not None:
            thresholds.append(threshold)
    unchanged = Fit(kind=model, is_model=True, before=before, after=before)
    return _choose_threshold(unchanged, INJECT_ABOVE, thresholds, present=present or EVEN)


def _choose_surest(trial: PromptTrial, threshold: float, most: int) -> _Injections:
    """Choose the memories that a threshold on a model's probability injects, `most` at most."""
    surest = trial.surest(most)
    injected = [hit for hit in surest if trial.sureness[hit.path] >= threshold]
    return _Injections(trial, injected, counted=injected)


def _choose_threshold(
    unchanged: Fit, name: str, thresholds: Sequence[_Threshold], present: float
) -> Fit:
    """Copy the fit `unchanged` with the best threshold under `name`, or with the reason against changing it.

    The threshold only changes if it reaches the precision `BAR`, and if there are enough labels to be sure.
    """
    if not thresholds:
        reason = "no threshold has an answer about each injection"
        return unchanged.model_copy(update={"refused": reason})
    best_threshold = _choose_best(thresholds, present)
    precision = best_threshold.precision
    interval_width = precision.high - precision.low
    is_uncertain = precision.of < FEWEST or interval_width > WIDEST
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
    most: int,
) -> list[_Threshold]:
    """Measure each threshold of `kind` for which every injected memory has an answer, the lowest first.

    Memories of any kind can cover a prompt, but only those of `kind` count for the precision.
    """
    confidences = []
    for trial in trials:
        confidences += [hit.confidence for hit in trial.hits if hit.kind == kind]
    values = _round_down(confidences, also=labels[kind][HIGH])
    high_by_kind = {name: limits[HIGH] for name, limits in labels.items()}
    thresholds = []
    for value in values:
        high_by_kind[kind] = value
        injections = []
        for trial in trials:
            injected = _choose_injected(trial, high_by_kind)[:most]
            counted = [hit for hit in injected if hit.kind == kind]
            injections.append(_Injections(trial, injected, counted))
        threshold = _measure_threshold(value, injections, answers)
        if threshold is not None:
            thresholds.append(threshold)
    return thresholds


def _choose_injected(trial: PromptTrial, high_by_kind: Mapping[str, float]) -> list[Candidate]:
    """List the hits that reach the threshold of their kind.

    Damaged hits, and hits of a kind without a threshold, are left out.
    """
    injected = []
    for hit in trial.hits:
        high = high_by_kind.get(hit.kind)
        if high is not None and hit.confidence >= high and not hit.damaged:
            injected.append(hit)
    return injected


def _round_down(values: Iterable[float], also: float | None = None) -> list[float]:
    """Round values down to hundredths, each result once and the lowest first; `also` is added as it is."""
    # Down, so that a threshold doesn't exceed the value it was made from.
    thresholds = {floor(100 * value) / 100 for value in values}
    if also is not None:
        thresholds.add(also)
    return sorted(thresholds)


def _measure_threshold(
    value: float, injections: Sequence[_Injections], answers: Answers
) -> _Threshold | None:
    """Measure a threshold by the memories that it injects: its precision, and the prompts that it covers.

    Returns None if a memory that counts has no answer, or if no answer says whether a memory is relevant.
    """
    relevant = 0
    irrelevant = 0
    covered_prompts = 0
    for trial, injected, counted in injections:
        if any(answers.get(trial.pair(hit)) for hit in injected):
            covered_prompts += 1
        for hit in counted:
            pair = trial.pair(hit)
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
    """Choose the threshold that covers most prompts among those with a precision of `BAR` or more.

    If no threshold is that precise, the most precise one is chosen. Of several that cover as many prompts,
    the most precise one is best. Of equals, the one nearest to the present threshold is best, so that nothing
    changes without a reason.
    """
    precise = [threshold for threshold in thresholds if threshold.precision.value >= BAR]
    if not precise:
        return max(thresholds, key=lambda threshold: threshold.precision.value)

    def rank(threshold: _Threshold) -> tuple[int, float, float]:
        covered_prompts = threshold.coverage.count
        distance = abs(threshold.value - present)
        return covered_prompts, threshold.precision.value, -distance

    return max(precise, key=rank)


def estimate_more_labels(precision: Share | None) -> int | None:
    """Estimate how many more labels a threshold needs, if the share of relevant memories stays the same.

    Returns None if that's more than anybody would answer.
    """
    if precision is None:
        return FEWEST
    for label_count in range(max(precision.of, FEWEST), _MOST):
        relevant = round(precision.value * label_count)
        expected = measure_share(relevant, label_count)
        if expected is not None and expected.high - expected.low <= WIDEST:
            return label_count - precision.of
    return None


def write_labels(fitted: Fit, project: Path) -> Fit:
    """Write thresholds into the user's own profile, and note the paths of the files that were written.

    If there was a profile, it's copied first. Raises `ConfigError` if a file can't be written, or if the
    project has a profile: that one takes precedence over the user's.
    """
    source = profiles.find(fitted.kind, project)
    users_file = Path(environment.STORE_PROFILES.path(f"{fitted.kind}.yaml"))
    if source.is_relative_to(project / ".judgekit"):
        labels = ", ".join(f"{name}: {value:g}" for name, value in fitted.after.items())
        problem = f"this file comes before yours, so none is written; set {{{labels}}} here"
        raise ConfigError(problem, path=source, key="labels")

    written = [str(users_file)]
    copy = users_file  # if the user has no file yet, the bundled one is copied to its place
    if users_file.exists():
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        copy = users_file.with_name(f"{users_file.name}.{moment}")  # keeps the old thresholds
        written.append(str(copy))
    try:
        outputs.make_folder(str(users_file.parent), private=True)
        outputs.write_atomically(str(copy), source.read_bytes(), private=True)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=users_file) from None

    # `mention` and `medium` only fall, so written first they stay below `high` after each step.
    for name in ("mention", "medium", "high"):
        yaml_text.put_value(users_file, "labels", name, float(f"{fitted.after[name]:g}"))
    return fitted.model_copy(update={"written": written})


def write_model_threshold(fitted: Fit) -> Fit:
    """Write a model's threshold into the user's configuration, and note its path.

    Raises `ConfigError` if the file can't be written or edited.
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
