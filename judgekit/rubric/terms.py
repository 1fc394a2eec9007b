"""Reads terms from a list or a thesaurus, and adds them to the dimensions in a rubric's own file."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.config import yaml_text
from judgekit.errors import InputError, UsageError
from judgekit.rubric.schema import ScoreRubric
from judgekit.rubric.search_path import published
from judgekit.text import lines_of, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from judgekit.rubric.loader import LoadedRubric

_Line: TypeAlias = tuple[str, str, str]
"""Where a term stands, the term, and its dimension."""

MOST = 1_000  # terms of one file
MOST_LETTERS = 60  # of a term: remarks don't hold longer ones
_THESAURUS = 'expected a thesaurus, {"name": ..., "data": {TERM: {"id": ..., "nterm": DIMENSION}}}'


def read_terms(path: Path) -> list[tuple[str, str]]:
    """Read terms, each with the name of its dimension, from a list, a thesaurus or a folder of Markdown.

    Raises `InputError` for a file that's unreadable or contains no terms.
    """
    if not path.is_dir():
        return parse(_read_text(path), str(path))
    lines = []
    for file in sorted(path.rglob("*.md")):
        if not file.is_symlink():  # one that came with a clone could lead anywhere
            lines += _parse_page(_read_text(file), file)
    if not lines:
        expected = "expected Markdown files, one a dimension, with lines `synonyms:: TERM, TERM`"
        raise InputError(f"{path}: {expected}; found none in {path}")
    return _check(lines, str(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{path}: cannot be read (not UTF-8)") from None


def _parse_page(text: str, path: Path) -> list[_Line]:
    """Parse a page of a Markdown thesaurus: its name is the dimension, and it lists other words for it."""
    lines = []
    for number, line in enumerate(lines_of(text), 1):
        key, separator, words = line.strip().lstrip("-* ").partition("::")
        if not separator or key.strip().casefold() != "synonyms":
            continue
        for term in words.split(","):
            if term.strip():
                lines.append((f"{path}:{number}", term.strip(), path.stem))
    return lines


def parse(text: str, name: str) -> list[tuple[str, str]]:
    """Return the terms in the file `name`, each with that of its dimension; raises `InputError`."""
    lines = []
    if text.lstrip()[:1] == "{":
        try:
            for term, entry in json.loads(text)["data"].items():
                lines.append((name, term, entry["nterm"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{name}: {_THESAURUS}") from None
    else:
        for number, line in enumerate(lines_of(text), 1):
            if line.strip() and line.lstrip()[:1] != "#":
                term, _, dimension = line.rpartition(":")
                lines.append((f"{name}:{number}", term, dimension))
    return _check(lines, name)


def _check(lines: Sequence[_Line], name: str) -> list[tuple[str, str]]:
    """Check that terms and dimensions fit on one line each; raises `InputError` for any that don't."""
    if len(lines) > MOST:
        raise InputError(f"{name}: more than {MOST:,} terms; choose those that name a dimension")
    pairs = []
    for place, term, dimension in lines:
        plain = short_line(term, MOST_LETTERS + 1)
        name_of_dimension = str(dimension).strip()
        is_term = any(map(str.isalnum, plain)) and len(plain) <= MOST_LETTERS
        if not is_term or not name_of_dimension:
            wanted = f"expected TERM: DIMENSION, the term of at most {MOST_LETTERS} characters"
            got = short_line(f"{term}: {dimension}", 100)
            raise InputError(f"{place}: {wanted}, got {got!r}")
        pairs.append((plain, name_of_dimension))
    return pairs


def add(
    loaded: LoadedRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Add terms to a rubric's file; return the new ones by dimension, and counts by unknown dimension."""
    rubric = loaded.rubric
    if loaded.sha256 in published().values():
        command = f"judgekit rubric new my-{rubric.rubric} --from {rubric.ref}"
        raise UsageError(f"{rubric.ref} is published and never changes; copy it first: {command}")
    if not isinstance(rubric, ScoreRubric):
        raise UsageError(
            f"{rubric.ref} is for the task {rubric.task!r}; terms are of rubrics that score"
        )
    names = {}
    terms_by_name = {}
    for name, dimension in rubric.dimensions.items():
        names[name.casefold()] = name
        terms_by_name[name] = {*map(str.casefold, (name, *dimension.terms))}
    added: dict[str, list[str]] = {}
    unknown = Counter[str]()
    for term, word in pairs:
        known_name = names.get(word.casefold())
        if known_name is None:
            unknown[word] += 1
        elif term.casefold() not in terms_by_name[known_name]:
            terms_by_name[known_name].add(term.casefold())
            added.setdefault(known_name, []).append(term)

    def change(data: dict[str, Any]) -> None:
        dimensions = data["dimensions"]
        for name, terms in added.items():
            if isinstance(dimensions[name], str):  # only a question
                dimensions[name] = type(dimensions)({"question": dimensions[name]})
            dimension = dimensions[name]
            if not dimension.get("terms"):
                dimension.pop("terms", None)
                dimension.insert(min(1, len(dimension) - 1), "terms", [])
            # A comment behind the last item of a list belongs to the next key.
            for term in reversed(terms):
                dimension["terms"].insert(0, term)

    if added:
        yaml_text.change(loaded.path, change, "add the terms by hand", "dimensions")
    return added, unknown
