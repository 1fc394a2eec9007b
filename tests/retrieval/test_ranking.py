"""How entries are ranked: BM25 of the index against the formula written down, and what is left out."""

from __future__ import annotations

import os
import random
from collections import Counter
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgekit.evaluation import collection
from judgekit.evaluation.collection import CollectionDocument
from judgekit.evaluation.retrieval import CollectionIndex
from judgekit.retrieval import bm25, compiled, index_file, keyword, query
from judgekit.retrieval import search as api
from judgekit.retrieval.sources.base import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_store import MemoryStore

    from judgekit.retrieval.confidence import Hit
    from judgekit.retrieval.query import Term

PROFILE = compiled.Profiles(compiled.bundled()).by_kind["claude-memory"]
DATA = os.environ.get("JUDGEKIT_TEST_DATA")
TOLERANCE = 1e-9
TEXT = """
cache caches caching user userId user_id getUserId token tokens session queue worker workers index indices
schema retry retries timeout payment paid pay invoice authenticate authentication auth database db deploy
deployment went go rate-limit the of and to Rate limit limits naïve React.FC
"""
WORDS = TEXT.split()


class Oracle:
    """The formula of judgekit/retrieval/bm25.py, term by term and document by document."""

    def __init__(self, documents: Sequence[CollectionDocument]) -> None:
        self.rows = {document.id: self.row(document) for document in documents}
        lengths = [sum(map(len, row)) for row in self.rows.values()]
        self.average = sum(lengths) / len(lengths)
        self.entries = Counter(stem for row in self.rows.values() for stem in set().union(*row))

    @staticmethod
    def row(document: CollectionDocument) -> list[list[str]]:
        entry = Entry(document.id, document.title, "", body=document.text[: PROFILE.max_bytes])
        return [column.split() for column in index_file.row(entry, PROFILE.language)]

    def scores(self, terms: Sequence[Term], among: Iterable[str]) -> dict[str, float]:
        rarities = [self.rarity(term) for term in terms]
        found = {}
        for name in among:
            row = self.rows[name]
            frequencies = [self.frequency(term, row) for term in terms]
            if any(frequencies):
                found[name] = sum(map(self.share, frequencies, rarities, [row] * len(terms)))
        return found

    def rarity(self, term: Term) -> float:
        having = 0
        for phrase in term.phrases:
            if phrase == term.prefix:
                having += sum(count for stem, count in self.entries.items() if stem.startswith(phrase))
            else:
                having += min(self.entries[stem] for stem in phrase.split())
        background, size = PROFILE.background, len(self.rows)
        expected = background["documents"] * background["common" if term.common else "plain"]
        smoothed = min(having, size) + expected
        return log(1 + (size + background["documents"] - smoothed + 0.5) / (smoothed + 0.5))

    @staticmethod
    def frequency(term: Term, row: Sequence[Sequence[str]]) -> float:
        total = 0.0
        for column, weight in zip(row, PROFILE.weights.values(), strict=True):
            for phrase in term.phrases:
                wanted = phrase.split()
                places = range(len(column) - len(wanted) + 1)
                total += weight * sum(list(column[at : at + len(wanted)]) == wanted for at in places)
            if term.prefix:
                longer = [
                    each for each in column if each.startswith(term.prefix) and each not in term.phrases
                ]
                total += weight * PROFILE.bm25["prefix"] * len(longer)
        return total

    def share(self, frequency: float, rarity: float, row: Sequence[Sequence[str]]) -> float:
        k1, b, padding = (PROFILE.bm25[name] for name in ("k1", "b", "padding"))
        length = (sum(map(len, row)) + padding) / (self.average + padding)
        return rarity * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * length))


