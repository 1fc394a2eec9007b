"""`judgekit eval judge`: how far judges agree with labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from judgekit import paths
from judgekit.cli.measured import LABEL_WIDTH, figure, progress, resampling
from judgekit.cli.output import complain, emit, say
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.evaluation.bootstrap import Interval
    from judgekit.evaluation.judge_agreement import Class
    from judgekit.evaluation.judge_report import JudgeReport, JudgingReport


_LONGEST_WORD = 40  # characters, of a column that is a little wider


def judge(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Labelled cases, one JSON object a line.")],
    rubric: Annotated[str | None, typer.Option(help="ID, ID@VERSION or a YAML file.")] = None,
    mode: Annotated[Literal["strict", "lenient"], typer.Option(help="Whose thresholds apply.")] = "strict",
    wanted: Annotated[
        str | None, typer.Option(metavar="WORD", help="What injected texts are after (default accept).")
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Ask models a second time, too, and with the candidates in another order."
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page with pictures.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Measure judges on labelled cases: those whose answers are recorded, else the models set up here.

    Exit code 2 when a model that was asked did not answer: the figures rest on a part, or on nothing.
    """
    from judgekit import library
    from judgekit.calibrate import labelled
    from judgekit.evaluation import judge as evaluation
    from judgekit.evaluation import judge_live, judge_page, judge_variants

    if html is not None:
        _check(html)
    cases = labelled.read(file)
    project = Path(paths.project_root(str(Path.cwd())))
    loaded = library.find_rubric(rubric, project) if rubric else None
    recorded = any(case.judges for case in cases)
    if again and (recorded or loaded is None):
        raise UsageError("--again asks models: name a --rubric, and a file without recorded answers")
    missing = None
    if loaded and not recorded:
        cases = judge_variants.again(cases) if again else cases
        shown = progress(len(cases), "cases")
        cases = judge_live.ask(cases, file.parent, loaded, mode, project, shown).cases
        missing = judge_live.unanswered(cases)
    report = evaluation.report(cases, file.name, loaded, mode, wanted)
    if html is not None:
        try:
            html.write_text(judge_page.html(report), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{html}: cannot be written ({error.strerror})") from None
        complain(f"drawn: {html}")
    if as_json:
        emit(report.model_dump_json(by_alias=True))
    else:
        for line in _lines(report):
            say(line)
    if missing is None:
        return 0
    complain(missing)
    return Exit.HUMAN_NEEDED


def _check(html: Path) -> None:
    """Refuse, before any model is asked, a page that could not be drawn or not be written."""
    from judgekit.charts import library

    library.load()
    if not html.parent.is_dir():
        raise InputError(f"{html}: cannot be written; there is no folder {html.parent}")


def _lines(report: JudgingReport) -> Iterator[str]:
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    yield f"{report.file}: {report.items} labelled items{rubric}"
    for each in report.judges:
        yield ""
        yield from _judge(each)
    yield ""
    yield resampling(report.bootstrap, "items")


def _judge(each: JudgeReport) -> Iterator[str]:
    yield escaped(f"{each.judge}{f' ({each.model})' if each.model else ''}: {each.items} items")
    yield figure("accuracy", each.accuracy)
    yield figure("Cohen's kappa", each.kappa)
    if each.weighted_kappa:
        yield figure("quadratically weighted kappa", each.weighted_kappa)
    if each.unanswered:
        why = ", ".join(f"{count} {kind}" for kind, count in each.unanswered.items())
        yield escaped(f"  {'not answered':<{LABEL_WIDTH}}{why}")
    yield figure("unreadable", each.unreadable)
    yield from map(_class, each.classes)
    for name, flips in (("flips with the order", each.order_flips), ("flips on rerun", each.rerun_flips)):
        if flips.pairs:
            yield f"{figure(name, flips.rate)} of {flips.pairs}"
    if each.injection:
        found = each.injection
        yield figure(f"{_word(found.wanted)} before injected text", found.before)
        yield f"{figure('lift by injected text', found.lift)} of {found.pairs}"
    if each.probabilities:
        known = each.probabilities
        errors = f"{known.brier:.3f}, {known.ece:.3f} of {known.answers}"
        yield f"  {'Brier and ECE of its probabilities':<{LABEL_WIDTH}}{errors}"
    usd = "" if each.cost.usd is None else f", ${each.cost.usd:.6f}"
    yield f"  {'an item':<{LABEL_WIDTH}}{each.cost.calls:.2f} calls{usd}"


def _class(one: Class) -> str:
    precision, recall = map(_short, (one.precision, one.recall))
    times = f"{one.said} time{'' if one.said == 1 else 's'}"
    known = f"{one.labelled} labelled so" if one.labelled else f"said {times}, no label says so"
    return f"  {_word(one.word):<{LABEL_WIDTH}}precision {precision}, recall {recall}, {known}"


def _word(word: str) -> str:
    """Return a word that anybody may have written, so that it keeps to its column."""
    told = escaped(word[: _LONGEST_WORD + 1])
    return told if len(told) <= _LONGEST_WORD else f"{told[: _LONGEST_WORD - 1]}…"


def _short(found: Interval | None) -> str:
    return "-" if found is None else f"{found.value:.3f}"
