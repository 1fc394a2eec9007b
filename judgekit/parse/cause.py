"""Why a reply could not be read: the model refused, it was cut off, or it is of no use."""

from __future__ import annotations

import re
from typing import Final

from judgekit.errors import FailureKind, InvalidReply
from judgekit.parse.scan import scan
from judgekit.parse.tokens import QUOTES

_NOT: Final = r"(?:can(?:no|')?t|can not|won't|will not|must not|(?:am|are|'m|'re) (?:not able|unable))"
_DOING: Final = (
    r"(?:to )?(?:help|assist|comply|fulfil|complete|provide|evaluate|judge|rate|score|review|answer|do)"
)
_REFUSING: Final = re.compile(
    rf"\s*(?:(?:i'm|i am|we're|we are) (?:very |so )?sorry|sorry|i apologi[sz]e|my apologies|unfortunately)\b"
    rf"[^.\n{{]{{0,40}}?\b(?:i|we)\s?{_NOT}\b"
    rf"|\s*(?:as an ai\b[^.\n{{]{{0,80}}?)?(?:\bi|\bwe)\s?{_NOT}\s{_DOING}\b"
)
_READ: Final = 400  # characters of a beginning in which a refusal is said


def cause(raw: str) -> FailureKind:
    """Return the kind of failure that a reply is in which nothing could be read.

    A refusal says so in its first words and holds no object. A reply that ends in the middle of its last
    object was cut off. Whatever else cannot be read, a flood of objects too, is an invalid reply.
    """
    try:
        found = scan(raw)
    except InvalidReply:  # a flood
        return FailureKind.INVALID_REPLY
    if not found:
        beginning = raw.rpartition("</think>")[2][:_READ].replace("\u2019", "'").lower()
        return FailureKind.REFUSAL if _REFUSING.match(beginning) else FailureKind.INVALID_REPLY
    last, tail = found[-1], found[-1].tail.strip()
    # What follows an object that broke off is a string without an end, if the text ended there.
    in_string = tail[:1] in QUOTES and not any(end in tail for end in ("}", "```"))
    return FailureKind.TRUNCATED if not last.closed and (not tail or in_string) else FailureKind.INVALID_REPLY
