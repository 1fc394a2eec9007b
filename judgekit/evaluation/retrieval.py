"""Measures retrieval on a labelled collection: runs every query and computes the measures of trec_eval."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, contextmanager
from copy import copy
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from judgekit import outputs
from judgekit.config.settings import RetrievalConfig
from judgekit.environment import __version__
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import stats
from judgekit.evaluation.stats import Measure, ReportPart, Resampling, intervals, mean
from judgekit.ledger.rates import Interval
from judgekit.retrieval import bm25, index_file, parts, update
from judgekit.retrieval.compiled import Profile, Profiles
from judgekit.retrieval.confidence import PROMPT_POOL, choose_shown
from judgekit.retrieval.index_file import Index
from judgekit.retrieval.sources import Entry
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.evaluation.cases import Collection, CollectionDocument
    from judgekit.retrieval.confidence import Candidate

    Grades = Mapping[str, Mapping[str, int]]
    Progress = Callable[[int], None]

_FILE = """INSERT INTO file (number, path, folder, pending, live, id, title, category, tags, updated)
    VALUES (?, ?, 0, 0, 1, ?, ?, ?, '', 0)"""


class CollectionIndex:
    """Documents to search, ranked by `profile`; raises `UsageError` where SQLite cannot search."""

    def __init__(self, documents: Iterable[CollectionDocument], profile: Profile) -> None:
        if not index_file.available():
            raise UsageError(
                "this Python's SQLite has no full-text search (FTS5); use one that has"
            )
        self._profile = profile
        self._everything = copy(profile)
        self._everything.noise_floor = 0.0
        profiles = Profiles({"languages": {}, "profiles": {}})
        category = next(iter(profile.categories))
        profiles.by_kind[profile.kind] = profile
        self.index = Index(index_file.connect(":memory:"), "", profiles)
        update.create(self.index.connection, "", profiles, profile.kind)
        with update.transaction(self.index) as writer:
            for number, document in enumerate(documents, 1):
                entry = Entry(
                    document.id, document.title, category, body=document.text[: profile.max_bytes]
                )
                title = encodable(entry.title).replace("\0", " ")
                writer.execute(_FILE, (number, entry.id, entry.id, title, category))
                writer.add_text(number, update.texts(entry, profile.language))

    def ranking(self, text: str, depth: int) -> list[str]:
        """Return the ids of the `depth` best documents, without noise floor; the product's own are first."""
        head = self._find(text, self._everything, bm25.POOL)
        if depth > bm25.POOL:
            deeper = self._find(text, self._everything, depth)
        else:
            deeper = []
        return list(dict.fromkeys(candidate.id for candidate in (*head, *deeper)))[:depth]

    def candidates(self, text: str, pool: int = bm25.POOL) -> list[Candidate]:
        """Return what the product finds; the prompt hook looks at a smaller `pool` than a search."""
        return self._find(text, self._profile, pool)

    def close(self) -> None:
        self.index.close()

    def _find(self, text: str, profile: Profile, pool: int) -> list[Candidate]:
        self.index.profile = profile
        if pool < bm25.POOL:
            cut = parts.parse
        else:
            cut = parts.whole
        return bm25.match(self.index, cut(text, profile.language), pool, quick=pool < bm25.POOL)


class ConfidenceReport(ReportPart):
    """How far confidences were right: `hits` were shown, `bins` and `labels` say how many were relevant."""

    hits: int
    brier: float | None
    ece: float | None
    bins: list[stats.Bin]
    labels: list[stats.LabelGroup]


class Injection(ReportPart):
    """What the prompt hook would have added, had every query been a prompt, and how much was relevant."""

    prompts: int
    answerable: int
    injected: Interval | None
    nudged: Interval | None
    precision: Interval | None
    coverage: Interval | None


class OtherScope(ReportPart):
    """What the hook would have added from another scope, where nothing can be relevant."""

    prompts: int
    injected: Interval | None
    nudged: Interval | None


