"""The folders of the real models for tests, if they're here at all."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.providers.local import LocalServer

if TYPE_CHECKING:
    from collections.abc import Iterator


def model_file(name: str) -> Path:
    folder = os.environ.get("JUDGEKIT_TEST_MODELS")
    path = Path(folder or ".") / f"{name}.gguf"
    if folder is None or not path.is_file():
        pytest.skip(f"JUDGEKIT_TEST_MODELS names no folder with {name}.gguf")
    return path


@contextmanager
def serving(path: Path) -> Iterator[LocalServer]:
    server = LocalServer(path)
    try:
        server.launch()
        asyncio.run(server.wait_until_ready())
        yield server
    finally:
        server.stop()
