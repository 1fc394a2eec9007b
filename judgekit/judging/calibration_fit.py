"""Checks that a calibration fits a judge: it holds for one way of asking the same models the same.

It's bound to its rubric and mode, to the models, the way they're asked, and the way their answers are read.
Which model answers under a name shows in its replies, so `orchestrator.py` checks that. An address doesn't
show which server is behind it, so that isn't checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.judging import pointwise
from judgekit.judging.calibration import TOGETHER, Asked, Asking, Calibration, sha256, together
from judgekit.judging.questions import question_of
from judgekit.judging.questions_hash import hash_questions
from judgekit.judging.score_source import SOURCE_WORDS, ScoreSource, possible_sources
from judgekit.providers import registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.config import TierName
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Rubric


class PanelFingerprint(NamedTuple):
    """The models asked, by tier, and how they're asked."""

    models: dict[TierName, str]
    asked: Asked
    able: dict[TierName, dict[str, frozenset[ScoreSource]]]
    """The ways in which each model's opinions may be read here."""
    asking: Asking
    """A hash for each model of how its profile asks it."""


def fingerprint(settings: JudgeSettings) -> PanelFingerprint:
    """Describe a judge's models, how they're queried, and how their answers are read.

    A calibration only fits a judge whose fingerprint is the same.
    """
    has_scores = question_of(settings.loaded.rubric).has_scores

    # Describe the models of each tier.
    names_by_tier: dict[TierName, str] = {}
    sources_by_tier: dict[TierName, dict[str, frozenset[ScoreSource]]] = {}
    profile_hashes: Asking = {}
    for tier, endpoints in settings.models_by_tier.items():
        names_by_tier[tier] = together(endpoint.model for endpoint in endpoints)
        sources_by_tier[tier] = {}
        profile_hashes[tier] = {}
        for name in dict.fromkeys(endpoint.model for endpoint in endpoints):
            # A model can have multiple endpoints, with different profiles or addresses.
            model_endpoints = [endpoint for endpoint in endpoints if endpoint.model == name]
            sources: set[ScoreSource] = set()
            for endpoint in model_endpoints:
                sources |= possible_sources(endpoint, scores=has_scores)
            sources_by_tier[tier][name] = frozenset(sources)
            digest = _hash_profiles(model_endpoints)
            if digest is not None:  # it's None for a recording
                profile_hashes[tier][name] = digest

    asked_with = Asked(
        samples=settings.samples,
        criteria=settings.criteria,
        jury=settings.jury,
        redact=bool(settings.redact),
    )
    return PanelFingerprint(
        models=names_by_tier, asked=asked_with, able=sources_by_tier, asking=profile_hashes
    )


def _hash_profiles(models: Sequence[Endpoint]) -> str | None:
    """Combine the profile hashes of a model's endpoints, regardless of order. Return None for recordings."""
    hashes = []
    for model in models:
        digest = hash_profile(model)
        if digest is not None:
            hashes.append(digest)
    if not hashes:
        return None
    if len(hashes) == 1:
        return hashes[0]
    return sha256(sorted(hashes))


def hash_profile(endpoint: Endpoint) -> str | None:
    """Hash everything in a model's profile that affects its replies. Returns None for a recording."""
    profile = endpoint.profile

    # Collect the relevant fields of each kind of profile.
    relevant_fields: dict[str, object]
    if isinstance(profile, registry.LitellmProfile):
        relevant_fields = {
            "arguments": profile.of_model(profile.arguments, endpoint.model, {}),
            "thinking": profile.of_model(profile.thinking, endpoint.model, 0),
        }
        thresholds = pointwise.thresholds(endpoint)
        if thresholds:
            relevant_fields["thresholds"] = thresholds
    elif isinstance(profile, registry.DecisionsProfile):
        relevant_fields = {}
    elif isinstance(profile, registry.CommandProfile):
        keys = {"argv", "reply", "reply_key", "reply_where", "files", "set_env"}
        relevant_fields = profile.model_dump(include=keys)
    else:
        return None

    return sha256([relevant_fields, endpoint.output, profile.limits.context_chars])


