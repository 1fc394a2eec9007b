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
from judgekit.config import KEYS, DepthName, ModeName, TierName, files, yamlfile
from judgekit.config.yamlfile import Strict, Text, problems
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Layer: TypeAlias = dict[str, Any]

MOST_ROOTS = 50  # each prompt looks at all of them
MOST_JURORS = 7


def _as_word(value: object) -> object:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


def _in_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Consent: TypeAlias = Annotated[Literal["off", "on", "project"], BeforeValidator(_as_word)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=3600)]


def _pattern(text: str) -> str:
    from judgekit.config.patterns import parse  # noqa: PLC0415 - most configurations name no files

    try:
        parse(text)
    except ValueError:
        raise ValueError("expected a pattern that can match, written as in .gitignore") from None
    return text


def _own_folder(text: str) -> str:
    if not (Path(text).is_absolute() or text.startswith("~")):
        raise ValueError("expected an absolute path, or one that begins with ~")
    return text


Glob: TypeAlias = Annotated[Text, AfterValidator(_pattern)]
OwnFolder: TypeAlias = Annotated[Text, AfterValidator(_own_folder)]
_NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_JURORS}
Jurors: TypeAlias = Annotated[
    list[Text],
    Field(min_length=1, max_length=MOST_JURORS),
    BeforeValidator(_in_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, _NAMES]}),
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
    roots: list[Text] = Field(default=[".claude/memory"], max_length=MOST_ROOTS)
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
    disabled_in: list[OwnFolder] = Field([], max_length=MOST_ROOTS)


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
    def _fits_something(self) -> Self:
        if self.most_lines is not None and self.most_lines < self.least_lines:
            raise ValueError("expected most_lines of least_lines or more")
        if self.paths and all(path.startswith("!") for path in self.paths):
            raise ValueError("expected a path that does not begin with !, which chooses none")
        return self


def _or_a_word(schema: dict[str, Any]) -> None:
    rules = {"type": schema.pop("type"), "items": schema.pop("items")}
    schema["anyOf"] = [{"enum": ["off", "usual"]}, rules]


def _in_rules(value: object) -> object:
    """Turn a word into the rules it stands for; the word of a variable comes in a list."""
    if isinstance(value, list) and len(value) == 1:
        word = value[0]
    else:
        word = value
    if not isinstance(word, str):
        return value
    if word not in ("off", "usual"):
        raise ValueError("expected off, usual or a list of rules")
    if word == "usual":
        return environment.table(__file__, "depth.toml")["rules"]
    return []


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
        list[DepthRule], BeforeValidator(_in_rules), Field(json_schema_extra=_or_a_word)
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
    def _in_full(cls, data: Any) -> Any:  # noqa: ANN401 - a file may contain anything
        """Leave empty sections out."""
        if not isinstance(data, dict):
            return data
        full = dict(data)
        for section in cls.model_fields:
            if full.get(section) is None:
                full.pop(section, None)
        return full


def _variable(*parts: object) -> str:
    """Return the name of the variable that sets a key of a section."""
    return "_".join(("JUDGEKIT", *map(str, parts))).upper()


def _keys_by_variable() -> dict[str, tuple[str, str, object]]:
    keys = {}
    for section in KEYS:
        fields = type(getattr(Config(), section)).model_fields
        for key, field in fields.items():
            keys[_variable(section, key)] = (section, key, field.default)
    return keys


# Each variable with its section, key and default.
VARIABLES = _keys_by_variable()
_MODEL_VARIABLES = "JUDGEKIT_QUICK_MODEL, JUDGEKIT_DEEP_MODEL and JUDGEKIT_TIEBREAKER_MODEL"


@cache
def _read_user_only_settings() -> dict[str, Any]:
    """Return the settings that projects may not make; `project.toml` explains them."""
    return environment.table(__file__, "project.toml")


def user_file() -> Path:
    return Path(environment.SETTINGS.path())


def project_file(project: Path) -> Path:
    return project / ".judgekit" / "config.yaml"


