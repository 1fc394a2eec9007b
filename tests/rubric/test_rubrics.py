"""Rubrics: what one may hold, where one is found, and how one is begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from judgekit.config import files, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.rubric import loader, search_path
from judgekit.rubric.loader import begin, read_cases
from judgekit.rubric.schema import RubricFile, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judgekit.config import ModeName


def kls() -> ScoreRubric:
    rubric = loader.find_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    return rubric


def raw(name: str = "kls@1.0.0") -> dict[str, Any]:
    return yamlfile.load_yaml(files.folder("rubrics") / f"{name}.yaml")


def test_thresholds_are_applied_by_code() -> None:
    rubric = kls()
    table: list[tuple[tuple[float, ...], ModeName, str]] = [
        ((3, 3, 4), "strict", "improve"),  # mean 3.33 is below 3.5
        ((3, 3, 4), "lenient", "accept"),
        ((2, 5, 5), "strict", "improve"),
        ((1, 5, 5), "strict", "reject"),
        ((1.99, 5, 5), "lenient", "reject"),
        ((2.99, 5, 5), "lenient", "improve"),
    ]
    for scores, mode, outcome in table:
        assert rubric.decide(dict(zip(rubric.dimensions, scores, strict=True)), mode) == outcome, scores


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "version": lambda data: data.update(version="1.0"),
    "one label for each whole number": lambda data: data["scale"]["labels"].pop("3"),
    "the threshold 6 is not on the scale": lambda data: data["modes"]["strict"]["accept"].update(each=6),
    "accepted and rejected at once": lambda data: data["modes"]["lenient"]["reject"].update(any_below=4),
    "missing key": lambda data: data["prompt"]["instructions"].pop("deep"),
    "1 or more entries, got an empty mapping": lambda data: data.update(dimensions={}),
    "a number above 0": lambda data: data["tiers"]["quick"].update(timeout=0),
    "margins.quick": lambda data: data.update(margins={"quick": -1}),
    "needs lists sources; give the heading in given.sources": lambda data: data.update(
        given={"needs": ["sources"]}
    ),
    "prompt.examples.0: needs a score on the scale for each": lambda data: data["prompt"].update(
        examples=[{"text": "x", "scores": {"semantic": 1, "pragmatic": 2, "syntactic": 6}}]
    ),
    "needs a score on the scale for each": lambda data: data["prompt"].update(
        examples=[{"text": "x", "scores": {"semantic": 1}}]
    ),
}


def test_a_wrong_rubric_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for problem, change in CHANGES.items():
        data = raw()
        change(data)
        with path.open("w") as file:
            YAML().dump(data, file)
        with pytest.raises(ConfigError) as caught:
            loader.load_rubric(path)
        assert problem in str(caught.value)
        assert str(path) in str(caught.value)


def test_every_bundled_rubric_is_locked_has_a_head_and_labelled_cases_of_both_kinds() -> None:
    assert {rubric.rubric.ref: rubric.sha256 for rubric in loader.rubrics()} == search_path.published()
    for loaded in loader.rubrics():
        rubric = loaded.rubric
        assert search_path.head(loaded.path) == (rubric.ref, rubric.task, rubric.title)
        labels = [case.label.strict for case in read_cases(loaded)]
        assert len(labels) >= 5
        assert len({str(label) for label in labels}) >= 2


def test_the_prompt_hash_follows_the_prompt_and_nothing_else() -> None:
    rubric, data = kls(), raw()
    data["prompt"]["examples"] = [{"text": "x", "scores": dict.fromkeys(rubric.dimensions, 1)}]
    kind = rubric.prompt.model_copy(update={"system": "Be kind."})
    changes = {
        "title": rubric.model_copy(update={"title": "Another title"}),
        "system": rubric.model_copy(update={"prompt": kind}),
        "examples": RubricFile.model_validate(data).root,
    }
    same = {name: other.prompt.sha256 == rubric.prompt.sha256 for name, other in changes.items()}
    assert same == {"title": True, "system": False, "examples": False}


# Where one is found


def project_with(tmp_path: Path, text: str, name: str) -> Path:
    folder = tmp_path / ".judgekit" / "rubrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return tmp_path


def ours(version: str = "1.0.0") -> str:
    text = (files.folder("rubrics") / "kls@1.0.0.yaml").read_text()
    return text.replace("rubric: kls", "rubric: ours").replace("version: 1.0.0", f"version: {version}")


def test_the_newest_version_of_the_first_folder_wins_and_is_all_that_is_read(
    tmp_path: Path, isolated: Path
) -> None:
    for version in ("1.9.0", "1.10.0", "1.2.30"):
        project_with(tmp_path, ours(version), f"ours@{version}.yaml")
    user = isolated / "judgekit" / "rubrics"
    user.mkdir(parents=True)
    (user / "ours@2.0.0.yaml").write_text(ours("2.0.0"))
    found = [(origin, path.stem) for origin, path in search_path.rubric_files(tmp_path)]
    own = [("project", "ours@1.10.0"), ("project", "ours@1.2.30"), ("project", "ours@1.9.0")]
    assert found[:4] == [*own, ("user", "ours@2.0.0")]
    assert {origin for origin, _ in found[4:]} == {"bundled"}
    (tmp_path / ".judgekit" / "rubrics" / "ours@1.2.30.yaml").write_text("not read")
    assert loader.find_rubric("ours", tmp_path).rubric.ref == "ours@1.10.0"
    assert loader.find_rubric("ours@1.9.0", tmp_path).origin == "project"
    assert loader.find_rubric("ours", None).rubric.version == "2.0.0"
    assert loader.find_rubric("kls", tmp_path).origin == "bundled"
    project_with(tmp_path, ours(), "ours@newest.yaml")  # a name without a version
    with pytest.raises(ConfigError, match=r"ours@newest\.yaml: rubric: holds ours@1\.0\.0; name the file"):
        loader.find_rubric("ours", tmp_path)


def test_a_published_version_may_be_copied_and_not_changed(tmp_path: Path) -> None:
    text = (files.folder("rubrics") / "kls@1.0.0.yaml").read_text()
    project = project_with(tmp_path, text, "kls@1.0.0.yaml")
    assert loader.find_rubric("kls", project).origin == "project"
    project_with(tmp_path, text.replace("each: 3", "each: 4"), "kls@1.0.0.yaml")
    with pytest.raises(ConfigError, match=r"kls@1\.0\.0 is published with different content; give"):
        loader.find_rubric("kls", project)
    # Any other file is to be read whole: of other bytes, under another name, or a folder.
    for name, content in (("kls@1.0.0.yaml", f"{text}\n"), ("kls@1.0.1.yaml", text)):
        (tmp_path / name).write_text(content)
        assert search_path.head(tmp_path / name) is None
    (tmp_path / "memory-relevance@1.0.0.yaml").mkdir()
    assert search_path.head(tmp_path / "memory-relevance@1.0.0.yaml") is None


def test_cases_are_read_line_by_line_or_named(tmp_path: Path) -> None:
    path, cases = tmp_path / "any-name.yaml", tmp_path / "any-name.cases.jsonl"
    path.write_text(ours())
    loaded = loader.find_rubric(str(path))
    assert (loaded.origin, read_cases(loaded)) == ("path", [])
    cases.write_text('{"id": "a", "text": "t", "why": "w", "label": {"strict": "good"}}\n')
    with pytest.raises(ConfigError, match=r"any-name\.cases\.jsonl:1: label\.strict: expected"):
        read_cases(loaded)
    cases.write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match=r"any-name\.cases\.jsonl: not UTF-8 \(byte 0\)"):
        read_cases(loaded)
    label = '{"strict": "accept", "lenient": "accept"}'
    case = f'{{"id": "a", "text": "one\u2028two\x85three", "why": "w", "label": {label}}}'
    cases.write_text(f"{case}\n\n", encoding="utf-8")
    assert [case.id for case in read_cases(loaded)] == ["a"]


# How one is begun


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    for there in ("ours@1.0.0.yaml", "ours@1.0.0.cases.jsonl"):
        (tmp_path / there).write_text("mine", encoding="utf-8")
        exists = "already exists; choose another id or version, or edit that file"
        with pytest.raises(UsageError, match=exists):
            begin("ours", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [there]
        assert (tmp_path / there).read_text(encoding="utf-8") == "mine"
        (tmp_path / there).unlink()
    for name in ("", "Ours", "ours@1", "ours@1.0", "../ours", "ours@1.0.0.yaml", "a b"):
        with pytest.raises(UsageError, match="neither ID nor ID@VERSION"):
            begin(name, tmp_path)
    with pytest.raises(UsageError, match=r"kls@1\.0\.0 is published"):
        begin("kls", tmp_path)
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "odd.yaml"
    path.write_text(ours().replace("rubric: ours", '"rubric": odd'), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"odd\.yaml: cannot rename a rubric with this layout"):
        begin("ours", tmp_path / "new", like=loader.load_rubric(path))
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="cannot be written"):
        begin("ours", path)
