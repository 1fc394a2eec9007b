"""Files that an earlier version wrote are used: a calibration, a ledger, a recording, an index, kept replies.

They are in tests/golden/written and stay as they are, as those on users' disks do. A new version of a format
adds a file of its own.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from golden import World

WRITTEN = Path(__file__).parent / "golden" / "written"
JUDGE = ("judge", "good.md", "--mode", "lenient", "--no-engine", "--format", "json")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    world.panel("json-schema", quick="accept", deep="accept", tiebreaker="accept")
    return world


def put(name: str, path: Path) -> None:
    """Put a kept file where it belongs."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes((WRITTEN / name).read_bytes())
    path.chmod(0o600)


def test_kept_replies(world: World) -> None:
    path = world.home / "cache" / "replies.sqlite"
    put("replies.sqlite", path)
    done = world.run(*JUDGE, forget=False)
    assert (done.calls, done.code) == ([], 0)


def test_a_recording(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_REPLAY", str(WRITTEN / "recording.jsonl"))
    done = world.run(*JUDGE)
    assert (done.calls, done.code) == ([], 0)
    assert json.loads(done.out)[0]["scores"] == {"semantic": 5, "pragmatic": 5, "syntactic": 5}


def test_a_calibration(world: World) -> None:
    name = json.loads((WRITTEN / "calibration.json").read_text())["id"]
    put("calibration.json", world.home / "calibrations" / f"{name}.json")
    done = world.run("judge", "good.md", "--mode", "strict", "--no-engine", "--format", "json")
    assert json.loads(done.out)[0]["calibration"] == name
    # The rules alone would have deep confirm what quick accepts.
    assert len(done.calls) == 1


def test_a_ledger(world: World) -> None:
    folder = world.home / "state"
    project = json.loads((WRITTEN / "ledger.jsonl").read_text().split("\n")[0])["project"]
    put("ledger.jsonl", folder / "ledger" / project / "2026-11-22.jsonl")
    exported = world.run("ledger", "export")
    assert [json.loads(line)["verdict"] for line in exported.out.strip().split("\n")] == ["accept", "reject"]


def test_an_index(world: World) -> None:
    words = ("search", "JWT refresh flow", "--json")
    first = world.run(*words)
    [path] = (world.home / "cache").rglob("v*.sqlite")
    assert path.name == "v3.0.sqlite"
    put("index.sqlite", path)
    with closing(sqlite3.connect(path)) as connection:  # as if it had been written for this folder
        connection.execute(
            "UPDATE about SET value = ? WHERE key = 'root'", (str(world.folder / ".claude" / "memory"),)
        )
        connection.commit()
    assert world.run(*words, forget=False).out == first.out
    assert [each.name for each in path.parent.glob("v*.sqlite")] == [path.name]
