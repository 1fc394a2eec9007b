"""Finds the secrets that stand in a text as it is: by their form, by their name, by their place.

The rules are in `secret_rules.toml`; with them go the plugins of detect-secrets that know a secret by its
form. Nothing is guessed from how random a text looks: hashes, identifiers and encoded images are part of what
is judged. A name or a place says how much a value must look like a secret: made by a generator, or chosen by
a person. Tables, manifests, phrases, codes and private keys take more than a word and its name. A private key
is found between its header and its end, whatever stands before each line of it.
"""

from __future__ import annotations

import functools
import re
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from judgekit.redaction.secret_rules import (
    LANGUAGE_WORDS,
    RE,
    RULES,
    SecretMatch,
    Span,
    line_end,
    read_rows,
)
from judgekit.redaction.secret_tables import (
    LONGEST_ROW,
    find_in_marked_tables,
    find_in_table,
    find_in_wiki_table,
    find_wiki_pairs,
)
from judgekit.redaction.vendor_tokens import count_changes, find_vendor_tokens
from judgekit.redaction.word_index import AnyWord, WordIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    # A kind of secret, words of which every text with one has at least one, and its form or place.
    Rule = tuple[str, tuple[str, ...], str | re.Pattern[str]]

PRIVATE_KEY = "private key"
PHRASE = "seed phrase"
JWK_MEMBER = "key"


def is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


# Kinds that are found behind a letter too: their beginning and length do not come about by chance.
_UNMISTAKABLE: Final = frozenset({"GitHub token", "Anthropic key"})
_SHORTEST_FORM: Final = 17  # characters of a secret with a form of its own
_LINES_BEHIND: Final = 3  # a value may stand in them that the line before names
_LONGEST_NAME: Final = 60
_SMALL: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

_FORMS: Final = read_rows("forms")
_PLACES: Final = read_rows("places")
_LANGUAGE_WORDS: Final = AnyWord(LANGUAGE_WORDS)
_LINE_WORDS: Final = AnyWord([*RULES["lines"]["words"].split("|"), *LANGUAGE_WORDS])
_LINE_PATTERNS: Final = [re.compile(pattern) for pattern in RULES["lines"]["patterns"]]
_SHORT, _ENDINGS = (frozenset(RULES["words"][name].split()) for name in ("short", "endings"))
_compiled: Final = functools.cache(re.compile)
# Parts of patterns that may match a blank.
_WITH_BLANKS: Final = (
    " ",
    "\\s",
    "[^",
    ".{",
    ".*",
    "\\W",
    "\\D",
)


@functools.cache
def load() -> list[Rule]:
    """Return the rules for secrets with a form of their own; importing the plugins takes 0.1 s of CPU."""
    from detect_secrets import plugins  # noqa: PLC0415 - only where something is sent

    rules: list[Rule] = [*_FORMS]
    for kind, words, name in RULES["plugins"]:
        module, _, detector = name.partition(".")
        denylist = getattr(import_module(f"{plugins.__name__}.{module}"), detector).denylist
        rules += [(kind, tuple(words.split(" ")), pattern) for pattern in denylist]
    return rules


@functools.cache
def _form_index() -> WordIndex:
    return WordIndex([words for _, words, _ in load()])


@functools.cache
def _place_index(*, in_languages: bool) -> WordIndex:
    """Return the index of places; without those that only a name in another language has."""
    rows = [words for _, words, _ in _PLACES]
    if not in_languages:
        languages = set(LANGUAGE_WORDS)
        rows = [() if languages.issuperset(words) else words for words in rows]
    return WordIndex(rows)


