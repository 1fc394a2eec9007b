"""`judgekit rubric`, with a server that answers as the text of a case says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from loopback import says
from scripted import scores

from judgekit.config import files
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project")
CHECK = ("rubric", "check")


def by_digits(asked: Asked) -> Answer:
    """Answer with the scores that a case's text names, or with no JSON if it names none."""
    found = re.search(r"Scores: (\d) (\d) (\d)", asked.text)
    return says(scores(*(int(each) for each in found.groups())) if found else "I cannot say.")


def case(name: str, text: str, strict: str, lenient: str) -> str:
    label = {"strict": strict, "lenient": lenient}
    return json.dumps({"id": name, "text": text, "why": "So.", "label": label}) + "\n"


@pytest.fixture
def ours(project: Path) -> Path:
    """A rubric of the project with three cases; in lenient mode the last one's label is wrong."""
    path = project / ".judgekit" / "rubrics" / "ours@1.0.0.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        loader.find_rubric("kls").path.read_text().replace("rubric: kls", "rubric: ours")
    )
    lines = [
        case("good", "Scores: 4 4 4", "accept", "accept"),
        case("fair", "Scores: 3 3 3", "improve", "accept"),
        case("bad", "Scores: 2 2 2", "reject", "reject"),
    ]
    path.with_name("ours@1.0.0.cases.jsonl").write_text("".join(lines))
    return path


def test_rubrics_are_listed_shown_and_found(judgekit: Run, ours: Path) -> None:
    listed = [line.split()[0] for line in judgekit("rubric", "list").out.splitlines()]
    assert (listed[0], listed[1:]) == ("ours@1.0.0", sorted(listed[1:]))
    path = files.get_data_folder("rubrics") / "kls@1.0.0.yaml"
    assert judgekit("rubric", "path", "kls").out == f"{path}\n"
    text = judgekit("rubric", "show", "memory-relevance", "--prompt", "--mode", "lenient").out
    assert "even indirectly" in text
    for reference in ("/tmp/foo", "*", "kls@1", "../kls", "kls@1.0.0.yaml2"):
        done = judgekit("rubric", "show", reference)
        assert (done.code, done.err.count("\n")) == (64, 1)


def test_one_broken_rubric_does_not_hide_the_others(judgekit: Run, ours: Path) -> None:
    ours.write_text("rubric: [\n")
    done = judgekit("rubric", "list")
    assert (done.code, done.err.count("\n"), "kls@1.0.0" in done.out) == (78, 1, True)
    said = judgekit("rubric", "show", "nosuch").err
    assert "no rubric 'nosuch'; there are: " in said
    assert "kls@1.0.0, " in said
    ours.rename(ours.with_name("kls@1.0.0.yaml")).write_text(
        loader.find_rubric("kls").path.read_text() + "\n# ours\n"
    )
    done = judgekit("rubric", "list")
    assert (done.code, "kls@1.0.0 is published with different content" in done.err) == (78, True)


def test_a_rubric_file_is_checked(judgekit: Run, ours: Path) -> None:
    sound = loader.find_rubric("kls").path
    done = judgekit(*CHECK, str(sound))
    assert (done.code, "is valid, 6 labelled cases" in done.out) == (0, True)
    wrong = ours.with_name("mine.yaml")
    wrong.write_text(sound.read_text().replace("task: score", "task: score\ntask: select"))
    done = judgekit(*CHECK, str(wrong))
    assert (done.code, done.out, 'duplicate key "task"' in done.err) == (78, "", True)
    wrong.write_text(sound.read_text().replace("scale:", "scales:"))
    assert "mine.yaml:5: scales: unknown key" in judgekit(*CHECK, str(wrong)).err
    wrong.unlink()
    ours.with_name("theirs@1.0.0.yaml").write_text("rubric: theirs\n")
    done = judgekit(*CHECK)  # all of them
    assert (done.code, "theirs@1.0.0.yaml" in done.err) == (78, True)
    assert {"ours@1.0.0", "kls@1.0.0", "agent-task@1.0.0"} <= set(done.out.split())
    cases = ours.with_name("ours@1.0.0.cases.jsonl")
    cases.write_text(cases.read_text() + case("odd", "Odd.", "accept", "reject"))
    done = judgekit(*CHECK, "ours")
    assert (done.code, done.out) == (78, "")
    assert (
        "cases.jsonl:4: label: odd: no scores give accept in strict and reject in lenient"
        in done.err
    )


