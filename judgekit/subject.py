"""What is told about a subject beside its text: who wrote it and what it is for; and a piece of it as shown.

Free of pydantic, so that a program which only hands documents on need not import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote the subject, and which family of models that is, if any."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # where it is part of a verdict

    name: str | None = None
    family: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What a document is for, in the words of whoever asks."""

    description: str = ""
    acceptance: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a document as a model sees it; `total` is its length before it was cut."""

    path: str
    text: str
    total: int
