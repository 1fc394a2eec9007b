"""What requests look like: every one brings its caller's environment, current folder and project along."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field

from judgekit.assess import Wish
from judgekit.datafile import Strict
from judgekit.judging.subject import Document, File
from judgekit.names import ModeName
from judgekit.subject import Author, Task


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")  # noqa: TRY004 - what pydantic turns into a message
    return value


def _variables(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("expected an object of texts")  # noqa: TRY004 - the same
    return {_text(name): _text(each) for name, each in value.items()}


# Texts of the caller's system: a path may hold bytes that are not UTF-8, which pydantic's own check refuses.
Raw: TypeAlias = Annotated[Any, AfterValidator(_text)]


class Carried(Strict):
    """The base of what a local client sends; `client` tells apart those who are to get turns alike."""

    environ: Annotated[Any, AfterValidator(_variables)]
    cwd: Raw
    project: Raw | None = None
    client: Raw = ""

    @property
    def folder(self) -> Path | None:
        """The project, as a path."""
        return Path(self.project) if self.project else None

    def path(self, name: str) -> str:
        """Return a path as the caller means it: from the folder it works in."""
        return str(Path(self.cwd) / name)


class Stop(Strict):
    """`POST /v1/stop`: at once, or after so many seconds without a request."""

    idle_seconds: float = Field(default=0, ge=0)


class FileGiven(Strict):
    """A file as `judgekit.documents` reads it."""

    path: Raw
    text: Raw
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    total: int = Field(ge=0)


class DocumentGiven(Strict):
    """What is to be judged as one."""

    files: list[FileGiven] = Field(min_length=1, max_length=1000)
    task_id: Raw
    description: Raw = ""
    acceptance: Raw = ""
    author: Author = Author()
    commit: str | None = None

    def document(self) -> Document:
        """Return it as the judge knows it."""
        files = tuple(File(each.path, each.text, each.sha256, each.total) for each in self.files)
        task = Task(self.description, self.acceptance)
        return Document(files, self.task_id, task, self.author, self.commit)


class WishGiven(Strict):
    """What the caller wants otherwise than configured."""

    rubric: Raw | None = None
    mode: ModeName | None = None
    deadline: float | None = Field(default=None, gt=0, le=3600)
    max_cost_usd: float | None = Field(default=None, ge=0)
    cache: bool = True


class Judge(Carried):
    """`POST /v1/judge`."""

    document: DocumentGiven
    wish: WishGiven = WishGiven()

    def meant(self) -> Wish:
        """Return the wish, with the rubric's path as the caller means it."""
        given, rubric = self.wish, self.wish.rubric
        if rubric is not None and rubric.endswith((".yaml", ".yml")):
            rubric = self.path(rubric)
        return Wish(rubric, given.mode, given.deadline, given.max_cost_usd, given.cache)
