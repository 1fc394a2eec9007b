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

MAX_TERMS = 1_000  # per file
MAX_TERM_LENGTH = 60  # characters; longer terms don't occur in remarks
_INVALID_THESAURUS = (
    'expected a thesaurus, {"name": ..., "data": {TERM: {"id": ..., "nterm": DIMENSION}}}'
)


def read_terms(path: Path) -> list[tuple[str, str]]:
    """Read (term, dimension name) pairs from a list, a JSON thesaurus or a folder of Markdown files.

    Raises `InputError` for an unreadable file, a folder without terms, or an invalid term.
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
    return _check_terms(lines, str(path))


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
    for number, line in enumerate(lines_of(text), 1):
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
    lines = []  # tuples of the source for errors, the term and the dimension
    is_json = text.lstrip().startswith("{")
    if is_json:
        try:
            for term, entry in json.loads(text)["data"].items():
                lines.append((name, term, entry["nterm"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{name}: {_INVALID_THESAURUS}") from None
    else:
        for number, line in enumerate(lines_of(text), 1):
            is_comment = line.lstrip().startswith("#")
            if line.strip() and not is_comment:
                term, _, dimension = line.rpartition(":")
                lines.append((f"{name}:{number}", term, dimension))

    return _check_terms(lines, name)


def _check_terms(lines: Sequence[_Line], name: str) -> list[tuple[str, str]]:
    """Check that every line has a valid term and a dimension. Returns pairs of term and dimension.

    Line breaks in a term become spaces. `name` is the file name for errors. Raises `InputError` for an
    invalid line, or for too many lines.
    """
    if len(lines) > MAX_TERMS:
        raise InputError(
            f"{name}: more than {MAX_TERMS:,} terms; choose those that name a dimension"
        )

    pairs = []
    for source, term, dimension in lines:
        # Shorten to one character more than allowed, so that the check below still notices a long term.
        visible_term = short_line(term, MAX_TERM_LENGTH + 1)
        dimension_name = str(dimension).strip()
        has_letters = any(map(str.isalnum, visible_term))
        is_term = has_letters and len(visible_term) <= MAX_TERM_LENGTH

        if not is_term or not dimension_name:
            wanted = f"expected TERM: DIMENSION, the term of at most {MAX_TERM_LENGTH} characters"
            got = short_line(f"{term}: {dimension}", 100)
            raise InputError(f"{source}: {wanted}, got {got!r}")
        pairs.append((visible_term, dimension_name))
    return pairs


def add_terms(
    loaded: LoadedRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Add (term, dimension name) pairs to a rubric's file.

    Returns the new terms by dimension and, for each unknown dimension, the number of terms given for it.
    Raises `UsageError` if the rubric is published or isn't a scoring rubric.
    """
    rubric = loaded.rubric
    if loaded.sha256 in read_published().values():
        command = f"judgekit rubric new my-{rubric.rubric} --from {rubric.ref}"
        raise UsageError(f"{rubric.ref} is published and never changes; copy it first: {command}")

    if not isinstance(rubric, ScoreRubric):
        raise UsageError(
            f"{rubric.ref} is for the task {rubric.task!r}; terms are of rubrics that score"
        )

    added, unknown = _group_new_terms(rubric, pairs)

    def add_to_file(data: dict[str, Any]) -> None:
        for name, terms in added.items():
            _insert_terms(data["dimensions"], name, terms)

    if added:
        yaml_text.change(loaded.path, add_to_file, "add the terms by hand", "dimensions")
    return added, unknown


def _group_new_terms(
    rubric: ScoreRubric, pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], Counter[str]]:
    """Group new terms by dimension. Skips terms that the dimension already has, ignoring case.

    Also returns, for each unknown dimension, the number of terms given for it.
    """
    names_by_casefolded = {}  # by casefolded name: the dimension's name in the rubric
    known_terms = {}  # by dimension: its casefolded terms, including its name
    for name, dimension in rubric.dimensions.items():
        names_by_casefolded[name.casefold()] = name
        known_terms[name] = {name.casefold(), *map(str.casefold, dimension.terms)}

    new_terms: dict[str, list[str]] = {}
    unknown = Counter[str]()
    for term, given_name in pairs:
        name = names_by_casefolded.get(given_name.casefold(), "")
        if not name:
            unknown[given_name] += 1
        elif term.casefold() not in known_terms[name]:
            known_terms[name].add(term.casefold())
            new_terms.setdefault(name, []).append(term)
    return new_terms, unknown


def _insert_terms(dimensions: Any, name: str, terms: Sequence[str]) -> None:  # noqa: ANN401 - the parser's mapping
    """Insert terms into the dimension `name` of a parsed rubric file, so that comments stay in place."""
    # Expand the short form of a dimension, which is just the question.
    if isinstance(dimensions[name], str):
        mapping_type = type(dimensions)  # the YAML parser's, which preserves comments
        dimensions[name] = mapping_type({"question": dimensions[name]})
    dimension = dimensions[name]

    # Create the list, but not as the last key. The parser attaches a comment above the next dimension to the
    # last key of this one, so a new last key would come after that comment.
    if not dimension.get("terms"):
        dimension.pop("terms", None)  # an empty list or null
        position = 1 if len(dimension) > 1 else 0
        dimension.insert(position, "terms", [])

    # Insert at the front, because the parser attaches a comment after the list to the list's last item.
    for term in reversed(terms):
        dimension["terms"].insert(0, term)
