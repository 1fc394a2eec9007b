"""The rows of results as a page shows them: from one file, or from two side by side."""

from __future__ import annotations

import json
import sqlite3
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from judgekit.data.labels import parse_object
from judgekit.evaluation.labels import agrees
from judgekit.evaluation.labels import parse_number as number
from judgekit.evaluation.row_views import (
    Column,
    RowList,
    clean_text,
    drop_empty,
    format_amount,
    format_scores,
    mark_quotes,
)
from judgekit.evaluation.stats import OUTCOMES, UNDECIDED
from judgekit.judging.verdict import CompareRound, Finding, PairOpinion, Round, ScoreOpinion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.data.labels import ResultFile, ResultRow
    from judgekit.evaluation.row_views import RowView, ShownRows

_Record = TypeVar("_Record", bound=BaseModel)

REGRESSED = "regressed"
FIXED = "fixed"
CHANGED = "changed"
SAME = "the same"
UNLIKE_LABEL = "not as labelled"
LIKE_LABEL = "as labelled"
TIERS_DIFFER = "tiers differ"
# Rows with these flags come first on a page, in this order. Among equals, these verdicts come first.
_FIRST_FLAGS = (REGRESSED, FIXED, CHANGED, UNLIKE_LABEL)
_FIRST_VERDICTS = ("undetermined", "escalate", "reject", "improve")
_ANSWER_TEXT_NAME = "answer"
_NO_TEXTS = (
    "These results hold no texts. --data FILE takes the question, the answer and what's expected from the"
    " file that was judged."
)


class RowStore:
    """Rows by id, in a temporary file, to combine with the result rows of the same ids."""

    def __init__(self) -> None:
        # An empty name makes a temporary file. SQLite removes it when it's closed or its process dies.
        self._connection = sqlite3.connect("", isolation_level=None)
        # Close the database with the store, so that callers needn't close it after an error.
        weakref.finalize(self, self._connection.close)
        self._connection.execute(
            "CREATE TABLE rows (number INTEGER PRIMARY KEY, id TEXT UNIQUE, view TEXT, taken INTEGER)"
        )
        # A single transaction is faster than one per row. It's never committed, as the file isn't kept.
        self._connection.execute("BEGIN")

    def put(self, row_id: str, view: RowView) -> None:
        """Store a row, unless there's already one with this id."""
        values = (row_id, json.dumps(view))
        self._connection.execute(
            "INSERT OR IGNORE INTO rows (id, view, taken) VALUES (?, ?, 0)", values
        )

    def take(self, row_id: str) -> RowView | None:
        """Return the row with this id, and mark it as taken. Returns None if there's no such row."""
        query = "SELECT view FROM rows WHERE id = ?"
        row = self._connection.execute(query, (row_id,)).fetchone()
        if row is None:
            return None
        self._connection.execute("UPDATE rows SET taken = 1 WHERE id = ?", (row_id,))
        (text,) = row
        view: RowView = json.loads(text)
        return view

    def list_remaining_rows(self) -> Iterator[RowView]:
        """Yield the rows that were never taken."""
        for (text,) in self._connection.execute(
            "SELECT view FROM rows WHERE NOT taken ORDER BY number"
        ):
            yield json.loads(text)


class Beside(NamedTuple):
    """Second results to show next to the first: their name on the page, their rows, and verdicts by id."""

    file: str
    name: str
    rows: RowStore
    verdict_by_id: Mapping[str, str]


