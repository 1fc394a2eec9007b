"""Rubrics: what good means for one task, as versioned data.

A rubric file holds the questions, the scale, the prompt texts and, for each mode, the thresholds that the
code applies to models' answers. `judgekit.rubric.loader` finds one by id, by `id@version` or by path. The
labelled cases beside a rubric give the expected outcomes for known examples.
"""

from __future__ import annotations

import hashlib
import json
from statistics import fmean
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
)

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    ValidationError,
    WrapValidator,
    model_validator,
)

from judgekit.config import ModeName, Outcome, TierName, files, yamlfile
from judgekit.config.yamlfile import Identifier, Problem, Strict, Text, Version, WrongValuesError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

Value = TypeVar("Value")
Key = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
YesNo: TypeAlias = Literal["yes", "no"]


class ByMode(Strict, Generic[Value]):
    strict: Value
    lenient: Value


# `validate_with_defaults` adds the omitted fields.
_NO_REQUIRED_FIELDS: dict[str, JsonValue] = {"required": []}


class Tier(Strict):
    """Limits of one tier: seconds for its calls and, if given, characters of the subject it sees."""

    timeout: float = Field(gt=0, le=600)
    max_chars: int | None = Field(default=None, gt=0)


class TierLimits(Strict):
    __qualname__ = "Tiers"  # its name in the published schema
    model_config = ConfigDict(title="Tiers")

    quick: Tier = Tier(timeout=45, max_chars=4000)
    deep: Tier = Tier(timeout=60)
    tiebreaker: Tier = Tier(timeout=45)


Tiers = TierLimits  # under its published name, so that pickles load


class Instructions(Strict):
    quick: Text
    deep: Text
    tiebreaker: Text


