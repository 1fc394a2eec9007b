"""Imports a large package completely or not at all, even if other threads change the warning filters."""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Imported = TypeVar("Imported")


def import_whole(package: str, import_it: Callable[[], Imported]) -> Imported:
    """Run `import_it` and return its result. If it fails, remove its remains and try once more.

    This thread's warnings are dropped meanwhile: a filter that turns warnings into errors would abort the
    import. A second failure is raised, with nothing of `package` left in `sys.modules`.
    """
    modules_before = frozenset(sys.modules)
    with _warnings_of_this_thread_dropped():
        try:
            return import_it()
        except Exception:  # noqa: BLE001 - whatever the code of a module raises
            _remove_remains(package, modules_before)
        try:
            return import_it()
        except BaseException:
            _remove_remains(package, modules_before)
            raise


@contextmanager
def _warnings_of_this_thread_dropped() -> Iterator[None]:
    """Drop this thread's warnings without touching the filters, which all threads share."""
    importing_thread = threading.get_ident()
    original_warn = warnings.warn
    original_warn_explicit = warnings.warn_explicit
    is_importing = True

    def warn(
        message: Warning | str,
        category: type[Warning] | None = None,
        stacklevel: int = 1,
        source: object = None,
        **options: Any,  # noqa: ANN401 - newer versions of Python have more of them
    ) -> None:
        if is_importing and threading.get_ident() == importing_thread:
            return
        # This function adds one frame between the warning and the line it's about.
        original_warn(message, category, stacklevel + 1, source, **options)

    def warn_explicit(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - handed on as they are
        if is_importing and threading.get_ident() == importing_thread:
            return
        original_warn_explicit(*arguments, **options)

    warnings.warn = warn
    warnings.warn_explicit = warn_explicit
    try:
        yield
    finally:
        # A module may have imported this function by name; from now on it just passes everything
        # on.
        is_importing = False
        if warnings.warn is warn:
            warnings.warn = original_warn
        if warnings.warn_explicit is warn_explicit:
            warnings.warn_explicit = original_warn_explicit


def _remove_remains(package: str, modules_before: Iterable[str]) -> None:
    """Remove the modules of `package`, and new ones whose own package Python has already removed.

    A module left without its package would never become an attribute of it when the package is imported
    again.
    """
    new_modules = set(sys.modules).difference(modules_before)
    for name in sorted(new_modules):  # a package sorts before its modules
        parent, _, _ = name.rpartition(".")
        is_part_of_package = name == package or name.startswith(f"{package}.")
        is_orphan = parent != "" and parent not in sys.modules
        if is_part_of_package or is_orphan:
            sys.modules.pop(name, None)
