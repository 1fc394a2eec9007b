"""The file of an index: its place in the cache, how it is opened, and what SQLite's errors over it mean.

A store has one file at a time. A new one replaces it as the next generation: `v6.0.sqlite`, `v6.1.sqlite`.
The first number is `VERSION`, so that two versions of this program do not fight over one file. Until a new
file was whole for the first time, the newest one of an earlier version answers, if there is one.

Times on a file system are coarse: what changes twice within one tick looks as if it had changed once. So what
was read too soon after its last change is not sure, and is looked at again. How soon that is depends on the
tick, which shows in the time itself: full seconds, or fractions of them.
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

_OF_RECORDS = ".json"
VERSION = 6
OLDEST_VERSION = 4  # that is still read
LANGUAGES_VERSION = 5  # the first one that knows languages, and whose entries are cut as theirs are
SECTIONS_VERSION = 6  # the first one with sections
COLUMNS_VERSION = 6
TOTAL = ""  # the row of the table `term` that counts all words
RARE_SHARE = 0.05  # of the entries, below which a language is asked for by prompts in it alone
BUSY_SECONDS = 0.3  # how long a writer waits for another one, once a query; readers never wait
MEMORY_FILES = 5_000  # files that are read into memory where no file can be kept: about a second
BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
READ_ONLY = (8, 14)  # SQLITE_READONLY, SQLITE_CANTOPEN
_DAMAGE = (1, 11, 26)  # SQLITE_ERROR (a table is missing), SQLITE_CORRUPT, SQLITE_NOTADB
# What our code raises over a sound database with spoilt values: no text, no such kind, a number for a path.
SPOILT = (ValueError, TypeError, AttributeError, LookupError, StopIteration, ArithmeticError)

WINDOW = 2_000_000_000  # nanoseconds: the coarsest tick in use (FAT), where times are full seconds
FINE_WINDOW = 100_000_000  # nanoseconds: many ticks of a file system that tells less than seconds
_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_MOST = 2**63 - 1  # what fits into a column

PROBLEMS = (
    "SELECT text FROM note UNION ALL SELECT path || ': ' || problem FROM file WHERE problem NOTNULL"
)


class _OneFunction:
    """All that `_sqlite3` takes from `functools`: what makes the cache of statements a connection has."""

    @staticmethod
    def lru_cache(_size: int) -> Callable[[Any], Any]:
        def remember(prepare: Callable[[str], Any]) -> Callable[[str], Any]:
            # All statements, for as long as a connection is open: for one search.
            prepared: dict[str, Any] = {}
            return lambda text: prepared.get(text) or prepared.setdefault(text, prepare(text))

        return remember


# `_sqlite3` comes without all that `sqlite3` imports, and without `functools`, which is a quarter of the cost
# of starting Python. Whoever imports the latter later gets the real one.
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
    """This interpreter's SQLite cannot search: it is missing, or built without FTS5."""


class Index:
    """An open index: `size` entries, `pending` files to read, `left_out` too many, `outdated` ones."""

    folders: int
    kind: str
    pending: int
    profile: Profile
    size: int

    def __init__(
        self, connection: Connection, root: str, profiles: Profiles, path: str | None = None
    ) -> None:
        self.connection = connection
        self.root = root
        self.profiles = profiles
        self.path = path
        self.left_out = 0
        self.outdated: set[str] = set()
        self.trouble: str | None = None
        self.version = VERSION  # an earlier one is read, and never written
        self.was_whole = False  # at any time: then no earlier one knows more
        self.languages: list[Language] = []  # those of many entries, the most frequent one first
        self.rare_languages: list[Language] = []

    def load(self, about: dict[str, Any]) -> None:
        """Take over what the table `about` says."""
        self.kind = about["kind"]
        self.size = about["size"]
        self.pending = about["pending"]
        self.folders = about["folders"]
        self.was_whole = bool(about.get("was_whole"))
        if self.kind:
            self.profile = self.profiles.by_kind[self.kind]
            self._load_languages(read_counts(about["languages"]))

    @property
    def is_earlier(self) -> bool:
        return self.version < VERSION

    def load_earlier(self, about: dict[str, Any], version: int, pending: int) -> None:
        """Take over what an index of an earlier version says; the new one has `pending` files to read."""
        self.version = version
        self.load({"languages": ""} | about | {"pending": pending})
        if version < LANGUAGES_VERSION:
            self.languages = [self.profile.language.as_in_earlier_index()]

    def _load_languages(self, counts: dict[str, int]) -> None:
        """Take over the languages of a store by their numbers of entries; the profile's is never rare."""
        usual = self.profile.language
        self.languages = []
        self.rare_languages = []
        for name in sorted({usual.name: 0} | counts, key=lambda name: -counts.get(name, 0)):
            if name == usual.name:
                self.languages.append(usual)
            elif name in self.profile.languages:
                is_rare = counts[name] < RARE_SHARE * self.size
                languages = self.rare_languages if is_rare else self.languages
                languages.append(self.profile.languages[name])

    def notes(self) -> list[str]:
        """Return one line for each problem of the store's files, and for what is missing in the index."""
        notes = []
        if self.pending:
            noun = "file" if self.pending == 1 else "files"
            problem = f"{self.pending:,} {noun} not read yet; the next query continues"
            if self.is_earlier:
                problem = f"{problem}, and until then the index of an earlier version answers"
            notes.append(f"{self.root}: {problem}")
        if self.left_out:
            most = f"only the newest {MEMORY_FILES:,} files are searched, because no index can be stored"
            notes.append(f"{self.root}: {most}")
        if self.trouble is not None:
            notes.append(self.trouble)
        return notes + [text for (text,) in self.connection.execute(PROBLEMS).fetchall()]

    def is_empty(self) -> bool:
        """Whether the store has no file that is read."""
        if self.size or self.pending or self.trouble is not None:
            return False
        return self.connection.execute("SELECT 1 FROM file LIMIT 1").fetchone() is None

    def close(self) -> None:
        # The last one to close deletes SQLite's two files beside the index, which the next one makes again:
        # 0.2 to 2 ms. What stands in them, closing moves into the index.
        if environment.ends_at_once and self.path:
            size, *_ = look(f"{self.path}-wal") or (0,)
            is_settled = size == 0
            if is_settled:
                return  # the end of this process closes it, and leaves both files
        self.connection.close()


