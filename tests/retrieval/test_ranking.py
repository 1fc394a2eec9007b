"""How entries are ranked: BM25 of the index against the formula written down, and what is left out."""

from __future__ import annotations

import os
import random
from collections import Counter
from math import log
from typing import TYPE_CHECKING

import pytest

from judgekit.evaluation.cases import CollectionDocument
from judgekit.evaluation.retrieval import CollectionIndex
from judgekit.retrieval import bm25, compiled, terms, update
from judgekit.retrieval import search as api
from judgekit.retrieval.sources import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from memory_store import MemoryStore

    from judgekit.retrieval.confidence import Candidate
    from judgekit.retrieval.terms import Term

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
        return [column.split() for column in update.texts(entry, PROFILE.language)]

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
        wanted = terms.parse(text, PROFILE.language)
        scores = {hit.id: hit.bm25 for hit in bm25.match(store._index, wanted, pool)}
        expected = oracle.scores(wanted, oracle.rows if everything else scores)
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


def document(name: str, title: str = "", text: str = "") -> CollectionDocument:
    return CollectionDocument(id=name, title=title, text=text)


def fillers(count: int, *, pancakes: bool = True) -> list[CollectionDocument]:
    word = "pancake" if pancakes else "waffle"
    return [
        document(f"{word}-{number}", f"Filler {number}", f"number {number} {word}") for number in range(count)
    ]


def match(documents: list[CollectionDocument], text: str, *, quick: bool = False) -> list[Candidate]:
    store = CollectionIndex(documents, PROFILE)
    hits = bm25.match(store._index, terms.parse(text, PROFILE.language), quick=quick)
    store.close()
    return hits


def names(hits: list[Candidate]) -> list[str]:
    return [hit.id for hit in hits]


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
    assert len(match(fillers(250), "pancake", quick=quick)) > 3, "but without a rarer one it was"


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
    documents = [document("both", "JWT refresh"), document("one", "JWT"), document("none", "Invoices")]
    for size in (1, 2, 3):  # what covers more comes first
        assert names(match(documents[:size], "refresh the jwt"))[:1] == ["both"]


def test_noise_is_left_out() -> None:
    documents = [
        *fillers(50),
        document("hit", "kyrgyz throat singing"),
        document("noise", "", "much " * 300 + "singing"),
    ]
    assert names(match(documents, "kyrgyz throat singing")) == ["hit"]


def test_records_of_fts5() -> None:
    for raw, numbers in (
        (b"", []),
        (b"\x05\x00", [5, 0]),
        (b"\x81\x00\x7f", [128, 127]),
        (b"\x82\xb8\x40", [40_000]),
    ):
        assert bm25._varints(raw) == numbers


PROMPTS = [
    ("How do we refresh the JWT?", ["jwt", "refresh"]),
    ("user_id, rate-limit", ["id", "limit", "rate", "user"]),
    ("a I 1 the", []),
    ("naïve café", ["caf", "na", "ve"]),
    ("\x00\ud800🙂", []),
    ("refresh " * 200_000, ["refresh"]),
]
POINTS = {"jwt": 3, "token": 2, "refr": 1, "auth": 1, "ref": 0, "other": 0}


def test_words_and_points_of_a_search_by_keyword() -> None:
    for text, expected in PROMPTS:
        wanted = [word for word in expected if word not in PROFILE.language.stop]
        assert [term.text for term in api.keywords(text, PROFILE.language)] == wanted, text[:40]
    for word, points in POINTS.items():
        assert api.points(word, {"refresh", "token"}, {"jwt", "authentication"}) == points, word


def test_by_keyword_titles_and_tags_are_searched_bodies_are_not_and_nothing_is_written(
    store: MemoryStore, isolated: Path
) -> None:
    def found(text: str) -> list[tuple[str, str]]:
        ranked = api.search(text, [".claude/memory"], project=str(store.project), limit=9, scorer="keyword")
        assert ranked.fallback is None
        return [(candidate.id, candidate.confidence_label) for candidate in ranked.candidates]

    store.fill(12)
    assert found("refresh the JWT") == [("jwt", "high")]
    store.add("tagged", "Something else", "nothing", tags=["refresh"])
    store.add("bodied", "Another thing", "refresh refresh")
    assert [name for name, _ in found("refresh the session")] == ["tagged", "jwt"]
    assert not (isolated / "judgekit").exists()
