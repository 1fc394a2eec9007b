"""Explains the hook's answer to a prompt (`judgekit hook --explain PROMPT`), and keeps a log of answers.

The explanation is for a person who doesn't know how the hook works. The log is off unless the user's own
configuration says `retrieval: {log: true}`. It has one JSON line for each prompt, with its beginning and the
titles of memories. It stays on this machine, only its owner can read it, and its size is limited.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.hooks import context, repeats, settings
from judgekit.retrieval import parts, quickjson, search, terms
from judgekit.retrieval.confidence import COMMAND, SEVERAL_TERMS
from judgekit.retrieval.index_file import describe_empty
from judgekit.text import counted, lines_of, short_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates
    from judgekit.retrieval.parts import Part

PROMPT_CHARS = 200
MAX_LOG_BYTES = 1_000_000  # of the log; then it becomes the older half, replacing the previous one
_MAX_LOGGED_LINES = 3  # lines about a prompt that are shown
_ACTIONS = {repeats.INJECTED: "injected", repeats.MENTIONED: "mentioned"}
_NOUNS = ("memory", "memories")
_MAX_TITLE_CHARS = 70
_MAX_PART_CHARS = 90
_MAX_ALIKE = 3  # similar memories to name
_EVIDENCE_INDENT = " " * 11  # lines up with the title in the line above
_MAX_LOGGED_TITLE_CHARS = 100  # characters
_REPEATED = (
    "{} in the latest session, prompts ago: {}; it comes back after {} (retrieval.repeat_after),"
    " when a prompt names it, or when the conversation was compacted"
)
_NO_WORDS = "none that are searched; words like *the* and *how* are not"
_COMMAND = "retrieval.command finds the candidates; the stores serve for pins, and where it fails"
_JUDGE = "on: in the hook, a model decides about these; without its answer, the result is"


def explain_prompt(prompt: str, folder: str, *, silent: bool = False) -> str:
    """Report what the hook would do with a prompt in `folder`, for a person.

    The report lists the stores, the prompt's words, and each matching memory with its outcome. `silent` means
    that the hook ignores this prompt.
    """
    project = environment.project_root(folder)
    configured, notes = settings.load(project)
    lines = [f"project: {project}", *(f"note: {note}" for note in notes)]

    # Without a search, there's only a reason to report.
    if not configured["enabled"]:
        return "\n".join([*lines, settings.describe_off(project)])
    if silent:
        reason = "the prompt is too short or a notification: the hook adds nothing"
        return "\n".join([*lines, reason])

    ranked = context.find_candidates(prompt, configured)
    lines += [f"note: {note}" for note in context.suggest_pins(ranked.notes, ranked, configured)]
    lines += [f"note: {describe_empty(root)}" for root in ranked.empty_roots]
    lines += _describe_stores(configured)
    lines += [f"note: {line}" for line in _list_judge_warning(project)]

    # List the searched words, each once. A long prompt is cut into parts.
    prompt_parts = _cut_into_parts(prompt, configured)
    words: dict[str, None] = {}  # like a set, but ordered
    for part in prompt_parts:
        for term in part.terms:
            words[term.text] = None

    listed_words = ", ".join(words) if words else _NO_WORDS
    lines.append(f"words: {listed_words}")
    has_several_parts = len(prompt_parts) > 1
    if has_several_parts:
        lines.append(f"parts: {len(prompt_parts)}; each is searched by itself")
    if configured["judge"] == "on":
        lines.append(f"judge: {_JUDGE}")

    lines.append("")
    lines += _explain_candidates(prompt, ranked, configured, has_several_parts=has_several_parts)
    return "\n".join([*lines, "", *_describe_log(prompt, configured)])


def _explain_candidates(
    prompt: str, ranked: RankedCandidates, configured: Settings, *, has_several_parts: bool
) -> list[str]:
    """Describe each candidate's outcome and the reason for it. The first line is a summary.

    Memories that a session was shown recently are held back. To find these, the prompt is treated as the next
    one in the project's latest session.
    """
    session = _find_latest_session(configured)
    if session is not None:
        session.hold_back(ranked, prompt)  # moves repeats from `candidates` to `repeated`

    # `shown` is the pair of injected and mentioned memories.
    shown = context.choose_without_judge(ranked, configured)
    without_repeats = context.drop_repeats(shown, session, prompt)
    _, mentioned = shown
    _, still_mentioned = without_repeats
    first_mentioned = mentioned[: context.MAX_MENTIONED]
    repeated_mentions = [hit for hit in first_mentioned if hit not in still_mentioned]

    # Describe each candidate.
    project = configured.project
    lines = [_sum_up(ranked, without_repeats)]
    for candidate in (*ranked.pinned, *ranked.repeated, *ranked.candidates):
        if candidate in ranked.pinned:
            outcome = "injected"
            reason = "pinned: injected with every prompt"
        elif session is not None and candidate in ranked.repeated:
            outcome = "held back"
            reason = _describe_repeat(candidate, repeats.INJECTED, session)
        elif session is not None and candidate in repeated_mentions:
            outcome = "held back"
            reason = _describe_repeat(candidate, repeats.MENTIONED, session)
        else:
            outcome, reason = _describe_outcome(candidate, without_repeats, configured)

        title = short_line(candidate.title, _MAX_TITLE_CHARS)
        place = _name_place(candidate, project)
        lines += [f"{outcome:<10} {title} -> {place}", f"           {reason}"]
        lines += _describe_evidence(candidate, project, has_several_parts=has_several_parts)

    return lines


def _sum_up(ranked: RankedCandidates, shown: context.Shown) -> str:
    """Summarise what the hook adds to the prompt, such as "added: 2 memories", or why it adds nothing."""
    injected, mentioned = shown
    injected_count = len(ranked.pinned) + len(injected)

    if injected_count and mentioned:
        return f"added: {counted(injected_count, *_NOUNS)}, and a mention of {len(mentioned)} more"
    if injected_count:
        return f"added: {counted(injected_count, *_NOUNS)}"
    if mentioned:
        return f"added: a mention of {counted(len(mentioned), *_NOUNS)}; none is sure enough to be injected"
    if ranked.candidates:
        return "nothing is added: no memory is sure enough to be about this prompt"
    if ranked.repeated:
        return "nothing is added: the session has the memories that match"
    return "nothing is added: no memory matches"


def _describe_stores(configured: Settings) -> list[str]:
    """Describe the user's search program, if one is configured, and each store, in a line each."""
    lines = []
    if configured["command"]:
        lines.append(f"command: {' '.join(configured['command'])} ({_COMMAND})")
    for root in configured["roots"]:
        path = search.resolve_root(root, configured.project)
        missing_note = "" if os.path.isdir(path) else " (missing: nothing to search)"
        lines.append(f"store: {path}{missing_note}")
    return lines


