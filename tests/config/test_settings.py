from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hooking import by_project, by_user

from judgekit.config import KEYS_BY_SECTION, settings
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".judgekit").mkdir()
    (tmp_path / ".claude" / "memory").mkdir(parents=True)
    return tmp_path


def by_memory(project: Path, data: dict[str, Any]) -> None:
    (project / ".claude" / "memory" / "memory-config.json").write_text(json.dumps(data))


@pytest.mark.parametrize("section", KEYS_BY_SECTION)
def test_the_list_of_keys_is_that_of_the_models(section: str) -> None:
    listed = set(KEYS_BY_SECTION[section].split())
    defined = set(type(getattr(settings.Config(), section)).model_fields)
    problem = (
        f"KEYS[{section!r}] in judgekit/config/__init__.py isn't what judgekit/config/settings.py defines: "
        f"add {sorted(defined - listed)}, remove {sorted(listed - defined)}"
    )
    assert listed == defined, problem


def held(project: Path | None, section: str, key: str, **variables: str) -> object:
    return getattr(getattr(settings.load(project, variables), section), key)


def test_the_order_of_authority(project: Path) -> None:
    assert settings.load(None) == settings.Config()
    assert [path.name for path in settings.list_config_paths(project)] == [
        *("config.yaml", "config.yaml", "memory-config.json"),
    ]
    by_user("retrieval: {max_inject: 9, pool: 10, fallback_top_k: 4, show: true}\n")
    by_memory(
        project,
        {"retrieval": {"max_inject": 4, "judge": {"candidate_pool_size": 5, "fallback_top_k": 3}}},
    )
    by_project(project, "retrieval: {pool: 7}\n")
    own = settings.load(project, {"JUDGEKIT_RETRIEVAL_MAX_INJECT": "2"}).retrieval
    assert (own.max_inject, own.pool, own.fallback_top_k, own.show) == (2, 7, 3, True)


def test_memory_settings_are_mapped(project: Path) -> None:
    judge = {
        "timeout_per_call": 2,
        "dual_verification": True,
        "include_conversation_context": False,
        "context_turns": 4,
        "modes": {
            "auto": {"verification": "lenient", "max_output": 5},
            "search": {"verification": "strict"},
        },
    }
    retrieval = {"enabled": False, "match_strategy": "title_tags", "judge": judge}
    by_memory(project, {"retrieval": retrieval, "categories": {"decision": {"description": "x"}}})
    own = settings.load(project).retrieval
    assert (own.enabled, own.scorer, own.timeout, own.context_turns) == (False, "keyword", 2, 0)
    assert (own.rubric, own.mode, own.search_mode) == ("memory-two-criteria", "lenient", "strict")
    assert own.max_inject == 5
    by_memory(project, {"retrieval": {"judge": {"enabled": True}}})
    assert settings.load(project).retrieval.judge == "off"
    by_user("retrieval: {judge: project}\n")
    assert settings.load(project).retrieval.judge == "on"


@pytest.mark.parametrize(
    ("section", "key"), [("retrieval", "judge"), ("escalate", "issues"), ("stop", "judge")]
)
def test_a_clone_cannot_make_the_hook_ask_a_model(project: Path, section: str, key: str) -> None:
    """Nor do anything else that sends text by itself."""
    for user, variable, asked, holds in (
        (None, None, "on", "off"),
        ("on", None, "off", "on"),
        ("project", None, "on", "on"),
        ("project", None, "off", "off"),
        (None, "project", None, "off"),
        (None, "project", "on", "on"),
        (None, "off", "on", "off"),
        (None, "on", None, "on"),
    ):
        by_user(f'{section}: {{{key}: "{user}"}}\n' if user else "")
        by_project(project, f'{section}: {{{key}: "{asked}"}}\n' if asked else "")
        variables = {f"JUDGEKIT_{section}_{key}".upper(): variable} if variable else {}
        assert held(project, section, key, **variables) == holds, (user, variable, asked)
    by_user(f"{section}: {{{key}: true}}\n")  # a switch may be written as a boolean
    assert held(None, section, key) == "on"


def test_a_rubric_of_a_project_is_named_by_its_whole_path(project: Path) -> None:
    by_project(project, "judge: {rubric: notes/ours.yaml}\n")
    assert settings.load(project).judge.rubric == str(project.resolve() / "notes" / "ours.yaml")


