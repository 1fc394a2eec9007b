"""Judges rows on Ray: Ray Data reads them, a pool of workers judges them, and each block becomes a file.

The driver first checks all rows, as on one machine, and adds up the workers' reports. The results themselves
tell which rows to keep. It's the only module that imports Ray.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from judgekit import environment
from judgekit.data import dataset, parts, runners, seals, tables, worker
from judgekit.data.broker import Broker
from judgekit.data.results import OUR_COLUMNS, lock_output
from judgekit.data.rows import RowFiles, detect_source, read_rows
from judgekit.data.runs import DatasetRun
from judgekit.errors import InputError, JudgekitError, UsageError
from judgekit.evaluation.labels import normalise_id
from judgekit.judging.documents import LETTERS
from judgekit.providers.gateway import is_recording, is_replaying, open_gateway
from judgekit.rubric.schema import ScoreRubric
from judgekit.text import replace_surrogates, shorten_to_line

os.environ |= {  # before importing Ray, which reads them
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
import ray
import ray.data
from ray import cloudpickle
from ray.data.datasource import FileBasedDatasource
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.data.sources import UnreadableRow
    from judgekit.data.worker import Checked, Job, JudgedBlock
    from judgekit.judging.request import JudgeRequest

_WORKER_CPU = 0.4
_READ_CPU = 0.1  # little, so that the remaining machines can take over the workers of a lost one
_DRAIN_SECONDS = 20.0  # to finish blocks under way when a run ends early
_THREAD_SECONDS = 5.0  # for one of Ray's threads to end
_FILES_PER_TASK = 64  # files read in one task


@contextmanager
def connect_to_cluster(address: str | None) -> Iterator[None]:
    """Connect to the cluster at `address`, by default RAY_ADDRESS. Without either, start Ray on this machine.

    Raises `InputError` if that fails.
    """
    cluster = address or environment.environ().get("RAY_ADDRESS") or "local"
    options = {}
    if cluster == "local":
        options = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        with _hide_stderr():
            ray.init(cluster, log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except Exception as error:  # noqa: BLE001 - Ray can raise anything
        message = shorten_to_line(str(error), 200)
        raise InputError(
            f"Ray at {cluster}: {message}; start Ray there, or leave the address out"
        ) from None

    # Silence Ray Data.
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    # Make each item that the reader yields a separate block, so that judging starts with the first one.
    context.target_max_block_size = 1
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _hide_stderr() -> Iterator[None]:
    """Discard everything written to standard error, including by Ray's own processes."""
    stderr = 2  # the file descriptor, because other processes don't see `sys.stderr`
    original = os.dup(stderr)
    with Path(os.devnull).open("wb") as null:
        os.dup2(null.fileno(), stderr)
        try:
            yield
        finally:
            os.dup2(original, stderr)
            os.close(original)


