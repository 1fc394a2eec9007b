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
    PATTERNS,
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
_TO_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

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
    """Load the rules for secrets with a form of their own, such as `ghp_…`: ours and detect-secrets'.

    Importing the plugins of detect-secrets takes 0.1 s of CPU.
    """
    from detect_secrets import plugins  # noqa: PLC0415 - only needed before text is sent

    rules: list[Rule] = [*_FORMS]
    for kind, words, name in RULES["plugins"]:
        module_name, detector_name = name.split(".")
        module = import_module(f"{plugins.__name__}.{module_name}")
        detector = getattr(module, detector_name)
        for pattern in detector.denylist:
            rules.append((kind, tuple(words.split(" ")), pattern))
    return rules


@functools.cache
def _build_form_index() -> WordIndex:
    """Build the index that tells which of the rules of `load` to try on a text, by the words in it."""
    return WordIndex([words for _, words, _ in load()])


@functools.cache
def _build_place_index(*, in_languages: bool) -> WordIndex:
    """Build the index that tells which of the rules for places to try on a text, by the words in it.

    Without `in_languages`, it never names rules whose words are all from other languages than English.
    """
    rows = [words for _, words, _ in _PLACES]
    if not in_languages:
        languages = set(LANGUAGE_WORDS)
        # Such a rule gets no words, so it's never found. It stays in the list, since rules are known by
        # their position there.
        rows = [() if languages.issuperset(words) else words for words in rows]
    return WordIndex(rows)


def find(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, in no order; they may overlap."""
    lower_text = text.lower()
    if len(lower_text) != len(text):
        # Some letter became two, which would shift positions. Names only have ASCII letters anyway.
        lower_text = text.translate(_TO_LOWER)
    yield from (SecretMatch(*span, PRIVATE_KEY) for span in private_keys(text, lower_text))
    yield from _find_in_long_words(text)
    lines = _find_named_lines(lower_text)
    if lines:
        yield from _find_by_place_or_name(text, lower_text, lines)
    for start, end, kind in blocks(lower_text, lines):
        is_sure = kind in (PHRASE, JWK_MEMBER)
        if is_sure or not is_placeholder(text[start:end]):
            yield SecretMatch(start, end, kind)


def _find_by_place_or_name(text: str, lower_text: str, lines: list[Span]) -> Iterator[SecretMatch]:
    """Yield the values in `lines` that are secrets by their place, such as an option, or by their name."""
    language_words = _LANGUAGE_WORDS.pattern_for(lower_text)
    for start, end in lines:
        in_languages = bool(language_words.search(lower_text, start, end))
        yield from _find_by_place(text, lower_text, (start, end), in_languages=in_languages)
        names = PATTERNS["pattern_of_languages"] if in_languages else PATTERNS["pattern"]
        for match in names.finditer(lower_text, start, end):
            secret = find_named(text, match)
            if secret:
                yield secret
        yield from find_set_values(text, start, end)


def _find_by_place(
    text: str, lower_text: str, span: Span, *, in_languages: bool
) -> Iterator[SecretMatch]:
    """Yield the secrets in a span by their place, such as behind an option or in an address."""
    start, end = span
    index = _build_place_index(in_languages=in_languages)
    for number in index.rules_of(lower_text[start:end]):
        kind, _, pattern = _PLACES[number]
        for match in _compiled(pattern).finditer(lower_text, start, end):
            # The name of the group that matched says what the value must look like.
            group = cast("str", match.lastgroup)
            value_start, value_end = match.span(group)
            value = text[value_start:value_end].rstrip(".,:")
            if not value or not fits(value, group.rstrip("23")):  # `secretword2` means the same
                continue
            # A value at the beginning of the text has "" before it, and counts as quoted, too.
            is_quoted = text[value_start - 1 : value_start] in ('"', "'", "")
            may_be_code = group != "sure" and not is_quoted
            if not (may_be_code and is_code(value)):
                yield SecretMatch(value_start, value_start + len(value), kind)


def _find_in_long_words(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets with a form of their own, such as a vendor's prefix. Each contains a long word.

    Most texts have few long words. So the long words are searched first. The text itself is searched only if
    a long word looks like a secret.
    """
    long_words = " ".join([word for word in text.split() if len(word) >= _SHORTEST_FORM])
    if not long_words:
        return
    forms = [*_find_forms(text, long_words)]
    yield from forms
    if any(find_vendor_tokens(long_words)):
        form_starts = {form.start for form in forms}
        for token in find_vendor_tokens(text):
            if token.start not in form_starts:
                yield token


@functools.cache
def _is_within_word(pattern: str | re.Pattern[str]) -> bool:
    """Whether a pattern can't match a blank, so that it only matches inside a word."""
    source = pattern if isinstance(pattern, str) else pattern.pattern
    return not any(part in source for part in _WITH_BLANKS)


def _find_forms(text: str, long_words: str) -> Iterator[SecretMatch]:
    """Yield the matches of the rules for secrets with a form of their own, such as `ghp_…`."""
    rules = load()
    for number in _build_form_index().rules_of(long_words):
        kind, _, form_pattern = rules[number]
        pattern = _compiled(form_pattern)
        # Searching the few long words first is faster than searching the text.
        if _is_within_word(form_pattern) and not pattern.search(long_words):
            continue
        end = 0
        while end <= len(text):
            match = pattern.search(text, end)
            if match is None:
                break
            start, end = match.span()
            # A form within a longer word is usually chance, except for forms that are unmistakable.
            is_behind_letter = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
            is_unmistakable = kind in _UNMISTAKABLE and is_mixed(match[0])
            if is_behind_letter and not is_unmistakable:
                continue
            if kind != PRIVATE_KEY:
                # The pattern may match a fixed length only. Take the rest of the word for the secret, too.
                end = cast("re.Match[str]", PATTERNS["rest"].match(text, end)).end()
            yield SecretMatch(start, end, kind)


def _find_named_lines(lower_text: str) -> list[Span]:
    """Find the spans of lines with a word such as "password", which may hold a secret.

    A span includes the three lines after such a line, which may hold the value. Spans that overlap are
    joined.
    """
    named_lines = set()
    for pattern in (_LINE_WORDS.pattern_for(lower_text), *_LINE_PATTERNS):
        end = 0
        while match := pattern.search(lower_text, end):
            end = line_end(lower_text, match.end() - 1)
            start = lower_text.rfind("\n", 0, match.start()) + 1
            named_lines.add((start, end))

    lines: list[Span] = []
    for start, line_stop in sorted(named_lines):
        stop = line_stop
        for _ in range(_LINES_BEHIND):
            stop = line_end(lower_text, stop + 1)
        overlaps_last = bool(lines) and start <= lines[-1][1]
        if overlaps_last:
            last_start, last_stop = lines.pop()
            lines.append((last_start, max(last_stop, stop)))
        else:
            lines.append((start, stop))
    return lines
