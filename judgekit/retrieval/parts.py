"""Cuts a prompt into the parts that are searched and rated one by one.

People put several things into one prompt, or one question into other talk. Rated as one query, each thing
looks like a small part of what is asked, so nothing is found. A part is a sentence, a line or an item of a
list; its clauses are parts, too. A longer one is read through overlapping windows, since many people leave
punctuation out. Pasted code and logs come last, when the prompt has room for them.
"""

from __future__ import annotations

from judgekit.retrieval import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from judgekit.retrieval.compiled import Language
    from judgekit.retrieval.terms import Term

    Word: TypeAlias = tuple[int, list[Term]]  # its place in the sentence, and its terms

WHOLE = 7  # terms of a part that is searched as it is
WINDOW = 6
STEP = 3  # words of a longer one that are searched together, and from one window to the next
MAX_TERMS = 64  # of a whole prompt
HEAD = 900
TAIL = 500  # characters of a prompt that are read
CLAUSE = 2  # words of a clause that is searched beside its sentence
_ENDS = (".", "!", "?")
_PAUSES = (";", ":")
_CLOSING = "\"')]}*_`"
_MARKS = frozenset(("-", "*", "+", "\u2022", "\u2013", "\u2014"))  # of items, and dashes
_SIGNS = dict.fromkeys(map(ord, "{}[]()<>=;|\\/$#@_%&^~0123456789"))
_CODE = 0.2  # of the characters of a line of code or of a log are signs and digits, at least


class Part:
    """Some terms of a prompt that are searched together; `text` is where they are in it."""

    __slots__ = ("terms", "text")

    def __init__(self, text: str, terms: Sequence[Term]) -> None:
        self.text = text
        self.terms = terms


def parse(prompt: str, language: Language) -> list[Part]:
    """Return the parts of `prompt` that have terms, in its order, pasted text last."""
    known: dict[str, Term] = {}
    of_token: dict[str, list[Term]] = {}
    parts: dict[tuple[str, ...], Part] = {}
    for text in _sentences(terms.excerpt(prompt, HEAD, TAIL)):
        pieces = text.split()
        clauses: list[list[Word]] = [[]]
        for place, piece in enumerate(pieces):
            for token in terms.tokens(piece):
                if token not in of_token:
                    found = terms.of_token(token, language)
                    of_token[token] = [known.setdefault(term.text, term) for term in found]
                if of_token[token]:
                    clauses[-1].append((place, of_token[token]))
                elif token.lower() in language.joiners:
                    clauses.append([])
            if piece.rstrip(_CLOSING).endswith(_PAUSES):
                clauses.append([])
        sentence = [word for clause in clauses for word in clause]
        windows = _windows(sentence)
        for clause in clauses:
            if CLAUSE <= len(clause) < len(sentence):
                windows += _windows(clause)
        for window in windows:
            of_part = {term.text: term for _, found in window for term in found}
            if window is sentence:
                own = pieces
            else:
                own = pieces[window[0][0] : window[-1][0] + 1]
            parts.setdefault(tuple(of_part), Part(" ".join(own), list(of_part.values())))
        if len(known) >= MAX_TERMS:
            break
    return list(parts.values())


def whole(prompt: str, language: Language) -> list[Part]:
    """Return a prompt as one part; none when it has no terms."""
    found = terms.parse(prompt, language)
    return [Part(prompt, found)] if found else []


def _windows(words: list[Word]) -> list[list[Word]]:
    if len({term.text for _, found in words for term in found}) <= WHOLE:
        return [words] if words else []
    starts = range(0, max(len(words) - WINDOW, 0) + STEP, STEP)
    return [words[start : start + WINDOW] for start in starts]


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences, lines and items of a text, then the lines of code and logs in it."""
    pasted = []
    is_fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            is_fenced = not is_fenced
        elif is_fenced or line.startswith(("    ", "\t")) or _is_code(line):
            pasted.append(line)
        else:
            sentence: list[str] = []
            for word in line.split():
                if word not in _MARKS:
                    sentence.append(word)
                if word in _MARKS or word.rstrip(_CLOSING).endswith(_ENDS):
                    yield " ".join(sentence)
                    sentence = []
            yield " ".join(sentence)
    yield from pasted


def _is_code(line: str) -> bool:
    return len(line) - len(line.translate(_SIGNS)) > _CODE * len(line)
