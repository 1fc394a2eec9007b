"""Git itself, asked safely: nothing of a repository is run, nothing is fetched, every answer is bytes.

Every call of git is made here. A folder of a clone may pose as a repository, and a repository's configuration
may name programs for almost anything. So only commands are run that read objects, names and configuration;
`git.toml` has them. None of them reads a working file, which git would hand to a filter.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from functools import cache
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.errors import InputError
from judgekit.text import short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

SECONDS = 30.0
MAX_ANSWER = (
    256_000_000  # bytes of one answer: a tree of a few kB can unfold to thousands of times as much
)
MAX_ENTRIES = 3_000_000  # of one tree
MAX_MEMORY = 2_000_000_000  # bytes that a git may take, where the system can limit it
PARTIAL = "this partial clone lacks a part of it; fetch all (git fetch --refetch --no-filter)"
_LACKING = b"lazy fetching disabled"  # what git says of an object that it would have to fetch
_PIECE = 1 << 16  # bytes
_URL = re.compile(
    r"(?:\w[\w+.-]*)://(?:[^@/]*@)?(?P<host>[^/:]*)(?::\d+)?/+(?P<path>.*)", re.DOTALL
)
_SCP = re.compile(r"(?:[^@/:]*@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)", re.DOTALL)


@cache
def _rules() -> dict[str, Any]:
    """Read the commands that may be run, with their settings and variables."""
    return environment.table(__file__, "git.toml")


class GitError(InputError):
    """Git could not answer; the message says what was asked and what git said."""


class TreeEntry(NamedTuple):
    """One name in a tree: `mode` is that of a file, a link or a submodule."""

    mode: str
    oid: str
    path: str


class Repository(NamedTuple):
    """A git repository, of which `folder` is a working tree, a folder in it, or a bare repository.

    Git's own variables (`GIT_DIR`) count. A bare one is none unless they name it, or `bare` says so.
    """

    folder: Path
    bare: bool = False

    def ask(self, *words: str, stdin: bytes = b"", seconds: float = SECONDS) -> bytes:
        """Run `git WORDS` and return its output; raises `GitError` when it fails or takes too long."""
        done = self._run(words, stdin, seconds)
        if done.returncode:
            raise _failed(words[0], done)
        return done.stdout

    def entries(self, commit: str, *paths: str, most: int = MAX_ENTRIES) -> Iterator[TreeEntry]:
        """Yield all files of a commit's tree, as they come; raises `GitError` after `most` of them.

        A tree may hold a name twice, and in any order: every entry is yielded.
        """
        words = ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
        with self._running(words, b"", SECONDS) as running:
            count = 0
            rest = b""
            for piece in running.pieces():
                *records, rest = (rest + piece).split(b"\0")
                for record in records:
                    count += 1
                    if count > most:
                        raise GitError(f"git ls-tree: more than {most:,} files in {commit[:12]}")
                    about, _, path = os.fsdecode(record).partition("\t")
                    mode, _, oid = about.split(" ")
                    yield TreeEntry(mode, oid, path)
            done = running.done()
        if done.returncode:
            raise _failed(words[0], done)

    def holds(self, *words: str) -> bool:
        return self._run(words).returncode == 0

    def commit(self, name: str) -> str | None:
        """Return the id of the commit that `name` (an id, a ref, a tag) leads to, or None."""
        done = self._run(("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"))
        if done.returncode == 0:
            return done.stdout.decode().strip() or None
        return None

    def commits(self, names: Iterable[str]) -> dict[str, str]:
        """Map names (ids, refs, tags) to the ids of the commits that they lead to, in one git.

        A name that leads to no commit here is left out.
        """
        distinct_names = list(dict.fromkeys(names))
        commit_by_name = {}
        lines = self.described([f"{name}^{{commit}}" for name in distinct_names])
        for name, line in zip(distinct_names, lines, strict=True):
            oid, _, rest = line.partition(" ")
            if rest.startswith("commit "):  # of what isn't here, git repeats the name
                commit_by_name[name] = oid
        return commit_by_name

    def blobs(self, names: Iterable[str], most: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each blob's id and content, one at a time; None if missing or larger than `most` bytes."""
        names = list(names)
        sizes = self._sizes_of_blobs(names, most)
        readable = [name for name in names if name in sizes]
        with tempfile.TemporaryFile() as request:
            request.write(os.fsencode("".join(f"{name}\n" for name in readable)))
            request.seek(0)
            with self._start(("cat-file", "--batch"), request, DEVNULL) as process:
                assert process.stdout is not None  # noqa: S101 - opened as a pipe
                try:
                    for name in names:
                        content = None
                        if name in sizes:
                            content = _read_blob(process.stdout, name, sizes[name])
                        yield name, content
                finally:
                    process.kill()

    def _sizes_of_blobs(self, names: Iterable[str], most: int) -> dict[str, int]:
        """Map each blob that's here and not too large to its size in bytes."""
        sizes = {}
        for line in self.described(list(dict.fromkeys(names))):
            name, kind, *size = line.split(" ")
            if kind == "blob" and int(size[0]) <= most:
                sizes[name] = int(size[0])
        return sizes

    def described(self, names: list[str]) -> Iterator[str]:
        """Yield the lines of `cat-file --batch-check` for objects."""
        left = names
        while left:
            done = self._run(("cat-file", "--batch-check"), os.fsencode("\n".join([*left, ""])))
            lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1]
            if done.returncode and _LACKING not in done.stderr:
                raise _failed("cat-file", done)
            yield from lines
            # Some versions of git end at the first object that a partial clone lacks; others call it missing.
            if not done.returncode:
                return
            if len(lines) < len(left):
                yield f"{left[len(lines)]} missing"
            left = left[len(lines) + 1 :]

    def _run(
        self, words: Sequence[str], stdin: bytes = b"", seconds: float = SECONDS
    ) -> CompletedProcess[bytes]:
        with self._running(words, stdin, seconds) as running:
            pieces: list[bytes] = []
            size = 0
            for piece in running.pieces():
                size += len(piece)
                if size > MAX_ANSWER:
                    raise GitError(f"git {words[0]}: more than {MAX_ANSWER // 1_000_000} MB")
                pieces.append(piece)
            done = running.done()
        return CompletedProcess(words, done.returncode, b"".join(pieces), done.stderr)

    @contextmanager
    def _running(self, words: Sequence[str], stdin: bytes, seconds: float) -> Iterator[_Running]:
        """Give what git prints as it comes; git is ended after some seconds, and when the caller is done."""
        with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as complaint:
            request.write(stdin)
            request.seek(0)
            with self._start(words, request, complaint) as process:
                running = _Running(process, words[0], complaint, seconds)
                try:
                    yield running
                finally:
                    running.end()

    def _start(
        self, words: Sequence[str], stdin: IO[bytes] | int, stderr: IO[bytes] | int
    ) -> Popen[bytes]:
        rules = _rules()
        command = words[0]
        if command not in rules["reading"]:
            raise ValueError(
                f"git {command} is not run: it may run programs that a repository names"
            )
        program = programs.find("git", environment.environ())
        if program is None:
            raise GitError(f"git {command}: no git on PATH; install git")
        argv = [program, "--no-pager"]
        for name, value in rules["settings"].items():
            # A command that asks where the hooks are must see the repository's own setting.
            if name != "core.hooksPath" or command not in rules["asking_for_hooks"]:
                argv += ["-c", f"{name}={value}"]
        if self.bare:
            argv.append("--git-dir=.")
        argv += words
        env = _environment()
        try:
            process = Popen(argv, cwd=self.folder, env=env, stdin=stdin, stdout=PIPE, stderr=stderr)  # noqa: S603 - git, and our own words
        except OSError as error:
            raise GitError(
                f"git {command}: could not be started ({error.strerror}); install git"
            ) from None
        _limit_memory(process.pid)
        return process


