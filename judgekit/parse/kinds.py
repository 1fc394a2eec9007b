"""What a pydantic field's annotation asks for, as far as the form of a reply depends on it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel


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
