"""Calibrations: the file's format, where files are kept, and which of them a judge may use.

A file is refused if its gates do not follow from its own counts. The labels are not in the file, but every
chosen gate passed its test at an even share of the error that all gates may have, or at less. With fewer
labels or more errors than that share allows, no labels can have led to the gate.

A calibration is bound to its rubric and mode, to the models, how they are asked, and how their answers are
read. What stands behind an address or a model's name cannot be seen from here, so it is not bound.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AwareDatetime, Field

from judgekit import environment
from judgekit.config import TIERS, ModeName, Outcome, TierName, yamlfile
from judgekit.config import files as lock
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, InputError
from judgekit.judging import compare, logprobs, pointwise, prompt, select
from judgekit.judging.binomial import lower, upper
from judgekit.judging.documents import ComparisonInput, Document, Part, Task, file_of
from judgekit.judging.escalation import FinalityRule, FinalityRules
from judgekit.judging.fence import Fence, without_nonce
from judgekit.judging.jury import JuryRule
from judgekit.judging.orchestrator import USUAL, JudgeOptions
from judgekit.judging.score import ScoreTask
from judgekit.judging.verdict import RubricRef
from judgekit.providers import registry
from judgekit.providers.base import Endpoint, models_by_tier
from judgekit.rubric import search_path
from judgekit.rubric.schema import CompareRubric, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from judgekit.judging.logprobs import ScoreSource
    from judgekit.providers.base import PanelModels
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Rubric

SCHEMA = "judgekit/calibration@1"
TOGETHER = " + "  # between the models of one jury, where they stand as one name
Readings: TypeAlias = dict[TierName, dict[str, logprobs.ScoreSource]]
Asking: TypeAlias = dict[TierName, dict[str, str]]


class Asked(Strict):
    """How the opinions came about, in the words of the configuration: other opinions need other gates."""

    samples: Annotated[int, Field(ge=1)] = 1
    criteria: Literal["together", "each"] = "together"
    jury: JuryRule = "mean"
    redact: bool = True


USUALLY = Asked()


class Promise(Strict):
    """Every gate holds with `confidence`: at most this `rate` of its opinions differ from the label.

    With a `reference` it is by how much more often they differ than those of that tier on the same subjects,
    whose own opinion is then the last word.
    """

    rate: Annotated[float, Field(gt=0, lt=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    reference: TierName | None = None


class CalibratedRule(Strict):
    """A gate, and what shows that it keeps the promise."""

    tier: TierName
    outcome: Outcome
    after: Outcome | None = None
    least_margin: float = 0.0
    stands: TierName | None = Field(
        default=None, description="instead: the wins of this tier that `tier` answers with a tie"
    )
    labels: int
    errors: int
    gains: int = 0
    bound: float

    @property
    def rule(self) -> FinalityRule:
        return FinalityRule(self.tier, self.outcome, self.least_margin, self.after, self.stands)


class RefusedRule(CalibratedRule):
    """A class of opinions for which the promise cannot be given; `more` labels of it would do, if any."""

    why: Literal["too few labels", "too many errors"]
    more: int | None = None


class Measured(Strict):
    decided: int
    errors: int
    by_gate: int = 0
    calls: dict[TierName, int]


class Subjects(Strict):
    """How many subjects the labelled comparisons had."""

    least: int
    most: int
    all: int


class Calibration(Strict):
    """`judgekit/calibration@1`: fits one rubric file, mode and panel of models, and no other.

    `read` says how the opinions of each model were read, `read_otherwise` counts those from which nothing
    was learned because they were not; `asking` is a hash of how its profile asks it. With `subjects` it was
    learned of comparisons in which each of several subjects is scored: an acceptance is a lead of the best.
    """

    schema_: Literal["judgekit/calibration@1"] = Field(alias="schema")
    id: str
    made: AwareDatetime
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    wording_sha256: str | None = None
    models: dict[TierName, str]
    asked: Asked = USUALLY
    read: Readings = {}
    asking: Asking = {}
    subjects: Subjects | None = None
    promise: Promise
    gates: list[CalibratedRule]
    not_promised: list[RefusedRule] = []
    read_otherwise: dict[TierName, int] = {}
    cases: int
    labels_sha256: str
    with_gates: Measured
    without: Measured

    def rules(self) -> FinalityRules:
        """Return the gates as the judge applies them."""
        read = {(tier, model, how) for tier, models in self.read.items() for model, how in models.items()}
        rules = tuple(gate.rule for gate in self.gates)
        return FinalityRules(self.id, rules, self.promise.reference, frozenset(read))

    def text(self) -> str:
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


# --- Whether its gates follow from its counts


class ErrorCounts(NamedTuple):
    """Over a gate's labels: `errors` against it and, with a reference, `gains` where only that one erred."""

    labels: int
    errors: int
    gains: int = 0

    @property
    def rate(self) -> float:
        """The share that counts against the promise."""
        return (self.errors - self.gains) / self.labels if self.labels else 0.0


