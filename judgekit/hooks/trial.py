"""Tries the prompt hook on prompts of the past: how relevant is what it adds, and which thresholds follow.

Each prompt is tried as the first of a session, with and without a judge. No session, log or notice is read
or written. A line of answers has the digests of a prompt and of a memory's path, and what a person said.
"""

from __future__ import annotations

import json
import os
import re
import time
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import BaseModel, ValidationError

from judgekit import environment, outputs
from judgekit.config import yaml_text, yamlfile
from judgekit.errors import ConfigError, Exit, InputError, Usage, added
from judgekit.evaluation.cases import lines
from judgekit.evaluation.stats import ReportPart
from judgekit.hooks import claude_code, context, explain, judged
from judgekit.judging import search
from judgekit.ledger.rates import exact
from judgekit.retrieval import profiles, transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.hooks.context import Shown
    from judgekit.hooks.settings import Settings
    from judgekit.judging.verdict import Selection
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

BAR = 0.8  # precision: the share of what is injected that is relevant
FEWEST = 20  # labelled injections that say anything
WIDEST = 0.3  # interval of a precision that a threshold may rest on
_MOST = 1_000  # labels that a user is told to give
_DIGEST = re.compile(r"[0-9a-f]{16}")

Pair: TypeAlias = tuple[str, str]
"""The digests of a prompt and of a memory's path."""
Answers: TypeAlias = dict[Pair, bool | None]
"""Whether a memory is relevant to a prompt; None where a person could not say."""


class Trial(NamedTuple):
    """A prompt, its candidates, and what is injected and mentioned, without a judge and with one."""

    prompt: str
    hits: Sequence[Candidate]
    plain: Shown
    judged: Shown | None = None

    def injections(self, *, mentions: bool = False) -> list[Candidate]:
        ways = [way for way in (self.plain, self.judged) if way]
        return list(
            dict.fromkeys(hit for way in ways for part in way[: 1 + mentions] for hit in part)
        )

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


class Fit(ReportPart):
    """Thresholds for one kind of store; `refused` says why they stay, `more` how many labels are lacking."""

    kind: str
    before: dict[str, float]
    after: dict[str, float]
    precision: Share | None = None
    coverage: Share | None = None
    refused: str | None = None
    more: int | None = None
    written: list[str] = []


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
        ranked = context.find(prompt, configured)
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
    return judged.decided(ranked, kept, undecided, configured)


def prompt_key(prompt: str) -> str:
    return environment.digest(" ".join(prompt.split()))


def answers_file(project: str) -> Path:
    return (
        Path(environment.state_home()) / "relevance" / f"{environment.file_name_for(project)}.jsonl"
    )


class _Line(BaseModel, strict=True):
    prompt: str
    memory: str
    relevant: bool | None


def read_answers(path: Path, project: str) -> Answers:
    """Return the answers in a file; of two about the same pair the later one counts. Raises `InputError`."""
    found: Answers = {}
    for place, text in lines(path, "name a file with a JSON object a line"):
        try:
            line = _Line.model_validate_json(text)
        except ValidationError as error:
            wrong = yamlfile.problem(
                error.errors(include_url=False), dict.fromkeys(_Line.model_fields)
            )
            raise InputError(f"{place}: {wrong}; correct or remove the line") from None
        # A prompt's text and a memory's path (from `project`) may stand in place of their digests.
        file = os.path.normpath(Path(os.path.realpath(project)) / line.memory)
        if _DIGEST.fullmatch(line.prompt):
            prompt = line.prompt
        else:
            prompt = prompt_key(line.prompt)
        if _DIGEST.fullmatch(line.memory):
            memory = line.memory
        else:
            memory = environment.digest(file)
        found[prompt, memory] = line.relevant
    return found


