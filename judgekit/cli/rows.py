"""`judge --data` and `compare --data`: judges the rows of a dataset here, in batches or on Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from judgekit import environment
from judgekit.cli import interruption, output, progress
from judgekit.cli.output import note, warn
from judgekit.cli.row_options import DEFAULT_EXIT_ON, DataOptions, ExitOn, choose_exit_code
from judgekit.cli.row_printing import Printing, RowPrinter
from judgekit.cli.row_summary import describe_progress, summarise_run
from judgekit.errors import Exit, UsageError
from judgekit.text import escape_name, format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import FrameType

    from judgekit.data.batch_runner import BatchRunner
    from judgekit.data.dataset import Dataset, PendingRow, RowOptions
    from judgekit.data.promised import AgreementOptions, PromisedRows, PromisedRun
    from judgekit.data.results import Results
    from judgekit.data.rows import Rows
    from judgekit.data.runners import Runner
    from judgekit.data.runs import DatasetRun
    from judgekit.data.templates import Template
    from judgekit.data.until import UntilJob
    from judgekit.data.variants import Variants
    from judgekit.evaluation.conditions import Condition
    from judgekit.evaluation.until import Answer
    from judgekit.judging.documents import ComparisonInput, Document, TaskDescription
    from judgekit.judging.request import JudgeRequest

_EXIT_CODE_BY_ANSWER = {True: Exit.ACCEPTED, False: Exit.REJECTED, None: Exit.HUMAN_NEEDED}
FINISH_SECONDS = 2.0  # to finish rows being judged after Ctrl-C


class RunOptions(NamedTuple):
    """How rows are judged or only shown: the number at a time, the place, failing outcomes, and printing."""

    jobs: int
    uses_engine: bool
    shows_prompt: bool
    is_estimate: bool = False
    exit_on: Collection[ExitOn] = DEFAULT_EXIT_ON
    printing: Printing = Printing()
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """The request of each way in which a row is judged, by name, if there are several."""
    combination: Literal["all", "any"] = "all"


def judge_rows(
    task: Literal["judge", "compare"],
    options: DataOptions,
    description: TaskDescription,
    request_fields: Mapping[str, Any],
    families: Sequence[str],
    run_options: RunOptions,
) -> int:
    """Judge a dataset's rows and print a summary, or only print the prompts or an estimate.

    Returns the exit code. Raises `UsageError` for options that don't go together.
    """
    from judgekit.data import fields, results, runs
    from judgekit.data.dataset import open_dataset
    from judgekit.data.variants import Variants
    from judgekit.evaluation.conditions import parse_condition
    from judgekit.judging.request import JudgeRequest

    project = Path(environment.find_project_root())
    request = JudgeRequest(**request_fields)
    if options.batch and request.deadline is not None:
        raise UsageError("--batch: a batch takes up to a day; leave --deadline out")

    condition = None
    if options.until is not None:
        condition = parse_condition(options.until, task, "--until")

    # Open the dataset.
    columns = fields.parse_map(options.map or ())
    source = _open_source(options, columns)
    row_options = _build_row_options(task, options, columns, description, families)
    if options.on and not source.can_split:
        problem = "--on ray cannot have several machines read such a file"
        raise UsageError(f"{source.name}: {problem}; leave --on out")

    dataset, matched, remarks = open_dataset(source, row_options, project, request)
    id_columns = [dataset.id_column] if dataset.id_column else []
    note(*source.describe(matched, *id_columns), *remarks)

    if run_options.shows_prompt:
        return _show_prompt(task, dataset, project, request)

    # Prepare the dataset for variants, a named run, a promise or a condition.
    variants = None
    if run_options.variants:
        variants = Variants.of(run_options.variants, run_options.combination)
        dataset = variants.bind(dataset, row_options, matched, project)

    if options.run is not None:
        dataset = replace(dataset, taken_names=dataset.taken_names.with_names([results.RUN]))
    if run_options.is_estimate:
        return _print_estimate(options, dataset, project, request, run_options)

    if options.out:
        _note_missing_key()
    promised = None
    if options.agree is not None:
        promised = _read_promised_rows(options, dataset, project, request)
        dataset = promised.bound_dataset

    if condition is not None:  # rows are drawn at random, so read all of them
        dataset = replace(dataset, rows=list(dataset.rows))

    # Judge.
    printer = run_options.printing.make_printer(options.out)
    work = runs.DatasetRun(
        dataset=dataset,
        results=results.Results(printer.add_line),
        max_cost_usd=request.max_cost_usd,
        run_name=options.run,
        find_label=partial(row_options.read_expected_label, matched),
    )

    job = _Job(
        task=task,
        options=options,
        dataset_run=work,
        source=source,
        project=project,
        request=request,
        run_options=run_options,
        printer=printer,
        promised=promised,
        until_condition=condition,
        variants=variants,
    )

    with printer.store_rows():
        outcome = _judge_on_ray(job) if options.on else _judge_here(job)
        if work.verdict_counts:
            printer.print_all(source.name)
    return _report_outcome(job, outcome)


def _open_source(options: DataOptions, columns: Mapping[str, str]) -> Rows:
    """Open the file of rows, or two files to join. `columns` come from `--map`."""
    from judgekit.data.rows import open_rows

    assert options.data is not None  # noqa: S101 - the callers have checked it
    if options.other_data is not None:
        return _open_joined(options, columns)
    return open_rows(options.data, sys.stdin.buffer, options.build_reading())


def _build_row_options(
    task: Literal["judge", "compare"],
    options: DataOptions,
    columns: Mapping[str, str],
    description: TaskDescription,
    families: Sequence[str],
) -> RowOptions:
    """Collect the options for reading rows; raises `UsageError` for an unusable template."""
    from judgekit.data.dataset import RowOptions

    row_options = RowOptions(
        task=task,
        default_task=description,
        author_families=families,
        template=_parse_template(options, description),
        drops_thoughts=options.drop_thinking,
    )
    # With two files, joining them has already used --map and --id.
    if options.other_data is None:
        row_options = row_options._replace(
            column_by_field=columns, id_column=options.id, judge_turn=options.judge_turn
        )
    # With --until, read all rows: it draws from them, and applies the limit itself.
    if options.until is None:
        row_options = row_options._replace(limit=options.limit)
    return row_options


def _parse_template(options: DataOptions, description: TaskDescription) -> Template | None:
    """Parse `--template`; raises `UsageError` if another option already gives the description."""
    from judgekit.data.templates import parse_template

    if options.template is None:
        return None
    if description.description:
        raise UsageError("--template says what the task is; leave --description or --prompt out")
    return parse_template(options.template)


def _open_joined(options: DataOptions, columns: Mapping[str, str]) -> Rows:
    """Open two files and join their rows by id."""
    from judgekit.data.joined import JoinedRows
    from judgekit.data.rows import open_rows

    assert options.data is not None, "the first file"  # noqa: S101
    assert options.other_data is not None, "called only for two files"  # noqa: S101
    reading = options.build_reading()
    first = open_rows(options.data, sys.stdin.buffer, reading)
    second = open_rows(options.other_data, sys.stdin.buffer, reading)
    return JoinedRows(first, second, columns, options.id, reading)


def _note_missing_key() -> None:
    """Print a note if results can't be signed, because a second run won't trust them then."""
    from judgekit.data import seals

    # A missing key is created, so there's none only if its folder can't be written.
    has_key = seals.get_state_key() is not None
    if has_key:
        return
    path = Path(environment.STATE_KEY.path())
    note(
        f"{path} cannot be written: set {seals.STATE_KEY_VARIABLE}, or a second run needs --trust-results"
    )


def _read_promised_rows(
    options: DataOptions, dataset: Dataset, project: Path, request: JudgeRequest
) -> PromisedRows:
    """Read all rows for a run with `--agree`, and find the tier that judges them first."""
    from judgekit.data import promised

    agreement_options = _build_agreement_options(options)
    return promised.bind_rows(dataset, agreement_options, project, request)


def _build_agreement_options(options: DataOptions) -> AgreementOptions:
    """Collect the options for a promise of agreement."""
    from judgekit.data.promised import AgreementOptions

    assert options.agree is not None, "called only with a promise"  # noqa: S101
    return AgreementOptions(
        share=options.agree,
        agree_on=options.agree_on,
        # "accept" is the only value of --always-confirm.
        confirms_accepted=options.always_confirm is not None,
        repeated_row_count=options.noise,
    )


class _Job(NamedTuple):
    """The rows to judge, and the settings."""

    task: Literal["judge", "compare"]
    options: DataOptions
    dataset_run: DatasetRun
    source: Rows
    project: Path
    request: JudgeRequest
    run_options: RunOptions
    printer: RowPrinter
    promised: PromisedRows | None = None
    until_condition: Condition | None = None
    variants: Variants | None = None


class _Outcome(NamedTuple):
    """A run's outcome: the results, the number of rows, and those in OUT that it didn't come to."""

    name: str
    total: int | None
    is_interrupted: bool
    seconds: float
    unreached_count_by_judge: Mapping[str, int] = MappingProxyType({})
    lines: Sequence[str] = ()
    """The effect of a promise of agreement, or the answer to `--until`."""
    answer: Answer | None = None


def _judge_here(job: _Job) -> _Outcome:
    """Judge the rows without Ray: until a condition is decided, under a promise, or all of them."""
    total = _count_rows(job)
    with _open_out(job) as results:
        job.dataset_run.results = results
        if job.until_condition is not None:
            return _judge_until(job, results)

        promised_run = _make_promised_run(job)
        if promised_run is None:
            # If the total is unknown, this is 0 or less, so no row counts as new.
            new_rows = (total or 0) - results.count_earlier()
            return _judge_all(job, results, _make_runner(job, new_rows), total)

        outcome = _judge_all(job, results, promised_run, total)
        agreement = promised_run.tally_effects().sum_up()
        if agreement is None:  # no rows were judged under the promise
            return outcome
        return outcome._replace(lines=agreement.describe())


def _count_rows(job: _Job) -> int | None:
    """Check and count the rows. Returns None for a stream that isn't stored: it can't be read twice."""
    # A run with --agree or --until has already stored all rows.
    is_stored = job.promised is not None or job.until_condition is not None
    can_read_twice = job.source.can_reread or is_stored
    return job.dataset_run.dataset.check() if can_read_twice else None


def _open_out(job: _Job) -> Results:
    """Open the results in OUT, or those that are only printed."""
    from judgekit.data.results import open_results

    options = job.options
    return open_results(
        options.out,
        job.printer.add_line,
        fresh=options.fresh,
        trust=options.trust_results,
        full=options.full,
        source=job.source,
        run=options.run,
    )


def _judge_until(job: _Job, results: Results) -> _Outcome:
    """Judge rows in random order until it's clear if the condition of `--until` holds."""
    from judgekit.data.until import UntilRun

    until_job = _build_until_job(job)
    run = UntilRun(until_job, job.dataset_run)
    # It isn't known in advance how many rows this takes.
    is_interrupted, seconds = _judge_with_progress(run, job.dataset_run, total=None)
    results.write_out()
    return _Outcome(
        name=results.name,
        total=len(until_job.rows),
        is_interrupted=is_interrupted,
        seconds=seconds,
        unreached_count_by_judge=results.count_other_rows(),
        lines=[run.answer.describe()],
        answer=run.answer,
    )


