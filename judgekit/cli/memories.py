"""`judgekit eval memories`: measures the relevance of the memories that the hook adds to your own prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from judgekit import environment
from judgekit.cli import interruption, options, output
from judgekit.cli.figures import say_figure, say_line
from judgekit.cli.formats.table import describe_cost
from judgekit.cli.options import AsJson
from judgekit.cli.output import emit, say, warn
from judgekit.cli.progress import count_to
from judgekit.errors import InputError, UsageError
from judgekit.text import escape_name, format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.hooks.fitting import Fit
    from judgekit.hooks.relevance import Answers
    from judgekit.hooks.settings import Settings
    from judgekit.hooks.trial import HookReport, PromptTrial, Share
    from judgekit.retrieval.confidence import Candidate

_MAX_TEXT_CHARS = 300  # characters shown of a prompt, title or path in a question
_MAX_CROWDED = 3  # prompts shown with memories that crowd each other out
_MAX_RIVALS = 4  # memories shown for each of them
_RELEVANCE_BY_KEY = {"y": True, "n": False, "s": None}
_PROMPTS_OPTION = Option("--prompts", metavar="FILE", help="Try these prompts, one a line.")
_FROM_OPTION = Option("--from", help="Where this project's prompts are taken from.")
_LABELS_OPTION = Option(
    "--labels", metavar="FILE", help="Read answers from this file; ask nothing."
)
_FIT_OPTION = Option(
    "--fit", help="Ask about mentions too; write better thresholds to your configuration."
)


def measure_memories(
    prompts: Annotated[Path | None, _PROMPTS_OPTION] = None,
    from_: Annotated[Literal["transcripts", "log"], _FROM_OPTION] = "transcripts",
    labels: Annotated[Path | None, _LABELS_OPTION] = None,
    limit: Annotated[int, Option(min=1, max=1_000, help="Try at most this many prompts.")] = 50,
    fit: Annotated[bool, _FIT_OPTION] = False,
    as_json: AsJson = False,
    _model: options.ModelOption = None,
    _out: options.OutOption = None,
) -> int:
    """Measure the hook on your own prompts: you say whether each memory that it injects is relevant.

    Exit code 1 when less than 80% of what is injected is relevant, 2 with fewer than 20 labelled injections.
    """
    from judgekit.hooks import relevance, settings, trial
    from judgekit.ledger.labels import is_at_terminal

    project = environment.find_project_root()
    configured, notes = settings.load(project)
    _refuse_if_not_measurable(configured, fit=fit)

    # Try the hook on the prompts.
    texts = _read_prompts(prompts, from_, project, limit)
    answers_path = relevance.get_answers_path(project)
    answers = _read_answers(labels, answers_path, project, as_json=as_json)
    trial_run = trial.try_prompts(texts, configured, count_to(len(texts), "prompts"))
    trials = trial_run.trials
    warn(*notes, *trial_run.notes)
    # Mentions, and the hits that a model is surest of, also help to fit thresholds.
    surest = configured["max_inject"] if fit else 0
    pairs = trial.collect_pairs(trials, mentions=fit, surest=surest)

    if labels is None and is_at_terminal():
        _ask_about(_select_unanswered(pairs, answers), answers, answers_path)  # adds to `answers`

    # Measure the results.
    hook_alone = trial.report_on_hook(trials, answers)
    hook_with_judge = None
    judge_report = None
    if configured["judge"] == "on":
        hook_with_judge = trial.report_on_hook(trials, answers, judged=True)
        judge_report = trial.report_on_judge(trial_run, answers)

    fits = _fit_thresholds(trials, answers, configured) if fit else []

    # Build the report.
    report: dict[str, Any] = {
        "prompts": len(texts),
        "bar": trial.MIN_PRECISION,
        "hook": hook_alone.model_dump(),
        "judged": hook_with_judge.model_dump() if hook_with_judge else None,
        "judge": judge_report,
        "unanswered": len(_select_unanswered(pairs, answers)),
        "fits": fits,
        "injections": trial.build_rows(pairs, answers),
    }

    is_silent = not any(prompt_trial.list_injected(mentions=fit) for prompt_trial in trials)
    if is_silent:  # in this case, the pairs are the prompts' best hits
        report["best_hits"] = _measure_best_hits(pairs, answers)
    crowded = trial.find_crowded(trials)
    if crowded:
        report["crowded"] = [prompt._asdict() for prompt in crowded]

    if as_json:
        emit(json.dumps(report, ensure_ascii=False))
    else:
        _say_memories(report, hook_alone, hook_with_judge)
    return (hook_with_judge or hook_alone).code


def _measure_best_hits(
    pairs: Sequence[tuple[PromptTrial, Candidate]], answers: Answers
) -> dict[str, Any]:
    """Measure how often the best hit was relevant, over the prompts on which the hook was silent.

    `pairs` are these prompts, each with its best hit. The result has their number, too, and no share if
    there are no clear answers.
    """
    from judgekit.hooks import trial

    clear_answers = []
    for prompt_trial, best_hit in pairs:
        is_relevant = answers.get(prompt_trial.make_pair(best_hit))
        if is_relevant is not None:  # None: there's no clear answer
            clear_answers.append(is_relevant)
    share = trial.measure_share(clear_answers.count(True), len(clear_answers))
    return {"prompts": len(pairs), "relevant": share.model_dump() if share else None}


def _read_prompts(
    file: Path | None, source: Literal["transcripts", "log"], project: str, limit: int
) -> list[str]:
    """Read prompts from a file or from the project's history; raises `InputError` if there are none."""
    from judgekit.hooks import trial

    if file is not None:
        prompts = trial.choose_distinct(_read_prompt_lines(file), limit)
        source_name = str(file)
    else:
        prompts = trial.read_prompts(source, project, limit)
        source_name = f"{source} of {project}"

    if not prompts:
        raise InputError(
            f"{source_name}: no prompt that the hook answers; use --from log, or --prompts FILE"
        )
    return prompts


