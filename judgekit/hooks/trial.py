"""Tries the prompt hook on prompts of the past: how relevant is what it adds.

Each prompt is tried as the first of a session, with and without a judge. No session, log or notice is read
or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment
from judgekit.errors import Exit, Usage, added
from judgekit.evaluation.stats import ReportPart
from judgekit.hooks import claude_code, context, explain, judged
from judgekit.hooks.relevance import prompt_key
from judgekit.judging import search
from judgekit.ledger.rates import exact
from judgekit.retrieval import transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.hooks.context import Shown
    from judgekit.hooks.relevance import Answers, Pair
    from judgekit.hooks.settings import Settings
    from judgekit.judging.verdict import Selection
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

BAR = 0.8  # precision: the share of what is injected that is relevant
FEWEST = 20  # labelled injections that say anything


class Trial(NamedTuple):
    """A prompt, its candidates, and what is injected and mentioned, without a judge and with one."""

    prompt: str
    hits: Sequence[Candidate]
    plain: Shown
    judged: Shown | None = None

    def injections(self, *, mentions: bool = False) -> list[Candidate]:
        hits: dict[Candidate, None] = {}
        for shown in (self.plain, self.judged):
            if shown:
                hits |= dict.fromkeys(shown[0])
                if mentions:
                    hits |= dict.fromkeys(shown[1])
        return list(hits)

    def pair(self, hit: Candidate) -> Pair:
        return prompt_key(self.prompt), environment.digest(hit.file)


class Tried(NamedTuple):
    """Trials, what models decided, why they did not decide about all of a prompt, and notes of the stores."""

    trials: list[Trial]
    selections: list[Selection]
    unjudged: list[str]
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
        if self.precision is None or self.precision.of < FEWEST:
            return Exit.HUMAN_NEEDED
        if self.precision.value >= BAR:
            return Exit.ACCEPTED
        return Exit.REJECTED


def of_project(place: str, project: str, most: int) -> list[str]:
    """Return the latest prompts in the log, or else in transcripts, the newest first."""
    if place == "log":
        return distinct((str(line.get("prompt", "")) for line in explain.read_log(project)), most)
    return distinct(
        transcript.prompts(project, most, lambda text: not claude_code.is_silent(text)), most
    )


def distinct(prompts: Iterable[str], most: int) -> list[str]:
    """Return the first prompts that the hook answers, each once."""
    found: dict[str, str] = {}
    for prompt in prompts:
        if not claude_code.is_silent(prompt):
            found.setdefault(prompt_key(prompt), prompt)
    return list(found.values())[:most]


def run(prompts: Sequence[str], configured: Settings, progress: Callable[[int], None]) -> Tried:
    """Return what the hook shows; where judging is on, models are asked about each prompt by itself."""
    tried = Tried([], [], [], [])
    for done, prompt in enumerate(prompts, 1):
        ranked = context.find_candidates(prompt, configured)
        tried.notes.extend(note for note in ranked.notes if note not in tried.notes)
        plain = context.shown_without_judge(ranked, configured)
        shown = [plain]
        if configured["judge"] == "on":
            shown.append(_judged(prompt, ranked, configured, tried) or plain)
        ways = [context.unrepeated(each, None, prompt) for each in shown]
        tried.trials.append(Trial(prompt, ranked.candidates, *ways))
        progress(done)
    return tried


def judge_report(tried: Tried, answers: Answers) -> dict[str, Any]:
    """Return the injections that the judge dropped and added, and in the keys of a verdict what it cost."""
    usages = [
        Usage(cost_usd=each.cost_usd, cost_source=each.cost_source) for each in tried.selections
    ]
    cost, source = added(usages)
    said: dict[str, list[bool | None]] = {"dropped": [], "added": []}
    for trial in tried.trials:
        shown = (trial.judged or trial.plain)[0]
        plain = trial.plain[0]
        for name, one, other in (("dropped", plain, shown), ("added", shown, plain)):
            said[name] += [answers.get(trial.pair(hit)) for hit in one if hit not in other]
    counted = {
        name: {
            "memories": len(words),
            "relevant": words.count(True),
            "irrelevant": words.count(False),
        }
        for name, words in said.items()
    }
    cost_complete = all(each.cost_complete is not False for each in tried.selections)
    rounds = [one.model_dump(mode="json") for each in tried.selections for one in each.rounds]
    return {
        **counted,
        "prompts": len(tried.selections),
        "unjudged": len(tried.unjudged),
        "reason": next(iter(tried.unjudged), None),
        "cost_usd": cost,
        "cost_source": source,
        "cost_complete": cost_complete,
        "rounds": rounds,
    }


def _judged(
    prompt: str, ranked: RankedCandidates, configured: Settings, tried: Tried
) -> Shown | None:
    """Return what is shown after judging, as `hooks.judged` does; None where models had no part in it."""
    candidates = [hit for hit in ranked.candidates if not hit.damaged]
    if not candidates:
        return None
    reply: search.Judged | str = search.NO_FULL_TEXT
    if ranked.fallback is None:
        reply = search.judged_hook(
            prompt, candidates, judged.parts_of(candidates), {}, configured.project
        )
    if isinstance(reply, str):
        tried.unjudged.append(reply)
        return None
    kept, undecided, selection = reply
    tried.selections.append(selection)
    tried.unjudged.extend([] if selection.degraded is None else [selection.degraded])
    return judged.decided(ranked, kept, undecided, configured, {})


def share(count: int, of: int) -> Share | None:
    """Return a share with the interval of Clopper and Pearson, which holds with few labels; None of none."""
    if of:
        interval = exact(count, of)
        value = interval.value
        return Share(count=count, of=of, value=value, low=interval.low, high=interval.high)
    return None


def hook_report(trials: Sequence[Trial], answers: Answers, *, judged: bool = False) -> HookReport:
    """Return what the hook adds with or without a judge; without an answer an injection covers no prompt."""
    ways = []
    for trial in trials:
        ways.append((trial, (trial.judged if judged else None) or trial.plain))
    said = []
    for trial, (injected, _) in ways:
        said.append([answers.get(trial.pair(hit)) for hit in injected])
    labelled = []
    for words in said:
        for word in words:
            if word is not None:
                labelled.append(word)
    mentions = [len(mentioned) for _, (_, mentioned) in ways]
    precision = share(sum(labelled), len(labelled))
    coverage = share(sum(map(any, said)), len(said))
    return HookReport(
        injected=sum(map(len, said)),
        mentioned=sum(mentions),
        nudged=sum(map(bool, mentions)),
        precision=precision,
        coverage=coverage,
    )


def rows(trials: Sequence[Trial], answers: Answers, *, mentions: bool) -> list[dict[str, Any]]:
    """Return each pair that a person is asked about; its first three keys are a line of answers."""
    return [
        {
            "prompt": trial.prompt,
            "memory": hit.path,
            "relevant": answers.get(trial.pair(hit)),
            "title": hit.title,
            "confidence": hit.confidence if hit.rated else None,
            "plain": hit in trial.plain[0],
            "judged": trial.judged and hit in trial.judged[0],
        }
        for trial in trials
        for hit in trial.injections(mentions=mentions)
    ]
