"""`judgekit rubric` check, diff and new, with a server that answers as the text of a case says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, says
from scripted import scores

from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Outcome

    Run = Callable[..., Outcome]
    Use = Callable[[Loopback], None]


def by_digits(asked: Asked) -> Answer:
    """Give the scores that the text of a case names; no JSON where it names none."""
    found = re.search(r"Scores: (\d) (\d) (\d)", asked.text)
    return says(scores(*(int(each) for each in found.groups())) if found else "I cannot say.")


def case(name: str, text: str, strict: str, lenient: str) -> str:
    label = {"strict": strict, "lenient": lenient}
    return json.dumps({"id": name, "text": text, "why": "So.", "label": label}) + "\n"


@pytest.fixture
def ours(project: Path) -> Path:
    """A rubric of the project with three cases, the last of which its labels get wrong in lenient."""
    folder = project / ".judgekit" / "rubrics"
    folder.mkdir(parents=True)
    path = folder / "ours@1.0.0.yaml"
    path.write_text(loader.find_rubric("kls").path.read_text().replace("rubric: kls", "rubric: ours"))
    lines = [
        case("good", "Scores: 4 4 4", "accept", "accept"),
        case("fair", "Scores: 3 3 3", "improve", "accept"),
        case("bad", "Scores: 2 2 2", "reject", "reject"),
    ]
    path.with_name("ours@1.0.0.cases.jsonl").write_text("".join(lines))
    return path


def test_cases_are_tried_in_both_modes(judgekit: Run, ours: Path, use: Use) -> None:
    with Loopback(by_digits) as server:
        use(server)
        done = judgekit("rubric", "check", "ours", "--run")
    rows = [line.split()[:3] for line in done.out.splitlines()[1:]]
    assert rows == [
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


@pytest.mark.parametrize(("least", "code"), [("0.6", 0), ("0.7", 1)])
def test_less_agreement_than_wanted_is_code_1(
    judgekit: Run, ours: Path, use: Use, least: str, code: int
) -> None:
    with Loopback(by_digits) as server:
        use(server)
        assert judgekit("rubric", "check", "ours", "--run", "--at-least", least).code == code


def test_what_stays_undecided_is_neither_right_nor_wrong(judgekit: Run, ours: Path, use: Use) -> None:
    cases = ours.with_name("ours@1.0.0.cases.jsonl")
    cases.write_text(
        case("good", "Scores: 4 4 4", "accept", "accept") + case("mute", "?", "reject", "reject")
    )
    with Loopback(by_digits) as server:
        use(server)
        done = judgekit("rubric", "check", "ours", "--run", "--mode", "lenient", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["case"], each["said"], each["agrees"]) for each in found] == [
        ("good", "accept", True),
        ("mute", "undetermined", False),
    ]
    assert "lenient: 1 of 1 as labelled" in done.err
    assert "1 undecided" in done.err
    assert done.code == 2


def test_candidates_of_a_case_count_one_by_one(judgekit: Run, project: Path, use: Use) -> None:
    judgekit("rubric", "new", "worth", "--task", "select")
    with Loopback(says('{"keep": []}')) as server:
        use(server)
        done = judgekit("rubric", "check", "worth", "--run", "--mode", "strict", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["case"], each["expected"], each["said"]) for each in found] == [
        ("named/import-runbook", "kept", "dropped"),
        ("named/import-tax", "dropped", "dropped"),
        ("nothing/import-runbook", "dropped", "dropped"),
    ]
    assert "strict: 2 of 3 as labelled" in done.err


def test_a_case_goes_to_models_with_its_task_and_its_sources(judgekit: Run, project: Path, use: Use) -> None:
    with Loopback(says("no JSON")) as server:
        use(server)
        judgekit("rubric", "check", "agent-task", "--run", "--mode", "strict")
        judgekit("rubric", "check", "groundedness", "--run", "--mode", "strict")
    sent = "\n".join(request.text for request in server.requests)
    assert "The acceptance criteria:\n\n<judged-" in sent
    assert re.search(r'The sources:\n\n<judged-\w+ path="minutes" role="source">', sent)
    assert re.search(r'The text whose claims are to be checked:\n\n<judged-\w+ path="summary">', sent)


def test_without_a_model_nothing_is_tried(judgekit: Run, ours: Path) -> None:
    done = judgekit("rubric", "check", "ours", "--run")
    assert done.code == 64
    assert "no model to ask" in done.err


def test_cases_of_comparisons_are_tried_in_both_orders(judgekit: Run, project: Path, use: Use) -> None:
    def shorter(asked: Asked) -> Answer:
        """Prefer the shorter text, whatever it says."""
        found = re.findall(
            r"^The text (\w+):\s+<(\S+)[^>]*>\n(.*?)\n</\2>", asked.text, re.DOTALL | re.MULTILINE
        )
        label, *_ = min(found, key=lambda each: len(each[2]))
        return says(json.dumps({"reasoning": "It is shorter.", "better": label}))

    with Loopback(shorter) as server:
        use(server)
        done = judgekit("rubric", "check", "answer-preference", "--run", "--mode", "lenient")
        assert len(server.requests) == 20  # ten pairs
    assert done.code == 0, done.err
    assert "  lenient  asked-for-three              A" in done.out
    assert "! lenient  same-in-other-words          A, not tie" in done.out
    assert "lenient: 8 of 10 as labelled, 80%" in done.err


def test_a_rubric_that_compares_can_be_begun(judgekit: Run, project: Path) -> None:
    assert judgekit("rubric", "new", "replies", "--task", "compare").code == 0
    done = judgekit("rubric", "check", "replies")
    assert (done.code, "replies@1.0.0 is valid, 3 labelled cases" in done.out) == (0, True)


def test_json_is_about_what_was_tried(judgekit: Run, ours: Path) -> None:
    assert judgekit("rubric", "check", "ours", "--json").code == 64


def test_all_rubrics_are_checked_when_none_is_named(judgekit: Run, ours: Path) -> None:
    broken = ours.with_name("theirs@1.0.0.yaml")
    broken.write_text("rubric: theirs\n")
    done = judgekit("rubric", "check")
    assert done.code == 78
    assert "theirs@1.0.0.yaml" in done.err
    assert {"ours@1.0.0", "kls@1.0.0", "agent-task@1.0.0"} <= set(done.out.split())


def test_a_wrong_case_is_code_78_and_names_its_line(judgekit: Run, ours: Path) -> None:
    cases = ours.with_name("ours@1.0.0.cases.jsonl")
    cases.write_text(cases.read_text() + case("odd", "Odd.", "accept", "reject"))
    done = judgekit("rubric", "check", "ours")
    assert (done.code, done.out) == (78, "")
    assert "cases.jsonl:4: label: odd: no scores give accept in strict and reject in lenient" in done.err


def test_a_difference_is_said_and_tried(judgekit: Run, ours: Path, use: Use) -> None:
    judgekit("rubric", "new", "ours@2.0.0", "--from", "ours")
    newer = ours.with_name("ours@2.0.0.yaml")
    newer.write_text(newer.read_text().replace("each: 3, mean: 3.5", "each: 3, mean: 3"))
    with Loopback(by_digits) as server:
        use(server)
        done = judgekit("rubric", "diff", "ours@1.0.0", "ours@2.0.0", "--run")
    assert done.out.splitlines() == [
        "version: '1.0.0' -> '2.0.0'",
        "modes.strict.accept.mean: 3.5 -> 3",
        "strict   fair                         improve -> accept (labelled improve: worse)",
    ]
    assert "strict: as labelled 67% -> 33% of 3 cases" in done.err
    assert "lenient: as labelled 67% -> 67% of 3 cases" in done.err
    assert done.code == 0


def test_rubrics_of_two_tasks_are_not_compared(judgekit: Run, project: Path) -> None:
    done = judgekit("rubric", "diff", "kls", "memory-relevance")
    assert done.code == 64
    assert "kls@1.0.0 is for 'score', memory-relevance@1.0.0 for 'select'" in done.err


def test_nothing_differs(judgekit: Run, project: Path) -> None:
    assert judgekit("rubric", "diff", "kls", "kls").out == "no difference\n"


def test_a_rubric_is_begun_in_the_project_or_for_the_user(
    judgekit: Run, project: Path, isolated: Path
) -> None:
    done = judgekit("rubric", "new", "notes")
    assert done.out.splitlines()[0] == str(project / ".judgekit" / "rubrics" / "notes@1.0.0.yaml")
    assert judgekit("rubric", "check", "notes").code == 0
    assert judgekit("rubric", "new", "notes").code == 64
    judgekit("rubric", "new", "mine", "--user", "--task", "select")
    assert (isolated / "judgekit" / "rubrics" / "mine@1.0.0.yaml").is_file()
    listed = judgekit("rubric", "list").out
    assert re.search(r"^notes@1\.0\.0 +score +project ", listed, re.MULTILINE)
    assert re.search(r"^mine@1\.0\.0 +select +user ", listed, re.MULTILINE)


def test_a_copy_keeps_its_task(judgekit: Run, project: Path) -> None:
    assert judgekit("rubric", "new", "x", "--from", "kls", "--task", "score").code == 64


def test_published_rubrics_are_listed_without_reading_yaml(project: Path) -> None:
    listing = "import sys; from judgekit.cli.app import run; run(['rubric', 'list'])"
    code = f"{listing}; print('ruamel.yaml' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert len(done.stdout.splitlines()) == len(list(loader.rubrics())) + 1
    assert done.stdout.splitlines()[-1] == "False"


def test_a_changed_copy_of_a_published_rubric_is_no_published_one(judgekit: Run, ours: Path) -> None:
    copy = ours.with_name("kls@1.0.0.yaml")
    copy.write_text(loader.find_rubric("kls").path.read_text() + "\n# ours\n")
    done = judgekit("rubric", "list")
    assert done.code == 78
    assert "kls@1.0.0 is published with different content" in done.err


def test_the_first_path_of_a_task_is_checked_against_the_others(
    judgekit: Run, project: Path, use: Use
) -> None:
    words = ("judge", "--task-id", "summary", "--rubric", "groundedness", "--mode", "lenient")
    reply = {"reasoning": "Supported.", "scores": {"supported": 5, "faithful": 4}, "findings": []}
    with Loopback(says(json.dumps(reply))) as server:
        use(server)
        done = judgekit(*words, "good.md", "bad.md", "--format", "json")
    (asked,) = server.requests
    assert asked.text.index('path="bad.md" role="source"') < asked.text.index('path="good.md">')
    assert (done.code, done.json[0]["verdict"]) == (0, "accept")
    assert [each["path"] for each in done.json[0]["subjects"]] == ["good.md", "bad.md"]


def test_without_sources_nothing_is_sent(judgekit: Run, project: Path, use: Use) -> None:
    with Loopback(says("{}")) as server:
        use(server)
        done = judgekit("judge", "good.md", "--rubric", "groundedness")
    assert (done.code, server.requests) == (2, [])
    assert "groundedness@1.0.0 needs sources; give their paths after the text" in done.err
