"""A hash of all that judgekit says to models under a rubric, and of the bars for their answers.

Opinions change with them, so a calibration is bound to it. It is taken of prompts about subjects that never
change: single letters, each in another place of a prompt. Another letter is another hash, and no calibration
fits any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIERS, ModeName
from judgekit.judging import compare, documents, pointwise, prompt, select
from judgekit.judging.calibration import sha256
from judgekit.judging.documents import (
    ComparisonInput,
    Document,
    TaskDescription,
    VisibleFile,
    file_of,
)
from judgekit.judging.fence import Fence, without_nonce
from judgekit.judging.jury import Opinion
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.settings import JudgeSettings
from judgekit.providers import registry, replay
from judgekit.replies import logprobs
from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.providers.base import Endpoint, Messages
    from judgekit.rubric.loader import LoadedRubric


class _Wording(NamedTuple):
    """The prompts of a task, its idle question, and the numbers by which answers are read."""

    prompts: Sequence[Messages]
    idle: str | None
    bars: Sequence[float]


def wording(loaded: LoadedRubric, mode: ModeName) -> str:
    """Return the hash of the words and bars of a rubric's task in a mode."""
    settings = JudgeSettings(loaded=loaded, mode=mode)
    rubric = loaded.rubric
    if isinstance(rubric, ScoreRubric):
        of_task = _wording_of_score(rubric, settings)
    elif isinstance(rubric, CompareRubric):
        of_task = _wording_of_compare(rubric, settings)
    else:
        of_task = _wording_of_select(rubric, settings)
    prompts = []
    for messages in of_task.prompts:
        prompts.append([(message.role, without_nonce(message.content)) for message in messages])
    return sha256([prompts, of_task.idle, of_task.bars])


def _wording_of_score(rubric: ScoreRubric, settings: JudgeSettings) -> _Wording:
    files = [VisibleFile("a", "b", total=1)] * 2
    task = TaskDescription("c", "d", "h")
    opinions = [Opinion("accept", dict.fromkeys(rubric.dimensions, 1.0), "e")]
    prompts = [prompt.score_messages(rubric, tier, files, task, opinions) for tier in TIERS]
    document_files = (file_of("a", "b"), file_of("c", "d"))
    document = Document(document_files, "e", TaskDescription("f", "g", "h"))
    prompts += ScoreQuestion(settings, document, "quick").prompts(_pointwise(), Fence("nonce"))
    idle = prompt.idle_question(rubric)
    if any(dimension.scale for dimension in rubric.dimensions.values()):
        idle += prompt.idle_question(rubric, "binary")
    bars = [logprobs.ALTERNATIVES, logprobs.LEAST_MASS, logprobs.SURE]
    bars += [pointwise.LEAST_MASS, pointwise.LEAST_LEAD]
    return _Wording(prompts, idle, bars)


def _wording_of_compare(rubric: CompareRubric, settings: JudgeSettings) -> _Wording:
    texts = [VisibleFile("LEFT", "a", 1), VisibleFile("RIGHT", "b", 1)]
    opinions = [("LEFT", "c")]
    prompts = [compare.pair_messages(rubric, tier, "d", texts, opinions) for tier in TIERS]
    pair = ComparisonInput("a", (file_of("A", "b"), file_of("B", "c")))
    question = compare.CompareQuestion(settings, pair, "quick")
    prompts += question.prompts(_pointwise(), Fence("nonce"))
    return _Wording(prompts, None, [pointwise.LEAST_MASS, compare.LEAST_LEANING])


def _wording_of_select(rubric: SelectRubric, settings: JudgeSettings) -> _Wording:
    candidate = documents.PromptCandidate("id", "title", "category", ("tag",), "text")
    query = documents.Query("a", ("b",))
    prompts = []
    for tier in TIERS:
        messages, (label,) = prompt.select_messages(rubric, settings.mode, tier, query, [candidate])
        # The label is drawn by an installation's own secret.
        unlabelled = []
        for message in messages:
            unlabelled.append(message._replace(content=message.content.replace(label, "LABEL")))
        prompts.append(tuple(unlabelled))
    candidates = documents.Candidates(query, (candidate,))
    question = select.SelectQuestion(settings, candidates, "quick")
    prompts += question.prompts(_pointwise(), Fence("nonce"))
    bars = [pointwise.LEAST_MASS, pointwise.LEAST_GAIN, pointwise.LEAST_GAIN_OVER_MEMORY]
    bars += [select.KEEP_AT, select.POINTWISE_CHARS]
    return _Wording(prompts, None, bars)


def _pointwise() -> Endpoint:
    """Return a model that answers in one token: such models are asked otherwise."""
    model = replay.recorded_model("m", registry.UNKNOWN_FAMILY)
    return replace(model, pointwise=True)
