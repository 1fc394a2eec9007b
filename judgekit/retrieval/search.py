"""Search over memories and documents: what the hook, the command line and the Python API call."""

from __future__ import annotations

import os

from judgekit.retrieval import bm25, confidence, index, query, schema
from judgekit.retrieval.compiled import CLAUDE_MEMORY, Profiles, bundled
from judgekit.retrieval.confidence import Candidate, RankedCandidates
from judgekit.retrieval.sqljson import sqlite

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
_LEADS_OUT = "leads out of the project; not searched, since only your own configuration may name such a root"


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
    listed once. `scorer` is `fts5` or `keyword`. What `pins` name (see pinned.py) is found for any query.
    `pool` is how many hits of a store are rated, at least `limit`. After `patience` seconds of reading new
    files what was read until then is searched, and the next search goes on.
    """
    known = profiles or Profiles(bundled())
    ranked = RankedCandidates([], [])
    base = os.path.realpath(project).rstrip(os.sep) + os.sep
    options = _Options(limit, scorer, project, pins, snippets=snippets)
    options.pool, options.patience = max(pool, limit), patience
    for root in dict.fromkeys(roots):
        folder = resolve(root, project)
        if not os.path.isdir(folder):
            continue
        folder = os.path.realpath(folder)
        if may_be_searched(root, folder, base, trusted):
            _search_root(query, folder, known, ranked, options)
        else:
            ranked.notes.append(f"{root}: {_LEADS_OUT}")
    if len(roots) > 1:
        _merge(ranked)
    if pins:
        _pin(ranked, options)
    del ranked.candidates[limit:]
    for candidate in (*ranked.pinned, *ranked.candidates):
        candidate.path = candidate.file.removeprefix(base)
    return ranked


def lacking(roots: Sequence[str], project: str) -> list[str]:
    """Return in a line that there is nothing to search, where none of the stores at `roots` is there."""
    if any(os.path.isdir(resolve(root, project)) for root in roots):
        return []
    return [f"no store here ({', '.join(roots) or 'no root is set'}); name one with --root"]


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


def _merge(ranked: RankedCandidates) -> None:
    """Order candidates of several stores by confidence; of those for the same file the first one stays."""
    best: dict[str, Candidate] = {}
    for candidate in sorted(ranked.candidates, key=lambda candidate: -candidate.confidence):
        best.setdefault(candidate.file, candidate)
    ranked.candidates[:] = best.values()
    ranked.notes[:] = dict.fromkeys(ranked.notes)


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


def _pin(ranked: RankedCandidates, options: _Options) -> None:
    """Put what was pinned apart, in the order of the pins, and say which of them name nothing."""
    found = {options.pinned[pin].file: options.pinned[pin] for pin in options.pins if pin in options.pinned}
    ranked.pinned = list(found.values())
    ranked.candidates[:] = [candidate for candidate in ranked.candidates if candidate.file not in found]
    if options.searched:
        from judgekit.retrieval import pins as pinned  # noqa: PLC0415 - few pin anything

        ranked.notes += pinned.missing(pin for pin in options.pins if pin not in options.pinned)


class _Options:
    """What is the same for every store that is searched; `pinned` is what was found by name so far."""

    __slots__ = ("limit", "patience", "pinned", "pins", "pool", "project", "scorer", "searched", "snippets")

    def __init__(self, limit: int, scorer: str, project: str, pins: Sequence[str], *, snippets: bool) -> None:
        self.limit, self.scorer, self.snippets = limit, scorer, snippets
        self.project, self.pins = project, pins
        self.pinned: dict[str, Candidate] = {}
        self.searched, self.pool = False, bm25.POOL
        self.patience: float | None = None


def _search_root(
    text: str, root: str, profiles: Profiles, ranked: RankedCandidates, options: _Options
) -> None:
    options.searched = True
    if options.scorer == _KEYWORD:
        _by_keyword(text, root, profiles, ranked, options)
        return
    try:
        _by_fulltext(text, root, profiles, ranked, options)
    except schema.NoFullTextError as error:
        ranked.notes.append(f"no full-text search with this Python: {error}; matching titles and tags only")
        ranked.fallback = _KEYWORD
        _by_keyword(text, root, profiles, ranked, options)


def _by_fulltext(
    text: str, root: str, profiles: Profiles, ranked: RankedCandidates, options: _Options
) -> None:
    opened = index.open_index(root, profiles, patience=options.patience)
    try:
        _ask(opened, text, ranked, options)
    except (sqlite.DatabaseError, *schema.SPOILT) as error:
        opened.close()
        if schema.is_damage(error):  # it shows where it is read
            opened = index.open_index(root, profiles, anew=True, patience=options.patience)
        else:  # a sound file, out of reach just now
            opened = index.in_memory(root, profiles)
        _ask(opened, text, ranked, options)
    finally:
        opened.close()


def _ask(opened: Index, text: str, ranked: RankedCandidates, options: _Options) -> None:
    terms = query.parse(text, opened.profile.language)
    if not terms and not options.pins:
        return
    for _ in range(MAX_ROUNDS):
        named = _named(opened, options) if options.pins else {}
        candidates = _best(opened, terms, options) if terms else []
        if not index.recheck(opened, [candidate.place for candidate in (*named.values(), *candidates)]):
            break
    named = {pin: candidate for pin, candidate in named.items() if candidate.place not in opened.outdated}
    options.pinned = named | options.pinned
    candidates = [candidate for candidate in candidates if candidate.place not in opened.outdated]
    if options.snippets:
        bm25.add_snippets(opened, terms, candidates, SNIPPET_LIMIT)
    _note(ranked, opened.notes())
    ranked.candidates += candidates


def _best(opened: Index, terms: list[Term], options: _Options) -> list[Candidate]:
    hits, statistics = bm25.match(opened, terms, options.pool, quick=options.pool < bm25.POOL)
    return confidence.order(hits, statistics, opened.profile)[: options.limit]


def _named(opened: Index, options: _Options) -> dict[str, Candidate]:
    from judgekit.retrieval import pins as pinned  # noqa: PLC0415 - few pin anything

    return pinned.among_indexed(opened.connection, opened.root, opened.kind, options.pins, options.project)


def _by_keyword(
    text: str, root: str, profiles: Profiles, ranked: RankedCandidates, options: _Options
) -> None:
    from judgekit.retrieval import keyword, scan  # noqa: PLC0415 - the exception, not the rule

    memory = profiles.by_kind[CLAUDE_MEMORY]
    profile = profiles.by_kind[scan.kind_of(root, memory)]
    store = scan.scan(root, profile.kind, memory)
    if options.pins:
        from judgekit.retrieval import pins as pinned  # noqa: PLC0415 - few pin anything

        named = pinned.among_files(store, profile, options.pins, options.project)
        options.pinned = named | options.pinned
    hits, statistics, notes = keyword.match(store, profile, text)
    ranked.candidates += confidence.order(hits, statistics, profile)[: options.limit]
    _note(ranked, notes)


def _note(ranked: RankedCandidates, notes: list[str]) -> None:
    ranked.notes += notes[:MAX_NOTES]
    if len(notes) > MAX_NOTES:
        ranked.notes.append(f"and {len(notes) - MAX_NOTES} more files with problems")
