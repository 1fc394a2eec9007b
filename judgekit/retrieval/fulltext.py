"""Asks an index: which entries match, with what score, and which terms occur in each.

FTS5 finds the entries that may be best, by the rarer terms where others are very frequent; these few are then
scored by all terms.
"""

from __future__ import annotations

from judgekit.retrieval import columns, confidence, scoring
from judgekit.retrieval.candidate import Candidate
from judgekit.retrieval.rank import Hit, Statistics
from judgekit.retrieval.scoring import Scorer, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from sqlite3 import Connection
    from typing import TypeAlias

    from judgekit.retrieval.index import Index
    from judgekit.retrieval.query import Term

    # The file as `_BEST` selects it, and the stems of its columns.
    Row: TypeAlias = tuple[int, str, str, str, str, str, float, int, str, str, str, str]

POOL = 50  # hits that are rated; a page of results is far smaller
POSTINGS = 3_000  # occurrences that FTS5 looks at before more frequent terms are left to the rating: 2 ms
_ENOUGH = 2  # times the pool that the terms chosen must occur, whatever they cost
_BODY = 20_000  # characters of a body's stems that are read
_FEEDBACK_WORDS = 300  # words of the best entries whose rarity is looked up
_MOST = 0.5  # of the hits may be taken for the best ones

_BEST = """SELECT file.number, file.id, file.title, category, file.tags, path, updated, problem IS NOT NULL,
    c0, c1, substr(c2, 1, ?), c3
    FROM (SELECT rowid AS best FROM text WHERE text MATCH ? ORDER BY bm25(text, ?, ?, ?, ?) LIMIT ?)
    JOIN file ON file.number = best JOIN text_content ON text_content.id = best"""
_SIZE = "SELECT sz FROM text_docsize WHERE id = ?"


def match(index: Index, terms: list[Term], pool: int = POOL) -> tuple[list[Hit], Statistics]:
    """Return the best matches of any of `terms`, and how common each term is in the store."""
    connection, profile = index.connection, index.profile
    counts = [frequency(connection, term, index.size) for term in terms]
    statistics = Statistics(terms, counts, index.size, profile)
    chosen = _rarest(terms, counts, pool)
    if not chosen:
        return [], statistics
    weights = [profile.weights[column] for column in columns.NAMES]
    rows = connection.execute(_BEST, (_BODY, expression(chosen), *weights, pool)).fetchall()
    texts = [_text(connection, row) for row in rows]
    average = columns.frequency(connection, columns.TOTAL) / (index.size or 1)
    scorer = Scorer(terms, statistics.rarities, average, profile)
    hidden = _hidden(connection, terms, rows)
    hits = []
    for row, text in zip(rows, texts, strict=True):
        hit = Hit(_candidate(index, row), 0.0)
        hit.score, hit.matched, hit.titled = scorer.rate(text, hidden.get(row[0], frozenset()))
        hit.candidate.bm25 = hit.score
        hits.append(hit)
    _reorder(index, hits, texts, scorer)
    return hits, statistics


def frequency(connection: Connection, term: Term, size: int) -> int:
    """Return in how many of `size` entries a term occurs; of what is put together, an upper bound."""
    count = 0
    for phrase in term.phrases:
        stems = phrase.split()
        prefix = phrase == term.prefix
        count += min((columns.frequency(connection, each, prefix=prefix) for each in stems), default=0)
    return min(count, size)


def expression(terms: Sequence[Term]) -> str:
    """Return the FTS5 expression that any of `terms` satisfies."""
    return " OR ".join(term.expression for term in terms)


def add_snippets(index: Index, terms: list[Term], candidates: list[Candidate], limit: int) -> None:
    """Give each candidate the passage of its body where most terms stand, `limit` characters at most."""
    from judgekit.retrieval import excerpts  # noqa: PLC0415 - reads files, which the hook does without

    excerpts.add(index, terms, candidates, limit)


def _rarest(terms: list[Term], counts: list[int], pool: int) -> list[Term]:
    """Return the terms that entries are found by: all, unless there are frequent ones beside rare ones."""
    chosen: list[Term] = []
    seen = 0
    for number in sorted(range(len(terms)), key=counts.__getitem__):
        if seen >= _ENOUGH * pool and seen + counts[number] > POSTINGS:
            break
        if counts[number]:
            chosen.append(terms[number])
            seen += counts[number]
    return chosen


def _text(connection: Connection, row: Row) -> Text:
    stems = [str(column) for column in row[-len(columns.NAMES) :]]
    if max(map(len, stems)) < _BODY:
        return Text(stems)
    (sizes,) = connection.execute(_SIZE, (row[0],)).fetchone()
    return Text(stems, sum(_varints(sizes)))


def _varints(raw: bytes) -> list[int]:
    """Return the numbers in a record of FTS5: seven bits a byte, the first bits first."""
    numbers, value = [], 0
    for byte in raw:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that there is more
            numbers.append(value)
            value = 0
    return numbers


def _hidden(connection: Connection, terms: list[Term], rows: list[Row]) -> dict[object, frozenset[int]]:
    """Return the numbers of the terms in those entries whose text was too long to read in full."""
    long = [row[0] for row in rows if len(str(row[-2])) == _BODY]
    if not long:
        return {}
    among = ",".join(map(str, long))
    query = f"SELECT rowid FROM text WHERE text MATCH ? AND rowid IN ({among})"  # noqa: S608 - numbers of ours
    found: dict[object, set[int]] = {}
    for number, term in enumerate(terms):
        for (entry,) in connection.execute(query, (term.expression,)).fetchall():
            found.setdefault(entry, set()).add(number)
    return {entry: frozenset(numbers) for entry, numbers in found.items()}


def _reorder(index: Index, hits: list[Hit], texts: list[Text], scorer: Scorer) -> None:
    """Mix into the scores how alike each hit is to the best ones; the best score becomes about 1."""
    settings = index.profile.feedback
    first = sorted(range(len(hits)), key=lambda place: -hits[place].score)
    first = first[: min(int(settings["entries"]), int(len(hits) * _MOST))]
    if not first:
        return

    def rarity(words: list[str]) -> dict[str, float]:
        found = columns.frequencies(index.connection, words[:_FEEDBACK_WORDS])
        background = index.profile.background
        return {
            word: confidence.rarity(count, index.size, background, common=False)
            for word, count in found.items()
            if count > 1
        }

    best = [(texts[place], hits[place].score) for place in first]
    subject = scoring.subject(
        best, rarity, most=int(settings["words"]), padding=index.profile.bm25["padding"]
    )
    alike = [scoring.likeness(text, subject) / (1 + scorer.damping(text)) for text in texts]
    most, top, share = max(alike), hits[first[0]].score, settings["share"]
    if most > 0 and top > 0:
        for hit, likeness in zip(hits, alike, strict=True):
            hit.score = (1 - share) * hit.score / top + share * likeness / most


def _candidate(
    index: Index, row: tuple[int, str, str, str, str, str, float, int, str, str, str, str]
) -> Candidate:
    name, title, category, tags, path, updated, damaged = row[1:8]
    candidate = Candidate(
        name,
        title,
        category,
        tags=tuple(tag for tag in tags.split(",") if tag),
        updated=updated,
        root=index.root,
        place=path,
        kind=index.profile.kind,
    )
    candidate.damaged = bool(damaged)
    return candidate
