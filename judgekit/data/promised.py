"""A run under a promise of agreement: decides which tier judges a row, and whose verdict is final.

The first tier gives an opinion on every row, and `deep` alone judges a random sample. From these,
`judgekit.evaluation.agreement` decides which first opinions are final. `deep` judges all other rows.
"""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import settings as configuration
from judgekit.data.agreement_tally import STRONGEST_TIER, AgreementTally, Call, PromisedRow
from judgekit.data.dataset import Mappings, PendingRow, open_dataset
from judgekit.data.draws import fingerprint_rows
from judgekit.data.opinions import ENDING, Opinions
from judgekit.data.results import Results
from judgekit.data.runners import stream_judgements
from judgekit.data.runs import DatasetRun
from judgekit.errors import UsageError
from judgekit.evaluation import agreement
from judgekit.evaluation.agreement import FirstOpinion, Promise
from judgekit.evaluation.labels import normalise_id
from judgekit.judging.one_tier import join_verdicts, judge_first, judge_of_tier
from judgekit.judging.round import INEXACT
from judgekit.judging.service import build_document_judge
from judgekit.judging.steps import PROMISED_ROW
from judgekit.judging.verdict import AgreementPromise, Verdict
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from pathlib import Path

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.data.batch_runner import BatchRunner
    from judgekit.data.dataset import Dataset, RowOptions
    from judgekit.data.runners import OnRecord
    from judgekit.data.runs import Record
    from judgekit.evaluation.agreement import Agrees, Settled
    from judgekit.judging.request import JudgeRequest
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.verdict import VerdictWord

    AdaptJudge: TypeAlias = Callable[[DocumentJudge], DocumentJudge]
    OnWritten: TypeAlias = Callable[[dict[str, Any]], object]
    # Builds a batch runner from the money that's left and a flag for the first round.
    MakeBatchRunner: TypeAlias = Callable[[float | None, bool], BatchRunner]

_SECOND_VERDICT_NAME = "deep again"  # the name under which second verdicts are kept
# Rows that both tiers judge to find out if the first tier pays for itself.
_MIN_PILOT_ROWS = 50
_MAX_PILOT_ROWS = 200
_PILOT_FRACTION = 0.05


class AgreementOptions(NamedTuple):
    """A caller's options for a run under a promise of agreement."""

    share: float
    agree_on: Agrees = "verdict"
    confirms_accepted: bool = False
    """Whether `deep` is asked about every row that the first tier accepts."""
    repeated_row_count: int = 0
    """How many rows of the sample `deep` is asked about twice."""

    @property
    def fingerprint_basis(self) -> str:
        """The part of the promise that a row's verdict depends on."""
        return json.dumps([self.share, self.agree_on, self.confirms_accepted])


class PromisedTiers(NamedTuple):
    """The tiers that judge under the promise."""

    first_tier: TierName
    mode: ModeName


def refuse_options_with(promise: str, options: Mapping[str, object]) -> None:
    """Raise `UsageError` if any of these options, which choose a judge, is used along with a promise.

    `promise` is the name of the option that asks for it, such as `--agree`.
    """
    for name, value in options.items():
        if value:
            problem = "the first tier and deep judge, as configured"
            raise UsageError(
                f"{promise} and {name} do not go together: {problem}; leave {name} out"
            )


def find_tiers(project: Path, request: JudgeRequest) -> PromisedTiers:
    """Find the judge's first tier and mode.

    Raises `UsageError` unless there's a first tier and `deep`, with different models.
    """
    if configuration.load(project).server.url is not None:
        problem = "the shared judge (server.url) chooses the tiers; judge without --agree"
        raise UsageError(f"--agree: {problem}")

    # The gateway calls no models here. It's only needed to build the judge.
    judge, _ = build_document_judge(open_gateway({}), project, request)
    tiers = list(judge.models_by_tier)
    if STRONGEST_TIER not in tiers or tiers[0] == STRONGEST_TIER:
        found_tiers = ", ".join(tiers) or "no model"
        problem = f"expected models of a first tier and of {STRONGEST_TIER}, got {found_tiers}"
        raise UsageError(f"--agree: {problem}; name both in judge.tiers")

    model_names = judge.settings.model_names
    if model_names[tiers[0]] == model_names[STRONGEST_TIER]:
        model = " and ".join(sorted(model_names[STRONGEST_TIER]))
        problem = f"{tiers[0]} and {STRONGEST_TIER} are both {model}"
        raise UsageError(f"--agree: {problem}; name a cheaper one in judge.tiers.{tiers[0]}")
    return PromisedTiers(first_tier=tiers[0], mode=judge.settings.mode)


