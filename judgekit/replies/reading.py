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

Form = TypeVar("Form", bound=ReplyForm)

_REFUSING = re.compile(WORDS["refusing"])
_REFUSAL_CHARS = 400  # characters to search for a refusal


def read_reply(reply: Reply, form: type[Form]) -> Form:
    """Read the answer from a reply. Raises `InvalidReply` if there isn't exactly one."""
    if reply.schema_enforced:
        try:
            return read_answer(reply.text, form, schema_enforced=True)
        except InvalidReply:
            if classify_failure(reply.text) is FailureKind.TRUNCATED:
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

    # A reply without any object can be a refusal, perhaps after the model's thoughts.
    if not objects:
        thoughts = find_thoughts(raw)
        start = thoughts[-1].end if thoughts else 0

        # The patterns for refusals have straight apostrophes ("I can't").
        beginning = raw[start:][:_REFUSAL_CHARS].replace("\u2019", "'").lower()
        return FailureKind.REFUSAL if _REFUSING.match(beginning) else FailureKind.INVALID_REPLY

    # The reply is truncated if the last object isn't closed, and the text after it is empty or an unclosed
    # string.
    last_object = objects[-1]
    tail = last_object.tail.strip()
    ends_in_string = tail[:1] in QUOTES and "}" not in tail and "```" not in tail
    is_truncated = not last_object.closed and (not tail or ends_in_string)
    return FailureKind.TRUNCATED if is_truncated else FailureKind.INVALID_REPLY
