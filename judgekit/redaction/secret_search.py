"""Finds the secrets in a text as it is: by their form, their name, or their place.

The rules are in `secret_rules.toml`, along with the plugins of detect-secrets that recognise a secret by its
form. Randomness alone is never taken for a secret: hashes, identifiers and encoded images are part of the
text to judge. A name or a place decides how much a value must look like a secret: made by a generator, or
chosen by a person. Tables, manifests, phrases, codes and private keys take more than a word and its name. A
private key is found between its header and its end, whatever prefix its lines have.
"""

from __future__ import annotations

import functools
import re
from importlib import import_module
from typing import TYPE_CHECKING, cast

from judgekit.redaction.blocks import JWK_MEMBER, PHRASE, blocks
from judgekit.redaction.named_values import find_named
from judgekit.redaction.private_keys import private_keys
from judgekit.redaction.secret_rules import (
    LANGUAGE_WORDS,
    RE,
    RULES,
    SecretMatch,
    Span,
    line_end,
    read_rows,
)
from judgekit.redaction.setting_lines import find_set_values
from judgekit.redaction.values import fits, is_code, is_mixed, is_placeholder
from judgekit.redaction.vendor_tokens import find_vendor_tokens
from judgekit.redaction.word_index import AnyWord, WordIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    # A kind of secret, words of which every text with such a secret has one, and its form or place.
    Rule = tuple[str, tuple[str, ...], str | re.Pattern[str]]

PRIVATE_KEY = "private key"
# Kinds that are found behind a letter too: their beginning and length do not come about by chance.
_UNMISTAKABLE = frozenset({"GitHub token", "Anthropic key"})
_SHORTEST_FORM = 17  # characters of a secret with a form of its own
_LINES_BEHIND = 3  # they may hold a value named on the line before
_SMALL = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

_FORMS = read_rows("forms")
_PLACES = read_rows("places")
_LANGUAGE_WORDS = AnyWord(LANGUAGE_WORDS)
_LINE_WORDS = AnyWord([*RULES["lines"]["words"].split("|"), *LANGUAGE_WORDS])
_LINE_PATTERNS = [re.compile(pattern) for pattern in RULES["lines"]["patterns"]]
_compiled = functools.cache(re.compile)
# Parts of patterns that may match a blank.
_WITH_BLANKS = (
    " ",
    "\\s",
    "[^",
    ".{",
    ".*",
    "\\W",
    "\\D",
)


@functools.cache
def load() -> list[Rule]:
    """Return the rules for secrets with a form of their own; importing the plugins takes 0.1 s of CPU."""
    from detect_secrets import plugins  # noqa: PLC0415 - only needed before text is sent

    rules: list[Rule] = [*_FORMS]
    for kind, words, name in RULES["plugins"]:
        module, _, detector = name.partition(".")
        denylist = getattr(import_module(f"{plugins.__name__}.{module}"), detector).denylist
        rules += [(kind, tuple(words.split(" ")), pattern) for pattern in denylist]
    return rules


@functools.cache
def _form_index() -> WordIndex:
    return WordIndex([words for _, words, _ in load()])


@functools.cache
def _place_index(*, in_languages: bool) -> WordIndex:
    """Build the index of places, without those that only names in other languages have."""
    rows = [words for _, words, _ in _PLACES]
    if not in_languages:
        languages = set(LANGUAGE_WORDS)
        rows = [() if languages.issuperset(words) else words for words in rows]
    return WordIndex(rows)


def find(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, in no order; they may overlap."""
    lower = text.lower()
    if len(lower) != len(text):  # some letter became two, but names only have ASCII letters
        lower = text.translate(_SMALL)
    yield from (SecretMatch(*span, PRIVATE_KEY) for span in private_keys(text, lower))
    yield from _find_in_long_words(text)
    lines = _lines(lower)
    if lines:
        yield from _places(text, lower, lines)
    for start, end, kind in blocks(lower, lines):
        if kind in (PHRASE, JWK_MEMBER) or not is_placeholder(text[start:end]):
            yield SecretMatch(start, end, kind)


def _places(text: str, lower: str, lines: list[Span]) -> Iterator[SecretMatch]:
    """Yield the values in some lines that are secrets by their place or their name."""
    language_words = _LANGUAGE_WORDS.pattern_for(lower)
    for start, end in lines:
        in_languages = bool(language_words.search(lower, start, end))
        index = _place_index(in_languages=in_languages)
        for number in index.rules_of(lower[start:end]):
            kind, _, pattern = _PLACES[number]
            for match in _compiled(pattern).finditer(lower, start, end):
                group = cast("str", match.lastgroup)
                first = match.start(group)
                value = text[slice(*match.span(group))].rstrip(".,:")
                bare = group != "sure" and text[first - 1 : first] not in "\"'"
                if value and fits(value, group.rstrip("23")) and not (bare and is_code(value)):
                    yield SecretMatch(first, first + len(value), kind)
        if in_languages:
            names = RE["pattern_of_languages"]
        else:
            names = RE["pattern"]
        named = (find_named(text, match) for match in names.finditer(lower, start, end))
        yield from filter(None, named)
        yield from find_set_values(text, start, end)


def _find_in_long_words(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets that a form gives away (a vendor's prefix, say): each has a long word.

    Most texts have few long words, so these are searched first, and the text itself only if they have a form.
    """
    long_words = " ".join([word for word in text.split() if len(word) >= _SHORTEST_FORM])
    if not long_words:
        return
    forms = [*_forms(text, long_words)]
    yield from forms
    if any(find_vendor_tokens(long_words)):
        starts = {form.start for form in forms}
        for token in find_vendor_tokens(text):
            if token.start not in starts:
                yield token


@functools.cache
def _is_within_word(pattern: str | re.Pattern[str]) -> bool:
    """Whether a form has no blanks, so that it only matches inside a long word."""
    if isinstance(pattern, str):
        written = pattern
    else:
        written = pattern.pattern
    return not any(map(written.__contains__, _WITH_BLANKS))


def _forms(text: str, long: str) -> Iterator[SecretMatch]:
    rules = load()
    for number in _form_index().rules_of(long):
        kind, _, written = rules[number]
        pattern = _compiled(written)
        if _is_within_word(written) and not pattern.search(long):
            continue
        at = 0
        while at <= len(text) and (form := pattern.search(text, at)):
            start, at = form.span()
            in_word = start > 0 and text[start].isalnum() and text[start - 1].isalnum()
            if not in_word or (kind in _UNMISTAKABLE and is_mixed(form[0])):
                if kind != PRIVATE_KEY:  # the pattern may be of a fixed length
                    at = cast("re.Match[str]", RE["rest"].match(text, at)).end()
                yield SecretMatch(start, at, kind)


def _lines(lower: str) -> list[Span]:
    """Return the spans of lines that may hold a secret by its name or place."""
    named = set()
    for pattern in (_LINE_WORDS.pattern_for(lower), *_LINE_PATTERNS):
        at = 0
        while match := pattern.search(lower, at):
            at = line_end(lower, match.end() - 1)
            named.add((lower.rfind("\n", 0, match.start()) + 1, at))
    lines: list[Span] = []
    for start, stop in sorted(named):
        for _ in range(_LINES_BEHIND):
            stop = line_end(lower, stop + 1)  # noqa: PLW2901 - on to the next line
        if lines and start <= lines[-1][1]:
            start, before = lines.pop()  # noqa: PLW2901 - goes on with it
            stop = max(before, stop)  # noqa: PLW2901 - the same
        lines.append((start, stop))
    return lines
