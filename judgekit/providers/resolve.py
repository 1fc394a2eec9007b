"""Chooses the judging models from the user's wishes and the environment, and explains unusable providers.

Order: a recording, models named by the user, the `JUDGEKIT_*` endpoint, keys in the environment, a local
server that answers, the embedded model, a command that the user allowed.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass, field, replace
from itertools import chain, cycle
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import programs
from judgekit.config import TIERS, TierName
from judgekit.errors import UsageError
from judgekit.providers import proxies, registry, replay, servers
from judgekit.providers.base import (
    INSIDE_VARIABLE,
    Endpoint,
    build_endpoint,
    find_first_value,
    is_loopback,
)
from judgekit.providers.registry import (
    ApiProfile,
    CommandProfile,
    DecisionsProfile,
    LitellmProfile,
    Profile,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from judgekit.providers.registry import AnyApi

    Named: TypeAlias = Mapping[TierName, str | Sequence[str]]

Tiers: TypeAlias = "Mapping[TierName, tuple[Endpoint, ...]]"
Variables: TypeAlias = "Mapping[str, str]"
Others: TypeAlias = "Callable[[], Sequence[Tiers]]"
"""Lists the panels of other allowed providers, by preference."""
CUSTOM_PROVIDER = "openai-compatible"


@dataclass(frozen=True, slots=True)
class PanelRequest:
    """The user's wishes: models, the allowed providers (None: all but commands), and which come first.

    For tiers in `project_named_tiers` a project named the models, so general-purpose credentials don't count
    there. `models_named_by` tells an error message who named the models; "" is the configuration. If none is
    named, a panel takes each tier from another family if it `needs_mixed_families`, or else all from the
    first provider.
    """

    models: Mapping[TierName, str | Sequence[str] | None] = field(default_factory=dict)
    allowed_providers: Sequence[str] | None = None
    provider_order: Sequence[str] | None = None
    project_named_tiers: frozenset[TierName] = frozenset()
    models_named_by: str = ""
    needs_mixed_families: bool = False

    def allows(self, profile: Profile) -> bool:
        """Whether the user allows a provider. By default, all are allowed except commands."""
        if self.allowed_providers is None:
            return not isinstance(profile, CommandProfile)
        return self.asks_for(profile)

    def asks_for(self, profile: Profile) -> bool:
        """Whether the user's list of allowed providers includes this one, by name or alias."""
        return profile.provider in map(registry.resolve_alias, self.allowed_providers or ())


@dataclass(frozen=True, slots=True)
class Panel:
    """The jury of each tier, possibly empty. `reason` explains the choice, or what the user can do."""

    endpoints: dict[TierName, tuple[Endpoint, ...]]
    provider: str | None
    reason: str
    find_other_panels: Others = field(default=tuple, compare=False, repr=False)


def resolve(wanted: PanelRequest, environ: Mapping[str, str]) -> Panel:
    """Choose the models that judge: a panel with models for each tier.

    The choice depends on the user's request, and on the keys and addresses in `environ`. If no model is
    usable, the panel is empty, and its reason tells the user what to do. Raises `ConfigError` if a profile or
    a recording is invalid, and `UsageError` if a recording lacks the requested model.
    """
    recording = environ.get(replay.REPLAY_VARIABLE, "").strip()
    if recording:
        return _make_replayed_panel(recording, wanted)

    profiles = registry.list_profiles()
    allowed_profiles = _list_allowed(profiles, wanted)

    wanted = _add_models_from_variables(wanted, allowed_profiles, environ)

    # Detecting all providers takes time, so it waits until someone asks the panel for other models.
    @functools.cache
    def list_others() -> tuple[Tiers, ...]:
        panels = _detect_panels(allowed_profiles, wanted, environ)
        return tuple(panel.endpoints for panel in panels if panel.endpoints)

    if _has_named_models(wanted):
        return _make_named_panel(wanted, allowed_profiles, environ, list_others)

    panel = _make_first_panel(allowed_profiles, wanted, environ)
    if panel is None:
        reason = _explain_no_model(wanted, profiles, environ)
        return Panel(endpoints={}, provider=None, reason=reason)
    return replace(panel, find_other_panels=list_others)


def _make_first_panel(
    profiles: Sequence[Profile], wanted: PanelRequest, environ: Mapping[str, str]
) -> Panel | None:
    """Make a panel from the first available provider, or return None if there's none.

    If the user wants mixed families, models of the next providers are added.
    """
    panels = _detect_panels(profiles, wanted, environ)
    first_panel = next(panels, None)
    if first_panel is None:
        return None
    if wanted.needs_mixed_families and first_panel.endpoints:
        return _mix_families(first_panel, panels)  # `panels` now yields those after the first
    return first_panel


