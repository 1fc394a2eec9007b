"""Prints which tests guard files: `python -m tests.guards judgekit/gate/push.py`, or `make test FILES=...`.

A test file guards a module when it or its folder is named after the module's room, or when it imports
the module.
A file that is a test itself is printed as it is. Anything else that is not Python is guarded by all tests.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PACKAGE = "judgekit"


def guarding_tests(file: str) -> list[str]:
    """Return the tests that guard a file, as paths from the project's root; all where it is unclear."""
    path = Path(file)
    if not (ROOT / path).exists():
        raise SystemExit(f"{file}: no such file in {ROOT}; give a path from there")
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [str(path)]
    if path.parts[0] != _PACKAGE or path.suffix != ".py":
        return ["tests"]
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    room = path.parts[1].removesuffix(".py")
    tests = set()
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        is_of_room = room in (test.parent.name, *test.stem.split("_"))
        if is_of_room or module in _imported_modules(test):
            tests.add(str(test.relative_to(ROOT)))
    return sorted(tests) or ["tests"]


def _imported_modules(test: Path) -> set[str]:
    """Return the modules of the package that a test imports."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
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
