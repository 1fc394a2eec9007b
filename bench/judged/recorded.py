"""Recorded answers, in the form that the replay provider serves."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from judgekit.judging.documents import File
from judgekit.providers import registry
from judgekit.providers.base import Endpoint
from judgekit.rubric.loader import load_rubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from judgekit.config import TierName
    from judgekit.rubric.loader import LoadedRubric

UNREADABLE = "no answer"


def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def stand_in(name: str) -> File:
    """Return a text that stands for one whose answers are recorded; the replay provider asks for no more."""
    return File(name, name, digest(name), len(name))


def reply(
    subject: str,
    rubric: str,
    tier: TierName,
    model: str,
    text: str,
    labels: Mapping[str, str] | None = None,
) -> str:
    """Return one line of a recording."""
    line: dict[str, Any] = {
        "replay": 1,
        "subject": subject,
        "rubric": rubric,
        "tier": tier,
        "model": model,
    }
    return json.dumps({**line, "labels": labels or {}, "reply": {"text": text, "model": model}})


def scored(points: float | None, dimension: str) -> str:
    """Return a reply that rates one dimension, or one that cannot be read."""
    found = {"reasoning": "", "scores": {dimension: points}, "findings": []}
    return UNREADABLE if points is None else json.dumps(found)


@contextmanager
def recording(replies: Iterable[str]) -> Iterator[Path]:
    """Write a recording into a folder of its own; both are deleted at the end."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "replies.jsonl"
        path.write_text("".join(f"{each}\n" for each in replies), encoding="utf-8")
        yield path


def endpoint(path: Path, model: str) -> Endpoint:
    """Return the endpoint that serves a model's recorded replies."""
    profile = registry.find("replay")
    return Endpoint(profile, model, model, profile.output, api_base=str(path))


def rubric_of(text: str) -> LoadedRubric:
    """Return a rubric from its YAML."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rubric.yaml"
        path.write_text(text, encoding="utf-8")
        return load_rubric(path)
