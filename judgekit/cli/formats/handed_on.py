"""Shared by reports that are passed on to others: removes secrets, names rules, finds quotes."""

from __future__ import annotations

import hashlib
import os
import re
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias
from urllib.parse import quote

from judgekit.judging.documents import STDIN
from judgekit.redaction.redact import without_secrets
from judgekit.text import format_rubric_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.gate import Report

    Record: TypeAlias = Mapping[str, Any]

_MAX_FILE_BYTES = 64_000_000


class GateRecords(NamedTuple):
    """A run of the gate as records: a verdict for each file, and one about the whole run."""

    verdicts: Sequence[Record]
    run_record: Record


def clean_verdicts(verdicts: Sequence[Record]) -> list[Record]:
    """Return verdict records without the secrets in their text."""
    clean: list[Record] = without_secrets(list(verdicts))
    return clean


def clean_gate(report: Report) -> GateRecords:
    """Build the records of a gate run, without the secrets in their text."""
    # This imports pydantic, which takes longer than an engine takes to judge a document.
    from judgekit.gate.record import build_gate_record

    verdicts = [row["verdict"] for row in report.rows]
    verdicts, run = without_secrets([verdicts, build_gate_record(report)])
    return GateRecords(verdicts, run)


def name_rubric(verdict: Record) -> str:
    """Name the rubric that a verdict follows."""
    return format_rubric_name(verdict["rubric"]["id"], verdict["rubric"].get("source"))


def summarise_verdict(verdict: Record) -> str:
    """Join a verdict's scores, its reasoning, and the reason if it's undetermined or less certain."""
    scores = [f"{name} {value:g}" for name, value in (verdict["scores"] or {}).items()]
    summary_parts = [", ".join(scores), verdict["reasoning"], verdict["degraded"]]
    return "; ".join(summary_part for summary_part in summary_parts if summary_part)


class Checkout(NamedTuple):
    """The repository that a report is about, and the folder that its paths start from."""

    root: Path
    folder: Path

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Find the repository that contains a folder. Outside a repository, use the folder itself."""
        folder = folder.resolve()
        for parent in (folder, *folder.parents):
            if (parent / ".git").exists():
                return cls(parent, folder)
        return cls(folder, folder)

    @classmethod
    def of_current_folder(cls) -> Self:
        """Find the repository around the current folder, since the gate's paths are relative to it."""
        root = cls.of_folder(Path.cwd()).root
        return cls(root, root)

    def name(self, path: str) -> str:
        """Return a file's path relative to the repository, with slashes; unchanged if it's outside."""
        if path == STDIN:
            return path
        absolute_path = Path(os.path.normpath(self.folder / path))
        if absolute_path.is_relative_to(self.root):
            return absolute_path.relative_to(self.root).as_posix()
        return path

    def uri(self, path: str) -> str:
        """Build a file's URI, relative if it's in the repository."""
        absolute_path = Path(os.path.normpath(self.folder / path))
        is_in_repository = absolute_path.is_relative_to(self.root)
        if path == STDIN or is_in_repository:
            return quote(self.name(path))
        return absolute_path.as_uri()

    def read_judged_text(self, subject: Record) -> str:
        """Read a file's text if it's unchanged since it was judged; otherwise return ""."""
        try:
            path = self.folder / str(subject["path"])
            with path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES)  # larger files aren't judged
        except (OSError, ValueError):
            return ""
        if hashlib.sha256(data).hexdigest() != subject["sha256"]:
            return ""
        # The judged text had no byte order mark either.
        return data.decode("utf-8", "replace").removeprefix("\ufeff")


class Place(NamedTuple):
    """A place: a file, and a region in it."""

    path: str
    region: Mapping[str, int]


def find_places(verdict: Record, checkout: Checkout) -> tuple[Place, list[Place]]:
    """Locate a verdict at the top of its first file, and each finding at its quote.

    A finding without a quote that's found is located like the verdict.
    """
    first_path = verdict["subjects"][0]["path"]
    verdict_place = Place(first_path, MappingProxyType({"startLine": 1}))
    text_by_path = {}
    # Without quotes, the files needn't be read.
    if any(finding["quote"] for finding in verdict["findings"]):
        for subject in verdict["subjects"]:
            text_by_path[subject["path"]] = checkout.read_judged_text(subject)
    places = []
    for finding in verdict["findings"]:
        places.append(_find_quote(finding["quote"], text_by_path) or verdict_place)
    return verdict_place, places


def _find_quote(passage: str, texts: Mapping[str, str]) -> Place | None:
    """Find a quote in the first text that contains it; None if none does."""
    for path, text in texts.items():
        region = find_region(passage, text)
        if region is not None:
            return Place(path, region)
    return None


def find_region(passage: str, text: str) -> dict[str, int] | None:
    """Find a quote's region in text, or None. Lines and columns start at 1; the end is exclusive."""
    if not passage.strip():
        return None

    offsets = _find_offsets(passage, text)
    if offsets is None:
        return None

    start, end = offsets
    start_line, start_column = _find_line_and_column(text, start)
    end_line, end_column = _find_line_and_column(text, end)
    return {
        "startLine": start_line,
        "startColumn": start_column,
        "endLine": end_line,
        "endColumn": end_column,
    }


def _find_offsets(passage: str, text: str) -> tuple[int, int] | None:
    """Find a quote's start and end, even if its whitespace differs, or None."""
    start = text.find(passage)
    if start >= 0:
        return start, start + len(passage)

    # Search again with single spaces between words.
    flat_text = " ".join(text.split())
    flat_passage = " ".join(passage.split())
    flat_start = flat_text.find(flat_passage)
    if flat_start < 0:
        return None

    # Convert the offset of the last character, because the one after it may be whitespace.
    flat_last = flat_start + len(flat_passage) - 1
    start = _find_original_offset(text, flat_text, flat_start)
    end = _find_original_offset(text, flat_text, flat_last) + 1
    return start, end


def _find_line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Convert a character's offset to a line and column, starting at 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _find_original_offset(text: str, flat_text: str, flat_offset: int) -> int:
    """Convert an offset in `flat_text`, which has single spaces between words, to one in `text`."""
    word_start = flat_text.rfind(" ", 0, flat_offset) + 1
    offset_in_word = flat_offset - word_start
    # Both texts have the same words, so skip as many.
    words_before = flat_text.count(" ", 0, word_start)
    words = re.finditer(r"\S+", text)
    word = next(islice(words, words_before, None))
    return word.start() + offset_in_word
