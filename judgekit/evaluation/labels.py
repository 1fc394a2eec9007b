"""What a label means: the outcome, the winner or the number that it names, and when a verdict agrees with it.

The one place that decides this for `report`, `eval judge`, `calibrate` and the summary of rows. The words are
in `labels.toml`. Labels without any "improve" say whether a text is accepted or not, and so verdicts are
compared with them: an improve is then not accepted. Beside an "improve" the words are compared.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from judgekit import environment
from judgekit.config import TIE
from judgekit.evaluation.stats import OUTCOMES, UNDECIDED
from judgekit.judging.documents import LETTERS
from judgekit.text import counted, short_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.config import Outcome
    from judgekit.evaluation.stats import Pair

_TABLE: dict[str, Any] = environment.table(__file__, "labels.toml")
_NAME_CHARS = 60
_ORDER_CHARS = 200
_SHOWN_CHARS = 40
_EXACT = 2**53  # above, a floating-point number is not every whole number
_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)


def plain(name: str) -> str:
    """Return a name as it is compared: case, blanks and signs play no part."""
    return re.sub(r"[\W_]+", "", name.casefold())


def _words_of(section: str) -> dict[str, str]:
    names = {}
    for name, words in _TABLE[section].items():
        names.update(dict.fromkeys(words.split(), name))
    return names


_OUTCOME_WORDS = _words_of("outcomes")
_OUTCOME_SIGNS = _words_of("signs")
_WINNER_WORDS: dict[str, str | None] = {**_words_of("winners")}
_BEFORE = "|".join(_TABLE["sides"]["before"].split())
_BEHIND = "|".join(_TABLE["sides"]["behind"].split())
_SIDE = re.compile(rf"(?:{_BEFORE})?([a-z]|\d\d?)(?:{_BEHIND})?", re.ASCII)
_ORDER = re.compile(r"\s*([>≻]+|[<≺]+|[=~≈]+)\s*")  # between texts, as in A>B

# What a label can be, beside an outcome.
BLANK = "blank"
NUMBER = "number"
UNKNOWN = "unknown"
_DIGITS = {"0": "reject", "1": "accept"}


# --- Ids


def id_of(value: object) -> str | int | None:
    """Return the id that a cell holds: text or a number; None for anything else, for a blank and for NaN.

    A whole number may have come as 17.0: pandas makes it one as soon as another row has none.
    """
    if isinstance(value, bool) or is_no_label(value):
        return None
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) < _EXACT else str(value)
    return value if isinstance(value, str | int) else None


def id_key(row_id: str | int) -> str:
    """Return an id as it is compared: 17, "17", "17.0" and " 17" are one, and so are NFC and NFD."""
    text = unicodedata.normalize("NFC", " ".join(str(row_id).split()))
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


# --- Outcomes


def outcome_of(value: object) -> Outcome | None:
    """Return the outcome that a label names in words; None where it names none."""
    if isinstance(value, bool):
        return "accept" if value else "reject"
    if not isinstance(value, str):
        return None
    text = value.strip()[:_NAME_CHARS]
    word = _OUTCOME_SIGNS.get(text) or _OUTCOME_WORDS.get(plain(text))
    return cast("Outcome | None", word)


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


def kind_of(value: object) -> str:
    """Return an outcome, "0", "1", `NUMBER`, `BLANK` or `UNKNOWN`: what a label is by itself.

    What 0 and 1 mean depends on the other labels; see `meanings`.
    """
    if is_no_label(value):
        return BLANK
    outcome = outcome_of(value)
    if outcome is not None:
        return outcome
    number = number_of(value)
    if number is None:
        return UNKNOWN
    if number in (0, 1):
        return f"{number:g}"
    return NUMBER


def are_scores(counts: Mapping[str, int]) -> bool:
    """Whether labels are scores, by how many there are of each kind: numbers, not all of them 0 or 1."""
    if not counts.get(NUMBER):
        return False
    numbers = sum(counts.get(kind, 0) for kind in (*_DIGITS, NUMBER))
    return numbers > sum(counts.get(word, 0) for word in OUTCOMES)


def meanings(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the outcome of each kind of label that names one, among so many labels of each kind."""
    words = dict(zip(OUTCOMES, OUTCOMES, strict=True))
    if not are_scores(counts):
        words |= _DIGITS
    return words


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

    `texts` are rows whose text is blank.
    """

    blank: int = 0
    unknown: int = 0
    example: str = ""
    texts: int = 0

    def add_unknown(self, value: object) -> None:
        self.unknown += 1
        if not self.example:
            self.example = short_line(str(value), _SHOWN_CHARS)

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
        return ", ".join(parts)


def agreement(pairs: Mapping[Pair, int], example: str = "") -> tuple[int, int, LeftOut]:
    """Return how many labels agree, how many were compared, and what was left out.

    `pairs` counts kinds of labels (`kind_of`; of comparisons a letter or "tie") with the verdict of the row;
    `example` is a label that is not understood. Of rows without a verdict no label is compared.
    """
    counts = Counter[str]()
    for (kind, _), count in pairs.items():
        counts[kind] += count
    label_by_kind = meanings(counts)
    for winner in (TIE, *LETTERS):
        label_by_kind[winner] = winner
    meaningful = Counter[tuple[str, str]]()
    for (kind, said), count in pairs.items():
        label = label_by_kind.get(kind)
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
    blank = counts[BLANK]
    unknown = counts.total() - blank - meaningful.total()
    return agreed, decided, LeftOut(blank=blank, unknown=unknown, example=example)
