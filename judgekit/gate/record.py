"""The record of a whole run of the gate: the files judged, skipped with reasons, and not examined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from judgekit.gate import WORDS
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from judgekit.gate import Omission, Report


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SkipGroupRecord(_Record):
    """The number of files or refs not judged for one reason, and the names of the first hundred."""

    reason: str
    count: int
    names: list[str]


class OmissionRecord(_Record):
    """A file or a ref that wasn't examined, and the reason."""

    name: str
    reason: str


class GateRecord(_Record):
    """A run of the gate.

    `verdict` is the gravest word of all files. It's UNDETERMINED if something wasn't examined, and null if
    there was nothing to judge. `judged` counts, by word, the files that models or a person decided about.
    `holds`: anything not examined or UNDETERMINED stops the push. `fault`: nothing could be judged.
    """

    schema_: Literal["judgekit/gate@1"] = Field(default="judgekit/gate@1", alias="schema")
    verdict: Literal["GO", "NO-GO", "UNDETERMINED"] | None
    mode: Literal["advisory", "blocking"]
    blocked: bool
    holds: bool
    fault: bool
    judged: dict[Literal["GO", "NO-GO", "UNDETERMINED"], int]
    skipped: list[SkipGroupRecord]
    not_examined: list[OmissionRecord]
    notes: list[str]


def build_gate_record(report: Report) -> dict[str, Any]:
    """Build the JSON record of a run: its verdict, how many files got which one, and the files not judged."""
    words = [row["word"] for row in report.judged_rows]  # such as GO or NO-GO
    # In advisory mode nothing stops a push, even if the rules say that undetermined files do.
    undetermined_blocks = report.mode == "blocking" and report.holds

    record = GateRecord(
        verdict=report.word,
        mode=report.mode,
        blocked=report.is_blocked,
        holds=undetermined_blocks,
        fault=report.fault,
        judged={word: words.count(word) for word in WORDS},
        skipped=[SkipGroupRecord(**group) for group in report.skipped],
        not_examined=[_make_omission_record(omission) for omission in report.not_examined],
        notes=[replace_surrogates(note) for note in report.notes],
    )
    return record.model_dump(mode="json", by_alias=True)


def _make_omission_record(omission: Omission) -> OmissionRecord:
    """Convert an omission to its record."""
    return OmissionRecord(name=omission["name"], reason=replace_surrogates(omission["reason"]))
