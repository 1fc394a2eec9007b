"""How often the right note is found, beside plain FTS5, in collections of real notes.

python bench/notes.py --data DIR [--json] [--write FILE]

Every collection under DIR/notes is written to a folder (`corpus.jsonl`: id, the path of a file, and its text;
`queries.jsonl`: text, and `relevant`, paths of which any is right). Each query is asked as `judgekit search`
asks it, and as a prompt that the hook gets. Queries count whose right file comes first, or is among the first
three. FTS5 has each file as one text (porter stems, any word of the query).
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.retrieval import confidence, search, terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Find = Callable[[str], list[str]]

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
FEW = 3
METHODS = ("FTS5", "judgekit search", "prompt")


class Query(NamedTuple):
    """A query, and the files, any of which is right."""

    text: str
    relevant: list[str]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    folders = sorted(each.parent for each in (options.data / "notes").glob(f"*/{CORPUS}"))
    if not folders:
        raise SystemExit(f"{options.data}: expected notes/<collection>/{CORPUS}")
    with tempfile.TemporaryDirectory() as home:
        os.environ["JUDGEKIT_HOME"] = home
        results = {folder.name: measure(folder, Path(home) / folder.name) for folder in folders}
    report = table(results)
    print(json.dumps(results) if options.json else report)
    if options.write:
        options.write.write_text(f"# Real notes\n\n{report}\n", encoding="utf-8")
    return 0


def measure(folder: Path, store: Path) -> dict[str, Any]:
    """Return the hits of each method on a collection."""
    documents = {line["id"]: line["text"] for line in read_lines(folder / CORPUS)}
    queries = [Query(line["text"], line["relevant"]) for line in read_lines(folder / QUERIES)]
    for name, text in documents.items():
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    methods: dict[str, Find] = {
        "FTS5": fts5(documents),
        "judgekit search": lambda text: search_store(store, text, confidence.PROMPT_POOL * 10),
        "prompt": lambda text: search_store(store, text, confidence.PROMPT_POOL),
    }
    hits = {name: count_hits(find, queries) for name, find in methods.items()}
    return {"files": len(documents), "queries": len(queries), "hits": hits}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def search_store(store: Path, text: str, pool: int, limit: int = FEW) -> list[str]:
    """List the best files as judgekit finds them; a prompt has a smaller pool than a search."""
    ranked = search.search(
        text, [str(store)], project=str(store.parent), limit=limit, trusted=[str(store)], pool=pool
    )
    return [candidate.relative_path for candidate in ranked.candidates]


def fts5(documents: dict[str, str]) -> Find:
    """Search with FTS5 alone: any of the words."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize = 'porter unicode61')")
    names = list(documents)
    rows = list(enumerate(documents.values()))
    database.executemany("INSERT INTO t (rowid, text) VALUES (?, ?)", rows)

    def find(text: str) -> list[str]:
        wanted = " OR ".join(f'"{word}"' for word in terms.split_alphanumeric(text))
        query = "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?"
        with closing(database.execute(query, (wanted, FEW))) as cursor:
            return [names[number] for (number,) in cursor]

    return find


def count_hits(find: Find, queries: Sequence[Query]) -> list[int]:
    """Return for how many queries a right file comes first, and is among the first few."""
    first = 0
    few = 0
    for query in queries:
        found = find(query.text)
        first += bool(set(found[:1]) & set(query.relevant))
        few += bool(set(found) & set(query.relevant))
    return [first, few]


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the hits as Markdown."""
    lines = [f"{datetime.now(UTC):%Y-%m-%d}, SQLite {sqlite3.sqlite_version}.", ""]
    lines += [f"Queries whose right file comes first / is among the first {FEW}.", ""]
    lines += [f"| | files | queries | {' | '.join(METHODS)} |", f"| --- |{' --- |' * 5}"]
    for name, found in results.items():
        cells = [f"{first} / {few}" for first, few in map(found["hits"].get, METHODS)]
        counts = f"{found['files']} | {found['queries']}"
        lines.append(f"| {name} | {counts} | {' | '.join(cells)} |")
    sums = []
    for method in METHODS:
        pairs = [found["hits"][method] for found in results.values()]
        sums.append(f"{sum(pair[0] for pair in pairs)} / {sum(pair[1] for pair in pairs)}")
    files = sum(found["files"] for found in results.values())
    queries = sum(found["queries"] for found in results.values())
    lines.append(f"| all | {files} | {queries} | {' | '.join(sums)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
