"""From an object of a reply to a pydantic model: tolerant about form, never about values."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from judgekit.parse import kinds
from judgekit.parse.keys import (
    CutOff,
    Misfit,
    children,
    keyed,
    match,
    maximum,
    names_of,
    plain,
    plain_names,
    unwrapped,
)
from judgekit.parse.scan import CUT, Array, Object
from judgekit.parse.tokens import QUOTES, SPELT_NUMBER, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic.fields import FieldInfo

Model = TypeVar("Model", bound=BaseModel)

VALUE_KEYS: Final = frozenset({"score", "value", "rating"})
"""Where `{"score": 4, "why": "…"}` keeps its number."""

MAXIMUM_KEYS: Final = frozenset({"max", "maximum", "maxscore", "outof", "scale", "total"})
"""What makes a number one out of something: on which scale it is meant is the model's guess, not ours."""

_SHORT: Final = 40  # characters in which a scale is named
_FIGURE: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


def fit(found: Object, model: type[Model]) -> Model:
    """Return `found` as a `model`, or raise `Misfit`."""
    shaped = shape(found, model, "")
    try:
        return model.model_validate(shaped)
    except ValidationError as invalid:
        raise Misfit(_first_problem(invalid)) from invalid


def _first_problem(invalid: ValidationError) -> str:
    error = invalid.errors(include_url=False)[0]
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"an object without `{where}`"
    problem = error["msg"][:1].lower() + error["msg"][1:]
    return f"`{where}`: {problem}, not {_quote(error['input'])}" if where else problem


