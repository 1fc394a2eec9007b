"""The gate's flow: changed files in, a word for each out: GO, NO-GO or UNDETERMINED.

Whatever goes wrong here is UNDETERMINED. Only a verdict of models, or a person's override, is anything else.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from judgekit import assess, running
from judgekit.gateway.open import open_gateway
from judgekit.judging.reply_cache import Tally
from judgekit.ledger import Gate, Ledger, LedgerError, OverrideLine, Wanted, verdict_line
from judgekit.ledger.overrides import newest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from judgekit.assess import Wish
    from judgekit.gate.files import Pushed
    from judgekit.judging.documents import DocumentJudge
    from judgekit.judging.subject import Document
    from judgekit.ledger.records import GateMode, GateWord
    from judgekit.verdict import Verdict

AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Passed:
    """What the gate says of one file, and why where no verdict says it: unreadable, or an override."""

    pushed: Pushed
    word: GateWord
    verdict: Verdict | None = None
    override: OverrideLine | None = None
    reason: str = ""


Hears: TypeAlias = "Callable[[Passed], None]"


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Judges the files of one push.

    `rules` is a folder with the project's rules; `budget` is in seconds for all files together. Verdicts
    go to `ledger` as they come, with the `push` they belong to. With `keep_text` they keep models' words,
    and with `any_override` those overrides count that were given without a terminal.
    """

    rules: Path
    wish: Wish
    budget: float
    ledger: Ledger
    push: Gate
    keep_text: bool = False
    any_override: bool = False

    def judge(self, files: Sequence[Pushed], hears: Hears = lambda _: None) -> tuple[list[Passed], list[str]]:
        """Return a word for each file, in their order, and a line for each thing a person should know.

        `hears` is called as each becomes known. Raises `ConfigError` or `UsageError` before a model is asked.
        """
        notes: list[str] = []
        found: dict[tuple[str, str], Passed] = {}

        def settle(passed: Passed) -> None:
            found[_key(passed.pushed)] = passed
            hears(passed)

        asked = []
        given = list(self.ledger.records(Wanted(kinds=[OverrideLine])))
        for each in files:
            if each.document is None:
                settle(Passed(each, "UNDETERMINED", reason=each.reason))
            elif override := newest(
                given,
                each.document.task_id,
                [file.sha256 for file in each.document.files],
                without_terminal=self.any_override,
            ):
                word: GateWord = "GO" if override.decision == "accept" else "NO-GO"
                settle(Passed(each, word, override=override, reason=f"{override.who}: {override.why}"))
            else:
                asked.append(each)
        if asked:
            notes += running.run(self._judge_all(asked, settle))
        return [found[_key(each)] for each in files], list(dict.fromkeys(notes))

    async def _judge_all(self, asked: Sequence[Pushed], settle: Hears) -> list[str]:
        until = time.monotonic() + self.budget
        notes: list[str] = []
        async with aclosing(open_gateway(os.environ)) as gateway:
            judge, reason = assess.document_judge(gateway, self.rules, self.wish)
            if not judge.endpoints:
                for each in asked:
                    settle(Passed(each, "UNDETERMINED", reason=f"nothing was judged: {reason}"))
                return [f"nothing was judged: {reason}"]
            free = asyncio.Semaphore(assess.bearable(judge, AT_ONCE))

            async def one(pushed: Pushed, document: Document) -> None:
                async with free:
                    verdict, kept = await _verdict(judge, document, until)
                line = verdict_line(
                    verdict, text=self.keep_text, gate=self.push.model_copy(update={"cached": kept})
                )
                try:
                    self.ledger.add(line)
                except LedgerError as error:
                    notes.append(str(error))
                settle(Passed(pushed, line.word, verdict))

            async with asyncio.TaskGroup() as group:
                for each in asked:
                    if each.document is not None:
                        group.create_task(one(each, each.document))
        return notes


def _key(pushed: Pushed) -> tuple[str, str]:
    return pushed.change.path, pushed.change.blob


async def _verdict(judge: DocumentJudge, document: Document, until: float) -> tuple[Verdict, bool]:
    """Return a verdict within what is left of the budget, and whether earlier replies sufficed for it."""
    left = min(judge.deadline, until - time.monotonic())
    tally = Tally(judge.cache) if judge.cache else None
    verdict = await replace(judge, deadline=left, cache=tally).judge(document)
    return verdict, tally is not None and tally.sufficed


def blocks(passed: Sequence[Passed], mode: GateMode) -> bool:
    """Whether a push must not leave: a NO-GO while the gate is blocking, and nothing else."""
    return mode == "blocking" and any(each.word == "NO-GO" for each in passed)
