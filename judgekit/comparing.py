"""The flow behind `judgekit compare`: a prompt and the texts that answer it in, a comparison out."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from judgekit import config as configuration
from judgekit import environment, library, panel, running
from judgekit.assess import AS_CONFIGURED
from judgekit.calibrate import store as calibrations
from judgekit.errors import UsageError
from judgekit.gateway.base import seated
from judgekit.gateway.open import is_recording, open_gateway
from judgekit.judging.contest import LEAST, MOST, Contest
from judgekit.judging.manner import configured
from judgekit.judging.pairs import PairJudge
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.reply_cache import user_cache
from judgekit.rubric import TIERS, CompareRubric

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.assess import Wish
    from judgekit.comparison import Comparison
    from judgekit.gateway.base import Gateway, Message
    from judgekit.library import LoadedRubric
    from judgekit.rubric import TierName

FOR_TWO, FOR_MORE = "answer-preference", "answer-quality"
_TWO = 2


def compare(contest: Contest, project: Path | None = None, wish: Wish = AS_CONFIGURED) -> Comparison:
    """Return which text is better; raises `ConfigError` or `UsageError`, never because a model failed."""

    async def run() -> Comparison:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            return await judge(gateway, contest, project, wish).judge(contest)

    return running.run(run())


def prompts(
    contest: Contest, project: Path | None = None, wish: Wish = AS_CONFIGURED
) -> list[tuple[TierName, str, list[tuple[Message, ...]]]]:
    """Return for each tier its models and the prompts they would get, were it asked first; sends nothing."""
    found = judge(open_gateway({}), contest, project, wish)
    models = {tier: ", ".join(each.model for each in jury) for tier, jury in seated(found.seats).items()}
    return [(tier, models.get(tier, "no model is set up"), found.prompts(tier, contest)) for tier in TIERS]


def judge(
    gateway: Gateway, contest: Contest, project: Path | None = None, wish: Wish = AS_CONFIGURED
) -> PairJudge | RankingJudge:
    """Return the judge that a wish and the configuration in `project` ask for.

    Raises `ConfigError`, or `UsageError` when rubric and number of texts do not go together.
    """
    settings = configuration.load(project)
    seats, reason = panel.juries(settings, project)
    loaded = _rubric(wish.rubric, len(contest.files), project)
    mode = wish.mode or settings.judge.mode
    limit = settings.judge.max_cost_usd if wish.max_cost_usd is None else wish.max_cost_usd
    cache = user_cache() if wish.cache and not is_recording(environment.environ()) else None
    deadline, manner = wish.deadline or settings.judge.deadline, configured(settings.judge)
    if isinstance(loaded.rubric, CompareRubric):
        learned = calibrations.find(loaded, mode, panel.models(seats), project)
        return PairJudge(
            gateway,
            seats,
            loaded,
            mode,
            deadline,
            limit,
            reason,
            cache,
            learned.gates,
            learned.stale,
            manner,
        )
    return RankingJudge(gateway, seats, loaded, mode, deadline, limit, reason, cache, manner=manner)


def _rubric(reference: str | None, count: int, project: Path | None) -> LoadedRubric:
    if not LEAST <= count <= MOST:
        raise UsageError(f"compare: expected {LEAST} to {MOST} texts, got {count}")
    loaded = library.comparing_rubric(reference or (FOR_TWO if count == _TWO else FOR_MORE), project)
    if isinstance(loaded.rubric, CompareRubric) and count > _TWO:
        told = f"{loaded.rubric.ref} says which of two is better, and there are {count}"
        raise UsageError(f"{told}; name a rubric of the task 'score', such as {FOR_MORE}")
    return loaded
