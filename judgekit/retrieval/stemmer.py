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
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_SPACED = "".join([char if char.isalnum() else " " for char in map(chr, range(128))])
_PAIR = 2  # letters: what is no longer keeps its end

_WHOLE = {
    "skis": "ski",
    "skies": "sky",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_AS_THEY_ARE = frozenset(
    ["inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed"]
)
_R1_STARTS = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")
_BEFORE_EED = ("exc", "proc", "succ")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")

# What stands for each ending (`-`: nothing), longest first: the first that fits is the only one looked at. It
# must begin in the region R1, after `*` in R2; after `<` only if one of these letters is before it.
_STEP_2 = """ization ize|ational ate|fulness ful|ousness ous|iveness ive|tional tion|biliti ble|lessli less|
entli ent|ation ate|alism al|aliti al|ousli ous|iviti ive|fulli ful|ogist og|enci ence|anci ance|abli able|
izer ize|ator ate|alli al|bli ble|ogi og <l|li - <cdeghkmnrt"""
_STEP_3 = "ational ate|tional tion|alize al|icate ic|iciti ic|ative - *|ical ic|ness -|ful -"
_STEP_4 = """ement - *|ance - *|ence - *|able - *|ible - *|ment - *|ant - *|ent - *|ism - *|ate - *|iti - *|
ous - *|ive - *|ize - *|ion - *<st|al - *|er - *|ic - *"""


def _rules(table: str) -> list[tuple[str, str, bool, tuple[str, ...]]]:
    rules = []
    for rule in table.replace("\n", "").split("|"):
        ending, instead, *where = rule.split(" ")
        region, _, before = "".join(where).partition("<")
        rules.append((ending, instead.strip("-"), region == "*", tuple(before) or ("",)))
    return rules


_STEPS = [_rules(table) for table in (_STEP_2, _STEP_3, _STEP_4)]


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
    if len(word) <= _PAIR or not _LETTERS.issuperset(word):
        return word
    if word in _WHOLE:
        return _WHOLE[word]
    if "y" in word:  # as a consonant, at the beginning and after a vowel, it is written Y
        marked = ""
        for char in word:
            marked += "Y" if char == "y" and (not marked or marked[-1] in _VOWELS) else char
        word = marked
    r1 = next((len(start) for start in _R1_STARTS if word.startswith(start)), 0) or _region(word, 0)
    r2 = _region(word, r1)
    if word.endswith(("sses", "ied", "ies")):
        word = word[:-2] if len(word) > len("lies") or word.endswith("sses") else word[:-1]
    elif word[-1] == "s" and not word.endswith(("us", "ss")) and not _VOWELS.isdisjoint(word[:-2]):
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
                if len(rest) >= (r2 if is_r2 else r1) and rest.endswith(before):
                    word = rest + instead
                break
    rest = word[:-1]
    if word[-1] == "e":
        cut = len(rest) >= r2 or (len(rest) >= r1 and not _ends_short(rest))
    else:
        cut = word.endswith("ll") and len(rest) >= r2
    return (rest if cut else word).lower()


def _region(word: str, start: int) -> int:
    """Return where the part of a word begins that follows the first consonant after a vowel."""
    for place in range(start + 1, len(word)):
        if word[place] not in _VOWELS and word[place - 1] in _VOWELS:
            return place + 1
    return len(word)


def _ends_short(word: str) -> bool:
    """Whether a word ends in a short syllable: consonant, vowel, consonant other than w, x, Y."""
    if len(word) <= _PAIR:
        return len(word) == _PAIR and word[0] in _VOWELS and word[1] not in _VOWELS
    if word.endswith("past"):
        return True
    syllable = [letter in _VOWELS for letter in word[-3:]]
    return syllable == [False, True, False] and word[-1] not in "wxY"


def _without_ed_and_ing(word: str, r1: int) -> str:
    ending = next((end for end in ("eedly", "ingly", "edly", "eed", "ing", "ed") if word.endswith(end)), "")
    rest = word[: len(word) - len(ending)]
    if ending.startswith("ee"):
        return rest + "ee" if len(rest) >= r1 and rest not in _BEFORE_EED else word
    ying = ending == "ing" and len(rest) == _PAIR and rest[1] == "y"  # dying
    if not ending or (_VOWELS.isdisjoint(rest) and not ying):
        return word
    if ying and rest[0] not in _VOWELS:
        return rest[0] + "ie"
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        return rest if len(rest) == len("add") and rest[0] in "aeo" else rest[:-1]
    return rest + "e" if len(rest) <= r1 and _ends_short(rest) else rest
