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
from judgekit.retrieval.compiled import Profile, Profiles, get_bundled_data
from judgekit.retrieval.confidence import Candidate, RankedCandidates
from judgekit.retrieval.index_file import Index, sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.sources import Entry

__all__ = [
    "AUTO_ROOT",
    "Candidate",
    "RankedCandidates",
    "list_passages",
    "read_body",
    "resolve_root",
    "search",
]

AUTO_ROOT = "claude:auto"
SNIPPET_CHARS = 300  # characters
SNIPPET_WORDS = 40  # words of a passage
MAX_ROUNDS = 3  # of repeating the search because results changed during it
MAX_NOTES = 3  # lines about one store; further ones are counted
_KEYWORD_SCORER = "keyword"
MIN_PREFIX = 4  # letters of a keyword that may be the beginning of a word
_TAG_POINTS = 3
_TITLE_POINTS = 2
_BEGINNING_POINTS = 1  # points
_OUTSIDE_ROOT_MESSAGE = (
    "outside the project, so it is not searched; only your own configuration may name such a root"
)
_MISSING_PIN_MESSAGE = "no active memory has this id or path; nothing is injected for it"
_PINNED_MEMORY_QUERY = f"SELECT {bm25.COLUMNS} FROM file WHERE live = 1 AND problem IS NULL AND"  # noqa: S608 - our names
_CREATE_BODY_TABLE_STATEMENT = (
    "CREATE VIRTUAL TABLE body USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')"
)
_PUT_BODY_STATEMENT = "INSERT OR REPLACE INTO body (rowid, text) VALUES (1, ?)"
_SNIPPET_QUERY = "SELECT snippet(body, 0, '', '', '…', ?) FROM body WHERE body MATCH ?"
_HIGHLIGHT_QUERY = "SELECT highlight(body, 0, char(1), char(2)) FROM body WHERE body MATCH ?"
_SHORT_BODY_CHARS = 4_000  # characters of a body that's short enough to use whole
_MAX_MATCHES = 1_000  # matching words: `snippet` takes quadratic time in their number
_CHARS_PER_UNSPACED_WORD = 8  # characters that count as a word in scripts without spaces


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

    A root is a path (relative to `project`, or with `~`) or `claude:auto`. Only `trusted` roots, which the
    user named, may be outside `project`. Memories named by `pins` are found for any query. `pool` is the
    number of hits to rate per store. After `patience` seconds, files that weren't read yet are skipped.
    """
    profiles = profiles or Profiles(get_bundled_data())
    ranked = RankedCandidates([], [])
    store_search = _Search(query, profiles, project, pins, ranked)
    project_prefix = os.path.realpath(project).rstrip(os.sep) + os.sep

    # Search each store.
    for root in dict.fromkeys(roots):  # without duplicates
        folder = resolve_root(root, project)
        if not os.path.isdir(folder):
            continue

        folder = os.path.realpath(folder)
        if not may_be_searched(root, folder, project_prefix, trusted):
            ranked.notes.append(f"{root}: {_OUTSIDE_ROOT_MESSAGE}")
            continue

        ranked.searched_roots.append(folder)
        hits = None  # without a full-text search
        if scorer != _KEYWORD_SCORER:
            hits = store_search.find_by_fulltext(folder, limit, pool, patience)
        if hits is None:
            hits = store_search.find_by_keyword(folder)[:limit]
        elif snippets:
            texts = list_passages(query, hits, profiles)
            for candidate, (passage, _) in zip(hits, texts, strict=True):
                candidate.snippet = passage

        ranked.candidates += hits

    # Combine the stores' results.
    if len(roots) > 1:
        _merge_stores(ranked)
    if pins:
        _move_pinned(ranked, pins, store_search.pinned)
        if ranked.searched_roots:
            _note_missing_pins(ranked, pins, store_search.pinned)

    del ranked.candidates[limit:]
    for candidate in (*ranked.pinned, *ranked.candidates):
        for hit in (candidate, *candidate.near_duplicates):
            hit.path = hit.file.removeprefix(project_prefix)
    return ranked


def _merge_stores(ranked: RankedCandidates) -> None:
    """Merge the results of several stores: sort the hits, and drop repeated files and equal notes.

    Hits that say the same are folded into the newest of them.
    """
    best_hit_by_file: dict[str, Candidate] = {}
    for hit in sorted(ranked.candidates, key=_sort_key):
        if hit.file not in best_hit_by_file:
            best_hit_by_file[hit.file] = hit
    folded_hits = confidence.fold_alike(list(best_hit_by_file.values()))
    # Sort again, since a hit gets the highest confidence of those folded into it.
    ranked.candidates[:] = sorted(folded_hits, key=_sort_key)
    ranked.notes[:] = dict.fromkeys(ranked.notes)


def _sort_key(hit: Candidate) -> tuple[bool, float]:
    """Sort hits in force before others, and then by confidence."""
    is_out_of_force = hit.status != ""
    return is_out_of_force, -hit.confidence


def _move_pinned(
    ranked: RankedCandidates, pins: Sequence[str], candidate_by_pin: Mapping[str, Candidate]
) -> None:
    """Set `ranked.pinned` in the order of the pins, and drop its files from the other candidates."""
    pinned_by_file: dict[str, Candidate] = {}  # two pins can name the same file
    for pin in pins:
        if pin in candidate_by_pin:
            candidate = candidate_by_pin[pin]
            pinned_by_file[candidate.file] = candidate
    ranked.pinned = list(pinned_by_file.values())
    ranked.candidates[:] = [hit for hit in ranked.candidates if hit.file not in pinned_by_file]


def _note_missing_pins(
    ranked: RankedCandidates, pins: Sequence[str], found_pins: Collection[str]
) -> None:
    """Add a note about each pin that matches no memory in the searched stores."""
    for pin in pins:
        if pin not in found_pins:
            note = f"retrieval.pin: {pin!r}: {_MISSING_PIN_MESSAGE}"
            ranked.pin_by_note[note] = pin
    ranked.notes += ranked.pin_by_note.keys()


def describe_missing_roots(roots: Sequence[str], project: str) -> list[str]:
    """Describe each root that isn't a folder. If none is a folder, describe all in one line."""
    unique_roots = list(dict.fromkeys(roots))
    missing_roots = []
    for root in unique_roots:
        folder = resolve_root(root, project)
        if os.path.isdir(folder):
            continue
        if root == AUTO_ROOT:
            missing_roots.append(f"{root}: {folder}")  # people don't know this folder
        else:
            missing_roots.append(root)

    has_store = len(missing_roots) < len(unique_roots)
    if has_store:
        return [f"{root}: no such folder, so it is not searched" for root in missing_roots]

    listed_roots = ", ".join(missing_roots) if missing_roots else "no root is set"
    return [f"no store found ({listed_roots}); name one with --root"]


