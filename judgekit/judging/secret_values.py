"""What values look like that are secrets: a generator made them, or a person chose them.

A name or a place says how much a value must look like one; `judgekit.judging.secret_search` puts both
together.

Finds values that are secrets by where they stand: in a table's column, a manifest, a header, a list of
words.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


Place = tuple[int, int, str]

_NAME: Final = r"(?:[\w .-]{0,30}[ _.-])?(?:password|passwd|passphrase|passwort|kennwort|mot de passe|mdp|contrasena|clave|senha|wachtwoord|parola|pin|pass|pwd|pw|secret|token|psk|api[ _-]?key|secret[ _-]?key|access[ _-]?key|credentials?)"
_HEAD_CELL: Final = re.compile(rf"(?:(?<=[|,;\t])|(?m:^))[ \t*`\"'_]*{_NAME}[ \t*`\"'_]*(?=[|,;\t\n]|\Z)")
_RULE: Final = re.compile(r"[ \t>#*/]*\|?[ \t:|-]*-(?:-|[ \t:]*\|)[ \t:|-]*")
_VALUE_CELL: Final = re.compile(r"[ \t*`\"'_]*(?=\S*[a-z])(?=\S*\d)\S{10,200}[ \t]*")
_FRAME: Final = re.compile(r"[ \t]*\+[-=+]{3,}\+[ \t]*")
_MOST_ROWS: Final = 500
_CELL_EDGE: Final = " \t*`\"'_"

_MANIFEST: Final = re.compile(
    r"(?m:^)[\"' \t{-]*kind[\"']?:[ \t]*[\"']?(?:secret|sealedsecret)[\"']?[ \t,]*$", re.MULTILINE
)
_DATA: Final = re.compile(r"(?m:^)([ \t]*)(?:string)?data:[ \t]*\n")
_ENTRY: Final = re.compile(
    r"([ \t]+)[\w.-]{1,100}:[ \t]*[\"']?([^\s\"'#|>{][^\s\"']{3,2000})[\"']?[ \t]*(?:\n|\Z)"
)
_MANIFEST_JSON: Final = re.compile(r"\"kind\"\s{0,4}:\s{0,4}\"secret\"")
_JSON_DATA: Final = re.compile(r"\"(?:string)?data\"\s{0,4}:\s{0,4}\{([^{}]{1,20000}+)\}")
_JSON_ENTRY: Final = re.compile(r"\"[^\"\n]{1,100}+\"\s{0,4}:\s{0,4}\"([^\"\n]{4,4000}+)\"")

_COOKIE: Final = re.compile(
    r"(?:\bcookie[\"']?[ \t]*[:=,]|[ \t]-b[ \t]|--cookie[ =])[ \t]*[\"']?(?P<all>[^\n\"']{8,2000}+)"
)
_CRUMB: Final = re.compile(r"[\w.%-]{1,60}=([\w%+/=.~:|-]{10,}+)")

_PHRASE: Final = re.compile(
    r"(?:seed(?:[ _-]?(?:phrase|words?))?|mnemonic(?:[ _-]?(?:phrase|words?))?|recovery[ _-]?(?:phrase|seed|words)|backup[ _-]?(?:phrase|words|seed)|secret[ _-]?phrase"
    r"|wallet[ _-]?(?:words|phrase|backup|seed)|bip-?39|pass[ _-]?phrase|secret[ _-]?recovery[ _-]?phrase|phrase|words)"
    r"[^a-z\n]{0,12}(?:(?:is|are|words?|of|the|my|our|wallet)[^a-z\n]{1,6}){0,4}[:=\s\"'`(\[*>-]{0,40}(?P<value>(?:\d{1,2}[.):][ \t]*)?[a-z]{3,8}(?:(?:[ \t,|\"']{1,6}|[\",]{0,2}[ \t]*\n[ \t>*|\"-]{0,8})(?:\d{1,2}[.):][ \t]*)?[a-z]{3,8}(?![a-z])){10,23}+)(?![a-z])"
)
_LONE_PHRASE: Final = re.compile(
    r"(?m:^)[ \t>\"'`*-]{0,8}(?P<value>[a-z]{3,8}(?: [a-z]{3,8}){11,23})[\"'`*]{0,3}[ \t]*$", re.MULTILINE
)
PROSE: Final = frozenset(
    [
        "the",
        "and",
        "for",
        "are",
        "was",
        "not",
        "with",
        "from",
        "have",
        "has",
        "had",
        "but",
        "his",
        "her",
        "its",
        "our",
        "out",
        "per",
        "were",
        "been",
        "will",
        "would",
        "could",
        "should",
        "than",
        "then",
        "them",
        "these",
        "those",
        "their",
        "there",
        "which",
        "while",
        "where",
        "who",
        "whom",
        "why",
        "how",
        "may",
        "might",
        "must",
        "shall",
        "does",
        "did",
        "done",
        "each",
        "for",
        "into",
        "onto",
        "upon",
        "also",
        "you",
        "your",
        "they",
        "him",
        "she",
        "what",
        "some",
        "such",
        "any",
        "more",
        "most",
        "less",
        "least",
        "using",
        "used",
        "use",
        "can",
        "get",
        "got",
        "set",
        "let",
        "see",
        "being",
        "here",
    ]
)
_PHRASE_WORDS: Final = frozenset({12, 15, 18, 21, 24, 11, 13, 25})
_LONE_WORDS: Final = frozenset({12, 15, 18, 21, 24})
_WORD: Final = re.compile(r"[a-z]{3,8}")
_ENDS: Final = (
    "ing",
    "ed",
    "tion",
    "ly",
    "ions",
    "ment",
    "ies",
    "ers",
    "ss",
    "es",
    "ts",
    "ns",
    "rs",
    "ds",
    "ks",
    "ms",
    "ls",
)

_CODES: Final = re.compile(
    r"(?:recovery|backup|scratch|emergency|one[ -]time|2fa|mfa)[ _-]?(?:codes?|keys?)\b[^\n]{0,80}\n(?:[ \t]*\n)?"
)
_CODE: Final = re.compile(
    r"[ \t>*#-]*(?:\d{1,2}[.)][ \t]+)?[`\"']?((?:[a-z0-9]{4,10}[- ][a-z0-9]{4,10}(?:[- ][a-z0-9]{4,10}){0,6}|(?=[a-z]*\d)[a-z0-9]{8,16}))[`\"']?,?[ \t]*(?:\n|\Z)"
)


def find_places(lower: str, lines: list[tuple[int, int]]) -> Iterator[Place]:
    """Yield where such values stand in a text in small letters and what they are; `lines` may name them."""
    for start, end in lines:
        yield from _tables(lower, start, end)
    if "kind" in lower and "secret" in lower:
        yield from _manifests(lower)
    for start, end in lines:
        yield from _cookies(lower, start, end)
    yield from _phrases(lower)
    for start, end in lines:
        for head in _CODES.finditer(lower, start, end):
            at = head.end()
            while code := _CODE.match(lower, at):
                if any(map(str.isdigit, code[1])):
                    yield (*code.span(1), "recovery code")
                at = code.end()


def _cookies(lower: str, start: int, end: int) -> Iterator[Place]:
    for header in _COOKIE.finditer(lower, start, end):
        for crumb in _CRUMB.finditer(lower, *header.span("all")):
            value = lower[slice(*crumb.span(1))]
            if any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
                yield (*crumb.span(1), "cookie")


def _tables(lower: str, start: int, end: int) -> Iterator[Place]:
    """Yield what stands in the columns, and in the rows of two cells, that have the name of a secret."""
    while start < end:
        stop = _line_end(lower, start)
        line = lower[start:stop] if stop - start <= _LONGEST_ROW else ""
        if any(mark in line for mark in "|,;\t") and _HEAD_CELL.search(lower, start, stop):
            yield from _table(lower, start, stop)
        start = stop + 1


def _table(lower: str, start: int, stop: int) -> Iterator[Place]:
    """Yield the secrets of the table whose first row, or of the row of two cells, that stands there."""
    line, following = lower[start:stop], lower[stop + 1 : _line_end(lower, stop + 1)][:_LONGEST_ROW]
    mark = next((each for each in "|,;\t" if each in line), "")
    cells = line.split(mark) if mark else []
    columns = [place for place, cell in enumerate(cells) if _HEAD_CELL.fullmatch(cell[:60])]
    inner = [place for place, cell in enumerate(cells) if cell.strip()]
    if not columns or len(inner) < 2:  # noqa: PLR2004 - a column beside it
        return
    rule = _RULE.fullmatch(following) or _FRAME.fullmatch(following)
    if rule and columns == inner[:1] and len(inner) == 2 and _VALUE_CELL.fullmatch(cells[inner[1]]):  # noqa: PLR2004 - name and value
        yield from _cells(line, start, "|", [inner[1]])
    if mark == "|" and not rule:
        if line.lstrip()[:1] == "|" and columns[0] in inner[:-1]:
            yield from _cells(line, start, "|", [inner[inner.index(columns[0]) + 1]])
        return
    if mark != "|" and not (
        line[:1].strip()
        and following[:1].strip()
        and all(_NAME_CELL.fullmatch(cell) for cell in cells)
        and following.strip()
        and following.count(mark) == len(cells) - 1
    ):
        return
    for _ in range(_MOST_ROWS):
        start, stop = stop + 1, _line_end(lower, stop + 1)
        row = lower[start : min(stop, start + _LONGEST_ROW)]
        if start >= len(lower) or not (mark in row or _FRAME.fullmatch(row)):
            return
        if _FRAME.fullmatch(row):
            continue
        if mark != "|" or not _RULE.fullmatch(row):
            yield from _cells(row, start, mark, columns)


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", min(at, len(text)))
    return len(text) if found < 0 else found


_LONGEST_ROW: Final = 2000
_NAME_CELL: Final = re.compile(r"[ \t\"']*[a-z][\w .-]{0,30}[ \t\"']*")


def _cells(line: str, start: int, mark: str, columns: list[int]) -> Iterator[Place]:
    place = start
    for number, cell in enumerate(line.split(mark)):
        value = cell.strip(_CELL_EDGE)
        if number in columns and len(value) >= 4 and " " not in value and any(map(str.isalnum, value)):  # noqa: PLR2004 - as names
            first = place + cell.index(value)
            yield first, first + len(value), "password"
        place += len(cell) + len(mark)


def _manifests(lower: str) -> Iterator[Place]:
    """Yield the values of the data of a Kubernetes secret, in YAML and in JSON."""
    place = 0
    for part in re.split(r"(?m:^)---", lower):
        if _MANIFEST.search(part):
            for data in _DATA.finditer(part):
                at = data.end()
                while (entry := _ENTRY.match(part, at)) and len(entry[1]) > len(data[1]):
                    yield place + entry.start(2), place + entry.end(2), "password"
                    at = entry.end()
        place += len(part) + 3
    if _MANIFEST_JSON.search(lower):
        for found in _JSON_DATA.finditer(lower):
            for entry in _JSON_ENTRY.finditer(lower, *found.span(1)):
                yield (*entry.span(1), "password")


def _phrases(lower: str) -> Iterator[Place]:
    """Yield the words that a wallet's key is made from: under their name, or as many alone on a line."""
    if any(word in lower for word in ("seed", "mnemonic", "phrase", "bip39", "bip-39", "wallet", "words")):
        for found in _PHRASE.finditer(lower):
            words = _WORD.findall(found["value"])
            if len(words) in _PHRASE_WORDS and not PROSE.intersection(words):
                yield (*found.span("value"), "seed phrase")
    for found in _LONE_PHRASE.finditer(lower):
        words = found["value"].split(" ")
        if (
            len(words) in _LONE_WORDS
            and not PROSE.intersection(words)
            and sum(map(_is_ended, words)) * 6 <= len(words)
        ):
            yield (*found.span("value"), "seed phrase")


