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

# What's known about a file of the store that isn't in the index: it's not a folder, and has surely no stamp.
_UNKNOWN_FILE: Watched = (False, None, True)

BATCH_FILES = 256  # files that are read in one transaction: some 50 ms
_UNFINISHED_FILE_SUFFIX = ".making"
# Seconds after which an unfinished file must belong to a process that was killed.
_ABANDONED_SECONDS = 600
_UNUSED_SECONDS = 30 * 86_400  # seconds until the file of another version is removed

_SAMPLE_CHARS = 2_000  # characters of a body that are enough to detect its language
_MIN_LONG_TEXT_WORDS = 20  # words of a text that may have no stop word at all
_MIN_STOP_WORD_SHARE = (
    0.12  # of the words of a text: about half of English ones, a fifth of commented code
)
_MIN_STOP_WORD_LEAD = 2  # different stop words more, and in a text that isn't short:
_MIN_STOP_WORD_LEAD_IN_LONG = 3
_CLEAR_RATIO = 1.5  # as many stop words
_CODE_SIGN_SHARE = 0.015  # of the characters of code are signs, and hardly any of prose
_WITHOUT_SIGNS = dict.fromkeys(map(ord, "{}[]()<>=;|\\/$@_%&^~"))
# If more of a text's characters are Han, kana, Thai or Hangul, the rest is names and code.
_MAX_RUN_SHARE = 0.15

LAYOUT = os.path.join(os.path.dirname(__file__), "index.sql")
_SET_ABOUT = "INSERT OR REPLACE INTO about VALUES (?, ?)"
_ADD_TEXT = "INSERT INTO text (rowid, title, tags, body, parts) VALUES (?, ?, ?, ?, ?)"
_ADD_SECTION = "INSERT INTO section VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_COUNT_TERM_STATEMENT = """INSERT INTO term (term, entries) VALUES (?, ?)
    ON CONFLICT (term) DO UPDATE SET entries = entries + excluded.entries"""
_FILES_IN_FOLDER_QUERY = """SELECT file.number, file.path, size, mtime, inode, read FROM file
    JOIN watch ON file.folder = watch.number WHERE watch.path = ?"""
_DROP_NOTE = "DELETE FROM note WHERE place = (SELECT path FROM file WHERE number = ?)"
_ADD_NOTE = "INSERT INTO note (text, place) SELECT ?, path FROM file WHERE number = ?"
_FILES_OF_NAME_QUERY = "SELECT number FROM file WHERE path = ? OR path LIKE ?"
_SET_FILE = """UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ?, live = ?, digest = ?,
    problem = ?, id = ?, title = ?, category = ?, tags = ?, status = ?, updated = ?, language = ?,
    sections = ? WHERE number = ?"""
_TOUCH_FILE = (
    "UPDATE file SET pending = 0, size = ?, mtime = ?, inode = ?, read = ? WHERE number = ?"
)
_ADD_WATCH = "INSERT OR REPLACE INTO watch (number, path, folder, x, y, z, sure) VALUES (?, ?, ?, ?, ?, ?, ?)"


def create(connection: Connection, root: str, profiles: Profiles, kind: str = "") -> None:
    """Create the tables of an empty index, and write what it keeps about itself."""
    with open(LAYOUT, encoding="utf-8", newline="\n") as file:
        connection.executescript(file.read())

    facts = {
        "root": root,
        # The rules by which files are read; the index is obsolete once they change.
        "read_by": index_file.reading_fingerprint(profiles),
        "kind": kind,  # of store; "" until its files are listed
        "size": 0,  # the number of entries
        "pending": 0,  # the number of files still to be read
        "folders": 0,  # the number of watched folders
        "languages": "",
        "was_whole": 0,  # 1 once all files have been read
        "updated": index_file.get_time_ns(),
    }
    connection.executemany(_SET_ABOUT, facts.items())


def build_in_memory(root: str, profiles: Profiles) -> Index:
    """Build an index of the store at `root` in memory.

    In a large store, only the newest files are indexed.
    """
    index = Index(index_file.connect(":memory:"), root, profiles)
    try:
        create(index.connection, root, profiles)
        index.load(read_facts(index.connection))
        # Without given `watched_paths`, the whole store is read.
        refresh(index, watched_paths=None, file_numbers=(), limit=index_file.MAX_MEMORY_FILES)
    except BaseException:
        index.connection.close()
        raise
    return index


def replace(root: str, profiles: Profiles, path: str | None) -> None:
    """Replace the index file at `path` by an empty one with the next number.

    If `path` is None, there's no file yet. If another process has already replaced the file, do nothing.
    """
    folder = environment.INDEXES.make(environment.make_file_name(root))
    newest = index_file.find_index_file(root)
    is_already_replaced = newest is not None and newest != path
    if is_already_replaced:
        return

    generation = 0 if newest is None else _read_generation(newest) + 1
    _make_index_file(folder, f"v{VERSION}.{generation}.sqlite", root, profiles)
    for older in range(generation):
        _unlink(f"{folder}/v{VERSION}.{older}.sqlite")
    _remove_leftovers(folder)


def _read_generation(path: str) -> int:
    """Return the last number in an index file's name, such as 1 in `v6.1.sqlite`."""
    *_, generation, _ = path.split(".")
    return int(generation)


