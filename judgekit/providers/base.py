"""The parts of a call to a model: the endpoint with its key and address, the request, the reply."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote, urlsplit

from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.providers.registry import (
    ApiProfile,
    CommandProfile,
    DecisionsProfile,
    LitellmProfile,
    guess_family,
)
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.config import TierName
    from judgekit.providers.decisions import DecisionQuestion
    from judgekit.providers.registry import OutputMode, Price, Profile


class Message(NamedTuple):
    """One chat message. Its first `stable_chars` characters are the same for every text a rubric judges."""

    role: Literal["system", "user", "assistant"]
    content: str
    stable_chars: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model and how to reach it. Keys are held here and nowhere else.

    `model` is litellm's name. `parameters` are further arguments for the provider's client, or a command's
    whole environment. A model that `is_pointwise` answers one question per call, in token probabilities. One
    that `decides` answers typed questions with probabilities and writes nothing.
    """

    profile: Profile
    model: str
    family: str
    output_mode: OutputMode
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    parameters: dict[str, str] = field(default_factory=dict, repr=False)
    is_pointwise: bool = False
    decides: bool = False
    has_logprobs: bool = False
    price: Price | None = None

    @property
    def writes(self) -> bool:
        """Whether the model writes its replies, with reasons, instead of giving bare probabilities."""
        return not (self.is_pointwise or self.decides)


def choose_answering_name(asked: str, answered: str) -> str:
    """Return the name of the model that answered, given the requested name and the one in the reply.

    Prefer the requested name if the reply has none, or if only a prefix such as `openai/` differs.
    """
    _, _, asked_name = asked.rpartition("/")
    _, _, answered_name = answered.rpartition("/")
    if not answered or answered_name == asked_name:
        return asked
    return answered


Messages: TypeAlias = tuple[Message, ...]


class CallKey(NamedTuple):
    """Identifies a call by its subject, however the prompt is worded. Recordings are matched by it.

    `subject` is the SHA-256 of the judged text. `part` names a part of the judging, with slashes: a dimension
    or a candidate, the number of a reply, and "reask" for a second try.
    """

    subject: str
    rubric: str
    tier: TierName
    part: str = ""

    def append_part(self, part: str) -> CallKey:
        """Return the key of a part of this call, with the `part` appended after a slash."""
        parts = [name for name in (self.part, part) if name]
        return self._replace(part="/".join(parts))


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `timeout` is the deadline in seconds for the whole call, retries included.

    `top_logprobs` is the number of alternatives to return for each token; without a schema they are the
    answer. `labels` maps labels in the prompt to ids. `sample` numbers the replies to one question, from 1,
    and asks at temperature 1. `questions` are for a decision model, which decides them about the messages.
    """

    messages: Messages
    call_key: CallKey
    timeout: float
    max_tokens: int
    schema: dict[str, Any] | None = None
    top_logprobs: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    sample: int = 0
    questions: tuple[DecisionQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer, with the alternatives of each token.

    Raises `GatewayError` if the text isn't a string or the model isn't a usable name. `schema_enforced`
    means the provider was given the schema. Call `distrust` if it evidently ignored it: the text isn't one
    object that fits the schema.
    """

    text: str
    model: str
    usage: Usage = field(default_factory=Usage)
    logprobs: tuple[dict[str, float], ...] = ()
    tokens: tuple[str, ...] = ()
    schema_enforced: bool = False
    distrust: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # The values come from models, servers, programs and stores, so their types may be wrong.
        if not isinstance(self.text, str):
            problem = f"the reply is no text but {type(self.text).__name__}"
            raise GatewayError(FailureKind.INVALID_REPLY, problem, usage=self.usage)
        if not _is_name(self.model):
            problem = "the reply names a model that is no name"
            raise GatewayError(FailureKind.INVALID_REPLY, problem, usage=self.usage)


def _is_name(value: object) -> bool:
    """Whether a value can be a model's name: a short string that can be encoded as UTF-8."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME_CHARS:
        return False
    return replace_surrogates(value) == value


class Gateway(Protocol):
    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply within `request.timeout` seconds; raises only `GatewayError`."""
        ...

    async def aclose(self) -> None: ...


