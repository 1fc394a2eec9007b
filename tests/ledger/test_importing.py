from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import IO, TYPE_CHECKING, Any

import pytest
from ledger_lines import NOW, label, verdict

from judgekit.ledger import Ledger, VerdictLine, importing, kpi, records, store

if TYPE_CHECKING:
    from pathlib import Path

PUSH: dict[str, Any] = {
    "commit": "abc1234",
    "timestamp": "2026-02-10T10:00:00",
    "author": "Ann <ann@example.invalid>",
    "judge_model": "some-model",
    "files_evaluated": ["docs/a.md"],
    "scores": {"semantic": 2, "pragmatic": "3", "syntactic": 4.0},
    "verdict": "NO-GO",
    "findings": ["the port is wrong", {"dimension": "semantic", "issue": "old", "line": 3}],
    "revision_suggestions": ["say 8080"],
    "branch": "main",
}
TASK: dict[str, Any] = {
    "task_id": "T-7",
    "model": "deep-model",
    "mode": "deep",
    "verdict": "reject",
    "scores": {"semantic": 1},
    "average": 1.0,
    "reasoning": "said at length",
    "improvements": ["add the steps"],
    "timestamp": "2026-02-11T10:00:00+01:00",
    "round": 2,
    "judge_tier": "deep",
    "previous_rounds": [
        {"model": "quick-model", "mode": "quick", "verdict": "accept", "scores": {"semantic": 4}}
    ],
    "consensus": "majority",
    "human_override": {"decision": "accept", "why": "known", "who": "bob", "at": "2026-02-12T00:00:00Z"},
    "cost": 0.1,
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "own", "own-0123456789ab")


def write(path: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


def test_a_verdict_on_a_push() -> None:
    verdict_line = importing.verdict(PUSH)
    assert (verdict_line.verdict, verdict_line.word, verdict_line.model, verdict_line.commit) == (
        "reject",
        "NO-GO",
        "some-model",
        "abc1234",
    )
    assert verdict_line.timestamp == datetime(2026, 2, 10, 10, tzinfo=UTC)
    assert verdict_line.scores == {"semantic": 2, "pragmatic": 3, "syntactic": 4}
    assert verdict_line.average == 3
    assert [subject.path for subject in verdict_line.subjects] == ["docs/a.md"]
    assert verdict_line.task_id == "docs/a.md@abc1234"
    assert [(finding.issue, finding.suggestion) for finding in verdict_line.findings] == [
        ("the port is wrong", ""),
        ("old", ""),
        ("", "say 8080"),
    ]
    assert verdict_line.imported == {"branch": "main"}
    assert verdict_line.answered


def test_a_verdict_on_a_task() -> None:
    verdict_line = importing.verdict(TASK)
    assert (verdict_line.verdict, verdict_line.task_id, verdict_line.judge_tier, verdict_line.consensus) == (
        "reject",
        "T-7",
        "deep",
        "majority",
    )
    assert [(each.tier, each.model) for each in verdict_line.rounds] == [
        ("quick", "quick-model"),
        ("deep", "deep-model"),
    ]
    assert verdict_line.timestamp == datetime(2026, 2, 11, 9, tzinfo=UTC)
    assert verdict_line.human_override is not None
    assert verdict_line.human_override.who == "bob"
    assert verdict_line.imported == {"cost": 0.1}
    assert b"at length" not in records.line(verdict_line)
    assert importing.verdict(TASK, text=True).reasoning == "said at length"


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": None, "verdict": "UNDETERMINED", "findings": None, "revision_suggestions": None},
        {"scores": {}, "verdict": "go", "findings": {"semantic": "fine"}, "author": {"name": "Ann"}},
        {"files_evaluated": [], "commit": None, "author": None, "findings": "one text"},
        {"files_evaluated": ["\ud800.md"], "note": "\udfff"},
        {
            "scores": {"semantic": float("inf"), "pragmatic": 10**400},
            "files_evaluated": "a.md",
            "x": float("nan"),
        },
    ],
)
def test_loose_lines_are_read_and_can_be_written(changes: dict[str, Any]) -> None:
    verdict_line = importing.verdict(PUSH | changes)
    assert isinstance(store.parse(records.line(verdict_line)), VerdictLine)


@pytest.mark.parametrize("given", ["reject", {"verdict": "reject", "reason": "no"}, None, "", {"x": 1}, 3])
def test_overrides_are_written_in_many_ways(given: object) -> None:
    override = importing.verdict(TASK | {"human_override": given}).human_override
    told = given == "reject" or (isinstance(given, dict) and "verdict" in given)
    assert (override.decision if override else None) == ("reject" if told else None)


def test_importing_twice_adds_nothing(ledger: Ledger, tmp_path: Path) -> None:
    source = write(tmp_path / "2026-02-10.jsonl", PUSH, TASK, PUSH)
    first = importing.bring(ledger, [source])
    assert (first.added, first.known, first.damaged) == (2, 1, [])
    again = importing.bring(ledger, [source, tmp_path / "2026-02-10.jsonl"])
    assert (again.added, again.known) == (0, 3)
    assert [path.name for path in store.files([ledger.folder])] == ["2026-02-10.jsonl", "2026-02-11.jsonl"]


def test_damaged_lines_are_reported_and_the_rest_is_brought(ledger: Ledger, tmp_path: Path) -> None:
    bad = [
        '{"commit": "x", ',
        "[]",
        {},
        PUSH | {"verdict": "MAYBE"},
        PUSH | {"timestamp": "yesterday"},
        PUSH | {"timestamp": None},
        TASK | {"verdict": "GO"},
        {"schema": "judgekit/later@1"},
    ]
    done = importing.bring(ledger, [write(tmp_path / "x.jsonl", *bad, PUSH)])
    assert done.added == 1
    assert [damage.line for damage in done.damaged] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "expected one of GO, NO-GO, UNDETERMINED, got 'MAYBE'" in str(done.damaged[3])


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"deeper": found}
    return found


