"""`judgekit eval` and `calibrate`: how well judging and retrieval do on labels, and what labels promise."""

from __future__ import annotations

import enum
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli.output import AGAIN, REPLIES, AsJson, emit, keeps, say, warn, watched, write_drawing
from judgekit.config import ModeName
from judgekit.errors import Exit, InputError, UsageError
from judgekit.retrieval.compiled import KINDS
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.config import TierName
    from judgekit.evaluation.report import JudgeReport
    from judgekit.evaluation.retrieval import RetrievalReport
    from judgekit.evaluation.stats import BootstrapInterval, Resampling
    from judgekit.judging.calibration import CalibratedRule, Calibration, Measured, Promise

    ProfileKind = str
else:
    ProfileKind = enum.StrEnum("ProfileKind", [(kind, kind) for kind in KINDS])

_FIRST_KIND = ProfileKind(KINDS[0])
_LEAST_RATE = 0.001  # below it one decimal of a percent may show nothing
_WIDTH = 44  # of the first column
_LONGEST_WORD = 40  # characters, in that column

app = typer.Typer(no_args_is_help=True, help="Measure judges and retrieval on labelled data.")


@app.command()
def judge(
    file: Annotated[Path, Argument(metavar="FILE", help="Labelled cases, one JSON object a line.")],
    rubric: Annotated[str | None, Option(help="Rubric: ID, ID@VERSION or a YAML file.")] = None,
    mode: Annotated[ModeName, Option(help="Mode whose thresholds apply.")] = "strict",
    wanted: Annotated[
        str | None, Option(metavar="WORD", help="The label that injected texts aim for (default accept).")
    ] = None,
    again: Annotated[
        bool,
        Option("--again", help="Also ask models a second time, and with the candidates in another order."),
    ] = False,
    html: Annotated[
        Path | None, Option(metavar="FILE.html", help="Also write an HTML page with charts.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Measure judges on labelled cases: recorded answers, or else the models set up here.

    Exit code 2 when a model did not answer: the figures cover a part of the cases, or none.
    """
    from judgekit.evaluation import cases as labelled
    from judgekit.evaluation import charts, runner
    from judgekit.evaluation import report as judged
    from judgekit.rubric import loader

    if html is not None:  # refuse it before any model is asked
        charts.load()
        if not html.parent.is_dir():
            raise InputError(f"{html}: cannot be written; there is no folder {html.parent}")
    cases = labelled.read(file)
    project = Path(environment.project_root())
    loaded = loader.find_rubric(rubric, project) if rubric else None
    recorded = any(case.judges for case in cases)
    if again and (recorded or loaded is None):
        raise UsageError("--again asks models: name a --rubric, and a file without recorded answers")
    missing = None
    if loaded and not recorded:
        cases = runner.again(cases) if again else cases
        cases = runner.ask(cases, file.parent, loaded, mode, project, progress(len(cases), "cases")).cases
        missing = runner.unanswered(cases)
    report = judged.report(cases, file.name, loaded, mode, wanted)
    if html is not None:
        write_drawing(html, charts.judging_page(report))
    if as_json:
        emit(report.model_dump_json(by_alias=True))
        return _answered(missing)
    about = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    say(f"{report.file}: {report.items} labelled items{about}")
    for each in report.judges:
        _say_judge(each)
    _say_resampling(report.bootstrap, "items")
    return _answered(missing)


def progress(total: int, what: str) -> Callable[[int], None]:
    """Return what shows on a terminal how many are done."""
    shown = watched()

    def show(done: int) -> None:
        keeps(f"{done} of {total} {what} are done, {REPLIES}; {AGAIN}")
        if shown:
            sys.stderr.write(f"\r{done} of {total} {what}" if done < total else "\r\x1b[K")
            sys.stderr.flush()

    return show


def _answered(missing: str | None) -> int:
    """Say which answers are missing, and return the exit code."""
    if missing is None:
        return Exit.ACCEPTED
    warn(missing)
    return Exit.HUMAN_NEEDED


def _figure(name: str, interval: BootstrapInterval | None, more: str = "") -> None:
    """Print a figure and, in brackets, its interval; `-` where there is none."""
    value = "    -"
    if interval is not None:
        value = f"{interval.value:.3f}  [{interval.low:.3f}, {interval.high:.3f}]"
    say(f"  {name:<{_WIDTH}}{value}{more}")


def _say_resampling(how: Resampling, what: str) -> None:
    say(f"\nIn brackets {how.level:.0%} intervals: {how.resamples} draws of the {what}, seed {how.seed}")


def _say_judge(judge: JudgeReport) -> None:
    name = escaped(f"{judge.judge}{f' ({judge.model})' if judge.model else ''}")
    say(f"\n{name}: {judge.items} items")
    _figure("accuracy", judge.accuracy)
    _figure("Cohen's kappa", judge.kappa)
    if judge.weighted_kappa:
        _figure("quadratically weighted kappa", judge.weighted_kappa)
    if judge.unanswered:
        why = ", ".join(f"{count} {kind}" for kind, count in judge.unanswered.items())
        say(escaped(f"  {'not answered':<{_WIDTH}}{why}"))
    _figure("unreadable", judge.unreadable)
    for one in judge.classes:
        precision, recall = (f"{each.value:.3f}" if each else "-" for each in (one.precision, one.recall))
        times = f"{one.said} time{'' if one.said == 1 else 's'}"
        known = f"{one.labelled} labelled so" if one.labelled else f"said {times}, no label says so"
        say(f"  {_word(one.word):<{_WIDTH}}precision {precision}, recall {recall}, {known}")
    orders, reruns = judge.order_flips, judge.rerun_flips
    for name, flips in (("flips with another order", orders), ("flips when asked again", reruns)):
        if flips.pairs:
            _figure(name, flips.rate, f" of {flips.pairs}")
    if lift := judge.injection:
        _figure(f"{_word(lift.wanted)} before injected text", lift.before)
        _figure("lift by injected text", lift.lift, f" of {lift.pairs}")
    if probabilities := judge.probabilities:
        errors = f"{probabilities.brier:.3f}, {probabilities.ece:.3f} of {probabilities.answers}"
        say(f"  {'Brier and ECE of its probabilities':<{_WIDTH}}{errors}")
    usd = "" if judge.cost.usd is None else f", ${judge.cost.usd:.6f}"
    say(f"  {'an item':<{_WIDTH}}{judge.cost.calls:.2f} calls{usd}")


def _word(word: str) -> str:
    """Return a word of any length and content, cut and escaped to keep to its column."""
    shown = escaped(word[: _LONGEST_WORD + 1])
    return shown if len(shown) <= _LONGEST_WORD else f"{shown[: _LONGEST_WORD - 1]}…"


@app.command()
def retrieval(
    folder: Annotated[
        Path, Argument(metavar="DIR", help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv.")
    ],
    scope_prefix: Annotated[
        bool,
        Option(
            "--scope-prefix",
            help="Search only documents that share the query's scope (the part of an id before /).",
        ),
    ] = False,
    profile: Annotated[ProfileKind, Option(help="Retrieval profile to rank with.")] = _FIRST_KIND,
    run: Annotated[
        Path | None, Option(metavar="FILE", help="Also write the rankings, in TREC run format.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Measure ranking, confidence and injection on a labelled collection."""
    from judgekit.evaluation import cases
    from judgekit.evaluation import retrieval as evaluation
    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.profiles import compile_profiles

    found = cases.read_collection(folder, scoped=scope_prefix)
    if run is not None:
        evaluation.check_run(run, (each.id for each in (*found.queries, *found.documents)))
    used = Profiles(compile_profiles(Path(environment.project_root()))).by_kind[profile]
    shown = progress(len(found.queries), "queries")
    seen = evaluation.search(found, used, scoped=scope_prefix, progress=shown)
    if run is not None:
        evaluation.write_run(run, ((each.query, each.ranking) for each in seen))
    report = evaluation.report(found, used, seen, scoped=scope_prefix)
    if report.strays:
        warn(
            f"{folder / cases.QRELS}: {report.strays} judgements name unknown queries or documents; "
            "such a document counts as not found"
        )
    if as_json:
        emit(report.model_dump_json())
    else:
        _say_retrieval(report)
    return 0


def _say_retrieval(report: RetrievalReport) -> None:
    from judgekit.evaluation.stats import Bin, LabelGroup

    scopes = f" in {report.scopes} scopes" if report.scopes is not None else ""
    profile = f"profile {report.profile.retrieval} {report.profile.version}"
    say(
        f"{report.collection}: {report.documents} documents{scopes}, {report.queries} queries,"
        f" {report.judged} of them judged; {profile}\n"
    )
    for name, metric in report.metrics.items():
        _figure(name, metric)
    measured = report.confidence
    if measured.brier is None or measured.ece is None:
        say("\nConfidence: no query had hits")
    else:
        say(f"\nConfidence of {measured.hits} hits: Brier {measured.brier:.4f}, ECE {measured.ece:.4f}")
        say(f"  {'confidence':<12}{'hits':>8}{'mean':>8}{'relevant':>10}")
        groups: list[Bin | LabelGroup] = [*measured.bins, *measured.labels]
        for each in groups:
            name = f"{each.low:.1f} to {each.high:.1f}" if isinstance(each, Bin) else each.label
            say(f"  {name:<12}{each.count:>8}{each.confidence:>8.3f}{each.relevant:>10.3f}")
    injection = report.injection
    say(f"\nTo {injection.prompts} prompts, {injection.answerable} of them answerable, the hook would add")
    _figure("an injection, share of prompts", injection.injected)
    _figure("a nudge, share of prompts", injection.nudged)
    _figure("relevant, share of what is injected", injection.precision)
    _figure("something relevant, share of answerable", injection.coverage)
    if report.elsewhere is not None:
        say("\nAsked against the documents of the next scope")
        _figure("an injection, share of prompts", report.elsewhere.injected)
        _figure("a nudge, share of prompts", report.elsewhere.nudged)
    _say_resampling(report.bootstrap, "queries")


def calibrate(
    files: Annotated[
        list[Path],
        Argument(
            metavar="LABELS.jsonl|accept FILE",
            help="A file of labelled cases (JSON Lines); or `accept` and a calibration of the project.",
        ),
    ],
    rubric: Annotated[
        str | None, Option(help="Rubric: ID, ID@VERSION or a YAML file (needed to learn).")
    ] = None,
    mode: Annotated[
        ModeName | None,
        Option(help="strict avoids wrong acceptance, lenient wrong rejection (needed to learn)."),
    ] = None,
    error: Annotated[
        float | None, Option(metavar="RATE", help="Promise an error rate of at most this (default 0.05).")
    ] = None,
    excess: Annotated[
        float | None,
        Option(metavar="RATE", help="Promise at most this much more error than the deep tier alone makes."),
    ] = None,
    confidence: Annotated[float, Option(help="Confidence of the promise, between 0 and 1.")] = 0.95,
    out: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the calibration to this file, not to your own folder."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the calibration as JSON.")] = False,
) -> int:
    """Learn which opinions of which tier may be final at a promised error rate.

    `calibrate accept FILE` shows what a project's calibration allows, and accepts it for you.
    Exit code 2 when a model did not answer.
    """
    if len(files) == 2 and str(files[0]) == "accept":  # noqa: PLR2004 - the word and the file
        return _accept(files[1])
    if len(files) > 1:
        raise UsageError(f"expected one file of labels, got {len(files)}; put all cases into one")
    if rubric is None or mode is None:
        missing = "--rubric" if rubric is None else "--mode"
        raise UsageError(f"{missing} is missing; a calibration is for one rubric in one mode")
    if error is not None and excess is not None:
        raise UsageError("--error and --excess are two different promises; give one")
    rate = next((each for each in (error, excess) if each is not None), 0.05)
    for name, value in (("--error or --excess", rate), ("--confidence", confidence)):
        if not 0 < value < 1:
            raise UsageError(f"{name}: expected a number between 0 and 1, got {value:g}")
    from judgekit.judging.calibration import Promise

    reference: TierName | None = None if excess is None else "deep"
    promise = Promise(rate=rate, confidence=confidence, reference=reference)
    return _learn(files[0], rubric, mode, promise, out, as_json=as_json)


def _learn(
    labels: Path,
    rubric: str,
    mode: ModeName,
    promise: Promise,
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    from judgekit.evaluation import cases, runner, samples
    from judgekit.evaluation.calibrate import learn
    from judgekit.judging import calibration
    from judgekit.rubric import loader

    calibration.check(out)
    project = Path(environment.project_root())
    loaded = loader.find_rubric(rubric, project)
    given, missing = cases.read(labels), None
    if any(case.judges for case in given):
        opinions = runner.Opinions(given, samples.models(given), {})
    else:
        opinions = runner.ask(given, labels.parent, loaded, mode, project, progress(len(given), "cases"))
        missing = runner.unanswered(opinions.cases)
    known = learn(
        opinions.cases,
        opinions.models,
        loaded,
        mode,
        promise,
        made=datetime.now(UTC),
        labels_sha256=cases.sha256(labels),
        asking=opinions.asking,
    )
    if as_json:
        emit(known.text().rstrip())
    else:
        _say_calibration(known)
    if known.gates or out is not None:
        path = out or calibration.default_path(known)
        calibration.write(known, path)
        calibration.accept(path)
        warn(f"written: {path}")
    else:
        warn("these labels support no promise, so no file was written; the rubric's own rules apply")
    return _answered(missing)


def _accept(path: Path) -> int:
    from judgekit.judging import calibration

    known = calibration.read(path)
    _say_calibration(known)
    say(f"Made {known.made:%Y-%m-%d} from labels {known.labels_sha256[:12]}, which are not in the file")
    question = "Accept this calibration in every project that has this file?"
    if sys.stdin.isatty() and not typer.confirm(question):
        warn("not accepted; the rubric's own rules apply")
        return Exit.REJECTED
    calibration.accept(path)
    warn(f"accepted: {path}; a changed file must be accepted again")
    return 0


def _say_calibration(known: Calibration) -> None:
    from judgekit.judging.logprobs import WORDS

    rubric = f"{known.rubric.id}@{known.rubric.version}, {known.mode}"
    models = ", ".join(f"{tier} {model}" for tier, model in known.models.items())
    say(f"{known.id}: {rubric}; {models}; {known.cases} labelled")
    rate, reference = known.promise.rate, known.promise.reference
    exact = f"{rate:.1%}" if round(rate, 3) == rate else f"{100 * rate:.10g}%"
    promise = f"an opinion that is final differs from its label in at most {exact}"
    if reference is not None:
        promise = f"at most {exact} more errors than {reference} alone, which has the last word"
    say(f"Promised with {known.promise.confidence:.0%} confidence: {promise}\n")
    say("May be final" if known.gates else "May be final: nothing")
    for gate in known.gates:
        say(_rule_line(gate, known))
    if known.not_promised:
        say("Cannot be promised")
    for refused in known.not_promised:
        why = f"too few labels; about {refused.more} more are needed"
        if refused.more is None:
            why = "too many errors; more labels would not help"
        say(f"{_rule_line(refused, known)}; {why}")
    for tier, count in known.read_otherwise.items():
        how = " and ".join(sorted(WORDS[each] for each in set(known.read[tier].values())))
        say(f"Left out: {count} of {tier}; its scores were {how} in other cases, but not in these")
    say(f"\n{f'On these {known.cases} labels':<46}{'calibrated':>12}{'without':>12}")
    subjects = known.subjects.all if known.subjects else known.cases
    least = subjects * sum(tier != "tiebreaker" for tier in known.models)

    def row(name: str, figure: Callable[[Measured], str]) -> None:
        say(f"  {name:<{_WIDTH}}{figure(known.with_gates):>12}{figure(known.without):>12}")

    row("final by calibration", lambda each: f"{each.by_gate / known.cases:.1%}")
    row("decided", lambda each: f"{each.decided / known.cases:.1%}")
    row("wrong among the decided", lambda each: f"{each.errors / each.decided:.1%}" if each.decided else "-")
    for tier in known.models:
        row(f"calls of {tier}", lambda each, tier=tier: str(each.calls.get(tier, 0)))  # type: ignore[misc]
    saved = "calls saved against quick and deep"
    row(saved, lambda each: f"{1 - sum(each.calls.values()) / least if least else 0.0:.1%}")


def _rule_line(rule: CalibratedRule, known: Calibration) -> str:
    """Return which opinions a rule is about, how many of them were wrong, and the bound of their rate."""
    if known.subjects:
        after = {"accept": " after a lead", "improve": " after a tie"}.get(rule.after or "", "")
        what = f"best of {rule.tier}{after}, ahead by {rule.least_margin:g} or more"
    elif rule.stands:
        what = f"a win of {rule.stands} against a tie of {rule.tier}, lead {rule.least_margin:g} or more"
    else:
        after = f" after {rule.after}" if rule.after else ""
        margin = f", margin {rule.least_margin:g} or more" if rule.least_margin else ""
        what = f"{rule.tier} {rule.outcome}{after}{margin}"
    gains = f" and {rule.gains} gained" if rule.gains else ""
    # A bound that is not zero never reads as zero.
    one_decimal = rule.bound >= _LEAST_RATE or not rule.bound
    bound = f"{rule.bound:.1%}" if one_decimal else f"{100 * rule.bound:.2g}%"
    return f"  {what:<{_WIDTH}} {rule.errors} wrong{gains} of {rule.labels}, at most {bound}"
