"""Reads a model's reply into the requested form, or says why it can't be read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from judgekit.errors import FailureKind, InvalidReply
from judgekit.replies.extract import read_answer
from judgekit.replies.fit import WORDS
from judgekit.replies.forms import ReplyForm
from judgekit.replies.layout import cut_off_thoughts, find_thoughts
from judgekit.replies.scan import QUOTES, scan

if TYPE_CHECKING:
    from judgekit.providers.base import Reply
    from judgekit.replies.scan import Object

Form = TypeVar("Form", bound=ReplyForm)

_REFUSAL_PATTERN = re.compile(WORDS["refusing"])
_REFUSAL_SEARCH_CHARS = 400  # characters to search for a refusal


def read_reply(reply: Reply, form: type[Form]) -> Form:
    """Read the answer from a reply. Raises `InvalidReply` if there isn't exactly one."""
    if reply.schema_enforced:
        try:
            return read_answer(reply.text, form, schema_enforced=True)
        except InvalidReply:
            # A truncated reply needn't violate the schema, so it's no reason to distrust the provider.
            is_truncated = classify_failure(reply.text) is FailureKind.TRUNCATED
            if is_truncated:
                raise
        # The reply violates the schema, so its provider doesn't really enforce it.
        reply.distrust()
    return read_answer(reply.text, form)


def classify_failure(raw: str) -> FailureKind:
    """Classify why a reply couldn't be read: it's a refusal, is truncated, or is otherwise invalid."""
    raw = cut_off_thoughts(raw)
    try:
        objects = scan(raw)
    except InvalidReply:  # too many entries
        return FailureKind.INVALID_REPLY

    if objects:
        return FailureKind.TRUNCATED if _is_truncated(objects[-1]) else FailureKind.INVALID_REPLY
    return FailureKind.REFUSAL if _is_refusal(raw) else FailureKind.INVALID_REPLY


def _is_truncated(last_object: Object) -> bool:
    """Whether a reply ends inside its last object: after an entry, or in a string that is never closed."""
    if last_object.closed:
        return False
    tail = last_object.tail.strip()
    if not tail:  # the reply ends after an entry
        return True

    # If a brace or code fence follows, the model has finished the object, but wrote invalid JSON.
    is_finished = "}" in tail or "```" in tail
    if is_finished:
        return False
    return tail[0] in QUOTES  # a string begins, and is never closed


def _is_refusal(raw: str) -> bool:
    """Whether a reply starts with a refusal such as "I can't", perhaps after the model's thoughts."""
    thoughts = find_thoughts(raw)
    start = thoughts[-1].end if thoughts else 0
    beginning = raw[start:][:_REFUSAL_SEARCH_CHARS]
    beginning = beginning.replace("\u2019", "'").lower()  # the patterns have straight apostrophes
    return _REFUSAL_PATTERN.match(beginning) is not None
