"""One budget and one pace for all workers of a run: tracks spending and decides who may call next.

A few times a second, a worker's `BrokerClient` reports its spending to the `Broker` and asks for turns. Each
turn allows one call at a time. The broker lends the worker turns and a part of the remaining money, and takes
them back if the worker goes silent.
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
from judgekit.providers.pace import AT_ONCE, PAUSED, Pace, PaceKey, Paces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from judgekit.providers.base import Endpoint, Reply, Request

MAX_SILENT_SECONDS = 10.0  # seconds of silence after which a worker counts as dead
_BEAT_SECONDS = 0.25
_MIN_BEAT_SECONDS = 0.02  # seconds between two beats at least


class PaceReport(NamedTuple):
    """A worker's report on one provider since its last beat."""

    wanted_turn_count: int
    """The number of additional turns that the worker needs."""
    held_turn_count: int = 0
    """The number of turns that it holds."""
    answers: int = 0
    refusals: tuple[tuple[FailureKind, float | None], ...] = ()
    """The pauses that the provider asked for: a reason and the seconds, if known."""


class Turns(NamedTuple):
    """A worker's turns at one provider: new ones, how many it may reuse, and a pause before the next call."""

    new_turn_count: int
    lasting_turn_count: int
    required_pause: tuple[float, FailureKind, str]
    """The seconds, the reason and a message."""


class Orders(NamedTuple):
    """Orders for a worker: its turns at each provider, the total it may spend, and whether to stop."""

    turns: dict[PaceKey, Turns]
    cap_usd: float
    is_limit_reached: bool
    is_stopped: bool


@dataclass
class _Account:
    """A worker's turns and money. Until its next report, its total spending may reach `cap_usd`."""

    last_seen_s: float
    held_turns_by_key: Counter[PaceKey] = field(default_factory=Counter)
    wanted_turns_by_key: Counter[PaceKey] = field(default_factory=Counter)
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    cap_usd: float = 0.0

    @property
    def used_usd(self) -> float:
        return self.spent_usd + self.reserved_usd


