"""The prompt hook as the client starts it: it answers however it is started, and ends at its limit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from git_repo import beside_origin
from hooking import ANSWER, QUESTION, TITLE, by_project, by_user, payload
from memory_store import MemoryStore, jwt_store

from judgekit import programs
from judgekit.hooks import entries

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = Path(sys.executable).with_name("judgekit")
MODULE = [sys.executable, "-m", "judgekit", "hook"]


def sent(store: MemoryStore, **more: object) -> bytes:
    return json.dumps(payload(store, **more)).encode()


def start(
    command: Sequence[str | Path], stdin: bytes, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    options: dict[str, Any] = {"input": stdin, "cwd": folder, "env": {**os.environ, **variables}}
    return subprocess.run(command, **options, capture_output=True, timeout=120, check=False)


def assert_answers(done: subprocess.CompletedProcess[bytes], answer: str = ANSWER) -> None:
    assert (done.returncode, done.stderr) == (0, b"")
    assert answer in done.stdout.decode("utf-8")


def copied(folder: Path) -> list[str]:
    shutil.copytree(Path(programs.ROOT, "judgekit"), folder / "judgekit")
    return [sys.executable, *entries.PYTHON_OPTIONS, entries.build_code(str(folder))]


def test_each_way_to_start_it_answers(store: MemoryStore) -> None:
    assert_answers(start(entries.build_command(), sent(store)))
    assert_answers(start(MODULE, sent(store)))
    if SCRIPT.exists():
        assert_answers(start([SCRIPT, "hook"], sent(store)))
    assert (
        entries.build_command("/opt/some python/bin/python3")[0] == "/opt/some python/bin/python3"
    )
    path = str(store.root / "decisions" / "jwt.json")
    edit = {
        "hook_event_name": "PostToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": path},
    }
    done = start(entries.build_command(), sent(store, **edit))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_broken_input_is_said_in_one_line(store: MemoryStore) -> None:
    """The parser's own error stands in `json`, which this process has not imported."""
    for stdin in (b"{", b'{"prompt": 3x}', b'{"a" 1}', b"[1,,2]", b'["open', b"nul", b"\xff\x00"):
        done = start(entries.build_command(), stdin)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (0, b"", 1)
        assert done.stderr.startswith(b"judgekit: stdin: not valid JSON")
    done = start(MODULE, b"")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (0, b"", 1)
    assert done.stderr.startswith(b"judgekit: stdin: empty")