def test_everything_that_is_wrong_is_said_at_once(project: Path) -> None:
    by_user("judge:\n  mod: strict\nretrievel: {}\n")
    with pytest.raises(ConfigError) as caught:
        settings.load(None)
    assert [line.partition(".yaml:")[2] for line in str(caught.value).splitlines()] == [
        "2: judge.mod: unknown key; did you mean mode?",
        "3: retrievel: unknown key; did you mean retrieval?",
    ]
    by_user("")
    by_project(project, "ledger: {text: true}\nengine: {use: false}\nretrieval: {roots: [/etc]}\n")
    with pytest.raises(ConfigError) as caught:
        settings.load(project)
    assert [each.key for each in (caught.value, *caught.value.others)] == [
        "ledger",
        "engine",
        "retrieval.roots",
    ]
    with pytest.raises(ConfigError) as caught:
        settings.load(None, {"JUDGEKIT_JUDGE_DEADLINE": "soon", "JUDGEKIT_STOP_BLOCKS": "x"})
    assert [line.split()[0] for line in str(caught.value).splitlines()] == [
        "JUDGEKIT_JUDGE_DEADLINE:",
        "JUDGEKIT_STOP_BLOCKS:",
    ]


def test_a_wrong_file_is_one_line() -> None:
    cases: list[tuple[str, int, str]] = [
        ("judge:\n  mode: strictest\n", 2, "judge.mode: expected 'strict' or 'lenient'"),
        ("retrieval:\n  pool: many\n", 2, "retrieval.pool: expected a whole number, got a text"),
        ("judges: {}\n", 1, "judges: unknown key"),
        ("judge: {rubric: kls, rubric: other}\n", 1, "duplicate key"),
        (
            "retrieval:\n  enabled: maybe\n",
            2,
            "retrieval.enabled: expected true or false, got a text",
        ),
        ("judge: {tiers: {quick: [1]}}\n", 1, "judge.tiers.quick"),
        *(
            (
                f"gate:\n  paths: ['*.md', '{pattern}']\n",
                2,
                "gate.paths.1: expected a pattern that can match",
            )
            for pattern in ("!", "//", "[z-a]")
        ),
    ]
    for text, line, message in cases:
        by_user(text)
        with pytest.raises(ConfigError) as caught:
            settings.load(None)
        assert (caught.value.line, message in str(caught.value)) == (line, True)


def test_variables() -> None:
    for name, value, message in (
        ("GATE_OVERRIDE_WITHOUT_TERMINAL", "true", "no variable may"),
        ("ESCALATE_TEXT", "true", "no variable may"),
        ("JUDGE_DEADLINE", "soon", "expected a number, got a text"),
        ("RETRIEVAL_TIERS", "nonsense", "expected 'quick', 'deep'"),
        ("JUDGE_TIERS", "x", "models are named by JUDGEKIT_QUICK_MODEL"),
    ):
        with pytest.raises(ConfigError, match=f"^JUDGEKIT_{name}: {message}"):
            settings.load(None, {f"JUDGEKIT_{name}": value})
    variables = {"JUDGEKIT_RETRIEVAL_ROOTS": "a,b", "JUDGEKIT_RETRIEVAL_TIERS": "quick,deep"}
    own = settings.load(None, variables).retrieval
    assert (own.roots, own.tiers) == (["a", "b"], ["quick", "deep"])
    assert settings.read_user_roots({}) is None
    by_user("retrieval: {roots: [/notes]}\n")
    assert settings.read_user_roots({}) == ["/notes"]
    assert settings.read_user_roots({"JUDGEKIT_RETRIEVAL_ROOTS": "a"}) == ["a"]


@pytest.mark.parametrize(
    ("user", "asked", "key", "holds"),
    [
        ("judge: {deadline: 60}", "judge: {deadline: 600}", "judge.deadline", 60),
        ("judge: {deadline: 60}", "judge: {deadline: 30}", "judge.deadline", 30),
        ("judge: {max_cost_usd: 0.1}", "judge: {max_cost_usd: null}", "judge.max_cost_usd", 0.1),
        (
            "retrieval: {context_turns: 0}",
            "retrieval: {context_turns: 9}",
            "retrieval.context_turns",
            0,
        ),
        ("retrieval: {judge: true}", "retrieval: {deadline: 3600}", "retrieval.deadline", 8),
        ("", "retrieval: {timeout: 3600}", "retrieval.timeout", 3),
        ("retrieval: {pool: 15}", "retrieval: {pool: 30}", "retrieval.pool", 15),
        ("", "retrieval: {max_inject: 5}", "retrieval.max_inject", 5),
        ("", "retrieval: {tiers: [quick, deep]}", "retrieval.tiers", ["quick"]),
        (
            "retrieval: {tiers: [quick, deep]}",
            "retrieval: {tiers: [deep]}",
            "retrieval.tiers",
            ["deep"],
        ),
        ("stop: {blocks: 2}", "stop: {blocks: 9}", "stop.blocks", 2),
        ("", "stop: {max_files: 90}", "stop.max_files", 10),
        ("", "stop: {deadline: 60}", "stop.deadline", 45),
        ("", "judge: {samples: 5}", "judge.samples", 1),
        ("", "judge: {criteria: each}", "judge.criteria", "together"),
        ("judge: {criteria: each}", "judge: {criteria: together}", "judge.criteria", "together"),
        ("", "judge: {jury: majority}", "judge.jury", "majority"),
        ("judge: {margin: 0.5}", "judge: {margin: 0}", "judge.margin", 0.5),
        ("escalate: {issues: true}", "escalate: {rejects: true}", "escalate.rejects", False),
        ("escalate: {issues: project}", "escalate: {rejects: true}", "escalate.rejects", True),
        ("", "gate:", "gate.mode", "advisory"),
        ("gate: {mode: blocking}", "gate: {mode: advisory}", "gate.mode", "blocking"),
        ("", "gate: {budget: 3600}", "gate.budget", 60),
        ("", "judge: {rubric: own}\ngate:", "judge.rubric", "own"),
    ],
)
def test_a_project_stays_within_what_the_user_allows(
    project: Path, user: str, asked: str, key: str, holds: object
) -> None:
    by_user(user)
    by_project(project, asked)
    section, _, name = key.partition(".")
    assert held(project, section, name) == holds


