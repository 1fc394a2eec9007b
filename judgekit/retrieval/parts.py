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
    from collections.abc import Iterable, Iterator, Sequence

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
_STATEMENT_END_MARKS = (".", "!", "\u3002", "\uff01")
_SENTENCE_END_MARKS = (*_STATEMENT_END_MARKS, "?", "\uff1f", "\u061f")
_PAUSE_MARKS = (",", ";", ":", "\uff0c", "\u3001", "\u060c", "\uff1b", "\uff1a", "\u061b")
_CLOSING_MARKS = "\"')]}*_`\u300d\u300f\u201d"
# Chinese and Japanese marks, which aren't followed by a space.
_SPACED_MARK_BY_CODE = {
    ord(mark): f"{mark} " for mark in "\u3002\uff01\uff1f\uff1b\uff1a\uff0c\u3001"
}
# Of items, and dashes.
_ITEM_MARKS_AND_DASHES = frozenset(("-", "*", "+", "\u2022", "\u2013", "\u2014"))
_WITHOUT_SIGNS = dict.fromkeys(map(ord, "{}[]()<>=;|\\/$#@_%&^~0123456789"))
_CODE_SHARE = 0.2  # of the characters of a line of code or of a log are signs and digits, at least


class Part:
    """Some terms of a prompt that are searched together; `text` is the passage they're from.

    It `is_statement` if its sentence ends in a mark that isn't a question mark. `part_count` is the number of
    the prompt's parts, and `sentence_count` that of its sentences.
    """

    __slots__ = ("is_statement", "part_count", "sentence_count", "terms", "text")

    def __init__(self, text: str, terms: Sequence[Term], *, is_statement: bool = False) -> None:
        self.text = text
        self.terms = terms
        self.is_statement = is_statement
        # `parse` sets these when it has split the whole prompt.
        self.part_count = 1  # how many parts the prompt has
        self.sentence_count = 1  # how many sentences with terms the prompt has


class _Word:
    """A word that has terms, and its place in the sentence; if it `is_cut`, its terms are its pieces."""

    __slots__ = ("is_cut", "position", "terms")

    def __init__(self, place: int, terms: list[Term], *, is_cut: bool = False) -> None:
        self.position = place
        self.terms = terms
        self.is_cut = is_cut


class _Vocabulary:
    """A prompt's terms by their text, each once, however many words it occurs in."""

    def __init__(self, languages: Sequence[Language]) -> None:
        self.languages = languages
        self.terms: dict[str, Term] = {}
        self._terms_by_token: dict[str, list[Term]] = {}

    def look_up(self, token: str) -> list[Term]:
        """Return a token's terms. If tokens have a term in common, they get the same object."""
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
    for sentence in _split_sentences(excerpt):
        sentence_parts = _cut_sentence(sentence.split(), vocabulary)
        if sentence_parts:
            sentence_count += 1
            _add_new_parts(part_by_terms, sentence_parts)

        has_enough_terms = len(vocabulary.terms) >= MAX_TERMS
        if has_enough_terms:
            break

    parts = list(part_by_terms.values())
    for part in parts:
        part.part_count = len(parts)
        part.sentence_count = sentence_count
    return parts


def _add_new_parts(part_by_terms: dict[tuple[str, ...], Part], parts: Iterable[Part]) -> None:
    """Add the parts with new combinations of terms. The same terms would have the same results."""
    for part in parts:
        texts = tuple([term.text for term in part.terms])
        part_by_terms.setdefault(texts, part)


def make_single_part(prompt: str, *languages: Language) -> list[Part]:
    """Return the entire prompt as the only part, or [] if it has no terms."""
    prompt_terms = terms.parse(prompt, *languages)
    return [Part(prompt, prompt_terms)] if prompt_terms else []


def _cut_sentence(pieces: list[str], vocabulary: _Vocabulary) -> list[Part]:
    """Split a sentence into parts: the whole sentence, or overlapping windows of a long one, and its clauses.

    `pieces` are the words with their punctuation. Without any terms, there are no parts.
    """
    clauses = _split_clauses(pieces, vocabulary)
    sentence: list[_Word] = []
    for clause in clauses:
        sentence += clause
    if not sentence:
        return []

    last_piece = pieces[-1]
    is_statement = last_piece.rstrip(_CLOSING_MARKS).endswith(_STATEMENT_END_MARKS)
    parts = []
    windows: list[list[_Word]] = []
    if _is_short(sentence):
        # Keep the words without terms at both ends, which `_join_pieces` would drop.
        text = " ".join(pieces)
        parts.append(Part(text, _list_terms(sentence), is_statement=is_statement))
    else:
        windows = _list_windows(sentence)

    clause_passages = _list_clause_passages(clauses, len(sentence))
    for passage in windows + clause_passages:
        text = _join_pieces(pieces, passage)
        parts.append(Part(text, _list_terms(passage), is_statement=is_statement))
    return parts


