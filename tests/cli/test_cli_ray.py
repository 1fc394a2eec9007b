"""`judge --data … --on ray`: the same as on one machine, one budget and pace, and resuming after a death."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, fails, says
from scripted import by_content, scores

from judgekit import environment
from judgekit.config import files
from tests import docs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loopback import Answer, Asked
    from outcome import Use
    from ray_cluster import RayCluster

pytest.importorskip("ray", reason="the extra ray is not installed")
parquet = pytest.importorskip("pyarrow.parquet")

import ray_cluster  # noqa: E402 - needs no Ray itself

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("project")]
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient")
SECONDS = 300


def row(number: int, answer: str = "", **more: object) -> dict[str, Any]:
    return {"id": f"r{number}", "question": f"q{number}?", "answer": answer or f"a{number}", **more}


def write(rows: Iterable[object], path: str = "rows.jsonl") -> None:
    Path(path).write_text("".join(f"{json.dumps(each)}\n" for each in rows))


def read(path: str = "out") -> dict[str, dict[str, Any]]:
    """Return the rows of results by their ids, each of which must occur once."""
    found = parquet.read_table(path).to_pylist()
    assert set(Counter(each["id"] for each in found).values()) <= {1}
    return {each["id"]: each for each in found}


def last(err: str) -> str:
    return re.sub(r"\d+ s", "N s", err.splitlines()[-1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster.running(2) as found:
        yield found


class Ray:
    """Runs judgekit with `--on ray`."""

    def __init__(self, cluster: RayCluster) -> None:
        self.cluster = cluster

    def begin(self, *words: str) -> subprocess.Popen[str]:
        words = (*words, "--on", "ray", "--ray-address", self.cluster.address, "--out", "out")
        return subprocess.Popen(
            [sys.executable, "-m", "judgekit", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> tuple[int, str]:
        child = self.begin(*(words or JUDGE))
        out, err = child.communicate(timeout=SECONDS)
        assert out == ""
        return child.returncode, err


@pytest.fixture
def ray(cluster: RayCluster) -> Ray:
    return Ray(cluster)


class Held:
    """Answers the first calls, and holds all others until it is released."""

    def __init__(self, free: int) -> None:
        self.free, self.count, self.lock = free, 0, threading.Lock()
        self.reached, self.released = threading.Event(), threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        with self.lock:
            self.count += 1
            held = self.count > self.free
            if held:
                self.reached.set()
        if held:
            self.released.wait(60)
        return by_content(asked)


WORKER, BROKER = b"MapWorker(MapBatches(_Actor))", b"ray::Broker"


def processes(cluster: RayCluster, title: bytes = WORKER) -> list[int]:
    """Return the processes of a cluster with such a title; other runs on this machine have theirs."""
    found, parents = [], dict[int, int]()
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            if title in (each / "cmdline").read_bytes():
                found.append(int(each.name))

    def is_ours(process: int) -> bool:
        return process == cluster.process.pid or (process in parents and is_ours(parents[process]))

    return [each for each in found if is_ours(each)]


def test_rows_of_all_kinds_are_the_same_as_on_one_machine(
    ray: Ray, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(asked: Asked) -> Answer:
        if "middling" in asked.text:
            return says(scores(3, 2, 3))
        return fails(400) if "unlucky" in asked.text else by_content(asked)

    texts = ["", "\nTODO", "middling", "unlucky", " ", "good"]
    rows = [
        row(each % 12, texts[each % 6])
        | {"id": each, "n": each, "label": ["accept", None][each % 2], "tags": [each]}
        for each in range(2_000)
    ]
    Path("data").mkdir()
    words = ["judge", "--data", "data", *JUDGE[3:], "--no-cache"]
    one = [sys.executable, "-m", "judgekit", *words, "--out", "here.parquet"]
    with Loopback(answer) as server:
        use(server)
        write(rows[:12], "data/a.jsonl")
        recorded = {**os.environ, "JUDGEKIT_RECORD": "replies.jsonl"}
        subprocess.run(one, env=recorded, capture_output=True, check=False, timeout=SECONDS)
    write(rows[:250], "data/a.jsonl")
    write(rows[250:], "data/b.jsonl")
    monkeypatch.setenv("JUDGEKIT_REPLAY", str(Path("replies.jsonl").absolute()))
    here = subprocess.run(
        [*one, "--fresh"], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    code, err = ray(*words)
    assert (code, last(err)) == (
        here.returncode,
        last(here.stderr).replace("here.parquet", "out"),
    ), err
    assert "2,000 rows in out: " in last(err)
    expected, found = read("here.parquet"), read()
    assert parquet.ParquetDataset("out").schema.equals(parquet.read_schema("here.parquet"))
    for name, each in expected.items():
        assert stripped(found[name]) == stripped(each)


def stripped(found: dict[str, Any]) -> dict[str, Any]:
    """Return a row of results without the values that differ each time."""
    judged = json.loads(found["judged"] or "null")
    for each in (judged, *(judged or {}).get("rounds", ())):
        for name in ("id", "timestamp", "duration_ms", "latency_ms"):
            (each or {}).pop(name, None)
    content, _, _ = (found["fingerprint"] or "").partition(
        "."
    )  # the rest seals the row, with its times
    return {**found, "judged": judged, "duration_ms": None, "fingerprint": content}


def test_a_worker_that_is_killed_costs_no_more_than_its_calls_in_flight(ray: Ray, use: Use) -> None:
    write(row(each) for each in range(200))
    held = Held(80)
    with Loopback(held) as server:
        use(server)
        child = ray.begin(*JUDGE, "-j", "8")
        assert held.reached.wait(SECONDS)
        os.kill(processes(ray.cluster)[0], signal.SIGKILL)
        held.released.set()
        _, err = child.communicate(timeout=SECONDS)
        assert child.returncode == 0, err
        assert read().keys() == {f"r{each}" for each in range(200)}
        assert len(server.requests) <= 200 + 8
        assert "200 accept; 200 judged in" in last(err)


def test_a_driver_that_is_killed_goes_on_where_it_was(ray: Ray, use: Use) -> None:
    write(row(each) for each in range(200))
    held = Held(100)
    with Loopback(held) as server:
        use(server)
        child = ray.begin(*JUDGE, "-j", "8")
        assert held.reached.wait(SECONDS)
        child.kill()
        child.communicate(timeout=SECONDS)
        end = time.monotonic() + SECONDS
        while processes(ray.cluster):  # none writes any more
            assert time.monotonic() < end
            time.sleep(0.2)
        held.released.set()
        kept = len(read())
        code, err = ray(*JUDGE, "-j", "8")
        assert code == 0
        assert read().keys() == {f"r{each}" for each in range(200)}
        assert kept > 0
        assert f"{kept:,} reused" in last(err)
        assert len(server.requests) <= 200 + 2 * 8
        assert not list(Path("out").glob("part-0001*"))


def test_without_the_broker_a_run_ends_and_goes_on_where_it_was(ray: Ray, use: Use) -> None:
    write(row(each) for each in range(200))
    held = Held(100)
    with Loopback(held) as server:
        use(server)
        child = ray.begin(*JUDGE, "-j", "8")
        assert held.reached.wait(SECONDS)
        (broker,) = processes(ray.cluster, BROKER)
        os.kill(broker, signal.SIGKILL)
        held.released.set()
        _, err = child.communicate(timeout=SECONDS)
        assert child.returncode == 65
        assert last(err).startswith("judgekit: Ray: ActorDiedError: ")
        assert last(err).endswith("; run the same command again to go on")
        code, err = ray(*JUDGE, "-j", "8")
        assert (code, len(read())) == (0, 200)
        assert len(server.requests) <= 200 + 2 * 8


def test_a_node_that_is_gone_ends_no_run(use: Use) -> None:
    write(row(each) for each in range(300))
    held = Held(120)
    with Loopback(held) as server, ray_cluster.running(3) as cluster:
        use(server)
        child = Ray(cluster).begin(*JUDGE, "-j", "8")
        assert held.reached.wait(SECONDS)
        cluster.kill_node()
        held.released.set()
        _, err = child.communicate(timeout=SECONDS)
        assert child.returncode == 0, err
        assert read().keys() == {f"r{each}" for each in range(300)}
        assert len(server.requests) <= 300 + 3 * 8


def test_a_provider_that_is_down_for_a_while_costs_no_row(ray: Ray, use: Use) -> None:
    write(row(each) for each in range(150))
    down = Down(60, seconds=4)
    with Loopback(down) as server:
        use(server)
        code, err = ray(*JUDGE, "-j", "8")
        assert (code, down.answered) == (0, 150)
        assert "150 accept" in last(err)
        assert len(read()) == 150


class Down:
    """Answers some calls, then fails for some seconds, and answers again."""

    def __init__(self, free: int, seconds: float) -> None:
        self.answered, self._free, self._seconds, self._end = 0, free, seconds, 0.0
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Answer:
        with self._lock:
            if self.answered == self._free:
                self._end = self._end or time.monotonic() + self._seconds
            if time.monotonic() < self._end:
                return fails(503)
            self.answered += 1
        return by_content(asked)


def priced(home: Path) -> None:
    """Let a call cost 11 US dollars."""
    profile = (files.get_data_folder("providers") / "openai-compatible.yaml").read_text(
        encoding="utf-8"
    )
    own = home / "judgekit" / "providers" / "openai-compatible.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f"{profile}\nprice: {{stand: {{input: 1000000, output: 0}}}}\n")


def test_the_limit_on_the_cost_is_one_for_all_workers(ray: Ray, isolated: Path, use: Use) -> None:
    priced(isolated)
    write(row(number) for number in range(150))
    with Loopback(by_content) as server:
        use(server)
        code, err = ray(*JUDGE, "--max-cost", "770", "-j", "4")  # 70 calls
        asked = len(server.requests)
        assert (code, len(read())) == (2, asked)
        assert 70 <= asked <= 70 + 2 * 4
        rest = f"{asked * 11:.2f} USD; {150 - asked} rows not judged, because --max-cost is reached"
        assert last(err).endswith(rest)
        code, err = ray(*JUDGE, "-j", "4")
        assert (code, len(server.requests), len(read())) == (0, 150, 150)
        assert f"{asked} reused" in last(err)
    assert Path(
        environment.REPLIES.path()
    ).is_file()  # the workers keep replies in the user's cache


def test_one_refusal_slows_all_workers(ray: Ray, use: Use) -> None:
    write(row(number) for number in range(300))
    times = list[float]()

    def answer(asked: Asked) -> Answer:
        times.append(time.monotonic())
        if len(times) == 100:
            return fails(429, retry_after=8)
        time.sleep(0.05)  # so that there are rows left when all workers have heard
        return by_content(asked)

    with Loopback(answer) as server:
        use(server)
        code, _ = ray(*JUDGE, "-j", "4")
        assert (code, len(read()), len(server.requests)) == (0, 300, 301)
        assert len([each for each in times[100:] if each < times[99] + 8]) < 150


def test_what_cannot_be_read_is_named_before_any_model_is_asked(ray: Ray, use: Use) -> None:
    Path("data").mkdir()
    words = ["judge", "--data", "data", *JUDGE[3:]]
    for bad, message in (
        (json.dumps(row(3)), "row 42, column id: row 4 has the same id 'r3'"),
        (
            json.dumps({"id": "x", "answer": [1]}),
            "row 42, column answer: expected a text, got a list",
        ),
    ):
        write((row(each) for each in range(40)), "data/a.jsonl")
        Path("data/b.jsonl").write_text(f"{json.dumps(row(40))}\n{bad}\n")
        with Loopback(by_content) as server:
            use(server)
            code, err = ray(*words)
        assert (code, len(server.requests), Path("out").exists()) == (65, 0, False)
        assert message in err


def test_what_changes_is_judged_again_and_pairs_are_compared(ray: Ray, use: Use) -> None:
    def better(asked: Asked) -> Answer:
        [name] = re.findall(r"The text (\w+):\s+<[^>]*>\s+good", asked.text)
        return says(json.dumps({"reasoning": "It is better.", "better": name}))

    unlucky = ["unlucky"]

    def answer(asked: Asked) -> Answer:
        return fails(400) if any(word in asked.text for word in unlucky) else by_content(asked)

    texts = {7: "\nTODO", 8: "unlucky"}
    write(row(each, texts.get(each, "")) for each in range(100))
    with Loopback(answer) as server:
        use(server)
        _, err = ray(*JUDGE, "--limit", "90")
        assert last(err).startswith(
            "90 rows in out: 88 accept, 1 reject, 1 undetermined; 90 judged in"
        )
        asked = len(server.requests)
        unlucky.clear()
        write(
            row(each, "" if each == 7 else texts.get(each, ""), more=[each]) for each in range(100)
        )
        code, err = ray(*JUDGE)
        assert (code, len(server.requests) - asked) == (0, 12)
        assert last(err).startswith("100 rows in out: 100 accept; 12 judged in N s, 88 reused")
        assert (read()["r7"]["verdict"], len(read())) == ("accept", 100)
        assert read()["r99"]["more"] == "[99]"
        assert read()["r1"]["more"] is None
        done = subprocess.run(
            [sys.executable, "-m", "judgekit", "report", "out"], capture_output=True, check=True
        )
        assert b"100 rows: 100 accept" in done.stdout
    write(
        {"prompt": "p", "answer_a": "good", "answer_b": f"bad {each}", "winner": "A"}
        for each in range(50)
    )
    with Loopback(better) as server:
        use(server)
        code, err = ray("compare", "--data", "rows.jsonl", "--fresh")
        assert (code, len(read())) == (0, 50)
        assert last(err).endswith("50 of 50 labels agree (100%)")


def test_rows_are_judged_in_a_job_of_ones_own(cluster: RayCluster) -> None:
    page = (docs.ROOT / "docs/ray.md").read_text(encoding="utf-8")
    (job,) = [each.text for each in docs.fences(page) if "import ray\n" in each.text]
    for name in ("answers.jsonl", "replies.jsonl"):
        shutil.copy(docs.ROOT / "examples/rows" / name, name)
    replies = str(Path("replies.jsonl").absolute())
    shared = {"env_vars": {"JUDGEKIT_REPLAY": replies}}
    code = f"import ray\nray.init({cluster.address!r}, runtime_env={shared})\n{job}".replace(
        "/mnt/shared", str(Path.cwd())
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    found = {name: each["verdict"] for name, each in read("judged").items()}
    assert Counter(found.values()) == {"accept": 6, "improve": 1, "undetermined": 1}
    assert found["milk"] == "undetermined"
