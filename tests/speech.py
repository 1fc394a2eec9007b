"""Checks how docstrings speak: `python -m tests.speech [ROOM|tests|bench...]`, part of `make check`.

A docstring says what a function gives or does, and begins with that. One that returns "what …" names neither
a type nor a thing, so its reader opens the body; "where" before "it" mostly means "if". Only the package's
public functions need a docstring: a test's name says what it tests.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    Named: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "judgekit"
OTHERS = ("tests", "bench")  # checked like a room, but no docstring has to be there
_OBVIOUS = 3  # statements of a function that needs no docstring
_VAGUE = {
    r"\b(?:return|yield)s? (?:what|how|which|who|whether it)\b": "name the thing that comes back",
    r"\bwhere (?:it|there|no)\b": 'write "if" or "when"',
}


def check(path: Path, *, may_lack: bool = False) -> Iterator[str]:
    """Yield a line for each vague docstring of a file and, unless it `may_lack` some, each missing one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = " ".join((ast.get_docstring(node) or "").split())
        line = getattr(node, "lineno", 1)
        for pattern, remedy in _VAGUE.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                yield f"{shown}:{line}: {match[0]!r}: {remedy}"
    if may_lack:
        return
    for function in _list_public(tree.body):
        if ast.get_docstring(function) is None and len(function.body) > _OBVIOUS:
            yield f"{shown}:{function.lineno}: {function.name} has no docstring"


def _list_public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the public functions of a module, and the public methods of its public classes."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _list_public(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_overload = any("overload" in ast.unparse(each) for each in node.decorator_list)
            if not node.name.startswith("_") and not is_overload:
                yield node


def list_files(rooms: list[str]) -> Iterator[Path]:
    """Yield the files of some rooms, of tests or of bench; all files if none is named."""
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        if room in rooms or not rooms:
            yield path
    for folder in OTHERS:
        if folder in rooms or not rooms:
            yield from sorted((ROOT / folder).rglob("*.py"))


def main() -> int:
    """Print the findings; returns the exit code."""
    problems: list[str] = []
    for path in list_files(sys.argv[1:]):
        problems += check(path, may_lack=PACKAGE not in path.parents)
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
