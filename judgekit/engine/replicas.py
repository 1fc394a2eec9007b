"""One of several servers sharing a store: it judges each request once, within the team's budget.

A request belongs to one attempt at a time. An answer is committed before its client gets it, and only the
attempt that holds the request can commit: one that lost it, since its replica seemed dead, never sends an
answer of its own.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from judgekit.config.settings import build_error
from judgekit.engine.admission import Tokens, hash_text, open_user_tokens, read_tokens
from judgekit.errors import (
    ConfigError,
    GatewayError,
    JudgekitError,
    StoreError,
    usage_of_failed_call,
)
from judgekit.judging.cache import ReplyCache
from judgekit.ledger.database import CONNECTIONS, Attempt, Budget, Database
from judgekit.ledger.records import make_verdict_line
from judgekit.providers import retrying, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from judgekit.config.settings import Config
    from judgekit.engine.process import Log
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

    Judged: TypeAlias = Callable[[DocumentJudge], Awaitable[Verdict]]

Value = TypeVar("Value")

SERVED_PROJECT = "serve-000000000000"
"""The ledger of verdicts given to clients, until these send lines of their own about them."""
TOKEN_SECONDS = 1.0  # at most, until a revoked token is refused
BEAT_SECONDS = 3.0
_TIDY_SECONDS = 600.0
_STORE_SECONDS = 15.0  # to keep trying to store a verdict, while the database restarts
_RETRY_SECONDS = 0.25
_MAX_UNRECORDED = 1000
_GRACE_SECONDS = 30.0  # after its deadline, before an attempt counts as abandoned


class StoreTokens(Tokens):
    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self) -> list[Any]:
        return self._database.tokens()

    @contextmanager
    def _change_rows(self) -> Iterator[list[Any]]:
        """Yield a list to which the caller adds rows, or from which it removes some, then store the changes.

        The caller mustn't edit a row.
        """
        stored_rows = self.rows()
        wanted_rows = list(stored_rows)
        yield wanted_rows
        for row in wanted_rows:
            if row not in stored_rows:
                self._database.add_token(row["name"], row["sha256"], row["created"])
        for row in stored_rows:
            if row not in wanted_rows:
                self._database.remove_token(row["name"])


def open_tokens(settings: Config) -> Tokens:
    """Return the team server's tokens. They are in the store, or on this machine if there's no store."""
    store = settings.server.store
    if store is None:
        return open_user_tokens()
    return StoreTokens(Database(store))


class _Meter:
    """A gateway that adds up the cost of its calls, including those of a judging that doesn't finish."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.usd = 0.0

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Complete a request, and add its cost to `usd`, even if it fails. Unknown costs count as 0."""
        try:
            reply = await self._gateway.complete(endpoint, request)
        except GatewayError as error:
            self.usd += usage_of_failed_call(error).cost_usd or 0.0
            raise
        self.usd += reply.usage.cost_usd or 0.0
        return reply

    async def aclose(self) -> None: ...


class Replica:
    """This process as one of the servers that share a store; raises `ConfigError` if it can't be one."""

    def __init__(
        self, settings: Config, database: Database, budget: Budget | None, log: Log
    ) -> None:
        """Create a replica. Calling `stay_registered` makes it known to the other replicas."""
        self.database = database
        self.id = uuid.uuid4().hex
        # Through this separate connection, the replica reports that it's alive. Requests can use up all
        # connections of `database`.
        self._pulse = Database(settings.server.store or "")
        self._log = log
        # Whether ledger lines keep the texts that a verdict quotes.
        self._keeps_quotes = settings.ledger.text
        self._budget = budget
        self._free_connections = asyncio.Semaphore(CONNECTIONS)
        # Functions that record how an attempt ended, to call once the store works again.
        self._unrecorded_endings: deque[Callable[[], str]] = deque(maxlen=_MAX_UNRECORDED)

        self.tokens = StoreTokens(database)
        self._holder_by_sha256: dict[str, str] = {}
        self._damaged_names: list[str] = []  # names of tokens
        # So long ago that the first request reads the tokens.
        self._tokens_read_at = -TOKEN_SECONDS
        self._reading_task: asyncio.Task[None] | None = None
        self._reading_failure = ""

    async def run_in_thread(
        self, work: Callable[[], Value], free_connections: asyncio.Semaphore | None = None
    ) -> Value:
        """Run `work` in a thread once a database connection is free, and return its result."""
        async with free_connections or self._free_connections:
            task = asyncio.ensure_future(running.run_in_thread(work))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                # Wait anyway, because a thread can't be stopped and holds its connection until it finishes.
                await asyncio.gather(task, return_exceptions=True)
                raise

    @asynccontextmanager
    async def stay_registered(self) -> AsyncIterator[None]:
        """Keep this replica registered as alive, so that other replicas don't take over its requests."""
        # Unlike `self.run_in_thread`, this doesn't wait for a free connection, because `_pulse` has its own.
        await running.run_in_thread(partial(self._pulse.beat, self.id))
        heartbeat = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            heartbeat.cancel()
            # A late beat would register the replica again, so wait until `_beat` has ended.
            await asyncio.gather(heartbeat, return_exceptions=True)
            with suppress(JudgekitError):
                await self._catch_up()  # the last chance to record how earlier attempts ended
                await self.run_in_thread(partial(self.database.leave, self.id))
            self.database.close()
            self._pulse.close()

    async def _beat(self) -> None:
        """Report this replica as alive every few seconds, and tidy the store occasionally."""
        tidied_at = time.monotonic()
        # A beat waits only for the connection of `_pulse`, even if requests use all the others.
        pulse_semaphore = asyncio.Semaphore(1)
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                send_beat = partial(self._pulse.beat, self.id)
                await self.run_in_thread(send_beat, pulse_semaphore)
                await self._catch_up()  # if the store failed before, it may work again
                if time.monotonic() - tidied_at > _TIDY_SECONDS:
                    tidied_at = time.monotonic()
                    await self.run_in_thread(self.database.tidy)
            except JudgekitError as error:
                self._log.add(str(error))

    async def _catch_up(self) -> None:
        """Record how earlier attempts ended, if the store couldn't record that before.

        Raises the store's error if it still can't.
        """
        while self._unrecorded_endings:
            record_ending = self._unrecorded_endings.popleft()
            try:
                await self.run_in_thread(record_ending)
            except BaseException:
                # Try again next time, after the others.
                self._unrecorded_endings.append(record_ending)
                raise

    async def refresh_tokens(self) -> None:
        """Read the tokens from the store, at most once a second.

        Raises `StoreError` if the last reading failed, even if that was less than a second ago.
        """
        if time.monotonic() - self._tokens_read_at > TOKEN_SECONDS:
            if self._reading_task is None:
                self._reading_task = asyncio.create_task(self._read_tokens())
            # If this caller is cancelled, the task goes on, because other callers may be waiting for it.
            await asyncio.shield(self._reading_task)
        if self._reading_failure:
            raise StoreError(self._reading_failure)

    async def _read_tokens(self) -> None:
        """Read the tokens from the store, and log newly damaged rows.

        If the store fails, logs this and sets `_reading_failure`. `refresh_tokens` then raises an error.
        """
        try:
            rows = await self.run_in_thread(self.tokens.rows)
            tokens, damaged_names = read_tokens(rows)
            self._holder_by_sha256 = {token.sha256: token.name for token in tokens}
            self._reading_failure = ""
            self._log_damaged_rows(damaged_names)
        except JudgekitError as error:
            self._log.add(str(error))
            self._reading_failure = "the store does not answer; try again"
        finally:
            self._tokens_read_at = time.monotonic()
            self._reading_task = None  # the next refresh starts a new one

    def _log_damaged_rows(self, damaged_names: list[str]) -> None:
        """Log the damaged rows of the tokens' table, unless they're the same as at the last reading."""
        have_changed = damaged_names != self._damaged_names
        if have_changed:
            names = ", ".join(damaged_names)
            self._log.add(f"these rows of tokens are none, and let nobody in: {names}")
        self._damaged_names = damaged_names

    async def find_holder(self, token: str) -> str | None:
        """Return the name of a token's holder, or None if the token is unknown.

        Raises `StoreError` if the tokens can't be read.
        """
        await self.refresh_tokens()
        return self._holder_by_sha256.get(hash_text(token))

    async def answer(
        self, holder: str, key: str | None, text: str, *, judge: DocumentJudge, run_judge: Judged
    ) -> bytes:
        """Return the answer stored under `key`. If there's none, judge the request and store the answer.

        `holder` is the name on the client's token, and `text` the request's body. Raises `UsageError` if
        `key` was already used with a different body. Raises `StoreError` if the store fails, or if another
        replica is judging the request.
        """
        attempt = self._make_attempt(holder, key, text)
        meter = _Meter(judge.gateway)
        store_answer = None
        try:
            # First record earlier attempts, which may have answered this request.
            await self._catch_up()
            earlier_answer = await self._claim(attempt, judge)
            if earlier_answer is not None:
                return earlier_answer.encode()

            verdict = await run_judge(self._adapt_judge(judge, meter))
            # Store the answer before returning it, so that every attempt returns the same one.
            store_answer = self._build_ending(attempt, meter.usd, verdict)
            stored_answer = await self._retry_in_thread(store_answer)
        except BaseException:
            # If there's an answer already, store it later. Otherwise record only the cost until now.
            record_cost = partial(self.database.finish_attempt, attempt, meter.usd, None, None)
            await self._record_ending(store_answer or record_cost)
            raise

        if not stored_answer:  # another replica took over, because this one was too slow
            message = "another replica judges this request; ask again for its verdict"
            raise StoreError(message, retry_after=1)
        return stored_answer.encode()

    def _make_attempt(self, holder: str, key: str | None, text: str) -> Attempt:
        """Make a new attempt at a client's request. Without a key, the request counts as a new one."""
        attempt_id = uuid.uuid4().hex
        request_key = attempt_id if key is None else f"client:{key}"
        return Attempt(
            who=holder,
            key=request_key,
            body=hash_text(text),
            attempt=attempt_id,
            replica=self.id,
        )

    async def _claim(self, attempt: Attempt, judge: DocumentJudge) -> str | None:
        """Claim a request for this attempt, and reserve the request's maximum cost in the budget.

        Returns the stored answer if the request already has one, otherwise None. Raises `StoreError` if
        the store fails, or if another replica has claimed the request.
        """
        # After this time, the claim ends, because an attempt that isn't finished by then was abandoned.
        claim_seconds = judge.settings.timeout + _GRACE_SECONDS
        reserved_usd = 0.0
        if self._budget:
            reserved_usd = judge.settings.max_cost_usd or 0.0
        claim = partial(
            self.database.claim,
            attempt,
            seconds=claim_seconds,
            usd=reserved_usd,
            budget=self._budget,
        )
        return await self.run_in_thread(claim)

    def _adapt_judge(self, judge: DocumentJudge, meter: _Meter) -> DocumentJudge:
        """Return a copy of the judge that counts its costs, and shares cached replies with all replicas."""
        cache = None if judge.cache is None else ReplyCache(self.database)
        return replace(judge, gateway=meter, cache=cache)

    def _build_ending(self, attempt: Attempt, usd: float, verdict: Verdict) -> Callable[[], str]:
        """Return a function that stores an attempt's answer, and the verdict's line in the ledger."""
        # The server can't know if a gate asked for this verdict. Record it as a verdict on a task, because
        # those don't count in the gate's figures. The client can replace this line with its own later.
        task_line = make_verdict_line(verdict, text=self._keeps_quotes, of_task=True)
        ledger_line = task_line.model_copy(update={"project": SERVED_PROJECT})
        answer = verdict.model_dump_json(by_alias=True)
        return partial(self.database.finish_attempt, attempt, usd, answer, ledger_line)

    async def _retry_in_thread(self, work: Callable[[], Value]) -> Value:
        """Run `work` in a thread. Retry for 15 seconds while it raises `StoreError`."""

        def is_store_failure(failure: Exception, _: int) -> bool:
            return isinstance(failure, StoreError)

        # The time limit ends the tries, so their number is unlimited. The pause that the error suggests is
        # meant for clients, so it isn't used here.
        tries = retrying.Tries(inf, pauses=(_RETRY_SECONDS,), uses_suggested_pause=False)
        call = partial(self.run_in_thread, work)
        return await retrying.call(
            call, tries, should_retry=is_store_failure, seconds=_STORE_SECONDS
        )

    async def _record_ending(self, record_ending: Callable[[], str]) -> None:
        """Record how a failed attempt ended. If the store fails, `_catch_up` tries again later."""
        self._unrecorded_endings.append(record_ending)
        # Try at once, so that a retry of the request gets the stored answer, or needn't wait until this
        # attempt's claim ends.
        with suppress(JudgekitError):
            await self._catch_up()