def keep_answer(path: Path, pair: Pair, *, relevant: bool | None) -> None:
    """Append one answer, readable by its owner alone; raises `InputError` when it cannot be kept."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"prompt": pair[0], "memory": pair[1], "relevant": relevant, "at": at})
    try:
        outputs.append(str(path), f"{line}\n", private=False)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); make room or allow it"
        ) from None


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


def more_needed(found: Share | None) -> int | None:
    """Return how many more labels with the same share let a threshold be chosen; None beyond `_MOST`."""
    if found is None:
        return FEWEST
    for of in range(max(found.of, FEWEST), _MOST):
        wanted = share(round(found.value * of), of)
        if wanted and wanted.high - wanted.low <= WIDEST:
            return of - found.of
    return None


def fit(
    kind: str,
    trials: Sequence[Trial],
    answers: Answers,
    labels: Mapping[str, dict[str, float]],
    most: int,
) -> Fit:
    """Return the thresholds of `kind` that give most prompts something relevant at a precision of `BAR`.

    `labels` are those of every kind; a prompt gets `most` memories. A threshold is tried only where every
    memory that it injects has an answer.
    """
    before = labels[kind]
    tried = []
    grid = {
        floor(100 * hit.confidence) / 100
        for trial in trials
        for hit in trial.hits
        if hit.kind == kind
    }
    for high in sorted({before["high"], *grid}):
        least = {}
        for name, each in labels.items():
            if name == kind:
                least[name] = high
            else:
                least[name] = each["high"]
        said: list[list[tuple[str, Any]]] = []
        for trial in trials:
            known = []
            for hit in trial.hits:
                if hit.kind in least and not hit.damaged:
                    known.append(hit)
            hits = [hit for hit in known if hit.confidence >= least[hit.kind]]
            said.append([(hit.kind, answers.get(trial.pair(hit), ...)) for hit in hits[:most]])
        own = []
        for words in said:
            for name, word in words:
                if name == kind:
                    own.append(word)
        precision = share(own.count(True), own.count(True) + own.count(False))
        coverage = share(sum(any(word is True for _, word in words) for words in said), len(trials))
        if ... not in own and precision and coverage:
            tried.append((high, precision, coverage))
    kept = Fit(kind=kind, before=before, after=before)
    if not tried:
        return kept.model_copy(
            update={"refused": "no threshold has an answer about each injection"}
        )
    good = [each for each in tried if each[1].value >= BAR] or [
        max(tried, key=lambda each: each[1].value)
    ]
    high, precision, coverage = max(
        good, key=lambda each: (each[2].count, each[1].value, -abs(each[0] - before["high"]))
    )
    found: dict[str, Any] = {"precision": precision, "coverage": coverage}
    if precision.value < BAR:
        found["refused"] = (
            f"no threshold reaches a precision of {BAR:.2f}; the best is high: {high:g}"
        )
    elif precision.of < FEWEST or precision.high - precision.low > WIDEST:
        found["refused"] = f"too few labels for high: {high:g}"
        found["more"] = more_needed(precision)
    else:
        found["after"] = {name: min(value, high) for name, value in before.items()} | {"high": high}
    return kept.model_copy(update=found)


def write_labels(found: Fit, project: Path) -> Fit:
    """Write thresholds into the user's own profile, keep a copy of the old one, and return where both are.

    Raises `ConfigError` when it cannot, also where the project has a profile, which comes before the user's.
    """
    source = profiles.find(found.kind, project)
    own = Path(environment.config_home()) / "retrieval" / f"{found.kind}.yaml"
    if source.is_relative_to(project / ".judgekit"):
        labels = ", ".join(f"{name}: {value:g}" for name, value in found.after.items())
        problem = f"this file comes before yours, so none is written; set {{{labels}}} here"
        raise ConfigError(problem, path=source, key="labels")
    copy = own.with_name(f"{own.name}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    written = [str(own), *([str(copy)] if own.exists() else [])]
    try:
        outputs.make_folder(str(own.parent), private=True)
        target = copy if own.exists() else own
        outputs.write_atomically(str(target), source.read_bytes(), private=True)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=own) from None
    for name in (
        "mention",
        "medium",
        "high",
    ):  # in order after each step: the two lower ones never rise
        yaml_text.put(own, "labels", name, float(f"{found.after[name]:g}"))
    return found.model_copy(update={"written": written})
