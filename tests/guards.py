"""Prints which tests guard files: `python -m tests.guards judgekit/gate/push.py`, or `make test FILES=...`.

A test file guards a file of the package when it or its folder is named after the file's room or folder, when
it imports the module, or when it is named after a module that imports it. Recordings guard every file of the
package. A file that is a test itself is printed as it is. Anything else is guarded by all tests.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PACKAGE = "judgekit"
_RECORDINGS = "tests/test_golden.py"


def guarding_tests(file: str) -> list[str]:
    """Return the tests that guard a file, as paths from the project's root; all of them if that's unclear."""
    path = Path(file)
    if not (ROOT / path).exists():
        raise SystemExit(f"{file}: no such file in {ROOT}; give a path from there")
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [str(path)]
    if path.parts[0] != _PACKAGE:
        return ["tests"]
    module = _module_name(path)
    rooms = {path.parts[1].removesuffix(".py"), path.parent.name}
    importers = _names_of_importers(module)
    tests = {_RECORDINGS}
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        is_of_room = bool(rooms.intersection((test.parent.name, *test.stem.split("_"))))
        is_of_importer = test.stem.removeprefix("test_") in importers
        if is_of_room or is_of_importer or module in _imported_modules(test):
            tests.add(str(test.relative_to(ROOT)))
    return sorted(tests)


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _names_of_importers(module: str) -> set[str]:
    """Return the names that tests of a module's importers go by, such as `judge` and `cli_judge`."""
    names = set()
    for file in (ROOT / _PACKAGE).rglob("*.py"):
        if module in _imported_modules(file):
            names |= {file.stem, f"{file.parent.name}_{file.stem}"}
    return names


def _imported_modules(file: Path) -> set[str]:
    """Return the modules of the package that a file imports."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {module for module in modules if module.partition(".")[0] == _PACKAGE}


def main() -> None:
    tests: dict[str, None] = {}
    for file in sys.argv[1:]:
        tests.update(dict.fromkeys(guarding_tests(file)))
    print(" ".join(["tests"] if "tests" in tests else tests))  # noqa: T201 - for make


if __name__ == "__main__":
    main()
