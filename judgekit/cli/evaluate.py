"""`judgekit eval`: how well judging and retrieval do on labelled data."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from judgekit import environment
from judgekit.cli.output import AGAIN, REPLIES, emit, keeps, say, warn
from judgekit.errors import Exit, InputError, UsageError
from judgekit.retrieval.compiled import KINDS
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.evaluation.retrieval import RetrievalReport
    from judgekit.evaluation.stats import BootstrapInterval, Class, Resampling
    from judgekit.retrieval.compiled import Profile

    ProfileKind = str
else:
    ProfileKind = enum.StrEnum("ProfileKind", [(kind, kind) for kind in KINDS])

_FIRST_KIND = ProfileKind(KINDS[0])

LABEL_WIDTH = 44


def figure(name: str, interval: BootstrapInterval | None) -> str:
    """Return a line with a figure and, in brackets, its interval; `-` where there is none."""
    if interval is None:
        return f"  {name:<{LABEL_WIDTH}}    -"
    return f"  {name:<{LABEL_WIDTH}}{interval.value:.3f}  [{interval.low:.3f}, {interval.high:.3f}]"


def resampling(how: Resampling, what: str) -> str:
    """Return the line that says what the brackets are."""
    return f"In brackets {how.level:.0%} intervals: {how.resamples} draws of the {what}, seed {how.seed}"


def progress(total: int, what: str) -> Callable[[int], None]:
    """Return what shows on a terminal how many are done."""
    terminal = sys.stderr is not None and sys.stderr.isatty()

    def show(done: int) -> None:
        keeps(f"{done} of {total} {what} are done, {REPLIES}; {AGAIN}")
        if not terminal:
            return
        sys.stderr.write(f"\r{done} of {total} {what}" if done < total else "\r\x1b[K")
        sys.stderr.flush()

    return show


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
    from judgekit.evaluation import cases as labelled
    from judgekit.evaluation import report as evaluation
    from judgekit.evaluation import runner
    from judgekit.rubric import loader

    if html is not None:
        _check(html)
    cases = labelled.read(file)
    project = Path(environment.project_root(str(Path.cwd())))
    loaded = loader.find_rubric(rubric, project) if rubric else None
    recorded = any(case.judges for case in cases)
    if again and (recorded or loaded is None):
        raise UsageError("--again asks models: name a --rubric, and a file without recorded answers")
    missing = None
    if loaded and not recorded:
        cases = runner.again(cases) if again else cases
        shown = progress(len(cases), "cases")
        cases = runner.ask(cases, file.parent, loaded, mode, project, shown).cases
        missing = runner.unanswered(cases)
    report = evaluation.report(cases, file.name, loaded, mode, wanted)
    if html is not None:
        try:
            html.write_text(evaluation.html(report), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{html}: cannot be written ({error.strerror})") from None
        warn(f"drawn: {html}")
    if as_json:
        emit(report.model_dump_json(by_alias=True))
    else:
        for line in _lines(report):
            say(line)
    if missing is None:
        return 0
    warn(missing)
    return Exit.HUMAN_NEEDED


def _check(html: Path) -> None:
    """Refuse, before any model is asked, a page that could not be drawn or not be written."""
    from judgekit.evaluation import charts

    charts.load()
    if not html.parent.is_dir():
        raise InputError(f"{html}: cannot be written; there is no folder {html.parent}")


def _lines(report: JudgingReport) -> Iterator[str]:
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    yield f"{report.file}: {report.items} labelled items{rubric}"
    for judge_report in report.judges:
        yield ""
        yield from _judge(judge_report)
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
        lift = each.injection
        yield figure(f"{_word(lift.wanted)} before injected text", lift.before)
        yield f"{figure('lift by injected text', lift.lift)} of {lift.pairs}"
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


def _short(bootstrap_interval: BootstrapInterval | None) -> str:
    return "-" if bootstrap_interval is None else f"{bootstrap_interval.value:.3f}"


app = typer.Typer(no_args_is_help=True, help="Measure how well it does on labelled data.")


app.command("judge")(judge)


@app.command()
def retrieval(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv.")
    ],
    scope_prefix: Annotated[
        bool,
        typer.Option(
            "--scope-prefix",
            help="Search only documents whose id has the same part before / as the query's.",
        ),
    ] = False,
    profile: Annotated[ProfileKind, typer.Option(help="The retrieval profile that ranks.")] = _FIRST_KIND,
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the rankings, in TREC run format.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Measure ranking, confidence and injection on a labelled collection."""
    from judgekit.evaluation import collection
    from judgekit.evaluation import retrieval as evaluation

    found = collection.read(folder)
    if scope_prefix:
        collection.check_scopes(folder, found)
    if run is not None:
        collection.check(
            run, (collection_query.id for collection_query in (*found.queries, *found.documents))
        )
    used = _profile(profile)
    shown = progress(len(found.queries), "queries")
    seen = evaluation.search(found, used, scoped=scope_prefix, progress=shown)
    if run is not None:
        collection.write(run, ((each.query, each.ranking) for each in seen))
    report = evaluation.report(found, used, seen, scoped=scope_prefix)
    if report.strays:
        warn(
            f"{folder / collection.QRELS}: {report.strays} judgements of queries or documents that are not"
            " there; such a document counts as not found"
        )
    if as_json:
        emit(report.model_dump_json())
    else:
        for line in _evaluate_lines(report):
            say(line)
    return 0


def _profile(kind: str) -> Profile:
    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.profiles import compile_profiles

    return Profiles(compile_profiles(Path(environment.project_root(str(Path.cwd()))))).by_kind[kind]


def _evaluate_lines(report: RetrievalReport) -> Iterator[str]:
    scopes = f" in {report.scopes} scopes" if report.scopes is not None else ""
    profile = f"profile {report.profile.retrieval} {report.profile.version}"
    yield (
        f"{report.collection}: {report.documents} documents{scopes}, {report.queries} queries,"
        f" {report.judged} of them judged; {profile}"
    )
    yield ""
    for name, bootstrap_interval in report.metrics.items():
        yield figure(name, bootstrap_interval)
    yield ""
    yield from _confidence(report)
    yield ""
    injection = report.injection
    yield f"To {injection.prompts} prompts, {injection.answerable} of them answerable, the hook would add"
    yield figure("an injection, share of prompts", injection.injected)
    yield figure("a nudge, share of prompts", injection.nudged)
    yield figure("relevant, share of what is injected", injection.precision)
    yield figure("something relevant, share of answerable", injection.coverage)
    if report.elsewhere is not None:
        yield ""
        yield "Asked against the documents of the next scope"
        yield figure("an injection, share of prompts", report.elsewhere.injected)
        yield figure("a nudge, share of prompts", report.elsewhere.nudged)
    yield ""
    yield resampling(report.bootstrap, "queries")


def _confidence(report: RetrievalReport) -> Iterator[str]:
    measured = report.confidence
    if measured.brier is None or measured.ece is None:
        yield "Confidence: no query found anything"
        return
    yield f"Confidence of {measured.hits} hits: Brier {measured.brier:.4f}, ECE {measured.ece:.4f}"
    yield f"  {'confidence':<12}{'hits':>8}{'mean':>8}{'relevant':>10}"
    for bin_ in measured.bins:
        yield _row(f"{bin_.low:.1f} to {bin_.high:.1f}", bin_.count, bin_.confidence, bin_.relevant)
    for group in measured.labels:
        yield _row(group.label, group.count, group.confidence, group.relevant)


def _row(name: str, count: int, confidence: float, relevant: float) -> str:
    return f"  {name:<12}{count:>8}{confidence:>8.3f}{relevant:>10.3f}"