def test_cases_are_tried_in_both_modes(served: Served, ours: Path) -> None:
    done, _ = served(by_digits, *CHECK, "ours", "--run")
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["strict", "good", "accept"],
        ["strict", "fair", "improve"],
        ["!", "strict", "bad"],
        ["lenient", "good", "accept"],
        ["lenient", "fair", "accept"],
        ["!", "lenient", "bad"],
    ]
    assert "improve, not reject  semantic 2  pragmatic 2  syntactic 2" in done.out
    assert "strict: 2 of 3 as labelled, 67% (95 % interval 21% to 94%)" in done.err
    assert done.code == 0
    for least, code in (("0.6", 0), ("0.7", 1)):
        assert served(by_digits, *CHECK, "ours", "--run", "--at-least", least)[0].code == code


def test_what_stays_undecided_is_neither_right_nor_wrong(served: Served, ours: Path) -> None:
    lines = case("good", "Scores: 4 4 4", "accept", "accept") + case(
        "mute", "?", "reject", "reject"
    )
    ours.with_name("ours@1.0.0.cases.jsonl").write_text(lines)
    done, _ = served(by_digits, *CHECK, "ours", "--run", "--mode", "lenient", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["case"], each["said"], each["agrees"]) for each in found] == [
        ("good", "accept", True),
        ("mute", "undetermined", False),
    ]
    assert "lenient: 1 of 1 as labelled" in done.err
    assert ("1 undecided" in done.err, done.code) == (True, 2)


def test_wrong_usage(judgekit: Run) -> None:
    for words, told in (
        ("check kls --run", "no model to ask"),
        ("check kls --json", ""),
        ("new x --from kls --task score", ""),
        (
            "diff kls memory-relevance",
            "kls@1.0.0 is for 'score', memory-relevance@1.0.0 for 'select'",
        ),
    ):
        done = judgekit("rubric", *words.split())
        assert (done.code, told in done.err) == (64, True), words


def test_a_difference_is_said_and_tried(judgekit: Run, served: Served, ours: Path) -> None:
    judgekit("rubric", "new", "ours@2.0.0", "--from", "ours")
    newer = ours.with_name("ours@2.0.0.yaml")
    newer.write_text(newer.read_text().replace("each: 3, mean: 3.5", "each: 3, mean: 3"))
    done, _ = served(by_digits, "rubric", "diff", "ours@1.0.0", "ours@2.0.0", "--run")
    assert done.out.splitlines() == [
        "version: '1.0.0' -> '2.0.0'",
        "modes.strict.accept.mean: 3.5 -> 3",
        "strict   fair                         improve -> accept (labelled improve: worse)",
    ]
    assert "strict: as labelled 67% -> 33% of 3 cases" in done.err
    assert "lenient: as labelled 67% -> 67% of 3 cases" in done.err
    assert done.code == 0
    assert judgekit("rubric", "diff", "kls", "kls").out == "no difference\n"


def test_a_rubric_is_begun_here_or_for_the_user(
    judgekit: Run, project: Path, isolated: Path
) -> None:
    done = judgekit("rubric", "new", "notes")
    assert done.out.splitlines()[0] == str(project / ".judgekit" / "rubrics" / "notes@1.0.0.yaml")
    assert judgekit(*CHECK, "notes").code == 0
    assert judgekit("rubric", "new", "notes").code == 64
    judgekit("rubric", "new", "mine", "--user", "--task", "select")
    assert (isolated / "judgekit" / "rubrics" / "mine@1.0.0.yaml").is_file()
    assert judgekit("rubric", "new", "replies", "--task", "compare").code == 0
    done = judgekit(*CHECK, "replies")
    assert (done.code, "replies@1.0.0 is valid, 3 labelled cases" in done.out) == (0, True)
    listed = judgekit("rubric", "list").out
    assert re.search(r"^notes@1\.0\.0 +score +project ", listed, re.MULTILINE)
    assert re.search(r"^mine@1\.0\.0 +select +user ", listed, re.MULTILINE)


