"""Labelled cases with the answers of judges, if these are recorded: a JSONL file, one case a line.

    {"id": "a", "text": "…", "label": "accept", "judges": {"quick": {"model": "…", "reply": "…"}}}
    {"id": "b", "path": "docs/b.md", "label": {"strict": "improve", "lenient": "accept"}}
    {"id": "c", "query": "…", "candidates": [{"id": "m1", "title": "…"}], "label": ["m1"]}
    {"id": "d", "prompt": "…", "a": "…", "b": "…", "label": "A", "judges": {"quick": {"orders": {"AB": "A"}}}}
    {"id": "f", "prompt": "…", "subjects": ["…", "…", "…"], "label": "B"}
    {"id": "e", "label": "2", "judges": {"gpt": {"choice": "1"}}, "variant": "swapped", "pair": "d0"}

`label` is the right outcome, the ids to keep, which of two or more is best, or any word, or that by mode.
Under `judges` stands, for each judge, one of `reply` (raw; read as the judge would), `scores`, `keep`
(candidates in `unjudged` aside) or `probabilities` (by candidate; of two texts the shares of replies that
prefer "A" and "B"), `orders` (of two texts, the answer in each order),
`points` (of several subjects, what each was given, by letter: a mean of dimensions each time it was asked),
`choice` (any word), `jury` (the answers of several models) or `failure`. `pair` names the case of which this
one is a variant. The cases beside a rubric are such cases, too.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, PrivateAttr, StringConstraints, ValidationError, model_validator

from judgekit.config.yamlfile import Strict, problem_in
from judgekit.errors import InputError
from judgekit.judging import fingerprint
from judgekit.judging.documents import LETTERS
from judgekit.judging.logprobs import ScoreSource
from judgekit.providers import registry
from judgekit.rubric.schema import Better, CaseCandidate
from judgekit.text import lines_of, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.config import ModeName
    from judgekit.providers.base import Endpoint

Variant: TypeAlias = Literal["original", "swapped", "rerun", "injected"]
Word: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Label: TypeAlias = Word | list[Word]

# What a label is in a case that has this key; in any other it is that of a document.
_LABELS = {"candidates": "a list of ids of its candidates", "subjects": "A, B, … or tie", "b": "A, B or tie"}
_ANSWERS = ("reply", "scores", "keep", "probabilities", "orders", "points", "choice", "jury", "failure")
_ANSWERED = ("invalid_reply", "refusal", "truncated")  # failures of a model that did answer
_SHOWN = 60  # characters of a wrong label


class Recorded(Strict):
    """A judge's answer about one case; `labels` maps those in a raw reply to ids of candidates.

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
    def _has_one_answer(self) -> Recorded:
        answers = [name for name in _ANSWERS if getattr(self, name) is not None]
        if len(answers) != 1:
            raise ValueError(f"expected one of {', '.join(_ANSWERS)}, got {', '.join(answers) or 'none'}")
        return self

    @property
    def jurors(self) -> list[Recorded]:
        """The answers of the models: those of a jury, else this one."""
        return self.jury or [self]

    @property
    def name(self) -> str:
        """The model, or those of a jury as one name."""
        return fingerprint.TOGETHER.join(juror.model for juror in self.jurors) if self.jury else self.model

    @property
    def endpoint(self) -> Endpoint:
        """The model as one that could be asked."""
        return fingerprint.recorded(self.model, self.family or registry.UNKNOWN_FAMILY)

    @property
    def unanswered(self) -> str | None:
        """The failure because of which no model answered; None where one did, readable or not."""
        if self.jury is not None:
            failures = [juror.unanswered for juror in self.jury]
            return failures[0] if all(failures) else None
        return None if self.failure in _ANSWERED else self.failure


class ByMode(Strict):
    """The right answer in each mode."""

    strict: Label
    lenient: Label


class Case(Strict):
    """A subject, what is right about it, and what judges answered.

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
        return f"{self._place}: case {self.id}" if self._place else f"case {self.id}"

    @property
    def letters(self) -> str:
        """The names of its subjects."""
        return LETTERS[: len(self.subjects)]

    def right(self, mode: ModeName) -> Label:
        return getattr(self.label, mode) if isinstance(self.label, ByMode) else self.label

    @classmethod
    def read(cls, line: str, place: str) -> Case:
        """Return the case that a line holds; raises `InputError`."""
        try:
            case = cls.model_validate_json(line)
        except ValidationError as error:
            problem = problem_in(line, error)
            wrong = str(problem)
            if problem.location[:1] == ("label",) and problem.text.startswith("expected"):
                label = one_line(json.dumps(json.loads(line)["label"], ensure_ascii=False), _SHOWN)
                known = (words for key, words in _LABELS.items() if f'"{key}"' in line)
                wrong = f"{problem.key} must be {next(known, 'accept, improve or reject')}; got {label}"
            raise InputError(f"{place}: {wrong}") from None
        case._place = place  # noqa: SLF001 - private to models: no key of the file
        labels = {str(case.right("strict")), str(case.right("lenient"))}
        if case.a and case.a == case.b and labels & {"A", "B"}:
            raise InputError(f"{place}: a and b are the same text, which is always a tie; change one")
        return case

    def check_variant(self, others: Mapping[str, Case]) -> None:
        """Raise `InputError` where the case that this one is a variant of is missing."""
        if self.variant == "original":
            wrong = "variant: expected swapped, rerun or injected, together with pair" if self.pair else ""
        elif not self.pair:
            wrong = "pair: expected the id of the case that this is a variant of"
        elif self.pair not in others:
            wrong = f"pair: {self.pair!r} is no case of this file; expected the id of one"
        elif others[self.pair].variant != "original":
            wrong = f"pair: {self.pair!r} is a variant itself; name its original"
        else:
            wrong = ""
        if wrong:
            raise InputError(f"{self._place}: {wrong}")


def read(path: Path) -> list[Case]:
    """Return the cases of a file; raises `InputError` naming file, line and key."""
    try:
        lines = lines_of(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        problem = f"{path}: cannot be read ({error.strerror}); name a JSONL file of labelled cases"
        raise InputError(problem) from None
    found: dict[str, Case] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            case = Case.read(line, f"{path}:{number}")
            if case.id in found:
                raise InputError(f"{path}:{number}: id: {case.id!r} is there twice; expected each id once")
            found[case.id] = case
    if not found:
        raise InputError(f"{path}: empty; expected one labelled case a line")
    for case in found.values():
        case.check_variant(found)
    return list(found.values())


def sha256(path: Path) -> str:
    """Return the hash of the file as it stands."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
