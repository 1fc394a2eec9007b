"""One process, many callers of the Python API: threads, event loops in turn, forked and spawned workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import Answer, Loopback, says

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

VERDICT = '{"reasoning": "fine", "scores": {"semantic": 4, "pragmatic": 4, "syntactic": 4}, "findings": []}'
BEGINNING = """
import asyncio, multiprocessing, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
import judgekit

def one(name):
    found = judgekit.judge_texts({f"{name}.md": f"Text {name} has some words."})[0]
    if found.verdict != "accept":
        print(found.degraded)
    return found.verdict

def accepted(found):
    print(sum(each == "accept" for each in found), "of", len(list(found)))
"""
WAYS = {
    "threads of asyncio: 20 of 20, 20 of 20": """
async def many():
    return await asyncio.gather(*(asyncio.to_thread(one, each) for each in range(20)))
accepted(asyncio.run(many()))
accepted(asyncio.run(many()))
""",
    "one loop: 40 of 40, 8 of 8": """
async def texts(name):
    return (await judgekit.ajudge_texts({f"{name}.md": f"Text {name} has some words."}))[0].verdict
async def many(count):
    return await asyncio.gather(*map(texts, range(count)))
accepted(asyncio.run(many(40)))
with ThreadPoolExecutor(2) as pool:  # two loops, each with several
    accepted([each for found in pool.map(asyncio.run, (many(4), many(4))) for each in found])
""",
    "what is cancelled: 2 of 2, 1 of 1": """
async def cancelled():
    texts = {str(each): f"Text {each} is cancelled." for each in range(50)}
    task = asyncio.create_task(judgekit.ajudge_texts(texts, concurrency=1))
    kept = asyncio.create_task(judgekit.ajudge_texts({str(each): f"Text {each} is kept." for each in "ab"}))
    await asyncio.sleep(0.5)
    task.cancel()
    found = await asyncio.gather(task, kept, return_exceptions=True)
    if not isinstance(found[0], asyncio.CancelledError):
        print(found[0])
    return [each.verdict for each in found[1]]
accepted(asyncio.run(cancelled()))
accepted([one("after")])
""",
    "pools of threads: 4 of 4, 16 of 16, 32 of 32": """
for threads in (2, 8, 16):
    with ThreadPoolExecutor(threads) as pool:
        accepted(list(pool.map(one, [f"{threads}-{each}" for each in range(2 * threads)])))
""",
    "loops in turn, one of them running: 4 of 4": """
async def within():
    return one("within")
accepted([asyncio.run(within()) for _ in range(3)] + [one("alone")])
""",
    "comparisons: 8 of 8": """
def which(name):
    found = judgekit.compare(f"{name} is well.", f"{name} is better.", prompt="Which?", rubric="kls")
    if found.degraded:
        print(found.degraded)
    return found.verdict
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(which, range(8)))
accepted(["accept" if each in "AB" or each == "tie" else each for each in found])
""",
    "forked after use: 5 of 5": """
import signal
one("parent")
def born(name):
    if (process := os.fork()) == 0:
        os._exit(0 if one(name) == "accept" else 1)
    return process
def child(name):
    signal.alarm(100)
    with ThreadPoolExecutor(1) as pool:
        own = pool.submit(born, name + "-own").result()
    said = [one(name), one(name + "-again")]
    os._exit(0 if said == ["accept"] * 2 and os.waitpid(own, 0)[1] == 0 else 1)
children = []
for each in range(3):
    if (process := os.fork()) == 0:
        child(f"child {each}")
    children.append(process)
own = one("parent-meanwhile")
accepted(["accept" if os.waitpid(each, 0)[1] == 0 else "lost" for each in children] + [own, one("after")])
""",
    "forked while others ask: 12 of 12": """
import signal, time
one("parent")
with ThreadPoolExecutor(4) as pool:
    asked = [pool.submit(one, each) for each in range(8)]
    children = []
    for each in range(4):
        time.sleep(0.1)
        if (process := os.fork()) == 0:
            signal.alarm(100)
            os._exit(0 if one(f"child {each}") == "accept" else 1)
        children.append(process)
    own = [each.result() for each in asked]