def _make_replayed_panel(recording: str, wanted: PanelRequest) -> Panel:
    """Build a panel of the models in a recording. If the user gave --model, use only that model.

    Raises `ConfigError` if the recording is empty or damaged, and `UsageError` if it lacks that model.
    """
    endpoints: Tiers = replay.load_recorded_models(Path(recording))
    # `models_named_by` is the option that names the models, or "" if they're from the configuration.
    if wanted.models_named_by:
        endpoints = _pick_recorded_model(endpoints, wanted, recording)
    return Panel(fill(endpoints), "replay", f"replies recorded in {recording}")


def _add_models_from_variables(
    wanted: PanelRequest, allowed_profiles: Sequence[Profile], environ: Mapping[str, str]
) -> PanelRequest:
    """Add the models that the user names in variables (`JUDGEKIT_QUICK_MODEL`), if none are named yet."""
    has_named_models = _has_named_models(wanted)
    if has_named_models:
        return wanted
    # If the user has set a server's address, the variables are for that server's panel, which reads them.
    has_server_address = len(_list_profiles_at_user_address(allowed_profiles, environ)) > 0
    if has_server_address:
        return wanted

    variables = {tier: f"JUDGEKIT_{tier.upper()}_MODEL" for tier in TIERS}
    models = _read_models(variables, environ)
    # The variables are the user's, so the project has named none of these models.
    return replace(wanted, models=models, project_named_tiers=frozenset())


def _has_named_models(wanted: PanelRequest) -> bool:
    """Whether a request names a model for any tier."""
    return any(wanted.models.values())


def _list_allowed(profiles: Sequence[Profile], wanted: PanelRequest) -> list[Profile]:
    """List the allowed profiles, starting with those in the user's preferred order."""
    remaining = {profile.provider: profile for profile in profiles if wanted.allows(profile)}
    preferred = []
    for name in wanted.provider_order or ():
        provider = registry.resolve_alias(name)
        if provider in remaining:
            preferred.append(remaining.pop(provider))
    return [*preferred, *remaining.values()]


def _explain_no_model(
    wanted: PanelRequest, profiles: Sequence[Profile], environ: Mapping[str, str]
) -> str:
    """Explain how to get a model. Mention installed commands that the user could allow."""
    if wanted.allowed_providers is None:
        problem = "no model found: set a provider's key (see judgekit provider list), or "
        problem += "JUDGEKIT_API_BASE with JUDGEKIT_MODEL, or start a local server"
    else:
        allowed = ", ".join(wanted.allowed_providers) or "none"
        problem = f"no model found among the allowed providers ({allowed})"

    usable_commands = []
    for profile in profiles:
        if not isinstance(profile, CommandProfile) or wanted.allows(profile):
            continue
        if detect(profile, environ) is None:
            usable_commands.append(profile)
    if usable_commands:
        problem += f"; {_suggest_commands(usable_commands)}"
    return problem


def _mix_families(first: Panel, others: Iterator[Panel]) -> Panel:
    """Combine panels, so that the tiers' models are of different families if possible.

    A family is a line of models of the same maker, such as Claude.
    """
    panels = _select_by_family(chain([first], others))
    endpoints = {}
    panels_in_turn = cycle(panels)  # in case there are fewer families than tiers
    for tier, panel in zip(TIERS, panels_in_turn, strict=False):
        endpoints[tier] = panel.endpoints[tier]
    reason = "; ".join(panel.reason for panel in panels)
    return replace(first, endpoints=endpoints, reason=reason)


def _select_by_family(panels: Iterable[Panel]) -> list[Panel]:
    """Select panels of different families, one per tier: the first is for the first tier, and so on.

    If there aren't enough families, only the first tiers get a panel.
    """
    panel_by_family: dict[str, Panel] = {}
    for panel in panels:
        if not panel.endpoints:
            continue

        # The family of a panel is that of the model which the next tier would use.
        next_tier = TIERS[len(panel_by_family)]
        first_model = panel.endpoints[next_tier][0]
        family = proxies.fill_in_family(first_model).family
        if family not in panel_by_family:
            panel_by_family[family] = panel
        if len(panel_by_family) == len(TIERS):
            break
    return list(panel_by_family.values())


