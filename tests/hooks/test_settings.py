"""The hooks' settings: validated once per change; `enabled: false` holds whatever else is wrong."""

from __future__ import annotations

import json
import os
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
from judgekit.hooks import settings
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


def test_without_a_configuration_the_defaults_hold_unread(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "load", refuse)
    loaded, notes = settings.load(str(project))
    assert loaded.values == compiled.bundled()["settings"]
    assert loaded["max_inject"] == 3
    assert set(loaded.profiles.by_kind) == {"claude-memory", "claude-auto-memory", "markdown"}
    assert notes == []
    assert not Path(environment.cache_home()).exists()


def test_a_configuration_is_validated_once_and_made_again_when_spoiled(
    project: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_project(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1
    with monkeypatch.context() as patch:
        patch.setattr(config, "load", refuse)
        assert value(project, "max_inject") == 1
    (kept,) = Path(environment.cache_home(), "settings").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for content in ("", "{", "[]", '{"key": 1}', "\x00"):
        kept.write_text(content)
        assert value(project, "max_inject") == 1
    other = by_project(isolated / "other", "retrieval: {max_inject: 2}\n").parents[1]
    for _ in range(2):  # projects do not share what is kept
        assert [value(project, "max_inject"), value(other, "max_inject")] == [1, 2]
    for file in kept.parent.iterdir():
        file.unlink()
    kept.parent.rmdir()
    kept.parent.write_text("in the way")  # without a cache folder the settings still hold
    assert value(project, "max_inject") == 1


def test_a_change_of_any_source_is_seen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {str(path) for path in config.sources(project)} == set(
        environment.configuration_files(str(project))
    )
    theirs = by_memory(project, {"retrieval": {"max_inject": 2}})
    assert value(project, "max_inject") == 2
    ours = by_project(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1
    ours.unlink()
    assert value(project, "max_inject") == 2
    by_memory(project, {"retrieval": {"max_inject": 0}})
    assert value(project, "max_inject") == 0
    theirs.unlink()
    assert value(project, "max_inject") == 3
    by_user("retrieval: {show: true}\n")
    assert value(project, "show") is True
    for number in (2, 1):
        monkeypatch.setenv("JUDGEKIT_RETRIEVAL_MAX_INJECT", str(number))
        assert value(project, "max_inject") == number
    monkeypatch.delenv("JUDGEKIT_RETRIEVAL_MAX_INJECT")
    assert value(project, "max_inject") == 3


@pytest.mark.skipif(os.name != "posix", reason="times of change of POSIX")
@pytest.mark.parametrize("replaced", ["replaced", "written over"])
def test_a_change_that_keeps_size_and_time_is_seen(project: Path, replaced: str) -> None:
    path = by_project(project, "retrieval: {max_inject: 3}\n")
    assert value(project, "max_inject") == 3
    before = path.stat()
    time.sleep(0.02)  # more than a tick of the file system's clock
    if replaced == "replaced":
        path.rename(path.with_name("old"))
    by_project(project, "retrieval: {max_inject: 0}\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert value(project, "max_inject") == 0


def test_a_wrong_variable_of_another_section_does_not_outlive_itself(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_project(project, "retrieval: {max_inject: 1}\n")
    for name in ("JUDGEKIT_JUDGE_DEADLINE", "JUDGEKIT_GATE_BUDGET"):
        monkeypatch.setenv(name, "soon")
        loaded, notes = settings.load(str(project))
        assert loaded["max_inject"] == 3
        assert len(notes) == 1
        monkeypatch.delenv(name)
        assert value(project, "max_inject") == 1
        monkeypatch.setenv(name, "soon")
        assert len(settings.load(str(project))[1]) == 1
        monkeypatch.delenv(name)


def test_what_came_with_an_error_is_kept_for_a_while(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_project(project, "retrieval: {max_inject: 1}\n")

    def fail(*arguments: object) -> None:
        raise ConfigError("for now")

    with monkeypatch.context() as patch:
        patch.setattr(config, "load", fail)
        assert settings.load(str(project))[1] == ["for now; using the defaults"]
    assert settings.load(str(project))[1] == ["for now; using the defaults"]
    long_ago = time.time() - settings.WRONG_SECONDS - 1
    os.utime(settings.path(str(project)), (long_ago, long_ago))
    assert value(project, "max_inject") == 1


@pytest.mark.parametrize(
    "text", ["retrieval: {max_inject: many}\n", "retrieval: [\n", "retrieval: {maxinject: 1}\n"]
)
def test_a_wrong_configuration_is_one_line_and_the_defaults(
    project: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    by_project(project, text)
    with monkeypatch.context() as patch:
        for _ in range(2):  # it is said at every prompt, and validated once
            loaded, notes = settings.load(str(project))
            patch.setattr(config, "load", refuse)
            assert loaded.values.items() >= compiled.bundled()["settings"].items()
            assert loaded.values["stop"]["judge"] == "off"
            assert len(notes) == 1
            assert "config.yaml" in notes[0]
            assert "\n" not in notes[0]
    by_project(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1


def test_a_projects_profile_counts(project: Path) -> None:
    text = (Path(__file__).parents[2] / "retrieval" / "markdown.yaml").read_text(encoding="utf-8")
    path = project / ".judgekit" / "retrieval" / "markdown.yaml"
    path.parent.mkdir()
    for expected in (0.4, 0.5):
        path.write_text(text.replace("noise_floor: 0.25", f"noise_floor: {expected}"), encoding="utf-8")
        os.utime(path, ns=(int(expected * 10), int(expected * 10)))
        loaded, notes = settings.load(str(project))
        assert (loaded.profiles.by_kind["markdown"].noise_floor, notes) == (expected, [])
    path.write_text("retrieval: markdown\n")
    loaded, notes = settings.load(str(project))
    assert loaded.profiles.by_kind["markdown"].noise_floor == 0.25
    assert len(notes) == 1
    assert "bundled profiles" in notes[0]


def test_descriptions_of_categories(project: Path) -> None:
    root = str(project / ".claude" / "memory")
    assert settings.descriptions(root) == {}
    categories = {"decision": {"description": "why"}, "runbook": {"description": 3}, "x": "y", "z": {}}
    path = by_memory(project, {"categories": categories})
    assert settings.descriptions(root) == {"decision": "why"}
    for text in ('["x"]', "{"):
        path.write_text(text)
        assert settings.descriptions(root) == {}


@pytest.mark.parametrize("leads", ["file", "pipe"])
def test_descriptions_are_not_read_from_what_leads_out_or_never_ends(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, leads: str
) -> None:
    source = project / ".claude" / "memory" / "memory-config.json"
    if leads == "pipe":
        os.mkfifo(source)
    else:
        target = tmp_path_factory.mktemp("outside") / "secret.json"
        target.write_text('{"categories": {"decision": {"description": "a secret"}}}')
        source.symlink_to(target)
    monkeypatch.setattr("builtins.open", refuse)
    assert settings.descriptions(str(source.parent)) == {}


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_every_folder_that_is_made_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        for _ in range(2):
            assert environment.private_folder(f"{shared}/home/cache/index") == f"{shared}/home/cache/index"
    finally:
        os.umask(before)
    made = [shared / "home", shared / "home" / "cache", shared / "home" / "cache" / "index"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    monkeypatch.chdir(tmp_path)
    assert Path(environment.private_folder("a/b/")).is_dir()
    Path("file").write_text("in the way")
    for path in ("file", "file/inner"):
        with pytest.raises(OSError, match="file"):
            environment.private_folder(path)


def test_a_clone_cannot_bring_more_than_is_soon_read_and_looked_at(project: Path) -> None:
    for name in ("config.yaml", "retrieval/markdown.yaml", "memory-config.json"):
        path = project / (".claude/memory" if name.endswith(".json") else ".judgekit") / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#" * (yamlfile.CONFIG_BYTES + 1) + "\n")
        (note,) = settings.load(str(project))[1]
        assert f"{path.name}: larger than {yamlfile.CONFIG_BYTES} bytes" in note
        path.unlink()
    for key in ("roots", "pin"):
        by_project(project, f"retrieval: {{{key}: [{', '.join(['a'] * (config.MOST_ROOTS + 1))}]}}\n")
        loaded, (note,) = settings.load(str(project))
        assert loaded[key] == compiled.bundled()["settings"][key]
        assert f"retrieval.{key}: expected" in note


# Whether it is off, read without a parser

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


def test_it_is_off_in_every_way_to_write_it(project: Path) -> None:
    for text in (*OFF, *NOT_OFF):
        by_project(project, text)
        by_user("")
        assert settings.is_off(str(project)) is (text in OFF), text
        by_project(project, "")
        by_user(text)
        assert settings.is_off(str(project)) is (text in OFF), text


def test_another_tools_settings_are_read_by_key(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    values: list[tuple[object, bool]] = [
        ({"retrieval": {"enabled": False}}, True),
        ({"retrieval": {"enabled": "no"}}, True),
        ({"retrieval": {"enabled": 0}}, True),
        ({"retrieval": {"enabled": True, "judge": {"enabled": False}}}, False),
        ({"retrieval": {"judge": {"enabled": False}}}, False),
        ({"retrieval": {"enabled": None}}, False),
        ({"retrieval": []}, False),
        ([], False),
    ]
    for found, off in values:
        path = by_memory(project, found)
        assert settings.is_off(str(project)) is off, found
    # Broken JSON that speaks of it is in doubt.
    path.write_text('{"retrieval": {"enabled": false}')
    assert settings.is_off(str(project))
    path.write_text('{"retrieval": {"max_inject": 1}')
    assert not settings.is_off(str(project))
    # They count inside the project alone.
    other = tmp_path_factory.mktemp("other") / "memory-config.json"
    other.write_text('{"retrieval": {"enabled": false}}')
    path.unlink()
    path.symlink_to(other)
    assert not settings.is_off(str(project))


def test_the_first_source_that_says_anything_counts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_user("retrieval: {enabled: false}\n")
    assert settings.is_off(str(project))
    by_memory(project, {"retrieval": {"enabled": True}})
    assert not settings.is_off(str(project))
    path = by_project(project, "retrieval: {enabled: false}\n")
    assert settings.is_off(str(project))
    path.unlink()
    os.mkfifo(path)  # in doubt, and never opened
    assert settings.is_off(str(project))
    path.unlink()
    for word, off in (("false", True), ("0", True), ("maybe", True), ("True", False)):
        by_project(project, f"retrieval: {{enabled: {'true' if off else 'false'}}}\n")
        monkeypatch.setenv(settings.VARIABLE, word)
        assert settings.is_off(str(project)) is off, word


@pytest.fixture
def no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the import of the configuration, as where only the plugin is installed."""
    import judgekit.config  # noqa: PLC0415 - to take the module out of its package for one test

    monkeypatch.delattr(judgekit.config, "settings", raising=False)
    monkeypatch.setitem(sys.modules, "judgekit.config.settings", None)


@pytest.mark.usefixtures("no_pydantic")
@pytest.mark.parametrize("where", ["ours", "theirs", "users", "variable"])
def test_it_is_off_where_nothing_can_be_validated(
    project: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    text = "retrieval: {enabled: false}\n"
    if where == "variable":
        monkeypatch.setenv(settings.VARIABLE, "false")
    elif where == "theirs":
        by_memory(project, {"retrieval": {"enabled": False}})
    elif where == "ours":
        by_project(project, text)
    else:
        by_user(text)
    loaded, (note,) = settings.load(str(project))
    assert loaded["enabled"] is False
    assert "cannot be read" in note
    assert "switched off" in note


@pytest.mark.usefixtures("no_pydantic")
def test_it_goes_on_where_nothing_can_be_validated_and_nothing_says_off(project: Path) -> None:
    by_project(project, "retrieval: {max_inject: 1}\n")
    loaded, (note,) = settings.load(str(project))
    assert (loaded["enabled"], loaded["max_inject"]) == (True, 3)
    assert "using the defaults" in note
    assert not Path(settings.path(str(project))).exists(), "what is missing may be there next time"


def test_it_is_off_although_something_else_is_wrong(project: Path) -> None:
    for text in (
        "retrieval: {enabled: false, max_inject: many}\n",
        "bogus: 1\nretrieval:\n  enabled: false\n",
    ):
        by_project(project, text)
        assert settings.load(str(project))[0]["enabled"] is False
        by_project(project, "")
        by_user(text)
        assert settings.load(str(project))[0]["enabled"] is False
    by_user("retrieval: {enabled: false, max_inject: 1}\n")
    by_project(project, "bogus: 1\n")
    loaded, (note,) = settings.load(str(project))
    assert (loaded["enabled"], loaded["max_inject"]) == (False, 1)
    assert "ignoring the project's settings" in note


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
