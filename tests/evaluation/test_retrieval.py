"""Retrieval and its measures, by hand and by their laws; statistics against another implementation."""

from __future__ import annotations

import itertools
import json
import random
import re
from contextlib import closing
from math import isclose, log2, sqrt
from pathlib import Path
from statistics import mean as average
from statistics import pstdev
from typing import TYPE_CHECKING, NamedTuple

import pytest

from judgekit.errors import InputError, UsageError
from judgekit.evaluation import retrieval, stats
from judgekit.evaluation.cases import CollectionDocument
from judgekit.evaluation.cases import read_collection as read
from judgekit.evaluation.retrieval import (
    SearchableCollection,
    Seen,
    get_scope,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
    split_by_injection,
)
from judgekit.evaluation.stats import (
    Bin,
    LabelGroup,
    Measure,
    bin_probabilities,
    brier,
    difference,
    ece,
    group_by_label,
    interval,
    intervals,
    mean,
)
from judgekit.hooks import claude_code
from judgekit.ledger.rates import Interval
from judgekit.retrieval import index_file
from judgekit.retrieval.compiled import KINDS, Profiles, get_bundled_data
from judgekit.retrieval.confidence import PROMPT_POOL, Candidate
from judgekit.retrieval.profiles import compile_profiles

if TYPE_CHECKING:
    from judgekit.evaluation.stats import Pair
    from judgekit.retrieval.compiled import Profile


