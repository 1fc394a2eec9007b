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
_SECTIONS_OF_PATTERN_TEXTS = (
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
    spellings = {word.lower(), word.lower().translate(_TYPED)}
    for original in (word, word.lower(), word.upper(), word.capitalize()):
        # Folding turns a mark over a letter into NUL.
        spellings.add(folded(original).replace("\0", "").lower())
    # A small sigma has another form at the end of a word, and the end depends on the following text.
    with_inner_sigma = {spelling.replace("\u03c2", "\u03c3") for spelling in spellings}
    return spellings | with_inner_sigma


def _list_all_spellings(words: Iterable[str]) -> list[str]:
    """List the spellings of words, longer ones first, so that none hides another that begins with it."""
    spellings: set[str] = set()
    for word in words:
        spellings |= _list_spellings(word)
    return sorted(spellings, key=lambda spelling: (-len(spelling), spelling))


def _add_languages() -> None:
    """Add the parts of patterns that are made from the table of passwords' names in other languages.

    In that table, and in its spellings, `_` means a blank, a dash or nothing.
    """
    parts = RULES["parts"]
    words: list[str] = []
    for row in RULES["languages"].values():
        words += row.split()
    spellings = _list_all_spellings(words)
    parts["LANGUAGES"] = any_word(spellings).replace("_", "[ _-]?")
    parts["LANGUAGE_NOUN"] = f"(?:{parts['LANGUAGES']})\\w{{0,5}}"
    joined = {re.sub("[_']", "", spelling).rstrip(string.digits) for spelling in spellings}
    parts["LANGUAGES_JOINED"] = "|".join(map(re.escape, sorted(joined)))
    foreign = [spelling for spelling in spellings if not spelling[0].isascii()]
    parts["FOREIGN"] = any_word(foreign).replace("_", "[ _-]?")
    foreign_words = {_longest_word(spelling) for spelling in foreign}
    parts["FOREIGN_WORDS"] = " ".join(sorted(foreign_words))
    verbs = _list_all_spellings(RULES["verbs"]["is"].split())
    parts["VERBS"] = "|".join(map(re.escape, verbs))
    # If a text has none of these many words, names are searched without them.
    pattern = RULES["names"]["pattern"]
    RULES["names"]["pattern_of_languages"] = pattern.replace("(?&OTHER)", "|(?&LANGUAGES)")
    parts["OTHER"] = ""


def _longest_word(spelling: str) -> str:
    """Return the longest of the words that `_` separates in a spelling."""
    return max(spelling.split("_"), key=len)


def _list_language_words() -> list[str]:
    """List the longest word of each spelling: a text with a password's name in it contains one of them."""
    words: set[str] = set()
    for row in RULES["languages"].values():
        words.update(map(_longest_word, _list_all_spellings(row.split())))
    return sorted(words)


LANGUAGE_WORDS = _list_language_words()
_add_languages()


def whole(text: str) -> str:
    """Return a pattern, or a list of words, with each `(?&NAME)` replaced by the part of that name."""
    for name, part in RULES["parts"].items():
        text = text.replace(f"(?&{name})", part)
    return text


class _Patterns(dict[str, re.Pattern[str]]):
    """The patterns by name; each is compiled on first use."""

    def __missing__(self, name: str) -> re.Pattern[str]:
        pattern = re.compile(whole(_PATTERN_TEXTS[name]))
        self[name] = pattern
        return pattern


def read_rows(section: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Read the rows of a section: a kind of secret, words of which each such text has one, and a pattern.

    A row for the English names of passwords is repeated with those in other languages.
    """
    rows: list[tuple[str, tuple[str, ...], str]] = []
    for kind, words, pattern in RULES[section]:
        rows.append((kind, tuple(whole(words).split(" ")), whole(pattern)))
        if words == "(?&NOUNS)":
            in_languages = pattern.replace("(?&NOUN)", "(?&LANGUAGE_NOUN)")
            rows.append((kind, tuple(LANGUAGE_WORDS), whole(in_languages)))
    return rows


_PATTERN_TEXTS: dict[str, str] = {}
for _section in _SECTIONS_OF_PATTERN_TEXTS:
    _PATTERN_TEXTS.update(RULES[_section])
PATTERNS = _Patterns()


def line_end(text: str, at: int) -> int:
    """Return the position of the next line break, or of the text's end if there is none."""
    end = text.find("\n", min(at, len(text)))
    return len(text) if end < 0 else end
