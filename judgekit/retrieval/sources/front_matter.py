"""The YAML header of a Markdown file, as far as titles and tags need it: `key: value` lines and lists.

A real YAML parser would cost more than all the rest of a hook's work, and refuse files that people have.
"""

from __future__ import annotations

from judgekit.text import lines_of

_FENCE = "---"
_MAX_LINES = 200


def split(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the header's values by key in small letters, and the text after it.

    Every value is a list; keys of nested mappings count as if they stood at the top.
    """
    found = lines_of(text)
    if not found or found[0].strip() != _FENCE:
        return {}, text
    for number, line in enumerate(found[1 : _MAX_LINES + 1], start=1):
        if line.strip() in (_FENCE, "..."):
            return _fields(found[1:number]), "\n".join(found[number + 1 :])
    return {}, text


def heading(text: str) -> str | None:
    """Return the text of the first heading outside fenced code, None when there is none."""
    fenced = False
    for line in lines_of(text):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and line.startswith("#") and line.lstrip("#")[:1] in (" ", "\t"):
            title = line.strip("# \t")
            if title:
                return title
    return None


def _fields(header: list[str]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    key = ""
    for line in header:
        text = line.strip()
        if text.startswith("- ") and key:
            fields[key].append(_scalar(text[2:]))
        elif ":" in text and not text.startswith("#"):
            key, _, value = text.partition(":")
            key = key.strip().lower()
            fields[key] = _values(value.strip())
    return fields


def _values(value: str) -> list[str]:
    if value.startswith("[") and value.endswith("]"):
        return [found for found in (_scalar(each) for each in value[1:-1].split(",")) if found]
    return [_scalar(value)] if value and value not in ("|", ">", "|-", ">-") else []


def _scalar(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]
    return value[1:-1] if quoted else value
