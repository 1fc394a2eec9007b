"""Tells a program of the user's about verdicts that a person must settle, once for each content."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import environment, programs
from judgekit.config.files import held
from judgekit.gate import issues
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.judging.verdict import Verdict

SECONDS = 10.0  # for all verdicts of one run
FILE = "notified"
_SAID = 200  # characters of a program's own words


def tell(verdicts: Sequence[Verdict], command: Sequence[str], project: str) -> list[str]:
    """Start the command for each verdict that it was not told of, its record on stdin; return what failed."""
    if not verdicts:
        return []
    until, state = time.monotonic() + SECONDS, Path(environment.state_home())
    environ = programs.known("notify", environment.environ())
    program, failed = programs.find(command[0], environ), f"escalate.notify: {command[0]}: "
    if program is None:
        return [f"{failed}not found; name a program on PATH, or its absolute path"]
    try:
        environment.private_folder(str(state))
        with held(state / f"{FILE}.lock", seconds=SECONDS):
            path = state / FILE
            told = path.read_text().split() if path.exists() else []
            for verdict in verdicts:
                issue = issues.of(verdict)
                name = environment.digest(f"{project} {issue.token} {issue.state}")
                if name in told:
                    continue
                record = json.dumps(verdict.record(), ensure_ascii=False) + "\n"
                argv, left = [program, *command[1:]], until - time.monotonic()
                code, _, errors = programs.run(argv, environ, record, seconds=left)
                if code:
                    return [failed + (one_line(errors, _SAID) or f"exit code {code}")]
                told.append(name)
                environment.write_private(str(path), "\n".join(told[-1_000:]))
    except programs.Unfinished:
        return [f"{failed}not done after {SECONDS:g} s"]
    except (OSError, ValueError) as error:
        return [f"{failed}{error}"]
    return []