def read_counts(text: str) -> dict[str, int]:
    """Return the numbers in a text of names and numbers, by name."""
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def describe_empty(root: str) -> str:
    """Say that there's nothing to search in a store, and what there could be."""
    endings = ", ".join(ending for ending in compiled.ENDINGS if ending != _OF_RECORDS)
    read = f"records of a memory store ({_OF_RECORDS}) and files that end in {endings}"
    return f"{root}: nothing to search in it; judgekit reads {read}"


def clock() -> int:
    return time.time_ns()


def look(path: str, *, folder: bool = False) -> Stamp | None:
    """Return what tells whether a file, or what stands in a folder, changed; None when it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    changed = _storable(status.st_mtime_ns)
    if folder:
        return _storable(status.st_ctime_ns), changed, status.st_ino & _MOST
    return _storable(status.st_size), changed, (status.st_ino ^ status.st_ctime_ns) & _MOST


def _storable(number: int) -> int:
    """Return the nearest number that a column holds: times before 1677 and after 2262 do not fit."""
    return max(-_MOST, min(number, _MOST))


def is_sure(changed: int, read: int) -> bool:
    """Whether nothing can have changed unseen after `read`; a time a day ahead is no clock's."""
    has_fractions = changed % _SECOND != 0
    window = FINE_WINDOW if has_fractions else WINDOW
    return read - changed >= window or changed - read > _DAY


def frequencies(connection: Connection, stems: Sequence[str]) -> dict[str, int]:
    """Return in how many entries each stem occurs, without those that occur in none."""
    marks = ", ".join("?" * len(stems))
    query = f"SELECT term, entries FROM term WHERE term IN ({marks})"  # noqa: S608 - question marks
    return dict(connection.execute(query, stems).fetchall())


def available() -> bool:
    """Whether this interpreter's SQLite has full-text search."""
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
    # Transactions are begun and ended by hand: the module's own ones would begin them too late.
    opened: Connection = sqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None, uri=uri)
    return opened


def about(connection: Connection) -> dict[str, Any]:
    """Return what an index says of itself."""
    return dict(connection.execute("SELECT key, value FROM about").fetchall())


def reading_fingerprint(profiles: Profiles) -> str:
    """Return what changes when stores would be read differently."""
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
    return says(error, _DAMAGE) or isinstance(error, SPOILT)


def says(error: BaseException, codes: Sequence[int]) -> bool:
    """Whether an error is SQLite's, with one of these codes."""
    code = getattr(error, "sqlite_errorcode", 1) & 0xFF  # without the bits of the extended code
    return isinstance(error, sqlite.DatabaseError) and code in codes


def path_of(root: str, version: int = VERSION) -> str | None:
    """Return the newest index file of the store at `root`, None where there is none."""
    folder = environment.INDEXES.path(environment.file_name_for(root))
    start = f"v{version}."
    end = ".sqlite"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    generations = []
    for name in names:
        number = name[len(start) : -len(end)]
        if name.startswith(start) and name.endswith(end) and number.isdecimal():
            generations.append(int(number))
    if not generations:
        return None
    return f"{folder}/{start}{max(generations)}{end}"
