"""Finds secrets that take more than a word and its name: tables, manifests, phrases, cookies and codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import PATTERNS, SecretMatch, Span, find_line_end
from judgekit.redaction.secret_tables import (
    MAX_ROW_CHARS,
    find_in_marked_tables,
    find_in_table,
    find_in_wiki_table,
    find_wiki_pairs,
)
from judgekit.redaction.values import is_mixed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SEED_PHRASE_KIND = "seed phrase"
JWK_MEMBER = "key"
_PHRASE_NAMES = ("seed", "mnemonic", "phrase", "bip39", "bip-39", "wallet", "words")
_PHRASE_WORD_COUNTS: tuple[int, ...] = (12, 15, 18, 21, 24)
# After a name such as "mnemonic", allow for a miscounted or an additional word.
_NAMED_PHRASE_WORD_COUNTS = (*_PHRASE_WORD_COUNTS, 11, 13, 25)


def find_block_secrets(lower_text: str, keyword_spans: list[Span]) -> Iterator[SecretMatch]:
    """Yield the secrets in tables, cookies, recovery codes, Kubernetes manifests, web keys and seed phrases.

    `keyword_spans` are the start and end of each part of `lower_text` near a word such as "password".
    """
    yield from _find_near_keywords(lower_text, keyword_spans)

    # A table's passwords can be far below its header, so search the entire text. Without any keyword,
    # there's no header to find.
    if keyword_spans:
        yield from find_in_marked_tables(lower_text)

    # These don't depend on a keyword nearby.
    if "kind" in lower_text and "secret" in lower_text:
        yield from _find_in_manifests(lower_text)
    if "kty" in lower_text:
        yield from _find_jwk_members(lower_text)
    yield from _find_phrases(lower_text)


def _find_near_keywords(lower_text: str, keyword_spans: list[Span]) -> Iterator[SecretMatch]:
    """Yield the secrets in table rows, wiki pairs, cookies and recovery codes near a keyword."""
    # Looking for a word is cheap. It saves the search for cookies in a text without "cookie", for example.
    # Tables of wikis separate cells by "||" or "^".
    may_have_wiki_pairs = "||" in lower_text or "^" in lower_text
    may_have_cookies = "cookie" in lower_text or "-b" in lower_text  # `curl -b` sends a cookie
    may_have_codes = "code" in lower_text or "key" in lower_text  # "recovery keys" are codes, too

    for start, end in keyword_spans:
        yield from _find_in_rows(lower_text, start, end)
        if may_have_wiki_pairs:
            yield from find_wiki_pairs(lower_text, start, end)
        if may_have_cookies:
            yield from _find_cookies(lower_text, start, end)
        if may_have_codes:
            yield from _find_recovery_codes(lower_text, start, end)


def _find_in_rows(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the secrets in tables with a header row between `start` and `end`."""
    next_line_start = start
    while next_line_start < end:
        line_start = next_line_start
        line_end = find_line_end(lower_text, line_start)
        next_line_start = line_end + 1
        if line_end - line_start > MAX_ROW_CHARS:
            continue

        line = lower_text[line_start:line_end]
        has_cells = any(separator in line for separator in "|,;\t")
        if has_cells and _has_password_header(line):
            yield from find_in_table(lower_text, line_start, line_end)
        has_wiki_cells = "|" in line or "^" in line
        if has_wiki_cells and _is_wiki_table_header(line):
            yield from find_in_wiki_table(lower_text, line_start, line_end)


def _is_wiki_table_header(line: str) -> bool:
    """Whether a line is a table's header row in Jira, DokuWiki or Textile."""
    return bool(PATTERNS["wiki_row"].match(line) or PATTERNS["textile_row"].match(line))


def _has_password_header(line: str) -> bool:
    """Whether a table row has a cell such as "Password"."""
    # The pattern expects a separator before each cell; the first cell may have none.
    return bool(PATTERNS["separated_password_header"].search(f"|{line}"))


