"""A shared judge as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_CREATE = """
import sys
from judgekit.engine.admission import open_user_tokens
print(open_user_tokens().create(sys.argv[1]))
"""


class Serving:
    """A server's process, its address, and one token, by default a new one."""

    def __init__(self, *words: str, code: str = "", token: str = "", **environ: str) -> None:
        self.home = Path(environ.get("JUDGEKIT_HOME", "."))
        self._environment = {**os.environ, **environ}
        program = ["-c", code] if code else ["-m", "judgekit"]
        self.token = token or self.another("ada")
        self.process = subprocess.Popen(
            [sys.executable, *program, "serve", "--port", "0", *words],
            stderr=subprocess.PIPE,
            env=self._environment,
            text=True,
        )
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        assert "judging at " in said, said
        self.url = said.partition("judging at ")[2].split(": ")[0]

    def another(self, name: str) -> str:
        create = [sys.executable, "-c", _CREATE, name]
        made = subprocess.run(
            create, env=self._environment, capture_output=True, text=True, check=True
        )
        return made.stdout.strip()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode
