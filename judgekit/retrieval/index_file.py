"""The file of an index: its place in the cache, how to open it, and the meaning of SQLite's errors.

A store has one file at a time. A new one replaces it as the next generation: `v6.0.sqlite`, `v6.1.sqlite`.
The first number is `VERSION`, so that two versions of this program don't fight over one file. Until a new
file has been whole once, the newest file of an earlier version answers, if there is one.

Times on a file system are coarse: two changes within one tick look like one. So a file that was read too soon
after its last change isn't sure, and is checked again. How soon depends on the tick, which can be told from
the time itself: full seconds, or fractions of them.
"""

from __future__ import annotations

import os
import sys
import time

from judgekit import environment
from judgekit.retrieval import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from sqlite3 import Connection
    from typing import Any, TypeAlias

    from judgekit.retrieval.compiled import Language, Profile, Profiles

    # Of a file size, mtime_ns, and inode mixed with ctime_ns; of a folder ctime_ns, mtime_ns, inode.
    Stamp: TypeAlias = tuple[int, int, int]

_RECORD_ENDING = ".json"
VERSION = 6
OLDEST_VERSION = 4  # that is still read
LANGUAGES_VERSION = 5  # the first one that knows languages, and cuts entries by their rules
SECTIONS_VERSION = 6  # the first one with sections
COLUMNS_VERSION = 6
TOTAL = ""  # the row of the table `term` that counts all words
RARE_SHARE = 0.05  # of the entries; only prompts in a rarer language search it
BUSY_SECONDS = 0.3  # how long a writer waits for another, once a query; readers never wait
MAX_MEMORY_FILES = 5_000  # files read into memory if no file can be kept: about a second
BUSY_ERROR_CODES = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
READ_ONLY = (8, 14)  # SQLITE_READONLY, SQLITE_CANTOPEN
# SQLITE_ERROR (a table is missing), SQLITE_CORRUPT, SQLITE_NOTADB.
_DAMAGE_ERROR_CODES = (
    1,
    11,
    26,
)
# Exceptions of our own code if a sound database holds spoilt values: no text, no such kind, a number for a
# path.
SPOILT_DATA_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    StopIteration,
    ArithmeticError,
)

WINDOW_NS = 2_000_000_000  # nanoseconds: the coarsest tick in use (FAT has full seconds)
# Many ticks of a file system with times finer than seconds.
FINE_WINDOW_NS = 100_000_000
_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS
_MAX_INTEGER = 2**63 - 1  # the largest number that fits into a column

PROBLEMS = (
    "SELECT text FROM note UNION ALL SELECT path || ': ' || problem FROM file WHERE problem NOTNULL"
)


class _OneFunction:
    """Stands in for `functools`, whose import takes long. `_sqlite3` needs only this function from it."""

    @staticmethod
    def lru_cache(_size: int) -> Callable[[Any], Any]:
        """Make a decorator that caches a function's results without dropping any.

        The results are the prepared statements of a connection, which is open for one search, so they're few.
        """

        def remember(prepare: Callable[[str], Any]) -> Callable[[str], Any]:
            statement_by_sql: dict[str, Any] = {}

            def prepare_once(sql: str) -> Any:  # noqa: ANN401 - what `prepare` returns
                if sql not in statement_by_sql:
                    statement_by_sql[sql] = prepare(sql)
                return statement_by_sql[sql]

            return prepare_once

        return remember


# `_sqlite3` works without everything `sqlite3` imports, and without `functools`, which is a quarter of the
# cost of starting Python. Later imports of `functools` get the real one.
sqlite: Any = None
if "functools" not in sys.modules and sys.implementation.name == "cpython":
    _stand_in: Any = _OneFunction
    sys.modules["functools"] = _stand_in
    try:
        import _sqlite3
    except (ImportError, AttributeError):  # the latter: a version that takes more from functools
        sys.modules.pop("_sqlite3", None)
    finally:
        del sys.modules["functools"]
try:
    import _sqlite3

    sqlite = _sqlite3
except ImportError:  # an interpreter without SQLite, or another than CPython
    pass


class NoFullTextError(Exception):
    """This Python's SQLite can't search: it's missing, or built without FTS5."""


