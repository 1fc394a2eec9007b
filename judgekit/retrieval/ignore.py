"""Reads `.judgekitignore`: patterns at the root of a store, as git reads those of a .gitignore.

Of two patterns that match, the later one counts, and `!` takes a name back in; what stands in a folder that
is left out cannot come back.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LIMIT = 1_000_000  # characters
_MAX_PATTERNS = 1_000
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "space": r"\s",
}


class Rules:
    """The patterns of one store, in their order."""

    def __init__(self, lines: Iterable[str]) -> None:
        parsed = [_parse(line) for line in lines]
        self.patterns = [each for each in parsed if each is not None][:_MAX_PATTERNS]

    def match(self, path: str, *, folder: bool) -> bool:
        """Whether a path relative to the root is left out; those above it are taken to be in."""
        for pattern, leaves_out, folders_only in reversed(self.patterns):
            if (folder or not folders_only) and pattern.fullmatch(path):
                return leaves_out
        return False


def read(path: str) -> Rules:
    """Return the rules in a file; none where it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            return Rules(file.read(_LIMIT).split("\n"))
    except OSError:
        return Rules(())


def _parse(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    text = _without_trailing_blanks(line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    leaves_out = not text.startswith("!")
    text = text if leaves_out else text[1:]
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    anchored = "/" in text
    expression = _expression(text.removeprefix("/"))
    if not text or expression is None:
        return None
    return (
        re.compile(expression if anchored else f"(?:.*/)?{expression}", re.DOTALL),
        leaves_out,
        folders_only,
    )


def _without_trailing_blanks(line: str) -> str:
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return f"{text} " if backslashes % 2 and text != line else text


def _expression(text: str) -> str | None:
    """Return the regular expression for a pattern, None when it can match nothing."""
    if text == "**":
        return ".*"
    parts, place = [], 0
    while place < len(text):
        piece, place = _piece(text, place)
        if piece is None:
            return None
        parts.append(piece)
    return "".join(parts)


def _piece(text: str, place: int) -> tuple[str | None, int]:
    """Return the expression for what stands at `place`, and where the next piece begins."""
    rest = text[place:]
    begins = place == 0 or text[place - 1] == "/"
    if begins and rest.startswith("**/"):
        return "(?:.*/)?", place + 3
    if begins and rest == "**" and place:
        return ".*", place + 2
    if rest[0] == "*":
        return "[^/]*", place + len(rest) - len(rest.lstrip("*"))
    if rest[0] == "[":
        return _set(text, place)
    return _character(rest), place + (2 if rest[0] == "\\" else 1)


def _character(rest: str) -> str | None:
    if rest[0] == "?":
        return "[^/]"
    if rest[0] == "\\":  # what follows means itself; nothing follows a lonely one
        return re.escape(rest[1]) if len(rest) > 1 else None
    return re.escape(rest[0])


def _set(text: str, place: int) -> tuple[str | None, int]:
    """Return the expression for a set of characters that opens at `place`."""
    place += 1
    negated = text[place : place + 1] in ("!", "^") and place < len(text)
    place += negated
    found: list[str] = []
    first = True
    while place < len(text) and (first or text[place] != "]"):
        first = False
        if text.startswith("[:", place) and ":]" in text[place:]:
            end = text.index(":]", place)
            found.append(_CLASSES.get(text[place + 2 : end], ""))
            place = end + 2
            continue
        low, place = _member(text, place)
        if text[place : place + 1] == "-" and text[place + 1 : place + 2] not in ("", "]"):
            high, place = _member(text, place + 1)
            found.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
        else:
            found.append(re.escape(low))
    if place >= len(text):
        return None, place
    inside = "".join(found)
    if not inside:
        return ("[^/]" if negated else r"(?!)"), place + 1
    return f"(?!/)[{'^' if negated else ''}{inside}]", place + 1


def _member(text: str, place: int) -> tuple[str, int]:
    if text[place] == "\\" and place + 1 < len(text):
        place += 1
    return text[place], place + 1
