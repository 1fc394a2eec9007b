"""The prompt hook of Claude Code: JSON on stdin, context for the agent on stdout, always exit code 0.

Any other exit code would lose the user's prompt or our answer, so every failure is one line on stderr.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.candidate import Candidate, Ranked

MIN_PROMPT = 10  # characters; a shorter one ("yes, go on") asks for nothing that is stored
MAX_INPUT = 50_000_000  # bytes
# The event also fires for texts that no person wrote.
NOTIFICATIONS = ("<task-notification>", "<system-reminder>", "[SYSTEM NOTIFICATION", "<cross-session-message")
_EXPLAIN = "--explain"


class BadInputError(Exception):
    """What stands on stdin is not what the client sends; the message says what was expected."""


def run() -> None:
    """Answer one prompt as the process that `judgekit.hooks.launch` describes, and end the process.

    It ends without the interpreter's own tidying up, a tenth of the cost of its start.
    """
    os._exit(main([]))


def main(arguments: list[str] | None = None) -> int:
    """Answer one prompt, or explain one; return 0 whatever happens. `arguments` are those after `hook`."""
    if os.environ.get("JUDGEKIT_DISABLE", "0") not in ("", "0"):
        return 0
    try:
        arguments = sys.argv[2:] if arguments is None else arguments
        option, given, first = "".join(arguments[:1]).partition("=")
        if option == _EXPLAIN:
            _explain(" ".join([first, *arguments[1:]] if given else arguments[1:]))
        else:
            _answer(_read_input())
    except BadInputError as error:
        _complain(str(error))
    except KeyboardInterrupt:
        _complain("interrupted, nothing added to the prompt")
    except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must not cost the user a prompt
        _complain(f"internal error, nothing added to the prompt: {type(error).__name__}: {error}")
    return 0


def answer(payload: dict[str, Any]) -> tuple[str, list[str]]:
    """Return what the hook prints for the client's `payload`, and its lines for stderr.

    Raises `BadInputError` when the payload has no prompt.
    """
    prompt = prompt_of(payload)
    if is_silent(prompt):
        return "", []
    from judgekit import paths  # noqa: PLC0415 - many prompts end above
    from judgekit.hooks import settings  # noqa: PLC0415 - the same

    project = paths.project_root(_folder(payload))
    configured, notes = settings.load(project)
    if not configured["enabled"]:
        return "", notes
    ranked = find(prompt, configured)
    notes += ranked.notes
    injected, mentioned = choose(ranked.candidates, configured)
    asked = [each for each in ranked.candidates if not each.damaged]
    if configured["judge"] == "on" and asked and ranked.fallback is None:
        try:
            injected, mentioned = _judged(prompt, asked, payload, configured, notes) or (injected, mentioned)
        except Exception as error:  # noqa: BLE001 - the boundary to everything that needs a model
            notes.append(f"not judged ({type(error).__name__}: {error}); what is shown is the BM25 answer")
    return _render(injected, mentioned, configured), notes


def prompt_of(payload: dict[str, Any]) -> str:
    """Return the prompt in the client's payload, under its present or its old name."""
    for name in ("prompt", "user_prompt"):
        prompt = payload.get(name)
        if isinstance(prompt, str):
            return prompt
        if prompt is not None:
            raise BadInputError(f"stdin: {name}: expected a string, got {type(prompt).__name__}")
    raise BadInputError("stdin: prompt: missing; expected the JSON that Claude Code gives its prompt hooks")


def is_silent(prompt: str) -> bool:
    """Whether a prompt gets no answer: too short, or not written by a person."""
    text = prompt.strip()
    return len(text) < MIN_PROMPT or text.startswith(NOTIFICATIONS)


def find(prompt: str, configured: Settings) -> Ranked:
    """Return the candidates for a prompt from all configured stores."""
    from judgekit.retrieval import api  # noqa: PLC0415 - many prompts end before

    return api.search(
        prompt,
        configured["roots"],
        project=configured.project,
        limit=max(configured["pool"], configured["max_inject"]),
        trusted=configured.trusted,
        profiles=configured.profiles,
        snippets=configured["judge"] == "on",
        scorer=configured["scorer"],
    )