def may_be_searched(root: str, folder: str, project_prefix: str, trusted: Collection[str]) -> bool:
    """Whether a root is inside the project, or the user has allowed it.

    `folder` is the root's real path. `project_prefix` is the project's, with a separator at the end.
    """
    if (folder + os.sep).startswith(project_prefix):
        return True
    if _is_in_main_worktree(folder, project_prefix):
        return True

    if root not in trusted:
        return False
    is_absolute = root == AUTO_ROOT or os.path.isabs(os.path.expanduser(root))
    if is_absolute:
        return True
    # A relative root that leads out of the project without `..` goes through a link in it. The link may have
    # come with a clone, so the user hasn't allowed its target.
    first_folder, *_ = os.path.normpath(root).split(os.sep)
    return first_folder == os.pardir


def _is_in_main_worktree(folder: str, project_prefix: str) -> bool:
    """Whether the project is a linked worktree, and `folder` is in its main working tree."""
    from judgekit.retrieval import worktree  # noqa: PLC0415 - most stores are inside

    main = worktree.map_to_main_worktree(project_prefix.rstrip(os.sep))
    if main is None:
        return False
    main_prefix = os.path.realpath(main).rstrip(os.sep) + os.sep
    return (folder + os.sep).startswith(main_prefix)


def resolve_root(root: str, project: str) -> str:
    """Return the absolute path of a configured root, which may not exist.

    In a linked worktree, a folder missing there is looked up in the main working tree.
    """
    project_folder = os.path.abspath(project)
    if root == AUTO_ROOT:
        from judgekit.retrieval.sources import auto_folder  # noqa: PLC0415 - few roots are of this kind

        return auto_folder.find_memory_folder(project_folder)

    expanded_root = os.path.expanduser(root)
    folder = os.path.normpath(os.path.join(project_folder, expanded_root))
    if os.path.isdir(folder) or os.path.isabs(expanded_root):
        return folder

    from judgekit.retrieval import worktree  # noqa: PLC0415 - only if a store is missing

    # Files ignored by git are only in the main working tree.
    main_folder = worktree.map_to_main_worktree(project_folder)
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
        """Find hits in the store at `root`; None if this Python has no full-text search.

        After `patience` seconds, files that weren't read yet are skipped.
        """
        pool = max(pool, limit)
        try:
            opened = index.open_index(root, self.profiles, patience=patience)
        except index_file.NoFullTextError as error:
            why = f"no full-text search with this Python: {error}"
            self.ranked.notes.append(f"{why}; searching titles and tags only")
            self.ranked.fallback_reason = _KEYWORD_SCORER
            return None

        try:
            return self._search_index(opened, limit, pool)
        except (sqlite.DatabaseError, *index_file.SPOILT_DATA_ERRORS) as error:
            opened.connection.close()  # its file may be replaced
            opened = self._open_other_index(root, error, patience)
            return self._search_index(opened, limit, pool)
        finally:
            opened.close()

    def _open_other_index(self, root: str, error: Exception, patience: float | None) -> Index:
        """Rebuild a damaged index. If the index is fine but e.g. locked, build one in memory."""
        if index_file.is_damage(error):  # some damage shows only in reading
            return index.open_index(root, self.profiles, anew=True, patience=patience)

        from judgekit.retrieval import update  # noqa: PLC0415 - only if the index is locked

        return update.build_in_memory(root, self.profiles)

    def _search_index(self, opened: Index, limit: int, pool: int) -> list[Candidate]:
        """Find hits in an open index, and collect the store's pinned memories and notes."""
        is_quick = pool < bm25.POOL  # the prompt hook uses a smaller pool
        query_parts = self._parse_query(opened, quick=is_quick)
        if not query_parts and not self.pins:
            return []

        for _ in range(MAX_ROUNDS):
            pinned = self._find_pinned(opened) if self.pins else {}
            opened.connection.execute("BEGIN")  # use one lock for all statements
            hits = bm25.match(opened, query_parts, pool, quick=is_quick)[:limit]
            opened.connection.execute("COMMIT")

            # `recheck_files` reads those files again that changed after they were indexed. Then search once
            # more.
            candidates = (*pinned.values(), *confidence.unfold_alike(hits))
            has_changed = index.recheck_files(
                opened, [candidate.relative_path for candidate in candidates]
            )
            if not has_changed:
                break

        # A changed file that couldn't be indexed again is outdated.
        for pin, candidate in pinned.items():
            is_new = pin not in self.pinned  # an earlier store has priority
            if is_new and candidate.relative_path not in opened.outdated_paths:
                self.pinned[pin] = candidate

        self._add_notes(opened.describe_problems())
        if opened.is_empty():
            self.ranked.empty_roots.append(opened.root)
        return [hit for hit in hits if hit.relative_path not in opened.outdated_paths]

    def _parse_query(self, opened: Index, *, quick: bool) -> list[parts.Part]:
        """Parse the query in the store's languages. Only in a quick search is it split into parts."""
        languages = terms.choose_languages(
            terms.shorten_prompt(self.text), opened.languages, opened.rare_languages
        )
        if quick:
            return parts.parse(self.text, *languages)
        return parts.make_single_part(self.text, *languages)

    def _find_pinned(self, opened: Index) -> dict[str, Candidate]:
        """Find each pin's memory in a store by path, by id, or by a path without ending."""
        pinned = {}
        for pin in self.pins:
            row = self._find_pinned_row(opened.connection, pin, opened.root)
            if row is not None:
                pinned[pin] = bm25.make_candidate(opened, row)
        return pinned

    def _find_pinned_row(
        self, connection: Connection, pin: str, root: str
    ) -> tuple[Any, ...] | None:
        """Find the row of the pinned memory in the store at `root`, or None."""
        paths = self._list_paths(pin, root)
        row = _find_row_by_path(connection, paths)
        # Without a folder, the pin can be an id.
        if row is None and "/" not in pin:
            id_query = f"{_PINNED_MEMORY_QUERY} id = ? ORDER BY path LIMIT 1"
            row = connection.execute(id_query, (pin,)).fetchone()
        if row is None:
            row = _find_row_by_path(connection, _add_endings(paths))
        return row

    def _list_paths(self, pin: str, root: str) -> list[str]:
        """List the paths in the store at `root` that a pin can mean, relative to `root`.

        A pin can be relative to the store or to the project.
        """
        root_prefix = root.rstrip(os.sep) + os.sep
        paths = []
        for base in (root, os.path.realpath(self.project)):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(pin)))
            if path.startswith(root_prefix):
                paths.append(os.path.relpath(path, root).replace(os.sep, "/"))
        return paths

    def find_by_keyword(self, root: str) -> list[Candidate]:
        """Find the store's entries with query words in their titles or tags.

        Also collects the store's pinned memories and notes.
        """
        from judgekit.retrieval import scan  # noqa: PLC0415 - only without a full-text index

        profile, entries, notes = scan.read_entries(root, self.profiles)
        if not entries:
            self.ranked.empty_roots.append(root)
        self._collect_pinned_entries(root, entries, profile)
        self._add_notes(notes)
        return match_keywords(entries, root, profile, self.text)

    def _collect_pinned_entries(
        self, root: str, entries: Sequence[tuple[str, Entry]], profile: Profile
    ) -> None:
        """Add the store's pinned memories to `self.pinned`."""
        for pin in self.pins:
            if pin in self.pinned:  # an earlier store has priority
                continue

            possible_paths = self._list_paths(pin, root)
            possible_paths += _add_endings(possible_paths)
            for path, entry in entries:
                is_named = path in possible_paths or entry.id == pin
                if is_named and entry.problem is None:
                    self.pinned[pin] = _make_candidate(root, path, entry, profile)
                    break

    def _add_notes(self, notes: list[str]) -> None:
        """Add a store's notes. Of many, add only the first and the number of the others."""
        self.ranked.notes += notes[:MAX_NOTES]
        if len(notes) > MAX_NOTES:
            self.ranked.notes.append(f"and {len(notes) - MAX_NOTES} more files with problems")


