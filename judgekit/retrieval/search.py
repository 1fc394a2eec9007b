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
    from typing import Any

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
    """Find the `limit` best candidates for `query` in the stores at `roots`.

    A root is a path (relative ones start at `project`, `~` is the home folder) or `claude:auto`. Only
    `trusted` roots, those that the user named, may lead out of `project`. Several stores are merged by
    confidence. Memories named by `pins` are found for any query. `pool` hits of a store are rated. After
    `patience` seconds, the search goes on with the files read so far.
    """
    profiles = profiles or Profiles(bundled())
    ranked = RankedCandidates([], [])
    store_search = _Search(query, profiles, project, pins, ranked)
    project_prefix = os.path.realpath(project).rstrip(os.sep) + os.sep
    for root in dict.fromkeys(roots):  # each once
        folder = resolve(root, project)
        if not os.path.isdir(folder):
            continue
        folder = os.path.realpath(folder)
        if not may_be_searched(root, folder, project_prefix, trusted):
            ranked.notes.append(f"{root}: {_LEADS_OUT}")
            continue
        ranked.searched_roots.append(folder)
        hits = None  # until a full-text search has run
        if scorer != _KEYWORD:
            hits = store_search.find_by_fulltext(folder, limit, pool, patience)
        if hits is None:
            hits = store_search.find_by_keyword(folder)[:limit]
        elif snippets:
            texts = passages(query, hits, profiles)
            for candidate, (passage, _) in zip(hits, texts, strict=True):
                candidate.snippet = passage
        ranked.candidates += hits

    if len(roots) > 1:
        _merge_stores(ranked)
    if pins:
        _move_pinned(ranked, pins, store_search.pinned)
        if ranked.searched_roots:
            _note_missing_pins(ranked, pins, store_search.pinned)

    del ranked.candidates[limit:]
    for candidate in (*ranked.pinned, *ranked.candidates):
        for hit in (candidate, *candidate.alike):
            hit.path = hit.file.removeprefix(project_prefix)
    return ranked


def _merge_stores(ranked: RankedCandidates) -> None:
    """Order the hits of several stores; of hits for the same file, and of equal notes, keep the first."""
    hit_by_file: dict[str, Candidate] = {}
    for hit in sorted(ranked.candidates, key=_sort_key):
        if hit.file not in hit_by_file:
            hit_by_file[hit.file] = hit
    folded = confidence.fold_alike(list(hit_by_file.values()))
    ranked.candidates[:] = sorted(folded, key=_sort_key)
    ranked.notes[:] = dict.fromkeys(ranked.notes)


def _sort_key(hit: Candidate) -> tuple[bool, float]:
    """Return the key to sort a hit by: hits in force come first, then the more confident ones."""
    is_out_of_force = hit.status != ""
    return is_out_of_force, -hit.confidence


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


def _note_missing_pins(
    ranked: RankedCandidates, pins: Sequence[str], pinned: Collection[str]
) -> None:
    """Add a note about each pin that names no memory in any of the stores that were searched."""
    for pin in pins:
        if pin not in pinned:
            ranked.pin_by_note[f"retrieval.pin: {pin!r}: {_NO_PIN}"] = pin
    ranked.notes += ranked.pin_by_note


def describe_missing_roots(roots: Sequence[str], project: str) -> list[str]:
    """Write a line about each root that isn't a folder, or a single line if none of the roots is one."""
    unique_roots = list(dict.fromkeys(roots))
    missing_roots = []
    for root in unique_roots:
        folder = resolve(root, project)
        if os.path.isdir(folder):
            continue
        if root == AUTO_ROOT:
            missing_roots.append(f"{root}: {folder}")  # nobody knows its folder by heart
        else:
            missing_roots.append(root)
    has_store = len(missing_roots) < len(unique_roots)
    if has_store:
        return [f"{root}: no such folder, so it is not searched" for root in missing_roots]
    listed_roots = ", ".join(missing_roots) if missing_roots else "no root is set"
    return [f"no store found ({listed_roots}); name one with --root"]


