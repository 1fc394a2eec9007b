"""Tries the prompt hook on past prompts, to measure how relevant its additions are.

Each prompt is tried as the first of a session, with and without a judge. No session, log or notice is read or
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.errors import Exit, Usage, add_up_costs
from judgekit.evaluation.stats import ReportPart
from judgekit.hooks import claude_code, context, explain, judged
from judgekit.hooks.relevance import digest_prompt
from judgekit.judging import search
from judgekit.ledger.rates import exact_interval
from judgekit.retrieval import transcript
from judgekit.retrieval.confidence import SAME_EVIDENCE, SEVERAL_TERMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.hooks.context import Shown
    from judgekit.hooks.relevance import Answers, Pair
    from judgekit.hooks.settings import Settings
    from judgekit.judging.verdict import Selection
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

MIN_PRECISION = 0.8  # the share of relevant memories among those injected
MIN_LABELS = 20  # labelled injections for a meaningful figure
MIN_CROWD = 3  # memories that fit equally well, so that none is certain enough


class PromptTrial(NamedTuple):
    """A prompt, its candidates, and those shown without a judge and with one (None: judging is off)."""

    prompt: str
    hits: Sequence[Candidate]
    shown_without_judge: Shown
    shown_with_judge: Shown | None = None
    reason_by_path: Mapping[str, str] = {}
    """By path why the judging of a candidate ended."""
    model: str = ""
    """The model that judged; "" if there were several, or none."""
    sureness: Mapping[str, float] = {}
    """The model's probability of keeping each candidate, by path."""

    @property
    def injected(self) -> list[Candidate]:
        """The memories injected without a judge."""
        injected, _ = self.shown_without_judge
        return injected

    @property
    def injected_by_judge(self) -> list[Candidate]:
        """The memories injected with a judge, or without one if judging is off."""
        injected, _ = self.shown_with_judge or self.shown_without_judge
        return injected

    def list_injected(self, *, mentions: bool = False) -> list[Candidate]:
        """List the memories injected with or without a judge. If `mentions`, include mentioned ones."""
        results = [self.shown_without_judge]
        if self.shown_with_judge is not None:
            results.append(self.shown_with_judge)
        hits: dict[Candidate, None] = {}  # like a set, but ordered
        for injected, mentioned in results:
            hits |= dict.fromkeys(injected)
            if mentions:
                hits |= dict.fromkeys(mentioned)
        return list(hits)

    def list_surest(self, limit: int) -> list[Candidate]:
        """List up to `limit` candidates by the model's probability of keeping them, highest first."""
        rated = [hit for hit in self.hits if hit.path in self.sureness]
        rated.sort(key=lambda hit: -self.sureness[hit.path])
        return rated[:limit]

    def list_best_hit(self) -> list[Candidate]:
        """Return a list with the best hit, whether it's shown or not; empty if nothing matches."""
        return list(self.hits[:1])

    def make_pair(self, hit: Candidate) -> Pair:
        """Return the digests of the prompt and a memory's file, by which answers are stored."""
        return digest_prompt(self.prompt), environment.digest(hit.file)


TriedPair: TypeAlias = tuple[PromptTrial, "Candidate"]


class CrowdedPrompt(NamedTuple):
    """A prompt that gets nothing, and the memories that fit it about equally well, the best first."""

    prompt: str
    memories: Sequence[str]


class TriedPrompts(NamedTuple):
    """Trials, the models' decisions, reasons for undecided prompts, and notes of the stores."""

    trials: list[PromptTrial]
    selections: list[Selection]
    unjudged_reasons: list[str]
    notes: list[str]


class Share(ReportPart):
    """`count` of `of`, with the exact interval of the share."""

    count: int
    of: int
    value: float
    low: float
    high: float


class HookReport(ReportPart):
    """What the hook adds: memories injected and mentioned, and how many prompts get a mention (`nudged`)."""

    injected: int
    mentioned: int
    nudged: int
    precision: Share | None
    coverage: Share | None

    @property
    def code(self) -> Exit:
        """The exit code, which says whether enough of the injected memories are relevant."""
        precision = self.precision
        if precision is None:  # nobody rated any
            return Exit.HUMAN_NEEDED

        rated_memories = precision.of
        if rated_memories < MIN_LABELS:
            return Exit.HUMAN_NEEDED
        return Exit.ACCEPTED if precision.value >= MIN_PRECISION else Exit.REJECTED


