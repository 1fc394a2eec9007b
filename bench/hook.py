"""What the prompt hook costs: CPU as a ratio to a bare interpreter, measured in the same run.

python bench/hook.py [--memories 500,10000,100000] [--sections N] [--runs N] [--hooks N] [--data DIR] [--json]
    [--write FILE]

For each size it makes a store of synthetic memories (with DIR the notes of `retrieval/locomo_obs` are their
text), times the first build, then starts the hook as an installer would, once a process, in random order with
`python -c pass`, and prints medians. Then it times an edited memory's way into the index, and starts 50 hooks
at once while another thread edits the store. Only 500 and 10,000 memories unless asked for more; --write, for
the published table, does all three sizes, with short memories and with long ones: seven sections of 700
characters each, unless --sections asks for another number.
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
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from itertools import accumulate, count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.hooks import entries
from judgekit.retrieval import index
from judgekit.retrieval.compiled import Profiles, get_bundled_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.retrieval.index_file import Index

QUICK, ALL = (500, 10_000), (500, 10_000, 100_000)
FOLDERS = {
    "decision": ("decisions", "context"),
    "constraint": ("constraints", "rule"),
    "runbook": ("runbooks", "trigger"),
    "preference": ("preferences", "reason"),
}
PROMPT = "How do we refresh the JWT when the session token has run out?"
ANSWER = b"JWT token refresh flow"
# People put a question between other things; of these the store has most words, too.
AROUND = (
    "The worker took the queue down again last night, and the cache was cold for an hour after that.",
    "Nobody looked at the retry timeout of the schema job since the index was built in spring.",
    "We also want to rename the flow of the session list; a screenshot of the run is in the channel.",
)
LENGTHS = {"within talk": 1, "2,000 characters": 6, "6,000 characters": 20}  # times the talk
# The words of the prompt are among the more frequent ones; the others are made up, rarer and rarer as in any
# language.
KNOWN = (
    "session",
    "token",
    "run",
    "flow",
    "cache",
    "queue",
    "worker",
    "index",
    "schema",
    "retry",
    "timeout",
)
VOCABULARY = 8_000
SYLLABLES = (
    "ka",
    "lo",
    "mi",
    "re",
    "tu",
    "sa",
    "ne",
    "vo",
    "di",
    "pa",
    "che",
    "gor",
    "lin",
    "mar",
    "rin",
)
BOTH_LENGTHS = (0, 7)  # sections of a memory
SECTION_WORDS = 86  # of a section: some 700 characters
FREQUENT = 20  # made-up words that are more frequent than those of the prompt
MOST_EDITS = 5_000
SESSION = "SESSION"
_NUMBERS = count()
SETTLE = 2.2  # seconds after which a file's time tells every change; before, the index reads it once more


class Launch(NamedTuple):
    """A way to start the hook, what it reads, and what its output must contain."""

    name: str
    command: list[str]
    stdin: bytes = b""
    answer: bytes = b""


class Cost(NamedTuple):
    """What one process cost, in seconds."""

    cpu: float
    wall: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memories", help="sizes of the stores, separated by commas")
    parser.add_argument("--sections", type=int, help="sections of each memory; 0 for short ones")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--hooks", type=int, default=50, help="how many at once")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    default = ALL if options.write else QUICK
    sizes = [int(each) for each in options.memories.split(",")] if options.memories else default
    lengths = BOTH_LENGTHS if options.sections is None else (options.sections,)
    with tempfile.TemporaryDirectory() as folder:
        results = measure(
            Path(folder), sizes, lengths, options.runs, options.hooks, notes(options.data)
        )
    print(json.dumps(results) if options.json else report(results))
    if options.write:
        options.write.write_text(f"# The prompt hook\n\n{report(results)}\n", encoding="utf-8")
    return 0


def measure(
    folder: Path,
    sizes: Sequence[int],
    lengths: Sequence[int],
    runs: int,
    hooks: int,
    texts: list[str],
) -> dict[str, Any]:
    """Return all figures: medians of CPU seconds, and their ratios to the bare interpreter's."""
    os.environ.update({"HOME": str(folder), "JUDGEKIT_HOME": str(folder / "home")})
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    stores = []
    for memories, sections in product(sizes, lengths):
        project = folder / f"{memories}-{sections}"
        make_store(project, memories, texts, sections)
        stores.append(measure_store(project, memories, runs, folder) | {"sections": sections})
        configure(project)
        stores[-1]["configured"] = ratios([hook(project, "configured")], runs, folder)["configured"]
    crowd = folder / "crowd"
    make_store(crowd, min(500, sizes[0]), texts, lengths[0])
    return {
        "runs": runs,
        "stores": stores,
        "contention": contention(crowd, hooks, folder),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def measure_store(project: Path, memories: int, runs: int, folder: Path) -> dict[str, Any]:
    """Return the figures of one store without a configuration."""
    as_installed = hook(project, "as installed")
    built = build(project)
    time.sleep(SETTLE)
    start(as_installed, folder)
    script = str(Path(sys.executable).with_name("judgekit"))
    others = [
        as_installed,
        hook(project, "judgekit hook", [script, "hook"]),
        edit(project),
        silence(project),
    ]
    for name, times in LENGTHS.items():
        prompt = " ".join([*AROUND * times, PROMPT, *AROUND[:1]])
        others.append(hook(project, name, prompt=prompt))
    found = ratios([each for each in others if Path(each.command[0]).exists()], runs, folder)
    index_bytes = measure_index(project)
    facts = {"memories": memories, "build": built, "index_mb": round(index_bytes / 1e6, 2)}
    return facts | {"upsert_ms": upsert(project), **found}


def ratios(launches: list[Launch], runs: int, folder: Path) -> dict[str, dict[str, float]]:
    """Return CPU milliseconds and the ratio to a bare interpreter of each launch, in mixed runs."""
    chance = random.Random(0)  # noqa: S311 - an order, not a secret
    every = [Launch("bare", [sys.executable, "-c", "pass"]), *launches]
    for each in every:
        start(each, folder)
    seconds: dict[str, list[float]] = {each.name: [] for each in every}
    for _ in range(runs):
        chance.shuffle(every)
        for each in every:
            seconds[each.name].append(start(each, folder).cpu)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        name: {"cpu_ms": round(value * 1000, 2), "ratio": round(value / medians["bare"], 2)}
        for name, value in medians.items()
    }