class RayRun:
    """A run over a dataset on Ray. Call `check`, then `prepare`, `judge` and `finish`."""

    def __init__(
        self,
        work: DatasetRun,
        data: str,
        out: str,
        project: Path,
        request: JudgeRequest,
        at_once: int,
    ) -> None:
        """Find the input files and the output folder. Raises `UsageError` for unsuitable options."""
        self.dataset_run = work
        self._project = project
        self._request = request
        self._at_once = at_once
        if "://" not in data:
            data = os.path.realpath(data)
        _check_options(data, out)
        self._files = RowFiles.at(data)
        self._folder = parts.Folder.at(out)
        self._dataset = replace(work.dataset, rows=())  # the workers read the rows from the files
        # By file: how many rows come before it, and how many rows it has.
        self._starts_and_counts: dict[str, tuple[int, int | None]] = {}
        self._types: dict[str, pa.DataType] = {}  # of columns that keep their type
        self._subject_by_kind: dict[Any, Any] = {}
        self._judges: dict[Any, Any] = {}  # by kind of subject
        self._column_kinds = tables.ColumnKinds(OUR_COLUMNS)
        self._merge_tasks = list[Any]()
        self._unmerged_names = list[str]()
        # By worker: one number per report, which says how many blocks the worker had begun when it sent it.
        self._begun_counts = defaultdict[str, list[int]](list)
        self._locks = ExitStack()  # keeps other runs out
        # When to stop waiting for unfinished blocks, once the run ends early.
        self._deadline: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    def check(self, types: pa.Schema | None) -> int:
        """Check and count the rows in all files. `types` are the input's column types.

        Raises `InputError` for the first unreadable row or repeated id.
        """
        types_by_column = {}
        for column in types or ():
            # The results keep the input's types, except for bytes: these were converted to text, which can't
            # always be converted back.
            if "binary" not in str(column.type):
                types_by_column[column.name] = column.type
        self._shared = ray.put((self._dataset, self._files, types_by_column))
        checked = dict(self._check_files(wanted_ids=frozenset()))

        row_count = 0  # in the files so far
        first_bad: UnreadableRow | None = None
        bad_count = 0
        for path, file in checked.items():
            if file.first_unreadable and first_bad is None:
                # Each file numbers its rows from 1, but errors count over all files.
                renumbered: Any = self._files.renumber(file.first_unreadable, row_count, path)
                first_bad = renumbered
            bad_count += file.unreadable
            self._starts_and_counts[path] = row_count, file.row_count
            row_count += file.row_count
        self._note_columns(checked, types_by_column)

        if first_bad is None and self._dataset.id_column:
            repeated_rows = self._find_repeated_ids(checked)
            bad_count = len(repeated_rows)
            first_bad = next(iter(repeated_rows), None)
        if first_bad is not None:
            raise dataset.build_unreadable_error(self._dataset.name, first_bad, bad_count - 1)
        return row_count

    def _note_columns(
        self, checked: Mapping[str, Checked], types_by_column: Mapping[str, pa.DataType]
    ) -> None:
        """Note all files' columns and types, and an example of each kind of subject.

        Each kind of subject needs its own judge.
        """
        misfits = set[str]()  # columns with a cell that doesn't fit its input type
        for file in checked.values():
            self._column_kinds.update(file.column_kinds)
            self._subject_by_kind |= file.subject_by_kind
            misfits |= file.misfits
        self._types = {}
        for name, column_type in types_by_column.items():
            if name not in misfits:
                self._types[name] = column_type

    def _check_files(self, wanted_ids: frozenset[int]) -> Iterator[tuple[str, Checked]]:
        """Check the files, and yield each file's path and result.

        The result lists the rows whose id has a digest in `wanted_ids`.
        """
        paths = self._files.paths
        rows_left = self._dataset.limit
        if rows_left is None:
            calls = [(self._shared, path, None, wanted_ids) for path in paths]
            checked = _run_remotely(_check_file, calls)
            yield from zip(paths, checked, strict=True)
            return

        # With a row limit, check the files one after another, because earlier rows count towards the limit.
        for path in paths:
            (file,) = _run_remotely(_check_file, [(self._shared, path, rows_left, wanted_ids)])
            yield path, file
            rows_left -= file.row_count
            if rows_left == 0:
                return

    def _find_repeated_ids(self, checked: dict[str, Checked]) -> list[UnreadableRow]:
        """List the rows that repeat an earlier row's id."""
        # Digests are short, so different ids can have the same one. Read such rows again to compare the ids.
        repeated_digests = frozenset(
            parts.find_repeated(file.id_digests for file in checked.values())
        )
        if not repeated_digests:
            return []

        first_numbers: dict[str, int] = {}  # by id
        column = self._dataset.id_column or ""
        repeated_rows = []
        for path, file in self._check_files(repeated_digests):
            start, _ = self._starts_and_counts[path]
            for number_in_file, row_id in file.wanted_rows:
                number = start + number_in_file
                first_number = first_numbers.setdefault(normalise_id(row_id), number)
                is_repeated = first_number != number
                if is_repeated:
                    repeated_rows.append(
                        dataset.report_repeated_id(row_id, number, first_number, column)
                    )
        return repeated_rows

    def prepare(self, *, fresh: bool, trust: bool = False) -> None:
        """Lock the output folder and read its results. If `fresh`, empty the folder first.

        Raises `UsageError` if it has files of other programs or is in use, or if rows have invalid seals.
        With `trust`, seals don't matter.
        """
        self._locks.enter_context(lock_output(self._folder.get_lockable_path(), self._folder.name))
        self._key = parts.Key(seals.get_state_key())
        names = self._folder.names()
        if fresh:
            self._folder.remove(names)
            names = []
        earlier_runs = map(parts.run_of, names)
        self._run_number = 1 + max(earlier_runs, default=0)
        self._names, self._lines, self._earlier_schemas = self._scan_files(names, 0)
        unsealed = int((~self._lines["sealed"]).sum())
        if unsealed and not trust:
            raise seals.build_seal_error(self._folder.name, unsealed)

    def _scan_files(self, names: list[str], first: int) -> tuple[list[str], Any, set[pa.Schema]]:
        """Read result files, numbered from `first`. Returns `names`, and the files' lines and schemas.

        Removes files that a killed run had already merged into another one. Their lines aren't returned, but
        their names are, because lines refer to files by number.
        """
        # Scan groups of files in Ray's workers.
        groups = []
        for start in range(0, len(names), _FILES_PER_TASK):
            group = names[start : start + _FILES_PER_TASK]
            groups.append((self._folder, group, self._key, first + start))
        replaced = set()  # names of files that are part of a merged one
        lines_of_groups = [parts.NO_RESULT_LINES]
        schemas = set()
        for scanned in _run_remotely(parts.scan, groups):
            replaced.update(scanned.replaced)
            lines_of_groups.append(scanned.lines)
            schemas.update(scanned.schemas)
        lines = np.concatenate(lines_of_groups)

        replaced.intersection_update(names)  # most were already removed after their merge
        self._folder.remove(replaced)
        removed_numbers = []
        for number, name in enumerate(names, first):
            if name in replaced:
                removed_numbers.append(number)
        is_in_removed_file = np.isin(lines["file"], removed_numbers)
        return names, lines[~is_in_removed_file], schemas

    def judge(self) -> None:
        """Judge the rows that have no valid result, until the run is stopped or reaches its cost limit."""
        self._folder.make()
        self._choose_judges()
        self._shape = parts.choose_shape(self._column_kinds, self._types, self._earlier_schemas)
        source = self._share_rows()
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        broker = self._start_broker(cpus)
        try:
            with _explain_errors(written=self._folder.name):
                judged = self._plan_judging(source, broker, cpus)
                self._follow(judged, broker)
        finally:
            ray.kill(broker)

    def _choose_judges(self) -> None:
        """Build a judge for each kind of subject, and note the columns of its scores."""
        # This gateway is only needed to find the judges, because each worker makes its own.
        find_judge = runners.make_judge_finder(open_gateway({}), self._project, self._request)
        for kind, subject in self._subject_by_kind.items():
            judge = find_judge(subject)
            self._judges[kind] = judge
            score_names: Iterable[str] = ()
            if kind:  # a comparison, whose scores are named by the texts' letters
                text_count, _ = kind
                score_names = LETTERS[:text_count]
            elif isinstance(judge.rubric, ScoreRubric):
                score_names = judge.rubric.questions
            for name in score_names:
                self._column_kinds.score_kinds_by_column[f"score.{name}"] = {"float"}

    def _share_rows(self) -> _Source:
        """Share a list of the finished rows with all machines, and return a source of the other rows."""
        newest_lines, _ = parts.split_newest(self._lines)  # each row's newest result
        shared = (
            self._dataset,
            self.dataset_run.find_label,
            newest_lines[newest_lines["done"]],
            self._run_number,
            self._starts_and_counts,
        )
        return _Source(self._files, ray.put(shared))

    def _plan_judging(self, source: _Source, broker: Any, cpus: int) -> Any:  # noqa: ANN401 - Ray's
        """Build the dataset of workers' reports. Rows are only read and judged when it's iterated over."""
        # Queue blocks for twice as many rows as a worker judges at once, and two more, so that it has further
        # rows when it finishes some.
        blocks_per_worker = 2 + 2 * self._at_once // worker.MAX_BLOCK_ROWS
        pool = ray.data.ActorPoolStrategy(
            min_size=1,
            max_size=cpus,
            initial_size=cpus,
            max_tasks_in_flight_per_actor=blocks_per_worker,
            max_concurrent_calls_per_actor=blocks_per_worker,
            enable_true_multi_threading=True,
        )
        rows = ray.data.read_datasource(
            source, num_cpus=_READ_CPU, override_num_blocks=len(self._starts_and_counts)
        )
        return rows.map_batches(
            _Actor,
            fn_constructor_args=(broker,),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=_WORKER_CPU,
            compute=pool,
        )

    def _start_broker(self, workers: int) -> Any:  # noqa: ANN401 - a handle of Ray's
        """Start the broker, an actor on this machine that all workers share."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        make = ray.remote(Broker).options(num_cpus=0, scheduling_strategy=here, max_task_retries=-1)
        broker = make.remote(self.dataset_run.max_cost_usd, workers)
        # The job contains keys, and Ray can write its objects to a disk. So send the job in a call instead.
        ray.get(broker.learn.remote(cloudpickle.dumps(self._make_job())))
        return broker

    def _make_job(self) -> Job:
        judges = {}
        for kind, judge in self._judges.items():
            # A worker can't find the other providers, because they depend on this machine's keys and
            # addresses, so list them here. It makes its own gateway and cache.
            others = partial(tuple, judge.settings.find_other_panels())
            judges[kind] = replace(
                judge.with_settings(find_other_panels=others), gateway=None, cache=None
            )

        all_variables = environment.environ()
        variables = {}
        for name in environment.VARIABLE_NAMES:
            if name in all_variables:
                variables[name] = all_variables[name]
        if self._key.key:
            variables[seals.STATE_KEY_VARIABLE] = self._key.key

        return worker.Job(
            judges=judges,
            dataset=self._dataset,
            find_label=self.dataset_run.find_label,
            variables=variables,
            at_once=self._at_once,
            folder=self._folder,
            shape=self._shape,
            uses_cache=self._request.cache,
            is_patient=not is_replaying(all_variables),
        )

    def _follow(self, judged: Any, broker: Any) -> None:  # noqa: ANN401 - a dataset and a handle of Ray's
        """Process the workers' reports until the last one has arrived, or the run ends early."""

        def tell_broker_when_stopped() -> None:
            self.dataset_run.stopped.wait()
            broker.stop.remote()

        threading.Thread(target=tell_broker_when_stopped, daemon=True).start()
        # All threads that aren't among these are Ray's.
        earlier_threads = threading.enumerate()

        batches = iter(
            judged.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        )
        try:
            for batch in batches:
                for packed in batch["judged"].to_pylist():
                    self._add_report(pickle.loads(packed))  # noqa: S301 - a worker of ours wrote it
                if self._may_end_now(broker):
                    break
        finally:
            batches.close()
            # Wait until Ray's threads end. One that used Ray after its shutdown would kill this process.
            for thread in threading.enumerate():
                if thread not in earlier_threads:
                    thread.join(_THREAD_SECONDS)
        # The broker also knows the cost of rows that weren't reported.
        self.dataset_run.spent_usd = max(
            self.dataset_run.spent_usd, ray.get(broker.get_total_cost.remote())
        )

    def _add_report(self, judged: JudgedBlock) -> None:
        """Add a worker's report to the totals. Whenever enough new files have come in, merge them."""
        self.dataset_run.add(judged.tally)
        self.dataset_run.is_budget_spent |= judged.is_limit_reached
        self.dataset_run.give_up_if_hopeless()
        self._begun_counts[judged.worker_name].append(judged.blocks_begun)
        if judged.name:  # the file with the block's results, if there are any
            self._unmerged_names.append(judged.name)
        if len(self._unmerged_names) == parts.FILES_PER_MERGE:
            self._merge(self._unmerged_names)
            self._unmerged_names = []

    def _may_end_now(self, broker: Any) -> bool:  # noqa: ANN401 - a handle of Ray's
        """Whether a stopped run can end: all blocks that were begun are reported, or time is up."""
        is_stopping = self.dataset_run.is_budget_spent or self.dataset_run.stopped.is_set()
        if not is_stopping:
            return False
        if self._deadline is None:
            self._deadline = time.monotonic() + _DRAIN_SECONDS
        if time.monotonic() > self._deadline:
            return True

        for name in ray.get(broker.list_live_workers.remote()):
            # A worker reports each block, together with the number of blocks it has begun by then.
            begun_counts = self._begun_counts[name]
            # A worker that hasn't reported anything is still judging its first block.
            blocks_begun = max(begun_counts) if begun_counts else 1
            blocks_reported = len(begun_counts)
            if blocks_reported < blocks_begun:
                return False
        return True

    def _merge(self, names: list[str]) -> None:
        """Start merging part files, on any machine."""
        merge = ray.remote(num_cpus=_READ_CPU)(parts.merge)
        self._merge_tasks.append(merge.remote(self._folder, sorted(names)))

    def finish(self) -> None:
        """Reduce the output folder to a single result per row, in few files with the same columns.

        Raises `InputError` if that fails.
        """
        with _explain_errors(written=self._folder.name):
            ray.get(self._merge_tasks)  # wait for the merges that began during the run
            if len(self._lines):  # there are results of earlier runs
                self._drop_superseded()
            # Merge the small files that remain, separately for each run. The name of a merged file starts
            # with "rows".
            small = sorted(name for name in self._folder.names() if name.startswith("part"))
            for _, files_of_run in groupby(small, parts.run_of):
                names = list(files_of_run)
                for start in range(0, len(names), parts.FILES_PER_MERGE):
                    self._merge(names[start : start + parts.FILES_PER_MERGE])
            ray.get(self._merge_tasks)

    def _drop_superseded(self) -> None:
        """Drop lines that a later run has superseded, and give old files the new columns and seals."""
        present_names = self._folder.names()
        new_names = [name for name in present_names if name not in self._names]
        _, new_lines, _ = self._scan_files(new_names, first=len(self._names))
        _, superseded_lines = parts.split_newest(np.concatenate([self._lines, new_lines]))
        numbered_names = [*self._names, *new_names]

        # Rows to drop by file. All these files are rewritten, even if there are no rows to drop.
        dropped_rows: dict[str, list[int]] = {}
        # If any old file has other columns, all get the new ones.
        if any(schema != self._shape.schema for schema in self._earlier_schemas):
            for name in self._names:
                if name in present_names:
                    dropped_rows[name] = []
        for file_number, row in superseded_lines[["file", "row"]].tolist():
            dropped_rows.setdefault(numbered_names[file_number], []).append(row)
        # `prepare` only allows lines without a seal if the user trusts them, so seal them now.
        unsealed_lines = self._lines[~self._lines["sealed"]]
        for file_number in set(unsealed_lines["file"].tolist()):
            dropped_rows.setdefault(numbered_names[file_number], [])

        calls = []
        for name, rows in dropped_rows.items():
            calls.append((self._folder, name, rows, self._shape, self._key))
        _run_remotely(parts.rewrite, calls)


