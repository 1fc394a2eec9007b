"""`judgekit eval`: measures how well judging and retrieval do on labels."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from judgekit.cli import options, output_files
from judgekit.cli.figures import say_figure, say_line
from judgekit.cli.layout import render_parts
from judgekit.cli.memories import measure_memories
from judgekit.cli.options import AsJson
from judgekit.cli.output import emit, get_project_path, note, say, warn
from judgekit.cli.page_foot import build_foot
from judgekit.cli.progress import count_to
from judgekit.cli.row_options import Id, Map
from judgekit.config import ModeName
from judgekit.data.sources import USUAL_ENDINGS
from judgekit.errors import Exit, UsageError
from judgekit.retrieval.compiled import KINDS, Profiles
from judgekit.text import escape_name, format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.data.rows import Rows
    from judgekit.evaluation.cases import Case
    from judgekit.evaluation.labels import LeftOut
    from judgekit.evaluation.report import Flips, JudgeReport, JudgingReport, Lift, MeanCost, Spread
    from judgekit.evaluation.retrieval import ConfidenceReport, RetrievalReport
    from judgekit.evaluation.stats import Class, Resampling
    from judgekit.judging.score import DocumentJudge
    from judgekit.rubric.schema import Rubric

    ProfileKind = str
else:
    ProfileKind = enum.StrEnum("ProfileKind", [(kind, kind) for kind in KINDS])

_FIRST_KIND = ProfileKind(KINDS[0])
_MAX_WORD_CHARS = 40  # characters in its column
_WANTED_OPTION = Option(metavar="WORD", help="Aim of injected texts (default accept).")
_MODELS_OPTION = Option(metavar="A,B,C", help="Compare these models, each asked alone.")
_SCOPE_PREFIX_OPTION = Option(
    "--scope-prefix", help="Search only documents of the query's scope (an id before /)."
)

app = typer.Typer(no_args_is_help=True, help="Measure judges and retrieval on labelled data.")


@app.command("judge")
def measure_judges(
    file: Annotated[
        Path, Argument(metavar="FILE", help=f"Labelled cases: {', '.join(USUAL_ENDINGS)}.")
    ],
    rubric: options.RubricOption = None,
    mode: Annotated[ModeName, Option(help="Mode whose thresholds apply.")] = "strict",
    wanted: Annotated[str | None, _WANTED_OPTION] = None,
    again: Annotated[
        bool, Option("--again", help="Also ask again, and with reordered candidates.")
    ] = False,
    models: Annotated[str | None, _MODELS_OPTION] = None,
    repeat: options.Repeat = 1,
    keep: options.Keep = False,
    jobs: Annotated[
        int, Option("-j", min=1, max=256, help="Cases to ask about at the same time.")
    ] = 8,
    map_: Map = None,
    id_: Id = None,
    base: options.Base = None,
    html: options.HtmlOption = None,
    as_json: AsJson = False,
    model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> int:
    """Measure judges on labelled cases: recorded answers, or else the models set up here.

    Exit code 2 when a model did not answer: the figures cover a part of the cases, or none.
    """
    from judgekit.evaluation import pages, report, runner
    from judgekit.judging.named_inputs import NamedInputs
    from judgekit.rubric import loader

    project = get_project_path()
    loaded = loader.find_rubric(rubric, project) if rubric else None
    cases, left_out = read_cases(file, loaded.rubric if loaded else None, mode, map_, id_)

    # Recorded answers take precedence over asking.
    is_recorded = any(case.judges for case in cases)
    names = _split_names(models)
    rubric_to_ask = None if is_recorded else loaded
    _check_combination(
        can_ask=rubric_to_ask is not None,
        again=again,
        model=model,
        models=models,
        names=names,
        repeat=repeat,
        keep=keep,
    )

    # Ask the models.
    unanswered = None
    configured_judge = None
    if rubric_to_ask is not None:
        reruns = repeat - 1
        if again:
            reruns = max(reruns, 1)  # --again alone asks once more
        cases = runner.add_variants(cases, reruns, swapped=again)
        progress = count_to(len(cases) * max(1, len(names)), "answers")
        opinions = runner.ask(
            cases,
            NamedInputs.of(file, base),
            rubric_to_ask,
            mode,
            project,
            progress,
            models=names or (None,),
            at_once=jobs,
        )

        left_out.add_unasked(opinions.unasked_reasons)
        unanswered = runner.describe_unanswered(opinions.cases)
        cases = opinions.cases
        if repeat > 1 and not names:
            cases = opinions.add_combined_result(rubric_to_ask.rubric, mode)
            configured_judge = opinions.judge

    # Report.
    measured = report.report(cases, file.name, loaded, mode, wanted, left_out)
    if html is not None:
        output_files.write_file(html, pages.render_judging_page(measured, cases, build_foot()))
    say_judges(measured, as_json=as_json, is_comparison=bool(names))
    code = Exit.ACCEPTED
    if keep:
        code = keep_noise(measured, configured_judge)
    if unanswered is not None:
        code = warn_unanswered(unanswered)
    return code


def _check_combination(
    *,
    can_ask: bool,
    again: bool,
    model: str | None,
    models: str | None,
    names: Sequence[str],
    repeat: int,
    keep: bool,
) -> None:
    """Raise `UsageError` if options conflict, or if one needs models and none can be asked."""
    options_that_ask_models = {
        "--again": again,
        "--model": model,
        "--models": models,
        "--repeat": repeat > 1,
    }
    if not can_ask:
        _refuse_options(options_that_ask_models)

    has_models = models is not None
    has_no_names = has_models and not names  # e.g. `--models ,`
    has_both = has_models and bool(model)
    if has_no_names or has_both:
        raise UsageError(
            "--models: expected names of models with commas between them, and no --model"
        )

    # `--keep` saves the noise: how much the configured models' scores vary if they judge an item repeatedly.
    measures_noise = repeat != 1 and not has_models
    if keep and not measures_noise:
        raise UsageError(
            "--keep is for the noise of the configured models: add --repeat, and no --models"
        )


def _refuse_options(asking_options: Mapping[str, object]) -> None:
    """Raise `UsageError` for the first given option that asks models."""
    for option, value in asking_options.items():
        if value:
            raise UsageError(
                f"{option} asks models: name a --rubric, and a file without recorded answers"
            )


def _split_names(models: str | None) -> list[str]:
    """Split model names at commas, without duplicates."""
    names = [name.strip() for name in (models or "").split(",")]
    return list(dict.fromkeys(name for name in names if name))


def say_judges(report: JudgingReport, *, as_json: bool, is_comparison: bool = False) -> None:
    """Print the figures for each judge, or for a comparison, tables of judges and disagreements."""
    if as_json:
        emit(report.model_dump_json(by_alias=True))
        return

    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    say(f"{report.file}: {format_count(report.items, 'labelled item', 'labelled items')}{rubric}")
    left_out = report.left_out.describe()
    if left_out:
        say(escape_name(f"left out: {left_out}"))
    if any(judge.is_binary for judge in report.judges):
        say("no label says improve, so an improve counts as not accepted")

    if is_comparison:
        _say_comparison(report)
    else:
        for judge in report.judges:
            _say_judge(judge)
    _say_resampling(report.bootstrap, "items")


def _say_comparison(report: JudgingReport) -> None:
    """Print a table of the judges, and one of the items that they disagree about, if any."""
    from judgekit.evaluation import pages

    judges = pages.build_judges_table(report).turned  # with a column for each judge
    say(f"\n{render_parts([judges])}")
    disputed = pages.build_outcomes_table(report, disputed=True)
    if disputed.rows:
        say(f"\nItems that they disagree about\n{render_parts([disputed])}")


def keep_noise(report: JudgingReport, judge: DocumentJudge | None) -> Exit:
    """Save the measured noise for the gate: how far scores move if items are judged again.

    Saves nothing and returns `HUMAN_NEEDED` if no documents were scored, or with too few repeats.
    """
    from judgekit.judging import noise

    spread = _find_spread_after_all_tiers(report)
    # `judge` is None if no model was asked, and `spread` if the cases compare texts.
    if judge is None or spread is None or _count_repeats(spread) < noise.MIN_ANSWERS:
        requirement = f"scores of documents, and {noise.MIN_ANSWERS} repeats or more in all"
        warn(f"noise not kept: it takes {requirement}")
        return Exit.HUMAN_NEEDED

    path = noise.keep(judge, spread.cases, spread.noise)
    note(f"Wrote {path}; judgekit gate says which verdicts are within {spread.noise:g} points")
    return Exit.ACCEPTED


def _find_spread_after_all_tiers(report: JudgingReport) -> Spread | None:
    """Find the spread of the final scores, after all tiers. The gate uses these scores, too."""
    from judgekit.evaluation.cases import ALL_TIERS

    for judge_report in report.judges:
        # The tiers' joint result is reported as another judge.
        if judge_report.judge == ALL_TIERS:
            return judge_report.spread
    return None


def _count_repeats(spread: Spread) -> int:
    """Count the answers, without each case's first one."""
    return spread.answers - spread.cases


