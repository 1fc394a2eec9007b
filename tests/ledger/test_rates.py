"""How much of the good is refused, and of the bad let through, told from labels of a part."""

from __future__ import annotations

import random
from itertools import product
from math import comb
from typing import NamedTuple

import pytest

from judgekit.ledger import rates
from judgekit.ledger.rates import Stratum


class World(NamedTuple):
    """How content comes and is judged: shares of bad content, and of good and bad content by word."""

    bad: float
    missed: float
    refused: float
    unclear: float = 0.06

    def word(self, chance: random.Random, *, bad: bool) -> str:
        if chance.random() < self.unclear:
            return "UNDETERMINED"
        wrong = chance.random() < (self.missed if bad else self.refused)
        return "GO" if wrong == bad else "NO-GO"

    @property
    def false_negative(self) -> float:
        return self.missed * (1 - self.unclear)

    @property
    def false_positive(self) -> float:
        return self.refused * (1 - self.unclear)


def drawn(world: World, count: int, most: dict[str, float], chance: random.Random) -> list[Stratum]:
    """Return what `count` pieces of content come to, with up to `most` labels by word (below 1: a share)."""
    good: dict[str, list[bool]] = {"GO": [], "NO-GO": [], "UNDETERMINED": []}
    for _ in range(count):
        bad = chance.random() < world.bad
        good[world.word(chance, bad=bad)].append(not bad)
    found = []
    for word, each in good.items():
        wanted = most[word] if most[word] > 1 else round(most[word] * len(each))
        labels = chance.sample(each, min(len(each), int(wanted)))
        found.append(Stratum(word, len(each), len(labels), sum(labels)))  # type: ignore[arg-type]  # a word
    return found


# How many verdicts there are, and how many labels of GO, NO-GO and UNDETERMINED ones.
LABELLED = [
    (60, (20, 5, 2)),
    (200, (1, 1, 1)),  # all
    (250, (80, 30, 0)),
    (300, (3, 3, 0)),
    (120, (0.5, 0.9, 0.2)),
    (40, (1, 2, 2)),  # tiny strata
]
RUNS = 150


@pytest.mark.parametrize(("count", "labels"), LABELLED)
def test_the_interval_covers_the_rate_as_often_as_it_promises(count: int, labels: tuple[float, ...]) -> None:
    """In at least 93 of 100 draws, for each of many true rates, however few labels there are."""
    most = dict(zip(("GO", "NO-GO", "UNDETERMINED"), labels, strict=True))
    chance = random.Random(20)
    least = 1.0
    for bad, missed, refused in product((0.04, 0.4), (0.0, 0.02, 0.2), (0.0, 0.1, 0.4)):
        world = World(bad, missed, refused)
        covered = {"GO": 0, "NO-GO": 0}
        for _ in range(RUNS):
            strata = drawn(world, count, most, chance)
            for word, quality, true in (
                ("GO", "bad", world.false_negative),
                ("NO-GO", "good", world.false_positive),
            ):
                rate = rates.rate(strata, word, quality)  # type: ignore[arg-type]  # literals
                low, high = rate.interval or (0, 1)  # none says that nothing is known
                covered[word] += low <= true <= high
        least = min([least, *(each / RUNS for each in covered.values())])
    assert least >= 0.93


def test_the_estimate_is_scaled_to_the_strata() -> None:
    """By hand: 400 GO of which a tenth is labelled, 2 of 40 bad; all of 80 NO-GO labelled, 72 bad."""
    strata = [Stratum("GO", 400, 40, 38), Stratum("NO-GO", 80, 80, 8)]
    assert rates.rate(strata, "GO", "bad").estimate == pytest.approx(20 / (20 + 72))
    assert rates.rate(strata, "NO-GO", "good").estimate == pytest.approx(8 / (8 + 380))
    assert rates.rate(strata, "GO", "bad").labels == 120
    # Undetermined content is content.
    strata = [Stratum("GO", 10, 10, 8), Stratum("NO-GO", 10, 10, 2), Stratum("UNDETERMINED", 20, 10, 5)]
    assert rates.rate(strata, "GO", "bad").estimate == pytest.approx(2 / (2 + 8 + 10))


