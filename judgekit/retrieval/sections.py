"""Cuts a text into sections: the text below each heading, or three turns of a conversation.

A heading is a line of Markdown (`## Retries`) or an underlined line, as in reST. A long text below one
heading is cut at the end of a paragraph. A conversation has a line `Name: text` for each turn; its sections
overlap, so that an answer shares a section with its question.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest

from judgekit.retrieval.passages import HEADING_SEPARATOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONG_SECTION_CHARS = 1_500  # characters; a longer text below one heading is cut
MIN_PIECE_CHARS = 1_000  # characters of a piece that may end at the end of a paragraph
TURNS_PER_SECTION = 3  # turns of a conversation in each section
_MAX_HEADING_CHARS = 200  # characters
_MAX_HEADING_LEVELS = 6
_COMMENT_END_BY_START = {"{/*": "*/}", "<!--": "-->"}
_UNDERLINES = "=-~^\"'*+#"
_MIN_UNDERLINE_CHARS = 3  # signs; two are enough for `==`
# Lines that start with these aren't titles.
_NON_TITLE_PREFIXES = ("#", "-", "*", ">", "|", "+", "`", ":", "<")
_MAX_NAME_CHARS = 40  # characters of a speaker's name
_MAX_NAME_WORDS = 4
_MIN_TURNS = 4
_MAX_SPEAKERS = 12
_SPEAKER_ROLES = frozenset(
    ("user", "human", "assistant", "agent", "ai", "bot", "claude", "model", "system")
)
_SPEAKER_NAME_SIGNS = frozenset(" .-_'()@")
_MAX_PREAMBLE_CHARS = 200  # characters above the first turn that serve as a heading


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


def cut_sections(text: str) -> list[Section]:
    """Cut a text into sections, in order. Returns an empty list for fewer than two sections."""
    sections = _cut_conversation(text)
    if not sections:
        sections = _cut_below_headings(text)
    return sections if len(sections) > 1 else []


def _cut_below_headings(text: str) -> list[Section]:
    """Cut a text at its headings. A section's heading includes the headings above it."""
    sections: list[Section] = []
    open_headings: list[Heading] = []  # the path to the current heading, highest level first
    start = 0
    lines_above = 0
    for heading in find_headings(text):
        text_above = text[start : heading.start]
        _add_pieces(sections, text_above, start, lines_above, _join_headings(open_headings))
        # A heading closes the headings of its own level and of lower levels.
        while open_headings and open_headings[-1].level >= heading.level:
            open_headings.pop()
        open_headings.append(heading)
        start = heading.start
        lines_above = heading.lines_above
    _add_pieces(sections, text[start:], start, lines_above, _join_headings(open_headings))

    return _drop_bare_headings(sections, text)


def _join_headings(headings_above: Sequence[Heading]) -> str:
    """Join heading texts, highest level first: `Install > Windows`."""
    return HEADING_SEPARATOR.join([heading.text for heading in headings_above])


def _add_pieces(
    sections: list[Section], text: str, start: int, lines_above: int, heading: str
) -> None:
    """Add the text below a heading to `sections`, cut into pieces if it's long. Skip blank text.

    `start` and `lines_above` are the text's position and the number of lines above it in the full document.
    """
    if not text.strip():
        return

    whole_end = start + len(text)
    if len(text) <= LONG_SECTION_CHARS:
        sections.append(Section(start, whole_end, lines_above, heading))
        return

    piece_start = start
    piece_lines_above = lines_above
    line_end = start
    for number, line in enumerate(text.split("\n"), start=1):
        line_end = min(line_end + len(line) + 1, whole_end)  # the last line has no line break
        is_rest_tiny = whole_end - line_end <= MIN_PIECE_CHARS // 2
        if _may_end_piece(line, line_end - piece_start) and not is_rest_tiny:
            sections.append(Section(piece_start, line_end, piece_lines_above, heading))
            piece_start = line_end
            piece_lines_above = lines_above + number
    sections.append(Section(piece_start, whole_end, piece_lines_above, heading))


def _may_end_piece(line: str, size: int) -> bool:
    """Whether a piece of `size` characters may end after `line`.

    It may end at a blank line, or if it's long, anywhere.
    """
    if size >= LONG_SECTION_CHARS:
        return True
    is_blank = not line.strip()
    return is_blank and size >= MIN_PIECE_CHARS


def _drop_bare_headings(sections: Sequence[Section], text: str) -> list[Section]:
    """Drop sections that are only a heading, if the next section is below that heading."""
    kept_sections = []
    for section, next_section in zip_longest(sections, sections[1:]):
        lines = text[section.start : section.end].split("\n")
        filled_lines = [line for line in lines if line.strip()]
        is_bare = section.heading != "" and len(filled_lines) <= 1
        # A section's heading begins with the headings above it, so the next section repeats this one.
        path_prefix = section.heading + HEADING_SEPARATOR
        is_next_below = next_section is not None and next_section.heading.startswith(path_prefix)
        if not (is_bare and is_next_below):
            kept_sections.append(section)
    return kept_sections


