"""What changed between two rubrics, key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.rubric.schema import Rubric


class Difference(NamedTuple):
    """A key that differs: what stood there and what stands there now, None where nothing does."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        """Return it in one line."""
        if self.before is None:
            return f"{self.key}: new, {_short(self.after)}"
        if self.after is None:
            return f"{self.key}: removed, was {_short(self.before)}"
        if isinstance(self.before, list) and isinstance(self.after, list):
            return f"{self.key}: {_of_lists(self.before, self.after)}"
        return f"{self.key}: {_short(self.before)} -> {_short(self.after)}"


def changes(before: Rubric, after: Rubric) -> list[Difference]:
    """Return every key in which two rubrics differ, in the order of the file."""
    return list(_changes("", before.model_dump(), after.model_dump()))


def _changes(key: str, before: Any, after: Any) -> Iterator[Difference]:  # noqa: ANN401 - any value of a data file
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _changes(f"{key}.{name}" if key else str(name), before.get(name), after.get(name))
    elif before != after:
        yield Difference(key, before, after)


def _of_lists(before: list[Any], after: list[Any]) -> str:
    gone = [each for each in before if each not in after]
    new = [each for each in after if each not in before]
    told = [f"without {_short(each)}" for each in gone] + [f"with {_short(each)}" for each in new]
    return "; ".join(told) or "in another order"


def _short(value: object) -> str:
    """Return a value in words, all of it: texts are what a rubric is made of."""
    if isinstance(value, dict):
        inner = ", ".join(
            f"{name} {_short(each)}" for name, each in value.items() if each not in (None, [], "")
        )
        return f"({inner})"
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else repr(value) if isinstance(value, str) else str(value)
