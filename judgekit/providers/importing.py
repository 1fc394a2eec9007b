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
    modules_before = frozenset(sys.modules)
    with _ignore_own_warnings():  # a filter that turns warnings into errors would abort the import
        try:
            return import_it()
        except Exception:  # noqa: BLE001 - a module can raise anything
            _remove_partial_import(package, modules_before)
        # Some failures are temporary, so try again. This is outside the handler, so that the second error
        # isn't shown together with the first.
        return _import_or_remove(package, import_it, modules_before)


def _import_or_remove(
    package: str, import_it: Callable[[], Imported], modules_before: Iterable[str]
) -> Imported:
    """Run `import_it`. If it fails, remove the modules imported so far, and raise its error."""
    try:
        return import_it()
    except BaseException:
        _remove_partial_import(package, modules_before)
        raise


@contextmanager
def _ignore_own_warnings() -> Iterator[None]:
    """Inside the `with` block, ignore the warnings of the current thread, but not those of other threads.

    All threads share the warning filters, so this replaces Python's functions `warn` and `warn_explicit`.
    """
    own_thread = threading.get_ident()
    original_warn = warnings.warn
    original_warn_explicit = warnings.warn_explicit
    # A module that's imported in the block may keep our functions. After the block, they must warn as usual.
    is_inside_block = True

    def is_ignored() -> bool:
        return is_inside_block and threading.get_ident() == own_thread

    def warn(
        message: Warning | str,
        category: type[Warning] | None = None,
        stacklevel: int = 1,
        source: object = None,
        **options: Any,  # noqa: ANN401 - newer versions of Python have more of them
    ) -> None:
        if not is_ignored():
            stacklevel += 1  # skip this function's own frame
            original_warn(message, category, stacklevel, source, **options)

    def warn_explicit(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - handed on as they are
        if not is_ignored():
            original_warn_explicit(*arguments, **options)

    warnings.warn = warn
    warnings.warn_explicit = warn_explicit
    try:
        yield
    finally:
        is_inside_block = False
        # Other code may have replaced our functions in the meantime. If so, keep its replacements.
        if warnings.warn is warn:
            warnings.warn = original_warn
        if warnings.warn_explicit is warn_explicit:
            warnings.warn_explicit = original_warn_explicit


def _remove_partial_import(package: str, modules_before: Iterable[str]) -> None:
    """Remove what a failed import of `package` has left in `sys.modules`, so that it can be tried again.

    Python removes only the package itself. If its modules stayed, the next import would skip them, and they
    wouldn't be attributes of the new package.
    """
    new_modules = set(sys.modules).difference(modules_before)
    # In this order, a package is removed before its modules, so that these become orphans.
    for name in sorted(new_modules):
        parent, _, _ = name.rpartition(".")
        is_part_of_package = name == package or name.startswith(f"{package}.")
        # `package` may have failed because it imports another package that failed. Python has removed that
        # other package, but not its modules.
        is_orphan = parent != "" and parent not in sys.modules
        if is_part_of_package or is_orphan:
            sys.modules.pop(name, None)