def _build_until_job(job: _Job) -> UntilJob:
    """Build the job of deciding the condition of `--until`, with all rows that can be read."""
    from judgekit.data.dataset import PendingRow
    from judgekit.data.until import UntilJob

    assert job.until_condition is not None, "called only with a condition"  # noqa: S101
    return UntilJob(
        condition=job.until_condition,
        rows=[row for row in job.dataset_run.dataset if isinstance(row, PendingRow)],
        judge_rows=_make_runner(
            job, new_rows=0
        ),  # the number of rows needed isn't known in advance
        at_once=job.run_options.jobs,
        limit=job.options.limit,
        out=job.options.out,
        is_fresh=job.options.fresh,
    )


def _judge_all(job: _Job, results: Results, runner: Runner, total: int | None) -> _Outcome:
    """Judge all rows without a verdict, and write their results."""
    judge_rows = partial(runner, job.dataset_run.yield_pending_rows(), job.dataset_run.write_result)
    is_interrupted, seconds = _judge_with_progress(judge_rows, job.dataset_run, total)
    results.write_out()
    return _Outcome(results.name, total, is_interrupted, seconds, results.count_other_rows())


def _report_outcome(job: _Job, outcome: _Outcome) -> int:
    """Print a run's problems and summary, and return the exit code."""
    work = job.dataset_run
    # A run that gives up stops itself, which looks like an interruption.
    is_interrupted = outcome.is_interrupted and not work.gave_up
    _print_problems(work, job.task)
    # The summary says what was kept, so no message about an interruption is needed.
    interruption.KEPT_MESSAGE_BY_COMMAND[job.task] = None
    summary = _summarise_outcome(job, outcome, is_interrupted=is_interrupted)
    _print_summary([summary, *outcome.lines])

    if is_interrupted:
        return Exit.INTERRUPTED
    if outcome.answer is not None and not work.gave_up:
        return _EXIT_CODE_BY_ANSWER[outcome.answer.holds]
    return _choose_exit_code(work, job.run_options.exit_on)


