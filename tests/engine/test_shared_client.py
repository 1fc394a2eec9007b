"""Clients of a shared judge: documents go to it, the ledger is kept here first and sent there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, fails, says, sends
from serving import Serving

from judgekit import api
from judgekit.cli.app import run
from judgekit.config.settings import load, user_file
from judgekit.engine.admission import user_tokens
from judgekit.errors import ConfigError, Exit
from judgekit.judging import shared
from judgekit.ledger import Ledger, Skip, export
from judgekit.providers.litellm import LitellmGateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loopback import Answer, Asked

    from judgekit.judging.verdict import Verdict

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
    serving = Serving(JUDGEKIT_HOME=home, JUDGEKIT_API_BASE=team_model.base, JUDGEKIT_MODEL="stand-in")
    yield serving
    serving.end()


@pytest.fixture
def client(serving: Serving, use: Callable[..., None]) -> None:
    """Let this process ask the server."""
    use(serving.url, serving.token)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what makes an address the shared judge's."""

    def server(url: str, token: str = "jk_x") -> None:
        monkeypatch.setenv("JUDGEKIT_SERVER_URL", url.removesuffix("/v1"))
        monkeypatch.setenv(shared.TOKEN, token)

    return server


def configure(text: str) -> None:
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(text)


SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


def judged() -> Verdict:
    return api.judge_texts({"a.md": TEXT}, mode="lenient", deadline=20)[0]


