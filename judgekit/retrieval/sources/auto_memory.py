"""Reads Claude Code's own memory: topic files with front matter, and MEMORY.md, which lists them."""

from __future__ import annotations

import os

from judgekit import environment
from judgekit.retrieval.sources import Entry, Unreadable, markdown, read_text, stem
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from judgekit.retrieval.compiled import Profile

NAME = "claude-auto-memory"
ENDINGS = markdown.ENDINGS
IN_ROOT, BELOW, DEEP, LINKED_FOLDERS = True, False, False, True
INDEX = "MEMORY.md"
OWN_CATEGORY = "memory"
_INDEX_LIMIT = 1_000_000  # bytes; the client itself reads far less


def is_at(root: str, _profile: Profile) -> bool:
    return os.path.isfile(os.path.join(root, INDEX))


def folder(project: str) -> str:
    """Return where Claude Code keeps its memory of `project`, an absolute path."""
    home = environment.environ().get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    name = "".join(char if char.isascii() and char.isalnum() else "-" for char in project)
    return os.path.join(home, "projects", name, "memory")


def read_hints(
    root: str, files: Mapping[str, object], _leaves_out: object
) -> tuple[dict[str, str], list[str]]:
    """Return the text of each link `[text](file.md)` in MEMORY.md that names a topic file."""
    try:
        text = read_text(root, INDEX, _INDEX_LIMIT)
    except Unreadable:
        return {}, []
    hints: dict[str, str] = {}
    for line in lines_of(text):
        for name, title in _links(line):
            if name in files and name != INDEX:
                hints.setdefault(name, title)
    return hints, []


def read(root: str, relative: str, profile: Profile, hint: str | None) -> Entry | None:
    """Return the memory in a topic file, or what MEMORY.md says beyond its list of topics.

    A file that cannot be read is found by its name or by its line in MEMORY.md.
    """
    name = stem(relative)
    try:
        text = read_text(root, relative, profile.max_bytes)
    except Unreadable as error:
        if markdown.seems_retired(root, relative, profile.max_bytes):
            return None
        return Entry(name, hint or name, OWN_CATEGORY, problem=f"{error}; found by name only")
    if relative == INDEX:
        return _own_text(text)
    fields, body = markdown.split(text)
    if markdown.is_retired(fields):
        return None
    title = " ".join(fields.get("title", []) or fields.get("name", []))
    kind = " ".join(fields.get("type", [])).lower()
    return Entry(
        name,
        title or markdown.heading(body) or hint or name,
        kind if kind in profile.categories else OWN_CATEGORY,
        tags=markdown.tags_of(fields),
        body="\n".join([*fields.get("description", []), body]),
    )


def _own_text(text: str) -> Entry | None:
    """Return what stands in MEMORY.md itself; lines that only lead to a topic are left to the topic."""
    kept = [line for line in lines_of(text) if not any(_links(line))]
    if not any(line.strip() and not line.startswith("#") for line in kept):
        return None
    return Entry("MEMORY", INDEX, OWN_CATEGORY, body="\n".join(kept).strip())


def _links(line: str) -> Iterator[tuple[str, str]]:
    """Yield file and text of the Markdown links in a line that lead to a file of this folder."""
    begin = 0
    while (middle := line.find("](", begin)) >= 0 and (end := line.find(")", middle)) >= 0:
        if line.endswith(".md", middle, end):
            target = line[middle + 2 : end].removeprefix("./")
            yield target, line[begin:middle].rpartition("[")[2].strip()
        begin = end + 1