def sources(project: Path | None) -> list[Path]:
    """Return every file that can change the configuration, whether it exists or not."""
    if project is None:
        return [user_file()]
    return list(map(Path, environment.configuration_files(str(project))))


def load(project: Path | None, environ: Mapping[str, str] | None = None) -> Config:
    """Load the effective configuration for `project`; raises `ConfigError` naming place and key."""
    variables = _variables(environ)
    merged = user = _merge(_read(user_file()), variables)
    if project is not None:
        merged = _merge(user, _within_limits(_read_project(project), user))
        # Fix these: a variable mustn't undo the project's additions, or redirect its questions.
        for section, key in (*CONSENTS, ("judge", "author_family"), ("judge", "independence")):
            variables.get(section, {}).pop(key, None)
    config = Config.model_validate(_merge(merged, variables))
    if project is not None and disabling_folder(config, project):
        return config.model_copy(
            update={"retrieval": config.retrieval.model_copy(update={"enabled": False})}
        )
    return config


def disabling_folder(config: Config, project: Path) -> str:
    """Return the folder of `retrieval.disabled_in` that a project is in, or is itself; "" if there's none."""
    for folder in config.retrieval.disabled_in:
        path = Path(os.path.expanduser(folder))  # noqa: PTH111 - raises nothing for an unknown user
        if project.resolve().is_relative_to(path.resolve()):
            return folder
    return ""


def explain_off(project: Path) -> str:
    """Name the file or variable that switches the prompt hook off in a project; "" if it's on there."""
    config = load(project)
    if config.retrieval.enabled:
        return ""
    folder = disabling_folder(config, project)
    where_by_key = {setting.key: setting.where for setting in explained(project)}
    where = where_by_key["retrieval.enabled"]
    if folder:
        return f"{where}: retrieval.disabled_in names {folder}"
    return f"{where}: retrieval.enabled is false"


class Setting(NamedTuple):
    """A key with its effective value, and the file or variable that sets it ("": none, it's the default)."""

    key: str
    value: object
    source: Literal["default", "user", "project", "environment"]
    where: str = ""


def explained(project: Path) -> list[Setting]:
    """List every effective setting in `project`; raises `ConfigError` as `load` does."""
    variables = _variables()
    user = _read(user_file())
    default = Config().model_dump()
    file = project_file(project)
    theirs = _read_project(project)
    allowed = _flat(_within_limits(theirs, _merge(user, variables)))
    accepted = {}
    for key, value in _flat(theirs).items():
        if allowed.get(key) == value:
            accepted[key] = value
    memory = project / environment.MEMORY / environment.MEMORY_CONFIG
    in_file = _flat(_read(file))
    config = load(project)
    settings = []
    # As layers have it: without defaults in lists.
    set_values = _flat(config.model_dump(exclude_unset=True))
    for key, value in _flat(config.model_dump()).items():
        section, _, name = key.partition(".")
        layers = (
            (_flat(variables), "environment", _variable(section, name)),
            (accepted, "project", file if key in in_file else memory),
            (_flat(user), "user", user_file()),
            (_flat(default), "default", ""),
        )
        setting = Setting(key, value, "project", str(file))  # of several places
        for layer, *source in layers:
            if key in layer and layer[key] == set_values.get(key, value):
                setting = Setting(key, value, *source)
                break
        settings.append(setting)
    if not disabling_folder(config, project):
        return settings
    by_key = {setting.key: setting for setting in settings}
    folders = by_key["retrieval.disabled_in"]
    by_key["retrieval.enabled"] = folders._replace(key="retrieval.enabled", value=False)
    return list(by_key.values())


def judge_without_effect(project: Path) -> str | None:
    """Warn if a project's own files ask for a judge of prompts that the user hasn't allowed; else None.

    Another tool's switch, `judge.enabled` in memory-config.json, is one of these. Raises `ConfigError`.
    """
    wanted = _read_project(project).get("retrieval", {}).get("judge")
    if wanted not in (True, "on") or load(project).retrieval.judge != "off":
        return None
    in_ours = "judge" in _read(project_file(project)).get("retrieval", {})
    memory = project / environment.MEMORY / environment.MEMORY_CONFIG
    if in_ours:
        where = f"{project_file(project)}: retrieval.judge"
    else:
        where = f"{memory}: judge.enabled"
    remedy = f"set retrieval.judge: project in your own configuration, {user_file()}"
    return f"{where} has no effect: a model sees your prompts only if you allow it; to allow it, {remedy}"


