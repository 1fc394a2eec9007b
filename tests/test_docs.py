"""The documentation is true, and its checks find the faults they're for."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from math import ceil
from typing import TYPE_CHECKING, get_args

import deciding
import hooking
import pytest
from pydantic import BaseModel
from recordings import RECORDING

from judgekit import environment
from judgekit.cli.app import run
from judgekit.config.settings import Config
from judgekit.hooks import claude_code
from judgekit.judging.request import JudgeArgs
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric
from tests import docs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.mark.parametrize("check", docs.CHECKS, ids=lambda check: check.__name__)
def test_documentation(check: Callable[[Path], Iterator[str]]) -> None:
    assert list(check(docs.ROOT)) == []


def test_the_page_about_python_has_every_option_of_judging() -> None:
    page = (docs.ROOT / "docs/api.md").read_text(encoding="utf-8")
    table = page.partition("## What you can choose")[2].partition("## ")[0]
    for option in JudgeArgs.__annotations__:
        assert f"| `{option}` |" in table, f"docs/api.md: name `{option}` in its table of arguments"


SENDING = (
    *(
        "judge",
        "gate",
        "search --judge",
        "calibrate",
        "eval judge",
        "provider check",
        "demo",
        "escalate",
    ),
    *("rubric check --run", "rubric diff --run"),
)


def test_what_each_command_and_switch_sends_is_said() -> None:
    page = (docs.ROOT / "docs/privacy.md").read_text(encoding="utf-8")
    for command in SENDING:
        assert f"`judgekit {command}`" in page
        assert [
            line for line in page.splitlines() if line.startswith("| ") and f"`{command}`" in line
        ]
    switches = [
        f"{section}.{key}"
        for section, fields in Config.model_fields.items()
        if isinstance(fields.annotation, type) and issubclass(fields.annotation, BaseModel)
        for key, field in fields.annotation.model_fields.items()
        if "project" in get_args(field.annotation)
    ]
    assert len(switches) >= 3
    assert [switch for switch in switches if f"`{switch}`" not in page] == []


def test_the_example_of_an_explanation_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (docs.ROOT / "docs/hook.md").read_text(encoding="utf-8")
    (example,) = [fence.text for fence in docs.fences(page) if "hook --explain" in fence.text]
    command, _, printed = example.partition("\n")
    shutil.copytree(docs.ROOT / "examples/project", tmp_path / "examples/project")
    monkeypatch.chdir(tmp_path / "examples/project")
    claude_code.main(shlex.split(command.partition("judgekit hook ")[2]))
    shown = capsys.readouterr().out.replace(str(tmp_path), "~/judgekit")
    assert shown.strip() == printed.strip()


HOME, REGISTRY = "/" + "home/anna", "https://" + "pypi" + ".org/simple"
WRONG: dict[Callable[[Path], Iterator[str]], tuple[str, str, int]] = {
    docs.broken_links: (
        "README.md",
        "[a](gone.md) [b](#nowhere) ![c](gone.png)\n\n# Here\n[d](#here)\n",
        3,
    ),
    docs.stale_help: ("docs/cli.md", "<!-- help: judgekit gone -->\n<!-- /help -->\n", 1),
    docs.stale_escalation_tables: (
        "docs/escalation.md",
        "<!-- table of escalation -->\n<!-- /table -->\n",
        2,
    ),
    docs.undocumented_names: (
        "README.md",
        "```python\njudgekit.judging(judgekit.judge())\n```\n",
        2,
    ),
    docs.unparsable_blocks: (
        "README.md",
        "```json\n{'a': 1}\n```\n- a\n  ```yaml\n  a: [1\n  ```\n",
        2,
    ),
    docs.unknown_commands: (
        "README.md",
        "```sh\n$ judgekit serch\nmake tea\npip install judgekit\n```\n",
        3,
    ),
    docs.missing_tests: (
        "docs/threat-model.md",
        "| a | b | `tests/gone.py::test_x` |\n| a | b | c |\n",
        2,
    ),
    docs.stale_gate_rows: (
        "docs/gate.md",
        "```text\nNO-GO         a.md  (62040b0 ann)\nGO  a.md  (62040b0 ann)\nGO            a.md\n```\n",
        2,
    ),
    docs.traces: ("src/code.py", f"A = '{HOME}/x'\nB = '{REGISTRY}'\n", 2),
}


@pytest.mark.parametrize("check", docs.CHECKS, ids=lambda check: check.__name__)
def test_a_check_finds_what_is_wrong(
    check: Callable[[Path], Iterator[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, text, count = WRONG[check]
    monkeypatch.setattr(docs, "PUBLIC", [])
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert len([line for line in check(tmp_path) if "old or missing" not in line]) == count


def test_no_hint_names_a_package_of_an_index() -> None:
    named = re.compile(r"\bjudgekit\[[\w,-]+\]")
    places = [*docs.ROOT.glob("*.md"), *docs.ROOT.glob("docs/**/*.md")]
    for folder, kind in (
        ("judgekit", "*.py"),
        ("providers", "*.yaml"),
        ("hooks", "*"),
        ("skills", "*"),
    ):
        places += [
            path
            for path in docs.ROOT.joinpath(folder).rglob(kind)
            if "__pycache__" not in path.parts
        ]
    found = [
        place
        for place in places
        if place.is_file() and named.search(place.read_text(errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize(("mode", "code"), [("strict", 2), ("lenient", 0)])
def test_the_worked_example_is_what_is_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    code: int,
) -> None:
    page = (docs.ROOT / "docs/strict-and-lenient.md").read_text(encoding="utf-8")
    (shown,) = [fence.text for fence in docs.fences(page) if f"--mode {mode}" in fence.text]
    shutil.copytree(docs.ROOT / "examples/modes", tmp_path / "modes")
    monkeypatch.chdir(tmp_path / "modes")
    monkeypatch.setenv("JUDGEKIT_REPLAY", "replies.jsonl")
    command, *lines = shown.strip().splitlines()
    assert run(command.removeprefix("$ judgekit ").split()) == code
    printed = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert len(printed) == len(lines)
    for said, wanted in zip(printed, lines, strict=True):
        assert said.startswith(wanted.removesuffix("..."))


_COMMAND = re.compile(r"^\$ (.*<<'END'\n(?:.*\n)*?END|(?:.*\\\n)*.*)\n", re.MULTILINE)
PAGES = {
    "datasets": ("rows", 15),
    "formats": ("report", 3),
    "report": ("report", 10),
    "tutorial-ci": ("ci", 18),
    "tutorial-judge": ("choosing", 7),
    "tutorial-memories": ("notes", 18),
    "until": ("until", 6),
}
WITH_HOME = {"tutorial-memories"}  # its commands write to the reader's home folder


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_commands_is_what_is_printed(tmp_path: Path, name: str) -> None:
    folder, count = PAGES[name]
    printed, shown = _run_page(tmp_path, name, folder, count)
    if RECORDING:
        _write_page(name, printed)
        return
    assert _without_times(printed) == _without_times(shown)


@pytest.mark.slow
def test_the_ten_minutes_with_a_decision_model_are_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (docs.ROOT / "docs/decision-models.md").read_text(encoding="utf-8")
    configuration = next(fence.text for fence in docs.fences(page) if fence.language == "yaml")
    hooking.by_user(configuration)
    with deciding.DecisionServer() as server:
        server.level_of = _level
        server.written = _reply
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base}/v1")
        printed, shown = _run_page(tmp_path, "decision-models", "deciding", 6)
    printed = printed.replace(environment.config_home(), "~/.config/judgekit")
    assert _without_times(printed) == _without_times(shown)


def _level(text: str) -> int:
    """Grade an answer for a stand-in: good with a figure, in doubt if it's only kind."""
    answer = text[text.rindex(" path=") :].partition(">")[2].partition("</")[0]
    if re.search(r"\d", answer):
        return 4
    return 2 if re.search("happy|usual|many", answer) else 0


