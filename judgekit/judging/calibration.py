"""Calibrations: the file's format, where files are kept, and which of them a judge may use.

A file is refused if its gates do not follow from its own counts. The labels are not in the file, so the
whole test cannot be repeated. But every chosen gate passed its test at an even share of the error that all
gates may have, or at less. With fewer labels or more errors than that share allows, no labels can have led
to the gate.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import AwareDatetime, Field

from judgekit import environment
from judgekit.config import TIERS, ModeName, Outcome, TierName, yamlfile
from judgekit.config import files as lock
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, InputError
from judgekit.judging import fingerprint
from judgekit.judging.binomial import lower, upper
from judgekit.judging.escalation import FinalityRule, FinalityRules
from judgekit.judging.fingerprint import USUALLY, Asked, Readings, Was
from judgekit.judging.orchestrator import USUAL
from judgekit.judging.verdict import RubricRef
from judgekit.rubric import search_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.judging.fingerprint import PanelFingerprint
    from judgekit.judging.orchestrator import JudgeOptions
    from judgekit.providers.base import PanelModels
    from judgekit.rubric.loader import LoadedRubric


SCHEMA = "judgekit/calibration@1"


class Promised(Strict):
    """At most this rate of errors against the labels, or above those of the tier `reference`."""

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
        """The gate as the judge applies it."""
        return FinalityRule(self.tier, self.outcome, self.least_margin, self.after, self.stands)


class RefusedRule(CalibratedRule):
    """A class of opinions for which the promise cannot be given; `more` labels of it would do, if any."""

    why: Literal["too few labels", "too many errors"]
    more: int | None = None


class Measured(Strict):
    """What rules came to on the labelled cases."""

    decided: int
    errors: int
    by_gate: int = 0
    calls: dict[TierName, int]


class Subjects(Strict):
    """How many subjects the labelled comparisons had: at least, at most, and all together."""

    least: int
    most: int
    all: int


class Calibration(Strict):
    """`judgekit/calibration@1`: fits one rubric file, mode and panel of models, and no other.

    What is not there was not noted when it was made: `read` says how the opinions of each model were read,
    `asking` is a hash of how its profile asks it, `wording_sha256` one of judgekit's own words to models and
    of the numbers by which it reads their answers.
    `read_otherwise` counts opinions that were read in another way, of which nothing was learned. Where it has
    `subjects` it was learned of comparisons in which each of several subjects is scored: an acceptance is a
    lead of the best.
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
    asking: dict[TierName, dict[str, str]] = {}
    subjects: Subjects | None = None
    promise: Promised
    gates: list[CalibratedRule]
    not_promised: list[RefusedRule] = []
    read_otherwise: dict[TierName, int] = {}
    cases: int
    labels_sha256: str
    with_gates: Measured
    without: Measured

    def rules(self) -> FinalityRules:
        """Return the gates as the judge applies them."""
        gates = tuple(gate.rule for gate in self.gates)
        read = frozenset(
            (tier, model, how) for tier, models in self.read.items() for model, how in models.items()
        )
        return FinalityRules(self.id, gates, self.promise.reference, read)

    def misfit(self, loaded: LoadedRubric, now: PanelFingerprint, subjects: int = 0) -> str | None:
        """Say in a few words why it does not fit, None where it does; `subjects` is how many are compared."""
        if self.rubric.sha256 != loaded.sha256:
            return f"it was made for a different {self.rubric.id} ({self.rubric.version})"
        if self.prompt_sha256 != loaded.rubric.prompt.sha256:
            return "the prompt has changed"
        if self.wording_sha256 not in (None, fingerprint.wording(loaded.rubric, self.mode)):
            return "judgekit's own prompts, or how it reads replies, have changed"
        known = self.subjects
        if known and not known.least <= subjects <= known.most:
            count = f"{known.least} to {known.most}" if known.least < known.most else known.most
            return f"it was made for {count} texts, not for {subjects}"
        for tier, model in now.models.items():
            before = self.models.get(tier, "nobody")
            if fingerprint.together(before.split(fingerprint.TOGETHER)) != model:
                return f"{tier} was {before} and is {model} now"
        if gone := sorted(set(self.models) - set(now.models)):
            return f"{', '.join(gone)} is no longer asked"
        was = Was(self.asked, self.read, self.asking)
        return fingerprint.misfit(was, now, loaded.rubric, ranked=known is not None)

    def text(self) -> str:
        """Return the file's text."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


_MOST = 1_000_000  # labels; nobody gives more, and a bound on more takes long
_ROUNDED = 1e-6  # bounds are written with six digits


@dataclass(frozen=True, slots=True)
class Promise:
    """What every gate must hold with `confidence`: a rate of at most `rate`.

    Without a `reference` it is the rate of opinions that differ from the label. With one it is by how much
    more often these opinions differ from it than those of the tier `reference` on the same subjects, whose
    own opinion is then the last word.
    """

    rate: float = 0.05
    confidence: float = 0.95
    reference: TierName | None = None


class ErrorCounts(NamedTuple):
    """Over a gate's labels: `errors` against it and, with a reference, `gains` where only that one erred."""

    labels: int
    errors: int
    gains: int = 0

    @property
    def rate(self) -> float:
        """The share that counts against the promise."""
        return (self.errors - self.gains) / self.labels if self.labels else 0.0


