"""A provider on this machine that answers every chat completion after a fixed time, with the same opinion.

python bench/provider.py [--latency S]

Prints its port and serves until its standard input ends. One process of its own, without a library: what it
takes of the machine is small beside what it is asked by.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator

REASON = "It says what it is for."
OPINION = {
    "reasoning": REASON,
    "scores": {"semantic": 4, "pragmatic": 4, "syntactic": 4},
    "findings": [],
}
# The replies that other tools read, by the name of the model that they ask; as long as the opinion.
OTHERS = {
    "promptfoo": '{"pass": true, "score": 1, "reason": "%s"}',
    "deepeval": '{"score": 8, "reason": "%s"}',
    "autorubric": '{"criterion_status": "MET", "explanation": "%s"}',
    "inspect-ai": "%s GRADE: C",
}
_LABEL = re.compile(rb"\[([A-Za-z0-9]+)\] ")
_MODEL = re.compile(rb'"model": ?"bench-([a-z-]+)"')
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")


class Provider:
    """Counts its requests; `GET /asked` returns their number and their bytes."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._asked = self._bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(
            asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError
        ):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                asked = await reader.readexactly(int(length[1])) if length else b""
                if head.startswith(b"GET"):
                    body = json.dumps(
                        {"asked": self._asked, "bytes": self._bytes, "data": []}
                    ).encode()
                else:
                    self._asked += 1
                    self._bytes += len(asked)
                    await asyncio.sleep(self._latency)
                    body = completion(asked)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(body), body)
                )
                await writer.drain()
        writer.close()


def completion(asked: bytes) -> bytes:
    """Return an opinion, or the first candidate if candidates were shown."""
    label = _LABEL.search(asked)
    said = json.dumps({"keep": [label[1].decode()]} if label and b'"keep"' in asked else OPINION)
    if other := _MODEL.search(asked):
        frame = OTHERS[other[1].decode()]
        said = frame % REASON.ljust(len(said) - len(frame) + 2, ".")
    message = {"role": "assistant", "content": said}
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "bench",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 500, "completion_tokens": 40, "total_tokens": 540},
        }
    ).encode()


@contextmanager
def running(latency: float) -> Iterator[str]:
    """Yield the address of a provider in a process of its own."""
    with serving([sys.executable, __file__, "--latency", str(latency)]) as base:
        yield base


@contextmanager
def serving(words: list[str]) -> Iterator[str]:
    """Start a server's process with these words, and yield the address from the port that it prints."""
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 - opened as a pipe
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        assert process.stdin is not None  # noqa: S101 - the same
        process.stdin.close()


def counted(base: str) -> dict[str, int]:
    """Return the number of completions that a provider was asked for, and of their bytes."""
    with urlopen(f"{base}/asked", timeout=30) as answer:  # noqa: S310 - an address of our own
        found: dict[str, int] = json.load(answer)
    return found


def asked(base: str) -> int:
    return counted(base)["asked"]


async def main() -> None:
    """Serve until nobody holds the other end of standard input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency", type=float, default=0.3)
    provider = Provider(parser.parse_args().latency)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
