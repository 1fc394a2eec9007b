"""The store in a real PostgreSQL: its schema, the rights of its roles, lines once, one answer, one budget."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import postgres
import pytest
from asking import custom, request
from ledger_lines import NOW, label, verdict
from making import call_usage, reply
from postgres import OWNER, PASSWORD, RUNTIME, Postgres

from judgekit.errors import CACHED_USAGE, ConfigError, StoreError, UsageError
from judgekit.judging.cache import ReplyCache
from judgekit.ledger import Skip, database
from judgekit.ledger.database import Attempt, Budget, Database
from judgekit.ledger.records import serialise_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from judgekit.ledger.records import Record, VerdictLine

pytestmark = pytest.mark.slow
PROJECT = "docs-0123456789ab"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres.running() as found:
        yield found


@pytest.fixture
def name(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an empty database, whose passwords libpq finds by itself."""
    monkeypatch.setenv("PGPASSFILE", str(server.passwords))
    return server.create()


@pytest.fixture
def owner(server: Postgres, name: str) -> Database:
    found = Database(server.url(name, OWNER))
    assert found.migrate(RUNTIME) == ["0001_store.sql"]
    return found


@pytest.fixture
def shared(owner: Database, server: Postgres, name: str) -> Iterator[Database]:
    """Return the store as a replica sees it."""
    found = Database(server.url(name))
    yield found
    found.close()


# The schema


def steps(folder: Path, **more: str) -> Path:
    shutil.copytree(database.MIGRATIONS, folder)
    for step, text in more.items():
        (folder / f"{step[1:]}.sql").write_text(text)
    return folder


def test_servers_roll_from_the_oldest_schema_to_a_newer_one_and_none_works_on_what_it_does_not_know(
    server: Postgres, name: str, tmp_path: Path
) -> None:
    url = server.url(name, OWNER)
    expand = "-- needs: 1\nALTER TABLE judgekit.line ADD COLUMN more text;\n"
    contract = "-- needs: 2\nALTER TABLE judgekit.line DROP COLUMN holder;\n"
    old = Database(url)
    two = Database(url, steps(tmp_path / "two", _0002_more=expand))
    three = Database(url, steps(tmp_path / "three", _0002_more=expand, _0003_less=contract))
    with pytest.raises(
        ConfigError, match="schema 0, and this judgekit needs 1; run: judgekit serve migrate"
    ):
        old.check()
    assert (old.migrate(), old.migrate()) == (["0001_store.sql"], [])
    old.check()
    old.beat("old")
    with pytest.raises(ConfigError, match="schema 1, and this judgekit needs 2"):
        two.check()
    assert two.migrate() == ["0002_more.sql"]  # while the old one runs, which goes on
    old.check()
    old.add([verdict(project=PROJECT)], "ada")
    with pytest.raises(ConfigError, match="1 running server has a judgekit of a schema before 2"):
        three.migrate()
    assert server.rows(name, "SELECT max(number) FROM judgekit.migration") == [(2,)]
    old.leave("old")
    two.beat("two")
    assert three.migrate() == ["0003_less.sql"]
    two.check()
    with pytest.raises(
        ConfigError, match="of schema 2 or later, and this one has 1; upgrade judgekit"
    ):
        old.check()


def test_of_a_migration_that_fails_nothing_stays_and_of_two_at_once_one_acts(
    server: Postgres, name: str, tmp_path: Path
) -> None:
    url = server.url(name, OWNER)
    bad = Database(
        url, steps(tmp_path / "bad", _0002_bad="CREATE TABLE judgekit.x (a int); SELECT nothing;")
    )
    with pytest.raises(StoreError, match='column "nothing" does not exist'):
        bad.migrate()
    with pytest.raises(ConfigError, match="schema 0"):
        Database(url).check()
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: Database(url).migrate(), range(4)))
    assert sorted(taken) == [[], [], [], ["0001_store.sql"]]


