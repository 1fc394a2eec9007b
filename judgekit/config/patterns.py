"""File patterns with the meaning they have in `.gitignore`; of several matches, the last one decides.

A project's patterns come with a clone, so none may cost more than its length times the path's: each wildcard
but the last takes the shortest match once and for all, which finds the same paths. Standard library only,
since the prompt hook reads patterns too.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_PATTERN_CHARS = 4096  # characters; paths aren't longer
_DOUBLE_STAR = "**"
_ANY_FOLDERS_PATTERN = r"(?:[^/]++/)*"
_BELOW_FOLDER_PATTERN = (
    "(?P<below>/)"  # the slash between a folder that matches and the path below it
)
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "lower": "a-z", "upper": "A-Z"}
_CLASSES["space"] = r"\s"
_TOKEN_PATTERN = re.compile(
    r"(?P<slash>\\?/)|(?P<stars>\*+)|(?P<any>\?)|\[(?P<not>[!^]?+)(?P<set>\]?+(?:\[:\w*:\]|\\.|[^\]\\])*+)\]"
    r"|\\?(?P<char>(?<=\\).|[^\[\\])",
    re.DOTALL,
)
# A class, a character, a range.
_SET_MEMBER_PATTERN = re.compile(r"\[:(\w*):\]|\\?(.)(?:-\\?(.))?", re.DOTALL)


class Patterns:
    """Patterns for paths relative to one folder, with `/` between their parts.

    `**/*.md` matches at any depth, `docs/` matches everything below it, and `!CHANGELOG.md` excludes a
    file that an earlier pattern includes. Raises `ValueError` for a pattern that can't match anything.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        # Pairs of a regex and whether it includes or excludes files. The last pattern comes first, because
        # the last match decides.
        self._patterns: list[tuple[re.Pattern[str], bool]] = []
        for line in patterns:
            pattern = parse(line)
            if pattern is None:  # a blank line or a comment
                continue
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
    """A parsed pattern. `parts` are regexes for the parts of a path, and `path_regex` is for a whole path."""

    __slots__ = ("is_for_folders", "is_negated", "parts", "path_regex")

    def __init__(self, parts: Sequence[str], *, folders_only: bool, is_negated: bool) -> None:
        self.parts = parts
        self.is_for_folders = folders_only
        self.is_negated = is_negated

        # `_join_parts` leaves out a `**` at the end. `docs/**` matches everything below `docs`, but not
        # `docs` itself.
        ends_with_double_star = parts[-1] == _DOUBLE_STAR
        end = "/.+" if ends_with_double_star else ""
        expression = _join_parts(parts, end)
        if not expression:  # all parts are `**`, which matches everything
            expression = ".+"
        self.path_regex = re.compile(expression, re.DOTALL)


def _compile_for_files(pattern: Pattern) -> re.Pattern[str]:
    """Compile a pattern to a regex that matches the path of a file if the pattern matches it or its folder.

    The folder can be any above the file. Then the group `below` matches the slash after the folder: the regex
    of `docs/` matches `docs/` in `docs/a.md`.
    """
    end = _choose_end(pattern)
    expression = _join_parts(pattern.parts, end)
    if expression:
        return re.compile(expression, re.DOTALL)

    # All parts are `**`. The regex only has to match the start of a path.
    if pattern.is_for_folders:  # `**/` matches every folder, so it's enough to find the first
        return re.compile(f"[^/]*+{_BELOW_FOLDER_PATTERN}", re.DOTALL)
    return re.compile(".", re.DOTALL)


def _choose_end(pattern: Pattern) -> str:
    """Return a regex for what has to follow the pattern's last part in a file's path."""
    if pattern.is_for_folders:
        return _BELOW_FOLDER_PATTERN
    if pattern.parts[-1] == _DOUBLE_STAR:
        # `_BELOW_FOLDER_PATTERN` would mark the files as below a matching folder, but `docs/**` matches the
        # files themselves.
        return "/"
    return rf"(?:{_BELOW_FOLDER_PATTERN}|\Z)"  # the pattern matches a folder or the file


def parse(line: str) -> Pattern | None:
    """Parse a line of a file such as `.gitignore`. Return None for a blank line or a comment.

    Raises `ValueError` for a pattern that's too long or can't match anything.
    """
    text = _strip_trailing_spaces(line)
    is_blank = not text.strip()
    if is_blank or text.startswith("#"):
        return None

    if len(text) > MAX_PATTERN_CHARS:
        raise ValueError(f"{text[:40]!r}…: a pattern of more than {MAX_PATTERN_CHARS:,} characters")

    is_negated = text.startswith("!")
    folders_only = text.endswith("/")
    path = text.removeprefix("!").removesuffix("/")
    if _ends_escaping(path):  # the last backslash has no character to escape
        raise ValueError(f"{text!r} matches nothing: it ends with a backslash")

    parts = _compile_parts(path.removeprefix("/"), text)
    is_name_only = "/" not in path  # unlike `/a`, which only matches at the top
    if is_name_only:  # it matches at any depth
        parts.insert(0, _DOUBLE_STAR)
    return Pattern(parts, folders_only=folders_only, is_negated=is_negated)


def _strip_trailing_spaces(line: str) -> str:
    """Remove the spaces at the end of a line, except one after a backslash, which is part of the pattern."""
    text = line.rstrip(" ")
    had_spaces = text != line
    if had_spaces and _ends_escaping(text):
        return text + " "
    return text


def _ends_escaping(text: str) -> bool:
    """Whether a text ends with an odd number of backslashes, so that the last one escapes what follows."""
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1


