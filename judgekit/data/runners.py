"""Runners, which judge the rows of a run: in this process, or in the engine."""

from __future__ import annotations

import json
from contextlib import aclosing
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit import environment
from judgekit.data.dataset import Mappings, open_dataset
from judgekit.data.results import Results
from judgekit.data.runs import DatasetRun
from judgekit.engine import answers, client
from judgekit.judging.documents import ComparisonInput, Document
from judgekit.judging.service import build_comparison_judge, build_document_judge, max_concurrency
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import open_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.data.dataset import PendingRow, RowOptions
    from judgekit.data.fields import TaskName
    from judgekit.data.runs import Record
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.verdict import Comparison, Verdict
    from judgekit.providers.base import Gateway

    OnRecord: TypeAlias = Callable[[PendingRow, Record | None], object]
    # Judges rows as they come, and passes each record on when it's complete.
    Runner: TypeAlias = Callable[[Iterable[PendingRow], OnRecord], None]

MANY_ROWS = 1_000
"""For so many rows, loading everything in this process takes less CPU than handing each to the engine."""


def get_judge_kind(subject: Document | ComparisonInput) -> tuple[int, int] | None:
    """Return a key for the kind of judge that a subject needs.

    It's None for a document. For a comparison, it's the number of texts and the number of distinct texts.
    """
    if isinstance(subject, Document):
        return None
    return (len(subject.files), len(subject.distinct_letters))


def make_judge_finder(
    gateway: Gateway,
    project: Path,
    request: JudgeRequest,
    adapt: Callable[[Any], Any] = lambda judge: judge,
) -> Callable[[Document | ComparisonInput], Any]:
    """Build a function that returns the judge for a subject, creating one judge per kind of subject.

    `adapt` can replace a new judge by another one.
    """
    judges_by_kind = {}

    def find_judge(subject: Document | ComparisonInput) -> Any:  # noqa: ANN401 - one of three kinds of judge
        kind = get_judge_kind(subject)
        if kind not in judges_by_kind:
            judge = _build_judge(gateway, subject, project, request)
            # Such as a judge that waits for a batch.
            judges_by_kind[kind] = adapt(judge)
        return judges_by_kind[kind]

    return find_judge


def _build_judge(
    gateway: Gateway, subject: Document | ComparisonInput, project: Path, request: JudgeRequest
) -> Any:  # noqa: ANN401 - one of three kinds of judge
    """Build the judge for a document or a comparison."""
    if isinstance(subject, Document):
        judge, _ = build_document_judge(gateway, project, request)
        return judge
    return build_comparison_judge(gateway, subject, project, request)


async def judge_here(
    rows: Iterable[PendingRow],
    project: Path,
    request: JudgeRequest,
    at_once: int,
    *,
    in_order: bool,
    never_blocks: bool = False,
) -> AsyncGenerator[tuple[PendingRow, Record | None], None]:
    """Judge rows in this process, and yield each row with its record.

    The record is None for unjudgeable rows. Set `never_blocks` if reading the rows never waits, as it can
    on a pipe.
    """
    stream = stream_judgements(
        rows, project, request, at_once, in_order=in_order, never_blocks=never_blocks
    )
    async with aclosing(stream):
        async for row, judgement in stream:
            yield row, None if judgement is None else judgement.record()


async def stream_judgements(
    rows: Iterable[PendingRow],
    project: Path,
    request: JudgeRequest,
    at_once: int,
    *,
    in_order: bool,
    never_blocks: bool = False,
    adapt: Callable[[Any], Any] = lambda judge: judge,
) -> AsyncGenerator[tuple[PendingRow, Any], None]:
    """Judge rows in this process, and yield each row with its verdict or comparison.

    An unjudgeable row is yielded with None. `adapt` can replace each new judge by another one.
    Set `never_blocks` if reading the rows never waits, as it can on a pipe.
    """
    async with aclosing(open_gateway(environment.environ())) as gateway:
        row_judge = _RowJudge(make_judge_finder(gateway, project, request, adapt))
        # The limit depends on the judge, which the first judgeable row shows.
        rest = iter(rows)
        head = _take_until_judgeable(rest)
        limit = await _find_limit(row_judge, head, at_once)
        all_rows = chain(head, rest)
        stream = map_concurrently(
            row_judge.judge, all_rows, limit, in_order=in_order, never_blocks=never_blocks
        )
        async with aclosing(stream):
            async for row, judgement in stream:
                yield row, judgement


def _take_until_judgeable(rows: Iterator[PendingRow]) -> list[PendingRow]:
    """Take rows up to the first one that can be judged, including that one."""
    head = []
    for row in rows:
        head.append(row)
        if row.subject is not None:
            break
    return head


async def _find_limit(row_judge: _RowJudge, head: Sequence[PendingRow], at_once: int) -> int:
    """Find how many rows to judge at once, which depends on the models of the first judgeable row's judge."""
    # `head` ends with the first judgeable row, if there's one.
    subject = head[-1].subject if head else None
    if subject is None:  # no row can be judged
        return at_once
    judge = await row_judge.find_judge(subject)
    return max_concurrency(judge, at_once)


