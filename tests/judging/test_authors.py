"""Which agents had a hand in a text."""

from __future__ import annotations

import pytest

from judgekit.judging import authors


@pytest.mark.parametrize(
    ("person", "family"),
    [
        ("Claude <noreply@anthropic.com>", "anthropic"),
        ("Claude Opus 5.5 <noreply@anthropic.com>", "anthropic"),
        ("Claude Code <claude@example.org>", "anthropic"),
        ("Claude <12345+claude@users.noreply@github.com>", "anthropic"),
        ("claude[bot] <209825114+claude[bot]@users.noreply.github.com>", "anthropic"),
        ("Codex <codex@openai.com>", "openai"),
        ("OpenAI Codex", "openai"),
        ("ChatGPT <noreply@openai.com>", "openai"),
        ("gpt-6-luna", "openai"),
        ("Gemini <gemini@example.org>", "google"),
        ("gemini-code-assist[bot] <1+gemini-code-assist[bot]@users.noreply.github.com>", "google"),
        ("gemini-cli <218195315+gemini-cli@users.noreply.github.com>", "google"),
        ("google-labs-jules[bot] <1+google-labs-jules[bot]@users.noreply.github.com>", "google"),
        ("Qwen-Coder <qwen-coder@alibabacloud.com>", "alibaba"),
        ("Mistral Vibe <vibe@mistral.ai>", "mistral"),
        ("Copilot <198982749+Copilot@users.noreply.github.com>", "unknown"),
        ("GitHub Copilot", "unknown"),
        ("copilot-swe-agent[bot] <1+copilot-swe-agent[bot]@users.noreply.github.com>", "unknown"),
        ("Cursor Agent <cursoragent@cursor.com>", "unknown"),
        ("devin-ai-integration[bot] <1+devin-ai-integration[bot]@users.noreply.github.com>", "unknown"),
        ("aider (claude-opus-5-5) <noreply@aider.chat>", "anthropic"),
        ("aider <noreply@aider.chat>", "unknown"),
    ],
)
def test_an_agent_is_known_by_its_signature(person: str, family: str) -> None:
    assert authors.signed([person]) == (family,)
    assert authors.signed([], [f"Co-Authored-By: {person}"]) == (family,)


@pytest.mark.parametrize(
    "person",
    [
        "Ada <ada@example.org>",
        "Claude Monet <claude@example.org>",
        "Claude <claude@dupont.example>",
        "Claudette Opus <c@example.org>",
        "Devin Smith <devin@example.org>",
        "Devin <devin@example.org>",
        "Jules <jules@example.org>",
        "Cursorius Maximus <c@example.org>",
        "Gemini Ganesan <g@example.org>",
        "GitHub <noreply@github.com>",
        "Grokh Ann <g@example.org>",
        "",
    ],
)
def test_people_have_no_family(person: str) -> None:
    assert authors.signed([person], [f"Co-authored-by: {person}"]) == ()


@pytest.mark.parametrize(
    ("trailer", "families"),
    [
        ("Generated-By: Claude Code", ("anthropic",)),
        ("Assisted-by: Codex", ("openai",)),
        ("Made-with: Cursor", ("unknown",)),
        ("co-authored-by:Claude <noreply@anthropic.com>", ("anthropic",)),
        ("Reviewed-by: Claude <noreply@anthropic.com>", ()),
        ("Tested-by: Codex <codex@openai.com>", ()),
        ("Claude <noreply@anthropic.com>", ()),
    ],
)
def test_only_those_who_wrote_count(trailer: str, families: tuple[str, ...]) -> None:
    assert authors.signed([], [trailer]) == families


def test_several_families_are_each_named_once() -> None:
    people = ["Claude <noreply@anthropic.com>", "Ada <a@b.c>", "Codex <codex@openai.com>", "Claude Code"]
    assert authors.listed(authors.signed(people)) == "anthropic, openai"
    assert authors.listed(()) is None


@pytest.mark.parametrize(
    ("given", "families"),
    [
        ("anthropic", ("anthropic",)),
        ("Claude", ("anthropic",)),
        ("openai, claude-opus-5-5 ,OpenAI", ("openai", "anthropic")),
        ("our-own", ("our-own",)),
        ("none", ()),
        ("", ()),
        (None, ()),
    ],
)
def test_a_family_can_be_named(given: str | None, families: tuple[str, ...]) -> None:
    assert authors.named(given) == families
