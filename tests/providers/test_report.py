"""Which models there are: what local servers list, provider list and provider check."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import time
from typing import TYPE_CHECKING

import pytest
from asking import KEY, custom
from loopback import DRIP, RESET, SILENT, Answer, Asked, Loopback, fails, says, sends
from making import reply

from judgekit.cli import app
from judgekit.config import settings
from judgekit.errors import FailureKind
from judgekit.providers import litellm, local, registry
from judgekit.providers import servers as lists
from judgekit.providers.gateway import Checked, check
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.resolve import PanelRequest, ProviderState, provider_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.providers.base import Endpoint, Reply


class Listing(Loopback):
    """A server that answers the question for its models with anything."""

    def __init__(self, listing: Answer) -> None:
        super().__init__()
        self._listing = listing

    def answer(self, asked: Asked) -> Answer:
        return self._listing if asked.path == "/v1/models" else fails(404)


def listing(*names: str) -> Answer:
    return sends({"object": "list", "data": [{"id": name} for name in names]})


def test_models_come_in_the_servers_order_without_those_that_cannot_chat() -> None:
    names = (
        "nomic-embed-text",
        "qwen2.5:7b",
        "bge-m3",
        "text-embedding-x",
        "whisper-1",
        "llama-3",
        "rerank-2",
    )
    with Listing(listing(*names)) as server:
        assert lists.models(server.base) == ["qwen2.5:7b", "llama-3"]


@pytest.mark.parametrize(
    "answer",
    [
        fails(404),
        fails(500),
        RESET,
        SILENT,
        DRIP,
        sends(b"<html>"),
        sends([1]),
        sends({"models": []}),
        sends({"data": 3}),
        sends(b"\xff\xfe"),
    ],
)
def test_what_is_no_model_server_is_none_in_time(answer: Answer) -> None:
    start = time.monotonic()
    with Listing(answer) as server:
        assert lists.models(server.base, 0.3) is None
    assert time.monotonic() - start < 3


def test_nothing_there_and_a_flood_are_none_and_an_empty_list_is_a_server() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert lists.models(f"http://127.0.0.1:{port}/v1") is None
    with Listing(listing()) as server:
        assert lists.models(server.base) == []
    with Listing(sends(b" " * 3_000_000)) as server:
        assert lists.models(server.base) is None


@pytest.mark.parametrize(
    "base",
    ["https://127.0.0.1/v1", "http://a.example.org/v1", "http://127.0.0.1.example.org/v1", "x", ""],
)
def test_only_this_machine_is_asked(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(socket, "create_connection", forbidden)
    assert lists.models(base) is None


def test_several_are_asked_at_once() -> None:
    with Listing(SILENT) as one, Listing(SILENT) as two, Listing(listing("a")) as three:
        start = time.monotonic()
        assert lists.models_of_all([one.base, two.base, three.base], 0.5) == [None, None, ["a"]]
    assert time.monotonic() - start < 3
    assert lists.models_of_all([]) == []


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str] | None]:
    answers: dict[str, list[str] | None] = {}
    monkeypatch.setattr(lists, "models", lambda base, seconds=0.3: answers.get(base))
    return answers


def states(environ: Mapping[str, str], wanted: PanelRequest | None = None) -> dict[str, ProviderState]:
    return {provider_state.name: provider_state for provider_state in provider_report(environ, wanted)}


def checked(endpoint: Endpoint) -> Checked:
    async def run() -> Checked:
        gateway = LitellmGateway()
        try:
            return await check(gateway, endpoint, 5)
        finally:
            await gateway.aclose()

    return asyncio.run(run())


def test_each_provider_says_what_makes_it_usable_or_what_is_lacking(
    servers: dict[str, list[str] | None],
) -> None:
    servers["http://127.0.0.1:11434/v1"] = ["qwen2.5:7b"]
    servers["http://127.0.0.1:1234/v1"] = []
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


@pytest.mark.usefixtures("servers")
def test_what_is_not_allowed_is_said_to_be() -> None:
    found = states({"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}, PanelRequest(allow=["openai"]))
    assert (found["anthropic"].usable, found["openai"].usable) == (False, True)
    assert "not allowed" in found["anthropic"].why
    assert list(found) == [profile.provider for profile in registry.profiles()]


def test_a_check_is_one_tiny_call() -> None:
    with Loopback(says("yes")) as server:
        result = checked(custom(server.base))
        asked = server.requests
    assert (result.failure, result.provider) == (None, "openai-compatible")
    assert result.latency_ms >= 0
    assert len(asked) == 1
    assert asked[0].body["max_tokens"] == 16

    with Loopback(fails(401)) as server:
        result = checked(custom(server.base))
    assert result.failure == FailureKind.AUTHENTICATION
    assert "it went wrong" in result.message
    with Loopback(says("Yes, of course, because", finish="length")) as server:
        assert checked(custom(server.base)).failure is None  # a model that is cut short did answer


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


def own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my-program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-another-provider")
    folder = settings.user_file().parent / "providers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my-program.yaml").write_text(PROFILE)


def test_a_program_of_ones_own_is_listed_and_tried_with_every_model_once_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_program(tmp_path, monkeypatch)
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
    checked = asyncio.run(check(Quick(), custom("http://127.0.0.1:1/v1")))
    assert (order, checked.failure) == (["loaded", "asked"], None)
    assert checked.latency_ms < 200
