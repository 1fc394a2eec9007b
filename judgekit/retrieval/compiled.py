"""The retrieval profiles as the hook reads them: checked and compiled beforehand, see profiles.py."""

from __future__ import annotations

from judgekit.retrieval import bundled_profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

BUNDLED = bundled_profiles.__file__
_DATA: dict[str, Any] = bundled_profiles.DATA
KINDS = tuple(_DATA["profiles"])  # of stores
ENDINGS = tuple(_DATA["endings"])  # of files that can be in a store


class Language:
    """What the words of a language are worth as search terms.

    `fingerprint` is another one when texts would be indexed differently. `stems` remembers the words that
    were cut before.
    """

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

    kind: str
    version: str
    language: Language
    categories: dict[str, Category]
    max_bytes: int
    recent_days: float
    noise_floor: float
    weights: dict[str, float]
    bm25: dict[str, float]
    feedback: dict[str, float]
    background: dict[str, float]
    confidence: dict[str, float]
    labels: dict[str, float]

    def __init__(self, kind: str, data: Mapping[str, Any], languages: Mapping[str, Language]) -> None:
        self.__dict__.update(data)
        self.kind, self.language = kind, languages[data["language"]]
        self.categories = {
            name: Category(name, category, place)
            for place, (name, category) in enumerate(data["categories"].items())
        }

    def priority(self, category: str) -> int:
        """Return the place of `category` in the order of priority; an unknown one comes last."""
        known = self.categories.get(category)
        return len(self.categories) if known is None else known.priority


class Profiles:
    """The profile of each kind of store."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        languages = {name: Language(words) for name, words in data["languages"].items()}
        self.by_kind = {kind: Profile(kind, each, languages) for kind, each in data["profiles"].items()}


def bundled() -> dict[str, Any]:
    """Return what is compiled into the package, to be read only: keys `languages`, `profiles`, `settings`."""
    return _DATA
