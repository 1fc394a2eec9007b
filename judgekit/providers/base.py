"""What a call to a model is: the endpoint with its key and address, the request, the reply."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

from judgekit.errors import CallUsage
from judgekit.providers import registry
from judgekit.providers.registry import CommandProfile, LitellmProfile, by_beginning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import TierName
    from judgekit.providers.registry import OutputMode, Price, Profile


class Message(NamedTuple):
    """One message of a chat; its first `stable` characters are the same whatever a rubric judges."""

    role: Literal["system", "user", "assistant"]
    content: str
    stable: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model and how it is reached; keys live here and nowhere else.

    `model` is named as litellm names it ("anthropic/claude-haiku-4-5"). `parameters` are further
    arguments of the provider's client (a region, a deployment). `pointwise` marks a small local model
    that is asked once per candidate or dimension and answers in token probabilities; `logprobs` one whose
    whole replies bring the probabilities of their tokens when asked to.
    """

    profile: Profile
    model: str
    family: str
    output: OutputMode
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    parameters: dict[str, str] = field(default_factory=dict, repr=False)
    pointwise: bool = False
    logprobs: bool = False
    price: Price | None = None


PanelModels: TypeAlias = "Mapping[TierName, Endpoint | Sequence[Endpoint]]"
"""Who judges in each tier: one model, or the several of a jury."""


def models_by_tier(panel: PanelModels) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return the models of each tier, where there is one as where there are several."""
    return {tier: (given,) if isinstance(given, Endpoint) else tuple(given) for tier, given in panel.items()}


class CallKey(NamedTuple):
    """What a call is about, independent of how its prompt is worded: the replay provider matches on it.

    `subject` is the SHA-256 of what is judged; `part` names a dimension or candidate that is asked about
    alone, "idle" where it is asked about for an idle request, "sample1" and so on where several replies are
    wanted, and "reask" for a second try, with a slash between them.
    """

    subject: str
    rubric: str
    tier: TierName
    part: str = ""

    def within(self, part: str) -> CallKey:
        """Return a part of this key."""
        return self._replace(part="/".join(filter(None, (self.part, part))))


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `timeout` is a deadline in seconds for the whole call, its retries included.

    `schema` is the JSON Schema the reply should follow. `top_logprobs` asks for that many alternatives
    of each generated token: with a schema they are wanted where they can be had, without one they are the
    answer. `labels` maps each label in the prompt to the id it stands for: labels differ
    between installations, so a recording needs to know. `sample` is the number of one of several replies
    to the same question, from 1: only these are drawn at random, at temperature 1.
    """

    messages: tuple[Message, ...]
    call_key: CallKey
    timeout: float
    max_tokens: int
    schema: dict[str, Any] | None = None
    top_logprobs: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered.

    `model` is the name in the reply. `tokens` are what it wrote, piece by piece, and `logprobs` beside each
    the alternatives there were, itself among them; both are empty where a provider gives neither. `held` says
    that the provider was to hold the text to the request's schema.
    """

    text: str
    model: str
    usage: CallUsage = field(default_factory=CallUsage)
    logprobs: tuple[dict[str, float], ...] = ()
    tokens: tuple[str, ...] = ()
    held: bool = False


class Gateway(Protocol):
    """A way to reach models."""

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply within `request.timeout` seconds.

        Raises `GatewayError`, and nothing else, when there is none.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and processes."""
        ...


# Sent where an address takes no key: with no key at all, a client would look for another provider's.
NO_KEY = "no-key"
# Set for the programs that judgekit runs, to another value in each call: what runs below one does not
# start another, and is found when the call is cut off.
INSIDE = "JUDGEKIT_INSIDE"
_SECRET = re.compile(r"key|secret|token|credential|password", re.IGNORECASE)


def endpoint(profile: Profile, model: str, environ: Mapping[str, str], base: str | None = None) -> Endpoint:
    """Return how `model` of `profile` is reached with the keys and addresses in `environ`.

    The parameters of a command are all the environment that it sees.
    """
    if isinstance(profile, LitellmProfile):
        model = profile.full_name(model)
        address = base or first_set(profile.base_env, environ) or profile.base
        parameters = {name: first_set(names, environ) for name, names in profile.parameters.items()}
        return Endpoint(
            profile,
            model,
            registry.family_of(profile, model),
            profile.output_of(model),
            api_base=address,
            api_key=first_set(profile.key, environ) or (NO_KEY if address else None),
            parameters={name: value for name, value in parameters.items() if value},
            pointwise=profile.pointwise,
            logprobs=profile.logprobs_of(model) and not profile.pointwise,
            price=profile.price_of(model),
        )
    seen = ("PATH", "HOME", *profile.keep_env) if isinstance(profile, CommandProfile) else ()
    return Endpoint(
        profile,
        model,
        registry.family_of(profile, model),
        profile.output_of(model),
        parameters={name: environ[name] for name in seen if environ.get(name)},
        price=profile.price_of(model),
    )


def is_loopback(base: str) -> bool:
    """Whether an address is on this machine."""
    return urlsplit(base).hostname in ("127.0.0.1", "::1", "localhost")


def is_local(endpoint: Endpoint) -> bool:
    """Whether a model runs on this machine, at no price: judgekit's own, or a known server's at its port."""
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile):
        return False
    return profile.embedded or bool(profile.detect.port and is_loopback(endpoint.api_base or ""))


def first_set(variables: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the value of the first variable that is set and not blank."""
    return next((value for name in variables if (value := environ.get(name, "").strip())), None)


def extra_arguments(profile: LitellmProfile, model: str) -> dict[str, object]:
    """Return the arguments that the profile adds to each call of `model`."""
    return dict(by_beginning(profile.arguments, profile.bare_name(model), {}))


def secret_values(endpoint: Endpoint) -> list[str]:
    """Return the values of an endpoint that must never be shown."""
    named = [value for name, value in endpoint.parameters.items() if _SECRET.search(name)]
    return [value for value in (endpoint.api_key, *named) if value and value != NO_KEY]


SCHEMA_NAME: Final = "opinion"
WEAKER: Final[Mapping[OutputMode, OutputMode]] = {
    "json_schema": "json_object",
    "tool": "text",
    "json_object": "text",
}


def schema_arguments(schema: dict[str, Any] | None, mode: OutputMode) -> dict[str, Any]:
    """Return the arguments of an OpenAI-style call that hold its reply to `schema`."""
    if schema is None or mode == "text":
        return {}
    if mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = deepcopy(schema)  # a client makes it what its provider takes, in place
    if mode == "json_schema":
        form = {"name": SCHEMA_NAME, "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": form}}
    function = {"name": SCHEMA_NAME, "description": "Give your answer.", "parameters": schema}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": SCHEMA_NAME}},
    }


def with_schema(
    messages: tuple[Message, ...], schema: dict[str, Any] | None, mode: OutputMode
) -> tuple[Message, ...]:
    """Return the messages with the schema in the system message, where the call itself cannot carry it."""
    if schema is None or mode in ("json_schema", "tool"):
        return messages
    words = "Answer with one JSON object and nothing else. It follows this JSON Schema:\n" + json.dumps(
        schema, ensure_ascii=False
    )
    if messages and messages[0].role == "system":
        return (messages[0]._replace(content=f"{messages[0].content}\n\n{words}"), *messages[1:])
    return (Message("system", words), *messages)