def _is_ended(word: str) -> bool:
    return word.endswith(_ENDS)


_PLACEHOLDER: Final = re.compile(
    r"[<\[{(%$*.…_-]|\W*$|.*(?:[{}<>…]|\.\.\.|\*\*\*|xxx|redacted)|(?:your|my|some|an?|the|test|fake|dummy)[_-]"
    r"|(?:example|change[_-]?me|placeholder|password|passwd|secret|token|string|str|bytes|bool|boolean|int|integer|float|any|object|secretstr|required|optional|none"
    r"|null|nil|undefined|true|false|enabled|disabled|default|hidden|empty|invalid|missing|unset|auto|prompt"
    r"|expired|wrong|pass|text)s?\W*$",
    re.IGNORECASE,
)
"""How values begin, or what they are, that stand where a secret will."""

_SECRET_VALUES_CODE: Final = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+[;:.]?$|\.{0,2}/|~/|[A-Za-z]:\\|\w+://|-|@|#|!"
)
"""An attribute, a path, an address or an option: what stands behind a name in code."""

_SYMBOLS: Final = frozenset("!#$%&*+=?@^|~")
_FORMAT: Final = re.compile(r"%[sdr](?!\w)")
_LEAST_SYMBOLS: Final = 3
_SHUFFLED: Final = 0.45  # what is drawn at random has 0.6, camelCase with words of five letters 0.4

