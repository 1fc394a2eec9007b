"""The subjects of judging: documents and texts to compare, read from files and folders."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from collections import Counter
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    BinaryIO,
    ClassVar,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
)

from judgekit.errors import InputError, UsageError
from judgekit.git import GitError, Repository
from judgekit.judging.kinds import get_model_kind
from judgekit.judging.named_inputs import refuse_link_out
from judgekit.text import is_blank, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from judgekit.providers.base import Endpoint
    from judgekit.rubric.schema import Giving, ScoreRubric, Tier


@dataclass(frozen=True, slots=True)
class Author:
    """A subject's author and, if it's a model, its family."""

    # For its use in a verdict.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "ignore"}

    name: str | None = None
    family: str | None = None


@dataclass(frozen=True, slots=True)
class TaskDescription:
    """The purpose of a document, in the user's words. `reference` is the expected answer."""

    description: str = ""
    acceptance: str = ""
    reference: str = ""


# Shown before the text, in this order.
TASK_ROLES = tuple(role.name for role in fields(TaskDescription))


@dataclass(frozen=True, slots=True)
class VisibleFile:
    """One file as a model sees it; `total_chars` is its length before it was cut."""

    path: str
    text: str
    total_chars: int


def parse_families(text: str | None) -> tuple[str, ...]:
    """Parse a comma-separated list of model families or model names, such as "gpt, gpt-5", into families.

    Skip "none", which stands for a person.
    """
    from judgekit.providers.registry import UNKNOWN_FAMILY, guess_family  # noqa: PLC0415 - imported lazily because it's slow

    families = []
    for list_item in (text or "").split(","):
        name = list_item.strip().casefold()
        if not name or name == "none":
            continue
        family = guess_family(name)
        # An unknown name counts as a family of its own.
        if family == UNKNOWN_FAMILY:
            family = name
        families.append(family)
    return tuple(dict.fromkeys(families))


CONTEXT_CHARS = 400_000  # about 100,000 tokens, which every profile's current models can take
PROMPT_CHARS = 500
TURN_CHARS = 200

_HINT_BY_NEED: dict[Giving, str] = {
    "description": (
        "a description of the text's purpose; give it with --description (rows: --map description=COLUMN)"
    ),
    "acceptance": "acceptance criteria; give them with --acceptance (rows: --map acceptance=COLUMN)",
    "reference": "the answer that is expected; give it with --reference (rows: --map reference=COLUMN)",
    "sources": "sources; give their paths after the text, with one --task-id (rows: --map sources=COLUMN)",
}


class SentFile(TypedDict):
    """A file as sent to an engine; `shown` is its alias."""

    path: str
    text: str
    sha256: str
    total: int
    shown: NotRequired[str]


class SentAuthor(TypedDict):
    """An author as sent to an engine."""

    name: str | None
    family: str | None


class SentDocument(TypedDict):
    """A document as sent to an engine or a team's server."""

    files: list[SentFile]
    task_id: str
    description: str
    acceptance: str
    reference: NotRequired[str]
    author: SentAuthor
    commit: str | None


class SentComparison(TypedDict):
    """Texts to compare, as sent to an engine."""

    prompt: str
    files: list[SentFile]
    authors: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class File:
    """A file: its path, the start of its text, its SHA-256, and its full length in characters.

    Models see the `alias`, if any, in place of the path.
    """

    path: str
    text: str
    sha256: str
    total_chars: int
    alias: str = ""

    @property
    def visible_path(self) -> str:
        """The path that models see."""
        return self.alias or self.path

    def build_body(self, clean_name: Callable[[str], str] = str) -> SentFile:
        """Build the file's part of a request to a server. `clean_name` can remove secrets from names."""
        body: SentFile = {
            "path": clean_name(self.path),
            "text": self.text,
            "sha256": self.sha256,
            "total": self.total_chars,
        }
        if self.alias:
            body["shown"] = clean_name(self.alias)
        return body


