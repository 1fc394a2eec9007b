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
from judgekit.retrieval import bm25, index_file, parts, terms, update
from judgekit.retrieval.compiled import Profile, Profiles
from judgekit.retrieval.confidence import PROMPT_POOL, choose_shown, unfold_alike
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

_FILE = """INSERT INTO file
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

        # A ranking also contains matches that are too weak for a search, so its profile has no noise floor.
        self._profile_without_floor = copy(profile)
        self._profile_without_floor.noise_floor = 0.0

        # Create an index in memory with this single profile.
        profiles = Profiles({"languages": {}, "profiles": {}})
        profiles.by_kind[profile.kind] = profile
        category = next(iter(profile.categories))  # the same for all documents

        self.index = Index(index_file.connect(":memory:"), "", profiles)
        update.create(self.index.connection, "", profiles, profile.kind)

        # Add the documents.
        with update.transaction(self.index) as writer:
            for number, document in enumerate(documents, 1):
                body = document.text[: profile.max_bytes]
                entry = Entry(document.id, document.title, category, body=body)
                title = encodable(entry.title).replace("\0", " ")

                language = update.detect_language(entry, profile)
                languages = update.choose_reading_languages(language, profile)
                columns, sections = update.cut_texts(entry, *languages)

                row = (number, entry.id, entry.id, title, category, language, len(sections))
                writer.execute(_FILE, row)
                writer.add_text(number, columns, language, sections)

    def ranking(self, text: str, depth: int) -> list[str]:
        """Return the ids of the `depth` best documents, including near duplicates and weak matches."""
        # Start with the results that a user would get. A user's search only ranks a pool of documents, so for
        # more results, search again with a larger pool.
        candidates = self._search_index(text, self._profile_without_floor, bm25.POOL)
        if depth > bm25.POOL:
            more = self._search_index(text, self._profile_without_floor, depth)
            candidates = [*candidates, *more]
        ids = dict.fromkeys(candidate.id for candidate in unfold_alike(candidates))
        return list(ids)[:depth]

    def candidates(self, text: str, pool: int = bm25.POOL) -> list[Candidate]:
        """Find candidates as the product does. The prompt hook has a smaller `pool` than a search."""
        return self._search_index(text, self._profile, pool)

    def close(self) -> None:
        self.index.close()

    def _search_index(self, text: str, profile: Profile, pool: int) -> list[Candidate]:
        """Search the index as `judgekit search` does or, with a small pool, as the prompt hook does."""
        self.index.profile = profile
        is_hook = pool < bm25.POOL
        languages = terms.choose_languages(
            terms.shorten_prompt(text), self.index.languages, self.index.rare_languages
        )
        if is_hook:
            query = parts.parse(text, *languages)
        else:
            query = parts.make_single_part(text, *languages)
        return bm25.match(self.index, query, pool, quick=is_hook)


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
    ideal = _compute_discounted_gain(sorted(grades.values(), reverse=True)[:k])
    if ideal:
        return _compute_discounted_gain(_list_gains(ranking[:k], grades)) / ideal
    return 0.0


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
    relevant = _count_relevant(grades.values())
    if relevant:
        return _count_relevant(_list_gains(ranking[:k], grades)) / relevant
    return 0.0


def precision(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Compute the fraction of relevant documents in the first `k` (trec_eval's `P`)."""
    return _count_relevant(_list_gains(ranking[:k], grades)) / k


def _count_relevant(grades: Iterable[int]) -> int:
    return sum(grade > 0 for grade in grades)


def reciprocal_rank(ranking: Iterable[str], grades: Mapping[str, int]) -> float:
    """Return the reciprocal rank of the first relevant document, or 0 (trec_eval's `recip_rank`)."""
    for rank, gain in enumerate(_list_gains(ranking, grades), 1):
        if gain > 0:
            return 1 / rank
    return 0.0


