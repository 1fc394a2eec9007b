"""Finds the heavy modules that a command imports, and who imports them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEAVY = (
    *("litellm", "pydantic", "ruamel", "asyncio", "httpx", "aiohttp", "openai", "ssl"),
    *("fastapi", "starlette", "uvicorn", "concurrent", "jinja2", "numpy"),
)

_PROBE = """
import json, sys

heavy, commands = json.loads(sys.argv[1])
found = []


class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in heavy:
            frame = sys._getframe(1)
            while frame.f_globals.get("__name__", "").split(".")[0] in ("importlib", "_frozen_importlib"):
                frame = frame.f_back
            found.append((name, frame.f_globals.get("__name__", "")))


sys.meta_path.insert(0, Watch())
from judgekit.__main__ import main

codes = []
for command in commands:
    sys.argv = ["judgekit", *command]
    codes.append(main())
print(json.dumps([codes, found]), file=sys.stderr)
"""


class Run(NamedTuple):
    """The output of commands, their exit codes, and each heavy module with its first importer."""

    out: str
    codes: list[int]
    imported: dict[str, str]


def of(*commands: Sequence[str], stdin: bytes = b"", heavy: Iterable[str] = HEAVY) -> Run:
    """Run commands one after the other in a process of their own, and report its imports."""
    words = [sys.executable, "-c", _PROBE, json.dumps([list(heavy), commands])]
    done = subprocess.run(words, input=stdin, capture_output=True, timeout=120, check=True)
    codes, found = json.loads(done.stderr.decode().splitlines()[-1])
    # We can't choose the imports of the command line's library.
    return Run(
        done.stdout.decode(),
        codes,
        {name: by for name, by in found if by.partition(".")[0] != "typer"},
    )