def make_file(path: str, text: str) -> File:
    """Make a file from a text. A very long text is cut, but the hash is of the full text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return File(path, text[:CONTEXT_CHARS], digest, len(text))


@dataclass(frozen=True, slots=True)
class Document:
    """A subject judged as one: usually a file, or all files of a task."""

    families_of_some_texts: ClassVar[tuple[str, ...]] = ()  # there's just one text
    files: tuple[File, ...]
    task_id: str
    task: TaskDescription = field(default_factory=TaskDescription)
    author: Author = field(default_factory=Author)
    commit: str | None = None

    @property
    def sha256(self) -> str:
        """The hash of the only file, or a hash of all files."""
        if len(self.files) == 1:
            return self.files[0].sha256
        listing = "".join(f"{file.path}\0{file.sha256}\n" for file in self.files)
        return hashlib.sha256(listing.encode("utf-8", "surrogatepass")).hexdigest()

    def build_body(self, clean_name: Callable[[str], str] = str) -> SentDocument:
        """Build the document's part of a request to a server. `clean_name` can remove secrets from names."""
        author_name = self.author.name
        if author_name:
            author_name = clean_name(author_name)
        body: SentDocument = {
            "files": [file.build_body(clean_name) for file in self.files],
            "task_id": clean_name(self.task_id),
            "description": self.task.description,
            "acceptance": self.task.acceptance,
            "author": {"name": author_name, "family": self.author.family},
            "commit": self.commit,
        }
        # Older servers refuse unknown keys, so only send this one if it's needed.
        if self.task.reference:
            body["reference"] = self.task.reference
        return body

    @property
    def char_count(self) -> int:
        texts = [*astuple(self.task), *(file.text for file in self.files)]
        return sum(map(len, texts))

    @property
    def author_families(self) -> tuple[str, ...]:
        if self.author.family:
            return parse_families(self.author.family)
        return ()

    def lacks(self, rubric: ScoreRubric) -> str | None:
        """Describe what the rubric needs but the document lacks, in one line, or return None."""
        sources = self.files[1:]  # the first file is the text to judge
        given: dict[str, object] = {"sources": sources}
        for role in TASK_ROLES:
            given[role] = getattr(self.task, role).strip()

        missing = [_HINT_BY_NEED[need] for need in rubric.given.needs if not given[need]]
        if not missing:
            return None
        return f"{rubric.ref} needs {' and '.join(missing)}"

    def visible_files(self, tier: Tier, endpoint: Endpoint | None) -> tuple[VisibleFile, ...]:
        """Return the files as a model of a tier sees them, truncated to its total limit of characters."""
        characters_left = get_max_characters(tier, endpoint)
        files = []
        for file in self.files:
            text = file.text[:characters_left]
            files.append(VisibleFile(file.visible_path, text, file.total_chars))
            characters_left -= len(text)
        return tuple(files)


def get_max_characters(tier: Tier, endpoint: Endpoint | None) -> int:
    """Return the maximum number of a subject's characters that a tier's model sees.

    Without an endpoint, the default limit of a model's context applies.
    """
    context_limit = CONTEXT_CHARS
    if endpoint is not None:
        context_limit = endpoint.profile.limits.context_chars or CONTEXT_CHARS
        if get_model_kind(endpoint).ignores_tier_limit:
            return context_limit
    # Without a limit of its own, a tier gets the default even if the model's context is larger.
    tier_limit = tier.max_chars or CONTEXT_CHARS
    return min(tier_limit, context_limit)


def is_cut(files: Sequence[VisibleFile]) -> bool:
    return any(len(file.text) < file.total_chars for file in files)


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MIN_TEXTS = 2
MAX_TEXTS = len(LETTERS)


