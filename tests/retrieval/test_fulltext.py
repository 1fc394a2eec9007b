from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore

from judgekit.evaluation.collection import CollectionDocument
from judgekit.evaluation.retrieval import CollectionIndex
from judgekit.retrieval import bm25, compiled, index_file, query, search

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.retrieval.confidence import Hit

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]


def document(name: str, title: str = "", text: str = "") -> CollectionDocument:
    return CollectionDocument(id=name, title=title, text=text)


def fillers(count: int, *, pancakes: bool = True) -> list[CollectionDocument]:
    word = "pancake" if pancakes else "waffle"
    return [
        document(f"{word}-{number}", f"Filler {number}", f"number {number} {word}") for number in range(count)
    ]


def match(documents: list[CollectionDocument], text: str, *, quick: bool = False) -> list[Hit]:
    """Return the hits, the best by score first."""
    store = CollectionIndex(documents, PROFILE)
    hits, _ = bm25.match(store._index, query.parse(text, PROFILE.language), quick=quick)
    store.close()
    return sorted(hits, key=lambda hit: -hit.score)


def names(hits: list[Hit]) -> list[str]:
    return [hit.candidate.id for hit in hits]


@pytest.mark.parametrize("quick", [False, True])
def test_a_frequent_word_beside_a_rare_one_is_left_to_the_scoring(
    monkeypatch: pytest.MonkeyPatch,
    quick: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    monkeypatch.setattr(bm25, "POSTINGS", 200)
    monkeypatch.setattr(bm25, "QUICK_POSTINGS", 200)
    documents = [*fillers(400), *fillers(400, pancakes=False)]
    documents += [document(f"jwt-{number}", "jwt", "x") for number in range(180)]
    documents.insert(0, document("both", "jwt", "pancake"))
    hits = match(documents, "jwt pancake", quick=quick)
    assert names(hits)[0] == "both"
    assert hits[0].matched == {0, 1}
    assert len(hits) == (bm25.QUICK_POOL if quick else bm25.POOL)
    assert all(0 in hit.matched for hit in hits), "nothing was looked for by the frequent word alone"


@pytest.mark.parametrize("quick", [False, True])
def test_a_prompt_of_frequent_words_alone_finds_them(
    monkeypatch: pytest.MonkeyPatch,
    quick: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    monkeypatch.setattr(bm25, "POSTINGS", 50)
    monkeypatch.setattr(bm25, "QUICK_POSTINGS", 50)
    assert len(match(fillers(200), "pancake", quick=quick)) > 3


def test_a_word_beyond_what_is_read_of_a_long_body_counts() -> None:
    long = "word " * 5_000 + "kyrgyz"
    hits = match([*fillers(30), document("long", "Long", long)], "kyrgyz long")
    assert names(hits)[0] == "long"
    assert hits[0].matched == {0, 1}
    assert hits[0].length > 5_000


def test_what_is_like_the_best_comes_before_what_only_shares_a_word() -> None:
    subject = "rotating cookie signing session expiry"
    documents = [
        *fillers(40),
        *[document(f"best-{number}", "JWT refresh", f"{subject} jwt refresh") for number in range(3)],
        document("other", "JWT", "parking lots and bicycles in autumn rain"),
        document("alike", "JWT", subject),
    ]
    order = names(match(documents, "jwt refresh"))
    assert set(order[:3]) == {"best-0", "best-1", "best-2"}
    assert order.index("alike") < order.index("other")


def test_with_few_hits_nothing_is_taken_for_the_best() -> None:
    (only,) = match([document("only", "JWT")], "jwt")
    assert only.score == pytest.approx(1)
    assert match([document("only", "JWT")], "nothing of the kind") == []


@pytest.mark.parametrize("size", [1, 2, 3])
def test_in_a_tiny_store_what_covers_more_comes_first(size: int) -> None:
    documents = [document("both", "JWT refresh"), document("one", "JWT"), document("none", "Invoices")]
    assert names(match(documents[:size], "refresh the jwt"))[:1] == ["both"]


def test_noise_is_left_out() -> None:
    documents = [
        *fillers(50),
        document("hit", "kyrgyz throat singing"),
        document("noise", "", "much " * 300 + "singing"),
    ]
    assert names(match(documents, "kyrgyz throat singing")) == ["hit"]


@pytest.mark.parametrize(
    ("raw", "numbers"),
    [(b"", []), (b"\x05\x00", [5, 0]), (b"\x81\x00\x7f", [128, 127]), (b"\x82\xb8\x40", [39_996 + 4])],
)
def test_records_of_fts5(raw: bytes, numbers: list[int]) -> None:
    assert bm25._varints(raw) == numbers


ROWS = st.lists(
    st.lists(st.sampled_from(["auth", "authent", "token", "cach"]), max_size=4), min_size=4, max_size=4
)


@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=12))
@settings(max_examples=60, deadline=None)
def test_words_are_counted_as_entries_come_and_go(steps: list[tuple[bool, list[list[str]]]]) -> None:
    connection = index_file.connect(":memory:")
    index_file.create(connection, {})
    terms = index_file.TermCounts(connection)
    kept: dict[int, list[list[str]]] = {}
    for number, (added, row) in enumerate(steps):
        texts = [" ".join(words) for words in row]
        if added or not kept:
            terms.count(texts, 1)
            kept[number] = row
        else:
            gone = random.Random(number).choice(list(kept))
            terms.count([" ".join(words) for words in kept.pop(gone)], -1)
        if number % 3 == 0:
            terms.write()
    terms.write()
    counted = Counter(word for row in kept.values() for word in {word for words in row for word in words})
    assert index_file.frequencies(connection, ["auth", "authent", "token", "cach"]) == dict(counted)
    total = index_file.frequencies(connection, [index_file.TOTAL]).get(index_file.TOTAL, 0)
    assert total == sum(len(words) for row in kept.values() for words in row)
    connection.close()


@pytest.fixture
def memories(tmp_path: Path) -> MemoryStore:
    store = MemoryStore(tmp_path / "project")
    store.add(
        "jwt",
        "JWT token refresh",
        "Access tokens live briefly. " * 40 + "They were refreshed by a rotating cookie.",
    )
    store.add("title", "JWT signing", "Keys are kept in the vault.")
    store.write_index()
    return store


def test_a_passage_is_text_as_it_was_written(memories: MemoryStore) -> None:
    found = search.search(
        "refreshing the JWT", [".claude/memory"], project=str(memories.project), limit=5, snippets=True
    ).candidates
    passages = {candidate.id: candidate.snippet for candidate in found}
    assert "were refreshed by a rotating cookie." in passages["jwt"]
    assert passages["title"] == "Keys are kept in the vault."
    assert all(len(passage) <= search.SNIPPET_LIMIT for passage in passages.values())


def test_passages_can_be_made_later_and_elsewhere(memories: MemoryStore) -> None:
    query, project = "refreshing the JWT", str(memories.project)
    asked = search.search(query, [".claude/memory"], project=project, limit=5, snippets=True).candidates
    found = search.search(query, [".claude/memory"], project=project, limit=5).candidates
    assert [candidate.snippet for candidate in found] == ["", ""]
    made = search.passages(query, found)
    assert [passage for passage, _ in made] == [candidate.snippet for candidate in asked]
    assert all(body == search.body(hit, 10_000) for hit, (_, body) in zip(found, made, strict=True))
    assert search.passages("", found)[0][0].startswith("Access tokens")  # without terms the beginning


@pytest.mark.parametrize(
    "place",
    [
        "../../../outside.json",
        "decisions/link.json",
        "decisions/../../../../outside.json",
        "decisions/gone.json",
    ],
)
def test_nothing_outside_a_store_is_read_for_a_passage(memories: MemoryStore, place: str) -> None:
    query, project = "refreshing the JWT", str(memories.project)
    found = search.search(query, [".claude/memory"], project=project, limit=1).candidates
    inside = memories.root / found[0].place
    (memories.project.parent / "outside.json").write_bytes(inside.read_bytes())
    (memories.root / "decisions" / "link.json").symlink_to(memories.project.parent / "outside.json")
    found[0].place = place
    assert search.passages(query, found) == [("", "")]
