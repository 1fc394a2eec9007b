"""Writes an index: compares it with its store, adds new and changed entries, and drops those that are gone.

Everything happens in transactions of at most `BATCH_FILES`, so that nobody waits long for the lock. If a
process ends or is killed, the rest stays marked as pending, and the next one continues.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import contextmanager, suppress
from itertools import pairwise

from judgekit import environment
from judgekit.retrieval import index_file, scan, scripts, sections
from judgekit.retrieval.index_file import TOTAL, VERSION, Index, is_sure, read_facts, sqlite
from judgekit.retrieval.sources import Entry, claude_memory
from judgekit.retrieval.terms import collect_hidden_words, fold, split_words, stem_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from sqlite3 import Connection
    from typing import Any, TypeAlias

    from judgekit.retrieval.compiled import Language, Profile, Profiles

    # The columns of the table `section` after the first.
    SectionRow: TypeAlias = tuple[int, int, int, int, int, str | None, str | None]
    # Of a watched place: whether it's a folder, its stamp, and whether that's sure.
    Watched: TypeAlias = tuple[bool, index_file.Stamp | None, bool]

BATCH_FILES = 256  # files that are read in one transaction: some 50 ms
_MAKING = ".making"
# Seconds after which an unfinished file must belong to a process that was killed.
_ABANDONED_SECONDS = 600
_UNUSED_SECONDS = 30 * 86_400  # seconds until the file of another version is removed

_SAMPLE_CHARS = 2_000  # characters of a body that are enough to detect its language
_SHORT_WORDS = 20  # words of a text that may have no stop word at all
_STOP_SHARE = 0.12  # of the words of a text: about half of English ones, a fifth of commented code
_CLEAR_LEAD = 2  # different stop words more, and in a text that isn't short:
_CLEAR_LEAD_IN_LONG = 3
_CLEAR_RATIO = 1.5  # as many stop words
_CODE_SIGN_SHARE = 0.015  # of the characters of code are signs, and hardly any of prose
_WITHOUT_SIGNS = dict.fromkeys(map(ord, "{}[]()<>=;|\\/$@_%&^~"))
_BODY_COLUMN = 2  # the place of the body among the columns of the table `text`
# If more of a text's characters are Han, kana, Thai or Hangul, the rest is names and code.
_RUN_SHARE = 0.15

LAYOUT = os.path.join(os.path.dirname(__file__), "index.sql")
_SET_ABOUT = "INSERT OR REPLACE INTO about VALUES (?, ?)"
_ADD_TEXT = "INSERT INTO text (rowid, title, tags, body, parts) VALUES (?, ?, ?, ?, ?)"
_ADD_SECTION = "INSERT INTO section VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_COUNT = """INSERT INTO term (term, entries) VALUES (?, ?)
    ON CONFLICT (term) DO UPDATE SET entries = entries + excluded.entries"""
_IN_FOLDER = """SELECT file.number, file.path, size, mtime, inode, read FROM file
    JOIN watch ON file.folder = watch.number WHERE watch.path = ?"""
_DROP_NOTE = "DELETE FROM note WHERE place = (SELECT path FROM file WHERE number = ?)"
_ADD_NOTE = "INSERT INTO note (text, place) SELECT ?, path FROM file WHERE number = ?"
_OF_NAME = "SELECT number FROM file WHERE path = ? OR path LIKE ?"
_SET_FILE = """UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ?, live = ?, digest = ?,
    problem = ?, id = ?, title = ?, category = ?, tags = ?, status = ?, updated = ?, language = ?,
    sections = ? WHERE number = ?"""
_TOUCH_FILE = (
    "UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ? WHERE number = ?"
)
_ADD_WATCH = "INSERT OR REPLACE INTO watch (number, path, folder, x, y, z, sure) VALUES (?, ?, ?, ?, ?, ?, ?)"


def create(connection: Connection, root: str, profiles: Profiles, kind: str = "") -> None:
    """Create an empty index's tables, and the facts that it keeps about itself."""
    with open(LAYOUT, encoding="utf-8", newline="\n") as file:
        connection.executescript(file.read())

    facts = {
        "root": root,
        "read_by": index_file.reading_fingerprint(profiles),
        "kind": kind,
        "size": 0,
        "pending": 0,
        "folders": 0,
        "languages": "",
        "was_whole": 0,
        "updated": index_file.clock(),
    }
    connection.executemany(_SET_ABOUT, facts.items())


