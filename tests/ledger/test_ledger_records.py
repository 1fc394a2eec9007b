"""The content of lines, messages and questions to people, and imports from other ledgers."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from git_repo import GitRepo
from ledger_lines import NOW, content, label, round_of, verdict
from pydantic import ValidationError

from judgekit.cli.schema import build_json_schema
from judgekit.errors import FailureKind
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Ledger, VerdictLine, export, importing, kpi, labels, records, store
from judgekit.ledger.labels import triage_records
from judgekit.ledger.records import (
    Fault,
    Label,
    ModeChange,
    OverrideLine,
    PushRecord,
    Skip,
    make_verdict_line,
)

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.ledger import Record


SECRET = "the text of the document"
FINDING = {
    "dimension": "semantic",
    "issue": "wrong port",
    "suggestion": "say 8080",
    "quote": SECRET,
}


def judged(kind: str = "invalid_reply") -> Verdict:
    opinion: dict[str, Any] = {"outcome": "reject", "scores": {}, "reasoning": SECRET, "said": None}
    opinion["findings"] = [dict(FINDING)]
    failed: dict[str, Any] = {
        "opinion": None,
        "failure": {"kind": kind, "message": f"no object in {SECRET}"},
    }
    line = verdict(
        "reject",
        reasoning=SECRET,
        findings=[FINDING],
        rounds=[round_of("reject", opinion=opinion), round_of(None, "deep", **failed)],
        degraded=f"deep: {kind} (no object in {SECRET})",
    )
    return Verdict.model_validate(line.model_dump(by_alias=True, include=set(Verdict.model_fields)))


def test_a_verdict_is_kept_without_what_the_document_says_unless_the_user_wants_it() -> None:
    line = make_verdict_line(judged(), gate=PushRecord(mode="blocking", remote="origin"))
    raw = records.serialise_record(line)
    assert raw.startswith(b'{"schema":"judgekit/verdict@1","id":')
    assert raw.count(b"\n") == 1
    assert SECRET not in raw.decode()
    (finding,) = line.findings
    assert (finding.issue, finding.suggestion) == ("wrong port", "say 8080")
    kept = json.loads(raw)
    assert "reasoning" not in kept
    assert kept["verdict"] == "reject"
    assert kept["gate"] == {"mode": "blocking", "remote": "origin", "ref": "", "cached": False}
    whole = json.loads(records.serialise_record(make_verdict_line(judged(), text=True)))
    ours = {
        key: each for key, each in whole.items() if key in Verdict.model_fields or key == "schema"
    }
    assert Verdict.model_validate(ours) == judged()


# Of these judgekit itself words the message, or nothing of the text and of the reply can be in it.
OWN_WORDS = {
    *(FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.RATE_LIMIT, FailureKind.OVERLOADED),
    *(
        FailureKind.AUTHENTICATION,
        FailureKind.PERMISSION,
        FailureKind.NOT_FOUND,
        FailureKind.NOT_RECORDED,
    ),
    FailureKind.NOT_LOADED,
    FailureKind.BUDGET,
}


def test_no_failure_brings_the_text_or_the_reply_into_a_ledger() -> None:
    for kind in FailureKind:
        line = make_verdict_line(judged(kind.value))
        assert (SECRET in records.serialise_record(line).decode()) == (kind in OWN_WORDS)
        if kind not in OWN_WORDS:
            assert line.degraded == f"deep: {kind.value}"


def override(**changes: object) -> OverrideLine:
    fields = {"task_id": verdict().task_id, "decision": "accept", "why": "known", "who": "ann"}
    return OverrideLine.model_validate({**fields, "terminal": True, "timestamp": NOW, **changes})


DECIDED = {"decision": "accept", "why": "fine", "who": "ann", "at": NOW}
DISMISSED = {"who": "ann", "at": NOW}
KINDS: dict[str, Record] = {  # how often "ann" stands in each line
    "label 1": label(verdict(), "go", "ann"),
    "override 1": override(),
    "dismissal 1": records.DismissalLine(of="1", rubric="kls", quote_hash="5f", who="ann"),
    "skip 1": Skip(variable="JUDGEKIT_SKIP", who="ann", terminal=False, refs=["refs/heads/main"]),
    "mode 1": ModeChange(mode="advisory", who="ann", why=["wrong NO-GO 20 %"]),
    "verdict 2": verdict(human_override=DECIDED, findings=[{"issue": "x", "dismissed": DISMISSED}]),
    "verdict 0": verdict(name="other"),
    "fault 0": Fault(problem="config.yaml:3: unknown key", paths=["a.md"]),
}


def test_every_kind_is_read_back_and_signed_by_who_brought_it() -> None:
    """Whatever a line claims: labels, overrides, bypasses, changes of mode, and quotes in a verdict."""
    schema, lines = build_json_schema("ledger"), list(KINDS.values())
    assert {line.schema_ for line in lines} == {*records.SCHEMAS.values()}
    assert len({line.id for line in lines}) == len(lines)
    for name, record in KINDS.items():
        raw, signed = records.serialise_record(record), labels.sign_record(record, "mal")
        assert store.parse(raw) == record
        line, kind, count = json.loads(raw), *name.split()
        jsonschema.validate(line, schema)
        assert line["timestamp"].endswith("Z")
        assert kind == "verdict" or list(line)[:4] == ["schema", "id", "timestamp", "project"]
        assert b"ann" not in records.serialise_record(signed)
        assert (records.serialise_record(signed).count(b'"mal"'), signed.id) == (
            int(count),
            record.id,
        )
    raw = records.serialise_record(
        Fault(problem="x", paths=["a\nb.md", "\u2028\x85.md", "caf\udce9.md"])
    )
    assert raw.count(b"\n") == 1
    assert b"\r" not in raw
    with pytest.raises(ValidationError):  # a time must say its zone
        Label.model_validate(
            {"of": "1", "label": "go", "who": "ann", "timestamp": "2026-01-01T00:00:00"}
        )


def test_a_remote_keeps_neither_password_nor_token_and_a_path_no_secret() -> None:
    remotes = {
        "https://u:p@ss/ghp_X@host/r?access_token=Q": "https://host/r",
        "ssh://git@host:22/a/b.git": "ssh://host:22/a/b.git",
        "https://ann:hunter2@host/x.git": "https://host/x.git",
        "git@host:x.git": "git@host:x.git",
    }
    assert {each: PushRecord(remote=each).remote for each in remotes} == remotes
    assert (
        Skip(variable="x", who="", terminal=True, remote="https://t0ken@host/x").remote
        == "https://host/x"
    )
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    subject = {"path": f"docs/{secret}.md", "sha256": "a" * 64}
    kept = records.serialise_record(
        verdict("accept", task_id=f"docs/{secret}.md@{'a' * 16}", subjects=[subject])
    )
    assert secret not in kept.decode()
    assert json.loads(kept)["subjects"][0]["path"] == "docs/[redacted: GitHub token].md"


def test_what_was_mended_or_overridden_is_settled_and_what_is_one_thing() -> None:
    mended = [verdict("reject", days=2), verdict("accept", days=1, task_id="a.md@" + "1" * 12)]
    again = [verdict("accept", path="b.md", days=2), verdict("reject", path="b.md", days=1)]
    decided: list[Record] = [
        verdict("escalate", path="c.md"),
        override(task_id=verdict(path="c.md").task_id),
    ]
    found = triage_records([*mended, *again, *decided])
    assert [verdict_line.subjects[0].path for verdict_line in found.nogo_verdicts] == ["b.md"]
    assert (found.unclear_verdicts, found.settled_count, len(found.overrides)) == ([], 2, 1)
    assert (
        len(
            triage_records(
                [verdict("reject", project="one"), verdict(name="x", project="two")]
            ).nogo_verdicts
        )
        == 1
    )
    assert len(triage_records([verdict("reject"), override(terminal=False)]).nogo_verdicts) == 1
    tasks = [verdict("reject", task_id=f"me@{place}") for place in ("home", "work")]
    assert (
        len(triage_records(tasks).nogo_verdicts) == 2
    )  # no hash stands behind the sign: these are two tasks
    lines = [verdict("undetermined", path=f"{number}.md") for number in range(5)]
    other = verdict("undetermined", path="x.md", rounds=[round_of(None, model="big")])
    assert [count for _, count in triage_records([*lines, other]).failures.most_common()] == [5, 1]


def queue(*records: Record) -> list[str]:
    return [line.id for line in labels.list_waiting(records, "ann")]


def test_the_queue_asks_this_person_about_each_content_once_by_the_verdict_that_is_measured() -> (
    None
):
    one, two, three = (verdict(name=name, **content(name)) for name in "abc")
    withdrawn = label(three, "withdrawn", after=2)
    said = [label(one, "go"), label(two, "go", "bob"), label(three, "go"), withdrawn]
    assert {*queue(one, two, three, *said)} == {"b", "c"}
    first, again = verdict(name="a", days=2), verdict(name="b", days=1)
    assert queue(first, again, verdict("undetermined"), verdict("escalate")) == ["b"]
    assert queue(first, again, label(first, "go")) == []
    cached = verdict("accept", name="c", gate=PushRecord(cached=True))
    assert queue(first, cached) == ["a"]
    assert queue(cached) == ["c"]
    assert queue(first, cached, label(cached, "go")) == []


def about(data: bytes, path: str = "docs/a.md", commit: str | None = None) -> dict[str, Any]:
    return {
        "subjects": [{"path": path, "sha256": hashlib.sha256(data).hexdigest()}],
        "commit": commit,
    }


def test_the_content_comes_from_the_commit_or_from_the_folder(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "repository")
    top, docs = repository.folder, repository.folder / "docs"
    repository.write("docs/a.md", b"pushed \x1b[31m\n")
    commit = repository.commit()
    repository.write("docs/a.md", b"changed\n")
    pushed = verdict(**about(b"pushed \x1b[31m\n", commit=commit))
    assert labels.read_judged_files(pushed, docs) == {"docs/a.md": "pushed [31m\n"}
    present = verdict(**about(b"changed\n"))
    assert labels.read_judged_files(present, top) == {"docs/a.md": "changed\n"}
    repository("config", "user.email", "ann@example.invalid")
    assert labels.identify_user(docs) == "ann@example.invalid"
    for commit_ in (None, "0" * 40, "--help"):
        gone = verdict(**about(b"gone\n", commit=commit_))
        assert labels.read_judged_files(gone, top) == {"docs/a.md": None}


def test_verdicts_as_a_table() -> None:
    told = 'a "quoted", text\nof two lines'
    line = verdict("reject", path="=cmd.md", author={"name": "+ann"}, degraded=told)
    given = override(task_id=line.task_id, subjects=[line.subjects[0].sha256])
    (row,) = csv.DictReader(
        io.StringIO(export.make_csv([line, label(line, "go"), given]), newline="")
    )
    names = ("verdict", "gate", "label", "override", "commit", "imported", "author", "degraded")
    assert [row[name] for name in names] == [
        "reject",
        "NO-GO",
        "go",
        "accept",
        "",
        "False",
        "'+ann",
        told,
    ]
    assert row["task_id"].startswith("'=cmd.md")


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
        {"model": "quick-model", "mode": "quick", "verdict": "accept", "scores": {}}
    ],
    "consensus": "majority",
    "human_override": {
        "decision": "accept",
        "why": "known",
        "who": "bob",
        "at": "2026-02-12T00:00:00Z",
    },
    "cost": 0.1,
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "own", "own-0123456789ab")


def write(path: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


def test_an_older_verdict_keeps_what_it_said() -> None:
    push, task = importing.convert_verdict(PUSH), importing.convert_verdict(TASK)
    words = ("reject", "NO-GO", "some-model", "abc1234", "docs/a.md@abc1234")
    assert (push.verdict, push.word, push.model, push.commit, push.task_id) == words
    assert push.timestamp == datetime(2026, 2, 10, 10, tzinfo=UTC)
    assert (push.scores, push.average) == ({"semantic": 2, "pragmatic": 3, "syntactic": 4}, 3)
    assert [subject.path for subject in push.subjects] == ["docs/a.md"]
    findings = [(finding.issue, finding.suggestion) for finding in push.findings]
    assert findings == [("the port is wrong", ""), ("old", ""), ("", "say 8080")]
    assert (push.imported, push.answered) == ({"branch": "main"}, True)
    words = ("reject", "T-7", "deep", "majority", "bob")
    assert task.human_override is not None
    said = (task.verdict, task.task_id, task.judge_tier, task.consensus, task.human_override.who)
    assert said == words
    rounds = [(each.tier, each.model) for each in task.rounds]
    assert rounds == [("quick", "quick-model"), ("deep", "deep-model")]
    assert task.timestamp == datetime(2026, 2, 11, 9, tzinfo=UTC)
    assert task.imported == {"cost": 0.1}
    assert b"at length" not in records.serialise_record(task)
    assert importing.convert_verdict(TASK, text=True).reasoning == "said at length"


LOOSE: list[dict[str, Any]] = [
    {"scores": None, "verdict": "UNDETERMINED", "findings": None, "revision_suggestions": None},
    {"scores": {}, "verdict": "go", "author": {"name": "Ann"}},
    {"files_evaluated": [], "commit": None, "author": None, "findings": "one text"},
    {"files_evaluated": ["\ud800.md"], "note": "\udfff"},
    {"files_evaluated": "a.md", "scores": {"semantic": float("inf"), "pragmatic": 10**400}},
]


def test_loose_lines_are_read_and_can_be_written() -> None:
    for changes in LOOSE:
        assert isinstance(
            store.parse(records.serialise_record(importing.convert_verdict(PUSH | changes))),
            VerdictLine,
        ), changes
    for given in ("reject", {"decision": "reject"}, None, "", {"x": 1}, 3):
        override = importing.convert_verdict(TASK | {"human_override": given}).human_override
        decided = given in ("reject", {"decision": "reject"})
        assert (override.decision if override else None) == ("reject" if decided else None), given


def test_importing_twice_adds_nothing(ledger: Ledger, tmp_path: Path) -> None:
    many = [PUSH | {"commit": f"{number:07x}"} for number in range(1201)]
    source = write(tmp_path / "2026-02-10.jsonl", PUSH, TASK, PUSH, *many)
    first = importing.import_lines(ledger, [source])
    assert (first.added_count, first.known_count, first.damaged) == (1203, 1, [])
    again = importing.import_lines(ledger, [source, tmp_path / "2026-02-10.jsonl"])
    assert (again.added_count, again.known_count) == (0, 1204)
    assert [path.name for path in store.list_files([ledger.folder])] == [
        "2026-02-10.jsonl",
        "2026-02-11.jsonl",
    ]
    # Labels of tasks don't measure the gate.
    assert {line.word for line in kpi.collect_evidence(ledger.read_records()).verdicts} == {"NO-GO"}
    assert len(list(ledger.read_records())) == 1203


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"deeper": found}
    return found


NO_PLACE = "expected times inside the years 1 to 9999"
NO_TIME = "timestamp: expected a time as 2026-02-01T08:00:00Z, got "
SKIP = {
    "schema": "judgekit/skip@1",
    "id": "s",
    "variable": "JUDGEKIT_SKIP",
    "who": "ann",
    "terminal": True,
}
DAMAGE: list[tuple[object, str]] = [
    ('{"commit": "x", ', "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[]", "not an object"),
    ({}, "not a verdict: neither files_evaluated nor task_id"),
    (PUSH | {"verdict": "MAYBE"}, "expected one of GO, NO-GO, UNDETERMINED, got 'MAYBE'"),
    (TASK | {"verdict": "GO"}, "expected one of accept"),
    (PUSH | {"timestamp": "nope"}, f"{NO_TIME}'nope'; correct the line"),
    (PUSH | {"timestamp": 3}, f"{NO_TIME}3"),
    (
        TASK | {"human_override": {"decision": "accept", "at": "x" * 99}},
        "human_override.at: expected a time",
    ),
    ({"schema": "judgekit/later@1"}, "of a kind unknown to this version"),
    # Lines that could be read, but not written, or not read again.
    (PUSH | {"timestamp": "0001-01-01T00:00:00+14:00"}, NO_PLACE),
    (
        TASK | {"human_override": {"decision": "accept", "at": "0001-01-01T00:00:00+14:00"}},
        NO_PLACE,
    ),
    (PUSH | {"more": nested(300)}, NO_PLACE),
    (SKIP | {"timestamp": "0001-01-01T00:00:00+14:00"}, NO_PLACE),
]


def test_damaged_lines_are_reported_and_the_rest_is_brought(ledger: Ledger, tmp_path: Path) -> None:
    good = [PUSH | {"commit": f"{number:07x}"} for number in range(600)]
    source = write(tmp_path / "x.jsonl", *good[:550], *(line for line, _ in DAMAGE), *good[550:])
    done = importing.import_lines(ledger, [source])
    assert done.added_count == 600
    assert [damage.line_number for damage in done.damaged] == list(range(551, 551 + len(DAMAGE)))
    for damage, (_, told) in zip(done.damaged, DAMAGE, strict=True):
        assert told in damage.why
        assert len(damage.why) < 200
    said: list[store.Damage] = []
    assert len(list(ledger.read_records(on_damage=said.append))) == 600
    assert said == []


def test_lines_of_another_ledger_are_brought_with_their_labels(
    ledger: Ledger, tmp_path: Path
) -> None:
    other = Ledger(tmp_path / "other", "other-0123456789ab")
    line = verdict(name="a")
    other.add(line, label(line, "go"))
    assert [importing.import_lines(ledger, [other.folder]).added_count for _ in range(2)] == [2, 0]
    assert {record.project for record in ledger.read_records()} == {"own-0123456789ab"}
    (other.folder / "a.jsonl").mkdir()
    assert [
        damage.path.name for damage in importing.import_lines(ledger, [other.folder]).damaged
    ] == ["a.jsonl"]
