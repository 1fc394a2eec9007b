"""Recognises columns that hold a model's output by their names, and cases in which several columns might.

The names are in `fields.toml`. `answer` isn't one of them: beside a question it may be the expected answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.evaluation.labels import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_FILE: dict[str, Any] = environment.table(__file__, "fields.toml")
_TABLE: dict[str, str] = _FILE["outputs"]
_LIST_FIELDS = ("conversation", "sources", "texts")  # fields that may hold a list of objects

_NAMES = frozenset(plain(name) for name in _TABLE["names"].split())
_WORDS = tuple(_TABLE["words"].split())
_ABOUT = tuple(_TABLE["about"].split())
_RIGHT = tuple(_TABLE["right"].split())


def responses_in(names: Iterable[str], known_names: Iterable[str]) -> list[str]:
    """List the plain names that end like a model's response, except those known to mean something else."""
    known = frozenset(known_names)
    return [name for name in names if _is_response(name, known)]


def _is_response(name: str, known: frozenset[str]) -> bool:
    """Whether a plain name ends like a model's response, and isn't the right answer or a known name."""
    if name in known or name.startswith(_RIGHT):
        return False
    return name.endswith(_TABLE["ending"])


def rivals_of(text: str, free: Mapping[str, str], known_names: Iterable[str]) -> list[str]:
    """List the columns that may be the judged text just as well as the column whose plain name is `text`.

    `free` maps the plain names of unused columns to their names. If `text` is surely the name of a model's
    output, its rivals are the other such outputs. If not, its rivals are all columns with unknown names
    that sound like an output.
    """
    known = frozenset(known_names)
    if _is_output(text, known):
        return [free[name] for name in free if _is_output(name, known)]
    return [free[name] for name in free if name not in known and _sounds_like_output(name)]


def is_usual_name(name: str, fields: Collection[str] = ()) -> bool:
    """Whether a column's name is usual for one of `fields`, or for any field if there are none."""
    names_by_field = {**_FILE["usual"]["judge"], **_FILE["usual"]["compare"]}
    for field in fields or names_by_field:
        usual_names = names_by_field[field].split()
        if plain(name) in map(plain, usual_names):
            return True
    return False


def is_list_of_row(name: str) -> bool:
    """Whether a column of this name may hold a list of objects in a row, such as a conversation."""
    return is_usual_name(name, _LIST_FIELDS)


def _is_output(name: str, known: frozenset[str]) -> bool:
    """Whether a column with this plain name surely holds a model's output."""
    return name in _NAMES or _is_response(name, known)


def _sounds_like_output(name: str) -> bool:
    """Whether a plain name has a word for outputs, and isn't about an output or the right one."""
    if name.endswith(_ABOUT) or name.startswith(_RIGHT):
        return False
    return any(word in name for word in _WORDS)