class Prompt(Strict):
    """The trusted texts of a rubric; the subject never mixes with them."""

    system: Text
    instructions: Instructions

    @property
    def sha256(self) -> str:
        """SHA-256 of the prompt templates, before anything is filled in."""
        # A scoring prompt without examples must keep the hash from before there were fields for examples. So
        # leave out fields with default values.
        is_score_prompt = isinstance(self, ScorePrompt)
        templates = self.model_dump(exclude_defaults=is_score_prompt)
        text = json.dumps(templates, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class WorkedExample(Strict):
    """A candidate, a request, and whether every criterion holds: shown to models that answer yes or no."""

    query: Text
    title: Text
    category: str = ""
    tags: list[Text] = []
    text: str = ""
    holds: bool


class SelectPrompt(Prompt):
    examples: list[WorkedExample] = []


class ScoreInstructions(Instructions, json_schema_extra=_NO_REQUIRED_FIELDS): ...


class RatedExample(Strict):
    """A text with the inputs given along with it, and its scores: the answer that a model should give."""

    text: Text
    files: dict[Text, Text] = {}
    description: str = ""
    acceptance: str = ""
    reference: str = ""
    scores: dict[Key, int | YesNo]


class ScorePrompt(Prompt, json_schema_extra=_NO_REQUIRED_FIELDS):
    """Its examples are shown to models that answer with one number; with `few_shot` to all."""

    instructions: ScoreInstructions
    examples: list[RatedExample] = []
    few_shot: bool = False


class Scale(Strict):
    """The integers that a dimension is rated on, with the meaning of each."""

    min: int
    max: int
    labels: dict[int, Text]

    @property
    def answers(self) -> dict[str, int]:
        """The score for each answer to a binary dimension."""
        return {"yes": self.max, "no": self.min}

    @model_validator(mode="after")
    def _check_labels(self) -> Scale:
        if not self._labels_every_point():
            raise ValueError(
                "a scale needs min < max and one label for each whole number between them"
            )
        return self

    def _labels_every_point(self) -> bool:
        """Whether there are at least two points, and the labels are for exactly these points."""
        if self.min >= self.max:
            return False

        # `max` can be any number, so a set of all points could be huge. Compare the counts before making it.
        point_count = self.max - self.min + 1
        if len(self.labels) != point_count:
            return False
        return set(self.labels) == set(range(self.min, self.max + 1))


class Dimension(Strict, json_schema_extra={"type": ["object", "string"]}):
    """One aspect of a document, rated on the scale or answered yes (its top) or no; a text is a question.

    With `check: claims`, a decision model is asked about each claim of the text separately.
    """

    question: Text
    look_for: list[Text] = []
    terms: list[Text] = []
    scale: Literal["binary"] | None = None
    check: Literal["claims"] | None = Field(None, exclude_if=lambda check: check is None)
    weight: float = Field(1, gt=0, le=100, exclude_if=(1.0).__eq__)


class Accept(Strict, json_schema_extra=_NO_REQUIRED_FIELDS):
    """A document is accepted if each score, and their weighted mean if given, reaches these."""

    each: float
    mean: float | None = None


class Reject(Strict):
    """A document is rejected when any score is below this."""

    any_below: float


class ScoreMode(Strict, json_schema_extra=_NO_REQUIRED_FIELDS):
    """Thresholds of one mode, and the quick outcome that a second model must confirm."""

    accept: Accept
    reject: Reject
    confirm: Literal["accept", "reject"]


Giving: TypeAlias = Literal["description", "acceptance", "reference", "sources"]


class Given(Strict):
    """The headings over a model's inputs, and the inputs that a subject can't be judged without (`needs`).

    A rubric with `sources` takes the first file of a subject as the text and the others as its sources. Only
    a rubric with `reference` shows models the answer that a person expects.
    """

    text: Text | None = None
    description: Text = "What the text is for"
    acceptance: Text = "What it must fulfil"
    reference: Text | None = None
    sources: Text | None = None
    needs: list[Giving] = []


class SelectMode(Strict):
    """A candidate is kept when all, or any, of the criteria hold; which outcome must be confirmed."""

    keep: Literal["all", "any"]
    confirm: Literal["accept", "reject"]


class CompareMode(Strict):
    """Whether a win that the quick tier gives must be confirmed: `accept` says so, `reject` lets it be."""

    confirm: Literal["accept", "reject"]


# Their names are those of the published schema.
class ScoreModes(ByMode[ScoreMode], json_schema_extra=_NO_REQUIRED_FIELDS): ...


class SelectModes(ByMode[SelectMode]): ...


class CompareModes(ByMode[CompareMode]): ...


class Criterion(ByMode[Text]):
    """One yes-or-no question about a candidate, worded for each mode."""


class _Rubric(Strict):
    rubric: Identifier
    version: Version = "1.0.0"
    title: Text
    prompt: Prompt
    tiers: TierLimits = TierLimits()

    _questions_field: ClassVar[str] = "criteria"

    @property
    def ref(self) -> str:
        """The rubric's id and version, as `ID@VERSION`."""
        return f"{self.rubric}@{self.version}"

    @property
    def questions(self) -> tuple[str, ...]:
        """The names of the rubric's dimensions or criteria."""
        return tuple(getattr(self, self._questions_field))

    def about(self, name: str) -> Self:
        """Return a copy of the rubric with only this dimension or criterion."""
        question = getattr(self, self._questions_field)[name]
        return self.model_copy(update={self._questions_field: {name: question}})


class ScoreRubric(_Rubric, json_schema_extra={"required": ["rubric", "title", "dimensions"]}):
    """Rates a document on dimensions."""

    _questions_field: ClassVar[str] = "dimensions"
    task: Literal["score"]
    prompt: ScorePrompt
    given: Given = Given()
    scale: Scale
    dimensions: dict[Key, Dimension] = Field(min_length=1)
    modes: ScoreModes
    margins: dict[TierName, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="points by which the best of several subjects must lead to win in a tier, where compared",
    )

    @model_validator(mode="after")
    def _parts_fit_together(self) -> ScoreRubric:
        problems = [
            *self._check_needs(),
            *self._check_thresholds(),
            *self._check_claims(),
            *self._check_examples(),
            *self._check_weights(),
        ]
        if problems:
            raise WrongValuesError(*problems)
        return self

    def _check_needs(self) -> Iterator[Problem]:
        """Check that every required input has a heading, which is shown in the prompt."""
        for need in self.given.needs:
            heading = getattr(self.given, need)  # such as `given.sources`
            if heading is None:
                text = f"needs lists {need}; give the heading in given.{need}"
                yield Problem(("given", "needs"), text)

    def _check_thresholds(self) -> Iterator[Problem]:
        """Check that all thresholds are on the scale, and that no score could be accepted and rejected."""
        for name, mode in (("strict", self.modes.strict), ("lenient", self.modes.lenient)):
            yield from self._check_on_scale(mode.accept, ("modes", name, "accept"))
            yield from self._check_on_scale(mode.reject, ("modes", name, "reject"))

            # With `reject.any_below: 3` and `accept.each: 2`, a score of 2 would be both.
            if mode.reject.any_below > mode.accept.each:
                yield Problem(("modes", name), "a score could be accepted and rejected at once")

    def _check_on_scale(
        self, thresholds: Accept | Reject, keys: tuple[str, ...]
    ) -> Iterator[Problem]:
        """Yield a problem for each threshold that isn't on the scale. `keys` is their place in the rubric."""
        low = self.scale.min
        high = self.scale.max
        for key, threshold in thresholds:  # a model's items are its fields and their values
            if threshold is None:
                continue
            is_on_scale = low <= threshold <= high
            if not is_on_scale:
                text = f"the threshold {threshold:g} is not on the scale from {low} to {high}"
                yield Problem((*keys, key), text)

    def _check_claims(self) -> Iterator[Problem]:
        """Check that at most one dimension verifies claims. If one does, the rubric has to need sources."""
        claim_dimensions = [name for name, dimension in self.dimensions.items() if dimension.check]
        if not claim_dimensions:
            return

        first, *others = claim_dimensions
        if "sources" not in self.given.needs:
            remedy = "give their heading in given.sources, and list sources in given.needs"
            text = f"claims are checked against sources; {remedy}"
            yield Problem(("dimensions", first, "check"), text)

        for name in others:
            text = f"claims are checked for one dimension, and {first} is that already"
            yield Problem(("dimensions", name, "check"), text)

    def _check_examples(self) -> Iterator[Problem]:
        """Check that each example in the prompt has a valid score for every dimension.

        Also check that there are examples if `few_shot` asks for them.
        """
        for number, example in enumerate(self.prompt.examples):
            if not self._has_valid_scores(example):
                text = "needs a score on the scale for each dimension; of a binary one, yes or no"
                yield Problem(("prompt", "examples", number), text)

        if self.prompt.few_shot and not self.prompt.examples:
            yield Problem(("prompt", "few_shot"), "there are no examples; add prompt.examples")

    def _has_valid_scores(self, example: RatedExample) -> bool:
        """Whether an example scores exactly the rubric's dimensions, each with a value of its scale."""
        if example.scores.keys() != self.dimensions.keys():
            return False
        return all(
            score in self._get_possible_scores(name) for name, score in example.scores.items()
        )

    def _get_possible_scores(self, dimension_name: str) -> Container[Any]:
        """Return a dimension's possible scores: yes and no if it's binary, else the points of the scale."""
        if self.dimensions[dimension_name].scale == "binary":
            return self.scale.answers
        return self.scale.labels

    def _check_weights(self) -> Iterator[Problem]:
        """Check that no dimension has an explicit weight if weights don't matter.

        They only matter if a mode uses the mean, and there are several dimensions.
        """
        weighted_names = []
        for name, dimension in self.dimensions.items():
            has_explicit_weight = "weight" in dimension.model_fields_set
            if has_explicit_weight:
                weighted_names.append(name)
        if not weighted_names:
            return

        modes = (self.modes.strict, self.modes.lenient)
        uses_mean = any(mode.accept.mean is not None for mode in modes)
        weights_matter = uses_mean and len(self.dimensions) > 1
        if not weights_matter:
            text = "a weight counts in the mean of several dimensions alone; add accept.mean, or remove it"
            yield Problem(("dimensions", weighted_names[0], "weight"), text)

    def mean(self, scores: Mapping[str, float]) -> float:
        """Return the weighted mean of the scores, which must include every dimension."""
        values = []
        weights = []
        for name, dimension in self.dimensions.items():
            values.append(scores[name])
            weights.append(dimension.weight)
        return fmean(values, weights)

    def decide(self, scores: Mapping[str, float], mode: ModeName) -> Outcome:
        """Turn the scores of all dimensions into an outcome, using the thresholds of `mode`.

        - "reject": a score is too low
        - "accept": every score is high enough, and so is the mean if it has a threshold
        - "improve": otherwise
        """
        rule: ScoreMode = getattr(self.modes, mode)
        values = [scores[name] for name in self.dimensions]
        if any(value < rule.reject.any_below for value in values):
            return "reject"

        least_mean = rule.accept.mean  # None: no threshold
        is_mean_high_enough = least_mean is None or self.mean(scores) >= least_mean
        if is_mean_high_enough and all(value >= rule.accept.each for value in values):
            return "accept"
        return "improve"


class SelectRubric(_Rubric):
    """Decides which candidates to keep."""

    task: Literal["select"]
    prompt: SelectPrompt
    criteria: dict[Key, Criterion] = Field(min_length=1)
    modes: SelectModes

    def keeps(self, holds: Mapping[str, bool], mode: ModeName) -> bool:
        """Whether `mode` keeps a candidate. `holds` says for each criterion if the candidate meets it."""
        rule: SelectMode = getattr(self.modes, mode)
        answers = [holds[name] for name in self.criteria]
        if rule.keep == "all":
            return all(answers)
        return any(answers)


class CompareRubric(_Rubric):
    """Says which of two is better; `criteria` are the questions to weigh, the most important first."""

    task: Literal["compare"]
    criteria: dict[Key, Text] = Field(min_length=1)
    modes: CompareModes


Rubric: TypeAlias = ScoreRubric | SelectRubric | CompareRubric


def validate_with_defaults(data: Any, validate: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever a file holds
    """Validate a rubric's data. If a scoring rubric is invalid, add defaults and try again.

    Raises `ValidationError` if the data is still invalid with them.
    """
    # First try without defaults, so that they can't change a complete rubric.
    try:
        return validate(data)
    except ValidationError:
        if not _takes_score_defaults(data):
            raise
    return validate(_add_defaults(data))


def _takes_score_defaults(data: Any) -> bool:  # noqa: ANN401 - whatever a file holds
    """Whether a rubric's data can be completed with the defaults for scoring.

    It can if its task is scoring, or if it names no task.
    """
    if not isinstance(data, dict):
        return False
    # `criteria` belong to another task, so defaults for scoring would hide the actual mistake.
    if "criteria" in data:
        return False
    return bool(data.get("task", "score") == "score")


def _add_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Return a scoring rubric's data with defaults for omitted fields, and with short forms written out.

    For example, the dimension `clarity: Is it clear?` becomes `clarity: {question: Is it clear?}`.
    """
    defaults = _load_defaults(data)
    # Merge down to the keys of a mode, such as `modes.strict.accept`. If a rubric has its own `accept`, that
    # replaces the default one entirely.
    full: dict[str, Any] = _merge(defaults, data, levels=3)

    # The data isn't valid yet, so values can have the wrong type. Validation reports that later.
    dimensions = data.get("dimensions")
    if isinstance(dimensions, dict):
        full["dimensions"] = _expand_dimensions(dimensions)

    if isinstance(full["modes"], dict):
        for mode in full["modes"].values():
            _add_default_acceptance(mode)  # a rubric's own `accept` can lack `each`
    return full


def _load_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Load the defaults for scoring rubrics, fitted to the title and the scale in this rubric's data."""
    defaults: dict[str, Any] = yamlfile.load_yaml(
        files.get_data_folder("rubrics") / "defaults" / "score.yaml"
    )
    prompt = defaults["prompt"]
    prompt["system"] = prompt["system"].format(title=data.get("title"))
    _convert_to_scale(defaults, data)  # changes the default thresholds to fit the rubric's scale
    return defaults


def _expand_dimensions(dimensions: dict[str, Any]) -> dict[str, Any]:
    """Expand dimensions in the short form, which is just a question, to mappings."""
    expanded = {}
    for name, dimension in dimensions.items():
        is_short = isinstance(dimension, str)
        expanded[name] = {"question": dimension} if is_short else dimension
    return expanded


def _add_default_acceptance(mode: Any) -> None:  # noqa: ANN401 - whatever a file holds
    """Let a mode accept every score that it doesn't reject, unless it has its own `accept.each`."""
    match mode:
        case {"accept": dict(accept), "reject": {"any_below": below}}:
            mode["accept"] = {"each": below, **accept}


def _convert_to_scale(defaults: dict[str, Any], data: dict[str, Any]) -> None:
    """Replace the default scale with that of `data`, if any, and convert the default thresholds to it."""
    if "scale" not in data:
        return

    default_scale = defaults["scale"]
    scale = data["scale"]
    defaults["scale"] = scale
    match scale:  # validation reports a scale without whole numbers for min and max
        case {"min": int(low), "max": int(high)}:
            for mode in defaults["modes"].values():
                _move_thresholds(mode["accept"], default_scale, low, high)
                _move_thresholds(mode["reject"], default_scale, low, high)


def _move_thresholds(
    thresholds: dict[str, float], old_scale: dict[str, Any], low: int, high: int
) -> None:
    """Move each threshold to the same relative position on the scale from `low` to `high`.

    For example, 2 on a scale from 0 to 4 becomes 5 on one from 0 to 10.
    """
    old_low = old_scale["min"]
    ratio = (high - low) / (old_scale["max"] - old_low)
    for name, threshold in thresholds.items():
        thresholds[name] = low + (threshold - old_low) * ratio


def _merge(defaults: Any, data: Any, levels: int) -> Any:  # noqa: ANN401 - whatever a file holds
    """Merge `data` over `defaults`, descending into nested mappings up to `levels` deep."""
    are_mappings = isinstance(defaults, dict) and isinstance(data, dict)
    if levels == 0 or not are_mappings:
        return data

    merged = dict(defaults)
    for key, value in data.items():
        merged[key] = _merge(defaults.get(key), value, levels=levels - 1)
    return merged


class RubricFile(
    RootModel[Annotated[Rubric, Field(discriminator="task"), WrapValidator(validate_with_defaults)]]
):
    """A rubric as it stands in a file."""


class ScoreCase(Strict):
    """A document and the right outcome in each mode.

    `path` is the name that models see, so it gives nothing away. `files` holds the files judged together with
    the text, by path: further artefacts, or its sources if the rubric takes them.
    """

    id: Text
    text: Text
    why: Text
    label: ByMode[Outcome]
    path: Text = "text"
    files: dict[Text, Text] = {}
    description: str = ""
    acceptance: str = ""
    reference: str = ""


class WrongCase(ScoreCase):
    """A wrong text that no mode should accept, and its `kind`: such texts measure leniency."""

    kind: Text = "wrong"
    label: ByMode[Outcome] = ByMode(strict="reject", lenient="reject")


class CaseCandidate(Strict):
    id: Text
    title: Text
    category: str = ""
    tags: list[Text] = []
    text: str = ""


class SelectCase(Strict):
    """A request, its candidates, and the ids of those to keep in each mode."""

    id: Text
    query: Text
    candidates: list[CaseCandidate] = Field(min_length=1)
    why: Text
    label: ByMode[list[Text]]

    @model_validator(mode="after")
    def _labels_name_candidates(self) -> SelectCase:
        candidate_ids = {candidate.id for candidate in self.candidates}
        unknown_ids = {*self.label.strict, *self.label.lenient} - candidate_ids
        if unknown_ids:
            names = ", ".join(sorted(unknown_ids))
            raise ValueError(f"the label names {names}, which is not a candidate of this case")
        return self


Better: TypeAlias = Literal["A", "B", "tie"]


class CompareCase(Strict):
    """Two texts that answer one prompt, and which is better."""

    id: Text
    prompt: Text
    a: Text
    b: Text
    why: Text
    label: ByMode[Better]


Case: TypeAlias = ScoreCase | SelectCase | CompareCase

CASES: dict[str, type[Case]] = {"score": ScoreCase, "select": SelectCase, "compare": CompareCase}
"""The kind of case of each task."""
