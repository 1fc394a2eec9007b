"""Reads Claude Code's own memory: topic files with front matter, and MEMORY.md, which lists them."""

from __future__ import annotations

import os

from judgekit import environment
from judgekit.retrieval.sources import Entry, Unreadable, markdown, read_text, stem
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.compiled import Profile

NAME = "claude-auto-memory"
ENDINGS = markdown.ENDINGS
IN_ROOT, BELOW, DEEP, LINKED_FOLDERS = True, False, False, True
INDEX = "MEMORY.md"
OWN_CATEGORY = "memory"


def is_at(root: str, _profile: Profile) -> bool:
    return os.path.isfile(os.path.join(root, INDEX))


def folder(project: str) -> str:
    """Return where Claude Code keeps its memory of `project`, an absolute path."""
    home = environment.environ().get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    name = "".join(char if char.isascii() and char.isalnum() else "-" for char in project)
    return os.path.join(home, "projects", name, "memory")


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Return the memory in a topic file, or what MEMORY.md says beyond its list of topics."""
    name = stem(relative)
    try:
        text = read_text(root, relative, profile.max_bytes)
    except Unreadable as error:
        entry = Entry(name, name, OWN_CATEGORY, problem=f"{error}; found by name only")
        return None if markdown.seems_retired(root, relative, profile.max_bytes) else entry
    if relative == INDEX:
        return _own_text(text)
    fields, body = markdown.split(text)
    if markdown.is_retired(fields):
        return None
    title = " ".join(fields.get("title", []) or fields.get("name", []))
    kind = " ".join(fields.get("type", [])).lower()
    return Entry(
        name,
        title or markdown.heading(body) or name,
        kind if kind in profile.categories else OWN_CATEGORY,
        tags=markdown.tags_of(fields),
        body="\n".join([*fields.get("description", []), body]),
    )


def _own_text(text: str) -> Entry | None:
    """Return what stands in MEMORY.md itself; lines that only lead to a topic are left to the topic."""
    kept = []
    for line in lines_of(text):
        _, *ends = line.split("](")
        if not any(")" in end and end.partition(")")[0].endswith(".md") for end in ends):
            kept.append(line)
    if not any(line.strip() and not line.startswith("#") for line in kept):
        return None
    return Entry("MEMORY", INDEX, OWN_CATEGORY, body="\n".join(kept).strip())