def read_cases(
    file: Path,
    rubric: Rubric | None,
    mode: ModeName,
    map_: Sequence[str] | None = None,
    id_: str | None = None,
) -> tuple[list[Case], LeftOut]:
    """Read a file of labelled cases or rows. Returns the usable cases, and counts of those left out.

    The file is read as rows if it's a table, or if its lines have keys that cases don't have.
    """
    from judgekit.data import fields, labels
    from judgekit.evaluation import case_labels, cases
    from judgekit.evaluation.labels import LeftOut

    columns = labels.NamedColumns(id_, fields.parse_map(map_ or ()))
    rows = _open_if_rows(file, has_row_options=bool(map_ or id_))
    all_cases: Sequence[Case]
    if rows is not None:
        all_cases, left_out = labels.read_labelled_cases(rows, columns)
    else:
        all_cases = cases.read_cases(file)
        left_out = LeftOut()
    # This adds cases whose labels the rubric doesn't understand to `left_out`.
    usable_cases = case_labels.translate_labels(all_cases, rubric, mode, left_out)
    return usable_cases, left_out


def _open_if_rows(file: Path, *, has_row_options: bool) -> Rows | None:
    """Open a file of labelled rows; None if it contains cases.

    Raises `UsageError` if there are options for rows, but the file can't contain any.
    """
    from judgekit.data.rows import open_rows
    from judgekit.data.sources import ENDINGS, Reading, find_source

    source = find_source(str(file)) if file.is_file() else None
    if source is None:  # it can't contain rows
        if has_row_options:
            raise UsageError(f"--map and --id are for rows; {file} is none of {', '.join(ENDINGS)}")
        return None

    rows = open_rows(str(file), sys.stdin.buffer, Reading(listener=note))
    is_table = not source.has_cases  # such as CSV, which can't contain cases
    # Options for rows say that the file contains rows, even if its first row looks like a case.
    if has_row_options or is_table:
        return rows
    return rows if _has_labelled_rows(rows) else None


