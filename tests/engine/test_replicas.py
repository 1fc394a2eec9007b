"""Several servers with one store: each request is judged once and told once, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import postgres
import pytest
from engine_processes import GOOD, document, until, use
from ledger_lines import content, verdict
from loopback import Loopback, says
from postgres import OWNER, RUNTIME, Postgres
from serving import Serving
from starlette.testclient import TestClient

from judgekit.cli.app import run
from judgekit.config.settings import get_user_config_path, load
from judgekit.engine import replicas
from judgekit.engine.judges import Service
from judgekit.engine.process import Log
from judgekit.engine.replicas import StoreTokens, join_store
from judgekit.engine.team import create_team_app
from judgekit.engine.team_server import serve
from judgekit.errors import ConfigError, UsageError
from judgekit.ledger import Label, Ledger, Skip, database
from judgekit.ledger.database import Database
from judgekit.ledger.records import serialise_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopback import Answer, Asked

pytestmark = pytest.mark.slow
PROJECT = "docs-0123456789ab"
CALL_USD = 0.018  # of the 11 and 7 tokens that each reply says it took
PROFILE = (Path(__file__).parents[2] / "providers" / "openai-compatible.yaml").read_text()
PRICE = "price:\n  stand-in: {input: 1000, output: 1000}\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres.running() as found:
        yield found


class Team:
    """A store with a token for ada and one for bob, as its owner and as the servers know it."""

    def __init__(self, server: Postgres) -> None:
        self.server, self.name = server, server.create()
        self.url = server.url(self.name)
        self.owner = Database(server.url(self.name, OWNER))
        self.owner.migrate(RUNTIME)
        self.tokens = {who: StoreTokens(self.owner).create(who) for who in ("ada", "bob")}

    def rows(self, statement: str, *values: object) -> list[Any]:
        return self.server.rows(self.name, statement, *values)

    def spent(self) -> float:
        return float(self.rows("SELECT coalesce(sum(usd), 0) FROM judgekit.spend")[0][0])


@pytest.fixture
def team(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Team:
    monkeypatch.setenv("PGPASSFILE", str(server.passwords))
    found = Team(server)
    configure(found.url)
    return found


def configure(url: str, more: str = "", judge: str = "mode: lenient") -> None:
    folder = get_user_config_path().parent
    (folder / "providers").mkdir(parents=True, exist_ok=True)
    (folder / "providers" / "openai-compatible.yaml").write_text(PROFILE + PRICE)
    get_user_config_path().write_text(f"judge: {{{judge}}}\nserver:\n  store: {url}\n{more}")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with Loopback(says(GOOD)) as found:
        use(monkeypatch, found)
        yield found


@contextlib.contextmanager
def app(team: Team, tmp_path: Path, who: str = "ada") -> Iterator[TestClient]:
    """Give one replica in this process, asked by the holder of a token."""
    service, log = Service(), Log(str(tmp_path / "log"))
    service.ready.set()
    replica = join_store(load(None), log)
    assert replica is not None
    with TestClient(
        create_team_app(service, log, replica), raise_server_exceptions=False
    ) as client:
        client.headers["Authorization"] = f"Bearer {team.tokens[who]}"
        assert client.portal is not None
        with client.portal.wrap_async_context_manager(replica.stay_registered()):
            yield client
        client.portal.call(service.gateway.aclose)


def ask(
    client: TestClient, text: str = "# A\n", key: str | None = None, **wish: object
) -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(
        "/v1/judge", json={"document": document(text), "wish": wish}, headers=headers
    )


def test_one_key_is_one_request_on_every_replica(
    team: Team, model: Loopback, tmp_path: Path
) -> None:
    with app(team, tmp_path) as one, app(team, tmp_path) as two, app(team, tmp_path, "bob") as bob:
        first = ask(one, key="k")
        assert first.status_code == 200, first.text
        assert ask(two, key="k").content == first.content
        assert (ask(two, "# B\n", key="k").status_code, len(model.requests)) == (422, 1)
        ids = {
            ask(client, key=key).json()["id"]
            for client, key in ((one, "l"), (two, None), (bob, "k"))
        }
        assert len(ids | {first.json()["id"]}) == 4
        assert len(model.requests) == 1  # kept replies are shared
        for key in ("", "x" * 201):
            assert ask(one, key=key).status_code == 422
    lines = team.rows("SELECT id, holder, project, provisional FROM judgekit.line")
    assert {each[0] for each in lines} == ids | {first.json()["id"]}
    assert {each[1:] for each in lines} == {
        ("ada", replicas.SERVED_PROJECT, True),
        ("bob", replicas.SERVED_PROJECT, True),
    }
    assert team.spent() == pytest.approx(CALL_USD)
    assert team.rows("SELECT * FROM judgekit.replica") == []


def test_a_client_that_goes_gives_its_request_back_and_what_it_cost_is_known(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call of two has been paid for when the client goes."""
    held = threading.Event()

    def answer(asked: Asked) -> Answer:
        if len(slow.requests) > 1 and not held.is_set():
            held.wait(30)
        return says(GOOD)

    with Loopback(answer) as slow, ThreadPoolExecutor(1) as pool:
        use(monkeypatch, slow)
        configure(team.url, judge="mode: strict")
        environ = {
            "PGPASSFILE": os.environ["PGPASSFILE"],
            "JUDGEKIT_HOME": os.environ["JUDGEKIT_HOME"],
        }
        serving = Serving(token=team.tokens["ada"], **environ)
        try:
            headers = {"Authorization": f"Bearer {serving.token}", "Idempotency-Key": "k"}
            body = {"document": document(), "wish": {}}

            def asks(seconds: float) -> int:
                with contextlib.suppress(httpx2.TimeoutException):
                    return httpx2.post(
                        f"{serving.url}/v1/judge", json=body, headers=headers, timeout=seconds
                    ).status_code
                return 0

            gone = pool.submit(asks, 4)
            until(lambda: len(slow.requests) > 1)
            assert asks(30) == 503  # while the first one waits
            assert gone.result(30) == 0
            until(
                lambda: (
                    team.rows("SELECT * FROM judgekit.judging WHERE key NOT LIKE 'spent:%%'") == []
                )
            )
            assert team.spent() == pytest.approx(CALL_USD)
            held.set()
            assert asks(30) == 200
        finally:
            held.set()
            serving.end()