def test_the_folder_the_environment_and_packages_cannot_interfere(
    store: MemoryStore, tmp_path: Path
) -> None:
    for name in ("judgekit.py", "os.py", "_sqlite3.py", "sitecustomize.py"):
        (store.project / name).write_text("raise SystemExit('imported from the project')")
    variables: dict[str, Any] = {"PYTHONPATH": str(store.project), "PYTHONSTARTUP": "x.py"}
    variables |= {"PYTHONHOME": "/nowhere", "PYTHONWARNINGS": "error"}
    assert_answers(start(entries.build_command(), sent(store), store.project, **variables))
    # The first run reads the records with `json`, which must be Python's own.
    command, other = copied(tmp_path), jwt_store(tmp_path / "other", 20)
    for name in ("json", "datetime", "_sqlite3", "unicodedata"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the standard library')")
    assert_answers(start(command, sent(other)))
    # Code 2 would erase the prompt; 1 is said to the user, and the prompt goes on.
    gone = [sys.executable, *entries.PYTHON_OPTIONS, entries.build_code(str(tmp_path / "gone"))]
    assert start(gone, sent(store)).returncode == 1


def test_the_output_is_utf8_and_without_warnings_of_python(store: MemoryStore) -> None:
    start(
        MODULE, sent(store)
    )  # makes the index: with all of Python's own checks that takes its time
    done = start(MODULE, sent(store), PYTHONWARNINGS="error", PYTHONDEVMODE="1")
    assert_answers(done)
    assert done.stdout.startswith(b"<memory-context")
    store.add("jwt", "JWT refresh für Übersee — 流程", listed=False)
    plain: dict[str, Any] = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    plain |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert_answers(start(MODULE, sent(store), **plain), "JWT refresh für Übersee — 流程")


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell closes the descriptors")
def test_closed_and_full_descriptors_and_a_lost_folder(store: MemoryStore, tmp_path: Path) -> None:
    for redirection in (">&-", "2>&-", "<&-", ">&- 2>&- <&-", ">/dev/full", "| true"):
        if "/dev/full" in redirection and not Path("/dev/full").exists():
            continue
        wait = "sleep 0.2; " if redirection == "| true" else ""
        command = f'{{ {wait}"$0" -m judgekit hook; echo "code $?" >&3; }} {redirection}'
        done = start(["sh", "-c", f"exec 3>&1; {command}", sys.executable], sent(store))
        assert b"code 0" in done.stdout, redirection
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = ["sh", "-c", 'rmdir "$1"; exec "$0" -m judgekit hook', sys.executable, str(gone)]
    done = start(leave, json.dumps({"prompt": QUESTION}).encode(), gone, PYTHONPATH=str(Path.cwd()))
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.count(b"\n") <= 1


def test_hooks_at_once_all_answer(tmp_path: Path) -> None:
    """The very first ones, which all find no index, and later ones while memories are added."""
    store = jwt_store(tmp_path / "large", 499)
    for round_ in range(2):
        running = [
            subprocess.Popen(
                MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(6)
        ]
        store.add(f"added-{round_}", "Something else", listed=False)
        outputs = [process.communicate(sent(store), timeout=120) for process in running]
        assert [process.returncode for process in running] == [0] * 6
        assert all(ANSWER.encode() in out for out, _ in outputs)
        assert [err for _, err in outputs] == [b""] * 6


@pytest.mark.slow
def test_a_hook_leaves_the_files_beside_the_index_to_the_next_one_and_nothing_in_them(
    store: MemoryStore, isolated: Path
) -> None:
    def beside() -> dict[str, tuple[int, int]]:
        found = {each.name[-4:]: each.stat() for each in isolated.rglob("*.sqlite-*")}
        return {name: (status.st_ino, status.st_size) for name, status in found.items()}

    assert_answers(start(entries.build_command(), sent(store)))
    time.sleep(2.5)  # until then every file may have changed unseen, and is looked at again
    for _ in range(2):
        assert_answers(start(entries.build_command(), sent(store)))
    left = beside()
    assert left.keys() == {"-wal", "-shm"}
    assert_answers(start(entries.build_command(), sent(store)))
    assert beside() == left
    store.add("added", "Something else", listed=False)
    for _ in range(2):
        assert_answers(start(entries.build_command(), sent(store)))
    assert beside().get("-wal", (0, 0))[1] == 0


def test_a_changed_configuration_is_validated_and_a_judge_is_asked(store: MemoryStore) -> None:
    by_project(store.project, "retrieval: {max_inject: 0}\n")
    for _ in range(2):  # validated, then as it was kept
        done = start(entries.build_command(), sent(store))
        assert_answers(done, "<memory-nudge>")
        assert b"<result" not in done.stdout
    by_project(store.project, "retrieval: {max_inject: many}\n")
    done = start(entries.build_command(), sent(store))
    assert b"config.yaml:1: retrieval.max_inject: expected" in done.stderr
    assert ANSWER.encode() in done.stdout
    # No provider can be reached here: the judge's own words say that it was there to find that out.
    by_project(store.project, "")
    by_user("retrieval: {judge: on}\n")
    done = start(entries.build_command(), sent(store), PATH="")
    assert TITLE.encode() in done.stdout
    assert b"not judged" not in done.stderr
    assert done.stderr.count(b"\n") == 1


# Holds the interpreter in one call of C: no thread and no handler of Python runs then.
STUCK = "(lambda *_, **__: 10 ** (10 ** 9))"
HOOK = f"""
import _thread, sys, time
sys.path.insert(0, {programs.ROOT!r})
from judgekit.hooks import claude_code, watchdog
del sys.path[0]
def refused(*_):
    raise RuntimeError("can't start new thread")
def alone():
    _thread.start_new_thread = refused
    return lambda _: time.sleep(60)
claude_code.MAX_EVENT_SECONDS = {{seconds}}
claude_code.should_ignore = {{stuck}}
claude_code.run()
"""
LATE = b"judgekit: the hook ran out of time; nothing added to the prompt\n"
GATE = f"""
import sys
from judgekit import __main__
from judgekit.gate import {{module}}
from judgekit.hooks import pre_push
pre_push.PREPARATION_SECONDS, pre_push.GRACE_SECONDS = {{preparation}}, 1.0
{{module}}.{{name}} = {STUCK}
words = "judgekit gate --pre-push origin ../origin.git --blocked-code 85 --no-engine"
sys.argv = words.split()
sys.exit(__main__.main())
"""


def stuck_hook(seconds: float, stuck: str) -> list[str]:
    return [sys.executable, *entries.PYTHON_OPTIONS, HOOK.format(seconds=seconds, stuck=stuck)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "stuck", "code", "said"),
    [
        (0.5, "lambda _: time.sleep(60)", 0, LATE),
        (60, "lambda _: [watchdog.extend(each) for each in (50, 0.5)] and time.sleep(60)", 0, LATE),
        (0.5, "lambda _: [watchdog.extend(50), time.sleep(2)]", 0, b""),
        (0.5, STUCK, -signal.SIGALRM, b""),
        (0.5, "alone()", -signal.SIGALRM, b""),
    ],
    ids=["waits", "sooner", "later", "holds the interpreter", "has no threads"],
)
def test_a_hook_that_is_stuck_ends(seconds: float, stuck: str, code: int, said: bytes) -> None:
    sent = json.dumps({"hook_event_name": "UserPromptSubmit", "prompt": QUESTION}).encode()
    begun = time.monotonic()
    done = start(stuck_hook(seconds, stuck), sent)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", said)
    assert time.monotonic() - begun < 30


@pytest.mark.slow
def test_a_client_that_never_ends_its_input_gets_an_end() -> None:
    reading, writing = os.pipe()
    try:
        command = stuck_hook(0.5, "claude_code.should_ignore")
        done = subprocess.run(command, stdin=reading, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", LATE)
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "preparation", "config", "code"),
    [
        ("commits", "parse_updates", 0.5, "{}", 0),
        ("push", "read_changed_file", 60, "{gate: {budget: 1, mode: blocking}}", 0),
        ("push", "read_changed_file", 60, "{gate: {budget: 1, undetermined: block}}", 0),
        (
            "push",
            "read_changed_file",
            60,
            "{gate: {budget: 1, mode: blocking, undetermined: block}}",
            85,
        ),
    ],
)
def test_a_push_that_is_stuck_goes_on(
    tmp_path: Path, module: str, name: str, preparation: float, config: str, code: int
) -> None:
    work = beside_origin(tmp_path)
    work.write(".judgekit/config.yaml", f"{config}\n")
    head = work.commit("first", a_md="text\n")
    begun = time.monotonic()
    command = [sys.executable, "-c", GATE.format(module=module, name=name, preparation=preparation)]
    done = start(
        command, f"refs/heads/main {head} refs/heads/main {'0' * 40}\n".encode(), work.folder
    )
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert said.count("judgekit: UNDETERMINED, not judged: out of time") == 1
    assert time.monotonic() - begun < 60
