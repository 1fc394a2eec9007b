"""Measures the use of the memories that the hook gave the agent (`judgekit hook --stats`).

Everything is read on this machine: the log, the clients' transcripts, the stores, and without a log the
hook's records of each session. docs/hook.md defines each figure.
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

    from judgekit.retrieval.compiled import Language

MIN_WORDS = 3  # distinctive terms of a memory that an answer must have
# A distinctive term occurs in at most one memory in this many; in a smaller store, in one memory
RARE = 50
_SEARCHES = ("judgekit search", "memory-search")
_MAX_TITLE_CHARS = 60
_MIN_JUDGED_PROMPTS = 5  # prompts after which a judge that drops everything isn't chance any more
_MAX_LISTED = 3
_TEXTS = environment.read_toml(__file__, "stats.toml")


class _DistinctiveTerms:
    """The distinctive terms of each memory in the project's stores, by the memory's file."""

    def __init__(self, configured: settings.Settings) -> None:
        """Find the distinctive word stems: those that only few memories contain."""
        self._languages: dict[str, Language] = {}
        stems_by_file = self._read_stems(configured)
        memories_by_stem = Counter[str]()
        for stems in stems_by_file.values():
            memories_by_stem.update(stems)

        # A stem is distinctive if at most this many memories contain it.
        most_memories = max(1, len(stems_by_file) // RARE)

        self.files = stems_by_file.keys()
        # Only memories with enough distinctive stems can be recognised in an answer.
        self.recognisable_files: set[str] = set()
        self._files_by_stem = defaultdict[str, list[str]](list)
        for file, stems in stems_by_file.items():
            rare_stems = [stem for stem in stems if memories_by_stem[stem] <= most_memories]
            if len(rare_stems) >= MIN_WORDS:
                self.recognisable_files.add(file)
                for stem in rare_stems:
                    self._files_by_stem[stem].append(file)

    def _read_stems(self, configured: settings.Settings) -> dict[str, set[str]]:
        """Return each memory's word stems, by file. Also fills `_languages`, by kind of store."""
        stems_by_file = {}
        project_prefix = os.path.realpath(configured.project).rstrip(os.sep) + os.sep
        for root in configured["roots"]:
            folder = os.path.realpath(search.resolve_root(root, configured.project))
            is_searched = search.may_be_searched(root, folder, project_prefix, configured.trusted)
            if not is_searched or not os.path.isdir(folder):
                continue

            # The profile of a store's kind contains its language, which decides how words are stemmed.
            profile, entries, _ = scan.read_entries(folder, configured.profiles)
            self._languages[profile.kind] = profile.language
            for place, entry in entries:
                text = " ".join([entry.title, *entry.tags, entry.body])
                file = os.path.join(folder, place)
                stems_by_file[file] = set(terms.stem_text(text, profile.language))

        return stems_by_file

    def find_in_answer(self, exchange: transcript.Exchange) -> set[str]:
        """Return the memories' files whose distinctive words are in the answer but not in the prompt."""
        new_words = self._stem_in_all_languages(
            "\n".join(exchange.answer)
        ) - self._stem_in_all_languages(exchange.prompt)
        counts = Counter[str]()
        for stem in new_words:
            counts.update(self._files_by_stem.get(stem, ()))
        return {file for file, count in counts.items() if count >= MIN_WORDS}

    def _stem_in_all_languages(self, text: str) -> set[str]:
        """Return the stems of text in each of the stores' languages."""
        stems = set[str]()
        for language in self._languages.values():
            stems.update(terms.stem_text(text, language))
        return stems


def report_use(folder: str, *, as_json: bool = False) -> str:
    """Report how often agents used injected memories in the project around `folder`, as text or JSON.

    Without a log, the figures come from the hook's session records, and contain less.
    """
    project = environment.project_root(folder)
    configured, notes = settings.load(project)
    logged = explain.read_log(project)[::-1]  # oldest first, like the transcripts
    if logged:
        figures = _count_logged(logged, configured)
    else:
        figures = _count_remembered(configured)

    if as_json:
        return quickjson.dumps({"project": project, "log": configured["log"], **figures})

    descriptions = []
    for memory in figures.get("memories", ())[:_MAX_LISTED]:
        title = short_line(memory["title"], _MAX_TITLE_CHARS)
        descriptions.append(f"{title} (injected {memory['injected']}, used {memory['used']})")

    # Fill the template for the source of the figures.
    if configured["log"]:
        log_state = "on"
    else:
        path = environment.SETTINGS.path()
        log_state = f"off (to switch it on: retrieval: {{log: true}} in {path})"

    template = _TEXTS["logged" if logged else "remembered"]
    text = template.format(**figures, state=log_state, listed="; ".join(descriptions))
    has_enough_prompts = figures.get("judged_prompts", 0) >= _MIN_JUDGED_PROMPTS
    if has_enough_prompts and figures["judged"] == figures["dropped"]:
        text += _TEXTS["drops_all"].format(**figures)

    note_lines = [f"note: {note}" for note in notes]
    return "\n".join([f"project: {project}", *note_lines, text])