def build_in_memory(root: str, profiles: Profiles) -> Index:
    """Build an index in memory of the store at `root`, or of its newest files if it's large."""
    index = Index(index_file.connect(":memory:"), root, profiles)
    try:
        create(index.connection, root, profiles)
        index.load(read_facts(index.connection))
        refresh(index, None, (), limit=index_file.MAX_MEMORY_FILES)
    except BaseException:
        index.connection.close()
        raise
    return index


def replace(root: str, profiles: Profiles, path: str | None) -> None:
    """Replace the index file at `path` by an empty one with the next number.

    If `path` is None, there's no file yet. If another process has already replaced the file, do nothing.
    """
    folder = environment.INDEXES.make(environment.file_name_for(root))
    newest = index_file.find_index_file(root)
    if newest is not None and path != newest:  # another process has already replaced it
        return

    generation = 0
    if newest is not None:
        *_, newest_generation, _ = newest.split(".")  # `v6.1.sqlite`
        generation = int(newest_generation) + 1

    # Build the file under a temporary name, so that nobody opens it half-made.
    temporary = f"{folder}/{os.getpid()}{_MAKING}"
    _unlink(temporary)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        _create_tables(temporary, root, profiles)
        os.link(temporary, f"{folder}/v{VERSION}.{generation}.sqlite")
    except FileExistsError:  # another process was quicker, with the same result
        pass
    finally:
        _unlink(temporary)

    for older in range(generation):
        _unlink(f"{folder}/v{VERSION}.{older}.sqlite")
    _remove_leftovers(folder)


def _create_tables(path: str, root: str, profiles: Profiles) -> None:
    """Create the tables in a new index file."""
    connection = index_file.connect(path)
    try:
        # No other process uses the file yet, so no journal is needed.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        create(connection, root, profiles)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def _remove_leftovers(folder: str) -> None:
    """Remove half-made index files of killed processes, and old index files of other judgekit versions."""
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.name.startswith(f"v{VERSION}."):
                continue
            is_half_made = _MAKING in entry.name
            most_seconds = _ABANDONED_SECONDS if is_half_made else _UNUSED_SECONDS
            with suppress(OSError):  # the file may have been removed since, or isn't ours
                age = time.time() - entry.stat().st_mtime
                if age > most_seconds:
                    os.unlink(entry.path)


