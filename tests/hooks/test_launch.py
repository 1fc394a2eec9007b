"""The command that an installer writes: it answers from anywhere, whatever its surroundings say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, jwt_store

from judgekit.hooks import launch

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
    shutil.copytree(Path(launch.ROOT, "judgekit"), folder / "judgekit")
    return [sys.executable, *launch.OPTIONS, launch.code(str(folder))]


def test_it_answers(store: MemoryStore) -> None:
    done = start(launch.command(), payload(store))
    assert (done.returncode, done.stderr) == (0, b"")
    assert ANSWER in done.stdout


def test_the_interpreter_can_be_named() -> None:
    assert launch.command("/opt/some python/bin/python3")[0] == "/opt/some python/bin/python3"
    assert launch.command()[0] == sys.executable


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
    done = start(launch.command(), payload(store), store.project, PYTHONWARNINGS="error", **variables)
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
    command = [sys.executable, *launch.OPTIONS, launch.code(str(tmp_path / "gone"))]
    assert start(command, payload(store)).returncode == 1
