"""Removes secrets from texts before models see them, and from records of the models' replies."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final, TypeVar

from judgekit.judging.documents import Document, File, TaskDescription
from judgekit.redaction.redact import SEARCH_MARGIN_CHARS, redact, without_secrets

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
    missing_chars = file.total_chars - len(file.text)
    is_truncated = missing_chars != 0
    if is_truncated:
        # The last word could be the beginning of a secret, which can't be recognised.
        text = _drop_last_word(text)

    redacted_text, text_secrets = redact(text)
    redacted_path, path_secrets = redact(file.path)
    redacted_alias, alias_secrets = redact(file.alias)
    if path_secrets and not redacted_alias:
        # Prompts show an alias instead of the path. Only add one if it's necessary, because stored replies
        # are found by their prompt.
        redacted_alias = redacted_path

    redacted_file = replace(
        file,
        text=redacted_text,
        # A truncated file must still count as one.
        total_chars=len(redacted_text) + missing_chars,
        alias=redacted_alias,
    )
    return redacted_file, text_secrets + path_secrets + alias_secrets


def _drop_last_word(text: str) -> str:
    """Drop the last word of a truncated text, because half of a secret wouldn't be recognised.

    If there's no blank in the last `SEARCH_MARGIN_CHARS` characters, drop all of these.
    """
    start = max(len(text) - SEARCH_MARGIN_CHARS, 0)
    last_blank = max(text.rfind(blank, start) for blank in " \n\t")
    if last_blank == -1:
        return text[:start]
    return text[: last_blank + 1]


def redact_replies(record: Record) -> Record:
    """Remove secrets from the replies in a record, because a model can reconstruct a split secret."""
    replies = record.model_dump(by_alias=True, include=set(_FIELDS_FROM_MODELS))
    clean_replies = without_secrets(replies)
    is_unchanged = clean_replies is replies  # without secrets, it's the same object
    if is_unchanged:
        return record
    values = record.model_dump(by_alias=True)
    return type(record).model_validate({**values, **clean_replies})
