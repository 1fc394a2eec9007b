"""From labelled cases with the tiers' opinions to a calibration."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from judgekit.calibrate import heard, ranked
from judgekit.calibrate.bound import TOGETHER, Was
from judgekit.calibrate.choose import choose
from judgekit.calibrate.file import Learned, Subjects, calibration
from judgekit.calibrate.reading import asked, samples
from judgekit.calibrate.samples import walk
from judgekit.errors import InputError
from judgekit.judging.escalation import Rules
from judgekit.rubric import TIERS, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from judgekit.calibrate.choose import Choice, Promise
    from judgekit.calibrate.file import Calibration
    from judgekit.calibrate.labelled import Case
    from judgekit.calibrate.samples import Walked
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, TierName


def learn(
    cases: Sequence[Case],
    models: Mapping[TierName, str],
    loaded: LoadedRubric,
    mode: ModeName,
    promise: Promise,
    *,
    made: datetime,
    labels_sha256: str,
    asking: Mapping[TierName, Mapping[str, str]] = {},
) -> Calibration:
    """Return what the labels allow to promise; `cases` hold the opinions of the tiers in `models`.

    `asking` is a hash of how each model was asked, where it was asked just now.

    Raises `InputError` for a label that the rubric does not know, or fewer than two tiers.
    """
    tiers = tuple(tier for tier in TIERS if tier in models)
    if len(tiers) < 2 or (promise.reference is not None and promise.reference not in tiers):  # noqa: PLR2004 - as said
        raise InputError(
            f"judges: expected opinions of quick and deep, got {', '.join(tiers) or 'none'};"
            " there is nothing to learn where nobody could be asked next"
        )
    choice, measured = _chosen(cases, models, loaded, mode, tiers, promise)
    read = heard.readings(cases)
    apart = Counter(tier for tiers in heard.otherwise(cases, read) for tier in tiers)
    counts = [len(case.subjects) for case in cases if case.subjects]
    subjects = Subjects(least=min(counts), most=max(counts), all=sum(counts)) if counts else None
    learned = Learned(models, Was(asked(cases), read, asking), choice, apart, subjects)
    return calibration(loaded, mode, promise, learned, measured, made=made, labels_sha256=labels_sha256)


def _chosen(
    cases: Sequence[Case],
    models: Mapping[TierName, str],
    loaded: LoadedRubric,
    mode: ModeName,
    tiers: tuple[TierName, ...],
    promise: Promise,
) -> tuple[Choice, tuple[Walked, Walked]]:
    """Return the gates, and what judging comes to on the labelled cases with them and without."""
    if ranked.are_ranked(cases, loaded.rubric) and isinstance(loaded.rubric, ScoreRubric):
        items = ranked.items(cases, loaded.rubric, mode)
        choice = choose([each.sample() for each in items], tiers, promise)
        return choice, (ranked.walk(items, choice.gates), ranked.walk(items, None))
    found = samples(cases, loaded, mode)
    choice = choose(found, tiers, promise)
    confirm = getattr(loaded.rubric.modes, mode).confirm
    voices = {tier: frozenset(name.split(TOGETHER)) for tier, name in models.items()}
    rules = Rules(confirm, tiers, models=voices)
    return choice, (walk(found, replace(rules, gates=choice.gates)), walk(found, rules))
