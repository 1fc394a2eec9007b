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
from judgekit.text import counted, short_line

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


_TABLE = cast("_WordTable", environment.read_toml(__file__, "labels.toml"))
_NAME_CHARS = 60
_ORDER_CHARS = 200
_SHOWN_CHARS = 40
ID_CHARS = 1000
_EXACT = 2**53  # above it, floating-point numbers skip some integers
_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)


def plain(name: str) -> str:
    """Normalise a name for comparison: case, blanks and punctuation don't matter."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _map_words_to_names(words_by_name: Mapping[str, str]) -> dict[str, str]:
    """Invert a mapping of names to lists of words: map each word to its name."""
    names = {}
    for name, words in words_by_name.items():
        names.update(dict.fromkeys(words.split(), name))
    return names


_OUTCOME_WORDS = _map_words_to_names(_TABLE["outcomes"])
_OUTCOME_SIGNS = _map_words_to_names(_TABLE["signs"])
_OUTCOME_LETTERS = [
    {letter: word for word, letter in letters.items()} for letters in _TABLE["letters"].values()
]
_WINNER_WORDS: dict[str, str | None] = {**_map_words_to_names(_TABLE["winners"])}
_BEFORE = "|".join(_TABLE["sides"]["before"].split())
_BEHIND = "|".join(_TABLE["sides"]["behind"].split())
_SIDE = re.compile(rf"(?:{_BEFORE})?([a-z]|\d\d?)(?:{_BEHIND})?", re.ASCII)
_ORDER = re.compile(r"\s*([>≻]+|[<≺]+|[=~≈]+)\s*")  # between texts, as in A>B

BLANK = ""  # the key of a label that says nothing
NOT_UNDERSTOOD = "\0"  # prefix of the key of a winner that isn't one of its row's texts
_MAX_IGNORED = 2  # labels that a reading may always ignore
_MAX_IGNORED_FRACTION = 0.1  # of all labels
_DIGITS = {"0": "reject", "1": "accept"}


# --- Ids


def id_of(value: object) -> str | int | None:
    """Read an id from a cell: a number, or text of up to `ID_CHARS` characters. Returns None otherwise."""
    if isinstance(value, bool) or is_no_label(value):
        return None
    if isinstance(value, float) and math.isfinite(value):
        # If any row lacks an id, pandas converts the other rows' ids to floats, such as 17.0. Undo that.
        return int(value) if value.is_integer() and abs(value) < _EXACT else str(value)
    if not isinstance(value, str | int) or len(str(value)) > ID_CHARS:
        return None
    return value


def id_key(row_id: str | int) -> str:
    """Normalise an id for comparison, so that 17, "17", "17.0" and " 17" are equal, as are NFC and NFD."""
    text = unicodedata.normalize("NFC", " ".join(str(row_id).split()))
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


# --- Labels and their readings


def key_of(value: object) -> str:
    """Normalise a label, so that equal ones can be counted: to `BLANK`, a formatted number, or a string.

    The meaning of this key depends on all labels in the column. See `read_outcomes` and `read_winners`.
    """
    if is_no_label(value):
        return BLANK
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = _decode_one_hot(value)
    number = number_of(value)
    if number is not None:
        return f"{number:g}"
    return str(value).strip()[:_ORDER_CHARS]


def _decode_one_hot(values: list[Any]) -> object:
    """Decode a one-hot list to the winner's number, such as [0, 1] to 2. Format any other list as JSON."""
    numbers = [number_of(value) for value in values]
    is_one_hot = numbers.count(1) == 1 and numbers.count(0) == len(numbers) - 1
    if is_one_hot:
        return numbers.index(1) + 1  # numbers start from 1
    return json.dumps(values, default=str)


