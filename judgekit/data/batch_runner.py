"""Judges all rows of a run concurrently, while their calls wait for batches."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from judgekit.data import batches
from judgekit.data.batches import BatchGateway, BatchRun, KeepOnly
from judgekit.data.manifest import open_manifest
from judgekit.data.runners import make_judge_finder
from judgekit.errors import InputError, UsageError
from judgekit.judging.reply_file import ReplyFile
from judgekit.providers import running
from judgekit.providers.batches import compute_price, explain_missing_batches
from judgekit.providers.registry import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from judgekit.data.dataset import PendingRow
    from judgekit.data.runners import OnRecord
    from judgekit.judging.orchestrator import Judge
    from judgekit.providers.base import Endpoint

_FOREVER = 30 * 86_400.0  # seconds: longer than any batch takes


class BatchRunner(BatchRun):
    """Judges the rows of a run in batches."""

    def __call__(self, rows: Iterable[PendingRow], on_record: OnRecord) -> None:
        running.run(self.judge(iter(rows), on_record))

    async def judge(self, rows: Iterator[PendingRow], on_record: OnRecord) -> None:
        """Judge rows in batches, and pass their records to `on_record`.

        Raises `InputError` if the batches can't continue, or if the manifest can't be used.
        """
        manifest = open_manifest(
            f"{self.out}.batch", is_fresh=self.is_fresh, is_trusted=self.is_trusted
        )
        for file in manifest.left_behind:
            self.note(
                f"{file} at the provider may be of this run: nothing proves it, so it is not deleted"
            )

        gateway = BatchGateway(self, manifest)
        find_judge = make_judge_finder(
            gateway, self.project, self.request, self._make_waiting_judge
        )
        judge_row = partial(gateway.judge, find_judge=find_judge, on_record=on_record)
        try:
            await _judge_rows(gateway, rows, judge_row)
            if not self.work.stopped.is_set():
                await gateway.finish()
        except BaseExceptionGroup as errors:
            error = errors.exceptions[0]  # the first error, which stopped the other tasks
            if isinstance(error, sqlite3.Error):
                remedy = "free space and run the same command again"
                problem = f"{manifest.path}: cannot be used ({error}); {remedy}"
                raise InputError(problem) from None
            raise error from None
        finally:
            manifest.close()
            await gateway.aclose()

    def _make_waiting_judge(self, judge: Judge[Any, Any, Any]) -> Judge[Any, Any, Any]:
        """Copy a judge without the limits that make no sense for batches, such as its timeout.

        Raises `UsageError` if the judge's models can't be called in batches.
        """
        judge = self.adapt(judge)
        models_by_tier = judge.models_by_tier
        all_models = list(chain(*models_by_tier.values()))
        refusal_reason = self._find_refusal(judge, all_models)
        if refusal_reason:
            raise UsageError(
                f"--batch: {refusal_reason}; judge without --batch, or with other models"
            )

        unlimited_models = {}
        for tier, models in models_by_tier.items():
            unlimited_models[tier] = tuple(map(_lift_call_limits, models))
        waiting_judge = judge.with_settings(
            models_by_tier=unlimited_models,
            others=partial(_list_batch_models, judge),
            timeout=_FOREVER,
            max_cost_usd=None,  # the gateway enforces the limit for all rows together
        )
        cache = KeepOnly(ReplyFile()) if judge.cache else judge.cache
        return replace(waiting_judge, cache=cache)

    def _find_refusal(self, judge: Judge[Any, Any, Any], models: Sequence[Endpoint]) -> str | None:
        """Return the reason why these models can't be called in batches, or None if they can."""
        for model in models:
            refusal_reason = explain_missing_batches(model)
            if refusal_reason:
                return refusal_reason
        if self.request.max_cost_usd is not None:
            for model in models:
                is_price_known = compute_price(model, 1, 1) is not None
                if not is_price_known:
                    return f"no price of {model.model} is known, so --max-cost cannot work"
        if judge.is_remote:
            return "the shared judge (server.url) asks the models"
        return None


async def _judge_rows(
    gateway: BatchGateway,
    rows: Iterator[PendingRow],
    judge_row: Callable[[PendingRow], Coroutine[Any, Any, None]],
) -> None:
    """Judge up to `batches.AT_ONCE` rows concurrently, while the gateway submits and polls their batches."""
    free_slots = asyncio.Semaphore(batches.AT_ONCE)
    async with asyncio.TaskGroup() as group:
        group.create_task(gateway.drive())
        # Read rows in a thread, because reading from standard input can block.
        while pending := await running.run_in_thread(partial(next, rows, None)):
            await free_slots.acquire()
            task = group.create_task(judge_row(pending))
            task.add_done_callback(lambda _: free_slots.release())
        gateway.note_all_rows_read()


def _list_batch_models(judge: Judge[Any, Any, Any]) -> list[Any]:
    """List the alternative providers' models by tier, as far as they can be called in batches."""
    usable = []
    for models_by_tier in judge.settings.others():
        refusals = map(explain_missing_batches, chain(*models_by_tier.values()))
        if not any(refusals):
            usable.append(models_by_tier)
    return usable


def _lift_call_limits(model: Endpoint) -> Endpoint:
    """Copy a model without limits on concurrent calls and calls per minute: a batch counts as one call."""
    limits = Limits(context_chars=model.profile.limits.context_chars)
    return replace(model, profile=model.profile.model_copy(update={"limits": limits}))