class Flaw(NamedTuple):
    """The key of a file that does not follow from the others, and what was expected."""

    key: str
    told: str


def bound(tally: ErrorCounts, level: float, promise: Promise | Promised) -> float:
    """Return what the rate exceeds with a probability of at most `level`.

    With a reference it is the rate of losses less that of gains, each bounded at half the level.
    """
    if promise.reference is None:
        return upper(tally.errors, tally.labels, level)
    losses = upper(tally.errors, tally.labels, level / 2)
    return losses - lower(tally.gains, tally.labels, level / 2)


def _flaws(known: Calibration) -> Iterator[Flaw]:
    """Yield what the counts of a calibration do not bear out, in the order of the file."""
    tiers = [tier for tier in TIERS if tier in known.models]
    last = known.promise.reference
    if not 0 <= known.cases <= _MOST:
        yield Flaw("cases", f"expected 0 to {_MOST}, got {known.cases}")
    if last is not None and last not in tiers[1:]:
        yield Flaw("promise.reference", f"expected a tier after the first one, got {last}")
    for at, gate in enumerate(known.gates):
        yield from _counted(f"gates.{at}", gate, known)
        yield from _placed(f"gates.{at}", gate, known, tiers)
        yield from _held(f"gates.{at}", gate, known)
    for at, refused in enumerate(known.not_promised):
        yield from _counted(f"not_promised.{at}", refused, known)
    for name, measured in (("with_gates", known.with_gates), ("without", known.without)):
        limits = {"decided": known.cases, "errors": measured.decided, "by_gate": measured.decided}
        for key, most in limits.items():
            if not 0 <= (count := getattr(measured, key)) <= most:
                yield Flaw(f"{name}.{key}", f"expected 0 to {most}, got {count}")
        for tier, count in measured.calls.items():
            if count < 0:
                yield Flaw(f"{name}.calls.{tier}", f"expected no less than 0, got {count}")


def _counted(where: str, rule: CalibratedRule | RefusedRule, known: Calibration) -> Iterator[Flaw]:
    if not 0 <= rule.labels <= known.cases:
        yield Flaw(f"{where}.labels", f"expected 0 to {known.cases} (all cases), got {rule.labels}")
    if not 0 <= rule.errors <= rule.labels:
        yield Flaw(f"{where}.errors", f"expected 0 to {rule.labels}, got {rule.errors}")
    most = rule.labels - rule.errors if known.promise.reference else 0
    if not 0 <= rule.gains <= most:
        yield Flaw(f"{where}.gains", f"expected 0 to {most}, got {rule.gains}")
    if not isfinite(rule.least_margin):
        yield Flaw(f"{where}.least_margin", f"expected a number, got {rule.least_margin}")


