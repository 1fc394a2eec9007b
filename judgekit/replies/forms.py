"""The form of models' answers: reply models, and the JSON Schemas that are sent, made from a rubric.

The models are for `judgekit.replies.extract.extract`: they accept missing findings, surplus keys and long
texts, but a score that is missing or off the scale, or a list of unknown labels, makes the reply invalid.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    OnErrorOmit,
    create_model,
)

from judgekit.config import TIE
from judgekit.rubric.schema import YesNo

if TYPE_CHECKING:
    from collections.abc import Sequence

# Characters; longer texts of a reply are cut, not refused, since they decide nothing.
MAX_REASONING = 8_000
MAX_TEXT = 2_000
MAX_WORD = 80
KEEP = "keep"  # the only key of a reply about a single criterion
_NO_WINNER = (TIE, "both", "neither", "equal", "none")


def _text(value: object, most: int) -> str:
    """Join a model's text, which may come as a list or by dimension, into one text."""
    if isinstance(value, dict):
        lines = [f"{key}: {_text(item, most)}" for key, item in value.items()]
        value = "\n".join(lines)
    elif isinstance(value, list):
        value = "\n".join(_text(item, most) for item in value)
    if value is None:
        return ""
    return str(value).strip()[:most]


def _listed(value: object) -> object:
    """Return findings as a list; models also give them as texts, as one object, or by dimension."""
    if isinstance(value, str):
        if value.strip().casefold() in ("", "none", "n/a"):
            value = []
        else:
            value = [value]
    if isinstance(value, dict) and "issue" in value:
        value = [value]
    if isinstance(value, dict):
        value = _findings_by_dimension(value)
    if value is None:
        return []
    if not isinstance(value, list):
        return value
    findings = []
    for item in value:
        if isinstance(item, str):
            findings.append({"issue": item})
        elif isinstance(item, dict):
            findings.append(item)
    return findings


