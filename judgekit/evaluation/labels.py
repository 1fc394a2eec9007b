"""The meaning of a label: its outcome, winner or number, and whether a verdict agrees with it.

`report`, `eval judge`, `calibrate` and the summary of rows all decide this here. The words are in
`labels.toml`. Labels without any "improve" say whether a text is accepted or not, so verdicts are compared
as that: an improve is not accepted. If there's an "improve", the words are compared.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast

from judgekit import environment
from judgekit.config import TIE
from judgekit.errors import UsageError
from judgekit.evaluation.stats import UNDECIDED
from judgekit.judging.documents import LETTERS, MIN_TEXTS
from judgekit.text import format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.evaluation.stats import Pair


class _Sides(TypedDict):
    """The words that may come before a winner's letter or number, and after it."""

    before: str
    behind: str


class _WordTable(TypedDict):
    """The words of people and programs; each text lists words separated by blanks."""

    outcomes: dict[str, str]
    signs: dict[str, str]
    winners: dict[str, str]
    letters: dict[str, dict[str, str]]
    sides: _Sides


_LABELS_TABLE = cast("_WordTable", environment.read_toml(__file__, "labels.toml"))
_NAME_CHARS = 60
_ORDER_CHARS = 200
_SHOWN_CHARS = 40
MAX_ID_CHARS = 1000
_MAX_EXACT_FLOAT = 2**53  # above it, floating-point numbers skip some integers
_WHOLE_NUMBER_PATTERN = re.compile(r"(-?\d+)\.0+", re.ASCII)


def normalise_name(name: str) -> str:
    """Normalise a name for comparison: case, blanks and punctuation don't matter."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _map_words_to_names(words_by_name: Mapping[str, str]) -> dict[str, str]:
    """Map each word to its name. `words_by_name` contains each name's words, separated by blanks."""
    names = {}
    for name, words in words_by_name.items():
        for word in words.split():
            names[word] = name
    return names


_OUTCOME_WORDS = _map_words_to_names(_LABELS_TABLE["outcomes"])
_OUTCOME_SIGNS = _map_words_to_names(_LABELS_TABLE["signs"])
_OUTCOME_LETTERS = [
    {letter: word for word, letter in letters.items()}
    for letters in _LABELS_TABLE["letters"].values()
]
_WINNER_WORDS: dict[str, str | None] = {**_map_words_to_names(_LABELS_TABLE["winners"])}
_WORDS_BEFORE_SIDE = "|".join(_LABELS_TABLE["sides"]["before"].split())
_WORDS_BEHIND_SIDE = "|".join(_LABELS_TABLE["sides"]["behind"].split())
_SIDE_PATTERN = re.compile(
    rf"(?:{_WORDS_BEFORE_SIDE})?([a-z]|\d\d?)(?:{_WORDS_BEHIND_SIDE})?", re.ASCII
)
_ORDER_SIGN_PATTERN = re.compile(r"\s*([>≻]+|[<≺]+|[=~≈]+)\s*")  # between texts, as in A>B

BLANK_LABEL_KEY = ""  # the key of a label that says nothing
NOT_UNDERSTOOD_PREFIX = "\0"  # prefix of the key of a winner that isn't one of its row's texts
_MAX_IGNORED = 2  # labels that a reading may always ignore
_MAX_IGNORED_FRACTION = 0.1  # of all labels
_OUTCOME_BY_BINARY_DIGIT = {"0": "reject", "1": "accept"}


# --- Ids


def read_id(value: object) -> str | int | None:
    """Read an id from a cell: a number, or text of up to `MAX_ID_CHARS`. Returns None otherwise."""
    if isinstance(value, bool):
        return None
    is_blank = is_no_label(value)
    if is_blank:
        return None
    if isinstance(value, float):
        return _read_float_id(value) if math.isfinite(value) else None
    if not isinstance(value, str | int):
        return None
    is_too_long = len(str(value)) > MAX_ID_CHARS
    return None if is_too_long else value


def _read_float_id(number: float) -> str | int:
    """Convert an id such as 17.0 to 17. A fraction, or a number too large to be exact, becomes text."""
    # If any row lacks an id, pandas converts the other rows' ids to floats, so undo that.
    is_exact = abs(number) < _MAX_EXACT_FLOAT
    if number.is_integer() and is_exact:
        return int(number)
    return str(number)


