"""`judgekit eval judge` on files that people write, with models that answer in part, and with a page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import imports
import pytest
from loopback import Loopback, fails, says
from scripted import scores

from judgekit.evaluation import runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loopback import Answer, Asked
    from outcome import Outcome


def line(name: str, choice: str = "accept", label: str = "accept", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"id": name, "label": label, "judges": {"q": {"choice": choice}}, **more}


def write(folder: Path, *lines: dict[str, Any]) -> str:
    path = folder / "cases.jsonl"
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"variant": "swapped", "pair": "zz"}, ":2: pair: 'zz' is no case of this file"),
        ({"variant": "rerun"}, ":2: pair: expected the id of the case that this is a variant of"),
        ({"variant": "injected", "pair": "b"}, ":2: pair: 'b' is a variant itself"),
        ({"pair": "a"}, ":2: variant: expected swapped, rerun or injected, together with pair"),
    ],
)
def test_a_variant_names_an_original(
    judgekit: Callable[..., Outcome], tmp_path: Path, more: dict[str, str], told: str
) -> None:
    file = write(tmp_path, line("a"), line("b", **more))
    done = judgekit("eval", "judge", file)
    assert (done.code, done.out) == (65, "")
    assert f"{file}{told}" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_variant_may_stand_before_its_original(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    file = write(tmp_path, line("b", variant="rerun", pair="a"), line("a"))
    assert "flips when asked again" in judgekit("eval", "judge", file).out


def test_a_word_that_no_label_has_is_named(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    file = write(tmp_path, line("a"), line("b"), line("c", "acept"), line("d", "\x1b[31maccept"))
    done = judgekit("eval", "judge", file)
    rows = [row for row in done.out.splitlines() if "precision" in row]
    assert "\x1b" not in done.out
    assert [row.split()[0] for row in rows] == ["\\x1b[31maccept", "accept", "acept"]
    assert [row.split(", ", 2)[2] for row in rows] == [
        "said 1 time, no label says so",
        "4 labelled so",
        "said 1 time, no label says so",
    ]
    assert len({row.index("precision") for row in rows}) == 1


def test_a_long_word_keeps_its_column(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    done = judgekit("eval", "judge", write(tmp_path, line("a"), line("b", "x" * 3_000 + "\ny")))
    rows = [row for row in done.out.splitlines() if "precision" in row]
    assert len({row.index("precision") for row in rows}) == 1
    assert rows[1].split()[0].endswith("x…")


def test_names_of_judges_are_shown_and_not_obeyed(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    said = {"q\n\x1b[2J": {"choice": "accept", "model": "m\x1b[1m"}}
    done = judgekit("eval", "judge", write(tmp_path, {"id": "a", "label": "accept", "judges": said}))
    assert "q\\n\\x1b[2J (m\\x1b[1m): 1 items" in done.out


def test_a_text_may_hold_any_line_separator(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    file = write(tmp_path, line("a", text="one\u2028two\x85three\x0cfour"), line("b"))
    assert "2 labelled items" in judgekit("eval", "judge", file).out


def test_the_json_names_its_schema(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    report = json.loads(judgekit("eval", "judge", write(tmp_path, line("a")), "--json").out)
    assert report["schema"] == "judgekit/eval-judge@1"
    assert "schema_" not in report


LIVE = [{"id": str(number), "text": "# A", "label": "accept"} for number in range(5)]


def test_a_dead_provider_is_no_unreadable_judge(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[str], None]
) -> None:
    use("http://127.0.0.1:9/v1")
    file = write(project, *LIVE)
    outcome = judgekit("eval", "judge", file, "--rubric", "kls")
    assert outcome.code == 2
    assert "1.000" not in outcome.out
    assert re.search(r"not answered +5 connection", outcome.out)
    assert re.search(r"unreadable +-", outcome.out)
    assert "no model answered 5 of 5 cases (connection); there are no figures" in outcome.err
    told = json.loads(judgekit("eval", "judge", file, "--rubric", "kls", "--json").out)
    assert all(
        (each["unanswered"], each["unreadable"]) == ({"connection": 5}, None) for each in told["judges"]
    )


def test_a_provider_that_answers_in_part_leaves_a_part(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    lines = [*LIVE, {"id": "away", "text": "# AWAY", "label": "accept"}]

    def answer(asked: Asked) -> Answer:
        return fails(401, "no such key") if "AWAY" in asked.text else says(scores(5, 5, 5))

    with Loopback(answer) as server:
        use(server)
        outcome = judgekit("eval", "judge", write(project, *lines), "--rubric", "kls")
    assert outcome.code == 2
    assert "not every tier answered 1 of 6 cases (authentication)" in outcome.err
    assert re.search(r"unreadable +0.000", outcome.out)


def test_a_reply_that_cannot_be_read_is_an_answer(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    with Loopback(says("no JSON")) as server:
        use(server)
        outcome = judgekit("eval", "judge", write(project, *LIVE), "--rubric", "kls")
    assert outcome.code == 0
    assert re.search(r"unreadable +1.000", outcome.out)


def test_pairs_that_nobody_answered_are_not_unreadable(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[str], None]
) -> None:
    use("http://127.0.0.1:9/v1")
    lines = [{"id": "p", "prompt": "Why?", "a": "x", "b": "y", "label": "A"}]
    outcome = judgekit("eval", "judge", write(project, *lines), "--rubric", "answer-preference")
    assert outcome.code == 2
    assert "no model answered 1 of 1 cases (connection)" in outcome.err


def test_cases_without_a_source_are_told_so(
    judgekit: Callable[..., Outcome], project: Path, use: Callable[[Loopback], None]
) -> None:
    with Loopback(says(scores(5, 5, 5))) as server:
        use(server)
        outcome = judgekit("eval", "judge", write(project, *LIVE), "--rubric", "groundedness")
    assert outcome.code == 65
    assert "source" in outcome.err
    assert "--rubric" not in outcome.err


def test_calibrating_with_a_dead_provider_is_no_measurement(
    judgekit: Callable[..., Outcome], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_API_BASE", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "small")
    monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "large")
    file = write(project, *LIVE)
    outcome = judgekit("calibrate", file, "--rubric", "kls", "--mode", "strict")
    assert outcome.code == 2
    assert "no model answered 5 of 5 cases (connection)" in outcome.err
    outcome = judgekit("rubric", "check", "kls", "--run", "--mode", "strict")
    assert outcome.code == 2
    assert re.search(r"strict: no case was decided: .+", outcome.err)


# The page

HEAVY = ("matplotlib", "numpy")


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    return write(tmp_path, line("a", text="a", judges={"small": {"reply": scores(5, 5, 5)}}))


@pytest.fixture
def unanswered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file for which models would be asked; a test fails when one is."""

    def ask(*_: object) -> None:
        raise AssertionError("a model was asked")

    monkeypatch.setattr(runner, "ask", ask)
    return write(tmp_path, *LIVE)


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
