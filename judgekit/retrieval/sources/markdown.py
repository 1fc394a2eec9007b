"""Reads a folder of Markdown or plain text: title and tags from the front matter, else the first heading."""

from __future__ import annotations

from judgekit.retrieval.sources import Entry, Listed, Unreadable, force, read_bytes, read_text, stem
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.retrieval.compiled import Profile

NAME = "markdown"
ENDINGS = (".md", ".markdown", ".mdx", ".rst", ".txt")
IN_ROOT = True
BELOW = True
DEEP = True
LINKED_FOLDERS = False
LISTS: tuple[str, ...] = ()
CATEGORY = "document"
_FENCE = "---"
_HEADER_ENDS = (_FENCE, "...")
_MOST_ALIASES = 20
_MOST_ALIAS = 200  # characters
_MAX_LINES = 200  # of a front matter
_MOST_HEADER = 20_000  # characters of it


def is_at(*_: object) -> bool:
    return True  # any folder can be such a store


def listed(*_: object) -> Listed:
    return Listed()  # every folder is looked into


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Return the document in a file, found by its name if it cannot be read; None when it is out of use."""
    try:
        text, note = read_text(root, relative, profile.max_bytes)
    except Unreadable as error:
        if seems_retired(root, relative, profile.max_bytes):
            return None
        return Entry(relative, stem(relative), CATEGORY, problem=f"{error}; found by name only")
    fields, body = split(text)
    if is_retired(fields):
        return None
    title = " ".join(fields.get("title", [])) or heading(body) or stem(relative)
    entry = Entry(relative, title, CATEGORY, tags=tags_of(fields), body=body)
    entry.aliases = aliases_of(fields)
    entry.status = force.status_of(fields, body)
    entry.note = note
    return entry


def aliases_of(fields: Mapping[str, list[str]]) -> list[str]:
    """Return the other titles that Obsidian keeps in a note's front matter."""
    aliases = [*fields.get("aliases", []), *fields.get("alias", [])]
    return [alias[:_MOST_ALIAS] for alias in aliases[:_MOST_ALIASES]]


def tags_of(fields: Mapping[str, list[str]]) -> list[str]:
    """Return the tags and keywords in a front matter, each of which may be several with commas."""
    joined = ",".join([*fields.get("tags", []), *fields.get("keywords", [])])
    return [tag.strip() for tag in joined.split(",") if tag.strip()]


def seems_retired(root: str, relative: str, limit: int) -> bool:
    """Whether the front matter of a file that is no text takes it out of use, as far as it can be read."""
    try:
        raw, _ = read_bytes(root, relative, limit)
    except Unreadable:
        return False
    fields, _ = split(raw.replace(b"\0", b"").decode("utf-8", "ignore"))
    return is_retired(fields)


def is_retired(fields: Mapping[str, list[str]]) -> bool:
    status = [*fields.get("record_status", []), *fields.get("status", [])]
    return any(value.lower() in ("retired", "archived") for value in status)


def split(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the values of a text's YAML header by key in small letters, and the text after it.

    Only `key: value` lines and lists are read; keys of nested mappings count as if they stood at the top.
    A second header below the first one, as tools that add one of their own leave it, counts more than that.
    """
    fields, body = _split_header(text)
    if not fields:
        return fields, body
    rest = body.lstrip("\r\n \t")
    if not _begins_with_header(rest[:_MOST_HEADER]):
        return fields, body
    second_fields, body = _split_header(rest)
    return {**fields, **second_fields}, body


def _begins_with_header(text: str) -> bool:
    """Whether only keys, values, lists and comments stand between the first line, a fence, and the next one.

    A rule above a section of the text looks like a fence: without a key below it, it is one.
    """
    lines = lines_of(text)
    if not lines or lines[0].strip() != _FENCE:
        return False
    has_key = False
    for line in lines[1 : _MAX_LINES + 1]:
        part = line.strip()
        if part in _HEADER_ENDS:
            return has_key
        key, colon, value = part.partition(":")
        is_one_word = key != "" and " " not in key.strip()
        is_pair = is_one_word and colon != "" and value[:1] in ("", " ")
        is_item_or_comment = part.startswith(("- ", "#"))
        is_continuation = part == "" or line[:1] in (" ", "\t")
        if not is_pair and not is_item_or_comment and not is_continuation:
            return False
        has_key = has_key or is_pair
    return False


def _split_header(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the values of a header by key, and the text after it; no values where there is no header."""
    lines = lines_of(text)
    if not lines or lines[0].strip() != _FENCE:
        return {}, text
    fields: dict[str, list[str]] = {}
    key = ""
    for number, line in enumerate(lines[1 : _MAX_LINES + 1], start=1):
        part = line.strip()
        if part in _HEADER_ENDS:
            return fields, "\n".join(lines[number + 1 :])
        if part.startswith("- ") and key:
            fields[key].append(_unquote(part[2:]))
        elif ":" in part and not part.startswith("#"):
            name, _, value = part.partition(":")
            key = name.strip().lower()
            fields[key] = _values_in(value.strip())
    return {}, text


def _values_in(value: str) -> list[str]:
    """Return the items of a list on one line, or the value; none where they stand on the lines below."""
    if value in ("", "|", ">", "|-", ">-"):
        return []
    if value.startswith("[") and value.endswith("]"):
        items = [_unquote(item) for item in value[1:-1].split(",")]
        return [item for item in items if item]
    return [_unquote(value)]


def _unquote(value: str) -> str:
    value = value.strip()
    is_quoted = len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]
    return value[1:-1] if is_quoted else value


def heading(text: str) -> str | None:
    """Return the first heading of a text, or the first line that is underlined as a title is in reST."""
    is_fenced = False
    before = ""
    for line in lines_of(text):
        if line.lstrip().startswith(("```", "~~~")):
            is_fenced = not is_fenced
        elif not is_fenced:
            is_underline = line.startswith("==") and not line.strip("= \t")
            if is_underline and before.strip():
                return before.strip()
            is_heading = line.startswith("#") and line.lstrip("#")[:1] in (" ", "\t")
            title = _without_id(line.strip("# \t")) if is_heading else ""
            if title:
                return title
        before = line
    return None


def _without_id(title: str) -> str:
    """Return a heading without the id that stands in braces behind it: `Retries {#retries}`."""
    start = title.rfind("{")
    is_id = title.endswith("}") and title[start + 1 :].lstrip(":").lstrip()[:1] in ("#", ".")
    if start > 0 and is_id:
        return title[:start].rstrip("# \t")
    return title
