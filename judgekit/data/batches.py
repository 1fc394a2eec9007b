"""Judges rows in a provider's batches: every row waits in its call until what waits is sent as one batch.

A row's judging is the ordinary one. When no row can go on without an answer, the requests of all of them are
submitted: so there is a batch for each tier, and one for each round of what is asked again.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import uuid
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from judgekit.data.manifest import Manifest, Place, Submitted, open_manifest
from judgekit.data.runs import judges
from judgekit.environment import environ
from judgekit.errors import (
    KEPT,
    FailureKind,
    GatewayError,
    InputError,
    Usage,
    UsageError,
    usage_of_failed_call,
)
from judgekit.judging.cache import ReplyCache, key
from judgekit.judging.round import INEXACT
from judgekit.providers import batches, registry, retrying, running
from judgekit.providers.base import endpoint as endpoint_of
from judgekit.providers.batches import Batch, BatchCalls
from judgekit.providers.gateway import Router
from judgekit.providers.registry import Limits
from judgekit.providers.style import MOST_CHANGES, WEAKER, CallStyle
from judgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from judgekit.data.runs import DatasetRun, OnRecord, PendingRow
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.request import JudgeRequest
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
    """A row is left to the next run: why; without a reason, the cost limit was reached before it."""


@dataclass(eq=False)
class _Row:
    """A row that is being judged: how many of its calls wait, and which answers it has had."""

    waits: int = 0
    is_over: bool = False
    used: list[str] = field(default_factory=list)


_row: ContextVar[_Row] = ContextVar("row")


class _KeepOnly(ReplyCache):
    """Keeps replies; the gateway looks for them, after the answers that were paid for."""

    def find(self, _endpoint: Endpoint, _request: Request) -> Reply | None:
        return None


class BatchGateway:
    """Answers the calls of rows from batches, which `drive` submits and collects."""

    def __init__(self, run: BatchRunner, manifest: Manifest) -> None:
        self._run = run
        self._manifest = manifest
        self._limit = run.request.max_cost_usd
        self._cache = ReplyCache() if run.request.cache else None
        self._router = Router()
        self._changed = asyncio.Event()
        self._makers = asyncio.Semaphore(_MAKING)
        self._askers = asyncio.Semaphore(run.at_once)
        self._is_reading = True
        self._is_needed = False  # rows; the manifest in the next run
        self._alive = self._idle = self._making = 0  # rows; rows that wait; requests
        self._waiting: dict[str, tuple[asyncio.Future[str | None], list[_Row]]] = {}
        self._spent = 0.0
        self._charged = set[str]()
        self._written = list[str]()  # US dollars; answers
        self._costs: dict[str, float] = {}  # estimates of what is not answered yet
        self._styles: dict[
            tuple[str | None, str], list[CallStyle]
        ] = {}  # the usual one, then weaker ones
        self._most: dict[Place, int] = {}  # requests of a batch
        self._full: dict[Place, int] = {}  # how many batches were too many
        self._last = self._failures = self._early = 0  # request of the round; in a row; looks

    # What rows ask

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        where = endpoint.api_base, endpoint.model
        styles = self._styles.setdefault(where, [CallStyle(endpoint.output)])
        refused: list[CallStyle] = []
        while True:
            style = self._style(endpoint, request, styles, refused)
            custom_id = _custom_id(endpoint, request, style)
            if self._cache is not None and not self._manifest.has(custom_id):
                kept = await running.run_in_thread(partial(self._cache.find, endpoint, request))
                if kept is not None:
                    return kept
            while (answer := self._manifest.answer(custom_id)) is None:
                missing = await self._answered(custom_id, endpoint, request, style)
                if missing is not None:
                    return await self._otherwise(endpoint, request, missing)
            _row.get().used.append(custom_id)
            try:
                reply = await batches.reply(endpoint, request, style, answer)
            except GatewayError as failure:
                failure.usage = self._charge(custom_id, usage_of_failed_call(failure))
                other = style.adapted(failure, endpoint, request)
                if other is None or len(refused) == MOST_CHANGES:
                    raise
                refused.append(style)
                if other not in styles:
                    styles.append(other)
            else:
                distrust = partial(self._distrust, styles, style)
                usage = self._charge(custom_id, reply.usage)
                return replace(reply, usage=usage, distrust=distrust)

    def _style(
        self,
        endpoint: Endpoint,
        request: Request,
        styles: Sequence[CallStyle],
        refused: Sequence[CallStyle],
    ) -> CallStyle:
        """Return in which style a request was asked before, which is paid for; else the latest of them."""
        left = [style for style in styles if style not in refused]
        for style in left:
            if self._manifest.has(_custom_id(endpoint, request, style)):
                return style
        return left[-1]

    def _distrust(self, styles: list[CallStyle], style: CallStyle) -> None:
        """Ask in a weaker format from now on: in this one the address does not hold replies to a schema."""
        if styles[-1].mode == style.mode and style.mode in WEAKER:
            styles.append(styles[-1]._replace(mode=WEAKER[style.mode]))

    async def aclose(self) -> None:
        await self._router.aclose()

    def _charge(self, custom_id: str, usage: Usage) -> Usage:
        """Return the usage of an answer; that of a kept reply for a second row that asked the same."""
        if custom_id in self._charged:
            return KEPT
        self._charged.add(custom_id)
        self._spent += usage.cost_usd or 0.0
        return usage

    async def _answered(
        self, custom_id: str, endpoint: Endpoint, request: Request, style: CallStyle
    ) -> str | None:
        """Wait until a request is answered, for None, or return why it is not."""
        if not self._manifest.has(custom_id):
            self._making += 1
            try:
                async with self._makers:
                    path, body = await batches.body_of(endpoint, request, style)
            finally:
                self._making -= 1
            if not self._manifest.has(custom_id):  # an equal one may have come meanwhile
                place = Place(
                    endpoint.profile.provider, endpoint.api_base or "", endpoint.model, path
                )
                self._manifest.add(custom_id, place, body)
                self._run.work.waits_for = f"all requests ({len(self._waiting) + 1:,} so far)"
                if self._limit is not None:
                    self._costs[custom_id] = batches.estimate(endpoint, body)
            del body  # while it waits, for hours, the manifest has it
        row = _row.get()
        future = asyncio.get_running_loop().create_future()
        future, rows = self._waiting.setdefault(custom_id, (future, []))
        rows.append(row)
        self._idle += row.waits == 0
        row.waits += 1
        self._changed.set()
        return await asyncio.shield(future)

    async def _otherwise(self, endpoint: Endpoint, request: Request, missing: str) -> Reply:
        """Ask at the usual price what no batch answered, unless there is a reason not to."""
        is_spent = missing == FailureKind.BUDGET
        limit = self._limit
        if is_spent and not _row.get().used:
            raise Unanswered
        if not is_spent and self._run.fallback == "none":
            raise Unanswered(f"{missing}; the next run asks it in another batch")
        async with self._askers:
            if is_spent or (limit is not None and self._spent >= limit * (1 - INEXACT)):
                told = f"{self._spent:.4f} of {limit:g} US dollars are spent, and the rest is not enough"
                raise GatewayError(FailureKind.BUDGET, told, usage=Usage())
            reply = await self._router.complete(endpoint, request)
        self._spent += reply.usage.cost_usd or 0.0
        return reply

    # What a run does

    async def judge(
        self, each: PendingRow, judge_of: Callable[[Any], Any], on_record: OnRecord
    ) -> None:
        row = _Row()
        self._alive = self._alive + 1
        _row.set(row)
        try:
            if each.subject:
                own = await judge_of(each.subject).judge(each.subject)
            else:
                own = None
            on_record(each, own and own.record())
            self._written += row.used
        except Unanswered as left:
            self._is_needed = True
            if left.args:
                on_record(each._replace(error=str(left)), None)
            else:
                self._run.work.is_spent = True
        finally:
            row.is_over = True
            self._alive -= 1
            self._idle -= row.waits > 0
            self._changed.set()

    def all_came(self) -> None:
        """Learn that no further row comes."""
        self._is_reading = False
        self._changed.set()

    async def drive(self) -> None:
        """Submit, wait and collect until all rows are judged; raises `InputError` where that cannot go on."""
        while await self._is_still():
            if self._limit is None or not self._active():  # whose cost is not known yet
                self._choose()
            least, most = SECONDS
            seconds = least
            tries = retrying.Tries(inf, (least,), shortest=least, longest=most)
            try:
                while self._is_under_way():
                    work = partial(self._go_on, seconds)
                    is_over = await retrying.call(work, tries, passes=self._passes)
                    if is_over:
                        seconds = least
                    else:
                        seconds = min(seconds * 1.5, most)
            except GatewayError as failure:
                raise InputError(f"{failure.message}; run the same command to go on") from None

    def _is_under_way(self) -> bool:
        return bool(self._parts() or self._active())

    def _parts(self) -> list[tuple[Place, Sequence[str]]]:
        """Return the batches that are to be submitted."""
        return self._manifest.parts(self._last, self._most)

    def _passes(self, failure: Exception, _: int) -> bool:
        """Whether to go on after a failure; counts those in a row."""
        self._failures += 1
        is_passing = isinstance(failure, GatewayError) and failure.kind in _PASSING
        return is_passing and self._failures <= _MOST_FAILURES

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

    def _known(self) -> list[tuple[Submitted, BatchCalls]]:
        """Return the batches whose answers are not here, at addresses that the settings lead to."""
        known = (
            (batch, _calls(batch.place)) for batch in self._manifest.batches() if batch.rest is None
        )
        return [(batch, calls) for batch, calls in known if calls]

    def _active(self) -> list[tuple[Submitted, BatchCalls]]:
        """Return those that rows wait for."""
        is_wanted = self._waiting.__contains__
        requests = self._manifest.requests
        return [
            (batch, calls) for batch, calls in self._known() if any(map(is_wanted, requests(batch)))
        ]

    def _choose(self) -> None:
        """Choose what is submitted now: what rows wait for, as far as the limit reaches."""
        total = self._spent
        gone: dict[str, str] = {}
        limit = self._limit
        for custom_id, *_ in self._manifest.unsent():
            cost = self._costs.get(custom_id, 0.0)
            if custom_id in self._waiting and (
                limit is None or total + cost <= limit * (1 + INEXACT)
            ):
                total += cost
            else:
                gone[custom_id] = FailureKind.BUDGET
        self._manifest.forget(gone)
        self._last = self._manifest.last()
        if not gone and not self._active() and not self._manifest.parts(self._last, self._most):
            # The file was changed, or came from elsewhere.
            gone = dict.fromkeys(
                self._waiting, f"{self._manifest.path} leads to no batch of this address"
            )
        for custom_id, why in gone.items():
            self._resolve(custom_id, why)

    async def _go_on(self, seconds: float) -> bool:
        """Submit what can be, wait, and look at the batches; return whether one of them was over."""
        if not self._is_under_way():  # what failed may have ended the last one
            return True
        await self._recover()
        for place, custom_ids in self._parts():
            others = _count(place, self._active())
            if others and others >= self._full.get(place, others + 1):
                continue
            if not await self._submit(place, custom_ids, others):
                break
        await asyncio.sleep(seconds)
        looks = []
        for submitted, calls in self._active():
            if submitted.id:
                looks.append((submitted, calls, await calls.retrieve(submitted.id)))
        taken = [each for each in looks if each[2].status != "failed"]
        states = []
        for each in looks:
            states.append(await self._take(*each, _count(each[0].place, taken)))
        self._run.work.waits_for = ", ".join(filter(None, states))
        return None in states

    async def _submit(self, place: Place, custom_ids: Sequence[str], others: int) -> bool:
        """Submit a batch; return False where too much waits at the provider already."""
        calls = _calls(place)
        batch = self._manifest.intend(uuid.uuid4().hex, place, custom_ids)
        assert calls is not None  # noqa: S101 - a row has just asked there
        try:
            file = await calls.upload(f"judgekit-{batch.tag}.jsonl", self._manifest.content(batch))
            batch = self._manifest.changed(batch._replace(file=file))
            batch_id = await calls.create(file, place.path, batch.tag)
        except GatewayError as failure:
            if batch.file and failure.kind in _UNCERTAIN:
                raise  # the next step is to find out
            await self._release(batch, calls)
            is_busy = batch.file and failure.kind is FailureKind.RATE_LIMIT
            if not (is_busy or batches.is_limit(failure.message)):
                raise
            self._wait(place, len(custom_ids), others, failure.message)
            return False
        self._manifest.changed(batch._replace(id=batch_id))
        self._full.pop(place, None)
        count = counted(len(custom_ids), "request", "requests")
        self._run.note(
            f"batch {batch_id}: {count} to {place.model}; if this run ends, the same command goes on"
        )
        return True

    def _wait(self, place: Place, count: int, others: int, why: str) -> None:
        """Wait until one of the others is over; without any make batches half as large, for a later try."""
        self._full[place] = others
        if not others:
            self._most[place] = -(-count // 2)
            raise GatewayError(FailureKind.RATE_LIMIT, why)

    async def _release(self, batch: Submitted, calls: BatchCalls) -> None:
        """Forget a batch of which nothing was asked."""
        self._manifest.release(batch)
        with suppress(GatewayError):
            if batch.file and batch.is_ours:
                await calls.delete(batch.file)

    async def _recover(self) -> None:
        """Find the batches that may have been made although their making broke off: none is made twice."""
        for batch, calls in (each for each in self._known() if not each[0].id):
            try:
                found = batch.file and await calls.find(batch.tag, batch.file)
            except GatewayError as failure:
                failure.message += (
                    f" (a batch may have been submitted; or remove {self._manifest.path})"
                )
                raise
            if found:
                self._manifest.changed(batch._replace(id=found))
            else:
                await self._release(batch, calls)

    async def _take(
        self, batch: Submitted, calls: BatchCalls, found: Batch, others: int
    ) -> str | None:
        """Return how far a batch is; None for one that is over, whose answers are handed on."""
        custom_ids = [*self._manifest.requests(batch)]
        if found.status == "failed":
            await self._release(batch, calls)
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
        answers = [await calls.content(file) for file in found.files]
        self._manifest.collect(
            batch._replace(rest=(batch.file or "", *found.files)), chain(*answers)
        )
        missing = {custom_id for custom_id in custom_ids if not self._manifest.has(custom_id)}
        why = f"{_MISSING.get(found.status, 'its batch brought no answer')} ({batch.id})"
        for custom_id in custom_ids:
            self._resolve(custom_id, why if custom_id in missing else None)
        if missing:
            how = (
                "asked by ordinary calls"
                if self._run.fallback == "live"
                else "left to the next run"
            )
            count = counted(len(missing), "request has", "requests have")
            self._run.note(f"batch {batch.id} is {found.status}: {count} no answer; {how}")
        await self._tidy()
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

    async def _tidy(self) -> None:
        """Have the files deleted at the provider whose answers are here."""
        for batch in self._manifest.batches():
            calls = _calls(batch.place)
            if calls is None or batch.rest is None:
                continue
            for file in filter(None, batch.rest if batch.is_ours else ()):
                try:
                    await calls.delete(file)
                except GatewayError as failure:
                    self._run.note(f"{file} cannot be deleted: {failure.message}; delete it there")
            self._manifest.end(batch)

    async def finish(self) -> None:
        """Remove the manifest after a complete run, unless the next run needs it."""
        with suppress(GatewayError):
            await self._recover()
            for batch, calls in self._known():
                if batch.id and (found := await calls.retrieve(batch.id)).status != "failed":
                    await self._take(batch, calls, found, 0)
        await self._tidy()
        rest = self._manifest.batches()
        for batch in rest:
            name = f"batch {batch.id} at {batch.place.base or batch.place.provider}"
            self._run.note(
                f"{name} goes on, but no row waits for it; cancel it there, or run this again"
            )
        self._manifest.forget(self._written)
        self._manifest.close(remove=not rest and not self._is_needed)


def _count(place: Place, active: Iterable[tuple[Any, ...]]) -> int:
    return sum(batch.place == place for batch, *_ in active)


def _custom_id(endpoint: Endpoint, request: Request, style: CallStyle) -> str:
    """Return what stands for all that is sent but for the fence's nonce; a second ask differs."""
    text = f"{key(endpoint, request)} {'reask' in request.call_key.part} {style.stamp()}"
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
    request: JudgeRequest
    at_once: int
    out: str
    fallback: Fallback
    work: DatasetRun
    note: Callable[[str], None]
    is_fresh: bool = False
    is_trusted: bool = False  # what is beside `out`, whoever wrote it

    def __call__(self, asked: Iterable[PendingRow], on_record: OnRecord) -> None:
        running.run(self._judged(iter(asked), on_record))

    async def _judged(self, asked: Iterator[PendingRow], on_record: OnRecord) -> None:
        manifest = open_manifest(
            f"{self.out}.batch", is_fresh=self.is_fresh, is_trusted=self.is_trusted
        )
        for file in manifest.left_behind:
            self.note(
                f"{file} at the provider may be of this run: nothing proves it, so it is not deleted"
            )
        room = asyncio.Semaphore(AT_ONCE)
        gateway = BatchGateway(self, manifest)
        judge_of = judges(gateway, self.project, self.request, self._patient)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(gateway.drive())
                while each := await running.run_in_thread(partial(next, asked, None)):
                    await room.acquire()
                    row = group.create_task(gateway.judge(each, judge_of, on_record))
                    row.add_done_callback(lambda _: room.release())
                gateway.all_came()
            if not self.work.stopped.is_set():
                await gateway.finish()
        except BaseExceptionGroup as errors:
            error = errors.exceptions[0]
            if isinstance(error, sqlite3.Error):
                told = f"{manifest.path}: cannot be used ({error}); free space and run the same command again"
                raise InputError(told) from None
            raise error from None
        finally:
            manifest.close()
            await gateway.aclose()

    def _patient(self, judge: Judge[Any, Any, Any]) -> Judge[Any, Any, Any]:
        """Return a judge that waits for batches; raises `UsageError` where it cannot ask in batches."""
        models_by_tier = judge.models_by_tier
        models = [*chain(*models_by_tier.values())]
        whys = [*map(batches.refusal, models)]
        if self.request.max_cost_usd is not None:
            unpriced = [each.model for each in models if batches.price(each, 1, 1) is None]
            whys += [
                f"no price of {model} is known, so --max-cost cannot work" for model in unpriced
            ]
        if judge.is_remote:
            whys.append("the shared judge (server.url) asks the models")
        if why := next(filter(None, whys), None):
            raise UsageError(f"--batch: {why}; judge without --batch, or with other models")

        def others() -> list[Any]:
            return [
                each
                for each in judge.settings.others()
                if not any(map(batches.refusal, chain(*each.values())))
            ]

        unlimited = {}
        for tier, models_of_tier in models_by_tier.items():
            unlimited[tier] = tuple(map(_unlimited, models_of_tier))
        patient = judge.with_settings(
            models_by_tier=unlimited,
            others=others,
            timeout=_FOREVER,
            max_cost_usd=None,  # the gateway holds to the limit
        )
        return replace(patient, cache=judge.cache and _KeepOnly())


def _unlimited(model: Endpoint) -> Endpoint:
    """Return a model without limits on calls at a time or in a minute: a batch is one call."""
    limits = Limits(context_chars=model.profile.limits.context_chars)
    return replace(model, profile=model.profile.model_copy(update={"limits": limits}))
