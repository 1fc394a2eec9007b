"""How good the ranking is, against yardsticks measured in the same run.

python bench/retrieval.py --data DIR [--json] [--write FILE]

For every collection under DIR/retrieval: nDCG@10 (linear gains) and recall@10 of this program, by its own
index, and of plain FTS5 (porter stems, the query's words as prefixes or whole, any of them). Where they
can be imported, also of rank-bm25 over Snowball stems and of tantivy with its English stemmer. All leave out
the same stop words. The intervals are bootstrapped over the queries.

It also chooses settings anew: on half of the queries of each collection the best of a few is taken, one for
all collections, and reported on the other half beside the settings that are shipped.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import sqlite3
import statistics
import sys
import time
import zlib
from contextlib import closing
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.evaluation import cases, retrieval, stats
from judgekit.evaluation.retrieval import SearchableCollection
from judgekit.retrieval import terms
from judgekit.retrieval.compiled import KINDS, Profiles, get_bundled_data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.evaluation.cases import Collection, CollectionDocument
    from judgekit.retrieval.compiled import Profile

    Search = Callable[[str], list[str]]

DEPTH = 10
OURS = "judgekit"
CHOICES = {"padding": (0, 10, 20), "share": (0.0, 0.2, 0.35, 0.5)}


class Run(NamedTuple):
    """One method's figures for each query of a collection, and microseconds a query."""

    ndcg: dict[str, float]
    recall: dict[str, float]
    microseconds: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    folders = sorted(
        each.parent for each in (options.data / "retrieval").glob(f"*/{cases.CORPUS_FILE}")
    )
    if not folders:
        raise SystemExit(f"{options.data}: expected retrieval/<collection>/{cases.CORPUS_FILE}")
    collections = [cases.read_collection(folder) for folder in folders]
    runs = {each.name: measure(each) for each in collections}
    results = {
        "figures": {name: figures(run) for name, run in runs.items()},
        "chosen": choose(collections, runs),
    }
    report = tables(results)
    print(json.dumps(results) if options.json else report)
    if options.write:
        options.write.write_text(f"# Retrieval\n\n{report}\n", encoding="utf-8")
    return 0


def measure(data: Collection) -> dict[str, Run]:
    """Return the run of each method on a collection."""
    return {name: run(data, make) for name, make in (*yardsticks(), (OURS, ours(shipped())))}


def run(data: Collection, make: Callable[[list[CollectionDocument]], Search]) -> Run:
    """Search for every query of a collection, within its scope."""
    scoped = all(
        "/" in collection_query.id for collection_query in (*data.documents, *data.queries)
    )
    documents: dict[str, list[CollectionDocument]] = {}
    for document in data.documents:
        documents.setdefault(retrieval.get_scope(document.id) if scoped else "", []).append(
            document
        )
    searches = {scope: make(of) for scope, of in documents.items()}
    ndcg, recall, seconds = {}, {}, 0.0
    for query in data.queries:
        search = searches.get(retrieval.get_scope(query.id) if scoped else "", nothing)
        begun = time.process_time()
        found = search(query.text)
        seconds += time.process_time() - begun
        grades = data.grades.get(query.id, {})
        ndcg[query.id] = retrieval.ndcg(found, grades, DEPTH)
        recall[query.id] = retrieval.recall(found, grades, DEPTH)
    return Run(ndcg, recall, seconds / max(len(ndcg), 1) * 1e6)


def nothing(text: str) -> list[str]:
    """Find nothing: in a scope without documents."""
    del text
    return []


def shipped() -> Profile:
    """Return the bundled profile of a memory store, a copy that may be changed."""
    return Profiles(deepcopy(get_bundled_data())).by_kind[KINDS[0]]


def ours(profile: Profile) -> Callable[[list[CollectionDocument]], Search]:
    """Search as this program does."""

    def make(documents: list[CollectionDocument]) -> Search:
        store = SearchableCollection(documents, profile)
        return lambda text: [candidate.id for candidate in store.find_candidates(text)[:DEPTH]]

    return make


