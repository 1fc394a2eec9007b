"""The tokenizer that litellm brings along, in a process in which nothing else has loaded it."""

from __future__ import annotations

import os
import subprocess
import sys

from loopback import Loopback, says

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
