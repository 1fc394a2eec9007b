from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from judgekit.config import files, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.rubric import loader, search_path
from judgekit.rubric.schema import RubricFile, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judgekit.config.names import ModeName


def kls() -> ScoreRubric:
    rubric = loader.score_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    return rubric


def raw(name: str = "kls@1.0.0") -> dict[str, Any]:
    return yamlfile.load_yaml(files.folder("rubrics") / f"{name}.yaml")


@pytest.mark.parametrize(
    ("scores", "mode", "outcome"),
    [
        ((3, 4, 4), "strict", "accept"),
        ((3, 3, 4), "strict", "improve"),  # mean 3.33 is below 3.5
        ((3, 3, 4), "lenient", "accept"),
        ((2, 5, 5), "strict", "improve"),
        ((1, 5, 5), "strict", "reject"),
        ((1, 5, 5), "lenient", "reject"),
        ((1.99, 5, 5), "lenient", "reject"),
        ((2.99, 5, 5), "lenient", "improve"),
        ((3.0, 3.0, 3.0), "lenient", "accept"),
    ],
)
def test_thresholds_are_applied_by_code(scores: tuple[float, ...], mode: ModeName, outcome: str) -> None:
    rubric = kls()
    assert rubric.decide(dict(zip(rubric.dimensions, scores, strict=True)), mode) == outcome


