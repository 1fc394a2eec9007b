"""Finds secrets that take more than a word and its name: tables, manifests, phrases, cookies and codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import PATTERNS, SecretMatch, Span, line_end
from judgekit.redaction.secret_tables import (
    LONGEST_ROW,
    find_in_marked_tables,
    find_in_table,
    find_in_wiki_table,
    find_wiki_pairs,
)
from judgekit.redaction.values import is_mixed

if TYPE_CHECKING:
    from collections.abc import Iterator

PHRASE = "seed phrase"
JWK_MEMBER = "key"
_PHRASE_NAMES = ("seed", "mnemonic", "phrase", "bip39", "bip-39", "wallet", "words")
_PHRASE_WORDS: tuple[int, ...] = (12, 15, 18, 21, 24)


def blocks(lower_text: str, lines: list[Span]) -> Iterator[SecretMatch]:
    """Yield the secrets in tables, cookies, recovery codes, Kubernetes manifests, web keys and seed phrases.

    `lower_text` is the text in lower case. `lines` are the spans of lines with a word such as "password", and
    of the lines after them. Tables, cookies and recovery codes are only looked for there.
    """
    for start, end in lines:
        yield from _find_in_rows(lower_text, start, end)
        # A search for a word is cheap; each pattern is only tried if its word occurs.
        if "||" in lower_text or "^" in lower_text:
            yield from find_wiki_pairs(lower_text, start, end)
        if "cookie" in lower_text or "-b" in lower_text:
            yield from _find_cookies(lower_text, start, end)
        if "code" in lower_text or "key" in lower_text:
            yield from _find_recovery_codes(lower_text, start, end)
    if "kind" in lower_text and "secret" in lower_text:
        yield from _find_in_manifests(lower_text)
    if lines:
        yield from find_in_marked_tables(lower_text)
    if "kty" in lower_text:
        yield from _find_jwk_members(lower_text)
    yield from _find_phrases(lower_text)


def _find_in_rows(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the secrets in tables that begin with a line between `start` and `end`."""
    line_start = start
    while line_start < end:
        line_stop = line_end(lower_text, line_start)
        is_short_enough = line_stop - line_start <= LONGEST_ROW
        line = lower_text[line_start:line_stop] if is_short_enough else ""
        has_bar = "|" in line
        may_be_row = has_bar or "," in line or ";" in line or "\t" in line
        if may_be_row and _has_head_cell(line):
            yield from find_in_table(lower_text, line_start, line_stop)
        may_be_wiki_row = has_bar or "^" in line
        if may_be_wiki_row and _is_head_of_wiki_table(line):
            yield from find_in_wiki_table(lower_text, line_start, line_stop)
        line_start = line_stop + 1


def _is_head_of_wiki_table(line: str) -> bool:
    """Whether a line is the head of a table in Jira, DokuWiki or Textile."""
    return bool(PATTERNS["wiki_row"].match(line) or PATTERNS["textile_row"].match(line))


def _has_head_cell(line: str) -> bool:
    """Whether a line, taken as a row of a table, has a cell with a name for passwords in it."""
    # The pattern expects a separator before each cell; the first cell may have none.
    return bool(PATTERNS["marked_head_cell"].search(f"|{line}"))


def _find_cookies(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the values of cookies in HTTP headers and in curl's `-b` option.

    Only values with both letters and digits are yielded.
    """
    for cookie_header in PATTERNS["cookies"].finditer(lower_text, start, end):
        for cookie in PATTERNS["cookie"].finditer(lower_text, *cookie_header.span("all")):
            value = cookie[1]
            if is_mixed(value):
                yield SecretMatch(*cookie.span(1), "cookie")


def _find_recovery_codes(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the codes below a heading such as "Recovery codes:", where they're listed one a line.

    A code without a digit isn't yielded, since it may be a word.
    """
    for heading in PATTERNS["codes"].finditer(lower_text, start, end):
        position = heading.end()
        while code_line := PATTERNS["code_line"].match(lower_text, position):
            code = code_line[1]
            if any(map(str.isdigit, code)):
                yield SecretMatch(*code_line.span(1), "recovery code")
            position = code_line.end()


def _find_phrases(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the seed phrases of wallets, which are a fixed number of common words.

    They stand behind a name such as "mnemonic", or alone on a line. Alone, they must be as many words as
    wallets use, and at most a sixth of the words may be inflected, as many words of a sentence are.
    """
    # Each search is a pattern, the possible numbers of words, and the largest share of inflected words.
    searches = [("lone_phrase", _PHRASE_WORDS, 1 / 6)]
    if any(map(lower_text.__contains__, _PHRASE_NAMES)):
        searches.append(("named_phrase", (*_PHRASE_WORDS, 11, 13, 25), 1))
    # The patterns search for a line break and the line behind it, which is faster than searching for the
    # beginning of a line. So the first line needs a break in front, too.
    lines = f"\n{lower_text}"
    for pattern, counts, largest_share in searches:
        for match in PATTERNS[pattern].finditer(lines):
            words = re.findall(r"[a-z]{3,8}", match["value"])
            if len(words) not in counts:
                continue

            inflected = [word for word in words if PATTERNS["inflected"].search(word)]
            is_prose = bool(PATTERNS["prose"].search(" ".join(words)))
            if len(inflected) <= largest_share * len(words) and not is_prose:
                start, end = match.span("value")
                # Positions in `lower_text` are lower by one than in `lines`, with the break added in front.
                yield SecretMatch(start - 1, end - 1, PHRASE)


_JWK_REACH = 12_000  # characters around a key's kind that are searched for its members


def _find_jwk_members(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the private members of JSON web keys.

    A key is found by its member `kty` (the type), and its other members are searched around that.
    """
    search_start = 0
    while key_type := PATTERNS["jwk"].search(lower_text, search_start):
        start = max(search_start, key_type.start() - _JWK_REACH)
        end = key_type.end() + _JWK_REACH
        for member in PATTERNS["jwk_member"].finditer(lower_text, start, end):
            yield SecretMatch(*member.span("value"), JWK_MEMBER)
        search_start = end


def _find_in_manifests(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the values below `data` in the manifests of Kubernetes secrets, which are in YAML or JSON."""
    separator = "---"  # between the documents of a YAML file
    document_start = 0
    for document in re.split(f"(?m:^){separator}", lower_text):
        if PATTERNS["manifest"].search(document):
            for value_start, value_end in _find_yaml_data(document):
                yield SecretMatch(
                    document_start + value_start, document_start + value_end, "password"
                )
        document_start += len(document) + len(separator)
    if PATTERNS["manifest_json"].search(lower_text):
        for data in PATTERNS["json_data"].finditer(lower_text):
            for entry in PATTERNS["json_entry"].finditer(lower_text, *data.span(1)):
                yield SecretMatch(*entry.span(1), "password")


def _find_yaml_data(document: str) -> Iterator[Span]:
    """Yield the span of each value below a `data:` in a YAML document, which is in lower case."""
    for data in PATTERNS["data"].finditer(document):
        data_indent = len(data[1])
        position = data.end()
        while entry := PATTERNS["entry"].match(document, position):
            entry_indent = len(entry[1])
            # A line that isn't indented deeper than `data:` is not below it any more.
            if entry_indent <= data_indent:
                break
            yield entry.span(2)
            position = entry.end()
