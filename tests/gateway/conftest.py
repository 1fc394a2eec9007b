"""Shared by the tests of the gateway."""

from __future__ import annotations

import pytest

from judgekit.gateway import litellm_


@pytest.fixture(scope="session", autouse=True)
def _litellm_is_loaded() -> None:
    """Import litellm before any deadline runs: it takes seconds on a busy machine."""
    litellm_.load()