def _read_prompt_lines(file: Path) -> list[str]:
    """Read a file of prompts, one a line; raises `InputError`, with a remedy, if it can't be read."""
    from judgekit.evaluation import cases

    remedy = "name a file of prompts"
    return [prompt for _place, prompt in cases.read_lines(file, remedy)]


def _read_answers(
    labels: Path | None, answers_path: Path, project: str, *, as_json: bool
) -> Answers:
    """Read answers from the file `labels`. Without one, read those from earlier runs.

    Raises `UsageError` if there are no answers and no terminal to ask at.
    """
    from judgekit.hooks import relevance
    from judgekit.ledger.labels import is_at_terminal

    if labels is not None:
        return relevance.read_answers(labels, project)
    if answers_path.exists():
        return relevance.read_answers(answers_path, project)

    can_start_without = as_json or is_at_terminal()  # --json prints what to label
    if can_start_without:
        return {}
    remedy = (
        "run this in a terminal, or read labels with --labels FILE (--json prints what to label)"
    )
    raise UsageError(f"no terminal to ask at, and no answers are kept; {remedy}")


def _refuse_if_not_measurable(configured: Settings, *, fit: bool) -> None:
    """Raise an error if the hook is off, has no memories, or has no threshold to `fit`."""
    from judgekit.hooks.settings import describe_off

    if not configured["enabled"]:
        raise UsageError(f"{describe_off(configured.project)}; there is nothing to measure")
    _check_stores(configured)
    if fit:
        _refuse_without_threshold(configured)


def _check_stores(configured: Settings) -> None:
    """Warn about each store that's missing; raises `InputError` if all are."""
    from judgekit.retrieval import search

    roots, project = configured["roots"], configured.project
    # One for each missing store, or a single one if all are missing.
    messages = search.describe_missing_roots(roots, project)
    has_store = any(Path(search.resolve_root(root, project)).is_dir() for root in roots)
    if not has_store:
        # Replace the message's remedy, --root: this command has no such option.
        problem, _, _remedy = messages[0].partition(";")
        raise InputError(f"{problem}; run this in a project with memories")
    warn(*messages)


def _refuse_without_threshold(configured: Settings) -> None:
    """Raise `UsageError` if the settings choose the injected memories without a threshold."""
    for key, value in (("inject", "top_k"), ("scorer", "keyword")):
        if configured[key] == value:
            raise UsageError(
                f"--fit: with retrieval.{key}: {value} no threshold decides; change that first"
            )