def choose(candidates: list[Candidate], configured: Settings) -> tuple[list[Candidate], list[Candidate]]:
    """Return which candidates are shown in full and which are hinted at, no judge being asked."""
    most = configured["max_inject"]
    if configured["inject"] == "top_k":
        return [each for each in candidates if not each.damaged][:most], []
    injected = [each for each in candidates if each.confidence_label == "high"][:most]
    return injected, [each for each in candidates if each.worth_mentioning and each not in injected]


def _judged(
    prompt: str, asked: list[Candidate], payload: dict[str, Any], configured: Settings, notes: list[str]
) -> tuple[list[Candidate], list[Candidate]] | None:
    """Return what is shown and what is hinted at after judging; None when there is nobody to ask."""
    from judgekit import recall  # noqa: PLC0415 - imports pydantic; only where judging is on

    alone, _ = choose(asked, configured)
    judged = recall.judged_hook(prompt, asked, alone, payload, configured.project)
    if isinstance(judged, str):
        notes.append(judged)
        return None
    if judged.degraded is not None:
        notes.append(judged.degraded)
    injected = judged.kept[: configured["max_inject"]]
    if configured["inject"] == "top_k":
        return injected, []
    return injected, [each for each in judged.undecided if each.worth_mentioning and each not in injected]


def _render(injected: list[Candidate], mentioned: list[Candidate], configured: Settings) -> str:
    if not injected and not mentioned:
        return _nothing(configured)
    from judgekit.hooks import context, settings  # noqa: PLC0415 - most prompts end above

    described = {each.root: settings.descriptions(each.root) for each in injected}
    text = context.render(injected, mentioned, configured.project, described)
    return _shown(text, injected) if configured["show"] and injected else text


def _nothing(configured: Settings) -> str:
    if not configured["hint_on_zero"]:
        return ""
    from judgekit.hooks import context  # noqa: PLC0415 - not the usual setting
    from judgekit.retrieval import api  # noqa: PLC0415 - loaded already

    stores = [api.resolve(root, configured.project) for root in configured["roots"]]
    return context.NOTHING_FOUND if any(map(os.path.isdir, stores)) else ""


def _shown(text: str, injected: list[Candidate]) -> str:
    """Return the JSON form, which also tells the user what was added."""
    from judgekit.retrieval import sqljson  # noqa: PLC0415 - loaded already
    from judgekit.text import one_line  # noqa: PLC0415 - the same

    titles = "; ".join(one_line(each.title, 80) for each in injected)
    output = {"hookEventName": "UserPromptSubmit", "additionalContext": text}
    return sqljson.dumps({"hookSpecificOutput": output, "systemMessage": f"judgekit recalled: {titles}"})


def _answer(payload: dict[str, Any]) -> None:
    text, notes = answer(payload)
    for note in notes:
        _complain(note)
    if text:
        _print(text)


def _read_input() -> dict[str, Any]:
    from judgekit.retrieval import sqljson  # noqa: PLC0415 - `--explain` reads nothing

    if sys.stdin is None or sys.stdin.isatty():
        raise BadInputError("stdin: nothing to read; this command is for Claude Code, which gives it JSON")
    raw = sys.stdin.buffer.read(MAX_INPUT)
    if not raw.strip():
        raise BadInputError("stdin: empty; expected the JSON that Claude Code gives its prompt hooks")
    try:
        payload = sqljson.loads(raw.decode("utf-8-sig", "replace"))
    except ValueError:
        raise BadInputError(
            "stdin: not valid JSON; expected what Claude Code gives its prompt hooks"
        ) from None
    if not isinstance(payload, dict):
        raise BadInputError(f"stdin: expected a JSON object, got {type(payload).__name__}")
    return payload


def _folder(payload: dict[str, Any]) -> str:
    cwd = payload.get("cwd")
    return cwd if isinstance(cwd, str) and cwd and "\0" not in cwd else os.getcwd()


def _explain(prompt: str) -> None:
    from judgekit.hooks import explain  # noqa: PLC0415 - for people, not for the client

    _print(explain.report(prompt, os.getcwd()))


def _print(text: str) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write((text + "\n").encode("utf-8", "replace"))
        sys.stdout.flush()
    except OSError:  # nobody reads: without this the interpreter would fail again, and loudly, at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain(line: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"judgekit: {' '.join(line.split())}\n".encode("ascii", "backslashreplace").decode())
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
