"""What litellm may do to a process: nothing of it reaches the output, and it is loaded late and whole."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from asking import KEY
from loopback import RESET, Loopback, calls, fails, says, sends

from judgekit.providers import litellm

SCRIPT = """
import asyncio, os
from judgekit.errors import GatewayError
from judgekit.providers.base import CallKey, Message, Request
from judgekit.providers.gateway import open_gateway
from judgekit.providers.resolve import PanelRequest, resolve

async def main():
    gateway = open_gateway(os.environ)
    endpoint = resolve(PanelRequest(), os.environ).endpoints["quick"][0]
    request = Request((Message("user", "x"),), CallKey("s", "r", "quick"), 10, 16, {"type": "object"})
    for _ in range(int(os.environ["CALLS"])):
        try:
            await gateway.complete(endpoint, request)
        except GatewayError:
            pass
    await gateway.aclose()

asyncio.run(main())
"""


def test_nothing_is_printed_whatever_happens() -> None:
    script = [
        says("fine"),
        fails(401, f"bad key {KEY}"),
        fails(404),
        fails(400, "response_format"),
        fails(500),
        fails(429, retry_after=0),
        sends(b"{broken"),
        sends({"choices": []}),
        calls("{}"),
        RESET,
        fails(403),
    ]
    with Loopback(*script) as server:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "JUDGEKIT_HOME": os.environ["JUDGEKIT_HOME"],
            "JUDGEKIT_API_BASE": server.base,
            "JUDGEKIT_API_KEY": KEY,
            "JUDGEKIT_MODEL": "stand-in",
            "CALLS": "9",
        }
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environ, capture_output=True, timeout=120, check=False
        )
        asked = len(server.requests)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    assert done.stderr == b""
    assert asked > len(script)


def test_choosing_a_panel_does_not_import_litellm() -> None:
    code = (
        "import sys; from judgekit.providers.resolve import PanelRequest, resolve;"
        "from judgekit.providers.gateway import open_gateway; open_gateway({});"
        "resolve(PanelRequest(), {'OPENAI_API_KEY': 'x'});"
        "print([m for m in ('litellm', 'openai', 'httpx', 'aiohttp', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_the_first_call_keeps_its_deadline_although_litellm_is_not_loaded_yet() -> None:
    code = (
        "import asyncio, os, sys, time; from judgekit.errors import GatewayError;"
        "from judgekit.providers.base import CallKey, Message, Request;"
        "from judgekit.providers.gateway import open_gateway;"
        "from judgekit.providers.resolve import PanelRequest, resolve\n"
        "async def main():\n"
        "    endpoint = resolve(PanelRequest(), os.environ).endpoints['quick'][0]\n"
        "    request = Request((Message('user', 'x'),), CallKey('s', 'r', 'quick'), 0.05, 16)\n"
        "    calls = (open_gateway({}).complete(endpoint, request) for _ in range(3))\n"
        "    print([str(e.kind) for e in await asyncio.gather(*calls, return_exceptions=True)], flush=True)\n"
        "asyncio.run(main()); print('left', 'main' in vars(sys.modules.get('litellm', object)), flush=True)\n"
        "os._exit(0)"
    )
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1",
        "JUDGEKIT_MODEL": "stand-in",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, timeout=60, check=True
    )
    assert done.stdout.decode().splitlines() == ["['timeout', 'timeout', 'timeout']", "left False"]
    assert done.stderr == b""


@pytest.mark.parametrize("error", [ImportError, AttributeError, OSError, MemoryError])
def test_it_is_raised_where_it_is_needed(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> object:
        raise error("broken")

    monkeypatch.setattr(litellm, "_loaded", [])
    monkeypatch.setattr(litellm, "load", broken)

    async def run() -> None:
        async with asyncio.timeout(20):
            await litellm.loaded()

    with pytest.raises(error, match="broken"):
        asyncio.run(run())


ASKS = """
import asyncio, sys
from asking import ask, custom, request
from judgekit.providers import litellm

tiktoken = litellm.load() and __import__("tiktoken.registry").registry
print(bool(tiktoken.ENCODINGS))
reply = ask(litellm.LitellmGateway(), custom(sys.argv[1]), request())
print(reply.text, bool(tiktoken.ENCODINGS))
print(len(litellm.load().main._get_encoding().encode("hello world")), bool(tiktoken.ENCODINGS))
"""


def test_it_is_loaded_when_it_is_used() -> None:
    with Loopback(says("good")) as server:
        done = subprocess.run(
            [sys.executable, "-c", ASKS, server.base],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.stdout.split("\n")[:3] == ["False", "good False", "2 True"]
