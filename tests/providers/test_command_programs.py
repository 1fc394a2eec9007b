"""What the bundled profiles make of the real programs: a model and nothing else.

`JUDGEKIT_TEST_PROGRAMS` names the folders that hold them, as PATH does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import claude_client
import claude_standin
import pytest
from asking import SCHEMA, ask, failure, request
from loopback import SILENT, Loopback

from judgekit.errors import FailureKind
from judgekit.providers import registry
from judgekit.providers.base import endpoint
from judgekit.providers.command import CommandGateway
from judgekit.providers.registry import CommandProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from claude_standin import Standin

    from judgekit.providers.base import Endpoint


pytestmark = [pytest.mark.slow, pytest.mark.real_client]


@pytest.fixture
def claude(tmp_path: Path) -> Callable[..., Endpoint]:
    """Return the bundled profile's way to a real client, in a home of its own."""
    if (path := claude_client.find()) is None:
        pytest.skip(f"no Claude Code client; {claude_client.VARIABLE} may name one")

    def made(url: str, **variables: str) -> Endpoint:
        environ = {"PATH": f"{path.parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home"), **variables}
        environ |= {"HTTPS_PROXY": url, "NO_PROXY": "127.0.0.1"}
        return endpoint(registry.find("claude-code"), "claude-haiku-5-5", environ)

    return made


TOKEN = {"ANTHROPIC_AUTH_TOKEN": "a-token-that-opens-nothing"}


