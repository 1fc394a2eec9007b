"""`enabled: false` holds whatever else is wrong, and where nothing can be validated."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from judgekit import environment
from judgekit.hooks import settings

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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".claude" / "memory").mkdir(parents=True)
    (tmp_path / ".judgekit").mkdir()
    return tmp_path


def ours(project: Path, text: str) -> None:
    (project / ".judgekit" / "config.yaml").write_text(text, encoding="utf-8")


def theirs(project: Path, value: object) -> None:
    (project / ".claude" / "memory" / "memory-config.json").write_text(json.dumps(value))


def users(text: str) -> None:
    path = Path(environment.config_home()) / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_it_is_off_in_every_way_to_write_it(project: Path) -> None:
    for text in (*OFF, *NOT_OFF):
        ours(project, text)
        users("")
        assert settings.is_off(str(project)) is (text in OFF), text
        ours(project, "")
        users(text)
        assert settings.is_off(str(project)) is (text in OFF), text


@pytest.mark.parametrize(
    ("value", "off"),
    [
        ({"retrieval": {"enabled": False}}, True),
        ({"retrieval": {"enabled": "no"}}, True),
        ({"retrieval": {"enabled": 0}}, True),
        ({"retrieval": {"enabled": True, "judge": {"enabled": False}}}, False),
        ({"retrieval": {"judge": {"enabled": False}}}, False),
        ({"retrieval": {"enabled": None}}, False),
        ({"retrieval": []}, False),
        ([], False),
    ],
)
def test_another_tools_settings_are_read_by_key(project: Path, value: object, off: bool) -> None:  # noqa: FBT001 - a row of the table
    theirs(project, value)
    assert settings.is_off(str(project)) is off


def test_broken_json_that_speaks_of_it_is_in_doubt(project: Path) -> None:
    path = project / ".claude" / "memory" / "memory-config.json"
    path.write_text('{"retrieval": {"enabled": false}')
    assert settings.is_off(str(project))
    path.write_text('{"retrieval": {"max_inject": 1}')
    assert not settings.is_off(str(project))


@pytest.mark.parametrize(("word", "off"), [("false", True), ("0", True), ("maybe", True), ("True", False)])
def test_the_variable_comes_first(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    off: bool,  # noqa: FBT001 - a row of the table
) -> None:
    ours(project, f"retrieval: {{enabled: {'true' if off else 'false'}}}\n")
    monkeypatch.setenv(settings.VARIABLE, word)
    assert settings.is_off(str(project)) is off


def test_the_first_source_that_says_anything_counts(project: Path) -> None:
    users("retrieval: {enabled: false}\n")
    assert settings.is_off(str(project))
    theirs(project, {"retrieval": {"enabled": True}})
    assert not settings.is_off(str(project))
    ours(project, "retrieval: {enabled: false}\n")
    assert settings.is_off(str(project))


@pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")
def test_what_is_no_regular_file_is_in_doubt_and_never_opened(project: Path) -> None:
    path = project / ".judgekit" / "config.yaml"
    os.mkfifo(path)
    assert settings.is_off(str(project))


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_another_tools_settings_count_inside_the_project_alone(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "memory-config.json"
    other.write_text('{"retrieval": {"enabled": false}}')
    (project / ".claude" / "memory" / "memory-config.json").symlink_to(other)
    assert not settings.is_off(str(project))


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
        theirs(project, {"retrieval": {"enabled": False}})
    else:
        {"ours": lambda: ours(project, text), "users": lambda: users(text)}[where]()
    loaded, notes = settings.load(str(project))
    assert loaded["enabled"] is False
    assert len(notes) == 1
    assert "cannot be read" in notes[0]
    assert "switched off" in notes[0]


@pytest.mark.usefixtures("no_pydantic")
def test_it_goes_on_where_nothing_can_be_validated_and_nothing_says_off(project: Path) -> None:
    ours(project, "retrieval: {max_inject: 1}\n")
    loaded, notes = settings.load(str(project))
    assert (loaded["enabled"], loaded["max_inject"]) == (True, 3)
    assert "using the defaults" in notes[0]
    assert not Path(settings.path(str(project))).exists(), "what is missing may be there next time"


@pytest.mark.parametrize(
    "text", ["retrieval: {enabled: false, max_inject: many}\n", "bogus: 1\nretrieval:\n  enabled: false\n"]
)
def test_it_is_off_although_something_else_is_wrong(project: Path, text: str) -> None:
    ours(project, text)
    assert settings.load(str(project))[0]["enabled"] is False
    ours(project, "")
    users(text)
    assert settings.load(str(project))[0]["enabled"] is False


@pytest.mark.parametrize(
    ("wrong", "notes"),
    [
        ({"max_inject": 50}, 0),
        ({"judge": {"candidate_pool_size": 50}}, 0),
        ({"judge": {"timeout_per_call": 0}}, 0),
        ({"max_inject": "many"}, 1),
    ],
)
def test_it_is_off_although_another_tools_numbers_are_none_of_ours(
    project: Path, wrong: dict[str, object], notes: int
) -> None:
    theirs(project, {"retrieval": {"enabled": False, **wrong}})
    loaded, said = settings.load(str(project))
    assert (loaded["enabled"], len(said)) == (False, notes)


def test_another_tools_numbers_become_the_nearest_of_ours(project: Path) -> None:
    users("retrieval: {max_inject: 20, pool: 30, timeout: 3600, fallback_top_k: 20}\n")
    judge = {"candidate_pool_size": 50, "timeout_per_call": 0, "fallback_top_k": -1}
    theirs(project, {"retrieval": {"max_inject": 50, "judge": judge}})
    loaded, said = settings.load(str(project))
    assert said == []
    found = [loaded[key] for key in ("max_inject", "pool", "timeout", "fallback_top_k")]
    assert found == [20, 30, 0.1, 0]
