"""Clients that begin a request and do not go on."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

import pytest
from serving import Serving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

BEGUN = {
    "nothing": b"",
    "half a head": b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
    "no body": b"POST /v1/judge HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\n\r\n",
}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Return a server that waits for seconds only."""
    code = (
        "from judgekit.engine import team as p; p.HEAD_SECONDS = p.BODY_SECONDS = 1; p._LOOK = 0.2; "
        "import sys; from judgekit.__main__ import main; sys.exit(main())"
    )
    model = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", "JUDGEKIT_MODEL": "stand-in"}
    found = Serving(code=code, JUDGEKIT_HOME=str(tmp_path_factory.mktemp("team")), **model)
    yield found
    found.end()


@pytest.mark.parametrize("begun", BEGUN)
def test_they_are_hung_up_on(serving: Serving, begun: str) -> None:
    port = int(serving.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(60)
        text = BEGUN[begun]
        connection.sendall(text % serving.token.encode() if b"%s" in text else text)
        start = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    assert time.monotonic() - start < 50
