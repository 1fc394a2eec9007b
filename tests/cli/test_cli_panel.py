"""A panel of several families: who is asked, who else if a family wrote the text, and whose choice it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hooking import by_user
from outcome import by_project

if TYPE_CHECKING:
    from outcome import Run

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY")
MIXED = "judge: {panel: mixed}\n"
pytestmark = pytest.mark.usefixtures("project", "no_servers")


def keep_keys(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setenv(name, "jk-test-0123456789abcdef")


def shown(judgekit: Run, *words: str) -> list[str]:
    """Return the provider of each tier's model, as --show-prompt says before anything is sent."""
    out = judgekit("judge", "good.md", "--show-prompt", *words).out
    return re.findall(r"^=== .*: \w+ \((\w+)/", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("keys", "given", "expected"),
    [
        (4, "", ["anthropic", "openai", "gemini"]),
        (4, "providers: {order: [mistral]}\n", ["mistral", "anthropic", "openai"]),
        (4, "providers: {allow: [gemini, openai]}\n", ["openai", "gemini", "openai"]),
        (2, "", ["anthropic", "openai", "anthropic"]),
        (1, "", ["anthropic", "anthropic", "anthropic"]),
    ],
)
def test_a_mixed_panel_takes_each_tier_from_another_family_as_far_as_there_are_keys(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, keys: int, given: str, expected: list[str]
) -> None:
    keep_keys(monkeypatch, *KEYS[:keys])
    by_user(MIXED + given)
    assert shown(judgekit) == expected
    listed = judgekit("provider", "list").out
    models = re.search(
        r"^asked +quick (\w+)/\S+, deep (\w+)/\S+, tiebreaker (\w+)/", listed, re.MULTILINE
    )
    assert models is not None
    assert list(models.groups()) == expected


def test_where_a_family_wrote_the_text_another_takes_its_tier(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_keys(monkeypatch, *KEYS)
    by_user(MIXED)
    assert shown(judgekit, "--author-family", "openai") == ["anthropic", "mistral", "gemini"]
    for command in (("provider", "list"), ("doctor",)):
        assert re.search(
            r"texts by openai:? +quick anthropic/\S+, deep mistral/", judgekit(*command).out
        )


def test_named_models_stand_and_nobody_else_mixes_the_panel(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_keys(monkeypatch, *KEYS)
    assert shown(judgekit) == ["anthropic"] * 3
    by_user("judge: {panel: mixed, tiers: {quick: openai/gpt-6-luna}}\n")
    assert shown(judgekit) == ["openai"] * 3
    by_user(MIXED)
    assert shown(judgekit, "--model", "gemini/gemini-4-argon") == ["gemini"] * 3
    by_user("")
    by_project(MIXED)
    refused = judgekit("judge", "good.md")
    assert refused.code == 78
    assert "only the user's configuration may have texts sent to several providers" in refused.err
