"""The subject of a judgement: a document of one or more files, its author and its task."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.providers.base import Endpoint
    from judgekit.rubric.schema import Giving, ScoreRubric, Tier


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


CONTEXT_CHARS = 400_000  # about 100,000 tokens, which the current models of every profile bear
PROMPT_CHARS = 500
TURN_CHARS = 200

_HOW: dict[Giving, str] = {
    "description": "a description of the text's purpose; give it with --description",
    "acceptance": "acceptance criteria; give them with --acceptance",
    "sources": "sources; give their paths after the text, with one --task-id",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file of a document: its path as given, its text, and the SHA-256 of its bytes.

    `total` is the number of characters of the whole file, of which `text` may be the beginning. Models see
    `shown`, where there is one, in place of the path.
    """

    path: str
    text: str
    sha256: str
    total: int
    shown: str = ""


def file_of(path: str, text: str) -> File:
    """Return a text as a file, of a very long one its beginning; its hash is that of the whole text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return File(path, text[:CONTEXT_CHARS], digest, len(text))


@dataclass(frozen=True, slots=True)
class Document:
    """What is judged as one: usually a file, or all files of a task."""

    files: tuple[File, ...]
    task_id: str
    task: Task = field(default_factory=Task)
    author: Author = field(default_factory=Author)
    commit: str | None = None

    @property
    def sha256(self) -> str:
        """One hash for all files: the hash of the file itself when there is only one."""
        if len(self.files) == 1:
            return self.files[0].sha256
        listing = "".join(f"{file.path}\0{file.sha256}\n" for file in self.files)
        return hashlib.sha256(listing.encode("utf-8", "surrogatepass")).hexdigest()

    def body(self, name: Callable[[str], str] = str) -> dict[str, Any]:
        """Return it as an engine and a team's server take it, with names as `name` changes them."""
        files = [
            {"path": name(file.path), "text": file.text, "sha256": file.sha256, "total": file.total}
            for file in self.files
        ]
        return {
            "files": files,
            "task_id": name(self.task_id),
            "description": self.task.description,
            "acceptance": self.task.acceptance,
            "author": {"name": self.author.name and name(self.author.name), "family": self.author.family},
            "commit": self.commit,
        }

    @property
    def size(self) -> int:
        """How many characters there are to look through."""
        return sum(len(file.text) for file in self.files) + len(self.task.description + self.task.acceptance)

    @property
    def wrote(self) -> tuple[str, ...]:
        """The families that wrote it, as far as it is said."""
        from judgekit.judging import authors  # noqa: PLC0415 - pydantic, which a client of the engine does not need

        return authors.named(self.author.family)

    @property
    def sided(self) -> tuple[str, ...]:
        """Nobody has a favourite where there is nothing to choose from."""
        return ()

    def lacks(self, rubric: ScoreRubric) -> str | None:
        """Say in one line what a rubric needs that was not given, if there is something."""
        there = {
            "description": bool(self.task.description.strip()),
            "acceptance": bool(self.task.acceptance.strip()),
            "sources": len(self.files) > 1,
        }
        missing = [_HOW[need] for need in rubric.given.needs if not there[need]]
        return f"{rubric.ref} needs {' and '.join(missing)}" if missing else None

    def seen_by(self, tier: Tier, endpoint: Endpoint | None) -> tuple[Part, ...]:
        """Return the files as a tier sees them: its characters are shared out in order."""
        context_limit = endpoint.profile.limits.context_chars if endpoint else None
        left = min(tier.max_chars or CONTEXT_CHARS, context_limit or CONTEXT_CHARS)
        parts = []
        for file in self.files:
            text = file.text[:left]
            left -= len(text)
            parts.append(Part(file.shown or file.path, text, file.total))
        return tuple(parts)


def is_cut(parts: tuple[Part, ...]) -> bool:
    """Whether any file is not shown whole."""
    return any(len(part.text) < part.total for part in parts)
