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
    from judgekit.data.manifest import Manifest
    from judgekit.data.runners import OnRecord
    from judgekit.judging.orchestrator import Judge
    from judgekit.providers.base import Endpoint

_MAX_BATCH_SECONDS = 30 * 86_400.0  # seconds: longer than any batch takes


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
            if not self.dataset_run.stopped.is_set():
                await gateway.finish()
        except BaseExceptionGroup as errors:
            first_error = errors.exceptions[0]  # it stopped the other tasks
            raise _explain_error(first_error, manifest) from None
        finally:
            manifest.close()
            await gateway.aclose()

    def _make_waiting_judge(self, judge: Judge[Any, Any, Any]) -> Judge[Any, Any, Any]:
        """Copy a judge without the limits that make no sense for batches, such as its timeout.

        Raises `UsageError` if the judge's models can't be called in batches.
        """
        judge = self.adapt(judge)
        self._check_models(judge)
        unlimited_models = {}
        for tier, models in judge.models_by_tier.items():
            unlimited_models[tier] = tuple(map(_lift_call_limits, models))
        waiting_judge = judge.with_settings(
            models_by_tier=unlimited_models,
            find_other_panels=partial(_list_batch_models, judge),
            timeout=_MAX_BATCH_SECONDS,
            max_cost_usd=None,  # the gateway enforces the limit for all rows together
        )
        # The gateway looks replies up, so the judge's own cache only stores them.
        cache = KeepOnly(ReplyFile()) if judge.cache else judge.cache
        return replace(waiting_judge, cache=cache)

    def _check_models(self, judge: Judge[Any, Any, Any]) -> None:
        """Raise `UsageError` if the judge's models can't be called in batches."""
        all_models = list(chain(*judge.models_by_tier.values()))
        refusal_reason = self._find_refusal(judge, all_models)
        if refusal_reason:
            raise UsageError(
                f"--batch: {refusal_reason}; judge without --batch, or with other models"
            )

    def _find_refusal(self, judge: Judge[Any, Any, Any], models: Sequence[Endpoint]) -> str | None:
        """Return the reason why these models can't be called in batches, or None if they can."""
        for model in models:
            refusal_reason = explain_missing_batches(model)
            if refusal_reason:
                return refusal_reason
        if self.request.max_cost_usd is not None:
            unpriced_model = next((model for model in models if not _has_price(model)), None)
            if unpriced_model is not None:
                return f"no price of {unpriced_model.model} is known, so --max-cost cannot work"
        if judge.is_remote:
            return "the shared judge (server.url) asks the models"
        return None


def _has_price(model: Endpoint) -> bool:
    """Whether a model's price is known: then a token of input and one of output have a price."""
    return compute_price(model, 1, 1) is not None


def _explain_error(error: BaseException, manifest: Manifest) -> BaseException:
    """Convert an error of the manifest's database to an `InputError`. Others are returned unchanged."""
    if not isinstance(error, sqlite3.Error):
        return error
    remedy = "free space and run the same command again"
    return InputError(f"{manifest.path}: cannot be used ({error}); {remedy}")


async def _judge_rows(
    gateway: BatchGateway,
    rows: Iterator[PendingRow],
    judge_row: Callable[[PendingRow], Coroutine[Any, Any, None]],
) -> None:
    """Judge up to `batches.MAX_OPEN_ROWS` rows at a time, while the gateway drives their batches."""
    free_slots = asyncio.Semaphore(batches.MAX_OPEN_ROWS)
    read_row = partial(next, rows, None)
    async with asyncio.TaskGroup() as group:
        group.create_task(gateway.drive_batches())
        # Read rows in a thread, because reading from standard input can block.
        while pending := await running.run_in_thread(read_row):
            await free_slots.acquire()
            task = group.create_task(judge_row(pending))
            task.add_done_callback(lambda _: free_slots.release())
        gateway.note_all_rows_read()


def _list_batch_models(judge: Judge[Any, Any, Any]) -> list[Any]:
    """List the alternative providers' models by tier.

    A provider is left out if one of its models can't be called in batches.
    """
    usable = []
    for models_by_tier in judge.settings.find_other_panels():
        models = chain(*models_by_tier.values())
        is_refused = any(explain_missing_batches(model) for model in models)
        if not is_refused:
            usable.append(models_by_tier)
    return usable


def _lift_call_limits(model: Endpoint) -> Endpoint:
    """Copy a model without limits on concurrent calls and calls per minute: a batch counts as one call."""
    limits = Limits(context_chars=model.profile.limits.context_chars)
    return replace(model, profile=model.profile.model_copy(update={"limits": limits}))
