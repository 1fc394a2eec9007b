"""Cuts a prompt into search terms.

Each term becomes an FTS5 expression of quoted strings alone, so no text of a query is ever FTS5 syntax.
Of a long prompt the beginning and the end are read: what is asked stands there, what is pasted between.
"""

from __future__ import annotations

from judgekit.retrieval.stemmer import fold, stem_of, stems, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.retrieval.compiled import Language

HEAD, TAIL = 500, 250  # characters of a prompt that are read
MAX_TERMS = 32
MAX_WORD = 64  # characters; longer ones are hashes, encoded data or a whole line of an unspaced script
MAX_PARTS = 4  # a compound of more parts (a path, a URL) is searched by its parts alone
_JOINERS = "_-./:"
_PUNCTUATION = ".,;:!?()[]{}<>`'\"*_"


class Term:
    """One thing to look for: the text to show, what is searched for, and whether it is a common word.

    `phrases` are rows of stems, each of which an entry may have; `prefix` is the stem that longer ones may
    begin with, None when only whole ones count. `shown` is an FTS5 expression over text as it was written.
    """

    __slots__ = ("common", "phrases", "prefix", "shown", "text")

    def __init__(
        self,
        text: str,
        phrases: Sequence[str],
        *,
        prefix: str | None = None,
        shown: str = "",
        common: bool = False,
    ) -> None:
        self.text, self.phrases, self.prefix = text, tuple(phrases), prefix
        self.shown, self.common = shown or _quote(text), common

    @property
    def expression(self) -> str:
        """The FTS5 expression over stems that an entry with this term satisfies."""
        forms = [_quote(phrase) for phrase in self.phrases if phrase != self.prefix]
        return _either([_prefix(self.prefix), *forms] if self.prefix else forms)


def parse(prompt: str, language: Language) -> list[Term]:
    """Return the terms of `prompt`, in its order and without repetition, `MAX_TERMS` at most."""
    terms: dict[str, Term] = {}
    for token in tokens(excerpt(prompt)):
        for term in _terms(token, language):
            terms.setdefault(term.text, term)
        if len(terms) >= MAX_TERMS:
            break
    return list(terms.values())[:MAX_TERMS]


def tokens(text: str) -> Iterator[str]:
    """Yield the words of `text`, compounds (`user_id`, `rate-limit`, `React.FC`) in one piece."""
    start = None
    for place, char in enumerate(text):
        inside = char.isalnum() or (start is not None and char in _JOINERS)
        if inside and start is None:
            start = place
        elif not inside and start is not None:
            yield text[start:place].rstrip(_JOINERS)
            start = None
    if start is not None:
        yield text[start:].rstrip(_JOINERS)


def camel(word: str) -> list[str]:
    """Return the words inside a camelCase identifier; none when `word` is no such thing."""
    if word.islower() or word.isupper() or word[1:].islower() or len(word) > MAX_WORD:
        return []
    cuts = [place for place in range(1, len(word)) if _begins(word, place)]
    if not cuts:
        return []
    return [word[a:b] for a, b in zip([0, *cuts], [*cuts, len(word)], strict=True)]


def hidden_words(text: str, language: Language) -> str:
    """Return what `text` means but does not spell out, for the index to store beside it.

    These are the words inside camelCase identifiers, and what abbreviations stand for.
    """
    found: list[str] = []
    for chunk in text.split():
        plain = chunk.islower() or chunk.istitle()
        for word in [chunk.strip(_PUNCTUATION)] if plain and chunk.isascii() else words(chunk):
            found += language.abbreviations.get(word.lower(), ())
            found += camel(word)
    return " ".join(found)


def excerpt(prompt: str) -> str:
    """Return the part of a prompt that is searched by: all of a short one, else its beginning and its end.

    Lone surrogates are replaced, and what is composed of several characters is brought to one form.
    """
    text = prompt
    if len(prompt) > HEAD + TAIL:
        head, tail = prompt[:HEAD], prompt[-TAIL:]
        text = f"{head.rpartition(' ')[0] or head} {tail.partition(' ')[2] or tail}"  # no half words
    text = text.encode("utf-8", "replace").decode("utf-8")
    if text.isascii():
        return text
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.normalize("NFC", text)


def _terms(token: str, language: Language) -> Iterator[Term]:
    """Yield what a token is searched by: a compound as a phrase, then each of its parts."""
    parts = words(token)
    if 1 < len(parts) <= MAX_PARTS:
        yield from _phrase(token.lower(), [" ".join(parts)], language)
    for part in parts:
        inner = camel(part)
        if inner:
            yield from _phrase(part.lower(), [part, " ".join(inner)], language)
        for word in inner or [part]:
            yield from _word(word.lower(), language)


def _phrase(text: str, forms: Sequence[str], language: Language) -> Iterator[Term]:
    """Yield a term for a compound, unless it comes down to a single word."""
    phrases = [" ".join(stems(form, language)) for form in forms]
    if any(" " in phrase for phrase in phrases):
        yield Term(text, phrases, shown=_either([_quote(form) for form in forms]))


def _word(word: str, language: Language) -> Iterator[Term]:
    folded = fold(word)
    stem = stem_of(folded, language)
    if not stem or not 1 < len(word) <= MAX_WORD:
        return
    prefix = stem if _is_prefix(folded, stem, language) else None
    longer = language.abbreviations.get(folded, ())
    others = [" ".join(stems(each, language)) for each in longer]
    if prefix is not None:
        others = [each for each in others if not each.startswith(prefix)]
    shown = [_prefix(word) if prefix else _quote(word), *map(_quote, longer)]
    common = folded in language.common or language.irregular.get(folded) in language.common
    yield Term(word, [stem, *others], prefix=prefix, shown=_either(shown), common=common)


def _is_prefix(word: str, stem: str, language: Language) -> bool:
    return len(stem) >= language.min_prefix or word in language.short or stem in language.short


def _either(forms: list[str]) -> str:
    joined = " OR ".join(forms)
    return f"({joined})" if len(forms) > 1 else joined


def _quote(text: str) -> str:
    return '"' + text.replace('"', " ") + '"'


def _prefix(word: str) -> str:
    return _quote(word) + "*"


def _begins(word: str, place: int) -> bool:
    """Whether a new word begins at `place`: after a small letter, or as the last of several capitals."""
    if not word[place].isupper():
        return False
    after = word[place + 1 :]
    return not word[place - 1].isupper() or (after[:1].islower() and after != "s")
