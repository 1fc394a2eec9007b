"""Judges rows in a provider's batches: each row's call waits until all waiting calls go out as one batch.

Rows are judged just as they are without batches. When no row can go on without an answer, the requests of
all rows are submitted, so there's a batch for each tier, and another for each round of repeated requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from judgekit.data.manifest import BatchPlace
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
from judgekit.judging.cache import ReplyCache, hash_of_call
from judgekit.judging.reply_file import ReplyFile
from judgekit.judging.round import INEXACT
from judgekit.providers import batches, registry, retrying, running
from judgekit.providers.base import endpoint as endpoint_of
from judgekit.providers.batches import Batch, BatchCalls
from judgekit.providers.gateway import Router
from judgekit.providers.style import MOST_CHANGES, WEAKER, CallStyle
from judgekit.text import counted, short_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from judgekit.data.dataset import PendingRow
    from judgekit.data.manifest import Manifest, Submitted
    from judgekit.data.runners import OnRecord
    from judgekit.data.runs import DatasetRun
    from judgekit.judging.request import JudgeRequest
    from judgekit.providers.base import Endpoint, Reply, Request
    from judgekit.providers.batches import BatchAnswer

Fallback: TypeAlias = Literal["live", "none"]

AT_ONCE = 50_000  # rows being judged at a time: as many as a batch may have requests
SECONDS = (5.0, 60.0)  # between polls of the batches, at first and at most
SETTLED = 0.2  # seconds in which a waiting row may make further calls
_MOST_FAILURES = (
    60  # consecutive failures before the run ends; its batches carry on at the provider
)
_STATUS_CHARS = 40
_POLLS_FOR_FILES = 5  # polls of a batch that's complete but has no files yet
_MAKING = 8  # requests built at a time: each takes a thread
# After one of these we don't know if the provider did what we asked.
_UNCERTAIN = {
    FailureKind.TIMEOUT,
    FailureKind.CONNECTION,
    FailureKind.INVALID_REPLY,
    FailureKind.SERVER_ERROR,
    FailureKind.OVERLOADED,
}
# After one of these the provider doesn't have the thing we asked about, or not for this key.
_GONE = {FailureKind.NOT_FOUND, FailureKind.PERMISSION, FailureKind.BAD_REQUEST}
_PASSING = _UNCERTAIN | {FailureKind.RATE_LIMIT}
_MISSING = {"expired": "its batch expired", "cancelled": "its batch was cancelled"}
_RUNNING = {"validating", "in_progress", "finalizing", "cancelling"}


class Unanswered(Exception):  # noqa: N818 - it's a row's outcome rather than an error of the program
    """Leaves a row to the next run. The argument is the reason; without one, the cost limit was reached."""


@dataclass(eq=False)
class _Row:
    """A row being judged: the number of its waiting calls, and the answers it has used."""

    waits: int = 0
    is_over: bool = False
    used: list[str] = field(default_factory=list)


_current_row: ContextVar[_Row] = ContextVar("row")


class _Waiting(NamedTuple):
    """The answer to come for a request, and the rows waiting for it."""

    future: asyncio.Future[str | None]
    rows: list[_Row]


class KeepOnly(ReplyCache):
    """A cache that only stores: the gateway fetched replies up itself, after the answers we've paid for."""

    def find(self, _endpoint: Endpoint, _request: Request) -> Reply | None:
        return None


def _keep_judge(judge: Any) -> Any:  # noqa: ANN401 - one of three kinds of judge
    return judge


@dataclass(frozen=True)
class BatchRun:
    """A run in batches and its settings; its manifest lies beside `out`."""

    project: Path
    request: JudgeRequest
    at_once: int
    out: str
    fallback: Fallback
    work: DatasetRun
    note: Callable[[str], None]
    is_fresh: bool = False
    is_trusted: bool = False  # trust the manifest beside `out`, whoever wrote it
    adapt: Callable[[Any], Any] = _keep_judge
    """Turns the usual judge into the one that's asked."""


