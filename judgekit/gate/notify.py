"""Tells a program of the user's about verdicts that a person must settle, once for each content."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment, programs
from judgekit.config.files import held
from judgekit.gate import issues
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.judging.verdict import Verdict

SECONDS = 10.0  # for all verdicts of one run
MOST = 1_000  # contents that are remembered
FILE = "notified"
_PROGRAMS: dict[str, Any] = environment.table(__file__, "programs.toml")
_SAID = 200  # characters of a program's own words


def tell(verdicts: Sequence[Verdict], command: Sequence[str], project: str) -> list[str]:
    """Start the command for each verdict that it was not told of, its record on stdin; return what failed."""
    if not verdicts:
        return []
    until, state = time.monotonic() + SECONDS, Path(environment.state_home())
    environ = known("notify", environment.environ())
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
                code, _, errors = run([program, *command[1:]], environ, record, until - time.monotonic())
                if code:
                    return [failed + (one_line(errors, _SAID) or f"exit code {code}")]
                told.append(name)
                environment.write_private(str(path), "\n".join(told[-MOST:]))
    except subprocess.TimeoutExpired:
        return [f"{failed}not done after {SECONDS:g} s"]
    except (OSError, ValueError) as error:
        return [f"{failed}{error}"]
    return []


def known(program: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a program may know of the environment, with what is set for it."""
    own: dict[str, str] = _PROGRAMS[program].get("set", {})
    names = {*_PROGRAMS["kept"], *_PROGRAMS[program]["kept"]}
    return {name: value for name, value in environ.items() if name in names} | own


def run(argv: Sequence[str], environ: Mapping[str, str], stdin: str, seconds: float) -> tuple[int, str, str]:
    """Return a program's exit code and what it printed; it runs in the home folder, without a shell.

    What it started ends with it. Raises `OSError` or `ValueError` where it cannot be started, and
    `subprocess.TimeoutExpired`.
    """
    with subprocess.Popen(  # noqa: S603 - a program that the user chose, and our own words or the user's
        argv,
        cwd=Path.home(),
        env={**environ, "PATH": programs.search_path(environ)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            printed = process.communicate(stdin.encode("utf-8", "replace"), max(0, seconds))
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)
    output, errors = (text.decode("utf-8", "replace") for text in printed)
    return process.returncode, output, errors
