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
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path

DEFAULT_GIT_SECONDS = 30.0
MAX_ANSWER_BYTES = 256_000_000  # bytes in one answer; a tree of a few kB can expand a thousandfold
MAX_ENTRIES = 3_000_000  # in one tree
MAX_MEMORY_BYTES = 2_000_000_000  # bytes for a git process, if the system can limit it
PARTIAL_CLONE_MESSAGE = (
    "this partial clone lacks a part of it; fetch all (git fetch --refetch --no-filter)"
)
_MISSING_OBJECT_MESSAGE = b"lazy fetching disabled"  # in git's message about a missing object
_CHUNK_SIZE = 1 << 16  # bytes
_URL_PATTERN = re.compile(
    r"(?:\w[\w+.-]*)://(?:[^@/]*@)?(?P<host>[^/:]*)(?::\d+)?/+(?P<path>.*)", re.DOTALL
)
_SCP_ADDRESS_PATTERN = re.compile(r"(?:[^@/:]*@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)", re.DOTALL)


@cache
def _read_rules() -> dict[str, Any]:
    """Read the commands that may be run, with their settings and variables."""
    return environment.read_toml(__file__, "git.toml")


class GitError(InputError):
    """A git command failed. The message has the command and git's error output."""


class TreeEntry(NamedTuple):
    """A file, link or submodule in a tree. Its `mode` distinguishes these."""

    mode: str
    oid: str
    path: str


