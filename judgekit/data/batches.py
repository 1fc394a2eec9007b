"""Judges rows in a provider's batches: every row waits in its call until what waits is sent as one batch.

A row's judging is the ordinary one. When no row can go on without an answer, the requests of all of them are
submitted: so there is a batch for each tier, and one for each round of what is asked again.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from judgekit.data.manifest import Manifest, Place, Submitted
from judgekit.data.runs import judges
from judgekit.environment import environ
from judgekit.errors import KEPT, FailureKind, GatewayError, InputError, Usage, UsageError, of_failure
from judgekit.judging.cache import ReplyCache, key
from judgekit.judging.round import INEXACT
from judgekit.providers import batches, registry, running
from judgekit.providers.base import endpoint as endpoint_of
from judgekit.providers.batches import Batch, BatchCalls
from judgekit.providers.gateway import Router
from judgekit.providers.litellm import CallStyle
from judgekit.providers.registry import Limits
from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from judgekit.data.runs import DatasetRun, OnRecord, PendingRow
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.service import JudgeRequest
    from judgekit.providers.base import Endpoint, Reply, Request

Fallback: TypeAlias = Literal["live", "none"]

AT_ONCE = 50_000  # rows that are being judged: as many as a batch has requests
SECONDS = (5.0, 60.0)  # between looks at batches, at first and at most
SETTLED = 0.2  # seconds for further calls of a row that waits already
_MOST_FAILURES = 60  # in a row, before the run ends; its batches go on
_EARLY = 5  # looks at a batch that is complete but has no files yet
_MAKING = 8  # requests that are made at a time: each takes a thread
_FOREVER = 30 * 86_400.0  # seconds: longer than any batch takes
# After these it is not known whether the provider did what it was asked for.
_UNCERTAIN = {
    *(FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.INVALID_REPLY),
    *(FailureKind.SERVER_ERROR, FailureKind.OVERLOADED),
}
_PASSING = _UNCERTAIN | {FailureKind.RATE_LIMIT}
_MISSING = {"expired": "its batch expired", "cancelled": "its batch was cancelled"}


class Unanswered(Exception):  # noqa: N818 - what happened to a row, and no error of the program
    """A row has no answer, and is left to the next run."""


class Unasked(Exception):  # noqa: N818 - the same
    """The cost limit is reached before anything was asked about a row."""


@dataclass(eq=False)
class _Row:
    """A row that is being judged: how many of its calls wait, and which answers it has had."""

    waits: int = 0
    is_over: bool = False
    has_paid: bool = False
    used: list[str] = field(default_factory=list)


_row: ContextVar[_Row] = ContextVar("row")


class _KeepOnly(ReplyCache):
    """Keeps replies; the gateway looks for them, after the answers that were paid for."""

    def find(self, _endpoint: Endpoint, _request: Request) -> Reply | None:
        return None


@dataclass(eq=False)
class BatchGateway:
    """Answers rows' calls from batches, which `drive` submits and collects, and which `note` tells of.

    `spent_usd` is what all answers cost. `is_spent` when rows were left for the cost limit, `has_left` when
    some were left without an answer.
    """

    manifest: Manifest
    fallback: Fallback
    max_cost_usd: float | None
    cache: ReplyCache | None
    at_once: int
    note: Callable[[str], None]
    tell: Callable[[str], None]
    spent_usd: float = 0.0
    has_left: bool = False
    is_spent: bool = False
    _alive: int = 0  # rows
    _idle: int = 0  # rows that wait
    _making: int = 0  # requests
    _is_reading: bool = True
    _waiting: dict[str, tuple[asyncio.Future[str | None], list[_Row]]] = field(default_factory=dict)
    _costs: dict[str, float] = field(default_factory=dict)  # estimates of what is not answered yet
    _charged: set[str] = field(default_factory=set)
    _written: list[str] = field(default_factory=list)  # answers whose rows are done
    _styles: dict[tuple[str | None, str], CallStyle] = field(default_factory=dict)
    _most: dict[Place, int] = field(default_factory=dict)  # requests of a batch
    _full: dict[Place, int] = field(default_factory=dict)  # how many batches were too many
    _last: int = 0  # request of the round
    _failures: int = 0  # in a row
    _early: int = 0

    def __post_init__(self) -> None:
        self._router, self._changed = Router(), asyncio.Event()
        self._makers, self._askers = asyncio.Semaphore(_MAKING), asyncio.Semaphore(self.at_once)

    # What rows ask

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        where, row = (endpoint.api_base, endpoint.model), _row.get()
        while True:  # once more for each concession, and there are five
            style = self._styles.get(where, CallStyle(endpoint.output))
            custom_id = _custom_id(endpoint, request, style)
            if self.cache is not None and not self.manifest.has(custom_id):
                kept = await running.aside(partial(self.cache.find, endpoint, request))
                if kept is not None:
                    return kept
            while (answer := self.manifest.answer(custom_id)) is None:
                missing = await self._answered(custom_id, endpoint, request, style)
                if missing is not None:
                    return await self._otherwise(endpoint, request, missing)
            row.used.append(custom_id)
            row.has_paid = True
            try:
                reply = await batches.reply(endpoint, request, style, answer)
            except GatewayError as failure:
                failure.usage = self._charge(custom_id, of_failure(failure))
                weaker = style.adapted(failure, request)
                if weaker is None:
                    raise
                self._styles[where] = weaker
            else:
                return replace(reply, usage=self._charge(custom_id, reply.usage))

    async def aclose(self) -> None:
        await self._router.aclose()

    def _charge(self, custom_id: str, usage: Usage) -> Usage:
        """Return the usage of an answer; that of a kept reply for a second row that asked the same."""
        if custom_id in self._charged:
            return KEPT
        self._charged.add(custom_id)
        self.spent_usd += usage.cost_usd or 0.0
        return usage

    async def _answered(
        self, custom_id: str, endpoint: Endpoint, request: Request, style: CallStyle
    ) -> str | None:
        """Wait until a request is answered, for None, or return why it is not."""
        if not self.manifest.has(custom_id):
            self._making += 1
            try:
                async with self._makers:
                    path, body = await batches.body_of(endpoint, request, style)
            finally:
                self._making -= 1
            if not self.manifest.has(custom_id):  # an equal one may have come meanwhile
                place = Place(endpoint.profile.provider, endpoint.api_base or "", endpoint.model, path)
                self.manifest.add(custom_id, place, body)
                self._costs[custom_id] = batches.estimate(endpoint, body)
        row, future = _row.get(), asyncio.get_running_loop().create_future()
        future, rows = self._waiting.setdefault(custom_id, (future, []))
        rows.append(row)
        self._idle += row.waits == 0
        row.waits += 1
        self._changed.set()
        return await asyncio.shield(future)

    async def _otherwise(self, endpoint: Endpoint, request: Request, missing: str) -> Reply:
        """Ask at the usual price what no batch answered, unless there is a reason not to."""
        row, limit = _row.get(), self.max_cost_usd
        is_spent = missing == FailureKind.BUDGET
        if is_spent and not row.has_paid:
            raise Unasked
        if not is_spent and self.fallback == "none":
            self.has_left = True
            raise Unanswered(f"{missing}; the next run asks it in another batch")
        async with self._askers:
            if is_spent or (limit is not None and self.spent_usd >= limit * (1 - INEXACT)):
                told = f"{self.spent_usd:.4f} of {limit:g} US dollars are spent, and the rest is not enough"
                raise GatewayError(FailureKind.BUDGET, told, usage=Usage())
            reply = await self._router.complete(endpoint, request)
        row.has_paid = True
        self.spent_usd += reply.usage.cost_usd or 0.0
        return reply

    # What a run does

    @contextmanager
    def row(self) -> Iterator[None]:
        """Count a row as being judged while it is."""
        row, self._alive = _Row(), self._alive + 1
        token = _row.set(row)
        try:
            yield
            self._written += row.used
        finally:
            _row.reset(token)
            self._alive -= 1
            self._idle -= row.waits > 0
            row.is_over = True
            self._changed.set()

    def all_came(self) -> None:
        """Learn that no further row comes."""
        self._is_reading = False
        self._changed.set()

    async def drive(self) -> None:
        """Submit, wait and collect until all rows are judged; raises `InputError` where that cannot go on."""
        while await self._is_still():
            if self.max_cost_usd is None or not self._active():  # whose cost is not known yet
                self._choose()
            if not self._active() and not self.manifest.parts(self._last, self._most):
                for custom_id in [*self._waiting]:  # the file was changed, or came from elsewhere
                    self._resolve(custom_id, f"{self.manifest.path} leads to no batch of this address")
            seconds = SECONDS[0]
            while (parts := self.manifest.parts(self._last, self._most)) or self._active():
                try:
                    is_over = await self._go_on(parts, seconds)
                    seconds = SECONDS[0] if is_over else min(seconds * 1.5, SECONDS[1])
                except GatewayError as failure:
                    self._failures += 1
                    if failure.kind not in _PASSING or self._failures > _MOST_FAILURES:
                        raise InputError(f"{failure.message}; run the same command to go on") from None
                    await asyncio.sleep(max(SECONDS[0], failure.retry_after or 0.0))

    async def _is_still(self) -> bool:
        """Wait until no row can go on before a request is answered; return whether there is a row."""
        while self._is_reading or self._alive:
            self._changed.clear()
            all_came = not self._is_reading or self._alive >= AT_ONCE
            if not (all_came and not self._making and self._alive == self._idle):
                await self._changed.wait()
                continue
            try:  # one row may make several calls
                async with asyncio.timeout(SETTLED):
                    await self._changed.wait()
            except TimeoutError:
                return True
        return False

    def _known(self) -> list[Submitted]:
        known = self.manifest.batches()
        return [batch for batch in known if batch.rest is None and _calls(batch.place)]

    def _active(self) -> list[Submitted]:
        """Return the batches that rows wait for."""
        wanted = self._waiting.__contains__
        return [batch for batch in self._known() if any(map(wanted, self.manifest.requests(batch)))]

    def _choose(self) -> None:
        """Choose what is submitted now: what rows wait for, as far as the limit reaches."""
        total, gone, limit = self.spent_usd, [], self.max_cost_usd
        for custom_id, *_ in self.manifest.unsent():
            cost = self._costs.get(custom_id, 0.0)
            if custom_id in self._waiting and (limit is None or total + cost <= limit * (1 + INEXACT)):
                total += cost
            else:
                gone.append(custom_id)
        self.manifest.forget(gone)
        for custom_id in gone:
            self.is_spent |= custom_id in self._waiting
            self._resolve(custom_id, FailureKind.BUDGET)
        self._last = self.manifest.last()

    async def _go_on(self, parts: Sequence[tuple[Place, Sequence[str]]], seconds: float) -> bool:
        """Submit what can be, wait, and look at the batches; return whether one of them was over."""
        await self._recover()
        for place, custom_ids in parts:
            count = _count(place, self._active())
            is_full = count and count >= self._full.get(place, count + 1)
            if not is_full and not await self._submit(place, custom_ids):
                break
        await asyncio.sleep(seconds)
        looks = [(batch, await _calls_of(batch).retrieve(batch.id)) for batch in self._active() if batch.id]
        taken = [batch for batch, found in looks if found.status != "failed"]
        states = [await self._take(batch, found, _count(batch.place, taken)) for batch, found in looks]
        self.tell(", ".join(filter(None, states)))
        return None in states

    async def _submit(self, place: Place, custom_ids: Sequence[str]) -> bool:
        """Submit a batch; return False where too much waits at the provider already."""
        calls, batch = _calls(place), self.manifest.intend(uuid.uuid4().hex, place, custom_ids)
        assert calls is not None  # noqa: S101 - a row has just asked there
        try:
            file = await calls.upload(f"judgekit-{batch.tag}.jsonl", self.manifest.content(batch))
            batch = batch._replace(file=file)
            self.manifest.change(batch)
            batch_id = await calls.create(file, place.path, batch.tag)
        except GatewayError as failure:
            if batch.file and failure.kind in _UNCERTAIN:
                raise  # the next step is to find out
            await self._release(batch)
            if not batches.is_limit(failure.message) and failure.kind is not FailureKind.RATE_LIMIT:
                raise
            self._wait(place, len(custom_ids), _count(place, self._active()), failure.message)
            return False
        self.manifest.change(batch._replace(id=batch_id))
        self._full.pop(place, None)
        count = counted(len(custom_ids), "request", "requests")
        self.note(f"batch {batch_id}: {count} to {place.model}; if this run ends, the same command goes on")
        return True

    def _wait(self, place: Place, count: int, others: int, why: str) -> None:
        """Wait until one of the others is over; without any make batches half as large, for a later try."""
        self._full[place] = others
        if not others:
            self._most[place] = -(-count // 2)
            raise GatewayError(FailureKind.RATE_LIMIT, why)

    async def _release(self, batch: Submitted) -> None:
        """Forget a batch of which nothing was asked."""
        self.manifest.release(batch)
        with suppress(GatewayError):
            if batch.file:
                await _calls_of(batch).delete(batch.file)

    async def _recover(self) -> None:
        """Find the batches that may have been made although their making broke off: none is made twice."""
        for batch in (each for each in self._known() if not each.id):
            try:
                found = batch.file and await _calls_of(batch).find(batch.tag, batch.file)
            except GatewayError as failure:
                failure.message += f" (a batch may have been submitted; or remove {self.manifest.path})"
                raise
            if found:
                self.manifest.change(batch._replace(id=found))
            else:
                await self._release(batch)

    async def _take(self, batch: Submitted, found: Batch, others: int) -> str | None:
        """Return how far a batch is; None for one that is over, whose answers are handed on."""
        custom_ids = [*self.manifest.requests(batch)]
        if found.status == "failed":
            await self._release(batch)
            if not batches.is_limit(found.problem):
                told = f"{batch.place.base}: batch {batch.id} was refused: {found.problem}"
                raise GatewayError(FailureKind.BAD_REQUEST, told)
            self._wait(batch.place, len(custom_ids), others, found.problem)
            return None
        if found.status != "validating":
            self._failures = 0
        is_early = found.status == "completed" and not found.files and self._early < _EARLY
        self._early += is_early
        if is_early or found.status not in ("completed", *_MISSING):
            return f"{batch.id} ({found.answered:,} of {found.total:,} answered, {found.status})"
        answers = [await _calls_of(batch).content(file) for file in found.files]
        rest = (*filter(None, [batch.file]), *found.files)
        self.manifest.collect(batch._replace(rest=rest), chain(*answers))
        missing = {custom_id for custom_id in custom_ids if not self.manifest.has(custom_id)}
        why = f"{_MISSING.get(found.status, 'its batch brought no answer')} ({batch.id})"
        for custom_id in custom_ids:
            self._resolve(custom_id, why if custom_id in missing else None)
        if missing:
            how = "asked by ordinary calls" if self.fallback == "live" else "left to the next run"
            count = counted(len(missing), "request has", "requests have")
            self.note(f"batch {batch.id} is {found.status}: {count} no answer; {how}")
        await self.tidy()
        return None

    def _resolve(self, custom_id: str, missing: str | None) -> None:
        """Let the rows go on that wait for a request."""
        self._costs.pop(custom_id, None)
        future, rows = self._waiting.pop(custom_id, (None, []))
        for row in rows:
            row.waits -= 1
            self._idle -= row.waits == 0 and not row.is_over
        if future is not None:
            future.set_result(missing)

    async def tidy(self) -> None:
        """Have the files deleted at the provider whose answers are here, as far as that succeeds."""
        for batch in self.manifest.batches():
            calls, left = _calls(batch.place), []
            for file in batch.rest or ():
                try:
                    if calls:
                        await calls.delete(file)
                except GatewayError as failure:
                    left += [file] * (failure.kind is not FailureKind.NOT_FOUND)
            if batch.rest is not None and calls:
                self.manifest.change(batch._replace(rest=tuple(left)))
                if not left:
                    self.manifest.end(batch)

    async def finish(self) -> None:
        """Remove the manifest after a complete run, unless the next run needs it."""
        with suppress(GatewayError):
            await self._recover()
            for batch in self._known():
                if batch.id and (found := await _calls_of(batch).retrieve(batch.id)).status != "failed":
                    await self._take(batch, found, 0)
        await self.tidy()
        rest = self.manifest.batches()
        for batch in rest:
            state = f"{', '.join(batch.rest or ())} cannot be deleted; delete it there"
            if batch.rest is None:
                state = (
                    f"batch {batch.id} goes on, but no row waits for it; cancel it there, or run this again"
                )
            self.note(f"{batch.place.base or batch.place.provider}: {state}")
        self.manifest.forget(self._written)
        self.manifest.close(remove=not (rest or self.has_left or self.is_spent))


def _calls_of(batch: Submitted) -> BatchCalls:
    """Return the calls of a batch that is active."""
    calls = _calls(batch.place)
    assert calls is not None  # noqa: S101 - or it were not
    return calls


def _count(place: Place, active: Iterable[Submitted]) -> int:
    return sum(batch.place == place for batch in active)


def _custom_id(endpoint: Endpoint, request: Request, style: CallStyle) -> str:
    """Return what stands for all that is sent but for the fence's nonce; a second ask differs."""
    text = f"{key(endpoint, request)} {'reask' in request.call_key.part} {style}"
    return hashlib.sha256(text.encode()).hexdigest()[:48]


