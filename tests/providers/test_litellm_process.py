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

CALLING = """
import asyncio, os, sys
from judgekit.errors import GatewayError
from judgekit.providers.base import CallKey, Message, Request
from judgekit.providers.gateway import open_gateway
from judgekit.providers.resolve import PanelRequest, resolve

def request(seconds):
    return Request((Message("user", "x"),), CallKey("s", "r", "quick"), seconds, 16, {"type": "object"})
"""
MANY = """
async def main():
    gateway = open_gateway(os.environ)
    endpoint = resolve(PanelRequest(), os.environ).endpoints["quick"][0]
    for _ in range(9):
        try:
            await gateway.complete(endpoint, request(10))
        except GatewayError:
            pass
    await gateway.aclose()
asyncio.run(main())
"""
LATE = """
async def main():
    endpoint = resolve(PanelRequest(), os.environ).endpoints['quick'][0]
    calls = (open_gateway({}).complete(endpoint, request(0.05)) for _ in range(3))
    print([str(e.kind) for e in await asyncio.gather(*calls, return_exceptions=True)], flush=True)
asyncio.run(main())
print('left', 'main' in vars(sys.modules.get('litellm', object)), flush=True)
os._exit(0)
"""
PANEL = """
import sys
from judgekit.providers.gateway import open_gateway
from judgekit.providers.resolve import PanelRequest, resolve
open_gateway({})
resolve(PanelRequest(), {'OPENAI_API_KEY': 'x'})
print([m for m in ('litellm', 'openai', 'httpx', 'aiohttp', 'asyncio') if m in sys.modules])
"""
TOKENIZER = """
import sys
from asking import ask, custom, request
from judgekit.providers import litellm
tiktoken = litellm.load() and __import__("tiktoken.registry").registry
print(bool(tiktoken.ENCODINGS))
reply = ask(litellm.LitellmGateway(), custom(sys.argv[1]), request())
print(reply.text, bool(tiktoken.ENCODINGS))
print(len(litellm.load().main._get_encoding().encode("hello world")), bool(tiktoken.ENCODINGS))
"""


def printed(code: str, base: str = "http://127.0.0.1:9/v1", **environ: str) -> list[str]:
    """Return the lines that a process prints which has an address of its own; none on stderr."""
    own = {name: os.environ[name] for name in ("PATH", "HOME", "JUDGEKIT_HOME")}
    own |= {"JUDGEKIT_API_BASE": base, "JUDGEKIT_API_KEY": KEY, "JUDGEKIT_MODEL": "stand-in", **environ}
    words = [sys.executable, "-c", code, base]
    done = subprocess.run(words, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


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
        assert printed(CALLING + MANY, server.base) == []
        assert len(server.requests) > len(script)


def test_choosing_a_panel_does_not_import_litellm() -> None:
    assert printed(PANEL) == ["[]"]


def test_the_first_call_keeps_its_deadline_although_litellm_is_not_loaded_yet() -> None:
    assert printed(CALLING + LATE) == ["['timeout', 'timeout', 'timeout']", "left False"]


def test_the_tokenizer_is_loaded_when_it_is_used() -> None:
    with Loopback(says("good")) as server:
        lines = printed(TOKENIZER, server.base, PYTHONPATH=os.pathsep.join(sys.path))
    assert lines == ["False", "good False", "2 True"]


def test_what_an_import_raises_is_raised_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ImportError, MemoryError):

        def broken(error: type[Exception] = error) -> object:
            raise error("broken")

        monkeypatch.setattr(litellm, "_loaded", [])
        monkeypatch.setattr(litellm, "load", broken)
        with pytest.raises(error, match="broken"):
            asyncio.run(asyncio.wait_for(litellm.loaded(), 20))
