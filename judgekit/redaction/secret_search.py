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

from judgekit.redaction.blocks import JWK_MEMBER, SEED_PHRASE_KIND, find_block_secrets
from judgekit.redaction.named_values import find_named
from judgekit.redaction.private_keys import find_private_keys
from judgekit.redaction.secret_rules import (
    LANGUAGE_WORDS,
    PATTERNS,
    RULES,
    SecretMatch,
    Span,
    find_line_end,
    read_rows,
)
from judgekit.redaction.setting_lines import find_in_settings
from judgekit.redaction.values import fits, is_code, is_mixed, is_placeholder
from judgekit.redaction.vendor_tokens import find_vendor_tokens
from judgekit.redaction.word_index import AnyWord, WordIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    # A kind of secret, trigger words (every text with such a secret has one), and a pattern.
    Rule = tuple[str, tuple[str, ...], str | re.Pattern[str]]

PRIVATE_KEY = "private key"
# These are also found after a letter, because their prefix and length never occur by chance.
_UNMISTAKABLE_KINDS = frozenset({"GitHub token", "Anthropic key"})
_MIN_FORMATTED_SECRET_CHARS = 17  # characters of a secret with a recognisable format
_LINES_AFTER_KEYWORD = 3  # the value can be on one of these lines
_LOWER_BY_ASCII_CAPITAL = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

_FORMAT_RULES = read_rows("forms")
_CONTEXT_RULES = read_rows("places")
_LANGUAGE_WORDS = AnyWord(LANGUAGE_WORDS)
_LINE_WORDS = AnyWord([*RULES["lines"]["words"].split("|"), *LANGUAGE_WORDS])
_LINE_PATTERNS = [re.compile(pattern) for pattern in RULES["lines"]["patterns"]]
_compile = functools.cache(re.compile)
# Parts of patterns that may match a blank.
_BLANK_MATCHING_PARTS = (
    " ",
    "\\s",
    "[^",
    ".{",
    ".*",
    "\\W",
    "\\D",
)


@functools.cache
def load_format_rules() -> list[Rule]:
    """Load the rules for secrets with a recognisable format, such as `ghp_…`.

    A rule is a kind, the words that trigger it, and a pattern. Some rules are judgekit's own, the others come
    from the package detect-secrets. Importing it takes 0.1 s.
    """
    from detect_secrets import plugins  # noqa: PLC0415 - imported lazily because it's slow

    rules: list[Rule] = [*_FORMAT_RULES]
    for kind, trigger_words, name in RULES["plugins"]:
        module_name, detector_name = name.split(".")
        module = import_module(f"{plugins.__name__}.{module_name}")
        detector = getattr(module, detector_name)
        for pattern in detector.denylist:
            rules.append((kind, tuple(trigger_words.split(" ")), pattern))
    return rules


@functools.cache
def _build_format_index() -> WordIndex:
    """Index the form rules by trigger word, so that only relevant rules are tried on a text."""
    return WordIndex([words for _, words, _ in load_format_rules()])


@functools.cache
def _build_context_index(*, include_foreign: bool) -> WordIndex:
    """Index the context rules by trigger word, so that only relevant rules are tried on a text.

    Without `include_foreign`, skip the rules whose words are all from other languages.
    """
    foreign_words = set(LANGUAGE_WORDS)
    trigger_words: list[tuple[str, ...]] = []
    for _kind, words, _pattern in _CONTEXT_RULES:
        is_foreign = all(word in foreign_words for word in words)
        is_skipped = is_foreign and not include_foreign
        # A rule without trigger words is never tried. (Removing the rule would renumber the others.)
        trigger_words.append(() if is_skipped else words)
    return WordIndex(trigger_words)


