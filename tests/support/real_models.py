"""Where the real models for tests lie, if they are here at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def model_file(name: str) -> Path:
    """Return a real model's file, or skip the test where there is none."""
    folder = os.environ.get("JUDGEKIT_TEST_MODELS")
    path = Path(folder or ".") / f"{name}.gguf"
    if folder is None or not path.is_file():
        pytest.skip(f"JUDGEKIT_TEST_MODELS names no folder with {name}.gguf")
    return path
