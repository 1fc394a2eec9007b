"""Decides which part of a reply may be its answer: only the listed layouts count.

A reply is the answer, or has thoughts before it in one of the forms in `reply_words.toml`. Text between marks
that aren't listed as an answer's isn't one, nor is text before a lone end of thoughts, or behind thoughts
that never end.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment
from judgekit.text import refuse_repeated_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

_REPLY_WORDS: dict[str, str] = environment.read_toml(__file__, "reply_words.toml")
_ANSWER_MARK_NAMES = frozenset(_REPLY_WORDS["answering"].split())
_HTML_TAG_NAMES = frozenset(_REPLY_WORDS["prose"].split())
_THOUGHT_NAME_PATTERN = re.compile(_REPLY_WORDS["thought"])
_ENDING_MARK_NAMES = frozenset(_REPLY_WORDS["ending"].split())
_NEUTRAL_MARK_NAMES = frozenset(_REPLY_WORDS["neutral"].split())
_MARK_PARTS_PATTERN = re.compile(
    r"(?P<closes>/|end[_\u2581 -](?:of[_\u2581 -])?)?(?P<opens>(?:begin|start)[_\u2581 -](?:of[_\u2581 -])?)?"
    r"(?P<name>.*?)(?P<closes_after>[_\u2581]end)?(?P<opens_after>[_\u2581](?:begin|start))?"
)
_MARK_PATTERN = re.compile(
    r"<(?P<tag>/?[A-Za-z][\w:.-]{0,60})(?:\s[^<>\n]{0,200})?/?>"
    r"|[<\[][|\uff5c](?P<special>[^<>|\uff5c\n]{1,60})[|\uff5c][>\]]"
    r"|<\|(?P<opened>[a-z_]{1,30})>|<(?P<closed>[a-z_]{1,30})\|>"
    r"|\[(?P<square>/?[A-Z][A-Z_ ]{2,40})\]"
    r"|[\u25c1\u27e8](?P<triangle>/?\w{1,30})[\u25b7\u27e9]"
    # Granite says it in words, Pangu with two nameless tokens.
    r"|(?m:^)[ \t]*Here(?:['\u2019]s| is) my (?P<spoken>thought process|response):"
    r"|\[(?P<unnamed>unused1[67])\]"
)
_OPENS_BY_NAMELESS_MARK = {  # marks that begin thoughts without a name
    "thought process": True,
    "response": False,
    "unused16": True,
    "unused17": False,
}
_CHANNEL_PREFIX = (
    "channel "  # before its name: a turn in harmony's form has several, and `final` is the answer
)
_CHANNEL_NAME_PATTERN = re.compile(r"\s*+(?P<name>\w{0,40})")
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
    """A part of a reply that isn't its answer. `closing_text` is the mark at its end, or "" without one."""

    start: int
    end: int
    closing_text: str


def find_thoughts(raw: str) -> list[Span]:
    """Find the model's thoughts in a reply, such as `<think>…</think>`, in text order.

    If there are too many marks such as `<think>`, the entire reply counts as thoughts.
    """
    marks = _find_marks(raw)
    if len(marks) > _MAX_MARKS:
        return [Span(0, len(raw), "")]

    spans: list[Span] = []
    open_marks: list[Mark] = []  # a stack, innermost last
    for mark in marks:
        if _ends_channel(open_marks, mark):
            _close_innermost(raw, spans, open_marks, mark)

        has_opening_mark = any(open_mark.name == mark.name for open_mark in open_marks)
        if mark.opens:
            open_marks.append(mark)
        elif has_opening_mark:
            _discard_inner_marks(open_marks, mark.name)
            _close_innermost(raw, spans, open_marks, mark)
        elif _closes_thoughts(mark):
            # A lone `</think>` means that `<think>` was in the prompt, so everything so far is thoughts.
            spans = [Span(0, mark.end, raw[mark.start : mark.end])]
            open_marks.clear()

    spans += _list_unclosed(raw, open_marks)
    return sorted(spans)


def _ends_channel(open_marks: Sequence[Mark], mark: Mark) -> bool:
    """Whether a mark ends the innermost open channel, such as `<|channel|>analysis`.

    A channel has no closing mark. It ends at the next channel, or at a token such as `<|end|>`.
    """
    in_channel = bool(open_marks) and open_marks[-1].name.startswith(_CHANNEL_PREFIX)
    only_ends = mark.opens is None
    starts_channel = mark.name.startswith(_CHANNEL_PREFIX)
    return in_channel and (only_ends or starts_channel)


def _discard_inner_marks(open_marks: list[Mark], name: str) -> None:
    """Discard the marks inside the innermost open mark of that name, because they were never closed."""
    while open_marks[-1].name != name:
        open_marks.pop()


def _closes_thoughts(mark: Mark) -> bool:
    """Whether a mark is a closing one with a name for thoughts, such as `</think>`."""
    is_closing = mark.opens is False  # None is neither opening nor closing
    return is_closing and _THOUGHT_NAME_PATTERN.search(mark.name) is not None


def _list_unclosed(raw: str, open_marks: Sequence[Mark]) -> list[Span]:
    """List the outermost thoughts that are never closed: one span up to the reply's end, or none."""
    for mark in open_marks:
        if not _can_contain_answer(mark.name):
            return [Span(mark.start, len(raw), "")]
    return []


def _close_innermost(raw: str, spans: list[Span], open_marks: list[Mark], mark: Mark) -> None:
    """Remove the innermost open mark, and add the span from there to its closing mark `mark`.

    No span is added if the text in it can contain the answer.
    """
    opening = open_marks.pop()
    if _can_contain_answer(opening.name):
        return
    # If `mark` opens the next channel, it isn't part of the span.
    end = mark.start if mark.opens else mark.end
    closing_text = raw[mark.start : mark.end]
    spans.append(Span(opening.start, end, closing_text))


def _can_contain_answer(name: str) -> bool:
    """Whether the text between marks of this name can contain the answer, unlike thoughts."""
    return (
        name in _ANSWER_MARK_NAMES or name in _HTML_TAG_NAMES or name == f"{_CHANNEL_PREFIX}final"
    )


def cut_off_thoughts(raw: str) -> str:
    """Remove the model's thoughts, such as `<think>…</think>`, from the beginning of a reply.

    If other text precedes them, or if their end is uncertain, return the reply unchanged.
    """
    thoughts = find_thoughts(raw)
    if not thoughts:
        return raw
    first = thoughts[0]
    is_at_beginning = raw[: first.start].strip() == ""
    if is_at_beginning and _is_end_certain(raw, first):
        return raw[first.end :]
    return raw


def _is_end_certain(raw: str, thoughts: Span) -> bool:
    """Whether thoughts certainly end at their closing mark, instead of just mentioning it."""
    if not thoughts.closing_text:  # they continue to the reply's end
        return False

    # Without an opening mark, these may not be thoughts at all: an answer can mention `</think>`.
    opening_mark = _MARK_PATTERN.match(raw, thoughts.start)
    if opening_mark is None:
        return False

    # A special token, such as `<|end|>`, is hardly ever mentioned.
    if opening_mark["special"]:
        return True

    # If the closing mark appears more than once, any of them could be the real one.
    return raw.count(thoughts.closing_text) == 1


def is_in_thoughts(spans: list[Span], position: int) -> bool:
    """Whether a position in a reply is in one of these spans."""
    return any(span.start <= position < span.end for span in spans)


def _find_marks(raw: str) -> list[Mark]:
    """Find the marks of thoughts and answers, such as `<think>`, outside of valid JSON objects.

    Inside an object, a mark is just mentioned in a string.
    """
    marks = []
    objects = _ObjectSearch(raw)
    for match in _MARK_PATTERN.finditer(raw):
        if objects.includes(match.start()):
            continue
        mark = _parse_mark(raw, match)
        if mark is not None:
            marks.append(mark)
    return marks


class _ObjectSearch:
    """Finds the valid JSON objects in a text, one after the other. Gives up after `_MAX_OBJECTS` braces."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.next_brace = raw.find("{")  # or -1
        self.tried_brace_count = 0  # braces tried as the start of an object
        self.last_end = 0  # end of the last object

    def includes(self, position: int) -> bool:
        """Whether a position is in an object. Positions have to be asked in ascending order."""
        while 0 <= self.next_brace < position and self.tried_brace_count < _MAX_OBJECTS:
            self._skip_object()
        return position < self.last_end

    def _skip_object(self) -> None:
        """Skip the object that starts at `next_brace`. If it isn't valid JSON, only skip the brace."""
        self.tried_brace_count += 1
        object_end = find_exact_end(self.raw, self.next_brace)
        if object_end is None:
            self.next_brace = self.raw.find("{", self.next_brace + 1)
        else:
            self.last_end = object_end
            self.next_brace = self.raw.find("{", object_end)


def _parse_mark(raw: str, match: re.Match[str]) -> Mark | None:
    """Parse a tag or special token such as `</think>` or `<|channel|>`.

    Returns None if it has nothing to do with thoughts or answers.
    """
    start, end = match.span()
    text = next(filter(None, match.groups()), "").lower()  # exactly one group has matched

    starts_channel = match["special"] and text.strip() == "channel"
    if starts_channel:
        channel = _read_channel_name(raw, end)
        return Mark(f"{_CHANNEL_PREFIX}{channel}", start, end, opens=True)

    # Phrases such as "Here's my response:" and tokens such as `[unused16]` don't contain a name.
    is_nameless = match["spoken"] or match["unnamed"]
    if is_nameless:
        opens_thoughts = _OPENS_BY_NAMELESS_MARK[text]
        return Mark("thought", start, end, opens=opens_thoughts)

    only_closes = match["closed"]  # a token such as `<channel|>`
    if only_closes:
        return Mark(_normalise_name(text), start, end, opens=False)

    return _parse_named_mark(raw, match, text)


def _read_channel_name(raw: str, start: int) -> str:
    """Read the name of a channel after its token, in small letters; "" if there's none."""
    name = _CHANNEL_NAME_PATTERN.match(raw, start)
    return name["name"].lower() if name else ""


def _parse_named_mark(raw: str, match: re.Match[str], text: str) -> Mark | None:
    """Parse a tag or token that has a name, such as `<think>` or `<|end of thought|>`.

    Returns None if it marks neither thoughts nor an answer, such as a tag mentioned in prose.
    """
    start, end = match.span()
    full_name = _normalise_name(text)
    name, closes = _split_name(text)

    is_neutral = name in _NEUTRAL_MARK_NAMES or full_name in _NEUTRAL_MARK_NAMES
    if is_neutral:
        return None

    # A special token such as `<|end|>` ends any open channel. A tag with such a name means nothing.
    if full_name in _ENDING_MARK_NAMES:
        is_special_token = bool(match["special"])
        return Mark(name, start, end, opens=None) if is_special_token else None

    if _is_in_prose(raw, match, name):
        return None
    return Mark(name, start, end, opens=not closes)


def _split_name(text: str) -> tuple[str, bool]:
    """Return a mark's name without a prefix or suffix such as "end of", and whether that closes the mark."""
    parts = _MARK_PARTS_PATTERN.fullmatch(text.strip())
    if parts is None:
        return _normalise_name(text), False
    closes = bool(parts["closes"] or parts["closes_after"])
    return _normalise_name(parts["name"]), closes


def _is_in_prose(raw: str, match: re.Match[str], name: str) -> bool:
    """Whether a mark is just part of the text: it's only mentioned, or it's HTML."""
    has_known_name = name in _ANSWER_MARK_NAMES or _THOUGHT_NAME_PATTERN.search(name) is not None
    is_token = bool(match["special"] or match["opened"])
    if has_known_name or is_token:
        return False

    is_html = name in _HTML_TAG_NAMES
    if is_html:
        return True

    # A mark with an unknown name only counts if it's a tag at the start of a line.
    is_tag = bool(match["tag"])
    return not (is_tag and _is_at_line_start(raw, match.start()))


def _is_at_line_start(raw: str, position: int) -> bool:
    """Whether a line has nothing but an indent before this position."""
    text_before = raw[max(0, position - _MAX_INDENT) : position]
    line_before = text_before.rpartition("\n")[2]
    return line_before.strip() == ""


def _normalise_name(name: str) -> str:
    """Reduce a mark's name to lower-case letters and digits."""
    return re.sub(r"[\W_]", "", name.lower())


def find_exact_end(raw: str, start: int) -> int | None:
    """Find the end of the JSON object that starts at `start`. Returns None if it isn't valid JSON."""
    with suppress(ValueError, RecursionError):
        return _DECODER.raw_decode(raw, start)[1]
    return None


# NaN and infinity aren't valid JSON; `int` raises for them.
_DECODER = json.JSONDecoder(object_pairs_hook=refuse_repeated_keys, parse_constant=int)
