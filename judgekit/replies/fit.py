"""From an object of a reply to a pydantic model: tolerant about form, never about values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ValidationError

from judgekit import environment
from judgekit.replies.scan import CUT, NUMBER_PATTERN, QUOTES, Array, Object, read_number

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Model = TypeVar("Model", bound=BaseModel)

WORDS: dict[str, str] = environment.read_toml(__file__, "reply_words.toml")
_NAME_KEYS = frozenset(WORDS["names"].split())
_VALUE_KEYS = frozenset(WORDS["values"].split())
_MAXIMUM_KEYS = frozenset(WORDS["maximum"].split())
_WRAPPERS = frozenset(WORDS["wrappers"].split())
_MAX_WRAPPERS = 4  # objects around the answer: in `{"result": {"evaluation": {…}}}` there are two
_MAX_QUOTED_CHARS = 40  # of a value in a message, or of a scale's description
_FIGURE_PATTERN = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_MISSING = object()


class Misfit(Exception):  # noqa: N818 - explains a misfit; the caller tries the next object
    """An object doesn't have the required form; the message briefly says why."""


class CutOff(Misfit):
    """The text ended, or went astray, within a value that is wanted."""


# The names of fields, and the types their annotations ask for


@lru_cache(maxsize=1024)
def normalise_key(key: str) -> str:
    """Remove spaces, underscores, hyphens and case from a key, for tolerant comparison."""
    return re.sub(r"[\s_-]+", "", key).casefold()


def _find_keys_like(value: Object, normalised_keys: Collection[str]) -> list[str]:
    """List the object's keys that equal one of `normalised_keys` when normalised."""
    return [key for key in value if normalise_key(key) in normalised_keys]


def get_json_key(name: str, model: type[BaseModel]) -> str:
    """Return a field's key in JSON: its alias, or else its name."""
    alias = model.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else name


def _list_inner_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """List the models that are types of fields in `model`."""
    annotations = [unwrap_annotation(field.annotation) for field in model.model_fields.values()]
    return list(filter(is_model, annotations))


@lru_cache(maxsize=64)  # small, because some models are created for a single reply
def _list_keys(model: type[BaseModel]) -> frozenset[str]:
    """Collect the normalised keys of a model and of the models directly in it."""
    keys = set()
    for part in (model, *_list_inner_models(model)):
        for name in part.model_fields:
            keys.add(normalise_key(get_json_key(name, part)))
    return frozenset(keys)


def _find_maximum(model: type[BaseModel]) -> float | None:
    """Return the highest `le` constraint of any field in `model` or in nested models. None without one."""
    limits = []
    for inner_model in _list_inner_models(model):
        limits.append(_find_maximum(inner_model))
    for field in model.model_fields.values():
        for constraint in field.metadata:
            limits.append(getattr(constraint, "le", None))
    numbers = [float(limit) for limit in limits if isinstance(limit, (int, float))]
    return max(numbers, default=None)


def unwrap_annotation(annotation: Any) -> Any:  # noqa: ANN401 - an annotation can be any object
    """Remove all levels of `Annotated[…]` and `… | None` from an annotation."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif _is_optional(annotation):
            (annotation,) = _list_union_types(annotation)  # the only type besides None
        else:
            return annotation


def _is_optional(annotation: Any) -> bool:  # noqa: ANN401 - an annotation can be any object
    """Whether an annotation is a union of one type and None, such as `int | None`."""
    types_except_none = _list_union_types(annotation)
    return len(types_except_none) == 1


def _list_union_types(annotation: object) -> list[Any]:
    """List the types in a union other than None; [] for any other annotation."""
    if get_origin(annotation) not in (Union, UnionType):
        return []
    return [kind for kind in get_args(annotation) if kind is not NoneType]


def is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def is_number(kind: object) -> bool:
    """Whether an annotation is `int`, `float` or `int | float`."""
    return kind in (int, float) or set(_list_union_types(kind)) == {int, float}


# From an object to a model


def fit(item: Object, model: type[Model]) -> Model:
    """Convert a reply object to a `model`. Raises `Misfit` with the first problem."""
    try:
        return model.model_validate(coerce(item, model, ""))
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        field_path = ".".join(map(str, error["loc"]))
        message = error["msg"]
        problem = message[:1].lower() + message[1:]  # the message goes in mid-sentence
        if error["type"] == "missing":
            problem = f"an object without `{field_path}`"
        elif field_path:
            problem = f"`{field_path}`: {problem}, not {_quote(error['input'])}"
        raise Misfit(problem) from invalid


def _quote(value: object) -> str:
    """Quote a value briefly for a message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    if len(text) <= _MAX_QUOTED_CHARS:
        return text
    return text[: _MAX_QUOTED_CHARS - 1] + "…"  # the ellipsis counts, too


