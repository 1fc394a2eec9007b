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

LONGEST = 4096  # characters; paths aren't longer
_DOUBLE_STAR = "**"
_ANY_FOLDERS = r"(?:[^/]++/)*"
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

    `**/*.md` matches at any depth, `docs/` matches everything below it, and `!CHANGELOG.md` excludes a
    file that an earlier pattern includes. Raises `ValueError` for a pattern that can't match anything.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        # Pairs of a regex and whether it includes or excludes files. The last pattern comes first, because
        # the last match decides.
        self._patterns: list[tuple[re.Pattern[str], bool]] = []
        for pattern in filter(None, map(parse, patterns)):
            includes = not pattern.is_negated
            self._patterns.insert(0, (_compile_for_files(pattern), includes))

    def match(self, path: str) -> bool:
        """Whether the patterns include the file at `path`.

        The last pattern that matches the file decides. If no pattern matches the file itself, the last one
        that matches a folder above it decides.
        """
        path = path.removeprefix("./")
        folder_is_included: bool | None = None  # None: no pattern has matched a folder yet

        for pattern, includes in self._patterns:  # the last pattern comes first
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
    """A parsed pattern. `parts` are regexes, and `entry` is one that matches a complete path."""

    __slots__ = ("entry", "folders_only", "is_negated", "parts")

    def __init__(self, parts: Sequence[str], *, folders_only: bool, is_negated: bool) -> None:
        self.parts = parts
        self.folders_only = folders_only
        self.is_negated = is_negated
        # `docs/**` matches everything below `docs`, but not `docs` itself.
        end = "/.+" if parts[-1] == _DOUBLE_STAR else ""
        self.entry = re.compile(_join_parts(parts, end) or ".+", re.DOTALL)


def _compile_for_files(pattern: Pattern) -> re.Pattern[str]:
    """Compile a pattern to a regex for file paths.

    If the pattern matches only a folder above the file, the group `below` matches the slash after that
    folder. For example, the regex of `docs/` matches the beginning of `docs/a.md`, up to the slash.
    """
    # Choose what has to follow the pattern's last part.
    below_folder = "(?P<below>/)"
    if pattern.folders_only:
        end = below_folder
    elif pattern.parts[-1] == _DOUBLE_STAR:
        end = "/"  # `docs/**` matches the files below the folder, not the folder itself
    else:
        end = rf"(?:{below_folder}|\Z)"

    expression = _join_parts(pattern.parts, end)
    is_double_star_alone = not expression
    if is_double_star_alone:
        # `**/` matches every top folder, and `**` every path.
        expression = f"[^/]*+{below_folder}" if pattern.folders_only else "."

    return re.compile(expression, re.DOTALL)


def parse(line: str) -> Pattern | None:
    """Parse a line of a file such as `.gitignore`. Return None for a blank line or a comment.

    Raises `ValueError` for a pattern that can't match anything.
    """
    text = line.rstrip(" ")
    if text != line and _ends_escaping(text):
        text += " "  # a trailing space after a backslash is part of the pattern
    if not text.strip() or text.startswith("#"):
        return None

    if len(text) > LONGEST:
        raise ValueError(f"{text[:40]!r}…: a pattern of more than {LONGEST:,} characters")

    path = text.removeprefix("!").removesuffix("/")
    if _ends_escaping(path):  # the last backslash has no character to escape
        raise ValueError(f"{text!r} matches nothing: it ends with a backslash")

    parts = _compile_parts(path.removeprefix("/"), text)
    is_name_only = "/" not in path
    if is_name_only:  # a name without a slash matches at any depth
        parts.insert(0, _DOUBLE_STAR)
    return Pattern(parts, folders_only=text.endswith("/"), is_negated=text.startswith("!"))


def _ends_escaping(text: str) -> bool:
    """Whether a text ends with an odd number of backslashes, so that the last one escapes what follows."""
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1


def _compile_parts(path: str, pattern: str) -> list[str]:
    """Translate each part of a pattern's path into a regex. A part `**` stays as it is.

    Raises `ValueError` if the path can't match anything. The error quotes `pattern`.
    """
    path += "/"  # so that every part ends with a slash
    parts = []
    part_start = 0  # the current part's position in `path`
    position = 0  # the current token's position in `path`
    pieces = [""]  # the regexes before, between and after the current part's stars

    while position < len(path):
        token = _TOKEN.match(path, position)
        if token is None:
            raise ValueError(f"{pattern!r} matches nothing: a set that has no end")

        # The kind of token is the name of the regex group that matched.
        kind = token.lastgroup or ""
        value = token[token.lastgroup or 0]
        if kind == "slash":
            if position == part_start:
                raise ValueError(f"{pattern!r} matches nothing: it has an empty part")
            is_double_star = path[part_start:position] == _DOUBLE_STAR
            parts.append(_DOUBLE_STAR if is_double_star else _join_pieces(pieces))
            part_start = token.end()
            pieces = [""]
        elif kind == "stars":
            pieces.append("")
        elif kind == "set":  # such as [a-z]
            set_regex = _compile_set(value, is_negated=bool(token["not"]))
            if not set_regex:
                raise ValueError(f"{pattern!r} matches nothing: a set that is empty")
            pieces[-1] += set_regex
        elif kind == "any":  # a question mark
            pieces[-1] += "[^/]"
        else:
            pieces[-1] += re.escape(value)

        position = token.end()

    return parts


def _compile_set(text: str, *, is_negated: bool) -> str:
    """Translate a glob set such as `[a-z]` into a regex.

    Return "" for an empty set, which matches nothing. An empty negated set matches any character but `/`.
    """
    members = _translate_members(text)
    if members:
        return f"(?!/)[{'^' if is_negated else ''}{members}]"
    return "[^/]" if is_negated else ""


def _translate_members(text: str) -> str:
    """Translate the inside of a set such as `[a-z_[:digit:]]` into a regex."""
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
    """Join `pieces`, the regexes for the text between the stars of a path part such as `a*b*c`."""
    if not any(pieces):  # nothing but stars
        return "[^/]++"
    first, *others = pieces
    if not others:  # no star
        return f"(?>{first}(?![^/]))"
    # To avoid backtracking, each star but the last takes the shortest match. This matches the same paths.
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return f"(?>{first}{middle}[^/]*{others[-1]}(?![^/]))"


def _join_parts(parts: Sequence[str], end: str) -> str:
    """Join the regexes of a path's parts, and append `end`. Each `**` matches any number of folders.

    Returns "" if all parts are `**`.
    """
    # Split the parts at each `**`: from `a/b/**/c`, make the runs `a/b` and `c`.
    runs_of_parts: list[list[str]] = [[]]
    for part in parts:
        if part == _DOUBLE_STAR:
            runs_of_parts.append([])
        else:
            runs_of_parts[-1].append(part)
    runs = ["/".join(run) for run in runs_of_parts if run]
    if not runs:
        return ""

    # Let each `**` except the last match as few folders as possible, and never try again with more (`(?>…)`).
    # This matches the same paths, but without slow backtracking.
    *inner_runs, last_run = runs
    folders_before = _ANY_FOLDERS if parts[0] == _DOUBLE_STAR else ""
    middle = ""
    for run in inner_runs:
        shortest = f"{folders_before}?" if folders_before else ""
        middle += f"(?>{shortest}{run}/)"
        folders_before = _ANY_FOLDERS
    return f"{middle}{folders_before}{last_run}{end}"
