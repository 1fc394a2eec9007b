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
    from collections.abc import Callable, Sequence

# Characters; longer texts of a reply are cut, not refused, since they decide nothing.
MAX_REASONING = 8_000
MAX_TEXT = 2_000
MAX_WORD = 80
KEEP = "keep"  # the only key of a reply about a single criterion
_TIE_LABELS = (TIE, "both", "neither", "equal", "none")


def _join_text(value: object, max_chars: int) -> str:
    """Convert a reply value, which may be a list or an object, to text of at most `max_chars`."""
    if isinstance(value, dict):
        lines = [f"{key}: {_join_text(item, max_chars)}" for key, item in value.items()]
        value = "\n".join(lines)
    elif isinstance(value, list):
        value = "\n".join(_join_text(item, max_chars) for item in value)
    if value is None:
        return ""
    return str(value).strip()[:max_chars]


def _list_findings(value: object) -> object:
    """Convert findings to a list of objects. Models also return null, a string, or a single object.

    Any other value is returned unchanged, so that pydantic rejects it. Items of other types are dropped.
    """
    items = _wrap_findings(value)
    if not isinstance(items, list):
        return value

    findings = []
    for item in items:
        if isinstance(item, str):
            findings.append({"issue": item})
        elif isinstance(item, dict):
            findings.append(item)
    return findings


def _wrap_findings(value: object) -> object:
    """Convert null, a string or an object to a list of findings. Return any other value unchanged."""
    if value is None:
        return []
    if isinstance(value, str):
        says_none = value.strip().casefold() in ("", "none", "n/a")
        return [] if says_none else [value]
    if isinstance(value, dict):
        is_one_finding = "issue" in value  # otherwise the keys are dimensions
        return [value] if is_one_finding else _flatten_findings(value)
    return value


def _flatten_findings(findings_by_dimension: dict[str, Any]) -> list[dict[str, Any]]:
    """List findings that are grouped by dimension, and add the dimension to each finding without one."""
    findings = []
    for dimension, item_or_items in findings_by_dimension.items():
        items = item_or_items if isinstance(item_or_items, list) else [item_or_items]
        for item in items:
            finding = item if isinstance(item, dict) else {"issue": item}
            findings.append({"dimension": dimension, **finding})
    return findings


def _normalise_label(text: str) -> str:
    """Remove the brackets around a label, and fold its case."""
    return text.strip().removeprefix("[").removesuffix("]").strip().casefold()


def _wrap_label(value: object) -> object:
    """Wrap a single label in a list."""
    if isinstance(value, str) and value.strip():
        return [value]
    return value


def _build_object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Build the JSON Schema of an object with exactly these keys, as strict providers demand."""
    required = list(properties)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_STRING_SCHEMA: dict[str, Any] = {"type": "string"}
_Reasoning = Annotated[str, BeforeValidator(functools.partial(_join_text, max_chars=MAX_REASONING))]
_Text = Annotated[str, BeforeValidator(functools.partial(_join_text, max_chars=MAX_TEXT))]
_Word = Annotated[str, BeforeValidator(functools.partial(_join_text, max_chars=MAX_WORD))]


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
    """A document's assessment. `make_score_reply_model` adds `scores`, and `verdict` is only recorded."""

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
        "quote": _STRING_SCHEMA,
        "why": _STRING_SCHEMA,
        "holds": {"type": "boolean"},
    }
    sent = _build_object_schema(
        {"checks": {"type": "array", "items": _build_object_schema(_check)}}
    )
    checks: list[OnErrorOmit[CheckReply]]


@functools.lru_cache(maxsize=16)  # creating one takes 9 ms, and a push has hundreds of files
def make_score_reply_model(
    dimensions: tuple[str, ...],
    min_score: int,
    max_score: int,
    binary: frozenset[str] = frozenset(),
) -> type[ScoreReply]:
    """Create the model for a reply with `reasoning`, `findings` and a score for each dimension.

    A score is an integer from `min_score` to `max_score`, or yes or no for the dimensions in `binary`.
    """
    score = Annotated[int, Field(strict=True, ge=min_score, le=max_score)]
    score_fields: dict[str, Any] = {}
    for number, name in enumerate(dimensions):
        field_type = YesNo if name in binary else score
        # Fields aren't named after their dimensions, because pydantic has methods such as `copy`.
        score_fields[f"dimension_{number}"] = (field_type, Field(alias=name))
    scores = create_model("Scores", __config__=ConfigDict(serialize_by_alias=True), **score_fields)

    findings = Annotated[list[FindingReply], BeforeValidator(_list_findings)]
    reply_fields: dict[str, Any] = {"scores": (scores, ...), "findings": (findings, [])}
    model = create_model("ScoreReply", __base__=ScoreReply, **reply_fields)

    # the stricter JSON Schema that's sent to providers
    points = range(min_score, max_score + 1)
    model.sent = _build_score_reply_schema(dimensions, points, binary)
    return cast("type[ScoreReply]", model)


