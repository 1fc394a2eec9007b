"""Appended lines can be read until they're purged, whoever else writes and whatever is damaged."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import ledger_writer
import pytest
from git_repo import GitRepo
from ledger_lines import NOW, label, override_for, verdict

from judgekit.config.locks import file_lock
from judgekit.errors import JudgekitError, UsageError
from judgekit.ledger import (
    Fault,
    Ledger,
    LineFilter,
    ModeChange,
    OverrideLine,
    VerdictLine,
    export,
    store,
)
from judgekit.ledger.export import send_unsent
from judgekit.ledger.records import Label, serialise_record
from judgekit.ledger.store import Damage, LedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes, limits and signals")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "one", "one-0123456789ab")


def add(ledger: Ledger, ids: str, days: float = 0) -> Path:
    """Append a line for each letter, and return the newest file."""
    ledger.add(*(Fault(id=each, problem="x", timestamp=NOW - timedelta(days=days)) for each in ids))
    return list(store.list_files([ledger.folder]))[-1]


def read(ledger: Ledger, wanted: LineFilter = store.EVERYTHING) -> tuple[list[str], list[Damage]]:
    """Return the ids of the readable lines, and the damaged ones."""
    said: list[Damage] = []
    return [record.id for record in ledger.read_records(wanted, said.append)], said


@POSIX
def test_lines_follow_each_other_in_private_files(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(ledger) == ([], [])
    ledger.add()
    assert not ledger.folder.exists()
    old = os.umask(0)
    try:
        add(ledger, "bc")
        add(ledger, "d")
        add(ledger, "a", days=1)
    finally:
        os.umask(old)
    assert read(ledger) == (list("abcd"), [])
    assert {record.project for record in ledger.read_records()} == {"one-0123456789ab"}
    modes = {path.name: path.stat().st_mode & 0o777 for path in ledger.folder.parent.rglob("*")}
    days = {"2026-03-19.jsonl": 0o600, "2026-03-20.jsonl": 0o600}
    assert modes == {"one": 0o700, ".lock": 0o600, **days}
    monkeypatch.setattr(store, "MAX_FILE_BYTES", 4)  # a full file is followed by another
    for each in "efghijklmno":
        last = add(ledger, each)
    assert (read(ledger)[0], last.name) == (list("abcdefghijklmno"), "2026-03-20.11.jsonl")


APPENDS = """
import os, pathlib, resource, signal, sys
from datetime import UTC, datetime
from judgekit.ledger import Fault, Ledger, LedgerError
real, when = os.write, datetime(2026, 3, 20, tzinfo=UTC)
def write(descriptor, data):
    real(descriptor, bytes(data)[:9]); os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "killed": os.write = write
