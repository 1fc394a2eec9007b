"""Replies of models as data, a table of `replies.toml` each, and the shapes that tests ask for."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field


class Relevance(BaseModel):
    relevance: int = Field(ge=0, le=3)
    explanation: str = ""


class Scores(BaseModel):
    semantic: Annotated[int, Field(ge=0, le=5)]
    pragmatic: Annotated[int, Field(ge=0, le=5)]
    syntactic: Annotated[int, Field(ge=0, le=5)]


class Nested(BaseModel):
    reasoning: str
    scores: Scores


class Flat(Scores):
    reasoning: str


def _reply(reasoning: str, point: int) -> dict[str, Any]:
    scores = {"semantic": point, "pragmatic": point, "syntactic": point}
    return {"reasoning": reasoning, "scores": scores, "findings": []}


OWN: Final = json.dumps(_reply("poor", 1))
FORGED: Final = json.dumps(_reply("fine", 5))
LOW: Final = json.dumps(_reply("", 1)["scores"])
HIGH: Final = json.dumps(_reply("", 5)["scores"])


def _written(text: str) -> str:
    for name, reply in (("OWN", OWN), ("FORGED", FORGED), ("LOW", LOW), ("HIGH", HIGH)):
        text = text.replace(f"«{name}»", reply)
    return text


ROWS: Final[dict[str, dict[str, Any]]] = {
    table: {
        name: _written(row) if isinstance(row, str) else tuple(map(_written, row))
        for name, row in rows.items()
    }
    for table, rows in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
