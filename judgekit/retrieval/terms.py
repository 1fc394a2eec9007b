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

from judgekit.retrieval.compiled import Language, bundled

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
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_SHAPE = {ord(letter): "v" if letter in _VOWELS else "c" for letter in (*_LETTERS, "Y")}
_SPACED = "".join([char if char.isalnum() else " " for char in map(chr, range(128))])
# Characters that may come before a dot at the start of a word, as in `.NET` and `.env`. The spaces are those
# that `str.split` knows.
_SPACES = (
    " \n\t\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_BEFORE_DOT = tuple([f"{char}." for char in f"{_SPACES}(`\"'/"])
_SIGNS = "#+."
_TWO_LETTERS = 2  # letters: a shorter word keeps its end

_TABLES = bundled()["stemmer"]
_WHOLE: dict[str, str] = _TABLES["whole"]
_STEPS = _TABLES["steps"]
_AS_THEY_ARE = frozenset(_TABLES["as_they_are"])
_R1_STARTS = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")
_ED_AND_ING = ("eedly", "ingly", "edly", "eed", "ing", "ed")  # longest first
_CLEAR_LEAD = 2  # stop words more, for a query to count as in a language that's rare in its store
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")


def stem_text(text: str, language: Language) -> list[str]:
    """Return the stems of the words in `text`, in order, without stop words."""
    forms_by_word = language.forms  # a cache
    if len(forms_by_word) > _MAX_CACHED_WORDS:
        forms_by_word.clear()
    text_stems: list[str] = []
    for word in split_words(fold(text)):
        forms = forms_by_word.get(word)
        if forms is None:
            forms = _list_indexed_forms(word, language)
            forms_by_word[word] = forms
        text_stems += forms

    return text_stems


def _list_indexed_forms(word: str, language: Language) -> tuple[str, ...]:
    """Return a folded word's index terms: its stem, or none for a stop word.

    A word in Hangul or in a script without spaces is cut into pieces, each of which is a term.
    """
    if not language.cuts_scripts or not has_runs(word):
        word_stem = stem_word(word, language)
        return (word_stem,) if word_stem else ()

    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    forms: list[str] = []
    for script, run in scripts.split_runs(word):
        if script != scripts.LETTERS:
            forms += scripts.list_index_forms(script, run)
        else:
            word_stem = stem_word(run, language)
            if word_stem:
                forms.append(word_stem)

    return tuple(forms)


def stem_word(word: str, language: Language) -> str:
    """Return a folded word's stem; "" for a stop word, and for its irregular forms (`got`)."""
    base = language.irregular.get(word, word)
    if word in language.stop or base in language.stop:
        return ""
    if language.endings is None:
        return stem_english(base)
    return cut_endings(base, language.endings)


def cut_endings(word: str, steps: Sequence[Endings]) -> str:
    """Stem a word: each step replaces the longest suffix that leaves at least its number of letters.

    Words with digits or signs are returned unchanged.
    """
    if not word.isalpha():
        return word
    # Suffixes are at most `longest_ending` letters long.
    for least_letters, longest_ending, replacements in steps:
        longest = min(longest_ending, len(word) - least_letters)
        for length in range(longest, 0, -1):
            replacement = replacements.get(word[-length:])
            if replacement is not None:
                word = word[:-length] + replacement
                break
    return word


def fold(text: str) -> str:
    """Return `text` in lower case without accents."""
    if text.isascii():
        return text.lower()
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.normalize("NFC", text.lower().translate(_WITHOUT_ACCENTS))


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


_WITHOUT_ACCENTS = _Bare()


def split_alphanumeric(text: str) -> list[str]:
    """Return the runs of letters and digits in a text."""
    if text.isascii():  # most texts are, and a table is ten times as fast
        return text.translate(_SPACED).split()
    spaced = [char if char.isalnum() else " " for char in text]
    return "".join(spaced).split()


def split_words(text: str) -> list[str]:
    """Return the words of a text in any script; see scripts.py."""
    if text.isascii() and not _may_have_signs(text):
        return text.translate(_SPACED).split()
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    return scripts.split_words(text, _BEFORE_DOT)


def _may_have_signs(text: str) -> bool:
    """Whether a text can contain words such as `C#`, `C++` and `.NET`."""
    if "#" in text or "++" in text or text.startswith("."):
        return True
    if "." not in text:
        return False
    return any(char_and_dot in text for char_and_dot in _BEFORE_DOT)


def has_runs(word: str) -> bool:
    """Whether a word contains scripts that are cut into pairs or prefixes."""
    if word.isascii():
        return False
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    return scripts.has_runs(word)


def add_gaps(text: str) -> str:
    """Insert gaps so that FTS5 finds pairs of characters in scripts without spaces."""
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
    """Stem a lower-case English word with the Snowball algorithm ("Porter2").

    Words with characters other than a-z and 0-9 are returned unchanged.
    """
    if len(word) <= _TWO_LETTERS or not _LETTERS.issuperset(word):
        return word
    if word in _WHOLE:  # an exception, with its stem
        return _WHOLE[word]

    if "y" in word:
        word = _mark_consonants(word)
    r1, r2 = _find_region_starts(word)
    word = _strip_plural(word)
    if word in _AS_THEY_ARE:
        return word

    word = _strip_ed_and_ing(word, r1)
    ends_in_y = word[-1] in "yY"
    letter_before = word[-2:-1]
    if len(word) > _TWO_LETTERS and ends_in_y and letter_before not in _VOWELS:
        word = word[:-1] + "i"  # `cry` has the stem of `cries`
    for rules in _STEPS:
        word = _replace_ending(word, rules, r1, r2)
    return _strip_last_letter(word, r1, r2).lower()  # a consonant Y becomes y again


def _mark_consonants(word: str) -> str:
    """Write Y for each consonant y: at the start of the word and after a vowel."""
    marked = ""
    for char in word:
        is_consonant = not marked or marked[-1] in _VOWELS
        marked += "Y" if char == "y" and is_consonant else char
    return marked


def _find_region_starts(word: str) -> tuple[int, int]:
    """Find the starts of the regions R1 and R2, in which endings may be removed.

    R1 starts after the first consonant that follows a vowel. R2 starts in the same way, but inside R1. This
    leaves enough of the word.
    """
    shape = word.translate(_SHAPE)
    r1 = 0
    for exception in _R1_STARTS:
        if word.startswith(exception):
            r1 = len(exception)
            break
    if not r1:
        r1 = _find_region_start(shape, 0)
    return r1, _find_region_start(shape, r1)


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
        shape = word.translate(_SHAPE)
        has_earlier_vowel = "v" in shape[:-2]  # a vowel right before the `s` isn't enough: `gas`
        if has_earlier_vowel:
            return word[:-1]

    return word


def _replace_ending(
    word: str, rules: Sequence[tuple[str, str, bool, str]], r1: int, r2: int
) -> str:
    """Apply the first rule whose ending the word has; stemmer.toml explains the rules.

    The word stays unchanged if the ending is outside the rule's region or follows a letter the rule doesn't
    list.
    """
    for ending, replacement, is_for_r2, letters_before in rules:
        if word.endswith(ending):
            beginning = word[: -len(ending)]
            region_start = r2 if is_for_r2 else r1
            is_in_region = len(beginning) >= region_start
            if is_in_region and (not letters_before or beginning[-1] in letters_before):
                return beginning + replacement
            return word
    return word


def _strip_last_letter(word: str, r1: int, r2: int) -> str:
    """Remove a final `e`, or the second `l` of `ll`. A short word such as `hope` keeps its `e`."""
    shorter_word = word[:-1]
    is_in_r1 = len(shorter_word) >= r1
    is_in_r2 = len(shorter_word) >= r2
    if word[-1] == "e":
        if is_in_r2 or (is_in_r1 and not _ends_short(shorter_word)):
            return shorter_word
    elif is_in_r2 and word.endswith("ll"):
        return shorter_word
    return word


def _ends_short(word: str) -> bool:
    """Whether a word ends in a short syllable: consonant, vowel, consonant other than w, x, Y."""
    shape = word.translate(_SHAPE)
    if len(word) <= _TWO_LETTERS:
        return shape == "vc"
    if word.endswith("past"):  # an exception
        return True
    return shape.endswith("cvc") and word[-1] not in "wxY"


def _strip_ed_and_ing(word: str, r1: int) -> str:
    """Remove `ed` or `ing` and repair the stem: `hoping` becomes `hope`, `hopped` becomes `hop`."""
    ending = ""
    for candidate in _ED_AND_ING:
        if word.endswith(candidate):
            ending = candidate
            break
    if not ending:
        return word

    beginning = word[: -len(ending)]
    if ending.startswith("ee"):
        # `agreed` becomes `agree`, but `proceed` isn't a form of `proc`.
        if len(beginning) >= r1 and beginning not in ("exc", "proc", "succ"):
            return beginning + "ee"
        return word

    # `dying` has the stem of `die`.
    is_like_dying = ending == "ing" and len(beginning) == _TWO_LETTERS and beginning[1] == "y"
    if not is_like_dying and _VOWELS.isdisjoint(beginning):
        return word
    if is_like_dying and beginning[0] not in _VOWELS:
        return beginning[0] + "ie"

    if beginning.endswith(("at", "bl", "iz")):
        return beginning + "e"
    # Double letters become single (`hopped`), except in short words such as `added`, with the stem `add`.
    if beginning.endswith(_DOUBLES):
        is_like_add = len(beginning) == len("add") and beginning[0] in "aeo"
        return beginning if is_like_add else beginning[:-1]
    # A short word has lost an `e`: `hoping`.
    if len(beginning) <= r1 and _ends_short(beginning):
        return beginning + "e"
    return beginning


HEAD_CHARS = 500  # characters of a prompt's beginning that are read
TAIL_CHARS = 250  # and of its end
MAX_TERMS = 32
# Characters; longer words are hashes, encoded data or a whole line of an unspaced script.
MAX_WORD_CHARS = 64
MAX_PARTS = 4  # of a compound with more (a path, a URL), only the parts are searched
_JOINERS = "_-./:"
_IN_TOKENS = "".join(
    [char if char.isalnum() or char in _JOINERS else " " for char in map(chr, range(128))]
)
_PUNCTUATION = ".,;:!?()[]{}<>`'\"*_"


class Term:
    """One thing to look for: the text to show, the searched forms, and whether it's a common word.

    `phrases` are sequences of stems, any of which an entry may contain; stems that begin with `prefix` count,
    too. `expression` is FTS5's over stems, `shown` one over text as it was written. A search sets its
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
        self.expression = _build_expression(phrases, prefix=prefix)
        self.shown = _build_expression([add_gaps(form) for form in forms], prefix=prefix)


def _build_expression(forms: list[str], *, prefix: bool) -> str:
    """Build the FTS5 expression that matches any of `forms`. With `prefix`, the first form is a prefix."""
    quoted = ['"' + form.replace('"', " ") + '"' for form in forms]
    if prefix:
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

    A rare language is chosen, and comes first, if the query is clearly in it. Reading a query in too many
    languages would find unrelated things.
    """
    if not rare:
        return list(frequent)

    # The language with the most stop words in the query is the likeliest.
    most_of_frequent = max(_count_stop_words(text, frequent))
    counts_of_rare = _count_stop_words(text, rare)
    most_of_rare = max(counts_of_rare)
    if most_of_rare < most_of_frequent + _CLEAR_LEAD:
        return list(frequent)
    likeliest_rare = rare[counts_of_rare.index(most_of_rare)]
    return [likeliest_rare, *frequent]


def _count_stop_words(text: str, languages: Sequence[Language]) -> list[int]:
    """Count each language's different stop words in a text, in the order of `languages`.

    Single Latin letters don't count: they occur in any language, and in code.
    """
    different_words = set(split_words(fold(text)))
    telling_words = [word for word in different_words if len(word) > 1 or not word.isascii()]
    return [len(language.stop.intersection(telling_words)) for language in languages]


def make_terms(token: str, *languages: Language) -> list[Term]:
    """Make the terms of a word or compound: the compound as a phrase, then its parts.

    Stop words of the first language have no term. A term has the stems of all languages.
    """
    terms: list[Term | None] = []
    is_plain_word = token.isalpha() and token.isascii()
    parts = [token] if is_plain_word else split_words(token)

    # Words in scripts without spaces are cut into pairs of characters instead.
    if not token.isascii() and languages[0].cuts_scripts and has_runs(token):
        for part in parts:
            terms += _make_run_terms(part, languages)
        return [term for term in terms if term is not None]

    if 1 < len(parts) <= MAX_PARTS:
        different_parts = {part.strip(_SIGNS) for part in parts}
        if len(different_parts) > 1:  # `.NET`, cut into `.NET` and `NET`, isn't a compound
            terms.append(_make_phrase(token, [" ".join(parts)], languages))

    # Add each part, and the words inside camelCase parts.
    for part in parts:
        part_words = split_camel_case(part)
        if part_words:
            terms.append(_make_phrase(part, [part, " ".join(part_words)], languages))
        else:
            part_words = [part]
        for word in part_words:
            terms.append(_make_word(word.lower(), languages))

    return [term for term in terms if term is not None]


def _make_run_terms(word: str, languages: Sequence[Language]) -> list[Term | None]:
    """Make the terms of a word that contains Hangul or a script without spaces.

    The terms are pairs of characters, prefixes of Korean words, and words in other scripts.
    """
    from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

    terms: list[Term | None] = []
    for script, run in scripts.split_runs(fold(word)):
        if script == scripts.LETTERS:
            terms.append(_make_word(run, languages))
            continue
        for form in scripts.list_query_forms(script, run):
            # A single character finds all pairs that start with it.
            is_prefix = len(form) == 1 and script != scripts.HANGUL
            if len(form) <= MAX_WORD_CHARS:
                terms.append(Term(form, [form], [form], prefix=is_prefix))
    return terms


def split_tokens(text: str) -> list[str]:
    """Return the words and compounds in a text, without joiners at either end."""
    if text.isalpha() and text.isascii():
        return [text]
    if not text.isascii() or _may_have_signs(text):
        from judgekit.retrieval import scripts  # noqa: PLC0415 - most prompts do without

        return scripts.split_tokens(text, _JOINERS, _BEFORE_DOT)
    stripped = [piece.strip(_JOINERS) for piece in text.translate(_IN_TOKENS).split()]
    return [token for token in stripped if token]


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
    _, needle, is_beginning = pattern
    matches = []
    step = len(needle)
    if not is_beginning:
        step -= 1  # the space after this match may be the space before the next match
    position = text.find(needle)
    while position >= 0:
        is_longer = is_beginning and text[position + step] != " "
        weight = prefix_weight if is_longer else 1.0
        matches.append((position + 1, weight))  # skip the space before the word
        position = text.find(needle, position + step)

    return matches


def split_camel_case(word: str) -> list[str]:
    """Split a camelCase identifier into words. Returns an empty list for other words and very long words."""
    is_in_one_case = word.islower() or word.isupper()
    if is_in_one_case or word[1:].islower() or len(word) > MAX_WORD_CHARS:
        return []

    starts = [0]
    for position in range(1, len(word)):
        if not word[position].isupper():
            continue

        follows_capital = word[position - 1].isupper()
        text_after = word[position + 1 :]
        # In `HTTPServer`, the S starts a word; in `URLs`, the L doesn't.
        is_last_capital = text_after[:1].islower() and text_after != "s"
        if not follows_capital or is_last_capital:
            starts.append(position)

    if len(starts) == 1:
        return []

    ends = [*starts[1:], len(word)]
    return [word[start:end] for start, end in zip(starts, ends, strict=True)]


def collect_hidden_words(text: str, language: Language) -> str:
    """Collect extra words to index: the words in camelCase identifiers, and abbreviations written out."""
    hidden: list[str] = []
    abbreviations = language.abbreviations
    for chunk in text.split():
        # Fast path for most words: lower case contains no camelCase.
        if chunk.isascii() and chunk.islower():
            word = chunk.strip(_PUNCTUATION)
            if word in abbreviations:
                hidden += abbreviations[word]
            continue

        is_capitalised = chunk.isascii() and chunk.istitle()  # no need to split `Retries,`
        chunk_words = [chunk.strip(_PUNCTUATION)] if is_capitalised else split_alphanumeric(chunk)
        for word in chunk_words:
            hidden += abbreviations.get(word.lower(), ())
            hidden += split_camel_case(word)
    return " ".join(hidden)


def shorten_prompt(prompt: str, head: int = HEAD_CHARS, tail: int = TAIL_CHARS) -> str:
    """Shorten a long prompt to its beginning and end, and normalise its characters.

    The two parts are at most `head` and `tail` characters long. A word at the cut is dropped.
    """
    text = prompt
    if len(prompt) > head + tail:
        beginning = prompt[:head]
        end = prompt[-tail:]
        # Without spaces, the prompt is cut anywhere.
        whole_words, _, _ = beginning.rpartition(" ")
        beginning = whole_words or beginning
        _, _, whole_words = end.partition(" ")
        end = whole_words or end
        text = f"{beginning}\n{end}"

    text = text.encode("utf-8", "replace").decode("utf-8")  # without lone surrogates
    if text.isascii():
        return text
    import unicodedata  # noqa: PLC0415 - most prompts do without

    return unicodedata.normalize("NFC", text)


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

    Returns None for a stop word of the first language, a single letter or a very long word.
    """
    language, *other_languages = languages
    folded = fold(word)
    word_stem = stem_word(folded, language)
    is_letter = len(word) <= 1 and word.isalnum()
    if not word_stem or is_letter or len(word) > MAX_WORD_CHARS:
        return None

    is_short_prefix = folded in language.short or word_stem in language.short
    is_prefix = is_short_prefix or len(word_stem) >= language.min_prefix
    is_common = folded in language.common or language.irregular.get(folded) in language.common

    # The word's stems in other languages and the stems of its long forms are found as well.
    long_forms = list(language.abbreviations.get(folded, ()))
    phrases: list[str] = []
    for other_language in other_languages:
        long_forms += other_language.abbreviations.get(folded, ())
        phrases.append(stem_word(folded, other_language))
        if folded in other_language.common:
            is_common = True

    for form in long_forms:
        for any_language in languages:
            phrases.append(" ".join(stem_text(form, any_language)))

    phrases = [phrase for phrase in dict.fromkeys(phrases) if phrase]  # without duplicates
    if is_prefix:  # the prefix finds these phrases anyway
        phrases = [phrase for phrase in phrases if not phrase.startswith(word_stem)]
    elif word_stem in phrases:
        phrases.remove(word_stem)

    return Term(
        word, [word_stem, *phrases], [word, *long_forms], prefix=is_prefix, common=is_common
    )
