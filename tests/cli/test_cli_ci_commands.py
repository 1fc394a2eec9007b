"""Texts of others give a CI server no command: names of files, findings, quotes, reasons, replies."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from loopback import Loopback, says

from judgekit import judge
from judgekit.cli.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Answer, Asked
    from outcome import Outcome, Run, Served, Use

pytestmark = pytest.mark.usefixtures("no_servers")
GATE = ("gate", "--base", "base")
RUBRIC = ("--rubric", "kls", "--mode", "lenient")
COMMANDS = {
    "azure": "##vso[task.setvariable variable=PATH]/evil",
    "azure, formatting": "##[section]mine",
    "github": "::add-mask::a",
    "github, first form": "##[set-env name=PATH]/evil",
    "teamcity": "##teamcity[buildStatus text='ok']",
    "gitlab": "section_start:1:mine",
    "travis": "travis_fold:start:mine",
    "buildkite": "+++ mine",
    "buildkite, folded": "--- mine",
    "buildkite, muted": "~~~ mine",
    "buildkite, opened": "^^^ +++",
}
OBEYED = re.compile(
    r"##[\w.-]*\[|^\s*::|section_(?:start|end):|travis_(?:fold|time):|^(?:---|\+\+\+|~~~|\^\^\^)[^\S\n]+\S",
    re.MULTILINE,
)
OURS = re.compile(r"^::(?:error|warning|notice) [^:\n]*::", re.MULTILINE)
"""The annotations that the format github prints: the properties of none can have a colon."""
INVISIBLE = "a\u2028b\u202ec\u200bd\x7fe"


def answer_with(text: str) -> Callable[[Asked], Answer]:
    def answer(_: Asked) -> Answer:
        finding = {"dimension": "semantic", "location": text, "issue": text, "suggestion": text}
        return says(
            json.dumps(
                {
                    "reasoning": f"It is bad.\n{text}",
                    "scores": dict.fromkeys(("semantic", "pragmatic", "syntactic"), 1),
                    "findings": [{**finding, "quote": text}],
                }
            )
        )

    return answer


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    monkeypatch.chdir(work.folder)
    return work


def run(served: Served, text: str, *words: str) -> Outcome:
    """Judge or gate a document of this text, by a model that repeats it."""
    if words[0] == "judge":
        words = (*words, *RUBRIC)
    return served(answer_with(text), *words)[0]


def obeyed(text: str) -> list[str]:
    """Return the commands in a text that aren't ours."""
    return OBEYED.findall(OURS.sub("", text))


DOORS = [
    *(("judge", "a.md", "--format", form) for form in FORMATS),
    *((*GATE, "--format", form) for form in FORMATS),
]


@pytest.mark.parametrize("words", DOORS, ids=" ".join)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_a_command(
    served: Served, work: GitRepo, words: tuple[str, ...], command: str
) -> None:
    text = COMMANDS[command]
    work.commit("change", a_md=f"# A\n\n{text}\n")
    done = run(served, text, *words)
    assert obeyed(done.out + done.err) == []
    assert done.code in (0, 1)


@pytest.mark.parametrize("form", FORMATS)
def test_the_name_of_a_file_is_no_command(served: Served, work: GitRepo, form: str) -> None:
    work.write("##vso[task.prependpath]evil.md", "# A\n\nTODO\n")
    work.commit("change")
    done = run(served, "bad", *GATE, "--format", form)
    assert obeyed(done.out + done.err) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_message_about_a_file_is_no_command(judgekit: Run, command: str) -> None:
    done = judgekit("judge", COMMANDS[command].replace("/", ""), *RUBRIC)
    assert done.code in (64, 65)
    assert OBEYED.findall(done.out + done.err) == []


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_of_rows_gives_no_command(judgekit: Run, command: str, form: str) -> None:
    text = f"a\n{COMMANDS[command]}"
    row = {"id": text, "verdict": "reject", "reasoning": text, "error": text, "topic": text}
    Path("r.jsonl").write_text(json.dumps(row) + "\n")
    done = judgekit("report", "r.jsonl", "--by", "topic", "--format", form)
    assert obeyed(done.out + done.err) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_prompt_that_is_shown_gives_no_command(judgekit: Run, command: str) -> None:
    Path("a.md").write_text(f"{COMMANDS[command]}\n")
    done = judgekit("judge", "a.md", *RUBRIC, "--show-prompt")
    assert OBEYED.findall(re.sub(r"(?m)^--- (?:system|user)$", "", done.out)) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_verdict_that_a_program_prints_gives_no_command(use: Use, command: str) -> None:
    Path("a.md").write_text("# A\n")
    with Loopback(answer_with(COMMANDS[command])) as server:
        use(server)
        [verdict] = judge("a.md", rubric="kls", mode="lenient")
    assert OBEYED.findall(str(verdict)) == []


# Values stay


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_quote_in_json_is_equal(served: Served, work: GitRepo, form: str, command: str) -> None:
    text = COMMANDS[command]
    work.commit("change", a_md=f"# A\n\n{text}\n")
    done = run(served, text, "judge", "a.md", "--format", form)
    records = json.loads(done.out)
    record = records[0] if form == "json" else records
    assert record["findings"][0]["quote"] == text


def test_a_quote_in_sarif_is_found_in_its_file(served: Served, work: GitRepo) -> None:
    text = COMMANDS["azure"]
    work.commit("change", a_md=f"# A\n\n{text}\n")
    result = json.loads(run(served, text, "judge", "a.md", "--format", "sarif").out)
    quoted = result["runs"][0]["results"][-1]["locations"][0]["physicalLocation"]
    assert quoted["region"]["startLine"] == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_a_quote_in_junit_is_equal(served: Served, work: GitRepo, command: str) -> None:
    text = COMMANDS[command]
    work.commit("change", a_md=f"# A\n\n{text}\n")
    failure = ET.fromstring(run(served, text, "judge", "a.md", "--format", "junit").out).find(
        ".//failure"
    )
    assert failure is not None
    assert text in str(failure.text)


@pytest.mark.parametrize("form", ["json", "jsonl", "sarif", "junit"])
def test_what_nobody_sees_is_escaped_in_reports(served: Served, work: GitRepo, form: str) -> None:
    path = f"{INVISIBLE}.md"
    work.write(path, "# A\n\nTODO\n")
    work.commit("change")
    done = run(served, "bad", "judge", path, "--format", form)
    assert [char for char in "\u2028\u202e\u200b\x7f" if char in done.out] == []


def test_what_nobody_sees_is_equal_in_jsonl(served: Served, work: GitRepo) -> None:
    path = f"{INVISIBLE}.md"
    work.write(path, "# A\n\nTODO\n")
    done = run(served, "bad", "judge", path, "--format", "jsonl")
    assert json.loads(done.out)["subjects"][0]["path"] == path


def test_what_nobody_sees_is_equal_in_junit(served: Served, work: GitRepo) -> None:
    path = f"{INVISIBLE}.md"
    work.write(path, "# A\n\nTODO\n")
    done = run(served, "bad", "judge", path, "--format", "junit")
    case = ET.fromstring(done.out).find("testcase")
    assert case is not None
    assert case.get("name") == path


@pytest.mark.parametrize("text", ["## Title", "a::b", "x ##  [", "std::vector", "---", "a --- b"])
def test_what_no_server_obeys_stays(served: Served, text: str) -> None:
    Path("a.md").write_text("# A\n")
    assert text in run(served, f"see {text}", "judge", "a.md").out
