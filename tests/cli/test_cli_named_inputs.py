"""Files that data or a link of a clone names: none is read outside of where the user pointed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from loopback import Loopback
from scripted import by_content

from judgekit import judge
from judgekit.errors import InputError

if TYPE_CHECKING:
    from outcome import Served, Use

pytestmark = pytest.mark.usefixtures("no_servers")
RUBRIC = ("--rubric", "kls", "--mode", "lenient")
COMMANDS = {"eval judge": ("eval", "judge"), "calibrate": ("calibrate",)}
PRIVATE = "zebra: the diary of Ann"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    """Return a clone that is the current folder; a private file lies beside it."""
    (tmp_path / "private.txt").write_text(PRIVATE)
    repo = GitRepo(tmp_path / "clone")
    repo.write("docs/a.md", "# A\n\nA sound document.\n")
    repo.commit()
    monkeypatch.chdir(repo.folder)
    return repo


def write_cases(*paths: str, to: str = "cases.jsonl") -> None:
    cases = [{"id": str(number), "path": path} for number, path in enumerate(paths)]
    cases.append({"id": "text", "text": "TODO"})
    Path(to).parent.mkdir(exist_ok=True)
    Path(to).write_text("".join(json.dumps({**case, "label": "accept"}) + "\n" for case in cases))


def lay_out(clone: GitRepo, kind: str) -> str:
    """Make a file of a kind that a clone may name; returns the name."""
    if kind == "above":
        return "../private.txt"
    if kind == "absolute":
        return str(clone.folder.parent / "private.txt")
    if kind == "process":
        return "/proc/self/environ"
    if kind == "link out":
        Path("link.md").symlink_to("../private.txt")
    elif kind == "linked folder":
        Path("link.md").symlink_to("..")
        return "link.md/private.txt"
    elif kind == "link to untracked":
        Path(".env").write_text(PRIVATE)
        Path(".gitignore").write_text(".env\n")
        Path("link.md").symlink_to(".env")
    elif kind == "untracked":
        Path("link.md").write_text(PRIVATE)
        return "link.md"
    elif kind == "git's own":
        Path(".git/link.md").write_text(PRIVATE)
        return ".git/link.md"
    elif kind == "folder":
        return "docs"
    clone.commit()
    return "link.md"


KINDS = [
    *("above", "absolute", "process", "link out", "linked folder", "link to untracked"),
    *("untracked", "git's own", "folder"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_case_names_no_file_that_is_not_the_clones(
    served: Served, clone: GitRepo, command: str, kind: str
) -> None:
    write_cases(lay_out(clone, kind))
    done, asked = served(by_content, *COMMANDS[command], "cases.jsonl", *RUBRIC)
    assert done.code == 65
    assert done.err.startswith("judgekit: cases.jsonl:1: case 0: path: ")
    assert asked == []


def test_a_case_names_no_pipe(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.md")
    write_cases("pipe.md")
    done, _ = served(by_content, "eval", "judge", "cases.jsonl", *RUBRIC)
    assert done.code == 65
    assert "pipe.md cannot be read (it is a folder, a pipe or a device)" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tracked_file_beside_the_cases_is_read(
    served: Served, clone: GitRepo, command: str
) -> None:
    write_cases("docs/a.md")
    done, asked = served(by_content, *COMMANDS[command], "cases.jsonl", *RUBRIC)
    assert done.code == 0
    assert "A sound document." in str([each.text for each in asked])
    assert clone.folder == Path.cwd()


def test_outside_of_a_checkout_any_file_of_the_folder_is_read(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("# A\n\nA sound document.\n")
    write_cases("a.md")
    assert served(by_content, "eval", "judge", "cases.jsonl", *RUBRIC)[0].code == 0


@pytest.mark.usefixtures("clone")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "base"), [("docs/a.md", "."), ("../docs/a.md", "."), ("a.md", "docs")]
)
def test_another_folder_is_named(served: Served, command: str, name: str, base: str) -> None:
    write_cases(name, to="labels/cases.jsonl")
    words = (*COMMANDS[command], "labels/cases.jsonl", *RUBRIC)
    done, _ = served(by_content, *words)
    assert done.code == 65
    done, _ = served(by_content, *words, "--base", base)
    assert done.code == 0


@pytest.mark.usefixtures("clone")
def test_the_message_names_the_option(served: Served) -> None:
    write_cases("../private.txt")
    done, _ = served(by_content, "eval", "judge", "cases.jsonl", *RUBRIC)
    assert (
        "../private.txt is outside of .; name the folder that holds the files with --base DIR"
        in done.err
    )


# Links that are given


def judge_link(served: Served, command: str) -> tuple[int, list[str], str]:
    words: tuple[str, ...] = ("judge", "LINK.md", *RUBRIC)
    if command == "compare":
        words = ("compare", "LINK.md", "docs/a.md", "--prompt", "Which?")
    done, asked = served(by_content, *words)
    return done.code, [each.text for each in asked], done.err


@pytest.mark.parametrize("command", ["judge", "compare"])
def test_a_link_inside_its_checkout_is_followed(
    served: Served, clone: GitRepo, command: str
) -> None:
    clone.write("AGENTS.md", "# Agents\n\nThe rules of agents.\n")
    Path("LINK.md").symlink_to("AGENTS.md")
    clone.commit()
    _, sent, _ = judge_link(served, command)
    assert "The rules of agents." in str(sent)


@pytest.mark.parametrize("command", ["judge", "compare"])
@pytest.mark.parametrize("target", ["../private.txt", "{}/private.txt", ".env", "docs/out.md"])
def test_a_link_of_a_clone_that_leaves_it_is_not_followed(
    served: Served, clone: GitRepo, command: str, target: str
) -> None:
    Path(".env").write_text(PRIVATE)
    Path(".gitignore").write_text(".env\n")
    Path("docs/out.md").symlink_to("../../private.txt")
    Path("LINK.md").symlink_to(target.format(clone.folder.parent))
    clone.commit()
    code, sent, err = judge_link(served, command)
    assert code in (65, 2)
    assert "LINK.md: a link" in err
    assert sent == []


@pytest.mark.parametrize("path", ["../notes.md", "docs/../../notes.md"])
def test_a_file_above_the_checkout_can_be_named(served: Served, clone: GitRepo, path: str) -> None:
    (clone.folder.parent / "notes.md").write_text("# Notes\n")
    done, asked = served(by_content, "judge", path, *RUBRIC)
    assert done.code != 65, done.err
    assert len(asked) > 0


@pytest.mark.parametrize(
    "words", [("judge", "out/private.txt", *RUBRIC), ("judge", "out", *RUBRIC)]
)
def test_a_linked_folder_that_leaves_is_not_followed(
    served: Served, clone: GitRepo, words: tuple[str, ...]
) -> None:
    Path("out").symlink_to("..")
    clone.commit()
    done, asked = served(by_content, *words)
    assert done.code == 65
    assert "a link that leads out of its checkout" in done.err
    assert asked == []


def test_a_link_to_rows_that_leaves_is_not_followed(served: Served, clone: GitRepo) -> None:
    Path("../rows.jsonl").write_text('{"id": 1, "answer": "zebra"}\n')
    Path("rows.jsonl").symlink_to("../rows.jsonl")
    clone.commit()
    done, asked = served(by_content, "judge", "--data", "rows.jsonl", *RUBRIC)
    assert done.code == 65
    assert asked == []


def test_a_link_of_ones_own_is_followed(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("# A\n\nA sound document.\n")
    Path("link.md").symlink_to("a.md")
    assert served(by_content, "judge", "link.md", *RUBRIC)[0].code == 0


def test_python_follows_no_link_out_either(clone: GitRepo, use: Use) -> None:
    Path("LINK.md").symlink_to("../private.txt")
    clone.commit()
    with Loopback(by_content) as server:
        use(server)
        with pytest.raises(InputError, match="leads out of its"):
            judge("LINK.md", rubric="kls", mode="lenient")
