"""A run over a dataset: what is refused before any model is asked, which rows are judged now, when it ends.

A `Runner` judges the rows: in this process, in the engine, or wherever else documents can be judged.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field, fields
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.data import fields as row_fields
from judgekit.data import seals
from judgekit.data.results import Ids, Results, result
from judgekit.data.sources import DataRow, UnreadableRow
from judgekit.data.values import NoJsonValueError, plain_row
from judgekit.engine import answers, client
from judgekit.errors import ConfigError, FailureKind, InputError, UsageError
from judgekit.judging.documents import LETTERS, ComparisonInput, Document, TaskDescription, file_of
from judgekit.judging.round import INEXACT
from judgekit.judging.service import (
    comparison_judge,
    document_judge,
    max_concurrency,
    results,
)
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.rubric.schema import Given, ScoreRubric

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.data.fields import Fields, JudgeTurn, TaskName
    from judgekit.data.rows import Rows
    from judgekit.data.seals import Fingerprint
    from judgekit.judging.compare import PairJudge
    from judgekit.judging.ranking import RankingJudge
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.score import DocumentJudge
    from judgekit.providers.base import Gateway
    from judgekit.rubric.loader import LoadedRubric

    Record: TypeAlias = Mapping[str, Any]
    Expected: TypeAlias = Callable[[DataRow], tuple[str, str] | None]
    Reader: TypeAlias = Callable[[DataRow, str], Document | ComparisonInput]
    OnRecord: TypeAlias = Callable[["PendingRow", Record | None], object]
    # Judges rows as they come, and hands on the record of each as it is complete.
    Runner: TypeAlias = Callable[[Iterable["PendingRow"], OnRecord], None]

_ID_CHARS = 1000
HOPELESS = 20  # rows that are sent: where all of them are refused, the others would be, too
_REFUSALS = {
    FailureKind.AUTHENTICATION,
    FailureKind.PERMISSION,
    FailureKind.NOT_FOUND,
    FailureKind.NOT_LOADED,
}
_LOOKED_AT = 100  # rows whose columns count where fields are guessed; of a stream the first


NOTHING = seals.Fingerprint(current="")


class PendingRow(NamedTuple):
    """A row on its way: what is judged, or why it cannot be."""

    row: DataRow
    row_id: str | int
    fingerprint: Fingerprint
    subject: Document | ComparisonInput | None
    error: str | None = None


def unreadable(name: str, first: UnreadableRow, more: int) -> InputError:
    if first.number:
        where = f"row {first.number:,}"
    else:
        where = "the header"
    where += f", column {first.column}" if first.column else ""
    if more:
        others = f" ({more:,} more row{'s' * (more > 1)} cannot be read)"
    else:
        others = ""
    return InputError(f"{name}: {where}: {first.problem}{others}")


def double(row_id: str | int, number: int, earlier: int, column: str) -> UnreadableRow:
    why = f"row {earlier:,} has the same id {row_id!r:.80}; give each row its own"
    return UnreadableRow(number, column, why)


def columns(rows: Rows | Mappings) -> tuple[Iterable[DataRow | UnreadableRow], list[str]]:
    """Return the rows, and the columns of the first ones; raises `InputError` where none can be read."""
    stream = iter(rows)
    head = list(islice(stream, _LOOKED_AT if rows.lasting else 1))
    if not head:
        raise InputError(f"{rows.name}: no rows; nothing to judge")
    if not any(isinstance(row, DataRow) for row in head):
        bad = [row for row in chain(head, stream) if isinstance(row, UnreadableRow)]
        raise unreadable(rows.name, bad[0], len(bad) - 1)
    names = dict.fromkeys(name for row in head if isinstance(row, DataRow) for name in row.columns)
    return rows if rows.lasting else chain(head, stream), list(names)


class Mappings:
    """Rows that a program gives."""

    name = "rows"
    lasting = False

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Raise `InputError` for a row of a list that cannot be read: nothing was asked yet."""
        self._rows = rows
        if isinstance(rows, list | tuple):
            for row in self:
                if isinstance(row, UnreadableRow):
                    raise unreadable(self.name, row, 0)

    def __iter__(self) -> Iterator[DataRow | UnreadableRow]:
        for number, columns in enumerate(self._rows, 1):
            if not isinstance(columns, Mapping):
                problem = f"expected a mapping of columns, got {type(columns).__name__}"
                yield UnreadableRow(number, "", problem)
                continue
            try:
                yield DataRow(number, plain_row(columns))
            except NoJsonValueError as error:
                yield UnreadableRow(number, "", str(error))