def _compile_parts(path: str, pattern: str) -> list[str]:
    """Translate each part of a pattern's path into a regex. A part `**` stays as it is.

    Raises `ValueError` if the path can't match anything. `pattern` is the whole pattern, for the message.
    """
    parts = []
    part_text = ""  # the current part, as far as it's read
    pieces = [""]  # the regexes of the text around its stars: `a*b` has the pieces `a` and `b`

    for token in _split_into_tokens(path + "/", pattern):  # so that every part ends with a slash
        if token.lastgroup == "slash":
            parts.append(_compile_part(part_text, pieces, pattern))
            part_text = ""
            pieces = [""]
            continue

        part_text += token[0]
        if token.lastgroup == "stars":
            pieces.append("")  # a star starts a new piece
        else:
            pieces[-1] += _translate_token(token, pattern)

    return parts


def _split_into_tokens(path: str, pattern: str) -> Iterator[re.Match[str]]:
    """Yield each token of a glob path, such as `*` or `[a-z]`. Its kind is the regex group that matched.

    Raises `ValueError` for a set without an end. Its message quotes the whole `pattern`.
    """
    position = 0
    while position < len(path):
        token = _TOKEN_PATTERN.match(path, position)
        if token is None:  # only a `[` without a `]` isn't a token
            raise ValueError(f"{pattern!r} matches nothing: a set that has no end")
        yield token
        position = token.end()


def _compile_part(text: str, pieces: Sequence[str], pattern: str) -> str:
    """Join a part's pieces into a regex, but leave `**` as it is. Raises `ValueError` for an empty part."""
    if not text:
        raise ValueError(f"{pattern!r} matches nothing: it has an empty part")
    if text == _DOUBLE_STAR:
        return _DOUBLE_STAR
    return _join_pieces(pieces)


def _translate_token(token: re.Match[str], pattern: str) -> str:
    """Translate a token other than a slash or stars into a regex. Raises `ValueError` for an empty set."""
    if token.lastgroup == "any":  # a question mark
        return "[^/]"
    if token.lastgroup == "char":
        return re.escape(token["char"])

    # The last kind is a set, such as [a-z].
    set_regex = _compile_set(token["set"], is_negated=bool(token["not"]))
    if not set_regex:
        raise ValueError(f"{pattern!r} matches nothing: a set that is empty")
    return set_regex


def _compile_set(text: str, *, is_negated: bool) -> str:
    """Translate a glob set such as `[a-z]` into a regex.

    An empty set can't match anything, so the result is "". An empty negated set matches all but `/`.
    """
    members = _translate_members(text)
    if not members:
        return "[^/]" if is_negated else ""

    negation = "^" if is_negated else ""
    return f"(?!/)[{negation}{members}]"  # a set never matches a slash


def _translate_members(text: str) -> str:
    """Translate the inside of a set such as `[a-z_[:digit:]]` into a regex."""
    members = ""
    for class_name, first, last in _SET_MEMBER_PATTERN.findall(text):
        if class_name:
            members += _CLASSES.get(class_name, "")
        elif not last:  # a single character
            members += re.escape(first)
        elif first <= last:  # a range; one such as `z-a` is empty, so it's skipped
            members += f"{re.escape(first)}-{re.escape(last)}"
    return members


def _join_pieces(pieces: Sequence[str]) -> str:
    """Join `pieces`, the regexes for the text between the stars of a path part such as `a*b*c`."""
    has_only_stars = not any(pieces)
    if has_only_stars:
        return "[^/]++"

    end_of_part = "(?![^/])"  # a slash or the path's end comes next
    has_no_star = len(pieces) == 1
    if has_no_star:
        return f"(?>{pieces[0]}{end_of_part})"

    first, *inner_pieces, last = pieces
    middle = ""
    for piece in inner_pieces:
        # Find the piece at its first place, and keep that (`(?>…)`), because backtracking is slow. The result
        # is the same: the next star matches any characters in between.
        middle += f"(?>[^/]*?{piece})"
    return f"(?>{first}{middle}[^/]*{last}{end_of_part})"


def _join_parts(parts: Sequence[str], end: str) -> str:
    """Join the regexes of a path's parts, and append `end`. Each `**` matches any number of folders.

    A `**` at the end adds nothing, so `end` has to match for it. Returns "" if all parts are `**`.
    """
    runs = _split_at_double_stars(parts)  # a run is the parts between two `**`
    if not runs:
        return ""

    # The last run has to be at the path's end. Each other run matches at its first place in the path.
    *inner_runs, last_run = runs
    starts_with_double_star = parts[0] == _DOUBLE_STAR
    folders_before = _ANY_FOLDERS_PATTERN if starts_with_double_star else ""
    regex = ""
    for run in inner_runs:
        regex += _match_first_place(run, folders_before)
        folders_before = _ANY_FOLDERS_PATTERN  # there's a `**` between two runs
    return f"{regex}{folders_before}{last_run}{end}"


def _split_at_double_stars(parts: Sequence[str]) -> list[str]:
    """Split parts at each `**`, and join the runs between: `a/b/**/c` gives `a/b` and `c`."""
    runs_of_parts: list[list[str]] = [[]]
    for part in parts:
        if part == _DOUBLE_STAR:
            runs_of_parts.append([])
        else:
            runs_of_parts[-1].append(part)
    return ["/".join(run) for run in runs_of_parts if run]


def _match_first_place(run: str, folders_before: str) -> str:
    """Return a regex that matches a run (the parts between two `**`) at its first place in the path.

    It never tries a later place, because that's slow. The result is the same: the next `**` matches any
    folders in between.
    """
    fewest_folders = f"{folders_before}?" if folders_before else ""  # `?` skips as few as possible
    return f"(?>{fewest_folders}{run}/)"  # `(?>` keeps the first match
