"""Results and labels as files: what a report reads, and the sample of rows that people label."""

from __future__ import annotations

import csv
import hashlib
import heapq
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import outputs
from judgekit.data import fields, tables
from judgekit.data.results import OURS, Ids
from judgekit.data.rows import DELIMITERS, DataRow, Rows, UnreadableRow, open_rows
from judgekit.data.runs import columns, unreadable
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.cases import Case
from judgekit.evaluation.stats import UNDECIDED
from judgekit.judging.documents import TASK_ROLES
from judgekit.judging.verdict import TIE
from judgekit.rubric.schema import Given
from judgekit.text import as_before, defused, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_EVERYTHING = Given(reference="reference", sources="sources")  # the rubric says later what models see
_WORDS = "expected accept, improve, reject, pass, fail or undetermined (of a comparison: A, B or tie)"


class ResultRow(NamedTuple):
    """A row of results: `scores` by dimension, or by letter where texts were compared."""

    row_id: str
    word: str
    scores: Mapping[str, float]
    columns: Mapping[str, Any]

    @property
    def own(self) -> dict[str, Any]:
        """The columns that the row had before it was judged."""
        ours = {*OURS, *(f"score.{name}" for name in self.scores)}
        return {name: value for name, value in self.columns.items() if name not in ours}


def results(rows: Rows) -> Iterator[ResultRow]:
    """Yield the rows of a file of results; raises `InputError` for a row without an id and a verdict."""
    ids = Ids()
    for row, row_id, given in _answers(rows, "verdict"):
        word, where = given if given in UNDECIDED else _word(given), f"{rows.name}: row {row.number}"
        if not word:
            raise InputError(f"{where}: unknown verdict {one_line(given, 40)!r}; {_WORDS}")
        if (first := ids.add(row_id, row.number)) is not None:
            raise InputError(f"{where}: duplicate id {row_id!r} (row {first}); keep one")
        yield ResultRow(row_id, word, dict(_scores(row.columns)), row.columns)


def read_labels(rows: Rows) -> dict[str, str]:
    """Return labels by id; rows whose label is empty are left out. Raises `InputError`."""
    found: dict[str, str] = {}
    for row, row_id, given in _answers(rows, "label"):
        word = _word(given)
        if given and not word:
            wanted = "label must be accept, improve or reject (of a comparison: A, B or tie)"
            raise InputError(f"{rows.name}: row {row.number}: {wanted}; got {one_line(given, 40)!r}")
        if word and found.setdefault(row_id, word) != word:
            raise InputError(f"{rows.name}: row {row.number}: two labels for the id {row_id!r}; keep one")
    return found


def labelled_cases(rows: Rows) -> list[Case]:
    """Return rows with a label, an outcome or a number, as cases to try judges on; raises `InputError`."""
    found, names = columns(rows)
    fields_ = fields.fields_of("judge", names, {}, rows.name)
    column, cases = fields_.columns.get("label"), dict[str, Case]()
    if column is None:
        raise InputError(f"{rows.name}: expected a column label; it has {', '.join(names)}")
    for row in found:
        if isinstance(row, UnreadableRow):
            raise unreadable(rows.name, row, 0)
        if _is_table(rows):
            row = _without_defusing(row)  # noqa: PLW2901 - the row as it was
        row_id, given = str(row.columns.get("id") or row.number), row.columns.get(column)
        if given is None or not str(given).strip():  # not labelled yet
            continue
        label, where = fields.label(given) or number(given), f"{rows.name}: row {row.number}"
        if label is None:
            wanted = "label must be accept, improve, reject or a number"
            raise InputError(f"{where}: {wanted}; got {one_line(str(given), 40)!r}")
        try:
            document = fields.document(fields_, row, row_id, _EVERYTHING)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if row_id in cases:
            raise InputError(f"{where}: duplicate id {row_id!r}; keep one")
        first, *others = document.files
        about = {role: getattr(document.task, role) for role in TASK_ROLES}
        files = {each.path: each.text for each in others}
        cases[row_id] = Case(id=row_id, text=first.text, files=files, label=label, **about)
    if len({type(case.label) for case in cases.values()}) > 1:
        raise InputError(f"{rows.name}: some labels are words and some are numbers; use one kind")
    return list(cases.values())


