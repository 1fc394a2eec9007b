"""The gate's flow: changed files in, a word for each out: GO, NO-GO or UNDETERMINED.

Whatever goes wrong here is UNDETERMINED. Only a verdict of models, or a person's override, is anything else.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from judgekit import assess, environment, running
from judgekit.assess import Wish
from judgekit.gate import unjudged
from judgekit.gate.report import Row
from judgekit.gateway.open import open_gateway
from judgekit.judging.reply_cache import Tally
from judgekit.ledger import Gate, Ledger, LedgerError, OverrideLine, Wanted, verdict_line
from judgekit.ledger.overrides import newest
from judgekit.ledger.records import word_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from judgekit.gate.files import Pushed
    from judgekit.judging.documents import DocumentJudge
    from judgekit.judging.subject import Document
    from judgekit.ledger.records import GateWord, Record
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName
    from judgekit.verdict import Verdict

AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Passed:
    """What the gate says of one file; `lost` where that should be in the ledger and could not be written."""

    pushed: Pushed
    word: GateWord
    verdict: Verdict
    lost: bool = False

    def row(self) -> Row:
        """Return it as plain objects."""
        commit = self.pushed.change.commit
        author = commit.author.partition(" <")[0]
        return Row(
            path=self.pushed.path,
            word=self.word,
            commit=commit.oid,
            author=author,
            lost=self.lost,
            verdict=self.verdict.record(),
        )


Hears: TypeAlias = "Callable[[Passed], None]"


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """Judges the files of one push under a rubric in a mode, as far as `rules`, a project's folder, say.

    `budget` is in seconds for all files together. Verdicts go to `ledger` as they come, with the `push` they
    belong to. With `keep_text` they keep models' words, and with `any_override` those overrides count that
    were given without a terminal. Verdicts of the same `run` on the same file have the same id.
    """

    rules: Path
    loaded: LoadedRubric
    mode: ModeName
    budget: float
    ledger: Ledger
    push: Gate
    keep_text: bool = False
    any_override: bool = False
    run: str = ""

    def judge(self, files: Sequence[Pushed], hears: Hears = lambda _: None) -> tuple[list[Passed], list[str]]:
        """Return a word for each file, in their order, and a line for each thing a person should know.

        `hears` is called as each becomes known. Raises `ConfigError` before a model is asked.
        """
        found: dict[tuple[str, str], Passed] = {}

        def settle(passed: Passed) -> None:
            found[_key(passed.pushed)] = passed
            hears(passed)

        given = list(self.ledger.records(Wanted(kinds=[OverrideLine])))
        asked: list[tuple[Pushed, Document]] = []
        for each in files:
            override = self._override(given, each)
            if each.document is None or override:
                settle(self._unjudged(each, each.reason, override))
            else:
                asked.append((each, each.document))
        notes = running.run(self._judge_all(asked, settle)) if asked else []
        return [found[_key(each)] for each in files], list(dict.fromkeys(notes))

    def _override(self, given: Sequence[Record], pushed: Pushed) -> OverrideLine | None:
        if pushed.document is None:
            return None
        hashes = [file.sha256 for file in pushed.document.files]
        return newest(given, pushed.document.task_id, hashes, without_terminal=self.any_override)

    def _unjudged(self, pushed: Pushed, reason: str, override: OverrideLine | None = None) -> Passed:
        found = unjudged.verdict(pushed, self.loaded, self.mode, reason, override)
        return Passed(pushed, word_of(found.verdict), found)

    async def _judge_all(self, asked: Sequence[tuple[Pushed, Document]], settle: Hears) -> list[str]:
        until = time.monotonic() + self.budget
        notes: list[str] = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            wish = Wish(str(self.loaded.path), self.mode)
            judge, who = assess.document_judge(gateway, self.rules, wish)
            if not judge.can_judge:  # no measurement, so nothing for the ledger
                for pushed, _ in asked:
                    settle(self._unjudged(pushed, f"nothing was judged: {who}"))
                return [f"nothing was judged: {who}"]
            free = asyncio.Semaphore(assess.bearable(judge, AT_ONCE))

            async def one(pushed: Pushed, document: Document) -> None:
                async with free:
                    verdict, kept = await _verdict(judge, document, until)
                verdict = verdict.model_copy(update=self._named(pushed))
                push = self.push.model_copy(update={"cached": kept})
                lost = self._note(verdict, push)
                notes.extend(filter(None, [lost]))
                settle(Passed(pushed, word_of(verdict.verdict), verdict, bool(lost)))

            async with asyncio.TaskGroup() as group:
                for pushed, document in asked:
                    group.create_task(one(pushed, document))
        return notes

    def _named(self, pushed: Pushed) -> dict[str, str]:
        """Return the id of a file's verdict, where the run may have been begun before."""
        if not self.run:
            return {}
        name = "\0".join([self.run, *_key(pushed)])
        return {"id": hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]}

    def _note(self, verdict: Verdict, push: Gate) -> str:
        """Add a verdict to the ledger; return why that could not be done, "" when it was."""
        try:
            self.ledger.add(verdict_line(verdict, text=self.keep_text, gate=push))
        except LedgerError as error:
            return str(error)
        return ""


def _key(pushed: Pushed) -> tuple[str, str]:
    return pushed.change.path, pushed.change.blob


async def _verdict(judge: DocumentJudge, document: Document, until: float) -> tuple[Verdict, bool]:
    """Return a verdict within what is left of the budget, and whether earlier replies sufficed for it."""
    left = min(judge.deadline, until - time.monotonic())
    tally = Tally(judge.cache) if judge.cache else None
    verdict = await replace(judge, deadline=left, cache=tally).judge(document)
    return verdict, tally is not None and tally.sufficed