def _make_index_file(folder: str, name: str, root: str, profiles: Profiles) -> None:
    """Make an empty index file, unless another process is quicker.

    It's built under a temporary name, so that nobody opens it half-made.
    """
    temporary = f"{folder}/{os.getpid()}{_UNFINISHED_FILE_SUFFIX}"
    _unlink(temporary)  # a killed process may have had the same id
    # Only its user may read the file. SQLite would create it with wider permissions.
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        _create_tables(temporary, root, profiles)
        os.link(temporary, f"{folder}/{name}")
    except FileExistsError:  # another process was quicker, with the same result
        pass
    finally:
        _unlink(temporary)


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
            is_of_this_version = entry.name.startswith(f"v{VERSION}.")
            if is_of_this_version:
                continue
            is_half_made = _UNFINISHED_FILE_SUFFIX in entry.name
            max_age_s = _ABANDONED_SECONDS if is_half_made else _UNUSED_SECONDS
            with suppress(OSError):  # the file may be gone, or belong to another user
                age_s = time.time() - entry.stat().st_mtime
                if age_s > max_age_s:
                    os.unlink(entry.path)


def _unlink(path: str) -> None:
    """Remove an index file and SQLite's two files next to it, whichever exist."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)


class Plan:
    """The changes to write to bring an index up to date, before any entry is read.

    It compares the `watched_paths` of a store (None: all) with the index. `watched` are those that differ,
    `gone_paths` those that disappeared. `folder_by_new_file` has the files without a row yet;
    `changed_numbers` and `lost_numbers` are numbers of rows. With `starts_anew`, nothing in the index counts.
    """

    def __init__(
        self, index: Index, known_kind: str, watched_paths: Collection[str] | None
    ) -> None:
        self._connection = index.connection
        self.kind = scan.detect_kind(index.root, index.profiles)
        self.starts_anew = self.kind != known_kind  # whether to build the index anew
        # By path, the watched folders and files to add or update.
        self.watched: dict[str, Watched] = {}
        # The watched paths that disappeared; a dict, to keep the order.
        self.gone_paths: dict[str, None] = {}
        # The folder and the stamp of each new file, by its path.
        self.folder_by_new_file: dict[str, str] = {}
        self.stamps: dict[str, index_file.Stamp] = {}
        # The numbers of known files: the ones to read again, and the ones that disappeared.
        self.changed_numbers: list[int] = []
        self.lost_numbers: list[int] = []
        # The notes on each listed folder, by its path.
        self.notes: dict[str, list[str]] = {}
        self._known = self._read_known()
        self._compare(index, watched_paths)

    def _read_known(self) -> dict[str, Watched]:
        """Read the paths that the index watches."""
        known: dict[str, Watched] = {}
        # The columns x, y and z have the three numbers of a stamp; they're NULL for a missing path.
        rows = self._read_rows("SELECT path, folder, x, y, z, sure FROM watch")
        for path, is_folder, x, y, z, sure in rows:
            stamp = None if x is None else (x, y, z)
            known[path] = (bool(is_folder), stamp, bool(sure))
        return known

    def _compare(self, index: Index, watched_paths: Collection[str] | None) -> None:
        """Note all differences between the store and its index."""
        changed_names = self._compare_own_files(index.root)
        store = scan.Store(index.root, self.kind, index.profiles)
        if not self.starts_anew:
            # The files that are already in the index count towards the store's limit.
            ((file_count,),) = self._read_rows("SELECT count(*) FROM file")
            store.files_left -= file_count

        # The ignore file and a memory's index.md decide which folders and files belong to the store.
        is_other_ignore_file = scan.IGNORE_FILE_NAME in changed_names
        is_other_memory_index = claude_memory.INDEX in changed_names
        have_rules_changed = is_other_ignore_file or is_other_memory_index
        if self.starts_anew or watched_paths is None or have_rules_changed:
            subfolders_by_folder = self._compare_folders(store, [""], is_whole=True)
        else:
            folders = self._list_watched_folders(watched_paths)
            subfolders_by_folder = self._compare_folders(store, folders, is_whole=False)
        self._note_gone_folders(subfolders_by_folder)
        if self.folder_by_new_file or self.lost_numbers:
            self._mark_list_files(store)

    def _list_watched_folders(self, watched_paths: Collection[str]) -> list[str]:
        """List the paths that may be folders, parents last, since they're compared from the list's end."""
        folders = [path for path in watched_paths if self._may_be_folder(path)]
        return sorted(folders, reverse=True)

    def _mark_list_files(self, store: scan.Store) -> None:
        """Mark the files that list entries as changed.

        Links to entries aren't part of such a file's text, so a new or lost entry may change it.
        """
        for name in store.source.LISTS:
            for (number,) in self._read_rows(_FILES_OF_NAME_QUERY, name, f"%/{name}"):
                self.changed_numbers.append(number)

    def _note_gone_folders(self, subfolders_by_folder: Mapping[str, Collection[str]]) -> None:
        """Note the known folders that disappeared, including their subfolders, and the files in them.

        `subfolders_by_folder` maps each listed folder to its subfolders.
        """
        known_folders = [path for path, (is_folder, _, _) in self._known.items() if is_folder]
        for path in sorted(known_folders):  # parents come before their subfolders
            is_root = path == ""
            if is_root:
                continue
            parent, _, _ = path.rpartition("/")
            is_parent_gone = parent in self.gone_paths
            if is_parent_gone or self._is_missing(path, subfolders_by_folder):
                self.gone_paths[path] = None
        for path in self.gone_paths:
            for number, *_ in self._read_rows(_FILES_IN_FOLDER_QUERY, path):
                self.lost_numbers.append(number)

    def _compare_own_files(self, root: str) -> list[str]:
        """Note which of the store's own files, such as its ignore file, differ from the index.

        Returns the names of the files that changed or may have changed.
        """
        changed_names = []
        for name in scan.STORE_FILE_NAMES:
            stamp, is_sure_now = _read_own_stamp(f"{root}/{name}")
            _, known_stamp, was_sure = self._known.get(name, _UNKNOWN_FILE)
            has_other_stamp = stamp != known_stamp
            # The index also stores whether the stamp is sure.
            has_other_row = has_other_stamp or is_sure_now != was_sure
            if has_other_row:
                self.watched[name] = (False, stamp, is_sure_now)
            # If the known stamp wasn't sure, the file may have changed without altering it.
            may_have_changed = has_other_stamp or not was_sure
            if may_have_changed:
                changed_names.append(name)
                self._mark_own_entry(name)
        return changed_names

    def _mark_own_entry(self, name: str) -> None:
        """Mark one of the store's own files as changed, if it's an entry as well."""
        for (number,) in self._read_rows("SELECT number FROM file WHERE path = ?", name):
            self.changed_numbers.append(number)

    def _may_be_folder(self, watched_path: str) -> bool:
        """Whether a watched path is a folder or unknown. An unknown path may be a new folder."""
        is_folder, _, _ = self._known.get(watched_path, (True, None, False))
        return is_folder and watched_path not in scan.STORE_FILE_NAMES

    def _compare_folders(
        self, store: scan.Store, pending: list[str], *, is_whole: bool
    ) -> dict[str, Collection[str]]:
        """Compare the `pending` folders with the index, and their subfolders if needed.

        Returns the subfolders of each listed folder. The folders are popped off the end of `pending`, so
        parents must come after their subfolders. The store's root has the path "".
        """
        subfolders_by_folder: dict[str, Collection[str]] = {}
        while pending:
            folder = pending.pop()
            is_listed = folder in subfolders_by_folder
            if is_listed:
                continue
            is_root = folder == ""
            if not is_root and self._is_missing(folder, subfolders_by_folder):
                continue

            listing = store.list(folder)
            subfolders_by_folder[folder] = listing.folders
            was_found = listing.stamp is not None
            if was_found or is_root:
                pending += self._compare_folder(folder, listing, is_whole=is_whole)
            else:
                self.gone_paths[folder] = None  # adds it: the dict is used as an ordered set
        return subfolders_by_folder

    @staticmethod
    def _is_missing(path: str, subfolders_by_folder: Mapping[str, Collection[str]]) -> bool:
        """Whether the parent folder of `path` was listed without `path`."""
        parent, _, _ = path.rpartition("/")
        return parent in subfolders_by_folder and path not in subfolders_by_folder[parent]

    @property
    def has_changes(self) -> bool:
        """Whether anything differs."""
        changes = (
            self.watched,
            self.gone_paths,
            self.folder_by_new_file,
            self.changed_numbers,
            self.lost_numbers,
        )
        return self.starts_anew or any(changes)

    def _read_rows(self, query: str, *values: object) -> list[Any]:
        """Return a query's rows, or no rows if the index is built anew, since its content is obsolete."""
        if self.starts_anew:
            return []
        return self._connection.execute(query, values).fetchall()

    def _compare_folder(self, folder: str, listing: scan.Listing, *, is_whole: bool) -> list[str]:
        """Note how a folder differs from the index. Returns the subfolders to list next.

        With `is_whole`, these are all subfolders; otherwise, usually only the new ones.
        """
        known_folder = self._known.get(folder)
        is_folder = True
        current_folder = (is_folder, listing.stamp, _has_sure_stamp(listing))
        if current_folder != known_folder:
            self.watched[folder] = current_folder
        self._compare_files(folder, listing)
        self.notes[folder] = listing.problems

        # If another folder was moved to this path, its subfolders aren't those that the index knows.
        if is_whole or not _is_same_folder(known_folder, listing.stamp):
            return listing.folders
        return [subfolder for subfolder in listing.folders if subfolder not in self._known]

    def _compare_files(self, folder: str, listing: scan.Listing) -> None:
        """Note a folder's lost, changed and new files."""
        new_files = dict(listing.files)  # the loop removes the files that the index knows
        for number, path, size, mtime, inode, read_at in self._read_rows(
            _FILES_IN_FOLDER_QUERY, folder
        ):
            file_stamp = new_files.pop(path, None)
            is_same_stamp = file_stamp == (size, mtime, inode)
            if file_stamp is None:
                self.lost_numbers.append(number)
            # If a file was read right after a change, the same stamp doesn't prove that it's unchanged.
            elif not is_same_stamp or not is_sure(mtime, read_at):
                self.changed_numbers.append(number)

        self.folder_by_new_file.update(dict.fromkeys(new_files, folder))
        self.stamps.update(new_files)


