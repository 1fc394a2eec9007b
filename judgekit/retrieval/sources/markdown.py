"""Reads a folder of Markdown: title and tags from the front matter, else the first heading."""

from __future__ import annotations

from judgekit.retrieval.sources import base
from judgekit.retrieval.sources.base import Entry, Unreadable, read_bytes, read_text, stem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.retrieval.compiled import Profile

CATEGORY = "document"


def read_hints(root: str, files: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """Return nothing: no file says anything about another one."""
    del root, files
    return {}, []


def read(root: str, relative: str, profile: Profile, hint: str | None) -> Entry | None:
    """Return the document in a file; of a long one the beginning is searched.

    A file that cannot be read is found by its name. None when it is marked as no longer valid.
    """
    del hint
    try:
        text, _ = read_text(root, relative, profile.max_bytes)
    except Unreadable as error:
        if seems_retired(root, relative, profile.max_bytes):
            return None
        return Entry(relative, stem(relative), CATEGORY, problem=f"{error}; found by name only")
    fields, body = base.split(text)
    if is_retired(fields):
        return None
    title = " ".join(fields.get("title", [])) or base.heading(body) or stem(relative)
    return Entry(relative, title, CATEGORY, tags=tags_of(fields), body=body)


def tags_of(fields: Mapping[str, list[str]]) -> list[str]:
    """Return the tags of a front matter, written as a list or separated by commas."""
    listed = [*fields.get("tags", []), *fields.get("keywords", [])]
    return [tag.strip() for each in listed for tag in each.split(",") if tag.strip()]


def seems_retired(root: str, relative: str, limit: int) -> bool:
    """Whether the front matter of a file that is no text takes it out of use, as far as it can be read."""
    try:
        raw, _ = read_bytes(root, relative, limit)
    except Unreadable:
        return False
    return is_retired(base.split(raw.replace(b"\0", b"").decode("utf-8", "ignore"))[0])


def is_retired(fields: Mapping[str, list[str]]) -> bool:
    """Whether a front matter takes its file out of use."""
    status = [*fields.get("record_status", []), *fields.get("status", [])]
    return any(each.lower() in ("retired", "archived") for each in status)
