from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judgekit.retrieval import scan

if TYPE_CHECKING:
    from pathlib import Path

FILES = [
    "a.md",
    "b.md",
    "drafts/a.md",
    "deep/drafts/b.md",
    "deep/er/a.md",
    "a/b/c.md",
    "a/b.txt",
    "x y.md",
    "[a].md",
]


def left_out(patterns: str, path: str) -> bool:
    """Ask for each folder above a file and then for the file, as a walk does."""
    rules = scan.IgnoreRules(patterns.split("\n"))
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    return any(rules.match(each, folder=True) for each in above) or rules.match(path, folder=False)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("", []),
        ("# comment\n\n   ", []),
        ("a.md", ["a.md", "drafts/a.md", "deep/er/a.md"]),
        ("/a.md", ["a.md"]),
        ("drafts/", ["drafts/a.md", "deep/drafts/b.md"]),
        ("deep/**", ["deep/drafts/b.md", "deep/er/a.md"]),
        ("**/er/*", ["deep/er/a.md"]),
        ("a/**/c.md", ["a/b/c.md"]),
        ("*.md\n!b.md", ["a.md", "drafts/a.md", "deep/er/a.md", "a/b/c.md", "x y.md", "[a].md"]),
        ("deep/\n!deep/er/a.md", ["deep/drafts/b.md", "deep/er/a.md"]),
        ("?.md", ["a.md", "b.md", "drafts/a.md", "deep/drafts/b.md", "deep/er/a.md", "a/b/c.md"]),
        ("[!a].md", ["b.md", "deep/drafts/b.md", "a/b/c.md"]),
        ("[a-b].md", ["a.md", "b.md", "drafts/a.md", "deep/drafts/b.md", "deep/er/a.md"]),
        ("\\[a].md", ["[a].md"]),
        ("x y.md   ", ["x y.md"]),
        ("a.md\r", ["a.md", "drafts/a.md", "deep/er/a.md"]),
        ("[", []),
        ("\\", []),
    ],
)
def test_patterns_mean_what_they_mean_to_git(patterns: str, expected: list[str]) -> None:
    assert sorted(path for path in FILES if left_out(patterns, path)) == sorted(expected)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=30)
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return folder


PIECES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "*",
        "**",
        "?",
        "/",
        ".md",
        "drafts",
        "deep",
        "er",
        "!",
        "[ab]",
        "[!a]",
        "[a-c]",
        "\\",
        "#",
        " ",
    ]
)
LINES = st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=4).map("\n".join)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(patterns=LINES)
def test_git_leaves_out_the_same(repository: Path, patterns: str) -> None:
    (repository / ".gitignore").write_text(patterns)
    asked = "\0".join(FILES).encode() + b"\0"
    command = ["git", "-C", str(repository), "check-ignore", "-z", "--stdin", "--no-index"]
    answer = subprocess.run(command, input=asked, capture_output=True, check=False, timeout=30)
    ignored = {name for name in answer.stdout.decode().split("\0") if name}
    assert {path for path in FILES if left_out(patterns, path)} == ignored


COSTLY = [
    ("*a" * 12 + "b", "a" * 200 + ".md"),
    ("**/" * 30 + "*a*a*a*a*a*ab", "a/" * 12 + "a" * 200),
    ("*" * 4000 + "b", "a" * 255),
    ("[[:" * 1300, "a" * 255),
    ("[[:" * 33_000, "a"),
    ("?" * 90_000, "a" * 255),
]


@pytest.mark.parametrize(("pattern", "path"), COSTLY)
def test_no_pattern_takes_long(tmp_path: Path, pattern: str, path: str) -> None:
    (tmp_path / ".judgekitignore").write_text(f"{pattern}\n")
    asked = f"scan.Store('.', 'markdown', profiles).leaves_out({path!r})"
    code = (
        "from judgekit.retrieval import compiled, scan; "
        f"profiles = compiled.Profiles(compiled.bundled()); print({asked})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() == b"False"


def test_a_set_may_hold_a_slash_and_matches_none() -> None:
    assert left_out("[a/b]c.md", "ac.md")
    assert not left_out("x[/]c.md", "x/c.md")