def _read_own_stamp(path: str) -> tuple[index_file.Stamp | None, bool]:
    """Return a file's stamp, None if it's missing, and whether a later change would alter it."""
    read_at = index_file.get_time_ns()
    stamp = index_file.read_stamp(path)
    if stamp is None:
        return None, True
    _, changed_at, _ = stamp
    return stamp, is_sure(changed_at, read_at)


def _has_sure_stamp(listing: scan.Listing) -> bool:
    """Whether a folder's stamp is sure: any change after the listing would alter it."""
    if listing.stamp is None:  # the folder is missing, and would get a stamp if it appeared
        return True
    ctime, mtime, _ = listing.stamp
    return is_sure(ctime, listing.read_at_ns) and is_sure(mtime, listing.read_at_ns)


def _is_same_folder(known_folder: Watched | None, stamp: index_file.Stamp | None) -> bool:
    """Whether a folder's stamp has the inode that the index knows for its path."""
    if known_folder is None:
        return False
    _, known_stamp, _ = known_folder
    return _read_inode(known_stamp) == _read_inode(stamp)


def _read_inode(folder_stamp: index_file.Stamp | None) -> int:
    """Return the inode from a folder's stamp; 0 for a missing folder."""
    if folder_stamp is None:
        return 0
    _, _, inode = folder_stamp
    return inode