class RetrievalReport(ReportPart):
    """Means over the `judged` queries, of rankings `depth` deep; `strays` judge what is not there."""

    collection: str
    documents: int
    scopes: int | None
    queries: int
    judged: int
    strays: int
    profile: dict[str, str]
    depth: int
    metrics: dict[str, Interval | None]
    confidence: ConfidenceReport
    injection: Injection
    elsewhere: OtherScope | None
    bootstrap: Resampling = Resampling()


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first `k`.

    A gain is the grade itself (linear, not 2^grade - 1). Järvelin and Kekäläinen, "Cumulated gain-based
    evaluation of IR techniques", TOIS 20(4), 2002, with the discount of trec_eval's `ndcg_cut`: log2(place +
    1), from 1.
    """

    def discounted(gains: Iterable[int]) -> float:
        return sum(gain / log2(place + 1) for place, gain in enumerate(gains, 1) if gain > 0)

    ideal = discounted(sorted(grades.values(), reverse=True)[:k])
    if ideal:
        return discounted(grades.get(each, 0) for each in ranking[:k]) / ideal
    return 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return how much of what is relevant is among the first `k` (trec_eval's `recall`)."""
    relevant = sum(grade > 0 for grade in grades.values())
    if relevant:
        return sum(grades.get(each, 0) > 0 for each in ranking[:k]) / relevant
    return 0.0


