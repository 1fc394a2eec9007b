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
from judgekit.replies.scan import CUT, QUOTES, SPELT_NUMBER, Array, Object, read_number

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
def normalise_key(key: str) -> str:
    """Normalise a key for tolerant comparison: no case, spaces, underscores, hyphens."""
    return re.sub(r"[\s_-]+", "", key).casefold()


def _find_keys_like(value: Object, keys: Collection[str]) -> list[str]:
    """List the keys of an object that are one of `keys` (normalised) in any spelling."""
    return [key for key in value if normalise_key(key) in keys]


def key_of(name: str, model: type[BaseModel]) -> str:
    """Return the key of a field in JSON: its alias, or its name."""
    alias = model.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else name


def _list_inner_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """List the models that fields of `model` hold."""
    annotations = [unwrap_annotation(field.annotation) for field in model.model_fields.values()]
    return list(filter(is_model, annotations))


@lru_cache(maxsize=64)  # few, since some models are made for a single reply
def _list_keys(model: type[BaseModel]) -> frozenset[str]:
    """List the keys (normalised) of a model's fields, and of the models in them."""
    keys = set()
    for part in (model, *_list_inner_models(model)):
        for name in part.model_fields:
            keys.add(normalise_key(key_of(name, part)))
    return frozenset(keys)


def _find_maximum(model: type[BaseModel]) -> float | None:
    """Find the highest number that a field of `model`, or of a model in it, may be; None without a limit."""
    limits = []
    for inner_model in _list_inner_models(model):
        limits.append(_find_maximum(inner_model))
    for field in model.model_fields.values():
        for constraint in field.metadata:
            limits.append(getattr(constraint, "le", None))
    numbers = [float(limit) for limit in limits if isinstance(limit, (int, float))]
    return max(numbers, default=None)


def unwrap_annotation(annotation: Any) -> Any:  # noqa: ANN401 - an annotation can be any object
    """Remove `Annotated` and `| None` from an annotation, however they're nested."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]  # the others describe it
            continue
        types_besides_none = _list_union_types(annotation)
        if len(types_besides_none) != 1:  # no union, or one of several types, which stays
            return annotation
        annotation = types_besides_none[0]


def _list_union_types(annotation: object) -> list[Any]:
    """List the types in a union other than None; [] for any other annotation."""
    if get_origin(annotation) not in (Union, UnionType):
        return []
    return [kind for kind in get_args(annotation) if kind is not NoneType]


def is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def is_number(kind: object) -> bool:
    """Whether an annotation accepts numbers only: int, float, or either of them."""
    return kind in (int, float) or set(_list_union_types(kind)) == {int, float}


# From an object to a model


def fit(item: Object, model: type[Model]) -> Model:
    """Turn an object of a reply into a `model`; raises `Misfit` with the first problem."""
    try:
        return model.model_validate(shape(item, model, ""))
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        field_path = ".".join(map(str, error["loc"]))
        message = error["msg"]
        problem = message[:1].lower() + message[1:]  # it stands in the middle of a sentence
        if error["type"] == "missing":
            problem = f"an object without `{field_path}`"
        elif field_path:
            problem = f"`{field_path}`: {problem}, not {_quote(error['input'])}"
        raise Misfit(problem) from invalid


def _quote(value: object) -> str:
    """Quote a value for a message, in few characters."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    if len(text) <= _SHORT:
        return text
    return text[: _SHORT - 1] + "…"


def shape(value: object, annotation: object, field_path: str) -> object:
    """Bring a value of a reply into the form that pydantic takes for an annotation.

    Numbers may be quoted, choices may be in another case, and models wrapped. A value that can't be read in
    such a way stays as it is, and pydantic refuses it. `field_path` names the field in messages.

    Raises `CutOff` for a value that the reply didn't finish, and `Misfit` for one that pydantic would accept
    but mustn't, such as true for 1.
    """
    kind = unwrap_annotation(annotation)
    if value is CUT:
        raise CutOff(f"`{field_path}` is cut off")
    if is_model(kind):
        return _shape_model(value, kind, field_path)
    if is_number(kind):
        return _shape_number(value, field_path)
    # Pydantic would accept true for 1: in Python they're equal.
    if isinstance(value, bool) and not _may_be_bool(kind):
        raise Misfit(f"`{field_path}` is {str(value).lower()}, which was not asked for")
    if isinstance(value, (Object, Array)) and not value.closed:
        raise CutOff(f"`{field_path}` is cut off")
    if kind is str:
        if type(value) is int:
            return str(value)
        return value
    if get_origin(kind) is Literal:
        return _shape_choice(value, get_args(kind), field_path)
    return _shape_container(value, kind, field_path)


