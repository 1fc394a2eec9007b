from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, jwt_store, listed

from judgekit.retrieval import compiled, scan

if TYPE_CHECKING:
    from pathlib import Path


CLAUDE_MEMORY, AUTO_MEMORY, MARKDOWN = compiled.KINDS
PROFILES = compiled.Profiles(compiled.bundled())


def kind_of(root: Path) -> str:
    return scan.kind_of(str(root), PROFILES)


def test_a_store_lists_its_records(tmp_path: Path) -> None:
    store = jwt_store(tmp_path, 3)
    (store.root / "decisions" / "notes.txt").write_text("no record")
    (store.root / "decisions" / ".hidden.json").write_text("{}")
    (store.root / "elsewhere").mkdir()
    (store.root / "elsewhere" / "x.json").write_text("{}")
    assert sorted(listed(store.root, CLAUDE_MEMORY).files) == [
        "constraints/filler-1.json",
        "decisions/filler-0.json",
        "decisions/jwt.json",
        "preferences/filler-2.json",
    ]


def test_a_stamp_changes_with_the_file(tmp_path: Path) -> None:
    store = jwt_store(tmp_path)
    before = listed(store.root, CLAUDE_MEMORY).files["decisions/jwt.json"]
    path = store.root / "decisions" / "jwt.json"
    os.utime(path, ns=(1, 1))
    assert listed(store.root, CLAUDE_MEMORY).files["decisions/jwt.json"] != before
    replaced = listed(store.root, CLAUDE_MEMORY).files["decisions/jwt.json"]
    copy = path.with_suffix(".new")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(1, 1))
    copy.replace(path)
    assert listed(store.root, CLAUDE_MEMORY).files["decisions/jwt.json"] != replaced


def test_links_that_lead_out_are_named_and_not_followed(tmp_path: Path) -> None:
    store = jwt_store(tmp_path / "project")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text("{}")
    (store.root / "decisions" / "link.json").symlink_to(outside / "secret.json")
    (store.root / "runbooks").symlink_to(outside)
    found = listed(store.root, CLAUDE_MEMORY)
    assert sorted(found.files) == ["decisions/jwt.json"]
    assert sorted(problem.partition(":")[0] for problem in found.problems) == [
        "decisions/link.json",
        "runbooks",
    ]


def test_links_inside_the_store_are_followed(tmp_path: Path) -> None:
    store = jwt_store(tmp_path)
    (store.root / "decisions" / "alias.json").symlink_to(store.root / "decisions" / "jwt.json")
    assert "decisions/alias.json" in listed(store.root, CLAUDE_MEMORY).files


@pytest.mark.parametrize("name", ["pipe.json", "dangling.json", "loop.json", "folder.json"])
def test_what_is_no_file_is_passed_over(tmp_path: Path, name: str) -> None:
    store = jwt_store(tmp_path)
    path = store.root / "decisions" / name
    if name == "pipe.json":
        os.mkfifo(path)
    elif name == "folder.json":
        path.mkdir()
    else:
        path.symlink_to(path if name == "loop.json" else store.root / "decisions" / "gone.json")
    assert sorted(listed(store.root, CLAUDE_MEMORY).files) == ["decisions/jwt.json"]


def test_names_that_are_no_utf8_are_passed_over(tmp_path: Path) -> None:
    store = jwt_store(tmp_path)
    path = os.fsencode(store.root / "decisions") + b"/\xff.json"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        pytest.skip("this file system refuses such names")
    assert sorted(listed(store.root, CLAUDE_MEMORY).files) == ["decisions/jwt.json"]


def test_a_folder_of_markdown_is_walked(tmp_path: Path) -> None:
    for name in ("a.md", "deep/er/b.markdown", ".git/c.md", "node_modules/d.md", "e.txt", ".hidden.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    assert sorted(listed(tmp_path, MARKDOWN).files) == ["a.md", "deep/er/b.markdown"]


def test_auto_memory_is_one_folder(tmp_path: Path) -> None:
    for name in ("MEMORY.md", "topic.md", "sub/other.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert sorted(listed(tmp_path, AUTO_MEMORY).files) == ["MEMORY.md", "topic.md"]


def test_the_kind_shows_in_the_content(tmp_path: Path) -> None:
    assert kind_of(jwt_store(tmp_path / "whole").root) == CLAUDE_MEMORY
    without_index = jwt_store(tmp_path / "records").root
    (without_index / "index.md").unlink()
    assert kind_of(without_index) == CLAUDE_MEMORY
    only_index = MemoryStore(tmp_path / "index")
    only_index.list("Title", "decisions/x.json")
    assert kind_of(only_index.write_index().root) == CLAUDE_MEMORY


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"memory-config.json": "{}"}, CLAUDE_MEMORY),
        ({"MEMORY.md": "- [A](a.md)"}, AUTO_MEMORY),
        ({"index.md": "# Docs\n- [A](a.md)"}, MARKDOWN),
        ({"decisions/0001-use-adr.md": "# ADR"}, MARKDOWN),
        ({"a.md": "# A"}, MARKDOWN),
        ({}, MARKDOWN),
    ],
)
def test_other_folders_are_told_apart(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert kind_of(tmp_path) == kind


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
    for name in TREE:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
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


def test_a_folder_that_may_not_be_read_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = jwt_store(tmp_path)

    def refuse(path: str) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert listed(store.root, CLAUDE_MEMORY).files == {}