def _unlink(path: str) -> None:
    """Remove an index file and SQLite's two files next to it, whichever exist."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


class Plan:
    """The changes to write to bring an index up to date, before any entry is read.

    It compares the `watched_paths` of a store (None: all) with the index. `watched` are those that differ,
    `gone` those that disappeared. `new` files have no row yet; `changed` and `lost` are numbers of rows. With
    `anew`, nothing in the index counts.
    """

    def __init__(
        self, index: Index, known_kind: str, watched_paths: Collection[str] | None
    ) -> None:
        self._connection = index.connection
        self.kind = scan.detect_kind(index.root, index.profiles)
        self.anew = self.kind != known_kind
        self.watched: dict[str, Watched] = {}
        self.gone: dict[str, None] = {}
        self.new: dict[str, str] = {}  # the folder of each
        self.stamps: dict[str, index_file.Stamp] = {}
        self.changed: list[int] = []
        self.lost: list[int] = []
        self.notes: dict[str, list[str]] = {}
        self._known: dict[str, Watched] = {}
        rows = self._read_rows("SELECT path, folder, x, y, z, sure FROM watch")
        for path, is_folder, x, y, z, sure in rows:
            is_missing = x is None
            stamp = None if is_missing else (x, y, z)
            self._known[path] = (bool(is_folder), stamp, bool(sure))

        changed_names = self._compare_own_files(index.root)
        store = scan.Store(index.root, self.kind, index.profiles)
        if not self.anew:
            ((file_count,),) = self._read_rows("SELECT count(*) FROM file")
            store.room -= file_count

        # These files decide which folders and files belong to the store.
        has_other_rules = not {scan.IGNORE, claude_memory.INDEX}.isdisjoint(changed_names)
        is_whole = self.anew or watched_paths is None or has_other_rules
        pending = [""]
        if watched_paths is not None and not is_whole:
            pending = [path for path in watched_paths if self._may_be_folder(path)]
            pending.sort(reverse=True)

        subfolders_by_folder = self._compare_folders(store, pending, is_whole=is_whole)

        self._note_gone_folders(subfolders_by_folder)
        if self.new or self.lost:  # then the text of a list, without links to entries, may differ
            for name in store.source.LISTS:
                for (number,) in self._read_rows(_OF_NAME, name, f"%/{name}"):
                    self.changed.append(number)

    def _note_gone_folders(self, subfolders_by_folder: Mapping[str, Collection[str]]) -> None:
        """Note the known folders that disappeared, including their subfolders, and the files in them.

        `subfolders_by_folder` maps each listed folder to its subfolders.
        """
        for path, (is_folder, _, _) in sorted(self._known.items()):
            is_root = path == ""
            if is_root or not is_folder:
                continue
            # Parents come before their subfolders, so a parent in `gone` is known by now.
            parent, _, _ = path.rpartition("/")
            if parent in self.gone or self._is_missing(path, subfolders_by_folder):
                self.gone[path] = None
        for path in self.gone:
            for number, *_ in self._read_rows(_IN_FOLDER, path):
                self.lost.append(number)

    def _compare_own_files(self, root: str) -> list[str]:
        """Note which of the store's own files, such as its ignore file, differ from the index.

        Returns the names of the files that changed or may have changed.
        """
        changed_names = []
        for name in scan.OWN:
            read_at = index_file.clock()
            stamp = index_file.read_stamp(f"{root}/{name}")
            is_folder = False
            stamp_is_sure = True
            if stamp is not None:
                _, changed_at, _ = stamp
                stamp_is_sure = is_sure(changed_at, read_at)

            unknown_file = (is_folder, None, True)
            _, known_stamp, was_sure = self._known.get(name, unknown_file)

            # The stored stamp is also updated if only its certainty differs.
            watched = (is_folder, stamp, stamp_is_sure)
            if watched != (is_folder, known_stamp, was_sure):
                self.watched[name] = watched
            if stamp != known_stamp or not was_sure:
                changed_names.append(name)
                # Some of these files are entries as well.
                for (number,) in self._read_rows("SELECT number FROM file WHERE path = ?", name):
                    self.changed.append(number)

        return changed_names

    def _may_be_folder(self, watched_path: str) -> bool:
        """Whether a watched path is a folder or unknown. An unknown path may be a new folder."""
        is_folder, _, _ = self._known.get(watched_path, (True, None, False))
        return is_folder and watched_path not in scan.OWN

    def _compare_folders(
        self, store: scan.Store, pending: list[str], *, is_whole: bool
    ) -> dict[str, Collection[str]]:
        """Compare the `pending` folders, and any subfolders that need listing, with the index.

        Returns the subfolders of each listed folder. The store's root has the path "".
        """
        subfolders_by_folder: dict[str, Collection[str]] = {}
        while pending:
            folder = pending.pop()  # parents come before their subfolders
            is_root = folder == ""
            if folder in subfolders_by_folder:
                continue
            if not is_root and self._is_missing(folder, subfolders_by_folder):
                continue

            listing = store.list(folder)
            subfolders_by_folder[folder] = listing.folders
            if listing.stamp is None and not is_root:
                self.gone[folder] = None
            else:
                pending += self._compare_folder(folder, listing, is_whole=is_whole)
        return subfolders_by_folder

    @staticmethod
    def _is_missing(path: str, subfolders_by_folder: Mapping[str, Collection[str]]) -> bool:
        """Whether the parent folder of `path` was listed without `path`."""
        parent, _, _ = path.rpartition("/")
        return parent in subfolders_by_folder and path not in subfolders_by_folder[parent]

    @property
    def has_changes(self) -> bool:
        """Whether anything differs."""
        changes = (self.watched, self.gone, self.new, self.changed, self.lost)
        return self.anew or any(changes)

    def _read_rows(self, query: str, *values: object) -> list[Any]:
        """Return a query's rows, or no rows if the index is built anew, since its content is obsolete."""
        if self.anew:
            return []
        return self._connection.execute(query, values).fetchall()

    def _compare_folder(self, folder: str, listing: scan.Listing, *, is_whole: bool) -> list[str]:
        """Note how a folder differs from the index. Returns the subfolders to list next.

        `is_whole` means that all subfolders are listed, not only new ones.
        """
        known_folder = self._known.get(folder)
        stamp = listing.stamp
        stamp_is_sure = True
        if stamp is not None:
            ctime, mtime, _ = stamp
            stamp_is_sure = is_sure(ctime, listing.read_at) and is_sure(mtime, listing.read_at)

        watched = (True, stamp, stamp_is_sure)
        if watched != known_folder:
            self.watched[folder] = watched

        unknown_files = dict(listing.files)
        for number, path, size, mtime, inode, read in self._read_rows(_IN_FOLDER, folder):
            file_stamp = unknown_files.pop(path, None)
            if file_stamp is None:
                self.lost.append(number)
            elif file_stamp != (size, mtime, inode) or not is_sure(mtime, read):
                self.changed.append(number)

        self.new.update(dict.fromkeys(unknown_files, folder))
        self.stamps.update(unknown_files)
        self.notes[folder] = listing.problems

        # If another folder was moved to this path, its subfolders differ as well.
        is_same_folder = False
        if known_folder is not None:
            _, known_stamp, _ = known_folder
            is_same_folder = _read_inode(known_stamp) == _read_inode(stamp)

        if is_whole or not is_same_folder:
            return listing.folders
        return [subfolder for subfolder in listing.folders if subfolder not in self._known]


