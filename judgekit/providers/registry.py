"""Provider profiles: how to reach a model, as data, and where to find the profiles.

Profiles come from the user's configuration folder and from the bundle, never from a project: a clone must
not decide where text or keys are sent.
"""

from __future__ import annotations

import re
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, JsonValue, RootModel, StringConstraints, model_validator

from judgekit import environment
from judgekit.config import TIERS, TierName, files, yamlfile
from judgekit.config.yamlfile import Identifier, Strict, Text
from judgekit.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

OutputMode: TypeAlias = Literal["json_schema", "json_object", "tool", "text"]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
Value = TypeVar("Value")
Default = TypeVar("Default")

# Placeholders that a command profile may use in its arguments, files and variables.
PLACEHOLDERS = ("model", "model_json", "system", "system_json", "schema", "schema_file", "folder")


def _check_relative(path: str) -> str:
    """Return `path`, or raise `ValueError` if it could lead out of its folder."""
    starts_elsewhere = path.startswith(("/", "~", "\\"))
    has_drive = ":" in path  # as in `C:` on Windows
    goes_up = ".." in path.split("/")
    if starts_elsewhere or has_drive or goes_up:
        raise ValueError("expected a path inside the run's folder, such as home/settings.json")
    return path


RelativePath = Annotated[Text, AfterValidator(_check_relative)]


class Detect(Strict):
    """The signs that a provider can be used here. All of those given must hold.

    `env` holds groups of variables that must be set. Variables in `named` serve other purposes too, so they
    only count when the user asks for this provider.
    """

    env: list[list[Variable]] = []
    named: list[list[Variable]] = []
    port: int | None = Field(None, gt=0, lt=65536)
    command: Text | None = None
    module: Text | None = None


class Models(Strict):
    """The model of each tier, under litellm's name; empty for a server that lists its own."""

    quick: Text | None = None
    deep: Text | None = None
    tiebreaker: Text | None = None

    @property
    def by_tier(self) -> dict[TierName, str]:
        """The models by tier, skipping tiers without one."""
        models = {}
        for tier in TIERS:
            model = getattr(self, tier)
            if model:
                models[tier] = model
        return models


class Price(Strict):
    """US dollars per million tokens, if litellm has no price. By default cached ones cost the same."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(None, ge=0)
    cache_write: float | None = Field(None, ge=0)

    def compute_cost(
        self, prompt_tokens: int, reply_tokens: int, cache_read: int = 0, cache_write: int = 0
    ) -> float:
        """Compute a call's cost in US dollars. `prompt_tokens` include cached tokens."""
        read_price = self.input if self.cache_read is None else self.cache_read
        write_price = self.input if self.cache_write is None else self.cache_write
        prompt_cost = (prompt_tokens - cache_read - cache_write) * self.input
        cache_cost = cache_read * read_price + cache_write * write_price
        return (prompt_cost + reply_tokens * self.output + cache_cost) / 1e6


class Limits(Strict):
    """The provider's limits: calls at once and per minute, characters in a prompt. Unset means no limit.

    `thinking_tokens` are added to a reply's limit for models that think; if unset, once one is seen to.
    `questions` is the most a decision model takes per request; if unset, 128, or the number it names.
    """

    concurrency: int | None = Field(None, gt=0)
    requests_per_minute: int | None = Field(None, gt=0)
    context_chars: int | None = Field(None, gt=0)
    thinking_tokens: int | None = Field(None, ge=0, le=1_000_000)
    questions: int | None = Field(None, gt=0, le=128)


class _Profile(Strict):
    provider: Identifier
    title: Text
    rank: int = Field(100, description="order of detection, lowest first; ties by name")
    family: Identifier | None = Field(
        None, description="family of its models; absent if it serves several"
    )
    families: dict[Text, Identifier] = Field(
        {}, description="family by prefix of the bare model name"
    )
    detect: Detect
    models: Models = Models()
    output: OutputMode = Field(description="how a reply is held to a JSON Schema")
    outputs: dict[Text, OutputMode] = Field(
        {}, description="output mode by prefix of the model name"
    )
    limits: Limits = Limits()
    price: dict[Text, Price] = Field({}, description="by the beginning of a bare model name")
    notes: Text | None = None

    def look_up_model(
        self, table: Mapping[str, Value], model: str, default: Default
    ) -> Value | Default:
        """Look up a model in a table whose keys are beginnings of model names, such as `gpt-4`.

        The longest matching key wins. If none matches, return `default`.
        """
        bare_name = model
        if isinstance(self, ApiProfile):
            bare_name = model.removeprefix(self.prefix)
        matching_keys = [key for key in table if bare_name.startswith(key)]
        if not matching_keys:
            return default
        return table[max(matching_keys, key=len)]


