"""Chooses which models judge, by the user's wishes and an environment; says why a provider cannot be used.

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
from judgekit.config import TIERS, TierName
from judgekit.providers import registry, replay, servers
from judgekit.providers.base import INSIDE, endpoint, first_set
from judgekit.providers.registry import CommandProfile, LitellmProfile, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.providers.base import Endpoint

    Tiers: TypeAlias = Mapping[TierName, tuple[Endpoint, ...]]
    Named: TypeAlias = Mapping[TierName, str | Sequence[str]]

Others: TypeAlias = "Callable[[], Sequence[Tiers]]"
"""Returns what judges with the other providers that may be asked would be, the first choice first."""
CUSTOM = "openai-compatible"
_NOTHING = (
    "no model found: set a provider's key (see judgekit provider list), or JUDGEKIT_API_BASE with "
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
        return not isinstance(profile, CommandProfile) if self.allow is None else self.asks_for(profile)

    def asks_for(self, profile: Profile) -> bool:
        """Whether the user names this provider among those that may be used."""
        return profile.provider in map(registry.unaliased, self.allow or ())


@dataclass(frozen=True, slots=True)
class Panel:
    """Who judges: the endpoints of each tier, several of which are its jury; none when no model was found.

    `provider` is the profile that filled the tiers; `reason` says in one line what was chosen or what to
    do. `others` returns what the tiers would be with each provider that may be asked, as `resolve` does.
    """

    endpoints: dict[TierName, tuple[Endpoint, ...]]
    provider: str | None
    reason: str
    others: Others = field(default=tuple, compare=False, repr=False)


def resolve(wanted: PanelRequest, environ: Mapping[str, str]) -> Panel:
    """Return the panel for `wanted` in `environ`; may ask local servers for their models, up to 0.3 s.

    Raises `ConfigError` when a profile's or a recording's file is wrong.
    """
    if recording := environ.get(replay.REPLAY_VARIABLE, "").strip():
        endpoints = fill(replay.recorded_models(Path(recording)))
        return Panel(endpoints, "replay", f"replies recorded in {recording}")
    profiles = registry.profiles()
    by_name = {profile.provider: profile for profile in profiles if wanted.allows(profile)}
    first = [name for name in map(registry.unaliased, wanted.order or ()) if name in by_name]
    known = [by_name[name] for name in dict.fromkeys((*first, *by_name))]
    others = functools.cache(
        lambda: tuple(panel.endpoints for panel in _detected(known, wanted, environ) if panel.endpoints)
    )
    if any(wanted.models.values()):
        return _named(wanted, known, environ, others)
    variables = {tier: f"JUDGEKIT_{tier.upper()}_MODEL" for tier in TIERS}
    if not _addressed(known, environ) and (models := _models_in(variables, environ)):
        return _named(replace(wanted, models=models, listed_only=frozenset()), known, environ, others)
    if panel := next(_detected(known, wanted, environ), None):
        return replace(panel, others=others)
    problem = _NOTHING
    if wanted.allow is not None:
        problem = f"no model found among the allowed providers ({', '.join(wanted.allow) or 'none'})"
    commands = [profile for profile in profiles if isinstance(profile, CommandProfile)]
    there = [profile for profile in commands if not wanted.allows(profile) and not detect(profile, environ)]
    return Panel({}, None, f"{problem}; {_signed_in(there)}" if there else problem)


def _detected(known: Sequence[Profile], wanted: PanelRequest, environ: Mapping[str, str]) -> Iterator[Panel]:
    """Yield the panel of each provider that is there, in the order of choice.

    One without models says what is wrong with an address of the user's own.
    """
    unnamed: list[Panel] = []
    for profile in _addressed(known, environ):
        models, problem = _models_at(profile, environ)
        if problem is None:
            yield _panel(profile, models, f"{profile.title}: {served(profile, environ)}", environ)
        elif profile.provider == CUSTOM:  # it was meant, and nothing that comes after it
            yield Panel({}, None, problem)
        else:
            unnamed.append(Panel({}, None, problem))
    reached = [profile for profile in known if isinstance(profile, LitellmProfile)]
    for profile in reached:
        has_models = bool(profile.models.by_tier)
        if has_models and detect(profile, environ, named=wanted.asks_for(profile)) is None:
            yield _panel(profile, profile.models.by_tier, f"{profile.title}: its key is set", environ)
    local = [profile for profile in reached if profile.detect.port]
    lists = servers.models_of_all([served(server, environ) for server in local])
    for profile, listed in zip(local, lists, strict=True):
        if listed:
            reason = f"{profile.title} answers at {served(profile, environ)}"
            yield _panel(profile, dict.fromkeys(TIERS, listed[:1]), reason, environ)
    for profile in (profile for profile in reached if profile.embedded):
        models = _models_in(profile.models_env.by_tier, environ, usual=False)
        if models and detect(profile, environ) is None:
            yield _panel(profile, models, f"the embedded model {next(iter(models.values()))[0]}", environ)
    for command in (profile for profile in known if isinstance(profile, CommandProfile)):
        if detect(command, environ) is None:
            reason = f"{command.title}: the command {command.detect.command} is on PATH"
            yield _panel(command, command.models.by_tier, reason, environ)
    yield from unnamed


def _named(
    wanted: PanelRequest, known: Sequence[Profile], environ: Mapping[str, str], others: Others
) -> Panel:
    """Named models fill their tiers; the others go to the same provider, so that no text goes elsewhere.

    Where all of them are at a server or an address of the user's own, texts are meant to stay there: another
    provider takes a tier for the sake of independence only where `allow` names it.
    """
    endpoints: dict[TierName, tuple[Endpoint, ...]] = {}
    tiers = {tier: names(models) for tier, models in wanted.models.items() if models}
    for tier, name in ((tier, name) for tier, jury in tiers.items() for name in jury):
        profile, model = profile_of(name, known)
        profile = profile or next(iter(_addressed(known, environ)), None)
        problem = _unusable(profile, tier, wanted, environ) if profile else "no allowed provider serves it"
        if profile is None or problem:
            return Panel({}, None, f"the model {name} is configured ({tier}), but {problem}")
        endpoints[tier] = (*endpoints.get(tier, ()), endpoint(profile, model, environ))
    used = [endpoint.profile for jury in endpoints.values() for endpoint in jury]
    if all(profile == used[0] for profile in used):
        endpoints = {**_endpoints(used[0], used[0].models.by_tier, environ), **endpoints}
    by = "project" if wanted.listed_only.issuperset(tiers) else "user"
    at_home = all(
        isinstance(profile, LitellmProfile)
        and (profile.detect.port or profile.models_env.by_tier or profile.embedded)
        for profile in used
    )
    panel = Panel(fill(endpoints), used[0].provider, f"named by the {by}")
    return panel if at_home and wanted.allow is None else replace(panel, others=others)


def _unusable(
    profile: Profile, tier: TierName, wanted: PanelRequest, environ: Mapping[str, str]
) -> str | None:
    """Return why the named model of a tier cannot be used here; a project does not lend credentials."""
    named = tier not in wanted.listed_only or wanted.asks_for(profile)
    problem = detect(profile, environ, named=named)
    if problem is None or named or detect(profile, environ, named=True):
        return problem
    return (
        f"a project alone cannot choose to use your credentials for {profile.title}: add "
        f"{profile.provider} to providers.allow in your own configuration"
    )


def fill(endpoints: Tiers) -> dict[TierName, tuple[Endpoint, ...]]:
    """Give every tier models: its own, else those of the nearest deeper tier, else of the shallower one."""
    if not endpoints:
        return {}
    filled: dict[TierName, tuple[Endpoint, ...]] = {}
    for place, tier in enumerate(TIERS):
        nearest = (*TIERS[place:], *reversed(TIERS[:place]))
        filled[tier] = next(endpoints[near] for near in nearest if near in endpoints)
    return filled


def _panel(profile: Profile, models: Named, reason: str, environ: Mapping[str, str]) -> Panel:
    return Panel(fill(_endpoints(profile, models, environ)), profile.provider, reason)


def _endpoints(profile: Profile, models: Named, environ: Mapping[str, str]) -> Tiers:
    juries = {tier: [jury] if isinstance(jury, str) else jury for tier, jury in models.items()}
    return {tier: tuple(endpoint(profile, model, environ) for model in jury) for tier, jury in juries.items()}


def profile_of(name: str, known: Sequence[Profile]) -> tuple[Profile | None, str]:
    """Return which of the `known` profiles serves the model called `name`, and the model's bare name.

    The provider's own name before the slash decides; else the profile that lists the model; else the one
    whose models begin like it.
    """
    provider, _, rest = name.partition("/")
    for profile in known:
        if rest and profile.provider == registry.unaliased(provider):
            return profile, rest
    for profile in known:
        if name in profile.models.by_tier.values():
            return profile, name
    reached = (profile for profile in known if isinstance(profile, LitellmProfile))
    fitting = [profile for profile in reached if name.startswith(profile.prefix)]
    return max(fitting, key=lambda profile: len(profile.prefix), default=None), name


def names(models: str | Sequence[str]) -> tuple[str, ...]:
    """Return the models that one text, separated by commas, or a list names; each once, in order."""
    parts = models.split(",") if isinstance(models, str) else models
    return tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))


def _models_in(
    variables: Mapping[TierName, str], environ: Mapping[str, str], *, usual: bool = True
) -> dict[TierName, tuple[str, ...]]:
    """Return the models that the variable of each tier names, else those of JUDGEKIT_MODEL where `usual`."""
    every = names(environ.get("JUDGEKIT_MODEL", "")) if usual else ()
    found = {tier: names(environ.get(variable, "")) or every for tier, variable in variables.items()}
    return {tier: models for tier, models in found.items() if models}


def _addressed(known: Sequence[Profile], environ: Mapping[str, str]) -> list[LitellmProfile]:
    """Return the profiles whose address and models are both the user's to name, and whose address is set."""
    reached = (profile for profile in known if isinstance(profile, LitellmProfile))
    named = (profile for profile in reached if profile.models_env.by_tier)
    return [profile for profile in named if first_set(profile.base_env, environ)]


