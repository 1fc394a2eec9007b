"""File patterns with the meaning they have in `.gitignore`; of several matches, the last one decides.

A project's patterns come with a clone, so none may cost more than its length times the path's: each wildcard
but the last takes the shortest match once and for all, which finds the same paths. Standard library only,
since the prompt hook reads patterns too.
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
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "lower": "a-z", "upper": "A-Z"}
_CLASSES["space"] = r"\s"
_TOKEN = re.compile(
    r"(?P<slash>\\?/)|(?P<stars>\*+)|(?P<any>\?)|\[(?P<not>[!^]?+)(?P<set>\]?+(?:\[:\w*:\]|\\.|[^\]\\])*+)\]"
    r"|\\?(?P<char>(?<=\\).|[^\[\\])",
    re.DOTALL,
)
_MEMBER = re.compile(r"\[:(\w*):\]|\\?(.)(?:-\\?(.))?", re.DOTALL)  # a class, a character, a range


class Patterns:
    """Patterns for paths relative to one folder, with `/` between their parts.

    `**/*.md` matches at any depth, `docs/` matches everything below it, and `!CHANGELOG.md` takes back a
    match of an earlier pattern. Raises `ValueError` for a pattern that can't match anything.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns: list[tuple[re.Pattern[str], bool]] = []
        for pattern in filter(None, map(parse, patterns)):
            # The group `below` only takes part if a pattern is for a folder above the file.
            mark = "(?P<below>/)"
            if pattern.folders_only:
                end = mark
            elif pattern.parts[-1] == _ANY:
                end = "/"
            else:
                end = rf"(?:{mark}|\Z)"
            anything = f"[^/]*+{mark}" if pattern.folders_only else "."
            path = re.compile(_expression(pattern.parts, end) or anything, re.DOTALL)
            self._patterns.insert(0, (path, not pattern.takes_back))

    def match(self, path: str) -> bool:
        """Whether the patterns include `path`; a pattern for a folder above it yields to one for the file."""
        path = path.removeprefix("./")
        by_folder: bool | None = None
        for pattern, is_meant in self._patterns:
            found = pattern.match(path)
            names_file = found is not None and found.lastgroup is None  # not a folder above it
            if names_file:
                return is_meant
            if found and by_folder is None:
                by_folder = is_meant
        return bool(by_folder)


class Pattern:
    """One pattern: `parts` are expressions, and `entry` matches a whole path."""

    __slots__ = ("entry", "folders_only", "parts", "takes_back")

    def __init__(self, parts: Sequence[str], *, folders_only: bool, takes_back: bool) -> None:
        self.parts = parts
        self.folders_only = folders_only
        self.takes_back = takes_back
        self.entry = re.compile(
            _expression(parts, "/.+" if parts[-1] == _ANY else "") or ".+", re.DOTALL
        )


def parse(line: str) -> Pattern | None:
    """Parse the pattern in a line, None if it has none; raises `ValueError` if it can't match anything."""
    text = line.rstrip(" ")
    if text != line and (len(text) - len(text.rstrip("\\"))) % 2:
        text += " "  # escaped, so it counts
    if not text.strip() or text.startswith("#"):
        return None
    if len(text) > LONGEST:
        raise ValueError(f"{text[:40]!r}…: a pattern of more than {LONGEST:,} characters")
    named = text.removeprefix("!").removesuffix("/")
    if (len(named) - len(named.rstrip("\\"))) % 2:
        raise ValueError(f"{text!r} matches nothing: it ends with a backslash")
    parts = _parts(named.removeprefix("/") + "/", text)
    if "/" not in named:
        parts.insert(0, _ANY)
    return Pattern(parts, folders_only=text.endswith("/"), takes_back=text.startswith("!"))


def _parts(text: str, pattern: str) -> list[str]:
    """Return an expression for each part of a text, ending with `/`; `**` matches any number of parts."""
    parts = []
    start = 0
    place = 0
    pieces = [""]  # of a part; any characters may come between them
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(f"{pattern!r} matches nothing: a set that has no end")
        kind = token.lastgroup or ""
        value = token[token.lastgroup or 0]
        if kind == "slash":
            if place == start:
                raise ValueError(f"{pattern!r} matches nothing: it has an empty part")
            head, *rest = pieces
            taken = "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1])
            last = f"[^/]*{rest[-1]}" if rest else ""
            if any(pieces):
                part = f"(?>{head}{taken}{last}(?![^/]))"
            else:
                part = "[^/]++"
            parts.append(_ANY if text[start:place] == _ANY else part)
            start = token.end()
            pieces = [""]
        elif kind == "stars":
            pieces.append("")
        elif kind == "set":
            members = ""
            for name, low, high in _MEMBER.findall(value):
                if not high:
                    members += re.escape(low) if low else _CLASSES.get(name, "")
                elif low <= high:
                    members += f"{re.escape(low)}-{re.escape(high)}"
            if not members and not token["not"]:
                raise ValueError(f"{pattern!r} matches nothing: a set that is empty")
            pieces[-1] += f"(?!/)[{'^' if token['not'] else ''}{members}]" if members else "[^/]"
        else:
            pieces[-1] += "[^/]" if kind == "any" else re.escape(value)
        place = token.end()
    return parts


def _expression(parts: Sequence[str], end: str) -> str:
    """Return the expression for parts in runs, with any number of folders between them; "" without a run."""
    runs = ["/".join(run) for is_any, run in groupby(parts, _ANY.__eq__) if not is_any]
    before = _FOLDERS if parts[0] == _ANY else ""
    middle = []
    for run in runs[:-1]:
        middle.append(f"(?>{before and before + '?'}{run}/)")
        before = _FOLDERS
    if runs:
        return f"{''.join(middle)}{before}{runs[-1]}{end}"
    return ""
