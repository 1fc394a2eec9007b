"""A dataset judged by judgekit and by other tools, against a provider on this machine with a fixed latency.

python bench/rows.py [--peers FOLDER] [--rows N] [--many N] [--rounds N] [--kept FILE] [--write FILE]
python bench/rows.py --install FOLDER

The job: judge the rows of a JSON Lines file with one call a row, and write the results. Each figure is a
whole process as a user starts it, with a home of its own. The yardsticks make the calls and nothing else.
Each round runs every tool once, and the medians of the rounds are printed. Then each tool is killed after two
fifths of the calls, and started again the way that its documentation says. Last, judgekit judges many rows at
a provider that answers at once. `--install` makes environments with the other tools in a folder, which
`--peers` names.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import provider
from judgekit.data.results import OUR_COLUMNS
from judgekit.data.tables import parquet, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LATENCY = 0.3
ROWS, FEW, MANY = 2000, 10_000, 100_000
ROUNDS, KILLS = 3, 2
SENTENCES = 36  # of an answer: about 2,700 characters
AT_MOST = 64  # at a time
YARDSTICKS = {32: "httpx", AT_MOST: "aiohttp"}
LOOK = 0.2  # seconds between two looks at memory
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Nothing leaves the machine: each tool's documented switch for that.
QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_NO_INSPECT_PROMPT": "1",
    "DEEPEVAL_DISABLE_TIMEOUTS": "1",  # 2,000 rows take it longer than it allows by itself
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
JUDGEKIT = str(Path(sys.executable).with_name("judgekit"))
PACKAGES = {
    "deepeval": ["deepeval"],
    "inspect-ai": ["inspect-ai", "openai"],
    "autorubric": ["autorubric"],
}
SAID = (
    "The index is rebuilt when a file in the folder has changed since the last run.",
    "A second copy is kept for a week, so that an operator can go back.",
    "Each step writes one line to the log, with its time and its result.",
    "When the queue is longer than a hundred entries, new ones are refused.",
    "The report names the file, the line and the rule that was broken.",
    "Readers asked for shorter pages, and for an example on each of them.",
    "A failed upload is tried three times, with a longer pause each time.",
    "The team decided to keep the old format until every client reads the new one.",
)

# The files that a user writes for each tool. BASE is the provider's address.

HTTPX = """\
import asyncio, json, sys, httpx
async def main(at_once):
    free, limits = asyncio.Semaphore(at_once), httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(base_url="BASE", limits=limits, timeout=60) as client:
        async def one(row):
            async with free:
                body = {"model": "bench", "messages": [{"role": "user", "content": row["answer"]}]}
                reply = await client.post("/chat/completions", json=body)
                row["judged"] = reply.json()["choices"][0]["message"]["content"]
                out.write(json.dumps(row) + "\\n")
        with open("rows.jsonl") as rows, open("out.jsonl", "w") as out:
            await asyncio.gather(*(one(json.loads(row)) for row in rows))
asyncio.run(main(int(sys.argv[1])))
"""
AIOHTTP = """\
import asyncio, json, sys, aiohttp
async def main(at_once):
    free, connector = asyncio.Semaphore(at_once), aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(connector=connector) as client:
        async def one(row):
            async with free:
                body = {"model": "bench", "messages": [{"role": "user", "content": row["answer"]}]}
                async with client.post("BASE/chat/completions", json=body) as reply:
                    row["judged"] = (await reply.json())["choices"][0]["message"]["content"]
                out.write(json.dumps(row) + "\\n")
        with open("rows.jsonl") as rows, open("out.jsonl", "w") as out:
            await asyncio.gather(*(one(json.loads(row)) for row in rows))
asyncio.run(main(int(sys.argv[1])))
"""
PROMPTFOO = """\
prompts: ['{{answer}}']
providers: [echo]
tests: file://tests.py:rows
defaultTest:
  options:
    provider:
      id: openai:chat:bench-promptfoo
      config: {apiBaseUrl: BASE, apiKey: none}
  assert:
    - type: llm-rubric
      value: 'The answer to the question "{{question}}" is correct, useful and well written.'
"""
PROMPTFOO_TESTS = """\
import json
def rows():
    return [{"vars": json.loads(line)} for line in open("rows.jsonl")]
