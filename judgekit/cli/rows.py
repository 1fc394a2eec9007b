"""`judge --data` and `compare --data`: the options of a dataset, progress, the summary and the exit code."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from typer import Option

from judgekit import environment
from judgekit.cli import interruption, output, progress
from judgekit.cli.output import note, warn
from judgekit.data import sources, tables
from judgekit.errors import Exit, UsageError
from judgekit.text import counted, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import FrameType

    from judgekit.data.dataset import Dataset
    from judgekit.data.rows import Rows
    from judgekit.data.runners import Runner
    from judgekit.data.runs import DatasetRun
    from judgekit.judging.documents import TaskDescription
    from judgekit.judging.request import JudgeRequest

JOBS = 8  # texts judged at a time, unless -j says otherwise
ROW_JOBS = 32
_RECORDINGS = ("JUDGEKIT_RECORD", "JUDGEKIT_REPLAY")
LAST_SECONDS = 2.0  # for what is being judged after Ctrl-C
_WORST_FIRST = ("reject", "undetermined", "escalate", "improve", "accept")
_WORDS = ("accept", "improve", "reject", "escalate", "undetermined")

Turn: TypeAlias = Literal["last", "all"]


class ExitOn(enum.StrEnum):
    """Outcomes that give an exit code other than 0."""

    REJECT = "reject"
    IMPROVE = "improve"
    UNDETERMINED = "undetermined"
    NEVER = "never"


_MEANT: dict[ExitOn, dict[str, Exit]] = {
    ExitOn.REJECT: {"reject": Exit.REJECTED},
    ExitOn.IMPROVE: {"reject": Exit.REJECTED, "improve": Exit.HUMAN_NEEDED},
    ExitOn.UNDETERMINED: {"undetermined": Exit.HUMAN_NEEDED},
    ExitOn.NEVER: {},
}
USUAL_EXIT = (ExitOn.UNDETERMINED,)  # where rows are judged
_DATA = Option(
    "--data",
    metavar="ROWS",
    help=f"Judge each row: {', '.join(sources.USUAL_ENDINGS)}, or - (JSON Lines).",
)
Data = Annotated[str | None, _DATA]
_MAP = Option(
    "--map", metavar="FIELD=COLUMN", help="Take a field, such as text, from a column; repeatable."
)
Map = Annotated[list[str] | None, _MAP]
Id = Annotated[str | None, Option("--id", metavar="COLUMN", help="Column that names each row.")]
_FILES_OF_RESULTS = " or ".join([", ".join(tables.USUAL_ENDINGS[:-1]), tables.USUAL_ENDINGS[-1]])
_INTO = f"Write results here: of rows {_FILES_OF_RESULTS} (--on ray: a folder), continued if there."
Out = Annotated[str | None, Option("--out", metavar="FILE", help=_INTO)]
Fresh = Annotated[bool, Option("--fresh", help="Judge all rows again, whatever --out has.")]
_TRUST = Option(
    "--trust-results", help="Keep results in --out as they are that were not written here."
)
TrustResults = Annotated[bool, _TRUST]
Limit = Annotated[
    int | None, Option("--limit", min=1, metavar="N", help="Judge only the first N rows.")
]
JudgeTurn = Annotated[
    Turn, Option("--judge-turn", help="Of a conversation: its last answer, or all.")
]
_EXIT_ON = Option("--exit-on", help="Outcome that makes the exit code 1 or 2; repeatable.")
Batch = Annotated[
    bool, Option("--batch", help="Ask in the provider's batches: within a day, for less.")
]
_FALLBACK = Option(
    "--batch-fallback", help="Whatever a batch leaves out: ask live, or leave to the next run."
)
BatchFallback = Annotated[Literal["live", "none"], _FALLBACK]
ExitOnOption = Annotated[list[ExitOn] | None, _EXIT_ON]
_AT_ONCE = f"Texts to judge at the same time. [default: {JOBS}; rows: {ROW_JOBS}]"
_ON = Option("--on", help="Judge the rows on a Ray cluster (extra ray).")
On = Annotated[Literal["ray"] | None, _ON]
_RAY = Option(
    "--ray-address", metavar="A", help="Address of the cluster. [default: start Ray here]"
)
RayAddress = Annotated[str | None, _RAY]
Jobs = Annotated[int | None, Option("-j", min=1, max=256, help=_AT_ONCE)]


class DataOptions(NamedTuple):
    """What the command line says of a dataset."""

    data: str | None = None
    map: list[str] | None = None
    id: str | None = None
    out: str | None = None
    fresh: bool = False
    limit: int | None = None
    judge_turn: Turn = "last"
    batch: bool = False
    batch_fallback: Literal["live", "none"] = "live"
    on: Literal["ray"] | None = None
    ray_address: str | None = None
    trust_results: bool = False

    def check(self, files: list[str] | None, format_: str, task_id: str | None = None) -> None:
        """Raise `UsageError` for options that do not go together, and where nothing is to be judged."""
        if self.data is None:
            for name, value in self._replace(out=None)._asdict().items():
                if value != self._field_defaults[name]:
                    raise UsageError(
                        f"--{name.replace('_', '-')} is for rows; name their file with --data"
                    )
            raise UsageError("nothing to judge: name files, or a file of rows with --data")
        others = {"a path": files, "--format": format_ != "table", "--task-id": task_id}
        for name in (name for name, is_given in others.items() if is_given):
            raise UsageError(f"--data and {name} do not go together; give one of the two")
        if self.trust_results and (self.fresh or not self.out):
            raise UsageError(
                "--trust-results is for an --out, and without --fresh, which loses its rows"
            )
        if self.batch_fallback != "live" and not self.batch:
            raise UsageError("--batch-fallback is for --batch; give both")
        if self.batch and self.out is None:
            raise UsageError("--batch needs --out: beside it is noted which batches were submitted")
        if self.batch and any(environment.environ().get(name) for name in _RECORDINGS):
            raise UsageError(
                f"--batch: a recording holds no batches; unset {' and '.join(_RECORDINGS)}"
            )
        if self.ray_address and not self.on:
            raise UsageError("--ray-address is for --on ray; give both")
        if self.on and (self.data == "-" or not self.out):
            raise UsageError(
                "--on ray reads a file, a folder or an address: name it with --data, and --out"
            )
        if self.on and self.batch:
            raise UsageError("--batch and --on ray do not go together; give one of the two")


class How(NamedTuple):
    """How rows are judged: how many at a time, where, or only shown, and which outcomes are no success."""

    jobs: int
    use_engine: bool
    show_prompt: bool
    exit_on: Collection[ExitOn] = USUAL_EXIT


NO_DATA = DataOptions()


def exit_code(words: Collection[str], exit_on: Collection[ExitOn]) -> int:
    """Return the exit code for these outcomes; a rejection outranks the rest."""
    meant: dict[str, int] = {}
    for each in exit_on:
        meant.update(_MEANT[each])
    codes = {meant.get("undetermined" if word == "escalate" else word, 0) for word in words}
    if meant and words and {*words} <= {"undetermined", "escalate"}:
        codes.add(Exit.HUMAN_NEEDED)  # nothing was judged, so nothing was found good
    if Exit.REJECTED in codes:
        return Exit.REJECTED
    return max(codes, default=0)


def run(
    task: Literal["judge", "compare"],
    options: DataOptions,
    fixed: TaskDescription,
    request_fields: Mapping[str, Any],
    families: Sequence[str],
    how: How,
) -> int:
    """Judge the rows of a dataset, sum up, and return the exit code."""
    from judgekit.data import fields, results, rows, runs, seals
    from judgekit.data.dataset import RowOptions, open_dataset
    from judgekit.judging.request import JudgeRequest

    assert options.data is not None  # noqa: S101 - what the callers look at
    project = Path(environment.project_root())
    request = JudgeRequest(**request_fields)
    if options.batch and request.deadline is not None:
        raise UsageError("--batch: a batch takes up to a day; leave --deadline out")
    source = rows.open_rows(options.data, sys.stdin.buffer)
    if options.on and not source.can_split:
        problem = "--on ray cannot have several machines read such a file"
        raise UsageError(f"{source.name}: {problem}; leave --on out")
    given = fields.parse_map(options.map or ())
    asked = RowOptions(task, given, options.id, fixed, families, options.judge_turn, options.limit)
    dataset, found, unseen = open_dataset(source, asked, project, request)
    note(f"{source.name}: {found.told(*filter(None, [dataset.id_column]))}")
    for line in unseen:
        note(line)
    if how.show_prompt:
        return _show_prompt(task, dataset, project, request)
    if options.out and seals.state_key() is None:
        place = Path(environment.STATE_KEY.path())
        note(
            f"{place} cannot be written: set {seals.VARIABLE}, or a second run needs --trust-results"
        )
    expected = partial(asked.expected, found)
    most = request.max_cost_usd
    work = runs.DatasetRun(
        dataset=dataset, results=results.Results(output.emit), max_cost_usd=most, expected=expected
    )
    total: int | None = None
    others = Counter[str]()
    if options.on:
        name, total, interrupted, seconds = _on_ray(options, work, source, project, request, how)
    else:
        total = dataset.check() if source.lasting else None
        to = partial(results.open_results, options.out, output.emit, source=source)
        with to(fresh=options.fresh, trust=options.trust_results) as kept:
            work.results = kept
            name = kept.name
            runner = _runner(task, options, project, request, how, work)
            interrupted, seconds = _judged(
                partial(runner, work.pending(), work.on_record), work, total
            )
            kept.finish()
            others = kept.others()
    interrupted = interrupted and not work.gave_up
    _tell_problems(work)
    interruption.KEPT[task] = None  # the summary says it
    line = summary(
        work,
        name,
        seconds,
        total,
        interrupted=interrupted,
        resumes=bool(options.out),
        others=others,
    )
    if sys.stderr is not None and not output.current.quiet:
        sys.stderr.write(f"{output.printable(line)}\n")
    if interrupted:
        return Exit.INTERRUPTED
    return _exit_code_of(work, how)


def _tell_problems(work: DatasetRun) -> None:
    """Say what was sent where, why rows have no verdict, and why a run was given up."""
    output.tell_sent(work.substitutes, work.redacted)
    if work.failures > 1:
        more = f" (and {work.failures - 1:,} more)"
    else:
        more = ""
    for line in filter(None, (work.failed and work.failed + more, str(work.problem or ""))):
        warn(escaped(line))
    if work.gave_up:
        warn(str(work.problem_of_all()))


def _exit_code_of(work: DatasetRun, how: How) -> int:
    if work.gave_up:
        return Exit.BAD_CONFIG
    if work.problem:
        return work.problem.exit_code
    undone = {"undetermined"} if work.is_spent else set()
    return exit_code({*work.words, *undone}, how.exit_on)


def _runner(
    task: Literal["judge", "compare"],
    options: DataOptions,
    project: Path,
    request: JudgeRequest,
    how: How,
    work: DatasetRun,
) -> Runner:
    """Return what judges the rows."""
    from judgekit.data import runners

    if options.batch:
        from judgekit.data import batch_runner

        return batch_runner.BatchRunner(
            project=project,
            request=request,
            at_once=how.jobs,
            out=options.out or "",
            fallback=options.batch_fallback,
            work=work,
            note=note,
            is_fresh=options.fresh,
            is_trusted=options.trust_results,
        )
    if how.use_engine:
        return runners.by_engine(task, project, request, how.jobs, note)
    return runners.here(project, request, how.jobs)


def _judged(judge: Callable[[], None], work: DatasetRun, total: int | None) -> tuple[bool, float]:
    """Judge the rows; return whether a person ended it, and the seconds it took."""
    started = time.monotonic()
    interrupted = False
    describe = partial(_how_far, work, total, started)
    with progress.follow(describe), _stoppable(work.stopped):
        try:
            judge()
        except KeyboardInterrupt:
            interrupted = True
    return interrupted or work.stopped.is_set(), time.monotonic() - started


def _on_ray(
    options: DataOptions,
    work: DatasetRun,
    source: Rows,
    project: Path,
    request: JudgeRequest,
    how: How,
) -> tuple[str, int, bool, float]:
    """Judge the rows on Ray; return the name of the results, how many rows there are, and as `_judged`."""
    from judgekit.config.files import install_extra

    try:
        from judgekit.data import on_ray
    except ImportError as error:
        raise UsageError(f"--on ray needs Ray ({error}); run {install_extra('ray')}") from None
    assert options.data is not None and options.out is not None  # noqa: S101, PT018 - what `check` looks at
    with on_ray.connected(options.ray_address):
        run = on_ray.RayRun(work, options.data, options.out, project, request, how.jobs)
        run.prepare(fresh=options.fresh, trust=options.trust_results)
        total = run.check(source.schema)
        interrupted, seconds = _judged(run.judge, work, total)
        run.finish()
    return options.out, total, interrupted, seconds


def _show_prompt(task: str, dataset: Dataset, project: Path, request: JudgeRequest) -> int:
    """Print what would be sent about the first row that can be judged."""
    from judgekit.data.dataset import unreadable
    from judgekit.data.sources import UnreadableRow
    from judgekit.judging import service

    for each in dataset:
        if isinstance(each, UnreadableRow):
            raise unreadable(dataset.name, each, 0)
        if each.subject is not None:
            shown = service.prompts(each.subject, project, request)
            output.say_prompts(f"{task} row {each.row_id}", shown)
            break
    return Exit.ACCEPTED


def summary(
    run: DatasetRun,
    name: str,
    seconds: float,
    total: int | None,
    *,
    interrupted: bool,
    resumes: bool,
    others: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Return one line: rows by verdict, how many were judged and reused, and what it cost.

    `others` are rows of OUT that this run did not come to, by judge.
    """
    count = run.now + run.kept
    rows = counted(count, "row", "rows")
    if others:
        rows = f"{count:,} of {counted(count + sum(others.values()), 'row', 'rows')}"
    order = sorted(run.words, key=lambda word: ((*_WORDS, word).index(word), word))
    words = ", ".join(f"{run.words[word]:,} {word}" for word in order) or "no verdict"
    parts = [
        f"{'interrupted: ' * interrupted}{rows} in {name}: {words}",
        f"{run.now:,} judged in {seconds:,.0f} s, {run.kept:,} reused",
        cost(run),
    ]
    parts += _labels_told(run)
    if others:
        theirs = ", ".join(f"{number:,} by {judge}" for judge, number in others.items())
        parts.append(f"rows that this run did not come to: {theirs}")
    if run.gave_up:
        if total is None:
            left = "the rest"
        else:
            left = counted(total - count, "row", "rows")
        parts.append(
            f"{left} not judged, because the first {run.sent:,} that were sent failed alike"
        )
    elif run.is_spent:
        if total is None:
            left = "the rest"
        else:
            left = counted(total - count, "row", "rows")
        parts.append(f"{left} not judged, because --max-cost is reached")
    elif interrupted:
        parts.append(
            "run the same command to continue" if resumes else "with --out a run can be continued"
        )
    return "; ".join(filter(None, parts))


