"""Makes the arguments of judges and gateways in one place: a new or renamed field costs one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.errors import Usage
from judgekit.judging.calibration import Promise
from judgekit.judging.documents import (
    ComparisonInput,
    Document,
    File,
    PromptCandidate,
    Query,
    TaskDescription,
    make_file,
)
from judgekit.judging.finality import FinalityRule, FinalityRules
from judgekit.judging.score import DocumentJudge
from judgekit.judging.select import CandidateJudge
from judgekit.judging.settings import JudgeSettings
from judgekit.providers.base import Endpoint, Reply
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.judging.cache import ReplyCache
    from judgekit.judging.score_source import ScoreSource
    from judgekit.providers.base import Gateway
    from judgekit.rubric.loader import LoadedRubric


PanelModels: TypeAlias = "Mapping[TierName, Endpoint | Sequence[Endpoint]]"
"""Who judges in each tier: one model, or the several of a jury."""


def models_by_tier(panel: PanelModels) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return the models of each tier, as a tuple even if there's one."""
    return {
        tier: (jury,) if isinstance(jury, Endpoint) else tuple(jury) for tier, jury in panel.items()
    }


call_usage = Usage
prompt_candidate, query = PromptCandidate, Query


def reply(
    text: str = "yes",
    model: str = "m",
    usage: Usage | None = None,
    *,
    logprobs: tuple[dict[str, float], ...] = (),
    tokens: tuple[str, ...] = (),
    held: bool = False,
) -> Reply:
    return Reply(text, model, usage or call_usage(), logprobs, tokens, held)


def file(
    path: str = "a.md",
    text: str = "Some text.",
    sha256: str | None = None,
    total: int | None = None,
) -> File:
    """Return a file; its hash and its length are those of the text unless a test says others."""
    digest = sha256 or make_file(path, text).sha256
    return File(path, text, digest, len(text) if total is None else total)


def document(
    files: Iterable[File], task_id: str = "a.md", task: TaskDescription | None = None
) -> Document:
    return Document(tuple(files), task_id, task or TaskDescription())


def judge_settings(
    panel: PanelModels,
    loaded: LoadedRubric | None = None,
    mode: ModeName = "strict",
    timeout: float = 30,
    **more: Any,  # noqa: ANN401 - of any field
) -> JudgeSettings:
    """Return a judge's settings: strict, under the rubric kls, unless a test says otherwise."""
    return JudgeSettings(
        loaded_rubric=loaded or loader.find_rubric("kls"),
        mode=mode,
        models_by_tier=models_by_tier(panel),
        timeout=timeout,
        **more,
    )


def document_judge(
    gateway: Gateway,
    panel: PanelModels,
    *,
    cache: ReplyCache | None = None,
    **settings: Any,  # noqa: ANN401 - handed on
) -> DocumentJudge:
    return DocumentJudge(gateway, judge_settings(panel, **settings), cache)


def candidate_judge(
    gateway: Gateway,
    panel: PanelModels,
    *,
    loaded: LoadedRubric | None = None,
    **settings: Any,  # noqa: ANN401 - handed on
) -> CandidateJudge:
    """Return a judge of candidates, strict under the rubric memory-relevance unless a test says otherwise."""
    known = loaded or loader.find_rubric("memory-relevance")
    return CandidateJudge(gateway, judge_settings(panel, known, **settings))


def promise(
    rate: float = 0.05, confidence: float = 0.95, reference: TierName | None = None
) -> Promise:
    return Promise(rate=rate, confidence=confidence, reference=reference)


def finality_rule(
    tier: TierName,
    outcome: Outcome,
    least_margin: float = 0.0,
    **more: Any,  # noqa: ANN401 - of any field
) -> FinalityRule:
    return FinalityRule(tier=tier, outcome=outcome, least_margin=least_margin, **more)


def finality_rules(
    name: str = "",
    rules: Iterable[FinalityRule] = (),
    *,
    last: TierName | None = None,
    read: frozenset[tuple[TierName, str, ScoreSource]] = frozenset(),
) -> FinalityRules:
    """Return the gates of a calibration of this name; with none at all a second opinion is always wanted."""
    return FinalityRules(name, tuple(rules), last, read)


def comparison_input(
    prompt: str, files: Iterable[File], authors: Iterable[str | None] = ()
) -> ComparisonInput:
    return ComparisonInput(prompt, tuple(files), tuple(authors))
