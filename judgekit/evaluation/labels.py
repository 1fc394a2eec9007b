"""What a label means: the outcome, the winner or the number that it names, and when a verdict agrees with it.

The one place that decides this for `report`, `eval judge`, `calibrate` and the summary of rows. The words are
in `labels.toml`. Labels without any "improve" say whether a text is accepted or not, and so verdicts are
compared with them: an improve is then not accepted. Beside an "improve" the words are compared.
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
from judgekit.judging.documents import LEAST_TEXTS, LETTERS
from judgekit.text import counted, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.evaluation.stats import Pair


class _Sides(TypedDict):
    """What may stand before a winner's letter or number, and behind it."""

    before: str
    behind: str


class _WordTable(TypedDict):
    """What people and programs write; a text holds words with blanks between them."""

    outcomes: dict[str, str]
    signs: dict[str, str]
    winners: dict[str, str]
    letters: dict[str, dict[str, str]]
    sides: _Sides


_TABLE = cast("_WordTable", environment.table(__file__, "labels.toml"))
_NAME_CHARS = 60
_ORDER_CHARS = 200
_SHOWN_CHARS = 40
ID_CHARS = 1000
_EXACT = 2**53  # above, a floating-point number is not every whole number
_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)


def plain(name: str) -> str:
    """Return a name as it is compared: case, blanks and signs play no part."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _names_by_word(words_by_name: Mapping[str, str]) -> dict[str, str]:
    names = {}
    for name, words in words_by_name.items():
        names.update(dict.fromkeys(words.split(), name))
    return names


_OUTCOME_WORDS = _names_by_word(_TABLE["outcomes"])
_OUTCOME_SIGNS = _names_by_word(_TABLE["signs"])
_LETTERS = [
    {letter: word for word, letter in letters.items()} for letters in _TABLE["letters"].values()
]
_WINNER_WORDS: dict[str, str | None] = {**_names_by_word(_TABLE["winners"])}
_BEFORE = "|".join(_TABLE["sides"]["before"].split())
_BEHIND = "|".join(_TABLE["sides"]["behind"].split())
_SIDE = re.compile(rf"(?:{_BEFORE})?([a-z]|\d\d?)(?:{_BEHIND})?", re.ASCII)
_ORDER = re.compile(r"\s*([>≻]+|[<≺]+|[=~≈]+)\s*")  # between texts, as in A>B

BLANK = ""  # the key of a label that says nothing
NOT_UNDERSTOOD = "\0"  # begins the key of a winner that is none of the texts of its row
_FEW = 2  # labels that a reading may leave out in any case
_REST = 0.1  # the share that it may leave out
_DIGITS = {"0": "reject", "1": "accept"}


# --- Ids


def id_of(value: object) -> str | int | None:
    """Return the id that a cell holds: a number, or a text of up to `ID_CHARS`; None for anything else.

    A whole number may have come as 17.0: pandas makes it one as soon as another row has none.
    """
    if isinstance(value, bool) or is_no_label(value):
        return None
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) < _EXACT else str(value)
    if not isinstance(value, str | int) or len(str(value)) > ID_CHARS:
        return None
    return value


def id_key(row_id: str | int) -> str:
    """Return an id as it is compared: 17, "17", "17.0" and " 17" are one, and so are NFC and NFD."""
    text = unicodedata.normalize("NFC", " ".join(str(row_id).split()))
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


# --- Labels and their readings


def key_of(value: object) -> str:
    """Return what a label is counted as: `BLANK`, a number as text, or the text of it.

    What it means depends on the other labels of its column; see `read_outcomes` and `read_winners`.
    """
    if is_no_label(value):
        return BLANK
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = _one_of(value)
    number = number_of(value)
    if number is not None:
        return f"{number:g}"
    return str(value).strip()[:_ORDER_CHARS]


def _one_of(values: list[Any]) -> object:
    """Return the number from 1 of the only one among zeros, as in [0, 1]; else the list as text."""
    numbers = [number_of(value) for value in values]
    if numbers.count(1) == 1 and numbers.count(0) == len(numbers) - 1:
        return numbers.index(1) + 1
    return json.dumps(values, default=str)


def read_outcomes(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the outcome of each label that means one, among so many of each key.

    The reading that explains most of them is that of all: P is a pass beside F, and partial beside C and I.
    Raises `UsageError` if two that differ explain as many.
    """
    digits = {} if are_scores(counts) and not _are_nearly_digits(counts) else _DIGITS
    readings = []
    for letters in _LETTERS:
        reading = {}
        for key in counts:
            word = _outcome_word(key) or letters.get(plain(key)) or digits.get(key)
            if word:
                reading[key] = word
        readings.append(reading)
    return _best_reading(readings, counts, "accept, improve or reject")


def _outcome_word(key: str) -> str | None:
    return _OUTCOME_SIGNS.get(key) or _OUTCOME_WORDS.get(plain(key[:_NAME_CHARS]))


