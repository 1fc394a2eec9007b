"""The bundled hooks.json as the real Claude Code client reads it from a plugin."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from sample_store import JWT

from judgekit import bundled

if TYPE_CHECKING:
    from pathlib import Path

    from claude_client import Client

pytestmark = pytest.mark.real_client


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A plugin that consists of a manifest and our hooks."""
    manifest = {
        "name": "judgekit",
        "version": "0.1.0",
        "description": "Memories worth reading now.",
        "author": {"name": "The judgekit authors"},
    }
    folder = tmp_path / "plugin"
    for name in (".claude-plugin", "hooks"):
        (folder / name).mkdir(parents=True)
    (folder / ".claude-plugin" / "plugin.json").write_text(json.dumps(manifest))
    shutil.copy(bundled.folder("hooks") / "hooks.json", folder / "hooks")
    return folder


def test_client_finds_nothing_to_complain_about(client: Client, plugin: Path) -> None:
    answer = client.run("plugin", "validate", str(plugin), "--strict")
    assert answer.code == 0, answer
    assert 'UserPromptSubmit command judgekit ["hook"]' in answer.stdout


def test_client_complains_about_an_event_that_does_not_exist(client: Client, plugin: Path) -> None:
    hooks = plugin / "hooks" / "hooks.json"
    hooks.write_text(hooks.read_text().replace("UserPromptSubmit", "UserPromptSubmitted"))
    assert client.run("plugin", "validate", str(plugin), "--strict").code != 0


def test_plugin_brings_the_memory_to_the_request(client: Client, plugin: Path) -> None:
    answer = client.ask("How do we refresh the JWT?", "--plugin-dir", str(plugin))
    assert answer.code == 0, answer
    assert "<memory-context" in client.api.user_text()
    assert JWT.title in client.api.user_text()