def read_outcomes(counts: Mapping[str, int]) -> dict[str, str]:
    """Map labels to outcomes. Labels that aren't understood are omitted.

    `counts` contains how often each label's key occurs. Raises `UsageError` if the labels are ambiguous.
    """
    # If the labels are scores, the digits 0 and 1 don't mean reject and accept.
    has_scores = are_scores(counts) and not _are_nearly_digits(counts)
    outcome_by_digit = {} if has_scores else _DIGITS

    # In a column with F, the letter P means pass. In a column with C and I, it means partial. A reading maps
    # labels to outcomes, so try all readings.
    readings = []
    for outcome_by_letter in _OUTCOME_LETTERS:
        reading = {}
        for key in counts:
            outcome = _read_outcome_word(key) or outcome_by_letter.get(plain(key))
            outcome = outcome or outcome_by_digit.get(key)
            if outcome:
                reading[key] = outcome
        readings.append(reading)
    return _choose_reading(readings, counts, "accept, improve or reject")


def _read_outcome_word(key: str) -> str | None:
    """Return the outcome for a sign or word with a fixed meaning; None for any other label."""
    return _OUTCOME_SIGNS.get(key) or _OUTCOME_WORDS.get(plain(key[:_NAME_CHARS]))


def read_winners(counts: Mapping[str, int], text_count: int = MIN_TEXTS) -> dict[str, str]:
    """Map labels that name the best of multiple texts to its letter or "tie".

    There are at least `text_count` texts. `counts` contains how often each label's key occurs. Raises
    `UsageError` if the labels are ambiguous.
    """
    # Read the labels that are words or letters.
    numeric_keys = {key for key in counts if number_of(key) is not None}
    letter_by_word = {}
    for key in counts.keys() - numeric_keys:
        has_meaning = key != BLANK and not key.startswith(NOT_UNDERSTOOD)
        letter = winner_of(key) if has_meaning else None
        if letter:
            letter_by_word[key] = letter
            if letter != TIE:
                # A label such as D shows that there are at least 4 texts.
                text_count = max(text_count, LETTERS.index(letter) + 1)

    # Words have a fixed meaning, but numbers can be read in different ways.
    numbers = {key: float(key) for key in numeric_keys}
    readings = []
    for read_numbers in _NUMBER_READINGS:
        readings.append(letter_by_word | read_numbers(numbers, text_count))
    return _choose_reading(readings, counts, "the letter of the text, or tie")


def _read_as_preferences(numbers: Mapping[str, float], _most: int) -> dict[str, str]:
    """Read negative numbers as A, positive ones as B, and 0 as a tie. Returns {} if none is negative."""
    if all(number >= 0 for number in numbers.values()):
        return {}
    letters = dict.fromkeys(numbers, TIE)
    for key, number in numbers.items():
        if number < 0:
            letters[key] = "A"
        elif number > 0:
            letters[key] = "B"
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
    if not {0.0, 1.0} <= {*numbers.values()}:
        return {}
    letters = {}
    for key, number in numbers.items():
        letter = _find_letter_of_number(number + 1, text_count) if number >= 0 else None
        if letter:
            letters[key] = letter
    return letters


def _read_as_first_is_better(numbers: Mapping[str, float], _most: int) -> dict[str, str]:
    """Read 1 ("the first text is better") as A, and 0 as B. Returns {} unless both numbers occur."""
    if not {0.0, 1.0} <= {*numbers.values()}:
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
    count_by_reading = {}  # how many labels each reading explains
    for reading in readings:
        explained = sum(counts[key] for key in reading)
        # The key is the reading's contents, so that equal readings count as one.
        count_by_reading[frozenset(reading.items())] = explained
    most_explained = max(count_by_reading.values())
    best_readings = [
        dict(reading) for reading, count in count_by_reading.items() if count == most_explained
    ]
    if len(best_readings) > 1:
        raise UsageError(f"{_describe_ambiguity(best_readings)}; write {expected} instead")

    # If a reading only understands one side, such as `helpful` but not `harmful`, a judge that accepts
    # everything would seem to be right. So discard a one-sided reading unless it explains nearly all labels.
    [reading] = best_readings
    label_count = sum(counts.values()) - counts.get(BLANK, 0)
    unexplained = label_count - most_explained
    is_one_sided = len({*reading.values()} - {TIE}) < 2  # noqa: PLR2004 - two sides
    if is_one_sided and unexplained > max(_MAX_IGNORED, label_count * _MAX_IGNORED_FRACTION):
        return {}
    return reading


