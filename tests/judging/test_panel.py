"""Whose word counts in the choice of models: variables, the user's configuration, a project's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.config import settings
from judgekit.judging.panel import resolve_panel
from judgekit.providers import servers

if TYPE_CHECKING:
    from pathlib import Path

BASE = "http://127.0.0.1:9/v1"
HERE = {"JUDGEKIT_API_BASE": BASE}


@pytest.fixture(autouse=True)
def first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address has a model of its own."""
    monkeypatch.setattr(servers, "models", lambda base, seconds=0.3: ["first"])


def by_user(text: str) -> None:
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text(text)


def names(environ: dict[str, str], project: Path | None = None) -> dict[str, list[str]]:
    panel, _ = resolve_panel(settings.load(project, environ), project, environ)
    return {tier: [endpoint.model.partition("/")[2] for endpoint in jury] for tier, jury in panel.items()}


def test_an_address_of_the_users_own_does_not_undo_the_models_of_the_configuration() -> None:
    by_user("judge: {tiers: {quick: [custom/s4, custom/s3], deep: openai-compatible/s1}}\n")
    assert names(HERE) == {"quick": ["s4", "s3"], "deep": ["s1"], "tiebreaker": ["s1"]}
    assert names({**HERE, "JUDGEKIT_MODEL": "own"})["quick"] == ["own"]
    by_user("")
    assert names(HERE)["quick"] == ["first"]


def test_a_model_that_is_not_at_the_address_is_not_replaced() -> None:
    by_user("judge: {tiers: {quick: nosuch/zz}}\n")
    assert "first" not in str(names(HERE))


def test_a_project_leads_no_text_away_from_the_users_address(tmp_path: Path) -> None:
    own = tmp_path / ".judgekit" / "config.yaml"
    own.parent.mkdir()
    own.write_text("judge: {tiers: {quick: anthropic/claude-haiku-5-5}}\n")
    keyed = {**HERE, "ANTHROPIC_API_KEY": "k"}
    assert names(keyed, tmp_path)["quick"] == ["first"]
    by_user("judge: {tiers: {quick: custom/s4, deep: custom/s1}}\n")
    assert names(keyed, tmp_path) == {"quick": ["s4"], "deep": ["s1"], "tiebreaker": ["s1"]}
