"""Removes secrets from texts before models see them, and from records of the models' replies."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final, TypeVar

from judgekit.judging.documents import Document, File, TaskDescription
from judgekit.redaction.redact import MARGIN, redact, without_secrets

if TYPE_CHECKING:
    from pydantic import BaseModel

    Record = TypeVar("Record", bound=BaseModel)

_FIELDS_FROM_MODELS: Final = frozenset({"reasoning", "findings", "review", "rounds", "degraded"})


def redact_document(document: Document) -> tuple[Document, int]:
    """Replace the secrets in a document's files and task. Also return the number of secrets."""
    files = []
    secrets = 0
    for file in document.files:
        redacted_file, file_secrets = redact_file(file)
        files.append(redacted_file)
        secrets += file_secrets
    task_texts = []
    for text in astuple(document.task):
        redacted = redact(text)
        task_texts.append(redacted.text)
        secrets += redacted.secrets
    task = TaskDescription(*task_texts)
    return replace(document, files=tuple(files), task=task), secrets


def redact_file(file: File) -> tuple[File, int]:
    """Replace the secrets in a file's text and names. Returns the new file and the number of secrets."""
    text = file.text
    was_truncated = len(text) != file.total
    if was_truncated:
        # The last word could be the beginning of a secret, which can't be recognised.
        text = _drop_last_word(text)

    redacted_text, text_secrets = redact(text)
    redacted_path, path_secrets = redact(file.path)
    alias, alias_secrets = redact(file.alias)
    if not alias and path_secrets:
        # The alias replaces the path. Other paths get none, because they must match earlier recordings.
        alias = redacted_path

    # A file is truncated if its text is shorter than its total, so adjust the total to the new text.
    total = file.total + len(redacted_text) - len(file.text)
    redacted_file = replace(file, text=redacted_text, total=total, alias=alias)
    return redacted_file, text_secrets + path_secrets + alias_secrets


def _drop_last_word(text: str) -> str:
    """Drop the last word of a truncated text, because half of a secret wouldn't be recognised.

    If there's no blank in the last `MARGIN` characters, drop all of these.
    """
    start = max(len(text) - MARGIN, 0)
    last_blank = max(text.rfind(blank, start) for blank in " \n\t")
    if last_blank == -1:
        return text[:start]
    return text[: last_blank + 1]


def redact_replies(record: Record) -> Record:
    """Remove secrets from the replies in a record, because a model can reconstruct a split secret."""
    replies = record.model_dump(by_alias=True, include=set(_FIELDS_FROM_MODELS))
    clean_replies = without_secrets(replies)
    if clean_replies is replies:  # there are no secrets
        return record
    fields = record.model_dump(by_alias=True, include=set(type(record).model_fields))
    return type(record).model_validate({**fields, **clean_replies})
