"""`judgekit gate --base`: the same for continuous integration."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from git_repo import GitRepo
from loopback import Loopback, fails
from scripted import by_content

from judgekit.cli.schema import json_schema
from judgekit.git import GitError
from judgekit.ledger import Fault, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome

    from judgekit.git import Repository

GOOD, BAD = "# Good\n\nA sound document.\n", "# Bad\n\nTODO\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    for number, name in enumerate(("bad", "good", "picture")):  # each file comes with another commit
        work.commit(f"change {number}", **{f"{name}_md": {"bad": BAD, "good": GOOD}.get(name, b"\0\1")})
    monkeypatch.chdir(work.folder)
    return work


def test_a_report_says_it_of_each_file_and_exits_with_0(
    judgekit: Callable[..., Outcome], work: GitRepo, use: Callable[[Loopback], None]
) -> None:
    with Loopback(by_content) as server:
        use(server)
        done = judgekit("gate", "--base", "base")
    assert done.code == 0
    words = [line.split()[:2] for line in done.out.splitlines() if not line.startswith(" ")]
    assert words == [["NO-GO", "bad.md"], ["GO", "good.md"], ["UNDETERMINED", "picture.md"]]
    assert "a binary file" in done.out
    assert "advisory: 1 NO-GO" in done.err


@pytest.mark.parametrize(("option", "code"), [("--block", 1), ("--advise", 0)])
def test_only_a_no_go_while_blocking_is_1(
    judgekit: Callable[..., Outcome],
    work: GitRepo,
    use: Callable[[Loopback], None],
    option: str,
    code: int,
) -> None:
    with Loopback(by_content) as server:
        use(server)
        assert judgekit("gate", "--base", "base", option).code == code


def test_a_provider_that_fails_blocks_nothing(
    judgekit: Callable[..., Outcome], work: GitRepo, use: Callable[[Loopback], None]
) -> None:
    with Loopback(fails(401)) as server:
        use(server)
        done = judgekit("gate", "--base", "base", "--block")
    assert done.code == 0
    assert done.out.count("UNDETERMINED") >= 3


def test_programs_get_every_file(
    judgekit: Callable[..., Outcome], work: GitRepo, use: Callable[[Loopback], None]
) -> None:
    with Loopback(by_content) as server:
        use(server)
        verdicts = json.loads(judgekit("gate", "--base", "base", "--format", "json").out)
        lines = judgekit("gate", "--base", "base", "--format", "jsonl").out.splitlines()
        sarif = json.loads(judgekit("gate", "--base", "base", "--format", "sarif").out)
        junit = ET.fromstring(judgekit("gate", "--base", "base", "--format", "junit").out)
    for verdict in verdicts:
        jsonschema.Draft202012Validator(json_schema("verdict")).validate(verdict)
    words = ["reject", "accept", "undetermined"]
    assert [verdict["verdict"] for verdict in verdicts] == words
    assert [json.loads(line)["verdict"] for line in lines] == words
    assert [verdict["commit"] for verdict in verdicts] == [
        work("rev-parse", name) for name in ("HEAD~2", "HEAD~1", "HEAD")
    ]
    assert verdicts[0]["author"]["name"] == "Ada <ada@example.org>"
    assert {
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for each in sarif["runs"][0]["results"]
    } == {
        "bad.md",
        "good.md",
        "picture.md",
    }
    assert (junit.get("tests"), junit.get("failures"), junit.get("skipped")) == ("3", "1", "1")


def test_the_rules_are_those_of_the_base(
    judgekit: Callable[..., Outcome], work: GitRepo, use: Callable[[Loopback], None]
) -> None:
    work.write(".judgekit/config.yaml", "gate: {paths: []}\n")
    work.commit("laxer rules")
    with Loopback(by_content) as server:
        use(server)
        assert judgekit("gate", "--base", "base", "--block").code == 1


def test_where_nothing_changed_that_is_judged_it_is_said(
    judgekit: Callable[..., Outcome], work: GitRepo
) -> None:
    done = judgekit("gate", "--base", "HEAD")
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        "judgekit: nothing to judge: no file selected by gate.paths and gate.authors changed since HEAD\n"
    )


def test_wrong_rules_are_undetermined_and_noted(
    judgekit: Callable[..., Outcome], work: GitRepo, use: Callable[[Loopback], None]
) -> None:
    work.write(".judgekit/config.yaml", "gate: {mode: maybe}\n")
    work.commit("wrong rules")
    work.commit("more", more_md=BAD)
    done = judgekit("gate", "--base", "HEAD~1", "--block")
    assert done.code == 0
    assert "UNDETERMINED, not judged: " in done.err
    assert ":.judgekit/config.yaml:1: gate.mode: " in done.err
    assert [type(record) for record in Ledger.of(work.folder).records()] == [Fault]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 64, "give --base REF, or --pre-push REMOTE URL"),
        (("--base", "base", "--block", "--advise"), 64, "--advise and --block cannot be combined"),
        (("--base", "nowhere"), 65, "nowhere: not a commit of this repository"),
        (("--base", ""), 64, "give --base REF"),
    ],
)
def test_wrong_use_is_said(
    judgekit: Callable[..., Outcome], work: GitRepo, words: tuple[str, ...], code: int, told: str
) -> None:
    done = judgekit("gate", *words)
    assert done.code == code
    assert told in done.err


@pytest.mark.parametrize("rubric", ["nosuch", "memory-relevance", "KLS 1"])
def test_a_rubric_that_is_none_holds_up_nothing(
    judgekit: Callable[..., Outcome], work: GitRepo, rubric: str
) -> None:
    work.write(".judgekit/config.yaml", f"gate:\n  rubric: {rubric}\n")
    base = work.commit("wrong rubric")
    work.commit("more", more_md=BAD)
    done = judgekit("gate", "--base", "HEAD~1", "--block")
    assert done.code == 0
    assert f"not judged: {base[:12]}:.judgekit/config.yaml:2: gate.rubric: " in done.err
    assert [type(record) for record in Ledger.of(work.folder).records()] == [Fault]


def test_a_git_that_fails_holds_up_nothing(
    judgekit: Callable[..., Outcome], work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgekit.git.Repository._run", _too_late)
    done = judgekit("gate", "--base", "base", "--block")
    assert (done.code, "UNDETERMINED, not judged: git rev-parse: no response" in done.err) == (0, True)


def _too_late(_: Repository, words: tuple[str, ...], *__: object) -> None:
    raise GitError(f"git {words[0]}: no response in 30 s")


def test_outside_of_a_repository_that_is_said(
    judgekit: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = judgekit("gate", "--base", "HEAD")
    assert (done.code, "no git repository at " in done.err) == (65, True)


def test_a_name_that_looks_like_an_option_is_not_offered_as_a_word(
    judgekit: Callable[..., Outcome], work: GitRepo, use: Callable[[Loopback], None]
) -> None:
    work("branch", "--force", "base")
    work.write("-rf.md", BAD)
    work.commit("a name")
    with Loopback(by_content) as server:
        use(server)
        done = judgekit("gate", "--base", "base", "--block")
    (told,) = [line for line in done.err.splitlines() if "judgekit override" in line]
    words = shlex.split(told.partition("judgekit override ")[2])
    assert re.fullmatch("[0-9a-f]{32}", words[0])
    assert judgekit("override", *words[:2], "--why", "a test").code == 0


def test_nothing_is_printed_twice(
    judgekit: Callable[..., Outcome], work: GitRepo, use: Callable[[Loopback], None]
) -> None:
    """Neither why nothing was judged, with each file and below, nor the head of a verdict."""
    done = judgekit("gate", "--base", "base")
    assert (done.code, (done.out + done.err).count("not judged")) == (0, 1)
    with Loopback(by_content) as server:
        use(server)
        done = judgekit("gate", "--base", "base")
    assert done.out.count("bad.md") == 1
    assert "mean " in done.out
