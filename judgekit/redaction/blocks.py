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


def blocks(lower: str, lines: list[Span]) -> Iterator[SecretMatch]:
    """Yield secrets of tables, cookies, recovery codes, manifests, web keys and seed phrases.

    `lower` is the text in lower case. Tables, cookies and codes are only looked for in `lines`: the spans of
    the lines with a word such as "password", and those after them.
    """
    for start, end in lines:
        yield from _find_in_rows(lower, start, end)
        # A search for a word is cheap; each pattern is only tried if its word occurs.
        if "||" in lower or "^" in lower:
            yield from find_wiki_pairs(lower, start, end)
        if "cookie" in lower or "-b" in lower:
            yield from _cookies(lower, start, end)
        if "code" in lower or "key" in lower:
            yield from _recovery_codes(lower, start, end)
    if "kind" in lower and "secret" in lower:
        yield from _manifests(lower)
    if lines:
        yield from find_in_marked_tables(lower)
    if "kty" in lower:
        yield from _jwk_members(lower)
    yield from _phrases(lower)


def _find_in_rows(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the secrets of tables whose first row is a line between `start` and `end`."""
    at = start
    while at < end:
        stop = line_end(lower, at)
        is_short_enough = stop - at <= LONGEST_ROW
        line = lower[at:stop] if is_short_enough else ""
        has_bar = "|" in line
        may_be_row = has_bar or "," in line or ";" in line or "\t" in line
        if may_be_row and _has_head_cell(line):
            yield from find_in_table(lower, at, stop)
        may_be_wiki_row = has_bar or "^" in line
        if may_be_wiki_row and (
            PATTERNS["wiki_row"].match(line) or PATTERNS["textile_row"].match(line)
        ):
            yield from find_in_wiki_table(lower, at, stop)
        at = stop + 1


def _has_head_cell(line: str) -> bool:
    """Whether a cell of a line contains a name for passwords."""
    # The pattern expects a separator before each cell; the first cell may have none.
    return bool(PATTERNS["marked_head_cell"].search(f"|{line}"))


def _cookies(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the values with letters and digits in cookie headers, and in curl's options for cookies."""
    for header in PATTERNS["cookies"].finditer(lower, start, end):
        for cookie in PATTERNS["cookie"].finditer(lower, *header.span("all")):
            value = cookie[1]
            if is_mixed(value):
                yield SecretMatch(*cookie.span(1), "cookie")


def _recovery_codes(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the codes with a digit that are listed, one a line, below a head such as "Recovery codes:"."""
    for head in PATTERNS["codes"].finditer(lower, start, end):
        at = head.end()
        while line := PATTERNS["code_line"].match(lower, at):
            code = line[1]
            if any(map(str.isdigit, code)):
                yield SecretMatch(*line.span(1), "recovery code")
            at = line.end()


def _phrases(lower: str) -> Iterator[SecretMatch]:
    """Yield the seed phrases of wallets: words behind a name such as "mnemonic", or alone on a line.

    Without a name, only the numbers of words that wallets use count, and few of the words may be inflected.
    """
    # A pattern, the numbers of words it may have, and the largest share of inflected ones.
    searches = [("lone_phrase", _PHRASE_WORDS, 1 / 6)]
    if any(map(lower.__contains__, _PHRASE_NAMES)):
        searches.append(("named_phrase", (*_PHRASE_WORDS, 11, 13, 25), 1))
    # Each line starts behind a break, which `re` finds faster than the beginning of one.
    lines = f"\n{lower}"
    for pattern, counts, largest_share in searches:
        for match in PATTERNS[pattern].finditer(lines):
            words = re.findall(r"[a-z]{3,8}", match["value"])
            if len(words) not in counts:
                continue
            inflected = [word for word in words if PATTERNS["inflected"].search(word)]
            is_prose = bool(PATTERNS["prose"].search(" ".join(words)))
            if len(inflected) <= largest_share * len(words) and not is_prose:
                start, end = match.span("value")
                yield SecretMatch(start - 1, end - 1, PHRASE)  # without the break added in front


_JWK_REACH = 12_000  # characters around a key's kind that are searched for its members


def _jwk_members(lower: str) -> Iterator[SecretMatch]:
    """Yield the private members of JSON web keys, which stand near the member `kty`, the key's type."""
    at = 0
    while key_type := PATTERNS["jwk"].search(lower, at):
        start = max(at, key_type.start() - _JWK_REACH)
        end = key_type.end() + _JWK_REACH
        for member in PATTERNS["jwk_member"].finditer(lower, start, end):
            yield SecretMatch(*member.span("value"), JWK_MEMBER)
        at = end


def _manifests(lower: str) -> Iterator[SecretMatch]:
    """Yield the values in the data of Kubernetes secrets, in YAML and in JSON."""
    separator = "---"  # between the documents of a YAML file
    start = 0
    for document in re.split(f"(?m:^){separator}", lower):
        if PATTERNS["manifest"].search(document):
            for first, last in _find_yaml_data(document):
                yield SecretMatch(start + first, start + last, "password")
        start += len(document) + len(separator)
    if PATTERNS["manifest_json"].search(lower):
        for data in PATTERNS["json_data"].finditer(lower):
            for entry in PATTERNS["json_entry"].finditer(lower, *data.span(1)):
                yield SecretMatch(*entry.span(1), "password")


def _find_yaml_data(document: str) -> Iterator[Span]:
    """Yield the spans of the values below each `data:` of a YAML document in lower case."""
    for data in PATTERNS["data"].finditer(document):
        data_indent = len(data[1])
        at = data.end()
        while entry := PATTERNS["entry"].match(document, at):
            entry_indent = len(entry[1])
            if entry_indent <= data_indent:  # the line is not below `data:` any more
                break
            yield entry.span(2)
            at = entry.end()
