"""What the full-text table holds: its columns, its tokenizer, the row of an entry, how common words are.

`VERSION` stands for all of it: an index that was filled under another one is built anew.
"""

from __future__ import annotations

from judgekit.retrieval.query import hidden_words
from judgekit.retrieval.stemmer import stems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection

    from judgekit.retrieval.compiled import Language
    from judgekit.retrieval.sources.base import Entry

VERSION = 2
NAMES = ("title", "tags", "body", "parts")
TOKENIZER = "unicode61 remove_diacritics 2"  # of stems: all the rest was done before

TOTAL = ""  # the row of `term` that counts the words of all entries
_COUNT = """INSERT INTO term (term, entries) VALUES (?, ?)
    ON CONFLICT (term) DO UPDATE SET entries = entries + excluded.entries"""
_FORGET = "DELETE FROM term WHERE term = ? AND entries <= 0"
_STARTING = "SELECT term, entries FROM term WHERE term >= ? AND term < ?"
_AFTER_ALL = "\U0010ffff"


def row(entry: Entry, language: Language) -> tuple[str, ...]:
    """Return the stems of each column for one entry, in the order of `NAMES`."""
    shown = (entry.title, " ".join(entry.tags), entry.body)
    hidden = hidden_words("\n".join(shown), language)
    return tuple(" ".join(stems(text, language)) for text in (*shown, hidden))


class Terms:
    """Counts in how many entries of an index each stem occurs; `write` before the transaction ends."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changes: dict[str, int] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Count the row of an entry that is put in."""
        self._count(texts, 1)

    def remove(self, number: int) -> None:
        """Take back the row of an entry that is still in the table `text`, and about to go."""
        names = ", ".join(NAMES)
        query = f"SELECT {names} FROM text WHERE rowid = ?"  # noqa: S608 - names of ours
        for texts in self._connection.execute(query, (number,)).fetchall():
            self._count(texts, -1)

    def write(self) -> None:
        """Bring the changes into the table `term`."""
        changed = [(term, change) for term, change in self._changes.items() if change]
        self._connection.executemany(_COUNT, changed)
        gone = [(term,) for term, change in changed if change < 0]
        self._connection.executemany(_FORGET, gone)
        self._changes.clear()

    def _count(self, texts: Iterable[str], change: int) -> None:
        words = [word for text in texts for word in text.split()]
        changes = self._changes
        changes[TOTAL] = changes.get(TOTAL, 0) + change * len(words)
        for word in set(words):
            changes[word] = changes.get(word, 0) + change


def total(connection: Connection) -> int:
    """Return how many words all entries of an index have."""
    return frequencies(connection, [TOTAL]).get(TOTAL, 0)


def beginning(connection: Connection, stem: str) -> dict[str, int]:
    """Return the stems that begin with `stem`, and in how many entries each occurs."""
    return dict(connection.execute(_STARTING, (stem, stem + _AFTER_ALL)).fetchall())


def frequencies(connection: Connection, stems: Sequence[str]) -> dict[str, int]:
    """Return in how many entries each of several stems occurs."""
    marks = ", ".join("?" * len(stems))
    query = f"SELECT term, entries FROM term WHERE term IN ({marks})"  # noqa: S608 - question marks
    return dict(connection.execute(query, stems).fetchall())