_OF_SENTENCES: Final = (
    "the|you|your|must|should|will|may|can|not|and|for|from|with|that|this|has|have|are|was|when|here|least|most"
    "|characters?|chars|letters?|digits?|words?|enter|type|confirm|new|old|repeat|forgot|reset|change|set|invalid"
    "|incorrect|wrong|missing|required|optional|please|password|passwd|passphrase|user|name|field"
)
PASSPHRASE: Final = re.compile(
    rf"(?!(?:.* )?(?:{_OF_SENTENCES})(?: |$))(?:[a-z]{{3,9}}(?: [a-z]{{3,9}}){{3,7}}"
    r"|(?=[^0-9]*[0-9])[\w!#$%&*+=?@^~-]{2,12}(?: [\w!#$%&*+=?@^~-]{2,12}){2,7})$",
    re.IGNORECASE,
)
"""Four words or more, or three with a digit, none of which a sentence about passwords has."""

_NAME_ENDS: Final = re.compile(
    r"(?:.*[_-])?(?:password|passwd|passphrase|pwd|secret|token|key|credential)s?\W*$", re.IGNORECASE
)
LEAST_TOKEN: Final = 8
LEAST_BARE_TOKEN: Final = 16


def _is_word_of_sentence(value: str) -> bool:
    return bool(_SENTENCE_WORD.match(value))


