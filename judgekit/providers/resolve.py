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
from judgekit.config import TIERS, TierName
from judgekit.providers import registry, replay, served_models
from judgekit.providers.base import INSIDE, endpoint, first_set
from judgekit.providers.registry import CommandProfile, LitellmProfile, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.providers.base import Endpoint

    Tiers: TypeAlias = Mapping[TierName, tuple[Endpoint, ...]]
    Named: TypeAlias = Mapping[TierName, Sequence[str]]

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
        reason = f"replies recorded in {recording}"
        return Panel(fill(replay.recorded_models(Path(recording))), "replay", reason)
    first = [registry.unaliased(name) for name in wanted.order or ()]
    known = [profile for profile in registry.profiles() if wanted.allows(profile)]
    known.sort(key=lambda profile: first.index(profile.provider) if profile.provider in first else len(first))
    others = functools.cache(
        lambda: tuple(panel.endpoints for panel in _detected(known, wanted, environ) if panel.endpoints)
    )
    if not any(wanted.models.values()):
        models = _models_without_address(known, environ)
        if not models:
            panel = next(_detected(known, wanted, environ), None)
            return replace(panel, others=others) if panel else Panel({}, None, _nothing(wanted, environ))
        wanted = replace(wanted, models=models, listed_only=frozenset())
    return _named(wanted, known, environ, others)


def fill(endpoints: Tiers) -> dict[TierName, tuple[Endpoint, ...]]:
    """Give every tier models: its own, else those of the nearest deeper tier, else of the shallower one."""
    if not endpoints:
        return {}
    filled: dict[TierName, tuple[Endpoint, ...]] = {}
    for place, tier in enumerate(TIERS):
        nearest = (*TIERS[place:], *reversed(TIERS[:place]))
        filled[tier] = next(endpoints[near] for near in nearest if near in endpoints)
    return filled


def detect(profile: Profile, environ: Mapping[str, str], *, named: bool = False) -> str | None:
    """Return why a profile cannot be used here, or None when it can; local servers are not asked.

    `named` says that the user asked for this provider, so general-purpose credentials count too.
    """
    shown = profile.detect
    groups = [*shown.env, *(shown.named if named else [])]
    if (shown.env or shown.named) and not any(_is_set(group, environ) for group in groups):
        lacking = " or ".join(" with ".join(group) for group in groups) or "a request for it by name"
        return f"set {lacking}"
    if isinstance(profile, CommandProfile) and environ.get(INSIDE):
        return "a program that judgekit runs started it"
    if shown.module and not importable(shown.module):
        return f"the Python package {shown.module} is not installed"
    if shown.command and programs.find(shown.command, environ) is None:
        return f"no command {shown.command} on PATH"
    return None


def _is_set(group: Sequence[str], environ: Mapping[str, str]) -> bool:
    return all(environ.get(name, "").strip() for name in group)


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
    servers = [profile for profile in reached if profile.detect.port]
    lists = served_models.models_of_all([served(server, environ) for server in servers])
    for profile, listed in zip(servers, lists, strict=True):
        if listed:
            reason = f"{profile.title} answers at {served(profile, environ)}"
            yield _panel(profile, dict.fromkeys(TIERS, listed[:1]), reason, environ)
    for profile in (profile for profile in reached if profile.embedded):
        models = _models_in(profile, environ)
        if models and detect(profile, environ) is None:
            yield _panel(profile, models, f"the embedded model {next(iter(models.values()))[0]}", environ)
    for command in (profile for profile in known if isinstance(profile, CommandProfile)):
        if detect(command, environ) is None:
            reason = f"{command.title}: the command {command.detect.command} is on PATH"
            yield _panel(command, command.models.by_tier, reason, environ)
    yield from unnamed


