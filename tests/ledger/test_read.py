from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from ledger_lines import NOW, label, verdict

from judgekit.ledger import Ledger, LineFilter, ModeChange, OverrideLine, records, store
from judgekit.ledger.records import Label


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "one", "one-0123456789ab")


def names(ledger: Ledger, wanted: LineFilter = store.EVERYTHING) -> list[str]:
    return [record.id for record in ledger.records(wanted)]


def test_what_was_added_is_read_day_by_day(ledger: Ledger) -> None:
    ledger.add(verdict(days=0, name="new"), verdict(days=2, name="old"))
    ledger.add(verdict(days=1, name="between"))
    assert names(ledger) == ["old", "between", "new"]
    found = list(ledger.records())
    assert {each.project for each in found} == {"one-0123456789ab"}
    assert found[0] == verdict(days=2, name="old", project="one-0123456789ab")


def test_nothing_is_read_where_nothing_was_written(ledger: Ledger) -> None:
    assert list(ledger.records()) == []
    ledger.add()
    assert not ledger.folder.exists()


def test_damaged_lines_are_reported_and_the_rest_is_read(ledger: Ledger) -> None:
    ledger.add(verdict(name="first"))
    (path,) = store.files([ledger.folder])
    newer = json.loads(path.read_text()) | {"id": "third", "new_field": 1}
    newer["rubric"]["new_field"] = newer["rounds"][0]["new_field"] = {"deep": []}
    lines = [
        path.read_bytes().strip(),
        b"",
        b"\x00\x00\x00",
        b"\xff\xfe{}",
        b"[1]",
        b"{}",
        b'{"schema": "judgekit/verdict@9", "id": "x"}',
        b'{"schema": "judgekit/label@1", "id": "x"}',
        json.dumps(newer).encode(),
        path.read_bytes().strip()[:-20],
    ]
    path.write_bytes(b"\n".join(lines))
    said: list[store.Damage] = []
    assert [record.id for record in ledger.records(damaged=said.append)] == ["first", "third"]
    assert [damage.line for damage in said] == [3, 4, 5, 6, 7, 8, 10]
    assert str(said[0]).startswith(f"{path}:3: not JSON")
    assert "(judgekit/verdict@9)" in said[4].why
    assert said[5].why == "of: missing key; add it"


def test_what_is_no_file_is_reported_and_the_rest_is_read(ledger: Ledger) -> None:
    ledger.add(verdict(name="first"))
    (ledger.folder / "2026-01-01.jsonl").mkdir()
    (ledger.folder / "2026-01-02.jsonl").symlink_to("gone")
    (ledger.folder / "2026-01-03.jsonl").symlink_to("2026-01-03.jsonl")
    said: list[store.Damage] = []
    assert [record.id for record in ledger.records(damaged=said.append)] == ["first"]
    assert sorted(damage.path.name for damage in said) == [f"2026-01-0{day}.jsonl" for day in (1, 2, 3)]
    assert str(said[0]).endswith("a link to nothing, or a device; what is in it is skipped")


def test_what_is_closed_to_us_is_reported_and_the_rest_is_read(ledger: Ledger) -> None:
    ledger.add(verdict(name="old", days=2), verdict(name="new"))
    closed = store.files([ledger.folder])[0]
    closed.chmod(0)
    if os.access(closed, os.R_OK):
        pytest.skip("this user may read everything")
    said: list[store.Damage] = []
    assert [record.id for record in ledger.records(damaged=said.append)] == ["new"]
    ledger.folder.chmod(0)
    try:
        assert list(ledger.records(damaged=said.append)) == []
    finally:
        ledger.folder.chmod(0o700)
    assert [damage.path for damage in said] == [closed, ledger.folder]


def test_a_file_that_fails_while_it_is_read_is_reported_and_the_rest_is_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add(verdict(name="old", days=2), verdict(name="new"))
    refused, opened = store.files([ledger.folder])[0], Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> IO[Any]:  # noqa: ANN401 - as Path.open
        if path == refused:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        found: IO[Any] = opened(path, *arguments, **options)
        return found

    monkeypatch.setattr(Path, "open", refuse)
    said: list[store.Damage] = []
    assert [record.id for record in ledger.records(damaged=said.append)] == ["new"]
    assert [str(damage) for damage in said] == [
        f"{refused}: cannot be read (Permission denied); what is in it is skipped"
    ]


def test_a_ledger_that_is_a_link_to_nothing_is_reported(ledger: Ledger) -> None:
    ledger.folder.symlink_to("gone")
    said: list[store.Damage] = []
    assert list(ledger.records(damaged=said.append)) == []
    assert [damage.path for damage in said] == [ledger.folder]


def test_a_last_line_without_its_newline_counts_when_it_is_whole(ledger: Ledger) -> None:
    ledger.add(verdict(name="first"))
    (path,) = store.files([ledger.folder])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert names(ledger) == ["first"]