def _may_be_bool(kind: object) -> bool:
    """Whether pydantic may decide about a true or false for this type: not for a choice, nor for a number."""
    if get_origin(kind) is Literal:
        return False
    types = _list_union_types(kind)
    has_number = int in types or float in types
    return bool in types or not has_number


def _shape_choice(value: object, choices: Sequence[object], field_path: str) -> object:
    """Find the choice that a value means, in another case or as a number in quotes; else return the value."""
    if any(type(choice) is int for choice in choices):
        with suppress(Misfit):
            value = _shape_number(value, field_path)
    if value in choices or not isinstance(value, str):
        return value
    text = value.strip().casefold()
    alike = []
    for choice in choices:
        if isinstance(choice, str) and choice.casefold() == text:
            alike.append(choice)
    return alike[0] if len(alike) == 1 else value


def _shape_number(value: object, field_path: str) -> object:
    """Read a number that is bare, in quotes, or in an object under a key such as "score".

    Raises `Misfit` for a bool and for any other text or object, and `CutOff` for an unfinished one.
    """
    if isinstance(value, Object):
        return _shape_number(_find_number_in(value, field_path), field_path)
    if isinstance(value, bool):
        raise Misfit(f"`{field_path}` is {str(value).lower()}, not a number")
    if isinstance(value, str):
        if not SPELT_NUMBER.fullmatch(value.strip()):
            raise Misfit(f"`{field_path}`: input should be a valid number, not {_quote(value)}")
        value = read_number(value.strip())
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _find_number_in(value: Object, field_path: str) -> object:
    """Find the value of an object's only key such as "score"; raises `Misfit` and `CutOff`."""
    if _find_keys_like(value, _MAXIMUM_KEYS):
        raise Misfit(f"`{field_path}` is on a scale of its own")
    keys = _find_keys_like(value, _VALUE_KEYS)
    if len(keys) != 1 or keys[0] in value.repeated:
        raise Misfit(f"`{field_path}` is an object, not a number")
    number_value: object = value[keys[0]]
    if number_value is CUT:
        raise CutOff(f"`{field_path}` is cut off")
    return number_value