def _answers(rows: Rows, name: str) -> Iterator[tuple[DataRow, str, str]]:
    for written in rows:
        if isinstance(written, UnreadableRow):
            raise unreadable(rows.name, written, 0)
        row = _without_defusing(written) if _is_table(rows) else written
        if row.columns.get("id") in (None, "") or name not in row.columns:
            wanted = f"expected the columns id and {name}; in CSV with commas between them"
            raise InputError(f"{rows.name}: row {row.number}: {wanted}")
        given = row.columns[name]
        yield row, str(row.columns["id"]), "" if given is None else str(given).strip()


def _is_table(rows: Rows) -> bool:
    return Path(rows.name).suffix.lower() in DELIMITERS


def _without_defusing(row: DataRow) -> DataRow:
    """Return a row of CSV that we wrote, with the texts that it was made of."""
    cells = {as_before(name): as_before(cell) for name, cell in row.columns.items()}
    return row._replace(columns=cells)


def _word(given: str) -> str:
    """Return the outcome, the letter or the tie that a person or a program means; "" for anything else."""
    is_letter = len(given) == 1 and "A" <= given <= "Z"
    return fields.label(given) or (given if is_letter or given == TIE else "")


def _scores(columns: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    flat = {name[6:]: value for name, value in columns.items() if name.startswith("score.")}
    for name, value in {**flat, **(nested(columns.get("scores")) or {})}.items():
        if (score := number(value)) is not None:
            yield name, score


def nested(value: object) -> dict[str, Any] | None:
    """Return an object, which in CSV and Parquet is JSON."""
    value = fields.parsed(value) if isinstance(value, str) and value.startswith("{") else value
    return value if isinstance(value, dict) else None


def number(value: object) -> float | None:
    try:
        found = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def add_sample(found: Iterable[ResultRow], path: str, count: int) -> tuple[int, int]:
    """Add a random sample of decided rows to a file, for people to write their labels into it.

    Rows are in the order of a hash of their ids, so the first ones are a random sample, however many. The
    file keeps what it has. Returns how many rows were added, and how many it has now; raises `InputError`.
    """
    target, delimiter = Path(path), DELIMITERS.get(Path(path).suffix.lower())
    if delimiter is None and target.suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"{path}: unknown ending of a file of labels; expected .csv, .tsv or .jsonl")
    there = target.exists()
    known = {row_id for _, row_id, _ in _answers(open_rows(path, io.BytesIO()), "label")} if there else set()
    free = (each for each in found if each.word not in UNDECIDED and each.row_id not in known)
    drawn = heapq.nsmallest(count, free, key=lambda each: hashlib.sha256(each.row_id.encode()).digest())
    # A person labels without the verdict: only what the row had before it was judged is shown.
    rows = [dict.fromkeys(("id", "label")) | each.own | {"id": each.row_id, "label": ""} for each in drawn]
    old = target.read_bytes().decode("utf-8-sig") if there else ""
    text = io.StringIO(old + "\n" * (bool(old) and not old.endswith("\n")), newline="")
    names = next(csv.reader(io.StringIO(old), delimiter=delimiter or ","), [])
    names = list(map(as_before, names)) or list(dict.fromkeys(name for row in rows for name in row))
    text.seek(0, io.SEEK_END)
    if delimiter is None:
        text.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    else:
        writer = csv.writer(text, delimiter=delimiter)
        if not old:
            writer.writerow(map(defused, names))
        for row in rows:
            writer.writerow([tables.cell_of(row.get(name)) for name in names])
    try:
        outputs.write_atomically(path, text.getvalue(), mode=outputs.PRIVATE, durable=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another --labels") from None
    return len(rows), len(known) + len(rows)
