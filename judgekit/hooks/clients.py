"""The coding agents that run the prompt hook: the places of their hooks, and the form of an entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - fields of a class
from typing import Any, NamedTuple

from judgekit import environment


class Client(NamedTuple):
    """A coding agent; `clients.toml` explains the fields."""

    command: str
    title: str
    user: tuple[str, str, str]
    shared: dict[str, str]
    events: dict[str, str | None]
    shell: bool = True
    time_units_per_second: int = 1
    extra_keys: dict[str, Any] = {}
    off_settings: Sequence[tuple[str, bool]] = (("disableAllHooks", True),)
    disabled_lists: Sequence[str] = ()
    takes_only_hooks: bool = False
    machine_settings: Mapping[str, str] = {}
    trust: str = ""

    @property
    def prompt_event(self) -> str:
        """The client's name for the event of a prompt, the first in the table."""
        return next(iter(self.events))


_FIELDS_BY_CLIENT = environment.read_toml(__file__, "clients.toml")
for _fields in _FIELDS_BY_CLIENT.values():
    _fields["events"] = {event: tools or None for event, tools in _fields["events"].items()}
CLIENTS = tuple(Client(name, **fields) for name, fields in _FIELDS_BY_CLIENT.items())
CLAUDE_CODE, CODEX, GEMINI = CLIENTS
