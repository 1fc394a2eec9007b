"""Recordings in tests/golden, which `JUDGEKIT_TEST_GOLDEN=record` writes again."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDING = os.environ.get("JUDGEKIT_TEST_GOLDEN") == "record"


def same(kind: str, name: str, text: str) -> None:
    """Compare a text with a recording, or record it."""
    path = GOLDEN / kind / name
    if RECORDING:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    record = "run it with JUDGEKIT_TEST_GOLDEN=record, and read the difference in git"
    assert path.exists(), f"{path} is not recorded; {record}"
    with path.open(encoding="utf-8", newline="") as file:
        assert text == file.read(), f"{path} was recorded otherwise; if that is meant, {record}"
