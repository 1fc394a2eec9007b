"""Cuts text into the stems that are indexed, and a prompt into the terms that are searched.

Both go the same way: small letters without accents, the runs of letters and digits, no stop words, irregular
forms replaced by their base (`went` by `go`), then the Snowball English stemmer ("Porter2"), after
https://snowballstem.org/algorithms/english/stemmer.html. Words with the same stem count as the same word.

A term becomes an FTS5 expression of quoted strings alone, so no text of a query is ever FTS5 syntax.
Of a long prompt the beginning and the end are read: the question stands there, pasted text between them.
"""

from __future__ import annotations

from judgekit.retrieval.compiled import Language, bundled

_MOST_BARE = 8192  # characters; few texts have as many different ones
_MAX_KNOWN = 100_000  # words whose stems are remembered: some 10 MB
_VOWELS = frozenset("aeiouy")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_SHAPE = {ord(letter): "v" if letter in _VOWELS else "c" for letter in (*_LETTERS, "Y")}
_SPACED = "".join([char if char.isalnum() else " " for char in map(chr, range(128))])
_PAIR = 2  # letters: a shorter word keeps its end

_TABLES = bundled()["stemmer"]
_WHOLE: dict[str, str] = _TABLES["whole"]
_STEPS = _TABLES["steps"]
_AS_THEY_ARE = frozenset(_TABLES["as_they_are"])
_R1_STARTS = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")


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
    if word in language.stop or base in language.stop:
        return ""
    return stem(base)


def fold(text: str) -> str:
    """Return `text` in small letters and without accents."""
    if text.isascii():
        return text.lower()
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.normalize("NFC", text.lower().translate(_BARE))


class _Bare(dict[int, str]):
    """A table for `str.translate` that learns what is left of each character without its accents.

    Accents go before anything is normalised: to put a run of them in order takes the square of its length.
    """

    def __missing__(self, code: int) -> str:
        import unicodedata  # noqa: PLC0415 - most prompts do without

        if len(self) >= _MOST_BARE:
            self.clear()
        apart = unicodedata.normalize("NFD", chr(code))
        self[code] = "".join(char for char in apart if not unicodedata.combining(char))
        return self[code]


_BARE = _Bare()


def words(text: str) -> list[str]:
    if text.isascii():  # by a table: ten times as fast, and most texts are ASCII
        return text.translate(_SPACED).split()
    return "".join(char if char.isalnum() else " " for char in text).split()


def stem(word: str) -> str:
    """Return the stem of a word in small letters; one with others than a-z and 0-9 is its own stem."""
    if len(word) <= _PAIR or not _LETTERS.issuperset(word):
        return word
    if word in _WHOLE:
        return _WHOLE[word]
    if "y" in word:  # as a consonant, at the beginning and after a vowel, it is written Y
        marked = ""
        for char in word:
            marked += "Y" if char == "y" and (not marked or marked[-1] in _VOWELS) else char
        word = marked
    # R1 begins behind the first consonant after a vowel, R2 behind the next one in R1.
    shape = word.translate(_SHAPE)
    size = len(word)
    r1 = next((len(start) for start in _R1_STARTS if word.startswith(start)), 0)
    r1 = r1 or (shape.find("vc") + 2 if "vc" in shape else size)
    if "vc" in shape[r1:]:
        r2 = shape.find("vc", r1) + 2
    else:
        r2 = size
    if word.endswith(("sses", "ied", "ies")):
        if size > len("lies") or word.endswith("sses"):
            word = word[:-2]
        else:
            word = word[:-1]
    elif word[-1] == "s" and not word.endswith(("us", "ss")) and "v" in shape[:-2]:
        word = word[:-1]
    if word in _AS_THEY_ARE:
        return word
    word = _without_ed_and_ing(word, r1)
    if len(word) > _PAIR and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    for rules in _STEPS:
        for ending, instead, is_r2, before in rules:
            if word.endswith(ending):
                rest = word[: -len(ending)]
                if len(rest) >= (r2 if is_r2 else r1) and (not before or rest[-1] in before):
                    word = rest + instead
                break
    rest = word[:-1]
    if word[-1] == "e":
        cut = len(rest) >= r2 or (len(rest) >= r1 and not _ends_short(rest))
    else:
        cut = word.endswith("ll") and len(rest) >= r2
    return (rest if cut else word).lower()


def _ends_short(word: str) -> bool:
    """Whether a word ends in a short syllable: consonant, vowel, consonant other than w, x, Y."""
    shape = word.translate(_SHAPE)
    if len(word) <= _PAIR:
        return shape == "vc"
    return word.endswith("past") or (shape.endswith("cvc") and word[-1] not in "wxY")


def _without_ed_and_ing(word: str, r1: int) -> str:
    ending = next(
        (end for end in ("eedly", "ingly", "edly", "eed", "ing", "ed") if word.endswith(end)), ""
    )
    rest = word[: len(word) - len(ending)]
    if ending.startswith("ee"):
        if len(rest) >= r1 and rest not in ("exc", "proc", "succ"):
            return rest + "ee"
        return word
    ying = ending == "ing" and len(rest) == _PAIR and rest[1] == "y"  # dying
    if not ending or (_VOWELS.isdisjoint(rest) and not ying):
        return word
    if ying and rest[0] not in _VOWELS:
        return rest[0] + "ie"
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        if len(rest) == len("add") and rest[0] in "aeo":
            return rest
        return rest[:-1]
    if len(rest) <= r1 and _ends_short(rest):
        return rest + "e"
    return rest


