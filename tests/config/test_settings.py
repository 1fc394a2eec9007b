from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.config import settings
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".judgekit").mkdir()
    (tmp_path / ".claude" / "memory").mkdir(parents=True)
    return tmp_path


def by_project(project: Path, text: str) -> None:
    (project / ".judgekit" / "config.yaml").write_text(text)


def by_user(text: str) -> None:
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text(text)


def by_memory(project: Path, data: dict[str, Any]) -> None:
    (project / ".claude" / "memory" / "memory-config.json").write_text(json.dumps(data))


def test_without_files_the_defaults_hold() -> None:
    config = settings.load(None)
    assert config == settings.Config()
    assert (config.judge.rubric, config.judge.deadline, config.retrieval.judge) == ("kls", 180, "off")


def test_the_order_of_authority(project: Path) -> None:
    by_user("retrieval: {max_inject: 9, pool: 10, fallback_top_k: 4, show: true}\n")
    by_memory(
        project, {"retrieval": {"max_inject": 4, "judge": {"candidate_pool_size": 5, "fallback_top_k": 3}}}
    )
    by_project(project, "retrieval: {pool: 7}\n")
    retrieval_config = settings.load(project, {"JUDGEKIT_RETRIEVAL_MAX_INJECT": "2"}).retrieval
    assert (
        retrieval_config.max_inject,
        retrieval_config.pool,
        retrieval_config.fallback_top_k,
        retrieval_config.show,
    ) == (2, 7, 3, True)


def test_a_project_lowers_a_limit_but_never_raises_it(project: Path) -> None:
    by_user("judge: {deadline: 60, max_cost_usd: 0.1}\nretrieval: {context_turns: 0}\n")
    by_project(project, "judge: {deadline: 600, max_cost_usd: null}\nretrieval: {context_turns: 9}\n")
    config = settings.load(project)
    assert (config.judge.deadline, config.judge.max_cost_usd, config.retrieval.context_turns) == (60, 0.1, 0)
    by_project(project, "judge: {deadline: 30}\n")
    assert settings.load(project).judge.deadline == 30


@pytest.mark.parametrize(
    ("user", "asked", "holds"),
    [
        ("off", "on", "off"),
        ("project", "on", "on"),
        ("project", "off", "off"),
        ("on", "off", "on"),
        (None, "on", "off"),
        ("project", None, "off"),
    ],
)
def test_a_clone_cannot_make_the_hook_ask_a_model(
    project: Path, user: str | None, asked: str | None, holds: str
) -> None:
    if user:
        by_user(f"retrieval: {{judge: {user}}}\n")
    if asked:
        by_project(project, f"retrieval: {{judge: {asked}}}\n")
    assert settings.load(project).retrieval.judge == holds


def test_memory_settings_cannot_make_the_hook_ask_a_model_either(project: Path) -> None:
    by_memory(project, {"retrieval": {"judge": {"enabled": True}}})
    assert settings.load(project).retrieval.judge == "off"
    by_user("retrieval: {judge: project}\n")
    assert settings.load(project).retrieval.judge == "on"


def test_memory_settings_are_mapped(project: Path) -> None:
    by_memory(
        project,
        {
            "retrieval": {
                "enabled": False,
                "match_strategy": "title_tags",
                "judge": {
                    "timeout_per_call": 2,
                    "dual_verification": True,
                    "include_conversation_context": False,
                    "context_turns": 4,
                    "modes": {
                        "auto": {"verification": "lenient", "max_output": 5},
                        "search": {"verification": "strict"},
                    },
                },
            },
            "categories": {"decision": {"description": "x"}},
        },
    )
    retrieval_config = settings.load(project).retrieval
    assert (
        retrieval_config.enabled,
        retrieval_config.scorer,
        retrieval_config.timeout,
        retrieval_config.context_turns,
    ) == (False, "keyword", 2, 0)
    assert (
        retrieval_config.rubric,
        retrieval_config.mode,
        retrieval_config.search_mode,
        retrieval_config.max_inject,
    ) == (
        "memory-two-criteria",
        "lenient",
        "strict",
        5,
    )