class Broker:
    """Keeps each provider's pace and each worker's account. All workers together may spend `max_cost_usd`."""

    def __init__(self, max_cost_usd: float | None = None, workers: int = 1) -> None:
        self._limit_usd = max_cost_usd
        self._workers = workers
        self._paces: dict[PaceKey, Pace] = {}
        self._accounts: dict[str, _Account] = {}
        self._is_limit_reached = self._is_stopped = False
        self._pickled_job = b""

    def stop(self) -> None:
        """Order the workers to start no more rows."""
        self._is_stopped = True

    def get_total_cost(self) -> float:
        """Return the total cost of all calls in US dollars."""
        return sum(account.spent_usd for account in self._accounts.values())

    def list_live_workers(self) -> list[str]:
        """List the workers that have reported within the last `MAX_SILENT_SECONDS` seconds."""
        now = time.monotonic()
        accounts = self._accounts
        return [name for name in accounts if now - accounts[name].last_seen_s <= MAX_SILENT_SECONDS]

    def learn(self, job: bytes) -> None:
        """Store the job description for workers that will register."""
        self._pickled_job = job

    def begin(self, worker: str) -> bytes:
        """Register a worker by its name, `SLOT PROCESS`, and return its job description."""
        slot, _, _ = worker.partition(" ")
        for name, account in self._accounts.items():
            other_slot, _, _ = name.partition(" ")
            if other_slot == slot:  # there's a new worker in the slot, so the earlier one is dead
                self._take_back(account)
        self._accounts[worker] = _Account(time.monotonic())
        return self._pickled_job

    def beat(
        self,
        worker: str,
        spent_usd: float,
        reserved_usd: float,
        reports: Mapping[PaceKey, PaceReport],
    ) -> Orders:
        """Process a worker's report, and return its orders."""
        account = self._accounts[worker]
        now_s = time.monotonic()
        account.last_seen_s = now_s
        account.spent_usd = spent_usd
        account.reserved_usd = reserved_usd

        # Take back the turns and money of silent workers, so that others can use them.
        for other_account in self._accounts.values():
            if now_s - other_account.last_seen_s > MAX_SILENT_SECONDS:
                self._take_back(other_account)

        turns = {}
        for provider, report in reports.items():
            turns[provider] = self._give_turns(account, provider, report)
        cap_usd = inf if self._limit_usd is None else self._lend_money(account, self._limit_usd)
        return Orders(turns, cap_usd, self._is_limit_reached, self._is_stopped)

    def _lend_money(self, account: _Account, limit: float) -> float:
        """Lend a worker some of the money that isn't spent, reserved or lent to others.

        Returns the new cap on the worker's total spending. Ends the run if the limit is used up.
        """
        accounts = self._accounts.values()
        used_usd = sum(other.used_usd for other in accounts)
        # Sums of costs have rounding errors.
        if used_usd >= limit * (1 - INEXACT):
            self._is_limit_reached = True

        other_accounts = [other for other in accounts if other is not account]
        # The others may use all of their caps. A call that costs more than expected can exceed a cap.
        taken_by_others_usd = sum(max(other.cap_usd, other.used_usd) for other in other_accounts)
        free_usd = max(0.0, limit - account.used_usd - taken_by_others_usd)
        # Leave half for the other workers.
        lent_usd = free_usd / 2 if other_accounts else free_usd
        account.cap_usd = account.used_usd + lent_usd
        return account.cap_usd

    def _give_turns(self, account: _Account, provider: PaceKey, report: PaceReport) -> Turns:
        """Adjust a provider's pace to a worker's report, and give the worker turns up to its fair share."""
        pace = self._find_pace(provider)
        _adjust_pace(pace, report)
        returned = _take_returned_turns(account, provider, pace, report)

        share = self._compute_share(provider, pace)
        wait = pace.compute_wait()
        max_held = share
        # The share is 0 if there are fewer turns than workers. Each worker may then hold one turn, but has
        # to wait if it has just returned one.
        has_just_returned = returned > 0
        if share == 0 and not has_just_returned:
            max_held = 1
        new_turns = pace.take(min(report.wanted_turn_count, max_held - report.held_turn_count))
        account.held_turns_by_key[provider] += new_turns

        # With a limit per minute, every call needs a new turn, so none can be used twice.
        lasting_turns = 0 if provider.per_minute else share
        return Turns(new_turns, lasting_turns, wait)

    def _find_pace(self, provider: PaceKey) -> Pace:
        """Return a provider's pace. The first report on a provider creates it."""
        if provider not in self._paces:
            max_in_flight = provider.max_in_flight or AT_ONCE * self._workers
            self._paces[provider] = Pace(max_in_flight, provider.per_minute)
        return self._paces[provider]

    def _compute_share(self, provider: PaceKey, pace: Pace) -> int:
        """Divide a provider's turns among the workers that use it, rounded up.

        Returns 0 if there are fewer turns than workers.
        """
        users = 0
        for account in self._accounts.values():
            if account.held_turns_by_key[provider] + account.wanted_turns_by_key[provider] > 0:
                users += 1
        if pace.limit() < users:
            return 0
        return ceil(pace.limit() / max(1, users))

    def _take_back(self, account: _Account) -> None:
        """Take back a worker's turns, and the money that was reserved for it but not spent."""
        for provider, turns in account.held_turns_by_key.items():
            self._paces[provider].give(turns)
        account.held_turns_by_key.clear()
        account.wanted_turns_by_key.clear()
        account.reserved_usd = 0.0
        account.cap_usd = account.spent_usd


