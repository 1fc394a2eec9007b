"""`judgekit calibrate` and `judgekit eval judge` at the command line."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, says
from scripted import by_content, scores

from judgekit.evaluation import cases as labelled
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loopback import Answer, Asked
    from outcome import Outcome

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "judging"
GOOD = {"semantic": 5, "pragmatic": 5, "syntactic": 5}
KLS = ("--rubric", "kls", "--mode", "strict")


def recorded(number: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    judges = {
        "quick": {"model": "small", "scores": GOOD, "cost_usd": 0.001},
        "deep": {"model": "large", "reply": scores(5, 5, 5)},
    }
    return {"id": str(number), "label": "accept", "judges": judges, **more}


def write(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def labels(tmp_path: Path) -> str:
    return write(tmp_path / "labels.jsonl", [recorded(number) for number in range(100)])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Serve a quick and a deep model that judge by what a text says."""
    with Loopback(by_content) as running:
        monkeypatch.setenv("JUDGEKIT_API_BASE", running.base)
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "small")
        monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "large")
        yield running


def test_what_labels_allow_is_said_and_kept(
    judgekit: Callable[..., Outcome], labels: str, isolated: Path
) -> None:
    outcome = judgekit("calibrate", labels, *KLS)
    assert outcome.code == 0
    assert "quick accept" in outcome.out
    assert "0 wrong of 100, at most 3.0%" in outcome.out
    assert "calls of deep" in outcome.out
    (kept,) = (isolated / "judgekit" / "calibrations").iterdir()
    assert kept.name in outcome.err
    assert json.loads(kept.read_text())["schema"] == "judgekit/calibration@1"


def test_with_too_few_labels_nothing_is_written(
    judgekit: Callable[..., Outcome], tmp_path: Path, isolated: Path
) -> None:
    few = write(tmp_path / "few.jsonl", [recorded(number) for number in range(20)])
    outcome = judgekit("calibrate", few, *KLS)
    assert outcome.code == 0
    assert "too few labels; about 39 more" in outcome.out
    assert (
        "these labels support no promise, so no file was written; the rubric's own rules apply" in outcome.err
    )
    assert not (isolated / "judgekit" / "calibrations").exists()


def test_json_is_the_file(judgekit: Callable[..., Outcome], labels: str, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    outcome = judgekit("calibrate", labels, *KLS, "--error", "0.1", "--out", str(out), "--json")
    assert json.loads(outcome.out) == json.loads(out.read_text())
    assert json.loads(outcome.out)["promise"] == {"rate": 0.1, "confidence": 0.95, "reference": None}


def test_an_excess_makes_the_deep_tier_the_last_word(
    judgekit: Callable[..., Outcome], labels: str, tmp_path: Path
) -> None:
    outcome = judgekit(
        "calibrate", labels, *KLS, "--excess", "0.05", "--out", str(tmp_path / "c.json"), "--json"
    )
    assert json.loads(outcome.out)["promise"]["reference"] == "deep"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((*KLS, "--error", "0.05", "--excess", "0.05"), "two different promises"),
        ((*KLS, "--error", "0"), "between 0 and 1"),
        ((*KLS, "--confidence", "1"), "between 0 and 1"),
        (("--mode", "strict"), "--rubric is missing"),
        (("--rubric", "kls"), "--mode is missing"),
        ((*KLS, "another.jsonl"), "expected one file of labels, got 2"),
    ],
)
def test_what_cannot_be_promised(
    judgekit: Callable[..., Outcome], labels: str, options: tuple[str, ...], problem: str
) -> None:
    outcome = judgekit("calibrate", labels, *options)
    assert outcome.code == 64
    assert problem in outcome.err


def test_without_recorded_opinions_the_models_are_asked(
    judgekit: Callable[..., Outcome], project: Path, server: Loopback
) -> None:
    cases: list[dict[str, Any]] = [
        {"id": "good", "path": "good.md", "label": {"strict": "accept", "lenient": "accept"}},
        {"id": "bad", "text": "# Bad\n\nTODO\n", "label": "reject"},
    ]
    path = write(project / "cases.jsonl", cases)
    outcome = judgekit("calibrate", path, *KLS, "--out", str(project / "c.json"), "--json")
    assert outcome.code == 0, outcome.err
    known = json.loads(outcome.out)
    assert [each["labels"] for each in known["not_promised"] if each["tier"] == "quick"] == [1, 1]
    assert known["without"]["errors"] == 0
    outcome = judgekit("eval", "judge", path, "--rubric", "kls", "--json")
    report = json.loads(outcome.out)
    assert {each["judge"]: each["accuracy"]["value"] for each in report["judges"]}.items() >= {
        ("quick", 1.0),
        ("deep", 1.0),
    }


