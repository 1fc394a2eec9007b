"""Markdown with texts of others, in which nothing links, loads, mentions or formats: as code, or escaped."""

from __future__ import annotations

import re
import textwrap

from judgekit.text import short_line, visible

WIDTH = 100  # columns of a block, which does not wrap
NOTHING = "-"
_BEGINS_LIST = re.compile(r"\d+[.)](?=\s|$)|[-+=](?=[-+=\s]|$)")
_BEGINS_LINK = re.compile(
    r"(?<=www)\.|(?<=[@#])(?=\S)|(?<=:/)(?=/)|(?<=\bgh)-(?=\d)", re.IGNORECASE
)
_FORMATS = {ord(sign): f"&#{ord(sign)};" for sign in "\\`*_{}[]<>#!|~$&@"}
# A blank of no width, so that no forge takes what's around it for a link or a name.
_APART = "&#8203;"


def format_inline(text: str, limit: int = 200) -> str:
    """Return text as code within a line or a table, `-` if it's empty."""
    # A table is cut at every pipe before code is looked for, and a backtick ends code.
    plain = short_line(text, limit).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain else NOTHING


def escape_prose(text: str, limit: int = 400) -> str:
    """Return text as one line of prose for within a line or a table.

    Entities stand for signs that format. Forges look for names (@team), issues (#1, GH-1) and addresses in
    what is shown, so a blank of no width stands within them.
    """
    plain = short_line(text, limit)
    begin = _BEGINS_LIST.match(plain)
    escaped = _BEGINS_LINK.sub(lambda match: f"{match[0]}\0", plain).translate(_FORMATS)
    if begin:
        at = begin.end() - 1
        sign = plain[at]
        escaped = f"{plain[:at]}&#{ord(sign)};{escaped[at + 1 :]}"
    return escaped.replace("\0", _APART)


def format_block(text: str, language: str = "") -> str:
    """Return text as a block of code: control characters are left out, all else stands as it is."""
    plain = visible(text)
    longest_run = max(map(len, re.findall("~+", plain)), default=0)
    marks = "~" * max(3, longest_run + 1)
    return f"{marks}{language}\n{plain}\n{marks}"


def wrap(text: str, limit: int, first_indent: str = "", indent: str = "") -> str:
    """Return the beginning of a text, in lines that fit into a block."""
    return textwrap.fill(
        short_line(text, limit), WIDTH, initial_indent=first_indent, subsequent_indent=indent
    )
