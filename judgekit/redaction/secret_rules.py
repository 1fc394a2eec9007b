"""Reads and compiles the rules of `secret_rules.toml`, which define what counts as a secret.

A pattern includes parts that several patterns share, as `(?&NAME)`. The names of passwords in other languages
are one table, which becomes such a part, with lookalike letters folded in each word.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.redaction.lookalikes import folded
from judgekit.redaction.word_index import any_word

if TYPE_CHECKING:
    from collections.abc import Iterable

Span: TypeAlias = tuple[int, int]
RULES: dict[str, Any] = environment.table(__file__, "secret_rules.toml")
_SECTIONS_OF_PATTERNS = (
    "names",
    "values",
    "settings",
    "blocks",
    "tables",
    "private_keys",
    "tokens",
    "encoded",
)


class SecretMatch(NamedTuple):
    start: int
    end: int
    kind: str


# Common spellings of letters whose accent can't be left off.
_TYPED = str.maketrans("łøđðəıß", "loddeis")


def _list_spellings(word: str) -> set[str]:
    """List the spellings of a word in a folded lower-case text, whatever its original case."""
    sizes = (word, word.lower(), word.upper(), word.capitalize())
    spellings = {folded(size).replace("\0", "").lower() for size in sizes}
    spellings |= {word.lower(), word.lower().translate(_TYPED)}
    # A small sigma has another form at the end of a word, and the end depends on the following text.
    return spellings | {spelling.replace("\u03c2", "\u03c3") for spelling in spellings}


def _list_all_spellings(words: Iterable[str]) -> list[str]:
    """List the spellings of words, longer ones first, so that none hides another that begins with it."""
    spellings: set[str] = set()
    for word in words:
        spellings |= _list_spellings(word)
    return sorted(spellings, key=lambda spelling: (-len(spelling), spelling))


def _add_languages() -> None:
    """Add the parts made from the table of languages."""
    words: list[str] = []
    for row in RULES["languages"].values():
        words += row.split()
    spellings = _list_all_spellings(words)
    RULES["parts"]["LANGUAGES"] = any_word(spellings).replace("_", "[ _-]?")
    joined = sorted({re.sub("[_']", "", spelling).rstrip(string.digits) for spelling in spellings})
    RULES["parts"]["LANGUAGES_JOINED"] = "|".join(map(re.escape, joined))
    foreign = [spelling for spelling in spellings if not spelling[0].isascii()]
    RULES["parts"]["FOREIGN"] = any_word(foreign).replace("_", "[ _-]?")
    RULES["parts"]["FOREIGN_WORDS"] = " ".join(
        sorted({max(word.split("_"), key=len) for word in foreign})
    )
    verbs = _list_all_spellings(RULES["verbs"]["is"].split())
    RULES["parts"]["VERBS"] = "|".join(map(re.escape, verbs))
    RULES["parts"]["LANGUAGE_NOUN"] = f"(?:{RULES['parts']['LANGUAGES']})\\w{{0,5}}"
    # If a text has none of these many words, names are searched without them.
    RULES["names"]["pattern_of_languages"] = RULES["names"]["pattern"].replace(
        "(?&OTHER)", "|(?&LANGUAGES)"
    )
    RULES["parts"]["OTHER"] = ""


def _list_language_words() -> list[str]:
    """Return the longest part of each spelling: any text with a password's name contains one."""
    words: set[str] = set()
    for row in RULES["languages"].values():
        for spelling in _list_all_spellings(row.split()):
            words.add(max(spelling.split("_"), key=len))
    return sorted(words)


LANGUAGE_WORDS = _list_language_words()
_add_languages()


def whole(text: str) -> str:
    """Return a pattern, or words, with the parts put in that it names."""
    for name, part in RULES["parts"].items():
        text = text.replace(f"(?&{name})", part)
    return text


class _Patterns(dict[str, re.Pattern[str]]):
    """The patterns by name; each is compiled on first use."""

    def __missing__(self, name: str) -> re.Pattern[str]:
        pattern = re.compile(whole(_PATTERNS[name]))
        self[name] = pattern
        return pattern


def read_rows(section: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Read the rows of a section; a row with a noun is repeated with those of other languages."""
    rows: list[tuple[str, tuple[str, ...], str]] = []
    for kind, words, pattern in RULES[section]:
        rows.append((kind, tuple(whole(words).split(" ")), whole(pattern)))
        if words == "(?&NOUNS)":
            in_languages = pattern.replace("(?&NOUN)", "(?&LANGUAGE_NOUN)")
            rows.append((kind, tuple(LANGUAGE_WORDS), whole(in_languages)))
    return rows


_PATTERNS: dict[str, str] = {}
for _section in _SECTIONS_OF_PATTERNS:
    _PATTERNS.update(RULES[_section])
RE = _Patterns()


def line_end(text: str, at: int) -> int:
    end = text.find("\n", min(at, len(text)))
    return len(text) if end < 0 else end