@pytest.mark.parametrize(
    "text",
    [
        "ledger: {text: true}\n",
        "gate: {paths: [a], override_without_terminal: true}\n",
        "providers: {}\n",
        "retrieval: {log: true}\n",
        "judge: {redact: false}\n",
    ],
)
def test_a_project_cannot_say_what_is_the_users_alone(project: Path, text: str) -> None:
    by_project(project, text)
    with pytest.raises(ConfigError, match="only the user's configuration may") as caught:
        settings.load(project)
    assert caught.value.line == 1
    (project / ".judgekit" / "config.yaml").unlink()
    by_user(text)
    assert settings.load(project) == settings.load(None)


def test_no_variable_lets_overrides_pass_without_a_person() -> None:
    with pytest.raises(ConfigError, match="JUDGEKIT_GATE_OVERRIDE_WITHOUT_TERMINAL: no variable may"):
        settings.load(None, {"JUDGEKIT_GATE_OVERRIDE_WITHOUT_TERMINAL": "true"})


def test_switches_may_be_written_as_booleans() -> None:
    by_user("retrieval: {judge: true}\n")
    assert settings.load(None).retrieval.judge == "on"


@pytest.mark.parametrize("root", ["../other", "/etc", "~/notes", "claude:auto"])
def test_a_project_cannot_read_outside_of_itself(project: Path, root: str) -> None:
    by_project(project, f"retrieval: {{roots: [docs, '{root}']}}\n")
    with pytest.raises(ConfigError, match=r"config\.yaml.*retrieval\.roots: leads out of the project"):
        settings.load(project)


