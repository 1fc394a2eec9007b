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
from judgekit.evaluation.stats import (
    Measure,
    ReportPart,
    Resampling,
    intervals,
    mean,
)
from judgekit.ledger.rates import Interval
from judgekit.retrieval import bm25, index_file, parts, terms, update
from judgekit.retrieval.compiled import Profile, Profiles
from judgekit.retrieval.confidence import PROMPT_POOL, choose_shown, unfold_alike
from judgekit.retrieval.index_file import Index
from judgekit.retrieval.sources import Entry
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.evaluation.cases import Collection, CollectionDocument, CollectionQuery
    from judgekit.retrieval.confidence import Candidate
    from judgekit.retrieval.update import IndexWriter

    Grades = Mapping[str, Mapping[str, int]]
    Progress = Callable[[int], None]

_INSERT_FILE_SQL = """INSERT INTO file
    (number, path, folder, pending, live, id, title, category, tags, updated, language, sections)
    VALUES (?, ?, 0, 0, 1, ?, ?, ?, '', 0, ?, ?)"""


class SearchableCollection:
    """Documents to search, ranked by `profile`; raises `UsageError` if SQLite can't search."""

    def __init__(self, documents: Iterable[CollectionDocument], profile: Profile) -> None:
        """Index the documents in memory. Raises `UsageError` if SQLite has no full-text search."""
        if not index_file.has_full_text_search():
            raise UsageError(
                "this Python's SQLite has no full-text search (FTS5); use one that has"
            )
        self._profile = profile

        # `rank_documents` also returns weak matches, which the noise floor would remove.
        self._profile_without_floor = copy(profile)
        self._profile_without_floor.noise_floor = 0.0

        self.index = _create_index_in_memory(profile)
        with update.transaction(self.index) as writer:
            for number, document in enumerate(documents, 1):
                _add_document(writer, number, document, profile)

    def rank_documents(self, text: str, depth: int) -> list[str]:
        """Return the ids of the `depth` best documents, including near duplicates and weak matches."""
        # Start with the ranking of a normal search, which only looks at a pool of documents.
        candidates = self._search_index(text, self._profile_without_floor, bm25.POOL)
        if depth > bm25.POOL:
            # Continue with the ranking of a larger pool, which contains the first one's documents again.
            more_candidates = self._search_index(text, self._profile_without_floor, depth)
            candidates = [*candidates, *more_candidates]

        # Of equal ids, only keep the first.
        unique_ids = dict.fromkeys(candidate.id for candidate in unfold_alike(candidates))
        return list(unique_ids)[:depth]

    def find_candidates(self, text: str, pool: int = bm25.POOL) -> list[Candidate]:
        """Find candidates as the product does. The prompt hook has a smaller `pool` than a search."""
        return self._search_index(text, self._profile, pool)

    def close(self) -> None:
        self.index.close()

    def _search_index(self, text: str, profile: Profile, pool: int) -> list[Candidate]:
        """Search the index for up to `pool` candidates.

        This works like `judgekit search`. With a smaller pool than usual, it works like the prompt hook.
        """
        self.index.profile = profile  # `bm25.match` takes the profile from the index

        # `parts` shortens the text itself.
        shortened_text = terms.shorten_prompt(text)
        languages = terms.choose_languages(
            shortened_text, self.index.languages, self.index.rare_languages
        )

        # Only the hook asks for fewer candidates than a search.
        is_hook = pool < bm25.POOL
        if is_hook:
            query = parts.parse(text, *languages)
        else:
            query = parts.make_single_part(text, *languages)
        return bm25.match(self.index, query, pool, quick=is_hook)


def _create_index_in_memory(profile: Profile) -> Index:
    """Create an empty index in memory that knows only this profile."""
    profiles = Profiles({"languages": {}, "profiles": {}})
    profiles.by_kind[profile.kind] = profile

    # A collection's documents aren't files in a folder.
    folder = ""
    index = Index(index_file.connect(":memory:"), folder, profiles)
    update.create(index.connection, folder, profiles, profile.kind)
    return index


def _add_document(
    writer: IndexWriter, number: int, document: CollectionDocument, profile: Profile
) -> None:
    """Cut a document into sections, and add them to the index."""
    # A collection has no categories. If all documents have the same one, it doesn't affect their order.
    category = next(iter(profile.categories))
    body = document.text[: profile.max_bytes]
    entry = Entry(document.id, document.title, category, body=body)
    title = replace_surrogates(entry.title).replace("\0", " ")

    language = update.detect_language(entry, profile)
    reading_languages = update.choose_reading_languages(language, profile)
    columns, sections = update.cut_texts(entry, *reading_languages)

    path = entry.id  # a document isn't a file, so its id takes the place of the path
    row = (number, path, entry.id, title, category, language, len(sections))
    writer.execute(_INSERT_FILE_SQL, row)
    writer.add_text(number, columns, language, sections)


