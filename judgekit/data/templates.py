"""Templates for a task's description, filled by each row: `Question: {question}` and `Customer: {tier}`."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ESCAPES = {r"\n": "\n", r"\t": "\t"}  # shells don't replace these


class Part(NamedTuple):
    """A piece of a template: words, and the column that follows them, "" for none."""

    words: str
    column: str


class Template(NamedTuple):
    """Words with columns, or paths into them, in braces; a literal brace is written twice."""

    parts: Sequence[Part]

    @property
    def columns(self) -> list[str]:
        return [part.column for part in self.parts if part.column]

    def fill(self, read: Callable[[str], str]) -> str:
        """Fill the template. `read` returns the text for a column."""
        text = ""
        for template_part in self.parts:
            text += template_part.words
            if template_part.column:
                # Indent all lines but the first, so that none of them looks like a line of the template.
                text += read(template_part.column).strip().replace("\n", "\n  ")
        return text


def parse_template(text: str) -> Template:
    """Parse a template. Raises `UsageError` if it's invalid or has no columns."""
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)

    try:
        template = Template(_parse_parts(text))
    except ValueError as error:
        problem = f"expected columns between {{ and }}, such as {{question}} ({error})"
        raise UsageError(f"--template: {problem}; write {{{{ for a brace") from None

    if not template.columns:
        raise UsageError("--template: expected a column in braces, such as 'Question: {question}'")
    return template


def _parse_parts(text: str) -> list[Part]:
    """Split a template into its parts.

    Raises `UsageError` for empty braces, and `ValueError` for braces that don't match.
    """
    template_parts = []
    for words, name, format_spec, conversion in string.Formatter().parse(text):
        if name is None:  # no braces follow the words
            template_parts.append(Part(words, column=""))
            continue
        column = _join_column(name, conversion, format_spec)
        if not column:
            raise UsageError("--template: expected a column between { and }, got nothing")
        template_parts.append(Part(words, column))
    return template_parts


def _join_column(name: str, conversion: str | None, format_spec: str | None) -> str:
    """Join a column's name, which Python has split at `!` and `:`, because the name can contain these."""
    column = name
    if conversion:
        column += f"!{conversion}"
    if format_spec:
        column += f":{format_spec}"
    return column
