"""Verdicts and rows as Python shows them: short forms, HTML for notebooks, dicts and data frames."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, says
from scripted import finding, scores

import judgekit
from judgekit.judging.notebook import Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOSTILE = '<img src=x onerror=alert(1)> & "quoted" \x1b[31m\u202e'


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Let a model answer that finds everything wanting, in hostile words; work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    found = [finding(HOSTILE)]
    reply = says(scores(1, 1, 1, reasoning=HOSTILE, findings=found))
    with Loopback(reply) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        yield


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for pandas, which tests don't need: a frame is its rows."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))


def judge() -> Verdicts:
    texts = {f"{HOSTILE} {number}": f"A text, {HOSTILE}" for number in range(2)}
    return judgekit.judge_texts(texts, rubric="kls", mode="lenient")


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(f"{tag} with attributes" if attrs else tag)


def compare() -> judgekit.Comparison:
    return judgekit.compare("a", "b", "c", prompt=HOSTILE, mode="lenient")


def judge_row() -> dict[str, Any]:
    row = {"id": HOSTILE, "answer": HOSTILE, HOSTILE: HOSTILE}
    return next(judgekit.judge_rows([row], rubric="kls", mode="lenient"))


def search() -> judgekit.SearchResult:
    Path(f"{HOSTILE.replace('/', '')}.md").write_text(f"# {HOSTILE}\n\nquoted\n")
    return judgekit.search(f"quoted {HOSTILE}", roots=["."])


SHOWN: dict[str, Callable[[], Any]] = {
    "verdict": lambda: judge()[0],
    "verdicts": judge,
    "comparison": compare,
    "row": judge_row,
    "search": search,
}


@pytest.mark.parametrize("shown", SHOWN)
def test_a_short_form_is_one_visible_line(shown: str) -> None:
    text = repr(SHOWN[shown]())
    assert text.isprintable()
    assert len(text) < 300


@pytest.mark.parametrize("shown", SHOWN)
def test_html_has_no_tag_of_others(shown: str) -> None:
    record: Any = SHOWN[shown]()
    html = record._repr_html_()
    tags = {"div", "b", "br", "ul", "li", "q", "p", "table", "tr", "th", "td"}
    assert Tags(html).found <= tags
    assert "\x1b" not in html


@pytest.mark.parametrize("shown", SHOWN)
def test_a_dict_is_json(shown: str) -> None:
    assert json.dumps(SHOWN[shown]().to_dict())


@pytest.mark.usefixtures("frames")
def test_a_search_becomes_a_frame() -> None:
    frame: Any = search().to_pandas()
    assert frame[0]["path"].endswith(".md")


def test_a_row_is_still_a_dict() -> None:
    row = judge_row()
    assert isinstance(row, dict)
    assert json.loads(json.dumps(row)) == dict(row)


def test_verdicts_are_a_list_and_count_themselves() -> None:
    verdicts = judge()
    assert isinstance(verdicts, list)
    assert repr(verdicts) == "<2 verdicts: 2 reject>"


def test_no_verdict_is_shown_too() -> None:
    assert repr(Verdicts()) == "<0 verdicts>"
    assert Verdicts()._repr_html_()


def test_a_dict_is_the_record() -> None:
    verdicts = judge()
    assert verdicts.to_dict() == [verdict.record() for verdict in verdicts]


@pytest.mark.usefixtures("frames")
def test_verdicts_become_a_frame() -> None:
    first: Any = judge().to_pandas()[0]
    assert first["verdict"] == "reject"
    assert first["score.semantic"] == 1
    assert first["findings"] == 1


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(judgekit.UsageError, match="pip install pandas"):
        Verdicts().to_pandas()


ROWS = [{"id": "r1", "answer": "One."}, {"id": "r2", "answer": "Two."}]


@pytest.mark.usefixtures("frames")
def test_rows_become_a_lean_frame() -> None:
    frame: Any = judgekit.judge_rows(ROWS, rubric="kls", mode="lenient").to_pandas()
    assert [row["id"] for row in frame] == ["r1", "r2"]
    assert frame[0]["score.semantic"] == 1
    assert "judged" not in frame[0]


@pytest.mark.usefixtures("frames")
def test_a_full_frame_has_the_whole_verdict() -> None:
    frame: Any = judgekit.judge_rows(ROWS, rubric="kls", mode="lenient").to_pandas(full=True)
    assert frame[0]["judged"]["schema"] == "judgekit/verdict@1"


def test_rows_without_pandas_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = judgekit.judge_rows(ROWS, rubric="kls")
    with pytest.raises(judgekit.UsageError):
        rows.to_pandas()
    assert len(list(rows)) == 2


def test_rows_are_judged_while_they_are_asked_for() -> None:
    rows = judgekit.judge_rows(ROWS, rubric="kls")
    assert next(rows)["id"] == "r1"
    assert "to_pandas" in repr(rows)
    rows.close()
    assert list(rows) == []
