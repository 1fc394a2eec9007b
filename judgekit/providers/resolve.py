"""Chooses the judging models from the user's wishes and the environment, and explains unusable providers.

Order: a recording, models named by the user, the `JUDGEKIT_*` endpoint, keys in the environment, a local
server that answers, the embedded model, a command that the user allowed.
"""

from __future__ import annotations

import functools
import importlib.util
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import programs
from judgekit.config import TIERS, TierName
from judgekit.errors import UsageError
from judgekit.providers import proxies, registry, replay, servers
from judgekit.providers.base import INSIDE, Endpoint, endpoint, first_set, is_loopback
from judgekit.providers.registry import (
    ApiProfile,
    CommandProfile,
    DecisionsProfile,
    LitellmProfile,
    Profile,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.providers.registry import AnyApi

    Named: TypeAlias = Mapping[TierName, str | Sequence[str]]

Tiers: TypeAlias = "Mapping[TierName, tuple[Endpoint, ...]]"
Variables: TypeAlias = "Mapping[str, str]"
Others: TypeAlias = "Callable[[], Sequence[Tiers]]"
"""Finds the panels of the other providers that may be asked, the first choice first."""
CUSTOM = "openai-compatible"


@dataclass(frozen=True, slots=True)
class PanelRequest:
    """The user's wishes: models, the providers to `allow` (None: all but commands), and which come first.

    For tiers in `listed_only` a project named the models, so general-purpose credentials don't count there.
    `by` tells an error message who named the models; "" is the configuration. If none is named, a `mixed`
    panel takes each tier from another family, a plain one all from the first provider.
    """

    models: Mapping[TierName, str | Sequence[str] | None] = field(default_factory=dict)
    allow: Sequence[str] | None = None
    order: Sequence[str] | None = None
    listed_only: frozenset[TierName] = frozenset()
    by: str = ""
    mixed: bool = False

    def allows(self, profile: Profile) -> bool:
        if self.allow is None:
            return not isinstance(profile, CommandProfile)
        return self.asks_for(profile)

    def asks_for(self, profile: Profile) -> bool:
        return profile.provider in map(registry.unaliased, self.allow or ())


@dataclass(frozen=True, slots=True)
class Panel:
    """The jury of each tier, possibly empty. `reason` explains the choice, or what the user can do."""

    endpoints: dict[TierName, tuple[Endpoint, ...]]
    provider: str | None
    reason: str
    others: Others = field(default=tuple, compare=False, repr=False)


def resolve(wanted: PanelRequest, environ: Mapping[str, str]) -> Panel:
    """Choose the panel for `wanted` in `environ`; may query local servers. Raises `ConfigError`."""
    if recording := environ.get(replay.REPLAY_VARIABLE, "").strip():
        endpoints: Tiers = replay.recorded_models(Path(recording))
        if wanted.by:
            endpoints = _of_one_model(endpoints, wanted, recording)
        return Panel(fill(endpoints), "replay", f"replies recorded in {recording}")
    profiles = registry.profiles()
    by_name = {profile.provider: profile for profile in profiles if wanted.allows(profile)}
    order = dict.fromkeys((*map(registry.unaliased, wanted.order or ()), *by_name))
    known = [by_name[name] for name in order if name in by_name]
    detected = partial(_detected, known, wanted, environ)
    others = functools.cache(
        lambda: tuple(panel.endpoints for panel in detected() if panel.endpoints)
    )
    if not any(wanted.models.values()) and not _addressed(known, environ):
        variables = {tier: f"JUDGEKIT_{tier.upper()}_MODEL" for tier in TIERS}
        models = _models_in(variables, environ)
        wanted = replace(wanted, models=models, listed_only=frozenset())
    if any(wanted.models.values()):
        return _named(wanted, known, environ, others)
    panels = detected()
    if panel := next(panels, None):
        if wanted.mixed and panel.endpoints:
            panel = _mixed(panel, panels)
        return replace(panel, others=others)
    problem = (
        "no model found: set a provider's key (see judgekit provider list), or JUDGEKIT_API_BASE "
    )
    problem += "with JUDGEKIT_MODEL, or start a local server"
    if wanted.allow is not None:
        problem = (
            f"no model found among the allowed providers ({', '.join(wanted.allow) or 'none'})"
        )
    commands = [profile for profile in profiles if isinstance(profile, CommandProfile)]
    signed_in = []
    for profile in commands:
        if not wanted.allows(profile) and not detect(profile, environ):
            signed_in.append(profile)
    if signed_in:
        problem += f"; {_signed_in(signed_in)}"
    return Panel({}, None, problem)


def _mixed(first: Panel, rest: Iterator[Panel]) -> Panel:
    """Build a panel with a different family for each tier, as far as the providers allow, in their order."""
    families: dict[str, Panel] = {}
    for panel in chain([first], rest):
        if panel.endpoints:  # a new family supplies the model of the next tier
            model = panel.endpoints[TIERS[len(families)]][0]
            families.setdefault(proxies.with_family(model).family, panel)
        if len(families) == len(TIERS):
            break
    panels = list(families.values())
    endpoints = {}
    for at, tier in enumerate(TIERS):
        endpoints[tier] = panels[at % len(panels)].endpoints[tier]
    reason = "; ".join(panel.reason for panel in panels)
    return replace(first, endpoints=endpoints, reason=reason)


def _of_one_model(recorded: Tiers, wanted: PanelRequest, recording: str) -> Tiers:
    """Pick the recorded endpoints of the one model that all tiers ask; raises `UsageError`."""
    (name,) = wanted.models["quick"] or ("",)
    endpoints = {}
    models = set[str]()
    for tier, jury in recorded.items():
        models.update(model.model for model in jury)
        matching = tuple(model for model in jury if f"/{model.model}".endswith(f"/{name}"))
        if matching:
            endpoints[tier] = matching
    if not endpoints:
        known = ", ".join(sorted(models))
        raise UsageError(
            f"--model {name}: {recording} has no replies of this model; it has {known}"
        )
    return endpoints


def _detected(
    known: Sequence[Profile], wanted: PanelRequest, environ: Mapping[str, str]
) -> Iterator[Panel]:
    """Yield the panel of each provider present, in order; one without models says what's wrong."""
    unnamed = []
    for profile in _addressed(known, environ):
        models, problem = _models_at(profile, environ)
        if problem is None:
            yield _panel(profile, models, environ)
        elif profile.provider == CUSTOM:  # the user meant this one, so nothing after it
            yield Panel({}, None, problem)
        else:
            unnamed.append(Panel({}, None, problem))
    usable: list[Profile] = []
    for candidate in known:
        if not detect(candidate, environ, named=wanted.asks_for(candidate)):
            usable.append(candidate)
    reached = [profile for profile in usable if isinstance(profile, LitellmProfile)]
    keyed = [profile for profile in reached if profile.models.by_tier]
    for profile in keyed:
        if problem := _wrong_address(
            profile, environ
        ):  # the user meant this one, so nothing after it
            yield Panel({}, None, problem)
        yield _panel(profile, profile.models.by_tier, environ)
    if not keyed:
        # A model that gives no reasons judges alone only if there's no other key.
        for decider in usable:
            if isinstance(decider, DecisionsProfile) and decider.models.by_tier:
                yield _panel(decider, decider.models.by_tier, environ)
    listed = _listed(reached, environ)
    for profile in reached:
        if offered := listed.get(profile.provider):
            yield _panel(profile, dict.fromkeys(TIERS, offered[:1]), environ)
    for profile in reached:
        if profile.embedded and (models := _models_in(profile.models_env.by_tier, environ, "")):
            yield _panel(profile, models, environ)
    for command in usable:
        if isinstance(command, CommandProfile):
            yield _panel(command, command.models.by_tier, environ)
    yield from unnamed


def _named(
    wanted: PanelRequest, known: Sequence[Profile], environ: Variables, others: Others
) -> Panel:
    """Build the panel of the named models, at least one; one without models says why that's impossible.

    Tiers without a model go to the same provider, so that no text goes elsewhere. If all models are on the
    user's own servers, no other provider takes a tier unless `allow` names it.
    """
    endpoints: dict[TierName, tuple[Endpoint, ...]] = {}
    used = []
    for tier, models in wanted.models.items():
        for name in names(models or ()):
            profile, model = profile_of(name, known)
            if profile is None:  # an unknown prefix means the user's own server
                profile = next(iter(_addressed(known, environ)), None)
            if profile:
                problem = _unusable(profile, tier, wanted, environ)
            else:
                problem = "no allowed provider serves it"
            if profile is None or problem:
                how_named = wanted.by or f"configured ({tier})"
                return Panel({}, None, f"the model {name} is {how_named}, but {problem}")
            used.append(profile)
            endpoints[tier] = (*endpoints.get(tier, ()), endpoint(profile, model, environ))
    named_tiers = [tier for tier, models in wanted.models.items() if models]
    named_by = "project" if wanted.listed_only.issuperset(named_tiers) else "user"
    if all(profile == used[0] for profile in used):
        filling_profile = _writers(used[0], known, environ) or used[0]
        for tier, model in filling_profile.models.by_tier.items():
            endpoints.setdefault(tier, (endpoint(filling_profile, model, environ),))
    panel = Panel(fill(endpoints), used[0].provider, f"named by the {named_by}")
    stays_at_home = all(map(_is_at_home, used)) and wanted.allow is None
    if stays_at_home:
        return panel
    return replace(panel, others=others)


def _writers(profile: Profile, known: Sequence[Profile], environ: Variables) -> Profile | None:
    """Find the provider, with the same key, whose models write the texts that a decision model can't."""
    if not isinstance(profile, DecisionsProfile):
        return None
    for other in known:
        if other.provider == profile.writers and not detect(other, environ, named=True):
            return other
    return None


def _is_at_home(profile: Profile) -> bool:
    """Whether a provider is a server that the user runs."""
    if not isinstance(profile, ApiProfile):
        return False
    if isinstance(profile, LitellmProfile) and profile.embedded:
        return True
    if isinstance(profile, DecisionsProfile) and profile.own_server:
        return True
    return bool(profile.detect.port or profile.models_env.by_tier)


def _unusable(
    profile: Profile, tier: TierName, wanted: PanelRequest, environ: Variables
) -> str | None:
    is_named = tier not in wanted.listed_only or wanted.asks_for(profile)
    problem = detect(profile, environ, named=is_named) or _wrong_address(profile, environ)
    if problem is None or is_named or detect(profile, environ, named=True):
        return problem
    how = f"add {profile.provider} to providers.allow in your own configuration"
    return f"a project alone cannot choose to use your credentials for {profile.title}: {how}"


def fill(endpoints: Tiers) -> dict[TierName, tuple[Endpoint, ...]]:
    if endpoints:
        return {tier: nearest(tier, endpoints) for tier in TIERS}
    return {}


def nearest(tier: TierName, panel: Tiers) -> tuple[Endpoint, ...]:
    """Find the models of a tier, or else of the nearest deeper one with any, or else of a shallower one."""
    index = TIERS.index(tier)
    for name in (*TIERS[index:], *reversed(TIERS[:index])):
        if panel.get(name):
            return panel[name]
    return ()


def _panel(profile: Profile, models: Named, environ: Mapping[str, str]) -> Panel:
    reached = partial(endpoint, profile, environ=environ)
    endpoints = {}
    for tier, jury in models.items():
        endpoints[tier] = tuple(map(reached, names(jury)))
    reason = f"{profile.title}: {_evidence(profile, environ)}"
    return Panel(fill(endpoints), profile.provider, reason)


def profile_of(name: str, known: Sequence[Profile]) -> tuple[Profile | None, str]:
    """Find the `known` profile for a model's name (None if there isn't one), and the bare name."""
    provider, _, rest = name.partition("/")
    for profile in known:
        if rest and profile.provider == registry.unaliased(provider):
            return profile, rest
    for profile in known:
        if name in profile.models.by_tier.values():
            return profile, name
    fitting = []
    for profile in known:
        if isinstance(profile, ApiProfile) and name.startswith(profile.prefix):
            fitting.append(profile)
    return max(fitting, key=lambda profile: len(profile.prefix), default=None), name


def named_of(profile: Profile, wanted: PanelRequest) -> dict[TierName, tuple[str, ...]]:
    """Return the models the user named for a provider, if its profile names none."""
    if profile.models.by_tier:
        return {}
    models_by_tier = {}
    for tier, models in wanted.models.items():
        fitting_names = []
        for name in names(models or ()):
            is_served = profile_of(name, [profile])[0] is not None
            if is_served:
                fitting_names.append(name)
        if fitting_names:
            models_by_tier[tier] = tuple(fitting_names)
    return models_by_tier


def names(models: str | Sequence[str]) -> tuple[str, ...]:
    """Split a text at its commas, or take a list, into model names: each once, in order."""
    parts = models.split(",") if isinstance(models, str) else models
    return tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))


