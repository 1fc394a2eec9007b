"""Reads Claude Code's own memory: topic files with front matter, and MEMORY.md, which lists them."""

from __future__ import annotations

import os

from judgekit import environment
from judgekit.retrieval.sources import base
from judgekit.retrieval.sources.base import Entry, Unreadable, read_text, stem
from judgekit.retrieval.sources.markdown import is_retired, seems_retired, tags_of
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from judgekit.retrieval.compiled import Profile

INDEX = "MEMORY.md"
OWN_CATEGORY = "memory"
_INDEX_LIMIT = 1_000_000  # bytes; the client itself reads far less


def folder(project: str) -> str:
    """Return where Claude Code keeps its memory of `project`, an absolute path."""
    home = environment.environ().get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    name = "".join(char if char.isascii() and char.isalnum() else "-" for char in project)
    return os.path.join(home, "projects", name, "memory")


def read_hints(root: str, files: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """Return the text of each link `[text](file.md)` in MEMORY.md that names a topic file."""
    try:
        text, _ = read_text(root, INDEX, _INDEX_LIMIT)
    except Unreadable:
        return {}, []
    found: dict[str, str] = {}
    for line in lines_of(text):
        for name, title in _links(line):
            if name in files and name != INDEX:
                found.setdefault(name, title)
    return found, []


def read(root: str, relative: str, profile: Profile, hint: str | None) -> Entry | None:
    """Return the memory in a topic file, or what MEMORY.md says beyond its list of topics.

    A file that cannot be read is found by its name or by its line in MEMORY.md.
    """
    try:
        text, _ = read_text(root, relative, profile.max_bytes)
    except Unreadable as error:
        if seems_retired(root, relative, profile.max_bytes):
            return None
        problem = f"{error}; found by name only"
        return Entry(stem(relative), hint or stem(relative), OWN_CATEGORY, problem=problem)
    if relative == INDEX:
        return _own_text(text)
    fields, body = base.split(text)
    if is_retired(fields):
        return None
    named = " ".join(fields.get("title", []) or fields.get("name", []))
    kind = " ".join(fields.get("type", [])).lower()
    return Entry(
        stem(relative),
        named or base.heading(body) or hint or stem(relative),
        kind if kind in profile.categories else OWN_CATEGORY,
        tags=tags_of(fields),
        body="\n".join([*fields.get("description", []), body]),
    )


def _own_text(text: str) -> Entry | None:
    """Return what stands in MEMORY.md itself; lines that only lead to a topic are left to the topic."""
    kept = [line for line in lines_of(text) if not any(_links(line))]
    body = "\n".join(kept).strip()
    prose = [line for line in kept if line.strip() and not line.startswith("#")]
    return Entry("MEMORY", "MEMORY.md", OWN_CATEGORY, body=body) if prose else None


def _links(line: str) -> Iterator[tuple[str, str]]:
    """Yield file and text of the Markdown links in a line that lead to a file of this folder."""
    begin = 0
    while (middle := line.find("](", begin)) >= 0 and (end := line.find(")", middle)) >= 0:
        if line.endswith(".md", middle, end):
            target = line[middle + 2 : end].removeprefix("./")
            yield target, line[begin:middle].rpartition("[")[2].strip()
        begin = end + 1
