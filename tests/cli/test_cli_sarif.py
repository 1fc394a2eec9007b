"""SARIF results have a region: where a finding's quote stands in the judged text, else the first line."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.cli import formats

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "# Title\n\nKeys are rotated\nnever. \u00e9 \U0001f600 end here.\nLast line"
PLACES = [
    ("Keys are rotated", (3, 1, 3, 17)),
    ("Keys are   rotated never.", (3, 1, 4, 7)),
    ("\U0001f600 end", (4, 10, 4, 15)),
    ("Last line", (5, 1, 5, 10)),
]
NOWHERE = ["", "   ", "is not there", "keys are rotated"]


def results(path: Path, quote: str, text: str = TEXT) -> list[dict[str, Any]]:
    path.write_bytes(TEXT.encode())
    finding = {"issue": "no date", "suggestion": "", "quote": quote}
    verdict = {
        "verdict": "reject",
        "rubric": {"id": "kls"},
        "subjects": [{"path": str(path), "sha256": hashlib.sha256(text.encode()).hexdigest()}],
        "scores": None,
        "reasoning": "",
        "degraded": None,
        "findings": [finding],
    }
    found: list[dict[str, Any]] = json.loads(formats.sarif([verdict]))["runs"][0]["results"]
    return found


def region(result: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = result["locations"][0]["physicalLocation"]["region"]
    return found


@pytest.mark.parametrize(("quote", "place"), PLACES)
def test_a_quote_is_found_where_it_stands(quote: str, place: tuple[int, ...], tmp_path: Path) -> None:
    whole, finding = results(tmp_path / "a.md", quote)
    assert tuple(region(finding).values()) == place
    assert list(region(finding)) == ["startLine", "startColumn", "endLine", "endColumn"]
    assert region(whole) == {"startLine": 1}


@pytest.mark.parametrize("quote", NOWHERE)
def test_no_place_is_invented(quote: str, tmp_path: Path) -> None:
    assert [region(result) for result in results(tmp_path / "a.md", quote)] == [{"startLine": 1}] * 2


def test_a_file_that_has_changed_since_has_no_places(tmp_path: Path) -> None:
    found = results(tmp_path / "a.md", "Last line", text="what was judged")
    assert region(found[1]) == {"startLine": 1}