def _print_problems(work: DatasetRun, task: Literal["judge", "compare"]) -> None:
    """Print where texts were sent, why rows have no verdict, and why a run was given up."""
    output.note_sent(work.substitute_providers, work.redacted_count)
    output.note(*work.deciders.write_notes(task))
    doubled_models = work.describe_doubled_models()
    # This recommends --depth, which `compare` doesn't have.
    if doubled_models is not None and task == "judge":
        output.note(doubled_models)

    if work.first_failure:
        more = f" (and {work.failure_count - 1:,} more)" if work.failure_count > 1 else ""
        warn(escape_name(f"{work.first_failure}{more}"))
    if work.problem:
        warn(escape_name(str(work.problem)))
    if work.gave_up:
        warn(str(work.build_given_up_error()))


def _summarise_outcome(job: _Job, outcome: _Outcome, *, is_interrupted: bool) -> str:
    # The answer to --until says whether its condition holds; None if that isn't decided.
    answer = outcome.answer
    is_settled = answer is not None and answer.holds is not None
    return summarise_run(
        job.dataset_run,
        outcome.name,
        outcome.seconds,
        outcome.total,
        interrupted=is_interrupted,
        resumes=bool(job.options.out),
        others=outcome.unreached_count_by_judge,
        is_settled=is_settled,
    )