def _pick_recorded_model(recorded: Tiers, wanted: PanelRequest, recording: str) -> Tiers:
    """Return the recorded endpoints of the model that the user named with --model, by tier.

    Raises `UsageError` if there are none.
    """
    # --model sets the same single name for every tier, so read any of them.
    named_models = wanted.models["quick"] or ("",)
    (name,) = named_models

    endpoints = {}
    for tier, jury in recorded.items():
        matching = tuple(
            recorded_model for recorded_model in jury if _has_name(recorded_model, name)
        )
        if matching:
            endpoints[tier] = matching

    if not endpoints:
        known_names = ", ".join(_list_model_names(recorded))
        raise UsageError(
            f"--model {name}: {recording} has no replies of this model; it has {known_names}"
        )
    return endpoints


def _has_name(endpoint: Endpoint, name: str) -> bool:
    """Whether an endpoint's model has a name. Prefixes can be omitted: `gpt-4o` for `openai/gpt-4o`."""
    return endpoint.model == name or endpoint.model.endswith(f"/{name}")


def _list_model_names(recorded: Tiers) -> list[str]:
    """List the names of all recorded models, sorted."""
    model_names = set[str]()
    for jury in recorded.values():
        model_names.update(recorded_model.model for recorded_model in jury)
    return sorted(model_names)


def _detect_panels(
    known: Sequence[Profile], wanted: PanelRequest, environ: Mapping[str, str]
) -> Iterator[Panel]:
    """Yield a panel for each usable provider, in order of preference. The first one is used.

    A misconfigured provider has a panel without models, with the problem as its reason.
    """
    # Prefer servers at an address that the user has set.
    panels_with_problem = []
    for profile in _list_profiles_at_user_address(known, environ):
        models, problem = _find_models_at(profile, environ)
        if problem is None:
            yield _make_panel(profile, models, environ)
            continue

        panel_with_problem = Panel({}, None, problem)
        if profile.provider == CUSTOM_PROVIDER:
            # The user certainly wants this server, so put its problem before all other providers.
            yield panel_with_problem
        else:
            panels_with_problem.append(panel_with_problem)

    yield from _make_detected_panels(known, wanted, environ)
    # These problems only matter if there's no other provider.
    yield from panels_with_problem


def _make_detected_panels(
    known: Sequence[Profile], wanted: PanelRequest, environ: Mapping[str, str]
) -> Iterator[Panel]:
    """Yield panels for the providers with an API key, then for local servers, and then for commands."""
    usable: list[Profile] = []
    for profile in known:
        problem = detect(profile, environ, named=wanted.asks_for(profile))
        if problem is None:
            usable.append(profile)

    chat_profiles = [profile for profile in usable if isinstance(profile, LitellmProfile)]
    yield from _make_panels_with_keys(usable, chat_profiles, environ)
    yield from _make_local_panels(chat_profiles, environ)
    for profile in usable:
        if isinstance(profile, CommandProfile):
            yield _make_panel(profile, profile.models.by_tier, environ)


def _make_panels_with_keys(
    usable: Sequence[Profile], chat_profiles: Sequence[LitellmProfile], environ: Variables
) -> Iterator[Panel]:
    """Yield a panel for each provider whose profile lists models, which most providers with an API key do.

    If there's no such provider, yield panels of decision models.
    """
    profiles_with_models = [profile for profile in chat_profiles if profile.models.by_tier]
    if not profiles_with_models:
        # Decision models give no reasons for their decisions, so they're only used in this case.
        yield from _make_decider_panels(usable, environ)
        return

    for profile in profiles_with_models:
        problem = _explain_wrong_address(profile, environ)
        if problem:
            # Our caller uses the first panel it gets. If that's this empty one, it shows the user the
            # problem.
            yield Panel(endpoints={}, provider=None, reason=problem)
        yield _make_panel(profile, profile.models.by_tier, environ)


def _make_decider_panels(usable: Sequence[Profile], environ: Variables) -> Iterator[Panel]:
    """Yield a panel for each provider of decision models whose profile lists models."""
    for profile in usable:
        if isinstance(profile, DecisionsProfile) and profile.models.by_tier:
            yield _make_panel(profile, profile.models.by_tier, environ)


