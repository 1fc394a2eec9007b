"""Settings of users and projects, merged in the order of their authority.

`JUDGEKIT_*` variables, the project's `.judgekit/config.yaml`, its `.claude/memory/memory-config.json`, the
user's `config.yaml`, the defaults. A project's files choose rubrics, modes, listed models, paths and limits
within the user's bounds; they can neither say where text is sent nor raise a limit the user has set.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BeforeValidator,
    Field,
    FiniteFloat,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from judgekit import environment
from judgekit.config import KEYS_BY_SECTION, DepthName, ModeName, TierName, files, yamlfile
from judgekit.config.yamlfile import Strict, Text, explain_errors
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Layer: TypeAlias = dict[str, Any]

MAX_ROOTS = 50  # each prompt looks at all of them
MAX_JURORS = 7


def _restore_on_off(value: object) -> object:
    """Turn true and false back into "on" and "off"."""
    if isinstance(value, bool):  # YAML 1.1 reads the words on and off as booleans
        return "on" if value else "off"
    return value


def _wrap_in_list(value: object) -> object:
    """Wrap a single string in a list."""
    return [value] if isinstance(value, str) else value


Consent: TypeAlias = Annotated[Literal["off", "on", "project"], BeforeValidator(_restore_on_off)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=3600)]


def _check_pattern(text: str) -> str:
    from judgekit.config.patterns import parse  # noqa: PLC0415 - imported lazily because it's rarely needed

    try:
        parse(text)
    except ValueError:
        raise ValueError("expected a pattern that can match, written as in .gitignore") from None
    return text


def _check_own_folder(text: str) -> str:
    is_anywhere = Path(text).is_absolute() or text.startswith("~")
    if not is_anywhere:
        raise ValueError("expected an absolute path, or one that begins with ~")
    return text


Glob: TypeAlias = Annotated[Text, AfterValidator(_check_pattern)]
OwnFolder: TypeAlias = Annotated[Text, AfterValidator(_check_own_folder)]
_MODEL_NAMES_SCHEMA = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "maxItems": MAX_JURORS,
}
Jurors: TypeAlias = Annotated[
    list[Text],
    Field(min_length=1, max_length=MAX_JURORS),
    BeforeValidator(_wrap_in_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, _MODEL_NAMES_SCHEMA]}),
]

# Features that send text by themselves: the user says `on` or `off`, or leaves it to the project.
CONSENTS = (("retrieval", "judge"), ("escalate", "issues"), ("stop", "judge"))


class TierModels(Strict):
    """The models of each tier as litellm names them; null leaves the choice to the detected provider."""

    quick: Jurors | None = None
    deep: Jurors | None = None
    tiebreaker: Jurors | None = None


class JudgeConfig(Strict):
    rubric: Text = "kls"
    mode: ModeName = "strict"
    tiers: TierModels = TierModels()
    panel: Literal["single", "mixed"] = "single"
    jury: Literal["mean", "majority"] = "mean"
    samples: int = Field(1, ge=1, le=8)
    criteria: Literal["together", "each"] = "together"
    margin: float = Field(0, ge=0, le=10)
    author_family: Text | None = None
    independence: Literal["prefer", "require"] = "prefer"
    redact: bool | Literal["refuse"] = True
    deadline: Seconds = 180
    max_cost_usd: float | None = Field(default=None, ge=0)


class RetrievalConfig(Strict):
    """How to find and inject memories. `judge` is the user's consent to ask a model on every prompt."""

    enabled: bool = True
    roots: list[Text] = Field(default=[".claude/memory"], max_length=MAX_ROOTS)
    command: list[Text] | None = Field(default=None, min_length=1)
    scorer: Literal["fts5", "keyword"] = "fts5"
    inject: Literal["tiered", "top_k"] = "tiered"
    max_inject: int = Field(default=3, ge=0, le=20)
    pin: list[Text] = Field([], max_length=50)
    judge: Consent = "off"
    rubric: Text = "memory-relevance"
    mode: ModeName = "strict"
    search_mode: ModeName = "lenient"
    tiers: list[TierName] = Field(default=["quick"], min_length=1)
    pool: int = Field(default=30, ge=1, le=30)
    inject_above: dict[Text, Annotated[float, Field(ge=0, le=1)]] = {}
    deadline: Seconds = 8
    timeout: Seconds = 3
    fallback_top_k: int = Field(default=2, ge=0, le=20)
    context_turns: int = Field(default=5, ge=0, le=20)
    show: bool = False
    hint_on_zero: bool = False
    repeat_after: int = Field(default=20, ge=0, le=1_000)
    log: bool = False
    disabled_in: list[OwnFolder] = Field([], max_length=MAX_ROOTS)


