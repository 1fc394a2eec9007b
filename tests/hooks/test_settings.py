from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

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


def configure(project: Path, text: str) -> None:
    (project / ".judgekit" / "config.yaml").write_text(text, encoding="utf-8")


def memory_config(project: Path, value: object) -> None:
    (project / ".claude" / "memory" / "memory-config.json").write_text(json.dumps(value))


def value(project: Path, key: str) -> object:
    loaded, notes = settings.load(str(project))
    assert notes == []
    return loaded[key]


@pytest.fixture
def no_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("the configuration was validated")

    monkeypatch.setattr(config, "load", refuse)


@pytest.mark.usefixtures("no_validation")
def test_without_a_configuration_the_defaults_hold_unread(project: Path) -> None:
    loaded, notes = settings.load(str(project))
    assert loaded.values == compiled.bundled()["settings"]
    assert loaded["max_inject"] == 3
    assert set(loaded.profiles.by_kind) == {"claude-memory", "claude-auto-memory", "markdown"}
    assert notes == []
    assert not Path(environment.cache_home()).exists()


def test_a_configuration_is_validated_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1

    def refuse(*arguments: object) -> None:
        raise AssertionError("validated twice")

    monkeypatch.setattr(config, "load", refuse)
    assert value(project, "max_inject") == 1
    monkeypatch.undo()