def test_a_judge_uses_what_was_learned(
    judgekit: Callable[..., Outcome], project: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"quick": "custom/small", "deep": "custom/large", "tiebreaker": "custom/large"}
    scored = {"semantic": 4, "pragmatic": 4, "syntactic": 5}
    lines = [
        {
            "id": str(number),
            "label": "accept",
            "judges": {tier: {"model": model, "scores": scored} for tier, model in name.items()},
        }
        for number in range(100)
    ]
    assert judgekit("calibrate", write(project / "l.jsonl", lines), *KLS).code == 0
    verdict = _first(
        json.loads(judgekit("judge", "good.md", "--mode", "strict", "--format", "json", "--no-cache").out)
    )
    assert [each["tier"] for each in verdict["rounds"]] == ["quick"], verdict["degraded"]
    assert verdict["calibration"].startswith("kls-strict-")
    monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "another")
    stale = _first(
        json.loads(judgekit("judge", "good.md", "--mode", "strict", "--format", "json", "--no-cache").out)
    )
    assert len(stale["rounds"]) == 2
    assert stale["calibration"] is None
    assert "not used" in stale["degraded"]


def _first(found: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return dict(found[0] if isinstance(found, list) else found)


def test_judges_are_measured_and_drawn(judgekit: Callable[..., Outcome], labels: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    outcome = judgekit("eval", "judge", labels, "--rubric", "kls", "--html", str(page))
    assert outcome.code == 0
    assert "quick (small): 100 items" in outcome.out
    assert "accuracy" in outcome.out
    assert "$0.001000" in outcome.out
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("page", "first", "command"),
    [
        (
            "calibrate.md",
            "kls-lenient",
            ("calibrate", "--rubric", "kls", "--mode", "lenient", "labels.jsonl", "--out", "OUT"),
        ),
        ("eval.md", "variants.jsonl: ", ("eval", "judge", "variants.jsonl")),
    ],
)
def test_pages_show_what_is_printed(
    judgekit: Callable[..., Outcome], tmp_path: Path, page: str, first: str, command: tuple[str, ...]
) -> None:
    (shown,) = re.findall(rf"```text\n({first}.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    words = [str(EXAMPLES / each) if each.endswith(".jsonl") else each for each in command]
    printed = judgekit(*(str(tmp_path / "c.json") if word == "OUT" else word for word in words)).out
    assert printed.splitlines() == shown.splitlines()


def test_every_example_is_a_file_of_labels() -> None:
    for name in ("labels.jsonl", "variants.jsonl", "memories.jsonl"):
        assert labelled.read(EXAMPLES / name)


@pytest.mark.parametrize("rubric", [(), ("--rubric", "kls")])
def test_again_needs_models_to_ask(
    judgekit: Callable[..., Outcome], labels: str, rubric: tuple[str, ...]
) -> None:
    outcome = judgekit("eval", "judge", labels, *rubric, "--again")
    assert (outcome.code, outcome.out) == (64, "")
    assert "--again asks models" in outcome.err


def test_again_asks_a_second_time_and_in_another_order(
    judgekit: Callable[..., Outcome], server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(EXAMPLES / "memories.jsonl")
    outcome = judgekit("eval", "judge", file, "--rubric", "memory-relevance", "--again", "--json")
    assert outcome.code == 0, outcome.err
    (quick, *_) = json.loads(outcome.out)["judges"]
    assert quick["items"] == quick["order_flips"]["pairs"] == quick["rerun_flips"]["pairs"] == 84
    assert quick["order_flips"]["rate"]["value"] == 0


# --- several subjects ------------------------------------------------------------------------------------

RANKS = {"best": 5, "good": 4, "poor": 1}


def by_rank(asked: Asked) -> Answer:
    """Score a text by the word that it holds, over the wire."""
    (rank,) = [each for name, each in RANKS.items() if f"\n{name} answer" in asked.text]
    rubric = loader.score_rubric("answer-quality").rubric
    assert isinstance(rubric, ScoreRubric)
    points = dict.fromkeys(rubric.dimensions, rank)
    return says(json.dumps({"reasoning": "x", "scores": points, "findings": []}))


@pytest.fixture
def ranking(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve models that know which of the texts in a folder is the best."""
    for name in RANKS:
        (project / f"{name}.md").write_text(f"{name} answer\n")
    with Loopback(by_rank) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "small")
        monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "large")
        yield project


def compared(judgekit: Callable[..., Outcome], *names: str, mode: str = "strict") -> dict[str, Any]:
    files = [f"{name}.md" for name in names]
    how = ("--rubric", "answer-quality", "--prompt", "Answer.", "--mode", mode, "--format", "jsonl")
    outcome = judgekit("compare", *files, *how)
    return dict(json.loads(outcome.out))


def test_margins_of_several_subjects_are_learned_and_used(
    judgekit: Callable[..., Outcome], ranking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compared(judgekit, "poor", "best", "good")
    assert (before["verdict"], before["calibration"]) == ("B", None)
    assert {each["tier"] for each in before["rounds"]} == {"quick", "deep"}
    texts = [f"{each} answer\n" for each in ("good", "best", "poor")]
    cases: list[dict[str, Any]] = [
        {"id": str(at), "prompt": "Answer.", "subjects": texts, "label": "B"} for at in range(30)
    ]
    path = write(ranking / "cases.jsonl", cases)
    done = judgekit("calibrate", path, "--rubric", "answer-quality", "--mode", "strict", "--error", "0.1")
    assert done.code == 0, done.err
    assert "best of quick, ahead by 1 or more" in done.out
    assert "0 wrong of 30" in done.out
    assert re.search(r"calls of quick +90 +90\n +calls of deep +0 +60\n", done.out)

    found = compared(judgekit, "poor", "best", "good")
    assert (found["verdict"], found["judge_tier"], len(found["rounds"])) == ("B", "quick", 3)
    assert found["calibration"].startswith("answer-quality-strict-")
    assert found["degraded"] is None
    # Another number of texts, another mode and a document are something else; so are other models.
    two = compared(judgekit, "best", "good")
    assert two["calibration"] is None
    assert "made for 3 texts, not for 2" in two["degraded"]
    assert compared(judgekit, "poor", "best", "good", mode="lenient")["calibration"] is None
    judged = judgekit(
        "judge", "best.md", "--rubric", "answer-quality", "--mode", "strict", "--format", "jsonl"
    )
    assert json.loads(judged.out)["calibration"] is None
    monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "another")
    stale = compared(judgekit, "poor", "best", "good")
    assert stale["calibration"] is None
    assert "deep was custom/large and is custom/another now" in stale["degraded"]


def test_judges_of_several_subjects_are_measured(judgekit: Callable[..., Outcome], ranking: Path) -> None:
    texts = [f"{each} answer\n" for each in ("good", "best", "poor")]
    cases: list[dict[str, Any]] = [
        {"id": "1", "prompt": "Answer.", "subjects": texts, "label": "B"},
        {"id": "2", "prompt": "Answer.", "subjects": texts[:1] * 2, "label": "tie"},
        {"id": "3", "prompt": "Answer.", "subjects": texts, "label": "C"},
    ]
    path = write(ranking / "cases.jsonl", cases)
    report = json.loads(judgekit("eval", "judge", path, "--rubric", "answer-quality", "--json").out)
    assert {each["judge"]: round(each["accuracy"]["value"], 4) for each in report["judges"]} == {
        "quick": 0.6667,
        "deep": 0.6667,
        "tiebreaker": 0.6667,
    }


def test_a_calibration_that_cannot_be_read_is_named(
    judgekit: Callable[..., Outcome], project: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = project / ".judgekit" / "calibrations" / "kls-strict-0123456789ab.json"
    bad.parent.mkdir(parents=True)
    bad.write_text('{"schema": "judgekit/calibration@1"}')
    verdict = _first(json.loads(judgekit("judge", "good.md", "--format", "json").out))
    assert verdict["degraded"].startswith(f"calibration not used: {bad}: id: missing key")
    assert "\n" not in verdict["degraded"]


@pytest.mark.parametrize(
    ("asked", "shown"), [("0.0001", "0.01%"), ("0.00042", "0.042%"), ("0.0555", "5.55%"), ("0.1", "10.0%")]
)
def test_the_promise_is_told_as_it_was_asked(
    judgekit: Callable[..., Outcome], labels: str, asked: str, shown: str
) -> None:
    assert f"in at most {shown}\n" in judgekit("calibrate", labels, *KLS, "--error", asked).out


SAID = {"model": "m", "orders": {"AB": "A", "BA": "A"}}
PAIR = {"prompt": "Which?", "a": "x", "b": "y", "label": "A"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", " empty"),
        ("{", "1: "),
        ("{}", "1: id"),
        ({"text": "x", "label": 4}, "1: label must be accept, improve or reject; got 4"),
        (
            {"text": "x", "label": {"strict": 4, "lenient": "accept"}},
            "1: label.strict must be accept, improve",
        ),
        ({"text": "x", "label": True}, "1: label must be accept, improve or reject; got true"),
        ({**PAIR, "label": 4}, "1: label must be A, B or tie; got 4"),
        ({"text": "x"}, "1: label: missing key; add it"),
        ({**PAIR, "label": "C", "judges": {"quick": SAID, "deep": SAID}}, "1: case 1: label: expected A, B"),
        ({**PAIR, "b": "x"}, "1: a and b are the same text, which is always a tie; change one"),
        ({**PAIR, "b": "x", "label": {"strict": "tie", "lenient": "B"}}, "1: a and b are the same text"),
    ],
)
def test_a_wrong_file_or_case_is_named_by_file_and_line(
    judgekit: Callable[..., Outcome], tmp_path: Path, line: str | dict[str, Any], told: str
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(line if isinstance(line, str) else json.dumps({"id": "1", **line}))
    for command in (("calibrate", "--mode", "strict"), ("eval", "judge")):
        outcome = judgekit(*command, str(path), "--rubric", "answer-preference")
        assert (outcome.code, outcome.out) == (65, "")
        assert outcome.err.startswith(f"judgekit: {path}:{told}")
    outcome = judgekit("calibrate", "nope.jsonl", *KLS)
    assert (outcome.code, outcome.err.count("nope.jsonl")) == (65, 1)


def test_a_pair_of_the_same_text_may_be_a_tie(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.jsonl", [{"id": "1", **PAIR, "b": "x", "label": "tie"}])
    (case,) = labelled.read(Path(path))
    assert (case.label, case.where) == ("tie", f"{path}:1: case {case.id}")


@pytest.mark.parametrize("place", ["a folder for --out", "a file for a folder", "a file for the own folder"])
def test_nobody_is_asked_for_what_cannot_be_written(
    judgekit: Callable[..., Outcome],
    project: Path,
    server: Loopback,
    isolated: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    path = write(project / "cases.jsonl", [{"id": "1", "path": "good.md", "label": "accept"}])
    (isolated / "judgekit").mkdir(parents=True, exist_ok=True)
    (isolated / "judgekit" / "calibrations").write_text("")
    out = {
        "a folder for --out": ("--out", str(project)),
        "a file for a folder": ("--out", str(project / "good.md" / "c.json")),
        "a file for the own folder": (),
    }[place]
    outcome = judgekit("calibrate", path, *KLS, *out)
    assert (outcome.code, outcome.out) == (65, "")
    assert "cannot be written (" in outcome.err
    assert "File exists" not in outcome.err
    assert server.requests == []


def test_a_projects_calibration_is_shown_and_accepted(
    judgekit: Callable[..., Outcome], labels: str, project: Path, isolated: Path
) -> None:
    path = project / ".judgekit" / "calibrations" / "ours.json"
    assert judgekit("calibrate", labels, *KLS, "--out", str(path)).code == 0
    (kept,) = isolated.rglob("accepted.json")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in kept.read_text()  # its own output
    kept.unlink()
    outcome = judgekit("calibrate", "accept", str(path))
    assert outcome.code == 0
    assert "quick accept" in outcome.out
    assert "0 wrong of 100" in outcome.out
    assert f"accepted: {path}" in outcome.err
    assert hashlib.sha256(path.read_bytes()).hexdigest() in kept.read_text()


def test_what_its_counts_do_not_bear_out_cannot_be_accepted(
    judgekit: Callable[..., Outcome], labels: str, tmp_path: Path, isolated: Path
) -> None:
    out = tmp_path / "c.json"
    judgekit("calibrate", labels, *KLS, "--out", str(out))
    (kept,) = isolated.rglob("accepted.json")
    before = kept.read_text()
    out.write_text(out.read_text().replace('"labels": 100', '"labels": 0'))
    outcome = judgekit("calibrate", "accept", str(out))
    assert outcome.code == 78
    assert f"{out}: gates.0.labels: 0 wrong of 0 does not support a rate of at most 0.05" in outcome.err
    assert kept.read_text() == before


def test_labels_may_be_called_accept(
    judgekit: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "accept", [recorded(number) for number in range(100)])
    monkeypatch.chdir(tmp_path)
    assert judgekit("calibrate", *KLS, "accept").code == 0
