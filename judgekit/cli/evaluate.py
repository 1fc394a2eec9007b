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
    from collections.abc import Callable

    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.evaluation.retrieval import RetrievalReport
    from judgekit.evaluation.stats import BootstrapInterval, Resampling
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
    rubric: Annotated[str | None, typer.Option(help="Rubric: ID, ID@VERSION or a YAML file.")] = None,
    mode: Annotated[
        Literal["strict", "lenient"], typer.Option(help="Mode whose thresholds apply.")
    ] = "strict",
    wanted: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="The label that injected texts aim for (default accept)."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Also ask models a second time, and with the candidates in another order."
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write an HTML page with charts.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Measure judges on labelled cases: recorded answers, or else the models set up here.

    Exit code 2 when a model did not answer: the figures cover a part of the cases, or none.
    """
    from judgekit.evaluation import cases as labelled
    from judgekit.evaluation import charts, runner
    from judgekit.evaluation import report as evaluation
    from judgekit.rubric import loader

    if html is not None:  # refuse it before any model is asked
        charts.load()
        if not html.parent.is_dir():
            raise InputError(f"{html}: cannot be written; there is no folder {html.parent}")
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
        _say_judging(report)
    if missing is not None:
        warn(missing)
    return 0 if missing is None else Exit.HUMAN_NEEDED


def _say_judging(report: JudgingReport) -> None:
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    say(f"{report.file}: {report.items} labelled items{rubric}")
    for each in report.judges:
        say()
        _say_judge(each)
    say()
    say(resampling(report.bootstrap, "items"))


def _say_judge(judge: JudgeReport) -> None:
    say(escaped(f"{judge.judge}{f' ({judge.model})' if judge.model else ''}: {judge.items} items"))
    say(figure("accuracy", judge.accuracy))
    say(figure("Cohen's kappa", judge.kappa))
    if judge.weighted_kappa:
        say(figure("quadratically weighted kappa", judge.weighted_kappa))
    if judge.unanswered:
        why = ", ".join(f"{count} {kind}" for kind, count in judge.unanswered.items())
        say(escaped(f"  {'not answered':<{LABEL_WIDTH}}{why}"))
    say(figure("unreadable", judge.unreadable))
    for one in judge.classes:
        precision, recall = (f"{each.value:.3f}" if each else "-" for each in (one.precision, one.recall))
        times = f"{one.said} time{'' if one.said == 1 else 's'}"
        known = f"{one.labelled} labelled so" if one.labelled else f"said {times}, no label says so"
        say(f"  {_word(one.word):<{LABEL_WIDTH}}precision {precision}, recall {recall}, {known}")
    for name, flips in (
        ("flips with another order", judge.order_flips),
        ("flips when asked again", judge.rerun_flips),
    ):
        if flips.pairs:
            say(f"{figure(name, flips.rate)} of {flips.pairs}")
    if lift := judge.injection:
        say(figure(f"{_word(lift.wanted)} before injected text", lift.before))
        say(f"{figure('lift by injected text', lift.lift)} of {lift.pairs}")
    if probabilities := judge.probabilities:
        errors = f"{probabilities.brier:.3f}, {probabilities.ece:.3f} of {probabilities.answers}"
        say(f"  {'Brier and ECE of its probabilities':<{LABEL_WIDTH}}{errors}")
    usd = "" if judge.cost.usd is None else f", ${judge.cost.usd:.6f}"
    say(f"  {'an item':<{LABEL_WIDTH}}{judge.cost.calls:.2f} calls{usd}")


def _word(word: str) -> str:
    """Return a word that anybody may have written, so that it keeps to its column."""
    told = escaped(word[: _LONGEST_WORD + 1])
    return told if len(told) <= _LONGEST_WORD else f"{told[: _LONGEST_WORD - 1]}…"


app = typer.Typer(no_args_is_help=True, help="Measure judges and retrieval on labelled data.")


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
            help="Search only documents that share the query's scope (the part of an id before /).",
        ),
    ] = False,
    profile: Annotated[ProfileKind, typer.Option(help="Retrieval profile to rank with.")] = _FIRST_KIND,
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the rankings, in TREC run format.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
            f"{folder / collection.QRELS}: {report.strays} judgements name unknown queries or documents; "
            "such a document counts as not found"
        )
    if as_json:
        emit(report.model_dump_json())
    else:
        _say_retrieval(report)
    return 0


def _profile(kind: str) -> Profile:
    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.profiles import compile_profiles

    return Profiles(compile_profiles(Path(environment.project_root(str(Path.cwd()))))).by_kind[kind]


def _say_retrieval(report: RetrievalReport) -> None:
    from judgekit.evaluation.stats import Bin, LabelGroup

    scopes = f" in {report.scopes} scopes" if report.scopes is not None else ""
    profile = f"profile {report.profile.retrieval} {report.profile.version}"
    say(
        f"{report.collection}: {report.documents} documents{scopes}, {report.queries} queries,"
        f" {report.judged} of them judged; {profile}"
    )
    say()
    for name, metric in report.metrics.items():
        say(figure(name, metric))
    say()
    measured = report.confidence
    if measured.brier is None or measured.ece is None:
        say("Confidence: no query had hits")
    else:
        say(f"Confidence of {measured.hits} hits: Brier {measured.brier:.4f}, ECE {measured.ece:.4f}")
        say(f"  {'confidence':<12}{'hits':>8}{'mean':>8}{'relevant':>10}")
        groups: list[Bin | LabelGroup] = [*measured.bins, *measured.labels]
        for each in groups:
            name = f"{each.low:.1f} to {each.high:.1f}" if isinstance(each, Bin) else each.label
            say(f"  {name:<12}{each.count:>8}{each.confidence:>8.3f}{each.relevant:>10.3f}")
    say()
    injection = report.injection
    say(f"To {injection.prompts} prompts, {injection.answerable} of them answerable, the hook would add")
    say(figure("an injection, share of prompts", injection.injected))
    say(figure("a nudge, share of prompts", injection.nudged))
    say(figure("relevant, share of what is injected", injection.precision))
    say(figure("something relevant, share of answerable", injection.coverage))
    if report.elsewhere is not None:
        say()
        say("Asked against the documents of the next scope")
        say(figure("an injection, share of prompts", report.elsewhere.injected))
        say(figure("a nudge, share of prompts", report.elsewhere.nudged))
    say()
    say(resampling(report.bootstrap, "queries"))
