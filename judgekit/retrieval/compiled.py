"""The retrieval profiles as the hook reads them: checked and compiled beforehand, see profiles.py."""

from __future__ import annotations

from judgekit.retrieval import bundled_profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

BUNDLED = bundled_profiles.__file__

CLAUDE_MEMORY, AUTO_MEMORY, MARKDOWN = "claude-memory", "claude-auto-memory", "markdown"


class Language:
    """What the words of a language are worth as search terms.

    `fingerprint` is another one when texts would be indexed differently. `stems` remembers the words that
    were cut before.
    """

    __slots__ = (
        "abbreviations",
        "common",
        "fingerprint",
        "irregular",
        "min_prefix",
        "short",
        "stems",
        "stop",
    )

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.stop = frozenset(data["stop"].split())
        self.common = frozenset(data["common"].split())
        self.short = frozenset(data["short"].split())
        self.min_prefix: int = data["min_prefix"]
        self.fingerprint: str = data["fingerprint"]
        pairs = data["irregular"].split()
        self.irregular = dict(zip(pairs[::2], pairs[1::2], strict=True))
        self.stems: dict[str, str] = {}
        self.abbreviations = {short: words.split("|") for short, words in data["abbreviations"].items()}


class Category:
    """One kind of entry: the folder and the body fields it has, and its place in the order of priority."""

    __slots__ = ("body", "folder", "name", "priority")

    def __init__(self, name: str, data: Mapping[str, Any], priority: int) -> None:
        self.name, self.priority = name, priority
        self.folder: str | None = data["folder"]
        self.body: list[str] = data["body"]


class Profile:
    """How one kind of store is read and ranked; the YAML file explains the values."""

    __slots__ = (
        "background",
        "bm25",
        "categories",
        "confidence",
        "feedback",
        "kind",
        "labels",
        "language",
        "max_bytes",
        "noise_floor",
        "recent_days",
        "version",
        "weights",
    )

    def __init__(self, kind: str, data: Mapping[str, Any], languages: Mapping[str, Language]) -> None:
        self.kind = kind
        self.version: str = data["version"]
        self.language = languages[data["language"]]
        self.categories = {
            name: Category(name, each, place) for place, (name, each) in enumerate(data["categories"].items())
        }
        self.max_bytes: int = data["max_bytes"]
        self.recent_days: float = data["recent_days"]
        self.weights: dict[str, float] = data["weights"]
        self.noise_floor: float = data["noise_floor"]
        self.bm25: dict[str, float] = data["bm25"]
        self.feedback: dict[str, float] = data["feedback"]
        self.background: dict[str, float] = data["background"]
        self.confidence: dict[str, float] = data["confidence"]
        self.labels: dict[str, float] = data["labels"]

    def priority(self, category: str) -> int:
        """Return the place of `category` in the order of priority; an unknown one comes last."""
        known = self.categories.get(category)
        return len(self.categories) if known is None else known.priority


class Profiles:
    """The profile of each kind of store."""

    __slots__ = ("by_kind",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        languages = {name: Language(each) for name, each in data["languages"].items()}
        self.by_kind = {kind: Profile(kind, each, languages) for kind, each in data["profiles"].items()}


def bundled() -> dict[str, Any]:
    """Return what is compiled into the package, to be read only: keys `languages`, `profiles`, `settings`."""
    return bundled_profiles.DATA
