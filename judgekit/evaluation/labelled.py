"""Labelled cases with what judges said about them, if it is recorded: a JSONL file, one case a line.

    {"id": "a", "text": "…", "label": "accept", "judges": {"quick": {"model": "…", "reply": "…"}}}
    {"id": "b", "path": "docs/b.md", "label": {"strict": "improve", "lenient": "accept"}}
    {"id": "c", "query": "…", "candidates": [{"id": "m1", "title": "…"}], "label": ["m1"]}
    {"id": "d", "prompt": "…", "a": "…", "b": "…", "label": "A", "judges": {"quick": {"orders": {"AB": "A"}}}}
    {"id": "f", "prompt": "…", "subjects": ["…", "…", "…"], "label": "B"}
    {"id": "e", "label": "2", "judges": {"gpt": {"choice": "1"}}, "variant": "swapped", "pair": "d0"}

`label` is the right outcome, the ids to keep, which of two or more is best, or any word, or that by mode.
Under `judges` stands, for each judge, one of `reply` (raw; read as the judge would), `scores`, `keep`
(candidates in `unjudged` aside) or `probabilities` (by candidate; of two texts the shares of replies that
prefer "A" and "B"), `orders` (of two texts, what was said in each order),
`points` (of several subjects, what each was given, by letter: a mean of dimensions each time it was asked),
`choice` (any word), `jury` (what several models said) or `failure`. `pair` names the case of which this one
is a variant.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field, PrivateAttr, StringConstraints, ValidationError, model_validator

from judgekit.config.yamlfile import Strict, problem_in
from judgekit.errors import InputError
from judgekit.judging.logprobs import ScoreSource
from judgekit.judging.verdict import LETTERS
from judgekit.rubric.schema import Better, CaseCandidate
from judgekit.text import lines_of, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.config.names import ModeName
    from judgekit.config.yamlfile import Problem

Variant: TypeAlias = Literal["original", "swapped", "rerun", "injected"]
Word: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Label: TypeAlias = Word | list[Word]

# What a label is in a case that has this key; in any other it is that of a document.
_LABELS = {"candidates": "a list of ids of its candidates", "subjects": "A, B, … or tie", "b": "A, B or tie"}
_SAID = ("reply", "scores", "keep", "probabilities", "orders", "points", "choice", "jury", "failure")


_ANSWERED: Final = ("invalid_reply", "refusal", "truncated")  # failures of a model that did answer


class Recorded(Strict):
    """What one judge said about one case; `labels` maps those in a raw reply to ids of candidates.

    `samples` and `criteria` say how it was asked, as the configuration has it; `rule` how a jury comes to
    one opinion, `family` who trained a model of it. `read` says how the answer was read, as a calibration
    does; without `redact` secrets were sent with the texts.
    """

    model: str = ""
    family: str = ""
    reply: str | None = None
    labels: dict[str, str] = {}
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

    @model_validator(mode="after")
    def _said_once(self) -> Recorded:
        said = [name for name in _SAID if getattr(self, name) is not None]
        if len(said) != 1:
            raise ValueError(f"expected one of {', '.join(_SAID)}, got {', '.join(said) or 'none'}")
        return self

    @property
    def unanswered(self) -> str | None:
        """The failure because of which no model answered; None where one did, readable or not."""
        if self.jury is not None:
            failures = [recorded.unanswered for recorded in self.jury]
            return failures[0] if all(failures) else None
        return None if self.failure in _ANSWERED else self.failure


class ByMode(Strict):
    """The right answer in each mode."""

    strict: Label
    lenient: Label


class Case(Strict):
    """A subject, what is right about it, and what judges said.

    A document is a `text` or a `path`, with further `files` by path, and what it was written for; `a` and
    `b` are two texts that answer a `prompt`, `subjects` two or more that are scored, called A, B, C, ….
    """

    id: Word
    text: str | None = None
    path: str | None = None
    files: dict[Word, str] = {}
    description: str = ""
    acceptance: str = ""
    prompt: str = ""
    a: str = ""
    b: str = ""
    subjects: Annotated[list[Word], Field(max_length=len(LETTERS))] = []
    query: str = ""
    candidates: list[CaseCandidate] = []
    why: str = ""
    label: Label | ByMode
    judges: dict[str, Recorded] = {}
    variant: Variant = "original"
    pair: str = ""
    _place: str = PrivateAttr(default="")

    @property
    def where(self) -> str:
        """The file and line that it stands in, where there are such, and its id: for errors."""
        return f"{self.place}: case {self.id}" if self.place else f"case {self.id}"

    @property
    def place(self) -> str:
        """The file and line that it stands in; "" of a case that was read from no file."""
        return self._place

    def right(self, mode: ModeName) -> Label:
        """Return the label for a mode."""
        return getattr(self.label, mode) if isinstance(self.label, ByMode) else self.label


def read(path: Path) -> list[Case]:
    """Return the cases of a file; raises `InputError` naming file, line and key."""
    try:
        lines = lines_of(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        told = f"{path}: cannot be read ({error.strerror}); name a JSONL file of labelled cases"
        raise InputError(told) from None
    found: dict[str, Case] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        case = _case(path, number, line)
        if case.id in found:
            raise InputError(f"{path}:{number}: id: {case.id!r} stands there twice; expected each id once")
        found[case.id] = case
    if not found:
        raise InputError(f"{path}: empty; expected one labelled case a line")
    for case in found.values():
        if told := _misplaced(case, found):
            raise InputError(f"{case.place}: {told}")
    return list(found.values())


def _misplaced(case: Case, others: Mapping[str, Case]) -> str:
    """Return what is wrong with the case that another is a variant of, if anything is."""
    if case.variant == "original":
        return "variant: expected swapped, rerun or injected beside a pair" if case.pair else ""
    if not case.pair:
        return "pair: expected the id of the case that this is a variant of"
    if case.pair not in others:
        return f"pair: {case.pair!r} is no case of this file; expected the id of one"
    if others[case.pair].variant != "original":
        return f"pair: {case.pair!r} is a variant itself; name its original"
    return ""


def sha256(path: Path) -> str:
    """Return the hash of the file as it stands."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _case(path: Path, number: int, line: str) -> Case:
    try:
        case = Case.model_validate_json(line)
    except ValidationError as error:
        raise InputError(f"{path}:{number}: {_told(problem_in(line, error), line)}") from None
    case._place = f"{path}:{number}"  # noqa: SLF001 - private to models: no key of the file
    if told := _wrong(case):
        raise InputError(f"{case.place}: {told}")
    return case


_SHOWN = 60  # characters of a wrong label


def _told(problem: Problem, line: str) -> str:
    """Say what is wrong with a line; of a label what it can be."""
    if problem.location[:1] != ("label",) or not problem.text.startswith("expected"):
        return str(problem)
    given = one_line(json.dumps(json.loads(line)["label"], ensure_ascii=False), _SHOWN)
    words = next((words for key, words in _LABELS.items() if f'"{key}"' in line), "accept, improve or reject")
    return f"{problem.key} must be {words}; got {given}"


def _wrong(case: Case) -> str:
    """Return what is wrong with the texts of a pair, if anything is."""
    modes = (case.label.strict, case.label.lenient) if isinstance(case.label, ByMode) else (case.label,)
    if case.a and case.a == case.b and set(map(str, modes)) & {"A", "B"}:
        return "a and b are the same text, and that is always a tie; mend one"
    return ""
