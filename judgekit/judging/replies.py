"""The form of models' answers: reply models, and their JSON Schemas, made from a rubric.

The models are for `judgekit.judging.extract.extract`: they accept missing findings, surplus keys and long
texts, but a score that is missing or off the scale, or a list of unknown labels, makes the reply invalid.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.rubric.schema import ScoreRubric, SelectRubric

# Characters (and findings) beyond which a reply is cut, not refused: they decide nothing.
MAX_FINDINGS: Final = 50
MAX_REASONING: Final = 8_000
MAX_TEXT: Final = 2_000
MAX_WORD: Final = 80
KEEP: Final = "keep"  # the one key of a reply to a rubric with a single criterion


def _flatten(value: object) -> str:
    """Return as one text what a model gave as a list, or by dimension."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_flatten(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(map(_flatten, value))
    return "" if value is None else str(value).strip()


def _text(limit: int) -> BeforeValidator:
    return BeforeValidator(lambda value: _flatten(value)[:limit])


Text = Annotated[str, _text(MAX_TEXT)]
_Word = BeforeValidator(
    lambda value: str(value).strip()[:MAX_WORD] if isinstance(value, str) or type(value) is int else None
)


class FindingReply(BaseModel):
    """One problem that a model found; everything but the issue may be left out."""

    dimension: Text = ""
    location: Text = ""
    issue: Text = ""
    suggestion: Text = ""
    quote: Text = ""

    @model_validator(mode="after")
    def _says_what(self) -> FindingReply:
        self.issue = self.issue or self.suggestion
        return self


def _listed(value: object) -> object:
    """Return findings as a list: of texts, of one object, or by dimension are other ways to give them."""
    if isinstance(value, str):
        value = [] if value.strip().casefold() in ("", "none", "n/a") else [value]
    if isinstance(value, dict) and "issue" in value:
        value = [value]
    if isinstance(value, dict):
        value = [
            {"dimension": name, **(item if isinstance(item, dict) else {"issue": item})}
            for name, items in value.items()
            for item in (items if isinstance(items, list) else [items])
        ]
    if not isinstance(value, list):
        return [] if value is None else value
    items = ({"issue": item} if isinstance(item, str) else item for item in value)
    return [item for item in items if isinstance(item, dict)]


class ScoreReply(BaseModel):
    """A document's assessment; `scores` is added by `score_reply_model`, and `verdict` is only recorded."""

    model_config = ConfigDict(serialize_by_alias=True)

    reasoning: Annotated[str, _text(MAX_REASONING)] = ""
    verdict: SkipJsonSchema[Annotated[str | None, _Word]] = None


def score_reply_model(rubric: ScoreRubric) -> type[ScoreReply]:
    """Return the model of a reply: `reasoning`, `findings`, and `scores`, an integer for each dimension."""
    return _score_reply_model(tuple(rubric.dimensions), rubric.scale.min, rubric.scale.max)


@functools.lru_cache(maxsize=16)  # making one takes 9 ms, and a push has hundreds of files
def _score_reply_model(dimensions: tuple[str, ...], least: int, most: int) -> type[ScoreReply]:
    score = Annotated[int, Field(strict=True, ge=least, le=most)]
    # Fields have names of their own: a dimension may be called `copy` or `json`, as methods of pydantic are.
    fields: dict[str, Any] = {
        f"dimension_{at}": (score, Field(alias=name)) for at, name in enumerate(dimensions)
    }
    config = ConfigDict(serialize_by_alias=True)
    scores = create_model("Scores", __config__=config, **fields)
    named = Annotated[Text, Field(json_schema_extra={"enum": list(dimensions)})]
    finding = create_model("Finding", __base__=FindingReply, dimension=(named, ""))
    useful = AfterValidator(lambda findings: [each for each in findings if each.issue][:MAX_FINDINGS])
    findings = Annotated[list[finding], BeforeValidator(_listed), useful]
    model = create_model("ScoreReply", __base__=ScoreReply, scores=(scores, ...), findings=(findings, []))
    return cast("type[ScoreReply]", model)


def _label(text: str) -> str:
    return text.strip().removeprefix("[").removesuffix("]").strip().casefold()


class SelectReply(BaseModel):
    """Which labels a model keeps, as they were offered; case and brackets around them do not matter."""

    model_config = ConfigDict(serialize_by_alias=True)

    offered: ClassVar[dict[str, str]] = {}
    _unknown: int = PrivateAttr(default=0)

    @property
    def unknown(self) -> int:
        """How many labels were given that were not offered; they are left out."""
        return self._unknown

    @model_validator(mode="after")
    def _keep_what_was_offered(self) -> SelectReply:
        for name in type(self).model_fields:
            given: list[str] = getattr(self, name)
            known = [self.offered.get(_label(label)) for label in given]
            kept = list(dict.fromkeys(label for label in known if label is not None))
            if given and not kept:
                raise ValueError("none of the labels was offered")
            self._unknown += known.count(None)
            setattr(self, name, kept)
        return self


def select_reply_model(rubric: SelectRubric, labels: Sequence[str]) -> type[SelectReply]:
    """Return the model of a reply about `labels`: `keep` for one criterion, else a list for each criterion.

    An empty list keeps none. A list of which no label was offered is invalid: it does not mean none.
    """
    offered = {_label(label): label for label in labels}
    if not labels or len(offered) < len(labels):
        raise ValueError("there must be labels, and they must differ in more than case")
    label = Annotated[str, Field(json_schema_extra={"enum": list(labels)})]
    # A label may come without its list.
    alone = BeforeValidator(lambda value: [value] if isinstance(value, str) and value.strip() else value)
    given = Annotated[list[label], alone]
    keys = [KEEP] if len(rubric.criteria) == 1 else list(rubric.criteria)
    fields: dict[str, Any] = {f"list_{at}": (given, Field(alias=key)) for at, key in enumerate(keys)}
    model = create_model("SelectReply", __base__=SelectReply, **fields)
    model.offered = offered
    return model


@functools.lru_cache(maxsize=16)  # as long as making the model
def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a reply in the part of the language that strict providers accept.

    Definitions are written out, every property is required and no other allowed, whole numbers on a scale
    are an enum, and defaults, titles and lengths are left out. Properties keep their order.
    """
    whole = model.model_json_schema(by_alias=True)
    return _strict(whole, whole.get("$defs", {}))


def _strict(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _strict(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if schema["type"] == "object":
        properties = {name: _strict(each, definitions) for name, each in schema["properties"].items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    if schema["type"] == "array":
        return {"type": "array", "items": _strict(schema["items"], definitions)}
    if schema["type"] == "integer" and "enum" not in schema:
        return {"type": "integer", "enum": list(range(schema["minimum"], schema["maximum"] + 1))}
    return {key: schema[key] for key in ("type", "enum") if key in schema}
