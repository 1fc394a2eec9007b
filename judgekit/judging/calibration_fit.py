"""Checks that a calibration fits a judge: it holds for one way of asking the same models the same.

It's bound to its rubric and mode, to the models, the way they're asked, and the way their answers are read.
Which model answers under a name shows in its replies, so `orchestrator.py` checks that. An address doesn't
show which server is behind it, so that isn't checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.judging import pointwise
from judgekit.judging.calibration import (
    MODEL_SEPARATOR,
    Asked,
    Asking,
    Calibration,
    hash_json,
    join_model_names,
)
from judgekit.judging.questions import get_question_class
from judgekit.judging.questions_hash import hash_questions
from judgekit.judging.score_source import SOURCE_WORDS, ScoreSource, possible_sources
from judgekit.providers import registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config import TierName
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Rubric


class PanelFingerprint(NamedTuple):
    """The models asked, by tier, and how they're asked."""

    models: dict[TierName, str]
    asked: Asked
    sources_by_tier: dict[TierName, dict[str, frozenset[ScoreSource]]]
    """The ways in which each model's opinions may be read here."""
    asking: Asking
    """A hash for each model of how its profile asks it."""


def fingerprint_panel(settings: JudgeSettings) -> PanelFingerprint:
    """Describe a judge's models, how they're queried, and how their answers are read.

    A calibration only fits a judge whose fingerprint is the same.
    """
    has_scores = get_question_class(settings.loaded_rubric.rubric).has_scores
    joined_names_by_tier: dict[TierName, str] = {}
    sources_by_tier: dict[TierName, dict[str, frozenset[ScoreSource]]] = {}
    profile_hashes_by_tier: Asking = {}
    for tier, endpoints in settings.models_by_tier.items():
        endpoints_by_model = _group_by_model(endpoints)
        joined_names_by_tier[tier] = join_model_names(endpoint.model for endpoint in endpoints)
        sources_by_tier[tier] = _list_sources(endpoints_by_model, has_scores=has_scores)
        profile_hashes_by_tier[tier] = _hash_profiles_by_model(endpoints_by_model)

    options = Asked(
        samples=settings.samples,
        criteria=settings.criteria,
        jury=settings.jury,
        redact=bool(settings.redact),
    )
    return PanelFingerprint(
        models=joined_names_by_tier,
        asked=options,
        sources_by_tier=sources_by_tier,
        asking=profile_hashes_by_tier,
    )


def _group_by_model(endpoints: Sequence[Endpoint]) -> dict[str, list[Endpoint]]:
    """Group endpoints by model. A model can have several, with different profiles or addresses."""
    endpoints_by_model: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        endpoints_by_model.setdefault(endpoint.model, []).append(endpoint)
    return endpoints_by_model


def _list_sources(
    endpoints_by_model: Mapping[str, Sequence[Endpoint]], *, has_scores: bool
) -> dict[str, frozenset[ScoreSource]]:
    """List the ways in which each model's answers can be read."""
    sources_by_model = {}
    for model, endpoints in endpoints_by_model.items():
        sources: set[ScoreSource] = set()
        for endpoint in endpoints:
            sources |= possible_sources(endpoint, scores=has_scores)
        sources_by_model[model] = frozenset(sources)
    return sources_by_model


def _hash_profiles_by_model(
    endpoints_by_model: Mapping[str, Sequence[Endpoint]],
) -> dict[str, str]:
    """Hash the profiles of each model, except for recordings, which have no hash."""
    hash_by_model = {}
    for model, endpoints in endpoints_by_model.items():
        digest = _hash_profiles(endpoints)
        if digest is not None:
            hash_by_model[model] = digest
    return hash_by_model


def _hash_profiles(endpoints: Sequence[Endpoint]) -> str | None:
    """Combine the profile hashes of a model's endpoints, regardless of order. Return None for recordings."""
    hashes = []
    for endpoint in endpoints:
        digest = hash_profile(endpoint)
        if digest is not None:  # it's None for a recording
            hashes.append(digest)
    if not hashes:
        return None
    if len(hashes) == 1:  # there's nothing to combine
        return hashes[0]
    return hash_json(sorted(hashes))