class ReadFile:
    """The result of reading one file: its earlier stamp, and its entry's row, texts and sections."""

    __slots__ = ("digest", "language", "note", "read_at_ns", "row", "sections", "stamp", "texts")

    def __init__(self, root: str, place: str, profile: Profile) -> None:
        # The time and the stamp are taken before the file is read. So if it changes meanwhile, its stamp will
        # differ later.
        self.read_at_ns = index_file.get_time_ns()
        self.stamp = index_file.read_stamp(f"{root}/{place}")
        self.texts = None
        self.sections: list[SectionRow] = []
        self.language = ""
        entry, problem = scan.read_file(root, place, profile)
        if entry is None:
            entry = Entry("", "", "")  # the row then has only the problem, if any
        else:
            self.language = detect_language(entry, profile)
            languages = choose_reading_languages(self.language, profile)
            self.texts, self.sections = cut_texts(entry, *languages)

        self.row = self._make_row(entry, problem)
        self.note = None if entry.note is None else _clean(f"{place}: {entry.note}")
        # The digest shows whether a later reading has the same result.
        content = repr((self.row, self.texts, self.note, self.language, self.sections))
        self.digest = zlib.crc32(content.encode("utf-8", "surrogatepass"))

    def _make_row(self, entry: Entry, problem: str | None) -> tuple[str | float | None, ...]:
        """Make an entry's row: the problem, its fields and the time of its last change, in seconds."""
        updated = entry.updated
        # If the entry doesn't say when it was changed, use the file's time.
        if not updated and self.stamp:
            _, changed_ns, _ = self.stamp
            updated = changed_ns / 1e9

        clean_problem = None if problem is None else _clean(problem)
        tags = ",".join(entry.tags)
        fields = (entry.id, entry.title, entry.category, tags, entry.status)
        return (clean_problem, *map(_clean, fields), updated)


