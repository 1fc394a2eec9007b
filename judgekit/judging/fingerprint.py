"""What a calibration is bound to beside rubric and mode: who is asked, how, and how answers are read.

Other prompts, other models or another reading of the same replies make other opinions, which other gates
would fit. What cannot be seen from here is not bound: what stands behind an address or a model's name.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field

from judgekit.config.names import TIERS, TierName
from judgekit.config.yamlfile import Strict
from judgekit.judging import compare, logprobs, pointwise, prompt, select
from judgekit.judging.comparison import ComparisonInput
from judgekit.judging.fence import Fence, without_nonce
from judgekit.judging.jury import JuryRule
from judgekit.judging.orchestrator import USUAL, JudgeOptions
from judgekit.judging.score import ScoreTask
from judgekit.judging.subject import Document, Part, Task, file_of
from judgekit.providers import registry
from judgekit.providers.base import Endpoint, models_by_tier
from judgekit.providers.registry import CommandProfile, LitellmProfile, by_beginning
from judgekit.rubric.schema import CompareRubric, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.config.names import ModeName
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.providers.base import Message, PanelModels
    from judgekit.rubric.schema import Rubric

TOGETHER = " + "
"""Between the models of one jury, where they stand as one name."""
Readings: TypeAlias = dict[TierName, dict[str, logprobs.ScoreSource]]
"""How the opinions of each model were read, by tier."""
Asking: TypeAlias = "Mapping[TierName, Mapping[str, str]]"
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

    models: Mapping[TierName, str]
    asked: Asked
    able: Mapping[TierName, Mapping[str, frozenset[ScoreSource]]]
    asking: Asking


def panel(panel: PanelModels, rubric: Rubric, options: JudgeOptions = USUAL) -> PanelFingerprint:
    """Return what judging with these models comes to."""
    by_tier, scores = models_by_tier(panel), isinstance(rubric, ScoreRubric)
    return PanelFingerprint(
        {tier: together(endpoint.model for endpoint in jury) for tier, jury in by_tier.items()},
        Asked(
            samples=options.samples,
            criteria="each" if options.each else "together",
            jury=options.jury,
            redact=bool(options.redact),
        ),
        {tier: _able(jury, scores=scores) for tier, jury in by_tier.items()},
        {tier: _asking(jury) for tier, jury in by_tier.items()},
    )


def _by_model(jury: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    """Return the models of a tier by name: one may be there twice, under two profiles or at two addresses."""
    found: dict[str, list[Endpoint]] = {}
    for endpoint in jury:
        found.setdefault(endpoint.model, []).append(endpoint)
    return found


def _able(jury: Iterable[Endpoint], *, scores: bool) -> dict[str, frozenset[ScoreSource]]:
    known = {
        model: [logprobs.able(endpoint, scores=scores) for endpoint in endpoints]
        for model, endpoints in _by_model(jury).items()
    }
    return {model: each[0].union(*each) for model, each in known.items()}


def _asking(jury: Iterable[Endpoint]) -> dict[str, str]:
    """Return a hash of how the models of each name are asked, in whatever order they are named."""
    found = {model: map(profile_sha256, endpoints) for model, endpoints in _by_model(jury).items()}
    told = {model: sorted(filter(None, each)) for model, each in found.items()}
    return {model: own[0] if len(own) == 1 else _sha256(own) for model, own in told.items() if own}


def together(models: Iterable[str]) -> str:
    """Return the models of a tier as one name; their order says nothing."""
    return TOGETHER.join(sorted(models))


def profile_sha256(endpoint: Endpoint) -> str | None:
    """Return a hash of all that its profile says about how a model is asked; None of a recording."""
    profile = endpoint.profile
    if isinstance(profile, LitellmProfile):
        bare = profile.bare_name(endpoint.model)
        how: dict[str, Any] = {
            "arguments": by_beginning(profile.arguments, bare, {}),
            "thinking": by_beginning(profile.thinking, bare, 0),
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
    return _asked_otherwise(was.asked, now, rubric) or _read_otherwise(was.read, now) or _changed(was, now)


def _asked_otherwise(was: Asked, panel: PanelFingerprint, rubric: Rubric) -> str | None:
    now = panel.asked
    # A model that answers in single tokens answers once; and about each thing alone, but for pairs.
    points = all(able == {"points"} for models in panel.able.values() for able in models.values())
    one_way = _questions(rubric) == 1 or (points and not isinstance(rubric, CompareRubric))
    if was.samples != now.samples and not points:
        return f"samples were {was.samples} and are {now.samples} now"
    if was.criteria != now.criteria and not one_way:
        return f"criteria were judged {was.criteria} and are judged {now.criteria} now"
    if was.jury != now.jury and any(TOGETHER in model for model in panel.models.values()):
        return f"juries came to the {was.jury} and come to the {now.jury} now"
    if was.redact != now.redact:
        return f"secrets were {_sent(was)} and are {_sent(now)} now"
    return None


def _read_otherwise(was: Readings, now: PanelFingerprint) -> str | None:
    for tier, models in now.able.items():
        for model, able in models.items():
            before = was.get(tier, {}).get(model)
            if before is None and able & {"expected"}:
                return f"it does not say how the scores of {tier} were read, and they are {_words(able)} now"
            if before is not None and before not in able:
                return f"what {tier} said was {logprobs.WORDS[before]} and is {_words(able)} now"
    return None


def _changed(was: Was, now: PanelFingerprint) -> str | None:
    for tier, models in now.asking.items():
        for model, digest in models.items():
            if was.asking.get(tier, {}).get(model, digest) != digest:
                return f"how its provider's profile asks {model} has changed"
    return None


def wording(rubric: Rubric, mode: ModeName) -> str:
    """Return a hash of what judgekit says to models under a rubric, whatever is judged, and of its own bars.

    These are the numbers by which it reads answers: with others the same replies make other opinions.
    """
    told = [*_prompts(rubric, mode), *_points(rubric, mode)]
    said = [[(message.role, without_nonce(message.content)) for message in messages] for messages in told]
    idle = prompt.idle_question(rubric) if isinstance(rubric, ScoreRubric) else None
    return _sha256([said, idle, _bars(rubric)])


def _bars(rubric: Rubric) -> list[float]:
    if isinstance(rubric, ScoreRubric):
        told = [logprobs.ALTERNATIVES, logprobs.LEAST_MASS, logprobs.SURE]
        return [*told, pointwise.LEAST_MASS, pointwise.LEAST_LEAD]
    if isinstance(rubric, CompareRubric):
        return [pointwise.LEAST_MASS, compare.LEAST_LEANING]
    gains = [pointwise.LEAST_GAIN, pointwise.LEAST_GAIN_OVER_MEMORY]
    return [pointwise.LEAST_MASS, *gains, select.KEEP_AT, select.POINTWISE_CHARS]


def _prompts(rubric: Rubric, mode: ModeName) -> list[tuple[Message, ...]]:
    """Return the prompts of all tiers about nothing in particular."""
    part, task = Part("a", "b", 1), Task("c", "d")
    if isinstance(rubric, ScoreRubric):
        told = [prompt.Earlier(dict.fromkeys(rubric.dimensions, 1.0), "e")]
        return [prompt.score_messages(rubric, tier, [part, part], task, told) for tier in TIERS]
    if isinstance(rubric, CompareRubric):
        texts, said = (
            [Part("LEFT", "a", 1), Part("RIGHT", "b", 1)],
            [compare.EarlierOpinion("LEFT", "c")],
        )
        return [compare.pair_messages(rubric, tier, "d", texts, said) for tier in TIERS]
    found = []
    for tier in TIERS:
        messages, ids = prompt.select_messages(rubric, mode, tier, "a", ["b"], [_CANDIDATE])
        (label,) = ids  # drawn by an installation's own secret
        found.append(
            tuple(message._replace(content=message.content.replace(label, "LABEL")) for message in messages)
        )
    return found


def _points(rubric: Rubric, mode: ModeName) -> list[tuple[Message, ...]]:
    """Return what models that answer in one token are asked about nothing in particular."""
    fence, endpoint = Fence("nonce"), replace(recorded("m", registry.UNKNOWN_FAMILY), pointwise=True)
    if isinstance(rubric, ScoreRubric):
        document = Document((file_of("a", "b"), file_of("c", "d")), "e", Task("f", "g"))
        return ScoreTask(rubric, mode, document, "quick").prompts(endpoint, fence)
    if isinstance(rubric, CompareRubric):
        comparison_input = ComparisonInput("a", (file_of("A", "b"), file_of("B", "c")))
        return compare.CompareTask(rubric, mode, comparison_input, "quick").prompts(endpoint, fence)
    candidates = select.Candidates(select.Query("a", ("b",)), (_CANDIDATE,))
    return select.SelectTask(rubric, mode, candidates, "quick").prompts(endpoint, fence)


_CANDIDATE = prompt.PromptCandidate("id", "title", "category", ("tag",), "text")


@functools.lru_cache(maxsize=64)
def recorded(model: str, family: str) -> Endpoint:
    """Return the model of recorded answers as one that could be asked."""
    profile = registry.find("replay")
    return Endpoint(profile, model, family, profile.output)


def _questions(rubric: Rubric) -> int:
    return len(rubric.questions)


def _sent(asked: Asked) -> str:
    return "left out of what is sent" if asked.redact else "sent"


def _words(able: frozenset[ScoreSource]) -> str:
    usual: tuple[ScoreSource, ...] = ("expected", "points", "whole")
    return logprobs.WORDS[next(each for each in usual if each in able)]


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