def hash_profile(endpoint: Endpoint) -> str | None:
    """Hash everything in a model's profile that affects its replies. Returns None for a recording."""
    relevant_fields = _list_relevant_fields(endpoint)
    if relevant_fields is None:
        return None
    context_limit = endpoint.profile.limits.context_chars
    return hash_json([relevant_fields, endpoint.output_mode, context_limit])


def _list_relevant_fields(endpoint: Endpoint) -> dict[str, object] | None:
    """Return the fields of a model's profile that affect replies, or None for a recording."""
    profile = endpoint.profile
    if isinstance(profile, registry.LitellmProfile):
        return _list_litellm_fields(profile, endpoint)
    if isinstance(profile, registry.DecisionsProfile):
        return {}  # no field affects replies
    if isinstance(profile, registry.CommandProfile):
        keys = {"argv", "reply", "reply_key", "reply_where", "files", "set_env"}
        return profile.model_dump(include=keys)
    return None  # a recording


def _list_litellm_fields(profile: registry.LitellmProfile, endpoint: Endpoint) -> dict[str, object]:
    """Return the fields of a LiteLLM profile that affect the replies of the endpoint's model."""
    # Both are tables by model.
    relevant_fields: dict[str, object] = {
        "arguments": profile.look_up_model(profile.arguments, endpoint.model, default={}),
        "thinking": profile.look_up_model(profile.thinking, endpoint.model, default=0),
    }
    thresholds = pointwise.thresholds(endpoint)
    if thresholds:
        relevant_fields["thresholds"] = thresholds
    return relevant_fields


def explain_misfits(
    calibration: Calibration, loaded: LoadedRubric, panel: PanelFingerprint, subjects: int = 0
) -> Iterator[str]:
    """Yield each reason why a calibration doesn't fit a judge.

    `panel` describes the judge's models now. `subjects` is the number of texts if they're compared by their
    scores, otherwise 0.
    """
    yield from _find_changed_texts(calibration, loaded)
    yield from _find_other_count(calibration, subjects)
    yield from _find_other_models(calibration, panel)
    yield from _find_other_options(calibration, loaded.rubric, panel)
    yield from _find_other_readings(calibration, panel)


def _find_changed_texts(calibration: Calibration, loaded: LoadedRubric) -> Iterator[str]:
    """Yield a misfit if the rubric, its prompt or judgekit's own prompts have changed."""
    if calibration.rubric.sha256 != loaded.sha256:
        rubric = calibration.rubric
        yield f"it was made for a different {rubric.id} ({rubric.version})"
    if calibration.prompt_sha256 != loaded.rubric.prompt.sha256:
        yield "the prompt has changed"

    # The oldest calibrations have no hash, so they can't be checked. Later ones only have a hash of the
    # wording. It can't equal a hash of the questions, so they always count as changed.
    hash_then = calibration.questions_sha256 or calibration.wording_sha256
    hash_now = hash_questions(loaded, calibration.mode)
    if hash_then is not None and hash_then != hash_now:
        yield "judgekit's own prompts, or how it reads replies, have changed"


def _find_other_count(calibration: Calibration, subjects: int) -> Iterator[str]:
    """Yield a misfit if the calibration was made for fewer or more texts."""
    if calibration.subjects is None:
        return
    least = calibration.subjects.least
    most = calibration.subjects.most
    if least <= subjects <= most:
        return
    allowed_count = f"{least} to {most}" if least < most else f"{most}"
    yield f"it was made for {allowed_count} texts, not for {subjects}"


