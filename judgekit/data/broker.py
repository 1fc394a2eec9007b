"""One budget and one pace for all workers of a run: tracks spending and decides who may call next.

A few times a second, a worker's `BrokerClient` tells the `Broker` how much it has spent and how many turns it
wants. It may then spend up to a share of the rest, and uses its turns for one call after another. If it goes
silent, its turns and its money are taken back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import FailureKind, GatewayError, Usage, usage_of_failed_call
from judgekit.judging.round import INEXACT
from judgekit.providers.command import CommandGateway
from judgekit.providers.gateway import Router
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.pace import AT_ONCE, PAUSED, Pace, Paces, Whom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from judgekit.providers.base import Endpoint, Reply, Request

SILENT = 10.0  # seconds of silence after which a worker counts as dead
_BEAT = 0.25
_SOON = 0.02  # seconds between two beats at least


class PaceReport(NamedTuple):
    """A worker's report on a provider since its last beat.

    It has the number of turns that the worker wants in addition, the number it holds, the number of answers,
    and the pauses that the provider asked for: the reason and the seconds of each.
    """

    wanted: int
    held: int = 0
    answers: int = 0
    refusals: tuple[tuple[FailureKind, float | None], ...] = ()


class Turns(NamedTuple):
    """A worker's additional turns, the number it may keep for further calls, and the wait for others."""

    more: int
    lasting: int
    wait: tuple[float, FailureKind, str]


class Orders(NamedTuple):
    """Orders for a worker: its turns at each provider, the sum it may spend, and whether to end."""

    turns: dict[Whom, Turns]
    cap_usd: float
    is_over: bool
    is_stopped: bool


@dataclass
class _Account:
    """A worker's share of the run; by its next report it may have spent `cap_usd` in all."""

    seen: float
    held: Counter[Whom] = field(default_factory=Counter)
    wanted: Counter[Whom] = field(default_factory=Counter)
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    cap_usd: float = 0.0

    @property
    def used_usd(self) -> float:
        return self.spent_usd + self.reserved_usd


