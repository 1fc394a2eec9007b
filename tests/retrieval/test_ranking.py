"""The ranking of entries: BM25 against its formula, noise, and the parts of a confidence."""

from __future__ import annotations

import random
import time
from collections import Counter
from math import exp, log
from typing import TYPE_CHECKING

import pytest

from judgekit.evaluation.cases import CollectionDocument
from judgekit.evaluation.retrieval import SearchableCollection
from judgekit.retrieval import bm25, compiled, confidence, parts, update
from judgekit.retrieval import search as api
from judgekit.retrieval.confidence import LONG_BODY_WORDS, Candidate
from judgekit.retrieval.sources import Entry
from judgekit.retrieval.terms import Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from memory_store import MemoryStore


PROFILE = compiled.Profiles(compiled.get_bundled_data()).by_kind["claude-memory"]
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
        return [column.split() for column in update.stem_entry(entry, PROFILE.language)]

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
                having += sum(
                    count for stem, count in self.entries.items() if stem.startswith(phrase)
                )
            else:
                having += min(self.entries[stem] for stem in phrase.split())
        background, size = PROFILE.background, len(self.rows)
        expected = background["documents"] * background["common" if term.is_common else "plain"]
        smoothed = min(having, size) + expected
        return log(1 + (size + background["documents"] - smoothed + 0.5) / (smoothed + 0.5))

    @staticmethod
    def frequency(term: Term, row: Sequence[Sequence[str]]) -> float:
        total = 0.0
        for column, weight in zip(row, PROFILE.weights.values(), strict=True):
            for phrase in term.phrases:
                wanted = phrase.split()
                places = range(len(column) - len(wanted) + 1)
                total += weight * sum(
                    list(column[at : at + len(wanted)]) == wanted for at in places
                )
            if term.prefix:
                longer = [
                    each
                    for each in column
                    if each.startswith(term.prefix) and each not in term.phrases
                ]
                total += weight * PROFILE.bm25["prefix"] * len(longer)
        return total

    def share(self, frequency: float, rarity: float, row: Sequence[Sequence[str]]) -> float:
        k1, b, padding = (PROFILE.bm25[name] for name in ("k1", "b", "padding"))
        length = (sum(map(len, row)) + padding) / (self.average + padding)
        return rarity * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * length))


def agree(
    documents: Sequence[CollectionDocument], texts: Sequence[str], *, everything: bool
) -> int:
    """Compare all hits of some queries; return their number."""
    store, oracle = SearchableCollection(documents, PROFILE), Oracle(documents)
    pool = len(documents) if everything else bm25.POOL
    compared = 0
    for text in texts:
        wanted = parts.make_single_part(text, PROFILE.language)
        hits = confidence.unfold_alike(bm25.match(store.index, wanted, pool))
        scores = {hit.id: hit.bm25 for hit in hits}
        expected = oracle.scores(
            [term for part in wanted for term in part.terms], oracle.rows if everything else scores
        )
        if everything:
            floor = PROFILE.noise_floor * max(expected.values(), default=0.0)
            assert scores.keys() == {name for name, score in expected.items() if score >= floor}, (
                text
            )
        for name, score in scores.items():
            assert score == pytest.approx(expected[name], abs=TOLERANCE, rel=TOLERANCE), (
                text,
                name,
            )
        compared += len(scores)
    store.close()
    return compared


def made(size: int, seed: int) -> Iterator[CollectionDocument]:
    chance = random.Random(seed)
    for number in range(size):
        title = " ".join(chance.choices(WORDS, k=chance.randint(0, 5)))
        yield CollectionDocument(
            id=str(number),
            title=title,
            text=" ".join(chance.choices(WORDS, k=chance.randint(0, 60))),
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
        document(f"{word}-{number}", f"Filler {number}", f"number {number} {word}")
        for number in range(count)
    ]


def match(
    documents: list[CollectionDocument], text: str, *, quick: bool = False
) -> list[Candidate]:
    store = SearchableCollection(documents, PROFILE)
    hits = bm25.match(store.index, parts.make_single_part(text, PROFILE.language), quick=quick)
    store.close()
    return hits


def names(hits: list[Candidate]) -> list[str]:
    return [hit.id for hit in hits]


