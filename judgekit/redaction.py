"""Leaves secrets out of text before it is sent to a model: keys, tokens and passwords become `[redacted: …]`.

The patterns are those of detect-secrets, of which the plugins are chosen that know a secret by its form, and
our own (`judgekit.secret_kinds`). Nothing is guessed from how random a text looks: hashes, identifiers and
encoded images are part of what is judged. Reasons and measurements are in docs/decisions/redaction.md.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MARGIN: Final = 4_000
"""Characters behind a cut that are looked at too: a secret that a cut would split is seen whole."""

PRIVATE_KEY: Final = "private key"
_PLACEHOLDER: Final = re.compile(
    r"[<\[{(%$*.…_-]|\W*$|.*(?:[{}<>…]|\.\.\.|\*\*\*|xxx|redacted)|(?:your|my|some|an?|the|test|fake|dummy)[_-]"
    r"|(?:example|change[_-]?me|placeholder|password|passwd|secret|token|string|str|bytes|required|optional|none"
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


class _Found(NamedTuple):
    """A secret in a text, from `start` up to `end`."""

    start: int
    end: int
    kind: str


class Redacted(NamedTuple):
    """A text without its secrets, and how many they were."""

    text: str
    secrets: int


def load() -> None:
    """Make ready what secrets are found with, which the first text would wait for: a tenth of a second."""
    _kinds()


def redact(text: str) -> Redacted:
    """Return the visible text with each secret replaced by its kind, and how many there were.

    Lines keep their numbers. The same text always gives the same, and what is replaced is no secret again.
    """
    if not text:
        return Redacted("", 0)
    text = visible(text)
    parts, at, found = [], 0, _merged(text)
    for each in found:
        lines = text.count("\n", each.start, each.end)
        parts += [text[at : each.start], f"[redacted: {each.kind}]", "\n" * lines]
        at = each.end
    return Redacted("".join([*parts, text[at:]]), len(found))


def passage(whole: str, part: str) -> Redacted:
    """Return a passage of `whole`, its blanks made single, without the secrets of the whole text.

    A passage may begin or end within a secret, which it then no longer shows the form of.
    """
    whole = visible(whole)
    count, edges = 0, (part.startswith("…"), part.endswith("…"))
    core = visible(part).strip("…")
    for each in _merged(whole):
        value = " ".join(whole[each.start : each.end].split())
        label = f"[redacted: {each.kind}]"
        before = core
        core = core.replace(value, label)
        core = _without_edges(core, value, label)
        count += core != before
    rest = redact(core)
    return Redacted(f"{'…' * edges[0]}{rest.text}{'…' * edges[1]}", count + rest.secrets)


def _without_edges(core: str, value: str, label: str) -> str:
    for size in range(min(len(value) - 1, len(core)), 3, -1):
        if core.endswith(value[:size]):
            core = core[:-size] + label
            break
    for size in range(min(len(value) - 1, len(core)), 3, -1):
        if core.startswith(value[-size:]):
            return label + core[size:]
    return core


def _merged(text: str) -> list[_Found]:
    """Return what was found in order, each place once: where two overlap, the first names the kind."""
    merged: list[_Found] = []
    for each in sorted(_find(text), key=lambda found: (found.start, -found.end)):
        if merged and each.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = last._replace(end=max(last.end, each.end))
        else:
            merged.append(each)
    return merged


def _find(text: str) -> Iterator[_Found]:
    kinds = _kinds()
    for kind, pattern in kinds.forms:
        at = 0
        while match := pattern.search(text, at):
            at = match.end()
            if not _in_word(text, match.start()) or (kind in _UNMISTAKABLE and _mixed(match[0])):
                at = at if kind == PRIVATE_KEY else _to_the_end(text, at)
                yield _Found(match.start(), at, kind)
    lower = _lower(text)
    for kind, pattern in kinds.carried:
        for match in pattern.finditer(lower):
            value = text[slice(*match.span("value"))]
            if not (_in_word(text, match.start()) or _stands_in(value)) and (
                kind != "token" or _mixed(value)
            ):
                yield _Found(*match.span("value"), kind)
    for match in kinds.named.finditer(lower):
        if found := _named(text, match):
            yield found


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


def _named(text: str, match: re.Match[str]) -> _Found | None:
    """Return the secret that a name and a value are; `match` is one in small letters."""
    start, end = match.span("value")
    quoted = text[start] in "\"'`"
    value = text[start + 1 : end - 1] if quoted else text[start:end].rstrip(".,:")
    strong = match["name"].startswith(_STRONG)
    phrase = quoted and strong and bool(_PASSPHRASE.match(value))
    names = strong and value.isupper() and not value.isalnum()
    if not (phrase or _generated(value)) and (names or _stands_in(value)):
        return None
    if not (_quoted_secret(value, strong=strong) if quoted else _bare_secret(text, match, value)):
        return None
    kind = "password" if strong else re.sub("[_-]", " ", match["name"])
    return _Found(start + quoted, start + quoted + len(value), kind)


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
        return cases and symbols >= _LEAST_SYMBOLS
    return symbols >= (1 if cases else _LEAST_SYMBOLS) or (cases and _is_shuffled(value))


def _is_shuffled(value: str) -> bool:
    """Whether small, great letters, digits and the rest change more often than in a name of several words."""
    kinds = [(char.islower(), char.isupper(), char.isdigit()) for char in value]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return len(value) >= _LEAST_BARE_TOKEN and changes >= _SHUFFLED * (len(value) - 1)


def _random(value: str) -> bool:
    return _mixed(value) or _generated(value)


def _is_code(value: str) -> bool:
    return bool(_CODE.match(value)) and not _generated(value)


def _quoted_secret(value: str, *, strong: bool) -> bool:
    return strong or (len(value) >= _LEAST_TOKEN and _random(value) and not _is_code(value))


def _bare_secret(text: str, match: re.Match[str], value: str) -> bool:
    """Whether a value without quotes is a secret: in code it is a name more often than not."""
    if (
        _is_code(value)
        or _CHOICE.match(value)
        or (match["close"] and value.isdigit())
        or text[match.start() - 1 : match.start()] == ":"
    ):
        return False
    if not match["name"].startswith(_STRONG):
        return len(value) >= _LEAST_BARE_TOKEN and _random(value) and not _snake(value)
    if any(char.isdigit() for char in value) or not value.isidentifier():
        return not _snake(value)
    return _in_file_of_settings(text, match) and not _snake(value)


def _in_file_of_settings(text: str, match: re.Match[str]) -> bool:
    """Whether a word of letters is a value all the same: `DB_PASSWORD=x`, `Pwd=x;`, `password: x`.

    So is one alone on a line without blanks, as in a file of settings: `passwd=x`.
    """
    after = text[match.end() : match.end() + 1]
    if match["operator"] == "=" and (text[slice(*match.span("name"))].isupper() or after == ";"):
        return True
    before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" \t-")
    alone = after in ("", "\n") and re.fullmatch(r"[\w.-]*", before)
    gap = text[match.end("operator") : match.start("value")]
    if match["operator"] == "=" and not (gap or before) and after in ("", "\n"):
        return text[match.end("name") : match.start("operator")] == ""
    return (
        bool(alone)
        and match["operator"] == ":"
        and gap == " "
        and text[slice(*match.span("value"))].islower()
    )


def _snake(value: str) -> bool:
    """Whether a value is a name of several words, as code has them."""
    return value.isidentifier() and "_" in value.strip("_") and not _generated(value)


def _mixed(value: str) -> bool:
    return any(char.isdigit() for char in value) and any(char.isalpha() for char in value)


class _Kinds(NamedTuple):
    """The patterns: secrets by their form, values that are secrets where they stand, and named values."""

    forms: Sequence[tuple[str, re.Pattern[str]]]
    carried: Sequence[tuple[str, re.Pattern[str]]]
    named: re.Pattern[str]


@functools.cache
def _kinds() -> _Kinds:
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

    from judgekit import secret_kinds  # noqa: PLC0415 - compiles its patterns

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
    patterns = {kind: cast("Iterable[re.Pattern[str]]", plugin.denylist) for kind, plugin in chosen.items()}
    theirs = [(kind, pattern) for kind, found in patterns.items() for pattern in found]
    blocks = [(PRIVATE_KEY, pattern) for pattern in secret_kinds.BLOCKS]
    return _Kinds((*blocks, *secret_kinds.FORMS, *theirs), secret_kinds.CARRIED, secret_kinds.NAMED)
