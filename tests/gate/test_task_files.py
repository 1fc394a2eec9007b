"""Which files an agent leaves uncommitted."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.errors import InputError
from judgekit.gate import tasks

if TYPE_CHECKING:
    from pathlib import Path

MARKDOWN = ["**/*.md"]


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.commit(
        "first", kept_md="kept\n", edited_md="before\n", removed_md="gone soon\n", moved_md="as it is\n"
    )
    return work


def paths(work: GitRepo, folder: str = ".", **options: float) -> list[str]:
    found = tasks.files(work.folder / folder, MARKDOWN, **options)  # type: ignore[arg-type]  # numbers
    return [file.path for file in found]


def test_changed_staged_and_new_files_are_found(work: GitRepo, tmp_path: Path) -> None:
    assert paths(work) == []
    work.commit("rules", _gitignore="draft.md\n")
    work.write("draft.md")
    work.write("edited.md", "after\n")
    work.write("new.md")
    work.write("docs/staged one.md")
    work("add", "docs/staged one.md")
    work.write("docs/ünï\ncödé.md")
    work.write("other.txt")
    (work.folder / "removed.md").unlink()
    work("mv", "moved.md", "docs/moved.md")
    found = ["docs/moved.md", "docs/staged one.md", "docs/ünï\ncödé.md", "edited.md", "new.md"]
    assert paths(work) == found
    texts = {file.path: file.text for file in tasks.files(work.folder, MARKDOWN)}
    assert texts["edited.md"] == "after\n"
    with pytest.raises(InputError):
        tasks.files(tmp_path, MARKDOWN)


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    work = GitRepo(tmp_path / "empty")
    work.write("a.md")
    work.write("b.md")
    work("add", "a.md")
    assert paths(work) == ["a.md", "b.md"]


def test_a_project_in_a_folder_of_a_repository_is_that_folder(work: GitRepo) -> None:
    work.write("part/a.md")
    work.write("part/docs/b.md")
    work("add", "part/a.md")
    work.write("edited.md", "after\n")
    assert paths(work, "part") == ["a.md", "docs/b.md"]


def test_what_cannot_be_judged_is_left_out(work: GitRepo, tmp_path: Path) -> None:
    work.write("binary.md", b"\0\1")
    work.write("latin.md", b"caf\xe9")
    work.write("empty.md", "")
    work.write("large.md", "x" * (tasks.MAX_BYTES + 1))
    (tmp_path / "secret.md").write_text("elsewhere\n")
    (work.folder / "link.md").symlink_to(tmp_path / "secret.md")
    os.mkfifo(work.folder / "pipe.md")
    work.write("good.md")
    assert paths(work) == ["good.md"]


def test_only_what_the_session_touched_and_of_many_the_last_ones(work: GitRepo) -> None:
    for age, name in enumerate(["now.md", "old.md"]):
        work.write(name)
        os.utime(work.folder / name, (0, time.time() - age * 3600))
    assert paths(work, since=time.time() - 60) == ["now.md"]
    assert paths(work) == ["now.md", "old.md"]
    for number in range(6):
        work.write(f"{number}.md")
        os.utime(work.folder / f"{number}.md", (0, 2_000_000_000 + (number * 7) % 6))
    newest = sorted(range(6), key=lambda number: (number * 7) % 6)[-2:]
    assert paths(work, most=2) == sorted(f"{number}.md" for number in newest)


def test_nothing_of_a_repository_is_run(work: GitRepo) -> None:
    work("config", "core.fsmonitor", "touch ran; false")
    work("config", "diff.external", "touch ran")
    work("config", "diff.text.textconv", "touch ran")
    work.commit("rules", _gitattributes="*.md diff=text\n")
    work.write("edited.md", "after\n")
    (work.folder / "ran").unlink(missing_ok=True)
    assert paths(work) == ["edited.md"]
    assert not (work.folder / "ran").exists()