def _find_row_by_path(connection: Connection, paths: Sequence[str]) -> tuple[Any, ...] | None:
    """Find the row of the first path that's an active memory's in the index, or None."""
    path_query = f"{_PINNED_MEMORY_QUERY} path = ?"
    for path in paths:
        row: tuple[Any, ...] | None = connection.execute(path_query, (path,)).fetchone()
        if row is not None:
            return row
    return None


def _add_endings(paths: Sequence[str]) -> list[str]:
    """Add each possible file ending to each path."""
    complete_paths = []
    for path in paths:
        complete_paths += [path + ending for ending in compiled.ENDINGS]
    return complete_paths


def list_plain_words(text: str) -> set[str]:
    """Return the ASCII words in text, in lower case, without single characters."""
    spaced = [char if char.isascii() and char.isalnum() else " " for char in text.lower()]
    words = "".join(spaced).split()
    return {word for word in words if len(word) > 1}


def match_keywords(
    entries: Collection[tuple[str, Entry]], root: str, profile: Profile, prompt: str
) -> list[Candidate]:
    """Find the entries with prompt words in their titles or tags, rated and best first."""
    all_words = list_plain_words(terms.shorten_prompt(prompt))
    words = sorted(all_words - profile.language.stop_words)
    hits = []
    for path, entry in entries:
        hit = _match_entry(root, path, entry, profile, words)
        if hit is not None:
            hits.append(hit)

    query_terms = _make_query_terms(words, hits, len(entries), profile)
    return confidence.rank_hits(hits, query_terms, len(entries), profile)


