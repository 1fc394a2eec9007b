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

    If it fails, the modules that it left in `sys.modules` are removed, and it's run once more. If it fails
    again, they're removed again, and the second error is raised. This thread's warnings are dropped
    meanwhile, since a filter that turns warnings into errors would abort the import.
    """
    modules_before = frozenset(sys.modules)
    with _drop_warnings_of_this_thread():
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
def _drop_warnings_of_this_thread() -> Iterator[None]:
    """Drop this thread's warnings inside the `with` block.

    The filters of `warnings` are left alone, since all threads share them.
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
        """Drop a warning of the importing thread. Pass on any other."""
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
        # A module may have imported our `warn` by name and go on calling it. From now on it only passes
        # warnings on.
        is_importing = False
        if warnings.warn is warn:
            warnings.warn = original_warn
        if warnings.warn_explicit is warn_explicit:
            warnings.warn_explicit = original_warn_explicit


def _remove_remains(package: str, modules_before: Iterable[str]) -> None:
    """Remove from `sys.modules` all modules of `package`, and new modules whose own package is gone.

    After a failed import, Python removes a package but not its modules. If the package was imported again,
    such a module wouldn't be executed again, and so wouldn't become an attribute of the package.
    """
    new_modules = set(sys.modules).difference(modules_before)
    for name in sorted(new_modules):  # a package sorts before its modules
        parent, _, _ = name.rpartition(".")
        is_part_of_package = name == package or name.startswith(f"{package}.")
        is_orphan = parent != "" and parent not in sys.modules
        if is_part_of_package or is_orphan:
            sys.modules.pop(name, None)