class ConfidenceReport(ReportPart):
    """The accuracy of confidences over the `hits` shown; `bins` and `labels` count the relevant ones."""

    hits: int
    brier: float | None
    ece: float | None
    bins: list[stats.Bin]
    labels: list[stats.LabelGroup]


class Injection(ReportPart):
    """The prompt hook's additions if every query had been a prompt, with the relevant share."""

    prompts: int
    answerable: int
    injected: Interval | None
    nudged: Interval | None
    precision: Interval | None
    coverage: Interval | None


class OtherScope(ReportPart):
    """The hook's additions from another scope, where nothing can be relevant."""

    prompts: int
    injected: Interval | None
    nudged: Interval | None


class RetrievalReport(ReportPart):
    """Means over the `judged` queries, of rankings `depth` deep; `strays` grade missing documents."""

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
    """Compute the normalised discounted cumulative gain of the first `k` documents.

    A gain is the grade itself (linear, not 2^grade - 1). The measure is from Järvelin and Kekäläinen,
    "Cumulated gain-based evaluation of IR techniques", TOIS 20(4), 2002. The discount is that of
    trec_eval's `ndcg_cut`: log2(rank + 1), with ranks from 1.
    """
    best_grades = sorted(grades.values(), reverse=True)[:k]
    ideal_gain = _compute_discounted_gain(best_grades)
    if ideal_gain == 0:
        return 0.0

    gains = _list_gains(ranking[:k], grades)
    return _compute_discounted_gain(gains) / ideal_gain


def _list_gains(ranking: Iterable[str], grades: Mapping[str, int]) -> list[int]:
    return [grades.get(document, 0) for document in ranking]


def _compute_discounted_gain(gains: Iterable[int]) -> float:
    """Compute the discounted cumulative gain (DCG) of these gains, best-ranked first."""
    total = 0.0
    for rank, gain in enumerate(gains, 1):
        if gain > 0:
            total += gain / log2(rank + 1)
    return total