class Broker:
    """Keeps each provider's pace and each worker's account; together they may spend `max_cost_usd`."""

    def __init__(self, max_cost_usd: float | None = None, workers: int = 1) -> None:
        self._limit = max_cost_usd
        self._workers = workers
        self._paces: dict[Whom, Pace] = {}
        self._accounts: dict[str, _Account] = {}
        self._is_over = self._is_stopped = False
        self._job = b""

    def stop(self) -> None:
        """Let the workers begin no more rows."""
        self._is_stopped = True

    def spent(self) -> float:
        """Return the cost of all calls in US dollars."""
        return sum(account.spent_usd for account in self._accounts.values())

    def alive(self) -> list[str]:
        """List the workers that have reported lately."""
        now = time.monotonic()
        accounts = self._accounts
        return [name for name in accounts if now - accounts[name].seen <= SILENT]

    def learn(self, job: bytes) -> None:
        """Keep the job that workers will ask for."""
        self._job = job

    def begin(self, worker: str) -> bytes:
        """Register a worker by its name, `PLACE PROCESS`, and return its job.

        An earlier worker in the same place must have died, so its turns and money are taken back.
        """
        worker_place, _, _ = worker.partition(" ")
        for name, account in self._accounts.items():
            other_place, _, _ = name.partition(" ")
            if other_place == worker_place:
                self._take_back(account)
        self._accounts[worker] = _Account(time.monotonic())
        return self._job

    def beat(
        self, worker: str, spent_usd: float, reserved_usd: float, reports: Mapping[Whom, PaceReport]
    ) -> Orders:
        """Take a worker's report and give it orders; take back the turns and money of silent workers."""
        account = self._accounts[worker]
        now_s = time.monotonic()
        account.seen = now_s
        account.spent_usd = spent_usd
        account.reserved_usd = reserved_usd
        for other_account in self._accounts.values():
            if now_s - other_account.seen > SILENT:
                self._take_back(other_account)
        turns = {}
        for whom, report in reports.items():
            turns[whom] = self._give_turns(account, whom, report)
        cap_usd = inf if self._limit is None else self._lend_money(account, self._limit)
        return Orders(turns, cap_usd, self._is_over, self._is_stopped)

    def _lend_money(self, account: _Account, limit: float) -> float:
        """Lend a worker money of the run that's free: neither spent nor reserved nor lent.

        If there are other workers, it gets only half of this money. Returns the sum in US dollars that the
        worker may have spent in all. Ends the run if the whole limit is spent or reserved.
        """
        accounts = self._accounts.values()
        used_usd = sum(other.used_usd for other in accounts)
        if used_usd >= limit * (1 - INEXACT):
            self._is_over = True
        other_accounts = [other for other in accounts if other is not account]
        lent_to_others_usd = sum(max(other.cap_usd, other.used_usd) for other in other_accounts)
        free_usd = max(0.0, limit - account.used_usd - lent_to_others_usd)
        lent_usd = free_usd / 2 if other_accounts else free_usd
        account.cap_usd = account.used_usd + lent_usd
        return account.cap_usd

    def _give_turns(self, account: _Account, whom: Whom, report: PaceReport) -> Turns:
        """Adjust a provider's pace to the answers that a worker reports, and give the worker turns.

        A worker gets at most its share of the turns.
        """
        if whom not in self._paces:
            self._paces[whom] = Pace(whom.most or AT_ONCE * self._workers, whom.per_minute)
        pace = self._paces[whom]
        _adjust_pace(pace, report)

        # Negative if the worker was silent, lost its turns, and has come back.
        given_back = account.held[whom] - report.held
        pace.give(given_back)
        account.held[whom] = report.held
        account.wanted[whom] = report.wanted

        share = self._compute_share(whom, pace)
        wait = pace.wait()
        allowed = share
        has_given_back = given_back > 0
        # Workers without a share go one after another: a turn given back goes to another worker first.
        if share == 0 and not has_given_back:
            allowed = 1
        new_turns = pace.take(min(report.wanted, allowed - report.held))
        account.held[whom] += new_turns
        # If calls are limited per minute, each one needs a turn of its own.
        lasting_turns = 0 if whom.per_minute else share
        return Turns(new_turns, lasting_turns, wait)

    def _compute_share(self, whom: Whom, pace: Pace) -> int:
        """Divide a provider's turns among the workers that hold or want some.

        The share is rounded up. It's 0 if there are more such workers than turns.
        """
        users = 0
        for account in self._accounts.values():
            if account.held[whom] + account.wanted[whom] > 0:
                users += 1
        if pace.limit() < users:
            return 0
        return ceil(pace.limit() / max(1, users))  # nobody may hold or want any

    def _take_back(self, account: _Account) -> None:
        """Take back a worker's turns, and the money that it was lent but hasn't spent."""
        for whom, turns in account.held.items():
            self._paces[whom].give(turns)
        account.held.clear()
        account.wanted.clear()
        account.reserved_usd = 0.0
        account.cap_usd = account.spent_usd


def _adjust_pace(pace: Pace, report: PaceReport) -> None:
    """Speed a provider's pace up for a worker's answers, and slow it down for the provider's refusals."""
    for _ in range(report.answers):
        pace.went_well()
    for reason, seconds in report.refusals:
        if reason is FailureKind.RATE_LIMIT:
            pace.was_too_much(seconds)
        else:
            pace.pause(seconds, reason)


class SharedPace(Pace):
    """A worker's turns at one provider that all workers share."""

    def __init__(self, report_now: asyncio.Event) -> None:
        super().__init__(0)
        self._report_now = report_now
        self._lasting_turns = 0
        self._answers = 0
        self._refusals = list[tuple[FailureKind, float | None]]()

    @asynccontextmanager
    async def turn(self, end: float = inf) -> AsyncIterator[None]:
        """Hold a turn for one call; if none is left, ask the broker for more at once."""
        if self._in_flight >= self.limit():
            self._report_now.set()
        async with super().turn(end):
            try:
                yield
            finally:
                if self._limit > self._lasting_turns:  # the turn was for one call only
                    self._limit -= 1
                    if self._queues:
                        self._report_now.set()

    def went_well(self) -> None:
        self._answers += 1

    def was_too_much(self, seconds: float | None) -> None:
        self.pause(seconds)

    def pause(
        self, seconds: float | None, reason: FailureKind = FailureKind.RATE_LIMIT, why: str = PAUSED
    ) -> None:
        """Pause this worker's calls, and report the pause to the broker at once."""
        super().pause(seconds, reason, why)
        self._refusals.append((reason, seconds))
        self._lasting_turns = 0
        self._report_now.set()

    def take_report(self) -> PaceReport:
        """Report on the time since the last report, and give half of the unused turns back."""
        waiting = sum(map(len, self._queues.values()))
        needed = self._in_flight + waiting
        unused = max(0, self.limit() - needed)
        missing = max(0, needed - self.limit())
        self._limit -= ceil(unused / 2)
        report = PaceReport(
            wanted=missing,
            held=self.limit(),
            answers=self._answers,
            refusals=tuple(self._refusals),
        )
        self._answers = 0
        self._refusals.clear()
        return report

    def allow(self, turns: Turns) -> None:
        """Add the turns that the broker gave, and pause if the provider wants a pause."""
        self._limit = self._limit + turns.more
        self._lasting_turns = turns.lasting
        seconds, reason, why = turns.wait
        if seconds:
            super().pause(seconds, reason, why)
        self._advance()