@dataclass(frozen=True)
class Dataset:
    """Rows, and what each gives; `basis` is what fingerprints hold beside a row's content.

    `read` turns a row into what is judged under a name: it raises `FieldError` and `Unjudgeable`. A row with
    a cell of the wrong type is unreadable, or where that is `bearable` a row with an error. `ids` makes what
    finds an id that two rows have.
    """

    rows: Iterable[DataRow | UnreadableRow]
    name: str
    read: Reader
    basis: str
    id_column: str | None = None
    limit: int | None = None
    bearable: bool = False
    ids: Callable[[], Ids] = Ids

    def __iter__(self) -> Iterator[PendingRow | UnreadableRow]:
        with closing(self.ids()) as ids:
            for row in islice(self.rows, self.limit):
                found = row if isinstance(row, UnreadableRow) else self._asked(row, ids)
                if isinstance(found, UnreadableRow) and isinstance(row, DataRow) and self.bearable:
                    found = PendingRow(
                        row, row.number, NOTHING, None, f"{found.column}: {found.problem}"
                    )
                yield found

    def _asked(self, row: DataRow, ids: Ids) -> PendingRow | UnreadableRow:
        column = self.id_column or ""
        if column:
            row_id = row.columns.get(column)
        else:
            row_id = row.number
        if isinstance(row_id, bool):
            size = 0
        else:
            size = len(str(row_id))
        if not isinstance(row_id, str | int) or not 0 < size <= _ID_CHARS:
            expected = f"expected a text of up to {_ID_CHARS:,} characters, or a number"
            return UnreadableRow(row.number, column, expected)
        if earlier := ids.add(row_id, row.number):
            return double(row_id, row.number, earlier, column)
        try:
            subject = self.read(row, str(row_id))
        except row_fields.FieldError as error:
            return UnreadableRow(row.number, error.column, error.problem)
        except row_fields.Unjudgeable as error:
            return PendingRow(row, row_id, NOTHING, None, str(error))
        fingerprint = seals.fingerprint_of(f"{self.basis}\0{row_fields.content(subject)}")
        return PendingRow(row, row_id, fingerprint, subject)

    def check(self) -> int:
        """Return how many rows there are; raises `InputError` for the first that cannot be read."""
        count = 0
        bad = 0
        first = None
        for each in self:
            count += 1
            if isinstance(each, UnreadableRow):
                first = first or each
                bad = bad + 1
        if first:
            raise unreadable(self.name, first, bad - 1)
        return count


@dataclass
class Tally:
    """What has become of rows: verdicts, those judged `now` and those `kept`, and what that cost.

    `failed` says why a row has no verdict, if one of the `failures` has none. `labels` counts kinds of labels
    with the verdicts of their rows, `strange_label` is one that is not understood. `unpriced` rows have calls
    of unknown cost. Of the rows that were `sent` so many were `refused`: by the key, a permission, or because
    there is no such model; `refusal` says which.
    """

    words: Counter[str] = field(default_factory=Counter)
    now: int = 0
    kept: int = 0
    spent_usd: float = 0.0
    unpriced: int = 0
    is_local: bool = False
    redacted: int = 0
    substitutes: set[str] = field(default_factory=set)
    labels: Counter[tuple[str, str]] = field(default_factory=Counter)
    strange_label: str = ""
    failed: str = ""
    failures: int = 0
    sent: int = 0
    refused: int = 0
    refusal: str = ""

    @property
    def is_hopeless(self) -> bool:
        """Whether the first rows that were sent were all refused, so that the others would be, too."""
        return self.refused >= HOPELESS and self.refused == self.sent

    def add(self, other: Tally) -> None:
        for each in fields(Tally):
            ours = getattr(self, each.name)
            theirs = getattr(other, each.name)
            if isinstance(ours, Counter | set):
                ours.update(theirs)
            else:
                is_sum = not isinstance(ours, str | bool)
                setattr(self, each.name, ours + theirs if is_sum else ours or theirs)

    def taken(self) -> Tally:
        """Return what has been counted since the last time."""
        found = Tally()
        found.add(self)
        for each in fields(Tally):
            setattr(self, each.name, getattr(Tally(), each.name))
        return found