def _placed(
    where: str, gate: CalibratedRule, known: Calibration, tiers: Sequence[TierName]
) -> Iterator[Flaw]:
    end = tiers.index(known.promise.reference) if known.promise.reference in tiers else len(tiers) - 1
    may = tiers[1:2] if gate.stands else tiers[:end]
    if gate.tier not in may:
        yield Flaw(f"{where}.tier", f"expected {' or '.join(may) or 'none'}, got {gate.tier}")
    elif gate.stands and (gate.stands, gate.outcome, gate.after) != (tiers[0], "improve", "accept"):
        yield Flaw(f"{where}.stands", f"expected a win of {tiers[0]} against a tie of {gate.tier}")
    elif gate.after is not None and gate.tier == tiers[0]:
        yield Flaw(f"{where}.after", f"expected none, because {gate.tier} is the first tier")
    classes = [(each.tier, each.outcome, each.after, each.stands) for each in known.gates]
    if classes.count((gate.tier, gate.outcome, gate.after, gate.stands)) > 1:
        yield Flaw(where, "expected one gate for each class of opinions, got several")
    # The classes of one tier have no opinion in common.
    labels = sum(each.labels for each in known.gates if each.tier == gate.tier and not each.stands)
    if labels > known.cases:
        told = f"expected {known.cases} at most in all gates of {gate.tier}, got {labels}"
        yield Flaw(f"{where}.labels", told)


def _held(where: str, gate: CalibratedRule, known: Calibration) -> Iterator[Flaw]:
    rate = known.promise.rate
    share = (1 - known.promise.confidence) / len(known.gates)
    least = bound(ErrorCounts(gate.labels, gate.errors, gate.gains), share, known.promise)
    if least > rate:
        seen = f"{gate.errors} wrong of {gate.labels}"
        told = f"{seen} does not support a rate of at most {rate:g}: it may be up to {least:.3g}"
        yield Flaw(f"{where}.labels", told)
    if not least - _ROUNDED <= gate.bound <= rate + _ROUNDED:
        yield Flaw(f"{where}.bound", f"expected {least:.6f} to {rate:g}, got {gate.bound:g}")


FOLDER = "calibrations"
MOST_TOLD = 3  # files that cannot be read are named
MOST_READ = 20  # of a folder: what a clone may bring is read before a judge's time begins
MOST_BYTES = 64_000  # of one: several times those of the largest that were made
_WAIT = 2.0  # seconds for another process that accepts one
_KIND = SCHEMA.partition("@")[0] + "@"
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

    One that is stale is not used, and said where none fits; one that cannot be read is said in any case. What
    is no calibration of this rubric and mode is passed over. With one tier there is nothing to decide.
    `subjects` is how many are scored to be compared, if they are.
    """
    one_tier = len(panel) < 2  # noqa: PLR2004 - one opinion cannot go up
    found = [] if one_tier else list(_calibrations(loaded.rubric.rubric, mode, project))
    if not found:
        return UsableCalibration()
    now = fingerprint.panel(panel, loaded.rubric, options)
    fitting, stale, broken = None, list[str](), list[str]()
    for known in found:
        if isinstance(known, str):
            broken.append(f"calibration not used: {known}")
        elif (known.subjects is None) != (subjects == 0):
            continue
        elif fitting is None and (misfit := known.misfit(loaded, now, subjects)) is None:
            fitting = known
        elif fitting is None:
            stale.append(f"calibration {known.id} not used: {misfit}; make a new one with judgekit calibrate")
    told = [*broken[:MOST_TOLD], *([] if fitting else stale[:1])]
    if len(broken) > MOST_TOLD:
        told.append(f"{len(broken) - MOST_TOLD} more calibrations cannot be read")
    return UsableCalibration(fitting.rules() if fitting else None, "; ".join(told) or None)


def read(path: Path) -> Calibration:
    """Return a calibration.

    Raises `ConfigError` naming the first key that is wrong, or that the counts in the file do not bear out.
    """
    known = _parsed(path)
    _check(known, path)
    return known


def _parsed(path: Path) -> Calibration:
    return yamlfile.read(path, Calibration, version_key="schema", most=MOST_BYTES)


def _check(known: Calibration, path: Path) -> None:
    for flaw in _flaws(known):
        raise ConfigError(f"{flaw.told}; make a new one with judgekit calibrate", path=path, key=flaw.key)


class Accepted(yamlfile.Strict):
    """The calibrations that a user lets projects bring: ids by the SHA-256 of their files."""

    schema_: Literal["judgekit/accepted@1"] = Field("judgekit/accepted@1", alias="schema")
    calibrations: dict[str, str] = {}


def accept(path: Path) -> None:
    """Let projects bring the calibration that `path` holds: a file of the same bytes, whatever its name.

    Raises `ConfigError` for one that cannot be used, and `InputError` if the list cannot be written.
    """
    known, digest, kept = read(path), _digest(path), _accepted_path()
    try:
        environment.private_folder(str(kept.parent))
        with lock.held(kept.with_suffix(".lock"), seconds=_WAIT):
            now = Accepted(calibrations={**_accepted().calibrations, digest: known.id})
            environment.write_private(str(kept), now.model_dump_json(by_alias=True, indent=2) + "\n")
    except OSError as error:
        raise InputError(f"{kept}: cannot be written ({error.strerror}); check the folder") from None


def _accepted() -> Accepted:
    path = _accepted_path()
    return yamlfile.read(path, Accepted, version_key="schema") if path.is_file() else Accepted()


def _accepted_path() -> Path:
    return Path(environment.config_home()) / "accepted.json"


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MOST_BYTES + 1)).hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None


def default_path(known: Calibration) -> Path:
    """Return where a user's calibration of this rubric and mode for these models is kept."""
    return Path(environment.config_home()) / FOLDER / f"{known.id}.json"


