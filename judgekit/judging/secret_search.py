"""Finds the secrets that stand in a text as it is: by their form, by their name, by their place.

The rules are in `secret_rules.toml`; with them go the plugins of detect-secrets that know a secret by its
form. Nothing is guessed from how random a text looks: hashes, identifiers and encoded images are part of what
is judged. A name or a place says how much a value must look like a secret: made by a generator, or chosen by
a person.
"""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from judgekit.judging import secret_blocks
from judgekit.judging.secret_blocks import PRIVATE_KEY, PROSE, line_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UNMISTAKABLE: Final = frozenset({"GitHub token", "Anthropic key"})
"""Kinds that are found behind a letter too: their beginning and length do not come about by chance."""

_SHORTEST_FORM: Final = 18  # characters of a secret with a form of its own
_LINES_BEHIND: Final = 3  # a value may stand in them that the line before names
_LONGEST_NAME: Final = 60
_REST: Final = re.compile(r"[A-Za-z0-9_-]*+")
_SMALL: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class SecretMatch(NamedTuple):
    """A secret in a text, from `start` up to `end`."""

    start: int
    end: int
    kind: str


class _Rule(NamedTuple):
    """A kind of secret, words of which every text with one has at least one, and its form or place."""

    kind: str
    words: tuple[str, ...]
    pattern: str | re.Pattern[str]


_FILE: Final = Path(__file__).with_name("secret_rules.toml")
_RULES: Final[dict[str, Any]] = tomllib.loads(_FILE.read_text("utf-8"))


def _whole(text: str) -> str:
    """Return a pattern, or words, with the parts put in that it names."""
    for name, part in _RULES["parts"].items():
        text = text.replace(f"(?&{name})", part)
    return text


def _table(rows: Sequence[tuple[str, str, str]]) -> list[_Rule]:
    return [_Rule(kind, tuple(_whole(words).split(" ")), _whole(pattern)) for kind, words, pattern in rows]


_FORMS: Final = _table(_RULES["forms"])
_PLACES: Final = _table(_RULES["places"])
_LINE_WORDS: Final = _RULES["lines"]["words"].split("|")
_LINE_PATTERNS: Final = [re.compile(pattern) for pattern in _RULES["lines"]["patterns"]]
_NAMED: Final = re.compile(_RULES["names"]["pattern"])
_STRONG, _SECRET, _WEAK = (re.compile(_RULES["names"][name]) for name in ("strong", "secret", "weak"))
_SHORT, _ENDINGS = (frozenset(_RULES["names"][name].split()) for name in ("short", "endings"))
_PLACEHOLDER, _NAME, _CODE, _PASSPHRASE, _OF_SENTENCE, _MEASURE, _TERM = (
    re.compile(_whole(_RULES["values"][name]))
    for name in ("placeholder", "name", "code", "passphrase", "sentence", "measure", "term")
)
_compiled: Final = functools.cache(re.compile)


@functools.cache
def load() -> list[_Rule]:
    """Return the rules for secrets with a form of their own; importing the plugins takes 0.1 s of CPU."""
    from detect_secrets import plugins  # noqa: PLC0415 - only where something is sent

    rules = [*_FORMS]
    for kind, words, name in _RULES["plugins"]:
        module, _, detector = name.partition(".")
        denylist = getattr(import_module(f"{plugins.__name__}.{module}"), detector).denylist
        rules += [_Rule(kind, tuple(words.split(" ")), pattern) for pattern in denylist]
    return rules


