"""From an object of a reply to a pydantic model: tolerant about form, never about values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from judgekit import environment
from judgekit.replies.scan import CUT, QUOTES, SPELT_NUMBER, Array, Object, number

Model = TypeVar("Model", bound=BaseModel)

WORDS: dict[str, str] = environment.table(__file__, "reply_words.toml")
_NAME_KEYS = frozenset(WORDS["names"].split())
_VALUE_KEYS = frozenset(WORDS["values"].split())
_MAXIMUM_KEYS = frozenset(WORDS["maximum"].split())
_WRAPPERS = frozenset(WORDS["wrappers"].split())
_MAX_WRAPPERS = 4  # objects around the answer: in `{"result": {"evaluation": {…}}}` there are two
_SHORT = 40  # characters of a scale's name, which a message quotes
_FIGURE = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_MISSING = object()


class Misfit(Exception):  # noqa: N818 - explains a misfit; the caller tries the next object
    """An object doesn't have the wanted shape; the message briefly says why."""


class CutOff(Misfit):
    """The text ended, or went astray, within a value that is wanted."""


# The names of fields, and the types their annotations ask for


@lru_cache(maxsize=1024)
def plain(key: str) -> str:
    """Normalise a key for tolerant comparison: no case, spaces, underscores, hyphens."""
    return re.sub(r"[\s_-]+", "", key).casefold()


def _find_keys_like(value: Object, keys: Collection[str]) -> list[str]:
    """Return the keys of an object that match one of the plain keys, in any spelling."""
    return [key for key in value if plain(key) in keys]


def key_of(name: str, model: type[BaseModel]) -> str:
    """Return the key under which `model` reads a field."""
    alias = model.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else name


def _inner(model: type[BaseModel]) -> list[type[BaseModel]]:
    kinds = [strip(field.annotation) for field in model.model_fields.values()]
    return list(filter(is_model, kinds))


@lru_cache(maxsize=64)  # some models are made for a single reply
def _inside(model: type[BaseModel]) -> frozenset[str]:
    """Return the keys (plain) of a model's fields, and of the models that are its fields."""
    keys = set()
    for part in (model, *_inner(model)):
        for name in part.model_fields:
            keys.add(plain(key_of(name, part)))
    return frozenset(keys)


def _maximum(model: type[BaseModel]) -> float | None:
    """Return the highest number that a field of `model`, or of the models that are its fields, may be."""
    limits = list(map(_maximum, _inner(model)))
    for field in model.model_fields.values():
        for constraint in field.metadata:
            limits.append(getattr(constraint, "le", None))
    return max((float(limit) for limit in limits if isinstance(limit, (int, float))), default=None)


def strip(annotation: Any) -> Any:  # noqa: ANN401 - an annotation can be any object
    """Remove `Annotated` and `| None` from an annotation."""
    while get_origin(annotation) is Annotated or len(_arms(annotation)) == 1:
        annotation = (_arms(annotation) or get_args(annotation))[0]
    return annotation


def _arms(annotation: object) -> list[Any]:
    if get_origin(annotation) not in (Union, UnionType):
        return []
    return [arm for arm in get_args(annotation) if arm is not NoneType]


def is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def is_number(kind: object) -> bool:
    """Whether an annotation accepts numbers only."""
    return kind in (int, float) or set(_arms(kind)) == {int, float}


# From an object to a model


def fit(item: Object, model: type[Model]) -> Model:
    """Return an object as a `model`, or raise `Misfit`."""
    try:
        return model.model_validate(shape(item, model, ""))
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        where = ".".join(map(str, error["loc"]))
        message = error["msg"]
        problem = message[:1].lower() + message[1:]
        if error["type"] == "missing":
            problem = f"an object without `{where}`"
        elif where:
            problem = f"`{where}`: {problem}, not {_quote(error['input'])}"
        raise Misfit(problem) from invalid