def _models_at(profile: LitellmProfile, environ: Mapping[str, str]) -> tuple[Named, str | None]:
    """Return the models at an address that the user names, or why there are none.

    Which they are is the user's to say. `JUDGEKIT_API_BASE` alone is asked for them, where it is on this
    machine.
    """
    base = served(profile, environ)
    if not base.startswith(("http://", "https://")):
        expected = "expected an address such as http://127.0.0.1:8080/v1"
        return {}, f"the address of {profile.provider} is {base!r}: {expected}"
    models: Named = _models_in(profile.models_env.by_tier, environ)
    if not models and profile.provider == CUSTOM and (listed := servers.models(base)):
        models = dict.fromkeys(TIERS, listed[:1])
    variable = next((name for name in profile.base_env if environ.get(name, "").strip()), "")
    return models, None if models else f"{variable} is {base}: set JUDGEKIT_MODEL to a model of that server"


def served(profile: LitellmProfile, environ: Mapping[str, str]) -> str:
    """Return the address of a server."""
    return first_set(profile.base_env, environ) or profile.base or ""


def detect(profile: Profile, environ: Mapping[str, str], *, named: bool = False) -> str | None:
    """Return why a profile cannot be used here, or None when it can; local servers are not asked.

    `named` says that the user asked for this provider, so general-purpose credentials count too.
    """
    shown = profile.detect
    groups = [*shown.env, *(shown.named if named else [])]
    is_set = any(all(first_set([name], environ) for name in group) for group in groups)
    if (shown.env or shown.named) and not is_set:
        lacking = " or ".join(" with ".join(group) for group in groups) or "a request for it by name"
        return f"set {lacking}"
    if isinstance(profile, CommandProfile) and environ.get(INSIDE):
        return "a program that judgekit runs started it"
    if shown.module and not importable(shown.module):
        return f"the Python package {shown.module} is not installed"
    if shown.command and programs.find(shown.command, environ) is None:
        return f"no command {shown.command} on PATH"
    return None


