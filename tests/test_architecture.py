"""A foreign library lives in one module, few modules read the environment, and nothing is too long."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from package import PACKAGE, trees

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
DOORS = {"api", "cli", "engine", "hooks"}  # their modules may read it


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


def test_scripts_name_modules_that_are_there() -> None:
    """A script goes on without what it cannot fetch, and nobody would notice."""
    known = {f"judgekit.{name}" for name in MODULES}
    for script in (".ci/run", "Makefile", "bin/judgekit"):
        text = (ROOT / script).read_text(encoding="utf-8")
        named = re.findall(r"(?:from|import|-m) (judgekit(?:\.\w+)+)", text)
        assert named, script
        assert set(named) <= known, script
