"""Cuts text into the stems that are indexed, and a prompt into the terms that are searched.

Both go the same way: small letters without accents, the words (see scripts.py), no stop words, irregular
forms replaced by their base (`went` by `go`), then the stemmer of the text's language. That is the endings in
its file, or for English the Snowball stemmer ("Porter2"), after
https://snowballstem.org/algorithms/english/stemmer.html. Words with the same stem count as the same word. A
query is read in each language of the store.

A term becomes an FTS5 expression of quoted strings alone, so no text of a query is ever FTS5 syntax.
Of a long prompt the beginning and the end are read: the question stands there, pasted text between them.
"""

from __future__ import annotations

from judgekit.retrieval.compiled import Language, get_bundled_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from judgekit.retrieval.compiled import Endings

    # Of a term: its number, its form in a text of stems, and whether longer words match too.
    Pattern: TypeAlias = tuple[int, str, bool]

_MAX_CACHED_CHARS = 8192  # characters; few texts have as many different ones
_MAX_CACHED_WORDS = 100_000  # words whose stems are remembered: some 10 MB
_VOWELS = frozenset("aeiouy")
_STEMMABLE_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_VOWEL_SHAPE_TABLE = {
    ord(letter): "v" if letter in _VOWELS else "c" for letter in (*_STEMMABLE_CHARS, "Y")
}
# For `str.translate` of ASCII text: keeps letters and digits, and puts spaces for all else.
_ASCII_WORD_TABLE = "".join([char if char.isalnum() else " " for char in map(chr, range(128))])
# A dot starts a word, as in `.NET` and `.env`, only after one of these characters. The spaces are those that
# `str.split` knows.
_SPACE_CHARS = (
    " \n\t\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_DOTS_BEFORE_WORDS = tuple([f"{char}." for char in f"{_SPACE_CHARS}(`\"'/"])
_SIGNS = "#+."
_MAX_UNSTEMMED_LETTERS = 2  # letters: a shorter word keeps its end

_TABLES = get_bundled_data()["stemmer"]
_STEM_BY_EXCEPTION: dict[str, str] = _TABLES["whole"]
_STEPS = _TABLES["steps"]
_FINISHED_STEMS = frozenset(_TABLES["as_they_are"])
_R1_EXCEPTION_PREFIXES = (
    "gener",
    "commun",
    "arsen",
    "past",
    "univers",
    "later",
    "emerg",
    "organ",
    "inter",
)
_ED_AND_ING = ("eedly", "ingly", "edly", "eed", "ing", "ed")  # longest first
_MIN_STOP_WORD_LEAD = (
    2  # stop words more, for a query to count as in a language that's rare in its store
)
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")


def stem_text(text: str, language: Language) -> list[str]:
    """Return the stems of the words in `text`, in order, without stop words."""
    stems_by_word = language.forms  # a cache
    if len(stems_by_word) > _MAX_CACHED_WORDS:
        stems_by_word.clear()

    text_stems: list[str] = []
    for word in split_words(fold(text)):
        word_stems = stems_by_word.get(word)
        if word_stems is None:
            word_stems = _list_indexed_forms(word, language)
            stems_by_word[word] = word_stems
        text_stems += word_stems

    return text_stems


def _list_indexed_forms(word: str, language: Language) -> tuple[str, ...]:
    """Return the terms under which a folded word is indexed: its stem, or nothing for a stop word.

    Parts in Hangul or in a script without spaces are cut into several terms.
    """
    is_cut = language.cuts_scripts and has_runs(word)
    if not is_cut:
        return _list_stem(word, language)

    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    terms: list[str] = []
    for script, run in scripts.split_runs(word):  # a run is a part of the word in one script
        if script == scripts.SPACED_SCRIPT:
            terms += _list_stem(run, language)
        else:
            terms += scripts.list_index_forms(script, run)
    return tuple(terms)


def _list_stem(word: str, language: Language) -> tuple[str, ...]:
    """Return a word's stem as its only term; no term for a stop word."""
    word_stem = stem_word(word, language)
    return (word_stem,) if word_stem else ()


def stem_word(word: str, language: Language) -> str:
    """Return a folded word's stem; "" for a stop word.

    An irregular form counts as its base: `got` is a stop word because `get` is one.
    """
    base = language.irregular.get(word, word)
    is_stop_word = word in language.stop_words or base in language.stop_words
    if is_stop_word:
        return ""
    if language.endings is None:  # English, whose rules are more than a list of endings
        return stem_english(base)
    return cut_endings(base, language.endings)


def cut_endings(word: str, steps: Sequence[Endings]) -> str:
    """Stem a word by replacing an ending in each step.

    Words with digits or signs are returned unchanged.
    """
    if not word.isalpha():
        return word
    for step in steps:
        word = _cut_ending(word, step)
    return word


def _cut_ending(word: str, step: Endings) -> str:
    """Replace the longest of a step's endings that leaves enough letters before it."""
    min_letters_before, max_ending_length, replacements = step
    max_length = min(max_ending_length, len(word) - min_letters_before)
    for length in range(max_length, 0, -1):
        replacement = replacements.get(word[-length:])
        if replacement is not None:
            return word[:-length] + replacement
    return word


def fold(text: str) -> str:
    """Return `text` in lower case without accents: `Été` becomes `ete`."""
    if text.isascii():
        return text.lower()
    import unicodedata  # noqa: PLC0415 - most prompts do without

    without_accents = text.lower().translate(_ACCENT_REMOVAL_TABLE)
    # Removing accents has taken Hangul syllables apart. NFC puts them together again.
    return unicodedata.normalize("NFC", without_accents)


class _Bare(dict[int, str]):
    """A table for `str.translate` that maps characters to themselves without accents, filled on demand.

    Accents are removed before text is normalised, because sorting a run of accents takes quadratic time.
    """

    def __missing__(self, code: int) -> str:
        """Remove a new character's accents and remember the result."""
        import unicodedata  # noqa: PLC0415 - most prompts do without

        if len(self) >= _MAX_CACHED_CHARS:
            self.clear()
        decomposed = unicodedata.normalize("NFD", chr(code))
        bare = "".join(char for char in decomposed if not unicodedata.combining(char))
        self[code] = bare
        return bare


_ACCENT_REMOVAL_TABLE = _Bare()


def split_alphanumeric(text: str) -> list[str]:
    """Return the runs of letters and digits in a text."""
    if text.isascii():  # most texts are, and a table is ten times as fast
        return text.translate(_ASCII_WORD_TABLE).split()
    spaced = [char if char.isalnum() else " " for char in text]
    return "".join(spaced).split()


def split_words(text: str) -> list[str]:
    """Return the words of a text in any script; see scripts.py."""
    is_simple = text.isascii() and not _may_have_signs(text)
    if is_simple:  # the usual case, for which a table is enough
        return text.translate(_ASCII_WORD_TABLE).split()
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    return scripts.split_words(text, _DOTS_BEFORE_WORDS)


def _may_have_signs(text: str) -> bool:
    """Whether a text can contain words such as `C#`, `C++` and `.NET`."""
    if "#" in text or "++" in text or text.startswith("."):
        return True
    if "." not in text:  # for speed; most words have none
        return False
    # Inside a text, a dot belongs to the word after it only behind a space, a bracket or the like.
    return any(char_and_dot in text for char_and_dot in _DOTS_BEFORE_WORDS)


def has_runs(word: str) -> bool:
    """Whether a word has Chinese, Korean or similar characters, which are indexed in smaller pieces."""
    if word.isascii():
        return False
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    return scripts.has_runs(word)


def add_gaps(text: str) -> str:
    """Put an invisible gap after each Chinese character, and others of scripts without spaces.

    FTS5 finds only whole words and their beginnings. The gaps make each such character a word of its own,
    and two neighbours can be searched as a phrase.
    """
    if text.isascii():
        return text
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    return scripts.add_gaps(text)


def remove_gaps(text: str) -> str:
    """Undo `add_gaps`."""
    if text.isascii():
        return text
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    return text.replace(scripts.GAP, "")


def stem_english(word: str) -> str:
    """Return a lower-case English word's stem by the Snowball algorithm ("Porter2").

    Words of one or two letters, and those with characters other than a-z and 0-9, are returned unchanged.
    """
    if len(word) <= _MAX_UNSTEMMED_LETTERS or not _STEMMABLE_CHARS.issuperset(word):
        return word
    if word in _STEM_BY_EXCEPTION:
        return _STEM_BY_EXCEPTION[word]

    if "y" in word:
        word = _mark_consonants(word)  # writes Y for a y that's a consonant
    r1, r2 = _find_region_starts(word)
    word = _strip_plural(word)
    if word in _FINISHED_STEMS:  # such as `evening`, which isn't a form of `even`
        return word

    word = _strip_ed_and_ing(word, r1)
    word = _replace_final_y(word)
    for rules in _STEPS:
        word = _replace_ending(word, rules, r1, r2)
    word = _strip_last_letter(word, r1, r2)
    return word.lower()  # a consonant Y becomes y again


def _replace_final_y(word: str) -> str:
    """Replace a final y after a consonant by i, so that `cry` has the stem of `cries`."""
    if len(word) <= _MAX_UNSTEMMED_LETTERS or word[-1] not in "yY":
        return word
    follows_vowel = word[-2] in _VOWELS
    return word if follows_vowel else word[:-1] + "i"


def _mark_consonants(word: str) -> str:
    """Write Y for each consonant y: at the start of the word and after a vowel."""
    marked = ""
    for char in word:
        would_y_be_consonant = not marked or marked[-1] in _VOWELS
        marked += "Y" if char == "y" and would_y_be_consonant else char
    return marked


def _find_region_starts(word: str) -> tuple[int, int]:
    """Find the starts of the regions R1 and R2.

    Most endings are removed only inside one of them, so that the stem doesn't get too short.
    """
    shape = word.translate(_VOWEL_SHAPE_TABLE)  # a `v` for each vowel, a `c` for each consonant
    # R1 starts after the first consonant that follows a vowel, as in `hop|ing`, except for a few listed
    # words.
    r1 = _find_listed_r1(word) or _find_region_start(shape, 0)
    # R2 is found by the same rule inside R1.
    r2 = _find_region_start(shape, r1)
    return r1, r2


def _find_listed_r1(word: str) -> int:
    """Return the start of R1 in a word with a listed beginning, such as `univers|ity`; 0 in any other."""
    for beginning in _R1_EXCEPTION_PREFIXES:
        if word.startswith(beginning):
            return len(beginning)
    return 0


def _find_region_start(shape: str, start: int) -> int:
    """Return the position after the first vowel-consonant pair (`vc`), or the shape's length without any."""
    shape_position = shape.find("vc", start)
    return len(shape) if shape_position < 0 else shape_position + 2


def _strip_plural(word: str) -> str:
    """Remove a plural ending: `classes` becomes `class`, and `ties` becomes `tie`."""
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        is_short = len(word) <= len("ties")  # short words keep their `e`
        return word[:-1] if is_short else word[:-2]

    if word[-1] == "s" and not word.endswith(("us", "ss")):
        shape = word.translate(_VOWEL_SHAPE_TABLE)
        has_earlier_vowel = "v" in shape[:-2]  # a vowel right before the `s` isn't enough: `gas`
        if has_earlier_vowel:
            return word[:-1]

    return word


def _replace_ending(
    word: str, rules: Sequence[tuple[str, str, bool, str]], r1: int, r2: int
) -> str:
    """Apply the first rule whose ending the word has; stemmer.toml explains the rules.

    If that rule's region or letters don't fit, the word stays unchanged.
    """
    for ending, replacement, is_for_r2, letters_before in rules:
        if not word.endswith(ending):
            continue
        beginning = word[: -len(ending)]
        region_start = r2 if is_for_r2 else r1
        is_in_region = len(beginning) >= region_start
        # A rule without letters fits after any letter.
        fits_letter = not letters_before or beginning[-1:] in letters_before
        return beginning + replacement if is_in_region and fits_letter else word
    return word


def _strip_last_letter(word: str, r1: int, r2: int) -> str:
    """Remove a final `e`, or the second `l` of `ll`, if it's far enough from the word's start."""
    if not word.endswith(("e", "ll")):
        return word
    shorter_word = word[:-1]
    is_in_r2 = len(shorter_word) >= r2
    if is_in_r2:
        return shorter_word
    # In R1, only an `e` is removed. After a short syllable it stays, as in `hope`.
    is_e_in_r1 = word.endswith("e") and len(shorter_word) >= r1
    is_removed = is_e_in_r1 and not _ends_short(shorter_word)
    return shorter_word if is_removed else word


def _ends_short(word: str) -> bool:
    """Whether a word ends in a short syllable: consonant, vowel, consonant other than w, x, Y.

    A word of two letters needs only the vowel and the consonant.
    """
    if word.endswith("past"):  # an exception, so that `pasted` has the stem of `paste`
        return True
    shape = word.translate(_VOWEL_SHAPE_TABLE)  # a `v` for each vowel, a `c` for each consonant
    is_two_letter_syllable = shape == "vc"
    return is_two_letter_syllable or (shape.endswith("cvc") and word[-1] not in "wxY")


def _strip_ed_and_ing(word: str, r1: int) -> str:
    """Remove `ed` or `ing` and repair the stem: `hoping` becomes `hope`, `hopped` becomes `hop`."""
    ending = _find_ed_or_ing(word)
    if ending is None:
        return word
    beginning = word[: -len(ending)]
    if ending.startswith("ee"):
        return _shorten_eed(word, beginning, r1)

    is_one_letter_and_ying = ending == "ing" and beginning[1:] == "y"
    if is_one_letter_and_ying and beginning[0] not in _VOWELS:
        return beginning[0] + "ie"  # `dying` has the stem of `die`
    has_no_vowel = _VOWELS.isdisjoint(beginning)
    if has_no_vowel:  # then the ending belongs to the word, as in `sing`
        return word
    return _repair_stem(beginning, r1)


def _find_ed_or_ing(word: str) -> str | None:
    """Return a word's ending if it's in `_ED_AND_ING`, or None."""
    for ending in _ED_AND_ING:  # longest first, so that `eed` is found before `ed`
        if word.endswith(ending):
            return ending
    return None


def _shorten_eed(word: str, beginning: str, r1: int) -> str:
    """Shorten `eed` and `eedly` to `ee`: `agreed` becomes `agree`, but `feed` and `proceed` stay."""
    is_exception = beginning in ("exc", "proc", "succ")
    is_in_r1 = len(beginning) >= r1
    if is_exception or not is_in_r1:
        return word
    return beginning + "ee"


def _repair_stem(beginning: str, r1: int) -> str:
    """Repair a word without its `ed` or `ing`: `hop` of `hoping` becomes `hope`."""
    if beginning.endswith(("at", "bl", "iz")):
        return beginning + "e"
    # Double letters become single (`hopped`), except in short words such as `added`, with the stem `add`.
    if beginning.endswith(_DOUBLES):
        is_like_add = len(beginning) == len("add") and beginning[0] in "aeo"
        return beginning if is_like_add else beginning[:-1]
    is_short_word = len(beginning) <= r1 and _ends_short(beginning)
    return beginning + "e" if is_short_word else beginning


HEAD_CHARS = 500  # characters of a prompt's beginning that are read
TAIL_CHARS = 250  # and of its end
MAX_TERMS = 32
# Characters; longer words are hashes, encoded data or a whole line of an unspaced script.
MAX_WORD_CHARS = 64
MAX_PARTS = 4  # of a compound with more (a path, a URL), only the parts are searched
_JOINERS = "_-./:"
# For `str.translate` of ASCII text: also keeps joiners.
_ASCII_TOKEN_TABLE = "".join(
    [char if char.isalnum() or char in _JOINERS else " " for char in map(chr, range(128))]
)
_PUNCTUATION = ".,;:!?()[]{}<>`'\"*_"


class Term:
    """One thing to look for: the text to show, the searched forms, and whether it's a common word.

    `phrases` are sequences of stems, any of which an entry may contain; stems that begin with `prefix` count,
    too. `expression` is FTS5's over stems, `unstemmed_expression` one over text as it was written. A search
    sets its `number` there, its `entry_count`, the number of entries that have it, and its `rarity`.
    """

    __slots__ = (
        "entry_count",
        "expression",
        "is_common",
        "number",
        "phrases",
        "prefix",
        "rarity",
        "text",
        "unstemmed_expression",
    )

    def __init__(
        self,
        text: str,
        phrases: list[str],
        forms: list[str],
        *,
        is_prefix: bool = False,
        is_common: bool = False,
    ) -> None:
        self.text = text
        self.phrases = phrases  # each is one or more stems, joined by spaces
        self.is_common = is_common
        self.prefix = phrases[0] if is_prefix else None  # the stem that longer words may start with
        self.expression = _build_expression(phrases, is_prefix=is_prefix)
        forms_with_gaps = [add_gaps(form) for form in forms]
        self.unstemmed_expression = _build_expression(forms_with_gaps, is_prefix=is_prefix)
        # A search fills these in.
        self.number = 0
        self.entry_count = 0
        self.rarity = 0.0


def _build_expression(forms: list[str], *, is_prefix: bool) -> str:
    """Build the FTS5 expression that matches any of `forms`. With `is_prefix`, the first is a prefix."""
    quoted = ['"' + form.replace('"', " ") + '"' for form in forms]
    if is_prefix:
        quoted[0] += "*"
    if len(quoted) > 1:
        return f"({' OR '.join(quoted)})"
    return quoted[0]


def parse(prompt: str, *languages: Language) -> list[Term]:
    """Return a prompt's terms in order, without duplicates, `MAX_TERMS` at most.

    A compound comes before its parts. `languages` are the store's, most frequent first.
    """
    text = shorten_prompt(prompt)
    ordered_languages = choose_language(text, languages)
    term_by_text: dict[str, Term] = {}
    for token in split_tokens(text):
        for term in make_terms(token, *ordered_languages):
            if term.text not in term_by_text:
                term_by_text[term.text] = term
        if len(term_by_text) >= MAX_TERMS:
            break
    return list(term_by_text.values())[:MAX_TERMS]


def choose_language(text: str, languages: Sequence[Language]) -> list[Language]:
    """Move the language with the most stop words in `text` to the front. On a tie, the earliest wins."""
    if len(languages) == 1:
        return list(languages)
    counts = _count_stop_words(text, languages)
    likeliest = languages[counts.index(max(counts))]
    other_languages = [language for language in languages if language is not likeliest]
    return [likeliest, *other_languages]


def choose_languages(
    text: str, frequent: Sequence[Language], rare: Sequence[Language]
) -> list[Language]:
    """Choose a query's languages: all of the store's frequent ones, and at most one rare one.

    A rare language is chosen, and comes first, if the query is clearly in it.
    """
    if not rare:
        return list(frequent)

    # The more of a language's stop words are in the query, the likelier the language.
    highest_frequent_count = max(_count_stop_words(text, frequent))
    rare_counts = _count_stop_words(text, rare)
    highest_rare_count = max(rare_counts)
    is_clearly_rare = highest_rare_count >= highest_frequent_count + _MIN_STOP_WORD_LEAD
    if not is_clearly_rare:  # another language would only find unrelated things
        return list(frequent)
    likeliest_rare = rare[rare_counts.index(highest_rare_count)]
    return [likeliest_rare, *frequent]


def _count_stop_words(text: str, languages: Sequence[Language]) -> list[int]:
    """Count each language's different stop words in a text, in the order of `languages`.

    Single Latin letters don't count: they occur in any language, and in code.
    """
    different_words = set(split_words(fold(text)))
    telling_words = [word for word in different_words if len(word) > 1 or not word.isascii()]
    return [len(language.stop_words.intersection(telling_words)) for language in languages]


def make_terms(token: str, *languages: Language) -> list[Term]:
    """Make the terms of a word or compound: the compound as a phrase, then its parts.

    Stop words of the first language have no term. Words are stemmed in each of the languages.
    """
    is_plain_word = token.isalpha() and token.isascii()
    parts = [token] if is_plain_word else split_words(token)
    terms: list[Term | None] = []  # None for a stop word and the like

    # Hangul, and scripts without spaces, are cut into runs of one script.
    is_cut_into_runs = languages[0].cuts_scripts and has_runs(token)
    if is_cut_into_runs:
        for part in parts:
            terms += _make_run_terms(part, languages)
    else:
        if _is_compound(parts):
            terms.append(_make_phrase(token, [" ".join(parts)], languages))
        for part in parts:
            terms += _make_part_terms(part, languages)

    return [term for term in terms if term is not None]


def _is_compound(parts: list[str]) -> bool:
    """Whether a token with these parts is a compound, of at least two different words."""
    if not 1 < len(parts) <= MAX_PARTS:
        return False
    # The parts of `.NET` are `.NET` and `NET`: the same word twice.
    different_words = {part.strip(_SIGNS) for part in parts}
    return len(different_words) > 1


def _make_part_terms(part: str, languages: Sequence[Language]) -> list[Term | None]:
    """Make the terms of a token's part: its word or, in camelCase, a phrase and then its words."""
    part_words = split_camel_case(part)
    if not part_words:
        return [_make_word(part.lower(), languages)]
    phrase = _make_phrase(part, [part, " ".join(part_words)], languages)
    return [phrase, *[_make_word(word.lower(), languages) for word in part_words]]


def _make_run_terms(word: str, languages: Sequence[Language]) -> list[Term | None]:
    """Make the terms of a word that contains Hangul or a script without spaces.

    The terms are pairs of characters, prefixes of Korean words, and words in other scripts.
    """
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    terms: list[Term | None] = []
    for script, run in scripts.split_runs(fold(word)):
        if script == scripts.SPACED_SCRIPT:
            terms.append(_make_word(run, languages))
            continue
        is_indexed_in_pairs = script != scripts.HANGUL
        for form in scripts.list_query_forms(script, run):
            if len(form) > MAX_WORD_CHARS:
                continue
            # A single character is a prefix, so that it finds the pairs that start with it.
            is_prefix = is_indexed_in_pairs and len(form) == 1
            terms.append(Term(form, [form], [form], is_prefix=is_prefix))
    return terms


def split_tokens(text: str) -> list[str]:
    """Return the words and compounds in a text, such as `pre-commit`.

    Hyphens and other joiners are removed from both ends of a token.
    """
    is_ascii = text.isascii()
    is_single_word = is_ascii and text.isalpha()
    if is_single_word:
        return [text]
    is_simple = is_ascii and not _may_have_signs(text)
    if is_simple:
        return _split_simple_text(text)

    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    return scripts.split_tokens(text, _JOINERS, _DOTS_BEFORE_WORDS)


def _split_simple_text(text: str) -> list[str]:
    """Split an ASCII text at all characters but letters, digits and joiners."""
    pieces = text.translate(_ASCII_TOKEN_TABLE).split()
    stripped = [piece.strip(_JOINERS) for piece in pieces]
    return [token for token in stripped if token]  # a piece such as `--` has become empty


def list_patterns(terms: Sequence[Term]) -> list[Pattern]:
    """Return the terms' patterns, for searching a text of stems with a space around each word.

    A pattern is its term's number, the string to look for, and whether longer words match as well.
    """
    patterns = []
    for term in terms:
        for phrase in term.phrases:
            is_beginning = phrase == term.prefix
            needle = f" {phrase}" if is_beginning else f" {phrase} "
            patterns.append((term.number, needle, is_beginning))
    return patterns


def find_pattern(text: str, pattern: Pattern, prefix_weight: float) -> list[tuple[int, float]]:
    """Find a pattern in a text of stems. Returns each match's position and weight.

    A match weighs 1, or `prefix_weight` if the word in the text is longer than the pattern.
    """
    _, needle, is_prefix = pattern
    # A whole word's needle ends with a space. It isn't part of the match, since it may start the next one.
    length = len(needle) if is_prefix else len(needle) - 1
    matches = []
    position = text.find(needle)
    while position >= 0:
        end = position + length
        is_longer = is_prefix and text[end] != " "
        weight = prefix_weight if is_longer else 1.0
        word_start = position + 1  # after the needle's first space
        matches.append((word_start, weight))
        position = text.find(needle, end)

    return matches


def split_camel_case(word: str) -> list[str]:
    """Split a camelCase identifier into words. Returns an empty list for other words and very long words."""
    is_in_one_case = word.islower() or word.isupper()
    is_capitalised = word[1:].islower()  # such as `Word`
    if is_in_one_case or is_capitalised or len(word) > MAX_WORD_CHARS:
        return []

    starts = [0]
    for position in range(1, len(word)):
        if word[position].isupper() and _starts_word(word, position):
            starts.append(position)
    if len(starts) == 1:
        return []

    ends = [*starts[1:], len(word)]
    return [word[start:end] for start, end in zip(starts, ends, strict=True)]


def _starts_word(word: str, position: int) -> bool:
    """Whether the capital at `position`, after the first character, starts a word in an identifier."""
    follows_capital = word[position - 1].isupper()
    if not follows_capital:
        return True
    # Of several capitals only the last one starts a word, as the S in `HTTPServer`.
    text_after = word[position + 1 :]
    is_last_capital = text_after[:1].islower()
    is_before_plural = text_after == "s"  # as the L in `URLs`, which starts no word
    return is_last_capital and not is_before_plural


def collect_hidden_words(text: str, language: Language) -> str:
    """Collect extra words to index: the words in camelCase identifiers, and abbreviations written out."""
    hidden: list[str] = []
    abbreviations = language.abbreviations
    for chunk in text.split():
        is_lower = chunk.isascii() and chunk.islower()
        if is_lower:
            # Most chunks come here. They contain no camelCase, so they needn't be split, which is faster.
            word = chunk.strip(_PUNCTUATION)
            hidden += abbreviations.get(word, ())
            continue
        for word in _split_chunk(chunk):
            hidden += abbreviations.get(word.lower(), ())
            hidden += split_camel_case(word)
    return " ".join(hidden)


def _split_chunk(chunk: str) -> list[str]:
    """Split a text without spaces into words, unless it's a capitalised one such as `Retries,`."""
    is_capitalised = chunk.isascii() and chunk.istitle()
    return [chunk.strip(_PUNCTUATION)] if is_capitalised else split_alphanumeric(chunk)


def shorten_prompt(prompt: str, head: int = HEAD_CHARS, tail: int = TAIL_CHARS) -> str:
    """Shorten a long prompt to its beginning and end, and normalise its characters.

    The two parts are at most `head` and `tail` characters long. A word at the cut is dropped.
    """
    text = prompt
    if len(prompt) > head + tail:
        beginning = _drop_last_word(prompt[:head])
        end = _drop_first_word(prompt[-tail:])
        text = f"{beginning}\n{end}"

    text = text.encode("utf-8", "replace").decode("utf-8")  # without lone surrogates
    if text.isascii():
        return text
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.normalize("NFC", text)  # an accented letter can be one character or two


def _drop_last_word(text: str) -> str:
    """Drop the last word, which may be cut in two. A text without spaces stays unchanged."""
    whole_words, _, _ = text.rpartition(" ")
    return whole_words or text


def _drop_first_word(text: str) -> str:
    """Drop the first word, which may be cut in two. A text without spaces stays unchanged."""
    _, _, whole_words = text.partition(" ")
    return whole_words or text


def _make_phrase(text: str, forms: list[str], languages: Sequence[Language]) -> Term | None:
    """Make the term for a sequence of words that can be written in any of `forms`.

    Returns None if every form has at most one stem.
    """
    phrases: dict[str, None] = {}  # a dict, to drop duplicates but keep the order
    for language in languages:
        for form in forms:
            phrase = " ".join(stem_text(form, language))
            phrases[phrase] = None
    has_several_stems = any(" " in phrase for phrase in phrases)
    if not has_several_stems:
        return None
    return Term(text.lower(), list(phrases), forms)


def _make_word(word: str, languages: Sequence[Language]) -> Term | None:
    """Make a word's term. An abbreviation also finds its long form: `db` finds `database`.

    Returns None for a stop word of the first language, a single letter or digit, or a very long word.
    """
    language = languages[0]
    folded = fold(word)
    word_stem = stem_word(folded, language)
    is_stop_word = not word_stem
    is_single_character = len(word) == 1 and word.isalnum()
    if is_stop_word or is_single_character or len(word) > MAX_WORD_CHARS:
        return None

    long_forms = _list_long_forms(folded, languages)
    other_phrases = _list_other_phrases(folded, long_forms, languages)
    is_prefix = _finds_longer_words(folded, word_stem, language)
    if is_prefix:
        # As a prefix, the stem finds every phrase that starts with it.
        other_phrases = [phrase for phrase in other_phrases if not phrase.startswith(word_stem)]
    else:
        other_phrases = [phrase for phrase in other_phrases if phrase != word_stem]

    phrases = [word_stem, *other_phrases]
    is_common = _is_common(folded, languages)
    return Term(word, phrases, [word, *long_forms], is_prefix=is_prefix, is_common=is_common)


def _list_long_forms(folded: str, languages: Sequence[Language]) -> list[str]:
    """List the long forms of an abbreviation in all languages."""
    long_forms: list[str] = []
    for language in languages:
        long_forms += language.abbreviations.get(folded, ())
    return long_forms


def _list_other_phrases(
    folded: str, long_forms: Sequence[str], languages: Sequence[Language]
) -> list[str]:
    """List a word's stems in all languages but the first, and the stems of its long forms."""
    phrases = [stem_word(folded, language) for language in languages[1:]]
    for form in long_forms:
        phrases += [" ".join(stem_text(form, language)) for language in languages]
    different_phrases = dict.fromkeys(phrases)
    return [phrase for phrase in different_phrases if phrase]


def _finds_longer_words(folded: str, word_stem: str, language: Language) -> bool:
    """Whether a stem finds all words that start with it: it's long enough, or a listed short one."""
    is_listed = folded in language.short_prefixes or word_stem in language.short_prefixes
    return is_listed or len(word_stem) >= language.min_prefix_letters


def _is_common(folded: str, languages: Sequence[Language]) -> bool:
    """Whether a word is common in any language, or an irregular form of a common one in the first."""
    base = languages[0].irregular.get(folded)
    has_common_base = base in languages[0].common_words
    return has_common_base or any(folded in language.common_words for language in languages)
