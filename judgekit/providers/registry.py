"""Finds provider profiles: the user's, then the bundled ones; never a project's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from judgekit.config import files, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.providers.profile import ProfileFile, by_beginning

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.providers.profile import Profile

# Who trained a model, by a word in its name; for providers that serve models of several.
_FAMILIES = {
    "anthropic": r"claude",
    "openai": r"gpt|chatgpt|o[134](?![a-z0-9])",
    "google": r"gemini|gemma",
    "meta": r"(?:code)?llama(?!file|-?cpp)",
    "mistral": r"(?:m|min|mag|pix|dev|code)(?:i|)stral|mixtral",
    "alibaba": r"qwen|qwq",
    "deepseek": r"deepseek",
    "xai": r"grok",
    "amazon": r"nova",
    "cohere": r"command-[ra]|aya",
    "microsoft": r"phi(?=[-\d:])",
    "huggingface": r"smollm",
    "zhipu": r"glm",
    "moonshot": r"kimi",
}
UNKNOWN_FAMILY = "unknown"
_ALIASES = {"custom": "openai-compatible"}  # the beginning of its models' names, which users know it by


def profiles() -> list[Profile]:
    """Return all profiles in the order they are tried: by `rank`, then by name.

    The order is data (`rank` in each file), so that a profile of the user's own can take its place in it.
    A file in the user's folder replaces the bundled one of the same name. Raises `ConfigError`.
    """
    found = [load(path) for path in files.profile_files()]
    return sorted(found, key=lambda profile: (profile.rank, profile.provider))


def find(name: str) -> Profile:
    """Return the profile called `name`, or by its alias; raises `UsageError` naming those that exist."""
    known = profiles()
    for profile in known:
        if profile.provider == unaliased(name):
            return profile
    names = ", ".join(profile.provider for profile in known)
    raise UsageError(f"no provider {name!r}; there are: {names}")


def unaliased(name: str) -> str:
    """Return the provider that `name` stands for: itself, unless it is an alias."""
    return _ALIASES.get(name, name)


def load(path: Path) -> Profile:
    """Read one profile; its file must be named after it. Raises `ConfigError`."""
    profile = yamlfile.read(path, ProfileFile, version_key="provider").root
    if path.stem != profile.provider:
        raise ConfigError(
            f"holds {profile.provider}; name the file {profile.provider}.yaml", path=path, key="provider"
        )
    return profile


def family_of(profile: Profile, model: str) -> str:
    """Return who trained `model`: as the profile says, else by its name, else "unknown"."""
    bare = profile.bare_name(model)
    told = by_beginning(profile.families, bare, profile.family)
    return told or family_by_name(bare)


def family_by_name(model: str) -> str:
    """Return who trained a model of that name, as far as the name tells, else "unknown"."""
    # The last part first: a file may lie in a folder with any name.
    for part in (model.rsplit("/", 1)[-1], model):
        for family, words in _FAMILIES.items():
            if re.search(rf"(?<![a-z])(?:{words})", part.lower()):
                return family
    return UNKNOWN_FAMILY