class PromisedRows(NamedTuple):
    """The rows of a run under a promise, and the tiers that judge them."""

    options: AgreementOptions
    tiers: PromisedTiers
    rows: list[PendingRow]
    bound_dataset: Dataset
    """The same rows, with fingerprints that cover the promise and all other rows."""


def bind_rows(
    dataset: Dataset, options: AgreementOptions, project: Path, request: JudgeRequest
) -> PromisedRows:
    """Read all rows that a promise will cover, and find the tiers that judge them.

    Raises `UsageError` if no promise can be made with the configured models.
    """
    tiers = find_tiers(project, request)
    # The run reads the rows again, so keep them.
    dataset = replace(dataset, rows=list(dataset.rows))
    rows = [row for row in dataset if isinstance(row, PendingRow)]
    # Make the fingerprints depend on all rows: if any row changes, all rows must be judged again.
    basis = f"{dataset.fingerprint_basis}\0{options.fingerprint_basis}\0{fingerprint_rows(rows)}"
    return PromisedRows(
        options, tiers, rows, bound_dataset=replace(dataset, fingerprint_basis=basis)
    )


class _First(NamedTuple):
    """The first tier's opinion on a row."""

    outcome: Outcome | None
    """None if it can't be final."""
    margin: float
    call: Call | None
    """None if no model was asked."""


class _Strong(NamedTuple):
    """The verdict of `deep` on a row."""

    verdict_word: VerdictWord
    call: Call | None
    """None if no model was asked."""


class _Price(NamedTuple):
    """The mean cost of a tier's verdicts, and the usual time they took. None if unknown."""

    usd: float | None
    seconds: float | None


class PromisedJob(NamedTuple):
    """The rows to judge under a promise, and the settings."""

    rows: PromisedRows
    project: Path
    request: JudgeRequest
    at_once: int
    out: str | None = None
    is_fresh: bool = False
    make_batch_runner: MakeBatchRunner | None = None