def _read_budget(settings: Config) -> Budget | None:
    """Return the configured budget, or None if there's none.

    Raises `ConfigError` if there's no store to keep the budget in, or if the cost limit per verdict is
    missing or higher than the budget.
    """
    budget_usd = settings.server.budget_usd
    if budget_usd is None:
        return None
    problem = _find_budget_problem(settings, budget_usd)
    if problem:
        raise build_error("server", "budget_usd", problem, None)
    return Budget(budget_usd, settings.server.budget_per)


def _find_budget_problem(settings: Config, budget_usd: float) -> str:
    """Explain why the settings don't allow this budget. Returns "" if they do."""
    if settings.server.store is None:
        return "a budget is kept in the store; set server.store, or remove this key"
    verdict_limit = settings.judge.max_cost_usd
    if not verdict_limit:
        return "each judging reserves its own limit; set judge.max_cost_usd to what one may cost"
    if verdict_limit > budget_usd:
        return f"below judge.max_cost_usd ({verdict_limit:g}), so nothing fits"
    return ""


def join_store(settings: Config, log: Log) -> Replica | None:
    """Make this process a replica, which shares a store with others. Returns None if no store is configured.

    Raises `ConfigError` if the store can't be used, or the budget is invalid.
    """
    # Check the budget even if there's no store, because then a budget is an error.
    budget = _read_budget(settings)
    if settings.server.store is None:
        return None
    database = Database(settings.server.store)
    try:
        database.check()
    except StoreError as error:
        raise ConfigError(str(error)) from None
    return Replica(settings, database, budget, log)
