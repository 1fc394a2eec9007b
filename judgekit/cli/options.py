"""The options that several commands share, and the checks of their values."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from judgekit.cli.output_files import check_page, write_results_to
from judgekit.config import ModeName
from judgekit.errors import UsageError


def ask_only(model: str) -> str:
    """Use only this model for every tier, also in the engine; raises `UsageError` for an empty name."""
    check_filled("--model", "a model such as anthropic/claude-haiku-5-5", model)
    os.environ["JUDGEKIT_ONLY_MODEL"] = model
    return model


def check_finite(number: float | None) -> float | None:
    """Return an option's number if it's finite, else raise `typer.BadParameter`."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"expected a number, got {number:g}")
    return number


RubricOption = Annotated[
    str | None, Option("--rubric", help="Rubric: ID, ID@VERSION or a YAML file.")
]
_MODE_OPTION = Option("--mode", help="strict avoids wrong acceptance, lenient wrong rejection.")
ModeOption = Annotated[ModeName | None, _MODE_OPTION]
_MODEL_OPTION = Option(
    "--model", metavar="NAME", parser=ask_only, help="Model to ask in every tier."
)
ModelOption = Annotated[str | None, _MODEL_OPTION]
_RUBRICS_OPTION = Option("--rubric", help="Rubric: ID, ID@VERSION or a YAML file; of rows several.")
RubricsOption = Annotated[list[str] | None, _RUBRICS_OPTION]
_MODELS_OPTION = Option(
    "--model",
    metavar="NAME",
    parser=ask_only,
    help="Model to ask in every tier; of rows several.",
)
ModelsOption = Annotated[list[str] | None, _MODELS_OPTION]
_HTML_OPTION = Option("--html", metavar="FILE.html", callback=check_page, help="Also write a page.")
HtmlOption = Annotated[Path | None, _HTML_OPTION]
_OUT_OPTION = Option(
    "--out",
    metavar="FILE",
    callback=write_results_to,
    help="Write the result to this file, at once.",
)
OutOption = Annotated[Path | None, _OUT_OPTION]
NoCache = Annotated[bool, Option("--no-cache", help="Do not use cached replies.")]
NoEngine = Annotated[bool, Option("--no-engine", help="Judge in this process, without the engine.")]
ShowPrompt = Annotated[bool, Option("--show-prompt", help="Print the prompts; send nothing.")]
_ESTIMATE_OPTION = Option(
    "--estimate", help="Print calls, tokens, cost and minutes that it would take; send nothing."
)
Estimate = Annotated[bool, _ESTIMATE_OPTION]
_REPEAT_OPTION = Option(
    min=1, max=20, help="Ask about each case so often; count flips, and how far scores move."
)
Repeat = Annotated[int, _REPEAT_OPTION]
_BASE_FOLDER_OPTION = Option(
    metavar="DIR", help="Read the files that cases name in this folder, not in that of the cases."
)
Base = Annotated[Path | None, _BASE_FOLDER_OPTION]
_KEEP_OPTION = Option(
    "--keep", help="With --repeat: keep the noise, for the gate to say which verdicts are within."
)
Keep = Annotated[bool, _KEEP_OPTION]
_DEADLINE_OPTION = Option(
    min=0.1, max=3600, callback=check_finite, help="Time limit of each judgement, in seconds."
)
Deadline = Annotated[float | None, _DEADLINE_OPTION]
_MAX_COST_OPTION = Option(
    min=0,
    callback=check_finite,
    metavar="USD",
    help="Stop calling models after spending this (USD).",
)
MaxCost = Annotated[float | None, _MAX_COST_OPTION]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
AUTHOR_FAMILY_FLAG = ("--author-family", "a family such as anthropic")


def check_filled(option: str, expected: str, *values: str | None) -> None:
    """Raise `UsageError` for an empty option value, as from an unset variable in a script."""
    if any(value is not None and not value.strip() for value in values):
        raise UsageError(f"{option}: expected {expected}, got nothing; is a variable unset?")
