"""The gate against a provider on this machine with a fixed latency, as ratios to what cannot be avoided.

python bench/gate.py [--data DIR] [--json] [--files N] [--latency S] [--write FILE]

Makes a repository, changes N Markdown files in it and runs the installed command three times: the files are
judged, the same push again (nothing may be asked), and a push in which nothing is judged. The yardsticks are
the floor, files / concurrency x latency, and `python -c "import litellm"` of the same run. `--data` is taken
for the sake of a common call and not needed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import provider

AT_ONCE = 32
GIT = shutil.which("git") or "git"

TABLE = """\
{files} changed files, a provider that answers after {latency} s, {at_once} at a time. {when}, {machine}.

| push | wall s | calls | against its yardstick |
| --- | --- | --- | --- |
| all files new | {wall} | {calls} | {ratio} times the floor of {floor} s, litellm's {import_wall} s aside |
| the same again | {again_wall} | {again_calls} | |
| nothing that is judged | | 0 | {idle_cpu_ms} ms of CPU, {idle_ratio} times `python -c pass` |"""


class Took(NamedTuple):
    """Wall and CPU seconds of one process."""

    wall: float
    cpu: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, provider.running(options.latency) as base:
        results = measure(Path(folder), base, options.latency, options.files)
    print(json.dumps(results) if options.json else table(results))
    if options.write:
        options.write.write_text(f"# The gate\n\n{table(results)}\n", encoding="utf-8")
    return 0


def measure(folder: Path, base: str, latency: float, files: int) -> dict[str, Any]:
    """Measure each run: its costs and its number of calls."""
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GIT_", "JUDGEKIT_"))
        },
        "GIT_CONFIG_GLOBAL": os.devnull,
        "HOME": str(folder),
        "JUDGEKIT_HOME": str(folder / "home"),
        "JUDGEKIT_API_BASE": base,
        "JUDGEKIT_ENGINE": "0",  # what an engine saves is measured in engine.py
        "JUDGEKIT_MODEL": "bench",
    }
    work = repository(folder / "work", environment, files)
    script = str(Path(sys.executable).with_name("judgekit"))
    push = [script, "gate", "--pre-push", "origin", "nowhere"]
    texts, code = (
        f"main {work[name]} refs/heads/main {work[before]}\n" for name, before in _PUSHES
    )
    imported = run([sys.executable, "-c", "import litellm"], folder, environment)
    bare = run([sys.executable, "-c", "pass"], folder, environment)
    first = run(push, folder / "work", environment, texts)
    asked = provider.asked(base)
    again = run(push, folder / "work", environment, texts)
    repeated = provider.asked(base) - asked
    idle = min(
        (run(push, folder / "work", environment, code) for _ in range(5)), key=lambda took: took.cpu
    )
    floor = math.ceil(files / AT_ONCE) * latency
    return {
        "files": files,
        "latency": latency,
        "calls": asked,
        "wall": round(first.wall, 2),
        "floor": round(floor, 2),
        "import_wall": round(imported.wall, 2),
        "ratio": round((first.wall - imported.wall) / floor, 2),
        "again_calls": repeated,
        "again_wall": round(again.wall, 2),
        "idle_cpu_ms": round(idle.cpu * 1000),
        "idle_ratio": round(idle.cpu / bare.cpu, 1),
        "bytecode_written": not sys.dont_write_bytecode,
    }


_PUSHES = (("texts", "base"), ("code", "texts"))


def repository(folder: Path, environment: dict[str, str], files: int) -> dict[str, str]:
    """Make a repository with a commit of documents and one of code; return the ids of its commits."""
    folder.mkdir()

    def git(*words: str) -> str:
        done = subprocess.run(
            [GIT, "-c", "user.name=bench", "-c", "user.email=bench@example.org", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    made = {}
    for name in ("base", "texts", "code"):
        for number in range(files if name == "texts" else 1):
            ending = "md" if name == "texts" else "py"
            text = f"# Page {number}\n\n" + f"What page {number} says, in {name}.\n" * 20
            (folder / f"{name}-{number}.{ending}").write_text(text, encoding="utf-8")
        git("add", "--all")
        git("commit", "--quiet", "-m", name)
        made[name] = git("rev-parse", "HEAD")
    return made


def run(command: list[str], folder: Path, environment: dict[str, str], stdin: str = "") -> Took:
    """Run one process and return its costs; exits when it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if process.stdin is None or process.stderr is None:
        raise SystemExit("no pipes")
    process.stdin.write(stdin.encode())
    process.stdin.close()
    said = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or "UNDETERMINED" in said:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}: {said}")
    return Took(time.perf_counter() - started, usage.ru_utime + usage.ru_stime)


def table(results: dict[str, Any]) -> str:
    """Return the figures as Markdown with their date."""
    when, machine = (
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"Python {platform.python_version()}, {os.cpu_count()} cores",
    )
    found = {**results, "at_once": AT_ONCE, "when": when, "machine": machine}
    lines = [TABLE.format(**found)]
    if not results["bytecode_written"]:
        lines += ["", "Python was told to write no bytecode; judgekit's own was compiled before."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