def _find_cookies(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield cookie values with both letters and digits, in HTTP headers and curl's `-b` option."""
    for cookie_header in PATTERNS["cookies"].finditer(lower_text, start, end):
        for cookie in PATTERNS["cookie"].finditer(lower_text, *cookie_header.span("all")):
            value = cookie[1]
            if is_mixed(value):
                yield SecretMatch(*cookie.span(1), "cookie")


def _find_recovery_codes(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the codes listed below a heading such as "Recovery codes:", one per line."""
    for heading in PATTERNS["codes"].finditer(lower_text, start, end):
        position = heading.end()
        while code_line := PATTERNS["code_line"].match(lower_text, position):
            code = code_line[1]
            if any(map(str.isdigit, code)):  # without a digit, it could be an ordinary word
                yield SecretMatch(*code_line.span(1), "recovery code")
            position = code_line.end()


def _find_phrases(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the seed phrases of crypto wallets, which consist of 12 to 24 common words."""
    # Words alone on a line could be a sentence, but a sentence has more inflected words.
    yield from _search_phrases(
        lower_text, "lone_phrase", _PHRASE_WORD_COUNTS, max_inflected_fraction=1 / 6
    )
    # After a name such as "seed phrase", all words may be inflected.
    has_name = any(name in lower_text for name in _PHRASE_NAMES)
    if has_name:
        yield from _search_phrases(
            lower_text, "named_phrase", _NAMED_PHRASE_WORD_COUNTS, max_inflected_fraction=1
        )


def _search_phrases(
    lower_text: str,
    pattern: str,
    word_counts: Collection[int],
    *,
    max_inflected_fraction: float,
) -> Iterator[SecretMatch]:
    """Yield a pattern's matches that have one of the word counts and not too many inflected words."""
    # The patterns start with a line break, which is faster than `^`. So add one before the first line.
    added = "\n"
    for match in PATTERNS[pattern].finditer(added + lower_text):
        words = re.findall(r"[a-z]{3,8}", match["value"])
        if len(words) in word_counts and not _is_prose(words, max_inflected_fraction):
            start, end = match.span("value")
            yield SecretMatch(start - len(added), end - len(added), SEED_PHRASE_KIND)


def _is_prose(words: list[str], max_inflected_fraction: float) -> bool:
    """Whether words are a sentence, rather than a seed phrase."""
    has_function_word = PATTERNS["prose"].search(" ".join(words))  # such as "the" or "with"
    if has_function_word:
        return True
    # A seed phrase has base words, such as "walk". A sentence also has inflected ones, such as "walked".
    inflected = [word for word in words if PATTERNS["inflected"].search(word)]
    return len(inflected) > max_inflected_fraction * len(words)


_JWK_SEARCH_CHARS = (
    12_000  # characters before and after `kty` that are searched for the key's members
)


def _find_jwk_members(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the private members of JSON web keys."""
    search_start = 0
    # Every key has a `kty` member (its type). The other members are nearby.
    while key_type := PATTERNS["jwk"].search(lower_text, search_start):
        start = max(search_start, key_type.start() - _JWK_SEARCH_CHARS)
        end = key_type.end() + _JWK_SEARCH_CHARS
        for member in PATTERNS["jwk_member"].finditer(lower_text, start, end):
            yield SecretMatch(*member.span("value"), JWK_MEMBER)
        search_start = end


def _find_in_manifests(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the values under `data` in Kubernetes secret manifests, in YAML or JSON."""
    # A YAML file can contain multiple documents with a line `---` between them.
    separator = "---"
    document_start = 0  # the document's position in `lower_text`
    for document in re.split(f"(?m:^){separator}", lower_text):
        if PATTERNS["manifest"].search(document):
            for value_start, value_end in _find_yaml_data(document):
                yield SecretMatch(
                    document_start + value_start, document_start + value_end, "password"
                )
        document_start += len(document) + len(separator)

    # in JSON
    if PATTERNS["manifest_json"].search(lower_text):
        for data in PATTERNS["json_data"].finditer(lower_text):
            for entry in PATTERNS["json_entry"].finditer(lower_text, *data.span(1)):
                yield SecretMatch(*entry.span(1), "password")


def _find_yaml_data(document: str) -> Iterator[Span]:
    """Yield the span of each value under a `data:` key in a lower-case YAML document."""
    for data in PATTERNS["data"].finditer(document):
        data_indent = len(data[1])
        position = data.end()
        while entry := PATTERNS["entry"].match(document, position):
            entry_indent = len(entry[1])
            # `data:` ends at the first line that isn't indented further.
            if entry_indent <= data_indent:
                break
            yield entry.span(2)
            position = entry.end()
