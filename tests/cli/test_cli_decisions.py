"""Decision models that are believed as far as labels allow: learned by `calibrate`, followed by `judge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deciding import DecisionServer

from judgekit import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcome import Run

KLS = ("--rubric", "kls", "--mode", "strict")
QUICK = "vllm-decisions/small"
DEEP = "vllm-decisions/large"
DIMENSIONS = ("semantic", "pragmatic", "syntactic")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DecisionServer]:
    """Serve two decision models, which the user's configuration names."""
    with DecisionServer() as running:
        monkeypatch.setenv("JUDGEKIT_DECISIONS_BASE", running.base)
        config = Path(environment.config_home()) / "config.yaml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"judge: {{tiers: {{quick: {QUICK}, deep: {DEEP}}}}}\n", encoding="utf-8")
        yield running


def case(number: int, score: float, label: str) -> dict[str, Any]:
    """Return a labelled document to which the quick model gave a score, and the deep one the right one."""
    quick = {"model": QUICK, "scores": dict.fromkeys(DIMENSIONS, score), "read": "decided"}
    right = 5 if label == "accept" else 1
    deep = {
        "model": DEEP,
        "scores": dict.fromkeys(DIMENSIONS, right),
        "read": "decided",
        "cost_usd": 0.01,
        "latency_ms": 2000,
    }
    judges = {"quick": quick, "deep": deep, "tiebreaker": deep}
    return {"id": str(number), "label": label, "judges": judges}


@pytest.fixture
def labels(tmp_path: Path) -> str:
    """Write labels of a model that leans to accepting: its 3.55 is mostly bad, from 3.6 on it's good."""
    cases = [case(number, 3.55, "reject") for number in range(150)]
    cases += [case(number, 3.69, "accept") for number in range(150, 300)]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in cases), encoding="utf-8")
    return str(path)


def rated(server: DecisionServer, share_of_four: float) -> None:
    """Have the server spread its probability over the points 3 and 4."""

    def spread(body: dict[str, Any]) -> None:
        for answer in body["answers"].values():
            shares = {str(place): 0.0 for place in range(5)}
            answer["probabilities"] = shares | {"2": 1 - share_of_four, "3": share_of_four}

    server.change = spread


@pytest.fixture
def document(project: Path) -> str:
    path = project / "text.md"
    path.write_text("# Retry\n\nRetry five times, then give up.\n", encoding="utf-8")
    return str(path)


def test_both_sides_of_a_leaning_model_are_learned_and_followed(
    judgekit: Run, labels: str, server: DecisionServer, document: str
) -> None:
    learned = judgekit("calibrate", labels, *KLS)
    assert learned.code == 0
    assert "quick accept, leaning 0.19 or more" in learned.out
    assert "quick reject, leaning -0.05 or more" in learned.out
    assert "Of a hundred, the calibration saves 1.0000 USD and 200 s of waiting" in learned.out
    assert "by how far quick leans to it" in learned.out

    rated(server, 0.69)
    accepted = judgekit("judge", document, "--no-engine", "--no-cache", "--format", "json")
    (verdict,) = accepted.json
    assert (accepted.code, verdict["verdict"], verdict["judge_tier"]) == (0, "accept", "quick")
    assert len(server.requests) == 1

    rated(server, 0.55)
    rejected = judgekit("judge", document, "--no-engine", "--no-cache", "--format", "json")
    (verdict,) = rejected.json
    assert (rejected.code, verdict["verdict"], verdict["judge_tier"]) == (1, "reject", "quick")
    assert len(server.requests) == 2  # one more


def test_a_name_that_moves_to_another_version_accepts_nothing_by_the_old_calibration(
    judgekit: Run, labels: str, server: DecisionServer, document: str
) -> None:
    judgekit("calibrate", labels, *KLS)
    rated(server, 0.69)
    spread = server.change

    def moved(body: dict[str, Any]) -> None:
        spread(body)
        body["model"] = "small-2"

    server.change = moved
    done = judgekit("judge", document, "--no-engine", "--no-cache", "--format", "json")
    (verdict,) = done.json
    assert verdict["verdict"] == "undetermined"
    assert f"it was made for {QUICK} as quick, and small-2 answers as {QUICK}" in done.err


def test_a_calibration_of_an_earlier_format_is_not_used_and_that_is_said(
    judgekit: Run, labels: str, server: DecisionServer, document: str
) -> None:
    judgekit("calibrate", labels, *KLS)
    [path] = Path(environment.CALIBRATIONS.path()).glob("*.json")
    path.write_text(path.read_text().replace("judgekit/calibration@2", "judgekit/calibration@1"))
    rated(server, 0.69)
    done = judgekit("judge", document, "--no-engine", "--no-cache", "--format", "json")
    assert done.json[0]["verdict"] == "undetermined"
    assert "calibration not used" in done.err
    assert "judgekit calibrate" in done.err


def write_sides(path: Path, count: int, wrong: int = 0) -> str:
    """Write labels of a model that is sure: this many on each side, some of them wrong."""
    cases = []
    for number in range(count):
        label = "reject" if number < wrong else "accept"
        cases.append(case(2 * number, 4.8, label))
        cases.append(case(2 * number + 1, 1.2, "accept" if number < wrong else "reject"))
    path.write_text("".join(json.dumps(each) + "\n" for each in cases), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("count", "more"), [(10, 49), (40, 32), (60, 12), (70, 2), (71, 1)])
def test_labels_without_an_error_are_told_how_many_more_would_do(
    judgekit: Run, tmp_path: Path, count: int, more: int
) -> None:
    done = judgekit("calibrate", write_sides(tmp_path / "labels.jsonl", count), *KLS)
    assert f"0 wrong of {count}," in done.out
    assert f"too few labels; about {more} more are needed" in done.out
    assert "would not help" not in done.out


def test_with_that_many_both_sides_are_promised_and_no_other_class_is_named(
    judgekit: Run, tmp_path: Path
) -> None:
    done = judgekit("calibrate", write_sides(tmp_path / "labels.jsonl", 72), *KLS)
    assert "quick accept, leaning" in done.out
    assert "quick reject, leaning" in done.out
    assert "Cannot be promised" not in done.out


def test_a_side_that_is_often_wrong_is_told_that_more_labels_would_not_help(
    judgekit: Run, tmp_path: Path
) -> None:
    done = judgekit("calibrate", write_sides(tmp_path / "labels.jsonl", 100, wrong=30), *KLS)
    assert "30 wrong of 100" in done.out
    assert "too many errors; more labels would not help" in done.out
    assert "leaning -" not in done.out


def test_what_is_between_is_asked_of_the_next_tier(
    judgekit: Run, labels: str, server: DecisionServer, document: str
) -> None:
    judgekit("calibrate", labels, *KLS)
    rated(server, 0.62)
    done = judgekit("judge", document, "--no-engine", "--no-cache", "--format", "json")
    (verdict,) = done.json
    assert verdict["verdict"] == "undetermined"
    assert "judgekit calibrate" in done.err
    assert {request.body["model"] for request in server.requests} == {"small", "large"}


def test_where_nothing_can_be_promised_the_number_of_labels_is_said(
    judgekit: Run, tmp_path: Path
) -> None:
    cases = [case(number, 3.69, "accept") for number in range(30)]
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in cases), encoding="utf-8")
    done = judgekit("calibrate", str(path), *KLS)
    assert "May be final: nothing" in done.out
    assert "too few labels; about" in done.out
    assert "no file was written" in done.err
