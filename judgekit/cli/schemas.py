"""The published JSON Schemas, made from the models that validate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from judgekit.config.settings import Config
from judgekit.judging.calibration import Calibration
from judgekit.judging.comparison import Comparison
from judgekit.judging.verdict import Verdict
from judgekit.ledger.records import Line
from judgekit.providers.registry import ProfileFile
from judgekit.retrieval.profiles import RetrievalProfileFile as RetrievalFile
from judgekit.rubric.schema import RubricFile

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_MODELS: dict[str, type[BaseModel]] = {
    "verdict": Verdict,
    "comparison": Comparison,
    "rubric": RubricFile,
    "provider": ProfileFile,
    "retrieval": RetrievalFile,
    "config": Config,
    "ledger": Line,
    "calibration": Calibration,
}


def json_schema(
    name: Literal[
        "verdict", "comparison", "rubric", "provider", "retrieval", "config", "ledger", "calibration"
    ],
) -> dict[str, Any]:
    """Return the JSON Schema called `name`."""
    # What is written has every key; what is read may leave out the ones with a default.
    written = name in ("verdict", "comparison")
    mode: Literal["serialization", "validation"] = "serialization" if written else "validation"
    return {"$schema": DIALECT, **_MODELS[name].model_json_schema(by_alias=True, mode=mode)}