class PageRows:
    """Collects result rows for a page, next to those of second results (`second_results`) if there are any.

    `texts` has the texts of the judged file, for result rows without texts.
    """

    def __init__(
        self,
        results: ResultFile,
        name: str = "",
        *,
        beside: Beside | None = None,
        texts: RowStore | None = None,
    ) -> None:
        self._results = results
        self._name = name or "verdict"
        self.second_results = beside
        self._texts = texts
        self._keys_used = {"id", "text"}  # the keys of all views so far
        self._has_texts = False
        self._list = RowList()

    def add(self, row: ResultRow, label: str | None, *, is_binary: bool) -> None:
        """Add a row of the first results. If the second results contain it, too, both are shown together.

        `is_binary` means that all labels are either accept or reject, so "improve" counts as a rejection.
        """
        verdicts = [row.verdict]
        flags = []
        second_view = None
        if self.second_results is not None:
            second_view = self.second_results.rows.take(row.row_id)
            if second_view is None:
                flags.append(f"only in {self._name}")
            else:
                verdicts.append(second_view["judged"][0]["said"])  # its only verdict

        flags += _describe_difference(verdicts, label, is_binary=is_binary)
        rank = _rank_row(flags, verdicts[-1], number(row.columns.get("average")))
        if not self._list.has_room(*rank):
            self._list.skip()
            return

        view = view_row(self._results, row, self._name)
        if self._texts is not None and "texts" not in view:
            view |= self._texts.take(row.row_id) or {}
        if label is not None:
            view["label"] = label
        if second_view is not None and self.second_results is not None:
            _add_second_view(view, second_view, self._name, self.second_results.name)
        self._add_view(view, flags, rank)

    def _add_view(self, view: RowView, flags: list[str], rank: tuple[float, ...]) -> None:
        """Mark the quotes in a row's view, and add the view to the list, with these flags."""
        if any(_do_tiers_differ(judged) for judged in view["judged"]):
            flags.append(TIERS_DIFFER)
        if flags:
            view["flags"] = flags
        _mark_answers(view)
        self._has_texts = self._has_texts or "texts" in view
        self._keys_used |= view.keys()
        self._list.add(view, *rank)

    def finish(self) -> ShownRows:
        """Return all rows for the page, including rows that only the second results contain."""
        verdict_names = ["verdict"]
        if self.second_results is not None:
            verdict_names = [self._name, self.second_results.name]
            self._add_rows_only_in(self.second_results)
        self._list.columns = self._choose_columns(verdict_names)
        if not self._has_texts:
            self._list.note = _NO_TEXTS
        return self._list.finish()

    def _add_rows_only_in(self, second: Beside) -> None:
        """Add the rows that only the second results contain. Their first verdict is empty."""
        for view in second.rows.list_remaining_rows():
            flags = [f"only in {second.name}"]
            rank = _rank_row(flags, view["judged"][0]["said"], number(view.get("mean")))
            view["judged"].insert(0, {"by": self._name, "said": ""})
            self._add_view(view, flags, rank)

    def _choose_columns(self, verdict_names: Sequence[str]) -> list[Column]:
        """List the page's columns: id, verdicts, the optional columns that any row uses, and text."""
        columns = [Column("row", "id")]
        for result_number, name in enumerate(verdict_names):
            columns.append(Column(name, f"said {result_number}"))
        others = {"label": "label", "flags": "difference", "mean": "mean score", "usd": "USD"}
        for key, name in others.items():
            if key in self._keys_used:
                columns.append(Column(name, key))
        columns.append(Column("text", "text"))
        return columns


def read_second_results(results: ResultFile, name: str) -> Beside:
    """Read the second results, which are shown next to the first ones."""
    store = RowStore()
    verdicts = {}
    for row in results:
        store.put(row.row_id, view_row(results, row, name))
        verdicts[row.row_id] = row.verdict
    return Beside(results.name, name, store, verdicts)


def store_texts(texts: Iterable[tuple[str, Mapping[str, str]]]) -> RowStore:
    """Store the rows' texts by id."""
    store = RowStore()
    for row_id, texts_of_row in texts:
        shown_texts = {name: clean_text(text) for name, text in texts_of_row.items()}
        store.put(row_id, {"texts": shown_texts})
    return store