_MOST = 1_000_000  # labels; nobody gives more, and a bound on more takes long
_ROUNDED = 1e-6  # bounds are written with six digits


def bound(counts: ErrorCounts, level: float, promise: Promise) -> float:
    """Return what the rate exceeds with a probability of at most `level`.

    With a reference losses and gains are each bounded at half the level.
    """
    if promise.reference is None:
        return upper(counts.errors, counts.labels, level)
    losses = upper(counts.errors, counts.labels, level / 2)
    return losses - lower(counts.gains, counts.labels, level / 2)


def _flaws(known: Calibration) -> Iterator[tuple[str, str]]:
    """Yield the keys that do not follow from the others, and what was expected of each."""
    tiers, last = [tier for tier in TIERS if tier in known.models], known.promise.reference
    gates = {f"gates.{at}": gate for at, gate in enumerate(known.gates)}
    refused = {f"not_promised.{at}": rule for at, rule in enumerate(known.not_promised)}
    counts: list[tuple[str, int, float]] = [("cases", known.cases, _MOST)]
    for where, rule in (*gates.items(), *refused.items()):
        gains = rule.labels - rule.errors if last else 0
        limits = {"labels": known.cases, "errors": rule.labels, "gains": gains}
        counts += [(f"{where}.{key}", getattr(rule, key), most) for key, most in limits.items()]
        if not isfinite(rule.least_margin):
            yield f"{where}.least_margin", f"expected a number, got {rule.least_margin}"
    for where, measured in (("with_gates", known.with_gates), ("without", known.without)):
        limits = {"decided": known.cases, "errors": measured.decided, "by_gate": measured.decided}
        counts += [(f"{where}.{key}", getattr(measured, key), most) for key, most in limits.items()]
        counts += [(f"{where}.calls.{tier}", count, inf) for tier, count in measured.calls.items()]
    for key, count, most in counts:
        if not 0 <= count <= most:
            yield key, f"expected {'no less than 0' if most == inf else f'0 to {most}'}, got {count}"
    if last is not None and last not in tiers[1:]:
        yield "promise.reference", f"expected a tier after the first one, got {last}"
        return
    rate, share = known.promise.rate, (1 - known.promise.confidence) / max(1, len(gates))
    classes = [(each.tier, each.outcome, each.after, each.stands) for each in known.gates]
    for (where, gate), own in zip(gates.items(), classes, strict=True):
        may = tiers[1:2] if gate.stands else tiers[: tiers.index(last) if last else -1]
        if gate.tier not in may:
            yield f"{where}.tier", f"expected {' or '.join(may) or 'none'}, got {gate.tier}"
        elif gate.stands and own[1:] != ("improve", "accept", tiers[0]):
            yield f"{where}.stands", f"expected a win of {tiers[0]} against a tie of {gate.tier}"
        elif gate.after is not None and gate.tier == tiers[0]:
            yield f"{where}.after", f"expected none, because {gate.tier} is the first tier"
        if classes.count(own) > 1:
            yield where, "expected one gate for each class of opinions, got several"
        # The classes of one tier have no opinion in common.
        labels = sum(each.labels for each in known.gates if each.tier == gate.tier and not each.stands)
        if labels > known.cases:
            wanted = f"{known.cases} at most in all gates of {gate.tier}"
            yield f"{where}.labels", f"expected {wanted}, got {labels}"
        least = bound(ErrorCounts(gate.labels, gate.errors, gate.gains), share, known.promise)
        if least > rate:
            seen = f"{gate.errors} wrong of {gate.labels} does not support a rate of at most {rate:g}"
            yield f"{where}.labels", f"{seen}: it may be up to {least:.3g}"
        if not least - _ROUNDED <= gate.bound <= rate + _ROUNDED:
            yield f"{where}.bound", f"expected {least:.6f} to {rate:g}, got {gate.bound:g}"