class PromisedRun:
    """Judges the rows of a run under a promise of agreement, and sums up its effect."""

    def __init__(
        self,
        job: PromisedJob,
        work: DatasetRun,
        note: Callable[[str], None],
        on_written: OnWritten = lambda _: None,
    ) -> None:
        self._job = job
        self._options = job.rows.options
        self._tiers = job.rows.tiers
        self._row_by_key = {
            normalise_id(row.row_id): row for row in job.rows.rows if row.subject is not None
        }
        self._dataset_run = work
        self._note = note
        self._on_written = on_written
        is_strict = self._tiers.mode == "strict"
        self._promise = Promise(self._options.share, self._options.agree_on, strict=is_strict)
        self._batch_rounds = 0

        # Verdicts and rows to write, by row id (as returned by `normalise_id`).
        self._first_opinion_by_key: dict[str, _First] = {}
        self._strong_opinion_by_key: dict[str, _Strong] = {}
        self._second_words: dict[str, VerdictWord] = {}
        self._to_write: dict[str, PendingRow] = {}

        # The plan, by row number, as `judgekit.evaluation.agreement` identifies rows.
        self._number_by_key = {key: number for number, key in enumerate(self._row_by_key)}
        self._rates: dict[int, float] = {}
        self._sampled: frozenset[int] = frozenset()
        self._counted: frozenset[int] = frozenset()
        self._final: frozenset[int] = frozenset()

    def __call__(self, rows: Iterable[PendingRow], on_record: OnRecord) -> None:
        del on_record  # a row's cost is counted when a tier judges it
        judge = partial(self.judge, rows)
        if self._job.make_batch_runner is None:
            # Run this in the event loop that calls models, so that calls needn't switch threads.
            judge = partial(running.run_in_home_loop, judge, patience=running.END_SECONDS)
        running.run(judge())

    async def judge(self, rows: Iterable[PendingRow]) -> None:
        """Judge the rows that aren't in the results file yet, and write their results."""
        job = self._job
        with Opinions(job.out, is_fresh=job.is_fresh) as self._opinions:
            # Without a valid seal by this user's key, anybody may have written them.
            if self._opinions.unsealed:
                count = format_count(self._opinions.unsealed, "opinion", "opinions")
                self._note(f"{job.out}{ENDING}: {count} not written by this user, and not used")
            await self._judge(rows)

    async def _judge(self, rows: Iterable[PendingRow]) -> None:
        """Decide which tier judges each row, ask the tiers, and write the results."""
        for row in rows:
            if row.subject is None:  # it can't be judged, so only write its error
                self._write(row, None)
            else:
                self._to_write[normalise_id(row.row_id)] = row
        if not self._to_write:
            return

        settled = agreement.NOTHING_FINAL
        if len(self._row_by_key) < agreement.MIN_ROWS:
            count = f"{len(self._row_by_key)} rows, fewer than {agreement.MIN_ROWS}"
            self._note(f"--agree: {count}, so {STRONGEST_TIER} is asked about all")
        elif await self._try_first_tier():
            settled = await self._ask_both()
        await self._ask_strong(self._list_rows_for_strong(settled))

        if self._dataset_run.is_budget_spent:  # the run ended before the promise could hold
            self._write_without_promise()
        elif not self._has_ended:
            self._final = settled.final
            self._write_final()

    @property
    def _has_ended(self) -> bool:
        return self._dataset_run.stopped.is_set() or self._dataset_run.is_budget_spent

    # --- Choosing the tier for each row

    async def _try_first_tier(self) -> bool:
        """Let both tiers judge a pilot of a few rows.

        Returns True if the first tier saves more than it costs. Also returns True if the run has ended
        meanwhile.
        """
        pilot = self._choose_pilot()
        await self._ask_first(pilot)
        await self._ask_strong(pilot, writes=False)
        if self._has_ended:
            return True

        opinions = self._collect_first_opinions(pilot)
        fraction = agreement.estimate_decided_fraction(
            opinions, self._map_strong_words(), len(pilot), len(self._row_by_key), self._promise
        )
        first_price = self._average_price(self._tiers.first_tier, pilot)
        strong_price = self._average_price(STRONGEST_TIER, pilot)
        if _is_worth_it(fraction, first_price, strong_price):
            return True

        pilot_rows = f"of {len(pilot)} rows that both judged"
        problem = (
            f"{self._tiers.first_tier} could decide about {fraction:.0%}, which doesn't pay for it"
        )
        self._note(
            f"--agree {self._promise.share:g}: {pilot_rows}, {problem}; {STRONGEST_TIER} judges all"
        )
        return False

    def _choose_pilot(self) -> list[str]:
        """Choose the rows of the pilot, which both tiers judge first."""
        size = round(len(self._row_by_key) * _PILOT_FRACTION)
        size = min(max(size, _MIN_PILOT_ROWS), _MAX_PILOT_ROWS)
        # `deep` will have to judge the rows with the lowest draws anyway, because they'll be in its sample.
        budget = self._promise.budget(len(self._row_by_key))
        rate = agreement.choose_rate(budget, agreement.SIGNIFICANCE_LEVEL)
        in_sample = [key for key in self._row_by_key if self._draw(key) < rate]
        return sorted(in_sample, key=self._draw)[:size]

    async def _ask_both(self) -> Settled:
        """Let the first tier judge all rows, and `deep` a sample.

        Then settle which first opinions are final.
        """
        await self._ask_first(list(self._row_by_key))
        if self._has_ended:
            return agreement.NOTHING_FINAL

        opinions = self._collect_first_opinions(list(self._row_by_key))
        plan = agreement.plan(opinions, len(self._row_by_key), self._promise)
        self._rates = plan.rates()
        self._sampled = plan.sampled
        sample = [key for key in self._row_by_key if self._number_by_key[key] in plan.sampled]
        await self._ask_strong(sample, writes=False)
        if self._has_ended:
            return agreement.NOTHING_FINAL

        # Compare the two verdicts on the sample's rows.
        settled = agreement.settle(plan, self._map_strong_words())
        self._counted = settled.counted
        await self._ask_strong_twice()
        return settled

    def _list_rows_for_strong(self, settled: Settled) -> list[str]:
        """List the rows that `deep` must judge, because their first opinion isn't final."""
        return [key for key in self._row_by_key if self._number_by_key[key] not in settled.final]

    def _collect_first_opinions(self, keys: Sequence[str]) -> list[FirstOpinion]:
        """Collect the first tier's opinions that can become final."""
        opinions = []
        for key in keys:
            first = self._first_opinion_by_key.get(key)
            if first is None or first.outcome is None:
                continue
            if first.outcome == "accept" and self._options.confirms_accepted:
                continue

            opinion = FirstOpinion(
                row_number=self._number_by_key[key],
                outcome=first.outcome,
                sureness=first.margin,
                sampling_draw=self._draw(key),
                tie_breaker=self._opinions.draw(self._row_by_key[key], "tie"),
            )
            opinions.append(opinion)
        return opinions

    def _draw(self, key: str) -> float:
        """Return a row's random number from 0 to 1, which never changes. The lowest are the sample."""
        return self._opinions.draw(self._row_by_key[key], "sample")

    def _map_strong_words(self) -> dict[int, VerdictWord]:
        return {
            self._number_by_key[key]: strong.verdict_word
            for key, strong in self._strong_opinion_by_key.items()
        }

    # --- Asking

    async def _ask_first(self, keys: Sequence[str]) -> None:
        """Get the first tier's opinions on rows: earlier ones, or new ones."""
        tier = self._tiers.first_tier
        missing = []
        for key in keys:
            if key in self._first_opinion_by_key:
                continue
            kept_verdict = self._opinions.find(tier, self._row_by_key[key])
            # If no call gave an opinion, ask again.
            if kept_verdict is not None and any(round_.opinion for round_ in kept_verdict.rounds):
                self._note_first(key, kept_verdict)
            else:
                missing.append(key)

        self._dataset_run.waits_for = f"{tier}: {len(missing):,} first opinions"
        make_judge = partial(_make_first_judge, tier)
        async for key, verdict in self._stream_verdicts(tier, missing, make_judge):
            self._note_first(key, verdict)

    def _note_first(self, key: str, verdict: Verdict) -> None:
        """Note the first tier's opinion on a row, without an outcome if the opinion can't become final."""
        outcome: Outcome | None = None
        if verdict.because == PROMISED_ROW and verdict.margin is not None:
            outcome = _find_outcome(verdict.verdict)
        self._first_opinion_by_key[key] = _First(
            outcome, verdict.margin or 0.0, Call.from_rounds(verdict.rounds)
        )

    async def _ask_strong(self, keys: Sequence[str], *, writes: bool = True) -> None:
        """Get `deep`'s verdicts on rows: earlier ones, or new ones. If `writes`, also write the results."""
        missing = []
        for key in keys:
            # `_recall_strong` notes an earlier run's verdict, if there's one.
            if key not in self._strong_opinion_by_key and not self._recall_strong(key):
                missing.append(key)
            elif writes:
                self._write_strong(key)
        self._dataset_run.waits_for = ""  # rows no longer wait for the first tier

        note = partial(self._note_strong, writes=writes)
        if self._job.make_batch_runner is not None:
            if missing and not self._has_ended:
                await self._ask_in_batches(missing, note)
            return
        async for key, verdict in self._stream_verdicts(STRONGEST_TIER, missing, limit_to_deep):
            note(key, verdict)

    def _recall_strong(self, key: str) -> bool:
        """Note `deep`'s verdict on a row from an earlier run.

        Returns False if there's none that can be used.
        """
        verdict = self._opinions.find(STRONGEST_TIER, self._row_by_key[key])
        if verdict is None or verdict.verdict == "undetermined":  # then ask again
            return False
        self._note_strong(key, verdict, writes=False)  # the caller decides whether to write it
        return True

    def _note_strong(self, key: str, verdict: Verdict, *, writes: bool) -> None:
        """Note `deep`'s verdict on a row and, if `writes`, write the row's result."""
        self._strong_opinion_by_key[key] = _Strong(
            verdict.verdict, Call.from_rounds(verdict.rounds)
        )
        if writes:
            self._write_strong(key)

    async def _ask_in_batches(
        self, keys: Sequence[str], note: Callable[[str, Verdict], None]
    ) -> None:
        """Let `deep` judge rows in the provider's batches. `note` is called with each row's verdict."""
        assert self._job.make_batch_runner is not None, "the caller has checked it"  # noqa: S101
        # Only the first round of a fresh run may replace the list of submitted batches.
        runner = self._job.make_batch_runner(self._limit_usd, self._batch_rounds == 0)
        self._batch_rounds += 1

        def on_record(row: PendingRow, record: Record | None) -> None:
            key = normalise_id(row.row_id)
            if record is None:  # there's no answer, so the next run will ask again
                waiting_row = self._to_write.pop(key, None)
                if waiting_row is not None:
                    self._write(waiting_row._replace(error=row.error), None)
                return
            verdict = Verdict.model_validate(record)
            self._opinions.add(STRONGEST_TIER, row, verdict)
            self._dataset_run.note_calls(record)
            note(key, verdict)

        # The batch runner itself enforces the limit.
        rows = self._take_affordable(keys, _Purse(limit_usd=None))
        await runner.judge(rows, on_record)

    async def _stream_verdicts(
        self, stored_as: str, keys: Sequence[str], make_judge: AdaptJudge
    ) -> AsyncGenerator[tuple[str, Verdict]]:
        """Let one tier judge rows, and yield each row's key and verdict until the run ends.

        `make_judge` limits the configured judge to that tier. The opinions are stored under `stored_as`.
        """
        purse = _Purse(self._limit_usd)
        request = self._job.request
        if stored_as == _SECOND_VERDICT_NAME:  # the cache would just repeat the first verdict
            request = request.model_copy(update={"cache": False})

        stream = stream_judgements(
            self._take_affordable(keys, purse),
            self._job.project,
            request,
            self._job.at_once,
            in_order=False,
            never_blocks=True,  # all rows are in memory
            adapt=make_judge,
        )
        async with aclosing(stream):
            async for row, verdict in stream:
                purse.pay(verdict.cost_usd or 0.0)
                self._opinions.add(stored_as, row, verdict)
                self._dataset_run.note_calls(verdict.record())
                yield normalise_id(row.row_id), verdict

    @property
    def _limit_usd(self) -> float | None:
        """The US dollars that are left to spend, or None if there's no limit."""
        if self._job.request.max_cost_usd is None:
            return None
        return self._job.request.max_cost_usd - self._dataset_run.spent_usd

    def _take_affordable(self, keys: Sequence[str], purse: _Purse) -> Iterator[PendingRow]:
        """Yield rows until the money is spent or the run is stopped."""
        for key in keys:
            if self._dataset_run.stopped.is_set():
                return
            if not purse.take():
                self._dataset_run.is_budget_spent = True
                return
            yield self._row_by_key[key]

    async def _ask_strong_twice(self) -> None:
        """Let `deep` judge some rows in the sample again, to measure how often it repeats its verdict."""
        sample = [key for key in self._row_by_key if self._number_by_key[key] in self._sampled]
        # A row's draw is always the same, so a continued run repeats the same rows.
        keys_to_repeat = sorted(sample, key=self._draw)[: self._options.repeated_row_count]
        missing = []
        for key in keys_to_repeat:
            kept_verdict = self._opinions.find(_SECOND_VERDICT_NAME, self._row_by_key[key])
            if kept_verdict is None or kept_verdict.verdict == "undetermined":  # then ask again
                missing.append(key)
            else:
                self._second_words[key] = kept_verdict.verdict

        async for key, verdict in self._stream_verdicts(
            _SECOND_VERDICT_NAME, missing, limit_to_deep
        ):
            self._second_words[key] = verdict.verdict

    def tally_effects(self) -> AgreementTally:
        """Count the promise's effects on all rows, such as saved calls."""
        tally = AgreementTally()
        for key in self._row_by_key:
            first = self._first_opinion_by_key.get(key)
            strong = self._strong_opinion_by_key.get(key)
            is_first_final = self._number_by_key[key] in self._final
            if strong is None and not is_first_final:
                continue  # the run ended before this row

            first_outcome = first.outcome if first else None
            row = PromisedRow(
                promise=self._describe_promise(key),
                mode=self._tiers.mode,
                verdict=strong.verdict_word if strong else str(first_outcome),
                first_call=first.call if first else None,
                strong_call=strong.call if strong else None,
            )
            tally.add(row)
        return tally

    # --- Writing results

    def _write(self, row: PendingRow, verdict: Verdict | None) -> None:
        """Write a row's result. The verdict is None if it couldn't be judged."""
        record = None if verdict is None else verdict.record()
        self._on_written(self._dataset_run.write_result(row, record, is_paid=True))

    def _write_strong(self, key: str) -> None:
        """Write `deep`'s verdict on a row. If the first tier judged the row, too, include its rounds."""
        row = self._to_write.pop(key, None)
        if row is None:  # its result is in the results file already
            return
        strong_verdict = self._opinions.find(STRONGEST_TIER, self._row_by_key[key])
        assert strong_verdict is not None, "it has just been stored"  # noqa: S101
        first_verdict = self._opinions.find(self._tiers.first_tier, self._row_by_key[key])
        promise = self._describe_promise(key)
        if first_verdict is None:
            written = strong_verdict.model_copy(update={"promise": promise})
        else:
            written = join_verdicts(first_verdict, strong_verdict, promise)
        self._write(row, written)

    def _write_final(self) -> None:
        """Write the results of rows that keep the first tier's verdict."""
        for key, row in list(self._to_write.items()):
            if self._number_by_key[key] not in self._final:
                continue
            verdict = self._opinions.find(self._tiers.first_tier, self._row_by_key[key])
            assert verdict is not None, "only a kept opinion is final"  # noqa: S101
            written = verdict.model_copy(update={"promise": self._describe_promise(key)})
            del self._to_write[key]
            self._write(row, written)

    def _write_without_promise(self) -> None:
        """Write an undetermined verdict for each row that only the first tier has judged.

        Used if the money has run out.
        """
        for key, row in list(self._to_write.items()):
            if key not in self._first_opinion_by_key:
                continue
            verdict = self._opinions.find(self._tiers.first_tier, self._row_by_key[key])
            assert verdict is not None, "first opinions are always stored"  # noqa: S101
            del self._to_write[key]
            self._write(row, self._mark_undetermined(verdict))

    def _mark_undetermined(self, first_verdict: Verdict) -> Verdict:
        """Copy the first tier's verdict, but make it undetermined, because the promise doesn't hold."""
        reason = f"--max-cost ended the run before the promise of {self._promise.share:g} held"
        word = first_verdict.verdict
        problem = f"{self._tiers.first_tier} alone says {word}, without a promise: {reason}"
        problems = [problem, first_verdict.degraded] if first_verdict.degraded else [problem]
        return first_verdict.model_copy(
            update={
                "verdict": "undetermined",
                "because": "the promise of agreement does not hold",
                "judge_tier": None,
                "consensus": "none",
                "degraded": "; ".join(problems),
            }
        )

    def _describe_promise(self, key: str) -> AgreementPromise:
        """Describe the promise and the row's part in it, for its record."""
        first = self._first_opinion_by_key.get(key)
        number = self._number_by_key[key]
        return AgreementPromise(
            share=self._promise.share,
            on=self._promise.on,
            first_tier=self._tiers.first_tier,
            first=first.outcome if first else None,
            rate=self._rates.get(number),
            sampled=number in self._sampled,
            counted=number in self._counted,
            again=self._second_words.get(key),
        )

    def _average_price(self, tier: str, keys: Sequence[str]) -> _Price:
        """Compute the typical cost and time of a tier's verdicts on these rows, without cached replies."""
        costs = []
        seconds = []
        for key in keys:
            verdict = self._opinions.find(tier, self._row_by_key[key])
            if verdict is None or verdict.cost_source == "cache":
                continue
            call = Call.from_rounds(verdict.rounds)
            if call is None:
                continue
            seconds.append(call.seconds)
            if call.usd is not None:
                costs.append(call.usd)

        return _Price(
            usd=fmean(costs) if costs else None,
            # Use the median, because the first calls take longer while libraries are loaded.
            seconds=median(seconds) if seconds else None,
        )


