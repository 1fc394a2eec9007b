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

from judgekit.config.settings import wrong
from judgekit.engine.admission import Tokens, read_tokens, sha256_of, user_tokens
from judgekit.errors import (
    ConfigError,
    GatewayError,
    JudgekitError,
    StoreError,
    usage_of_failed_call,
)
from judgekit.judging.cache import ReplyCache
from judgekit.ledger.database import CONNECTIONS, Attempt, Budget, Database
from judgekit.ledger.records import verdict_line
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

SERVED = "serve-000000000000"
"""The ledger of verdicts given to clients, until these send lines of their own about them."""
TOKEN_SECONDS = 1.0  # at most, until a revoked token is refused
BEAT_SECONDS = 3.0
_TIDY_SECONDS = 600.0
_SURELY_SECONDS = 15.0  # to keep trying to store a verdict, while the database restarts
_AGAIN_SECONDS = 0.25
_MOST_ENDINGS = 1000
_SLACK = 30.0  # seconds beyond its deadline until a judging counts as abandoned


class StoreTokens(Tokens):
    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self) -> list[Any]:
        return self._database.tokens()

    @contextmanager
    def _change_rows(self) -> Iterator[list[Any]]:
        before = self.rows()
        rows = list(before)
        yield rows
        for row in rows:
            if row not in before:
                self._database.add_token(row["name"], row["sha256"], row["created"])
        for row in before:
            if row not in rows:
                self._database.remove_token(row["name"])


def tokens_of(settings: Config) -> Tokens:
    """Return the shared judge's tokens: from the store if there's one, else from this machine."""
    store = settings.server.store
    if store is None:
        return user_tokens()
    return StoreTokens(Database(store))