def _match_entry(
    root: str, path: str, entry: Entry, profile: Profile, words: Sequence[str]
) -> Candidate | None:
    """Make a hit of an entry, or return None if no word is in its title or tags."""
    title = list_plain_words(entry.title)
    tags = list_plain_words(" ".join(entry.tags))
    points = [_count_points(word, title, tags) for word in words]
    if not any(points):
        return None

    hit = _make_candidate(root, path, entry, profile)
    hit.bm25 = float(sum(points))  # the points stand in for the BM25 score
    hit.score = hit.bm25
    hit.matched_terms = {number for number, count in enumerate(points) if count}
    hit.title_terms = hit.matched_terms  # all of them are in the title or tags
    hit.is_damaged = entry.problem is not None
    hit.text = entry.title.lower()
    return hit


def _make_query_terms(
    words: Sequence[str], hits: Sequence[Candidate], entry_count: int, profile: Profile
) -> list[terms.Term]:
    """Make a term of each word, so that the hits can be rated like full-text hits."""
    query_terms = []
    for number, word in enumerate(words):
        is_common = word in profile.language.common_words
        hit_count = sum(number in hit.matched_terms for hit in hits)
        term = terms.Term(word, [word], [word], is_common=is_common)
        term.rarity = confidence.compute_rarity(
            hit_count, entry_count, profile.background, common=is_common
        )
        query_terms.append(term)
    return query_terms