def _make_local_panels(
    chat_profiles: Sequence[LitellmProfile], environ: Variables
) -> Iterator[Panel]:
    """Yield a panel for each local server that answers, and for the embedded model."""
    models_by_server = _list_local_models(chat_profiles, environ)
    for profile in chat_profiles:
        server_models = models_by_server.get(profile.provider)
        if server_models:
            # Use the server's first model for all tiers.
            models_by_tier = dict.fromkeys(TIERS, server_models[:1])
            yield _make_panel(profile, models_by_tier, environ)

    for profile in chat_profiles:
        embedded_models = _read_embedded_models(profile, environ)
        if embedded_models:
            yield _make_panel(profile, embedded_models, environ)


def _read_embedded_models(profile: LitellmProfile, environ: Variables) -> Named:
    """Read the embedded models that variables name, by tier; {} if the profile isn't for embedded ones."""
    if not profile.embedded:
        return {}
    return _read_models(profile.models_env.by_tier, environ, default_variable=None)


def _make_named_panel(
    wanted: PanelRequest, known: Sequence[Profile], environ: Variables, others: Others
) -> Panel:
    """Build the panel of the models that the user or the project has named.

    If one of them can't be used, the panel is empty, and its reason explains why. `others` lists the panels
    of other providers, for the case that a model fails.
    """
    endpoints: dict[TierName, tuple[Endpoint, ...]] = {}
    used_profiles = []
    for tier, name in _pair_tiers_with_names(wanted):
        match_or_problem = _find_usable_profile(name, tier, wanted, known, environ)
        if isinstance(match_or_problem, str):
            how_named = wanted.models_named_by or f"configured ({tier})"
            reason = f"the model {name} is {how_named}, but {match_or_problem}"
            return Panel(endpoints={}, provider=None, reason=reason)
        profile, model = match_or_problem
        used_profiles.append(profile)
        endpoints[tier] = (*endpoints.get(tier, ()), build_endpoint(profile, model, environ))

    # If there's only one provider, use it for the other tiers, too, so that no text is sent elsewhere.
    first_profile = used_profiles[0]  # there is one, because this is only called for named models
    is_only_provider = all(profile == first_profile for profile in used_profiles)
    if is_only_provider:
        _fill_other_tiers(endpoints, first_profile, known, environ)

    reason = f"named by the {_find_who_named(wanted)}"
    panel = Panel(fill(endpoints), first_profile.provider, reason)
    if _must_stay_on_own_servers(used_profiles, wanted):
        return panel
    return replace(panel, find_other_panels=others)


def _pair_tiers_with_names(wanted: PanelRequest) -> list[tuple[TierName, str]]:
    """List the named models, each with its tier."""
    pairs = []
    for tier, models in wanted.models.items():
        for name in split_model_names(models or ()):
            pairs.append((tier, name))
    return pairs


def _find_usable_profile(
    name: str,
    tier: TierName,
    wanted: PanelRequest,
    known: Sequence[Profile],
    environ: Variables,
) -> tuple[Profile, str] | str:
    """Find the profile for a named model, and the model's name in calls. If it can't be used, say why."""
    profile, model = find_profile(name, known)
    if profile is None:
        # A model with an unknown prefix is on the user's own server.
        profiles = _list_profiles_at_user_address(known, environ)
        if not profiles:
            return "no allowed provider serves it"
        profile = profiles[0]

    problem = _explain_unusable(profile, tier, wanted, environ)
    return problem or (profile, model)


def _find_who_named(wanted: PanelRequest) -> str:
    """Return "project" if the project alone has named all models, or else "user"."""
    named_tiers = [tier for tier, models in wanted.models.items() if models]
    is_project_alone = all(tier in wanted.project_named_tiers for tier in named_tiers)
    return "project" if is_project_alone else "user"


def _fill_other_tiers(
    endpoints: dict[TierName, tuple[Endpoint, ...]],
    profile: Profile,
    known: Sequence[Profile],
    environ: Variables,
) -> None:
    """Add a provider's models to `endpoints`, for the tiers without models."""
    # A provider of decision models, which can't write texts, names a second provider that can. Prefer that.
    text_profile = _find_writers(profile, known, environ) or profile
    for tier, model in text_profile.models.by_tier.items():
        if tier not in endpoints:
            endpoints[tier] = (build_endpoint(text_profile, model, environ),)


def _must_stay_on_own_servers(profiles: Sequence[Profile], wanted: PanelRequest) -> bool:
    """Whether the user only uses their own servers, and hasn't listed any providers to allow."""
    are_all_own = all(_is_own_server(profile) for profile in profiles)
    return are_all_own and wanted.allowed_providers is None


