"""Decides which part of a reply may be its answer: only the listed layouts count.

A reply is the answer, or has thoughts before it in one of the forms in `reply_words.toml`. Text between marks
that aren't listed as an answer's isn't one, nor is text before a lone end of thoughts, or behind thoughts
that never end.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import NamedTuple

from judgekit import environment
from judgekit.text import with_different_keys

_TABLE: dict[str, str] = environment.table(__file__, "reply_words.toml")
_ANSWERING = frozenset(_TABLE["answering"].split())
_PROSE = frozenset(_TABLE["prose"].split())
_THOUGHT = re.compile(_TABLE["thought"])
_ENDING = frozenset(_TABLE["ending"].split())
_NEUTRAL = frozenset(_TABLE["neutral"].split())
_SIDE = re.compile(
    r"(?P<closes>/|end[_\u2581 -](?:of[_\u2581 -])?)?(?P<opens>(?:begin|start)[_\u2581 -](?:of[_\u2581 -])?)?"
    r"(?P<name>.*?)(?P<closes_behind>[_\u2581]end)?(?P<opens_behind>[_\u2581](?:begin|start))?"
)
_MARK = re.compile(
    r"<(?P<tag>/?[A-Za-z][\w:.-]{0,60})(?:\s[^<>\n]{0,200})?/?>"
    r"|[<\[][|\uff5c](?P<special>[^<>|\uff5c\n]{1,60})[|\uff5c][>\]]"
    r"|<\|(?P<opened>[a-z_]{1,30})>|<(?P<closed>[a-z_]{1,30})\|>"
    r"|\[(?P<square>/?[A-Z][A-Z_ ]{2,40})\]"
    r"|[\u25c1\u27e8](?P<triangle>/?\w{1,30})[\u25b7\u27e9]"
    # Granite says it in words, Pangu with two nameless tokens.
    r"|(?m:^)[ \t]*Here(?:['\u2019]s| is) my (?P<spoken>thought process|response):"
    r"|\[(?P<unnamed>unused1[67])\]"
)
_WORDLESS = {  # marks that begin thoughts without a name
    "thought process": True,
    "response": False,
    "unused16": True,
    "unused17": False,
}
_CHANNEL = (
    "channel "  # before its name: a turn in harmony's form has several, and `final` is the answer
)
_BEHIND_CHANNEL = re.compile(r"\s*+(?P<name>\w{0,40})")
_LINE = 80  # characters before a mark, if all are blank, that keep it at the start of its line
_MOST_MARKS = 1000  # a reply with more is a flood
_MOST_OBJECTS = 64  # to skip; in a text with more objects, marks count anywhere


class Mark(NamedTuple):
    """A mark in a reply; `opens` is None for one that only ends something."""

    name: str
    start: int
    end: int
    opens: bool | None


class Span(NamedTuple):
    """A part of a reply that is no answer, with the mark that ends it: "" if the reply ends first."""

    start: int
    end: int
    ended_by: str


def find_thoughts(raw: str) -> list[Span]:
    """Find the parts of a reply that are no answer, in their order."""
    marks = _find_marks(raw)
    if len(marks) > _MOST_MARKS:
        return [Span(0, len(raw), "")]
    spans: list[Span] = []
    opened: list[Mark] = []  # marks that nothing has ended yet, the innermost last
    for mark in marks:
        in_channel = bool(opened) and opened[-1].name.startswith(_CHANNEL)
        ends_channel = mark.opens is None or mark.name.startswith(_CHANNEL)
        if in_channel and ends_channel:
            _end_innermost(raw, spans, opened, mark)
        if mark.opens:
            opened.append(mark)
        elif mark.name in [other.name for other in opened]:
            while opened[-1].name != mark.name:  # marks inside it that nothing ended
                opened.pop()
            _end_innermost(raw, spans, opened, mark)
        elif mark.opens is False and _THOUGHT.search(mark.name):
            # The thoughts that it ends began before the reply did.
            spans = [Span(0, mark.end, raw[mark.start : mark.end])]
            opened.clear()
    # Thoughts that nothing ends go on to the end of the reply.
    for mark in opened:
        if not _is_transparent(mark.name):
            spans.append(Span(mark.start, len(raw), ""))
            break
    return sorted(spans)


def _end_innermost(raw: str, spans: list[Span], opened: list[Mark], mark: Mark) -> None:
    """End the innermost opened part at `mark`, and add it to `spans` unless its text counts as the answer."""
    opening = opened.pop()
    if _is_transparent(opening.name):
        return
    # A mark that begins a channel also ends the previous one, and isn't part of it.
    end = mark.start if mark.opens else mark.end
    spans.append(Span(opening.start, end, raw[mark.start : mark.end]))


def _is_transparent(name: str) -> bool:
    """Whether marks of this name are ignored, and the text between them is read normally."""
    return name in _ANSWERING or name in _PROSE or name == f"{_CHANNEL}final"


def cut_off_thoughts(raw: str) -> str:
    """Cut off the thoughts that a reply begins with.

    The whole reply is returned if something stands before them, if they don't end, or if it isn't certain
    where they end: the same mark occurs again, so that one of the two may be a quote.
    """
    thoughts = find_thoughts(raw)
    if not thoughts:
        return raw
    first = thoughts[0]
    has_text_before = raw[: first.start].strip() != ""
    if has_text_before or not first.ended_by:
        return raw
    mark = _MARK.match(raw, first.start)
    if mark is None:
        return raw
    # A special token is hardly ever quoted.
    is_certain = mark["special"] or raw.count(first.ended_by) == 1
    return raw[first.end :] if is_certain else raw


def is_in_thoughts(spans: list[Span], position: int) -> bool:
    """Whether a position in a reply is in a part that isn't the answer."""
    return any(span.start <= position < span.end for span in spans)


