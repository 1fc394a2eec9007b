"""Writes rankings in TREC's run format, which trec_eval, ir-measures and others read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.environment import __version__
from judgekit.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

TAG = f"judgekit-{__version__}"


def check(path: Path, names: Iterable[str]) -> None:
    """Raise `UsageError` when `path` cannot be written, `InputError` when an id does not fit the format."""
    wrong = next((name for name in names if name.split() != [name]), None)
    if wrong is not None:
        raise InputError(f"id {wrong!r}: a TREC run has no place for ids with spaces; rename it")
    try:
        path.open("ab").close()
    except OSError as error:
        raise _unwritable(path, error) from None


def write(path: Path, rankings: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Write each query's ranking, a line `query Q0 document rank score tag` for each document.

    The score counts down to 1. Programs that read runs order by score and break ties in ways of their
    own, some after rounding to 32 bits; whole numbers keep the order that was measured. A query that found
    nothing has no line, which `trec_eval -c` counts as 0. Raises `UsageError`.
    """
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for query, ranking in rankings:
                for rank, document in enumerate(ranking, 1):
                    file.write(f"{query} Q0 {document} {rank} {len(ranking) - rank + 1} {TAG}\n")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written ({error.strerror}); name another file for --run")
