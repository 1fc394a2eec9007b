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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AwareDatetime, Field

from judgekit import environment, outputs
from judgekit.config import TIERS, ModeName, TierName, locks, yamlfile
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, InputError
from judgekit.judging import compare, documents, pointwise, prompt, select
from judgekit.judging.binomial import lower, upper
from judgekit.judging.documents import ComparisonInput, Document, Part, TaskDescription, file_of
from judgekit.judging.escalation import FinalityRule, FinalityRules
from judgekit.judging.fence import Fence, without_nonce
from judgekit.judging.jury import JuryRule, Opinion
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.score_source import SOURCE_WORDS, ScoreSource, possible_sources
from judgekit.judging.settings import JudgeSettings
from judgekit.judging.verdict import RubricRef
from judgekit.providers import registry
from judgekit.providers.base import Endpoint
from judgekit.replies import logprobs
from judgekit.rubric import search_path
from judgekit.rubric.schema import CompareRubric, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from judgekit.rubric.loader import LoadedRubric

SCHEMA = "judgekit/calibration@1"
TOGETHER = " + "  # between the models of one jury, where they stand as one name
Readings: TypeAlias = dict[TierName, dict[str, ScoreSource]]
Asking: TypeAlias = dict[TierName, dict[str, str]]
# Nobody gives more; a bound on more takes long.
Count: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


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

    rate: Share
    confidence: Share
    reference: TierName | None = None


class CalibratedRule(FinalityRule):
    """A gate, and what shows that it keeps the promise."""

    labels: Count
    errors: Count
    gains: Count = 0
    bound: float


class RefusedRule(CalibratedRule):
    """A class of opinions for which the promise cannot be given; `more` labels of it would do, if any."""

    why: Literal["too few labels", "too many errors"]
    more: int | None = None


class Measured(Strict):
    decided: Count
    errors: Count
    by_gate: Count = 0
    calls: dict[TierName, Annotated[int, Field(ge=0)]]


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
    cases: Count
    labels_sha256: str
    with_gates: Measured
    without: Measured

    def rules(self) -> FinalityRules:
        read = {
            (tier, model, how)
            for tier, models in self.read.items()
            for model, how in models.items()
        }
        return FinalityRules(self.id, tuple(self.gates), self.promise.reference, frozenset(read))

    def text(self) -> str:
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


# --- Whether its gates follow from its counts


def bound(labels: int, errors: int, gains: int, level: float, promise: Promise) -> float:
    """Return what the rate of `errors` exceeds with a probability of at most `level`.

    With a reference it is less the rate of the `gains`, where only that one erred: both share the `level`.
    """
    if promise.reference is None:
        return upper(errors, labels, level)
    return upper(errors, labels, level / 2) - lower(gains, labels, level / 2)


_ROUNDED = 1e-6  # bounds are written with six digits