# --- Which panel, and which way of asking, it holds for


_USUALLY_READ: tuple[logprobs.ScoreSource, ...] = ("expected", "points", "whole")


class PanelFingerprint(NamedTuple):
    """Which models are asked, by tier, and how: `able` is how opinions of each model may be read here."""

    models: dict[TierName, str]
    asked: Asked
    able: dict[TierName, dict[str, frozenset[ScoreSource]]]
    asking: Asking


def fingerprint(panel: PanelModels, rubric: Rubric, options: JudgeOptions = USUAL) -> PanelFingerprint:
    """Return what judging with these models comes to."""
    asked = Asked(
        samples=options.samples,
        criteria="each" if options.each else "together",
        jury=options.jury,
        redact=bool(options.redact),
    )
    now, scores = PanelFingerprint({}, asked, {}, {}), isinstance(rubric, ScoreRubric)
    for tier, jury in models_by_tier(panel).items():
        now.models[tier] = together(endpoint.model for endpoint in jury)
        # A model may be there twice, under two profiles or at two addresses; their order says nothing.
        now.able[tier], now.asking[tier] = {}, {}
        for model in dict.fromkeys(endpoint.model for endpoint in jury):
            same = [endpoint for endpoint in jury if endpoint.model == model]
            now.able[tier][model] = frozenset().union(*(logprobs.able(one, scores=scores) for one in same))
            if hashes := sorted(filter(None, map(profile_sha256, same))):
                now.asking[tier][model] = hashes[0] if len(hashes) == 1 else _sha256(hashes)
    return now


def together(models: Iterable[str]) -> str:
    """Return the models of a tier as one name; their order says nothing."""
    return TOGETHER.join(sorted(models))


def profile_sha256(endpoint: Endpoint) -> str | None:
    """Return a hash of all that its profile says about how a model is asked; None of a recording."""
    profile = endpoint.profile
    if isinstance(profile, registry.LitellmProfile):
        how: dict[str, Any] = {
            "arguments": profile.of_model(profile.arguments, endpoint.model, {}),
            "thinking": profile.of_model(profile.thinking, endpoint.model, 0),
        }
    elif isinstance(profile, registry.CommandProfile):
        how = profile.model_dump(include={"argv", "reply", "reply_key", "reply_where", "files", "set_env"})
    else:
        return None
    return _sha256([how, endpoint.output, profile.limits.context_chars])


def misfit(known: Calibration, loaded: LoadedRubric, now: PanelFingerprint, subjects: int = 0) -> str | None:
    """Say in a few words why it does not fit, None where it does; `subjects` is how many are compared."""
    return next(chain(_other_subject(known, loaded, now, subjects), _other_ways(known, loaded, now)), None)


def _other_subject(
    known: Calibration, loaded: LoadedRubric, now: PanelFingerprint, subjects: int
) -> Iterator[str]:
    if known.rubric.sha256 != loaded.sha256:
        yield f"it was made for a different {known.rubric.id} ({known.rubric.version})"
    if known.prompt_sha256 != loaded.rubric.prompt.sha256:
        yield "the prompt has changed"
    if known.wording_sha256 not in (None, wording(loaded.rubric, known.mode)):
        yield "judgekit's own prompts, or how it reads replies, have changed"
    if (several := known.subjects) and not several.least <= subjects <= several.most:
        count = f"{several.least} to {several.most}" if several.least < several.most else several.most
        yield f"it was made for {count} texts, not for {subjects}"
    for tier, model in now.models.items():
        before = known.models.get(tier, "nobody")
        if together(before.split(TOGETHER)) != model:
            yield f"{tier} was {before} and is {model} now"
    if gone := sorted(set(known.models) - set(now.models)):
        yield f"{', '.join(gone)} is no longer asked"