def test_a_revoked_token_is_refused_everywhere_within_a_second(team: Team, tmp_path: Path) -> None:
    with app(team, tmp_path) as one, app(team, tmp_path) as two:
        assert [each.get("/v1/rubrics").status_code for each in (one, two)] == [200, 200]
        StoreTokens(team.owner).revoke("ada")
        time.sleep(replicas.TOKEN_SECONDS)
        assert [each.get("/v1/rubrics").status_code for each in (one, two)] == [401, 401]


def test_strangers_read_the_store_once_a_second_however_many_ask(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    tokens = Database.tokens

    def reads(self: Database) -> list[dict[str, Any]]:
        read.append(1)
        return tokens(self)

    monkeypatch.setattr(Database, "tokens", reads)
    monkeypatch.setattr(replicas, "TOKEN_SECONDS", 600.0)
    with app(team, tmp_path) as client:
        for _ in range(50):
            assert client.get("/healthz").status_code == 200
            answer = client.get("/v1/rubrics", headers={"Authorization": "Bearer jk_wrong"})
            assert answer.status_code == 401
    assert len(read) == 1


def test_without_its_store_a_server_tells_nothing_and_recovers_by_itself(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "TOKEN_SECONDS", 0.0)
    monkeypatch.setattr(replicas, "_STORE_SECONDS", 0.5)
    stops = threading.Event()

    def answer(_: Asked) -> Answer:
        if not stops.is_set():  # between the question and the verdict
            stops.set()
            team.server.stop()
        return says(GOOD)

    with Loopback(answer) as model, app(team, tmp_path) as client:
        use(monkeypatch, model)
        # A verdict that can't be stored isn't sent, though it was paid for.
        told = ask(client, key="k")
        assert (told.status_code, told.json()["error"]["kind"], len(model.requests)) == (
            503,
            "store",
            1,
        )
        for refused in (client.get("/healthz"), client.get("/v1/rubrics"), ask(client)):
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
            assert refused.json()["error"]["message"] == "the store does not answer; try again"
        assert len(model.requests) == 1
        team.server.start()
        assert client.get("/healthz").json()["status"] == "ok"
        until(lambda: ask(client, key="k").status_code == 200)  # and what was paid for is told
        assert len(model.requests) == 1
    assert len(team.rows("SELECT * FROM judgekit.line")) == 1


def test_the_team_s_budget_ends_judging_with_a_time_to_come_back(
    team: Team, model: Loopback, tmp_path: Path
) -> None:
    configure(team.url, "  budget_usd: 0.05\n", "mode: lenient, max_cost_usd: 0.02")
    with app(team, tmp_path) as one, app(team, tmp_path) as two:
        statuses = [
            ask(each, f"# {n}\n").status_code for n, each in enumerate((one, two, one, two))
        ]
        assert (statuses, len(model.requests)) == ([200, 200, 429, 429], 2)
        answer = ask(one, "# more\n")
        assert answer.json()["error"]["kind"] == "budget"
        assert "the team's budget of 0.05 USD a day does not allow 0.02 more" in answer.text
        assert 0 < int(answer.headers["retry-after"]) <= 86_401
        assert (
            ask(two, "# 0\n", max_cost_usd=0).json()["verdict"] == "accept"
        )  # a kept reply costs nothing
    assert team.spent() == pytest.approx(2 * CALL_USD)


def test_lines_of_clients_are_taken_once_in_the_name_of_their_token(
    team: Team, tmp_path: Path
) -> None:
    label = Label(of="v1", label="go", who="eve", project=PROJECT)
    given = [
        json.loads(serialise_record(each)) for each in (label, verdict(name="v1", project=PROJECT))
    ]
    odd = [verdict(name=name, project=PROJECT) for name in ("é", "x" * 300)]
    bad = [json.loads(serialise_record(each)) for each in odd] + [
        {},
        given[0] | {"project": "../x"},
    ]
    with app(team, tmp_path) as one, app(team, tmp_path, "bob") as two:
        for client in (one, one, two):
            assert client.post("/v1/ledger", json={"lines": given}).json() == {
                "taken": 2,
                "refused": {},
            }
        refused = one.post("/v1/ledger", json={"lines": bad}).json()
        assert (refused["taken"], len(refused["refused"])) == (0, 4)
        # The verdict once, and a label of each who gave one.
        told = two.get(
            "/v1/ledger", params={"since": "2026-01-01", "project": "docs"}
        ).text.splitlines()
        assert sorted(json.loads(each).get("who", "") for each in told) == ["", "ada", "bob"]
        assert two.get("/v1/ledger", params={"project": "other"}).text == ""


def test_what_cannot_be_a_replica_is_said_before_it_listens(
    server: Postgres, monkeypatch: pytest.MonkeyPatch, team: Team
) -> None:
    monkeypatch.setenv("JUDGEKIT_API_BASE", "http://127.0.0.1:9/v1")
    empty = server.url(server.create(), OWNER)
    rows = [
        ("server: {budget_usd: 5}\n", "a budget is kept in the store; set server.store"),
        (
            f"server: {{store: '{team.url}', budget_usd: 5}}\n",
            "set judge.max_cost_usd to what one may cost",
        ),
        (
            f"judge: {{max_cost_usd: 6}}\nserver: {{store: '{team.url}', budget_usd: 5}}\n",
            "so nothing fits",
        ),
        (
            f"server: {{store: '{empty}'}}\n",
            "schema 0, and this judgekit needs 1; run: judgekit serve migrate",
        ),
        (f"server: {{store: '{team.url.replace('jkpg', 'none')}'}}\n", "the store cannot be used"),
    ]
    for text, why in rows:
        get_user_config_path().write_text(text)
        with pytest.raises(ConfigError, match=why):
            serve("127.0.0.1", 0, on_start=lambda _: pytest.fail("it listens"))


# The command line


def test_commands_of_the_operator_act_on_the_store(
    server: Postgres,
    team: Team,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def says_(*words: str) -> str:
        assert run(list(words)) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    name = server.create()
    configure(server.url(name, OWNER))
    assert (
        says_("serve", "migrate", "--runtime-role", RUNTIME)
        == "applied 0001_store.sql\nthe schema is complete\n"
    )
    assert says_("serve", "migrate") == "nothing to do: the schema is complete\n"
    assert says_("serve", "token", "create", "cleo").startswith("jk_")
    assert says_("serve", "token", "list").startswith("cleo  since ")
    assert run(["serve", "token", "create", "cleo"]) == UsageError.exit_code
    assert says_("serve", "token", "revoke", "cleo") == "cleo: token revoked\n"
    assert (says_("serve", "token", "list"), capfd.readouterr().err) == ("", "")
    monkeypatch.chdir(tmp_path)
    Ledger.of(tmp_path).add(Skip(variable="X", who="ada", terminal=True, remote="", refs=[]))
    assert says_("ledger", "forward", "--all") == "1 line sent\n"
    assert says_("ledger", "forward") == "0 lines sent\n"
    assert json.loads(says_("triage", "--team", "--json"))["skips"][0]["who"] == "ada"
    assert "geheim" not in says_("config", "show")


def test_the_teams_verdicts_are_measured_labelled_and_overridden_from_the_store(
    team: Team, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    configure(team.server.url(team.name, OWNER))
    given = [
        verdict("accept", name="accept0", project=PROJECT, **content("one", "0.md")),
        verdict("reject", name="reject1", project=PROJECT, **content("two", "1.md")),
    ]
    team.owner.add(given)
    labels = tmp_path / "labels.csv"
    labels.write_text("accept0,accept\nreject1,unsure,cleo\n")
    assert run(["label", "--team", "--from", str(labels)]) == 0
    assert run(["override", "--team", "1.md", "accept", "--why", "it is right"]) == 0
    capfd.readouterr()
    assert run(["kpi", "--team", "--since", "2026-01-01", "--project", "docs", "--json"]) == 0
    measured = json.loads(capfd.readouterr().out)["all"]
    assert (measured["verdicts"], measured["labelled"]) == (2, 1)
    assert run(["ledger", "export", "--team"]) == 0
    told = [json.loads(each) for each in capfd.readouterr().out.splitlines()]
    assert {each["project"] for each in told} == {PROJECT}
    decided = {
        each["schema"].split("/")[1]: each["who"]
        for each in told
        if each.get("who") != "cleo" and "who" in each
    }
    assert set(decided) == {"label@1", "override@1"}
    assert all("@" in who for who in decided.values())
    assert run(["override", "--team", "none.md", "accept", "--why", "x"]) == UsageError.exit_code
    assert run(["label", "--team", "accept0", "--dismiss", "1"]) == UsageError.exit_code
    assert run(["ledger", "purge", "--team", "--all", "--yes"]) == UsageError.exit_code
    capfd.readouterr()
    assert run(["ledger", "purge", "--team", "--all", "--yes", "--project", "docs"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "removed 5 lines"
    assert team.rows("SELECT * FROM judgekit.line") == []


# What dies

REPLICAS, CLIENTS, EACH = 3, 64, 4
PATIENCE = 240.0  # seconds that a client tries


class Cluster:
    """Servers at fixed ports behind a round robin, which can be killed and started again."""

    def __init__(self, team: Team, tmp_path: Path) -> None:
        self.team, self._folder = team, tmp_path
        self.ports = [free_port() for _ in range(REPLICAS)]
        with ThreadPoolExecutor(REPLICAS) as pool:
            self.servings = list(pool.map(self._start, range(REPLICAS)))

    def _start(self, number: int) -> Serving:
        environ = {
            "PGPASSFILE": os.environ["PGPASSFILE"],
            "JUDGEKIT_HOME": os.environ["JUDGEKIT_HOME"],
        }
        return Serving("--port", str(self.ports[number]), token=self.team.tokens["ada"], **environ)

    def kill(self, number: int) -> None:
        self.servings[number].process.kill()
        self.servings[number].process.communicate()

    def restart(self, number: int) -> None:
        self.servings[number] = self._start(number)

    def end(self) -> list[int]:
        return [serving.end() for serving in self.servings]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Client:
    """Asks one server after another with one key until it gets a verdict, like a load balancer's client."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster, self._turn = cluster, number
        self._headers = {"Authorization": f"Bearer {cluster.team.tokens['ada']}"}

    def told(self, text: str, key: str) -> bytes:
        end = time.monotonic() + PATIENCE
        body = {"document": document(text), "wish": {"cache": False}}
        while time.monotonic() < end:
            self._turn += 1
            url = f"http://127.0.0.1:{self._cluster.ports[self._turn % REPLICAS]}/v1/judge"
            with contextlib.suppress(httpx2.TransportError):
                headers = self._headers | {"Idempotency-Key": key}
                answer = httpx2.post(url, json=body, headers=headers, timeout=60)
                if answer.status_code == 200:
                    return answer.content
                assert answer.status_code == 503, answer.text
            time.sleep(0.3)
        raise AssertionError("no verdict in time")

    def judge(self, number: int) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for at in range(EACH):
            key = f"{number}-{at}"
            found[key] = self.told(f"# Document {key}\n", key)
            if at % 2:  # a retry of what was told already, at another server
                assert self.told(f"# Document {key}\n", key) == found[key]
        return found


@pytest.mark.timeout(600)
def test_each_verdict_that_a_client_was_told_is_there_once_whatever_was_killed(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)

    def answer(_: Asked) -> Answer:
        time.sleep(0.2 + 0.6 * chance.random())
        return says(GOOD)

    with Loopback(answer) as slow, ThreadPoolExecutor(CLIENTS) as pool:
        use(monkeypatch, slow)
        configure(team.url, "  budget_usd: 100\n", "mode: lenient, max_cost_usd: 1")
        cluster, in_flight = Cluster(team, tmp_path), 0
        open_ = "SELECT count(*) FROM judgekit.judging WHERE answer IS NULL"
        clients = [Client(cluster, number) for number in range(CLIENTS)]
        running = [pool.submit(client.judge, number) for number, client in enumerate(clients)]
        for number in range(REPLICAS):
            until(lambda number=number: len(slow.requests) > 50 * (number + 1))  # type: ignore[misc]
            cluster.kill(number)
            in_flight += team.rows(open_)[0][0]
            if number != 1:
                team.server.stop()
                team.server.start()
            cluster.restart(number)
        told = {key: raw for each in running for key, raw in each.result(PATIENCE).items()}
        ids = [json.loads(raw)["id"] for raw in told.values()]
        there = [row[0] for row in team.rows("SELECT id FROM judgekit.line")]
        # Verdicts under way when they're told to stop are sent before they stop.
        ending = [
            pool.submit(client.told, "# Last\n", f"last-{n}")
            for n, client in enumerate(clients[:6])
        ]
        until(lambda: team.rows(open_)[0][0] == len(ending))
        ends = cluster.end()
        last = [json.loads(each.result(PATIENCE))["id"] for each in ending]
    calls, settled = len(slow.requests), round(team.spent() / CALL_USD)
    assert len(ids) == len(set(ids)) == CLIENTS * EACH
    assert sorted(there) == sorted(ids)  # each once, and no other
    assert {row[0] for row in team.rows("SELECT id FROM judgekit.line")} == {*ids, *last}
    assert team.spent() == pytest.approx(settled * CALL_USD)
    assert len(ids) + len(last) <= settled <= calls
    assert calls - settled <= in_flight
    assert set(ends) <= {0, -signal.SIGTERM}
    assert team.rows("SELECT * FROM judgekit.replica WHERE seen > now() - interval '5 s'") == []


def test_a_row_that_is_no_token_shuts_nobody_out(
    team: Team, model: Loopback, tmp_path: Path
) -> None:
    team.rows("INSERT INTO judgekit.token VALUES ('evil', 'junk', now())")
    with app(team, tmp_path) as one:
        assert one.get("/v1/rubrics").status_code == 200
    assert "evil" in (tmp_path / "log").read_text()
    StoreTokens(team.owner).revoke("evil")
    assert len(team.rows("SELECT * FROM judgekit.token")) == 2


def test_a_ledger_that_cannot_be_read_is_an_error_and_half_of_one_ends_early(
    team: Team, model: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app(team, tmp_path) as one:
        monkeypatch.setattr(database, "_LINES_PER_PAGE", 1)
        with Database(team.server.url(team.name, OWNER)).transaction() as connection:
            connection.execute("ALTER TABLE judgekit.line RENAME TO gone")
        answer = one.get("/v1/ledger")
        assert answer.status_code >= 400
        assert "error" in answer.json()
        one.get("/healthz")
        team.server.stop()
        try:
            answer = one.get("/v1/ledger")
            assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "store")
        finally:
            team.server.start()


def test_a_purge_goes_on_where_an_older_line_holds_what_no_database_does(team: Team) -> None:
    old = verdict(name="old", days=9, project=PROJECT)
    team.owner.add([old])
    for number, odd in enumerate((r"a\u0000b", r"a\ud800b", r"a\\u0000b")):
        text = f'{{"schema": "judgekit/label@1", "of": "{odd}"}}'
        insert = "INSERT INTO judgekit.line VALUES (%s, 'ada', %s, 'judgekit/label@1', now(), '', false, %s)"
        team.rows(insert, f"l{number}", PROJECT, text)
    assert team.owner.purge(old.timestamp + timedelta(days=1), "docs") == {"verdict": 1}
    label = Label(of="a\0b", label="go", who="ada", project=PROJECT)
    assert "NUL" in (team.owner.send([serialise_record(label)]) or "")


@pytest.fixture(
    params=["infinity", "-infinity", "0044-03-15 00:00:00+00 BC", "20000-01-01 00:00+00"]
)
def damaged_row(request: pytest.FixtureRequest, team: Team) -> str:
    """Add a token row whose time Python can't say; returns its name."""
    team.rows("INSERT INTO judgekit.token VALUES ('eve', 'x', %s)", request.param)
    return "eve"


@pytest.mark.usefixtures("damaged_row")
def test_a_time_that_python_cannot_say_shuts_nobody_else_out(team: Team, tmp_path: Path) -> None:
    with app(team, tmp_path) as client:
        assert client.get("/v1/rubrics").status_code == 200


def test_a_token_row_with_such_a_time_is_named(
    team: Team, damaged_row: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "token", "list"]) == 0
    assert f"{damaged_row}: no token" in capfd.readouterr().err


def test_a_token_row_with_such_a_time_can_be_revoked(team: Team, damaged_row: str) -> None:
    configure(team.server.url(team.name, OWNER))
    assert run(["serve", "token", "revoke", damaged_row]) == 0
    assert team.rows("SELECT name FROM judgekit.token ORDER BY name") == [("ada",), ("bob",)]


def test_a_ledger_line_with_such_a_time_hides_no_other_line(team: Team, tmp_path: Path) -> None:
    team.owner.add([verdict(name="first", project=PROJECT)])
    team.rows(
        "INSERT INTO judgekit.line SELECT 'later', who, project, schema, 'infinity', holder, provisional,"
        " line FROM judgekit.line"
    )
    with app(team, tmp_path) as client:
        assert len(client.get("/v1/ledger?since=2020-01-01").text.splitlines()) == 2