def _has_labelled_rows(rows: Iterable[object]) -> bool:
    """Whether the first row has a label, and keys that a case doesn't have."""
    from judgekit.data import fields
    from judgekit.data.sources import DataRow
    from judgekit.evaluation.cases import Case

    first_row = next(iter(rows), None)
    if not isinstance(first_row, DataRow):
        return False
    keys = first_row.columns.keys()
    usual_label_names = fields.USUAL_NAMES_BY_TASK["judge"]["label"].split()
    has_label = any(name in keys for name in usual_label_names)
    has_other_keys = any(key not in Case.model_fields for key in keys)
    return has_label and has_other_keys


def warn_unanswered(reason: str) -> Exit:
    """Warn that the figures don't cover all cases, and return the exit code."""
    warn(reason)
    return Exit.HUMAN_NEEDED


def _say_resampling(resampling: Resampling, things: str) -> None:
    """Print how the intervals were computed."""
    draws = f"{resampling.resamples} draws of the {things}, seed {resampling.seed}"
    say(f"\n[ ] = {100 * resampling.level:.0f} % confidence interval: {draws}")


def _say_judge(judge: JudgeReport) -> None:
    """Print a judge's measured figures."""
    from judgekit.evaluation import pages

    title = f"{judge.title} ({judge.model})" if judge.model else judge.title
    say(f"\n{escape_name(title)}: {format_count(judge.items, 'item', 'items')}")
    say_figure("accuracy", judge.accuracy)
    say_figure("Cohen's kappa", judge.kappa)
    if judge.weighted_kappa:
        say_figure("quadratically weighted kappa", judge.weighted_kappa)
    if judge.unanswered:
        kinds = ", ".join(f"{count} {kind}" for kind, count in judge.unanswered.items())
        say_line("not answered", escape_name(kinds))
    say_figure("unreadable", judge.unreadable)
    for verdict_figures in judge.classes:
        _say_precision_and_recall(verdict_figures)

    _say_flips(pages.CHANGES_WITH_ORDER, judge.order_flips)
    _say_flips(pages.CHANGES_WHEN_ASKED_AGAIN, judge.rerun_flips)
    if judge.spread:
        _say_spread(judge.spread)
    if judge.injection:
        _say_lift(judge.injection)
    probabilities = judge.probabilities
    if probabilities:
        errors = f"{probabilities.brier:.3f}, {probabilities.ece:.3f} of {probabilities.answers}"
        say_line("Brier and ECE of its probabilities", errors)
    _say_cost(judge.cost, judge.items)