def _check_options(data: str, out: str) -> None:
    """Raise `UsageError` if `out` can't be the results folder, or if calls are being recorded.

    `data` is an address, or a path without links.
    """
    if is_recording(environment.environ()):
        raise UsageError("JUDGEKIT_RECORD and --on ray do not go together; unset one of the two")
    if out.lower().endswith(tables.ENDINGS):
        raise UsageError(f"{out}: with --on ray results are a folder; name one without an ending")
    if f"{os.path.realpath(out)}/".startswith(f"{data}/"):
        raise UsageError(f"{out}: the rows are read from this folder; choose another --out")


def _check_file(shared: Any, path: str, limit: int | None, wanted: frozenset[int]) -> Checked:  # noqa: ANN401 - three values that `RayRun.check` puts there
    """Check up to `limit` rows of a file, and list those whose id has a digest in `wanted`."""
    dataset, files, types = shared
    return worker.check(replace(dataset, limit=limit), files, path, types, wanted)


def _run_remotely(function: Callable[..., Any], calls: Iterable[Sequence[Any]]) -> list[Any]:
    """Call a function on any machine for each tuple of arguments, and list the results."""
    task = ray.remote(num_cpus=_READ_CPU)(function)
    with _explain_errors():
        return ray.get([task.remote(*arguments) for arguments in calls])  # type: ignore[no-any-return]  # Ray's