# Sent to an address that takes no key. Given none at all, a client would use another provider's.
NO_KEY = "no-key"
# Set in the environment of programs that judgekit runs, with a new value for each call. It stops a
# judgekit further down from starting another program, and marks the processes to kill if the call
# is cut off.
INSIDE_VARIABLE = "JUDGEKIT_INSIDE"
_MAX_NAME_CHARS = 500  # characters of a model's name
_MIN_KEY_CHARS = 6  # a shorter text isn't hidden, because it could be an ordinary word
_MIN_QUOTED_CHARS = 4  # characters of a key's end that a provider quotes
MAX_MESSAGE_CHARS = 300  # characters of a failure in a provider's or a program's words
_VARIABLE_PATTERN = re.compile(r"\{([A-Z0-9_]+)\}")
_SECRET_NAME_PATTERN = re.compile(r"key|secret|token|credential|password", re.IGNORECASE)


def build_endpoint(
    profile: Profile, model: str, environ: Mapping[str, str], base: str | None = None
) -> Endpoint:
    """Build the endpoint for a model, with the keys and addresses in `environ`.

    The address `base` overrides those in `environ` and the profile.
    """
    bare_name = _remove_prefix(profile, model)
    # `look_up_model` looks up the model in a table of the profile. The last argument is the default.
    family = profile.look_up_model(profile.families, model, profile.family) or guess_family(
        bare_name
    )
    output = profile.look_up_model(profile.outputs, model, profile.output)
    price = profile.look_up_model(profile.price, model, None)
    basic_endpoint = Endpoint(profile, model, family, output, price=price)

    if isinstance(profile, CommandProfile):
        return replace(basic_endpoint, parameters=_read_variables(profile, environ))
    if not isinstance(profile, ApiProfile):
        return basic_endpoint
    api_endpoint = _add_api(basic_endpoint, profile, bare_name, environ, base)
    if not isinstance(profile, LitellmProfile):
        return api_endpoint
    # These are log probabilities beside a written reply, and a pointwise model writes none.
    has_logprobs = _has_logprobs(profile, model) and not profile.pointwise
    return replace(api_endpoint, is_pointwise=profile.pointwise, has_logprobs=has_logprobs)


def _remove_prefix(profile: Profile, model: str) -> str:
    """Remove the prefix that some providers' models are named with, as in `openai/gpt-4o`."""
    return model.removeprefix(profile.prefix) if isinstance(profile, ApiProfile) else model


def _read_variables(profile: CommandProfile, environ: Mapping[str, str]) -> dict[str, str]:
    """Read the environment variables that a program gets, with its keys and settings."""
    names = ("PATH", "HOME", *profile.keep_env)
    return {name: environ[name] for name in names if environ.get(name)}


def _add_api(
    basic_endpoint: Endpoint,
    profile: ApiProfile,
    bare_name: str,
    environ: Mapping[str, str],
    base: str | None,
) -> Endpoint:
    """Add the provider's address, key and parameters to an endpoint."""
    address = base or profile.address_in(environ) or _fill_address(profile, environ)
    key = find_first_value(profile.key, environ)
    if address and not key:
        # Without any key, litellm would send another provider's key to this address.
        key = NO_KEY
    return replace(
        basic_endpoint,
        model=profile.prefix + bare_name,
        api_base=address,
        api_key=key,
        parameters=_read_parameters(profile, environ),
        decides=isinstance(profile, DecisionsProfile),
    )


def _read_parameters(profile: ApiProfile, environ: Mapping[str, str]) -> dict[str, str]:
    """Read additional arguments for the provider's client from the environment."""
    parameters = {}
    for name, variables in profile.parameters.items():
        value = find_first_value(variables, environ)
        if value:
            parameters[name] = value
    return parameters


def _has_logprobs(profile: LitellmProfile, model: str) -> bool:
    """Whether a model returns log probabilities, according to its profile."""
    if isinstance(profile.logprobs, bool):  # for all its models
        return profile.logprobs
    return profile.look_up_model(profile.logprobs, model, default=False)


