"""The command gateway against small programs."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asking import SCHEMA, SLACK, ask, failure, request

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import command
from judgekit.providers.base import INSIDE, Endpoint, Message, Reply, endpoint
from judgekit.providers.command import CommandGateway
from judgekit.providers.registry import CommandProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

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
    return endpoint(profile, "a-model", {**os.environ, "KEPT_TOKEN": SECRET, "OPENAI_API_KEY": "no"})


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
    assert json.loads(said(program("import sys; print(sys.argv[1])", "{schema}"), schema=SCHEMA)) == SCHEMA
    assert json.loads(said(program(FILE, "{schema_file}"), schema=SCHEMA).partition("|")[0]) == SCHEMA
    # An argument for a schema or a model is left out where there is none.
    there = program(ARGUMENTS, "--model={model}", "--schema={schema}", "--file={schema_file}", "end")
    assert said(there, messages=user[1:]).startswith("['--model=a-model', 'end']")
    assert said(replace(there, model="default"), messages=user[1:]).startswith("['end']")


def test_files_and_variables_are_laid_out_beside_the_empty_folder() -> None:
    code = "import os; print(open(os.environ['MINE'] + '/a/b.json').read(), os.listdir())"
    there = program(
        code,
        files={"a/b.json": '{"system": {system_json}, "model": {model_json}, "not": {}}'},
        set_env={"MINE": "{folder}"},
    )
    text, files = ask(CommandGateway(), there, request("{folder}")).text.rsplit(" ", 1)
    assert json.loads(text) == {"system": "You judge.", "model": "a-model", "not": {}}
    assert files == "[]"


def test_a_file_of_the_users_can_be_read_and_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "second").write_text("signed in")
    code = (
        "import os, pathlib; path = pathlib.Path(os.environ['HOME'], 'sign-in'); text = path.read_text();"
        "path.write_text('renewed'); print(text, os.path.exists(os.environ['HOME'] + '/none'))"
    )
    there = program(
        code,
        links={"home/sign-in": ["$KEPT_TOKEN/first", "~/first", "~/second"], "home/none": ["~/third"]},
        set_env={"HOME": "{folder}/home"},
    )
    assert ask(CommandGateway(), there, request()).text == "signed in False"
    assert (tmp_path / "second").read_text() == "renewed"


def test_the_reply_may_be_in_a_file() -> None:
    code = "import sys; print('noise'); open(sys.argv[1], 'w').write('the last message')"
    there = program(code, "{folder}/last.txt", reply_file="last.txt")
    assert ask(CommandGateway(), there, request()).text == "the last message"
    there = program("print('noise')", reply_file="last.txt")
    assert failure(CommandGateway(), there, request()).kind is FailureKind.INVALID_REPLY


def test_the_program_sees_an_empty_folder_and_a_scrubbed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "no")
    code = "import json, os; print(json.dumps([os.listdir(), dict(os.environ), os.getcwd()]))"
    reply = ask(CommandGateway(), program(code, set_env={"QUIET": "1"}), request())
    files, seen, folder = json.loads(reply.text)
    own = {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"}  # what Python and macOS set themselves
    names = {"PATH", "HOME", "KEPT_TOKEN", "QUIET", "JUDGEKIT_DISABLE", "JUDGEKIT_INSIDE"}
    assert set(seen) - own == names
    assert (seen["JUDGEKIT_DISABLE"], bool(seen["JUDGEKIT_INSIDE"])) == ("1", True)
    assert files == []
    assert not Path(folder).exists()


def test_a_program_that_judgekit_runs_cannot_make_it_run_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSIDE, "1")
    error = failure(CommandGateway(), program("print(1)"), request())
    assert error.kind is FailureKind.COMMAND_FAILED


ESCAPES = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9)'], start_new_session=True);"
)


@pytest.mark.parametrize(
    ("end", "kind"),
    [("time.sleep(60)", "timeout"), ("print('x' * 2_000_000)", "command_failed"), ("", "invalid_reply")],
)
def test_a_child_that_left_the_group_delays_nothing(
    end: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    error = failure(CommandGateway(), program(ESCAPES + end), request(timeout=2))
    gc.collect()  # what was left open would complain now
    assert (str(error.kind), time.monotonic() - start < 2 + SLACK) == (kind, True)
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no environment of a process can be read")
@pytest.mark.parametrize("start", ["group", "session", "orphan"])
def test_a_call_that_is_cut_off_ends_what_the_program_started(tmp_path: Path, start: str) -> None:
    place = tmp_path / "pid"
    sleeps = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    starts = f"subprocess.Popen([sys.executable, '-c', {sleeps!r}], start_new_session={start != 'group'})"
    through = f"import subprocess, sys; {starts}"
    code = f"subprocess.run([sys.executable, '-c', {through!r}])" if start == "orphan" else starts
    there = program(f"import subprocess, sys, time; {code}; time.sleep(60)")
    assert failure(CommandGateway(), there, request(timeout=3)).kind is FailureKind.TIMEOUT
    child = int(place.read_text())
    deadline = time.monotonic() + 5
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(child)


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
        assert _lives(served)
    finally:
        os.kill(served, signal.SIGKILL)


@pytest.mark.parametrize("session", [False, True])
def test_a_reply_counts_though_a_child_keeps_the_pipes(*, session: bool) -> None:
    child = f"[sys.executable, '-c', 'import time; time.sleep(9)'], start_new_session={session}"
    code = f"import subprocess, sys; subprocess.Popen({child}); print('whole')"
    assert ask(CommandGateway(), program(code), request(timeout=8)).text == "whole"


def _lives(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    if status.parent.parent.joinpath("self").exists():
        return status.exists() and "State:\tZ" not in status.read_text()
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("import sys; print('first\\nlast', file=sys.stderr); sys.exit(3)", "command_failed", "with 3: last"),
        ("import sys; print('said'); sys.exit(1)", "command_failed", "with 1: said"),
        ("import sys; sys.exit(1)", "command_failed", "with 1: no message"),
        (f"import sys; sys.exit('bad {SECRET}')", "command_failed", "with 1: bad [key]"),
        ("pass", "invalid_reply", "printed nothing"),
        (f"print('x' * {command.MAX_OUTPUT + 1})", "command_failed", "printed more than"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "command_failed", "with -15"),
    ],
)
def test_each_way_to_fail_is_told(code: str, kind: str, message: str) -> None:
    error = failure(CommandGateway(), program(code), request())
    assert (str(error.kind), message in error.message) == (kind, True), error.message


def test_no_more_programs_run_at_a_time_than_the_profile_allows(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; here = sys.argv[1]; mine = here + '/' + str(os.getpid());"
        "open(mine, 'w').close(); print(len(os.listdir(here))); sys.stdout.flush();"
        "time.sleep(0.3); os.unlink(mine)"
    )
    there = program(code, str(tmp_path), limits={"concurrency": 2})

    async def run() -> list[int]:
        gateway = CommandGateway()
        models = (replace(there, model=f"model-{place % 2}") for place in range(5))
        replies = await asyncio.gather(*(gateway.complete(model, request(timeout=60)) for model in models))
        return [int(reply.text) for reply in replies]

    assert max(asyncio.run(run())) == 2


def test_a_program_that_never_had_its_turn_was_not_run(tmp_path: Path) -> None:
    code = f"import time; open({str(tmp_path / 'ran')!r}, 'a').write('x'); time.sleep(60)"
    there = program(code, limits={"concurrency": 1})

    async def run() -> list[BaseException | Reply]:
        gateway = CommandGateway()
        calls = (gateway.complete(there, request(timeout=each)) for each in (3, 0.5))
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second = asyncio.run(run())
    assert isinstance(first, GatewayError)
    assert isinstance(second, GatewayError)
    assert "did not reply within 3 s" in first.message
    assert "no turn within 0.5 s" in second.message
    assert (tmp_path / "ran").read_text() == "x"


def test_what_is_not_there_and_what_is_not_read() -> None:
    error = failure(CommandGateway(), program("", argv=["judgekit-no-such-program"]), request())
    assert (error.kind, "cannot be started" in error.message) == (FailureKind.COMMAND_FAILED, True)
    assert ask(CommandGateway(), program("print('yes')"), request("x" * 1_000_000)).text == "yes"
    code = 'import sys; print(\'{"result": "Not logged in"}\'); sys.exit(1)'
    error = failure(CommandGateway(), program(code, reply="json", reply_key="result"), request())
    assert error.message.endswith("exited with 1: Not logged in")


# What is ended by its mark

MARK = secrets.token_hex(16)  # tests of other processes look through the whole machine, too


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(**variables: str) -> subprocess.Popen[bytes]:
        code = "import time; print(flush=True); time.sleep(60)"
        environ = {"PATH": os.environ["PATH"], **variables}
        process = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None
        with process.stdout:
            process.stdout.readline()  # now it has the environment it was given
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux alone shows")
def test_those_with_the_mark_are_ended_and_no_others(
    started: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        started(),
        started(JUDGEKIT_INSIDE="1"),
        started(JUDGEKIT_INSIDE=f"{MARK}0"),
        started(JUDGEKIT_INSIDE=f"0{MARK}"),
        started(NOT_JUDGEKIT_INSIDE=MARK),
        started(NOTE=f"JUDGEKIT_INSIDE={MARK}"),
    ]
    marked = [started(JUDGEKIT_INSIDE=MARK) for _ in range(2)]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(command, "_PROCESSES", "/nowhere")
        assert command.kill_marked(MARK) == 0
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        assert command.kill_marked(MARK) == 0
    assert [process.poll() for process in marked] == [None, None]
    assert command.kill_marked(MARK) == len(marked)
    assert [process.wait(5) for process in marked] == [-9, -9]
    assert [process.poll() for process in others] == [None] * len(others)