def _take_returned_turns(
    account: _Account, provider: PaceKey, pace: Pace, report: PaceReport
) -> int:
    """Release the turns that a worker has returned, and note how many it holds and wants.

    Returns the number of returned turns.
    """
    # If a silent worker's turns were taken back, but it still uses them, the number is negative.
    returned = account.held_turns_by_key[provider] - report.held_turn_count
    pace.give(returned)
    account.held_turns_by_key[provider] = report.held_turn_count
    account.wanted_turns_by_key[provider] = report.wanted_turn_count
    return returned


def _adjust_pace(pace: Pace, report: PaceReport) -> None:
    """Speed up a provider's pace for each answer, and slow it down for each refusal."""
    for _ in range(report.answers):
        pace.note_success()
    for reason, seconds in report.refusals:
        if reason is FailureKind.RATE_LIMIT:
            pace.note_refusal(seconds)
        else:
            pace.pause(seconds, reason)


class SharedPace(Pace):
    """A worker's side of the pace at one provider, whose turns the broker distributes."""

    def __init__(self, report_now: asyncio.Event) -> None:
        super().__init__(max_in_flight=0)  # the broker gives the first turns
        self._report_now = report_now
        self._lasting_turns = 0  # how many turns can be used for several calls
        # Since the last report:
        self._answers = 0
        self._refusals = list[tuple[FailureKind, float | None]]()

    @asynccontextmanager
    async def hold_turn(self, end: float = inf) -> AsyncIterator[None]:
        """Hold a turn during a call. If none is free, ask the broker for one and wait.

        `end` is as in `Pace.hold_turn`.
        """
        is_turn_free = self._in_flight < self.limit()
        if not is_turn_free:
            self._report_now.set()
        async with super().hold_turn(end):
            try:
                yield
            finally:
                # Only the lasting turns stay for later calls.
                if self._limit > self._lasting_turns:
                    self._limit -= 1
                    are_calls_waiting = bool(self._queues)
                    if are_calls_waiting:
                        self._report_now.set()

    def note_success(self) -> None:
        self._answers += 1

    def note_refusal(self, seconds: float | None) -> None:
        self.pause(seconds)

    def pause(
        self, seconds: float | None, reason: FailureKind = FailureKind.RATE_LIMIT, why: str = PAUSED
    ) -> None:
        """Pause this worker's calls as `Pace` does, and report the pause to the broker immediately."""
        super().pause(seconds, reason, why)
        self._refusals.append((reason, seconds))
        # Until the broker has adjusted its pace, no turn is used twice.
        self._lasting_turns = 0
        self._report_now.set()

    def take_report(self) -> PaceReport:
        """Give back half of the unused turns, and build a report about the time since the last one."""
        waiting = sum(map(len, self._queues.values()))
        needed = self._in_flight + waiting
        wanted = max(0, needed - self.limit())
        unused = max(0, self.limit() - needed)
        self._limit -= ceil(unused / 2)  # the other half is for calls that start soon
        report = PaceReport(
            wanted_turn_count=wanted,
            held_turn_count=self.limit(),  # without those given back
            answers=self._answers,
            refusals=tuple(self._refusals),
        )
        self._answers = 0
        self._refusals.clear()
        return report

    def allow(self, turns: Turns) -> None:
        """Add turns (permissions to make a call) from the broker, and pause if the provider demands it."""
        self._limit += turns.new_turn_count
        self._lasting_turns = turns.lasting_turn_count
        seconds, reason, message = turns.required_pause
        if seconds:
            # Unlike our own `pause`, this doesn't report the pause back to the broker.
            super().pause(seconds, reason, message)
        self._schedule()


class SharedPaces(Paces):
    def __init__(self, report_now: asyncio.Event) -> None:
        super().__init__()
        self._report_now = report_now

    def make_pace(self, _key: PaceKey) -> SharedPace:
        return SharedPace(self._report_now)