def _other_ways(known: Calibration, loaded: LoadedRubric, now: PanelFingerprint) -> Iterator[str]:
    # A model that answers in single tokens answers once; and about each thing alone, but for pairs.
    points = all(able == {"points"} for models in now.able.values() for able in models.values())
    rubric, was, asked = loaded.rubric, known.asked, now.asked
    one_way = len(rubric.questions) == 1 or (points and not isinstance(rubric, CompareRubric))
    # Where several subjects are ranked their scores are averaged, whatever juries come to elsewhere.
    juries = not known.subjects and any(TOGETHER in model for model in now.models.values())
    if was.samples != asked.samples and not points:
        yield f"samples were {was.samples} and are {asked.samples} now"
    if was.criteria != asked.criteria and not one_way:
        yield f"criteria were judged {was.criteria} and are judged {asked.criteria} now"
    if was.jury != asked.jury and juries:
        yield f"juries came to the {was.jury} and come to the {asked.jury} now"
    if was.redact != asked.redact:
        before, after = ("removed before sending" if each.redact else "sent" for each in (was, asked))
        yield f"secrets were {before} and are {after} now"
    for tier, models in now.able.items():
        for model, able in models.items():
            how = known.read.get(tier, {}).get(model)
            words = logprobs.WORDS[next(each for each in _USUALLY_READ if each in able)]
            if how is None and "expected" in able:
                yield f"it does not say how the scores of {tier} were read, and they are {words} now"
            if how is not None and how not in able:
                yield f"what {tier} said was {logprobs.WORDS[how]} and is {words} now"
    for tier, hashes in now.asking.items():
        were = known.asking.get(tier, {})
        if other := [model for model, digest in hashes.items() if were.get(model, digest) != digest]:
            yield f"how its provider's profile asks {other[0]} has changed"


def wording(rubric: Rubric, mode: ModeName) -> str:
    """Return a hash of what judgekit says to models under a rubric, whatever is judged, and of its own bars.

    These are the numbers by which it reads answers: with others the same replies make other opinions.
    """
    part, task, idle = Part("a", "b", 1), Task("c", "d"), None
    # Models that answer in one token are asked otherwise: `points`.
    fence, endpoint = Fence("nonce"), replace(recorded("m", registry.UNKNOWN_FAMILY), pointwise=True)
    if isinstance(rubric, ScoreRubric):
        told = [prompt.Earlier(dict.fromkeys(rubric.dimensions, 1.0), "e")]
        sent = [prompt.score_messages(rubric, tier, [part, part], task, told) for tier in TIERS]
        document = Document((file_of("a", "b"), file_of("c", "d")), "e", Task("f", "g"))
        points = ScoreTask(rubric, mode, document, "quick").prompts(endpoint, fence)
        idle = prompt.idle_question(rubric)
        bars = [logprobs.ALTERNATIVES, logprobs.LEAST_MASS, logprobs.SURE]
        bars += [pointwise.LEAST_MASS, pointwise.LEAST_LEAD]
    elif isinstance(rubric, CompareRubric):
        texts, said = [Part("LEFT", "a", 1), Part("RIGHT", "b", 1)], [compare.EarlierOpinion("LEFT", "c")]
        sent = [compare.pair_messages(rubric, tier, "d", texts, said) for tier in TIERS]
        comparison_input = ComparisonInput("a", (file_of("A", "b"), file_of("B", "c")))
        points = compare.CompareTask(rubric, mode, comparison_input, "quick").prompts(endpoint, fence)
        bars = [pointwise.LEAST_MASS, compare.LEAST_LEANING]
    else:
        sent = []
        candidate = prompt.PromptCandidate("id", "title", "category", ("tag",), "text")
        for tier in TIERS:
            messages, (label,) = prompt.select_messages(rubric, mode, tier, "a", ["b"], [candidate])
            # The label is drawn by an installation's own secret.
            sent.append(
                tuple(each._replace(content=each.content.replace(label, "LABEL")) for each in messages)
            )
        candidates = select.Candidates(select.Query("a", ("b",)), (candidate,))
        points = select.SelectTask(rubric, mode, candidates, "quick").prompts(endpoint, fence)
        bars = [pointwise.LEAST_MASS, pointwise.LEAST_GAIN, pointwise.LEAST_GAIN_OVER_MEMORY]
        bars += [select.KEEP_AT, select.POINTWISE_CHARS]
    plain = [[(each.role, without_nonce(each.content)) for each in messages] for messages in (*sent, *points)]
    return _sha256([plain, idle, bars])