def _quote(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"  # noqa: PLR2004 - fits a line of a message


def is_quoted(found: Object, model: type[BaseModel]) -> bool:
    """Whether an object that was found in a string of others may be quoted there, and be somebody else's.

    A model that forgets to close a string and begins anew had not answered before, and closes nothing after.
    """
    outer = found.around
    if outer is None:
        return False
    behind = found.tail.strip()
    if behind.startswith(tuple(QUOTES)) or "}" in behind or "]" in behind:
        return True
    wanted = plain_names(model) & {plain(key) for key in _keys(found)}
    while outer is not None:
        if wanted & {plain(key) for key in _keys(outer, whole=True)}:
            return True
        outer = outer.around
    return False


def _keys(found: Object, *, whole: bool = False) -> Iterator[str]:
    """Yield the keys of an object and of objects in it; with `whole` those whose value is not cut."""
    for each in (found, *(value for value in found.values() if isinstance(value, Object))):
        yield from (key for key, value in each.items() if not (whole and value is CUT))


def shape(value: object, annotation: object, where: str) -> object:
    """Return `value` in the form that `annotation` takes; pydantic decides about what stays unlike it."""
    kind = kinds.strip(annotation)
    if value is CUT:
        raise CutOff(where)
    if kinds.is_model(kind):
        return _model(value, kind, where)
    if kinds.is_number(kind):
        return _number(value, where)
    if isinstance(value, bool) and kinds.excludes_bool(kind):
        raise Misfit(f"`{where}` is {str(value).lower()}, which was not asked for")
    if isinstance(value, (Object, Array)) and not value.closed:
        raise CutOff(where)
    if kind is str:
        return str(value) if type(value) is int else value
    if choices := kinds.choices(kind):
        return _choice(value, choices, where)
    return _container(value, kind, where)


def _number(value: object, where: str) -> object:
    """Return the number that `value` is, quotes, says under "score"; a bool or other text is none."""
    if isinstance(value, bool):
        raise Misfit(f"`{where}` is {str(value).lower()}, not a number")
    if isinstance(value, Object):
        return _number(_score(value, where), where)
    if isinstance(value, str):
        if not SPELT_NUMBER.fullmatch(value.strip()):
            raise Misfit(f"`{where}`: input should be a valid number, not {_quote(value)}")
        value = number(value.strip())
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _score(value: Object, where: str) -> object:
    given = [key for key in value if plain(key) in VALUE_KEYS]
    if any(plain(key) in MAXIMUM_KEYS for key in value):
        raise Misfit(f"`{where}` is on a scale of its own")
    if len(given) != 1 or given[0] in value.repeated:
        raise Misfit(f"`{where}` is an object, not a number")
    if value[given[0]] is CUT:
        raise CutOff(where)
    return value[given[0]]


def _choice(value: object, choices: tuple[object, ...], where: str) -> object:
    """Return the choice that `value` spells in another case, or as another type; else `value`."""
    if any(type(choice) is int for choice in choices) and not isinstance(value, bool):
        with suppress(Misfit):
            value = _number(value, where)
    if value in choices or not isinstance(value, str):
        return value
    text = value.strip().casefold()
    same = [choice for choice in choices if isinstance(choice, str) and choice.casefold() == text]
    return same[0] if len(same) == 1 else value


def _container(value: object, kind: object, where: str) -> object:
    """Shape the values of a mapping, or the items of a sequence."""
    if inner := kinds.values_of(kind):
        value = keyed(value) or value
        if isinstance(value, Object):
            _refuse_repeated(value, value, where)
            return {key: shape(item, inner, _join(where, key)) for key, item in value.items()}
    if isinstance(value, Array):
        wanted = kinds.items_of(kind, len(value))
        return [
            shape(item, inner, _join(where, at))
            for at, (item, inner) in enumerate(zip(value, wanted, strict=True))
        ]
    return value


def _join(where: str, part: object) -> str:
    return f"{where}.{part}" if where else str(part)


def _refuse_repeated(value: Object, used: Iterable[str], where: str) -> None:
    for key in used:
        if key in value.repeated:
            raise Misfit(f"`{_join(where, key)}` is given twice")


def _refuse_other_scale(value: Object, model: type[BaseModel]) -> None:
    """Refuse an object that names another maximum beside its numbers than the one they were asked on."""
    # A total beside several scores is their sum.
    named = [key for key in value if plain(key) in MAXIMUM_KEYS - {"total"} - plain_names(model)]
    most = maximum(model) if named else None
    for key in named:
        words = str(value[key])[:_SHORT]
        if (
            most is not None
            and (given := [float(each) for each in _FIGURE.findall(words)])
            and max(given) != most
        ):
            raise Misfit(f"`{key}` names another scale than the one up to {most:g}")


def _model(value: object, model: type[BaseModel], where: str) -> object:
    """Shape an object, in which the answer may be wrapped, nested deeper or flatter than `model`."""
    if issubclass(model, RootModel):
        return shape(value, model.model_fields["root"].annotation, where)
    value = keyed(value, model) or value
    if isinstance(value, Array) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Object):
        return shape(value, Any, where)
    _refuse_other_scale(value, model)
    value = unwrapped(value, model)
    _refuse_other_scale(value, model)
    shaped: dict[str, object] = {}
    used = {name: key for name in model.model_fields if (key := match(value, name, model)) is not None}
    _refuse_repeated(value, used.values(), where)
    for name, field in model.model_fields.items():
        given = value[used[name]] if name in used else _elsewhere(value, name, model)
        if given is not _MISSING and not (given is None and _defaults(field)):
            with suppress(*[] if field.is_required() else [CutOff]):
                shaped[names_of(name, model)[0]] = shape(given, field.annotation, _join(where, name))
    extras = {key: item for key, item in value.items() if key not in used.values() and item is not CUT}
    return extras | shaped


_MISSING: Final = object()


def _defaults(field: FieldInfo) -> bool:
    """Whether null means the field's default: it has one, and null is no value of it."""
    return not field.is_required() and not kinds.bears_none(field.annotation)


def _elsewhere(value: Object, name: str, model: type[BaseModel]) -> object:
    """Return a required field that `model` wants elsewhere: from beside, or from one object inside."""
    field = model.model_fields[name]
    if not field.is_required():
        return _MISSING
    inside = list(children(value))
    found = [child[key] for child in inside if (key := _once(child, name, model)) is not None]
    kind = kinds.strip(field.annotation)
    if kinds.is_model(kind):
        found = [flat for holder in (value, *inside) if (flat := _flat(holder, kind)) is not None] or found
    if len(found) > 1:
        raise Misfit(f"`{name}` is given in {len(found)} places")
    return found[0] if found else _MISSING


def _once(value: Object, name: str, model: type[BaseModel]) -> str | None:
    """Return the key of `value` that holds a field, which it must give only once."""
    key = match(value, name, model)
    if key is not None:
        _refuse_repeated(value, [key], "")
    return key


def _flat(value: Object, model: type[BaseModel]) -> Object | None:
    """Return the part of `value` that is a `model`, when all that it requires stands there."""
    part = Object()
    for name, field in model.model_fields.items():
        key = _once(value, name, model)
        if key is not None:
            part.put(key, value[key])
        elif field.is_required():
            return None
    part.closed = value.closed
    return part or None
