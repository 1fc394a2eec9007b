"""Labelled data: files of cases for judges, and collections that grade documents for queries.

docs/calibrate.md describes a file of cases (JSON Lines), also the format of the cases beside a rubric.
docs/eval.md describes a collection, laid out as in BEIR (Thakur and others, 2021).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from judgekit.config.yamlfile import Strict, explain_json_error
from judgekit.errors import InputError
from judgekit.evaluation import labels
from judgekit.judging.calibration import MODEL_SEPARATOR
from judgekit.judging.documents import LETTERS
from judgekit.judging.score_source import ScoreSource
from judgekit.providers.registry import UNKNOWN_FAMILY
from judgekit.providers.replay import build_recorded_model
from judgekit.rubric.schema import Better, ByMode, CaseCandidate
from judgekit.text import RepeatedKeyError, refuse_repeated_keys, shorten_to_line, split_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from judgekit.config import ModeName, TierName
    from judgekit.providers.base import Endpoint

Variant: TypeAlias = Literal["original", "swapped", "rerun", "injected"]
Word: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Label: TypeAlias = str | list[Word]
Score: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]

# The labels allowed in a case with this key; other cases take a document's labels.
_LABELS_BY_CASE_KEY = {
    "candidates": "a list of ids of its candidates",
    "subjects": "A, B, … or tie",
    "b": "A, B or tie",
}
_DOCUMENT_LABELS = "accept, improve, reject or a number"
_ANSWER_FIELDS = (
    "reply",
    "scores",
    "keep",
    "probabilities",
    "orders",
    "points",
    "choice",
    "jury",
    "failure",
)
# Failures of a model that did answer.
_FAILURES_WITH_ANSWER = (
    "invalid_reply",
    "refusal",
    "truncated",
)
_MAX_LABEL_CHARS = 60  # characters quoted of a wrong value

ALL_TIERS = "course"  # as a judge: the joint result of all tiers and the rules of escalation


class Recorded(Strict):
    """A judge's answer about a case, the way it was asked for, and the way it was `read`."""

    model: str = ""
    answered: str | None = None
    family: str = ""
    reply: str | None = None
    scores: dict[str, float] | None = None
    keep: list[str] | None = None
    unjudged: list[str] = []
    probabilities: dict[str, Annotated[float, Field(ge=0, le=1)]] | None = None
    orders: dict[Literal["AB", "BA"], Better | None] | None = None
    points: dict[str, list[float]] | None = None
    choice: Word | None = None
    jury: Annotated[list[Recorded], Field(min_length=1)] | None = None
    rule: Literal["mean", "majority"] = "mean"
    failure: str | None = None
    cut: bool = False
    samples: int = 1
    criteria: Literal["together", "each"] = "together"
    read: ScoreSource | None = None
    redact: bool = True
    calls: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    latency_ms: int | None = None

    @model_validator(mode="after")
    def _check_one_answer(self) -> Recorded:
        """Check that exactly one of the fields for an answer is set, such as `scores` or `failure`."""
        answers = [name for name in _ANSWER_FIELDS if getattr(self, name) is not None]
        if len(answers) != 1:
            got = ", ".join(answers) or "none"
            raise ValueError(f"expected one of {', '.join(_ANSWER_FIELDS)}, got {got}")
        return self

    @property
    def jurors(self) -> list[Recorded]:
        return self.jury or [self]

    @property
    def name(self) -> str:
        return MODEL_SEPARATOR.join(juror.model for juror in self.jurors)

    @property
    def endpoint(self) -> Endpoint:
        return build_recorded_model(self.model, self.family or UNKNOWN_FAMILY)

    @property
    def unanswered(self) -> str | None:
        """The first model's failure, or None if any model answered. Unreadable answers count, too."""
        for juror in self.jurors:
            is_readable = not juror.failure
            is_unreadable = juror.failure in _FAILURES_WITH_ANSWER
            if is_readable or is_unreadable:
                return None
        return self.jurors[0].failure


