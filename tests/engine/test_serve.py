"""`judgekit serve` as a process: its refusals, its end, and limits on greedy clients."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from engine_processes import GOOD, document, until
from loopback import Loopback, says
from serving import Serving

from judgekit.engine.admission import open_user_tokens
from judgekit.engine.team_server import serve
from judgekit.errors import ConfigError, UsageError
from judgekit.ledger import Skip
from judgekit.ledger.records import serialise_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loopback import Answer, Asked

pytestmark = pytest.mark.slow

NOBODY = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", "JUDGEKIT_MODEL": "stand-in"}
DOWNLOAD = "GET /v1/ledger?since=100d"
PATIENT = (
    "from judgekit.engine import team_server as p; {}; "
    "import sys; from judgekit.__main__ import main; sys.exit(main())"
)


def serving(home: Path, settings: str) -> Iterator[Serving]:
    found = Serving(code=PATIENT.format(settings), JUDGEKIT_HOME=str(home), **NOBODY)
    try:
        yield found
    finally:
        found.end()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    settings = "p.HEAD_SECONDS = p.BODY_SECONDS = p.WRITE_SECONDS = 600"
    yield from serving(tmp_path_factory.mktemp("patient"), settings)


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Serving]:
    """Return a patient server that may have a thousand descriptors."""
    limit = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (1024, 1024))"
    yield from serving(tmp_path, f"p.HEAD_SECONDS = 600; {limit}")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Return a server that waits for three seconds for a client that does not go on or does not read."""
    settings = "p.WRITE_SECONDS = 3; p.HEAD_SECONDS = p.BODY_SECONDS = 3; p._CHECK_SECONDS = 0.2"
    yield from serving(tmp_path_factory.mktemp("quick"), settings)


@pytest.fixture
def connections() -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


def raw(at: Serving, first: str, *lines: str) -> bytes:
    head = [f"{first} HTTP/1.1", "Host: x", f"Authorization: Bearer {at.token}", *lines, "", ""]
    return "\r\n".join(head).encode()


def opened(at: Serving, text: bytes = b"") -> socket.socket:
    """Return a connection that takes in next to nothing, after sending a text."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(60)
    made.connect(("127.0.0.1", int(at.url.rpartition(":")[2])))
    with contextlib.suppress(ConnectionError):
        made.sendall(text)
    return made


def of(at: Serving, token: str = "") -> httpx2.Client:
    """Return a client of a server, ada's unless a token says whose."""
    headers = {"Authorization": f"Bearer {token or at.token}"}
    return httpx2.Client(base_url=at.url, headers=headers, timeout=60)


def filled(client: httpx2.Client, megabytes: int = 3) -> None:
    common = {"variable": "v" * 5000, "who": "x", "terminal": True, "project": "docs-0123456789ab"}
    for part in range(megabytes * 2):
        made = [Skip.model_validate(common | {"id": f"{part}-{each}"}) for each in range(100)]
        answer = client.post(
            "/v1/ledger", json={"lines": [json.loads(serialise_record(skip)) for skip in made]}
        )
        assert answer.json()["taken"] == len(made), answer.text


def inside(client: httpx2.Client) -> int:
    text = client.get("/metrics").text
    return int(float(text.split("\njudgekit_requests_inside ")[1].split()[0])) - 1


def test_downloads_that_nobody_reads_leave_room_for_other_people(
    patient: Serving, connections: list[socket.socket]
) -> None:
    with of(patient) as ada, of(patient, patient.another("bob")) as bob:
        filled(ada)
        connections += [opened(patient, raw(patient, DOWNLOAD)) for _ in range(530)]
        until(lambda: inside(bob) >= 250)
        assert bob.get("/v1/rubrics").status_code == 200
        refused = ada.get("/v1/rubrics")
    assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "busy")
    assert "of your requests" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) >= 1


def test_who_does_not_read_is_hung_up_on(quick: Serving, connections: list[socket.socket]) -> None:
    """Who never reads, who reads a byte at a time, and who asks hundreds of times without reading."""
    with of(quick) as ada:
        filled(ada)
        for reads in (0, 1):
            unread = opened(quick, raw(quick, DOWNLOAD))
            connections.append(unread)
            until(lambda: inside(ada) == 1)

            def gone(unread: socket.socket = unread, reads: int = reads) -> bool:
                with contextlib.suppress(OSError):
                    unread.recv(reads)
                return inside(ada) == 0

            until(gone)
        unread = opened(quick, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 300)
        connections.append(unread)
        with contextlib.suppress(ConnectionResetError):
            time.sleep(5)
            while unread.recv(1_000_000):
                pass  # what the kernel had, until the end
        assert ada.get("/healthz").status_code == 200


def test_who_reads_slowly_but_steadily_gets_everything(quick: Serving) -> None:
    with of(quick) as ada:
        filled(ada, megabytes=1)
        got = 0
        with ada.stream("GET", "/v1/ledger?since=100d") as answer:
            for part in answer.iter_bytes(100_000):
                got += len(part)
                time.sleep(0.3)
    assert got > 1_000_000


def test_bodies_that_are_announced_and_never_sent_leave_room_for_other_people(
    patient: Serving, connections: list[socket.socket]
) -> None:
    begun = raw(patient, "POST /v1/judge", "Content-Length: 16000000")
    with of(patient, patient.another("ben")) as ben:
        connections += [opened(patient, begun) for _ in range(8)]
        until(lambda: inside(ben) >= 2)
        body = {"document": document("word " * 40_000), "wish": {"mode": "lenient"}}
        answer = ben.post("/v1/judge", json=body)
    assert answer.status_code == 200, answer.text