def _find_writers(profile: Profile, known: Sequence[Profile], environ: Variables) -> Profile | None:
    """Return the provider of text models that goes with a provider of decision models, or None.

    Decision models write no text, so their profile names a provider that does (`writers`).
    """
    if not isinstance(profile, DecisionsProfile):
        return None
    for other_profile in known:
        is_writer = other_profile.provider == profile.writers
        if is_writer and detect(other_profile, environ, named=True) is None:
            return other_profile
    return None


def _is_own_server(profile: Profile) -> bool:
    """Whether a provider is a server that the user runs."""
    if not isinstance(profile, ApiProfile):
        return False
    if isinstance(profile, LitellmProfile) and profile.embedded:
        return True
    if isinstance(profile, DecisionsProfile) and profile.own_server:
        return True

    has_local_port = profile.detect.port is not None
    return has_local_port or _is_for_any_server(profile)


def _is_for_any_server(profile: ApiProfile) -> bool:
    """Whether a profile is for servers at any address, whose models only variables can name."""
    return len(profile.models_env.by_tier) > 0


def _explain_unusable(
    profile: Profile, tier: TierName, wanted: PanelRequest, environ: Variables
) -> str | None:
    """Explain why a provider can't be used for a tier, or return None if it can."""
    has_permission = _has_user_permission(profile, tier, wanted)
    # Credentials that usually have another purpose count only with the user's permission.
    problem = detect(profile, environ, named=has_permission)
    if problem is None:
        problem = _explain_wrong_address(profile, environ)
    if problem is None or has_permission:
        return problem

    # If the provider would be detected with the user's permission, explain how to give that.
    is_detected_with_permission = detect(profile, environ, named=True) is None
    if not is_detected_with_permission:
        return problem
    remedy = f"add {profile.provider} to providers.allow in your own configuration"
    return f"a project alone cannot choose to use your credentials for {profile.title}: {remedy}"


def _has_user_permission(profile: Profile, tier: TierName, wanted: PanelRequest) -> bool:
    """Whether the user, and not only a project, has chosen the tier's models or the provider."""
    # Some credentials usually have other purposes, such as a cloud account's. A project must not spend them
    # without the user's permission.
    is_set_by_project_alone = tier in wanted.project_named_tiers
    return wanted.asks_for(profile) or not is_set_by_project_alone


def fill(endpoints: Tiers) -> dict[TierName, tuple[Endpoint, ...]]:
    """Give each tier without models those of the nearest tier. Without any models, return {}."""
    if not endpoints:
        return {}
    return {tier: get_nearest_models(tier, endpoints) for tier in TIERS}


def get_nearest_models(tier: TierName, panel: Tiers) -> tuple[Endpoint, ...]:
    """Return a tier's models. If it has none, return those of the next deeper tier that has some.

    If no deeper tier has models, return those of the next shallower one, or () if no tier has any.
    """
    index = TIERS.index(tier)
    deeper_tiers = TIERS[index + 1 :]
    shallower_tiers = reversed(TIERS[:index])
    for candidate in (tier, *deeper_tiers, *shallower_tiers):
        if panel.get(candidate):
            return panel[candidate]
    return ()


def _make_panel(profile: Profile, models: Named, environ: Mapping[str, str]) -> Panel:
    """Build the panel of a provider's models."""
    endpoints = {}
    for tier, jury in models.items():
        endpoints[tier] = tuple(
            build_endpoint(profile, name, environ) for name in split_model_names(jury)
        )
    reason = f"{profile.title}: {_describe_evidence(profile, environ)}"
    return Panel(fill(endpoints), profile.provider, reason)


def find_profile(name: str, known: Sequence[Profile]) -> tuple[Profile | None, str]:
    """Find the profile for a model. Returns the profile and the model's name to use in calls.

    The profile is None if no profile matches.
    """
    # Look for the provider in a name such as `openai/gpt-4o`.
    provider, _, name_at_provider = name.partition("/")
    for profile in known:
        if name_at_provider and profile.provider == registry.resolve_alias(provider):
            return profile, name_at_provider

    # Look for a profile that lists the model.
    for profile in known:
        if name in profile.models.by_tier.values():
            return profile, name

    # Look for the profile with the longest matching prefix.
    matching_profiles = []
    for profile in known:
        if isinstance(profile, ApiProfile) and name.startswith(profile.prefix):
            matching_profiles.append(profile)
    if not matching_profiles:
        return None, name
    return max(matching_profiles, key=lambda profile: len(profile.prefix)), name