def _build_score_reply_schema(
    dimensions: Sequence[str], points: range, binary: frozenset[str]
) -> dict[str, Any]:
    """Build the JSON Schema that's sent to providers for a reply with scores."""
    point_schema = {"type": "integer", "enum": list(points)}
    yes_no_schema = {"type": "string", "enum": list(get_args(YesNo))}
    scores = {name: yes_no_schema if name in binary else point_schema for name in dimensions}

    finding = dict.fromkeys(FindingReply.model_fields, _STRING_SCHEMA)
    finding["dimension"] = {"type": "string", "enum": list(dimensions)}

    properties = {
        "reasoning": _STRING_SCHEMA,
        "scores": _build_object_schema(scores),
        "findings": {"type": "array", "items": _build_object_schema(finding)},
    }
    return _build_object_schema(properties)


def make_select_reply_model(criteria: Sequence[str], labels: Sequence[str]) -> type[ReplyForm]:
    """Create the model for a reply with a list for each criterion: the labels of candidates that fulfil it.

    Unknown labels are dropped, but a list of only unknown labels is invalid.
    """
    drop_unknown = _make_label_filter(labels)
    label_list = Annotated[list[str], BeforeValidator(_wrap_label), AfterValidator(drop_unknown)]

    # Each list's key is the name of its criterion. If there's only one criterion, the key is always the same.
    keys = [KEEP] if len(criteria) == 1 else list(criteria)
    fields: dict[str, Any] = {}
    for number, key in enumerate(keys):
        fields[f"list_{number}"] = (label_list, Field(alias=key))
    model = create_model("SelectReply", __base__=ReplyForm, **fields)

    # the stricter JSON Schema that's sent to providers
    list_schema = {"type": "array", "items": {"type": "string", "enum": list(labels)}}
    model.sent = _build_object_schema(dict.fromkeys(keys, list_schema))
    return model


def _make_label_filter(labels: Sequence[str]) -> Callable[[list[str]], list[str]]:
    """Make a validator that drops unknown labels, and corrects the spelling of the others."""
    labels_by_normalised_label = {_normalise_label(label): label for label in labels}

    def drop_unknown(reply_labels: list[str]) -> list[str]:
        known: dict[str, None] = {}  # an ordered set
        for text in reply_labels:
            label = labels_by_normalised_label.get(_normalise_label(text))
            if label:
                known[label] = None

        # A model writes an empty list to choose nothing. It chose something here, so don't return one.
        if reply_labels and not known:
            raise ValueError("none of the labels was offered")
        return list(known)

    return drop_unknown


def make_compare_reply_model(labels: Sequence[str]) -> type[CompareReply]:
    """Create the pydantic model for a reply that names the label of the better text, or a tie.

    Validation corrects the spelling of a label, and rejects any other answer.
    """
    answers_by_normalised_label = dict.fromkeys(_TIE_LABELS, TIE)
    for label in labels:
        answers_by_normalised_label[_normalise_label(label)] = label

    def parse_answer(text: str) -> str:
        answer = answers_by_normalised_label.get(_normalise_label(text))
        if answer is None:
            raise ValueError(f"expected {', '.join(labels)} or {TIE}")
        return answer

    better = Annotated[str, AfterValidator(parse_answer)]
    model = create_model("CompareReply", __base__=CompareReply, better=(better, ...))

    # the stricter JSON Schema that's sent to providers
    better_schema = {"type": "string", "enum": [*labels, TIE]}
    model.sent = _build_object_schema({"reasoning": _STRING_SCHEMA, "better": better_schema})
    return model
