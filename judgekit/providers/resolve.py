"""Chooses which models judge: the panel that a user's wishes and an environment come to.

Order: a recording, models named by the user, the `JUDGEKIT_*` endpoint, keys in the environment, a local
server that answers, the embedded model, a command that the user allowed.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from judgekit import programs
from judgekit.config.names import TIERS, TierName
from judgekit.providers import registry, replay, served_models
from judgekit.providers.base import INSIDE, endpoint, first_set, missing
from judgekit.providers.registry import CommandProfile, LitellmProfile, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.providers.base import Endpoint

Others: TypeAlias = "Callable[[], Sequence[Mapping[TierName, tuple[Endpoint, ...]]]]"
"""Returns what judges with the other providers that may be asked would be, the first choice first."""
CUSTOM = "openai-compatible"
_NOTHING = (
    "no model found: set a provider's key (judgekit provider list names them) or JUDGEKIT_API_BASE with "
    "JUDGEKIT_MODEL, or start a local server"
)


@dataclass(frozen=True, slots=True)
class PanelRequest:
    """What the user asked for.

    `models` names one or several models for some tiers, as litellm does ("anthropic/claude-haiku-4-5") or
    with the provider's own name before it ("lm-studio/qwen2.5"). `allow` lists the providers that may be
    used: None means all but the commands. `order` names those to try first. `listed_only` holds the tiers
    whose models a project named rather than the user: no general-purpose credentials (`Detect.named`) are
    used for them.
    """

    models: Mapping[TierName, str | Sequence[str] | None] = field(default_factory=dict)
    allow: Sequence[str] | None = None
    order: Sequence[str] | None = None
    listed_only: frozenset[TierName] = frozenset()

    def allows(self, profile: Profile) -> bool:
        """Whether the user lets text go to this provider."""
        if self.allow is None:
            return not isinstance(profile, CommandProfile)
        return profile.provider in _unaliased(self.allow)

    def names(self, profile: Profile, tier: TierName) -> bool:
        """Whether the user, and not just a project, asks for this provider in this tier."""
        return tier not in self.listed_only or profile.provider in _unaliased(self.allow or ())


@dataclass(frozen=True, slots=True)
class Panel:
    """Who judges: the endpoints of each tier, none at all when no model was found.

    `provider` is the profile that filled the tiers; `reason` says in one line what was chosen or what to
    do. Tiers may share an endpoint; several in one tier are its jury. `others` returns what the tiers would
    be with each provider that may be asked, in the order of choice; it may ask local servers, as `resolve`.
    """

    endpoints: dict[TierName, tuple[Endpoint, ...]]
    provider: str | None
    reason: str
    others: Others = field(default=tuple, compare=False, repr=False)


def resolve(wanted: PanelRequest, environ: Mapping[str, str]) -> Panel:
    """Return the panel for `wanted` in `environ`; may ask local servers for their models, up to 0.3 s.

    Raises `ConfigError` when a profile's or a recording's file is wrong.
    """
    recording = environ.get(replay.REPLAY_VARIABLE, "").strip()
    if recording:
        return _of(replay.recorded_models(Path(recording)), "replay", f"replies recorded in {recording}")
    known = _ordered([profile for profile in registry.profiles() if wanted.allows(profile)], wanted.order)
    others = functools.cache(
        lambda: tuple(each.endpoints for each in _detected(known, wanted, environ) if each.endpoints)
    )
    if any(wanted.models.values()):
        return _named(wanted, known, environ, others)
    own = _models_without_address(known, environ)
    if own:
        return _named(replace(wanted, models=own, listed_only=frozenset()), known, environ, others)
    panel = next(_detected(known, wanted, environ), None)
    return replace(panel, others=others) if panel else Panel({}, None, _nothing(wanted, environ))


def fill(endpoints: Mapping[TierName, tuple[Endpoint, ...]]) -> dict[TierName, tuple[Endpoint, ...]]:
    """Give every tier models: its own, else those of the nearest deeper tier, else of the shallower one."""
    if not endpoints:
        return {}
    filled: dict[TierName, tuple[Endpoint, ...]] = {}
    for place, tier in enumerate(TIERS):
        nearest = (*TIERS[place:], *reversed(TIERS[:place]))
        filled[tier] = next(endpoints[each] for each in nearest if each in endpoints)
    return filled


def detect(profile: Profile, environ: Mapping[str, str], *, named: bool = False) -> str | None:
    """Return why a profile cannot be used here, or None when it can; local servers are not asked."""
    lacking = missing(profile.detect, environ, named=named)
    if lacking:
        return f"set {lacking}"
    if isinstance(profile, CommandProfile) and environ.get(INSIDE):
        return "a program that judgekit runs started it"
    module, command = profile.detect.module, profile.detect.command
    if module and not importable(module):
        return f"the Python package {module} is not installed"
    if command and programs.find(command, environ) is None:
        return f"no command {command} on PATH"
    return None


def importable(module: str) -> bool:
    """Whether a module could be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def served(profile: LitellmProfile, environ: Mapping[str, str]) -> str:
    """Return the address of a local server."""
    return first_set(profile.base_env, environ) or profile.base or ""