def _models_in(
    variables: Mapping[TierName, str], environ: Variables, usual: str = "JUDGEKIT_MODEL"
) -> Named:
    models_by_tier = {}
    for tier, variable in variables.items():
        models = names(environ.get(variable, "")) or names(environ.get(usual, ""))
        if models:
            models_by_tier[tier] = models
    return models_by_tier


def _addressed(known: Sequence[Profile], environ: Mapping[str, str]) -> list[AnyApi]:
    """List the profiles whose address and models the user sets, if the address is set."""
    addressed: list[AnyApi] = []
    for profile in known:
        if not isinstance(profile, ApiProfile):
            continue
        if profile.models_env.by_tier and profile.address_in(environ):
            addressed.append(profile)
    return addressed


def _models_at(profile: AnyApi, environ: Mapping[str, str]) -> tuple[Named, str | None]:
    """Return the models at a user's address, or the reason there are none; only a local one is queried."""
    base = profile.address_in(environ) or ""
    if problem := _wrong_address(profile, environ):
        return {}, problem
    models: Named = _models_in(profile.models_env.by_tier, environ)
    if not models and profile.provider == CUSTOM and (listed := servers.models([base])[0]):
        models = dict.fromkeys(TIERS, listed[:1])
    if models:
        return models, None
    variable = next(
        (name for name in profile.address_variables if environ.get(name, "").strip()), ""
    )
    return {}, f"{variable} is {base}: set JUDGEKIT_MODEL to a model of that server"


