"""What a row costs that a decision model judges, beside litellm's own call and a bare one in the same run.

python bench/decisions.py [--rows N] [--rounds N] [--json] [--write FILE]

A server on this machine answers `/v1/decisions` after a fixed time, in a process of its own. It is asked 64
at a time: by aiohttp with the bodies that judgekit sends, by `litellm.adecisions` with the same state and
questions, and by `judgekit judge --data` with the engine warm. CPU is that of client and engine together,
of whole processes; of the other two it is counted from their first answer on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.provider import _LENGTH, serving
from bench.rows import JUDGEKIT, Bench, Job

LATENCY = 0.1  # seconds, as vendors say
AT_ONCE = 64
ROWS = 5_000
ROUNDS = 3
LIKELY = 3  # the place of the likeliest level
TARGET = 4.0  # ms of CPU a row above litellm's
MODEL = "gpt-6-luna"

AIOHTTP = """\
import asyncio, json, sys, time, aiohttp
async def main(rows, at_once, body):
    free = asyncio.Semaphore(at_once)
    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(connector=connector) as client:
        async def one(number):
            async with free:
                asked = {**body, "input": f"{body['input']} {number}"}
                async with client.post("BASE/decisions", json=asked) as reply:
                    (await reply.json())["answers"]
        await one(-1)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*map(one, range(rows)))
        print(time.process_time() - cpu, time.perf_counter() - wall)
asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), json.load(open("body.json"))))
"""
LITELLM = """\
import asyncio, json, logging, os, sys, time
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION")
import litellm
litellm.suppress_debug_info, litellm.telemetry = True, False
async def main(rows, at_once, body):
    free = asyncio.Semaphore(at_once)
    async def one(number):
        async with free:
            await litellm.adecisions(
                model=f"openai/{body['model']}", input=f"{body['input']} {number}",
                questions=body["questions"], api_key="none", api_base="BASE",
                timeout=60, num_retries=0, max_retries=0,
            )
    await one(-1)
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*map(one, range(rows)))
    print(time.process_time() - cpu, time.perf_counter() - wall)
asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), json.load(open("body.json"))))
"""
TEXT = """\
# Rows that a decision model judges

Made by `python bench/decisions.py --write docs/figures/decisions.md` on {when}. {rows:,} rows of about
2,600 characters under `answer-quality`, one request with {questions} questions a row, {at_once} at a time, a
server on this machine that answers in {latency} s; {machine}. Rounds: {rounds}, medians of them. The load
of the machine was {load}: where it is above 2, other work ran beside it, wall times say little, and CPU is
dearer than on an idle machine.

| asked by | CPU ms a row | above litellm | wall s | beside aiohttp |
| --- | --- | --- | --- | --- |
{lines}

CPU of judgekit is that of client and engine, from start to end. The target is at most {target} ms a row above
litellm's own call: {met}.

Where it went on 2026-11-28, by a profile of rows judged in one process: two thirds of what the thread of
the calls takes is litellm's own, a third of that for the price of a reply. Of ours, reading the body is a
twentieth of litellm's part, and so is what tries a call again. The key of the reply cache is computed twice
a row; its search for fences' tags took most of 0.36 ms (a prompt of 4,000 letters). The key takes 0.12 ms
in all since the search skips to their first letters.
Of client and engine under load, by samples of their threads: the client takes a ninth of the CPU. Of the
engine's, 47 % is in the thread of the calls. Of the rest, 24 % is its HTTP server, 16 % looks for secrets,
9 % looks whether files have changed that a judge is made of, and a third is the judging itself.
"""


# --- The server


class Decider:
    """Answers every request with the same probabilities; `GET /seen` gives the last body, and how many."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._seen = b"{}"
        self._asked = 0
        self._bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                if head.startswith(b"GET /v1/seen"):
                    reply = self._seen
                elif head.startswith(b"GET"):
                    counts = {"asked": self._asked, "bytes": self._bytes, "data": []}
                    reply = json.dumps(counts).encode()
                else:
                    self._seen = body
                    self._asked += 1
                    self._bytes += len(body)
                    await asyncio.sleep(self._latency)
                    reply = json.dumps(answered(json.loads(body))).encode()
                start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                writer.write(b"%s%d\r\n\r\n%s" % (start, len(reply), reply))
                await writer.drain()
        writer.close()


