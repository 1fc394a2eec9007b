"""From an object of a reply to a pydantic model: tolerant about form, never about values.

What a pydantic field's annotation asks for, as far as the form of a reply depends on it.

Finding the keys of a model in an object that spells or nests them in its own way.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import wraps
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    ParamSpec,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
)
from weakref import WeakKeyDictionary

from pydantic import AliasChoices, BaseModel, RootModel, ValidationError

from judgekit.judging.scan import CUT, QUOTES, SPELT_NUMBER, Array, Object, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic.fields import FieldInfo


def strip(annotation: Any) -> Any:  # noqa: ANN401 - an annotation can be any object
    """Return the annotation without `Annotated`, aliases and `| None`."""
    while True:
        arms = _arms(annotation)
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        elif len(arms) == 1:
            annotation = arms[0]
        else:
            return annotation


def _arms(annotation: object) -> list[Any]:
    if get_origin(annotation) not in (Union, UnionType):
        return []
    return [arm for arm in get_args(annotation) if arm is not NoneType]


def bears_none(annotation: object) -> bool:
    """Whether None is a value of the annotation."""
    return annotation in (Any, None, object) or NoneType in get_args(annotation)


def is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    """Whether an object of its own is wanted."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def is_number(kind: object) -> bool:
    """Whether a number is wanted, and nothing else."""
    return kind in (int, float) or set(_arms(kind)) == {int, float}


def excludes_bool(kind: object) -> bool:
    """Whether a bool would be taken for a number, or for an offered one."""
    if offered := choices(kind):
        return bool not in map(type, offered)
    return bool(set(_arms(kind)) & {int, float}) and bool not in _arms(kind)


def choices(kind: object) -> tuple[object, ...]:
    """Return the values that are offered, if only some are."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(member.value for member in kind)
    return ()


def values_of(kind: object) -> object:
    """Return the annotation of a mapping's values, None for other annotations."""
    origin, arguments = get_origin(kind), get_args(kind)
    return arguments[1] if isinstance(origin, type) and issubclass(origin, Mapping) else None


def items_of(kind: object, count: int) -> list[object]:
    """Return the annotations of a sequence's `count` items."""
    origin, arguments = get_origin(kind), get_args(kind)
    if not arguments or not isinstance(origin, type) or not issubclass(origin, (Sequence, AbstractSet)):
        return [Any] * count
    if origin is tuple and ... not in arguments:
        return [*arguments, *[Any] * count][:count]
    return [arguments[0]] * count


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
        kind = strip(field.annotation)
        if is_model(kind):
            yield from (key for inner in kind.model_fields for key in names_of(inner, kind))


@_kept
def maximum(model: type[BaseModel]) -> float | None:
    """Return the highest number that a field of `model`, or of the models that are its fields, may be."""
    most = [getattr(each, "le", None) for field in model.model_fields.values() for each in field.metadata]
    inner = [strip(field.annotation) for field in model.model_fields.values()]
    most += [found for kind in inner if is_model(kind) and (found := maximum(kind)) is not None]
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
    kind = strip(annotation)
    if value is CUT:
        raise CutOff(where)
    if is_model(kind):
        return _model(value, kind, where)
    if is_number(kind):
        return _number(value, where)
    if isinstance(value, bool) and excludes_bool(kind):
        raise Misfit(f"`{where}` is {str(value).lower()}, which was not asked for")
    if isinstance(value, (Object, Array)) and not value.closed:
        raise CutOff(where)
    if kind is str:
        return str(value) if type(value) is int else value
    if allowed := choices(kind):
        return _choice(value, allowed, where)
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
    if inner := values_of(kind):
        value = keyed(value) or value
        if isinstance(value, Object):
            _refuse_repeated(value, value, where)
            return {key: shape(item, inner, _join(where, key)) for key, item in value.items()}
    if isinstance(value, Array):
        wanted = items_of(kind, len(value))
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
    return not field.is_required() and not bears_none(field.annotation)


def _elsewhere(value: Object, name: str, model: type[BaseModel]) -> object:
    """Return a required field that `model` wants elsewhere: from beside, or from one object inside."""
    field = model.model_fields[name]
    if not field.is_required():
        return _MISSING
    inside = list(children(value))
    found = [child[key] for child in inside if (key := _once(child, name, model)) is not None]
    kind = strip(field.annotation)
    if is_model(kind):
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
