"""How much verdicts move when models are asked again: measured, kept by the user, and heeded by the gate."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING, Any

import pytest
from git_repo import GitRepo
from loopback import says
from scripted import scores

from judgekit.judging.fence import replace_nonces
from judgekit.ledger import Ledger, LineFilter, VerdictLine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Run, Served

CHECK = ("rubric", "check", "kls", "--run", "--mode", "lenient")
EVAL = ("eval", "judge", "cases.jsonl", "--rubric", "kls", "--mode", "lenient", "-j", "1")
GATE = ("gate", "--base", "base", "--block")
KLS = "kls@1.0.0"
NEAR, FAR, FINE = (
    "# Near\n\nScores: 2 3 3.\n",
    "# Far\n\nScores: 1 1 2.\n",
    "# Fine\n\nScores: 5 5 5.\n",
)


def wavering() -> Callable[[Asked], Answer]:
    """Give the scores that a text names; accept and reject other texts in turns."""
    turns = Counter[str]()

    def answer(asked: Asked) -> Answer:
        if found := re.search(r"Scores: (\d) (\d) (\d)", asked.text):
            return says(scores(*map(int, found.groups())))
        key = replace_nonces(asked.text)
        turns[key] += 1
        return says(scores(2 + turns[key] % 2, 3, 4))

    return answer


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", near_md=NEAR, fine_md=FINE)
    monkeypatch.chdir(work.folder)
    lines = [{"id": str(n), "text": f"Case {n}.", "label": "accept"} for n in range(6)]
    work.write("cases.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return work


@pytest.fixture
def kept(served: Served, work: GitRepo, isolated: Path) -> Path:
    done, _ = served(wavering(), *EVAL, "--repeat", "3", "--keep")
    (path,) = (isolated / "judgekit" / "noise").iterdir()
    assert (done.code, f"Wrote {path}" in done.err) == (0, True), done.err
    return path


def test_repeats_are_asked_and_counted(served: Served, work: GitRepo) -> None:
    done, asked = served(wavering(), *EVAL, "--repeat", "3", "--json")
    assert done.code == 0, done.err
    judges = {each["judge"]: each for each in done.json["judges"]}
    assert list(judges) == ["quick", "deep", "course"]
    assert len(asked) == 36  # nothing that was kept answers a repeat
    # 3 3 4, 2 3 4, 3 3 4: of three pairs two differ; from acceptance they are 0, -1 and 0 away.
    for flips, spread in ((each["rerun_flips"], each["spread"]) for each in judges.values()):
        assert (flips["pairs"], flips["rate"]["value"]) == (18, pytest.approx(2 / 3))
        assert (spread["cases"], spread["answers"]) == (6, 18)
        assert spread["distance"]["value"] == pytest.approx(1 / sqrt(3))
        assert spread["noise"] == pytest.approx(1.96 / sqrt(3), abs=1e-4)
        moved = [score["value"] for score in spread["scores"].values()]
        assert moved == [pytest.approx(1 / sqrt(3)), 0, 0]
    again, _ = served(wavering(), *EVAL, "--repeat", "3")
    assert "\nafter all tiers: 6 items" in again.out
    assert re.search(r"noise: 1\.96 times .* 1\.132 points", again.out)
    once, _ = served(wavering(), *EVAL, "--json")
    assert [(each["judge"], each["spread"]) for each in once.json["judges"]] == [
        ("quick", None),
        ("deep", None),
    ]


def test_cases_of_a_rubric_are_repeated_in_each_mode(
    served: Served, work: GitRepo, isolated: Path
) -> None:
    done, _ = served(wavering(), "rubric", "check", "kls", "--run", "--repeat", "2", "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    found = [line for line in lines if line.get("schema") == "judgekit/eval-judge@1"]
    assert [(line["rubric"], line["mode"]) for line in found] == [(KLS, "strict"), (KLS, "lenient")]
    for line in found:
        assert [each["judge"] for each in line["judges"]] == ["quick", "deep", "course"]
        assert {each["rerun_flips"]["pairs"] for each in line["judges"]} == {6}
    assert found[0]["judges"][-1]["spread"]["noise"] > 0
    assert not (isolated / "judgekit" / "noise").exists()  # which nobody asked for


def test_candidates_have_a_course_and_pairs_have_none(served: Served, work: GitRepo) -> None:
    turns = iter(range(100))

    def keeps(asked: Asked) -> Answer:
        labels = re.findall(r"^\[(\w+)\] ", asked.text, re.MULTILINE)
        return says(json.dumps({"reasoning": "x", "keep": labels if next(turns) % 2 else []}))

    both = [{"id": "c", "title": "T", "text": "t"}, {"id": "d", "title": "U", "text": "u"}]
    work.write(
        "cases.jsonl",
        json.dumps({"id": "a", "query": "q", "candidates": both, "label": ["c"]}) + "\n",
    )
    command = ("eval", "judge", "cases.jsonl", "--repeat", "2", "-j", "1", "--json", "--rubric")
    done, _ = served(keeps, *command, "memory-relevance")
    course = done.json["judges"][-1]
    assert (done.code, course["judge"], course["rerun_flips"]["pairs"]) == (0, "course", 2)
    assert course["spread"] is None
    work.write(
        "cases.jsonl",
        json.dumps({"id": "a", "prompt": "q", "a": "x", "b": "y", "label": "A"}) + "\n",
    )
    done, _ = served(says("?"), *command, "answer-preference")
    assert "course" not in [each["judge"] for each in done.json["judges"]]


def test_a_no_go_within_the_noise_does_not_block(served: Served, kept: Path, work: GitRepo) -> None:
    noise = json.loads(kept.read_text())
    assert (noise["schema"], noise["mode"], noise["cases"]) == ("judgekit/noise@1", "lenient", 6)
    done, _ = served(wavering(), *GATE)
    near = f"within the noise ({noise['points']:g} points)"
    assert (done.code, done.out.count(near)) == (0, 1), done.err
    assert re.search(r"^NO-GO +near\.md", done.out, re.MULTILINE)
    assert "1 NO-GO within the noise; the push continues" in done.err
    found = Ledger.of(work.folder).read_records(LineFilter(kinds=[VerdictLine]))
    lines = {line.subjects[0].path: line for line in found if isinstance(line, VerdictLine)}
    assert (lines["near.md"].noise, lines["near.md"].word) == (noise["points"], "NO-GO")
    assert lines["fine.md"].noise is None
    work.commit("worse", far_md=FAR)
    done, _ = served(wavering(), *GATE)
    assert (done.code, done.out.count(near)) == (1, 1)
    assert "blocked: 1 NO-GO" in done.err
    done, _ = served(wavering(), "gate", "--base", "base")
    assert (done.code, "advisory: 2 NO-GO" in done.err, done.out.count(near)) == (0, True, 1)


def test_noise_holds_for_what_it_was_measured_with(
    served: Served, kept: Path, work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for change in (
        {"model": "another"},
        {"JUDGEKIT_GATE_JUDGE_MODE": "strict"},
        {"JUDGEKIT_JUDGE_SAMPLES": "2"},
        {"JUDGEKIT_JUDGE_MARGIN": "1"},
    ):
        with monkeypatch.context() as patch:
            models = {name: value for name, value in change.items() if name == "model"}
            for name, value in change.items() - models.items():
                patch.setenv(name, value)
            done, _ = served(wavering(), *GATE, **models)
        assert (done.code, "within the noise" in done.out) == (1, False), change
    rubric = work.folder / ".judgekit" / "rubrics" / "kls@1.0.1.yaml"
    rubric.parent.mkdir(parents=True)
    text = served(wavering(), "rubric", "show", "kls")[0].out.replace(
        "version: 1.0.0", "version: 1.0.1"
    )
    rubric.write_text(text)
    work("add", "-A")
    work("commit", "-qm", "rules")
    work("branch", "--force", "base")
    work.commit("another", near_md=NEAR + "x\n")
    done, _ = served(wavering(), *GATE)
    assert (done.code, "within the noise" in done.out) == (1, False), done.err


def test_a_clone_brings_no_noise(served: Served, kept: Path, work: GitRepo) -> None:
    for folder in ("noise", "calibrations", "state/noise"):
        path = work.folder / ".judgekit" / folder / kept.name
        path.parent.mkdir(parents=True)
        shutil.copy(kept, path)
    kept.unlink()
    work("add", "-A")
    work("commit", "-qm", "noise")
    work("branch", "--force", "base")
    work.commit("change", near_md=NEAR + "x\n")
    done, _ = served(wavering(), *GATE)
    assert (done.code, "within the noise" in done.out) == (1, False)


def test_a_file_that_cannot_be_read_loosens_nothing(served: Served, kept: Path) -> None:
    known: dict[str, Any] = json.loads(kept.read_text())
    for text in ("{", json.dumps(known | {"points": -1}), json.dumps(known | {"points": "much"})):
        kept.write_text(text)
        done, _ = served(wavering(), *GATE)
        assert (done.code, done.err.count("noise not known: ")) == (1, 1), done.err
        assert str(kept) in done.err


def test_both_commands_keep_the_same(served: Served, kept: Path) -> None:
    before = json.loads(kept.read_text())
    kept.unlink()
    done, _ = served(wavering(), *CHECK, "--repeat", "3", "--keep")
    assert f"Wrote {kept}" in done.err
    after = json.loads(kept.read_text())
    assert {key for key in before if before[key] != after[key]} <= {"made", "points"}


def test_too_little_and_wrong_use(
    judgekit: Run, served: Served, work: GitRepo, isolated: Path
) -> None:
    work.write("cases.jsonl", json.dumps({"id": "a", "text": "A.", "label": "accept"}) + "\n")
    done, _ = served(wavering(), *EVAL, "--repeat", "3", "--keep")
    assert (done.code, "noise not kept" in done.err) == (2, True)
    assert not (isolated / "judgekit" / "noise").exists()
    alone = work.folder / "alone.yaml"
    alone.write_text("rubric: alone\ntitle: Is it so?\ndimensions: {so: Is it?}\n")
    done, _ = served(wavering(), "rubric", "check", str(alone), "--run", "--repeat", "2")
    assert (done.code, "it has no cases" in done.err) == (2, True)
    for words, told in (
        ((*EVAL, "--keep"), "add --repeat"),
        ((*EVAL, "--repeat", "2", "--models", "a,b", "--keep"), "no --models"),
        ((*CHECK, "--keep"), "add --repeat 3"),
        (("rubric", "check", "kls", "--repeat", "2"), "--repeat is for the cases of --run"),
    ):
        done = judgekit(*words)
        assert (done.code, told in done.err) == (64, True), words