def find_headings(text: str) -> Iterator[Heading]:
    """Yield the headings of a text, ignoring lines in fences and comments."""
    is_fenced = False
    comment_end = ""  # the sign that will end the open comment, or ""
    line_before = ""
    line_before_start = 0
    start = 0
    level_by_underline = {"=": 1, "-": 2}

    for number, whole_line in enumerate(text.split("\n")):
        line = whole_line.removesuffix("\r")
        if not comment_end and _is_fence(line, line_before, is_fenced=is_fenced):
            is_fenced = not is_fenced
        elif not is_fenced:
            if comment_end or "{/*" in line or "<!--" in line:
                line, comment_end = _strip_comments(line, comment_end)
            if line.startswith("#"):
                title = _read_title(line)
                level = len(line) - len(line.lstrip("#"))
                if title:
                    yield Heading(start, number, level, title, is_title=True)
            elif _is_underline(line, line_before):
                sign = line[0]
                level = _choose_level(sign, level_by_underline)
                title = line_before.strip()[:_MAX_HEADING_CHARS]
                # A row of another sign, such as dashes, may be a rule below a paragraph.
                is_title = sign == "="
                yield Heading(line_before_start, number - 1, level, title, is_title=is_title)
                line = ""  # an underline can't be the title for another underline

        line_before = line
        line_before_start = start
        start += len(whole_line) + 1


def _is_fence(line: str, line_before: str, *, is_fenced: bool) -> bool:
    """Whether a line opens or closes a block of code."""
    if not line.lstrip().startswith(("```", "~~~")):
        return False
    # Outside of code, a line of tildes below a title is an underline.
    return is_fenced or not _is_underline(line, line_before)


def _choose_level(sign: str, level_by_underline: dict[str, int]) -> int:
    """Return the level of an underline's sign. A new sign gets the next level, as in reST."""
    if sign not in level_by_underline:
        level_by_underline[sign] = min(len(level_by_underline) + 1, _MAX_HEADING_LEVELS)
    return level_by_underline[sign]


def _read_title(line: str) -> str:
    """Return a Markdown heading's text; "" if the line isn't a heading."""
    after_signs = line.lstrip("#")
    if not after_signs.startswith((" ", "\t")):  # `#tag`, for example
        return ""
    title = _strip_id(line.strip("# \t"))
    return strip_links(title)[:_MAX_HEADING_CHARS]


def _is_underline(line: str, line_before: str) -> bool:
    """Whether a line is a row of one sign that underlines the line before it as a heading."""
    title = line_before.strip()
    underline = line.rstrip()
    sign = line[:1]
    if not title or not sign or sign not in _UNDERLINES:
        return False

    has_other_signs = underline.strip(sign) != ""
    if has_other_signs:
        return False
    if sign == "=":
        return True

    if len(underline) < _MIN_UNDERLINE_CHARS:
        return False
    # Indented lines, list items, quotes, table rows and the like aren't titles.
    if line_before.startswith((" ", "\t", *_NON_TITLE_PREFIXES)):
        return False
    # Markdown's dashes can be shorter than the title. The other signs are reST, which forbids that.
    return sign == "-" or len(underline) >= len(title)


def strip_links(text: str) -> str:
    """Replace links by their texts: `[Retries](retries.md)` becomes Retries.

    From the first bracket that doesn't begin a link, the rest of the text is unchanged.
    """
    if "](" not in text:
        return text

    converted = ""
    remaining = text
    while True:
        before, opening, after_opening = remaining.partition("[")
        name, middle, after_middle = after_opening.partition("](")
        _, closing, after_link = after_middle.partition(")")
        is_link = opening != "" and middle != "" and closing != ""
        has_nested_bracket = "[" in name  # not worth parsing
        if not is_link or has_nested_bracket:
            return converted + remaining

        converted += before + name
        remaining = after_link


def _strip_comments(line: str, comment_end: str) -> tuple[str, str]:
    """Remove MDX and HTML comments from a line.

    `comment_end` is the sign that ends a comment opened on an earlier line, or "".
    Returns the text outside comments, and `comment_end` for the next line.
    """
    text_outside = ""
    while True:
        if comment_end:
            _, end, line = line.partition(comment_end)
            if not end:
                return text_outside, comment_end
            comment_end = ""

        starts = [(line.find(sign), sign) for sign in _COMMENT_END_BY_START if sign in line]
        if not starts:
            return (text_outside + line).rstrip(), ""
        start, sign = min(starts)  # the first comment on the line
        text_outside += line[:start]
        line = line[start + len(sign) :]
        comment_end = _COMMENT_END_BY_START[sign]


