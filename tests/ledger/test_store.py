"""What is appended is read again, whoever else writes, whatever is damaged, and until it is purged."""

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
from typing import IO, Any

import ledger_writer
import pytest
from ledger_lines import NOW, label, verdict

from judgekit import environment
from judgekit.config.files import held
from judgekit.errors import UsageError
from judgekit.ledger import Ledger, LineFilter, ModeChange, OverrideLine, VerdictLine, records, store
from judgekit.ledger.records import Label
from judgekit.ledger.store import Damage, LedgerError

DAY = date(2026, 3, 20)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes, limits and signals")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "one", "one-0123456789ab")


def add(folder: Path, *lines: bytes) -> None:
    store.append(folder, [(DAY, line) for line in lines])


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in store.files([folder]))


def read(ledger: Ledger, wanted: LineFilter = store.EVERYTHING) -> tuple[list[str], list[Damage]]:
    """Return the ids of what is read, and what is damaged."""
    said: list[Damage] = []
    return [record.id for record in ledger.records(wanted, said.append)], said


@POSIX
def test_lines_follow_each_other_in_private_files_of_their_days(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        add(tmp_path / "state" / "x", b"1\n")
        add(tmp_path / "state" / "x", b"2\n", b"3\n")
        store.append(tmp_path / "state" / "x", [(DAY, b"4\n"), (date(2026, 3, 19), b"0\n")])
    finally:
        os.umask(old)
    assert content(tmp_path / "state" / "x") == b"0\n1\n2\n3\n4\n"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")}
    days = {"2026-03-19.jsonl": 0o600, "2026-03-20.jsonl": 0o600}
    assert modes == {"x": 0o700, ".lock": 0o600, **days}


def test_a_torn_tail_does_not_swallow_the_next_line_and_a_full_file_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "2026-03-20.jsonl").write_bytes(b'1\n{"sche')
    add(tmp_path, b"2\n")
    assert content(tmp_path) == b'1\n{"sche\n2\n'
    monkeypatch.setattr(store, "MAX_BYTES", 4)
    for number in range(5):
        add(tmp_path / "full", b"%d\n" % number)
    assert [path.read_bytes() for path in store.files([tmp_path / "full"])] == [b"0\n1\n", b"2\n3\n", b"4\n"]


def test_a_short_write_is_taken_away_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full disk does: the first write falls short, the second fails."""
    add(tmp_path, b"1\n")
    real, calls = os.write, 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(28, "No space left on device")
        return real(descriptor, bytes(data)[:3])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(LedgerError, match=r"No space left on device.*free space there") as caught:
            add(tmp_path, b"123456\n")
    assert (content(tmp_path), caught.value.written) == (b"1\n", 0)
    add(tmp_path, b"2\n")
    assert content(tmp_path) == b"1\n2\n"


@POSIX
def test_a_limit_on_files_leaves_whole_lines(tmp_path: Path) -> None:
    """The kernel's own short write: a file may not grow beyond 1,000 bytes."""
    code = (
        "import sys, resource, datetime, pathlib\n"
        "from judgekit.ledger.store import append, LedgerError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: append(pathlib.Path(sys.argv[1]), [(datetime.date(2026, 3, 20), b'x' * 299 + b'\\n')] * 9)\n"
        "except LedgerError as error: print(error.written, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("3 ")
    assert "File too large" in done.stdout
    assert content(tmp_path) == (b"x" * 299 + b"\n") * 3


@POSIX
def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"file/x: the ledger cannot be written"):
        add(tmp_path / "file" / "x", b"1\n")
    for target in ("gone", "state"):
        (tmp_path / "state").unlink(missing_ok=True)
        (tmp_path / "state").symlink_to(target)
        with pytest.raises(LedgerError) as error:
            add(tmp_path / "state" / "x", b"1\n")
        assert f"({tmp_path / 'state'} is a broken link); create the folder" in str(error.value)
        assert "free space" not in str(error.value)
    monkeypatch.setattr(store, "SECONDS", 0.05)
    with held(tmp_path / store.LOCK, seconds=1), pytest.raises(LedgerError, match="held by another process"):
        add(tmp_path, b"1\n")


