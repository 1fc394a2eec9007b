"""Web servers that load an application, ask models in their first process, and then fork workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, says

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

VERDICT = '{"reasoning": "fine", "scores": {"semantic": 4, "pragmatic": 4, "syntactic": 4}, "findings": []}'
APPLICATION = """
import judgekit

def judge(name):
    return judgekit.judge_texts({f"{name}.md": f"Text {name} has some words."})[0].verdict

IN_PARENT = judge("parent")

def application(environ, start_response):
    verdict = judge(environ["PATH_INFO"].strip("/"))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{IN_PARENT} {verdict}".encode()]
"""
GUNICORN = ["gunicorn", "--workers", "2", "--bind", "ADDRESS", "application:application"]
UWSGI = ["uwsgi", "--processes", "2", "--die-on-term", "--http-socket", "ADDRESS"]
UWSGI += ["--wsgi-file", "application.py", "--virtualenv", sys.prefix]
SERVERS = {
    "gunicorn": GUNICORN,
    "gunicorn preloads": [*GUNICORN, "--preload"],
    "gunicorn with threads preloads": [*GUNICORN, "--preload", "--threads", "4"],
    "uwsgi": UWSGI,
    "uwsgi with a master": [*UWSGI, "--master"],
    "uwsgi with threads": [*UWSGI, "--master", "--enable-threads", "--threads", "2"],
    "uwsgi loads lazily": [*UWSGI, "--master", "--lazy-apps"],
}
START_SECONDS = 120


@contextmanager
def serving(words: list[str], folder: Path, base: str) -> Iterator[str]:
    """Run a server until the block ends; gives its address once it answers."""
    program = Path(sys.executable).with_name(words[0])
    if not program.exists():
        pytest.skip(f"{words[0]} is not installed beside {sys.executable}")
    (folder / "application.py").write_text(APPLICATION)
    address = f"127.0.0.1:{find_free_port()}"
    arguments = [address if word == "ADDRESS" else word for word in words[1:]]
    given = {"JUDGEKIT_API_BASE": base, "JUDGEKIT_API_KEY": "a-key", "JUDGEKIT_MODEL": "stand-in"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *arguments],
            cwd=folder,
            env={**os.environ, **given},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until_listening(address, process)
        yield f"http://{address}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until_listening(address: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server has ended"
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server doesn't listen")


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_every_worker_answers_after_a_call_in_the_first_process(name: str, tmp_path: Path) -> None:
    with (
        Loopback(says(VERDICT)) as model,
        serving(SERVERS[name], tmp_path, model.base) as url,
    ):
        answers = set()
        for number in range(6):
            with urllib.request.urlopen(f"{url}/text-{number}", timeout=60) as answer:
                answers.add(answer.read().decode())
    assert answers == {"accept accept"}
