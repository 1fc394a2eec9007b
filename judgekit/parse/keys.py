"""Finding the keys of a model in an object that spells or nests them in its own way."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from pydantic import AliasChoices

from judgekit.parse import kinds
from judgekit.parse.scan import Array, Object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel

NAME_KEYS: Final = frozenset({"dimension", "criterion", "aspect", "name"})
"""Where an item of `[{"dimension": "…", "score": 4}, …]` says what it rates."""

WRAPPERS: Final = frozenset(
    {"answer", "arguments", "assessment", "criteria", "decision", "dimensions", "evaluation", "finalanswer"}
    | {"grades", "judgement", "judgment", "opinion", "output", "parameters", "ratings", "response", "result"}
    | {"results", "review", "scores", "verdict"}
)
"""Keys (plain) whose object may be the answer, or a part of it. Under any other it may be somebody else's."""

MAX_WRAPPERS: Final = 4
"""How many objects deep the answer may be wrapped: in `{"result": {"evaluation": {…}}}` it is two."""


class Misfit(Exception):  # noqa: N818 - says why an object is not the one; the caller goes on to the next
    """An object is not of the wanted shape; the text says in a few words what is wrong."""


class CutOff(Misfit):
    """The text ended, or went astray, within a value that is wanted."""

    def __init__(self, where: str) -> None:
        super().__init__(f"`{where}` is cut off")


Given = ParamSpec("Given")
Told = TypeVar("Told")


def _kept(function: Callable[Given, Told]) -> Callable[Given, Told]:
    """Remember what a function says of a model, its last argument, for as long as the model is in use.

    Some models are made for one reply: a cache of the usual kind would keep them, and let go of the others.
    """
    of: WeakKeyDictionary[object, dict[object, Told]] = WeakKeyDictionary()

    @wraps(function)
    def remembering(*given: Given.args, **named: Given.kwargs) -> Told:
        known = of.setdefault(given[-1], {})
        if given[:-1] not in known:
            known[given[:-1]] = function(*given, **named)
        return known[given[:-1]]

    return remembering


def plain(key: str) -> str:
    """Return what counts when keys are compared tolerantly: no case, spaces, underscores, hyphens."""
    return re.sub(r"[\s_-]+", "", key).casefold()


@_kept
def names_of(name: str, model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys under which `model` reads a field, the one to write first."""
    alias = model.model_fields[name].validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    names = [choice for choice in choices if isinstance(choice, str)]
    config = model.model_config
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    return (*names, name) if by_name or not names else tuple(names)


@_kept
def plain_names(model: type[BaseModel]) -> frozenset[str]:
    """Return the keys (plain) of `model` and of the models that are its fields."""
    return frozenset(map(plain, _all_names(model)))


def _all_names(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield from names_of(name, model)
        kind = kinds.strip(field.annotation)
        if kinds.is_model(kind):
            yield from (key for inner in kind.model_fields for key in names_of(inner, kind))


@_kept
def maximum(model: type[BaseModel]) -> float | None:
    """Return the highest number that a field of `model`, or of the models that are its fields, may be."""
    most = [getattr(each, "le", None) for field in model.model_fields.values() for each in field.metadata]
    inner = [kinds.strip(field.annotation) for field in model.model_fields.values()]
    most += [found for kind in inner if kinds.is_model(kind) and (found := maximum(kind)) is not None]
    return max((float(each) for each in most if isinstance(each, (int, float))), default=None)


@_kept
def _wanted(name: str, model: type[BaseModel]) -> frozenset[str]:
    """Return the keys (plain) that may be meant for a field: none when another field's are alike."""
    wanted = frozenset(map(plain, names_of(name, model)))
    others = {key for other in model.model_fields if other != name for key in names_of(other, model)}
    return frozenset() if wanted & set(map(plain, others)) else wanted


def match(value: Object, name: str, model: type[BaseModel]) -> str | None:
    """Return the key of `value` that holds the field `name`: the same, else the only one that is alike."""
    for key in names_of(name, model):
        if key in value:
            return key
    wanted = _wanted(name, model)
    alike = [key for key in value if plain(key) in wanted] if wanted else []
    if len(alike) > 1:
        raise Misfit(f"`{name}` is given as {' and '.join(map(repr, alike[:2]))}")
    return alike[0] if alike else None


def children(value: Object) -> Iterator[Object]:
    """Yield the objects directly in `value`, or in a list there, that may be part of the answer."""
    for key, item in value.items():
        inner = keyed(item) or (item[0] if isinstance(item, Array) and len(item) == 1 else item)
        if isinstance(inner, Object) and key not in value.repeated and plain(key) in WRAPPERS:
            yield inner


def unwrapped(value: Object, model: type[BaseModel]) -> Object:
    """Return the object in `value` that has keys of `model`; `value` itself when it has, or it is unclear."""
    names = plain_names(model)
    inner = value
    for _ in range(MAX_WRAPPERS + 1):
        if any(plain(key) in names for key in inner):
            return inner
        inside = list(children(inner))
        answering = [child for child in inside if any(plain(key) in names for key in child)] or inside
        if len(answering) != 1:
            break
        inner = answering[0]
    return value


def keyed(value: object, model: type[BaseModel] | None = None) -> Object | None:
    """Return a list of objects that each name what they rate as one object, by these names.

    With a `model`, only if one of them is the name of a field.
    """
    if not isinstance(value, Array):
        return None
    whole = Object()
    for item in value:
        naming = [key for key in item if plain(key) in NAME_KEYS] if isinstance(item, Object) else []
        if len(naming) != 1 or not isinstance(item[naming[0]], str):
            return None
        whole.put(item[naming[0]], item)
    whole.closed = value.closed
    return whole if model is None or any(plain(key) in plain_names(model) for key in whole) else None
