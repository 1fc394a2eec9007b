"""File patterns with the meaning they have in `.gitignore`; of several matches, the last one decides.

A project's patterns come with a clone, so none may cost more than its length times the path's: each wildcard
but the last takes the shortest match once and for all, which finds the same paths. Standard library only,
since the prompt hook reads patterns too.
"""

from __future__ import annotations

import re

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
            includes = not pattern.takes_back
            # In reverse order, because the last match decides.
            self._patterns.insert(0, (_compile_for_files(pattern), includes))

    def match(self, path: str) -> bool:
        """Whether the patterns include `path`.

        The last pattern that matches the file decides, or else the last that matches one of its folders.
        """
        path = path.removeprefix("./")
        folder_is_included: bool | None = None
        for pattern, includes in self._patterns:
            match = pattern.match(path)
            if match is None:
                continue
            matches_file = match.lastgroup is None  # the group `below` marks a folder's match
            if matches_file:
                return includes
            if folder_is_included is None:
                folder_is_included = includes
        return bool(folder_is_included)


class Pattern:
    """One pattern: `parts` are expressions, and `entry` matches a whole path."""

    __slots__ = ("entry", "folders_only", "parts", "takes_back")

    def __init__(self, parts: Sequence[str], *, folders_only: bool, takes_back: bool) -> None:
        self.parts = parts
        self.folders_only = folders_only
        self.takes_back = takes_back
        end = "/.+" if parts[-1] == _ANY else ""
        self.entry = re.compile(_join_parts(parts, end) or ".+", re.DOTALL)


def _compile_for_files(pattern: Pattern) -> re.Pattern[str]:
    """Compile a regex that matches a file's path, or its start if the pattern matches one of its folders."""
    below_folder = "(?P<below>/)"  # this group only matches after a folder
    if pattern.folders_only:
        end = below_folder
    elif pattern.parts[-1] == _ANY:
        end = "/"  # `docs/**` matches the files below the folder, not the folder itself
    else:
        end = rf"(?:{below_folder}|\Z)"
    expression = _join_parts(pattern.parts, end)
    if not expression:  # the pattern is `**` alone: any folder at the top, or any path
        expression = f"[^/]*+{below_folder}" if pattern.folders_only else "."
    return re.compile(expression, re.DOTALL)


def parse(line: str) -> Pattern | None:
    """Parse a line of a file such as `.gitignore`. A blank line or comment gives None.

    Raises `ValueError` for a pattern that can't match anything.
    """
    text = line.rstrip(" ")
    if text != line and _ends_escaping(text):
        text += " "  # the first trailing space is escaped, so it counts
    if not text.strip() or text.startswith("#"):
        return None
    if len(text) > LONGEST:
        raise ValueError(f"{text[:40]!r}…: a pattern of more than {LONGEST:,} characters")
    path = text.removeprefix("!").removesuffix("/")
    if _ends_escaping(path):
        raise ValueError(f"{text!r} matches nothing: it ends with a backslash")
    parts = _compile_parts(path.removeprefix("/"), text)
    if "/" not in path:  # a name alone matches at any depth
        parts.insert(0, _ANY)
    return Pattern(parts, folders_only=text.endswith("/"), takes_back=text.startswith("!"))


def _ends_escaping(text: str) -> bool:
    """Whether a text ends with an odd number of backslashes, so that the last one escapes what follows."""
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1


def _compile_parts(path: str, pattern: str) -> list[str]:
    """Translate each part of a path into a regex, except for `**`.

    Raises `ValueError`, quoting `pattern`, if it can't match anything.
    """
    path += "/"  # so that every part ends with one
    parts = []
    part_start = 0
    position = 0
    pieces = [""]  # the regexes between this part's stars
    while position < len(path):
        token = _TOKEN.match(path, position)
        if token is None:
            raise ValueError(f"{pattern!r} matches nothing: a set that has no end")
        kind = token.lastgroup or ""
        value = token[token.lastgroup or 0]
        if kind == "slash":
            if position == part_start:
                raise ValueError(f"{pattern!r} matches nothing: it has an empty part")
            is_any = path[part_start:position] == _ANY
            parts.append(_ANY if is_any else _join_pieces(pieces))
            part_start = token.end()
            pieces = [""]
        elif kind == "stars":
            pieces.append("")
        elif kind == "set":
            set_regex = _compile_set(value, is_negated=bool(token["not"]))
            if not set_regex:
                raise ValueError(f"{pattern!r} matches nothing: a set that is empty")
            pieces[-1] += set_regex
        elif kind == "any":
            pieces[-1] += "[^/]"
        else:
            pieces[-1] += re.escape(value)
        position = token.end()
    return parts


def _compile_set(text: str, *, is_negated: bool) -> str:
    """Translate a set such as `[a-z]` into a regex, or return "" if it's empty."""
    members = _translate_members(text)
    if members:
        return f"(?!/)[{'^' if is_negated else ''}{members}]"
    return "[^/]" if is_negated else ""


def _translate_members(text: str) -> str:
    """Translate a set's classes, ranges and characters into a regex."""
    members = ""
    for class_name, low, high in _MEMBER.findall(text):
        if class_name:
            members += _CLASSES.get(class_name, "")
        elif not high:
            members += re.escape(low)
        elif low <= high:  # a range such as `[z-a]` is empty
            members += f"{re.escape(low)}-{re.escape(high)}"
    return members


def _join_pieces(pieces: Sequence[str]) -> str:
    """Join the regexes between a part's stars."""
    if not any(pieces):  # nothing but stars
        return "[^/]++"
    first, *others = pieces
    if not others:
        return f"(?>{first}(?![^/]))"
    # Each star but the last takes the shortest match, without backtracking: that matches the same paths.
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return f"(?>{first}{middle}[^/]*{others[-1]}(?![^/]))"


def _join_parts(parts: Sequence[str], end: str) -> str:
    """Join the regexes of a path's parts, and append `end`. Each `**` matches any number of folders.

    Return "" if `**` is the only part.
    """
    runs_of_parts: list[list[str]] = [[]]  # adjacent parts without a `**` between them
    for part in parts:
        if part == _ANY:
            runs_of_parts.append([])
        else:
            runs_of_parts[-1].append(part)
    runs = ["/".join(run) for run in runs_of_parts if run]
    if not runs:
        return ""
    folders_before = _FOLDERS if parts[0] == _ANY else ""
    middle = ""
    for run in runs[:-1]:
        shortest = f"{folders_before}?" if folders_before else ""
        middle += f"(?>{shortest}{run}/)"
        folders_before = _FOLDERS
    return f"{middle}{folders_before}{runs[-1]}{end}"