def _reply(text: str) -> str:
    points = 5 if _level(text) == 4 else 1
    scores = dict.fromkeys(("correct", "complete", "direct"), points)
    return json.dumps({"reasoning": "Read closely.", "scores": scores, "findings": []})


def _run_page(tmp_path: Path, name: str, folder: str | None, count: int) -> tuple[str, str]:
    """Run the commands of a page; return all that they print, and all that the page shows."""
    page = (docs.ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    shown = "".join(fence.text for fence in docs.fences(page) if fence.language == "console")
    if folder:
        shutil.copytree(docs.ROOT / f"examples/{folder}", tmp_path / f"examples/{folder}")
    python = shlex.quote(sys.executable)
    lines = [
        "unset COLUMNS",
        "exec 2>&1",
        f'judgekit() {{ {python} -m judgekit "$@"; }}',
        f'python3() {{ {python} "$@"; }}',
    ]
    if name in WITH_HOME:
        lines += ["unset JUDGEKIT_HOME", f"HOME={shlex.quote(str(tmp_path))}"]
    commands = _COMMAND.findall(shown)
    assert len(commands) >= count
    for command in commands:  # `exit` gives each the exit code of the one before
        lines += [
            f"printf '%s\\n' {shlex.quote(f'$ {command}')}",
            "(exit $code)",
            command,
            "code=$?",
        ]
    shell = ["sh", "-c", "\n".join(lines)]
    done = subprocess.run(
        shell, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=300, check=False
    )
    return done.stdout.replace(str(tmp_path), "~"), shown


def _write_page(name: str, printed: str) -> None:
    """Put the output of a page's commands into its blocks, in place of the old one."""
    path = docs.ROOT / f"docs/{name}.md"
    page = path.read_text(encoding="utf-8")
    blocks = [fence.text for fence in docs.fences(page) if fence.language == "console"]
    for block, following in zip(blocks, [*blocks[1:], ""], strict=True):
        end = len(printed)
        if following:
            next_command = re.match(_COMMAND, following)
            assert next_command is not None
            end = printed.index(f"\n{next_command[0]}") + 1
        page = page.replace(block, printed[:end], 1)
        printed = printed[end:]
    path.write_text(page, encoding="utf-8")


def test_the_first_result_of_the_readme_is_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (docs.ROOT / "README.md").read_text(encoding="utf-8")
    shown = next(fence.text for fence in docs.fences(page) if fence.language == "console")
    _, command, *lines = shown.splitlines()
    monkeypatch.chdir(docs.ROOT / "examples/first")
    monkeypatch.setenv("JUDGEKIT_REPLAY", "replies.jsonl")
    assert run(command.removeprefix("$ judgekit ").split()) == 1
    printed = capsys.readouterr().out.rstrip().splitlines()
    assert [re.sub(r"\d\.\d s,", "N s,", line) for line in printed] == [
        re.sub(r"\d\.\d s,", "N s,", line) for line in lines
    ]


def test_the_tutorial_shows_the_workflow_of_the_examples() -> None:
    workflow = (docs.ROOT / "examples/ci/github-actions.yml").read_text(encoding="utf-8")
    assert f"```yaml\n{workflow}```" in (docs.ROOT / "docs/tutorial-ci.md").read_text(
        encoding="utf-8"
    )


def _without_times(text: str) -> str:
    text = re.sub(r"\d\.\d s,", "N s,", text)
    # A slow machine notes now and then how far a run is.
    text = re.sub(r"^judgekit: .* a second, .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"[\da-f]{32}\.[\da-f]{32}", "SEALED", text)  # each installation has its own key
    text = re.sub(r"[\d.]+ s of waiting", "N s of waiting", text)
    text = re.sub(r"\b\d+ (?:months|years) old", "AGE old", text)
    text = re.sub(r'age="\d+ (?:months|years)"', 'age="AGE"', text)
    text = re.sub(r"\b\d+ ms to|\d+ on average", "N", text)
    return re.sub(r"(judged in|\"duration_ms\":|  ms) [ \d]+", r"\1 N", text)


def test_the_examples_in_python_print_what_the_page_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (docs.ROOT / docs.API_PAGE).read_text(encoding="utf-8")
    monkeypatch.chdir(docs.ROOT)
    monkeypatch.setenv("JUDGEKIT_REPLAY", re.findall(r"JUDGEKIT_REPLAY=([\w/.]+)", page)[0])
    names: dict[str, object] = {}
    examples = [fence for fence in docs.fences(page) if fence.language in ("python", "text")]
    assert len(examples) >= 14
    for code, shown in zip(examples[::2], examples[1::2], strict=True):
        assert (code.language, shown.language) == ("python", "text"), code.line
        exec(code.text, names)
        assert capsys.readouterr().out == shown.text, code.line


def test_the_table_of_thresholds_is_what_the_rubrics_say() -> None:
    page = (docs.ROOT / "docs/strict-and-lenient.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == 7
    for name, *told in rows:
        rubric = loader.find_rubric(name.strip("| `")).rubric
        assert isinstance(rubric, ScoreRubric)
        for mode, said in zip((rubric.modes.strict, rubric.modes.lenient), told, strict=False):
            assert f"each {ceil(mode.accept.each)}" in said
            assert ("mean" in said) == (mode.accept.mean is not None)
            assert mode.accept.mean is None or f"mean {mode.accept.mean:g}" in said
