"""The rules of `secret_rules.toml`, read once, and what the searches by them share."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int]
PRIVATE_KEY, PHRASE = "private key", "seed phrase"


class SecretMatch(NamedTuple):
    """A secret in a text, from `start` up to `end`."""

    start: int
    end: int
    kind: str


RULES: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("secret_rules.toml").read_text("utf-8"))


def whole(text: str) -> str:
    """Return a pattern, or words, with the parts put in that it names."""
    for name, part in RULES["parts"].items():
        text = text.replace(f"(?&{name})", part)
    return text


RE: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile(whole(pattern))
    for section in ("names", "values", "settings", "blocks", "private_keys")
    for name, pattern in RULES[section].items()
}


def line_end(text: str, at: int) -> int:
    """Return where the line ends that a place is in."""
    end = text.find("\n", min(at, len(text)))
    return len(text) if end < 0 else end


def is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))