class ApiProfile(_Profile):
    """A provider called over HTTP with a key."""

    prefix: Text = Field(description="prefix of the full names of its models, such as 'anthropic/'")
    client: Text | None = Field(
        None, description="litellm's name, where it differs from the prefix"
    )
    models_path: Text | None = Field(
        None, description="path that lists the models, below the address"
    )
    key: list[Variable] = Field([], description="variables that may hold the key, first set wins")
    base: Text | None = Field(None, description="address, where no variable of base_env is set")
    base_env: list[Variable] = Field(
        [],
        description="variables that may hold the address, beside VENDOR_API_BASE and VENDOR_BASE_URL of a "
        "VENDOR_API_KEY in `key`",
    )
    base_adds: Text | None = Field(
        None, description="what an address from a variable gets if it names no version, such as /v1"
    )
    base_drops: Text | None = Field(
        None, description="ending of an address from a variable that is left out"
    )
    models_env: Models = Field(Models(), description="variables that may name the model of a tier")
    parameters: dict[Text, list[Variable]] = Field(
        {}, description="litellm's arguments, variables of each"
    )
    states_cost: bool = Field(default=False, description="its replies state their cost")

    @property
    def address_variables(self) -> list[str]:
        """The environment variables that can contain the address. The first one that's set counts."""
        # Also include the vendor's conventional variables, such as OPENAI_BASE_URL. If a company has set one
        # to the address of its gateway, we must not bypass that.
        variables = list(self.base_env)
        for key_variable in self.key:
            if key_variable.endswith("_API_KEY"):
                vendor = key_variable.removesuffix("_API_KEY")
                variables += [f"{vendor}_API_BASE", f"{vendor}_BASE_URL"]
        return list(dict.fromkeys(variables))  # without duplicates

    def address_in(self, environ: Mapping[str, str]) -> str | None:
        """Return the address in the first variable that's set, normalised, or None."""
        for name in self.address_variables:
            address = environ.get(name, "").strip()
            if address:
                return self._normalise_address(address)
        return None

    def _normalise_address(self, address: str) -> str:
        """Remove the suffix `base_drops`, and append `base_adds` unless there's a version such as `/v1`."""
        # A slash at the end would be in the way of both.
        if self.base_adds or self.base_drops:
            address = address.removesuffix("/")
        if self.base_drops:
            address = address.removesuffix(self.base_drops)
        has_version = _VERSION_SUFFIX_PATTERN.search(address) is not None
        if self.base_adds and not has_version:
            address += self.base_adds
        return address


class LitellmProfile(ApiProfile):
    """A chat API, a LiteLLM proxy or any OpenAI-compatible server."""

    kind: Literal["litellm"]
    arguments: dict[Text, dict[str, JsonValue]] = Field(
        {}, description="further litellm arguments by the beginning of a bare model name"
    )
    thinking: dict[Text, int] = Field(
        {}, description="tokens for thinking, by start of a bare name"
    )
    reads_reasoning: bool = Field(
        default=False,
        description="an answer may stand where the thoughts of a model do, beside no other",
    )
    prompt_caching: bool = Field(
        default=False, description="mark the prompts' shared beginning for a cache"
    )
    logprobs: bool | dict[Text, bool] = Field(
        default=False,
        description="replies bring token probabilities: all, or by start of a bare name",
    )
    batches: float | None = Field(
        None,
        ge=0,
        le=1,
        description="it has batches like OpenAI's, for this share of the usual price",
    )
    embedded: bool = Field(default=False, description="judgekit runs the server")
    pointwise: bool = Field(
        default=False, description="small model with logprobs, asked once per item"
    )


class DecisionsProfile(ApiProfile):
    """A service of decision models, which answer typed questions with probabilities and write nothing."""

    kind: Literal["decisions"]
    output: OutputMode = Field("text", description="has no meaning here: no reply is written")
    own_server: bool = Field(
        default=False, description="a server of the user's own, which is free on this machine"
    )
    writers: Identifier | None = Field(
        None, description="provider with the same key whose models write: they fill the other tiers"
    )


class CommandUsage(Strict):
    """The keys to a call's usage in a program's JSON; several keys of one kind are added up."""

    where: dict[Text, JsonValue] = Field(
        {}, description="what the line of jsonl with the usage must contain"
    )
    input: list[Text] = Field(
        [], description="tokens of the prompt, those read from a cache included"
    )
    output: list[Text] = Field([], description="tokens of the reply")
    cache_read: list[Text] = Field(
        [], description="tokens of the prompt that were read from a cache"
    )
    cache_write: list[Text] = Field([], description="tokens of the prompt written to a cache")
    cost: Text | None = Field(None, description="US dollars")


