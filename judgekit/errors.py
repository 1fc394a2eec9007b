"""The errors that judgekit raises, and the exit code each one becomes at the command line."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from judgekit.text import escaped

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.usage import Usage


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
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.retry_after = kind, message, retry_after
        self.usage = usage
