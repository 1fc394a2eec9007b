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
from judgekit.text import counted, find_unstorable, short_line

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
    """A replica's attempt to answer a request. `who` sent the request, and `key` identifies it among theirs.

    `body` is a hash of the request's body. `attempt` and `replica` are ids.
    """

    who: str
    key: str
    body: str
    attempt: str
    replica: str


class Database:
    """The store at a connection string; it opens connections when they're needed, up to a few."""

    def __init__(self, place: str, migrations: Path = MIGRATIONS) -> None:
        """Prepare a store, without connecting yet. `place` is its connection string.

        Raises `ConfigError` if the string is malformed, or if psycopg isn't installed.
        """
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
        self._free_slots = threading.BoundedSemaphore(CONNECTIONS)
        self._idle = list[Any]()
        # When this object is garbage, its idle connections are closed, too.
        self.close = weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection in a transaction, inside the `with` block.

        It's an idle connection or a new one. Raises `StoreError` if all are in use for 5 seconds, or if the
        store can't be reached. Errors of the driver inside the block are raised as ours.
        """
        if not self._free_slots.acquire(timeout=_TURN_SECONDS):
            raise StoreError("the store is busy; try again", 1)
        connection: Connection = None
        try:
            # The server may have ended an idle connection. To find out, execute an empty statement: if it
            # fails, the driver marks the connection as closed, and we open a new one below.
            with suppress(IndexError, self._driver.OperationalError):
                connection = self._idle.pop()
                connection.execute("")
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
            self._free_slots.release()

    def _convert_error(self, error: Exception) -> JudgekitError:
        """Convert an error of the driver to ours: `ConfigError` if a person must act, else `StoreError`."""
        message = short_line(str(error), 300)  # libpq doesn't repeat passwords
        errors = self._driver.errors
        if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
            return ConfigError("the store has no tables yet; run: judgekit serve migrate")
        if isinstance(error, errors.InsufficientPrivilege):
            return ConfigError(f"the store refuses: {message}; use the role that may do this")
        return StoreError(f"the store cannot be used: {message}; check server.store and PostgreSQL")

    def _run_statement(
        self, name: str, values: Sequence[object] | dict[str, Any] = ()
    ) -> list[Any]:
        """Run the statement called `name` in `database.toml`, and return its rows.

        The list is empty if the statement isn't a query.
        """
        with self.transaction() as connection:
            cursor = connection.execute(self._sql[name], values)
            is_query = cursor.description is not None
            return list(cursor) if is_query else []

    def check(self) -> None:
        """Raise `ConfigError` if the store's schema is older or newer than this judgekit can work with.

        A newer schema is no problem as long as it still supports a judgekit of this one's schema.
        """
        with self.transaction() as connection:
            store_schema, oldest_supported = self._read_schema(connection)
        own_schema = max(self._map_migrations())  # the number of the newest migration
        if store_schema < own_schema:
            problem = f"the store has schema {store_schema}, and this judgekit needs {own_schema}"
            raise ConfigError(f"{problem}; run: judgekit serve migrate")
        if oldest_supported > own_schema:
            need = f"the store works with judgekit of schema {oldest_supported} or later"
            problem = f"{need}, and this one has {own_schema}"
            raise ConfigError(f"{problem}; upgrade judgekit")

    def migrate(self, runtime_role: str | None = None) -> list[str]:
        """Run the migrations that the store lacks, and return the names of their files.

        With a `runtime_role`, that role is also granted the rights that servers need. It's all one
        transaction, so if something fails, nothing is changed. Only one process migrates at a time. Raises
        `ConfigError` while a server is running that couldn't work with the new schema.
        """
        applied_names = []
        with self.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute(_LOCK, (_MIGRATING,))
            # While a migration waits for a table's lock, all later statements on the table wait behind it.
            # So give up after some seconds.
            connection.execute("SET LOCAL lock_timeout = '5s'")
            current_number, _ = self._read_schema(connection)
            is_new_store = current_number == 0
            if is_new_store:
                connection.execute("CREATE SCHEMA IF NOT EXISTS judgekit")
                connection.execute(self._sql["first"])
            for number, path in sorted(self._map_migrations().items()):
                if number <= current_number:
                    continue
                self._run_migration(connection, number, path, is_new_store=is_new_store)
                applied_names.append(path.name)
            if runtime_role is not None:
                grants = (self._migrations / "grants.sql").read_text(encoding="utf-8")
                role = self._driver.sql.Identifier(runtime_role)
                connection.execute(self._driver.sql.SQL(grants).format(role=role))
        return applied_names

    def _run_migration(
        self, connection: Connection, number: int, path: Path, *, is_new_store: bool
    ) -> None:
        """Run a migration, and record it in the store.

        Raises `ConfigError` while a server is running that couldn't work with the new schema.
        """
        text = path.read_text(encoding="utf-8")
        # A comment in the file names the oldest judgekit that the new schema works with.
        match = _NEEDS.search(text)
        oldest_supported = int(match[1]) if match else number
        if not is_new_store:
            self._refuse_old_servers(connection, oldest_supported)
        connection.execute(text)
        connection.execute(self._sql["step"], (number, oldest_supported, path.name))

    def _refuse_old_servers(self, connection: Connection, oldest_supported: int) -> None:
        """Raise `ConfigError` if a server is running that works with a schema before `oldest_supported`."""
        cursor = connection.execute(self._sql["old"], (oldest_supported, ALIVE_SECONDS))
        (old_servers,) = cursor.fetchone()
        if old_servers:
            servers = counted(old_servers, "running server has", "running servers have")
            problem = f"{servers} a judgekit of a schema before {oldest_supported}"
            raise ConfigError(f"{problem}; upgrade and restart them first, then migrate")

    def _map_migrations(self) -> dict[int, Path]:
        """Map the migrations' numbers to their files, such as 1 to `0001_store.sql`."""
        paths = {}
        for path in self._migrations.iterdir():
            match = _MIGRATION.fullmatch(path.name)
            if match:
                paths[int(match[1])] = path
        return paths

    def _read_schema(self, connection: Connection) -> tuple[int, int]:
        """Return the number of the store's schema, and the number of the oldest schema it's compatible with.

        Both are 0 if the store has no tables yet.
        """
        (has_tables,) = connection.execute(self._sql["is_there"]).fetchone()
        if not has_tables:
            return (0, 0)
        number, oldest_supported = connection.execute(self._sql["schema"]).fetchone()
        return number, oldest_supported

    def add(self, records: Sequence[Record], holder: str = "") -> None:
        """Store lines that the `holder` of a token sent. A line that's stored already isn't stored again.

        On the command line there's no holder (""). The lines then don't complete provisional verdicts.
        """
        rows = [_make_row(record, holder, provisional=False) for record in records]
        # All writers lock rows in the order of the primary key (id and author), so that no two writers can
        # wait for each other's rows.
        rows.sort(key=lambda row: row[:2])
        # A server stores a verdict provisionally. Only the client that asked for it may complete it.
        statement = "complete" if holder else "add"
        with self.transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(self._sql[statement], rows)

    def send(self, lines: Sequence[bytes]) -> str | None:
        """Store lines of a ledger. Returns a message about lines that can never be stored, or None.

        Raises `StoreError` if the store can't be used now.
        """
        records, refusals = store.sort_out(lines, refusal)
        self.add(records)
        if not refusals:
            return None
        rejected = counted(len(refusals), "line", "lines")
        first_reason = next(iter(refusals.values()))
        return f"the store rejected {rejected} ({first_reason})"

    def lines(self, since: datetime | None, project: str | None) -> Iterator[bytes]:
        """Yield the stored lines since a time (None: all) and of a project (None: every one), oldest first.

        They're read page by page, so that a slow reader doesn't keep a connection.
        """
        start = "-infinity" if since is None else since.isoformat()
        # A page begins behind the line with this time, id and author.
        query_values = {"at": start, "id": "", "who": "", "project": project, "n": _PAGE}
        while True:
            rows = self._run_statement("read", query_values)
            if not rows:
                return
            for at, line_id, who, text in rows:
                query_values |= {"at": at, "id": line_id, "who": who}
                yield text.encode()

    def fetch(self, since: str, project: str, into: Path) -> None:
        """Write the stored lines since a time, such as `14d`, to the file `into`; raises `StoreError`.

        `project` is a project's name, or `all`.
        """
        only_project = None if project == "all" else project
        with into.open("wb") as file:
            for raw in self.lines(store.point(since), only_project):
                file.write(raw + b"\n")

    def purge(
        self, before: datetime | None, project: str | None, *, preview: bool = False
    ) -> Counter[str]:
        """Remove the lines from before a time (None: all lines), of one project or (None) of all.

        Later labels are removed, too, if they're about a removed verdict. Returns the number of removed lines
        of each kind. A `preview` only counts them.
        """
        values = {
            "before": before,
            "project": project,
            "label": SCHEMAS[Label],
            "verdict": SCHEMAS[VerdictLine],
        }
        statement = "count" if preview else "purge"
        rows = self._run_statement(statement, values)
        return Counter({kind_in(schema): number for schema, number in rows})

    def tokens(self) -> list[dict[str, str]]:
        """Return each token's name, SHA-256 and time of creation."""
        tokens = []
        # The time stays PostgreSQL's text, since Python can't represent every one of its times.
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
        """Note that a replica is alive, and the schema that it works with."""
        own_schema = max(self._map_migrations())  # the number of the newest migration
        self._run_statement("beat", (replica, own_schema))

    def leave(self, replica: str) -> None:
        """Note that a replica has stopped, so that others can take over its requests at once."""
        self._run_statement("leave", (replica,))

    def tidy(self) -> None:
        """Delete expired answers, replicas that are gone, and kept replies that are old or too many.

        Nothing happens if another process is doing this right now.
        """
        values = {"answer": ANSWER_SECONDS, "days": MAX_DAYS, "bytes": REPLY_BYTES}
        with self.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = '5min'")
            cursor = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_TIDYING,))
            (has_lock,) = cursor.fetchone()
            if not has_lock:
                return
            for statement in self._tidying:
                connection.execute(statement, values)

    def claim(
        self, attempt: Attempt, seconds: float, usd: float, budget: Budget | None
    ) -> str | None:
        """Claim a request for an attempt, or return the answer that an earlier attempt has stored.

        If it's claimed, returns None: the claim holds for `seconds`, and `usd` of the budget is reserved.
        Raises `StoreError` while another attempt is working on the request, or if the budget is used up.
        Raises `UsageError` if the key was used for a request with another body.
        """
        values = attempt._asdict() | {"seconds": seconds, "usd": usd, "alive": ALIVE_SECONDS}
        with self.transaction() as connection:
            if budget is not None:
                # Only one attempt at a time: otherwise two could both reserve the last part of the budget.
                connection.execute(_LOCK, (_SPENDING,))
            is_claimed = connection.execute(self._sql["claim"], values).fetchone() is not None
            if is_claimed:
                if budget is not None:
                    period = values | {"per": budget.per}
                    spending = connection.execute(self._sql["spent"], period).fetchone()
                    _check_budget(budget, usd, *spending)  # if it raises, the claim is rolled back
                return None

            earlier_request = connection.execute(self._sql["earlier"], values).fetchone()
            answer = None
            if earlier_request is not None:
                earlier_body, _, answer = earlier_request
                if earlier_body != attempt.body:
                    raise UsageError(
                        "this Idempotency-Key came with another request; use a new key"
                    )
            if answer is None:
                raise StoreError(
                    "this request is being judged; ask again for its verdict", 1, wire_name="busy"
                )
            return str(answer)

    def finish_attempt(
        self, attempt: Attempt, usd: float, answer: str | None, record: Record | None
    ) -> str:
        """Finish an attempt that cost `usd`, with its answer and ledger line. Both are None if it gave up.

        Returns the answer that was stored first for the request, perhaps by another attempt; "" if none is
        stored yet. Callers must only get this answer.
        """
        values = attempt._asdict() | {"usd": usd, "answer": answer}
        with self.transaction() as connection:
            statement = "give_up" if answer is None else "answer"
            # If another replica has taken over the request and answered first, this changes no row.
            is_ended = connection.execute(self._sql[statement], values).rowcount == 1
            stored_request = connection.execute(self._sql["earlier"], values).fetchone()
            # Charge an attempt once, whatever became of its request, and however often this is called.
            if usd:
                is_first_charge = connection.execute(self._sql["note_spend"], values).rowcount == 1
                if is_first_charge:
                    connection.execute(self._sql["spend"], values)
            if is_ended and record is not None:
                row = _make_row(record, attempt.who, provisional=True)
                connection.execute(self._sql["add"], row)
            if stored_request is None:
                return ""
            _, _, first_answer = stored_request
            return first_answer or ""

    # Replies kept for all replicas

    is_quick = False
    """Whether kept replies are read in less than a millisecond: they come over a network."""

    def read_reply(self, key: str) -> KeptText | None:
        """Return the reply that's kept under a key; None if there's none, or if the store can't be read."""
        rows = []
        with suppress(JudgekitError):
            rows = self._run_statement("reply", (key,))
        if not rows:
            return None
        text, age = rows[0]
        return KeptText(text=text, age=age)

    def write_reply(self, key: str, text: str) -> None:
        """Keep a text under a key; failures are ignored."""
        with suppress(JudgekitError):
            self._run_statement("keep_reply", (key, len(text.encode()), text))