class _Meter:
    """A gateway that adds up the cost of its calls, including those of a judging that doesn't finish."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.usd = 0.0

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
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
        self.database = database
        self.id = uuid.uuid4().hex
        # A connection of its own, so that a queue of requests doesn't make this replica look dead.
        self._pulse = Database(settings.server.store or "")
        self._log = log
        self._text = settings.ledger.text
        self._budget = budget
        self.tokens = StoreTokens(database)
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._reading: asyncio.Task[None] | None = None
        self._holders: dict[str, str] = {}
        self._damaged: list[str] = []  # tokens
        # Endings that the store couldn't record yet.
        self._endings: deque[Callable[[], str]] = deque(maxlen=_MOST_ENDINGS)
        self._read = -TOKEN_SECONDS
        self._failure = ""

    async def run_in_thread(
        self, work: Callable[[], Value], turns: asyncio.Semaphore | None = None
    ) -> Value:
        """Run `work` with the store in a thread; a cancelled caller still waits for its end."""
        async with turns or self._turns:
            task = asyncio.ensure_future(running.run_in_thread(work))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.gather(task, return_exceptions=True)
                raise

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Report this replica as alive while inside, so that others leave its requests alone."""
        await running.run_in_thread(partial(self._pulse.beat, self.id))
        beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beating.cancel()
            # Otherwise a beat could come after the leave.
            await asyncio.gather(beating, return_exceptions=True)
            with suppress(JudgekitError):
                await self._catch_up()
                await self.run_in_thread(partial(self.database.leave, self.id))
            self.database.close()
            self._pulse.close()

    async def _beat(self) -> None:
        tidied = time.monotonic()
        turns = asyncio.Semaphore()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                await self.run_in_thread(partial(self._pulse.beat, self.id), turns)
                await self._catch_up()
                if time.monotonic() - tidied > _TIDY_SECONDS:
                    tidied = time.monotonic()
                    await self.run_in_thread(self.database.tidy)
            except JudgekitError as error:
                self._log.add(str(error))

    async def _catch_up(self) -> None:
        while self._endings:
            ending = self._endings.popleft()
            try:
                await self.run_in_thread(ending)
            except BaseException:
                self._endings.append(ending)
                raise

    async def look(self) -> None:
        """Read the tokens, at most once a second; raises `StoreError` while that fails."""
        if time.monotonic() - self._read > TOKEN_SECONDS:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read_tokens())
            await asyncio.shield(self._reading)  # a caller that hangs up leaves it to the others
        if self._failure:
            raise StoreError(self._failure)

    async def _read_tokens(self) -> None:
        try:
            tokens, damaged = read_tokens(await self.run_in_thread(self.tokens.rows))
            self._holders = {each.sha256: each.name for each in tokens}
            self._failure = ""
            if damaged != self._damaged:
                self._log.add(
                    f"these rows of tokens are none, and let nobody in: {', '.join(damaged)}"
                )
            self._damaged = damaged
        except JudgekitError as error:
            self._log.add(str(error))
            self._failure = "the store does not answer; try again"
        finally:
            self._read = time.monotonic()
            self._reading = None

    async def holder(self, token: str) -> str | None:
        await self.look()
        return self._holders.get(sha256_of(token))

    async def answer(
        self, who: str, key: str | None, body: str, judge: DocumentJudge, judged: Judged
    ) -> bytes:
        """Answer a request: by `judged`, or with the answer stored under `key`; raises `StoreError`.

        A stored answer is committed before it's returned, so every attempt returns the same one.
        """
        own = uuid.uuid4().hex
        if key is None:
            name = own
        else:
            name = f"client:{key}"
        attempt = Attempt(who, name, sha256_of(body), own, self.id)
        if self._budget:
            usd = judge.settings.max_cost_usd or 0.0
        else:
            usd = 0.0
        claim = partial(
            self.database.claim, attempt, judge.settings.timeout + _SLACK, usd, self._budget
        )
        meter = _Meter(judge.gateway)
        ending = None
        try:
            await self._catch_up()  # it may be this very request
            stored = await self.run_in_thread(claim)
            if stored is not None:
                return stored.encode()
            if judge.cache is None:
                cache = None
            else:
                cache = ReplyCache(self.database)
            verdict = await judged(replace(judge, gateway=meter, cache=cache))
            # Recorded as a task's verdict, not a gate's, until its client says so.
            line = verdict_line(verdict, text=self._text, of_task=True).model_copy(
                update={"project": SERVED}
            )
            answer = verdict.model_dump_json(by_alias=True)
            ending = partial(self.database.finish_attempt, attempt, meter.usd, answer, line)
            stored = await self._retry_in_thread(ending)
        except BaseException:
            # Retries get the stored verdict or can start at once, and the cost is on record.
            self._endings.append(
                ending or partial(self.database.finish_attempt, attempt, meter.usd, None, None)
            )
            with suppress(JudgekitError):
                await self._catch_up()
            raise
        if not stored:
            raise StoreError("another replica judges this request; ask again for its verdict", 1)
        return stored.encode()

    async def _retry_in_thread(self, work: Callable[[], Value]) -> Value:
        """Run `work`, retrying for a while: an answer that's been paid for mustn't get lost."""
        # The pause that a failure suggests to clients doesn't bind this loop.
        tries = retrying.Tries(inf, (_AGAIN_SECONDS,), keeps_to_request=False)

        def passes(failure: Exception, _: int) -> bool:
            return isinstance(failure, StoreError)

        return await retrying.call(
            partial(self.run_in_thread, work), tries, passes=passes, seconds=_SURELY_SECONDS
        )


def _budget(settings: Config) -> Budget | None:
    server = settings.server
    limit = settings.judge.max_cost_usd
    if server.budget_usd is None:
        return None
    if server.store is None:
        problem = "a budget is kept in the store; set server.store, or remove this key"
    elif not limit:
        problem = "each judging reserves its own limit; set judge.max_cost_usd to what one may cost"
    elif limit > server.budget_usd:
        problem = f"below judge.max_cost_usd ({limit:g}), so nothing fits"
    else:
        return Budget(server.budget_usd, server.budget_per)
    raise wrong("server", "budget_usd", problem, None)


def joined(settings: Config, log: Log) -> Replica | None:
    """Join the configured store as a replica; None without a store; raises `ConfigError`."""
    budget = _budget(settings)
    if settings.server.store is None:
        return None
    database = Database(settings.server.store)
    try:
        database.check()
    except StoreError as error:
        raise ConfigError(str(error)) from None
    return Replica(settings, database, budget, log)
