"""Reads `.judgekitignore`: patterns at the root of a store, as git reads those of a .gitignore.

Of two patterns that match, the later one counts, and `!` takes a name back in; what stands in a folder that
is left out cannot come back.
"""

from __future__ import annotations

from judgekit.config import patterns
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LIMIT = 100_000  # characters
_MAX_PATTERNS = 1_000


class IgnoreRules:
    """The patterns of one store, in their order."""

    def __init__(self, lines: Iterable[str]) -> None:
        parsed = [_parse(line) for line in lines]
        self.patterns = [pattern for pattern in parsed if pattern is not None][:_MAX_PATTERNS]

    def match(self, path: str, *, folder: bool) -> bool:
        """Whether a path relative to the root is left out; those above it are taken to be in."""
        for pattern in reversed(self.patterns):
            if (folder or not pattern.folders_only) and pattern.entry.fullmatch(path):
                return not pattern.takes_back
        return False


def read(path: str) -> IgnoreRules:
    """Return the rules in a file; none where it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            return IgnoreRules(lines_of(file.read(_LIMIT)))
    except OSError:
        return IgnoreRules(())


def _parse(line: str) -> patterns.Pattern | None:
    """Return the pattern in a line, None where it can match nothing."""
    try:
        return patterns.parse(line.removesuffix("\r"))
    except ValueError:
        return None