def _describe_ambiguity(readings: Sequence[Mapping[str, str]]) -> str:
    """Describe ambiguous labels: up to two examples, and the possible meanings of the first one."""
    keys = sorted({key for reading in readings for key in reading})
    ambiguous = [key for key in keys if len({reading.get(key) for reading in readings}) > 1]
    first = ambiguous[0]
    examples = " and ".join(repr(short_line(key, _SHOWN_CHARS)) for key in ambiguous[:2])
    meanings = {reading[first] for reading in readings if first in reading}
    choice = " or ".join(sorted(meanings))
    return f"the labels {examples} can be read in {len(readings)} ways ({first}: {choice})"


def number_of(value: object) -> float | None:
    """Convert a cell to a finite number. Returns None if that's impossible."""
    if isinstance(value, bool):
        return None
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
    """Whether labels are scores: mostly numbers, and not only 0 and 1.

    `counts` contains the labels by key.
    """
    numbers = {key: count for key, count in counts.items() if number_of(key) is not None}
    if numbers.keys() <= _DIGITS.keys():
        return False
    word_count = sum(count for key, count in counts.items() if _read_outcome_word(key))
    return sum(numbers.values()) > word_count


def _are_nearly_digits(counts: Mapping[str, int]) -> bool:
    """Whether nearly all numbers are 0 or 1. A few others, such as -1 for unrated rows, don't matter."""
    if not all(counts.get(digit) for digit in _DIGITS):
        return False
    number_count = sum(count for key, count in counts.items() if number_of(key) is not None)
    digit_count = sum(counts[digit] for digit in _DIGITS)
    return number_count - digit_count <= number_count * _MAX_IGNORED_FRACTION


# --- Winners


def winner_of(
    value: object, text_count: int = len(LETTERS), named: Mapping[str, str | None] | None = None
) -> str | None:
    """Find the winner that a label names: a text's letter, "tie", or None if the label isn't understood.

    There are up to `text_count` texts. A label can be a name, a number from 1 (or 0 for a tie), or an order
    such as `A>B`, `B >> A` or `A=B`. `named` maps further names to letters, such as columns or authors.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = number_of(value)
    if number is not None:
        return _find_letter_of_number(number, text_count)

    # a name
    text = str(value)[:_ORDER_CHARS].strip()
    letter_by_name = {**_WINNER_WORDS, **(named or {})}
    name = plain(text[:_NAME_CHARS])
    if name in letter_by_name:
        return letter_by_name[name]

    names_and_signs = _ORDER.split(text)  # such as ["A", ">", "B"]
    if len(names_and_signs) == 1:
        return _find_letter_of_side(text, text_count)

    # An order names each text once. The names are at even positions, and the signs between them.
    letters = []
    for text_name in names_and_signs[::2]:
        letter = letter_by_name.get(plain(text_name[:_NAME_CHARS]))
        letter = letter or _find_letter_of_side(text_name, text_count)
        if letter is None or letter == TIE or letter in letters:
            return None
        letters.append(letter)
    return _find_first_in_order(letters, signs=names_and_signs[1::2])


def _find_letter_of_number(number: float, text_count: int) -> str | None:
    """Return the letter for a number from 1 to `text_count`, "tie" for 0, or None for any other number."""
    if number == 0:
        return TIE
    if not number.is_integer() or not 0 < number <= text_count:
        return None
    return LETTERS[int(number) - 1]


def _find_letter_of_side(text: str, text_count: int) -> str | None:
    """Return the letter for a label such as "B", "model 2" or "B is better".

    Returns None if it isn't valid.
    """
    match = _SIDE.fullmatch(plain(text))
    if match is None or text.strip().startswith("-"):  # a negative number
        return None
    side = match[1]
    if side.isdigit():
        index = int(side) - 1
    else:
        index = LETTERS.index(side.upper())
    return LETTERS[index] if 0 <= index < text_count else None


def _find_first_in_order(letters: list[str], signs: list[str]) -> str | None:
    """Return the letter of the best text in an order such as A>B=C or C<A.

    Returns "tie" for an order like A=B>C. Returns None if the signs contradict each other.
    """
    characters = {*"".join(signs)}
    is_ascending = not characters.isdisjoint("<≺")
    is_descending = not characters.isdisjoint(">≻")
    if is_ascending and is_descending:
        return None
    best_sign = signs[-1] if is_ascending else signs[0]
    if best_sign[0] in "=~≈":
        return TIE
    return letters[-1] if is_ascending else letters[0]


# --- Agreement


def is_binary(labels: Iterable[str]) -> bool:
    """Whether labels just say accepted or not."""
    words = {*labels}
    return bool(words) and words <= {"accept", "reject"}


def compared(pairs: Iterable[Pair], *, binary: bool) -> list[Pair]:
    """Prepare labels and verdicts for comparison: if labels are binary, an improve counts as a reject."""
    if not binary:
        return list(pairs)
    return [(label, "reject" if answer == "improve" else answer) for label, answer in pairs]


def agrees(label: str, answer: str, *, binary: bool) -> bool:
    """Whether an answer agrees with a label. If labels are binary, an improve counts as a reject."""
    return compared([(label, answer)], binary=binary) == [(label, label)]


@dataclass
class LeftOut:
    """Labels left out of the comparison: blank ones, and those not understood, like `example`.

    `texts` counts rows with a blank text; `unasked` counts rows without a verdict for another reason, like
    `why`.
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
            self.example = short_line(str(value), _SHOWN_CHARS)

    def add_unasked(self, reasons: Sequence[str]) -> None:
        """Count a row for each reason why no model was asked."""
        self.unasked += len(reasons)
        if reasons and not self.why:
            self.why = reasons[0]

    def describe(self) -> str:
        """Describe all labels left out in one line. Returns "" if there are none."""
        reasons = []
        if self.blank:
            reasons.append(counted(self.blank, "blank label", "blank labels"))
        if self.unknown:
            counted_labels = counted(self.unknown, "label that is", "labels that are")
            reasons.append(f"{counted_labels} not understood, such as {self.example!r}")
        if self.texts:
            reasons.append(counted(self.texts, "row with a blank text", "rows with a blank text"))
        if self.unasked:
            counted_labels = counted(self.unasked, "row that cannot", "rows that cannot")
            reasons.append(f"{counted_labels} be judged ({self.why})")
        return ", ".join(reasons)