def _select_unanswered(
    pairs: Sequence[tuple[PromptTrial, Candidate]], answers: Answers
) -> list[tuple[PromptTrial, Candidate]]:
    """Return the pairs without an answer."""
    return [(trial, hit) for trial, hit in pairs if trial.make_pair(hit) not in answers]


def _ask_about(
    pairs: Sequence[tuple[PromptTrial, Candidate]], answers: Answers, path: Path
) -> None:
    """Ask a person about each pair, and save each answer at once."""
    from judgekit.hooks.relevance import store_answer

    for number, (trial, hit) in enumerate(pairs, 1):
        # This is printed if the user presses Ctrl-C at this pair.
        new_answers_are = format_count(number - 1, "new answer is", "new answers are")
        interruption.set_kept("eval", f"{new_answers_are} kept; run the same command to continue")

        _show_pair(trial, hit, f"{number} of {len(pairs)}")
        key = _read_answer_key()
        if key == "q":
            break

        is_relevant = _RELEVANCE_BY_KEY[key]
        pair = trial.make_pair(hit)
        answers[pair] = is_relevant
        store_answer(path, pair, relevant=is_relevant)


def _show_pair(trial: PromptTrial, hit: Candidate, place: str) -> None:
    """Show a prompt, a memory with its best passage, and the question whether it's relevant.

    `place` is the pair's place in the list: `3 of 9`.
    """
    from judgekit.retrieval import search

    # One hit has one item: its best passage, and the memory's whole text.
    (passage_and_text,) = search.list_passages(trial.prompt, [hit])
    best_passage, _whole_text = passage_and_text
    prompt = shorten_to_line(trial.prompt, _MAX_TEXT_CHARS)
    title = shorten_to_line(hit.title, _MAX_TEXT_CHARS)
    path = shorten_to_line(hit.path, _MAX_TEXT_CHARS)
    passage = shorten_to_line(best_passage, _MAX_TEXT_CHARS)
    text = f"\n{place}: {prompt}\n  {title} -> {path}\n    {passage}\n"
    question = "  relevant? y/n/skip (s; q stops)"
    typer.echo(output.make_printable(f"{text}{question}"), err=True)


def _read_answer_key() -> str:
    """Wait until a person presses the key of an answer, or q. Returns the key."""
    while True:
        key = output.read_key()
        if key in {*_RELEVANCE_BY_KEY, "q"}:
            return key


def _fit_thresholds(
    trials: Sequence[PromptTrial], answers: Answers, configured: Settings
) -> list[dict[str, Any]]:
    """Fit the thresholds for stores and models, and save improvements. Returns a record of each fit."""
    store_records = _fit_stores(trials, answers, configured)
    return [*store_records, *_fit_models(trials, answers, configured)]


def _fit_stores(
    trials: Sequence[PromptTrial], answers: Answers, configured: Settings
) -> list[dict[str, Any]]:
    """Fit the thresholds for the kinds of stores with hits, and write the improved ones."""
    from judgekit.hooks import fitting

    # A store's labels, such as `high`, are thresholds of confidence.
    thresholds = {kind: profile.labels for kind, profile in configured.profiles.by_kind.items()}
    max_inject = configured["max_inject"]
    fits = []
    for kind in _list_kinds_with_hits(trials):
        fits.append(fitting.fit_store(kind, trials, answers, thresholds, max_inject))

    project = Path(configured.project)
    return [_write_if_changed(fit, project) for fit in fits]


def _list_kinds_with_hits(trials: Sequence[PromptTrial]) -> list[str]:
    """List the kinds of stores whose memories the hook injected or mentioned, sorted."""
    kinds: set[str] = set()
    for trial in trials:
        kinds.update(hit.kind for hit in trial.list_injected(mentions=True))
    return sorted(kinds)


def _write_if_changed(fit: Fit, project: Path) -> dict[str, Any]:
    """Write the fitted thresholds for a kind of store if they changed. Returns the fit's record."""
    from judgekit.hooks import fitting

    # In a store's profile, the thresholds are called labels.
    if fit.after != fit.before:
        fit = fitting.write_labels(fit, project)
    return fit.model_dump()