def precision(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the relevant ones among the first `k`, divided by `k` (trec_eval's `P`)."""
    return sum(grades.get(each, 0) > 0 for each in ranking[:k]) / k


def reciprocal_rank(ranking: Iterable[str], grades: Mapping[str, int]) -> float:
    """Return 1 over the place of the first relevant document (trec_eval's `recip_rank`; its mean is MRR)."""
    return next(
        (1 / place for place, each in enumerate(ranking, 1) if grades.get(each, 0) > 0), 0.0
    )


CUTOFF = 10
FIRST = 3
SHOWN = 10  # hits of a query whose confidence counts: what a search lists


class Seen(NamedTuple):
    """The ids of a query's `ranking`, the product's `candidates`, and those of another scope's documents."""

    query: str
    ranking: Sequence[str]
    candidates: Sequence[Candidate]
    elsewhere: Sequence[Candidate] | None


def shown_by_hook(
    candidates: Sequence[Candidate],
) -> tuple[list[Candidate], list[Candidate]]:
    """Return which candidates the hook injects by default, and which others it only mentions."""
    usual = RetrievalConfig()
    return choose_shown(
        candidates[:PROMPT_POOL],
        max_inject=usual.max_inject,
        inject=usual.inject,
    )


def metrics_of(seen: Sequence[Seen], grades: Grades) -> dict[str, Interval | None]:
    """Return the means over the queries that have judgements, as `trec_eval -c` forms them."""
    values: dict[str, list[float]] = {
        f"nDCG@{CUTOFF}": [],
        f"R@{CUTOFF}": [],
        f"P@{FIRST}": [],
        "MRR": [],
    }
    for answer in seen:
        if answer.query not in grades:
            continue
        ranking = answer.ranking
        judgements = grades[answer.query]
        values[f"nDCG@{CUTOFF}"].append(ndcg(ranking, judgements, CUTOFF))
        values[f"R@{CUTOFF}"].append(recall(ranking, judgements, CUTOFF))
        values[f"P@{FIRST}"].append(precision(ranking, judgements, FIRST))
        values["MRR"].append(reciprocal_rank(ranking, judgements))
    return intervals({name: mean(measured) for name, measured in values.items()})


def confidence_of(seen: Sequence[Seen], grades: Grades) -> ConfidenceReport:
    shown = []
    for each in seen:
        for hit in each.candidates[:SHOWN]:
            shown.append((each.query, hit))
    probabilities = [hit.confidence for _, hit in shown]
    outcomes = [_is_relevant(query, hit, grades) for query, hit in shown]
    labels = stats.by_label([hit.confidence_label for _, hit in shown], probabilities, outcomes)
    return ConfidenceReport(
        hits=len(shown),
        brier=stats.brier(probabilities, outcomes),
        ece=stats.ece(probabilities, outcomes),
        bins=stats.table(probabilities, outcomes),
        labels=labels,
    )


def injection_of(seen: Sequence[Seen], grades: Grades) -> Injection:
    injected = [(each.query, shown_by_hook(each.candidates)[0]) for each in seen]
    right = []
    for query, hits in injected:
        right.append(sum(_is_relevant(query, hit, grades) for hit in hits))
    answerable = []
    for each in seen:
        answerable.append(any(grade > 0 for grade in grades.get(each.query, {}).values()))
    measures = _shares([each.candidates for each in seen])
    measures["precision"] = Measure(right, [len(hits) for _, hits in injected])
    measures["coverage"] = Measure([count > 0 for count in right], answerable)
    return Injection(prompts=len(seen), answerable=sum(answerable), **intervals(measures))


def elsewhere_of(seen: Sequence[Seen]) -> OtherScope | None:
    prompts = [each.elsewhere for each in seen if each.elsewhere is not None]
    if prompts:
        return OtherScope(prompts=len(prompts), **intervals(_shares(prompts)))
    return None


def _shares(prompts: Sequence[Sequence[Candidate]]) -> dict[str, Measure]:
    added = [shown_by_hook(candidates) for candidates in prompts]
    return {
        "injected": mean([bool(injected) for injected, _ in added]),
        "nudged": mean([bool(mentioned) for _, mentioned in added]),
    }


def _is_relevant(query: str, hit: Candidate, grades: Grades) -> bool:
    return grades.get(query, {}).get(hit.id, 0) > 0


DEPTH = 100  # of the rankings that are measured


def search(
    collection: Collection,
    profile: Profile,
    *,
    scoped: bool = False,
    progress: Progress = lambda _: None,
) -> list[Seen]:
    """Return what each query finds; with `scoped` each scope is a store, and the next one is tried, too."""
    with ExitStack() as stack:
        scopes: dict[str, list[CollectionDocument]] = {}
        for document in collection.documents:
            scopes.setdefault(scope(document.id) if scoped else "", []).append(document)
        stores = {name: CollectionIndex(documents, profile) for name, documents in scopes.items()}
        for store in stores.values():
            stack.enter_context(closing(store))
        names = sorted(stores)
        seen = []
        for done, query in enumerate(collection.queries, 1):
            name = scope(query.id) if scoped else ""
            own = stores.get(name)
            following = [*(each for each in names if each > name), *names]
            other = next((stores[each] for each in following if each != name), None)
            ranking: list[str] = []
            candidates: list[Candidate] = []
            if own:
                ranking = own.ranking(query.text, DEPTH)
                candidates = own.candidates(query.text, PROMPT_POOL)
            elsewhere = other.candidates(query.text, PROMPT_POOL) if other else None
            seen.append(Seen(query.id, ranking, candidates, elsewhere))
            progress(done)
    return seen


def report(
    collection: Collection, profile: Profile, seen: Sequence[Seen], *, scoped: bool = False
) -> RetrievalReport:
    grades = collection.grades
    if scoped:
        scopes = len({scope(document.id) for document in collection.documents})
    else:
        scopes = None
    judged = sum(each.query in grades for each in seen)
    return RetrievalReport(
        collection=collection.name,
        documents=len(collection.documents),
        scopes=scopes,
        queries=len(seen),
        judged=judged,
        strays=collection.strays,
        profile={"retrieval": profile.kind, "version": profile.version},
        depth=DEPTH,
        metrics=metrics_of(seen, grades),
        confidence=confidence_of(seen, grades),
        injection=injection_of(seen, grades),
        elsewhere=elsewhere_of(seen),
    )


def scope(name: str) -> str:
    return name.partition("/")[0]


def check_run(path: Path, names: Iterable[str]) -> None:
    """Raise `UsageError` when `path` cannot be written, `InputError` when an id does not fit the format."""
    wrong = next((name for name in names if name.split() != [name]), None)
    if wrong is not None:
        raise InputError(f"id {wrong!r}: a TREC run cannot hold ids with spaces; rename it")
    with _written(path):
        os.close(outputs.open_to_append(str(path), mode=outputs.USUAL))


def write_run(path: Path, rankings: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Write a TREC run, a line `query Q0 document rank score tag` a document; raises `UsageError`."""
    with _written(path), outputs.Replacement(str(path)) as replacement:
        for query, ranking in rankings:
            for rank, document in enumerate(ranking, 1):
                score = len(ranking) - rank + 1  # ties would be broken in ways of each reader
                line = f"{query} Q0 {document} {rank} {score} judgekit-{__version__}\n"
                replacement.file.write(line.encode())


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror}); name another file for --run"
        raise UsageError(problem) from None