def _wrong_address(profile: Profile, environ: Mapping[str, str]) -> str | None:
    """Explain why the user's address for a provider is invalid, and suggest a correction."""
    if not isinstance(profile, ApiProfile):
        return None
    base = profile.address_in(environ)
    if base is None or base.startswith(("http://", "https://")):
        return None
    rest = base.partition("://")[2] or base
    scheme = "https"
    with suppress(ValueError):  # it has no host at all
        scheme = "http" if is_loopback(f"http://{rest}") else "https"
    path = "" if "/" in rest.rstrip("/") else "/v1"
    expected = (
        f"expected an address with http:// or https://, such as {scheme}://{rest.rstrip('/')}{path}"
    )
    variable = next(name for name in profile.address_variables if environ.get(name, "").strip())
    return f"the address of {profile.provider} ({variable}) is {base!r}: {expected}"


def _listed(known: Sequence[Profile], environ: Mapping[str, str]) -> dict[str, list[str] | None]:
    addresses = {}
    for profile in known:
        if isinstance(profile, LitellmProfile) and profile.detect.port:
            address = profile.address_in(environ) or profile.base or ""
            addresses[profile.provider] = address
    lists = servers.models(list(addresses.values()))
    return dict(zip(addresses, lists, strict=True))


def detect(profile: Profile, environ: Mapping[str, str], *, named: bool = False) -> str | None:
    """Explain why a profile can't be used, or None; general credentials count if the user `named` it."""
    signs = profile.detect
    groups = list(signs.env)
    if named:
        groups += signs.named
    if (signs.env or signs.named) and _first_set_group(groups, environ) is None:
        if not groups and _first_set_group(signs.named, environ) is not None:
            return "used only where one of its models is named: in judge.tiers, or by --model"
        lacking = " or ".join(map(" with ".join, groups or signs.named))
        return f"set {lacking}"
    if isinstance(profile, CommandProfile) and environ.get(INSIDE):
        return "a program that judgekit runs started it"
    if signs.module and not importable(signs.module):
        return f"the Python package {signs.module} is not installed"
    if signs.command and programs.find(signs.command, environ) is None:
        return f"no command {signs.command} on PATH"
    return None


