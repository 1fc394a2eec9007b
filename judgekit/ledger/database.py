"""A team's store in PostgreSQL, for any number of servers: lines, tokens, judgings, spend, kept replies.

This is the only module that knows the driver. Each public method is one transaction, and running it twice
does no harm: a caller that lost its connection before it got the outcome runs it again.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import files
from judgekit.errors import ConfigError, JudgekitError, StoreError, UsageError
from judgekit.judging.cache import MAX_DAYS, KeptText
from judgekit.ledger import store
from judgekit.ledger.records import SCHEMAS, Label, Record, VerdictLine, kind_in, line
from judgekit.text import counted, short_line, unstorable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from types import ModuleType

    Connection: TypeAlias = Any  # the driver is an extra

MIGRATIONS = Path(__file__).with_name("migrations")
CONNECTIONS = 8  # at a time, of one process
ALIVE_SECONDS = 10.0  # without a beat, until others take over a replica's requests
ANSWER_SECONDS = 3600  # how long an answered request is recognised when it's repeated
REPLY_BYTES = 1_000_000_000
_TURN_SECONDS = 5.0  # how long to wait for a free connection
_PAGE = 200  # lines read at a time
_MOST_ID = 200  # characters; a much longer id wouldn't fit into an index
_ID = re.compile(r"[ -~]+")
_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")
_NEEDS = re.compile(r"^-- needs: (\d+)$", re.MULTILINE)
_SETTINGS = {
    "connect_timeout": "3",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "application_name": "judgekit",
    "options": "-c statement_timeout=10s -c idle_in_transaction_session_timeout=30s",
}
# Arbitrary numbers, but no other program may lock the same ones in this database.
_MIGRATING = 0x6A6B0001
_SPENDING = 0x6A6B0002
_TIDYING = 0x6A6B0003
_LOCK = "SELECT pg_advisory_xact_lock(%s)"


class Budget(NamedTuple):
    """The most that all replicas together may spend in a UTC day or month."""

    usd: float
    per: str


class Attempt(NamedTuple):
    """One replica's attempt to answer a request; `key` identifies the request among those of `who`."""

    who: str
    key: str
    body: str
    attempt: str
    replica: str


