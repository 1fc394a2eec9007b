"""What a search returns, in which order, and how likely each hit is to be relevant.

A logistic regression on the four features of `Features`. Its coefficients are data (`confidence` in
retrieval/*.yaml), fitted by bench/confidence.py; docs/decisions/confidence.md says on what, and what else
was tried.

Hits are ordered by score, then by the category's priority, then by age; the noise is cut.
"""

from __future__ import annotations

import os
import time
from math import exp, log

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.query import Term


class Candidate:
    """A memory or document that may answer the query.

    `path` is as shown: relative to the project where it is inside. `file` is the absolute path, `place` the
    path relative to the real folder `root`. `bm25` is the score, higher is better and comparable within one
    store only (points, where the keyword scorer ranked). `confidence` is the probability that it is relevant;
    `worth_mentioning` is false for one so unlikely that a prompt should not be told of it. `damaged` says
    that its file could not be read: it may be retired, so it is never more than mentioned. `updated` is in
    seconds since the epoch.
    """

    bm25: float
    confidence: float
    confidence_label: str
    features: Features
    worth_mentioning: bool
    path: str

    def __init__(
        self,
        id: str,  # noqa: A002 - the published name of the attribute
        title: str,
        category: str,
        *,
        tags: tuple[str, ...],
        updated: float,
        root: str,
        place: str,
        kind: str,
    ) -> None:
        self.id, self.title, self.category, self.tags, self.updated = id, title, category, tags, updated
        self.root, self.place, self.kind = root, place, kind
        self.file = os.path.join(root, *place.split("/"))
        self.snippet, self.damaged = "", False

    def pin(self) -> None:
        """Give a candidate that no query found what every candidate has."""
        self.bm25, self.confidence, self.confidence_label, self.worth_mentioning = 0.0, 1.0, "high", True


class RankedCandidates:
    """The answer to a query: candidates, best first, and `notes`, one line each for stderr.

    `pinned` are those that the caller asked for by name; they are not among `candidates`. `fallback`
    says in a word why the full-text index was not used; None when it was.
    """

    def __init__(self, candidates: list[Candidate], notes: list[str], fallback: str | None = None) -> None:
        self.candidates, self.notes, self.fallback = candidates, notes, fallback
        self.pinned: list[Candidate] = []


class Hit:
    """A candidate, its score, and the numbers of the query's terms that occur in it.

    `titled` are those of `matched` that occur in its title or tags. `text` holds its words as the query's are
    compared with them, title first, and `length` is how many there are.
    """

    def __init__(self, candidate: Candidate, score: float) -> None:
        self.candidate, self.score = candidate, score
        self.matched: set[int] = set()
        self.titled: set[int] = set()
        self.text, self.length = "", 0


class Statistics:
    """What is known of the query's terms in one store: the number of documents, and how rare each term is.

    `words` are the terms that are single words, as they are compared.
    """

    def __init__(self, terms: list[Term], matches: list[int], documents: int, profile: Profile) -> None:
        self.documents = documents
        self.words = list(dict.fromkeys(term.phrases[0] for term in terms if " " not in term.phrases[0]))
        self.rarities = [
            rarity(count, documents, profile.background, common=term.common)
            for term, count in zip(terms, matches, strict=True)
        ]


class Features:
    """What a hit's confidence rests on; none of it is a model's opinion.

    `odds`: logarithm of the odds that this entry is meant and no other one: its evidence (see `evidence`)
    against that of the others, -12..12. `titled`: of the query's terms that any hit has in its title
    or tags, the share that this one has there, weighted by rarity, 0..1. `near`: the share of the query's
    successive words that stand together in it too, 0..1. `alone`: 1 over the number of hits, itself
    included, with as much evidence: of several that fit equally well not all are meant. A single word in
    common is no distinction: it counts as one hit more.
    `coverage`: the share of the query's terms that occur in it, weighted by rarity, 0..1; to show, not used.
    """

    def __init__(
        self, *, odds: float, titled: float, near: float, alone: float, coverage: float = 0.0
    ) -> None:
        self.odds, self.titled, self.near, self.alone, self.coverage = odds, titled, near, alone, coverage


SAME = 1.0  # evidence (natural logarithm of a likelihood ratio) that differs by less is taken for equal
SEVERAL = 2  # words in common
NEAR = 3  # words apart, at most, that still stand together
PAIRS = 6  # of a query that are asked for: a long prompt need not be repeated whole
LONG = 25  # words of a body, beyond which some of the query's occur in it by chance
READ = 4_000  # characters of an entry in which `near` is looked for
MOST = 12.0  # of `odds`, either way
UNKNOWN = 0.5  # `titled` where no title has any word of the query
_DAY = 86_400
_DIGITS = 6  # of a score relative to the best: what is equal up to here is a tie


def rarity(matches: int, documents: int, background: Mapping[str, float], *, common: bool) -> float:
    """Return the inverse document frequency of a term, smoothed by an imagined collection.

    The smoothing keeps it meaningful where bm25's own is not: with one document every term is in all or none.
    """
    imagined = background["documents"]
    expected = imagined * background["common" if common else "plain"]
    having = matches + expected
    return log(1 + (documents + imagined - having + 0.5) / (having + 0.5))


def weight(rarities: Sequence[float], terms: Iterable[int]) -> float:
    """Return the rarity of some of the query's terms together."""
    return sum([rarities[number] for number in terms])