def test_a_change_of_any_source_is_seen(project: Path) -> None:
    memory_config(project, {"retrieval": {"max_inject": 2}})
    assert value(project, "max_inject") == 2
    configure(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1
    (project / ".judgekit" / "config.yaml").unlink()
    assert value(project, "max_inject") == 2
    memory_config(project, {"retrieval": {"max_inject": 0}})
    assert value(project, "max_inject") == 0
    (project / ".claude" / "memory" / "memory-config.json").unlink()
    assert value(project, "max_inject") == 3


def test_the_users_configuration_and_variables_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = Path(environment.config_home()) / "config.yaml"
    user.parent.mkdir(parents=True)
    user.write_text("retrieval: {show: true}\n")
    assert value(project, "show") is True
    for number in (2, 1):
        monkeypatch.setenv("JUDGEKIT_RETRIEVAL_MAX_INJECT", str(number))
        assert value(project, "max_inject") == number
    monkeypatch.delenv("JUDGEKIT_RETRIEVAL_MAX_INJECT")
    assert value(project, "max_inject") == 3


@pytest.mark.parametrize("name", ["JUDGEKIT_JUDGE_DEADLINE", "JUDGEKIT_GATE_BUDGET"])
def test_a_wrong_variable_of_another_section_does_not_outlive_itself(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    configure(project, "retrieval: {max_inject: 1}\n")
    monkeypatch.setenv(name, "soon")
    loaded, notes = settings.load(str(project))
    assert loaded["max_inject"] == 3
    assert len(notes) == 1
    monkeypatch.delenv(name)
    assert value(project, "max_inject") == 1
    monkeypatch.setenv(name, "soon")
    assert len(settings.load(str(project))[1]) == 1


def test_what_came_with_an_error_is_kept_for_a_while(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(project, "retrieval: {max_inject: 1}\n")

    def refuse(*arguments: object) -> None:
        raise ConfigError("for now")

    with monkeypatch.context() as patch:
        patch.setattr(config, "load", refuse)
        assert settings.load(str(project))[1] == ["for now; using the defaults"]
    assert settings.load(str(project))[1] == ["for now; using the defaults"]
    long_ago = time.time() - settings.WRONG_SECONDS - 1
    os.utime(settings.path(str(project)), (long_ago, long_ago))
    assert value(project, "max_inject") == 1


@pytest.mark.skipif(os.name != "posix", reason="times of change of POSIX")
@pytest.mark.parametrize("replaced", [True, False])
def test_a_change_that_keeps_size_and_time_is_seen(project: Path, replaced: bool) -> None:  # noqa: FBT001 - a row of the table
    configure(project, "retrieval: {max_inject: 3}\n")
    assert value(project, "max_inject") == 3
    path = project / ".judgekit" / "config.yaml"
    before = path.stat()
    time.sleep(0.02)  # more than a tick of the file system's clock
    if replaced:
        path.rename(path.with_name("old"))
    configure(project, "retrieval: {max_inject: 0}\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert value(project, "max_inject") == 0


@pytest.mark.parametrize(
    "text", ["retrieval: {max_inject: many}\n", "retrieval: [\n", "retrieval: {maxinject: 1}\n"]
)
def test_a_wrong_configuration_is_one_line_and_the_defaults(
    project: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("validated twice")

    configure(project, text)
    with monkeypatch.context() as patch:
        for _ in range(2):  # it is said at every prompt, and validated once
            loaded, notes = settings.load(str(project))
            patch.setattr(config, "load", refuse)
            assert loaded.values.items() >= compiled.bundled()["settings"].items()
            assert loaded.values["stop"]["judge"] == "off"
            assert len(notes) == 1
            assert "config.yaml" in notes[0]
            assert "\n" not in notes[0]
    configure(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1


def test_a_projects_profile_counts(project: Path) -> None:
    text = (Path(__file__).parents[2] / "retrieval" / "markdown.yaml").read_text(encoding="utf-8")
    folder = project / ".judgekit" / "retrieval"
    folder.mkdir()
    path = folder / "markdown.yaml"
    path.write_text(text.replace("noise_floor: 0.25", "noise_floor: 0.6"), encoding="utf-8")
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


def test_projects_do_not_share_what_is_kept(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / ".judgekit").mkdir()
    configure(project, "retrieval: {max_inject: 1}\n")
    configure(other, "retrieval: {max_inject: 2}\n")
    for _ in range(2):
        assert [value(project, "max_inject"), value(other, "max_inject")] == [1, 2]


def test_what_was_kept_and_is_spoiled_is_made_again(project: Path) -> None:
    configure(project, "retrieval: {max_inject: 1}\n")
    value(project, "max_inject")
    (kept,) = Path(environment.cache_home(), "settings").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for content in ("", "{", "[]", '{"key": 1}', "\x00"):
        kept.write_text(content)
        assert value(project, "max_inject") == 1


def test_without_a_cache_folder_the_settings_still_hold(project: Path, isolated: Path) -> None:
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "cache").write_text("in the way")
    configure(project, "retrieval: {max_inject: 1}\n")
    assert value(project, "max_inject") == 1


def test_descriptions_of_categories(project: Path) -> None:
    root = str(project / ".claude" / "memory")
    assert settings.descriptions(root) == {}
    categories = {"decision": {"description": "why"}, "runbook": {"description": 3}, "x": "y", "z": {}}
    memory_config(project, {"categories": categories})
    assert settings.descriptions(root) == {"decision": "why"}
    memory_config(project, ["x"])
    assert settings.descriptions(root) == {}
    Path(root, "memory-config.json").write_text("{")
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

    def refuse(path: str, *_: object, **__: object) -> None:
        pytest.fail(f"{path} was opened")

    monkeypatch.setattr("builtins.open", refuse)
    assert settings.descriptions(str(source.parent)) == {}


def test_every_source_of_the_configuration_is_watched(project: Path) -> None:
    assert {str(path) for path in config.sources(project)} == set(
        environment.configuration_files(str(project))
    )


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
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


def test_a_private_folder_may_be_relative_and_not_be_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(environment.private_folder("a/b/")).is_dir()
    Path("file").write_text("in the way")
    for path in ("file", "file/inner"):
        with pytest.raises(OSError, match="file"):
            environment.private_folder(path)


def test_a_projects_broken_file_does_not_undo_what_the_user_said(project: Path, isolated: Path) -> None:
    home = isolated / "judgekit"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("retrieval: {enabled: false, max_inject: 1}\n")
    configure(project, "bogus: 1\n")
    loaded, notes = settings.load(str(project))
    assert (loaded["enabled"], loaded["max_inject"]) == (False, 1)
    assert len(notes) == 1
    assert "ignoring the project's settings" in notes[0]


@pytest.mark.parametrize("name", ["config.yaml", "retrieval/markdown.yaml", "memory-config.json"])
def test_a_clone_cannot_bring_more_than_is_soon_read(project: Path, name: str) -> None:
    home = ".claude/memory" if name.endswith(".json") else ".judgekit"
    path = project / home / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#" * (yamlfile.CONFIG_BYTES + 1) + "\n")
    notes = settings.load(str(project))[1]
    assert len(notes) == 1
    assert f"{path.name}: larger than {yamlfile.CONFIG_BYTES} bytes" in notes[0]


@pytest.mark.parametrize("key", ["roots", "pin"])
def test_a_clone_cannot_name_more_than_is_soon_looked_at(project: Path, key: str) -> None:
    configure(project, f"retrieval: {{{key}: [{', '.join(['a'] * (config.MOST_ROOTS + 1))}]}}\n")
    loaded, notes = settings.load(str(project))
    assert loaded[key] == compiled.bundled()["settings"][key]
    assert len(notes) == 1
    assert f"retrieval.{key}: expected" in notes[0]