def test_a_document_is_judged_there_and_no_model_is_asked_from_here(
    client: None, team_model: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-client")
    monkeypatch.setattr(LitellmGateway, "complete", lambda *_: pytest.fail("a model was asked from here"))
    verdict = judged()
    assert (verdict.verdict, verdict.subjects[0].path) == ("reject", "a.md")
    assert all("sk-of-the-client" not in str(request) for request in team_model.requests)


def test_secrets_do_not_leave_this_machine(client: None, team_model: Loopback) -> None:
    before = len(team_model.requests)
    texts = {"b.md": f"# Setup\n\nThe token is {SECRET}\n"}
    (verdict,) = api.judge_texts(texts, mode="lenient")
    assert (bool(verdict.rounds), verdict.redacted) == (True, 1)
    assert all(SECRET not in request.text for request in team_model.requests[before:])
    configure("judge: {redact: refuse}\n")
    before = len(team_model.requests)
    (verdict,) = api.judge_texts(texts)
    assert verdict.verdict == "undetermined"
    assert verdict.degraded == "not judged: 1 secret was found, and judge.redact is refuse"
    assert len(team_model.requests) == before


def test_the_body_names_a_file_without_its_secret(use: Callable[..., None]) -> None:
    for refuse in (False, True):
        configure("judge: {redact: refuse}\n" if refuse else "")
        with Loopback(sends({"schema": "judgekit/verdict@9"})) as server:
            use(server.base)
            api.judge_texts({f"password=Kuerbis2031!/{SECRET}.md": TEXT})
            sent = [str(request) for request in server.requests]
        assert bool(sent) is not refuse
        assert all(SECRET not in each and "Kuerbis" not in each for each in sent)


def test_a_client_that_requires_independence_takes_no_servers_word_for_it(
    monkeypatch: pytest.MonkeyPatch, use: Callable[..., None]
) -> None:
    with Loopback(says(BAD)) as model, monkeypatch.context() as patch:
        patch.setenv("JUDGEKIT_API_BASE", model.base)
        patch.setenv("JUDGEKIT_MODEL", "stand-in")
        record = judged().record() | {"verdict": "accept"}
    monkeypatch.setenv("JUDGEKIT_JUDGE_INDEPENDENCE", "require")
    rows = [("anthropic", False, "undetermined"), ("anthropic", True, "accept"), ("none", None, "accept")]
    for wrote, independent, word in rows:
        with Loopback(sends(record | {"independent": independent})) as server:
            use(server.base)
            (verdict,) = api.judge_texts({"a.md": TEXT}, author_family=wrote)
        assert verdict.verdict == word, (wrote, independent)


AWAY: dict[str, tuple[Answer, str]] = {
    "fails": (fails(500), "it went wrong"),
    "refuses": (sends({"error": {"message": "send a token of this server"}}, status=401), "send a token"),
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


def test_a_token_goes_nowhere_in_the_clear(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(shared.TOKEN, "jk_x")
    for url in ("http://judge.example.org", "ftp://127.0.0.1", "judge.example.org"):
        monkeypatch.setenv("JUDGEKIT_SERVER_URL", url)
        with pytest.raises(ConfigError, match=r"JUDGEKIT_SERVER_URL.*expected https"):
            judged()
    (tmp_path / ".judgekit").mkdir()
    (tmp_path / ".judgekit" / "config.yaml").write_text("server: {url: 'https://evil.example'}\n")
    with pytest.raises(ConfigError, match="only the user's configuration may choose a shared judge"):
        load(tmp_path)


def test_a_token_comes_from_a_file_too(serving: Serving, tmp_path: Path) -> None:
    file = tmp_path / "token"
    configure(f"server: {{url: '{serving.url}', token_file: '{file}'}}\n")
    with pytest.raises(ConfigError, match=r"server.token_file: .*: cannot be read .No such file"):
        judged()
    file.write_text(serving.token + "\n")
    assert judged().verdict == "reject"


def test_the_ledger_is_kept_here_first_and_read_there(
    client: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.of(tmp_path)
    ledger.add(Skip(variable="JUDGEKIT_SKIP", who="ada", terminal=True, remote="", refs=[]))
    assert run(["ledger", "forward"]) == 0
    assert run(["ledger", "forward"]) == 0
    assert capfd.readouterr().out.splitlines() == ["1 lines sent", "0 lines sent"]
    assert run(["triage", "--team", "--json"]) == 0
    (skip,) = [each for each in json.loads(capfd.readouterr().out)["skips"] if each["project"] == ledger.name]
    assert skip["who"] == "ada"
    assert run(["kpi", "--team", "--project", "all"]) == 0
    monkeypatch.delenv("JUDGEKIT_SERVER_URL")
    assert run(["kpi", "--team"]) == Exit.USAGE
    assert "server.url" in capfd.readouterr().err


def test_lines_wait_while_the_server_is_away_and_are_said_when_they_are_refused(
    tmp_path: Path, use: Callable[..., None]
) -> None:
    ledger = Ledger(tmp_path / "docs-0123456789ab", "docs-0123456789ab")
    ledger.add(Skip(variable="JUDGEKIT_SKIP", who="ada", terminal=True, remote="", refs=[]))
    taken: list[str] = []

    def answer(asked: Asked) -> Answer:
        taken.extend(each["id"] for each in asked.body["lines"])
        return sends({"taken": 1} if len(taken) == 1 else {"refused": {"0": "of a kind it does not know"}})

    with Loopback(fails(503), answer) as server:
        use(server.base)
        settings = load(None)
        (told,) = export.hand_on(settings, ledger)
        assert "next time" in told
        assert export.hand_on(settings, ledger) == []
        assert len(taken) == 1
        ledger.add(Skip(variable="JUDGEKIT_SKIP", who="ada", terminal=True, remote="", refs=[]))
        (told,) = export.hand_on(settings, ledger)
        assert "rejected 1 lines (of a kind it does not know)" in told
    assert user_tokens().all() == []


def test_what_is_no_token_is_never_shown(use: Callable[..., None]) -> None:
    for token in ("two tokens", "abc\r\nX: y", "jk_é", "# a comment"):
        use("http://127.0.0.1:9", token)
        with pytest.raises(ConfigError, match="expected one token and nothing else") as caught:
            judged()
        assert token not in str(caught.value)