def _find_other_models(calibration: Calibration, panel: PanelFingerprint) -> Iterator[str]:
    """Yield a misfit for each tier that has other models now."""
    tiers = calibration.models | panel.models  # those of either one
    for tier in tiers:
        models_then = calibration.models.get(tier, "nobody")
        models_now = panel.models.get(tier, "nobody")
        # The calibration can name the same models in another order.
        sorted_models_then = join_model_names(models_then.split(MODEL_SEPARATOR))
        if sorted_models_then != models_now:
            yield f"{tier} was {models_then} and is {models_now} now"


def _find_other_options(
    calibration: Calibration, rubric: Rubric, panel: PanelFingerprint
) -> Iterator[str]:
    """Yield a misfit for each relevant option that has another value now."""
    for name in _list_relevant_options(calibration, rubric, panel):
        value_then = getattr(calibration.asked, name)
        value_now = getattr(panel.asked, name)
        if value_then != value_now:
            # Write booleans as in the configuration: true, not True.
            yield f"judge.{name} was {str(value_then).lower()} and is {str(value_now).lower()} now"


def _list_relevant_options(
    calibration: Calibration, rubric: Rubric, panel: PanelFingerprint
) -> Iterator[str]:
    """Yield the names of the options in `Asked` that can change the answers of a panel's models."""
    # Only a model that writes text can answer the same question differently.
    has_writer = _has_writer(panel)
    if has_writer:
        yield "samples"

    # Several questions can share a call to a model that writes. For other models, that only matters if the
    # questions are about two texts.
    can_combine_questions = has_writer or get_question_class(rubric).is_about_two
    if len(rubric.questions) > 1 and can_combine_questions:
        yield "criteria"

    # Rankings always average scores, whatever the jury rule is.
    has_jury = any(MODEL_SEPARATOR in names for names in panel.models.values())
    is_ranking = bool(calibration.subjects)
    if has_jury and not is_ranking:
        yield "jury"
    yield "redact"


def _has_writer(panel: PanelFingerprint) -> bool:
    """Whether a panel has a model that writes text, and not only points or decisions."""
    for sources_by_model in panel.sources_by_tier.values():
        for sources in sources_by_model.values():
            gives_only_points = sources == {"points"}
            gives_only_decisions = sources == {"decided"}
            if not gives_only_points and not gives_only_decisions:
                return True
    return False


def _find_other_readings(calibration: Calibration, panel: PanelFingerprint) -> Iterator[str]:
    """Yield a misfit for each model whose answers are read differently now, or whose profile has changed."""
    for tier, sources_by_model in panel.sources_by_tier.items():
        for model, sources_now in sources_by_model.items():
            source_then = calibration.read.get(tier, {}).get(model)
            yield from _find_other_source(tier, source_then, sources_now)

            # Recordings and older calibrations have no hash.
            hash_now = panel.asking.get(tier, {}).get(model)
            hash_then = calibration.asking.get(tier, {}).get(model)
            has_both_hashes = hash_now is not None and hash_then is not None
            if has_both_hashes and hash_then != hash_now:
                yield f"how its provider's profile asks {model} has changed"


def _find_other_source(
    tier: TierName, source_then: ScoreSource | None, sources_now: frozenset[ScoreSource]
) -> Iterator[str]:
    """Yield a misfit if a model's answers can't be read as they were when the calibration was made."""
    words_now = SOURCE_WORDS[_choose_usual_source(sources_now)]
    if source_then is None:
        # The calibration doesn't say how they were read. Only "expected" scores, which are computed from
        # probabilities, count as a change.
        if "expected" in sources_now:
            yield f"it does not say how the scores of {tier} were read, and they are {words_now} now"
        return
    if source_then not in sources_now:
        yield f"what {tier} said was {SOURCE_WORDS[source_then]} and is {words_now} now"


def _choose_usual_source(able: frozenset[ScoreSource]) -> ScoreSource:
    """Return the most common way to read a model's answers, out of those it's `able` to give."""
    most_common_first: tuple[ScoreSource, ...] = ("expected", "decided", "points")
    for source in most_common_first:
        if source in able:
            return source
    return "whole"