def _cut_into_parts(prompt: str, configured: Settings) -> list[Part]:
    """Split a prompt into parts, once for each main language among the kinds of stores."""
    text = terms.shorten_prompt(prompt)
    all_languages = {}  # by the main language of a store
    for profile in configured.profiles.by_kind.values():
        all_languages[profile.language] = profile.languages
    prompt_parts = []

    for main_language, languages in all_languages.items():
        other_languages = languages.beside(main_language.name)
        chosen_languages = terms.choose_languages(text, [main_language], other_languages)
        prompt_parts += parts.parse(prompt, *chosen_languages)
    return prompt_parts


def _find_latest_session(configured: Settings) -> repeats.HookSession | None:
    """Find the project's latest session. None without one, or if settings never hold repeats back."""
    prompts = configured["repeat_after"]
    if configured["inject"] == "top_k" or not prompts:
        return None
    path = next(repeats.list_session_files(configured.project), None)
    if path is None:
        return None
    return repeats.HookSession(path, configured.project, prompts)


def _describe_repeat(candidate: Candidate, how: str, session: repeats.HookSession) -> str:
    """Describe how many prompts ago a memory was injected or mentioned, and when it comes back."""
    ago = session.count_prompts_since(candidate, how)
    return _REPEATED.format(_ACTIONS[how], ago, session.prompts)


def _list_judge_warning(project: str) -> list[str]:
    """Return a warning if the project wants a judge that the user hasn't allowed.

    The list contains one warning, or none.
    """
    from judgekit import programs  # noqa: PLC0415 - imported lazily to keep the hook fast

    programs.make_importable()
    try:
        from pathlib import Path  # noqa: PLC0415 - loaded only for people

        from judgekit.config.settings import describe_judge_without_effect  # noqa: PLC0415 - pydantic
        from judgekit.errors import ConfigError  # noqa: PLC0415 - loaded only for people
    except ImportError:  # only the plugin is installed, without the packages that are needed here
        return []

    try:
        warning = describe_judge_without_effect(Path(project))
    except ConfigError:  # the caller already reported problems in the configuration
        return []
    return [warning] if warning else []