HEAD = 500
TAIL = 250  # characters of a prompt that are read
MAX_TERMS = 32
MAX_WORD = (
    64  # characters; longer ones are hashes, encoded data or a whole line of an unspaced script
)
MAX_PARTS = 4  # a compound of more parts (a path, a URL) is searched by its parts alone
_JOINERS = "_-./:"
_IN_TOKENS = "".join(
    [char if char.isalnum() or char in _JOINERS else " " for char in map(chr, range(128))]
)
_PUNCTUATION = ".,;:!?()[]{}<>`'\"*_"


class Term:
    """One thing to look for: the text to show, what is searched for, and whether it is a common word.

    `phrases` are rows of stems, each of which an entry may have; longer stems than `prefix` that begin so
    count, too. `expression` is FTS5's over stems, `shown` one over text as it was written. A search sets its
    `number` there, the `count` of entries that have it, and its `rarity`.
    """

    __slots__ = (
        "common",
        "count",
        "expression",
        "number",
        "phrases",
        "prefix",
        "rarity",
        "shown",
        "text",
    )

    def __init__(
        self,
        text: str,
        phrases: list[str],
        forms: list[str],
        *,
        prefix: bool = False,
        common: bool = False,
    ) -> None:
        self.text = text
        self.phrases = phrases
        self.common = common
        self.number = 0
        self.count = 0
        self.rarity = 0.0
        self.prefix = phrases[0] if prefix else None
        self.expression = _any_of(phrases, prefix=prefix)
        self.shown = _any_of(forms, prefix=prefix)


def _any_of(forms: list[str], *, prefix: bool) -> str:
    quoted = ['"' + form.replace('"', " ") + '"' for form in forms]
    if prefix:
        quoted[0] += "*"
    if len(quoted) > 1:
        return f"({' OR '.join(quoted)})"
    return quoted[0]


def parse(prompt: str, language: Language) -> list[Term]:
    """Return the terms of `prompt`, in its order, `MAX_TERMS` at most; a compound, then each of its parts."""
    terms: dict[str, Term] = {}
    for token in tokens(excerpt(prompt)):
        for term in of_token(token, language):
            terms.setdefault(term.text, term)
        if len(terms) >= MAX_TERMS:
            break
    return list(terms.values())[:MAX_TERMS]


def of_token(token: str, language: Language) -> list[Term]:
    """Return the terms of one word or compound: the phrase, then each of its parts."""
    parts = words(token)
    if 1 < len(parts) <= MAX_PARTS:
        found = [_phrase(token, [" ".join(parts)], language)]
    else:
        found = []
    for part in parts:
        if inner := camel(part):
            found.append(_phrase(part, [part, " ".join(inner)], language))
        found += [_word(word.lower(), language) for word in inner or [part]]
    return [term for term in found if term is not None]


def tokens(text: str) -> list[str]:
    if text.isascii():
        spaced = text.translate(_IN_TOKENS)
    else:
        spaced = "".join([char if char.isalnum() or char in _JOINERS else " " for char in text])
    return [token for piece in spaced.split() if (token := piece.strip(_JOINERS))]


def camel(word: str) -> list[str]:
    if word.islower() or word.isupper() or word[1:].islower() or len(word) > MAX_WORD:
        return []
    # A new word begins after a small letter, or as the last of several capitals.
    cuts = []
    for at in range(1, len(word)):
        after = word[at + 1 :]
        if word[at].isupper() and (
            not word[at - 1].isupper() or (after[:1].islower() and after != "s")
        ):
            cuts.append(at)
    if cuts:
        return [word[a:b] for a, b in zip([0, *cuts], [*cuts, len(word)], strict=True)]
    return []


def hidden_words(text: str, language: Language) -> str:
    """Return the words in camelCase identifiers, and what abbreviations stand for, to index, too."""
    found: list[str] = []
    for chunk in text.split():
        plain = chunk.islower() or chunk.istitle()
        for word in [chunk.strip(_PUNCTUATION)] if plain and chunk.isascii() else words(chunk):
            found += language.abbreviations.get(word.lower(), ())
            found += camel(word)
    return " ".join(found)


def excerpt(prompt: str, head: int = HEAD, tail: int = TAIL) -> str:
    """Return what is searched by: a short prompt, else its beginning and its end, with valid characters."""
    text = prompt
    if len(prompt) > head + tail:
        first = prompt[:head]
        last = prompt[-tail:]
        text = f"{first.rpartition(' ')[0] or first}\n{last.partition(' ')[2] or last}"  # no half words
    text = text.encode("utf-8", "replace").decode("utf-8")
    if text.isascii():
        return text
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.normalize("NFC", text)


def _phrase(text: str, forms: list[str], language: Language) -> Term | None:
    phrases = [" ".join(stems(form, language)) for form in forms]
    if any(" " in phrase for phrase in phrases):
        return Term(text.lower(), phrases, forms)
    return None


def _word(word: str, language: Language) -> Term | None:
    folded = fold(word)
    stem = stem_of(folded, language)
    if not stem or not 1 < len(word) <= MAX_WORD:
        return None
    prefix = len(stem) >= language.min_prefix or folded in language.short or stem in language.short
    longer = language.abbreviations.get(folded, [])
    others = [" ".join(stems(form, language)) for form in longer]
    if prefix:
        others = [other for other in others if not other.startswith(stem)]
    common = folded in language.common or language.irregular.get(folded) in language.common
    return Term(word, [stem, *others], [word, *longer], prefix=prefix, common=common)