class Case(Strict):
    """A document, texts `a` and `b`, `subjects` or `candidates`, with the right answer and the judges'."""

    id: Word
    text: str | None = None
    path: str | None = None
    files: dict[Word, str] = {}
    description: str = ""
    acceptance: str = ""
    reference: str = ""
    prompt: str = ""
    a: str = ""
    b: str = ""
    subjects: Annotated[list[Word], Field(max_length=len(LETTERS))] = []
    query: str = ""
    candidates: list[CaseCandidate] = []
    why: str = ""
    label: Label | ByMode[Label] | Score | None
    judges: dict[str, Recorded] = {}
    variant: Variant = "original"
    pair: str = ""
    _place: str = PrivateAttr(default="")

    @field_validator("id", mode="before")
    @classmethod
    def _convert_number(cls, value: object) -> object:
        """Accept a number as an id, and convert it to text."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number:
            # `read_id` converts 17.0 to 17.
            return str(labels.read_id(value))
        return value

    @field_validator("label", mode="before")
    @classmethod
    def _convert_boolean(cls, value: object) -> object:
        """Convert JSON's true and false to text, because they're labels, too."""
        if isinstance(value, bool):
            return str(value).lower()
        return value

    @classmethod
    def of_row(cls, place: str, **values: object) -> Case:
        """Build a case from a row's values. `place` is the row's position, for error messages."""
        case = cls.model_validate(values)
        case._place = place  # noqa: SLF001 - private instead of a field, so that files can't set it
        return case

    def label_error(self) -> InputError:
        """Build the error for a label that isn't understood. It lists the allowed labels."""
        expected = self._find_allowed_labels()
        got = self._format_label()
        return InputError(f"{self._place}: label must be {expected}; got {got}")

    def _find_allowed_labels(self) -> str:
        """Find the description of the labels that are allowed for this kind of case."""
        # The fields that have values show what kind of case this is.
        for key, wording in _LABELS_BY_CASE_KEY.items():
            if getattr(self, key):
                return wording
        return _DOCUMENT_LABELS

    def _format_label(self) -> str:
        """Format the label for an error message."""
        if isinstance(self.label, float):
            return f"{self.label:g}"
        if isinstance(self.label, str):
            return repr(shorten_to_line(self.label, _MAX_LABEL_CHARS))
        return shorten_to_line(str(self.label), _MAX_LABEL_CHARS)

    def build_error(self, text: str) -> InputError:
        place = f"{self._place}: " if self._place else ""
        return InputError(f"{place}case {self.id}: {text}")

    def with_judges(self, judges: Mapping[str, Recorded] | Mapping[TierName, Recorded]) -> Case:
        return self.model_copy(update={"judges": {**self.judges, **judges}})

    def collect_texts(self, candidate: str | None = None) -> dict[str, str]:
        """Collect the case's texts for a person to read, by heading.

        If `candidate` is the id of a search result, the answer is this result's title and text. Empty texts
        are omitted.
        """
        texts = {
            "question": self.description or self.prompt or self.query,
            "must fulfil": self.acceptance,
            "answer": self.text or "",
            "A": self.a,
            "B": self.b,
            "expected": self.reference,
            "why this label": self.why,
        }
        for case_candidate in self.candidates:
            if case_candidate.id == candidate:
                texts["answer"] = f"{case_candidate.title}\n{case_candidate.text}".strip()
        return {name: text for name, text in texts.items() if text.strip()}

    @property
    def letters(self) -> str:
        return LETTERS[: len(self.subjects)]

    @property
    def score(self) -> float | None:
        """A person's score, if the label is a number."""
        return self.label if isinstance(self.label, float) else None

    def get_label(self, mode: ModeName) -> Label | float | None:
        if not isinstance(self.label, ByMode):
            return self.label
        label: Label | float | None = getattr(self.label, mode)
        return label

    @classmethod
    def read(cls, line: str, place: str) -> Case:
        """Parse a case from a line of JSON. `place` is the line's position, for error messages.

        Raises `InputError` if the line is invalid.
        """
        # Look for repeated keys first, because the validation would silently use the last value.
        _refuse_repeated_keys(line, place)
        try:
            case = cls.model_validate_json(line)
        except ValidationError as error:
            raise InputError(f"{place}: {_describe_problem(line, error)}") from None

        case._place = place  # noqa: SLF001 - private instead of a field, so that files can't set it
        _refuse_winner_of_same_texts(case, place)
        return case


def _refuse_repeated_keys(line: str, place: str) -> None:
    """Raise `InputError` if a key is repeated in a line of JSON."""
    try:
        json.loads(line, object_pairs_hook=refuse_repeated_keys)
    except RepeatedKeyError as error:
        raise InputError(f"{place}: {error}; keep one") from None
    except (ValueError, RecursionError):
        pass  # The validation explains malformed JSON better.


