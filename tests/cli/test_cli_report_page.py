"""`judgekit report --html`: a page to look at rows."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pages_read import ReadPage, browse, script_hash

from judgekit.evaluation import row_views

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from outcome import Run

    PageOf: TypeAlias = Callable[..., ReadPage]

pytestmark = pytest.mark.usefixtures("project")

HOSTILE = {
    "markup": "<script>alert(1)</script>",
    "end of a script": "</script><img src=x onerror=alert(1)>",
    "comment": "<!--<script>",
    "line separators": "one\u2028two\u2029three",
    "attribute": "\" onload=alert(1) x='",
    "template": "{{ 7 * 7 }}{% raw %}",
    "override": "\u202emirrored",
    "controls": "\x00\x1b[31mred",
}
FINDING = {
    "dimension": "semantic",
    "location": "line 2",
    "issue": "wrong price",
    "suggestion": "name the price of 2026",
    "quote": "costs TEN\neuros",
}
QUICK: dict[str, Any] = {
    "round": 1,
    "tier": "quick",
    "model": "example/small",
    "opinion": {"outcome": "accept", "scores": {"semantic": 4}, "reasoning": "Reads well."},
    "failure": None,
    "latency_ms": 812,
    "usage": {"cost_usd": 0.0002},
}
DEEP: dict[str, Any] = {
    **QUICK,
    "round": 2,
    "tier": "deep",
    "model": "example/large",
    "opinion": {
        "outcome": "reject",
        "scores": {"semantic": 1},
        "reasoning": "The price is wrong.",
        "probabilities": {"semantic": {"1": 0.9, "5": 0.1}},
    },
}
JUDGED: dict[str, Any] = {
    "schema": "judgekit/verdict@1",
    "verdict": "reject",
    "rubric": {"id": "answer-quality", "version": "1.0.0"},
    "mode": "lenient",
    "judge_tier": "deep",
    "rounds": [QUICK, DEEP],
    "findings": [FINDING],
}
ROW: dict[str, Any] = {
    "id": "q1",
    "question": "What does it cost?",
    "answer": "A bay elsewhere costs ten euros a day.",
    "expected": "Twelve euros.",
    "verdict": "reject",
    "average": 1.0,
    "scores": {"semantic": 1},
    "reasoning": "The price is wrong.",
    "model": "example/large",
    "cost_usd": 0.0014,
    "error": None,
    "judged": JUDGED,
}


def write(path: str, *rows: dict[str, Any]) -> str:
    lines = [json.dumps(row) + "\n" for row in rows]
    Path(path).write_text("".join(lines), encoding="utf-8")
    return path


def plain_rows(*words: str) -> list[dict[str, Any]]:
    """Return rows without a record of how they were judged."""
    rows = []
    for number, word in enumerate(words):
        rows.append({"id": f"r{number}", "verdict": word, "answer": f"text {number}"})
    return rows


@pytest.fixture
def page_of(judgekit: Run) -> PageOf:
    def report(*words: str) -> ReadPage:
        done = judgekit("report", *words, "--html", "page.html")
        assert done.code == 0, done.err
        return ReadPage(Path("page.html").read_text(encoding="utf-8"))

    return report


@pytest.mark.parametrize(
    "part",
    [
        "What does it cost?",
        "costs ten euros",
        "Twelve euros.",
        "The price is wrong.",
        "semantic, line 2: wrong price",
        "name the price of 2026",
        "example/small",
        "Reads well.",
        "semantic 1",
        "1 90%, 5 10%",
        "0.0002",
        "0.0014",
        "tiers differ",
    ],
)
def test_a_row_stands_there_with_all_that_is_known_of_it(page_of: PageOf, part: str) -> None:
    page = page_of(write("r.jsonl", ROW))
    assert part in page.text("table")


def test_what_a_finding_quotes_is_marked_whatever_its_case_and_blanks(page_of: PageOf) -> None:
    assert page_of(write("r.jsonl", ROW)).texts("mark") == ["costs ten euros"]


def test_a_reason_that_was_given_is_not_told_twice(page_of: PageOf) -> None:
    assert page_of(write("r.jsonl", ROW)).text("section").count("The price is wrong.") == 1


@pytest.mark.parametrize(
    ("words", "headline"),
    [
        (["accept"] * 3 + ["reject"], r"accepted 75\.0 % \(\d+ to \d+\)"),
        (["accept", "undetermined"], r"accepted 100\.0 % \(\d+ to \d+\); 1 undetermined"),
        (["undetermined"] * 2, r"2 undetermined"),
        (["A", "A", "B", "tie"], r"A wins 62\.5 % \(\d+ to \d+\), B wins 37\.5 % \(\d+ to \d+\)"),
    ],
)
def test_the_page_opens_with_one_headline(page_of: PageOf, words: list[str], headline: str) -> None:
    found = page_of(write("r.jsonl", *plain_rows(*words))).text("h1")
    assert re.fullmatch(headline, found)


def test_the_headline_has_the_corrected_rate(page_of: PageOf) -> None:
    rows = plain_rows(*["accept"] * 60, *["reject"] * 30)
    results = write("r.jsonl", *rows)
    labels = [
        {"id": row["id"], "label": "accept" if n % 3 else "reject"} for n, row in enumerate(rows)
    ]
    page = page_of(results, "--labels", write("l.jsonl", *labels))
    assert page.text("h1") == "accepted 66.7 %, corrected 56 to 76"


def test_rows_that_differ_from_their_label_come_first(page_of: PageOf) -> None:
    results = write("r.jsonl", *plain_rows("accept", "reject", "accept", "undetermined", "improve"))
    labels = [{"id": "r2", "label": "reject"}, {"id": "r1", "label": "reject"}]
    page = page_of(results, "--labels", write("l.jsonl", *labels))
    assert [row["id"] for row in page.rows] == ["r2", "r3", "r1", "r4", "r0"]


def test_a_page_says_whether_a_verdict_is_as_labelled(page_of: PageOf) -> None:
    results = write("r.jsonl", *plain_rows("accept", "reject", "accept"))
    labels = [{"id": "r0", "label": "reject"}, {"id": "r1", "label": "reject"}]
    page = page_of(results, "--labels", write("l.jsonl", *labels))
    flags = {row["id"]: row.get("flags") for row in page.rows}
    assert flags == {"r0": ["not as labelled"], "r1": ["as labelled"], "r2": None}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest, page_of: PageOf) -> ReadPage:
    """A page with a hostile text in each place that others write."""
    text = HOSTILE[request.param]
    opinion = {**DEEP["opinion"], "reasoning": text, "outcome": text}
    rounds = [QUICK, {**DEEP, "model": text, "opinion": opinion}]
    finding = dict.fromkeys(FINDING, text)
    places = dict.fromkeys(
        ("id", "question", "answer", "expected", "reasoning", "model", "error", "topic"), text
    )
    row = {**ROW, **places, "judged": {**JUDGED, "rounds": rounds, "findings": [finding]}}
    return page_of(write("r.jsonl", row, {**ROW, "id": "q2", "topic": "b"}), "--by", "topic")


def test_what_others_wrote_is_no_script(hostile: ReadPage) -> None:
    assert len(hostile.scripts) == 1


def test_the_policy_lets_the_script_of_the_page_run(hostile: ReadPage) -> None:
    assert hostile.allowed_scripts == [script_hash(hostile.scripts[0])]


def test_what_others_wrote_is_no_element(hostile: ReadPage) -> None:
    assert hostile.elements.isdisjoint({"img", "link", "iframe", "object", "embed", "base"})


def test_what_others_wrote_is_no_attribute(hostile: ReadPage) -> None:
    assert [name for name in hostile.attributes if name.startswith("on")] == []


def test_what_nobody_sees_is_left_out(hostile: ReadPage) -> None:
    assert not set(hostile.html) & set("\x00\x1b\u2028\u2029\u202e")


def test_what_nobody_sees_is_not_in_the_data_either(hostile: ReadPage) -> None:
    assert not set(str(hostile.rows)) & set("\x00\x1b\u2028\u2029\u202e")


def test_nothing_in_the_data_ends_their_element(hostile: ReadPage) -> None:
    assert "<" not in hostile.data


def test_all_rows_are_there_whatever_one_of_them_says(hostile: ReadPage) -> None:
    assert len(hostile.rows) == 2


def test_nothing_is_loaded_and_no_other_script_runs(page_of: PageOf) -> None:
    page = page_of(write("r.jsonl", ROW))
    assert page.policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; ")
    assert "innerHTML" not in page.html
    assert " src=" not in page.html


def test_200_rows_stand_there_without_scripts(page_of: PageOf) -> None:
    page = page_of(write("r.jsonl", *plain_rows(*["accept", "reject"] * 100)))
    shown = page.text("section")
    assert [number for number in range(200) if f"text {number} " not in f"{shown} "] == []
    assert page.text("noscript") == ""


def test_of_more_rows_the_first_stand_there_and_the_others_come_with_the_script(
    page_of: PageOf,
) -> None:
    page = page_of(write("r.jsonl", *plain_rows(*["accept"] * 1250)))
    assert "the first 200 of 1,250 rows" in page.text("noscript")
    assert len([name for name in page.ids if name.startswith("row-r")]) == 200
    assert len(page.rows) == 1250


def test_a_fragment_names_a_row(page_of: PageOf) -> None:
    page = page_of(write("r.jsonl", {**ROW, "id": "a b/ä"}))
    assert "row-a b/ä" in page.ids
    assert 'href="#row-a%20b/%C3%A4"' in page.html


def test_a_page_keeps_to_its_size_and_says_what_it_leaves_out(
    page_of: PageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_views, "MAX_BYTES", 20_000)
    rows = [{**row, "answer": "x" * 900} for row in plain_rows(*["accept"] * 99, "reject")]
    page = page_of(write("r.jsonl", *rows))
    assert len(page.data.encode()) <= 20_010
    assert page.rows[0]["id"] == "r99"
    assert f"{len(page.rows)} of 100 rows, those that matter most first" in page.text()


def test_what_stands_there_without_scripts_keeps_to_the_size_of_a_page(
    page_of: PageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_views, "MAX_PAGE_BYTES", 20_000)
    rows = [{**row, "answer": "x" * 900} for row in plain_rows(*["accept"] * 10)]
    page = page_of(write("r.jsonl", *rows))
    assert len(page.rows) == 10
    assert len([name for name in page.ids if name.startswith("row-r")]) == 5


def test_a_text_that_is_too_long_is_cut_and_says_so(page_of: PageOf) -> None:
    page = page_of(write("r.jsonl", {**ROW, "answer": "x" * 30_000}))
    assert "x … (cut here)" in page.text()
    assert len(page.data) < 25_000


def test_the_same_data_give_the_same_bytes(page_of: PageOf) -> None:
    results = write("r.jsonl", ROW, {**ROW, "id": "q2"})
    first = page_of(results).html
    assert page_of(results).html == first


# Two results


@pytest.fixture
def two() -> tuple[str, str]:
    first = write(
        "r.jsonl", *plain_rows("accept", "reject", "accept", "improve", "accept", "reject")
    )
    rows = plain_rows("accept", "accept", "reject", "reject", "undetermined")
    return first, write("r2.jsonl", *rows, {"id": "new", "verdict": "accept", "answer": "new"})


def test_regressed_and_fixed_rows_come_first(page_of: PageOf, two: tuple[str, str]) -> None:
    found = [(row["id"], row["flags"]) for row in page_of(*two).rows]
    assert found == [
        ("r2", ["regressed"]),
        ("r1", ["fixed"]),
        ("r4", ["changed"]),
        ("r3", ["changed"]),
        ("r5", ["only in r"]),
        ("r0", ["the same"]),
        ("new", ["only in r2"]),
    ]


def test_with_labels_fixed_means_as_labelled(page_of: PageOf, two: tuple[str, str]) -> None:
    labels = [{"id": "r2", "label": "reject"}, {"id": "r1", "label": "reject"}]
    rows = page_of(*two, "--labels", write("l.jsonl", *labels)).rows
    flags = {row["id"]: row["flags"] for row in rows}
    assert flags["r2"] == ["fixed", "as labelled"]
    assert flags["r1"] == ["regressed", "not as labelled"]


def test_both_results_stand_side_by_side_with_both_reasons(page_of: PageOf) -> None:
    second = {**ROW, "verdict": "accept", "reasoning": "The price is right.", "judged": None}
    page = page_of(write("r.jsonl", ROW), write("r2.jsonl", second))
    judged = page.rows[0]["judged"]
    assert [one["by"] for one in judged] == ["r", "r2"]
    assert [one["reasoning"] for one in judged] == ["The price is wrong.", "The price is right."]
    assert "The price is right." in page.text("section")


def test_answers_that_differ_stand_both_there(page_of: PageOf) -> None:
    second = {**ROW, "answer": "Twelve euros."}
    page = page_of(write("r.jsonl", ROW), write("r2.jsonl", second))
    names = [name for name, _ in page.rows[0]["texts"]]
    assert names == ["question", "expected", "answer, r", "answer, r2"]


def test_the_difference_has_its_own_axis(page_of: PageOf) -> None:
    first = write("r.jsonl", *plain_rows(*["accept"] * 60, *["reject"] * 40))
    second = write("r2.jsonl", *plain_rows(*["accept"] * 70, *["reject"] * 30))
    page = page_of(first, second)
    assert "r2 minus r: +10.0 points" in page.text("h1")
    assert page.texts("i") == ["-20", "0", "+20 points"]


# What else the page has


def test_groups_have_a_chart(page_of: PageOf) -> None:
    rows = [{**row, "topic": "ab"[n % 2]} for n, row in enumerate(plain_rows(*["accept"] * 8))]
    page = page_of(write("r.jsonl", *rows), "--by", "topic")
    assert page.text().count("of 4 rows, as judged") == 2


@pytest.mark.parametrize(
    "part",
    [
        "No verdict for 1 row: timeout: too late.",
        "judgekit report r.jsonl --html page.html",
        "judgekit 0.",
        "[ ] = 95 % confidence interval",
    ],
)
def test_notices_command_and_version_stand_at_the_foot(page_of: PageOf, part: str) -> None:
    late = {"id": "late", "verdict": "undetermined", "error": "timeout: too late"}
    assert part in page_of(write("r.jsonl", ROW, late)).text("footer")


def test_how_a_file_was_read_stands_at_the_foot(page_of: PageOf) -> None:
    Path("r.csv").write_text("id;verdict\na;accept\n", encoding="utf-16")
    assert "UTF-16" in page_of("r.csv").text("footer")


def test_results_without_texts_say_so(page_of: PageOf) -> None:
    page = page_of(write("r.jsonl", {"id": "a", "verdict": "accept"}))
    assert "These results hold no texts. --data FILE takes" in page.text()


def test_texts_come_from_the_file_that_was_judged(page_of: PageOf) -> None:
    results = write("r.jsonl", {"id": "a", "verdict": "accept"})
    data = write("d.jsonl", {"id": "a", "prompt": "Why?", "said": "Because.", "gold": "So."})
    page = page_of(results, "--data", data, "--map", "text=said")
    assert page.rows[0]["texts"] == [
        ["question", ["Why?"]],
        ["answer", ["Because."]],
        ["expected", ["So."]],
    ]
    assert "hold no texts" not in page.text()


def test_a_file_that_was_judged_is_for_a_page(judgekit: Run) -> None:
    done = judgekit("report", write("r.jsonl", ROW), "--data", "d.jsonl")
    assert done.code == 64
    assert "--data takes texts for a page; name it with --html FILE.html" in done.err


@pytest.mark.parametrize("others", [(), ("first.jsonl",)])
def test_a_lean_table_takes_the_rest_from_the_lines_behind_it(
    page_of: PageOf, others: tuple[str, ...]
) -> None:
    write("first.jsonl", {"id": "q1", "verdict": "accept"})
    table = Path("r.csv")
    table.write_text("id,verdict,reasoning,model,cost_usd,duration_ms,error\nq1,reject,,,,,\n")
    lines = write("r.csv.part.jsonl", {**ROW, "fingerprint": "x"})
    written = Path(lines).stat().st_mtime_ns
    os.utime(table, ns=(written, written))
    assert page_of(*others, "r.csv").texts("mark") == ["costs ten euros"]


@pytest.mark.parametrize("words", [("-",), ("-", "r2.jsonl"), ("r2.jsonl", "-")])
def test_results_come_from_standard_input_too(
    page_of: PageOf, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    write("r2.jsonl", ROW)
    given = io.TextIOWrapper(io.BytesIO(json.dumps(ROW).encode()))
    monkeypatch.setattr(sys, "stdin", given)
    assert len(page_of(*words).rows) == 1


def test_how_second_results_were_read_is_said_once(page_of: PageOf) -> None:
    Path("r.csv").write_text("id;verdict\na;accept\n", encoding="utf-16")
    page = page_of(write("first.jsonl", ROW), "r.csv")
    assert page.text("footer").count("UTF-16") == 1


def test_a_row_without_an_answer_has_its_question(page_of: PageOf) -> None:
    empty = {**ROW, "answer": "", "verdict": "undetermined", "judged": None}
    page = page_of(write("r.jsonl", empty))
    assert page.rows[0]["texts"] == [
        ["question", ["What does it cost?"]],
        ["expected", ["Twelve euros."]],
    ]


def test_sources_stand_behind_the_texts_and_long_ones_are_cut(page_of: PageOf) -> None:
    sources = [{"title": "Prices", "text": "Ten euros."}, "x" * 2000]
    page = page_of(write("r.jsonl", {**ROW, "contexts": sources}))
    *_, first, second = page.rows[0]["texts"]
    assert first == ["source: Prices", ["Ten euros."]]
    assert second == ["source: source 2", ["x" * 1000 + " … (cut here)"]]


def test_compared_texts_stand_there_by_letter(page_of: PageOf) -> None:
    row = {"id": "c", "prompt": "Which?", "a": "First.", "b": "Second.", "verdict": "B"}
    others = [{**row, "id": f"c{n}", "verdict": word} for n, word in enumerate(["A", "tie", "B"])]
    page = page_of(write("r.jsonl", row, *others))
    assert page.rows[0]["texts"] == [
        ["question", ["Which?"]],
        ["A", ["First."]],
        ["B", ["Second."]],
    ]


@pytest.mark.parametrize("rounds", [None, "x", [1, {"tier": "quick"}, {"tier": 3, "model": []}]])
def test_a_record_that_cannot_be_read_hides_no_row(page_of: PageOf, rounds: object) -> None:
    odd = {**ROW, "judged": {"schema": "x/1", "rounds": rounds, "findings": [3, {"quote": 1}]}}
    assert len(page_of(write("r.jsonl", odd)).rows) == 1


@pytest.mark.slow
def test_ten_thousand_rows_of_two_kilobytes_are_under_25_mb(page_of: PageOf) -> None:
    row = {
        **ROW,
        "answer": ROW["answer"] + " and so on" * 120,
        "judged": {**JUDGED, "findings": []},
    }
    results = write("r.jsonl", *({**row, "id": f"q{number}"} for number in range(10_000)))
    assert Path(results).stat().st_size > 10_000 * 2000
    page = page_of(results)
    assert len(page.rows) == 10_000
    assert Path("page.html").stat().st_size < 25_000_000


# In a browser

SHOW = "document.title = JSON.stringify({});"
SEARCH = """
  const field = document.querySelector(".filter input");
  field.value = "%s";
  field.dispatchEvent(new Event("input"));
