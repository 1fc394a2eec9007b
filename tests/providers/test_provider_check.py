"""`judgekit provider check`: which providers it may try, and when it fetches a model."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

import pytest
from asking import custom
from loopback import Loopback, fails, says
from making import reply

from judgekit.cli import app
from judgekit.config import settings
from judgekit.providers import litellm, local, local_fetch, report

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.providers.base import Reply


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def allow(names: str) -> None:
    file = settings.user_file()
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
    assert str(settings.user_file()) in said
    assert not (tmp_path / "started").exists()


def test_a_model_that_is_here_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(local_fetch, "fetch", lambda name, _: fetched.append(name))
    monkeypatch.setenv("JUDGEKIT_LOCAL_MODEL", "smollm2-135m")
    monkeypatch.setenv("JUDGEKIT_MODELS", str(tmp_path))
    allow("[openai]")  # nothing is to be run here
    app.run(["provider", "check", "--fetch"])
    assert fetched == ["smollm2-135m"]
    with (tmp_path / "smollm2-135m.gguf").open("wb") as file:
        file.truncate(local.model_named("smollm2-135m").size)
    app.run(["provider", "check", "--fetch"])
    assert fetched == ["smollm2-135m"]


PROGRAM = """#!{python}
import json, os, sys
prompt = sys.stdin.read()
assert sys.argv[1:] in ([], ["--model=large"]), sys.argv
assert os.environ["JUDGEKIT_INSIDE"] and "OPENAI_API_KEY" not in os.environ
if "--model=large" in sys.argv:
    sys.exit("large is gone; there are: small")
print(json.dumps({{"said": "yes", "by": "small-2026", "usd": 0.000125}}))
"""
PROFILE = """\
provider: my-program
title: A program of mine
kind: command
detect: {command: my-program}
argv: [my-program, "--model={model}"]
models: {quick: default, deep: large}
output: text
reply: json
reply_key: said
model_key: by
usage: {cost: usd}
"""


def own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my-program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-another-provider")
    folder = settings.user_file().parent / "providers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my-program.yaml").write_text(PROFILE)


def test_a_program_of_ones_own_is_tried_with_every_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_program(tmp_path, monkeypatch)
    allow("[my-program]")
    assert app.run(["provider", "check", "my-program"]) == 2
    good, bad = capfd.readouterr().out.splitlines()
    assert re.fullmatch(
        r"my-program         default: answered in \d+ ms as small-2026, \$0.000125 \(the provider says so\)",
        good,
    )
    told = (
        "my-program         large: command_failed: my-program exited with 1: large is gone; there are: small"
    )
    assert bad == told


def test_a_program_of_ones_own_is_chosen_when_it_is_all_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_program(tmp_path, monkeypatch)
    allow("[my-program]")
    app.run(["provider", "list"])
    listed = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("my-program"))
    assert listed == "my-program         usable  my-program is on PATH; default, large"


def test_a_program_of_ones_own_is_not_used_until_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_program(tmp_path, monkeypatch)
    assert app.run(["provider", "check", "my-program"]) == 64
    assert "add my-program to providers.allow in" in capfd.readouterr().err


def test_a_project_brings_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_program(tmp_path, monkeypatch)
    (settings.user_file().parent / "providers" / "my-program.yaml").unlink()
    for folder in (tmp_path / ".judgekit" / "providers", tmp_path / "providers"):
        folder.mkdir(parents=True)
        (folder / "my-program.yaml").write_text(PROFILE)
    allow("[my-program]")
    assert app.run(["provider", "check", "my-program"]) == 64
    assert "no provider 'my-program'" in capfd.readouterr().err


def test_a_model_that_is_gone_is_named_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGEKIT_MODEL", "judge-4")
    with Loopback(fails(404), models=("tts", "judge-5", "judge-5-mini")) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        assert app.run(["provider", "check"]) == 2
    said = capfd.readouterr().out
    assert "has no model custom/judge-4; it offers judge-5, judge-5-mini, tts" in said


def test_loading_is_not_the_providers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    async def loaded() -> None:
        order.append("loaded")
        await asyncio.sleep(0.2)

    class Quick:
        async def complete(self, *_: object) -> Reply:
            order.append("asked")
            return reply("yes", "m")

        async def aclose(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(litellm, "loaded", loaded)
    checked = asyncio.run(report.check(Quick(), custom("http://127.0.0.1:1/v1")))
    assert (order, checked.ok) == (["loaded", "asked"], True)
    assert checked.latency_ms < 200