DOCUMENTS = {
    "one/kettle": ("Kettle", "Water boils in the copper kettle at noon."),
    "one/train": ("Train", "The night train to Lisbon leaves from platform nine."),
    "one/garden": ("Garden", "Tomatoes grow along the southern wall of the garden."),
    "two/kettle": ("Kettle drums", "Two kettle drums stand behind the strings."),
    "two/opera": ("Opera", "The opera opens with an overture for strings."),
    "three/moon": ("Moon", "The moon hides behind clouds."),
}
ASKED = {
    "one/q1": "copper kettle",
    "one/q2": "night train to Lisbon",
    "two/q1": "strings of the overture",
    "two/q2": "zeppelin",
    "four/q1": "kettle",
}
JUDGEMENTS = [
    ("one/q1", "one/kettle", 2),
    ("one/q2", "one/train", 1),
    ("two/q1", "two/opera", 2),
    ("two/q1", "two/kettle", 1),
    ("two/q2", "two/opera", 0),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    documents = [
        {"id": name, "title": title, "text": text} for name, (title, text) in DOCUMENTS.items()
    ]
    queries = [{"id": name, "text": text, "kind": "test"} for name, text in ASKED.items()]
    for name, items in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        (tmp_path / name).write_text("".join(json.dumps(item) + "\n" for item in items))
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in JUDGEMENTS)]
    (tmp_path / "qrels.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.fixture
def profile() -> Profile:
    return Profiles(get_bundled_data()).by_kind[KINDS[0]]


def write_store(root: Path, documents: list[CollectionDocument]) -> None:
    (root / "decisions").mkdir(parents=True)
    for document in documents:
        record = {"title": document.title, "content": {"decision": document.text}}
        (root / "decisions" / f"{document.id}.json").write_text(json.dumps(record))


def value(figure: Interval | None) -> float | None:
    return None if figure is None else figure.value


GRADES = {"a": 3, "b": 2, "c": 0, "d": 1, "e": -1}
IDEAL = 3 + 2 / log2(3) + 1 / log2(4)


def test_measures_by_hand() -> None:
    rows: list[tuple[list[str], int, float]] = [
        (["a", "b", "c", "d", "e"], 5, (3 + 2 / log2(3) + 1 / log2(5)) / IDEAL),
        (["b", "a"], 2, (2 + 3 / log2(3)) / (3 + 2 / log2(3))),
        (["x", "y", "a"], 3, (3 / log2(4)) / IDEAL),
        (
            ["d"],
            1,
            1 / 3,
        ),  # with exponential gains a grade of 3 would be worth seven times one of 1
        (["e", "a"], 2, (3 / log2(3)) / (3 + 2 / log2(3))),
        ([], 10, 0.0),
    ]
    for ranking, k, expected in rows:
        assert ndcg(ranking, GRADES, k) == pytest.approx(expected), ranking
    table: list[tuple[list[str], int, list[float]]] = [
        (["c", "x", "d", "a"], 3, [1 / 3, 1 / 3, 1 / 3]),
        (["c", "x", "d", "a"], 4, [2 / 3, 2 / 4, 1 / 3]),
        (["a"], 10, [1 / 3, 1 / 10, 1.0]),
        ([], 3, [0.0, 0.0, 0.0]),
    ]
    for ranking, k, figures in table:
        found = [
            recall(ranking, GRADES, k),
            precision(ranking, GRADES, k),
            reciprocal_rank(ranking, GRADES),
        ]
        assert found == pytest.approx(figures), ranking


# What the hook would add

JUDGED = {"q1": {"a": 2, "b": 1}, "q2": {"a": 1}, "q3": {"a": 0}}


def hit(name: str, confidence: float) -> Candidate:
    made = Candidate(
        name, name, "decision", tags=(), updated=0.0, root="", place=name, kind="claude-memory"
    )
    made.confidence, made.bm25 = confidence, confidence
    made.confidence_label = (
        "high" if confidence >= 0.5 else "medium" if confidence >= 0.3 else "low"
    )
    made.worth_mentioning = confidence >= 0.15
    return made


def hits(text: str) -> list[Candidate]:
    """Return candidates from text such as `a.9 b.4`: a name of one letter and a confidence."""
    return [hit(each[0], float(each[1:])) for each in text.split()]


def seen(query: str, text: str, elsewhere: str | None = None, ranking: str = "") -> Seen:
    found = hits(text)
    ids = list(ranking) or [candidate.id for candidate in found]
    return Seen(query, ids, found, None if elsewhere is None else hits(elsewhere))


def test_metrics_are_means_over_the_judged_queries() -> None:
    rankings = [seen("q1", "", ranking="ba"), seen("q2", ""), seen("q3", "", ranking="a")]
    found = retrieval.average_metrics([*rankings, seen("nobody", "a.9")], JUDGED)
    gain = (1 + 2 / log2(3)) / (2 + 1 / log2(3)) / 3
    expected = {"nDCG@10": gain, "R@10": 1 / 3, "P@3": (2 / 3) / 3, "MRR": 1 / 3}
    assert {name: value(figure) for name, figure in found.items()} == pytest.approx(expected)
    assert set(retrieval.average_metrics([seen("nobody", "a.9")], JUDGED).values()) == {None}


def test_confidence_counts_the_hits_that_a_search_lists() -> None:
    many = " ".join(f"{name}.2" for name in "cdefghijklmn")
    found = retrieval.measure_confidence([seen("q1", "a.9 b.4"), seen("nobody", many)], JUDGED)
    assert found.hits == 2 + 10
    bins = [(each.low, each.count, each.relevant) for each in found.bins]
    assert bins == [(0.2, 10, 0.0), (0.4, 1, 1.0), (0.9, 1, 1.0)]
    assert [(each.label, each.count) for each in found.labels] == [
        ("high", 1),
        ("medium", 1),
        ("low", 10),
    ]
    assert found.brier == pytest.approx((0.1**2 + 0.6**2 + 10 * 0.2**2) / 12)
    assert found.ece == pytest.approx((0.1 + 0.6 + 10 * 0.2) / 12)


def test_injection_by_hand() -> None:
    prompts = [
        seen("q1", "a.9 b.8 c.7 d.6 e.2"),  # two of three are right; a fourth is only mentioned
        seen("q2", "b.9 a.4"),  # the right one is only mentioned
        seen("q3", "a.4"),
        seen("nobody", "x.1"),
    ]
    found = retrieval.measure_injection(prompts, JUDGED)
    assert (found.prompts, found.answerable) == (4, 2)
    figures = (found.injected, found.nudged, found.precision, found.coverage)
    assert [value(figure) for figure in figures] == [0.5, 0.75, 0.5, 0.5]
    nothing = retrieval.measure_injection([seen("q1", "a.4")], JUDGED)
    assert (nothing.precision, value(nothing.coverage)) == (None, 0.0)
    assert retrieval.measure_other_scope([seen("q1", "a.9")]) is None
    other = retrieval.measure_other_scope(
        [seen("q1", "", "a.9"), seen("q2", "", "a.2"), seen("q3", "a.9")]
    )
    assert other is not None
    assert (other.prompts, value(other.injected), value(other.nudged)) == (2, 0.5, 0.5)


NOTES = {  # all of different length, so that no two score the same
    "kettle": "The copper kettle stands on the stove.",
    "train": "The night train to Lisbon.",
    "harbour": "A lantern hangs over boats and nets in the harbour.",
    "garden": "The garden wall.",
    "lantern": "The copper lantern of the garden, dented, green and old.",
    "lantern-two": "Another lantern with a crack.",
    "lantern-three": "Lanterns of paper, oil and glass, bought at markets in spring.",
    "lantern-four": "A lantern for ships: red, heavy, rusty, older than anybody remembers, unlit since.",
}
PROMPTS = [
    "copper kettle on the stove",
    "lantern lantern lantern",
    "what about the garden wall and the copper lantern in the harbour?",
    "nothing of this kind",
]
LABELS = [
    "",
    "labels: {high: 0.0001, medium: 0.0001, mention: 0.0001}",
    "labels: {high: 1, medium: 1, mention: 0}",
]


@pytest.mark.parametrize("labels", LABELS, ids=["as shipped", "all high", "none high"])
def test_the_hook_tells_the_same(tmp_path: Path, labels: str) -> None:
    documents = [CollectionDocument(id=name, title=name, text=text) for name, text in NOTES.items()]
    write_store(tmp_path / ".claude" / "memory", documents)
    own = tmp_path / ".judgekit" / "retrieval" / "claude-memory.yaml"
    own.parent.mkdir(parents=True)
    shipped = (Path(__file__).parents[2] / "retrieval" / own.name).read_text(encoding="utf-8")
    own.write_text(
        re.sub(r"(?m)^labels: .*$", labels, shipped) if labels else shipped, encoding="utf-8"
    )
    profile = Profiles(compile_profiles(tmp_path)).by_kind["claude-memory"]
    for prompt in PROMPTS:
        text, notes = claude_code.answer_prompt({"prompt": prompt, "cwd": str(tmp_path)})
        with closing(SearchableCollection(documents, profile)) as store:
            injected, mentioned = split_by_injection(store.find_candidates(prompt, PROMPT_POOL))
        assert notes == []
        if labels and prompt != PROMPTS[-1]:
            assert injected if labels == LABELS[1] else mentioned
        assert re.findall(r"([\w-]+)\.json", text) == [candidate.id for candidate in injected]
        assert ("<memory-nudge>" in text) == bool(mentioned)


def test_with_scopes_a_query_searches_its_own_and_the_next(folder: Path, profile: Profile) -> None:
    collection = read(folder)
    everything = {seen.query_id: seen for seen in retrieval.search(collection, profile)}
    assert set(everything["one/q1"].ranking) == {"one/kettle", "two/kettle"}
    assert everything["four/q1"].ranking
    assert {seen.other_scope_hits for seen in everything.values()} == {None}
    among = retrieval.search(collection, profile, scoped=True)
    found = {seen.query_id: seen for seen in among}
    assert (found["one/q1"].ranking, found["four/q1"].ranking) == (["one/kettle"], [])
    elsewhere = {
        query: [hit.id for hit in seen.other_scope_hits or ()] for query, seen in found.items()
    }
    assert elsewhere["one/q1"] == elsewhere["two/q1"] == []  # three/ comes after one/
    assert elsewhere["four/q1"] == ["one/kettle"]


def test_any_text_may_be_searched(
    folder: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SearchableCollection(read(folder).documents, profile)) as store:
        for text in ("", "the", '"', "NEAR(", "\ud800", "\0"):
            assert store.rank_documents(text, 10) == []
        # Ids are not searched.
        assert store.rank_documents("garden one", 10) == ["one/garden"]
    odd = CollectionDocument(id="odd", title="a\0b", text="")
    plain = CollectionDocument(id="plain", title="", text="harbour\0lantern")
    with closing(SearchableCollection([odd, plain], profile)) as store:
        assert store.rank_documents("lantern", 10) == ["plain"]
    monkeypatch.setattr(index_file, "has_full_text_search", lambda: False)
    with pytest.raises(UsageError, match="no full-text search"):
        SearchableCollection([], profile)


HEADER = "query-id\tcorpus-id\tscore\n"


def test_reads_what_programs_write(folder: Path) -> None:
    collection = read(folder)
    assert (collection.name, collection.stray_count) == (folder.name, 0)
    assert [document.id for document in collection.documents][:2] == ["one/kettle", "one/train"]
    assert (collection.documents[0].title, collection.queries[0].text) == (
        "Kettle",
        "copper kettle",
    )
    assert collection.grades["two/q1"] == {"two/opera": 2, "two/kettle": 1}
    assert read(folder, scoped=True) == collection
    path = folder / "qrels.tsv"
    with path.open("a") as file:
        file.write("one/q1\tone/gone\t1\nnobody\tone/train\t1\n")
    assert read(folder).stray_count == 2  # of what is not there
    text = '\n{"id": "a", "text": "x\u2028y\x85z"}\r\n\n'
    (folder / "corpus.jsonl").write_text(text, encoding="utf-8")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    found = read(folder)
    assert [(each.id, each.title, each.text) for each in found.documents] == [
        ("a", "", "x\u2028y\x85z")
    ]
    assert found.grades["one/q2"] == {"one/train": 1}


@pytest.mark.parametrize(
    ("name", "text", "where", "expected"),
    [
        ("corpus.jsonl", "", "", "empty; expected one JSON object a line"),
        (
            "corpus.jsonl",
            '{"id": "a", "text": "x"}\n{"id": "a"}\n',
            ":2",
            "text: missing key; add it",
        ),
        ("corpus.jsonl", '{"id": "a", "text": "x"}\n' * 2, ":2", "id: 'a' is there twice"),
        ("corpus.jsonl", '\n\n{"id": "a", "text"\n', ":3", "not valid JSON (EOF while parsing"),
        ("qrels.tsv", "", ":1", "expected the header query-id corpus-id score, separated by tabs"),
        ("qrels.tsv", f"{HEADER}one/q1 one/kettle 1\n", ":2", "separated by tabs, got 1 fields"),
        ("qrels.tsv", f"{HEADER}a\tb\t1\na\tc\thigh\n", ":3", "characters, got 'high'"),
        ("qrels.tsv", f"{HEADER}a\tb\t{'9' * 5000}\n", ":2", "999…"),
        ("qrels.tsv", f"{HEADER}a\tb\t٣\n", ":2", "score: expected a whole number"),
        ("qrels.tsv", f"{HEADER}a\tb\t1\na\tb\t2\n", ":3", "a b: is there twice"),
    ],
)
def test_a_wrong_file_is_one_line(
    folder: Path, name: str, text: str, where: str, expected: str
) -> None:
    (folder / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / name}{where}: ")
    assert (expected in message, "\n" in message) == (True, False)
    assert len(message) < len(str(folder)) + 200


def test_what_cannot_be_read_names_what_belongs_there_and_ids_their_scope(folder: Path) -> None:
    assert [get_scope(each) for each in ("a/b", "a/b/c", "a", "/a")] == ["a", "a", "a", ""]
    for name, wrong in (("queries.jsonl", "bare/"), ("corpus.jsonl", "bare")):
        (folder / name).write_text(json.dumps({"id": wrong, "text": "x"}) + "\n")
        with pytest.raises(InputError, match=rf"{name}: id: expected SCOPE/NAME, got 'bare"):
            read(folder, scoped=True)
    (folder / "queries.jsonl").write_bytes(
        b'{"id": "a", "text": "x"}\n{"id": "b", "text": "\xff"}\n'
    )
    with pytest.raises(InputError, match=r"queries\.jsonl:\d+: not UTF-8"):
        read(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(
        InputError, match=r"expected a folder with corpus\.jsonl, queries\.jsonl and qrels"
    ):
        read(folder)


def exact_value(figure: Interval | None) -> float:
    assert figure is not None
    return figure.value


def sample(size: int, chance: float, seed: int = 1) -> list[float]:
    generator = random.Random(seed)
    return [float(generator.random() < chance) for _ in range(size)]


@pytest.mark.slow
def test_bounds_are_the_normal_ones_reproducible_and_cover_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = sample(400, 0.3)
    found = interval(mean(values))
    assert found is not None
    error = 1.96 * pstdev(values) / sqrt(len(values))
    assert found.value == average(values)
    assert isclose(found.low, found.value - error, abs_tol=0.006)
    assert isclose(found.high, found.value + error, abs_tol=0.006)
    assert interval(mean(values)) == found
    monkeypatch.setattr(stats, "RESAMPLES", 300)
    many = [interval(mean(sample(100, 0.4, seed))) for seed in range(200)]
    assert (
        0.90
        <= sum(each is not None and each.low <= 0.4 <= each.high for each in many) / 200
        <= 0.985
    )


def test_measures_are_drawn_together_and_paired() -> None:
    values = sample(60, 0.5)
    found = intervals({"one": mean(values), "two": mean([2 * value for value in values])})
    one, two = found["one"], found["two"]
    assert one is not None
    assert two is not None
    assert (two.value, two.low, two.high) == (2 * one.value, 2 * one.low, 2 * one.high)
    apart = difference([each + 0.01 for each in values], values)
    assert apart is not None
    assert [apart.low, apart.high] == pytest.approx([0.01, 0.01])
    # A ratio of sums weighs queries by what they had.
    assert interval(Measure([3, 0, 0], [3, 1, 0])) == Interval(0.75, 0.0, 1.0)
    assert interval(Measure([], [])) is interval(Measure([0, 0], [0, 0])) is None
    with pytest.raises(ValueError, match=r"the same queries, got \[2, 3\]"):
        intervals({"a": mean([1, 2]), "b": mean([1, 2, 3])})


PROBABILITIES = [0.05, 0.1, 0.15, 0.95, 1.0, 0.5]
OUTCOMES = [False, True, False, True, True, False]


def test_reliability_by_hand() -> None:
    expected = (0.05**2 + 0.9**2 + 0.15**2 + 0.05**2 + 0 + 0.5**2) / 6
    assert brier(PROBABILITIES, OUTCOMES) == pytest.approx(expected)
    assert ece(PROBABILITIES, OUTCOMES) == pytest.approx((0.05 + 2 * 0.375 + 0.5 + 2 * 0.025) / 6)
    found = bin_probabilities(PROBABILITIES, OUTCOMES)
    bins = [(each.low, each.high, each.count) for each in found]
    assert bins == [(0.0, 0.1, 1), (0.1, 0.2, 2), (0.5, 0.6, 1), (0.9, 1.0, 2)]
    assert found[1::2] == [Bin(0.1, 0.2, 2, 0.125, 0.5), Bin(0.9, 1.0, 2, 0.975, 1.0)]
    groups = group_by_label(["low", "high", "low"], [0.25, 0.75, 0.5], [False, True, True])
    assert groups == [LabelGroup("high", 1, 0.75, 1.0), LabelGroup("low", 2, 0.375, 0.5)]
    assert (brier([], []), ece([], []), bin_probabilities([], []), group_by_label([], [], [])) == (
        None,
        None,
        [],
        [],
    )


def pairs_of(counts: dict[Pair, int]) -> list[Pair]:
    return [pair for pair, count in counts.items() for _ in range(count)]


class Known(NamedTuple):
    """A table of labels (down) and answers (across), and scikit-learn 1.9.1's figures for it.

    From `accuracy_score`, `cohen_kappa_score` (also with `weights="quadratic"`) and
    `precision_recall_fscore_support`.
    """

    words: str
    table: tuple[tuple[int, ...], ...]
    agreement: tuple[float, float, float]
    precision: tuple[float, ...]
    recall: tuple[float, ...]


ORACLE = (
    Known(
        "reject improve accept",
        ((23, 2, 3), (1, 13, 2), (1, 2, 13)),
        (0.8166666666666667, 0.717948717948718, 0.7268408551068883),
        (0.92, 0.764705882353, 0.722222222222),
        (0.821428571429, 0.8125, 0.8125),
    ),
    Known(
        "1 2 3 4 5",
        ((6, 2, 1, 0, 1), (1, 4, 1, 0, 2), (1, 0, 3, 1, 1), (0, 2, 0, 7, 0), (0, 1, 1, 1, 4)),
        (0.6, 0.4980392156862745, 0.562874251497006),
        (0.75, 0.444444444444, 0.5, 0.777777777778, 0.5),
        (0.6, 0.5, 0.5, 0.777777777778, 0.571428571429),
    ),
)


@pytest.mark.parametrize("known", ORACLE, ids=lambda known: known.words)
def test_figures_are_those_of_another_implementation(known: Known) -> None:
    words = known.words.split(" ")
    counts = dict(zip(itertools.product(words, words), itertools.chain(*known.table), strict=True))
    found = pairs_of(counts)
    agreement = (stats.accuracy(found), *stats.kappas(found))
    assert list(map(exact_value, agreement)) == pytest.approx(known.agreement, abs=1e-12)
    classes = stats.measure_words(found)
    assert [each.word for each in classes] == words
    assert [exact_value(each.precision) for each in classes] == pytest.approx(known.precision)
    assert [exact_value(each.recall) for each in classes] == pytest.approx(known.recall)
