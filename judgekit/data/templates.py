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
        """Fill the template with the text that `read` returns for each column.

        Further lines of a text are indented, so that none of them can pass for a line of the template.
        """
        text = ""
        for template_part in self.parts:
            text += template_part.words
            if template_part.column:
                text += read(template_part.column).strip().replace("\n", "\n  ")
        return text


def parse_template(text: str) -> Template:
    """Parse a template; raises `UsageError` if it can't be filled, or has nothing to fill."""
    for escape, sign in _ESCAPES.items():
        text = text.replace(escape, sign)
    template_parts = []
    try:
        for words, name, form, conversion in string.Formatter().parse(text):
            # For Python, `!` and `:` end a name, but they may belong to a column's name.
            column = name or ""
            if conversion:
                column += f"!{conversion}"
            if form:
                column += f":{form}"
            has_braces = name is not None
            if has_braces and not column:
                raise UsageError("--template: expected a column between { and }, got nothing")
            template_parts.append(Part(words, column))
    except ValueError as error:
        problem = f"expected columns between {{ and }}, such as {{question}} ({error})"
        raise UsageError(f"--template: {problem}; write {{{{ for a brace") from None
    template = Template(template_parts)
    if not template.columns:
        raise UsageError("--template: expected a column in braces, such as 'Question: {question}'")
    return template
