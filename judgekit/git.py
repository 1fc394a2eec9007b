"""Asks git safely: no program that a repository names is run, nothing is fetched, every answer is bytes.

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
_LACKING = b"lazy fetching disabled"  # git's complaint about an object that it would have to fetch
_PIECE = 1 << 16  # bytes
_URL = re.compile(
    r"(?:\w[\w+.-]*)://(?:[^@/]*@)?(?P<host>[^/:]*)(?::\d+)?/+(?P<path>.*)", re.DOTALL
)
_SCP = re.compile(r"(?:[^@/:]*@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)", re.DOTALL)


@cache
def _read_rules() -> dict[str, Any]:
    """Read the commands that may be run, with their settings and variables."""
    return environment.table(__file__, "git.toml")


class GitError(InputError):
    """Git couldn't answer; the message has the command and git's complaint."""


class TreeEntry(NamedTuple):
    """One file, link or submodule in a tree; the `mode` tells which."""

    mode: str
    oid: str
    path: str


class Repository(NamedTuple):
    """A git repository: `folder` is its working tree, a folder in that, or a bare repository.

    Git's own variables (`GIT_DIR`) count. A bare repository is only used if they name it, or if `bare`.
    """

    folder: Path
    bare: bool = False

    def ask(self, *words: str, stdin: bytes = b"", seconds: float = SECONDS) -> bytes:
        """Run `git WORDS` and return its output; raises `GitError` when it fails or takes too long."""
        done = self._run(words, stdin, seconds)
        if done.returncode:
            raise _build_error(words[0], done)
        return done.stdout

    def entries(self, commit: str, *paths: str, most: int = MAX_ENTRIES) -> Iterator[TreeEntry]:
        """Yield all files of a commit's tree, as they come; raises `GitError` after `most` of them.

        A tree may hold a name twice, and in any order: every entry is yielded.
        """
        words = ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
        with self._start_limited(words, b"", SECONDS) as running:
            count = 0
            unfinished = b""  # the beginning of a record whose end is in the next piece
            for piece in running.pieces():
                *records, unfinished = (unfinished + piece).split(b"\0")
                for record in records:  # MODE KIND OID TAB PATH
                    count += 1
                    if count > most:
                        raise GitError(f"git ls-tree: more than {most:,} files in {commit[:12]}")
                    mode_kind_and_oid, _, path = os.fsdecode(record).partition("\t")
                    mode, _, oid = mode_kind_and_oid.split(" ")
                    yield TreeEntry(mode, oid, path)
            done = running.wait()
        if done.returncode:
            raise _build_error(words[0], done)

    def holds(self, *words: str) -> bool:
        """Whether `git WORDS` succeeds."""
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
        lines = self.describe_objects([f"{name}^{{commit}}" for name in distinct_names])
        for name, line in zip(distinct_names, lines, strict=True):
            oid, _, description = line.partition(" ")  # OID KIND SIZE, or NAME missing
            if description.startswith("commit "):
                commit_by_name[name] = oid
        return commit_by_name

    def blobs(self, names: Iterable[str], most: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each blob's id and content, one at a time; None if missing or larger than `most` bytes."""
        names = list(names)
        sizes = self._measure_blobs(names, most)
        readable_lines = [f"{name}\n" for name in names if name in sizes]
        # Git reads the names from a file: with a pipe, each side could wait for the other.
        with tempfile.TemporaryFile() as request:
            request.write(os.fsencode("".join(readable_lines)))
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
                    process.kill()  # the caller may not want the other blobs

    def _measure_blobs(self, names: Iterable[str], most: int) -> dict[str, int]:
        """Map each blob that's here, and has at most `most` bytes, to its size."""
        sizes = {}
        for line in self.describe_objects(list(dict.fromkeys(names))):
            name, _, description = line.partition(" ")  # NAME KIND SIZE, or NAME missing
            kind, _, size = description.partition(" ")
            if kind == "blob" and int(size) <= most:
                sizes[name] = int(size)
        return sizes

    def describe_objects(self, names: list[str]) -> Iterator[str]:
        """Yield a line for each object: `OID KIND SIZE`, or `NAME missing`; raises `GitError`."""
        remaining = names
        while remaining:
            request = os.fsencode("\n".join([*remaining, ""]))  # each name on a line of its own
            done = self._run(("cat-file", "--batch-check"), request)
            # The last line has an end, too, so nothing comes behind it.
            lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1]
            has_failed = done.returncode != 0
            if has_failed and _LACKING not in done.stderr:
                raise _build_error("cat-file", done)
            yield from lines
            if not has_failed:
                return
            # Some versions of git end at the first object that a partial clone lacks: go on behind it.
            answered_count = len(lines)
            if answered_count < len(remaining):
                yield f"{remaining[answered_count]} missing"
            remaining = remaining[answered_count + 1 :]

    def _run(
        self, words: Sequence[str], stdin: bytes = b"", seconds: float = SECONDS
    ) -> CompletedProcess[bytes]:
        """Run `git WORDS` to its end; raises `GitError` if it takes too long or prints too much."""
        with self._start_limited(words, stdin, seconds) as running:
            pieces: list[bytes] = []
            size = 0
            for piece in running.pieces():
                size += len(piece)
                if size > MAX_ANSWER:
                    raise GitError(f"git {words[0]}: more than {MAX_ANSWER // 1_000_000} MB")
                pieces.append(piece)
            done = running.wait()
        return CompletedProcess(words, done.returncode, b"".join(pieces), done.stderr)

    @contextmanager
    def _start_limited(
        self, words: Sequence[str], stdin: bytes, seconds: float
    ) -> Iterator[_RunningGit]:
        """Start `git WORDS`, and kill it after some seconds, or when the caller is done with it."""
        with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as stderr:
            request.write(stdin)
            request.seek(0)
            with self._start(words, request, stderr) as process:
                running = _RunningGit(process, words[0], stderr, seconds)
                try:
                    yield running
                finally:
                    running.end()

    def _start(
        self, words: Sequence[str], stdin: IO[bytes] | int, stderr: IO[bytes] | int
    ) -> Popen[bytes]:
        """Start `git WORDS` with settings under which it runs no program that a repository names.

        Raises `ValueError` for a command that isn't allowed, and `GitError` if there's no git.
        """
        command = words[0]
        argv = self._build_command(words)
        try:
            process = Popen(  # noqa: S603 - git, and our own words
                argv,
                cwd=self.folder,
                env=_build_environment(),
                stdin=stdin,
                stdout=PIPE,
                stderr=stderr,
            )
        except OSError as error:
            raise GitError(
                f"git {command}: could not be started ({error.strerror}); install git"
            ) from None
        _limit_memory(process.pid)
        return process

    def _build_command(self, words: Sequence[str]) -> list[str]:
        """Build the argument vector of `git WORDS`, with our settings; raises as `_start` does."""
        rules = _read_rules()
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
        return [*argv, *words]


