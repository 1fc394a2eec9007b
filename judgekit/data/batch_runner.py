"""Judges all rows of a run at once, while their calls wait for batches."""

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
from judgekit.data.runners import judges
from judgekit.errors import InputError, UsageError
from judgekit.judging.reply_file import ReplyFile
from judgekit.providers import running
from judgekit.providers.batches import price, refusal
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

        Raises `InputError` if the batches can't go on, or if the manifest (the file that lists them) can't
        be used.
        """
        manifest = open_manifest(
            f"{self.out}.batch", is_fresh=self.is_fresh, is_trusted=self.is_trusted
        )
        for file in manifest.left_behind:
            self.note(
                f"{file} at the provider may be of this run: nothing proves it, so it is not deleted"
            )
        gateway = BatchGateway(self, manifest)
        judge_of = judges(gateway, self.project, self.request, self._make_waiting_judge)
        judge_row = partial(gateway.judge, judge_of=judge_of, on_record=on_record)
        try:
            await _judge_rows(gateway, rows, judge_row)
            if not self.work.stopped.is_set():
                await gateway.finish()
        except BaseExceptionGroup as errors:
            error, *_ = errors.exceptions  # the first one, which stopped the other tasks
            if isinstance(error, sqlite3.Error):
                remedy = "free space and run the same command again"
                problem = f"{manifest.path}: cannot be used ({error}); {remedy}"
                raise InputError(problem) from None
            raise error from None
        finally:
            manifest.close()
            await gateway.aclose()

    def _make_waiting_judge(self, judge: Judge[Any, Any, Any]) -> Judge[Any, Any, Any]:
        """Return a copy of a judge that waits as long as batches take.

        Raises `UsageError` if the judge's models can't be asked in batches.
        """
        judge = self.adapt(judge)
        models_by_tier = judge.models_by_tier
        all_models = [*chain(*models_by_tier.values())]
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
            max_cost_usd=None,  # the gateway keeps to the limit
        )
        cache = KeepOnly(ReplyFile()) if judge.cache else judge.cache
        return replace(waiting_judge, cache=cache)

    def _find_refusal(self, judge: Judge[Any, Any, Any], models: Sequence[Endpoint]) -> str | None:
        """Say why the judge can't ask its models in batches; None if it can.

        A model may not offer batches, or the cost limit can't be kept because a model's price isn't known.
        """
        for model in models:
            refusal_reason = refusal(model)
            if refusal_reason:
                return refusal_reason
        if self.request.max_cost_usd is not None:
            for model in models:
                if price(model, 1, 1) is None:
                    return f"no price of {model.model} is known, so --max-cost cannot work"
        if judge.is_remote:
            return "the shared judge (server.url) asks the models"
        return None


async def _judge_rows(
    gateway: BatchGateway,
    rows: Iterator[PendingRow],
    judge_row: Callable[[PendingRow], Coroutine[Any, Any, None]],
) -> None:
    """Judge rows at the same time, up to `batches.AT_ONCE`, while the gateway drives their batches."""
    free_places = asyncio.Semaphore(batches.AT_ONCE)
    async with asyncio.TaskGroup() as group:
        group.create_task(gateway.drive())
        # In a thread, because a row may come from standard input, which makes us wait.
        while pending := await running.run_in_thread(partial(next, rows, None)):
            await free_places.acquire()
            task = group.create_task(judge_row(pending))
            task.add_done_callback(lambda _: free_places.release())
        gateway.note_all_rows_read()


def _list_batch_models(judge: Judge[Any, Any, Any]) -> list[Any]:
    """List the models of each other provider whose models can all be asked in batches, too."""
    usable = []
    for other_models in judge.settings.others():
        refusals = map(refusal, chain(*other_models.values()))
        if not any(refusals):
            usable.append(other_models)
    return usable


def _lift_call_limits(model: Endpoint) -> Endpoint:
    """Lift a model's limits on calls at a time and per minute, since a batch is one call."""
    limits = Limits(context_chars=model.profile.limits.context_chars)
    return replace(model, profile=model.profile.model_copy(update={"limits": limits}))
