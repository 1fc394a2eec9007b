"""File patterns that mean what they mean in `.gitignore`; of several that match the last one decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pathspec import GitIgnoreSpec

if TYPE_CHECKING:
    from collections.abc import Iterable


class Patterns:
    """Patterns for paths relative to one folder, with `/` between their parts.

    `**/*.md` matches at any depth, `docs/` everything below it, and `!CHANGELOG.md` takes back what an
    earlier one matched.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._spec = GitIgnoreSpec.from_lines(patterns)

    def match(self, path: str) -> bool:
        """Whether `path` is meant."""
        return self._spec.match_file(path)