accepted(["accept" if os.waitpid(each, 0)[1] == 0 else "lost" for each in children] + own)
""",
    "forked while a thread waits for rows: 2 of 2": """
import signal
one("parent")
reading = threading.Event()
never = threading.Event()
def wait_for_rows():
    reading.set()
    never.wait()
    yield {}
threading.Thread(target=lambda: list(judgekit.judge_rows(wait_for_rows())), daemon=True).start()
reading.wait()
if (process := os.fork()) == 0:
    signal.alarm(100)
    os._exit(0 if one("child") == "accept" else 1)
accepted(["accept" if os.waitpid(process, 0)[1] == 0 else "lost", one("after")])
sys.stdout.flush()
os._exit(0)
""",
    "rows in workers of one task each: 6 of 6": """
def rows(name):
    found = judgekit.judge_rows([{"question": "q", "answer": f"Text {name}."}], rubric="kls")
    return [row["verdict"] for row in found][0]
rows("parent")
with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
    accepted(pool.map(rows, range(6), chunksize=1))
""",
    "forked by multiprocessing: 6 of 6": """
one("parent")
with multiprocessing.get_context("fork").Pool(2) as pool:
    accepted(pool.map(one, range(6)))
""",
    "spawned: 4 of 4": """
if __name__ == "__main__":
    one("parent")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        accepted(pool.map(one, range(4)))
""",
    "forked by a server: 4 of 4": """
if __name__ == "__main__":
    one("parent")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["judgekit.api"])
    with context.Pool(2) as pool:
        accepted(pool.map(one, range(4)))
""",
}
MANY = """
import gc, time
def opened():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()
one("warm"), one("again")
before = opened()
accepted([one(each) for each in range(100)])
def is_more(now):
    # Up to eight threads stay for the next call; how many depends on how much was done at once.
    return now[0] > before[0] + 2 or now[1] > before[1] + 8
# A thread that has handed over its result takes a moment to end, with what it holds.
for _ in range(50):
    after = opened()
    if not is_more(after):
        break
    time.sleep(0.1)
print((before, after) if is_more(after) else "no more")
"""


def run(script: str, tmp_path: Path, seconds: float = 0.2) -> tuple[list[str], str]:
    """Run a program that asks a server this slow; return the lines it prints, and its stderr."""
    program = tmp_path / "program.py"
    program.write_text(BEGINNING + script, encoding="utf-8")
    with Loopback(lambda _: answer(server, seconds)) as server:
        given = {
            "JUDGEKIT_API_BASE": server.base,
            "JUDGEKIT_API_KEY": "a-key",
            "JUDGEKIT_MODEL": "stand-in",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-W", "default::ResourceWarning", str(program)],
            env={**os.environ, **given},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,  # one connection closed under another's call costs its whole deadline of 180 s
            check=False,
        )
    return done.stdout.splitlines(), done.stderr


def answer(server: Loopback, seconds: float) -> Answer:
    server.closing.wait(seconds)
    return says(VERDICT)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.skipif(sys.platform == "win32", reason="forks, and spawned workers import the program")
def test_no_verdict_is_lost_and_nothing_is_said(way: str, tmp_path: Path) -> None:
    assert run(WAYS[way], tmp_path) == (way.partition(": ")[2].split(", "), "")


def test_nothing_of_ours_runs_at_a_fork(tmp_path: Path) -> None:
    """A handler of ours would hold up, or lock, forks of programs that merely import us."""
    script = (
        "import judgekit.api; from judgekit.providers import litellm; litellm.load(); print(*ours)"
    )
    registers = (
        "import os; ours = []; os.register_at_fork = lambda **own: ours.append(named(own))\n"
    )
    naming = """
def named(handlers):
    modules = {getattr(handler, "__module__", "") or "" for handler in handlers.values()}
    return [module for module in modules if module.startswith("judgekit")]
"""
    program = tmp_path / "fork.py"
    program.write_text(naming + registers + script.replace("*ours", "sum(map(len, ours))"))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == "0"


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc shows")
def test_many_calls_in_turn_leave_nothing_open(tmp_path: Path) -> None:
    assert run(MANY, tmp_path, 0.01) == (["100 of 100", "no more"], "")
