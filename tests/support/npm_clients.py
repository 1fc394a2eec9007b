"""Runs the real Codex and Gemini CLI, each in a world of its own, against the stand-in for their APIs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from claude_client import DEADLINE, Answer, Client
from claude_standin import ToolCall

from judgekit.hooks import clients

VARIABLE = "JUDGEKIT_TEST_CLIENTS"  # the folder that npm installed both into
_FETCHED = Path(__file__).parents[2] / ".cache" / "clients"


@dataclass(frozen=True)
class NpmClient(Client):
    """A client in a project that it trusts; `arguments` come before a prompt."""

    table: ClassVar[clients.Client]
    file: ClassVar[str]  # the program, below node_modules
    api_path: ClassVar[str]
    arguments: ClassVar[list[str]]

    @classmethod
    def find(cls) -> Path | None:
        """Return the client's program, or None if it's missing, or the node that Gemini CLI needs."""
        path = Path(os.environ.get(VARIABLE) or _FETCHED) / "node_modules" / cls.file
        return (
            path
            if os.access(path, os.X_OK) and (path.suffix != ".js" or shutil.which("node"))
            else None
        )

    @property
    def settings(self) -> Path:
        """The user's file of hooks."""
        return self.folder / "home" / self.table.user[1].lstrip("~/") / self.table.user[2]

    def ask(self, prompt: str, *options: str) -> Answer:
        return self.run(*self.arguments, *options, prompt)

    def sent(self) -> list[Any]:
        """Return the bodies of the requests for a message so far."""
        return [each.body for each in self.api.posts if each.path.endswith(self.api_path)]


class Codex(NpmClient):
    table = clients.CODEX
    file = "@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex"
    api_path = "/v1/responses"
    arguments: ClassVar = [
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
    ]

    def setup(self) -> None:
        """Write settings with which the client starts without a question, and doesn't call home."""
        self.settings.parent.mkdir(parents=True)
        self.settings.with_name("config.toml").write_text(
            'model = "m"\nmodel_provider = "standin"\ncheck_for_update_on_startup = false\n'
            "[features]\nplugins = false\napps = false\n[analytics]\nenabled = false\n"
            f'[model_providers.standin]\nname = "standin"\nbase_url = "{self.api.url}/v1"\n'
            f'env_key = "ANTHROPIC_API_KEY"\n[projects."{self.project}"]\ntrust_level = "trusted"\n'
        )

    def writes(self, name: str, text: str) -> ToolCall:
        return ToolCall("exec_command", {"cmd": f"printf %s {shlex.quote(text)} > {name}"})

    def reads(self, name: str) -> ToolCall:
        return ToolCall("exec_command", {"cmd": f"cat {name}"})

    def trust_all(self) -> None:
        """Trust all hooks as a person does in the review that codex starts with."""
        options: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "encoding": "utf-8",
        }
        options |= {"stderr": subprocess.DEVNULL, "cwd": self.project, "env": self._environment()}
        server: Any = subprocess.Popen([self.program, "app-server"], **options)
        timer = threading.Timer(DEADLINE, server.kill)
        timer.start()

        def call(method: str, **params: object) -> dict[str, Any]:
            server.stdin.write(
                json.dumps({"id": method, "method": method, "params": params}) + "\n"
            )
            server.stdin.flush()
            found: dict[str, Any] = next(
                line["result"]
                for line in map(json.loads, server.stdout)
                if line.get("id") == method
            )
            return found

        with server:
            call("initialize", clientInfo={"name": "test", "version": "1"})
            (listed,) = call("hooks/list", cwds=[str(self.project)])["data"]
            state = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in listed["hooks"]}
            call(
                "config/batchWrite",
                edits=[{"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}],
            )
            timer.cancel()
            server.kill()


class Gemini(NpmClient):
    table = clients.GEMINI
    file = "@google/gemini-cli/bundle/gemini.js"
    api_path = ":streamGenerateContent"
    arguments: ClassVar = ["--yolo", "-m", "gemini-2.5-flash", "-p"]

    def setup(self) -> None:
        """Write settings with which the client starts without a question, and doesn't call home."""
        self.settings.parent.mkdir(parents=True)
        chosen = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": False},
        }
        chosen |= {
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        }
        self.settings.write_text(json.dumps(chosen, indent=2))
        node = Path(shutil.which("node") or "node").parent
        key = {"GEMINI_API_KEY": "a-key-that-opens-nothing", "GOOGLE_GEMINI_BASE_URL": self.api.url}
        self.variables.update(key, PATH=f"{self.path}:{node}", GEMINI_CLI_TRUST_WORKSPACE="true")

    def writes(self, name: str, text: str) -> ToolCall:
        return ToolCall("write_file", {"file_path": name, "content": text})

    def reads(self, name: str) -> ToolCall:
        return ToolCall("read_file", {"file_path": name})
