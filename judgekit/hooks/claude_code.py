"""The hooks of Claude Code, Codex and Gemini: JSON on stdin, context for the agent on stdout, exit code 0.

Any other exit code would lose the user's prompt or our answer, so every failure is one line on stderr. The
JSON names the event, for which Gemini has other names. A prompt gets an answer, a session's start warms the
engine, an edited memory is indexed, and the files that an agent leaves when it stops may be judged. Any other
event gets no answer.
"""

from __future__ import annotations

import gc
import os
import sys
import time

from judgekit import environment
from judgekit.retrieval import quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from judgekit.hooks.context import Shown
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import RankedCandidates

# For everything, unless an event is known to have longer; with Python's start less than 10.
MAX_EVENT_SECONDS = 9.0
# Added to the deadline for judging a stop: time for imports, files and the ledger.
STOP_GRACE_SECONDS = 8.0
MAX_INPUT_BYTES = 50_000_000  # bytes
_BOM = b"\xef\xbb\xbf"
_GC_THRESHOLD = 100_000  # objects before a process of milliseconds looks for garbage
PROMPT_EVENT = "UserPromptSubmit"
GEMINI_PROMPT_EVENT = "BeforeAgent"
TOOLS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "write_file", "replace")
_MAX_ARGUMENT_CHARS = 60  # characters of an argument
MIN_PROMPT_CHARS = 10  # characters; a shorter prompt ("yes, go on") asks for nothing stored
# The event also fires for texts that no person wrote.
NOTIFICATIONS = (
    "<task-notification>",
    "<system-reminder>",
    "[SYSTEM NOTIFICATION",
    "<cross-session-message",
)
_STDOUT, _STDERR = 1, 2  # file descriptors
_EXPECTED_INPUT = "the JSON that coding agents give their hooks"


class BadInputError(Exception):
    """The text on stdin isn't a client's event; the message says what was expected."""


def run() -> None:
    """Answer one event from stdin and end the process."""
    # This process ends within milliseconds, so looking for garbage would only cost time.
    gc.set_threshold(_GC_THRESHOLD)
    # Don't close the search indexes: that would remove files that the next hook has to create again.
    environment.ends_at_once = True
    exit_code = answer_in_time([])  # this process's own arguments aren't options of the hook
    # The interpreter's cleanup would take a tenth of its startup time, so end without it.
    os._exit(exit_code)


def answer_in_time(arguments: list[str] | None = None) -> int:
    """Answer one event like `main`, but end this process after at most `MAX_EVENT_SECONDS`."""
    from judgekit.hooks import watchdog  # noqa: PLC0415 - `main` alone has no time limit

    watchdog.limit(MAX_EVENT_SECONDS, _end_process)
    return main(arguments)


def _end_process() -> None:
    """End this process with a warning, because its time is up."""
    _warn("the hook ran out of time; nothing added to the prompt")
    os._exit(0)


def main(arguments: list[str] | None = None) -> int:
    """Answer one event from a coding agent, or print a report for a person.

    Returns the exit code, which is always 0. `arguments` are the command line's arguments after
    `judgekit hook`, by default those of this process.
    """
    if environment.is_on("JUDGEKIT_DISABLE"):
        return 0

    option_warning = ""
    try:
        if arguments is None:
            arguments = sys.argv[2:]  # after `judgekit hook`

        option_warning = _build_option_warning(arguments)
        text, notes = _respond(arguments)
        _print_answer(text, [option_warning, *notes])
    except BadInputError as error:
        # A person who mistypes an option sends no event on stdin. Report the option, not the missing event.
        _warn(option_warning or str(error))
    except KeyboardInterrupt:
        _warn("interrupted; nothing added to the prompt")
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must not cost the user a prompt
        _warn(f"internal error; nothing added to the prompt: {type(error).__name__}: {error}")

    return 0


def _print_answer(text: str, notes: list[str]) -> None:
    """Write the notes to stderr and the text to stdout. Empty ones are left out."""
    for note in notes:
        if note:
            _warn(note)
    if text:
        content = text.encode("utf-8", errors="replace")
        _write(sys.stdout, _STDOUT, content)