def _read_inode(folder_stamp: index_file.Stamp | None) -> int:
    """Return the inode from a folder's stamp; 0 for a missing folder."""
    if folder_stamp is None:
        return 0
    _, _, inode = folder_stamp
    return inode


class ReadFile:
    """The result of reading one file: its earlier stamp, and its entry's row, texts and sections."""

    __slots__ = ("digest", "language", "note", "read", "row", "sections", "stamp", "texts")

    def __init__(self, root: str, place: str, profile: Profile) -> None:
        self.read = index_file.clock()
        self.stamp = index_file.read_stamp(f"{root}/{place}")
        entry, problem = scan.read_file(root, place, profile)
        self.texts = None
        self.sections: list[SectionRow] = []
        self.language = ""
        if entry is None:
            entry = Entry("", "", "")
        else:
            self.language = detect_language(entry, profile)
            languages = choose_reading_languages(self.language, profile)
            self.texts, self.sections = cut_texts(entry, *languages)

        fields = (entry.id, entry.title, entry.category, ",".join(entry.tags), entry.status)
        updated = entry.updated
        if not updated and self.stamp:
            _, changed_at, _ = self.stamp
            updated = changed_at / 1e9  # in seconds

        clean_problem = None if problem is None else _clean(problem)
        self.row = (clean_problem, *map(_clean, fields), updated)
        self.note = None if entry.note is None else _clean(f"{place}: {entry.note}")

        content = repr((self.row, self.texts, self.note, self.language, self.sections))
        self.digest = zlib.crc32(content.encode("utf-8", "surrogatepass"))


