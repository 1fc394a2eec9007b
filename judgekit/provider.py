"""Provider profiles: how a model is reached, as data.

Profiles come from the user's configuration folder and the bundled ones, never from a project: a clone
must not be able to say where text or keys are sent.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

from pydantic import Field, JsonValue, RootModel, StringConstraints, model_validator

from judgekit.datafile import Strict
from judgekit.rubric import Identifier, Text, TierName

if TYPE_CHECKING:
    from collections.abc import Mapping

OutputMode: TypeAlias = Literal["json_schema", "json_object", "tool", "text"]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
Family = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]


class Detect(Strict):
    """What shows that a provider can be used here; everything that is named must hold.

    `env` holds groups of variables: all of one group must be set and not empty, the first group that is
    decides. `named` holds further groups that count only when the user asks for this provider or a model
    of it: credentials that are commonly there for other purposes. `port` is a local server's, `command` a
    program on PATH, `module` an importable package.
    """

    env: list[list[Variable]] = []
    named: list[list[Variable]] = []
    port: int | None = Field(default=None, gt=0, lt=65536)
    command: Text | None = None
    module: Text | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Detect:
        if not (self.env or self.named or self.port or self.command or self.module):
            raise ValueError("name at least one of env, named, port, command, module")
        return self


class Models(Strict):
    """The model of each tier, as litellm names it; empty for a server whose models are asked for."""

    quick: Text | None = None
    deep: Text | None = None
    tiebreaker: Text | None = None

    @cached_property
    def by_tier(self) -> dict[TierName, str]:
        """The tiers that have a model."""
        named: dict[TierName, str | None] = {
            "quick": self.quick,
            "deep": self.deep,
            "tiebreaker": self.tiebreaker,
        }
        return {tier: model for tier, model in named.items() if model is not None}


class Price(Strict):
    """US dollars per million tokens, where litellm knows no price."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class Limits(Strict):
    """What the provider bears: calls at a time, and characters of a prompt; absent where it sets no bound."""

    concurrency: int | None = Field(default=None, gt=0)
    context_chars: int | None = Field(default=None, gt=0)


class _Profile(Strict):
    provider: Identifier
    title: Text
    rank: int = Field(default=100, description="order of detection, lowest first; ties go by name")
    family: Family | None = Field(
        default=None, description="who trained its models; absent where it serves models of several"
    )
    families: dict[Text, Family] = Field(
        default={}, description="family by the beginning of a bare model name"
    )
    detect: Detect
    models: Models = Models()
    output: OutputMode = Field(description="how a reply is held to a JSON Schema")
    outputs: dict[Text, OutputMode] = Field(
        default={}, description="output mode by the beginning of a bare model name, where it differs"
    )
    limits: Limits = Limits()
    price: dict[Text, Price] = Field(default={}, description="by the beginning of a bare model name")
    notes: Text | None = None

    def output_of(self, model: str) -> OutputMode:
        """Return how a reply of `model` is held to a schema."""
        return by_beginning(self.outputs, self.bare_name(model), self.output)

    def price_of(self, model: str) -> Price | None:
        """Return what `model` costs where litellm does not know it."""
        return by_beginning(self.price, self.bare_name(model), None)

    def bare_name(self, model: str) -> str:
        """Return `model` as the tables of this profile name it."""
        return model


class LitellmProfile(_Profile):
    """An API, a LiteLLM proxy or any OpenAI-compatible server."""

    kind: Literal["litellm"]
    prefix: Text = Field(description="how the full names of its models begin, as in 'anthropic/'")
    client: Text | None = Field(
        default=None, description="litellm's provider that is called, where the prefix is not its name"
    )
    models_path: Text | None = Field(
        default=None, description="where under the address its models are listed"
    )
    key: list[Variable] = Field(default=[], description="variables that may hold the key, first set wins")
    base: Text | None = Field(default=None, description="address, where no variable of base_env is set")
    base_env: list[Variable] = Field(default=[], description="variables that may hold the address")
    models_env: Models = Field(default=Models(), description="variables that may name the model of a tier")
    parameters: dict[Text, list[Variable]] = Field(
        default={},
        description="further litellm arguments and the variables each is read from, first set wins",
    )
    arguments: dict[Text, dict[str, JsonValue]] = Field(
        default={}, description="further litellm arguments by the beginning of a bare model name"
    )
    thinking: dict[Text, int] = Field(
        default={},
        description="tokens added to the limit of a reply for models that think before they answer and count "
        "it, by the beginning of a bare model name",
    )
    embedded: bool = Field(default=False, description="judgekit itself runs its server")
    pointwise: bool = Field(
        default=False, description="small local model with logprobs: asked once per candidate or dimension"
    )

    def full_name(self, model: str) -> str:
        """Return `model`, named without or with the prefix, as litellm names it."""
        return model if model.startswith(self.prefix) else self.prefix + model

    def bare_name(self, model: str) -> str:
        """Return `model` without litellm's prefix."""
        return model.removeprefix(self.prefix)


class CommandProfile(_Profile):
    """A program that reads the prompt on stdin and prints the reply."""

    kind: Literal["command"]
    argv: list[str] = Field(min_length=1, description="{model}, {system} and {schema} are replaced")
    reply: Literal["text", "json"] = "text"
    reply_key: Text | None = Field(default=None, description="where a JSON reply holds the text, dotted")
    keep_env: list[Variable] = Field(
        default=[], description="variables the program may see beside PATH and HOME"
    )
    set_env: dict[Variable, str] = Field(default={}, description="variables set for the program")


class ReplayProfile(_Profile):
    """A recording of earlier replies."""

    kind: Literal["replay"]


Profile: TypeAlias = LitellmProfile | CommandProfile | ReplayProfile


class ProfileFile(RootModel[Annotated[Profile, Field(discriminator="kind")]]):
    """A provider profile as it stands in a file."""


_Value = TypeVar("_Value")
_Default = TypeVar("_Default")


def by_beginning(table: Mapping[str, _Value], model: str, default: _Default) -> _Value | _Default:
    """Return the value of the longest key that `model` begins with, else `default`."""
    fitting = [key for key in table if model.startswith(key)]
    return table[max(fitting, key=len)] if fitting else default
