"""Two runs that write one file: the second is told who has it, wherever their caches are."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted import by_content

from judgekit.config import locks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopback import Answer, Asked
    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project", "no_servers")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient", "--out")
HOLD = """
import sys
from judgekit.config.locks import hold_for_writing
with hold_for_writing(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _rows(project: Path) -> None:
    Path("rows.jsonl").write_text('{"id": 1, "answer": "x"}\n')
    Path("results.jsonl").write_text('{"id": 1, "verdict": "accept"}\n')


@contextmanager
def other_process(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """Hold a file in a process that shares no cache with this one."""
    command = [sys.executable, "-c", HOLD, path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as holder:  # type: ignore[call-overload] # pipes are pipes
        assert holder.stdout.readline() == b"held\n"
        yield holder
        holder.stdin.close()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv", "out.parquet"])
def test_the_second_run_is_told_who_writes(served: Served, out: str) -> None:
    with other_process(out) as holder:
        done, asked = served(by_content, *JUDGE, out)
    assert done.code == 64
    assert f"{out}: another run writes to it (process {holder.pid} on " in done.err
    assert asked == []


def test_two_people_do_not_write_one_label_sheet(judgekit: Run) -> None:
    with other_process("sheet.csv") as holder:
        done = judgekit("report", "results.jsonl", "--sample", "1", "--labels", "sheet.csv")
    assert done.code == 64
    assert f"process {holder.pid} on " in done.err
    assert "choose another --labels" in done.err


def test_two_commands_do_not_write_one_page(judgekit: Run) -> None:
    with other_process("page.html") as holder:
        done = judgekit("report", "results.jsonl", "--html", "page.html")
    assert done.code == 64
    assert f"page.html: another run writes to it (process {holder.pid} on " in done.err


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv"])
def test_no_lock_is_left_behind(served: Served, out: str) -> None:
    served(by_content, *JUDGE, out)
    assert list(Path().glob(".*.lock")) == []


def test_a_killed_run_holds_nothing(served: Served) -> None:
    with other_process("out.jsonl") as holder:
        holder.kill()
        holder.wait()
        assert Path(".out.jsonl.lock").exists()
        assert served(by_content, *JUDGE, "out.jsonl")[0].code == 0


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_lock_is_no_link_and_no_pipe(served: Served, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "elsewhere"
    if kind == "link":
        Path(".out.jsonl.lock").symlink_to(target)
    else:
        os.mkfifo(".out.jsonl.lock")
    done, asked = served(by_content, *JUDGE, "out.jsonl")
    assert done.code == 64
    assert ".out.jsonl.lock: no lock is taken there" in done.err
    assert asked == []
    assert not target.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(served: Served) -> None:
    Path("there").mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    done, _ = served(by_content, *JUDGE, "there/out.jsonl")
    assert done.code == 65
    assert "need a folder that you may write to" in done.err


def test_a_folder_that_takes_no_file_is_named(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> tuple[int, bool]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("judgekit.outputs.open_or_make", refuse)
    done, _ = served(by_content, *JUDGE, "out.jsonl")
    assert done.code == 65
    assert "need a folder that you may write to" in done.err


# File systems without locks


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_lease_names_who_writes(served: Served) -> None:
    Path(".out.jsonl.lock").write_text("lease another-machine 4711\n")
    done, asked = served(by_content, *JUDGE, "out.jsonl")
    assert done.code == 64
    assert "(process 4711 on another-machine;" in done.err
    assert "; if that has ended, delete " in done.err
    assert asked == []


def test_a_lease_counts_where_locks_work_too(served: Served) -> None:
    Path(".out.jsonl.lock").write_text("lease another-machine 4711\n")
    assert served(by_content, *JUDGE, "out.jsonl")[0].code == 64


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_run_leases_its_file_while_it_writes(served: Served) -> None:
    leases = []

    def answer(asked: Asked) -> Answer:
        leases.append(Path(".out.jsonl.lock").read_text().split()[0])
        return by_content(asked)

    assert served(answer, *JUDGE, "out.jsonl")[0].code == 0
    assert set(leases) == {"lease"}
    assert not Path(".out.jsonl.lock").exists()


@pytest.mark.usefixtures("no_locks")
def test_the_lease_of_a_process_that_died_here_is_taken_over(served: Served) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    here = locks._Holder.of_current_process("lease")._replace(process=ended.pid)
    Path(".out.jsonl.lock").write_text(" ".join(map(str, here)))
    assert served(by_content, *JUDGE, "out.jsonl")[0].code == 0
    assert json.loads(Path("out.jsonl").read_text())["verdict"] == "accept"
