"""The shared judge over HTTP, and its clients, who keep their ledger first and send it there."""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import hooking
import pytest
from deciding import DecisionServer
from engine_processes import document
from hypothesis import HealthCheck, given, settings
from loopback import RESET, Loopback, fails, says, sends
from schemathesis import Case, GenerationMode, checks, openapi
from serving import Serving

from judgekit import api, find_rubric
from judgekit.cli.app import run
from judgekit.config.settings import get_user_config_path, load
from judgekit.engine.admission import Tokens
from judgekit.engine.judges import Service
from judgekit.engine.team import TeamRequest
from judgekit.errors import ConfigError, Exit, UsageError
from judgekit.judging import shared
from judgekit.judging.request import JudgeRequest
from judgekit.judging.verdict import Verdict
from judgekit.ledger import Label, Ledger, LineFilter, Skip, store
from judgekit.ledger.records import serialise_record
from judgekit.providers import pace
from judgekit.providers.litellm import LitellmGateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loopback import Answer
    from starlette.testclient import TestClient

    from judgekit.judging.documents import Document
    from judgekit.judging.score import DocumentJudge

OPERATIONS = [
    *(("GET", "/healthz"), ("GET", "/metrics"), ("GET", "/v1/rubrics")),
    *(("POST", "/v1/judge"), ("POST", "/v1/ledger"), ("GET", "/v1/ledger")),
]


def test_nobody_is_let_in_without_a_token_and_whether_it_lives_is_for_everybody(
    client: TestClient, tokens: Tokens, token: str
) -> None:
    assert client.get("/v1/rubrics").status_code == 200
    for operation in OPERATIONS[1:]:
        for header in ("", "Bearer", "Bearer jk_wrong", "Basic jk_wrong"):
            answer = client.request(*operation, headers={"Authorization": header})
            assert (answer.status_code, answer.json()["error"]["kind"]) == (401, "token"), operation
            assert token not in answer.text
    tokens.revoke("ada")
    assert client.get("/v1/rubrics").status_code == 401
    tokens.path.write_text("{bad")  # a damaged one lets nobody in, and says so
    answer = client.get("/v1/rubrics")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "config")
    del client.headers["Authorization"]
    assert client.get("/v1/rubrics").status_code == 503
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.head("/healthz").status_code == 200
    assert client.get("/openapi.json").json()["info"]["title"] == "judgekit"


def test_a_document_is_judged_with_the_keys_of_the_server_in_the_turns_of_its_holder(
    client: TestClient, model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_judge = Service.run_judge
    callers: list[str] = []

    async def noting(self: Service, judge: DocumentJudge, given: Document) -> Verdict:
        callers.append(pace.caller.get())
        return await run_judge(self, judge, given)

    monkeypatch.setattr(Service, "run_judge", noting)
    answer = client.post("/v1/judge", json={"document": document(), "wish": {"mode": "lenient"}})
    assert answer.status_code == 200, answer.text
    verdict = Verdict.model_validate_json(answer.content)
    assert (verdict.verdict, verdict.mode, verdict.task_id) == (
        "accept",
        "lenient",
        document()["task_id"],
    )
    assert model.requests[0].headers["authorization"] == "Bearer sk-of-this-test"
    assert "sk-of-this-test" not in answer.text
    assert callers == ["ada"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "document"),
    ({"document": document(), "environ": {"OPENAI_API_KEY": "x"}}, "environ"),
    ({"document": document(), "wish": {"rubric": "/etc/passwd.yaml"}}, "rubric"),
    ({"document": document(), "wish": {"rubric": "../kls"}}, "rubric"),
    ({"document": document(), "wish": {"model": "mine"}}, "model"),
    ({"document": document(), "wish": {"rubric": "memory-relevance"}}, "memory-relevance"),
    ({"document": document() | {"files": document()["files"] * 101}}, "files"),
]


def test_what_makes_no_sense_is_said(client: TestClient) -> None:
    for body, named in WRONG:
        answer = client.post("/v1/judge", json=body)
        assert (answer.status_code, named in answer.json()["error"]["message"]) == (422, True), (
            named
        )
    answer = client.post("/v1/judge", content=b"{}", headers={"Content-Type": "text/plain"})
    message = answer.json()["error"]["message"]
    assert message == "body, with Content-Type: application/json: expected a mapping"
    answer = client.get("/v1/ledger", params={"since": "yesteryear"})
    assert (answer.status_code, "yesteryear" in answer.json()["error"]["message"]) == (422, True)


