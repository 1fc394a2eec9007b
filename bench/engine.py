"""The engine against a provider on this machine with a fixed latency, as ratios to what cannot be avoided.

python bench/engine.py [--data DIR] [--json] [--documents N] [--many N] [--latency S] [--write FILE]

Each figure is a whole process as a user starts it. The yardsticks are measured in the same run: bare httpx
making the same calls, `python -c "import litellm"`, `python -c pass`, and the hook without a judge. `--data`
is taken for the sake of a common call and not needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import provider
from judgekit.hooks import entries

AT_ONCE = 32
CLIENTS = 32
REQUESTS = 1000
REPEATS = 5
JUDGEKIT = str(Path(sys.executable).with_name("judgekit"))
PROMPT = "How do we rotate the signing key?"
HTTPX = """
import asyncio, json, pathlib, sys
import httpx
async def main(base, folder, at_once):
    free = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(base_url=base, limits=limits, timeout=60) as client:
        async def one(path):
            async with free:
                message = {"role": "user", "content": path.read_text()}
                body = {"model": "bench", "messages": [message]}
                (await client.post("/chat/completions", json=body)).json()["choices"][0]["message"]["content"]
        await asyncio.gather(*map(one, sorted(pathlib.Path(folder).glob("*.md"))))
asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
TABLE = """\
A provider that answers after {latency} s; bytecode compiled. {when}, {machine}.

| what | measured | target |
| --- | --- | --- |
| hook with a judge, engine warm: wall above the hook without one and the latency | {hook_ms} ms | 40 ms |
| the same: CPU of its process, as a multiple of `python -c pass` | {hook_cpu} | 3 |
| `judgekit judge` on one file, engine warm: wall above the latency | {one_ms} ms | 200 ms |
| the same, the engine started: wall above `import litellm` and the latency | {cold_s} s | 0.7 s |
| {documents} documents, {at_once} at a time, engine warm: wall against bare httpx | {warm_ratio} | 1.3 |
| the same without an engine: wall, seconds | {cold_many_s} | |
| {requests} requests, {clients} clients that begin at once: p99 above the latency | {all_p99_ms} ms | 30 ms |
| the same without the first request of each: p99 (p50) | {p99_ms} ms ({p50_ms} ms) | 30 ms |
| {many} documents: most memory of client and engine | {memory_mb} MB | 300 MB |

Bare httpx took {httpx_s} s for the {documents} documents, `import litellm` {import_s} s, a bare interpreter
{bare_ms} ms of CPU."""


class Took(NamedTuple):
    """What a process took: wall and CPU seconds, and the most memory it had, in MB."""

    wall: float
    cpu: float
    memory: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, provider.running(options.latency) as base:
        results = Bench(Path(folder), base, options.latency).measure(
            options.documents, options.many
        )
    table = TABLE.format(**results)
    print(json.dumps(results) if options.json else table)
    if options.write:
        options.write.write_text(f"# The engine\n\n{table}\n", encoding="utf-8")
    return 0


