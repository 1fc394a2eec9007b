"""Random bytes that nobody can foresee, drawn from the system many at a time: each draw is a call of its own.

Where system calls are dear, a judge that asked for every nonce by itself spent a tenth of its time on it.
"""

from __future__ import annotations

import os
from threading import Lock

_DRAWN = 4096

_lock = Lock()
_stock = b""


def token(size: int) -> str:
    """Return `size` fresh random bytes, in hexadecimal digits."""
    global _stock  # noqa: PLW0603 - what was drawn and is not used up yet
    with _lock:
        if len(_stock) < size:
            _stock = os.urandom(max(_DRAWN, size))
        taken, _stock = _stock[:size], _stock[size:]
    return taken.hex()


def _forget() -> None:
    """Draw anew: a process that was forked must not hand out what its parent hands out."""
    global _lock, _stock  # another thread of the parent may have held the lock
    _lock, _stock = Lock(), b""


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget)
