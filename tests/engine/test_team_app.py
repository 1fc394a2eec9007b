"""The shared judge over HTTP: who is let in, what is judged, what the ledger takes, what is measured."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from sent import document

from judgekit import find_rubric
from judgekit.engine.judges import Service
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Label, LineFilter, Skip, store
from judgekit.ledger.records import line
from judgekit.providers import pace

if TYPE_CHECKING:
    from loopback import Loopback
    from starlette.testclient import TestClient

    from judgekit.engine.tokens import Tokens
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.subject import Document

CLOSED = [
    ("GET", "/v1/rubrics"),
    ("POST", "/v1/judge"),
    ("POST", "/v1/ledger"),
    ("GET", "/v1/ledger"),
    ("GET", "/metrics"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer jk_wrong", "Basic jk_wrong"])
def test_nobody_is_let_in_without_a_token(
    stranger: TestClient, token: str, method: str, path: str, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = stranger.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["kind"] == "token"
    assert token not in answer.text


def test_whether_it_lives_is_for_everybody(stranger: TestClient) -> None:
    assert stranger.get("/healthz").json()["status"] == "ok"
    assert stranger.get("/openapi.json").json()["info"]["title"] == "judgekit"


def test_a_revoked_token_is_refused(client: TestClient, tokens: Tokens) -> None:
    assert client.get("/v1/rubrics").status_code == 200
    tokens.revoke("ada")
    assert client.get("/v1/rubrics").status_code == 401


def test_a_document_is_judged_with_the_keys_of_the_server(client: TestClient, model: Loopback) -> None:
    answer = client.post("/v1/judge", json={"document": document(), "wish": {"mode": "lenient"}})
    assert answer.status_code == 200, answer.text
    verdict = Verdict.model_validate_json(answer.content)
    assert (verdict.verdict, verdict.mode, verdict.task_id) == ("accept", "lenient", document()["task_id"])
    assert model.requests[0].headers["authorization"] == "Bearer sk-of-this-test"
    assert "sk-of-this-test" not in answer.text


def test_without_a_model_it_says_so(client: TestClient) -> None:
    answer = client.post("/v1/judge", json={"document": document()})
    assert answer.status_code == 200
    assert answer.json()["verdict"] == "undetermined"
    assert "no model found" in answer.json()["degraded"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "document"),
    ({"document": document(), "environ": {"OPENAI_API_KEY": "x"}}, "environ"),
    ({"document": document() | {"files": []}}, "files"),
    ({"document": document(), "wish": {"rubric": "/etc/passwd.yaml"}}, "rubric"),
    ({"document": document(), "wish": {"rubric": "../kls"}}, "rubric"),
    ({"document": document(), "wish": {"rubric": "no-such-rubric"}}, "no-such-rubric"),
    ({"document": document(), "wish": {"deadline": -1}}, "deadline"),
    ({"document": document(), "wish": {"rubric": "memory-relevance"}}, "memory-relevance"),
]


@pytest.mark.parametrize(("body", "named"), WRONG)
def test_what_makes_no_sense_is_said(client: TestClient, body: dict[str, Any], named: str) -> None:
    answer = client.post("/v1/judge", json=body)
    assert answer.status_code == 422
    assert named in answer.json()["error"]["message"]


def test_another_rubric_of_that_name_is_not_used(client: TestClient, model: Loopback) -> None:
    judge_request = {"rubric": "kls@1.0.0", "rubric_sha256": "0" * 64}
    assert client.post("/v1/judge", json={"document": document(), "wish": judge_request}).status_code == 409
    judge_request["rubric_sha256"] = find_rubric("kls").sha256
    assert client.post("/v1/judge", json={"document": document(), "wish": judge_request}).status_code == 200
    assert model.requests


def test_a_client_may_lower_the_limits_and_not_raise_them(client: TestClient, model: Loopback) -> None:
    for cost, called in ((0, False), (None, True)):
        before = len(model.requests)
        judge_request = {"max_cost_usd": cost, "deadline": 3600}
        answer = client.post("/v1/judge", json={"document": document(), "wish": judge_request})
        assert (len(model.requests) > before) is called, answer.text


def lines(*ids: str, project: str = "docs-0123456789ab") -> list[dict[str, Any]]:
    made = [
        Skip(id=each, variable="JUDGEKIT_SKIP", who="ada", terminal=True, remote="", refs=[], project=project)
        for each in ids
    ]
    return [json.loads(line(skip)) for skip in made]


def test_the_ledger_takes_lines_and_gives_each_back_once(client: TestClient) -> None:
    for _ in range(2):
        answer = client.post("/v1/ledger", json={"lines": lines("a", "b")})
        assert answer.json() == {"taken": 2, "refused": {}}
    told = [json.loads(each) for each in client.get("/v1/ledger").text.splitlines()]
    assert sorted(each["id"] for each in told) == ["a", "b"]
    assert client.get("/v1/ledger", params={"project": "other"}).text == ""
    assert client.get("/v1/ledger", params={"project": "docs"}).text.count("\n") == 2
    kept = list(store.records([store.home()], LineFilter()))
    assert {each.project for each in kept} == {"docs-0123456789ab"}


def test_what_is_no_line_is_refused_and_the_others_are_taken(client: TestClient) -> None:
    names = ["../up", "", "..", ".", "...", "x.jsonl", "-x", "docs", "docs-0123456789AB", "é-0123456789ab"]
    bad = [{"schema": "judgekit/skip@1"}, {}, *(lines("c", project=name)[0] for name in names)]
    times = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
    bad += [lines("d")[0] | {"timestamp": time_} for time_ in times]
    answer = client.post("/v1/ledger", json={"lines": [*bad, *lines("a")]})
    assert answer.status_code == 200
    assert answer.json()["taken"] == 1
    assert len(answer.json()["refused"]) == len(bad)
    assert [path.name for path in store.home().iterdir()] == ["docs-0123456789ab"]


def test_damaged_tokens_let_nobody_in_and_are_said(client: TestClient, tokens: Tokens) -> None:
    tokens._path.write_text("{bad")
    answer = client.get("/v1/rubrics")
    assert answer.status_code == 503
    assert answer.json()["error"]["kind"] == "config"
    assert client.get("/healthz").status_code == 200
    assert client.head("/healthz").status_code == 200


def test_a_body_that_is_not_called_json_is_said(client: TestClient) -> None:
    answer = client.post("/v1/judge", content=b"{}", headers={"Content-Type": "text/plain"})
    message = answer.json()["error"]["message"]
    assert message == "body, with Content-Type: application/json: expected a mapping"


def test_a_time_that_is_none_is_said(client: TestClient) -> None:
    answer = client.get("/v1/ledger", params={"since": "yesteryear"})
    assert answer.status_code == 422
    assert "yesteryear" in answer.json()["error"]["message"]


def test_figures_for_monitoring(client: TestClient, model: Loopback) -> None:
    client.post("/v1/judge", json={"document": document(), "wish": {"mode": "lenient"}})
    client.get("/v1/nowhere")
    text = client.get("/metrics").text
    assert 'judgekit_verdicts_total{rubric="kls@1.0.0",verdict="accept"} 1.0' in text
    assert 'judgekit_requests_total{route="/v1/judge",status="200"} 1.0' in text
    assert 'judgekit_requests_total{route="other",status="404"} 1.0' in text
    assert 'judgekit_rounds_total{failure="",tier="quick"} 1.0' in text
    assert "judgekit_requests_inside 1.0" in text
    assert model.requests


def test_labels_of_people_are_kept_too(client: TestClient) -> None:
    label = Label(of="v1", label="go", who="ada", project="docs-0123456789ab", timestamp=datetime.now(UTC))
    assert client.post("/v1/ledger", json={"lines": [json.loads(line(label))]}).json()["taken"] == 1


def test_holders_of_tokens_get_turns_alike(
    client: TestClient, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Service.judged
    callers: list[str] = []

    async def noting(self: Service, judge: DocumentJudge, given: Document) -> Verdict:
        callers.append(pace.caller.get())
        return await judged(self, judge, given)

    monkeypatch.setattr(Service, "judged", noting)
    client.post("/v1/judge", json={"document": document(), "wish": {"mode": "lenient"}})
    assert callers == ["ada"]
    assert model.requests