def _print_summary(lines: Sequence[str]) -> None:
    """Print lines to stderr, except with --quiet."""
    if sys.stderr is None or output.current.is_quiet:
        return
    for line in lines:
        sys.stderr.write(f"{output.make_printable(line)}\n")


def _choose_exit_code(work: DatasetRun, exit_on: Collection[ExitOn]) -> int:
    """Choose the exit code by the run's problem, if any, or else by its verdicts."""
    if work.gave_up:  # the first rows failed alike, so the models aren't set up as they should be
        return Exit.BAD_CONFIG
    if work.problem:
        return work.problem.exit_code

    words = set(work.verdict_counts)
    has_reached_max_cost = work.is_budget_spent
    if has_reached_max_cost:  # the remaining rows have no verdicts
        words.add("undetermined")
    return choose_exit_code(words, exit_on)


def _make_promised_run(job: _Job) -> PromisedRun | None:
    """Build the run for `--agree`. Returns None without this option.

    With the option, the user says which share of the verdicts must agree with those of the tier `deep`.
    """
    promised_rows = job.promised
    if promised_rows is None:
        return None

    from judgekit.data.promised import PromisedJob, PromisedRun

    make_batch_runner = None
    if job.options.batch:
        make_batch_runner = partial(_make_deep_batch_runner, job)
    promised_job = PromisedJob(
        rows=promised_rows,
        project=job.project,
        request=job.request,
        at_once=job.run_options.jobs,
        out=job.options.out,
        is_fresh=job.options.fresh,
        make_batch_runner=make_batch_runner,
    )
    return PromisedRun(promised_job, job.dataset_run, note)


