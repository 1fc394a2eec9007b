"""Cuts text into the stems that are indexed and searched.

What is searched and what is searched for go through the same steps: small letters without accents, the runs of
letters and digits, no stop words, irregular forms replaced by their base (`went` by `go`), then the stem.
"""

from __future__ import annotations

from judgekit.retrieval.stemmer import stem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.compiled import Language

_MAX_KNOWN = 100_000  # words whose stems are remembered: some 10 MB


def stems(text: str, language: Language) -> list[str]:
    """Return the stems of the words of `text`, in its order, without stop words."""
    known = language.stems
    if len(known) > _MAX_KNOWN:
        known.clear()
    found = []
    for word in words(fold(text)):
        cut = known.get(word)
        if cut is None:
            cut = known[word] = stem_of(word, language)
        if cut:
            found.append(cut)
    return found


def stem_of(word: str, language: Language) -> str:
    """Return the stem of a folded word; an empty one for a stop word, and for a form of one (`got`)."""
    base = language.irregular.get(word, word)
    return "" if word in language.stop or base in language.stop else stem(base)


def fold(text: str) -> str:
    """Return `text` in small letters and without accents."""
    if text.isascii():
        return text.lower()
    import unicodedata  # noqa: PLC0415 - most prompts do without

    apart = unicodedata.normalize("NFD", text.lower())
    return unicodedata.normalize("NFC", "".join(char for char in apart if not unicodedata.combining(char)))


def words(text: str) -> list[str]:
    """Return the runs of letters and digits in `text`."""
    return "".join(char if char.isalnum() else " " for char in text).split()