def coerce(value: object, annotation: object, field_path: str) -> object:
    """Convert a reply value so that pydantic accepts it for `annotation`.

    For example, unquote numbers, correct the case of choices, and unwrap objects. Values that can't be
    converted are returned unchanged, so that pydantic rejects them. `field_path` is for error messages.

    Raises `CutOff` for a truncated value, and `Misfit` for a wrong value that pydantic would accept.
    """
    kind = unwrap_annotation(annotation)
    if value is CUT:  # the scanner's mark for a truncated value
        raise CutOff(f"`{field_path}` is cut off")
    if is_model(kind):
        return _coerce_model(value, kind, field_path)
    if is_number(kind):
        return _coerce_number(value, field_path)

    _refuse_wrong_bool(value, kind, field_path)
    _refuse_unclosed(value, field_path)
    is_text_as_number = kind is str and type(value) is int
    if is_text_as_number:
        return str(value)  # pydantic wouldn't convert it
    if get_origin(kind) is Literal:
        return _coerce_choice(value, get_args(kind), field_path)
    return _coerce_container(value, kind, field_path)


def _refuse_wrong_bool(value: object, kind: object, field_path: str) -> None:
    """Raise `Misfit` for true or false if pydantic would accept it as 1 or 0."""
    is_wrong_bool = isinstance(value, bool) and not _can_leave_bool_to_pydantic(kind)
    if is_wrong_bool:
        raise Misfit(f"`{field_path}` is {str(value).lower()}, which was not asked for")


def _refuse_unclosed(value: object, field_path: str) -> None:
    """Raise `CutOff` for an object or array without its closing bracket."""
    is_unclosed = isinstance(value, (Object, Array)) and not value.closed
    if is_unclosed:
        raise CutOff(f"`{field_path}` is cut off")


def _can_leave_bool_to_pydantic(kind: object) -> bool:
    """Whether pydantic handles true and false correctly for this type.

    It doesn't if the type allows numbers but not booleans, because it would convert true to 1.
    """
    # `Literal[1]` would accept true, because Python considers them equal.
    if get_origin(kind) is Literal:
        return False

    types = _list_union_types(kind)
    allows_bool = bool in types
    if allows_bool:
        return True
    allows_number = int in types or float in types
    return not allows_number


def _coerce_choice(value: object, choices: Sequence[object], field_path: str) -> object:
    """Return the choice that equals `value` except for its case or quotes, or `value` unchanged."""
    has_numbers = any(type(choice) is int for choice in choices)
    if has_numbers:
        with suppress(Misfit):
            value = _coerce_number(value, field_path)  # it can be in quotes, such as "2"

    if value in choices:
        return value
    if not isinstance(value, str):
        return value

    similar_choices = _find_similar_choices(value, choices)
    is_clear = len(similar_choices) == 1
    return similar_choices[0] if is_clear else value


def _find_similar_choices(text: str, choices: Sequence[object]) -> list[str]:
    """List the choices that equal a text, apart from its case and the spaces around it."""
    folded_text = text.strip().casefold()
    texts = [choice for choice in choices if isinstance(choice, str)]
    return [choice for choice in texts if choice.casefold() == folded_text]


def _coerce_number(value: object, field_path: str) -> object:
    """Convert a number, a quoted number, or an object such as `{"score": 4}` to an int or float.

    Raises `Misfit` for true, false, a string that isn't a number, or an object that doesn't clearly give one.
    Raises `CutOff` if the number is truncated. Any other value is returned unchanged.
    """
    if isinstance(value, Object):
        return _coerce_number(_find_number_in(value, field_path), field_path)
    if isinstance(value, bool):
        raise Misfit(f"`{field_path}` is {str(value).lower()}, not a number")
    if isinstance(value, str):
        text = value.strip()
        if not NUMBER_PATTERN.fullmatch(text):
            raise Misfit(f"`{field_path}`: input should be a valid number, not {_quote(value)}")
        value = read_number(text)

    # A strict field for integers, such as a score, wouldn't take 4.0.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _find_number_in(value: Object, field_path: str) -> object:
    """Return the number in an object such as `{"score": 4}`.

    Raises `Misfit` if there isn't exactly one key such as "score", and `CutOff` if its value is truncated.
    """
    has_maximum = bool(_find_keys_like(value, _MAXIMUM_KEYS))
    if has_maximum:  # such as `{"score": 4, "out_of": 10}`
        raise Misfit(f"`{field_path}` is on a scale of its own")
    keys = _find_keys_like(value, _VALUE_KEYS)
    if len(keys) != 1 or keys[0] in value.repeated_keys:
        raise Misfit(f"`{field_path}` is an object, not a number")
    number_value: object = value[keys[0]]
    if number_value is CUT:
        raise CutOff(f"`{field_path}` is cut off")
    return number_value


