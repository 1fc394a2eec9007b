"""Leaves secrets out of text before it is sent to a model: keys, tokens and passwords become `[redacted: …]`.

Looked at is what a model will see: letters that only look like others are read as those, and what is encoded,
escaped or in pieces is read too (`judgekit.disguises`). What a secret is, `judgekit.secret_search` says.
Reasons and measurements are in docs/decisions/redaction.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from judgekit import disguises
from judgekit.lookalikes import folded
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.secret_search import Found

MARGIN: Final = 4_000
"""Characters behind a cut that are looked at too: a secret that a cut would split is seen whole."""

MARK: Final = "[redacted: "
"""How that begins which stands in the place of a secret."""

DEPTH: Final = 3
"""How often what is encoded may be encoded again."""


_PASSES: Final = 4  # what stood behind a secret may be found when that is gone


class Redacted(NamedTuple):
    """A text without its secrets, and how many they were."""

    text: str
    secrets: int


def load() -> None:
    """Make ready what secrets are found with, which the first text would wait for: a tenth of a second."""
    from judgekit import secret_search  # noqa: PLC0415 - compiles its patterns

    secret_search.load()


def redact(text: str) -> Redacted:
    """Return the visible text with each secret replaced by its kind, and how many there were.

    Lines keep their numbers. The same text always gives the same, and what is replaced is no secret again.
    """
    if not text:
        return Redacted("", 0)
    text, secrets = visible(text), 0
    for _ in range(_PASSES):
        parts, at, found = [], 0, _merged(text)
        for each in found:
            lines = text.count("\n", each.start, each.end)
            parts += [text[at : each.start], f"{MARK}{each.kind}]", "\n" * lines]
            at = each.end
        text, secrets = "".join([*parts, text[at:]]), secrets + len(found)
        if not found:
            break
    return Redacted(text, secrets)


def passage(whole: str, part: str) -> Redacted:
    """Return a passage of `whole`, its blanks made single, without the secrets of the whole text.

    A passage may begin or end within a secret, which it then no longer shows the form of.
    """
    whole = visible(whole)
    count, edges = 0, (part.startswith("…"), part.endswith("…"))
    core = visible(part).strip("…")
    for each in _merged(whole):
        value = " ".join(whole[each.start : each.end].split())
        label = f"{MARK}{each.kind}]"
        before = core
        core = core.replace(value, label)
        core = _without_edges(core, value, label)
        count += core != before
    rest = redact(core)
    return Redacted(f"{'…' * edges[0]}{rest.text}{'…' * edges[1]}", count + rest.secrets)


def _without_edges(core: str, value: str, label: str) -> str:
    for size in range(min(len(value) - 1, len(core)), 3, -1):
        if core.endswith(value[:size]):
            core = core[:-size] + label
            break
    for size in range(min(len(value) - 1, len(core)), 3, -1):
        if core.startswith(value[-size:]):
            return label + core[size:]
    return core


def _merged(text: str) -> list[Found]:
    """Return what was found in order, each place once: where two overlap, the first names the kind."""
    merged: list[Found] = []
    for each in sorted(_find(text), key=lambda found: (found.start, -found.end)):
        if merged and each.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = last._replace(end=max(last.end, each.end))
        else:
            merged.append(each)
    return merged


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return what JSON can hold with the secrets in its texts left out; the same where there are none."""
    texts = "\n\n".join(_texts(value))
    return _clean(value) if redact(texts).secrets else value


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _clean(value: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value


def _find(text: str, depth: int = DEPTH) -> Iterator[Found]:
    """Yield the secrets in a text and in what it says encoded; in what that says encoded, and so on."""
    from judgekit import secret_search  # noqa: PLC0415 - compiles its patterns

    read = folded(text)
    if "\0" in read:
        yield from _within(disguises.without(read, "\0"), depth)
        return
    yield from secret_search.find(read)
    for view in disguises.views(read) if depth else ():
        yield from _within(view, depth - 1)


def _within(view: disguises.View, depth: int) -> Iterator[Found]:
    for each in _find(view.text, depth):
        start, end = view.span(each.start, each.end)
        yield each._replace(start=start, end=end)