class SharedPaces(Paces):
    def __init__(self, report_now: asyncio.Event) -> None:
        super().__init__()
        self._report_now = report_now

    def make_pace(self, _whom: Whom) -> SharedPace:
        return SharedPace(self._report_now)


class BrokerClient:
    """A worker's side, for one event loop: `beat` reaches the broker, `lost` says why it no longer does."""

    def __init__(self, beat: Callable[..., Awaitable[Orders]], worker: str) -> None:
        self._beat = beat
        self._worker = worker
        self._report_now = asyncio.Event()
        self._orders_came = asyncio.Event()
        self.paces = SharedPaces(self._report_now)
        self.is_stopped = self.is_over = False
        self.spent_usd = 0.0
        self.lost: Exception | None = None
        self._calls = self._in_flight = 0
        self._cap_usd = 0.0

    @property
    def is_ending(self) -> bool:
        """Whether the worker should begin no more rows."""
        return self.is_stopped or self.is_over

    async def beats(self) -> None:
        """Send reports to the broker and follow its orders until the connection is lost."""
        while not self.lost:
            reports = self._take_reports()
            reserved_usd = self._in_flight * self._mean_usd
            try:
                orders = await self._beat(self._worker, self.spent_usd, reserved_usd, reports)
            except Exception as error:  # noqa: BLE001 - whatever a lost actor raises; the worker raises it
                self.lost = error
                self.is_stopped = True
            else:
                self._follow(orders)
            self._orders_came.set()  # wakes all that wait for this answer; the next ones wait for a new event
            self._orders_came = asyncio.Event()

            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT):
                    await self._report_now.wait()
            self._report_now.clear()
            await asyncio.sleep(_SOON)

    def _take_reports(self) -> dict[Whom, PaceReport]:
        """Report on each provider since the last beat, and give unused turns back."""
        reports = {}
        for whom, pace in self.paces.items():
            if isinstance(pace, SharedPace):
                reports[whom] = pace.take_report()
        return reports

    def _follow(self, orders: Orders) -> None:
        """Note the broker's orders, and use the turns that it gave."""
        self._cap_usd = orders.cap_usd
        self.is_over = orders.is_over
        self.is_stopped = orders.is_stopped
        for whom, turns in orders.turns.items():
            pace = self.paces[whom]
            assert isinstance(pace, SharedPace), "only these are reported on"  # noqa: S101
            pace.allow(turns)

    @property
    def _mean_usd(self) -> float:
        """The mean cost of a call so far, in US dollars; 0 before the first one."""
        return self.spent_usd / self._calls if self._calls else 0.0

    async def reserve(self) -> None:
        """Wait until there's money for a call, and reserve it.

        Raises `GatewayError` if the run's limit is reached, or if the broker can no longer be reached.
        """
        while self.spent_usd + self._in_flight * self._mean_usd >= self._cap_usd:
            if self.is_over or self.lost:
                problem = "the limit of the run is reached"
                raise GatewayError(FailureKind.BUDGET, problem, usage=Usage())
            self._report_now.set()
            await self._orders_came.wait()
        self._in_flight += 1

    def settle(self, usage: Usage) -> None:
        """Release a call's reservation, and add its actual cost; a call without a known cost adds nothing."""
        self._in_flight -= 1
        if usage.cost_usd is not None:
            self._calls += 1
            self.spent_usd += usage.cost_usd


class SharedGateway(Router):
    """Reaches every kind of provider within the run's budget and pace."""

    def __init__(self, client: BrokerClient) -> None:
        paces = client.paces
        super().__init__(
            {"litellm": LitellmGateway(_paces=paces), "command": CommandGateway(_paces=paces)}
        )
        self._client = client

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Reserve money for a call, make the call, and settle its cost, even if it fails."""
        await self._client.reserve()
        usage = Usage()
        try:
            reply = await super().complete(endpoint, request)
            usage = reply.usage
        except GatewayError as error:
            usage = usage_of_failed_call(error)
            raise
        finally:
            self._client.settle(usage)
        return reply