_SENTENCE_WORD: Final = re.compile(
    rf"(?:{_OF_SENTENCES}|option|flag|argument|parameter|switch|file|stdin|input|command|environment|variable|only"
    r"|plain|clear|hashed|stored|sent|shown|asked|given|used|empty|blank|valid|correct|expired|also|still|never"
    r"|always|instead|when|where|which|what|store|value|values|support|based|protected|manager|auth\w*)\W*$",
    re.IGNORECASE,
)


def _fits_word(value: str) -> bool:
    return not stands_in(value) and not _is_word_of_sentence(value) and not value.isupper()


def _is_token(value: str) -> bool:
    """Whether a value is a long mixture of letters and digits, and no name of several words."""
    digits = sum(map(str.isdigit, value))
    return is_mixed(value) and not snake(value) and len(value) >= LEAST_TOKEN and digits * 10 >= len(value)


def is_strange(value: str) -> bool:
    """Whether letters, digits and symbols are mixed within a value as in no name, version or measure."""
    core = value.strip("\"'`*.,;:!?)")
    if not is_mixed(core):
        cases = any(map(str.isupper, core[1:])) and any(map(str.islower, core))
        return cases and len(core) >= LEAST_TOKEN and bool(_SYMBOLS.intersection(core[1:-1]))
    kinds = "".join("a" if char.isalpha() else "0" if char.isdigit() else "-" for char in core)
    inside = re.sub(r"(.)\1+", r"\1", kinds)
    return (
        len(core) >= _LEAST_STRANGE
        and not _MEASURE.match(core)
        and (
            len(inside) >= _CHANGED_OFTEN
            or (inside == "a0" and len(core) >= _LEAST_STRANGE)
            or "a0-" in inside
            or "0a0" in inside
            or "a0a" in inside
        )
    )


