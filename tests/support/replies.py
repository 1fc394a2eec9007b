"""Replies of models, as data: `replies.toml` has the rows, a table each."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final


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