def view_row(results: ResultFile, row: ResultRow, name: str) -> RowView:
    """Build the view of a result row, with its texts by name. `name` is the name of the results."""
    texts = {}
    for text_name, text in results.texts_of(row).items():
        texts[text_name] = clean_text(text)
    average = number(row.columns.get("average"))
    return drop_empty(
        id=clean_text(row.row_id),
        texts=texts,
        mean="" if average is None else f"{average:.4g}",
        usd=format_amount(number(row.columns.get("cost_usd"))),
        judged=[_view_judged(row, name)],
    )


def _view_judged(row: ResultRow, name: str) -> RowView:
    """Build the view of a row's verdict, with each tier's opinion if the row has judgekit's record."""
    record = parse_object(row.columns.get("judged")) or {}
    schema = str(record.get("schema"))
    if not schema.startswith("judgekit/"):
        record = {}  # another program wrote a column with the same name
    round_records = record.get("rounds")
    rounds: Iterator[Round | CompareRound] = _read_records(Round, round_records)
    if schema.startswith("judgekit/comparison@"):
        rounds = _read_records(CompareRound, round_records)

    reasoning = str(row.columns.get("reasoning") or "")
    round_views = []
    for round_ in rounds:
        has_decided = round_.tier == record.get("judge_tier")
        round_views.append(_view_round(round_, reasoning=reasoning, decided=has_decided))
    findings = [
        _view_finding(finding) for finding in _read_records(Finding, record.get("findings"))
    ]
    judged = drop_empty(
        scores=format_scores(row.scores),
        reasoning=clean_text(reasoning),
        findings=findings,
        rounds=round_views,
        error=clean_text(str(row.columns.get("error") or "")),
    )
    # The page reads the verdict even if it's empty, so don't drop it.
    return {"by": name, "said": row.verdict, **judged}


def _view_finding(finding: Finding) -> RowView:
    return drop_empty(
        issue=clean_text(finding.issue),
        dimension=clean_text(finding.dimension),
        location=clean_text(finding.location),
        suggestion=clean_text(finding.suggestion),
        quote=clean_text(finding.quote),
    )


def _view_round(round_: Round | CompareRound, *, reasoning: str, decided: bool) -> RowView:
    """Build the view of a tier's opinion or failure.

    `reasoning` is the verdict's reasoning. The opinion's own reasoning is left out if it's the same.
    """
    tier: str = round_.tier
    order = getattr(round_, "order", None)  # of the compared texts
    if order:
        tier += f" ({', '.join(order)})"

    verdict = ""
    scores = ""
    probabilities = ""
    opinion_reasoning = ""
    opinion = round_.opinion
    if opinion is not None:
        opinion_reasoning = opinion.reasoning
        probabilities = _render_probabilities(opinion.probabilities)
    if isinstance(opinion, ScoreOpinion):
        verdict = opinion.outcome or ""
        scores = format_scores(opinion.scores)
    elif isinstance(opinion, PairOpinion):
        verdict = opinion.better

    failure = ""
    if round_.failure:
        failure = clean_text(f"{round_.failure.kind}: {round_.failure.message}")
    return drop_empty(
        tier=tier,
        model=clean_text(round_.model),
        said=clean_text(verdict),
        decided=decided or None,  # `drop_empty` drops None
        scores="; ".join(text for text in (scores, probabilities) if text),
        reasoning="" if opinion_reasoning == reasoning else clean_text(opinion_reasoning),
        failure=failure,
        usd=format_amount(round_.usage.cost_usd),
        seconds=f"{round_.latency_ms / 1000:.1f}" if round_.latency_ms else "",
    )


def _render_probabilities(probabilities: Mapping[str, Mapping[str, float]]) -> str:
    """Render each question's options with their probabilities, such as `relevant: yes 90%, no 10%`."""
    parts = []
    for name, options in probabilities.items():
        shares = ", ".join(f"{option} {share:.0%}" for option, share in options.items())
        parts.append(clean_text(f"{name}: {shares}"))
    return "; ".join(parts)


def _read_records(kind: type[_Record], values: object) -> Iterator[_Record]:
    """Yield the valid records in a list. Others are skipped, because anybody could have written the file."""
    for value in values if isinstance(values, list) else ():
        with suppress(ValidationError):
            yield kind.model_validate(value)