def read_prompts(place: str, project: str, limit: int) -> list[str]:
    """Read a project's latest prompts, newest first, from the log or from transcripts of conversations."""
    if place == "log":
        prompts = [str(line.get("prompt", "")) for line in explain.read_log(project)]
    else:
        prompts = transcript.list_typed_prompts(project, limit, _is_answered)
    return choose_distinct(prompts, limit)


def _is_answered(prompt: str) -> bool:
    """Whether the hook answers a prompt: it's long enough, and a person wrote it."""
    return not claude_code.should_ignore(prompt)


def choose_distinct(prompts: Iterable[str], limit: int) -> list[str]:
    """Return the first `limit` distinct prompts that the hook answers."""
    prompt_by_key: dict[str, str] = {}
    for prompt in prompts:
        key = digest_prompt(prompt)
        if key not in prompt_by_key and _is_answered(prompt):
            prompt_by_key[key] = prompt
    return list(prompt_by_key.values())[:limit]


def try_prompts(
    prompts: Sequence[str], configured: Settings, progress: Callable[[int], None]
) -> TriedPrompts:
    """Find out which memories the hook would show for each prompt.

    If judging is on, models are called as well, to compare the results with and without a judge. Calls
    `progress` after each prompt, with the number of finished prompts.
    """
    tried = TriedPrompts(trials=[], selections=[], unjudged_reasons=[], notes=[])
    for done_count, prompt in enumerate(prompts, start=1):
        trial = _try_prompt(prompt, configured, tried)
        tried.trials.append(trial)
        progress(done_count)
    return tried


def _try_prompt(prompt: str, configured: Settings, tried: TriedPrompts) -> PromptTrial:
    """Find out which memories the hook would show for a prompt. Also adds notes and decisions to `tried`."""
    ranked = context.find_candidates(prompt, configured)
    for note in ranked.notes:
        if note not in tried.notes:
            tried.notes.append(note)

    # Without a session, no memory was mentioned before, so this only limits the number of mentions.
    chosen_without_judge = context.choose_without_judge(ranked, configured)
    shown_without_judge = context.limit_mentions(chosen_without_judge, session=None, prompt=prompt)
    trial = PromptTrial(prompt, ranked.candidates, shown_without_judge)
    if configured["judge"] != "on":
        return trial

    choice = _choose_by_judge(prompt, ranked, configured, tried)
    # If no models could choose, show the same memories as without a judge.
    chosen_with_judge = choice.shown or chosen_without_judge
    return trial._replace(
        shown_with_judge=context.limit_mentions(chosen_with_judge, session=None, prompt=prompt),
        reason_by_path=choice.reason_by_path,
        model=choice.model,
        sureness=choice.sureness,
    )


def report_on_judge(tried: TriedPrompts, answers: Answers) -> dict[str, Any]:
    """Report people's answers about the memories that the judge dropped or added, and the judge's cost."""
    # An answer is None if nobody gave one, or if the person couldn't tell.
    answers_on_dropped: list[bool | None] = []
    answers_on_added: list[bool | None] = []
    for trial in tried.trials:
        for hit in trial.injected:
            if hit not in trial.injected_by_judge:
                answers_on_dropped.append(answers.get(trial.make_pair(hit)))
        for hit in trial.injected_by_judge:
            if hit not in trial.injected:
                answers_on_added.append(answers.get(trial.make_pair(hit)))

    first_reason = tried.unjudged_reasons[0] if tried.unjudged_reasons else None
    return {
        "dropped": _count_answers(answers_on_dropped),
        "added": _count_answers(answers_on_added),
        "prompts": len(tried.selections),
        "unjudged": len(tried.unjudged_reasons),
        "reason": first_reason,  # why a prompt wasn't judged, or not completely
        **_add_up_cost(tried.selections),
    }


