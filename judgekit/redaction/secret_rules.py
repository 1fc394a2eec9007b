"""Reads and compiles the rules of `secret_rules.toml`, which define what counts as a secret.

A pattern includes parts that several patterns share, as `(?&NAME)`. The names of passwords in other languages
are one table, which becomes such a part, with lookalike letters folded in each word.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.redaction.lookalikes import fold_to_ascii
from judgekit.redaction.word_index import build_word_regex

if TYPE_CHECKING:
    from collections.abc import Iterable

Span: TypeAlias = tuple[int, int]
RULES: dict[str, Any] = environment.read_toml(__file__, "secret_rules.toml")
_PATTERN_SECTIONS = (
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
_PLAIN_LETTER_BY_ACCENTED = str.maketrans("łøđðəıß", "loddeis")


def _list_spellings(word: str) -> set[str]:
    """List a word's possible spellings in a text that was folded to ASCII and lowercased."""
    lower_word = word.lower()
    # People may type letters such as `ł` without the accent.
    spellings = {lower_word, lower_word.translate(_PLAIN_LETTER_BY_ACCENTED)}
    # The text may have the word in any case. Some letters resemble an ASCII letter only as a capital, such as
    # the Cyrillic "ve", which then looks like a "B".
    for cased_word in (word, lower_word, word.upper(), word.capitalize()):
        # Folding turns combining marks into NUL. Texts are searched without NUL.
        folded_word = fold_to_ascii(cased_word).replace("\0", "")
        spellings.add(folded_word.lower())
    # A Greek sigma has a special form at the end of a word, but its usual form if an ending follows.
    with_inner_sigma = {spelling.replace("\u03c2", "\u03c3") for spelling in spellings}
    return spellings | with_inner_sigma


def _list_all_spellings(words: Iterable[str]) -> list[str]:
    """List the spellings of all given words, longest first."""
    spellings: set[str] = set()
    for word in words:
        spellings |= _list_spellings(word)
    # A regex takes the first alternative that matches, so a longer word must come before its prefixes.
    return sorted(spellings, key=lambda spelling: (-len(spelling), spelling))


def _add_languages() -> None:
    """Add the parts of patterns that match "password" in other languages, such as `(?&LANGUAGES)`."""
    words: list[str] = []
    for row in RULES["languages"].values():
        words += row.split()
    spellings = _list_all_spellings(words)

    parts = RULES["parts"]
    parts["LANGUAGES"] = _match_spellings(spellings)
    parts["LANGUAGE_NOUN"] = f"(?:{parts['LANGUAGES']})\\w{{0,5}}"  # with an inflected ending
    parts["LANGUAGES_JOINED"] = _match_joined_spellings(spellings)
    _add_other_scripts(spellings)

    # "is", as in "the password is x"
    verbs = _list_all_spellings(RULES["verbs"]["is"].split())
    parts["VERBS"] = "|".join(map(re.escape, verbs))


def _add_other_scripts(spellings: list[str]) -> None:
    """Add the parts of the rule for words in other scripts, such as Cyrillic."""
    in_other_scripts = [spelling for spelling in spellings if not spelling[0].isascii()]
    trigger_words = {_find_longest_word(spelling) for spelling in in_other_scripts}
    RULES["parts"]["FOREIGN"] = _match_spellings(in_other_scripts)
    RULES["parts"]["FOREIGN_WORDS"] = " ".join(sorted(trigger_words))


def _find_longest_word(spelling: str) -> str:
    """Return the longest word of a spelling such as `mot_de_passe`."""
    return max(spelling.split("_"), key=len)


def _match_spellings(spellings: list[str]) -> str:
    """Build a regex of spellings. In these, `_` stands for a blank, a dash, an underscore or nothing."""
    return build_word_regex(spellings).replace("_", "[ _-]?")


def _match_joined_spellings(spellings: list[str]) -> str:
    """Build a regex of spellings as one word, such as `motdepasse` for `mot_de_passe`."""
    joined = set()
    for spelling in spellings:
        word = re.sub("[_']", "", spelling)
        # Names are compared without final digits. A folded letter can be one: the Cyrillic "ze" becomes "3".
        joined.add(word.rstrip(string.digits))
    # The order of the words doesn't matter, because a match must reach the name's end.
    return "|".join(map(re.escape, sorted(joined)))


def _split_name_pattern() -> None:
    """Make two patterns for names: with and without other languages.

    The one with other languages is slower, so it's only used on texts that need it.
    """
    # The pattern contains `(?&OTHER)` as the place for names in other languages.
    names = RULES["names"]
    names["pattern_of_languages"] = names["pattern"].replace("(?&OTHER)", "|(?&LANGUAGES)")
    # In `pattern` itself, this part stays empty.
    RULES["parts"]["OTHER"] = ""


def _list_language_words() -> list[str]:
    """List the trigger words for "password" in other languages.

    For an entry of several words, such as `mot_de_passe`, that's only the longest one.
    """
    trigger_words: set[str] = set()
    for row in RULES["languages"].values():
        for spelling in _list_all_spellings(row.split()):
            trigger_words.add(_find_longest_word(spelling))
    return sorted(trigger_words)


LANGUAGE_WORDS = _list_language_words()
_add_languages()
_split_name_pattern()


def _expand_parts(pattern: str) -> str:
    """Replace each `(?&NAME)` in a pattern or a word list with the part that has this name."""
    for name, part in RULES["parts"].items():
        pattern = pattern.replace(f"(?&{name})", part)
    return pattern


class _Patterns(dict[str, re.Pattern[str]]):
    """The patterns by name; each is compiled on first use."""

    def __missing__(self, name: str) -> re.Pattern[str]:
        pattern = re.compile(_expand_parts(_PATTERN_SOURCES[name]))
        self[name] = pattern
        return pattern


def read_rows(section: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Read a section's rules as tuples of the kind of secret, the trigger words, and the pattern.

    The pattern can only match a text with at least one trigger word.
    """
    rows: list[tuple[str, tuple[str, ...], str]] = []
    for kind, words, pattern in RULES[section]:
        trigger_words = _expand_parts(words).split(" ")
        rows.append((kind, tuple(trigger_words), _expand_parts(pattern)))

        # A rule for English nouns, such as "password", gets a copy for the nouns of other languages.
        is_for_nouns = words == "(?&NOUNS)"
        if is_for_nouns:
            language_pattern = pattern.replace("(?&NOUN)", "(?&LANGUAGE_NOUN)")
            rows.append((kind, tuple(LANGUAGE_WORDS), _expand_parts(language_pattern)))
    return rows


_PATTERN_SOURCES: dict[str, str] = {}
for _section in _PATTERN_SECTIONS:
    _PATTERN_SOURCES.update(RULES[_section])
PATTERNS = _Patterns()


def find_line_end(text: str, position: int) -> int:
    """Return the position of the next line break, or the end of the text."""
    end = text.find("\n", min(position, len(text)))
    return len(text) if end < 0 else end
