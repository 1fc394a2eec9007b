from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from memory_store import MemoryStore, jwt_store, listed

from judgekit.retrieval import compiled, scan

if TYPE_CHECKING:
    from pathlib import Path


CLAUDE_MEMORY, AUTO_MEMORY, MARKDOWN = compiled.KINDS
PROFILES = compiled.Profiles(compiled.bundled())


def kind_of(root: Path) -> str:
    return scan.kind_of(str(root), PROFILES)


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_each_kind_lists_its_files(tmp_path: Path) -> None:
    store = jwt_store(tmp_path / "project", 3)
    make(store.root, "decisions/notes.txt", "decisions/.hidden.json", "elsewhere/x.json")
    (store.root / "decisions" / "alias.json").symlink_to(store.root / "decisions" / "jwt.json")
    assert sorted(listed(store.root, CLAUDE_MEMORY).files) == [
        *("constraints/filler-1.json", "decisions/alias.json", "decisions/filler-0.json"),
        *("decisions/jwt.json", "preferences/filler-2.json"),
    ]
    docs = tmp_path / "docs"
    make(docs, "a.md", "deep/er/b.markdown", ".git/c.md", "node_modules/d.md", "e.txt", ".hidden.md")
    (docs / "deep" / "up").symlink_to(docs)
    assert sorted(listed(docs, MARKDOWN).files) == ["a.md", "deep/er/b.markdown"]
    make(tmp_path / "auto", "MEMORY.md", "topic.md", "sub/other.md")
    assert sorted(listed(tmp_path / "auto", AUTO_MEMORY).files) == ["MEMORY.md", "topic.md"]


def test_a_stamp_changes_with_the_file(tmp_path: Path) -> None:
    store = jwt_store(tmp_path)
    path, stamps = store.root / "decisions" / "jwt.json", []
    stamps.append(listed(store.root, CLAUDE_MEMORY).files["decisions/jwt.json"])
    os.utime(path, ns=(1, 1))
    stamps.append(listed(store.root, CLAUDE_MEMORY).files["decisions/jwt.json"])
    copy = path.with_suffix(".new")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(1, 1))
    copy.replace(path)
    stamps.append(listed(store.root, CLAUDE_MEMORY).files["decisions/jwt.json"])
    assert len(set(stamps)) == 3


def test_links_that_lead_out_are_named_and_not_followed_and_what_is_no_file_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = jwt_store(tmp_path / "project")
    decisions, outside = store.root / "decisions", tmp_path / "outside"
    make(outside, "secret.json")
    (decisions / "link.json").symlink_to(outside / "secret.json")
    (store.root / "runbooks").symlink_to(outside)
    os.mkfifo(decisions / "pipe.json")
    (decisions / "folder.json").mkdir()
    (decisions / "loop.json").symlink_to(decisions / "loop.json")
    (decisions / "dangling.json").symlink_to(decisions / "gone.json")
    with suppress(OSError):  # some file systems refuse such names
        os.close(os.open(os.fsencode(decisions) + b"/\xff.json", os.O_WRONLY | os.O_CREAT))
    found = listed(store.root, CLAUDE_MEMORY)
    assert sorted(found.files) == ["decisions/jwt.json"]
    assert sorted(problem.partition(":")[0] for problem in found.problems) == [
        "decisions/link.json",
        "runbooks",
    ]
    monkeypatch.setattr(os, "scandir", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert listed(store.root, CLAUDE_MEMORY).files == {}


def test_the_kind_shows_in_the_content(tmp_path: Path) -> None:
    assert kind_of(jwt_store(tmp_path / "whole").root) == CLAUDE_MEMORY
    without_index = jwt_store(tmp_path / "records").root
    (without_index / "index.md").unlink()
    assert kind_of(without_index) == CLAUDE_MEMORY
    only_index = MemoryStore(tmp_path / "index")
    only_index.list("Title", "decisions/x.json")
    assert kind_of(only_index.write_index().root) == CLAUDE_MEMORY
    for number, (name, text, kind) in enumerate(KINDS):
        root = tmp_path / str(number)
        make(root, name)
        (root / name).write_text(text)
        assert kind_of(root) == kind, name
    (tmp_path / "nothing").mkdir()
    assert kind_of(tmp_path / "nothing") == MARKDOWN


KINDS = [
    ("memory-config.json", "{}", CLAUDE_MEMORY),
    ("MEMORY.md", "- [A](a.md)", AUTO_MEMORY),
    ("index.md", "# Docs\n- [A](a.md)", MARKDOWN),
    ("decisions/0001-use-adr.md", "# ADR", MARKDOWN),
    ("a.md", "# A", MARKDOWN),
]


@pytest.mark.parametrize("leads", ["file", "pipe"])
def test_the_kind_is_not_read_from_what_leads_out_or_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads: str
) -> None:
    root, target = tmp_path / "store", tmp_path / "target"
    root.mkdir()
    if leads == "pipe":
        os.mkfifo(root / "index.md")
    else:
        target.write_text("- [DECISION] A title -> decisions/a.json\n")
        (root / "index.md").symlink_to(target)

    def refuse(path: str, *_: object, **__: object) -> None:
        pytest.fail(f"{path} was opened")

    monkeypatch.setattr("builtins.open", refuse)
    assert kind_of(root) == MARKDOWN


TREE = ("a.md", "b.md", "drafts/a.md", "deep/drafts/b.md", "deep/er/a.md", "index.md")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("# comment\n\n   \n[\n\\\n", TREE),
        ("a.md\r\nindex.md", ("b.md", "deep/drafts/b.md", "index.md")),
        ("drafts/\n/a.md", ("b.md", "deep/er/a.md", "index.md")),
        ("*.md\n!b.md", ("b.md", "deep/drafts/b.md", "index.md")),
        ("deep/\n!deep/er/a.md", ("a.md", "b.md", "drafts/a.md", "index.md")),
        ("\ufeffdeep/**/*.md", ("a.md", "b.md", "drafts/a.md", "index.md")),
        ("\n".join(["*a" * 12 + "b", "**/" * 30 + "*a*a*a*ab", "[[:" * 1300, "?" * 90_000]), TREE),
    ],
)
def test_what_the_store_ignores_is_not_listed(
    tmp_path: Path, patterns: str, expected: tuple[str, ...]
) -> None:
    """What a pattern means is tested in tests/config/test_patterns.py."""
    make(tmp_path, *TREE)
    (tmp_path / ".judgekitignore").write_text(patterns, encoding="utf-8", newline="")
    assert sorted(listed(tmp_path, MARKDOWN).files) == sorted(expected)


def test_of_too_many_files_the_rest_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MAX_FILES", 3)
    found = listed(jwt_store(tmp_path, 6).root, CLAUDE_MEMORY)
    assert len(found.files) == 3
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        "more than 3 files; the rest is ignored"
    ]
