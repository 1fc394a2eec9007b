"""A finding that a person dismissed stays so for the same quote, in other files too, and scores stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from git_repo import GitRepo
from loopback import Asked, says
from scripted import finding, scores

from judgekit.cli.schema import build_json_schema
from judgekit.ledger import DismissalLine, Ledger, VerdictLine
from judgekit.ledger.store import KEY_FILE

if TYPE_CHECKING:
    from loopback import Answer
    from outcome import Outcome, Run, Served

QUOTE = "Keep  the Café\nold server."


def answer(asked: Asked) -> Answer:
    quote = "keep THE cafe old server." if "other" in asked.text else QUOTE
    return says(scores(1, 1, 1, findings=[finding(), finding(quote), finding("No one knows.")]))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work("config", "user.email", "ann@example.com")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", a_md=f"# A\n\n{QUOTE}\n")
    monkeypatch.chdir(work.folder)
    return work


def gate(served: Served, form: str = "json") -> Outcome:
    return served(answer, "gate", "--base", "base", "--format", form)[0]


def marks(done: Outcome) -> list[list[bool]]:
    jsonschema.Draft202012Validator(build_json_schema("verdict")).validate(done.json[0])
    return [["dismissed" in each for each in verdict["findings"]] for verdict in records(done)]


def records(done: Outcome) -> list[dict[str, Any]]:
    """Return the records of verdicts; the gate's last one is about the run."""
    return [record for record in done.json if record["schema"] == "judgekit/verdict@1"]


def verdicts(work: GitRepo) -> list[VerdictLine]:
    return [line for line in Ledger.of(work.folder).read_records() if isinstance(line, VerdictLine)]


def test_a_dismissal_holds_for_its_quote_in_other_files_until_it_is_withdrawn(
    judgekit: Run, served: Served, work: GitRepo
) -> None:
    before = gate(served)
    assert marks(before) == [[False] * 3]
    done = judgekit("label", "a.md", "--dismiss", "2")
    assert (done.code, "finding 2 dismissed by" in done.out, done.err) == (0, True, "")
    work.commit("other", other_md="# Other\n\nKeep the café old server. other\n")
    after = gate(served)
    assert marks(after) == [[False, True, False]] * 2
    plain = [
        {key: each[key] for key in ("verdict", "scores", "average")}
        for each in (*records(before), *records(after))
    ]
    assert plain[0] == plain[1] == plain[2]  # a person's word on a finding is none on the scores
    said = records(after)[0]["findings"][1]["dismissed"]
    (line,) = [
        each for each in Ledger.of(work.folder).read_records() if isinstance(each, DismissalLine)
    ]
    assert (said["who"], line.who, line.rubric) == (line.who, "ann@example.com", "kls")
    assert (
        f"dismissed by ann@example.com on {said['at'][:10]}: no problem"
        in gate(served, "table").out
    )
    task, _ = served(answer, "judge", "--task-id", "T-1", "--format", "json", "a.md", "other.md")
    assert marks(task) == [[False, True, False]]
    last = verdicts(work)[-1]
    assert last.findings[1].dismissed is not None
    assert judgekit("label", last.id[:8], "--dismiss", "2", "--undo").code == 0
    assert marks(gate(served)) == [[False] * 3] * 2
    assert judgekit("label", last.id, "--dismiss", "3").code == 0
    assert marks(gate(served)) == [[False, False, True]] * 2


def test_reports_for_programs_stay_sound(judgekit: Run, served: Served, work: GitRepo) -> None:
    plain = gate(served, "sarif").out, gate(served, "junit").out
    assert "suppressions" not in plain[0]
    judgekit("label", "a.md", "--dismiss", "2")
    (run,) = json.loads(gate(served, "sarif").out)["runs"]
    shown = [result["suppressions"] for result in run["results"]]
    assert shown == [
        [],
        [],
        [{"kind": "external", "justification": "dismissed by ann@example.com"}],
        [],
    ]
    assert gate(served, "junit").out.count("<failure") == plain[1].count("<failure") == 1


def test_the_ledger_keeps_no_quote_and_a_hash_that_no_one_else_can_make(
    served: Served, work: GitRepo
) -> None:
    gate(served)
    ledger = Ledger.of(work.folder)
    (path,) = ledger.folder.glob("*.jsonl")
    assert "old server" not in path.read_text()
    none, first, second = (each.quote_hash for each in verdicts(work)[0].findings)
    assert (none, len(first), first != second) == ("", 64, True)
    assert (ledger.folder / KEY_FILE).stat().st_mode & 0o777 == 0o600
    (ledger.folder / KEY_FILE).unlink()  # as in another ledger
    gate(served)
    assert verdicts(work)[1].findings[1].quote_hash not in (first, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("a.md", "--dismiss", "1"),
            "it quotes nothing, so it cannot be recognised in other files",
        ),
        (("a.md", "--dismiss", "4"), "has 3 findings"),
        (("a.md", "--dismiss", "0"), "range"),
        (("b.md", "--dismiss", "1"), "b.md: no verdict on it"),
        (("a.md",), "label ID --dismiss N"),
        (("--dismiss", "1"), "label ID --dismiss N"),
        (("--undo",), "label ID --dismiss N"),
    ],
)
def test_wrong_use(
    judgekit: Run, served: Served, work: GitRepo, words: tuple[str, ...], said: str
) -> None:
    gate(served)
    done = judgekit("label", *words)
    assert (done.code, said in done.err) == (64, True), done.err
    assert len(verdicts(work)) == len(list(Ledger.of(work.folder).read_records()))


def test_a_dismissal_under_one_rubric_says_nothing_of_another(
    judgekit: Run, served: Served, work: GitRepo
) -> None:
    gate(served)
    judgekit("label", "a.md", "--dismiss", "2")
    kls = Path(judgekit("rubric", "path", "kls").out.strip()).read_text()
    (work.folder / "ours.yaml").write_text(kls.replace("rubric: kls", "rubric: ours"))
    words = ("judge", "--task-id", "T", "--format", "json", "a.md", "--rubric")
    assert marks(served(answer, *words, "ours.yaml")[0]) == [[False] * 3]
    assert marks(served(answer, *words, "kls")[0]) == [[False, True, False]]
