"""Reads a folder of Markdown or plain text: title and tags from the front matter, else the first heading."""

from __future__ import annotations

import time

from judgekit.retrieval import sections
from judgekit.retrieval.sources import (
    Entry,
    Listed,
    Unreadable,
    force,
    get_base_name,
    read_bytes,
    read_text,
    read_time,
    split_file_name,
)
from judgekit.retrieval.sources.front_matter import read_front_matter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.sources.front_matter import FrontMatter

NAME = "markdown"
ENDINGS = (".md", ".markdown", ".mdx", ".rst", ".txt")
IN_ROOT = True
BELOW = True
DEEP = True
LINKED_FOLDERS = False
LISTS: tuple[str, ...] = ()
CATEGORY = "document"
_MAX_ALIASES = 20
# The first of these keys in a header tells when the note was last changed. In a clone, a file's own time is
# that of the checkout.
_TIME_KEYS = ("updated", "updated_at", "modified", "last_modified", "lastmod", "date")
_MAX_ALIAS_CHARS = 200  # characters
_MAX_DESCRIPTION_CHARS = 400  # characters of a description that count as a title


def is_store(*_: object) -> bool:
    return True  # any folder can be such a store


def read_listing(*_: object) -> Listed:
    return Listed()  # every folder is looked into


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Read the document in a file; None if it's retired.

    If the file can't be read, the entry has a `problem`, and the file's name as its title.
    """
    try:
        file = read_text(root, relative, profile.max_bytes)
    except Unreadable as error:
        if seems_retired(root, relative, profile.max_bytes):
            return None
        name = get_base_name(relative)
        return Entry(relative, name, CATEGORY, problem=f"{error}; found by name only")

    header = read_front_matter(file.text)
    if is_retired(header.fields):
        return None
    entry = _make_entry(relative, header)
    entry.note = join_notes(file.note, header.problem)
    entry.end_chars = file.end_chars
    entry.lines_left_out = file.lines_left_out
    return entry


def _make_entry(relative: str, header: FrontMatter) -> Entry:
    """Make a document's entry from its front matter and body."""
    fields = header.fields
    file_body = header.body
    given_title = join_to_line(fields.get("title", []))
    title = given_title or find_title(file_body) or get_base_name(relative)
    entry = Entry(
        relative,
        title,
        CATEGORY,
        tags=read_tags(fields),
        body=add_descriptions(fields, file_body),
        updated=read_update_time(fields),
    )
    entry.aliases = [*read_aliases(fields), *list_description_titles(fields)]
    entry.name_words = split_file_name(relative, entry.title)
    entry.status = force.find_status(fields, file_body)

    # The descriptions are above the body only in the entry. Subtract their lines, so that line numbers
    # are those of the file.
    added_lines = count_added_lines(file_body, entry.body)
    entry.lines_above = header.lines_above - added_lines
    return entry


def join_to_line(values: list[str]) -> str:
    return " ".join(" ".join(values).split())


def add_descriptions(fields: Mapping[str, list[str]], body: str) -> str:
    """Put the header's description and summary above the body, so that they're searched as well."""
    descriptions = [*fields.get("description", []), *fields.get("summary", [])]
    return "\n".join([*descriptions, body])


def list_description_titles(fields: Mapping[str, list[str]]) -> list[str]:
    """Return the start of the header's description and summary, which serve as further titles."""
    descriptions = [*fields.get("description", []), *fields.get("summary", [])]
    return [text[:_MAX_DESCRIPTION_CHARS] for text in descriptions]


def count_added_lines(body: str, described_body: str) -> int:
    """Count the lines that `add_descriptions` put above a body."""
    added_chars = len(described_body) - len(body)
    return described_body.count("\n", 0, added_chars)


def join_notes(*notes: str | None) -> str | None:
    """Join notes on parts that aren't searched; None if there aren't any."""
    given_notes = [note for note in notes if note]
    return "; ".join(given_notes) if given_notes else None


def read_aliases(fields: Mapping[str, list[str]]) -> list[str]:
    """Return the alternative titles that Obsidian keeps in front matter."""
    aliases = [*fields.get("aliases", []), *fields.get("alias", [])]
    return [alias[:_MAX_ALIAS_CHARS] for alias in aliases[:_MAX_ALIASES]]


def read_update_time(fields: Mapping[str, list[str]]) -> float:
    """Return the time of the last change given in a header, in seconds since the epoch.

    Returns 0 if the header gives no time, or a time in the future.
    """
    for key in _TIME_KEYS:
        seconds = read_time(" ".join(fields.get(key, [])))
        if not seconds:
            continue
        is_in_future = seconds > time.time()
        return 0.0 if is_in_future else seconds
    return 0.0


def read_tags(fields: Mapping[str, list[str]]) -> list[str]:
    """Return the tags and keywords in front matter. Each value can be a comma-separated list."""
    joined = ",".join([*fields.get("tags", []), *fields.get("keywords", [])])
    tags = [tag.strip() for tag in joined.split(",")]
    return [tag for tag in tags if tag]


def seems_retired(root: str, relative: str, limit: int) -> bool:
    """Whether an undecodable file has front matter that marks it as retired."""
    try:
        raw, _ = read_bytes(root, relative, limit)
    except Unreadable:
        return False
    # Without its zero bytes, UTF-16 is readable enough.
    header = read_front_matter(raw.replace(b"\0", b"").decode("utf-8", "ignore"))
    return is_retired(header.fields)


def is_retired(fields: Mapping[str, list[str]]) -> bool:
    """Whether front matter marks its document as retired, by a status or a flag such as `archived: true`."""
    statuses = [*fields.get("record_status", []), *fields.get("status", [])]
    if any(status.lower() in ("retired", "archived") for status in statuses):
        return True
    flags = [fields.get(key, []) for key in ("retired", "archived")]
    return any(force.means_yes(flag) for flag in flags)


def find_title(text: str) -> str | None:
    """Return the first heading that can be a title: `# Retries`, or a line underlined with `=`.

    Returns None without such a heading.
    """
    for section_heading in sections.find_headings(text):
        if section_heading.is_title:
            return section_heading.text
    return None
