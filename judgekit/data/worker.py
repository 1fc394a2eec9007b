"""Work that's done on other machines: checks a file, reads it in blocks, and judges a block.

A block is a few rows. Its results are written to a file before they're reported. If its worker dies and the
block is judged again, that costs nothing if the file is there.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment
from judgekit.data import parts, runners, seals, tables
from judgekit.data.broker import BrokerClient, SharedGateway
from judgekit.data.results import OUR_COLUMNS, UNDETERMINED, Results, build_result
from judgekit.data.rows import read_rows
from judgekit.data.runs import DatasetRun, Tally
from judgekit.data.sources import UnreadableRow
from judgekit.errors import FailureKind, JudgekitError
from judgekit.evaluation.labels import normalise_id
from judgekit.judging.cache import ReplyCache
from judgekit.judging.reply_file import ReplyFile
from judgekit.judging.service import max_concurrency
from judgekit.providers import retrying, running
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from judgekit.data.broker import Orders
    from judgekit.data.dataset import Dataset, PendingRow
    from judgekit.data.parts import Folder, Shape
    from judgekit.data.rows import RowFiles
    from judgekit.data.runs import Expected, Record
    from judgekit.judging.documents import ComparisonInput, Document

MAX_BLOCK_ROWS = 32  # in a block
_MAX_BLOCK_CHARS = 1_000_000  # in a block's texts
_ROWS_PER_CHECK = 500  # rows whose cells are checked against their column's type at once
_PAUSES = (5.0, 15.0, 45.0)  # seconds before each retry of a row whose provider is down
_PROVIDER_DOWN_FAILURES = {
    FailureKind.CONNECTION,
    FailureKind.OVERLOADED,
    FailureKind.SERVER_ERROR,
    FailureKind.RATE_LIMIT,
}
_LAST_SECONDS = 1.2  # to finish rows being judged when a run is stopped
_POLL_SECONDS = 0.2


@dataclass
class Checked:
    """A file's number of rows, unreadable rows, ids, columns and their types.

    `wanted_rows` are the numbers and ids of the rows with a wanted digest. `misfits` are columns with values
    that don't fit their types.
    """

    row_count: int = 0
    unreadable: int = 0
    first_unreadable: UnreadableRow | None = None
    id_digests: bytes = b""
    wanted_rows: list[tuple[int, str | int]] = field(default_factory=list)
    column_kinds: tables.ColumnKinds = field(
        default_factory=lambda: tables.ColumnKinds(OUR_COLUMNS)
    )
    misfits: set[str] = field(default_factory=set)
    subject_by_kind: dict[Any, Document | ComparisonInput] = field(default_factory=dict)


def check(
    dataset: Dataset,
    files: RowFiles,
    path: str,
    types: Mapping[str, pa.DataType],
    wanted: frozenset[int],
) -> Checked:
    """Check a file's rows, up to the dataset's limit.

    The result contains the rows whose id has a digest in `wanted`, and the columns whose cells don't fit
    their type in `types`.
    """
    checked = Checked()
    ids = parts.Digests(wanted)
    unchecked = []  # cells whose types haven't been checked yet
    with files.open_file(path) as file:
        rows_of_file = read_rows(file, path, files.reading)
        for row in replace(dataset, rows=rows_of_file, make_ids=lambda: ids):
            checked.row_count += 1
            if isinstance(row, UnreadableRow):
                _note_unreadable(checked, row)
                continue

            cells = _make_cells(row, dataset)
            _note_row(checked, row, cells)
            unchecked.append(cells)
            if len(unchecked) == _ROWS_PER_CHECK:
                checked.misfits |= tables.find_misfits(unchecked, types)
                unchecked.clear()

    checked.misfits |= tables.find_misfits(unchecked, types)
    checked.id_digests = bytes(ids.digest_bytes)
    checked.wanted_rows = ids.wanted_rows
    return checked


def _note_unreadable(checked: Checked, row: UnreadableRow) -> None:
    """Count an unreadable row, and keep the first one."""
    checked.unreadable += 1
    if checked.first_unreadable is None:
        checked.first_unreadable = row


def _make_cells(row: PendingRow, dataset: Dataset) -> dict[str, Any]:
    """Build the cells that a row will have in the results file, with placeholders instead of a verdict."""
    ours = dict.fromkeys(OUR_COLUMNS, "\0")  # no input cell can contain NUL
    return build_result(
        row.row, row.row_id, ours, error="\0", fingerprint="\0", taken=dataset.taken_names
    )


def _note_row(checked: Checked, row: PendingRow, cells: Mapping[str, Any]) -> None:
    """Note a row's columns, and keep its subject if it's the first of its kind."""
    # Before rows are judged, result columns only contain placeholders, except for the id.
    input_cells = {name: cells[name] for name in cells if name == "id" or name not in OUR_COLUMNS}
    checked.column_kinds.add(input_cells)
    if row.subject is not None:
        checked.subject_by_kind.setdefault(runners.get_judge_kind(row.subject), row.subject)


class Block(NamedTuple):
    """Rows to judge, the file for their results, and the tally of the kept rows before them."""

    name: str
    rows: list[PendingRow]
    kept_tally: Tally


def group_into_blocks(run: DatasetRun, number: int) -> Iterator[Block]:
    """Group the rows that must be judged into blocks, and yield these. `number` is the run's number.

    Raises `InputError` for an unreadable row.
    """
    rows = []
    size = 0
    for row in run.yield_pending_rows():
        rows.append(row)
        if row.subject:
            size += sum(len(file.text) for file in row.subject.files)
        if len(rows) == MAX_BLOCK_ROWS or size > _MAX_BLOCK_CHARS:
            yield _make_block(rows, run, number)
            rows = []
            size = 0
    if run.problem:
        raise run.problem
    # If the only rows left are those kept from earlier runs, an empty block reports them.
    if rows or run.kept_count:
        yield _make_block(rows, run, number)


def _make_block(rows: list[PendingRow], run: DatasetRun, number: int) -> Block:
    """Build a block, which has no file if it has no rows."""
    name = f"part-{number:04d}-{rows[0].row.number:012d}.parquet" if rows else ""
    return Block(name, rows, kept_tally=run.take_counts())


class JudgedBlock(NamedTuple):
    """A block's outcome, the number of blocks its worker has begun, and whether the limit is reached.

    `name` is that of the file with its results, "" if there's none.
    """

    name: str
    tally: Tally
    worker_name: str
    blocks_begun: int
    is_limit_reached: bool


@dataclass(frozen=True)
class Job:
    """Everything a worker needs; `judges` are those of each kind, with their API keys."""

    judges: Mapping[Any, Any]
    dataset: Dataset
    find_label: Expected
    variables: Mapping[str, str] = field(repr=False)
    at_once: int
    folder: Folder
    shape: Shape
    uses_cache: bool
    is_patient: bool


class _Collected(Results):
    """Collects rows as the cells of a Parquet file, each sealed."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._new_name_by_column = renamed
        self.rows: list[Mapping[str, Any]] = []
        self._key = seals.get_state_key()

    def add(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        self.rows.append(
            seals.seal_cells(tables.build_cells(columns, self._new_name_by_column), self._key)
        )
        return dict(columns)


class Worker:
    """Judges several blocks at a time, each in a waiting thread; one event loop makes all calls."""

    def __init__(self, job: Job, beat: Callable[..., Awaitable[Orders]], name: str) -> None:
        self._job = job
        self._variables = {**environment.environ(), **job.variables}
        self._name = name
        self._blocks_begun = 0
        self._client = BrokerClient(beat, name)
        self._judges = self._make_judges()

        # The judge that takes the fewest rows at once sets the limit for all.
        limits = [max_concurrency(judge, job.at_once) for judge in job.judges.values()]
        self._slots = asyncio.Semaphore(min([job.at_once, *limits]))
        self._beats: asyncio.Task[None] | None = None  # started with the first block

    def _make_judges(self) -> dict[Any, Any]:
        """Make the job's judges by kind of row, with this worker's gateway and cache."""
        gateway = SharedGateway(self._client)
        # The cache's place depends on the job's variables.
        with environment.OverrideEnviron(self._variables):
            cache = ReplyCache(ReplyFile()) if self._job.uses_cache else None
        judges = {}
        for kind, judge in self._job.judges.items():
            judges[kind] = replace(judge, gateway=gateway, cache=cache)
        return judges

    def judge(self, block: Block) -> JudgedBlock:
        """Judge a block and write its results. Raises errors that end the run."""
        with environment.OverrideEnviron(self._variables):
            return running.run(running.run_in_home_loop(partial(self._judge_block, block)))

    async def _judge_block(self, block: Block) -> JudgedBlock:
        """Judge a block, and write its results. Returns a report."""
        if self._beats is None:  # `__init__` can't do this, because it runs before the event loop
            self._beats = asyncio.create_task(self._client.send_heartbeats())
        self._blocks_begun += 1

        collected = _Collected(self._job.shape.new_name_by_column)
        written_records = await running.run_in_thread(partial(self._read_written, block.name))
        run = DatasetRun(
            dataset=self._job.dataset, results=collected, find_label=self._job.find_label
        )
        run.add(block.kept_tally)
        await self._judge_rows(block.rows, run, written_records)

        has_new_rows = len(collected.rows) > len(written_records)
        if has_new_rows:
            await self._write_rows(block.name, collected.rows)
        if self._client.connection_error:  # raised only now, so that no result gets lost
            raise self._client.connection_error
        return JudgedBlock(
            name=block.name if collected.rows else "",  # without rows, no file was written
            tally=run.take_counts(),
            worker_name=self._name,
            blocks_begun=self._blocks_begun,
            is_limit_reached=self._client.is_limit_reached,
        )

    async def _judge_rows(
        self,
        rows: Sequence[PendingRow],
        run: DatasetRun,
        written_records: Mapping[str, Record | None],
    ) -> None:
        """Judge rows concurrently, except those with written records, and pass all records to `run`."""
        tasks = set()
        for row in rows:
            judge_row = self._judge_row(row, run, written_records)
            tasks.add(asyncio.create_task(judge_row))
        await self._wait_for_rows(tasks)

    async def _write_rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a block's results to the job's folder, in a thread."""
        write = partial(parts.write_part, self._job.folder, name, rows, self._job.shape)
        await running.run_in_thread(write)

    async def _wait_for_rows(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait for the rows that are being judged. If the run is stopped, cancel them after a moment.

        If the connection to the broker is lost, cancel them immediately.
        """
        deadline = None  # set when the run is stopped
        while tasks:
            _, tasks = await asyncio.wait(tasks, timeout=_POLL_SECONDS)
            if not self._client.is_stopped:
                continue
            if deadline is None:
                deadline = time.monotonic() + _LAST_SECONDS
            if time.monotonic() > deadline or self._client.connection_error:
                for task in tasks:
                    task.cancel()

    def _read_written(self, name: str) -> dict[str, Record | None]:
        """Read the records that a worker wrote to a block's file `name` before it died, by row id.

        A record is None if its row couldn't be judged. Rows without a valid seal are ignored.
        """
        has_file = name != "" and self._job.folder.exists(name)
        if not has_file:
            return {}

        key = seals.get_state_key()
        records: dict[str, Record | None] = {}
        for row in self._job.folder.rows(name):
            # Without a key, no row is sealed.
            is_trusted = key is None or seals.are_cells_valid(row, key)
            if is_trusted:
                judged = row["judged"]
                records[normalise_id(row["id"])] = json.loads(judged) if judged else None
        return records

    async def _judge_row(
        self, row: PendingRow, run: DatasetRun, written: Mapping[str, Record | None]
    ) -> None:
        """Judge a row, and pass its record to the run. If the row is in `written`, reuse that record.

        Does nothing if the run ends before the row's turn.
        """
        key = normalise_id(row.row_id)
        if key in written:
            run.write_result(row, written[key])
            return
        async with self._slots:
            if self._client.is_ending:
                return
            row, record = await self._try_to_judge(row)

        is_over_budget = FailureKind.BUDGET in _list_failures(record)
        if is_over_budget and self._client.is_ending:
            return  # a later run will judge the row
        run.write_result(row, record)

    async def _try_to_judge(self, row: PendingRow) -> tuple[PendingRow, Record | None]:
        """Judge a row. If that fails, return the row with an error, and no record."""
        try:
            return row, await self._find_record(row)
        except Exception as error:  # noqa: BLE001 - a single row mustn't end a run with millions
            problem = str(error)
            if not isinstance(error, JudgekitError):
                problem = f"{type(error).__name__}: {problem}"
            return row._replace(error=shorten_to_line(f"internal error: {problem}", 300)), None

    async def _find_record(self, pending: PendingRow) -> Record | None:
        """Judge a row, and return its record, or None if the row can't be judged.

        A patient job retries while the provider is down.
        """
        if pending.subject is None:
            return None
        subject = pending.subject
        judge = self._judges[runners.get_judge_kind(subject)]

        async def judge_row() -> Record:
            judged = await judge.judge(subject)
            record: Record = judged.record()
            return record

        max_tries = 1
        if self._job.is_patient:
            max_tries += len(_PAUSES)  # one after each pause
        tries = retrying.Tries(max_tries, _PAUSES)
        return await retrying.call_until(judge_row, tries, is_final=_is_final)


def _is_final(record: Record) -> bool:
    """Whether retrying a row is pointless: it has a verdict, or the provider wasn't the reason to fail."""
    if record["verdict"] != UNDETERMINED:
        return True
    failures = _list_failures(record)
    was_provider_down = bool(failures) and failures[-1] in _PROVIDER_DOWN_FAILURES
    return not was_provider_down


def _list_failures(record: Record | None) -> list[str]:
    """List the failure kinds of a row's calls in order. Returns [] if there's no record."""
    rounds = record["rounds"] if record else ()
    return [round_["failure"]["kind"] for round_ in rounds if round_["failure"]]
