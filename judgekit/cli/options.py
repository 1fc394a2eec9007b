"""The options that several commands take, declared once, and the checks of what is given."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from judgekit.cli.output_files import into_file, page_file
from judgekit.config import ModeName
from judgekit.errors import UsageError


def ask_only(model: str) -> str:
    """Have one model asked in every tier, here and in the engine; raises `UsageError` for an empty name."""
    check_filled("--model", "a model such as anthropic/claude-haiku-5-5", model)
    os.environ["JUDGEKIT_ONLY_MODEL"] = model
    return model


def finite(given: float | None) -> float | None:
    """Return a number that was given; raises `typer.BadParameter` for an infinite one and for NaN."""
    if given is not None and not math.isfinite(given):
        raise typer.BadParameter(f"expected a number, got {given:g}")
    return given


RubricOption = Annotated[
    str | None, Option("--rubric", help="Rubric: ID, ID@VERSION or a YAML file.")
]
_MODE = Option("--mode", help="strict avoids wrong acceptance, lenient wrong rejection.")
ModeOption = Annotated[ModeName | None, _MODE]
_MODEL = Option("--model", metavar="NAME", parser=ask_only, help="Model to ask in every tier.")
ModelOption = Annotated[str | None, _MODEL]
_HTML = Option("--html", metavar="FILE.html", callback=page_file, help="Also write a page.")
HtmlOption = Annotated[Path | None, _HTML]
_OUT = Option(
    "--out", metavar="FILE", callback=into_file, help="Write the result to this file, at once."
)
OutOption = Annotated[Path | None, _OUT]
NoCache = Annotated[bool, Option("--no-cache", help="Do not use cached replies.")]
NoEngine = Annotated[bool, Option("--no-engine", help="Judge in this process, without the engine.")]
ShowPrompt = Annotated[bool, Option("--show-prompt", help="Print the prompts; send nothing.")]
_REPEAT = Option(
    min=1, max=20, help="Ask about each case so often; count flips, and how far scores move."
)
Repeat = Annotated[int, _REPEAT]
_KEEP = Option(
    "--keep", help="With --repeat: keep the noise, for the gate to say which verdicts are within."
)
Keep = Annotated[bool, _KEEP]
_DEADLINE = Option(
    min=0.1, max=3600, callback=finite, help="Time limit of each judgement, in seconds."
)
Deadline = Annotated[float | None, _DEADLINE]
_COST = Option(
    min=0, callback=finite, metavar="USD", help="Stop calling models after spending this (USD)."
)
MaxCost = Annotated[float | None, _COST]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
FAMILY = ("--author-family", "a family such as anthropic")


def check_filled(option: str, expected: str, *given: str | None) -> None:
    """Raise `UsageError` for an option that is given and empty, as where a script's variable is unset."""
    if any(value is not None and not value.strip() for value in given):
        raise UsageError(f"{option}: expected {expected}, got nothing; is a variable unset?")