def _make_deep_batch_runner(job: _Job, limit_usd: float | None, is_first: bool) -> BatchRunner:
    """Build a batch runner that asks only the deep tier, for at most `limit_usd`."""
    from judgekit.data.promised import limit_to_deep

    request = job.request.model_copy(update={"max_cost_usd": limit_usd})
    runner = _make_batch_runner(job)
    # A fresh runner replaces the list of submitted batches, so the later rounds of a run can't be fresh.
    is_fresh = runner.is_fresh and is_first
    return replace(runner, request=request, adapt=limit_to_deep, is_fresh=is_fresh)


def _make_runner(job: _Job, new_rows: int) -> Runner:
    """Build the runner that judges the rows: in batches, as variants, by the engine or here.

    `new_rows` is how many rows have no result in OUT, as far as that's known.
    """
    from judgekit.data import runners

    if job.options.batch:
        return _make_batch_runner(job)

    at_once = job.run_options.jobs
    # A file's rows are there at once; a stream's may have to be waited for.
    never_blocks = bool(job.source.paths)
    if job.variants is not None:  # each row is judged in several ways
        return job.variants.build_runner(job.project, at_once, never_blocks=never_blocks)

    # For many rows, the engine takes more CPU than this process.
    has_few_rows = new_rows < runners.MANY_ROWS
    if job.run_options.uses_engine and has_few_rows:
        return runners.build_engine_runner(
            job.task, job.project, job.request, at_once, note, never_blocks=never_blocks
        )
    return runners.build_local_runner(job.project, job.request, at_once, never_blocks=never_blocks)


def _make_batch_runner(job: _Job) -> BatchRunner:
    from judgekit.data import batch_runner

    options = job.options
    return batch_runner.BatchRunner(
        project=job.project,
        request=job.request,
        at_once=job.run_options.jobs,
        out=options.out or "",
        fallback=options.batch_fallback,
        dataset_run=job.dataset_run,
        note=note,
        is_fresh=options.fresh,
        is_trusted=options.trust_results,
    )


def _judge_with_progress(
    judge: Callable[[], None], work: DatasetRun, total: int | None
) -> tuple[bool, float]:
    """Judge rows and show progress. Returns whether the run was stopped early, and the seconds it took."""
    started = time.monotonic()
    was_aborted = False
    describe = partial(describe_progress, work, total, started)
    with progress.follow(describe), _stop_on_interrupt(work.stopped):
        try:
            judge()
        except KeyboardInterrupt:
            was_aborted = True

    # The first Ctrl-C only sets `stopped`. If `judge` then ends in time, it raises no exception.
    is_interrupted = was_aborted or work.stopped.is_set()
    return is_interrupted, time.monotonic() - started


def _judge_on_ray(job: _Job) -> _Outcome:
    """Judge the rows on Ray; raises `UsageError` if it isn't installed."""
    from judgekit.config.files import install_extra

    try:
        from judgekit.data import on_ray
    except ImportError as error:
        raise UsageError(f"--on ray needs Ray ({error}); run {install_extra('ray')}") from None

    options = job.options
    # The check of the options has refused --on ray without these two.
    assert options.data is not None and options.out is not None  # noqa: S101, PT018
    jobs = job.run_options.jobs
    with on_ray.connect_to_cluster(options.ray_address):
        run = on_ray.RayRun(
            job.dataset_run, options.data, options.out, job.project, job.request, jobs
        )
        with run as ray_run:
            ray_run.prepare(fresh=options.fresh, trust=options.trust_results)
            total = ray_run.check(job.source.schema)  # it counts the rows, too
            is_interrupted, seconds = _judge_with_progress(ray_run.judge, job.dataset_run, total)
            ray_run.finish()

    return _Outcome(options.out, total, is_interrupted, seconds)


