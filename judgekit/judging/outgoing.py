"""Leaves secrets out of what is judged before models are sent it, and out of records of what they replied."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final, TypeVar

from judgekit.judging.documents import Document, File, TaskDescription
from judgekit.redaction.redact import MARGIN, redact, without_secrets

if TYPE_CHECKING:
    from pydantic import BaseModel

    Record = TypeVar("Record", bound=BaseModel)

_OF_MODELS: Final = frozenset({"reasoning", "findings", "review", "rounds", "degraded"})


def redact_document(document: Document) -> tuple[Document, int]:
    """Return a document and its task without secrets, and how many they were."""
    files = [redact_file(each) for each in document.files]
    about = [redact(text) for text in astuple(document.task)]
    count = sum(secrets for _, secrets in files) + sum(each.secrets for each in about)
    task = TaskDescription(*(each.text for each in about))
    return replace(document, files=tuple(each for each, _ in files), task=task), count


def redact_file(file: File) -> tuple[File, int]:
    """Return a file without its secrets; what is known of its length goes by what is shown."""
    whole = file.text
    if len(whole) != file.total:  # it was cut as it was read: its last word may be half a secret
        start = max(len(whole) - MARGIN, 0)
        blank = max(whole.rfind(char, start) for char in " \n\t")
        whole = whole[: blank + 1 if blank >= 0 else start]
    text, secrets = redact(whole)
    path = redact(file.path)
    other = redact(file.shown)
    # Only a path with a secret has another form: what else is shown stays what was recorded.
    shown = other.text or (path.text if path.secrets else "")
    total = file.total + len(text) - len(file.text)
    return replace(
        file, text=text, total=total, shown=shown
    ), secrets + path.secrets + other.secrets


def redact_replies(record: Record) -> Record:
    """Return a record without the secrets in models' replies: they may have put one together."""
    texts = record.model_dump(by_alias=True, include=set(_OF_MODELS))
    clean = without_secrets(texts)
    if clean is texts:
        return record
    whole = record.model_dump(by_alias=True, include=set(type(record).model_fields))
    return type(record).model_validate({**whole, **clean})