def list_named_models(profile: Profile, wanted: PanelRequest) -> dict[TierName, tuple[str, ...]]:
    """Return the models that the user has named for a provider, by tier.

    Returns {} if the provider's profile already lists models.
    """
    if profile.models.by_tier:
        return {}

    models_by_tier = {}
    for tier, models in wanted.models.items():
        own_names = []  # the named models that belong to this provider
        for name in split_model_names(models or ()):
            matching_profile, _ = find_profile(name, [profile])
            if matching_profile is not None:
                own_names.append(name)
        if own_names:
            models_by_tier[tier] = tuple(own_names)
    return models_by_tier


def split_model_names(models: str | Sequence[str]) -> tuple[str, ...]:
    """Return the unique model names in a comma-separated string or a list."""
    parts = models.split(",") if isinstance(models, str) else models
    stripped_names = [name.strip() for name in parts]
    return tuple(dict.fromkeys(name for name in stripped_names if name))


def _read_models(
    variables: Mapping[TierName, str],
    environ: Variables,
    default_variable: str | None = "JUDGEKIT_MODEL",
) -> Named:
    """Read each tier's models from its environment variable. Tiers without models are omitted.

    If a tier's variable isn't set, use the default variable, if there's one.
    """
    default_models = (
        split_model_names(environ.get(default_variable, "")) if default_variable else ()
    )
    models_by_tier = {}
    for tier, variable in variables.items():
        models = split_model_names(environ.get(variable, "")) or default_models
        if models:
            models_by_tier[tier] = models
    return models_by_tier


def _list_profiles_at_user_address(
    known: Sequence[Profile], environ: Mapping[str, str]
) -> list[AnyApi]:
    """List the profiles for servers at any address, if the user has set that address in a variable."""
    profiles: list[AnyApi] = []
    for profile in known:
        if not isinstance(profile, ApiProfile):
            continue
        if _is_for_any_server(profile) and profile.address_in(environ):
            profiles.append(profile)
    return profiles


def _find_models_at(profile: AnyApi, environ: Mapping[str, str]) -> tuple[Named, str | None]:
    """Return the models, by tier, at the user's address. If there are none, also return the problem."""
    problem = _explain_wrong_address(profile, environ)
    if problem:
        return {}, problem

    base = profile.address_in(environ) or ""
    models: Named = _read_models(profile.models_env.by_tier, environ)
    if not models and profile.provider == CUSTOM_PROVIDER:
        models = _ask_for_models(base)
    if models:
        return models, None

    variable = _find_address_variable(profile, environ)
    return {}, f"{variable} is {base}: set JUDGEKIT_MODEL to a model of that server"


def _ask_for_models(base: str) -> Named:
    """Ask a server for its models, and use the first one for all tiers.

    Returns {} if the server isn't on this machine or lists no models.
    """
    # `servers.models` returns a list for each address, or None for one that isn't on this machine.
    (server_models,) = servers.list_models([base])
    if not server_models:
        return {}
    first_model = server_models[:1]
    return dict.fromkeys(TIERS, first_model)


def _find_address_variable(profile: ApiProfile, environ: Mapping[str, str]) -> str:
    """Return the first variable that's set to an address for a provider, or ""."""
    for name in profile.address_variables:
        if environ.get(name, "").strip():
            return name
    return ""


def _explain_wrong_address(profile: Profile, environ: Mapping[str, str]) -> str | None:
    """Explain why the user's address for a provider is invalid, and suggest a valid one.

    Returns None if the address is valid, or if the user hasn't set one.
    """
    if not isinstance(profile, ApiProfile):
        return None
    base = profile.address_in(environ)
    if base is None or base.startswith(("http://", "https://")):
        return None

    suggestion = _suggest_address(base)
    expected = f"expected an address with http:// or https://, such as {suggestion}"
    variable = _find_address_variable(profile, environ)
    return f"the address of {profile.provider} ({variable}) is {base!r}: {expected}"


def _suggest_address(base: str) -> str:
    """Correct an address: `localhost:8000` becomes `http://localhost:8000/v1`.

    Suggests https for other machines, and adds no `/v1` if there's a path.
    """
    _, _, after_scheme = base.partition("://")
    host_and_path = (after_scheme or base).rstrip("/")
    missing_path = "" if "/" in host_and_path else "/v1"
    scheme = "http" if _is_on_this_machine(host_and_path) else "https"
    return f"{scheme}://{host_and_path}{missing_path}"


