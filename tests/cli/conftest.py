"""A project to work in, and the command line in this process."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import drawn
import pytest
import sample_store
from loopback import Loopback
from outcome import Outcome

from judgekit.cli.app import run
from judgekit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Use


@pytest.fixture
def judgekit(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run one command and return its exit code and what it printed."""

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(list(arguments))
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a memory store and two documents; it is the current folder."""
    sample_store.write(tmp_path)
    (tmp_path / "good.md").write_text("# Good\n\nA sound document.\n")
    (tmp_path / "bad.md").write_text("# Bad\n\nTODO\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Loopback | str], None]:
    """Make a server the model that judges."""

    def point(server: Loopback | str) -> None:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server if isinstance(server, str) else server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")

    return point


@pytest.fixture
def no_matplotlib() -> Iterator[None]:
    """Take the extra for pictures away."""
    with drawn.without_matplotlib():
        yield


@pytest.fixture
def served(judgekit: Run, use: Use) -> Callable[..., tuple[Outcome, list[Asked]]]:
    """Run a command with a server that answers as told, and return its outcome and what was asked."""

    def call(answer: Answer | Callable[[Asked], Answer], *arguments: str) -> tuple[Outcome, list[Asked]]:
        with Loopback(answer) as server:
            use(server)
            done = judgekit(*arguments)
        return done, list(server.requests)

    return call


@pytest.fixture
def ledger(project: Path) -> Ledger:
    """Return the ledger of the project that is the current folder."""
    return Ledger.of(project)


@pytest.fixture
def repository(project: Path) -> Path:
    """Put the project under git."""
    subprocess.run(["git", "init", "-q"], cwd=project, check=True, timeout=60)
    return project
