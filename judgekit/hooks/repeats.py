"""Remembers a session's recent answers, so that no memory is injected or mentioned again too soon.

It comes back after `retrieval.repeat_after` prompts, when the prompt names it, and when the client has
compacted or cleared the conversation. A file per session holds a line per prompt, and only hashes: of the
project in the first line, then of the memories injected (`+`) and mentioned (`?`).
"""

from __future__ import annotations

import os

from judgekit import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.retrieval.confidence import Candidate, RankedCandidates

SESSIONS = 200  # that are remembered at least
_MORE = 50  # beyond these, until the oldest go all at once: it takes a look at each
_TAIL_BYTES = 64_000  # bytes of a session's end: far more than is looked back on
_NAME_CHARS = 300  # characters of a name to search for
INJECTED = "+"
MENTIONED = "?"


class HookSession:
    """The answers in a session's latest `prompts`."""

    def __init__(self, path: str, project: str, prompts: int) -> None:
        self._path = path
        self._project = environment.digest(project)
        self._prompts_ago = dict[str, int]()  # by the mark of a memory that was shown
        self.prompts = prompts
        self._is_new = False
        lines: list[str] = []
        try:
            lines = _read_latest_lines(path)
        except OSError:
            self._is_new = True
        latest_lines = lines[-prompts:] if prompts else []
        for ago, line in enumerate(reversed(latest_lines), start=1):
            for mark in line.split(" "):
                if mark not in self._prompts_ago:  # the latest time counts
                    self._prompts_ago[mark] = ago

    def ago(self, candidate: Candidate, how: str = INJECTED) -> int | None:
        """Count the prompts since a memory was injected (or mentioned, as `how` says).

        None if it wasn't among this session's latest answers.
        """
        return self._prompts_ago.get(_build_mark(candidate, how))

    def hold_back(self, ranked: RankedCandidates, prompt: str) -> None:
        """Move memories that were injected recently to `ranked.repeated`, unless the prompt names them."""
        text = prompt.casefold()
        new_candidates = []
        repeated_hits = []
        for hit in ranked.candidates:
            is_recent = self.ago(hit) is not None
            if is_recent and not is_named(hit, text):
                repeated_hits.append(hit)
            else:
                new_candidates.append(hit)
        ranked.repeated = repeated_hits
        ranked.candidates[:] = new_candidates

    def unmentioned(self, mentioned: Sequence[Candidate], prompt: str) -> list[Candidate]:
        """Leave out memories that were mentioned recently, unless the prompt names them."""
        text = prompt.casefold()
        remaining = []
        for hit in mentioned:
            is_recent = self.ago(hit, MENTIONED) is not None
            if not is_recent or is_named(hit, text):
                remaining.append(hit)
        return remaining

    def add(self, injected: Sequence[Candidate], mentioned: Sequence[Candidate]) -> None:
        """Record the memories that a prompt got; if that fails, the next prompt may get them again.

        The records of the oldest sessions are deleted once there are too many.
        """
        marks = [_build_mark(hit, INJECTED) for hit in injected]
        marks += [_build_mark(hit, MENTIONED) for hit in mentioned]
        text = " ".join(marks) + "\n"
        if self._is_new:
            text = f"{self._project}\n{text}"
        from judgekit import outputs  # noqa: PLC0415 - only needed to write

        try:
            outputs.append(self._path, text)
            if self._is_new and len(os.listdir(_folder())) > SESSIONS + _MORE:
                for path in _sort_newest_first(_folder())[SESSIONS:]:
                    os.unlink(path)
        except OSError:
            return


def _read_latest_lines(path: str) -> list[str]:
    """Read a session's latest lines, one for each prompt; raises `OSError` if it has no file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - _TAIL_BYTES, 0))
        text = file.read().decode("ascii", "replace")
    # The first line is the project's, or cut off; the last one is empty.
    return text.split("\n")[1:-1]


def path_of(session: str) -> str:
    """Return the path of a session's file, which is named by the digest of the session's id."""
    return os.path.join(_folder(), environment.digest(session))


def files_of(project: str) -> Iterator[str]:
    """Yield the paths of a project's session files, the one with the latest answer first."""
    project_line = environment.digest(project).encode() + b"\n"
    for path in _sort_newest_first(_folder()):
        with open(path, "rb") as file:
            if file.readline() == project_line:
                yield path


def forget(session: str) -> None:
    """Forget a session's answers: its client no longer has them."""
    path = path_of(session)
    if os.path.exists(path):
        os.unlink(path)


def is_named(candidate: Candidate, text: str) -> bool:
    """Whether a lower-case text contains a memory's id, path or title.

    The whole name must be there, with no letter or digit next to it.
    """
    for full_name in (candidate.id, candidate.path, candidate.place, candidate.title):
        name = full_name[:_NAME_CHARS].casefold().strip()
        # An id or title of letters alone (`jwt`) may be used as an ordinary word, so it names nothing.
        if name and not name.isalpha() and _has_words(text, name):
            return True
    return False


def _has_words(text: str, words: str) -> bool:
    """Whether a text contains `words`, with no letter or digit directly before or behind them."""
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        char_before = text[max(start - 1, 0) : start]
        char_behind = text[end : end + 1]
        if not char_before.isalnum() and not char_behind.isalnum():
            return True
        start = text.find(words, start + 1)
    return False


def _build_mark(candidate: Candidate, how: str) -> str:
    """Build the text that stands for a memory in a session's file: `+` or `?`, and the path's digest."""
    return how + environment.digest(candidate.file)


def _folder() -> str:
    return environment.SESSIONS.path()


def _sort_newest_first(folder: str) -> list[str]:
    """List the files in a folder, the last changed first; none if it's missing."""
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    files.append((entry.stat().st_mtime_ns, entry.path))
                except OSError:  # another process has removed it
                    continue
    except OSError:
        return []
    return [path for _, path in sorted(files, reverse=True)]
