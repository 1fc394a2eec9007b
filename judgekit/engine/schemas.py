"""The requests of the engine and of the team's server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from judgekit.config.names import ModeName
from judgekit.config.yamlfile import Strict
from judgekit.judging.service import JudgeRequest
from judgekit.judging.subject import CONTEXT_CHARS, Author, Document, File, Task


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


class StopBody(Strict):
    """`POST /v1/stop`: at once, or after so many seconds without a request."""

    idle_seconds: float = Field(default=0, ge=0)


class FileGiven(Strict):
    """A file as `judgekit.judging.documents` reads it."""

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
        files = tuple(File(file.path, file.text, file.sha256, file.total) for file in self.files)
        task = Task(self.description, self.acceptance)
        return Document(files, self.task_id, task, self.author, self.commit)


class WishGiven(Strict):
    """What the caller wants otherwise than configured."""

    rubric: Raw | None = None
    mode: ModeName | None = None
    deadline: float | None = Field(default=None, gt=0, le=3600)
    max_cost_usd: float | None = Field(default=None, ge=0)
    cache: bool = True


class JudgeBody(Carried):
    """`POST /v1/judge`."""

    document: DocumentGiven
    wish: WishGiven = WishGiven()

    def meant(self) -> JudgeRequest:
        """Return the request, with the rubric's path as the caller means it."""
        given, rubric = self.wish, self.wish.rubric
        if rubric is not None and rubric.endswith((".yaml", ".yml")):
            rubric = self.path(rubric)
        return JudgeRequest(rubric, given.mode, given.deadline, given.max_cost_usd, given.cache)


MOST_FILES = 100
MOST_LINES = 1000
_NAME_CHARS = 4096
_TASK_CHARS = 20_000

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=_NAME_CHARS)]
# An id alone: a path would be one of the server's.
RubricName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}(@\d{1,6}\.\d{1,6}\.\d{1,6})?$")]


class FileSent(Strict):
    """A file to be judged: its name, its text, the SHA-256 of its bytes, and all its characters' number."""

    path: Name
    text: Annotated[str, StringConstraints(max_length=CONTEXT_CHARS)]
    sha256: Sha256
    total: int = Field(ge=0)


class AuthorSent(Strict):
    """Who wrote it, and which family of models that is, if any."""

    name: Annotated[str, StringConstraints(max_length=1000)] | None = None
    family: Annotated[str, StringConstraints(max_length=64)] | None = None


class DocumentSent(Strict):
    """What is to be judged as one."""

    files: list[FileSent] = Field(min_length=1, max_length=MOST_FILES)
    task_id: Name
    description: Annotated[str, StringConstraints(max_length=_TASK_CHARS)] = ""
    acceptance: Annotated[str, StringConstraints(max_length=_TASK_CHARS)] = ""
    author: AuthorSent = AuthorSent()
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")] | None = None

    def document(self) -> Document:
        """Return it as the judge knows it."""
        files = tuple(File(file.path, file.text, file.sha256, file.total) for file in self.files)
        author = Author(self.author.name, self.author.family)
        return Document(files, self.task_id, Task(self.description, self.acceptance), author, self.commit)


class WishSent(Strict):
    """How it is to be judged; absent: as the server is set up. `rubric_sha256` says which rubric is meant."""

    rubric: RubricName | None = None
    rubric_sha256: Sha256 | None = None
    mode: ModeName | None = None
    deadline: float | None = Field(default=None, gt=0, le=3600)
    max_cost_usd: float | None = Field(default=None, ge=0)
    cache: bool = True

    def wish(self) -> JudgeRequest:
        """Return it as the judge knows it; limits are the server's to lower."""
        return JudgeRequest(self.rubric, self.mode, cache=self.cache)


class JudgeSent(Strict):
    """`POST /v1/judge`."""

    document: DocumentSent
    wish: WishSent = WishSent()


class LinesSent(Strict):
    """`POST /v1/ledger`: lines of a client's ledger, each as it stands there."""

    lines: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_LINES)


class Kept(Strict):
    """How many lines the ledger has taken, and why it has not taken the others, by their place."""

    taken: int
    refused: dict[int, str] = {}


class ErrorBody(Strict):
    """What went wrong: its kind, one line for a person, the exit code of a command that comes upon it."""

    kind: str
    message: str
    exit_code: int


class ErrorSaid(Strict):
    """The body of every answer that is an error."""

    error: ErrorBody


class RubricSaid(Strict):
    """A rubric that the server has."""

    id: str
    version: str
    sha256: str
    title: str
