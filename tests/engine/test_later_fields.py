"""A team whose server is newer than a client, or older: fields that one of them doesn't know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import document
from loopback import Loopback, sends

from judgekit import api
from judgekit.cli.schema import build_json_schema
from judgekit.judging import shared, verdict
from judgekit.judging.verdict import READS_ON, READS_ON_HEADER, Verdict
from judgekit.ledger import store
from judgekit.ledger.records import make_verdict_line

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from judgekit.ledger.records import Record

# The fields of a verdict in 0.1.0, whose clients refuse others.
FIRST_FIELDS = {
    *("schema", "id", "task_id", "subjects", "rubric", "mode", "prompt_sha256", "calibration"),
    *("verdict", "scores", "average", "reasoning", "findings", "review", "depth", "consensus"),
    *("judge_tier", "model", "rounds", "degraded", "truncated", "redacted", "substitutes"),
    *("noise", "author", "independent", "human_override", "commit", "timestamp", "duration_ms"),
    *("cost_usd", "cost_source", "cost_complete"),
}


pytestmark = pytest.mark.usefixtures("model")


def judge_there(client: TestClient, **headers: str) -> dict[str, Any]:
    answer = client.post("/v1/judge", json={"document": document()}, headers=headers)
    assert answer.status_code == 200, answer.text
    record: dict[str, Any] = answer.json()
    return record


def add_unknown_fields(record: dict[str, Any]) -> dict[str, Any]:
    """Add a field of a later version to a verdict and to each kind of part that it has."""
    later = {"of_a_later_version": {"why": ["anything"]}}
    parts = [record, record["rubric"], record["author"]]
    parts += record["subjects"] + record["rounds"] + record["findings"]
    parts += [row["usage"] for row in record["rounds"]]
    for part in parts:
        part.update(later)
    return record


def test_a_client_reads_a_verdict_with_fields_of_a_newer_server(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = json.dumps(add_unknown_fields(judge_there(client))).encode()
    with Loopback(sends(newer)) as server:
        monkeypatch.setenv("JUDGEKIT_SERVER_URL", server.base.removesuffix("/v1"))
        monkeypatch.setenv(shared.TOKEN_VARIABLE, "jk_x")
        (judged,) = api.judge_texts({"a.md": "It works."})
    assert judged.verdict == "accept", judged.degraded


def test_the_ledger_reads_a_line_with_fields_of_a_newer_version(client: TestClient) -> None:
    record = add_unknown_fields(judge_there(client))
    read = parse_line(record | {"project": "p", "gate": {"mode": "blocking", "later": 1}})
    assert read.id == record["id"]


def parse_line(record: dict[str, Any]) -> Record:
    read = store.parse(json.dumps(record).encode())
    assert not isinstance(read, str), read
    return read


@pytest.mark.parametrize("name", ["verdict", "comparison", "ledger", "gate"])
def test_the_published_schema_of_what_is_read_allows_unknown_fields(name: str) -> None:
    assert '"additionalProperties": false' not in json.dumps(build_json_schema(name))


@pytest.mark.parametrize("name", ["rubric", "provider", "retrieval", "config", "calibration"])
def test_the_published_schema_of_what_people_write_refuses_unknown_keys(name: str) -> None:
    assert '"additionalProperties": false' in json.dumps(build_json_schema(name))


def test_a_request_with_an_unknown_field_is_refused(client: TestClient) -> None:
    body = {"document": document(), "wish": {"of_a_later_version": 1}}
    assert client.post("/v1/judge", json=body).status_code == 422


def test_an_unknown_field_is_not_written_back(client: TestClient) -> None:
    judged = Verdict.model_validate(add_unknown_fields(judge_there(client)))
    assert "of_a_later_version" not in make_verdict_line(judged, text=True).model_dump_json()


@pytest.mark.parametrize("field", ["independent", "rounds.latency_ms", "rubric.version"])
def test_a_client_that_does_not_say_that_it_reads_on_gets_no_later_field(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setattr(verdict, "LATER_FIELDS", {field})
    record = judge_there(client)
    assert field.rpartition(".")[2] not in json.dumps(record)


def test_a_client_that_reads_on_gets_every_field(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "LATER_FIELDS", {"independent"})
    assert "independent" in judge_there(client, **{READS_ON_HEADER: READS_ON})


def test_our_client_says_that_it_reads_on(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps(judge_there(client)).encode()
    with Loopback(sends(body)) as server:
        monkeypatch.setenv("JUDGEKIT_SERVER_URL", server.base.removesuffix("/v1"))
        monkeypatch.setenv(shared.TOKEN_VARIABLE, "jk_x")
        api.judge_texts({"a.md": "It works."})
    assert server.requests[0].headers[READS_ON_HEADER.lower()] == READS_ON


def test_every_field_that_came_after_the_first_version_is_named() -> None:
    sent = {name: field for name, field in Verdict.model_fields.items() if not field.exclude}
    names = {field.alias or name for name, field in sent.items()}
    later = names - FIRST_FIELDS
    assert later == {path for path in verdict.LATER_FIELDS if "." not in path}