def _add_up_cost(selections: Sequence[Selection]) -> dict[str, Any]:
    """Add up the cost of the models' decisions. The result has the same keys as a verdict's JSON."""
    usages = []
    rounds = []
    for selection in selections:
        usages.append(Usage(cost_usd=selection.cost_usd, cost_source=selection.cost_source))
        rounds += [round_.model_dump(mode="json") for round_ in selection.rounds]

    cost, source = add_up_costs(usages)
    # It's None if a record doesn't say, so only False means incomplete.
    is_complete = all(selection.cost_complete is not False for selection in selections)
    return {
        "cost_usd": cost,
        "cost_source": source,
        "cost_complete": is_complete,
        "rounds": rounds,
    }


def _count_answers(answers: list[bool | None]) -> dict[str, int]:
    """Count memories by people's answers. None means that there's no clear answer."""
    return {
        "memories": len(answers),
        "relevant": answers.count(True),
        "irrelevant": answers.count(False),
    }


class _Choice(NamedTuple):
    """The hits shown after judging (None: models had no part in it), and the models' words on each."""

    shown: Shown | None = None
    reason_by_path: Mapping[str, str] = {}
    """By path why the judging of a hit ended."""
    model: str = ""
    """The model that judged; "" if there were several."""
    sureness: Mapping[str, float] = {}
    """The model's probability of keeping each hit, by path."""


def _choose_by_judge(
    prompt: str, ranked: RankedCandidates, configured: Settings, tried: TriedPrompts
) -> _Choice:
    """Choose the memories to show by asking models, as the hook does.

    Adds the models' decisions to `tried.selections`. If some or all are missing, adds the reason to
    `tried.unjudged_reasons`.
    """
    candidates = judged.list_judged(ranked)
    if not candidates:
        return _Choice()

    # Without full-text search, the hook doesn't ask models.
    if ranked.fallback_reason is not None:
        tried.unjudged_reasons.append(search.NO_FULL_TEXT)
        return _Choice()

    parts = judged.list_parts(candidates)
    reply = search.let_models_choose(
        prompt, candidates, parts, payload={}, project=configured.project
    )
    if isinstance(reply, str):  # the reason why no model was called
        tried.unjudged_reasons.append(reply)
        return _Choice()

    selection = reply.selection
    tried.selections.append(selection)
    if selection.degraded is not None:  # the reason why models didn't decide on all candidates
        tried.unjudged_reasons.append(selection.degraded)

    return _Choice(
        shown=_apply_decisions(reply, ranked, configured),
        reason_by_path=_map_reasons(candidates, selection),
        model=search.model_of(selection),
        sureness=_map_probabilities(candidates, selection),
    )


def _map_reasons(candidates: Sequence[Candidate], selection: Selection) -> dict[str, str]:
    """Map each candidate's path to the reason for the models' decision."""
    reasons = {}
    for hit, decision in zip(candidates, selection.decisions, strict=True):
        reasons[hit.path] = decision.because
    return reasons


def _map_probabilities(candidates: Sequence[Candidate], selection: Selection) -> dict[str, float]:
    """Map candidates' paths to the probabilities that a decision model gave, if it gave any."""
    probabilities = {}
    for index, probability in search.probabilities_of(selection).items():
        probabilities[candidates[index].path] = probability
    return probabilities


def _apply_decisions(
    choice: search.HookChoice, ranked: RankedCandidates, configured: Settings
) -> Shown:
    """Choose the memories to show from the models' decisions, as the hook does."""
    if choice.only_drops:  # an uncalibrated model may drop memories, but not add any
        return judged.drop_only(ranked, [*choice.kept, *choice.undecided], configured)
    # No labels, because a trial doesn't show them.
    return judged.choose_decided(ranked, choice.kept, choice.undecided, configured, labels={})


def measure_share(count: int, of: int) -> Share | None:
    """Compute `count / of` with its Clopper-Pearson interval; None if `of` is 0."""
    if not of:
        return None
    interval = exact_interval(count, of)
    return Share(count=count, of=of, value=interval.value, low=interval.low, high=interval.high)


