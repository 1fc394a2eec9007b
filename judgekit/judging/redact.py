"""Leaves secrets out of text before it is sent to a model: keys, tokens and passwords become `[redacted: …]`.

Looked at is what a model will see: letters that only look like others are read as those, and what is encoded,
escaped or in pieces is read too (`judgekit.judging.disguises`). `judgekit.judging.secret_search` says what a
secret is. Reasons and measurements are in docs/decisions/redaction.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from judgekit.judging import disguises
from judgekit.judging.documents import PROMPT_CHARS, TURN_CHARS, Task
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import BaseModel

    from judgekit.judging.documents import Document, File
    from judgekit.judging.prompt import PromptCandidate
    from judgekit.judging.secret_search import SecretMatch

    Record = TypeVar("Record", bound=BaseModel)


MARGIN: Final = 4_000
"""Characters behind a cut that are looked at too: a secret that a cut would split is seen whole."""

MARK: Final = "[redacted: "
"""How that begins which stands in the place of a secret."""

DEPTH: Final = 3
"""How often what is encoded may be encoded again."""

_PASSES: Final = 4  # what stood behind a secret may be found when that is gone
_OF_MODELS: Final = frozenset({"reasoning", "findings", "rounds", "degraded"})


class Redacted(NamedTuple):
    """A text without its secrets, and how many they were."""

    text: str
    secrets: int


def load() -> None:
    """Make ready what secrets are found with, which the first text would wait for: a tenth of a second."""
    from judgekit.judging import secret_search  # noqa: PLC0415 - compiles its patterns

    secret_search.load()


def redact(text: str) -> Redacted:
    """Return the visible text with each secret replaced by its kind, and how many there were.

    Lines keep their numbers. The same text always gives the same, and what is replaced is no secret again.
    """
    if not text:
        return Redacted("", 0)
    text, secrets = visible(text), 0
    for _ in range(_PASSES):
        parts, at, matches = [], 0, _merged(text)
        for start, end, kind in matches:
            parts += [text[at:start], f"{MARK}{kind}]", "\n" * text.count("\n", start, end)]
            at = end
        text, secrets = "".join([*parts, text[at:]]), secrets + len(matches)
        if not matches:
            break
    return Redacted(text, secrets)


def passage(whole: str, part: str) -> Redacted:
    """Return a passage of `whole`, its blanks made single, without the secrets of the whole text.

    A passage may begin or end within a secret, which it then no longer shows the form of.
    """
    whole = visible(whole)
    count, edges = 0, (part.startswith("…"), part.endswith("…"))
    core = visible(part).strip("…")
    for start, end, kind in _merged(whole):
        value, label, before = " ".join(whole[start:end].split()), f"{MARK}{kind}]", core
        core = core.replace(value, label)
        sizes = range(min(len(value) - 1, len(core)), 3, -1)
        if size := next((size for size in sizes if core.endswith(value[:size])), 0):
            core = core[:-size] + label
        sizes = range(min(len(value) - 1, len(core)), 3, -1)
        if size := next((size for size in sizes if core.startswith(value[-size:])), 0):
            core = label + core[size:]
        count += core != before
    rest = redact(core)
    return Redacted(f"{'…' * edges[0]}{rest.text}{'…' * edges[1]}", count + rest.secrets)


def _merged(text: str) -> list[SecretMatch]:
    """Return what was found in order, each place once: where two overlap, the first names the kind."""
    merged: list[SecretMatch] = []
    for match in sorted(_find(text), key=lambda match: (match.start, -match.end)):
        if merged and match.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, match.end))
        else:
            merged.append(match)
    return merged


def _find(text: str, depth: int = DEPTH) -> Iterator[SecretMatch]:
    """Yield the secrets in a text and in what it says encoded; in what that says encoded, and so on."""
    from judgekit.judging import secret_search  # noqa: PLC0415 - compiles its patterns

    if not text.isascii():
        text = disguises.folded(text)
    if "\0" in text:
        yield from _within(disguises.without(text, "\0"), depth)
        return
    yield from secret_search.find(text)
    for view in disguises.views(text) if depth else ():
        yield from _within(view, depth - 1)


def _within(view: disguises.View, depth: int) -> Iterator[SecretMatch]:
    for match in _find(view.text, depth):
        yield match._replace(start=view.place(match.start)[0], end=view.place(match.end - 1)[1])


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return what JSON can hold with the secrets in its texts left out; the same where there are none."""
    texts, waiting = [], [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                texts.append(text)
            case dict() as values:
                waiting += reversed(values.values())
            case list() | tuple() as values:
                waiting += reversed(values)
    return _clean(value) if redact("\n\n".join(texts)).secrets else value


def _clean(value: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value


def document(document: Document) -> tuple[Document, int]:
    """Return a document without its secrets, those in what it is for included, and how many they were."""
    files = list(map(file, document.files))
    description, acceptance = redact(document.task.description), redact(document.task.acceptance)
    task = Task(description.text, acceptance.text)
    count = sum(secrets for _, secrets in files) + description.secrets + acceptance.secrets
    return replace(document, files=tuple(each for each, _ in files), task=task), count


def file(file: File) -> tuple[File, int]:
    """Return a file without its secrets; what is known of its length goes by what is shown."""
    whole = file.text
    if len(whole) != file.total:  # it was cut as it was read: its last word may be half a secret
        start = max(len(whole) - MARGIN, 0)
        blank = max(whole.rfind(char, start) for char in " \n\t")
        whole = whole[: blank + 1 if blank >= 0 else start]
    text, secrets = redact(whole)
    path = redact(file.path)
    # Only a path with a secret has another form: what else is shown stays what was recorded.
    shown = path.text if path.secrets else file.shown
    total = file.total + len(text) - len(file.text)
    return replace(file, text=text, total=total, shown=shown), secrets + path.secrets


def shown(candidate: PromptCandidate) -> PromptCandidate:
    """Return a candidate without its secrets."""
    title, category, text = (
        redact(each).text for each in (candidate.title, candidate.category, candidate.text)
    )
    tags = tuple(redact(tag).text for tag in candidate.tags)
    return replace(candidate, title=title, category=category, tags=tags, text=text)


def request(text: str) -> str:
    """Return a request without its secrets; of a long one only what is shown of it, and a little more."""
    return redact(text[: PROMPT_CHARS + MARGIN]).text


def turns(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the turns of a conversation without their secrets."""
    return tuple(redact(turn[: 4 * TURN_CHARS + MARGIN]).text for turn in texts)


def left_out(*texts: str) -> int:
    """Return how many secrets were left out of texts, by what stands in their place."""
    return sum(text.count(MARK) for text in texts)


def words(text: str) -> str:
    """Return a short text without secrets: what a model said, or what it was asked."""
    return redact(text).text


def replies(record: Record) -> Record:
    """Return a record without the secrets in what models said: they may have put one together."""
    said = record.model_dump(by_alias=True, include=set(_OF_MODELS))
    clean = without_secrets(said)
    if clean is said:
        return record
    whole = record.model_dump(by_alias=True, include=set(type(record).model_fields))
    return type(record).model_validate({**whole, **clean})