def hook(
    project: Path, name: str, command: list[str] | None = None, prompt: str = PROMPT
) -> Launch:
    """Return the launch that answers a prompt, as installed unless a command is given."""
    event = {"hook_event_name": "UserPromptSubmit", "session_id": SESSION, "prompt": prompt}
    event["cwd"] = str(project)
    return Launch(name, command or entries.build_command(), json.dumps(event).encode(), ANSWER)


def silence(project: Path) -> Launch:
    """Return the launch for a prompt that asks for nothing."""
    event = {"hook_event_name": "UserPromptSubmit", "prompt": "yes", "cwd": str(project)}
    return Launch("short prompt", entries.build_command(), json.dumps(event).encode())


def edit(project: Path) -> Launch:
    """Return the launch of the edit hook."""
    path = project / ".claude" / "memory" / "decisions" / "jwt.json"
    event = {
        "hook_event_name": "PostToolUse",
        "tool_name": "Edit",
        "tool_input": {"file_path": str(path)},
    }
    return Launch(
        "edit hook", entries.build_command(), json.dumps({**event, "cwd": str(project)}).encode()
    )


def start(launched: Launch, folder: Path) -> Cost:
    """Run one process and return its cost; exits when it fails or doesn't answer."""
    began = time.perf_counter()
    pid = spawn(launched, folder, "single")
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    if status != 0 or launched.answer not in (folder / "single.out").read_bytes():
        raise SystemExit(f"{launched.name}: status {status}, {(folder / 'single.err').read_text()}")
    return Cost(usage.ru_utime + usage.ru_stime, wall)


def spawn(launched: Launch, folder: Path, name: str) -> int:
    """Start one process with its own files for input and output, and return its number."""
    session = (
        f"session {next(_NUMBERS)}"  # another one each time: what it has is not injected again
    )
    (folder / f"{name}.in").write_bytes(launched.stdin.replace(SESSION.encode(), session.encode()))
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, str(folder / f"{name}.in"), os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(folder / f"{name}.out"), write, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, str(folder / f"{name}.err"), write, 0o600),
    ]
    return os.posix_spawn(launched.command[0], launched.command, os.environ, file_actions=actions)


def opened(project: Path) -> Index:
    """Return the index of a project's store."""
    return index.open_index(
        str((project / ".claude" / "memory").resolve()), Profiles(get_bundled_data())
    )


def build(project: Path) -> dict[str, float]:
    """Return the seconds of a first build."""
    wall, cpu = time.perf_counter(), time.process_time()
    with closing(opened(project)):
        return {
            "wall_s": round(time.perf_counter() - wall, 2),
            "cpu_s": round(time.process_time() - cpu, 2),
        }


def measure_index(project: Path) -> int:
    """Return the bytes of a store's index, after what is written beside it has been put into it."""
    with closing(opened(project)) as found:
        found.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(str(found.path)).stat().st_size


def upsert(project: Path, times: int = 30) -> float:
    """Return the median milliseconds of CPU for reading one edited memory into an open index."""
    seconds = []
    store = project / ".claude" / "memory"
    with closing(opened(project)) as found:
        for number in range(times):
            write(
                store,
                "decision",
                "jwt",
                f"{ANSWER.decode()} {number}",
                "A session gets a new token.",
            )
            began = time.process_time()
            index.recheck_files(found, ["decisions/jwt.json"])
            seconds.append(time.process_time() - began)
    return round(statistics.median(seconds) * 1000, 3)


