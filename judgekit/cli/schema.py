"""`judgekit schema`: JSON Schemas of the files we read and write, from the models that validate them."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Annotated, Any, Literal

import typer

from judgekit.cli.options import OutOption
from judgekit.cli.output import emit

_MODEL_PATH_BY_NAME = {
    "verdict": "judging.verdict.Verdict",
    "comparison": "judging.verdict.Comparison",
    "rubric": "rubric.schema.RubricFile",
    "provider": "providers.registry.ProfileFile",
    "retrieval": "retrieval.profiles.RetrievalProfileFile",
    "config": "config.settings.Config",
    "ledger": "ledger.records.Line",
    "gate": "gate.record.GateRecord",
    "calibration": "judging.calibration.Calibration",
}
Name = Literal[
    "verdict",
    "comparison",
    "rubric",
    "provider",
    "retrieval",
    "config",
    "ledger",
    "calibration",
    "gate",
]


def schema(
    name: Annotated[Name, typer.Argument(help="Which schema.")], _out: OutOption = None
) -> None:
    """Print a JSON Schema (draft 2020-12)."""
    emit(json.dumps(build_json_schema(name), indent=2))


def build_json_schema(name: str) -> dict[str, Any]:
    """Build the JSON Schema of a model by its name in this module."""
    module_name, _, class_name = _MODEL_PATH_BY_NAME[name].rpartition(".")
    model_class = getattr(import_module(f"judgekit.{module_name}"), class_name)

    is_output = name in ("verdict", "comparison", "gate")
    # Our output has every key, but in files that we read, keys with a default may be missing.
    mode = "serialization" if is_output else "validation"
    fields = model_class.model_json_schema(by_alias=True, mode=mode)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **fields}
