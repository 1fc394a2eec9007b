"""Reads terms from a list or a thesaurus, and adds them to the dimensions in a rubric's own file."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.config import yaml_text
from judgekit.errors import InputError, UsageError
from judgekit.rubric.schema import ScoreRubric
from judgekit.rubric.search_path import read_published
from judgekit.text import lines_of, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from judgekit.rubric.loader import LoadedRubric

_Line: TypeAlias = tuple[str, str, str]
"""The place a term was read from (for errors), the term, and the name of its dimension."""

MOST = 1_000  # terms of one file
MOST_LETTERS = 60  # of a term: remarks don't hold longer ones
_THESAURUS = 'expected a thesaurus, {"name": ..., "data": {TERM: {"id": ..., "nterm": DIMENSION}}}'


def read_terms(path: Path) -> list[tuple[str, str]]:
    """Read (term, name of its dimension) pairs from a list, a thesaurus in JSON or a folder of Markdown.

    Raises `InputError` for a file that can't be read, a folder without terms, and a line that isn't a term.
    """
    if not path.is_dir():
        return parse(_read_text(path), str(path))
    lines = []
    for file in sorted(path.rglob("*.md")):
        if not file.is_symlink():  # a clone's link could lead anywhere
            lines += _parse_page(_read_text(file), file)
    if not lines:
        expected = "expected Markdown files, one a dimension, with lines `synonyms:: TERM, TERM`"
        raise InputError(f"{path}: {expected}; found none in {path}")
    return _check_terms(lines, str(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{path}: cannot be read (not UTF-8)") from None


def _parse_page(text: str, path: Path) -> list[_Line]:
    """Parse a page of a Markdown thesaurus, whose file name is the dimension of the terms it lists.

    Terms stand in lines such as `synonyms:: TERM, TERM`, which may be items of a list.
    """
    lines = []
    for number, line in enumerate(lines_of(text), 1):
        without_bullet = line.strip().lstrip("-* ")
        key, separator, words = without_bullet.partition("::")
        is_list_of_terms = separator and key.strip().casefold() == "synonyms"
        if not is_list_of_terms:
            continue
        for term in words.split(","):
            if term.strip():
                lines.append((f"{path}:{number}", term.strip(), path.stem))
    return lines


def parse(text: str, name: str) -> list[tuple[str, str]]:
    """Parse (term, name of its dimension) pairs from JSON, or from lines `TERM: DIMENSION`.

    `name` is the file's, for errors. Raises `InputError`.
    """
    lines = []
    is_json = text.lstrip().startswith("{")
    if is_json:
        try:
            for term, entry in json.loads(text)["data"].items():
                lines.append((name, term, entry["nterm"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{name}: {_THESAURUS}") from None
    else:
        for number, line in enumerate(lines_of(text), 1):
            is_comment = line.lstrip().startswith("#")
            if line.strip() and not is_comment:
                term, _, dimension = line.rpartition(":")
                lines.append((f"{name}:{number}", term, dimension))
    return _check_terms(lines, name)


def _check_terms(lines: Sequence[_Line], name: str) -> list[tuple[str, str]]:
    """Check that every line has a short term and a dimension, and return these pairs.

    Raises `InputError` for the first line that doesn't, and for too many lines.
    """
    if len(lines) > MOST:
        raise InputError(f"{name}: more than {MOST:,} terms; choose those that name a dimension")
    pairs = []
    for source, term, dimension in lines:
        visible_term = short_line(term, MOST_LETTERS + 1)  # one more shows that it's too long
        name_of_dimension = str(dimension).strip()
        has_letters = any(map(str.isalnum, visible_term))
        is_term = has_letters and len(visible_term) <= MOST_LETTERS
        if not is_term or not name_of_dimension:
            wanted = f"expected TERM: DIMENSION, the term of at most {MOST_LETTERS} characters"
            got = short_line(f"{term}: {dimension}", 100)
            raise InputError(f"{source}: {wanted}, got {got!r}")
        pairs.append((visible_term, name_of_dimension))
    return pairs


def add(
    loaded: LoadedRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Add terms to a rubric's file.

    Returns the terms that were new, by dimension, and how many terms named each dimension that the rubric
    doesn't have. Raises `UsageError` for a published rubric, and for one that doesn't score.
    """
    rubric = loaded.rubric
    if loaded.sha256 in read_published().values():
        command = f"judgekit rubric new my-{rubric.rubric} --from {rubric.ref}"
        raise UsageError(f"{rubric.ref} is published and never changes; copy it first: {command}")
    if not isinstance(rubric, ScoreRubric):
        raise UsageError(
            f"{rubric.ref} is for the task {rubric.task!r}; terms are of rubrics that score"
        )
    added, unknown = _sort_terms(rubric, pairs)

    def add_to_file(data: dict[str, Any]) -> None:
        for name, terms in added.items():
            _put_terms(data["dimensions"], name, terms)

    if added:
        yaml_text.change(loaded.path, add_to_file, "add the terms by hand", "dimensions")
    return added, unknown


def _sort_terms(
    rubric: ScoreRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """List the terms that a rubric doesn't have yet by dimension, and count those of unknown dimensions.

    Names and terms are compared without their case.
    """
    names_by_folded = {}
    known_terms = {}
    for name, dimension in rubric.dimensions.items():
        names_by_folded[name.casefold()] = name
        known_terms[name] = {name.casefold(), *map(str.casefold, dimension.terms)}
    new_terms: dict[str, list[str]] = {}
    unknown = Counter[str]()
    for term, dimension_name in pairs:
        name_in_rubric = names_by_folded.get(dimension_name.casefold())
        if name_in_rubric is None:
            unknown[dimension_name] += 1
        elif term.casefold() not in known_terms[name_in_rubric]:
            known_terms[name_in_rubric].add(term.casefold())
            new_terms.setdefault(name_in_rubric, []).append(term)
    return new_terms, unknown


def _put_terms(dimensions: Any, name: str, terms: Sequence[str]) -> None:  # noqa: ANN401 - the parser's mapping
    """Add terms to a dimension in the data of a rubric's file, so that comments stay in their places."""
    if isinstance(dimensions[name], str):  # written in short, as its question alone
        dimensions[name] = type(dimensions)({"question": dimensions[name]})
    dimension = dimensions[name]
    if not dimension.get("terms"):
        dimension.pop("terms", None)  # an empty list, or no value
        # Second, or first if there's only one other key, but never last: to the parser a comment above the
        # next dimension belongs to the last key of this one.
        position = 1 if len(dimension) > 1 else 0
        dimension.insert(position, "terms", [])
    # At the front: a comment behind the last item of a list belongs to the next key.
    for term in reversed(terms):
        dimension["terms"].insert(0, term)