CUTOFF = 10
FIRST = 3
SHOWN = 10  # hits of a query whose confidence counts: as many as a search lists


class Seen(NamedTuple):
    """The ids in a query's `ranking`, the product's `candidates`, and those in another scope's documents."""

    query: str
    ranking: Sequence[str]
    candidates: Sequence[Candidate]
    elsewhere: Sequence[Candidate] | None


def shown_by_hook(
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
    for answer in seen:
        if answer.query in grades:
            judgements = grades[answer.query]
            gains.append(ndcg(answer.ranking, judgements, CUTOFF))
            recalls.append(recall(answer.ranking, judgements, CUTOFF))
            precisions.append(precision(answer.ranking, judgements, FIRST))
            reciprocal_ranks.append(reciprocal_rank(answer.ranking, judgements))

    measures = {
        f"nDCG@{CUTOFF}": mean(gains),
        f"R@{CUTOFF}": mean(recalls),
        f"P@{FIRST}": mean(precisions),
        "MRR": mean(reciprocal_ranks),
    }
    return intervals(measures)


def measure_confidence(seen: Sequence[Seen], grades: Grades) -> ConfidenceReport:
    """Compare the confidence of each query's first hits with their actual relevance."""
    probabilities = []
    outcomes = []
    confidence_labels = []
    for answer in seen:
        for hit in answer.candidates[:SHOWN]:
            probabilities.append(hit.confidence)
            outcomes.append(grades.get(answer.query, {}).get(hit.id, 0) > 0)
            confidence_labels.append(hit.confidence_label)

    return ConfidenceReport(
        hits=len(probabilities),
        brier=stats.brier(probabilities, outcomes),
        ece=stats.ece(probabilities, outcomes),
        bins=stats.bin_probabilities(probabilities, outcomes),
        labels=stats.group_by_label(confidence_labels, probabilities, outcomes),
    )


def measure_injection(seen: Sequence[Seen], grades: Grades) -> Injection:
    """Measure how many hits the prompt hook would add to the queries, and how many of these are relevant."""
    # for each query
    injected = []  # the number of added hits
    relevant = []  # the number of relevant hits among these
    has_relevant = []  # whether there's a relevant hit among these
    answerable = []  # whether any document is relevant

    for answer in seen:
        judgements = grades.get(answer.query, {})
        hits, _ = shown_by_hook(answer.candidates)
        count = _count_relevant(_list_gains([hit.id for hit in hits], judgements))
        injected.append(len(hits))
        relevant.append(count)
        has_relevant.append(count > 0)
        answerable.append(_count_relevant(judgements.values()) > 0)

    measures = _measure_additions([answer.candidates for answer in seen])
    measures["precision"] = Measure(numerators=relevant, denominators=injected)
    measures["coverage"] = Measure(numerators=has_relevant, denominators=answerable)
    return Injection(prompts=len(seen), answerable=sum(answerable), **intervals(measures))


def measure_other_scope(seen: Sequence[Seen]) -> OtherScope | None:
    """Measure how much the hook would wrongly add from another scope.

    Returns None if there's only one scope.
    """
    candidates_by_prompt = []
    for answer in seen:
        if answer.elsewhere is not None:
            candidates_by_prompt.append(answer.elsewhere)
    if not candidates_by_prompt:
        return None
    measures = _measure_additions(candidates_by_prompt)
    return OtherScope(prompts=len(candidates_by_prompt), **intervals(measures))


def _measure_additions(prompts: Sequence[Sequence[Candidate]]) -> dict[str, Measure]:
    """Measure how often the prompt hook would inject or mention a memory, given each prompt's candidates."""
    has_injection = []
    has_mention = []
    for candidates in prompts:
        injected, mentioned = shown_by_hook(candidates)
        has_injection.append(bool(injected))
        has_mention.append(bool(mentioned))
    return {"injected": mean(has_injection), "nudged": mean(has_mention)}


DEPTH = 100  # of the rankings measured


def search(
    collection: Collection,
    profile: Profile,
    *,
    scoped: bool = False,
    progress: Progress = lambda _: None,
) -> list[Seen]:
    """Search for each query among all documents or, if `scoped`, among those in the same scope.

    If `scoped`, also search another scope, where nothing is relevant, to measure what the hook would show by
    mistake.
    """
    documents_by_scope: dict[str, list[CollectionDocument]] = {}
    for document in collection.documents:
        document_scope = scope(document.id) if scoped else ""
        documents_by_scope.setdefault(document_scope, []).append(document)

    seen = []
    with ExitStack() as stack:
        store_by_scope = {}
        for name, documents in documents_by_scope.items():
            store = SearchableCollection(documents, profile)
            store_by_scope[name] = stack.enter_context(closing(store))

        scopes = sorted(store_by_scope)
        for count, query in enumerate(collection.queries, 1):
            query_scope = scope(query.id) if scoped else ""
            ranking = []
            candidates = []
            if query_scope in store_by_scope:
                store = store_by_scope[query_scope]
                ranking = store.ranking(query.text, DEPTH)
                candidates = store.candidates(query.text, PROMPT_POOL)  # as the hook asks for them

            candidates_elsewhere = None
            other_scope = _next_scope(scopes, query_scope)
            if other_scope is not None:
                other_store = store_by_scope[other_scope]
                candidates_elsewhere = other_store.candidates(query.text, PROMPT_POOL)
            seen.append(Seen(query.id, ranking, candidates, candidates_elsewhere))
            progress(count)
    return seen


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


def report(
    collection: Collection, profile: Profile, seen: Sequence[Seen], *, scoped: bool = False
) -> RetrievalReport:
    """Build the report on searches in a collection. `seen` contains each query's results.

    If `scoped`, the report includes the number of scopes, which are the first parts of ids such as
    `SCOPE/NAME`.
    """
    grades = collection.grades
    documents = collection.documents
    scopes = None
    if scoped:
        scopes = len({scope(document.id) for document in documents})

    return RetrievalReport(
        collection=collection.name,
        documents=len(documents),
        scopes=scopes,
        queries=len(seen),
        judged=sum(answer.query in grades for answer in seen),
        strays=collection.strays,
        profile={"retrieval": profile.kind, "version": profile.version},
        depth=DEPTH,
        metrics=average_metrics(seen, grades),
        confidence=measure_confidence(seen, grades),
        injection=measure_injection(seen, grades),
        elsewhere=measure_other_scope(seen),
    )


def scope(name: str) -> str:
    return name.partition("/")[0]


def check_run(path: Path, names: Iterable[str]) -> None:
    """Check that a TREC run can be written to `path`, and that it can contain these ids.

    Raises `UsageError` if the file isn't writable, and `InputError` for an id with spaces.
    """
    for name in names:
        if name.split() != [name]:
            raise InputError(f"id {name!r}: a TREC run cannot hold ids with spaces; rename it")
    with _name_run_option(path):
        # Open and close the file, to check that it's writable.
        os.close(outputs.open_to_append(str(path), mode=outputs.DEFAULT_MODE))


def write_run(path: Path, rankings: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Write a TREC run with lines `query Q0 document rank score tag`. Raises `UsageError`."""
    with _name_run_option(path), outputs.Replacement(str(path)) as replacement:
        for query, ranking in rankings:
            for rank, document in enumerate(ranking, 1):
                # Programs break ties differently, so give every document its own score.
                score = len(ranking) - rank + 1
                run_line = f"{query} Q0 {document} {rank} {score} judgekit-{__version__}\n"
                replacement.file.write(run_line.encode())


@contextmanager
def _name_run_option(path: Path) -> Iterator[None]:
    """Convert an `OSError` in this block to a `UsageError` that names the option `--run`."""
    try:
        yield
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror}); name another file for --run"
        raise UsageError(problem) from None
