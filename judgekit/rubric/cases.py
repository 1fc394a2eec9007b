"""Labelled cases beside a rubric: what it should say about known examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from judgekit.config.names import Outcome, Text
from judgekit.config.problems import problem_in
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.rubric.loader import LoadedRubric


class ScoreLabels(Strict):
    """The right outcome in each mode."""

    strict: Outcome
    lenient: Outcome


class ScoreCase(Strict):
    """A document and what it deserves.

    `path` is the name that models see, one that tells nothing. `files` holds what is judged together with
    the text, by path: further artefacts, or its sources where the rubric takes them.
    """

    id: Text
    text: Text
    why: Text
    label: ScoreLabels
    path: Text = "text"
    files: dict[Text, Text] = {}
    description: str = ""
    acceptance: str = ""


class CaseCandidate(Strict):
    """A candidate of a case."""

    id: Text
    title: Text
    category: str = ""
    tags: list[Text] = []
    text: str = ""


class SelectLabels(Strict):
    """The ids to keep in each mode."""

    strict: list[Text]
    lenient: list[Text]


class SelectCase(Strict):
    """A request, its candidates, and which of them should be kept."""

    id: Text
    query: Text
    candidates: list[CaseCandidate] = Field(min_length=1)
    why: Text
    label: SelectLabels

    @model_validator(mode="after")
    def _labels_name_candidates(self) -> SelectCase:
        known = {candidate.id for candidate in self.candidates}
        unknown = {*self.label.strict, *self.label.lenient} - known
        if unknown:
            raise ValueError(
                f"the label names {', '.join(sorted(unknown))}, which is no candidate of this case"
            )
        return self


Better: TypeAlias = Literal["A", "B", "tie"]


class CompareLabels(Strict):
    """Which of the two is better, in each mode."""

    strict: Better
    lenient: Better


class CompareCase(Strict):
    """Two texts that answer one prompt, and which is better."""

    id: Text
    prompt: Text
    a: Text
    b: Text
    why: Text
    label: CompareLabels


Case: TypeAlias = ScoreCase | SelectCase | CompareCase

_BY_TASK: dict[str, type[Case]] = {"score": ScoreCase, "select": SelectCase, "compare": CompareCase}


def cases_path(rubric_path: Path) -> Path:
    """Return where the cases of a rubric file stand: `NAME.cases.jsonl` beside `NAME.yaml`."""
    return rubric_path.with_name(f"{rubric_path.stem}.cases.jsonl")


def read_cases(loaded_rubric: LoadedRubric) -> list[Case]:
    """Return the labelled cases beside a rubric, none when there is no such file.

    Raises `ConfigError` naming the line and the key.
    """
    path = cases_path(loaded_rubric.path)
    if not path.is_file():
        return []
    adapter: TypeAdapter[Case] = TypeAdapter(_BY_TASK[loaded_rubric.rubric.task])
    cases: list[Case] = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            cases.append(adapter.validate_json(line))
        except ValidationError as error:
            wrong = problem_in(line, error)
            raise ConfigError(wrong.text, path=path, line=number, key=wrong.key) from None
    return cases


def _lines(path: Path) -> list[str]:
    try:
        return lines_of(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None