def test_a_client_may_lower_the_limits_and_not_raise_them(
    client: TestClient, model: Loopback
) -> None:
    """Nor may it mean another rubric of the same name."""
    rows: list[tuple[dict[str, Any], int, bool]] = [
        ({"max_cost_usd": 0, "deadline": 3600}, 200, False),
        ({"max_cost_usd": None, "deadline": 3600}, 200, True),
        ({"rubric": "kls@1.0.0", "rubric_sha256": "0" * 64}, 409, False),
        (
            {"rubric": "kls@1.0.0", "rubric_sha256": find_rubric("kls").sha256, "cache": False},
            200,
            True,
        ),
    ]
    for wish, status, called in rows:
        before = len(model.requests)
        answer = client.post("/v1/judge", json={"document": document(), "wish": wish})
        assert (answer.status_code, len(model.requests) > before) == (status, called), answer.text


def lines(*ids: str, project: str = "docs-0123456789ab") -> list[dict[str, Any]]:
    made = [
        Skip(
            id=each,
            variable="JUDGEKIT_SKIP",
            who="ada",
            terminal=True,
            remote="",
            refs=[],
            project=project,
        )
        for each in ids
    ]
    return [json.loads(serialise_record(skip)) for skip in made]


def test_the_ledger_takes_lines_and_gives_each_back_once(client: TestClient) -> None:
    label = Label(
        of="v1", label="go", who="ada", project="team-0123456789ab", timestamp=datetime.now(UTC)
    )
    assert (
        client.post("/v1/ledger", json={"lines": [json.loads(serialise_record(label))]}).json()[
            "taken"
        ]
        == 1
    )
    for _ in range(2):
        answer = client.post("/v1/ledger", json={"lines": lines("a", "b")})
        assert answer.json() == {"taken": 2, "refused": {}}
    told = [
        json.loads(each)
        for each in client.get("/v1/ledger", params={"project": "docs"}).text.splitlines()
    ]
    assert sorted(each["id"] for each in told) == ["a", "b"]
    assert client.get("/v1/ledger", params={"project": "other"}).text == ""
    assert client.get("/v1/ledger").text.count("\n") == 3
    kept = [line.record for line in store.read_entries([store.get_ledgers_folder()], LineFilter())]
    assert {each.project for each in kept} == {"docs-0123456789ab", "team-0123456789ab"}


def test_what_is_no_line_is_refused_and_the_others_are_taken(client: TestClient) -> None:
    names = [
        "../up",
        "",
        "..",
        ".",
        "...",
        "x.jsonl",
        "-x",
        "docs",
        "docs-0123456789AB",
        "é-0123456789ab",
    ]
    bad = [{"schema": "judgekit/skip@1"}, {}, *(lines("c", project=name)[0] for name in names)]
    times = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
    bad += [lines("d")[0] | {"timestamp": time_} for time_ in times]
    answer = client.post("/v1/ledger", json={"lines": [*bad, *lines("a")]})
    assert answer.status_code == 200
    assert answer.json()["taken"] == 1
    assert len(answer.json()["refused"]) == len(bad)
    assert [path.name for path in store.get_ledgers_folder().iterdir()] == ["docs-0123456789ab"]


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
    assert (server.find_holder("jk_anything"), server.all()) == (None, [])
    ada, bob = admin.create("ada"), admin.create("bob@example.org")
    assert (server.find_holder(ada), server.find_holder(bob)) == ("ada", "bob@example.org")
    assert [server.find_holder(wrong) for wrong in (ada[:-1], "")] == [None, None]
    assert ada.removeprefix("jk_") not in path.read_text()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    with pytest.raises(UsageError, match="revoke it first"):
        admin.create("ada")
    admin.revoke("ada")
    assert server.find_holder(ada) is None
    with pytest.raises(UsageError, match="has no token"):
        admin.revoke("ada")
    for name in ("", "a b", "a" * 65, "../x", "-x"):
        with pytest.raises(UsageError, match="expected letters"):
            admin.create(name)
    path.write_text("[{]")
    with pytest.raises(ConfigError, match="remove the file"):
        server.find_holder(bob)


@pytest.mark.slow
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
QUIET = settings(derandomize=True, suppress_health_check=list(HealthCheck))


def test_every_operation_is_tried(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, found in paths.items() for method in found} == set(
        OPERATIONS
    )


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


