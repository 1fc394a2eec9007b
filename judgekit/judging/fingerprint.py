"""What a calibration is bound to beside rubric and mode: who is asked, how, and how answers are read.

Other prompts, other models or another reading of the same replies make other opinions, which other gates
would fit. What cannot be seen from here is not bound: what stands behind an address or a model's name.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field

from judgekit.config import TIERS, TierName
from judgekit.config.yamlfile import Strict
from judgekit.judging import compare, logprobs, pointwise, prompt, select
from judgekit.judging.documents import ComparisonInput, Document, Part, Task, file_of
from judgekit.judging.fence import Fence, without_nonce
from judgekit.judging.jury import JuryRule
from judgekit.judging.orchestrator import USUAL, JudgeOptions
from judgekit.judging.score import ScoreTask
from judgekit.providers import registry
from judgekit.providers.base import Endpoint, models_by_tier
from judgekit.providers.registry import CommandProfile, LitellmProfile
from judgekit.rubric.schema import CompareRubric, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from judgekit.config import ModeName
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.providers.base import PanelModels
    from judgekit.rubric.schema import Rubric

TOGETHER = " + "
"""Between the models of one jury, where they stand as one name."""
Readings: TypeAlias = dict[TierName, dict[str, logprobs.ScoreSource]]
"""How the opinions of each model were read, by tier."""
Asking: TypeAlias = dict[TierName, dict[str, str]]
"""A hash of how their profiles ask the models of a name, by tier; there is none of a recording."""


class Asked(Strict):
    """How the opinions came about, in the words of the configuration: other opinions need other gates."""

    samples: Annotated[int, Field(ge=1)] = 1
    criteria: Literal["together", "each"] = "together"
    jury: JuryRule = "mean"
    redact: bool = True


USUALLY = Asked()


class Was(NamedTuple):
    """How models were asked and their opinions read when a calibration was learned.

    `asking` is empty of answers that were only recorded.
    """

    asked: Asked = USUALLY
    read: Readings = {}
    asking: Asking = {}


class PanelFingerprint(NamedTuple):
    """Who is asked, by tier, and how: `able` is how opinions of each model may be read here."""

    models: dict[TierName, str]
    asked: Asked
    able: dict[TierName, dict[str, frozenset[ScoreSource]]]
    asking: Asking


def panel(panel: PanelModels, rubric: Rubric, options: JudgeOptions = USUAL) -> PanelFingerprint:
    """Return what judging with these models comes to."""
    asked = Asked(
        samples=options.samples,
        criteria="each" if options.each else "together",
        jury=options.jury,
        redact=bool(options.redact),
    )
    now, scores = PanelFingerprint({}, asked, {}, {}), isinstance(rubric, ScoreRubric)
    for tier, jury in models_by_tier(panel).items():
        now.models[tier] = together(endpoint.model for endpoint in jury)
        # A model may be there twice, under two profiles or at two addresses; their order says nothing.
        now.able[tier], now.asking[tier] = {}, {}
        for model in dict.fromkeys(endpoint.model for endpoint in jury):
            same = [endpoint for endpoint in jury if endpoint.model == model]
            now.able[tier][model] = frozenset().union(*(logprobs.able(one, scores=scores) for one in same))
            if hashes := sorted(filter(None, map(profile_sha256, same))):
                now.asking[tier][model] = hashes[0] if len(hashes) == 1 else _sha256(hashes)
    return now


def together(models: Iterable[str]) -> str:
    """Return the models of a tier as one name; their order says nothing."""
    return TOGETHER.join(sorted(models))


def profile_sha256(endpoint: Endpoint) -> str | None:
    """Return a hash of all that its profile says about how a model is asked; None of a recording."""
    profile = endpoint.profile
    if isinstance(profile, LitellmProfile):
        how: dict[str, Any] = {
            "arguments": profile.of_model(profile.arguments, endpoint.model, {}),
            "thinking": profile.of_model(profile.thinking, endpoint.model, 0),
        }
    elif isinstance(profile, CommandProfile):
        how = profile.model_dump(include={"argv", "reply", "reply_key", "reply_where", "files", "set_env"})
    else:
        return None
    return _sha256([how, endpoint.output, profile.limits.context_chars])


def misfit(was: Was, now: PanelFingerprint, rubric: Rubric, *, ranked: bool = False) -> str | None:
    """Say in a few words how judging differs now, where it matters for those who are asked.

    Where subjects are `ranked` their scores are averaged, whatever juries come to elsewhere.
    """
    if ranked:
        now = now._replace(asked=now.asked.model_copy(update={"jury": was.asked.jury}))
    return next(chain(_asked_otherwise(was.asked, now, rubric), _read_otherwise(was, now)), None)


def _asked_otherwise(was: Asked, panel: PanelFingerprint, rubric: Rubric) -> Iterator[str]:
    now = panel.asked
    # A model that answers in single tokens answers once; and about each thing alone, but for pairs.
    points = all(able == {"points"} for models in panel.able.values() for able in models.values())
    one_way = len(rubric.questions) == 1 or (points and not isinstance(rubric, CompareRubric))
    if was.samples != now.samples and not points:
        yield f"samples were {was.samples} and are {now.samples} now"
    if was.criteria != now.criteria and not one_way:
        yield f"criteria were judged {was.criteria} and are judged {now.criteria} now"
    if was.jury != now.jury and any(TOGETHER in model for model in panel.models.values()):
        yield f"juries came to the {was.jury} and come to the {now.jury} now"
    if was.redact != now.redact:
        before, after = ("removed before sending" if each.redact else "sent" for each in (was, now))
        yield f"secrets were {before} and are {after} now"


def _read_otherwise(was: Was, now: PanelFingerprint) -> Iterator[str]:
    usual: tuple[ScoreSource, ...] = ("expected", "points", "whole")
    for tier, models in now.able.items():
        for model, able in models.items():
            before = was.read.get(tier, {}).get(model)
            words = logprobs.WORDS[next(source for source in usual if source in able)]
            if before is None and "expected" in able:
                yield f"it does not say how the scores of {tier} were read, and they are {words} now"
            if before is not None and before not in able:
                yield f"what {tier} said was {logprobs.WORDS[before]} and is {words} now"
    for tier, hashes in now.asking.items():
        for model, digest in hashes.items():
            if was.asking.get(tier, {}).get(model, digest) != digest:
                yield f"how its provider's profile asks {model} has changed"


def wording(rubric: Rubric, mode: ModeName) -> str:
    """Return a hash of what judgekit says to models under a rubric, whatever is judged, and of its own bars.

    These are the numbers by which it reads answers: with others the same replies make other opinions.
    """
    part, task, idle = Part("a", "b", 1), Task("c", "d"), None
    # Models that answer in one token are asked otherwise: `points`.
    fence, endpoint = Fence("nonce"), replace(recorded("m", registry.UNKNOWN_FAMILY), pointwise=True)
    if isinstance(rubric, ScoreRubric):
        told = [prompt.Earlier(dict.fromkeys(rubric.dimensions, 1.0), "e")]
        sent = [prompt.score_messages(rubric, tier, [part, part], task, told) for tier in TIERS]
        document = Document((file_of("a", "b"), file_of("c", "d")), "e", Task("f", "g"))
        points = ScoreTask(rubric, mode, document, "quick").prompts(endpoint, fence)
        idle = prompt.idle_question(rubric)
        bars = [logprobs.ALTERNATIVES, logprobs.LEAST_MASS, logprobs.SURE]
        bars += [pointwise.LEAST_MASS, pointwise.LEAST_LEAD]
    elif isinstance(rubric, CompareRubric):
        texts, said = [Part("LEFT", "a", 1), Part("RIGHT", "b", 1)], [compare.EarlierOpinion("LEFT", "c")]
        sent = [compare.pair_messages(rubric, tier, "d", texts, said) for tier in TIERS]
        comparison_input = ComparisonInput("a", (file_of("A", "b"), file_of("B", "c")))
        points = compare.CompareTask(rubric, mode, comparison_input, "quick").prompts(endpoint, fence)
        bars = [pointwise.LEAST_MASS, compare.LEAST_LEANING]
    else:
        sent = []
        for tier in TIERS:
            messages, (label,) = prompt.select_messages(rubric, mode, tier, "a", ["b"], [_CANDIDATE])
            # The label is drawn by an installation's own secret.
            sent.append(
                tuple(each._replace(content=each.content.replace(label, "LABEL")) for each in messages)
            )
        candidates = select.Candidates(select.Query("a", ("b",)), (_CANDIDATE,))
        points = select.SelectTask(rubric, mode, candidates, "quick").prompts(endpoint, fence)
        bars = [pointwise.LEAST_MASS, pointwise.LEAST_GAIN, pointwise.LEAST_GAIN_OVER_MEMORY]
        bars += [select.KEEP_AT, select.POINTWISE_CHARS]
    plain = [[(each.role, without_nonce(each.content)) for each in messages] for messages in (*sent, *points)]
    return _sha256([plain, idle, bars])


_CANDIDATE = prompt.PromptCandidate("id", "title", "category", ("tag",), "text")


@functools.lru_cache(maxsize=64)
def recorded(model: str, family: str) -> Endpoint:
    """Return the model of recorded answers as one that could be asked."""
    profile = registry.find("replay")
    return Endpoint(profile, model, family, profile.output)


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
