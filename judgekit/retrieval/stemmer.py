"""Cuts text into the stems that are indexed and searched.

What is searched and what is searched for go the same way: small letters without accents, the runs of letters
and digits, no stop words, irregular forms replaced by their base (`went` by `go`), then the Snowball English
stemmer ("Porter2"), after https://snowballstem.org/algorithms/english/stemmer.html. Words with the same stem
are taken for the same word: `refresh`, `refreshes`, `refreshing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.compiled import Language

_MOST_BARE = 8192  # characters; few texts have as many different ones
_MAX_KNOWN = 100_000  # words whose stems are remembered: some 10 MB
_VOWELS = frozenset("aeiouy")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_PAIR = 2  # letters: what is no longer keeps its end
_LI_ENDINGS = "cdeghkmnrt"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")

_WHOLE = {
    "skis": "ski", "skies": "sky", "idly": "idl", "gently": "gentl", "ugly": "ugli", "early": "earli",
    "only": "onli", "singly": "singl", "sky": "sky", "news": "news", "howe": "howe", "atlas": "atlas",
    "cosmos": "cosmos", "bias": "bias", "andes": "andes",
}  # fmt: skip
_AS_THEY_ARE = frozenset(
    {"inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed"}
)
_BEFORE_EED = ("exc", "proc", "succ")
_R1_STARTS = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")

# Longest first: the first ending that fits is the only one looked at.
_STEP_2 = (
    ("ization", "ize"), ("ational", "ate"), ("fulness", "ful"), ("ousness", "ous"), ("iveness", "ive"),
    ("tional", "tion"), ("biliti", "ble"), ("lessli", "less"), ("entli", "ent"), ("ation", "ate"),
    ("alism", "al"), ("aliti", "al"), ("ousli", "ous"), ("iviti", "ive"), ("fulli", "ful"), ("ogist", "og"),
    ("enci", "ence"), ("anci", "ance"), ("abli", "able"), ("izer", "ize"), ("ator", "ate"), ("alli", "al"),
    ("bli", "ble"), ("ogi", "og"), ("li", ""),
)  # fmt: skip
_STEP_3 = (
    ("ational", "ate"), ("tional", "tion"), ("alize", "al"), ("icate", "ic"), ("iciti", "ic"), ("ative", ""),
    ("ical", "ic"), ("ness", ""), ("ful", ""),
)  # fmt: skip
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize",
    "ion", "al", "er", "ic",
)  # fmt: skip
_SPACED = "".join(char if char.isalnum() else " " for char in map(chr, range(128)))


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
    """Return the runs of letters and digits in `text`."""
    if text.isascii():  # by a table: ten times as fast, and most texts of a first build are
        return text.translate(_SPACED).split()
    return "".join(char if char.isalnum() else " " for char in text).split()


def stem(word: str) -> str:
    """Return the stem of a word in small letters; one with others than a-z and 0-9 is its own stem."""
    if word[2:] == "" or not _LETTERS.issuperset(word):
        return word
    if word in _WHOLE:
        return _WHOLE[word]
    word = _mark_consonants(word)
    r1, r2 = _regions(word)
    word = _step_1a(word)
    if word in _AS_THEY_ARE:
        return word
    word = _step_1c(_step_1b(word, r1))
    word = _step_3(_step_2(word, r1), r1, r2)
    return _step_5(_step_4(word, r2), r1, r2).lower()


def _mark_consonants(word: str) -> str:
    """Write every y that is a consonant as Y: at the beginning and after a vowel."""
    if "y" not in word:
        return word
    marked: list[str] = []
    for char in word:
        consonant = char == "y" and (not marked or marked[-1] in _VOWELS)
        marked.append("Y" if consonant else char)
    return "".join(marked)


def _regions(word: str) -> tuple[int, int]:
    """Return where R1 and R2 begin: after the first consonant that follows a vowel, and once more."""
    start = next((len(each) for each in _R1_STARTS if word.startswith(each)), None)
    r1 = _after_vowel_consonant(word, 0) if start is None else start
    return r1, _after_vowel_consonant(word, r1)


def _after_vowel_consonant(word: str, start: int) -> int:
    for place in range(start + 1, len(word)):
        if word[place] not in _VOWELS and word[place - 1] in _VOWELS:
            return place + 1
    return len(word)


def _has_vowel(text: str) -> bool:
    return not _VOWELS.isdisjoint(text)


def _ends_short(word: str) -> bool:
    """Whether a word ends in a short syllable: consonant, vowel, consonant other than w, x, Y."""
    if len(word) == _PAIR:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    if word.endswith("past"):
        return True
    return len(word) > _PAIR and (
        word[-3] not in _VOWELS and word[-2] in _VOWELS and word[-1] not in _VOWELS and word[-1] not in "wxY"
    )


def _step_1a(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > len("lies") else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _has_vowel(word[:-2]):
        return word[:-1]
    return word


def _step_1b(word: str, r1: int) -> str:
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return rest + "ee" if len(rest) >= r1 and rest not in _BEFORE_EED else word
    for ending in ("ingly", "edly", "ing", "ed"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return _mend(rest, r1, ending) if _has_vowel(rest) or _is_ying(rest, ending) else word
    return word


def _is_ying(rest: str, ending: str) -> bool:
    return ending == "ing" and len(rest) == _PAIR and rest[1] == "y"


def _mend(rest: str, r1: int, ending: str) -> str:
    """Give a word without its -ed or -ing the end it had before."""
    if _is_ying(rest, ending) and rest[0] not in _VOWELS:
        return rest[0] + "ie"
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        return rest if len(rest) == len("add") and rest[0] in "aeo" else rest[:-1]
    return rest + "e" if len(rest) <= r1 and _ends_short(rest) else rest


def _step_1c(word: str) -> str:
    if len(word) > _PAIR and word[-1] in "yY" and word[-2] not in _VOWELS:
        return word[:-1] + "i"
    return word


def _step_2(word: str, r1: int) -> str:
    for ending, instead in _STEP_2:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            fits = len(rest) >= r1
            if ending == "li":
                fits = fits and rest[-1:] != "" and rest[-1] in _LI_ENDINGS
            elif ending == "ogi":
                fits = fits and rest.endswith("l")
            return rest + instead if fits else word
    return word


def _step_3(word: str, r1: int, r2: int) -> str:
    for ending, instead in _STEP_3:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return rest + instead if len(rest) >= (r2 if ending == "ative" else r1) else word
    return word


def _step_4(word: str, r2: int) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            fits = len(rest) >= r2 and (ending != "ion" or rest.endswith(("s", "t")))
            return rest if fits else word
    return word


def _step_5(word: str, r1: int, r2: int) -> str:
    rest = word[:-1]
    if word.endswith("e"):
        return rest if len(rest) >= r2 or (len(rest) >= r1 and not _ends_short(rest)) else word
    if word.endswith("ll") and len(rest) >= r2:
        return rest
    return word