class BatchGateway:
    """Answers the rows' calls from batches, which `drive` submits and collects."""

    def __init__(self, run: BatchRun, manifest: Manifest) -> None:
        self._run = run
        self._manifest = manifest
        self._limit = run.request.max_cost_usd
        self._cache = ReplyCache(ReplyFile()) if run.request.cache else None
        self._router = Router()
        self._making_slots = asyncio.Semaphore(_MAKING)  # of requests
        self._asking_slots = asyncio.Semaphore(run.at_once)  # of live calls
        self._is_manifest_needed = False  # whether the next run needs it

        # Rows
        self._changed = asyncio.Event()  # set at any change of these
        self._is_reading_rows = True
        self._open_rows = 0
        self._waiting_rows = 0  # how many of the open rows are waiting
        self._requests_in_making = 0
        self._waiting: dict[str, _Waiting] = {}  # by the request's custom id
        self._answers_of_written_rows = list[str]()  # custom ids

        # Money
        self._spent = 0.0  # US dollars
        self._charged = set[str]()  # custom ids
        self._costs: dict[str, float] = {}  # estimates for unanswered requests, by custom id

        # Providers: how they take requests, and how the present round goes.
        # By address: the usual style, then weaker ones.
        self._styles: dict[tuple[str | None, str], list[CallStyle]] = {}
        self._max_requests: dict[BatchPlace, int] = {}  # in a batch, after more were refused
        self._max_batches: dict[BatchPlace, int] = {}  # at a time, after one more was refused
        self._last_of_round = 0  # the number of the last request to submit in this round
        self._failures = 0  # consecutive ones
        self._polls_without_files = 0  # polls of completed batches that had no files

    # Rows' calls

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Reply from the cache, from a batch, or from a live call if the batches have no answer.

        If the provider refuses the style of the call, asks again in a weaker style.
        """
        # The styles of an address are learned once, for all rows; `refused` is about this request only.
        address = endpoint.api_base, endpoint.model
        styles = self._styles.setdefault(address, [CallStyle(endpoint.output)])
        refused: list[CallStyle] = []
        while True:
            style = self._choose_style(endpoint, request, styles, refused)
            custom_id = _custom_id(endpoint, request, style)
            cached_reply = await self._find_cached(custom_id, endpoint, request)
            if cached_reply is not None:
                return cached_reply
            answer = self._manifest.answer(custom_id)
            while answer is None:
                why_missing = await self._wait_for_answer(custom_id, endpoint, request, style)
                if why_missing is not None:
                    return await self._ask_live(endpoint, request, why_missing)
                answer = self._manifest.answer(custom_id)
            _current_row.get().used.append(custom_id)
            try:
                reply = await self._read_answer(custom_id, endpoint, request, style, answer)
            except GatewayError as failure:
                weaker_style = style.adapted(failure, endpoint, request)
                if weaker_style is None or len(refused) == MOST_CHANGES:
                    raise
                refused.append(style)
                if weaker_style not in styles:
                    styles.append(weaker_style)
            else:
                return replace(reply, distrust=partial(self._weaken_format, styles, style))

    async def _find_cached(
        self, custom_id: str, endpoint: Endpoint, request: Request
    ) -> Reply | None:
        """Look a reply up in the cache. None if it isn't there, or if the request is already in a batch."""
        if self._cache is None or self._manifest.has(custom_id):
            return None
        return await running.run_in_thread(partial(self._cache.find, endpoint, request))

    async def _read_answer(
        self,
        custom_id: str,
        endpoint: Endpoint,
        request: Request,
        style: CallStyle,
        answer: BatchAnswer,
    ) -> Reply:
        """Turn a batch's answer into a reply, and charge it; raises `GatewayError` for a failed call."""
        try:
            reply = await batches.reply(endpoint, request, style, answer)
        except GatewayError as failure:
            failure.usage = self._charge(custom_id, usage_of_failed_call(failure))
            raise
        return replace(reply, usage=self._charge(custom_id, reply.usage))

    def _choose_style(
        self,
        endpoint: Endpoint,
        request: Request,
        styles: Sequence[CallStyle],
        refused: Sequence[CallStyle],
    ) -> CallStyle:
        """Choose the style in which the request was already sent, since that answer is paid for.

        If it wasn't sent yet, choose the latest style that wasn't refused.
        """
        usable = [style for style in styles if style not in refused]
        for style in usable:
            if self._manifest.has(_custom_id(endpoint, request, style)):
                return style
        return usable[-1]

    def _weaken_format(self, styles: list[CallStyle], style: CallStyle) -> None:
        """Ask in a weaker format from now on.

        With the format of `style`, the address doesn't hold its replies to a schema.
        """
        latest = styles[-1]
        has_changed_since = latest.mode != style.mode  # another row has already noticed
        if not has_changed_since and style.mode in WEAKER:
            styles.append(latest._replace(mode=WEAKER[style.mode]))

    async def aclose(self) -> None:
        await self._router.aclose()

    def _charge(self, custom_id: str, usage: Usage) -> Usage:
        """Charge an answer, and return its usage.

        A second row with the same request has the answer for free, so its usage is `KEPT`.
        """
        if custom_id in self._charged:
            return KEPT
        self._charged.add(custom_id)
        self._spent += usage.cost_usd or 0.0
        return usage

    async def _wait_for_answer(
        self, custom_id: str, endpoint: Endpoint, request: Request, style: CallStyle
    ) -> str | None:
        """Wait until the manifest has a request's answer, and return None then.

        If no answer will come, returns the reason.
        """
        if not self._manifest.has(custom_id):
            # The request's body is freed there: the manifest has it, and the row may wait for hours.
            await self._add_request(custom_id, endpoint, request, style)
        row = _current_row.get()
        waiting = self._waiting.get(custom_id)
        if waiting is None:
            waiting = _Waiting(asyncio.get_running_loop().create_future(), rows=[])
            self._waiting[custom_id] = waiting
        waiting.rows.append(row)
        if row.waits == 0:
            self._waiting_rows += 1
        row.waits += 1
        self._changed.set()
        # Other rows may wait for the same future, so one that's cancelled mustn't cancel it.
        return await asyncio.shield(waiting.future)

    async def _add_request(
        self, custom_id: str, endpoint: Endpoint, request: Request, style: CallStyle
    ) -> None:
        """Build a request's body, and add it to the manifest with an estimate of its cost."""
        self._requests_in_making += 1
        try:
            async with self._making_slots:
                path, body = await batches.body_of(endpoint, request, style)
        finally:
            self._requests_in_making -= 1
        if self._manifest.has(custom_id):  # another row has added it meanwhile
            return
        batch_place = BatchPlace(
            endpoint.profile.provider, endpoint.api_base or "", endpoint.model, path
        )
        self._manifest.add(custom_id, batch_place, body)
        self._run.work.waits_for = f"all requests ({len(self._waiting) + 1:,} so far)"
        if self._limit is not None:
            self._costs[custom_id] = batches.estimate(endpoint, body)

    async def _ask_live(self, endpoint: Endpoint, request: Request, why_missing: str) -> Reply:
        """Make a call that no batch answered, at the usual price.

        Raises `Unanswered` if the row is left to the next run. Raises `GatewayError` if the cost limit is
        reached after some of the row's calls were answered: then the row gets an error.
        """
        was_dropped = why_missing == FailureKind.BUDGET  # the cost limit left no room for it
        limit = self._limit
        if was_dropped and not _current_row.get().used:
            raise Unanswered
        if not was_dropped and self._run.fallback == "none":
            raise Unanswered(f"{why_missing}; the next run asks it in another batch")
        async with self._asking_slots:
            is_limit_reached = limit is not None and self._spent >= limit * (1 - INEXACT)
            if was_dropped or is_limit_reached:
                spent = f"{self._spent:.4f} of {limit:g} US dollars are spent"
                problem = f"{spent}, and the rest is not enough"
                raise GatewayError(FailureKind.BUDGET, problem, usage=Usage())
            reply = await self._router.complete(endpoint, request)
        self._spent += reply.usage.cost_usd or 0.0
        return reply

    # The run

    async def judge(
        self, pending: PendingRow, judge_of: Callable[[Any], Any], on_record: OnRecord
    ) -> None:
        """Judge a row as usual, and pass its record to `on_record`. The row's calls wait for batches."""
        row = _Row()
        self._open_rows += 1
        _current_row.set(row)
        try:
            record = None
            if pending.subject:
                judgement = await judge_of(pending.subject).judge(pending.subject)
                record = judgement.record()
            on_record(pending, record)
            self._answers_of_written_rows += row.used
        except Unanswered as reason:
            self._is_manifest_needed = True
            if reason.args:
                # With a reason, the row gets an error. Without one, the money is spent, and the row is left
                # as it is.
                on_record(pending._replace(error=str(reason)), None)
            else:
                self._run.work.is_spent = True
        finally:
            row.is_over = True
            self._open_rows -= 1
            if row.waits > 0:
                self._waiting_rows -= 1
            self._changed.set()

    def note_all_rows_read(self) -> None:
        """Note that all rows have been read."""
        self._is_reading_rows = False
        self._changed.set()

    async def drive(self) -> None:
        """Submit, wait and collect until all rows are judged; raises `InputError` if batches can't go on."""
        while await self._wait_until_blocked():
            # Under a limit, the cost of the running batches must be known before we choose more requests.
            if self._limit is None or not self._awaited_batches():
                self._choose_requests()
            shortest, longest = SECONDS
            seconds = shortest
            tries = retrying.Tries(inf, (shortest,), shortest=shortest, longest=longest)
            try:
                while self._is_under_way():
                    work = partial(self._advance_batches, seconds)
                    is_over = await retrying.call(work, tries, passes=self._may_go_on)
                    # Poll often after a batch has ended; else poll less and less often.
                    seconds = shortest if is_over else min(seconds * 1.5, longest)
            except GatewayError as failure:
                raise InputError(f"{failure.message}; run the same command to go on") from None

    def _is_under_way(self) -> bool:
        """Whether a batch is still to be submitted, or to be waited for."""
        return bool(self._batches_to_submit() or self._awaited_batches())

    def _batches_to_submit(self) -> list[tuple[BatchPlace, Sequence[str]]]:
        """Group this round's unsent requests into batches."""
        return self._manifest.split_unsent(self._last_of_round, self._max_requests)

    def _may_go_on(self, failure: Exception, _: int) -> bool:
        """Whether to go on after a failure; counts consecutive ones."""
        self._failures += 1
        is_passing = isinstance(failure, GatewayError) and failure.kind in _PASSING
        return is_passing and self._failures <= _MOST_FAILURES

    async def _wait_until_blocked(self) -> bool:
        """Wait until every open row waits for an answer. Returns False if all rows are done."""
        while self._is_reading_rows or self._open_rows:
            self._changed.clear()
            has_all_rows = not self._is_reading_rows or self._open_rows >= AT_ONCE
            are_all_waiting = self._open_rows == self._waiting_rows
            is_blocked = has_all_rows and are_all_waiting and not self._requests_in_making
            if not is_blocked:
                await self._changed.wait()
                continue
            # A row that waits for one call may be about to make another, so we see if anything changes.
            try:
                async with asyncio.timeout(SETTLED):
                    await self._changed.wait()
            except TimeoutError:
                return True
        return False

    def _open_batches(self) -> list[tuple[Submitted, BatchCalls]]:
        """List the batches that aren't collected yet, if the user's settings lead to their address."""
        reachable = []
        for batch in self._manifest.batches():
            if batch.provider_files is None:
                calls = _find_calls(batch.place)
                if calls:
                    reachable.append((batch, calls))
        return reachable

    def _awaited_batches(self) -> list[tuple[Submitted, BatchCalls]]:
        """List the open batches that rows are waiting for."""
        active = []
        for batch, calls in self._open_batches():
            custom_ids = self._manifest.requests(batch)
            if any(custom_id in self._waiting for custom_id in custom_ids):
                active.append((batch, calls))
        return active

    def _choose_requests(self) -> None:
        """Choose the requests of this round: those that rows wait for, as far as the cost limit allows.

        The others are forgotten. If nothing is left to submit or to wait for, all waiting rows are woken.
        """
        planned_usd = self._spent
        # Sums of prices are inexact, so a hair above the limit is still within it.
        max_usd = inf if self._limit is None else self._limit * (1 + INEXACT)
        dropped: dict[str, str] = {}  # reasons by custom id
        for custom_id, *_ in self._manifest.unsent():
            cost = self._costs.get(custom_id, 0.0)
            if custom_id in self._waiting and planned_usd + cost <= max_usd:
                planned_usd += cost
            else:
                dropped[custom_id] = FailureKind.BUDGET
        self._manifest.forget(dropped)
        self._last_of_round = self._manifest.last_number()

        if not dropped and not self._is_under_way():
            # The manifest was changed, or came from elsewhere.
            problem = f"{self._manifest.path} leads to no batch of this address"
            dropped = dict.fromkeys(self._waiting, problem)
        for custom_id, reason in dropped.items():
            self._resolve(custom_id, reason)

    async def _advance_batches(self, seconds: float) -> bool:
        """Submit as many batches as we can, wait, then poll all batches. Returns True if a batch is over."""
        if not self._is_under_way():  # a failed submission may have been the last one
            return True
        await self._recover()
        await self._submit_waiting_batches()
        await asyncio.sleep(seconds)
        return await self._collect_ended_batches()

    async def _submit_waiting_batches(self) -> None:
        """Submit this round's batches until a provider takes no more."""
        for batch_place, custom_ids in self._batches_to_submit():
            running_count = _count_batches_at(batch_place, self._awaited_batches())
            max_batches = self._max_batches.get(batch_place)
            is_place_full = max_batches is not None and running_count >= max_batches
            # If none is at work there, nothing would ever make room, so we submit all the same.
            if running_count and is_place_full:
                continue
            if not await self._submit(batch_place, custom_ids, running_count):
                break

    async def _collect_ended_batches(self) -> bool:
        """Poll all batches that rows wait for, and collect those that are over; False if none is."""
        fetched = []
        accepted = []
        for submitted, calls in self._awaited_batches():
            if not submitted.id:
                continue
            batch = await self._fetch_state(submitted, calls)
            if batch is None:
                continue
            fetched.append((submitted, calls, batch))
            if batch.status != "failed":
                accepted.append((submitted, calls))
        states = []
        for submitted, calls, batch in fetched:
            running_count = _count_batches_at(submitted.place, accepted)
            states.append(await self._collect(submitted, calls, batch, running_count))
        self._run.work.waits_for = ", ".join(state for state in states if state is not None)
        return None in states  # `_collect` returns None for a batch that's over

    async def _fetch_state(self, submitted: Submitted, calls: BatchCalls) -> Batch | None:
        """Fetch a batch's state from its provider.

        If the provider doesn't know the batch, raises `GatewayError` with a hint: the batch may belong to
        another key or project. Under `--fresh` it's forgotten instead, its requests are submitted anew, and
        the result is None.
        """
        try:
            return await calls.retrieve(str(submitted.id))
        except GatewayError as failure:
            if failure.kind not in _GONE:
                raise
            path = self._manifest.path
            if not self._run.is_fresh:
                hint = f"deleted, too old, or of another key; without it: --fresh, or remove {path}"
                failure.message += f" (batch {submitted.id} in {path}: {hint})"
                raise
        await self._forget_batch(submitted, calls)
        self._run.note(f"batch {submitted.id} is unknown to its provider: it is asked anew")
        return None

    async def _submit(
        self, place: BatchPlace, custom_ids: Sequence[str], running_count: int
    ) -> bool:
        """Submit a batch. Returns False if the provider takes no more now.

        Raises `GatewayError` for any other failure.
        """
        calls = _find_calls(place)
        # Noted before it's sent, so that `_recover` can find it if we're interrupted.
        batch = self._manifest.intend(uuid.uuid4().hex, place, custom_ids)
        assert calls is not None  # noqa: S101 - a row has just asked there
        try:
            file = await calls.upload(_name_request_file(batch), self._manifest.content(batch))
            batch = self._manifest.store(batch._replace(file=file))
            batch_id = await calls.create(file, place.path, batch.tag)
        except GatewayError as failure:
            if batch.file and failure.kind in _UNCERTAIN:
                raise  # the next step finds out if the batch was made
            await self._forget_batch(batch, calls)
            is_busy = batch.file and failure.kind is FailureKind.RATE_LIMIT
            is_too_much = is_busy or batches.is_limit(failure.message)
            if not is_too_much:
                raise
            self._wait_for_place(place, len(custom_ids), running_count, failure.message)
            return False
        self._manifest.store(batch._replace(id=batch_id))
        self._max_batches.pop(place, None)
        count = counted(len(custom_ids), "request", "requests")
        self._run.note(
            f"batch {batch_id}: {count} to {place.model}; if this run ends, the same command goes on"
        )
        return True

    def _wait_for_place(self, place: BatchPlace, count: int, running_count: int, why: str) -> None:
        """Hold back further submissions until one of the running batches is over.

        If none is running, a batch of this size is too large by itself: the next one is half as large, and a
        `GatewayError` makes us try it later.
        """
        self._max_batches[place] = running_count
        if running_count == 0:
            self._max_requests[place] = ceil(count / 2)
            raise GatewayError(FailureKind.RATE_LIMIT, why)

    async def _forget_batch(self, batch: Submitted, calls: BatchCalls) -> None:
        """Forget a batch that the provider never ran, and delete the provider's copy of its requests.

        The copy is deleted only if this run's own user uploaded it (`is_ours`).
        """
        self._manifest.release(batch)
        if not batch.is_ours:
            return
        with suppress(GatewayError):
            # An interrupted upload may have arrived, although we never learned the file's id.
            file = batch.file or await calls.find_file(_name_request_file(batch))
            if file:
                await calls.delete(file)

    async def _recover(self) -> None:
        """Look for batches whose submission was interrupted: they may exist, and must not be made twice.

        A batch that the provider doesn't have is released.
        """
        for batch, calls in self._open_batches():
            if batch.id:
                continue
            batch_id = None
            try:
                if batch.file:  # without it, the batch can't have been created
                    batch_id = await calls.find(batch.tag, batch.file)
            except GatewayError as failure:
                path = self._manifest.path
                failure.message += f" (a batch may have been submitted; or remove {path})"
                raise
            if batch_id:
                self._manifest.store(batch._replace(id=batch_id))
            else:
                await self._forget_batch(batch, calls)

    async def _collect(
        self, submitted: Submitted, calls: BatchCalls, batch: Batch, running_count: int
    ) -> str | None:
        """Describe a running batch's progress; if it's over, pass its answers to the rows and return None.

        Raises `GatewayError` for a batch that the provider refused.
        """
        custom_ids = [*self._manifest.requests(submitted)]
        if batch.status == "failed":
            await self._forget_batch(submitted, calls)
            if not batches.is_limit(batch.problem):
                problem = f"batch {submitted.id} was refused: {batch.problem}"
                raise GatewayError(FailureKind.BAD_REQUEST, f"{submitted.place.base}: {problem}")
            self._wait_for_place(submitted.place, len(custom_ids), running_count, batch.problem)
            return None
        if batch.status != "validating":  # the provider has accepted it
            self._failures = 0

        # The status of some batches is "completed" a little before their files are there.
        lacks_files = batch.status == "completed" and not batch.files
        are_files_to_come = lacks_files and self._polls_without_files < _POLLS_FOR_FILES
        if are_files_to_come:
            self._polls_without_files += 1
        if are_files_to_come or not _is_over(batch):
            progress = f"{batch.answered:,} of {batch.total:,} answered, {batch.status}"
            return f"{submitted.id} ({progress})"

        answers = [await calls.content(file) for file in batch.files]
        provider_files = (submitted.file or "", *batch.files)
        self._manifest.collect(submitted._replace(provider_files=provider_files), chain(*answers))
        self._wake_rows(submitted, batch, custom_ids)
        await self._delete_collected()
        return None

    def _wake_rows(self, submitted: Submitted, batch: Batch, custom_ids: Sequence[str]) -> None:
        """Wake the rows that wait for a collected batch, and note how many requests it left unanswered."""
        why = f"{_explain_missing(batch.status)} ({submitted.id})"
        missing = 0
        for custom_id in custom_ids:
            if self._manifest.has(custom_id):
                self._resolve(custom_id, None)
            else:
                missing += 1
                self._resolve(custom_id, why)
        if missing:
            count = counted(missing, "request has", "requests have")
            is_live = self._run.fallback == "live"
            how = "asked by ordinary calls" if is_live else "left to the next run"
            self._run.note(f"batch {submitted.id} is {batch.status}: {count} no answer; {how}")

    def _resolve(self, custom_id: str, why_missing: str | None) -> None:
        """Wake the rows that wait for a request. `why_missing` is None if the request's answer has come."""
        self._costs.pop(custom_id, None)
        waiting = self._waiting.pop(custom_id, None)
        if waiting is None:
            return
        for row in waiting.rows:
            row.waits -= 1
            if row.waits == 0 and not row.is_over:
                self._waiting_rows -= 1
        waiting.future.set_result(why_missing)

    async def _delete_collected(self) -> None:
        """Delete the provider's copies of batches we've already collected."""
        for batch in self._manifest.batches():
            calls = _find_calls(batch.place)
            if calls is None or batch.provider_files is None:
                continue
            # Files that a manifest from elsewhere names may be somebody else's, so they stay.
            files = batch.provider_files if batch.is_ours else ()
            for file in files:
                if not file:  # the batch came without a file of requests
                    continue
                try:
                    await calls.delete(file)
                except GatewayError as failure:
                    self._run.note(f"{file} cannot be deleted: {failure.message}; delete it there")
            self._manifest.end(batch)

    async def finish(self) -> None:
        """Remove the manifest after a complete run, unless the next run needs it.

        First collects the batches that have ended since, and names those that go on without us.
        """
        with suppress(GatewayError):
            await self._recover()
            for submitted, calls in self._open_batches():
                if not submitted.id:
                    continue
                batch = await self._fetch_state(submitted, calls)
                if batch is not None and batch.status != "failed":
                    await self._collect(submitted, calls, batch, running_count=0)
        await self._delete_collected()

        unfinished_batches = self._manifest.batches()
        for unfinished_batch in unfinished_batches:
            batch_place = unfinished_batch.place
            name = f"batch {unfinished_batch.id} at {batch_place.base or batch_place.provider}"
            self._run.note(
                f"{name} goes on, but no row waits for it; cancel it there, or run this again"
            )
        self._manifest.forget(self._answers_of_written_rows)
        is_needed = bool(unfinished_batches) or self._is_manifest_needed
        self._manifest.close(remove=not is_needed)


