"""The family that wrote a document judges it only where nobody else can, and the verdict says so."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from making import document_judge, file, finality_rule, finality_rules
from scripted import ScriptedGateway, scores, scripted_endpoint

from judgekit.cli.output import verdict_text
from judgekit.judging import documents

if TYPE_CHECKING:
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint

GOOD, BAD = scores(4, 4, 5), scores(1, 2, 3)
FILE = file("docs/a.md", "Some text.", sha256="ab" * 32)


def endpoint(family: str) -> Endpoint:
    return dataclasses.replace(scripted_endpoint(f"{family}/model"), family=family)


def judge(
    *families: str,
    wrote: str | None = "anthropic",
    deep: str = GOOD,
    **options: Any,  # noqa: ANN401 - passed on
) -> tuple[Verdict, list[str]]:
    """Return the verdict of a panel by the families of its tiers, and whom it asked."""
    tiers = ("quick", "deep", "tiebreaker")
    endpoints: Any = dict(zip(tiers, map(endpoint, families), strict=False))
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [deep], "tiebreaker": [GOOD]})
    own = document_judge(gateway, endpoints, mode="strict", **options)
    verdict = asyncio.run(own.judge(documents.document([FILE], family=wrote)))
    return verdict, [each.model for each in verdict.rounds]


def test_a_model_of_the_authors_family_is_skipped_where_another_can_take_its_tier() -> None:
    verdict, asked = judge("anthropic", "openai", "mistral")
    assert asked == ["openai/model", "openai/model"]
    assert (verdict.verdict, verdict.consensus, verdict.independent) == ("accept", "single", True)
    assert verdict.author.family == "anthropic"


def test_where_there_is_no_other_the_verdict_says_so() -> None:
    verdict, asked = judge("anthropic", "anthropic")
    assert asked == ["anthropic/model"] * 2
    assert (verdict.verdict, verdict.independent) == ("accept", False)
    told = verdict_text(verdict.record())
    assert "not independent: judged by models of the author's family (anthropic)" in told


@pytest.mark.parametrize(
    ("families", "wrote", "independent"),
    [
        (["openai", "mistral"], "anthropic", True),
        (["openai", "mistral"], None, None),
        (["openai", "mistral"], "none", None),
        (["openai", "mistral"], "unknown", None),
        (["unknown", "unknown"], "anthropic", None),
        (["openai", "openai"], "Claude", True),
        (["anthropic", "anthropic"], "Claude", False),
        (["openai", "mistral"], "openai, mistral", False),
    ],
)
def test_whether_it_is_independent(families: list[str], wrote: str | None, independent: bool | None) -> None:  # noqa: FBT001 - a column
    verdict, _ = judge(*families, wrote=wrote)
    assert verdict.independent is independent
    assert ("not independent" in verdict_text(verdict.record())) == (independent is False)


def test_a_configuration_can_name_the_family() -> None:
    verdict, asked = judge("anthropic", "openai", wrote=None, written_by="anthropic")
    assert (asked, verdict.author.family) == (["openai/model"] * 2, "anthropic")
    both, asked = judge("anthropic", "openai", "mistral", wrote="openai", written_by="anthropic")
    assert (asked, both.author.family) == (["mistral/model"] * 2, "openai, anthropic")


def test_a_calibration_for_other_models_is_not_used_and_that_is_said() -> None:
    finality = finality_rules("kls-strict-1", (finality_rule("quick", "accept"),))
    verdict, asked = judge("anthropic", "openai", finality=finality)
    assert (asked, verdict.calibration) == (["openai/model"] * 2, None)
    assert verdict.degraded is not None
    assert "calibration kls-strict-1 not used" in verdict.degraded
    noted, _ = judge(
        "anthropic", "openai", finality=finality, calibration_warning="calibration not used: x.json"
    )
    assert noted.degraded == f"{verdict.degraded}; calibration not used: x.json"
    kept, asked = judge("openai", "mistral", finality=finality)
    assert (asked, kept.calibration) == (["openai/model"], "kls-strict-1")


def test_prompts_are_those_of_whoever_judges() -> None:
    endpoints: Any = {"quick": endpoint("anthropic"), "deep": endpoint("openai")}
    own = document_judge(ScriptedGateway({}), endpoints, mode="strict")
    for_subject = own.for_subject(documents.document([FILE], family="anthropic"))
    assert for_subject.panel == {"quick": (endpoint("openai"),), "deep": (endpoint("openai"),)}
    assert own.for_subject(documents.document([FILE])) is own
