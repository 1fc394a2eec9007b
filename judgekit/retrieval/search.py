"""Search over memories and documents: what the hook, the command line and the Python API call.

Beside what answers the query it finds what a user pinned: an id, or a path from the store
(`decisions/jwt.json`), from the project, or from the root of the file system. What is retired or damaged is
not found by its pin.
"""

from __future__ import annotations

import os

from judgekit.retrieval import bm25, confidence, index, index_file, query
from judgekit.retrieval.compiled import Profiles, bundled
from judgekit.retrieval.confidence import Candidate, RankedCandidates
from judgekit.retrieval.index_file import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.query import Term

__all__ = ["AUTO_ROOT", "Candidate", "RankedCandidates", "body", "passages", "resolve", "search"]

AUTO_ROOT = "claude:auto"
SNIPPET_LIMIT = 300  # characters
MAX_ROUNDS = 3  # of asking again because what was found had changed meanwhile
MAX_NOTES = 3  # lines about one store; what more there is is counted
_KEYWORD = "keyword"
_LEADS_OUT = "outside the project, so it is not searched; only your own configuration may name such a root"
_NO_PIN = "no active memory has this id or path; nothing is injected for it"
_PINNED = f"SELECT {bm25.COLUMNS} FROM file WHERE live = 1 AND problem IS NULL AND"  # noqa: S608 - our names


def search(  # noqa: PLR0913 - the one door to all stores: each option is a wish of some caller
    query: str,
    roots: Sequence[str],
    *,
    project: str,
    limit: int,
    trusted: Collection[str] = (),
    profiles: Profiles | None = None,
    snippets: bool = False,
    scorer: str = "fts5",
    pins: Sequence[str] = (),
    pool: int = bm25.POOL,
    patience: float | None = None,
) -> RankedCandidates:
    """Return the `limit` best candidates of the stores at `roots` for `query`.

    A root is a path (relative ones start at `project`, `~` is the home folder) or `claude:auto`, Claude
    Code's own memory of the project. What kind of store it is shows in what it holds; a missing one is empty.
    Those of `roots` that are `trusted`, since the user named them, may be anywhere they say; of the others,
    and of those that name a folder inside whatever project it is, none is searched that leads out of
    `project`. Several stores are merged by confidence, a file of more than one is
    listed once. `scorer` is `fts5` or `keyword`. What `pins` name is found for any query.
    `pool` is how many hits of a store are rated, at least `limit`. After `patience` seconds of reading new
    files what was read until then is searched, and the next search goes on.
    """
    pool, profiles = max(pool, limit), profiles or Profiles(bundled())
    searched = _Search(query, profiles, project, limit, pool, pins, snippets=snippets, patience=patience)
    ranked = searched.ranked
    base = os.path.realpath(project).rstrip(os.sep) + os.sep
    found_any = False
    for root in dict.fromkeys(roots):
        folder = resolve(root, project)
        if not os.path.isdir(folder):
            continue
        folder = os.path.realpath(folder)
        if may_be_searched(root, folder, base, trusted):
            found_any = True
            searched.add(folder, scorer)
        else:
            ranked.notes.append(f"{root}: {_LEADS_OUT}")
    if len(roots) > 1:  # of candidates for the same file the first one stays
        best: dict[str, Candidate] = {}
        for candidate in sorted(ranked.candidates, key=lambda candidate: -candidate.confidence):
            best.setdefault(candidate.file, candidate)
        ranked.candidates[:] = best.values()
        ranked.notes[:] = dict.fromkeys(ranked.notes)
    if pins:
        named = [searched.pinned[pin] for pin in pins if pin in searched.pinned]
        pinned = {candidate.file: candidate for candidate in named}
        ranked.pinned = list(pinned.values())
        ranked.candidates[:] = [each for each in ranked.candidates if each.file not in pinned]
        if found_any:
            lost = [pin for pin in pins if pin not in searched.pinned]
            ranked.notes += [f"retrieval.pin: {pin!r}: {_NO_PIN}" for pin in lost]
    del ranked.candidates[limit:]
    for candidate in (*ranked.pinned, *ranked.candidates):
        candidate.path = candidate.file.removeprefix(base)
    return ranked


def lacking(roots: Sequence[str], project: str) -> list[str]:
    """Return in a line that there is nothing to search, where none of the stores at `roots` is there."""
    if any(os.path.isdir(resolve(root, project)) for root in roots):
        return []
    return [f"no store found ({', '.join(roots) or 'no root is set'}); name one with --root"]


def may_be_searched(root: str, folder: str, base: str, trusted: Collection[str]) -> bool:
    """Whether the real path `folder`, to which `root` leads, is inside `base` or where the user wants it.

    `base` is the real path of the project with a separator at its end; `trusted` are roots the user named.
    """
    return (root in trusted and _names_a_place(root)) or (folder + os.sep).startswith(base)


def _names_a_place(root: str) -> bool:
    """Whether who wrote a root knew where it leads: not so inside a project, where a link may stand."""
    if root == AUTO_ROOT or os.path.isabs(os.path.expanduser(root)):
        return True
    return os.path.normpath(root).split(os.sep)[0] == os.pardir


def resolve(root: str, project: str) -> str:
    """Return the absolute path that a configured root stands for."""
    if root == AUTO_ROOT:
        from judgekit.retrieval.sources import auto_memory  # noqa: PLC0415 - few roots are of this kind

        return auto_memory.folder(os.path.abspath(project))
    return os.path.normpath(os.path.join(os.path.abspath(project), os.path.expanduser(root)))