def read_winners(counts: Mapping[str, int], most: int = LEAST_TEXTS) -> dict[str, str]:
    """Return the letter, or "tie", of each label that names the best of at least `most` texts.

    Numbers count from 1, with 0 for a tie, or from 0. With negative ones they say how much better: the first
    text below 0, the second above. 1 and 0 may also say whether the first is better. Raises as above.
    """
    numbers = {key for key in counts if number_of(key) is not None}
    texts = {}
    for key in counts.keys() - numbers:
        is_open = key != BLANK and not key.startswith(NOT_UNDERSTOOD)
        letter = winner_of(key) if is_open else None
        if letter:
            texts[key] = letter
            if letter != TIE:
                most = max(most, LETTERS.index(letter) + 1)
    readings = []
    for reading in _NUMBER_READINGS:
        letters = reading({key: float(key) for key in numbers}, most)
        readings.append(texts | letters)
    return _best_reading(readings, counts, "the letter of the text, or tie")


def _by_preference(numbers: Mapping[str, float], _most: int) -> dict[str, str]:
    if all(number >= 0 for number in numbers.values()):
        return {}
    letters = {}
    for key, number in numbers.items():
        letters[key] = "A" if number < 0 else "B" if number > 0 else TIE
    return letters


def _from_one(numbers: Mapping[str, float], most: int) -> dict[str, str]:
    found = {key: _by_number(number, most) for key, number in numbers.items()}
    return {key: letter for key, letter in found.items() if letter}


def _from_zero(numbers: Mapping[str, float], most: int) -> dict[str, str]:
    if not {0.0, 1.0} <= {*numbers.values()}:
        return {}
    found = {key: _by_number(number + 1, most) for key, number in numbers.items() if number >= 0}
    return {key: letter for key, letter in found.items() if letter}


def _is_first_better(numbers: Mapping[str, float], _most: int) -> dict[str, str]:
    if not {0.0, 1.0} <= {*numbers.values()}:
        return {}
    letters = {1.0: "A", 0.0: "B"}
    return {key: letters[number] for key, number in numbers.items() if number in letters}


_NUMBER_READINGS = (_by_preference, _from_one, _from_zero, _is_first_better)


def _best_reading(
    readings: Iterable[dict[str, str]], counts: Mapping[str, int], expected: str
) -> dict[str, str]:
    """Return the reading that explains most labels; raises `UsageError` if two that differ do.

    Nothing is understood if it explains one side of a pair alone, and not nearly all labels: of `helpful` and
    `harmful` a judge that accepts all would be right.
    """
    count_by_reading = {}
    for reading in readings:
        explained = sum(counts[key] for key in reading)
        count_by_reading[frozenset(reading.items())] = explained
    most = max(count_by_reading.values())
    best = [dict(reading) for reading, count in count_by_reading.items() if count == most]
    if len(best) > 1:
        keys = sorted({key for reading in best for key in reading})
        doubtful = [key for key in keys if len({reading.get(key) for reading in best}) > 1]
        shown = " and ".join(repr(short_line(key, _SHOWN_CHARS)) for key in doubtful[:2])
        meanings = {reading[doubtful[0]] for reading in best if doubtful[0] in reading}
        options = " or ".join(sorted(meanings))
        problem = f"the labels {shown} can be read in {len(best)} ways ({doubtful[0]}: {options})"
        raise UsageError(f"{problem}; write {expected} instead")
    [reading] = best
    labels = sum(counts.values()) - counts.get(BLANK, 0)
    is_one_sided = len({*reading.values()} - {TIE}) < 2  # noqa: PLR2004 - two sides
    if is_one_sided and labels - most > max(_FEW, labels * _REST):
        return {}
    return reading


def number_of(value: object) -> float | None:
    """Return the finite number that a cell holds; None where it holds none."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever a cell may hold
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_no_label(value: object) -> bool:
    """Whether a cell says nothing: it is empty, blank or not a number, as tables write it."""
    if value is None or value != value:  # noqa: PLR0124 - not a number
        return True
    return isinstance(value, str) and value.strip().casefold() in ("", "nan")


def are_scores(counts: Mapping[str, int]) -> bool:
    """Whether labels are scores, by how many there are of each key: numbers, not all of them 0 or 1."""
    numbers = {key: count for key, count in counts.items() if number_of(key) is not None}
    if numbers.keys() <= _DIGITS.keys():
        return False
    words = sum(count for key, count in counts.items() if _outcome_word(key))
    return sum(numbers.values()) > words


def _are_nearly_digits(counts: Mapping[str, int]) -> bool:
    """Whether 0 and 1 are nearly all numbers among labels, as beside a -1 for a row that nobody rated."""
    if not all(counts.get(digit) for digit in _DIGITS):
        return False
    numbers = sum(count for key, count in counts.items() if number_of(key) is not None)
    digits = sum(counts[digit] for digit in _DIGITS)
    return numbers - digits <= numbers * _REST


# --- Winners


def winner_of(
    value: object, most: int = len(LETTERS), named: Mapping[str, str | None] | None = None
) -> str | None:
    """Return the letter of the text that a label calls the best of `most`, or "tie"; None for anything else.

    `named` has the letters of texts by more names: those of their columns or authors. A label may also say
    the order, such as `A>B`, `B >> A` or `A=B`. The number 0 is a tie, 1 is the first text.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = number_of(value)
    if number is not None:
        return _by_number(number, most)
    text = str(value)[:_ORDER_CHARS].strip()
    letter_by_name = {**_WINNER_WORDS, **(named or {})}
    name = plain(text[:_NAME_CHARS])
    if name in letter_by_name:
        return letter_by_name[name]
    parts = _ORDER.split(text)  # names of texts, and between two of them a sign
    if len(parts) == 1:
        return _by_side(text, most)
    letters = []
    for part in parts[::2]:
        letter = letter_by_name.get(plain(part[:_NAME_CHARS])) or _by_side(part, most)
        if letter is None or letter == TIE or letter in letters:
            return None
        letters.append(letter)
    return _first_of(letters, signs=parts[1::2])