def _count_points(word: str, title: set[str], tags: set[str]) -> int:
    """Rate a query word: 3 as a tag, 2 in the title, 1 as the start of such a word, else 0."""
    if word in tags:
        return _TAG_POINTS
    if word in title:
        return _TITLE_POINTS
    if len(word) < MIN_PREFIX:
        return 0
    is_beginning = any(longer.startswith(word) for longer in title | tags)
    return _BEGINNING_POINTS if is_beginning else 0


def _make_candidate(root: str, path: str, entry: Entry, profile: Profile) -> Candidate:
    """Build an entry's candidate. If the entry has no date, use its file's time."""
    updated = entry.updated
    if not updated:
        updated = os.path.getmtime(os.path.join(root, path))
    hit = Candidate(
        entry.id, entry.title, entry.category, entry.tags, updated, root, path, profile.kind
    )
    hit.status = entry.status
    return hit


def read_body(candidate: Candidate, limit: int | None, profiles: Profiles | None = None) -> str:
    """Read up to `limit` characters of a candidate's text, or all of it if `limit` is None."""
    from judgekit.retrieval import scan  # noqa: PLC0415 - loaded only to show a text

    # A candidate from the user's program brings its text. Never open the path that the program gave.
    if candidate.kind == confidence.COMMAND_KIND:
        return candidate.text[:limit]
    profiles = profiles or Profiles(get_bundled_data())
    profile = profiles.by_kind[candidate.kind]
    entry, _ = scan.read_file(candidate.root, candidate.relative_path, profile)
    if entry is None:  # the file is gone, or the memory is retired
        return ""
    return entry.body[:limit]


def list_passages(
    text: str, hits: Sequence[Candidate], profiles: Profiles | None = None
) -> list[tuple[str, str]]:
    """Return a pair for each hit: its best passage for the query `text`, and its full text.

    The best passage has the most terms of the query. If there's none, it's the beginning of the hit's text.
    """
    profiles = profiles or Profiles(get_bundled_data())
    pairs = []
    # Stores of different kinds can be in different languages.
    terms_by_kind: dict[str, list[terms.Term]] = {}
    connection = index_file.connect(":memory:")

    try:
        connection.execute(_CREATE_BODY_TABLE_STATEMENT)
        for hit in hits:
            if hit.kind not in terms_by_kind:
                terms_by_kind[hit.kind] = _parse_alone(text, profiles.get_profile(hit.kind))
            whole_text = read_body(hit, limit=None, profiles=profiles)
            section_text = _find_section(whole_text, hit)
            passage = _find_passage(connection, section_text, terms_by_kind[hit.kind])
            pairs.append((passage, whole_text))
    finally:
        connection.close()

    return pairs


