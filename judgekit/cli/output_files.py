"""The files that commands write their results and pages to, checked before any model is asked."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import outputs
from judgekit.cli import output
from judgekit.config.locks import HeldError, hold_for_writing
from judgekit.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def write_results_to(path: Path | None) -> Path | None:
    """Have results written to a file when the command ends; raises the errors of `refuse_input`."""
    _check_folder(path)
    output.current.result_file = refuse_input(path)
    return path


def check_page(path: Path | None) -> Path | None:
    """Check that a page can be written, and return its path; None if there's no page.

    Raises `UsageError` if it doesn't end in .html or is also an input, and `InputError` if there's no such
    folder.
    """
    if path is None:
        return None
    is_page = path.suffix.lower() in (".html", ".htm")
    if not is_page:
        raise UsageError(f"--html {path}: name a file that ends in .html")
    _check_folder(path)
    return refuse_input(path)


def check_also(path: Path, word: str) -> None:
    """Check the output file of an --also option; raises `UsageError` if it's also an input.

    `word` is the option's value on the command line.
    """
    _check_folder(path)
    _refuse_unsafe_output(path)
    # If the file exists and the command line names it again, it's an input.
    is_input = path.exists() and _count_mentions(path, own_word=word) > 0
    if is_input:
        raise _build_input_error(path)


def _check_folder(path: Path | None) -> None:
    """Raise `InputError` if the folder for an output file doesn't exist."""
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written; there is no folder {path.parent}")


def refuse_input(path: Path | None) -> Path | None:
    """Check and return an output path; raises `UsageError` if it's also an input."""
    if path is None:
        return None
    _refuse_unsafe_output(path)
    # The path is named once as the output. A second mention means that it's also an input.
    if path.exists() and _count_mentions(path) > 1:
        raise _build_input_error(path)
    return path


def _refuse_unsafe_output(path: Path) -> None:
    """Raise `UsageError` for an unsafe output path, such as a link that came with a clone."""
    if not outputs.is_stream(str(path)):
        with _name_output_errors(path):
            outputs.resolve_output_path(str(path))


def _count_mentions(path: Path, own_word: str = "") -> int:
    """Count the words in the command line that name a file.

    If it's the file of an --also option, `own_word` is the option's value, which isn't counted.
    """
    # The option is written as `--also FILE` or `--also=FILE`.
    own_words = [own_word, f"--also={own_word}"] if own_word else []
    # `output` keeps the words of the command line that started this program.
    other_words = [word for word in output.current.command_words if word not in own_words]
    return sum(_mentions_file(word, path) for word in other_words)


def _mentions_file(word: str, path: Path) -> bool:
    """Whether a word of the command line names a file, by itself or as in `--option=FILE`."""
    value = word
    if word.startswith("-"):
        _, _, value = word.rpartition("=")
    return Path(value).resolve() == path.resolve()


def _build_input_error(path: Path) -> UsageError:
    return UsageError(f"{path}: the command reads this file; name another one for the result")


def write_file(path: Path, text: str) -> None:
    """Write a file atomically (or to a device, directly), and print a note.

    Raises `UsageError` if another command is writing the file.
    """
    with _name_output_errors(path):
        if outputs.is_stream(str(path)):
            path.write_text(text, encoding="utf-8")
        else:
            _replace_file(path, text)
    output.note(f"Wrote {path}")


def _replace_file(path: Path, text: str) -> None:
    """Write a file atomically; raises `UsageError` if another command is writing it."""
    # Lock the file itself, even if `path` is a link to it.
    real_path = outputs.resolve_output_path(str(path))
    try:
        with hold_for_writing(real_path):
            outputs.write_atomically(str(path), text)
    except HeldError as error:
        raise UsageError(f"{path}: {error}; wait for it, or name another file") from None


@contextlib.contextmanager
def _name_output_errors(path: Path) -> Iterator[None]:
    """Turn errors while writing a file into `UsageError` or `InputError` with the file's name."""
    try:
        yield
    except outputs.RefusedOutputError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