def answered(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answers to all questions: yes with .9, or the fourth level."""
    answers = []
    for question in body["questions"]:
        answer = {"type": question["type"], "name": question["name"]}
        if question["type"] == "predicate":
            answer["probability"] = 0.9
        else:
            shares = []
            for place, level in enumerate(question["levels"]):
                share = 0.8 if place == LIKELY else 0.05
                shares.append({"value": place, "label": level["label"], "probability": share})
            answer |= {"score": 2.9, "confidence": 0.8, "probabilities": shares}
        answers.append(answer)
    usage = {
        "input_tokens": 900,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 900,
    }
    return {"model": body["model"], "answers": answers, "usage": usage}


async def serve() -> None:
    """Serve until nobody holds the other end of standard input."""
    decider = Decider(LATENCY)
    server = await asyncio.start_server(decider.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


# --- Asking it


def judgekit_job(base: str) -> Job:
    """Return judgekit's run."""
    judge = [JUDGEKIT, "judge", "--data", "rows.jsonl", "--out", "out.jsonl", "--mode", "lenient"]
    judge += ["--rubric", "answer-quality", "--map", "description=question"]
    judge += ["--map", "text=answer", "-j", str(AT_ONCE)]
    variables = {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": base,
        "JUDGEKIT_ONLY_MODEL": f"openai-decisions/{MODEL}",
    }
    return Job("judgekit", AT_ONCE, "", {}, judge, None, variables, "warm")


def measure(folder: Path, base: str, count: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run each asker; returns its runs by its name, each with ms of CPU a row and seconds."""
    bench = Bench(folder, base)
    runs: dict[str, list[dict[str, float]]] = {"aiohttp": [], "litellm": [], "judgekit": []}
    job = judgekit_job(base)
    for number in range(-1, rounds):
        is_warm_up = number < 0
        place = bench.made(f"rows-{number}", job, 64 if is_warm_up else count)
        took = bench.run(job, place)
        if is_warm_up:
            with urlopen(f"{base}/seen", timeout=30) as seen:  # noqa: S310 - an address of our own
                body = seen.read()
            (folder / "body.json").write_bytes(body)
            continue
        if took.calls != count:
            raise SystemExit(f"{took.calls} calls for {count} rows")
        runs["judgekit"].append({"cpu": took.cpu / count * 1000, "wall": took.wall})
        for name, text in (("aiohttp", AIOHTTP), ("litellm", LITELLM)):
            (folder / f"{name}_job.py").write_text(text.replace("BASE", base))
            words = [sys.executable, f"{name}_job.py", str(count), str(AT_ONCE)]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
            cpu, wall = map(float, done.stdout.split())
            runs[name].append({"cpu": cpu / count * 1000, "wall": wall})
        print({name: ran[-1] for name, ran in runs.items()}, file=sys.stderr, flush=True)
    return runs


def report(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    medians = {}
    for name, ran in results["runs"].items():
        medians[name] = {key: statistics.median(run[key] for run in ran) for key in ran[0]}
    lines = []
    for name, took in medians.items():
        above = took["cpu"] - medians["litellm"]["cpu"]
        ratio = took["wall"] / medians["aiohttp"]["wall"]
        figures = [name, f"{took['cpu']:.2f}", f"{above:+.2f}", f"{took['wall']:.1f}"]
        lines.append(f"| {' | '.join([*figures, f'{ratio:.2f}'])} |")
    above = medians["judgekit"]["cpu"] - medians["litellm"]["cpu"]
    return TEXT.format(
        **{name: results[name] for name in ("rows", "questions", "load", "rounds")},
        at_once=AT_ONCE,
        latency=LATENCY,
        lines="\n".join(lines),
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        met="met" if above <= TARGET else f"missed by {above - TARGET:.2f} ms",
        target=TARGET,
        when=f"{datetime.now(UTC):%Y-%m-%d}",
    )


def main() -> int:
    """Measure and print, or serve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    parser.add_argument("--serve", action="store_true", help="be the server")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return 0
    before = os.getloadavg()[0]
    words = [sys.executable, __file__, "--serve"]
    with tempfile.TemporaryDirectory() as name, serving(words) as base:
        folder = Path(name)
        runs = measure(folder, base, options.rows, options.rounds)
        questions = len(json.loads((folder / "body.json").read_bytes())["questions"])
    loads = sorted([before, os.getloadavg()[0]])
    results = {
        "rows": options.rows,
        "rounds": options.rounds,
        "questions": questions,
        "load": f"{loads[0]:.1f} to {loads[1]:.1f}",
        "runs": runs,
    }
    text = report(results)
    print(json.dumps(results) if options.json else text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
