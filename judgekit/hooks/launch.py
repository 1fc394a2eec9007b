"""How the hook is started fastest: the command that an installer writes into a client's settings.

Of a bare `python -c pass`, looking through site-packages for start-up files (`site`) is a quarter; a script
or `python -m` pays for it, and for finding itself, before the first line of ours runs. So the interpreter is
started isolated (`-I`: no `PYTHON*` variables, nothing from the current folder) and without `site` (`-S`),
and is told where the package lies. What needs third-party packages adds their folder later.
"""

from __future__ import annotations

import os
import sys
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["user", "project", "local"]  # whose settings, or hooks, an installation is in

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPTIONS = ("-I", "-S", "-c")


def command(python: str | None = None) -> list[str]:
    """Return the argument vector that starts the hook, to be run without a shell.

    `python` is the interpreter, by default this one. It and the folder of the package are absolute paths of
    this machine: the command is for settings that are not shared.
    """
    return [python or sys.executable, *OPTIONS, code()]


def code(root: str = ROOT) -> str:
    """Return the one line of Python that runs the hook of the package in the folder `root`.

    `root` is taken off the path again: a package beside ours must not stand in for a standard library's.
    """
    return (
        f"import sys; sys.path.insert(0, {root!a}); "
        "from judgekit.hooks.claude_code import run; del sys.path[0]; run()"
    )
