"""Which files are read, which are refused in one line, and what folders give."""

from __future__ import annotations

import io
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from judgekit.errors import InputError, UsageError
from judgekit.judging import documents
from judgekit.judging.documents import CONTEXT_CHARS

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = io.BytesIO()


def test_a_file_is_read_with_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"\xef\xbb\xbfHello")
    read = documents.read_file(str(path), NOTHING)
    assert (read.text, read.total, read.path) == ("Hello", 5, str(path))
    assert len(read.sha256) == 64
    path.write_text("\u200b" * 20_000 + "a")  # one visible letter is something to judge
    assert documents.read_file(str(path), NOTHING).text.endswith("a")
    path.write_text("word " * 1_000_000)  # it is cut and knows it
    read = documents.read_file(str(path), NOTHING)
    assert (len(read.text), read.total) == (CONTEXT_CHARS, 5_000_000)
    assert documents.read_file("-", io.BytesIO(b"Hello")).text == "Hello"
    with pytest.raises(InputError, match=r"^standard input: empty"):
        documents.read_file("-", NOTHING)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("\ufeff \u2060\n\u3164\ufe0f".encode() * 5_000, "empty; nothing to judge"),
        (b"\x89PNG\r\n\0\0", "a binary file"),
        ("Grüße".encode("latin-1"), "not UTF-8 (byte 2)"),
    ],
)
def test_what_cannot_be_judged_is_one_line(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        documents.read_file(str(path), NOTHING)
    assert str(caught.value).startswith(f"{path}: {problem}")


def test_what_is_not_there_or_too_large_is_one_line(tmp_path: Path) -> None:
    for path in ("missing.md", "nul\0.md"):
        with pytest.raises(InputError, match=r"cannot be read \("):
            documents.read_file(path, NOTHING)
    huge = tmp_path / "huge.md"
    with huge.open("wb") as file:
        file.truncate(documents.MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than 64 MB"):
        documents.read_file(str(huge), NOTHING)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders, and no /dev/fd")
def test_a_pipe_is_refused_unless_a_shell_hands_it_over(tmp_path: Path) -> None:
    pipe, link = tmp_path / "f.md", tmp_path / "link.md"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    refused = r"not a file \(a pipe or a device\); pass its content on standard input: -"
    for path in (pipe, link, "/dev/zero"):
        with pytest.raises(InputError, match=refused):
            documents.read_file(str(path), NOTHING)
    reading, writing = os.pipe()
    os.write(writing, b"Hello")
    os.close(writing)
    try:
        assert documents.read_file(f"/dev/fd/{reading}", NOTHING).text == "Hello"
    finally:
        os.close(reading)


def fill(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / ".hidden").mkdir()
    for name in ("b.md", "a.md", "sub/c.md", ".hidden/d.md", "ignored.md"):
        (folder / name).write_text("text")
    (folder / "picture.png").write_bytes(b"\x89PNG\0")


def names(folder: Path) -> list[str]:
    return [path.removeprefix(f"{folder}/") for path in documents.expand([str(folder)])]


def test_a_folder_gives_its_text_files_and_a_repository_what_git_does_not_ignore(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "long.md").write_text("é" * 8191)
    assert names(tmp_path) == ["a.md", "b.md", "ignored.md", "long.md", "sub/c.md"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored.md\nprivate/\n")
    subprocess.run(["git", "-C", str(tmp_path), "add", "a.md"], check=True)
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret.txt").write_text("secret")
    assert names(tmp_path) == [".gitignore", ".hidden/d.md", "a.md", "b.md", "long.md", "sub/c.md"]
    (path,) = documents.expand([str(private)])  # even where everything is ignored
    with pytest.raises(InputError, match="the folder has no text file, apart from files that git ignores"):
        documents.read_file(path, NOTHING)


def test_a_folder_that_poses_as_a_repository_runs_nothing(tmp_path: Path) -> None:
    """Anybody can commit a folder that looks like a bare repository with a configuration of its own."""
    trap, mark = tmp_path / "docs", tmp_path / "ran"
    (trap / "objects").mkdir(parents=True)
    (trap / "refs").mkdir()
    (trap / "HEAD").write_text("ref: refs/heads/main\n")
    (trap / "config").write_text(
        f'[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "touch {mark}; false"\n'
    )
    (trap / "page.md").write_text("text")
    found = [path.rpartition("/")[2] for path in documents.expand([str(trap)])]
    assert "page.md" in found
    assert not mark.exists()


def test_an_empty_path_is_not_the_current_folder() -> None:
    with pytest.raises(UsageError, match="is a variable unset"):
        next(documents.expand(["a.md", ""]))
    assert list(documents.expand(["b.md", "-", "a.md"])) == ["b.md", "-", "a.md"]