"""
DEEPEVAL = """\
import json
from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, CacheConfig
from deepeval.metrics import GEval
from deepeval.models import GPTModel
from deepeval.test_case import LLMTestCase, SingleTurnParams
model = GPTModel(
    model="bench-deepeval", base_url="BASE", api_key="none", cost_per_input_token=0, cost_per_output_token=0
)
metric = GEval(
    name="quality",
    evaluation_steps=["Is the answer to the question correct, useful and well written?"],
    evaluation_params=[SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT],
    model=model,
)
rows = [json.loads(line) for line in open("rows.jsonl")]
cases = [LLMTestCase(name=row["id"], input=row["question"], actual_output=row["answer"]) for row in rows]
found = evaluate(
    cases, [metric], async_config=AsyncConfig(max_concurrent=32), cache_config=CacheConfig(use_cache=True)
)
with open("out.jsonl", "w") as out:
    for result in found.test_results:
        data = result.metrics_data[0]
        out.write(json.dumps({"id": result.name, "score": data.score, "reason": data.reason}) + "\\n")
"""
INSPECT = """\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import model_graded_qa
from inspect_ai.solver import solver
def sample(row):
    wanted = "The answer is correct, useful and well written."
    return Sample(row["question"], id=row["id"], target=wanted, metadata={"answer": row["answer"]})
@solver
def answered():
    async def solve(state, generate):
        state.output = ModelOutput.from_content("rows", state.metadata["answer"])
        return state
    return solve
@task
def rows():
    return Task(dataset=json_dataset("rows.jsonl", sample), solver=answered(), scorer=model_graded_qa())
"""
AUTORUBRIC = """\
import asyncio, json
from autorubric import DataItem, LLMConfig, Rubric, RubricDataset, evaluate
from autorubric.graders import CriterionGrader
wanted = "The answer is correct, useful and well written."
rubric = Rubric.from_dict([{"weight": 1.0, "requirement": wanted}])
rows = [json.loads(line) for line in open("rows.jsonl")]
items = [DataItem(row["answer"], description=row["id"], prompt=row["question"]) for row in rows]
dataset = RubricDataset(prompt="", rubric=rubric, items=items, name="rows")
model = LLMConfig(
    model="openai/bench-autorubric", api_base="BASE", api_key="none", max_parallel_requests=32
)
found = asyncio.run(evaluate(dataset, CriterionGrader(judge_model_config=model), experiment_name="rows"))
with open("out.jsonl", "w") as out:
    for result in found.item_results:
        out.write(json.dumps({"id": result.item.description, "score": result.report.score}) + "\\n")
"""

TABLE = """\
{rows:,} rows of about {characters:,.0f} characters, one call a row, a provider that answers in {latency} s.
{when}, {machine}; the bytecode of all Python packages is compiled. Tools ran in turn, round after
round; medians of their runs. The machine's load was {load}. Where that is above 2, other work ran on
the machine: compare ratios and CPU, not wall times.

| tool | at a time | runs | wall s | ratio | CPU s | memory MB | paid twice | lines | kB a call |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{lines}

httpx and aiohttp are yardsticks, which make the bare calls; the floor is {floors}.

- *ratio*: wall time against httpx at 32 at a time, or aiohttp at 64, in the same round.
- *CPU*, *memory*: of all processes of a run; of judgekit these are client and engine. A *cold* run starts the
  engine itself, a *warm* one finds it.
- *paid twice*: calls beyond one for each row, where a run is killed with -9 after {killed} answers and
  started again as the tool's documentation says; of each such run.
- *lines*: what a user writes: files, variables that name the model, and the command."""
MANY_TEXT = """

{many:,} rows at a provider that answers at once, {at_most} at a time: {per_second:.0f} rows a second, and
{milliseconds:.1f} ms of CPU a row, under a load of {loaded:.1f}. Client and engine together took
{memory:.0f} MB at the most ({client:.0f} MB and {engine:.0f} MB).

