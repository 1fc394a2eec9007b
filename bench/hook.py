"""CPU of the prompt hook, as a ratio to a bare interpreter measured in the same run.

python bench/hook.py [--data DIR] [--json] [--memories N] [--runs N] [--write FILE]

Makes a store of synthetic memories (DIR, where given, supplies `retrieval/locomo_obs` notes for their text),
asks it one question per process, interleaved with `python -c pass`, and prints the medians. Both launch forms
are measured, without a configuration and with one, which the hook reads compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

WORDS = """
cache queue worker token session index schema migration webhook retry timeout payment invoice export
upload avatar search filter pagination router middleware logger metric alert backup cluster shard proxy
template locale currency feature flag rollout canary release branch pipeline runner artifact container
"""
FOLDERS = {
    "decision": ("decisions", "context"),
    "constraint": ("constraints", "rule"),
    "runbook": ("runbooks", "trigger"),
    "preference": ("preferences", "reason"),
}
PROMPT = "How do we refresh the JWT when the session token has run out?"


class Launch(NamedTuple):
    """A way to start the hook, and the input it gets."""

    name: str
    command: list[str]
    stdin: bytes


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memories", type=int, default=500)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), options.memories, options.runs, notes(options.data))
    if options.json:
        print(json.dumps(results))
    else:
        print(table(results))
    if options.write:
        options.write.write_text(f"# The prompt hook\n\n{table(results)}\n", encoding="utf-8")
    return 0


def measure(folder: Path, memories: int, runs: int, texts: list[str]) -> dict[str, Any]:
    """Return the medians of CPU seconds, and their ratios to the bare interpreter's."""
    environment = {**os.environ, "HOME": str(folder), "JUDGEKIT_HOME": str(folder / "home")}
    launches = [Launch("python -c pass", [sys.executable, "-c", "pass"], b"")]
    for name in ("plain", "configured"):
        project = folder / name
        make_store(project, memories, texts, configured=name == "configured")
        stdin = json.dumps({"prompt": PROMPT, "cwd": str(project)}).encode()
        script = str(Path(sys.executable).with_name("judgekit"))
        launches.append(Launch(f"judgekit hook, {name}", [script, "hook"], stdin))
        launches.append(Launch(f"python -m, {name}", [sys.executable, "-m", "judgekit", "hook"], stdin))
    first = {each.name: cpu(each, environment, folder) for each in launches}
    seconds: dict[str, list[float]] = {each.name: [] for each in launches}
    for _ in range(runs):
        for each in launches:
            seconds[each.name].append(cpu(each, environment, folder))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    bare = medians[launches[0].name]
    return {
        "memories": memories,
        "runs": runs,
        "bytecode_written": not sys.dont_write_bytecode,
        "cpu_ms": {name: round(value * 1000, 2) for name, value in medians.items()},
        "ratio": {name: round(value / bare, 2) for name, value in medians.items()},
        "first_run_ratio": {name: round(value / bare, 2) for name, value in first.items()},
    }


def cpu(launch: Launch, environment: dict[str, str], folder: Path) -> float:
    """Return the CPU seconds, user and system, of one process; exits when it fails."""
    source = folder / "stdin"
    source.write_bytes(launch.stdin)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, str(source), os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(folder / "stdout"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    process = os.posix_spawn(launch.command[0], launch.command, environment, file_actions=actions)
    _, status, usage = os.wait4(process, 0)
    answered = b"jwt" in (folder / "stdout").read_bytes() or not launch.stdin
    if status != 0 or not answered:
        raise SystemExit(f"{launch.name}: status {status}, answered: {answered}")
    return usage.ru_utime + usage.ru_stime


def make_store(project: Path, memories: int, texts: list[str], *, configured: bool) -> None:
    """Write a claude-memory store of which one memory answers `PROMPT`."""
    chance = random.Random(memories)  # noqa: S311 - the same store every time, not a secret
    store = project / ".claude" / "memory"
    words = WORDS.split()
    lines = [
        write(store, "decision", "jwt", "JWT token refresh flow", "A session gets a new token from its own.")
    ]
    for number in range(memories - 1):
        title = " ".join(chance.sample(words, 4))
        text = chance.choice(texts) if texts else " ".join(chance.choices(words, k=60))
        lines.append(write(store, chance.choice(list(FOLDERS)), f"memory-{number}", title, text))
    (store / "index.md").write_text("\n".join(["# Memory index", "", *lines, ""]), encoding="utf-8")
    if configured:
        settings = {"retrieval": {"enabled": True, "max_inject": 3}}
        (store / "memory-config.json").write_text(json.dumps(settings), encoding="utf-8")


def write(store: Path, category: str, name: str, title: str, text: str) -> str:
    """Write one record and return its line of the index."""
    folder, field = FOLDERS[category]
    path = store / folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "schema_version": "1.0",
        "category": category,
        "id": name,
        "title": title,
        "record_status": "active",
        "updated_at": "2026-01-15T09:00:00Z",
        "tags": title.lower().split()[:2],
        "content": {field: text},
    }
    path.write_text(json.dumps(record), encoding="utf-8")
    tags = ",".join(title.lower().split()[:2])
    return f"- [{category.upper()}] {title} -> .claude/memory/{folder}/{name}.json #tags:{tags}"


def notes(data: Path | None) -> list[str]:
    """Return the texts of the outside notes, where they are."""
    path = data / "retrieval" / "locomo_obs" / "corpus.jsonl" if data else None
    if path is None or not path.is_file():
        return []
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


def table(results: dict[str, Any]) -> str:
    """Return the figures as a Markdown table with their date, a row a launch form."""
    when, machine = (
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"Python {platform.python_version()}, {os.cpu_count()} cores",
    )
    ratio, first = results["ratio"], results["first_run_ratio"]
    rows = [
        f"| {name} | {cpu_ms:.1f} | {ratio[name]:.2f} | {first[name]:.2f} |"
        for name, cpu_ms in results["cpu_ms"].items()
    ]
    lines = [
        f"{results['memories']} memories, median CPU of {results['runs']} runs each; ratios are to a bare",
        f"`python -c pass` of the same run. {when}, {machine}.",
        "",
        "| launch | CPU ms | ratio | first run |",
        "| --- | --- | --- | --- |",
        *rows,
    ]
    if not results["bytecode_written"]:
        lines += ["", "Python was told to write no bytecode; judgekit's own was compiled before."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
