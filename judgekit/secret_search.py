"""Finds the secrets that stand in a text as it is: by their form, by their name, by their place.

The patterns are those of detect-secrets, of which the plugins are chosen that know a secret by its form, and
our own (`judgekit.secret_kinds`). Nothing is guessed from how random a text looks: hashes, identifiers and
encoded images are part of what is judged.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from judgekit import key_blocks, secret_contexts, secret_kinds, secret_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PRIVATE_KEY: Final = "private key"
_PLACEHOLDER: Final = re.compile(
    r"[<\[{(%$*.…_-]|\W*$|.*(?:[{}<>…]|\.\.\.|\*\*\*|xxx|redacted)|(?:your|my|some|an?|the|test|fake|dummy)[_-]"
    r"|(?:example|change[_-]?me|placeholder|password|passwd|secret|token|string|str|bytes|bool|boolean|int|integer|float|any|object|secretstr|required|optional|none"
    r"|null|nil|undefined|true|false|enabled|disabled|default|hidden|empty|invalid|missing|unset|auto|prompt"
    r"|expired|wrong|pass|text)s?\W*$",
    re.IGNORECASE,
)
"""How values begin, or what they are, that stand where a secret will."""

_CODE: Final = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+[;:.]?$|\.{0,2}/|~/|[A-Za-z]:\\|\w+://|-|@|#|!"
)
"""An attribute, a path, an address or an option: what stands behind a name in code."""

_CHOICE: Final = re.compile(r"[A-Za-z_.=]*(?:[|&]+[A-Za-z_.=]*)+$")
"""Types and flags that are joined, and the fields of a form: what stands there without quotes."""

_SYMBOLS: Final = frozenset("!#$%&*+=?@^|~")
_FORMAT: Final = re.compile(r"%[sdr](?!\w)")
_LEAST_SYMBOLS: Final = 3
_SHUFFLED: Final = 0.45  # what is drawn at random has 0.6, camelCase with words of five letters 0.4

_OF_SENTENCES: Final = (
    "the|you|your|must|should|will|may|can|not|and|for|from|with|that|this|has|have|are|was|when|here|least|most"
    "|characters?|chars|letters?|digits?|words?|enter|type|confirm|new|old|repeat|forgot|reset|change|set|invalid"
    "|incorrect|wrong|missing|required|optional|please|password|passwd|passphrase|user|name|field"
)
_PASSPHRASE: Final = re.compile(
    rf"(?!(?:.* )?(?:{_OF_SENTENCES})(?: |$))(?:[a-z]{{3,9}}(?: [a-z]{{3,9}}){{3,7}}"
    r"|(?=[^0-9]*[0-9])[\w!#$%&*+=?@^~-]{2,12}(?: [\w!#$%&*+=?@^~-]{2,12}){2,7})$",
    re.IGNORECASE,
)
"""Four words or more, or three with a digit, none of which a sentence about passwords has."""

_UNMISTAKABLE: Final = frozenset({"GitHub token", "Anthropic key"})
"""Kinds that are found behind a letter too: their beginning and length do not come about by chance."""

_NAME_ENDS: Final = re.compile(
    r"(?:.*[_-])?(?:password|passwd|passphrase|pwd|secret|token|key|credential)s?\W*$", re.IGNORECASE
)
_REST: Final = re.compile(r"[A-Za-z0-9_-]*+")
_SMALL: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_STRONG: Final = ("pass", "pwd")
_LEAST_TOKEN: Final = 8
_LEAST_BARE_TOKEN: Final = 16


class Found(NamedTuple):
    """A secret in a text, from `start` up to `end`."""

    start: int
    end: int
    kind: str


def load() -> None:
    """Import and compile what every text is searched with."""
    _plugins()


def find(text: str) -> Iterator[Found]:
    """Yield the secrets in a text, in no order; what one is part of, another may be."""
    lower = _lower(text)
    for start, end in key_blocks.find(text, lower):
        yield Found(start, end, PRIVATE_KEY)
    for kind, pattern in _forms(text):
        at = 0
        while match := pattern.search(text, at):
            at = match.end()
            if not _in_word(text, match.start()) or (kind in _UNMISTAKABLE and _mixed(match[0])):
                at = at if kind == PRIVATE_KEY else _to_the_end(text, at)
                yield Found(match.start(), at, kind)
    lines = list(_lines(lower))
    yield from _in_lines(text, lower, lines)
    for start, end, kind in secret_places.find(lower, lines):
        if kind == "seed phrase" or not _stands_in(text[start:end]):
            yield Found(start, end, kind)


def _in_lines(text: str, lower: str, lines: Iterable[tuple[int, int]]) -> Iterator[Found]:
    inside = "\n".join(lower[start:end] for start, end in lines)
    carried = [each for each in secret_contexts.CARRIED if each.is_in(inside)]
    for start, end in lines:
        here = lower[start:end]
        for each in carried:
            if each.is_in(here):
                for match in each.pattern.finditer(lower, start, end):
                    if span := _carried(text, match):
                        yield Found(*span, each.name)
        for match in secret_kinds.NAMED.finditer(lower, start, end):
            if found := _named(text, match):
                yield found


_SHORTEST_FORM: Final = 18  # characters of a secret with a form of its own


def _lines(lower: str) -> Iterator[tuple[int, int]]:
    """Yield from where to where lines stand in which a value may be a secret by its name or place.

    Those behind one that names it are among them, since a value may stand there.
    """
    start, end = 0, -1
    for line, stop in sorted(set(_named_lines(lower))):
        if end >= 0 and line > end:
            yield start, end
            end = -1
        start = start if end >= 0 else line
        behind = stop
        for _ in range(_LINES_BEHIND):
            behind = _line_end(lower, behind + 1)
        end = max(end, behind)
    if end >= 0:
        yield start, end


def _named_lines(lower: str) -> Iterator[tuple[int, int]]:
    """Yield from where to where lines stand that have a word or form of those beside which secrets stand."""
    for word in secret_contexts.WORDS:
        at = lower.find(word)
        while at >= 0:
            stop = _line_end(lower, at + len(word))
            yield lower.rfind("\n", 0, at) + 1, stop
            at = lower.find(word, stop)
    for pattern in secret_contexts.PLACES:
        at = 0
        while match := pattern.search(lower, at):
            at = _line_end(lower, match.end() - 1)
            yield lower.rfind("\n", 0, match.start()) + 1, at


_LINES_BEHIND: Final = 3


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", min(at, len(text)))
    return len(text) if found < 0 else found


def _forms(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    long = " ".join(word for word in text.split() if len(word) >= _SHORTEST_FORM)
    for each in secret_kinds.FORMS:
        if each.is_in(long):
            yield each.name, each.pattern
    for kind, patterns in _plugins().items():
        if any(word in long for word in secret_kinds.PLUGIN_WORDS[kind]):
            yield from ((kind, pattern) for pattern in patterns)


def _lower(text: str) -> str:
    """Return the text in small letters, each where it was: without regard to case, patterns are slow."""
    lower = text.lower()
    # A letter may become two: then only those of ASCII are changed, of which names are made.
    return lower if len(lower) == len(text) else text.translate(_SMALL)


def _in_word(text: str, start: int) -> bool:
    return start > 0 and text[start].isalnum() and text[start - 1].isalnum()


def _to_the_end(text: str, end: int) -> int:
    """Return where the word ends that a pattern of a fixed length ended in."""
    rest = _REST.match(text, end)
    return rest.end() if rest else end


def _carried(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    """Return from where to where a value stands that is a secret by its place; none where it is none."""
    group = cast("str", match.lastgroup)
    start, end = match.span(group)
    value = text[start:end].rstrip(".,:")
    fits = _FITS[group.rstrip("23")]
    if not value or not fits(value):
        return None
    if group != "sure" and text[start - 1 : start] not in "\"'" and _is_code(value):
        return None
    return start, start + len(value)


def _is_word_of_sentence(value: str) -> bool:
    return bool(_SENTENCE_WORD.match(value))


_SENTENCE_WORD: Final = re.compile(
    rf"(?:{_OF_SENTENCES}|option|flag|argument|parameter|switch|file|stdin|input|command|environment|variable|only"
    r"|plain|clear|hashed|stored|sent|shown|asked|given|used|empty|blank|valid|correct|expired|also|still|never"
    r"|always|instead|when|where|which|what|store|value|values|support|based|protected|manager|auth\w*)\W*$",
    re.IGNORECASE,
)


def _fits_word(value: str) -> bool:
    return not _stands_in(value) and not _is_word_of_sentence(value) and not value.isupper()


def _is_token(value: str) -> bool:
    """Whether a value is a long mixture of letters and digits, and no name of several words."""
    digits = sum(map(str.isdigit, value))
    return _mixed(value) and not _snake(value) and len(value) >= _LEAST_TOKEN and digits * 10 >= len(value)


def _is_strange(value: str) -> bool:
    """Whether letters, digits and symbols are mixed within a value as in no name, version or measure."""
    core = value.strip("\"'`*.,;:!?)")
    if not _mixed(core):
        cases = any(map(str.isupper, core[1:])) and any(map(str.islower, core))
        return cases and len(core) >= _LEAST_TOKEN and bool(_SYMBOLS.intersection(core[1:-1]))
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


def _is_chosen(value: str) -> bool:
    """Whether a value is what people choose behind the word password: letters with digits, no standard."""
    core = value.strip("\"'`*_.,;:?)")
    return (
        len(core) >= _LEAST_STRANGE
        and _mixed(core)
        and not _TERM.match(core)
        and not _stands_in(core)
        and not _EXPRESSION.search(core)
    )


def _is_phrase(value: str) -> bool:
    words = value.lower().replace("-", " ").split()
    return (
        len(words) >= _LEAST_WORDS
        and bool(_PASSPHRASE.match(" ".join(words)))
        and not secret_places.PROSE.intersection(words)
    )


_LEAST_WORDS: Final = 4

_FITS: Final[Mapping[str, Callable[[str], bool]]] = {
    "value": lambda value: _generated(value) or not _stands_in(value),
    "mixed": lambda value: (
        _generated(value) or (_mixed(value) and not _stands_in(value) and not _snake(value))
    ),
    "random": lambda value: _generated(value) or (_is_token(value) and not _stands_in(value)),
    "generated": lambda value: _generated(value) or (_is_strange(value) and not _stands_in(value)),
    "chosen": lambda value: (
        _generated(value) or ((_is_strange(value) or _is_chosen(value)) and not _stands_in(value))
    ),
    "phrase": _is_phrase,
    "sure": lambda value: not value.startswith("["),
    "word": lambda value: _generated(value) or _fits_word(value),
    "secretword": lambda value: _generated(value) or _fits_word(value),
}


@functools.lru_cache(4096)
def _strength(name: str) -> str:
    """Return what a name promises: a password, a short word for one, a secret, perhaps one; or nothing."""
    spaced = _HUMP.sub(r"\1_\2", name).lower()
    words = [each for each in _SEPARATOR.split(spaced) if each]
    for _ in range(3):
        if len(words) > 1 and (words[-1] in secret_kinds.ENDINGS or words[-1].isdigit()):
            words.pop()
    if not words or "public" in words:
        return ""
    joined, last = "".join(words), words[-1].rstrip("0123456789")
    if secret_kinds.STRONG.search(joined.rstrip("0123456789")):
        return "strong"
    if last in secret_kinds.SHORT or "".join(words[-2:]) in secret_kinds.SHORT:
        return "short"
    for strength, pattern in (("secret", secret_kinds.SECRET), ("weak", secret_kinds.WEAK)):
        found = pattern.search("".join(words[-3:]).rstrip("0123456789"))
        if found and (strength == "secret" or last == found[0] or last.endswith(("key", "auth"))):
            return strength
    return ""


_HUMP: Final = re.compile(r"([a-z0-9])([A-Z])")
_SEPARATOR: Final = re.compile(r"[^a-z0-9\u0080-\U0010ffff]+")
_BEFORE: Final = re.compile(r"[\w.$-]*\Z")
_TWO_WORDS: Final = re.compile(r"([A-Za-z]{2,12}) \Z")


def _whole_name(text: str, match: re.Match[str]) -> str:
    """Return the whole name that a word of it was found in; of two words both, as in `API key`."""
    start = match.start("core")
    before = cast("re.Match[str]", _BEFORE.search(text, max(0, start - _LONGEST_NAME), start))[0]
    if not before and (two := _TWO_WORDS.search(text, max(0, start - 14), start)):
        before = f"{two[1]}_"
    return before + text[start : match.end("tail")]


_LONGEST_NAME: Final = 60


def _named(text: str, match: re.Match[str]) -> Found | None:
    """Return the secret that a name and a value are; `match` is one in small letters."""
    strength = _strength(_whole_name(text, match))
    if not strength:
        return None
    start, end = match.span("value")
    quoted = text[start] in "\"'`("
    value = text[start + 1 : end - 1] if quoted else text[start:end].rstrip(".,:")
    strong = strength in ("strong", "short")
    phrase = quoted and ((strong and bool(_PASSPHRASE.match(value))) or _is_hyphened_phrase(value, match))
    names = strong and value.isupper() and not value.isalnum()
    if not (phrase or _generated(value)) and (names or _stands_in(value)):
        return None
    secretive = strength == "weak" and bool(_SECRETIVE.search(_line_before(text, match.start())))
    if not (
        (phrase and "-" in value) or _quoted_secret(value, strength, secretive=secretive)
        if quoted
        else _bare_secret(text, match, value, strength)
    ):
        return None
    kind = (
        "password"
        if strong
        else "key"
        if match["core"] == "key"
        else "token"
        if match["core"] != "secret"
        else "secret"
    )
    start += quoted
    end = start + len(value)
    return Found(start, end if quoted else _to_the_blank(text, match, end), kind)


def _is_hyphened_phrase(value: str, match: re.Match[str]) -> bool:
    """Whether a secret is words with hyphens: `JWT_SECRET="maple-river-candle-orbit"`."""
    return (
        value.islower()
        and "-" in value
        and " " not in value
        and _is_phrase(value)
        and bool(_SECRET_NAME.search(match["core"] + match["tail"]))
    )


_SECRET_NAME: Final = re.compile(r"(?:secret|secret_?key|password|passphrase)$")


def _to_the_blank(text: str, match: re.Match[str], end: int) -> int:
    """Return where a value ends that is the rest of its line, as in a file of settings."""
    rest = _TO_BLANK.match(text, end)
    setting = (
        rest and any(map(str.isalnum, rest[0])) and _SETTING.fullmatch(_line_before(text, match.start()))
    )
    return rest.end() if rest and setting else end


def _line_before(text: str, at: int) -> str:
    """Return what stands on a line before a place; of much the end."""
    first = max(0, at - 2 * _LONGEST_NAME)
    return text[max(first, text.rfind("\n", first, at) + 1) : at]


_TO_BLANK: Final = re.compile(r"[^\s]{1,200}+(?=[ \t]*(?:\n|\Z))")
_SETTING: Final = re.compile(r"(?:export |set |env |ENV |- )?[ \t-]*[\"']?[\w.-]*")


def _stands_in(value: str) -> bool:
    """Whether a value says where a secret will stand, or names the place where it is kept."""
    return bool(_PLACEHOLDER.match(value) or _NAME_ENDS.match(value)) or any(map(str.isspace, value))


def _generated(value: str) -> bool:
    """Whether a value is such a mixture that only a generator makes, whatever it begins with."""
    if len(value) < _LEAST_TOKEN or _FORMAT.search(value) or any(map(str.isspace, value)):
        return False
    symbols = len(_SYMBOLS.intersection(value[1:-1]))
    cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    if not _mixed(value):
        return cases and (symbols >= _LEAST_SYMBOLS or (len(value) >= _LEAST_WEAK and _is_shuffled(value)))
    return symbols >= (1 if cases else _LEAST_SYMBOLS) or (cases and _is_shuffled(value))


def _is_shuffled(value: str) -> bool:
    """Whether small, great letters, digits and the rest change more often than in a name of several words."""
    return len(value) >= _LEAST_BARE_TOKEN and _changes(value) >= _SHUFFLED


def _changes(value: str) -> float:
    """Return how often a value changes from one class of characters to another, as a part of its length."""
    kinds = [(char.islower(), char.isupper(), char.isdigit()) for char in value]
    return sum(one != other for one, other in itertools.pairwise(kinds)) / max(len(kinds) - 1, 1)


def _random(value: str) -> bool:
    return _mixed(value) or _generated(value)


def _is_code(value: str) -> bool:
    return bool(_CODE.match(value)) and not _generated(value)


_HEX_KEY: Final = re.compile(r"[0-9a-fA-F]{32,}$")
_SECRETIVE: Final = re.compile(r"crypt|secret|cipher|jwt|hmac|auth", re.IGNORECASE)


def _quoted_secret(value: str, strength: str, *, secretive: bool = False) -> bool:
    if strength == "strong":
        return not value.startswith("/") or _mixed(value)
    if strength == "short":
        return (_mixed(value) or len(value) >= _LEAST_SHORT) and not _is_code(value)
    if strength == "weak":
        return _is_weak_secret(value) or (secretive and bool(_HEX_KEY.match(value)))
    return (
        len(value) >= _LEAST_TOKEN
        and _random(value)
        and not _is_code(value)
        and not _EXPRESSION.search(value)
    )


_EXPRESSION: Final = re.compile(r"\[[a-zA-Z]-|\(\?|\\[dw]")  # a regular one
_LEAST_SHORT: Final = 6
_LEAST_WEAK: Final = 20
_HEX_OR_ID: Final = re.compile(r"[0-9a-fA-F-]+$|\w+[:/.]|.*[\\\[\](){}|^ ]")


def _is_weak_secret(value: str) -> bool:
    """Whether a value is a secret under a name like `key` or `session`, which many others have too."""
    return (
        len(value) >= _LEAST_WEAK
        and _mixed(value)
        and not _snake(value)
        and not _HEX_OR_ID.match(value)
        and _changes(value) >= _SHUFFLED_WEAK
    )


_SHUFFLED_WEAK: Final = 0.35


def _bare_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:  # noqa: PLR0911 - one for each promise
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
    if strength == "secret":
        if (
            match["core"] == "secret"
            and text[match.start("core") : match.end("tail")].isupper()
            and _is_alone(text, match)
        ):
            return len(value) >= _LEAST_TOKEN and not _snake(value)
        least = _LEAST_TOKEN if _is_alone(text, match) and _is_strange(value) else _LEAST_BARE_TOKEN
        return len(value) >= least and _random(value) and not _snake(value)
    setting = match["operator"] == ":" or match.end("operator") == match.start("value")
    name = _snake(value) and not (setting and _mixed(value) and _is_alone(text, match))
    if strength == "short":
        if value.isdigit() and text[match.start("core") : match.end("core")] == "PIN":
            return True
        mixed = _is_chosen(value)
        return not name and (mixed or (len(value) >= _LEAST_SHORT and _in_file_of_settings(text, match)))
    if any(char.isdigit() for char in value) or not value.isidentifier():
        return not name
    return _in_file_of_settings(text, match) and not name


def _is_alone(text: str, match: re.Match[str]) -> bool:
    """Whether name and value are all that their line has, as in a file of settings."""
    end = _END_OF_SETTING.match(text, match.end())
    return bool(end and _SETTING.fullmatch(_line_before(text, match.start())))


def _in_file_of_settings(text: str, match: re.Match[str]) -> bool:
    """Whether a word of letters is a value all the same: `DB_PASSWORD=x`, `Pwd=x;`, `password: x`.

    So is one alone on a line without blanks, as in a file of settings: `passwd=x`.
    """
    after = text[match.end() : match.end() + 1]
    if (
        _NEXT_SETTING.match(text, match.end())
        and match["operator"] == "="
        and match.end("operator") == match.start("value")
    ):
        return True
    if _END_OF_SETTING.match(text, match.end()):
        after = ""
    if match["operator"] == "=" and (text[match.start("core") : match.end("tail")].isupper() or after == ";"):
        return True
    before = _line_before(text, match.start()).strip(" \t-")
    alone = after in ("", "\n") and re.fullmatch(r"[\w.-]*", before)
    gap = text[match.end("operator") : match.start("value")]
    if match["operator"] == "=" and not gap and after in ("", "\n") and _PROPERTY.fullmatch(before):
        return match.end("tail") == match.start("operator")
    if alone and match["operator"] == "=":
        return bool(_SECTION.search(text, max(0, match.start() - 300), match.start()))
    return (
        bool(alone)
        and match["operator"] == ":"
        and gap == " "
        and text[slice(*match.span("value"))].islower()
    )


_NEXT_SETTING: Final = re.compile(r"[ \t]+[a-z_]{2,30}=\w")
_END_OF_SETTING: Final = re.compile(r"[ \t]*(?:[ \t][;#].*)?(?:\n|\Z)")
_SECTION: Final = re.compile(r"^\[[\w .:/-]+\][ \t]*$", re.MULTILINE)
_PROPERTY: Final = re.compile(r"(?!(?:self|this|cls|args|opts|options|obj)\.)[\w.-]*")


def _snake(value: str) -> bool:
    """Whether a value is a name of several words, as code has them."""
    return value.isidentifier() and "_" in value.strip("_") and not _generated(value)


def _mixed(value: str) -> bool:
    return any(char.isdigit() for char in value) and any(char.isalpha() for char in value)


@functools.cache
def _plugins() -> Mapping[str, tuple[re.Pattern[str], ...]]:
    from detect_secrets.plugins import (  # noqa: PLC0415 - a tenth of a second of CPU, where something is sent
        aws,
        discord,
        github_token,
        gitlab_token,
        mailchimp,
        pypi_token,
        sendgrid,
        slack,
        square_oauth,
        stripe,
        telegram_token,
        twilio,
    )

    chosen = {
        "AWS key": aws.AWSKeyDetector,
        "Discord token": discord.DiscordBotTokenDetector,
        "GitHub token": github_token.GitHubTokenDetector,
        "GitLab token": gitlab_token.GitLabTokenDetector,
        "Mailchimp key": mailchimp.MailchimpDetector,
        "PyPI token": pypi_token.PypiTokenDetector,
        "SendGrid key": sendgrid.SendGridDetector,
        "Slack token": slack.SlackDetector,
        "Square secret": square_oauth.SquareOAuthDetector,
        "Stripe key": stripe.StripeDetector,
        "Telegram token": telegram_token.TelegramBotTokenDetector,
        "Twilio key": twilio.TwilioKeyDetector,
    }
    # A plugin's patterns are declared as a property and given as an attribute of the class.
    return {
        kind: tuple(cast("Iterable[re.Pattern[str]]", plugin.denylist)) for kind, plugin in chosen.items()
    }
