"""`provider list` and `provider check`: which providers can be used, and whether their models answer."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

import pytest
from asking import KEY, custom
from loopback import Loopback, fails, says
from making import reply

from judgekit.cli import app
from judgekit.config import settings
from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import litellm, local, registry, servers
from judgekit.providers.gateway import check
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.resolve import PanelRequest, ProviderState, provider_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.providers.base import Gateway, Reply


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_provider_says_what_makes_it_usable_or_what_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"http://127.0.0.1:11434/v1": ["qwen2.5:7b"], "http://127.0.0.1:1234/v1": []}
    monkeypatch.setattr(servers, "models", lambda base, seconds=0.3: answers.get(base))

    def states(environ: Mapping[str, str], wanted: PanelRequest | None = None) -> dict[str, ProviderState]:
        return {state.name: state for state in provider_report(environ, wanted)}

    found = states({"ANTHROPIC_API_KEY": KEY, "PATH": "/nowhere"})
    assert (found["anthropic"].usable, found["anthropic"].why) == (True, "ANTHROPIC_API_KEY set")
    assert (found["gemini"].usable, found["gemini"].why) == (False, "set GEMINI_API_KEY or GOOGLE_API_KEY")
    assert found["azure"].why == "set AZURE_API_KEY with AZURE_API_BASE"
    assert found["ollama"].why == "answers at http://127.0.0.1:11434/v1"
    assert found["ollama"].models["deep"] == "qwen2.5:7b"
    assert found["lm-studio"].why == "it has no chat model"
    assert found["llama-server"].why == "no server responds on port 8080"
    assert found["claude-code"].why == (
        "not allowed: add claude-code to providers.allow in your own configuration; no command claude on PATH"
    )
    assert KEY not in str(found)
    found = states({"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}, PanelRequest(allow=["openai"]))
    assert (found["anthropic"].usable, found["openai"].usable) == (False, True)
    assert "not allowed" in found["anthropic"].why
    assert list(found) == [profile.provider for profile in registry.profiles()]


def checked(base: str, gateway: Gateway | None = None) -> tuple[Reply | GatewayError, int]:
    return asyncio.run(check(gateway or LitellmGateway(), custom(base), 5))


def test_a_check_is_one_tiny_call() -> None:
    with Loopback(says("yes")) as server:
        found, _ = checked(server.base)
        assert [asked.body["max_tokens"] for asked in server.requests] == [16]
    assert getattr(found, "text", None) == "yes"
    with Loopback(fails(401)) as server:
        found, _ = checked(server.base)
    assert isinstance(found, GatewayError)
    assert found.kind is FailureKind.AUTHENTICATION
    assert "it went wrong" in found.message


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
    found, milliseconds = checked("http://127.0.0.1:1/v1", Quick())
    assert (order, getattr(found, "text", None)) == (["loaded", "asked"], "yes")
    assert milliseconds < 200


def allow(names: str) -> None:
    file = settings.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"providers: {{allow: {names}}}\n")


def test_the_alias_of_a_provider_is_as_good_as_its_name(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
    with Loopback(says("yes")) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        for allowed, name in (("custom", "openai-compatible"), ("openai-compatible", "custom")):
            allow(f"[{allowed}]")
            assert app.run(["provider", "check", name]) == 0
            assert "custom/stand-in: answered in" in capfd.readouterr().out
    with Loopback(says("Yes, of course, because", finish="length")) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        assert app.run(["provider", "check"]) == 0  # a model that is cut short did answer
        assert "custom/stand-in: answered in" in capfd.readouterr().out
    monkeypatch.setenv("JUDGEKIT_MODEL", "judge-4")
    with Loopback(fails(404), models=("tts", "judge-5", "judge-5-mini")) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        assert app.run(["provider", "check"]) == 2
    said = capfd.readouterr().out
    assert "has no model custom/judge-4; it offers judge-5, judge-5-mini, tts" in said


def test_a_program_that_is_not_allowed_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for allowed in ("null", "[openai]"):
        allow(allowed)
        assert app.run(["provider", "check", "claude-code"]) == 64
        said = capfd.readouterr().err
        assert "add claude-code to providers.allow in" in said
        assert str(settings.user_file()) in said
    assert not (tmp_path / "started").exists()


def test_a_model_that_is_here_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(local, "fetch", lambda name, _: fetched.append(name))
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


def test_a_program_of_ones_own_is_listed_and_tried_with_every_model_once_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "my-program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-another-provider")
    allow("[my-program]")
    for folder in (tmp_path / ".judgekit" / "providers", tmp_path / "providers"):
        folder.mkdir(parents=True)
        (folder / "my-program.yaml").write_text(PROFILE)
    assert app.run(["provider", "check", "my-program"]) == 64  # a project brings no program
    assert "no provider 'my-program'" in capfd.readouterr().err
    own = settings.user_file().parent / "providers"
    own.mkdir()
    (own / "my-program.yaml").write_text(PROFILE)
    allow("null")
    assert app.run(["provider", "check", "my-program"]) == 64
    assert "add my-program to providers.allow in" in capfd.readouterr().err
    allow("[my-program]")
    app.run(["provider", "list"])
    listed = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("my-program"))
    assert listed == "my-program         usable  my-program is on PATH; default, large"
    assert app.run(["provider", "check", "my-program"]) == 2
    good, bad = capfd.readouterr().out.splitlines()
    assert re.fullmatch(
        r"my-program         default: answered in \d+ ms as small-2026, "
        r"\$0.000125 \(as the provider reports\)",
        good,
    )
    assert bad == (
        "my-program         large: command_failed: my-program exited with 1: large is gone; there are: small"
    )