def _find_section(text: str, candidate: Candidate) -> str:
    """Return a candidate's best section, or the full text if it has no sections."""
    if not candidate.sections:
        return text
    from judgekit.retrieval import sections  # noqa: PLC0415 - loaded only to show a text

    best_section = candidate.sections[0]  # the best comes first
    text_sections = sections.cut_sections(text)
    if best_section.number >= len(text_sections):  # the file has changed since
        return text
    section = text_sections[best_section.number]
    return text[section.start : section.end]


def _parse_alone(text: str, profile: Profile) -> list[terms.Term]:
    """Return a query's terms. Without stored texts, its language is guessed from the query itself."""
    main_language = profile.language
    other_languages = profile.languages.list_others(main_language.name)
    excerpt = terms.shorten_prompt(text)
    languages = terms.choose_languages(excerpt, [main_language], other_languages)
    return terms.parse(text, *languages)


def _find_passage(connection: Connection, text: str, query_terms: Sequence[terms.Term]) -> str:
    """Return the passage with the most terms, or else the beginning, on a single line."""
    # SQLite can't store lone surrogates or NULs.
    storable_text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    passage = _find_best_snippet(connection, storable_text, query_terms)
    if passage is None:
        passage = storable_text[:SNIPPET_CHARS]
    return " ".join(passage.split())[:SNIPPET_CHARS]


def _find_best_snippet(
    connection: Connection, text: str, query_terms: Sequence[terms.Term]
) -> str | None:
    """Let FTS5 choose the snippet with the most terms; None if the text has no term."""
    spaced_text = terms.add_gaps(text)
    expression = " OR ".join(term.unstemmed_expression for term in query_terms)
    if not spaced_text or not expression:
        return None

    if len(spaced_text) > _SHORT_BODY_CHARS:
        # Choosing a snippet takes quadratic time in the number of matches, so cut the text after many.
        spaced_text = spaced_text[: _find_cut_position(connection, spaced_text, expression)]
    connection.execute(_PUT_BODY_STATEMENT, (spaced_text,))
    row = connection.execute(_SNIPPET_QUERY, (SNIPPET_WORDS, expression)).fetchone()
    if not row:
        return None
    (snippet,) = row
    return terms.remove_gaps(snippet)


def _find_cut_position(connection: Connection, text: str, expression: str) -> int:
    """Return the position after about `_MAX_MATCHES` matching words, or the end if there are fewer."""
    # FTS5 will put the characters 1 and 2 around each match.
    without_marks = text.translate({1: " ", 2: " "})
    connection.execute(_PUT_BODY_STATEMENT, (without_marks,))
    row = connection.execute(_HIGHLIGHT_QUERY, (expression,)).fetchone()
    if not row:
        return len(text)

    (marked_text,) = row
    text_before, *pieces = marked_text.split("\1")
    position = len(text_before)
    word_count = 0
    for piece in pieces:
        match, _, text_after = piece.partition("\2")
        word_count += _estimate_words(match)
        if word_count > _MAX_MATCHES:
            # A match can be a long run of words, so keep only part of it.
            kept_chars = len(match) * _MAX_MATCHES // word_count
            return position + max(kept_chars, 1)
        position += len(match) + len(text_after)

    return len(text)


def _estimate_words(match: str) -> int:
    """Count a match's words. In a script without spaces, estimate their number from the length."""
    spaced_count = len(terms.split_alphanumeric(match))
    unspaced_count = len(match) // _CHARS_PER_UNSPACED_WORD
    return max(spaced_count, unspaced_count)