def test_without_labels_nothing_is_estimated() -> None:
    none = rates.rate([Stratum("GO", 100, 0, 0), Stratum("NO-GO", 20, 20, 0)], "GO", "bad")
    assert (none.estimate, none.interval) == (None, None)
    bounded = rates.rate([Stratum("GO", 100, 0, 0), Stratum("NO-GO", 30, 30, 30)], "NO-GO", "good")
    assert bounded.estimate is None
    assert bounded.interval is not None
    assert 0.1 < bounded.interval.low < 0.2308 < bounded.interval.high == 1.0
    assert rates.rate([], "GO", "bad").interval is None


def test_what_people_decided_by_themselves_is_no_sample() -> None:
    """Of 60 NO-GO people overrode 6; of a sample of 30 others all are right. The rate is that of 6."""
    strata = [
        Stratum("GO", 300, 100, 100),
        Stratum("NO-GO", 54, 30, 0),
        Stratum("NO-GO", 6, 6, 6, decided=True),
    ]
    rate = rates.rate(strata, "NO-GO", "good")
    assert rate.estimate == pytest.approx(6 / 306)
    pooled = rates.rate([strata[0], Stratum("NO-GO", 60, 36, 6)], "NO-GO", "good")
    assert pooled.estimate == pytest.approx(10 / 310)


@pytest.mark.parametrize("missed", [0, 4, 8])
def test_the_labels_that_are_wanted_settle_it(missed: int) -> None:
    given = [Stratum("GO", 900, 60, 60 - missed), Stratum("NO-GO", 200, 40, 0)]
    more = rates.wanted(given, "GO", "bad", 0.05)
    assert more is not None
    settled = [
        Stratum(stratum.word, stratum.verdicts, count, round(stratum.good / stratum.labels * count))
        for stratum in given
        for count in [stratum.labels + more.get(stratum.word, 0)]
    ]
    rate = rates.rate(settled, "GO", "bad")
    assert rate.interval is not None
    assert rate.estimate is not None
    if rate.estimate < 0.05:
        assert rate.interval.high <= 0.10
    else:
        assert rate.interval.low >= 0.05
    assert rates.wanted(settled, "GO", "bad", 0.05) == {}


def test_some_questions_no_label_settles() -> None:
    """Of five bad pieces of content nothing is told to a tenth."""
    assert rates.wanted([Stratum("GO", 100, 50, 50), Stratum("NO-GO", 5, 5, 0)], "GO", "bad", 0.05) is None
    close = [Stratum("GO", 900, 60, 59), Stratum("NO-GO", 200, 40, 0)]
    assert rates.wanted(close, "GO", "bad", 0.05) is None


# The first three as published: Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
WILSON = {
    (81, 263): (0.2553, 0.3662),
    (15, 148): (0.0624, 0.1605),
    (0, 20): (0.0, 0.1611),
    (1, 29): (0.0061, 0.1718),
    (20, 20): (0.8389, 1.0),
}


def test_wilson() -> None:
    for (hits, total), expected in WILSON.items():
        assert rates.share_interval(hits, total) == pytest.approx(expected, abs=5e-5)
    assert rates.share_interval(0, 0) is None
    assert rates.median_interval([1, 2, 3, 4, 5]) is None


def test_how_many_labels_without_an_error_make_sure() -> None:
    """What the guide promises: 73 right GO for 5 %, 35 right NO-GO for 10 %."""
    for limit, enough in ((0.05, 73), (0.10, 35)):
        ends = [interval.high for n in (enough - 1, enough) if (interval := rates.share_interval(0, n))]
        assert ends[0] > limit > ends[1]


def test_the_ranks_of_the_median_cover_it() -> None:
    """The exact coverage of the two order statistics is at least 93 %."""
    for total in (6, 10, 25, 60, 101):
        interval = rates.median_interval(range(1, total + 1))
        assert interval is not None
        below, above = int(interval.low), int(interval.high)
        assert below + above == total + 1
        assert sum(comb(total, k) for k in range(below, above)) / 2**total >= 0.93
