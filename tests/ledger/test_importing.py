"""Lines of other ledgers and verdicts of older judges come in once, and damage holds up nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ledger_lines import label, verdict

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
    line = importing.verdict(PUSH)
    assert (line.verdict, line.word, line.model, line.commit, line.task_id) == (
        *("reject", "NO-GO", "some-model", "abc1234", "docs/a.md@abc1234"),
    )
    assert line.timestamp == datetime(2026, 2, 10, 10, tzinfo=UTC)
    assert (line.scores, line.average) == ({"semantic": 2, "pragmatic": 3, "syntactic": 4}, 3)
    assert [subject.path for subject in line.subjects] == ["docs/a.md"]
    findings = [(finding.issue, finding.suggestion) for finding in line.findings]
    assert findings == [("the port is wrong", ""), ("old", ""), ("", "say 8080")]
    assert line.imported == {"branch": "main"}
    assert line.answered


def test_a_verdict_on_a_task() -> None:
    line = importing.verdict(TASK)
    assert (line.verdict, line.task_id, line.judge_tier, line.consensus) == (
        *("reject", "T-7", "deep", "majority"),
    )
    assert [(each.tier, each.model) for each in line.rounds] == [
        ("quick", "quick-model"),
        ("deep", "deep-model"),
    ]
    assert line.timestamp == datetime(2026, 2, 11, 9, tzinfo=UTC)
    assert line.human_override is not None
    assert line.human_override.who == "bob"
    assert line.imported == {"cost": 0.1}
    assert b"at length" not in records.line(line)
    assert importing.verdict(TASK, text=True).reasoning == "said at length"


LOOSE: list[dict[str, Any]] = [
    {"scores": None, "verdict": "UNDETERMINED", "findings": None, "revision_suggestions": None},
    {"scores": {}, "verdict": "go", "findings": {"semantic": "fine"}, "author": {"name": "Ann"}},
    {"files_evaluated": [], "commit": None, "author": None, "findings": "one text"},
    {"files_evaluated": ["\ud800.md"], "note": "\udfff"},
    {
        "scores": {"semantic": float("inf"), "pragmatic": 10**400},
        "files_evaluated": "a.md",
        "x": float("nan"),
    },
]


def test_loose_lines_are_read_and_can_be_written() -> None:
    for changes in LOOSE:
        assert isinstance(store.parse(records.line(importing.verdict(PUSH | changes))), VerdictLine), changes
    for given in ("reject", {"verdict": "reject", "reason": "no"}, None, "", {"x": 1}, 3):
        override = importing.verdict(TASK | {"human_override": given}).human_override
        decided = given == "reject" or (isinstance(given, dict) and "verdict" in given)
        assert (override.decision if override else None) == ("reject" if decided else None), given


def test_importing_twice_adds_nothing(ledger: Ledger, tmp_path: Path) -> None:
    many = [PUSH | {"commit": f"{number:07x}"} for number in range(1201)]
    source = write(tmp_path / "2026-02-10.jsonl", PUSH, TASK, PUSH, *many)
    first = importing.bring(ledger, [source])
    assert (first.added, first.known, first.damaged) == (1203, 1, [])
    again = importing.bring(ledger, [source, tmp_path / "2026-02-10.jsonl"])
    assert (again.added, again.known) == (0, 1204)
    assert [path.name for path in store.files([ledger.folder])] == ["2026-02-10.jsonl", "2026-02-11.jsonl"]
    # What was said of tasks is no measurement of the gate.
    assert {line.word for line in kpi.evidence(ledger.records()).verdicts} == {"NO-GO"}
    assert len(list(ledger.records())) == 1203


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"deeper": found}
    return found


NO_PLACE = "expected times inside the years 1 to 9999"
NO_TIME = "timestamp: expected a time as 2026-02-01T08:00:00Z, got "
SKIP = {"schema": "judgekit/skip@1", "id": "s", "variable": "JUDGEKIT_SKIP", "who": "ann", "terminal": True}
DAMAGE: list[tuple[object, str]] = [
    ('{"commit": "x", ', "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[]", "not an object"),
    ({}, "not a verdict: neither files_evaluated nor task_id"),
    (PUSH | {"verdict": "MAYBE"}, "expected one of GO, NO-GO, UNDETERMINED, got 'MAYBE'"),
    (TASK | {"verdict": "GO"}, "expected one of accept"),
    (PUSH | {"timestamp": "nope"}, f"{NO_TIME}'nope'; correct the line"),
    (PUSH | {"timestamp": None}, f"{NO_TIME}None"),
    (PUSH | {"timestamp": 3}, f"{NO_TIME}3"),
    (
        TASK | {"human_override": {"decision": "accept", "at": "x" * 99}},
        "human_override.at: expected a time as 2026-02-01T08:00:00Z, got 'xxx",
    ),
    ({"schema": "judgekit/later@1"}, "of a kind unknown to this version"),
    # Lines that could be read, but not written, or not read again.
    (PUSH | {"timestamp": "0001-01-01T00:00:00+14:00"}, NO_PLACE),
    (PUSH | {"timestamp": "9999-12-31T23:59:59-14:00"}, NO_PLACE),
    (TASK | {"human_override": {"decision": "accept", "at": "0001-01-01T00:00:00+14:00"}}, NO_PLACE),
    (PUSH | {"more": nested(230)}, NO_PLACE),
    (PUSH | {"more": nested(300)}, NO_PLACE),
    (SKIP | {"timestamp": "0001-01-01T00:00:00+14:00"}, NO_PLACE),
]


def test_damaged_lines_are_reported_and_the_rest_is_brought(ledger: Ledger, tmp_path: Path) -> None:
    good = [PUSH | {"commit": f"{number:07x}"} for number in range(600)]
    source = write(tmp_path / "x.jsonl", *good[:550], *(line for line, _ in DAMAGE), *good[550:])
    done = importing.bring(ledger, [source])
    assert done.added == 600
    assert [damage.line for damage in done.damaged] == list(range(551, 551 + len(DAMAGE)))
    for damage, (_, told) in zip(done.damaged, DAMAGE, strict=True):
        assert told in damage.why
        assert len(damage.why) < 200
    said: list[store.Damage] = []
    assert len(list(ledger.records(damaged=said.append))) == 600
    assert said == []


def test_lines_of_another_ledger_are_brought_with_their_labels(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other", "other-0123456789ab")
    line = verdict(name="a")
    other.add(line, label(line, "go"))
    assert [importing.bring(ledger, [other.folder]).added for _ in range(2)] == [2, 0]
    assert {record.project for record in ledger.records()} == {"own-0123456789ab"}
    (other.folder / "a.jsonl").mkdir()
    done = importing.bring(ledger, [other.folder, tmp_path / "gone.jsonl"])
    assert sorted(damage.path.name for damage in done.damaged) == ["a.jsonl", "gone.jsonl"]