def test_connections_that_say_nothing_leave_room_for_other_people(
    few: Serving, connections: list[socket.socket]
) -> None:
    connections += [opened(few) for _ in range(1100)]
    with of(few) as ada:
        assert [ada.get(path).status_code for path in ("/v1/rubrics", "/healthz")] == [200, 200]


def test_who_begins_and_does_not_go_on_is_hung_up_on(quick: Serving) -> None:
    half = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    for text in (b"", half, raw(quick, "POST /v1/judge", "Content-Length: 9")):
        with opened(quick, text) as connection, contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""


WAYS = """OPTIONS /v1/judge
HEAD /v1/ledger
TRACE /metrics
GET //healthz/../v1/rubrics
GET /healthz/%2e%2e/v1/rubrics
GET /healthz%2f..%2fv1/rubrics
GET http://x/healthz
GET /v1/rubrics/
GET /v1/rubrics;/healthz
GET /v1/rubrics?/healthz
GET /docs"""


def test_no_way_of_asking_goes_past_the_token(patient: Serving) -> None:
    for way in WAYS.split("\n"):
        text = f"{way} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        with opened(patient, text) as asked:
            assert asked.recv(1000).split()[1] == b"401", way


def test_strangers_in_bulk_fill_no_log(patient: Serving) -> None:
    wrong = raw(patient, "GET /v1/rubrics", "Connection: close").replace(
        patient.token.encode(), b"jk_wrong"
    )
    upgrade = raw(patient, "GET /healthz", "Upgrade: websocket", "Connection: Upgrade")
    for text in (wrong, upgrade, b"\0\0\r\n\r\n") * 100:
        with opened(patient, text) as asked:
            assert asked.recv(1000)
    with of(patient) as ada:
        assert ada.get("/v1/rubrics").status_code == 200
    logs = list(patient.home.rglob("serve/log*"))
    assert logs
    assert sum(log.read_text().count("\n") for log in logs) < 20


def test_who_gave_a_label_or_an_override_is_the_token_s_name(patient: Serving) -> None:
    common = {
        "who": "the boss",
        "timestamp": "2026-02-17T14:30:00Z",
        "project": "acts-0123456789ab",
    }
    made: list[dict[str, Any]] = [
        {"schema": "judgekit/label@1", "of": "v", "label": "go"},
        {
            "schema": "judgekit/override@1",
            "task_id": "a",
            "decision": "accept",
            "why": "y",
            "terminal": True,
        },
        {"schema": "judgekit/skip@1", "variable": "JUDGEKIT_SKIP", "terminal": True},
        {"schema": "judgekit/mode@1", "mode": "blocking"},
    ]
    kept = [common | each | {"id": str(place)} for place, each in enumerate(made)]
    with of(patient) as ada, of(patient, patient.another("eve")) as eve:
        for client in (ada, eve):
            answer = client.post("/v1/ledger", json={"lines": kept})
            assert answer.json() == {"taken": len(made), "refused": {}}
        text = ada.get("/v1/ledger?since=2026-01-01&project=acts").text
    who = [(each["id"], each["who"]) for each in map(json.loads, text.splitlines())]
    # The same ids from somebody else hide nothing.
    assert sorted(who) == [
        (str(place), name) for place in range(len(made)) for name in ("ada", "eve")
    ]


def test_what_has_been_begun_is_finished_when_it_is_told_to_stop() -> None:
    def answer(_: Asked) -> Answer:
        time.sleep(1)
        return says(GOOD)

    with Loopback(answer) as slow:
        serving = Serving(JUDGEKIT_API_BASE=slow.base, JUDGEKIT_MODEL="stand-in")
        try:
            with of(serving) as client, ThreadPoolExecutor(1) as pool:
                body = {"document": document(), "wish": {"mode": "lenient"}}
                found = pool.submit(client.post, "/v1/judge", json=body)
                until(lambda: bool(slow.requests))
                serving.process.send_signal(signal.SIGTERM)
                assert found.result(30).json()["verdict"] == "accept"
        finally:
            code = serving.end()
    assert code in (0, -signal.SIGTERM)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_with_a_certificate_it_speaks_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    words += f" -keyout {key} -out {certificate} -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(words.split(), check=True, capture_output=True)
    serving = Serving("--tls-cert", str(certificate), "--tls-key", str(key), **NOBODY)
    try:
        assert serving.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate))
        assert httpx2.get(f"{serving.url}/healthz", verify=trusting).json()["status"] == "ok"
    finally:
        serving.end()


def test_a_network_hears_no_token_in_the_clear() -> None:
    open_user_tokens().create("ada")
    for host in ("0.0.0.0", "192.0.2.1", "::", "judge.example.org"):
        with pytest.raises(UsageError, match="--tls-cert"):
            serve(host, 0, on_start=lambda _: pytest.fail("it listens"))


def test_a_server_that_cannot_serve_says_what_is_missing_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(error: type[Exception], match: str, port: int = 0, **tls: Path) -> None:
        with pytest.raises(error, match=match):
            serve("127.0.0.1", port, on_start=lambda _: pytest.fail("it listens"), **tls)

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    refuses(UsageError, "must be given together", certificate=certificate)
    refuses(ConfigError, r"cert\.pem.*expected PEM", certificate=certificate, key=key)
    certificate.write_text("no PEM")
    key.write_text("no PEM")
    refuses(ConfigError, r"cert\.pem.*expected PEM", certificate=certificate, key=key)
    refuses(ConfigError, "judgekit serve token create")
    open_user_tokens().create("ada")
    refuses(ConfigError, "no model to judge with: no model found")
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refuses(ConfigError, f"cannot listen on 127.0.0.1:{port}", port)
