"""File patterns."""

from __future__ import annotations

import pytest

from judgekit.globs import Patterns


@pytest.mark.parametrize(
    ("patterns", "path", "meant"),
    [
        (["**/*.md"], "a.md", True),
        (["**/*.md"], "docs/deep/a.md", True),
        (["**/*.md"], "a.mdx", False),
        (["docs/"], "docs/deep/a.txt", True),
        (["docs/"], "other/docs.txt", False),
        (["/docs/*.md"], "docs/a.md", True),
        (["/docs/*.md"], "docs/deep/a.md", False),
        (["*.md", "!CHANGELOG.md"], "CHANGELOG.md", False),
        (["*.md", "!CHANGELOG.md"], "README.md", True),
        ([], "a.md", False),
        (["*.md"], "new\nline.md", True),
        (["*.md"], "bytes-\udce9.md", True),
    ],
)
def test_patterns_mean_what_git_means(patterns: list[str], path: str, meant: object) -> None:
    assert Patterns(patterns).match(path) is meant