_LEAST_STRANGE: Final = 6
_CHANGED_OFTEN: Final = 4
_MEASURE: Final = re.compile(
    r"(?:v?\d+(?:[.,:/-]\d+)*\w{0,8}|\w+[.@/:\\]\S*|[A-Za-z]+-?\d{1,4}(?:-bit|s)?|\d+-\w+(?:-\w+)*)$"
)
_TERM: Final = re.compile(
    r"(?:v?\d+(?:[.,:/-]\d+)*\w{0,8}|\S+[@/\\]\S*|\w+(?:[.:]\w+)+|\d+-\w+(?:-\w+)*"
    r"|(?:\w*[_-])?(?:hmac)?(?:sha|md|utf|iso|latin|cp|aes|des|rsa|ecdsa|ed|curve|oauth|openid|ipv|base|http|argon|pbkdf|bcrypt|scrypt|ripemd|blake|crc"
    r"|pkcs|win|windows|python|py|java|node|tls|ssl|ntlm|smb|rfc|cve|uint|int|float|log|x|h|s|e|p|ec|mp)-?_?\d{1,5}(?:[_-]?[a-z]{1,8}\d{0,3})*"
    r"|(?:\w*[_-])?(?:user|test|version|step|figure|fig|table|section|chapter|option|type|level|line|page|item|note|part|phase|arg|param|field|string"
    r"|example|case|key|token|password|pass|secret|id|num|server|host|client|account|group|role|mode|rule|day|week|month|value|var|name)s?[-_]?\d{1,2})$",
    re.IGNORECASE,
)
"""What has letters and digits and is no password all the same: measures, standards, numbered things."""


def is_chosen(value: str) -> bool:
    """Whether a value is what people choose behind the word password: letters with digits, no standard."""
    core = value.strip("\"'`*_.,;:?)")
    return (
        len(core) >= _LEAST_STRANGE
        and is_mixed(core)
        and not _TERM.match(core)
        and not stands_in(core)
        and not _EXPRESSION.search(core)
    )


def is_phrase(value: str) -> bool:
    """Whether a value is four words or more, none of which a sentence has."""
    words = value.lower().replace("-", " ").split()
    return (
        len(words) >= _LEAST_WORDS
        and bool(PASSPHRASE.match(" ".join(words)))
        and not PROSE.intersection(words)
    )


_LEAST_WORDS: Final = 4

FITS: Final[Mapping[str, Callable[[str], bool]]] = {
    "value": lambda value: generated(value) or not stands_in(value),
    "mixed": lambda value: (
        generated(value) or (is_mixed(value) and not stands_in(value) and not snake(value))
    ),
    "random": lambda value: generated(value) or (_is_token(value) and not stands_in(value)),
    "generated": lambda value: generated(value) or (is_strange(value) and not stands_in(value)),
    "chosen": lambda value: (
        generated(value) or ((is_strange(value) or is_chosen(value)) and not stands_in(value))
    ),
    "phrase": is_phrase,
    "sure": lambda value: not value.startswith("["),
    "word": lambda value: generated(value) or _fits_word(value),
    "secretword": lambda value: generated(value) or _fits_word(value),
}


