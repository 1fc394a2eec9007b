"""Cuts a text into sections: the text below each heading, or three turns of a conversation.

A heading is a line of Markdown (`## Retries`) or an underlined line, as in reST. A long text below one
heading is cut at the end of a paragraph. A conversation has a line `Name: text` for each turn; its sections
overlap, so that an answer shares a section with its question.
"""

from __future__ import annotations

from itertools import pairwise

from judgekit.retrieval.passages import JOINED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONG = 1_500  # characters; a longer text below one heading is cut
ENOUGH = 1_000  # characters of a piece that may end at the end of a paragraph
TURNS = 3  # turns of a conversation in each section
_MOST_HEADING = 200  # characters
_MOST_LEVELS = 6
_COMMENTS = {"{/*": "*/}", "<!--": "-->"}
_UNDERLINES = "=-~^\"'*+#"
_LEAST_UNDERLINE = 3  # signs; two are enough for `==`
# Lines that begin like this aren't titles
_NO_TITLES = ("#", "-", "*", ">", "|", "+", "`", ":", "<")
_MOST_NAME = 40  # characters of a speaker's name
_MOST_NAME_WORDS = 4
_LEAST_TURNS = 4
_MOST_SPEAKERS = 12
_ROLES = frozenset(
    ("user", "human", "assistant", "agent", "ai", "bot", "claude", "model", "system")
)
_IN_NAMES = frozenset(" .-_'()@")
_MOST_PREAMBLE = 200  # characters above the first turn that serve as a heading


class Section:
    """Some lines of a text: its characters from `start` to `end`, the number of lines above, the headings."""

    __slots__ = ("end", "heading", "lines_above", "start")

    def __init__(self, start: int, end: int, lines_above: int, heading: str) -> None:
        self.start = start
        self.end = end
        self.lines_above = lines_above
        self.heading = heading


class Heading:
    """A heading: its line's start, the number of lines above, its level (1 is the highest) and its text."""

    __slots__ = ("is_title", "level", "lines_above", "start", "text")

    def __init__(
        self, start: int, lines_above: int, level: int, text: str, *, is_title: bool
    ) -> None:
        self.start = start
        self.lines_above = lines_above
        self.level = level
        self.text = text
        self.is_title = is_title  # whether it can name the whole text


def cut(text: str) -> list[Section]:
    """Cut a text into sections, in its order; an empty list if it would be a single one."""
    sections = _cut_conversation(text) or _cut_below_headings(text)
    return sections if len(sections) > 1 else []


def _cut_below_headings(text: str) -> list[Section]:
    sections: list[Section] = []
    path: list[Heading] = []
    start = 0
    lines_above = 0
    for heading in headings(text):
        _add_pieces(sections, text[start : heading.start], start, lines_above, _join(path))
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        start = heading.start
        lines_above = heading.lines_above
    _add_pieces(sections, text[start:], start, lines_above, _join(path))
    return _drop_bare_headings(sections, text)


def _join(path: Sequence[Heading]) -> str:
    return JOINED.join([heading.text for heading in path])


def _add_pieces(
    sections: list[Section], text: str, start: int, lines_above: int, heading: str
) -> None:
    """Add the text below one heading, in pieces if it's long."""
    if not text.strip():
        return
    if len(text) <= LONG:
        sections.append(Section(start, start + len(text), lines_above, heading))
        return
    piece_start = 0
    piece_lines = 0
    end = 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        end = min(end + len(line) + 1, len(text))
        size = end - piece_start
        is_end = size >= LONG or (size >= ENOUGH and not line.strip())
        rest = len(text) - end
        if is_end and rest > ENOUGH // 2:
            sections.append(
                Section(start + piece_start, start + end, lines_above + piece_lines, heading)
            )
            piece_start = end
            piece_lines = number + 1
    sections.append(
        Section(start + piece_start, start + len(text), lines_above + piece_lines, heading)
    )


def _drop_bare_headings(sections: Sequence[Section], text: str) -> list[Section]:
    """Leave out a heading without text of its own if the headings of the next section begin with it."""
    kept = []
    for place, section in enumerate(sections):
        following = sections[place + 1] if place + 1 < len(sections) else None
        is_led_to = following is not None and following.heading.startswith(section.heading + JOINED)
        lines = [line for line in text[section.start : section.end].split("\n") if line.strip()]
        is_bare = section.heading != "" and len(lines) <= 1
        if not (is_bare and is_led_to):
            kept.append(section)
    return kept


def headings(text: str) -> Iterator[Heading]:
    """Yield the headings of a text, ignoring lines in fences and comments."""
    is_fenced = False
    comment_end = ""  # of a comment that goes on below
    before = ""
    before_start = 0
    start = 0
    levels = {"=": 1, "-": 2}
    for number, whole_line in enumerate(text.split("\n")):
        line = whole_line.removesuffix("\r")
        is_fence = line.lstrip().startswith(("```", "~~~"))
        if is_fence and not is_fenced and _is_underline(line, before):
            is_fence = False
        if not comment_end and is_fence:
            is_fenced = not is_fenced
        elif not is_fenced:
            if comment_end or "{/*" in line or "<!--" in line:
                line, comment_end = _strip_comments(line, comment_end)
            if line.startswith("#"):
                title = _read_title(line)
                level = len(line) - len(line.lstrip("#"))
                if title:
                    yield Heading(start, number, level, title, is_title=True)
            elif _is_underline(line, before):
                level = levels.setdefault(line[0], min(len(levels) + 1, _MOST_LEVELS))
                title = before.strip()[:_MOST_HEADING]
                yield Heading(before_start, number - 1, level, title, is_title=line[0] == "=")
                line = ""
        before = line
        before_start = start
        start += len(whole_line) + 1


