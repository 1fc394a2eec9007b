"""Commands that ask an engine: their output, their imports, and their reaction when it goes away."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imports
import pytest
from engine_processes import alive, end_all, private_folder, until, use
from git_repo import GitRepo
from loopback import Answer, Asked, Loopback, says
from memory_store import jwt_store
from scripted import by_content

from judgekit import programs
from judgekit.cli.app import run
from judgekit.data import runners
from judgekit.engine import client, process
from judgekit.hooks import claude_code, entries, judged
from judgekit.ledger import Ledger, VerdictLine
from judgekit.ledger.store import LineFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

KEEPS = "JWT"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Return the home folder of all tests here, so that they share an engine; it ends with them."""
    with private_folder() as path:
        try:
            yield path
        finally:
            end_all(path / "judgekit")


@pytest.fixture
def project(home: Path, isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a good and a bad page, in a world where the engine is used."""
    monkeypatch.delenv("JUDGEKIT_ENGINE")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.md").write_text("# Good\n\nA sound document.\n")
    (tmp_path / "bad.md").write_text("# Bad\n\nTODO\n")
    return tmp_path


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Return a model that tells good from bad, and keeps every candidate whose title it knows."""
    with Loopback(answer) as server:
        use(monkeypatch, server)
        yield server


def answer(asked: Asked) -> Answer:
    """Keep candidates about tokens; rate documents by their content."""
    if "The memories, each after its label" not in asked.text:
        return by_content(asked)
    listed = [line for line in asked.text.splitlines() if line.startswith("[")]
    return says(
        json.dumps({"keep": [line[1 : line.index("]")] for line in listed if KEEPS in line]})
    )


@pytest.fixture
def kept_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    def slowly(asked: Asked) -> Answer:
        time.sleep(0.2)
        return by_content(asked)

    with Loopback(slowly) as server:
        use(monkeypatch, server)
        yield server


def pages(folder: Path, count: int) -> list[str]:
    names = [f"{number:03}.md" for number in range(count)]
    for name in names:
        (folder / name).write_text(f"# Page {name}\n\nA sound document.\n")
    return names


def begun(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "judgekit", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, list[Any], str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


def run_in(folder: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - subprocess's
    command = [sys.executable, "-m", "judgekit", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, **options
    )


def engines(home: Path) -> list[int]:
    return alive(home / "judgekit")


def timeless(text: str) -> str:
    text = re.sub(r'"(id|timestamp|duration_ms|latency_ms|seconds)": ?("[^"]*"|[\d.]+)', "", text)
    return re.sub(r'time="[^"]*"|[\d.]+ s', "", text)


@pytest.mark.parametrize(("many", "count"), [(3, 0), (4, 1)])
@pytest.mark.usefixtures("model")
def test_many_rows_are_judged_without_the_engine(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, many: int, count: int
) -> None:
    monkeypatch.setattr(runners, "MANY_ROWS", many)
    rows = [json.dumps({"id": number, "text": "# Good\n"}) for number in range(3)]
    (project / "rows.jsonl").write_text("\n".join(rows))
    assert run(["engine", "stop", "--now"]) == 0
    assert run(["judge", "--data", "rows.jsonl", "--out", "out.jsonl"]) == 0
    assert len(engines(home)) == count


@pytest.mark.usefixtures("model")
def test_a_long_run_that_has_few_rows_left_asks_the_engine(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "MANY_ROWS", 3)
    rows = [json.dumps({"id": number, "text": "# Good\n"}) for number in range(3)]
    command = ["judge", "--data", "rows.jsonl", "--out", "out.jsonl"]
    (project / "rows.jsonl").write_text(rows[0])
    run([*command, "--no-engine"])
    (project / "rows.jsonl").write_text("\n".join(rows))
    assert run(["engine", "stop", "--now"]) == 0
    assert run(command) == 0
    assert len(engines(home)) == 1


def test_what_is_printed_is_the_same_without_an_engine(
    project: Path,
    model: Loopback,
    capfd: pytest.CaptureFixture[str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = imports.of(["judge", "bad.md", "good.md", "--format", "jsonl"])
    verdicts = [json.loads(line) for line in done.out.splitlines()]
    found = [(verdict["verdict"], verdict["subjects"][0]["path"]) for verdict in verdicts]
    assert found == [("reject", "bad.md"), ("accept", "good.md")]
    assert (done.codes, done.imported, len(engines(home))) == ([1], {}, 1)
    (project / "own.yaml").write_text("rubrik: own\n")
    monkeypatch.setenv("JUDGEKIT_MODEL", "claude-own")
    rows = [
        (f"bad.md good.md --format {each}", 1, "")
        for each in ("table", "json", "jsonl", "sarif", "junit", "table --author-family anthropic")
    ]
    rows += [
        ("good.md --rubric klss", 64, "judgekit: no rubric 'klss'; there are: "),
        ("missing.md", 65, "judgekit: missing.md: cannot be read (No such file or directory)"),
        ("good.md --rubric own.yaml", 78, "own.yaml:1: "),
        ("good.md --rubric ./none.yaml", 78, "none.yaml: "),
    ]
    assert (
        run(["judge", "bad.md", "good.md"]) == 1
    )  # fills the cache of replies: costs are alike then
    for words, code, said in rows:
        printed = []
        for more in ([], ["--no-engine"]):
            capfd.readouterr()
            assert run(["judge", *words.split(), *more]) == code
            printed.append([timeless(text) for text in capfd.readouterr()])
        assert printed[0] == printed[1], words
        assert said in printed[0][1]
        assert printed[0][1].count("\n") == bool(said), words
        assert ("not independent" in printed[0][0]) == ("--author-family" in words)


def test_a_task_is_in_the_ledger_and_a_search_is_judged(project: Path, model: Loopback) -> None:
    words = ["--task-id", "T-1", "--acceptance", "Covers it.", "--format", "json"]
    done = imports.of(["judge", "good.md", "bad.md", *words])
    (verdict,) = json.loads(done.out)
    assert verdict["task_id"] == "T-1"
    assert done.imported == {}
    lines = list(Ledger.of(project).read_records(LineFilter(kinds=[VerdictLine])))
    assert [(line.id, line.of_task) for line in lines] == [(verdict["id"], True)]  # type: ignore[union-attr]
    store, asked = jwt_store(project, 5), len(model.requests)
    done = imports.of(["search", "refresh the JWT", "--judge", "--json", "--root", str(store.root)])
    found = json.loads(done.out)
    assert done.imported == {}
    assert found["results"]
    assert {each["kept_by"] for each in found["results"]} == {"quick"} or found["degraded"] is None
    assert all(KEEPS in each["title"] for each in found["results"])
    assert len(model.requests) > asked


def test_when_the_engine_dies_a_command_goes_on(
    project: Path, kept_waiting: Loopback, home: Path
) -> None:
    names = pages(project, 40)
    process = begun("judge", *names, "-j", "4", "--format", "jsonl")
    until(lambda: len(kept_waiting.requests) > 10)
    for engine in engines(home):
        os.kill(engine, signal.SIGKILL)
    code, verdicts, err = ended(process)
    assert [verdict["subjects"][0]["path"] for verdict in verdicts] == names
    assert {verdict["verdict"] for verdict in verdicts} == {"accept"}
    assert (code, err.count("\n")) == (0, 1)
    assert err.endswith("; continuing in this process\n")


def test_an_interrupt_ends_the_work(project: Path, kept_waiting: Loopback) -> None:
    process = begun("judge", *pages(project, 60), "-j", "4", "--format", "jsonl")
    until(lambda: len(kept_waiting.requests) > 10)
    process.send_signal(signal.SIGINT)
    code, verdicts, _ = ended(process)
    assert code == 130
    assert len(verdicts) < 60
    time.sleep(0.5)
    asked = len(kept_waiting.requests)
    time.sleep(1)
    assert len(kept_waiting.requests) == asked


def test_no_engine_means_none(
    project: Path, model: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = engines(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    gated(project)
    config = Path(os.environ["JUDGEKIT_HOME"]) / "config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        "judge good.md --no-engine",
        "judge good.md",
        "search page --judge --root .",
        "gate --base HEAD~1",
    ]
    for words in rows:
        done = imports.of(words.split())
        assert "asyncio" in done.imported, words  # it is judged here
        config.write_text("engine: {use: false}\n")
    assert set(engines(home)) <= set(before)


def gated(project: Path) -> GitRepo:
    """Make the project a repository whose rules block, with a good and a bad page on top."""
    texts = {name: (project / name).read_text() for name in ("good.md", "bad.md")}
    for name in texts:
        (project / name).unlink()
    repository = GitRepo(project)
    repository("init", "--quiet", "--initial-branch=main")
    repository.write(".judgekit/config.yaml", "gate: {mode: blocking}\n")
    repository.commit()
    for name, text in texts.items():
        repository.write(name, text)
    repository.commit()
    return repository


def test_a_gate_blocks_and_notes_it_down_also_of_a_linked_worktree(
    project: Path, model: Loopback
) -> None:
    repository = gated(project)
    done = imports.of(["gate", "--base", "HEAD~1"])
    rows = [line.split("  ")[0].strip() for line in done.out.splitlines() if line[:1].isalpha()]
    assert (done.codes, rows, done.imported) == ([1], ["NO-GO", "GO"], {})
    head = repository("rev-parse", "HEAD")
    lines = [(record.word, record.gate.mode, record.commit) for record in noted(Ledger.of(project))]
    assert sorted(lines) == [("GO", "blocking", head), ("NO-GO", "blocking", head)]
    # Git names the repository to its hook in variables: they go with the request.
    repository("worktree", "add", "--quiet", str(project / "linked"))
    environ = {**os.environ, "GIT_DIR": repository("rev-parse", "--absolute-git-dir")}
    told = f"refs/heads/main {head} refs/heads/main {'0' * 40}\n"
    push = ["gate", "--pre-push", "origin", "x", "--block"]
    pushed = run_in(project / "linked", *push, input=told, env=environ)
    assert (pushed.returncode, "bad.md" in pushed.stdout) == (1, True), pushed.stderr
    wrong = run_in(project, "gate", "--base", "nowhere")
    assert (wrong.returncode, wrong.stderr.count("nowhere")) == (65, 1), wrong.stderr


def test_what_was_noted_before_the_engine_died_counts_once(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated(project)
    ledger, died = Ledger.of(project), threading.Event()

    def waits_with_the_bad_one(asked: Asked) -> Answer:
        if "TODO" in asked.text:
            died.wait(60)
        return by_content(asked)

    with Loopback(waits_with_the_bad_one) as server:
        use(monkeypatch, server)
        process = begun("gate", "--base", "HEAD~1", "--format", "jsonl")
        until(lambda: len(noted(ledger)) == 1)
        for engine in engines(home):
            os.kill(engine, signal.SIGKILL)
        died.set()
        code, records, _ = ended(process)
    *verdicts, whole = records
    assert (code, [verdict["verdict"] for verdict in verdicts]) == (1, ["reject", "accept"])
    assert (whole["schema"], whole["verdict"]) == ("judgekit/gate@1", "NO-GO")
    assert sorted(each.id for each in noted(ledger)) == sorted(
        verdict["id"] for verdict in verdicts
    )
    assert (
        len(b"".join(path.read_bytes() for path in ledger.folder.glob("*.jsonl")).splitlines()) == 3
    )


def noted(ledger: Ledger) -> list[Any]:
    return list(ledger.read_records(LineFilter(kinds=[VerdictLine])))


HOOK = """
import sys
before = set(sys.modules)
sys.path.insert(0, {root!r})
from judgekit.hooks.claude_code import main
del sys.path[0]
main([])
print("\\n".join(sorted(set(sys.modules) - before)), file=sys.stderr)
"""


def hooked(payload: object) -> tuple[str, list[str]]:
    done = subprocess.run(
        [sys.executable, *entries.PYTHON_OPTIONS, HOOK.format(root=programs.ROOT)],
        input=json.dumps(payload).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout.decode(), done.stderr.decode().splitlines()


def test_the_hook_asks_the_engine(
    project: Path, model: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jwt_store(project, 20)
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_JUDGE", "on")
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_DEADLINE", "20")
    payload = {"hook_event_name": "UserPromptSubmit", "prompt": "How do we refresh the JWT?"}
    payload["cwd"] = str(project)
    for engine in engines(home):
        os.kill(engine, signal.SIGKILL)
    until(lambda: not engines(home))
    out, err = hooked(payload)
    assert "JWT token refresh flow" in out  # the BM25 answer
    assert any("is starting; showing the BM25 result" in line for line in err)
    assert model.requests == []
    assert process.start(60)
    out, err = hooked(payload)
    assert "JWT token refresh flow" in out
    assert len(model.requests) == 1
    assert not [line for line in err if line.startswith("judgekit: ")]
    names = {module.partition(".")[0] for module in err}
    assert names - sys.stdlib_module_names <= {"judgekit"}
    assert "a rotating cookie gets the next one" in model.requests[0].text  # read by the engine
    heavy = {
        "json",
        "re",
        "datetime",
        "asyncio",
        "http",
        "ssl",
        "urllib",
        "socket",
        "pathlib",
        "typing",
    }
    assert not {*heavy, "judgekit.retrieval.update"} & set(err)


# An engine that lives and does not answer, or is asked for too much: nobody waits for it.


@contextmanager
def stopped(home: Path) -> Iterator[None]:
    """Stop the engine for the block, as a debugger or a machine without memory does."""
    assert process.start(60)
    (number,) = engines(home)
    os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(number, signal.SIGCONT)


def test_commands_go_on_in_their_own_process(home: Path, project: Path, model: Loopback) -> None:
    names = pages(project, 4)
    jwt_store(project, 3)
    judge = ("judge", "--mode", "lenient", "--no-cache", "--format", "jsonl")
    with stopped(home):
        many = run_in(project, *judge, *names)
        task = run_in(project, *judge, names[0], "--task-id", "t")
        search = run_in(project, "search", "JWT token refresh", "--judge", "--json")
    assert [json.loads(line)["verdict"] for line in many.stdout.splitlines()] == ["accept"] * 4
    assert json.loads(task.stdout)["verdict"] == "accept"
    assert json.loads(search.stdout)["query"] == "JWT token refresh"
    for done in (many, task, search):
        assert done.stderr.count("continuing in this process") == 1


def test_a_prompt_does_not_wait_for_it(
    home: Path, project: Path, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    jwt_store(project, 3)
    monkeypatch.setattr(client, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(client, "HEALTH_SECONDS", 0.05)
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_JUDGE", "on")
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_DEADLINE", "3600")
    monkeypatch.setattr(judged, "MAX_SECONDS", 3600.0)  # this test would never end
    payload = {"hook_event_name": "UserPromptSubmit", "prompt": "How do we refresh the JWT?"}
    payload["cwd"] = str(project)
    with stopped(home):
        text, notes = claude_code.answer_prompt(payload)
    assert "JWT token refresh flow" in text
    assert [note for note in notes if "did not respond in time" in note]
