"""The hooks' settings: validated once per change; `enabled: false` holds whatever else is wrong."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import time
from pathlib import Path

import pytest
from hooking import by_project, by_user

from judgekit import environment
from judgekit.config import settings as config
from judgekit.config import yamlfile
from judgekit.errors import ConfigError
from judgekit.hooks import explain, settings
from judgekit.retrieval import compiled


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".claude" / "memory").mkdir(parents=True)
    (tmp_path / ".judgekit").mkdir()
    return tmp_path


def by_memory(project: Path, value: object) -> Path:
    path = project / ".claude" / "memory" / "memory-config.json"
    path.write_text(json.dumps(value))
    return path


def value(project: Path, key: str) -> object:
    loaded, notes = settings.load(str(project))
    assert notes == []
    return loaded[key]


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("the configuration was validated, or a file was opened")


def test_settings_are_validated_once(
    project: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(config, "load", refuse)
        loaded, notes = settings.load(str(project))
    assert (loaded.values, notes) == (compiled.get_bundled_data()["settings"], [])
    assert not Path(environment.cache_home()).exists()
    by_project(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1
    with monkeypatch.context() as patch:
        patch.setattr(config, "load", refuse)
        assert value(project, "max_inject") == 1
    kept = cached()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for content in ("", "{", "[]", '{"key": 1}', "\x00"):
        kept.write_text(content)
        assert value(project, "max_inject") == 1
    other = by_project(isolated / "other", "retrieval: {max_inject: 2}\n").parents[1]
    for _ in range(2):  # projects do not share what is kept
        assert [value(project, "max_inject"), value(other, "max_inject")] == [1, 2]
    shutil.rmtree(kept.parent)
    kept.parent.write_text("in the way")  # without a cache folder the settings still hold
    assert value(project, "max_inject") == 1


def cached() -> Path:
    (kept,) = Path(environment.HOOK_SETTINGS.path()).iterdir()
    return kept


def test_a_change_of_any_source_is_seen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {str(path) for path in config.list_config_paths(project)} == set(
        environment.configuration_files(str(project))
    )
    theirs = by_memory(project, {"retrieval": {"max_inject": 2}})
    assert value(project, "max_inject") == 2
    ours = by_project(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1
    for path, left in ((ours, 2), (theirs, 3)):
        path.unlink()
        assert value(project, "max_inject") == left
    by_user("retrieval: {show: true}\n")
    assert value(project, "show") is True
    for number in (2, 1):
        monkeypatch.setenv("JUDGEKIT_RETRIEVAL_MAX_INJECT", str(number))
        assert value(project, "max_inject") == number
    monkeypatch.delenv("JUDGEKIT_RETRIEVAL_MAX_INJECT")
    for replaced in (True, False):  # with the same size and time
        path = by_project(project, "retrieval: {max_inject: 3}\n")
        assert value(project, "max_inject") == 3
        before = path.stat()
        time.sleep(0.02)  # more than a tick of the file system's clock
        if replaced:
            path.rename(path.with_name("old"))
        by_project(project, "retrieval: {max_inject: 0}\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert value(project, "max_inject") == 0


def test_a_wrong_configuration_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (
        "retrieval: {max_inject: many}\n",
        "retrieval: [\n",
        "retrieval: {maxinject: 1}\n",
    ):
        by_project(project, text)
        with monkeypatch.context() as patch:
            for _ in range(2):  # it is said at every prompt, and validated once
                loaded, (note,) = settings.load(str(project))
                patch.setattr(config, "load", refuse)
                assert loaded.values.items() >= compiled.get_bundled_data()["settings"].items()
                assert loaded.values["stop"]["judge"] == "off"
                assert "config.yaml" in note
                assert "\n" not in note

    def fail(*arguments: object) -> None:
        raise ConfigError("for now")

    by_project(project, "retrieval: {max_inject: 1}\n")
    for name in ("JUDGEKIT_JUDGE_DEADLINE", "JUDGEKIT_GATE_BUDGET"):  # it does not outlive itself
        with monkeypatch.context() as patch:
            patch.setenv(name, "soon")
            loaded, notes = settings.load(str(project))
        assert (loaded["max_inject"], len(notes)) == (3, 1)
        assert value(project, "max_inject") == 1
    shutil.rmtree(cached().parent)
    with monkeypatch.context() as patch:
        patch.setattr(config, "load", fail)
        assert settings.load(str(project))[1] == ["for now; using the defaults"]
    assert settings.load(str(project))[1] == ["for now; using the defaults"]
    long_ago = time.time() - settings.WRONG_SECONDS - 1
    os.utime(cached(), (long_ago, long_ago))
    assert value(project, "max_inject") == 1


def test_a_projects_profile_counts(project: Path) -> None:
    text = (Path(__file__).parents[2] / "retrieval" / "markdown.yaml").read_text(encoding="utf-8")
    path = project / ".judgekit" / "retrieval" / "markdown.yaml"
    path.parent.mkdir()
    for expected in (0.4, 0.5):
        path.write_text(
            text.replace("noise_floor: 0.25", f"noise_floor: {expected}"), encoding="utf-8"
        )
        os.utime(path, ns=(int(expected * 10), int(expected * 10)))
        loaded, notes = settings.load(str(project))
        assert (loaded.profiles.by_kind["markdown"].noise_floor, notes) == (expected, [])
    path.write_text("retrieval: markdown\n")
    loaded, (note,) = settings.load(str(project))
    assert loaded.profiles.by_kind["markdown"].noise_floor == 0.25
    assert "bundled profiles" in note


def test_descriptions_of_categories_come_from_a_file_of_the_store(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(project / ".claude" / "memory")
    categories = {
        "decision": {"description": "why"},
        "runbook": {"description": 3},
        "x": "y",
        "z": {},
    }
    path = by_memory(project, {"categories": categories})
    assert settings.read_descriptions(root) == {"decision": "why"}
    for text in ('["x"]', "{", '{"categories": 3}'):
        path.write_text(text)
        assert settings.read_descriptions(root) == {}
    target = tmp_path_factory.mktemp("outside") / "secret.json"
    target.write_bytes(b'{"categories": {"decision": {"description": "a secret"}}}')
    monkeypatch.setattr("builtins.open", refuse)
    for pipe in (True, False):
        path.unlink()
        os.mkfifo(path) if pipe else path.symlink_to(target)
        assert settings.read_descriptions(root) == {}


def test_a_clone_cannot_bring_more_than_is_soon_read_and_looked_at(project: Path) -> None:
    for name in ("config.yaml", "retrieval/markdown.yaml", "memory-config.json"):
        path = project / (".claude/memory" if name.endswith(".json") else ".judgekit") / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#" * (yamlfile.CONFIG_BYTES + 1) + "\n")
        (note,) = settings.load(str(project))[1]
        assert f"{path.name}: larger than {yamlfile.CONFIG_BYTES} bytes" in note
        path.unlink()
    for key in ("roots", "pin"):
        by_project(
            project, f"retrieval: {{{key}: [{', '.join(['a'] * (config.MAX_ROOTS + 1))}]}}\n"
        )
        loaded, (note,) = settings.load(str(project))
        assert loaded[key] == compiled.get_bundled_data()["settings"][key]
        assert f"retrieval.{key}: expected" in note


OFF = [
    "retrieval: {enabled: false}\n",
    "retrieval:\n  max_inject: 2\n  enabled: off  # for now\n",
    "'retrieval': {'enabled': no}\n",
    '{"retrieval": {"enabled":false}}\n',
    "retrieval:\n  enabled:\n    false\n",
    "retrieval: {enabled: perhaps}\n",
    "retrieval: {enabled: }\n",
]
NOT_OFF = [
    "",
    "retrieval: {enabled: true}\n",
    "retrieval: {pin: [is-enabled]}\n",
    "retrieval: {pin: ['not-enabled: false']}\n",
    "judge: {rubric: enabled}\n",
]
MEMORY_OFF = [
    *('{"retrieval": {"enabled": false}}', '{"retrieval": {"enabled": "no"}}'),
    *(
        '{"retrieval": {"enabled": 0}}',
        '{"retrieval": {"enabled": false}',
    ),  # the broken one is in doubt
]
MEMORY_NOT_OFF = [
    '{"retrieval": {"enabled": true, "judge": {"enabled": false}}}',
    '{"retrieval": {"judge": {"enabled": false}}}',
    *('{"retrieval": []}', "[]", '{"retrieval": {"max_inject": 1}'),
]


def test_it_is_off_in_every_way_to_write_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (*OFF, *NOT_OFF):
        for ours, users in ((text, ""), ("", text)):
            by_project(project, ours)
            by_user(users)
            assert settings.is_hook_off(str(project)) is (text in OFF), text
    by_user("")
    for text in (*MEMORY_OFF, *MEMORY_NOT_OFF):
        by_memory(project, {}).write_text(text)
        assert settings.is_hook_off(str(project)) is (text in MEMORY_OFF), text
    by_memory(project, {})
    path = by_project(project, "")
    path.unlink()
    os.mkfifo(path)  # in doubt, and never opened
    assert settings.is_hook_off(str(project))
    path.unlink()
    for word, off in (("false", True), ("0", True), ("maybe", True), ("True", False)):
        by_project(project, f"retrieval: {{enabled: {'true' if off else 'false'}}}\n")
        monkeypatch.setenv(settings.ENABLED_VARIABLE, word)
        assert settings.is_hook_off(str(project)) is off, word


def test_anything_switches_the_plugin_alone_off(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import judgekit.config  # noqa: PLC0415 - to take the module out of its package for one test

    monkeypatch.delattr(judgekit.config, "settings", raising=False)
    monkeypatch.setitem(sys.modules, "judgekit.config.settings", None)
    ours = by_project(project, "retrieval: {max_inject: 1}\n")
    loaded, (note,) = settings.load(str(project))
    assert (loaded["enabled"], loaded["max_inject"]) == (True, 3)
    assert "using the defaults" in note
    assert not Path(environment.cache_home()).exists(), "what is missing may be there next time"
    for where in ("ours", "theirs", "users", "variable"):
        ours.write_text("retrieval: {enabled: false}\n" if where == "ours" else "")
        by_memory(project, {"retrieval": {"enabled": where != "theirs"}})
        by_user("retrieval: {enabled: false}\n" if where == "users" else "")
        monkeypatch.setenv(settings.ENABLED_VARIABLE, "false" if where == "variable" else "")
        loaded, (note,) = settings.load(str(project))
        assert loaded["enabled"] is False, where
        assert "cannot be read" in note
        assert "switched off" in note


def test_it_is_off_although_something_else_is_wrong(project: Path) -> None:
    for text in (
        "retrieval: {enabled: false, max_inject: many}\n",
        "bogus: 1\nretrieval:\n  enabled: false\n",
    ):
        for ours, users in ((text, ""), ("", text)):
            by_project(project, ours)
            by_user(users)
            assert settings.load(str(project))[0]["enabled"] is False
    by_user("retrieval: {enabled: false, max_inject: 1}\n")
    by_project(project, "bogus: 1\n")
    loaded, (note,) = settings.load(str(project))
    assert (loaded["enabled"], loaded["max_inject"]) == (False, 1)
    assert "ignoring the project's settings" in note


@pytest.mark.parametrize("projects_file", ["", "retrieval: {enabled: true}\n", "bogus: 1\n"])
def test_a_project_is_off_for_whoever_names_its_folder(project: Path, projects_file: str) -> None:
    by_user(json.dumps({"retrieval": {"disabled_in": [str(project)]}}))
    by_project(project, projects_file)
    loaded, _ = settings.load(str(project))
    assert loaded["enabled"] is False


def test_an_explanation_names_the_file_that_switches_a_project_off(project: Path) -> None:
    path = by_user(json.dumps({"retrieval": {"disabled_in": [str(project)]}}))
    report = explain.explain_prompt("What is stored here?", str(project))
    assert f"{path}: retrieval.disabled_in names {project}" in report


def test_a_folder_stands_for_all_projects_in_it_and_for_no_other(
    tmp_path: Path, isolated: Path
) -> None:
    by_user("retrieval: {disabled_in: [~/clients]}\n")
    for place, is_on in (("clients/acme", False), ("clients", False), ("clients-2", True)):
        (isolated / place).mkdir(parents=True, exist_ok=True)
        loaded, notes = settings.load(str(isolated / place))
        assert (loaded["enabled"], notes) == (is_on, []), place


def test_a_link_to_a_named_folder_is_off_as_well(project: Path, tmp_path: Path) -> None:
    by_user(json.dumps({"retrieval": {"disabled_in": [str(project)]}}))
    (tmp_path / "link").symlink_to(project)
    loaded, _ = settings.load(str(tmp_path / "link"))
    assert loaded["enabled"] is False


def test_named_folders_hold_although_the_users_file_is_wrong(project: Path) -> None:
    by_user(json.dumps({"bogus": 1, "retrieval": {"disabled_in": [str(project)]}}))
    loaded, notes = settings.load(str(project))
    assert loaded["enabled"] is False
    assert "unknown key" in notes[0]


def test_a_relative_folder_is_refused_with_what_is_expected(project: Path) -> None:
    by_user("retrieval: {disabled_in: [work/acme]}\n")
    _, (note,) = settings.load(str(project))
    assert "expected an absolute path, or one that begins with ~" in note


def test_another_tools_numbers_become_the_nearest_of_ours(project: Path) -> None:
    for wrong, notes in (
        ({"max_inject": 50}, 0),
        ({"judge": {"candidate_pool_size": 50}}, 0),
        ({"judge": {"timeout_per_call": 0}}, 0),
        ({"max_inject": "many"}, 1),
    ):
        by_memory(project, {"retrieval": {"enabled": False, **wrong}})
        loaded, said = settings.load(str(project))
        assert (loaded["enabled"], len(said)) == (False, notes)
    by_user("retrieval: {max_inject: 20, pool: 30, timeout: 3600, fallback_top_k: 20}\n")
    judge = {"candidate_pool_size": 50, "timeout_per_call": 0, "fallback_top_k": -1}
    by_memory(project, {"retrieval": {"max_inject": 50, "judge": judge}})
    found = [value(project, key) for key in ("max_inject", "pool", "timeout", "fallback_top_k")]
    assert found == [20, 30, 0.1, 0]


OTHER_VALUES: dict[str, dict[str, object]] = {
    "retrieval": {
        "enabled": False,
        "roots": ["notes"],
        "command": ["find-notes", "--json"],
        "scorer": "keyword",
        "inject": "top_k",
        "max_inject": 4,
        "pin": ["a.md"],
        "judge": "on",
        "rubric": "kls",
        "mode": "lenient",
        "search_mode": "strict",
        "tiers": ["deep"],
        "pool": 16,
        "inject_above": {"small": 0.5},
        "deadline": 9.5,
        "timeout": 4.5,
        "fallback_top_k": 3,
        "context_turns": 6,
        "show": True,
        "hint_on_zero": True,
        "repeat_after": 21,
        "log": True,
        "disabled_in": ["~/elsewhere"],
    },
    "stop": {"judge": "on", "blocks": 4, "max_files": 11, "deadline": 46.5},
    "engine": {"use": False, "idle_minutes": 16.5},
}
"""A value of each key of the sections that the hooks read, which is not its default."""


@pytest.mark.parametrize("section", OTHER_VALUES)
def test_the_hooks_go_by_what_the_configuration_says_of_every_key(
    project: Path, section: str
) -> None:
    defaults = config.load(None).model_dump(mode="json")[section]
    assert set(OTHER_VALUES[section]) == set(defaults)
    for key, other in OTHER_VALUES[section].items():
        assert other != defaults[key]
        by_user(json.dumps({section: {key: other}}))
        said = config.load(project).model_dump(mode="json")[section]
        loaded, notes = settings.load(str(project))
        assert (said[key], notes) == (other, [])
        assert (loaded.values if section == "retrieval" else loaded[section])[key] == other
