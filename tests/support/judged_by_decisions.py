"""Worlds in which a decision model judges: alone, or before a chat model that writes reasons."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING
from unittest.mock import patch

import hooking
from deciding import DecisionServer
from loopback import Loopback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loopback import Script

QUICK = "vllm-decisions/small"
WRITER = "openai-compatible/writer"


@contextlib.contextmanager
def deciding_alone() -> Iterator[DecisionServer]:
    """Serve a decision model that the user's configuration names for all tiers."""
    with DecisionServer() as server, patch.dict(os.environ, address(server)):
        hooking.by_user(f"judge: {{tiers: {{quick: {QUICK}}}}}\n")
        yield server


@contextlib.contextmanager
def deciding_before(answer: Script) -> Iterator[tuple[DecisionServer, Loopback]]:
    """Serve a decision model as the quick tier, and a chat model as the deeper ones."""
    with DecisionServer() as server, Loopback(answer) as writer:
        addresses = address(server) | {"JUDGEKIT_API_BASE": writer.base}
        with patch.dict(os.environ, addresses):
            hooking.by_user(f"judge: {{tiers: {{quick: {QUICK}, deep: {WRITER}}}}}\n")
            yield server, writer


def address(server: DecisionServer) -> dict[str, str]:
    return {"JUDGEKIT_DECISIONS_BASE": server.base}


def written(folder: Path, text: str = "# Retries\n\nRetry five times, then give up.\n") -> str:
    """Write a document, and return its name."""
    (folder / "retries.md").write_text(text, encoding="utf-8")
    return "retries.md"
