from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest
from loopback import Loopback, fails, says
from scripted import by_content

import judgekit as package
from judgekit.cli import demo, output
from judgekit.config import files as bundled
from judgekit.config import settings, yamlfile
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome


def test_rubrics_are_listed_shown_and_found(judgekit: Callable[..., Outcome], project: Path) -> None:
    listed = [line.split()[0] for line in judgekit("rubric", "list").out.splitlines()]
    assert listed == sorted(listed)
    assert {"kls@1.0.0", "memory-relevance@1.0.0", "memory-two-criteria@1.0.0"} < set(listed)
    path = bundled.folder("rubrics") / "kls@1.0.0.yaml"
    assert judgekit("rubric", "path", "kls").out == f"{path}\n"
    assert judgekit("rubric", "show", "kls@1.0.0").out == path.read_text()
    text = judgekit("rubric", "show", "memory-relevance", "--prompt", "--mode", "lenient").out
    assert "even indirectly" in text


def test_a_rubric_file_is_checked(judgekit: Callable[..., Outcome], project: Path) -> None:
    sound = loader.find_rubric("kls").path
    done = judgekit("rubric", "check", str(sound))
    assert (done.code, "is sound, 6 labelled cases" in done.out) == (0, True)
    wrong = project / "mine.yaml"
    wrong.write_text(sound.read_text().replace("task: score", "task: score\ntask: select"))
    done = judgekit("rubric", "check", str(wrong))
    assert (done.code, done.out) == (78, "")
    assert 'duplicate key "task"' in done.err
    wrong.write_text(sound.read_text().replace("scale:", "scales:"))
    assert "mine.yaml:5: scales: unknown key" in judgekit("rubric", "check", str(wrong)).err


@pytest.mark.parametrize(
    "name", ["verdict", "rubric", "provider", "retrieval", "config", "ledger", "calibration"]
)
def test_every_schema_is_published(judgekit: Callable[..., Outcome], name: str) -> None:
    schema = judgekit("schema", name).json
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("name", "pattern"), [("rubric", "rubrics/*.yaml"), ("provider", "providers/*.yaml")]
)
def test_bundled_files_fit_their_published_schema(
    judgekit: Callable[..., Outcome], name: str, pattern: str
) -> None:
    validator = jsonschema.Draft202012Validator(judgekit("schema", name).json)
    folder, _, glob = pattern.partition("/")
    files = sorted(bundled.folder(folder).glob(glob))
    assert files
    for path in files:
        # The schema is about JSON, in which every key is a string.
        validator.validate(json.loads(json.dumps(yamlfile.load_yaml(path))))


def test_doctor_says_what_to_do(judgekit: Callable[..., Outcome], project: Path) -> None:
    done = judgekit("doctor")
    assert done.code == 0
    subjects = {
        line.split("  ", 1)[1].split(":")[0].strip(): line.split()[0] for line in done.out.splitlines()
    }
    assert subjects["configuration"] == "ok"
    assert subjects["models"] == "note"
    assert subjects["prompt hook"] == "note"


def test_doctor_finds_a_broken_configuration(judgekit: Callable[..., Outcome], project: Path) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("judge: [\n")
    done = judgekit("doctor")
    assert done.code == 78
    assert "wrong  configuration" in done.out


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("judge: {rubric: nosuch}", "judge.rubric: no rubric of that name"),
        ("gate: {rubric: memory-relevance}", "gate.rubric: the rubric memory-relevance@"),
        ("retrieval: {rubric: none.yaml}", "retrieval.rubric: there is no such file"),
        ("providers: {allow: [anthropic, nobody]}", "providers.allow: no provider 'nobody'"),
        ("providers: {order: [custom, nobody]}", "providers.order: no provider 'nobody'"),
    ],
)
def test_doctor_finds_names_that_nobody_has(
    judgekit: Callable[..., Outcome], project: Path, section: str, told: str
) -> None:
    path = settings.user_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{section}\n")
    done = judgekit("doctor")
    assert done.code == 78
    (wrong,) = [line for line in done.out.splitlines() if line.startswith("wrong")]
    assert f"{path}:1: {told}" in wrong


