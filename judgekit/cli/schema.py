"""`judgekit schema`: the JSON Schemas of what judgekit reads and writes, from the models that validate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from judgekit.cli.output import emit

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    name: Annotated[
        Literal[
            "verdict", "comparison", "rubric", "provider", "retrieval", "config", "ledger", "calibration"
        ],
        typer.Argument(help="Which schema."),
    ],
) -> int:
    """Print a JSON Schema (draft 2020-12)."""
    emit(json.dumps(json_schema(name), indent=2))
    return 0


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema called `name`."""
    from judgekit.config.settings import Config
    from judgekit.judging.calibration import Calibration
    from judgekit.judging.verdict import Comparison, Verdict
    from judgekit.ledger.records import Line
    from judgekit.providers.registry import ProfileFile
    from judgekit.retrieval.profiles import RetrievalProfileFile
    from judgekit.rubric.schema import RubricFile

    models: dict[str, type[BaseModel]] = {
        "verdict": Verdict,
        "comparison": Comparison,
        "rubric": RubricFile,
        "provider": ProfileFile,
        "retrieval": RetrievalProfileFile,
        "config": Config,
        "ledger": Line,
        "calibration": Calibration,
    }
    # What is written has every key; what is read may leave out the ones with a default.
    written = name in ("verdict", "comparison")
    schema = models[name].model_json_schema(by_alias=True, mode="serialization" if written else "validation")
    return {"$schema": DIALECT, **schema}
