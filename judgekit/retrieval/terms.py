"""Cuts text into the stems that are indexed, and a prompt into the terms that are searched.

Both go the same way: small letters without accents, the runs of letters and digits, no stop words, irregular
forms replaced by their base (`went` by `go`), then the Snowball English stemmer ("Porter2"), after
https://snowballstem.org/algorithms/english/stemmer.html. Words with the same stem count as the same word.

A term becomes an FTS5 expression of quoted strings alone, so no text of a query is ever FTS5 syntax.
Of a long prompt the beginning and the end are read: the question stands there, pasted text between them.
"""

from __future__ import annotations

from judgekit.retrieval.compiled import Language, bundled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

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
_ED_AND_ING = ("eedly", "ingly", "edly", "eed", "ing", "ed")  # longest first
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")


def stems(text: str, language: Language) -> list[str]:
    """Return the stems of the words of `text`, in its order, without stop words."""
    stem_by_word = language.stems
    if len(stem_by_word) > _MAX_KNOWN:
        stem_by_word.clear()
    text_stems = []
    for word in words(fold(text)):
        word_stem = stem_by_word.get(word)
        if word_stem is None:
            word_stem = stem_of(word, language)
            stem_by_word[word] = word_stem
        if word_stem:
            text_stems.append(word_stem)
    return text_stems


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
        decomposed = unicodedata.normalize("NFD", chr(code))
        bare = "".join(char for char in decomposed if not unicodedata.combining(char))
        self[code] = bare
        return bare


_BARE = _Bare()


def words(text: str) -> list[str]:
    """Return the runs of letters and digits in a text."""
    if text.isascii():  # by a table: ten times as fast, and most texts are ASCII
        return text.translate(_SPACED).split()
    return "".join(char if char.isalnum() else " " for char in text).split()


def stem(word: str) -> str:
    """Return the stem of a word in small letters; one with others than a-z and 0-9 is its own stem."""
    if len(word) <= _PAIR or not _LETTERS.issuperset(word):
        return word
    if word in _WHOLE:
        return _WHOLE[word]
    if "y" in word:
        word = _mark_consonants(word)
    r1, r2 = _find_regions(word)
    word = _without_plural(word)
    if word in _AS_THEY_ARE:
        return word
    word = _without_ed_and_ing(word, r1)
    ends_in_consonant_and_y = word[-1] in "yY" and word[-2:-1] not in _VOWELS
    if len(word) > _PAIR and ends_in_consonant_and_y:
        word = word[:-1] + "i"
    for rules in _STEPS:
        word = _replace_ending(word, rules, r1, r2)
    return _without_last_letter(word, r1, r2).lower()


def _mark_consonants(word: str) -> str:
    """Return a word with Y for each y that is a consonant: at the beginning and after a vowel."""
    marked = ""
    for char in word:
        is_consonant = not marked or marked[-1] in _VOWELS
        marked += "Y" if char == "y" and is_consonant else char
    return marked


def _find_regions(word: str) -> tuple[int, int]:
    """Return where R1 begins, behind the first consonant after a vowel, and R2, behind the next one in R1."""
    shape = word.translate(_SHAPE)
    r1 = next((len(start) for start in _R1_STARTS if word.startswith(start)), 0)
    if not r1:
        r1 = _find_region(shape, 0)
    return r1, _find_region(shape, r1)


def _find_region(shape: str, start: int) -> int:
    place = shape.find("vc", start)
    return len(shape) if place < 0 else place + 2


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > len("lies") else word[:-1]
    if word[-1] == "s" and not word.endswith(("us", "ss")):
        has_vowel_before = "v" in word.translate(_SHAPE)[:-2]
        if has_vowel_before:
            return word[:-1]
    return word


def _replace_ending(
    word: str, rules: Sequence[tuple[str, str, bool, str]], r1: int, r2: int
) -> str:
    """Return a word by the first rule whose ending it has; stemmer.toml explains the rules."""
    for ending, instead, is_in_r2, before in rules:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            is_in_region = len(rest) >= (r2 if is_in_r2 else r1)
            if is_in_region and (not before or rest[-1] in before):
                return rest + instead
            return word
    return word


def _without_last_letter(word: str, r1: int, r2: int) -> str:
    """Return a word without an `e`, or the second `l`, that its sound does not need."""
    rest = word[:-1]
    is_in_r2 = len(rest) >= r2
    if word[-1] == "e" and (is_in_r2 or (len(rest) >= r1 and not _ends_short(rest))):
        return rest
    if word.endswith("ll") and is_in_r2:
        return rest
    return word


def _ends_short(word: str) -> bool:
    """Whether a word ends in a short syllable: consonant, vowel, consonant other than w, x, Y."""
    shape = word.translate(_SHAPE)
    if len(word) <= _PAIR:
        return shape == "vc"
    return word.endswith("past") or (shape.endswith("cvc") and word[-1] not in "wxY")