class Database:
    """The store at a connection string; it opens connections when they're needed, up to a few."""

    def __init__(self, place: str, migrations: Path = MIGRATIONS) -> None:
        try:
            import psycopg  # noqa: PLC0415 - an extra, which only a store needs
        except ImportError:
            how = files.install_extra("postgres")
            raise ConfigError(f"psycopg is not installed; run {how}", key="server.store") from None
        self._driver: ModuleType = psycopg
        self._parameters = _SETTINGS | _parse_address(psycopg, place)
        self._migrations = migrations
        raw = environment.table(__file__, "database.toml")
        self._tidying: list[str] = raw.pop("tidy")
        self._sql = {name: _fill_templates(text, raw) for name, text in raw.items()}
        self._turns = threading.BoundedSemaphore(CONNECTIONS)
        self._idle = list[Any]()
        self.close = weakref.finalize(self, _close, self._idle)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection in a transaction, reconnecting if the last one has ended; raises `StoreError`."""
        if not self._turns.acquire(timeout=_TURN_SECONDS):
            raise StoreError("the store is busy; try again", 1)
        connection: Connection = None
        try:
            with suppress(IndexError, self._driver.OperationalError):
                connection = self._idle.pop()
                connection.execute("")  # this closes the connection if the server has ended it
            if connection is None or connection.closed:
                connection = self._driver.connect(
                    **self._parameters, autocommit=True, prepare_threshold=None
                )
            with connection.transaction():
                yield connection
        except self._driver.Error as error:
            raise self._convert_error(error) from None
        finally:
            if connection is not None and not connection.closed:
                self._idle.append(connection)
            self._turns.release()

    def _convert_error(self, error: Exception) -> JudgekitError:
        message = short_line(str(error), 300)  # libpq doesn't repeat passwords
        missing = (self._driver.errors.UndefinedTable, self._driver.errors.InvalidSchemaName)
        if isinstance(error, missing):
            return ConfigError("the store has no tables yet; run: judgekit serve migrate")
        if isinstance(error, self._driver.errors.InsufficientPrivilege):
            return ConfigError(f"the store refuses: {message}; use the role that may do this")
        return StoreError(f"the store cannot be used: {message}; check server.store and PostgreSQL")

    def _run_statement(
        self, name: str, values: Sequence[object] | dict[str, Any] = ()
    ) -> list[Any]:
        """Return the rows of a statement, if it has any."""
        with self.transaction() as connection:
            done = connection.execute(self._sql[name], values)
            return list(done) if done.description else []

    def check(self) -> None:
        """Raise `ConfigError` if the schema is older than this judgekit needs, or too new for it."""
        with self.transaction() as connection:
            (number, needs) = self._read_schema(connection)
        newest = max(self._list_steps())
        if number < newest:
            problem = f"the store has schema {number}, and this judgekit needs {newest}"
            raise ConfigError(f"{problem}; run: judgekit serve migrate")
        if needs > newest:
            later = f"the store works with judgekit of schema {needs} or later"
            problem = f"{later}, and this one has {newest}"
            raise ConfigError(f"{problem}; upgrade judgekit")

    def migrate(self, runtime_role: str | None = None) -> list[str]:
        """Migrate the schema to this judgekit's version, and return the names of the steps taken.

        With a `runtime_role`, grant it the rights that replicas need. It's all or nothing, one process at a
        time. Raises `ConfigError` while a replica is running that couldn't work with the new schema.
        """
        taken = []
        with self.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute(_LOCK, (_MIGRATING,))
            # A statement that waits for a lock makes everybody else wait behind it, so don't wait for long.
            connection.execute("SET LOCAL lock_timeout = '5s'")
            number, _ = self._read_schema(connection)
            if not number:
                connection.execute("CREATE SCHEMA IF NOT EXISTS judgekit")
                connection.execute(self._sql["first"])
            for step, path in sorted(self._list_steps().items()):
                if step > number:
                    text = path.read_text(encoding="utf-8")
                    match = _NEEDS.search(text)
                    needs = int(match[1]) if match else step
                    if number:
                        self._refuse_old_servers(connection, needs)
                    connection.execute(text)
                    connection.execute(self._sql["step"], (step, needs, path.name))
                    taken.append(path.name)
            if runtime_role is not None:
                grants = (self._migrations / "grants.sql").read_text(encoding="utf-8")
                role = self._driver.sql.Identifier(runtime_role)
                connection.execute(self._driver.sql.SQL(grants).format(role=role))
        return taken

    def _refuse_old_servers(self, connection: Connection, needs: int) -> None:
        """Raise `ConfigError` while a replica is running that's too old for a schema with these `needs`."""
        (old,) = connection.execute(self._sql["old"], (needs, ALIVE_SECONDS)).fetchone()
        if old:
            servers = counted(old, "running server has", "running servers have")
            problem = f"{servers} a judgekit of a schema before {needs}"
            raise ConfigError(f"{problem}; upgrade and restart them first, then migrate")

    def _list_steps(self) -> dict[int, Path]:
        """Map the migrations' numbers to their files."""
        steps = {}
        for path in self._migrations.iterdir():
            match = _MIGRATION.fullmatch(path.name)
            if match:
                steps[int(match[1])] = path
        return steps

    def _read_schema(self, connection: Connection) -> tuple[int, int]:
        """Return the schema's number, and that of the oldest judgekit it works with."""
        (is_there,) = connection.execute(self._sql["is_there"]).fetchone()
        if not is_there:
            return (0, 0)
        number, oldest = connection.execute(self._sql["schema"]).fetchone()
        return number, oldest

    def add(self, records: Sequence[Record], holder: str = "") -> None:
        """Store lines sent by the `holder` of a token ("" for the command line); each line is stored once."""
        rows = [_row(record, holder, provisional=False) for record in records]
        # All writers lock rows in the same order, so no two of them can deadlock.
        rows.sort(key=lambda row: row[:2])
        with self.transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(self._sql["complete" if holder else "add"], rows)

    def send(self, lines: Sequence[bytes]) -> str | None:
        """Store lines. Returns a message about those refused for good, or None; raises `StoreError`."""
        records, refused = store.sort_out(lines, refusal)
        self.add(records)
        why = next(iter(refused.values()), "")
        if refused:
            return f"the store rejected {counted(len(refused), 'line', 'lines')} ({why})"
        return None

    def lines(self, since: datetime | None, project: str | None) -> Iterator[bytes]:
        """Yield the stored lines, oldest first, page by page, so that no connection is held in between."""
        start = "-infinity" if since is None else since.isoformat()
        page = {"at": start, "id": "", "who": "", "project": project, "n": _PAGE}
        while rows := self._run_statement("read", page):
            for at, line_id, who, text in rows:
                page |= {"at": at, "id": line_id, "who": who}
                yield text.encode()

    def fetch(self, since: str, project: str, into: Path) -> None:
        """Write the lines of the team's ledger into a file. Raises `StoreError`."""
        with into.open("wb") as file:
            only_project = None if project == "all" else project
            for raw in self.lines(store.point(since), only_project):
                file.write(raw + b"\n")

    def purge(
        self, before: datetime | None, project: str | None, *, preview: bool = False
    ) -> Counter[str]:
        """Remove lines from before a time (or all), and the labels of their verdicts; count them by kind."""
        query = {"before": before, "project": project}
        query |= {"label": SCHEMAS[Label], "verdict": SCHEMAS[VerdictLine]}
        rows = self._run_statement("count" if preview else "purge", query)
        return Counter({kind_in(schema): number for schema, number in rows})

    def tokens(self) -> list[dict[str, str]]:
        """Read the tokens. `created` stays PostgreSQL's text, since Python can't represent every time."""
        tokens = []
        for name, sha256, created in self._run_statement("tokens"):
            tokens.append({"name": name, "sha256": sha256, "created": created})
        return tokens

    def add_token(self, name: str, sha256: str, created: datetime | str) -> None:
        """Store a token; raises `UsageError` if `name` already has one."""
        if not self._run_statement("add_token", (name, sha256, created)):
            raise UsageError(f"{name} has a token; revoke it first")

    def remove_token(self, name: str) -> None:
        self._run_statement("remove_token", (name,))

    # Replicas and the requests they're judging

    def beat(self, replica: str) -> None:
        self._run_statement("beat", (replica, max(self._list_steps())))

    def leave(self, replica: str) -> None:
        self._run_statement("leave", (replica,))

    def tidy(self) -> None:
        """Delete expired answers, gone replicas, and old or surplus replies, one process at a time."""
        values = {"answer": ANSWER_SECONDS, "days": MAX_DAYS, "bytes": REPLY_BYTES}
        with self.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = '5min'")
            if connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_TIDYING,)).fetchone()[
                0
            ]:
                for statement in self._tidying:
                    connection.execute(statement, values)

    def claim(
        self, attempt: Attempt, seconds: float, usd: float, budget: Budget | None
    ) -> str | None:
        """Claim a request for `seconds` and reserve `usd` of the budget, or return its earlier answer.

        Raises `StoreError` while another attempt has it or the budget is used up, `UsageError` for another
        body.
        """
        values = attempt._asdict() | {"seconds": seconds, "usd": usd, "alive": ALIVE_SECONDS}
        with self.transaction() as connection:
            if budget is not None:  # one at a time, so two attempts can't both take the rest
                connection.execute(_LOCK, (_SPENDING,))
            if connection.execute(self._sql["claim"], values).fetchone() is not None:
                if budget is not None:
                    per = values | {"per": budget.per}
                    spent = connection.execute(self._sql["spent"], per).fetchone()
                    _check_budget(budget, usd, *spent)
                return None
            earlier = connection.execute(self._sql["earlier"], values).fetchone()
            if earlier and earlier[0] != attempt.body:
                raise UsageError("this Idempotency-Key came with another request; use a new key")
            if earlier is None or earlier[2] is None:
                raise StoreError(
                    "this request is being judged; ask again for its verdict", 1, wire_name="busy"
                )
            return str(earlier[2])

    def finish_attempt(
        self, attempt: Attempt, usd: float, answer: str | None, record: Record | None
    ) -> str:
        """Finish an attempt that cost `usd`, with an answer and its ledger line, or without (it gave up).

        Returns the first stored answer, the only one that callers may see, or "" if there's none yet.
        """
        values = attempt._asdict() | {"usd": usd, "answer": answer}
        with self.transaction() as connection:
            end = self._sql["give_up" if answer is None else "answer"]
            is_ended = connection.execute(end, values).rowcount == 1
            earlier = connection.execute(self._sql["earlier"], values).fetchone()
            # Charge an attempt once, whatever became of its request, and however often this is called.
            if usd and connection.execute(self._sql["note_spend"], values).rowcount == 1:
                connection.execute(self._sql["spend"], values)
            if is_ended and record is not None:
                connection.execute(self._sql["add"], _row(record, attempt.who, provisional=True))
            return "" if earlier is None else earlier[2] or ""

    # Replies kept for all replicas

    is_quick = False
    """Whether kept replies are read in less than a millisecond: they come over a network."""

    def read_reply(self, key: str) -> KeptText | None:
        """Return the reply kept under a key, or None if there isn't one or the store can't be read."""
        with suppress(JudgekitError):
            for text, age in self._run_statement("reply", (key,)):
                return KeptText(text=text, age=age)
        return None

    def write_reply(self, key: str, text: str) -> None:
        """Keep a text under a key; failures are ignored."""
        with suppress(JudgekitError):
            self._run_statement("keep_reply", (key, len(text.encode()), text))


