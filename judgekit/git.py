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
_OBJECT_MISSING = b"lazy fetching disabled"  # git's message about an object that it'd have to fetch
_CHUNK_SIZE = 1 << 16  # bytes
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

    def ask(self, *args: str, stdin: bytes = b"", seconds: float = SECONDS) -> bytes:
        """Run `git ARGS` and return its output. Raises `GitError` if it fails or takes too long."""
        done = self._run(args, stdin, seconds)
        if done.returncode:
            raise _build_error(args[0], done)
        return done.stdout

    def entries(self, commit: str, *paths: str, most: int = MAX_ENTRIES) -> Iterator[TreeEntry]:
        """Yield all files in a commit's tree, including duplicate names, in git's order.

        Raises `GitError` if there are more than `most`.
        """
        args = ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
        with self._start_limited(args, b"", SECONDS) as running:
            count = 0
            unfinished = b""  # a record that continues in the next chunk
            for chunk in running.read_chunks():
                *records, unfinished = (unfinished + chunk).split(b"\0")
                for record in records:  # MODE KIND OID TAB PATH
                    count += 1
                    if count > most:
                        raise GitError(f"git ls-tree: more than {most:,} files in {commit[:12]}")
                    mode_kind_and_oid, _, path = os.fsdecode(record).partition("\t")
                    mode, _, oid = mode_kind_and_oid.split(" ")
                    yield TreeEntry(mode, oid, path)

            done = running.wait()
        if done.returncode:
            raise _build_error(args[0], done)

    def holds(self, *args: str) -> bool:
        """Whether `git WORDS` succeeds."""
        return self._run(args).returncode == 0

    def commit(self, name: str) -> str | None:
        """Resolve an id, ref or tag to a commit id; None if there's no such commit."""
        done = self._run(("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"))
        if done.returncode == 0:
            return done.stdout.decode().strip() or None
        return None

    def commits(self, names: Iterable[str]) -> dict[str, str]:
        """Resolve ids, refs and tags to commit ids in a single git process, omitting unknown names."""
        distinct_names = list(dict.fromkeys(names))
        commit_by_name = {}
        lines = self.describe_objects([f"{name}^{{commit}}" for name in distinct_names])
        for name, line in zip(distinct_names, lines, strict=True):
            oid, _, description = line.partition(" ")  # either OID KIND SIZE, or NAME missing
            if description.startswith("commit "):
                commit_by_name[name] = oid
        return commit_by_name

    def blobs(self, names: Iterable[str], most: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each blob's id and content. The content is None if missing or larger than `most` bytes."""
        names = list(names)
        sizes = self._measure_blobs(names, most)
        name_lines = [f"{name}\n" for name in names if name in sizes]

        # Pass the names in a file. With a pipe, git and this process could wait for each other.
        with tempfile.TemporaryFile() as request:
            request.write(os.fsencode("".join(name_lines)))
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
                    process.kill()  # the caller may stop before the last blob

    def _measure_blobs(self, names: Iterable[str], most: int) -> dict[str, int]:
        """Return the sizes of those blobs that exist and have up to `most` bytes."""
        sizes = {}
        for line in self.describe_objects(list(dict.fromkeys(names))):
            name, _, description = line.partition(" ")  # either NAME KIND SIZE, or NAME missing
            kind, _, size = description.partition(" ")
            if kind == "blob" and int(size) <= most:
                sizes[name] = int(size)
        return sizes

    def describe_objects(self, names: list[str]) -> Iterator[str]:
        """Yield a line for each object, `OID KIND SIZE` or `NAME missing`. Raises `GitError`."""
        remaining = names
        while remaining:
            request = os.fsencode("\n".join([*remaining, ""]))
            done = self._run(("cat-file", "--batch-check"), request)
            lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
            lines.pop()  # empty, because the output ends with a newline
            has_failed = done.returncode != 0
            if has_failed and _OBJECT_MISSING not in done.stderr:
                raise _build_error("cat-file", done)
            yield from lines
            if not has_failed:
                return

            # Some versions of git stop at the first object missing from a partial clone, so run git again for
            # the objects after it.
            answered_count = len(lines)
            if answered_count < len(remaining):
                yield f"{remaining[answered_count]} missing"
            remaining = remaining[answered_count + 1 :]

    def _run(
        self, args: Sequence[str], stdin: bytes = b"", seconds: float = SECONDS
    ) -> CompletedProcess[bytes]:
        """Run `git ARGS` to its end. Raises `GitError` if it takes too long or prints too much."""
        with self._start_limited(args, stdin, seconds) as running:
            chunks: list[bytes] = []
            size = 0
            for chunk in running.read_chunks():
                size += len(chunk)
                if size > MAX_ANSWER:
                    raise GitError(f"git {args[0]}: more than {MAX_ANSWER // 1_000_000} MB")
                chunks.append(chunk)
            done = running.wait()
        return CompletedProcess(args, done.returncode, b"".join(chunks), done.stderr)

    @contextmanager
    def _start_limited(
        self, args: Sequence[str], stdin: bytes, seconds: float
    ) -> Iterator[_RunningGit]:
        """Start `git ARGS`, and kill it after `seconds` or when the context ends."""
        with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as stderr:
            request.write(stdin)
            request.seek(0)
            with self._start(args, request, stderr) as process:
                running = _RunningGit(process, args[0], stderr, seconds)
                try:
                    yield running
                finally:
                    running.end()

    def _start(
        self, args: Sequence[str], stdin: IO[bytes] | int, stderr: IO[bytes] | int
    ) -> Popen[bytes]:
        """Start `git ARGS` such that it runs no programs configured by a repository.

        Raises `ValueError` for a command that isn't allowed, and `GitError` if git can't be started.
        """
        command = args[0]
        argv = self._build_command(args)
        try:
            process = Popen(  # noqa: S603 - git, with our own arguments
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

    def _build_command(self, args: Sequence[str]) -> list[str]:
        """Build the command line for `git ARGS`, with settings that make it safe.

        Raises `ValueError` for a command that isn't allowed, and `GitError` if git isn't installed.
        """
        rules = _read_rules()
        command = args[0]
        if command not in rules["reading"]:
            raise ValueError(
                f"git {command} is not run: it may run programs that a repository names"
            )
        program = programs.find("git", environment.environ())
        if program is None:
            raise GitError(f"git {command}: no git on PATH; install git")

        argv = [program, "--no-pager"]
        for name, value in rules["settings"].items():
            # Don't override the hooks' path for a command that is meant to print it.
            if name != "core.hooksPath" or command not in rules["asking_for_hooks"]:
                argv += ["-c", f"{name}={value}"]
        if self.bare:
            argv.append("--git-dir=.")
        return [*argv, *args]


def normalize_address(address: str, folder: str) -> str:
    """Reduce a repository's address to `HOST/PATH` or an absolute path, without user name and password.

    All addresses of a repository on a host give the same result. A relative path is relative to `folder`.
    """
    match = _URL.fullmatch(address) or _SCP.fullmatch(address)
    if match is not None and match["host"]:
        path_on_host = match["path"].rstrip("/").removesuffix(".git")
        return f"{match['host'].lower()}/{path_on_host}"
    # `file:///path` matches without a host.
    path = address if match is None else f"/{match['path']}"
    return os.path.realpath(os.path.join(folder, path)).removesuffix(".git")  # noqa: PTH118 - no file is meant


def _build_environment() -> dict[str, str]:
    """Build git's environment, without those GIT_ variables that aren't safe."""
    rules = _read_rules()
    variables = {}
    for name, value in environment.environ().items():
        is_git_variable = name.startswith("GIT_")
        is_allowed = name in rules["kept"] or name.startswith("GIT_CONFIG_")
        if is_allowed or not is_git_variable:
            variables[name] = value
    search_path = programs.search_path(environment.environ())
    return {**variables, **rules["environment"], "PATH": search_path}


def _read_blob(stdout: IO[bytes], name: str, length: int) -> bytes:
    """Read the next blob from the output of `cat-file --batch`.

    Raises `GitError` if that isn't a blob of this length.
    """
    header = stdout.readline()
    content = stdout.read(length)
    newline = stdout.read(1)
    if not header.endswith(b" blob %d\n" % length) or newline != b"\n":
        raise GitError(f"git cat-file: {name} could not be read")
    return content


def _limit_memory(pid: int) -> None:
    """Limit a git process's memory, if the system can limit that of another process."""
    # For example, git loads all changes in a commit before it prints the first one.
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - Windows has none

    with suppress(OSError):  # the process may have ended
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
        self._timer.daemon = True  # don't keep this process alive for the timer
        self._timer.start()

    def _kill(self) -> None:
        self._was_killed = True
        self._process.kill()

    def read_chunks(self) -> Iterator[bytes]:
        """Yield the output in chunks as it's printed."""
        stdout = self._process.stdout
        assert isinstance(stdout, io.BufferedReader)  # noqa: S101 - opened as a pipe
        while chunk := stdout.read1(_CHUNK_SIZE):
            yield chunk

    def wait(self) -> CompletedProcess[bytes]:
        """Wait for git to exit, and return its exit code and error output.

        Call this after `read_chunks`, because git may not exit until its output has been read. Raises
        `GitError` if it took too long.
        """
        self._process.wait()
        if self._was_killed:
            raise GitError(f"git {self._command}: no response in {self._seconds:g} s")
        self._stderr.seek(0)
        error_output = self._stderr.read(_CHUNK_SIZE)
        return CompletedProcess(
            self._command, self._process.returncode, stdout=b"", stderr=error_output
        )

    def end(self) -> None:
        """Kill the process, unless it has ended."""
        self._timer.cancel()
        self._process.kill()


def _build_error(command: str, done: CompletedProcess[bytes]) -> GitError:
    """Build the error for a failed command, from its error output or exit code."""
    if _OBJECT_MISSING in done.stderr:
        return GitError(f"git {command}: {PARTIAL}")
    error_output = short_line(done.stderr.decode("utf-8", "replace"), 300)
    reason = error_output or f"exit code {done.returncode}"
    return GitError(f"git {command}: {reason}")
