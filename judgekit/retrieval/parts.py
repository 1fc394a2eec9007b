"""Cuts a prompt into parts that are searched and rated one by one.

People put several things into one prompt, or one question into other talk. Rated as one query, each thing
would look like a small part of the request, and nothing would be found. A part is a sentence, a line or an
item of a list; its clauses are parts, too. A longer one is read through overlapping windows, since many
people leave punctuation out. Pasted code and logs come last, if the prompt has room for them.
"""

from __future__ import annotations

from judgekit.retrieval import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.retrieval.compiled import Language
    from judgekit.retrieval.terms import Term

WHOLE = 7  # terms of a sentence that's searched whole; a longer one is searched by windows
WINDOW = 6  # words
STEP = 3  # words from one window to the next
MAX_TERMS = 64  # of a whole prompt
HEAD = 900  # characters of a prompt's beginning that are read
TAIL = 500  # and of its end
PAIRS = 2  # of characters of a script without spaces, that count as a word
CLAUSE = 2  # words that a clause needs to be searched beside its sentence
_STOPS = (".", "!", "\u3002", "\uff01")
_ENDS = (*_STOPS, "?", "\uff1f", "\u061f")
_PAUSES = (",", ";", ":", "\uff0c", "\u3001", "\u060c", "\uff1b", "\uff1a", "\u061b")
_CLOSING = "\"')]}*_`\u300d\u300f\u201d"
# Chinese and Japanese marks, which aren't followed by a space.
_SPACED = {ord(mark): f"{mark} " for mark in "\u3002\uff01\uff1f\uff1b\uff1a\uff0c\u3001"}
_MARKS = frozenset(("-", "*", "+", "\u2022", "\u2013", "\u2014"))  # of items, and dashes
_WITHOUT_SIGNS = dict.fromkeys(map(ord, "{}[]()<>=;|\\/$#@_%&^~0123456789"))
_CODE = 0.2  # of the characters of a line of code or of a log are signs and digits, at least


class Part:
    """Some terms of a prompt that are searched together; `text` is the passage they're from.

    It `is_statement` if its sentence ends in a mark that isn't a question mark. `count` is the number of the
    prompt's parts, and `sentences` that of its sentences.
    """

    __slots__ = ("count", "is_statement", "sentences", "terms", "text")

    def __init__(self, text: str, terms: Sequence[Term], *, is_statement: bool = False) -> None:
        self.text = text
        self.terms = terms
        self.is_statement = is_statement
        self.count = 1
        self.sentences = 1


class _Word:
    """A word that has terms, and its place in the sentence; if it `is_cut`, its terms are its pieces."""

    __slots__ = ("is_cut", "place", "terms")

    def __init__(self, place: int, terms: list[Term], *, is_cut: bool = False) -> None:
        self.place = place
        self.terms = terms
        self.is_cut = is_cut


class _Vocabulary:
    """A prompt's terms by their text, each once, however many words it occurs in."""

    def __init__(self, languages: Sequence[Language]) -> None:
        self.languages = languages
        self.terms: dict[str, Term] = {}
        self._terms_by_token: dict[str, list[Term]] = {}

    def look_up(self, token: str) -> list[Term]:
        if token not in self._terms_by_token:
            new_terms = terms.make_terms(token, *self.languages)
            shared_terms = [self.terms.setdefault(term.text, term) for term in new_terms]
            self._terms_by_token[token] = shared_terms
        return self._terms_by_token[token]


def parse(prompt: str, *languages: Language) -> list[Part]:
    """Return the parts of `prompt` that have terms, in its order, pasted text last.

    `languages` are those of a store, the most frequent one first.
    """
    excerpt = terms.excerpt(prompt, HEAD, TAIL)
    vocabulary = _Vocabulary(terms.choose_language(excerpt, languages))
    parts: dict[tuple[str, ...], Part] = {}
    sentences = 0
    for text in _sentences(excerpt):
        parts_of_sentence = _cut_sentence(text.split(), vocabulary)
        sentences += bool(parts_of_sentence)
        for part in parts_of_sentence:
            # Of several parts with the same terms, only the first one is searched.
            parts.setdefault(tuple(term.text for term in part.terms), part)
        if len(vocabulary.terms) >= MAX_TERMS:
            break
    for part in parts.values():
        part.count = len(parts)
        part.sentences = sentences
    return list(parts.values())


