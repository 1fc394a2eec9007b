"""Markdown with texts of others, which are shown as code: there nothing links, loads, mentions or formats."""

from __future__ import annotations

import re
import textwrap

from judgekit.text import short_line, visible

WIDTH = 100  # columns of a block, which does not wrap
NOTHING = "-"


def format_inline(text: str, limit: int = 200) -> str:
    """Return text as code within a line or a table, `-` where it is empty."""
    # A table is cut at every pipe before code is looked for, and a backtick ends code.
    plain = short_line(text, limit).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain else NOTHING


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
