"""Reads a row's sources, each a name and a text, in the forms that retrievers and datasets use.

A list of texts or objects, an object with a text for each name, columns of lists, or titles with sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Keys of an object's text. With the usual ones its name is under a key in `_NAME_KEYS`, else in more places.
_USUAL_KEYS = ("text", "content", "page_content")
_MORE_KEYS = (
    "chunk",
    "chunk_text",
    "body",
    "passage",
    "passage_text",
    "snippet",
    "paragraph",
    "segment",
    "sentences",
    "contexts",
    "data",
)
_WRAPPINGS = (
    "node",
    "chunk",
    "document",
    "doc",
    "passage",
    "kwargs",
    "payload",
    "source",
    "metadata",
)
_NAME_KEYS = ("title", "name", "id")
_MORE_NAME_KEYS = (
    *_NAME_KEYS,
    "filename",
    "file_name",
    "source",
    "url",
    "id_",
    "_id",
    "doc_id",
    "docid",
)
_TEXT_LIST_KEYS = (
    "sentences",
    "passage_text",
    "contexts",
    "passages",
    "texts",
    "chunks",
    "paragraphs",
)
_TITLE_KEYS = ("title", "titles")
_PAIR_LENGTH = 2


class Passage(NamedTuple):
    """A source: its name, "" if it has none, and its text, or whatever is in the text's place."""

    name: str
    content: Any


def read_passages(value: object) -> list[Passage]:
    """Read the sources in a cell: an object, a list of sources, or a single text."""
    if isinstance(value, dict):
        return _read_object(value)
    if isinstance(value, list):
        return [_read_item(item) for item in value]
    return [Passage("", value)]


def _read_object(value: Mapping[str, Any]) -> list[Passage]:
    """Read the sources in an object.

    It can have these forms:

    - a single source, such as {"title": …, "text": …}, possibly wrapped in another object;
    - texts by name, such as {"a.md": "text", "b.md": "text"};
    - columns, such as {"titles": […], "sentences": […]};
    - a single list of sources, such as {"documents": […]}.
    """
    has_usual_key = not value.keys().isdisjoint(_USUAL_KEYS)
    if has_usual_key:
        return [_read_item(value)]
    is_flat = not any(isinstance(inner, list | dict) for inner in value.values())
    if is_flat:
        return [Passage(name, text) for name, text in value.items()]

    columns = _read_columns(value)
    if columns is not None:
        return columns
    is_wrapped = any(isinstance(value.get(key), dict) for key in _WRAPPINGS)
    if is_wrapped:
        return [_read_item(value)]
    if len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, list):
            return read_passages(inner)

    passages = []
    for name, inner in value.items():
        passages.append(Passage(name, _read_item(inner).content))
    return passages


def _read_columns(value: Mapping[str, Any]) -> list[Passage] | None:
    """Read sources in columns, which are lists, such as HotpotQA's titles and sentences.

    Returns None if there are no such lists.
    """
    texts = _find_list(value, _TEXT_LIST_KEYS)
    # A single list has whole sources, which `_read_object` reads.
    if texts is None or len(value) == 1:
        return None
    titles = _find_list(value, _TITLE_KEYS)
    if titles is None or len(titles) != len(texts):  # then the titles don't belong to the texts
        titles = [""] * len(texts)
    passages = []
    for title, text in zip(titles, texts, strict=True):
        passages.append(Passage(str(title), _read_parts(text)))
    return passages


def _find_list(value: Mapping[str, Any], keys: Sequence[str]) -> list[Any] | None:
    """Return the first list under one of these keys, or None if there's none."""
    for key in keys:
        if isinstance(value.get(key), list):
            first_list: list[Any] = value[key]
            return first_list
    return None


def _read_item(item: object) -> Passage:
    """Read one source, which can have many forms. If the form is unknown, the item itself is the content."""
    if isinstance(item, list):
        return _read_pair(item)
    if not isinstance(item, dict):
        return Passage("", item)

    for key in _USUAL_KEYS:
        if key in item:
            return _read_text(item, item[key])
    # Some of these keys can also hold an object that wraps the source, so check the type.
    for key in _MORE_KEYS:
        if isinstance(item.get(key), str | list):
            return Passage(_find_name(item, _MORE_NAME_KEYS), _read_parts(item[key]))

    for key in _WRAPPINGS:
        wrapped = item.get(key)
        if not isinstance(wrapped, dict):
            continue
        passage = _read_item(wrapped)
        # An object of an unknown form is returned as its own content.
        is_recognised = passage.content is not wrapped
        if is_recognised:
            outer_name = _find_name(item, _MORE_NAME_KEYS)
            wrapped_name = _find_name(wrapped, _MORE_NAME_KEYS)
            return Passage(outer_name or wrapped_name or passage.name, passage.content)
    return Passage(_find_name(item, _NAME_KEYS), item)


def _read_text(item: Mapping[str, Any], text: object) -> Passage:
    """Read a source from an item and its text, which can be a string, a list of blocks, or an object."""
    if isinstance(text, list):
        return Passage(_find_name(item, _MORE_NAME_KEYS), _read_parts(text))
    if isinstance(text, dict):
        inner = _read_item(text)
        return Passage(_find_name(item, _MORE_NAME_KEYS) or inner.name, inner.content)
    return Passage(_find_name(item, _NAME_KEYS), text)


def _read_pair(items: Sequence[Any]) -> Passage:
    """Read a pair as a source: [title, sentences] or [source, score]. Any other list becomes the content."""
    if len(items) != _PAIR_LENGTH:
        return Passage("", items)
    first, second = items
    if isinstance(second, int | float) and isinstance(first, str | dict):  # a score
        return _read_item(first)
    if isinstance(first, str) and isinstance(second, str | list):  # sentences
        return Passage(first, _read_parts(second))
    return Passage("", items)


def _read_parts(parts: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Join a list of sentences, or of content blocks with a "text". Returns any other value unchanged."""
    if not isinstance(parts, list):
        return parts
    sentences = []
    for sentence_or_block in parts:
        text = sentence_or_block
        if isinstance(sentence_or_block, dict):
            text = sentence_or_block.get("text")
        if not isinstance(text, str):
            return parts
        sentences.append(text)
    return _join(sentences) if sentences else parts


def _join(sentences: Sequence[str]) -> str:
    """Join sentences, with a space between two of them if neither has one."""
    text = ""
    for sentence in sentences:
        if text and sentence:
            has_space = text[-1].isspace() or sentence[0].isspace()
            if not has_space:
                text += " "
        text += sentence
    return text


def _find_name(item: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Find a source's name under the first of these keys with a value. Returns "" if there's none.

    With `_MORE_NAME_KEYS`, the name can also be in the source's metadata.
    """
    for key in keys:
        value = item.get(key)
        if value not in (None, "") and not isinstance(value, list | dict):
            return str(value)

    metadata = item.get("metadata")
    if keys is _MORE_NAME_KEYS and isinstance(metadata, dict):
        return _find_name(metadata, _NAME_KEYS)
    return ""
