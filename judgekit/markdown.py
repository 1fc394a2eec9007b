"""Markdown with texts of others, in which nothing links, loads, mentions or formats: as code, or escaped."""

from __future__ import annotations

import re
import textwrap

from judgekit.text import remove_invisible, shorten_to_line

CODE_BLOCK_COLUMNS = 100  # columns of a code block, whose lines don't wrap
NOTHING = "-"
_LIST_MARKER_PATTERN = re.compile(r"\d+[.)](?=\s|$)|[-+=](?=[-+=\s]|$)")
_LINK_START_PATTERN = re.compile(
    r"(?<=www)\.|(?<=[@#])(?=\S)|(?<=:/)(?=/)|(?<=\bgh)-(?=\d)", re.IGNORECASE
)
_ENTITY_BY_CODE_POINT = {ord(sign): f"&#{ord(sign)};" for sign in "\\`*_{}[]<>#!|~$&@"}
# Inserted so that forges don't recognise a link or a mention.
_ZERO_WIDTH_SPACE = "&#8203;"


def format_inline(text: str, limit: int = 200) -> str:
    """Format text as inline code that also works in a table, or as `-` if it's empty."""
    # A backtick ends the code. A pipe ends a table cell even inside code.
    plain = shorten_to_line(text, limit).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain else NOTHING


def escape_prose(text: str, limit: int = 400) -> str:
    """Escape text as one line of Markdown prose that also works in a table."""
    plain = shorten_to_line(text, limit)
    # GitHub and other sites link mentions (@team), issues (#1, GH-1) and addresses even if their characters
    # are escaped. An invisible separator inside them prevents that. Mark its position with a NUL for now,
    # because the separator itself would be escaped.
    marked = _LINK_START_PATTERN.sub(lambda match: f"{match[0]}\0", plain)
    escaped = marked.translate(_ENTITY_BY_CODE_POINT)
    escaped = _escape_list_marker(plain, escaped)
    return escaped.replace("\0", _ZERO_WIDTH_SPACE)


def _escape_list_marker(plain: str, escaped: str) -> str:
    """If a line begins with a list marker, such as `-` or `1.`, escape the marker's last character.

    `plain` is the same line before its other characters were escaped.
    """
    list_marker = _LIST_MARKER_PATTERN.match(plain)
    if list_marker is None:
        return escaped
    # None of the marker's characters has been escaped yet, so its position is the same in both lines.
    last = list_marker.end() - 1
    before_last = plain[:last]
    character_reference = f"&#{ord(plain[last])};"
    after_last = escaped[last + 1 :]
    return f"{before_last}{character_reference}{after_last}"


def format_block(text: str, language: str = "") -> str:
    """Format text as a fenced code block, without control characters."""
    plain = remove_invisible(text)
    # The fence must be longer than any row of tildes in the text, so that the text can't close it.
    longest_run = max(map(len, re.findall("~+", plain)), default=0)
    fence = "~" * max(3, longest_run + 1)
    return f"{fence}{language}\n{plain}\n{fence}"


def wrap(text: str, limit: int, first_indent: str = "", indent: str = "") -> str:
    """Wrap the first `limit` characters of a text to fit into a code block."""
    return textwrap.fill(
        shorten_to_line(text, limit),
        CODE_BLOCK_COLUMNS,
        initial_indent=first_indent,
        subsequent_indent=indent,
    )