def agreement(pairs: Mapping[Pair, int]) -> tuple[int, int, LeftOut]:
    """Count the labels that agree with their row's verdict, all labels compared, and the labels left out.

    `pairs` contains the number of rows with each label key (see `key_of`) and verdict. Raises `UsageError` if
    the labels are ambiguous.
    """
    # Find the meaning of each label.
    counts = Counter[str]()
    verdicts = set()
    for (key, verdict), count in pairs.items():
        counts[key] += count
        verdicts.add(verdict)
    word_by_key = _read_labels(counts, verdicts)

    # Count the rows again, by the label's meaning and the verdict.
    meaningful = Counter[tuple[str, str]]()
    for (key, verdict), count in pairs.items():
        label = word_by_key.get(key)
        if label is not None:
            meaningful[label, verdict] += count

    # If the labels are only accept and reject, the verdict "improve" counts as a rejection.
    binary = is_binary(label for label, _ in meaningful)
    agreed = 0
    decided = 0
    for (label, verdict), count in meaningful.items():
        if verdict in UNDECIDED:
            continue
        decided += count
        if agrees(label, verdict, binary=binary):
            agreed += count

    # Count the labels that are blank or aren't understood.
    left_out = LeftOut(blank=counts[BLANK])
    for key, count in counts.items():
        if key != BLANK and key not in word_by_key:
            left_out.add_unknown(key.removeprefix(NOT_UNDERSTOOD), count)
    return agreed, decided, left_out


def _read_labels(counts: Mapping[str, int], verdicts: set[str]) -> dict[str, str]:
    """Map labels to winners if the verdicts are winners, such as "A". Otherwise map labels to outcomes."""
    letters = sorted(verdicts & set(LETTERS))
    if not letters and TIE not in verdicts:
        return read_outcomes(counts)
    text_count = MIN_TEXTS
    if letters:
        text_count = max(LETTERS.index(letters[-1]) + 1, MIN_TEXTS)
    return read_winners(counts, text_count)
