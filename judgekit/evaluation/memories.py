"""How relevant the memories are that the hook adds to a user's own prompts, and which thresholds follow.

A line of answers has the digests of a prompt and of a memory's path, and what a person said.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import BaseModel, ValidationError

from judgekit import environment
from judgekit.config import yaml_text, yamlfile
from judgekit.errors import ConfigError, Exit, InputError
from judgekit.evaluation.cases import lines
from judgekit.evaluation.stats import LEVEL, ReportPart
from judgekit.judging import binomial
from judgekit.retrieval import profiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BAR = 0.8  # precision: the share of what is injected that is relevant
FEWEST = 20  # labelled injections that say anything
WIDEST = 0.3  # interval of a precision that a threshold may rest on
_MOST = 1_000  # labels that a user is told to give
_DIGEST = re.compile(r"[0-9a-f]{16}")

Answers: TypeAlias = dict[tuple[str, str], bool | None]
"""Whether a memory is relevant to a prompt, by their digests; None where a person could not say."""


class Hit(NamedTuple):
    """A memory that a prompt found; `injectable` unless its file is damaged."""

    key: str
    title: str
    path: str
    kind: str
    confidence: float
    injectable: bool


class Trial(NamedTuple):
    """A prompt, its candidates, and what is injected and mentioned, without a judge and with one."""

    prompt: str
    key: str
    hits: Sequence[Hit]
    plain: tuple[list[Hit], list[Hit]]
    judged: tuple[list[Hit], list[Hit]] | None = None

    def injections(self, *, mentions: bool = False) -> list[Hit]:
        ways = [way for way in (self.plain, self.judged) if way]
        return list(dict.fromkeys(hit for way in ways for part in way[: 1 + mentions] for hit in part))


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
        return Exit.ACCEPTED if self.precision.value >= BAR else Exit.REJECTED


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


def prompt_key(prompt: str) -> str:
    return environment.digest(" ".join(prompt.split()))


def answers_file(project: str) -> Path:
    return Path(environment.state_home()) / "relevance" / f"{environment.file_name_for(project)}.jsonl"


class _Line(BaseModel, strict=True):
    prompt: str
    memory: str
    relevant: bool | None


def read_answers(path: Path, project: str) -> Answers:
    """Return the answers in a file; of two about the same pair the later one counts. Raises `InputError`.

    A prompt's text and a memory's path (from `project`) may stand in place of their digests.
    """
    found: Answers = {}
    for place, text in lines(path, "name a file with a JSON object a line"):
        try:
            line = _Line.model_validate_json(text)
        except ValidationError as error:
            wrong = yamlfile.problem(error.errors(include_url=False), dict.fromkeys(_Line.model_fields))
            raise InputError(f"{place}: {wrong}; correct or remove the line") from None
        file = os.path.normpath(Path(os.path.realpath(project)) / line.memory)
        prompt = line.prompt if _DIGEST.fullmatch(line.prompt) else prompt_key(line.prompt)
        found[prompt, line.memory if _DIGEST.fullmatch(line.memory) else environment.digest(file)] = (
            line.relevant
        )
    return found


def keep_answer(path: Path, trial: Trial, hit: Hit, *, relevant: bool | None) -> None:
    """Append one answer, readable by its owner alone; raises `InputError` when it cannot be kept."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"prompt": trial.key, "memory": hit.key, "relevant": relevant, "at": at})
    try:
        environment.append_private(str(path), f"{line}\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); make room or allow it") from None


def share(count: int, of: int) -> Share | None:
    """Return a share with the interval of Clopper and Pearson, which holds with few labels; None of none."""
    if not of:
        return None
    low, high = (bound(count, of, (1 - LEVEL) / 2) for bound in (binomial.lower, binomial.upper))
    return Share(count=count, of=of, value=count / of, low=max(low, 0.0), high=high)


