"""A test collection: documents, queries, and which document people found relevant to which query.

The layout of BEIR (Thakur and others, 2021) in one folder: `corpus.jsonl` (`id`, `title`, `text`),
`queries.jsonl` (`id`, `text`) and `qrels.tsv` (`query-id`, `corpus-id`, `score`, tabs, with that header).
Other keys of a line are left alone. Rankings are written in TREC's run format, which trec_eval and ir-
measures read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from judgekit.config.yamlfile import problem_in
from judgekit.environment import __version__
from judgekit.errors import InputError, UsageError
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels.tsv"
HEADER = ("query-id", "corpus-id", "score")
_WHOLE = re.compile(r"\s*[+-]?\d+\s*\Z", re.ASCII)
_DIGITS = 9  # people grade from 0 to some hundreds; sums of gains must stay numbers
_SHOWN = 60  # characters of a wrong value

Id = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\t\n\r]+$")]


class CollectionQuery(BaseModel):
    """What somebody looked for."""

    model_config = ConfigDict(frozen=True)

    id: Id
    text: str


class CollectionDocument(CollectionQuery):
    """What can be found."""

    title: str = ""


Item = TypeVar("Item", bound=CollectionQuery)


class Collection(NamedTuple):
    """`grades` holds, by query, the judged documents; a grade of 1 or more is relevant.

    Of the judgements, `strays` name a query or a document that is not there.
    """

    name: str
    documents: list[CollectionDocument]
    queries: list[CollectionQuery]
    grades: dict[str, dict[str, int]]
    strays: int


def read(folder: Path) -> Collection:
    """Return the collection in a folder; raises `InputError` naming file, line and key."""
    documents = _items(folder / CORPUS, CollectionDocument)
    queries = _items(folder / QUERIES, CollectionQuery)
    grades = _grades(folder / QRELS)
    known, asked = {document.id for document in documents}, {query.id for query in queries}
    strays = sum(query not in asked or each not in known for query, of in grades.items() for each in of)
    return Collection(folder.resolve().name, documents, queries, grades, strays)


def scope(name: str) -> str:
    """Return the part of an id before its first `/`."""
    return name.partition("/")[0]


def check_scopes(folder: Path, collection: Collection) -> None:
    """Raise `InputError` for the first id that names no scope."""
    items = [(CORPUS, document.id) for document in collection.documents]
    items += [(QUERIES, query.id) for query in collection.queries]
    for name, wrong in items:
        if not wrong.partition("/")[2]:
            raise InputError(
                f"{folder / name}: id: expected SCOPE/NAME, got {wrong!r}; leave out --scope-prefix to search"
                " all documents for every query"
            )


def _items(path: Path, kind: type[Item]) -> list[Item]:
    found: dict[str, Item] = {}
    for number, line in _lines(path):
        try:
            item = kind.model_validate_json(line)
        except ValidationError as error:
            raise _wrong(path, number, str(problem_in(line, error))) from None
        if item.id in found:
            raise _wrong(path, number, f"id: {item.id!r} is there twice; expected each id once")
        found[item.id] = item
    if not found:
        raise InputError(f"{path}: empty; expected one JSON object a line")
    return list(found.values())


def _grades(path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    lines = _lines(path)
    begins, first = next(lines, (1, ""))
    if tuple(first.split("\t")) != HEADER:
        raise _wrong(path, begins, f"expected the header {' '.join(HEADER)}, separated by tabs")
    for number, line in lines:
        fields = line.split("\t")
        if len(fields) != len(HEADER):
            expected = f"expected {' '.join(HEADER)}, separated by tabs"
            raise _wrong(path, number, f"{expected}, got {len(fields)} fields")
        query, document, score = fields
        if len(score) > _DIGITS or not _WHOLE.match(score):
            expected = f"score: expected a whole number of at most {_DIGITS} characters"
            raise _wrong(path, number, f"{expected}, got {one_line(repr(score), _SHOWN)}")
        if document in found.setdefault(query, {}):
            raise _wrong(path, number, f"{query} {document}: is there twice; expected each pair once")
        found[query][document] = int(score)
    if not found:
        raise InputError(f"{path}: no judgements; expected a line {' '.join(HEADER)} for each")
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, numbered from 1; raises `InputError`."""
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                text = line.rstrip("\r\n")
                if text.strip():
                    yield number, text
    except UnicodeDecodeError:
        raise _wrong(path, number + 1, "not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        wanted = f"expected a folder with {CORPUS}, {QUERIES} and {QRELS}"
        raise InputError(f"{path}: cannot be read ({error.strerror}); {wanted}") from None


def _wrong(path: Path, number: int, problem: str) -> InputError:
    return InputError(f"{path}:{number}: {problem}")


TAG = f"judgekit-{__version__}"


def check(path: Path, names: Iterable[str]) -> None:
    """Raise `UsageError` when `path` cannot be written, `InputError` when an id does not fit the format."""
    wrong = next((name for name in names if name.split() != [name]), None)
    if wrong is not None:
        raise InputError(f"id {wrong!r}: a TREC run cannot hold ids with spaces; rename it")
    try:
        path.open("ab").close()
    except OSError as error:
        raise _unwritable(path, error) from None


def write(path: Path, rankings: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Write each query's ranking, a line `query Q0 document rank score tag` for each document.

    The score counts down to 1. Programs that read runs order by score and break ties in ways of their
    own, some after rounding to 32 bits; whole numbers keep the order that was measured. A query that found
    nothing has no line, which `trec_eval -c` counts as 0. Raises `UsageError`.
    """
    try:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for query, ranking in rankings:
                for rank, document in enumerate(ranking, 1):
                    file.write(f"{query} Q0 {document} {rank} {len(ranking) - rank + 1} {TAG}\n")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written ({error.strerror}); name another file for --run")
