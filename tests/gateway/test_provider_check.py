"""`judgekit provider check`: which providers it may try, and when it fetches a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, says

from judgekit import config
from judgekit.cli import app
from judgekit.local import fetch, models

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def allow(names: str) -> None:
    file = config.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"providers: {{allow: {names}}}\n")


@pytest.mark.parametrize("allowed", ["custom", "openai-compatible"])
@pytest.mark.parametrize("name", ["custom", "openai-compatible"])
def test_the_alias_of_a_provider_is_as_good_as_its_name(
    allowed: str, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    allow(f"[{allowed}]")
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
    with Loopback(says("yes")) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        assert app.run(["provider", "check", name]) == 0
    assert "custom/stand-in: answered in" in capfd.readouterr().out


@pytest.mark.parametrize("allowed", ["null", "[openai]"])
def test_a_program_that_is_not_allowed_is_not_started(
    allowed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    allow(allowed)
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert app.run(["provider", "check", "claude-code"]) == 64
    said = capfd.readouterr().err
    assert "add claude-code to providers.allow in" in said
    assert str(config.user_file()) in said
    assert not (tmp_path / "started").exists()


def test_a_model_that_is_here_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(fetch, "fetch", lambda name, _: fetched.append(name))
    monkeypatch.setenv("JUDGEKIT_LOCAL_MODEL", "smollm2-135m")
    monkeypatch.setenv("JUDGEKIT_MODELS", str(tmp_path))
    allow("[openai]")  # nothing is to be run here
    app.run(["provider", "check", "--fetch"])
    assert fetched == ["smollm2-135m"]
    with (tmp_path / "smollm2-135m.gguf").open("wb") as file:
        file.truncate(models.known("smollm2-135m").size)
    app.run(["provider", "check", "--fetch"])
    assert fetched == ["smollm2-135m"]
