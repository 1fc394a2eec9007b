"""Who is ahead when subjects are scored: means over all that was said, and who is near enough to go on.

Pure: `judgekit.judging.ranking` asks the models, `judgekit.calibrate.margins` learns the margins.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from judgekit.judging.jury import has_quorum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from judgekit.rubric import ModeName, Scale, ScoreRubric, TierName

Key = TypeVar("Key")
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


def values(
    said: Mapping[Key, Scored],
    letters: Iterable[str],
    asked: int | None = None,
    weight: Callable[[Key], float] = lambda _: 1.0,
) -> dict[str, float] | None:
    """Return the mean score of each subject over what models said; None where one cannot be known.

    A model counts when it scored every one of `letters`: its leniency must not fall on some of them alone.
    Where `asked` says of how many models this is, more than half of them must count. `weight` says how much
    each score of a model weighs.
    """
    among = list(letters)
    whole = [(weight(key), each) for key, each in said.items() if all(each.get(letter) for letter in among)]
    if not whole or (asked is not None and not has_quorum(len(whole), asked)):
        return None
    return {
        letter: _mean([(share, point) for share, own in whole for point in own[letter]]) for letter in among
    }


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
