"""File patterns."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from pathspec import GitIgnoreSpec

from judgekit.config.patterns import Patterns

if TYPE_CHECKING:
    from pathlib import Path


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


PIECES = ["a", "b", "*", "?", "[ab]", "**", ".", "\\a"]


def some_pattern(choices: random.Random) -> str:
    parts = [
        choices.choice(["".join(choices.choices(PIECES, k=choices.randint(1, 4))), "**", "*", "a", "b"])
        for _ in range(choices.randint(1, 4))
    ]
    return f"{choices.choice(['', '', '!'])}{choices.choice(['', '/'])}{'/'.join(parts)}" + choices.choice(
        ["", "", "/"]
    )


def some_path(choices: random.Random) -> str:
    return "/".join(
        "".join(choices.choices("ab.", k=choices.randint(1, 4))) for _ in range(choices.randint(1, 4))
    )


@pytest.mark.parametrize("seed", range(2))
def test_they_mean_what_they_mean_to_pathspec(seed: int) -> None:
    choices = random.Random(seed)
    for _ in range(400):
        patterns = [some_pattern(choices) for _ in range(choices.randint(1, 3))]
        path = some_path(choices)
        meant = GitIgnoreSpec.from_lines(patterns).match_file(path)
        assert Patterns(patterns).match(path) is meant, (patterns, path)


@pytest.mark.parametrize(
    "pattern", ["[!a]b.md", "a[!x]b.md", "x/**/[^a]b", "*[]!]b", "**b?[a-c]", "\\*b", "b[[]"]
)
def test_one_pattern_means_what_it_means_to_git(tmp_path: Path, pattern: str) -> None:
    repository = GitRepo(tmp_path / "work")
    repository.write(".git/info/exclude", f"{pattern}\n")
    names = "b /b a/b.md xb.md a-b.md x/y/z/cb a]b ab xbxa *b b[ x/b[/c x/cb"
    paths = [name.lstrip("/") for name in names.split()]
    process = repository.run("check-ignore", "--no-index", "--stdin", stdin="\n".join(paths).encode())
    found = [path for path in paths if Patterns([pattern]).match(path)]
    assert found == process.stdout.decode().splitlines()


COSTLY = [
    ("*a" * 14 + "b", "a" * 40 + ".md"),
    ("*a" * 100 + "b", "a" * 250 + ".md"),
    ("**/a/" * 60 + "b", "a/" * 2000 + "c"),
    ("/".join(["*a*a*a"] * 50) + "b", "/".join(["a" * 80] * 50)),
    ("a/**/" * 40 + "*a*a*ab", "a/" * 1000 + "a" * 200),
]


@pytest.mark.parametrize("case", range(len(COSTLY)))
def test_no_pattern_takes_long(case: int) -> None:
    pattern, path = COSTLY[case]
    code = f"from judgekit.config.patterns import Patterns; print(Patterns([{pattern!r}]).match({path!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout.strip() == b"False"


def test_what_can_match_nothing_is_refused() -> None:
    for pattern in ("!", "//", "a//b", "/", "a\\", "[z-a]", "[a"):
        with pytest.raises(ValueError, match=r"'|\."):
            Patterns([pattern])
    assert not Patterns(["# all", "", "  "]).match("# all")
