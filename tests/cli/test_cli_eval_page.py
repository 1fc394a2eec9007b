"""The page of `judgekit eval judge`: what it needs is known before any model is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import imports
import pytest
from scripted import scores

from judgekit.evaluation import runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome

HEAVY = ("matplotlib", "numpy")


def write(path: Path, **more: Any) -> str:  # noqa: ANN401 - any JSON
    lines = [{"id": word, "text": word, "label": word, **more} for word in ("accept", "reject")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    return write(tmp_path / "recorded.jsonl", judges={"small": {"reply": scores(5, 5, 5)}})


@pytest.fixture
def unanswered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file for which models would be asked; a test fails when one is."""

    def ask(*_: object) -> None:
        raise AssertionError("a model was asked")

    monkeypatch.setattr(runner, "ask", ask)
    return write(tmp_path / "unanswered.jsonl")


def test_probabilities_are_measured_too(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    candidates = [{"id": each, "title": each} for each in ("m1", "m2")]
    said = {"x": {"probabilities": {"m1": 0.9, "m2": 0.1}}}
    case = {"id": "a", "query": "q", "candidates": candidates, "label": ["m1"], "judges": said}
    file, page = tmp_path / "cases.jsonl", tmp_path / "page.html"
    file.write_text(json.dumps(case) + "\n")
    command = ("eval", "judge", str(file), "--rubric", "memory-relevance")
    done = judgekit(*command, "--html", str(page))
    assert done.code == 0
    assert "Brier and ECE of its probabilities          0.010, 0.100 of 2\n" in done.out
    assert "best on the dashed line" in page.read_text()
    assert judgekit(*command, "--json").json["judges"][0]["probabilities"]["answers"] == 2


@pytest.mark.usefixtures("no_matplotlib")
def test_without_the_extra_no_model_is_asked(
    judgekit: Callable[..., Outcome], unanswered: str, tmp_path: Path
) -> None:
    done = judgekit("eval", "judge", unanswered, "--rubric", "kls", "--html", str(tmp_path / "page.html"))
    assert (done.code, done.out, done.err.count("\n")) == (64, "", 1)
    assert "pip install" in done.err
    assert "[report]" in done.err
    assert "judgekit[report]" not in done.err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.usefixtures("no_matplotlib")
def test_without_the_extra_all_but_the_page_is_there(judgekit: Callable[..., Outcome], recorded: str) -> None:
    done = judgekit("eval", "judge", recorded, "--rubric", "kls")
    assert (done.code, done.err) == (0, "")
    assert "accuracy" in done.out


def test_without_its_folder_no_model_is_asked(
    judgekit: Callable[..., Outcome], unanswered: str, tmp_path: Path
) -> None:
    done = judgekit(
        "eval", "judge", unanswered, "--rubric", "kls", "--html", str(tmp_path / "gone" / "p.html")
    )
    assert (done.code, done.out, done.err.count("\n")) == (65, "", 1)
    assert "there is no folder" in done.err


def test_a_page_that_cannot_be_written_is_named(
    judgekit: Callable[..., Outcome], recorded: str, tmp_path: Path
) -> None:
    done = judgekit("eval", "judge", recorded, "--rubric", "kls", "--html", str(tmp_path))
    assert done.code == 65
    assert f"{tmp_path}: cannot be written" in done.err


def test_only_the_page_imports_what_draws_it(recorded: str, tmp_path: Path) -> None:
    command = ["eval", "judge", recorded, "--rubric", "kls"]
    assert imports.of(command, [*command, "--json"], heavy=HEAVY).imported == {}
    done = imports.of([*command, "--html", str(tmp_path / "page.html")], heavy=HEAVY)
    assert done.codes == [0]
    assert done.imported["matplotlib"] == "judgekit.evaluation.charts"