def detect_language(entry: Entry, profile: Profile) -> str:
    """Name the language with the most stop words in an entry; "" if it isn't one of ours.

    The profile's own language wins unless another language has clearly more, since words such as `die` and
    `on` occur in many languages. ASCII text with few stop words counts as the profile's language if it's
    short or code.
    """
    text = f"{entry.title}\n{entry.body[:_SAMPLE_CHARS]}"
    if scripts.measure_run_share(text) > _RUN_SHARE:
        return ""

    folded = fold(text)
    words = split_words(folded)
    main_language = profile.language.name
    is_short = len(words) < _SHORT_WORDS
    counts = profile.languages.count_stop_words(words)
    # Each word counts once here, since code repeats words such as `min`.
    different_counts = profile.languages.count_stop_words(set(words))
    likeliest = max(different_counts, key=different_counts.__getitem__, default=main_language)
    lead = different_counts.get(likeliest, 0) - different_counts.get(main_language, 0)
    least_lead = _CLEAR_LEAD if is_short else _CLEAR_LEAD_IN_LONG
    main_count = counts.get(main_language, 0)
    least_count = _STOP_SHARE * len(words)

    # Another language has to lead in different stop words, and in all stop words.
    if lead >= least_lead:
        best_count = counts[likeliest]
        if best_count >= _CLEAR_RATIO * main_count and best_count >= least_count:
            return likeliest

    if main_count >= least_count:
        return main_language
    if text.isascii() and (is_short or _is_code(text)):
        return main_language
    return ""


def _is_code(text: str) -> bool:
    """Whether a text has the many brackets, slashes and other signs that are typical of code."""
    sign_count = len(text) - len(text.translate(_WITHOUT_SIGNS))
    return sign_count > _CODE_SIGN_SHARE * len(text)


def choose_reading_languages(name: str, profile: Profile) -> tuple[Language, Language]:
    """Return the language for a text's stop words and stems, and the language for its abbreviations.

    `name` is the text's language, or "" if unknown. Abbreviations are always read in the main language.
    """
    main_language = profile.language
    if name in ("", main_language.name):
        return main_language, main_language
    return profile.languages[name], main_language


def stem_entry(
    entry: Entry, language: Language, main_language: Language | None = None
) -> list[str]:
    """Return an entry's stems for each column of the table `text`; see `cut_texts`."""
    columns, _ = cut_texts(entry, language, main_language)
    return columns


def cut_texts(
    entry: Entry, language: Language, main_language: Language | None = None
) -> tuple[list[str], list[SectionRow]]:
    """Stem an entry for each column of the table `text`, and make the rows of its sections.

    Abbreviations are written out in the store's `main_language`.
    """
    titles = " ".join([entry.title, *entry.aliases])
    # Words of a file name count as tags. A one-word name (`net`) is vague, so it goes to the last column,
    # where words count less. Names aren't added to the title or body: these two are compared to find copies,
    # and copies of a text have different names.
    tags = list(entry.tags)
    names = list(entry.name)
    if len(names) > 1:
        tags += names
        names = []
    columns = [titles, " ".join(tags), entry.body]
    hidden = collect_hidden_words("\n".join(columns), main_language or language)
    columns.append(" ".join([hidden, *names]))

    rows: list[SectionRow] = []
    body = None
    entry_sections = sections.cut_sections(entry.body)
    if entry_sections:
        body, rows = _cut_body(entry, entry_sections, language)

    stemmed_columns = []
    for number, column in enumerate(columns):
        if number == _BODY_COLUMN and body is not None:  # stemmed already
            stemmed_columns.append(body)
        else:
            stemmed_columns.append(_clean(" ".join(stem_text(column, language))))
    return stemmed_columns, rows


def _cut_body(
    entry: Entry, cut_sections: Sequence[sections.Section], language: Language
) -> tuple[str, list[SectionRow]]:
    """Stem a body piece by piece, and make the rows of its sections, which may overlap.

    A row has a section's number, its first line, its start and end in the stemmed body, its number of stems,
    its heading, and the heading's stems. Both headings are None if they repeat the previous section's.
    """
    # Cut the body wherever a section starts or ends, so that each section consists of complete pieces.
    bounds = {0, len(entry.body)}
    for section in cut_sections:
        bounds.update((section.start, section.end))
    pieces: list[str] = []
    stems_length = 0
    word_count = 0
    position_in_stems = {0: 0}  # by the position in the body
    words_before = {0: 0}  # the number of stems before each position in the body
    for start, end in pairwise(sorted(bounds)):
        piece_stems = stem_text(entry.body[start:end], language)
        if piece_stems:
            piece = _clean(" ".join(piece_stems))
            pieces.append(piece)
            stems_length += len(piece) + 1  # with the space after it
            word_count += len(piece_stems)

        position_in_stems[end] = stems_length
        words_before[end] = word_count

    rows: list[SectionRow] = []
    last_heading = None
    for number, section in enumerate(cut_sections):
        line = _find_line(entry, section)
        words = words_before[section.end] - words_before[section.start]
        heading = None
        titles = None
        if section.heading != last_heading:
            last_heading = section.heading
            heading = _clean(section.heading)
            titles = _clean(" ".join(stem_text(section.heading, language)))

        start = position_in_stems[section.start]
        end = position_in_stems[section.end]
        rows.append((number, line, start, end, words, heading, titles))

    return " ".join(pieces), rows


