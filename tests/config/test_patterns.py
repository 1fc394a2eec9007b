"""File patterns, and locks on files."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from pathspec import GitIgnoreSpec

from judgekit.config import locks
from judgekit.config.patterns import Patterns

if TYPE_CHECKING:
    from pathlib import Path


def test_patterns_mean_what_git_means() -> None:
    for patterns, path, meant in (
        (["**/*.md"], "docs/deep/a.md", True),
        (["docs/"], "docs/deep/a.txt", True),
        (["*.md", "!CHANGELOG.md"], "CHANGELOG.md", False),
        ([], "a.md", False),
        (["*.md"], "new\nline.md", True),
        (["*.md"], "bytes-\udce9.md", True),
    ):
        assert Patterns(patterns).match(path) is meant, (patterns, path)
    for pattern in ("!", "//", "a//b", "/", "a\\", "[z-a]", "[a"):
        with pytest.raises(ValueError, match=r"'|\."):
            Patterns([pattern])
    assert not Patterns(["# all", "", "  "]).match("# all")


PIECES = ["a", "b", "*", "?", "[ab]", "**", ".", "\\a"]


def test_they_mean_what_they_mean_to_pathspec() -> None:
    choices = random.Random(0)
    for _ in range(800):
        patterns = []
        for _ in range(choices.randint(1, 3)):
            some = ["".join(choices.choices(PIECES, k=choices.randint(1, 4))), "**", "*", "a", "b"]
            parts = "/".join(choices.choice(some) for _ in range(choices.randint(1, 4)))
            patterns.append(f"{choices.choice(('', '', '!'))}{choices.choice(('', '/'))}{parts}")
            patterns[-1] += choices.choice(("", "", "/"))
        path = "/".join(
            "".join(choices.choices("ab.", k=choices.randint(1, 4)))
            for _ in range(choices.randint(1, 4))
        )
        meant = GitIgnoreSpec.from_lines(patterns).match_file(path)
        assert Patterns(patterns).match(path) is meant, (patterns, path)


def test_a_pattern_means_what_it_means_to_git(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "work")
    paths = [
        "b",
        "a/b.md",
        "xb.md",
        "a-b.md",
        "x/y/z/cb",
        "a]b",
        "ab",
        "xbxa",
        "*b",
        "b[",
        "x/b[/c",
        "x/cb",
    ]
    for pattern in ("[!a]b.md", "a[!x]b.md", "x/**/[^a]b", "*[]!]b", "**b?[a-c]", "\\*b", "b[[]"):
        repository.write(".git/info/exclude", f"{pattern}\n")
        process = repository.run(
            "check-ignore", "--no-index", "--stdin", stdin="\n".join(paths).encode()
        )
        found = [path for path in paths if Patterns([pattern]).match(path)]
        assert found == process.stdout.decode().splitlines(), pattern


COSTLY = [
    ("*a" * 14 + "b", "a" * 40 + ".md"),
    ("*a" * 100 + "b", "a" * 250 + ".md"),
    ("**/a/" * 60 + "b", "a/" * 2000 + "c"),
    ("/".join(["*a*a*a"] * 50) + "b", "/".join(["a" * 80] * 50)),
    ("a/**/" * 40 + "*a*a*ab", "a/" * 1000 + "a" * 200),
]


def test_no_pattern_takes_long() -> None:
    loop = f"for pattern, path in {COSTLY!r}: print(Patterns([pattern]).match(path))"
    code = f"from judgekit.config.patterns import Patterns\n{loop}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout.split() == [b"False"] * len(COSTLY)


HOLDER = """
import sys, time
from pathlib import Path
from judgekit.config import locks
with locks.file_lock(Path(sys.argv[1]), timeout=5):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_against_others_and_freed_by_death(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        with locks.file_lock(path, timeout=0, on_wait=lambda: pytest.fail("it is free")):
            pass
    waits: list[str] = []
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert locks.take(path) is None
        with (
            pytest.raises(TimeoutError, match="held by another process"),
            locks.file_lock(path, timeout=0.3, on_wait=lambda: waits.append("waited")),
        ):
            pytest.fail("two held it")
        assert waits == ["waited"]
    finally:
        holder.kill()
        holder.communicate(timeout=10)
    with locks.file_lock(path, timeout=5):
        pass
