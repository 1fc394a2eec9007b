"""Estimates the calls by tier, tokens, money and time that judging would take, without sending anything.

The first tier's answers decide how many rows the later tiers see, so an estimate is a range: from the first
tier alone to all tiers for every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config import TIERS
from judgekit.judging.service import SubjectJudges, max_concurrency
from judgekit.providers.base import is_local
from judgekit.providers.batches import CHARS_PER_TOKEN, compute_price
from judgekit.providers.pace import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from judgekit.config import TierName
    from judgekit.judging.documents import ComparisonInput, Document
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.request import JudgeRequest
    from judgekit.providers.base import Endpoint, Messages

    Subject = Document | ComparisonInput

REPLY_TOKENS = 250
"""Tokens in a reply: a few sentences of reasons, the scores, and a finding or two."""
SECONDS_A_CALL = 3.0
# Subjects whose prompts are measured; the others count as the mean of these.
_MAX_SAMPLED_SUBJECTS = 200


class ModelEstimate(NamedTuple):
    """A tier's model, and its work if it saw all subjects. `usd` is None if its price isn't known."""

    tier: TierName
    model: str
    calls: int
    tokens_read: int
    tokens_written: int
    usd: float | None
    seconds: float


@dataclass
class Estimate:
    """A range of a run's cost: `first_tier_models` the first tier's models, at most all `models`."""

    subject_count: int
    models: list[ModelEstimate]
    at_once: int

    @property
    def first_tier_models(self) -> list[ModelEstimate]:
        """The first tier's models, which see every subject."""
        return [model for model in self.models if model.tier == self.models[0].tier]

    @property
    def unpriced_models(self) -> list[str]:
        """The names of models without a known price, without duplicates."""
        return list(dict.fromkeys(model.model for model in self.models if model.usd is None))


@dataclass
class _Calls:
    """The calls to a model for the sampled subjects."""

    endpoint: Endpoint
    count: int = 0
    chars: int = 0


def estimate_run(
    subjects: Iterable[Subject],
    project: Path,
    request: JudgeRequest,
    at_once: int,
    *,
    in_batches: bool = False,
) -> Estimate:
    """Estimate from the first subjects what judging all of them would cost, and how long it would take.

    Raises `ConfigError` and `UsageError` as judging does.
    """
    judges = SubjectJudges(project, request)
    calls_by_model: dict[tuple[TierName, str], _Calls] = {}
    total = 0
    for subject in subjects:
        total += 1
        if total > _MAX_SAMPLED_SUBJECTS:
            continue  # further subjects are only counted
        judge = judges.find(subject)
        # The providers of a judge's models may allow fewer calls. The lowest limit of all judges applies.
        at_once = max_concurrency(judge, at_once)
        _count_calls(calls_by_model, judge, subject)

    sample_size = min(total, _MAX_SAMPLED_SUBJECTS)
    factor = total / max(1, sample_size)  # there may be no subjects at all
    models = []
    for tier, model_calls in _sort_by_tier(calls_by_model):
        all_calls = _extrapolate(model_calls, factor)
        models.append(_estimate_model(tier, all_calls, at_once, in_batches=in_batches))
    return Estimate(total, models, at_once)


def _sort_by_tier(calls: Mapping[tuple[TierName, str], _Calls]) -> list[tuple[TierName, _Calls]]:
    """List each model's calls with its tier, in the order of `TIERS`."""
    calls_with_tier = [(tier, model_calls) for (tier, _), model_calls in calls.items()]
    return sorted(calls_with_tier, key=lambda pair: TIERS.index(pair[0]))


def _count_calls(
    calls: dict[tuple[TierName, str], _Calls], judge: Judge[Any, Any, Any], subject: Subject
) -> None:
    """Add to `calls` the calls that a judge would make for a subject if it asked all tiers."""
    for tier in TIERS:
        for endpoint in judge.models_by_tier.get(tier, ()):
            model_calls = calls.setdefault((tier, endpoint.model), _Calls(endpoint))
            prompts = judge.build_prompts(tier, subject, endpoint)
            samples = judge.settings.samples  # each prompt is sent so many times
            model_calls.count += len(prompts) * samples
            model_calls.chars += sum(map(_count_chars, prompts)) * samples


def _count_chars(messages: Messages) -> int:
    """Count the characters in a prompt's messages."""
    return sum(len(message.content) for message in messages)


def _extrapolate(model_calls: _Calls, factor: float) -> _Calls:
    """Extrapolate a sample's calls to all subjects."""
    return _Calls(
        model_calls.endpoint, round(model_calls.count * factor), round(model_calls.chars * factor)
    )


def _estimate_model(
    tier: TierName, model_calls: _Calls, at_once: int, *, in_batches: bool
) -> ModelEstimate:
    """Estimate the tokens, cost and time of a model's calls, respecting its rate limits."""
    endpoint = model_calls.endpoint
    tokens_read = model_calls.chars // CHARS_PER_TOKEN
    tokens_written = model_calls.count * REPLY_TOKENS

    limits = endpoint.profile.limits
    calls_at_once = min(at_once, limits.concurrency or AT_ONCE)
    seconds = model_calls.count * SECONDS_A_CALL / calls_at_once
    if limits.requests_per_minute:
        seconds = max(seconds, model_calls.count * 60 / limits.requests_per_minute)

    return ModelEstimate(
        tier=tier,
        model=endpoint.model,
        calls=model_calls.count,
        tokens_read=tokens_read,
        tokens_written=tokens_written,
        usd=_price_tokens(endpoint, tokens_read, tokens_written, in_batches=in_batches),
        seconds=seconds,
    )


def _price_tokens(endpoint: Endpoint, read: int, written: int, *, in_batches: bool) -> float | None:
    """Compute a call's cost in US dollars from its tokens, or return None if the price isn't known."""
    if is_local(endpoint):
        return 0.0
    if endpoint.profile.kind in ("replay", "command"):
        return None  # recordings contain their costs, and a command's costs aren't known beforehand
    if in_batches:
        # This includes the provider's discount on batches.
        return compute_price(endpoint, read, written)
    from judgekit.providers import litellm  # noqa: PLC0415 - imported lazily, because it takes seconds

    return litellm.compute_cost(endpoint, read, written)