def _say_precision_and_recall(figures: Class) -> None:
    """Print a judge's precision and recall for one verdict, such as accept."""
    precision = f"{figures.precision.value:.3f}" if figures.precision else "-"
    recall = f"{figures.recall.value:.3f}" if figures.recall else "-"
    count = f"{figures.labelled} labelled so"
    # Without such labels there's nothing to recall, so print how often the judge gave this verdict.
    if not figures.labelled:
        count = f"said {format_count(figures.said, 'time', 'times')}, no label says so"
    verdict = shorten_to_line(figures.word, _MAX_WORD_CHARS)
    say_line(verdict, f"precision {precision}, recall {recall}, {count}")


def _say_flips(name: str, flips: Flips) -> None:
    if flips.pairs:
        say_figure(name, flips.rate, f" of {flips.pairs}")


def _say_spread(spread: Spread) -> None:
    """Print how far scores move when items are judged again."""
    unit_and_items = f" points, {format_count(spread.cases, 'item', 'items')}"
    say_figure("spread of the distance from acceptance", spread.distance, unit_and_items)
    for dimension, score in spread.scores.items():
        say_figure(f"spread of {dimension}", score)
    say_line("noise: 1.96 times that of the distance", f"{spread.noise:.3f} points")


def _say_lift(lift: Lift) -> None:
    """Print how often a judge gives the verdict an attacker wants, and how far injected text raises that."""
    from judgekit.evaluation import pages

    wanted_verdict = shorten_to_line(lift.wanted, _MAX_WORD_CHARS)
    say_figure(f"{wanted_verdict} before injected text", lift.before)
    say_figure(pages.LIFT, lift.lift, f" of {lift.pairs}")


