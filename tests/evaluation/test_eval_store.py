"""The store that is measured ranks as a real one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.errors import UsageError
from judgekit.evaluation.collection import CollectionDocument, read
from judgekit.evaluation.retrieval import CollectionIndex
from judgekit.retrieval import index_file, search

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.confidence import Candidate

WORDS = ["harbour", "lantern", "orchard", "sparrow", "thimble", "velvet", "willow", "zenith"]
QUERIES = ["lantern in the harbour", "a velvet thimble", "sparrows of the orchard", "willowLantern", "none"]


def documents(size: int) -> list[CollectionDocument]:
    """Return documents that share words in changing numbers, so that no two score the same."""
    made = []
    for number in range(size):
        body = [WORDS[(number * step) % len(WORDS)] for step in range(1, 2 + number % 5)]
        filler = [f"filler{number}x{each}" for each in range(number)]
        title = f"{WORDS[number % len(WORDS)]} {number}"
        made.append(CollectionDocument(id=f"d{number}", title=title, text=" ".join([*body, *filler])))
    return made


@pytest.fixture(params=[6, 40], ids=["tiny store", "store"])
def made(request: pytest.FixtureRequest) -> list[CollectionDocument]:
    return documents(request.param)


def rated(candidate: Candidate) -> tuple[float, str, bool]:
    return round(candidate.confidence, 9), candidate.confidence_label, candidate.worth_mentioning


@pytest.mark.parametrize("text", QUERIES)
def test_it_finds_and_rates_what_a_store_of_files_does(
    tmp_path: Path,
    write_store: Callable[[Path, list[CollectionDocument]], None],
    made: list[CollectionDocument],
    profile: Profile,
    text: str,
) -> None:
    write_store(tmp_path / "memory", made)
    real = search.search(text, ["memory"], project=str(tmp_path), limit=100).candidates
    found = CollectionIndex(made, profile).candidates(text)
    assert {candidate.id for candidate in found} == {candidate.id for candidate in real}
    assert {hit.id: rated(hit) for hit in found} == {each.id: rated(each) for each in real}
    assert bool(found) == (text != "none")


def test_the_ranking_holds_what_the_noise_floor_cuts(profile: Profile) -> None:
    profile.noise_floor = 0.9
    store = CollectionIndex(documents(40), profile)
    for text in QUERIES:
        shown = [candidate.id for candidate in store.candidates(text)]
        ranking = store.ranking(text, 100)
        assert [each for each in ranking if each in shown] == shown
        assert ranking[:1] == shown[:1]
    assert len(store.ranking(QUERIES[0], 100)) > len(store.candidates(QUERIES[0]))
    assert profile.noise_floor == 0.9


def test_the_ranking_is_as_deep_as_asked(profile: Profile) -> None:
    store = CollectionIndex(documents(300), profile)
    assert len(store.ranking(" ".join(WORDS), 100)) == 100
    assert store.ranking(" ".join(WORDS), 100)[:10] == store.ranking(" ".join(WORDS), 10)


@pytest.mark.parametrize("text", ["", "the", '"', "NEAR(", "\ud800", "\0"])
def test_any_text_is_a_query(made: list[CollectionDocument], profile: Profile, text: str) -> None:
    assert CollectionIndex(made, profile).ranking(text, 10) == []


def test_any_text_is_a_document(profile: Profile) -> None:
    odd = CollectionDocument(id="odd", title="a\0b", text="")
    plain = CollectionDocument(id="plain", title="", text="harbour\0lantern")
    assert CollectionIndex([odd, plain], profile).ranking("lantern", 10) == ["plain"]


def test_ids_are_not_searched(folder: Path, profile: Profile) -> None:
    assert CollectionIndex(read(folder).documents, profile).ranking("garden one", 10) == ["one/garden"]
    assert (
        CollectionIndex([CollectionDocument(id="harbour", text="lantern")], profile).ranking("harbour", 10)
        == []
    )


def test_without_full_text_search_it_says_so(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "available", lambda: False)
    with pytest.raises(UsageError, match="no full-text search"):
        CollectionIndex([], profile)