else: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try: Ledger(pathlib.Path(sys.argv[1]), "x").add(*(Fault(problem="x" * 150, timestamp=when) for _ in range(9)))
except LedgerError as error: print(error.written, error)
"""


@POSIX
@pytest.mark.parametrize("how", ["killed", "full"])
def test_a_writer_that_is_killed_or_whose_disk_is_full_costs_no_other_line(
    ledger: Ledger, how: str
) -> None:
    """One dies after half its line; of a file of 1,000 bytes the kernel lets the other write no more."""
    command = [sys.executable, "-c", APPENDS, str(ledger.folder), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (path,) = store.list_files([ledger.folder])
    if how == "full":
        assert re.match(r"3 .*File too large\); free space there", done.stdout)
        assert (path.read_bytes().count(b"\n"), path.read_bytes()[-1:]) == (3, b"\n")
    else:
        assert (done.returncode, path.read_bytes()) == (-signal.SIGKILL, b'{"schema"')
    add(ledger, "a")
    ids, said = read(ledger)
    assert (ids[-1], len(ids)) == ("a", 4 if how == "full" else 1)
    torn = [
        f"{path}:1: not JSON (cut off when the writer was killed, or edited); this line is skipped"
    ]
    assert list(map(str, said)) == ([] if how == "full" else torn)


@POSIX
def test_a_ledger_that_another_process_holds_is_said(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ledger, "a")
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.05)
    lock = file_lock(ledger.folder / store.LOCK_FILE, timeout=1)
    with lock, pytest.raises(LedgerError, match="held by another process"):
        add(ledger, "b")


@pytest.mark.slow
@POSIX
def test_a_thousand_appends_from_twenty_writers_some_of_them_killed(tmp_path: Path) -> None:
    """Each line is whole but a killed writer's last; all finished lines of a writer are there, in order."""
    chance = random.Random(4)
    killed = chance.sample(range(20), 6)
    plans = [
        100_000 if number in killed else 72 for number in range(20)
    ]  # the killed would go on and on
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["ledger_writer"])
    start = processes.Event()
    names = [str(name) for name in range(20)]
    writers = [
        processes.Process(target=ledger_writer.write, args=(str(tmp_path), name, times, start))
        for name, times in zip(names, plans, strict=True)
    ]
    for name, writer in zip(names, writers, strict=True):
        (tmp_path / name).touch()
        writer.start()
    start.set()
    for number in killed:
        lines, deadline = chance.randrange(1, 30), time.monotonic() + 60
        while _finished(tmp_path / names[number]) < lines and time.monotonic() < deadline:
            time.sleep(0.001)  # it is killed in the middle of its work
        writers[number].kill()
    for writer in writers:
        writer.join(120)
    finished = {name: _finished(tmp_path / name) for name in names}
    found: dict[str, list[int]] = {name: [] for name in names}
    torn = 0
    for raw in b"".join(path.read_bytes() for path in store.list_files([tmp_path])).splitlines():
        record = store.parse(raw)
        if isinstance(record, Fault):
            assert record.problem == ledger_writer.text(int(record.id))
            found[record.paths[0]].append(int(record.id))
        else:
            torn += 1
    assert [writer.exitcode for writer in writers] == [
        -9 if number in killed else 0 for number in range(20)
    ]
    assert torn <= len(killed)
    assert sum(map(len, found.values())) >= 1000
    for name in names:
        assert found[name] == list(range(len(found[name])))
        assert finished[name] <= len(found[name]) <= finished[name] + 1


