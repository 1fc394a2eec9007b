"""`judgekit eval`: how well judging and retrieval do on labels."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli import interruption, options, output, output_files
from judgekit.cli.formats.table import cost_text
from judgekit.cli.options import AsJson
from judgekit.cli.output import emit, note, project_path, say, warn
from judgekit.cli.progress import count_to
from judgekit.cli.report import parts_text
from judgekit.cli.row_options import Id, Map
from judgekit.config import ModeName
from judgekit.errors import Exit, InputError, UsageError
from judgekit.retrieval.compiled import KINDS, Profiles
from judgekit.text import counted, escaped, short_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.evaluation.cases import Case
    from judgekit.evaluation.labels import LeftOut
    from judgekit.evaluation.report import JudgeReport, JudgingReport
    from judgekit.evaluation.retrieval import RetrievalReport
    from judgekit.evaluation.stats import Resampling
    from judgekit.hooks.relevance import Answers
    from judgekit.hooks.settings import Settings
    from judgekit.hooks.trial import HookReport, Share, Trial
    from judgekit.judging.score import DocumentJudge
    from judgekit.ledger.rates import Interval
    from judgekit.retrieval.confidence import Candidate
    from judgekit.rubric.schema import Rubric

    ProfileKind = str
else:
    ProfileKind = enum.StrEnum("ProfileKind", [(kind, kind) for kind in KINDS])

_FIRST_KIND = ProfileKind(KINDS[0])
WIDTH = 44  # of the first column
_LONGEST_WORD = 40  # characters, in that column
_PROMPT = 300  # characters of a prompt, title or path that a person is asked about
_ANSWERS = {"y": True, "n": False, "s": None}
_WANTED = Option(metavar="WORD", help="Aim of injected texts (default accept).")
_MODELS = Option(metavar="A,B,C", help="Compare these models, each asked alone.")
_SCOPE_PREFIX = Option(
    "--scope-prefix", help="Search only documents of the query's scope (an id before /)."
)
_PROMPTS_FILE = Option("--prompts", metavar="FILE", help="Try these prompts, one a line.")
_FROM = Option("--from", help="Where this project's prompts are taken from.")
_LABELS = Option("--labels", metavar="FILE", help="Read answers from this file; ask nothing.")
_FIT = Option(
    "--fit", help="Ask about mentions too; write better thresholds to your configuration."
)

app = typer.Typer(no_args_is_help=True, help="Measure judges and retrieval on labelled data.")


@app.command()
def judge(
    file: Annotated[
        Path, Argument(metavar="FILE", help="Labelled cases: JSON Lines, CSV, TSV or Parquet.")
    ],
    rubric: options.RubricOption = None,
    mode: Annotated[ModeName, Option(help="Mode whose thresholds apply.")] = "strict",
    wanted: Annotated[str | None, _WANTED] = None,
    again: Annotated[
        bool, Option("--again", help="Also ask again, and with reordered candidates.")
    ] = False,
    models: Annotated[str | None, _MODELS] = None,
    repeat: options.Repeat = 1,
    keep: options.Keep = False,
    jobs: Annotated[
        int, Option("-j", min=1, max=256, help="Cases to ask about at the same time.")
    ] = 8,
    map_: Map = None,
    id_: Id = None,
    html: options.HtmlOption = None,
    as_json: AsJson = False,
    model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> int:
    """Measure judges on labelled cases: recorded answers, or else the models set up here.

    Exit code 2 when a model did not answer: the figures cover a part of the cases, or none.
    """
    from judgekit.evaluation import pages, report, runner
    from judgekit.rubric import loader

    project = project_path()
    loaded = loader.find_rubric(rubric, project) if rubric else None
    cases, left_out = read_cases(file, loaded and loaded.rubric, mode, map_, id_)
    recorded = any(case.judges for case in cases)
    names = []
    for name in (models or "").split(","):
        if name.strip() and name.strip() not in names:
            names.append(name.strip())
    asking = {"--again": again, "--model": model, "--models": models, "--repeat": repeat > 1}
    given = [option for option, value in asking.items() if value]
    if given and (recorded or loaded is None):
        raise UsageError(
            f"{given[0]} asks models: name a --rubric, and a file without recorded answers"
        )
    if models is not None and (model or not names):
        raise UsageError(
            "--models: expected names of models with commas between them, and no --model"
        )
    if keep and (models is not None or repeat == 1):
        raise UsageError(
            "--keep is for the noise of the configured models: add --repeat, and no --models"
        )
    missing = None
    judge = None
    if loaded and not recorded:
        cases = runner.again(cases, max(repeat - 1, int(again)), swapped=again)
        shown = count_to(len(cases) * max(1, len(names)), "answers")
        asked: list[str | None] = [*names] or [None]
        opinions = runner.ask(
            cases, file.parent, loaded, mode, project, shown, models=asked, at_once=jobs
        )
        missing = runner.unanswered(opinions.cases)
        cases = opinions.cases
        if repeat > 1 and not names:
            cases = opinions.with_course(loaded.rubric, mode)
            judge = opinions.judge
    measured = report.report(cases, file.name, loaded, mode, wanted, left_out)
    if html is not None:
        output_files.write_file(html, pages.judging_page(measured))
    say_judges(measured, as_json=as_json, is_comparison=bool(names))
    code = Exit.ACCEPTED
    if keep:
        code = keep_noise(measured, judge)
    return answered(missing) or code


def say_judges(report: JudgingReport, *, as_json: bool, is_comparison: bool = False) -> None:
    from judgekit.evaluation import pages

    if as_json:
        emit(report.model_dump_json(by_alias=True))
        return
    about = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    say(f"{report.file}: {counted(report.items, 'labelled item', 'labelled items')}{about}")
    if report.left_out.told():
        say(escaped(f"left out: {report.left_out.told()}"))
    if any(judge.is_binary for judge in report.judges):
        say("no label says improve, so an improve counts as not accepted")
    if is_comparison:
        say(f"\n{parts_text([pages.judges_table(report).turned])}")
        disputed = pages.outcomes_table(report, disputed=True)
        if disputed.rows:
            say(f"\nItems that they disagree about\n{parts_text([disputed])}")
    else:
        for judge in report.judges:
            _say_judge(judge)
    _say_resampling(report.bootstrap, "items")


def keep_noise(report: JudgingReport, judge: DocumentJudge | None) -> Exit:
    """Keep the noise of the course for the gate, if there is enough of it; return the exit code."""
    from judgekit.evaluation.cases import COURSE
    from judgekit.judging import noise

    spreads = [judged.spread for judged in report.judges if judged.judge == COURSE]
    spread = next(iter(spreads), None)
    if judge is None or spread is None or spread.answers - spread.cases < noise.LEAST:
        warn(
            f"noise not kept: it takes scores of documents, and {noise.LEAST} repeats or more in all"
        )
        return Exit.HUMAN_NEEDED
    path = noise.keep(judge, spread.cases, spread.noise)
    note(f"Wrote {path}; judgekit gate says which verdicts are within {spread.noise:g} points")
    return Exit.ACCEPTED


def read_cases(
    file: Path,
    rubric: Rubric | None,
    mode: ModeName,
    map_: Sequence[str] | None = None,
    id_: str | None = None,
) -> tuple[list[Case], LeftOut]:
    """Return labelled cases as a rubric understands them, and what was left out of them.

    A file has cases, or rows with the usual columns: a table, or lines with other keys than cases.
    """
    from judgekit.data import fields, labels
    from judgekit.data.rows import open_rows
    from judgekit.data.sources import ENDINGS, JSON_LINES, DataRow, find_source
    from judgekit.evaluation import cases
    from judgekit.evaluation.labels import LeftOut

    columns = labels.Columns(id_, fields.parse_map(map_ or ()))
    source = find_source(str(file))
    if source is not None and file.is_file():
        rows = open_rows(str(file), sys.stdin.buffer)
        are_rows = bool(map_ or id_) or source is not JSON_LINES
        if not are_rows:
            first = next(iter(rows), None)
            keys = first.columns.keys() if isinstance(first, DataRow) else set()
            has_label = any(name in keys for name in fields.USUAL["judge"]["label"].split())
            are_rows = has_label and not keys <= cases.Case.model_fields.keys()
        if are_rows:
            labelled, left_out = labels.labelled_cases(rows, columns)
            return cases.with_understood_labels(labelled, rubric, mode, left_out), left_out
    elif map_ or id_:
        raise UsageError(f"--map and --id are for rows; {file} is none of {', '.join(ENDINGS)}")
    left_out = LeftOut()
    return cases.with_understood_labels(cases.read(file), rubric, mode, left_out), left_out


def answered(missing: str | None) -> Exit:
    if missing is None:
        return Exit.ACCEPTED
    warn(missing)
    return Exit.HUMAN_NEEDED


def _figure(name: str, interval: Interval | Share | None, more: str = "") -> None:
    """Print a figure and, in brackets, its interval; `-` where there is none."""
    value = "    -"
    if interval is not None:
        value = f"{interval.value:.3f}  [{interval.low:.3f}, {interval.high:.3f}]"
    say(f"  {name:<{WIDTH}}{value}{more}")


def _say_resampling(how: Resampling, what: str) -> None:
    say(
        f"\nIn brackets {how.level:.0%} intervals: {how.resamples} draws of the {what}, seed {how.seed}"
    )


def _say_judge(judge: JudgeReport) -> None:
    name = escaped(f"{judge.title}{f' ({judge.model})' if judge.model else ''}")
    say(f"\n{name}: {counted(judge.items, 'item', 'items')}")
    _figure("accuracy", judge.accuracy)
    _figure("Cohen's kappa", judge.kappa)
    if judge.weighted_kappa:
        _figure("quadratically weighted kappa", judge.weighted_kappa)
    if judge.unanswered:
        why = ", ".join(f"{count} {kind}" for kind, count in judge.unanswered.items())
        say(escaped(f"  {'not answered':<{WIDTH}}{why}"))
    _figure("unreadable", judge.unreadable)
    for word in judge.classes:
        precision = f"{word.precision.value:.3f}" if word.precision else "-"
        recall = f"{word.recall.value:.3f}" if word.recall else "-"
        how_often = f"{word.labelled} labelled so"
        if not word.labelled:
            how_often = f"said {word.said} time{'' if word.said == 1 else 's'}, no label says so"
        figures = f"precision {precision}, recall {recall}, {how_often}"
        say(f"  {short_line(word.word, _LONGEST_WORD):<{WIDTH}}{figures}")
    order = judge.order_flips
    if order.pairs:
        _figure("flips with another order", order.rate, f" of {order.pairs}")
    rerun = judge.rerun_flips
    if rerun.pairs:
        _figure("flips when asked again", rerun.rate, f" of {rerun.pairs}")
    spread = judge.spread
    if spread:
        _figure(
            "spread of the distance from acceptance",
            spread.distance,
            f" points, {spread.cases} items",
        )
        for name, score in spread.scores.items():
            _figure(f"spread of {name}", score)
        say(f"  {'noise: 1.96 times that of the distance':<{WIDTH}}{spread.noise:.3f} points")
    lift = judge.injection
    if lift:
        _figure(f"{short_line(lift.wanted, _LONGEST_WORD)} before injected text", lift.before)
        _figure("lift by injected text", lift.lift, f" of {lift.pairs}")
    probabilities = judge.probabilities
    if probabilities:
        errors = f"{probabilities.brier:.3f}, {probabilities.ece:.3f} of {probabilities.answers}"
        say(f"  {'Brier and ECE of its probabilities':<{WIDTH}}{errors}")
    usd = "" if judge.cost.usd is None else f", ${judge.cost.usd:.6f}"
    say(f"  {'an item':<{WIDTH}}{judge.cost.calls:.2f} calls{usd}")


@app.command()
def retrieval(
    folder: Annotated[
        Path, Argument(metavar="DIR", help="Has corpus.jsonl, queries.jsonl, qrels.tsv.")
    ],
    scope_prefix: Annotated[bool, _SCOPE_PREFIX] = False,
    profile: Annotated[ProfileKind, Option(help="Retrieval profile to rank with.")] = _FIRST_KIND,
    run: Annotated[
        Path | None, Option(metavar="FILE", help="Also write rankings as a TREC run.")
    ] = None,
    as_json: AsJson = False,
    _out: options.OutOption = None,
) -> None:
    """Measure ranking, confidence and injection on a labelled collection."""
    from judgekit.evaluation import cases, retrieval
    from judgekit.retrieval.profiles import compile_profiles

    collection = cases.read_collection(folder, scoped=scope_prefix)
    if run is not None:
        named = (*collection.queries, *collection.documents)
        retrieval.check_run(run, (item.id for item in named))
    compiled = Profiles(compile_profiles(project_path())).by_kind[profile]
    shown = count_to(len(collection.queries), "queries")
    seen = retrieval.search(collection, compiled, scoped=scope_prefix, progress=shown)
    if run is not None:
        retrieval.write_run(run, ((answer.query, answer.ranking) for answer in seen))
    report = retrieval.report(collection, compiled, seen, scoped=scope_prefix)
    if report.strays:
        strays = f"{report.strays} judgements name unknown queries or documents"
        warn(f"{folder / cases.QRELS}: {strays}; such a document counts as not found")
    if as_json:
        emit(report.model_dump_json())
    else:
        _say_retrieval(report)


def _say_retrieval(report: RetrievalReport) -> None:
    from judgekit.evaluation.stats import Bin, LabelGroup

    scopes = "" if report.scopes is None else f" in {report.scopes} scopes"
    profile = f"profile {' '.join(report.profile.values())}"
    documents = counted(report.documents, "document", "documents")
    queries = counted(report.queries, "query", "queries")
    size = f"{documents}{scopes}, {queries}, {report.judged} of them judged"
    say(f"{report.collection}: {size}; {profile}\n")
    for name, metric in report.metrics.items():
        _figure(name, metric)
    measured = report.confidence
    if measured.brier is None or measured.ece is None:
        say("\nConfidence: no query had hits")
    else:
        say(
            f"\nConfidence of {measured.hits} hits: Brier {measured.brier:.4f}, ECE {measured.ece:.4f}"
        )
        say(f"  {'confidence':<12}{'hits':>8}{'mean':>8}{'relevant':>10}")
        groups: list[Bin | LabelGroup] = [*measured.bins, *measured.labels]
        for group in groups:
            if isinstance(group, Bin):
                name = f"{group.low:.1f} to {group.high:.1f}"
            else:
                name = group.label
            say(f"  {name:<12}{group.count:>8}{group.confidence:>8.3f}{group.relevant:>10.3f}")
    injection = report.injection
    prompts = counted(injection.prompts, "prompt", "prompts")
    say(f"\nTo {prompts}, {injection.answerable} of them answerable, the hook would add")
    _figure("an injection, share of prompts", injection.injected)
    _figure("a nudge, share of prompts", injection.nudged)
    _figure("relevant, share of what is injected", injection.precision)
    _figure("something relevant, share of answerable", injection.coverage)
    if report.elsewhere is not None:
        say("\nAsked against the documents of the next scope")
        _figure("an injection, share of prompts", report.elsewhere.injected)
        _figure("a nudge, share of prompts", report.elsewhere.nudged)
    _say_resampling(report.bootstrap, "queries")


@app.command()
def memories(
    prompts: Annotated[Path | None, _PROMPTS_FILE] = None,
    from_: Annotated[Literal["transcripts", "log"], _FROM] = "transcripts",
    labels: Annotated[Path | None, _LABELS] = None,
    limit: Annotated[int, Option(min=1, max=1_000, help="Try at most this many prompts.")] = 50,
    fit: Annotated[bool, _FIT] = False,
    as_json: AsJson = False,
    _model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> int:
    """Measure the hook on your own prompts: you say whether each memory that it injects is relevant.

    Exit code 1 when less than 80% of what is injected is relevant, 2 with fewer than 20 labelled injections.
    """
    from judgekit.hooks import relevance, settings, trial
    from judgekit.ledger.labels import at_terminal

    project = environment.project_root()
    configured, notes = settings.load(project)
    _check_hook(configured, fit=fit)
    texts = _prompts_to_try(prompts, from_, project, limit)
    kept_path = relevance.answers_file(project)
    answers = _read_answers(labels, kept_path, project, as_json=as_json)
    tried = trial.run(texts, configured, count_to(len(texts), "prompts"))
    warn(*notes, *tried.notes)
    pairs = []
    for prompt_trial in tried.trials:
        for hit in prompt_trial.injections(mentions=fit):
            pairs.append((prompt_trial, hit))
    if labels is None and at_terminal():
        unanswered_pairs = [pair for pair in pairs if pair[0].pair(pair[1]) not in answers]
        _ask(unanswered_pairs, answers, kept_path)
    hook = trial.hook_report(tried.trials, answers)
    judged = None
    if configured["judge"] == "on":
        judged = trial.hook_report(tried.trials, answers, judged=True)
    report: dict[str, Any] = {
        "prompts": len(texts),
        "bar": trial.BAR,
        "hook": hook.model_dump(),
        "judged": judged and judged.model_dump(),
        "judge": judged and trial.judge_report(tried, answers),
        "unanswered": sum(prompt_trial.pair(hit) not in answers for prompt_trial, hit in pairs),
        "fits": _fits(tried.trials, answers, configured) if fit else [],
        "injections": trial.rows(tried.trials, answers, mentions=fit),
    }
    if as_json:
        emit(json.dumps(report, ensure_ascii=False))
    else:
        _say_memories(report, hook, judged)
    return (judged or hook).code


def _prompts_to_try(
    file: Path | None, source: Literal["transcripts", "log"], project: str, limit: int
) -> list[str]:
    """Return prompts of a file, or of the project; raises `InputError` where there are none."""
    from judgekit.evaluation import cases
    from judgekit.hooks import trial

    if file is not None:
        lines = [text for _, text in cases.lines(file, "name a file of prompts")]
        texts = trial.distinct(lines, limit)
    else:
        texts = trial.of_project(source, project, limit)
    if not texts:
        place = str(file or f"{source} of {project}")
        raise InputError(
            f"{place}: no prompt that the hook answers; use --from log, or --prompts FILE"
        )
    return texts


def _read_answers(labels: Path | None, kept_path: Path, project: str, *, as_json: bool) -> Answers:
    """Return the answers in a file of labels, or those that are kept; raises `UsageError` without any way."""
    from judgekit.hooks import relevance
    from judgekit.ledger.labels import at_terminal

    if labels is None and kept_path.exists():
        labels = kept_path
    if labels is not None:
        return relevance.read_answers(labels, project)
    if not (as_json or at_terminal()):
        remedy = "run this in a terminal, or read labels with --labels FILE (--json prints what to label)"
        raise UsageError(f"no terminal to ask at, and no answers are kept; {remedy}")
    return {}


def _check_hook(configured: Settings, *, fit: bool) -> None:
    from judgekit.retrieval import search

    if not configured["enabled"]:
        raise UsageError("retrieval.enabled is false, so the hook adds nothing; set it to true")
    for problem in search.lacking(configured["roots"], configured.project):
        raise InputError(f"{problem.partition(';')[0]}; run this in a project with memories")
    for key, value in (("inject", "top_k"), ("scorer", "keyword")):
        if fit and configured[key] == value:
            raise UsageError(
                f"--fit: with retrieval.{key}: {value} no threshold decides; change that first"
            )


def _ask(pairs: list[tuple[Trial, Candidate]], answers: Answers, path: Path) -> None:
    """Ask a person about each pair, and keep each answer at once."""
    from judgekit.hooks.relevance import keep_answer

    for number, (trial, hit) in enumerate(pairs, 1):
        interruption.keeps(
            "eval", f"{number - 1} new answers are kept; run the same command to continue"
        )
        prompt, title, place = (
            short_line(each, _PROMPT) for each in (trial.prompt, hit.title, hit.path)
        )
        text = f"\n{number} of {len(pairs)}: {prompt}\n  {title} -> {place}\n"
        typer.echo(output.printable(f"{text}  relevant? y/n/skip (s; q stops)"), err=True)
        key = ""
        while key not in {*_ANSWERS, "q"}:
            key = output.pressed()
        if key == "q":
            break
        answers[trial.pair(hit)] = _ANSWERS[key]
        keep_answer(path, trial.pair(hit), relevant=_ANSWERS[key])


def _fits(trials: Sequence[Trial], answers: Answers, configured: Settings) -> list[dict[str, Any]]:
    """Look for better thresholds of each kind of store, and write those that the labels support."""
    from judgekit.hooks import fitting

    labels = {kind: each.labels for kind, each in configured.profiles.by_kind.items()}
    kinds = sorted({hit.kind for trial in trials for hit in trial.injections(mentions=True)})
    fits = []
    for kind in kinds:
        fits.append(fitting.fit(kind, trials, answers, labels, configured["max_inject"]))
    project = Path(configured.project)
    fits = [
        fitting.write_labels(each, project) if each.after != each.before else each for each in fits
    ]
    return [each.model_dump() for each in fits]


def _say_memories(report: dict[str, Any], hook: HookReport, judged: HookReport | None) -> None:
    from judgekit.hooks.trial import FEWEST
    from judgekit.judging.binomial import needed

    prompts = counted(report["prompts"], "prompt", "prompts")
    say(f"{prompts}; bar: {report['bar']:.0%} of what is injected is relevant")
    for name, each in (("Without a judge", hook), ("With the judge", judged)):
        if each is not None:
            say(
                f"\n{name}: {each.injected} injections, {each.mentioned} mentions to {each.nudged} prompts"
            )
            if each.precision:
                of = f" of {each.precision.of}"
            else:
                of = ""
            _figure("relevant, share of what is injected", each.precision, of)
            _figure(
                "something relevant, share of prompts", each.coverage, f" of {report['prompts']}"
            )
    if judge := report["judge"]:
        for name in ("dropped", "added"):
            count, relevant, irrelevant = judge[name].values()
            say(
                f"  {f'{name} by the judge':<{WIDTH}}{count}: {relevant} relevant, {irrelevant} not relevant"
            )
        say(f"  {'prompts that models judged':<{WIDTH}}{judge['prompts']}{cost_text(judge)}")
        if judge["unjudged"]:
            prompts = counted(judge["unjudged"], "prompt", "prompts")
            warn(f"models did not decide all about {prompts}: {judge['reason']}")
    say("\nIn brackets exact 95% intervals (Clopper and Pearson)")
    if report["unanswered"]:
        pairs = counted(report["unanswered"], "pair has", "pairs have")
        warn(f"{pairs} no answer yet; run this in a terminal to answer them")
    found = (judged or hook).precision
    if found is None or found.of < FEWEST:
        say(f"Too few labels: {FEWEST - (found.of if found else 0)} more are needed")
    elif found.value < report["bar"]:
        say(
            f"The precision, {found.value:.3f}, is below the bar; --fit looks for better thresholds"
        )
    elif found.low < report["bar"]:
        total = needed(round(1 - report["bar"], 9), 0.025, 1 - found.value)
        if total:
            more = f"about {total - found.of} more labels like these would"
        else:
            more = "more labels may"
        say(
            f"The precision, {found.value:.3f}, reaches the bar, its interval does not; {more} settle it"
        )
    else:
        say(f"The precision, {found.value:.3f}, and its interval are above the bar")
    for fit in report["fits"]:
        _say_fit(fit)


def _say_fit(fit: dict[str, Any]) -> None:
    sides = (fit[side].items() for side in ("before", "after"))
    before, after = (", ".join(f"{name} {value:g}" for name, value in side) for side in sides)
    say(f"\nThresholds of {fit['kind']}: {before}")
    if precision := fit["precision"]:
        bounds = f"[{precision['low']:.3f}, {precision['high']:.3f}] of {precision['of']}"
        say(
            f"  best: precision {precision['value']:.3f} {bounds}, coverage {fit['coverage']['value']:.3f}"
        )
    if fit["refused"]:
        if fit["more"]:
            more = f"; about {fit['more']} more labels would do"
        else:
            more = ""
        say(f"  not changed: {fit['refused']}{more}")
    elif not fit["written"]:
        say("  not changed: no other threshold does better")
    else:
        say(f"  changed to: {after}; this holds in all your projects")
        for name, path in zip(("written", "the old one"), fit["written"], strict=False):
            say(f"  {name}: {path}")