def _describe_log(prompt: str, configured: Settings) -> list[str]:
    """Describe how the hook has answered this prompt before, from the latest lines of the log."""
    if not configured["log"]:
        return [
            "log: off (set retrieval.log: true in your own configuration to log each injection)"
        ]

    lines = [f"log: {get_log_path()}"]

    beginning = short_line(prompt, PROMPT_CHARS)  # the log contains shortened prompts
    logged = [line for line in read_log(configured.project) if line.get("prompt") == beginning]
    for line in logged[:_MAX_LOGGED_LINES]:
        injected = _list_titles(line, "pinned", "injected")
        mentioned = _list_titles(line, "mentioned")
        repeated = _list_titles(line, "repeated")
        lines.append(
            f"{line.get('at')}: injected {injected}; mentioned {mentioned}; held back {repeated}"
        )

    if not logged:
        lines.append("this prompt is not in the log")
    return lines


def _list_titles(line: dict[str, Any], *keys: str) -> str:
    """Join the titles of a log line's memories under these keys; "nothing" without any."""
    titles = []
    for key in keys:
        for entry in line.get(key, ()):
            titles.append(str(entry.get("title")))
    return ", ".join(titles) if titles else "nothing"


def _describe_outcome(
    candidate: Candidate, shown: context.Shown, configured: Settings
) -> tuple[str, str]:
    """Name a candidate's outcome in a word or two, and explain it."""
    injected, mentioned = shown
    if candidate in injected:
        outcome = "injected"
    elif candidate in mentioned:
        outcome = "mentioned"
    else:
        outcome = "left out"
    return outcome, _explain_outcome(candidate, outcome, configured)


def _explain_outcome(candidate: Candidate, outcome: str, configured: Settings) -> str:
    """Explain an `outcome`: why a candidate is injected, mentioned or omitted."""
    obstacle = _explain_never_injected(candidate)
    if obstacle:
        return obstacle

    is_injected = outcome == "injected"
    is_mentioned = outcome == "mentioned"
    max_injected = configured["max_inject"]

    # The configuration decides before any confidence.
    if configured["inject"] == "top_k":
        position = "among" if is_injected else "not among"
        return f"{position} the first {max_injected} (retrieval.inject is top_k)"

    if not candidate.rated:
        limit = "without a judge it is at most mentioned"
        if not is_mentioned:
            limit += f", and only {context.MAX_MENTIONED} are"
        return f"the program gave no confidence (score {candidate.score:g}): {limit}"

    labels = configured.profiles.of(candidate.kind).labels
    label = candidate.confidence_label
    # Round down, so that 0.398 doesn't look like the 0.40 that it didn't reach.
    hundredths = int(candidate.confidence * 100)
    confidence = f"confidence {hundredths / 100:.2f}"

    # The candidate has a confidence, so compare it with the thresholds.
    if is_injected:
        return f"{confidence}: sure enough, since {labels['high']:.2f} is needed to inject it"
    if label == "high":
        return f"{confidence}: sure enough, but only {max_injected} are injected (retrieval.max_inject)"
    if candidate.worth_mentioning and not is_mentioned:
        return f"{confidence}: enough to mention it, but only {context.MAX_MENTIONED} are mentioned"
    if candidate.stands_out and candidate.confidence < labels["mention"]:
        return f"{confidence}: not sure enough to inject it, but it is far ahead of all others"
    if candidate.worth_mentioning:
        return f"{confidence}: not sure enough, since {labels['high']:.2f} is needed to inject it"

    reason = f"not sure enough, since {labels['mention']:.2f} is needed to mention it"
    if is_mentioned:
        reason += "; but nothing else was found (retrieval.hint_on_zero)"
    return f"{confidence}: {reason}"


def _explain_never_injected(candidate: Candidate) -> str:
    """Explain why a memory can never be injected; "" if it can."""
    if candidate.status:
        return f"it is {candidate.status}: never injected, and last in a search"
    if candidate.damaged:
        return "its file is damaged, and the memory may be retired: never injected"
    return ""


def _name_place(candidate: Candidate, project: str) -> str:
    """Return a memory's path in its store, with the line of its best section if known."""
    path = candidate.add_line(candidate.place)
    is_from_program = candidate.kind == COMMAND
    if is_from_program:  # the program returns complete paths
        return path
    return f"{context.name_store(candidate.root, project)}{path}"


