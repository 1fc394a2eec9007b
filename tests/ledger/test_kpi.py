"""The measures over a ledger, and how sure the rates are that labels of a part tell."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from itertools import product
from math import comb
from typing import TYPE_CHECKING, Any

import pytest
from ledger_lines import NOW, content, label, round_of, verdict

from judgekit.ledger import Fault, ModeChange, PushRecord, kpi, rates
from judgekit.ledger.rates import Stratum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.judging.verdict import VerdictWord
    from judgekit.ledger import Record, VerdictLine
    from judgekit.ledger.kpi import Kpi, KpiName
    from judgekit.ledger.records import GateWord, LabelWord


def several(
    word: VerdictWord,
    count: int,
    days: float = 5,
    **changes: Any,  # noqa: ANN401 - any field of a verdict
) -> list[VerdictLine]:
    stem = f"{word}-{days}-{len(changes)}"
    return [
        verdict(
            word,
            days=days + number / 1000,
            name=f"{stem}-{number}",
            **content(f"{stem}-{number}"),
            **changes,
        )
        for number in range(count)
    ]


def labelled(verdicts: list[VerdictLine], words: list[LabelWord]) -> list[Record]:
    return [label(verdict_line, word) for verdict_line, word in zip(verdicts, words, strict=False)]


def measured(*records: Record) -> dict[KpiName, Kpi]:
    evidence = kpi.collect_evidence(records)
    return {
        each.name: each for each in [*kpi.measure_kpis(evidence), *kpi.measure_reliance(evidence)]
    }


def test_each_kpi_by_hand() -> None:
    go, nogo = several("accept", 14), [*several("reject", 2), *several("improve", 2)]
    unclear = [*several("escalate", 1, rounds=[round_of("accept")]), *several("undetermined", 1)]
    labels = [*labelled(go, ["go", "go", "no-go", "unsure"]), *labelled(nogo, ["no-go", "go"])]
    found = measured(*go, *nogo, *unclear, *labels)
    values = {
        name: (each.hit_count, each.sample_size)
        for name, each in found.items()
        if name != "latency"
    }
    assert values == {
        "false_positive_rate": (0, 5),
        "false_negative_rate": (0, 5),
        "wrong_nogo": (1, 2),
        "wrong_go": (1, 3),
        "go": (14, 20),
        "undetermined": (2, 20),
        "availability": (19, 20),
    }
    assert (found["latency"].value, found["latency"].sample_size) == (1.2, 20)


def test_a_label_of_a_verdict_that_was_used_again_counts_for_the_first() -> None:
    verdict_line, again = (
        verdict("reject", name="a", days=2),
        verdict("reject", name="b", gate=PushRecord(cached=True)),
    )
    other = verdict("reject", name="c", path="b.md", gate=PushRecord(cached=True))
    evidence = kpi.collect_evidence(
        [verdict_line, again, other, label(again, "go"), label(other, "go")]
    )
    assert [line.id for line in evidence.verdicts] == ["a"]
    assert evidence.labels["a"] == "go"
    (wrong, _) = kpi.measure_reliance(evidence)
    assert (wrong.hit_count, wrong.sample_size) == (1, 1)
    taken_back = [label(verdict_line, "go"), label(again, "withdrawn", after=60)]
    assert kpi.collect_evidence([verdict_line, again, *taken_back]).labels["a"] == "withdrawn"


SAID: dict[str, list[tuple[str, LabelWord]]] = {
    "go": [("ann", "go")],
    "no-go": [("ann", "go"), ("ann", "no-go")],
    "withdrawn": [("ann", "go"), ("ann", "withdrawn")],
    "unsure": [("ann", "go"), ("bob", "no-go")],
    "go ": [("ann", "go"), ("bob", "no-go"), ("cleo", "go")],
    "go  ": [("ann", "go"), ("bob", "no-go"), ("bob", "withdrawn")],
}
STATES: dict[KpiName, list[tuple[int, int, str]]] = {
    "wrong_go": [
        (0, 72, "open"),
        (0, 73, "holds"),
        (3, 73, "open"),
        (8, 60, "missed"),
        (19, 19, "open"),
    ],
    "wrong_nogo": [(0, 35, "holds"), (9, 35, "missed")],
    "go": [(70, 100, "holds"), (91, 100, "open"), (99, 100, "missed"), (50, 100, "missed")],
    "undetermined": [(14, 100, "holds"), (15, 100, "open"), (30, 100, "missed")],
    "availability": [(96, 100, "holds"), (95, 100, "open"), (80, 100, "missed"), (3, 3, "open")],
}


def test_the_last_word_of_each_person_and_the_majority() -> None:
    line = verdict(name="a")
    for agreed, said in SAID.items():
        labels = [label(line, word, who, after=hour) for hour, (who, word) in enumerate(said)]
        assert kpi.find_majority_labels(reversed(labels)) == {"a": agreed.strip()}, said


def test_states() -> None:
    for name, cases in STATES.items():
        found = [
            (hits, total, kpi.make_share_kpi(name, hits, total).state) for hits, total, _ in cases
        ]
        assert found == cases, name
    for seconds, state in ((29, "holds"), (30, "open"), (31, "missed")):
        assert (
            measured(*several("accept", 20, duration_ms=seconds * 1000))["latency"].state == state
        )


GO = several("accept", 130, days=20)
NOGO = [*several("reject", 20, days=3), *several("improve", 18, days=2)]


def test_so_many_labels_more_as_a_line_asks_for_settle_it() -> None:
    found = kpi.assess_readiness([*GO, *NOGO], None, NOW)
    (line,) = [each for each in found.unmet_needs if "false-negative" in each]
    assert (
        f"label {found.missing_labels_by_word['GO']} more GO verdicts and 9 more NO-GO verdicts"
        in line
    )
    said = [
        *labelled(GO, ["go"] * found.missing_labels_by_word["GO"]),
        *labelled(NOGO, ["no-go"] * found.missing_labels_by_word["NO-GO"]),
    ]
    assert kpi.assess_readiness([*GO, *NOGO, *said], None, NOW).unmet_needs == []
    assert kpi.assess_readiness([*GO, *NOGO, *said[8:]], None, NOW).unmet_needs != []


BAD_NOGO = several("reject", 30, days=4)
BAD = [*BAD_NOGO, *labelled(BAD_NOGO[:24], ["go"] * 24), *labelled(BAD_NOGO[24:], ["no-go"] * 6)]
FINE_GO = several("accept", 120, days=4)
FINE = [*FINE_GO, *labelled(FINE_GO, ["go"] * 40)]
LONG_AGO = several("reject", 30, days=40)
UNJUDGED = Fault(problem="x", paths=[f"{number}.md" for number in range(200)])
NO_EVIDENCE: dict[str, list[Record]] = {
    "nothing": [],
    "no labels": [*FINE, *BAD_NOGO],
    "few labels": [*FINE, *BAD_NOGO, *labelled(BAD_NOGO, ["go"] * 3)],
    "a bad hour": [*several("undetermined", 3)],
    "long ago": [*FINE, *LONG_AGO, *labelled(LONG_AGO, ["go"] * 30)],
    "all is well": [*several("accept", 200)],
    "all is rejected": [*several("reject", 200)],
    "nobody answers": [*several("undetermined", 200, duration_ms=90_000), UNJUDGED],
}


def test_enough_wrong_verdicts_take_the_gate_back_to_advisory_and_a_lack_of_evidence_does_not() -> (
    None
):
    (why,), told = kpi.find_missed_rates([*FINE, *BAD], "kls@1.0.0", NOW)
    assert not told
    assert why.startswith("false-positive rate ")
    for name, records in NO_EVIDENCE.items():
        assert not kpi.find_missed_rates(records, None, NOW)[0], name
    assert not kpi.find_missed_rates([*FINE, *BAD], "kls@2.0.0", NOW)[0], (
        "another rubric's errors do not count"
    )
    # Nor does evidence from before the last promotion.
    promoted = ModeChange(mode="blocking", forced=True, timestamp=NOW - timedelta(days=3))
    returned = ModeChange(mode="advisory", timestamp=NOW - timedelta(days=1))
    assert not kpi.find_missed_rates([*FINE, *BAD, promoted], None, NOW)[0]
    early = promoted.model_copy(update={"timestamp": NOW - timedelta(days=10)})
    assert kpi.find_missed_rates([*FINE, *BAD, early], None, NOW)[0]
    assert kpi.find_missed_rates([returned, *FINE, *BAD, early], None, NOW)[1]


WORDS: tuple[GateWord, ...] = ("GO", "NO-GO", "UNDETERMINED")
UNCLEAR = 0.06  # the share of all content that gets UNDETERMINED
# How many verdicts there are, and how many labels of GO, NO-GO and UNDETERMINED ones (up to 1: a share).
LABELLED: list[tuple[int, tuple[float, ...]]] = [
    (60, (20, 5, 2)),
    (200, (1, 1, 1)),  # all
    (250, (80, 30, 0)),
    (300, (3, 3, 0)),
    (120, (0.5, 0.9, 0.2)),
    (40, (1, 2, 2)),  # tiny strata
]
RUNS = 150


def drawn(
    bad: float, wrong: Sequence[float], count: int, most: Sequence[float], chance: random.Random
) -> list[Stratum]:
    """Draw `count` verdicts with labels, by stratum; `wrong` is how often good and bad ones are misjudged."""
    good: dict[GateWord, list[bool]] = {word: [] for word in WORDS}
    for _ in range(count):
        is_bad, unclear = chance.random() < bad, chance.random() < UNCLEAR
        word = WORDS[2 if unclear else (chance.random() < wrong[is_bad]) != is_bad]
        good[word].append(not is_bad)
    found = []
    for (word, each), labels in zip(good.items(), most, strict=True):
        sample = chance.sample(
            each, min(len(each), int(labels if labels > 1 else round(labels * len(each))))
        )
        found.append(Stratum(word, len(each), len(sample), sum(sample)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("count", "labels"), LABELLED)
def test_the_interval_covers_the_rate_as_often_as_it_promises(
    count: int, labels: tuple[float, ...]
) -> None:
    """In at least 93 of 100 draws, for each of many true rates, however few labels there are."""
    chance = random.Random(20)
    for bad, missed, refused in product((0.04, 0.4), (0.0, 0.02, 0.2), (0.0, 0.1, 0.4)):
        covered = [0, 0]
        for _ in range(RUNS):
            strata = drawn(bad, (refused, missed), count, labels, chance)
            for place, (true, rate) in enumerate(
                [
                    (missed, rates.estimate_rate(strata, "GO", "bad")),
                    (refused, rates.estimate_rate(strata, "NO-GO", "good")),
                ]
            ):
                # None says that nothing is known.
                low, high = rate.interval.bounds if rate.interval else (0, 1)
                covered[place] += low <= true * (1 - UNCLEAR) <= high
        assert min(covered) / RUNS >= 0.93, (bad, missed, refused)


def test_the_estimate_is_scaled_to_the_strata() -> None:
    """By hand: 400 GO, a tenth of them labelled, 2 of 40 bad; all of 80 NO-GO labelled, 72 bad."""
    strata = [Stratum("GO", 400, 40, 38), Stratum("NO-GO", 80, 80, 8)]
    assert rates.estimate_rate(strata, "GO", "bad").estimate == pytest.approx(20 / (20 + 72))
    assert rates.estimate_rate(strata, "NO-GO", "good").estimate == pytest.approx(8 / (8 + 380))
    assert rates.estimate_rate(strata, "GO", "bad").label_count == 120
    # Of 60 NO-GO people overrode 6, no sample; of a sample of 30 others all are right. The rate is that of 6.
    strata = [
        Stratum("GO", 300, 100, 100),
        Stratum("NO-GO", 54, 30, 0),
        Stratum("NO-GO", 6, 6, 6, is_overridden=True),
    ]
    assert rates.estimate_rate(strata, "NO-GO", "good").estimate == pytest.approx(6 / 306)
    pooled = [strata[0], Stratum("NO-GO", 60, 36, 6)]
    assert rates.estimate_rate(pooled, "NO-GO", "good").estimate == pytest.approx(10 / 310)
    # Undetermined content is content.
    strata = [
        Stratum("GO", 10, 10, 8),
        Stratum("NO-GO", 10, 10, 2),
        Stratum("UNDETERMINED", 20, 10, 5),
    ]
    assert rates.estimate_rate(strata, "GO", "bad").estimate == pytest.approx(2 / (2 + 8 + 10))


def test_the_labels_that_are_wanted_settle_it() -> None:
    for missed in (0, 4, 8):
        given = [Stratum("GO", 900, 60, 60 - missed), Stratum("NO-GO", 200, 40, 0)]
        more, settled = rates.count_wanted_labels(given, "GO", "bad", 0.05), list[Stratum]()
        assert more is not None
        for each in given:
            count = each.label_count + more.get(each.word, 0)
            settled.append(
                replace(
                    each,
                    label_count=count,
                    good_count=round(each.good_count / each.label_count * count),
                )
            )
        rate = rates.estimate_rate(settled, "GO", "bad")
        assert rate.interval is not None
        assert rate.estimate is not None
        assert rate.interval.high <= 0.10 if rate.estimate < 0.05 else rate.interval.low >= 0.05, (
            missed
        )
        assert rates.count_wanted_labels(settled, "GO", "bad", 0.05) == {}
    # Of five bad pieces of content nothing is told to a tenth.
    assert (
        rates.count_wanted_labels(
            [Stratum("GO", 100, 50, 50), Stratum("NO-GO", 5, 5, 0)], "GO", "bad", 0.05
        )
        is None
    )
    close = [Stratum("GO", 900, 60, 59), Stratum("NO-GO", 200, 40, 0)]
    assert rates.count_wanted_labels(close, "GO", "bad", 0.05) is None


# The first three as published: Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
WILSON = {
    (81, 263): (0.2553, 0.3662),
    (15, 148): (0.0624, 0.1605),
    (0, 20): (0.0, 0.1611),
    (1, 29): (0.0061, 0.1718),
    (20, 20): (0.8389, 1.0),
}


def test_the_intervals_of_a_share_and_of_a_median() -> None:
    for (hits, total), expected in WILSON.items():
        interval = rates.wilson_interval(hits, total)
        assert interval is not None
        assert interval.value == hits / total
        assert interval.bounds == pytest.approx(expected, abs=5e-5)
    assert rates.wilson_interval(0, 0) is rates.median_interval([1, 2, 3, 4, 5]) is None
    # The exact coverage of the two order statistics is at least 93 %.
    for total in (6, 10, 25, 60, 101):
        interval = rates.median_interval(range(1, total + 1))
        assert interval is not None
        below, above = int(interval.low), int(interval.high)
        assert below + above == total + 1
        assert sum(comb(total, k) for k in range(below, above)) / 2**total >= 0.93


# By model: under the name that is configured, whatever a reply calls itself


def of_model(*lines: VerdictLine) -> dict[str, int]:
    _, models = kpi.split_by_rubric_and_model(kpi.collect_evidence(lines))
    return {name: len(evidence.verdicts) for name, evidence in models.items()}


def answered(name: str, model: str, **more: Any) -> VerdictLine:  # noqa: ANN401 - any field
    rounds = [round_of("accept", model=model)]
    return verdict(name=name, model=model, rounds=rounds, **content(name), **more)


def failed(name: str, model: str) -> VerdictLine:
    return verdict("undetermined", name=name, rounds=[round_of(None, model=model)], **content(name))


def test_answers_and_failures_of_a_model_count_under_its_configured_name() -> None:
    asked = "proxy/our-judge"
    lines = [
        answered("a", "gpt-x", configured={"gpt-x": asked}),
        failed("b", asked),
        failed("c", asked),
    ]
    assert of_model(*lines) == {asked: 3}
    # An older line says only what the reply said; others have shown whose name that is.
    assert of_model(*lines, answered("d", "gpt-x")) == {asked: 4}
    elsewhere = answered("e", "gpt-x", configured={"gpt-x": "other/judge"})
    assert of_model(*lines, elsewhere) == {asked: 3, "other/judge": 1}


@pytest.mark.parametrize("replied", ["gpt-x", "gpt-x-2026-08-07", "gpt-x-20260807", "openai/gpt-x"])
def test_older_lines_join_the_only_name_that_they_can_belong_to(replied: str) -> None:
    lines = [answered("a", replied), failed("b", "openai/gpt-x")]
    assert of_model(*lines) == {"openai/gpt-x": 2}
    apart = [*lines, failed("c", "azure/gpt-x")]
    if replied != "openai/gpt-x":
        assert of_model(*apart) == {replied: 1, "openai/gpt-x": 1, "azure/gpt-x": 1}
    assert of_model(answered("a", "gpt-x-mini"), failed("b", "openai/gpt-x")) == {
        "gpt-x-mini": 1,
        "openai/gpt-x": 1,
    }