def normalise_id(row_id: str | int) -> str:
    """Normalise an id for comparison, so that 17, "17", "17.0" and " 17" are equal, as are NFC and NFD."""
    text = unicodedata.normalize("NFC", " ".join(str(row_id).split()))
    whole = _WHOLE_NUMBER_PATTERN.fullmatch(text)
    return whole[1] if whole else text


# --- Labels and their readings


def convert_to_key(value: object) -> str:
    """Convert a label to a key for counting. For example, 1.0 and "1" both become "1".

    What a key means depends on all labels in the column, see `read_outcomes` and `read_winners`.
    """
    if is_no_label(value):
        return BLANK_LABEL_KEY
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = _decode_one_hot(value)
    number = parse_number(value)
    if number is not None:
        return f"{number:g}"
    text = str(value).strip()
    return text[:_ORDER_CHARS]  # no more of a label is ever read


def _decode_one_hot(values: list[Any]) -> object:
    """Decode a one-hot list to the winner's number, such as [0, 1] to 2. Format any other list as JSON."""
    numbers = [parse_number(value) for value in values]
    is_one_hot = numbers.count(1) == 1 and numbers.count(0) == len(numbers) - 1
    if is_one_hot:
        return numbers.index(1) + 1  # numbers start from 1
    return json.dumps(values, default=str)


def read_outcomes(counts: Mapping[str, int]) -> dict[str, str]:
    """Map labels to outcomes. Labels that aren't understood are omitted.

    `counts` contains how often each label's key occurs. Raises `UsageError` if the labels are ambiguous.
    """
    outcome_by_digit = _find_outcomes_of_digits(counts)
    readings = []
    # The letter P means pass in a column with F, but partial in a column with C and I, so try each meaning.
    for outcome_by_letter in _OUTCOME_LETTERS:
        reading = {}
        for key in counts:
            outcome = _read_outcome(key, outcome_by_letter, outcome_by_digit)
            if outcome:
                reading[key] = outcome
        readings.append(reading)
    return _choose_reading(readings, counts, "accept, improve or reject")


def _find_outcomes_of_digits(counts: Mapping[str, int]) -> Mapping[str, str]:
    """Find the outcomes that 0 and 1 mean. Returns {} if they're scores, like the other labels."""
    if _are_nearly_digits(counts):
        return _OUTCOME_BY_BINARY_DIGIT
    return {} if are_scores(counts) else _OUTCOME_BY_BINARY_DIGIT


def _read_outcome(
    key: str, outcome_by_letter: Mapping[str, str], outcome_by_digit: Mapping[str, str]
) -> str | None:
    """Read a label as a word, a letter or a digit. Returns None if it isn't understood."""
    outcome = _read_outcome_word(key) or outcome_by_letter.get(normalise_name(key))
    return outcome or outcome_by_digit.get(key)


def _read_outcome_word(key: str) -> str | None:
    """Return the outcome for a sign or word with a fixed meaning; None for any other label."""
    return _OUTCOME_SIGNS.get(key) or _OUTCOME_WORDS.get(normalise_name(key[:_NAME_CHARS]))


def read_winners(counts: Mapping[str, int], text_count: int = MIN_TEXTS) -> dict[str, str]:
    """Map each label to the letter of the text it calls the best, or to "tie".

    `counts` contains how often each label's key occurs. `text_count` is how many texts there are at least.
    Raises `UsageError` if the labels are ambiguous.
    """
    numeric_keys = {key for key in counts if parse_number(key) is not None}
    numbers = {key: float(key) for key in numeric_keys}
    letter_by_word = _read_words(counts.keys() - numeric_keys)
    # The labels can show that there are more texts.
    text_count = max(text_count, _count_named_texts(letter_by_word.values()))

    # Words have a fixed meaning, but numbers can be read in different ways.
    readings = []
    for read_numbers in _NUMBER_READINGS:
        letter_by_number = read_numbers(numbers, text_count)
        readings.append(letter_by_word | letter_by_number)
    return _choose_reading(readings, counts, "the letter of the text, or tie")


