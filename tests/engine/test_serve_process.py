"""`judgekit serve` as a process: where it listens, what it refuses, how it ends."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx2
import pytest
from loopback import Loopback, says
from sent import document
from serving import Serving

from judgekit.engine.team import Address, serve
from judgekit.engine.tokens import user_tokens
from judgekit.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loopback import Answer, Asked

pytestmark = pytest.mark.slow

NOBODY = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", "JUDGEKIT_MODEL": "stand-in"}
GOOD = '{"reasoning": "sound", "scores": {"semantic": 5, "pragmatic": 5, "syntactic": 5}, "findings": []}'


@pytest.fixture
def slow() -> Iterator[Loopback]:
    def answer(asked: Asked) -> Answer:
        time.sleep(1)
        return says(GOOD)

    with Loopback(answer) as server:
        yield server


def test_what_has_been_begun_is_finished_when_it_is_told_to_stop(slow: Loopback) -> None:
    serving = Serving(JUDGEKIT_API_BASE=slow.base, JUDGEKIT_MODEL="stand-in")
    try:
        with httpx2.Client(
            base_url=serving.url, headers={"Authorization": f"Bearer {serving.token}"}
        ) as client:
            assert client.get("/healthz").status_code == 200
            body = {"document": document(), "wish": {"mode": "lenient"}}
            ends = time.monotonic() + 30

            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(client.post, "/v1/judge", json=body, timeout=30)
                while not slow.requests and time.monotonic() < ends:
                    time.sleep(0.02)
                serving.process.send_signal(signal.SIGTERM)
                assert answer.result(30).json()["verdict"] == "accept"
    finally:
        code = serving.end()
    assert code in (0, -signal.SIGTERM)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_with_a_certificate_it_speaks_tls(tmp_path: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    certificate = tmp_path / "cert.pem"
    key = tmp_path / "key.pem"
    serving = Serving("--tls-cert", str(certificate), "--tls-key", str(key), **NOBODY)
    try:
        assert serving.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate))
        assert httpx2.get(f"{serving.url}/healthz", verify=trusting).json()["status"] == "ok"
    finally:
        serving.end()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "judge.example.org"])
def test_a_network_hears_no_token_in_the_clear(host: str) -> None:
    user_tokens().create("ada")
    with pytest.raises(UsageError, match="--tls-cert"):
        serve(Address(host, 0), None, lambda _: pytest.fail("it listens"))


def test_a_server_that_cannot_serve_says_what_is_missing_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(error: type[Exception], match: str, *given: object) -> None:
        with pytest.raises(error, match=match):
            serve(Address("127.0.0.1", *given), None, lambda _: pytest.fail("it listens"))  # type: ignore[arg-type]  # rows

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    refuses(UsageError, "must be given together", 0, certificate)
    refuses(ConfigError, r"cert\.pem.*expected PEM", 0, certificate, key)
    certificate.write_text("no PEM")
    key.write_text("no PEM")
    refuses(ConfigError, r"cert\.pem.*expected PEM", 0, certificate, key)
    refuses(ConfigError, "judgekit serve token create", 0)
    user_tokens().create("ada")
    refuses(ConfigError, "no model to judge with: no model found", 0)
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refuses(ConfigError, f"cannot listen on 127.0.0.1:{port}", port)