def agree(documents: Sequence[CollectionDocument], texts: Sequence[str], *, everything: bool) -> int:
    """Compare all hits of some queries, and return how many there were."""
    store, oracle = CollectionIndex(documents, PROFILE), Oracle(documents)
    pool = len(documents) if everything else bm25.POOL
    compared = 0
    for text in texts:
        terms = query.parse(text, PROFILE.language)
        hits, _ = bm25.match(store._index, terms, pool)
        scores = {hit.candidate.id: hit.candidate.bm25 for hit in hits}
        expected = oracle.scores(terms, oracle.rows if everything else scores)
        if everything:
            floor = PROFILE.noise_floor * max(expected.values(), default=0.0)
            assert scores.keys() == {name for name, score in expected.items() if score >= floor}, text
        for name, score in scores.items():
            assert score == pytest.approx(expected[name], abs=TOLERANCE, rel=TOLERANCE), (text, name)
        compared += len(scores)
    store.close()
    return compared


def made(size: int, seed: int) -> Iterator[CollectionDocument]:
    chance = random.Random(seed)
    for number in range(size):
        title = " ".join(chance.choices(WORDS, k=chance.randint(0, 5)))
        yield CollectionDocument(
            id=str(number), title=title, text=" ".join(chance.choices(WORDS, k=chance.randint(0, 60)))
        )


@pytest.mark.parametrize("size", [1, 2, 3, 10, 60])
def test_made_up_documents(size: int) -> None:
    chance = random.Random(size)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 8))) for _ in range(20)]
    assert agree(list(made(size, size)), [*WORDS, *texts], everything=True) > size


@pytest.mark.skipif(DATA is None, reason="JUDGEKIT_TEST_DATA names no folder with retrieval/")
@pytest.mark.parametrize("name", ["locomo_obs", "locomo_turns", "cosqa", "npl", "cranfield"])
def test_outside_documents(name: str) -> None:
    folder = Path(DATA or "") / "retrieval" / name
    if not folder.is_dir():
        pytest.skip(f"no collection {name} there")
    data = collection.read(folder)
    scopes = {
        collection.scope(document.id) if name.startswith("locomo") else "" for document in data.documents
    }
    compared = 0
    for scope in scopes:
        documents = [
            document for document in data.documents if collection.scope(document.id) == scope or not scope
        ]
        texts = [
            collection_query.text
            for collection_query in data.queries
            if collection.scope(collection_query.id) == scope or not scope
        ]
        compared += agree(documents, texts, everything=False)
    assert compared > len(data.queries)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do we refresh the JWT?", ["jwt", "refresh"]),
        ("user_id, rate-limit", ["id", "limit", "rate", "user"]),
        ("a I 1 the", []),
        ("naïve café", ["caf", "na", "ve"]),
        ("\x00\ud800🙂", []),
        ("refresh " * 200_000, ["refresh"]),
    ],
)
def test_words_of_a_prompt(text: str, expected: list[str]) -> None:
    assert keyword.parse(text, PROFILE.language) == [
        word for word in expected if word not in PROFILE.language.stop
    ]


@pytest.mark.parametrize(
    ("word", "points"), [("jwt", 3), ("token", 2), ("refr", 1), ("auth", 1), ("ref", 0), ("other", 0)]
)
def test_points(word: str, points: int) -> None:
    assert keyword.points(word, {"refresh", "token"}, {"jwt", "authentication"}) == points


def by_keyword(store: MemoryStore, text: str) -> list[str]:
    ranked = api.search(text, [".claude/memory"], project=str(store.project), limit=9, scorer="keyword")
    assert ranked.fallback is None
    return [candidate.id for candidate in ranked.candidates]


def test_titles_and_tags_are_searched_bodies_are_not(store: MemoryStore) -> None:
    store.add("tagged", "Something else", "nothing", tags=["refresh"])
    store.add("bodied", "Another thing", "refresh refresh")
    assert by_keyword(store, "refresh the session") == ["tagged", "jwt"]


def test_a_hit_is_rated_like_any_other(store: MemoryStore) -> None:
    store.fill(12)
    ranked = api.search(
        "refresh the JWT", [".claude/memory"], project=str(store.project), limit=9, scorer="keyword"
    )
    assert [(candidate.id, candidate.confidence_label) for candidate in ranked.candidates] == [
        ("jwt", "high")
    ]


def test_nothing_is_written(store: MemoryStore, isolated: Path) -> None:
    by_keyword(store, "refresh")
    assert not (isolated / "judgekit").exists()