class BrokerClient:
    """A worker's connection to the broker, for one event loop.

    `connection_error` is the error that ended it, if any.
    """

    def __init__(self, beat: Callable[..., Awaitable[Orders]], worker: str) -> None:
        self._beat = beat
        self._worker = worker
        self._report_now = asyncio.Event()  # set by calls that need orders soon
        self._orders_came = asyncio.Event()  # set when the broker has answered a report
        self.paces = SharedPaces(self._report_now)
        self.is_stopped = self.is_limit_reached = False
        self.spent_usd = 0.0
        self.connection_error: Exception | None = (
            None  # the error if the connection to the broker is lost
        )
        self._calls = self._in_flight = 0
        self._cap_usd = 0.0

    @property
    def is_ending(self) -> bool:
        """Whether the worker should start no more rows."""
        return self.is_stopped or self.is_limit_reached

    async def send_heartbeats(self) -> None:
        """Report to the broker and follow its orders, at regular intervals, until the connection is lost."""
        while not self.connection_error:
            reports = self._take_reports()
            reserved_usd = self._in_flight * self._mean_usd
            try:
                orders = await self._beat(self._worker, self.spent_usd, reserved_usd, reports)
            except Exception as error:  # noqa: BLE001 - whatever it is, the worker raises it later
                self.connection_error = error
                self.is_stopped = True
            else:
                self._follow(orders)
            # Wake all calls that wait for these orders. Later calls wait for a new event.
            self._orders_came.set()
            self._orders_came = asyncio.Event()

            # Wait for the next interval, or until a call needs orders sooner.
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_SECONDS):
                    await self._report_now.wait()
            self._report_now.clear()
            # Calls can need orders at any moment, but don't report more often than this.
            await asyncio.sleep(_MIN_BEAT_SECONDS)

    def _take_reports(self) -> dict[PaceKey, PaceReport]:
        """Build a report on each provider, which also returns unused turns to the broker."""
        reports = {}
        for provider, pace in self.paces.items():
            if isinstance(pace, SharedPace):
                reports[provider] = pace.take_report()
        return reports

    def _follow(self, orders: Orders) -> None:
        """Apply the broker's orders."""
        self._cap_usd = orders.cap_usd
        self.is_limit_reached = orders.is_limit_reached
        self.is_stopped = orders.is_stopped
        for provider, turns in orders.turns.items():
            pace = self.paces[provider]
            # The broker's orders answer our reports, and we report on shared paces only.
            assert isinstance(pace, SharedPace)  # noqa: S101
            pace.allow(turns)

    @property
    def _mean_usd(self) -> float:
        """The mean cost per call so far, in US dollars, or 0 before the first call."""
        return self.spent_usd / self._calls if self._calls else 0.0

    async def reserve(self) -> None:
        """Reserve money for a call. If there's too little, wait: running calls may cost less than expected.

        Raises `GatewayError` if the run's cost limit is reached, or if the connection to the broker is lost.
        """
        # Assume that running calls will cost as much as earlier ones did.
        while self.spent_usd + self._in_flight * self._mean_usd >= self._cap_usd:
            if self.is_limit_reached or self.connection_error:
                # If the connection is lost, the worker itself raises that error after its rows.
                problem = "the limit of the run is reached"
                raise GatewayError(FailureKind.BUDGET, problem, usage=Usage())
            self._report_now.set()
            await self._orders_came.wait()
        self._in_flight += 1

    def settle(self, usage: Usage) -> None:
        """Replace a call's reserved cost by its actual cost, if that's known."""
        self._in_flight -= 1
        if usage.cost_usd is not None:
            self._calls += 1  # for the mean cost, so only calls with a known cost count
            self.spent_usd += usage.cost_usd


class SharedGateway(Router):
    """Calls any kind of provider within the run's budget and pace."""

    def __init__(self, client: BrokerClient) -> None:
        paces = client.paces
        super().__init__(
            {"litellm": LitellmGateway(_paces=paces), "command": CommandGateway(_paces=paces)}
        )
        self._client = client

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Make a call with reserved money, and settle its cost even if it fails."""
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
