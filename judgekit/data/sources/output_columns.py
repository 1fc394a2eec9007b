"""Tables with a column for each model's output, as promptfoo writes them: each output is a row of its own.

`question, [model] Answer: {{question}}, Status, Score, …, [other] Answer: {{question}}, Status, Score, …`

Older versions have no column for the status, and write it before the output: `[PASS] At 23:10.`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_COLUMN_TITLE_PATTERN = re.compile(r"\[([^\]]*)\] (.*)", re.DOTALL)
_PLACEHOLDER_PATTERN = re.compile(r"\{\{ ?([^{}|]{1,200}?) ?\}\}")
# The columns that follow each output, in one version or another.
_DETAIL_COLUMNS = (
    ("Status", "Score", "Named Scores", "Grader Reason", "Comment"),
    ("Reasoning", "Grader Reason", "Comment"),
    ("Grader Reason", "Comment"),
)
_DETAILS = frozenset(name for names in _DETAIL_COLUMNS for name in names)
_STATUS_MARK_PATTERN = re.compile(r"\[(PASS|FAIL|ERROR)\] ?")
_ERROR_STATUS = "ERROR"


class Output(NamedTuple):
    """A column of outputs: its position, the columns after it, and the model and prompt in its title."""

    position: int
    end: int
    model: str
    prompt: str


class OutputColumns(NamedTuple):
    """The columns of such a table: first those of the test's variables, then those of outputs."""

    names: list[str]
    variable_count: int
    outputs: Sequence[Output]

    def unique_names(self) -> list[str]:
        """List unique column names. A column that belongs to an output gets its number, as in `2. Score`."""
        names = self.names[: self.variable_count]
        for number, output in enumerate(self.outputs, 1):
            for name in self.names[output.position : output.end]:
                names.append(f"{number}. {name}")
        return names

    def build_rows(self, cells: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield a row for each output, in the form in which promptfoo writes rows as JSON.

        There's a cell for each column.
        """
        names_and_cells = list(zip(self.names, cells, strict=True))
        variables = dict(names_and_cells[: self.variable_count])
        for output in self.outputs:
            # The columns after an output, up to the next one, have its details, such as its score.
            details = dict(names_and_cells[output.position + 1 : output.end])
            yield {
                "provider": {"id": output.model},
                "prompt": _fill_prompt(output.prompt, variables),
                "vars": variables,
                "response": {"output": _read_output(cells[output.position], details)},
                "gradingResult": details,
            }


def find_outputs(names: Sequence[str]) -> OutputColumns | None:
    """Find the output columns in a header. Returns None if the table has no such columns."""
    positions = [position for position in range(len(names)) if _has_outputs(names, position)]
    if not positions:
        return None
    ends = [*positions[1:], len(names)]  # an output's columns end at the next output
    outputs = []
    for position, end in zip(positions, ends, strict=True):
        model, prompt = _split_title(names[position])
        outputs.append(Output(position, end, model, prompt))
    variable_count = positions[0]  # all columns before the first output are variables
    return OutputColumns(list(names), variable_count, outputs)


def _has_outputs(names: Sequence[str], position: int) -> bool:
    """Whether a column contains a model's outputs. The names of the columns after it show that."""
    if names[position] in _DETAILS:
        return False
    next_names = tuple(names[position + 1 :])
    return any(next_names[: len(details)] == details for details in _DETAIL_COLUMNS)


def _split_title(title: str) -> tuple[str, str]:
    """Split an output column's title into model and prompt. Without a model, the title is the prompt."""
    match = _COLUMN_TITLE_PATTERN.fullmatch(title)
    if match is None:
        return "", title
    model, prompt = match.groups()
    return model, prompt


def _read_output(cell: str, details: Mapping[str, str]) -> str | None:
    """Read a model's output without its status. Returns None if the status is an error."""
    status = details.get("Status")
    if status is None:  # older versions have it in brackets before the output
        mark = _STATUS_MARK_PATTERN.match(cell)
        if mark:
            status = mark[1]
            cell = cell[mark.end() :]
    return None if status == _ERROR_STATUS else cell


def _fill_prompt(prompt: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Fill a prompt's template with a test's variables, and return it as promptfoo's JSON does."""
    # A prompt without holes couldn't use the variables, so the header has just the prompt's name.
    is_only_name = bool(variables) and "{{" not in prompt
    if is_only_name:
        return {"label": prompt}

    def fill_hole(hole: re.Match[str]) -> str:
        """Return the variable that a hole names. A hole with another name stays as it is."""
        return variables.get(hole[1], hole[0])

    return {"label": prompt, "raw": _PLACEHOLDER_PATTERN.sub(fill_hole, prompt)}