def _find_line(entry: Entry, section: sections.Section) -> int:
    """Return the line number, from 1, where a section starts in its file; 0 if unknown."""
    if entry.lines_above is None:
        return 0
    line = max(entry.lines_above + section.lines_above + 1, 1)
    # The middle of a very long file is skipped, which leaves a gap before its end.
    has_gap = entry.end_chars > 0
    gap_place = len(entry.body) - entry.end_chars
    if not has_gap or section.start < gap_place:
        return line
    if entry.lines_left_out is None:  # the skipped lines weren't counted
        return 0
    return line + entry.lines_left_out


def _clean(text: str) -> str:
    """Make text storable in SQLite: replace lone surrogates, and turn NULs into spaces."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


class IndexWriter:
    """Changes an index inside a transaction, and keeps count of entries and of their stems."""

    def __init__(self, connection: Connection) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.about = read_facts(connection)
        self._changes: dict[str, int] = {}  # in the number of entries, by stem
        self._languages = index_file.read_counts(self.about["languages"])

    def carry_out(self, plan: Plan) -> None:
        """Apply a plan: drop what's gone, update the watched paths, and mark the files to read as pending."""
        if plan.anew:
            for table in ("file", "text", "section", "term", "watch", "note"):
                self.execute(f"DELETE FROM {table}")  # noqa: S608 - the names above
            self.about |= {"kind": plan.kind, "size": 0}
            self._languages.clear()

        # Remove what's gone.
        for number in plan.lost:
            self.drop(number)
        gone_rows = [(path,) for path in plan.gone]
        self.executemany("DELETE FROM watch WHERE path = ?", gone_rows)
        self.executemany("DELETE FROM note WHERE place = ?", gone_rows)

        # Update the watched paths and their notes.
        for path, (is_folder, stamp, sure) in plan.watched.items():
            row = self.execute("SELECT number FROM watch WHERE path = ?", (path,)).fetchone()
            (number_or_none,) = row or (None,)  # for None, SQLite chooses a new number
            x, y, z = stamp or (None, None, None)
            self.execute(_ADD_WATCH, (number_or_none, path, is_folder, x, y, z, sure))

        for place, notes in plan.notes.items():
            self.execute("DELETE FROM note WHERE place = ?", (place,))
            note_rows = [(place, _clean(text)) for text in notes]
            self.executemany("INSERT INTO note VALUES (?, ?)", note_rows)

        # Mark the files to read.
        folder_numbers = dict(
            self.execute("SELECT path, number FROM watch WHERE folder").fetchall()
        )
        # A new file's row is pending by default.
        new_rows = [(path, folder_numbers[folder]) for path, folder in plan.new.items()]
        self.executemany("INSERT OR IGNORE INTO file (path, folder) VALUES (?, ?)", new_rows)
        changed_rows = [(number,) for number in plan.changed]
        self.executemany("UPDATE file SET pending = 1 WHERE number = ?", changed_rows)

    def drop(self, number: int) -> None:
        """Remove a file with its entry and its note."""
        self._drop_text(number)
        self.execute(_DROP_NOTE, (number,))
        self.execute("DELETE FROM file WHERE number = ?", (number,))

    def put(self, number: int, file: ReadFile) -> bool:
        """Write the result of reading a file, or drop the file if it's gone.

        Returns False if at most the file's stamp changed.
        """
        if file.stamp is None:
            self.drop(number)
            return True

        row = self.execute("SELECT digest FROM file WHERE number = ?", (number,)).fetchone()
        if row is None:  # another process has dropped the file since
            return False

        (digest,) = row
        if digest == file.digest:
            self.execute(_TOUCH_FILE, (*file.stamp, file.read, number))
            return False

        self._drop_text(number)
        self.execute(_DROP_NOTE, (number,))
        if file.note is not None:
            self.execute(_ADD_NOTE, (file.note, number))
        is_live = file.texts is not None
        section_count = len(file.sections)
        values = (*file.stamp, file.read, is_live, file.digest, *file.row)
        self.execute(_SET_FILE, (*values, file.language, section_count, number))
        if file.texts is not None:
            self.add_text(number, file.texts, file.language, file.sections)
        return True

    def add_text(
        self, number: int, columns: Sequence[str], language: str, rows: Sequence[SectionRow] = ()
    ) -> None:
        """Add an entry's stems and the rows of its sections."""
        self.execute(_ADD_TEXT, (number, *columns))
        if rows:
            self.executemany(_ADD_SECTION, [(number, *row) for row in rows])
        self._count_stems(columns, language, 1)

    def _drop_text(self, number: int) -> None:
        """Remove a file's entry, if it has one, from the full-text index and from the counts."""
        query = "SELECT live, language FROM file WHERE number = ?"
        has_text, language = self.execute(query, (number,)).fetchone() or (False, "")
        if has_text:
            query = "SELECT title, tags, body, parts FROM text WHERE rowid = ?"
            for columns in self.execute(query, (number,)).fetchall():
                self._count_stems(columns, language, -1)
            self.execute("DELETE FROM text WHERE rowid = ?", (number,))
            self.execute("DELETE FROM section WHERE file = ?", (number,))

    def _count_stems(self, columns: Sequence[str], language: str, change: int) -> None:
        """Count an entry's language and stems as added (`change` is 1) or removed (-1)."""
        self.about["size"] += change
        if language:
            self._languages[language] = self._languages.get(language, 0) + change
        words: list[str] = []
        for column in columns:
            words += column.split()
        self._changes[TOTAL] = self._changes.get(TOTAL, 0) + change * len(words)
        for word in set(words):
            self._changes[word] = self._changes.get(word, 0) + change

    def finish(self) -> None:
        """Write the counts of stems and languages, and the other facts that the index keeps about itself."""
        changes = [(term, change) for term, change in self._changes.items() if change]
        self.executemany(_COUNT, changes)
        # A count that reaches zero has no row.
        rarer_terms = [(term,) for term, change in changes if change < 0]
        self.executemany("DELETE FROM term WHERE term = ? AND entries <= 0", rarer_terms)
        (pending,) = self.execute("SELECT count(*) FROM file WHERE pending").fetchone()
        (folders,) = self.execute("SELECT count(*) FROM watch WHERE folder").fetchone()
        counts = [f"{name} {count}" for name, count in self._languages.items() if count > 0]
        self.about |= {"pending": pending, "folders": folders, "updated": index_file.clock()}
        self.about["languages"] = " ".join(counts)
        if not pending and self.about["kind"]:
            self.about["was_whole"] = 1
        self.executemany(_SET_ABOUT, self.about.items())