def yardsticks() -> list[tuple[str, Callable[[list[CollectionDocument]], Search]]]:
    """Return the other methods that can be run here."""
    found: list[tuple[str, Callable[[list[CollectionDocument]], Search]]] = [
        ("FTS5 porter, prefixes", lambda documents: fts5(documents, "*")),
        ("FTS5 porter, whole words", lambda documents: fts5(documents, "")),
    ]
    for name, module, make in (
        ("rank-bm25", "rank_bm25", rank_bm25),
        ("tantivy", "tantivy", tantivy),
    ):
        try:
            importlib.import_module(module)
        except ImportError:
            sys.stderr.write(f"{name} is not installed: left out\n")
        else:
            found.append((name, make))
    return found


def words(text: str) -> list[str]:
    """Return the words of a query that all methods search for, each once."""
    stop = shipped().language.stop_words
    kept = [
        word
        for word in terms.split_alphanumeric(terms.fold(text))
        if word not in stop and len(word) > 1
    ]
    return list(dict.fromkeys(kept))


def fts5(documents: list[CollectionDocument], ending: str) -> Search:
    """Search with FTS5 alone: any of the words."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize = 'porter unicode61')")
    rows = [
        (number, f"{collection_document.title} {collection_document.text}")
        for number, collection_document in enumerate(documents)
    ]
    database.executemany("INSERT INTO t (rowid, text) VALUES (?, ?)", rows)

    def search(text: str) -> list[str]:
        wanted = " OR ".join(f'"{word}"{ending}' for word in words(text))
        if not wanted:
            return []
        query = "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?"
        with closing(database.execute(query, (wanted, DEPTH))) as cursor:
            return [documents[number].id for (number,) in cursor]

    return search


def rank_bm25(documents: list[CollectionDocument]) -> Search:
    """Search with rank-bm25 (Okapi) over Snowball stems."""
    okapi = importlib.import_module("rank_bm25").BM25Okapi
    stem = importlib.import_module("snowballstemmer").stemmer("english").stemWord
    stop = shipped().language.stop_words
    texts = [
        terms.split_alphanumeric(terms.fold(f"{document.title} {document.text}"))
        for document in documents
    ]
    scorer = okapi(
        [[stem(word) for word in text if word not in stop and len(word) > 1] for text in texts]
    )

    def search(text: str) -> list[str]:
        scores = scorer.get_scores([stem(word) for word in words(text)])
        order = sorted(range(len(documents)), key=lambda number: -scores[number])[:DEPTH]
        return [documents[number].id for number in order if scores[number] > 0]

    return search


def tantivy(documents: list[CollectionDocument]) -> Search:
    """Search with tantivy and its English stemmer: any of the words."""
    library = importlib.import_module("tantivy")
    builder = library.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name="en_stem")
    builder.add_integer_field("number", stored=True)
    index = library.Index(builder.build())
    writer = index.writer(50_000_000, 1)
    for number, collection_document in enumerate(documents):
        writer.add_document(
            library.Document(
                text=f"{collection_document.title} {collection_document.text}", number=number
            )
        )
    writer.commit()
    index.reload()
    searcher = index.searcher()

    def search(text: str) -> list[str]:
        wanted = words(text)
        if not wanted:
            return []
        query = index.parse_query(" OR ".join(f'"{word}"' for word in wanted), ["text"])
        hits = searcher.search(query, DEPTH).hits
        return [documents[searcher.doc(address)["number"][0]].id for _, address in hits]

    return search


def figures(runs: dict[str, Run]) -> dict[str, Any]:
    """Return the figures of each method, and how far ours is above the best of the others."""
    best = max((name for name in runs if name != OURS), key=lambda name: mean(runs[name].ndcg))
    mine, other = runs[OURS].ndcg, runs[best].ndcg
    gain = stats.difference(list(mine.values()), [other[query] for query in mine])
    return {
        "queries": len(mine),
        "methods": {name: row(each) for name, each in runs.items()},
        "best_other": best,
        "ratio": mean(mine) / (mean(other) or 1),
        "gain": None if gain is None else [gain.value, gain.low, gain.high],
    }


def row(result: Run) -> dict[str, Any]:
    """Return the published figures of a run."""
    bootstrap_interval = stats.interval(stats.mean(list(result.ndcg.values())))
    return {
        "ndcg@10": mean(result.ndcg),
        "interval": [bootstrap_interval.low, bootstrap_interval.high]
        if bootstrap_interval
        else None,
        "recall@10": mean(result.recall),
        "microseconds": round(result.microseconds),
    }


def mean(values: dict[str, float]) -> float:
    """Return the mean over the queries."""
    return statistics.fmean(values.values()) if values else 0.0


def first_half(query: str) -> bool:
    """Whether settings are chosen on a query; on the others they are reported."""
    return zlib.crc32(query.encode()) % 2 == 0


def choose(collections: Sequence[Collection], runs: dict[str, dict[str, Run]]) -> dict[str, Any]:
    """Choose settings on one half of the queries, and report them on the other."""
    tried: dict[tuple[float, ...], list[Run]] = {}
    for values in itertools.product(*CHOICES.values()):
        profile = shipped()
        profile.bm25["padding"], profile.feedback["share"] = values
        tried[values] = [run(each, ours(profile)) for each in collections]
    yardstick = [best_others(runs[each.name]) for each in collections]
    chosen = max(tried, key=lambda values: ratio(tried[values], yardstick, chosen_on=True))
    now = [runs[each.name][OURS] for each in collections]
    return {
        "settings": dict(zip(CHOICES, chosen, strict=True)),
        "ratio_where_chosen": ratio(tried[chosen], yardstick, chosen_on=True),
        "ratio_on_the_others": ratio(tried[chosen], yardstick, chosen_on=False),
        "shipped_on_the_others": ratio(now, yardstick, chosen_on=False),
        "tried": {
            " ".join(map(str, values)): [
                ratio(each, yardstick, chosen_on=half) for half in (True, False)
            ]
            for values, each in tried.items()
        },
    }


def best_others(runs: dict[str, Run]) -> Run:
    """Return the best other method of a collection, by all its queries."""
    return max((run for name, run in runs.items() if name != OURS), key=lambda run: mean(run.ndcg))


def ratio(mine: Sequence[Run], others: Sequence[Run], *, chosen_on: bool) -> float:
    """Return the mean over the collections of our nDCG over theirs, on one half of the queries."""
    ratios = []
    for own, other in zip(mine, others, strict=True):
        half = [query for query in own.ndcg if first_half(query) == chosen_on]
        below = sum(other.ndcg[query] for query in half)
        if below:
            ratios.append(sum(own.ndcg[query] for query in half) / below)
    return statistics.fmean(ratios) if ratios else 0.0


def tables(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [f"{datetime.now(UTC):%Y-%m-%d}, SQLite {sqlite3.sqlite_version}.", ""]
    lines += ["nDCG@10 with 95 % intervals, (recall@10), microseconds of CPU a query.", ""]
    names = list(results["figures"])
    methods = list(next(iter(results["figures"].values()))["methods"])
    lines += [f"| | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for method in methods:
        cells = [cell(results["figures"][name]["methods"][method]) for name in names]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    each = [results["figures"][name] for name in names]
    lines.append(f"| over the best other | {' | '.join(gain(found) for found in each)} |")
    mean_ratio = statistics.fmean(found["ratio"] for found in each)
    lines += ["", f"Mean over the collections of ours over the best other: {mean_ratio:.3f}.", ""]
    chosen = results["chosen"]
    settings = ", ".join(f"{name} {value}" for name, value in chosen["settings"].items())
    lines += [
        f"Chosen on half of the queries, of {len(chosen['tried'])} settings: {settings}. Over the best other",
        f"{chosen['ratio_where_chosen']:.3f} there, {chosen['ratio_on_the_others']:.3f} on the other half;",
        "the settings that are shipped, chosen with all queries in view, reach",
        f"{chosen['shipped_on_the_others']:.3f} on that other half.",
    ]
    return "\n".join(lines)


def cell(found: dict[str, Any]) -> str:
    """Return a method's figures on one collection."""
    low, high = found["interval"] or (0.0, 0.0)
    interval = f"[{low:.3f}, {high:.3f}]"
    return f"{found['ndcg@10']:.3f} {interval} ({found['recall@10']:.3f}) {found['microseconds']:,}"


def gain(found: dict[str, Any]) -> str:
    """Return our gain over the best other method, in words."""
    if found["gain"] is None:
        return "none"
    value, low, high = found["gain"]
    return f"{found['ratio']:.3f}: {value:+.3f} [{low:+.3f}, {high:+.3f}]"


if __name__ == "__main__":
    sys.exit(main())