def _fit_models(
    trials: Sequence[PromptTrial], answers: Answers, configured: Settings
) -> list[dict[str, Any]]:
    """Fit the thresholds for models that give probabilities, and write the improved ones."""
    from judgekit.hooks import fitting

    # `sureness` has the model's probabilities; it's empty if the model gave none.
    models = {trial.model for trial in trials if trial.sureness}
    max_inject = configured["max_inject"]
    records = []
    for model in sorted(models):
        threshold = configured["inject_above"].get(model)
        model_fit = fitting.fit_model(model, trials, answers, threshold, max_inject)
        is_changed = model_fit.after != model_fit.before
        if is_changed:
            model_fit = fitting.write_model_threshold(model_fit)
        records.append(model_fit.model_dump())
    return records


def _say_memories(report: dict[str, Any], hook: HookReport, judged: HookReport | None) -> None:
    """Print the report for people. `judged` are the hook's figures with a judge, if it's on."""
    prompts = format_count(report["prompts"], "prompt", "prompts")
    say(f"{prompts}; bar: {report['bar']:.0%} of what is injected is relevant")
    _say_without_judge(report, hook)
    if judged is not None:
        _say_hook("With the judge", judged, report["prompts"])
        _say_effect_of_judge(report["judge"])

    say("\n[ ] = exact 95 % confidence interval (Clopper and Pearson)")
    if report["unanswered"]:
        pairs = format_count(report["unanswered"], "pair has", "pairs have")
        warn(f"{pairs} no answer yet; run this in a terminal to answer them")

    used_hook = judged or hook
    say(_compare_with_bar(used_hook.precision, report["bar"]))
    for fit in report["fits"]:
        _say_fit(fit)


def _say_without_judge(report: dict[str, Any], hook: HookReport) -> None:
    """Print the hook's figures, its best hits if it's silent, and the memories too alike to choose from."""
    _say_hook("Without a judge", hook, report["prompts"])
    if "best_hits" in report:
        _say_best_hits(report["best_hits"])
    if "crowded" in report:
        _say_crowded(report["crowded"])


def _say_hook(title: str, hook: HookReport, prompts: int) -> None:
    """Print how much the hook injected, and how much of it is relevant.

    `prompts` is the total number of prompts.
    """
    injections = format_count(hook.injected, "injection", "injections")
    # If a memory is only mentioned, the agent gets its title, not its text.
    mentions = format_count(hook.mentioned, "mention", "mentions")
    prompts_with_mentions = format_count(hook.nudged, "prompt", "prompts")
    say(f"\n{title}: {injections}, {mentions} to {prompts_with_mentions}")

    of_labels = f" of {hook.precision.of}" if hook.precision else ""
    of_prompts = f" of {prompts}"
    say_figure("relevant, share of what is injected", hook.precision, of_labels)
    say_figure("something relevant, share of prompts", hook.coverage, of_prompts)


def _say_best_hits(best_hits: dict[str, Any]) -> None:
    """Print the relevance of the best hits for prompts on which the hook is silent."""
    from judgekit.hooks.trial import Share

    prompts = format_count(best_hits["prompts"], "prompt has", "prompts have")
    say(f"\nNothing is injected, and {prompts} a hit that isn't sure enough")

    # `relevant` is None if there's no clear answer about any of these hits.
    relevant_share = None
    of_labels = ""
    if best_hits["relevant"]:
        relevant_share = Share(**best_hits["relevant"])
        of_labels = f" of {relevant_share.of}"

    say_figure("relevant, share of the best hits", relevant_share, of_labels)
    say("If most of them are relevant, --fit looks for a lower threshold")


def _say_crowded(crowded: list[dict[str, Any]]) -> None:
    """Print the prompts with too many equally good memories, and what to do about it."""
    prompts = format_count(len(crowded), "prompt gets", "prompts get")
    say(f"\n{prompts} nothing, because several memories fit equally well and none stands out:")
    for prompt in crowded[:_MAX_CROWDED]:
        text = shorten_to_line(prompt["prompt"], _MAX_TEXT_CHARS)
        say(escape_name(f"  {text}"))
        say(f"    {_join_rivals(prompt['memories'])}")

    say("If they say the same, merge them, or put `status: superseded` into the header of the old")
    say("ones. If they don't, give each a title that says what is special about it")


