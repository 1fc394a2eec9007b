"""The errors that judgekit raises, and the exit code each one becomes at the command line.

What calls took: tokens, US dollars, and who says so. Standard library only.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Exit(enum.IntEnum):
    """Exit codes of every command except the hooks."""

    ACCEPTED = 0
    REJECTED = 1
    HUMAN_NEEDED = 2
    USAGE = 64
    BAD_INPUT = 65
    INTERNAL = 70
    BAD_CONFIG = 78
    INTERRUPTED = 130
    OUTPUT_LOST = 141  # whoever read the output went away: what shells give for it, and no verdict


class JudgekitError(Exception):
    """Base of all errors that judgekit raises on purpose: its text is one line for the user."""

    exit_code = Exit.INTERNAL


class UsageError(JudgekitError):
    """The command line asks for something that does not exist or does not go together."""

    exit_code = Exit.USAGE

    def __init__(self, told: str) -> None:
        super().__init__(escaped(told))  # it names what was given: a terminal must not obey that


class InputError(JudgekitError):
    """What should be judged or searched cannot be read: missing, binary, not UTF-8, outside its root."""

    exit_code = Exit.BAD_INPUT

    def __init__(self, told: str) -> None:
        super().__init__(escaped(told))  # it names files, and what stands in them


class ConfigError(JudgekitError):
    """A YAML or JSON file that a user tunes is wrong; says file, line, key, expectation and remedy."""

    exit_code = Exit.BAD_CONFIG

    def __init__(
        self, problem: str, *, path: Path | str | None = None, line: int | None = None, key: str = ""
    ) -> None:
        self.problem, self.path, self.line, self.key = problem, path, line, key
        where = ":".join(str(part) for part in (path, line) if part is not None)
        # A file of a cloned project names itself and its keys: a terminal must not obey what is in a name.
        super().__init__(escaped(": ".join(part for part in (where, key, problem) if part)))


class InvalidReply(JudgekitError):  # noqa: N818 - the published name; a reply is invalid, the program is not in error
    """A model's reply holds no object of the wanted shape."""


class AmbiguousReply(InvalidReply):
    """A model's reply gives two answers that differ."""


class FailureKind(enum.StrEnum):
    """Why a model gave no opinion."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    BAD_REQUEST = "bad_request"
    CONTEXT_WINDOW = "context_window"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    INVALID_REPLY = "invalid_reply"
    NOT_RECORDED = "not_recorded"
    COMMAND_FAILED = "command_failed"
    BUDGET = "budget"

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed a moment later (a refused connection will not)."""
        return self in _RETRYABLE

    @property
    def may_have_cost(self) -> bool:
        """Whether a call that failed so may have been charged although no reply says what for."""
        return self in _MAY_HAVE_COST


_RETRYABLE = frozenset(
    {FailureKind.RATE_LIMIT, FailureKind.OVERLOADED, FailureKind.SERVER_ERROR},
)
# Others are refused before a model works, or say what they took.
_MAY_HAVE_COST = frozenset({FailureKind.TIMEOUT, FailureKind.INVALID_REPLY, FailureKind.COMMAND_FAILED})


class GatewayError(JudgekitError):
    """A call to a model failed; the judge turns it into the failure of one round.

    `retry_after` is what the provider asked for, in seconds. `usage` is what was taken all the same, where
    that is known: by a reply that came but cannot be used, or nothing where no call was begun.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retry_after: float | None = None,
        usage: CallUsage | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.retry_after = kind, message, retry_after
        self.usage = usage


CostSource: TypeAlias = Literal["provider", "profile", "litellm", "cache", "local", "mixed"]
"""Who says what a call cost: the reply itself, the price in the provider's profile, litellm's table.

"local" is a model on this machine, which costs nothing. "cache" is a reply that was kept from an earlier call
and cost nothing, "mixed" a sum of several.
"""


class CallUsage(NamedTuple):
    """What one call or several took. The cost is None where nothing says it.

    `input_tokens` hold those read from a provider's cache and those written to it. `unpriced_calls` counts
    the calls that a cost leaves out because nobody says what they cost.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    unpriced_calls: int = 0

    def plus(self, other: CallUsage) -> CallUsage:
        """Return the sum; a cost that is known for one of them counts."""
        cost, source = added((self, other))
        return CallUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            cost,
            source,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.unpriced_calls + other.unpriced_calls,
        )

    def of_call(self) -> CallUsage:
        """Return this as the usage of one call that was made: where it has no cost, that is counted."""
        if self.cost_usd is not None or self.unpriced_calls:
            return self
        return self._replace(unpriced_calls=1)


def free(usage: CallUsage) -> CallUsage:
    """Return the usage of a call to a model on this machine: nothing, unless somebody says otherwise."""
    if usage.cost_usd is not None:
        return usage
    return usage._replace(cost_usd=0.0, cost_source="local", unpriced_calls=0)


def of_failure(error: GatewayError) -> CallUsage:
    """Return what a call took that failed: what the failure says, else nothing, or nobody knows."""
    if error.usage is not None:
        return error.usage
    return CallUsage(unpriced_calls=1 if error.kind.may_have_cost else 0)


KEPT = CallUsage(cost_usd=0.0, cost_source="cache")
"""What a reply takes that was kept from an earlier call."""


def added(usages: Sequence[CallUsage]) -> tuple[float | None, CostSource | None]:
    """Return the sum of the known costs and who says it, None and None where none is known.

    That a reply was kept says nothing of the others: beside calls that nobody prices, it is no sum.
    """
    known = [usage for usage in usages if usage.cost_usd is not None]
    sources = {call_usage.cost_source for call_usage in known}
    if "local" in sources:  # what a local model replied before cost nothing either
        sources.discard("cache")
    if not known or (sources == {"cache"} and any(usage.unpriced_calls for usage in usages)):
        return None, None
    return sum(call_usage.cost_usd or 0.0 for call_usage in known), sources.pop() if len(
        sources
    ) == 1 else "mixed"
