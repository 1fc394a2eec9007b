from __future__ import annotations

from pathlib import Path

import pytest

from judgekit.config import files
from judgekit.config.settings import RetrievalConfig
from judgekit.errors import ConfigError
from judgekit.retrieval import compiled, profiles


def test_the_compiled_profiles_are_those_of_the_yaml_files() -> None:
    current = Path(compiled.BUNDLED).read_text(encoding="utf-8")
    assert current == profiles.render(), "stale: run `make generate` (python -m judgekit.retrieval.profiles)"


def test_a_bundled_profile_is_read_and_compiled() -> None:
    assert compiled.bundled()["settings"] == RetrievalConfig().model_dump(mode="json")
    for kind in compiled.KINDS:
        written, read = profiles.read(kind), compiled.Profiles(compiled.bundled()).by_kind[kind]
        assert list(read.categories) == list(written.categories)
        assert read.weights == written.weights.model_dump()
    categories = profiles.read("claude-memory").categories
    assert all(category.folder and category.body for category in categories.values())
    assert list(categories)[:2] == ["decision", "constraint"]


def test_the_words_of_a_language_stand_in_one_list_only() -> None:
    words = profiles.read_language("english")
    assert not set(words.stop) & set(words.common)
    assert not set(words.stop) & set(words.abbreviations)
    for listed in (words.stop, words.common):
        assert len(listed) == len(set(listed))
        assert all(word == word.lower() for word in listed)


def copy(name: str, project: Path, *changes: tuple[str, str]) -> Path:
    text = (files.folder("retrieval") / f"{name}.yaml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = project / ".judgekit" / "retrieval" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_projects_files_win_whole(tmp_path: Path) -> None:
    path = copy("markdown", tmp_path, ("noise_floor: 0.25", "noise_floor: 0.5"))
    assert profiles.read("markdown", tmp_path).noise_floor == 0.5
    assert profiles.read("claude-memory", tmp_path).noise_floor == 0.25
    copy("english", tmp_path, ("  py: [python]", "  py: [python]\n  jwt: [json web token]"))
    found = profiles.compile_profiles(tmp_path)
    assert found["profiles"]["markdown"]["noise_floor"] == 0.5
    assert found["languages"]["english"]["abbreviations"]["jwt"] == "json web token"
    path.write_text("rubric: kls\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a retrieval file"):
        profiles.read("markdown", tmp_path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("noise_floor: 0.25", "noise_floor: 2"), "noise_floor"),
        (("noise_floor: 0.25", "noise_flor: 0.25"), "noise_fl"),
        (("version: 1.0.0", "version: new"), "version"),
        (("mention: 0.", "mention: 0.9"), "labels"),
        (("retrieval: markdown", "retrieval: other"), "retrieval"),
        (("language: english", "language: klingon"), "language"),
    ],
)
def test_a_wrong_profile_names_its_key(tmp_path: Path, change: tuple[str, str], key: str) -> None:
    copy("markdown", tmp_path, change)
    with pytest.raises(ConfigError) as caught:
        profiles.compile_profiles(tmp_path)
    assert key in caught.value.key
    assert "\n" not in str(caught.value)
