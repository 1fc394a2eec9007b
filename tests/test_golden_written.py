"""Files that an earlier version wrote are used: a calibration, a ledger, a recording, an index, kept replies.

They are in tests/golden/written. `JUDGEKIT_TEST_GOLDEN=record` writes them again; only a new version of a
format needs that, for the files on users' disks stay as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from golden import World

WRITTEN = Path(__file__).parent / "golden" / "written"
RECORDING = os.environ.get("JUDGEKIT_TEST_GOLDEN") == "record"
JUDGE = ("judge", "good.md", "--mode", "lenient", "--no-engine", "--format", "json")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    world.panel("json-schema", quick="accept", deep="accept", tiebreaker="accept")
    return world


def keep(path: Path, name: str) -> None:
    """Keep a file for later versions; of a database all that its journal holds."""
    WRITTEN.mkdir(exist_ok=True)
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(path, WRITTEN / name)


def put(name: str, path: Path) -> None:
    """Put a kept file where it belongs."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes((WRITTEN / name).read_bytes())
    path.chmod(0o600)


def test_kept_replies(world: World) -> None:
    path = world.home / "cache" / "replies.sqlite"
    if RECORDING:
        world.run(*JUDGE)
        keep(path, "replies.sqlite")
    put("replies.sqlite", path)
    done = world.run(*JUDGE, forget=False)
    assert (done.calls, done.code) == ([], 0)


def test_a_recording(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if RECORDING:
        with monkeypatch.context() as patch:
            patch.setenv("JUDGEKIT_RECORD", str(world.folder / "recorded.jsonl"))
            world.run(*JUDGE)
        keep(world.folder / "recorded.jsonl", "recording.jsonl")
    monkeypatch.setenv("JUDGEKIT_REPLAY", str(WRITTEN / "recording.jsonl"))
    done = world.run(*JUDGE)
    assert (done.calls, done.code) == ([], 0)
    assert json.loads(done.out)[0]["scores"] == {"semantic": 5, "pragmatic": 5, "syntactic": 5}


def test_a_calibration(world: World) -> None:
    cases = [{"id": f"case-{n}", "text": f"Text {n} says how.", "label": "accept"} for n in range(80)]
    if RECORDING:
        (world.folder / "labels.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
        words = ("calibrate", "labels.jsonl", "--rubric", "kls", "--mode", "strict", "--out", "learned.json")
        world.run(*words)
        keep(world.folder / "learned.json", "calibration.json")
    name = json.loads((WRITTEN / "calibration.json").read_text())["id"]
    put("calibration.json", world.home / "calibrations" / f"{name}.json")
    done = world.run("judge", "good.md", "--mode", "strict", "--no-engine", "--format", "json")
    assert json.loads(done.out)[0]["calibration"] == name
    # The rules alone would have deep confirm what quick accepts.
    assert len(done.calls) == 1


def test_a_ledger(world: World) -> None:
    folder = world.home / "state"
    if RECORDING:
        _fill(world)
        [path] = folder.rglob("*.jsonl")
        keep(path, "ledger.jsonl")
        shutil.rmtree(folder)
    project = json.loads((WRITTEN / "ledger.jsonl").read_text().split("\n")[0])["project"]
    put("ledger.jsonl", folder / "ledger" / project / "2026-11-22.jsonl")
    exported = world.run("ledger", "export")
    assert [json.loads(line)["verdict"] for line in exported.out.strip().split("\n")] == ["accept", "reject"]


def _fill(world: World) -> None:
    from git_repo import GitRepo  # noqa: PLC0415 - to record only

    repository = GitRepo(world.folder)
    repository("init", "--quiet", "--initial-branch=main")
    repository.commit("first", README_md="# Shop\n")
    for name, word in (("guide", "accept"), ("other", "reject")):
        repository.commit("second", **{f"{name}_md": f"# {name}\n\nIt says how.\n"})
        world.panel("json-schema", quick=word, deep=word, tiebreaker=word)
        world.run("gate", "--base", "HEAD~1", "--no-engine")


def test_an_index(world: World) -> None:
    words = ("search", "JWT refresh flow", "--json")
    first = world.run(*words)
    [path] = (world.home / "cache").rglob("v*.sqlite")
    if RECORDING:
        keep(path, "index.sqlite")
    assert path.name == "v3.0.sqlite"
    put("index.sqlite", path)
    with closing(sqlite3.connect(path)) as connection:  # as if it had been written for this folder
        connection.execute(
            "UPDATE about SET value = ? WHERE key = 'root'", (str(world.folder / ".claude" / "memory"),)
        )
        connection.commit()
    assert world.run(*words, forget=False).out == first.out
    assert [each.name for each in path.parent.glob("v*.sqlite")] == [path.name]