class _Passed(Exception):  # noqa: N818 - no error: another process holds the lock
    """Another process has been writing for too long."""


@contextmanager
def transaction(index: Index) -> Iterator[IndexWriter]:
    """Provide a writer for an index, and commit its changes at the end, or none after an error.

    Raises `_Passed` if another process has been writing for too long.
    """
    try:
        index.connection.execute("BEGIN IMMEDIATE")
    except sqlite.OperationalError as error:
        if index_file.has_error_code(error, index_file.BUSY):
            index.connection.execute("PRAGMA busy_timeout = 0")  # wait only once per query
            raise _Passed from None
        raise

    try:
        writer = IndexWriter(index.connection)
        yield writer
        writer.finish()
        index.connection.execute("COMMIT")
    except BaseException:
        if index.connection.in_transaction:
            index.connection.execute("ROLLBACK")
        raise

    index.load(writer.about)


def refresh(
    index: Index,
    watched_paths: Collection[str] | None,
    file_numbers: Sequence[int],
    *,
    patience: float | None = None,
    limit: int | None = None,
) -> None:
    """Bring an index up to date with its store.

    Only `watched_paths` (None means all) and the files with `file_numbers` are checked for changes. After
    `patience` seconds, no more batches of files are read. At most `limit` new files are read, newest first.
    """
    started = time.monotonic()
    with suppress(_Passed):  # then the other process brings the index up to date
        _carry_out_changes(index, watched_paths, file_numbers, limit)
        while index.pending:
            with transaction(index) as writer:
                _read_batch(index, writer)
            seconds = time.monotonic() - started
            if patience is not None and seconds > patience:
                break

    if not index.kind:  # another process is still listing the files, and nothing is known yet
        index.load(
            read_facts(index.connection) | {"kind": scan.detect_kind(index.root, index.profiles)}
        )
        index.trouble = f"{index.root}: another process is building the index; not searched"