def recall(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Compute the fraction of relevant documents that are among the first `k` (trec_eval's `recall`)."""
    relevant_count = _count_relevant(grades.values())
    if relevant_count == 0:
        return 0.0

    gains = _list_gains(ranking[:k], grades)
    return _count_relevant(gains) / relevant_count


def precision(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Compute the fraction of relevant documents in the first `k` (trec_eval's `P`)."""
    gains = _list_gains(ranking[:k], grades)
    return _count_relevant(gains) / k


def _count_relevant(grades: Iterable[int]) -> int:
    return sum(grade > 0 for grade in grades)


def reciprocal_rank(ranking: Iterable[str], grades: Mapping[str, int]) -> float:
    """Return the reciprocal rank of the first relevant document, or 0 (trec_eval's `recip_rank`)."""
    for rank, gain in enumerate(_list_gains(ranking, grades), 1):
        if gain > 0:
            return 1 / rank
    return 0.0


CUTOFF = 10
PRECISION_CUTOFF = 3
MAX_SHOWN_HITS = 10  # hits of a query whose confidence counts: as many as a search lists


class Seen(NamedTuple):
    """The ids in a query's `ranking`, the product's `candidates`, and those in another scope's documents."""

    query_id: str
    ranking: Sequence[str]
    candidates: Sequence[Candidate]
    other_scope_hits: Sequence[Candidate] | None


def split_by_injection(
    candidates: Sequence[Candidate],
) -> tuple[list[Candidate], list[Candidate]]:
    """Split candidates into those that the hook injects by default, and those that it mentions."""
    defaults = RetrievalConfig()
    return choose_shown(
        candidates[:PROMPT_POOL],
        max_inject=defaults.max_inject,
        inject=defaults.inject,
    )


def average_metrics(seen: Sequence[Seen], grades: Grades) -> dict[str, Interval | None]:
    """Average the metrics over all queries with judgements, as `trec_eval -c` does.

    Returns each metric's mean with its interval, by title.
    """
    # the metrics of each query
    gains = []
    recalls = []
    precisions = []
    reciprocal_ranks = []
    for result in seen:
        if result.query_id in grades:
            judgements = grades[result.query_id]
            gains.append(ndcg(result.ranking, judgements, CUTOFF))
            recalls.append(recall(result.ranking, judgements, CUTOFF))
            precisions.append(precision(result.ranking, judgements, PRECISION_CUTOFF))
            reciprocal_ranks.append(reciprocal_rank(result.ranking, judgements))

    measures = {
        f"nDCG@{CUTOFF}": mean(gains),
        f"R@{CUTOFF}": mean(recalls),
        f"P@{PRECISION_CUTOFF}": mean(precisions),
        "MRR": mean(reciprocal_ranks),
    }
    return intervals(measures)


def measure_confidence(seen: Sequence[Seen], grades: Grades) -> ConfidenceReport:
    """Compare the confidence of each query's first hits with their actual relevance."""
    probabilities = []
    outcomes = []
    confidence_labels = []
    for result in seen:
        judgements = grades.get(result.query_id, {})
        first_hits = result.candidates[:MAX_SHOWN_HITS]
        for hit in first_hits:
            is_relevant = judgements.get(hit.id, 0) > 0
            probabilities.append(hit.confidence)
            outcomes.append(is_relevant)
            confidence_labels.append(hit.confidence_label)

    return ConfidenceReport(
        hits=len(probabilities),
        brier=stats.brier(probabilities, outcomes),
        ece=stats.ece(probabilities, outcomes),
        bins=stats.bin_probabilities(probabilities, outcomes),
        labels=stats.group_by_label(confidence_labels, probabilities, outcomes),
    )


def measure_injection(seen: Sequence[Seen], grades: Grades) -> Injection:
    """Measure which hits the prompt hook would inject for each query, and how many of these are relevant."""
    hit_counts = []
    relevant_counts = []
    answerable_flags = []
    for result in seen:
        judgements = grades.get(result.query_id, {})
        injected_hits, _ = split_by_injection(result.candidates)
        hit_counts.append(len(injected_hits))
        relevant_counts.append(_count_relevant_hits(injected_hits, judgements))
        # A query is answerable if any document is relevant, even if the hook doesn't find it.
        answerable_flags.append(_count_relevant(judgements.values()) > 0)
    answered_flags = [count > 0 for count in relevant_counts]

    measures = _measure_additions([result.candidates for result in seen])
    # the fraction of injected hits that are relevant
    measures["precision"] = Measure(numerators=relevant_counts, denominators=hit_counts)
    # the fraction of answerable queries that get a relevant hit
    measures["coverage"] = Measure(numerators=answered_flags, denominators=answerable_flags)
    return Injection(prompts=len(seen), answerable=sum(answerable_flags), **intervals(measures))


def _count_relevant_hits(hits: Iterable[Candidate], judgements: Mapping[str, int]) -> int:
    """Count the hits that are judged as relevant."""
    ids = [hit.id for hit in hits]
    gains = _list_gains(ids, judgements)
    return _count_relevant(gains)


def measure_other_scope(seen: Sequence[Seen]) -> OtherScope | None:
    """Measure how much the hook would wrongly add from another scope.

    Returns None if there's only one scope.
    """
    candidates_by_prompt = []
    for result in seen:
        if result.other_scope_hits is not None:
            candidates_by_prompt.append(result.other_scope_hits)
    if not candidates_by_prompt:
        return None
    measures = _measure_additions(candidates_by_prompt)
    return OtherScope(prompts=len(candidates_by_prompt), **intervals(measures))


def _measure_additions(
    candidates_by_prompt: Sequence[Sequence[Candidate]],
) -> dict[str, Measure]:
    """Measure for how many prompts the hook would inject a memory, and for how many it would mention one."""
    has_injection = []
    has_mention = []
    for candidates in candidates_by_prompt:
        injected, mentioned = split_by_injection(candidates)
        has_injection.append(bool(injected))
        has_mention.append(bool(mentioned))
    # The report calls a mention a nudge.
    return {"injected": mean(has_injection), "nudged": mean(has_mention)}


DEPTH = 100  # of the rankings measured


def search(
    collection: Collection,
    profile: Profile,
    *,
    scoped: bool = False,
    progress: Progress = lambda _: None,
) -> list[Seen]:
    """Search the collection for each of its queries.

    If `scoped`, a search only covers the documents in the query's scope. A second search then covers another
    scope, in which nothing is relevant, to measure what the hook would show by mistake.
    """
    documents_by_scope = _group_by_scope(collection.documents, scoped=scoped)
    seen = []
    with _open_stores(documents_by_scope, profile) as store_by_scope:
        scopes = sorted(store_by_scope)
        for count, query in enumerate(collection.queries, 1):
            own_scope = get_scope(query.id) if scoped else ""
            own_store = store_by_scope.get(own_scope)
            other_scope = _next_scope(scopes, own_scope)
            other_store = None if other_scope is None else store_by_scope[other_scope]
            seen.append(_search_for_query(query, own_store, other_store))
            progress(count)
    return seen


def _group_by_scope(
    documents: Iterable[CollectionDocument], *, scoped: bool
) -> dict[str, list[CollectionDocument]]:
    """Group documents by scope. If not `scoped`, they're all in the scope ""."""
    documents_by_scope: dict[str, list[CollectionDocument]] = {}
    for document in documents:
        document_scope = get_scope(document.id) if scoped else ""
        documents_by_scope.setdefault(document_scope, []).append(document)
    return documents_by_scope


@contextmanager
def _open_stores(
    documents_by_scope: Mapping[str, Sequence[CollectionDocument]], profile: Profile
) -> Iterator[dict[str, SearchableCollection]]:
    """Index each scope's documents, and close the indexes when the block ends."""
    with ExitStack() as stack:
        store_by_scope = {}
        for name, documents in documents_by_scope.items():
            store = SearchableCollection(documents, profile)
            store_by_scope[name] = stack.enter_context(closing(store))
        yield store_by_scope


def _next_scope(names: Sequence[str], name: str) -> str | None:
    """Find the name after `name` in a sorted list, starting over at the end.

    Returns None if there's no other.
    """
    others = [other for other in names if other != name]
    if not others:
        return None
    for other in others:
        if other > name:
            return other
    return others[0]


def _search_for_query(
    query: CollectionQuery,
    own_store: SearchableCollection | None,
    other_store: SearchableCollection | None,
) -> Seen:
    """Search for a query in its own scope and in another one, where every result is a mistake.

    A store is None if the query's scope has no documents, or if there's no other scope.
    """
    ranking = []
    candidates = []
    if own_store is not None:
        ranking = own_store.rank_documents(query.text, DEPTH)
        # The hook would choose from these.
        candidates = own_store.find_candidates(query.text, PROMPT_POOL)

    candidates_elsewhere = None
    if other_store is not None:
        candidates_elsewhere = other_store.find_candidates(query.text, PROMPT_POOL)
    return Seen(query.id, ranking, candidates, candidates_elsewhere)


def report(
    collection: Collection, profile: Profile, seen: Sequence[Seen], *, scoped: bool = False
) -> RetrievalReport:
    """Build the report on searches in a collection. `seen` contains each query's results.

    If `scoped`, the report also counts the scopes. A document with the id `SCOPE/NAME` is in `SCOPE`.
    """
    grades = collection.grades
    documents = collection.documents
    judged_results = [result for result in seen if result.query_id in grades]
    scope_count = _count_scopes(documents) if scoped else None

    return RetrievalReport(
        collection=collection.name,
        documents=len(documents),
        scopes=scope_count,
        queries=len(seen),
        judged=len(judged_results),
        strays=collection.stray_count,
        profile={"retrieval": profile.kind, "version": profile.version},
        depth=DEPTH,
        metrics=average_metrics(seen, grades),
        confidence=measure_confidence(seen, grades),
        injection=measure_injection(seen, grades),
        elsewhere=measure_other_scope(seen),
    )


def _count_scopes(documents: Iterable[CollectionDocument]) -> int:
    """Count the different scopes in the documents' ids."""
    scopes = {get_scope(document.id) for document in documents}
    return len(scopes)


def get_scope(name: str) -> str:
    return name.partition("/")[0]


def check_run(path: Path, names: Iterable[str]) -> None:
    """Check that a TREC run can be written to `path`, and that it can contain these ids.

    Raises `UsageError` if the file isn't writable, and `InputError` for an id with spaces.
    """
    for name in names:
        is_single_word = name.split() == [name]
        if not is_single_word:
            raise InputError(f"id {name!r}: a TREC run cannot hold ids with spaces; rename it")

    with _explain_unwritable_run(path):
        # If the file can be opened, it's writable.
        descriptor = outputs.open_to_append(str(path), mode=outputs.DEFAULT_MODE)
        os.close(descriptor)


def write_run(path: Path, rankings: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Write a TREC run with lines `query Q0 document rank score tag`.

    Raises `UsageError` if the file can't be written.
    """
    with _explain_unwritable_run(path), outputs.Replacement(str(path)) as replacement:
        for query, ranking in rankings:
            for rank, document in enumerate(ranking, 1):
                # Programs break ties differently, so give every document its own score.
                score = len(ranking) - rank + 1
                run_line = f"{query} Q0 {document} {rank} {score} judgekit-{__version__}\n"
                replacement.file.write(run_line.encode())


@contextmanager
def _explain_unwritable_run(path: Path) -> Iterator[None]:
    """Convert an `OSError` in this block to a `UsageError` that names the option `--run`."""
    try:
        yield
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror}); name another file for --run"
        raise UsageError(problem) from None
