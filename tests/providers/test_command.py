"""The command gateway: small programs, parsing of printed replies, and the real programs."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from dataclasses import astuple, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import claude_client
import claude_standin
import pytest
from asking import SCHEMA, ask, failure, request
from engine_processes import is_gone, is_running
from making import call_usage
from ruamel.yaml import YAML

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import command, registry
from judgekit.providers.base import INSIDE_VARIABLE, Endpoint, Message, Reply, build_endpoint
from judgekit.providers.command import CommandGateway
from judgekit.providers.registry import CommandProfile, Price, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from claude_standin import Standin

SECRET = "token-0123456789"


def program(code: str, *words: str, **more: Any) -> Endpoint:  # noqa: ANN401 - keys of a profile
    profile = CommandProfile.model_validate(
        {
            "provider": "program",
            "title": "A program",
            "kind": "command",
            "detect": {"command": "python3"},
            "output": "text",
            "argv": [sys.executable, "-c", code, *words],
            "keep_env": ["KEPT_TOKEN"],
            **more,
        }
    )
    return build_endpoint(
        profile, "a-model", {**os.environ, "KEPT_TOKEN": SECRET, "OPENAI_API_KEY": "no"}
    )


READ = "import sys; print(sys.stdin.read())"
ARGUMENTS = "import sys; print(sys.argv[1:], sys.stdin.read())"
FILE = "import sys; print(open(sys.argv[1]).read(), sys.stdin.read(), sep='|')"


def test_what_a_program_is_given() -> None:
    def said(there: Endpoint, **asked: Any) -> str:  # noqa: ANN401 - parts of a request
        return ask(CommandGateway(), there, replace(request(), **asked)).text

    user = (Message("system", "Say {model}."), Message("user", "one"))
    talk = (Message("user", "one"), Message("assistant", "two"), Message("user", "three"))
    assert ask(CommandGateway(), program(READ), request("x")).model == "a-model"
    assert said(program(READ), messages=user) == "Say {model}.\n\none"
    assert said(program(READ), messages=talk) == "[user]\none\n\n[assistant]\ntwo\n\n[user]\nthree"
    assert said(program(ARGUMENTS, "--model={model}", "{system}"), messages=user) == (
        "['--model=a-model', 'Say {model}.'] one"
    )
    # A system message in a file is not in the prompt, and never filled.
    assert said(program(FILE, "{folder}/system", files={"system": "{system}"}), messages=user) == (
        "Say {model}.|one"
    )
    assert "JSON Schema" in said(program(READ), schema=SCHEMA)
    assert (
        json.loads(said(program("import sys; print(sys.argv[1])", "{schema}"), schema=SCHEMA))
        == SCHEMA
    )
    assert (
        json.loads(said(program(FILE, "{schema_file}"), schema=SCHEMA).partition("|")[0]) == SCHEMA
    )
    # An argument for a schema or a model is left out if there's none.
    there = program(
        ARGUMENTS, "--model={model}", "--schema={schema}", "--file={schema_file}", "end"
    )
    assert said(there, messages=user[1:]).startswith("['--model=a-model', 'end']")
    assert said(replace(there, model="default"), messages=user[1:]).startswith("['end']")


def test_files_links_and_variables_are_laid_out_beside_the_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GITHUB_TOKEN", "no")
    (tmp_path / "second").write_text("signed in")
    code = (
        "import json, os, pathlib; home = pathlib.Path(os.environ['HOME']); sign_in = home / 'sign-in';"
        "text = sign_in.read_text(); sign_in.write_text('renewed');"
        "beside = (home / '../a/b.json').read_text();"
        "there = [os.listdir(), os.getcwd(), dict(os.environ), (home / 'none').exists()];"
        "print(json.dumps([text, json.loads(beside), *there]))"
    )
    there = program(
        code,
        files={"a/b.json": '{"system": {system_json}, "model": {model_json}, "not": {}}'},
        links={
            "home/sign-in": ["$KEPT_TOKEN/first", "~/first", "~/second"],
            "home/none": ["~/third"],
        },
        set_env={"HOME": "{folder}/home"},
    )
    reply = ask(CommandGateway(), there, request("{folder}"))
    text, beside, files, folder, seen, is_linked = json.loads(reply.text)
    assert (text, beside) == ("signed in", {"system": "You judge.", "model": "a-model", "not": {}})
    assert (files, is_linked, Path(folder).exists()) == ([], False, False)
    assert (tmp_path / "second").read_text() == "renewed"
    own = {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"}  # what Python and macOS set themselves
    assert set(seen) - own == {"PATH", "HOME", "KEPT_TOKEN", "JUDGEKIT_DISABLE", "JUDGEKIT_INSIDE"}
    assert (seen["JUDGEKIT_DISABLE"], bool(seen["JUDGEKIT_INSIDE"])) == ("1", True)


def test_the_reply_may_be_in_a_file() -> None:
    code = "import sys; print('noise'); open(sys.argv[1], 'w').write('the last message')"
    there = program(code, "{folder}/last.txt", reply_file="last.txt")
    assert ask(CommandGateway(), there, request()).text == "the last message"
    there = program("print('noise')", reply_file="last.txt")
    assert failure(CommandGateway(), there, request()).kind is FailureKind.INVALID_REPLY


ESCAPES = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9)'], start_new_session={session});"
)


@pytest.mark.slow
def test_a_child_that_left_the_group_delays_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    ends = {
        "time.sleep(60)": "timeout",
        "print('x' * 2_000_000)": "command_failed",
        "": "invalid_reply",
    }
    for end, kind in ends.items():
        error = failure(
            CommandGateway(), program(ESCAPES.format(session=True) + end), request(timeout=2)
        )
        gc.collect()  # anything left open would complain now
        assert (str(error.kind), capfd.readouterr().err) == (kind, "")
    for session in (False, True):
        code = ESCAPES.format(session=session) + "print('whole')"
        assert ask(CommandGateway(), program(code), request(timeout=8)).text == "whole"


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere no environment of a process can be read"
)
@pytest.mark.parametrize("start", ["group", "orphan"])
def test_a_call_that_is_cut_off_ends_what_the_program_started(tmp_path: Path, start: str) -> None:
    place = tmp_path / "pid"
    sleeps = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    starts = f"subprocess.Popen([sys.executable, '-c', {sleeps!r}], start_new_session={start != 'group'})"
    through = f"import subprocess, sys; {starts}"
    code = f"subprocess.run([sys.executable, '-c', {through!r}])" if start == "orphan" else starts
    there = program(f"import subprocess, sys, time; {code}; time.sleep(60)")
    assert failure(CommandGateway(), there, request(timeout=3)).kind is FailureKind.TIMEOUT
    child = int(place.read_text())
    assert is_gone(child, 5)


@pytest.mark.slow
def test_what_a_program_leaves_that_ended_by_itself_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "pid"
    child = """[sys.executable, '-c', 'import time; time.sleep(20)'], start_new_session=True,
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"""
    code = (
        f"import subprocess, sys; p = subprocess.Popen({child});"
        f"open({str(place)!r}, 'w').write(str(p.pid)); print('whole')"
    )
    assert ask(CommandGateway(), program(code), request()).text == "whole"
    served = int(place.read_text())
    try:
        assert is_running(served)
    finally:
        os.kill(served, signal.SIGKILL)


def test_each_way_to_fail_is_told() -> None:
    cases: list[tuple[str, str, str]] = [
        (
            "import sys; print('first\\nlast', file=sys.stderr); sys.exit(3)",
            "command_failed",
            "with 3: last",
        ),
        ("import sys; sys.exit(1)", "command_failed", "with 1: no message"),
        (f"import sys; sys.exit('bad {SECRET}')", "command_failed", "with 1: bad [key]"),
        ("pass", "invalid_reply", "printed nothing"),
        (f"print('x' * {command.MAX_OUTPUT_BYTES + 1})", "command_failed", "printed more than"),
    ]
    for code, kind, message in cases:
        error = failure(CommandGateway(), program(code), request())
        assert (str(error.kind), message in error.message) == (kind, True), error.message


def test_a_message_about_too_many_errors_names_their_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_MAX_STDERR_BYTES", 1000)
    code = "import sys; print('x' * 1001, file=sys.stderr)"
    error = failure(CommandGateway(), program(code), request())
    assert error.message == "printed more than 1000 bytes to stderr"


@pytest.mark.slow
def test_no_more_programs_run_at_a_time_than_the_profile_allows(tmp_path: Path) -> None:
    code = f"import time; open({str(tmp_path / 'ran')!r}, 'a').write('x'); time.sleep(60)"
    there = program(code, limits={"concurrency": 1})

    async def run() -> tuple[BaseException | Reply, BaseException | Reply]:
        gateway = CommandGateway()
        other = replace(there, model="another")
        calls = (
            gateway.complete(there, request(timeout=3)),
            gateway.complete(other, request(timeout=0.5)),
        )
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second = asyncio.run(run())
    assert isinstance(first, GatewayError)
    assert isinstance(second, GatewayError)
    assert "did not reply within 3 s" in first.message
    assert "no turn within 0.5 s" in second.message
    assert (tmp_path / "ran").read_text() == "x"


def test_what_is_not_there_and_what_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failure(CommandGateway(), program("", argv=["judgekit-no-such-program"]), request())
    assert (error.kind, "cannot be started" in error.message) == (FailureKind.COMMAND_FAILED, True)
    assert ask(CommandGateway(), program("print('yes')"), request("x" * 1_000_000)).text == "yes"
    code = 'import sys; print(\'{"result": "Not logged in"}\'); sys.exit(1)'
    error = failure(CommandGateway(), program(code, reply="json", reply_key="result"), request())
    assert error.message.endswith("exited with 1: Not logged in")
    monkeypatch.setenv(
        INSIDE_VARIABLE, "1"
    )  # a program that judgekit runs cannot make it run another
    error = failure(CommandGateway(), program("print(1)"), request())
    assert error.kind is FailureKind.COMMAND_FAILED


TEXT = '{"score": 4}'
PRINTED = YAML(typ="safe").load(
    Path(__file__).with_name("printed.yaml").read_text().replace("TEXT", repr(TEXT))
)
BY_PROGRAM = {row["program"]: row for row in PRINTED}


def lines(values: list[Any]) -> str:
    return "\n".join(json.dumps(value) for value in values)


def bundled(name: str) -> Endpoint:
    return build_endpoint(registry.find(name), "a-model", {})


def read(output: str, there: Endpoint) -> Reply:
    assert isinstance(there.profile, CommandProfile)
    return command.parse_reply(output, there.profile, there)


def test_what_each_bundled_program_prints() -> None:
    for name, row in BY_PROGRAM.items():
        output = lines(row["lines"]) if "lines" in row else json.dumps(row["json"], indent=2)
        reply = read(output, bundled(name))
        assert (reply.text, reply.model) == (TEXT, row.get("model", "a-model"))
        costs = (row["cost"], "provider") if "cost" in row else (None, None)
        counts, unpriced = row["usage"], 0 if "cost" in row else 1
        assert astuple(reply.usage) == (*counts[:2], *costs, *counts[2:], unpriced), name


def test_what_is_no_reply_is_a_failure() -> None:
    outputs = ("", "\n", "null", "[]", "{}", "4", "[" * 100_000, '{"a": ' * 50_000)
    for name, output in product(BY_PROGRAM, outputs):
        with pytest.raises(GatewayError) as caught:
            read(output, bundled(name))
        assert caught.value.kind is FailureKind.INVALID_REPLY, name


def test_a_cost_or_a_count_that_is_no_amount_is_not_known() -> None:
    for cost in ("NaN", "Infinity", "-Infinity", "1" + "0" * 400, "true", '"free"'):
        output = json.dumps(BY_PROGRAM["claude-code"]["json"]).replace("0.25", cost)
        reply = read(output, bundled("claude-code"))
        assert (reply.text, reply.usage.cost_usd, reply.usage.cost_source) == (TEXT, None, None)
    there = program("", reply="json", reply_key="text", usage={"input": ["read"], "cost": "cost"})
    for count in ('"many"', "null", "true", "{}", "-5"):
        assert read(f'{{"text": "yes", "read": {count}}}', there).usage == call_usage(
            unpriced_calls=1
        )


def test_the_reply_is_found_among_words_and_other_lines() -> None:
    separators = "one\u2028two\u2029three\x85four"  # which JSON takes as they are
    printed = json.dumps({"text": separators}, ensure_ascii=False)
    wanted = {"kind": "reply", "final": True}
    others = [
        {**wanted, "final": False, "text": "no"},
        {"kind": "thought", "final": True, "text": "no"},
    ]
    mixed = lines([{**wanted, "text": "yes"}, *others, {"text": "no"}])
    table: list[tuple[str, dict[str, Any], str, str]] = [
        ("json", {}, 'A warning.\n{"text": "yes"}', "yes"),
        ("json", {}, 'A {warning}.\n{\n "text": "yes"\n}\nDone.', "yes"),
        ("jsonl", {}, f"Starting\r\n{printed}\r\nDone.", separators),
        ("jsonl", {}, 'Starting\n{"text": "no"}\n{"text": "yes"}\n{"text": "cut', "yes"),
        ("jsonl", {"reply_where": wanted}, mixed, "yes"),
    ]
    for reply, more, output, text in table:
        assert read(output, program("", reply=reply, reply_key="text", **more)).text == text, output


def test_a_failure_says_what_the_program_said_and_what_it_took() -> None:
    told = {
        "type": "error",
        "error": {"name": "ApiError", "data": {"message": "Your quota\nis spent"}},
    }
    with pytest.raises(GatewayError) as caught:
        read(lines([told, BY_PROGRAM["opencode"]["lines"][2]]), bundled("opencode"))
    problem = "opencode printed no JSON with 'part.text' where type is 'text': Your quota is spent"
    usage = call_usage(100, 20, 0.25, "provider", cache_read_tokens=30, cache_write_tokens=10)
    assert (caught.value.message, caught.value.usage) == (problem, usage)


# What is ended by its mark

MARK = secrets.token_hex(16)  # tests of other processes look through the whole machine, too


def test_a_price_in_the_profile_goes_before_what_the_program_says() -> None:
    price = {"a-": Price(input=1, output=2, cache_read=0).model_dump()}
    there = program(
        "",
        reply="json",
        reply_key="text",
        price=price,
        usage={"input": ["read"], "output": ["written"], "cache_read": ["kept"], "cost": "cost"},
    )
    reply = read('{"text": "yes", "read": 100, "written": 10, "kept": 40, "cost": 9}', there)
    assert reply.usage.cost_usd == pytest.approx((60 + 20) / 1e6)
    assert reply.usage.cost_source == "profile"


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux alone shows")
def test_those_with_the_mark_are_ended_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    code = ["-c", "import time; print(flush=True); time.sleep(60)"]
    inside = ("", f"{MARK}0", f"0{MARK}", MARK, MARK)
    environs = [
        {"NOT_JUDGEKIT_INSIDE": MARK, "NOTE": f"JUDGEKIT_INSIDE={MARK}", INSIDE_VARIABLE: each}
        for each in inside
    ]
    processes = [
        subprocess.Popen([sys.executable, *code], env=each, stdout=subprocess.PIPE)
        for each in environs
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            with process.stdout:
                process.stdout.readline()  # now it has the environment it was given
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(sys, "platform", "darwin")
            assert command.kill_marked(MARK) == 0
        assert [process.poll() for process in processes] == [None] * 5
        assert command.kill_marked(MARK) == 2
        assert [process.wait(5) for process in processes[3:]] == [-9, -9]
        assert [process.poll() for process in processes[:3]] == [None] * 3
    finally:
        for process in processes:
            process.kill()
            process.wait()


VARIABLE = "JUDGEKIT_TEST_PROGRAMS"
PATH = os.environ.get(VARIABLE, "")
PRIVATE = "a private note that no judge may see"
REPLY = '{"reasoning": "fine", "score": 4}'
HARMLESS = {"request_user_input"}  # asks a person at the terminal; there is none


class World(NamedTuple):
    """A home with a sign-in and private notes, and an API."""

    home: Path
    api: Standin

    def keep(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def profile(self, name: str) -> CommandProfile:
        profile = registry.find(name)
        assert isinstance(profile, CommandProfile)
        if not shutil.which(profile.argv[0], path=PATH):
            pytest.skip(f"no {profile.argv[0]}: name its folder in {VARIABLE}")
        return profile

    def endpoint(
        self, profile: Profile, model: str, path: str = PATH, **variables: str
    ) -> Endpoint:
        environ = {
            "PATH": f"{path}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "HTTPS_PROXY": self.api.url,
            "NO_PROXY": "127.0.0.1",
        }
        return build_endpoint(profile, model, environ | variables)


def claude(world: World, **variables: str) -> Endpoint:
    if (path := claude_client.find()) is None:
        pytest.skip(f"no Claude Code client; {claude_client.VARIABLE} may name one")
    hook = {"hooks": [{"type": "command", "command": f"touch {world.home}/hooked"}]}
    hooks = {event: [hook] for event in ("SessionStart", "UserPromptSubmit", "Stop")}
    world.keep(".claude/settings.json", json.dumps({"hooks": hooks}))
    world.keep(".claude/CLAUDE.md", PRIVATE)
    return world.endpoint(
        registry.find("claude-code"), "claude-haiku-5-5", str(path.parent), **variables
    )


def signed_in(world: World) -> Endpoint:
    token = "a-token-that-opens-nothing"
    return claude(world, ANTHROPIC_BASE_URL=world.api.url, ANTHROPIC_AUTH_TOKEN=token)


def codex(world: World) -> Endpoint:
    world.keep(
        ".codex/auth.json", '{"auth_mode": "apikey", "OPENAI_API_KEY": "a-key-that-opens-nothing"}'
    )
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
    files = {
        name: text.replace("oauth-personal", "gemini-api-key")
        for name, text in profile.files.items()
    }
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
    model = (
        f"- {{model_id: m, model_name: m, api_base: '{world.api.url}/v1', api_key_name: mine}}\n"
    )
    world.keep(f"{folder}/extra-openai-models.yaml", model)
    world.keep(f"{folder}/keys.json", '{"mine": "a-key-that-opens-nothing"}')
    return world.endpoint(world.profile("llm"), "m")


PROGRAMS: list[Callable[[World], Endpoint]] = [signed_in, codex, gemini, opencode, llm]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with claude_standin.Standin(REPLY) as api:
        yield World(tmp_path / "home", api)


def tools(body: dict[str, Any]) -> set[str]:
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


@pytest.mark.slow
@pytest.mark.real_client
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_it_has_no_tools_reads_nothing_private_and_keeps_nothing(
    world: World, program: Callable[[World], Endpoint]
) -> None:
    there = program(world)
    before = sorted(world.home.rglob("*"))
    reply = ask(CommandGateway(), there, request("the subject", timeout=60, schema=SCHEMA))
    assert reply.text == REPLY
    assert astuple(reply.usage)[:2] == ((10, 5) if program is signed_in else (100, 20))
    (body,) = (each.body for each in world.api.posts)
    assert tools(body) <= HARMLESS
    sent = json.dumps(body)
    assert "You judge." in sent
    assert "the subject" in sent
    assert PRIVATE not in sent
    left = [path.name for path in sorted(world.home.rglob("*")) if path not in before]
    if program is signed_in:
        assert (body["model"], reply.usage.cost_source) == ("claude-haiku-5-5", "provider")
        assert not [name for name in left if name == "hooked" or name.endswith(".jsonl")]
    else:
        assert left == (["logs.db"] if program is llm else [])  # in which nothing is logged
    # opencode looks for a plugin's package at the start, and goes on without.
    assert [
        stray for stray in world.api.strays if not (program is opencode and "npm" in stray)
    ] == []


@pytest.mark.slow
@pytest.mark.real_client
def test_codex_is_held_to_the_schema_by_its_api_where_there_is_one(world: World) -> None:
    there = codex(world)
    ask(CommandGateway(), there, request(timeout=60, schema=SCHEMA))
    assert world.api.posts[0].body["text"]["format"]["schema"] == SCHEMA
    assert world.api.posts[0].headers["authorization"] == "Bearer a-key-that-opens-nothing"
    ask(CommandGateway(), there, request(timeout=60))
    assert "format" not in world.api.posts[1].body.get("text", {})
