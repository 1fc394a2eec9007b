"""All commands: help, errors, terminals, signals. Some: schemas, doctor, providers, demo."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imports
import jsonschema
import pytest
from engine_processes import is_gone, private_folder
from hooking import by_user, own_profile
from loopback import SILENT, Loopback, fails, says
from outcome import by_project
from scripted import by_content, scores

import judgekit as package
from judgekit import environment
from judgekit.cli import output
from judgekit.cli.app import COMMANDS, build_application
from judgekit.cli.formats.table import render_verdict
from judgekit.cli.output import make_printable, say, warn
from judgekit.config import files as bundled
from judgekit.config import settings, yamlfile
from judgekit.engine import client
from judgekit.errors import ConfigError, InputError, UsageError
from judgekit.hooks import explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcome import Run, Served


WHOLE: Any = build_application()
POSIX = pytest.mark.skipif(
    sys.platform == "win32", reason="interrupts and ends processes otherwise"
)
PROGRAM = [sys.executable, "-m", "judgekit"]


def test_a_wrong_command_line_is_one_line_and_a_group_alone_is_its_help(judgekit: Run) -> None:
    for arguments, told in (
        (["judge", "--deadlin", "3"], "(judgekit judge --help lists the options)"),
        (["rubric", "show"], "(judgekit rubric show --help lists the options)"),
        (["jugde"], "(judgekit --help lists the options)"),
        (["jugde", "a.md"], "jugde"),
        (
            ["judge", "a.md", "--task-id", ""],
            "--task-id: expected a name for all paths together, got",
        ),
        (["search", " "], "QUERY: expected words to search for, got nothing"),
    ):
        done = judgekit(*arguments)
        assert (done.code, done.out, len(done.err.splitlines())) == (64, "", 1)
        assert done.err.startswith("judgekit: ")
        assert told in done.err
    for group in ((), ("rubric",), ("install",), ("ledger",)):
        done = judgekit(*group)
        assert (done.code, done.out, "shows what there is" in done.err) == (64, "", False)
        assert done.err.startswith("Usage: ")


def _helps(command: object, words: tuple[str, ...] = ()) -> Iterator[list[str]]:
    yield [*words, "--help"]
    for name, each in sorted(getattr(command, "commands", {}).items()):
        yield from _helps(each, (*words, name))


def test_help_imports_nothing_heavy_and_a_command_no_other_command() -> None:
    done = imports.of(*_helps(WHOLE))
    assert (set(done.codes), done.imported, "Usage: " in done.out) == ({0}, {}, True)
    for words in (["--help"], ["--version"]):
        done = imports.of(words)
        assert (done.codes, done.imported) == ([0], {})
    others = [
        f"judgekit.cli.{each.partition('.')[0]}"
        for name, each in COMMANDS.items()
        if name != "schema"
    ]
    assert imports.of(["schema", "verdict"], heavy=others).imported.keys() <= {"judgekit.cli.app"}
    done = imports.of(
        ["schema", "retrieval"], heavy=["judgekit.retrieval.profiles"]
    )  # the probe can fail
    assert done.imported == {"judgekit.retrieval.profiles": "judgekit.cli.schema"}


def test_the_api_is_loaded_when_it_is_used() -> None:
    code = (
        "import sys, judgekit; print('pydantic' in sys.modules); judgekit.Verdict; "
        "from judgekit.cli.app import run; run(['rubric', 'list']); run(['doctor']); "
        "print('litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == (b"False", b"False")
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018 - it is the point


def test_both_streams_are_guarded_and_complaints_have_no_colours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in (
        "\x1b]0;EVIL\x07",
        "\x1b[2J",
        "\x1b[1;1H",
        "\x1bc",
        "\x9b2J",
        "\r",
        "\x08",
        "\x1b[",
    ):
        shown = make_printable(f"a{command}b")
        assert (shown.isprintable(), shown.startswith("a\\x")) == (True, True)
    text = "\x1b[32m\x1b[1mACCEPT\x1b[0m\ta\nb é"
    assert make_printable(text) == text
    title = "\x1b]0;EVIL\x07"
    say(title)
    warn(title)
    streams = capsys.readouterr()
    assert ("\x1b" in streams.out + streams.err, "EVIL" in streams.out) == (False, True)
    warn("\x1b[31mred")
    assert capsys.readouterr().err == "judgekit: \\x1b[31mred\n"
    error = ConfigError("expected\na mapping", path=f"x{title}\n y.json", line=3, key=f"a\n{title}")
    assert str(error).isprintable()
    assert ":3: " in str(error)
    for kind in (InputError, UsageError):
        text = str(kind(f"miss\x1b[31m{title}\nX: cannot be read"))
        assert text == "miss\\x1b[31m\\x1b]0;EVIL\\x07\\nX: cannot be read"


def test_a_name_colours_no_error(judgekit: Run, project: Path) -> None:
    for command in (("judge",), ("compare", "--prompt", "q", "x"), ("eval", "judge"), ("triage",)):
        done = judgekit(*command, "miss\x1b[31m\nX")
        assert (done.code == 0, "\x1b" in done.err, len(done.err.splitlines())) == (False, False, 1)


RECORD = json.loads(
    """{"verdict": "accept", "scores": {"semantic": 4}, "average": 4, "task_id": "a.md@1", "mode": "strict",
    "rubric": {"id": "kls", "version": "1.0.0"}, "model": "m", "consensus": "single", "duration_ms": 1500,
    "degraded": null, "reasoning": "", "findings": [], "rounds": [{"tier": "quick", "model": "custom/m",
    "opinion": {"outcome": "accept"}, "failure": null, "usage": {"unpriced_calls": 1}}]}"""
)


def test_costs() -> None:
    for cost, source, complete, end in (
        (0.0123, "provider", True, "1.5 s, $0.0123 (as the provider reports)"),
        (0.0123, "litellm", False, "1.5 s, at least $0.0123 (by litellm's prices)"),
        (0.0, "cache", True, "1.5 s, $0.0000 (all replies cached)"),
        (None, None, False, "1.5 s, cost unknown (no price for custom/m)"),
        (0.0, "local", True, "1.5 s, cost 0 (local)"),
        (0.0, "local", False, "1.5 s, cost at least 0 (no price for custom/m)"),
        (None, None, True, "1.5 s"),
        (0.0123, None, None, "1.5 s, $0.0123"),
    ):
        record = RECORD | {"cost_usd": cost, "cost_source": source, "cost_complete": complete}
        assert render_verdict(record).endswith(end)
    assert render_verdict(RECORD | {"cost_usd": 0.5}).endswith("$0.5000")  # of an older version


def test_machine_formats_are_utf_8_whatever_the_locale_is(project: Path) -> None:
    (project / "dök.md").write_text("text")
    environ = os.environ | {"PYTHONIOENCODING": "ascii"}
    for words, told in (
        (("judge", "dök.md", "--format", "jsonl"), '"path":"dök.md"'),
        (("search", "ü refresh 🎉", "--json"), '"query":"ü refresh 🎉"'),
    ):
        command = [*PROGRAM, *words]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, check=False)
        assert told in done.stdout.decode()


def test_colours_follow_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[bool | None] = []
    monkeypatch.setattr("typer.echo", lambda _, color: printed.append(color))
    output.say("x")
    monkeypatch.delenv("NO_COLOR")
    for terminal in ("dumb", "xterm"):
        monkeypatch.setenv("TERM", terminal)
        output.say("x")
    assert printed == [False, False, None]


def test_exit_codes_of_faults(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert judgekit("judge", "missing.md").code == 65
    with monkeypatch.context() as patch:
        patch.setattr("judgekit.judging.search.search", broken)
        done = judgekit("search", "x")
    assert (done.code, done.err.count("\n")) == (70, 1)
    assert done.err.startswith("judgekit: internal error (")
    assert judgekit("--version").out == f"judgekit {package.__version__}\n"
    gone = project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = judgekit("judge", "a.md")
    assert (done.code, done.err) == (
        65,
        "judgekit: the current folder was removed; change to another one\n",
    )


def test_unknown_variables_are_told(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        "API_BASSE": "API_BASE",
        "JUDGE_DEADLIN": "JUDGE_DEADLINE",
        "MODLE": "MODEL",
        "ZQX": None,
    }
    for name in known:
        monkeypatch.setenv(f"JUDGEKIT_{name}", "x")
    monkeypatch.setenv("JUDGEKIT_JUDGE_INDEPENDENCE", "prefer")
    done = judgekit("search", "token")
    ends = {
        name: f"; did you mean JUDGEKIT_{meant}?" if meant else "" for name, meant in known.items()
    }
    none = "judgekit has no such variable, so it has no effect"
    assert done.err.splitlines() == [
        f"judgekit: JUDGEKIT_{name}: {none}{end}" for name, end in ends.items()
    ]
    payload = json.dumps(
        {"hook_event_name": "UserPromptSubmit", "prompt": "How do we refresh the token?"}
    )
    hook = subprocess.run(
        [*PROGRAM, "hook"], input=payload.encode(), capture_output=True, check=False
    )
    assert (done.code, hook.returncode, b"ZQX" in hook.stdout + hook.stderr) == (0, 0, False)


def test_known_variables(judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settings.get_user_config_path().parent / "providers"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "provider: mine\ntitle: Mine\nkind: litellm\nprefix: mine/\ndetect: {env: [[JUDGEKIT_MINE_KEY]]}\n"
        "key: [JUDGEKIT_MINE_KEY]\noutput: text\n"
    )
    monkeypatch.setenv("JUDGEKIT_MINE_KEY", "x")
    assert judgekit("search", "token").err == ""
    root = Path(package.__file__).parents[1]
    places = [
        *root.glob("judgekit/**/*.py"),
        *root.glob("docs/**/*.md"),
        *root.glob("providers/*.yaml"),
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in places)
    named = set(re.findall(r"JUDGEKIT_[A-Z_]*[A-Z](?![A-Z_<])", text))
    known = {*environment.VARIABLE_NAMES, *settings.KEYS_BY_VARIABLE}
    assert {each for each in named if not each.startswith("JUDGEKIT_TEST_")} <= known


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize(
    ("words", "requests"),
    [
        ("judge a.md b.md -j 1 --mode lenient --no-engine", 2),
        ("compare a.md b.md --prompt p", 1),
        ("rubric check kls --run --mode lenient", 2),
    ],
)
def test_what_is_kept_is_said_in_one_line(words: str, requests: int, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A page\n\nWith a text.\n")
    (tmp_path / "b.md").write_text("# Another page\n\nWith another text.\n")
    command = [*PROGRAM, *words.split()]
    with Loopback(says(scores(5, 5, 5)), SILENT) as server:
        environ = {**os.environ, "JUDGEKIT_API_BASE": server.base, "JUDGEKIT_MODEL": "stand-in"}
        with subprocess.Popen(
            command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE
        ) as process:
            assert _waited(lambda: len(server.requests) >= requests)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1].decode()
    lines = said.rstrip("\n").split("\n")
    assert (process.returncode, "Traceback" in said) == (130, False), said
    assert [line for line in lines if "interrupted" in line] == lines[-1:]
    option = "" if words.startswith("rubric") else ", unless with --no-cache"
    kept = f"complete replies are cached{option}; run the same command to continue"
    assert lines[-1] == f"judgekit: interrupted: {kept}"


@POSIX
def test_a_program_ends_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, program = tmp_path / "pid", tmp_path / "bin" / "my-program"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport os, time\nopen({str(place)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    by_user("providers: {allow: [my-program]}\n")
    profile = settings.get_user_config_path().parent / "providers" / "my-program.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(
        "provider: my-program\ntitle: A program of mine\nkind: command\ndetect: {command: my-program}\n"
        "argv: [my-program]\nmodels: {quick: default}\noutput: text\n"
    )
    (tmp_path / "a.md").write_text("# A page\n\nWith a text.\n")
    command = [*PROGRAM, "judge", "a.md", "--no-engine"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as judging:
        assert _waited(lambda: place.exists() and place.read_text() != "")
        judging.terminate()
        assert judging.wait(20) == -signal.SIGTERM
        assert judging.stderr is not None
        assert b"Traceback" not in judging.stderr.read()
    asked = int(place.read_text())
    assert is_gone(asked)


def _waited(happens: Any, seconds: float = 60) -> bool:  # noqa: ANN401 - a function
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(happens())


def test_every_schema_is_published_and_bundled_files_fit(judgekit: Run) -> None:
    names = "verdict comparison rubric provider retrieval config ledger calibration"
    for name in names.split():
        schema = judgekit("schema", name).json
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        jsonschema.Draft202012Validator.check_schema(schema)
    for name in ("rubric", "provider"):
        validator = jsonschema.Draft202012Validator(judgekit("schema", name).json)
        files = sorted(bundled.get_data_folder(f"{name}s").glob("*.yaml"))
        assert files
        for path in files:
            # The schema is about JSON, in which every key is a string.
            validator.validate(json.loads(json.dumps(yamlfile.load_yaml(path))))


def test_doctor_pays_only_where_it_is_told_to_and_says_the_price_first(
    judgekit: Run, project: Path, served: Served
) -> None:
    good = says(scores(4, 5, 4))
    _, requests = served(good, "doctor")
    assert requests == []
    done, requests = served(good, "doctor", "--live")
    lines = [line for line in done.out.splitlines() if "model" in line]
    price = next(number for number, line in enumerate(lines) if "asked about one sentence" in line)
    answer = next(number for number, line in enumerate(lines) if "answered in" in line)
    assert (done.code, len(requests), price < answer) == (0, 1, True)
    done, _ = served(fails(401), "doctor", "--live")
    assert (done.code, "authentication" in done.out) == (78, True)
    own_profile(
        Path(environment.config_home()).parent,
        "openai-compatible",
        more="price: {stand-in: {input: 1000, output: 1000}}",
    )
    done, _ = served(good, "doctor", "--live")
    assert "for $5.0480 at most" in done.out


def test_doctor_says_what_to_do_and_finds_names_that_nobody_has(
    judgekit: Run, project: Path
) -> None:
    done = judgekit("doctor")
    lines = done.out.splitlines()
    states = {line.split("  ", 1)[1].split(":")[0].strip(): line.split()[0] for line in lines}
    assert done.code == 0
    assert [states[each] for each in ("configuration", "models", "prompt hook")] == [
        "ok",
        "note",
        "note",
    ]
    for section, told in (
        ("judge: {rubric: nosuch}", "judge.rubric: no rubric of that name"),
        ("gate: {rubric: memory-relevance}", "gate.rubric: the rubric memory-relevance@"),
        ("providers: {allow: [anthropic, nobody]}", "providers.allow: no provider 'nobody'"),
    ):
        by_user(f"{section}\n")
        done = judgekit("doctor")
        (wrong,) = [line for line in done.out.splitlines() if line.startswith("wrong")]
        assert (done.code, f"{settings.get_user_config_path()}:1: {told}" in wrong) == (78, True)
    by_project("judge: [\n")
    done = judgekit("doctor")
    assert (done.code, "wrong  configuration" in done.out) == (78, True)


def test_a_store_that_is_not_there_is_no_store_that_is_fine(judgekit: Run, project: Path) -> None:
    by_project("retrieval: {roots: [.claude/memory, nosuch]}\n")
    lines = judgekit("doctor").out.splitlines()
    (missing,) = [line for line in lines if "store nosuch" in line]
    assert missing.startswith(
        f"note   store nosuch: no folder at {project / 'nosuch'}, so the hook finds nothing"
    )
    assert "nosuch: no such folder, so it is not searched" in judgekit("search", "JWT refresh").err


def test_another_tools_switch_for_a_judge_is_named_where_it_does_nothing(
    judgekit: Run, project: Path
) -> None:
    switch = project / ".claude" / "memory" / "memory-config.json"
    switch.write_text('{"retrieval": {"judge": {"enabled": true}}}')
    told = f"{switch}: judge.enabled has no effect: a model sees your prompts only if you allow it"
    remedy = (
        f"set retrieval.judge: project in your own configuration, {settings.get_user_config_path()}"
    )
    question = "How do we refresh the JWT?"
    for text in (judgekit("doctor").out, explain.explain_prompt(question, str(project))):
        assert told in text
        assert remedy in text
    by_user("retrieval: {judge: project}\n")
    for text in (judgekit("doctor").out, explain.explain_prompt(question, str(project))):
        assert "has no effect" not in text


def test_providers_listed_and_checked(
    judgekit: Run, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    done, _ = served(says(scores(4, 4, 4)), "provider", "check")
    assert (done.code, "answered in" in done.out) == (0, True)
    done, _ = served(fails(401, "bad key"), "provider", "check", "openai-compatible")
    assert (done.code, "authentication" in done.out) == (2, True)
    assert judgekit("provider", "check", "nobody").code == 64
    assert judgekit("provider", "check", "anthropic").code == 2
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    done = judgekit("provider", "list")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert lines["anthropic"].split()[1] == "usable"
    assert "set OPENAI_API_KEY" in lines["openai"]
    assert "not allowed" in lines["claude-code"]
    assert "sk-secret" not in done.out


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with private_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        (folder / "judgekit").mkdir(mode=0o700)
        yield folder / "judgekit"


def test_an_engines_life(judgekit: Run, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("JUDGEKIT_ENGINE")
        assert "starts one" in judgekit("engine", "status").out
    assert judgekit("engine", "status", "--json").json == {"engines": []}
    started, again = judgekit("engine", "start"), judgekit("engine", "start")
    assert (started.code, str(runtime) in started.out) == (0, True), started.err
    (told,) = judgekit("engine", "status", "--json").json["engines"]
    for said in (started.out, again.out, judgekit("engine", "status").out):
        assert f"process {told['pid']}: ready" in said
    stopped = judgekit("engine", "stop")
    assert (stopped.code, stopped.out.endswith(": stopped\n")) == (0, True)
    assert judgekit("engine", "stop").out == "no engine is running\n"
    client.connect_or_start().close()
    assert judgekit("engine", "stop", "--now").out.endswith(": stopped\n")
    monkeypatch.setattr(client, "start", lambda _=None: None)
    lost = judgekit("engine", "start")
    assert (lost.code, lost.out, len(lost.err.splitlines())) == (70, "", 1)


@pytest.mark.slow
def test_the_demo(
    judgekit: Run, project: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = served(by_content, "demo")
    assert done.code == 0
    for text in (
        '<result category="DECISION" confidence="high">JWT',
        "(nothing added to the agent's context)",
        "ACCEPT        first.md",
        "UNDETERMINED  first.md",
    ):
        assert text in done.out
    assert "openai-compatible" in done.out or "stand-in" in done.out
    documents = (
        r"Documents: first.md accept, second.md \w+; without a model first.md undetermined.\n"
    )
    seen = re.search(
        rf"\nMemories: the prompts got 1, \d, 0; the search found (\d), with the judge (\d).\n{documents}",
        done.out,
    )
    assert seen, done.out[-900:]
    assert int(seen[1]) > int(seen[2]) >= 0
    assert "\x1b" not in done.out
    assert judgekit("engine", "status", "--json").json == {"engines": []}
    for name in ("JUDGEKIT_API_BASE", "JUDGEKIT_MODEL"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = judgekit("demo")
    assert (done.code, "No model judged anything. Set a provider's key, or run" in done.out) == (
        0,
        True,
    )


@pytest.mark.parametrize("home", ["/proc/nohome", "/dev/null"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("judge good.md --no-engine", 0),
        ("judge --data rows.jsonl --rubric kls --out x.jsonl --no-engine", 0),
        ("judge --data rows.jsonl --rubric kls --out x.csv --no-engine", 0),
        ("compare good.md bad.md --prompt p --no-engine", None),
        ("search token", 0),
        ("search token --judge", 0),
        ("index status", 0),
        ("index rebuild", 0),
        ("cache status", None),
        ("cache clear", None),
        ("doctor", None),
        ("kpi", None),
        ("triage", 0),
        ("ledger export", 0),
        ("ledger purge --before 2020-01-01", None),
        ("rubric list", 0),
        ("rubric new mine --task score --user", 78),
        ("provider list", 0),
        ("config show", None),
        ("calibrate accept none.json", None),
        ("gate --base HEAD", None),
        ("install claude-code --scope user", 65),
        ("uninstall claude-code --scope user", None),
        ("serve --port 1", 78),
        ("demo", 78),
    ],
)
def test_a_home_that_cannot_be_written_is_no_fault_of_ours(
    served: Served,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    code: int | None,
    home: str,
) -> None:
    if home.startswith("/proc") and not Path("/proc").is_dir():
        pytest.skip("no /proc here")
    for name in (
        "JUDGEKIT_HOME",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "CLAUDE_CONFIG_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    Path("rows.jsonl").write_text('{"id": "r1", "text": "fine"}\n')
    done, _ = served(by_content, *words.split())
    assert "internal error" not in done.err
    assert done.code != 70
    assert code is None or done.code == code, done.err