def test_claude_has_no_tools_and_runs_reads_and_keeps_nothing(
    claude: Callable[..., Endpoint], tmp_path: Path
) -> None:
    home, mark = tmp_path / "home", tmp_path / "hooked"
    (home / ".claude").mkdir(parents=True)
    hook = {"hooks": [{"type": "command", "command": f"touch {mark}"}]}
    hooks = {"SessionStart": [hook], "UserPromptSubmit": [hook], "Stop": [hook]}
    (home / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    (home / ".claude" / "CLAUDE.md").write_text("a private note")
    with claude_standin.serve('{"score": 4}') as api:
        there = claude(api.url, ANTHROPIC_BASE_URL=api.url, **TOKEN)
        reply = ask(CommandGateway(), there, request("the subject", timeout=60))
        bodies = api.messages()
        strays = api.strays
    assert reply.text == '{"score": 4}'
    assert reply.usage[:2] == (10, 5)
    assert reply.usage.cost_source == "provider"  # the client's JSON states it
    assert [body["model"] for body in bodies] == ["claude-haiku-5-5"]
    assert bodies[0].get("tools", []) == []
    assert "You judge." in json.dumps(bodies[0]["system"])
    assert "the subject" in json.dumps(bodies[0]["messages"])
    assert "a private note" not in json.dumps(bodies)
    assert not mark.exists()
    assert list(home.rglob("*.jsonl")) == []
    assert strays == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_claude_is_killed_with_all_that_it_started_when_its_api_is_silent(
    claude: Callable[..., Endpoint], tmp_path: Path
) -> None:
    with Loopback(SILENT) as api:
        url = f"http://127.0.0.1:{api.port}"
        there = claude(url, ANTHROPIC_BASE_URL=url, **TOKEN)
        error = failure(CommandGateway(), there, request("the subject", timeout=8))
        assert error.kind is FailureKind.TIMEOUT
        assert [asked.path.partition("?")[0] for asked in api.requests] == ["/v1/messages"]
    deadline = time.monotonic() + 5
    while _living(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _living(tmp_path) == []


def _living(home: Path) -> list[str]:
    """Return the processes that were given a home below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={home}".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def test_an_account_that_is_not_signed_in_is_told(claude: Callable[..., Endpoint]) -> None:
    error = failure(CommandGateway(), claude("http://127.0.0.1:9"), request(timeout=60))
    assert error.kind is FailureKind.COMMAND_FAILED
    assert "log" in error.message.lower()


VARIABLE = "JUDGEKIT_TEST_PROGRAMS"
PATH = os.environ.get(VARIABLE, "")
PRIVATE = "a private note that no judge may see"
REPLY = '{"reasoning": "fine", "score": 4}'
HARMLESS = {"request_user_input"}  # asks whoever sits there, and nobody does


class World(NamedTuple):
    """A home with a sign-in and private notes, and an API."""

    home: Path
    api: Standin

    def keep(self, name: str, text: str) -> None:
        """Write a file of the user's."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def profile(self, name: str) -> CommandProfile:
        """Return a bundled profile."""
        profile = registry.find(name)
        assert isinstance(profile, CommandProfile)
        if not shutil.which(profile.argv[0], path=PATH):
            pytest.skip(f"no {profile.argv[0]}: name its folder in {VARIABLE}")
        return profile

    def endpoint(self, profile: CommandProfile, model: str) -> Endpoint:
        """Return an endpoint in this world."""
        environ = {
            "PATH": f"{PATH}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "HTTPS_PROXY": self.api.url,
            "NO_PROXY": "127.0.0.1",
        }
        return endpoint(profile, model, environ)


def codex(world: World) -> Endpoint:
    world.keep(".codex/auth.json", '{"auth_mode": "apikey", "OPENAI_API_KEY": "a-key-that-opens-nothing"}')
    world.keep(".codex/AGENTS.md", PRIVATE)
    profile = world.profile("codex")
    there = [
        f'--config=openai_base_url="{world.api.url}/v1"',
        "--config=features.enable_request_compression=false",
    ]
    argv = [*profile.argv[:-1], *there, "-"]
    return world.endpoint(profile.model_copy(update={"argv": argv}), "gpt-6-luna")


def gemini(world: World) -> Endpoint:
    world.keep(".gemini/GEMINI.md", PRIVATE)
    profile = world.profile("gemini-cli")
    # A key instead of the sign-in, which Google itself would have to confirm.
    files = {name: text.replace("oauth-personal", "gemini-api-key") for name, text in profile.files.items()}
    keys = {"GEMINI_API_KEY": "a-key-that-opens-nothing", "GOOGLE_GEMINI_BASE_URL": world.api.url}
    changed = {"files": files, "set_env": {**profile.set_env, **keys}}
    return world.endpoint(profile.model_copy(update=changed), "gemini-3.5-flash-lite")


def opencode(world: World) -> Endpoint:
    sign_in = {"stand-in": {"type": "api", "key": "a-key-that-opens-nothing"}}
    world.keep(".local/share/opencode/auth.json", json.dumps(sign_in))
    world.keep(".config/opencode/AGENTS.md", PRIVATE)
    profile = world.profile("opencode")
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{world.api.url}/v1"},
        "models": {"m": {}},
    }
    config = {"OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"stand-in": provider}})}
    changed = {"set_env": {**profile.set_env, **config}}
    return world.endpoint(profile.model_copy(update=changed), "stand-in/m")


def llm(world: World) -> Endpoint:
    folder = ".config/io.datasette.llm"
    model = f"- {{model_id: m, model_name: m, api_base: '{world.api.url}/v1', api_key_name: mine}}\n"
    world.keep(f"{folder}/extra-openai-models.yaml", model)
    world.keep(f"{folder}/keys.json", '{"mine": "a-key-that-opens-nothing"}')
    return world.endpoint(world.profile("llm"), "m")


PROGRAMS: list[Callable[[World], Endpoint]] = [codex, gemini, opencode, llm]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with claude_standin.serve(REPLY) as api:
        yield World(tmp_path / "home", api)


def tools(body: dict[str, Any]) -> set[str]:
    """Return the names of all tools that a request offers, wherever they stand."""
    listed = [
        *body.get("tools", []),
        *(each for item in body.get("input", []) for each in item.get("tools", [])),
    ]
    return {name for each in listed for name in names(each)}


def names(tool: dict[str, Any]) -> list[str]:
    """Return the name of a tool, or those of the tools in a group."""
    for group in ("tools", "functionDeclarations"):
        if group in tool:
            return [name for each in tool[group] for name in names(each)]
    return [str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_it_has_no_tools_reads_nothing_private_and_keeps_nothing(
    world: World, program: Callable[[World], Endpoint]
) -> None:
    there = program(world)
    before = sorted(world.home.rglob("*"))
    reply = ask(CommandGateway(), there, request("the subject", timeout=60, schema=SCHEMA))
    assert reply.text == REPLY
    assert reply.usage[:2] == (100, 20)
    ((_, _, body, _),) = world.api.posts
    assert tools(body) <= HARMLESS
    sent = json.dumps(body)
    assert "You judge." in sent
    assert "the subject" in sent
    assert PRIVATE not in sent
    left = [path.name for path in sorted(world.home.rglob("*")) if path not in before]
    assert left == (["logs.db"] if program is llm else [])  # in which nothing is logged
    # opencode looks for a plugin's package at the start, and goes on without.
    assert [stray for stray in world.api.strays if not (program is opencode and "npm" in stray)] == []


def test_codex_is_held_to_the_schema_by_its_api_where_there_is_one(world: World) -> None:
    there = codex(world)
    ask(CommandGateway(), there, request(timeout=60, schema=SCHEMA))
    assert world.api.posts[0].body["text"]["format"]["schema"] == SCHEMA
    assert world.api.posts[0].headers["authorization"] == "Bearer a-key-that-opens-nothing"
    ask(CommandGateway(), there, request(timeout=60))
    assert "format" not in world.api.posts[1].body.get("text", {})


def test_a_model_that_llm_does_not_know_is_told(world: World) -> None:
    llm(world)
    error = failure(
        CommandGateway(), world.endpoint(world.profile("llm"), "no-such-model"), request(timeout=60)
    )
    assert error.kind is FailureKind.COMMAND_FAILED
    assert "no-such-model" in error.message
