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

# A sentence with more terms is searched by windows.
MAX_WHOLE_TERMS = 7
WINDOW_WORDS = 6  # words
STEP_WORDS = 3  # words from one window to the next
MAX_TERMS = 64  # of a whole prompt
HEAD_CHARS = 900  # characters of a prompt's beginning that are read
TAIL_CHARS = 500  # and of its end
PAIRS_PER_WORD = 2  # of characters of a script without spaces, that count as a word
MIN_CLAUSE_WORDS = 2  # words that a clause needs to be searched separately from its sentence
_STOPS = (".", "!", "\u3002", "\uff01")
_ENDS = (*_STOPS, "?", "\uff1f", "\u061f")
_PAUSES = (",", ";", ":", "\uff0c", "\u3001", "\u060c", "\uff1b", "\uff1a", "\u061b")
_CLOSING = "\"')]}*_`\u300d\u300f\u201d"
# Chinese and Japanese marks, which aren't followed by a space.
_SPACED = {ord(mark): f"{mark} " for mark in "\u3002\uff01\uff1f\uff1b\uff1a\uff0c\u3001"}
_MARKS = frozenset(("-", "*", "+", "\u2022", "\u2013", "\u2014"))  # of items, and dashes
_WITHOUT_SIGNS = dict.fromkeys(map(ord, "{}[]()<>=;|\\/$#@_%&^~0123456789"))
_CODE_SHARE = 0.2  # of the characters of a line of code or of a log are signs and digits, at least


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
        """Return a token's terms. Terms shared with other tokens are the same objects."""
        if token not in self._terms_by_token:
            shared_terms = []
            for term in terms.make_terms(token, *self.languages):
                if term.text not in self.terms:
                    self.terms[term.text] = term
                shared_terms.append(self.terms[term.text])
            self._terms_by_token[token] = shared_terms
        return self._terms_by_token[token]


def parse(prompt: str, *languages: Language) -> list[Part]:
    """Split a prompt into parts to search for, in order, but with pasted code and logs last.

    Duplicates and parts without terms are dropped. `languages` are the store's, most frequent first.
    """
    excerpt = terms.shorten_prompt(prompt, HEAD_CHARS, TAIL_CHARS)
    vocabulary = _Vocabulary(terms.choose_language(excerpt, languages))
    part_by_terms: dict[tuple[str, ...], Part] = {}
    sentence_count = 0
    for text in _split_sentences(excerpt):
        sentence_parts = _cut_sentence(text.split(), vocabulary)
        if sentence_parts:
            sentence_count += 1
        for part in sentence_parts:
            key = tuple([term.text for term in part.terms])
            if key not in part_by_terms:  # the same terms would have the same results
                part_by_terms[key] = part

        # Enough terms were found.
        if len(vocabulary.terms) >= MAX_TERMS:
            break

    parts = list(part_by_terms.values())
    for part in parts:
        part.count = len(parts)
        part.sentences = sentence_count
    return parts


def make_single_part(prompt: str, *languages: Language) -> list[Part]:
    """Return the entire prompt as the only part, or [] if it has no terms."""
    prompt_terms = terms.parse(prompt, *languages)
    return [Part(prompt, prompt_terms)] if prompt_terms else []


def _cut_sentence(pieces: list[str], vocabulary: _Vocabulary) -> list[Part]:
    """Split a sentence into parts: itself and its clauses, or overlapping windows if it's long.

    `pieces` are the words with their punctuation. Without any terms, there are no parts.
    """
    clauses = _split_clauses(pieces, vocabulary)
    sentence: list[_Word] = []
    for clause in clauses:
        sentence += clause
    if not sentence:
        return []

    parts = []
    passages = []  # the words of each other part
    last_piece = pieces[-1]
    is_statement = last_piece.rstrip(_CLOSING).endswith(_STOPS)
    if _is_short(sentence):
        # Include words without terms at both ends in the text.
        parts.append(Part(" ".join(pieces), _list_terms(sentence), is_statement=is_statement))
    else:
        passages = _list_windows(sentence)

    for clause in clauses:
        is_whole_sentence = len(clause) == len(sentence)
        if len(clause) < MIN_CLAUSE_WORDS or is_whole_sentence:
            continue
        if _is_short(clause):
            passages.append(clause)
        else:
            passages += _list_windows(clause)

    for passage in passages:
        start = passage[0].place
        end = passage[-1].place + 1
        text = " ".join(pieces[start:end])
        parts.append(Part(text, _list_terms(passage), is_statement=is_statement))

    return parts


