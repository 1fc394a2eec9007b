"""Rows judged under a promise of agreement, from the command line: calls, cost and time beside deep alone.

python bench/agree.py [--rows N] [--jobs N] [--share S] [--json]

A server on this machine is both models: the cheap one answers after .05 s, the strong one after .8 s and for
twenty times the money. Each row's text says what both answer: the strong one accepts with a probability that
the cheap one knows in five steps. Each figure is a whole process as a user starts it, with a home of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import provider

CHEAP, STRONG = "cheap", "strong"
SECONDS = {CHEAP: 0.05, STRONG: 0.8}
PRICES = (
    "price: {cheap: {input: 1, output: 1}, strong: {input: 20, output: 20}}"  # USD a million tokens
)
JUDGEKIT = str(Path(sys.executable).with_name("judgekit"))
PROFILE = Path(__file__).parents[1] / "providers" / "openai-compatible.yaml"
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
_MARKS = re.compile(r"cheap=(\d) strong=(\d)")


def make_rows(count: int) -> str:
    """Make JSON Lines; the cheap model's points are its probability in steps."""
    rng = random.Random(1)  # noqa: S311 - made data
    lines = []
    for number in range(count):
        probability = rng.betavariate(0.5, 0.5)
        cheap = 1 + round(4 * probability)
        strong = 5 if rng.random() < probability else 1
        row = {"id": number, "answer": f"Answer {number}: cheap={cheap} strong={strong}."}
        lines.append(json.dumps(row) + "\n")
    return "".join(lines)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, each model after its time."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
            if head.startswith(b"GET"):
                text = json.dumps({"data": []})
            else:
                request = json.loads(body)
                model = request["model"]
                COUNTS[model] += 1
                await asyncio.sleep(SECONDS[model])
                text = complete(model, str(request["messages"]))
            raw = text.encode()
            status = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            writer.write(f"{status}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
            await writer.drain()
    writer.close()


COUNTS: Counter[str] = Counter()


def complete(model: str, text: str) -> str:
    marks = _MARKS.search(text)
    assert marks is not None  # noqa: S101 - each row has them
    points = int(marks[1] if model == CHEAP else marks[2])
    scores = dict.fromkeys(("semantic", "pragmatic", "syntactic"), points)
    content = json.dumps({"reasoning": "It says so.", "scores": scores, "findings": []})
    message = {"role": "assistant", "content": content}
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 500, "completion_tokens": 40, "total_tokens": 540},
        }
    )


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


class Measured(NamedTuple):
    """A run: its duration, and the program's own summary."""

    seconds: float
    said: str
    verdicts: dict[str, str]
    calls: Counter[str]


def run(base: str, folder: Path, words: list[str]) -> Measured:
    """Run the command line in a home of its own."""
    home = folder / "home"
    profile = home / ".config" / "judgekit" / "providers" / "openai-compatible.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f"{PROFILE.read_text(encoding='utf-8')}\n{PRICES}\n", encoding="utf-8")
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "JUDGEKIT_API_BASE": base,
        "JUDGEKIT_QUICK_MODEL": CHEAP,
        "JUDGEKIT_DEEP_MODEL": STRONG,
    }
    command = [JUDGEKIT, "judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient"]
    begun = time.perf_counter()
    done = subprocess.run(
        [*command, "--no-engine", "--out", "out.jsonl", *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    verdicts = {}
    calls = Counter[str]()
    for line in (folder / "out.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        verdicts[row["id"]] = row["verdict"]
        for round_ in row["judged"]["rounds"]:
            calls[round_["model"]] += 1
    return Measured(seconds, done.stderr, verdicts, calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=32)
    parser.add_argument("--share", type=float, default=0.9)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return
    jobs = ["-j", str(arguments.jobs)]
    ways = {
        "strong alone": [*jobs, "--model", STRONG, "--depth", "quick"],
        f"--agree {arguments.share:g}": [*jobs, "--agree", f"{arguments.share:g}"],
    }
    found = {}
    with provider.serving([sys.executable, __file__, "--serve"]) as base:
        for name, words in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "rows.jsonl").write_text(make_rows(arguments.rows))
                found[name] = run(base, Path(folder), words)
            print(f"{name}: {found[name].seconds:.1f} s, {dict(found[name].calls)}")
            print(found[name].said)
    alone, promised = found.values()
    same = sum(promised.verdicts[key] == word for key, word in alone.verdicts.items())
    print(f"the same verdict: {same / len(alone.verdicts):.4f}")
    print(f"time: {promised.seconds / alone.seconds:.2f} of strong alone")


if __name__ == "__main__":
    main()
