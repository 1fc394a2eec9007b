"""Who is ahead when subjects are scored: means over all that was said, and who is near enough to go on.

Pure: the course of a comparison by these rules is that of `judgekit.judging.ranks`.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from judgekit.judging.jury import has_quorum

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from judgekit.names import ModeName, TierName
    from judgekit.rubric import Scale, ScoreRubric

Key = TypeVar("Key", bound="Hashable")
NEARLY = 1e-9  # two means of the same numbers may differ by so much
_PAIR = 2
QUICK_SHARE, DEEP_SHARE = 0.1, 0.05  # of the scale's length: the margins where no labels say better ones

Scored: TypeAlias = "Mapping[str, Sequence[float]]"
"""What one model gave to each subject, by letter: a mean of dimensions for each time it was asked."""

Margins: TypeAlias = "Mapping[TierName, float]"


def usual_margins(rubric: ScoreRubric) -> dict[TierName, float]:
    """Return the margins of a rubric where no labels say better ones, in points of its scale."""
    return default_margins(rubric.scale) | rubric.margins


def default_margins(scale: Scale) -> dict[TierName, float]:
    """Return the margins that hold without a calibration, in points of a scale."""
    length = scale.max - scale.min
    deep = DEEP_SHARE * length
    return {"quick": QUICK_SHARE * length, "deep": deep, "tiebreaker": deep}


def _itself(key: Hashable) -> Hashable:
    return key


def values(
    said: Mapping[Key, Scored],
    letters: Iterable[str],
    asked: int | None = None,
    kin: Callable[[Key], Hashable] = _itself,
) -> dict[str, float] | None:
    """Return the mean score of each subject over what models said; None where one cannot be known.

    A model counts when it scored every one of `letters`: its leniency must not fall on some of them alone.
    Where `asked` says of how many models this is, more than half of them must count. Those of one `kin`
    weigh together as much as one does, however many of them count.
    """
    among = list(letters)
    whole = {key: each for key, each in said.items() if is_whole(each, among)}
    if not whole or (asked is not None and not has_quorum(len(whole), asked)):
        return None
    sizes = Counter(kin(key) for key in whole)
    weighed = [(1 / sizes[kin(key)], each) for key, each in whole.items()]
    return {
        letter: _mean([(share, point) for share, own in weighed for point in own[letter]]) for letter in among
    }


def is_whole(scored: Scored, letters: Iterable[str]) -> bool:
    """Whether a model scored every one of the subjects."""
    return all(scored.get(letter) for letter in letters)


def _mean(weighed: Sequence[tuple[float, float]]) -> float:
    return fmean([point for _, point in weighed], [share for share, _ in weighed])


def contending(found: Mapping[str, float], margin: float) -> list[str]:
    """Return the subjects within `margin` of the best, the best first."""
    best = max(found.values())
    near = [each for each in found if found[each] >= best - margin - NEARLY]
    return sorted(near, key=lambda each: (-found[each], each))


def going_on(found: Mapping[str, float], margin: float, *, at_least: int = 1) -> list[str]:
    """Return who goes up a tier: the contending, and of the others the best until there are `at_least`."""
    near = contending(found, margin)
    rest = sorted(found.keys() - set(near), key=lambda each: (-found[each], each))
    return [*near, *rest[: max(0, at_least - len(near))]]


def next_up(found: Mapping[str, float], margin: float, *, trusted: bool, alone: bool) -> list[str]:
    """Return who goes up a tier: nobody but the best where its lead is `trusted`.

    Where one tier is `alone` and must not settle it, two go up at least.
    """
    if trusted:
        return contending(found, 0.0)[:1]
    return going_on(found, margin, at_least=_PAIR if alone else 1)


def lead(found: Mapping[str, float]) -> float:
    """Return by how much the best is ahead of the next."""
    first, second, *_ = sorted(found.values(), reverse=True)
    return first - second


def last_word(found: Mapping[str, float], margin: float, mode: ModeName) -> str | None:
    """Return the winner where nobody is left to be asked, None for a tie.

    In strict mode a lead within the margin is none; in lenient mode any lead wins.
    """
    near = contending(found, margin if mode == "strict" else 0.0)
    return near[0] if len(near) == 1 else None