def test_published_rubrics_are_listed_without_reading_yaml() -> None:
    listing = "import sys; from judgekit.cli.app import run; run(['rubric', 'list'])"
    command = [sys.executable, "-c", f"{listing}; print('ruamel.yaml' in sys.modules)"]
    lines = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.splitlines()
    assert (len(lines), lines[-1]) == (len(list(loader.load_rubrics())) + 1, b"False")


def wrong(name: str, kind: str, digits: str, **more: object) -> str:
    return (
        json.dumps({"id": name, "kind": kind, "text": f"Scores: {digits}", "why": "No.", **more})
        + "\n"
    )


def test_wrong_texts_show_leniency_and_block_nothing(served: Served, ours: Path) -> None:
    path = ours.with_name("ours@1.0.0.leniency.jsonl")
    digits = {"a": "4 4 4", "b": "3 3 3", "c": "1 1 1"}
    lines = [wrong(name, "vague", each) for name, each in digits.items()]
    path.write_text(
        "".join([*lines, wrong("d", "specific", "1 2 1"), wrong("e", "specific", "none")])
    )
    done, _ = served(by_digits, *CHECK, "ours", "--run", quick="small", deep="large")
    assert done.code == 0
    told = [line for line in done.err.splitlines() if "wrong texts" in line]
    strict, lenient = ("33% (95 % interval 6% to 79%)", "67% (95 % interval 21% to 94%)")
    for tier, model in (("quick", "small"), ("deep", "large")):
        for mode, share in (
            (f"strict: {tier}", f"1 of 3 vague, {strict}"),
            (f"lenient: {tier}", lenient),
        ):
            (line,) = [each for each in told if f"{mode} (custom/{model})" in each]
            assert f"{share}; 0 of 1 specific, 0%" in line
    done, _ = served(
        by_digits, *CHECK, "ours", "--run", "--mode", "lenient", "--json", quick="small"
    )
    rows = [json.loads(line) for line in done.out.splitlines() if "accepted_wrong" in line]
    (found,) = [each for each in rows if each["judge"] == "quick (custom/small)"]
    vague, specific = (found["accepted_wrong"][kind] for kind in ("vague", "specific"))
    assert (vague["right"], vague["decided"], specific["undecided"]) == (2, 3, 1)
    assert vague["bounds"] == [pytest.approx(0.208, abs=0.001), pytest.approx(0.939, abs=0.001)]


def test_a_file_of_wrong_texts_is_checked(judgekit: Run, ours: Path) -> None:
    path = ours.with_name("ours@1.0.0.leniency.jsonl")
    for text, problem in (
        ("{}\n", "ours@1.0.0.leniency.jsonl:1: id: missing key"),
        (wrong("a", "vague", "1 1 1", hue=3), "leniency.jsonl:1: hue: unknown key"),
        (wrong("a", "vague", "1 1 1") * 2, "leniency.jsonl:2: id: line 1 has the id 'a' already"),
    ):
        path.write_text(text)
        done = judgekit(*CHECK, "ours")
        assert (done.code, problem in done.err) == (78, True), done.err
    answers = files.get_data_folder("rubrics") / "answer-quality@1.0.0.yaml"
    mine = ours.with_name("mine.yaml")
    mine.write_text(answers.read_text().replace("rubric: answer-quality", "rubric: mine"))
    ours.with_name("mine.leniency.jsonl").write_text(wrong("a", "vague", "1 1 1"))
    done = judgekit(*CHECK, str(mine))
    assert "mine.leniency.jsonl:1: description: a: mine@1.0.0 needs description" in done.err


def test_bundled_wrong_texts_are_pairs_of_one_question() -> None:
    for name in ("answer-quality", "groundedness"):
        loaded = loader.find_rubric(name)
        found = loader.read_wrong_cases(loaded)
        assert len(found) >= 20
        kinds = {
            kind: [each for each in found if each.kind == kind] for kind in ("vague", "specific")
        }
        vague, specific = kinds.values()
        assert len(vague) + len(specific) == len(found)
        for one, other in zip(vague, specific, strict=True):
            assert (one.description, one.files) == (other.description, other.files)
            assert one.text != other.text
        assert len({each.text for each in found}) == len(found)
