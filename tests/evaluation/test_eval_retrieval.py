from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.evaluation import retrieval
from judgekit.evaluation.collection import read

if TYPE_CHECKING:
    from judgekit.retrieval.compiled import Profile

DATA = Path(os.environ.get("JUDGEKIT_TEST_DATA", "/nonexistent")) / "retrieval"


def test_without_scopes_every_query_searches_everything(folder: Path, profile: Profile) -> None:
    found = {seen.query: seen for seen in retrieval.search(read(folder), profile)}
    assert set(found["one/q1"].ranking) == {"one/kettle", "two/kettle"}
    assert found["four/q1"].ranking
    assert {seen.elsewhere for seen in found.values()} == {None}


def test_with_scopes_a_query_searches_its_own_and_the_next(folder: Path, profile: Profile) -> None:
    found = {seen.query: seen for seen in retrieval.search(read(folder), profile, scoped=True)}
    assert found["one/q1"].ranking == ["one/kettle"]
    assert found["four/q1"].ranking == []
    elsewhere = {query: [hit.id for hit in seen.elsewhere or ()] for query, seen in found.items()}
    assert elsewhere["one/q1"] == []  # three/ comes after one/
    assert elsewhere["four/q1"] == ["one/kettle"]
    assert elsewhere["two/q1"] == []


def test_each_scope_has_statistics_of_its_own(folder: Path, profile: Profile) -> None:
    """A scope alone gives the same as the scope among others."""
    collection = read(folder)
    alone = collection._replace(
        documents=[document for document in collection.documents if document.id.startswith("one/")],
        queries=[query for query in collection.queries if query.id.startswith("one/")],
    )
    among = retrieval.search(collection, profile, scoped=True)[:2]
    for seen, other in zip(retrieval.search(alone, profile), among, strict=True):
        assert seen.ranking == other.ranking
        assert [hit.confidence for hit in seen.candidates] == [hit.confidence for hit in other.candidates]
        assert [hit.bm25 for hit in seen.candidates] == [hit.bm25 for hit in other.candidates]


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("b", ["a", "b", "c"], "c"),
        ("c", ["a", "b", "c"], "a"),
        ("bb", ["a", "b", "c"], "c"),
        ("z", ["a", "b"], "a"),
        ("a", ["a"], None),
        ("a", [], None),
    ],
)
def test_the_following_scope(name: str, names: list[str], expected: str | None) -> None:
    assert retrieval.following(name, names) == expected


def test_the_report_counts_what_there_is(folder: Path, profile: Profile) -> None:
    collection = read(folder)
    told: list[int] = []
    seen = retrieval.search(collection, profile, scoped=True, progress=told.append)
    report = retrieval.report(collection, profile, seen, scoped=True)
    assert told == [1, 2, 3, 4, 5]
    assert (report.documents, report.scopes, report.queries, report.judged) == (6, 3, 5, 4)
    assert report.profile.retrieval == "claude-memory"
    recall = report.metrics["R@10"]
    assert recall is not None
    assert recall.value == 3 / 4
    assert report.elsewhere is not None
    assert report.elsewhere.prompts == 5


def test_two_reports_are_the_same(folder: Path, profile: Profile) -> None:
    collection = read(folder)
    texts = {
        retrieval.report(collection, profile, retrieval.search(collection, profile)).model_dump_json()
        for _ in range(2)
    }
    assert len(texts) == 1


@pytest.mark.skipif(not DATA.is_dir(), reason="JUDGEKIT_TEST_DATA names no folder with retrieval/")
@pytest.mark.parametrize(
    ("name", "plain"),
    [("locomo_obs", 0.532), ("locomo_turns", 0.447), ("cranfield", 0.327), ("npl", 0.376)],
)
def test_real_collections_are_ranked_no_worse_than_by_the_plainest_method(
    name: str, plain: float, profile: Profile
) -> None:
    """`plain` is unicode61 with prefixes, over queries that may be others: hence the upper bound."""
    collection, scoped = read(DATA / name), name.startswith("locomo")
    seen = retrieval.search(collection, profile, scoped=scoped)
    report = retrieval.report(collection, profile, seen, scoped=scoped)
    figure = report.metrics["nDCG@10"]
    assert figure is not None
    assert figure.high > plain
    assert report.strays == 0