def _read_words(words: Iterable[str]) -> dict[str, str]:
    """Map labels that aren't numbers to a text's letter or "tie". Omits labels that aren't understood."""
    letter_by_word = {}
    for word in words:
        # A label gets the prefix if its own row shows that it names none of the texts.
        names_no_text = word.startswith(NOT_UNDERSTOOD_PREFIX)
        if word == BLANK_LABEL_KEY or names_no_text:
            continue
        letter = find_winner(word)
        if letter:
            letter_by_word[word] = letter
    return letter_by_word


def _count_named_texts(letters: Iterable[str]) -> int:
    """Return the lowest number of texts that fits the letters. For example, D needs 4 texts."""
    text_count = 0
    for letter in letters:
        if letter != TIE:
            text_count = max(text_count, LETTERS.index(letter) + 1)
    return text_count


def _read_as_preferences(numbers: Mapping[str, float], _text_count: int) -> dict[str, str]:
    """Read negative numbers as A, positive ones as B, and 0 as a tie. Returns {} if none is negative.

    `numbers` maps each label's key to the number in it. The second argument is for other ways to read
    numbers.
    """
    if all(number >= 0 for number in numbers.values()):
        return {}
    letters = {}
    for key, number in numbers.items():
        if number < 0:
            letters[key] = "A"
        elif number > 0:
            letters[key] = "B"
        else:
            letters[key] = TIE
    return letters


def _read_as_counted_from_one(numbers: Mapping[str, float], text_count: int) -> dict[str, str]:
    """Read numbers as text numbers counted from 1, and 0 as a tie."""
    letters = {}
    for key, number in numbers.items():
        letter = _find_letter_of_number(number, text_count)
        if letter:
            letters[key] = letter
    return letters


def _read_as_counted_from_zero(numbers: Mapping[str, float], text_count: int) -> dict[str, str]:
    """Read numbers as positions counted from 0. Returns {} unless both 0 and 1 occur."""
    if not _has_both_digits(numbers):
        return {}
    letters = {}
    for key, position in numbers.items():
        if position < 0:
            continue  # otherwise, adding 1 to -1 would give 0, which means a tie
        letter = _find_letter_of_number(position + 1, text_count)
        if letter:
            letters[key] = letter
    return letters


def _has_both_digits(numbers: Mapping[str, float]) -> bool:
    """Whether both 0 and 1 occur."""
    values = set(numbers.values())
    return 0.0 in values and 1.0 in values


def _read_as_first_is_better(numbers: Mapping[str, float], _text_count: int) -> dict[str, str]:
    """Read 1 ("the first text is better") as A, and 0 as B. Returns {} unless both numbers occur."""
    if not _has_both_digits(numbers):
        return {}
    letter_by_number = {1.0: "A", 0.0: "B"}
    letters = {}
    for key, number in numbers.items():
        if number in letter_by_number:
            letters[key] = letter_by_number[number]
    return letters


_NUMBER_READINGS = (
    _read_as_preferences,
    _read_as_counted_from_one,
    _read_as_counted_from_zero,
    _read_as_first_is_better,
)


def _choose_reading(
    readings: Iterable[dict[str, str]], counts: Mapping[str, int], expected: str
) -> dict[str, str]:
    """Choose the reading that explains the most labels. A reading maps label keys to meanings.

    Returns {} if even the best reading isn't trustworthy. Raises `UsageError`, which names the `expected`
    labels, if different readings explain equally many labels.
    """
    best_readings = _find_best_readings(readings, counts)
    if len(best_readings) > 1:
        raise UsageError(f"{_describe_ambiguity(best_readings)}; write {expected} instead")

    # If a reading only understands one side, such as `helpful` but not `harmful`, a judge that accepts
    # everything would seem to be right. So discard a one-sided reading unless it explains nearly all labels.
    [reading] = best_readings
    if _is_one_sided(reading) and _leaves_many_unexplained(reading, counts):
        return {}
    return reading


def _find_best_readings(
    readings: Iterable[dict[str, str]], counts: Mapping[str, int]
) -> list[dict[str, str]]:
    """Find the readings that explain the most labels. Equal readings count as one."""
    best_readings: list[dict[str, str]] = []
    most_explained = -1
    for reading in readings:
        explained = _count_explained(reading, counts)
        if explained > most_explained:
            best_readings = [reading]
            most_explained = explained
        elif explained == most_explained and reading not in best_readings:
            best_readings.append(reading)
    return best_readings


