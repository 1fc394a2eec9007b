"""The same rows judged by one process and on Ray with two workers, at a provider on this machine.

python bench/ray.py [--rows N] [--latency S] [--json] [--write FILE]

Each run is a whole process as a user starts it, with a home of its own, without the engine; results are
Parquet in both. `judge --on ray` starts Ray itself, with two CPUs. Both are run with few rows first: what
those take is the start, which is subtracted.

CPU is that of the process and of all that descend from it, also when their parent has ended: five times a
second, their user and system time in `/proc/<pid>/stat` is read, until the last one is gone. What a process
used after the last look is lost, except for the first process, which is read after its end. What was used
since the last look counts for what the process is named now, since Ray names its processes by their task.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import provider
from bench.rows import JUDGEKIT, LOOK, TICK, Bench, Job, stat

ROWS, FEW = 20_000, 64
WORKERS, AT_ONCE = 2, 64
TARGET = 1.5
GONE = 60.0  # seconds for the last process to end
FIRST, OTHER = "first process", "other processes of Ray"
# Matched at the start of a command line, in this order.
KINDS = {
    b"ray::MapWorker": "workers",
    b"ray::Broker": "broker",
    b"ray::": "tasks and agents",
    b"raylet": "raylet",
    b"gcs_server": "GCS",
}
TEXT = """\
{rows:,} rows of about 2,600 characters, one call a row, {at_once} at a time in all, a provider that answers
in {latency:g} s. {when}, {machine}, Ray {ray}. The machine's load was {load}. Where that is far above 2,
other work ran on the machine: compare CPU, not rows a second.

| | rows a second | CPU ms a row | calls | start, s | start, CPU s |
| --- | --- | --- | --- | --- | --- |
{lines}

On Ray a row takes {ratio:.2f} times the CPU of one process (target: at most {target}). The start is a run of
{few} rows; *rows a second* and *CPU ms a row* are of the rows beyond those, such as
(CPU of {rows:,} rows - CPU of {few} rows) / {beyond:,}.

CPU ms a row on Ray, by kind of process:

