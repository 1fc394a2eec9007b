"""`judgekit label`: a person says about verdicts whether their content should go, one key each."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit.cli.ledger import Since, damaged, here
from judgekit.cli.output import keeps, say, verdict_text, warn
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import lines_of, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.ledger import Label, Ledger, VerdictLine
    from judgekit.ledger.records import LabelWord

_WORDS: dict[str, LabelWord] = {"g": "go", "n": "no-go", "u": "unsure"}
# What a file may say instead: the words of a judge, as the gate reads them.
_IN_FILES: dict[str, LabelWord] = {
    **{word: word for word in _WORDS.values()},
    "accept": "go",
    "improve": "no-go",
    "reject": "no-go",
}
_KEYS = "g go, n no-go, u unsure, s skip, b back (undo), a all of the text, q quit"
_HEADING = ["id", "label"]
_SHOWN = 100  # characters of a line that cannot be used
_LINES = 40  # of each file, until `a` is pressed


def label(
    blind: Annotated[bool, typer.Option("--blind", help="Hide the verdict and its findings.")] = False,
    since: Since = None,
    limit: Annotated[int, typer.Option("-n", min=1, help="Label at most this many.")] = 1_000_000,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read labels from a file: lines `id,accept|improve|reject|unsure`; - for stdin.",
        ),
    ] = None,
) -> int:
    """Label verdicts as right or wrong, so that the gate's errors can be counted.

    Asks first for the labels that promote needs, and continues where you stopped. Each label is saved at
    once; b undoes the last one.
    """
    from judgekit import environment
    from judgekit.cli.kpi import readiness
    from judgekit.ledger import LineFilter, labels, store

    ledger, who = here(), labels.who()
    if from_ is not None:
        return _from_file(ledger, from_, who)
    if not labels.at_terminal():
        raise UsageError("labelling needs a terminal; use --from FILE to read labels from a file")
    wanted = LineFilter(since=store.point(since) if since else None)
    lacking, _ = readiness(Path(environment.project_root(str(Path.cwd()))))
    records = ledger.records(wanted, damaged)
    waiting = labels.waiting(records, who, lacking.labels, lacking.found)[:limit]
    count = _go_through(ledger, waiting, who, blind=blind)
    say(f"{count} labelled, {len(waiting) - count} left")
    return 0


def _go_through(ledger: Ledger, waiting: Sequence[VerdictLine], who: str, *, blind: bool) -> int:
    """Ask about each verdict, keep the answers, and return how many verdicts are labelled."""
    from judgekit.ledger import Label

    labelled: set[int] = set()  # by position
    position = 0
    while position < len(waiting):
        keeps(f"{len(labelled)} labels are saved; judgekit label continues there", ";")
        verdict = waiting[position]
        commit = f", commit {verdict.commit[:12]}" if verdict.commit else ""
        count = f"{position + 1} of {len(waiting)}"
        say(f"\n{'=' * 72}\n{count}: {verdict.task_id}{commit}, {verdict.timestamp:%Y-%m-%d %H:%M} UTC\n")
        _show_texts(verdict, _LINES)
        if not blind:
            say(verdict_text(verdict.record()))
        say("\nShould this go?")
        key = _key(verdict)
        if key == "q":
            break
        if key == "b":
            position = max(0, position - 1)
            if position in labelled:
                labelled.remove(position)
                ledger.add(Label(of=waiting[position].id, label="withdrawn", who=who, blind=blind))
            continue
        if key in _WORDS:
            ledger.add(Label(of=verdict.id, label=_WORDS[key], who=who, blind=blind))
            labelled.add(position)
        position += 1
    return len(labelled)


def _key(verdict: VerdictLine) -> str:
    """Wait for a key that means something."""
    while True:
        say(_KEYS)
        try:
            key = typer.getchar().lower()
        except EOFError:
            return "q"
        if key == "a":
            _show_texts(verdict, None)
        elif key in _WORDS or key in {"s", "b", "q"}:
            return key


def _show_texts(verdict: VerdictLine, most: int | None) -> None:
    from judgekit.ledger.labels import texts

    for path, text in texts(verdict, Path.cwd()).items():
        lines = ["(no longer in this repository)"] if text is None else lines_of(text)
        shown = lines[:most]
        say(f"--- {path}")
        say("\n".join(f"  {line}" for line in shown))
        if len(shown) < len(lines):
            say(f"  … {len(lines) - len(shown)} more lines (a shows them)")
    say("---")


def _from_file(ledger: Ledger, name: str, who: str) -> int:
    """Keep the labels in a file; exit code 65 when a line cannot be used."""
    from judgekit.ledger import LineFilter, VerdictLine

    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"{name}: cannot be read ({reason})") from None
    ids = [record.id for record in ledger.records(LineFilter(kinds=[VerdictLine]), damaged)]
    labels: list[Label] = []
    bad = False
    for number, line in enumerate(lines_of(text), 1):
        try:
            row = [cell.strip() for cells in csv.reader([line]) for cell in cells]
        except csv.Error:  # a field of more than 128 KB
            row = [line]
        if not row or (number == 1 and row[:2] == _HEADING):
            continue
        found = _label(row, ids, who)
        if isinstance(found, str):
            bad = True
            warn(f"{name}:{number}: {found}")
        else:
            labels.append(found)
    ledger.add(*labels)
    say(f"{len(labels)} labelled")
    return Exit.BAD_INPUT if bad else 0


def _label(row: Sequence[str], ids: Sequence[str], who: str) -> Label | str:
    """Return the label that a line of a file gives, or what is wrong with it."""
    from judgekit.ledger import Label

    given, *rest = (one_line(cell, _SHOWN) for cell in row)
    if not rest:
        return f"expected ID,LABEL, got {given!r}"
    matching = [each for each in ids if each.startswith(row[0])]
    exact = [each for each in matching if each == row[0]] or matching
    if len(exact) != 1:
        found = f"{len(exact)} verdicts have an id that starts so" if exact else "no verdict has it"
        return f"id must be that of one verdict; got {given!r}, and {found}"
    if (word := _IN_FILES.get(row[1])) is None:
        return f"label must be accept, improve or reject; got {rest[0] or 'nothing'}"
    return Label(of=exact[0], label=word, who=row[2] if row[2:] and row[2] else who)