async def judge_under_promise(
    rows: Iterable[Mapping[str, Any]],
    row_options: RowOptions,
    project: Path,
    request: JudgeRequest,
    at_once: int,
    options: AgreementOptions,
) -> AsyncGenerator[dict[str, Any]]:
    """Judge all rows under a promise, then yield their results in order.

    Rows that weren't judged because of the cost limit are omitted. Raises `InputError` for a row that isn't a
    mapping, `ConfigError` if there's no key, and the errors of `open_dataset`.
    """
    dataset, _, _ = open_dataset(Mappings(rows), row_options, project, request)
    promised = bind_rows(dataset, options, project, request)
    promised.bound_dataset.check()
    work = DatasetRun(
        dataset=promised.bound_dataset,
        results=Results(lambda _: None),  # there's no results file: `keep_result` gets the rows
        max_cost_usd=request.max_cost_usd,
    )
    result_by_id: dict[str, dict[str, Any]] = {}

    def keep_result(row: dict[str, Any]) -> None:
        result_by_id[normalise_id(row["id"])] = row

    job = PromisedJob(promised, project, request, at_once)
    run = PromisedRun(job, work, note=lambda _: None, on_written=keep_result)
    await run.judge(work.yield_pending_rows())
    if work.gave_up:
        raise work.build_given_up_error()

    # Results arrive in the order of judging, so yield them in that of the rows.
    for row in promised.rows:
        key = normalise_id(row.row_id)
        if key in result_by_id:
            yield result_by_id[key]


