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
    from judgekit.hooks.trial import Trial

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
    trials: Sequence[Trial],
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
    best = _choose_best(thresholds, before["high"])
    interval = best.precision
    found: dict[str, Any] = {"precision": interval, "coverage": best.coverage}
    if interval.value < BAR:
        problem = f"no threshold reaches a precision of {BAR:.2f}"
        found["refused"] = f"{problem}; the best is high: {best.high:g}"
    elif interval.of < FEWEST or interval.high - interval.low > WIDEST:
        found["refused"] = f"too few labels for high: {best.high:g}"
        found["more"] = more_needed(interval)
    else:
        # The lower thresholds never stand above the highest.
        lowered = {name: min(value, best.high) for name, value in before.items()}
        found["after"] = lowered | {"high": best.high}
    return unchanged.model_copy(update=found)


def _try_thresholds(
    kind: str,
    trials: Sequence[Trial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    most: int,
) -> list[_Threshold]:
    """Return each threshold of `kind` under which every injection has an answer, the lowest first."""
    grid = {labels[kind]["high"]}
    for trial in trials:
        for hit in trial.hits:
            if hit.kind == kind:
                grid.add(floor(100 * hit.confidence) / 100)
    thresholds = []
    for high in sorted(grid):
        least = {name: limits["high"] for name, limits in labels.items()}
        least[kind] = high
        threshold = _measure(kind, trials, answers, least, most)
        if threshold is not None:
            thresholds.append(threshold)
    return thresholds


def _measure(
    kind: str,
    trials: Sequence[Trial],
    answers: Answers,
    least: Mapping[str, float],
    most: int,
) -> _Threshold | None:
    """Return what the confidences `least` give; None where an injection of `kind` has no answer."""
    relevant = 0
    irrelevant = 0
    covered = 0
    for trial in trials:
        injected = []
        for hit in trial.hits:
            if hit.kind in least and not hit.damaged and hit.confidence >= least[hit.kind]:
                injected.append(hit)
        is_covered = False
        for hit in injected[:most]:
            pair = trial.pair(hit)
            if hit.kind == kind and pair not in answers:
                return None
            answer = answers.get(pair)
            is_covered = is_covered or answer is True
            if hit.kind == kind and answer is True:
                relevant += 1
            if hit.kind == kind and answer is False:
                irrelevant += 1
        if is_covered:
            covered += 1
    precision = share(relevant, relevant + irrelevant)
    coverage = share(covered, len(trials))
    if precision is None or coverage is None:
        return None
    return _Threshold(least[kind], precision, coverage)


def _choose_best(thresholds: Sequence[_Threshold], before: float) -> _Threshold:
    """Return the one that covers most prompts among those precise enough, or else the most precise one."""
    precise = [threshold for threshold in thresholds if threshold.precision.value >= BAR]
    if not precise:
        return max(thresholds, key=lambda threshold: threshold.precision.value)
    return max(
        precise,
        key=lambda threshold: (
            threshold.coverage.count,
            threshold.precision.value,
            -abs(threshold.high - before),
        ),
    )


def more_needed(found: Share | None) -> int | None:
    """Return how many more labels with the same share let a threshold be chosen; None beyond `_MOST`."""
    if found is None:
        return FEWEST
    for of in range(max(found.of, FEWEST), _MOST):
        wanted = share(round(found.value * of), of)
        if wanted and wanted.high - wanted.low <= WIDEST:
            return of - found.of
    return None


def write_labels(found: Fit, project: Path) -> Fit:
    """Write thresholds into the user's own profile, keep a copy of the old one, and return where both are.

    Raises `ConfigError` when it cannot, also where the project has a profile, which comes before the user's.
    """
    source = profiles.find(found.kind, project)
    own = Path(environment.STORE_PROFILES.path(f"{found.kind}.yaml"))
    if source.is_relative_to(project / ".judgekit"):
        labels = ", ".join(f"{name}: {value:g}" for name, value in found.after.items())
        problem = f"this file comes before yours, so none is written; set {{{labels}}} here"
        raise ConfigError(problem, path=source, key="labels")
    copy = own.with_name(f"{own.name}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    written = [str(own), *([str(copy)] if own.exists() else [])]
    try:
        outputs.make_folder(str(own.parent), private=True)
        target = copy if own.exists() else own
        outputs.write_atomically(str(target), source.read_bytes(), private=True)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=own) from None
    for name in (
        "mention",
        "medium",
        "high",
    ):  # in order after each step: the two lower ones never rise
        yaml_text.put(own, "labels", name, float(f"{found.after[name]:g}"))
    return found.model_copy(update={"written": written})