def hook_report(trials: Sequence[Trial], answers: Answers, *, judged: bool = False) -> HookReport:
    """Return what the hook adds with or without a judge; without an answer an injection covers no prompt."""
    ways = [(trial.key, (trial.judged if judged else None) or trial.plain) for trial in trials]
    said = [[answers.get((key, hit.key)) for hit in injected] for key, (injected, _) in ways]
    labelled = [word for words in said for word in words if word is not None]
    mentions = [len(mentioned) for _, (_, mentioned) in ways]
    return HookReport(
        injected=sum(map(len, said)),
        mentioned=sum(mentions),
        nudged=sum(map(bool, mentions)),
        precision=share(sum(labelled), len(labelled)),
        coverage=share(sum(map(any, said)), len(said)),
    )


def changes(trials: Sequence[Trial], answers: Answers) -> dict[str, dict[str, int]]:
    """Return how many injections a judge drops and adds, and how many of them are relevant and not."""
    found: dict[str, list[bool | None]] = {"dropped": [], "added": []}
    for trial in trials:
        plain, judged = trial.plain[0], (trial.judged or trial.plain)[0]
        for name, one, other in (("dropped", plain, judged), ("added", judged, plain)):
            found[name] += [answers.get((trial.key, hit.key)) for hit in one if hit not in other]
    return {
        name: {"memories": len(said), "relevant": said.count(True), "irrelevant": said.count(False)}
        for name, said in found.items()
    }


def rows(trials: Sequence[Trial], answers: Answers, *, mentions: bool) -> list[dict[str, Any]]:
    """Return each pair that a person is asked about; its first three keys are a line of answers."""
    return [
        {
            "prompt": trial.prompt,
            "memory": hit.path,
            "relevant": answers.get((trial.key, hit.key)),
            "title": hit.title,
            "confidence": hit.confidence,
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
    kind: str, trials: Sequence[Trial], answers: Answers, labels: Mapping[str, dict[str, float]], most: int
) -> Fit:
    """Return the thresholds of `kind` that give most prompts something relevant at a precision of `BAR`.

    `labels` are those of every kind; a prompt gets `most` memories. A threshold is tried only where every
    memory that it injects has an answer.
    """
    before, tried = labels[kind], []
    grid = {floor(100 * hit.confidence) / 100 for trial in trials for hit in trial.hits if hit.kind == kind}
    for high in sorted({before["high"], *grid}):
        least = {name: high if name == kind else each["high"] for name, each in labels.items()}
        said: list[list[tuple[str, Any]]] = []
        for trial in trials:
            hits = [hit for hit in trial.hits if hit.injectable and hit.confidence >= least[hit.kind]]
            said.append([(hit.kind, answers.get((trial.key, hit.key), ...)) for hit in hits[:most]])
        own = [word for words in said for name, word in words if name == kind]
        precision = share(own.count(True), own.count(True) + own.count(False))
        coverage = share(sum(any(word is True for _, word in words) for words in said), len(trials))
        if ... not in own and precision and coverage:
            tried.append((high, precision, coverage))
    kept = Fit(kind=kind, before=before, after=before)
    if not tried:
        return kept.model_copy(update={"refused": "no threshold has an answer about each injection"})
    good = [each for each in tried if each[1].value >= BAR] or [max(tried, key=lambda each: each[1].value)]
    high, precision, coverage = max(
        good, key=lambda each: (each[2].count, each[1].value, -abs(each[0] - before["high"]))
    )
    found: dict[str, Any] = {"precision": precision, "coverage": coverage}
    if precision.value < BAR:
        found["refused"] = f"no threshold reaches a precision of {BAR:.2f}; the best is high: {high:g}"
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
        own.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy if own.exists() else own)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=own) from None
    for name in ("mention", "medium", "high"):  # in order after each step: the two lower ones never rise
        yaml_text.put(own, "labels", name, f"{found.after[name]:g}")
    return found.model_copy(update={"written": written})