def report_on_hook(
    trials: Sequence[PromptTrial], answers: Answers, *, judged: bool = False
) -> HookReport:
    """Summarise what the hook adds to the prompts. If `judged`, use the memories that the judge chose.

    Precision is the fraction of rated injected memories that are relevant. Coverage is the fraction of
    prompts with a relevant injected memory.
    """
    injections = 0
    mentions = 0
    prompts_with_mentions = 0
    labels: list[bool] = []  # people's answers about the injected memories
    covered_prompts = 0

    # Count what's shown for each prompt.
    for trial in trials:
        shown = trial.shown_without_judge
        if judged and trial.shown_with_judge is not None:
            shown = trial.shown_with_judge

        injected, mentioned = shown
        injections += len(injected)
        mentions += len(mentioned)
        if mentioned:
            prompts_with_mentions += 1

        # The answer is None if there's none, or if the person couldn't tell.
        prompt_answers = [answers.get(trial.make_pair(hit)) for hit in injected]
        labels += [answer for answer in prompt_answers if answer is not None]
        if True in prompt_answers:
            covered_prompts += 1

    return HookReport(
        injected=injections,
        mentioned=mentions,
        nudged=prompts_with_mentions,
        precision=measure_share(labels.count(True), len(labels)),
        coverage=measure_share(covered_prompts, len(trials)),
    )


def collect_pairs(
    trials: Sequence[PromptTrial], *, mentions: bool, surest: int = 0
) -> list[TriedPair]:
    """List the pairs of a prompt and a memory to ask a person about.

    For each prompt, lists the injected memories, the mentioned ones if `mentions`, and up to `surest` of
    those that a model is most likely to keep.
    """
    pairs = []
    for trial in trials:
        hits = [*trial.list_injected(mentions=mentions), *trial.list_surest(surest)]
        distinct_hits = dict.fromkeys(hits)  # in the same order
        pairs += [(trial, hit) for hit in distinct_hits]
    if pairs:
        return pairs

    # There's nothing to ask about, so ask whether each prompt's best match should have been injected.
    for trial in trials:
        pairs += [(trial, hit) for hit in trial.list_best_hit()]  # empty if nothing matches
    return pairs


def find_crowded(trials: Sequence[PromptTrial]) -> list[CrowdedPrompt]:
    """Find the prompts for which no memory is injected because too many match equally well.

    Usually, such memories have nearly the same content. They are listed with the prompt.
    """
    crowded = []
    for trial in trials:
        if not trial.hits or trial.list_injected():
            continue

        # A memory that matches a single word isn't injected in any case.
        best_hit = trial.hits[0]
        if len(best_hit.matched_terms) < SEVERAL_TERMS:
            continue

        rivals = [hit.path for hit in trial.hits if _is_rival(hit, best_hit)]
        if len(rivals) >= MIN_CROWD:
            crowded.append(CrowdedPrompt(trial.prompt, rivals))

    return crowded


def _is_rival(hit: Candidate, best: Candidate) -> bool:
    """Whether a memory matches the same part of the prompt about as well as the best one, or is that one."""
    matches_same_part = hit.part is best.part
    is_in_force = not hit.status  # a status says that a memory was superseded or rejected
    return matches_same_part and is_in_force and _fits_as_well(hit, best)


def _fits_as_well(hit: Candidate, best: Candidate) -> bool:
    """Whether a hit has about as much evidence as the best one. A program's hits have none."""
    if "odds" not in hit.features or "odds" not in best.features:
        return False
    return hit.features["odds"] > best.features["odds"] - SAME_EVIDENCE


def build_rows(tried_pairs: Sequence[TriedPair], answers: Answers) -> list[dict[str, Any]]:
    """Build a JSON row for each pair of a prompt and a memory that a person should answer about.

    A row starts with the keys of a line in a file of answers, so a person can fill it in and use it there.
    """
    rows = []
    for trial, hit in tried_pairs:
        is_injected_by_judge = None  # judging is off
        if trial.shown_with_judge is not None:
            is_injected_by_judge = hit in trial.injected_by_judge

        row = {
            "prompt": trial.prompt,
            "memory": hit.path,
            "relevant": answers.get(trial.make_pair(hit)),
            "title": hit.title,
            "confidence": hit.confidence if hit.has_confidence else None,
            # Whether the memory was injected without a judge, and with one.
            "plain": hit in trial.injected,
            "judged": is_injected_by_judge,
        }

        because = trial.reason_by_path.get(hit.path)
        if because:
            row["because"] = because
        if hit.path in trial.sureness:
            row["probability"] = trial.sureness[hit.path]

        rows.append(row)

    return rows
