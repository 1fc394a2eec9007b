"""The question a tier is asked about two texts: which is better, in both orders."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIE
from judgekit.judging import decisions, prompt
from judgekit.judging.documents import ComparisonInput, VisibleFile, get_max_characters, make_file
from judgekit.judging.fence import assign_labels
from judgekit.judging.jury import (
    ORDERS,
    WINS,
    PairWord,
    TierVote,
    Vote,
    combine_calls,
    combine_votes,
)
from judgekit.judging.kinds import get_model_kind
from judgekit.judging.question import AskedQuestion, ModelTurn
from judgekit.judging.questionnaire import Questionnaire, TypedQuestion
from judgekit.judging.verdict import CompareRound, PairOpinion
from judgekit.providers.base import CallKey, Endpoint
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.questionnaire import Answers
    from judgekit.judging.settings import JudgeSettings

MIN_LEANING = 0.55  # the least probability of a preferred text
# The names of the two texts, in the order of a prompt, for models that don't write
TEXT_LABELS = ("1", "2")
_BETTER_QUESTION_NAME = "better"  # the only question's name


class EarlierOpinion(NamedTuple):
    """Another model's choice, with its reasoning."""

    better: str | None
    """The label of the better text; None for a tie."""
    reasoning: str


@dataclass(frozen=True)
class CompareQuestion(AskedQuestion[CompareRubric, ComparisonInput, Vote, Vote]):
    """Asks which of two texts is better, for each part of the rubric in both orders."""

    is_about_two = True

    @classmethod
    def about_fixed_subject(cls, settings: JudgeSettings, tier: TierName) -> CompareQuestion:
        pair = ComparisonInput("a", (make_file("A", "b"), make_file("B", "c")))
        label = cls(settings, pair, tier).label("A")
        return cls(settings, pair, tier, earlier_opinions=[EarlierOpinion(label, "d")])

    @staticmethod
    def write_agent_text(rubric: CompareRubric, mode: ModeName) -> str:
        del mode  # the questions are the same in both modes
        return prompt.compare_agent_text(rubric)

    @property
    def reading_thresholds(self) -> Sequence[float]:
        return (MIN_LEANING,)

    def build_questionnaires(self, endpoint: Endpoint | None) -> list[Questionnaire]:
        """Build a questionnaire for each part of the rubric, in each order of the texts."""
        # `_list_calls` relies on this order.
        questionnaires = []
        for (criterion, rubric), order in product(self.rubrics_by_part.items(), ORDERS):
            questionnaires.append(self._build_questionnaire(rubric, criterion, order, endpoint))
        return questionnaires

    def _build_questionnaire(
        self, rubric: CompareRubric, part: str, order: str, endpoint: Endpoint | None
    ) -> Questionnaire:
        """Build the questionnaire about the two texts, which are shown in the order "AB" or "BA"."""
        name_by_letter = self._name_texts(order, endpoint)
        visible_texts = []
        for letter, name in name_by_letter.items():
            visible_texts.append(self.visible_file(endpoint, letter, name))
        options = dict.fromkeys(name_by_letter.values(), "")  # without descriptions
        question = TypedQuestion(_list_criteria(rubric), "choice", options=options)
        instructions_tier = self.instructions_tier or self.tier
        return Questionnaire(
            call_key=CallKey(self.subject.hash_shown_texts(order), rubric.ref, self.tier, part),
            timeout=self.limits.timeout,
            system=rubric.prompt.system,
            instructions=getattr(rubric.prompt.instructions, instructions_tier),
            context=partial(prompt.pair_context, question=self.subject.prompt, texts=visible_texts),
            char_count=self.subject.char_count,
            questions={_BETTER_QUESTION_NAME: question},
            labels=self._map_names_to_hashes(name_by_letter, endpoint),
            part=part,
            earlier_opinions=self._describe_earlier_opinions(),
        )

    def _name_texts(self, order: str, endpoint: Endpoint | None) -> dict[str, str]:
        """Return the names that a model sees for the texts, by letter."""
        # A model that writes gets unpredictable labels. Otherwise, a text could name itself as the winner.
        if get_model_kind(endpoint).needs_random_labels:
            return {letter: self.label(letter) for letter in order}
        # Other models can't repeat a label. They get a fixed name for the text that's shown first, and one
        # for the second.
        return dict(zip(order, TEXT_LABELS, strict=True))

    def _map_names_to_hashes(
        self, name_by_letter: Mapping[str, str], endpoint: Endpoint | None
    ) -> dict[str, str]:
        """Map the names of the texts to the hashes of their content."""
        # If the names are labels, list them in the same order for "AB" and "BA".
        if get_model_kind(endpoint).needs_random_labels:
            return {label: sha256 for sha256, label in self._label_by_hash.items()}
        hash_by_name = {}
        for letter, name in name_by_letter.items():
            hash_by_name[name] = self.subject.file(letter).sha256
        return hash_by_name

    def _describe_earlier_opinions(self) -> list[str]:
        """Describe earlier opinions, in an order that doesn't reveal which model has which opinion."""

        def sorting_key(opinion: EarlierOpinion) -> tuple[str, str]:
            return (opinion.better or "", opinion.reasoning)

        # Sort before shuffling, so that the result doesn't depend on the order of the configured models.
        opinions: list[EarlierOpinion] = sorted(self.earlier_opinions, key=sorting_key)
        seed = "".join(sorted(self._label_by_hash.values()))
        random.Random(seed).shuffle(opinions)  # noqa: S311 - an order, not a secret
        return [f"better: {opinion.better or TIE}\n{opinion.reasoning}" for opinion in opinions]

    def read(self, endpoint: Endpoint, questionnaire: Questionnaire, answers: Answers) -> Vote:
        """Convert a model's answer into a vote.

        The answer is either the name of the better text, or a probability for each name.
        """
        letter_by_name = self._map_names_to_letters(questionnaire)
        if not answers.probabilities_by_question:
            better = letter_by_name.get(answers.choice, "tie")
            return Vote(better, answers.reasoning)

        probabilities: dict[str, float] = {}
        for name, probability in answers.probabilities_by_question[_BETTER_QUESTION_NAME].items():
            letter = letter_by_name[name]
            probabilities[letter] = probability
        better = _find_preferred(probabilities)
        # Only a decision model's probabilities are recorded.
        if get_model_kind(endpoint).shows_probabilities:
            return Vote(better, probabilities=probabilities)
        return Vote(better)

    def _map_names_to_letters(self, questionnaire: Questionnaire) -> dict[str, PairWord]:
        """Map the names of the texts in a questionnaire to the letters A and B."""
        letter_by_hash: dict[str, PairWord] = {}
        for letter in WINS:
            letter_by_hash[self.subject.file(letter).sha256] = letter
        letter_by_name: dict[str, PairWord] = {}
        for name, sha256 in questionnaire.labels.items():
            letter_by_name[name] = letter_by_hash[sha256]
        return letter_by_name

    def combine_samples(self, samples: Sequence[Sequence[Vote | None]]) -> Vote | None:
        """Combine a model's calls into one vote, or None if too few samples are complete."""
        votes: list[Vote | None] = []
        for sample in samples:
            votes += sample
        # A sample has a fixed number of votes, so `combine_calls` can tell the samples apart again.
        return combine_calls(votes, criteria=len(self.rubrics_by_part))

    def combine(self, voices: Sequence[tuple[Endpoint, Vote | None]]) -> TierVote:
        return combine_votes(voices, self.settings.jury)

    def record(self, opinion: Vote) -> PairOpinion:
        """Convert an opinion to the form that's recorded for a round."""
        probabilities = {}
        if opinion.probabilities:
            probabilities = decisions.round_probabilities(
                {_BETTER_QUESTION_NAME: opinion.probabilities}
            )
        return PairOpinion(
            better=opinion.word,
            reasoning=self.replace_labels(opinion.reasoning),
            probabilities=probabilities,
        )

    def build_rounds(self, first: int, turns: Sequence[ModelTurn[Vote]]) -> list[CompareRound]:
        """Record each call as a round. The rounds are numbered from `first`."""
        rounds: list[CompareRound] = []
        for turn in turns:
            calls = self._list_calls(len(turn.call_answers))
            for (sample, criterion, order), answer in zip(calls, turn.call_answers, strict=True):
                compare_round = CompareRound(
                    round=first + len(rounds),
                    tier=self.tier,
                    order=[*order],
                    criterion=criterion or None,  # "" if the call covers all criteria
                    sample=sample,
                    opinion=answer.record_value(self.record),
                    **answer.build_round_fields(),
                )
                rounds.append(compare_round)
        return rounds

    def _list_calls(self, call_count: int) -> Iterable[tuple[int | None, str, str]]:
        """List the sample number, criterion and order of the texts for each of a model's calls."""
        criteria = list(self.rubrics_by_part)
        samples = call_count // (len(criteria) * len(ORDERS))
        sample_numbers: Sequence[int | None] = [None]  # a single sample has no number
        if samples > 1:
            sample_numbers = range(1, samples + 1)
        # Each sample makes one call for each of the `questionnaires`, in their order.
        return product(sample_numbers, criteria, ORDERS)

    def replace_labels(self, text: str) -> str:
        """Replace the labels in a model's text with the letters A and B."""
        letter_by_label = {self.label(letter): letter for letter in WINS}
        alternatives = "|".join(re.escape(label) for label in letter_by_label)
        any_label = re.compile(rf"\b({alternatives})\b")
        return any_label.sub(lambda match: letter_by_label[match[0]], text)

    def label(self, letter: str) -> str:
        return self._label_by_hash[self.subject.file(letter).sha256]

    @property
    def _label_by_hash(self) -> dict[str, str]:
        """The texts' labels by hash, the same in both orders and all tiers."""
        return assign_labels(
            self.subject.prompt, sorted(file.sha256 for file in self.subject.files)
        )

    def visible_file(self, endpoint: Endpoint | None, letter: str, label: str) -> VisibleFile:
        """Return a text as a model sees it, cut to half of the characters that the model may see."""
        file = self.subject.file(letter)
        limit = get_max_characters(self.limits, endpoint) // len(WINS)
        return VisibleFile(label, file.text[:limit], file.total_chars)


def _list_criteria(rubric: CompareRubric) -> str:
    """List a rubric's criteria for models, one per line."""
    criteria_lines = ["Questions, the most important first:"]
    for name, text in rubric.criteria.items():
        criteria_lines.append(f"- {name}: {text}")
    return "\n".join(criteria_lines)


def _find_preferred(shares: Mapping[str, float]) -> PairWord:
    """Return the text whose probability of being better is at least `MIN_LEANING`, or "tie"."""
    for letter in WINS:
        if shares[letter] >= MIN_LEANING:
            return letter
    return "tie"