def detect_language(entry: Entry, profile: Profile) -> str:
    """Name the language of an entry by its stop words; "" if it's none of the profile's languages.

    The profile's own language wins unless another language has clearly more stop words, since words such as
    `die` and `on` occur in many languages.
    """
    text = f"{entry.title}\n{entry.body[:_SAMPLE_CHARS]}"
    # The text is in Korean, or in a script without spaces.
    if scripts.measure_run_share(text) > _MAX_RUN_SHARE:
        return ""

    words = split_words(fold(text))
    counts = profile.languages.count_stop_words(words)
    other_language = _find_clear_leader(words, counts, profile)
    if other_language:
        return other_language

    main_language = profile.language.name
    if counts.get(main_language, 0) >= _MIN_STOP_WORD_SHARE * len(words):
        return main_language
    # Short texts and code have few stop words in any language.
    is_short = len(words) < _MIN_LONG_TEXT_WORDS
    if text.isascii() and (is_short or _is_code(text)):
        return main_language
    return ""


def _find_clear_leader(words: list[str], counts: Mapping[str, int], profile: Profile) -> str:
    """Name a language that clearly has more stop words than the profile's own; "" if there's none.

    It has to be ahead twice: when each word counts once, and in the `counts`, which include repetitions.
    """
    main_language = profile.language.name
    # Each word counts once here, since code repeats words such as `min`.
    different_counts = profile.languages.count_stop_words(set(words))
    leader = max(different_counts, key=different_counts.__getitem__, default=main_language)
    lead = different_counts.get(leader, 0) - different_counts.get(main_language, 0)
    is_short = len(words) < _MIN_LONG_TEXT_WORDS
    least_lead = _MIN_STOP_WORD_LEAD if is_short else _MIN_STOP_WORD_LEAD_IN_LONG
    if lead < least_lead:
        return ""

    leader_count = counts[leader]
    has_clear_ratio = leader_count >= _CLEAR_RATIO * counts.get(main_language, 0)
    has_enough = leader_count >= _MIN_STOP_WORD_SHARE * len(words)
    return leader if has_clear_ratio and has_enough else ""


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
    tags, vague_names = _collect_tags(entry)
    hidden = collect_hidden_words(f"{titles}\n{tags}\n{entry.body}", main_language or language)
    hidden_and_names = " ".join([hidden, *vague_names])

    body, rows = _stem_body(entry, language)
    columns = [
        _stem_column(titles, language),
        _stem_column(tags, language),
        body,
        _stem_column(hidden_and_names, language),
    ]
    return columns, rows


def _collect_tags(entry: Entry) -> tuple[str, list[str]]:
    """Return an entry's tags with the words of its file name. A vague name is returned apart.

    Names aren't added to the title or body: these two are compared to find copies, and copies of a text have
    different names.
    """
    # A one-word name (`net`) is vague, so it goes to the last column, where words count less.
    is_vague = len(entry.name_words) <= 1
    if is_vague:
        return " ".join(entry.tags), list(entry.name_words)
    return " ".join([*entry.tags, *entry.name_words]), []


def _stem_body(entry: Entry, language: Language) -> tuple[str, list[SectionRow]]:
    """Return an entry's body in stems, and the rows of its sections, if it has any."""
    entry_sections = sections.cut_sections(entry.body)
    if entry_sections:
        return _cut_body(entry, entry_sections, language)
    return _stem_column(entry.body, language), []


def _stem_column(text: str, language: Language) -> str:
    """Return a text's stems, separated by spaces."""
    return _clean(" ".join(stem_text(text, language)))


def _cut_body(
    entry: Entry, cut_sections: Sequence[sections.Section], language: Language
) -> tuple[str, list[SectionRow]]:
    """Stem a body piece by piece, and make the rows of its sections, which may overlap.

    A row has a section's number, its first line, its start and end in the stemmed body, its number of stems,
    its heading, and the heading's stems.
    """
    # Cut the body wherever a section starts or ends, so that each section consists of complete pieces.
    bounds = {0, len(entry.body)}
    for section in cut_sections:
        bounds.update((section.start, section.end))
    stemmed_body, positions, stem_counts = _stem_pieces(entry.body, sorted(bounds), language)

    rows: list[SectionRow] = []
    previous_heading = None
    for number, section in enumerate(cut_sections):
        line = _find_line(entry, section)
        start = positions[section.start]
        end = positions[section.end]
        stem_count = stem_counts[section.end] - stem_counts[section.start]
        # A heading that several sections in a row share is stored only with the first.
        heading = None
        heading_stems = None
        if section.heading != previous_heading:
            heading = _clean(section.heading)
            heading_stems = _stem_column(section.heading, language)
        rows.append((number, line, start, end, stem_count, heading, heading_stems))
        previous_heading = section.heading
    return stemmed_body, rows


