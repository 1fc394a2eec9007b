"""What the full-text table holds: its columns, its tokenizer, and the row that an entry becomes.

`VERSION` stands for all of it: an index that was filled under another one is built anew.
"""

from __future__ import annotations

from judgekit.retrieval.query import hidden_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.compiled import Language
    from judgekit.retrieval.sources.base import Entry

VERSION = 1
NAMES = ("title", "tags", "body", "parts")
TOKENIZER = "porter unicode61 remove_diacritics 2"


def row(entry: Entry, language: Language) -> tuple[str, ...]:
    """Return the text of each column for one entry, in the order of `NAMES`."""
    shown = (entry.title, " ".join(entry.tags), entry.body)
    return (*shown, hidden_words("\n".join(shown), language))