def _describe_evidence(candidate: Candidate, project: str, *, has_several_parts: bool) -> list[str]:
    """List a candidate's matching words, and the numbers that docs/hook.md explains."""
    if not candidate.features:  # the memory is pinned, and no search found it
        return []

    lines = []
    if has_several_parts and candidate.part is not None:
        lines.append(f"found by: {short_line(candidate.part.text, _MAX_PART_CHARS)}")
    if candidate.part is not None:
        lines.append(_describe_words(candidate, candidate.part))

    if candidate.alike:
        places = [_name_place(hit, project) for hit in candidate.alike[:_MAX_ALIKE]]
        lines.append(f"says the same as {len(candidate.alike)} older: {', '.join(places)}")

    numbers = [f"bm25 {candidate.bm25:.2f}"]
    numbers += [f"{name} {value:.2f}" for name, value in sorted(candidate.features.items())]
    lines.append(f"numbers: {', '.join(numbers)}")
    return [f"{_EVIDENCE_INDENT}{line}" for line in lines]


def _describe_words(candidate: Candidate, part: Part) -> str:
    """Describe which of the prompt's words a candidate has, and how many others match about as well.

    `part` is the part of the prompt that found the candidate.
    """
    # `matched` and `titled` are indexes in `part.terms`.
    words = [part.terms[number].text for number in sorted(candidate.matched)]
    total = counted(len(part.terms), "word", "words")
    text = f"has {len(words)} of {total}: {', '.join(words)}"
    title_words = [part.terms[number].text for number in sorted(candidate.titled)]
    if title_words == words:  # every matching word
        text += ", in its title or tags"
    elif title_words:
        text += f"; in its title or tags: {', '.join(title_words)}"

    # The feature `alone` is 1 divided by the number of equally good hits, including this one. For a hit with
    # a single matching word, that number is one too high.
    rivals = round(1 / candidate.features["alone"]) - 1
    if len(words) < SEVERAL_TERMS:
        rivals -= 1
    if rivals > 0:
        text += f"; {counted(rivals, 'other fits', 'others fit')} about as well"
    return text


def get_log_path() -> str:
    """Return the path of the log. The older half has the same path with `.1` added."""
    return environment.INJECTIONS.path()


def add_to_log(
    prompt: str,
    ranked: RankedCandidates,
    shown: context.Shown,
    configured: Settings,
    cost: dict[str, int],
    session: object = None,
) -> None:
    """Add a line about the hook's answer to a prompt to the log. If writing fails, the line is lost.

    `cost` is a pair: the number of characters added to the prompt, and the time in milliseconds. `session` is
    the conversation's id from the client, if it's a string.
    """
    injected, mentioned = shown
    line: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "project": configured.project,
        "prompt": short_line(prompt, PROMPT_CHARS),
    }
    if isinstance(session, str) and session:
        line["session"] = environment.digest(session)

    line["pinned"] = _describe_memories(ranked.pinned)
    line["injected"] = _describe_memories(injected)
    line["mentioned"] = _describe_memories(mentioned)
    line["repeated"] = _describe_memories(ranked.repeated)
    left_out = [hit for hit in ranked.candidates if hit not in injected and hit not in mentioned]
    line["left_out"] = len(left_out)
    line["judge"] = configured["judge"]
    line["judged"] = ranked.judged
    line["dropped"] = ranked.dropped
    line |= cost

    from judgekit import outputs  # noqa: PLC0415 - only needed to write

    try:
        outputs.append(get_log_path(), f"{quickjson.dumps(line)}\n", MAX_LOG_BYTES)
    except OSError:
        return


def _describe_memories(hits: list[Candidate]) -> list[dict[str, Any]]:
    """Build the log's objects for memories. The confidence is None if a program didn't give one."""
    memories = []
    for hit in hits:
        confidence = round(hit.confidence, 3) if hit.rated else None
        memory = {
            "path": hit.path,
            "title": short_line(hit.title, _MAX_LOGGED_TITLE_CHARS),
            "confidence": confidence,
            "label": hit.confidence_label,
        }
        memories.append(memory)

    return memories


def read_log(project: str) -> list[dict[str, Any]]:
    """Read a project's log entries, newest first. Unreadable files and lines are skipped."""
    entries: list[dict[str, Any]] = []
    for path in (get_log_path(), f"{get_log_path()}.1"):  # `.1` is the older, full log
        try:
            with open(path, "rb") as stream:
                # The last line can exceed the limit, so read more than that.
                log = stream.read(2 * MAX_LOG_BYTES).decode("utf-8", "replace")
        except OSError:
            continue

        for line in reversed(lines_of(log)):
            try:
                entry = quickjson.loads(line)
            except ValueError:  # cut off, e.g. by a full disk
                continue
            if isinstance(entry, dict) and entry.get("project") == project:
                entries.append(entry)
    return entries