class DepthRule(Strict):
    """Chooses how deeply to judge a changed file, if everything the rule gives fits the change.

    The larger of the numbers of added and removed lines counts.
    """

    name: Text
    depth: DepthName
    paths: list[Glob] = Field([], min_length=1)
    authors: list[Text] = Field([], min_length=1)
    least_lines: int = Field(0, ge=0)
    most_lines: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_can_match(self) -> Self:
        """Refuse a rule that no change can match."""
        if self.most_lines is not None and self.most_lines < self.least_lines:
            raise ValueError("expected most_lines of least_lines or more")
        only_excludes = self.paths and all(path.startswith("!") for path in self.paths)
        if only_excludes:
            raise ValueError("expected a path that does not begin with !, which chooses none")
        return self


def _allow_word(schema: dict[str, Any]) -> None:
    """Let a rule list's JSON schema also accept a word."""
    rules = {"type": schema.pop("type"), "items": schema.pop("items")}
    schema["anyOf"] = [{"enum": ["off", "usual"]}, rules]


def _expand_rules(value: object) -> object:
    """Convert "off" to an empty list and "usual" to the default rules. Return a list of rules unchanged.

    Raises `ValueError` for any other word.
    """
    word = _unwrap_single_item(value)
    if word == "off":
        return []
    if word == "usual":
        return environment.read_toml(__file__, "depth.toml")["rules"]
    is_other_word = isinstance(word, str)
    if is_other_word:
        raise ValueError("expected off, usual or a list of rules")
    return value


def _unwrap_single_item(value: object) -> object:
    """Return the item in a list of one, such as `["off"]`. Return any other value unchanged."""
    # An environment variable was already split at its commas, so a single word comes in a list.
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


class GateConfig(Strict):
    mode: Literal["advisory", "blocking"] = "advisory"
    paths: list[Glob] = ["**/*.md"]
    authors: list[Text] = []
    rubric: Text = "kls"
    judge_mode: ModeName = "lenient"
    budget: Seconds = 60
    undetermined: Literal["pass", "block"] = "pass"
    override_without_terminal: bool = False
    reviewers: list[Text] = []
    upstream: list[Text] = []
    review: Literal["peers"] | None = None
    depth: Annotated[
        list[DepthRule], BeforeValidator(_expand_rules), Field(json_schema_extra=_allow_word)
    ] = []
    depth_limit: Literal["tiers", "panel", "peers"] = "tiers"


class LedgerConfig(Strict):
    """The contents of the ledger; only the user may set them. `text`: reasoning and quotes too."""

    text: bool = False


class NotifyConfig(Strict):
    """A program and its arguments; no shell reads them."""

    command: list[Text] = Field(min_length=1)


class EscalateConfig(Strict):
    """Selects the verdicts that become issues on GitHub. `issues` is the user's consent to open them.

    `notify` is notified if models disagree; only the user may set it.
    """

    issues: Consent = "off"
    rejects: bool = False
    labels: list[Text] = []
    text: bool = False
    notify: NotifyConfig | None = None


class StopConfig(Strict):
    """Settings for judging when an agent stops. `judge` is the user's consent to ask a model then."""

    judge: Consent = "off"
    blocks: int = Field(3, ge=0, le=20)
    max_files: int = Field(default=10, ge=1, le=100)
    deadline: float = Field(default=45, gt=0, le=60)


class ServerConfig(Strict):
    """The shared judge that gets documents instead of one's own models; only the user may set it.

    `store` is the database of those who run the server, `budget_usd` the most they may spend in a UTC day or
    month.
    """

    url: Text | None = None
    token_file: Text | None = None
    store: Annotated[Text, Field(pattern=r"^postgres(ql)?://")] | None = None
    budget_usd: float | None = Field(default=None, gt=0)
    budget_per: Literal["day", "month"] = "day"


class ProvidersConfig(Strict):
    """The allowed providers, in order of preference; only the user may set them."""

    allow: list[Text] | None = None
    order: list[Text] | None = None


class EngineConfig(Strict):
    """Whether a warm process does the judging, and how long it's kept; only the user may set it."""

    use: bool = True
    idle_minutes: float = Field(15, gt=0, le=1440)


class Config(Strict):
    judge: JudgeConfig = JudgeConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    gate: GateConfig = GateConfig()
    escalate: EscalateConfig = EscalateConfig()
    stop: StopConfig = StopConfig()
    ledger: LedgerConfig = LedgerConfig()
    server: ServerConfig = ServerConfig()
    providers: ProvidersConfig = ProvidersConfig()
    engine: EngineConfig = EngineConfig()

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_sections(cls, data: Any) -> Any:  # noqa: ANN401 - a file may contain anything
        """Drop empty sections, so that they get their defaults."""
        if not isinstance(data, dict):
            return data
        sections = dict(data)
        for name in cls.model_fields:
            if sections.get(name) is None:
                sections.pop(name, None)
        return sections


