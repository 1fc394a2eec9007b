"""Reports for programs: JUnit that every reader takes, SARIF, and the gate's record of a whole run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from git_repo import GitRepo
from loopback import fails, says
from pushing import bad, good
from scripted import by_content, finding, scores

from judgekit.cli.formats import junit
from judgekit.cli.schema import build_json_schema
from judgekit.config.settings import get_user_config_path

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run, Served

GATE = ("gate", "--base", "base", "--no-engine")
# Characters that XML 1.0 may not hold, and some that it may.
FORBIDDEN = "\0\x01\x08\x0b\x0c\x1f\ud800\udfff\ufffe\uffff"
ALLOWED = "\t\nä\u2028\ufffd\U0001f600\U0010ffff"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", a_md=good("a"), b_md=bad("b"), code_py="x\n", zero_md=b"\0")
    monkeypatch.chdir(work.folder)
    return work


def suite_of(text: str) -> ET.Element:
    return ET.fromstring(text)


def cases(suite: ET.Element) -> dict[str, str]:
    """Map each test's name to its result."""
    states = ("failure", "error", "skipped")
    return {
        case.get("name", ""): next((child.tag for child in case if child.tag in states), "passed")
        for case in suite.iter("testcase")
    }


def test_a_test_is_named_by_its_path_and_tells_the_findings(served: Served, work: GitRepo) -> None:
    found = [finding("TODO"), finding("")]
    reply = says(scores(1, 1, 1, findings=found))
    before = suite_of(served(reply, *GATE, "--format", "junit")[0].out)
    assert cases(before) == {"a.md": "failure", "b.md": "failure", "zero.md": "skipped"}
    failure = before.find(".//failure")
    assert failure is not None
    lines = (failure.text or "").splitlines()
    for part in (found[0]["issue"], f'  > "{found[0]["quote"]}"', f"  -> {found[0]['suggestion']}"):
        assert any(part in line for line in lines), part
    work.commit("again", a_md=good("a, again"))
    after = suite_of(served(reply, *GATE, "--format", "junit")[0].out)
    assert cases(after).keys() == cases(before).keys()


def test_a_task_keeps_its_name(served: Served, project: Path) -> None:
    suite = suite_of(
        served(by_content, "judge", "--task-id", "T-1", "--format", "junit", "good.md")[0].out
    )
    assert list(cases(suite)) == ["T-1"]
    suite = suite_of(served(by_content, "judge", "--format", "junit", "good.md", "bad.md")[0].out)
    assert cases(suite) == {"good.md": "passed", "bad.md": "failure"}


def verdict(**changes: object) -> dict[str, Any]:
    subject = {"path": "a.md", "sha256": "0" * 64}
    base: dict[str, Any] = {
        "verdict": "reject",
        "task_id": "a.md",
        "rubric": {"id": "kls"},
        "subjects": [subject],
    }
    base |= {"scores": None, "reasoning": "", "degraded": None, "findings": [], "duration_ms": 1}
    return base | changes


def test_junit_is_xml_whatever_a_model_says() -> None:
    said = f"a{FORBIDDEN}b{ALLOWED}"
    item = {"issue": said, "suggestion": said, "quote": said, "dimension": said, "location": said}
    for word in ("accept", "reject", "undetermined"):
        text = junit.render_verdicts(
            [verdict(verdict=word, reasoning=said, task_id=f"p{said}", findings=[item])]
        )
        suite = suite_of(text.encode("utf-8").decode("utf-8"))  # no lone surrogate is left
        assert not set(FORBIDDEN) & set(text)
        assert "ä" in text
        assert len(cases(suite)) == 1


def test_sarif_keeps_issue_and_suggestion_apart(served: Served, work: GitRepo) -> None:
    found = finding("TODO")
    log = json.loads(
        served(says(scores(1, 1, 1, findings=[found])), *GATE, "--format", "sarif")[0].out
    )
    result = log["runs"][0]["results"][1]
    issue, suggestion = found["issue"], found["suggestion"]
    assert result["message"]["text"] == f"{issue}\n\nSuggestion: {suggestion}"
    assert result["properties"] == {"issue": issue, "suggestion": suggestion, "quote": "TODO"}


def by_user(text: str) -> None:
    get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
    get_user_config_path().write_text(text)


@pytest.mark.parametrize("holds", [False, True])
def test_what_was_not_examined_is_in_every_format(
    served: Served,
    work: GitRepo,
    *,
    holds: bool,
) -> None:
    if holds:
        by_user("gate: {undetermined: block}\n")
    words = (*GATE, "--block", "--format")
    done, _ = served(by_content, *words, "json")
    *_, run = done.json
    jsonschema.Draft202012Validator(build_json_schema("gate")).validate(run)
    assert (run["verdict"], run["blocked"], run["holds"]) == ("NO-GO", True, holds)
    assert run["skipped"] == [
        {"reason": "not selected by gate.paths", "count": 1, "names": ["code.py"]}
    ]
    assert [each["name"] for each in run["not_examined"]] == ["zero.md"]
    last = json.loads(served(by_content, *words, "jsonl")[0].out.splitlines()[-1])
    assert last == run
    suite = suite_of(served(by_content, *words, "junit")[0].out)
    assert cases(suite)["zero.md"] == ("error" if holds else "skipped")
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert (properties["skipped: not selected by gate.paths"], properties["not examined"]) == (
        "1",
        "1",
    )
    log = json.loads(served(by_content, *words, "sarif")[0].out)
    told = {
        each["descriptor"]["id"]: (each["level"], each["message"]["text"])
        for each in log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    }
    assert told["skipped"] == ("note", "1 skipped: not selected by gate.paths")
    assert told["not-examined"][0] == ("error" if holds else "warning")
    assert "zero.md: a binary file" in told["not-examined"][1]
    done, _ = served(by_content, *words, "table")
    assert (
        "2 judged (1 GO, 1 NO-GO); 1 skipped (not selected by gate.paths); 1 not examined (a binary"
        in done.err
    )


def test_a_fault_is_not_examined_and_no_empty_report(judgekit: Run, work: GitRepo) -> None:
    by_user("gate: {mode: nonsense}\n")
    done = judgekit(*GATE, "--format", "json")
    (run,) = done.json
    assert (done.code, run["fault"], run["verdict"]) == (0, True, "UNDETERMINED")
    assert "gate.mode" in run["not_examined"][0]["reason"]
    assert cases(suite_of(judgekit(*GATE, "--format", "junit").out)) == {"base": "skipped"}
    log = json.loads(judgekit(*GATE, "--format", "sarif").out)
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is False
    assert "nothing was judged: 0 judged; 0 skipped; 1 not examined" in judgekit(*GATE).err


def test_models_that_fail_were_asked(served: Served, work: GitRepo) -> None:
    """Such a file is UNDETERMINED, and was not left out."""
    *_, run = served(fails(401), *GATE, "--format", "json")[0].json
    assert run["judged"]["UNDETERMINED"] == 2
    assert [each["name"] for each in run["not_examined"]] == ["zero.md"]
