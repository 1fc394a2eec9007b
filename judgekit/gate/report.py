"""What a run of the gate came to, as plain objects: the same whether this process ran it or the engine did.

Free of pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOPS = "NO-GO"


class Row(TypedDict):
    """What the gate says of one file; `lost` where the ledger should know it and could not be written.

    `author` is who wrote the `commit`, and `verdict` a record as `judgekit schema verdict` describes it.
    """

    path: str
    word: str
    commit: str
    author: str
    lost: bool
    verdict: Mapping[str, Any]


class Report(NamedTuple):
    """A row for each file, the mode that held, and lines for a person.

    `escalate` is the section of the configuration that says which verdicts become issues.
    """

    rows: Sequence[Row]
    mode: str
    notes: Sequence[str]
    escalate: Mapping[str, Any]

    @property
    def blocked(self) -> bool:
        """Whether the push must not leave: a NO-GO while the gate is blocking, and nothing else."""
        return self.mode == "blocking" and any(each["word"] == STOPS for each in self.rows)