@pytest.mark.parametrize("quick", [False, True])
def test_a_frequent_word_beside_a_rare_one_is_left_to_the_scoring(
    monkeypatch: pytest.MonkeyPatch,
    quick: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    monkeypatch.setattr(bm25, "MAX_POSTINGS", 200)
    monkeypatch.setattr(bm25, "QUICK_MAX_POSTINGS", 200)
    documents = [*fillers(400), *fillers(400, pancakes=False)]
    documents += [document(f"jwt-{number}", "jwt", "x") for number in range(180)]
    documents.insert(0, document("both", "jwt", "pancake"))
    hits = match(documents, "jwt pancake", quick=quick)
    assert names(hits)[0] == "both"
    assert hits[0].matched_terms == {0, 1}
    assert len(confidence.unfold_alike(hits)) == (bm25.QUICK_POOL if quick else bm25.POOL)
    assert all(0 in hit.matched_terms for hit in hits), (
        "nothing was looked for by the frequent word alone"
    )
    pancakes = confidence.unfold_alike(match(fillers(250), "pancake", quick=quick))
    assert len(pancakes) > 3, "but without a rarer one it was"


@pytest.mark.parametrize(
    ("quick", "words"), [(False, ["jwt", "pancake"]), (True, ["jwt"])], ids=["search", "prompt"]
)
def test_beside_a_part_with_a_rare_word_a_prompt_leaves_out_one_with_frequent_words(
    monkeypatch: pytest.MonkeyPatch,
    quick: bool,  # noqa: FBT001 - a parameter of the test
    words: list[str],
) -> None:
    monkeypatch.setattr(bm25, "QUICK_MAX_POSTINGS", 200)
    documents = [*fillers(250), document("jwt", "jwt", "x")]
    store = SearchableCollection(documents, PROFILE)
    prompt_parts = parts.parse("Is it the jwt? Or the pancake?", PROFILE.language)
    hits_by_part = bm25.match_parts(store.index, prompt_parts, quick=quick)
    store.close()
    assert [part.terms[0].text for part, hits in hits_by_part if hits] == words


def test_by_keyword_titles_and_tags_are_searched(store: MemoryStore, isolated: Path) -> None:
    def found(text: str) -> list[tuple[str, str]]:
        ranked = api.search(
            text, [".claude/memory"], project=str(store.project), limit=9, scorer="keyword"
        )
        assert ranked.fallback_reason is None
        return [(candidate.id, candidate.confidence_label) for candidate in ranked.candidates]

    store.fill(12)
    assert found("refresh the JWT") == [("jwt", "high")]
    assert found("refr") != []
    assert found("ref") == found("a I 1 the") == found("\x00\ud800🙂") == []
    store.add("tagged", "Something else", "nothing", tags=["refresh"])
    store.add("bodied", "Another thing", "refresh refresh")
    assert [name for name, _ in found("refresh the session")] == ["tagged", "jwt"]
    assert not (isolated / "judgekit").exists()


PROFILE = compiled.Profiles(compiled.get_bundled_data()).by_kind["claude-memory"]
BACKGROUND = PROFILE.background
NOW, DAY = time.time(), 86_400
QUERY = ["refresh", "jwt", "token", "flow"]


def terms(rarity: float = 4.0) -> list[Term]:
    found = [Term(word, [word], [word]) for word in QUERY]
    for term in found:
        term.rarity = rarity
    return found


def hit(
    text: str, titled: int = 0, score: float = 1, category: str = "decision", age: float = 0
) -> Candidate:
    """Return an entry of these words; the first `titled` are its title."""
    words, updated = text.split(), NOW - age * DAY
    found = Candidate(
        text, text, category, tags=(), updated=updated, root="/r", place=text, kind="claude-memory"
    )
    found.text, found.stem_count, found.score, found.bm25 = text, len(words), score, score
    found.matched_terms = {number for number, word in enumerate(QUERY) if word in words}
    found.title_terms = {number for number, word in enumerate(QUERY) if word in words[:titled]}
    return found


def rated(*hits: Candidate, documents: int = 100, rarity: float = 4.0) -> list[dict[str, float]]:
    confidence.rate_hits(hits, terms(rarity), documents, PROFILE)
    return [each.features for each in hits]


def test_the_odds_are_those_of_bayes_and_evidence_is_rarity() -> None:
    share, imagined = PROFILE.confidence["body_share"], BACKGROUND["documents"]
    title, body, both = 4.0, 4 * share, 4 + 4 * share
    assert rated(hit("jwt", 1), documents=1)[0]["odds"] == pytest.approx(title - log(imagined))
    rivals = rated(hit("jwt refresh", 1), hit("jwt"), documents=40)
    assert rivals[0]["odds"] == pytest.approx(both - log(exp(body) + 38 + imagined))
    assert rivals[1]["odds"] == pytest.approx(body - log(exp(both) + 38 + imagined))
    # A word in a long body may stand there by chance; the title's word counts all the same.
    for length, own in (
        (LONG_BODY_WORDS, body),
        (LONG_BODY_WORDS * 2, share * (4 - log(2))),
        (LONG_BODY_WORDS * 1_000_000, 0),
    ):
        long = hit("jwt refresh", 1)
        long.stem_count = length
        assert rated(long, documents=1)[0]["odds"] == pytest.approx(title + own - log(imagined)), (
            length
        )


def test_a_confidence_grows_with_the_evidence_and_its_label_begins_at_its_threshold() -> None:
    found = []
    for rarity in range(200):
        one, other = hit("refresh jwt", 2), hit("token")
        other.is_damaged = True
        rated(one, other, rarity=rarity / 10)
        assert one.features["coverage"] == (0.5 if rarity else 0)
        for each in (one, other):
            labels = [
                name for name in ("high", "medium") if each.confidence >= PROFILE.labels[name]
            ]
            assert each.confidence_label == [*labels, "low"][0] or each.is_damaged
            assert each.worth_mentioning == (each.confidence >= PROFILE.labels["mention"])
        assert other.confidence_label != "high"
        assert other.confidence <= PROFILE.labels["medium"]
        found.append(one.confidence)
    assert found == sorted(found)
    assert 0 < found[0] < PROFILE.labels["medium"]
    assert PROFILE.labels["high"] < found[-1] < 1


def order(*hits: Candidate) -> list[str]:
    return [candidate.id for candidate in confidence.rank_hits(hits, terms(), 100, PROFILE)]


def test_the_best_score_comes_first_and_noise_goes() -> None:
    scores = {"a": 1.0, "b": 4.0, "c": 0.99, "d": 2.0}
    assert order(*[hit(name, score=score) for name, score in scores.items()]) == ["b", "d", "a"]
    best, noise, other = hit("best", score=0.7), hit("noise", score=0.9), hit("other", score=1.0)
    best.bm25, noise.bm25, other.bm25 = 8.0, 1.9, 2.0
    assert order(best, noise, other) == ["other", "best"], (
        "noise is told by bm25 and order by the score"
    )
    assert order() == []


def test_ties_go_by_category_then_by_recency() -> None:
    tied = [
        hit("session", category="session_summary", age=1),
        hit("old", age=300),
        hit("new", age=2),
    ]
    tied += [hit("unknown", category="strange"), hit("runbook", category="runbook", age=100)]
    for hits in (tied, tied[::-1]):
        assert order(*hits) == ["new", "old", "runbook", "session", "unknown"]


@pytest.mark.parametrize(
    ("confidences", "levelled"),
    [
        ([], []),
        ([0.9, 0.5, 0.1], [0.9, 0.5, 0.1]),
        ([0.02, 0.06], [0.04, 0.04]),
        ([0.8, 0.2, 0.6, 0.1], [0.8, 0.4, 0.4, 0.1]),
        ([0.1, 0.2, 0.6], [0.3, 0.3, 0.3]),
    ],
)
def test_confidences_never_rise_from_one_hit_to_the_next(
    confidences: list[float], levelled: list[float]
) -> None:
    assert confidence.smooth_confidences(confidences) == pytest.approx(levelled)


def test_levelling_ten_thousand_confidences_takes_no_longer_than_reading_them() -> None:
    assert confidence.smooth_confidences([number / 10_000 for number in range(10_000)])[
        0
    ] == pytest.approx(0.49995)
