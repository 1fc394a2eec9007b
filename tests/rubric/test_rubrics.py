"""Rubrics: their content, finding and starting one, and the check of it and its cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from judgekit.config import MODES, files, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.rubric import lint, loader, search_path
from judgekit.rubric.lint import list_changes
from judgekit.rubric.loader import create_rubric, read_cases
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
    return yamlfile.load_yaml(files.get_data_folder("rubrics") / f"{name}.yaml")


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
        assert rubric.decide(dict(zip(rubric.dimensions, scores, strict=True)), mode) == outcome, (
            scores
        )


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "version": lambda data: data.update(version="1.0"),
    "one label for each whole number": lambda data: data["scale"]["labels"].pop("3"),
    "the threshold 6 is not on the scale": lambda data: data["modes"]["strict"]["accept"].update(
        each=6
    ),
    "accepted and rejected at once": lambda data: data["modes"]["lenient"]["reject"].update(
        any_below=4
    ),
    "missing key": lambda data: data["scale"].pop("labels"),
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
    assert {
        rubric.rubric.ref: rubric.sha256 for rubric in loader.load_rubrics()
    } == search_path.read_published()
    for loaded in loader.load_rubrics():
        rubric = loaded.rubric
        assert search_path.read_head(loaded.path) == (rubric.ref, rubric.task, rubric.title)
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


def project_with(tmp_path: Path, text: str, name: str) -> Path:
    folder = tmp_path / ".judgekit" / "rubrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return tmp_path


def ours(version: str = "1.0.0") -> str:
    text = (files.get_data_folder("rubrics") / "kls@1.0.0.yaml").read_text()
    return text.replace("rubric: kls", "rubric: ours").replace(
        "version: 1.0.0", f"version: {version}"
    )


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
    with pytest.raises(
        ConfigError, match=r"ours@newest\.yaml: rubric: holds ours@1\.0\.0; name the file"
    ):
        loader.find_rubric("ours", tmp_path)


def test_a_published_version_may_be_copied_and_not_changed(tmp_path: Path) -> None:
    text = (files.get_data_folder("rubrics") / "kls@1.0.0.yaml").read_text()
    project = project_with(tmp_path, text, "kls@1.0.0.yaml")
    assert loader.find_rubric("kls", project).origin == "project"
    project_with(tmp_path, text.replace("each: 3", "each: 4"), "kls@1.0.0.yaml")
    with pytest.raises(ConfigError, match=r"kls@1\.0\.0 is published with different content; give"):
        loader.find_rubric("kls", project)
    # Any other file is to be read whole: of other bytes, under another name, or a folder.
    for name, content in (("kls@1.0.0.yaml", f"{text}\n"), ("kls@1.0.1.yaml", text)):
        (tmp_path / name).write_text(content)
        assert search_path.read_head(tmp_path / name) is None
    (tmp_path / "memory-relevance@1.0.0.yaml").mkdir()
    assert search_path.read_head(tmp_path / "memory-relevance@1.0.0.yaml") is None


def test_cases_are_read_line_by_line_or_named(tmp_path: Path) -> None:
    path, cases = tmp_path / "any-name.yaml", tmp_path / "any-name.cases.jsonl"
    path.write_text(ours())
    loaded = loader.find_rubric(str(path))
    assert (loaded.origin, read_cases(loaded)) == ("path", [])
    cases.write_text('{"id": "a", "text": "t", "why": "w", "label": {"strict": "good"}}\n')
    with pytest.raises(ConfigError, match=r"any-name\.cases\.jsonl:1: label\.strict: expected"):
        read_cases(loaded)
    cases.write_text('{"id": 1}\n\n{"id": "a", "text": "t", "why": "w", "label": 2}\n')
    with pytest.raises(ConfigError) as caught:
        read_cases(loaded)
    assert [(each.line, each.key) for each in (caught.value, *caught.value.others)] == [
        (1, "id"),
        (3, "label"),
    ]
    cases.write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match=r"any-name\.cases\.jsonl: not UTF-8 \(byte 0\)"):
        read_cases(loaded)
    label = '{"strict": "accept", "lenient": "accept"}'
    case = f'{{"id": "a", "text": "one\u2028two\x85three", "why": "w", "label": {label}}}'
    cases.write_text(f"{case}\n\n", encoding="utf-8")
    assert [case.id for case in read_cases(loaded)] == ["a"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    for there in ("ours@1.0.0.yaml", "ours@1.0.0.cases.jsonl"):
        (tmp_path / there).write_text("mine", encoding="utf-8")
        exists = "already exists; choose another id or version, or edit that file"
        with pytest.raises(UsageError, match=exists):
            create_rubric("ours", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [there]
        assert (tmp_path / there).read_text(encoding="utf-8") == "mine"
        (tmp_path / there).unlink()
    for name in ("", "Ours", "ours@1", "ours@1.0", "../ours", "ours@1.0.0.yaml", "a b"):
        with pytest.raises(UsageError, match="neither ID nor ID@VERSION"):
            create_rubric(name, tmp_path)
    with pytest.raises(UsageError, match=r"kls@1\.0\.0 is published"):
        create_rubric("kls", tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        create_rubric("ours", tmp_path / "file")


Cases = list[dict[str, object]]


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Path]:
    """Write the rubric `ours@1.0.0`: the bundled one on quality, with texts replaced, and cases beside it."""

    def write(*cases: dict[str, object], version: str = "1.0.0", **replaced: str) -> Path:
        text = (files.get_data_folder("rubrics") / "kls@1.0.0.yaml").read_text(encoding="utf-8")
        text = text.replace("rubric: kls", "rubric: ours").replace(
            "version: 1.0.0", f"version: {version}"
        )
        for before, after in replaced.items():
            assert before.replace("__", ": ") in text
            text = text.replace(before.replace("__", ": "), after)
        path = tmp_path / ".judgekit" / "rubrics" / f"ours@{version}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        path.with_name(f"ours@{version}.cases.jsonl").write_text(lines, encoding="utf-8")
        return path

    return write


def scored(
    name: str, strict: str = "accept", lenient: str = "accept", **more: object
) -> dict[str, object]:
    label = {"strict": strict, "lenient": lenient}
    return {"id": name, "text": f"Text of {name}.", "why": "So.", "label": label, **more}


def said(path: Path) -> list[str]:
    loaded = loader.load_rubric(path)
    return [str(remark) for remark in lint.list_remarks(loaded, read_cases(loaded))]


GOOD = [scored(f"good-{number}") for number in range(5)]
BAD = [scored(f"bad-{number}", "reject", "reject") for number in range(5)]
TEN = [*GOOD, scored("fair", "improve", "accept"), *BAD]
ALWAYS = "a judge that always gives the same verdict would look good"
TERMS = "    terms: [structure, format, order, section, heading, reference, link, complete]\n"


def test_nothing_is_wrong_with_bundled_rubrics_nor_to_be_said_of_the_newer() -> None:
    for loaded in loader.load_rubrics():
        remarks = lint.list_remarks(loaded, read_cases(loaded))
        assert [remark for remark in remarks if remark.is_error] == []
        older = {"kls", "answer-preference", "memory-relevance", "memory-two-criteria"}
        assert loaded.rubric.rubric in older or remarks == []


def test_what_is_said_of_cases(own: Callable[..., Path]) -> None:
    twice = "ours@1.0.0.cases.jsonl:5: id: line 1 has the id 'good-3' already; give"
    odd = "cases.jsonl:1: label: odd: no scores give reject in strict and accept in lenient; change"
    one_sided = [scored("odd", "improve"), *(scored(f"good-{number}") for number in range(11))]
    table: list[tuple[Cases, list[str]]] = [
        (TEN, []),
        ([], ["ours@1.0.0.cases.jsonl: no labelled cases"]),
        ([GOOD[0], BAD[0]], ["2 cases: agreement is not meaningful below 10"]),
        ([scored("good-3"), *TEN], [twice]),
        ([scored("odd", "reject", "accept"), *TEN], [odd]),
        (
            one_sided,
            [
                f"{n} of 12 should be accepted in {m}: {ALWAYS}"
                for n, m in ((11, "strict"), (12, "lenient"))
            ],
        ),
        ([*GOOD, *BAD], ["strict and lenient agree on every case; add a case where they differ"]),
    ]
    for cases, remarks in table:
        found = said(own(*cases))
        assert len(found) == len(remarks)
        assert all(remark in line for remark, line in zip(remarks, found, strict=True)), found
    given = "given: {sources: The sources, needs: [sources, description]}\nscale:"
    cases = [
        scored("with", files={"a": "A."}, description="For us."),
        scored("without", description=" "),
    ]
    found = [line for line in said(own(*cases, **{"scale:": given})) if ":2: " in line]
    assert [line.partition(":2: ")[2].partition(": ")[0] for line in found] == [
        "files",
        "description",
    ]


def test_odd_rubrics(own: Callable[..., Path], tmp_path: Path) -> None:
    accept, mean = "    accept: {each: 3}\n", "    accept: {each: 3, mean: 3.5}"
    for before, after, remark in (
        (mean, "    accept: {each: 3}", "strict and lenient decide the same; make them differ"),
        (accept, "    accept: {each: 5}\n", "lenient should accept whatever strict accepts"),
        ("order, section, heading", "order, domain, heading", "other dimensions have domain too"),
        (TERMS, "", "no terms"),
    ):
        assert remark in "\n".join(said(own(*TEN, **{before: after})))
    path = own(*TEN)
    text = path.read_text(encoding="utf-8")
    for before, after in (("accept", "x"), ("reject", "accept"), ("x", "reject")):
        text = text.replace(f"confirm: {before}", f"confirm: {after}")
    path.write_text(text, encoding="utf-8")
    (only,) = said(path)
    assert "strict confirms rejections and lenient confirms acceptances; is that reversed?" in only
    lines = loader.find_rubric("memory-relevance").path.read_text(encoding="utf-8").splitlines()
    lenient = next(line for line in lines if line.startswith("    lenient: Is this"))
    strict = lenient.replace("lenient", "strict")
    text = "\n".join(strict if "    strict: Is" in line else line for line in lines)
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("rubric: memory-relevance", "rubric: mine"), encoding="utf-8")
    assert any("strict and lenient are the same; make them differ" in line for line in said(path))


def test_a_dimension_that_repeats_a_term_in_capitals_shares_it_with_no_other(
    own: Callable[..., Path],
) -> None:
    remarks = said(own(*TEN, **{"order, section, heading": "order, Order, section, heading"}))
    assert not any("other dimensions have" in remark for remark in remarks)


def compared(
    tmp_path: Path, labels: str, before: str = "", after: str = "", b: str = "b"
) -> list[str]:
    """Return the problems of a comparing rubric and of cases with these labels: A, B, T for a tie."""
    path = tmp_path / "ours@1.0.0.yaml"
    text = loader.find_rubric("answer-preference").path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("rubric: answer-preference", "rubric: ours").replace(before, after)
    )
    pair = {"prompt": "p", "a": "a", "b": b, "why": "w"}
    named = [dict.fromkeys(MODES, {"T": "tie"}.get(letter, letter)) for letter in labels]
    cases = [{"id": str(number), **pair, "label": label} for number, label in enumerate(named)]
    path.with_name("ours@1.0.0.cases.jsonl").write_text(
        "".join(f"{json.dumps(case)}\n" for case in cases)
    )
    return said(path)


def test_what_is_said_of_pairs(tmp_path: Path) -> None:
    assert compared(tmp_path, "AABBABABTT") == []
    first, second = compared(tmp_path, "AAAAAAAATT")
    assert "in strict 8 labels are A and 0 are B: swap some of the texts" in first
    assert "in lenient" in second
    assert len(compared(tmp_path, "TTTTTTTTTT")) == 2
    wrong, _ = compared(tmp_path, "AT", b="a")
    assert "1: label: 0: a and b are the same text, which is always a tie" in wrong
    (only,) = compared(
        tmp_path, "AABBABABTT", "lenient: {confirm: reject}", "lenient: {confirm: accept}"
    )
    assert "strict and lenient confirm the same" in only


def test_what_changed_is_said_key_by_key(own: Callable[..., Path]) -> None:
    def lines(**replaced: str) -> list[str]:
        before, after = own(), own(version="1.1.0", **replaced)
        first, *others = list_changes(
            loader.load_rubric(before).rubric, loader.load_rubric(after).rubric
        )
        assert first == "version: '1.0.0' -> '1.1.0'"
        return others

    assert lines() == []
    was, now = (
        f"Does the text {words} accurately?"
        for words in ("represent its domain", "describe its subject")
    )
    assert lines(**{"mean: 3.5": "mean: 4", "represent its domain": "describe its subject"}) == [
        f"dimensions.semantic.question: {was!r} -> {now!r}",
        "modes.strict.accept.mean: 3.5 -> 4",
    ]
    [found] = lines(**{"      - no contradictions, neither": "      - nothing made up, neither"})
    assert found.startswith(
        "dimensions.semantic.look_for: without 'no contradictions, neither inside"
    )
    assert "; with 'nothing made up, neither inside" in found
    assert lines(**{", mean: 3.5": ""}) == ["modes.strict.accept.mean: removed, was 3.5"]
    tone = lines(**{"modes:\n": "  tone: {question: 'Is it kind?'}\nmodes:\n"})
    assert tone == ["dimensions.tone: new, (question 'Is it kind?')"]
