"""The errors that judgekit raises with their exit codes; what calls took, in tokens and US dollars."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from judgekit.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_ERRORS = 20  # in one file's message


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
    """Base class of judgekit's own errors. The message has one line per problem.

    A command exits with `exit_code`. The engine and a shared judge respond with the HTTP `status` and with
    `wire_name` as `error.kind`.
    """

    exit_code: Exit = Exit.INTERNAL
    wire_name: str = "internal"
    status: int = 500

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle errors of any subclass, with their attributes."""
        return _restore_error, (type(self), self.args, self.__dict__)


def _restore_error(
    error_class: type[JudgekitError], args: tuple[object, ...], state: dict[str, object]
) -> JudgekitError:
    """Restore a pickled error, with its attributes."""
    # Skip `__init__`, because its parameters differ between classes.
    error = error_class.__new__(error_class, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class _NamingError(JudgekitError):
    """An error whose message can quote file names or arguments. Control characters in it are escaped."""

    def __init__(self, message: str) -> None:
        super().__init__(escape_name(message))


class UsageError(_NamingError):
    """An argument is invalid, or arguments can't be combined."""

    exit_code = Exit.USAGE
    wire_name = "usage"
    status = 422


class InputError(_NamingError):
    """An input can't be read: it's missing, empty, binary, not UTF-8, or outside its root folder."""

    exit_code = Exit.BAD_INPUT
    wire_name = "input"
    status = 422


class ConfigError(_NamingError):
    """A YAML or JSON file is invalid. The message has the file, line, key, expected value and remedy."""

    exit_code = Exit.BAD_CONFIG
    wire_name = "config"
    status = 422

    def __init__(
        self,
        problem: str,
        *,
        path: Path | str | None = None,
        line: int | None = None,
        key: str = "",
    ) -> None:
        """Build the message `FILE:LINE: KEY: PROBLEM`, without the parts that aren't known."""
        self.problem = problem
        self.path = path
        self.line = line
        self.key = key
        self.others: tuple[ConfigError, ...] = ()  # the file's further errors, set by `of`

        file_and_line = [str(part) for part in (path, line) if part is not None]
        location = ":".join(file_and_line)
        known_parts = [part for part in (location, key, problem) if part]
        super().__init__(": ".join(known_parts))

    @classmethod
    def of(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """Combine a file's errors: return the first, with a message that lists up to `MAX_ERRORS`."""
        first, *others = errors
        first.others = tuple(others[: MAX_ERRORS - 1])
        lines = [str(first), *map(str, first.others)]
        if len(errors) > MAX_ERRORS:
            lines.append("... and more")
        first.args = ("\n".join(lines),)  # replaces the message
        return first


class StoreError(JudgekitError):
    """A team's store can't be used now. Retrying may help after `retry_after` seconds."""

    exit_code = Exit.BAD_CONFIG

    def __init__(
        self,
        message: str,
        retry_after: float = 2,
        *,
        status: Literal[429, 503] = 503,
        wire_name: str = "store",
    ) -> None:
        """Build an error. An HTTP response has its `status`, and names it `wire_name` in the body."""
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status
        self.wire_name = wire_name


NO_SQLITE = (
    "this Python was built without SQLite (it has no _sqlite3), which judgekit needs for that; "
    "install judgekit with another Python"
)


def lacks_sqlite(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name in ("_sqlite3", "sqlite3")


def describe_error(error: Exception) -> str:
    """Describe an error for the user. Errors that judgekit doesn't define are "internal errors"."""
    if isinstance(error, JudgekitError):
        return str(error)
    if lacks_sqlite(error):
        return NO_SQLITE
    return f"internal error ({type(error).__name__}: {error})"


class InvalidReply(JudgekitError):  # noqa: N818 - the published name; a reply is invalid, the program is not in error
    """A model's reply contains no object with the expected fields."""


class AmbiguousReply(InvalidReply):
    """A model's reply contains two different answers."""


class FailureKind(enum.StrEnum):
    """The reason why a model's call failed."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    PAYMENT = "payment"
    NOT_FOUND = "not_found"
    BAD_REQUEST = "bad_request"
    CONTEXT_WINDOW = "context_window"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    INVALID_REPLY = "invalid_reply"
    NOT_LOADED = "not_loaded"
    NOT_RECORDED = "not_recorded"
    COMMAND_FAILED = "command_failed"
    BUDGET = "budget"

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed a moment later."""
        return self in (FailureKind.RATE_LIMIT, FailureKind.OVERLOADED, FailureKind.SERVER_ERROR)


class GatewayError(JudgekitError):
    """A call to a model failed, and with it one round of the judging.

    `retry_after` is the delay that the provider asked for, in seconds. `usage` is the failed call's usage, if
    it's known.
    """

    kind: FailureKind

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        self.usage = usage

        # These are read from the provider's message later: the parts of the request that it objects to, such
        # as "temperature", and the largest reply that it allows, if it names a maximum.
        self.objections: frozenset[str] = frozenset()
        self.max_reply_tokens: int | None = None

    @property
    def wire_name(self) -> str:  # type: ignore[override]  # it follows the kind, which may change
        return self.kind.value


CostSource: TypeAlias = Literal["provider", "profile", "litellm", "cache", "local", "mixed"]
"""The origin of a cost: the provider's reply, the price in its profile, or litellm's price table.

"local" is a model on this machine and "cache" a cached reply, which both cost nothing. "mixed" is a sum of
costs from different origins.
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens and US dollars used by one or more calls. An unknown cost is None.

    `input_tokens` include tokens read from or written to a provider's cache. `cost_source` is the cost's
    origin. `unpriced_calls` counts the calls of unknown cost, which `cost_usd` doesn't include.
    """

    # Used by pydantic if the usage is part of a round.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "ignore"}

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    unpriced_calls: int = 0

    def plus(self, other: Usage) -> Usage:
        """Add two usages. An unknown cost counts as 0, unless both are unknown."""
        cost, source = add_up_costs((self, other))
        counts = {}
        for name in _COUNT_FIELDS:
            counts[name] = getattr(self, name) + getattr(other, name)
        return Usage(cost_usd=cost, cost_source=source, **counts)

    def count_as_call(self) -> Usage:
        """Return this usage as that of a single call, which is counted as unpriced if it has no cost."""
        if self.cost_usd is not None or self.unpriced_calls:
            return self
        return replace(self, unpriced_calls=1)


_COUNT_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "unpriced_calls",
)


def set_local_cost(usage: Usage) -> Usage:
    """Set the cost of a call to a local model to zero, unless a cost is known."""
    if usage.cost_usd is not None:
        return usage
    return replace(usage, cost_usd=0.0, cost_source="local", unpriced_calls=0)


def usage_of_failed_call(error: GatewayError) -> Usage:
    """Return the usage that a failed call reported.

    If it reported none but may have been billed, it counts as one unpriced call.
    """
    if error.usage is not None:
        return error.usage
    # These failures may be billed without reporting usage. Any other failure is free or reports its usage.
    may_be_billed = error.kind in (
        FailureKind.TIMEOUT,
        FailureKind.INVALID_REPLY,
        FailureKind.COMMAND_FAILED,
    )
    return Usage(unpriced_calls=1 if may_be_billed else 0)


CACHED_USAGE = Usage(cost_usd=0.0, cost_source="cache")  # the usage of a cached reply


def add_up_costs(usages: Sequence[Usage]) -> tuple[float | None, CostSource | None]:
    """Return the sum of all known costs, and their source, or "mixed" if they have several sources.

    Both are None if no cost is known, or if only the costs of cached replies are known and others aren't.
    """
    sources = {usage.cost_source for usage in usages if usage.cost_usd is not None}
    if not sources:
        return None, None

    # Cached replies cost 0. If the other calls' cost is unknown, a sum of 0 would claim that they were free.
    has_only_cached = sources == {"cache"}
    has_unknown_cost = any(usage.unpriced_calls for usage in usages)
    if has_only_cached and has_unknown_cost:
        return None, None

    # Local models cost 0, too. Of these two sources, "local" is more informative.
    if "local" in sources:
        sources.discard("cache")
    cost_usd = sum(usage.cost_usd or 0.0 for usage in usages)
    if len(sources) > 1:
        return cost_usd, "mixed"
    return cost_usd, sources.pop()