def _labels_told(run: DatasetRun) -> list[str]:
    """Return how many labels agree with verdicts, and how many labels were left out and why."""
    from judgekit.evaluation.labels import agreement

    agreed, compared, left_out = agreement(run.labels, run.strange_label)
    told = []
    if compared:
        told.append(f"{agreed:,} of {compared:,} labels agree ({agreed / compared:.0%})")
    if compared or left_out.unknown:
        told += [f"left out: {left_out.told()}"] if left_out.told() else []
    return told


def cost(run: DatasetRun) -> str:
    if not run.spent_usd and (run.is_local or run.unpriced):
        return "cost 0 (local)" if run.is_local else "cost unknown"
    if run.spent_usd >= 1 or not run.spent_usd:
        digits = 2
    else:
        digits = 4
    return f"{'at least ' * bool(run.unpriced)}{run.spent_usd:.{digits}f} USD"


def _how_far(run: DatasetRun, total: int | None, started: float) -> str:
    done = run.now + run.kept
    pace = run.now / max(time.monotonic() - started, 0.001)
    # A narrow terminal shows the beginning: what a person must look at stands there.
    order = sorted(run.words, key=lambda word: ((*_WORST_FIRST, word).index(word), word))
    verdicts = ", ".join(f"{run.words[word]:,} {word}" for word in order)
    if total and pace:
        left = f", {timedelta(seconds=int((total - done) / pace))} left"
    else:
        left = ""
    how_fast = f"{left}, {pace:.1f} a second"
    waiting = ""
    if run.waits_for:
        how_fast = ""
        waiting = f"; waiting for {run.waits_for}"
    if total is None:
        of = ""
    else:
        of = f"{done:,} of "
    rows = f"{of}{counted(done if total is None else total, 'row', 'rows')}"
    return f"{rows}: {verdicts or 'no verdict yet'}{how_fast}, {cost(run)}{waiting}"


@contextlib.contextmanager
def _stoppable(stopped: threading.Event) -> Iterator[None]:
    """Set `stopped` on Ctrl-C; raise `KeyboardInterrupt` two seconds later, or at the second Ctrl-C."""
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield
        return

    def interrupt() -> None:
        if hasattr(signal, "pthread_kill"):  # which ends what the main thread waits for
            signal.pthread_kill(main.ident or 0, signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(LAST_SECONDS, interrupt)
    timer.daemon = True

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        timer.start()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
