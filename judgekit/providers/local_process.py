"""The child process of `judgekit.providers.local`: llama.cpp's own server on a free port of this machine.

Reads its settings as one JSON line on stdin, prints the address on stdout when the model is loaded, and
leaves when stdin closes, which happens however the parent ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

LOG_BYTES = 1_000_000
_PROMPT_CACHE_MIB = 256
_PARENT_POLL = 1.0


def main() -> None:
    """Serve until the parent is gone."""
    parent = os.getppid()
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    report = os.fdopen(os.dup(1), "w", newline="\n")
    os.dup2(2, 1)  # what the library prints belongs into the log
    _bound_the_log()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_leave_with_stdin, daemon=True).start()
    server = _server(settings)
    with suppress(BrokenPipeError), report:
        report.write(f"{server.listening_address}\n")
    while os.getppid() == parent:  # a fork of the parent could keep stdin open
        time.sleep(_PARENT_POLL)
    os._exit(0)


def _server(settings: dict[str, Any]) -> Any:  # noqa: ANN401 - the library has no types
    import xllamacpp  # noqa: PLC0415 - 100 MB that only this process needs

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cache_prompt = True
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.ui = params.endpoint_slots = False
    params.cors_origins = ""
    params.fit_params = False  # would load the model twice
    params.verbosity = 1
    return xllamacpp.Server(params)


def _leave_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _bound_the_log() -> None:
    with suppress(ImportError):  # not on Windows
        import resource  # noqa: PLC0415 - POSIX only

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full log is no reason to die
        resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_BYTES, LOG_BYTES))


if __name__ == "__main__":
    main()
