"""A collection small enough to know by heart, and the profile that ranks it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from judgekit.retrieval.compiled import KINDS, Profiles, bundled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judgekit.evaluation.cases import CollectionDocument
    from judgekit.retrieval.compiled import Profile

DOCUMENTS = {
    "one/kettle": ("Kettle", "Water boils in the copper kettle at noon."),
    "one/train": ("Train", "The night train to Lisbon leaves from platform nine."),
    "one/garden": ("Garden", "Tomatoes grow along the southern wall of the garden."),
    "two/kettle": ("Kettle drums", "Two kettle drums stand behind the strings."),
    "two/opera": ("Opera", "The opera opens with an overture for strings."),
    "three/moon": ("Moon", "The moon hides behind clouds."),
}
QUERIES = {
    "one/q1": "copper kettle",
    "one/q2": "night train to Lisbon",
    "two/q1": "strings of the overture",
    "two/q2": "zeppelin",
    "four/q1": "kettle",
}
GRADES = [
    ("one/q1", "one/kettle", 2),
    ("one/q2", "one/train", 1),
    ("two/q1", "two/opera", 2),
    ("two/q1", "two/kettle", 1),
    ("two/q2", "two/opera", 0),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the collection."""
    documents = [{"id": name, "title": title, "text": text} for name, (title, text) in DOCUMENTS.items()]
    queries = [{"id": name, "text": text, "kind": "test"} for name, text in QUERIES.items()]
    for name, items in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        (tmp_path / name).write_text("".join(json.dumps(item) + "\n" for item in items))
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in GRADES)]
    (tmp_path / "qrels.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.fixture
def profile() -> Profile:
    """Return the bundled profile of memory stores."""
    return Profiles(bundled()).by_kind[KINDS[0]]


@pytest.fixture
def write_store() -> Callable[[Path, list[CollectionDocument]], None]:
    """Return what writes documents as the records of a memory store."""

    def write(root: Path, documents: list[CollectionDocument]) -> None:
        (root / "decisions").mkdir(parents=True)
        for document in documents:
            record = {"title": document.title, "content": {"decision": document.text}}
            (root / "decisions" / f"{document.id}.json").write_text(json.dumps(record))

    return write
