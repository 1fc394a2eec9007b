"""Messages about what's kept when a command is interrupted."""

from __future__ import annotations

_CACHED_REPLIES_MESSAGE = ": complete replies are cached{}; run the same command to continue"
KEPT_MESSAGE_BY_COMMAND: dict[str, str | None] = {
    **dict.fromkeys(
        ("judge", "compare"), _CACHED_REPLIES_MESSAGE.format(", unless with --no-cache")
    ),
    **dict.fromkeys(
        ("search", "gate", "calibrate", "eval", "rubric"), _CACHED_REPLIES_MESSAGE.format("")
    ),
    "demo": ": what was downloaded is kept; run the same command to continue",
    "index": ": what was read is kept; the same command starts over, the next query reads only the rest",
    "escalate": "; issues that are up to date stay so; run the same command for the rest",
    **dict.fromkeys(("kpi", "triage"), "; the ledger is unchanged"),
}
"""Each command's message about what's kept; None if the command prints its own."""


def set_kept(command: str, message: str) -> None:
    """Set the message to print if the command is interrupted after this."""
    KEPT_MESSAGE_BY_COMMAND[command] = f"; {message}"
