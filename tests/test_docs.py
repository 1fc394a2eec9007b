"""The documentation says what is true, and the checks that say so find what they look for."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from math import ceil
from textwrap import indent
from typing import TYPE_CHECKING, get_args

import pytest
from pydantic import BaseModel

from judgekit.cli.app import run
from judgekit.config.settings import Config
from judgekit.hooks import claude_code
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric
from tests import docs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


HELP = {"judgekit": "Usage: judgekit\n", "judgekit search": "Usage: judgekit search QUERY\n"}


@pytest.mark.parametrize("check", docs.CHECKS, ids=lambda check: check.__name__)
def test_documentation(check: Callable[[Path], Iterator[str]]) -> None:
    assert list(check(docs.ROOT)) == []


RUBRICS = ("rubric check --run", "rubric diff --run")
OTHERS = (
    *("judge", "gate", "search --judge", "calibrate", "eval judge", "provider check", "demo", "escalate"),
)


def test_what_each_sending_command_sends_is_said() -> None:
    page = (docs.ROOT / "docs/privacy.md").read_text(encoding="utf-8")
    for command in (*RUBRICS, *OTHERS):
        assert f"`judgekit {command}`" in page
        assert [line for line in page.splitlines() if line.startswith("| ") and f"`{command}`" in line]


def test_every_switch_that_lets_something_be_sent_is_named() -> None:
    page = (docs.ROOT / "docs/privacy.md").read_text(encoding="utf-8")
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


def test_the_guide_names_every_event_that_install_sets_up() -> None:
    page = (docs.ROOT / "docs/install.md").read_text(encoding="utf-8")
    hooks = json.loads((docs.ROOT / "hooks/hooks.json").read_text(encoding="utf-8"))["hooks"]
    assert [event for event in hooks if f"`{event}`" not in page] == []
    number = {2: "two", 3: "three", 4: "four"}[len(hooks)]
    assert f"It adds {number} entries" in " ".join(page.split())


def test_the_guide_leads_to_every_page() -> None:
    folder = docs.ROOT / "docs"
    page = (folder / "index.md").read_text(encoding="utf-8")
    pages = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} - {"index.md"}
    assert [each for each in sorted(pages) if f"]({each})" not in page] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a page, a picture and a Makefile, all in order."""
    write(tmp_path, "README.md", "[guide](docs/index.md) ![flow](docs/flow.svg)\n")
    write(tmp_path, "docs/index.md", "# The guide\n\n[home](../README.md) [below](#the-end)\n\n## The end\n")
    write(tmp_path, "docs/flow.svg", "<svg/>\n")
    write(tmp_path, "Makefile", "demo: ready\n\tjudgekit demo\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def test_sound_project_has_no_problem(project: Path) -> None:
    docs.write_help(project, HELP)
    write(project, "docs/index.md", "# The guide\n\n[commands](cli.md) [home](../README.md)\n")
    assert list(docs.broken_links(project)) == []
    assert list(docs.unreachable_pages(project)) == []
    assert list(docs.stale_help(project, HELP)) == []
    assert list(docs.traces(project)) == []


LINKS = {
    "[a](docs/gone.md)": "there is no docs/gone.md",
    "![a](flow.svg)": "there is no flow.svg",
    '<img width="9" src="docs/gone.png">': "there is no docs/gone.png",
    "[a]\n\n[a]: docs/gone.md\n": "there is no docs/gone.md",
    "[a [b]](docs/gone.md 'title')": "there is no docs/gone.md",
    '[a [b]](docs/gone.md "title")': "there is no docs/gone.md",
    "[a](docs/index.md#nowhere)": "names a heading that is not there; there are: the-end, the-guide",
    "[a](#nowhere)": "names a heading that is not there",
    "[a](/docs/index.md)": "is absolute",
    "[a](docs/index.md#the-end)": None,
    "[a](https://example.invalid/gone) [b](mailto:a@example.invalid)": None,
    "`[a](gone.md)`\n\n```md\n[a](gone.md)\n```\n": None,
    "<!-- [a](gone.md) -->": None,
}


def test_broken_links(project: Path) -> None:
    for text, problem in LINKS.items():
        write(project, "README.md", text)
        found = list(docs.broken_links(project))
        assert len(found) == (problem is not None), text
        assert problem is None or problem in found[0]


def test_headings_that_repeat_are_numbered() -> None:
    text = "# Go, now!\n## `go` now\n## Go now\n```\n# not a heading\n```\n"
    assert docs.anchors(text) == {"go-now", "go-now-1", "go-now-2"}


def test_unreachable_pages(project: Path) -> None:
    write(project, "docs/decisions/one.md", "# One\n\n[two](two.md)\n")
    write(project, "docs/decisions/two.md", "# Two\n")
    assert [line.partition(":")[0] for line in docs.unreachable_pages(project)] == [
        "docs/decisions/one.md",
        "docs/decisions/two.md",
    ]
    write(project, "docs/index.md", "[one](decisions/one.md#one)\n")
    assert list(docs.unreachable_pages(project)) == []


def test_help_is_written_and_renewed(project: Path) -> None:
    write(
        project, "docs/cli.md", "# Commands\n\n<!-- help: judgekit search -->\n<!-- /help -->\n\nIn words.\n"
    )
    assert [line.rpartition(": ")[0].split(" with")[0] for line in docs.stale_help(project, HELP)] == [
        "docs/cli.md: judgekit is missing; add it",
        "docs/cli.md: the help of judgekit search is old; renew it",
    ]
    docs.write_help(project, HELP)
    text = docs.text_of(project, docs.CLI_PAGE)
    assert text.startswith(
        "# Commands\n\n<!-- help: judgekit search -->\n```text\nUsage: judgekit search QUERY\n```\n"
    )
    assert "In words." in text
    docs.write_help(project, HELP)
    assert docs.text_of(project, docs.CLI_PAGE) == text


def test_help_that_is_missing_or_of_a_command_that_is_gone(project: Path) -> None:
    assert len(list(docs.stale_help(project, HELP))) == 1
    docs.write_help(project, HELP | {"judgekit gone": "Usage\n"})
    assert list(docs.stale_help(project, HELP)) == [
        "docs/cli.md: judgekit gone is no command (any more); remove its part"
    ]
    helps = docs.commands()
    assert {"judgekit", "judgekit search", "judgekit rubric list"} <= helps.keys()
    assert all("Usage" in text for text in helps.values())


def test_public_names_are_documented_and_no_others(project: Path) -> None:
    assert "missing" in next(docs.undocumented_names(project, ["judge"]))
    write(project, "docs/api.md", "`judge_all` and `search()`\n")
    assert list(docs.undocumented_names(project, ["search"])) == []
    assert list(docs.undocumented_names(project, ["judge"])) == [
        "docs/api.md: judge is public and not documented"
    ]
    write(project, "docs/api.md", "```python\njudgekit.judge(judgekit.judging('a'))\n```\n")
    assert list(docs.unknown_names(project, ["judge"])) == ["docs/api.md:2: there is no judgekit.judging"]


def test_unparsable_blocks(project: Path) -> None:
    for language, sound, broken in (
        ("json", '{"a": 1}', "{'a': 1}"),
        ("jsonl", '{"a": 1}\n[2]', '{"a": 1}\n{'),
        ("yaml", "a: [1, 2]\n", "a: 1\na: 2\n"),
        ("yaml", "a: 1\n", "a: [1\n"),
        ("toml", "a = 1\n", "a = \n"),
    ):
        for text, places in ((sound, []), (broken, [["README.md", "6"]])):
            block = indent(f"```{language}\n{text}\n```", "  ")
            write(project, "README.md", f"# A\n\n- item\n\n{block}\n")
            assert [line.split(":")[:2] for line in docs.unparsable_blocks(project)] == places
    write(project, "README.md", "```text\n{\n```\n")
    assert list(docs.unparsable_blocks(project)) == []


def test_unknown_commands(project: Path) -> None:
    lines = "$ judgekit serch it\njudgekit search it\njudgekit --help\nmake demo\nmake tea\nmake\n"
    write(project, "README.md", f"```sh\n{lines}```\n```text\njudgekit serch\n```\n")
    assert list(docs.unknown_commands(project, HELP)) == [
        "README.md:2: there is no `judgekit serch`",
        "README.md:6: there is no `make tea`",
    ]


def test_installs_a_stranger(project: Path) -> None:
    by_name = (
        *("pip install judgekit", "python -m pip install --user 'judgekit[local]'"),
        *("uv tool install judgekit", "pipx install judgekit==0.1.0"),
    )
    address = 'pip install "judgekit @ git+https://example.invalid/judgekit"'
    sound = ("pip install .", "pip install '.[local]'", address, "judgekit install git")
    for line in (*by_name, *sound):
        write(project, "README.md", f"```sh\n{line}\n```\n")
        found = [found.split(":")[1] for found in docs.installs_a_stranger(project)]
        assert found == ["2"] * (line in by_name)


def test_traces(project: Path) -> None:
    traces = (
        *("see /" + "home/anna/notes", "see '/" + "Users/anna'", "cd /" + "work/main"),
        *("https://" + "pypi" + ".org/simple", "https://registry." + "npmjs" + ".org", "/" + "home/xy"),
    )
    none = (
        *("~/notes and $HOME/notes and ./work/notes", "https://example.invalid/work/notes"),
        *("the " + "/home page and pypi", "made up: /home/x and /home/you/notes"),
    )
    for text in (*traces, *none):
        write(project, "src/code.py", f"\n# {text}\n")
        places = [found.split(":")[:2] for found in docs.traces(project)]
        assert places == ([["src/code.py", "2"]] if text in traces else [])
    write(project, "src/code.py", "")
    (project / "picture.png").write_bytes(b"\x89PNG\xff /" + b"home/anna")
    assert list(docs.traces(project)) == []


def test_problems_are_printed_one_a_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ROOT", project)
    monkeypatch.setattr(docs, "CHECKS", (docs.broken_links,))
    assert docs.main([]) == 0
    write(project, "README.md", "[a](b.md) [c](d.md)")
    assert docs.main([]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_promises_need_tests(project: Path) -> None:
    named = ["tests/test_a.py::test_it", "tests/test_a.py::test_other", "tests/test_b.py::test_it"]
    rows = [*(f"`{each}`" for each in named), "`tests/test_a.py`", "none"]
    table = "".join(f"| a | b | {row} |\n" for row in ("test", *rows))
    write(project, "docs/threat-model.md", f"{table.replace('| a |', '| promise |', 1)}")
    write(project, "tests/test_a.py", "def test_it() -> None: ...\n")
    assert [found.partition(": ")[0] for found in docs.missing_tests(project)] == [
        f"docs/threat-model.md:{number}" for number in (3, 4, 5, 6)
    ]


def test_no_hint_names_a_package_of_an_index() -> None:
    """A package of others may have the name judgekit there."""
    named = re.compile(r"\bjudgekit\[[\w,-]+\]")
    places = [*docs.ROOT.glob("*.md"), *docs.ROOT.glob("docs/**/*.md")]
    for folder, kind in (("judgekit", "*.py"), ("providers", "*.yaml"), ("hooks", "*"), ("skills", "*")):
        places += [path for path in docs.ROOT.joinpath(folder).rglob(kind) if "__pycache__" not in path.parts]
    found = [place for place in places if place.is_file() and named.search(place.read_text(errors="replace"))]
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


def test_the_table_of_thresholds_is_what_the_rubrics_say() -> None:
    page = (docs.ROOT / "docs/strict-and-lenient.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == 6
    for name, *told in rows:
        rubric = loader.score_rubric(name.strip("| `")).rubric
        assert isinstance(rubric, ScoreRubric)
        for mode, said in zip((rubric.modes.strict, rubric.modes.lenient), told, strict=False):
            assert f"each {ceil(mode.accept.each)}" in said
            assert ("mean" in said) == (mode.accept.mean is not None)
            assert mode.accept.mean is None or f"mean {mode.accept.mean:g}" in said
