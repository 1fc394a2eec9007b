"""The rows of results as a page shows them: from one file, or from two side by side."""

from __future__ import annotations

import json
import sqlite3
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from judgekit.data.labels import nested
from judgekit.evaluation.labels import agrees
from judgekit.evaluation.labels import number_of as number
from judgekit.evaluation.row_views import (
    Column,
    RowList,
    amount,
    filled,
    mark_quotes,
    scores_text,
    shown_text,
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
# These come first on a page; among them rows without a verdict, then rejected ones, then the others.
_FIRST_FLAGS = (REGRESSED, FIXED, CHANGED, UNLIKE_LABEL)
_FIRST_WORDS = ("undetermined", "escalate", "reject", "improve")
_ANSWER = "answer"
_NO_TEXTS = (
    "These results hold no texts. --data FILE takes the question, the answer and what's expected from the"
    " file that was judged."
)


class RowStore:
    """Rows by id, in a temporary file, to set beside the rows of the results."""

    def __init__(self) -> None:
        # SQLite removes the file when it's closed or its process dies.
        self._table = sqlite3.connect("", isolation_level=None)
        # Whoever reads the rows may fail at any of them, and nobody reads them after the store is gone.
        weakref.finalize(self, self._table.close)
        self._table.execute(
            "CREATE TABLE rows (number INTEGER PRIMARY KEY, id TEXT UNIQUE, view TEXT, taken INTEGER)"
        )
        self._table.execute("BEGIN")

    def put(self, row_id: str, view: RowView) -> None:
        """Keep a row; if several have the same id, the first counts."""
        values = (row_id, json.dumps(view))
        self._table.execute("INSERT OR IGNORE INTO rows (id, view, taken) VALUES (?, ?, 0)", values)

    def take(self, row_id: str) -> RowView | None:
        """Return the row with this id, and mark it as taken; None if there's none."""
        query = "SELECT view FROM rows WHERE id = ?"
        row = self._table.execute(query, (row_id,)).fetchone()
        if row is None:
            return None
        self._table.execute("UPDATE rows SET taken = 1 WHERE id = ?", (row_id,))
        (text,) = row
        view: RowView = json.loads(text)
        return view

    def left(self) -> Iterator[RowView]:
        """Yield the rows that were never taken."""
        for (text,) in self._table.execute("SELECT view FROM rows WHERE NOT taken ORDER BY number"):
            yield json.loads(text)


class Beside(NamedTuple):
    """Second results to set beside the first: their name on the page, their rows and verdicts by id."""

    file: str
    name: str
    rows: RowStore
    words: Mapping[str, str]


class PageRows:
    """Collects the rows of results for a page, beside those of second results if there are any.

    `texts` are those of the file that was judged, for rows that have none.
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
        self.beside = beside
        self._texts = texts
        self._keys_used = {"id", "text"}
        self._has_texts = False
        self._list = RowList()

    def add(self, row: ResultRow, label: str | None, *, is_binary: bool) -> None:
        """Add a row of the first results, with the row of the second results that has the same id.

        If labels are `is_binary` (only pass or fail), the verdict improve counts as reject.
        """
        verdict_words = [row.verdict]
        flags = []
        second_view = None
        if self.beside is not None:
            second_view = self.beside.rows.take(row.row_id)
            if second_view is None:
                flags.append(f"only in {self._name}")
            else:
                verdict_words.append(second_view["judged"][0]["said"])  # it has only one verdict
        flags += _describe_difference(verdict_words, label, is_binary=is_binary)
        rank = _rank_row(flags, verdict_words[-1], number(row.columns.get("average")))
        if not self._list.has_room(*rank):
            self._list.skip()
            return

        view = view_row(self._results, row, self._name)
        if self._texts is not None and "texts" not in view:
            view |= self._texts.take(row.row_id) or {}
        if label is not None:
            view["label"] = label
        if second_view is not None and self.beside is not None:
            _add_second_view(view, second_view, self._name, self.beside.name)
        self._add_view(view, flags, rank)

    def _add_view(self, view: RowView, flags: list[str], rank: tuple[float, ...]) -> None:
        """Complete a row's view with its flags and marked quotes, and add it to the list."""
        if any(_do_tiers_differ(judged) for judged in view["judged"]):
            flags.append(TIERS_DIFFER)
        if flags:
            view["flags"] = flags
        _mark_answers(view)
        self._has_texts = self._has_texts or "texts" in view
        self._keys_used |= view.keys()
        self._list.add(view, *rank)

    def finish(self) -> ShownRows:
        """Return all rows for the page, including those that only the second results have."""
        verdict_names = ["verdict"]
        if self.beside is not None:
            verdict_names = [self._name, self.beside.name]
            self._add_rows_only_in(self.beside)
        self._list.columns = self._choose_columns(verdict_names)
        if not self._has_texts:
            self._list.note = _NO_TEXTS
        return self._list.finish()

    def _add_rows_only_in(self, second: Beside) -> None:
        """Add the rows that only the second results have, with an empty verdict in place of the first."""
        for view in second.rows.left():
            flags = [f"only in {second.name}"]
            rank = _rank_row(flags, view["judged"][0]["said"], number(view.get("mean")))
            view["judged"].insert(0, {"by": self._name, "said": ""})
            self._add_view(view, flags, rank)

    def _choose_columns(self, verdict_names: Sequence[str]) -> list[Column]:
        """List the page's columns: ids, verdicts, whatever else some row has, and texts."""
        columns = [Column("row", "id")]
        for result_number, name in enumerate(verdict_names):
            columns.append(Column(name, f"said {result_number}"))
        others = {"label": "label", "flags": "difference", "mean": "mean score", "usd": "USD"}
        for key, name in others.items():
            if key in self._keys_used:
                columns.append(Column(name, key))
        columns.append(Column("text", "text"))
        return columns


def set_beside(results: ResultFile, name: str) -> Beside:
    """Read second results, with everything that a page shows of their rows."""
    store = RowStore()
    words = {}
    for row in results:
        store.put(row.row_id, view_row(results, row, name))
        words[row.row_id] = row.verdict
    return Beside(results.name, name, store, words)


def store_texts(texts: Iterable[tuple[str, Mapping[str, str]]]) -> RowStore:
    """Keep the texts of rows by id."""
    store = RowStore()
    for row_id, texts_of_row in texts:
        shown_texts = {name: shown_text(text) for name, text in texts_of_row.items()}
        store.put(row_id, {"texts": shown_texts})
    return store


def view_row(results: ResultFile, row: ResultRow, name: str) -> RowView:
    """Describe a row of results, with its texts by name; quotes are marked once the row is complete."""
    texts = {}
    for text_name, text in results.texts_of(row).items():
        texts[text_name] = shown_text(text)
    average = number(row.columns.get("average"))
    return filled(
        id=shown_text(row.row_id),
        texts=texts,
        mean="" if average is None else f"{average:.4g}",
        usd=amount(number(row.columns.get("cost_usd"))),
        judged=[_view_judged(row, name)],
    )


def _view_judged(row: ResultRow, name: str) -> RowView:
    """Describe the judge's verdict on a row, with each tier's opinion if there's a record of it."""
    record = nested(row.columns.get("judged")) or {}
    schema = str(record.get("schema"))
    if not schema.startswith("judgekit/"):
        record = {}  # another program's column may have this name
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
    judged = filled(
        scores=scores_text(row.scores),
        reasoning=shown_text(reasoning),
        findings=findings,
        rounds=round_views,
        error=shown_text(str(row.columns.get("error") or "")),
    )
    return {"by": name, "said": row.verdict, **judged}


def _view_finding(finding: Finding) -> RowView:
    return filled(
        issue=shown_text(finding.issue),
        dimension=shown_text(finding.dimension),
        location=shown_text(finding.location),
        suggestion=shown_text(finding.suggestion),
        quote=shown_text(finding.quote),
    )


def _view_round(round_: Round | CompareRound, *, reasoning: str, decided: bool) -> RowView:
    """Describe a tier's opinion or failure.

    Its reason is left out if it's already the verdict's `reasoning`.
    """
    tier: str = round_.tier
    order = getattr(round_, "order", None)  # of the compared texts
    if order:
        tier += f" ({', '.join(order)})"

    verdict_word = ""
    scores = ""
    opinion_reasoning = ""
    opinion = round_.opinion
    if opinion is not None:
        opinion_reasoning = opinion.reasoning
        scores = _render_probabilities(opinion.probabilities)
    if isinstance(opinion, ScoreOpinion):
        verdict_word = opinion.outcome or ""
        scores_and_shares = [scores_text(opinion.scores), scores]
        scores = "; ".join(text for text in scores_and_shares if text)
    elif isinstance(opinion, PairOpinion):
        verdict_word = opinion.better

    failure = ""
    if round_.failure:
        failure = shown_text(f"{round_.failure.kind}: {round_.failure.message}")
    return filled(
        tier=tier,
        model=shown_text(round_.model),
        said=shown_text(verdict_word),
        decided=decided or None,  # `filled` leaves None out
        scores=scores,
        reasoning="" if opinion_reasoning == reasoning else shown_text(opinion_reasoning),
        failure=failure,
        usd=amount(round_.usage.cost_usd),
        seconds=f"{round_.latency_ms / 1000:.1f}" if round_.latency_ms else "",
    )


def _render_probabilities(probabilities: Mapping[str, Mapping[str, float]]) -> str:
    """Render the probability of each option, by question."""
    parts = []
    for name, options in probabilities.items():
        shares = ", ".join(f"{option} {share:.0%}" for option, share in options.items())
        parts.append(shown_text(f"{name}: {shares}"))
    return "; ".join(parts)


def _read_records(kind: type[_Record], values: object) -> Iterator[_Record]:
    """Yield the valid records of a list, since anybody may have written the file."""
    for value in values if isinstance(values, list) else ():
        with suppress(ValidationError):
            yield kind.model_validate(value)


def _add_second_view(view: RowView, other: RowView, name: str, other_name: str) -> None:
    """Add the second results' view of a row to the first results' view.

    If a text differs between the two, the page shows both, each under its results' name.
    """
    view["judged"] += other["judged"]
    texts = view.setdefault("texts", {})
    for text_name, text in other.get("texts", {}).items():
        first_text = texts.setdefault(text_name, text)
        if first_text != text:
            del texts[text_name]
            texts[f"{text_name}, {name}"] = first_text
            texts[f"{text_name}, {other_name}"] = text
    if not texts:
        del view["texts"]


def _mark_answers(view: RowView) -> None:
    """Split each text of a row into pieces, so that a page can mark quotes.

    Only the answer's text is marked, since that's what the judge's findings quote.
    """
    quotes = []
    for judged in view["judged"]:
        quotes += [finding.get("quote", "") for finding in judged.get("findings", ())]
    texts_in_pieces: list[tuple[str, list[str]]] = []
    for name, text in view.get("texts", {}).items():
        is_answer = name == _ANSWER or name.startswith(f"{_ANSWER}, ")
        texts_in_pieces.append((name, mark_quotes(text, quotes if is_answer else ())))
    if texts_in_pieces:
        view["texts"] = texts_in_pieces


def _describe_difference(words: Sequence[str], label: str | None, *, is_binary: bool) -> list[str]:
    """Describe how the verdicts of one or two results differ from each other and from the label.

    If there are two verdicts, the second is the one that's compared with the label. Without a label, no
    flag compares with it.
    """
    are_right: list[bool | None] = []  # None without a label or a verdict
    for word in words:
        if label is None or word in UNDECIDED:
            are_right.append(None)
        else:
            are_right.append(agrees(label, word, binary=is_binary))
    flags = []
    if len(words) > 1:
        flags.append(_describe_change(words, are_right))
    is_last_right = are_right[-1]
    if is_last_right is not None:
        flags.append(LIKE_LABEL if is_last_right else UNLIKE_LABEL)
    return flags


def _describe_change(words: Sequence[str], are_right: Sequence[bool | None]) -> str:
    """Describe how a second verdict changed against the first: same, changed, fixed or regressed.

    A verdict that agrees with the label is good. Without a label, an accept is good.
    """
    first, second = words
    if first == second:
        return SAME
    was_good, is_good = are_right
    if was_good is None or is_good is None:
        if first not in OUTCOMES or second not in OUTCOMES:
            return CHANGED
        was_good = first == "accept"
        is_good = second == "accept"
    if was_good == is_good:
        return CHANGED
    return FIXED if is_good else REGRESSED


def _do_tiers_differ(judged: Mapping[str, Any]) -> bool:
    """Whether the tiers that gave an opinion on a row gave different ones."""
    verdict_words = {round_["said"] for round_ in judged.get("rounds", ()) if "said" in round_}
    return len(verdict_words) > 1


def _rank_row(flags: Sequence[str], word: str, mean: float | None) -> tuple[float, ...]:
    """Rank a row: differing rows come first, then those without a verdict or rejected, then low scores."""
    return _first_position(flags, _FIRST_FLAGS), _first_position([word], _FIRST_WORDS), mean or 0.0


def _first_position(values: Sequence[str], order: Sequence[str]) -> int:
    """Find the first position in `order` that holds one of the values; the length of `order` if none does."""
    for position, value in enumerate(order):
        if value in values:
            return position
    return len(order)
