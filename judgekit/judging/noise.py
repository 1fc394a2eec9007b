"""Measured noise: how far scores move when a text is judged again, and the verdicts within that range.

A measurement is stored in the user's own configuration folder; a project can't bring one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from judgekit import environment, outputs
from judgekit.config import ModeName, TierName, yamlfile
from judgekit.config.yamlfile import Strict
from judgekit.errors import InputError
from judgekit.judging.calibration import Count, hash_json
from judgekit.judging.calibration_fit import fingerprint_panel
from judgekit.judging.evidence import measure_margin
from judgekit.judging.questions_hash import hash_questions
from judgekit.judging.verdict import RubricRef, Verdict, build_rubric_ref

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from judgekit.judging.documents import Document
    from judgekit.judging.score import DocumentJudge

SCHEMA = "judgekit/noise@1"
COVERAGE_DEVIATIONS = 1.96  # standard deviations: 95 % of judgements are this close to their mean
MIN_ANSWERS = (
    10  # repeated answers about a case; from fewer, the spread is little more than a guess
)


class Noise(Strict):
    """`judgekit/noise@1`: how much a subject's distance from acceptance varies.

    `points` are `COVERAGE_DEVIATIONS` standard deviations of it.
    """

    schema_: Literal["judgekit/noise@1"] = Field(alias="schema")
    made: AwareDatetime
    rubric: RubricRef
    mode: ModeName
    models: dict[TierName, str]
    cases: Count
    points: Annotated[float, Field(ge=0, allow_inf_nan=False)]


def mark_noise(judge: DocumentJudge, document: Document, verdict: Verdict) -> Verdict:
    """Add the judge's measured noise to a verdict whose distance from acceptance is less than that.

    Noise is the number of points by which repeated scores differ. Raises `ConfigError` if the measurement
    can't be read.
    """
    if not verdict.scores or not judge.models_by_tier:
        return verdict
    path = _find_measurement(judge, document)
    if path is None:
        return verdict

    noise = yamlfile.read_model(path, Noise, version_key="schema")
    # An unsigned margin could be the distance from a rejection.
    above_acceptance = measure_margin(judge.rubric, verdict.scores, verdict.mode, signed=True)
    is_within_noise = abs(above_acceptance) < noise.points
    if is_within_noise:
        return verdict.model_copy(update={"noise": noise.points})
    return verdict


def _find_measurement(judge: DocumentJudge, document: Document) -> Path | None:
    """Find the file with the noise of the models that judge the document, or None if there's none."""
    folder = Path(environment.NOISE.path())
    if not folder.is_dir():
        return None
    # Models of the author's family don't judge the document, so their noise doesn't count.
    path = folder / _name_file(judge.for_subject(document))
    return path if path.is_file() else None


def keep(judge: DocumentJudge, cases: int, points: float) -> Path:
    """Store a judge's noise, which was measured on `cases` cases, and return the file's path.

    Noise is the number of points by which repeated scores differ. Raises `InputError` if the file can't be
    written.
    """
    noise = Noise(
        schema=SCHEMA,
        made=datetime.now(UTC),
        rubric=build_rubric_ref(judge.settings.loaded_rubric),
        mode=judge.settings.mode,
        models=fingerprint_panel(judge.settings).models,
        cases=cases,
        points=points,
    )
    path = Path(environment.NOISE.path(_name_file(judge)))
    try:
        environment.make_private_folder(str(path.parent))
        text = noise.model_dump_json(by_alias=True, indent=2) + "\n"
        outputs.write_atomically(str(path), text, private=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); check the folder"
        ) from None
    return path


def _name_file(judge: DocumentJudge) -> str:
    """Return the name of a judge's noise file. Judges share a file only if they have the same noise."""
    digest = hash_json(_list_noise_factors(judge))
    return f"{judge.rubric.rubric}-{judge.settings.mode}-{digest[:12]}.json"


def _list_noise_factors(judge: DocumentJudge) -> list[Any]:
    """List everything that a judge's noise depends on.

    These are the factors of a calibration, followed by the settings that decide which tiers are used.
    """
    settings = judge.settings
    questions_sha256 = hash_questions(settings.loaded_rubric, settings.mode)
    prompt_hashes = [settings.loaded_rubric.sha256, judge.rubric.prompt.sha256, questions_sha256]
    panel_fingerprint = fingerprint_panel(settings)
    calibration_id = settings.finality.id if settings.finality else ""
    tier_factors = [settings.margin, calibration_id]
    return [
        settings.mode,
        prompt_hashes,
        panel_fingerprint.models,
        panel_fingerprint.asked.model_dump(),
        _sort_sources(panel_fingerprint.sources_by_tier),
        panel_fingerprint.asking,
        tier_factors,
    ]


def _sort_sources(
    sources_by_tier: Mapping[TierName, Mapping[str, Collection[str]]],
) -> dict[TierName, dict[str, list[str]]]:
    """Sort each model's sources of scores, so that their hash is stable."""
    sorted_by_tier = {}
    for tier, sources_by_model in sources_by_tier.items():
        sorted_by_tier[tier] = {
            model: sorted(sources) for model, sources in sources_by_model.items()
        }
    return sorted_by_tier
