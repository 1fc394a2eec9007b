"""Untrusted text in Markdown: shown as code, where nothing links, loads, mentions or formats.

Inside code GitHub resolves no `@name`, `#1`, link, image or HTML. So the only thing to see to is that text
cannot end the code that it stands in.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from judgekit.text import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH = 100  # columns of a block, which does not wrap
NOTHING = "-"
_MARKS = re.compile(r"~+")


def inline(text: str, limit: int = 200) -> str:
    """Return text as code in a line or a table's cell, cut after `limit` characters."""
    # A table is cut at every pipe before code is looked for, and a backtick ends code.
    plain = one_line(text, limit).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain else NOTHING


def block(text: str, language: str = "") -> str:
    """Return text as a block of code: control characters are left out, all else stands as it is."""
    plain = visible(text)
    marks = "~" * max(3, *(len(run) + 1 for run in _MARKS.findall(plain)), 3)
    return f"{marks}{language}\n{plain}\n{marks}"


def wrapped(text: str, limit: int, first: str = "", indent: str = "") -> str:
    """Return text in lines that a block can show, cut after `limit` characters."""
    return textwrap.fill(one_line(text, limit), WIDTH, initial_indent=first, subsequent_indent=indent)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; the cells are Markdown already."""
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def title(text: str, limit: int = 120) -> str:
    """Return text for a title: GitHub formats code alone in it, programs that pass it on may do more."""
    for mark, harmless in (("`", "'"), ("@", "\uff20"), ("#", "\uff03"), ("<", "\u2039"), (">", "\u203a")):
        text = text.replace(mark, harmless)
    return one_line(text.replace("://", ":\u2215\u2215"), limit)