def contention(project: Path, hooks: int, folder: Path) -> dict[str, Any]:
    """Start hooks at once while the store is edited; return errors, lost updates and the longest wait."""
    launched = hook(project, "crowd")
    start(launched, folder)
    done = threading.Event()
    written: list[str] = []
    editor = threading.Thread(target=edit_on, args=(project, done, written))
    editor.start()
    running = {}
    for number in range(hooks):
        began = time.perf_counter()
        running[spawn(launched, folder, f"crowd-{number}")] = (number, began)
    errors, cpu, waits = 0, 0.0, []
    while running:
        pid, status, usage = os.wait4(-1, 0)
        number, began = running.pop(pid)
        waits.append(time.perf_counter() - began)
        cpu += usage.ru_utime + usage.ru_stime
        answered = ANSWER in (folder / f"crowd-{number}.out").read_bytes()
        errors += status != 0 or not answered or (folder / f"crowd-{number}.err").stat().st_size > 0
    done.set()
    editor.join()
    with closing(opened(project)) as found:
        titles = {
            title for (title,) in found.connection.execute("SELECT title FROM file WHERE live")
        }
    return {
        "hooks": hooks,
        "edits": len(written),
        "errors": errors,
        "lost_updates": len(set(written) - titles),
        "longest_s": round(max(waits), 2),
        "cpu_s": round(cpu, 2),
    }


def edit_on(project: Path, done: threading.Event, written: list[str]) -> None:
    """Add memories until `done`, noting their titles."""
    store = project / ".claude" / "memory"
    while not done.is_set() and len(written) < MOST_EDITS:
        title = f"Added number {len(written)}"
        write(store, "decision", f"added-{len(written)}", title, "Something new.")
        written.append(title)
        time.sleep(0.01)


def configure(project: Path) -> None:
    """Give a project a configuration, which the hook reads compiled."""
    settings = {"retrieval": {"enabled": True, "max_inject": 3}}
    path = project / ".claude" / "memory" / "memory-config.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    time.sleep(SETTLE)


def make_store(project: Path, memories: int, texts: list[str], sections: int) -> None:
    """Write a claude-memory store of which one memory answers `PROMPT`; the others may have sections."""
    chance = random.Random(memories)  # noqa: S311 - the same store every time, not a secret
    store = project / ".claude" / "memory"
    words = [
        *("".join(chance.choices(SYLLABLES, k=chance.randint(2, 5))) for _ in range(VOCABULARY))
    ]
    words[FREQUENT:FREQUENT] = KNOWN
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))
    lines = [
        write(store, "decision", "jwt", ANSWER.decode(), "A session gets a new token from its own.")
    ]
    for number in range(memories - 1):
        title = " ".join(chance.choices(words, cum_weights=weights, k=5))

        def invent(count: int) -> str:
            return " ".join(chance.choices(words, cum_weights=weights, k=count))

        if sections:
            pieces = [f"## {invent(4)}\n\n{invent(SECTION_WORDS)}" for _ in range(sections)]
            text = "\n\n".join(pieces)
        elif texts:
            text = chance.choice(texts)
        else:
            text = invent(60)
        lines.append(write(store, chance.choice(list(FOLDERS)), f"memory-{number}", title, text))
    (store / "index.md").write_text("\n".join(["# Memory index", "", *lines, ""]), encoding="utf-8")


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


def report(results: dict[str, Any]) -> str:
    """Return the figures as Markdown tables with their date."""
    crowd, when = results["contention"], f"{datetime.now(UTC):%Y-%m-%d}"
    return "\n".join(
        [
            f"Median CPU of {results['runs']} processes each, as a multiple of the bare `python -c pass`",
            f"between them. {when}, Python {results['python']}, {results['cores']} cores; bytecode compiled.",
            "",
            *table(results["stores"]),
            "",
            "*Within talk*, the question stands between four other sentences; below, between more of them.",
            "",
            f"{crowd['hooks']} hooks at once while {crowd['edits']} memories are added: {crowd['errors']}",
            f"errors, {crowd['lost_updates']} lost updates, the slowest answer after {crowd['longest_s']} s.",
            f"Together they took {crowd['cpu_s']} s of CPU.",
        ]
    )


def table(stores: list[dict[str, Any]]) -> list[str]:
    """Return a table with a column a store."""
    head = "".join(f" {store['memories']:,} |" for store in stores)
    rows = [f"| memories |{head}", "| --- |" + " --- |" * len(stores)]
    rows.append("| sections of each |" + "".join(f" {store['sections']} |" for store in stores))
    for name in (
        "bare",
        "as installed",
        *LENGTHS,
        "configured",
        "judgekit hook",
        "edit hook",
        "short prompt",
    ):
        cells = [f"{store[name]['ratio']:.2f}" if name in store else "-" for store in stores]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    rows.append(f"| bare, ms | {' | '.join(str(store['bare']['cpu_ms']) for store in stores)} |")
    rows.append(
        f"| first build, s of CPU | {' | '.join(str(store['build']['cpu_s']) for store in stores)} |"
    )
    rows.append(f"| index, MB | {' | '.join(str(store['index_mb']) for store in stores)} |")
    rows.append(
        f"| an edited memory, ms of CPU | {' | '.join(str(store['upsert_ms']) for store in stores)} |"
    )
    return rows


if __name__ == "__main__":
    sys.exit(main())
