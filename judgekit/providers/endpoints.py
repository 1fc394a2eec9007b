"""Turns a profile and an environment into endpoints: which key, which address, which family."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from judgekit.providers import probe, registry
from judgekit.providers.base import Endpoint
from judgekit.providers.profile import CommandProfile, LitellmProfile, by_beginning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.providers.profile import Detect, Profile, ReplayProfile

# Sent where an address takes no key: with no key at all, a client would look for another provider's.
NO_KEY = "no-key"
# Set for the programs that judgekit runs, to another value in each call: what runs below one does not
# start another, and is found when the call is cut off.
INSIDE = "JUDGEKIT_INSIDE"
_SECRET = re.compile(r"key|secret|token|credential|password", re.IGNORECASE)


def endpoint(profile: Profile, model: str, environ: Mapping[str, str], base: str | None = None) -> Endpoint:
    """Return how `model` of `profile` is reached with the keys and addresses in `environ`."""
    if not isinstance(profile, LitellmProfile):
        return _plain(profile, model, environ)
    model = profile.full_name(model)
    address = base or first_set(profile.base_env, environ) or profile.base
    return Endpoint(
        profile=profile,
        model=model,
        family=registry.family_of(profile, model),
        output=profile.output_of(model),
        api_base=address,
        api_key=first_set(profile.key, environ) or (NO_KEY if address else None),
        parameters=_parameters(profile, environ),
        pointwise=profile.pointwise,
        logprobs=profile.logprobs_of(model) and not profile.pointwise,
        price=profile.price_of(model),
    )


def is_local(endpoint: Endpoint) -> bool:
    """Whether a model runs on this machine, at no price: judgekit's own, or a known server's at its port."""
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile):
        return False
    return profile.embedded or bool(profile.detect.port and probe.is_loopback(endpoint.api_base or ""))


def first_set(variables: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the value of the first variable that is set and not blank."""
    return next((value for name in variables if (value := environ.get(name, "").strip())), None)


def missing(detect: Detect, environ: Mapping[str, str], *, named: bool) -> str | None:
    """Return which variables to set, or None when one group is set or none is asked for.

    `named` says that the user asked for this provider, so general-purpose credentials count too.
    """
    groups = [*detect.env, *(detect.named if named else [])]
    if not (detect.env or detect.named) or any(_is_set(group, environ) for group in groups):
        return None
    return " or ".join(" with ".join(group) for group in groups) or "a request for it by name"


def extra_arguments(profile: LitellmProfile, model: str) -> dict[str, object]:
    """Return the arguments that the profile adds to each call of `model`."""
    return dict(by_beginning(profile.arguments, profile.bare_name(model), {}))


def secret_values(endpoint: Endpoint) -> list[str]:
    """Return the values of an endpoint that must never be shown."""
    named = [value for name, value in endpoint.parameters.items() if _SECRET.search(name)]
    return [value for value in (endpoint.api_key, *named) if value and value != NO_KEY]


def _plain(profile: CommandProfile | ReplayProfile, model: str, environ: Mapping[str, str]) -> Endpoint:
    """Return an endpoint that needs no address; a command's parameters are all the environment it sees."""
    seen = ("PATH", "HOME", *profile.keep_env) if isinstance(profile, CommandProfile) else ()
    return Endpoint(
        profile=profile,
        model=model,
        family=registry.family_of(profile, model),
        output=profile.output_of(model),
        parameters={name: environ[name] for name in seen if environ.get(name)},
        price=profile.price_of(model),
    )


def _is_set(group: Sequence[str], environ: Mapping[str, str]) -> bool:
    return all(environ.get(name, "").strip() for name in group)


def _parameters(profile: LitellmProfile, environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: first_set(variables, environ) for name, variables in profile.parameters.items()}
    return {name: value for name, value in found.items() if value}