def _strip_id(title: str) -> str:
    """Remove the id or class in braces after a heading: `Retries {#retries}` or `Retries {: .class}`."""
    start = title.rfind("{")
    if start <= 0 or not title.endswith("}"):
        return title
    inside = title[start + 1 :].lstrip(":").lstrip()
    is_id_or_class = inside.startswith(("#", "."))
    return title[:start].rstrip("# \t") if is_id_or_class else title


def _cut_conversation(text: str) -> list[Section]:
    """Cut a conversation into overlapping windows of three turns. Returns an empty list for other texts."""
    named_turns, filled_lines = _find_named_turns(text)
    # A name that occurs only once isn't a speaker, as in `Date: 8 May`.
    speakers = _find_repeated([name for name, _ in named_turns])
    turns = [turn for name, turn in named_turns if name in speakers]
    if not _is_conversation(len(turns), speakers, filled_lines):
        return []

    # End each turn where the next one starts. The last one ends with the text.
    for turn, next_turn in pairwise(turns):
        turn.end = next_turn.start

    preamble = _describe_preamble(text[: turns[0].start])
    windows = []
    # Pair each turn with the last turn of its window. The last turns start no window of their own.
    for first_turn, last_turn in zip(turns, turns[TURNS_PER_SECTION - 1 :], strict=False):
        windows.append(Section(first_turn.start, last_turn.end, first_turn.lines_above, preamble))
    return windows


def _find_repeated(names: Sequence[str]) -> set[str]:
    """Return the names that occur more than once."""
    count_by_name: dict[str, int] = {}
    for name in names:
        count_by_name[name] = count_by_name.get(name, 0) + 1
    return {name for name, count in count_by_name.items() if count > 1}


def _find_named_turns(text: str) -> tuple[list[tuple[str, Section]], int]:
    """Find lines that look like turns. Returns (name, turn) pairs, and the number of nonblank lines.

    The turns aren't cut yet: each extends to the end of the text.
    """
    named_turns: list[tuple[str, Section]] = []
    filled_lines = 0
    start = 0
    is_fenced = False
    for number, line in enumerate(text.split("\n")):
        if line.startswith(("```", "~~~")):
            is_fenced = not is_fenced
        if line.strip():
            filled_lines += 1
            name = "" if is_fenced else _find_speaker(line)  # code has lines such as `key: value`
            if name:
                named_turns.append((name, Section(start, len(text), number, "")))

        start += len(line) + 1

    return named_turns, filled_lines


def _find_speaker(line: str) -> str:
    """Return the speaker's name in lower case for a turn (`Ann: Hello`), else ""."""
    marked_name, colon, text = line.lstrip("*_>").partition(":")
    name = marked_name.rstrip("*_")
    is_url = text.startswith("//")
    if not colon or not name or is_url:
        return ""
    if len(name) > _MAX_NAME_CHARS or len(name.split()) > _MAX_NAME_WORDS:
        return ""

    # Roles such as `user` need neither a capital nor text on the same line.
    is_role = name.lower() in _SPEAKER_ROLES
    has_text = text.strip("*_ \t\r") != ""
    may_be_turn = is_role or (has_text and _begins_like_name(name))
    if not may_be_turn:
        return ""

    is_name = all(char.isalnum() or char in _SPEAKER_NAME_SIGNS for char in name)
    return name.lower() if is_name else ""


def _begins_like_name(text: str) -> bool:
    """Whether the first character is a capital, or a letter of a script without capitals."""
    first_char = text[0]
    # A letter of such a script, e.g. a Chinese one, isn't lower case either.
    is_letter_without_case = first_char.isalpha() and not first_char.islower()
    return first_char.isupper() or is_letter_without_case


def _is_conversation(turns: int, speakers: set[str], filled_lines: int) -> bool:
    """Whether a text with so many turns and nonblank lines is a conversation of these speakers.

    Its turns must be most of its lines, unless an assistant and a user speak.
    """
    has_few_speakers = 1 < len(speakers) <= _MAX_SPEAKERS
    if turns < _MIN_TURNS or not has_few_speakers:
        return False
    is_mostly_turns = turns * 2 > filled_lines
    # An assistant's turns can have many lines.
    has_assistant_and_user = len(_SPEAKER_ROLES & speakers) > 1
    return is_mostly_turns or has_assistant_and_user


def _describe_preamble(text: str) -> str:
    """Join the text above the first turn into one line. It's usually a date and the speakers."""
    lines = [line.strip("#*-=: \t\r") for line in text.split("\n")]
    words = " ".join(lines).split()
    return " ".join(words)[:_MAX_PREAMBLE_CHARS]
