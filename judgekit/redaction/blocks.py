"""Finds secrets that take more than a word and its name: tables, manifests, phrases, cookies and codes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import RE, SecretMatch, Span, line_end
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
    """Yield the secrets that take more than a word and its name; `lines` of the text may name them."""
    for start, end in lines:
        at = start
        while at < end:
            stop = line_end(lower, at)
            if stop - at <= LONGEST_ROW:
                line = lower[at:stop]
            else:
                line = ""
            has_bar = "|" in line
            may_be_row = has_bar or "," in line or ";" in line or "\t" in line
            if may_be_row and _has_head_cell(line):
                yield from find_in_table(lower, at, stop)
            may_be_wiki_row = has_bar or "^" in line
            if may_be_wiki_row and (RE["wiki_row"].match(line) or RE["textile_row"].match(line)):
                yield from find_in_wiki_table(lower, at, stop)
            at = stop + 1
        if "||" in lower or "^" in lower:
            yield from find_wiki_pairs(lower, start, end)
        if "cookie" in lower or "-b" in lower:
            yield from _cookies(lower, start, end)
        if "code" in lower or "key" in lower:
            yield from _codes(lower, start, end)
    if "kind" in lower and "secret" in lower:
        yield from _manifests(lower)
    if lines:
        yield from find_in_marked_tables(lower)
    if "kty" in lower:
        yield from _jwk_members(lower)
    yield from _phrases(lower)


def _has_head_cell(line: str) -> bool:
    """Whether a cell of a line contains a name for passwords."""
    return bool(RE["marked_head_cell"].search(f"|{line}"))


def _cookies(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    for header in RE["cookies"].finditer(lower, start, end):
        for crumb in RE["cookie"].finditer(lower, *header.span("all")):
            if is_mixed(crumb[1]):
                yield SecretMatch(*crumb.span(1), "cookie")


def _codes(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    for head in RE["codes"].finditer(lower, start, end):
        at = head.end()
        while code := RE["code_line"].match(lower, at):
            if any(map(str.isdigit, code[1])):
                yield SecretMatch(*code.span(1), "recovery code")
            at = code.end()


def _phrases(lower: str) -> Iterator[SecretMatch]:
    """Yield the word lists of wallet keys: under a name for them, or alone on a line in the right number."""
    # The number of words, and the share of them with an ending.
    ways = [("lone_phrase", _PHRASE_WORDS, 1 / 6)]
    if any(map(lower.__contains__, _PHRASE_NAMES)):
        ways.append(("named_phrase", (*_PHRASE_WORDS, 11, 13, 25), 1))
    # Each line starts behind a break, which `re` finds faster than the beginning of one.
    lines = f"\n{lower}"
    for name, counts, largest_share in ways:
        for match in RE[name].finditer(lines):
            words = re.findall(r"[a-z]{3,8}", match["value"])
            if len(words) not in counts:
                continue
            inflected = [word for word in words if RE["inflected"].search(word)]
            is_prose = bool(RE["prose"].search(" ".join(words)))
            if len(inflected) <= largest_share * len(words) and not is_prose:
                start, end = match.span("value")
                yield SecretMatch(start - 1, end - 1, PHRASE)


_JWK_REACH = 12_000  # characters around a key's kind that are searched for its members


def _jwk_members(lower: str) -> Iterator[SecretMatch]:
    """Yield the private members of JSON web keys."""
    at = 0
    while kind := RE["jwk"].search(lower, at):
        start = max(at, kind.start() - _JWK_REACH)
        end = kind.end() + _JWK_REACH
        for member in RE["jwk_member"].finditer(lower, start, end):
            yield SecretMatch(*member.span("value"), JWK_MEMBER)
        at = end


def _manifests(lower: str) -> Iterator[SecretMatch]:
    """Yield the values of the data of a Kubernetes secret, in YAML and in JSON."""
    start = 0
    for part in re.split(r"(?m:^)---", lower):
        if RE["manifest"].search(part):
            for data in RE["data"].finditer(part):
                at = data.end()
                while (entry := RE["entry"].match(part, at)) and len(entry[1]) > len(data[1]):
                    yield SecretMatch(start + entry.start(2), start + entry.end(2), "password")
                    at = entry.end()
        start += len(part) + 3
    if RE["manifest_json"].search(lower):
        for data in RE["json_data"].finditer(lower):
            for entry in RE["json_entry"].finditer(lower, *data.span(1)):
                yield SecretMatch(*entry.span(1), "password")