def test_a_replica_may_do_what_it_must_and_no_more(owner: Database, shared: Database) -> None:
    shared.check()
    owner.add_token("ada", "0" * 64, NOW)
    assert [each["name"] for each in shared.tokens()] == ["ada"]

    def drop() -> None:
        with shared.transaction() as connection:
            connection.execute("DROP TABLE judgekit.line")

    for forbidden in (
        lambda: shared.add_token("eve", "1" * 64, NOW),
        lambda: shared.remove_token("ada"),
        lambda: shared.purge(None, None),
        drop,
    ):
        with pytest.raises((ConfigError, StoreError), match=r"permission denied|must be owner"):
            forbidden()
    shared.tidy()


def test_no_error_shows_a_password(server: Postgres, name: str) -> None:
    wrong = server.url(name, password=PASSWORD + "!")
    rows = [
        (wrong, StoreError, "password authentication failed"),
        (f"postgresql://u:{PASSWORD}@h/x", ConfigError, "special characters in a password as %XX"),
        (
            f"postgresql://u:a@{PASSWORD}@h/x",
            ConfigError,
            "special characters in a password as %XX",
        ),
        (
            f"postgresql://u@h/x?{PASSWORD}=1",
            ConfigError,
            "expected postgresql://USER@HOST:PORT/DATABASE",
        ),
        (
            server.url(name, password=PASSWORD).replace("%2Fjkpg", "%2Fnowhere"),
            StoreError,
            "No such file",
        ),
    ]
    for place, error, why in rows:
        with pytest.raises(error, match=why) as caught:
            Database(place).tokens()
        assert "geheim" not in str(caught.value)
        assert "2031" not in str(caught.value)
    with pytest.raises(
        ConfigError, match="the store has no tables yet; run: judgekit serve migrate"
    ):
        Database(server.url(name, OWNER)).tokens()


def test_a_connection_that_ended_is_made_again_and_a_server_that_is_gone_is_said(
    server: Postgres, name: str, owner: Database, shared: Database
) -> None:
    for _ in range(2):
        shared.beat("a")
        server.rows(
            name,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
            RUNTIME,
        )
    server.stop()
    with pytest.raises(
        StoreError, match=r"the store cannot be used: .*; check server.store and PostgreSQL"
    ):
        shared.beat("a")
    server.start()
    shared.beat("a")
    assert server.rows(name, "SELECT id FROM judgekit.replica") == [("a",)]


# Lines


def records(
    shared: Database, since: datetime | None = None, project: str | None = None
) -> list[bytes]:
    return list(shared.read_lines(since, project))


def skip(name: str, who: str = "ada", **more: object) -> Skip:
    fields: dict[str, Any] = {
        "id": name,
        "variable": "X",
        "who": who,
        "terminal": True,
        "project": PROJECT,
    }
    return Skip(**fields | more)


def test_each_line_is_there_once_however_often_and_by_how_many_it_is_sent(
    shared: Database, server: Postgres, name: str
) -> None:
    lines: list[Record] = [skip(str(n)) for n in range(50)]
    with ThreadPoolExecutor(16) as pool:  # in different orders, which must not block each other
        orders = [lines if n % 2 else lines[::-1] for n in range(16)]
        list(pool.map(lambda order: shared.add(order, "ada"), orders))
    shared.add([skip("0", "bob")], "bob")  # another person's of the same id hides nobody's
    assert len(records(shared)) == 51
    raw = serialise_record(skip("more")).strip()
    refused = shared.send(
        [
            raw,
            b"{",
            serialise_record(skip("x" * 300)).strip(),
            serialise_record(skip("y", project="docs")).strip(),
        ]
    )
    assert (
        refused
        == "the store rejected 3 lines (not JSON (cut off when the writer was killed, or edited))"
    )
    assert raw in records(shared)
    assert server.rows(name, "SELECT holder FROM judgekit.line WHERE id = 'more'") == [("",)]