def test_providers_are_listed_with_what_they_lack(
    judgekit: Callable[..., Outcome], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    done = judgekit("provider", "list")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert lines["anthropic"].split()[1] == "usable"
    assert "set OPENAI_API_KEY" in lines["openai"]
    assert "not allowed" in lines["claude-code"]
    assert "sk-secret" not in done.out


def test_a_provider_is_checked_by_a_real_call(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    with Loopback(says("yes")) as server:
        use(server)
        done = judgekit("provider", "check")
    assert (done.code, "answered in" in done.out) == (0, True)
    with Loopback(fails(401, "bad key")) as server:
        use(server)
        done = judgekit("provider", "check", "openai-compatible")
    assert (done.code, "authentication" in done.out) == (2, True)
    assert judgekit("provider", "check", "nobody").code == 64
    assert judgekit("provider", "check", "anthropic").code == 2


@pytest.mark.parametrize("reference", ["/tmp/foo", "*", "kls@1", "../kls", "kls@1.0.0.yaml2"])
def test_a_reference_is_an_id_a_version_or_a_file(judgekit: Callable[..., Outcome], reference: str) -> None:
    done = judgekit("rubric", "show", reference)
    assert (done.code, done.err.count("\n")) == (64, 1)


def test_one_broken_rubric_does_not_hide_the_others(judgekit: Callable[..., Outcome], project: Path) -> None:
    folder = project / ".judgekit" / "rubrics"
    folder.mkdir(parents=True)
    (folder / "ours@1.0.0.yaml").write_text("rubric: [\n")
    done = judgekit("rubric", "list")
    assert (done.code, done.err.count("\n")) == (78, 1)
    assert "kls@1.0.0" in done.out
    said = judgekit("rubric", "show", "nosuch").err
    assert "no rubric 'nosuch'; there are: " in said
    assert "kls@1.0.0, " in said


def process(project: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "judgekit", *arguments]
    return subprocess.run(
        command, cwd=project, env=os.environ | environ, capture_output=True, check=False, timeout=60
    )


def test_machine_formats_are_utf_8_whatever_the_locale_is(project: Path) -> None:
    (project / "dök.md").write_text("text")
    done = process(project, "judge", "dök.md", "--format", "jsonl", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["subjects"][0]["path"] == "dök.md"
    found = process(project, "search", "ü refresh 🎉", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(found.stdout)["query"] == "ü refresh 🎉"


def test_colours_follow_no_color(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[bool | None] = []
    monkeypatch.setattr("typer.echo", lambda _, color: printed.append(color))
    output.say("x")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    output.say("x")
    monkeypatch.setenv("TERM", "xterm")
    output.say("x")
    assert printed == [False, False, None]


def test_without_stderr_the_exit_code_holds(
    judgekit: Callable[..., Outcome], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert judgekit("judge", "missing.md").code == 65


def test_a_folder_that_is_gone_is_one_line(
    judgekit: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = judgekit("rubric", "list")
    monkeypatch.chdir(tmp_path)
    assert (done.code, done.err) == (65, "judgekit: the current folder is gone; change to one that exists\n")


def test_the_version(judgekit: Callable[..., Outcome]) -> None:
    assert judgekit("--version").out == f"judgekit {package.__version__}\n"


def test_help_names_every_command(judgekit: Callable[..., Outcome]) -> None:
    out = judgekit("--help").out
    for name in ("search", "judge", "hook", "rubric", "provider", "schema", "doctor", "demo"):
        assert f"\n  {name} " in out


def test_an_unknown_command_is_wrong_usage(judgekit: Callable[..., Outcome]) -> None:
    done = judgekit("guess")
    assert (done.code, done.out) == (64, "")
    assert done.err.count("\n") == 1


def test_a_fault_of_ours_is_one_line_and_code_70(
    judgekit: Callable[..., Outcome], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("judgekit.judging.search.search", broken)
    done = judgekit("search", "x")
    assert done.code == 70
    assert done.err.startswith("judgekit: a fault of judgekit itself (")
    assert done.err.count("\n") == 1


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    code = (
        "import sys; from judgekit.cli.app import run; sys.stdout = sys.stderr; run(sys.argv[1:]); "
        "sys.__stdout__.write(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_help_does_not_wait_for_heavy_libraries() -> None:
    assert not {"litellm", "ruamel", "asyncio", "httpx"} & loaded_by("--help")
    assert "litellm" not in loaded_by("rubric", "list")
    assert "litellm" not in loaded_by("doctor")


def test_the_api_is_loaded_when_it_is_used() -> None:
    code = (
        "import sys, judgekit; print('pydantic' in sys.modules); judgekit.Verdict; "
        "print('litellm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "False"]
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018 - it is the point


def test_the_demo_judges_with_what_is_set_up(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    with Loopback(by_content) as server:
        use(server)
        done = judgekit("demo")
    assert done.code == 0
    assert '<result category="DECISION" confidence="high">JWT' in done.out
    assert "(nothing is added to the agent's context)" in done.out
    assert "ACCEPT        first.md" in done.out
    assert "UNDETERMINED  first.md" in done.out
    assert "openai-compatible" in done.out or "stand-in" in done.out


def test_the_demo_goes_on_without_any_model(
    judgekit: Callable[..., Outcome], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = judgekit("demo")
    assert done.code == 0
    assert "No model judged anything here." in done.out


def test_the_demos_prompts_are_of_three_kinds() -> None:
    assert [kind for kind, _ in demo.PROMPTS] == ["a clear hit", "ambiguous", "unrelated"]
