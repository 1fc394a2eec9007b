"""Provider profiles: how a model is reached, as data.

Profiles come from the user's configuration folder and the bundled ones, never from a project: a clone
must not be able to say where text or keys are sent.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from judgekit.datafile import Strict
from judgekit.rubric import Identifier, Text

OutputMode: TypeAlias = Literal["json_schema", "json_object", "tool", "text"]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
Family = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]


class Detect(Strict):
    """What shows that a provider can be used here.

    All variables of one group in `env` must be set and not empty; the first group that is decides.
    `port` is a local server's, `command` a program on PATH, `module` an importable extra.
    """

    env: list[list[Variable]] = []
    port: int | None = Field(default=None, gt=0, lt=65536)
    command: Text | None = None
    module: Text | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Detect:
        if not (self.env or self.port or self.command or self.module):
            raise ValueError("name at least one of env, port, command, module")
        return self


class Models(Strict):
    """The model of each tier, as litellm names it; empty for a server whose models are asked for."""

    quick: Text | None = None
    deep: Text | None = None
    tiebreaker: Text | None = None


class Price(Strict):
    """US dollars per million tokens, where litellm knows no price."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class Limits(Strict):
    """What the provider bears: calls at a time, and characters of a prompt."""

    concurrency: int = Field(default=8, gt=0)
    context_chars: int | None = Field(default=None, gt=0)
    max_output_tokens: int = Field(default=2048, gt=0)


class _Profile(Strict):
    provider: Identifier
    title: Text
    family: Family
    families: dict[Text, Family] = Field(
        default={}, description="family by the beginning of a model's name, for providers that serve several"
    )
    detect: Detect
    models: Models = Models()
    output: OutputMode
    outputs: dict[Text, OutputMode] = Field(
        default={}, description="output mode by the beginning of a model's name, where it differs"
    )
    limits: Limits = Limits()
    price: dict[Text, Price] = {}
    notes: Text | None = None


class LitellmProfile(_Profile):
    """An API, a LiteLLM proxy or any OpenAI-compatible server."""

    kind: Literal["litellm"]
    key: list[Variable] = Field(default=[], description="variables that may hold the key, first set wins")
    base: Text | None = Field(default=None, description="address, where it is fixed")
    base_env: list[Variable] = Field(default=[], description="variables that may hold the address")
    parameters: dict[Text, Variable] = Field(
        default={}, description="further litellm arguments and the variable each is read from"
    )
    pointwise: bool = Field(
        default=False, description="small local model with logprobs: asked once per candidate or dimension"
    )
    prefix: str = Field(default="", description="put before the model names that the server itself lists")


class CommandProfile(_Profile):
    """A program that reads the prompt on stdin and prints the reply."""

    kind: Literal["command"]
    argv: list[Text] = Field(min_length=1, description="{model} and {system} are replaced")
    reply: Literal["text", "json"] = "text"
    reply_key: Text | None = Field(default=None, description="where a JSON reply holds the text, dotted")
    keep_env: list[Variable] = Field(
        default=[], description="variables the program may see beside PATH and HOME"
    )


Profile: TypeAlias = LitellmProfile | CommandProfile