def _name_variable(*parts: object) -> str:
    """Return a setting's environment variable, `JUDGEKIT_<SECTION>_<KEY>`."""
    return "_".join(("JUDGEKIT", *map(str, parts))).upper()


def _map_variables() -> dict[str, tuple[str, str, object]]:
    """Map each environment variable to its section, key and default value."""
    variables = {}
    default_config = Config()
    for section in KEYS_BY_SECTION:
        section_model = type(getattr(default_config, section))
        for key, field in section_model.model_fields.items():
            variable = _name_variable(section, key)
            variables[variable] = (section, key, field.default)
    return variables


KEYS_BY_VARIABLE = _map_variables()
"""The section, the key and the default value of each environment variable."""
_MODEL_VARIABLES = "JUDGEKIT_QUICK_MODEL, JUDGEKIT_DEEP_MODEL and JUDGEKIT_TIEBREAKER_MODEL"


@cache
def _read_project_rules() -> dict[str, Any]:
    """Read `project.toml`: the settings that projects may not make, or only within limits."""
    return environment.read_toml(__file__, "project.toml")


def get_user_config_path() -> Path:
    """Return the path of the user's own configuration."""
    return Path(environment.SETTINGS.path())


def get_project_config_path(project: Path) -> Path:
    """Return the path of a project's configuration."""
    return project / ".judgekit" / "config.yaml"


def _get_memory_config_path(project: Path) -> Path:
    """Return the path of a project's `memory-config.json`."""
    return project / environment.MEMORY / environment.MEMORY_CONFIG


def list_config_paths(project: Path | None) -> list[Path]:
    """List the files that can change the configuration, including those that don't exist."""
    if project is None:
        return [get_user_config_path()]
    return list(map(Path, environment.configuration_files(str(project))))


def load(project: Path | None, environ: Mapping[str, str] | None = None) -> Config:
    """Load the effective configuration of `project`. Without a project, load the user's own.

    Environment variables override the project's files, which override the user's file. But a project can't
    exceed the user's limits. Raises `ConfigError` with the invalid key, and its file or variable.
    """
    variables = _read_variables(environ)
    # The variables count as the user's limits, too.
    user = _merge(_read(get_user_config_path()), variables)
    if project is None:
        return Config.model_validate(user)

    limited_project = _apply_limits(_read_project(project), user)
    user_and_project = _merge(user, limited_project)

    # Merge the variables again, because they override the project, too. But keep the values that
    # `_apply_limits` has combined.
    _drop_combined_settings(variables)
    merged = _merge(user_and_project, variables)
    config = Config.model_validate(merged)

    # The user can also switch the prompt hook off for certain folders.
    if find_disabling_folder(config, project):
        return _switch_hook_off(config)
    return config


def _drop_combined_settings(variables: Layer) -> None:
    """Remove the settings from `variables` that `_apply_limits` has already combined with the project's.

    Otherwise, the next merge would replace the combined values with the variables' own.
    """
    combined_settings = (*CONSENTS, ("judge", "author_family"), ("judge", "independence"))
    for section, key in combined_settings:
        variables.get(section, {}).pop(key, None)


def _switch_hook_off(config: Config) -> Config:
    """Return a copy of the configuration in which the prompt hook is off."""
    disabled_retrieval = config.retrieval.model_copy(update={"enabled": False})
    return config.model_copy(update={"retrieval": disabled_retrieval})


def find_disabling_folder(config: Config, project: Path) -> str:
    """Return the folder in `retrieval.disabled_in` that is or contains the project, or "" if there's none."""
    for folder in config.retrieval.disabled_in:
        path = Path(os.path.expanduser(folder))  # noqa: PTH111 - raises nothing for an unknown user
        if project.resolve().is_relative_to(path.resolve()):
            return folder
    return ""


def describe_disabling_setting(project: Path) -> str:
    """Describe the setting that switches the prompt hook off in a project; "" if the hook is on."""
    config = load(project)
    if config.retrieval.enabled:
        return ""

    places_by_key = {setting.key: setting.where for setting in list_settings(project)}
    disabling_folder = find_disabling_folder(config, project)
    if disabling_folder:
        place = places_by_key["retrieval.disabled_in"]
        return f"{place}: retrieval.disabled_in names {disabling_folder}"

    place = places_by_key["retrieval.enabled"]
    return f"{place}: retrieval.enabled is false"


Source: TypeAlias = Literal["default", "user", "project", "environment"]


class Setting(NamedTuple):
    """A key with its effective value, and the file or variable that sets it ("" for a default)."""

    key: str
    value: object
    source: Source
    where: str = ""