def stands_in(value: str) -> bool:
    """Whether a value says where a secret will stand, or names the place where it is kept."""
    return bool(_PLACEHOLDER.match(value) or _NAME_ENDS.match(value)) or any(map(str.isspace, value))


def generated(value: str) -> bool:
    """Whether a value is such a mixture that only a generator makes, whatever it begins with."""
    if len(value) < LEAST_TOKEN or _FORMAT.search(value) or any(map(str.isspace, value)):
        return False
    symbols = len(_SYMBOLS.intersection(value[1:-1]))
    cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    if not is_mixed(value):
        return cases and (symbols >= _LEAST_SYMBOLS or (len(value) >= _LEAST_WEAK and _is_shuffled(value)))
    return symbols >= (1 if cases else _LEAST_SYMBOLS) or (cases and _is_shuffled(value))


def _is_shuffled(value: str) -> bool:
    """Whether small, great letters, digits and the rest change more often than in a name of several words."""
    return len(value) >= LEAST_BARE_TOKEN and _changes(value) >= _SHUFFLED


def _changes(value: str) -> float:
    """Return how often a value changes from one class of characters to another, as a part of its length."""
    kinds = [(char.islower(), char.isupper(), char.isdigit()) for char in value]
    return sum(one != other for one, other in itertools.pairwise(kinds)) / max(len(kinds) - 1, 1)


def is_random(value: str) -> bool:
    """Whether letters and digits are mixed, or only a generator makes such a value."""
    return is_mixed(value) or generated(value)


def is_code(value: str) -> bool:
    """Whether a value is an attribute, a path, an address or an option."""
    return bool(_SECRET_VALUES_CODE.match(value)) and not generated(value)


_HEX_KEY: Final = re.compile(r"[0-9a-fA-F]{32,}$")
SECRETIVE: Final = re.compile(r"crypt|secret|cipher|jwt|hmac|auth", re.IGNORECASE)


def quoted_secret(value: str, strength: str, *, secretive: bool = False) -> bool:
    """Whether a value in quotes is a secret under a name of this strength."""
    if strength == "strong":
        return not value.startswith("/") or is_mixed(value)
    if strength == "short":
        return (is_mixed(value) or len(value) >= LEAST_SHORT) and not is_code(value)
    if strength == "weak":
        return is_weak_secret(value) or (secretive and bool(_HEX_KEY.match(value)))
    return (
        len(value) >= LEAST_TOKEN
        and is_random(value)
        and not is_code(value)
        and not _EXPRESSION.search(value)
    )


_EXPRESSION: Final = re.compile(r"\[[a-zA-Z]-|\(\?|\\[dw]")  # a regular one
LEAST_SHORT: Final = 6
_LEAST_WEAK: Final = 20
_HEX_OR_ID: Final = re.compile(r"[0-9a-fA-F-]+$|\w+[:/.]|.*[\\\[\](){}|^ ]")


def is_weak_secret(value: str) -> bool:
    """Whether a value is a secret under a name like `key` or `session`, which many others have too."""
    return (
        len(value) >= _LEAST_WEAK
        and is_mixed(value)
        and not snake(value)
        and not _HEX_OR_ID.match(value)
        and _changes(value) >= _SHUFFLED_WEAK
    )


_SHUFFLED_WEAK: Final = 0.35


def snake(value: str) -> bool:
    """Whether a value is a name of several words, as code has them."""
    return value.isidentifier() and "_" in value.strip("_") and not generated(value)


def is_mixed(value: str) -> bool:
    """Whether a value has letters and digits."""
    return any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
