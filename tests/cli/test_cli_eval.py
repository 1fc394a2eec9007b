from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Outcome

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "retrieval"
METRICS = ["nDCG@10", "R@10", "P@3", "MRR"]


def ranking_of(run: Path, query: str) -> list[str]:
    rows = [line.split() for line in run.read_text().splitlines()]
    return [row[2] for row in rows if row[0] == query]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    return tmp_path / "example.run"


def test_a_person_reads_figures_with_their_intervals(judgekit: Callable[..., Outcome]) -> None:
    done = judgekit("eval", "retrieval", str(EXAMPLE), "--scope-prefix")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("retrieval: 14 documents in 2 scopes, 12 queries, 10 of them judged;")
    for name in METRICS:
        assert re.search(rf"^  {name} +\d\.\d{{3}}  \[\d\.\d{{3}}, \d\.\d{{3}}\]$", done.out, re.MULTILINE)
    assert re.search(r"^Confidence of \d+ hits: Brier 0\.\d{4}, ECE 0\.\d{4}$", done.out, re.MULTILINE)
    assert "To 12 prompts, 10 of them answerable, the hook would add" in done.out
    assert "Asked against the documents of the next scope" in done.out


def test_the_json_form_is_a_contract(judgekit: Callable[..., Outcome]) -> None:
    found = judgekit("eval", "retrieval", str(EXAMPLE), "--scope-prefix", "--json").json
    assert list(found["metrics"]) == METRICS
    assert set(found["metrics"]["MRR"]) == {"value", "low", "high"}
    assert set(found["confidence"]) == {"hits", "brier", "ece", "bins", "labels"}
    assert set(found["confidence"]["bins"][0]) == {"low", "high", "count", "confidence", "relevant"}
    assert set(found["confidence"]["labels"][0]) == {"label", "count", "confidence", "relevant"}
    assert set(found["injection"]) == {"prompts", "answerable", "injected", "nudged", "precision", "coverage"}
    assert set(found["elsewhere"]) == {"prompts", "injected", "nudged"}
    assert (found["queries"], found["judged"], found["scopes"], found["depth"]) == (12, 10, 2, 100)
    assert set(found["bootstrap"]) == {"level", "resamples", "seed"}
    alone = judgekit("eval", "retrieval", str(EXAMPLE), "--json").json
    assert (alone["scopes"], alone["elsewhere"]) == (None, None)


def test_the_run_is_what_was_measured(judgekit: Callable[..., Outcome], run_file: Path) -> None:
    outcome = judgekit("eval", "retrieval", str(EXAMPLE), "--scope-prefix", "--run", str(run_file), "--json")
    rows = [line.split("\t") for line in (EXAMPLE / "qrels.tsv").read_text().splitlines()[1:]]
    relevant: dict[str, set[str]] = {query: set() for query, _, _ in rows}
    for query, document, score in rows:
        relevant[query] |= {document} if int(score) > 0 else set()
    places = [
        next((1 / place for place, each in enumerate(ranking_of(run_file, query), 1) if each in right), 0)
        for query, right in relevant.items()
    ]
    assert outcome.json["metrics"]["MRR"]["value"] == pytest.approx(sum(places) / len(places))
    for line in run_file.read_text().splitlines():
        query, _, document, *_ = line.split()
        assert query.partition("/")[0] == document.partition("/")[0]


def test_the_projects_own_profile_ranks(
    judgekit: Callable[..., Outcome], tmp_path: Path, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = judgekit("eval", "retrieval", str(EXAMPLE), "--json").json
    text = (ROOT / "retrieval" / "claude-memory.yaml").read_text(encoding="utf-8")
    own = re.sub(r"high: [0-9.]+,", "high: 1.0,", text)
    (tmp_path / ".judgekit" / "retrieval").mkdir(parents=True)
    (tmp_path / ".judgekit" / "retrieval" / "claude-memory.yaml").write_text(own, encoding="utf-8")
    after = judgekit("eval", "retrieval", str(EXAMPLE), "--json").json
    assert before["injection"]["injected"]["value"] > 0
    assert after["injection"]["injected"]["value"] == 0
    assert after["metrics"] == before["metrics"]
    other = judgekit("eval", "retrieval", str(EXAMPLE), "--profile", "markdown", "--json").json
    assert other["profile"]["retrieval"] == "markdown"
    assert other["injection"]["injected"]["value"] > 0


def test_strays_are_said_once(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    for path in EXAMPLE.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "qrels.tsv").open("a") as file:
        file.write("shop/q2\tshop/gone\t1\n")
    done = judgekit("eval", "retrieval", str(tmp_path), "--json")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert "qrels.tsv: 1 judgements name unknown queries or documents" in done.err
    assert done.json["strays"] == 1


def test_queries_that_find_nothing_are_figures_too(judgekit: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "lantern"}\n')
    (tmp_path / "queries.jsonl").write_text('{"id": "q", "text": "zeppelin"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    done = judgekit("eval", "retrieval", str(tmp_path))
    assert done.code == 0
    assert re.search(r"nDCG@10 +0\.000", done.out)
    assert "Confidence: no query had hits" in done.out
    assert re.search(r"share of what is injected +-$", done.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("corpus.jsonl", '{"id": "a"}\n', "corpus.jsonl:1: text: missing key; add it"),
        ("qrels.tsv", "q a 1\n", "qrels.tsv:1: expected the header"),
        ("queries.jsonl", None, "queries.jsonl: cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_65(
    judgekit: Callable[..., Outcome], tmp_path: Path, name: str, text: str | None, expected: str
) -> None:
    for path in EXAMPLE.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).unlink()
    if text is not None:
        (tmp_path / name).write_text(text)
    done = judgekit("eval", "retrieval", str(tmp_path))
    assert (done.code, done.out) == (65, "")
    assert expected in done.err
    assert done.err.count("\n") == 1


def test_wrong_ids_and_places_are_said_before_anything_is_searched(
    judgekit: Callable[..., Outcome], tmp_path: Path
) -> None:
    for path in EXAMPLE.iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("shop/", "shop-"))
    done = judgekit("eval", "retrieval", str(tmp_path), "--scope-prefix")
    assert done.code == 65
    assert "corpus.jsonl: id: expected SCOPE/NAME, got 'shop-jwt'" in done.err
    done = judgekit("eval", "retrieval", str(EXAMPLE), "--run", str(tmp_path / "missing" / "run"))
    assert (done.code, done.out) == (64, "")
    assert "cannot be written" in done.err
    assert "retrieval" in judgekit("eval", "--help").out
    assert judgekit("eval", "retrieval").code == 64


def test_the_page_shows_what_is_printed(judgekit: Callable[..., Outcome]) -> None:
    """Every row of the page is a row of today's output; only digits and which bins hold a hit may differ."""
    page = (ROOT / "docs" / "eval.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(retrieval: .*?)```", page, re.DOTALL)
    printed = judgekit("eval", "retrieval", str(EXAMPLE), "--scope-prefix").out
    bins = re.compile(r"^  \d\.\d to .*\n", re.MULTILINE)
    rows = [re.sub(r"[\d.]+", "0", bins.sub("", text)) for text in (shown, printed)]
    assert [line.split() for line in rows[0].splitlines()] == [line.split() for line in rows[1].splitlines()]
