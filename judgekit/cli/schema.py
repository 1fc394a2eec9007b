"""`judgekit schema`: the JSON Schemas of what judgekit reads and writes."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from judgekit.cli.output import emit


class Name(enum.StrEnum):
    """The published schemas."""

    VERDICT = "verdict"
    COMPARISON = "comparison"
    RUBRIC = "rubric"
    PROVIDER = "provider"
    RETRIEVAL = "retrieval"
    CONFIG = "config"
    LEDGER = "ledger"
    CALIBRATION = "calibration"


def schema(name: Annotated[Name, typer.Argument(help="Which schema.")]) -> int:
    """Print a JSON Schema (draft 2020-12)."""
    from judgekit.cli.schemas import json_schema

    emit(json.dumps(json_schema(name.value), indent=2))
    return 0
