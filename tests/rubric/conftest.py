"""Rubrics of one's own in a project, and models that answer about their cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from judgekit.config import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Path]:
    """Write the rubric `ours@1.0.0`: the bundled one on quality, with texts replaced, and cases beside it."""

    def write(*cases: dict[str, object], version: str = "1.0.0", **replaced: str) -> Path:
        text = (files.folder("rubrics") / "kls@1.0.0.yaml").read_text(encoding="utf-8")
        text = text.replace("rubric: kls", "rubric: ours").replace("version: 1.0.0", f"version: {version}")
        for before, after in replaced.items():
            assert before.replace("__", ": ") in text
            text = text.replace(before.replace("__", ": "), after)
        path = tmp_path / ".judgekit" / "rubrics" / f"ours@{version}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        path.with_name(f"ours@{version}.cases.jsonl").write_text(lines, encoding="utf-8")
        return path

    return write
