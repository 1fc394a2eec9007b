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
from judgekit.judging.cache import MAX_DAYS, StoredText
from judgekit.ledger import store
from judgekit.ledger.records import (
    SCHEMAS,
    Label,
    Record,
    VerdictLine,
    parse_kind,
    serialise_record,
)
from judgekit.text import find_unstorable, format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from types import ModuleType

    Connection: TypeAlias = Any  # the driver is an extra

MIGRATIONS = Path(__file__).with_name("migrations")
CONNECTIONS = 8  # at a time, of one process
ALIVE_SECONDS = 10.0  # without a beat, until others take over a replica's requests
KEEP_ANSWER_SECONDS = 3600  # how long an answered request is recognised when it's repeated
REPLY_BYTES = 1_000_000_000
_SLOT_TIMEOUT_S = 5.0  # how long to wait for a free connection
_LINES_PER_PAGE = 200
_MAX_ID_LENGTH = 200  # characters; a much longer id wouldn't fit into an index
_RECORD_ID_PATTERN = re.compile(r"[ -~]+")
_MIGRATION_NAME_PATTERN = re.compile(r"(\d{4})_\w+\.sql")
_NEEDED_VERSION_PATTERN = re.compile(r"^-- needs: (\d+)$", re.MULTILINE)
_CONNECTION_DEFAULTS = {
    "connect_timeout": "3",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "application_name": "judgekit",
    "options": "-c statement_timeout=10s -c idle_in_transaction_session_timeout=30s",
}
# Arbitrary numbers, but no other program may lock the same ones in this database.
_MIGRATION_LOCK = 0x6A6B0001
_BUDGET_LOCK = 0x6A6B0002
_TIDY_LOCK = 0x6A6B0003
_ACQUIRE_LOCK = "SELECT pg_advisory_xact_lock(%s)"


class Budget(NamedTuple):
    """The most that all replicas together may spend in a UTC day or month."""

    usd: float
    period: str


class Attempt(NamedTuple):
    """A replica's attempt to answer a request. `who` sent the request, and `key` identifies it among theirs.

    `body` is a hash of the request's body. `attempt` and `replica` are ids.
    """

    who: str
    key: str
    body: str
    attempt: str
    replica: str


class _StoredRequest(NamedTuple):
    """A request that an attempt has claimed. Its `answer` is None until it's answered."""

    body: str
    attempt: str
    answer: str | None