def _flaws(known: Calibration) -> Iterator[tuple[str, str]]:
    """Yield the keys that do not follow from the others, and what was expected of each."""
    tiers = [tier for tier in TIERS if tier in known.models]
    last = known.promise.reference
    rate = known.promise.rate
    if last is not None and last not in tiers[1:]:
        yield "promise.reference", f"expected a tier after the first one, got {last}"
    limits: list[tuple[str, int, int]] = []
    for name, rules in (("gates", known.gates), ("not_promised", known.not_promised)):
        for at, rule in enumerate(rules):
            limits.append((f"{name}.{at}.labels", rule.labels, known.cases))
            limits.append((f"{name}.{at}.errors", rule.errors, rule.labels))
            limits.append(
                (f"{name}.{at}.gains", rule.gains, rule.labels - rule.errors if last else 0)
            )
    for name, measured in (("with_gates", known.with_gates), ("without", known.without)):
        limits.append((f"{name}.decided", measured.decided, known.cases))
        limits.append((f"{name}.errors", measured.errors, measured.decided))
        limits.append((f"{name}.by_gate", measured.by_gate, measured.decided))
    for key, count, most in limits:
        if count > most:
            yield key, f"expected {most} at most, got {count}"
    share = (1 - known.promise.confidence) / max(1, len(known.gates))
    classes = [(gate.tier, gate.outcome, gate.after, gate.stands) for gate in known.gates]
    for at, gate in enumerate(known.gates):
        where = f"gates.{at}"
        own = classes[at]
        if gate.stands:
            may = tiers[1:2]
        else:
            may = tiers[: tiers.index(last) if last else -1]
        if gate.tier not in may:
            yield f"{where}.tier", f"expected {' or '.join(may) or 'none'}, got {gate.tier}"
        if gate.stands and own[1:] != ("improve", "accept", tiers[0]):
            yield f"{where}.stands", f"expected a win of {tiers[0]} against a tie of {gate.tier}"
        if gate.after is not None and gate.tier == tiers[0]:
            yield f"{where}.after", f"expected none, because {gate.tier} is the first tier"
        if classes.count(own) > 1:
            yield where, "expected one gate for each class of opinions, got several"
        # The classes of one tier have no opinion in common.
        labels = sum(
            each.labels for each in known.gates if each.tier == gate.tier and not each.stands
        )
        if labels > known.cases:
            yield (
                f"{where}.labels",
                f"expected up to {known.cases} in all gates of {gate.tier}, got {labels}",
            )
        least = bound(gate.labels, gate.errors, gate.gains, share, known.promise)
        if least > rate:
            seen = (
                f"{gate.errors} wrong of {gate.labels} does not support a rate of at most {rate:g}"
            )
            yield f"{where}.labels", f"{seen}: it may be up to {least:.3g}"
        if not least - _ROUNDED <= gate.bound <= rate + _ROUNDED:
            yield f"{where}.bound", f"expected {least:.6f} to {rate:g}, got {gate.bound:g}"


# --- Which panel, and which way of asking, it holds for


class PanelFingerprint(NamedTuple):
    """Which models are asked, by tier, and how: `able` is how opinions of each model may be read here."""

    models: dict[TierName, str]
    asked: Asked
    able: dict[TierName, dict[str, frozenset[ScoreSource]]]
    asking: Asking


def fingerprint(settings: JudgeSettings) -> PanelFingerprint:
    asked = Asked(
        samples=settings.samples,
        criteria=settings.criteria,
        jury=settings.jury,
        redact=bool(settings.redact),
    )
    now = PanelFingerprint({}, asked, {}, {})
    scores = isinstance(settings.loaded.rubric, ScoreRubric)
    for tier, jury in settings.models_by_tier.items():
        now.models[tier] = together(endpoint.model for endpoint in jury)
        # A model may be there twice, under two profiles or at two addresses; their order says nothing.
        now.able[tier], now.asking[tier] = {}, {}
        for model in dict.fromkeys(endpoint.model for endpoint in jury):
            same = [endpoint for endpoint in jury if endpoint.model == model]
            now.able[tier][model] = frozenset().union(
                *(possible_sources(one, scores=scores) for one in same)
            )
            if hashes := sorted(filter(None, map(profile_sha256, same))):
                if len(hashes) == 1:
                    now.asking[tier][model] = hashes[0]
                else:
                    now.asking[tier][model] = sha256(hashes)
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
        how |= {"thresholds": learned} if (learned := pointwise.thresholds(endpoint)) else {}
    elif isinstance(profile, registry.CommandProfile):
        how = profile.model_dump(
            include={"argv", "reply", "reply_key", "reply_where", "files", "set_env"}
        )
    else:
        return None
    return sha256([how, endpoint.output, profile.limits.context_chars])


