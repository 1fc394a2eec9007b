"""The documentation says what is true, and the checks that say so find what they look for."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from math import ceil
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


def test_the_guide_names_every_event_that_install_sets_up_and_leads_to_every_page() -> None:
    page = (docs.ROOT / "docs/install.md").read_text(encoding="utf-8")
    hooks = json.loads((docs.ROOT / "hooks/hooks.json").read_text(encoding="utf-8"))["hooks"]
    assert [event for event in hooks if f"`{event}`" not in page] == []
    number = {2: "two", 3: "three", 4: "four"}[len(hooks)]
    assert f"It adds {number} entries" in " ".join(page.split())
    folder = docs.ROOT / "docs"
    page = (folder / "index.md").read_text(encoding="utf-8")
    pages = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} - {"index.md"}
    assert [each for each in sorted(pages) if f"]({each})" not in page] == []


HELP = {"judgekit": "Usage: judgekit\n", "judgekit search": "Usage: judgekit search QUERY\n"}
HOME, REGISTRY = "/" + "home/anna", "https://" + "pypi" + ".org/simple"
FILES = {
    "docs/index.md": "# The guide\n\n[home](../README.md) [below](#the-end) [cli](cli.md)\n\n## The end\n",
    "docs/flow.svg": "<svg/>\n",
    "docs/api.md": "`judge_all` and `search()`\n",
    "docs/cli.md": "# The command line\n",
    "docs/one.md": "[two](two.md)\n",
    "docs/two.md": "# Two\n",
    "Makefile": "demo: ready\n\tjudgekit demo\n",
    "tests/test_a.py": "def test_it() -> None: ...\n",
    "src/code.py": f"""
see {HOME}/notes and '/{"Users/anna"}' and
cd /{"work/main"}
{REGISTRY}
https://registry.{"npmjs"}.org
~/notes and $HOME/notes and ./work/notes and https://example.invalid/work/notes
the /{"home"} page and pypi; made up: /{"home"}/x and /{"home"}/you/notes
""",
    "docs/threat-model.md": """| promise | held by | test |
| a | b | `tests/test_a.py::test_it` |
| a | b | `tests/test_a.py::test_other` |
| a | b | `tests/test_b.py::test_it` |
| a | b | `tests/test_a.py` |
| a | b | none |
""",
    "README.md": """[g](docs/index.md) ![f](docs/flow.svg) [e](docs/index.md#the-end)
[a](docs/gone1.md) ![a](flow.svg) <img width="9" src="docs/gone2.png"> [a [b]](docs/gone3.md 'title')
[r] [b](docs/index.md#nowhere) [c](#nowhere) [d](/docs/index.md) `[a](gone.md)` <!-- [a](gone.md) -->
[t](docs/threat-model.md) [w](https://example.invalid/gone) [m](mailto:a@example.invalid)

[r]: docs/gone4.md

# Here

```python
judgekit.judge(judgekit.judging("a"), judgekit.search("b"))
```

- item

  ```json
  {'a': 1}
  ```

```jsonl
{"a": 1}
{
```

```yaml
a: 1
a: 2
```

```yaml
a: [1
```

```toml
a =
```

```text
{ judgekit serch
```

```sh
$ judgekit serch it
judgekit search it
judgekit --help
make demo
make tea
make
pip install judgekit
python -m pip install --user 'judgekit[local]'
uv tool install judgekit
pipx install judgekit==0.1.0
pip install .
pip install '.[local]'
pip install "judgekit @ git+https://example.invalid/judgekit"
```
""",
}
# Of each check what its lines say, in their order.
FOUND: dict[Callable[[Path], Iterator[str]], list[str]] = {
    docs.broken_links: [
        *("there is no docs/gone1.md", "there is no flow.svg", "there is no docs/gone2.png"),
        *("there is no docs/gone3.md", "there is no docs/gone4.md"),
        "names a heading that is not there; there are: the-end, the-guide",
        *("names a heading that is not there; there are: here", "the link /docs/index.md is absolute"),
        *(f"docs/{name}.md: nothing leads here" for name in ("api", "one", "two")),
    ],
    docs.undocumented_names: [
        "docs/api.md: judge is public and not",
        "README.md:11: there is no judgekit.judging",
    ],
    docs.unparsable_blocks: [
        f"README.md:{place}"
        for place in ("17: not json", "21: not jsonl", "26: not yaml", "31: not yaml", "35: not toml")
    ],
    docs.unknown_commands: [
        *("README.md:43: there is no `judgekit serch`", "README.md:47: there is no `make tea`"),
        *(f"README.md:{line}: installs another's package" for line in (49, 50, 51, 52)),
    ],
    docs.missing_tests: [
        f"docs/threat-model.md:{place}"
        for place in ("3: there is no", "4: there is no", "5: a promise without", "6: a promise without")
    ],
    docs.traces: [
        f"src/code.py:{line}: {what}"
        for what, lines in (("a path of somebody's machine", (2, 3)), ("the address of a package", (4, 5)))
        for line in lines
    ],
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with all that is wrong in it."""
    monkeypatch.setattr(docs, "commands", lambda: HELP)
    monkeypatch.setattr(docs, "PUBLIC", ["judge", "search"])
    for name, text in FILES.items():
        write(tmp_path, name, text)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff " + HOME.encode())
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def test_each_check_finds_what_is_wrong_and_nothing_else(project: Path) -> None:
    for check, wanted in FOUND.items():
        found = list(check(project))
        assert len(found) == len(wanted), found
        assert [line for line, part in zip(found, wanted, strict=True) if part not in line] == []


def test_headings_that_repeat_are_numbered() -> None:
    text = "# Go, now!\n## `go` now\n## Go now\n```\n# not a heading\n```\n"
    assert docs.anchors(text) == {"go-now", "go-now-1", "go-now-2"}


def test_help_is_written_renewed_and_missed(project: Path) -> None:
    write(
        project, "docs/cli.md", "# Commands\n\n<!-- help: judgekit search -->\n<!-- /help -->\n\nIn words.\n"
    )
    assert [line.rpartition(";")[0] for line in docs.stale_help(project)] == [
        f"docs/cli.md: the help of {command} is old or missing" for command in HELP
    ]
    docs.write_help(project)
    assert list(docs.stale_help(project)) == []
    text = docs.text_of(project, docs.CLI_PAGE)
    assert text.startswith(
        "# Commands\n\n<!-- help: judgekit search -->\n```text\nUsage: judgekit search QUERY\n```\n"
    )
    assert "In words." in text
    docs.write_help(project)
    assert docs.text_of(project, docs.CLI_PAGE) == text
    write(project, "docs/cli.md", text.replace("help: judgekit search", "help: judgekit gone"))
    assert "docs/cli.md: judgekit gone is no command (any more); remove its part" in docs.stale_help(project)


def test_the_help_of_every_command_is_known() -> None:
    helps = docs.commands()
    assert {"judgekit", "judgekit search", "judgekit rubric list"} <= helps.keys()
    assert all("Usage" in text for text in helps.values())


def test_problems_are_printed_one_a_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ROOT", project)
    monkeypatch.setattr(docs, "CHECKS", (docs.missing_tests,))
    write(project, "docs/threat-model.md", "")
    assert docs.main([]) == 0
    write(project, "docs/threat-model.md", "| a | b | c |\n" * 2)
    assert docs.main([]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str, code: int
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
