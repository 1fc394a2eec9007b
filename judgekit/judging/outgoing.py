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
    task_texts = []
    for text in astuple(document.task):
        redacted = redact(text)
        task_texts.append(redacted.text)
        secrets += redacted.secrets
    task = TaskDescription(*task_texts)
    return replace(document, files=tuple(files), task=task), secrets


def redact_file(file: File) -> tuple[File, int]:
    """Return a file without its secrets, and how many they were.

    Its `total` changes by as many characters as its text, so that it is still known whether the file was cut.
    """
    text = file.text
    if len(text) != file.total:  # it was cut as it was read
        text = _without_last_word(text)
    redacted_text, text_secrets = redact(text)
    redacted_path, path_secrets = redact(file.path)
    alias, alias_secrets = redact(file.alias)
    if not alias and path_secrets:
        # Only a path with a secret has another form: what else is shown stays what was recorded.
        alias = redacted_path
    total = file.total + len(redacted_text) - len(file.text)
    redacted_file = replace(file, text=redacted_text, total=total, alias=alias)
    return redacted_file, text_secrets + path_secrets + alias_secrets


def _without_last_word(text: str) -> str:
    """Return a text up to its last blank, or without its last characters: half a secret may end it."""
    start = max(len(text) - MARGIN, 0)
    last_blank = max(text.rfind(char, start) for char in " \n\t")
    if last_blank < 0:
        return text[:start]
    return text[: last_blank + 1]


def redact_replies(record: Record) -> Record:
    """Return a record without the secrets in models' replies: they may have put one together."""
    replies = record.model_dump(by_alias=True, include=set(_OF_MODELS))
    clean_replies = without_secrets(replies)
    if clean_replies is replies:  # there was no secret
        return record
    fields = record.model_dump(by_alias=True, include=set(type(record).model_fields))
    return type(record).model_validate({**fields, **clean_replies})