class Database:
    """The store at a connection string; it opens connections when they're needed, up to a few."""

    def __init__(self, place: str, migrations: Path = MIGRATIONS) -> None:
        """Prepare the store at the connection string `place`, without connecting yet.

        Raises `ConfigError` if the string is malformed or psycopg isn't installed.
        """
        self._driver = _import_driver()
        self._parameters = _CONNECTION_DEFAULTS | _parse_address(self._driver, place)
        self._migrations = migrations
        self._sql, self._tidy_statements = _load_statements()
        self._free_slots = threading.BoundedSemaphore(CONNECTIONS)
        self._idle = list[Any]()  # connections that the next transaction can use

        # Close the idle connections when this object is garbage-collected.
        self.close = weakref.finalize(self, _close_all, self._idle)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run the `with` block in a transaction and yield its connection.

        Raises `StoreError` if no connection becomes free in time or the store can't be reached. Driver errors
        inside the block are converted to our errors.
        """
        if not self._free_slots.acquire(timeout=_SLOT_TIMEOUT_S):
            raise StoreError("the store is busy; try again", retry_after=1)

        connection: Connection = None
        try:
            connection = self._take_idle()
            if connection is None or self._has_closed(connection):
                # With autocommit, only `transaction()` below begins a transaction. Statements aren't
                # prepared, because a connection pooler can switch to a session that doesn't know them.
                connection = self._driver.connect(
                    **self._parameters, autocommit=True, prepare_threshold=None
                )
            with connection.transaction():
                yield connection
        except self._driver.Error as error:
            raise self._convert_error(error) from None
        finally:
            # Save a working connection for the next transaction.
            if connection is not None and not connection.closed:
                self._idle.append(connection)
            self._free_slots.release()

    def _take_idle(self) -> Connection | None:
        """Take an idle connection, the one used last; None if there's none."""
        # Another thread can take the last one at any time, so don't ask first whether there is one.
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _has_closed(self, connection: Connection) -> bool:
        """Whether the server has closed a connection."""
        # The driver only notices that when a statement fails, so run an empty one.
        with suppress(self._driver.OperationalError):
            connection.execute("")
        return bool(connection.closed)

    def _convert_error(self, error: Exception) -> JudgekitError:
        """Convert a driver error to `ConfigError` if a person must act, else to `StoreError`."""
        # The driver's message is safe to show, because libpq never puts the password into it.
        message = shorten_to_line(str(error), 300)
        errors = self._driver.errors
        if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
            return ConfigError("the store has no tables yet; run: judgekit serve migrate")
        if isinstance(error, errors.InsufficientPrivilege):
            return ConfigError(f"the store refuses: {message}; use the role that may do this")
        return StoreError(f"the store cannot be used: {message}; check server.store and PostgreSQL")

    def _execute(self, name: str, values: Sequence[object] | dict[str, Any] = ()) -> list[Any]:
        """Execute the statement `name` from `database.toml` and return its rows, if any."""
        with self.transaction() as connection:
            cursor = connection.execute(self._sql[name], values)
            returns_rows = cursor.description is not None
            return list(cursor) if returns_rows else []

    def check(self) -> None:
        """Raise `ConfigError` if this judgekit can't work with the store's schema."""
        with self.transaction() as connection:
            store_schema, oldest_supported = self._read_schema_versions(connection)
        own_schema = max(self._list_migrations())  # the newest migration's number

        if store_schema < own_schema:
            problem = f"the store has schema {store_schema}, and this judgekit needs {own_schema}"
            raise ConfigError(f"{problem}; run: judgekit serve migrate")
        # A newer schema is fine as long as it still supports our older one.
        if oldest_supported > own_schema:
            need = f"the store works with judgekit of schema {oldest_supported} or later"
            problem = f"{need}, and this one has {own_schema}"
            raise ConfigError(f"{problem}; upgrade judgekit")

    def migrate(self, runtime_role: str | None = None) -> list[str]:
        """Run the pending migrations in one transaction, and return their file names.

        `runtime_role` is the database role of the servers, which gets the rights that they need. Raises
        `ConfigError` if a running server couldn't work with the new schema.
        """
        applied_names = []
        with self.transaction() as connection:
            _lock_for_migration(connection)
            current_schema, _ = self._read_schema_versions(connection)
            is_new_store = current_schema == 0
            if is_new_store:
                connection.execute("CREATE SCHEMA IF NOT EXISTS judgekit")
                connection.execute(self._sql["first"])  # create the table that lists the migrations

            for number, path in sorted(self._list_migrations().items()):
                if number <= current_schema:
                    continue
                self._run_migration(connection, number, path, is_new_store=is_new_store)
                applied_names.append(path.name)

            if runtime_role is not None:
                self._grant_rights(connection, runtime_role)
        return applied_names

    def _run_migration(
        self, connection: Connection, number: int, path: Path, *, is_new_store: bool
    ) -> None:
        """Run a migration and record it in the store.

        Raises `ConfigError` if a running server is too old for the new schema.
        """
        sql = path.read_text(encoding="utf-8")
        # A `needs` comment in the file gives the oldest schema that a running server may have. Without the
        # comment, servers need the new schema.
        match = _NEEDED_VERSION_PATTERN.search(sql)
        oldest_supported = int(match[1]) if match else number
        if not is_new_store:
            self._refuse_old_servers(connection, oldest_supported)
        connection.execute(sql)
        connection.execute(self._sql["step"], (number, oldest_supported, path.name))

    def _refuse_old_servers(self, connection: Connection, oldest_supported: int) -> None:
        """Raise `ConfigError` if a running server uses a schema older than `oldest_supported`."""
        cursor = connection.execute(self._sql["old"], (oldest_supported, ALIVE_SECONDS))
        (old_server_count,) = cursor.fetchone()
        if old_server_count == 0:
            return
        servers = format_count(old_server_count, "running server has", "running servers have")
        raise ConfigError(
            f"{servers} a judgekit of a schema before {oldest_supported}; "
            "upgrade and restart them first, then migrate"
        )

    def _grant_rights(self, connection: Connection, role_name: str) -> None:
        """Grant a database role the rights that a server needs."""
        sql = self._driver.sql
        template = (self._migrations / "grants.sql").read_text(encoding="utf-8")
        role = sql.Identifier(role_name)
        connection.execute(sql.SQL(template).format(role=role))

    def _list_migrations(self) -> dict[int, Path]:
        """Return the migration files by number, such as 1: `0001_store.sql`."""
        paths = {}
        for path in self._migrations.iterdir():
            match = _MIGRATION_NAME_PATTERN.fullmatch(path.name)
            if match:
                paths[int(match[1])] = path
        return paths

    def _read_schema_versions(self, connection: Connection) -> tuple[int, int]:
        """Return the store's schema number and the oldest schema number it supports.

        Both are 0 if the store has no tables yet.
        """
        (has_tables,) = connection.execute(self._sql["is_there"]).fetchone()
        if not has_tables:
            return (0, 0)
        number, oldest_supported = connection.execute(self._sql["schema"]).fetchone()
        return number, oldest_supported

    def add(self, records: Sequence[Record], holder: str = "") -> None:
        """Store records, skipping any that are already stored.

        `holder` is the name on the sender's token, or "" for the command line.
        """
        rows = [_make_row(record, holder, provisional=False) for record in records]
        # All writers lock rows in the order of the primary key, so that they can't deadlock.
        rows.sort(key=_get_primary_key)

        # A server first stores a verdict provisionally. "complete" replaces that row if the verdict was
        # requested with the same token. The command line has no token, so it only adds.
        has_token = holder != ""
        statement = "complete" if has_token else "add"
        with self.transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(self._sql[statement], rows)

    def send(self, lines: Sequence[bytes]) -> str | None:
        """Store ledger lines. Returns None, or a message if some of them can never be stored.

        Raises `StoreError` if the store can't be used now.
        """
        records, reason_by_index = store.parse_accepted(lines, explain_refusal)
        self.add(records)
        if not reason_by_index:
            return None

        rejected = format_count(len(reason_by_index), "line", "lines")
        first_reason = next(iter(reason_by_index.values()))
        return f"the store rejected {rejected} ({first_reason})"

    def read_lines(self, since: datetime | None, project: str | None) -> Iterator[bytes]:
        """Yield stored lines in `project` since a time, oldest first. None means no limit."""
        start = "-infinity" if since is None else since.isoformat()
        query_values = {"at": start, "id": "", "who": "", "project": project, "n": _LINES_PER_PAGE}
        # Read page by page, so that a slow caller doesn't hold a connection.
        while rows := self._execute("read", query_values):
            for _, _, _, text in rows:
                yield text.encode()

            # The next page starts after this page's last line.
            at, line_id, who, _ = rows[-1]
            query_values.update(at=at, id=line_id, who=who)

    def fetch(self, since: str, project: str, into: Path) -> None:
        """Write the project's lines since a time, such as `14d`, to the file `into`.

        If `project` is "all", include every project. Raises `StoreError`.
        """
        only_project = None if project == "all" else project
        with into.open("wb") as file:
            for raw in self.read_lines(store.parse_time(since), only_project):
                file.write(raw + b"\n")

    def purge(
        self, before: datetime | None, project: str | None, *, preview: bool = False
    ) -> Counter[str]:
        """Delete the lines of `project` that are older than `before`. Returns their number by kind.

        Labels of deleted verdicts are deleted too, even if they're newer. None means any age or project. If
        `preview`, the lines are only counted.
        """
        values = {
            "before": before,
            "project": project,
            # The schemas by which the statement finds the labels of deleted verdicts.
            "label": SCHEMAS[Label],
            "verdict": SCHEMAS[VerdictLine],
        }
        statement = "count" if preview else "purge"
        rows = self._execute(statement, values)
        # There's a row for each kind of line, with its schema and the number of lines.
        return Counter({parse_kind(schema): number for schema, number in rows})

    def tokens(self) -> list[dict[str, str]]:
        """Return each token's name, SHA-256 and time of creation."""
        tokens = []
        # Leave the times as strings: PostgreSQL allows some that Python can't represent.
        for name, sha256, created in self._execute("tokens"):
            tokens.append({"name": name, "sha256": sha256, "created": created})
        return tokens

    def add_token(self, name: str, sha256: str, created: datetime | str) -> None:
        """Store a token; raises `UsageError` if `name` already has one."""
        if not self._execute("add_token", (name, sha256, created)):
            raise UsageError(f"{name} has a token; revoke it first")

    def remove_token(self, name: str) -> None:
        self._execute("remove_token", (name,))

    # Replicas and the requests they're judging

    def beat(self, replica: str) -> None:
        """Record that a replica is alive, and the schema it uses."""
        own_schema = max(self._list_migrations())  # the newest migration's number
        self._execute("beat", (replica, own_schema))

    def leave(self, replica: str) -> None:
        """Record that a replica has stopped, so that others can take over its requests at once."""
        self._execute("leave", (replica,))

    def tidy(self) -> None:
        """Delete expired answers, dead replicas and surplus cached replies."""
        limits = {"answer": KEEP_ANSWER_SECONDS, "days": MAX_DAYS, "bytes": REPLY_BYTES}
        with self.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = '5min'")
            cursor = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_TIDY_LOCK,))
            (has_lock,) = cursor.fetchone()
            if not has_lock:  # another process is tidying up
                return
            for statement in self._tidy_statements:
                connection.execute(statement, limits)

    def claim(
        self, attempt: Attempt, seconds: float, usd: float, budget: Budget | None
    ) -> str | None:
        """Claim a request for `attempt`. Returns None, or the answer if the request was answered before.

        A claim lasts for `seconds` and reserves `usd` of the budget. Raises `StoreError` if another attempt
        is working on the request or the budget is used up. Raises `UsageError` if the same key was used with
        a different request body.
        """
        values = attempt._asdict() | {"seconds": seconds, "usd": usd, "alive": ALIVE_SECONDS}
        with self.transaction() as connection:
            # Check budgets one at a time. Otherwise two attempts could both reserve the rest of the budget.
            if budget is not None:
                connection.execute(_ACQUIRE_LOCK, (_BUDGET_LOCK,))

            is_claimed = connection.execute(self._sql["claim"], values).fetchone() is not None
            if not is_claimed:
                return self._read_earlier_answer(connection, attempt)

            if budget is not None:
                spending_values = values | {"per": budget.period}
                cursor = connection.execute(self._sql["spent"], spending_values)
                spent, reserved, seconds_to_renewal = cursor.fetchone()
                # If this raises an error, the transaction is rolled back, which removes the claim.
                _check_budget(budget, usd, spent, reserved, seconds_to_renewal)
            return None

    def _read_earlier_answer(self, connection: Connection, attempt: Attempt) -> str:
        """Return the answer to a request that an earlier attempt has claimed.

        Raises `UsageError` if that request had another body, and `StoreError` if it isn't answered yet.
        """
        # The request is gone if the earlier attempt has just given it up. A retry can then claim it.
        request = self._read_request(connection, attempt)
        if request is not None and request.body != attempt.body:
            raise UsageError("this Idempotency-Key came with another request; use a new key")
        if request is None or request.answer is None:
            message = "this request is being judged; ask again for its verdict"
            raise StoreError(message, retry_after=1, wire_name="busy")
        return str(request.answer)

    def _read_request(self, connection: Connection, attempt: Attempt) -> _StoredRequest | None:
        """Read the request that an attempt is about; None if no attempt has claimed it."""
        row = connection.execute(self._sql["earlier"], attempt._asdict()).fetchone()
        return None if row is None else _StoredRequest(*row)

    def finish_attempt(
        self, attempt: Attempt, usd: float, answer: str | None, record: Record | None
    ) -> str:
        """Store an attempt's cost, answer and ledger record, and return the answer to send.

        `answer` and `record` are None if the attempt gave up. If another attempt has answered the request
        first, returns the first answer. Returns "" if there's no answer yet.
        """
        values = attempt._asdict() | {"usd": usd, "answer": answer}
        with self.transaction() as connection:
            # Attempts claim a request before they judge it. Only the one with the claim may answer it.
            had_claim = self._end_claim(connection, values)
            request = self._read_request(connection, attempt)
            first_answer = request.answer if request is not None else None

            # The attempt has cost money even if another one answered.
            if usd:
                self._charge_once(connection, values)

            # Only the attempt with the first answer adds a ledger record.
            if had_claim and record is not None:
                row = _make_row(record, attempt.who, provisional=True)
                connection.execute(self._sql["add"], row)

            return first_answer or ""

    def _end_claim(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Store an attempt's answer, or give the request up if it has none.

        Returns False if the claim had already ended, with an answer or because another replica took over.
        """
        statement = "give_up" if values["answer"] is None else "answer"
        changed_rows: int = connection.execute(self._sql[statement], values).rowcount
        return changed_rows == 1

    def _charge_once(self, connection: Connection, values: dict[str, Any]) -> None:
        """Add an attempt's cost to the spending, unless an earlier call has added it."""
        is_first_charge = connection.execute(self._sql["note_spend"], values).rowcount == 1
        if is_first_charge:
            connection.execute(self._sql["spend"], values)

    # Replies kept for all replicas

    is_quick = False
    """Whether kept replies are read in less than a millisecond: they come over a network."""

    def read_reply(self, key: str) -> StoredText | None:
        """Return the cached reply for `key`; None if it's missing or the store can't be read."""
        rows = []
        with suppress(JudgekitError):
            rows = self._execute("reply", (key,))
        if not rows:
            return None
        text, age = rows[0]
        return StoredText(text=text, age_seconds=age)

    def write_reply(self, key: str, text: str) -> None:
        """Cache a reply under `key`; failures are ignored."""
        with suppress(JudgekitError):
            self._execute("keep_reply", (key, len(text.encode()), text))


def _import_driver() -> ModuleType:
    """Import the database driver. Raises `ConfigError` if it isn't installed."""
    try:
        import psycopg  # noqa: PLC0415 - an optional dependency, which only a store needs
    except ImportError:
        command = files.install_extra("postgres")
        problem = f"psycopg is not installed; run {command}"
        raise ConfigError(problem, key="server.store") from None
    driver: ModuleType = psycopg
    return driver


def _load_statements() -> tuple[dict[str, str], list[str]]:
    """Load the SQL statements by name, and the list of those that tidy up the store."""
    entries = environment.read_toml(__file__, "database.toml")
    tidy_statements: list[str] = entries.pop("tidy")
    # A statement can contain placeholders for other entries of the file.
    statements = {name: _fill_templates(text, entries) for name, text in entries.items()}
    return statements, tidy_statements


def _lock_for_migration(connection: Connection) -> None:
    """Wait until no other process is migrating the store. From then on, limit waits for table locks."""
    # The other process's migration can take longer than the usual limit, and so can ours.
    connection.execute("SET LOCAL statement_timeout = 0")
    connection.execute(_ACQUIRE_LOCK, (_MIGRATION_LOCK,))
    # While a migration waits for a table lock, other statements on that table must wait too. So give up
    # after a few seconds.
    connection.execute("SET LOCAL lock_timeout = '5s'")


def explain_refusal(record: Record) -> str:
    """Explain why a record can't be stored; "" if it can."""
    if len(record.id) > _MAX_ID_LENGTH or not _RECORD_ID_PATTERN.fullmatch(record.id):
        return f"id: expected 1 to {_MAX_ID_LENGTH} printable ASCII characters"
    problem = find_unstorable(record.model_dump(mode="python", by_alias=True))
    if problem:
        return problem
    return store.explain_misplaced(record)


def _make_row(record: Record, holder: str, *, provisional: bool) -> tuple[str, ...]:
    """Return a record's values in the order of the table's columns.

    `holder` is the name on the sender's token, or "". If `provisional`, that sender's own line can replace
    this row later.
    """
    # Some kinds of records, such as verdicts, have no author.
    author = getattr(record, "who", "")
    # PostgreSQL can't store a NUL. The author is limited like the id, since both are in the primary key.
    author = author.replace("\0", "")[:_MAX_ID_LENGTH]
    text = serialise_record(record).rstrip(b"\n").decode()
    timestamp = record.timestamp.isoformat()
    return (
        record.id,
        author,
        record.project,
        record.schema_,
        timestamp,
        holder,
        str(provisional),
        text,
    )


def _get_primary_key(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return the id and author of a row."""
    return row[:2]


def _check_budget(
    budget: Budget, usd: float, spent: float, reserved: float, seconds_to_renewal: float
) -> None:
    """Raise `StoreError` if spending `usd` more would exceed the budget.

    `spent` is the spending in the current period, which ends in `seconds_to_renewal`. `reserved` is set aside
    for running requests.
    """
    budget_text = f"the team's budget of {budget.usd:g} USD a {budget.period}"

    exceeds_budget = spent + usd > budget.usd
    if exceeds_budget:
        problem = f"{budget_text} does not allow {usd:g} more ({spent:.4f} spent)"
        message = f"{problem}; it begins anew {_describe_renewal(budget)}"
        # Add a second, so that a client that waits exactly this long doesn't retry too early.
        retry_after = seconds_to_renewal + 1
        raise StoreError(message, retry_after, status=429, wire_name="budget")

    needs_reserved_money = spent + reserved + usd > budget.usd
    if needs_reserved_money:
        # The running requests may cost less than is reserved for them, so a retry soon can succeed.
        message = f"the rest of {budget_text} is reserved for what is judged now; try again"
        raise StoreError(message, retry_after=5)


def _describe_renewal(budget: Budget) -> str:
    """Say when a budget's next period begins."""
    if budget.period == "day":
        return "at midnight UTC"
    return "when the month ends (UTC)"


def _parse_address(driver: ModuleType, place: str) -> dict[str, str]:
    """Parse a connection string into its parts; raises `ConfigError` if it's malformed."""
    parts: dict[str, str] | None = None
    with suppress(driver.ProgrammingError):
        parts = driver.conninfo.conninfo_to_dict(place)
    if parts is None or _has_stray_password(parts):
        # Don't quote the string, which can contain a password.
        expected = (
            "expected postgresql://USER@HOST:PORT/DATABASE, special characters in a password as %XX"
        )
        raise ConfigError(expected, key="server.store")
    return parts


def _has_stray_password(parts: dict[str, str]) -> bool:
    """Whether an `@` or `/` in the password wasn't escaped, so that the rest was taken for another part."""
    # In `postgresql://ann:pass@word@host`, the first `@` ends the password, and `word@host` becomes the host.
    # In `postgresql://ann:12/34@host`, `ann` becomes the host, and `34@host` the database.
    host = parts.get("host", "")
    database = parts.get("dbname", "")
    if "@" in host or "@" in database:
        return True

    # In `postgresql://ann:pass@wo:rd@host`, the `@` ends the password early, and `rd@host` becomes the port.
    # An address with several hosts has a port for each, separated by commas.
    ports = parts.get("port", "")
    digits = ports.replace(",", "")
    return digits != "" and not digits.isdecimal()


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def _fill_templates(text: str, statements: dict[str, str]) -> str:
    """Replace each `{name}` with the statement of that name, which can contain `{name}`s itself."""
    while "{" in text:
        text = text.format(**statements)
    return text
