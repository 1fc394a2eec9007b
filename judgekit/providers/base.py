"""The protocol between the judge and a model: one request in, one reply out, or a `GatewayError`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from judgekit.errors import CallUsage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config.names import TierName
    from judgekit.providers.profile import OutputMode, Price, Profile


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