def list_settings(project: Path) -> list[Setting]:
    """List all effective settings in `project`; raises `ConfigError` like `load`."""
    layers = _read_layers(project)
    config = load(project)
    values = _flatten(config.model_dump())
    values_without_defaults = _flatten(config.model_dump(exclude_unset=True))

    settings = {}
    for key, value in values.items():
        # In a list of objects, `config` fills in each object's defaults, but the layers don't have them.
        value_in_layer = values_without_defaults.get(key, value)
        source, where = _find_source(key, value_in_layer, layers, project)
        settings[key] = Setting(key, value, source, where)

    # If `disabled_in` has switched `enabled` off, then `enabled` has the same source.
    is_disabled_by_folder = find_disabling_folder(config, project) != ""
    if is_disabled_by_folder:
        disabled_in = settings["retrieval.disabled_in"]
        settings["retrieval.enabled"] = disabled_in._replace(key="retrieval.enabled", value=False)
    return list(settings.values())


class _Layers(NamedTuple):
    """The values that each layer sets, by dotted key."""

    variables: Layer
    project: Layer  # only those that comply with the user's limits
    project_yaml: Layer  # those of the project that aren't from its `memory-config.json`
    user: Layer
    defaults: Layer


def _read_layers(project: Path) -> _Layers:
    """Read all layers of settings in `project`; raises `ConfigError` if one is invalid."""
    variables = _read_variables()
    user = _read(get_user_config_path())
    accepted = _list_accepted(_read_project(project), _merge(user, variables))
    return _Layers(
        variables=_flatten(variables),
        project=accepted,
        project_yaml=_flatten(_read(get_project_config_path(project))),
        user=_flatten(user),
        defaults=_flatten(Config().model_dump()),
    )


def _find_source(key: str, value: object, layers: _Layers, project: Path) -> tuple[Source, str]:
    """Return the first layer that sets a key to this value, and its file or variable."""
    if _has_value(layers.variables, key, value):
        section, _, name = key.partition(".")
        return "environment", _name_variable(section, name)
    if _has_value(layers.project, key, value):
        is_in_yaml = key in layers.project_yaml
        # A project has two files of settings: judgekit's own in YAML, and that of a memory store.
        file = get_project_config_path(project) if is_in_yaml else _get_memory_config_path(project)
        return "project", str(file)
    if _has_value(layers.user, key, value):
        return "user", str(get_user_config_path())
    if _has_value(layers.defaults, key, value):
        return "default", ""
    # No layer has exactly this value, so the project's was joined with the user's, or shortened to what the
    # user allows.
    return "project", str(get_project_config_path(project))


def _has_value(layer: Layer, key: str, value: object) -> bool:
    """Whether a flattened layer sets a key to this value, which can be None."""
    return key in layer and layer[key] == value


def _list_accepted(project_layer: Layer, user: Layer) -> Layer:
    """Return the project's settings that comply with the user's limits, by dotted key."""
    allowed_values = _flatten(_apply_limits(project_layer, user))
    accepted = {}
    for key, value in _flatten(project_layer).items():
        if allowed_values.get(key) == value:
            accepted[key] = value
    return accepted


def describe_judge_without_effect(project: Path) -> str | None:
    """Return a warning if the project enables the judge for prompts, but the user hasn't allowed that.

    Returns None if there's nothing to warn about. Raises `ConfigError` for an invalid configuration.
    """
    requested_judge = _read_project(project).get("retrieval", {}).get("judge")
    is_requested = requested_judge in ("on", True)  # memory-config.json has true instead of "on"
    if not is_requested:
        return None
    is_allowed = load(project).retrieval.judge != "off"
    if is_allowed:
        return None

    file_and_key = _locate_judge_setting(project)
    problem = "has no effect: a model sees your prompts only if you allow it"
    remedy = f"set retrieval.judge: project in your own configuration, {get_user_config_path()}"
    return f"{file_and_key} {problem}; to allow it, {remedy}"


def _locate_judge_setting(project: Path) -> str:
    """Return the project's file that enables the judge for prompts, and the key in it."""
    our_file = get_project_config_path(project)
    is_in_our_file = "judge" in _read(our_file).get("retrieval", {})
    if is_in_our_file:
        return f"{our_file}: retrieval.judge"
    return f"{_get_memory_config_path(project)}: judge.enabled"


def _flatten(layer: Layer) -> Layer:
    """Flatten nested settings: `{"gate": {"mode": …}}` becomes `{"gate.mode": …}`."""
    flat = {}
    for key, value in layer.items():
        if isinstance(value, dict):
            for name, inner in _flatten(value).items():
                flat[f"{key}.{name}"] = inner
        else:
            flat[key] = value
    return flat