@dataclass(frozen=True, slots=True)
class ComparisonInput:
    """A prompt and its answers, the subjects A, B, …; `authors` are families, "none" for a person."""

    prompt: str
    files: tuple[File, ...]
    authors: tuple[str | None, ...] = ()

    def build_body(self) -> SentComparison:
        return {
            "prompt": self.prompt,
            "files": [file.build_body() for file in self.files],
            "authors": self.authors,
        }

    @property
    def char_count(self) -> int:
        return len(self.prompt) + sum(len(file.text) for file in self.files)

    @property
    def letters(self) -> str:
        return LETTERS[: len(self.files)]

    def file(self, letter: str) -> File:
        return self.files[LETTERS.index(letter)]

    def original(self, letter: str) -> str:
        """Return the first subject with the same text: itself, unless it's a copy."""
        sha256 = self.file(letter).sha256
        return next(other for other in self.letters if self.file(other).sha256 == sha256)

    @property
    def distinct_letters(self) -> tuple[str, ...]:
        """The letters of the subjects, without copies of earlier ones."""
        return tuple(letter for letter in self.letters if self.original(letter) == letter)

    @property
    def is_one_text(self) -> bool:
        """Whether all subjects have the same text."""
        return len(self.distinct_letters) == 1

    def author(self, letter: str) -> str | None:
        # There can be fewer authors than letters.
        return dict(zip(LETTERS, self.authors, strict=False)).get(letter)

    def families(self, letter: str) -> tuple[str, ...]:
        return parse_families(self.author(letter))

    def fill_in_author(self, family: str | None) -> ComparisonInput:
        """Name `family` as the author of every subject without one."""
        return replace(
            self, authors=tuple(self.author(letter) or family for letter in self.letters)
        )

    @property
    def author_families(self) -> tuple[str, ...]:
        """The model families that wrote the texts. If only some authors are given, includes "unknown"."""
        families: list[str] = []
        for letter in self.letters:
            families += self.families(letter)
        if families and any(self.author(letter) is None for letter in self.letters):
            families.append("unknown")
        return tuple(dict.fromkeys(families))

    @property
    def families_of_some_texts(self) -> tuple[str, ...]:
        """The model families that wrote some of the texts but not all, and so may favour these."""
        text_counts: Counter[str] = Counter()
        for letter in self.letters:
            text_counts.update(self.families(letter))
        families = []
        for family, count in text_counts.items():
            wrote_all = count == len(self.files)
            if family != "unknown" and not wrote_all:
                families.append(family)
        return tuple(families)

    def hash_shown_texts(self, order: str) -> str:
        """Hash the prompt and the subjects in this order. Recorded replies are found by this hash."""
        hashes = [self.file(letter).sha256 for letter in order]
        text = "\0".join([self.prompt, *hashes])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Titled(Protocol):
    """The source of a candidate: a hit, a labelled case or a rubric's example."""

    @property
    def title(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def tags(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class PromptCandidate:
    """A candidate as a model sees it."""

    id: str
    title: str
    category: str = ""
    tags: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def of(cls, source: Titled, name: str, text: str) -> PromptCandidate:
        """Build a candidate with this name and text."""
        return cls(name, source.title, source.category, tuple(source.tags), text)


class Query(NamedTuple):
    """The request that candidates are for, with the last turns of the conversation before it."""

    text: str
    turns: tuple[str, ...] = ()


class Candidates(NamedTuple):
    query: Query
    candidates: tuple[PromptCandidate, ...]
    author_families: tuple[str, ...] = ()
    families_of_some_texts: tuple[str, ...] = ()

    @property
    def char_count(self) -> int:
        texts = [candidate.text for candidate in self.candidates]
        return sum(map(len, [self.query.text, *self.query.turns, *texts]))


MAX_BYTES = 64_000_000
STDIN = "-"
# Files that a shell has opened for us
_SHELL_FILE_PREFIXES = (
    "/dev/fd/",
    "/dev/stdin",
    "/proc/self/fd/",
)
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # UTF-32's start like these
_SNIFFED_BYTES = 8192  # a NUL in these means that a file is binary, as in git


def expand(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths. Instead of a folder, yield its text files, except for files that git ignores.

    Raises `UsageError` for an empty path.
    """
    all_paths = list(paths)
    if "" in all_paths:
        raise UsageError("an empty path was given; is a variable unset?")
    for path in all_paths:
        if path == STDIN or not is_folder(path):
            yield path
            continue
        refuse_link_out(path)
        text_files = (str(file) for file in _list_files(Path(path)) if _is_text(file))
        # If there's no text file, yield the folder itself, so that reading it reports the problem.
        yield next(text_files, path)
        yield from text_files


def is_folder(path: str) -> bool:
    """Whether there's a folder at `path`. An invalid path is no folder."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # too long, or with a NUL; reading the path reports that later
        return False


def read_file(path: str, stdin: BinaryIO) -> File:
    """Read a file, or standard input if the path is `-`. Raises `InputError` with a one-line message."""
    if path == STDIN:
        return decode(path, stdin.read(MAX_BYTES + 1), "standard input")
    # `expand` has replaced a folder by its text files, unless it has none.
    if is_folder(path):
        raise InputError(f"{path}: the folder has no text file, apart from files that git ignores")
    refuse_link_out(path)
    try:
        _refuse_device(path)
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:  # a NUL in the path
        raise InputError(f"{path}: cannot be read (not a path)") from None
    return decode(path, data)


def _refuse_device(path: str) -> None:
    """Raise `InputError` for a pipe or a device, because a device could be endless.

    `/dev/stdin` and the shell's `<(…)` are allowed.
    """
    is_regular_file = stat.S_ISREG(Path(path).stat().st_mode)
    is_from_shell = str(Path(path)).startswith(_SHELL_FILE_PREFIXES)
    if is_regular_file or is_from_shell:
        return
    problem = "not a file (a pipe or a device); pass its content on standard input: -"
    raise InputError(f"{path}: {problem}")


def decode(path: str, data: bytes, name: str | None = None) -> File:
    """Decode a file's `data`, and return the file, shortened to `CONTEXT_CHARS` characters.

    Raises `InputError` with a one-line message that mentions `name`, or otherwise `path`.
    """
    printable_name = replace_surrogates(name or path)
    _refuse_binary(data, printable_name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{printable_name}: not UTF-8 (byte {error.start}); save it as UTF-8"
        ) from None
    if is_blank(text):
        raise InputError(f"{printable_name}: empty; nothing to judge")

    shortened_text = text[:CONTEXT_CHARS]
    sha256 = hashlib.sha256(data).hexdigest()  # of the whole file
    return File(replace_surrogates(path), shortened_text, sha256, total_chars=len(text))


def _refuse_binary(data: bytes, name: str) -> None:
    """Raise `InputError` if data is too large, UTF-16 or binary. The message starts with `name`."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{name}: larger than {MAX_BYTES // 1_000_000} MB; judge a part of it")
    if data.startswith(_UTF_16_MARKS):
        raise InputError(f"{name}: this is UTF-16; save it as UTF-8")
    if b"\0" in data[:_SNIFFED_BYTES]:
        raise InputError(f"{name}: a binary file; judgekit judges only text")


def build_document(
    files: Sequence[File],
    task_id: str | None = None,
    task: TaskDescription | None = None,
    family: str | None = None,
) -> Document:
    """Build the document to judge from files.

    `family` is the model family that wrote the files. The default `task_id` is `PATH@HASH` of the first file.
    """
    # Values from a command line can contain lone surrogates, which can't be stored as UTF-8.
    name = replace_surrogates(task_id) if task_id else ""
    if not name:
        first_file = files[0]
        name = f"{first_file.path}@{first_file.sha256[:16]}"
    if family:
        family = replace_surrogates(family)
    return Document(tuple(files), name, task or TaskDescription(), Author(family=family))


def _is_text(path: Path) -> bool:
    """Whether a file contains UTF-8 text, judging by its start."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        with path.open("rb") as file:
            # This decoder accepts a last character that's cut in the middle.
            text = decoder.decode(file.read(_SNIFFED_BYTES))
    except OSError:  # reading the file later reports the problem
        return True
    except UnicodeDecodeError:
        return False
    return "\0" not in text and not is_blank(text)


def _list_files(folder: Path) -> list[Path]:
    """List a folder's files, except for links and files ignored by git.

    If git can't list the files, all files except for hidden ones and links are listed.
    """
    try:
        paths = _list_with_git(folder)
    except GitError:
        paths = _list_visible(folder)

    real_folder = folder.resolve()
    files = []
    for path in paths:
        if not path.is_file():
            continue
        # Skip links, and files in linked folders.
        if path.resolve() == real_folder / path.relative_to(folder):
            files.append(path)
    return sorted(files)


def _list_with_git(folder: Path) -> set[Path]:
    """List the files in a folder that git doesn't ignore; raises `GitError` outside a repository."""
    listed = Repository(folder).ask("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return {folder / os.fsdecode(name) for name in listed.split(b"\0") if name}


def _list_visible(folder: Path) -> set[Path]:
    """List the files in a folder that are neither hidden nor in a hidden folder."""
    paths: set[Path] = set()
    for base, folders, names in os.walk(folder):
        # Change the list in place, so that os.walk skips hidden folders.
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths.update(Path(base) / name for name in names if not name.startswith("."))
    return paths