def _find_marks(raw: str) -> list[Mark]:
    """Find the marks outside of exact JSON objects, whose texts may quote any mark."""
    marks = []
    quoted_until = 0  # the end of the last exact object
    objects = 0
    next_brace = raw.find("{")
    for match in _MARK.finditer(raw):
        while 0 <= next_brace < match.start() and objects < _MOST_OBJECTS:
            objects += 1
            end = find_exact_end(raw, next_brace)
            quoted_until = max(quoted_until, end or 0)
            next_brace = raw.find("{", end or next_brace + 1)
        if match.start() < quoted_until:
            continue
        mark = _read_mark(raw, match)
        if mark is not None:
            marks.append(mark)
    return marks


def _read_mark(raw: str, match: re.Match[str]) -> Mark | None:
    """Interpret a mark; None if it's only a word of the prose, or says nothing about thoughts and answers."""
    start, end = match.span()
    # Each form of a mark is a group of `_MARK`, and only one of them has matched.
    text = next(filter(None, match.groups()), "").lower()
    is_special = bool(match["special"])
    if is_special and text.strip() == "channel":
        name_after = _BEHIND_CHANNEL.match(raw, end)
        channel = name_after["name"].lower() if name_after else ""
        return Mark(f"{_CHANNEL}{channel}", start, end, opens=True)
    if match["spoken"] or match["unnamed"]:
        return Mark("thought", start, end, opens=_WORDLESS[text])
    if match["closed"]:
        return Mark(_normalise_name(text), start, end, opens=False)

    parts = _SIDE.fullmatch(text.strip())
    name = _normalise_name(parts["name"] if parts else text)
    whole_name = _normalise_name(text)  # with the word that opens or closes
    if name in _NEUTRAL or whole_name in _NEUTRAL:
        return None
    if whole_name in _ENDING:
        return Mark(name, start, end, opens=None) if is_special else None

    has_known_name = name in _ANSWERING or _THOUGHT.search(name) is not None
    is_certain = has_known_name or is_special or match["opened"]
    if not is_certain:
        # Prose names tags, too, so an unknown one only counts at the start of a line.
        line_before = raw[max(0, start - _LINE) : start].rpartition("\n")[2]
        is_tag = match["tag"] and name not in _PROSE
        if not is_tag or line_before.strip():
            return None
    closes = parts is not None and bool(parts["closes"] or parts["closes_behind"])
    return Mark(name, start, end, opens=not closes)


def _normalise_name(name: str) -> str:
    """Reduce a mark's name to its letters and digits, in lower case."""
    return re.sub(r"[\W_]", "", name.lower())


def find_exact_end(raw: str, start: int) -> int | None:
    """Find the end of the JSON object that begins at `start`; None if it isn't strictly JSON."""
    with suppress(ValueError, RecursionError):
        return _DECODER.raw_decode(raw, start)[1]
    return None


# NaN and infinities aren't JSON, and aren't whole numbers either: `int` raises.
_DECODER = json.JSONDecoder(object_pairs_hook=with_different_keys, parse_constant=int)