def _by_number(number: float, most: int) -> str | None:
    """Return the letter of the text with this number, from 1; "tie" for 0."""
    if number == 0:
        return TIE
    if not number.is_integer() or not 0 < number <= most:
        return None
    return LETTERS[int(number) - 1]


def _by_side(text: str, most: int) -> str | None:
    """Return the letter of the text that a label such as "B", "model 2" or "B is better" names."""
    match = _SIDE.fullmatch(plain(text))
    if match is None or text.strip().startswith("-"):
        return None
    side = match[1]
    if side.isdigit():
        place = int(side) - 1
    else:
        place = LETTERS.index(side.upper())
    return LETTERS[place] if 0 <= place < most else None


def _first_of(letters: list[str], signs: list[str]) -> str | None:
    """Return the best text of an order such as A>B=C or C<A, "tie" where two share the first place.

    None where the signs contradict each other.
    """
    characters = {*"".join(signs)}
    is_rising = not characters.isdisjoint("<≺")
    is_falling = not characters.isdisjoint(">≻")
    if is_rising and is_falling:
        return None
    sign_of_best = signs[-1] if is_rising else signs[0]
    if sign_of_best[0] in "=~≈":
        return TIE
    return letters[-1] if is_rising else letters[0]


# --- Agreement


def is_binary(labels: Iterable[str]) -> bool:
    """Whether labels say accepted or not, and nothing finer."""
    words = {*labels}
    return bool(words) and words <= {"accept", "reject"}


def compared(pairs: Iterable[Pair], *, binary: bool) -> list[Pair]:
    """Return labels and verdicts as they are compared: of a binary label an improve is a reject."""
    if not binary:
        return list(pairs)
    return [(label, "reject" if said == "improve" else said) for label, said in pairs]


def agrees(label: str, said: str, *, binary: bool) -> bool:
    return compared([(label, said)], binary=binary) == [(label, label)]


@dataclass
class LeftOut:
    """Labels that are not compared: blank ones, those that are not understood, one of which is `example`.

    `texts` are rows whose text is blank; `unasked` have no verdict for another reason, of which one is `why`.
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
        """Count rows about which no model was asked, by why."""
        self.unasked += len(reasons)
        if reasons and not self.why:
            self.why = reasons[0]

    def told(self) -> str:
        """Return what was left out, in one line; "" where nothing was."""
        parts = []
        if self.blank:
            parts.append(counted(self.blank, "blank label", "blank labels"))
        if self.unknown:
            what = counted(self.unknown, "label that is", "labels that are")
            parts.append(f"{what} not understood, such as {self.example!r}")
        if self.texts:
            parts.append(counted(self.texts, "row with a blank text", "rows with a blank text"))
        if self.unasked:
            what = counted(self.unasked, "row that cannot", "rows that cannot")
            parts.append(f"{what} be judged ({self.why})")
        return ", ".join(parts)


def agreement(pairs: Mapping[Pair, int]) -> tuple[int, int, LeftOut]:
    """Return how many labels agree, how many were compared, and what was left out.

    `pairs` counts labels (`key_of`; of comparisons a letter or "tie", where that is known) with the verdict
    of the row. Of rows without a verdict no label is compared. Raises `UsageError` as the readings do.
    """
    counts = Counter[str]()
    verdicts = set()
    for (key, said), count in pairs.items():
        counts[key] += count
        verdicts.add(said)
    letters = sorted(verdicts.intersection(LETTERS))
    if letters or TIE in verdicts:
        most = LETTERS.index(letters[-1]) + 1 if letters else LEAST_TEXTS
        word_by_key = read_winners(counts, max(most, LEAST_TEXTS))
    else:
        word_by_key = read_outcomes(counts)
    meaningful = Counter[tuple[str, str]]()
    for (key, said), count in pairs.items():
        label = word_by_key.get(key)
        if label is not None:
            meaningful[label, said] += count
    binary = is_binary(label for label, _ in meaningful)
    agreed = 0
    decided = 0
    for (label, said), count in meaningful.items():
        if said in UNDECIDED:
            continue
        decided += count
        if agrees(label, said, binary=binary):
            agreed += count
    left_out = LeftOut(blank=counts[BLANK])
    for key, count in counts.items():
        if key != BLANK and key not in word_by_key:
            left_out.add_unknown(key.removeprefix(NOT_UNDERSTOOD), count)
    return agreed, decided, left_out