def _detected(known: Sequence[Profile], wanted: PanelRequest, environ: Mapping[str, str]) -> Iterator[Panel]:
    """Yield the panel of each provider that is there, in the order of choice.

    One without models says what is wrong with an address of the user's own.
    """
    unnamed: list[Panel] = []
    for profile in _addressed(known, environ):
        models, problem = models_at(profile, environ)
        if problem is None:
            why = f"{profile.title}: {served(profile, environ)}"
            yield _of(_reached(profile, models, environ), profile.provider, why)
        elif profile.provider == CUSTOM:  # it was meant, and nothing that comes after it
            yield Panel({}, None, problem)
        else:
            unnamed.append(Panel({}, None, problem))
    yield from _by_key(known, wanted, environ)
    yield from _by_server(known, environ)
    yield from _embedded(known, environ)
    yield from _by_command(known, environ)
    yield from unnamed


def models_at(
    profile: LitellmProfile, environ: Mapping[str, str]
) -> tuple[Mapping[TierName, Sequence[str]], str | None]:
    """Return the models at an address that the user names, or why there are none.

    Which they are is the user's to say. `JUDGEKIT_API_BASE` alone is asked for them, where it is on this
    machine.
    """
    base, models = served(profile, environ), _models_in(profile, environ)
    variable = next((name for name in profile.base_env if environ.get(name, "").strip()), "")
    if not base.startswith(("http://", "https://")):
        expected = "expected an address such as http://127.0.0.1:8080/v1"
        return {}, f"the address of {profile.provider} is {base!r}: {expected}"
    if not models and profile.provider == CUSTOM and (listed := served_models.models(base)):
        models = dict.fromkeys(TIERS, listed[:1])
    return models, None if models else f"{variable} is {base}: set JUDGEKIT_MODEL to a model that is there"


def _by_key(known: Sequence[Profile], wanted: PanelRequest, environ: Mapping[str, str]) -> Iterator[Panel]:
    asked = set(_unaliased(wanted.allow or ()))
    for profile in known:
        if not isinstance(profile, LitellmProfile) or not profile.models.by_tier:
            continue
        if detect(profile, environ, named=profile.provider in asked) is None:
            yield _profile_panel(profile, environ, "its key is set")


def _by_server(known: Sequence[Profile], environ: Mapping[str, str]) -> Iterator[Panel]:
    servers = [each for each in known if isinstance(each, LitellmProfile) and each.detect.port]
    lists = served_models.models_of_all([served(server, environ) for server in servers])
    for profile, listed in zip(servers, lists, strict=True):
        if listed:
            yield _of(
                _reached(profile, dict.fromkeys(TIERS, listed[:1]), environ),
                profile.provider,
                f"{profile.title} answers at {served(profile, environ)}",
            )


def _embedded(known: Sequence[Profile], environ: Mapping[str, str]) -> Iterator[Panel]:
    for profile in known:
        if isinstance(profile, LitellmProfile) and profile.embedded:
            models = _models_in(profile, environ)
            if models and detect(profile, environ) is None:
                named = f"the embedded model {next(iter(models.values()))[0]}"
                yield _of(_reached(profile, models, environ), profile.provider, named)


def _by_command(known: Sequence[Profile], environ: Mapping[str, str]) -> Iterator[Panel]:
    for profile in known:
        if isinstance(profile, CommandProfile) and detect(profile, environ) is None:
            yield _profile_panel(profile, environ, f"the command {profile.detect.command} is on PATH")


def _named(
    wanted: PanelRequest, known: Sequence[Profile], environ: Mapping[str, str], others: Others
) -> Panel:
    """Named models fill their tiers; the others go to the same provider, so that no text goes elsewhere.

    Where all of them are at a server or an address of the user's own, texts are meant to stay there: another
    provider takes a tier for the sake of independence only where `allow` names it.
    """
    endpoints: dict[TierName, tuple[Endpoint, ...]] = {}
    named = {tier: names(name) for tier, name in wanted.models.items() if name}
    for tier, name in ((tier, name) for tier, jury in named.items() for name in jury):
        profile, model = profile_of(name, known)
        profile = profile or next(iter(_addressed(known, environ)), None)
        problem = _unusable(profile, tier, wanted, environ) if profile else "no allowed provider serves it"
        if profile is None or problem:
            return Panel({}, None, f"the model {name} was asked for ({tier}), but {problem}")
        endpoints[tier] = (*endpoints.get(tier, ()), endpoint(profile, model, environ))
    first = next(iter(endpoints.values()))[0].profile
    if all(each.profile == first for jury in endpoints.values() for each in jury):
        endpoints = {**_own(first, environ), **endpoints}
    by = "project" if wanted.listed_only.issuperset(named) else "user"
    panel = _of(endpoints, first.provider, f"named by the {by}")
    at_home = all(_is_own(each.profile) for jury in endpoints.values() for each in jury)
    return panel if at_home and wanted.allow is None else replace(panel, others=others)


def _is_own(profile: Profile) -> bool:
    """Whether what a provider is sent goes to a server or an address of the user's own."""
    if not isinstance(profile, LitellmProfile):
        return False
    return bool(profile.detect.port or profile.models_env.by_tier or profile.embedded)