"""
CHOOSE = """
  const choice = document.querySelector(".filter select[aria-label='%s']");
  choice.value = "%s";
  choice.dispatchEvent(new Event("change"));
"""
PRESS = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}));"
SHOWN = "[...document.querySelectorAll('.line a')].map(link => link.textContent)"


@pytest.fixture
def results(page_of: PageOf) -> Path:
    """A page of three rows, two of them labelled."""
    rows = plain_rows("accept", "reject", "improve")
    labels = [{"id": "r0", "label": "accept"}, {"id": "r1", "label": "accept"}]
    page_of(write("r.jsonl", *rows), "--labels", write("l.jsonl", *labels))
    return Path("page.html")


@pytest.mark.slow
def test_the_script_draws_what_stands_there_without_it(page_of: PageOf) -> None:
    second = {**ROW, "verdict": "accept", "reasoning": "The price is right.", "error": "late"}
    rounds = [{**QUICK, "opinion": None, "failure": {"kind": "timeout", "message": "late"}}]
    failed = {
        **ROW,
        "id": "q2",
        "answer": HOSTILE["markup"],
        "judged": {**JUDGED, "rounds": rounds},
    }
    page = page_of(write("r.jsonl", ROW, failed), write("r2.jsonl", second))
    drawn = browse(Path("page.html"), "document.querySelector('.filter button').click();")
    assert drawn.text("table") == page.text("table")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acts", "shown"),
    [
        ("", ["r1", "r2", "r0"]),
        (SEARCH % "TEXT 1", ["r1"]),
        (SEARCH % "no such word", []),
        (CHOOSE % ("verdict", "improve"), ["r2"]),
        (CHOOSE % ("label", "accept"), ["r1", "r0"]),
        (CHOOSE % ("difference", "not as labelled"), ["r1"]),
        ("document.querySelector('.list .sort').click();", ["r0", "r1", "r2"]),
    ],
)
def test_rows_are_searched_chosen_and_sorted(results: Path, acts: str, shown: list[str]) -> None:
    page = browse(results, acts + SHOW.format(SHOWN))
    assert json.loads(page.text("title")) == shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acts", "opened"),
    [
        (PRESS % "j" + PRESS % "Enter", "r1"),
        (PRESS % "j" + PRESS % "j" + PRESS % "Enter", "r2"),
        (PRESS % "j" + PRESS % "j" + PRESS % "k" + PRESS % "Enter", "r1"),
        ("document.querySelectorAll('.line')[2].click();", "r0"),
    ],
)
def test_keys_and_clicks_open_a_row_and_name_it(results: Path, acts: str, opened: str) -> None:
    found = "[location.hash, document.querySelector('.more').previousElementSibling.id]"
    page = browse(results, acts + SHOW.format(found))
    assert json.loads(page.text("title")) == [f"#row-{opened}", f"row-{opened}"]


@pytest.mark.slow
@pytest.mark.parametrize("row_id", ["data", "rows-as-data", "__proto__", "a b/ä", "%E0%A4%A"])
def test_a_row_may_have_any_id(page_of: PageOf, row_id: str) -> None:
    page_of(write("r.jsonl", {**ROW, "id": row_id}))
    found = "document.querySelectorAll('.line.open').length"
    page = browse(Path("page.html"), PRESS % "j" + PRESS % "Enter" + SHOW.format(found))
    assert page.text("title") == "1"


@pytest.mark.slow
def test_numbers_are_sorted_as_numbers_and_none_comes_last(page_of: PageOf) -> None:
    rows = plain_rows("accept", "accept", "accept", "accept")
    for row, average in zip(rows, (4.67, None, 10, 4.7), strict=True):
        row["average"] = average
    page_of(write("r.jsonl", *rows))
    acts = "document.querySelector('th.mean .sort').click();"
    page = browse(Path("page.html"), acts + SHOW.format(SHOWN))
    assert json.loads(page.text("title")) == ["r0", "r3", "r2", "r1"]


@pytest.mark.slow
def test_sorting_shows_itself(results: Path) -> None:
    acts = "document.querySelector('.list .sort').click();"
    found = "[...document.querySelectorAll('th[aria-sort]')].map(head => head.ariaSort)"
    assert json.loads(browse(results, acts + SHOW.format(found)).text("title")) == ["ascending"]


@pytest.mark.slow
def test_nothing_is_wider_than_a_narrow_window(page_of: PageOf) -> None:
    rows = [{**ROW, "id": "q" * 80, "topic": "t" * 60}, {**ROW, "answer": "x" * 900, "topic": "b"}]
    page_of(write("r.jsonl", *rows), "--by", "topic")
    found = "document.documentElement.scrollWidth"
    # Chromium makes no window that's narrower.
    page = browse(Path("page.html"), SHOW.format(found), width=500)
    assert int(page.text("title")) <= 500