def test_a_project_cannot_read_outside_of_itself_by_a_link(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (project / "docs").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    by_project(project, "retrieval: {roots: [docs]}\n")
    with pytest.raises(ConfigError, match="leads out"):
        settings.load(project)


@pytest.mark.parametrize("key", ["allow", "order"])
def test_a_project_cannot_choose_providers(project: Path, key: str) -> None:
    by_project(project, f"providers: {{{key}: [codex]}}\n")
    with pytest.raises(ConfigError, match="only the user's configuration may choose providers"):
        settings.load(project)


def test_a_project_names_only_models_that_a_profile_lists(project: Path) -> None:
    by_project(project, "judge: {tiers: {quick: evil/model}}\n")
    with pytest.raises(ConfigError, match=r"judge\.tiers\.quick: no provider profile lists this model"):
        settings.load(project)


@pytest.mark.parametrize(
    ("text", "line", "key", "problem"),
    [
        ("judge:\n  mode: strictest\n", 2, "judge.mode", "expected 'strict' or 'lenient'"),
        ("retrieval:\n  pool: many\n", 2, "retrieval.pool", "expected a whole number, got a text"),
        ("judges: {}\n", 1, "judges", "unknown key"),
        ("judge: {rubric: kls, rubric: other}\n", 1, "", "duplicate key"),
        ("retrieval:\n  enabled: maybe\n", 2, "retrieval.enabled", "expected true or false, got a text"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, line: int, key: str, problem: str) -> None:
    by_user(text)
    with pytest.raises(ConfigError) as caught:
        settings.load(None)
    assert (caught.value.line, caught.value.key) == (line, key)
    assert problem in str(caught.value)


def test_a_wrong_variable_names_itself() -> None:
    with pytest.raises(ConfigError, match=r"^JUDGEKIT_JUDGE_DEADLINE: expected a number, got a text"):
        settings.load(None, {"JUDGEKIT_JUDGE_DEADLINE": "soon"})


def test_variables_of_lists_are_separated_by_commas() -> None:
    config = settings.load(None, {"JUDGEKIT_RETRIEVAL_ROOTS": "a,b", "JUDGEKIT_GATE_PATHS": "**/*.rst"})
    assert (config.retrieval.roots, config.gate.paths) == (["a", "b"], ["**/*.rst"])


def test_a_project_cannot_spend_more_time_than_the_defaults(project: Path) -> None:
    by_user("retrieval: {judge: 'on'}\n")
    by_project(
        project,
        "retrieval: {deadline: 3600, timeout: 3600, tiers: [quick, deep], pool: 30, max_inject: 5}\n"
        "judge: {deadline: 3600}\n",
    )
    config = settings.load(project)
    own = config.retrieval
    assert (own.deadline, own.timeout, own.tiers, own.pool) == (8, 3, ["quick"], 15)
    assert (own.max_inject, config.judge.deadline) == (5, 180)
    by_user("retrieval: {judge: 'on', tiers: [quick, deep], deadline: 60}\n")
    assert settings.load(project).retrieval.tiers == ["quick", "deep"]
    assert settings.load(project).retrieval.deadline == 60


def test_the_hooks_tiers_can_be_a_variable() -> None:
    assert settings.load(None, {"JUDGEKIT_RETRIEVAL_TIERS": "quick,deep"}).retrieval.tiers == [
        "quick",
        "deep",
    ]
    with pytest.raises(ConfigError, match=r"^JUDGEKIT_RETRIEVAL_TIERS: expected 'quick', 'deep'"):
        settings.load(None, {"JUDGEKIT_RETRIEVAL_TIERS": "nonsense"})
    with pytest.raises(ConfigError, match=r"^JUDGEKIT_JUDGE_TIERS: models are named by JUDGEKIT_QUICK_MODEL"):
        settings.load(None, {"JUDGEKIT_JUDGE_TIERS": "x"})


def test_who_named_a_root_or_a_model_is_known(project: Path) -> None:
    assert settings.user_roots({}) is None
    by_user("retrieval: {roots: [/notes]}\njudge: {tiers: {deep: anthropic/claude-haiku-5-5}}\n")
    assert settings.user_roots({}) == ["/notes"]
    assert settings.user_roots({"JUDGEKIT_RETRIEVAL_ROOTS": "a"}) == ["a"]
    assert settings.tiers_of_project(project) == frozenset()
    by_project(project, "judge: {tiers: {quick: anthropic/claude-haiku-5-5}}\n")
    assert settings.tiers_of_project(project) == frozenset()
    by_user("retrieval: {roots: [/notes]}\njudge: {tiers: {deep: null}}\n")
    assert settings.tiers_of_project(project) == {"quick"}


def test_a_projects_rubric_is_found_from_anywhere_in_it(project: Path) -> None:
    by_project(project, "judge: {rubric: docs/ours.yaml}\n")
    assert settings.load(project).judge.rubric == str(project.resolve() / "docs" / "ours.yaml")
    by_project(project, "judge: {rubric: ../theirs.yaml}\n")
    with pytest.raises(ConfigError, match=r"judge\.rubric: leads out of the project"):
        settings.load(project)


def test_a_variable_may_leave_the_judge_to_the_project(project: Path) -> None:
    by_project(project, "retrieval: {judge: 'on'}\n")
    assert settings.load(project, {"JUDGEKIT_RETRIEVAL_JUDGE": "project"}).retrieval.judge == "on"
    assert settings.load(project, {"JUDGEKIT_RETRIEVAL_JUDGE": "off"}).retrieval.judge == "off"
    by_project(project, "retrieval: {pool: 3}\n")
    assert settings.load(project, {"JUDGEKIT_RETRIEVAL_JUDGE": "project"}).retrieval.judge == "off"
    assert settings.load(project, {"JUDGEKIT_RETRIEVAL_JUDGE": "on"}).retrieval.judge == "on"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("judge: {mode: strict}\nproviders: {allow: [x]}\n", 2),
        ("retrieval:\n  pool: 3\n  roots: [../x]\n", 3),
        ('retrieval:\n  roots: ["a\\0b"]\n', 2),
        ("judge:\n  tiers:\n    quick: nobody/nothing\n", 3),
    ],
)
def test_what_a_project_may_not_say_has_a_line(project: Path, text: str, line: int) -> None:
    by_project(project, text)
    with pytest.raises(ConfigError) as caught:
        settings.load(project)
    assert caught.value.line == line


def test_every_source_is_named(project: Path) -> None:
    names = [path.name for path in settings.sources(project)]
    assert names == ["config.yaml", "config.yaml", "memory-config.json"]


CONSENTS = [("escalate", "issues"), ("stop", "judge")]


@pytest.mark.parametrize(("section", "key"), CONSENTS)
@pytest.mark.parametrize(
    ("user", "asked", "held"),
    [
        (None, "on", "off"),
        ("off", "on", "off"),
        ("on", "off", "on"),
        ("project", "on", "on"),
        ("project", "off", "off"),
        ("project", None, "off"),
    ],
)
def test_what_sends_by_itself_is_the_users_to_allow(
    project: Path, section: str, key: str, user: str | None, asked: str | None, held: str
) -> None:
    if user:
        by_user(f'{section}: {{{key}: "{user}"}}\n')
    if asked:
        by_project(project, f'{section}: {{{key}: "{asked}"}}\n')
    assert getattr(getattr(settings.load(project), section), key) == held


@pytest.mark.parametrize(("section", "key"), CONSENTS)
def test_a_variable_may_leave_it_to_the_project(project: Path, section: str, key: str) -> None:
    variable = {f"JUDGEKIT_{section}_{key}".upper(): "project"}
    assert getattr(getattr(settings.load(project, variable), section), key) == "off"
    by_project(project, f'{section}: {{{key}: "on"}}\n')
    assert getattr(getattr(settings.load(project, variable), section), key) == "on"


@pytest.mark.parametrize(("consent", "wanted"), [("on", [False]), ("project", [True])])
def test_a_project_gets_more_issues_only_where_they_are_left_to_it(
    project: Path, consent: str, wanted: list[bool]
) -> None:
    by_user(f'escalate: {{issues: "{consent}"}}\n')
    by_project(project, 'escalate: {issues: "on", rejects: true, labels: [docs]}\n')
    escalate_config = settings.load(project).escalate
    assert (escalate_config.issues, [escalate_config.rejects], escalate_config.labels) == (
        "on",
        wanted,
        ["docs"],
    )


def test_a_project_cannot_put_quotes_into_issues(project: Path) -> None:
    by_project(project, "escalate: {text: true}\n")
    with pytest.raises(ConfigError, match="only the user's configuration may put quotes into issues"):
        settings.load(project)
    with pytest.raises(ConfigError, match="no variable may"):
        settings.load(None, {"JUDGEKIT_ESCALATE_TEXT": "true"})


def test_a_project_cannot_hold_an_agent_longer_than_the_defaults(project: Path) -> None:
    by_user('stop: {judge: "project", blocks: 2}\n')
    by_project(project, 'stop: {judge: "on", blocks: 9, max_files: 90, deadline: 60}\n')
    stop_config = settings.load(project).stop
    assert (stop_config.judge, stop_config.blocks, stop_config.max_files, stop_config.deadline) == (
        "on",
        2,
        10,
        45,
    )
    by_project(project, "stop: {max_files: 3, deadline: 5}\n")
    assert (settings.load(project).stop.max_files, settings.load(project).stop.deadline) == (3, 5)


@pytest.mark.parametrize("pattern", ["!", "//", "[z-a]"])
def test_a_pattern_that_matches_nothing_is_named(project: Path, pattern: str) -> None:
    by_project(project, f"gate:\n  paths: ['*.md', '{pattern}']\n")
    told = r"config\.yaml:2: gate\.paths\.1: expected a pattern that can match, as in \.gitignore"
    with pytest.raises(ConfigError, match=told):
        settings.load(project)


def test_an_empty_section_says_nothing(project: Path) -> None:
    by_project(project, "gate:\njudge:\n  rubric: own\n")
    config = settings.load(project)
    assert (config.gate, config.judge.rubric) == (settings.GateConfig(), "own")


def test_a_name_that_is_no_section_is_refused_empty_too(project: Path) -> None:
    by_project(project, "gates:\n")
    with pytest.raises(ConfigError, match="gates: unknown key"):
        settings.load(project)


def test_what_is_only_the_users_to_say_names_no_path_of_theirs(project: Path) -> None:
    by_project(project, "gate: {override_without_terminal: true}\n")
    with pytest.raises(ConfigError) as caught:
        settings.load(project)
    assert str(settings.user_file()) not in str(caught.value)


def test_a_value_of_no_use_is_named_where_it_is_set(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> str:
        return str(settings.wrong("gate", "rubric", "no rubric", project))

    assert told() == "gate.rubric: no rubric"
    by_user("gate: {rubric: a}\n")
    assert told() == f"{settings.user_file()}:1: gate.rubric: no rubric"
    by_project(project, "gate:\n  rubric: b\n")
    assert told() == f"{settings.project_file(project)}:2: gate.rubric: no rubric"
    monkeypatch.setenv("JUDGEKIT_GATE_RUBRIC", "c")
    assert told() == "JUDGEKIT_GATE_RUBRIC: no rubric"


def test_a_tier_takes_one_model_or_several() -> None:
    by_user("judge: {tiers: {quick: some/model, deep: [a/b, c/d]}}\n")
    assert settings.load(None).judge.tiers.model_dump() == {
        "quick": ["some/model"],
        "deep": ["a/b", "c/d"],
        "tiebreaker": None,
    }


@pytest.mark.parametrize("named", ["[]", "[1]", "7", "[a, b, c, d, e, f, g, h]"])
def test_a_wrong_jury_names_its_key(named: str) -> None:
    by_user(f"judge: {{tiers: {{quick: {named}}}}}\n")
    with pytest.raises(ConfigError, match=r"judge\.tiers\.quick"):
        settings.load(None)


def test_a_project_cannot_make_more_calls_than_the_user_would(project: Path) -> None:
    by_project(
        project,
        "judge: {samples: 5, criteria: each, jury: majority, margin: 0.5,"
        " tiers: {quick: [anthropic/claude-haiku-5-5, openai/gpt-6-luna]}}\n",
    )
    own = settings.load(project).judge
    assert (own.samples, own.criteria, own.jury, own.margin) == (1, "together", "majority", 0)
    assert own.tiers.quick == ["anthropic/claude-haiku-5-5"]
    by_user("judge: {samples: 3, criteria: each, tiers: {quick: [a/b, c/d]}}\n")
    own = settings.load(project).judge
    assert (own.samples, own.criteria) == (3, "each")
    assert own.tiers.quick == ["a/b", "c/d"]
    by_project(project, "judge: {samples: 2, criteria: together}\n")
    assert (settings.load(project).judge.samples, settings.load(project).judge.criteria) == (2, "together")


def test_a_project_names_only_jurors_that_a_profile_lists(project: Path) -> None:
    by_user("judge: {tiers: {quick: [a/b, c/d]}}\n")
    by_project(project, "judge: {tiers: {quick: [anthropic/claude-haiku-5-5, evil/model]}}\n")
    with pytest.raises(ConfigError, match=r"judge\.tiers\.quick: no provider profile lists this model"):
        settings.load(project)


@pytest.mark.parametrize(
    ("own", "variable", "projects", "together"),
    [
        (None, None, None, "prefer"),
        (None, None, "require", "require"),
        ("prefer", None, "require", "require"),
        ("require", None, "prefer", "require"),
        (None, "require", "prefer", "require"),
        ("prefer", "require", "prefer", "require"),
        ("require", "prefer", None, "prefer"),  # both are the user's: a variable goes before a file
        (None, "prefer", "require", "require"),
    ],
)
def test_a_project_raises_independence_and_never_lowers_it(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str | None,
    variable: str | None,
    projects: str | None,
    together: str,
) -> None:
    by_user(f"judge: {{independence: {own}}}\n" if own else "")
    by_project(project, f"judge: {{independence: {projects}}}\n" if projects else "")
    if variable:
        monkeypatch.setenv("JUDGEKIT_JUDGE_INDEPENDENCE", variable)
    assert settings.load(project).judge.independence == together


@pytest.mark.parametrize("margin", ["0", "10"])
def test_a_projects_margin_does_not_count(
    project: Path, monkeypatch: pytest.MonkeyPatch, margin: str
) -> None:
    by_user("judge: {margin: 0.5}\n")
    by_project(project, f"judge: {{margin: {margin}}}\n")
    assert settings.load(project).judge.margin == 0.5
    monkeypatch.setenv("JUDGEKIT_JUDGE_MARGIN", "0.25")
    assert settings.load(project).judge.margin == 0.25


@pytest.mark.parametrize(
    ("own", "projects", "together"),
    [
        ("anthropic", "none", "anthropic"),
        ("anthropic", "null", "anthropic"),
        ("anthropic", "openai", "anthropic, openai"),
        ("anthropic, google", "Google,mistral", "anthropic, google, mistral"),
        ("null", "openai", "openai"),
        ("null", "null", None),
        ("none", "none", "none"),
    ],
)
def test_a_project_adds_families_of_authors_and_takes_none_away(
    project: Path, monkeypatch: pytest.MonkeyPatch, own: str, projects: str, together: str | None
) -> None:
    by_user(f"judge: {{author_family: '{own}'}}\n" if own != "null" else "")
    by_project(project, f"judge: {{author_family: '{projects}'}}\n".replace("'null'", "null"))
    assert settings.load(project).judge.author_family == together
    monkeypatch.setenv("JUDGEKIT_JUDGE_AUTHOR_FAMILY", "xai")
    own = settings.load(project).judge.author_family or ""
    assert own.startswith("xai")
    assert ("openai" in own) == (projects == "openai")
