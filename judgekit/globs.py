"""File patterns that mean what they mean in `.gitignore`; of several that match the last one decides.

A project's patterns come with a clone, so none may cost more than its length times the path's. What pathspec
makes of several wildcards tries every way to share a path among them; here each wildcard but the last takes
the least that will do, once and for all, which finds the same matches.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ANY = "**"
_TOKEN = re.compile(
    r"(?P<stars>\*+)|(?P<one>\?)|\[(?P<negated>[!^]?)(?P<class>\]?[^\]]*)\]|\\?(?P<literal>.)", re.DOTALL
)
_FOLDERS = r"(?:[^/]++/)*"


class Patterns:
    """Patterns for paths relative to one folder, with `/` between their parts.

    `**/*.md` matches at any depth, `docs/` everything below it, and `!CHANGELOG.md` takes back what an
    earlier one matched. Raises `ValueError` for one that can match nothing.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._spec = GitIgnoreSpec.from_lines(patterns, _Pattern)

    def match(self, path: str) -> bool:
        """Whether `path` is meant."""
        return self._spec.match_file(path)


class _Pattern(GitIgnoreSpecPattern):
    """One pattern, as an expression that never tries the same part of a path in many ways."""

    __slots__ = ()

    @classmethod
    def pattern_to_regex(cls, pattern: str) -> tuple[str | None, bool | None]:  # type: ignore[override]  # no bytes here
        if not pattern.strip() or pattern.startswith("#"):
            return None, None
        _, include = super().pattern_to_regex(pattern)
        kept = pattern if pattern.endswith("\\ ") else pattern.rstrip()
        found = _expression(kept.removeprefix("!"))
        try:
            re.compile(found)
        except re.error as error:
            raise ValueError(f"{pattern!r}: {error}") from None
        if include is None:
            raise ValueError(f"{pattern!r} matches nothing")
        return found, include


def _expression(pattern: str) -> str:
    """Return the expression for a pattern: its parts in runs, with any number of folders between them."""
    parts = pattern.split("/")
    is_folder = not parts[-1]
    if not parts[0]:
        del parts[0]
    elif not any(parts[1:]):
        parts.insert(0, _ANY)
    if is_folder:
        parts[-1:] = [_ANY]
    if "" in parts:
        raise ValueError(f"{pattern!r} has an empty part")
    mark = "(?P<ps_d>/)"  # tells pathspec that a folder above the path was matched
    runs = [[*run] for is_any, run in groupby(parts, _ANY.__eq__) if not is_any]
    if not runs:
        return mark if is_folder else "."
    before = _FOLDERS if parts[0] == _ANY else ""
    *first, last = [_run(run) for run in runs]
    below = mark if is_folder else "/"
    end = below if parts[-1] == _ANY else f"(?:{mark}|$)"
    middle = []
    for run in first:
        middle.append(f"(?>{before and before + '?'}{run}/)")
        before = _FOLDERS
    return f"^{''.join(middle)}{before}{last}{end}"


def _run(parts: Sequence[str]) -> str:
    return "/".join(map(_part, parts))


def _part(pattern: str) -> str:
    """Return the expression for one part of a path."""
    if not pattern.strip("*"):
        return "[^/]++"
    pieces = [""]
    for token in _TOKEN.finditer(pattern):
        if token["stars"]:
            pieces.append("")
        elif token["one"]:
            pieces[-1] += "[^/]"
        elif token["class"]:
            inside = re.sub(r"[\\\[&~|]", r"\\\g<0>", token["class"])
            pieces[-1] += f"(?!/)[{'^' if token['negated'] else ''}{inside}]"
        else:
            pieces[-1] += re.escape(token["literal"])
    head, *rest = pieces
    taken = "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1])
    last = f"[^/]*{rest[-1]}" if rest else ""
    return f"(?>{head}{taken}{last}(?![^/]))"