def _shape_container(value: object, kind: object, field_path: str) -> object:
    """Shape the values of a mapping, or the items of a list; any other value stays as it is."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (dict, Mapping):
        keyed = _key_objects(value) or value
        if isinstance(keyed, Object):
            _, value_kind = arguments
            return _shape_mapping(keyed, value_kind, field_path)
    if not isinstance(value, Array):
        return value
    # Where no list is asked for, items are shaped all the same, to notice any that are cut off.
    item_kind = arguments[0] if origin in (list, Sequence) else Any
    return [shape(item, item_kind, _join(field_path, number)) for number, item in enumerate(value)]


def _shape_mapping(value: Object, kind: object, field_path: str) -> dict[str, object]:
    """Shape the values of a mapping; raises `Misfit` if a key is repeated."""
    shaped = {}
    for key, item in value.items():
        if key in value.repeated:
            raise Misfit(f"`{_join(field_path, key)}` is given twice")
        shaped[key] = shape(item, kind, _join(field_path, key))
    return shaped


def _join(field_path: str, part: object) -> str:
    """Join the path of a field, "" at the top, and a key or index in it."""
    return f"{field_path}.{part}" if field_path else str(part)


def _shape_model(value: object, model: type[BaseModel], field_path: str) -> object:
    """Shape an object for `model`, also if it's wrapped, or its fields are nested more or less deeply.

    Keys that `model` doesn't have are kept.
    """
    keyed = _key_objects(value)  # the fields may come as a list of objects with names
    if keyed and _find_keys_like(keyed, _list_keys(model)):
        value = keyed
    if isinstance(value, Array) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Object):
        return shape(value, Any, field_path)
    _refuse_other_scale(value, model)  # that the outer object names
    value = _unwrap(value, model)
    _refuse_other_scale(value, model)  # that the answer itself names
    keys_by_name = {}
    for name in model.model_fields:
        matching_key = _match_key(value, name, model, field_path)
        if matching_key is not None:
            keys_by_name[name] = matching_key
    shaped = _shape_fields(value, model, keys_by_name, field_path)
    others = {}
    for key, item in value.items():
        if key not in keys_by_name.values() and item is not CUT:
            others[key] = item
    return others | shaped


def _shape_fields(
    value: Object, model: type[BaseModel], keys_by_name: Mapping[str, str], field_path: str
) -> dict[str, object]:
    """Shape the value of each field that an object has; `keys_by_name` are its keys of fields.

    An optional field is left out if its value is cut off, or is null and the field can't be.
    """
    shaped = {}
    for name, field in model.model_fields.items():
        if name in keys_by_name:
            item = value[keys_by_name[name]]
        else:
            item = _find_elsewhere(value, name, model)
        if item is _MISSING:
            continue
        is_required = field.is_required()
        kind = field.annotation
        takes_none = kind in (Any, None, object) or NoneType in get_args(kind)
        if item is None and not is_required and not takes_none:
            continue  # null means the default
        key = key_of(name, model)
        try:
            shaped[key] = shape(item, kind, _join(field_path, key))
        except CutOff:
            if is_required:
                raise
    return shaped


# The keys of a model, in an object that spells or nests them in its own way


def _match_key(
    value: Object, name: str, model: type[BaseModel], field_path: str = ""
) -> str | None:
    """Find the key of `value` for the field `name`: the exact one, or the only one like it; else None.

    Raises `Misfit` if several keys are like it, or if the key is repeated.
    """
    exact_key = key_of(name, model)
    key = exact_key if exact_key in value else _find_similar_key(value, name, model)
    if key in value.repeated:
        raise Misfit(f"`{_join(field_path, key)}` is given twice")
    return key


def _find_similar_key(value: Object, name: str, model: type[BaseModel]) -> str | None:
    """Find the key of `value` that's like that of the field `name`, and like no other field's; else None.

    Raises `Misfit` for several such keys.
    """
    exact_key = key_of(name, model)
    keys_of_others = set()
    for other in model.model_fields:
        if other != name:
            keys_of_others.add(normalise_key(key_of(other, model)))
    alike = _find_keys_like(value, {normalise_key(exact_key)} - keys_of_others)
    if len(alike) > 1:
        first, second = alike[:2]
        raise Misfit(f"`{exact_key}` is given as {first!r} and {second!r}")
    return alike[0] if alike else None


def _key_objects(value: object) -> Object | None:
    """Turn `[{"name": "accuracy", "score": 4}, …]` into `{"accuracy": {…}, …}`; None for anything else."""
    if not isinstance(value, Array):
        return None
    by_name = Object()
    for item in value:
        if not isinstance(item, Object):
            return None
        names = [item[key] for key in _find_keys_like(item, _NAME_KEYS)]
        if len(names) != 1 or not isinstance(names[0], str):
            return None
        by_name.put(names[0], item)
    by_name.closed = value.closed
    return by_name


def _find_wrapped(value: Object) -> Iterator[Object]:
    """Yield the objects that `value` has under keys such as "result": they may be the answer."""
    for key, item in value.items():
        # Of a repeated key it isn't known which value is meant.
        may_wrap = normalise_key(key) in _WRAPPERS and key not in value.repeated
        if not may_wrap:
            continue
        answer = _key_objects(item) or item  # a list of objects with names counts as one object
        if isinstance(answer, Array) and len(answer) == 1:
            answer = answer[0]
        if isinstance(answer, Object):
            yield answer


def _unwrap(value: Object, model: type[BaseModel]) -> Object:
    """Unwrap the object in `value` that has keys of `model`.

    Returns `value` itself if it has some, or if it isn't clear which object is meant.
    """
    keys = _list_keys(model)
    candidate = value
    for _ in range(_MAX_WRAPPERS + 1):  # `value` itself, and then each wrapped object
        if _find_keys_like(candidate, keys):
            return candidate
        wrapped = list(_find_wrapped(candidate))
        with_keys = [inner for inner in wrapped if _find_keys_like(inner, keys)]
        candidates = with_keys or wrapped
        if len(candidates) != 1:
            break
        candidate = candidates[0]
    return value


def _find_elsewhere(value: Object, name: str, model: type[BaseModel]) -> object:
    """Find the value of a required field of which `value` has no key.

    It may be in a wrapped object, or, if it's a model itself, its fields may stand in `value` directly.
    Returns `_MISSING` if it's nowhere, and for an optional field; raises `Misfit` if it's in several places.
    """
    field = model.model_fields[name]
    if not field.is_required():
        return _MISSING
    wrapped = list(_find_wrapped(value))
    values = []
    for inner in wrapped:
        key = _match_key(inner, name, model)
        if key is not None:
            values.append(inner[key])

    kind = unwrap_annotation(field.annotation)
    if is_model(kind):
        flat_models = []
        for container in (value, *wrapped):
            flat_model = _collect_flat_model(container, kind)
            if flat_model is not None:
                flat_models.append(flat_model)
        if flat_models:
            values = flat_models  # rather than the wrapped ones
    if len(values) > 1:
        raise Misfit(f"`{name}` is given in {len(values)} places")
    return values[0] if values else _MISSING


def _collect_flat_model(value: Object, model: type[BaseModel]) -> Object | None:
    """Collect the fields of `model` that stand in `value` itself, without an object of their own.

    Returns None if there are none, or if a required one is missing.
    """
    collected = Object()
    for name, field in model.model_fields.items():
        key = _match_key(value, name, model)
        if key is not None:
            collected.put(key, value[key])
        elif field.is_required():
            return None
    collected.closed = value.closed
    return collected or None  # an empty `Object` is false


def _refuse_other_scale(value: Object, model: type[BaseModel]) -> None:
    """Raise `Misfit` if an object names a maximum ("scale": "0-10") other than that of the model's scores."""
    # A total beside several scores is their sum, not a maximum; a field of the model holds its own value.
    keys = _find_keys_like(value, _MAXIMUM_KEYS - {"total"} - _list_keys(model))
    if not keys:
        return
    maximum = _find_maximum(model)
    if maximum is None:
        return
    for key in keys:
        figures = _FIGURE.findall(str(value[key])[:_SHORT])  # both, if it names a range
        if figures and max(map(float, figures)) != maximum:
            raise Misfit(f"`{key}` names another scale than the one up to {maximum:g}")