def misfits(
    known: Calibration, loaded: LoadedRubric, now: PanelFingerprint, size: int = 0
) -> Iterator[str]:
    """Yield in a few words why a calibration does not fit; `size` is how many subjects are compared."""
    rubric = loaded.rubric
    was = known.asked
    asked = now.asked
    several = known.subjects
    if known.rubric.sha256 != loaded.sha256:
        yield f"it was made for a different {known.rubric.id} ({known.rubric.version})"
    if known.prompt_sha256 != rubric.prompt.sha256:
        yield "the prompt has changed"
    if known.wording_sha256 not in (None, wording(loaded, known.mode)):
        yield "judgekit's own prompts, or how it reads replies, have changed"
    if several and not several.least <= size <= several.most:
        fitting = f"{several.most}"
        if several.least < several.most:
            fitting = f"{several.least} to {several.most}"
        yield f"it was made for {fitting} texts, not for {size}"
    for tier in known.models | now.models:
        before = known.models.get(tier, "nobody")
        model = now.models.get(tier, "nobody")
        if together(before.split(TOGETHER)) != model:
            yield f"{tier} was {before} and is {model} now"
    # A model that answers in single tokens answers once; and about each thing alone, but for pairs.
    points = all(able == {"points"} for models in now.able.values() for able in models.values())
    one_way = len(rubric.questions) == 1 or (points and not isinstance(rubric, CompareRubric))
    # Where several subjects are ranked their scores are averaged, whatever juries come to elsewhere.
    juries = not several and any(TOGETHER in model for model in now.models.values())
    plays_a_part = {"samples": not points, "criteria": not one_way, "jury": juries, "redact": True}
    for name, plays in plays_a_part.items():
        if plays and (before := getattr(was, name)) != (after := getattr(asked, name)):
            yield f"judge.{name} was {str(before).lower()} and is {str(after).lower()} now"
    for tier, models in now.able.items():
        for model, able in models.items():
            how = known.read.get(tier, {}).get(model)
            words = SOURCE_WORDS[
                next(how for how in ("expected", "points", "whole") if how in able)
            ]
            if how is None and "expected" in able:
                yield f"it does not say how the scores of {tier} were read, and they are {words} now"
            if how is not None and how not in able:
                yield f"what {tier} said was {SOURCE_WORDS[how]} and is {words} now"
            digest = now.asking.get(tier, {}).get(model)
            if digest and known.asking.get(tier, {}).get(model, digest) != digest:
                yield f"how its provider's profile asks {model} has changed"


def wording(loaded: LoadedRubric, mode: ModeName) -> str:
    """Return a hash of what judgekit says to models under a rubric, and of the bars for their answers."""
    rubric = loaded.rubric
    settings = JudgeSettings(loaded=loaded, mode=mode)
    part = Part("a", "b", 1)
    task = TaskDescription("c", "d", "h")
    idle = None
    # Models that answer in one token are asked otherwise: `points`.
    fence = Fence("nonce")
    endpoint = replace(recorded("m", registry.UNKNOWN_FAMILY), pointwise=True)
    if isinstance(rubric, ScoreRubric):
        told = [Opinion("accept", dict.fromkeys(rubric.dimensions, 1.0), "e")]
        sent = [prompt.score_messages(rubric, tier, [part, part], task, told) for tier in TIERS]
        document = Document(
            (file_of("a", "b"), file_of("c", "d")), "e", TaskDescription("f", "g", "h")
        )
        points = ScoreQuestion(settings, document, "quick").prompts(endpoint, fence)
        idle = prompt.idle_question(rubric)
        if any(dimension.scale for dimension in rubric.dimensions.values()):
            idle += prompt.idle_question(rubric, "binary")
        bars = [logprobs.ALTERNATIVES, logprobs.LEAST_MASS, logprobs.SURE]
        bars += [pointwise.LEAST_MASS, pointwise.LEAST_LEAD]
    elif isinstance(rubric, CompareRubric):
        texts = [Part("LEFT", "a", 1), Part("RIGHT", "b", 1)]
        said = [("LEFT", "c")]
        sent = [compare.pair_messages(rubric, tier, "d", texts, said) for tier in TIERS]
        comparison_input = ComparisonInput("a", (file_of("A", "b"), file_of("B", "c")))
        points = compare.CompareQuestion(settings, comparison_input, "quick").prompts(
            endpoint, fence
        )
        bars = [pointwise.LEAST_MASS, compare.LEAST_LEANING]
    else:
        sent = []
        candidate = documents.PromptCandidate("id", "title", "category", ("tag",), "text")
        query = documents.Query("a", ("b",))
        for tier in TIERS:
            messages, (label,) = prompt.select_messages(rubric, mode, tier, query, [candidate])
            # The label is drawn by an installation's own secret.
            sent.append(
                tuple(one._replace(content=one.content.replace(label, "LABEL")) for one in messages)
            )
        candidates = documents.Candidates(query, (candidate,))
        points = select.SelectQuestion(settings, candidates, "quick").prompts(endpoint, fence)
        bars = [pointwise.LEAST_MASS, pointwise.LEAST_GAIN, pointwise.LEAST_GAIN_OVER_MEMORY]
        bars += [select.KEEP_AT, select.POINTWISE_CHARS]
    plain = [
        [(each.role, without_nonce(each.content)) for each in messages]
        for messages in (*sent, *points)
    ]
    return sha256([plain, idle, bars])