def importable(module: str) -> bool:
    """Whether a module could be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def _signed_in(commands: Sequence[CommandProfile]) -> str:
    """Say how to judge with commands that are there and not allowed."""
    words = " and ".join(str(command.detect.command) for command in commands)
    allow = ", ".join(command.provider for command in commands)
    there = f"{words} {'is' if len(commands) == 1 else 'are'} on PATH, but a subscription is not an API key"
    return f"{there}: to judge with it, add {allow} to providers.allow in your own configuration"


# What can be used here, and why not


@dataclass(frozen=True, slots=True)
class ProviderState:
    """One line of `judgekit provider list`; `why` says what makes it usable or what is lacking."""

    name: str
    usable: bool
    why: str
    models: dict[TierName, str]


def provider_report(environ: Mapping[str, str], wanted: PanelRequest | None = None) -> list[ProviderState]:
    """Return all providers in the order they are tried; asks local servers for their models, up to 0.3 s.

    Raises `ConfigError` when a profile's file is wrong.
    """
    wanted, known = wanted or PanelRequest(), registry.profiles()
    local = [profile for profile in known if isinstance(profile, LitellmProfile) and profile.detect.port]
    lists = servers.models_of_all([served(server, environ) for server in local])
    listed = dict(zip((server.provider for server in local), lists, strict=True))
    meant = {name for models in wanted.models.values() if models for name in names(models)}
    by_name = {profile.provider for name in meant if (profile := profile_of(name, known)[0])}
    states = []
    for profile in known:
        lacking, models = detect(profile, environ, named=wanted.asks_for(profile)), profile.models.by_tier
        if lacking is None and profile.detect.port and not (there := listed.get(profile.provider)):
            lacking = f"no server responds on port {profile.detect.port}"
            lacking = lacking if there is None else "it has no chat model"
        elif (
            lacking is None and isinstance(profile, LitellmProfile) and profile in _addressed(known, environ)
        ):
            # At an address of the user's own, unless a model there is named.
            lacking = None if profile.provider in by_name else _models_at(profile, environ)[1]
        if served_here := listed.get(profile.provider):
            models = dict.fromkeys(TIERS, served_here[0])
        why = lacking or _evidence(profile, environ)
        if not wanted.allows(profile):
            how = f"add {profile.provider} to providers.allow in your own configuration"
            if isinstance(profile, CommandProfile) and lacking is None:
                how = _signed_in([profile])
            lacking = why = f"not allowed: {how}" + (f"; {lacking}" if lacking else "")
        states.append(ProviderState(profile.provider, lacking is None, why, models))
    return states


def _evidence(profile: Profile, environ: Mapping[str, str]) -> str:
    """Say what shows that a provider is there: a variable's name, never its value."""
    for group in (*profile.detect.env, *profile.detect.named):
        if all(first_set([name], environ) for name in group):
            return f"{' and '.join(group)} set"
    if isinstance(profile, LitellmProfile) and profile.detect.port:
        return f"answers at {served(profile, environ)}"
    return f"{profile.detect.command} is on PATH" if isinstance(profile, CommandProfile) else "there"