HAIKU = "anthropic/claude-haiku-5-5"


def test_a_project_names_only_models_that_a_profile_lists_and_one_a_tier(project: Path) -> None:
    for models in ("evil/model", f"[{HAIKU}, evil/model]"):
        by_project(project, f"judge:\n  tiers:\n    quick: {models}\n")
        with pytest.raises(
            ConfigError, match=r":3: judge\.tiers\.quick: no provider profile lists this model"
        ):
            settings.load(project)
    by_project(project, f"judge: {{tiers: {{quick: [{HAIKU}, openai/gpt-6-luna]}}}}\n")
    assert settings.load(project).judge.tiers.quick == [HAIKU]
    assert settings.list_project_chosen_tiers(project) == {"quick"}
    by_user("judge: {tiers: {quick: a/b, deep: [a/b, c/d]}}\n")
    tiers = settings.load(project).judge.tiers.model_dump()
    assert tiers == {"quick": ["a/b"], "deep": ["a/b", "c/d"], "tiebreaker": None}
    assert settings.list_project_chosen_tiers(project) == frozenset()
    by_user("judge: {tiers: {deep: null}}\n")
    assert settings.list_project_chosen_tiers(project) == {"quick"}


def test_a_value_of_no_use_is_named_where_it_is_set(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        return str(settings.build_error("gate", "rubric", "no rubric", project))

    assert told() == "gate.rubric: no rubric"
    by_user("gate: {rubric: a}\n")
    assert told() == f"{settings.get_user_config_path()}:1: gate.rubric: no rubric"
    by_project(project, "gate:\n  rubric: b\n")
    assert told() == f"{settings.get_project_config_path(project)}:2: gate.rubric: no rubric"
    monkeypatch.setenv("JUDGEKIT_GATE_RUBRIC", "c")
    assert told() == "JUDGEKIT_GATE_RUBRIC: no rubric"


def test_a_project_raises_independence_and_never_lowers_it(project: Path) -> None:
    for own, variable, projects, together in (
        (None, None, "require", "require"),
        ("require", None, "prefer", "require"),
        (None, "require", "prefer", "require"),
        ("prefer", "require", "prefer", "require"),
        ("require", "prefer", None, "prefer"),  # both are the user's: a variable goes before a file
        (None, "prefer", "require", "require"),
    ):
        by_user(f"judge: {{independence: {own}}}\n" if own else "")
        by_project(project, f"judge: {{independence: {projects}}}\n" if projects else "")
        variables = {"JUDGEKIT_JUDGE_INDEPENDENCE": variable} if variable else {}
        assert held(project, "judge", "independence", **variables) == together, (
            own,
            variable,
            projects,
        )


def test_a_project_adds_families_of_authors_and_takes_none_away(project: Path) -> None:
    for own, projects, together in (
        ("anthropic", "none", "anthropic"),
        ("anthropic", "openai", "anthropic, openai"),
        ("anthropic, google", "Google,mistral", "anthropic, google, mistral"),
        ("null", "null", None),
        ("none", "none", "none"),
    ):
        by_user(f"judge: {{author_family: '{own}'}}\n" if own != "null" else "")
        by_project(project, f"judge: {{author_family: '{projects}'}}\n".replace("'null'", "null"))
        assert held(project, "judge", "author_family") == together, (own, projects)
        families = str(held(project, "judge", "author_family", JUDGEKIT_JUDGE_AUTHOR_FAMILY="xai"))
        assert families.startswith("xai")
        assert ("openai" in families) == (projects == "openai")
