"""Search over memories and documents: the entry point for the hook, the command line and Python.

Beside the answers to the query, it finds a user's pins: an id, or a path relative to the store
(`decisions/jwt.json`), to the project, or to the root of the file system. Pins don't find retired or damaged
memories.

Without a full-text index (this Python's SQLite has no FTS5, or `scorer: keyword`) words of the query score
points in titles and tags, as in the tool whose store this reads.

A passage is the part of a text with the most terms of a query, as it was written. The index only holds stems,
so the few texts to show are read again and put into a small table.
"""

from __future__ import annotations

import os

from judgekit.retrieval import bm25, compiled, confidence, index, index_file, parts, terms
from judgekit.retrieval.compiled import Profile, Profiles, bundled
from judgekit.retrieval.confidence import Candidate, RankedCandidates
from judgekit.retrieval.index_file import Index, sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from sqlite3 import Connection

    from judgekit.retrieval.sources import Entry

__all__ = ["AUTO_ROOT", "Candidate", "RankedCandidates", "body", "passages", "resolve", "search"]

AUTO_ROOT = "claude:auto"
SNIPPET_LIMIT = 300  # characters
TOKENS = 40  # words of a passage
MAX_ROUNDS = 3  # of repeating the search because results changed during it
MAX_NOTES = 3  # lines about one store; further ones are counted
_KEYWORD = "keyword"
MIN_PREFIX = 4  # letters of a keyword that may be the beginning of a word
_TAG = 3
_TITLE = 2
_BEGINNING = 1  # points
_LEADS_OUT = (
    "outside the project, so it is not searched; only your own configuration may name such a root"
)
_NO_PIN = "no active memory has this id or path; nothing is injected for it"
_PINNED = f"SELECT {bm25.COLUMNS} FROM file WHERE live = 1 AND problem IS NULL AND"  # noqa: S608 - our names
_TABLE = (
    "CREATE VIRTUAL TABLE body USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')"
)
_PUT = "INSERT OR REPLACE INTO body (rowid, text) VALUES (1, ?)"
_PASSAGE = "SELECT snippet(body, 0, '', '', '…', ?) FROM body WHERE body MATCH ?"
_MARKED = "SELECT highlight(body, 0, char(1), char(2)) FROM body WHERE body MATCH ?"
_SHORT = 4_000  # characters of a body that's short enough to use whole
_MOST = 1_000  # matching words: `snippet` takes quadratic time in their number
_UNSPACED_WORD = 8  # characters that count as a word in scripts without spaces


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

    A root is a path (relative ones start at `project`, `~` is the home folder) or `claude:auto`. Only
    `trusted` roots, those that the user named, may lead out of `project`. Several stores are merged by
    confidence. Memories named by `pins` are found for any query. `pool` hits of a store are rated. After
    `patience` seconds, the search goes on with the files read so far.
    """
    profiles = profiles or Profiles(bundled())
    ranked = RankedCandidates([], [])
    searched = _Search(query, profiles, project, pins, ranked)
    base = os.path.realpath(project).rstrip(os.sep) + os.sep
    for root in dict.fromkeys(roots):
        folder = resolve(root, project)
        if not os.path.isdir(folder):
            continue
        folder = os.path.realpath(folder)
        if not may_be_searched(root, folder, base, trusted):
            ranked.notes.append(f"{root}: {_LEADS_OUT}")
            continue
        ranked.searched_roots.append(folder)
        hits = None
        if scorer != _KEYWORD:
            hits = searched.by_fulltext(folder, limit, pool, patience)
        if hits is None:
            hits = searched.by_keyword(folder)[:limit]
        elif snippets:
            texts = passages(query, hits, profiles)
            for candidate, (passage, _) in zip(hits, texts, strict=True):
                candidate.snippet = passage
        ranked.candidates += hits
    if len(roots) > 1:
        _merge(ranked)
    if pins:
        _move_pinned(ranked, pins, searched.pinned)
        if ranked.searched_roots:
            lost = [pin for pin in pins if pin not in searched.pinned]
            ranked.pin_by_note = {f"retrieval.pin: {pin!r}: {_NO_PIN}": pin for pin in lost}
            ranked.notes += ranked.pin_by_note
    del ranked.candidates[limit:]
    for candidate in (*ranked.pinned, *ranked.candidates):
        for hit in (candidate, *candidate.alike):
            hit.path = hit.file.removeprefix(base)
    return ranked


def _merge(ranked: RankedCandidates) -> None:
    """Order the hits of several stores; of hits for the same file, and of equal notes, keep the first."""
    unique: dict[str, Candidate] = {}
    for hit in sorted(ranked.candidates, key=_rank_in_all):
        unique.setdefault(hit.file, hit)
    folded = confidence.fold_alike(list(unique.values()))
    ranked.candidates[:] = sorted(folded, key=_rank_in_all)
    ranked.notes[:] = dict.fromkeys(ranked.notes)


def _rank_in_all(hit: Candidate) -> tuple[bool, float]:
    return hit.status != "", -hit.confidence


def _move_pinned(
    ranked: RankedCandidates, pins: Sequence[str], candidate_by_pin: Mapping[str, Candidate]
) -> None:
    """Move the candidates that pins name to `ranked.pinned`, in the order of the pins."""
    pinned: dict[str, Candidate] = {}
    for pin in pins:
        if pin in candidate_by_pin:
            candidate = candidate_by_pin[pin]
            pinned[candidate.file] = candidate
    ranked.pinned = list(pinned.values())
    ranked.candidates[:] = [hit for hit in ranked.candidates if hit.file not in pinned]


def lacking(roots: Sequence[str], project: str) -> list[str]:
    """Return a line for each root that isn't a folder, or a single line if none is."""
    unique = list(dict.fromkeys(roots))
    missing = []
    for root in unique:
        folder = resolve(root, project)
        if not os.path.isdir(folder):
            missing.append(f"{root}: {folder}" if root == AUTO_ROOT else root)
    if len(missing) < len(unique):
        return [f"{root}: no such folder, so it is not searched" for root in missing]
    return [f"no store found ({', '.join(missing) or 'no root is set'}); name one with --root"]