A row has {given:,.0f} bytes of input. It took {calls:.2f} calls of {sent:,.0f} bytes each, {lines:,.0f} bytes
of results as JSON Lines or {parquet:,.0f} as Parquet, and {cache:,.0f} bytes of the reply cache. These rows
repeat the same sentences, so Parquet packs them well."""


@dataclass(frozen=True, eq=False)
class Job:
    """How a tool is given the rows: the files, the variables and the command, and the command to resume."""

    name: str
    at_once: int
    version: str
    files: dict[str, str]
    command: list[str]
    again: list[str] | None = None  # None: the same; empty: it has no way
    variables: dict[str, str] = field(default_factory=dict)
    engine: str = ""  # "warm" or "cold": judgekit's

    @property
    def lines(self) -> int:
        written = sum(
            bool(line.strip()) for text in self.files.values() for line in text.splitlines()
        )
        return written + len(self.variables) + 1

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}{f', {self.engine}' if self.engine else ''}"

    def told(self) -> dict[str, Any]:
        return {"title": self.title, "at_once": self.at_once, "lines": self.lines}


class Took(NamedTuple):
    """The costs of a run: seconds, MB at the most, calls, bytes sent, and the memory of client and engine."""

    wall: float
    cpu: float
    memory: float
    calls: int
    sent: int
    client: float
    engine: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", type=Path, help="make environments with the other tools here")
    parser.add_argument("--peers", type=Path, help="a folder that --install made")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--many", type=int, help="rows for memory and speed; 0 for none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument(
        "--kept", type=Path, help="figures of other runs (JSON), and then of this one, too"
    )
    parser.add_argument("--only", default="", help="names of tools, separated by commas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    if options.install:
        install(options.install.absolute())
        return 0
    if options.many is None:
        options.many = MANY if options.write else FEW
    results: dict[str, Any] = {}
    if options.kept and options.kept.exists():
        results = json.loads(options.kept.read_text())
    with tempfile.TemporaryDirectory() as folder:
        with provider.running(LATENCY) as base:
            for figures in Bench(Path(folder), base).measure(options, results):
                print(figures, file=sys.stderr, flush=True)
                if options.kept:
                    options.kept.write_text(json.dumps(results))
        if options.many:
            with provider.running(0) as base:
                results["many"] = Bench(Path(folder), base).many(options.many)
    if options.kept:
        options.kept.write_text(json.dumps(results))
    text = report(results)
    print(json.dumps(results) if options.json else text)
    if options.write:
        options.write.write_text(f"# Judging rows\n\n{text}\n", encoding="utf-8")
    return 0


def install(folder: Path) -> None:
    """Make an environment for each of the other tools."""
    for name, packages in PACKAGES.items():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        pip = [str(folder / name / "bin" / "pip"), "install", "--quiet", "--compile"]
        subprocess.run([*pip, *packages], check=True)
    (folder / "promptfoo").mkdir(exist_ok=True)
    npm = [
        shutil.which("npm") or "npm",
        "install",
        "--silent",
        "--no-fund",
        "--no-audit",
        "promptfoo",
    ]
    subprocess.run([*npm, "--prefix", str(folder / "promptfoo")], check=True)


def jobs(base: str, peers: Path | None) -> list[Job]:
    """Return every tool that is there, the yardsticks first."""
    model = {"JUDGEKIT_API_BASE": base, "JUDGEKIT_MODEL": "bench"}
    judge = [JUDGEKIT, "judge", "--data", "rows.jsonl", "--out", "out.jsonl", "--mode", "lenient"]
    found = [
        Job(
            name,
            at_once,
            version(name),
            {"job.py": text},
            [sys.executable, "job.py", str(at_once)],
            [],
        )
        for name, text, at_once in (("httpx", HTTPX, 32), ("aiohttp", AIOHTTP, 64))
    ]
    found += [
        Job(
            "judgekit",
            at_once,
            version("judgekit"),
            {},
            [*judge, "-j", str(at_once)],
            None,
            model,
            engine,
        )
        for at_once, engine in ((32, "warm"), (64, "warm"), (32, "cold"), (64, "cold"))
    ]
    if peers is None:
        return found
    shell = peers / "promptfoo" / "node_modules"
    eval_ = [str(shell / ".bin" / "promptfoo"), "eval", "-j", "32", "-o", "out.jsonl"]
    eval_ += ["--no-table", "--no-progress-bar"]
    files = {"promptfooconfig.yaml": PROMPTFOO, "tests.py": PROMPTFOO_TESTS}
    package = shell / "promptfoo" / "package.json"
    if package.exists():
        number = json.loads(package.read_text())["version"]
        found.append(Job("promptfoo", 32, number, files, eval_, [*eval_, "--resume"]))
    inspect = ["inspect", "eval-set", "job.py", "--model", "openai-api/local/bench-inspect-ai"]
    inspect += ["--max-connections", "32", "--display", "none", "--log-dir", "logs"]
    model = {"LOCAL_BASE_URL": base, "LOCAL_API_KEY": "none"}
    for name, text, command, variables in (
        ("deepeval", DEEPEVAL, ["python", "job.py"], {}),
        ("inspect-ai", INSPECT, inspect, model),
        ("autorubric", AUTORUBRIC, ["python", "job.py"], {}),
    ):
        folder = peers / name / "bin"
        if folder.exists():
            asked = f"from importlib.metadata import version; print(version({name!r}))"
            done = subprocess.run(
                [folder / "python", "-c", asked], capture_output=True, text=True, check=True
            )
            words = [str(folder / command[0]), *command[1:]]
            found.append(
                Job(name, 32, done.stdout.strip(), {"job.py": text}, words, None, variables)
            )
    return found


class Bench:
    """A place to work in, with a provider at `base`."""

    def __init__(self, folder: Path, base: str) -> None:
        self.folder, self.base = folder, base
        dropped = ("JUDGEKIT_", "GIT_", "OPENAI_", "PYTHONDONTWRITEBYTECODE")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(dropped)},
            **QUIET,
            "XDG_RUNTIME_DIR": str(folder),
        }

    def measure(
        self, options: argparse.Namespace, results: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Add the figures of every tool to `results`, and yield those of each run."""
        wanted = [each for each in options.only.split(",") if each]
        found = [job for job in jobs(self.base, options.peers) if not wanted or job.name in wanted]
        killed = options.rows * 2 // 5
        results |= {"rows": options.rows, "killed": killed}
        bare: dict[int, float] = {}
        for number in range(options.rounds):
            for place, job in enumerate(found):
                load = os.getloadavg()[0]
                took = self.run(job, self.made(f"{number}-{place}", job, options.rows))
                if job.name == YARDSTICKS[job.at_once]:
                    bare[job.at_once] = took.wall
                ratio = took.wall / bare[job.at_once] if job.at_once in bare else None
                figures = {"load": load, "ratio": ratio, **took._asdict()}
                results.setdefault("runs", []).append({**job.told(), **figures})
                yield results["runs"][-1]
        for number in range(options.kills):
            for place, job in enumerate(found):
                if job.again != [] and job.engine != "cold":
                    calls = self.killed(
                        job, self.made(f"killed-{number}-{place}", job, options.rows), killed
                    )
                    twice = calls and calls - options.rows
                    results.setdefault("kills", []).append({**job.told(), "twice": twice})
                    yield results["kills"][-1]

    def made(self, name: str, job: Job, count: int) -> Path:
        """Return a folder with the rows and the files that a user writes."""
        folder = self.folder / name
        folder.mkdir()
        with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows(count))
        for file_name, text in job.files.items():
            (folder / file_name).write_text(text.replace("BASE", self.base))
        return folder

    def begin(self, job: Job, folder: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a tool in a session of its own, with a home that nothing has used."""
        homes = {"HOME": str(folder)}
        if job.engine:  # its engine is known by the home of the user
            homes = {"HOME": str(self.folder), "JUDGEKIT_HOME": str(folder / "home")}
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                words,
                cwd=folder,
                env={**self.environment, **homes, **job.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def engine(self, job: Job, folder: Path, *words: str) -> None:
        """Start or stop the engine, or have it judge one text."""
        if job.engine and self.begin(job, folder, [JUDGEKIT, *words]).wait():
            raise SystemExit((folder / "log").read_text())

    def ready(self, job: Job, folder: Path) -> None:
        """Leave no engine running, or one that has judged a text before."""
        self.engine(job, folder, "engine", "stop")
        while self.engines():
            time.sleep(LOOK)
        if job.engine == "warm":
            (folder / "one.md").write_text("# One\n")
            self.engine(job, folder, "engine", "start")
            self.engine(job, folder, "judge", "one.md", "--mode", "lenient", "--no-cache")

    def run(self, job: Job, folder: Path) -> Took:
        """Run a tool and return its costs."""
        self.ready(job, folder)
        before, cpu = provider.counted(self.base), self.cpu()
        process = self.begin(job, folder, job.command)
        start = time.perf_counter()
        most = client = engine = 0.0
        while process.poll() is None:
            own, other = self.memory(process.pid)
            most, client, engine = max(most, own + other), max(client, own), max(engine, other)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK)
        wall = time.perf_counter() - start
        if process.returncode:
            log = (folder / "log").read_text(errors="replace")[-2000:]
            raise SystemExit(f"{job.title} ended with {process.returncode}: {log}")
        cpu, now = self.cpu() - cpu, provider.counted(self.base)
        self.engine(job, folder, "engine", "stop")
        calls, sent = (now[name] - before[name] for name in ("asked", "bytes"))
        return Took(wall, cpu, most, calls, sent, client, engine)

    def killed(self, job: Job, folder: Path, after: int) -> int | None:
        """Return the calls of a killed run and of the one that resumes it; None if that one fails."""
        self.ready(job, folder)
        before = provider.asked(self.base)
        process = self.begin(job, folder, job.command)
        while (
            provider.asked(self.base) - before < after + job.at_once
        ):  # calls in flight get no answer
            if process.poll() is not None:
                raise SystemExit(f"{job.title} ended before it was killed")
            time.sleep(LOOK / 4)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        resumed = self.begin(job, folder, job.again or job.command).wait() == 0
        self.engine(job, folder, "engine", "stop")
        if not resumed:
            print(
                f"{job.title} does not resume: {(folder / 'log').read_text()[-300:]}",
                file=sys.stderr,
            )
        return provider.asked(self.base) - before if resumed else None

    def many(self, count: int) -> dict[str, float]:
        """Return the speed, the CPU and the most memory of judgekit over many rows."""
        job = next(
            job for job in jobs(self.base, None) if job.engine == "warm" and job.at_once == AT_MOST
        )
        folder = self.made("many", job, count)
        took = self.run(job, folder)
        out, table = folder / "out.jsonl", folder / "out.parquet"
        write_table(parquet, out, table, OUR_COLUMNS, None)
        sizes = {"given": folder / "rows.jsonl", "lines": out, "parquet": table}
        bytes_ = {name: path.stat().st_size / count for name, path in sizes.items()}
        kept = [path.stat().st_size for path in folder.rglob("replies.sqlite*")]
        bytes_ |= {
            "cache": sum(kept) / count,
            "calls": took.calls / count,
            "sent": took.sent / took.calls,
        }
        memory = {"memory": took.memory, "client": took.client, "engine": took.engine}
        speed = {"per_second": count / took.wall, "milliseconds": took.cpu / count * 1000}
        return {"many": count, **speed, **memory, **bytes_, "loaded": os.getloadavg()[2]}

    def engines(self) -> list[int]:
        """Return the processes of the engine, which is in no session of ours."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (each / "cmdline").read_bytes()
                if b"judgekit.engine.server" in words and str(self.folder).encode() in words:
                    found.append(int(each.name))
        return found

    def cpu(self) -> float:
        """Return the CPU seconds of all processes that have ended so far, and of the engine."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        ticks = sum(sum(map(int, stat(pid)[11:13])) for pid in self.engines())
        return ended.ru_utime + ended.ru_stime + ticks / TICK

    def memory(self, session: int) -> tuple[float, float]:
        """Return the memory of a session's processes and that of the engine, in MB."""
        processes = [int(each.name) for each in Path("/proc").glob("[0-9]*")]
        own = [pid for pid in processes if stat(pid)[3:4] == [str(session)]]
        ours, engines = (
            sum(int(field) for pid in pids for field in stat(pid)[21:22]) * PAGE / 1e6
            for pids in (own, self.engines())
        )
        return ours, engines


def stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name; empty if it's gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []


def rows(count: int) -> Iterator[dict[str, str]]:
    """Yield questions and answers, the same in each run."""
    chance = random.Random(7)  # noqa: S311 - no secret
    for number in range(count):
        answer = " ".join(chance.choices(SAID, k=SENTENCES))
        yield {"id": f"row-{number}", "question": f"What did day {number} bring?", "answer": answer}


def report(results: dict[str, Any]) -> str:
    """Return the figures as Markdown: of each tool the medians of its runs, and the most memory."""
    many = MANY_TEXT.format(**results["many"], at_most=AT_MOST) if "many" in results else ""
    tools: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for run in results.get("runs", []):
        tools.setdefault((run["title"], run["at_once"], run["lines"]), []).append(run)
    if not tools:
        return many.strip()
    lines = []
    for (title, at_once, written), runs in tools.items():
        wall, cpu = (statistics.median(run[name] for run in runs) for name in ("wall", "cpu"))
        ratios = [run["ratio"] for run in runs if run["ratio"] is not None]
        told = [
            each
            for each in results.get("kills", [])
            if (each["title"], each["at_once"]) == (title, at_once)
        ]
        twice = [
            "cannot resume" if each["twice"] is None else f"{each['twice']:,}" for each in told
        ]
        cells = [title, at_once, len(runs), f"{wall:.1f}"]
        cells += [f"{statistics.median(ratios):.2f}" if ratios else "", f"{cpu:.1f}"]
        cells += [f"{max(run['memory'] for run in runs):.0f}", ", ".join(twice), written]
        cells.append(f"{runs[0]['sent'] / runs[0]['calls'] / 1000:.1f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    loads = [run["load"] for run in results["runs"]]
    text = TABLE.format(
        **{name: results[name] for name in ("rows", "killed")},
        characters=round(statistics.mean(len(row["answer"]) for row in rows(100)), -2),
        latency=LATENCY,
        when=f"{datetime.now(UTC):%Y-%m-%d}",
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        load=f"{min(loads):.1f} to {max(loads):.1f}",
        lines="\n".join(lines),
        floors=" and ".join(
            f"{results['rows'] / most * LATENCY:.1f} s at {most}" for most in YARDSTICKS
        ),
    )
    return text + many


if __name__ == "__main__":
    sys.exit(main())
