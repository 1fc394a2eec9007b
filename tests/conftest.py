"""Every test runs in a world of its own: no home folder, no keys, no settings of the person who runs it."""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from judgekit.gate.reviewers import CI_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

# No test says how long something takes, and a busy machine is no fault.
hypothesis.settings.register_profile("judgekit", deadline=None)
hypothesis.settings.register_profile("fast", deadline=None, max_examples=25)
hypothesis.settings.load_profile("judgekit")

# A shell makes its background jobs ignore Ctrl-C, and the programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

KEPT = {
    f"JUDGEKIT_TEST_{what}"
    for what in ("DATA", "MODELS", "CLAUDE", "CLIENTS", "DECIDER", "POSTGRES")
}


def _foreign(name: str) -> bool:
    words = (
        "_API_KEY",
        "_TOKEN",
        "_API_BASE",
        "_BASE_URL",
        "AWS_",
        "AZURE_",
        "VERTEX",
        "GOOGLE_",
        "OLLAMA_",
    )
    own = name.startswith(("JUDGEKIT_", "CLAUDE", "CODEX_", "GEMINI_", "XDG_", "GIT_"))
    of_ci = name in CI_VARIABLES
    return name not in KEPT and (own or of_ci or any(word in name for word in words))


@pytest.fixture(autouse=True)
def isolated(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Give the test a private home folder, with nothing in the environment that matters, and yield it.

    What a command puts into the environment is gone before a fixture of another module begins. What keeps
    litellm off the network stays: a thread of the test before may still be importing it.
    """
    home, before = tmp_path_factory.mktemp("home"), set(os.environ)
    for name in [name for name in os.environ if _foreign(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("JUDGEKIT_HOME", str(home / "judgekit"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv(
        "PATH", str(Path(sys.executable).parent), prepend=os.pathsep
    )  # as once installed
    monkeypatch.setenv("JUDGEKIT_ENGINE", "0")  # what tests the engine starts one of its own
    yield home
    for name in os.environ.keys() - before:
        if not name.startswith("LITELLM_"):
            del os.environ[name]


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    import socket  # noqa: PLC0415 - patched here and nowhere else

    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else None
        if host is not None and host not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"a test tried to reach {host}")
        connect(self, address)  # type: ignore[arg-type]  # socket accepts more than its stub says

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(autouse=True, scope="session")
def _certificates_are_read_once() -> Iterator[None]:
    """Share one TLS context among clients of the same certificates: reading them takes 40 ms each time.

    The servers of these tests speak plain HTTP, but libraries make a context for each client.
    """
    import ssl  # noqa: PLC0415 - patched here and nowhere else

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield
