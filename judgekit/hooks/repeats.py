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

MIN_SESSIONS = 200  # that are remembered at least
_EXTRA_SESSIONS = 50  # beyond these, until the oldest go all at once: it takes a look at each
_TAIL_BYTES = 64_000  # bytes of a session's end: far more than is looked back on
_NAME_CHARS = 300  # characters of a name to search for
INJECTED = "+"
MENTIONED = "?"


class HookSession:
    """The answers in a session's latest prompts, at most `prompt_count`."""

    def __init__(self, path: str, project: str, prompts: int) -> None:
        """Read which memories were shown with the session's last `prompts` prompts.

        `path` is the session's file.
        """
        self._path = path
        self._project = environment.digest(project)
        self.prompt_count = prompts
        self._is_new = False  # whether the session has no file yet

        lines: list[str] = []
        try:
            lines = _read_latest_lines(path)
        except OSError:
            self._is_new = True

        latest_lines = lines[-prompts:] if prompts else []  # because `lines[-0:]` has all lines
        self._prompts_ago = _count_prompts_ago(latest_lines)

    def count_prompts_since(self, candidate: Candidate, how: str = INJECTED) -> int | None:
        """Count the prompts since a memory was last shown in the way `how`: `INJECTED` or `MENTIONED`.

        Returns None if it wasn't shown recently.
        """
        return self._prompts_ago.get(_build_mark(candidate, how))

    def hold_back(self, ranked: RankedCandidates, prompt: str) -> None:
        """Move recently injected memories to `ranked.repeated`, unless the prompt names them."""
        text = prompt.casefold()
        new_candidates = []
        repeated_hits = []
        for hit in ranked.candidates:
            is_recent = self.count_prompts_since(hit) is not None
            if is_recent and not is_named(hit, text):
                repeated_hits.append(hit)
            else:
                new_candidates.append(hit)

        ranked.repeated = repeated_hits
        ranked.candidates[:] = new_candidates

    def drop_mentioned(self, mentioned: Sequence[Candidate], prompt: str) -> list[Candidate]:
        """Drop the memories that an earlier prompt has mentioned recently, unless this prompt names them.

        `mentioned` has the memories to be mentioned now.
        """
        text = prompt.casefold()
        remaining = []
        for candidate in mentioned:
            is_recent = self.count_prompts_since(candidate, MENTIONED) is not None
            if not is_recent or is_named(candidate, text):
                remaining.append(candidate)
        return remaining

    def add(self, injected: Sequence[Candidate], mentioned: Sequence[Candidate]) -> None:
        """Record the memories that were shown with a prompt.

        If that fails, the next prompt can get them again. Also deletes the records of old sessions.
        """
        from judgekit import outputs  # noqa: PLC0415 - only needed to write

        marks = [_build_mark(hit, INJECTED) for hit in injected]
        marks += [_build_mark(hit, MENTIONED) for hit in mentioned]
        text = " ".join(marks) + "\n"  # one line per prompt
        if self._is_new:  # a new file starts with a line that identifies the project
            text = f"{self._project}\n{text}"

        try:
            outputs.append(self._path, text)
            if self._is_new:
                _delete_oldest_sessions()
        except OSError:
            return


def _count_prompts_ago(lines: Sequence[str]) -> dict[str, int]:
    """Count how many prompts ago each memory was last shown, by its mark.

    A line contains the marks of the memories that were shown with a prompt.
    """
    prompts_ago: dict[str, int] = {}
    for ago, line in enumerate(reversed(lines), start=1):  # the latest prompt first
        for mark in line.split(" "):
            is_counted = mark in prompts_ago
            if not is_counted:
                prompts_ago[mark] = ago
    return prompts_ago


def _delete_oldest_sessions() -> None:
    """Once there are too many sessions, delete all but the newest `MIN_SESSIONS`."""
    folder = _get_sessions_folder()
    # Sorting takes a look at each file, so let some extra ones pile up first.
    has_too_many = len(os.listdir(folder)) > MIN_SESSIONS + _EXTRA_SESSIONS
    if has_too_many:
        for path in _sort_newest_first(folder)[MIN_SESSIONS:]:
            os.unlink(path)


def _read_latest_lines(path: str) -> list[str]:
    """Read a session's latest lines, one per prompt; raises `OSError` if there's no file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - _TAIL_BYTES, 0))
        text = file.read().decode("ascii", "replace")
    # Drop the first line, which is the project's or was cut off, and the empty last one.
    return text.split("\n")[1:-1]


def get_session_path(session: str) -> str:
    """Return the path of a session's file."""
    return os.path.join(_get_sessions_folder(), environment.digest(session))


def list_session_files(project: str) -> Iterator[str]:
    """Yield the paths of a project's session files, latest first."""
    project_line = environment.digest(project).encode() + b"\n"
    for path in _sort_newest_first(_get_sessions_folder()):
        with open(path, "rb") as file:
            if file.readline() == project_line:
                yield path


def forget(session: str) -> None:
    """Forget a session's answers, since its client no longer has them."""
    path = get_session_path(session)
    if os.path.exists(path):
        os.unlink(path)


def is_named(candidate: Candidate, text: str) -> bool:
    """Whether lower-case text contains a memory's id, path or title as separate words.

    Of a long one, only the first `_NAME_CHARS` characters have to be there.
    """
    for full_name in (candidate.id, candidate.path, candidate.relative_path, candidate.title):
        name = full_name[:_NAME_CHARS].casefold().strip()
        # A name of letters only (`testing`) can be an ordinary word in the prompt, so ignore it.
        if name and not name.isalpha() and _has_words(text, name):
            return True
    return False


def _has_words(text: str, words: str) -> bool:
    """Whether text contains `words` without a letter or digit directly before or after."""
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        char_before = text[max(start - 1, 0) : start]
        char_after = text[end : end + 1]
        if not char_before.isalnum() and not char_after.isalnum():
            return True
        start = text.find(words, start + 1)
    return False


def _build_mark(candidate: Candidate, how: str) -> str:
    """Return a memory's mark in a session's file: `+` or `?`, and a digest of its path."""
    return how + environment.digest(candidate.file)


def _get_sessions_folder() -> str:
    return environment.SESSIONS.path()


def _sort_newest_first(folder: str) -> list[str]:
    """List the files in a folder, latest first; [] if it doesn't exist."""
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    files.append((entry.stat().st_mtime_ns, entry.path))
                except OSError:  # another process has just deleted it
                    continue
    except OSError:
        return []

    return [path for _, path in sorted(files, reverse=True)]