def test_a_line_without_end_does_not_fill_the_memory(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_LINE", 4000)
    ledger.add(verdict(name="first"))
    (path,) = store.files([ledger.folder])
    path.write_bytes(b"x" * 10_001 + b"\n" + path.read_bytes())
    said: list[store.Damage] = []
    assert [record.id for record in ledger.records(damaged=said.append)] == ["first"]
    assert [(damage.line, damage.why) for damage in said] == [(1, "longer than 4000 bytes")]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (LineFilter(since=NOW - timedelta(days=1)), "bcl"),
        (LineFilter(until=NOW - timedelta(days=1)), "al"),
        (LineFilter(project="one"), "abcl"),
        (LineFilter(project="one-0123456789ab"), "abcl"),
        (LineFilter(project="on"), ""),
        (LineFilter(kinds=[Label]), "l"),
        (LineFilter(kinds=[]), ""),
    ],
)
def test_what_is_wanted(ledger: Ledger, wanted: LineFilter, found: str) -> None:
    newer = {"id": "kls", "version": "2.0.0", "sha256": ""}
    early = verdict(name="a", days=3)
    ledger.add(early, verdict(name="b", days=1, model="big"), verdict(name="c", rubric=newer))
    ledger.add(label(early, "go", after=71).model_copy(update={"id": "l"}))
    assert "".join(sorted(names(ledger, wanted))) == found


def test_several_ledgers_are_one_and_each_line_counts_once(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "two", "two-0123456789ab")
    ledger.add(verdict(name="a", days=2), verdict(name="b"))
    other.add(verdict(name="b"), verdict(name="c", days=1))
    exported = tmp_path / "exported.jsonl"
    exported.write_bytes(records.line(verdict(name="a", days=2)) + records.line(verdict(name="d")))
    places = [tmp_path / "one", exported, tmp_path / "two", tmp_path]
    assert [record.id for record in store.records(places)] == ["a", "d", "c", "b"]


def test_files_of_earlier_days_are_not_opened(ledger: Ledger) -> None:
    ledger.add(verdict(name="old", days=9), verdict(name="new"))
    store.files([ledger.folder])[0].write_bytes(b"damaged\n")
    said: list[store.Damage] = []
    wanted = LineFilter(since=NOW - timedelta(days=2))
    assert [record.id for record in ledger.records(wanted, said.append)] == ["new"]
    assert said == []


def test_a_local_time_goes_to_the_day_it_was_in_utc(ledger: Ledger) -> None:
    late = datetime.fromisoformat("2026-03-20T23:30:00-05:00")
    ledger.add(ModeChange(mode="blocking", timestamp=late))
    assert [path.name for path in store.files([ledger.folder])] == ["2026-03-21.jsonl"]
    since = datetime(2026, 3, 21, 4, tzinfo=UTC)
    assert len(names(ledger, LineFilter(since=since))) == 1
    assert names(ledger, LineFilter(since=since + timedelta(hours=1))) == []


def test_names_of_files(tmp_path: Path) -> None:
    assert store.day_of(tmp_path / "2026-02-31.jsonl") is None
    assert store.day_of(tmp_path / "team.jsonl") is None
    assert str(store.day_of(tmp_path / "2026-02-28.3.jsonl")) == "2026-02-28"
    for name in (
        "2026-03-01.10.jsonl",
        "2026-03-01.9.jsonl",
        "2026-03-01.jsonl",
        "z.jsonl",
        "2026-02-01.jsonl",
    ):
        (tmp_path / name).touch()
    assert [path.name for path in store.files([tmp_path])] == [
        "z.jsonl",
        "2026-02-01.jsonl",
        "2026-03-01.jsonl",
        "2026-03-01.9.jsonl",
        "2026-03-01.10.jsonl",
    ]


TASK = "docs/a b@c.md@3f2c3f2c3f2c3f2c"


def override(task: str = TASK, decision: str = "accept", hours: float = 0, **more: object) -> OverrideLine:
    fields = {"why": "known", "who": "ann", "terminal": True, "timestamp": NOW + timedelta(hours=hours)}
    return OverrideLine.model_validate({"task_id": task, "decision": decision, **fields, **more})


@pytest.mark.parametrize(
    ("task", "honoured"),
    [
        (TASK, True),
        (TASK + "0" * 48, True),
        (TASK[:-1], False),  # sixteen digits at least: fewer are soon another text's too
        (TASK[:-8], False),
        ("docs/a b@c.md@3f2c3f2c3f2c3f2d", False),
        ("docs/b.md@3f2c3f2c3f2c3f2c", False),
        ("docs/a b@c.md", False),
    ],
)
def test_an_override_holds_for_its_blob_alone(ledger: Ledger, task: str, *, honoured: bool) -> None:
    ledger.add(override())
    assert (ledger.override_for(task) is not None) == honoured


@pytest.mark.parametrize("digits", [8, 12, 15])
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


def test_the_newest_override_holds(ledger: Ledger) -> None:
    ledger.add(override(hours=2, decision="reject"), override(hours=1))
    override_line = ledger.override_for(TASK)
    assert override_line is not None
    assert override_line.decision == "reject"


def test_an_override_without_a_terminal_counts_only_where_it_may(ledger: Ledger) -> None:
    ledger.add(override(decision="reject"), override(hours=1, terminal=False))
    found = [ledger.override_for(TASK, without_terminal=each) for each in (False, True)]
    assert [override_line and override_line.decision for override_line in found] == ["reject", "accept"]


def test_an_override_of_a_named_task_holds_for_the_same_files(ledger: Ledger) -> None:
    ledger.add(override("T-42", subjects=["aa", "bb"]), override(subjects=["cc"]))
    assert ledger.override_for("T-42", ["bb", "aa"]) is not None
    assert ledger.override_for("T-42", ["bb", "ab"]) is None
    assert ledger.override_for("T-42") is None
    assert ledger.override_for(TASK, ["dd"]) is None
    assert ledger.override_for(TASK, ["cc"]) is not None
