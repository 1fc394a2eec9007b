"""Which families of models had a hand in a text, as far as commits or people say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from judgekit.providers.registry import UNKNOWN_FAMILY, family_by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_AGENTS = {
    "anthropic": (
        r".*@anthropic\.com>",
        r"claude(?: <(?=[^>]*noreply@)[^>]*>|$)",
        r"claude[ -](?:code|opus|sonnet|haiku|v?\d)",
        r"claude\[bot\]",
    ),
    "openai": (
        r".*(?:noreply|codex)@openai\.com>",
        r"(?:openai )?codex(?: cli)?(?: <|$)",
        r"chatgpt\b",
        r"gpt-\d",
    ),
    "google": (
        r"gemini(?: cli| code assist|[ -]\d| <|$)",
        r"(?:gemini-|google-labs-jules).*(?:\[bot\]|@users\.noreply\.github\.com>)",
    ),
    "alibaba": (r"qwen-?coder\b", r"qwen code\b"),
    "mistral": (r"mistral vibe\b", r".*vibe@mistral\.ai>"),
    "xai": (r"grok(?:[ -]|$)",),
    UNKNOWN_FAMILY: (
        r"(?:github )?copilot(?:\[bot\]| <|$| \w*agent)",
        r"copilot-swe-agent\b",
        r".*\+copilot@users\.noreply\.github\.com>",
        r"cursor(?: agent)?(?: <|$)",
        r".*cursoragent@cursor\.com>",
        r"devin-ai-integration\b",
        r"devin ai\b",
        r"aider\b",
        r".*@aider\.chat>",
        r"opencode\b",
        r"amp <amp@ampcode\.com>",
        r"openhands\b",
        r"windsurf\b",
        r"sweep-ai\b",
    ),
}
# Who helped to write; a reviewer or a tester did not.
_WROTE = re.compile(
    r"(?:co-)?(?:authored|written|created|generated|made|assisted)-(?:by|with):\s*", re.IGNORECASE
)


def signed(people: Iterable[str], trailers: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the families of the agents among `people` and those whom `trailers` say helped to write.

    People are given as `Name <address>`, trailers as `Key: value`. An agent whose models may be anybody's
    counts as "unknown"; people have no family.
    """
    helped = [line[key.end() :] for line in trailers if (key := _WROTE.match(line))]
    found = [family for each in (*people, *helped) if (family := _family(each.strip()))]
    return tuple(dict.fromkeys(found))


def named(given: str | None) -> tuple[str, ...]:
    """Return the families in a list that a person wrote, by their names, or by models of theirs."""
    words = [word.strip().casefold() for word in (given or "").split(",") if word.strip()]
    known = [(word, family_by_name(word)) for word in words if word != "none"]
    return tuple(dict.fromkeys(word if family == UNKNOWN_FAMILY else family for word, family in known))


def listed(families: Sequence[str]) -> str | None:
    """Return families as one text, as a verdict's author has them; None where there are none."""
    return ", ".join(families) or None


def _family(person: str) -> str | None:
    """Return the family of an agent, None for a person."""
    text = person.casefold()
    for family, patterns in _AGENTS.items():
        if any(re.match(pattern, text) for pattern in patterns):
            return family_by_name(text.partition(" <")[0]) if family == UNKNOWN_FAMILY else family
    return None