def _show_prompt(task: str, dataset: Dataset, project: Path, request: JudgeRequest) -> int:
    """Print the prompts for the first row that can be judged, if there is one."""
    from judgekit.judging import service

    for row in _read_rows(dataset):
        if row.subject is not None:
            prompts = service.build_prompts(row.subject, project, request)
            output.say_prompts(f"{task} row {row.row_id}", prompts)
            break
    return Exit.ACCEPTED


def _read_rows(dataset: Dataset) -> Iterator[PendingRow]:
    """Yield a dataset's rows; raises `InputError` at the first one that can't be read."""
    from judgekit.data.dataset import build_unreadable_error
    from judgekit.data.sources import UnreadableRow

    for row in dataset:
        if isinstance(row, UnreadableRow):
            # More unreadable rows aren't looked for.
            raise build_unreadable_error(dataset.name, row, more=0)
        yield row


def _print_estimate(
    options: DataOptions,
    dataset: Dataset,
    project: Path,
    request: JudgeRequest,
    run_options: RunOptions,
) -> int:
    """Print an estimate for the rows that OUT doesn't have yet."""
    from judgekit.cli.estimating import print_estimate
    from judgekit.data.estimate import estimate_run

    subjects = _NewSubjects(dataset)
    with _open_earlier_results(options) as results:
        estimate = estimate_run(
            subjects.read(results), project, request, run_options.jobs, in_batches=options.batch
        )
    format_ = run_options.printing.format
    print_estimate(estimate, format_, dataset.name, subjects.describe_left_out())
    return Exit.ACCEPTED


def _open_earlier_results(options: DataOptions) -> Results:
    """Open the results of earlier runs in OUT, without printing them.

    Returns empty results if OUT has none, or if the run ignores them.
    """
    from judgekit.data.results import Results, open_results

    def print_nothing(_line: str) -> None:
        pass

    # With --on ray, OUT is a folder, which isn't read here.
    ignores_earlier = options.fresh or options.on
    if options.out is None or ignores_earlier:
        return Results(print_nothing)
    if not Path(options.out).exists():
        return Results(print_nothing)
    return open_results(options.out, print_nothing, fresh=False, trust=options.trust_results)


class _NewSubjects:
    """The subjects of rows without a result; counts the rows that it leaves out."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._with_result = 0
        self._unjudgeable = 0

    def read(self, results: Results) -> Iterator[Document | ComparisonInput]:
        """Yield the subject of each row without a result, and count the rows left out.

        Raises `InputError` at a row that can't be read.
        """
        for row in _read_rows(self._dataset):
            if row.subject is None:
                self._unjudgeable += 1
            elif results.find_verdict(row.row_id, row.fingerprint) is not None:
                self._with_result += 1
            else:
                yield row.subject

    def describe_left_out(self) -> list[str]:
        """Describe how many rows were omitted, with a line for each reason."""
        lines = []
        if self._with_result:
            lines.append(
                f"{format_count(self._with_result, 'row has', 'rows have')} a result already"
            )
        if self._unjudgeable:
            lines.append(f"{format_count(self._unjudgeable, 'row', 'rows')} cannot be judged")
        return lines


@contextlib.contextmanager
def _stop_on_interrupt(stopped: threading.Event) -> Iterator[None]:
    """On the first Ctrl-C, set `stopped`, so that the work in this context can finish.

    Raises `KeyboardInterrupt` two seconds later, or on a second Ctrl-C.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread:  # only the main thread can handle signals
        yield
        return

    timer = threading.Timer(FINISH_SECONDS, _interrupt_main_thread)
    timer.daemon = True

    def handle_interrupt(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        timer.start()

    earlier_handler = signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, earlier_handler)


def _interrupt_main_thread() -> None:
    """Send the main thread the signal of Ctrl-C, as if the user pressed it again."""
    if hasattr(signal, "pthread_kill"):
        # This interrupts even a blocking call in the main thread.
        thread_id = threading.main_thread().ident or 0  # a running thread has one
        signal.pthread_kill(thread_id, signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.SIGINT)