@POSIX
def test_a_thousand_appends_from_twenty_writers_some_of_them_killed(tmp_path: Path) -> None:
    """Each line is whole but the last of a killed writer; what a writer had finished is there, in order."""
    chance = random.Random(4)
    killed = chance.sample(range(20), 6)
    plans = [100_000 if number in killed else 72 for number in range(20)]  # the killed would go on and on
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
    for raw in content(tmp_path).splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            torn += 1
        else:
            assert line["text"] == ledger_writer.text(line["number"])
            found[line["by"]].append(line["number"])
    assert [writer.exitcode for writer in writers] == [-9 if number in killed else 0 for number in range(20)]
    assert torn <= len(killed)
    assert sum(map(len, found.values())) >= 1000
    for name in names:
        assert found[name] == list(range(len(found[name])))
        assert finished[name] <= len(found[name]) <= finished[name] + 1


def _finished(path: Path) -> int:
    return len(path.read_text().splitlines())


@POSIX
def test_a_writer_killed_in_the_middle_of_its_line(ledger: Ledger) -> None:
    """The writer dies after half its line; the others go on and the reader says which line is torn."""
    code = (
        "import os, sys, signal, datetime, pathlib\n"
        "from judgekit.ledger import store\n"
        "real = os.write\n"
        "def write(descriptor, data):\n"
        "    real(descriptor, bytes(data)[:9]); os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.write = write\n"
        'store.append(pathlib.Path(sys.argv[1]), [(datetime.date(2026, 3, 20), b\'{"schema": "x"}\\n\')])\n'
    )
    done = subprocess.run([sys.executable, "-c", code, str(ledger.folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    add(ledger.folder, b"{}\n")
    assert content(ledger.folder) == b'{"schema"\n{}\n'
    ids, said = read(ledger)
    assert (ids, [damage.line for damage in said]) == ([], [1, 2])
    assert "not JSON (cut off when the writer was killed, or edited)" in str(said[0])


def test_what_was_added_is_read_day_by_day(ledger: Ledger) -> None:
    assert read(ledger) == ([], [])
    ledger.add()
    assert not ledger.folder.exists()
    ledger.add(verdict(days=0, name="new"), verdict(days=2, name="old"))
    ledger.add(verdict(days=1, name="between"))
    assert read(ledger) == (["old", "between", "new"], [])
    found = list(ledger.records())
    assert {each.project for each in found} == {"one-0123456789ab"}
    assert found[0] == verdict(days=2, name="old", project="one-0123456789ab")


def test_damaged_lines_are_reported_and_the_rest_is_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add(verdict(name="first"))
    (path,) = store.files([ledger.folder])
    first = path.read_bytes().strip()
    newer = json.loads(first) | {"id": "third", "new_field": 1}
    newer["rubric"]["new_field"] = newer["rounds"][0]["new_field"] = {"deep": []}
    monkeypatch.setattr(store, "MAX_LINE", 4000)
    lines = [
        first,
        b"",
        b"\x00\x00\x00",
        b"\xff\xfe{}",
        b"[1]",
        b"{}",
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
    assert [damage.line for damage in said] == [3, 4, 5, 6, 7, 8, 10, 11]
    assert str(said[0]).startswith(f"{path}:3: not JSON")
    assert str(said[0]).endswith("; this line is skipped")
    assert "(judgekit/verdict@9)" in said[4].why
    assert said[6].why == "longer than 4000 bytes"


@POSIX
def test_what_cannot_be_read_is_reported_and_the_rest_is_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add(verdict(name="old", days=2), verdict(name="new"))
    refused, opened = store.files([ledger.folder])[0], Path.open
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
    assert store.old_lines(ledger.folder, before) == {"damaged": 1}
    store.purge(ledger.folder, before)
    assert not refused.exists()
    other = Ledger(ledger.folder.with_name("two"), "two")
    other.folder.symlink_to("gone")
    assert [damage.path for damage in read(other)[1]] == [other.folder]
    ledger.folder.chmod(0)
    try:
        if not os.access(ledger.folder, os.R_OK):  # else this user may read everything
            assert [damage.path for damage in read(ledger)[1]] == [ledger.folder]
    finally:
        ledger.folder.chmod(0o700)


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


def test_what_is_wanted_of_several_ledgers_of_which_each_line_counts_once(
    ledger: Ledger, tmp_path: Path
) -> None:
    early = verdict(name="a", days=3)
    ledger.add(early, verdict(name="b", days=1), verdict(name="c"))
    ledger.add(label(early, "go", after=71).model_copy(update={"id": "l"}))
    for wanted, found in WANTED:
        assert "".join(sorted(read(ledger, LineFilter(**wanted))[0])) == found, wanted
    other = Ledger(tmp_path / "two", "two-0123456789ab")
    other.add(verdict(name="c"), verdict(name="d", days=2))
    exported = tmp_path / "exported.jsonl"
    exported.write_bytes(records.line(early) + records.line(verdict(name="e")))
    places = [tmp_path / "one", exported, tmp_path / "two", tmp_path]
    assert [record.id for record in store.records(places)] == ["a", "e", "d", "b", "c", "l"]


def test_days_are_those_of_utc_and_earlier_ones_are_not_opened(ledger: Ledger, tmp_path: Path) -> None:
    late = datetime.fromisoformat("2026-03-20T23:30:00-05:00")
    ledger.add(ModeChange(mode="blocking", timestamp=late, id="late"), verdict(name="old", days=9))
    assert [path.name for path in store.files([ledger.folder])] == ["2026-03-11.jsonl", "2026-03-21.jsonl"]
    store.files([ledger.folder])[0].write_bytes(b"damaged\n")
    since = datetime(2026, 3, 21, 4, tzinfo=UTC)
    assert read(ledger, LineFilter(since=since)) == (["late"], [])
    assert read(ledger, LineFilter(since=since + timedelta(hours=1))) == ([], [])
    names = ["z", "2026-02-01", "2026-03-01", "2026-03-01.9", "2026-03-01.10"]
    for name in reversed(names):
        (tmp_path / f"{name}.jsonl").touch()
    assert [path.stem for path in store.files([tmp_path]) if path.parent == tmp_path] == names
    days = [str(store._day_of(Path(f"{name}.jsonl"))) for name in ("2026-02-31", "team", "2026-02-28.3")]
    assert days == ["None", "None", "2026-02-28"]


def test_purging_removes_old_days_and_labels_of_their_verdicts(ledger: Ledger) -> None:
    old, new = verdict(name="old", days=10), verdict(name="new")
    ledger.add(old, new, label(old, "go", after=230), label(new, "go"), label(old, "unsure", after=9999))
    before = date(2026, 3, 15)
    latest = store.files([ledger.folder])[-1]
    latest.write_bytes(b"damaged\n" + latest.read_bytes())  # stays
    assert store.old_lines(ledger.folder, before) == {"verdict": 1, "label": 2}
    store.purge(ledger.folder, before)
    assert [getattr(record, "of", record.id) for record in ledger.records()] == ["new", "new"]
    assert store.old_lines(ledger.folder, before) == {}
    files = store.files([ledger.folder])
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert sorted(path.name for path in ledger.folder.iterdir()) == [".lock", *(path.name for path in files)]
    assert latest.read_bytes() == b"damaged\n"
    store.purge(ledger.folder, NOW.date())  # the day itself is kept
    assert read(ledger)[0][0] == "new"


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid", "-c", "protocol.file.allow=always"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_a_name_is_readable_and_stands_for_one_place(tmp_path: Path) -> None:
    repository = tmp_path / "my project"
    (repository / "docs" / ".claude" / "memory").mkdir(parents=True)
    git(repository, "init", "-q")
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    name = store.project_name(repository)
    assert re.fullmatch(r"my-project-[0-9a-f]{12}", name)
    assert store.is_project_name(name)
    assert store.project_name(repository / "docs") == name
    (tmp_path / "link").symlink_to(repository)
    assert store.project_name(tmp_path / "link") == name
    other = tmp_path / "other" / "my project"
    other.mkdir(parents=True)
    assert store.project_name(other) != name
    assert [store.same_project(name, wanted) for wanted in (name, "my-project", "my")] == [True, True, False]
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert store.project_name(tmp_path / "tree") == name
    git(repository, "submodule", "add", "-q", str(repository), "inner")
    assert store.project_name(repository / "inner").startswith("inner-")
    for text in ("", "gitdir: ", "gitdir: ../gone", "nonsense", "gitdir: \x00"):  # the folder's own mark
        (other / ".git").write_text(text)
        (other / "docs").mkdir(exist_ok=True)
        assert store.project_name(other / "docs") == store.project_name(other)


def test_where_the_ledger_lies(isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ledger.of(tmp_path).folder.parent == isolated / "judgekit" / "state" / "ledger"
    monkeypatch.delenv("JUDGEKIT_HOME")
    assert environment.state_home() == str(isolated / ".local" / "state" / "judgekit")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert environment.state_home() == str(tmp_path / "judgekit")


def test_points_in_time() -> None:
    for text, days in {"14d": 14, "2w": 14, "36h": 1.5, "0d": 0, "2026-03-19": 1.5}.items():
        assert store.point(text, NOW) == NOW - timedelta(days=days)
    assert store.point("2026-03-20T13:00:00+01:00") == NOW
    for text in ("", "14", "d", "14 days", "-1d", "999999w", "2026-02-30", "yesterday"):
        with pytest.raises(UsageError, match="is not a time"):
            store.point(text, NOW)


TASK = "docs/a b@c.md@3f2c3f2c3f2c3f2c"


def override(task: str = TASK, decision: str = "accept", hours: float = 0, **more: object) -> OverrideLine:
    fields = {"why": "known", "who": "ann", "terminal": True, "timestamp": NOW + timedelta(hours=hours)}
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


def test_an_override_holds_for_its_blob_alone(ledger: Ledger) -> None:
    ledger.add(override())
    assert {task: ledger.override_for(task) is not None for task in BLOBS} == BLOBS


@pytest.mark.parametrize("digits", [8, 15])
def test_an_override_that_names_few_digits_needs_the_whole_hash_beside_them(
    ledger: Ledger, digits: int
) -> None:
    """A text of a given beginning of a hash is soon made; older overrides keep the hash of their files."""
    path, _, sha256 = f"{TASK}{'0' * 48}".rpartition("@")
    ledger.add(override(f"{path}@{sha256[:digits]}"))
    assert ledger.override_for(TASK, [sha256]) is None
    ledger.add(override(f"{path}@{sha256[:digits]}", subjects=[sha256]))
    assert ledger.override_for(TASK, [sha256]) is not None
    assert ledger.override_for(TASK, ["1" * 64]) is None


def test_the_newest_override_holds_and_one_of_a_named_task_for_the_same_files(ledger: Ledger) -> None:
    ledger.add(override(hours=2, decision="reject"), override(hours=1), override(hours=3, terminal=False))
    found = [ledger.override_for(TASK, without_terminal=each) for each in (False, True)]
    assert [each and each.decision for each in found] == ["reject", "accept"]
    ledger.add(override("T-42", subjects=["aa", "bb"]), override("x@3f2c3f2c", subjects=["cc"]))
    asked = [("T-42", ["bb", "aa"]), ("T-42", ["bb", "ab"]), ("T-42", []), ("x@3f2c3f2c", ["dd"])]
    honoured = [ledger.override_for(*each) is not None for each in [*asked, ("x@3f2c3f2c", ["cc"])]]
    assert honoured == [True, False, False, False, True]