def _stem_pieces(
    body: str, bounds: Sequence[int], language: Language
) -> tuple[str, dict[int, int], dict[int, int]]:
    """Stem the pieces of a body between the `bounds`.

    Returns the stemmed body, each bound's position in it, and the number of stems before each bound.
    """
    pieces: list[str] = []
    position = 0
    stem_count = 0
    positions = {0: 0}
    stem_counts = {0: 0}
    for start, end in pairwise(bounds):
        piece_stems = stem_text(body[start:end], language)
        if piece_stems:
            piece = _clean(" ".join(piece_stems))
            pieces.append(piece)
            position += len(piece) + 1  # with the space after it
            stem_count += len(piece_stems)
        positions[end] = position
        stem_counts[end] = stem_count
    return " ".join(pieces), positions, stem_counts


def _find_line(entry: Entry, section: sections.Section) -> int:
    """Return the line number, from 1, where a section starts in its file; 0 if unknown."""
    if entry.lines_above is None:
        return 0
    # A description from the header, put above the body, may have more lines there than in the file.
    line = max(entry.lines_above + section.lines_above + 1, 1)
    if not _is_after_gap(entry, section):
        return line
    if entry.lines_left_out is None:  # the skipped lines weren't counted
        return 0
    return line + entry.lines_left_out


def _is_after_gap(entry: Entry, section: sections.Section) -> bool:
    """Whether a section is in the end of a very long file, whose middle was skipped."""
    has_gap = entry.end_chars > 0
    if not has_gap:
        return False
    # The last `end_chars` characters of the body come after the gap.
    gap_position = len(entry.body) - entry.end_chars
    return section.start >= gap_position


