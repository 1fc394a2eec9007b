"""The files that commands write their results and pages to: checked before anything is asked."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import outputs
from judgekit.cli import output
from judgekit.config.locks import HeldError, hold_beside
from judgekit.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def write_results_to(path: Path | None) -> Path | None:
    """Have the results written to a file when the command ends; raises as `refuse_read_file` does."""
    _check_folder(path)
    output.current.file = refuse_read_file(path)
    return path


def check_page(path: Path | None) -> Path | None:
    """Return where a page is to be written; raises as `refuse_read_file` does, and for another ending."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html {path}: name a file that ends in .html")
    _check_folder(path)
    return refuse_read_file(path)


def check_also(path: Path, word: str) -> None:
    """Refuse a file of --also, which `word` names, as `refuse_read_file` does."""
    _check_folder(path)
    _refuse_output(path)
    if path.exists() and _count_words(path, own_word=word):
        raise _reads(path)


def _check_folder(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written; there is no folder {path.parent}")


def refuse_read_file(path: Path | None) -> Path | None:
    """Return where to write; raises `UsageError` where the command reads this file or none may be written."""
    if path is None:
        return None
    _refuse_output(path)
    # Once it's named as what is written, and once more as what is read.
    if path.exists() and _count_words(path) > 1:
        raise _reads(path)
    return path


def _refuse_output(path: Path) -> None:
    if not outputs.is_stream(str(path)):
        with _named_output(path):
            outputs.place_of(str(path))


def _count_words(path: Path, own_word: str = "") -> int:
    """Count the words of the command line that name a file, without the one by which it's written."""
    named = 0
    for word in output.current.words:
        if own_word and word in (own_word, f"--also={own_word}"):
            continue
        value = word.rpartition("=")[2] if word.startswith("-") else word
        if Path(value).resolve() == path.resolve():
            named += 1
    return named


def _reads(path: Path) -> UsageError:
    return UsageError(f"{path}: the command reads this file; name another one for the result")


def write_file(path: Path, text: str) -> None:
    """Write a file at once, so that none is half written (a device as it is), and say so."""
    with _named_output(path):
        if outputs.is_stream(str(path)):
            path.write_text(text, encoding="utf-8")
        else:
            try:
                with hold_beside(outputs.place_of(str(path))):
                    outputs.write_atomically(str(path), text)
            except HeldError as error:
                raise UsageError(f"{path}: {error}; wait for it, or name another file") from None
    output.note(f"Wrote {path}")


@contextlib.contextmanager
def _named_output(path: Path) -> Iterator[None]:
    try:
        yield
    except outputs.RefusedOutputError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