def _is_over(batch: Batch) -> bool:
    """Whether a batch is over. A batch whose status we don't know is over after its deadline."""
    if batch.status in ("completed", *_MISSING):
        return True
    is_late = batch.deadline is not None and time.time() > batch.deadline
    return is_late and batch.status not in _RUNNING


def _name_request_file(batch: Submitted) -> str:
    """Name a batch's request file, as the provider shows it."""
    return f"judgekit-{batch.tag}.jsonl"


def _explain_missing(status: str) -> str:
    """Explain why a request has no answer although its batch is over."""
    if status == "completed":
        return "its batch brought no answer"
    return _MISSING.get(status) or f"its batch ended as {short_line(status, _STATUS_CHARS)!r}"


def _count_batches_at(place: BatchPlace, active: Iterable[tuple[Any, ...]]) -> int:
    """Count the batches at a place."""
    return sum(batch.place == place for batch, *_ in active)


def _custom_id(endpoint: Endpoint, request: Request, style: CallStyle) -> str:
    """Hash everything that's sent, except the random mark around quoted texts.

    A request that repeats a question, because the first reply couldn't be read, gets an id of its own.
    """
    text = f"{hash_of_call(endpoint, request)} {'reask' in request.call_key.part} {style.stamp()}"
    return hashlib.sha256(text.encode()).hexdigest()[:48]


def _find_calls(place: BatchPlace) -> BatchCalls | None:
    """Return the calls for batches at a place; None if the user's own settings lead to another address.

    The manifest may have come with a repository, so it never decides alone to which address a key is sent.
    """
    with suppress(UsageError):
        endpoint = endpoint_of(registry.find(place.provider), place.model, environ())
        is_same_address = (endpoint.api_base or "") == place.base
        if is_same_address and not batches.refusal(endpoint):
            return BatchCalls(endpoint)
    return None
