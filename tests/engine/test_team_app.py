"""The shared judge over HTTP: who is let in, what is judged, what the ledger takes, what is measured."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode, checks, openapi
from sent import document

from judgekit import find_rubric
from judgekit.engine.admission import Tokens
from judgekit.engine.judges import Service
from judgekit.errors import ConfigError, UsageError
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Label, LineFilter, Skip, store
from judgekit.ledger.records import line
from judgekit.providers import pace

if TYPE_CHECKING:
    from pathlib import Path

    from loopback import Loopback
    from starlette.testclient import TestClient

    from judgekit.judging.documents import Document
    from judgekit.judging.score import DocumentJudge

OPERATIONS = [
    *(("GET", "/healthz"), ("GET", "/metrics"), ("GET", "/v1/rubrics")),
    *(("POST", "/v1/judge"), ("POST", "/v1/ledger"), ("GET", "/v1/ledger")),
]


def test_nobody_is_let_in_without_a_token(stranger: TestClient, token: str) -> None:
    for operation in OPERATIONS[1:]:
        for header in (None, "", "Bearer", "Bearer jk_wrong", "Basic jk_wrong"):
            headers = {} if header is None else {"Authorization": header}
            answer = stranger.request(*operation, headers=headers)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (401, "token"), operation
            assert token not in answer.text


def test_whether_it_lives_is_for_everybody_and_a_revoked_token_is_refused(
    client: TestClient, tokens: Tokens
) -> None:
    assert client.get("/v1/rubrics").status_code == 200
    tokens.revoke("ada")
    assert client.get("/v1/rubrics").status_code == 401
    tokens.path.write_text("{bad")  # damaged, it lets nobody in, and that is said
    answer = client.get("/v1/rubrics")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "config")
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.head("/healthz").status_code == 200
    assert client.get("/openapi.json").json()["info"]["title"] == "judgekit"


def test_a_document_is_judged_with_the_keys_of_the_server_in_the_turns_of_its_holder(
    client: TestClient, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Service.judged
    callers: list[str] = []

    async def noting(self: Service, judge: DocumentJudge, given: Document) -> Verdict:
        callers.append(pace.caller.get())
        return await judged(self, judge, given)

    monkeypatch.setattr(Service, "judged", noting)
    answer = client.post("/v1/judge", json={"document": document(), "wish": {"mode": "lenient"}})
    assert answer.status_code == 200, answer.text
    verdict = Verdict.model_validate_json(answer.content)
    assert (verdict.verdict, verdict.mode, verdict.task_id) == ("accept", "lenient", document()["task_id"])
    assert model.requests[0].headers["authorization"] == "Bearer sk-of-this-test"
    assert "sk-of-this-test" not in answer.text
    assert callers == ["ada"]
    monkeypatch.delenv("JUDGEKIT_MODEL")
    monkeypatch.delenv("JUDGEKIT_API_BASE")
    answer = client.post("/v1/judge", json={"document": document()})
    assert (answer.status_code, answer.json()["verdict"]) == (200, "undetermined")
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
    ({"document": document() | {"files": document()["files"] * 101}}, "files"),
]


def test_what_makes_no_sense_is_said(client: TestClient) -> None:
    for body, named in WRONG:
        answer = client.post("/v1/judge", json=body)
        assert (answer.status_code, named in answer.json()["error"]["message"]) == (422, True), named
    answer = client.post("/v1/judge", content=b"{}", headers={"Content-Type": "text/plain"})
    message = answer.json()["error"]["message"]
    assert message == "body, with Content-Type: application/json: expected a mapping"
    answer = client.get("/v1/ledger", params={"since": "yesteryear"})
    assert (answer.status_code, "yesteryear" in answer.json()["error"]["message"]) == (422, True)


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
    label = Label(of="v1", label="go", who="ada", project="team-0123456789ab", timestamp=datetime.now(UTC))
    assert client.post("/v1/ledger", json={"lines": [json.loads(line(label))]}).json()["taken"] == 1
    for _ in range(2):
        answer = client.post("/v1/ledger", json={"lines": lines("a", "b")})
        assert answer.json() == {"taken": 2, "refused": {}}
    told = [
        json.loads(each) for each in client.get("/v1/ledger", params={"project": "docs"}).text.splitlines()
    ]
    assert sorted(each["id"] for each in told) == ["a", "b"]
    assert client.get("/v1/ledger", params={"project": "other"}).text == ""
    assert client.get("/v1/ledger").text.count("\n") == 3
    kept = list(store.records([store.home()], LineFilter()))
    assert {each.project for each in kept} == {"docs-0123456789ab", "team-0123456789ab"}


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


def test_a_token_is_known_by_its_holder_until_it_is_revoked(tmp_path: Path) -> None:
    path = tmp_path / "serve" / "tokens.json"
    server, admin = Tokens(path), Tokens(path)
    assert (server.holder("jk_anything"), server.all()) == (None, [])
    ada, bob = admin.create("ada"), admin.create("bob@example.org")
    assert (server.holder(ada), server.holder(bob)) == ("ada", "bob@example.org")
    assert [server.holder(wrong) for wrong in (ada[:-1], "")] == [None, None]
    assert [token.name for token in server.all()] == ["ada", "bob@example.org"]
    assert ada.removeprefix("jk_") not in path.read_text()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    with pytest.raises(UsageError, match="revoke it first"):
        admin.create("ada")
    admin.revoke("ada")
    assert server.holder(ada) is None
    with pytest.raises(UsageError, match="has no token"):
        admin.revoke("ada")
    for name in ("", "a b", "a" * 65, "../x", "-x"):
        with pytest.raises(UsageError, match="expected letters"):
            admin.create(name)
    path.write_text("[{]")
    with pytest.raises(ConfigError, match="remove the file"):
        server.holder(bob)


def test_of_many_changes_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "serve" / "tokens.json"
    code = "import sys; from pathlib import Path; from judgekit.engine.admission import Tokens; "
    code += "Tokens(Path(sys.argv[1])).create(sys.argv[2])"
    makers = [subprocess.Popen([sys.executable, "-c", code, str(path), f"n{n}"]) for n in range(6)]
    assert [maker.wait(60) for maker in makers] == [0] * 6
    assert sorted(token.name for token in Tokens(path).all()) == [f"n{n}" for n in range(6)]


TAKES_SOMETHING = ("/v1/judge", "/v1/ledger")
# Not among them: that a request which does not fit is refused. A parameter too many is no fault.
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
QUIET = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def test_every_operation_is_tried(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, found in paths.items() for method in found} == set(OPERATIONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [(*each, GenerationMode.POSITIVE) for each in OPERATIONS]
    + [(*each, GenerationMode.NEGATIVE) for each in OPERATIONS if each[1] in TAKES_SOMETHING],
)
def test_no_server_error_and_no_answer_but_those_described(
    client: TestClient, token: str, method: str, path: str, mode: GenerationMode
) -> None:
    schema = openapi.from_asgi("/openapi.json", client.app)
    operation = schema[path][method]

    @QUIET
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Case[Any]) -> None:
        answer = case.call(headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code < 500, (case.body, answer.text)
        case.validate_response(answer, checks=CHECKS)

    run()
