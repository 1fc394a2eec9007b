"""The documents of a collection as a store: the index, the ranking and the profile that the product uses.

No files: the rows that a store's files would give go straight into an index in memory.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from judgekit.errors import UsageError
from judgekit.retrieval import columns, fulltext, index_file, query, rank, schema
from judgekit.retrieval.compiled import Profiles
from judgekit.retrieval.index_file import Index
from judgekit.retrieval.sources.base import Entry
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from sqlite3 import Connection

    from judgekit.evaluation.collection import Document
    from judgekit.retrieval.candidate import Candidate
    from judgekit.retrieval.compiled import Profile

_FILE = """INSERT INTO file (number, path, folder, pending, live, id, title, category, tags, updated)
    VALUES (?, ?, 0, 0, 1, ?, ?, ?, '', 0)"""
_TEXT = (
    f"INSERT INTO text (rowid, {', '.join(columns.NAMES)}) "  # noqa: S608 - names of ours
    f"VALUES (?{', ?' * len(columns.NAMES)})"
)


class Store:
    """Documents that can be searched, ranked by `profile`. All are of its first category, without tags.

    Raises `UsageError` where SQLite cannot search.
    """

    def __init__(self, documents: Iterable[Document], profile: Profile) -> None:
        if not schema.available():
            raise UsageError("this Python's SQLite has no full-text search (FTS5); use one that has")
        self._profile = profile
        self._everything = copy(profile)
        self._everything.noise_floor = 0.0
        self._index = _index(documents, profile)

    def ranking(self, text: str, depth: int) -> list[str]:
        """Return the ids of the `depth` best documents, those below the noise floor too.

        First what the product would look at, in its order; then what else is found by looking deeper.
        """
        head = self._find(text, self._everything, fulltext.POOL)
        deeper = self._find(text, self._everything, depth) if depth > fulltext.POOL else []
        return list(dict.fromkeys(each.id for each in (*head, *deeper)))[:depth]

    def candidates(self, text: str, pool: int = fulltext.POOL) -> list[Candidate]:
        """Return what the product finds: rated, and without what is below the noise floor.

        A smaller `pool` than that of a search on demand is what the prompt hook looks at.
        """
        return self._find(text, self._profile, pool)

    def close(self) -> None:
        """Let go of the memory."""
        self._index.close()

    def _find(self, text: str, profile: Profile, pool: int) -> list[Candidate]:
        terms = query.parse(text, profile.language)
        if not terms:
            return []
        self._index.profiles.by_kind[profile.kind] = profile
        hits, statistics = fulltext.match(self._index, terms, pool, quick=pool < fulltext.POOL)
        return rank.order(hits, statistics, profile)


def _index(documents: Iterable[Document], profile: Profile) -> Index:
    profiles = Profiles({"languages": {}, "profiles": {}})
    profiles.by_kind[profile.kind] = profile
    connection, about = schema.connect(":memory:"), index_file.about("", profiles)
    schema.create(connection, about)
    about |= {"kind": profile.kind, "size": _fill(connection, documents, profile)}
    made = Index(connection, "", profiles)
    made.load(about)
    return made


def _fill(connection: Connection, documents: Iterable[Document], profile: Profile) -> int:
    """Put the documents in, and return how many there are."""
    category = next(iter(profile.categories))
    number, terms = 0, columns.Terms(connection)
    connection.execute("BEGIN")
    for number, document in enumerate(documents, 1):
        body = document.text[: profile.max_bytes]
        entry = Entry(document.id, document.title, category, body=body)
        texts = [_storable(text) for text in columns.row(entry, profile.language)]
        connection.execute(_FILE, (number, entry.id, entry.id, _storable(entry.title), category))
        connection.execute(_TEXT, (number, *texts))
        terms.add(texts)
    terms.write()
    connection.execute("COMMIT")
    return number


def _storable(text: str) -> str:
    return encodable(text).replace("\0", " ")