@pytest.mark.parametrize(
    ("reference", "mode", "holds", "kept"),
    [
        ("memory-relevance", "strict", [True], True),
        ("memory-relevance", "lenient", [False], False),
        ("memory-two-criteria", "strict", [True, False], False),
        ("memory-two-criteria", "strict", [True, True], True),
        ("memory-two-criteria", "lenient", [False, True], True),
        ("memory-two-criteria", "lenient", [False, False], False),
    ],
)
def test_criteria_are_combined_by_mode(
    reference: str, mode: ModeName, holds: list[bool], *, kept: bool
) -> None:
    rubric = loader.select_rubric(reference).rubric
    assert isinstance(rubric, SelectRubric)
    assert rubric.keeps(dict(zip(rubric.criteria, holds, strict=True)), mode) is kept


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data.update(task="rank"), "score"),
        (lambda data: data.update(version="1.0"), "version"),
        (lambda data: data["scale"]["labels"].pop(3), "one label for each whole number"),
        (
            lambda data: data["modes"]["strict"]["accept"].update(each=6),
            "the threshold 6 is not on the scale",
        ),
        (
            lambda data: data["modes"]["lenient"]["reject"].update(any_below=4),
            "accepted and rejected at once",
        ),
        (lambda data: data["prompt"]["instructions"].pop("deep"), "missing key"),
        (lambda data: data.update(dimensions={}), "1 or more entries, got an empty mapping"),
        (lambda data: data["modes"].update(severe=data["modes"]["strict"]), "unknown key"),
        (lambda data: data["tiers"]["quick"].update(timeout=0), "a number above 0"),
    ],
)
def test_a_wrong_rubric_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    data = raw()
    change(data)
    path = tmp_path / "mine.yaml"
    with path.open("w") as file:
        YAML().dump(data, file)
    with pytest.raises(ConfigError) as caught:
        yamlfile.read(path, RubricFile, version_key="rubric")
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("margins", [{"quick": -1}, {"first": 1}, {"quick": "wide"}])
def test_margins_are_points_by_tier(margins: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    with path.open("w") as file:
        YAML().dump({**raw(), "margins": margins}, file)
    with pytest.raises(ConfigError, match="margins"):
        yamlfile.read(path, RubricFile, version_key="rubric")


@pytest.mark.parametrize("name", ["kls@1.0.0", "memory-relevance@1.0.0", "answer-preference@1.0.0"])
def test_a_rubric_can_be_narrowed_to_one_question(name: str) -> None:
    rubric = RubricFile.model_validate(raw(name)).root
    assert rubric.questions
    for question in rubric.questions:
        own = rubric.about(question)
        assert own.questions == (question,)
        assert (own.ref, own.prompt) == (rubric.ref, rubric.prompt)


def test_every_published_version_is_locked() -> None:
    assert {rubric.rubric.ref: rubric.sha256 for rubric in loader.rubrics()} == search_path.published()


def test_every_bundled_rubric_has_labelled_cases_of_both_kinds() -> None:
    for rubric in loader.rubrics():
        labels = [case.label.strict for case in loader.read_cases(rubric)]
        assert len(labels) >= 5
        assert len({str(label) for label in labels}) >= 2


def test_the_prompt_hash_follows_the_prompt_and_nothing_else() -> None:
    rubric = kls()
    other = rubric.model_copy(update={"title": "Another title"})
    changed = rubric.model_copy(update={"prompt": rubric.prompt.model_copy(update={"system": "Be kind."})})
    assert rubric.prompt.sha256 == other.prompt.sha256 != changed.prompt.sha256


def project_with(tmp_path: Path, text: str, name: str) -> Path:
    folder = tmp_path / ".judgekit" / "rubrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return tmp_path


def own(version: str = "1.0.0") -> str:
    text = (files.folder("rubrics") / "kls@1.0.0.yaml").read_text()
    return text.replace("rubric: kls", "rubric: ours").replace("version: 1.0.0", f"version: {version}")


def test_the_newest_version_of_the_first_folder_wins(tmp_path: Path) -> None:
    for version in ("1.9.0", "1.10.0"):
        project_with(tmp_path, own(version), f"ours@{version}.yaml")
    assert loader.find_rubric("ours", tmp_path).rubric.ref == "ours@1.10.0"
    assert loader.find_rubric("ours@1.9.0", tmp_path).rubric.ref == "ours@1.9.0"
    assert loader.find_rubric("kls", tmp_path).origin == "bundled"


def test_only_the_newest_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.9.0", "1.10.0", "1.2.30"):
        project_with(tmp_path, own(version), f"ours@{version}.yaml")
    read: list[str] = []
    load = loader.load_rubric

    def noted(path: Path, origin: search_path.Origin = "path") -> loader.LoadedRubric:
        read.append(path.name)
        return load(path, origin)

    monkeypatch.setattr(loader, "load_rubric", noted)
    loader.find_rubric("ours", tmp_path)
    assert read == ["ours@1.10.0.yaml"]


def test_a_name_without_a_version_is_refused(tmp_path: Path) -> None:
    project_with(tmp_path, own(), "ours@1.0.0.yaml")
    project_with(tmp_path, own(), "ours@newest.yaml")
    with pytest.raises(ConfigError, match=r"ours@newest\.yaml: rubric: holds ours@1\.0\.0; name the file"):
        loader.find_rubric("ours", tmp_path)


def test_the_project_goes_before_the_user(tmp_path: Path, isolated: Path) -> None:
    project = project_with(tmp_path, own(), "ours@1.0.0.yaml")
    user = isolated / "judgekit" / "rubrics"
    user.mkdir(parents=True)
    (user / "ours@2.0.0.yaml").write_text(own("2.0.0"))
    assert loader.find_rubric("ours", project).origin == "project"
    assert loader.find_rubric("ours", None).rubric.version == "2.0.0"


def test_a_published_version_with_other_content_is_refused(tmp_path: Path) -> None:
    text = (files.folder("rubrics") / "kls@1.0.0.yaml").read_text()
    project = project_with(tmp_path, text.replace("each: 3", "each: 4"), "kls@1.0.0.yaml")
    with pytest.raises(ConfigError, match=r"kls@1\.0\.0 is published with other content; give"):
        loader.find_rubric("kls", project)


def test_an_unchanged_copy_of_a_published_version_is_fine(tmp_path: Path) -> None:
    folder = tmp_path / ".judgekit" / "rubrics"
    folder.mkdir(parents=True)
    shutil.copy(files.folder("rubrics") / "kls@1.0.0.yaml", folder)
    assert loader.find_rubric("kls", tmp_path).origin == "project"


def test_the_file_name_must_say_what_is_inside(tmp_path: Path) -> None:
    project = project_with(tmp_path, own("1.0.1"), "ours@1.0.0.yaml")
    with pytest.raises(ConfigError, match=r"name the file ours@1\.0\.1\.yaml"):
        loader.find_rubric("ours", project)


def test_an_unknown_rubric_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no rubric 'klss'; there are: .*, kls@1\.0\.0, memory"):
        loader.find_rubric("klss")


def test_a_rubric_of_another_task_is_refused() -> None:
    with pytest.raises(UsageError, match="is for the task 'select'"):
        loader.score_rubric("memory-relevance")


def test_a_rubric_is_found_by_path(tmp_path: Path) -> None:
    path = tmp_path / "any-name.yaml"
    path.write_text(own())
    assert loader.find_rubric(str(path)).origin == "path"


def test_a_wrong_case_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(own())
    (tmp_path / "mine.cases.jsonl").write_text(
        '{"id": "a", "text": "t", "why": "w", "label": {"strict": "good"}}\n'
    )
    with pytest.raises(ConfigError, match=r"mine\.cases\.jsonl:1: label\.strict: expected"):
        loader.read_cases(loader.find_rubric(str(path)))


def test_cases_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(own())
    (tmp_path / "mine.cases.jsonl").write_bytes(b"\xff\n")
    loaded_rubric = loader.find_rubric(str(path))
    with pytest.raises(ConfigError, match=r"mine\.cases\.jsonl: not UTF-8 \(byte 0\)"):
        loader.read_cases(loaded_rubric)


def test_cases_may_hold_any_line_separator_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(own())
    label = '{"strict": "accept", "lenient": "accept"}'
    case = f'{{"id": "a", "text": "one\u2028two\x85three", "why": "w", "label": {label}}}'
    (tmp_path / "mine.cases.jsonl").write_text(f"{case}\n\n", encoding="utf-8")
    (found,) = loader.read_cases(loader.find_rubric(str(path)))
    assert found.id == "a"


def rated(scores: str) -> str:
    """Return the text of a rubric with one rated example."""
    return own().replace(
        "tiers:\n", f"  examples:\n    - text: An example.\n      scores: {scores}\ntiers:\n"
    )


def test_a_rated_example_belongs_to_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    hashes = []
    for text in (own(), rated("{semantic: 1, pragmatic: 2, syntactic: 5}")):
        path.write_text(text)
        hashes.append(loader.find_rubric(str(path)).rubric.prompt.sha256)
    assert hashes[0] == kls().prompt.sha256 != hashes[1]


@pytest.mark.parametrize("scores", ["{semantic: 1}", "{semantic: 1, pragmatic: 2, syntactic: 6}"])
def test_an_example_without_a_score_for_each_dimension_is_refused(tmp_path: Path, scores: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(rated(scores))
    with pytest.raises(ConfigError, match=r"prompt\.examples\.0: needs a score on the scale for each"):
        loader.find_rubric(str(path))


def test_needed_sources_have_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(own().replace("scale:\n", "given: {needs: [sources]}\nscale:\n"))
    with pytest.raises(ConfigError, match="needs names sources; say in given"):
        loader.find_rubric(str(path))
