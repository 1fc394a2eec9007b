"""Reads Claude Code's own memory: topic files with front matter, and MEMORY.md, which lists them."""

from __future__ import annotations

import os

from judgekit.retrieval.sources import (
    Entry,
    Listed,
    Unreadable,
    force,
    get_base_name,
    markdown,
    read_text,
    resolve_inside,
    split_file_name,
)
from judgekit.retrieval.sources.front_matter import read_front_matter
from judgekit.text import split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.sources import FileText

NAME = "claude-auto-memory"
ENDINGS = markdown.ENDINGS
IN_ROOT = True
BELOW = True
DEEP = True
LINKED_FOLDERS = True
INDEX = "MEMORY.md"
LISTS = (INDEX,)
OWN_CATEGORY = "memory"
_MAX_LINKS = 2_000  # of a list that are followed


def is_store(root: str, _profile: Profile) -> bool:
    return os.path.isfile(os.path.join(root, INDEX))


def read_listing(_root: str, _profile: Profile) -> Listed:
    return Listed()  # every folder is looked into


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Read the memory in a topic file, or the text of MEMORY.md without its links to topics.

    Returns None for a retired topic, and for a MEMORY.md without such text.
    """
    try:
        file = read_text(root, relative, profile.max_bytes)
    except Unreadable as error:
        # The beginning of a damaged file may still say that it's retired.
        if markdown.seems_retired(root, relative, profile.max_bytes):
            return None
        name = get_base_name(relative)
        return Entry(name, name, OWN_CATEGORY, problem=f"{error}; found by name only")

    _, _, file_name = relative.rpartition("/")
    if file_name == INDEX:
        return _read_list_text(root, relative, file.text, file.note)
    return _make_topic_entry(relative, file, profile)


def _make_topic_entry(relative: str, file: FileText, profile: Profile) -> Entry | None:
    """Make the entry of a topic from its file's text; None for a retired topic."""
    header = read_front_matter(file.text)
    fields = header.fields
    body = header.body
    if markdown.is_retired(fields):
        return None

    entry_id = get_base_name(relative)
    entry = Entry(
        entry_id,
        _find_title(fields, body) or entry_id,
        _find_category(fields, profile),
        tags=markdown.read_tags(fields),
        body=markdown.add_descriptions(fields, body),
        updated=markdown.read_update_time(fields),
    )

    entry.aliases = [*markdown.read_aliases(fields), *markdown.list_description_titles(fields)]
    entry.name_words = split_file_name(relative, entry.title)
    entry.status = force.find_status(fields, body)
    entry.note = markdown.join_notes(file.note, header.problem)
    # Descriptions were added at the top of the entry's body. Their lines aren't in the file's body.
    added_lines = markdown.count_added_lines(body, entry.body)
    entry.lines_above = header.lines_above - added_lines
    entry.end_chars = file.end_chars
    entry.lines_left_out = file.lines_left_out
    return entry


def _find_title(fields: Mapping[str, list[str]], body: str) -> str | None:
    """Find a topic's title in its header or its first heading; None if neither has one."""
    titles = fields.get("title", []) or fields.get("name", [])
    return markdown.join_to_line(titles) or markdown.find_title(body)


def _find_category(fields: Mapping[str, list[str]], profile: Profile) -> str:
    """Find a topic's category in its header; `memory` for one that the profile doesn't know."""
    # The client may put the type into a nested mapping, `metadata`.
    types = fields.get("type", []) or fields.get("metadata.type", [])
    category = " ".join(types).lower()
    return category if category in profile.categories else OWN_CATEGORY


def _read_list_text(root: str, relative: str, text: str, note: str | None) -> Entry | None:
    """Read a topic list's text as an entry; None if it contains only links and headings.

    Lines that link to existing topics are skipped, because topics have their own entries.
    """
    folder, _, _ = relative.rpartition("/")
    kept_lines: list[str] = []
    link_count = 0
    for line in split_lines(text):
        link_count += line.count("](")
        # Each link is looked up on disk, so lines after too many links are kept unchecked.
        if link_count > _MAX_LINKS or not _leads_to_topic(root, folder, line):
            kept_lines.append(line)
    has_text = any(line.strip() and not line.startswith("#") for line in kept_lines)
    if not has_text:
        return None

    # Every folder can have a MEMORY.md, so the id includes the folder.
    base_name = get_base_name(relative)
    entry_id = f"{folder}/{base_name}" if folder else base_name
    entry = Entry(entry_id, relative, OWN_CATEGORY, body="\n".join(kept_lines).strip())
    entry.note = note
    return entry


def _leads_to_topic(root: str, folder: str, line: str) -> bool:
    """Whether a line has a Markdown link to an existing topic in this store."""
    for target in _list_link_targets(line):
        is_to_topic = target.lower().endswith(markdown.ENDINGS)
        if not is_to_topic:
            continue
        path = resolve_inside(root, os.path.join(folder, target))
        if path is not None and os.path.isfile(path):
            return True

    return False


def _list_link_targets(line: str) -> list[str]:
    """List the targets of a line's links, without anchors: `retry.md` for `[Retries](<retry.md#max>)`."""
    targets = []
    _, *texts_after = line.split("](")
    for text_after in texts_after:
        address, bracket, _ = text_after.partition(")")
        if not bracket:
            continue
        target, _, _ = address.partition("#")
        bare_target = target.strip().strip("<>")
        targets.append(bare_target.replace("%20", " "))
    return targets