class _Purse:
    """The money that's left; a row at work is assumed to cost the average so far."""

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd
        self._spent_usd = 0.0
        self._paid_row_count = 0
        self._active_row_count = 0

    def take(self) -> bool:
        """Let another row start, unless the rows so far are expected to use up the limit.

        Returns False if it must not start.
        """
        mean_cost = self._spent_usd / self._paid_row_count if self._paid_row_count else 0.0
        expected_usd = self._spent_usd + self._active_row_count * mean_cost
        # Sums of prices aren't exact, so tolerate a tiny difference.
        if self._limit_usd is not None and expected_usd >= self._limit_usd * (1 - INEXACT):
            return False
        self._active_row_count += 1
        return True

    def pay(self, usd: float) -> None:
        """Note a finished row's cost."""
        self._active_row_count -= 1
        self._paid_row_count += 1
        self._spent_usd += usd


def _is_worth_it(fraction: float, first: _Price, strong: _Price) -> bool:
    """Whether a first tier that decides this fraction of rows pays off, in money or, if unknown, in time."""
    # The first tier has to judge all rows, while the strong one is spared a fraction of them.
    if first.usd is not None and strong.usd:
        return first.usd < fraction * strong.usd
    if first.seconds is not None and strong.seconds:
        return first.seconds < fraction * strong.seconds
    return fraction > 0


def limit_to_deep(judge: DocumentJudge) -> DocumentJudge:
    """Build a judge that only asks `deep`."""
    return judge_of_tier(STRONGEST_TIER, judge)


def _make_first_judge(tier: TierName, judge: DocumentJudge) -> DocumentJudge:
    """Build a judge that only asks the first tier, for opinions that can become final."""
    return replace(judge, judge_instead=partial(judge_first, tier))


def _find_outcome(word: VerdictWord) -> Outcome | None:
    """Return a verdict if it can become final, or None."""
    if word in ("accept", "improve", "reject"):
        return word
    return None