@dataclass
class DatasetRun(Tally):
    """What has become of each row so far, and which are still to be judged.

    Reading ends early when `stopped` is set, or when the rows judged and at work cost `max_cost_usd`:
    `is_spent` says so. `problem` is what could not be read of a stream. `expected` returns
    the kind of a row's label, and what is not understood. `waits_for` says what the rows wait for. A run
    that cannot succeed `gave_up`.
    """

    dataset: Dataset = field(kw_only=True)
    results: Results = field(kw_only=True)
    max_cost_usd: float | None = None
    expected: Expected = lambda _: None
    stopped: threading.Event = field(default_factory=threading.Event)
    is_spent: bool = False
    problem: InputError | None = None
    waits_for: str = ""
    gave_up: bool = False
    _at_work: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pending(self) -> Iterator[PendingRow]:
        """Yield the rows that are not kept, also those that cannot be judged."""
        bad = list[UnreadableRow]()
        for each in self.dataset:
            if self.stopped.is_set():
                return
            if isinstance(each, UnreadableRow) or bad:
                bad += [each] if isinstance(each, UnreadableRow) else []
                continue
            with self._lock:
                word = self.results.kept(each.row_id, each.fingerprint)
                if word is not None:
                    self.kept += 1
                    self._count(each.row, word)
                is_wanted = word is None and not self._spends_all()
                self._at_work += is_wanted
            if is_wanted:
                yield each
        if bad:
            self.problem = unreadable(self.dataset.name, bad[0], len(bad) - 1)

    def _spends_all(self) -> bool:
        limit = self.max_cost_usd
        priced = self.now - self.unpriced
        if limit is not None:
            mean = self.spent_usd / priced if priced else 0.0
            self.is_spent |= self.spent_usd + self._at_work * mean >= limit * (1 - INEXACT)
        return self.is_spent

    def on_record(self, asked: PendingRow, record: Record | None) -> dict[str, Any]:
        """Return the row of results that was written for a record, or for a row that cannot be judged."""
        found = result(asked.row, asked.row_id, record, asked.error, asked.fingerprint.current)
        with self._lock:
            found = self.results.add(found)
            self._at_work -= 1
            self.now += 1
            self._count(asked.row, found["verdict"])
            if found["error"] is not None:
                self.failures += 1
                if record or not self.failed:
                    self.failed = f"row {asked.row_id} has no verdict: {found['error']}"
            if record is not None:
                self.spent_usd += record["cost_usd"] or 0.0
                self.unpriced += record["cost_usd"] is None or not record["cost_complete"]
                self.is_local |= record["cost_source"] == "local"
                self.redacted += record.get("redacted") or 0
                self.substitutes.update(record.get("substitutes") or ())
                self._note_refusal(record, str(found["error"]))
            self.give_up()
        return found

    def _note_refusal(self, record: Record, error: str) -> None:
        failures = [each["failure"] for each in record["rounds"]]
        if not failures:  # nothing was sent
            return
        self.sent += 1
        if all(failure and failure["kind"] in _REFUSALS for failure in failures):
            self.refused += 1
            self.refusal = self.refusal or error

    def give_up(self) -> None:
        """End a run that cannot succeed; what was judged is kept, and a later run goes on."""
        if self.is_hopeless and not self.stopped.is_set():
            self.gave_up = True
            self.stopped.set()

    def problem_of_all(self) -> ConfigError:
        """Return why a run was given up."""
        why = f"the first {self.sent} rows that were sent failed alike: {self.refusal}"
        return ConfigError(f"stopped: {why}; mend that, and run the same again to go on")

    def _count(self, row: DataRow, word: str) -> None:
        self.words[word] += 1
        label = self.expected(row)
        if label is not None:
            kind, strange_label = label
            self.labels[kind, word] += 1
            self.strange_label = self.strange_label or strange_label