def build_error(section: str, key: str, problem: str, project: Path | None) -> ConfigError:
    """Build the error about an unusable setting, with the variable or the file that sets it."""
    variable = _name_variable(section, key)
    if environment.environ().get(variable):
        return ConfigError(problem, key=variable)
    paths = [get_user_config_path()]
    if project:
        paths.insert(0, get_project_config_path(project))
    for path in paths:
        if key in _read(path).get(section, {}):
            return _make_error(path, f"{section}.{key}", problem)
    return ConfigError(problem, key=f"{section}.{key}")


def read_user_roots(environ: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the store roots in the user's own configuration, or None if it has none.

    Unlike a project's roots, they can be anywhere.
    """
    layer = _merge(_read(get_user_config_path()), _read_variables(environ))
    roots: list[str] | None = layer.get("retrieval", {}).get("roots")
    return roots


def has_named_models(config: Config) -> bool:
    """Whether a user's configuration names models, so that a project's models are ignored."""
    return any(config.judge.tiers.model_dump().values())


def list_project_chosen_tiers(project: Path | None) -> frozenset[TierName]:
    """List the tiers whose models come from a project's files, rather than the user's choice."""
    if project is None:
        return frozenset()

    # The user's models replace all of the project's.
    user_chooses_models = has_named_models(load(None))
    if user_chooses_models:
        return frozenset()

    models_by_tier = _read_project(project).get("judge", {}).get("tiers", {})
    return frozenset(tier for tier, models in models_by_tier.items() if models)


def _read(path: Path) -> Layer:
    """Return the keys that a configuration file sets. Without a file, return {}."""
    if not path.is_file():
        return {}
    return yamlfile.read_model(path, Config, max_bytes=yamlfile.CONFIG_BYTES).model_dump(
        exclude_unset=True
    )


def _read_project(project: Path) -> Layer:
    """Read a project's settings from its configuration file, and from its `memory-config.json`.

    The configuration file takes precedence. Raises `ConfigError` for any setting that a project may not make.
    """
    path = get_project_config_path(project)
    layer = _read(path) if yamlfile.check_project_file(path, project) else {}
    rubric_files = _map_rubric_files(layer)

    _refuse_harmful_settings(layer, rubric_files, project)
    _make_rubrics_absolute(layer, rubric_files, project)
    return _merge(_read_memory_config(project), layer)


def _map_rubric_files(layer: Layer) -> dict[str, str]:
    """Return the paths of rubric files by section, without rubrics that are given by name."""
    rubric_files = {}
    for section in ("judge", "retrieval", "gate"):
        name_or_path = layer.get(section, {}).get("rubric", "")
        is_path = name_or_path.endswith((".yaml", ".yml"))
        if is_path:
            rubric_files[section] = name_or_path
    return rubric_files


def _refuse_harmful_settings(layer: Layer, rubric_files: Mapping[str, str], project: Path) -> None:
    """Raise `ConfigError` for settings that a project may not make.

    The project may be a clone of a stranger's repository, so its settings can't be trusted.
    """
    keys_and_problems = [
        *_check_user_only_keys(layer),
        *_check_paths(layer, rubric_files, project),
        *_check_models(layer),
    ]
    if not keys_and_problems:
        return

    path = get_project_config_path(project)
    errors = [_make_error(path, key, problem) for key, problem in keys_and_problems]
    raise ConfigError.of(errors)


def _check_user_only_keys(layer: Layer) -> Iterator[tuple[str, str]]:
    """Yield the key and a message for each project setting that only the user may make."""
    # The rules say what each of these settings does, such as "choose providers".
    for key, what_it_does in _read_project_rules()["users"].items():
        if _contains_key(layer, key):
            problem = (
                f"only the user's configuration may {what_it_does}; move this key to your own file"
            )
            yield key, problem


def _contains_key(layer: Layer, key: str) -> bool:
    """Whether the layer contains a section, such as `ledger`, or a key in one, such as `judge.panel`."""
    section, _, name = key.partition(".")
    if section not in layer:
        return False
    is_whole_section = not name
    return is_whole_section or name in layer[section]


def _check_paths(
    layer: Layer, rubric_files: Mapping[str, str], project: Path
) -> Iterator[tuple[str, str]]:
    """Yield the key and a message for each path in the settings that leads out of the project."""
    roots = layer.get("retrieval", {}).get("roots", [])
    keys_and_paths = [("retrieval.roots", root) for root in roots]
    for section, rubric_file in rubric_files.items():
        keys_and_paths.append((f"{section}.rubric", rubric_file))

    for key, path in keys_and_paths:
        if _leads_outside(path, project):
            yield key, "outside the project; only the user's configuration may name such a path"


def _leads_outside(path: str, project: Path) -> bool:
    """Whether a path leads out of the project. Also true for a path that can't be resolved."""
    is_in_home_folder = path.startswith("~")
    # `claude:auto` is an alias for the folder of Claude Code's memories.
    is_drive_or_alias = ":" in path
    is_invalid = "\0" in path
    if is_in_home_folder or is_drive_or_alias or is_invalid:
        return True

    resolved_path = (project / path).resolve()
    return not resolved_path.is_relative_to(project.resolve())


def _check_models(layer: Layer) -> Iterator[tuple[str, str]]:
    """Yield a key and a message for each tier with a model that isn't in any provider profile."""
    problem = "no provider profile lists this model; choose a listed one (judgekit provider list)"
    problem += ", or name it in the user's configuration"

    for tier, models in layer.get("judge", {}).get("tiers", {}).items():
        if not models:
            continue
        all_are_listed = _list_models_of_profiles().issuperset(models)
        if not all_are_listed:
            yield f"judge.tiers.{tier}", problem


def _make_rubrics_absolute(layer: Layer, rubric_files: Mapping[str, str], project: Path) -> None:
    """Make the paths of rubric files in `layer` absolute. Raises `ConfigError` if one is a link."""
    for section, name in rubric_files.items():
        yamlfile.check_project_file(project / name, project)
        layer[section]["rubric"] = str(project.resolve() / name)


def list_reviewers(project: Path) -> list[str]:
    """Return `gate.reviewers` from the project's own file, ignoring all other sources."""
    reviewers: list[str] = (
        _read(get_project_config_path(project)).get("gate", {}).get("reviewers", [])
    )
    return reviewers


def _make_error(path: Path, key: str, problem: str) -> ConfigError:
    """Build an error about a key in a configuration file, with its line."""
    line = yamlfile.find_line_number(yamlfile.load_yaml(path), tuple(key.split(".")))
    return ConfigError(problem, path=path, line=line, key=key)


def _apply_limits(project_layer: Layer, user: Layer) -> Layer:
    """Return a copy of a project's settings, reduced to what the user allows."""
    limited = _merge({}, project_layer)
    _limit_numbers(limited, user)
    _limit_consents(limited, user)
    _limit_judge(limited.get("judge", {}), user.get("judge", {}))
    _limit_gate(limited.get("gate", {}), user.get("gate", {}))
    _limit_retrieval_tiers(limited.get("retrieval", {}), user.get("retrieval", {}))
    return limited


def _limit_numbers(project_layer: Layer, user: Layer) -> None:
    """Lower the numbers in `project_layer`, a project's settings, to the user's limits, in place."""
    for section, keys in _read_project_rules()["limits"].items():
        settings = project_layer.get(section, {})
        for key in keys:
            if key in settings:
                limit = _find_limit(section, key, user)
                settings[key] = _lower_to_limit(settings[key], limit)


def _find_limit(section: str, key: str, user: Layer) -> float | None:
    """Return the largest number that a project may set for a key, or None if there's no limit."""
    user_settings = user.get(section, {})
    if key in user_settings:
        limit: float | None = user_settings[key]
        return limit

    # If a larger number would take more time or send more text, a project may not exceed the default.
    default_is_limit = key in _read_project_rules()["sending"]
    if default_is_limit:
        default_settings = getattr(Config(), section)
        default_limit: float | None = getattr(default_settings, key)
        return default_limit
    return None


def _lower_to_limit(number: float | None, limit: float | None) -> float | None:
    """Return the smaller of a number and its limit. None means unlimited, for both."""
    if limit is None:
        return number
    if number is None:
        return limit
    return min(number, limit)


def _limit_consents(project_layer: Layer, user: Layer) -> None:
    """Set each feature that needs the user's consent to the user's value, or "off" if there's none.

    If the user's value is "project", the project's value counts instead.
    """
    for section, key in CONSENTS:
        users_value = user.get(section, {}).get(key, "off")
        settings = project_layer.setdefault(section, {})
        if users_value == "project":
            settings.setdefault(key, "off")
        else:
            settings[key] = users_value

    # `rejects` opens additional issues, so it needs the same consent as issues.
    project_may_open_issues = user.get("escalate", {}).get("issues") == "project"
    if not project_may_open_issues:
        # The loop has added the section, because CONSENTS contains `escalate.issues`.
        project_layer["escalate"].pop("rejects", None)


def _limit_judge(judge: Layer, user: Layer) -> None:
    """Reduce a project's `judge` settings to what the user's `judge` settings allow, in place."""
    # A project may not set the margin. A score this close to a threshold is judged again, so a larger margin
    # costs the user calls, and a smaller one makes close verdicts final.
    judge.pop("margin", None)

    # A project can't relax a strict requirement.
    if user.get("independence") == "require":
        judge["independence"] = "require"

    # Separate questions take more calls, so a project can't choose them for the user.
    asks_together = user.get("criteria", "together") == "together"
    if asks_together:
        judge.pop("criteria", None)

    _limit_models(judge, user)
    _keep_author_families(judge, user)


def _limit_models(judge: Layer, user: Layer) -> None:
    """Reduce a project's models to one per tier, or to none if the user has chosen any models."""
    user_chooses_models = any(user.get("tiers", {}).values())
    if user_chooses_models:
        judge.pop("tiers", None)
        return

    # A jury of several models would cost the user more calls.
    tiers = judge.get("tiers", {})
    for tier, models in tiers.items():
        is_jury = isinstance(models, list)  # memory-config.json gives a single name instead
        if is_jury:
            tiers[tier] = models[:1]


def _keep_author_families(judge: Layer, user: Layer) -> None:
    """Add the user's `author_family` to the project's, so that a project can't remove any family.

    The setting names the families of the models that wrote the judged texts, separated by commas.
    """
    user_families = user.get("author_family")
    if not user_families or "author_family" not in judge:
        return

    project_families = judge["author_family"] or ""
    joined = _join_families(user_families, project_families)
    # Joining drops "none", which means a human author. If that leaves nothing, keep the user's "none".
    judge["author_family"] = joined or user_families


def _join_families(user_families: str, project_families: str) -> str:
    """Join two comma-separated lists of model families without duplicates, preferring the user's spelling."""
    spellings: dict[str, str] = {}  # by lower-case name
    for family in f"{user_families},{project_families}".split(","):
        spelling = family.strip()
        lower_name = spelling.casefold()
        if lower_name in ("", "none"):  # "none" means a human author
            continue
        # Keep the first spelling, because the user's families come first. But move the family to the end.
        first_spelling = spellings.pop(lower_name, spelling)
        spellings[lower_name] = first_spelling
    return ", ".join(spellings.values())


def _limit_gate(gate: Layer, user: Layer) -> None:
    """Remove settings from a project's `gate` section that are less strict than the user's `gate` section."""
    # An empty value would replace the user's. For other values, `judging.depth` uses the user's depth if it's
    # the deeper one.
    for key in ("depth", "review"):
        is_empty = not gate.get(key)
        if is_empty:
            gate.pop(key, None)

    # If the user has set the strictest value, the project can't change it.
    strictest_values = {"mode": "blocking", "undetermined": "block"}
    for key, strictest in strictest_values.items():
        if user.get(key) == strictest:
            gate.pop(key, None)


def _limit_retrieval_tiers(retrieval: Layer, user: Layer) -> None:
    """Remove the tiers that the user doesn't allow from a project's `retrieval` settings.

    If none remain, the project gets all allowed tiers.
    """
    if "tiers" not in retrieval:
        return

    allowed_tiers = user.get("tiers", ["quick"])
    remaining_tiers = [tier for tier in retrieval["tiers"] if tier in allowed_tiers]
    retrieval["tiers"] = remaining_tiers or allowed_tiers


def _merge(below: Layer, above: Layer) -> Layer:
    """Merge two layers of settings recursively; `above` wins."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict):
            merged[key] = _merge(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


def _read_variables(environ: Mapping[str, str] | None = None) -> Layer:
    """Read settings from environment variables. Lists are comma-separated.

    Raises `ConfigError` with the name of any variable that's invalid or not allowed.
    """
    if environ is None:
        environ = environment.environ()

    layer: Layer = {}
    for name, (section, key, default) in KEYS_BY_VARIABLE.items():
        value = environ.get(name)
        if value:
            _refuse_forbidden_variable(name, f"{section}.{key}")
            settings = layer.setdefault(section, {})
            settings[key] = value.split(",") if isinstance(default, list) else value

    try:
        return Config.model_validate(layer).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise ConfigError.of(_list_variable_errors(error, layer)) from None


def _refuse_forbidden_variable(name: str, dotted_key: str) -> None:
    """Raise `ConfigError` if the setting `dotted_key` can't be made by the variable `name`."""
    # Settings that only the user's file may make, with what they do, such as "log prompts".
    user_only_settings = _read_project_rules()["users"]
    what_it_does = user_only_settings.get(dotted_key)
    if what_it_does:
        raise ConfigError(f"no variable may {what_it_does}", key=name)

    # Each tier's models have a variable of their own.
    if dotted_key == "judge.tiers":
        raise ConfigError(f"models are named by {_MODEL_VARIABLES}", key=name)


def _list_variable_errors(error: ValidationError, layer: Layer) -> list[ConfigError]:
    """List pydantic's errors about a layer, each under its variable's name instead of the key."""
    variable_errors = []
    for problem in explain_errors(error.errors(include_url=False), layer, Config):
        section_and_key = problem.location[:2]
        variable = _name_variable(*section_and_key)
        variable_errors.append(ConfigError(problem.text, key=variable))
    return variable_errors


# The rest reads `.claude/memory/memory-config.json`, another tool's settings. Unknown keys are ignored, and
# wrong types are errors. A number out of our range becomes the nearest in it, because the other tool's range
# can be larger.


def _limit_to(minimum: float, maximum: float) -> AfterValidator:
    """Make a validator that clamps a number to a range."""
    return AfterValidator(lambda number: max(minimum, min(number, maximum)))


_UpTo20: TypeAlias = Annotated[int, _limit_to(0, 20)]
_Pool: TypeAlias = Annotated[int, _limit_to(1, 30)]
_Timeout: TypeAlias = Annotated[FiniteFloat, _limit_to(0.1, 3600.0)]
_SCORERS = {"title_tags": "keyword", "fts5_bm25": "fts5"}


def _declare_field_at(key: str) -> Any:  # noqa: ANN401 - as pydantic types a field
    """Declare a model field that's read from a dotted key, in the section `retrieval` or at the top."""
    path = key.split(".")
    aliases = AliasChoices(AliasPath("retrieval", *path), AliasPath(*path))
    return Field(None, validation_alias=aliases)


class _MemoryConfig(Strict, extra="ignore"):
    """The other tool's settings. Those that we also have are named like ours."""

    retrieval: dict[str, Any] = {}
    their_judge: dict[str, Any] | None = _declare_field_at("judge")
    enabled: bool | None = _declare_field_at("enabled")
    max_inject: _UpTo20 | None = _declare_field_at("max_inject")
    scorer: Annotated[str, AfterValidator(_SCORERS.get)] | None = _declare_field_at(
        "match_strategy"
    )
    judge: bool | None = _declare_field_at("judge.enabled")
    model: str | None = _declare_field_at("judge.model")
    timeout: _Timeout | None = _declare_field_at("judge.timeout_per_call")
    fallback_top_k: _UpTo20 | None = _declare_field_at("judge.fallback_top_k")
    pool: _Pool | None = _declare_field_at("judge.candidate_pool_size")
    dual_verification: bool | None = _declare_field_at("judge.dual_verification")
    conversation: bool | None = _declare_field_at("judge.include_conversation_context")
    context_turns: _UpTo20 | None = _declare_field_at("judge.context_turns")
    max_output: _UpTo20 | None = _declare_field_at("judge.modes.auto.max_output")
    mode: ModeName | None = _declare_field_at("judge.modes.auto.verification")
    search_mode: ModeName | None = _declare_field_at("judge.modes.search.verification")


class _Listing(Strict, extra="ignore"):
    """The models listed in a provider profile."""

    models: dict[str, str | None] = {}


def _read_memory_config(project: Path) -> Layer:
    """Convert a project's `memory-config.json` to our settings; {} if there's no such file."""
    path = _get_memory_config_path(project)
    memory_folder = path.parent
    # The memory folder may be a link, but not one out of the project.
    is_inside = memory_folder.resolve().is_relative_to(project.resolve())
    if not is_inside:
        return {}
    exists = yamlfile.check_project_file(path, memory_folder)
    if not exists:
        return {}

    memory_config = yamlfile.read_model(path, _MemoryConfig, max_bytes=yamlfile.CONFIG_BYTES)
    layer: Layer = {"retrieval": _convert_to_retrieval(memory_config)}
    # The model is only used if a provider profile lists it.
    if memory_config.model is not None and memory_config.model in _list_models_of_profiles():
        layer["judge"] = {"tiers": {"quick": memory_config.model}}
    return layer


def _convert_to_retrieval(memory_config: _MemoryConfig) -> dict[str, Any]:
    """Convert the settings of a `memory-config.json` to our `retrieval` settings."""
    # Take over the settings that have the same name in both files.
    same_names = set(RetrievalConfig.model_fields)
    retrieval = memory_config.model_dump(include=same_names, exclude_none=True)

    # Convert the settings that we name differently.
    if memory_config.max_output is not None:
        retrieval.setdefault("max_inject", memory_config.max_output)
    if memory_config.conversation is False:
        retrieval["context_turns"] = 0
    if memory_config.dual_verification:
        retrieval["rubric"] = "memory-two-criteria"
    return retrieval


def _list_models_of_profiles() -> set[str]:
    """List the models in all provider profiles. A project may only choose from these."""
    models = set[str]()
    for path in files.profile_files():
        listing = yamlfile.read_model(path, _Listing, version_key="provider")
        models.update(filter(None, listing.models.values()))
    return models