def _count_explained(reading: Mapping[str, str], counts: Mapping[str, int]) -> int:
    """Count the labels that a reading explains."""
    return sum(counts[key] for key in reading)


def _describe_ambiguity(readings: Sequence[Mapping[str, str]]) -> str:
    """Describe ambiguous labels: up to two examples, and the possible meanings of the first one."""
    keys = sorted({key for reading in readings for key in reading})
    ambiguous_keys = [key for key in keys if _is_ambiguous(key, readings)]
    shown_keys = [repr(shorten_to_line(key, _SHOWN_CHARS)) for key in ambiguous_keys[:2]]
    examples = " and ".join(shown_keys)

    first = ambiguous_keys[0]
    meanings = {reading[first] for reading in readings if first in reading}
    choice = " or ".join(sorted(meanings))
    return f"the labels {examples} can be read in {len(readings)} ways ({first}: {choice})"


def _is_ambiguous(key: str, readings: Sequence[Mapping[str, str]]) -> bool:
    """Whether readings give a label different meanings, or only some give it a meaning."""
    meaning = readings[0].get(key)
    return any(reading.get(key) != meaning for reading in readings)


def _is_one_sided(reading: Mapping[str, str]) -> bool:
    """Whether all labels that a reading explains mean the same, apart from ties."""
    sides = {meaning for meaning in reading.values() if meaning != TIE}
    return len(sides) < 2  # noqa: PLR2004 - two sides


def _leaves_many_unexplained(reading: Mapping[str, str], counts: Mapping[str, int]) -> bool:
    """Whether a reading leaves too many labels unexplained to ignore them. Blank labels don't count."""
    label_count = sum(counts.values()) - counts.get(BLANK_LABEL_KEY, 0)
    unexplained = label_count - _count_explained(reading, counts)
    # A few labels may always be ignored, however small the column is.
    max_ignored = max(_MAX_IGNORED, label_count * _MAX_IGNORED_FRACTION)
    return unexplained > max_ignored


def parse_number(value: object) -> float | None:
    """Convert a cell to a finite number. Returns None if that's impossible."""
    if isinstance(value, bool):
        return None  # `float` would convert True to 1.0
    try:
        number = float(value)  # type: ignore[arg-type]  # a cell can contain anything
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_no_label(value: object) -> bool:
    """Whether a cell says nothing: it's empty, blank or not a number, as tables write it."""
    if value is None or value != value:  # noqa: PLR0124 - not a number
        return True
    return isinstance(value, str) and value.strip().casefold() in ("", "nan")


def are_scores(counts: Mapping[str, int]) -> bool:
    """Whether labels are scores: more numbers than outcome words, and not only 0 and 1.

    `counts` contains how often each label's key occurs.
    """
    numeric_keys = [key for key in counts if parse_number(key) is not None]
    are_only_zero_and_one = all(key in _OUTCOME_BY_BINARY_DIGIT for key in numeric_keys)
    if are_only_zero_and_one:
        return False
    number_count = sum(counts[key] for key in numeric_keys)
    word_count = sum(count for key, count in counts.items() if _read_outcome_word(key))
    return number_count > word_count


def _are_nearly_digits(counts: Mapping[str, int]) -> bool:
    """Whether both 0 and 1 occur, and nearly all numbers are one of them.

    A few others, such as -1 for unrated rows, don't matter.
    """
    do_both_occur = all(counts.get(digit) for digit in _OUTCOME_BY_BINARY_DIGIT)
    if not do_both_occur:
        return False
    number_count = sum(count for key, count in counts.items() if parse_number(key) is not None)
    digit_count = sum(counts[digit] for digit in _OUTCOME_BY_BINARY_DIGIT)
    other_count = number_count - digit_count
    max_other_count = number_count * _MAX_IGNORED_FRACTION
    return other_count <= max_other_count


# --- Winners