def may_be_searched(root: str, folder: str, project_prefix: str, trusted: Collection[str]) -> bool:
    """Whether the real path `folder`, which `root` leads to, is in the project or allowed by the user.

    `project_prefix` is the project's real path and a separator. Outside of it only a trusted root counts, and
    not one that's relative to the project: in a clone, that could be a link.
    """
    if (folder + os.sep).startswith(project_prefix):
        return True
    from judgekit.retrieval import worktree  # noqa: PLC0415 - few stores are outside

    main = worktree.path_in_main_worktree(project_prefix.rstrip(os.sep))
    if main is not None:
        main_prefix = os.path.realpath(main).rstrip(os.sep) + os.sep
        if (folder + os.sep).startswith(main_prefix):
            return True
    is_absolute = root == AUTO_ROOT or os.path.isabs(os.path.expanduser(root))
    leads_up = os.path.normpath(root).split(os.sep)[0] == os.pardir
    return root in trusted and (is_absolute or leads_up)


def resolve(root: str, project: str) -> str:
    """Return the absolute path of a configured root."""
    if root == AUTO_ROOT:
        from judgekit.retrieval.sources import auto_folder  # noqa: PLC0415 - few roots are of this kind

        return auto_folder.folder_of(os.path.abspath(project))
    folder = os.path.normpath(os.path.join(os.path.abspath(project), os.path.expanduser(root)))
    if os.path.isdir(folder) or os.path.isabs(os.path.expanduser(root)):
        return folder
    from judgekit.retrieval import worktree  # noqa: PLC0415 - where a store is missing

    # Files that git ignores exist in the main working tree only.
    main = worktree.path_in_main_worktree(os.path.abspath(project))
    if main is not None:
        folder_in_main = os.path.normpath(os.path.join(main, root))
        if os.path.isdir(folder_in_main):
            return folder_in_main
    return folder


