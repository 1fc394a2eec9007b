"""Recognises by name the columns that contain a model's output, and any rivals of the chosen one.

The names are in `fields.toml`. `answer` isn't one of them: next to a question it may be the expected answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.evaluation.labels import normalise_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_FILE: dict[str, Any] = environment.read_toml(__file__, "fields.toml")
_OUTPUTS_TABLE: dict[str, str] = _FILE["outputs"]
_LIST_FIELDS = ("conversation", "sources", "texts")  # fields that may hold a list of objects

_OUTPUT_NAMES = frozenset(normalise_name(name) for name in _OUTPUTS_TABLE["names"].split())
_OUTPUT_WORDS = tuple(_OUTPUTS_TABLE["words"].split())
_RESPONSE_ENDING = _OUTPUTS_TABLE["ending"]
_SCORE_ENDINGS = tuple(_OUTPUTS_TABLE["about"].split())
_EXPECTED_ANSWER_STARTS = tuple(_OUTPUTS_TABLE["right"].split())


def list_response_names(names: Iterable[str], known_names: Iterable[str]) -> list[str]:
    """List the normalised names that end in "response", except known names and expected answers."""
    known = frozenset(known_names)
    return [name for name in names if _is_response(name, known)]


def _is_response(name: str, known: frozenset[str]) -> bool:
    """Whether a normalised column name ends in "response", as "gptresponse" does.

    False for `known` names, which already mean a field, and for expected answers, such as "expectedresponse".
    """
    is_expected_answer = name.startswith(_EXPECTED_ANSWER_STARTS)
    if name in known or is_expected_answer:
        return False
    return name.endswith(_RESPONSE_ENDING)


def list_rival_columns(text: str, free: Mapping[str, str], known_names: Iterable[str]) -> list[str]:
    """List the unused columns that are as likely as the chosen column to be the judged text.

    `text` is the chosen column's normalised name. `free` maps the unused columns' normalised names to their
    real ones.
    """
    known = frozenset(known_names)
    is_clear_choice = _is_output(text, known)
    if is_clear_choice:
        return [free[name] for name in free if _is_output(name, known)]
    # The chosen name was only a guess, so any name that sounds like an output is as good a guess.
    return [free[name] for name in free if name not in known and _sounds_like_output(name)]


def is_usual_name(name: str, fields: Collection[str] = ()) -> bool:
    """Whether a column name is a common name for one of the given fields. By default, check all fields."""
    # Each field's common names are in one text, separated by spaces.
    names_by_field = {**_FILE["usual"]["judge"], **_FILE["usual"]["compare"]}
    plain_name = normalise_name(name)
    for field in fields or names_by_field:
        common_names = names_by_field[field].split()
        if any(normalise_name(common_name) == plain_name for common_name in common_names):
            return True
    return False


def is_list_of_row(name: str) -> bool:
    """Whether a column with this name can contain a list of objects per row, such as a conversation."""
    return is_usual_name(name, _LIST_FIELDS)


def _is_output(name: str, known: frozenset[str]) -> bool:
    """Whether a normalised column name clearly means a model's output."""
    return name in _OUTPUT_NAMES or _is_response(name, known)


def _sounds_like_output(name: str) -> bool:
    """Whether a normalised column name sounds like an output, and not like a score or an expected answer."""
    is_score = name.endswith(_SCORE_ENDINGS)
    is_expected_answer = name.startswith(_EXPECTED_ANSWER_STARTS)
    if is_score or is_expected_answer:
        return False
    return any(word in name for word in _OUTPUT_WORDS)
