"""Shared by tests of the hooks: a prompt, the client's payload, and configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit.config import files, settings

if TYPE_CHECKING:
    from pathlib import Path

    from memory_store import MemoryStore

QUESTION = "How do we refresh the JWT?"
TITLE = "JWT token refresh flow"
ANSWER = f"{TITLE} -> decisions/jwt.json"


def payload(store: MemoryStore, prompt: object = QUESTION, **more: object) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "cwd": str(store.project),
        "hook_event_name": "UserPromptSubmit",
        **more,
    }


def own_profile(home: Path, provider: str, old: str = "", new: str = "", more: str = "") -> None:
    text = (
        (files.get_data_folder("providers") / f"{provider}.yaml")
        .read_text(encoding="utf-8")
        .replace(old, new)
    )
    path = home / "judgekit" / "providers" / f"{provider}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n{more}\n", encoding="utf-8")


def by_user(text: str) -> Path:
    path = settings.get_user_config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def by_project(project: Path, text: str) -> Path:
    path = settings.get_project_config_path(project)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