def evidence(
    rarities: Sequence[float],
    matched: Collection[int],
    titled: Collection[int],
    length: int,
    body_share: float,
) -> float:
    """Return how much the terms that occur in an entry speak for it, as the logarithm of a likelihood ratio.

    Each counts its rarity (Robertson and Spärck Jones, "Relevance weighting of search terms", 1976), one that
    stands in the body alone `body_share` of it; and less where the body's `length` in words makes it likely
    that it stands there by chance.
    """
    chance = log(length / LONG) if length > LONG else 0.0
    in_body = sum([max(rarities[number] - chance, 0.0) for number in matched if number not in titled])
    return weight(rarities, titled) + body_share * in_body


def rivals(matched: Sequence[frozenset[int]], evidences: Sequence[float]) -> list[list[float]]:
    """Return, for each hit, the evidence of all that have a term in common with it, itself included.

    Hits that answer to different parts of a prompt may all be meant.
    """
    groups: dict[frozenset[int], list[float]] = {}
    for terms, one in zip(matched, evidences, strict=True):
        groups.setdefault(terms, []).append(one)
    found = {
        terms: [one for other, same in groups.items() if not terms.isdisjoint(other) for one in same]
        for terms in groups
    }
    return [found[terms] for terms in matched]


def odds(evidence: float, among: Sequence[float], documents: int, background: Mapping[str, float]) -> float:
    """Return the logarithm of the odds that the entry with this evidence is the one that is meant.

    By Bayes' rule: every entry of the store may be, and so may any of an imagined collection. Those that are
    not `among` its rivals, itself included, have no evidence.
    """
    silent = max(documents - len(among), 0) + background["documents"]
    others = max(sum(map(exp, among)) - exp(evidence), 0.0)
    return min(max(evidence - log(others + silent), -MOST), MOST)


def near(words: Sequence[str], tokens: Iterable[str]) -> float:
    """Return the share of successive `words` of a query that stand at most `NEAR` apart in `tokens`, 0..1."""
    numbers = {word: number for number, word in enumerate(words)}
    last = [-NEAR - 1] * (len(words) + 1)  # one more at the end, which is also the one before the first
    together = set()
    for place, token in enumerate(tokens):
        number = numbers.get(token)
        if number is None:
            continue
        last[number] = place
        if place - last[number - 1] <= NEAR:
            together.add(number - 1)
        if place - last[number + 1] <= NEAR:
            together.add(number)
    return min(len(together) / min(len(words) - 1, PAIRS), 1.0) if len(words) > 1 else 0.0


def features(hits: Sequence[Hit], statistics: Statistics, profile: Profile) -> list[Features]:
    """Return the features of each of the hits of one query."""
    rarities, share = statistics.rarities, profile.confidence["body_share"]
    evidences = [evidence(rarities, hit.matched, hit.titled, hit.length, share) for hit in hits]
    against = rivals([frozenset(hit.matched) for hit in hits], evidences)
    in_titles = weight(rarities, set().union(*[hit.titled for hit in hits]))
    everything = sum(rarities)
    found = []
    for hit, own, others in zip(hits, evidences, against, strict=True):
        several = len(hit.matched) >= SEVERAL
        found.append(
            Features(
                odds=odds(own, others, statistics.documents, profile.background),
                titled=weight(rarities, hit.titled) / in_titles if in_titles else UNKNOWN,
                near=near(statistics.words, hit.text[:READ].split()) if several else 0.0,
                alone=1 / (sum([other > own - SAME for other in others]) + (not several)),
                coverage=weight(rarities, hit.matched) / everything if everything else 0.0,
            )
        )
    return found


def probability(found: Features, profile: Profile) -> float:
    """Return the probability, 0..1, that a hit with these features is relevant."""
    factor = profile.confidence
    logit = factor["intercept"] + factor["odds"] * found.odds + factor["titled"] * found.titled
    logit += factor["near"] * found.near + factor["alone"] * found.alone
    return 1 / (1 + exp(-logit))


def label(probability: float, profile: Profile) -> str:
    """Return `high`, `medium` or `low`."""
    if probability >= profile.labels["high"]:
        return "high"
    return "medium" if probability >= profile.labels["medium"] else "low"


def order(hits: list[Hit], statistics: Statistics, profile: Profile) -> list[Candidate]:
    """Return the candidates of `hits`, best first, without those below the noise floor."""
    if not hits:
        return []
    floor = profile.noise_floor * max(hit.candidate.bm25 for hit in hits)
    kept = [hit for hit in hits if hit.candidate.bm25 >= floor]
    best = max(hit.score for hit in kept) or 1
    recent = time.time() - profile.recent_days * _DAY

    def place(hit: Hit) -> tuple[float, int, bool, float]:
        updated = hit.candidate.updated
        tied = -round(hit.score / best, _DIGITS)
        return tied, profile.priority(hit.candidate.category), updated < recent, -updated

    kept.sort(key=place)
    for hit, found in zip(kept, features(kept, statistics, profile), strict=True):
        candidate, medium = hit.candidate, profile.labels["medium"]
        candidate.features, candidate.confidence = found, probability(found, profile)
        candidate.confidence_label = label(candidate.confidence, profile)
        if candidate.damaged:
            candidate.confidence = min(candidate.confidence, medium)
            candidate.confidence_label = "medium" if candidate.confidence >= medium else "low"
        candidate.worth_mentioning = candidate.confidence >= profile.labels["mention"]
    return [hit.candidate for hit in kept]