def find_winner(
    value: object, text_count: int = len(LETTERS), named: Mapping[str, str | None] | None = None
) -> str | None:
    """Find the winner that a label names: a text's letter, "tie", or None if the label isn't understood.

    There are up to `text_count` texts. A label can be a name, a number from 1 (or 0 for a tie), or an order
    such as `A>B`, `B >> A` or `A=B`. `named` maps further names to letters, such as columns or authors, or
    to None if several texts share the name.
    """
    # In Python, a boolean is also an `int`, but it names no text.
    if isinstance(value, bool):
        return None
    if not isinstance(value, int | float | str):
        return None
    number = parse_number(value)
    if number is not None:
        return _find_letter_of_number(number, text_count)

    text = str(value)[:_ORDER_CHARS].strip()
    letter_by_name = {**_WINNER_WORDS, **(named or {})}
    name = normalise_name(text[:_NAME_CHARS])
    if name in letter_by_name:
        return letter_by_name[name]

    names_and_signs = _ORDER_SIGN_PATTERN.split(text)  # such as ["A", ">", "B"]
    names = names_and_signs[::2]
    signs = names_and_signs[1::2]
    if not signs:
        return _find_letter_of_side(text, text_count)
    letters = _read_ordered_names(names, letter_by_name, text_count)
    if letters is None:
        return None
    return _find_first_in_order(letters, signs)


def _find_letter_of_number(number: float, text_count: int) -> str | None:
    """Return the letter for a number from 1 to `text_count`, "tie" for 0, or None for any other number."""
    if number == 0:
        return TIE
    is_text_number = number.is_integer() and 1 <= number <= text_count
    if is_text_number:
        return LETTERS[int(number) - 1]
    return None


def _find_letter_of_side(text: str, text_count: int) -> str | None:
    """Return the letter for a label such as "B", "model 2" or "B is better".

    Returns None if the label isn't understood, or if there's no such text.
    """
    # `normalise_name` removes the minus of -1, so check for it first.
    is_negative = text.strip().startswith("-")
    if is_negative:
        return None
    match = _SIDE_PATTERN.fullmatch(normalise_name(text))
    if match is None:
        return None

    side = match[1]
    if side.isdigit():
        index = int(side) - 1
    else:
        index = LETTERS.index(side.upper())
    does_text_exist = 0 <= index < text_count
    return LETTERS[index] if does_text_exist else None


def _read_ordered_names(
    names: Sequence[str], letter_by_name: Mapping[str, str | None], text_count: int
) -> list[str] | None:
    """Convert the names in an order to letters.

    Returns None if a name isn't a text's, or if two names stand for the same text.
    """
    letters: list[str] = []
    for name in names:
        letter = letter_by_name.get(normalise_name(name[:_NAME_CHARS]))
        letter = letter or _find_letter_of_side(name, text_count)
        if letter is None or letter == TIE:
            return None
        if letter in letters:
            return None
        letters.append(letter)
    return letters


def _find_first_in_order(letters: list[str], signs: list[str]) -> str | None:
    """Return the letter of the best text in an order such as A>B=C or C<A.

    Returns "tie" for an order like A=B>C. Returns None if the signs contradict each other.
    """
    all_signs = "".join(signs)
    is_ascending = any(character in "<≺" for character in all_signs)
    is_descending = any(character in ">≻" for character in all_signs)
    if is_ascending and is_descending:
        return None

    best_position = -1 if is_ascending else 0
    sign_beside_best = signs[best_position]
    is_tie = sign_beside_best[0] in "=~≈"
    return TIE if is_tie else letters[best_position]


# --- Agreement


def is_binary(labels: Iterable[str]) -> bool:
    """Whether labels just say accepted or not."""
    words = {*labels}
    return bool(words) and words <= {"accept", "reject"}


def prepare_pairs(pairs: Iterable[Pair], *, binary: bool) -> list[Pair]:
    """Prepare labels and verdicts for comparison: if labels are binary, an improve counts as a reject."""
    if not binary:
        return list(pairs)
    return [(label, "reject" if answer == "improve" else answer) for label, answer in pairs]


def agrees(label: str, answer: str, *, binary: bool) -> bool:
    """Whether an answer agrees with a label. If labels are binary, an improve counts as a reject."""
    return prepare_pairs([(label, answer)], binary=binary) == [(label, label)]