class Repository(NamedTuple):
    """A git repository: `folder` is its working tree, a folder in that, or a bare repository.

    Git's own variables (`GIT_DIR`) count. A bare repository is only used if they name it, or if `is_bare`.
    """

    folder: Path
    is_bare: bool = False

    def ask(self, *args: str, stdin: bytes = b"", seconds: float = DEFAULT_GIT_SECONDS) -> bytes:
        """Run `git ARGS` and return its output. Raises `GitError` if it fails or takes too long."""
        done = self._run(args, stdin, seconds)
        if done.returncode:
            raise _build_error(args[0], done)
        return done.stdout

    def list_tree(self, commit: str, *paths: str, limit: int = MAX_ENTRIES) -> Iterator[TreeEntry]:
        """Yield the files in a commit's tree, in git's order, or only those at or below `paths`.

        A malformed tree can yield the same path twice. Raises `GitError` if there are more than `limit`
        files.
        """
        args = ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
        with self._start_limited(args, b"", DEFAULT_GIT_SECONDS) as running:
            records = _split_records(running.read_chunks())
            for count, record in enumerate(records, start=1):
                if count > limit:
                    raise GitError(f"git ls-tree: more than {limit:,} files in {commit[:12]}")
                yield _parse_tree_entry(record)
            done = running.wait()
        if done.returncode != 0:
            raise _build_error("ls-tree", done)

    def succeeds(self, *args: str) -> bool:
        """Whether `git ARGS` exits with code 0."""
        return self._run(args).returncode == 0

    def resolve_commit(self, name: str) -> str | None:
        """Resolve an id, ref or tag to a commit id. Returns None if there's no such commit."""
        answer = self._run(("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"))
        if answer.returncode != 0:
            return None
        commit = answer.stdout.decode().strip()
        return commit or None  # without output, there's no commit

    def resolve_commits(self, names: Iterable[str]) -> dict[str, str]:
        """Map ids, refs and tags to commit ids, omitting unknown names.

        This is faster than calling `resolve_commit` for each name.
        """
        distinct_names = list(dict.fromkeys(names))
        commit_by_name = {}
        lines = self.describe_objects([f"{name}^{{commit}}" for name in distinct_names])
        for name, line in zip(distinct_names, lines, strict=True):
            # The line is "OID commit SIZE", or "NAME missing".
            oid, _, kind_and_size = line.partition(" ")
            if kind_and_size.startswith("commit "):
                commit_by_name[name] = oid
        return commit_by_name

    def read_blobs(self, oids: Iterable[str], limit: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each blob's id and content.

        The content is None if the blob is missing or larger than `limit` bytes.
        """
        oids = list(oids)
        sizes = self._measure_blobs(oids, limit)  # without the missing and the larger blobs
        oid_lines = [f"{oid}\n" for oid in oids if oid in sizes]

        # Pass the ids in a file, because a pipe could cause a deadlock between git and this process.
        with tempfile.TemporaryFile() as request:
            request.write(os.fsencode("".join(oid_lines)))
            request.seek(0)
            with self._start(("cat-file", "--batch"), request, DEVNULL) as process:
                assert process.stdout is not None  # noqa: S101 - opened as a pipe
                try:
                    # git answers in the order of the ids.
                    for oid in oids:
                        content = None
                        if oid in sizes:
                            content = _read_blob(process.stdout, oid, sizes[oid])
                        yield oid, content
                finally:
                    process.kill()  # in case the caller stops before the last blob

    def _measure_blobs(self, oids: Iterable[str], limit: int) -> dict[str, int]:
        """Return the blobs' sizes by id, omitting missing blobs and those larger than `limit` bytes."""
        sizes = {}
        for line in self.describe_objects(list(dict.fromkeys(oids))):
            # The line is "OID KIND SIZE", or "OID missing".
            oid, _, kind_and_size = line.partition(" ")
            kind, _, size = kind_and_size.partition(" ")
            if kind == "blob" and int(size) <= limit:
                sizes[oid] = int(size)
        return sizes

    def describe_objects(self, names: list[str]) -> Iterator[str]:
        """Yield a line for each object: `OID KIND SIZE`, or `NAME missing`.

        Raises `GitError` if git fails.
        """
        remaining = names  # the objects without a line so far
        while remaining:
            request = "".join(f"{name}\n" for name in remaining)
            answer = self._run(("cat-file", "--batch-check"), os.fsencode(request))
            has_failed = answer.returncode != 0
            if has_failed and _MISSING_OBJECT_MESSAGE not in answer.stderr:
                raise _build_error("cat-file", answer)

            lines = answer.stdout.decode("utf-8", "surrogateescape").split("\n")
            lines.pop()  # empty, because the output ends with a newline
            yield from lines
            if not has_failed:
                return

            # In a partial clone, some versions of git stop at the first missing object, which is the one
            # after the last line. Report it as missing, and run git again for the objects after it.
            missing_index = len(lines)
            has_stopped_early = missing_index < len(remaining)
            if has_stopped_early:
                yield f"{remaining[missing_index]} missing"
            remaining = remaining[missing_index + 1 :]

    def _run(
        self, args: Sequence[str], stdin: bytes = b"", seconds: float = DEFAULT_GIT_SECONDS
    ) -> CompletedProcess[bytes]:
        """Run `git ARGS` until it exits. Raises `GitError` if it takes too long or prints too much."""
        with self._start_limited(args, stdin, seconds) as running:
            chunks: list[bytes] = []
            size = 0
            for chunk in running.read_chunks():
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raise GitError(f"git {args[0]}: more than {MAX_ANSWER_BYTES // 1_000_000} MB")
                chunks.append(chunk)
            done = running.wait()
        return CompletedProcess(args, done.returncode, b"".join(chunks), done.stderr)

    @contextmanager
    def _start_limited(
        self, args: Sequence[str], stdin: bytes, seconds: float
    ) -> Iterator[_RunningGit]:
        """Start `git ARGS`. It's killed after `seconds`, or at the latest when the block ends."""
        # With files instead of pipes, git and this process can't wait for each other.
        with tempfile.TemporaryFile() as stdin_file, tempfile.TemporaryFile() as stderr:
            stdin_file.write(stdin)
            stdin_file.seek(0)
            with self._start(args, stdin_file, stderr) as process:
                running = _RunningGit(process, args[0], stderr, seconds)
                try:
                    yield running
                finally:
                    running.end()

    def _start(
        self, args: Sequence[str], stdin: IO[bytes] | int, stderr: IO[bytes] | int
    ) -> Popen[bytes]:
        """Start `git ARGS` with limited memory. It can't run programs that the repository configures.

        Raises `ValueError` for a command that isn't allowed, and `GitError` if git can't be started.
        """
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
                f"git {args[0]}: could not be started ({error.strerror}); install git"
            ) from None

        _limit_memory(process.pid)
        return process

    def _build_command(self, args: Sequence[str]) -> list[str]:
        """Build the command line for `git ARGS`, with settings that keep git from running other programs.

        Raises `ValueError` for a command that isn't allowed, and `GitError` if git isn't installed.
        """
        rules = _read_rules()
        command = args[0]
        allowed_commands = rules["reading"]  # they only read the repository
        if command not in allowed_commands:
            raise ValueError(
                f"git {command} is not run: it may run programs that a repository names"
            )
        program = programs.find("git", environment.environ())
        if program is None:
            raise GitError(f"git {command}: no git on PATH; install git")

        # Override the settings with which a repository could make git run programs.
        overrides = dict(rules["settings"])
        if command in rules["asking_for_hooks"]:
            # The command can print the path of the repository's hooks, which an override would hide.
            overrides.pop("core.hooksPath", None)

        argv = [program, "--no-pager"]
        for name, value in overrides.items():
            argv += ["-c", f"{name}={value}"]
        if self.is_bare:
            argv.append("--git-dir=.")
        return [*argv, *args]