def _is_on_this_machine(host_and_path: str) -> bool:
    """Whether an address without a scheme is on this machine; False if it has no valid host."""
    try:
        return is_loopback(f"http://{host_and_path}")
    except ValueError:
        return False


def _list_local_models(
    known: Sequence[Profile], environ: Mapping[str, str]
) -> dict[str, list[str] | None]:
    """Query the local servers for their models, and return these by provider.

    A server that doesn't answer has None.
    """
    addresses = {}
    for profile in known:
        if isinstance(profile, LitellmProfile) and profile.detect.port:
            address = profile.address_in(environ) or profile.base or ""
            addresses[profile.provider] = address
    lists = servers.list_models(list(addresses.values()))
    return dict(zip(addresses, lists, strict=True))


def detect(profile: Profile, environ: Mapping[str, str], *, named: bool = False) -> str | None:
    """Explain why a provider can't be used here, or return None if it can be used.

    Set `named` if the user has named the provider. The variables in `detect.named` count only then, because
    they're often set for another purpose.
    """
    signs = profile.detect
    needs_variables = bool(signs.env or signs.named)
    if needs_variables:
        problem = _explain_missing_variables(signs, environ, named=named)
        if problem is not None:
            return problem
    # A program that judgekit runs must not make it run a program again, without end.
    if isinstance(profile, CommandProfile) and environ.get(INSIDE_VARIABLE):
        return "a program that judgekit runs started it"
    if signs.module and not is_importable(signs.module):
        return f"the Python package {signs.module} is not installed"
    if signs.command and programs.find(signs.command, environ) is None:
        return f"no command {signs.command} on PATH"
    return None


def _explain_missing_variables(
    signs: registry.Detect, environ: Mapping[str, str], *, named: bool
) -> str | None:
    """Explain which variables must be set for a provider, or return None if one group of them is set.

    The groups in `signs.named` are often set for another purpose, so they're ignored unless the user has
    named the provider.
    """
    accepted_groups = list(signs.env)
    if named:
        accepted_groups += signs.named
    if _first_set_group(accepted_groups, environ) is not None:
        return None
    if accepted_groups:
        return _suggest_groups(accepted_groups)

    # The provider has only groups in `signs.named`, and the user hasn't named it.
    is_only_unnamed = _first_set_group(signs.named, environ) is not None
    if is_only_unnamed:
        return "used only where one of its models is named: in judge.tiers, or by --model"
    return _suggest_groups(signs.named)


def _suggest_groups(groups: Iterable[Sequence[str]]) -> str:
    """Suggest to set one of several groups of variables, as in "set A with B or C"."""
    alternatives = [" with ".join(group) for group in groups]
    return f"set {' or '.join(alternatives)}"


def _first_set_group(
    groups: Iterable[Sequence[str]], environ: Mapping[str, str]
) -> Sequence[str] | None:
    """Return the first group whose variables are all set, or None."""
    for group in groups:
        if all(find_first_value([name], environ) for name in group):
            return group
    return None


def is_importable(module: str) -> bool:
    """Whether a module is installed, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _suggest_commands(commands: Sequence[CommandProfile]) -> str:
    """Explain how to allow installed commands, which aren't allowed by default."""
    programs = " and ".join(str(command.detect.command) for command in commands)
    providers = ", ".join(command.provider for command in commands)
    verb = "is" if len(commands) == 1 else "are"
    problem = f"{programs} {verb} on PATH, but a subscription is not an API key"
    remedy = f"to judge with it, add {providers} to providers.allow in your own configuration"
    return f"{problem}: {remedy}"


class ProviderState(NamedTuple):
    """One line of `judgekit provider list`; `why` names what makes it usable or what's missing."""

    name: str
    is_usable: bool
    why: str
    models: dict[TierName, str]


def list_provider_states(
    environ: Mapping[str, str], wanted: PanelRequest | None = None
) -> list[ProviderState]:
    """List all providers, with their models and the reason why they can or can't be used.

    They're in the order of detection. Queries local servers, which takes up to 0.3 s. Raises `ConfigError` if
    a profile is invalid.
    """
    wanted = wanted or PanelRequest()
    all_profiles = registry.list_profiles()
    models_by_server = _list_local_models(all_profiles, environ)
    profiles_at_user_address = _list_profiles_at_user_address(all_profiles, environ)
    named_by_anyone = _list_named_providers(wanted, wanted.models.keys(), all_profiles)
    tiers_of_user = wanted.models.keys() - wanted.project_named_tiers
    named_by_user = _list_named_providers(wanted, tiers_of_user, all_profiles)

    states = []
    for profile in all_profiles:
        is_named_by_user = wanted.asks_for(profile) or profile.provider in named_by_user
        problem = detect(profile, environ, named=is_named_by_user)
        models = profile.models.by_tier
        server_models = models_by_server.get(profile.provider)
        if server_models:
            models = dict.fromkeys(TIERS, server_models[0])
        elif problem is None:
            problem = _explain_no_models(
                profile,
                server_models,
                profiles_at_user_address,
                environ,
                is_named=profile.provider in named_by_anyone,
            )
        states.append(_build_state(profile, problem, models, wanted, environ))
    return states


