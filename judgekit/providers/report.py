"""Says which providers can be used here and why not, and tries one with a real call."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from judgekit.config import TIERS
from judgekit.errors import CallUsage, FailureKind, GatewayError, of_failure
from judgekit.providers import registry, served_models
from judgekit.providers.base import CallKey, Message, Request, first_set
from judgekit.providers.gateway import prepare
from judgekit.providers.registry import CommandProfile, LitellmProfile
from judgekit.providers.resolve import (
    PanelRequest,
    detect,
    models_at,
    names,
    profile_of,
    served,
    signed_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config import TierName
    from judgekit.providers.base import Endpoint, Gateway
    from judgekit.providers.registry import Profile


@dataclass(frozen=True, slots=True)
class ProviderState:
    """One line of `judgekit provider list`; `why` says what makes it usable or what is lacking."""

    name: str
    title: str
    kind: str
    usable: bool
    why: str
    models: dict[TierName, str]


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a tiny real call; `failure` is None when it worked. `latency_ms` includes retries.

    `answered` is the model that the reply names: it may be another name for the one that was asked.
    """

    provider: str
    model: str
    failure: FailureKind | None
    message: str
    latency_ms: int
    usage: CallUsage
    answered: str | None

    @property
    def ok(self) -> bool:
        """Whether the model answered."""
        return self.failure is None


def provider_report(environ: Mapping[str, str], wanted: PanelRequest | None = None) -> list[ProviderState]:
    """Return all providers in the order they are tried; asks local servers for their models, up to 0.3 s.

    Raises `ConfigError` when a profile's file is wrong.
    """
    wanted = wanted or PanelRequest()
    known = registry.profiles()
    servers = [profile for profile in known if isinstance(profile, LitellmProfile) and profile.detect.port]
    lists = served_models.models_of_all([served(server, environ) for server in servers])
    listed = dict(zip((server.provider for server in servers), lists, strict=True))
    states = []
    for profile in known:
        problem = _problem(profile, environ, wanted, listed.get(profile.provider))
        models = dict(profile.models.by_tier)
        if served_here := listed.get(profile.provider):
            models = dict.fromkeys(TIERS, served_here[0])
        why = problem or _evidence(profile, environ)
        states.append(
            ProviderState(profile.provider, profile.title, profile.kind, problem is None, why, models)
        )
    return states


async def check(gateway: Gateway, endpoint: Endpoint, timeout: float = 30) -> Checked:
    """Make one tiny call through the gateway; it costs what a dozen tokens cost.

    What the call needs is loaded before: that takes seconds, which are not the provider's.
    """
    await prepare(endpoint)
    messages = (Message("system", "You answer in one word."), Message("user", "Say yes."))
    request = Request(messages, CallKey("check", "check", "quick"), timeout, 16)
    start = time.monotonic()
    failure, message, usage, answered = None, "it answered", CallUsage(), None
    try:
        reply = await gateway.complete(endpoint, request)
        usage, answered = reply.usage, reply.model
    except GatewayError as error:
        failure, message, usage = error.kind, error.message, of_failure(error)
    # A model that was cut short did answer: sixteen tokens are few for one that explains itself.
    if failure is FailureKind.TRUNCATED:
        failure = None
    latency = round((time.monotonic() - start) * 1000)
    return Checked(endpoint.profile.provider, endpoint.model, failure, message, latency, usage, answered)


def _problem(
    profile: Profile, environ: Mapping[str, str], wanted: PanelRequest, listed: list[str] | None
) -> str | None:
    lacking = detect(profile, environ, named=wanted.asks_for(profile))
    if lacking is None and profile.detect.port and not listed:
        nothing = f"no server responds on port {profile.detect.port}"
        lacking = nothing if listed is None else "it has no chat model"
    if lacking is None and isinstance(profile, LitellmProfile) and profile.is_addressed:
        named = [name for models in wanted.models.values() if models for name in names(models)]
        if not any(profile_of(name, registry.profiles())[0] == profile for name in named):
            lacking = models_at(profile, environ)[1]  # at an address of the user's own
    if wanted.allows(profile):
        return lacking
    if isinstance(profile, CommandProfile) and lacking is None:
        return f"not allowed: {signed_in([profile])}"
    how = f"add {profile.provider} to providers.allow in your own configuration"
    return f"not allowed: {how}" + (f"; {lacking}" if lacking else "")


def _evidence(profile: Profile, environ: Mapping[str, str]) -> str:
    """Say what shows that a provider is there: a variable's name, never its value."""
    for group in (*profile.detect.env, *profile.detect.named):
        if all(first_set([name], environ) for name in group):
            return f"{' and '.join(group)} set"
    if isinstance(profile, LitellmProfile) and profile.detect.port:
        return f"answers at {served(profile, environ)}"
    return f"{profile.detect.command} is on PATH" if isinstance(profile, CommandProfile) else "there"
