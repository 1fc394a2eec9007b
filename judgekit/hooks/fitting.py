"""Which thresholds of a store follow from what people said of its memories, and writes them."""

from __future__ import annotations

import time
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, outputs
from judgekit.config import yaml_text
from judgekit.errors import ConfigError
from judgekit.evaluation.stats import ReportPart
from judgekit.hooks.trial import BAR, FEWEST, Share, share
from judgekit.retrieval import profiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.hooks.relevance import Answers
    from judgekit.hooks.trial import PromptTrial

WIDEST = 0.3  # interval of a precision that a threshold may rest on
_MOST = 1_000  # labels that a user is told to give


class Fit(ReportPart):
    """Thresholds for one kind of store; `refused` says why they stay, `more` how many labels are lacking."""

    kind: str
    before: dict[str, float]
    after: dict[str, float]
    precision: Share | None = None
    coverage: Share | None = None
    refused: str | None = None
    more: int | None = None
    written: list[str] = []


class _Threshold(NamedTuple):
    """A threshold that was tried: what it injects is relevant how often, and for how many prompts."""

    high: float
    precision: Share
    coverage: Share


def fit(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    most: int,
) -> Fit:
    """Return the thresholds of `kind` that give most prompts something relevant at a precision of `BAR`.

    `labels` are those of every kind; a prompt gets `most` memories. A threshold is tried only where every
    memory that it injects has an answer.
    """
    before = labels[kind]
    unchanged = Fit(kind=kind, before=before, after=before)
    thresholds = _try_thresholds(kind, trials, answers, labels, most)
    if not thresholds:
        reason = "no threshold has an answer about each injection"
        return unchanged.model_copy(update={"refused": reason})
    best = _choose_best(thresholds, present_high=before["high"])
    precision = best.precision
    is_uncertain = precision.of < FEWEST or precision.high - precision.low > WIDEST
    result: dict[str, Any] = {"precision": precision, "coverage": best.coverage}
    if precision.value < BAR:
        problem = f"no threshold reaches a precision of {BAR:.2f}"
        result["refused"] = f"{problem}; the best is high: {best.high:g}"
    elif is_uncertain:
        result["refused"] = f"too few labels for high: {best.high:g}"
        result["more"] = more_needed(precision)
    else:
        # The lower thresholds never stand above the highest.
        lowered = {name: min(value, best.high) for name, value in before.items()}
        result["after"] = lowered | {"high": best.high}
    return unchanged.model_copy(update=result)


def _try_thresholds(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    most: int,
) -> list[_Threshold]:
    """Return each threshold of `kind` under which every injection has an answer, the lowest first."""
    candidates = {labels[kind]["high"]}
    for trial in trials:
        for hit in trial.hits:
            if hit.kind == kind:
                rounded_down = floor(100 * hit.confidence) / 100
                candidates.add(rounded_down)
    high_by_kind = {name: limits["high"] for name, limits in labels.items()}
    thresholds = []
    for high in sorted(candidates):
        threshold = _measure(kind, trials, answers, high_by_kind | {kind: high}, most)
        if threshold is not None:
            thresholds.append(threshold)
    return thresholds


def _measure(
    kind: str,
    trials: Sequence[PromptTrial],
    answers: Answers,
    high_by_kind: Mapping[str, float],
    most: int,
) -> _Threshold | None:
    """Return what the threshold of `kind` gives; None where an injection of that kind has no answer.

    Memories of any kind can cover a prompt, but only those of `kind` count for the precision.
    """
    relevant = 0
    irrelevant = 0
    covered_prompts = 0
    for trial in trials:
        injected = []
        for hit in trial.hits:
            high = high_by_kind.get(hit.kind)
            if high is not None and hit.confidence >= high and not hit.damaged:
                injected.append(hit)
        is_covered = False
        for hit in injected[:most]:
            pair = trial.pair(hit)
            answer = answers.get(pair)
            if answer is True:
                is_covered = True
            if hit.kind != kind:
                continue
            if pair not in answers:
                return None
            if answer is True:
                relevant += 1
            elif answer is False:  # None: a person could not say
                irrelevant += 1
        if is_covered:
            covered_prompts += 1
    precision = share(relevant, relevant + irrelevant)
    coverage = share(covered_prompts, len(trials))
    if precision is None or coverage is None:
        return None
    return _Threshold(high=high_by_kind[kind], precision=precision, coverage=coverage)


def _choose_best(thresholds: Sequence[_Threshold], present_high: float) -> _Threshold:
    """Return the one that covers most prompts among those precise enough, or else the most precise one.

    Of several that cover as many, the most precise one is best, and of equals the nearest to the present one,
    so that nothing changes without a reason.
    """
    precise = [threshold for threshold in thresholds if threshold.precision.value >= BAR]
    if not precise:
        return max(thresholds, key=lambda threshold: threshold.precision.value)

    def rank(threshold: _Threshold) -> tuple[int, float, float]:
        covered_prompts = threshold.coverage.count
        distance = abs(threshold.high - present_high)
        return covered_prompts, threshold.precision.value, -distance

    return max(precise, key=rank)


def more_needed(precision: Share | None) -> int | None:
    """Return how many more labels with the same share let a threshold be chosen; None beyond `_MOST`."""
    if precision is None:
        return FEWEST
    for labels in range(max(precision.of, FEWEST), _MOST):
        expected = share(round(precision.value * labels), labels)
        if expected and expected.high - expected.low <= WIDEST:
            return labels - precision.of
    return None


def write_labels(fitted: Fit, project: Path) -> Fit:
    """Write thresholds into the user's own profile, keep a copy of the old one, and return where both are.

    Raises `ConfigError` when it cannot, also where the project has a profile, which comes before the user's.
    """
    source = profiles.find(fitted.kind, project)
    users_file = Path(environment.STORE_PROFILES.path(f"{fitted.kind}.yaml"))
    if source.is_relative_to(project / ".judgekit"):
        labels = ", ".join(f"{name}: {value:g}" for name, value in fitted.after.items())
        problem = f"this file comes before yours, so none is written; set {{{labels}}} here"
        raise ConfigError(problem, path=source, key="labels")
    written = [str(users_file)]
    copy = users_file  # without a file of the user's own, a copy of the bundled one becomes it
    if users_file.exists():
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        copy = users_file.with_name(f"{users_file.name}.{moment}")  # the old one, to be kept
        written.append(str(copy))
    try:
        outputs.make_folder(str(users_file.parent), private=True)
        outputs.write_atomically(str(copy), source.read_bytes(), private=True)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=users_file) from None
    # `mention` and `medium` only fall, so written first they stay below `high` after each step.
    for name in ("mention", "medium", "high"):
        yaml_text.put(users_file, "labels", name, float(f"{fitted.after[name]:g}"))
    return fitted.model_copy(update={"written": written})