def _explain_no_models(
    profile: Profile,
    server_models: list[str] | None,
    profiles_at_user_address: Sequence[AnyApi],
    environ: Mapping[str, str],
    *,
    is_named: bool,
) -> str | None:
    """Explain why a provider has no models, or return None if it can be used.

    `is_named` means that one of its models is named, so it needs no others.
    """
    if profile.detect.port:
        return _explain_no_server_models(profile, server_models)
    if is_named:
        return None
    return _explain_no_models_at_address(profile, profiles_at_user_address, environ)


def _explain_no_server_models(profile: Profile, server_models: list[str] | None) -> str:
    """Explain why a local server has no models. `server_models` is None if it didn't answer."""
    if server_models is None:
        return f"no server responds on port {profile.detect.port}"
    return "it has no chat model"


def _explain_no_models_at_address(
    profile: Profile, profiles_at_user_address: Sequence[AnyApi], environ: Mapping[str, str]
) -> str | None:
    """Explain why there are no models at the address that the user set for a provider.

    Returns None if there are models there, or if the user set no address for the provider.
    """
    for other_profile in profiles_at_user_address:
        if other_profile == profile:
            _, problem = _find_models_at(other_profile, environ)
            return problem
    return None


def _build_state(
    profile: Profile,
    problem: str | None,
    models: dict[TierName, str],
    wanted: PanelRequest,
    environ: Mapping[str, str],
) -> ProviderState:
    """Build a provider's state. It's usable if it has no problem, and if the user allows it."""
    if not wanted.allows(profile):
        reason = _explain_not_allowed(profile, problem)
        return ProviderState(profile.provider, is_usable=False, why=reason, models=models)

    reason = problem or _describe_evidence(profile, environ)
    return ProviderState(profile.provider, is_usable=problem is None, why=reason, models=models)


def _list_named_providers(
    wanted: PanelRequest, tiers: Collection[TierName], profiles: Sequence[Profile]
) -> set[str]:
    """Return the providers of the models named for the given tiers."""
    providers = set()
    for tier in tiers:
        for name in split_model_names(wanted.models[tier] or ()):
            profile, _ = find_profile(name, profiles)
            if profile is not None:
                providers.add(profile.provider)
    return providers


def _explain_not_allowed(profile: Profile, problem: str | None) -> str:
    """Explain how to allow a provider. If it has another problem, mention that too."""
    remedy = f"add {profile.provider} to providers.allow in your own configuration"
    if problem:
        return f"not allowed: {remedy}; {problem}"
    if isinstance(profile, CommandProfile):
        remedy = _suggest_commands([profile])
    return f"not allowed: {remedy}"


def _describe_evidence(profile: Profile, environ: Mapping[str, str]) -> str:
    """Describe the signs that a provider can be used, such as `OPENAI_API_KEY set`.

    The values of variables aren't shown.
    """
    variable_groups = (*profile.detect.env, *profile.detect.named)
    set_group = _first_set_group(variable_groups, environ)
    if set_group is not None:
        return _describe_variables(set_group, profile, environ)
    # A local server counts as usable only if it has answered.
    if isinstance(profile, ApiProfile) and profile.detect.port:
        address = profile.address_in(environ) or profile.base
        return f"answers at {address}"
    if isinstance(profile, CommandProfile):
        return f"{profile.detect.command} is on PATH"
    # It needs no sign, or only an installed Python package.
    return "there"


def _describe_variables(group: Sequence[str], profile: Profile, environ: Mapping[str, str]) -> str:
    """Describe a group of variables that are set, and a further variable with the provider's address."""
    evidence = f"{' and '.join(group)} set"
    if not isinstance(profile, ApiProfile):
        return evidence

    for name in profile.address_variables:
        is_set = environ.get(name, "").strip() != ""
        if is_set and name not in group:
            return f"{evidence}, asked at the address in {name}"
    return evidence