def _findings_by_dimension(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings of an object keyed by dimension, each with its dimension."""
    findings = []
    for name, items in value.items():
        for item in items if isinstance(items, list) else [items]:
            finding = item if isinstance(item, dict) else {"issue": item}
            findings.append({"dimension": name, **finding})
    return findings


def _label(text: str) -> str:
    return text.strip().removeprefix("[").removesuffix("]").strip().casefold()


def _in_list(value: object) -> object:
    """Put a label that comes without its list into one."""
    if isinstance(value, str) and value.strip():
        return [value]
    return value


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object in the part of the language that strict providers accept."""
    required = list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_STRING: dict[str, Any] = {"type": "string"}
_Reasoning = Annotated[str, BeforeValidator(functools.partial(_text, most=MAX_REASONING))]
_Text = Annotated[str, BeforeValidator(functools.partial(_text, most=MAX_TEXT))]
_Word = Annotated[str, BeforeValidator(functools.partial(_text, most=MAX_WORD))]


class ReplyForm(BaseModel, serialize_by_alias=True):
    """A reply; `sent` is the JSON Schema that models are to follow."""

    sent: ClassVar[dict[str, Any]] = {}


class FindingReply(BaseModel):
    """One problem that a model found; every field may be left out."""

    dimension: _Text = ""
    location: _Text = ""
    issue: _Text = ""
    suggestion: _Text = ""
    quote: _Text = ""


class ScoreReply(ReplyForm):
    """A document's assessment; `scores` is added by `score_reply_model`, and `verdict` is only recorded."""

    reasoning: _Reasoning = ""
    verdict: _Word = ""


class CompareReply(ReplyForm):
    """Which of two is better: a label that was offered, or a tie."""

    reasoning: _Reasoning = ""
    better: str


class CheckReply(BaseModel):
    """What a reviewer says of one finding."""

    finding: int
    quote: _Text = ""
    why: _Text = ""
    holds: bool


class ReviewReply(ReplyForm):
    """What a reviewer says of the findings that it was shown; what cannot be read is left out."""

    _check = {
        "finding": {"type": "integer"},
        "quote": _STRING,
        "why": _STRING,
        "holds": {"type": "boolean"},
    }
    sent = _object({"checks": {"type": "array", "items": _object(_check)}})
    checks: list[OnErrorOmit[CheckReply]]


@functools.lru_cache(maxsize=16)  # creating one takes 9 ms, and a push has hundreds of files
def score_reply_model(
    dimensions: tuple[str, ...], least: int, most: int, binary: frozenset[str] = frozenset()
) -> type[ScoreReply]:
    """Return the model of a reply: `reasoning`, `findings`, and `scores`, an integer or a `binary` answer."""
    score = Annotated[int, Field(strict=True, ge=least, le=most)]
    points = {"type": "integer", "enum": list(range(least, most + 1))}
    answer = {"type": "string", "enum": list(get_args(YesNo))}
    # Fields have names of their own: a dimension may be called `copy` or `json`, as methods of pydantic are.
    fields: dict[str, Any] = {}
    sent_scores: dict[str, Any] = {}
    for at, name in enumerate(dimensions):
        if name in binary:
            fields[f"dimension_{at}"] = (YesNo, Field(alias=name))
            sent_scores[name] = answer
        else:
            fields[f"dimension_{at}"] = (score, Field(alias=name))
            sent_scores[name] = points
    scores = create_model("Scores", __config__=ConfigDict(serialize_by_alias=True), **fields)
    findings = Annotated[list[FindingReply], BeforeValidator(_listed)]
    fields = {"scores": (scores, ...), "findings": (findings, [])}
    model = create_model("ScoreReply", __base__=ScoreReply, **fields)
    words = {"type": "string", "enum": list(dimensions)}
    finding = {**dict.fromkeys(FindingReply.model_fields, _STRING), "dimension": words}
    listed = {"type": "array", "items": _object(finding)}
    properties = {"reasoning": _STRING, "scores": _object(sent_scores), "findings": listed}
    model.sent = _object(properties)
    return cast("type[ScoreReply]", model)


def select_reply_model(criteria: Sequence[str], labels: Sequence[str]) -> type[ReplyForm]:
    """Create the model of a reply about `labels`; unknown labels alone make it invalid, rather than empty."""
    offered = {_label(label): label for label in labels}

    def keep_offered(words: list[str]) -> list[str]:
        kept = []
        for word in words:
            label = offered.get(_label(word))
            if label:
                kept.append(label)
        if words and not kept:
            raise ValueError("none of the labels was offered")
        return list(dict.fromkeys(kept))

    kept_labels = Annotated[list[str], BeforeValidator(_in_list), AfterValidator(keep_offered)]
    keys = [KEEP] if len(criteria) == 1 else list(criteria)
    fields: dict[str, Any] = {}
    for at, key in enumerate(keys):
        fields[f"list_{at}"] = (kept_labels, Field(alias=key))
    model = create_model("SelectReply", __base__=ReplyForm, **fields)
    several = {"type": "array", "items": {"type": "string", "enum": list(labels)}}
    model.sent = _object(dict.fromkeys(keys, several))
    return model


def compare_reply_model(labels: Sequence[str]) -> type[CompareReply]:
    """Create the model of a reply about two texts: the label of the better one, or a tie."""
    offered = dict.fromkeys(_NO_WINNER, TIE) | {_label(label): label for label in labels}

    def read_label(word: str) -> str:
        if _label(word) not in offered:
            raise ValueError(f"expected {', '.join(labels)} or {TIE}")
        return offered[_label(word)]

    better = Annotated[str, AfterValidator(read_label)]
    model = create_model("CompareReply", __base__=CompareReply, better=(better, ...))
    words = {"type": "string", "enum": [*labels, TIE]}
    model.sent = _object({"reasoning": _STRING, "better": words})
    return model