@functools.lru_cache(maxsize=64)
def recorded(model: str, family: str) -> Endpoint:
    """Return the model of recorded answers as one that could be asked."""
    profile = registry.find("replay")
    return Endpoint(profile, model, family, profile.output)


def sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


# --- Where files are kept, and which of them counts

AGAIN = "make a new one with judgekit calibrate"
FOLDER = "calibrations"
ACCEPTED = "accepted.json"
MOST_TOLD = 3  # files that cannot be read are named
MOST_READ = 20  # of a folder: what a clone may bring is read before a judge's time begins
MOST_BYTES = 64_000  # of one: several times those of the largest that were made
_WAIT = 2.0  # seconds for another process that accepts one
_ID = re.compile(r"(.+-(?:strict|lenient))-[0-9a-f]{12}")


def find(
    settings: JudgeSettings,
    project: Path | None = None,
    subjects: int = 0,  # that are scored to be compared
) -> tuple[FinalityRules | None, str | None]:
    """Return the gates of the newest that fits, the project's first, and in one line which are not used."""
    # One opinion cannot go up.
    if len(settings.models_by_tier) <= 1:
        return None, None
    loaded = settings.loaded
    files = list(_calibrations(loaded.rubric.rubric, settings.mode, project))
    if not files:
        return None, None
    now = fingerprint(settings)
    stale: list[str] = []
    problems = [file for file in files if isinstance(file, str)]
    broken = [f"calibration not used: {problem}" for problem in problems[:MOST_TOLD]]
    for known in files:
        if isinstance(known, str) or (known.subjects is None) != (subjects == 0):
            continue
        why = next(misfits(known, loaded, now, subjects), None)
        if not why:
            return known.rules(), "; ".join(broken) or None
        stale.append(f"calibration {known.id} not used: {why}; {AGAIN}")
    return None, "; ".join([*broken, *stale[:1]]) or None


