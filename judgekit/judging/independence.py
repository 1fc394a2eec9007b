"""Whether anyone but the author's own family is behind an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Whether an acceptance may rest on the author's own family alone.
Independence: TypeAlias = Literal["prefer", "require"]


def is_independent(author_families: Collection[str], judged: Collection[str]) -> bool | None:
    """Whether a family other than the author's is behind the outcome; None if that isn't known."""
    named_families = set(author_families) - {UNKNOWN_FAMILY}
    if not named_families or not judged:
        return None
    if set(judged) <= named_families:
        return False
    others = set(judged) - named_families - {UNKNOWN_FAMILY}
    if others and UNKNOWN_FAMILY not in author_families:
        return True
    return None


def independence_problem(
    independence: Independence, author_families: Sequence[str], judged: Collection[str]
) -> str | None:
    """Explain in one line why an acceptance by `judged` may not stand; None if it may."""
    if independence == "prefer" or not author_families or is_independent(author_families, judged):
        return None
    families = ", ".join(author_families)
    return (
        f"accepted only by models of the author's family ({families}) or of an unknown one, but "
        "judge.independence is require; judgekit provider list shows the usable models, and families in "
        "a provider's profile names their families"
    )
