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
    r"(?P<name>.*?)(?P<closes_after>[_\u2581]end)?(?P<opens_after>[_\u2581](?:begin|start))?"
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
_AFTER_CHANNEL = re.compile(r"\s*+(?P<name>\w{0,40})")
_MAX_INDENT = 80  # characters to look back for the start of a line
_MAX_MARKS = 1000  # a reply with more is a flood
_MAX_OBJECTS = 64  # JSON objects in which marks are ignored; after that many, marks count anywhere


class Mark(NamedTuple):
    """A mark in a reply; `opens` is None for one that only ends something."""

    name: str
    start: int
    end: int
    opens: bool | None


class Span(NamedTuple):
    """A part of a reply that isn't its answer. `ended_by` is the mark at its end, or "" without one."""

    start: int
    end: int
    ended_by: str


def find_thoughts(raw: str) -> list[Span]:
    """Find the parts of a reply that aren't its answer, such as `<think>…</think>`, in text order.

    If there are too many marks such as `<think>`, the entire reply counts as thoughts.
    """
    marks = _find_marks(raw)
    if len(marks) > _MAX_MARKS:
        return [Span(0, len(raw), "")]

    spans: list[Span] = []
    open_marks: list[Mark] = []  # a stack, innermost last
    for mark in marks:
        # A channel, such as `<|channel|>analysis`, has no closing mark. It ends where the next one starts.
        in_channel = bool(open_marks) and open_marks[-1].name.startswith(_CHANNEL)
        ends_channel = mark.opens is None or mark.name.startswith(_CHANNEL)
        if in_channel and ends_channel:
            _close_innermost(raw, spans, open_marks, mark)

        # Open new thoughts, or close those with the mark's name.
        is_open = mark.name in [open_mark.name for open_mark in open_marks]
        if mark.opens:
            open_marks.append(mark)
        elif is_open:
            # Discard inner marks that were never closed.
            while open_marks[-1].name != mark.name:
                open_marks.pop()
            _close_innermost(raw, spans, open_marks, mark)
        elif mark.opens is False and _THOUGHT.search(mark.name):
            # A lone `</think>` means that `<think>` was in the prompt, so everything so far is thoughts.
            spans = [Span(0, mark.end, raw[mark.start : mark.end])]
            open_marks.clear()

    # Unclosed thoughts continue to the reply's end. The outermost ones include all others, so add only those.
    for mark in open_marks:
        if not _is_ignored(mark.name):
            spans.append(Span(mark.start, len(raw), ""))
            break
    return sorted(spans)


def _close_innermost(raw: str, spans: list[Span], open_marks: list[Mark], mark: Mark) -> None:
    """Close the innermost open mark at `mark`, and add the span between them unless its name is ignored."""
    opening = open_marks.pop()
    if _is_ignored(opening.name):
        return
    # A mark that opens the next channel isn't part of this one.
    end = mark.start if mark.opens else mark.end
    spans.append(Span(opening.start, end, raw[mark.start : mark.end]))


def _is_ignored(name: str) -> bool:
    """Whether the text between marks of this name can contain the answer, unlike thoughts."""
    return name in _ANSWERING or name in _PROSE or name == f"{_CHANNEL}final"


def cut_off_thoughts(raw: str) -> str:
    """Remove the model's thoughts, such as `<think>…</think>`, from the beginning of a reply.

    If other text precedes them, or if their end is uncertain, return the reply unchanged.
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

    # If a closing mark such as `</think>` appears more than once, the thoughts may just mention it. But a
    # special token, such as `<|end|>`, is hardly ever mentioned.
    is_certain = mark["special"] or raw.count(first.ended_by) == 1
    return raw[first.end :] if is_certain else raw


def is_in_thoughts(spans: list[Span], position: int) -> bool:
    """Whether a position in a reply is in one of these spans."""
    return any(span.start <= position < span.end for span in spans)


def _find_marks(raw: str) -> list[Mark]:
    """Find the marks of thoughts and answers, such as `<think>`, outside of valid JSON objects.

    Inside an object, a mark is just mentioned in a string.
    """
    marks = []

    # progress of the search for objects
    object_end = 0
    object_count = 0
    next_brace = raw.find("{")
    for match in _MARK.finditer(raw):
        # Find the end of the last object that starts before this mark.
        while 0 <= next_brace < match.start() and object_count < _MAX_OBJECTS:
            object_count += 1
            end = find_exact_end(raw, next_brace)
            object_end = max(object_end, end or 0)
            # Continue after the object. If it isn't valid JSON, its first brace is skipped.
            next_brace = raw.find("{", end or next_brace + 1)

        is_in_object = match.start() < object_end
        if is_in_object:
            continue
        mark = _parse_mark(raw, match)
        if mark is not None:
            marks.append(mark)
    return marks


def _parse_mark(raw: str, match: re.Match[str]) -> Mark | None:
    """Parse a tag or special token such as `</think>` or `<|channel|>`.

    Returns None if it has nothing to do with thoughts or answers.
    """
    start, end = match.span()
    text = next(filter(None, match.groups()), "").lower()  # exactly one group has matched

    # marks that only have one form
    is_special = bool(match["special"])
    if is_special and text.strip() == "channel":
        name_after = _AFTER_CHANNEL.match(raw, end)
        channel = name_after["name"].lower() if name_after else ""
        return Mark(f"{_CHANNEL}{channel}", start, end, opens=True)
    if match["spoken"] or match["unnamed"]:
        return Mark("thought", start, end, opens=_WORDLESS[text])
    if match["closed"]:
        return Mark(_normalise_name(text), start, end, opens=False)

    # The name can have a prefix or suffix such as "end of".
    parts = _SIDE.fullmatch(text.strip())
    name = _normalise_name(parts["name"] if parts else text)
    full_name = _normalise_name(text)
    if name in _NEUTRAL or full_name in _NEUTRAL:
        return None
    if full_name in _ENDING:
        # Such a token ends any open channel, but never opens or closes thoughts itself.
        return Mark(name, start, end, opens=None) if is_special else None

    # Prose can mention tags. So an unknown tag only counts at the start of a line, and HTML never counts.
    has_known_name = name in _ANSWERING or _THOUGHT.search(name) is not None
    is_certain = has_known_name or is_special or match["opened"]
    if not is_certain:
        line_before = raw[max(0, start - _MAX_INDENT) : start].rpartition("\n")[2]
        is_unknown_tag = match["tag"] and name not in _PROSE
        is_at_line_start = not line_before.strip()
        if not (is_unknown_tag and is_at_line_start):
            return None

    closes = parts is not None and bool(parts["closes"] or parts["closes_after"])
    return Mark(name, start, end, opens=not closes)


def _normalise_name(name: str) -> str:
    """Reduce a mark's name to lower-case letters and digits."""
    return re.sub(r"[\W_]", "", name.lower())


def find_exact_end(raw: str, start: int) -> int | None:
    """Find the end of the JSON object that starts at `start`. Returns None if it isn't valid JSON."""
    with suppress(ValueError, RecursionError):
        return _DECODER.raw_decode(raw, start)[1]
    return None


# NaN and infinity aren't valid JSON; `int` raises for them.
_DECODER = json.JSONDecoder(object_pairs_hook=with_different_keys, parse_constant=int)