def _respond(arguments: list[str]) -> tuple[str, list[str]]:
    """Build a report for a person, or answer the event on stdin.

    Returns the text for stdout, and the lines for stderr.
    """
    if _is_explain(arguments):
        from judgekit.hooks import explain  # noqa: PLC0415 - for people, not for the client

        prompt = _join_prompt(arguments)
        report = explain.explain_prompt(prompt, os.getcwd(), ignored=should_ignore(prompt))
        return report, []

    if "--stats" in arguments:
        from judgekit.hooks import stats  # noqa: PLC0415 - for people, not for the client

        report = stats.report_use(os.getcwd(), as_json="--json" in arguments)
        return report, []

    return _answer_event(_read_input())


def _join_prompt(arguments: list[str]) -> str:
    """Join the words after `--explain` into a prompt. `--explain=WORD …` works as well."""
    option, *words = arguments
    _, equals_sign, first_word = option.partition("=")
    if equals_sign:
        words = [first_word, *words]
    return " ".join(words)


def _answer_event(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Handle an event. Returns the hook's output, which can be "", and lines for stderr."""
    event = payload.get("hook_event_name")
    if event in (None, PROMPT_EVENT, GEMINI_PROMPT_EVENT):
        return answer_prompt(payload)
    if event in ("Stop", "AfterAgent"):
        return _answer_stop(payload)

    # The other events have no output.
    if _has_lost_memories(payload):
        _forget_session(payload)  # so that its memories can be shown again
    if event == "SessionStart":
        _start_engine(_find_project(payload))
    elif event in ("PostToolUse", "AfterTool"):
        _refresh_indexes(payload)

    return "", []


def _has_lost_memories(payload: Mapping[str, Any]) -> bool:
    """Whether the agent's context was just cleared or compacted, so that the memories in it are gone."""
    event = payload.get("hook_event_name")
    if event == "PreCompress":
        # Gemini sends the trigger "auto" with every prompt, even if nothing is compacted.
        return payload.get("trigger") == "manual"
    if event == "SessionStart":
        return payload.get("source") in ("clear", "compact")
    return event == "PostCompact"


def _is_explain(arguments: list[str]) -> bool:
    """Whether the first argument is `--explain` or `--explain=…`."""
    if not arguments:
        return False
    option, _, _ = arguments[0].partition("=")
    return option == "--explain"


def _build_option_warning(arguments: list[str]) -> str:
    """Build a warning about the first unknown option; "" if all options are known."""
    if _is_explain(arguments):  # the other arguments are the prompt
        return ""
    for argument in arguments:
        if argument not in ("--stats", "--json"):
            name = argument[:_MAX_ARGUMENT_CHARS]
            return f"{name}: no such option; judgekit hook --help lists the options"
    return ""


def answer_prompt(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Find the memories for a prompt and format them for the client.

    Returns the output, and the lines for stderr. Raises `BadInputError` if the event has no prompt.
    """
    started = time.monotonic()
    prompt = _read_prompt(payload)
    if should_ignore(prompt):
        return "", []

    from judgekit.hooks import context, settings  # noqa: PLC0415 - many prompts end above

    configured, notes = settings.load(_find_project(payload))
    if not configured["enabled"]:
        return "", notes

    ranked = context.find_candidates(prompt, configured)
    notes += _list_search_notes(ranked, configured)
    session = context.open_session(payload, configured)
    if session is not None:
        # Move the memories that this session got recently from `ranked.candidates` to `ranked.repeated`.
        session.hold_back(ranked, prompt)

    chosen = _choose_shown(prompt, ranked, payload, configured, notes)
    injected, mentioned = chosen
    # Repeats are matches too, so don't tell the agent that nothing was found.
    has_matches = bool(injected or mentioned or ranked.repeated)

    shown = context.limit_mentions(chosen, session, prompt)
    if session is not None:
        session.add(*shown)

    text = _render_text(ranked, shown, configured, has_matches=has_matches)
    if configured["log"]:
        from judgekit.hooks import explain  # noqa: PLC0415 - off unless the user asks for it

        milliseconds = round(1_000 * (time.monotonic() - started))
        cost = {"characters": len(text), "ms": milliseconds}
        explain.add_to_log(prompt, ranked, shown, configured, cost, payload.get("session_id"))

    titles = _list_titles_to_show(ranked, shown, configured)
    is_gemini = payload.get("hook_event_name") == GEMINI_PROMPT_EVENT
    return context.format_output(text, titles, is_gemini=is_gemini), notes


def _list_search_notes(ranked: RankedCandidates, configured: Settings) -> list[str]:
    """List the search's notes, except those reported within the last day, and record them as reported."""
    if not ranked.notes:
        return []
    from judgekit.hooks import context  # noqa: PLC0415 - many prompts get no answer

    due_notes = context.take_due_notes(configured.project, ranked.notes)
    return context.add_pin_suggestions(due_notes, ranked, configured)


def _choose_shown(
    prompt: str,
    ranked: RankedCandidates,
    payload: Mapping[str, Any],
    configured: Settings,
    notes: list[str],
) -> Shown:
    """Choose the memories to inject and to mention, by asking the judge if it's on.

    The judge can add to `notes`.
    """
    from judgekit.hooks import context  # noqa: PLC0415 - many prompts get no answer

    # Without full-text search, only titles and tags were searched. The judge isn't asked about such hits.
    has_full_text_search = ranked.fallback_reason is None
    if configured["judge"] == "on" and has_full_text_search:
        from judgekit.hooks import judged  # noqa: PLC0415 - imports pydantic; only needed for judging

        chosen_by_judge = judged.choose_by_judge(prompt, ranked, payload, configured, notes)
        if chosen_by_judge is not None:  # it's None if there was nothing to judge, or no answer
            return chosen_by_judge

    return context.choose_without_judge(ranked, configured)


def _render_text(
    ranked: RankedCandidates, shown: Shown, configured: Settings, *, has_matches: bool
) -> str:
    """Render the text to add to a prompt. Without a match, it can be a hint that nothing was found."""
    from judgekit.hooks import context, settings  # noqa: PLC0415 - many prompts get no answer

    injected, _ = shown
    full_memories = [*ranked.pinned, *injected]
    descriptions = {hit.root: settings.read_descriptions(hit.root) for hit in full_memories}
    text = context.render_context(ranked.pinned, shown, configured.project, descriptions)
    if text:
        return text
    if has_matches:  # the session already has all of them
        return ""

    if configured["hint_on_zero"] and _has_store(configured):
        return context.render_nothing_found()
    return ""


def _list_titles_to_show(ranked: RankedCandidates, shown: Shown, configured: Settings) -> list[str]:
    """List the titles of the memories that were added in full, if the user wants to see them."""
    if not configured["show"]:
        return []
    injected, _ = shown
    return [hit.title for hit in (*ranked.pinned, *injected)]


def _read_prompt(payload: Mapping[str, Any]) -> str:
    """Read an event's prompt, called `prompt` or `user_prompt` by clients; raises `BadInputError`."""
    name = "prompt" if payload.get("prompt") is not None else "user_prompt"
    prompt = payload.get(name)
    if prompt is None:
        raise BadInputError(f"stdin: prompt: missing; expected {_EXPECTED_INPUT}")
    if not isinstance(prompt, str):
        raise BadInputError(f"stdin: {name}: expected a string, got {type(prompt).__name__}")
    return prompt


def _has_store(configured: Settings) -> bool:
    """Whether there's anything to search: the user's program, or an existing store."""
    from judgekit.retrieval import search  # noqa: PLC0415 - hooks that don't search needn't load it

    if configured["command"]:
        return True
    roots = configured["roots"]
    return any(os.path.isdir(search.resolve_root(root, configured.project)) for root in roots)


def should_ignore(prompt: str) -> bool:
    """Whether to ignore a prompt, because it's too short or wasn't written by a person."""
    text = prompt.strip()
    return len(text) < MIN_PROMPT_CHARS or text.startswith(NOTIFICATIONS)


def _start_engine(project: str) -> None:
    """Start the engine, the background process that judges, for later prompts if this project needs it."""
    from judgekit.hooks import settings  # noqa: PLC0415 - many prompts need no settings

    configured, _ = settings.load(project)  # the first prompt reports any problem
    is_judging = configured["enabled"] and configured["judge"] == "on"
    if not is_judging or not settings.is_engine_wanted(configured):
        return

    from judgekit.engine import client  # noqa: PLC0415 - without judging, no engine is needed

    try:
        client.start_for_later()
    except client.NoEngine:  # the engine failed recently; the first prompt will report that
        return


def _forget_session(payload: Mapping[str, Any]) -> None:
    """Forget which memories a session got, since the agent no longer has them in its context."""
    from judgekit.hooks import repeats  # noqa: PLC0415 - few sessions begin with a cleared context

    repeats.forget(str(payload.get("session_id")))


def _refresh_indexes(payload: Mapping[str, Any]) -> None:
    """Update the search indexes that contain the file that a tool just wrote."""
    path = _find_written_file(payload)
    if path is None or not _can_be_memory(path):
        return

    # Most edits aren't of memories and end above, so these modules are only loaded here.
    from judgekit.hooks import settings  # noqa: PLC0415
    from judgekit.retrieval import index  # noqa: PLC0415

    project = _find_project(payload)
    configured, _ = settings.load(project)
    if configured["enabled"]:
        folder = str(payload.get("cwd") or project)
        index.refresh_file(os.path.join(folder, path), configured.profiles)


def _can_be_memory(path: str) -> bool:
    """Whether a file has one of the endings of memories."""
    from judgekit.retrieval.compiled import ENDINGS  # noqa: PLC0415 - most tools don't write files

    return path.lower().endswith(ENDINGS)


def _find_written_file(payload: Mapping[str, Any]) -> str | None:
    """Return the path of the file that a tool wrote, or None."""
    tool_input = payload.get("tool_input")
    if payload.get("tool_name") not in TOOLS or not isinstance(tool_input, dict):
        return None
    path = tool_input.get("file_path") or tool_input.get("notebook_path")
    if not isinstance(path, str) or "\0" in path:
        return None
    return path


def _answer_stop(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Judge the work when an agent stops, if that's enabled. Returns output, and lines for stderr.

    If the output is "", the agent may stop. Otherwise it has to go on.
    """
    # A hook has already made the agent go on once. Let it stop this time, to avoid an endless loop.
    if payload.get("stop_hook_active"):
        return "", []

    from judgekit.hooks import settings  # noqa: PLC0415 - a second stop ends above

    project = _find_project(payload)
    loaded, _ = settings.load(project)  # the next prompt reports any problem
    configured = loaded.values.get("stop", {})
    if configured.get("judge") != "on":
        return "", []
    return _judge_stop(payload, project, configured)


def _judge_stop(
    payload: Mapping[str, Any], project: str, configured: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Judge the work of an agent. Returns output, and lines for stderr."""
    from judgekit import programs  # noqa: PLC0415 - only if judging is enabled
    from judgekit.hooks import watchdog  # noqa: PLC0415 - only if judging is enabled

    # The watchdog ends this process when its time is up, but judging takes longer.
    watchdog.extend(configured["deadline"] + STOP_GRACE_SECONDS)

    # A hook's Python starts without the installed packages, but judging needs some.
    programs.make_packages_importable()
    from judgekit.hooks import stop  # noqa: PLC0415 - imports these packages

    return stop.judge_stop(payload, project, configured)


def _read_input() -> dict[str, Any]:
    """Read the JSON object that a coding agent writes to stdin. Raises `BadInputError` for other input."""
    if sys.stdin is None or sys.stdin.isatty():
        raise BadInputError(
            "stdin: nothing to read; a coding agent runs this command with JSON on stdin"
        )

    raw = sys.stdin.buffer.read(MAX_INPUT_BYTES)
    if not raw.strip():
        raise BadInputError(f"stdin: empty; expected {_EXPECTED_INPUT}")

    try:
        payload: Any = quickjson.loads(raw.removeprefix(_BOM).decode("utf-8", "replace"))
    except ValueError:
        problem = "not valid JSON; expected what coding agents give their hooks"
        raise BadInputError(f"stdin: {problem}") from None

    if not isinstance(payload, dict):
        raise BadInputError("stdin: expected a JSON object, as coding agents give their hooks")
    return payload


def _find_project(payload: Mapping[str, Any]) -> str:
    """Find the project that contains the event's folder, or the current folder if the event has none."""
    cwd = payload.get("cwd")
    if isinstance(cwd, str) and cwd and "\0" not in cwd:
        return environment.find_project_root(cwd)
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # the current folder was deleted
        folder = os.sep
    return environment.find_project_root(folder)


def _warn(text: str) -> None:
    """Write a message to stderr as one line of ASCII, which any terminal can show."""
    line = f"judgekit: {' '.join(text.split())}"
    _write(sys.stderr, _STDERR, line.encode("ascii", "backslashreplace"))


def _write(stream: Any, descriptor: int, line: bytes) -> None:  # noqa: ANN401 - a text stream, or None
    """Write a line to stdout or stderr. If nobody reads it, the line is lost."""
    try:
        if stream is not None:
            stream.buffer.write(line + b"\n")
            stream.flush()
    except OSError:
        # Otherwise, the interpreter would fail again at exit and print an error.
        _redirect_to_nowhere(descriptor)


def _redirect_to_nowhere(descriptor: int) -> None:
    """Redirect a file descriptor to the null device, which takes whatever is written to it."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, descriptor)