def _join_rivals(paths: Sequence[str]) -> str:
    """Join the paths of memories that fit a prompt equally well: the first few, and `and 3 more`."""
    shown_paths = [
        escape_name(shorten_to_line(path, _MAX_TEXT_CHARS)) for path in paths[:_MAX_RIVALS]
    ]
    more = len(paths) - len(shown_paths)
    if more:
        shown_paths.append(f"and {more} more")
    return ", ".join(shown_paths)


def _say_effect_of_judge(judge: dict[str, Any]) -> None:
    """Print which memories the judge drops and adds, how many prompts it judged, and its cost."""
    for change in ("dropped", "added"):
        counts = judge[change]
        relevance = f"{counts['relevant']} relevant, {counts['irrelevant']} not relevant"
        figures = f"{counts['memories']}: {relevance}"
        say_line(f"{change} by the judge", figures)
    say_line("prompts that models judged", f"{judge['prompts']}{describe_cost(judge)}")
    if judge["unjudged"]:
        prompts = format_count(judge["unjudged"], "prompt", "prompts")
        warn(f"models did not decide all about {prompts}: {judge['reason']}")


def _compare_with_bar(precision: Share | None, bar: float) -> str:
    """Describe whether the share of relevant memories reaches the bar, or how many labels are missing."""
    from judgekit.hooks.trial import MIN_LABELS

    label_count = precision.of if precision else 0
    if precision is None or label_count < MIN_LABELS:
        return f"Too few labels: {MIN_LABELS - label_count} more are needed"

    value = f"The precision, {precision.value:.3f},"
    if precision.value < bar:
        return f"{value} is below the bar; --fit looks for better thresholds"
    if precision.low >= bar:
        return f"{value} and its interval are above the bar"
    # "about 40 more labels like these would".
    more_labels_would = _describe_labels_needed(precision, bar)
    return f"{value} reaches the bar, its interval does not; {more_labels_would} settle it"


def _describe_labels_needed(precision: Share, bar: float) -> str:
    """Describe how many more labels would lift the interval to the bar.

    The caller adds the verb, as in `about 40 more labels like these would settle it`.
    """
    from judgekit.judging.binomial import count_labels_needed

    # `count_labels_needed` is about error rates. Here, an error is an irrelevant memory.
    max_error_rate = round(1 - bar, 9)  # without floating-point noise
    error_rate = 1 - precision.value
    tail_probability = 0.025  # on each side of a 95 % interval
    total = count_labels_needed(max_error_rate, tail_probability, error_rate)
    if not total:  # a million aren't enough
        return "more labels may"
    return f"about {total - precision.of} more labels like these would"


def _say_fit(fit: dict[str, Any]) -> None:
    """Print the thresholds for a kind of store or a model, and whether they were changed."""
    title = "Threshold" if fit.get("is_model") else "Thresholds"
    before = _format_thresholds(fit["before"]) or "none"
    say(f"\n{title} of {fit['kind']}: {before}")  # for a model, `kind` is its name
    if fit["precision"]:
        _say_best_precision(fit)

    if fit["refused"]:  # the reason to keep the old thresholds
        missing_labels = f"; about {fit['more']} more labels would do" if fit["more"] else ""
        say(f"  not changed: {fit['refused']}{missing_labels}")
    elif not fit["written"]:
        say("  not changed: no other threshold does better")
    else:
        _say_written_thresholds(fit)


def _say_best_precision(fit: dict[str, Any]) -> None:
    """Print the precision that the best thresholds reach, with its interval, and the coverage."""
    precision = fit["precision"]
    bounds = f"[{precision['low']:.3f}, {precision['high']:.3f}] of {precision['of']}"
    coverage = f"coverage {fit['coverage']['value']:.3f}"
    say(f"  best: precision {precision['value']:.3f} {bounds}, {coverage}")


def _say_written_thresholds(fit: dict[str, Any]) -> None:
    """Print the new thresholds, the file that has them, and the copy of the old file, if there was one."""
    say(f"  changed to: {_format_thresholds(fit['after'])}; this holds in all your projects")
    new_file, *old_files = fit["written"]
    say(f"  written: {new_file}")
    for old_file in old_files:
        say(f"  the old one: {old_file}")


def _format_thresholds(thresholds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in thresholds.items())