def check(out: Path | None = None) -> None:
    """Raise `InputError` where a calibration could not be written to `out`, or to a user's own folder."""
    path = out or Path(environment.config_home()) / FOLDER / "new.json"
    there = next((each for each in (path, *path.parents) if each.exists()), path.parent)
    if path.is_dir():
        why = "a folder"
    elif there != path and not there.is_dir():
        why = f"{there} is not a folder"
    elif not os.access(there, os.W_OK):
        why = "no permission"
    else:
        return
    shown = out or path.parent
    raise InputError(f"{shown}: cannot be written ({why}); choose another file with --out")


def write(known: Calibration, path: Path) -> None:
    """Write a calibration; raises `InputError` when it cannot be written."""
    try:
        environment.private_folder(str(path.parent))
        path.write_text(known.text(), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); choose another file with --out"
        ) from None


def _calibrations(rubric: str, mode: ModeName, project: Path | None) -> Iterator[Calibration | str]:
    """Yield the calibrations of a rubric and mode, a folder's newest first, and what is wrong with others."""
    for origin, folder in search_path.folders(FOLDER, project):
        if origin == "bundled":
            continue
        found: list[Calibration] = []
        files = _files(folder, f"{rubric}-{mode}")
        if len(files) > MOST_READ:
            told = f"{len(files)} files that may be for {rubric}, {mode}; read {MOST_READ} of them"
            yield f"{folder}: {told}"
        for path in files[:MOST_READ]:
            try:
                if origin == "project":
                    yamlfile.check_own(path, path.parents[2])
                known = _parsed(path)
                if (known.rubric.id, known.mode) != (rubric, mode):
                    continue
                if origin == "project":
                    _check_accepted(path, project)
                _check(known, path)
                found.append(known)
            except ConfigError as error:
                if _is_meant(path, rubric, mode):
                    yield str(error)
        yield from sorted(found, key=lambda each: each.made, reverse=True)


def _check_accepted(path: Path, project: Path | None) -> None:
    """Raise `ConfigError` for a project's file of other bytes than the user has accepted."""
    if _digest(path) not in _accepted().calibrations:
        shown = path.relative_to(project) if project else path
        told = "it belongs to the project and you have not accepted it"
        raise ConfigError(f"{told}; see what it does with judgekit calibrate accept {shown}", path=shown)


def _files(folder: Path, of: str) -> list[Path]:
    """Return the files that may hold a calibration of a rubric and mode, told by name where it is an id.

    Those whose name says so come first, each the newest before others.
    """
    named = [(_ID.fullmatch(path.stem), path) for path in folder.glob("*.json")]
    held = [(id_ is None, -_changed(path), path) for id_, path in named if id_ is None or id_[1] == of]
    return [path for _, _, path in sorted(held)]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # gone since, or a link to nowhere: reading it says so
        return 0.0


def _is_meant(path: Path, rubric: str, mode: ModeName) -> bool:
    """Whether what cannot be read is a calibration of this rubric and mode, by its name or its beginning."""
    id_ = _ID.fullmatch(path.stem)
    if id_ is not None:
        return id_[1] == f"{rubric}-{mode}"
    try:
        if not path.is_file():  # a pipe may have no end
            return False
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return False
    return all(each in text for each in (f'"{_KIND}', f'"{rubric}"', f'"{mode}"'))
