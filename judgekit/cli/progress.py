"""How far something is: one line on a terminal, in place of the one before; in a log a line now and then."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from typing import TYPE_CHECKING

from judgekit.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG_SECONDS = 10.0  # between lines, where there is no terminal
SHOWN_SECONDS = 0.2  # between changes on a terminal


def is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and not output.current.quiet


def show(text: str) -> None:
    """Show how far something is in place of what was shown before; "" ends it. Only on a terminal."""
    if is_watched():
        width = shutil.get_terminal_size().columns - 1  # a longer line would not be written over
        sys.stderr.write(f"\r\x1b[K{output.printable(text)[:width]}")
        sys.stderr.flush()


def clear() -> None:
    """Take away what is shown, so that a line of the result can be printed in its place."""
    show("")


def count_to(total: int, what: str) -> Callable[[int], None]:
    """Return what shows how many of `total` things are done; the last one ends it."""

    def show_count(done: int) -> None:
        show(f"{done} of {total} {what}" if done < total else "")

    return show_count


@contextlib.contextmanager
def follow(describe: Callable[[], str]) -> Iterator[None]:
    """Show, while inside, what `describe` returns as it changes; where there is no terminal, note it."""
    is_over = threading.Event()
    print_line: Callable[[str], None] = output.note
    seconds = LOG_SECONDS
    if is_watched():
        print_line = show
        seconds = SHOWN_SECONDS

    def watch() -> None:
        before = ""
        while not is_over.wait(seconds):
            line = describe()
            if line != before:  # a batch takes hours
                print_line(line)
            before = line

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    show(describe())
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        show("")
