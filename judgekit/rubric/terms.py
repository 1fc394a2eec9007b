"""Reads terms from a list or a thesaurus, and adds them to the dimensions in a rubric's own file."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.config import yaml_text
from judgekit.errors import InputError, UsageError
from judgekit.rubric.schema import ScoreRubric
from judgekit.rubric.search_path import read_published
from judgekit.text import shorten_to_line, split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from judgekit.rubric.loader import LoadedRubric

_Line: TypeAlias = tuple[str, str, str]
"""The place a term was read from (for errors), the term, and the name of its dimension."""

MAX_TERMS = 1_000  # per file
MAX_TERM_LENGTH = 60  # characters; longer terms don't occur in remarks
_INVALID_THESAURUS_MESSAGE = (
    'expected a thesaurus, {"name": ..., "data": {TERM: {"id": ..., "nterm": DIMENSION}}}'
)


def read_terms(path: Path) -> list[tuple[str, str]]:
    """Read (term, dimension name) pairs from a file or from a folder of Markdown files.

    A file is a JSON thesaurus, or has lines like `TERM: DIMENSION`. Raises `InputError` for an unreadable
    file, a folder without terms, or an invalid term.
    """
    if not path.is_dir():
        return parse(_read_text(path), str(path))

    lines = []
    for file in sorted(path.rglob("*.md")):
        if not file.is_symlink():  # in an untrusted clone, a link could point anywhere
            lines += _parse_page(_read_text(file), file)

    if not lines:
        expected = "expected Markdown files, one a dimension, with lines `synonyms:: TERM, TERM`"
        raise InputError(f"{path}: {expected}; found none in {path}")
    return _check_lines(lines, str(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{path}: cannot be read (not UTF-8)") from None


def _parse_page(text: str, path: Path) -> list[_Line]:
    """Parse a page of a Markdown thesaurus. All terms on the page belong to the dimension in its file name.

    Terms are in lines such as `synonyms:: TERM, TERM`, with or without a list bullet. Returns tuples of
    "FILE:LINE", term and dimension.
    """
    lines = []
    for number, line in enumerate(split_lines(text), 1):
        without_bullet = line.strip().lstrip("-* ")
        key, separator, terms = without_bullet.partition("::")
        is_synonyms_line = separator and key.strip().casefold() == "synonyms"
        if not is_synonyms_line:
            continue

        for term in terms.split(","):
            if term.strip():
                lines.append((f"{path}:{number}", term.strip(), path.stem))

    return lines


def parse(text: str, name: str) -> list[tuple[str, str]]:
    """Parse (term, dimension name) pairs from a JSON thesaurus or from lines like `TERM: DIMENSION`.

    `name` is the file name to use in errors. Raises `InputError` if the text is invalid.
    """
    is_json = text.lstrip().startswith("{")
    lines = _parse_thesaurus(text, name) if is_json else _parse_lines(text, name)
    return _check_lines(lines, name)


def _parse_thesaurus(text: str, name: str) -> list[_Line]:
    """Parse a JSON thesaurus such as `{"data": {TERM: {"nterm": DIMENSION}}}`.

    Returns tuples of file name, term and dimension. Raises `InputError` for any other structure.
    """
    lines = []
    try:
        for term, entry in json.loads(text)["data"].items():
            lines.append((name, term, entry["nterm"]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # The file can hold any JSON, so each step above can fail in its own way.
        raise InputError(f"{name}: {_INVALID_THESAURUS_MESSAGE}") from None
    return lines


def _parse_lines(text: str, name: str) -> list[_Line]:
    """Parse lines like `TERM: DIMENSION`, without blank lines and `#` comments.

    Returns tuples of "FILE:LINE", term and dimension.
    """
    lines = []
    for number, line in enumerate(split_lines(text), 1):
        is_blank = not line.strip()
        is_comment = line.lstrip().startswith("#")
        if is_blank or is_comment:
            continue
        term, _, dimension = line.rpartition(":")  # a term may contain colons
        lines.append((f"{name}:{number}", term, dimension))
    return lines


def _check_lines(lines: Sequence[_Line], name: str) -> list[tuple[str, str]]:
    """Check lines, and return their (term, dimension name) pairs.

    `name` is the file name for errors. Raises `InputError` for an invalid line, or for too many lines.
    """
    if len(lines) > MAX_TERMS:
        raise InputError(
            f"{name}: more than {MAX_TERMS:,} terms; choose those that name a dimension"
        )
    return [_check_line(location, term, dimension) for location, term, dimension in lines]


def _check_line(location: str, term: str, dimension: object) -> tuple[str, str]:
    """Tidy up and check a line's term and dimension name. `location` is the line's place, for errors.

    Raises `InputError` if the term is too long or has no letter or digit, or if there's no dimension.
    """
    # Allow one character too many here. Otherwise, a long term would be cut to an allowed one.
    one_line_term = shorten_to_line(term, MAX_TERM_LENGTH + 1)
    dimension_name = str(dimension).strip()

    has_letter_or_digit = any(map(str.isalnum, one_line_term))
    is_short = len(one_line_term) <= MAX_TERM_LENGTH
    has_dimension = dimension_name != ""
    if has_letter_or_digit and is_short and has_dimension:
        return one_line_term, dimension_name

    wanted = f"expected TERM: DIMENSION, the term of at most {MAX_TERM_LENGTH} characters"
    got = shorten_to_line(f"{term}: {dimension}", 100)
    raise InputError(f"{location}: {wanted}, got {got!r}")


def add_terms(
    loaded: LoadedRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Add (term, dimension name) pairs to a rubric's file.

    Returns the new terms by dimension and, for each unknown dimension, the number of terms given for it.
    Raises `UsageError` if the rubric is published or isn't a scoring rubric.
    """
    rubric = loaded.rubric
    is_published = loaded.sha256 in read_published().values()
    if is_published:
        rubric_id = rubric.rubric
        command = f"judgekit rubric new my-{rubric_id} --from {rubric.ref}"
        raise UsageError(f"{rubric.ref} is published and never changes; copy it first: {command}")

    if not isinstance(rubric, ScoreRubric):
        raise UsageError(
            f"{rubric.ref} is for the task {rubric.task!r}; terms are of rubrics that score"
        )

    new_terms, unknown = _group_new_terms(rubric, pairs)
    if new_terms:
        _write_terms(loaded.path, new_terms)
    return new_terms, unknown