def _clean(text: str) -> str:
    """Make text storable in SQLite: replace lone surrogates, and turn NULs into spaces."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


class IndexWriter:
    """Changes an index inside a transaction, and keeps count of entries and of their stems."""

    def __init__(self, connection: Connection) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.facts = read_facts(connection)
        # For each stem, the change in its number of entries that isn't in the table `term` yet.
        # The key `TOTAL` has the change in the number of all stems.
        self._changes: dict[str, int] = {}
        self._languages = index_file.read_counts(self.facts["languages"])

    def carry_out(self, plan: Plan) -> None:
        """Apply a plan: drop what's gone, update the watched paths, and mark the files to read as pending."""
        if plan.starts_anew:
            self._empty_tables(plan.kind)
        self._remove_gone(plan)
        self._update_watched(plan)
        self._replace_notes(plan)
        self._mark_pending(plan)

    def _empty_tables(self, kind: str) -> None:
        """Remove all rows, to build the index anew for a store of this kind."""
        for table in ("file", "text", "section", "term", "watch", "note"):
            self.execute(f"DELETE FROM {table}")  # noqa: S608 - the names above
        self.facts |= {"kind": kind, "size": 0}
        self._languages.clear()

    def _remove_gone(self, plan: Plan) -> None:
        """Drop the lost files, and stop watching the paths that are gone."""
        for number in plan.lost_numbers:
            self.drop(number)
        gone_rows = [(path,) for path in plan.gone_paths]
        self.executemany("DELETE FROM watch WHERE path = ?", gone_rows)
        self.executemany("DELETE FROM note WHERE place = ?", gone_rows)

    def _update_watched(self, plan: Plan) -> None:
        """Write the stamps of the watched paths. A known path keeps its number."""
        for path, (is_folder, stamp, sure) in plan.watched.items():
            row = self.execute("SELECT number FROM watch WHERE path = ?", (path,)).fetchone()
            number = row[0] if row else None  # for None, SQLite chooses a new number
            stamp_columns = stamp or (None, None, None)
            self.execute(_ADD_WATCH, (number, path, is_folder, *stamp_columns, sure))

    def _replace_notes(self, plan: Plan) -> None:
        """Replace the notes on each place in a plan."""
        for place, notes in plan.notes.items():
            self.execute("DELETE FROM note WHERE place = ?", (place,))
            note_rows = [(place, _clean(text)) for text in notes]
            self.executemany("INSERT INTO note VALUES (?, ?)", note_rows)

    def _mark_pending(self, plan: Plan) -> None:
        """Mark the changed files as pending, and add the new ones, which are pending by default."""
        folders = self.execute("SELECT path, number FROM watch WHERE folder").fetchall()
        folder_numbers = dict(folders)
        new_rows = [
            (path, folder_numbers[folder]) for path, folder in plan.folder_by_new_file.items()
        ]
        self.executemany("INSERT OR IGNORE INTO file (path, folder) VALUES (?, ?)", new_rows)
        changed_rows = [(number,) for number in plan.changed_numbers]
        self.executemany("UPDATE file SET pending = 1 WHERE number = ?", changed_rows)

    def drop(self, number: int) -> None:
        """Remove a file with its entry and its note."""
        self._drop_text(number)
        self.execute(_DROP_NOTE, (number,))
        self.execute("DELETE FROM file WHERE number = ?", (number,))

    def put(self, number: int, file: ReadFile) -> bool:
        """Write the result of reading a file, or drop the file if it's gone.

        Returns whether anything but the file's stamp changed.
        """
        if file.stamp is None:
            self.drop(number)
            return True

        row = self.execute("SELECT digest FROM file WHERE number = ?", (number,)).fetchone()
        if row is None:  # another process has dropped the file since
            return False

        (digest,) = row
        stamp_columns = (*file.stamp, file.read_at_ns)
        if digest == file.digest:  # the same content
            self.execute(_TOUCH_FILE, (*stamp_columns, number))
            return False

        self._replace_entry(number, file, stamp_columns)
        return True

    def _replace_entry(self, number: int, file: ReadFile, stamp_columns: tuple[int, ...]) -> None:
        """Replace a file's row, note and entry."""
        self._drop_text(number)  # reads the old row, so it comes before the row is replaced
        self.execute(_DROP_NOTE, (number,))
        if file.note is not None:
            self.execute(_ADD_NOTE, (file.note, number))

        # A file that isn't searched, such as a retired one, has no texts.
        is_live = file.texts is not None
        section_count = len(file.sections)
        values = (*stamp_columns, is_live, file.digest, *file.row, file.language, section_count)
        self.execute(_SET_FILE, (*values, number))
        if file.texts is not None:
            self.add_text(number, file.texts, file.language, file.sections)

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
        self.facts["size"] += change
        if language:
            self._languages[language] = self._languages.get(language, 0) + change
        stems: list[str] = []
        for column in columns:
            stems += column.split()
        self._changes[TOTAL] = self._changes.get(TOTAL, 0) + change * len(stems)
        # The total counts repetitions; for a stem, only the entries that have it are counted.
        for stem in set(stems):
            self._changes[stem] = self._changes.get(stem, 0) + change

    def finish(self) -> None:
        """Write the counts of stems and languages, and the other facts that the index keeps about itself."""
        self._write_stem_counts()
        self._update_facts()
        self.executemany(_SET_ABOUT, self.facts.items())

    def _write_stem_counts(self) -> None:
        """Write the changed counts of stems. A count that reaches zero has no row."""
        changes = [(term, change) for term, change in self._changes.items() if change]
        self.executemany(_COUNT_TERM_STATEMENT, changes)
        rarer_terms = [(term,) for term, change in changes if change < 0]
        self.executemany("DELETE FROM term WHERE term = ? AND entries <= 0", rarer_terms)

    def _update_facts(self) -> None:
        """Bring the facts that the index keeps about itself up to date."""
        (pending,) = self.execute("SELECT count(*) FROM file WHERE pending").fetchone()
        (folders,) = self.execute("SELECT count(*) FROM watch WHERE folder").fetchone()
        self.facts |= {"pending": pending, "folders": folders, "updated": index_file.get_time_ns()}
        counts = [f"{name} {count}" for name, count in self._languages.items() if count > 0]
        self.facts["languages"] = " ".join(counts)

        # An index has no kind until its store's files are listed.
        is_listed = bool(self.facts["kind"])
        is_whole = is_listed and not pending
        if is_whole:
            self.facts["was_whole"] = 1  # for good, even if files are pending later


class _Locked(Exception):  # noqa: N818 - no error: another process holds the lock
    """Another process has been writing for too long."""


@contextmanager
def transaction(index: Index) -> Iterator[IndexWriter]:
    """Provide a writer for an index, and commit its changes at the end. After an error, nothing is changed.

    Raises `_Locked` if another process has been writing for too long.
    """
    _begin(index)
    try:
        writer = IndexWriter(index.connection)
        yield writer
        writer.finish()
        index.connection.execute("COMMIT")
    except BaseException:
        if index.connection.in_transaction:
            index.connection.execute("ROLLBACK")
        raise
    index.load(writer.facts)