def _coerce_container(value: object, kind: object, field_path: str) -> object:
    """Coerce the values of a mapping or the items of a list. Return any other value unchanged."""
    origin = get_origin(kind)
    if origin in (dict, Mapping):
        # Some models write a mapping as a list, as in `[{"name": "accuracy", "score": 4}, …]`.
        mapping = _key_by_name(value) or value
        if isinstance(mapping, Object):
            _key_kind, value_kind = get_args(kind)
            return _coerce_mapping(mapping, value_kind, field_path)

    if isinstance(value, Array):
        # Coerce the items even if no list is expected, because this raises `CutOff` for a truncated one.
        is_list_expected = origin in (list, Sequence)
        item_kind = get_args(kind)[0] if is_list_expected else Any
        return [
            coerce(item, item_kind, _join(field_path, number)) for number, item in enumerate(value)
        ]
    return value


def _coerce_mapping(value: Object, kind: object, field_path: str) -> dict[str, object]:
    """Coerce the values of a mapping. Raises `Misfit` if a key has two different values."""
    coerced = {}
    for key, item in value.items():
        if key in value.repeated_keys:
            raise Misfit(f"`{_join(field_path, key)}` is given twice")
        coerced[key] = coerce(item, kind, _join(field_path, key))
    return coerced


def _join(field_path: str, part: object) -> str:
    """Append a key or index to a field path, which is "" at the top."""
    return f"{field_path}.{part}" if field_path else str(part)


def _coerce_model(value: object, model: type[BaseModel], field_path: str) -> object:
    """Convert an object so that `model` accepts it, even if it's wrapped or nested differently.

    Returns a dict of the fields by JSON key, which also preserves unknown keys. If there's no object, the
    value is returned for pydantic to reject.
    """
    value = _take_from_list(value, model)
    if not isinstance(value, Object):
        return coerce(value, Any, field_path)  # raises an error for a truncated value

    # Refuse scores on another scale. Either the wrapper or the answer inside it can mention the scale.
    _refuse_other_scale(value, model)
    value = _unwrap(value, model)
    _refuse_other_scale(value, model)

    keys_by_field = _match_keys(value, model, field_path)
    coerced = _coerce_fields(value, model, keys_by_field, field_path)
    return _list_unknown_entries(value, keys_by_field.values()) | coerced


def _take_from_list(value: object, model: type[BaseModel]) -> object:
    """Return the object if it's given as a list. Return any other value unchanged."""
    # a list of the fields, as in `[{"name": "accuracy", "score": 4}, …]`
    by_name = _key_by_name(value)
    if by_name and _find_keys_like(by_name, _list_keys(model)):
        return by_name

    # a list of just the object
    if isinstance(value, Array) and len(value) == 1:
        return value[0]
    return value


def _match_keys(value: Object, model: type[BaseModel], field_path: str) -> dict[str, str]:
    """Map each field of the model to the object's key for it, if it has one."""
    keys_by_field = {}
    for name in model.model_fields:
        key = _match_key(value, name, model, field_path)
        if key is not None:
            keys_by_field[name] = key
    return keys_by_field


def _list_unknown_entries(value: Object, known_keys: Collection[str]) -> dict[str, object]:
    """Return the entries of an object that belong to no field, except truncated ones."""
    unknown = {}
    for key, item in value.items():
        is_known = key in known_keys
        is_truncated = item is CUT
        if is_known or is_truncated:
            continue
        unknown[key] = item
    return unknown


def _coerce_fields(
    value: Object, model: type[BaseModel], keys_by_field: Mapping[str, str], field_path: str
) -> dict[str, object]:
    """Convert the values of the model's fields, and return them by JSON key.

    `keys_by_field` maps fields to keys of `value`. Raises `CutOff` if a required field is truncated.
    """
    coerced = {}
    for name, field in model.model_fields.items():
        if name in keys_by_field:
            item = value[keys_by_field[name]]
        else:
            item = _find_elsewhere(value, name, model)  # such as in a nested object
        if item is _MISSING or _is_omitted(item, field):
            continue

        key = get_json_key(name, model)
        try:
            coerced[key] = coerce(item, field.annotation, _join(field_path, key))
        except CutOff:
            # A truncated optional field gets its default.
            if field.is_required():
                raise
    return coerced


