"""What became of the memories that the hook gave the agent (`judgekit hook --stats`).

All of it is read on this machine: the log, the clients' transcripts, the stores, and without a log what the
hook remembers of each session. docs/hook.md defines each figure.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.hooks import explain, repeats, settings
from judgekit.retrieval import quickjson, scan, search, terms, transcript
from judgekit.text import lines_of, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable

WORDS = 3  # distinctive terms of a memory that an answer must have
RARE = 50  # a term is distinctive that at most one memory in so many has; in a smaller store, one memory
_SEARCHES = ("judgekit search", "memory-search")
_TITLE = 60
_LISTED = 3
_TEXTS = environment.table(__file__, "stats.toml")


class _Words:
    """The distinctive terms of each memory in the project's stores, by the memory's file."""

    def __init__(self, configured: settings.Settings) -> None:
        self._languages = {}
        found: dict[str, set[str]] = {}
        base = os.path.realpath(configured.project).rstrip(os.sep) + os.sep
        for root in configured["roots"]:
            folder = os.path.realpath(search.resolve(root, configured.project))
            if os.path.isdir(folder) and search.may_be_searched(
                root, folder, base, configured.trusted
            ):
                profile, entries, _ = scan.entries(folder, configured.profiles)
                self._languages[profile.kind] = profile.language
                for place, entry in entries:
                    text = " ".join([entry.title, *entry.tags, entry.body])
                    found[os.path.join(folder, place)] = {*terms.stems(text, profile.language)}
        having = Counter(stem for stems in found.values() for stem in stems)
        most = max(1, len(found) // RARE)
        rare = {
            file: {stem for stem in stems if having[stem] <= most} for file, stems in found.items()
        }
        self.files = found.keys()
        self.can_come_back = {file for file, stems in rare.items() if len(stems) >= WORDS}
        self._owners = defaultdict[str, list[str]](list)
        for file in self.can_come_back:
            for stem in rare[file]:
                self._owners[stem].append(file)

    def back_in(self, exchange: transcript.Exchange) -> set[str]:
        """Return the files of the memories whose words are in an answer and not in its prompt."""
        new_words = self._stems("\n".join(exchange.answer)) - self._stems(exchange.prompt)
        counts = Counter[str]()
        for stem in new_words:
            counts.update(self._owners.get(stem, ()))
        return {file for file, count in counts.items() if count >= WORDS}

    def _stems(self, text: str) -> set[str]:
        stems = set[str]()
        for language in self._languages.values():
            stems.update(terms.stems(text, language))
        return stems


def report(folder: str, *, as_json: bool = False) -> str:
    """Return what became of the memories injected in the project around `folder`, as lines or as JSON."""
    project = environment.project_root(folder)
    configured, notes = settings.load(project)
    logged = explain.read_log(project)[::-1]
    if logged:
        figures = _logged(logged, configured)
    else:
        figures = _remembered(configured)
    if as_json:
        return quickjson.dumps({"project": project, "log": configured["log"], **figures})
    listed = []
    for memory in figures.get("memories", ())[:_LISTED]:
        listed.append(
            f"{short_line(memory['title'], _TITLE)} (injected {memory['injected']}, used {memory['used']})"
        )
    own = environment.SETTINGS.path()
    if configured["log"]:
        state = "on"
    else:
        state = f"off (to switch it on: retrieval: {{log: true}} in {own})"
    template = _TEXTS["logged" if logged else "remembered"]
    text = template.format(**figures, state=state, listed="; ".join(listed))
    return "\n".join([f"project: {project}", *(f"note: {note}" for note in notes), text])


def _logged(logged: list[dict[str, Any]], configured: settings.Settings) -> dict[str, Any]:
    """Return the figures of the log, joined with the transcripts of the sessions in it."""
    words = _Words(configured)
    base = os.path.realpath(configured.project)
    exchanges = transcript.of_sessions({str(line.get("session")) for line in logged})
    transcripts = len(exchanges)
    known = defaultdict[object, set[str]](set)
    count = Counter(dict.fromkeys(_TEXTS["counts"].split(), 0))
    titles: dict[str, str] = {}
    times = Counter[str]()
    used = Counter[str]()
    for line in logged:
        names = ("injected", "mentioned", "repeated", "pinned")
        injected, mentioned, repeated, pinned = (_entries(line, name, base) for name in names)
        times.update(injected.keys())
        titles |= {file: str(entry.get("title")) for file, entry in injected.items()}
        known[line.get("session")].update(injected, mentioned, repeated, pinned)
        count.update(
            prompts=1, injections=len(injected), injected_prompts=bool(injected), pinned=len(pinned)
        )
        count["repeats_avoided"] += sum(e.get("label", "high") == "high" for e in repeated.values())
        count["nudges"] += bool(mentioned)
        exchange = _take(exchanges.get(str(line.get("session")), []), line.get("prompt"))
        if exchange is None:
            continue
        count.update(
            answered_prompts=1, answered_injections=len(injected), answered_nudges=bool(mentioned)
        )
        count["nudges_followed"] += bool(
            mentioned and (_searches(exchange) or _opened(mentioned, exchange))
        )
        if injected:
            opened = _opened(injected, exchange)
            back = words.back_in(exchange)
            came_back = back & injected.keys()
            others = words.can_come_back - known[line.get("session")]
            count.update(opened=len(opened), came_back=len(came_back), used=len(opened | came_back))
            count.update(can_come_back=len(words.can_come_back & injected.keys()))
            count.update(others=len(others), others_came_back=len(back & others))
            used.update(opened | came_back)
    memories = []
    for file, n in times.most_common():
        memories.append({"title": titles[file], "injected": n, "used": used[file]})
    sessions = len({line["session"] for line in logged if line.get("session")})
    head = {
        "source": "log",
        "since": logged[0].get("at"),
        "sessions": sessions,
        "transcripts": transcripts,
    }
    return {**head, **count, "memories": memories}


def _remembered(configured: settings.Settings) -> dict[str, Any]:
    """Return the figures of what the hook remembers of sessions, joined with their transcripts."""
    count = Counter(prompts=0, injections=0, nudges=0, searches=0, answered_injections=0, opened=0)
    sessions = dict[str, list[str]]()
    for path in repeats.files_of(configured.project):
        with open(path, encoding="ascii", errors="replace", newline="\n") as file:
            sessions[os.path.basename(path)] = lines_of(file.read())[1:]
    found = transcript.of_sessions(sessions.keys())
    by_mark = {environment.digest(file): file for file in _Words(configured).files}
    for session, prompts in sessions.items():
        marks = []
        for line in prompts:
            for mark in line.split():
                if mark[0] == repeats.INJECTED:
                    marks.append(mark[1:])
        count.update(prompts=len(prompts), injections=len(marks))
        count["nudges"] += sum(repeats.MENTIONED in line for line in prompts)
        if session in found:
            files = {by_mark[mark] for mark in marks if mark in by_mark}
            opened = {file for exchange in found[session] for file in _opened(files, exchange)}
            count.update(searches=sum(map(_searches, found[session])))
            count.update(opened=len(opened), answered_injections=len(files))
    return {"source": "sessions", "sessions": len(sessions), "transcripts": len(found), **count}


def _take(exchanges: list[transcript.Exchange], prompt: object) -> transcript.Exchange | None:
    """Return the first exchange of a prompt whose beginning is given, and drop those up to it."""
    for place, exchange in enumerate(exchanges):
        if short_line(exchange.prompt, explain.PROMPT_CHARS) == prompt:
            del exchanges[: place + 1]
            return exchange
    return None


def _entries(line: dict[str, Any], name: str, base: str) -> dict[str, dict[str, Any]]:
    """Return the memories in a part of a line of the log, by their files."""
    part = line.get(name)
    if isinstance(part, list):
        entries = [entry for entry in part if isinstance(entry, dict)]
    else:
        entries = []
    return {os.path.join(base, str(entry.get("path"))): entry for entry in entries}


def _opened(files: Iterable[str], exchange: transcript.Exchange) -> set[str]:
    """Return those of `files` whose folder and name are in a tool call."""
    calls = "\n".join(exchange.calls).replace("\\\\", "/")
    return {file for file in files if "/".join(file.replace("\\", "/").split("/")[-2:]) in calls}


def _searches(exchange: transcript.Exchange) -> int:
    """Return how many different tool calls search the memories; Gemini writes some calls twice."""
    return sum(any(name in call for name in _SEARCHES) for call in {*exchange.calls})