def _quote(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    if len(text) <= _SHORT:
        return text
    return text[: _SHORT - 1] + "…"


def shape(value: object, annotation: object, where: str) -> object:
    """Bring `value` into the form that `annotation` takes; pydantic decides about the rest."""
    kind = strip(annotation)
    if value is CUT:
        raise CutOff(f"`{where}` is cut off")
    if is_model(kind):
        return _model(value, kind, where)
    if is_number(kind):
        return _number(value, where)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    arms = _arms(kind)
    # A bool would pass for a number, or for an offered one.
    if isinstance(value, bool) and (choices or ({int, float} & {*arms} and bool not in arms)):
        raise Misfit(f"`{where}` is {str(value).lower()}, which was not asked for")
    if isinstance(value, (Object, Array)) and not value.closed:
        raise CutOff(f"`{where}` is cut off")
    if kind is str:
        if type(value) is int:
            return str(value)
        return value
    if not choices:
        return _container(value, kind, where)
    # A choice may be spelt in another case, or as another type.
    if any(type(choice) is int for choice in choices) and not isinstance(value, bool):
        with suppress(Misfit):
            value = _number(value, where)
    if value in choices or not isinstance(value, str):
        return value
    text = value.strip().casefold()
    same = []
    for choice in choices:
        if isinstance(choice, str) and choice.casefold() == text:
            same.append(choice)
    return same[0] if len(same) == 1 else value


def _number(value: object, where: str) -> object:
    """Read a number from `value`: bare, in quotes, or under "score"; bools and other texts aren't numbers."""
    if isinstance(value, Object):
        keys = _find_keys_like(value, _VALUE_KEYS)
        if _find_keys_like(value, _MAXIMUM_KEYS):
            raise Misfit(f"`{where}` is on a scale of its own")
        if len(keys) != 1 or keys[0] in value.repeated:
            raise Misfit(f"`{where}` is an object, not a number")
        if value[keys[0]] is CUT:
            raise CutOff(f"`{where}` is cut off")
        return _number(value[keys[0]], where)
    if isinstance(value, bool):
        raise Misfit(f"`{where}` is {str(value).lower()}, not a number")
    if isinstance(value, str):
        if not SPELT_NUMBER.fullmatch(value.strip()):
            raise Misfit(f"`{where}`: input should be a valid number, not {_quote(value)}")
        value = number(value.strip())
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _container(value: object, kind: object, where: str) -> object:
    """Shape the values of a mapping, or the items of a list."""
    origin = get_origin(kind)
    wanted = get_args(kind)
    if origin in (dict, Mapping) and isinstance(value := _key_objects(value) or value, Object):
        for key in value:
            if key in value.repeated:
                raise Misfit(f"`{_join(where, key)}` is given twice")
        return {key: shape(item, wanted[1], _join(where, key)) for key, item in value.items()}
    if not isinstance(value, Array):
        return value
    item_kind = wanted[0] if origin in (list, Sequence) else Any
    return [shape(item, item_kind, _join(where, at)) for at, item in enumerate(value)]


def _join(where: str, part: object) -> str:
    return f"{where}.{part}" if where else str(part)


def _model(value: object, model: type[BaseModel], where: str) -> object:
    """Shape an object; the answer in it may be wrapped, nested deeper, or flatter than `model`."""
    keyed = _key_objects(value)
    if keyed and _find_keys_like(keyed, _inside(model)):
        value = keyed
    if isinstance(value, Array) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Object):
        return shape(value, Any, where)
    _refuse_other_scale(value, model)
    value = _unwrap(value, model)
    _refuse_other_scale(value, model)
    shaped = {}
    used = {}
    for name in model.model_fields:
        key = _match(value, name, model, where)
        if key is not None:
            used[name] = key
    for name, field in model.model_fields.items():
        if name in used:
            item = value[used[name]]
        else:
            item = _find_elsewhere(value, name, model)
        required = field.is_required()
        kind = field.annotation
        takes_none = kind in (Any, None, object) or NoneType in get_args(kind)
        # Null means the default if a field has one and doesn't accept null.
        if item is not _MISSING and (item is not None or required or takes_none):
            with suppress(*[] if required else [CutOff]):
                key = key_of(name, model)
                shaped[key] = shape(item, kind, _join(where, key))
    others = {}
    for key, item in value.items():
        if key not in used.values() and item is not CUT:
            others[key] = item
    return others | shaped


# The keys of a model, in an object that spells or nests them in its own way