@contextmanager
def _explain_errors(written: str | None = None) -> Iterator[None]:
    """Convert errors that Ray raises in this block to judgekit's errors, with the cause as their message.

    `written` is the folder to which the block writes, if any.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Ray can raise anything
        cause = _find_cause(error)
        if isinstance(cause, JudgekitError):
            raise cause from None
        if isinstance(cause, OSError):
            problem = _describe_file_problem(cause, written)
        else:
            problem = (
                f"Ray: {type(cause).__name__}: {shorten_to_line(_extract_message(cause), 300)}"
            )
        raise InputError(f"{problem}; run the same command again to go on") from None


def _find_cause(error: Exception) -> BaseException:
    """Find the first of judgekit's own errors, or `OSError`, among an error's causes.

    Failing that, return the last cause with a message.
    """
    cause: BaseException = error
    while not isinstance(cause, JudgekitError | OSError):
        # Ray stores a worker's exception in the attribute `cause`.
        inner: BaseException | None = getattr(cause, "cause", None) or cause.__cause__
        if inner is None or not str(inner):
            return cause
        cause = inner
    return cause


def _describe_file_problem(error: OSError, written: str | None) -> str:
    """Describe an `OSError`, which can mean a lost connection, an unwritable folder or an unreadable file.

    `written` is the folder to which the program was writing, if any.
    """
    reason = error.strerror or error
    if isinstance(error, ConnectionError | TimeoutError):
        return f"Ray: {reason}"
    if written is not None:
        return f"{written}: cannot be written ({reason}); free space or choose another --out"
    return f"{replace_surrogates(error.filename or 'the rows')}: cannot be read ({reason}); check the file"


def _extract_message(error: BaseException) -> str:
    """Extract the error message from Ray's text, in which it follows a worker's traceback."""
    _, _, message = str(error).rpartition("Error: ")
    return message


class _Source(FileBasedDatasource):  # type: ignore[misc]  # Ray isn't installed for type checks
    """Gives Ray Data the blocks of rows in a dataset's files."""

    def __init__(self, files: RowFiles, shared: Any) -> None:  # noqa: ANN401 - a reference of Ray's
        super().__init__(list(files.paths), filesystem=files.system)
        self._files = files
        self._shared = shared  # the values that `RayRun._share_rows` lists

    def _open_input_source(self, filesystem: Any, path: str, **_: object) -> Any:  # noqa: ANN401 - Ray's
        return filesystem.open_input_file(path)

    def _read_stream(self, opened: Any, path: str) -> Iterator[pa.Table]:  # noqa: ANN401 - Ray's
        """Yield a file's rows that have to be judged, in blocks.

        Ray passes tables, so each block is pickled into a table with a single cell.
        """
        dataset, find_label, lines, run_number, starts_and_counts = ray.get(self._shared)
        # A file after the row limit has no entry, so none of its rows are read.
        rows_before, row_count = starts_and_counts.get(path, (0, 0))
        # Readers of text expect a buffered file, as `RowFiles.open_file` returns it.
        file = io.BufferedReader(opened) if detect_source(path).is_text else opened
        rows_in_file = read_rows(file, path, self._files.reading)
        rows = (self._files.renumber(row, rows_before, path) for row in rows_in_file)
        file_dataset = replace(dataset, rows=rows, limit=row_count, make_ids=parts.Digests)
        run = DatasetRun(
            dataset=file_dataset, results=parts.KeptLines(lines), find_label=find_label
        )
        for block in worker.group_into_blocks(run, run_number):
            yield pa.table({"block": [pickle.dumps(block)]})


class _Actor:
    def __init__(self, broker: Any) -> None:  # noqa: ANN401 - a handle of Ray's
        name = f"{ray.get_runtime_context().get_actor_id()} {os.getpid()}"
        job = cloudpickle.loads(ray.get(broker.begin.remote(name)))
        self._worker = worker.Worker(job, broker.beat.remote, name)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Judge the blocks in a batch. Ray passes tables, so blocks and results are pickled."""
        outcomes = []
        try:
            for packed in batch["block"].to_pylist():
                block = pickle.loads(packed)  # noqa: S301 - our own reader packed it
                outcomes.append(pickle.dumps(self._worker.judge(block)))
        except ray.exceptions.RayError:
            # The broker can't be reached from here, so let Ray retry on another machine.
            os._exit(1)
        return pa.table({"judged": outcomes})