def _write_terms(path: Path, terms_by_dimension: Mapping[str, Sequence[str]]) -> None:
    """Insert terms into a rubric file, preserving its comments and layout."""

    def insert_all(data: dict[str, Any]) -> None:
        for name, terms in terms_by_dimension.items():
            _insert_terms(data["dimensions"], name, terms)

    yaml_text.change(path, insert_all, remedy="add the terms by hand", key="dimensions")


def _group_new_terms(
    rubric: ScoreRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Group new terms by dimension. Skips terms that the dimension already has, ignoring case.

    Also returns, for each unknown dimension, the number of terms given for it.
    """
    name_by_folded_name = {name.casefold(): name for name in rubric.dimensions}
    known_terms = _list_known_terms(rubric)
    new_terms: dict[str, list[str]] = {}
    unknown = Counter[str]()

    for term, given_name in pairs:
        name = name_by_folded_name.get(given_name.casefold())
        if name is None:
            unknown[given_name] += 1
            continue

        folded_term = term.casefold()
        if folded_term not in known_terms[name]:
            known_terms[name].add(folded_term)
            new_terms.setdefault(name, []).append(term)
    return new_terms, unknown


def _list_known_terms(rubric: ScoreRubric) -> dict[str, set[str]]:
    """Map each dimension to its casefolded terms. A dimension's name counts as one of its terms."""
    known_terms = {}
    for name, dimension in rubric.dimensions.items():
        name_and_terms = [name, *dimension.terms]
        known_terms[name] = {term.casefold() for term in name_and_terms}
    return known_terms


def _insert_terms(dimensions: Any, name: str, terms: Sequence[str]) -> None:  # noqa: ANN401 - the parser's mapping
    """Insert terms into the dimension `name` of a parsed rubric file. All comments stay in place."""
    # The short form of a dimension is only its question, and has no place for terms.
    _expand_question(dimensions, name)
    dimension = dimensions[name]
    if not dimension.get("terms"):
        _add_empty_terms(dimension)

    # If a comment follows the list, the parser keeps it with the last item. That item has to stay last, so
    # insert at the front.
    for term in reversed(terms):
        dimension["terms"].insert(0, term)


def _expand_question(dimensions: Any, name: str) -> None:  # noqa: ANN401 - the parser's mapping
    """Expand a dimension in the short form, `NAME: QUESTION`, to a mapping with the key `question`."""
    dimension = dimensions[name]
    if isinstance(dimension, str):
        mapping_type = type(dimensions)  # the YAML parser's, which preserves comments
        dimensions[name] = mapping_type({"question": dimension})


def _add_empty_terms(dimension: Any) -> None:  # noqa: ANN401 - the parser's mapping
    """Add an empty list of terms to a dimension without terms."""
    dimension.pop("terms", None)  # the key can be there already, with an empty list or null

    # If a comment follows the dimension, the parser keeps it with the last key. That key has to stay last, so
    # insert the terms before it.
    has_several_keys = len(dimension) > 1
    position = 1 if has_several_keys else 0
    dimension.insert(position, "terms", [])