def _without_ed_and_ing(word: str, r1: int) -> str:
    ending = next((end for end in _ED_AND_ING if word.endswith(end)), "")
    rest = word[: len(word) - len(ending)]
    if ending.startswith("ee"):
        if len(rest) >= r1 and rest not in ("exc", "proc", "succ"):
            return rest + "ee"
        return word
    is_like_dying = ending == "ing" and len(rest) == _PAIR and rest[1] == "y"
    if not ending or (_VOWELS.isdisjoint(rest) and not is_like_dying):
        return word
    if is_like_dying and rest[0] not in _VOWELS:
        return rest[0] + "ie"
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        is_like_add = len(rest) == len("add") and rest[0] in "aeo"
        return rest if is_like_add else rest[:-1]
    if len(rest) <= r1 and _ends_short(rest):
        return rest + "e"
    return rest


HEAD = 500  # characters of a prompt's beginning that are read
TAIL = 250  # and of its end
MAX_TERMS = 32
# Characters; longer ones are hashes, encoded data or a whole line of an unspaced script.
MAX_WORD = 64
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
        for term in make_terms(token, language):
            terms.setdefault(term.text, term)
        if len(terms) >= MAX_TERMS:
            break
    return list(terms.values())[:MAX_TERMS]


def make_terms(token: str, language: Language) -> list[Term]:
    """Return the terms of one word or compound: the phrase, then each of its parts."""
    terms: list[Term | None] = []
    parts = words(token)
    if 1 < len(parts) <= MAX_PARTS:
        terms.append(_make_phrase(token, [" ".join(parts)], language))
    for part in parts:
        inner_words = camel(part)
        if inner_words:
            terms.append(_make_phrase(part, [part, " ".join(inner_words)], language))
        for word in inner_words or [part]:
            terms.append(_make_word(word.lower(), language))
    return [term for term in terms if term is not None]


def tokens(text: str) -> list[str]:
    """Return the words and compounds in a text, without what joins words at their ends."""
    if text.isascii():
        spaced = text.translate(_IN_TOKENS)
    else:
        spaced = "".join([char if char.isalnum() or char in _JOINERS else " " for char in text])
    stripped = [piece.strip(_JOINERS) for piece in spaced.split()]
    return [token for token in stripped if token]


def camel(word: str) -> list[str]:
    """Return the words in a camelCase identifier; none in any other word."""
    if word.islower() or word.isupper() or word[1:].islower() or len(word) > MAX_WORD:
        return []
    starts = [0]
    for place in range(1, len(word)):
        if not word[place].isupper():
            continue
        follows_small_letter = not word[place - 1].isupper()
        after = word[place + 1 :]
        is_last_of_capitals = after[:1].islower() and after != "s"  # `URLs` is one word
        if follows_small_letter or is_last_of_capitals:
            starts.append(place)
    if len(starts) == 1:
        return []
    ends = [*starts[1:], len(word)]
    return [word[start:end] for start, end in zip(starts, ends, strict=True)]


def hidden_words(text: str, language: Language) -> str:
    """Return the words in camelCase identifiers, and what abbreviations stand for, to index, too."""
    hidden: list[str] = []
    abbreviations = language.abbreviations
    for chunk in text.split():
        if chunk.isascii() and chunk.islower():  # most are; nothing is hidden but an abbreviation
            word = chunk.strip(_PUNCTUATION)
            if word in abbreviations:
                hidden += abbreviations[word]
            continue
        is_plain = chunk.isascii() and chunk.istitle()
        for word in [chunk.strip(_PUNCTUATION)] if is_plain else words(chunk):
            hidden += language.abbreviations.get(word.lower(), ())
            hidden += camel(word)
    return " ".join(hidden)


def excerpt(prompt: str, head: int = HEAD, tail: int = TAIL) -> str:
    """Return what is searched by: a short prompt, else its beginning and its end, with valid characters."""
    text = prompt
    if len(prompt) > head + tail:
        beginning = prompt[:head]
        end = prompt[-tail:]
        whole_words_of_beginning = beginning.rpartition(" ")[0] or beginning
        whole_words_of_end = end.partition(" ")[2] or end
        text = f"{whole_words_of_beginning}\n{whole_words_of_end}"
    text = text.encode("utf-8", "replace").decode("utf-8")
    if text.isascii():
        return text
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.normalize("NFC", text)


def _make_phrase(text: str, forms: list[str], language: Language) -> Term | None:
    """Return the term that has any of `forms` in a row; None where no form has several stems."""
    phrases = [" ".join(stems(form, language)) for form in forms]
    if any(" " in phrase for phrase in phrases):
        return Term(text.lower(), phrases, forms)
    return None


def _make_word(word: str, language: Language) -> Term | None:
    """Return the term of a word and of what it abbreviates; None for stop words, letters and long ones."""
    folded = fold(word)
    word_stem = stem_of(folded, language)
    if not word_stem or not 1 < len(word) <= MAX_WORD:
        return None
    is_short_prefix = folded in language.short or word_stem in language.short
    is_prefix = is_short_prefix or len(word_stem) >= language.min_prefix
    long_forms = language.abbreviations.get(folded, [])
    phrases = [" ".join(stems(form, language)) for form in long_forms]
    if is_prefix:  # what begins so is found already
        phrases = [phrase for phrase in phrases if not phrase.startswith(word_stem)]
    is_common = folded in language.common or language.irregular.get(folded) in language.common
    return Term(
        word, [word_stem, *phrases], [word, *long_forms], prefix=is_prefix, common=is_common
    )