def _split_records(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the NUL-terminated records of an output. An incomplete last record is left out."""
    unfinished = b""  # a record that continues in the next chunk
    for chunk in chunks:
        parts = (unfinished + chunk).split(b"\0")
        unfinished = parts.pop()
        yield from parts


def _parse_tree_entry(record: bytes) -> TreeEntry:
    """Parse a record of `git ls-tree`: "MODE KIND OID<tab>PATH"."""
    mode_kind_oid, _, path = os.fsdecode(record).partition("\t")
    mode, _, oid = mode_kind_oid.split(" ")
    return TreeEntry(mode, oid, path)


def normalise_address(address: str, folder: str) -> str:
    """Reduce a repository's address to `HOST/PATH`, or to an absolute path if it's local.

    For example, `https://me:secret@Host.com/a/b.git` and `git@host.com:a/b` both give `host.com/a/b`. A
    relative path is relative to `folder`.
    """
    match = _URL_PATTERN.fullmatch(address) or _SCP_ADDRESS_PATTERN.fullmatch(address)
    if match is not None and match["host"]:
        path_on_host = match["path"].rstrip("/").removesuffix(".git")
        return f"{match['host'].lower()}/{path_on_host}"

    if match is not None:  # `file:///path`, which has no host
        path = f"/{match['path']}"
    else:
        path = address
    return os.path.realpath(os.path.join(folder, path)).removesuffix(".git")  # noqa: PTH118 - any text


def _build_environment() -> dict[str, str]:
    """Build git's environment without unsafe variables, such as `GIT_EXTERNAL_DIFF`."""
    rules = _read_rules()
    variables = {}
    for name, value in environment.environ().items():
        if _is_safe_variable(name, rules["kept"]):
            variables[name] = value
    search_path = programs.search_path(environment.environ())
    return {**variables, **rules["environment"], "PATH": search_path}


def _is_safe_variable(name: str, kept: Container[str]) -> bool:
    """Whether to pass an environment variable on to git. Of git's own variables, only a few are safe."""
    is_git_variable = name.startswith("GIT_")
    if not is_git_variable:
        return True
    # GIT_CONFIG_… contains the user's settings. They're safe, because ours override the dangerous ones.
    is_user_setting = name.startswith("GIT_CONFIG_")
    return name in kept or is_user_setting


def _read_blob(stdout: IO[bytes], oid: str, length: int) -> bytes:
    """Read the next blob from the output of `git cat-file --batch`. `oid` is for the error message.

    Raises `GitError` if the next object isn't a blob with `length` bytes.
    """
    header = stdout.readline()
    content = stdout.read(length)
    newline = stdout.read(1)
    if not header.endswith(b" blob %d\n" % length) or newline != b"\n":
        raise GitError(f"git cat-file: {oid} could not be read")
    return content


def _limit_memory(pid: int) -> None:
    """Limit a running git process's memory. Only Linux supports this.

    For example, git loads all of a commit's changes before it prints the first, which can take gigabytes.
    """
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - doesn't exist on Windows

    with suppress(OSError):  # the process may have ended already
        resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


class _RunningGit:
    """A running git process, which is killed after `seconds`."""

    def __init__(
        self, process: Popen[bytes], command: str, stderr: IO[bytes], seconds: float
    ) -> None:
        self._process = process
        self._command = command
        self._stderr = stderr
        self._seconds = seconds
        self._was_killed = False
        self._timer = threading.Timer(seconds, self._kill)
        self._timer.daemon = True  # so that this process can exit before the timer ends
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

        Call this after reading all of `read_chunks`, because git may not exit before. Raises `GitError` if
        git took too long and was killed.
        """
        self._process.wait()
        if self._was_killed:
            raise GitError(f"git {self._command}: no response in {self._seconds:g} s")
        self._stderr.seek(0)
        error_output = self._stderr.read(_CHUNK_SIZE)  # the beginning is enough for a message
        return CompletedProcess(
            self._command, self._process.returncode, stdout=b"", stderr=error_output
        )

    def end(self) -> None:
        """Kill the process, unless it has ended."""
        self._timer.cancel()
        self._process.kill()


def _build_error(command: str, done: CompletedProcess[bytes]) -> GitError:
    """Build an error from a failed command's error output. If there's none, use the exit code."""
    if _MISSING_OBJECT_MESSAGE in done.stderr:
        return GitError(f"git {command}: {PARTIAL_CLONE_MESSAGE}")
    error_output = shorten_to_line(done.stderr.decode("utf-8", "replace"), 300)
    reason = error_output or f"exit code {done.returncode}"
    return GitError(f"git {command}: {reason}")