def _basis(task: TaskName, project: Path, request: JudgeRequest) -> tuple[str, LoadedRubric]:
    """Return what fingerprints hold beside content (rubrics, mode, models), and the first of the rubrics."""
    gateway = open_gateway({})
    asked = request.model_copy(update={"max_cost_usd": None, "cache": False})
    judges: list[DocumentJudge | PairJudge | RankingJudge]
    if task == "judge":
        judges = [document_judge(gateway, project, asked)[0]]
    else:  # of two texts, and of several
        if request.rubric is None:
            numbers = [2, 3]
        else:
            numbers = [2]
        texts = []
        for n in numbers:
            texts.append(ComparisonInput("", tuple(file_of(each, each) for each in LETTERS[:n])))
        judges = [comparison_judge(gateway, each, project, asked) for each in texts]
    made_of = []
    for each in judges:
        settings = each.settings
        names = [[model.model for model in models] for models in settings.models_by_tier.values()]
        made_of.append((settings.loaded.sha256, settings.mode, names))
    if request.depth:
        depth = [request.depth]
    else:
        depth = []
    return json.dumps([*made_of, *depth]), judges[0].settings.loaded


class RowOptions(NamedTuple):
    """What a caller says of rows: what gives their fields and ids, and what holds where a row says nothing.

    `given` are columns by field; what `fixed` describes is the prompt of texts to compare.
    """

    task: TaskName = "judge"
    given: Mapping[str, str] = MappingProxyType({})
    id_column: str | None = None
    fixed: TaskDescription = TaskDescription()
    families: Sequence[str | None] = ()
    judge_turn: JudgeTurn = "last"
    limit: int | None = None

    def reader(self, fields: Fields, loaded: LoadedRubric) -> Reader:
        """Return what makes a subject of a row."""
        if self.task == "compare":
            prompt = self.fixed.description
            families = self.families
            return lambda row, _: row_fields.comparison(fields, row, prompt, families)
        family = next(iter(self.families), None)
        given = _given(loaded)
        more = given, self.fixed, family, self.judge_turn
        return lambda row, row_id: row_fields.document(fields, row, row_id, *more)

    def expected(self, fields: Fields, row: DataRow) -> tuple[str, str] | None:
        """Return what kind of label a row has, and what is not understood; None in rows without labels."""
        if ("winner" if self.task == "compare" else "label") not in fields.columns:
            return None
        return row_fields.row_label(fields, row, self.task)


def dataset(
    source: Rows | Mappings, options: RowOptions, project: Path, request: JudgeRequest
) -> tuple[Dataset, Fields, list[str]]:
    """Return rows with what each gives, by which columns, and lines about what no model will see.

    Raises `InputError` where there is no row, `UsageError` for columns and rubrics that do not exist,
    `ConfigError`.
    """
    stream, names = columns(source)
    naming = row_fields.Naming(is_python=isinstance(source, Mappings))
    found = row_fields.fields_of(options.task, names, options.given, source.name, naming)
    column = options.id_column or ("id" if "id" in names else None)
    if column and column not in names:
        if naming.is_python:
            option = f"id_column={column!r}"
        else:
            option = f"--id {column}"
        raise UsageError(f"{option}: {source.name} has no such column; it has {', '.join(names)}")
    basis, loaded = _basis(options.task, project, request)
    unseen = []
    for each in ("reference", "sources"):
        if each in found.columns and not getattr(_given(loaded), each):
            unseen.append(
                f"{loaded.rubric.ref} takes no {each}: no model sees {found.columns[each]}"
            )
    read = options.reader(found, loaded)
    made = Dataset(
        stream, source.name, read, basis, column, options.limit, isinstance(source, Mappings)
    )
    return made, found, unseen if options.task == "judge" else []


def _given(loaded: LoadedRubric) -> Given:
    if isinstance(loaded.rubric, ScoreRubric):
        return loaded.rubric.given
    return Given()


def kind_of(subject: Document | ComparisonInput) -> tuple[int, int] | None:
    """Return what makes another judge necessary: of texts to compare how many there are, and are distinct."""
    if isinstance(subject, Document):
        return None
    return (len(subject.files), len(subject.distinct))


