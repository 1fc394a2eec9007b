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
    files = []
    secrets = 0
    for file in document.files:
        redacted_file, secrets_of_file = redact_file(file)
        files.append(redacted_file)
        secrets += secrets_of_file
    texts = []
    for text in astuple(document.task):
        redacted = redact(text)
        texts.append(redacted.text)
        secrets += redacted.secrets
    return replace(document, files=tuple(files), task=TaskDescription(*texts)), secrets


def redact_file(file: File) -> tuple[File, int]:
    """Return a file without its secrets; what is known of its length goes by what is shown."""
    whole = file.text
    if len(whole) != file.total:  # it was cut as it was read: its last word may be half a secret
        start = max(len(whole) - MARGIN, 0)
        blank = max(whole.rfind(char, start) for char in " \n\t")
        whole = whole[: blank + 1 if blank >= 0 else start]
    text, secrets = redact(whole)
    path = redact(file.path)
    alias, alias_secrets = redact(file.alias)
    if not alias and path.secrets:
        # Only a path with a secret has another form: what else is shown stays what was recorded.
        alias = path.text
    total = file.total + len(text) - len(file.text)
    redacted_file = replace(file, text=text, total=total, alias=alias)
    return redacted_file, secrets + path.secrets + alias_secrets


def redact_replies(record: Record) -> Record:
    """Return a record without the secrets in models' replies: they may have put one together."""
    texts = record.model_dump(by_alias=True, include=set(_OF_MODELS))
    clean = without_secrets(texts)
    if clean is texts:
        return record
    whole = record.model_dump(by_alias=True, include=set(type(record).model_fields))
    return type(record).model_validate({**whole, **clean})
