"""The command that an installer writes: it answers from anywhere, whatever its surroundings say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, jwt_store

from judgekit import programs
from judgekit.hooks import entries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

QUESTION = "How do we refresh the JWT?"
ANSWER = b"JWT token refresh flow -> decisions/jwt.json"


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return jwt_store(tmp_path / "project", 20)


def start(
    command: Sequence[str], stdin: bytes, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    environment: Mapping[str, str] = {**os.environ, **variables}
    return subprocess.run(
        command, input=stdin, cwd=folder, env=environment, capture_output=True, timeout=120, check=False
    )


def payload(store: MemoryStore, **more: object) -> bytes:
    return json.dumps({"prompt": QUESTION, "cwd": str(store.project), **more}).encode()


def copied(folder: Path) -> list[str]:
    """Return the command for a copy of the package in `folder`."""
    shutil.copytree(Path(programs.ROOT, "judgekit"), folder / "judgekit")
    return [sys.executable, *entries.OPTIONS, entries.code(str(folder))]


def test_it_answers(store: MemoryStore) -> None:
    done = start(entries.command(), payload(store))
    assert (done.returncode, done.stderr) == (0, b"")
    assert ANSWER in done.stdout


@pytest.mark.parametrize("stdin", [b"{", b'{"prompt": 3x}', b'{"a" 1}', b"[1,,2]", b'["open', b"nul"])
def test_broken_json_is_said(stdin: bytes) -> None:
    """The parser's own error stands in `json`, which this process has not imported."""
    done = start(entries.command(), stdin)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"judgekit: stdin: not valid JSON")


def test_the_interpreter_can_be_named() -> None:
    assert entries.command("/opt/some python/bin/python3")[0] == "/opt/some python/bin/python3"
    assert entries.command()[0] == sys.executable


@pytest.mark.parametrize("name", ["with space", 'it\'s "quoted"', "back\\slash", "Übung 流程", "$HOME;`x`"])
def test_any_folder_will_do(store: MemoryStore, tmp_path: Path, name: str) -> None:
    if os.name == "nt" and set(name) & set('"\\'):
        pytest.skip("no such names on Windows")
    folder = tmp_path / name
    folder.mkdir()
    done = start(copied(folder), payload(store))
    assert (done.returncode, done.stderr) == (0, b"")
    assert ANSWER in done.stdout


def test_the_current_folder_and_the_environment_cannot_interfere(store: MemoryStore) -> None:
    for name in ("judgekit.py", "os.py", "_sqlite3.py", "sitecustomize.py"):
        (store.project / name).write_text("raise SystemExit('imported from the project')")
    variables = {"PYTHONPATH": str(store.project), "PYTHONSTARTUP": "x.py", "PYTHONHOME": "/nowhere"}
    done = start(entries.command(), payload(store), store.project, PYTHONWARNINGS="error", **variables)
    assert (done.returncode, done.stderr) == (0, b"")
    assert ANSWER in done.stdout


def test_a_package_beside_ours_does_not_stand_in_for_the_standard_library(
    store: MemoryStore, tmp_path: Path
) -> None:
    """The first run reads the records with `json`, which must be Python's own."""
    command = copied(tmp_path)
    for name in ("json", "datetime", "_sqlite3", "unicodedata"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the standard library')")
    done = start(command, payload(store))
    assert (done.returncode, done.stderr) == (0, b"")
    assert ANSWER in done.stdout


def test_a_package_that_is_gone_is_no_lost_prompt(store: MemoryStore, tmp_path: Path) -> None:
    """Code 2 would erase the prompt; 1 is said to the user, and the prompt goes on."""
    command = [sys.executable, *entries.OPTIONS, entries.code(str(tmp_path / "gone"))]
    assert start(command, payload(store)).returncode == 1


# What needs installed packages still finds them, although the interpreter did not look for any.


def configured(store: MemoryStore, text: str) -> None:
    path = store.project / ".judgekit" / "config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def bare(folder: Path) -> str:
    """Return an interpreter that has no packages at all."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def test_a_changed_configuration_is_validated(store: MemoryStore) -> None:
    configured(store, "retrieval: {max_inject: 0}\n")
    for _ in range(2):  # validated, then as it was kept
        done = start(entries.command(), payload(store))
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"<result" not in done.stdout
        assert b"<memory-nudge>" in done.stdout


def test_a_wrong_configuration_is_named(store: MemoryStore) -> None:
    configured(store, "retrieval: {max_inject: many}\n")
    done = start(entries.command(), payload(store))
    assert b"config.yaml:1: retrieval.max_inject: expected" in done.stderr
    assert ANSWER in done.stdout


def test_a_judge_is_asked(store: MemoryStore, isolated: Path) -> None:
    """No provider can be reached here: the judge's own words say that it was there to find that out."""
    home = isolated / "judgekit" / "config.yaml"
    home.parent.mkdir(exist_ok=True)
    home.write_text("retrieval: {judge: on}\n")
    done = start(entries.command(), payload(store), PATH="")
    assert ANSWER in done.stdout
    assert b"not judged" not in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_dependencies_beside_the_package_are_found(store: MemoryStore, tmp_path: Path) -> None:
    """As `pip install --target` leaves them: our package and what it needs in one folder."""
    command = copied(tmp_path)
    import pydantic  # noqa: PLC0415 - only to know where packages are

    for path in Path(pydantic.__file__).parents[1].iterdir():
        if path.name != "judgekit" and path.suffix != ".pth":
            (tmp_path / path.name).symlink_to(path)
    for data in ("retrieval", "providers", "rubrics"):
        shutil.copytree(Path(programs.ROOT, data), tmp_path / "judgekit" / "_bundled" / data)
    configured(store, "retrieval: {max_inject: 0}\n")
    done = start([bare(tmp_path / "venv"), *command[1:]], payload(store))
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"<result" not in done.stdout


def test_without_dependencies_the_defaults_hold(store: MemoryStore, tmp_path: Path) -> None:
    command = copied(tmp_path)
    configured(store, "retrieval: {max_inject: 0}\n")
    done = start([bare(tmp_path / "venv"), *command[1:]], payload(store))
    assert done.returncode == 0
    assert ANSWER in done.stdout
    assert done.stderr.startswith(b"judgekit: the configuration cannot be read (No module named ")


def test_an_edit_is_answered(store: MemoryStore) -> None:
    event = {"hook_event_name": "PostToolUse", "tool_name": "Write"}
    path = str(store.root / "decisions" / "jwt.json")
    done = start(entries.command(), payload(store, **event, tool_input={"file_path": path}))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