BAD = '{"reasoning": "gaps", "scores": {"semantic": 1, "pragmatic": 1, "syntactic": 1}, "findings": []}'
TEXT = "# Rotating keys\n\nDo it every 90 days.\n"


@pytest.fixture(scope="module")
def team_model() -> Iterator[Loopback]:
    with Loopback(says(BAD)) as server:
        yield server


@pytest.fixture(scope="module")
def serving(team_model: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Return a server with a home, a model and a token of its own."""
    home = str(tmp_path_factory.mktemp("team"))
    serving = Serving(
        JUDGEKIT_HOME=home, JUDGEKIT_API_BASE=team_model.base, JUDGEKIT_MODEL="stand-in"
    )
    yield serving
    serving.end()


@pytest.fixture
def asks(serving: Serving, use: Callable[..., None]) -> None:
    use(serving.url, serving.token)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def server(url: str, token: str = "jk_x") -> None:
        monkeypatch.setenv("JUDGEKIT_SERVER_URL", url.removesuffix("/v1"))
        monkeypatch.setenv(shared.TOKEN_VARIABLE, token)

    return server


def configure(text: str) -> None:
    get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
    get_user_config_path().write_text(text)


SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


def judged() -> Verdict:
    return api.judge_texts({"a.md": TEXT}, mode="lenient", deadline=20)[0]


def test_a_document_is_judged_there_and_no_model_is_asked_from_here(
    asks: None, team_model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-client")
    monkeypatch.setattr(
        LitellmGateway, "complete", lambda *_: pytest.fail("a model was asked from here")
    )
    verdict = judged()
    assert (verdict.verdict, verdict.subjects[0].path) == ("reject", "a.md")
    assert all("sk-of-the-client" not in str(request) for request in team_model.requests)


def test_secrets_do_not_leave_this_machine(
    use: Callable[..., None], team_model: Loopback, asks: None
) -> None:
    before = len(team_model.requests)
    texts = {f"password=Kuerbis2031!/{SECRET}.md": f"# Setup\n\nThe token is {SECRET}\n"}
    (verdict,) = api.judge_texts(texts, mode="lenient")
    assert (bool(verdict.rounds), verdict.redacted) == (True, 2)
    assert all(SECRET not in request.text for request in team_model.requests[before:])
    for refuse in (False, True):
        configure("judge: {redact: refuse}\n" if refuse else "")
        with Loopback(sends({"schema": "judgekit/verdict@9"})) as server:
            use(server.base)
            (verdict,) = api.judge_texts(texts)
            sent = [str(request) for request in server.requests]
        assert bool(sent) is not refuse
        assert all(SECRET not in each and "Kuerbis" not in each for each in sent)
    assert verdict.verdict == "undetermined"
    assert verdict.degraded == "not judged: 2 secrets were found, and judge.redact is refuse"


def test_a_client_that_requires_independence_takes_no_servers_word_for_it(
    monkeypatch: pytest.MonkeyPatch, use: Callable[..., None]
) -> None:
    with Loopback(says(BAD)) as model, monkeypatch.context() as patch:
        patch.setenv("JUDGEKIT_API_BASE", model.base)
        patch.setenv("JUDGEKIT_MODEL", "stand-in")
        record = judged().record() | {"verdict": "accept"}
    monkeypatch.setenv("JUDGEKIT_JUDGE_INDEPENDENCE", "require")
    rows = [
        ("anthropic", False, "undetermined"),
        ("anthropic", True, "accept"),
        ("none", None, "accept"),
    ]
    for wrote, independent, word in rows:
        with Loopback(sends(record | {"independent": independent})) as server:
            use(server.base)
            (verdict,) = api.judge_texts({"a.md": TEXT}, author_family=wrote)
        assert verdict.verdict == word, (wrote, independent)


AWAY: dict[str, tuple[Answer, str]] = {
    "fails": (fails(500), "it went wrong"),
    "refuses": (
        sends({"error": {"message": "send a token of this server"}}, status=401),
        "does not know your token",
    ),
    "is another program": (sends(b"<html>", status=404), "status 404"),
    "is of another version": (sends({"schema": "judgekit/verdict@9"}), "another version"),
}


def test_a_server_that_does_not_judge_leaves_it_undetermined(use: Callable[..., None]) -> None:
    for case, (answer, why) in AWAY.items():
        with Loopback(answer) as server:
            use(server.base)
            verdict = judged()
        assert (verdict.verdict, why in str(verdict.degraded)) == ("undetermined", True), case
        assert "jk_x" not in verdict.model_dump_json()
    use(server.base)  # is gone
    told = str(judged().degraded)
    assert f"the shared judge at {server.base.removesuffix('/v1')}: it cannot be reached (" in told
    assert "Errno" not in told


@pytest.mark.slow
def test_a_request_whose_server_went_is_asked_again_under_the_same_key(
    use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that several servers with one store judge it once; lasting failures aren't asked again."""
    monkeypatch.setattr(shared, "_PAUSES", (0.0,) * 5)
    with Loopback(says(BAD)) as model, monkeypatch.context() as patch:
        patch.setenv("JUDGEKIT_API_BASE", model.base)
        patch.setenv("JUDGEKIT_MODEL", "stand-in")
        record = judged().record()
    busy = sends({"error": {"message": "being judged"}}, status=503, headers={"Retry-After": "1"})
    with Loopback(RESET, busy, fails(502), sends(record)) as server:
        use(server.base)
        assert judged().verdict == "reject"
        keys = [request.headers["idempotency-key"] for request in server.requests]
        assert (len(keys), len(set(keys))) == (4, 1)
        judged()
        assert server.requests[-1].headers["idempotency-key"] != keys[0]
    for script, count in ((busy, 6), (fails(429), 1), (fails(500), 1)):
        with Loopback(script) as server:
            use(server.base)
            assert judged().verdict == "undetermined"
            assert len(server.requests) == count


def test_a_server_that_asks_for_a_pause_is_asked_again_after_it(
    use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_PAUSES", (3600.0,) * 5)  # beyond every deadline
    refusal = {"error": {"message": "being judged"}}
    for headers, count in (({"Retry-After": "0"}, 6), ({}, 1), ({"Retry-After": "7200"}, 1)):
        with Loopback(sends(refusal, status=503, headers=headers)) as server:
            use(server.base)
            assert judged().verdict == "undetermined"
            assert len(server.requests) == count


def test_a_store_is_the_users_to_name_and_its_password_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    configure(
        "server: {store: 'postgresql://judgekit:geheim2031@db.example.org/team?sslmode=require'}\n"
    )
    for words in (["config", "show"], ["config", "show", "--json"]):
        assert run(words) == 0
        said = capfd.readouterr().out
        assert ("db.example.org/team" in said, "geheim2031" in said) == (True, False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert run(["kpi", "--team"]) == Exit.BAD_CONFIG
    assert "server.store: psycopg is not installed; run" in capfd.readouterr().err
    configure("server: {store: 'mysql://judgekit:geheim2031@db.example.org/team'}\n")
    assert run(["kpi", "--team"]) == Exit.BAD_CONFIG
    said = capfd.readouterr().err
    assert ("server.store" in said, "geheim2031" in said) == (True, False)
    (tmp_path / ".judgekit").mkdir()
    (tmp_path / ".judgekit" / "config.yaml").write_text("server: {store: 'postgresql://evil/x'}\n")
    configure("")
    with pytest.raises(
        ConfigError, match="only the user's configuration may choose a shared judge"
    ):
        load(tmp_path)


def test_a_token_goes_nowhere_in_the_clear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(shared.TOKEN_VARIABLE, "jk_x")
    for url in ("http://judge.example.org", "ftp://127.0.0.1", "judge.example.org"):
        monkeypatch.setenv("JUDGEKIT_SERVER_URL", url)
        with pytest.raises(ConfigError, match=r"JUDGEKIT_SERVER_URL.*expected https"):
            judged()
    (tmp_path / ".judgekit").mkdir()
    (tmp_path / ".judgekit" / "config.yaml").write_text("server: {url: 'https://evil.example'}\n")
    with pytest.raises(
        ConfigError, match="only the user's configuration may choose a shared judge"
    ):
        load(tmp_path)


def test_a_token_comes_from_a_file_too(serving: Serving, tmp_path: Path) -> None:
    file = tmp_path / "token"
    configure(f"server: {{url: '{serving.url}', token_file: '{file}'}}\n")
    with pytest.raises(ConfigError, match=r"server.token_file: .*: cannot be read .No such file"):
        judged()
    file.write_text(serving.token + "\n")
    assert judged().verdict == "reject"


def test_the_ledger_is_kept_here_first_and_read_there(
    asks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.of(tmp_path)
    ledger.add(Skip(variable="JUDGEKIT_SKIP", who="ada", terminal=True, remote="", refs=[]))
    assert run(["ledger", "forward"]) == 0
    assert run(["ledger", "forward"]) == 0
    assert capfd.readouterr().out.splitlines() == ["1 line sent", "0 lines sent"]
    assert run(["triage", "--team", "--json"]) == 0
    (skip,) = [
        each
        for each in json.loads(capfd.readouterr().out)["skips"]
        if each["project"] == ledger.name
    ]
    assert skip["who"] == "ada"
    assert run(["kpi", "--team", "--project", "all"]) == 0
    monkeypatch.delenv("JUDGEKIT_SERVER_URL")
    assert run(["kpi", "--team"]) == Exit.USAGE
    assert "server.url" in capfd.readouterr().err


def test_what_is_no_token_is_never_shown(use: Callable[..., None]) -> None:
    for token in ("two tokens", "abc\r\nX: y", "jk_é", "# a comment"):
        use("http://127.0.0.1:9", token)
        with pytest.raises(ConfigError, match="expected one token and nothing else") as caught:
            judged()
        assert token not in str(caught.value)


# What a ledger cannot hold, rows of tokens that are none, and errors of every kind


@pytest.mark.parametrize("odd", ["\\u0000", "\\ud800", "\\udc00x"])
def test_a_character_that_no_ledger_holds_is_refused_wherever_it_stands(
    client: TestClient, odd: str
) -> None:
    label = json.loads(
        serialise_record(Label(of="HERE", label="go", who="ada", project="team-0123456789ab"))
    )
    lines_ = json.dumps({"lines": [*lines("a"), label]})
    nested = json.dumps({"lines": [{**lines("a")[0], "HERE": 1}]})
    text = json.dumps({"document": document("# HERE\n")})
    for path, body in (("ledger", lines_), ("ledger", nested), ("judge", text)):
        sent = body.replace("HERE", f"a{odd}b")
        answer = client.post(
            f"/v1/{path}", content=sent, headers={"Content-Type": "application/json"}
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["kind"], "leave it out" in error["message"]) == (
            400,
            "input",
            True,
        )
        assert answer.headers["content-type"] == "application/json"
    assert client.get("/v1/ledger").text == ""  # nothing of them was kept
    answer = client.get("/v1/ledger?project=a%00b")
    assert (answer.status_code, "project" in answer.json()["error"]["message"]) == (400, True)


def test_a_row_that_is_no_token_shuts_nobody_out(
    client: TestClient, tokens: Tokens, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(tokens.path.read_text())
    tokens.path.write_text(json.dumps([{"name": "evil", "sha256": "junk"}, *rows, {"x": 1}]))
    assert client.get("/v1/rubrics").status_code == 200
    bob = tokens.create("bob")
    assert run(["serve", "token", "list"]) == 0
    done = capfd.readouterr()
    assert [each.split()[0] for each in done.out.splitlines()] == ["ada", "bob"]
    assert "evil: no token" in done.err
    assert run(["serve", "token", "revoke", "evil"]) == 0
    assert tokens.list_damaged_names() == ["a row without a name"]
    assert client.get("/v1/rubrics", headers={"Authorization": f"Bearer {bob}"}).status_code == 200


@pytest.mark.parametrize(
    "row",
    [
        "a text",
        None,
        5,
        [],
        {"name": None},
        {"name": "eve", "sha256": "0" * 64, "created": "infinity"},
    ],
)
def test_a_row_of_another_kind_shuts_nobody_out(
    client: TestClient, tokens: Tokens, row: object
) -> None:
    rows = json.loads(tokens.path.read_text())
    tokens.path.write_text(json.dumps([row, *rows]))
    assert client.get("/v1/rubrics").status_code == 200


@pytest.mark.parametrize("row", ["a text", {"name": 5}, {"name": "two\nlines"}, {}])
def test_a_damaged_row_is_revoked_by_the_name_that_the_list_gives_it(
    tokens: Tokens, token: str, row: object
) -> None:
    rows = json.loads(tokens.path.read_text())
    tokens.path.write_text(json.dumps([row, *rows]))
    (name,) = tokens.list_damaged_names()
    assert run(["serve", "token", "revoke", name]) == 0
    assert json.loads(tokens.path.read_text()) == rows


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/judge", 405),
        ("DELETE", "/v1/ledger", 405),
        ("OPTIONS", "/healthz", 405),
        ("POST", "/v1/judge", 422),
    ],
)
def test_every_error_is_json(client: TestClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert set(answer.json()["error"]) == {"kind", "message", "exit_code"}
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    "head", [b"GARBAGE\r\n\r\n", b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 200_000]
)
def test_what_is_no_request_is_answered_in_json(serving: Serving, head: bytes) -> None:
    with socket.create_connection(
        ("127.0.0.1", int(serving.url.rpartition(":")[2])), timeout=20
    ) as connection:
        connection.sendall(head)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(4096):
                answer += part
    first, _, body = answer.partition(b"\r\n\r\n")
    assert (first.split()[1], json.loads(body)["error"]["kind"]) == (b"400", "input")


def test_a_client_may_not_choose_the_depth_and_the_schema_says_so(client: TestClient) -> None:
    answer = client.post("/v1/judge", json={"document": document(), "wish": {"depth": "full"}})
    assert (answer.status_code, "depth" in answer.json()["error"]["message"]) == (422, True)
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert "depth" not in schemas["TeamRequest"]["properties"]


# What a client is told about its shared judge


def doctor(capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capfd.readouterr()
    code = run(["doctor"])
    said = capfd.readouterr().out.splitlines()
    return code, next(each for each in said if "shared judge" in each)


def test_doctor_asks_the_shared_judge_without_a_text(
    asks: None, team_model: Loopback, capfd: pytest.CaptureFixture[str]
) -> None:
    before = len(team_model.requests)
    code, said = doctor(capfd)
    assert (code, said.startswith("ok"), "takes the token" in said) == (0, True, True)
    assert run(["provider", "check"]) == 0
    assert "documents are judged there" in capfd.readouterr().out
    assert len(team_model.requests) == before


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        (
            "",
            "jk_wrong",
            ("does not know your token", "judgekit serve token create", "server.token_file"),
        ),
        ("http://127.0.0.1:9", "jk_x", ("cannot be reached", "is it running")),
        ("judge.example.org:8399", "jk_x", ("expected https://",)),
        ("https://", "jk_x", ("expected https://",)),
        ("https://judge:port", "jk_x", ("no address", "expected https://")),
        ("http://127.0.0.1:9", "", ("JUDGEKIT_SERVER_TOKEN", "expected one token")),
    ],
)
def test_what_is_wrong_with_the_shared_judge_is_said_by_every_command(
    serving: Serving,
    use: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    url: str,
    token: str,
    words: tuple[str, ...],
) -> None:
    use(url or serving.url, token)
    code, said = doctor(capfd)
    assert (code, said.startswith("wrong"), [each for each in words if each not in said]) == (
        78,
        True,
        [],
    )
    (tmp_path / "a.md").write_text(TEXT)
    for command in (["provider", "check"], ["judge", str(tmp_path / "a.md")]):
        capfd.readouterr()
        assert run(command) in (Exit.HUMAN_NEEDED, Exit.BAD_CONFIG)
        done = capfd.readouterr()
        assert [
            each for each in words if each not in f"{done.out}{done.err}".replace("\n    ", " ")
        ] == []


def test_compare_says_that_the_shared_judge_compares_nothing(
    asks: None, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(f"{TEXT}{name}\n")
    code = run(["compare", "--prompt", "How?", str(tmp_path / "a.md"), str(tmp_path / "b.md")])
    done = capfd.readouterr()
    assert (code, "judges documents alone" in done.out + done.err) == (2, True)


def test_every_option_of_judging_is_one_of_the_server_or_refused_before_it() -> None:
    refused = {"depth"}
    assert JudgeRequest.model_fields.keys() - TeamRequest.model_fields.keys() == refused


def test_a_decision_model_of_the_server_gives_probabilities_and_says_that_it_is_alone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DecisionServer() as server:
        monkeypatch.setenv("JUDGEKIT_DECISIONS_BASE", server.base)
        hooking.by_user("judge: {tiers: {quick: vllm-decisions/small}}\n")
        body = {"document": document(), "wish": {"mode": "strict"}}
        answer = client.post("/v1/judge", json=body)
        assert answer.status_code == 200, answer.text
        verdict = Verdict.model_validate_json(answer.content)
        assert verdict.verdict == "undetermined"
        assert "judgekit calibrate" in str(verdict.degraded)
        body["wish"] = {"mode": "lenient", "explain": True}
        answer = client.post("/v1/judge", json=body)
    verdict = Verdict.model_validate_json(answer.content)
    assert (verdict.verdict, verdict.judge_tier) == ("accept", "quick")
    opinion = verdict.rounds[0].opinion
    assert opinion is not None
    assert opinion.probabilities