def models_at(profile: LitellmProfile, environ: Mapping[str, str]) -> tuple[Named, str | None]:
    """Return the models at an address that the user names, or why there are none.

    Which they are is the user's to say. `JUDGEKIT_API_BASE` alone is asked for them, where it is on this
    machine.
    """
    base, models = served(profile, environ), _models_in(profile, environ)
    if not base.startswith(("http://", "https://")):
        expected = "expected an address such as http://127.0.0.1:8080/v1"
        return {}, f"the address of {profile.provider} is {base!r}: {expected}"
    if not models and profile.provider == CUSTOM and (listed := served_models.models(base)):
        models = dict.fromkeys(TIERS, listed[:1])
    variable = next((name for name in profile.base_env if environ.get(name, "").strip()), "")
    return models, None if models else f"{variable} is {base}: set JUDGEKIT_MODEL to a model of that server"


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
    used = [each.profile for jury in endpoints.values() for each in jury]
    if all(profile == used[0] for profile in used):
        endpoints = {**_endpoints(used[0], used[0].models.by_tier, environ), **endpoints}
    by = "project" if wanted.listed_only.issuperset(tiers) else "user"
    panel = Panel(fill(endpoints), used[0].provider, f"named by the {by}")
    at_home = all(
        isinstance(profile, LitellmProfile)
        and (profile.detect.port or profile.models_env.by_tier or profile.embedded)
        for profile in used
    )
    return panel if at_home and wanted.allow is None else replace(panel, others=others)


def _unusable(
    profile: Profile, tier: TierName, wanted: PanelRequest, environ: Mapping[str, str]
) -> str | None:
    """Return why the named model of a tier cannot be used here; a project does not lend credentials."""
    if tier not in wanted.listed_only or wanted.asks_for(profile):
        return detect(profile, environ, named=True)
    problem = detect(profile, environ)
    if problem and detect(profile, environ, named=True) is None:
        return (
            f"a project alone cannot choose to use your credentials for {profile.title}: add "
            f"{profile.provider} to providers.allow in your own configuration"
        )
    return problem


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
    fitting = [each for each in known if isinstance(each, LitellmProfile) and name.startswith(each.prefix)]
    return max(fitting, key=lambda each: len(each.prefix), default=None), name


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the models that one text, separated by commas, or a list names; each once, in order."""
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))


def _panel(
    profile: Profile, models: Mapping[TierName, str | Sequence[str]], reason: str, environ: Mapping[str, str]
) -> Panel:
    return Panel(fill(_endpoints(profile, models, environ)), profile.provider, reason)


def _endpoints(
    profile: Profile, models: Mapping[TierName, str | Sequence[str]], environ: Mapping[str, str]
) -> Tiers:
    juries = {tier: [jury] if isinstance(jury, str) else jury for tier, jury in models.items()}
    return {tier: tuple(endpoint(profile, model, environ) for model in jury) for tier, jury in juries.items()}


def _models_in(profile: LitellmProfile, environ: Mapping[str, str]) -> Named:
    """Return the models that the profile's own variables name."""
    every = names(environ.get("JUDGEKIT_MODEL", "")) if profile.base_env else ()
    by_tier = profile.models_env.by_tier.items()
    found = {tier: names(environ.get(variable, "")) or every for tier, variable in by_tier}
    return {tier: models for tier, models in found.items() if models}


def _models_without_address(known: Sequence[Profile], environ: Mapping[str, str]) -> Named:
    """Return the models of `JUDGEKIT_MODEL` and its like where no address says whose they are."""
    if _addressed(known, environ):
        return {}
    every = names(environ.get("JUDGEKIT_MODEL", ""))
    found = {tier: names(environ.get(f"JUDGEKIT_{tier.upper()}_MODEL", "")) or every for tier in TIERS}
    return {tier: models for tier, models in found.items() if models}


def _addressed(known: Sequence[Profile], environ: Mapping[str, str]) -> list[LitellmProfile]:
    """Return the profiles whose address and models are both the user's to name, and whose address is set."""
    named = [each for each in known if isinstance(each, LitellmProfile) and each.is_addressed]
    return [profile for profile in named if first_set(profile.base_env, environ)]


def _nothing(wanted: PanelRequest, environ: Mapping[str, str]) -> str:
    """Say that there is no model, and of commands that are there what keeps them from being used."""
    problem = _NOTHING
    if wanted.allow is not None:
        problem = f"no model found among the allowed providers ({', '.join(wanted.allow) or 'none'})"
    commands = [profile for profile in registry.profiles() if isinstance(profile, CommandProfile)]
    there = [each for each in commands if not wanted.allows(each) and detect(each, environ) is None]
    return f"{problem}; {signed_in(there)}" if there else problem


def signed_in(commands: Sequence[CommandProfile]) -> str:
    """Say how to judge with commands that are there and not allowed."""
    words = " and ".join(str(command.detect.command) for command in commands)
    allow = ", ".join(command.provider for command in commands)
    there = f"{words} {'is' if len(commands) == 1 else 'are'} on PATH, but a subscription is not an API key"
    return f"{there}: to judge with it, add {allow} to providers.allow in your own configuration"
