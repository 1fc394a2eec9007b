"""Search over memories and documents: what the hook, the command line and the Python API call."""

from __future__ import annotations

import os

from judgekit.retrieval import fulltext, index, query, rank, scan, schema
from judgekit.retrieval.candidate import Candidate, Ranked
from judgekit.retrieval.compiled import CLAUDE_MEMORY, Profiles, bundled
from judgekit.retrieval.sqljson import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.query import Term
    from judgekit.retrieval.scan import Scan

__all__ = ["AUTO_ROOT", "Candidate", "Ranked", "body", "resolve", "search"]

AUTO_ROOT = "claude:auto"
SNIPPET_LIMIT = 300  # characters
MAX_NOTES = 3  # lines about one store; what more there is is counted
_KEYWORD = "keyword"


def search(
    query: str,
    roots: Sequence[str],
    *,
    project: str,
    limit: int,
    profiles: Profiles | None = None,
    snippets: bool = False,
    scorer: str = "fts5",
) -> Ranked:
    """Return the `limit` best candidates of the stores at `roots` for `query`.

    A root is a path (relative ones start at `project`, `~` is the home folder) or `claude:auto`, Claude
    Code's own memory of the project. What kind of store it is shows in what it holds; a missing one is empty.
    Several stores are merged by confidence. `scorer` is `fts5` or `keyword`.
    """
    known = profiles or Profiles(bundled())
    ranked = Ranked([], [])
    for root in roots:
        _search_root(query, resolve(root, project), known, ranked, _Options(limit, scorer, snippets=snippets))
    if len(roots) > 1:
        ranked.candidates.sort(key=lambda candidate: -candidate.confidence)
    del ranked.candidates[limit:]
    base = os.path.realpath(project) + os.sep
    for candidate in ranked.candidates:
        candidate.path = candidate.file.removeprefix(base)
    return ranked


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
    if not os.path.isdir(root):
        return
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
