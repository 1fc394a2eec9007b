"""Which agents had a hand in a text, who judges it then, and whether that was anybody else."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest
from scripted import of_family

from judgekit.config import TIERS
from judgekit.judging import panel as authors
from judgekit.judging.documents import named
from judgekit.judging.panel import apart, is_independent

if TYPE_CHECKING:
    from judgekit.config import TierName
    from judgekit.providers.base import Endpoint


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
    assert authors.signed(people) == ("anthropic", "openai")


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
    assert named(given) == families


FAMILIES = {"c": "anthropic", "g": "openai", "m": "mistral", "u": "unknown"}


def panel(text: str) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return a panel from the names of its models, tiers apart by a slash; the first letter is the family."""
    return {
        tier: tuple(dataclasses.replace(of_family(name), family=FAMILIES[name[0]]) for name in named.split())
        for tier, named in zip(TIERS, text.split("/"), strict=False)
    }


@pytest.mark.parametrize(
    ("given", "wrote", "judges"),
    [
        ("g/c/m", "anthropic", "g/m/m"),
        ("c/g/m", "anthropic", "g/g/m"),
        ("c/c2/g", "anthropic", "g/g/g"),
        ("g/m/c", "anthropic", "g/m/m"),
        ("c g/c/c", "anthropic", "g/g/g"),
        ("c1 c2/g m u/c", "anthropic", "g m/g m u/g"),
        ("c/c2/c3", "anthropic", "c/c2/c3"),
        ("c", "anthropic", "c"),
        ("u/c/c", "anthropic", "u/u/u"),
        ("c/g/m", "mistral", "c/g/g"),
        ("c/g/m", "cohere", "c/g/m"),
        ("c/g/m", "unknown", "c/g/m"),
        ("u/g/m", "unknown", "u/g/m"),
    ],
)
def test_the_family_that_wrote_it_is_skipped_where_another_can_take_its_tier(
    given: str, wrote: str, judges: str
) -> None:
    assert apart(panel(given), {wrote}) == panel(judges)


def test_of_several_families_none_judges() -> None:
    assert apart(panel("c/g/m"), {"anthropic", "openai"}) == panel("m/m/m")


def test_nobody_who_was_not_there_is_asked_and_no_tier_gets_more_or_none() -> None:
    for given in map("/".join, itertools.product(["c", "g", "c g", "c u", "c c2"], repeat=3)):
        before = panel(given)
        after = apart(before, {"anthropic"})
        allowed = {each.model for jury in before.values() for each in jury}
        for tier, jury in after.items():
            assert 0 < len(jury) <= len(before[tier])
            assert {each.model for each in jury} <= allowed
        is_other = any(each.family != "anthropic" for jury in before.values() for each in jury)
        assert is_other == all(each.family != "anthropic" for jury in after.values() for each in jury)


@pytest.mark.parametrize(
    ("wrote", "judged", "expected"),
    [
        ({"anthropic"}, {"openai"}, True),
        ({"anthropic"}, {"anthropic", "openai"}, True),
        ({"anthropic"}, {"anthropic"}, False),
        ({"anthropic", "openai"}, {"anthropic", "openai"}, False),
        ({"anthropic"}, {"unknown"}, None),
        ({"anthropic"}, {"anthropic", "unknown"}, None),
        ({"anthropic"}, {"openai", "unknown"}, True),
        ({"anthropic"}, set(), None),
        (set(), {"openai"}, None),
        ({"unknown"}, {"openai"}, None),
        ({"anthropic", "unknown"}, {"openai"}, None),
        ({"anthropic", "unknown"}, {"anthropic"}, False),
    ],
)
def test_another_family_must_have_had_a_say(
    wrote: set[str],
    judged: set[str],
    expected: bool | None,  # noqa: FBT001 - a column of the table
) -> None:
    assert is_independent(wrote, judged) is expected