def _say_cost(cost: MeanCost, items: int) -> None:
    """Print the mean calls and cost per item. The cost is left out if it's known for no item."""
    usd = ""
    if cost.usd is not None:
        usd = f", ${cost.usd:.6f}"
        if cost.known < items:
            usd += f" where that is known ({cost.known} of {items})"
    say_line("an item", f"{cost.calls:.2f} calls{usd}")


@app.command("retrieval")
def measure_retrieval(
    folder: Annotated[
        Path, Argument(metavar="DIR", help="Has corpus.jsonl, queries.jsonl, qrels.tsv.")
    ],
    scope_prefix: Annotated[bool, _SCOPE_PREFIX_OPTION] = False,
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
    if run is not None:  # find out now if the run can't be written, not after the whole search
        # The ids are checked too, because a run can't contain ids with spaces.
        items = (*collection.queries, *collection.documents)
        retrieval.check_run(run, (item.id for item in items))

    profiles = Profiles(compile_profiles(get_project_path()))
    compiled_profile = profiles.by_kind[profile]
    progress = count_to(len(collection.queries), "queries")
    answers = retrieval.search(collection, compiled_profile, scoped=scope_prefix, progress=progress)
    if run is not None:
        retrieval.write_run(run, ((answer.query_id, answer.ranking) for answer in answers))

    report = retrieval.report(collection, compiled_profile, answers, scoped=scope_prefix)
    if report.strays:
        problem = f"{report.strays} judgements name unknown queries or documents"
        warn(f"{folder / cases.QRELS_FILE}: {problem}; such a document counts as not found")
    if as_json:
        emit(report.model_dump_json())
    else:
        _say_retrieval(report)


def _say_retrieval(report: RetrievalReport) -> None:
    """Print a collection's figures: ranking, confidence, and the hook's additions."""
    scopes = "" if report.scopes is None else f" in {report.scopes} scopes"
    profile = f"profile {' '.join(report.profile.values())}"
    documents = format_count(report.documents, "document", "documents")
    queries = format_count(report.queries, "query", "queries")
    size = f"{documents}{scopes}, {queries}, {report.judged} of them judged"
    say(f"{report.collection}: {size}; {profile}\n")

    for name, metric in report.metrics.items():
        say_figure(name, metric)
    _say_confidence(report.confidence)

    injection = report.injection
    prompts = format_count(injection.prompts, "prompt", "prompts")
    say(f"\nTo {prompts}, {injection.answerable} of them answerable, the hook would add")
    say_figure("an injection, share of prompts", injection.injected)
    say_figure("a nudge, share of prompts", injection.nudged)
    say_figure("relevant, share of what is injected", injection.precision)
    say_figure("something relevant, share of answerable", injection.coverage)
    if report.elsewhere is not None:  # nothing is relevant there, so every addition is wrong
        say("\nAsked against the documents of the next scope")
        say_figure("an injection, share of prompts", report.elsewhere.injected)
        say_figure("a nudge, share of prompts", report.elsewhere.nudged)
    _say_resampling(report.bootstrap, "queries")


def _say_confidence(measured: ConfidenceReport) -> None:
    """Print how well confidence predicts relevance, for each range and label."""
    from judgekit.evaluation.stats import Bin, LabelGroup

    if measured.brier is None or measured.ece is None:
        say("\nConfidence: no query had hits")
        return

    errors = f"Brier {measured.brier:.4f}, ECE {measured.ece:.4f}"
    say(f"\nConfidence of {measured.hits} hits: {errors}")
    say(f"  {'confidence':<12}{'hits':>8}{'mean':>8}{'relevant':>10}")
    groups: list[Bin | LabelGroup] = [*measured.bins, *measured.labels]
    for group in groups:
        if isinstance(group, Bin):
            name = f"{group.low:.1f} to {group.high:.1f}"
        else:
            name = group.label
        say(f"  {name:<12}{group.count:>8}{group.confidence:>8.3f}{group.relevant:>10.3f}")


app.command("memories")(measure_memories)