def _list_clause_passages(clauses: list[list[_Word]], sentence_length: int) -> list[list[_Word]]:
    """List the clauses to search for, and the windows of long ones.

    Clauses of few words are left out, and so is a clause that's the whole sentence.
    """
    passages = []
    for clause in clauses:
        is_tiny = len(clause) < MIN_CLAUSE_WORDS
        is_whole_sentence = len(clause) == sentence_length
        if is_tiny or is_whole_sentence:
            continue
        if _is_short(clause):
            passages.append(clause)
        else:
            passages += _list_windows(clause)
    return passages


def _join_pieces(pieces: list[str], passage: list[_Word]) -> str:
    """Return the text from a passage's first word to its last."""
    start = passage[0].position
    end = passage[-1].position + 1
    return " ".join(pieces[start:end])


def _split_clauses(pieces: list[str], vocabulary: _Vocabulary) -> list[list[_Word]]:
    """Split a sentence into clauses, which are lists of words with terms and can be empty.

    A clause ends before a word such as `and`, and after a mark such as a comma.
    """
    prompt_language, *_ = vocabulary.languages
    clauses: list[list[_Word]] = [[]]  # words are added to the last clause
    for piece_number, piece in enumerate(pieces):
        for token in terms.split_tokens(piece):
            token_terms = vocabulary.look_up(token)
            if token_terms:
                clauses[-1] += _make_words(piece_number, token, token_terms)
            elif token.lower() in prompt_language.joiners:
                clauses.append([])

        ends_with_mark = piece.rstrip(_CLOSING_MARKS).endswith(_PAUSE_MARKS)
        if ends_with_mark:
            clauses.append([])

    return clauses


def _make_words(piece_number: int, token: str, token_terms: list[Term]) -> list[_Word]:
    """Convert a token to a word, or to several in a script without spaces."""
    # Terms in these scripts and in Hangul are pieces of words.
    has_pieces = not token.isascii() and terms.has_runs(token)
    if has_pieces:
        return _split_token(piece_number, token, token_terms)
    return [_Word(piece_number, token_terms)]


def _split_token(piece_number: int, token: str, token_terms: list[Term]) -> list[_Word]:
    """Convert a token in Hangul, or in a script without spaces, to words. Its terms are pieces of words.

    A Hangul token is one word, with a term for each of its beginnings. In a script without spaces, a token
    can be a whole sentence of character pairs, so `PAIRS_PER_WORD` of them make a word.
    """
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts don't need it

    is_hangul = not scripts.is_unspaced(token)
    if is_hangul:
        return [_Word(piece_number, token_terms, is_cut=True)]

    words = []
    for start in range(0, len(token_terms), PAIRS_PER_WORD):
        word_terms = token_terms[start : start + PAIRS_PER_WORD]
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
    """Whether words have few enough terms to be searched together.

    A word that's cut into pieces has a term for each piece, but these count as one.
    """
    uncut_words = [word for word in words if not word.is_cut]
    # A cut word's first term stands for all its terms, so a repeated word counts once.
    first_terms = {word.terms[0].text for word in words if word.is_cut}
    term_count = len(_list_terms(uncut_words)) + len(first_terms)
    return term_count <= MAX_WHOLE_TERMS


def _list_windows(words: list[_Word]) -> list[list[_Word]]:
    """List overlapping windows of `WINDOW_WORDS`, starting `STEP_WORDS` apart. The last may be shorter."""
    windows = []
    start = 0
    while True:
        end = start + WINDOW_WORDS
        windows.append(words[start:end])
        if end >= len(words):  # all words are in a window
            return windows
        start += STEP_WORDS


def _split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences and list items in text, then its lines of code and logs. Some may be empty.

    Sentences end at the end of a line.
    """
    if not text.isascii():
        # Add spaces after punctuation, so that `split` separates sentences.
        text = text.translate(_SPACED_MARK_BY_CODE)

    prose_lines, pasted_lines = _separate_pasted_lines(text)
    for line in prose_lines:
        yield from _split_line(line)
    yield from pasted_lines


def _separate_pasted_lines(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of prose, and those of code and logs, without the fences around code."""
    prose_lines = []
    pasted_lines = []
    is_fenced = False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        is_indented = line.startswith(("    ", "\t"))
        if is_fence:
            is_fenced = not is_fenced
        elif is_fenced or is_indented or _is_code(line):
            pasted_lines.append(line)
        else:
            prose_lines.append(line)
    return prose_lines, pasted_lines


def _split_line(line: str) -> Iterator[str]:
    """Yield a line's sentences and list items, which may be empty."""
    words: list[str] = []
    for word in line.split():
        is_item_mark_or_dash = word in _ITEM_MARKS_AND_DASHES
        ends_sentence = word.rstrip(_CLOSING_MARKS).endswith(_SENTENCE_END_MARKS)
        if not is_item_mark_or_dash:
            words.append(word)
        if is_item_mark_or_dash or ends_sentence:
            yield " ".join(words)
            words = []
    yield " ".join(words)


def _is_code(line: str) -> bool:
    """Whether over a fifth of a line's characters are symbols and digits, as in code and logs."""
    sign_count = len(line) - len(line.translate(_WITHOUT_SIGNS))
    return sign_count > _CODE_SHARE * len(line)