class _Search:
    """One query over several stores; `pinned` collects the pins found so far."""

    def __init__(
        self,
        text: str,
        profiles: Profiles,
        project: str,
        pins: Sequence[str],
        ranked: RankedCandidates,
    ) -> None:
        self.text = text
        self.profiles = profiles
        self.project = project
        self.pins = pins
        self.ranked = ranked
        self.pinned: dict[str, Candidate] = {}

    def by_fulltext(
        self, root: str, limit: int, pool: int, patience: float | None
    ) -> list[Candidate] | None:
        """Return the hits in the store at `root`; None if this Python has no full-text search."""
        try:
            opened = index.open_index(root, self.profiles, patience=patience)
        except index_file.NoFullTextError as error:
            why = f"no full-text search with this Python: {error}"
            self.ranked.notes.append(f"{why}; searching titles and tags only")
            self.ranked.fallback = _KEYWORD
            return None
        try:
            return self._match(opened, limit, max(pool, limit))
        except (sqlite.DatabaseError, *index_file.SPOILT) as error:
            opened.connection.close()  # its file may be deleted next
            if index_file.is_damage(error):  # damage only shows when it's read
                opened = index.open_index(root, self.profiles, anew=True, patience=patience)
            else:  # a sound file, out of reach just now
                from judgekit.retrieval import update  # noqa: PLC0415 - the exception, not the rule

                opened = update.in_memory(root, self.profiles)
            return self._match(opened, limit, max(pool, limit))
        finally:
            opened.close()

    def _match(self, opened: Index, limit: int, pool: int) -> list[Candidate]:
        is_quick = pool < bm25.POOL
        languages = terms.choose_languages(
            terms.excerpt(self.text), opened.languages, opened.rare_languages
        )
        if is_quick:
            query_parts = parts.parse(self.text, *languages)
        else:
            query_parts = parts.whole(self.text, *languages)
        if not query_parts and not self.pins:
            return []
        for _ in range(MAX_ROUNDS):
            pinned = self._find_pinned(opened) if self.pins else {}
            opened.connection.execute("BEGIN")  # so that one lock covers all statements
            hits = bm25.match(opened, query_parts, pool, quick=is_quick)[:limit]
            opened.connection.execute("COMMIT")
            shown = (*pinned.values(), *confidence.unfold(hits))
            places = [candidate.place for candidate in shown]
            has_changed = index.recheck(opened, places)
            if not has_changed:
                break
        for pin, candidate in pinned.items():
            if candidate.place not in opened.outdated:
                self.pinned.setdefault(pin, candidate)
        self._add_notes(opened.notes())
        if opened.is_empty():
            self.ranked.empty_roots.append(opened.root)
        return [candidate for candidate in hits if candidate.place not in opened.outdated]

    def _find_pinned(self, opened: Index) -> dict[str, Candidate]:
        """Find the memory that each pin names in a store: by path, by id, or by a path without its ending."""
        execute = opened.connection.execute
        pinned = {}
        for pin in self.pins:
            row = None
            places = self._list_paths(pin, opened.root)
            for place in places:
                row = row or execute(f"{_PINNED} path = ?", (place,)).fetchone()
            if row is None and "/" not in pin:
                row = execute(f"{_PINNED} id = ? ORDER BY path LIMIT 1", (pin,)).fetchone()
            for place in _add_endings(places):
                row = row or execute(f"{_PINNED} path = ?", (place,)).fetchone()
            if row is not None:
                pinned[pin] = bm25.make_candidate(opened, row)
        return pinned

    def _list_paths(self, pin: str, root: str) -> list[str]:
        """List the paths inside the store at `root` that a pin may refer to."""
        places = []
        for base in (root, os.path.realpath(self.project)):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(pin)))
            if path.startswith(root.rstrip(os.sep) + os.sep):
                places.append(os.path.relpath(path, root).replace(os.sep, "/"))
        return places

    def by_keyword(self, root: str) -> list[Candidate]:
        """Find the entries of the store at `root` with words of the query in their titles or tags."""
        from judgekit.retrieval import scan  # noqa: PLC0415 - the exception, not the rule

        profile, entries, notes = scan.entries(root, self.profiles)
        if not entries:
            self.ranked.empty_roots.append(root)
        for pin in self.pins:
            places = self._list_paths(pin, root)
            places += _add_endings(places)
            for path, entry in entries:
                is_named = path in places or entry.id == pin
                if is_named and entry.problem is None:
                    self.pinned.setdefault(pin, _make_candidate(root, path, entry, profile))
                    break
        self._add_notes(notes)
        return match_keywords(entries, root, profile, self.text)

    def _add_notes(self, notes: list[str]) -> None:
        self.ranked.notes += notes[:MAX_NOTES]
        if len(notes) > MAX_NOTES:
            self.ranked.notes.append(f"and {len(notes) - MAX_NOTES} more files with problems")


def _add_endings(places: Sequence[str]) -> list[str]:
    """Complete paths with each possible file ending."""
    return [place + ending for place in places for ending in compiled.ENDINGS]


def plain_words(text: str) -> set[str]:
    """Return the lower-case runs of at least two ASCII letters and digits."""
    spaced = "".join(char if char.isascii() and char.isalnum() else " " for char in text.lower())
    return {word for word in spaced.split() if len(word) > 1}


def match_keywords(
    entries: Collection[tuple[str, Entry]], root: str, profile: Profile, prompt: str
) -> list[Candidate]:
    """Find the entries of a store that contain any word of the prompt, rated, best first."""
    language = profile.language
    words = sorted(plain_words(terms.excerpt(prompt)) - language.stop)
    hits = []
    for path, entry in entries:
        title = plain_words(entry.title)
        tags = plain_words(" ".join(entry.tags))
        points = [_count_points(word, title, tags) for word in words]
        if not any(points):
            continue
        hit = _make_candidate(root, path, entry, profile)
        hit.bm25 = hit.score = float(sum(points))
        hit.matched = {number for number, count in enumerate(points) if count}
        hit.titled = hit.matched
        hit.damaged = entry.problem is not None
        hit.text = entry.title.lower()
        hits.append(hit)
    query_terms = []
    for number, word in enumerate(words):
        term = terms.Term(word, [word], [word], common=word in language.common)
        count = sum(number in hit.matched for hit in hits)
        term.rarity = confidence.rarity(count, len(entries), profile.background, common=term.common)
        query_terms.append(term)
    return confidence.order(hits, query_terms, len(entries), profile)