def _finished(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_only_damaged_lines_are_not_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.add(verdict(name="first"))
    (path,) = store.list_files([ledger.folder])
    first = path.read_bytes().strip()
    newer = json.loads(first) | {"id": "third", "new_field": 1}
    newer["rubric"]["new_field"] = newer["rounds"][0]["new_field"] = {"deep": []}
    monkeypatch.setattr(store, "MAX_LINE_BYTES", 4000)
    lines = [
        *(first, b"", b"\x00\x00\x00", b"\xff\xfe{}", b"[1]", b"{}"),
        b'{"schema": "judgekit/verdict@9", "id": "x"}',
        b'{"schema": "judgekit/label@1", "id": "x"}',
        json.dumps(newer).encode(),
        b"x" * 10_001,
        first[:-20],
        first.replace(b'"first"', b'"last"'),  # whole, and without its newline
    ]
    path.write_bytes(b"\n".join(lines))
    ids, said = read(ledger)
    assert ids == ["first", "third", "last"]
    assert [damage.line_number for damage in said] == [3, 4, 5, 6, 7, 8, 10, 11]
    assert str(said[0]).startswith(f"{path}:3: not JSON")
    assert str(said[0]).endswith("; this line is skipped")
    assert "(judgekit/verdict@9)" in said[4].why
    assert said[6].why == "longer than 4000 bytes"


@POSIX
def test_only_damaged_files_are_not_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.add(verdict(name="old", days=2), verdict(name="new"))
    refused, opened = next(iter(store.list_files([ledger.folder]))), Path.open
    (ledger.folder / "2026-01-01.jsonl").mkdir()
    (ledger.folder / "2026-01-02.jsonl").symlink_to("gone")
    os.mkfifo(ledger.folder / "2026-01-03.jsonl")

    def refuse(path: Path, *arguments: Any, **options: Any) -> IO[Any]:  # noqa: ANN401 - as Path.open
        if path == refused:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        found: IO[Any] = opened(path, *arguments, **options)
        return found

    monkeypatch.setattr(Path, "open", refuse)
    ids, said = read(ledger)
    assert ids == ["new"]
    odd = "not a regular file (a folder, a broken link or a device); skipped"
    assert sorted(map(str, said)) == [
        *(f"{ledger.folder / f'2026-01-0{day}.jsonl'}: {odd}" for day in (1, 2, 3)),
        f"{refused}: cannot be read (Permission denied); skipped",
    ]
    before = date(2026, 3, 20)
    assert store.purge(ledger.folder, before) == {"damaged": 1}
    assert not refused.exists()
    other = Ledger(ledger.folder.with_name("two"), "two")
    other.folder.symlink_to("gone")
    assert [damage.path for damage in read(other)[1]] == [other.folder]
    for closed in (ledger.folder, ledger.folder.parent):
        closed.chmod(0)
        try:
            if not os.access(closed, os.R_OK):  # else this user may read everything
                assert [damage.path for damage in read(ledger)[1]] == [ledger.folder]
        finally:
            closed.chmod(0o700)


WANTED: list[tuple[dict[str, Any], str]] = [
    ({"since": NOW - timedelta(days=1)}, "bcl"),
    ({"until": NOW - timedelta(days=1)}, "al"),
    ({"project": "one"}, "abcl"),
    ({"project": "one-0123456789ab"}, "abcl"),
    ({"project": "on"}, ""),
    ({"kinds": [Label]}, "l"),
    ({"kinds": [VerdictLine]}, "abc"),
    ({"kinds": []}, ""),
]


def test_what_is_wanted_of_several_ledgers_counts_once(ledger: Ledger, tmp_path: Path) -> None:
    early = verdict(name="a", days=3)
    ledger.add(early, verdict(name="b", days=1), verdict(name="c"))
    ledger.add(label(early, "go", after=71).model_copy(update={"id": "l"}))
    for wanted, found in WANTED:
        assert "".join(sorted(read(ledger, LineFilter(**wanted))[0])) == found, wanted
    other = Ledger(tmp_path / "two", "two-0123456789ab")
    other.add(verdict(name="c"), verdict(name="d", days=2))
    exported = tmp_path / "exported.jsonl"
    exported.write_bytes(serialise_record(early) + serialise_record(verdict(name="e")))
    places = [tmp_path / "one", exported, tmp_path / "two", tmp_path]
    assert [each.record.id for each in store.read_entries(places)] == ["a", "e", "d", "b", "c", "l"]


def test_days_are_those_of_utc_and_earlier_ones_are_not_opened(ledger: Ledger) -> None:
    late = datetime.fromisoformat("2026-03-20T23:30:00-05:00")
    ledger.add(ModeChange(mode="blocking", timestamp=late, id="late"), verdict(name="old", days=9))
    old, new = store.list_files([ledger.folder])
    assert (old.name, new.name) == ("2026-03-11.jsonl", "2026-03-21.jsonl")
    old.write_bytes(b"damaged\n")
    since = datetime(2026, 3, 21, 4, tzinfo=UTC)
    assert read(ledger, LineFilter(since=since)) == (["late"], [])
    assert read(ledger, LineFilter(since=since + timedelta(hours=1))) == ([], [])


def test_purging_removes_old_days_and_labels_of_their_verdicts(ledger: Ledger) -> None:
    old, new = verdict(name="old", days=10), verdict(name="new")
    ledger.add(
        old, new, label(old, "go", after=230), label(new, "go"), label(old, "unsure", after=9999)
    )
    before = date(2026, 3, 15)
    latest = list(store.list_files([ledger.folder]))[-1]
    latest.write_bytes(b"damaged\n" + latest.read_bytes())  # stays
    kept = {path: path.read_bytes() for path in ledger.folder.iterdir()}
    assert store.purge(ledger.folder, before, preview=True) == {"verdict": 1, "label": 2}
    assert {path: path.read_bytes() for path in ledger.folder.iterdir()} == kept
    assert store.purge(ledger.folder, before) == {"verdict": 1, "label": 2}
    assert [getattr(record, "of", record.id) for record in ledger.read_records()] == ["new", "new"]
    assert store.purge(ledger.folder, before) == {}
    files = store.list_files([ledger.folder])
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert sorted(path.name for path in ledger.folder.iterdir()) == [
        ".lock",
        *(path.name for path in files),
    ]
    assert latest.read_bytes() == b"damaged\n"
    store.purge(ledger.folder, NOW.date())  # the day itself is kept
    assert read(ledger)[0][0] == "new"


def test_a_name_is_readable_and_stands_for_one_place(tmp_path: Path, isolated: Path) -> None:
    git = GitRepo(tmp_path / "my project")
    repository, other = git.folder, tmp_path / "other" / "my project"
    for folder in (repository / "docs" / ".claude" / "memory", other / "docs"):
        folder.mkdir(parents=True)
    git.commit(a_md="# A")
    ledger = Ledger.of(repository)
    assert ledger.folder == isolated / "judgekit" / "state" / "ledger" / ledger.name
    assert re.fullmatch(r"my-project-[0-9a-f]{12}", ledger.name)
    wanted = (ledger.name, "my-project", "my")
    assert [store.is_same_project(ledger.name, each) for each in wanted] == [True, True, False]
    (tmp_path / "link").symlink_to(repository)
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    for same in (repository / "docs", tmp_path / "link", tmp_path / "tree"):
        assert Ledger.of(same) == ledger
    assert Ledger.of(other) != ledger
    for text in ("", "gitdir: ../gone", "nonsense", "gitdir: \x00"):  # the folder's own mark
        (other / ".git").write_text(text)
        assert Ledger.of(other / "docs") == Ledger.of(other)


def test_lines_under_another_name_stay_when_a_repository_gets_a_remote(tmp_path: Path) -> None:
    address = "https://github.com/acme/docs"
    earlier = GitRepo(tmp_path / "earlier")
    earlier("remote", "add", "origin", address)
    Ledger.of(earlier.folder).add(verdict())

    git = GitRepo(tmp_path / "docs")
    without_remote = Ledger.of(git.folder)
    without_remote.add(verdict())
    other_lines = without_remote.folder / "from a colleague.jsonl"
    other_lines.write_bytes(b"{}\n")
    git("remote", "add", "origin", address)
    with_remote = Ledger.of(git.folder)
    assert with_remote != without_remote
    assert other_lines.read_bytes() == b"{}\n"
    assert [*without_remote.folder.glob("20*.jsonl")] == []


def test_points_in_time() -> None:
    for text, days in {"14d": 14, "2w": 14, "36h": 1.5, "0d": 0, "2026-03-19": 1.5}.items():
        assert store.parse_time(text, NOW) == NOW - timedelta(days=days)
    assert store.parse_time("2026-03-20T13:00:00+01:00") == NOW
    for text in ("", "14", "d", "14 days", "-1d", "999999w", "2026-02-30", "yesterday"):
        with pytest.raises(UsageError, match="is not a time"):
            store.parse_time(text, NOW)


TASK = "docs/a b@c.md@3f2c3f2c3f2c3f2c"


def override(
    task: str = TASK, decision: str = "accept", hours: float = 0, **more: object
) -> OverrideLine:
    fields = {
        "why": "known",
        "who": "ann",
        "terminal": True,
        "timestamp": NOW + timedelta(hours=hours),
    }
    return OverrideLine.model_validate({"task_id": task, "decision": decision, **fields, **more})


BLOBS = {
    TASK: True,
    TASK + "0" * 48: True,
    TASK[:-1]: False,  # sixteen digits at least: fewer are soon another text's too
    TASK[:-8]: False,
    "docs/a b@c.md@3f2c3f2c3f2c3f2d": False,
    "docs/b.md@3f2c3f2c3f2c3f2c": False,
    "docs/a b@c.md": False,
}


def test_the_newest_override_holds_for_its_blob_alone(ledger: Ledger) -> None:
    ledger.add(
        override(hours=2, decision="reject"), override(hours=1), override(hours=3, terminal=False)
    )
    found = [override_for(ledger, TASK, without_terminal=each) for each in (False, True)]
    assert [each and each.decision for each in found] == ["reject", "accept"]
    assert {task: override_for(ledger, task) is not None for task in BLOBS} == BLOBS


def test_an_override_of_few_digits_or_of_a_named_task_needs_the_same_files(ledger: Ledger) -> None:
    """A text of a given beginning of a hash is soon made; older overrides keep the hash of their files."""
    path, _, sha256 = f"{TASK}{'0' * 48}".rpartition("@")
    for digits in (8, 15):
        ledger.add(override(f"{path}@{sha256[:digits]}"))
    assert override_for(ledger, TASK, [sha256]) is None
    ledger.add(
        override("T-42", subjects=["aa", "bb"]), override(f"{path}@{sha256[:8]}", subjects=[sha256])
    )
    honoured = [("T-42", ["bb", "aa"]), (TASK, [sha256])]
    for each in [*honoured, ("T-42", ["bb", "ab"]), ("T-42", []), (TASK, ["1" * 64]), (TASK, [])]:
        assert (override_for(ledger, *each) is not None) == (each in honoured), each


class Team:
    def __init__(self, most: int = 10**9) -> None:
        self.ids: list[str] = []
        self._most = most

    def __call__(self, lines: Sequence[bytes]) -> str | None:
        if len(self.ids) >= self._most:
            raise JudgekitError("the team is away")
        self.ids += [json.loads(line)["id"] for line in lines]
        return "one of them is odd" if "o" in self.ids else None


def sent(ledger: Ledger) -> str:
    team = Team()
    count, _ = send_unsent(ledger, team)
    assert count == len(team.ids)
    return "".join(team.ids)


def test_each_line_is_handed_on_once_if_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sent(ledger) == ""
    assert not ledger.folder.exists()
    add(ledger, "o")
    assert send_unsent(ledger, Team()) == (1, ["one of them is odd"])
    assert sent(ledger) == ""
    add(ledger, "abcdefg")
    monkeypatch.setattr(export, "MAX_BATCH_LINES", 2)
    away = Team(most=4)
    with pytest.raises(JudgekitError, match="away"):
        send_unsent(ledger, away)
    assert away.ids == list("abcd")
    assert send_unsent(ledger, Team(), seconds=0)[0] == 2
    with file_lock(ledger.folder / export.LOCK_FILE, timeout=1):  # of two at once one does it
        assert sent(ledger) == ""
    assert sent(ledger) == "g"


def test_damage_holds_up_nothing_and_a_new_file_is_handed_on_anew(ledger: Ledger) -> None:
    path = add(ledger, "a")
    whole = path.read_bytes()
    path.write_bytes(b"{broken\n" + whole + whole[:20])
    (ledger.folder / export.PROGRESS_FILE).write_text("[nonsense")
    assert sent(ledger) == "a"
    path.write_bytes(b"{broken\n" + whole + whole.replace(b'"a"', b'"b"'))
    assert sent(ledger) == "b"
    fresh = path.with_name("fresh")
    fresh.write_bytes(whole * 2)
    fresh.replace(path)
    assert sent(ledger) == "aa"
    store.purge(ledger.folder, date.max)
    assert sent(ledger) == ""
