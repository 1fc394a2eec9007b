"""A project to work in, and the command line in this process."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
import sample_store
from loopback import Loopback
from outcome import Outcome

from judgekit.cli.app import run
from judgekit.evaluation import stats
from judgekit.ledger import Ledger, labels
from judgekit.providers import servers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Use


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bounds of figures be rough: how good they are is examined where they are computed."""
    monkeypatch.setattr(stats, "RESAMPLES", 200)


@pytest.fixture
def judgekit(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(list(arguments))
        os.environ.pop("JUDGEKIT_ONLY_MODEL", None)  # of this run alone
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
def use(monkeypatch: pytest.MonkeyPatch) -> Use:

    def point(server: Loopback | str, model: str = "stand-in", **tiers: str) -> None:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server if isinstance(server, str) else server.base)
        for tier, name in tiers.items() or [("", model)]:
            monkeypatch.setenv(f"JUDGEKIT_{tier.upper()}{'_' * bool(tier)}MODEL", name)

    return point


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "list_models", lambda bases, seconds=0.3: [None] * len(bases))


@pytest.fixture
def served(judgekit: Run, use: Use) -> Callable[..., tuple[Outcome, list[Asked]]]:

    def call(
        answer: Answer | Callable[[Asked], Answer], *arguments: str, **models: str
    ) -> tuple[Outcome, list[Asked]]:
        with Loopback(answer) as server:
            use(server, **models)
            done = judgekit(*arguments)
        return done, list(server.requests)

    return call


@pytest.fixture
def ledger(project: Path) -> Ledger:
    return Ledger.of(project)


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(labels, "is_at_terminal", lambda: True)


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch, at_terminal: Callable[[], None]) -> Callable[..., None]:
    """Let a person at a terminal press keys; after them comes the end of input, or Ctrl-C."""
    at_terminal()

    def keys(text: str, end: type[BaseException] = EOFError) -> None:
        left = iter(text)

        def getchar() -> str:
            try:
                return next(left)
            except StopIteration:
                raise end from None

        monkeypatch.setattr("typer.getchar", getchar)

    return keys


@pytest.fixture
def repository(project: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True, timeout=60)
    return project
