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
_TYPED_WITHOUT_ACCENT = str.maketrans("łøđðəıß", "loddeis")


def _list_spellings(word: str) -> set[str]:
    """List the spellings that a word may have in a text that was folded to ASCII and put in lower case.

    They depend on the case that the word had in the original text.
    """
    spellings = {word.lower(), word.lower().translate(_TYPED_WITHOUT_ACCENT)}
    for original in (word, word.lower(), word.upper(), word.capitalize()):
        # Folding turns a mark over a letter into NUL, which is removed before texts are searched.
        spellings.add(folded(original).replace("\0", "").lower())
    # A small sigma has another form at the end of a word. Here a word may end where the text's word goes on,
    # so it may have either form.
    with_inner_sigma = {spelling.replace("\u03c2", "\u03c3") for spelling in spellings}
    return spellings | with_inner_sigma


def _list_all_spellings(words: Iterable[str]) -> list[str]:
    """List the spellings of several words, the longest first.

    In a pattern, a shorter alternative before a longer one with the same beginning would hide it.
    """
    spellings: set[str] = set()
    for word in words:
        spellings |= _list_spellings(word)
    return sorted(spellings, key=lambda spelling: (-len(spelling), spelling))


def _add_languages() -> None:
    """Add to the rules the parts of patterns for the names of passwords in other languages.

    The parts are made from the table `languages`, in which `_` stands for a blank, a dash or nothing.
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
    foreign_words = {_find_longest_word(spelling) for spelling in foreign}
    parts["FOREIGN_WORDS"] = " ".join(sorted(foreign_words))
    verbs = _list_all_spellings(RULES["verbs"]["is"].split())
    parts["VERBS"] = "|".join(map(re.escape, verbs))
    # There are two patterns for names. The one with the words of other languages is slower, so it's only used
    # for texts that have such a word.
    pattern = RULES["names"]["pattern"]
    RULES["names"]["pattern_of_languages"] = pattern.replace("(?&OTHER)", "|(?&LANGUAGES)")
    parts["OTHER"] = ""


def _find_longest_word(spelling: str) -> str:
    """Return the longest word of a spelling such as `mot_de_passe`, whose words are separated by `_`."""
    return max(spelling.split("_"), key=len)


def _list_language_words() -> list[str]:
    """List the longest word of each spelling of a password's name in other languages.

    A text with such a name in it contains at least one of these words.
    """
    words: set[str] = set()
    for row in RULES["languages"].values():
        words.update(map(_find_longest_word, _list_all_spellings(row.split())))
    return sorted(words)


LANGUAGE_WORDS = _list_language_words()
_add_languages()


def whole(text: str) -> str:
    """Replace each `(?&NAME)` in a pattern, or in a list of words, by the part of that name in the rules."""
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
    """Read the rows of a section of the rules: a kind of secret, some words, and a pattern.

    A text can only match the pattern if it contains one of the words. A row for the names of passwords in
    English is repeated for the names in other languages.
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
    """Return the position of the next line break from `at` on, or the text's end if there's none."""
    end = text.find("\n", min(at, len(text)))
    return len(text) if end < 0 else end
