"""What leaves the machine: subjects as models may see them, secrets left out before any text is cut.

Every judge passes what it is given through here first. Paths, hashes and ids stay, for they name the subject;
models are shown paths without secrets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from judgekit.prompt import PROMPT_CHARS, TURN_CHARS
from judgekit.redaction import MARGIN, MARK, redact, without_secrets
from judgekit.subject import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.comparison import Comparison
    from judgekit.judging.contest import Contest
    from judgekit.judging.manner import Manner
    from judgekit.judging.subject import Document, File
    from judgekit.prompt import Shown
    from judgekit.verdict import Verdict

    Said = TypeVar("Said", Verdict, Comparison)


def document(given: Document) -> tuple[Document, int]:
    """Return a document without its secrets, those in what it is for included, and how many they were."""
    files = [_file(each) for each in given.files]
    description, acceptance = redact(given.task.description), redact(given.task.acceptance)
    task = Task(description.text, acceptance.text)
    count = sum(secrets for _, secrets in files) + description.secrets + acceptance.secrets
    return replace(given, files=tuple(each for each, _ in files), task=task), count


def _file(given: File) -> tuple[File, int]:
    """Return a file without its secrets; what is known of its length goes by what is shown."""
    text, secrets = redact(_without_half_a_word(given))
    path = redact(given.path)
    # Only a path with a secret has another form: what else is shown stays what was recorded.
    shown = path.text if path.secrets else given.shown
    total = given.total + len(text) - len(given.text)
    return replace(given, text=text, total=total, shown=shown), secrets + path.secrets


def contest(given: Contest, manner: Manner) -> tuple[Contest, int]:
    """Return what is compared, in the usual manner without secrets, and how many were left out."""
    if not manner.redact:
        return given, 0
    prompt, files = redact(given.prompt), [_file(each) for each in given.files]
    count = prompt.secrets + sum(secrets for _, secrets in files)
    return replace(given, prompt=prompt.text, files=tuple(each for each, _ in files)), count


def shown(given: Shown) -> Shown:
    """Return a candidate without its secrets."""
    tags = tuple(redact(tag).text for tag in given.tags)
    text = redact(given.text).text
    return replace(
        given, title=redact(given.title).text, category=redact(given.category).text, tags=tags, text=text
    )


def request(text: str) -> str:
    """Return a request without its secrets; of a long one only what is shown of it, and a little more."""
    return redact(text[: PROMPT_CHARS + MARGIN]).text


def turns(given: Sequence[str]) -> tuple[str, ...]:
    """Return the turns of a conversation without their secrets."""
    return tuple(redact(turn[: 4 * TURN_CHARS + MARGIN]).text for turn in given)


def left_out(*texts: str) -> int:
    """Return how many secrets were left out of texts, by what stands in their place."""
    return sum(text.count(MARK) for text in texts)


def words(text: str) -> str:
    """Return a short text without secrets: what a model said, or what it was asked."""
    return redact(text).text


_OF_MODELS: Final = frozenset({"reasoning", "findings", "rounds", "degraded"})


def replies(record: Said) -> Said:
    """Return a record without the secrets in what models said: they may have put one together."""
    said = record.model_dump(by_alias=True, include=set(_OF_MODELS))
    clean = without_secrets(said)
    if clean is said:
        return record
    whole = record.model_dump(by_alias=True, include=set(type(record).model_fields))
    return type(record).model_validate({**whole, **clean})


def _without_half_a_word(given: File) -> str:
    """Return the text; of one that was cut as it was read without the last word, half a secret perhaps."""
    if len(given.text) == given.total:
        return given.text
    start = max(len(given.text) - MARGIN, 0)
    blank = max(given.text.rfind(each, start) for each in " \n\t")
    return given.text[: blank + 1 if blank >= 0 else start]