def _calls(place: Place) -> BatchCalls | None:
    """Return the calls of a place; None where the user's own settings lead to another address.

    The manifest may have come with a repository: it never says alone where a key is sent.
    """
    with suppress(UsageError):
        found = endpoint_of(registry.find(place.provider), place.model, environ())
        if (found.api_base or "") == place.base and not batches.refusal(found):
            return BatchCalls(found)
    return None


@dataclass(frozen=True)
class BatchRunner:
    """Judges the rows of a run in batches; the manifest is beside `out`."""

    project: Path
    judge_request: JudgeRequest
    at_once: int
    out: str
    fallback: Fallback
    work: DatasetRun
    note: Callable[[str], None]

    def __call__(self, asked: Iterable[PendingRow], on_record: OnRecord) -> None:
        running.run(self._judged(iter(asked), on_record))

    async def _judged(self, asked: Iterator[PendingRow], on_record: OnRecord) -> None:
        cache = ReplyCache() if self.judge_request.cache else None
        manifest = Manifest(f"{self.out}.batch")
        how = self.fallback, self.judge_request.max_cost_usd, cache, self.at_once, self.note, self._tell
        gateway, room = BatchGateway(manifest, *how), asyncio.Semaphore(AT_ONCE)
        judge_of = judges(gateway, self.project, self.judge_request, self._patient)

        async def judge(each: PendingRow) -> None:
            try:
                with gateway.row():
                    own = await judge_of(each.subject).judge(each.subject) if each.subject else None
                    on_record(each, own and own.record())
            except Unanswered as left:
                on_record(each._replace(error=str(left)), None)
            except Unasked:
                self.work.is_spent = True
            finally:
                room.release()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(gateway.drive())
                while each := await running.aside(partial(next, asked, None)):
                    await room.acquire()
                    group.create_task(judge(each))
                gateway.all_came()
            if not self.work.stopped.is_set():
                await gateway.finish()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            manifest.close()
            await gateway.aclose()

    def _tell(self, line: str) -> None:
        self.work.waits_for = line

    def _patient(self, judge: Judge[Any, Any, Any]) -> Judge[Any, Any, Any]:
        """Return a judge that waits for batches; raises `UsageError` where it cannot ask in batches."""
        limit = self.judge_request.max_cost_usd
        for model in chain(*judge.panel.values()):
            why = batches.refusal(model)
            if not why and limit is not None and batches.price(model, 1, 1) is None:
                why = f"no price of {model.model} is known, so --max-cost cannot work"
            if why:
                raise UsageError(f"--batch: {why}; judge without --batch, or with other models")
        if getattr(judge, "elsewhere", None):
            raise UsageError(
                "--batch: the shared judge (server.url) asks the models; leave one of the two out"
            )

        def others() -> list[Any]:
            return [own for own in judge.others() if not any(map(batches.refusal, chain(*own.values())))]

        return replace(
            judge,
            panel={tier: tuple(map(_unlimited, jury)) for tier, jury in judge.panel.items()},
            deadline=_FOREVER,
            max_cost_usd=None,  # of the run, which the gateway holds to
            cache=judge.cache and _KeepOnly(),
            others=others,
        )


def _unlimited(model: Endpoint) -> Endpoint:
    """Return a model without limits on calls at a time or in a minute: a batch is one call."""
    limits = Limits(context_chars=model.profile.limits.context_chars)
    return replace(model, profile=model.profile.model_copy(update={"limits": limits}))
