"""The coding agents that run the prompt hook: where each reads its hooks, and what an entry looks like."""

from __future__ import annotations

from typing import Any, NamedTuple

PROMPT, GEMINI_PROMPT = "UserPromptSubmit", "BeforeAgent"


class Client(NamedTuple):
    """A coding agent; `trust` says what a person must do before it runs a new hook."""

    command: str  # its name after `judgekit install`
    title: str
    user: tuple[str, str, str]  # the variable that names a folder, the folder without it, the file in there
    shared: dict[str, str]  # the file in a project, by scope
    events: dict[str, str | None]  # the events that the hook answers, the prompt's first, and their tools
    shell: bool = True  # a command is one line for a shell, not a program and its arguments
    per_second: int = 1  # in what a time is given
    more: dict[str, Any] = {}
    off: tuple[str, bool] = ("disableAllHooks", True)  # the setting that switches all hooks off
    trust: str = ""

    @property
    def prompt(self) -> str:
        return next(iter(self.events))


CLAUDE_CODE = Client(
    command="claude-code",
    title="Claude Code",
    user=("CLAUDE_CONFIG_DIR", "~/.claude", "settings.json"),
    shared={"project": ".claude/settings.json", "local": ".claude/settings.local.json"},
    # A prompt, an edit that may be a memory's, an agent's stop and a session's start; the last two cost the
    # start of an interpreter where judging is off.
    events={PROMPT: None, "PostToolUse": "Edit|Write|MultiEdit|NotebookEdit", "Stop": None}
    | {"SessionStart": None},
    shell=False,
)
CODEX = Client(
    command="codex",
    title="Codex",
    user=("CODEX_HOME", "~/.codex", "hooks.json"),
    shared={"project": ".codex/hooks.json"},
    events={PROMPT: None, "Stop": None, "SessionStart": None, "PostCompact": None},  # its edits name no file
    more={"additionalContextLimit": 10_000},  # tokens; of more than 2,500 it cuts out the middle by default
    off=("features.hooks", False),  # in config.toml beside
    trust='Codex runs the hook after you trust it: start codex and choose "Trust all", or type /hooks',
)
GEMINI = Client(
    command="gemini",
    title="Gemini CLI",
    user=("GEMINI_CLI_HOME", "~", ".gemini/settings.json"),
    shared={"project": ".gemini/settings.json"},
    events={GEMINI_PROMPT: None, "AfterTool": "write_file|replace", "AfterAgent": None, "SessionStart": None}
    | {"PreCompress": "manual"},  # "auto" comes with every prompt, before Gemini knows whether it compacts
    per_second=1000,
    more={"name": "judgekit"},
    off=("hooksConfig.enabled", False),
    trust="Gemini CLI runs hooks in folders that you trust",
)
CLIENTS = (CLAUDE_CODE, CODEX, GEMINI)