def _first_set_group(
    groups: Iterable[Sequence[str]], environ: Mapping[str, str]
) -> Sequence[str] | None:
    """Find the first group with every variable set."""
    for group in groups:
        if all(first_set([name], environ) for name in group):
            return group
    return None


def importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _signed_in(commands: Sequence[CommandProfile]) -> str:
    words = " and ".join(str(command.detect.command) for command in commands)
    allow = ", ".join(command.provider for command in commands)
    problem = f"{words} {'is' if len(commands) == 1 else 'are'} on PATH, but a subscription is not an API key"
    return f"{problem}: to judge with it, add {allow} to providers.allow in your own configuration"


class ProviderState(NamedTuple):
    """One line of `judgekit provider list`; `why` names what makes it usable or what's missing."""

    name: str
    usable: bool
    why: str
    models: dict[TierName, str]


def provider_report(
    environ: Mapping[str, str], wanted: PanelRequest | None = None
) -> list[ProviderState]:
    """List all providers in the order they're tried; asks local servers (0.3 s); raises `ConfigError`."""
    wanted = wanted or PanelRequest()
    known = registry.profiles()
    listed = _listed(known, environ)
    addressed = _addressed(known, environ)
    named_by_user = set()
    by_name = set()
    for tier, meant in wanted.models.items():
        for name in names(meant or ()):
            profile, _ = profile_of(name, known)
            if profile:
                by_name.add(profile.provider)
            if profile and tier not in wanted.listed_only:
                named_by_user.add(profile.provider)
    states = []
    for profile in known:
        named = wanted.asks_for(profile) or profile.provider in named_by_user
        lacking = detect(profile, environ, named=named)
        models = profile.models.by_tier
        if offered := listed.get(profile.provider):
            models = dict.fromkeys(TIERS, offered[0])
        elif lacking is None and (port := profile.detect.port):
            lacking = (
                f"no server responds on port {port}" if offered is None else "it has no chat model"
            )
        elif lacking is None and profile in addressed and profile.provider not in by_name:
            lacking = next(_models_at(one, environ)[1] for one in addressed if one == profile)
        why = lacking or _evidence(profile, environ)
        if not wanted.allows(profile):
            how = f"add {profile.provider} to providers.allow in your own configuration"
            if isinstance(profile, CommandProfile) and lacking is None:
                how = _signed_in([profile])
            why = f"not allowed: {how}"
            if lacking:
                why += f"; {lacking}"
            lacking = why
        states.append(ProviderState(profile.provider, lacking is None, why, models))
    return states


def _evidence(profile: Profile, environ: Mapping[str, str]) -> str:
    """Name the evidence for a provider, such as a variable's name (never its value)."""
    group = _first_set_group((*profile.detect.env, *profile.detect.named), environ)
    if group is not None:
        found = f"{' and '.join(group)} set"
        for name in profile.address_variables if isinstance(profile, ApiProfile) else ():
            if environ.get(name, "").strip() and name not in group:
                return f"{found}, asked at the address in {name}"
        return found
    if isinstance(profile, ApiProfile) and profile.detect.port:
        return f"answers at {profile.address_in(environ) or profile.base}"
    if isinstance(profile, CommandProfile):
        return f"{profile.detect.command} is on PATH"
    return "there"
