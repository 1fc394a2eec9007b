"""Rows judged in several ways, by several models or under several rubrics, with one outcome for each row.

A row's record is that of the variant that decided, with the calls and the cost of all. The column
`verdict.NAME` has the verdict of a variant.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from judgekit import environment
from judgekit.data.dataset import rubric_basis
from judgekit.data.results import VARIANTS, variant_column
from judgekit.judging.documents import Document
from judgekit.judging.request import JudgeRequest
from judgekit.judging.service import build_document_judge, max_concurrency
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import open_gateway

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from judgekit.data.dataset import Dataset, PendingRow, RowOptions, RowReader
    from judgekit.data.fields import Fields
    from judgekit.data.runners import OnRecord, Runner
    from judgekit.data.runs import Record
    from judgekit.judging.score import DocumentJudge
    from judgekit.providers.base import Gateway

Combination: TypeAlias = Literal["all", "any"]

# A row gets the first of these words that any variant gives.
_VERDICT_ORDER_BY_COMBINATION: dict[Combination, tuple[str, ...]] = {
    "all": ("reject", "undetermined", "escalate", "improve", "accept"),
    "any": ("accept", "undetermined", "escalate", "improve", "reject"),
}


class Variants:
    """The ways in which each row is judged, by name, and the rule that combines their verdicts.

    With `all` a row is accepted if every variant accepts it, and rejected if one rejects it; with `any` it's
    accepted if one accepts it. A row that a variant leaves undetermined is undetermined, unless the others
    settle it: under `all` by a rejection, under `any` by an acceptance.
    """

    def __init__(self, requests: Mapping[str, JudgeRequest], combination: Combination) -> None:
        self._requests = requests
        self._combination = combination
        self._readers: dict[str, RowReader] = {}

    @classmethod
    def of(cls, fields_by_name: Mapping[str, Mapping[str, Any]], combination: Combination) -> Self:
        """Build variants from the fields of each request."""
        requests = {name: JudgeRequest(**fields) for name, fields in fields_by_name.items()}
        return cls(requests, combination)

    def bind(self, dataset: Dataset, options: RowOptions, fields: Fields, project: Path) -> Dataset:
        """Prepare a reader for each variant, and make the fingerprints depend on all variants.

        A row's fingerprint depends on the dataset's `fingerprint_basis`.
        """
        basis_parts: list[str] = [self._combination]
        for name, request in self._requests.items():
            rubric_part, rubric = rubric_basis(options.task, project, request)
            self._readers[name] = options.build_reader(fields, rubric)
            basis_parts.append(f"{name}\0{rubric_part}")

        # The results have a column for each variant, so no input column may have its name.
        result_columns = [variant_column(name) for name in self._requests]
        return replace(
            dataset,
            fingerprint_basis="\0".join(basis_parts),
            taken_names=dataset.taken_names.with_names(result_columns),
            other_readers=tuple(self._readers.values()),
        )

    def build_runner(self, project: Path, at_once: int, *, never_blocks: bool) -> Runner:
        """Build a runner that judges each row by all variants concurrently, in this process."""

        def run(rows: Iterable[PendingRow], on_record: OnRecord) -> None:
            work = partial(
                self._judge_rows, rows, on_record, project, at_once, never_blocks=never_blocks
            )
            running.run(running.run_in_home_loop(work, patience=running.END_SECONDS))

        return run

    async def _judge_rows(
        self,
        rows: Iterable[PendingRow],
        on_record: OnRecord,
        project: Path,
        at_once: int,
        *,
        never_blocks: bool,
    ) -> None:
        """Judge each row by all variants, and pass the combined record to `on_record`.

        Set `never_blocks` if reading the rows never waits, as it can on a pipe.
        """
        async with aclosing(open_gateway(environment.environ())) as gateway:
            judges = await self._make_judges(gateway, project)
            # Every row is judged by all variants, so the one with the lowest limit decides.
            limit = min([at_once, *(max_concurrency(judge, at_once) for judge in judges.values())])

            judge_row = partial(self._judge_row, judges)
            stream = map_concurrently(
                judge_row, rows, limit, in_order=False, never_blocks=never_blocks
            )
            async with aclosing(stream):
                async for pending, record in stream:
                    on_record(pending, record)

    async def _make_judges(self, gateway: Gateway, project: Path) -> dict[str, DocumentJudge]:
        """Make a judge for each variant.

        This runs in a thread, because it reads files and loads litellm for prices, which would block.
        """
        judges = {}
        for name, request in self._requests.items():
            make_judge = partial(build_document_judge, gateway, project, request)
            judges[name], _ = await running.run_in_thread(make_judge)
        return judges

    async def _judge_row(
        self, judges: Mapping[str, DocumentJudge], pending: PendingRow
    ) -> dict[str, Any] | None:
        """Judge a row by all variants, and combine their records. Returns None if it can't be judged."""
        if pending.subject is None:
            return None
        judgings = []
        for name, judge in judges.items():
            subject, _ = self._readers[name](pending.row, str(pending.row_id))
            assert isinstance(subject, Document)  # noqa: S101 - comparisons can't have variants
            judgings.append(judge.judge(subject))
        verdicts = await asyncio.gather(*judgings)
        records = [verdict.record() for verdict in verdicts]
        return self.combine(dict(zip(judges, records, strict=True)))

    def combine(self, records: Mapping[str, Record]) -> dict[str, Any]:
        """Combine the records of a row's variants into one."""
        order = _VERDICT_ORDER_BY_COMBINATION[self._combination]
        # The verdict that comes first in this order decides. If several variants gave it, use the first one.
        deciding_record = min(records.values(), key=lambda record: order.index(record["verdict"]))

        known_costs = []
        rounds: list[Any] = []
        substitutes: dict[str, None] = {}  # an ordered set
        for record in records.values():
            rounds += record["rounds"]
            substitutes.update(dict.fromkeys(record.get("substitutes") or ()))
            if record["cost_usd"] is not None:
                known_costs.append(record["cost_usd"])

        return {
            **deciding_record,
            "rounds": rounds,
            "substitutes": list(substitutes),
            "cost_usd": sum(known_costs) if known_costs else None,
            "cost_complete": all(record["cost_complete"] for record in records.values()),
            "duration_ms": max(record["duration_ms"] for record in records.values()),
            VARIANTS: {name: record["verdict"] for name, record in records.items()},
        }