def _calibrations(rubric: str, mode: ModeName, project: Path | None) -> Iterator[Calibration | str]:
    """Yield the calibrations of a rubric and mode, a folder's newest first, and what is wrong with others."""
    for origin, folder in search_path.folders(FOLDER, project):
        if origin == "bundled":
            files = []
        else:
            files = list(folder.glob("*.json"))
        ids = {path: _ID.fullmatch(path.stem) for path in files}  # an id says what it is for
        files = [path for path, id_ in ids.items() if id_ is None or id_[1] == f"{rubric}-{mode}"]
        if len(files) > MOST_READ:
            yield f"{folder}: {len(files)} files that may be for {rubric}, {mode}; read {MOST_READ} of them"
        readable: list[Calibration] = []
        for path in sorted(files, key=lambda path: path.lstat().st_mtime, reverse=True)[:MOST_READ]:
            try:
                known = read(path, of_project=origin == "project")
                readable += [known] if (known.rubric.id, known.mode) == (rubric, mode) else []
            except ConfigError as error:
                text = path.name
                if path.is_file():  # a pipe may have no end
                    with suppress(OSError), path.open("rb") as file:
                        text += file.read(MOST_BYTES).decode(errors="replace")
                if rubric in text and mode in text:
                    yield str(error).partition("\n")[0]
        yield from sorted(readable, key=lambda known: known.made, reverse=True)


def read(path: Path, *, of_project: bool = False) -> Calibration:
    """Return a calibration, a project's only if the user accepted it; raises `ConfigError`."""
    if of_project:
        yamlfile.check_own(path, path.parents[2])
    known = yamlfile.read(path, Calibration, version_key="schema", most=MOST_BYTES)
    if of_project and hashlib.sha256(path.read_bytes()).hexdigest() not in _accepted():
        shown = path.relative_to(path.parents[2])
        problem = "it belongs to the project and you have not accepted it"
        raise ConfigError(
            f"{problem}; see what it does with judgekit calibrate accept {shown}", path=shown
        )
    for key, wrong in _flaws(known):
        raise ConfigError(f"{wrong}; {AGAIN}", path=path, key=key)
    return known


class Accepted(Strict):
    """The calibrations that a user lets projects bring: ids by the SHA-256 of their files."""

    schema_: Literal["judgekit/accepted@1"] = Field("judgekit/accepted@1", alias="schema")
    calibrations: dict[str, str] = {}


def accept(path: Path) -> None:
    """Let projects bring a file of these bytes; raises `ConfigError` or `InputError`."""
    known = read(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    kept = Path(environment.config_home()) / ACCEPTED
    try:
        environment.private_folder(str(kept.parent))
        with locks.file_lock(kept.with_suffix(".lock"), timeout=_WAIT):
            now = Accepted(calibrations={**_accepted(), digest: known.id})
            text = now.model_dump_json(by_alias=True, indent=2) + "\n"
            outputs.write_atomically(str(kept), text, private=True)
    except OSError as error:
        raise InputError(
            f"{kept}: cannot be written ({error.strerror}); check the folder"
        ) from None


def _accepted() -> dict[str, str]:
    path = Path(environment.config_home()) / ACCEPTED
    if path.is_file():
        return yamlfile.read(path, Accepted, version_key="schema").calibrations
    return {}


def check(out: Path | None = None) -> None:
    """Raise `InputError` where a calibration could not be written to `out`, or to a user's own folder."""
    path = out or Path(environment.config_home()) / FOLDER / "new.json"
    there = next((each for each in (path, *path.parents) if each.exists()), path.parent)
    if path.is_dir():
        why = "a folder"
    elif os.access(there, os.W_OK):
        why = ""
    else:
        why = "no permission"
    if there != path and not there.is_dir():
        why = f"{there} is not a folder"
    try:
        outputs.place_of(str(path), private=out is None)
    except OSError as error:
        why = why or f"{error.strerror}"
    if why:
        raise InputError(
            f"{out or path.parent}: cannot be written ({why}); choose another file with --out"
        )


def write(known: Calibration, out: Path | None) -> Path:
    """Write a calibration to `out`, or to the user's own folder; raises `InputError` when it cannot."""
    path = out or Path(environment.config_home()) / FOLDER / f"{known.id}.json"
    try:
        outputs.make_folder(str(path.parent), private=out is None)
        outputs.write_atomically(str(path), known.text(), private=out is None)
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror}); choose another file with --out"
        raise InputError(problem) from None
    return path
