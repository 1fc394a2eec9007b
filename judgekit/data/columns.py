"""Which names of columns stand for what a model said, and where several leave open which one is meant.

`fields.toml` has the names. `answer` is no such name: beside a question it may be what is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.evaluation.labels import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_FILE: dict[str, Any] = environment.table(__file__, "fields.toml")
_TABLE: dict[str, str] = _FILE["outputs"]
_LIST_FIELDS = ("conversation", "sources", "texts")  # what of a row may be a list of objects

_NAMES = frozenset(plain(name) for name in _TABLE["names"].split())
_WORDS = tuple(_TABLE["words"].split())
_ABOUT = tuple(_TABLE["about"].split())
_RIGHT = tuple(_TABLE["right"].split())


def responses_in(names: Iterable[str], known_names: Iterable[str]) -> list[str]:
    """Return the plain names that end as a model's response does, without those that are known otherwise."""
    known = frozenset(known_names)
    return [name for name in names if _is_response(name, known)]


def _is_response(name: str, known: frozenset[str]) -> bool:
    is_named_so = name.endswith(_TABLE["ending"]) and not name.startswith(_RIGHT)
    return is_named_so and name not in known


def rivals_of(text: str, free: Mapping[str, str], known_names: Iterable[str]) -> list[str]:
    """Return the columns that may be the text as well as the one with the plain name `text`.

    `free` are the columns that nothing is taken from, by their plain names. Where `text` is surely a model's
    output, those are that are outputs too. Where it is not, any that nobody knows and that sounds like one.
    """
    known = frozenset(known_names)
    if _is_output(text, known):
        return [free[name] for name in free if _is_output(name, known)]
    return [free[name] for name in free if name not in known and _sounds_like_output(name)]


def is_usual_name(name: str, fields: Collection[str] = ()) -> bool:
    """Whether a column of this name is known, as one of `fields` if any are given."""
    names_by_field = {**_FILE["usual"]["judge"], **_FILE["usual"]["compare"]}
    return any(
        plain(name) in map(plain, names.split())
        for field, names in names_by_field.items()
        if not fields or field in fields
    )


def is_list_of_row(name: str) -> bool:
    """Whether a column of this name may hold a list of objects in a row, such as a conversation."""
    return is_usual_name(name, _LIST_FIELDS)


def _is_output(name: str, known: frozenset[str]) -> bool:
    return name in _NAMES or _is_response(name, known)


def _sounds_like_output(name: str) -> bool:
    if name.endswith(_ABOUT) or name.startswith(_RIGHT):
        return False
    return any(word in name for word in _WORDS)
