"""The passage of an entry's body where most terms of a query stand, as it was written.

The index holds stems, so the few bodies that are shown are read anew and put into a small table of their own.
"""

from __future__ import annotations

from judgekit.retrieval import schema, update

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.candidate import Candidate
    from judgekit.retrieval.index import Index
    from judgekit.retrieval.query import Term

TOKENS = 40  # words of a passage
_TABLE = "CREATE VIRTUAL TABLE body USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')"
_PASSAGE = "SELECT snippet(body, 0, '', '', '…', ?) FROM body WHERE body MATCH ? AND rowid = ?"
_BEGINNING = "SELECT substr(text, 1, ?) FROM body WHERE rowid = ?"


def add(index: Index, terms: list[Term], candidates: list[Candidate], limit: int) -> None:
    """Give each candidate its passage, `limit` characters at most; without a match the body's beginning."""
    connection = schema.connect(":memory:")
    try:
        connection.execute(_TABLE)
        wanted = " OR ".join(term.shown for term in terms)
        for number, candidate in enumerate(candidates):
            entry, _ = update.read(index.root, candidate.place, index.profile, None)
            if entry is None:
                continue
            body = entry.body.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
            connection.execute("INSERT INTO body (rowid, text) VALUES (?, ?)", (number, body))
            row = connection.execute(_PASSAGE, (TOKENS, wanted, number)).fetchone()
            row = row or connection.execute(_BEGINNING, (limit, number)).fetchone()
            candidate.snippet = " ".join(row[0].split())[:limit]
    finally:
        connection.close()
