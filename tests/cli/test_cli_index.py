from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import sample_store

from judgekit import environment
from judgekit.cli import search
from judgekit.retrieval import index_file

if TYPE_CHECKING:
    import pytest
    from outcome import Run

KEYS = {
    *("root", "path", "kind", "entries", "files", "pending", "problems", "bytes", "generation"),
    *("updated", "stale"),
}


def store(project: Path) -> Path:
    return (project / ".claude" / "memory").resolve()


def test_before_the_first_query_there_is_no_index(judgekit: Run, project: Path) -> None:
    (found,) = judgekit("index", "status", "--json").json["roots"]
    assert set(found) == KEYS
    assert (found["root"], found["path"], found["stale"]) == (str(store(project)), None, True)
    assert "no index yet" in judgekit("index", "status").out
    assert not Path(environment.cache_home(), index_file.FOLDER).exists()


def test_status_says_what_a_query_has_read(judgekit: Run, project: Path) -> None:
    judgekit("search", "refresh the JWT")
    (found,) = judgekit("index", "status", "--json").json["roots"]
    assert (found["kind"], found["pending"], found["stale"]) == ("claude-memory", 0, False)
    assert 0 < found["entries"] <= found["files"]
    assert found["bytes"] > 0
    assert found["updated"].endswith("+00:00")
    assert "up to date" in judgekit("index", "status").out


def test_what_is_stale_wrong_or_damaged_is_said_and_left_so(judgekit: Run, project: Path) -> None:
    judgekit("search", "refresh the JWT")
    path = project / sample_store.JWT.path
    path.write_text(path.read_text() + " ")
    for _ in range(2):
        assert judgekit("index", "status", "--json").json["roots"][0]["stale"] is True
    assert "stale" in judgekit("index", "status").out
    (store(project) / "decisions" / "broken.json").write_text("{")
    judgekit("search", "refresh the JWT")
    assert "problem: decisions/broken.json: not valid JSON; skipped" in judgekit("index", "status").out
    Path(judgekit("index", "status", "--json").json["roots"][0]["path"]).write_bytes(b"garbage" * 1000)
    done = judgekit("index", "status")
    assert (done.code, "the index is damaged" in done.out) == (0, True)


def test_rebuild_reads_everything_anew(judgekit: Run, project: Path) -> None:
    judgekit("search", "refresh the JWT")
    done = judgekit("index", "rebuild")
    assert (done.code, done.err) == (0, "")
    assert f"{store(project)}: claude-memory, " in done.out
    (found,) = judgekit("index", "status", "--json").json["roots"]
    assert (found["generation"], found["stale"]) == (1, False)


def test_named_roots_are_looked_at(judgekit: Run, project: Path) -> None:
    done = judgekit("index", "rebuild", "--root", ".", "--root", str(store(project)))
    assert [line.partition(",")[0].rpartition(": ")[2] for line in done.out.splitlines()] == [
        "markdown",
        "claude-memory",
    ]
    missing = judgekit("index", "status", "--root", "none")
    assert missing.code == 65
    assert "none: no such folder" in missing.err


def test_without_a_store_it_says_so(judgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = judgekit("index", "status")
    assert (done.code, done.out) == (0, "")
    assert "no store found; name one with --root" in done.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    search._progress(256, 1000)
    search._progress(1000, 1000)
    assert terminal.getvalue() == "\r256 of 1,000 files read\r1,000 of 1,000 files read\n"