class Index:
    """An open index of a store, with `entry_count` entries.

    `pending_count` counts the files that are still to be read.
    """

    folders: int
    kind: str
    pending_count: int
    profile: Profile
    entry_count: int

    def __init__(
        self, connection: Connection, root: str, profiles: Profiles, path: str | None = None
    ) -> None:
        self.connection = connection
        self.root = root
        self.profiles = profiles
        self.path = path  # None if the index is in memory
        # The number of files not read, because an index in memory has a limit.
        self.left_out_count = 0
        # The paths of files that changed after they were indexed.
        self.outdated_paths: set[str] = set()
        self.trouble: str | None = None  # a line about why nothing can be searched
        self.version = VERSION  # an index with an earlier version is only read, never written
        # Whether the index has ever been complete. Until then, queries use an earlier version's, if there is
        # one.
        self.was_whole = False
        # The store's languages, most frequent first. Languages with few entries are in `rare_languages`.
        self.languages: list[Language] = []
        self.rare_languages: list[Language] = []

    def load(self, about: dict[str, Any]) -> None:
        """Set the fields from `about`, an index's table of facts about itself."""
        self.kind = about["kind"]
        self.entry_count = about["size"]
        self.pending_count = about["pending"]
        self.folders = about["folders"]
        self.was_whole = bool(about.get("was_whole"))
        if self.kind:
            self.profile = self.profiles.by_kind[self.kind]
            self._load_languages(read_counts(about["languages"]))

    @property
    def is_earlier(self) -> bool:
        """Whether an earlier version of this program wrote the index, so that it's read-only."""
        return self.version < VERSION

    def load_earlier(self, about: dict[str, Any], version: int, pending: int) -> None:
        """Set the fields for the index of an earlier version, which is used until the new one is complete.

        `pending` is the number of files that the new index still lacks.
        """
        self.version = version
        facts: dict[str, Any] = {"languages": ""}  # missing before `LANGUAGES_VERSION`
        facts.update(about)
        facts["pending"] = pending
        self.load(facts)

        if version < LANGUAGES_VERSION:
            self.languages = [self.profile.language.as_in_earlier_index()]

    def _load_languages(self, counts: dict[str, int]) -> None:
        """Split a store's languages into frequent and rare ones. The main language is always frequent.

        `counts` are the numbers of entries by language.
        """
        main_language = self.profile.language
        all_counts = {main_language.name: 0}  # include the main one even without entries
        all_counts.update(counts)

        self.languages = []
        self.rare_languages = []
        most_frequent_first = sorted(all_counts, key=all_counts.__getitem__, reverse=True)
        for name in most_frequent_first:
            if name not in self.profile.languages:
                continue
            language = self.profile.languages[name]
            is_main = name == main_language.name
            is_frequent = all_counts[name] >= RARE_SHARE * self.entry_count
            if is_main or is_frequent:
                self.languages.append(language)
            else:
                self.rare_languages.append(language)

    def describe_problems(self) -> list[str]:
        """Describe the problems with the store's files, and the gaps in the index, one per line."""
        notes = []
        if self.pending_count:
            noun = "file" if self.pending_count == 1 else "files"
            problem = f"{self.pending_count:,} {noun} not read yet; the next query continues"
            if self.is_earlier:
                problem = f"{problem}, and until then the index of an earlier version answers"
            notes.append(f"{self.root}: {problem}")

        if self.left_out_count:
            limit = f"only the newest {MAX_MEMORY_FILES:,} files are searched, because no index can be stored"
            notes.append(f"{self.root}: {limit}")

        if self.trouble is not None:
            notes.append(self.trouble)
        return notes + [text for (text,) in self.connection.execute(PROBLEMS).fetchall()]

    def is_empty(self) -> bool:
        """Whether the store contains no readable files."""
        if self.entry_count or self.pending_count or self.trouble is not None:
            return False
        return self.connection.execute("SELECT 1 FROM file LIMIT 1").fetchone() is None

    def close(self) -> None:
        """Close the connection, unless the process is ending and there's nothing left to write."""
        # Closing the last connection moves SQLite's two extra files into the index, and the next connection
        # creates them again. That takes 0.2 to 2 ms, so let the connection end with the process.
        if environment.ends_at_once and self._is_saved():
            return
        self.connection.close()

    def _is_saved(self) -> bool:
        """Whether the index is a file, and SQLite's log has nothing left to move into it."""
        if not self.path:  # it's in memory
            return False

        log_stamp = read_stamp(f"{self.path}-wal")
        if log_stamp is None:  # there's no log
            return True
        log_size, *_ = log_stamp
        return log_size == 0


def read_counts(text: str) -> dict[str, int]:
    """Parse text such as `english 12 german 3` into a mapping of names to numbers."""
    words = text.split()
    names = words[0::2]
    numbers = map(int, words[1::2])
    return dict(zip(names, numbers, strict=True))


def describe_empty(root: str) -> str:
    """Describe that there's nothing to search in a store, and which files it could contain."""
    endings = ", ".join(ending for ending in compiled.ENDINGS if ending != _RECORD_ENDING)
    readable = f"records of a memory store ({_RECORD_ENDING}) and files that end in {endings}"
    return f"{root}: nothing to search in it; judgekit reads {readable}"


def get_time_ns() -> int:
    """Return the time in nanoseconds since the epoch, as in a file's stamp."""
    return time.time_ns()