def body(candidate: Candidate, limit: int, profiles: Profiles | None = None) -> str:
    """Return the first `limit` characters of a candidate's text, read anew from its file.

    Empty when the file is gone, unreadable, retired by now, or no longer inside its store.
    """
    from judgekit.retrieval import update  # noqa: PLC0415 - the hook without a judge needs no text

    profile = (profiles or Profiles(bundled())).by_kind[candidate.kind]
    entry, _ = update.read(candidate.root, candidate.place, profile, None)
    return entry.body[:limit] if entry is not None else ""


def passages(
    text: str, candidates: Sequence[Candidate], profiles: Profiles | None = None
) -> list[tuple[str, str]]:
    """Return for each candidate its passage for the query `text`, and its whole text, read anew.

    Both are empty when the file is gone, unreadable, retired by now, or no longer inside its store.
    """
    from judgekit.retrieval import excerpts  # noqa: PLC0415 - reads files, which the hook does without

    return excerpts.of(text, candidates, profiles or Profiles(bundled()), SNIPPET_LIMIT)


class _Search:
    """One query over several stores; `pinned` is what was found by name so far."""

    def __init__(
        self,
        text: str,
        profiles: Profiles,
        project: str,
        limit: int,
        pool: int,
        pins: Sequence[str],
        *,
        snippets: bool,
        patience: float | None,
    ) -> None:
        self.text, self.profiles, self.project, self.limit, self.pool = text, profiles, project, limit, pool
        self.pins, self.snippets, self.patience = pins, snippets, patience
        self.ranked = RankedCandidates([], [])
        self.pinned: dict[str, Candidate] = {}

    def add(self, root: str, scorer: str) -> None:
        """Search the store at `root`, a real path."""
        try:
            if scorer != _KEYWORD:
                self._by_fulltext(root)
                return
        except index_file.NoFullTextError as error:
            self.ranked.notes.append(
                f"no full-text search with this Python: {error}; searching titles and tags only"
            )
            self.ranked.fallback = _KEYWORD
        self._by_keyword(root)

    def _by_fulltext(self, root: str) -> None:
        opened = index.open_index(root, self.profiles, patience=self.patience)
        try:
            self._ask(opened)
        except (sqlite.DatabaseError, *index_file.SPOILT) as error:
            opened.close()
            if index_file.is_damage(error):  # it shows where it is read
                opened = index.open_index(root, self.profiles, anew=True, patience=self.patience)
            else:  # a sound file, out of reach just now
                opened = index.in_memory(root, self.profiles)
            self._ask(opened)
        finally:
            opened.close()

    def _ask(self, opened: Index) -> None:
        terms = query.parse(self.text, opened.profile.language)
        if not terms and not self.pins:
            return
        for _ in range(MAX_ROUNDS):
            named = self._pinned(opened)
            candidates = self._best(opened, terms) if terms else []
            if not index.recheck(opened, [candidate.place for candidate in (*named.values(), *candidates)]):
                break
        named = {pin: candidate for pin, candidate in named.items() if candidate.place not in opened.outdated}
        self.pinned = named | self.pinned
        candidates = [candidate for candidate in candidates if candidate.place not in opened.outdated]
        if self.snippets:
            for candidate, (passage, _) in zip(
                candidates, passages(self.text, candidates, self.profiles), strict=True
            ):
                candidate.snippet = passage
        self._note(opened.notes())
        self.ranked.candidates += candidates

    def _best(self, opened: Index, terms: list[Term]) -> list[Candidate]:
        opened.connection.execute("BEGIN")  # one lock for all statements
        hits, statistics = bm25.match(opened, terms, self.pool, quick=self.pool < bm25.POOL)
        opened.connection.execute("COMMIT")
        return confidence.order(hits, statistics, opened.profile)[: self.limit]

    def _pinned(self, opened: Index) -> dict[str, Candidate]:
        execute, pinned = opened.connection.execute, {}
        for pin in self.pins:
            row = None
            for place in self._places(pin, opened.root):
                row = row or execute(f"{_PINNED} path = ?", (place,)).fetchone()
            if row is None and "/" not in pin:
                row = execute(f"{_PINNED} id = ? ORDER BY path LIMIT 1", (pin,)).fetchone()
            if row is not None:
                pinned[pin] = bm25.candidate(opened, row)
                pinned[pin].pin()
        return pinned

    def _places(self, pin: str, root: str) -> list[str]:
        """Return the paths inside the store at `root` that a pin may stand for."""
        places = []
        for base in (root, os.path.realpath(self.project)):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(pin)))
            if path.startswith(root.rstrip(os.sep) + os.sep):
                places.append(os.path.relpath(path, root).replace(os.sep, "/"))
        return places

    def _by_keyword(self, root: str) -> None:
        from judgekit.retrieval import keyword, scan, update  # noqa: PLC0415 - the exception, not the rule

        profile = self.profiles.by_kind[scan.kind_of(root, self.profiles)]
        entries, notes = update.entries(scan.Store(root, profile.kind, self.profiles), profile)
        for pin in self.pins:
            named = keyword.named(entries, root, profile, pin, self._places(pin, root))
            if named is not None:
                self.pinned.setdefault(pin, named)
        hits, statistics = keyword.match(entries, root, profile, self.text)
        self.ranked.candidates += confidence.order(hits, statistics, profile)[: self.limit]
        self._note(notes)

    def _note(self, notes: list[str]) -> None:
        self.ranked.notes += notes[:MAX_NOTES]
        if len(notes) > MAX_NOTES:
            self.ranked.notes.append(f"and {len(notes) - MAX_NOTES} more files with problems")