def _describe_problem(line: str, error: ValidationError) -> str:
    """Describe why a line is invalid. If it's because of the label, list the allowed labels."""
    problem = explain_json_error(line, error)
    is_in_label = problem.location[:1] == ("label",)
    # Only messages about a wrong value start like this, not those about a missing or unknown key.
    is_wrong_value = problem.text.startswith("expected")
    if not (is_in_label and is_wrong_value):
        return str(problem)

    allowed_labels = _guess_allowed_labels(line)
    # The line is valid JSON, because otherwise the problem wouldn't be in its label.
    label = json.dumps(json.loads(line)["label"], ensure_ascii=False)
    return f"{problem.key} must be {allowed_labels}; got {shorten_to_line(label, _MAX_LABEL_CHARS)}"


def _guess_allowed_labels(line: str) -> str:
    """Describe the labels that are probably allowed in an invalid line."""
    # An invalid line can't be parsed to a case. The keys in its text still show what kind of case was meant.
    for key, wording in _LABELS_BY_CASE_KEY.items():
        if f'"{key}"' in line:
            return wording
    return "accept, improve or reject"


def _refuse_winner_of_same_texts(case: Case, place: str) -> None:
    """Raise `InputError` if both texts are the same, but the label names a winner."""
    has_same_texts = bool(case.a) and case.a == case.b
    if not has_same_texts:
        return
    winners = (
        labels.find_winner(case.get_label("strict")),
        labels.find_winner(case.get_label("lenient")),
    )
    if "A" in winners or "B" in winners:
        raise InputError(f"{place}: a and b are the same text, which is always a tie; change one")


def read_cases(path: Path) -> list[Case]:
    """Read the cases in a file. Raises `InputError`, which names the file, line and key."""
    cases = _read_items(path, "name a JSONL file of labelled cases", "labelled case", Case.read)
    original_ids = {case.id for case in cases if case.variant == "original"}
    for case in cases:
        _check_pair(case, original_ids)
    return cases


def _check_pair(case: Case, original_ids: set[str]) -> None:
    """Raise `InputError` unless `pair` is an original case's id in a variant, and empty in an original."""
    if case.variant == "original":
        if case.pair:
            raise case.build_error(
                "variant: expected swapped, rerun or injected, together with pair"
            )
    elif case.pair not in original_ids:
        raise case.build_error(
            f"pair: expected the id of an original case of this file, got {case.pair!r}"
        )