| {kinds} |
| {rules} |
| {shares} |"""


class Watch:
    """Counts the CPU of a process and of all that descend from it, by their kind."""

    def __init__(self, pid: int) -> None:
        self.ticks = Counter[str]()
        self._first, self._kinds = pid, {pid: FIRST}
        self._known = {pid: 0}

    def look(self) -> bool:
        """Whether one of them is there."""
        found = {int(each.name): stat(int(each.name)) for each in Path("/proc").glob("[0-9]*")}
        found = {pid: fields for pid, fields in found.items() if fields}
        while new := [
            p for p, f in found.items() if p not in self._known and int(f[1]) in self._known
        ]:
            self._known |= dict.fromkeys(new, 0)
        self._known = {pid: ticks for pid, ticks in self._known.items() if pid in found}
        for pid, before in self._known.items():
            now = sum(map(int, found[pid][11:13]))
            self.ticks[self._kind(pid)] += now - before
            self._known[pid] = now
        return bool(self._known)

    def _kind(self, pid: int) -> str:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            words = b""
        if words and pid != self._first:  # one that has ended has no words
            program = (
                words
                if words.startswith(b"ray::")
                else words.partition(b"\0")[0].rpartition(b"/")[2]
            )
            kinds = (kind for start, kind in KINDS.items() if program.startswith(start))
            self._kinds[pid] = next(kinds, OTHER)
        return self._kinds.get(pid, OTHER)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument(
        "--latency", type=float, default=0.0, help="seconds in which the provider answers"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--write", type=Path, help="a Markdown file for the table; its sections are kept"
    )
    options = parser.parse_args()
    if options.rows <= FEW:
        parser.error(f"--rows: give more than {FEW}")
    results: dict[str, Any] = {"rows": options.rows, "latency": options.latency, "runs": {}}
    with tempfile.TemporaryDirectory() as folder, provider.running(options.latency) as base:
        bench = Bench(Path(folder), base)
        bench.environment.pop("RAY_ADDRESS", None)
        bench.environment |= {
            "RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": WORKERS}),
            "RAY_TMPDIR": folder,
        }
        for count in (FEW, options.rows):
            for job in jobs(base):
                results["runs"].setdefault(job.name, []).append(run(bench, job, count))
                print(job.name, results["runs"][job.name][-1], file=sys.stderr, flush=True)
    text = report(results)
    print(json.dumps(results) if options.json else text)
    if options.write:
        before = options.write.read_text(encoding="utf-8") if options.write.exists() else ""
        _, mark, sections = before.partition("\n## ")
        options.write.write_text(f"# Rows on Ray\n\n{text}\n{mark}{sections}", encoding="utf-8")
    return 0


def jobs(base: str) -> list[Job]:
    """Return the two ways to judge, with as many rows at a time in all."""
    model = {"JUDGEKIT_API_BASE": base, "JUDGEKIT_MODEL": "bench"}
    judge = [JUDGEKIT, "judge", "--data", "rows.jsonl", "--mode", "lenient"]
    one = [*judge, "--no-engine", "-j", str(AT_ONCE), "--out", "out.parquet"]
    on_ray = [*judge, "--on", "ray", "-j", str(AT_ONCE // WORKERS), "--out", "out"]
    return [
        Job(name, AT_ONCE, version("judgekit"), {}, command, variables=model)
        for name, command in (("one process", one), (f"Ray, {WORKERS} workers", on_ray))
    ]


def run(bench: Bench, job: Job, count: int) -> dict[str, Any]:
    """Judge rows and return the costs."""
    folder = bench.made(f"{count} {job.name}", job, count)
    calls = provider.asked(bench.base)
    process = bench.begin(job, folder, job.command)
    start, watch = time.perf_counter(), Watch(process.pid)
    while watch.look() and process.poll() is None:
        time.sleep(LOOK)
    wall = time.perf_counter() - start
    if process.wait():
        raise SystemExit(f"{job.name}: {(folder / 'log').read_text(errors='replace')[-2000:]}")
    end = time.monotonic() + GONE
    while watch.look():
        if time.monotonic() > end:
            raise SystemExit(f"{job.name}: processes are left after {GONE:.0f} s")
        time.sleep(LOOK)
    cpu = {kind: ticks / TICK for kind, ticks in watch.ticks.items()}
    return {
        "wall": wall,
        "cpu": cpu,
        "calls": provider.asked(bench.base) - calls,
        "load": os.getloadavg()[0],
    }


def report(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    beyond, lines, rows_cpu = results["rows"] - FEW, list[str](), dict[str, dict[str, float]]()
    for name, (few, many) in results["runs"].items():
        kinds = {**few["cpu"], **many["cpu"]}
        cpu = {each: many["cpu"].get(each, 0.0) - few["cpu"].get(each, 0.0) for each in kinds}
        rows_cpu[name] = {each: seconds / beyond * 1000 for each, seconds in cpu.items()}
        cells = [
            name,
            f"{beyond / (many['wall'] - few['wall']):.0f}",
            f"{sum(rows_cpu[name].values()):.2f}",
        ]
        cells += [f"{many['calls']:,}", f"{few['wall']:.1f}", f"{sum(few['cpu'].values()):.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    one, on_ray = rows_cpu.values()
    loads = [each["load"] for runs in results["runs"].values() for each in runs]
    return TEXT.format(
        **{name: results[name] for name in ("rows", "latency")},
        at_once=AT_ONCE,
        when=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        ray=version("ray"),
        load=f"{min(loads):.1f} to {max(loads):.1f}",
        lines="\n".join(lines),
        ratio=sum(on_ray.values()) / sum(one.values()),
        target=TARGET,
        few=FEW,
        beyond=beyond,
        kinds=" | ".join(on_ray),
        rules=" | ".join("---" for _ in on_ray),
        shares=" | ".join(f"{each:.2f}" for each in on_ray.values()),
    )


if __name__ == "__main__":
    sys.exit(main())
