"""Asks an index: which entries match, with what score, and which terms occur in each."""

from __future__ import annotations

from judgekit.retrieval import columns
from judgekit.retrieval.candidate import Candidate
from judgekit.retrieval.rank import Hit, Statistics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.index import Index
    from judgekit.retrieval.query import Term

POOL = 50  # hits that are looked at; a page of results is far smaller
SNIPPET_TOKENS = 40

_BEST = """SELECT text.rowid, -bm25(text, ?, ?, ?, ?) AS score, id, file.title, category, file.tags, path,
    updated, problem IS NOT NULL FROM text JOIN file ON number = text.rowid
    WHERE text MATCH ? ORDER BY score DESC LIMIT ?"""
_SNIPPET = "SELECT snippet(text, 2, '', '', '…', ?) FROM text WHERE text MATCH ? AND rowid = ?"


def match(index: Index, terms: list[Term], pool: int = POOL) -> tuple[list[Hit], Statistics]:
    """Return the best matches of any of `terms`, and how common each term is in the store."""
    weights = [index.profile.weights[column] for column in columns.NAMES]
    rows = index.connection.execute(_BEST, (*weights, expression(terms), pool)).fetchall()
    hits = {row[0]: Hit(_candidate(index, row), row[1]) for row in rows}
    counts = []
    for number, term in enumerate(terms):
        count, found, titled = _occurrences(index, term, list(hits))
        counts.append(count)
        for rowid in found:
            hits[rowid].matched.add(number)
        for rowid in titled:
            hits[rowid].titled.add(number)
    return list(hits.values()), Statistics(terms, counts, index.size, index.profile)


def expression(terms: list[Term]) -> str:
    """Return the FTS5 expression that any of `terms` satisfies."""
    return " OR ".join(term.expression for term in terms)


def add_snippets(index: Index, terms: list[Term], candidates: list[Candidate], limit: int) -> None:
    """Give each candidate the passage of its body where most terms stand, `limit` characters at most."""
    for candidate in candidates:
        (number,) = index.connection.execute(
            "SELECT number FROM file WHERE path = ?", (candidate.place,)
        ).fetchone()
        row = index.connection.execute(_SNIPPET, (SNIPPET_TOKENS, expression(terms), number)).fetchone()
        candidate.snippet = " ".join(row[0].split())[:limit] if row else ""


def _candidate(index: Index, row: tuple[int, float, str, str, str, str, str, float, int]) -> Candidate:
    _, score, name, title, category, tags, path, updated, damaged = row
    listed = tuple(tag for tag in tags.split(",") if tag)
    candidate = Candidate(
        name,
        title,
        category,
        tags=listed,
        updated=updated,
        root=index.root,
        place=path,
        kind=index.profile.kind,
    )
    candidate.bm25, candidate.damaged = score, bool(damaged)
    return candidate


def _occurrences(index: Index, term: Term, among: list[int]) -> tuple[int, list[int], list[int]]:
    """Return in how many entries a term occurs, in which of `among`, and in the titles or tags of which."""
    among_sql = f"CASE WHEN rowid IN ({','.join(map(str, among))}) THEN rowid END"  # integers of ours
    statement = f"SELECT count(*), group_concat({among_sql}) FROM text WHERE text MATCH ?"  # noqa: S608 - the same
    count, found = index.connection.execute(statement, (term.expression,)).fetchone()
    if not found:
        return count, [], []
    in_title = f"{{title tags}} : ({term.expression})"
    _, titled = index.connection.execute(statement, (in_title,)).fetchone()
    return count, _numbers(found), _numbers(titled)


def _numbers(listed: str | None) -> list[int]:
    return [int(each) for each in listed.split(",")] if listed else []
