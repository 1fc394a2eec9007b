"""From labelled cases with the tiers' opinions to a calibration."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from judgekit.calibrate import heard
from judgekit.calibrate.bound import TOGETHER, Was
from judgekit.calibrate.choose import choose
from judgekit.calibrate.file import Learned, calibration
from judgekit.calibrate.reading import asked, samples
from judgekit.calibrate.samples import walk
from judgekit.errors import InputError
from judgekit.judging.escalation import Rules
from judgekit.rubric import TIERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from judgekit.calibrate.choose import Promise
    from judgekit.calibrate.file import Calibration
    from judgekit.calibrate.labelled import Case
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
    asking: Mapping[str, str] = {},
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
    found = samples(cases, loaded, mode)
    choice = choose(found, tiers, promise)
    confirm = getattr(loaded.rubric.modes, mode).confirm
    voices = {tier: frozenset(name.split(TOGETHER)) for tier, name in models.items()}
    with_gates = walk(found, Rules(confirm, tiers, models=voices, gates=choice.gates))
    without = walk(found, Rules(confirm, tiers, models=voices))
    read = heard.readings(cases)
    apart = Counter(tier for tiers in heard.otherwise(cases, read) for tier in tiers)
    learned = Learned(models, Was(asked(cases), read, asking), choice, apart)
    return calibration(
        loaded, mode, promise, learned, (with_gates, without), made=made, labels_sha256=labels_sha256
    )
