"""The command gateway against small programs."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asking import SCHEMA, SLACK, ask, failure, request

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import command
from judgekit.providers.base import INSIDE, Endpoint, Message, Reply, endpoint
from judgekit.providers.command import CommandGateway
from judgekit.providers.registry import CommandProfile

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


def test_the_prompt_goes_in_and_the_reply_comes_out() -> None:
    reply = ask(CommandGateway(), program("import sys; print(sys.stdin.read().upper())"), request("subject"))
    assert (reply.text, reply.model) == ("YOU JUDGE.\n\nSUBJECT", "a-model")


def test_model_and_system_are_arguments_where_the_profile_says_so() -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.read())"
    reply = ask(CommandGateway(), program(code, "--model={model}", "{system}"), request("{model}"))
    assert reply.text == "['--model=a-model', 'You judge.'] {model}"


def test_a_schema_is_told_or_given() -> None:
    reply = ask(CommandGateway(), program("import sys; print(sys.stdin.read())"), request(schema=SCHEMA))
    assert "JSON Schema" in reply.text
    given = ask(
        CommandGateway(), program("import sys; print(sys.argv[1])", "{schema}"), request(schema=SCHEMA)
    )
    assert json.loads(given.text) == SCHEMA


def test_an_argument_for_a_schema_or_a_model_is_left_out_where_there_is_none() -> None:
    code = "import sys; print(sys.argv[1:])"
    there = program(code, "--model={model}", "--schema={schema}", "--schema-file={schema_file}", "end")
    assert ask(CommandGateway(), there, request()).text == "['--model=a-model', 'end']"
    assert ask(CommandGateway(), replace(there, model="default"), request()).text == "['end']"


def test_a_schema_is_given_in_a_file() -> None:
    code = "import sys; print(open(sys.argv[1]).read())"
    there = program(code, "{schema_file}")
    assert json.loads(ask(CommandGateway(), there, request(schema=SCHEMA)).text) == SCHEMA


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


def test_a_system_message_in_a_file_is_not_in_the_prompt_and_is_never_filled() -> None:
    code = "import sys; print(open(sys.argv[1]).read(), sys.stdin.read(), sep='|')"
    there = program(code, "{folder}/system", files={"system": "{system}"})
    messages = (Message("system", "Say {model}."), Message("user", "one"))
    assert ask(CommandGateway(), there, replace(request(), messages=messages)).text == "Say {model}.|one"


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


def test_a_file_that_was_never_written_is_no_reply() -> None:
    there = program("print('noise')", reply_file="last.txt")
    assert failure(CommandGateway(), there, request()).kind is FailureKind.INVALID_REPLY


def test_a_conversation_names_who_spoke() -> None:
    told = program("import sys; print(sys.stdin.read())")
    messages = (Message("user", "one"), Message("assistant", "two"), Message("user", "three"))
    asked = replace(request(), messages=messages)
    assert ask(CommandGateway(), told, asked).text == "[user]\none\n\n[assistant]\ntwo\n\n[user]\nthree"


def test_the_program_sees_an_empty_folder_and_a_scrubbed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "no")
    code = "import json, os; print(json.dumps([os.listdir(), dict(os.environ), os.getcwd()]))"
    files, seen, folder = json.loads(
        ask(CommandGateway(), program(code, set_env={"QUIET": "1"}), request()).text
    )
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


def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    error = failure(CommandGateway(), program(code), request(timeout=2))
    assert error.kind is FailureKind.TIMEOUT
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(child)


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
@pytest.mark.parametrize("orphan", [False, True])
def test_a_child_in_a_session_of_its_own_ends_with_a_call_that_is_cut_off(
    tmp_path: Path, *, orphan: bool
) -> None:
    place = tmp_path / "pid"
    sleeps = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    starts = f"subprocess.Popen([sys.executable, '-c', {sleeps!r}], start_new_session=True)"
    through = f"import subprocess, sys; {starts}"
    code = f"subprocess.run([sys.executable, '-c', {through!r}])" if orphan else starts
    error = failure(
        CommandGateway(), program(f"import subprocess, sys, time; {code}; time.sleep(60)"), request(timeout=3)
    )
    assert error.kind is FailureKind.TIMEOUT
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
    assert "gave no reply within 3 s" in first.message
    assert "no turn within 0.5 s" in second.message
    assert (tmp_path / "ran").read_text() == "x"


def test_a_program_that_is_not_there_is_told() -> None:
    error = failure(CommandGateway(), program("", argv=["judgekit-no-such-program"]), request())
    assert (error.kind, "cannot be started" in error.message) == (FailureKind.COMMAND_FAILED, True)


def test_a_program_that_does_not_read_its_input_is_no_failure() -> None:
    assert ask(CommandGateway(), program("print('yes')"), request("x" * 1_000_000)).text == "yes"


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        ({"result": "yes"}, "yes"),
        ({"result": {"score": 1}}, '{"score": 1}'),
        ({"other": 1}, None),
        ({"result": ""}, None),
        ("no object", None),
    ],
)
def test_the_reply_is_taken_out_of_json(printed: object, text: str | None) -> None:
    there = program(f"print({json.dumps(printed)!r})", reply="json", reply_key="result")
    if text is None:
        assert failure(CommandGateway(), there, request()).kind is FailureKind.INVALID_REPLY
    else:
        assert ask(CommandGateway(), there, request()).text == text


def test_a_failure_in_json_is_read_too() -> None:
    code = 'import sys; print(\'{"result": "Not logged in"}\'); sys.exit(1)'
    error = failure(CommandGateway(), program(code, reply="json", reply_key="result"), request())
    assert error.message.endswith("exited with 1: Not logged in")
