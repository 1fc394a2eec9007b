"""Finds the secrets that stand in a text as it is: by their form, by their name, by their place.

The patterns are those of detect-secrets, of which the plugins are chosen that know a secret by its form, and
our own (`judgekit.judging.secret_kinds`). Nothing is guessed from how random a text looks: hashes,
identifiers and encoded images are part of what is judged.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from judgekit.judging import disguises, secret_contexts, secret_kinds, secret_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PRIVATE_KEY: Final = "private key"
_CHOICE: Final = re.compile(r"[A-Za-z_.=]*(?:[|&]+[A-Za-z_.=]*)+$")
"""Types and flags that are joined, and the fields of a form: what stands there without quotes."""

_UNMISTAKABLE: Final = frozenset({"GitHub token", "Anthropic key"})
"""Kinds that are found behind a letter too: their beginning and length do not come about by chance."""

_REST: Final = re.compile(r"[A-Za-z0-9_-]*+")
_SMALL: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class SecretMatch(NamedTuple):
    """A secret in a text, from `start` up to `end`."""

    start: int
    end: int
    kind: str


def load() -> None:
    """Import and compile what every text is searched with."""
    _plugins()


def find(text: str) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, in no order; what one is part of, another may be."""
    lower = _lower(text)
    for start, end in disguises.find(text, lower):
        yield SecretMatch(start, end, PRIVATE_KEY)
    for kind, pattern in _forms(text):
        at = 0
        while match := pattern.search(text, at):
            at = match.end()
            if not _in_word(text, match.start()) or (
                kind in _UNMISTAKABLE and secret_values.is_mixed(match[0])
            ):
                at = at if kind == PRIVATE_KEY else _to_the_end(text, at)
                yield SecretMatch(match.start(), at, kind)
    lines = list(_lines(lower))
    yield from _in_lines(text, lower, lines)
    for start, end, kind in secret_values.find_places(lower, lines):
        if kind == "seed phrase" or not secret_values.stands_in(text[start:end]):
            yield SecretMatch(start, end, kind)


def _in_lines(text: str, lower: str, lines: Iterable[tuple[int, int]]) -> Iterator[SecretMatch]:
    inside = "\n".join(lower[start:end] for start, end in lines)
    carried = [secret_kind for secret_kind in secret_contexts.CARRIED if secret_kind.is_in(inside)]
    for start, end in lines:
        here = lower[start:end]
        for kind in carried:
            if kind.is_in(here):
                for match in kind.pattern.finditer(lower, start, end):
                    if span := _carried(text, match):
                        yield SecretMatch(*span, kind.name)
        for match in secret_kinds.NAMED.finditer(lower, start, end):
            if secret_match := _named(text, match):
                yield secret_match


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
    for word in secret_kinds.WORDS:
        at = lower.find(word)
        while at >= 0:
            stop = _line_end(lower, at + len(word))
            yield lower.rfind("\n", 0, at) + 1, stop
            at = lower.find(word, stop)
    for pattern in secret_kinds.PLACES:
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
    for secret_kind in secret_kinds.FORMS:
        if secret_kind.is_in(long):
            yield secret_kind.name, secret_kind.pattern
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
    fits = secret_values.FITS[group.rstrip("23")]
    if not value or not fits(value):
        return None
    if group != "sure" and text[start - 1 : start] not in "\"'" and secret_values.is_code(value):
        return None
    return start, start + len(value)


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


def _named(text: str, match: re.Match[str]) -> SecretMatch | None:
    """Return the secret that a name and a value are; `match` is one in small letters."""
    strength = _strength(_whole_name(text, match))
    if not strength:
        return None
    start, end = match.span("value")
    quoted = text[start] in "\"'`("
    value = text[start + 1 : end - 1] if quoted else text[start:end].rstrip(".,:")
    strong = strength in ("strong", "short")
    phrase = quoted and (
        (strong and bool(secret_values.PASSPHRASE.match(value))) or _is_hyphened_phrase(value, match)
    )
    names = strong and value.isupper() and not value.isalnum()
    if not (phrase or secret_values.generated(value)) and (names or secret_values.stands_in(value)):
        return None
    secretive = strength == "weak" and bool(secret_values.SECRETIVE.search(_line_before(text, match.start())))
    if not (
        (phrase and "-" in value) or secret_values.quoted_secret(value, strength, secretive=secretive)
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
    return SecretMatch(start, end if quoted else _to_the_blank(text, match, end), kind)


def _is_hyphened_phrase(value: str, match: re.Match[str]) -> bool:
    """Whether a secret is words with hyphens: `JWT_SECRET="maple-river-candle-orbit"`."""
    return (
        value.islower()
        and "-" in value
        and " " not in value
        and secret_values.is_phrase(value)
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


def _bare_secret(text: str, match: re.Match[str], value: str, strength: str) -> bool:
    """Whether a value without quotes is a secret: in code it is a name more often than not."""
    if (
        secret_values.is_code(value)
        or _CHOICE.match(value)
        or (match["close"] and value.isdigit())
        or text[match.start() - 1 : match.start()] == ":"
    ):
        return False
    if strength == "weak":
        return secret_values.is_weak_secret(value)
    if strength == "secret":
        if (
            match["core"] == "secret"
            and text[match.start("core") : match.end("tail")].isupper()
            and _is_alone(text, match)
        ):
            return len(value) >= secret_values.LEAST_TOKEN and not secret_values.snake(value)
        least = (
            secret_values.LEAST_TOKEN
            if _is_alone(text, match) and secret_values.is_strange(value)
            else secret_values.LEAST_BARE_TOKEN
        )
        return len(value) >= least and secret_values.is_random(value) and not secret_values.snake(value)
    setting = match["operator"] == ":" or match.end("operator") == match.start("value")
    name = secret_values.snake(value) and not (
        setting and secret_values.is_mixed(value) and _is_alone(text, match)
    )
    if strength == "short":
        if value.isdigit() and text[match.start("core") : match.end("core")] == "PIN":
            return True
        mixed = secret_values.is_chosen(value)
        return not name and (
            mixed or (len(value) >= secret_values.LEAST_SHORT and _in_file_of_settings(text, match))
        )
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
