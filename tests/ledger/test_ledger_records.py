from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from ledger_lines import round_of, verdict
from pydantic import ValidationError

from judgekit.cli.schema import json_schema
from judgekit.errors import FailureKind
from judgekit.judging.verdict import Verdict
from judgekit.ledger import records, store
from judgekit.ledger.records import (
    Fault,
    Label,
    ModeChange,
    OverrideLine,
    PushRecord,
    Skip,
    verdict_line,
)

SECRET = "the text of the document"
FINDING = {"dimension": "semantic", "issue": "wrong port", "suggestion": "say 8080", "quote": SECRET}


def judged(kind: str = "invalid_reply") -> Verdict:
    opinion: dict[str, Any] = {
        "outcome": "reject",
        "scores": {},
        "reasoning": SECRET,
        "findings": [dict(FINDING)],
        "said": None,
    }
    failed: dict[str, Any] = {"opinion": None, "failure": {"kind": kind, "message": f"no object in {SECRET}"}}
    line = verdict(
        "reject",
        reasoning=SECRET,
        findings=[FINDING],
        rounds=[round_of("reject", opinion=opinion), round_of(None, "deep", **failed)],
        degraded=f"deep: {kind} (no object in {SECRET})",
    )
    ours = line.model_dump(by_alias=True, exclude={"project", "gate", "imported", "of_task"})
    return Verdict.model_validate(ours)


def test_a_verdict_is_kept_without_what_the_document_says_unless_the_user_wants_it() -> None:
    line = verdict_line(judged(), gate=PushRecord(mode="blocking", remote="origin"))
    raw = records.line(line)
    assert raw.startswith(b'{"schema":"judgekit/verdict@1","id":')
    assert raw.count(b"\n") == 1
    assert SECRET not in raw.decode()
    (finding,) = line.findings
    assert (finding.issue, finding.suggestion, line.degraded) == (
        "wrong port",
        "say 8080",
        "deep: invalid_reply",
    )
    kept = json.loads(raw)
    assert "reasoning" not in kept
    assert kept["verdict"] == "reject"
    assert kept["gate"] == {"mode": "blocking", "remote": "origin", "ref": "", "cached": False}
    whole = json.loads(records.line(verdict_line(judged(), text=True)))
    ours = {key: each for key, each in whole.items() if key in Verdict.model_fields or key == "schema"}
    assert Verdict.model_validate(ours) == judged()


# Of these judgekit itself words the message, or nothing of the text and of the reply can be in it.
OWN_WORDS = {
    *(FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.RATE_LIMIT, FailureKind.OVERLOADED),
    *(FailureKind.AUTHENTICATION, FailureKind.PERMISSION, FailureKind.NOT_FOUND, FailureKind.NOT_RECORDED),
    FailureKind.BUDGET,
}


def test_no_failure_brings_the_text_or_the_reply_into_a_ledger() -> None:
    for kind in FailureKind:
        line = verdict_line(judged(kind.value))
        assert (SECRET in records.line(line).decode()) == (kind in OWN_WORDS)
        if kind not in OWN_WORDS:
            assert line.degraded == f"deep: {kind.value}"


OTHERS: list[records.Record] = [
    Label(of="1", label="no-go", who="ann"),
    OverrideLine(task_id="a.md@3f2c3f2c", decision="accept", why="known", who="ann", terminal=True),
    Skip(variable="JUDGEKIT_SKIP", who="ann", terminal=False, refs=["refs/heads/main"]),
    ModeChange(mode="advisory", why=["wrong NO-GO 20 %"]),
    Fault(problem="config.yaml:3: unknown key", paths=["a.md"]),
]


def test_every_kind_is_read_back() -> None:
    schema, ids = json_schema("ledger"), set()
    for record in (verdict_line(judged()), *OTHERS):
        raw = records.line(record)
        assert store.parse(raw) == record
        line = json.loads(raw)
        jsonschema.validate(line, schema)
        if record in OTHERS:
            assert list(line)[:4] == ["schema", "id", "timestamp", "project"]
            assert line["timestamp"].endswith("Z")
        ids.add(line["id"])
    assert len(ids) == len(OTHERS) + 1
    raw = records.line(Fault(problem="x", paths=["a\nb.md", "\u2028\x85.md", "caf\udce9.md"]))
    assert raw.count(b"\n") == 1
    assert b"\r" not in raw
    with pytest.raises(ValidationError):  # a time must say its zone
        Label.model_validate({"of": "1", "label": "go", "who": "ann", "timestamp": "2026-01-01T00:00:00"})


def test_the_word_of_a_verdict_and_whether_a_model_gave_it() -> None:
    words = {"accept": "GO", "improve": "NO-GO", "reject": "NO-GO"}
    words |= dict.fromkeys(("escalate", "undetermined"), "UNDETERMINED")
    assert {word: records.word_of(word) for word in words} == words  # type: ignore[arg-type]  # of the table
    assert verdict("accept").answered
    assert not verdict("undetermined").answered
    assert verdict("escalate", rounds=[round_of("accept"), round_of("reject", "deep")]).answered
    assert verdict("accept", rounds=[], imported={}).answered
    assert not verdict("undetermined", rounds=[], imported={}).answered


def test_a_remote_keeps_neither_password_nor_token_and_a_path_no_secret() -> None:
    remotes = {
        "https://u:p@ss/ghp_X@host/r?access_token=Q": "https://host/r",
        "ssh://git@host:22/a/b.git": "ssh://host:22/a/b.git",
        "https://ann:hunter2@host/x.git": "https://host/x.git",
        "git@host:x.git": "git@host:x.git",
    }
    assert {each: PushRecord(remote=each).remote for each in remotes} == remotes
    assert Skip(variable="x", who="", terminal=True, remote="https://t0ken@host/x").remote == "https://host/x"
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    subject = {"path": f"docs/{secret}.md", "sha256": "a" * 64}
    kept = records.line(verdict("accept", task_id=f"docs/{secret}.md@{'a' * 16}", subjects=[subject]))
    assert secret not in kept.decode()
    assert json.loads(kept)["subjects"][0]["path"] == "docs/[redacted: GitHub token].md"
