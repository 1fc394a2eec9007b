"""`judgekit gate --base`: the same for continuous integration."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from git_repo import GitRepo
from loopback import fails
from scripted import by_content

from judgekit.cli.schema import build_json_schema
from judgekit.git import GitError

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run, Served

    from judgekit.git import Repository

GOOD, BAD = "# Good\n\nA sound document.\n", "# Bad\n\nTODO\n"
GATE = ("gate", "--base", "base")


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    for number, name in enumerate(
        ("bad", "good", "picture")
    ):  # each file comes with another commit
        work.commit(
            f"change {number}", **{f"{name}_md": {"bad": BAD, "good": GOOD}.get(name, b"\0\1")}
        )
    monkeypatch.chdir(work.folder)
    return work


def test_a_report_says_it_of_each_file_once_and_exits_with_0(judgekit: Run, served: Served) -> None:
    done = judgekit(*GATE)
    assert (done.code, (done.out + done.err).count("not judged")) == (
        0,
        1,
    )  # not with each file and below
    done, _ = served(by_content, *GATE)
    assert done.code == 0
    words = [line.split()[:2] for line in done.out.splitlines() if not line.startswith(" ")]
    assert words == [["NO-GO", "bad.md"], ["GO", "good.md"], ["UNDETERMINED", "picture.md"]]
    assert "a binary file" in done.out
    assert "advisory: 1 NO-GO" in done.err
    assert (done.out.count("bad.md"), "mean " in done.out) == (1, True)


def test_only_a_no_go_while_blocking_is_1_by_the_rules_of_the_base(
    served: Served, work: GitRepo
) -> None:
    done, _ = served(fails(401), *GATE, "--block")
    assert (done.code, done.out.count("UNDETERMINED") >= 3) == (0, True)
    assert served(by_content, *GATE, "--advise")[0].code == 0
    work.write(".judgekit/config.yaml", "gate: {paths: []}\n")
    work.commit("laxer rules")
    assert served(by_content, *GATE, "--block")[0].code == 1


def test_programs_get_every_file(judgekit: Run, served: Served) -> None:
    *verdicts, run = served(by_content, *GATE, "--format", "json")[0].json
    jsonschema.Draft202012Validator(build_json_schema("gate")).validate(run)
    assert (run["verdict"], run["judged"]) == ("NO-GO", {"GO": 1, "NO-GO": 1, "UNDETERMINED": 0})
    assert run["not_examined"] == [
        {"name": "picture.md", "reason": "a binary file; judgekit judges only text"}
    ]
    assert [verdict["verdict"] for verdict in verdicts] == ["reject", "accept", "undetermined"]
    for verdict in verdicts:
        jsonschema.Draft202012Validator(build_json_schema("verdict")).validate(verdict)
    sarif = judgekit(*GATE, "--format", "sarif").json
    places = [each["locations"][0]["physicalLocation"] for each in sarif["runs"][0]["results"]]
    assert {each["artifactLocation"]["uri"] for each in places} == {
        "bad.md",
        "good.md",
        "picture.md",
    }
    junit = ET.fromstring(judgekit(*GATE, "--format", "junit").out)
    assert (junit.get("tests"), junit.get("failures"), junit.get("skipped")) == ("3", "1", "1")


def test_wrong_use_and_nothing_judged(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    for words, code, told in (
        ("", 64, "give --base REF, or --pre-push REMOTE URL"),
        ("--base base --block --advise", 64, "--advise and --block cannot be combined"),
        ("--base nowhere", 65, "nowhere: not a commit of this repository"),
        ("--base=", 64, "give --base REF"),
    ):
        done = judgekit("gate", *words.split())
        assert (done.code, told in done.err) == (code, True), words
    done = judgekit("gate", "--base", "HEAD")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "judgekit: nothing to judge: no file selected by gate.paths and gate.authors changed since HEAD\n"
    )

    def too_late(_: Repository, words: tuple[str, ...], *__: object) -> None:
        raise GitError(f"git {words[0]}: no response in 30 s")

    with monkeypatch.context() as patch:
        patch.setattr("judgekit.git.Repository._run", too_late)
        done = judgekit(*GATE, "--block")
    assert (done.code, "UNDETERMINED, not judged: git rev-parse: no response" in done.err) == (
        0,
        True,
    )
    monkeypatch.chdir(isolated)
    done = judgekit("gate", "--base", "HEAD")
    assert (done.code, "no git repository at " in done.err) == (65, True)


def test_a_name_like_an_option_is_offered_by_its_id(
    judgekit: Run, served: Served, work: GitRepo
) -> None:
    work("branch", "--force", "base")
    work.write("-rf.md", BAD)
    work.commit("a name")
    done, _ = served(by_content, *GATE, "--block")
    (told,) = [line for line in done.err.splitlines() if "judgekit override" in line]
    words = shlex.split(told.partition("judgekit override ")[2])
    assert re.fullmatch("[0-9a-f]{32}", words[0])
    assert judgekit("override", *words[:2], "--why", "a test").code == 0


def clone(work: GitRepo, monkeypatch: pytest.MonkeyPatch, *options: str) -> GitRepo:
    """Change to a clone of some kind, with the remote's branches."""
    work("config", "uploadpack.allowFilter", "true")
    folder = work.folder.with_name("clone")
    work("clone", "--quiet", "--no-single-branch", *options, work.folder.as_uri(), str(folder))
    monkeypatch.chdir(folder)
    return GitRepo(folder)


def test_a_shallow_clone_judges_what_differs_and_says_why(
    served: Served, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow = clone(work, monkeypatch, "--depth=1")
    words = ("gate", "--base", "origin/base", "--block", "--no-engine")
    done, _ = served(by_content, *words)
    assert (done.code, "NO-GO         bad.md" in done.out) == (1, True)
    assert (
        "1 commit is at the edge of a shallow clone; fetch with depth 0 (git fetch --unshallow)"
        in done.err
    )
    shallow("fetch", "--quiet", "--unshallow")
    done, _ = served(by_content, *words)
    assert (done.code, "shallow" in done.err) == (1, False)


def test_what_a_partial_clone_lacks_is_not_examined_until_it_is_fetched(
    served: Served, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = clone(work, monkeypatch, "--filter=tree:0", "--no-checkout")
    words = ("gate", "--base", "origin/base", "--block", "--no-engine")
    done, _ = served(by_content, *words)
    assert (done.code, "fetch all (git fetch --refetch --no-filter)" in done.err) == (0, True)
    assert (
        "nothing was judged: 0 judged; 0 skipped; 1 not examined (the reason is above)" in done.err
    )
    partial("fetch", "--quiet", "--refetch", "--no-filter")
    done, _ = served(by_content, *words)
    assert (done.code, "NO-GO         bad.md" in done.out) == (1, True)


def test_a_file_that_a_partial_clone_lacks_is_named_with_the_command_that_fetches_it(
    served: Served, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = clone(work, monkeypatch, "--filter=blob:none", "--no-checkout")
    words = ("gate", "--base", "origin/base", "--block", "--no-engine")
    done, _ = served(by_content, *words)
    remedies = re.findall("fetch it with: git (.*)", done.out)
    assert (done.code, len(remedies), done.out.count("UNDETERMINED")) == (0, 3, 3), done.out
    for remedy in remedies:
        partial(*shlex.split(remedy))
    done, _ = served(by_content, *words)
    assert (done.code, "NO-GO         bad.md" in done.out) == (1, True)
