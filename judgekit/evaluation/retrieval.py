"""Measures retrieval on a labelled collection: searches for every query, and says how good that was."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from judgekit.evaluation import figures
from judgekit.evaluation.collection import scope
from judgekit.evaluation.figures import Seen
from judgekit.evaluation.report import ProfileUsed, Report
from judgekit.evaluation.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.evaluation.collection import Collection, Document
    from judgekit.retrieval.compiled import Profile

DEPTH = 100  # of the rankings that are measured
_EVERYTHING = ""


def search(
    collection: Collection,
    profile: Profile,
    *,
    scoped: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Seen]:
    """Return what each query finds; with `scoped` only among the documents of its own scope.

    Every scope is a store by itself, with statistics of its own. `progress` is told how many queries are
    done. Raises `UsageError` where SQLite cannot search.
    """
    with ExitStack() as stack:
        stores = {
            name: stack.enter_context(closing(Store(documents, profile)))
            for name, documents in _by_scope(collection.documents, scoped=scoped).items()
        }
        names, seen = sorted(stores), []
        for done, query in enumerate(collection.queries, 1):
            name = scope(query.id) if scoped else _EVERYTHING
            own, other = stores.get(name), following(name, names)
            ranking = own.ranking(query.text, DEPTH) if own else []
            candidates = own.candidates(query.text, figures.POOL) if own else []
            elsewhere = stores[other].candidates(query.text, figures.POOL) if other is not None else None
            seen.append(Seen(query.id, ranking, candidates, elsewhere))
            progress(done)
    return seen


def report(collection: Collection, profile: Profile, seen: Sequence[Seen], *, scoped: bool = False) -> Report:
    """Return how good it is what the queries found."""
    grades = collection.grades
    return Report(
        collection=collection.name,
        documents=len(collection.documents),
        scopes=len(_by_scope(collection.documents, scoped=True)) if scoped else None,
        queries=len(seen),
        judged=sum(each.query in grades for each in seen),
        strays=collection.strays,
        profile=ProfileUsed(retrieval=profile.kind, version=profile.version),
        depth=DEPTH,
        metrics=figures.metrics_of(seen, grades),
        confidence=figures.confidence_of(seen, grades),
        injection=figures.injection_of(seen, grades),
        elsewhere=figures.elsewhere_of(seen),
    )


def following(name: str, names: Sequence[str]) -> str | None:
    """Return the name after `name` in a sorted list, after the last one the first; None without another."""
    others = [each for each in names if each != name]
    return next((each for each in others if each > name), others[0] if others else None)


def _by_scope(documents: Iterable[Document], *, scoped: bool) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = {}
    for each in documents:
        found.setdefault(scope(each.id) if scoped else _EVERYTHING, []).append(each)
    return found