def _split_clauses(pieces: list[str], vocabulary: _Vocabulary) -> list[list[_Word]]:
    """Split a sentence into clauses, which are lists of words with terms and can be empty.

    A clause ends before a word such as `and`, and after a mark such as a comma.
    """
    clauses: list[list[_Word]] = [[]]  # words are added to the last clause
    for piece_number, piece in enumerate(pieces):
        for token in terms.split_tokens(piece):
            token_terms = vocabulary.look_up(token)
            if token_terms and not token.isascii() and terms.has_runs(token):
                clauses[-1] += _split_token(piece_number, token, token_terms)
            elif token_terms:
                clauses[-1].append(_Word(piece_number, token_terms))
            elif token.lower() in vocabulary.languages[0].joiners:
                clauses.append([])

        if piece.rstrip(_CLOSING).endswith(_PAUSES):
            clauses.append([])

    return clauses


def _split_token(piece_number: int, token: str, run_terms: list[Term]) -> list[_Word]:
    """Convert a token in Hangul, or in a script without spaces, to words.

    A Hangul token is one word. Without spaces, a token can be a sentence, so each two pairs of characters
    count as a word.
    """
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts don't need it

    if not scripts.is_unspaced(token):
        return [_Word(piece_number, run_terms, is_cut=True)]
    words = []
    for start in range(0, len(run_terms), PAIRS_PER_WORD):
        word_terms = run_terms[start : start + PAIRS_PER_WORD]
        words.append(_Word(piece_number, word_terms, is_cut=True))
    return words


def _list_terms(words: list[_Word]) -> list[Term]:
    """List the distinct terms of some words."""
    term_by_text: dict[str, Term] = {}
    for word in words:
        for term in word.terms:
            term_by_text[term.text] = term
    return list(term_by_text.values())


def _is_short(words: list[_Word]) -> bool:
    """Whether words have few enough terms to be searched together. Cut words count once."""
    whole_words = [word for word in words if not word.is_cut]
    if len(whole_words) == len(words):
        return len(_list_terms(words)) <= MAX_WHOLE_TERMS
    different_cut_words = {word.terms[0].text for word in words if word.is_cut}
    return len(_list_terms(whole_words)) + len(different_cut_words) <= MAX_WHOLE_TERMS


def _list_windows(words: list[_Word]) -> list[list[_Word]]:
    """List overlapping windows of `WINDOW_WORDS`, starting `STEP_WORDS` apart. The last may be shorter."""
    last_start = max(len(words) - WINDOW_WORDS, 0)
    # Go one step beyond the last start, since a range excludes its end.
    starts = range(0, last_start + STEP_WORDS, STEP_WORDS)
    return [words[start : start + WINDOW_WORDS] for start in starts]


def _split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences and list items in text, then its lines of code and logs. Some may be empty.

    Sentences end at the end of a line.
    """
    if not text.isascii():
        # Add spaces after punctuation, so that `split` separates sentences.
        text = text.translate(_SPACED)

    pasted_lines = []
    is_fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            is_fenced = not is_fenced
            continue

        is_indented = line.startswith(("    ", "\t"))
        if is_fenced or is_indented or _is_code(line):
            pasted_lines.append(line)
            continue

        sentence_words: list[str] = []
        for word in line.split():
            is_item_mark_or_dash = word in _MARKS
            if not is_item_mark_or_dash:
                sentence_words.append(word)
            if is_item_mark_or_dash or word.rstrip(_CLOSING).endswith(_ENDS):
                yield " ".join(sentence_words)
                sentence_words = []

        yield " ".join(sentence_words)

    yield from pasted_lines


def _is_code(line: str) -> bool:
    """Whether over a fifth of a line's characters are symbols and digits, as in code and logs."""
    sign_count = len(line) - len(line.translate(_WITHOUT_SIGNS))
    return sign_count > _CODE_SHARE * len(line)
