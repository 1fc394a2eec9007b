"""BM25 as the index computes it against the same formula written down naively, over all documents."""

from __future__ import annotations

import os
import random
from collections import Counter
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.evaluation import collection
from judgekit.evaluation.collection import CollectionDocument
from judgekit.evaluation.retrieval import CollectionIndex
from judgekit.retrieval import bm25, compiled, index_file, query
from judgekit.retrieval.sources.base import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