def read_lines(path: Path, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield (`path:number`, line) for each line that isn't blank.

    Raises `InputError` if the file can't be read or isn't UTF-8. If it can't be read, the message ends with
    `wanted`, which tells the user what file to give.
    """
    try:
        content = path.read_bytes()
        for number, line in enumerate(split_lines(content.decode("utf-8-sig")), 1):
            if line.strip():
                yield f"{path}:{number}", line
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{number}: not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {wanted}") from None


# --- Collections

CORPUS_FILE = "corpus.jsonl"
QUERIES_FILE = "queries.jsonl"
QRELS_FILE = "qrels.tsv"
QRELS_HEADER = ("query-id", "corpus-id", "score")
_EXPECTED_COLUMNS = f"{' '.join(QRELS_HEADER)}, separated by tabs"
_EXPECTED_FILES = f"expected a folder with {CORPUS_FILE}, {QUERIES_FILE} and {QRELS_FILE}"
_WHOLE_NUMBER_PATTERN = re.compile(r"\s*[+-]?\d+\s*\Z", re.ASCII)
_MAX_GRADE_CHARS = 9  # people grade from 0 to some hundreds, and sums of gains must stay numbers


class CollectionQuery(BaseModel, frozen=True):
    id: Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\t\n\r]+$")]
    text: str

    @classmethod
    def read(cls, line: str, place: str) -> Self:
        try:
            return cls.model_validate_json(line)
        except ValidationError as error:
            raise InputError(f"{place}: {explain_json_error(line, error)}") from None


class CollectionDocument(CollectionQuery):
    title: str = ""


Item = TypeVar("Item", Case, CollectionQuery, CollectionDocument)


class Collection(NamedTuple):
    """`grades` by query and document, 1 or more if relevant; `stray_count` of them name missing ids."""

    name: str
    documents: list[CollectionDocument]
    queries: list[CollectionQuery]
    grades: dict[str, dict[str, int]]
    stray_count: int


def read_collection(folder: Path, *, scoped: bool = False) -> Collection:
    """Read the collection of documents, queries and grades in a folder.

    If `scoped`, every id must start with a scope, as in `SCOPE/NAME`. Raises `InputError` if a file can't be
    read or is invalid.
    """
    documents = _read_items(
        folder / CORPUS_FILE, _EXPECTED_FILES, "JSON object", CollectionDocument.read
    )
    queries = _read_items(
        folder / QUERIES_FILE, _EXPECTED_FILES, "JSON object", CollectionQuery.read
    )
    grades = _read_grades(folder / QRELS_FILE)
    if scoped:
        _check_scopes(folder / CORPUS_FILE, documents)
        _check_scopes(folder / QUERIES_FILE, queries)

    stray_count = _count_strays(grades, documents, queries)
    return Collection(folder.resolve().name, documents, queries, grades, stray_count)


def _read_items(
    path: Path, remedy: str, item_kind: str, read: Callable[[str, str], Item]
) -> list[Item]:
    """Read one item from each line of a file.

    Raises `InputError` if an id is repeated, or if the file is unreadable or empty. The message contains
    `remedy` for an unreadable file, and `item_kind` for an empty one.
    """
    items = {}  # by id
    for place, line in read_lines(path, remedy):
        item = read(line, place)
        if item.id in items:
            raise InputError(f"{place}: id: {item.id!r} is there twice; expected each id once")
        items[item.id] = item
    if not items:
        raise InputError(f"{path}: empty; expected one {item_kind} a line")
    return list(items.values())


def _read_grades(path: Path) -> dict[str, dict[str, int]]:
    """Read a file of grades. Returns them by query id and document id.

    Raises `InputError` if the file can't be read or is invalid.
    """
    rows = read_lines(path, _EXPECTED_FILES)  # pairs of a place, such as `FILE:1`, and a line
    header_place, header = next(rows, (f"{path}:1", ""))
    if tuple(header.split("\t")) != QRELS_HEADER:
        raise InputError(f"{header_place}: expected the header {_EXPECTED_COLUMNS}")

    grades: dict[str, dict[str, int]] = {}
    for place, line in rows:
        query_id, document_id, grade = _parse_grade(line, place)
        document_grades = grades.setdefault(query_id, {})
        if document_id in document_grades:
            raise InputError(
                f"{place}: {query_id} {document_id}: is there twice; expected each pair once"
            )
        document_grades[document_id] = grade

    if not grades:
        raise InputError(
            f"{path}: no judgements; expected a line {' '.join(QRELS_HEADER)} for each"
        )
    return grades


def _parse_grade(line: str, place: str) -> tuple[str, str, int]:
    """Parse a line to a query id, a document id and a grade. Raises `InputError` if it's invalid."""
    fields = line.split("\t")
    if len(fields) != len(QRELS_HEADER):
        raise InputError(f"{place}: expected {_EXPECTED_COLUMNS}, got {len(fields)} fields")

    query_id, document_id, grade = fields
    is_short = len(grade) <= _MAX_GRADE_CHARS
    is_whole_number = _WHOLE_NUMBER_PATTERN.match(grade) is not None
    if is_short and is_whole_number:
        return query_id, document_id, int(grade)
    shown_grade = shorten_to_line(repr(grade), _MAX_LABEL_CHARS)
    expected = f"a whole number of at most {_MAX_GRADE_CHARS} characters"
    raise InputError(f"{place}: score: expected {expected}, got {shown_grade}")


def _check_scopes(path: Path, items: Iterable[CollectionQuery]) -> None:
    """Raise `InputError` for an id that isn't `SCOPE/NAME`."""
    for item in items:
        _, _, name = item.id.partition("/")
        if not name:
            problem = f"{path}: id: expected SCOPE/NAME, got {item.id!r}"
            remedy = "leave out --scope-prefix to search all documents for every query"
            raise InputError(f"{problem}; {remedy}")


def _count_strays(
    grades: Mapping[str, Mapping[str, int]],
    documents: Iterable[CollectionDocument],
    queries: Iterable[CollectionQuery],
) -> int:
    """Count the grades for queries or documents that the collection doesn't contain."""
    document_ids = {document.id for document in documents}
    query_ids = {query.id for query in queries}
    stray_count = 0
    for query_id, document_grades in grades.items():
        for document_id in document_grades:
            is_in_collection = query_id in query_ids and document_id in document_ids
            if not is_in_collection:
                stray_count += 1
    return stray_count