def is_quoted(item: Object, model: type[BaseModel]) -> bool:
    """Whether an object was quoted in a string of another one, so that it needn't be the answer.

    A model may also break off within a string and begin its answer anew. Then nothing closes the string or
    the outer object, and the outer one has none of the answer's keys with a complete value.
    """
    outer = item.outer
    if outer is None:
        return False
    text_after = item.tail.strip()
    is_string_closed = text_after.startswith(tuple(QUOTES))
    is_outer_closed = "}" in text_after or "]" in text_after
    if is_string_closed or is_outer_closed:
        return True
    # The model broke off, unless an outer object has given a key of this answer before.
    keys_of_answer = _list_keys(model).intersection(map(normalise_key, _walk_keys(item)))
    while outer is not None:
        complete_keys = map(normalise_key, _walk_keys(outer, only_complete=True))
        if not keys_of_answer.isdisjoint(complete_keys):
            return True
        outer = outer.outer
    return False


def _walk_keys(item: Object, *, only_complete: bool = False) -> Iterator[str]:
    """Yield the keys of an object and of the objects directly in it.

    With `only_complete`, keys whose value is cut off are left out.
    """
    for container in (item, *item.values()):
        if not isinstance(container, Object):
            continue
        for key, value in container.items():
            if not (only_complete and value is CUT):
                yield key
