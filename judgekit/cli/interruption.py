"""What a command has kept when somebody interrupts it: said in the one line that it ends with."""

from __future__ import annotations

AGAIN = "run the same command to go on"
REPLIES = "complete replies are in the reply cache"
_OF_COMMANDS = {
    **dict.fromkeys(("judge", "compare", "search", "gate", "calibrate", "eval"), f"{REPLIES}; {AGAIN}"),
    "demo": f"what was downloaded is kept; {AGAIN}",
    "index": "what was read is kept; the same command reads it anew, the next query only the rest",
}
_said: list[str] = []


def keeps(told: str) -> None:
    """Say what is kept by now; it replaces what was said before."""
    _said[:] = [told]


def line(command: str) -> str:
    """Return the line that an interrupted command ends with."""
    told = _said.pop() if _said else _OF_COMMANDS.get(command, "")
    return f"interrupted: {told}" if told else "interrupted"
