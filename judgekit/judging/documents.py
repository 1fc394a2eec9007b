"""Reads the documents to judge: files, folders, standard input."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.errors import InputError, UsageError
from judgekit.git import GitError, Repository
from judgekit.judging.subject import CONTEXT_CHARS, Author, Document, File, Task
from judgekit.text import encodable, is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO


MAX_BYTES = 64_000_000
STDIN = "-"
_HANDED = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # what a shell has opened for us
_SNIFFED = 8192  # bytes in which a NUL marks a file as binary, as git does it


def expand(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths, each folder replaced by the text files in it that git does not ignore.

    Files in a folder that are binary, empty or not UTF-8 are passed over. A folder without any other file
    is yielded itself, so that reading it says so. A file is looked at when its turn comes. Raises
    `UsageError` for an empty path before anything is yielded.
    """
    given = list(paths)
    if "" in given:
        raise UsageError("an empty path was given; is a variable unset?")
    for path in given:
        if path == STDIN or not Path(path).is_dir():
            yield path
            continue
        texts = map(str, filter(_is_text, _files_in(Path(path))))
        yield next(texts, path)
        yield from texts


def read_file(path: str, stdin: BinaryIO) -> File:
    """Return one file, or standard input for `-`.

    Raises `InputError` in one line when it is missing, a folder, empty, binary, not UTF-8 or too large.
    """
    if path == STDIN:
        return decode(path, stdin.read(MAX_BYTES + 1), "standard input")
    if "\0" not in path and Path(path).is_dir():
        raise InputError(f"{path}: the folder has no text file, apart from files that git ignores")
    try:
        # Reading must come to an end: a file's does, and so do a shell's `<(…)` and `/dev/stdin`.
        if not stat.S_ISREG(Path(path).stat().st_mode) and not str(Path(path)).startswith(_HANDED):
            raise InputError(
                f"{path}: not a file (a pipe or a device); pass its content on standard input: -"
            )
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InputError(f"{path}: cannot be read ({reason})") from None
    return decode(path, data)


def decode(path: str, data: bytes, name: str | None = None) -> File:
    """Return the file at `path` that holds `data`; errors call it `name`, by default its path.

    Raises `InputError` in one line when it is empty, binary, not UTF-8 or too large.
    """
    shown = encodable(name or path)
    if len(data) > MAX_BYTES:
        raise InputError(f"{shown}: larger than {MAX_BYTES // 1_000_000} MB; judge a part of it")
    if b"\0" in data[:_SNIFFED]:
        raise InputError(f"{shown}: a binary file; judgekit judges only text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    if is_blank(text):
        raise InputError(f"{shown}: empty; nothing to judge")
    return File(encodable(path), text[:CONTEXT_CHARS], hashlib.sha256(data).hexdigest(), len(text))


def document(
    files: Sequence[File], task_id: str | None = None, task: Task | None = None, family: str | None = None
) -> Document:
    """Return files as one subject; without `task_id` it is named by the first file and its hash.

    `family` names the models that wrote them, where it is known: those of one company, or several.
    """
    name = encodable(task_id or "") or task_id_of(files[0])
    return Document(tuple(files), name, task or Task(), Author(family=family))


def task_id_of(file: File) -> str:
    """Return the name of a file as a subject of its own: it changes with its content."""
    return f"{file.path}@{file.sha256[:16]}"


def _is_text(path: Path) -> bool:
    """Whether a file holds text; one that cannot be read counts as such, so that reading it says why."""
    try:
        with path.open("rb") as file:
            start = file.read(_SNIFFED)
    except OSError:
        return True
    try:
        # The last character may be cut; final=False leaves it undecided.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(start, final=False)
    except UnicodeDecodeError:
        return False
    return "\0" not in text and not is_blank(text)


def _files_in(folder: Path) -> list[Path]:
    """Return the files in a folder that git tracks or would track; all that are not hidden without git."""
    try:
        listed = Repository(folder).ask("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        paths = {folder / os.fsdecode(name) for name in listed.split(b"\0") if name}
    except GitError:
        paths = set()
        for base, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths.update(Path(base) / name for name in names if not name.startswith("."))
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())
