"""What tests hand to judges and gateways, made in one place: a new or renamed field costs one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.errors import CallUsage
from judgekit.judging.subject import Document, File, Task, file_of
from judgekit.providers.base import Reply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.errors import CostSource


def call_usage(
    input_tokens: int = 0,
    output_tokens: int = 0,
    cost_usd: float | None = None,
    cost_source: CostSource | None = None,
    *,
    cache_read_tokens: int = 0,
    cache_write_tokens: int = 0,
    unpriced_calls: int = 0,
) -> CallUsage:
    """Return what a call took; it is nothing unless a test says what."""
    return CallUsage(
        input_tokens,
        output_tokens,
        cost_usd,
        cost_source,
        cache_read_tokens,
        cache_write_tokens,
        unpriced_calls,
    )


def reply(
    text: str = "yes",
    model: str = "m",
    usage: CallUsage | None = None,
    *,
    logprobs: tuple[dict[str, float], ...] = (),
    tokens: tuple[str, ...] = (),
    held: bool = False,
) -> Reply:
    """Return what a model answered; it took nothing unless a test says what."""
    return Reply(text, model, usage or call_usage(), logprobs, tokens, held)


def file(
    path: str = "a.md", text: str = "Some text.", sha256: str | None = None, total: int | None = None
) -> File:
    """Return a file; its hash and its length are those of the text unless a test says others."""
    digest = sha256 or file_of(path, text).sha256
    return File(path, text, digest, len(text) if total is None else total)


def document(files: Iterable[File], task_id: str = "a.md", task: Task | None = None) -> Document:
    """Return what is judged as one."""
    return Document(tuple(files), task_id, task or Task())
