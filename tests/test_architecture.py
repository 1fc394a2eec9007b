"""A foreign library lives in one module, few modules read the environment, and only one room prints."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
LONGEST_MODULE, LONGEST_FUNCTION = 600, 60  # lines

# A foreign library, and the only module that knows it.
HOMES = {
    "detect_secrets": "judging.secret_search",
    "litellm": "providers.litellm",
    "prometheus_client": "engine.team",
    "ruamel": "config.yaml_text",
    "xllamacpp": "providers.local",
}
# The same for libraries that one package is built on.
PACKAGES = {
    "fastapi": "engine",
    "matplotlib": "evaluation",
    "starlette": "engine",
    "uvicorn": "engine",
    "typer": "cli",
}
# Seconds of CPU or a hundred megabytes: imported where they are used.
LAZY = ("detect_secrets", "litellm", "matplotlib", "xllamacpp")

# Where the process's own environment is read below the doors; everything else asks `environment`.
READS_ENVIRONMENT = {
    "environment": "the one place that knows whose environment holds",
    "evaluation.charts": "keeps matplotlib out of the user's folders while it is imported",
    "providers.litellm": "switches off what litellm would do on import",
}
DOORS = {"api", "cli", "engine", "hooks"}  # their modules may read it


class Import(NamedTuple):
    """One import: by which module, of what, on which line, and whether it runs when the module is loaded."""

    by: str
    of: str
    line: int
    at_load: bool


class Module(NamedTuple):
    """A module of the package, named without the package's own name; the package itself is ""."""

    name: str
    tree: ast.Module
    lines: int


def modules() -> list[Module]:
    folder = ROOT / "judgekit"
    return [read(path, folder) for path in sorted(folder.rglob("*.py"))]


def read(path: Path, folder: Path) -> Module:
    parts = path.relative_to(folder).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    name = ".".join(part for part in parts if part != "__init__")
    return Module(name, ast.parse(text, str(path)), len(text.splitlines()))


MODULES = modules()
NAMES = {module.name for module in MODULES}


def imports(module: Module) -> Iterator[Import]:
    """Yield every import, those in functions and for type checkers too."""
    deferred = {id(node) for node in deferred_nodes(module.tree)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            assert node.level == 0, f"{module.name}:{node.lineno}: write imports in full"
        else:
            continue
        for name in names:
            yield Import(module.name, name, node.lineno, id(node) not in deferred)


def deferred_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what does not run when the module is loaded: function bodies, and what type checkers read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from ast.walk(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for each in node.body:
                yield from ast.walk(each)


def own(name: str, known: Iterable[str] = NAMES) -> str | None:
    """Return the module of the package that an imported name leads to, None for a foreign one."""
    package, _, rest = name.partition(".")
    if package != "judgekit":
        return None
    while rest and rest not in known:
        rest = rest.rpartition(".")[0]
    return rest


def importers(library: str) -> dict[str, list[Import]]:
    found: dict[str, list[Import]] = {}
    for each in (each for module in MODULES for each in imports(module)):
        if each.of.partition(".")[0] == library:
            found.setdefault(each.by, []).append(each)
    return found


def parsed(text: str, name: str = "retrieval.query") -> Module:
    return Module(name, ast.parse(text), len(text.splitlines()))


def test_the_package_itself_loads_nothing() -> None:
    """`import judgekit` must stay free: the prompt hook pays for it on every prompt."""
    (package,) = [module for module in MODULES if not module.name]
    assert [each for each in imports(package) if each.at_load and own(each.of) is not None] == []


def test_a_foreign_library_is_known_to_one_module_or_package() -> None:
    for library, home in HOMES.items():
        assert set(importers(library)) == {home}
    for library, package in PACKAGES.items():
        assert {name.partition(".")[0] for name in importers(library)} == {package}


def test_the_client_of_the_engine_needs_no_other_library() -> None:
    """The prompt hook imports it."""
    known = sys.stdlib_module_names | {"judgekit"}
    for module in (each for each in MODULES if each.name in ("engine", "engine.client")):
        assert [each.of for each in imports(module) if each.of.partition(".")[0] not in known] == []


def test_a_heavy_library_is_imported_where_it_is_used() -> None:
    assert [
        each for name in LAZY for found in importers(name).values() for each in found if each.at_load
    ] == []


def test_modules_and_functions_are_short() -> None:
    assert {module.name: module.lines for module in MODULES if module.lines > LONGEST_MODULE} == {}
    long = [
        f"{module.name}.{node.name}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []


def test_only_the_command_line_prints() -> None:
    printing = {
        f"{module.name}:{node.lineno}"
        for module in MODULES
        if module.name.partition(".")[0] != "cli"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == set()


def test_the_environment_is_read_in_few_places() -> None:
    reading = {
        module.name
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    below = {name for name in reading if name.partition(".")[0] not in DOORS}
    assert below == READS_ENVIRONMENT.keys()


# The rules above are code too.


def test_imports_of_functions_and_type_checkers_are_deferred() -> None:
    text = "import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    import c\nif a:\n    import d\n"
    assert {each.of: each.at_load for each in imports(parsed(text))} == {
        "a": True,
        "b": False,
        "c": False,
        "d": True,
    }


def test_scripts_name_modules_that_are_there() -> None:
    """A script goes on without what it cannot fetch, and nobody would notice."""
    known = {f"judgekit.{module.name}" for module in MODULES}
    for script in (".ci/run", "Makefile", "bin/judgekit"):
        text = (ROOT / script).read_text(encoding="utf-8")
        named = re.findall(r"(?:from|import|-m) (judgekit(?:\.\w+)+)", text)
        assert named, script
        assert set(named) <= known, script