def misfits(
    calibration: Calibration, loaded: LoadedRubric, panel: PanelFingerprint, subjects: int = 0
) -> Iterator[str]:
    """Yield each reason why a calibration doesn't fit a judge.

    `panel` describes the judge's models now. `subjects` is the number of texts if they're compared by their
    scores, otherwise 0.
    """
    if calibration.rubric.sha256 != loaded.sha256:
        rubric = calibration.rubric
        yield f"it was made for a different {rubric.id} ({rubric.version})"
    if calibration.prompt_sha256 != loaded.rubric.prompt.sha256:
        yield "the prompt has changed"

    # Some older calibrations have no hash, so they can't be checked. Others have a hash of the wording, which
    # never matches.
    hash_then = calibration.questions_sha256 or calibration.wording_sha256
    if hash_then not in (None, hash_questions(loaded, calibration.mode)):
        yield "judgekit's own prompts, or how it reads replies, have changed"

    if calibration.subjects is not None:
        least_texts = calibration.subjects.least
        most_texts = calibration.subjects.most
        if not least_texts <= subjects <= most_texts:
            allowed_count = f"{most_texts}"
            if least_texts < most_texts:
                allowed_count = f"{least_texts} to {most_texts}"
            yield f"it was made for {allowed_count} texts, not for {subjects}"

    # Compare the models and the options.
    for tier in calibration.models | panel.models:
        models_then = calibration.models.get(tier, "nobody")
        models_now = panel.models.get(tier, "nobody")
        if together(models_then.split(TOGETHER)) != models_now:
            yield f"{tier} was {models_then} and is {models_now} now"

    for name in _list_relevant_options(calibration, loaded.rubric, panel):
        value_then = getattr(calibration.asked, name)
        value_now = getattr(panel.asked, name)
        if value_then != value_now:
            yield f"judge.{name} was {str(value_then).lower()} and is {str(value_now).lower()} now"
    yield from _find_other_readings(calibration, panel)


def _list_relevant_options(
    calibration: Calibration, rubric: Rubric, panel: PanelFingerprint
) -> Iterator[str]:
    """Yield the names of the options in `Asked` that can change the answers of a panel's models."""
    all_sources: list[frozenset[ScoreSource]] = []
    for sources_by_model in panel.able.values():
        all_sources += sources_by_model.values()
    # Models that don't write text always give the same answer, so the number of samples doesn't matter. Such
    # models also get each question separately, except about pairs of texts.
    none_writes = all(sources in ({"points"}, {"decided"}) for sources in all_sources)
    is_always_separate = none_writes and not question_of(rubric).is_about_two

    if not none_writes:
        yield "samples"
    if len(rubric.questions) > 1 and not is_always_separate:
        yield "criteria"
    has_jury = any(TOGETHER in names for names in panel.models.values())
    # The jury rule doesn't matter for rankings, which always average scores.
    if has_jury and not calibration.subjects:
        yield "jury"
    yield "redact"


def _find_other_readings(calibration: Calibration, panel: PanelFingerprint) -> Iterator[str]:
    """Yield a message for each model that's called differently now, or whose answers are read differently."""
    for tier, models in panel.able.items():
        for model, possible in models.items():
            # Compare how the answers are read.
            source_then = calibration.read.get(tier, {}).get(model)
            words_now = SOURCE_WORDS[_choose_usual_source(possible)]
            if source_then is None:
                if "expected" in possible:
                    yield f"it does not say how the scores of {tier} were read, and they are {words_now} now"
            elif source_then not in possible:
                yield f"what {tier} said was {SOURCE_WORDS[source_then]} and is {words_now} now"

            # Compare how the profile calls the model. Recordings and older calibrations have no hash.
            hash_now = panel.asking.get(tier, {}).get(model)
            hash_then = calibration.asking.get(tier, {}).get(model)
            if hash_now and hash_then is not None and hash_then != hash_now:
                yield f"how its provider's profile asks {model} has changed"


def _choose_usual_source(able: frozenset[ScoreSource]) -> ScoreSource:
    """Return the most common way to read a model's answers, out of those it's `able` to give."""
    most_common_first: tuple[ScoreSource, ...] = ("expected", "decided", "points")
    for source in most_common_first:
        if source in able:
            return source
    return "whole"
