"""What of a push can be judged: the pushed blobs as documents, and why the rest cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit import authors, documents
from judgekit.errors import InputError
from judgekit.gate.selection import people
from judgekit.judging.subject import Document
from judgekit.subject import Author
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.gate.commits import Change
    from judgekit.git import Repository

MAX_BYTES = 4_000_000  # of one blob: ten times what models are shown of a text
_LFS = b"version https://git-lfs.github.com/spec/"


class Pushed(NamedTuple):
    """A file of a push: as a document, or else the reason why it cannot be judged."""

    change: Change
    document: Document | None
    reason: str = ""

    @property
    def path(self) -> str:
        """The file's path, printable."""
        return encodable(self.change.path)


def read(repository: Repository, changes: Sequence[Change]) -> Iterator[Pushed]:
    """Yield each changed file as it is pushed, in the order of its paths."""
    ordered = sorted(changes, key=lambda change: change.path)
    blobs = repository.blobs((change.blob for change in ordered), MAX_BYTES)
    for change, (_, data) in zip(ordered, blobs, strict=True):
        yield _pushed(change, data)


def _family(change: Change) -> str | None:
    """Return the families of models that had a hand in what a push makes of a file."""
    commits = (change.commit, *change.earlier)
    signed = [authors.signed(people(each), each.trailers) for each in commits]
    return authors.listed(list(dict.fromkeys(family for each in signed for family in each)))


def _pushed(change: Change, data: bytes | None) -> Pushed:
    if data is None:
        return Pushed(change, None, f"larger than {MAX_BYTES // 1_000_000} MB, or not in this clone")
    if data.startswith(_LFS):
        return Pushed(change, None, "stored with Git LFS: the push holds only a pointer to it")
    try:
        file = documents.decode(change.path, data)
    except InputError as error:
        return Pushed(change, None, str(error).removeprefix(f"{encodable(change.path)}: "))
    author = Author(name=encodable(change.commit.author), family=_family(change))
    return Pushed(
        change, Document((file,), documents.task_id_of(file), author=author, commit=change.commit.oid)
    )