def judges(
    gateway: Gateway,
    project: Path,
    request: JudgeRequest,
    made: Callable[[Any], Any] | None = None,
) -> Callable[[Document | ComparisonInput], Any]:
    """Return what gives the judge of a subject, one for each kind, which `made` makes of the usual one."""
    known: dict[object, Any] = {}

    def judge_of(subject: Document | ComparisonInput) -> Any:  # noqa: ANN401 - one of three kinds
        kind = kind_of(subject)
        if kind not in known:
            judge: Any = None
            if isinstance(subject, Document):
                judge, _ = document_judge(gateway, project, request)
            else:
                judge = comparison_judge(gateway, subject, project, request)
            if made:
                known[kind] = made(judge)
            else:
                known[kind] = judge
        return known[kind]

    return judge_of


async def judged(
    asked: Iterable[PendingRow],
    project: Path,
    request: JudgeRequest,
    at_once: int,
    *,
    in_order: bool,
) -> AsyncGenerator[tuple[PendingRow, Record | None], None]:
    """Yield each row with its verdict's record (None where it cannot be judged), judged in this process."""
    async with aclosing(open_gateway(environment.environ())) as gateway:
        judge_of = judges(gateway, project, request)

        async def judge(each: PendingRow) -> Record | None:
            if not each.subject:
                return None
            judgement = await judge_of(each.subject).judge(each.subject)
            record: Record = judgement.record()
            return record

        head: list[PendingRow] = []
        rest = iter(asked)
        for each in rest:
            head.append(each)
            if each.subject is not None:
                break
        if head:
            subject = head[-1].subject
        else:
            subject = None
        if subject:
            most = max_concurrency(judge_of(subject), at_once)
        else:
            most = at_once
        stream = results(chain(head, rest), judge, most, in_order=in_order)
        async with aclosing(stream):
            async for found in stream:
                yield found


async def judged_rows(
    rows: Iterable[Mapping[str, Any]],
    options: RowOptions,
    project: Path,
    request: JudgeRequest,
    at_once: int,
    *,
    in_order: bool,
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield a row of results for each of `rows`, judged in this process, until the cost limit is reached.

    Raises `InputError` for a row that is no mapping, and as `dataset` does.
    """
    made, _, _ = dataset(Mappings(rows), options, project, request)
    nowhere = Results(lambda _: None)
    run = DatasetRun(dataset=made, results=nowhere, max_cost_usd=request.max_cost_usd)
    async with aclosing(
        judged(run.pending(), project, request, at_once, in_order=in_order)
    ) as found:
        async for asked, record in found:
            yield run.on_record(asked, record)
    if run.gave_up:
        raise run.problem_of_all()
    if run.problem:
        raise run.problem


def here(project: Path, request: JudgeRequest, at_once: int) -> Runner:
    """Return what judges rows in this process."""

    def runner(asked: Iterable[PendingRow], on_record: OnRecord) -> None:
        async def run() -> None:
            async with aclosing(judged(asked, project, request, at_once, in_order=False)) as stream:
                async for each, record in stream:
                    on_record(each, record)

        running.run(run())

    return runner


def by_engine(
    task: TaskName,
    project: Path,
    request: JudgeRequest,
    at_once: int,
    warn: Callable[[str], None],
) -> Runner:
    """Return what has the engine judge rows, and judges in this process those that are left."""
    thing = "document" if task == "judge" else "comparison"

    def runner(asked: Iterable[PendingRow], on_record: OnRecord) -> None:
        carried = client.carried(str(project))
        shared = json.dumps({**carried, "wish": request.model_dump()}).removesuffix("}")

        def body(each: PendingRow) -> bytes:
            return f'{shared}, "{thing}": {json.dumps(each.subject and each.subject.body())}}}'.encode()

        def judgeable() -> Iterator[PendingRow]:
            for each in asked:
                if each.subject is None:
                    on_record(each, None)
                else:
                    yield each

        locally = here(project, request, at_once)
        answers.many(
            task, judgeable(), body, locally, on_record, at_once=at_once, warn=warn, in_order=False
        )

    return runner
