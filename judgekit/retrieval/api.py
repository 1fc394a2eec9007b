"""Search over memories and documents: what the hook, the command line and the Python API call."""

from __future__ import annotations

import os

from judgekit.retrieval import fulltext, index, query, rank, scan, schema
from judgekit.retrieval.candidate import Candidate, Ranked
from judgekit.retrieval.compiled import CLAUDE_MEMORY, Profiles, bundled
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.query import Term
    from judgekit.retrieval.scan import Scan

__all__ = ["AUTO_ROOT", "Candidate", "Ranked", "body", "resolve", "search"]

AUTO_ROOT = "claude:auto"
SNIPPET_LIMIT = 300  # characters
MAX_NOTES = 3  # lines about one store; what more there is is counted
_KEYWORD = "keyword"
_LEADS_OUT = "leads out of the project; not searched, since only your own configuration may name such a root"


def search(
    query: str,
    roots: Sequence[str],
    *,
    project: str,
    limit: int,
    trusted: Collection[str] = (),
    profiles: Profiles | None = None,
    snippets: bool = False,
    scorer: str = "fts5",
) -> Ranked:
    """Return the `limit` best candidates of the stores at `roots` for `query`.

    A root is a path (relative ones start at `project`, `~` is the home folder) or `claude:auto`, Claude
    Code's own memory of the project. What kind of store it is shows in what it holds; a missing one is empty.
    Those of `roots` that are `trusted`, since the user named them, may be anywhere; of the others none is
    searched that leads out of `project`. Several stores are merged by confidence, a file of more than one is
    listed once. `scorer` is `fts5` or `keyword`.
    """
    known = profiles or Profiles(bundled())
    ranked = Ranked([], [])
    base = os.path.realpath(project).rstrip(os.sep) + os.sep
    for root in dict.fromkeys(roots):
        folder = resolve(root, project)
        if not os.path.isdir(folder):
            continue
        folder = os.path.realpath(folder)
        if root in trusted or (folder + os.sep).startswith(base):
            _search_root(query, folder, known, ranked, _Options(limit, scorer, snippets=snippets))
        else:
            ranked.notes.append(f"{root}: {_LEADS_OUT}")
    if len(roots) > 1:
        _merge(ranked)
    del ranked.candidates[limit:]
    for candidate in ranked.candidates:
        candidate.path = candidate.file.removeprefix(base)
    return ranked


def _merge(ranked: Ranked) -> None:
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


class _Options:
    __slots__ = ("limit", "scorer", "snippets")

    def __init__(self, limit: int, scorer: str, *, snippets: bool) -> None:
        self.limit, self.scorer, self.snippets = limit, scorer, snippets


def _search_root(text: str, root: str, profiles: Profiles, ranked: Ranked, options: _Options) -> None:
    kind = scan.kind_of(root, profiles.by_kind[CLAUDE_MEMORY])
    profile = profiles.by_kind[kind]
    found = scan.scan(root, kind, profile)
    if options.scorer == _KEYWORD:
        _by_keyword(text, found, profile, ranked, options)
        return
    terms = query.parse(text, profile.language)
    if not terms or not found.files:
        return
    try:
        _by_fulltext(terms, found, profile, ranked, options)
    except schema.NoFullTextError as error:
        ranked.notes.append(f"no full-text search with this Python: {error}; matching titles and tags only")
        ranked.fallback = _KEYWORD
        _by_keyword(text, found, profile, ranked, options)


def _by_fulltext(terms: list[Term], found: Scan, profile: Profile, ranked: Ranked, options: _Options) -> None:
    opened = index.open_index(found, profile)
    try:
        _ask(opened, terms, ranked, options)
    except sqlite.DatabaseError:  # damage shows where it is read
        opened.close()
        opened = index.open_index(found, profile, anew=True)
        _ask(opened, terms, ranked, options)
    finally:
        opened.close()


def _ask(opened: index.Index, terms: list[Term], ranked: Ranked, options: _Options) -> None:
    hits, statistics = fulltext.match(opened, terms)
    candidates = rank.order(hits, statistics, opened.profile)[: options.limit]
    if options.snippets:
        fulltext.add_snippets(opened, terms, candidates, SNIPPET_LIMIT)
    _note(ranked, opened.notes())
    ranked.candidates += candidates


def _by_keyword(text: str, found: Scan, profile: Profile, ranked: Ranked, options: _Options) -> None:
    from judgekit.retrieval import keyword  # noqa: PLC0415 - the exception, not the rule

    hits, statistics, notes = keyword.match(found, profile, text)
    ranked.candidates += rank.order(hits, statistics, profile)[: options.limit]
    _note(ranked, notes)


def _note(ranked: Ranked, notes: list[str]) -> None:
    ranked.notes += notes[:MAX_NOTES]
    if len(notes) > MAX_NOTES:
        ranked.notes.append(f"and {len(notes) - MAX_NOTES} more files with problems")