def _count_logged(logged: list[dict[str, Any]], configured: settings.Settings) -> dict[str, Any]:
    """Compute figures from the log and the transcripts of its sessions."""
    words = _DistinctiveTerms(configured)
    project_folder = os.path.realpath(configured.project)
    exchanges = transcript.read_sessions({str(line.get("session")) for line in logged})
    transcripts = len(exchanges)
    seen_in_session = defaultdict[object, set[str]](set)
    counts = Counter(dict.fromkeys(_TEXTS["counts"].split(), 0))
    titles: dict[str, str] = {}
    times_injected = Counter[str]()
    times_used = Counter[str]()

    for line in logged:
        session = line.get("session")
        injected = _map_entries(line, "injected", project_folder)
        mentioned = _map_entries(line, "mentioned", project_folder)
        repeated = _map_entries(line, "repeated", project_folder)
        pinned = _map_entries(line, "pinned", project_folder)
        times_injected.update(injected.keys())
        for file, entry in injected.items():
            titles[file] = str(entry.get("title"))
        seen_in_session[session].update(injected, mentioned, repeated, pinned)

        # Count what the hook added.
        counts["prompts"] += 1
        counts["injections"] += len(injected)
        counts["pinned"] += len(pinned)
        counts["repeats_avoided"] += _count_avoided(repeated)
        _count_cost(counts, line)
        if injected:
            counts["injected_prompts"] += 1
        if mentioned:
            counts["nudges"] += 1

        # Without a transcript of the answer, it isn't known whether the memories were used.
        exchange = _take_exchange(exchanges.get(str(session), []), line.get("prompt"))
        if exchange is None:
            continue

        counts["answered_prompts"] += 1
        if mentioned:
            counts["answered_nudges"] += 1
            if _count_searches(exchange) or _find_opened(mentioned, exchange):
                counts["nudges_followed"] += 1

        if injected:
            counts["answered_injections"] += len(injected)
            # The agent didn't get these, so they show how often such words appear by chance.
            others = words.recognisable_files - seen_in_session[session]
            used = _count_use(counts, set(injected), others, exchange, words)
            times_used.update(used)

    # List the memories, most frequently injected first.
    memories = []
    for file, times in times_injected.most_common():
        memories.append({"title": titles[file], "injected": times, "used": times_used[file]})
    sessions = {line["session"] for line in logged if line.get("session")}
    return {
        "source": "log",
        "since": logged[0].get("at"),
        "sessions": len(sessions),
        "transcripts": transcripts,
        **counts,
        "characters_each": _round_mean(counts["characters"], counts["measured_prompts"]),
        "ms_each": _round_mean(counts["milliseconds"], counts["measured_prompts"]),
        "memories": memories,
    }


def _count_avoided(repeated: dict[str, dict[str, Any]]) -> int:
    """Count the held-back memories that would have been injected again."""
    labels = [entry.get("label", "high") for entry in repeated.values()]  # older log lines lack it
    return labels.count("high")


def _round_mean(total: int, count: int) -> int:
    """Return the rounded mean for a sum of `count` numbers; 0 if there are none."""
    return round(total / count) if count else 0


def _count_cost(counts: Counter[str], line: dict[str, Any]) -> None:
    """Add a log line's characters, time, and numbers of judged and dropped memories to `counts`.

    Older log lines lack these.
    """
    characters = line.get("characters")
    milliseconds = line.get("ms")
    if isinstance(characters, int) and isinstance(milliseconds, int):
        counts["measured_prompts"] += 1
        counts["characters"] += characters
        counts["milliseconds"] += milliseconds

    judged = line.get("judged")
    dropped = line.get("dropped")
    if isinstance(judged, int) and isinstance(dropped, int) and judged > 0:
        counts["judged_prompts"] += 1
        counts["judged"] += judged
        counts["dropped"] += dropped
        if dropped == judged:
            counts["all_dropped"] += 1


def _count_use(
    counts: Counter[str],
    injected: set[str],
    others: set[str],
    exchange: transcript.Exchange,
    words: _DistinctiveTerms,
) -> set[str]:
    """Count which injected memories an agent's answer used. Adds to `counts`, and returns the used files.

    A memory counts as used if its file was opened, or if its distinctive words appear in the answer. `others`
    are files that weren't injected. They show how often words appear by chance.
    """
    opened = _find_opened(injected, exchange)
    in_answer = words.find_in_answer(exchange)
    used = opened | (in_answer & injected)
    counts["opened"] += len(opened)
    counts["came_back"] += len(in_answer & injected)
    counts["used"] += len(used)
    counts["can_come_back"] += len(words.recognisable_files & injected)
    counts["others"] += len(others)
    counts["others_came_back"] += len(in_answer & others)
    return used


def _count_remembered(configured: settings.Settings) -> dict[str, Any]:
    """Compute figures on the use of memories without a log.

    They come from the hook's session records, and from the transcripts that the client keeps of the sessions.
    """
    counts = Counter(prompts=0, injections=0, nudges=0, searches=0, answered_injections=0, opened=0)
    lines_by_session = _read_sessions(configured.project)
    exchanges = transcript.read_sessions(lines_by_session.keys())

    # The records contain digests of the memories' files.
    file_by_digest = {
        environment.digest(file): file for file in _DistinctiveTerms(configured).files
    }

    for session, lines in lines_by_session.items():
        # Collect the injected memories. A mark is a character, which says how the memory was shown, and the
        # digest of its file.
        digests = []
        for line in lines:
            for mark in line.split():
                if mark[0] == repeats.INJECTED:
                    digests.append(mark[1:])

        counts["prompts"] += len(lines)
        counts["injections"] += len(digests)
        counts["nudges"] += sum(repeats.MENTIONED in line for line in lines)
        if session not in exchanges:  # the session has no transcript
            continue

        # Count the injected memories that the agent opened. Deleted memories are ignored.
        files = {file_by_digest[digest] for digest in digests if digest in file_by_digest}
        opened_files: set[str] = set()
        for exchange in exchanges[session]:
            opened_files |= _find_opened(files, exchange)
            counts["searches"] += _count_searches(exchange)
        counts["opened"] += len(opened_files)
        counts["answered_injections"] += len(files)

    return {
        "source": "sessions",
        "sessions": len(lines_by_session),
        "transcripts": len(exchanges),
        **counts,
    }


def _read_sessions(project: str) -> dict[str, list[str]]:
    """Read the hook's records for a project: lists of lines, one per prompt, by session."""
    lines_by_session = {}
    for path in repeats.list_session_files(project):
        with open(path, encoding="ascii", errors="replace", newline="\n") as file:
            lines = lines_of(file.read())[1:]  # the first line only names the project
        lines_by_session[os.path.basename(path)] = lines
    return lines_by_session


def _take_exchange(
    exchanges: list[transcript.Exchange], prompt: object
) -> transcript.Exchange | None:
    """Find the first exchange with a prompt, given shortened as in the log. None if it's missing.

    Removes the exchange and all earlier ones from the list.
    """
    for number, exchange in enumerate(exchanges, start=1):
        if short_line(exchange.prompt, explain.PROMPT_CHARS) == prompt:
            del exchanges[:number]
            return exchange
    return None


def _map_entries(line: dict[str, Any], name: str, project_folder: str) -> dict[str, dict[str, Any]]:
    """Return a log line's entries under the key `name`, by the memory's file."""
    value = line.get(name)
    if not isinstance(value, list):
        return {}
    entry_by_file = {}
    for entry in value:
        if isinstance(entry, dict):
            file = os.path.join(project_folder, str(entry.get("path")))
            entry_by_file[file] = entry
    return entry_by_file


def _find_opened(files: Iterable[str], exchange: transcript.Exchange) -> set[str]:
    """Return the files whose `FOLDER/NAME` appears in a tool call, which has probably opened them."""
    calls = "\n".join(exchange.calls).replace("\\\\", "/")  # JSON escapes backslashes
    named_files = set()
    for file in files:
        parts = file.replace("\\", "/").split("/")
        folder_and_name = "/".join(parts[-2:])
        if folder_and_name in calls:
            named_files.add(file)
    return named_files


def _count_searches(exchange: transcript.Exchange) -> int:
    """Count the tool calls that search memories."""
    count = 0
    for call in set(exchange.calls):  # Gemini records some calls twice
        if any(name in call for name in _SEARCHES):
            count += 1
    return count
