"""The choice of models: by variables, configuration and project, and not of the author's family."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from scripted import of_family

from judgekit.config import TIERS, settings
from judgekit.judging.independence import is_independent
from judgekit.judging.panel import (
    list_writer_families,
    replace_families,
    resolve_panel,
)
from judgekit.providers import servers

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.config import TierName
    from judgekit.providers.base import Endpoint

BASE = "http://127.0.0.1:9/v1"
HERE = {"JUDGEKIT_API_BASE": BASE}


@pytest.fixture
def _first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "list_models", lambda bases, seconds=0.3: [["first"]] * len(bases))


def by_user(text: str) -> None:
    settings.get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
    settings.get_user_config_path().write_text(text)


def names(environ: dict[str, str], project: Path | None = None) -> dict[str, list[str]]:
    panel, _ = resolve_panel(settings.load(project, environ), project, environ)
    return {
        tier: [endpoint.model.partition("/")[2] for endpoint in jury]
        for tier, jury in panel.items()
    }


@pytest.mark.usefixtures("_first")
def test_an_address_of_the_users_own_does_not_undo_the_models_of_the_configuration() -> None:
    by_user("judge: {tiers: {quick: [custom/s4, custom/s3], deep: openai-compatible/s1}}\n")
    assert names(HERE) == {"quick": ["s4", "s3"], "deep": ["s1"], "tiebreaker": ["s1"]}
    assert names({**HERE, "JUDGEKIT_MODEL": "own"})["quick"] == ["own"]
    by_user("")
    assert names(HERE)["quick"] == ["first"]
    by_user("judge: {tiers: {quick: nosuch/zz}}\n")  # a model that is not there is not replaced
    assert "first" not in str(names(HERE))


@pytest.mark.usefixtures("_first")
def test_a_project_leads_no_text_away_from_the_users_address(tmp_path: Path) -> None:
    own = tmp_path / ".judgekit" / "config.yaml"
    own.parent.mkdir()
    own.write_text("judge: {tiers: {quick: anthropic/claude-haiku-5-5}}\n")
    keyed = {**HERE, "ANTHROPIC_API_KEY": "k"}
    assert names(keyed, tmp_path)["quick"] == ["first"]
    by_user("judge: {tiers: {quick: custom/s4, deep: custom/s1}}\n")
    assert names(keyed, tmp_path) == {"quick": ["s4"], "deep": ["s1"], "tiebreaker": ["s1"]}


def test_an_agent_is_known_by_its_signature() -> None:
    cases: list[tuple[str, str | None]] = [
        ("Claude Code <claude@example.org>", "anthropic"),
        ("Claude <12345+claude@users.noreply@github.com>", "anthropic"),
        ("claude[bot] <209825114+claude[bot]@users.noreply.github.com>", "anthropic"),
        ("OpenAI Codex", "openai"),
        ("gemini-code-assist[bot] <1+gemini-code-assist[bot]@users.noreply.github.com>", "google"),
        ("google-labs-jules[bot] <1+google-labs-jules[bot]@users.noreply.github.com>", "google"),
        ("Qwen-Coder <qwen-coder@alibabacloud.com>", "alibaba"),
        ("Mistral Vibe <vibe@mistral.ai>", "mistral"),
        ("Copilot <198982749+Copilot@users.noreply.github.com>", "unknown"),
        ("copilot-swe-agent[bot] <1+copilot-swe-agent[bot]@users.noreply.github.com>", "unknown"),
        (
            "devin-ai-integration[bot] <1+devin-ai-integration[bot]@users.noreply.github.com>",
            "unknown",
        ),
        ("aider (claude-opus-5-5) <noreply@aider.chat>", "anthropic"),
        ("aider <noreply@aider.chat>", "unknown"),
        # People have no family.
        ("Claude Monet <claude@example.org>", None),
        ("Claude <claude@dupont.example>", None),
        ("Devin <devin@example.org>", None),
        ("Jules <jules@example.org>", None),
        ("Gemini Ganesan <g@example.org>", None),
        ("GitHub <noreply@github.com>", None),
        ("", None),
    ]
    for person, family in cases:
        expected = (family,) if family else ()
        assert list_writer_families([person]) == expected
        assert list_writer_families([], [f"Co-Authored-By: {person}"]) == expected


def test_only_those_who_wrote_count_and_each_family_once() -> None:
    people = [
        "Claude <noreply@anthropic.com>",
        "Ada <a@b.c>",
        "Codex <codex@openai.com>",
        "Claude Code",
    ]
    assert list_writer_families(people) == ("anthropic", "openai")
    for trailer, families in (
        ("Generated-By: Claude Code", ("anthropic",)),
        ("Assisted-by: Codex", ("openai",)),
        ("Made-with: Cursor", ("unknown",)),
        ("co-authored-by:Claude <noreply@anthropic.com>", ("anthropic",)),
        ("Reviewed-by: Claude <noreply@anthropic.com>", ()),
        ("Tested-by: Codex <codex@openai.com>", ()),
        ("Claude <noreply@anthropic.com>", ()),
    ):
        assert list_writer_families([], [trailer]) == families


FAMILIES = {"c": "anthropic", "g": "openai", "m": "mistral", "u": "unknown"}


def panel(text: str) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return a panel from the names of its models, tiers apart by a slash; the first letter is the family."""
    return {
        tier: tuple(
            dataclasses.replace(of_family(name), family=FAMILIES[name[0]])
            for name in models.split()
        )
        for tier, models in zip(TIERS, text.split("/"), strict=False)
    }


def test_the_family_that_wrote_it_is_skipped_where_another_can_take_its_tier() -> None:
    for given, wrote, judges in (
        ("g/c/m", "anthropic", "g/m/m"),
        ("c/g/m", "anthropic", "g/g/m"),
        ("c g/c/c", "anthropic", "g/g/g"),
        ("c1 c2/g m u/c", "anthropic", "g m/g m u/g"),
        ("c/c2/c3", "anthropic", "c/c2/c3"),
        ("u/c/c", "anthropic", "u/u/u"),
        ("c/g/m", "mistral", "c/g/g"),
        ("c/g/m", "unknown", "c/g/m"),
        ("c/g/m", "anthropic openai", "m/m/m"),
    ):
        assert replace_families(panel(given), set(wrote.split())) == panel(judges), (given, wrote)


def test_another_family_must_have_had_a_say() -> None:
    cases: list[tuple[set[str], set[str], bool | None]] = [
        ({"anthropic"}, {"openai"}, True),
        ({"anthropic"}, {"anthropic"}, False),
        ({"anthropic", "openai"}, {"anthropic", "openai"}, False),
        ({"anthropic"}, {"unknown"}, None),
        ({"anthropic"}, {"openai", "unknown"}, True),
        ({"anthropic"}, set(), None),
        (set(), {"openai"}, None),
        ({"anthropic", "unknown"}, {"openai"}, None),
        ({"anthropic", "unknown"}, {"anthropic"}, False),
    ]
    for wrote, judged, expected in cases:
        assert is_independent(wrote, judged) is expected, (wrote, judged)