def _carry_out_changes(
    index: Index,
    watched_paths: Collection[str] | None,
    file_numbers: Sequence[int],
    most_files: int | None,
) -> None:
    """Compare a store with its index, write the differences, and read the first batch of files.

    Without differences, nothing is written or read.
    """
    # Compare without the lock first, since usually nothing differs.
    version = _read_data_version(index)
    plan = Plan(index, index.kind, watched_paths)
    plan.changed += file_numbers
    if not plan.has_changes:
        return

    with transaction(index) as writer:
        # If another process wrote meanwhile, it probably wrote the same changes, so compare again.
        if _read_data_version(index) != version:
            changed_numbers = plan.changed
            plan = Plan(index, writer.about["kind"], watched_paths)
            plan.changed += changed_numbers

        def changed_at(path: str) -> int:
            _, mtime, _ = plan.stamps[path]
            return mtime

        # Read the newest files first: they're the likeliest to matter.
        newest_first = sorted(plan.new, key=changed_at, reverse=True)
        index.left_out = 0
        if most_files is not None:
            index.left_out = max(0, len(newest_first) - most_files)
        plan.new = {path: plan.new[path] for path in newest_first[:most_files]}
        writer.carry_out(plan)
        _read_batch(index, writer)


def _read_data_version(index: Index) -> int:
    """Return SQLite's number that changes whenever another process writes to the index."""
    (version,) = index.connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def reread(index: Index, stale_files: list[tuple[int, str]]) -> bool:
    """Read files again that may have changed. Returns True if a difference was written.

    `stale_files` has each file's number and path. The paths of files that differ are added to
    `index.outdated`. If another process is writing, nothing is written.
    """
    files = {}
    query = "SELECT digest FROM file WHERE number = ?"
    for number, file_path in stale_files:
        (digest,) = index.connection.execute(query, (number,)).fetchone() or (None,)
        file = ReadFile(index.root, file_path, index.profile)
        if file.stamp is None or file.digest != digest:
            index.outdated.add(file_path)
            files[number] = file
            continue
        # The content is the same, but a stamp that has become sure is worth writing.
        _, changed_at, _ = file.stamp
        if is_sure(changed_at, file.read):
            files[number] = file

    if not files:
        return False

    try:
        with transaction(index) as writer:
            changed = [writer.put(number, file) for number, file in files.items()]
    except (_Passed, sqlite.OperationalError) as error:
        if index_file.is_damage(error):
            raise
        return False

    return any(changed)


def _read_batch(index: Index, writer: IndexWriter) -> None:
    """Read the next pending files, up to `BATCH_FILES` of them, and write their entries."""
    query = "SELECT number, path FROM file WHERE pending ORDER BY number LIMIT ?"
    profile = index.profiles.by_kind[writer.about["kind"]]
    for number, path in index.connection.execute(query, (BATCH_FILES,)).fetchall():
        writer.put(number, ReadFile(index.root, path, profile))