@dataclass
class LeftOut:
    """Labels left out of the comparison: blank ones, and those not understood, like `example`.

    `texts` counts rows with a blank text; `unasked` counts rows without a verdict for
    another reason, like `why`.
    """

    blank: int = 0
    unknown: int = 0
    example: str = ""
    texts: int = 0
    unasked: int = 0
    why: str = ""

    def add_unknown(self, value: object, count: int = 1) -> None:
        self.unknown += count
        if not self.example:
            self.example = shorten_to_line(str(value), _SHOWN_CHARS)

    def add_unasked(self, reasons: Sequence[str]) -> None:
        """Count a row for each reason why no model was asked."""
        self.unasked += len(reasons)
        if reasons and not self.why:
            self.why = reasons[0]

    def describe(self) -> str:
        """Describe all labels left out in one line. Returns "" if there are none."""
        reasons = []
        if self.blank:
            reasons.append(format_count(self.blank, "blank label", "blank labels"))
        if self.unknown:
            counted_labels = format_count(self.unknown, "label that is", "labels that are")
            reasons.append(f"{counted_labels} not understood, such as {self.example!r}")
        if self.texts:
            reasons.append(
                format_count(self.texts, "row with a blank text", "rows with a blank text")
            )
        if self.unasked:
            counted_labels = format_count(self.unasked, "row that cannot", "rows that cannot")
            reasons.append(f"{counted_labels} be judged ({self.why})")
        return ", ".join(reasons)


def count_agreements(pairs: Mapping[Pair, int]) -> tuple[int, int, LeftOut]:
    """Count the labels that agree with their verdict, and all labels compared. Also returns those left out.

    `pairs` contains the number of rows with each label key (see `convert_to_key`) and verdict. Raises
    `UsageError` if the labels are ambiguous.
    """
    counts = Counter[str]()
    verdicts = set()
    for (key, verdict), count in pairs.items():
        counts[key] += count
        verdicts.add(verdict)
    meaning_by_key = _read_labels(counts, verdicts)
    agreed, compared_count = _count_agreed(_count_by_meaning(pairs, meaning_by_key))
    left_out = _count_left_out(counts, meaning_by_key)
    return agreed, compared_count, left_out


def _read_labels(counts: Mapping[str, int], verdicts: set[str]) -> dict[str, str]:
    """Map labels to winners if the verdicts are winners, such as "A". Otherwise map labels to outcomes."""
    letters = [letter for letter in LETTERS if letter in verdicts]
    are_winners = bool(letters) or TIE in verdicts
    if not are_winners:
        return read_outcomes(counts)
    text_count = max(MIN_TEXTS, _count_named_texts(letters))
    return read_winners(counts, text_count)


def _count_by_meaning(
    pairs: Mapping[Pair, int], meaning_by_key: Mapping[str, str]
) -> Counter[tuple[str, str]]:
    """Count the rows by their label's meaning and their verdict. Labels without a meaning aren't counted."""
    count_by_meaning = Counter[tuple[str, str]]()
    for (key, verdict), count in pairs.items():
        meaning = meaning_by_key.get(key)
        if meaning is not None:
            count_by_meaning[meaning, verdict] += count
    return count_by_meaning


def _count_agreed(count_by_meaning: Mapping[tuple[str, str], int]) -> tuple[int, int]:
    """Count the labels that agree with their verdict, and all labels that have a decided verdict."""
    # If the labels are only accept and reject, the verdict "improve" counts as a rejection.
    binary = is_binary(label for label, _ in count_by_meaning)
    agreed = 0
    decided = 0
    for (label, verdict), count in count_by_meaning.items():
        if verdict in UNDECIDED:
            continue
        decided += count
        if agrees(label, verdict, binary=binary):
            agreed += count
    return agreed, decided


def _count_left_out(counts: Counter[str], meaning_by_key: Mapping[str, str]) -> LeftOut:
    """Count the labels that are blank or aren't understood."""
    left_out = LeftOut(blank=counts[BLANK_LABEL_KEY])
    for key, count in counts.items():
        if key == BLANK_LABEL_KEY or key in meaning_by_key:
            continue
        # The prefix only marks labels that name none of their row's texts.
        label = key.removeprefix(NOT_UNDERSTOOD_PREFIX)
        left_out.add_unknown(label, count)
    return left_out
