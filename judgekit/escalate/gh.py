"""GitHub's own command line program, asked without a shell, without prompts and within a time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import programs
from judgekit.errors import Exit, JudgekitError
from judgekit.escalate import issue
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NEWEST = 50  # issues that are looked through; older ones are searched for
_MOST = 16_000_000  # bytes of what gh may print; a thousand issues are a tenth of that
_POLL = 0.02
_SAID = 200  # characters of gh's own words
_NOT_SIGNED_IN = 4  # gh's exit code
_FIELDS = "number,url,state,body"
_KEPT = {
    *("PATH", "HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "TMPDIR", "TEMP", "LANG"),
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_HOST"),
    *("GH_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),  # where a keyring is that holds gh's token
}
_SET = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_NO_EXTENSION_UPDATE_NOTIFIER": "1",
    "GH_SPINNER_DISABLED": "1",
    "GH_PAGER": "cat",
    "NO_COLOR": "1",
}


class GhError(JudgekitError):
    """An issue could not be found, opened or updated; the text says why in one line, and what to do.

    Where it is `general` the next call would fail in the same way.
    """

    exit_code = Exit.HUMAN_NEEDED

    def __init__(self, problem: str, *, general: bool = False) -> None:
        super().__init__(problem)
        self.general = general


class Standing(NamedTuple):
    """An issue of ours as it stands on GitHub."""

    number: int
    url: str
    is_open: bool
    mark: issue.Mark


class Gh:
    """The issues of one repository, `HOST/OWNER/NAME`, until a moment of `time.monotonic`.

    Raises `GhError` when there is no gh.
    """

    def __init__(self, repository: str, until: float, environ: Mapping[str, str]) -> None:
        program = programs.find("gh", environ)
        if program is None:
            raise GhError("gh is not installed; see cli.github.com", general=True)
        self._program, self._repository, self._until = program, repository, until
        self._environ = {name: value for name, value in environ.items() if name in _KEPT} | _SET
        self._environ["PATH"] = programs.search_path(environ)
        self._newest: list[Standing] | None = None

    def find(self, token: str) -> Standing | None:
        """Return the issue of the task with this token, open or closed; of several the oldest.

        What GitHub's search finds may lag behind by minutes, so the newest issues are listed first.
        """
        if self._newest is None:
            self._newest = self._list("--limit", str(NEWEST))
        return _with(token, self._newest) or _with(token, self._list("--search", f'"{token}" in:body'))

    def create(self, wanted: issue.Issue, labels: Sequence[str] = ()) -> str:
        """Open an issue and return its address; where a label cannot be given it has none."""
        words = ["create", "--title", wanted.title, "--body-file", "-"]
        named = [f"--label={label}" for label in labels]
        try:
            said = self._ask(*words, *named, stdin=wanted.body)
        except GhError as error:
            if not named or error.general or "label" not in str(error):
                raise
            said = self._ask(*words, stdin=wanted.body)
        return one_line(said.strip().rpartition("\n")[2], _SAID)

    def update(self, standing: Standing, wanted: issue.Issue) -> None:
        """Give an issue a new title and body, and open it again where it was closed."""
        if not standing.is_open:
            self._ask("reopen", str(standing.number))
        self._ask(
            "edit", str(standing.number), "--title", wanted.title, "--body-file", "-", stdin=wanted.body
        )

    def _list(self, *words: str) -> list[Standing]:
        said = self._ask("list", "--state", "all", "--json", _FIELDS, *words)
        try:
            listed = json.loads(said)
        except (ValueError, RecursionError):
            raise GhError("gh issue list: no JSON came; update gh", general=True) from None
        return [found for each in listed if (found := _standing(each))] if isinstance(listed, list) else []

    def _ask(self, verb: str, *words: str, stdin: str = "") -> str:
        left = self._until - time.monotonic()
        if left <= 0:
            raise GhError("no time is left for gh", general=True)
        argv = [self._program, "issue", verb, *words, "--repo", self._repository]
        code, out, err = run(argv, self._environ, stdin.encode("utf-8", "replace"), left)
        if code:
            raise _failure(verb, code, err)
        return out.decode("utf-8", "replace")


def run(
    argv: Sequence[str], environ: Mapping[str, str], stdin: bytes, seconds: float
) -> tuple[int, bytes, bytes]:
    """Run a program in the home folder and return its exit code, output and errors.

    When it takes longer, or prints too much, it is killed, with all that it started. Raises `GhError`.
    """
    end = time.monotonic() + seconds
    # Files, not pipes: nothing that it leaves running can keep them open, and their size is known.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - gh, found on the user's PATH, and our own words
                argv,
                cwd=Path.home(),  # nothing of a clone is read
                env=dict(environ),
                stdin=given,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word
            raise GhError(f"gh could not be started ({error})", general=True) from None
        try:
            while process.poll() is None:
                _check(argv, end, out, err)
                time.sleep(_POLL)
            _check(argv, float("inf"), out, err)
        finally:
            _end(process)
        for file in (out, err):
            file.seek(0)
        return process.returncode, out.read(), err.read()


def _check(argv: Sequence[str], end: float, *printed: IO[bytes]) -> None:
    """Raise `GhError` when the time is over, or too much was printed."""
    if time.monotonic() > end:
        raise GhError(f"gh issue {argv[2]}: no answer in time", general=True)
    if any(os.fstat(file.fileno()).st_size > _MOST for file in printed):
        raise GhError(f"gh issue {argv[2]}: printed more than {_MOST:,} bytes", general=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _failure(verb: str, code: int, err: bytes) -> GhError:
    if code == _NOT_SIGNED_IN:
        return GhError("gh is not signed in; run gh auth login", general=True)
    said = one_line(err.decode("utf-8", "replace"), _SAID) or f"exit code {code}"
    general = re.search(
        r"rate limit|(Post|Get) .?http|HTTP 40[13]|HTTP 5\d\d|connect|disabled issues|resolve",
        said,
        re.IGNORECASE,
    )
    return GhError(f"gh issue {verb}: {said}", general=general is not None)


def _with(token: str, listed: Sequence[Standing]) -> Standing | None:
    return min((each for each in listed if each.mark.token == token), default=None)


def _standing(listed: Any) -> Standing | None:  # noqa: ANN401 - whatever JSON came
    if not isinstance(listed, dict):
        return None
    number, mark = listed.get("number"), issue.mark(str(listed.get("body") or ""))
    if not isinstance(number, int) or mark is None:
        return None
    url = one_line(str(listed.get("url") or f"#{number}"), _SAID)
    return Standing(number, url, str(listed.get("state")).upper() == "OPEN", mark)
