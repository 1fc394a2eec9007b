"""Runs the real Claude Code client in a world of its own: private home, project, stand-in for its API."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from claude_standin import Standin

VARIABLE = "JUDGEKIT_TEST_CLAUDE"
DEADLINE = 60  # seconds for one run of the client; it takes less than one where nothing is wrong
_FETCHED = Path(__file__).parents[2] / ".cache" / "claude" / "node_modules" / "@anthropic-ai"


def find() -> Path | None:
    """Return the client's program: the one the environment names, else the one CI fetched, else none."""
    named = os.environ.get(VARIABLE)
    found = [Path(named)] if named else sorted(_FETCHED.glob("claude-code-*/claude"))
    return next((path for path in found if path.is_file() and os.access(path, os.X_OK)), None)


class Answer(NamedTuple):
    """How a run of the client ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Client:
    """The client's program, the folder that holds its home and its project, and the API it talks to."""

    program: Path
    folder: Path
    api: Standin
    path: str = f"{Path(sys.executable).parent}:/usr/bin:/bin"  # where `judgekit` is
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def install_hook(self, command: str = sys.executable, *args: str) -> None:
        """Make the project run a command on every prompt; without `args` it is this checkout's hook."""
        hook = {
            "type": "command",
            "command": command,
            "args": args or ("-m", "judgekit", "hook"),
            "timeout": 30,
        }
        settings = self.project / ".claude" / "settings.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(
            json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}), encoding="utf-8"
        )

    def install_watched_hook(self) -> Path:
        """Install this checkout's hook so that its exit code is left in the file that is returned."""
        code = self.folder / "exit-code"
        self.install_hook(
            "/bin/sh", "-c", '"$0" -m judgekit hook; echo $? >"$1"', sys.executable, str(code)
        )
        return code

    def ask(self, prompt: str, *options: str) -> Answer:
        return self.run(*options, "-p", prompt, "--model", "claude-haiku-4-5")

    def run(self, *words: str) -> Answer:
        """Run the client and wait for the end, no longer than `DEADLINE`; nothing it started lives on."""
        process = subprocess.Popen(
            [self.program, *words],
            cwd=self.project,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=DEADLINE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=DEADLINE)
        return Answer(process.returncode, stdout, stderr)

    def _environment(self) -> dict[str, str]:
        """Return all that the client may see: no key, no setting and no address of the person who tests."""
        for name in ("home", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)
        return {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "PATH": self.path,
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": "a-key-that-opens-nothing",
            "HTTPS_PROXY": self.api.url,
            "HTTP_PROXY": self.api.url,
            "NO_PROXY": "127.0.0.1,localhost",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "IS_SANDBOX": "1",
            **self.variables,
        }


def judgekit(client: Client, *words: str) -> str:
    """Run a command the way the client's user would: in the project, with the client's environment."""
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", *words],
        cwd=client.project,
        env=client._environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout
