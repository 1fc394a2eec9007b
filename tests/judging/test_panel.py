"""Which models judge: by variables, configuration and project; and, of what a family wrote, another's."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from making import document_judge, file, finality_rule, finality_rules
from scripted import ScriptedGateway, of_family, scores, scripted_endpoint

from judgekit.cli.output import verdict_text
from judgekit.config import TIERS, settings
from judgekit.judging import documents
from judgekit.judging.documents import named
from judgekit.judging.panel import apart, is_independent, resolve_panel, signed
from judgekit.providers import servers

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.config import TierName
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint

BASE = "http://127.0.0.1:9/v1"
HERE = {"JUDGEKIT_API_BASE": BASE}


@pytest.fixture
def _first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address has a model of its own."""
    monkeypatch.setattr(servers, "models", lambda base, seconds=0.3: ["first"])


def by_user(text: str) -> None:
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text(text)


def names(environ: dict[str, str], project: Path | None = None) -> dict[str, list[str]]:
    panel, _ = resolve_panel(settings.load(project, environ), project, environ)
    return {tier: [endpoint.model.partition("/")[2] for endpoint in jury] for tier, jury in panel.items()}


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


# --- who wrote a text


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
        # People have no family.
        ("Ada <ada@example.org>", None),
        ("Claude Monet <claude@example.org>", None),
        ("Claude <claude@dupont.example>", None),
        ("Claudette Opus <c@example.org>", None),
        ("Devin Smith <devin@example.org>", None),
        ("Devin <devin@example.org>", None),
        ("Jules <jules@example.org>", None),
        ("Cursorius Maximus <c@example.org>", None),
        ("Gemini Ganesan <g@example.org>", None),
        ("GitHub <noreply@github.com>", None),
        ("Grokh Ann <g@example.org>", None),
        ("", None),
    ],
)
def test_an_agent_is_known_by_its_signature(person: str, family: str | None) -> None:
    expected = (family,) if family else ()
    assert signed([person]) == expected
    assert signed([], [f"Co-Authored-By: {person}"]) == expected


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
def test_only_those_who_wrote_count_and_each_family_once(trailer: str, families: tuple[str, ...]) -> None:
    assert signed([], [trailer]) == families
    people = ["Claude <noreply@anthropic.com>", "Ada <a@b.c>", "Codex <codex@openai.com>", "Claude Code"]
    assert signed(people, [trailer])[:2] == ("anthropic", "openai")


def test_a_family_can_be_named() -> None:
    for text in ("none", "", None):
        assert named(text) == ()
    assert (named("anthropic"), named("Claude"), named("our-own")) == (
        ("anthropic",),
        ("anthropic",),
        ("our-own",),
    )
    assert named("openai, claude-opus-5-5 ,OpenAI") == ("openai", "anthropic")


# --- who judges it then

FAMILIES = {"c": "anthropic", "g": "openai", "m": "mistral", "u": "unknown"}


def panel(text: str) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return a panel from the names of its models, tiers apart by a slash; the first letter is the family."""
    return {
        tier: tuple(dataclasses.replace(of_family(name), family=FAMILIES[name[0]]) for name in models.split())
        for tier, models in zip(TIERS, text.split("/"), strict=False)
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
        ("c/g/m", "anthropic openai", "m/m/m"),
    ],
)
def test_the_family_that_wrote_it_is_skipped_where_another_can_take_its_tier(
    given: str, wrote: str, judges: str
) -> None:
    assert apart(panel(given), set(wrote.split())) == panel(judges)


def test_nobody_who_was_not_there_is_asked_and_no_tier_gets_more_or_none() -> None:
    for given in map("/".join, itertools.product(["c", "g", "c g", "c u", "c c2"], repeat=3)):
        before = panel(given)
        after = apart(before, {"anthropic"})
        allowed = {own.model for jury in before.values() for own in jury}
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


# --- and the verdict says so

GOOD, BAD = scores(4, 4, 5), scores(1, 2, 3)
FILE = file("docs/a.md", "Some text.", sha256="ab" * 32)


def model_of(family: str) -> Endpoint:
    return dataclasses.replace(scripted_endpoint(f"{family}/model"), family=family)


def judge(
    *families: str,
    wrote: str | None = "anthropic",
    deep: str = GOOD,
    **options: Any,  # noqa: ANN401 - passed on
) -> tuple[Verdict, list[str]]:
    """Return the verdict of a panel by the families of its tiers, and whom it asked."""
    endpoints: Any = dict(zip(TIERS, map(model_of, families), strict=False))
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [deep], "tiebreaker": [GOOD]})
    own = document_judge(gateway, endpoints, mode="strict", **options)
    verdict = asyncio.run(own.judge(documents.document([FILE], family=wrote)))
    return verdict, [each.model for each in verdict.rounds]


def test_a_model_of_the_authors_family_is_skipped_where_another_can_take_its_tier() -> None:
    verdict, asked = judge("anthropic", "openai", "mistral")
    assert asked == ["openai/model", "openai/model"]
    assert (verdict.verdict, verdict.consensus, verdict.independent) == ("accept", "single", True)
    assert verdict.author.family == "anthropic"
    verdict, asked = judge("anthropic", "anthropic")
    assert (asked, verdict.verdict, verdict.independent) == (["anthropic/model"] * 2, "accept", False)
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
    told = verdict_text(verdict.record())
    assert ("not independent: judged by models of the author's family (" in told) == (independent is False)


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
    endpoints: Any = {"quick": model_of("anthropic"), "deep": model_of("openai")}
    own = document_judge(ScriptedGateway({}), endpoints, mode="strict")
    for_subject = own.for_subject(documents.document([FILE], family="anthropic"))
    assert for_subject.panel == {"quick": (model_of("openai"),), "deep": (model_of("openai"),)}
    assert own.for_subject(documents.document([FILE])) is own