class CommandProfile(_Profile):
    """A program that reads the prompt from stdin and prints the reply, run in an empty folder.

    A JSON key is dotted; each part is a name, the index of a list's item, or `*` for all items.
    """

    kind: Literal["command"]
    argv: list[str] = Field(
        min_length=1,
        description="{model}, {system}, {schema}, {schema_file} and {folder} are replaced; an argument is "
        "left out where there is no schema, or no model but 'default', to put into it",
    )
    reply: Literal["text", "json", "jsonl"] = Field(
        "text", description="what is printed: the reply, one JSON value, or one a line"
    )
    reply_file: RelativePath | None = Field(
        None, description="file beside the folder that holds the reply"
    )
    reply_key: Text | None = Field(None, description="key of the reply's text in JSON")
    reply_where: dict[Text, JsonValue] = Field(
        {}, description="what the reply must hold; of jsonl the last"
    )
    model_key: Text | None = Field(None, description="key of the model's name in JSON")
    usage: CommandUsage | None = None
    files: dict[RelativePath, str] = Field(
        {},
        description="files that are laid beside the empty folder, with the placeholders of argv and, for "
        "JSON, {model_json} and {system_json} replaced",
    )
    links: dict[RelativePath, list[Text]] = Field(
        {},
        description="files of the user's that the program may use and change, such as a sign-in: the first "
        "that exists; they begin with ~/ or with a variable of keep_env, as in $CODEX_HOME/",
    )
    keep_env: list[Variable] = Field(
        [], description="variables the program may see beside PATH and HOME"
    )
    set_env: dict[Variable, str] = Field(
        {}, description="variables set for it; {folder} is replaced"
    )

    @model_validator(mode="after")
    def _can_be_run_and_read(self) -> CommandProfile:
        """Raise `ValueError` if the fields don't fit each other."""
        if self.detect.command is None:
            raise ValueError("a command needs detect.command, the program that must be on PATH")
        if self.reply == "jsonl" and not self.reply_key:
            raise ValueError("reply: jsonl needs reply_key, where a line holds the text")
        reads_json = self.reply_key or self.reply_where or self.model_key or self.usage
        if self.reply == "text" and reads_json:
            raise ValueError(
                "reply_key, reply_where, model_key and usage need reply: json or jsonl"
            )
        self._check_placeholders()
        self._check_links()
        return self

    def _check_placeholders(self) -> None:
        """Raise `ValueError` for an unknown placeholder."""
        for text in (*self.argv, *self.files.values(), *self.set_env.values()):
            for name in re.findall(r"\{([a-z_]+)\}", text):
                if name not in PLACEHOLDERS:
                    raise ValueError(
                        f"no placeholder {{{name}}}; there are {', '.join(PLACEHOLDERS)}"
                    )

    def _check_links(self) -> None:
        """Raise `ValueError` if a linked file is neither in `~` nor in a folder that `keep_env` names."""
        for source in chain.from_iterable(self.links.values()):
            first_part, _, _ = source.partition("/")  # such as `~` or `$XDG_CONFIG_HOME`
            variable = first_part.removeprefix("$")
            is_allowed = source.startswith("~/") or variable in self.keep_env
            if not is_allowed:
                raise ValueError(
                    f"links: {source!r} begins neither with ~/ nor with a variable of keep_env"
                )


class ReplayProfile(_Profile):
    """A recording of earlier replies."""

    kind: Literal["replay"]


AnyApi: TypeAlias = LitellmProfile | DecisionsProfile
Profile: TypeAlias = AnyApi | CommandProfile | ReplayProfile


class ProfileFile(RootModel[Annotated[Profile, Field(discriminator="kind")]]):
    """A provider profile as a file holds it."""


_VERSION_SUFFIX_PATTERN = re.compile(r"/v\d\w*$")
_WORDS_BY_FAMILY = environment.read_toml(__file__, "families.toml")
UNKNOWN_FAMILY = "unknown"
# Users know this provider by its models' prefix.
_PROVIDER_BY_ALIAS = {"custom": "openai-compatible"}


def list_profiles() -> list[Profile]:
    """List all profiles in the order of detection; raises `ConfigError` if a file is invalid."""
    profiles = []
    for path in files.profile_files():
        profile = yamlfile.read_model(path, ProfileFile, version_key="provider").root
        name = profile.provider
        if path.stem != name:
            raise ConfigError(f"holds {name}; name the file {name}.yaml", path=path, key="provider")
        profiles.append(profile)
    return sorted(profiles, key=attrgetter("rank", "provider"))


def find(name: str) -> Profile:
    """Return the profile with this provider name or alias; raises `UsageError` if there's none."""
    profile_by_name = {profile.provider: profile for profile in list_profiles()}
    profile = profile_by_name.get(resolve_alias(name))
    if profile is None:
        raise UsageError(f"no provider {name!r}; there are: {', '.join(profile_by_name)}")
    return profile


def resolve_alias(name: str) -> str:
    """Return the provider name for an alias, or any other name unchanged."""
    return _PROVIDER_BY_ALIAS.get(name, name)


def guess_family(model: str) -> str:
    """Return a model's family, judging by the words in its name, or "unknown"."""
    # Try the part after the last slash first, because the parts before can be folders with any name.
    _, _, last_part = model.rpartition("/")
    for name in (last_part, model):
        for family, words in _WORDS_BY_FAMILY.items():
            # A word can follow a digit or a hyphen, but not a letter.
            if re.search(rf"(?<![a-z])(?:{words})", name.lower()):
                return family
    return UNKNOWN_FAMILY