def may_be_searched(root: str, folder: str, project_prefix: str, trusted: Collection[str]) -> bool:
    """Whether the real path `folder`, where `root` leads, is in the project or allowed by the user.

    `project_prefix` is the project's real path and a separator. The main working tree of a linked worktree
    counts as the project, too. Any other folder is only searched if `root` is trusted, and if it's absolute
    or begins with `..`: a root inside the project could be a link that came with a clone.
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
    first_folder, *_ = os.path.normpath(root).split(os.sep)
    leads_up = first_folder == os.pardir
    return root in trusted and (is_absolute or leads_up)


def resolve(root: str, project: str) -> str:
    """Return the absolute path of a configured root, whether it exists or not.

    If a linked git worktree lacks the folder, but the main working tree has it, the latter's path is
    returned.
    """
    project_folder = os.path.abspath(project)
    if root == AUTO_ROOT:
        from judgekit.retrieval.sources import auto_folder  # noqa: PLC0415 - few roots are of this kind

        return auto_folder.folder_of(project_folder)
    expanded_root = os.path.expanduser(root)
    folder = os.path.normpath(os.path.join(project_folder, expanded_root))
    if os.path.isdir(folder) or os.path.isabs(expanded_root):
        return folder
    from judgekit.retrieval import worktree  # noqa: PLC0415 - only if a store is missing

    # Files that git ignores exist in the main working tree only.
    main_folder = worktree.path_in_main_worktree(project_folder)
    if main_folder is not None:
        folder_in_main = os.path.normpath(os.path.join(main_folder, root))
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

    def find_by_fulltext(
        self, root: str, limit: int, pool: int, patience: float | None
    ) -> list[Candidate] | None:
        """Find the hits in the store at `root`; None if this Python has no full-text search.

        If the index turns out to be damaged, it's built anew. If it can't be used for another reason, for
        example because it's locked, an index in memory answers.
        """
        try:
            opened = index.open_index(root, self.profiles, patience=patience)
        except index_file.NoFullTextError as error:
            why = f"no full-text search with this Python: {error}"
            self.ranked.notes.append(f"{why}; searching titles and tags only")
            self.ranked.fallback = _KEYWORD
            return None

        try:
            return self._search_index(opened, limit, max(pool, limit))
        except (sqlite.DatabaseError, *index_file.SPOILT) as error:
            opened.connection.close()  # its file may be deleted next
            if index_file.is_damage(error):  # opening it doesn't show all damage, reading does
                opened = index.open_index(root, self.profiles, anew=True, patience=patience)
            else:  # the file is fine, but locked, for example
                from judgekit.retrieval import update  # noqa: PLC0415 - only if the index is locked

                opened = update.build_in_memory(root, self.profiles)
            return self._search_index(opened, limit, max(pool, limit))
        finally:
            opened.close()

    def _search_index(self, opened: Index, limit: int, pool: int) -> list[Candidate]:
        """Find the hits in an open index, and collect the pins and the notes of its store.

        The hits' files are checked. If any of them changed, its entry is read again, and the search is
        repeated.
        """
        is_quick = pool < bm25.POOL  # the prompt hook passes a smaller pool than a search
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
            candidates = (*pinned.values(), *confidence.unfold(hits))
            has_changed = index.recheck(opened, [candidate.place for candidate in candidates])
            if not has_changed:
                break

        for pin, candidate in pinned.items():
            is_new = pin not in self.pinned  # the first store that has it counts
            if is_new and candidate.place not in opened.outdated:
                self.pinned[pin] = candidate
        self._add_notes(opened.notes())
        if opened.is_empty():
            self.ranked.empty_roots.append(opened.root)
        return [candidate for candidate in hits if candidate.place not in opened.outdated]

    def _find_pinned(self, opened: Index) -> dict[str, Candidate]:
        """Find the memory that each pin names in a store: by path, by id, or by a path without its ending.

        Pins that name nothing here are left out.
        """
        pinned = {}
        for pin in self.pins:
            row = self._find_pinned_row(opened.connection, pin, opened.root)
            if row is not None:
                pinned[pin] = bm25.make_candidate(opened, row)
        return pinned

    def _find_pinned_row(
        self, connection: Connection, pin: str, root: str
    ) -> tuple[Any, ...] | None:
        """Find the row of the memory that a pin names in the store at `root`; None if it names none."""
        by_path = f"{_PINNED} path = ?"
        row: tuple[Any, ...] | None
        paths = self._list_paths(pin, root)
        for path in paths:
            row = connection.execute(by_path, (path,)).fetchone()
            if row is not None:
                return row
        if "/" not in pin:
            by_id = f"{_PINNED} id = ? ORDER BY path LIMIT 1"
            row = connection.execute(by_id, (pin,)).fetchone()
            if row is not None:
                return row
        for path in _add_endings(paths):
            row = connection.execute(by_path, (path,)).fetchone()
            if row is not None:
                return row
        return None

    def _list_paths(self, pin: str, root: str) -> list[str]:
        """List the paths in the store at `root` that a pin may mean: relative to the store or the project."""
        root_prefix = root.rstrip(os.sep) + os.sep
        paths = []
        for base in (root, os.path.realpath(self.project)):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(pin)))
            if path.startswith(root_prefix):
                paths.append(os.path.relpath(path, root).replace(os.sep, "/"))
        return paths

    def find_by_keyword(self, root: str) -> list[Candidate]:
        """Find the entries of the store at `root` that have words of the query in their titles or tags.

        Also collects the pins that name one of the entries, and the notes of the store.
        """
        from judgekit.retrieval import scan  # noqa: PLC0415 - only without a full-text index

        profile, entries, notes = scan.entries(root, self.profiles)
        if not entries:
            self.ranked.empty_roots.append(root)

        for pin in self.pins:
            if pin in self.pinned:  # the first store that has it counts
                continue
            possible_paths = self._list_paths(pin, root)
            possible_paths += _add_endings(possible_paths)
            for path, entry in entries:
                is_named = path in possible_paths or entry.id == pin
                if is_named and entry.problem is None:
                    self.pinned[pin] = _make_candidate(root, path, entry, profile)
                    break

        self._add_notes(notes)
        return match_keywords(entries, root, profile, self.text)

    def _add_notes(self, notes: list[str]) -> None:
        """Add the notes of one store; of many, the first ones and the number of the others."""
        self.ranked.notes += notes[:MAX_NOTES]
        if len(notes) > MAX_NOTES:
            self.ranked.notes.append(f"and {len(notes) - MAX_NOTES} more files with problems")


def _add_endings(paths: Sequence[str]) -> list[str]:
    """Complete paths with each possible file ending."""
    complete_paths = []
    for path in paths:
        complete_paths += [path + ending for ending in compiled.ENDINGS]
    return complete_paths


def plain_words(text: str) -> set[str]:
    """Return the runs of ASCII letters and digits in a text, in lower case, without single characters."""
    spaced = [char if char.isascii() and char.isalnum() else " " for char in text.lower()]
    words = "".join(spaced).split()
    return {word for word in words if len(word) > 1}


def match_keywords(
    entries: Collection[tuple[str, Entry]], root: str, profile: Profile, prompt: str
) -> list[Candidate]:
    """Find the entries of a store that have any word of the prompt in their titles or tags.

    Returns them as rated hits, best first.
    """
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
        hit.bm25 = float(sum(points))
        hit.score = hit.bm25
        hit.matched = {number for number, count in enumerate(points) if count}
        hit.titled = hit.matched
        hit.damaged = entry.problem is not None
        hit.text = entry.title.lower()
        hits.append(hit)

    # Rate them like hits of a full-text search, for which each word is a term.
    query_terms = []
    for number, word in enumerate(words):
        term = terms.Term(word, [word], [word], common=word in language.common)
        count = sum(number in hit.matched for hit in hits)
        term.rarity = confidence.rarity(count, len(entries), profile.background, common=term.common)
        query_terms.append(term)
    return confidence.rank_hits(hits, query_terms, len(entries), profile)


def _count_points(word: str, title: set[str], tags: set[str]) -> int:
    """Return the points of a word of the query: 3 for a tag, 2 for a word of the title.

    A word that only begins a tag or a word of the title gets 1 point, and any other word gets 0.
    """
    if word in tags:
        return _TAG
    if word in title:
        return _TITLE
    if len(word) < MIN_PREFIX:
        return 0
    is_beginning = any(longer.startswith(word) for longer in title | tags)
    return _BEGINNING if is_beginning else 0


def _make_candidate(root: str, path: str, entry: Entry, profile: Profile) -> Candidate:
    """Build the candidate of an entry; if the entry doesn't know its age, its file's time counts."""
    updated = entry.updated
    if not updated:
        updated = os.path.getmtime(os.path.join(root, path))
    hit = Candidate(
        entry.id, entry.title, entry.category, entry.tags, updated, root, path, profile.kind
    )
    hit.status = entry.status
    return hit


def body(candidate: Candidate, limit: int | None, profiles: Profiles | None = None) -> str:
    """Read the first `limit` characters of a candidate's text, or all for None.

    The text is "" if the file is gone or retired by now.
    """
    from judgekit.retrieval import scan  # noqa: PLC0415 - loaded only to show a text

    if candidate.kind == confidence.COMMAND:  # a path from a user's program is never opened
        return candidate.text[:limit]
    profiles = profiles or Profiles(bundled())
    profile = profiles.by_kind[candidate.kind]
    entry, _ = scan.read_file(candidate.root, candidate.place, profile)
    if entry is None:
        return ""
    return entry.body[:limit]


def passages(
    text: str, hits: Sequence[Candidate], profiles: Profiles | None = None
) -> list[tuple[str, str]]:
    """Read each hit's text. Returns pairs of the passage with the most terms of `text`, and the whole text.

    If none of the terms occurs in the hit, its passage is the beginning.
    """
    profiles = profiles or Profiles(bundled())
    pairs = []
    # Stores of different kinds may be in different languages.
    terms_by_kind: dict[str, list[terms.Term]] = {}
    connection = index_file.connect(":memory:")
    try:
        connection.execute(_TABLE)
        for candidate in hits:
            kind = candidate.kind
            if kind not in terms_by_kind:
                terms_by_kind[kind] = _parse_alone(text, profiles.of(kind))
            whole_text = body(candidate, None, profiles)
            section_text = _find_section(whole_text, candidate)
            passage = _find_passage(connection, section_text, terms_by_kind[kind])
            pairs.append((passage, whole_text))
    finally:
        connection.close()
    return pairs


def _find_section(text: str, candidate: Candidate) -> str:
    """Return the text of a candidate's best section.

    It's the whole text if the candidate has no sections, or if the file has changed and lacks that section.
    """
    if not candidate.sections:
        return text
    from judgekit.retrieval import sections  # noqa: PLC0415 - loaded only to show a text

    best_section = candidate.sections[0]  # they're sorted, the best first
    text_sections = sections.cut(text)
    if best_section.number >= len(text_sections):  # the file has changed since it was indexed
        return text
    section = text_sections[best_section.number]
    return text[section.start : section.end]


def _parse_alone(text: str, profile: Profile) -> list[terms.Term]:
    """Return the terms of a query. Its language is guessed from the query alone, without a store."""
    main_language = profile.language
    other_languages = profile.languages.beside(main_language.name)
    excerpt = terms.excerpt(text)
    languages = terms.choose_languages(excerpt, [main_language], other_languages)
    return terms.parse(text, *languages)


def _find_passage(connection: Connection, text: str, query_terms: Sequence[terms.Term]) -> str:
    """Find the passage of a text with the most terms, and put it on one line.

    If the text has none of the terms, it's the beginning of the text.
    """
    expression = " OR ".join(term.shown for term in query_terms)
    # SQLite stores neither lone surrogates nor NULs.
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    passage = text[:SNIPPET_LIMIT]
    text = terms.spread(text)
    if text and expression:
        if len(text) > _SHORT:
            text = text[: _find_cut_position(connection, text, expression)]
        connection.execute(_PUT, (text,))
        row = connection.execute(_PASSAGE, (TOKENS, expression)).fetchone()
        if row:
            (snippet,) = row
            passage = terms.unspread(snippet)
    return " ".join(passage.split())[:SNIPPET_LIMIT]


def _find_cut_position(connection: Connection, text: str, expression: str) -> int:
    """Return the position behind the `_MOST`-th matching word of a text, or its end if there are fewer."""
    # FTS5 puts a character 1 before and a character 2 behind each match.
    without_marks = text.translate({1: " ", 2: " "})
    connection.execute(_PUT, (without_marks,))
    row = connection.execute(_MARKED, (expression,)).fetchone()
    if not row:
        return len(text)
    (marked_text,) = row
    text_before, *pieces = marked_text.split("\1")
    end = len(text_before)
    word_count = 0
    for piece in pieces:
        match, _, text_behind = piece.partition("\2")
        word_count += max(len(terms.words(match)), len(match) // _UNSPACED_WORD)
        if word_count > _MOST:
            # A match may be a long run of many words: keep a part of it, but one character at least.
            return end + max(len(match) * _MOST // word_count, 1)
        end += len(match) + len(text_behind)
    return len(text)
