"""The passage of an entry's body where most terms of a query stand, as it was written.

The index holds stems, so the few bodies that are shown are read anew and put into a small table of their own.
"""

from __future__ import annotations

from contextlib import closing

from judgekit.retrieval import index_file, query, update
from judgekit.retrieval.stemmer import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from sqlite3 import Connection

    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.confidence import Candidate
    from judgekit.retrieval.query import Term

TOKENS = 40  # words of a passage
_TABLE = "CREATE VIRTUAL TABLE body USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')"
_PASSAGE = "SELECT snippet(body, 0, '', '', '…', ?) FROM body WHERE body MATCH ?"
_MARKED = "SELECT highlight(body, 0, char(1), char(2)) FROM body WHERE body MATCH ?"
_SHORT = 4_000  # characters of a body that is short, whatever stands in it
_MOST = 1_000  # words that match: `snippet` takes the square of their number


def of(text: str, candidates: Sequence[Candidate], profiles: Profiles, limit: int) -> list[tuple[str, str]]:
    """Return for each candidate its passage for the query `text`, and the body where it stands.

    A passage has `limit` characters at most; without a match it is the body's beginning. Both are empty when
    the file is gone, unreadable, retired by now, or no longer inside its store.
    """
    found = []
    terms: dict[str, list[Term]] = {}  # by kind: languages may differ
    with closing(_table()) as connection:
        for candidate in candidates:
            profile = profiles.by_kind[candidate.kind]
            if candidate.kind not in terms:
                terms[candidate.kind] = query.parse(text, profile.language)
            entry, _ = update.read(candidate.root, candidate.place, profile, None)
            body = "" if entry is None else entry.body
            found.append((_passage(connection, body, terms[candidate.kind], limit), body))
    return found


def _table() -> Connection:
    connection = index_file.connect(":memory:")
    connection.execute(_TABLE)
    return connection


def _put(connection: Connection, body: str) -> None:
    connection.execute("DELETE FROM body")
    connection.execute("INSERT INTO body (rowid, text) VALUES (1, ?)", (body,))


def _passage(connection: Connection, body: str, terms: list[Term], limit: int) -> str:
    if not body:
        return ""
    wanted = " OR ".join(term.shown for term in terms)
    body = body.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    if wanted and len(body) > _SHORT:
        body = body[: _end(connection, body, wanted)]
    _put(connection, body)
    row = connection.execute(_PASSAGE, (TOKENS, wanted)).fetchone() if wanted else None
    return " ".join((row[0] if row else body[:limit]).split())[:limit]


def _end(connection: Connection, body: str, wanted: str) -> int:
    """Return where the part of a body ends in which `_MOST` words match, which is all of nearly every one."""
    _put(connection, body.translate({1: " ", 2: " "}))
    row = connection.execute(_MARKED, (wanted,)).fetchone()
    before, *rest = row[0].split("\1") if row else ("",)
    end, matched = len(before), 0
    for piece in rest:
        inside, _, outside = piece.partition("\2")
        matched += max(len(words(inside)), len(inside) // 8)
        if matched > _MOST:
            return end + max(len(inside) * _MOST // matched, 1)
        end += len(inside) + len(outside)
    return len(body)
