"""One budget and one pace for all workers of a run: what is spent and reserved, and whose turn it is to call.

A worker asks the `Broker` a few times a second, however many calls it makes. Its `BrokerClient` uses a turn
for one call after another, and may spend up to a share of what is left. What a worker holds comes back when
it says nothing any more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.errors import FailureKind, GatewayError, Usage, of_failure
from judgekit.judging.round import INEXACT
from judgekit.providers.command import CommandGateway
from judgekit.providers.gateway import Router
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.pace import AT_ONCE, Pace, Paces, Whom, caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from judgekit.providers.base import Endpoint, Reply, Request

    Ask: TypeAlias = Callable[..., Awaitable[Any]]  # the name of a method of the broker, and its arguments

LEASE = 2.0  # seconds in which a worker uses a turn for one call after another
SILENT = 10.0  # seconds after which a worker that says nothing is taken for dead
_BEAT, _SOON = 0.25, 0.02  # seconds between two beats, and when a call waits for one


class Orders(NamedTuple):
    """For a worker: how often each provider has refused, the sum that it may spend, and whether to end."""

    refusals: dict[Whom, int]
    cap_usd: float
    is_over: bool
    is_stopped: bool


@dataclass
class _Account:
    """What a worker holds; `cap_usd` is what it may have spent when it asks again."""

    seen: float
    turns: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    cap_usd: float = 0.0

    def drop(self) -> None:
        for number in list(self.turns):
            self.turns.pop(number).cancel()
        self.reserved_usd, self.cap_usd = 0.0, self.spent_usd


class Broker:
    """Holds the paces of all providers, and the accounts of `workers` that may spend `max_cost_usd`."""

    def __init__(self, max_cost_usd: float | None = None, workers: int = 1) -> None:
        self._limit, self._workers = max_cost_usd, workers
        self._paces: dict[Whom, Pace] = {}
        self._refusals: dict[Whom, int] = {}
        self._accounts: dict[str, _Account] = {}
        self._is_over = self._is_stopped = False

    def stop(self) -> None:
        """Have the workers begin no more rows."""
        self._is_stopped = True

    def spent(self) -> float:
        """Return what all calls cost (USD)."""
        return sum(each.spent_usd for each in self._accounts.values())

    def alive(self) -> list[str]:
        now = time.monotonic()
        return [name for name, each in self._accounts.items() if now - each.seen <= SILENT]

    def begin(self, worker: str) -> None:
        """Note a worker, `PLACE PROCESS`; another process that worked in its place before is dead."""
        place, _, _ = worker.partition(" ")
        for name, account in self._accounts.items():
            if name.partition(" ")[0] == place:
                account.drop()
        self._accounts[worker] = _Account(time.monotonic())

    def beat(self, worker: str, spent_usd: float, reserved_usd: float) -> Orders:
        """Note what a worker has spent and reserved; drop what those hold that have said nothing for long."""
        account, now = self._accounts[worker], time.monotonic()
        account.seen, account.spent_usd, account.reserved_usd = now, spent_usd, reserved_usd
        for each in self._accounts.values():
            if now - each.seen > SILENT:
                each.drop()
        cap = inf if self._limit is None else self._lent(account, self._limit)
        return Orders(self._refusals, cap, self._is_over, self._is_stopped)

    def _lent(self, account: _Account, limit: float) -> float:
        """Let a worker spend, of what is not spent, reserved or lent, half, where there are others."""
        accounts = self._accounts.values()
        self._is_over |= sum(each.spent_usd + each.reserved_usd for each in accounts) >= limit * (1 - INEXACT)
        others = [each for each in accounts if each is not account]
        own = account.spent_usd + account.reserved_usd
        lent = sum(max(each.cap_usd, each.spent_usd + each.reserved_usd) for each in others)
        account.cap_usd = own + max(0.0, limit - own - lent) / (2 if others else 1)
        return account.cap_usd

    async def turn(self, worker: str, number: int, whom: Whom, seconds: float) -> GatewayError | None:
        """Return when a worker has a turn, which it holds until `end`; or why it gets none in time."""
        account, pace = self._accounts[worker], self._pace(whom)
        ended = account.turns[number] = asyncio.get_running_loop().create_future()
        got = asyncio.get_running_loop().create_future()

        async def hold() -> None:
            caller.set(worker)
            try:
                async with pace.turn(time.monotonic() + seconds):
                    got.set_result(None)
                    await ended
            except GatewayError as error:
                account.turns.pop(number, None)
                got.set_result(error)

        holding = asyncio.create_task(hold())
        ended.add_done_callback(lambda _: holding.cancel())
        await asyncio.wait({got, ended}, return_when=asyncio.FIRST_COMPLETED)
        return got.result() if got.done() else None

    def end(self, worker: str, number: int) -> None:
        """Take a turn back, or a wish for one."""
        if ended := self._accounts[worker].turns.pop(number, None):
            ended.cancel()

    def heard(self, whom: Whom, well: int, reason: FailureKind | None, seconds: float | None) -> None:
        """Learn that so many answers came, or that a provider wants a pause of `seconds`, and why."""
        pace = self._pace(whom)
        for _ in range(well):
            pace.went_well()
        if reason is None:
            return
        self._refusals[whom] = self._refusals.get(whom, 0) + 1
        if reason is FailureKind.RATE_LIMIT:
            pace.was_too_much(seconds)
        else:
            pace.pause(seconds, reason)

    def _pace(self, whom: Whom) -> Pace:
        if whom not in self._paces:
            self._paces[whom] = Pace(whom.most or AT_ONCE * self._workers, whom.per_minute)
        return self._paces[whom]


@dataclass(eq=False)
class _Turn:
    number: int
    until: float
    refusals: int
    idle_since: float = inf


class SharedPace(Pace):
    """The turns of a worker to ask one provider, which all workers share."""

    def __init__(self, client: BrokerClient, whom: Whom) -> None:
        super().__init__()
        self._client, self._whom = client, whom
        self._spare = deque[_Turn]()
        self._waiting = self._well = 0
        self.refusals = 0

    @asynccontextmanager
    async def turn(self, end: float = inf) -> AsyncIterator[None]:
        held = await self._take(end)
        try:
            yield
        finally:
            held.idle_since = time.monotonic()
            if self._lasts(held) and not self._waiting:
                self._spare.append(held)
            else:
                self._client.tell("end", held.number)

    def went_well(self) -> None:
        self._well += 1

    def was_too_much(self, seconds: float | None) -> None:
        self.pause(seconds)

    def pause(self, seconds: float | None, reason: FailureKind = FailureKind.RATE_LIMIT) -> None:
        self.refusals += 1  # no turn that is held now is used for another call
        self._client.tell("heard", self._whom, 0, reason, seconds, worker=False)

    async def _take(self, end: float) -> _Turn:
        while self._spare:
            if self._lasts(held := self._spare.pop()):
                return held
            self._client.tell("end", held.number)
        number, seconds = next(self._client.numbers), min(end - time.monotonic(), 86_400.0)
        self._waiting += 1
        try:
            error: GatewayError | None = await self._client.ask("turn", number, self._whom, seconds)
        except asyncio.CancelledError:
            self._client.tell("end", number)
            raise
        finally:
            self._waiting -= 1
        if error is not None:
            raise error
        return _Turn(number, time.monotonic() + LEASE, self.refusals)

    def _lasts(self, held: _Turn) -> bool:
        is_fresh = time.monotonic() < held.until and held.refusals == self.refusals
        return is_fresh and self._whom.per_minute is None  # of a limit for each minute a turn is one call

    def beat(self, refusals: int) -> None:
        """Give back the turns that no call took since the last beat; say how many answers came."""
        self.refusals = max(self.refusals, refusals)
        while self._spare and self._spare[0].idle_since < time.monotonic() - _BEAT:
            self._client.tell("end", self._spare.popleft().number)
        if self._well:
            self._client.tell("heard", self._whom, self._well, None, None, worker=False)
            self._well = 0


class SharedPaces(Paces):
    def __init__(self, client: BrokerClient) -> None:
        super().__init__()
        self._client = client

    def made(self, whom: Whom) -> SharedPace:
        return SharedPace(self._client, whom)


class BrokerClient:
    """A worker's side, for one event loop: `call` reaches the broker, `lost` says why it does so no more."""

    def __init__(self, call: Ask, worker: str) -> None:
        self.paces, self.numbers = SharedPaces(self), count(1)
        self.is_stopped = self.is_over = False
        self.spent_usd = 0.0
        self.lost: Exception | None = None
        self._call, self._worker = call, worker
        self._calls = self._flying = 0
        self._cap_usd, self._hurry, self._heard = 0.0, asyncio.Event(), asyncio.Event()
        self._tasks = set[asyncio.Task[None]]()

    @property
    def is_ending(self) -> bool:
        """Whether no more rows are to be begun."""
        return self.is_stopped or self.is_over

    async def ask(self, name: str, *values: object, worker: bool = True) -> Any:  # noqa: ANN401 - what it returns
        """Ask the broker; where it is lost raises `GatewayError`, and no more rows are begun."""
        try:
            return await self._call(name, *([self._worker] if worker else []), *values)
        except Exception as error:  # noqa: BLE001 - whatever a lost actor raises; the worker raises it
            self.lost, self.is_stopped = error, True
            self._heard.set()
            told = "what shares the budget and the pace was lost"
            raise GatewayError(FailureKind.BUDGET, told, usage=Usage()) from None

    def tell(self, name: str, *values: object, worker: bool = True) -> None:
        async def told() -> None:
            with suppress(GatewayError):  # `lost` says it
                await self.ask(name, *values, worker=worker)

        task = asyncio.create_task(told())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def beats(self) -> None:
        """Tell the broker what is spent, and hear what may be, until it is lost."""
        while True:
            reserved = self._flying * self._mean
            orders: Orders = await self.ask("beat", self.spent_usd, reserved)
            self._cap_usd, self.is_over, self.is_stopped = orders[1:]
            for whom, pace in self.paces.items():
                if isinstance(pace, SharedPace):  # as all of them are
                    pace.beat(orders.refusals.get(whom, 0))
            self._heard.set()
            self._heard = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT):
                    await self._hurry.wait()
            self._hurry.clear()
            await asyncio.sleep(_SOON)

    @property
    def _mean(self) -> float:
        return self.spent_usd / self._calls if self._calls else 0.0

    async def reserve(self) -> None:
        """Wait until a call may be paid; raises `GatewayError` when the limit of the run is reached."""
        while self.spent_usd + self._flying * self._mean >= self._cap_usd:
            if self.is_over or self.lost:
                told = "the limit of the run is reached"
                raise GatewayError(FailureKind.BUDGET, told, usage=Usage())
            self._hurry.set()
            await self._heard.wait()
        self._flying += 1

    def settle(self, usage: Usage) -> None:
        """Put what a call took in the place of its reservation."""
        self._flying -= 1
        self._calls += usage.cost_usd is not None
        self.spent_usd += usage.cost_usd or 0.0


class SharedGateway(Router):
    """Reaches every kind of provider, within the budget and the pace of the run."""

    def __init__(self, client: BrokerClient) -> None:
        paces = client.paces
        super().__init__({"litellm": LitellmGateway(_paces=paces), "command": CommandGateway(_paces=paces)})
        self._client = client

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        await self._client.reserve()
        usage = Usage()
        try:
            reply = await super().complete(endpoint, request)
            usage = reply.usage
        except GatewayError as error:
            usage = of_failure(error)
            raise
        finally:
            self._client.settle(usage)
        return reply