def refusal(record: Record) -> str:
    """Explain why a store can't keep a line; "" if it can."""
    if len(record.id) > _MOST_ID or not _ID.fullmatch(record.id):
        return f"id: expected 1 to {_MOST_ID} printable ASCII characters"
    problem = find_unstorable(record.model_dump(mode="python", by_alias=True))
    if problem:
        return problem
    return store.misplaced(record)


def _make_row(record: Record, holder: str, *, provisional: bool) -> tuple[str, ...]:
    """Return the values of the columns for a line, in the order of the table's columns."""
    author = getattr(record, "who", "")
    who = author.replace("\0", "")[:_MOST_ID]  # PostgreSQL can't store a NUL
    text = line(record).rstrip(b"\n").decode()
    at = record.timestamp.isoformat()
    return record.id, who, record.project, record.schema_, at, holder, str(provisional), text


def _check_budget(
    budget: Budget, usd: float, spent: float, reserved: float, left_seconds: float
) -> None:
    """Raise `StoreError` if the budget doesn't allow a request to spend `usd` more.

    `spent` is what was spent this day or month, and `reserved` what running requests may still spend.
    `left_seconds` is the time until the next day or month begins.
    """
    limit = f"the team's budget of {budget.usd:g} USD a {budget.per}"
    if spent + usd > budget.usd:
        if budget.per == "day":
            renewal = "at midnight UTC"
        else:
            renewal = "when the month ends (UTC)"
        problem = f"{limit} does not allow {usd:g} more ({spent:.4f} spent)"
        message = f"{problem}; it begins anew {renewal}"
        # `+ 1`, so that a client that waits for exactly so long doesn't ask too early.
        raise StoreError(message, left_seconds + 1, status=429, wire_name="budget")
    if spent + reserved + usd > budget.usd:
        raise StoreError(f"the rest of {limit} is reserved for what is judged now; try again", 5)


def _parse_address(driver: ModuleType, place: str) -> dict[str, str]:
    """Parse a connection string into its parts; raises `ConfigError` if it's malformed.

    The error doesn't repeat anything of the string, which may have a password in it.
    """
    parts: dict[str, str] | None = None
    with suppress(driver.ProgrammingError):
        parts = driver.conninfo.conninfo_to_dict(place)
    if parts is None or _has_stray_password(parts):
        expected = (
            "expected postgresql://USER@HOST:PORT/DATABASE, special characters in a password as %XX"
        )
        raise ConfigError(expected, key="server.store")
    return parts


def _has_stray_password(parts: dict[str, str]) -> bool:
    """Whether pieces of a password ended up in other parts of an address, as it wasn't escaped properly.

    A password with `@` or `/` does that.
    """
    if "@" in str(parts.get("host")) or "@" in str(parts.get("dbname")):
        return True
    ports = str(parts.get("port") or "").replace(",", "")  # one for each host, between commas
    return bool(ports) and not ports.isdecimal()


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def _fill_templates(text: str, statements: dict[str, str]) -> str:
    """Replace each `{name}` in a text by the statement of that name, until none is left."""
    while "{" in text:
        text = text.format(**statements)
    return text