@functools.lru_cache(maxsize=64)
def recorded(model: str, family: str) -> Endpoint:
    """Return the model of recorded answers as one that could be asked."""
    profile = registry.find("replay")
    return Endpoint(profile, model, family, profile.output)


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


# --- Where files are kept, and which of them counts

AGAIN = "make a new one with judgekit calibrate"
FOLDER, ACCEPTED = "calibrations", "accepted.json"
MOST_TOLD = 3  # files that cannot be read are named
MOST_READ = 20  # of a folder: what a clone may bring is read before a judge's time begins
MOST_BYTES = 64_000  # of one: several times those of the largest that were made
_WAIT = 2.0  # seconds for another process that accepts one
_KIND = f'"{SCHEMA.partition("@")[0]}@'
_ID = re.compile(r"(.+-(?:strict|lenient))-[0-9a-f]{12}")


class UsableCalibration(NamedTuple):
    """The gates to judge by, and in one line which calibrations that are there are not used; or neither."""

    finality: FinalityRules | None = None
    calibration_warning: str | None = None


def find(
    loaded: LoadedRubric,
    mode: ModeName,
    panel: PanelModels,
    project: Path | None = None,
    options: JudgeOptions = USUAL,
    subjects: int = 0,
) -> UsableCalibration:
    """Return the newest calibration that fits rubric, mode, models and options, the project's first.

    A stale one is named where none fits, one that cannot be read in any case. With one tier there is nothing
    to decide. `subjects` is how many are scored to be compared, if they are.
    """
    one_tier = len(panel) < 2  # noqa: PLR2004 - one opinion cannot go up
    found = [] if one_tier else list(_calibrations(loaded.rubric.rubric, mode, project))
    if not found:
        return UsableCalibration()
    now = fingerprint(panel, loaded.rubric, options)
    fitting, stale, broken = None, list[str](), list[str]()
    for known in found:
        if isinstance(known, str):
            broken.append(f"calibration not used: {known}")
        elif fitting is None and (known.subjects is None) == (subjects == 0):
            if why := misfit(known, loaded, now, subjects):
                stale.append(f"calibration {known.id} not used: {why}; {AGAIN}")
            else:
                fitting = known
    told = [*broken[:MOST_TOLD], *([] if fitting else stale[:1])]
    if len(broken) > MOST_TOLD:
        told.append(f"{len(broken) - MOST_TOLD} more calibrations cannot be read")
    return UsableCalibration(fitting.rules() if fitting else None, "; ".join(told) or None)


def _calibrations(rubric: str, mode: ModeName, project: Path | None) -> Iterator[Calibration | str]:
    """Yield the calibrations of a rubric and mode, a folder's newest first, and what is wrong with others.

    Files whose name is an id come first, each the newest before others; an id says what it is for.
    """
    for origin, folder in search_path.folders(FOLDER, project):
        named = [(_ID.fullmatch(path.stem), path) for path in folder.glob("*.json") if origin != "bundled"]
        files = sorted(
            (id_ is None, -path.stat().st_mtime if path.exists() else 0.0, path)
            for id_, path in named
            if id_ is None or id_[1] == f"{rubric}-{mode}"
        )
        if len(files) > MOST_READ:
            told = f"{len(files)} files that may be for {rubric}, {mode}; read {MOST_READ} of them"
            yield f"{folder}: {told}"
        found: list[Calibration] = []
        for no_id, _, path in files[:MOST_READ]:
            try:
                known = read(path, of_project=origin == "project")
                found += [known] if (known.rubric.id, known.mode) == (rubric, mode) else []
            except ConfigError as error:
                text = _bytes(path).decode(errors="replace")
                if not no_id or all(each in text for each in (_KIND, f'"{rubric}"', f'"{mode}"')):
                    yield str(error)
        yield from sorted(found, key=lambda each: each.made, reverse=True)


