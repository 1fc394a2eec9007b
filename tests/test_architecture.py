"""A foreign library lives in one module, few modules read the environment, and nothing is too long."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from package import PACKAGE, trees

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]

# A foreign library, and the only module that knows it.
HOMES = {
    "detect_secrets": "redaction.secret_search",
    "jinja2": "evaluation.page",
    "litellm": "providers.litellm",
    "prometheus_client": "engine.metrics",
    "ruamel": "config.yaml_text",
    "xllamacpp": "providers.local",
}
# The same for libraries that one package is built on.
PACKAGES = {
    "fastapi": "engine",
    "pyarrow": "data",
    "starlette": "engine",
    "uvicorn": "engine",
    "typer": "cli",
}
# Where the process's own environment is read below the doors; everything else asks `environment`.
READS_ENVIRONMENT = {
    "data.on_ray": "switches off what Ray would do on import",
    "environment": "the one place that knows whose environment holds",
    "providers.litellm": "switches off what litellm would do on import",
}
# Names by which opinions are read and judgings ended, and the only modules that use them. Whatever is decided
# rests on evidence, which `evidence` alone makes; `escalation` alone says when a judging ends. Of those that
# stand here besides, some make opinions (`jury`, questions), some say in words what was decided.
READS_OPINIONS = {
    "TierEvidence()": {"judging.evidence"},
    "End()": {"judging.rows", "judging.situation", "judging.steps"},
    "certainty()": {"judging.evidence"},
    "measure_margin()": {"judging.evidence", "judging.noise", "evaluation.document_task"},
    ".convert_to_outcomes()": {"judging.evidence"},
    ".divided": {"judging.evidence", "judging.score"},
    ".is_won()": {"judging.rows", "evaluation.ranking_task"},
    ".is_final()": {"judging.situation", "evaluation.calibrate"},
    ".find_decided_outcome()": {"judging.situation", "evaluation.calibrate"},
    ".stands()": {"judging.rows"},
    ".outcome": {
        *("judging.calibration", "judging.escalation", "judging.evidence", "judging.finality"),
        *("judging.jury", "judging.rows", "judging.score", "judging.score_question"),
        *("judging.select_question", "judging.situation"),
        *(
            "evaluation.agreement",
            "evaluation.pair_task",
            "evaluation.samples",
            "evaluation.selection_task",
        ),
        *("evaluation.calibrate", "evaluation.task"),
    },
}
DOORS = {"api", "cli", "engine", "hooks"}  # their modules may read it
# The marks by which tasks and rubrics are told apart, and for each room the one module that asks for them.
RUBRICS_AND_TASKS = {
    *("ScoreRubric", "SelectRubric", "CompareRubric"),
    *("DocumentJudge", "CandidateJudge", "PairJudge", "RankingJudge"),
    *("Verdict", "Selection", "Comparison"),
    *("ScoreReply", "SelectReply", "CompareReply"),
    *("DocumentTask", "SelectionTask", "PairTask", "RankingTask"),
    *("ScoreQuestion", "SelectQuestion", "CompareQuestion"),
}
ASKS_FOR_THE_TASK = {"judging": set[str](), "evaluation": {"evaluation.tasks"}}


MODULES = {
    ".".join(
        part for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__"
    ): tree
    for path, tree in trees().items()
}
"""The modules of the package by their names, without the package's own; the package itself is ""."""


@cache
def imports() -> dict[str, set[str]]:
    """Return the libraries that each module imports, also in functions and for type checkers."""
    found = {module: set[str]() for module in MODULES}
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}:{node.lineno}: write imports in full"
                found[module].add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Import):
                found[module] |= {each.name.partition(".")[0] for each in node.names}
    return found


def importers(library: str) -> set[str]:
    return {module for module, libraries in imports().items() if library in libraries}


def test_a_foreign_library_is_known_to_one_module_or_package() -> None:
    for library, home in HOMES.items():
        assert importers(library) == {home}
    for library, package in PACKAGES.items():
        assert {name.partition(".")[0] for name in importers(library)} == {package}


