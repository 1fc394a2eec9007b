"""The package's own source, parsed once for all tests that read it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "judgekit"


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))}
