"""File patterns that mean what they mean in `.gitignore`; of several that match the last one decides.

A project's patterns come with a clone, so none may cost more than its length times the path's: each wildcard
but the last takes the least that will do, once and for all, which finds the same matches. Standard library
only: the prompt hook reads patterns too.
"""

from __future__ import annotations

import re
from itertools import groupby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST = 4096  # characters of a pattern: no path has more
_ANY = "**"
_FOLDERS = r"(?:[^/]++/)*"
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "space": r"\s",
}


class Patterns:
    """Patterns for paths relative to one folder, with `/` between their parts.

    `**/*.md` matches at any depth, `docs/` everything below it, and `!CHANGELOG.md` takes back what an
    earlier one matched. Raises `ValueError` for one that can match nothing.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [found for pattern in patterns if (found := parse(pattern)) is not None]
        self._patterns.reverse()

    def match(self, path: str) -> bool:
        """Whether `path` is meant; a pattern for a folder above it yields to one for the file."""
        path = path.removeprefix("./")
        by_folder: bool | None = None
        for pattern in self._patterns:
            found = pattern.path.match(path)
            if found and found.lastgroup is None:
                return not pattern.takes_back
            if found and by_folder is None:
                by_folder = not pattern.takes_back
        return bool(by_folder)


class Pattern:
    """One pattern: `entry` matches the whole path of what it means, `path` that of a file there or below."""

    __slots__ = ("_path", "entry", "folders_only", "parts", "takes_back")

    def __init__(self, parts: Sequence[str], *, folders_only: bool, takes_back: bool) -> None:
        self.parts, self.folders_only, self.takes_back = parts, folders_only, takes_back
        below = "/.+" if parts[-1] == _ANY else ""
        self.entry = re.compile(_expression(parts, below) or ".+", re.DOTALL)
        self._path: re.Pattern[str] | None = None

    @property
    def path(self) -> re.Pattern[str]:
        """What matches a file's path; the group `below` is found where a folder above it is meant."""
        if self._path is None:
            mark = "(?P<below>/)"
            whole = self.parts[-1] == _ANY
            end = mark if self.folders_only else "/" if whole else rf"(?:{mark}|\Z)"
            anything = f"[^/]*+{mark}" if self.folders_only else "."
            self._path = re.compile(_expression(self.parts, end) or anything, re.DOTALL)
        return self._path


def parse(line: str) -> Pattern | None:
    """Return the pattern in a line, None for a comment or an empty one.

    Raises `ValueError` for one that can match nothing, or is longer than `LONGEST`.
    """
    text = _without_trailing_blanks(line)
    if not text.strip() or text.startswith("#"):
        return None
    if len(text) > LONGEST:
        raise ValueError(f"{text[:40]!r}…: a pattern of more than {LONGEST:,} characters")
    named = text.removeprefix("!").removesuffix("/")
    parts = _parts(named.removeprefix("/"), text)
    if "/" not in named:
        parts.insert(0, _ANY)
    return Pattern(parts, folders_only=text.endswith("/"), takes_back=text.startswith("!"))


def _without_trailing_blanks(line: str) -> str:
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return f"{text} " if backslashes % 2 and text != line else text


def _expression(parts: Sequence[str], end: str) -> str:
    """Return the expression for parts in runs, with any number of folders between them; "" without a run."""
    runs = ["/".join(run) for is_any, run in groupby(parts, _ANY.__eq__) if not is_any]
    before = _FOLDERS if parts[0] == _ANY else ""
    middle = []
    for run in runs[:-1]:
        middle.append(f"(?>{before and before + '?'}{run}/)")
        before = _FOLDERS
    return f"{''.join(middle)}{before}{runs[-1]}{end}" if runs else ""


def _parts(text: str, pattern: str) -> list[str]:
    """Return the expression for each part of a pattern, `**` for any number of them."""
    parts, start, place = [], 0, 0
    pieces = [""]
    while place <= len(text):
        char = text[place : place + 1]
        slash = text.startswith(("/", "\\/"), place)
        if slash or not char:
            if place == start:
                raise ValueError(f"{pattern!r} matches nothing: it has an empty part")
            parts.append(_ANY if text[start:place] == _ANY else _part(pieces))
            place += 1 + (char == "\\")
            start, pieces = place, [""]
        elif char == "*":
            while text.startswith("*", place):
                place += 1
            pieces.append("")
        elif char == "[":
            found, place = _set(text, place + 1)
            if not found:
                raise ValueError(f"{pattern!r} matches nothing: a set that is empty or has no end")
            pieces[-1] += found
        else:
            place += char == "\\"  # what follows means itself
            if place == len(text):
                raise ValueError(f"{pattern!r} matches nothing: it ends with a backslash")
            pieces[-1] += "[^/]" if char == "?" else re.escape(text[place])
            place += 1
    return parts


def _part(pieces: Sequence[str]) -> str:
    """Return the expression for one part of a path; between its pieces any characters stand."""
    if not any(pieces):
        return "[^/]++"
    head, *rest = pieces
    taken = "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1])
    last = f"[^/]*{rest[-1]}" if rest else ""
    return f"(?>{head}{taken}{last}(?![^/]))"


def _set(text: str, place: int) -> tuple[str, int]:
    """Return the expression for a set of characters that opens before `place`, "" for none, and its end."""
    negated = text.startswith(("!", "^"), place)
    place += negated
    found, first = "", place
    while place < len(text) and (place == first or text[place] != "]"):
        end = text.find(":]", place) if text.startswith("[:", place) else -1
        if end >= 0:
            found += _CLASSES.get(text[place + 2 : end], "")
            place = end + 2
            continue
        low, place = _member(text, place)
        if text[place : place + 1] == "-" and text[place + 1 : place + 2] not in ("", "]"):
            high, place = _member(text, place + 1)
            found += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        else:
            found += re.escape(low)
    if place >= len(text):
        return "", place
    if not found:
        return "[^/]" if negated else "", place + 1
    return f"(?!/)[{'^' if negated else ''}{found}]", place + 1


def _member(text: str, place: int) -> tuple[str, int]:
    if text[place] == "\\" and place + 1 < len(text):
        place += 1
    return text[place], place + 1