def normalize_address(address: str, folder: str) -> str:
    """Reduce an address to `HOST/PATH` or a full path: the same for all addresses of a repository.

    User names and passwords are left out. A relative path is seen from `folder`.
    """
    match = _URL.fullmatch(address) or _SCP.fullmatch(address)
    if match is None:
        path = address
    elif match["host"]:
        return f"{match['host'].lower()}/{match['path'].rstrip('/').removesuffix('.git')}"
    else:
        path = f"/{match['path']}"
    return os.path.realpath(os.path.join(folder, path)).removesuffix(".git")  # noqa: PTH118 - no file is meant


def _environment() -> dict[str, str]:
    """Return the variables for a git: of its own only those that say which repository and settings."""
    rules = _rules()
    variables = {}
    for name, value in environment.environ().items():
        is_of_git = name.startswith("GIT_")
        if not is_of_git or name in rules["kept"] or name.startswith("GIT_CONFIG_"):
            variables[name] = value
    search_path = programs.search_path(environment.environ())
    return {**variables, **rules["environment"], "PATH": search_path}


def _read_blob(stdout: IO[bytes], name: str, length: int) -> bytes:
    """Return a blob from what `cat-file --batch` prints: a line, the bytes and a newline."""
    head = stdout.readline()
    content = stdout.read(length)
    if not head.endswith(b" blob %d\n" % length) or stdout.read(1) != b"\n":
        raise GitError(f"git cat-file: {name} could not be read")
    return content


def _limit_memory(pid: int) -> None:
    """Have a git end that needs much memory: it holds all changes of a commit before it prints the first."""
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - Windows has none

    with suppress(OSError):  # it has ended
        resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))


class _Running:
    """A git that was started, and what it prints; nothing waits for it longer than some seconds."""

    def __init__(
        self, process: Popen[bytes], word: str, complaint: IO[bytes], seconds: float
    ) -> None:
        self._process = process
        self._word = word
        self._complaint = complaint
        self._seconds = seconds
        self._is_late = False
        self._timer = threading.Timer(seconds, self._stop)
        self._timer.daemon = True
        self._timer.start()

    def _stop(self) -> None:
        self._is_late = True
        self._process.kill()

    def pieces(self) -> Iterator[bytes]:
        """Yield the output, piece by piece, to its end."""
        stdout = self._process.stdout
        assert isinstance(stdout, io.BufferedReader)  # noqa: S101 - opened as a pipe
        while piece := stdout.read1(_PIECE):
            yield piece

    def done(self) -> CompletedProcess[bytes]:
        """Return the exit code and the complaint, once all was printed; raises `GitError` if it is late."""
        self._process.wait()
        if self._is_late:
            raise GitError(f"git {self._word}: no response in {self._seconds:g} s")
        self._complaint.seek(0)
        return CompletedProcess(
            self._word, self._process.returncode, b"", self._complaint.read(_PIECE)
        )

    def end(self) -> None:
        self._timer.cancel()
        self._process.kill()  # does nothing where it has ended


def _failed(word: str, done: CompletedProcess[bytes]) -> GitError:
    if _LACKING in done.stderr:
        return GitError(f"git {word}: {PARTIAL}")
    complaint = (
        short_line(done.stderr.decode("utf-8", "replace"), 300) or f"exit code {done.returncode}"
    )
    return GitError(f"git {word}: {complaint}")