def normalize_address(address: str, folder: str) -> str:
    """Reduce an address to `HOST/PATH` or a full path: the same for all addresses of a repository.

    User names and passwords are left out. A relative path is relative to `folder`.
    """
    match = _URL.fullmatch(address) or _SCP.fullmatch(address)
    if match is not None and match["host"]:  # `file:///path` has none
        path_on_host = match["path"].rstrip("/").removesuffix(".git")
        return f"{match['host'].lower()}/{path_on_host}"
    path = address if match is None else f"/{match['path']}"  # such as file:///path
    return os.path.realpath(os.path.join(folder, path)).removesuffix(".git")  # noqa: PTH118 - no file is meant


def _build_environment() -> dict[str, str]:
    """Build git's environment: of its own variables, only safe ones and those that name the repository."""
    rules = _read_rules()
    variables = {}
    for name, value in environment.environ().items():
        is_gits_own = name.startswith("GIT_")
        is_kept = name in rules["kept"] or name.startswith("GIT_CONFIG_")
        if is_kept or not is_gits_own:
            variables[name] = value
    search_path = programs.search_path(environment.environ())
    return {**variables, **rules["environment"], "PATH": search_path}


def _read_blob(stdout: IO[bytes], name: str, length: int) -> bytes:
    """Read the next blob that `cat-file --batch` prints: a line, the bytes and a newline.

    Raises `GitError` if that's not a blob of this length.
    """
    head = stdout.readline()
    content = stdout.read(length)
    newline = stdout.read(1)
    if not head.endswith(b" blob %d\n" % length) or newline != b"\n":
        raise GitError(f"git cat-file: {name} could not be read")
    return content


def _limit_memory(pid: int) -> None:
    """Limit the memory of a git: it holds all changes of a commit before it prints the first.

    Only Linux can do that to another process.
    """
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - Windows has none

    with suppress(OSError):  # the process has ended already
        resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))


class _RunningGit:
    """A running git and its output. After some seconds it's killed, so nothing waits for it longer."""

    def __init__(
        self, process: Popen[bytes], command: str, stderr: IO[bytes], seconds: float
    ) -> None:
        self._process = process
        self._command = command
        self._stderr = stderr
        self._seconds = seconds
        self._was_killed = False
        self._timer = threading.Timer(seconds, self._kill)
        self._timer.daemon = True  # it needn't run out before this process can end
        self._timer.start()

    def _kill(self) -> None:
        self._was_killed = True
        self._process.kill()

    def pieces(self) -> Iterator[bytes]:
        """Yield the output in pieces, until it ends."""
        stdout = self._process.stdout
        assert isinstance(stdout, io.BufferedReader)  # noqa: S101 - opened as a pipe
        while piece := stdout.read1(_PIECE):
            yield piece

    def wait(self) -> CompletedProcess[bytes]:
        """Wait for the exit code, and return it with the error output; raises `GitError` if git was killed.

        Call it after `pieces`: until its output is read, git may not end.
        """
        self._process.wait()
        if self._was_killed:
            raise GitError(f"git {self._command}: no response in {self._seconds:g} s")
        self._stderr.seek(0)
        complaint = self._stderr.read(_PIECE)
        return CompletedProcess(
            self._command, self._process.returncode, stdout=b"", stderr=complaint
        )

    def end(self) -> None:
        """Kill the process, unless it has ended."""
        self._timer.cancel()
        self._process.kill()


def _build_error(command: str, done: CompletedProcess[bytes]) -> GitError:
    """Build the error for a command that failed, with git's complaint or else its exit code."""
    if _LACKING in done.stderr:
        return GitError(f"git {command}: {PARTIAL}")
    complaint = short_line(done.stderr.decode("utf-8", "replace"), 300)
    reason = complaint or f"exit code {done.returncode}"
    return GitError(f"git {command}: {reason}")
