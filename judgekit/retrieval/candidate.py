"""What a search returns."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from judgekit.retrieval.confidence import Features


class Candidate:
    """A memory or document that may answer the query.

    `path` is as shown: relative to the project where it is inside. `file` is the absolute path, `place` the
    path relative to the real folder `root`. `bm25` is the score, higher is better and comparable within one
    store only (points, where the keyword scorer ranked). `confidence` is the probability that it is relevant;
    `worth_mentioning` is false for one so unlikely that a prompt should not be told of it. `damaged` says
    that its file could not be read: it may be retired, so it is never more than mentioned. `updated` is in
    seconds since the epoch.
    """

    __slots__ = (
        "bm25",
        "category",
        "confidence",
        "confidence_label",
        "damaged",
        "features",
        "file",
        "id",
        "kind",
        "path",
        "place",
        "root",
        "snippet",
        "tags",
        "title",
        "updated",
        "worth_mentioning",
    )

    bm25: float
    confidence: float
    confidence_label: str
    features: Features
    worth_mentioning: bool
    path: str

    def __init__(
        self,
        id: str,  # noqa: A002 - the published name of the attribute
        title: str,
        category: str,
        *,
        tags: tuple[str, ...],
        updated: float,
        root: str,
        place: str,
        kind: str,
    ) -> None:
        self.id, self.title, self.category, self.tags, self.updated = id, title, category, tags, updated
        self.root, self.place, self.kind = root, place, kind
        self.file = os.path.join(root, *place.split("/"))
        self.snippet, self.damaged = "", False

    def __repr__(self) -> str:
        return f"<Candidate {self.id!r} {self.confidence_label}>"


class Ranked:
    """The answer to a query: candidates, best first, and `notes`, one line each for stderr.

    `pinned` are those that the caller asked for by name; they are not among `candidates`. `fallback`
    says in a word why the full-text index was not used; None when it was.
    """

    __slots__ = ("candidates", "fallback", "notes", "pinned")

    def __init__(self, candidates: list[Candidate], notes: list[str], fallback: str | None = None) -> None:
        self.candidates, self.notes, self.fallback = candidates, notes, fallback
        self.pinned: list[Candidate] = []