def _is_omitted(item: object, field: FieldInfo) -> bool:
    """Whether a value is the null that models write for an optional field that they omit."""
    if item is not None or field.is_required():
        return False
    return not _takes_null(field.annotation)


def _takes_null(annotation: Any) -> bool:  # noqa: ANN401 - an annotation can be any object
    """Whether null is a valid value for a field with this annotation."""
    takes_anything = annotation in (Any, object)
    takes_only_null = annotation is None
    return takes_anything or takes_only_null or NoneType in get_args(annotation)


# The keys of a model, in an object that spells or nests them in its own way


def _match_key(
    value: Object, name: str, model: type[BaseModel], field_path: str = ""
) -> str | None:
    """Find the object's key for the field `name`. Without an exact match, accept a similar key.

    Returns None if there's neither. Raises `Misfit` if multiple keys are similar, or if the key has two
    different values. `field_path` is for error messages.
    """
    exact_key = get_json_key(name, model)
    key = exact_key if exact_key in value else _find_similar_key(value, name, model)
    if key in value.repeated_keys:
        raise Misfit(f"`{_join(field_path, key)}` is given twice")
    return key


def _find_similar_key(value: Object, name: str, model: type[BaseModel]) -> str | None:
    """Find the key that differs from the field's key only in case, spaces, underscores and hyphens.

    Returns None if there's no similar key, or if another field's key is similar as well. Raises `Misfit` if
    there are multiple similar keys.
    """
    exact_key = get_json_key(name, model)
    normalised_key = normalise_key(exact_key)
    other_names = [other_name for other_name in model.model_fields if other_name != name]
    other_keys = [normalise_key(get_json_key(other_name, model)) for other_name in other_names]
    if normalised_key in other_keys:
        return None

    similar_keys = _find_keys_like(value, {normalised_key})
    if len(similar_keys) > 1:
        first, second = similar_keys[:2]
        raise Misfit(f"`{exact_key}` is given as {first!r} and {second!r}")
    return similar_keys[0] if similar_keys else None


def _key_by_name(value: object) -> Object | None:
    """Convert a list such as `[{"name": "accuracy", "score": 4}, …]` to an object, `{"accuracy": {…}, …}`.

    Returns None for any other value.
    """
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

    # If the list is truncated, so is the object.
    by_name.closed = value.closed
    return by_name


def _find_wrapped(value: Object) -> Iterator[Object]:
    """Yield the objects under keys such as "result", each of which could be the answer."""
    for key, item in value.items():
        # A key with two different values is ambiguous.
        may_wrap = normalise_key(key) in _WRAPPERS and key not in value.repeated_keys
        if not may_wrap:
            continue
        answer = _key_by_name(item) or item  # an array of {name, score} pairs becomes an object
        if isinstance(answer, Array) and len(answer) == 1:
            answer = answer[0]
        if isinstance(answer, Object):
            yield answer


def _unwrap(value: Object, model: type[BaseModel]) -> Object:
    """Find the object that has keys of `model`, even if it's wrapped, as in `{"result": {"score": 4}}`.

    Returns `value` itself if there's no such object, or more than one.
    """
    keys = _list_keys(model)
    candidate = value
    max_depth = 1 + _MAX_WRAPPERS  # `value` itself, and the wrappers
    for _ in range(max_depth):
        if _find_keys_like(candidate, keys):
            return candidate
        wrapped = _find_only_wrapped(candidate, keys)
        if wrapped is None:
            break
        candidate = wrapped
    return value


def _find_only_wrapped(value: Object, keys: Collection[str]) -> Object | None:
    """Return the object wrapped in `value`, or None if there's none or it's unclear which one is meant.

    Objects with some of the normalised `keys` take precedence.
    """
    wrapped = list(_find_wrapped(value))
    wrapped_with_keys = [inner for inner in wrapped if _find_keys_like(inner, keys)]
    candidates = wrapped_with_keys or wrapped
    return candidates[0] if len(candidates) == 1 else None


def _find_elsewhere(value: Object, name: str, model: type[BaseModel]) -> object:
    """Find the value of a required field that isn't a key of `value`.

    It can be in a wrapped object, as in `{"result": {"scores": …}}`, or flattened, as in `{"accuracy": 4,
    "style": 3}` instead of `{"scores": {…}}`. Returns `_MISSING` if the field isn't found or is optional.
    Raises `Misfit` if it's found more than once.
    """
    field = model.model_fields[name]
    if not field.is_required():
        return _MISSING

    wrapped = list(_find_wrapped(value))
    values = _list_values_in(wrapped, name, model)

    kind = unwrap_annotation(field.annotation)
    if is_model(kind):
        flat_models = _collect_flat_models((value, *wrapped), kind)
        if flat_models:
            values = flat_models  # they take precedence over wrapped values

    if len(values) > 1:
        raise Misfit(f"`{name}` is given in {len(values)} places")
    return values[0] if values else _MISSING