def refusal(record: Record) -> str:
    """Explain why a line can't be kept in a store; "" if it can."""
    if len(record.id) > _MOST_ID or not _ID.fullmatch(record.id):
        return f"id: expected 1 to {_MOST_ID} printable ASCII characters"
    return unstorable(record.model_dump(mode="python", by_alias=True)) or store.misplaced(record)


def _row(record: Record, holder: str, *, provisional: bool) -> tuple[str, ...]:
    who = getattr(record, "who", "").replace("\0", "")[:_MOST_ID]
    kept = line(record).rstrip(b"\n").decode()
    at = record.timestamp.isoformat()
    return record.id, who, record.project, record.schema_, at, holder, str(provisional), kept


def _check_budget(
    budget: Budget, usd: float, spent: float, reserved: float, left_seconds: float
) -> None:
    limit = f"the team's budget of {budget.usd:g} USD a {budget.per}"
    if spent + usd > budget.usd:
        when = "at midnight UTC" if budget.per == "day" else "when the month ends (UTC)"
        message = f"{limit} does not allow {usd:g} more ({spent:.4f} spent); it begins anew {when}"
        raise StoreError(message, left_seconds + 1, status=429, wire_name="budget")
    if spent + reserved + usd > budget.usd:
        raise StoreError(f"the rest of {limit} is reserved for what is judged now; try again", 5)


def _parse_address(driver: ModuleType, place: str) -> dict[str, str]:
    """Parse a connection string. Errors never repeat any of its parts, since one may be a password."""
    try:
        parts: dict[str, str] = driver.conninfo.conninfo_to_dict(place)
    except driver.ProgrammingError:
        parts = {"host": "@"}
    # If a password isn't escaped properly, pieces of it end up in other parts, and would be shown.
    ports = str(parts.get("port") or "").replace(",", "")
    if "@" in f"{parts.get('host')}{parts.get('dbname')}" or (ports and not ports.isdecimal()):
        expected = (
            "expected postgresql://USER@HOST:PORT/DATABASE, special characters in a password as %XX"
        )
        raise ConfigError(expected, key="server.store")
    return parts


def _close(idle: list[Connection]) -> None:
    while idle:
        idle.pop().close()


def _fill_templates(text: str, others: dict[str, str]) -> str:
    while "{" in text:
        text = text.format(**others)
    return text