def test_lines_come_oldest_first_page_by_page_of_one_project_or_all(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_LINES_PER_PAGE", 3)
    lines = [skip(f"{n:02}", timestamp=NOW - timedelta(hours=n // 2)) for n in range(11)]
    shared.add([*lines, skip("other", project="team-0123456789ab")])
    found = records(shared, project="docs")
    in_order = sorted(lines, key=lambda each: (each.timestamp, each.id))
    assert found == [serialise_record(each).strip() for each in in_order]
    assert records(shared, NOW - timedelta(minutes=1), PROJECT) == found[-2:]
    assert len(records(shared)) == 12


def test_only_the_client_that_was_told_a_verdict_completes_its_line_and_once(
    shared: Database, server: Postgres, name: str
) -> None:
    told = verdict(name="v1", project="serve-000000000000", of_task=True)
    mine = attempt("ada", "k")
    shared.beat("r")
    assert shared.claim(mine, 60, 0, None) is None
    assert shared.finish_attempt(mine, 0, "told", told) == "told"
    shared.add([verdict("reject", name="v1", project="evil-0123456789ab")], "eve")
    assert records(shared) == [serialise_record(told).strip()]
    own = verdict(name="v1", project=PROJECT, gate={"mode": "blocking"})
    shared.add([own], "ada")
    shared.add([verdict("reject", name="v1", project=PROJECT)], "ada")
    assert records(shared) == [serialise_record(own).strip()]
    assert server.rows(name, "SELECT provisional, holder, project FROM judgekit.line") == [
        (False, "ada", PROJECT)
    ]


def test_a_purge_takes_the_labels_of_what_it_removes(owner: Database) -> None:
    old, new = (
        verdict(name=each, days=days, project=PROJECT) for each, days in (("old", 9), ("new", 1))
    )
    later = [
        label(each, "go", after=200).model_copy(update={"project": PROJECT}) for each in (old, new)
    ]
    other = verdict(name="other", days=9, project="team-0123456789ab")
    owner.add([old, new, other, *later])
    before = NOW - timedelta(days=3)
    assert owner.purge(before, "docs", preview=True) == {"verdict": 1, "label": 1}
    assert owner.purge(before, "docs") == {"verdict": 1, "label": 1}
    assert records(owner) == [serialise_record(each).strip() for each in (other, new, later[1])]
    assert owner.purge(None, None) == {"verdict": 2, "label": 1}


# Requests


def attempt(who: str, key: str, number: int = 1, *, body: str = "b", replica: str = "r") -> Attempt:
    return Attempt(who, key, body, f"{key}-{number}", replica)


def told(number: int) -> VerdictLine:
    return verdict(name=f"v{number}", project="serve-000000000000")


def spent(server: Postgres, name: str) -> float:
    return float(server.rows(name, "SELECT coalesce(sum(usd), 0) FROM judgekit.spend")[0][0])


def test_a_request_has_one_attempt_at_a_time_and_one_answer(
    shared: Database, server: Postgres, name: str
) -> None:
    shared.beat("r")
    first, second = attempt("ada", "k", 1), attempt("ada", "k", 2)
    with ThreadPoolExecutor(8) as pool:  # of many at once one has it

        def claims(number: int) -> bool:
            try:
                return shared.claim(attempt("ada", "many", number), 60, 0, None) is None
            except StoreError as error:
                return (error.status, error.wire_name) != (503, "busy")

        assert sum(pool.map(claims, range(24))) == 1
    assert shared.claim(first, 60, 0, None) is None
    assert shared.claim(first, 60, 0, None) is None  # the same, whose answer was lost
    with pytest.raises(StoreError, match="is being judged"):
        shared.claim(second, 60, 0, None)
    with pytest.raises(UsageError, match="came with another request"):
        shared.claim(attempt("ada", "k", 3, body="another"), 60, 0, None)
    assert (
        shared.claim(attempt("bob", "k"), 60, 0, None) is None
    )  # another person's key is another request
    for _ in range(2):
        assert shared.finish_attempt(first, 0.5, "one", told(1)) == "one"
    assert spent(server, name) == 0.5
    assert shared.claim(second, 60, 0, None) == "one"
    third = attempt("ada", "k3")
    assert shared.claim(third, 60, 0, None) is None
    for _ in range(2):
        assert shared.finish_attempt(third, 0.25, None, None) == ""  # gave up: others may have it
    assert spent(server, name) == 0.75
    assert shared.claim(attempt("ada", "k3", 2), 60, 0, None) is None
    assert [each[0] for each in server.rows(name, "SELECT id FROM judgekit.line")] == ["v1"]


def test_whoever_seemed_dead_and_is_late_tells_the_answer_of_the_one_that_took_over(
    shared: Database, server: Postgres, name: str
) -> None:
    shared.beat("slow")
    shared.beat("quick")
    late, heir = attempt("ada", "k", 1, replica="slow"), attempt("ada", "k", 2, replica="quick")
    assert shared.claim(late, 60, 0, None) is None
    age = f"UPDATE judgekit.replica SET seen = seen - interval '{database.ALIVE_SECONDS} s' WHERE id = 'slow'"
    server.rows(name, age)
    assert shared.claim(heir, 60, 0, None) is None
    assert (
        shared.finish_attempt(late, 0.5, "late", told(1)) == ""
    )  # nothing to tell: the other one is at it
    assert shared.finish_attempt(heir, 0.25, "heir", told(2)) == "heir"
    assert shared.finish_attempt(late, 0, "late", told(1)) == "heir"
    assert [each[0] for each in server.rows(name, "SELECT id FROM judgekit.line")] == ["v2"]
    assert spent(server, name) == 0.75  # both were paid for


@pytest.mark.parametrize("heir_answers", [True, False])
def test_what_an_attempt_cost_is_counted_once_however_often_it_settles(
    shared: Database, server: Postgres, name: str, *, heir_answers: bool
) -> None:
    shared.beat("slow")
    shared.beat("quick")
    late, heir = attempt("ada", "k", 1, replica="slow"), attempt("ada", "k", 2, replica="quick")
    assert shared.claim(late, 60, 0, None) is None
    server.rows(
        name, "UPDATE judgekit.replica SET seen = seen - interval '1 minute' WHERE id = 'slow'"
    )
    assert shared.claim(heir, 60, 0, None) is None
    answer = "heir" if heir_answers else None
    for _ in range(2):
        shared.finish_attempt(late, 0.5, "late", told(1))
    assert spent(server, name) == 0.5
    for _ in range(2):
        assert shared.finish_attempt(heir, 0.25, answer, None) == (answer or "")
        shared.finish_attempt(late, 0.5, "late", told(1))
    assert spent(server, name) == 0.75
    # One that gave up settles again after the next one has begun, and after its answer is forgotten.
    again = attempt("ada", "k", 3, replica="quick")
    assert shared.claim(again, 60, 0, None) == answer
    server.rows(
        name, "UPDATE judgekit.judging SET until = now() - interval '2 hours' WHERE key = 'k'"
    )
    shared.tidy()
    shared.finish_attempt(heir, 0.25, answer, None)
    shared.finish_attempt(late, 0.5, None, None)
    assert spent(server, name) == 0.75


def test_an_attempt_whose_heir_gave_up_before_it_settled_is_still_paid_for(
    shared: Database, server: Postgres, name: str
) -> None:
    shared.beat("slow")
    shared.beat("quick")
    late, heir = attempt("ada", "k", 1, replica="slow"), attempt("ada", "k", 2, replica="quick")
    assert shared.claim(late, 60, 0, None) is None
    server.rows(
        name, "UPDATE judgekit.replica SET seen = seen - interval '1 minute' WHERE id = 'slow'"
    )
    assert shared.claim(heir, 60, 0, None) is None
    shared.finish_attempt(heir, 0.25, None, None)
    shared.finish_attempt(late, 0.5, "late", told(1))
    assert spent(server, name) == 0.75


def test_no_number_of_replicas_spends_more_than_the_budget(
    server: Postgres, name: str, shared: Database
) -> None:
    budget, others = (
        Budget(1.0, "day"),
        [shared, Database(server.url(name)), Database(server.url(name))],
    )
    for number in range(3):
        shared.beat(f"r{number}")
    free, most = threading.Semaphore(0), 0.0

    def judges(number: int) -> int:
        own, replica = attempt("ada", f"k{number}", replica=f"r{number % 3}"), others[number % 3]
        try:
            replica.claim(own, 60, 0.3, budget)
        except StoreError as error:
            return int(error.status)
        free.acquire(timeout=30)
        replica.finish_attempt(own, 0.2, "told", told(number))
        return 200

    with ThreadPoolExecutor(24) as pool:
        running = [pool.submit(judges, number) for number in range(24)]
        refused = [each.result(30) for each in running if _done(each)]
        most = float(server.rows(name, "SELECT sum(reserved_usd) FROM judgekit.judging")[0][0])
        free.release(24)
        statuses = [each.result(30) for each in running]
    assert most <= 0.9001
    assert (statuses.count(200), statuses.count(503), len(refused) >= 21) == (3, 21, True)
    assert spent(server, name) == pytest.approx(0.6)
    assert judges(100) == 200
    with pytest.raises(
        StoreError, match=r"budget of 1 USD a day does not allow 0\.3 more"
    ) as caught:
        shared.claim(attempt("ada", "last"), 60, 0.3, budget)
    assert caught.value.status == 429
    assert 1 < caught.value.retry_after <= 86_401
    with pytest.raises(StoreError, match="when the month ends") as caught:
        shared.claim(attempt("ada", "last"), 60, 0.3, Budget(1.0, "month"))
    assert caught.value.retry_after <= 31 * 86_400 + 1
    assert (
        shared.claim(attempt("ada", "free"), 60, 0.0, budget) is None
    )  # kept replies cost nothing


def _done(future: Future[int]) -> bool:
    """Return whether a thread has ended, which those that were refused do soon."""
    try:
        future.result(1)
    except TimeoutError:
        return False
    return True


def test_a_dead_replica_gives_back_what_it_had_reserved(
    shared: Database, server: Postgres, name: str
) -> None:
    budget = Budget(1.0, "day")
    shared.beat("dies")
    shared.beat("r")
    assert shared.claim(attempt("ada", "k", replica="dies"), 60, 0.9, budget) is None
    with pytest.raises(StoreError, match="is reserved for what is judged now"):
        shared.claim(attempt("ada", "k2"), 60, 0.9, budget)
    server.rows(
        name, "UPDATE judgekit.replica SET seen = seen - interval '1 minute' WHERE id = 'dies'"
    )
    assert shared.claim(attempt("ada", "k2"), 60, 0.9, budget) is None
    server.rows(name, "UPDATE judgekit.judging SET until = now() - interval '1 s' WHERE key = 'k2'")
    assert (
        shared.claim(attempt("ada", "k3"), 60, 0.9, budget) is None
    )  # past its deadline it holds nothing


# Kept replies, and what is forgotten


def test_replies_are_shared_and_bounded_and_a_fault_of_them_costs_a_call_only(
    shared: Database, server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = reply("text", "model", call_usage(3, 1, 0.5), logprobs=({"yes": -0.1},))
    endpoint, other = custom("http://h/v1"), Database(server.url(name))
    cache = ReplyCache(shared)
    assert cache.find(endpoint, request()) is None
    cache.keep(endpoint, request(), given)
    cache.keep(endpoint, request(), given)
    found = ReplyCache(other).find(endpoint, request())
    assert found is not None
    assert (found.text, found.logprobs, found.usage) == ("text", ({"yes": -0.1},), CACHED_USAGE)
    for number in range(9):
        cache.keep(endpoint, request(f"another {number}"), given)
    size = server.rows(name, "SELECT max(bytes) FROM judgekit.reply")[0][0]
    monkeypatch.setattr(database, "REPLY_BYTES", 4 * size)
    values = "'a', 'k', 'b', 'x', 'r', now() - interval '2 hours', 0, 'told'"
    server.rows(name, f"INSERT INTO judgekit.judging VALUES ({values})")
    shared.tidy()
    kept = server.rows(name, "SELECT count(*) FROM judgekit.reply")
    assert (kept, server.rows(name, "SELECT * FROM judgekit.judging")) == ([(4,)], [])
    assert cache.find(endpoint, request("another 8")) is not None
    server.rows(name, "UPDATE judgekit.reply SET at = at + interval '31 days'")
    assert cache.find(endpoint, request("another 8")) is None, "kept under a wrong clock"
    server.rows(name, "UPDATE judgekit.reply SET at = at - interval '62 days'")
    assert cache.find(endpoint, request("another 8")) is None
    shared.tidy()
    assert server.rows(name, "SELECT * FROM judgekit.reply") == []
    server.rows(name, "ALTER TABLE judgekit.reply RENAME TO gone")
    ReplyCache(shared).keep(endpoint, request(), given)
    assert cache.find(endpoint, request()) is None