class _RowJudge:
    """Judges rows, each by the judge of its subject's kind; `make_judge` makes that judge."""

    def __init__(self, make_judge: Callable[[Document | ComparisonInput], Any]) -> None:
        self._make_judge = make_judge
        self._judges: dict[tuple[int, int] | None, Any] = {}  # by the kind of subject

    async def judge(self, row: PendingRow) -> Verdict | Comparison | None:
        """Judge a row, or return None if it has no subject."""
        if not row.subject:
            return None
        judge = await self.find_judge(row.subject)
        judgement: Verdict | Comparison = await judge.judge(row.subject)
        return judgement

    async def find_judge(self, subject: Document | ComparisonInput) -> Any:  # noqa: ANN401 - one of three kinds of judge
        """Return a subject's judge. It's built once for each kind of subject."""
        kind = get_judge_kind(subject)
        # `_make_judge` keeps judges, too, but calling it takes a thread.
        if kind not in self._judges:
            # This blocks, because it reads files, loads litellm, and asks local servers for models.
            make_judge = partial(self._make_judge, subject)
            self._judges[kind] = await running.run_in_thread(make_judge)
        return self._judges[kind]


async def judge_in_process(
    rows: Iterable[Mapping[str, Any]],
    options: RowOptions,
    project: Path,
    request: JudgeRequest,
    at_once: int,
    *,
    in_order: bool,
) -> AsyncGenerator[dict[str, Any], None]:
    """Judge rows in this process, and yield a result for each, until the cost limit is reached.

    Raises `InputError` for a row that isn't a mapping, `ConfigError` if the run gives up because every row
    would fail, and the errors of `open_dataset`.
    """
    dataset, _, _ = open_dataset(Mappings(rows), options, project, request)
    discarded_results = Results(lambda _: None)  # the caller gets the rows instead
    run = DatasetRun(dataset=dataset, results=discarded_results, max_cost_usd=request.max_cost_usd)
    stream = judge_here(run.yield_pending_rows(), project, request, at_once, in_order=in_order)
    async with aclosing(stream):
        async for row, record in stream:
            result = run.write_result(row, record)
            yield result
    if run.gave_up:
        raise run.build_given_up_error()
    if run.problem:
        raise run.problem


def build_local_runner(
    project: Path, request: JudgeRequest, at_once: int, *, never_blocks: bool = False
) -> Runner:
    """Build a runner that judges rows in this process.

    Set `never_blocks` if reading the rows never waits, as it can on a pipe.
    """

    def runner(rows: Iterable[PendingRow], on_record: OnRecord) -> None:
        """Judge rows, and pass each with its record to `on_record`."""

        async def pass_records() -> None:
            stream = judge_here(
                rows, project, request, at_once, in_order=False, never_blocks=never_blocks
            )
            async with aclosing(stream):
                async for row, record in stream:
                    on_record(row, record)

        # Run this in the event loop that calls models, so that calls needn't switch threads. If the run is
        # interrupted, it has END_SECONDS to end.
        judging = running.run_in_home_loop(pass_records, patience=running.END_SECONDS)
        running.run(judging)

    return runner


def build_engine_runner(
    task: TaskName,
    project: Path,
    request: JudgeRequest,
    at_once: int,
    warn: Callable[[str], None],
    *,
    never_blocks: bool = False,
) -> Runner:
    """Build a runner that lets the engine judge rows. If there's no engine, this process judges them."""

    def runner(rows: Iterable[PendingRow], on_record: OnRecord) -> None:
        """Let the engine judge rows, and pass each with its record to `on_record`."""
        make_body = _build_body_maker(task, project, request)
        judgeable_rows = _finish_unjudgeable(rows, on_record)
        run_locally = build_local_runner(project, request, at_once, never_blocks=never_blocks)
        answers.run_many(
            task,
            judgeable_rows,
            make_body,
            run_locally,
            on_record,
            max_threads=at_once,
            warn=warn,
            in_order=False,
        )

    return runner


def _build_body_maker(
    task: TaskName, project: Path, request: JudgeRequest
) -> Callable[[PendingRow], bytes]:
    """Build a function that makes the JSON body of a row's request to the engine."""
    subject_key = "document" if task == "judge" else "comparison"

    # All requests share most fields, so serialise these only once. `make_body` adds the subject and the
    # closing brace.
    shared_fields = {**client.build_caller_fields(str(project)), "wish": request.model_dump()}
    body_start = json.dumps(shared_fields).removesuffix("}")

    def make_body(row: PendingRow) -> bytes:
        subject = None if row.subject is None else row.subject.build_body()
        last_field = f'"{subject_key}": {json.dumps(subject)}'
        return f"{body_start}, {last_field}}}".encode()

    return make_body


def _finish_unjudgeable(rows: Iterable[PendingRow], on_record: OnRecord) -> Iterator[PendingRow]:
    """Yield the rows that can be judged. Pass all other rows to `on_record`, without a record."""
    for row in rows:
        if row.subject is None:
            on_record(row, None)
        else:
            yield row
