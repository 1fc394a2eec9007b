"""What clients of a shared judge send, and what its description says of it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from judgekit.assess import Wish
from judgekit.datafile import Strict
from judgekit.judging.subject import CONTEXT_CHARS, Document, File
from judgekit.names import ModeName
from judgekit.subject import Author, Task

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
        files = tuple(File(each.path, each.text, each.sha256, each.total) for each in self.files)
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

    def wish(self) -> Wish:
        """Return it as the judge knows it; limits are the server's to lower."""
        return Wish(self.rubric, self.mode, cache=self.cache)


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


class Problem(Strict):
    """What went wrong: its kind, one line for a person, the exit code of a command that comes upon it."""

    kind: str
    message: str
    exit_code: int


class ErrorSaid(Strict):
    """The body of every answer that is an error."""

    error: Problem


class RubricSaid(Strict):
    """A rubric that the server has."""

    id: str
    version: str
    sha256: str
    title: str