def find(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, in no order; what one is part of, another may be."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter became two: names are made of those of ASCII
        lower = text.translate(_SMALL)
    for start, end in secret_blocks.private_keys(text, lower):
        yield SecretMatch(start, end, PRIVATE_KEY)
    long = " ".join(word for word in text.split() if len(word) >= _SHORTEST_FORM)
    for kind, words, pattern in load():
        if any(map(long.__contains__, words)):
            yield from _with_form(text, kind, _compiled(pattern))
    lines = _lines(lower)
    inside = "\n".join(lower[start:end] for start, end in lines)
    places = [rule for rule in _PLACES if any(map(inside.__contains__, rule.words))]
    for start, end in lines:
        here = lower[start:end]
        for kind, words, pattern in places:
            if any(map(here.__contains__, words)):
                for match in _compiled(pattern).finditer(lower, start, end):
                    if span := _placed(text, match):
                        yield SecretMatch(*span, kind)
        for match in _NAMED.finditer(lower, start, end):
            if secret_match := _named(text, match):
                yield secret_match
    for start, end, kind in secret_blocks.find(lower, lines):
        if kind == secret_blocks.PHRASE or not _stands_in(text[start:end]):
            yield SecretMatch(start, end, kind)


def _with_form(text: str, kind: str, pattern: re.Pattern[str]) -> Iterator[SecretMatch]:
    at = 0
    while match := pattern.search(text, at):
        start, at = match.span()
        in_word = start > 0 and text[start].isalnum() and text[start - 1].isalnum()
        if not in_word or (kind in _UNMISTAKABLE and _is_mixed(match[0])):
            rest = _REST.match(text, at)  # the pattern may be of a fixed length
            if rest and kind != PRIVATE_KEY:
                at = rest.end()
            yield SecretMatch(start, at, kind)


def _lines(lower: str) -> list[tuple[int, int]]:
    """Return from where to where lines stand in which a value may be a secret by its name or place."""
    named = set()
    for word in _LINE_WORDS:
        at = lower.find(word)
        while at >= 0:
            stop = line_end(lower, at + len(word))
            named.add((lower.rfind("\n", 0, at) + 1, stop))
            at = lower.find(word, stop)
    for pattern in _LINE_PATTERNS:
        at = 0
        while match := pattern.search(lower, at):
            at = line_end(lower, match.end() - 1)
            named.add((lower.rfind("\n", 0, match.start()) + 1, at))
    lines: list[tuple[int, int]] = []
    for start, stop in sorted(named):
        for _ in range(_LINES_BEHIND):
            stop = line_end(lower, stop + 1)  # noqa: PLW2901 - on to the next line
        if lines and start <= lines[-1][1]:
            start, before = lines.pop()  # noqa: PLW2901 - goes on with it
            stop = max(before, stop)  # noqa: PLW2901 - the same
        lines.append((start, stop))
    return lines


def _placed(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    """Return from where to where a value stands that is a secret by its place; None where it is none."""
    group = cast("str", match.lastgroup)
    start, end = match.span(group)
    value = text[start:end].rstrip(".,:")
    if not value or not _fits(value, group.rstrip("23")):
        return None
    if group != "sure" and text[start - 1 : start] not in "\"'" and _is_code(value):
        return None
    return start, start + len(value)


# Names and values

_HUMP: Final = re.compile(r"([a-z0-9])([A-Z])")
_SEPARATOR: Final = re.compile(r"[^a-z0-9\u0080-\U0010ffff]+")
_BEFORE: Final = re.compile(r"[\w.$-]*\Z")
_TWO_WORDS: Final = re.compile(r"([A-Za-z]{2,12}) \Z")
_SECRET_NAME: Final = re.compile(r"(?:secret|secret_?key|password|passphrase)$")
_SECRETIVE: Final = re.compile(r"crypt|secret|cipher|jwt|hmac|auth", re.IGNORECASE)
_TO_BLANK: Final = re.compile(r"[^\s]{1,200}+(?=[ \t]*(?:\n|\Z))")
_SETTING: Final = re.compile(r"(?:export |set |env |ENV |- )?[ \t-]*[\"']?[\w.-]*")
_NEXT_SETTING: Final = re.compile(r"[ \t]+[a-z_]{2,30}=\w")
_END_OF_SETTING: Final = re.compile(r"[ \t]*(?:[ \t][;#].*)?(?:\n|\Z)")
_SECTION: Final = re.compile(r"^\[[\w .:/-]+\][ \t]*$", re.MULTILINE)
_PROPERTY: Final = re.compile(r"(?!(?:self|this|cls|args|opts|options|obj)\.)[\w.-]*")
_CHOICE: Final = re.compile(r"[A-Za-z_.=]*(?:[|&]+[A-Za-z_.=]*)+$")
"""Types and flags that are joined, and the fields of a form: what stands there without quotes."""


@functools.lru_cache(4096)
def _strength(name: str) -> str:
    """Return what a name promises: a password, a short word for one, a secret, perhaps one; or nothing."""
    words = [word for word in _SEPARATOR.split(_HUMP.sub(r"\1_\2", name).lower()) if word]
    for _ in range(3):
        if len(words) > 1 and (words[-1] in _ENDINGS or words[-1].isdigit()):
            words.pop()
    if not words or "public" in words:
        return ""
    last = words[-1].rstrip("0123456789")
    if _STRONG.search("".join(words).rstrip("0123456789")):
        return "strong"
    if last in _SHORT or "".join(words[-2:]) in _SHORT:
        return "short"
    joined = "".join(words[-3:]).rstrip("0123456789")
    if _SECRET.search(joined):
        return "secret"
    weak = _WEAK.search(joined)
    return "weak" if weak and (last == weak[0] or last.endswith(("key", "auth"))) else ""


def _named(text: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the secret that a name and a value are; `match` is one in small letters."""
    core = match.start("core")
    before = cast("re.Match[str]", _BEFORE.search(text, max(0, core - _LONGEST_NAME), core))[0]
    if not before and (two := _TWO_WORDS.search(text, max(0, core - 14), core)):
        before = f"{two[1]}_"  # `API key`
    strength = _strength(before + text[core : match.end("tail")])
    if not strength:
        return None
    start, end = match.span("value")
    quoted = text[start] in "\"'`("
    value = text[start + 1 : end - 1] if quoted else text[start:end].rstrip(".,:")
    strong = strength in ("strong", "short")
    hyphened = quoted and (  # JWT_SECRET="maple-river-candle-orbit"
        value.islower()
        and "-" in value
        and " " not in value
        and _is_phrase(value)
        and bool(_SECRET_NAME.search(match["core"] + match["tail"]))
    )
    phrase = hyphened or (quoted and strong and bool(_PASSPHRASE.match(value)))
    name = strong and value.isupper() and not value.isalnum()
    if not (phrase or _generated(value)) and (name or _stands_in(value)):
        return None
    if not quoted:
        if not _bare_secret(text, match, value, strength):
            return None
    elif not ((phrase and "-" in value) or _quoted_secret(text, match, value, strength)):
        return None
    kinds = {"key": "key", "secret": "secret"}
    kind = "password" if strong else kinds.get(match["core"], "token")
    start += quoted
    end = start + len(value)
    # A value without quotes is the rest of its line in a file of settings.
    rest = None if quoted else _TO_BLANK.match(text, end)
    if rest and any(map(str.isalnum, rest[0])) and _SETTING.fullmatch(_line_before(text, match.start())):
        end = rest.end()
    return SecretMatch(start, end, kind)


def _line_before(text: str, at: int) -> str:
    """Return what stands on a line before a place; of much the end."""
    first = max(0, at - 2 * _LONGEST_NAME)
    return text[max(first, text.rfind("\n", first, at) + 1) : at]


def _quoted_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:
    """Whether a value in quotes is a secret under a name of this strength."""
    if strength == "strong":
        return not value.startswith("/") or _is_mixed(value)
    if strength == "short":
        return (_is_mixed(value) or len(value) >= _LEAST_SHORT) and not _is_code(value)
    if strength == "weak":
        secretive = _HEX_KEY.match(value) and _SECRETIVE.search(_line_before(text, match.start()))
        return bool(secretive) or _is_weak_secret(value)
    random = _is_mixed(value) or _generated(value)
    return len(value) >= _LEAST_TOKEN and random and not _is_code(value) and not _EXPRESSION.search(value)


def _bare_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:
    """Whether a value without quotes is a secret: in code it is a name more often than not."""
    if (
        _is_code(value)
        or _CHOICE.match(value)
        or (match["close"] and value.isdigit())
        or text[match.start() - 1 : match.start()] == ":"
    ):
        return False
    if strength == "weak":
        return _is_weak_secret(value)
    # Name and value are all that their line has, as in a file of settings.
    alone = bool(
        _END_OF_SETTING.match(text, match.end()) and _SETTING.fullmatch(_line_before(text, match.start()))
    )
    snake = _is_snake(value)
    if strength == "secret":
        if alone and match["core"] == "secret" and text[match.start("core") : match.end("tail")].isupper():
            return len(value) >= _LEAST_TOKEN and not snake
        least = _LEAST_TOKEN if alone and _is_strange(value) else _LEAST_BARE_TOKEN
        return len(value) >= least and (_is_mixed(value) or _generated(value)) and not snake
    setting = match["operator"] == ":" or match.end("operator") == match.start("value")
    name = snake and not (setting and alone and _is_mixed(value))
    if strength == "short" and value.isdigit() and text[match.start("core") : match.end("core")] == "PIN":
        return True
    if name:
        return False
    if strength == "short":
        return _is_chosen(value) or (len(value) >= _LEAST_SHORT and _in_file_of_settings(text, match))
    return any(map(str.isdigit, value)) or not value.isidentifier() or _in_file_of_settings(text, match)


def _in_file_of_settings(text: str, match: re.Match[str]) -> bool:
    """Whether a word of letters is a value all the same: `DB_PASSWORD=x`, `Pwd=x;`, `password: x`.

    So is one alone on a line without blanks, as in a file of settings: `passwd=x`.
    """
    operator, gap = match["operator"], text[match.end("operator") : match.start("value")]
    after = "" if _END_OF_SETTING.match(text, match.end()) else text[match.end() : match.end() + 1]
    before = _line_before(text, match.start()).strip(" \t-")
    ends = after in ("", "\n")
    alone = ends and bool(re.fullmatch(r"[\w.-]*", before))
    if operator == "=":
        if not gap and _NEXT_SETTING.match(text, match.end()):
            return True
        if after == ";" or text[match.start("core") : match.end("tail")].isupper():
            return True
        if not gap and ends and _PROPERTY.fullmatch(before):
            return match.end("tail") == match.start("operator")
        return alone and bool(_SECTION.search(text, max(0, match.start() - 300), match.start()))
    return alone and operator == ":" and gap == " " and text[slice(*match.span("value"))].islower()


# What values look like

_SYMBOLS: Final = frozenset("!#$%&*+=?@^|~")
_LEAST_SYMBOLS: Final = 3
_LEAST_SHORT: Final = 6
_LEAST_TOKEN: Final = 8
_LEAST_BARE_TOKEN: Final = 16
_LEAST_WEAK: Final = 20
_LEAST_STRANGE: Final = 6
_LEAST_WORDS: Final = 4
_CHANGED_OFTEN: Final = 4
_SHUFFLED: Final = 0.45  # what is drawn at random has 0.6, camelCase with words of five letters 0.4
_SHUFFLED_WEAK: Final = 0.35
_FORMAT: Final = re.compile(r"%[sdr](?!\w)")
_HEX_KEY: Final = re.compile(r"[0-9a-fA-F]{32,}$")
_EXPRESSION: Final = re.compile(r"\[[a-zA-Z]-|\(\?|\\[dw]")  # a regular one
_HEX_OR_ID: Final = re.compile(r"[0-9a-fA-F-]+$|\w+[:/.]|.*[\\\[\](){}|^ ]")


def _fits(value: str, wanted: str) -> bool:
    """Whether a value is what the group of a place's pattern wants; `secret_rules.toml` explains them."""
    if wanted in ("sure", "phrase"):
        return _is_phrase(value) if wanted == "phrase" else not value.startswith("[")
    if _generated(value):
        return True
    if _stands_in(value):
        return False
    if wanted in ("mixed", "random"):
        digits = sum(map(str.isdigit, value))
        many = wanted == "mixed" or (len(value) >= _LEAST_TOKEN and digits * 10 >= len(value))
        return many and _is_mixed(value) and not _is_snake(value)
    if wanted in ("generated", "chosen"):
        return _is_strange(value) or (wanted == "chosen" and _is_chosen(value))
    return wanted == "value" or not (_OF_SENTENCE.match(value) or value.isupper())


def _stands_in(value: str) -> bool:
    """Whether a value says where a secret will stand, or names the place where it is kept."""
    return bool(_PLACEHOLDER.match(value) or _NAME.match(value)) or any(map(str.isspace, value))


def _generated(value: str) -> bool:
    """Whether a value is such a mixture that only a generator makes, whatever it begins with."""
    if len(value) < _LEAST_TOKEN or _FORMAT.search(value) or any(map(str.isspace, value)):
        return False
    symbols = len(_SYMBOLS.intersection(value[1:-1]))
    cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    mixed = _is_mixed(value)
    if symbols >= (1 if mixed and cases else _LEAST_SYMBOLS) and (mixed or cases):
        return True
    least = _LEAST_BARE_TOKEN if mixed else _LEAST_WEAK
    return cases and len(value) >= least and _changes(value) >= _SHUFFLED


def _changes(value: str) -> float:
    """Return how often a value changes from one class of characters to another, as a part of its length."""
    kinds = [(char.islower(), char.isupper(), char.isdigit()) for char in value]
    return sum(one != other for one, other in itertools.pairwise(kinds)) / max(len(kinds) - 1, 1)


def _is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_snake(value: str) -> bool:
    """Whether a value is a name of several words, as code has them."""
    return value.isidentifier() and "_" in value.strip("_") and not _generated(value)


def _is_code(value: str) -> bool:
    return bool(_CODE.match(value)) and not _generated(value)


def _is_weak_secret(value: str) -> bool:
    """Whether a value is a secret under a name like `key` or `session`, which many others have too."""
    long = len(value) >= _LEAST_WEAK and _is_mixed(value) and not _is_snake(value)
    return long and not _HEX_OR_ID.match(value) and _changes(value) >= _SHUFFLED_WEAK


def _is_strange(value: str) -> bool:
    """Whether letters, digits and symbols are mixed within a value as in no name, version or measure."""
    core = value.strip("\"'`*.,;:!?)")
    if not _is_mixed(core):
        cases = any(map(str.isupper, core[1:])) and any(map(str.islower, core))
        return cases and len(core) >= _LEAST_TOKEN and bool(_SYMBOLS.intersection(core[1:-1]))
    kinds = "".join("a" if char.isalpha() else "0" if char.isdigit() else "-" for char in core)
    runs = re.sub(r"(.)\1+", r"\1", kinds)
    often = len(runs) >= _CHANGED_OFTEN or runs == "a0" or any(map(runs.__contains__, ("a0-", "0a0", "a0a")))
    return often and len(core) >= _LEAST_STRANGE and not _MEASURE.match(core)


def _is_chosen(value: str) -> bool:
    """Whether a value is what people choose behind the word password: letters with digits, no standard."""
    core = value.strip("\"'`*_.,;:?)")
    if len(core) < _LEAST_STRANGE or not _is_mixed(core):
        return False
    return not (_TERM.match(core) or _stands_in(core) or _EXPRESSION.search(core))


def _is_phrase(value: str) -> bool:
    """Whether a value is four words or more, none of which a sentence has."""
    words = value.lower().replace("-", " ").split()
    phrase = " ".join(words)
    return len(words) >= _LEAST_WORDS and bool(_PASSPHRASE.match(phrase)) and not PROSE.search(phrase)
