"""Whether anyone but the author's own family is behind an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Whether an acceptance may rest on the author's own family alone.
Independence: TypeAlias = Literal["prefer", "require"]


def is_independent(author_families: Collection[str], judged: Collection[str]) -> bool | None:
    """Whether a family other than the author's is behind the outcome; None if that isn't known.

    `judged` are the families behind the outcome. Any of them, or of the author's, may be unknown.
    """
    known_authors = set(author_families) - {UNKNOWN_FAMILY}
    if not known_authors or not judged:
        return None
    if set(judged) <= known_authors:
        return False
    known_others = set(judged) - known_authors - {UNKNOWN_FAMILY}
    if known_others and UNKNOWN_FAMILY not in author_families:
        return True
    return None


def independence_problem(
    independence: Independence, author_families: Sequence[str], judged: Collection[str]
) -> str | None:
    """Explain in one line why an acceptance by the families in `judged` may not stand; None if it may.

    It may if independence is only preferred, no author's family is known, or another family is behind it.
    """
    if independence == "prefer" or not author_families:
        return None
    if is_independent(author_families, judged):
        return None
    families = ", ".join(author_families)
    return (
        f"accepted only by models of the author's family ({families}) or of an unknown one, but "
        "judge.independence is require; judgekit provider list shows the usable models, and families in "
        "a provider's profile names their families"
    )
