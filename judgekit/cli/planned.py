"""`--print` of `install` and `uninstall`: what a file would become, and nothing is changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from judgekit.cli.output import complain

if TYPE_CHECKING:
    from pathlib import Path


class Change(Protocol):
    """What would become of one file; None stands for no file."""

    @property
    def path(self) -> Path: ...  # noqa: D102 - said above

    @property
    def before(self) -> bytes | None: ...  # noqa: D102

    @property
    def after(self) -> bytes | None: ...  # noqa: D102

    @property
    def changes(self) -> bool: ...  # noqa: D102


def show(change: Change) -> int:
    """Print the file as it would be, and on stderr what would be done; return the exit code."""
    if not change.changes:
        absent = change.before is None
        complain(f"no {change.path}" if absent else f"{change.path} would stay as it is")
    elif change.after is None:
        complain(f"would remove {change.path}")
    else:
        complain(f"would write {change.path}")
    if change.after is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(change.after)
        sys.stdout.flush()
    return 0