def find(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, in no order; what one is part of, another may be."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter became two: names are made of those of ASCII
        lower = text.translate(_SMALL)
    yield from (SecretMatch(*span, PRIVATE_KEY) for span in private_keys(text, lower))
    yield from _long_words(text)
    lines = _lines(lower)
    if lines:
        yield from _places(text, lower, lines)
    for start, end, kind in blocks(lower, lines):
        if kind in (PHRASE, JWK_MEMBER) or not _stands_in(text[start:end]):
            yield SecretMatch(start, end, kind)


def _places(text: str, lower: str, lines: list[Span]) -> Iterator[SecretMatch]:
    """Yield the values in some lines that are secrets by their place or their name."""
    language_words = _LANGUAGE_WORDS.pattern_for(lower)
    for start, end in lines:
        in_languages = bool(language_words.search(lower, start, end))
        index = _place_index(in_languages=in_languages)
        for number in index.rules_of(lower[start:end]):
            kind, _, pattern = _PLACES[number]
            for match in _compiled(pattern).finditer(lower, start, end):
                group = cast("str", match.lastgroup)
                first = match.start(group)
                value = text[slice(*match.span(group))].rstrip(".,:")
                bare = group != "sure" and text[first - 1 : first] not in "\"'"
                if value and _fits(value, group.rstrip("23")) and not (bare and _is_code(value)):
                    yield SecretMatch(first, first + len(value), kind)
        if in_languages:
            names = RE["pattern_of_languages"]
        else:
            names = RE["pattern"]
        named = (_named(text, match) for match in names.finditer(lower, start, end))
        yield from filter(None, named)


def _long_words(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets with a form of their own, and other tokens of vendors: all have a long word."""
    long = " ".join([word for word in text.split() if len(word) >= _SHORTEST_FORM])
    if not long:
        return
    forms = [*_forms(text, long)]
    yield from forms
    if any(find_vendor_tokens(long)):
        starts = {form.start for form in forms}
        for token in find_vendor_tokens(text):
            if token.start not in starts:
                yield token


@functools.cache
def _is_within_word(pattern: str | re.Pattern[str]) -> bool:
    """Whether a form has no blanks: where no long word has it, the text has not."""
    if isinstance(pattern, str):
        written = pattern
    else:
        written = pattern.pattern
    return not any(map(written.__contains__, _WITH_BLANKS))


def _forms(text: str, long: str) -> Iterator[SecretMatch]:
    rules = load()
    for number in _form_index().rules_of(long):
        kind, _, written = rules[number]
        pattern = _compiled(written)
        if _is_within_word(written) and not pattern.search(long):
            continue
        at = 0
        while at <= len(text) and (form := pattern.search(text, at)):
            start, at = form.span()
            in_word = start > 0 and text[start].isalnum() and text[start - 1].isalnum()
            if not in_word or (kind in _UNMISTAKABLE and is_mixed(form[0])):
                if kind != PRIVATE_KEY:  # the pattern may be of a fixed length
                    at = cast("re.Match[str]", RE["rest"].match(text, at)).end()
                yield SecretMatch(start, at, kind)


def _lines(lower: str) -> list[Span]:
    """Return from where to where lines stand in which a value may be a secret by its name or place."""
    named = set()
    for pattern in (_LINE_WORDS.pattern_for(lower), *_LINE_PATTERNS):
        at = 0
        while match := pattern.search(lower, at):
            at = line_end(lower, match.end() - 1)
            named.add((lower.rfind("\n", 0, match.start()) + 1, at))
    lines: list[Span] = []
    for start, stop in sorted(named):
        for _ in range(_LINES_BEHIND):
            stop = line_end(lower, stop + 1)  # noqa: PLW2901 - on to the next line
        if lines and start <= lines[-1][1]:
            start, before = lines.pop()  # noqa: PLW2901 - goes on with it
            stop = max(before, stop)  # noqa: PLW2901 - the same
        lines.append((start, stop))
    return lines


# Names and values


@functools.lru_cache(4096)
def _strength(name: str) -> str:
    """Return what a name promises: a password, a short word for one, a secret, perhaps one; or nothing."""
    words = []
    for word in RE["separator"].split(RE["hump"].sub(r"\1_\2", name).lower()):
        if word:
            words.append(word)
    for _ in range(3):
        if len(words) > 1 and (words[-1] in _ENDINGS or words[-1].isdigit()):
            words.pop()
    if not words or "public" in words:
        return ""
    last = words[-1].rstrip("0123456789")
    if RE["strong"].search("".join(words).rstrip("0123456789")):
        return "strong"
    if last in _SHORT or "".join(words[-2:]) in _SHORT:
        return "short"
    joined = "".join(words[-3:]).rstrip("0123456789")
    if RE["secret"].search(joined):
        return "secret"
    weak = RE["weak"].search(joined)
    if weak and (last == weak[0] or last.endswith(("key", "auth"))):
        return "weak"
    return ""


def _named(text: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the secret that a name and a value are; `match` is one in small letters."""
    core = match.start("core")
    before = cast("re.Match[str]", RE["before"].search(text, max(0, core - _LONGEST_NAME), core))[0]
    if not before and (two := RE["two_words"].search(text, max(0, core - 14), core)):
        before = f"{two[1]}_"  # `API key`
    strength = _strength(before + text[core : match.end("tail")])
    if not strength:
        return None
    start, end = match.span("value")
    quoted = text[start] in "\"'`("
    scheme = None
    if quoted:
        value = text[start + 1 : end - 1]
        scheme = RE["scheme"].match(value)
        if scheme:
            value = value[scheme.end() :]
    else:
        value = text[start:end].rstrip(".,:")
    strong = strength in ("strong", "short")
    hyphened = (
        quoted and value.islower() and "-" in value and " " not in value and _is_phrase(value)
    )
    if hyphened:  # JWT_SECRET="maple-river-candle-orbit"
        hyphened = bool(RE["secret_name"].search(match["core"] + match["tail"]))
    phrase = hyphened or (quoted and strong and bool(RE["passphrase"].match(value)))
    name = strong and value.isupper() and not value.isalnum()
    if not (phrase or _generated(value)) and (name or _stands_in(value)):
        return None
    if not quoted:
        if not _bare_secret(text, match, value, strength):
            return None
    elif not ((phrase and "-" in value) or _quoted_secret(text, match, value, strength)):
        return None
    if strong:
        kind = "password"
    else:
        kind = {"key": "key", "secret": "secret"}.get(match["core"], "token")
    start += quoted
    if scheme:
        start += scheme.end()
    end = start + len(value)
    # A value without quotes is the rest of its line in a file of settings.
    setting = not quoted and RE["setting"].fullmatch(_line_before(text, match.start()))
    if setting:
        rest = RE["to_blank"].match(text, end)
    else:
        rest = None
    if rest and any(map(str.isalnum, rest[0])):
        end = rest.end()
    return SecretMatch(start, end, kind)


def _line_before(text: str, at: int) -> str:
    """Return what stands on a line before a place; of much the end."""
    first = max(0, at - 2 * _LONGEST_NAME)
    return text[max(first, text.rfind("\n", first, at) + 1) : at]


def _quoted_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:
    if strength == "strong":
        return not value.startswith("/") or is_mixed(value)
    if strength == "short":
        return (is_mixed(value) or len(value) >= _LEAST_SHORT) and not _is_code(value)
    if strength == "weak":
        secretive = RE["hex_key"].match(value) and RE["secretive"].search(
            _line_before(text, match.start())
        )
        return bool(secretive) or _is_weak_secret(value)
    random = is_mixed(value) or _generated(value)
    return (
        len(value) >= _LEAST_TOKEN
        and random
        and not (_is_code(value) or RE["expression"].search(value))
    )


def _bare_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:
    """Whether a value without quotes is a secret: in code it is a name more often than not."""
    colon = text[match.start() - 1 : match.start()] == ":"
    if (
        colon
        or _is_code(value)
        or RE["choice"].match(value)
        or (match["close"] and value.isdigit())
    ):
        return False
    if strength == "weak":
        return _is_weak_secret(value)
    # Name and value are all that their line has, as in a file of settings.
    before = _line_before(text, match.start())
    behind = RE["end_of_setting"].match(text, match.end())
    alone = bool(behind and RE["setting"].fullmatch(before))
    snake = _is_snake(value)
    if strength == "secret":
        if (
            alone
            and match["core"] == "secret"
            and text[match.start("core") : match.end("tail")].isupper()
        ):
            return len(value) >= _LEAST_TOKEN and not snake
        if alone and _is_strange(value):
            least = _LEAST_TOKEN
        else:
            least = _LEAST_BARE_TOKEN
        return len(value) >= least and (is_mixed(value) or _generated(value)) and not snake
    if (
        strength == "short"
        and value.isdigit()
        and text[match.start("core") : match.end("core")] == "PIN"
    ):
        return True
    setting = match["operator"] == ":" or match.end("operator") == match.start("value")
    if snake and not (setting and alone and is_mixed(value)):
        return False
    if strength == "short":
        return _is_chosen(value) or (
            len(value) >= _LEAST_SHORT and _in_file_of_settings(text, match)
        )
    return (
        any(map(str.isdigit, value))
        or not value.isidentifier()
        or _in_file_of_settings(text, match)
    )


def _in_file_of_settings(text: str, match: re.Match[str]) -> bool:
    """Whether a word is a value all the same: `DB_PASSWORD=x`, `Pwd=x;`, `password: x`, `passwd=x` alone."""
    operator = match["operator"]
    gap = text[match.end("operator") : match.start("value")]
    if RE["end_of_setting"].match(text, match.end()):
        after = ""
    else:
        after = text[match.end() : match.end() + 1]
    before = _line_before(text, match.start()).strip(" \t-")
    ends = after in ("", "\n")
    alone = ends and bool(re.fullmatch(r"[\w.-]*", before))
    if operator != "=":
        return (
            alone and operator == ":" and gap == " " and text[slice(*match.span("value"))].islower()
        )
    if not gap and RE["next_setting"].match(text, match.end()):
        return True
    if after == ";" or text[match.start("core") : match.end("tail")].isupper():
        return True
    if not gap and ends and RE["property"].fullmatch(before):
        return match.end("tail") == match.start("operator")
    return alone and bool(RE["section"].search(text, max(0, match.start() - 300), match.start()))


_SYMBOLS: Final = frozenset("!#$%&*+=?@^|~")
_LEAST_SYMBOLS: Final = 3
_LEAST_SHORT = 6
_LEAST_STRANGE = 6
_LEAST_TOKEN = 8
_LEAST_BARE_TOKEN = 16
_LEAST_WEAK = 20
_LEAST_WORDS: Final = 4
_CHANGED_OFTEN: Final = 4
_SHUFFLED: Final = 0.45  # what is drawn at random has 0.6, camelCase with words of five letters 0.4
_SHUFFLED_WEAK: Final = 0.35


def _fits(value: str, wanted: str) -> bool:
    """Whether a value is what the group of a place's pattern wants; `secret_rules.toml` explains them."""
    if wanted in ("sure", "phrase"):
        if wanted == "phrase":
            return _is_phrase(value)
        return not value.startswith("[")
    if _generated(value):
        return True
    if _stands_in(value):
        return False
    if wanted in ("mixed", "random"):
        digits = sum(map(str.isdigit, value))
        many = wanted == "mixed" or (len(value) >= _LEAST_TOKEN and digits * 10 >= len(value))
        return many and is_mixed(value) and not _is_snake(value)
    if wanted in ("generated", "chosen"):
        return _is_strange(value) or (wanted == "chosen" and _is_chosen(value))
    return wanted == "value" or not (RE["sentence"].match(value) or value.isupper())


def _stands_in(value: str) -> bool:
    """Whether a value says where a secret will stand, or names the place where it is kept."""
    return bool(RE["placeholder"].match(value) or RE["name"].match(value)) or any(
        map(str.isspace, value)
    )


def _generated(value: str) -> bool:
    """Whether a value is such a mixture that only a generator makes, whatever it begins with."""
    if len(value) < _LEAST_TOKEN or RE["format"].search(value) or any(map(str.isspace, value)):
        return False
    symbols = len(_SYMBOLS.intersection(value[1:-1]))
    cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    mixed = is_mixed(value)
    if symbols >= (1 if mixed and cases else _LEAST_SYMBOLS) and (mixed or cases):
        return True
    if RE["words"].match(value):
        return False
    least = _LEAST_BARE_TOKEN if mixed else _LEAST_WEAK
    return cases and len(value) >= least and _changes(value) >= _SHUFFLED


def _changes(value: str) -> float:
    """Return how often a value changes from one class of characters to another, as a part of its length."""
    return count_changes(value) / max(len(value) - 1, 1)


def _is_snake(value: str) -> bool:
    """Whether a value is a name of several words, as code has them."""
    return value.isidentifier() and "_" in value.strip("_") and not _generated(value)


def _is_code(value: str) -> bool:
    return bool(RE["code"].match(value)) and not _generated(value)


def _is_weak_secret(value: str) -> bool:
    """Whether a value is a secret under a name like `key` or `session`, which many others have too."""
    long = len(value) >= _LEAST_WEAK and is_mixed(value) and not _is_snake(value)
    return long and not RE["hex_or_id"].match(value) and _changes(value) >= _SHUFFLED_WEAK


def _is_strange(value: str) -> bool:
    """Whether letters, digits and symbols are mixed within a value as in no name, version or measure."""
    core = value.strip("\"'`*.,;:!?)")
    if not is_mixed(core):
        cases = any(map(str.isupper, core[1:])) and any(map(str.islower, core))
        return cases and len(core) >= _LEAST_TOKEN and bool(_SYMBOLS.intersection(core[1:-1]))
    kinds = "".join("a" if char.isalpha() else "0" if char.isdigit() else "-" for char in core)
    runs = re.sub(r"(.)\1+", r"\1", kinds)
    often = (
        len(runs) >= _CHANGED_OFTEN
        or runs == "a0"
        or any(map(runs.__contains__, ("a0-", "0a0", "a0a")))
    )
    return often and len(core) >= _LEAST_STRANGE and not RE["measure"].match(core)


def _is_chosen(value: str) -> bool:
    """Whether a value is what people choose behind the word password: letters with digits, no standard."""
    core = value.strip("\"'`*_.,;:?)")
    if len(core) < _LEAST_STRANGE or not is_mixed(core):
        return False
    return not (RE["term"].match(core) or _stands_in(core) or RE["expression"].search(core))


def _is_phrase(value: str) -> bool:
    """Whether a value is four words or more, none of which a sentence has."""
    words = value.lower().replace("-", " ").split()
    many = len(words) >= _LEAST_WORDS
    phrase = " ".join(words)
    return many and bool(RE["passphrase"].match(phrase)) and not RE["prose"].search(phrase)


# Tables, manifests, phrases and codes

_PHRASE_NAMES: Final = ("seed", "mnemonic", "phrase", "bip39", "bip-39", "wallet", "words")
_PHRASE_WORDS: Final[tuple[int, ...]] = (12, 15, 18, 21, 24)


def blocks(lower: str, lines: list[Span]) -> Iterator[SecretMatch]:
    """Yield the secrets that take more than a word and its name; `lines` of the text may name them."""
    for start, end in lines:
        at = start
        while at < end:
            stop = line_end(lower, at)
            if stop - at <= LONGEST_ROW:
                line = lower[at:stop]
            else:
                line = ""
            if any(mark in line for mark in "|,;\t") and _has_head_cell(line):
                yield from find_in_table(lower, at, stop)
            if RE["wiki_row"].match(line) or RE["textile_row"].match(line):
                yield from find_in_wiki_table(lower, at, stop)
            at = stop + 1
        if "||" in lower or "^" in lower:
            yield from find_wiki_pairs(lower, start, end)
        if "cookie" in lower or "-b" in lower:
            yield from _cookies(lower, start, end)
        if "code" in lower or "key" in lower:
            yield from _codes(lower, start, end)
    if "kind" in lower and "secret" in lower:
        yield from _manifests(lower)
    if lines:
        yield from find_in_marked_tables(lower)
    if "kty" in lower:
        yield from _jwk_members(lower)
    yield from _phrases(lower)


def _has_head_cell(line: str) -> bool:
    """Whether a cell of a line is what a password is called."""
    return bool(RE["marked_head_cell"].search(f"|{line}"))


def _cookies(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    for header in RE["cookies"].finditer(lower, start, end):
        for crumb in RE["cookie"].finditer(lower, *header.span("all")):
            if is_mixed(crumb[1]):
                yield SecretMatch(*crumb.span(1), "cookie")


def _codes(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    for head in RE["codes"].finditer(lower, start, end):
        at = head.end()
        while code := RE["code_line"].match(lower, at):
            if any(map(str.isdigit, code[1])):
                yield SecretMatch(*code.span(1), "recovery code")
            at = code.end()


def _phrases(lower: str) -> Iterator[SecretMatch]:
    """Yield the words that a wallet's key is made from: under their name, or as many alone on a line."""
    # How many words, and the share of them with an ending.
    ways = [("lone_phrase", _PHRASE_WORDS, 1 / 6)]
    if any(map(lower.__contains__, _PHRASE_NAMES)):
        ways.append(("named_phrase", (*_PHRASE_WORDS, 11, 13, 25), 1))
    lines = (
        f"\n{lower}"  # each line behind a break, which `re` finds faster than the beginning of one
    )
    for name, counts, most in ways:
        for match in RE[name].finditer(lines):
            words = re.findall(r"[a-z]{3,8}", match["value"])
            inflected = sum(map(bool, map(RE["inflected"].search, words)))
            usual = len(words) in counts and inflected <= most * len(words)
            if usual and not RE["prose"].search(" ".join(words)):
                start, end = match.span("value")
                yield SecretMatch(start - 1, end - 1, PHRASE)


_JWK_REACH: Final = 12_000  # characters before and behind its kind in which a key's members stand


def _jwk_members(lower: str) -> Iterator[SecretMatch]:
    """Yield the private members of JSON web keys."""
    at = 0
    while kind := RE["jwk"].search(lower, at):
        start = max(at, kind.start() - _JWK_REACH)
        end = kind.end() + _JWK_REACH
        for member in RE["jwk_member"].finditer(lower, start, end):
            yield SecretMatch(*member.span("value"), JWK_MEMBER)
        at = end


def _manifests(lower: str) -> Iterator[SecretMatch]:
    """Yield the values of the data of a Kubernetes secret, in YAML and in JSON."""
    start = 0
    for part in re.split(r"(?m:^)---", lower):
        for data in RE["data"].finditer(part) if RE["manifest"].search(part) else ():
            at = data.end()
            while (entry := RE["entry"].match(part, at)) and len(entry[1]) > len(data[1]):
                yield SecretMatch(start + entry.start(2), start + entry.end(2), "password")
                at = entry.end()
        start += len(part) + 3
    for data in RE["json_data"].finditer(lower) if RE["manifest_json"].search(lower) else ():
        for entry in RE["json_entry"].finditer(lower, *data.span(1)):
            yield SecretMatch(*entry.span(1), "password")


# Private keys

_LEAST_OF_KEY: Final = 16
_LEAST_IN_FIELD: Final = 40
_MOST_LINES: Final = 600
_MOST_OTHERS: Final = 12


def private_keys(text: str, lower: str) -> Iterator[Span]:
    """Yield from where to where private keys stand; of one with prose within it, what is before and after."""
    at = 0
    stop = -1
    known = "begin" in lower or "private-lines" in lower
    while known and (header := RE["header"].search(lower, at)):
        if header.end() > stop:
            stop = _line_break(text, header.end())[0]
        dashes = RE["dashes"].search(text, max(0, header.start() - 24), header.start())
        pieces, at = _material(text, header.end(), stop)
        if any(
            last - first >= _LEAST_OF_KEY and is_mixed(text[first:last]) for first, last in pieces
        ):
            start = (dashes or header).start()
            end = header.end()
            for (
                first,
                last,
            ) in pieces:  # as one what is parted by no more than what lines begin with
                forms = (RE["between"], RE["short_fields"])
                between = text[end:first]
                if first > end and not any(form.fullmatch(between) for form in forms):
                    yield start, end
                    start = first
                    end = last
                end = max(last, end)
            yield start, end
    since = 0
    for tail in (
        RE["tail"].finditer(lower) if "private" in lower else ()
    ):  # the header may be missing
        start = text.rfind("\n", since, tail.start()) + 1 or tail.start()
        for _ in range(_MOST_LINES):
            line = text.rfind("\n", since, max(start - 1, since)) + 1 or since
            if line == start or not RE["line"].fullmatch(text, line, start):
                break
            start = line
        if tail.start() - start >= _LEAST_OF_KEY and is_mixed(text[start : tail.start()]):
            yield start, tail.end()
        since = tail.end()


def _line_break(text: str, start: int) -> Span:
    """Return where a line ends, and where the next one begins; the break may be escaped."""
    found = RE["break"].search(text, start)
    if found:
        return found.span()
    return (len(text), len(text))


def _material(text: str, start: int, stop: int) -> tuple[list[Span], int]:
    """Return where the parts of a key stand behind its header, and from where to look for the next."""
    pieces: list[Span] = []
    others = 0
    at = start
    next_line = _line_break(text, stop)[1]
    for _ in range(_MOST_LINES):
        if at >= len(text) or others > _MOST_OTHERS:
            break
        header = RE["header"].search(text, at, stop)
        end = RE["end"].search(text, at, header.start() if header else stop)
        if end:
            last = end.start()
        else:
            last = header.start() if header else stop
        line = text[at:last]  # what stands before it may be the letter of an escaped line break
        spans = [match.span() for match in RE["material"].finditer(line)]
        field = RE["field"].match(line)
        if field and all(stop - start < _LEAST_IN_FIELD for start, stop in spans):
            spans = []
        elif not spans:
            for match in RE["spaced"].finditer(line):
                letters = match[0].replace(" ", "")
                small = sum(map(str.islower, letters))
                many = (len(letters) - small) * 10 >= 4 * len(letters)
                # Great and small letters and digits change as in key material and in no sentence.
                if small and many and any(map(str.isdigit, letters)):
                    spans.append(match.span())
        pieces += [(at + start, at + stop) for start, stop in spans]
        if end:
            tail = _last(text, pieces[-1][1] if pieces else start, end.start())
            return [*pieces, *tail, end.span()] if pieces else [], end.end()
        if header:
            return pieces, header.start()
        others += not (spans or field or not line.strip(" \t>#*|/\\+-\"';:.,0123456789"))
        at = next_line
        stop, next_line = _line_break(text, at)
    if pieces:
        pieces += _last(text, pieces[-1][1], min(at, pieces[-1][1] + 80))
    return pieces, max(at, start)


def _last(text: str, start: int, end: int) -> list[Span]:
    """Return where the last, short line of a key stands, before its end."""
    found = RE["last"].search(text, max(start, end - 60), end)
    if found and RE["between"].fullmatch(text, start, found.start()):
        return [found.span()]
    return []