def _fill_address(profile: ApiProfile, environ: Mapping[str, str]) -> str | None:
    """Replace each `{VARIABLE}` in a profile's address with its value in `environ`.

    Returns None if the profile has no address, or if a variable isn't set.
    """
    if profile.base is None:
        return None
    variables = _VARIABLE_PATTERN.findall(profile.base)
    values = {name: environ.get(name, "").strip() for name in variables}
    are_all_set = all(values.values())
    if not are_all_set:
        return None

    def quote_value(match: re.Match[str]) -> str:
        return quote(values[match[1]], safe="")

    return _VARIABLE_PATTERN.sub(quote_value, profile.base)


def find_first_value(variables: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the value of the first variable that's set and not blank, or None."""
    for name in variables:
        value = environ.get(name, "").strip()
        if value:
            return value
    return None


def is_loopback(base: str) -> bool:
    return urlsplit(base).hostname in ("127.0.0.1", "::1", "localhost")


def is_local(endpoint: Endpoint) -> bool:
    """Whether a model runs on this machine, so that its calls cost nothing."""
    profile = endpoint.profile
    has_local_address = is_loopback(endpoint.api_base or "")
    if isinstance(profile, LitellmProfile):
        if profile.embedded:
            return True
        # Only profiles of servers that users run themselves have a port to look for. With any other profile,
        # a local address can be a proxy for a paid model.
        is_own_server = profile.detect.port is not None
        return is_own_server and has_local_address
    if isinstance(profile, DecisionsProfile):
        return profile.own_server and has_local_address
    return False


def list_secrets(endpoint: Endpoint) -> list[str]:
    """List an endpoint's secrets: its API key, and parameters with names such as `aws_secret_key`."""
    values = [endpoint.api_key or ""]
    for name, value in endpoint.parameters.items():
        if _SECRET_NAME_PATTERN.search(name):
            values.append(value)
    return [value for value in values if value not in ("", NO_KEY)]


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Replace `secrets` in `text` with `[key]`, even if only the start or end is shown, as in `sk-ab12…`."""
    for secret in secrets:
        # A shorter secret could be an ordinary word.
        if len(secret) >= _MIN_KEY_CHARS:
            text = text.replace(secret, "[key]")
            text = _hide_start(text, secret)
            text = _hide_end(text, secret)
    return text


def _hide_start(text: str, secret: str) -> str:
    """Hide a key if only its start is shown, as in `sk-ab12…`. Also hide any masked word: `sk-a****wxyz`."""
    start = re.escape(secret[:_MIN_KEY_CHARS])
    quoted_start = rf"{start}[\w*…-]*"
    # A masked key may show too little to recognise it, so hide every word with three asterisks in a row.
    masked_word = r"(?<![\w-])[\w-]*+\*{3,}[\w*-]*"  # `*+` matches like `*`, but never backtracks
    return re.sub(f"{quoted_start}|{masked_word}", "[key]", text)


def _hide_end(text: str, secret: str) -> str:
    """Hide a key if only its end is shown, as in `…wxyz`.

    An end isn't hidden if it has fewer than four characters, or if it's part of a longer word.
    """
    # List the longest end first, because the first alternative that matches is taken.
    lengths = range(len(secret) - 1, _MIN_QUOTED_CHARS - 1, -1)
    ends = [re.escape(secret[-length:]) for length in lengths]
    any_end = "|".join(ends)
    letter_or_digit = r"[^\W_]"
    separate_end = rf"(?<!{letter_or_digit})(?:{any_end})(?!{letter_or_digit})"
    return re.sub(separate_end, "[key]", text)


def add_schema(messages: Messages, schema: dict[str, Any] | None, mode: OutputMode) -> Messages:
    """Add the schema to the system message, if there's a schema and `mode` doesn't send it separately."""
    if schema is None or mode in ("json_schema", "tool"):
        return messages

    instruction = "Answer with one JSON object and nothing else. It follows this JSON Schema:\n"
    instruction += json.dumps(schema, ensure_ascii=False)
    if messages and messages[0].role == "system":
        system, *other_messages = messages
        return (system._replace(content=f"{system.content}\n\n{instruction}"), *other_messages)
    return (Message("system", instruction), *messages)