def _count_points(word: str, title: set[str], tags: set[str]) -> int:
    if word in tags:
        return _TAG
    if word in title:
        return _TITLE
    if len(word) < MIN_PREFIX:
        return 0
    is_beginning = any(other.startswith(word) for other in title | tags)
    return _BEGINNING if is_beginning else 0


def _make_candidate(root: str, path: str, entry: Entry, profile: Profile) -> Candidate:
    updated = entry.updated or os.path.getmtime(os.path.join(root, path))
    hit = Candidate(
        entry.id, entry.title, entry.category, entry.tags, updated, root, path, profile.kind
    )
    hit.status = entry.status
    return hit


def body(candidate: Candidate, limit: int | None, profiles: Profiles | None = None) -> str:
    """Read the beginning of a candidate's text again; "" if it's gone or retired by now."""
    from judgekit.retrieval import scan  # noqa: PLC0415 - the hook without a judge needs no text

    if candidate.kind == confidence.COMMAND:  # no path that a program names is opened
        return candidate.text[:limit]
    profile = (profiles or Profiles(bundled())).by_kind[candidate.kind]
    entry, _ = scan.read(candidate.root, candidate.place, profile)
    return entry.body[:limit] if entry is not None else ""


def passages(
    text: str, hits: Sequence[Candidate], profiles: Profiles | None = None
) -> list[tuple[str, str]]:
    """Return each candidate's passage for `text` (without a match its beginning), and its whole text."""
    profiles = profiles or Profiles(bundled())
    texts = []
    terms_by_kind: dict[str, list[terms.Term]] = {}  # languages may differ
    connection = index_file.connect(":memory:")
    try:
        connection.execute(_TABLE)
        for candidate in hits:
            kind = candidate.kind
            if kind not in terms_by_kind:
                terms_by_kind[kind] = _parse_alone(text, profiles.of(kind))
            whole = body(candidate, None, profiles)
            text_of_section = _find_section(whole, candidate)
            texts.append((_find_passage(connection, text_of_section, terms_by_kind[kind]), whole))
    finally:
        connection.close()
    return texts


def _find_section(text: str, candidate: Candidate) -> str:
    """Return the section of a text that was found, or the whole text."""
    if not candidate.sections:
        return text
    from judgekit.retrieval import sections  # noqa: PLC0415 - the hook without a judge needs no text

    number = candidate.sections[0].number
    cut_sections = sections.cut(text)
    if number >= len(cut_sections):  # it has changed since
        return text
    section = cut_sections[number]
    return text[section.start : section.end]


def _parse_alone(text: str, profile: Profile) -> list[terms.Term]:
    """Return the terms of a query in its probable language, without looking at a store."""
    main_language = profile.language
    others = profile.languages.beside(main_language.name)
    return terms.parse(text, *terms.choose_languages(terms.excerpt(text), [main_language], others))


def _find_passage(connection: Connection, text: str, query_terms: Sequence[terms.Term]) -> str:
    expression = " OR ".join(term.shown for term in query_terms)
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    passage = text[:SNIPPET_LIMIT]
    text = terms.spread(text)
    if text and expression:
        if len(text) > _SHORT:
            text = text[: _find_end(connection, text, expression)]
        connection.execute(_PUT, (text,))
        row = connection.execute(_PASSAGE, (TOKENS, expression)).fetchone()
        if row:
            passage = terms.unspread(row[0])
    return " ".join(passage.split())[:SNIPPET_LIMIT]


def _find_end(connection: Connection, text: str, expression: str) -> int:
    """Find the place in a text after which `_MOST` words have matched, usually its end."""
    connection.execute(_PUT, (text.translate({1: " ", 2: " "}),))
    row = connection.execute(_MARKED, (expression,)).fetchone()
    if not row:
        return len(text)
    before, *marked_pieces = row[0].split("\1")
    end = len(before)
    matched = 0
    for piece in marked_pieces:
        inside, _, outside = piece.partition("\2")
        matched += max(len(terms.words(inside)), len(inside) // _UNSPACED_WORD)
        if matched > _MOST:
            return end + max(len(inside) * _MOST // matched, 1)
        end += len(inside) + len(outside)
    return len(text)