def read(path: Path, *, of_project: bool = False) -> Calibration:
    """Return a calibration; of a project only a file that the user has accepted.

    Raises `ConfigError` naming the first key that is wrong, or that the counts in the file do not bear out.
    """
    if of_project:
        yamlfile.check_own(path, path.parents[2])
    known = yamlfile.read(path, Calibration, version_key="schema", most=MOST_BYTES)
    if of_project and hashlib.sha256(_bytes(path)).hexdigest() not in _accepted():
        shown = path.relative_to(path.parents[2])
        told = "it belongs to the project and you have not accepted it"
        raise ConfigError(f"{told}; see what it does with judgekit calibrate accept {shown}", path=shown)
    for key, wrong in _flaws(known):
        raise ConfigError(f"{wrong}; {AGAIN}", path=path, key=key)
    return known


def _bytes(path: Path) -> bytes:
    """Return the beginning of a regular file, one byte more than may be read; b"" where there is none."""
    with suppress(OSError):
        if path.is_file():  # a pipe may have no end
            with path.open("rb") as file:
                return file.read(MOST_BYTES + 1)
    return b""


class Accepted(Strict):
    """The calibrations that a user lets projects bring: ids by the SHA-256 of their files."""

    schema_: Literal["judgekit/accepted@1"] = Field("judgekit/accepted@1", alias="schema")
    calibrations: dict[str, str] = {}


def accept(path: Path) -> None:
    """Let projects bring the calibration that `path` holds: a file of the same bytes, whatever its name.

    Raises `ConfigError` for one that cannot be used, and `InputError` if the list cannot be written.
    """
    known, digest = read(path), hashlib.sha256(_bytes(path)).hexdigest()
    kept = Path(environment.config_home()) / ACCEPTED
    try:
        environment.private_folder(str(kept.parent))
        with lock.held(kept.with_suffix(".lock"), seconds=_WAIT):
            now = Accepted(calibrations={**_accepted(), digest: known.id})
            environment.write_private(str(kept), now.model_dump_json(by_alias=True, indent=2) + "\n")
    except OSError as error:
        raise InputError(f"{kept}: cannot be written ({error.strerror}); check the folder") from None


def _accepted() -> dict[str, str]:
    path = Path(environment.config_home()) / ACCEPTED
    return yamlfile.read(path, Accepted, version_key="schema").calibrations if path.is_file() else {}


def default_path(known: Calibration) -> Path:
    """Return where a user's calibration of this rubric and mode for these models is kept."""
    return Path(environment.config_home()) / FOLDER / f"{known.id}.json"


def check(out: Path | None = None) -> None:
    """Raise `InputError` where a calibration could not be written to `out`, or to a user's own folder."""
    path = out or Path(environment.config_home()) / FOLDER / "new.json"
    there = next((each for each in (path, *path.parents) if each.exists()), path.parent)
    why = "a folder" if path.is_dir() else "" if os.access(there, os.W_OK) else "no permission"
    if there != path and not there.is_dir():
        why = f"{there} is not a folder"
    if why:
        raise InputError(f"{out or path.parent}: cannot be written ({why}); choose another file with --out")


def write(known: Calibration, path: Path) -> None:
    """Write a calibration; raises `InputError` when it cannot be written."""
    try:
        environment.private_folder(str(path.parent))
        path.write_text(known.text(), encoding="utf-8")
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror}); choose another file with --out"
        raise InputError(problem) from None