def _add_second_view(view: RowView, other: RowView, name: str, other_name: str) -> None:
    """Add the second results' verdict and texts to a row's view from the first results.

    `name` and `other_name` are the names of the first and the second results.
    """
    view["judged"] += other["judged"]
    texts = view.setdefault("texts", {})
    for text_name, second_text in other.get("texts", {}).items():
        first_text = texts.setdefault(text_name, second_text)
        if first_text != second_text:  # show both texts, each with the name of its results
            del texts[text_name]
            texts[f"{text_name}, {name}"] = first_text
            texts[f"{text_name}, {other_name}"] = second_text
    if not texts:
        del view["texts"]


def _mark_answers(view: RowView) -> None:
    """Split a row's texts into pieces, so that the page can highlight passages that findings quote."""
    quotes = []
    for judged in view["judged"]:
        quotes += [finding.get("quote", "") for finding in judged.get("findings", ())]

    # Findings quote the answer, so don't mark the same words in other texts. If two results have different
    # answers, the name of the results follows after a comma.
    texts_in_pieces: list[tuple[str, list[str]]] = []
    for name, text in view.get("texts", {}).items():
        is_answer = name == _ANSWER_TEXT_NAME or name.startswith(f"{_ANSWER_TEXT_NAME}, ")
        texts_in_pieces.append((name, mark_quotes(text, quotes if is_answer else ())))
    if texts_in_pieces:
        view["texts"] = texts_in_pieces


def _describe_difference(
    verdicts: Sequence[str], label: str | None, *, is_binary: bool
) -> list[str]:
    """List flags for a row: how its two verdicts differ, and if the last verdict agrees with the label."""
    are_right: list[bool | None] = []  # None if there's no label, or the verdict is undecided
    for verdict in verdicts:
        if label is None or verdict in UNDECIDED:
            are_right.append(None)
        else:
            are_right.append(agrees(label, verdict, binary=is_binary))

    flags = []
    if len(verdicts) > 1:
        flags.append(_describe_change(verdicts, are_right))
    is_last_right = are_right[-1]
    if is_last_right is not None:
        flags.append(LIKE_LABEL if is_last_right else UNLIKE_LABEL)
    return flags


def _describe_change(verdicts: Sequence[str], are_right: Sequence[bool | None]) -> str:
    """Describe the change from the first verdict to the second: same, changed, fixed or regressed.

    `are_right` says if each verdict agrees with the label. It contains None for an undecided verdict, or if
    there's no label.
    """
    first, second = verdicts
    if first == second:
        return SAME
    was_good, is_good = are_right
    if was_good is None or is_good is None:
        # The label can't tell which verdict is better, so an accept counts as better than any other outcome.
        if first not in OUTCOMES or second not in OUTCOMES:
            return CHANGED
        was_good = first == "accept"
        is_good = second == "accept"
    if was_good == is_good:
        return CHANGED
    return FIXED if is_good else REGRESSED


def _do_tiers_differ(judged: Mapping[str, Any]) -> bool:
    """Whether the tiers' opinions on a row differ."""
    tier_verdicts = {round_["said"] for round_ in judged.get("rounds", ()) if "said" in round_}
    return len(tier_verdicts) > 1


def _rank_row(flags: Sequence[str], verdict: str, mean: float | None) -> tuple[float, ...]:
    """Rank a row for sorting: by its flags, then by its verdict, then by its mean score, lowest first."""
    flag_rank = _first_position(flags, _FIRST_FLAGS)
    verdict_rank = _first_position([verdict], _FIRST_VERDICTS)
    return flag_rank, verdict_rank, mean or 0.0


def _first_position(values: Sequence[str], order: Sequence[str]) -> int:
    """Find the first position in `order` whose value is in `values`.

    Returns the length of `order` if none is.
    """
    for position, value in enumerate(order):
        if value in values:
            return position
    return len(order)
