"""The flow behind `judgekit compare`: a prompt and the texts that answer it in, a comparison out."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.config import settings
from judgekit.config.names import TIERS
from judgekit.errors import UsageError
from judgekit.judging.compare import PairJudge
from judgekit.judging.comparison_input import LEAST, MOST, ComparisonInput
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.service import AS_CONFIGURED, judge_of
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from judgekit.config.names import TierName
    from judgekit.judging.comparison import Comparison
    from judgekit.judging.service import JudgeRequest
    from judgekit.providers.base import Gateway, Message
    from judgekit.rubric.loader import LoadedRubric

FOR_TWO, FOR_MORE = "answer-preference", "answer-quality"
_TWO = 2


def compare(
    comparison_input: ComparisonInput,
    project: Path | None = None,
    judge_request: JudgeRequest = AS_CONFIGURED,
) -> Comparison:
    """Return which text is better; raises `ConfigError` or `UsageError`, never because a model failed."""

    async def run() -> Comparison:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            return await judge(gateway, comparison_input, project, judge_request).judge(comparison_input)

    return running.run(run())


def prompts(
    comparison_input: ComparisonInput,
    project: Path | None = None,
    judge_request: JudgeRequest = AS_CONFIGURED,
) -> list[tuple[TierName, str, list[tuple[Message, ...]]]]:
    """Return for each tier its models and the prompts each would get, were it asked first; sends nothing."""
    found = judge(open_gateway({}), comparison_input, project, judge_request).for_subject(comparison_input)
    models_by_tier = found.models_by_tier
    if not models_by_tier:
        return [(tier, "no model is set up", found.prompts(tier, comparison_input)) for tier in TIERS]
    endpoints = [(tier, endpoint) for tier in TIERS for endpoint in models_by_tier.get(tier, ())]
    return [
        (tier, found.name(endpoint), found.prompts(tier, comparison_input, endpoint))
        for tier, endpoint in endpoints
    ]


def authors(given: str | Sequence[str | None] | None, count: int) -> tuple[str | None, ...]:
    """Return who wrote each of `count` texts: one text says it of all, several of one each.

    Raises `UsageError` for any other number.
    """
    if given is None or isinstance(given, str):
        return (given,) * count
    told = tuple(given)
    if len(told) > 1 and len(told) != count:
        raise UsageError(f"author family: expected one for all or {count}, one for each; got {len(told)}")
    return told * count if len(told) == 1 else told


def judge(
    gateway: Gateway,
    comparison_input: ComparisonInput,
    project: Path | None = None,
    judge_request: JudgeRequest = AS_CONFIGURED,
) -> PairJudge | RankingJudge:
    """Return the judge that a request and the configuration in `project` ask for.

    Raises `ConfigError`, or `UsageError` when rubric and number of texts do not go together.
    """
    loaded = _rubric(judge_request.rubric, len(comparison_input.files), project)
    pair = isinstance(loaded.rubric, CompareRubric)
    count = 0 if pair else len(comparison_input.distinct)
    common = judge_of(gateway, settings.load(project), loaded, project, judge_request, subjects=count)
    return common.as_judge(PairJudge) if pair else common.as_judge(RankingJudge)


def _rubric(reference: str | None, count: int, project: Path | None) -> LoadedRubric:
    if not LEAST <= count <= MOST:
        raise UsageError(f"compare: expected {LEAST} to {MOST} texts, got {count}")
    if reference is None:
        reference = FOR_TWO if count == _TWO else FOR_MORE
    loaded = loader.comparing_rubric(reference, project)
    if isinstance(loaded.rubric, CompareRubric) and count > _TWO:
        told = f"{loaded.rubric.ref} says which of two is better, and there are {count}"
        raise UsageError(f"{told}; name a rubric of the task 'score', such as {FOR_MORE}")
    return loaded
