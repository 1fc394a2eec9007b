"""The foot of a page: notes on its data, and how it was made."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import judgekit
from judgekit.cli import output
from judgekit.evaluation.page import Foot
from judgekit.text import escape_name, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_COMMAND_CHARS = 1000  # characters


def build_foot(notices: Sequence[str] = ()) -> Foot:
    """Build a page's footer: notices, the command that made the page, and the version.

    `notices` are about the page's data. The notices that the command printed on stderr follow them.
    """
    command_notices = [escape_name(line) for line in output.current.notices]
    command = shlex.join(["judgekit", *output.current.command_words])
    return Foot(
        notices=[*notices, *command_notices],
        command=shorten_to_line(command, _MAX_COMMAND_CHARS),
        versions=[f"judgekit {judgekit.__version__}"],
    )
