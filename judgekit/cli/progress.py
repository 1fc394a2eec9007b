"""Shows progress: on a terminal in one line that's overwritten, in a log by a line now and then."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from typing import TYPE_CHECKING

from judgekit.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG_SECONDS = 10.0  # between lines if there's no terminal
SHOWN_SECONDS = 0.2  # between changes on a terminal


def is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and not output.current.is_quiet


def show(text: str) -> None:
    """Replace the progress line on a terminal; "" removes it. Does nothing without a terminal."""
    if not is_watched():
        return
    # A longer line would wrap, and could then not be overwritten.
    width = shutil.get_terminal_size().columns - 1
    back_and_erase = "\r\x1b[K"
    sys.stderr.write(f"{back_and_erase}{output.make_printable(text)[:width]}")
    sys.stderr.flush()


def clear() -> None:
    """Erase the progress line, to make room for results."""
    show("")


def count_to(total: int, what: str) -> Callable[[int], None]:
    """Build a function that shows how many of `total` things are done, until all are."""

    def show_count(done: int) -> None:
        show(f"{done} of {total} {what}" if done < total else "")

    return show_count


@contextlib.contextmanager
def follow(describe: Callable[[], str]) -> Iterator[None]:
    """In this context, keep showing the text that `describe` returns.

    On a terminal, it's a progress line; otherwise, an occasional note, e.g. for a log.
    """
    print_line, interval = _choose_line_printer()  # interval in seconds
    is_over = threading.Event()

    def print_changes() -> None:
        """Print the text at each interval if it has changed, until the context ends."""
        last_line = ""
        while not is_over.wait(interval):
            line = describe()
            if line != last_line:  # a batch can take hours, so don't repeat lines
                print_line(line)
            last_line = line

    thread = threading.Thread(target=print_changes, daemon=True)
    thread.start()
    show(describe())  # don't wait for the first interval; does nothing without a terminal
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        show("")  # removes the progress line


def _choose_line_printer() -> tuple[Callable[[str], None], float]:
    """Choose the function that prints progress, and the seconds between its lines."""
    if is_watched():
        return show, SHOWN_SECONDS
    return output.note, LOG_SECONDS
