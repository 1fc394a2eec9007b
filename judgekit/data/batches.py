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

from judgekit.data.manifest import BatchTarget
from judgekit.environment import environ
from judgekit.errors import (
    CACHED_USAGE,
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
from judgekit.providers.base import build_endpoint as endpoint_of
from judgekit.providers.batches import Batch, BatchCalls
from judgekit.providers.gateway import Router
from judgekit.providers.style import MAX_CHANGES, WEAKER, CallStyle
from judgekit.text import format_count, shorten_to_line

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

MAX_OPEN_ROWS = 50_000  # rows being judged at a time: as many as a batch may have requests
POLL_SECONDS = (5.0, 60.0)  # between polls of the batches, at first and at most
SETTLING_SECONDS = 0.2  # seconds in which a waiting row may make further calls
_MAX_FAILURES = 60  # consecutive failures before the run ends; its batches carry on at the provider
_STATUS_CHARS = 40
_POLLS_FOR_FILES = 5  # polls of a batch that's complete but has no files yet
_MAX_REQUESTS_BEING_BUILT = 8  # requests built at a time: each takes a thread
# After one of these we don't know if the provider did what we asked.
_UNCERTAIN_FAILURES = {
    FailureKind.TIMEOUT,
    FailureKind.CONNECTION,
    FailureKind.INVALID_REPLY,
    FailureKind.SERVER_ERROR,
    FailureKind.OVERLOADED,
}
# After one of these the provider doesn't have the thing we asked about, or not for this key.
_GONE_FAILURES = {FailureKind.NOT_FOUND, FailureKind.PERMISSION, FailureKind.BAD_REQUEST}
_PASSING_FAILURES = _UNCERTAIN_FAILURES | {FailureKind.RATE_LIMIT}
_REASON_BY_ENDED_STATUS = {"expired": "its batch expired", "cancelled": "its batch was cancelled"}
_RUNNING_STATUSES = {"validating", "in_progress", "finalizing", "cancelling"}


class Unanswered(Exception):  # noqa: N818 - it's a row's outcome rather than an error of the program
    """Leaves a row to the next run. Its argument is the reason; it has none if the cost limit was reached."""


@dataclass(eq=False)
class _Row:
    """A row being judged: the number of its waiting calls, and the custom ids of the answers it has used."""

    waiting_call_count: int = 0
    is_over: bool = False
    used_answer_ids: list[str] = field(default_factory=list)


_current_row: ContextVar[_Row] = ContextVar("row")


class _Waiting(NamedTuple):
    """The answer to come for a request, and the rows waiting for it."""

    future: asyncio.Future[str | None]
    rows: list[_Row]


class KeepOnly(ReplyCache):
    """A cache that only stores. The gateway looks replies up itself, after any paid batch answer."""

    def find(self, _endpoint: Endpoint, _request: Request) -> Reply | None:
        return None


def _keep_judge(judge: Any) -> Any:  # noqa: ANN401 - one of three kinds of judge
    return judge


@dataclass(frozen=True)
class BatchRun:
    """A batch run and its settings. Its manifest is the file `OUT.batch`."""

    project: Path
    request: JudgeRequest
    at_once: int
    out: str
    fallback: Fallback
    dataset_run: DatasetRun
    note: Callable[[str], None]
    is_fresh: bool = False
    is_trusted: bool = False  # trust the manifest, whoever wrote it
    adapt: Callable[[Any], Any] = _keep_judge
    """Converts the configured judge into the judge for this run."""


class BatchGateway:
    """Answers the rows' calls from batches, which `drive_batches` submits and collects."""

    def __init__(self, run: BatchRun, manifest: Manifest) -> None:
        self._run = run
        self._manifest = manifest
        self._limit_usd = run.request.max_cost_usd
        self._cache = ReplyCache(ReplyFile()) if run.request.cache else None
        self._router = Router()
        # Limits how many requests are built at a time.
        self._making_slots = asyncio.Semaphore(_MAX_REQUESTS_BEING_BUILT)
        self._asking_slots = asyncio.Semaphore(run.at_once)  # limits concurrent live calls
        self._is_manifest_needed = False  # whether the next run needs the manifest

        # Rows
        self._changed = asyncio.Event()  # set when a row waits or ends, or when all rows are read
        self._is_reading_rows = True
        self._open_row_count = 0
        self._waiting_row_count = 0  # how many of the open rows are waiting
        self._unfinished_request_count = 0  # requests whose body is being built
        self._waiting: dict[str, _Waiting] = {}  # by the request's custom id
        self._written_answer_ids = list[str]()  # custom ids

        # Money
        self._spent_usd = 0.0  # US dollars
        self._charged = set[str]()  # custom ids of the answers whose cost is in `_spent_usd`
        self._costs: dict[str, float] = {}  # estimates for unanswered requests, by custom id

        # Providers
        # By API base and model: the styles that work there, the profile's style first, then weaker ones.
        self._styles: dict[tuple[str | None, str], list[CallStyle]] = {}
        self._max_requests: dict[BatchTarget, int] = {}  # per batch, if a larger batch was refused
        self._max_batches: dict[BatchTarget, int] = {}  # at a time, if a further batch was refused
        self._last_request_number = 0  # the number of the last request to submit in this round
        self._failures = 0  # consecutive failures of polling or submitting
        self._polls_without_files = 0  # polls of completed batches that had no files

    # Rows' calls

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Get a reply from the cache, from a batch or, if the batch has no answer, from a live call.

        If the provider refuses the request's style, such as its output format, retries in a weaker style.
        """
        # Rows share the styles known to work at an address, but `refused` only concerns this request.
        address = endpoint.api_base, endpoint.model
        styles = self._styles.setdefault(address, [CallStyle(endpoint.output_mode)])
        refused: list[CallStyle] = []

        while True:
            style = self._choose_style(endpoint, request, styles, refused)
            custom_id = _compute_custom_id(endpoint, request, style)
            cached_reply = await self._find_cached(custom_id, endpoint, request)
            if cached_reply is not None:
                return cached_reply

            answer = self._manifest.answer(custom_id)
            while answer is None:
                why_missing = await self._wait_for_answer(custom_id, endpoint, request, style)
                if why_missing is not None:
                    return await self._ask_live(endpoint, request, why_missing)
                # Otherwise, the answer is in the manifest now.
                answer = self._manifest.answer(custom_id)
            _current_row.get().used_answer_ids.append(custom_id)

            try:
                reply = await self._read_answer(custom_id, endpoint, request, style, answer)
            except GatewayError as failure:
                weaker_style = style.adapt_to_failure(failure, endpoint, request)
                if weaker_style is None or len(refused) == MAX_CHANGES:
                    raise
                refused.append(style)
                if weaker_style not in styles:
                    styles.append(weaker_style)
            else:
                # The judge calls `distrust` if the reply ignores the schema.
                return replace(reply, distrust=partial(self._weaken_format, styles, style))

    async def _find_cached(
        self, custom_id: str, endpoint: Endpoint, request: Request
    ) -> Reply | None:
        """Look up a reply in the cache.

        Returns None if there's none, or if the request is in the manifest.
        """
        if self._cache is None or self._manifest.has(custom_id):
            return None  # a batch's answer is paid for, so prefer it to a cached reply
        return await running.run_in_thread(partial(self._cache.find, endpoint, request))

    async def _read_answer(
        self,
        custom_id: str,
        endpoint: Endpoint,
        request: Request,
        style: CallStyle,
        answer: BatchAnswer,
    ) -> Reply:
        """Convert a batch's answer to a reply, and count its cost.

        Raises `GatewayError` for a failed call.
        """
        try:
            reply = await batches.read_reply(endpoint, request, style, answer)
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
        """Choose a style that the provider hasn't refused for this request.

        Prefers a style in which the manifest already has the request, then the one that was added last.
        """
        usable = [style for style in styles if style not in refused]
        for style in usable:
            is_in_manifest = self._manifest.has(_compute_custom_id(endpoint, request, style))
            if is_in_manifest:
                return style  # its answer may be paid for already
        return usable[-1]

    def _weaken_format(self, styles: list[CallStyle], style: CallStyle) -> None:
        """Use a weaker format from now on, because a reply in the format of `style` ignored the schema."""
        latest = styles[-1]
        if latest.mode != style.mode:
            return  # another row has already added a weaker format
        if style.mode in WEAKER:
            styles.append(latest._replace(mode=WEAKER[style.mode]))

    async def aclose(self) -> None:
        await self._router.aclose()

    def _charge(self, custom_id: str, usage: Usage) -> Usage:
        """Count an answer's cost as spent, and return its usage.

        If rows share an answer, the first one pays for it, and the others get the free usage `CACHED_USAGE`.
        """
        if custom_id in self._charged:
            # The answer's cost was counted for another row with the same request.
            return CACHED_USAGE
        self._charged.add(custom_id)
        self._spent_usd += usage.cost_usd or 0.0
        return usage

    async def _wait_for_answer(
        self, custom_id: str, endpoint: Endpoint, request: Request, style: CallStyle
    ) -> str | None:
        """Wait until the manifest has a request's answer. If there will be none, return the reason."""
        if not self._manifest.has(custom_id):
            # Waiting can take hours, so add the request in a call of its own, which frees the request's body
            # when it returns.
            await self._add_request(custom_id, endpoint, request, style)

        waiting = self._waiting.get(custom_id)
        if waiting is None:
            waiting = _Waiting(asyncio.get_running_loop().create_future(), rows=[])
            self._waiting[custom_id] = waiting
        row = _current_row.get()
        waiting.rows.append(row)
        if row.waiting_call_count == 0:
            self._waiting_row_count += 1
        row.waiting_call_count += 1
        self._changed.set()

        # Multiple rows can wait for the same future, so cancelling one row must not cancel the future.
        return await asyncio.shield(waiting.future)

    async def _add_request(
        self, custom_id: str, endpoint: Endpoint, request: Request, style: CallStyle
    ) -> None:
        """Build a request's body, add it to the manifest, and estimate its cost if there's a cost limit."""
        self._unfinished_request_count += 1
        try:
            async with self._making_slots:
                path, body = await batches.build_request(endpoint, request, style)
        finally:
            self._unfinished_request_count -= 1
        if self._manifest.has(custom_id):  # another row has added the same request meanwhile
            return

        target = BatchTarget(
            endpoint.profile.provider, endpoint.api_base or "", endpoint.model, path
        )
        self._manifest.add(custom_id, target, body)
        self._run.dataset_run.waits_for = f"all requests ({len(self._waiting) + 1:,} so far)"
        if self._limit_usd is not None:
            self._costs[custom_id] = batches.estimate(endpoint, body)

    async def _ask_live(self, endpoint: Endpoint, request: Request, why_missing: str) -> Reply:
        """Make an ordinary call, at the full price, because no batch answered the request.

        Raises `Unanswered` to leave the row to the next run, and `GatewayError` if the cost limit doesn't
        allow the call.
        """
        is_over_budget = why_missing == FailureKind.BUDGET
        limit = self._limit_usd
        # No batch's answer was used for this row yet, so a later run can judge it.
        if is_over_budget and not _current_row.get().used_answer_ids:
            raise Unanswered
        if not is_over_budget and self._run.fallback == "none":
            raise Unanswered(f"{why_missing}; the next run asks it in another batch")

        async with self._asking_slots:
            # Other calls may have spent the rest while this one waited for a slot. Sums of prices aren't
            # exact, so stop slightly below the limit.
            is_limit_reached = limit is not None and self._spent_usd >= limit * (1 - INEXACT)
            if is_over_budget or is_limit_reached:
                spent = f"{self._spent_usd:.4f} of {limit:g} US dollars are spent"
                problem = f"{spent}, and the rest is not enough"
                raise GatewayError(FailureKind.BUDGET, problem, usage=Usage())
            reply = await self._router.complete(endpoint, request)
        self._spent_usd += reply.usage.cost_usd or 0.0
        return reply

    # The run

    async def judge(
        self, pending: PendingRow, find_judge: Callable[[Any], Any], on_record: OnRecord
    ) -> None:
        """Judge a row, and pass its record to `on_record`. Its calls to models wait for batches."""
        row = _Row()
        self._open_row_count += 1
        _current_row.set(row)  # for `complete`, which the judge calls

        try:
            record = None
            if pending.subject:  # otherwise, an error prevents judging the row
                judgement = await find_judge(pending.subject).judge(pending.subject)
                record = judgement.record()
            on_record(pending, record)
            self._written_answer_ids += row.used_answer_ids
        except Unanswered as reason:
            self._is_manifest_needed = True
            if reason.args:
                on_record(pending._replace(error=str(reason)), None)
            else:  # the cost limit was reached, so leave the row to a later run
                self._run.dataset_run.is_budget_spent = True
        finally:
            row.is_over = True
            self._open_row_count -= 1
            if row.waiting_call_count > 0:
                self._waiting_row_count -= 1
            self._changed.set()

    def note_all_rows_read(self) -> None:
        """Note that all rows have been read."""
        self._is_reading_rows = False
        self._changed.set()

    async def drive_batches(self) -> None:
        """Submit, poll and collect batches until all rows are judged.

        Raises `InputError` if the batches can't continue.
        """
        shortest, longest = POLL_SECONDS
        # The number of tries is unlimited, because `_may_retry` counts the failures.
        tries = retrying.Tries(inf, (shortest,), shortest_pause=shortest, longest_pause=longest)
        while await self._wait_until_blocked():
            # With a cost limit, only choose more requests once the cost of the running batches is known.
            if self._limit_usd is None or not self._list_awaited_batches():
                self._choose_requests()

            pause = shortest
            try:
                while self._has_unfinished_batches():
                    work = partial(self._advance_batches, pause)
                    has_ended_batch = await retrying.call(work, tries, should_retry=self._may_retry)
                    # Poll less and less often. When a batch ends, others may end soon, so start over.
                    pause = shortest if has_ended_batch else min(pause * 1.5, longest)
            except GatewayError as failure:
                raise InputError(f"{failure.message}; run the same command to go on") from None

    def _has_unfinished_batches(self) -> bool:
        """Whether there are batches to submit, or batches that rows are waiting for."""
        return bool(self._split_unsent_requests() or self._list_awaited_batches())

    def _split_unsent_requests(self) -> list[tuple[BatchTarget, Sequence[str]]]:
        """Split this round's unsent requests into batches."""
        return self._manifest.split_unsent(self._last_request_number, self._max_requests)

    def _may_retry(self, failure: Exception, _: int) -> bool:
        """Count a failure, and tell whether to try again: not after a lasting one, or too many in a row."""
        self._failures += 1
        is_passing = isinstance(failure, GatewayError) and failure.kind in _PASSING_FAILURES
        return is_passing and self._failures <= _MAX_FAILURES

    async def _wait_until_blocked(self) -> bool:
        """Wait until all open rows are waiting for answers, so that submitting a batch makes sense.

        Returns False once all rows are judged.
        """
        while self._is_reading_rows or self._open_row_count:
            self._changed.clear()
            can_read_more = self._is_reading_rows and self._open_row_count < MAX_OPEN_ROWS
            are_all_waiting = self._open_row_count == self._waiting_row_count
            is_blocked = (
                are_all_waiting and not can_read_more and not self._unfinished_request_count
            )
            if not is_blocked:
                await self._changed.wait()
                continue

            # A row can make several calls at a time, so a waiting row may be about to make another call.
            # Only count the rows as blocked if nothing changes for a moment.
            try:
                async with asyncio.timeout(SETTLING_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                return True  # nothing has changed, so all rows are really waiting
        return False

    def _list_open_batches(self) -> list[tuple[Submitted, BatchCalls]]:
        """List the batches that aren't collected yet, if the user's settings have their address."""
        open_batches = []
        for batch in self._manifest.batches():
            # `provider_files` is set when the batch is collected.
            if batch.provider_files is None:
                calls = _find_calls(batch.target)
                if calls:
                    open_batches.append((batch, calls))
        return open_batches

    def _list_awaited_batches(self) -> list[tuple[Submitted, BatchCalls]]:
        """List the open batches that rows are waiting for."""
        awaited = []
        for batch, calls in self._list_open_batches():
            custom_ids = self._manifest.requests(batch)
            if any(custom_id in self._waiting for custom_id in custom_ids):
                awaited.append((batch, calls))
        return awaited

    def _choose_requests(self) -> None:
        """Choose the requests to submit in this round: those that rows wait for, as far as the money lasts.

        Forgets the other requests, and wakes the rows that wait for them.
        """
        planned_usd = self._spent_usd  # with the estimated cost of the chosen requests
        # Sums of prices aren't exact, so tolerate a tiny excess.
        max_usd = inf if self._limit_usd is None else self._limit_usd * (1 + INEXACT)
        reason_by_id: dict[str, str] = {}  # why a request isn't chosen, by custom id
        for custom_id, *_ in self._manifest.list_unsent_requests():
            cost = self._costs.get(custom_id, 0.0)
            if custom_id in self._waiting and planned_usd + cost <= max_usd:
                planned_usd += cost
            else:
                # Only waiting rows get the reason, so it needn't be true if none waits.
                reason_by_id[custom_id] = FailureKind.BUDGET
        self._manifest.forget(reason_by_id)
        self._last_request_number = self._manifest.last_number()

        if not reason_by_id and not self._has_unfinished_batches():
            # The manifest was changed or copied, so rows wait for batches that we can't reach. Wake them.
            problem = f"{self._manifest.path} leads to no batch of this address"
            reason_by_id = dict.fromkeys(self._waiting, problem)
        for custom_id, reason in reason_by_id.items():
            self._resolve(custom_id, reason)

    async def _advance_batches(self, seconds: float) -> bool:
        """Submit as many batches as possible, wait, then poll them all.

        Returns True if any has ended, or if there's none.
        """
        # The first try always has unfinished batches, so this is a retry, and none are left.
        if not self._has_unfinished_batches():
            return True
        await self._recover_batches()
        await self._submit_waiting_batches()
        await asyncio.sleep(seconds)
        return await self._collect_ended_batches()

    async def _submit_waiting_batches(self) -> None:
        """Submit this round's batches, until a provider accepts no more."""
        for target, custom_ids in self._split_unsent_requests():
            running_count = _count_batches_for(target, self._list_awaited_batches())
            max_batches = self._max_batches.get(target)
            is_full = max_batches is not None and running_count >= max_batches
            # Leave the batch to a later step, when a running one has ended. If none is running, none can end,
            # so try anyway.
            if running_count and is_full:
                continue
            if not await self._submit(target, custom_ids, running_count):
                break

    async def _collect_ended_batches(self) -> bool:
        """Poll all batches that rows wait for, and collect the ended ones. Returns True if any has ended."""
        fetched = []
        accepted = []  # batches that the provider hasn't refused
        for submitted, calls in self._list_awaited_batches():
            if not submitted.id:  # the submission was interrupted
                continue
            batch = await self._fetch_batch(submitted, calls)
            if batch is None:  # the provider doesn't know it
                continue
            fetched.append((submitted, calls, batch))
            if batch.status != "failed":
                accepted.append((submitted, calls))

        # A refused batch needs the number of accepted ones, so only collect when all are fetched.
        states = []
        for submitted, calls, batch in fetched:
            running_count = _count_batches_for(submitted.target, accepted)
            states.append(await self._collect(submitted, calls, batch, running_count))
        self._run.dataset_run.waits_for = ", ".join(state for state in states if state is not None)
        return None in states  # `_collect` returns None for a batch that has ended

    async def _fetch_batch(self, submitted: Submitted, calls: BatchCalls) -> Batch | None:
        """Fetch a batch's current state from its provider.

        If the provider doesn't know the batch, raises `GatewayError` with a hint. With `--fresh`, forgets the
        batch instead, and returns None.
        """
        try:
            return await calls.retrieve(str(submitted.id))
        except GatewayError as failure:
            if failure.kind not in _GONE_FAILURES:
                raise
            if not self._run.is_fresh:
                path = self._manifest.path
                hint = f"deleted, too old, or of another key; without it: --fresh, or remove {path}"
                failure.message += f" (batch {submitted.id} in {path}: {hint})"
                raise
        # The batch's requests count as unsent again, so the next round submits them in another batch.
        await self._forget_batch(submitted, calls)
        self._run.note(f"batch {submitted.id} is unknown to its provider: it is asked anew")
        return None

    async def _submit(
        self, target: BatchTarget, custom_ids: Sequence[str], running_count: int
    ) -> bool:
        """Submit a batch. Returns False if the provider accepts no more until a running batch ends.

        Raises `GatewayError` if the submission fails for another reason, or if no batch is running that
        could end.
        """
        calls = _find_calls(target)
        assert calls is not None  # noqa: S101 - a row has just asked there
        # Note the batch before sending it, so that `_recover_batches` can find it if we're interrupted.
        batch = self._manifest.add_batch(uuid.uuid4().hex, target, custom_ids)
        try:
            file = await calls.upload(
                _name_request_file(batch), self._manifest.build_request_file(batch)
            )
            batch = self._manifest.store(batch._replace(request_file_id=file))
            batch_id = await calls.create(file, target.path, batch.tag)
        except GatewayError as failure:
            if batch.request_file_id and failure.kind in _UNCERTAIN_FAILURES:
                raise  # the batch may exist; `_recover_batches` finds out in the next step
            await self._forget_batch(batch, calls)
            # A rate limit of the upload says nothing about the number of batches.
            is_rate_limited = batch.request_file_id and failure.kind is FailureKind.RATE_LIMIT
            if not is_rate_limited and not batches.is_limit(failure.message):
                raise
            self._limit_batches(target, len(custom_ids), running_count, failure.message)
            return False

        self._manifest.store(batch._replace(id=batch_id))
        self._max_batches.pop(target, None)
        count = format_count(len(custom_ids), "request", "requests")
        self._run.note(
            f"batch {batch_id}: {count} to {target.model}; if this run ends, the same command goes on"
        )
        return True

    def _limit_batches(
        self, target: BatchTarget, request_count: int, running_count: int, message: str
    ) -> None:
        """Hold back further batches until a running one ends, because the provider refused another one.

        If none is running, halves the batch size, and raises `GatewayError`, so that the caller tries again.
        """
        self._max_batches[target] = running_count
        if running_count == 0:  # even a single batch of this size is too large
            self._max_requests[target] = ceil(request_count / 2)
            raise GatewayError(FailureKind.RATE_LIMIT, message)

    async def _forget_batch(self, batch: Submitted, calls: BatchCalls) -> None:
        """Forget a batch that the provider never ran, and delete its uploaded request file."""
        self._manifest.mark_unsent(batch)
        if not batch.is_ours:
            return  # somebody else's manifest could name any file
        with suppress(GatewayError):
            # If the upload was interrupted, the provider may have the file, although we don't know its id.
            file = batch.request_file_id or await calls.find_file(_name_request_file(batch))
            if file:
                await calls.delete(file)

    async def _recover_batches(self) -> None:
        """Find batches whose submission was interrupted, so that none is created twice.

        Batches that the provider doesn't know are forgotten.
        """
        for batch, calls in self._list_open_batches():
            if batch.id:
                continue
            batch_id = None
            try:
                if batch.request_file_id:  # without its file, the batch can't have been created
                    batch_id = await calls.find(batch.tag, batch.request_file_id)
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
        """Store a batch's answers, and return None. If it's still running, describe its progress instead.

        `running_count` is used if the provider refused the batch. Then raises `GatewayError`, unless it only
        has to wait until another batch ends.
        """
        custom_ids = list(self._manifest.requests(submitted))
        if batch.status == "failed":
            await self._forget_batch(submitted, calls)
            if not batches.is_limit(batch.problem):
                problem = f"batch {submitted.id} was refused: {batch.problem}"
                raise GatewayError(
                    FailureKind.BAD_REQUEST, f"{submitted.target.base_url}: {problem}"
                )
            self._limit_batches(submitted.target, len(custom_ids), running_count, batch.problem)
            return None
        if batch.status != "validating":  # the provider has accepted it
            self._failures = 0

        # Some batches are "completed" shortly before their files are available. Poll these a few more times.
        lacks_files = batch.status == "completed" and not batch.file_ids
        is_expecting_files = lacks_files and self._polls_without_files < _POLLS_FOR_FILES
        if is_expecting_files:
            self._polls_without_files += 1
        if is_expecting_files or not _has_ended(batch):
            progress = f"{batch.answered_count:,} of {batch.total_count:,} answered, {batch.status}"
            return f"{submitted.id} ({progress})"

        answers = [await calls.fetch_answers(file) for file in batch.file_ids]
        provider_files = (submitted.request_file_id or "", *batch.file_ids)
        self._manifest.collect(submitted._replace(provider_files=provider_files), chain(*answers))
        self._wake_rows(submitted, batch, custom_ids)
        await self._delete_collected()
        return None

    def _wake_rows(self, submitted: Submitted, batch: Batch, custom_ids: Sequence[str]) -> None:
        """Wake the rows that wait for a collected batch, and report how many requests it left unanswered."""
        why_missing = f"{_explain_missing(batch.status)} ({submitted.id})"
        missing_count = 0
        for custom_id in custom_ids:
            is_answered = self._manifest.has(custom_id)  # `collect` has dropped unanswered requests
            if is_answered:
                self._resolve(custom_id, None)
            else:
                missing_count += 1
                self._resolve(custom_id, why_missing)

        if missing_count:
            count = format_count(missing_count, "request has", "requests have")
            is_live = self._run.fallback == "live"
            next_step = "asked by ordinary calls" if is_live else "left to the next run"
            self._run.note(
                f"batch {submitted.id} is {batch.status}: {count} no answer; {next_step}"
            )

    def _resolve(self, custom_id: str, why_missing: str | None) -> None:
        """Wake the rows that wait for a request. `why_missing` is None if the request was answered."""
        self._costs.pop(custom_id, None)
        waiting = self._waiting.pop(custom_id, None)
        if waiting is None:
            return
        for row in waiting.rows:
            row.waiting_call_count -= 1
            # A row that is over was subtracted when it ended.
            if row.waiting_call_count == 0 and not row.is_over:
                self._waiting_row_count -= 1
        waiting.future.set_result(why_missing)

    async def _delete_collected(self) -> None:
        """Delete the provider's files of batches that we've collected."""
        for batch in self._manifest.batches():
            calls = _find_calls(batch.target)
            if calls is None or batch.provider_files is None:
                continue  # we can't reach the batch, or it isn't collected yet
            # Somebody else's manifest could name any files, so only delete those that we created.
            files = batch.provider_files if batch.is_ours else ()
            for file in files:
                if not file:  # the first file is the request file, or "" if there's none
                    continue
                try:
                    await calls.delete(file)
                except GatewayError as failure:
                    self._run.note(f"{file} cannot be deleted: {failure.message}; delete it there")
            self._manifest.end(batch)

    async def finish(self) -> None:
        """Collect the remaining batches, report unfinished ones, and remove an unneeded manifest."""
        # No row waits for these batches any more, but the next run may use their answers.
        with suppress(GatewayError):
            await self._recover_batches()
            for submitted, calls in self._list_open_batches():
                if not submitted.id:
                    continue
                batch = await self._fetch_batch(submitted, calls)
                if batch is not None and batch.status != "failed":
                    # The count is only used for failed batches.
                    await self._collect(submitted, calls, batch, running_count=0)
        await self._delete_collected()

        unfinished_batches = self._manifest.batches()  # the collected ones were removed above
        for unfinished_batch in unfinished_batches:
            target = unfinished_batch.target
            name = f"batch {unfinished_batch.id} at {target.base_url or target.provider}"
            self._run.note(
                f"{name} goes on, but no row waits for it; cancel it there, or run this again"
            )

        self._manifest.forget(self._written_answer_ids)
        is_needed = bool(unfinished_batches) or self._is_manifest_needed
        self._manifest.close(remove=not is_needed)


def _has_ended(batch: Batch) -> bool:
    """Whether a batch has ended. If its status is unknown, it counts as ended after its deadline."""
    if batch.status in ("completed", *_REASON_BY_ENDED_STATUS):
        return True
    is_past_deadline = batch.deadline is not None and time.time() > batch.deadline
    return is_past_deadline and batch.status not in _RUNNING_STATUSES


def _name_request_file(batch: Submitted) -> str:
    """Name a batch's request file, as the provider shows it."""
    return f"judgekit-{batch.tag}.jsonl"


def _explain_missing(status: str) -> str:
    """Explain why a request has no answer although its batch has ended."""
    if status == "completed":
        return "its batch brought no answer"
    return (
        _REASON_BY_ENDED_STATUS.get(status)
        or f"its batch ended as {shorten_to_line(status, _STATUS_CHARS)!r}"
    )


def _count_batches_for(target: BatchTarget, submitted: Iterable[tuple[Any, ...]]) -> int:
    """Count the submitted batches for a provider's address and model."""
    return sum(batch.target == target for batch, *_ in submitted)


def _compute_custom_id(endpoint: Endpoint, request: Request, style: CallStyle) -> str:
    """Hash everything that is sent, except the random fence (the marker that delimits quoted texts)."""
    # If a reply can't be read, the question is asked again. The repetition needs a different id.
    is_repeated = "reask" in request.call_key.part
    text = f"{hash_of_call(endpoint, request)} {is_repeated} {style.stamp()}"
    return hashlib.sha256(text.encode()).hexdigest()[:48]


def _find_calls(target: BatchTarget) -> BatchCalls | None:
    """Return the batch calls for an address and model. Returns None unless the user's settings lead there."""
    # The manifest may come from somebody else's repository, so don't just send a key to any address in it.
    with suppress(UsageError):
        endpoint = endpoint_of(registry.find(target.provider), target.model, environ())
        is_same_address = (endpoint.api_base or "") == target.base_url
        if is_same_address and not batches.explain_missing_batches(endpoint):
            return BatchCalls(endpoint)
    return None
