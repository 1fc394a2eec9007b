"""Whether anyone but the author's own family is behind an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Whether an acceptance may rest on the author's own family alone.
Independence: TypeAlias = Literal["prefer", "require"]


def is_independent(
    author_families: Collection[str], judging_families: Collection[str]
) -> bool | None:
    """Whether an outcome is supported by a model of a different family than those that wrote the text.

    `judging_families` are the families of the supporting models. Returns None if the answer isn't known.
    """
    known_authors = [family for family in author_families if family != UNKNOWN_FAMILY]
    if not known_authors or not judging_families:
        return None

    other_families = [family for family in judging_families if family not in known_authors]
    if not other_families:
        return False

    # An unknown family could be the same as another, so all authors and one of the others must be known.
    all_authors_are_known = UNKNOWN_FAMILY not in author_families
    has_known_other = any(family != UNKNOWN_FAMILY for family in other_families)
    if all_authors_are_known and has_known_other:
        return True
    return None


def explain_independence_problem(
    independence: Independence, author_families: Sequence[str], judging_families: Collection[str]
) -> str | None:
    """Explain in one line why an acceptance by these families isn't independent, or return None if it is."""
    if independence == "prefer" or not author_families:
        return None
    if is_independent(author_families, judging_families):
        return None
    families = ", ".join(author_families)
    return (
        f"accepted only by models of the author's family ({families}) or of an unknown one, but "
        "judge.independence is require; judgekit provider list shows the usable models, and families in "
        "a provider's profile names their families"
    )
