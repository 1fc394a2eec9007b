"""The environment of whoever asks: this process's own, or the one that a request brought with it.

One process may work for several callers, each with keys and settings of its own. Standard library only: the
prompt hook imports this.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import ContextVar, Token
    from types import TracebackType

__version__ = "0.1.0"

# Every variable of ours but those of the configuration's keys, JUDGEKIT_<SECTION>_<KEY>.
NAMES = (
    "JUDGEKIT_API_BASE",
    "JUDGEKIT_API_KEY",
    "JUDGEKIT_DEEP_MODEL",
    "JUDGEKIT_DISABLE",
    "JUDGEKIT_ENGINE",
    "JUDGEKIT_HOME",
    "JUDGEKIT_HOOK_BEFORE",
    "JUDGEKIT_INSIDE",
    "JUDGEKIT_LOCAL_MODEL",
    "JUDGEKIT_LOCAL_THREADS",
    "JUDGEKIT_MODEL",
    "JUDGEKIT_MODELS",
    "JUDGEKIT_QUICK_MODEL",
    "JUDGEKIT_RECORD",
    "JUDGEKIT_REPLAY",
    "JUDGEKIT_SERVER_TOKEN",
    "JUDGEKIT_SKIP",
    "JUDGEKIT_TIEBREAKER_MODEL",
    "JUDGEKIT_TRACEBACK",
)
_OFF = ("", "0", "false", "no", "off")
_brought: ContextVar[Mapping[str, str] | None] | None = None  # made when a request first brings one


def environ() -> Mapping[str, str]:
    """Return the variables that hold for the current caller."""
    brought = None if _brought is None else _brought.get()
    return os.environ if brought is None else brought


def is_on(variable: str) -> bool:
    """Whether a variable that switches something on is set, and to anything but a no."""
    return environ().get(variable, "").lower() not in _OFF


class Brought:
    """While it is entered, `environ` returns these variables: in this thread or task, and those it starts."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._before: Token[Mapping[str, str] | None] | None = None

    def __enter__(self) -> None:
        self._before = _variable().set(self._variables)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            _variable().reset(self._before)


def _variable() -> ContextVar[Mapping[str, str] | None]:
    global _brought  # noqa: PLW0603 - importing `contextvars` costs the hook a thirtieth of starting Python
    if _brought is None:
        from contextvars import ContextVar  # noqa: PLC0415

        _brought = ContextVar("environment", default=None)
    return _brought