def _begin(index: Index) -> None:
    """Begin a transaction. Raises `_Locked` if another process has been writing for too long."""
    try:
        index.connection.execute("BEGIN IMMEDIATE")
    except sqlite.OperationalError as error:
        if not index_file.has_error_code(error, index_file.BUSY_ERROR_CODES):
            raise
        # SQLite waited for the lock in vain. A search should wait only once, so don't wait the next time.
        index.connection.execute("PRAGMA busy_timeout = 0")
        raise _Locked from None


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
    with suppress(_Locked):  # then the other process brings the index up to date
        _carry_out_changes(index, watched_paths, file_numbers, limit)
        while index.pending_count:
            with transaction(index) as writer:
                _read_batch(index, writer)
            seconds = time.monotonic() - started
            if patience is not None and seconds > patience:
                break

    if not index.kind:
        _load_unlisted(index)


def _load_unlisted(index: Index) -> None:
    """Load an index whose files another process is still listing, and report that it isn't searched."""
    facts = read_facts(index.connection)
    # The other process hasn't written the kind yet.
    facts["kind"] = scan.detect_kind(index.root, index.profiles)
    index.load(facts)
    index.trouble = f"{index.root}: another process is building the index; not searched"


def _carry_out_changes(
    index: Index,
    watched_paths: Collection[str] | None,
    file_numbers: Sequence[int],
    most_files: int | None,
) -> None:
    """Compare a store with its index, write the differences, and read the first batch of files.

    If nothing differs, the index isn't locked.
    """
    version = _read_data_version(index)
    plan = Plan(index, index.kind, watched_paths)
    plan.changed_numbers += file_numbers
    if not plan.has_changes:
        return

    with transaction(index) as writer:
        # If another process wrote meanwhile, it probably wrote the same changes, so compare again.
        if _read_data_version(index) != version:
            # This includes `file_numbers`, which a comparison doesn't find.
            numbers_to_read = plan.changed_numbers
            plan = Plan(index, writer.facts["kind"], watched_paths)
            plan.changed_numbers += numbers_to_read

        index.left_out_count = _limit_new_files(plan, most_files)
        writer.carry_out(plan)
        _read_batch(index, writer)


def _limit_new_files(plan: Plan, most_files: int | None) -> int:
    """Sort a plan's new files and keep at most `most_files`. Returns the number of those left out.

    The newest files come first, since they're the likeliest to matter.
    """

    def changed_at(path: str) -> int:
        _, mtime, _ = plan.stamps[path]
        return mtime

    newest_first = sorted(plan.folder_by_new_file, key=changed_at, reverse=True)
    kept_paths = newest_first[:most_files]
    plan.folder_by_new_file = {path: plan.folder_by_new_file[path] for path in kept_paths}
    return len(newest_first) - len(kept_paths)


def _read_data_version(index: Index) -> int:
    """Return SQLite's number that changes whenever another process writes to the index."""
    (version,) = index.connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def reread(index: Index, stale_files: list[tuple[int, str]]) -> bool:
    """Read files again that may have changed. Returns True if a difference was written.

    `stale_files` has each file's number and path. The paths of files that differ are added to
    `index.outdated_paths`. If another process is writing, nothing is written.
    """
    files_to_write = {}
    for number, path in stale_files:
        known_digest = _read_digest(index, number)
        file = ReadFile(index.root, path, index.profile)
        is_different = file.stamp is None or file.digest != known_digest
        if is_different:
            index.outdated_paths.add(path)
        # With a sure stamp in the index, an unchanged file needn't be read again next time.
        if is_different or _has_sure_file_stamp(file):
            files_to_write[number] = file

    if not files_to_write:
        return False
    try:
        with transaction(index) as writer:
            changed = [writer.put(number, file) for number, file in files_to_write.items()]
    except (_Locked, sqlite.OperationalError) as error:
        # The index can stay outdated for now, unless it's damaged.
        if index_file.is_damage(error):
            raise
        return False
    return any(changed)


def _has_sure_file_stamp(file: ReadFile) -> bool:
    """Whether any change after a file was read would alter its stamp."""
    if file.stamp is None:
        return False
    _, changed_at, _ = file.stamp
    return is_sure(changed_at, file.read_at_ns)


def _read_digest(index: Index, number: int) -> int | None:
    """Return the digest of a file's content in the index; None if the file has been dropped from it."""
    query = "SELECT digest FROM file WHERE number = ?"
    (digest,) = index.connection.execute(query, (number,)).fetchone() or (None,)
    return digest


def _read_batch(index: Index, writer: IndexWriter) -> None:
    """Read the next pending files, up to `BATCH_FILES` of them, and write their entries."""
    query = "SELECT number, path FROM file WHERE pending ORDER BY number LIMIT ?"
    profile = index.profiles.by_kind[writer.facts["kind"]]
    for number, path in index.connection.execute(query, (BATCH_FILES,)).fetchall():
        writer.put(number, ReadFile(index.root, path, profile))