@pytest.mark.parametrize(
    "odd",
    [
        PUSH | {"timestamp": "0001-01-01T00:00:00+14:00"},
        PUSH | {"timestamp": "9999-12-31T23:59:59-14:00"},
        TASK | {"human_override": {"decision": "accept", "at": "0001-01-01T00:00:00+14:00"}},
        PUSH | {"more": nested(230)},  # can be written, and not read
        PUSH | {"more": nested(300)},
        {"schema": "judgekit/skip@1", "id": "s", "timestamp": "0001-01-01T00:00:00+14:00"}
        | {"variable": "JUDGEKIT_SKIP", "who": "ann", "terminal": True},
    ],
)
def test_a_line_that_cannot_be_kept_is_reported_and_the_rest_is_brought(
    ledger: Ledger, tmp_path: Path, odd: dict[str, Any]
) -> None:
    good = [PUSH | {"commit": f"{number:07x}"} for number in range(600)]
    done = importing.bring(ledger, [write(tmp_path / "x.jsonl", *good[:550], odd, *good[550:])])
    assert (done.added, [damage.line for damage in done.damaged]) == (600, [551])
    assert "expected times inside the years 1 to 9999" in done.damaged[0].why
    said: list[store.Damage] = []
    assert len(list(ledger.records(damaged=said.append))) == 600
    assert said == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (PUSH | {"timestamp": "nope"}, "timestamp: expected a time as 2026-02-01T08:00:00Z, got 'nope'"),
        (PUSH | {"timestamp": 3}, "timestamp: expected a time as 2026-02-01T08:00:00Z, got 3"),
        (
            TASK | {"human_override": {"decision": "accept", "at": "x" * 99}},
            "human_override.at: expected a time as 2026-02-01T08:00:00Z, got 'xxx",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_key(line: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match="; mend the line") as error:
        importing.verdict(line)
    assert str(error.value).startswith(told)
    assert len(str(error.value)) < 160


def test_verdicts_on_tasks_say_nothing_of_the_gate(ledger: Ledger, tmp_path: Path) -> None:
    importing.bring(ledger, [write(tmp_path / "x.jsonl", PUSH, TASK)])
    assert [verdict_line.task_id for verdict_line in kpi.evidence(ledger.records()).verdicts] == [
        "docs/a.md@abc1234"
    ]


def test_lines_of_another_ledger_are_brought_with_their_labels(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other", "other-0123456789ab")
    line = verdict(name="a")
    other.add(line, label(line, "go"))
    assert importing.bring(ledger, [other.folder]).added == 2
    assert importing.bring(ledger, [other.folder]).added == 0
    assert {record.project for record in ledger.records()} == {"own-0123456789ab"}


def test_a_file_that_cannot_be_read_is_reported_and_the_rest_is_brought(
    ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "in" / "a.jsonl").mkdir(parents=True)
    write(tmp_path / "in" / "b.jsonl", PUSH)
    done = importing.bring(ledger, [tmp_path / "in", tmp_path / "gone.jsonl"])
    assert done.added == 1
    assert sorted(damage.path.name for damage in done.damaged) == ["a.jsonl", "gone.jsonl"]


def test_many_lines_are_brought(ledger: Ledger, tmp_path: Path) -> None:
    lines = [PUSH | {"commit": f"{number:07x}"} for number in range(1201)]
    assert importing.bring(ledger, [write(tmp_path / "x.jsonl", *lines)]).added == 1201
    assert len(list(ledger.records())) == 1201


# Removing


def test_purging_removes_old_days_and_labels_of_their_verdicts(ledger: Ledger) -> None:
    old, new = verdict(name="old", days=10), verdict(name="new")
    ledger.add(old, new, label(old, "go", after=230), label(new, "go"))
    before = date(2026, 3, 15)
    assert store.old_lines(ledger.folder, before) == {"verdict": 1, "label": 1}
    store.purge(ledger.folder, before)
    assert [record.of if hasattr(record, "of") else record.id for record in ledger.records()] == [
        "new",
        "new",
    ]
    assert store.old_lines(ledger.folder, before) == {}
    files = store.files([ledger.folder])
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert sorted(path.name for path in ledger.folder.iterdir()) == [".lock", *(path.name for path in files)]


def test_purging_leaves_the_day_itself_and_damaged_lines_of_later_days(ledger: Ledger) -> None:
    ledger.add(verdict(name="old", days=1), verdict(name="new"))
    later = store.files([ledger.folder])[-1]
    later.write_bytes(b"damaged\n" + later.read_bytes())
    store.purge(ledger.folder, NOW.date())
    assert [record.id for record in ledger.records()] == ["new"]
    assert later.read_bytes().startswith(b"damaged\n")


def test_purging_removes_what_cannot_be_read_too(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.add(verdict(name="old", days=10), verdict(name="new"))
    refused, opened = store.files([ledger.folder])[0], type(ledger.folder).open

    def refuse(path: Path, *arguments: Any, **options: Any) -> IO[Any]:  # noqa: ANN401 - as Path.open
        if path == refused:
            raise PermissionError
        found: IO[Any] = opened(path, *arguments, **options)
        return found

    monkeypatch.setattr(type(ledger.folder), "open", refuse)
    before = date(2026, 3, 15)
    assert store.old_lines(ledger.folder, before) == {"damaged": 1}
    store.purge(ledger.folder, before)
    assert not refused.exists()
    assert [record.id for record in ledger.records()] == ["new"]
