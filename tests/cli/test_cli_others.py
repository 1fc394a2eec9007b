"""Schemas, doctor, providers, the demo, and what holds for every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest
from loopback import fails, says
from scripted import by_content

import judgekit as package
from judgekit.cli import output
from judgekit.config import files as bundled
from judgekit.config import settings, yamlfile
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run, Served


def test_rubrics_are_listed_shown_and_found(judgekit: Run, project: Path) -> None:
    listed = [line.split()[0] for line in judgekit("rubric", "list").out.splitlines()]
    assert listed == sorted(listed)
    assert {"kls@1.0.0", "memory-relevance@1.0.0", "memory-two-criteria@1.0.0"} < set(listed)
    path = bundled.folder("rubrics") / "kls@1.0.0.yaml"
    assert judgekit("rubric", "path", "kls").out == f"{path}\n"
    assert judgekit("rubric", "show", "kls@1.0.0").out == path.read_text()
    text = judgekit("rubric", "show", "memory-relevance", "--prompt", "--mode", "lenient").out
    assert "even indirectly" in text
    for reference in ("/tmp/foo", "*", "kls@1", "../kls", "kls@1.0.0.yaml2"):
        done = judgekit("rubric", "show", reference)
        assert (done.code, done.err.count("\n")) == (64, 1)


def test_a_rubric_file_is_checked(judgekit: Run, project: Path) -> None:
    sound = loader.find_rubric("kls").path
    done = judgekit("rubric", "check", str(sound))
    assert (done.code, "is valid, 6 labelled cases" in done.out) == (0, True)
    wrong = project / "mine.yaml"
    wrong.write_text(sound.read_text().replace("task: score", "task: score\ntask: select"))
    done = judgekit("rubric", "check", str(wrong))
    assert (done.code, done.out) == (78, "")
    assert 'duplicate key "task"' in done.err
    wrong.write_text(sound.read_text().replace("scale:", "scales:"))
    assert "mine.yaml:5: scales: unknown key" in judgekit("rubric", "check", str(wrong)).err


def test_one_broken_rubric_does_not_hide_the_others(judgekit: Run, project: Path) -> None:
    folder = project / ".judgekit" / "rubrics"
    folder.mkdir(parents=True)
    (folder / "ours@1.0.0.yaml").write_text("rubric: [\n")
    done = judgekit("rubric", "list")
    assert (done.code, done.err.count("\n")) == (78, 1)
    assert "kls@1.0.0" in done.out
    said = judgekit("rubric", "show", "nosuch").err
    assert "no rubric 'nosuch'; there are: " in said
    assert "kls@1.0.0, " in said


def test_every_schema_is_published_and_bundled_files_fit(judgekit: Run) -> None:
    for name in (
        "verdict",
        "comparison",
        "rubric",
        "provider",
        "retrieval",
        "config",
        "ledger",
        "calibration",
    ):
        schema = judgekit("schema", name).json
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        jsonschema.Draft202012Validator.check_schema(schema)
    for name in ("rubric", "provider"):
        validator = jsonschema.Draft202012Validator(judgekit("schema", name).json)
        files = sorted(bundled.folder(f"{name}s").glob("*.yaml"))
        assert files
        for path in files:
            # The schema is about JSON, in which every key is a string.
            validator.validate(json.loads(json.dumps(yamlfile.load_yaml(path))))


def test_doctor_says_what_to_do(judgekit: Run, project: Path) -> None:
    done = judgekit("doctor")
    lines = done.out.splitlines()
    states = {line.split("  ", 1)[1].split(":")[0].strip(): line.split()[0] for line in lines}
    assert done.code == 0
    assert [states[each] for each in ("configuration", "models", "prompt hook")] == ["ok", "note", "note"]
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("judge: [\n")
    done = judgekit("doctor")
    assert (done.code, "wrong  configuration" in done.out) == (78, True)


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
def test_doctor_finds_names_that_nobody_has(judgekit: Run, project: Path, section: str, told: str) -> None:
    path = settings.user_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{section}\n")
    done = judgekit("doctor")
    (wrong,) = [line for line in done.out.splitlines() if line.startswith("wrong")]
    assert done.code == 78
    assert f"{path}:1: {told}" in wrong


def test_providers_are_listed_with_what_they_lack(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    done = judgekit("provider", "list")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert lines["anthropic"].split()[1] == "usable"
    assert "set OPENAI_API_KEY" in lines["openai"]
    assert "not allowed" in lines["claude-code"]
    assert "sk-secret" not in done.out


def test_a_provider_is_checked_by_a_real_call(judgekit: Run, project: Path, served: Served) -> None:
    done, _ = served(says("yes"), "provider", "check")
    assert (done.code, "answered in" in done.out) == (0, True)
    done, _ = served(fails(401, "bad key"), "provider", "check", "openai-compatible")
    assert (done.code, "authentication" in done.out) == (2, True)
    assert judgekit("provider", "check", "nobody").code == 64
    assert judgekit("provider", "check", "anthropic").code == 2


def test_machine_formats_are_utf_8_whatever_the_locale_is(project: Path) -> None:
    (project / "dök.md").write_text("text")
    environ = os.environ | {"PYTHONIOENCODING": "ascii"}

    def printed(*words: str) -> bytes:
        command = [sys.executable, "-m", "judgekit", *words]
        return subprocess.run(command, cwd=project, env=environ, capture_output=True, check=False).stdout

    verdict = json.loads(printed("judge", "dök.md", "--format", "jsonl"))
    assert verdict["subjects"][0]["path"] == "dök.md"
    assert json.loads(printed("search", "ü refresh 🎉", "--json"))["query"] == "ü refresh 🎉"


def test_colours_follow_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[bool | None] = []
    monkeypatch.setattr("typer.echo", lambda _, color: printed.append(color))
    output.say("x")
    monkeypatch.delenv("NO_COLOR")
    for terminal in ("dumb", "xterm"):
        monkeypatch.setenv("TERM", terminal)
        output.say("x")
    assert printed == [False, False, None]


def test_without_stderr_the_exit_code_holds(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert judgekit("judge", "missing.md").code == 65


def test_a_folder_that_is_gone_is_one_line(
    judgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = judgekit("rubric", "list")
    monkeypatch.chdir(tmp_path)
    assert (done.code, done.err) == (
        65,
        "judgekit: the current folder no longer exists; change to another folder\n",
    )


def test_a_fault_of_ours_is_one_line_and_code_70(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("judgekit.judging.search.search", broken)
    done = judgekit("search", "x")
    assert done.code == 70
    assert done.err.startswith("judgekit: internal error (")
    assert done.err.count("\n") == 1
    assert judgekit("--version").out == f"judgekit {package.__version__}\n"


def test_the_api_is_loaded_when_it_is_used() -> None:
    code = (
        "import sys, judgekit; print('pydantic' in sys.modules); judgekit.Verdict; "
        "from judgekit.cli.app import run; run(['rubric', 'list']); run(['doctor']); "
        "print('litellm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("False", "False")
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018 - it is the point


def test_the_demo_judges_with_what_is_set_up_and_goes_on_without_any_model(
    judgekit: Run, project: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = served(by_content, "demo")
    assert done.code == 0
    assert '<result category="DECISION" confidence="high">JWT' in done.out
    assert "(nothing added to the agent's context)" in done.out
    assert "ACCEPT        first.md" in done.out
    assert "UNDETERMINED  first.md" in done.out
    assert "openai-compatible" in done.out or "stand-in" in done.out
    for name in ("JUDGEKIT_API_BASE", "JUDGEKIT_MODEL"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = judgekit("demo")
    assert (done.code, "No model judged anything. Set a provider's key, or run" in done.out) == (0, True)
