"""Untrusted text made safe to show and to put into a prompt."""

from __future__ import annotations

_INVISIBLE = ("Cc", "Cf", "Cs", "Co")


def visible(text: str) -> str:
    """Return `text` without control, format (zero-width, bidirectional), surrogate and private characters.

    Line breaks and tabs stay; other line separators become line breaks.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    if text.isascii() and text.isprintable():
        return text
    import unicodedata  # noqa: PLC0415 - the hook shows plain text most of the time

    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in _INVISIBLE)


def escaped(text: str) -> str:
    """Return a name as one line that a terminal shows and does not obey: what is not visible is escaped."""
    if text.isascii() and text.isprintable():
        return text
    import unicodedata  # noqa: PLC0415 - names are plain most of the time

    return "".join(
        char.encode("unicode_escape").decode()
        if unicodedata.category(char) in (*_INVISIBLE, "Zl", "Zp")
        else char
        for char in text
    )


def encodable(text: str) -> str:
    """Return `text` with lone surrogates replaced: they can be neither printed nor written as JSON."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def one_line(text: str, limit: int) -> str:
    """Return visible text on one line, cut after `limit` characters with an ellipsis."""
    line = " ".join(visible(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
