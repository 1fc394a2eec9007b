"""Reads terms from a list or a thesaurus, and adds them to the dimensions in a rubric's own file."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from judgekit.config import yaml_text
from judgekit.errors import InputError, UsageError
from judgekit.rubric.schema import ScoreRubric
from judgekit.rubric.search_path import published
from judgekit.text import lines_of, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgekit.rubric.loader import LoadedRubric

MOST = 1_000  # terms of one file
MOST_LETTERS = 60  # of a term: a remark holds no longer one
_THESAURUS = 'expected a thesaurus, {"name": ..., "data": {TERM: {"id": ..., "nterm": DIMENSION}}}'


def parse(text: str, name: str) -> list[tuple[str, str]]:
    """Return the terms in the file `name`, each with that of its dimension; raises `InputError`."""
    found = []
    if text.lstrip()[:1] == "{":
        try:
            found = [
                (name, term, entry["nterm"]) for term, entry in json.loads(text)["data"].items()
            ]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{name}: {_THESAURUS}") from None
    else:
        for number, line in enumerate(lines_of(text), 1):
            if line.strip() and line.lstrip()[:1] != "#":
                term, _, dimension = line.rpartition(":")
                found.append((f"{name}:{number}", term, dimension))
    if len(found) > MOST:
        raise InputError(f"{name}: more than {MOST:,} terms; choose those that name a dimension")
    pairs = []
    for place, term, dimension in found:
        plain = short_line(term, MOST_LETTERS + 1)
        if (
            not any(map(str.isalnum, plain))
            or len(plain) > MOST_LETTERS
            or not str(dimension).strip()
        ):
            wanted = f"expected TERM: DIMENSION, the term of at most {MOST_LETTERS} characters"
            raise InputError(f"{place}: {wanted}, got {short_line(f'{term}: {dimension}', 100)!r}")
        pairs.append((plain, str(dimension).strip()))
    return pairs


def add(
    loaded: LoadedRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Add terms to a rubric's file; return the new ones by dimension, and counts by unknown dimension."""
    rubric = loaded.rubric
    if loaded.sha256 in published().values():
        own = f"judgekit rubric new my-{rubric.rubric} --from {rubric.ref}"
        raise UsageError(f"{rubric.ref} is published and never changes; copy it first: {own}")
    if not isinstance(rubric, ScoreRubric):
        raise UsageError(
            f"{rubric.ref} is for the task {rubric.task!r}; terms are of rubrics that score"
        )
    names = {name.casefold(): name for name in rubric.dimensions}
    there = {
        name: {*map(str.casefold, (name, *each.terms))} for name, each in rubric.dimensions.items()
    }
    added: dict[str, list[str]] = {}
    unknown = Counter[str]()
    for term, dimension in pairs:
        name = names.get(dimension.casefold())
        if name is None:
            unknown[dimension] += 1
        elif term.casefold() not in there[name]:
            there[name].add(term.casefold())
            added.setdefault(name, []).append(term)

    def change(data: dict[str, Any]) -> None:
        dimensions = data["dimensions"]
        for name, terms in added.items():
            if isinstance(dimensions[name], str):  # a question alone
                dimensions[name] = type(dimensions)({"question": dimensions[name]})
            of = dimensions[name]
            if not of.get("terms"):
                of.pop("terms", None)
                of.insert(min(1, len(of) - 1), "terms", [])
            for term in reversed(
                terms
            ):  # a comment behind the last of a list belongs to what follows
                of["terms"].insert(0, term)

    if added:
        yaml_text.change(loaded.path, change, "add the terms by hand", "dimensions")
    return added, unknown