def read_stamp(path: str, *, folder: bool = False) -> Stamp | None:
    """Return a stamp that changes with a file, or with a folder's list of files; None if missing."""
    try:
        status = os.stat(path)
    except OSError:
        return None

    mtime = _clamp(status.st_mtime_ns)
    if folder:
        return _clamp(status.st_ctime_ns), mtime, _cut_bits(status.st_ino)

    # A tool can change a file and set its mtime back, but it can't set the ctime. A tool that replaces the
    # file changes the inode. A stamp has one number for both, so combine them.
    inode_and_ctime = status.st_ino ^ status.st_ctime_ns
    return _clamp(status.st_size), mtime, _cut_bits(inode_and_ctime)


def _cut_bits(number: int) -> int:
    """Return a number's lower bits, as many as fit into an SQLite column."""
    return number & _MAX_INTEGER


def _clamp(number: int) -> int:
    """Clamp a number to a column's range, which excludes times before 1677 and after 2262."""
    return max(-_MAX_INTEGER, min(number, _MAX_INTEGER))


def is_sure(changed: int, read: int) -> bool:
    """Whether a file's time of change proves that the file hasn't changed since it was read.

    File systems store times with limited precision. If a file was read soon after `changed`, a later change
    could get the same time. Both times are in nanoseconds.
    """
    # A time with fractions is from a file system with a finer tick, so a shorter wait is enough.
    has_fractions = changed % _SECOND_NS != 0
    window = FINE_WINDOW_NS if has_fractions else WINDOW_NS
    is_old_enough = read - changed >= window
    # A time in the far future is wrong. Waiting for it wouldn't help, so the file counts as unchanged.
    is_far_ahead = changed - read > _DAY_NS
    return is_old_enough or is_far_ahead


def count_entries_by_stem(connection: Connection, stems: Sequence[str]) -> dict[str, int]:
    """Return the number of entries for each stem, without stems that have none."""
    marks = ", ".join("?" * len(stems))
    query = f"SELECT term, entries FROM term WHERE term IN ({marks})"  # noqa: S608 - question marks
    return dict(connection.execute(query, stems).fetchall())


def has_full_text_search() -> bool:
    """Whether this Python's SQLite has full-text search."""
    if sqlite is None:
        return False
    connection = connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE probe USING fts5(a)")
    except sqlite.OperationalError:
        return False
    finally:
        connection.close()
    return True


def connect(path: str, *, uri: bool = False) -> Connection:
    """Open a database file. If `uri`, the path is a `file:` URI with options."""
    # Start and end transactions by hand, because the module would start them too late.
    opened: Connection = sqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None, uri=uri)
    return opened


def read_facts(connection: Connection) -> dict[str, Any]:
    """Read an index's facts about itself."""
    return dict(connection.execute("SELECT key, value FROM about").fetchall())


def reading_fingerprint(profiles: Profiles) -> str:
    """Return a fingerprint of all rules that affect how stores are read."""
    rules = []
    languages_used = []
    for kind, profile in profiles.by_kind.items():
        categories = {}
        for name, category in profile.categories.items():
            categories[name] = (category["folder"], category["body"])
        rules.append((kind, categories, profile.max_bytes))
        languages_used.append(profile.language.name)
    facts = (COLUMNS_VERSION, rules, languages_used, profiles.words_fingerprint)
    return environment.checksum(repr(facts).encode())


def is_damage(error: BaseException) -> bool:
    """Whether an error, from SQLite or from our code, shows that an index is damaged."""
    return has_error_code(error, _DAMAGE_ERROR_CODES) or isinstance(error, SPOILT_DATA_ERRORS)


def has_error_code(error: BaseException, codes: Sequence[int]) -> bool:
    """Whether an error is from SQLite and has one of these codes."""
    if not isinstance(error, sqlite.DatabaseError):
        return False
    # Errors that Python's module raises by itself have no code. Treat them as 1, SQLITE_ERROR.
    code = getattr(error, "sqlite_errorcode", 1)
    primary_code = code & 0xFF  # the higher bits are details
    return primary_code in codes


def find_index_file(root: str, version: int = VERSION) -> str | None:
    """Find the newest index file of the store at `root`, such as `v5.12.sqlite`; None if there isn't one.

    The second number in its name is the generation, which grows when the file is replaced.
    """
    folder = environment.INDEXES.path(environment.make_file_name(root))
    try:
        names = os.listdir(folder)
    except OSError:
        return None

    generations = []
    for name in names:
        generation = _parse_generation(name, version)
        if generation is not None:
            generations.append(generation)

    if not generations:
        return None
    return f"{folder}/v{version}.{max(generations)}.sqlite"


def _parse_generation(name: str, version: int) -> int | None:
    """Return the generation in an index file's name; None for other files and versions."""
    start = f"v{version}."
    end = ".sqlite"
    is_index = name.startswith(start) and name.endswith(end)
    if not is_index:
        return None
    generation = name[len(start) : -len(end)]
    return int(generation) if generation.isdecimal() else None