def _list_values_in(objects: Sequence[Object], name: str, model: type[BaseModel]) -> list[object]:
    """List the values that the objects have for the field `name` of the model."""
    values = []
    for item in objects:
        key = _match_key(item, name, model)
        if key is not None:
            values.append(item[key])
    return values


def _collect_flat_models(objects: Sequence[Object], model: type[BaseModel]) -> list[object]:
    """Collect a nested model's fields from each object in which they aren't nested."""
    flat_models: list[object] = []
    for item in objects:
        flat_model = _collect_flat_model(item, model)
        if flat_model is not None:
            flat_models.append(flat_model)
    return flat_models


def _collect_flat_model(value: Object, model: type[BaseModel]) -> Object | None:
    """Collect a nested model's fields from an object in which they aren't nested.

    For example, `{"accuracy": 4}` instead of `{"scores": {"accuracy": 4}}`. Returns None if there are no such
    keys, or if a required field is missing.
    """
    collected = Object()
    for name, field in model.model_fields.items():
        key = _match_key(value, name, model)
        if key is not None:
            collected.put(key, value[key])
        elif field.is_required():
            return None
    collected.closed = value.closed  # if the outer object is truncated, so is this one
    return collected or None


def _refuse_other_scale(value: Object, model: type[BaseModel]) -> None:
    """Raise `Misfit` if an object mentions a scale other than the model's, such as `"scale": "0-10"`."""
    scale_keys = _find_scale_keys(value, model)
    if not scale_keys:
        return
    maximum = _find_maximum(model)
    if maximum is None:
        return

    for key in scale_keys:
        text = str(value[key])[:_MAX_QUOTED_CHARS]
        figures = [float(figure) for figure in _FIGURE_PATTERN.findall(text)]  # "0-10" has two
        mentioned_maximum = max(figures, default=maximum)
        if mentioned_maximum != maximum:
            raise Misfit(f"`{key}` names another scale than the one up to {maximum:g}")


def _find_scale_keys(value: Object, model: type[BaseModel]) -> list[str]:
    """List an object's keys that give the scale, such as "maximum", without those of the model."""
    scale_keys = _MAXIMUM_KEYS - _list_keys(model)
    scale_keys -= {"total"}  # this is usually the sum of the scores
    return _find_keys_like(value, scale_keys)


def is_quoted(item: Object, model: type[BaseModel]) -> bool:
    """Whether an object is only a quotation, in a string inside another object, and not the answer."""
    if item.outer is None:
        return False
    if _is_outer_continued(item):
        return True

    # The language model broke off in a string, and `item` may be a fresh start of the answer. But if an outer
    # object already has a complete value for one of the same keys, that object may be the answer.
    answer_keys = _list_answer_keys(item, model)
    return any(_has_complete_key(outer, answer_keys) for outer in _walk_outer_objects(item))


def _list_answer_keys(item: Object, model: type[BaseModel]) -> set[str]:
    """List the object's normalised keys that the model has, too."""
    model_keys = _list_keys(model)
    item_keys = [normalise_key(key) for key in _walk_keys(item)]
    return {key for key in item_keys if key in model_keys}


def _walk_outer_objects(item: Object) -> Iterator[Object]:
    """Yield the object that quotes `item`, then the one that quotes that one, and so on."""
    outer = item.outer
    while outer is not None:
        yield outer
        outer = outer.outer


def _is_outer_continued(item: Object) -> bool:
    """Whether the outer object or string goes on after an object that's inside it, up to its end."""
    text_after = item.tail.strip()
    is_string_closed = text_after.startswith(tuple(QUOTES))
    is_outer_closed = "}" in text_after or "]" in text_after
    return is_string_closed or is_outer_closed


def _has_complete_key(item: Object, keys: Collection[str]) -> bool:
    """Whether an object has one of the normalised keys, with a value that isn't truncated."""
    return any(normalise_key(key) in keys for key in _walk_keys(item, only_complete=True))


def _walk_keys(item: Object, *, only_complete: bool = False) -> Iterator[str]:
    """Yield the keys of an object and of its direct child objects.

    If `only_complete`, skip keys with truncated values.
    """
    children = [value for value in item.values() if isinstance(value, Object)]
    for container in (item, *children):
        for key, value in container.items():
            is_truncated = value is CUT
            if only_complete and is_truncated:
                continue
            yield key