def _match(value: Object, name: str, model: type[BaseModel], where: str = "") -> str | None:
    """Find the key of `value` for the field `name`: the exact one, or the only similar one."""
    key: str | None = key_of(name, model)
    if key not in value:
        wanted = plain(key_of(name, model))
        others = set()
        for other in model.model_fields:
            if other != name:
                others.add(plain(key_of(other, model)))
        alike = _find_keys_like(value, {wanted} - others)
        if len(alike) > 1:
            first, second = alike[:2]
            raise Misfit(f"`{key_of(name, model)}` is given as {first!r} and {second!r}")
        key = alike[0] if alike else None
    if key in value.repeated:
        raise Misfit(f"`{_join(where, key)}` is given twice")
    return key


def _key_objects(value: object) -> Object | None:
    """Turn a list of objects that each name what they rate into one object, keyed by these names."""
    if not isinstance(value, Array):
        return None
    whole = Object()
    for item in value:
        if not isinstance(item, Object):
            return None
        names = [item[key] for key in _find_keys_like(item, _NAME_KEYS)]
        if len(names) != 1 or not isinstance(names[0], str):
            return None
        whole.put(names[0], item)
    whole.closed = value.closed
    return whole


def _children(value: Object) -> Iterator[Object]:
    """Yield the objects directly in `value`, or in a list there, that may be part of the answer."""
    for key, item in value.items():
        inner = _key_objects(item) or item
        if isinstance(inner, Array) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, Object) and key not in value.repeated and plain(key) in _WRAPPERS:
            yield inner


def _unwrap(value: Object, model: type[BaseModel]) -> Object:
    """Unwrap the object in `value` that has keys of `model`; `value` itself if it has some, or if unclear."""
    names = _inside(model)
    inner = value
    for _ in range(_MAX_WRAPPERS + 1):
        if _find_keys_like(inner, names):
            return inner
        inside = [*_children(inner)]
        answering = [child for child in inside if _find_keys_like(child, names)] or inside
        if len(answering) != 1:
            break
        inner = answering[0]
    return value


def _find_elsewhere(value: Object, name: str, model: type[BaseModel]) -> object:
    """Find a required field in another place than `model` has it: one level up, or in one nested object."""
    field = model.model_fields[name]
    if not field.is_required():
        return _MISSING
    inside = [*_children(value)]
    items = []
    for child in inside:
        key = _match(child, name, model)
        if key is not None:
            items.append(child[key])
    kind = strip(field.annotation)
    if is_model(kind):
        parts = []
        for holder in (value, *inside):
            part = _find_flat_model(holder, kind)
            if part is not None:
                parts.append(part)
        items = parts or items
    if len(items) > 1:
        raise Misfit(f"`{name}` is given in {len(items)} places")
    return items[0] if items else _MISSING


def _find_flat_model(value: Object, model: type[BaseModel]) -> Object | None:
    """Return the part of `value` that's a `model`, if it holds all required fields."""
    part = Object()
    for name, field in model.model_fields.items():
        key = _match(value, name, model)
        if key is not None:
            part.put(key, value[key])
        elif field.is_required():
            return None
    part.closed = value.closed
    return part or None


def _refuse_other_scale(value: Object, model: type[BaseModel]) -> None:
    """Refuse an object that names another maximum beside its numbers than the requested one."""
    # A total beside several scores is their sum.
    keys = _find_keys_like(value, _MAXIMUM_KEYS - {"total"} - _inside(model))
    most = _maximum(model) if keys else None
    for key in keys:
        figures = _FIGURE.findall(str(value[key])[:_SHORT])
        if most is not None and figures and max(map(float, figures)) != most:
            raise Misfit(f"`{key}` names another scale than the one up to {most:g}")


def is_quoted(item: Object, model: type[BaseModel]) -> bool:
    """Whether an object found in a string of another may be a quote, not a restarted answer."""
    outer = item.around
    behind = item.tail.strip()
    if outer is None or behind.startswith(tuple(QUOTES)) or "}" in behind or "]" in behind:
        return outer is not None
    wanted = _inside(model).intersection(map(plain, _keys(item)))
    while outer is not None:
        if not wanted.isdisjoint(map(plain, _keys(outer, whole=True))):
            return True
        outer = outer.around
    return False


def _keys(item: Object, *, whole: bool = False) -> Iterator[str]:
    """Yield the keys of an object and its nested objects; with `whole`, only those of complete values."""
    for holder in (item, *item.values()):
        if isinstance(holder, Object):
            for key, value in holder.items():
                if not (whole and value is CUT):
                    yield key