def whole(prompt: str, *languages: Language) -> list[Part]:
    """Return a prompt as one part; none when it has no terms."""
    prompt_terms = terms.parse(prompt, *languages)
    return [Part(prompt, prompt_terms)] if prompt_terms else []


def _cut_sentence(pieces: list[str], vocabulary: _Vocabulary) -> list[Part]:
    """Return the sentence, or the windows of a long one, then its clauses, or their windows."""
    clauses = _split_clauses(pieces, vocabulary)
    sentence: list[_Word] = []
    for clause in clauses:
        sentence += clause
    if not sentence:
        return []
    parts = []
    windows = []
    is_statement = pieces[-1].rstrip(_CLOSING).endswith(_STOPS)
    if _is_short(sentence):
        # Its text includes the words at both ends that aren't terms.
        parts.append(Part(" ".join(pieces), _terms_in(sentence), is_statement=is_statement))
    else:
        windows = _list_windows(sentence)
    for clause in clauses:
        if CLAUSE <= len(clause) < len(sentence):
            windows += [clause] if _is_short(clause) else _list_windows(clause)
    for window in windows:
        text = " ".join(pieces[window[0].place : window[-1].place + 1])
        parts.append(Part(text, _terms_in(window), is_statement=is_statement))
    return parts


def _split_clauses(pieces: list[str], vocabulary: _Vocabulary) -> list[list[_Word]]:
    """Return the words of each clause: it ends at a joining word (`and`, `or`) or a pause."""
    clauses: list[list[_Word]] = [[]]
    for place, piece in enumerate(pieces):
        for token in terms.tokens(piece):
            token_terms = vocabulary.look_up(token)
            if token_terms and not token.isascii() and terms.has_runs(token):
                clauses[-1] += _split_run(place, token, token_terms)
            elif token_terms:
                clauses[-1].append(_Word(place, token_terms))
            elif token.lower() in vocabulary.languages[0].joiners:
                clauses.append([])
        if piece.rstrip(_CLOSING).endswith(_PAUSES):
            clauses.append([])
    return clauses


def _split_run(place: int, token: str, run_terms: list[Term]) -> list[_Word]:
    """Split a token of Hangul, or of a script without spaces (it may be a whole sentence), into words."""
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    if not scripts.is_unspaced(token):
        return [_Word(place, run_terms, is_cut=True)]
    words = []
    for start in range(0, len(run_terms), PAIRS):
        words.append(_Word(place, run_terms[start : start + PAIRS], is_cut=True))
    return words


def _terms_in(words: list[_Word]) -> list[Term]:
    by_text: dict[str, Term] = {}
    for word in words:
        for term in word.terms:
            by_text[term.text] = term
    return list(by_text.values())


def _is_short(words: list[_Word]) -> bool:
    whole_words = [word for word in words if not word.is_cut]
    if len(whole_words) == len(words):
        return len(_terms_in(words)) <= WHOLE
    cut_words = {word.terms[0].text for word in words if word.is_cut}
    return len(_terms_in(whole_words)) + len(cut_words) <= WHOLE


def _list_windows(words: list[_Word]) -> list[list[_Word]]:
    """List overlapping windows of `WINDOW` words, each `STEP` words after the one before."""
    last_start = max(len(words) - WINDOW, 0)
    return [words[start : start + WINDOW] for start in range(0, last_start + STEP, STEP)]


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences, lines and items of a text, then the lines of code and logs in it."""
    if not text.isascii():
        text = text.translate(_SPACED)
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
                is_mark = word in _MARKS
                if not is_mark:
                    sentence.append(word)
                if is_mark or word.rstrip(_CLOSING).endswith(_ENDS):
                    yield " ".join(sentence)
                    sentence = []
            yield " ".join(sentence)
    yield from pasted


def _is_code(line: str) -> bool:
    signs = len(line) - len(line.translate(_WITHOUT_SIGNS))
    return signs > _CODE * len(line)