def find(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, unsorted and possibly overlapping."""
    lower_text = _lowercase_in_place(text)

    # secrets that can be recognised without a name or context
    for start, end in find_private_keys(text, lower_text):
        yield SecretMatch(start, end, PRIVATE_KEY)
    yield from _find_in_long_words(text)

    # secrets near a keyword such as "password"
    keyword_spans = _find_keyword_spans(lower_text)
    if keyword_spans:
        yield from _find_by_context_or_name(text, lower_text, keyword_spans)

    # secrets in tables and other blocks, most of which also need a keyword
    for start, end, kind in find_block_secrets(lower_text, keyword_spans):
        is_sure = kind in (SEED_PHRASE_KIND, JWK_MEMBER)
        if is_sure or not is_placeholder(text[start:end]):
            yield SecretMatch(start, end, kind)


def _lowercase_in_place(text: str) -> str:
    """Convert a text to lower case, without changing any positions."""
    lower_text = text.lower()
    if len(lower_text) == len(text):
        return lower_text
    # Lowercasing turns a few letters into two characters, which shifts all later positions. So only
    # lowercase the ASCII letters.
    return text.translate(_LOWER_BY_ASCII_CAPITAL)


def _find_by_context_or_name(
    text: str, lower_text: str, keyword_spans: list[Span]
) -> Iterator[SecretMatch]:
    """Yield the secrets near a keyword: values after a name such as `password`, or an option such as `-p`."""
    foreign_word_pattern = _LANGUAGE_WORDS.pattern_for(lower_text)
    for start, end in keyword_spans:
        has_foreign = bool(foreign_word_pattern.search(lower_text, start, end))
        yield from _find_by_context(text, lower_text, (start, end), include_foreign=has_foreign)
        # The pattern with names in other languages is slower.
        name_pattern = PATTERNS["pattern_of_languages"] if has_foreign else PATTERNS["pattern"]
        for match in name_pattern.finditer(lower_text, start, end):
            secret = find_named(text, match)
            if secret:
                yield secret
        yield from find_in_settings(text, start, end)


def _find_by_context(
    text: str, lower_text: str, span: Span, *, include_foreign: bool
) -> Iterator[SecretMatch]:
    """Yield the secrets in a span that have a context such as `--password x` or `https://user:x@host`.

    If `include_foreign`, also use the rules for words in other languages.
    """
    start, end = span
    # The index finds the rules whose trigger words are in the span, so that the others aren't tried.
    rule_index = _build_context_index(include_foreign=include_foreign)
    for rule_number in rule_index.find_rules(lower_text[start:end]):
        kind, _trigger_words, pattern = _CONTEXT_RULES[rule_number]
        for match in _compile(pattern).finditer(lower_text, start, end):
            secret_span = _locate_secret(text, match)
            if secret_span is not None:
                yield SecretMatch(*secret_span, kind)


def _locate_secret(text: str, match: re.Match[str]) -> Span | None:
    """Return the span of the value in a context rule's match, or None if the value isn't a secret."""
    # The group's name says what the value must look like. If a pattern has more than one such group, their
    # names are numbered, as in `secretword2`.
    group = cast("str", match.lastgroup)
    required_look = group.rstrip("23")
    value_start, value_end = match.span(group)
    value = text[value_start:value_end].rstrip(".,:")
    if not value or not fits(value, required_look):
        return None

    # A quoted value isn't code. Neither is one in the group "sure": its context only precedes secrets.
    can_be_code = group != "sure" and not _is_quoted_at(text, value_start)
    if can_be_code and is_code(value):
        return None
    return value_start, value_start + len(value)


def _is_quoted_at(text: str, value_start: int) -> bool:
    """Whether there's a quote before a value. At the start of the text, a value counts as quoted, too."""
    character_before = text[value_start - 1 : value_start]
    return character_before in ('"', "'", "")


def _find_in_long_words(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets with a recognisable format, and tokens with a vendor's prefix."""
    # Every secret with a recognisable format contains a long word, and most texts have few. So check the
    # long words first, and search the complete text only if one of them looks like a secret.
    long_words = " ".join(
        [word for word in text.split() if len(word) >= _MIN_FORMATTED_SECRET_CHARS]
    )
    if not long_words:
        return

    formatted_secrets = [*_find_by_format(text, long_words)]
    yield from formatted_secrets

    if any(find_vendor_tokens(long_words)):
        found_starts = {secret.start for secret in formatted_secrets}
        for token in find_vendor_tokens(text):
            is_already_found = token.start in found_starts
            if not is_already_found:
                yield token


def _find_by_format(text: str, long_words: str) -> Iterator[SecretMatch]:
    """Yield the secrets in `text` with a recognisable format, such as `ghp_…`.

    `long_words` are the text's long words, joined by blanks. Each secret contains at least one of them.
    """
    rules = load_format_rules()
    for rule_number in _build_format_index().find_rules(long_words):
        kind, _trigger_words, regex = rules[rule_number]
        pattern = _compile(regex)
        # Searching the few long words first is faster than searching the text. That's not possible if a match
        # can contain blanks.
        can_check_words = _is_within_word(regex)
        if can_check_words and pattern.search(long_words) is None:
            continue
        yield from _find_kind(text, pattern, kind)


@functools.cache
def _is_within_word(pattern: str | re.Pattern[str]) -> bool:
    """Whether a pattern can't match a blank, and so only matches inside a word."""
    source = pattern if isinstance(pattern, str) else pattern.pattern
    return not any(part in source for part in _BLANK_MATCHING_PARTS)


def _find_kind(text: str, pattern: re.Pattern[str], kind: str) -> Iterator[SecretMatch]:
    """Yield a pattern's matches as secrets of a kind, except those that only match by chance."""
    search_start = 0
    while match := pattern.search(text, search_start):
        end = match.end()
        if not _is_coincidence(text, match, kind):
            # Some patterns only match a secret's beginning. The one for private keys matches all of it.
            if kind != PRIVATE_KEY:
                end = _extend_to_word_end(text, end)
            yield SecretMatch(match.start(), end, kind)
        search_start = end


def _is_coincidence(text: str, match: re.Match[str], kind: str) -> bool:
    """Whether a match is probably only a part of a longer word, rather than a secret."""
    # Secrets of some kinds can't be mistaken, even right after a letter.
    is_unmistakable = kind in _UNMISTAKABLE_KINDS and is_mixed(match[0])
    if is_unmistakable:
        return False
    start = match.start()
    return start > 0 and text[start - 1].isalnum() and text[start].isalnum()


def _extend_to_word_end(text: str, end: int) -> int:
    """Return the end of the word, because some patterns match only a fixed length of it."""
    rest_of_word = PATTERNS["rest"].match(text, end)
    # The pattern always matches, if only an empty string.
    return cast("re.Match[str]", rest_of_word).end()


def _find_keyword_spans(lower_text: str) -> list[Span]:
    """Return the spans of lines with a keyword such as "password".

    Each span includes the three lines after the keyword's line. Overlapping spans are merged.
    """
    spans: list[Span] = []
    for start, line_end in sorted(_find_keyword_lines(lower_text)):
        end = line_end
        for _ in range(_LINES_AFTER_KEYWORD):
            end = find_line_end(lower_text, end + 1)

        overlaps_last = bool(spans) and start <= spans[-1][1]
        if overlaps_last:
            last_start, last_end = spans.pop()
            spans.append((last_start, max(last_end, end)))
        else:
            spans.append((start, end))
    return spans


def _find_keyword_lines(lower_text: str) -> set[Span]:
    """Find the start and end of each line with a keyword."""
    lines = set()
    patterns = [_LINE_WORDS.pattern_for(lower_text), *_LINE_PATTERNS]
    for pattern in patterns:
        line_end = 0
        while match := pattern.search(lower_text, line_end):
            # The match can include the line break. So search for the line's end from the match's last
            # character.
            line_end = find_line_end(lower_text, match.end() - 1)
            line_start = lower_text.rfind("\n", 0, match.start()) + 1
            lines.add((line_start, line_end))
    return lines
