"""From labelled cases with the tiers' opinions to a calibration."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from judgekit.calibrate import bound, heard, ranked
from judgekit.calibrate.bound import TOGETHER, Was
from judgekit.calibrate.choose import choose
from judgekit.calibrate.file import SCHEMA, Calibration, Measured, NotShown, Promised, Shown, Subjects
from judgekit.calibrate.reading import asked, samples
from judgekit.calibrate.samples import walk
from judgekit.errors import InputError
from judgekit.judging.escalation import Rules
from judgekit.names import TIERS
from judgekit.rubric import ScoreRubric
from judgekit.verdict import RubricRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pydantic import AwareDatetime

    from judgekit.calibrate.choose import Choice, Refused, Tested
    from judgekit.calibrate.evidence import Promise
    from judgekit.calibrate.labelled import Case
    from judgekit.calibrate.samples import Walked
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName, TierName


class Learned(NamedTuple):
    """What was learned of whom; of opinions that were `read_otherwise` nothing was."""

    models: Mapping[TierName, str]
    was: Was
    choice: Choice
    read_otherwise: Mapping[TierName, int]
    subjects: Subjects | None = None


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


def calibration(
    loaded: LoadedRubric,
    mode: ModeName,
    promise: Promise,
    learned: Learned,
    measured: tuple[Walked, Walked],
    *,
    made: AwareDatetime,
    labels_sha256: str,
) -> Calibration:
    """Return what was learned, bound to what it was learned with; `measured` with the gates and without."""
    choice, was = learned.choice, learned.was
    return _named(
        Calibration(
            schema=SCHEMA,
            id="",
            made=made,
            rubric=RubricRef(id=loaded.rubric.rubric, version=loaded.rubric.version, sha256=loaded.sha256),
            mode=mode,
            prompt_sha256=loaded.rubric.prompt.sha256,
            wording_sha256=bound.wording(loaded.rubric, mode),
            models=dict(learned.models),
            asked=was.asked,
            read=was.read,
            asking={tier: dict(models) for tier, models in was.asking.items()},
            subjects=learned.subjects,
            promise=Promised(rate=promise.rate, confidence=promise.confidence, reference=promise.reference),
            gates=[_shown(each) for each in choice.shown],
            not_promised=[_not_shown(each) for each in choice.refused],
            read_otherwise=dict(learned.read_otherwise),
            cases=measured[0].cases,
            labels_sha256=labels_sha256,
            with_gates=_measured(measured[0]),
            without=_measured(measured[1]),
        )
    )


def _named(known: Calibration) -> Calibration:
    """Return a calibration with its id: the same for the same labels, models, promise and gates."""
    content: list[object] = [known.rubric.sha256, known.mode, known.models, known.prompt_sha256]
    content += [known.labels_sha256, known.asked.model_dump(), known.read, known.asking]
    content += [known.promise.model_dump(), [each.model_dump() for each in known.gates]]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return known.model_copy(update={"id": f"{known.rubric.id}-{known.mode}-{digest[:12]}"})


def _shown(found: Tested) -> Shown:
    return Shown(**found.gate._asdict(), **found.tally._asdict(), bound=round(found.bound, 6))


def _not_shown(found: Refused) -> NotShown:
    return NotShown(
        **found.chain._asdict(),
        least_margin=found.least_margin,
        **found.tally._asdict(),
        bound=round(found.bound, 6),
        why=found.why,
        more=found.more,
    )


def _measured(found: Walked) -> Measured:
    return Measured(
        decided=found.decided, errors=found.errors, by_gate=found.by_gate, calls=dict(found.calls)
    )
