"""The engine's process: `python -m judgekit.engine.server FOLDER COMPAT_KEY CODE`, started by `client.start`.

It becomes the only engine of its place and listens, releases its starter, and only then loads what judging
needs; requests that arrive in between wait.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from judgekit.engine import process
from judgekit.engine.client import TAKEN_EXIT_CODE, EngineAddress

if TYPE_CHECKING:
    from collections.abc import Sequence

_REQUIRED_MODULES = ("fastapi", "litellm", "pydantic", "uvicorn")
_MAX_DESCRIPTORS = 65536
_NOT_INSTALLED_EXIT_CODE = 69
_CANNOT_LISTEN_EXIT_CODE = 73
_FAULT_EXIT_CODE = 70  # of sysexits.h: unavailable, cannot create, software


def main(arguments: Sequence[str]) -> int:
    """Run the starter process created by `client.start`, and return its exit code.

    Once the socket listens, the starter forks: the parent returns 0, and the child becomes the engine.
    """
    if os.name != "nt":
        # Close inherited pipes, because their readers would otherwise wait until the engine ends.
        os.closerange(3, _MAX_DESCRIPTORS)
        os.chdir("/")  # so that the caller's folder can be removed
    if not all(importlib.util.find_spec(name) for name in _REQUIRED_MODULES):
        return _NOT_INSTALLED_EXIT_CODE

    address = EngineAddress(*arguments)
    try:
        engine_lock = process.become_engine(address)
    except OSError:
        return _CANNOT_LISTEN_EXIT_CODE
    # An engine is listening now, this one or another, so the last start didn't fail.
    with suppress(OSError):
        os.unlink(address.tried_path)
    if engine_lock is None:  # another engine is at the address
        return TAKEN_EXIT_CODE

    if os.name != "nt":
        is_parent = os.fork() != 0
        if is_parent:
            return 0
        os.setsid()  # so that signals to the caller's terminal don't reach the engine
    return _serve(engine_lock, process.Log(address.log_path))


def _serve(engine_lock: process.EngineLock, log: process.Log) -> NoReturn:
    """Serve requests until the engine shuts down, then end this process. Errors are logged."""
    code = 0
    try:
        # Write the process id to the lock file, so that other processes can list and stop this engine.
        os.pwrite(engine_lock.lock_descriptor, f"{os.getpid()}\n".encode(), 0)
        log.add("listening")

        # The import takes half a second. It comes after the socket listens, so that clients can connect
        # meanwhile. It creates no garbage, so it's faster without garbage collection.
        gc.disable()
        from judgekit.engine import lifecycle  # noqa: PLC0415 - see above

        gc.enable()
        lifecycle.run(engine_lock, log)
    except BaseException as error:  # noqa: BLE001 - the boundary: nothing else would report it
        log.add_error(error)
        code = _FAULT_EXIT_CODE
    finally:
        engine_lock.end()
        # Exit immediately, without waiting for threads or freeing memory.
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
