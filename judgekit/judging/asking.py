"""The asker for each kind of model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.judging.decisions import Decider
from judgekit.judging.kinds import DECIDES, READS_TOKENS, WRITES, ModelKind
from judgekit.judging.pointwise import TokenReader
from judgekit.judging.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.judging.questionnaire import Asker

ASKERS: Mapping[ModelKind, Asker] = {
    WRITES: Writer(),
    DECIDES: Decider(),
    READS_TOKENS: TokenReader(),
}