def _unusable(
    profile: Profile, tier: TierName, wanted: PanelRequest, environ: Mapping[str, str]
) -> str | None:
    """Return why the named model of a tier cannot be used here; a project does not lend credentials."""
    if wanted.names(profile, tier):
        return detect(profile, environ, named=True)
    problem = detect(profile, environ)
    if problem and detect(profile, environ, named=True) is None:
        return (
            f"only a project names it, which is not enough to use the credentials here for {profile.title}: "
            f"add {profile.provider} to providers.allow in your own configuration"
        )
    return problem


def profile_of(name: str, known: Sequence[Profile]) -> tuple[Profile | None, str]:
    """Return which of the `known` profiles serves the model called `name`, and the model's bare name.

    The provider's own name before the slash decides; else the profile that lists the model; else the one
    whose models begin like it.
    """
    provider, _, rest = name.partition("/")
    for profile in known:
        if rest and profile.provider in _unaliased([provider]):
            return profile, rest
    for profile in known:
        if name in profile.models.by_tier.values():
            return profile, name
    fitting = [each for each in known if isinstance(each, LitellmProfile) and name.startswith(each.prefix)]
    return max(fitting, key=lambda each: len(each.prefix), default=None), name


def _profile_panel(profile: Profile, environ: Mapping[str, str], why: str) -> Panel:
    return _of(_own(profile, environ), profile.provider, f"{profile.title}: {why}")


def _of(endpoints: Mapping[TierName, tuple[Endpoint, ...]], provider: str, reason: str) -> Panel:
    return Panel(fill(endpoints), provider, reason)


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the models that one text, separated by commas, or a list names; each once, in order."""
    each = given.split(",") if isinstance(given, str) else given
    return tuple(dict.fromkeys(name.strip() for name in each if name.strip()))


def _own(profile: Profile, environ: Mapping[str, str]) -> dict[TierName, tuple[Endpoint, ...]]:
    return _reached(profile, {tier: [model] for tier, model in profile.models.by_tier.items()}, environ)


def _reached(
    profile: Profile, models: Mapping[TierName, Sequence[str]], environ: Mapping[str, str]
) -> dict[TierName, tuple[Endpoint, ...]]:
    return {tier: tuple(endpoint(profile, each, environ) for each in jury) for tier, jury in models.items()}


def _models_in(profile: LitellmProfile, environ: Mapping[str, str]) -> dict[TierName, Sequence[str]]:
    """Return the models that the profile's own variables name."""
    every = names(environ.get("JUDGEKIT_MODEL", "")) if profile.base_env else ()
    found = {
        tier: names(environ.get(variable, "")) or every
        for tier, variable in profile.models_env.by_tier.items()
    }
    return {tier: models for tier, models in found.items() if models}


def _addressed(known: Sequence[Profile], environ: Mapping[str, str]) -> list[LitellmProfile]:
    """Return the profiles whose address and models are both the user's to name, and whose address is set."""
    named = [each for each in known if isinstance(each, LitellmProfile) and each.is_addressed]
    return [litellm_profile for litellm_profile in named if first_set(litellm_profile.base_env, environ)]


def _models_without_address(
    known: Sequence[Profile], environ: Mapping[str, str]
) -> dict[TierName, Sequence[str]]:
    """Return the models of `JUDGEKIT_MODEL` and its like where no address says whose they are."""
    if _addressed(known, environ):
        return {}
    every = names(environ.get("JUDGEKIT_MODEL", ""))
    found = {tier: names(environ.get(f"JUDGEKIT_{tier.upper()}_MODEL", "")) or every for tier in TIERS}
    return {tier: models for tier, models in found.items() if models}


def _ordered(known: Sequence[Profile], order: Sequence[str] | None) -> list[Profile]:
    first = {name: place for place, name in enumerate(_unaliased(order or ()))}
    return sorted(known, key=lambda profile: first.get(profile.provider, len(first)))


def _unaliased(names: Sequence[str]) -> list[str]:
    return [registry.unaliased(name) for name in names]


def _nothing(wanted: PanelRequest, environ: Mapping[str, str]) -> str:
    """Say that there is no model, and of commands that are there what keeps them from being used."""
    if wanted.allow is None:
        told = _NOTHING
    else:
        told = f"no model found among the allowed providers ({', '.join(wanted.allow) or 'none'})"
    there = [
        profile
        for profile in registry.profiles()
        if isinstance(profile, CommandProfile)
        and not wanted.allows(profile)
        and detect(profile, environ) is None
    ]
    return f"{told}; {signed_in(there)}" if there else told


def signed_in(commands: Sequence[CommandProfile]) -> str:
    """Say how to judge with commands that are there and not allowed."""
    names = " and ".join(str(command.detect.command) for command in commands)
    allow = ", ".join(command.provider for command in commands)
    there = f"{names} {'is' if len(commands) == 1 else 'are'} on PATH, but a subscription is no API key"
    return f"{there}: to judge with it, add {allow} to providers.allow in your own configuration"
