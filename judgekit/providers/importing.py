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
    """Run `import_it`, which imports `package`, and return its result.

    If the import fails, the modules imported so far are removed, and the import is tried once more. Raises
    the second error.
    """
    # Ignore warnings, because a filter that turns them into errors would abort the import.
    modules_before = frozenset(sys.modules)
    with _ignore_own_warnings():
        try:
            return import_it()
        except Exception:  # noqa: BLE001 - a module can raise anything
            _remove_partial_import(package, modules_before)
        try:
            return import_it()
        except BaseException:
            _remove_partial_import(package, modules_before)
            raise


@contextmanager
def _ignore_own_warnings() -> Iterator[None]:
    """Inside the `with` block, ignore warnings of the current thread.

    Other threads still warn. They share this thread's warning filters, so replace Python's functions instead.
    """
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
        """Pass on warnings of all threads except the importing one."""
        if is_importing and threading.get_ident() == importing_thread:
            return
        stacklevel += 1  # skip this function's own frame
        original_warn(message, category, stacklevel, source, **options)

    def warn_explicit(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - handed on as they are
        if is_importing and threading.get_ident() == importing_thread:
            return
        original_warn_explicit(*arguments, **options)

    warnings.warn = warn
    warnings.warn_explicit = warn_explicit
    try:
        yield
    finally:
        # A module may have imported our `warn` and continue to call it. From now on, it ignores nothing.
        is_importing = False
        if warnings.warn is warn:
            warnings.warn = original_warn
        if warnings.warn_explicit is warn_explicit:
            warnings.warn_explicit = original_warn_explicit


def _remove_partial_import(package: str, modules_before: Iterable[str]) -> None:
    """Remove all modules of `package`, and new modules without a parent, from `sys.modules`."""
    # After a failed import, Python only removes the package itself. The next import wouldn't execute the
    # remaining modules again, so they wouldn't become attributes of the package.
    new_modules = set(sys.modules).difference(modules_before)
    for name in sorted(new_modules):  # a package sorts before its modules
        parent, _, _ = name.rpartition(".")
        is_part_of_package = name == package or name.startswith(f"{package}.")
        is_orphan = parent != "" and parent not in sys.modules
        if is_part_of_package or is_orphan:
            sys.modules.pop(name, None)