class Bench:
    """One place to work in, with a home and an engine of its own."""

    def __init__(self, folder: Path, base: str, latency: float) -> None:
        self.folder, self.base, self.latency = folder, base, latency
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUDGEKIT_", "GIT_"))
        }
        self.environment = kept | {
            "HOME": str(folder),
            "JUDGEKIT_HOME": str(folder / "home"),
            "XDG_RUNTIME_DIR": str(folder),
            "JUDGEKIT_API_BASE": base,
            "JUDGEKIT_MODEL": "bench",
            "JUDGEKIT_RETRIEVAL_JUDGE": "on",
            "JUDGEKIT_JUDGE_MODE": "lenient",  # an acceptance is final: one call a document
        }

    def measure(self, documents: int, many: int) -> dict[str, Any]:
        """Return all figures."""
        texts = self.documents("texts", documents)
        path = self.documents("one", 1)
        python = [sys.executable, "-c"]
        bare = self.least([*python, "pass"])
        imported = self.median([*python, "import litellm"])
        httpx = self.median([*python, HTTPX, self.base, str(texts), str(AT_ONCE)])
        judge = [JUDGEKIT, "judge", "--no-cache", "--format", "jsonl", "-j", str(AT_ONCE)]
        cold = self.cold([*judge, str(path)])
        cold_many = self.cold([*judge, str(texts)])
        self.started()
        warm = self.median([*judge, str(path)])
        warm_many = self.median([*judge, str(texts)])
        hook = self.hook(judged=True)
        alone = self.hook(judged=False)
        first, latencies = self.requests(next(path.iterdir()).read_text())
        memory = self.memory([*judge, str(self.documents("many", many))])
        self.stop()
        return {
            "latency": self.latency,
            "documents": documents,
            "many": many,
            "at_once": AT_ONCE,
            "requests": REQUESTS,
            "clients": CLIENTS,
            "hook_ms": round((hook.wall - alone.wall - self.latency) * 1000),
            "hook_cpu": round(hook.cpu / bare.cpu, 2),
            "one_ms": round((warm.wall - self.latency) * 1000),
            "cold_s": round(cold.wall - imported.wall - self.latency, 2),
            "warm_ratio": round(warm_many.wall / httpx.wall, 2),
            "cold_many_s": round(cold_many.wall, 2),
            "p50_ms": round((statistics.median(latencies) - self.latency) * 1000, 1),
            "p99_ms": round((statistics.quantiles(latencies, n=100)[98] - self.latency) * 1000, 1),
            "all_p99_ms": round(
                (statistics.quantiles(first + latencies, n=100)[98] - self.latency) * 1000, 1
            ),
            "memory_mb": round(memory),
            "httpx_s": round(httpx.wall, 2),
            "import_s": round(imported.wall, 2),
            "bare_ms": round(bare.cpu * 1000, 1),
            "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
            "when": datetime.now(UTC).date().isoformat(),
        }

    def documents(self, name: str, count: int) -> Path:
        """Return a folder with so many documents."""
        folder = self.folder / name
        folder.mkdir()
        body = "Two keys are valid during the change, so that nobody is signed out. " * 40
        for number in range(count):
            (folder / f"{number:05}.md").write_text(f"# Rotating key {number}\n\n{body}\n")
        return folder

    def run(self, words: list[str], text: str = "") -> Took:
        """Run a process and return its costs."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            input=text.encode(),
            capture_output=True,
            check=False,
        )
        wall = time.perf_counter() - start
        if done.returncode not in (0, 2):
            raise SystemExit(
                f"{words[:3]} ended with {done.returncode}: {done.stderr.decode()[-400:]}"
            )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Took(wall, cpu, after.ru_maxrss / 1000)

    def median(self, words: list[str]) -> Took:
        """Return the run of median wall time."""
        return sorted(self.run(words) for _ in range(REPEATS))[REPEATS // 2]

    def least(self, words: list[str]) -> Took:
        """Return the run that took the least CPU."""
        return min((self.run(words) for _ in range(3 * REPEATS)), key=lambda took: took.cpu)

    def cold(self, words: list[str]) -> Took:
        """Return the median of runs that find no engine."""
        found = []
        for _ in range(3):
            self.stop()
            found.append(self.run(words))
        self.stop()
        return sorted(found)[1]

    def started(self) -> None:
        """Start an engine and wait until it is ready."""
        self.run([JUDGEKIT, "engine", "start"])

    def stop(self) -> None:
        """Stop the engine, if one runs."""
        self.run([JUDGEKIT, "engine", "stop"])

    def engine(self) -> dict[str, Any]:
        """Return the engine's status."""
        done = subprocess.run(
            [JUDGEKIT, "engine", "status", "--json"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            check=True,
        )
        return dict(json.loads(done.stdout)["engines"][0])

    def hook(self, *, judged: bool) -> Took:
        """Return the median run of the prompt hook, with a cache that never knows the prompt."""
        store = self.folder / ".claude" / "memory" / "runbooks"
        if not store.exists():
            store.mkdir(parents=True)
            for number in range(20):
                memory = {
                    "schema_version": "1.0",
                    "category": "runbook",
                    "id": f"key-{number}",
                    "title": f"Rotate the signing key of service {number}",
                    "record_status": "active",
                    "tags": ["key", "signing"],
                    "content": {"trigger": "every 90 days", "steps": ["make a key", "promote it"]},
                }
                (store / f"key-{number}.json").write_text(json.dumps(memory))
        self.environment["JUDGEKIT_RETRIEVAL_JUDGE"] = "on" if judged else "off"
        found = []
        for number in range(3 * REPEATS):
            payload = {
                "hook_event_name": "UserPromptSubmit",
                "prompt": f"{PROMPT} ({number}, {judged})",
                "cwd": str(self.folder),
            }
            found.append(self.run(entries.build_command(), json.dumps(payload)))
        return sorted(found[2:])[len(found[2:]) // 2]

    def requests(self, text: str) -> tuple[list[float], list[float]]:
        """Return the seconds of many requests over the socket: the first of each client's, and the others."""
        path = self.engine()["socket"]
        file = {"path": "a.md", "text": text, "sha256": "0" * 64, "total": len(text)}
        asked = {
            "environ": self.environment,
            "cwd": str(self.folder),
            "wish": {"cache": False},
            "document": {"task_id": "a", "files": [file]},
        }
        body = json.dumps(asked).encode()
        head = "POST /v1/judge HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        first: list[float] = []
        others: list[float] = []

        def client() -> None:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                for number in range(REQUESTS // CLIENTS):
                    start = time.perf_counter()
                    connection.sendall(request)
                    answer = b""
                    while b"\r\n\r\n" not in answer:
                        answer += connection.recv(65536)
                    head, _, rest = answer.partition(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    while len(rest) < length:
                        rest += connection.recv(65536)
                    (others if number else first).append(time.perf_counter() - start)

        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return first, others

    def memory(self, words: list[str]) -> float:
        """Return the most memory that a command and the engine had together, in MB."""
        most = 0.0
        pid = self.engine()["pid"]
        with subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            while process.poll() is None:
                most = max(most, _rss(pid) + _rss(process.pid))
                time.sleep(0.1)
        return most


def _rss(pid: int) -> float:
    """Return a process's resident memory in MB; 0 when it's gone, or without /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    if shutil.which(JUDGEKIT) is None:
        raise SystemExit(f"{JUDGEKIT} is not installed")
    sys.exit(main())
