"""A shared judge as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

_CREATE = "from judgekit.engine.team.tokens import user_tokens; print(user_tokens().create('ada'))"


class Serving:
    """A server's process with one token, and where it said that it listens."""

    def __init__(self, *words: str, code: str = "", **environ: str) -> None:
        environment = {**os.environ, **environ}
        program = ["-c", code] if code else ["-m", "judgekit"]
        made = subprocess.run(
            [sys.executable, "-c", _CREATE], env=environment, capture_output=True, text=True, check=True
        )
        self.token = made.stdout.strip()
        self.process = subprocess.Popen(
            [sys.executable, *program, "serve", "--port", "0", *words],
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        assert "judging at " in said, said
        self.url = said.partition("judging at ")[2].split(": ")[0]

    def end(self) -> int:
        """Tell it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode
