"""Pushes of many refs: git is asked as often as for a few, and each ref is judged as if alone."""

from __future__ import annotations

import itertools
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from pushing import bad, good

from judgekit.gate import examine, history
from judgekit.gate.commits import ChangeFilter, RefUpdate
from judgekit.git import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from judgekit.gate.commits import PushedChanges

ALL = ChangeFilter((["*.md"], []))
NONE = "0" * 40


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    """A repository whose branches split and merge; the other side has `base`."""
    work = GitRepo(tmp_path / "work")
    work.commit("first", a_md=good("a"))
    work("branch", "base")
    for name in ("one", "two"):
        work("switch", "--quiet", "--create", name, "base")
        for number in range(3):
            work.commit(f"{name} {number}", **{f"{name}{number}_md": good(name)})
            work("tag", f"{name}-{number}")
    work("switch", "--quiet", "--create", "merged", "one")
    work("merge", "--quiet", "--no-edit", "two")
    work.commit("after", after_md=bad("after"))
    work("mv", "one0.md", "moved.md")
    work.commit("move")
    return work


@pytest.fixture
def git_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Note each start of git as a line of a file."""
    starts = tmp_path / "starts"
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho x >>"{starts}"\nexec "{shutil.which("git")}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return starts


def examine_refs(work: GitRepo, *names: str) -> PushedChanges:
    updates = []
    for name in names:
        ref = f"refs/tags/{name}"
        updates.append(RefUpdate(ref, work("rev-parse", name), ref, NONE))
    remote_commits = [work("rev-parse", "base")]
    return examine.examine_push(Repository(work.folder), updates, remote_commits, ALL)


def count_starts(starts: Path, work: GitRepo, *names: str) -> int:
    starts.write_text("")
    examine_refs(work, *names)
    by_the_test = len(names) + 1  # a rev-parse each
    return len(starts.read_text().splitlines()) - by_the_test


def test_git_is_started_as_often_for_many_known_tags_as_for_two(
    work: GitRepo, git_starts: Path
) -> None:
    tags = [f"known-{number}" for number in range(30)]
    for tag in tags:
        work("tag", tag, "base")
    few = count_starts(git_starts, work, *tags[:2])
    assert count_starts(git_starts, work, *tags) == few


def test_git_is_started_as_often_for_many_tags_of_one_new_commit_as_for_two(
    work: GitRepo, git_starts: Path
) -> None:
    work("switch", "--quiet", "--create", "texts", "base")
    work.commit("no document", a_txt="x")
    tags = [f"new-{number}" for number in range(30)]
    for tag in tags:
        work("tag", tag)
    few = count_starts(git_starts, work, *tags[:2])
    assert count_starts(git_starts, work, *tags) == few


def test_a_tag_on_what_the_remote_has_brings_nothing(work: GitRepo) -> None:
    work("tag", "known", "base")
    pushed = examine_refs(work, "known", "known")
    assert (pushed.changes, pushed.unexamined, pushed.notes) == ([], [], [])


def find_tips(work: GitRepo) -> Iterator[str]:
    yield from ("merged", "one", "two")
    for name, number in itertools.product(("one", "two"), range(3)):
        yield f"{name}-{number}"


def read_steps(work: GitRepo, tips: list[str]) -> dict[str, set[tuple[str, str, str]]]:
    remote_commits = [work("rev-parse", "base")]
    histories = history.read_histories(Repository(work.folder), tips, remote_commits)
    steps_by_tip = {}
    for tip, found in histories.items():
        steps_by_tip[tip] = {(step.commit.oid, step.path, step.blob) for step in found.steps}
    return steps_by_tip


@pytest.mark.parametrize("most", [2_000, 3])
def test_each_tip_has_the_history_that_it_has_alone(
    work: GitRepo, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(history, "MAX_COMMITS", most)
    tips = list(dict.fromkeys(work("rev-parse", name) for name in find_tips(work)))
    if most == 3:  # of a merge, git may list either side first
        tips.remove(work("rev-parse", "merged"))
    alone: dict[str, set[tuple[str, str, str]]] = {}
    for tip in tips:
        alone |= read_steps(work, [tip])
    assert read_steps(work, tips) == alone


def test_a_long_history_is_said_of_the_ref_that_has_it(
    work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_COMMITS", 5)
    pushed = examine_refs(work, "one-0", "merged")
    assert [omission["name"] for omission in pushed.unexamined] == ["refs/tags/merged"]


def test_all_refs_bring_what_they_bring_one_by_one(work: GitRepo) -> None:
    names = list(find_tips(work))
    one_by_one = set()
    for name in names:
        one_by_one |= {(change.path, change.blob) for change in examine_refs(work, name).changes}
    together = {(change.path, change.blob) for change in examine_refs(work, *names).changes}
    assert together == one_by_one