def _flat(layer: Layer) -> Layer:
    """Flatten a layer to dotted keys."""
    flat = {}
    for key, value in layer.items():
        if isinstance(value, dict):
            for name, inner in _flat(value).items():
                flat[f"{key}.{name}"] = inner
        else:
            flat[key] = value
    return flat


def wrong(section: str, key: str, problem: str, project: Path | None) -> ConfigError:
    """Build the error about a well-typed but unusable value, naming the file or variable that sets it."""
    variable = _variable(section, key)
    if environment.environ().get(variable):
        return ConfigError(problem, key=variable)
    for path in (project_file(project) if project else None, user_file()):
        if path is not None and key in _read(path).get(section, {}):
            return _make_error(path, f"{section}.{key}", problem)
    return ConfigError(problem, key=f"{section}.{key}")


def user_roots(environ: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the roots that the user names, which may be anywhere; None if the user names none."""
    layer = _merge(_read(user_file()), _variables(environ))
    roots: list[str] | None = layer.get("retrieval", {}).get("roots")
    return roots


def names_models(config: Config) -> bool:
    """Whether a user's own configuration names models: if so, a project's don't count."""
    return any(config.judge.tiers.model_dump().values())


def tiers_of_project(project: Path | None) -> frozenset[TierName]:
    """Return the tiers whose model a project's files name: not the user's choice, so no model is added."""
    if project is None or names_models(load(None)):
        return frozenset()
    models = _read_project(project).get("judge", {}).get("tiers", {})
    return frozenset(tier for tier in models if models[tier])


def _read(path: Path) -> Layer:
    if not path.is_file():
        return {}
    return yamlfile.read(path, Config, most=yamlfile.CONFIG_BYTES).model_dump(exclude_unset=True)


def _read_project(project: Path) -> Layer:
    """Read a project's files, and check that they only set what projects may set."""
    path = project_file(project)
    errors = []
    layer = _read(path) if yamlfile.check_own(path, project) else {}
    for key, what in _read_user_only_settings()["users"].items():
        section, _, rest = key.partition(".")
        if section in layer and (not rest or rest in layer[section]):
            problem = f"only the user's configuration may {what}; move this key to your own file"
            errors.append(_make_error(path, key, problem))
    rubrics = {}
    paths = [("retrieval.roots", root) for root in layer.get("retrieval", {}).get("roots", [])]
    for section in ("judge", "retrieval", "gate"):
        name = layer.get(section, {}).get("rubric", "")
        if name.endswith((".yaml", ".yml")):
            rubrics[section] = name
            paths.append((f"{section}.rubric", name))
    for key, name in paths:
        is_odd = name.startswith("~") or ":" in name or "\0" in name
        if is_odd or not (project / name).resolve().is_relative_to(project.resolve()):
            problem = "outside the project; only the user's configuration may name such a path"
            errors.append(_make_error(path, key, problem))
    for tier, models in layer.get("judge", {}).get("tiers", {}).items():
        if models and not _listed_models().issuperset(models):
            problem = (
                "no provider profile lists this model; choose a listed one (judgekit provider list)"
            )
            problem += ", or name it in the user's configuration"
            errors.append(_make_error(path, f"judge.tiers.{tier}", problem))
    if errors:
        raise ConfigError.of(errors)
    for section, name in rubrics.items():
        yamlfile.check_own(project / name, project)
        layer[section]["rubric"] = str(project.resolve() / name)
    return _merge(_memory_config(project), layer)


def list_reviewers(project: Path) -> list[str]:
    """List `gate.reviewers` from a project's own file; variables and other files don't count."""
    reviewers: list[str] = _read(project_file(project)).get("gate", {}).get("reviewers", [])
    return reviewers


def _make_error(path: Path, key: str, problem: str) -> ConfigError:
    """Build the error about a well-typed key that isn't allowed there."""
    line = yamlfile.line_of(yamlfile.load_yaml(path), tuple(key.split(".")))
    return ConfigError(problem, path=path, line=line, key=key)


def _within_limits(theirs: Layer, user: Layer) -> Layer:
    """Combine a project's layer with the user's limits and consent, which take precedence."""
    bounded = _merge({}, theirs)
    defaults = Config().model_dump()
    rules = _read_user_only_settings()
    for section, keys in rules["limits"].items():
        wanted = bounded.get(section, {})
        for key in wanted.keys() & keys:
            limit = defaults[section][key] if key in rules["sending"] else None
            limit = user.get(section, {}).get(key, limit)
            if limit is not None and (wanted[key] is None or wanted[key] > limit):
                wanted[key] = limit
    for section, key in CONSENTS:
        wanted = bounded.setdefault(section, {})
        consent = user.get(section, {}).get(key, "off")
        wanted[key] = wanted.get(key, "off") if consent == "project" else consent
    _limit_judge(bounded.get("judge", {}), user.get("judge", {}))
    _limit_gate(bounded.setdefault("gate", {}), user.get("gate", {}))
    if user.get("escalate", {}).get("issues") != "project":  # more issues than the user agreed to
        bounded["escalate"].pop("rejects", None)
    retrieval = bounded["retrieval"]
    allowed = user.get("retrieval", {}).get("tiers", ["quick"])
    if "tiers" in retrieval:
        retrieval["tiers"] = [tier for tier in retrieval["tiers"] if tier in allowed] or allowed
    return bounded


def _limit_judge(judge: Layer, user: Layer) -> None:
    """Restrict a project's `judge` settings to the limits of the user's."""
    # A larger margin sends more opinions up, a smaller one makes close ones final.
    judge.pop("margin", None)
    if user.get("independence") == "require":
        judge["independence"] = "require"
    if user.get("criteria", "together") == "together":  # no more calls
        judge.pop("criteria", None)
    if any(user.get("tiers", {}).values()):
        judge.pop("tiers", None)
    for tier, models in judge.get("tiers", {}).items():  # one for each tier
        if isinstance(models, list):
            judge["tiers"][tier] = models[:1]
    # A project can add families, but never remove any.
    if user.get("author_family") and "author_family" in judge:
        words = f"{user['author_family']},{judge['author_family'] or ''}".split(",")
        families = {}
        for word in reversed(list(map(str.strip, words))):
            if word and word.casefold() != "none":
                families[word.casefold()] = word
        joined = ", ".join(reversed(families.values()))
        judge["author_family"] = joined or user["author_family"]


def _limit_gate(gate: Layer, user: Layer) -> None:
    """Drop a project's `gate` settings if the user's own are stricter."""
    # A project's depth is weighed against the user's; asking for none changes nothing.
    for key in ("depth", "review"):
        if not gate.get(key):
            gate.pop(key, None)
    for key, strict in (("mode", "blocking"), ("undetermined", "block")):
        # A clone mustn't let pass what holds up the user's pushes.
        if user.get(key) == strict:
            gate.pop(key, None)


def _merge(below: Layer, above: Layer) -> Layer:
    """Merge `above` over `below`, section by section."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict):
            merged[key] = _merge(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


def _variables(environ: Mapping[str, str] | None = None) -> Layer:
    """Read the variables that set a key; a list is separated by commas."""
    if environ is None:
        environ = environment.environ()
    layer: Layer = {}
    for name, (section, key, default) in VARIABLES.items():
        value = environ.get(name)
        if not value:
            continue
        what = _read_user_only_settings()["users"].get(f"{section}.{key}")
        if what:
            raise ConfigError(f"no variable may {what}", key=name)
        if isinstance(default, TierModels):
            raise ConfigError(f"models are named by {_MODEL_VARIABLES}", key=name)
        keys = layer.setdefault(section, {})
        keys[key] = value.split(",") if isinstance(default, list) else value
    try:
        return Config.model_validate(layer).model_dump(exclude_unset=True)
    except ValidationError as error:
        errors = []
        for problem in problems(error.errors(include_url=False), layer, Config):
            variable = _variable(*problem.location[:2])
            errors.append(ConfigError(problem.text, key=variable))
        raise ConfigError.of(errors) from None


# `.claude/memory/memory-config.json`, another tool's settings, as a layer of ours. Keys that mean nothing
# here stay; a value of the wrong type is an error that names its key. A number that the other tool allows and
# we do not becomes the nearest that we do.


def _nearest(least: float, most: float) -> AfterValidator:
    return AfterValidator(lambda number: max(least, min(number, most)))


_UpTo20: TypeAlias = Annotated[int, _nearest(0, 20)]
_Pool: TypeAlias = Annotated[int, _nearest(1, 30)]
_Timeout: TypeAlias = Annotated[FiniteFloat, _nearest(0.1, 3600.0)]
_SCORERS = {"title_tags": "keyword", "fts5_bm25": "fts5"}


def _at(key: str) -> Any:  # noqa: ANN401 - as pydantic types a field
    """Declare a field for a dotted key of the section `retrieval`, or of the whole file."""
    path = key.split(".")
    places = AliasChoices(AliasPath("retrieval", *path), AliasPath(*path))
    return Field(None, validation_alias=places)


class _MemoryConfig(Strict, extra="ignore"):
    """Fields that we have too are called as ours are."""

    retrieval: dict[str, Any] = {}
    their_judge: dict[str, Any] | None = _at("judge")
    enabled: bool | None = _at("enabled")
    max_inject: _UpTo20 | None = _at("max_inject")
    scorer: Annotated[str, AfterValidator(_SCORERS.get)] | None = _at("match_strategy")
    judge: bool | None = _at("judge.enabled")
    model: str | None = _at("judge.model")
    timeout: _Timeout | None = _at("judge.timeout_per_call")
    fallback_top_k: _UpTo20 | None = _at("judge.fallback_top_k")
    pool: _Pool | None = _at("judge.candidate_pool_size")
    dual_verification: bool | None = _at("judge.dual_verification")
    conversation: bool | None = _at("judge.include_conversation_context")
    context_turns: _UpTo20 | None = _at("judge.context_turns")
    max_output: _UpTo20 | None = _at("judge.modes.auto.max_output")
    mode: ModeName | None = _at("judge.modes.auto.verification")
    search_mode: ModeName | None = _at("judge.modes.search.verification")


class _Listing(Strict, extra="ignore"):
    """The models listed in a provider profile."""

    models: dict[str, str | None] = {}


def _memory_config(project: Path) -> Layer:
    """Read these settings as a configuration layer: only the keys in the file, under our names."""
    path = project / environment.MEMORY / environment.MEMORY_CONFIG
    # A clone's store may be a link; a project can't speak for files elsewhere.
    is_inside = path.parent.resolve().is_relative_to(project.resolve())
    if not is_inside or not yamlfile.check_own(path, path.parent):
        return {}
    theirs = yamlfile.read(path, _MemoryConfig, most=yamlfile.CONFIG_BYTES)
    retrieval = theirs.model_dump(include=set(RetrievalConfig.model_fields), exclude_none=True)
    if theirs.max_output is not None:
        retrieval.setdefault("max_inject", theirs.max_output)
    if theirs.conversation is False:
        retrieval["context_turns"] = 0
    if theirs.dual_verification:
        retrieval["rubric"] = "memory-two-criteria"
    layer: Layer = {"retrieval": retrieval}
    if theirs.model is not None and theirs.model in _listed_models():
        layer["judge"] = {"tiers": {"quick": theirs.model}}
    return layer


def _listed_models() -> set[str]:
    """Return all models listed in provider profiles: a project may choose among them."""
    models = set[str]()
    for path in files.profile_files():
        listing = yamlfile.read(path, _Listing, version_key="provider")
        models.update(filter(None, listing.models.values()))
    return models