def test_the_environment_is_read_in_few_places() -> None:
    reading = {
        name
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    below = {name for name in reading if name.partition(".")[0] not in DOORS}
    assert below == READS_ENVIRONMENT.keys()


@pytest.mark.parametrize("name", READS_OPINIONS)
def test_nothing_but_evidence_reads_opinions_to_decide(name: str) -> None:
    """A second reader would end judgings, or learn from them, by a rule of its own."""
    users = set()
    for module, tree in MODULES.items():
        if module.startswith(("judging.", "evaluation.")) and name in _uses(tree):
            users.add(module)
    assert users == READS_OPINIONS[name]


@pytest.mark.parametrize("flag", ["decides", "is_pointwise", "writes"])
def test_the_kind_of_a_model_is_told_in_one_place(flag: str) -> None:
    """A kind is added there, and not wherever something depends on it."""
    users = set()
    for module, tree in MODULES.items():
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if module.startswith(("judging.", "evaluation.")) and flag in attributes:
            users.add(module)
    assert users <= {"judging.kinds"}


@pytest.mark.parametrize("room", ASKS_FOR_THE_TASK)
def test_the_task_of_a_rubric_is_asked_for_in_one_place(room: str) -> None:
    """A task is added there, with a class of its own, and not wherever something depends on it."""
    users = set()
    for module, tree in MODULES.items():
        if module.startswith(f"{room}.") and _names_checked(tree) & RUBRICS_AND_TASKS:
            users.add(module)
    assert users == ASKS_FOR_THE_TASK[room]


def _names_checked(tree: ast.AST) -> set[str]:
    """Return the names of the classes that a module asks for with `isinstance` or `match`."""
    names = set()
    for node in ast.walk(tree):
        classes: list[ast.AST] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            classes = [node.args[1]]
        elif isinstance(node, ast.MatchClass):
            classes = [node.cls]
        for tested in classes:
            names |= {name.id for name in ast.walk(tested) if isinstance(name, ast.Name)}
    return names


def _uses(tree: ast.AST) -> set[str]:
    """List the calls of a module (`name()`, `.name()`), and the attributes that it reads (`.name`)."""
    uses = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            uses.add(f"{node.func.id}()")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            uses.add(f".{node.func.attr}()")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            uses.add(f".{node.attr}")
    return uses


def test_scripts_name_modules_that_are_there() -> None:
    """A script would go on without things it can't fetch, and nobody would notice."""
    known = {f"judgekit.{name}" for name in MODULES}
    for script in (".ci/run", "Makefile", "bin/judgekit"):
        text = (ROOT / script).read_text(encoding="utf-8")
        named = re.findall(r"(?:from|import|-m) (judgekit(?:\.\w+)+)", text)
        assert named, script
        assert set(named) <= known, script


def test_lines_to_look_for_stand_in_the_files_that_the_guide_names() -> None:
    """A newcomer searches for these names: after a renaming they must be those of today."""
    guide = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, decided = guide.partition("## Where it is decided")
    decided, _, _ = decided.partition("## ")
    rows = [line.split("|")[2:4] for line in decided.splitlines() if line.startswith("| ")][2:]
    assert rows
    missing = []
    for files_cell, names_cell in rows:
        text = "".join(_read_named_files(files_cell))
        for name in re.findall(r"`([^`]+)`", names_cell):
            if not re.search(rf"\b{re.escape(name)}\b", text):
                missing.append(f"{name}, which isn't in {files_cell.strip()}")
    assert not missing


def _read_named_files(cell: str) -> Iterator[str]:
    """Yield the text of each file that a cell names: modules of judgekit, or files beside it by a pattern."""
    for pattern in re.findall(r"`([^`]+)`", cell):
        paths = [*(ROOT / "judgekit").glob(pattern), *ROOT.glob(pattern)]
        assert paths, f"{pattern} names no file"
        for path in paths:
            yield path.read_text(encoding="utf-8")
