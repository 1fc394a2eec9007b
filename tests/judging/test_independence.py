"""Who judges what a family of models wrote, and whether that was anybody else."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest
from scripted import scripted_endpoint

from judgekit.judging.authors import apart, is_independent

if TYPE_CHECKING:
    from judgekit.config.names import TierName
    from judgekit.providers.base import Endpoint

FAMILIES = {"c": "anthropic", "g": "openai", "m": "mistral", "u": "unknown"}


def endpoint(name: str) -> Endpoint:
    return dataclasses.replace(scripted_endpoint(name), family=FAMILIES[name[0]])


def panel(text: str) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return a panel from the names of its models, tiers apart by a slash; the first letter is the family."""
    tiers = ("quick", "deep", "tiebreaker")
    return {
        tier: tuple(map(endpoint, named.split()))  # type: ignore[misc]  # the three there are
        for tier, named in zip(tiers, text.split("/"), strict=False)
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
