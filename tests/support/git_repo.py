"""Real repositories for tests, without anybody's configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

AUTHOR = ("Ada", "ada@example.org")
_GATE = """#!/bin/sh
exec "{python}" -m judgekit gate --pre-push "$1" "$2"
"""


class GitRepo:
    """A repository in `folder`; made when it is not there yet."""

    def __init__(self, folder: Path, *init: str) -> None:
        self.folder = folder
        if not folder.exists():
            folder.mkdir(parents=True)
            self("init", "--quiet", "--initial-branch=main", *init)

    def __call__(self, *words: str, stdin: bytes = b"", **environ: str) -> str:
        """Run `git WORDS` and return its output without the last newline; fails the test when git fails."""
        done = self.run(*words, stdin=stdin, **environ)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return os.fsdecode(done.stdout).removesuffix("\n")

    def run(
        self, *words: str, stdin: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env=_environment() | environ,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=120,
        )

    def write(self, path: str, content: str | bytes = "text\n") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(
        self, message: str = "change", author: tuple[str, str] = AUTHOR, /, **files: str | bytes
    ) -> str:
        """Commit all there is, and `files` (`a_md` is a.md), and return the commit's id."""
        for name, content in files.items():
            self.write(name.replace("_", "."), content)
        self("add", "--all")
        name, address = author
        self(
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            message,
            GIT_AUTHOR_NAME=name,
            GIT_AUTHOR_EMAIL=address,
        )
        return self("rev-parse", "HEAD")


def beside_origin(folder: Path) -> GitRepo:
    GitRepo(folder / "origin.git", "--bare")
    work = GitRepo(folder / "work")
    work("remote", "add", "origin", str(folder / "origin.git"))
    return work


def ask_gate(work: GitRepo) -> None:
    """Let git ask the gate before each push, as the installed hook does in its simplest form."""
    hook = work.folder / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_GATE.format(python=sys.executable))
    hook.chmod(0o755)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": AUTHOR[0],
        "GIT_AUTHOR_EMAIL": AUTHOR[1],
        "GIT_COMMITTER_NAME": "Committer",
        "GIT_COMMITTER_EMAIL": "committer@example.org",
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    }