def _read_title(line: str) -> str:
    """Return the text of a Markdown heading; "" if the line isn't one."""
    is_heading = line.lstrip("#")[:1] in (" ", "\t")
    title = _strip_id(line.strip("# \t")) if is_heading else ""
    return without_links(title)[:_MOST_HEADING]


def _is_underline(line: str, before: str) -> bool:
    title = before.strip()
    sign = line[:1]
    bare = line.rstrip()
    if not title or not sign or sign not in _UNDERLINES or bare.strip(sign):
        return False
    if sign == "=":
        return True
    is_long_enough = len(bare) >= _LEAST_UNDERLINE and (sign == "-" or len(bare) >= len(title))
    return is_long_enough and not before.startswith((" ", "\t", *_NO_TITLES))


def without_links(text: str) -> str:
    """Replace a heading's links by their texts: `[Retries](retries.md)` becomes Retries."""
    if "](" not in text:
        return text
    shown = ""
    rest = text
    while True:
        before, opening, behind = rest.partition("[")
        name, middle, target = behind.partition("](")
        _, closing, after = target.partition(")")
        if not (opening and middle and closing) or "[" in name:
            return shown + rest
        shown += before + name
        rest = after


def _strip_comments(line: str, comment_end: str) -> tuple[str, str]:
    """Remove comments of MDX and HTML from a line; also return the end of a comment that's still open."""
    shown = ""
    while True:
        if comment_end:
            _, end, line = line.partition(comment_end)
            if not end:
                return shown, comment_end
            comment_end = ""
        starts = [(line.find(start), start) for start in _COMMENTS if start in line]
        if not starts:
            return (shown + line).rstrip(), ""
        place, start = min(starts)
        shown += line[:place]
        line = line[place + len(start) :]
        comment_end = _COMMENTS[start]


def _strip_id(title: str) -> str:
    """Remove the id in braces at the end of a heading: `Retries {#retries}`."""
    start = title.rfind("{")
    is_id = title.endswith("}") and title[start + 1 :].lstrip(":").lstrip()[:1] in ("#", ".")
    if start > 0 and is_id:
        return title[:start].rstrip("# \t")
    return title


def _cut_conversation(text: str) -> list[Section]:
    """Cut a conversation into overlapping windows of three turns; an empty list if it isn't one."""
    turns: list[tuple[str, Section]] = []
    filled_lines = 0
    start = 0
    is_fenced = False
    for number, line in enumerate(text.split("\n")):
        if line.startswith(("```", "~~~")):
            is_fenced = not is_fenced
        if line.strip():
            filled_lines += 1
            name = "" if is_fenced else _find_speaker(line)
            if name:
                turns.append((name, Section(start, len(text), number, "")))
        start += len(line) + 1
    turns_by_name: dict[str, int] = {}
    for name, _ in turns:
        turns_by_name[name] = turns_by_name.get(name, 0) + 1
    # A name that occurs only once isn't a speaker: `Date: 8 May`.
    speakers = {name for name, count in turns_by_name.items() if count > 1}
    spoken = [turn for name, turn in turns if name in speakers]
    if not _is_conversation(len(spoken), speakers, filled_lines):
        return []
    for turn, following in pairwise(spoken):
        turn.end = following.start
    preamble = _describe_preamble(text[: spoken[0].start])
    windows = []
    for first, last in zip(spoken, spoken[TURNS - 1 :], strict=False):
        windows.append(Section(first.start, last.end, first.lines_above, preamble))
    return windows


def _find_speaker(line: str) -> str:
    """Return the speaker's name if a line is a turn (`Ann: Hello`), else ""."""
    name, colon, text = line.lstrip("*_>").partition(":")
    name = name.rstrip("*_")
    is_role = name.lower() in _ROLES
    if not colon or not name or len(name) > _MOST_NAME or text[:2] == "//":
        return ""
    begins_as_name = name[0].isupper() or (name[0].isalpha() and not name[0].islower())
    if not is_role and not (begins_as_name and text.strip("*_ \t\r")):
        return ""
    if len(name.split()) > _MOST_NAME_WORDS:
        return ""
    is_name = all(char.isalnum() or char in _IN_NAMES for char in name)
    return name.lower() if is_name else ""


def _is_conversation(turns: int, speakers: set[str], filled_lines: int) -> bool:
    """Whether most lines are turns of a few people, or some are turns of an assistant and a user."""
    is_of_few = 1 < len(speakers) <= _MOST_SPEAKERS
    is_mostly_turns = turns * 2 > filled_lines
    is_with_assistant = len(_ROLES & speakers) > 1
    return turns >= _LEAST_TURNS and is_of_few and (is_mostly_turns or is_with_assistant)


def _describe_preamble(text: str) -> str:
    """Join the text above the first turn into one line: usually a date and the speakers."""
    lines = [line.strip("#*-=: \t\r") for line in text.split("\n")]
    return " ".join(" ".join(filter(None, lines)).split())[:_MOST_PREAMBLE]
