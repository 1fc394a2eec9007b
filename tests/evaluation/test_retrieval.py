"""Retrieval, measured: the collection, measures by hand and by their laws, the hook, and the index."""

from __future__ import annotations

import json
import os
import re
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.config.settings import RetrievalConfig
from judgekit.environment import __version__
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import ndcg, precision, recall, reciprocal_rank, retrieval
from judgekit.evaluation.cases import CollectionDocument
from judgekit.evaluation.cases import read_collection as read
from judgekit.evaluation.retrieval import CollectionIndex, Seen, scope, told
from judgekit.evaluation.retrieval import check_run as check
from judgekit.evaluation.retrieval import write_run as write
from judgekit.hooks import claude_code
from judgekit.retrieval import index_file, search
from judgekit.retrieval.compiled import KINDS, Profiles, bundled
from judgekit.retrieval.confidence import Candidate
from judgekit.retrieval.profiles import compile_profiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.evaluation.stats import BootstrapInterval
    from judgekit.retrieval.compiled import Profile

DATA = Path(os.environ.get("JUDGEKIT_TEST_DATA", "/nonexistent")) / "retrieval"


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
    """Return a folder with the collection."""
    documents = [{"id": name, "title": title, "text": text} for name, (title, text) in DOCUMENTS.items()]
    queries = [{"id": name, "text": text, "kind": "test"} for name, text in ASKED.items()]
    for name, items in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        (tmp_path / name).write_text("".join(json.dumps(item) + "\n" for item in items))
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in JUDGEMENTS)]
    (tmp_path / "qrels.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.fixture
def profile() -> Profile:
    """Return the bundled profile of memory stores."""
    return Profiles(bundled()).by_kind[KINDS[0]]


def write_store(root: Path, documents: list[CollectionDocument]) -> None:
    """Write documents as the records of a memory store."""
    (root / "decisions").mkdir(parents=True)
    for document in documents:
        record = {"title": document.title, "content": {"decision": document.text}}
        (root / "decisions" / f"{document.id}.json").write_text(json.dumps(record))


def value(figure: BootstrapInterval | None) -> float | None:
    return None if figure is None else figure.value


# Measures

GRADES = {"a": 3, "b": 2, "c": 0, "d": 1, "e": -1}
IDEAL = 3 + 2 / log2(3) + 1 / log2(4)
IDS = [f"d{number}" for number in range(12)]
rankings = st.permutations(IDS).flatmap(
    lambda ids: st.integers(0, len(ids)).map(lambda length: list(ids[:length]))
)
judgements = st.dictionaries(st.sampled_from([*IDS, "elsewhere"]), st.integers(-1, 4))
cutoffs = st.integers(1, 15)
MEASURES: dict[str, Callable[[list[str], dict[str, int], int], float]] = {
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "mrr": lambda ranking, grades, _: reciprocal_rank(ranking, grades),
}


def test_measures_by_hand() -> None:
    rows: list[tuple[list[str], int, float]] = [
        (["a", "b", "d"], 3, 1.0),
        (["a", "b", "c", "d", "e"], 5, (3 + 2 / log2(3) + 1 / log2(5)) / IDEAL),
        (["b", "a"], 2, (2 + 3 / log2(3)) / (3 + 2 / log2(3))),
        (["x", "y", "a"], 2, 0.0),
        (["x", "y", "a"], 3, (3 / log2(4)) / IDEAL),
        (["d"], 10, 1 / IDEAL),
        (["d"], 1, 1 / 3),  # with exponential gains a grade of 3 would be worth seven times one of 1
        (["e", "a"], 2, (3 / log2(3)) / (3 + 2 / log2(3))),
        ([], 10, 0.0),
    ]
    for ranking, k, expected in rows:
        assert ndcg(ranking, GRADES, k) == pytest.approx(expected), ranking
    table: list[tuple[list[str], int, list[float]]] = [
        (["a", "b", "d"], 3, [1.0, 1.0, 1.0]),
        (["c", "x", "d", "a"], 3, [1 / 3, 1 / 3, 1 / 3]),
        (["c", "x", "d", "a"], 4, [2 / 3, 2 / 4, 1 / 3]),
        (["a"], 10, [1 / 3, 1 / 10, 1.0]),
        (["e", "c"], 2, [0.0, 0.0, 0.0]),
        ([], 3, [0.0, 0.0, 0.0]),
    ]
    for ranking, k, figures in table:
        found = [recall(ranking, GRADES, k), precision(ranking, GRADES, k), reciprocal_rank(ranking, GRADES)]
        assert found == pytest.approx(figures), ranking


@pytest.mark.parametrize("name", MEASURES)
@given(ranking=rankings, grades=judgements, k=cutoffs, at=st.integers(0, 10))
def test_laws_of_a_measure(name: str, ranking: list[str], grades: dict[str, int], k: int, at: int) -> None:
    measure = MEASURES[name]
    found = measure(ranking, grades, k)
    assert 0.0 <= found <= 1.0 + 1e-12
    # What nobody judged counts as not relevant, and nothing relevant gives 0.
    assert measure(ranking, dict.fromkeys(IDS, 0) | grades, k) == found
    assert measure(ranking, {each: min(grade, 0) for each, grade in grades.items()}, k) == 0.0
    if at + 1 < len(ranking):
        swapped = [*ranking[:at], ranking[at + 1], ranking[at], *ranking[at + 2 :]]
        first, second = (grades.get(each, 0) for each in ranking[at : at + 2])
        # A better document further up never costs, the order of equally good ones does not matter.
        assert first > second or measure(swapped, grades, k) >= found - 1e-12
        assert first != second or measure(swapped, grades, k) == found
    assert recall(ranking, grades, k) <= recall(ranking, grades, k + 1)
    if any(grade > 0 for grade in grades.values()):
        best = sorted(grades, key=lambda each: -grades[each])
        assert ndcg(best, grades, k) == pytest.approx(1.0)
        assert reciprocal_rank(best, grades) == 1.0


# What the hook would add

JUDGED = {"q1": {"a": 2, "b": 1}, "q2": {"a": 1}, "q3": {"a": 0}}


def hit(name: str, confidence: float) -> Candidate:
    made = Candidate(name, name, "decision", tags=(), updated=0.0, root="", place=name, kind="claude-memory")
    made.confidence, made.bm25 = confidence, confidence
    made.confidence_label = "high" if confidence >= 0.5 else "medium" if confidence >= 0.3 else "low"
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
    found = retrieval.metrics_of([*rankings, seen("nobody", "a.9")], JUDGED)
    gain = (1 + 2 / log2(3)) / (2 + 1 / log2(3)) / 3
    expected = {"nDCG@10": gain, "R@10": 1 / 3, "P@3": (2 / 3) / 3, "MRR": 1 / 3}
    assert {name: value(figure) for name, figure in found.items()} == pytest.approx(expected)
    assert set(retrieval.metrics_of([seen("nobody", "a.9")], JUDGED).values()) == {None}


def test_confidence_counts_the_hits_that_a_search_lists() -> None:
    many = " ".join(f"{name}.2" for name in "cdefghijklmn")
    found = retrieval.confidence_of([seen("q1", "a.9 b.4"), seen("nobody", many)], JUDGED)
    assert found.hits == 2 + 10
    bins = [(each.low, each.count, each.relevant) for each in found.bins]
    assert bins == [(0.2, 10, 0.0), (0.4, 1, 1.0), (0.9, 1, 1.0)]
    assert [(each.label, each.count) for each in found.labels] == [("high", 1), ("medium", 1), ("low", 10)]
    assert found.brier == pytest.approx((0.1**2 + 0.6**2 + 10 * 0.2**2) / 12)
    assert found.ece == pytest.approx((0.1 + 0.6 + 10 * 0.2) / 12)


def test_injection_by_hand() -> None:
    prompts = [
        seen("q1", "a.9 b.8 c.7 d.6 e.2"),  # two of three are right; a fourth is only mentioned
        seen("q2", "b.9 a.4"),  # what is right is only mentioned
        seen("q3", "a.4"),
        seen("nobody", "x.1"),
    ]
    found = retrieval.injection_of(prompts, JUDGED)
    assert (found.prompts, found.answerable) == (4, 2)
    figures = (found.injected, found.nudged, found.precision, found.coverage)
    assert [value(figure) for figure in figures] == [0.5, 0.75, 0.5, 0.5]
    nothing = retrieval.injection_of([seen("q1", "a.4")], JUDGED)
    assert (nothing.precision, value(nothing.coverage)) == (None, 0.0)
    assert retrieval.elsewhere_of([seen("q1", "a.9")]) is None
    other = retrieval.elsewhere_of([seen("q1", "", "a.9"), seen("q2", "", "a.2"), seen("q3", "a.9")])
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
    own.write_text(re.sub(r"(?m)^labels: .*$", labels, shipped) if labels else shipped, encoding="utf-8")
    profile = Profiles(compile_profiles(tmp_path)).by_kind["claude-memory"]
    for prompt in PROMPTS:
        text, notes = claude_code.answer({"prompt": prompt, "cwd": str(tmp_path)})
        injected, mentioned = told(CollectionIndex(documents, profile).candidates(prompt, retrieval.POOL))
        assert notes == []
        if labels and prompt != PROMPTS[-1]:
            assert injected if labels == LABELS[1] else mentioned
        assert re.findall(r"([\w-]+)\.json", text) == [candidate.id for candidate in injected]
        assert ("<memory-nudge>" in text) == bool(mentioned)


def test_the_hooks_limits_are_those_of_the_default_configuration() -> None:
    assert (RetrievalConfig().pool, RetrievalConfig().max_inject) == (retrieval.POOL, retrieval.MAX_INJECTED)
    injected, mentioned = told(hits("a.9 b.8 c.7 d.6 e.2 f.1"))
    assert [candidate.id for candidate in injected] == ["a", "b", "c"]
    assert [candidate.id for candidate in mentioned] == ["d", "e"]
    assert len(told([hit(str(place), 0.2) for place in range(20)])[1]) == retrieval.POOL


# Searching a collection


def test_with_scopes_a_query_searches_its_own_and_the_next(folder: Path, profile: Profile) -> None:
    collection = read(folder)
    everything = {seen.query: seen for seen in retrieval.search(collection, profile)}
    assert set(everything["one/q1"].ranking) == {"one/kettle", "two/kettle"}
    assert everything["four/q1"].ranking
    assert {seen.elsewhere for seen in everything.values()} == {None}
    among = retrieval.search(collection, profile, scoped=True)
    found = {seen.query: seen for seen in among}
    assert (found["one/q1"].ranking, found["four/q1"].ranking) == (["one/kettle"], [])
    elsewhere = {query: [hit.id for hit in seen.elsewhere or ()] for query, seen in found.items()}
    assert elsewhere["one/q1"] == elsewhere["two/q1"] == []  # three/ comes after one/
    assert elsewhere["four/q1"] == ["one/kettle"]
    # A scope alone gives the same as the scope among others.
    alone = collection._replace(
        documents=[document for document in collection.documents if document.id.startswith("one/")],
        queries=[query for query in collection.queries if query.id.startswith("one/")],
    )
    names = ["a", "b", "c"]
    assert [retrieval.following(name, names) for name in ("b", "c", "bb", "z")] == ["c", "a", "c", "a"]
    assert retrieval.following("a", ["a"]) is retrieval.following("a", []) is None
    for seen, other in zip(retrieval.search(alone, profile), among[:2], strict=True):
        assert seen.ranking == other.ranking
        rated = [[(hit.confidence, hit.bm25) for hit in each.candidates] for each in (seen, other)]
        assert rated[0] == rated[1]


def test_the_report_counts_what_there_is(folder: Path, profile: Profile) -> None:
    collection = read(folder)
    counts: list[int] = []
    seen = retrieval.search(collection, profile, scoped=True, progress=counts.append)
    report = retrieval.report(collection, profile, seen, scoped=True)
    assert counts == [1, 2, 3, 4, 5]
    assert (report.documents, report.scopes, report.queries, report.judged) == (6, 3, 5, 4)
    assert (report.profile.retrieval, value(report.metrics["R@10"])) == ("claude-memory", 3 / 4)
    assert report.elsewhere is not None
    assert report.elsewhere.prompts == 5
    again = retrieval.search(collection, profile, scoped=True)
    assert retrieval.report(collection, profile, again, scoped=True) == report


@pytest.mark.skipif(not DATA.is_dir(), reason="JUDGEKIT_TEST_DATA names no folder with retrieval/")
@pytest.mark.parametrize(
    ("name", "plain"), [("locomo_obs", 0.532), ("locomo_turns", 0.447), ("cranfield", 0.327), ("npl", 0.376)]
)
def test_real_collections_are_ranked_no_worse_than_by_the_plainest_method(
    name: str, plain: float, profile: Profile
) -> None:
    """`plain` is unicode61 with prefixes, over queries that may be others: hence the upper bound."""
    collection, scoped = read(DATA / name), name.startswith("locomo")
    seen = retrieval.search(collection, profile, scoped=scoped)
    report = retrieval.report(collection, profile, seen, scoped=scoped)
    figure = report.metrics["nDCG@10"]
    assert figure is not None
    assert figure.high > plain
    assert report.strays == 0


# The index ranks as a real one does

WORDS = ["harbour", "lantern", "orchard", "sparrow", "thimble", "velvet", "willow", "zenith"]
QUERIES = ["lantern in the harbour", "a velvet thimble", "sparrows of the orchard", "willowLantern", "none"]


def documents(size: int) -> list[CollectionDocument]:
    """Return documents that share words in changing numbers, so that no two score the same."""
    made = []
    for number in range(size):
        body = [WORDS[(number * step) % len(WORDS)] for step in range(1, 2 + number % 5)]
        filler = [f"filler{number}x{each}" for each in range(number)]
        title = f"{WORDS[number % len(WORDS)]} {number}"
        made.append(CollectionDocument(id=f"d{number}", title=title, text=" ".join([*body, *filler])))
    return made


@pytest.mark.parametrize("size", [6, 40])
def test_it_finds_and_rates_what_a_store_of_files_does(tmp_path: Path, profile: Profile, size: int) -> None:
    made = documents(size)
    write_store(tmp_path / "memory", made)
    for text in QUERIES:
        real = search.search(text, ["memory"], project=str(tmp_path), limit=100).candidates
        rated = [
            {
                hit.id: (round(hit.confidence, 9), hit.confidence_label, hit.worth_mentioning)
                for hit in candidates
            }
            for candidates in (real, CollectionIndex(made, profile).candidates(text))
        ]
        assert rated[0] == rated[1]
        assert bool(rated[0]) == (text != "none")


def test_the_ranking_holds_what_the_noise_floor_cuts_as_deep_as_asked(profile: Profile) -> None:
    profile.noise_floor = 0.9
    store = CollectionIndex(documents(40), profile)
    for text in QUERIES:
        shown = [candidate.id for candidate in store.candidates(text)]
        ranking = store.ranking(text, 100)
        assert [each for each in ranking if each in shown] == shown
        assert ranking[:1] == shown[:1]
    assert len(store.ranking(QUERIES[0], 100)) > len(store.candidates(QUERIES[0]))
    assert profile.noise_floor == 0.9
    deep = CollectionIndex(documents(300), profile)
    assert len(deep.ranking(" ".join(WORDS), 100)) == 100
    assert deep.ranking(" ".join(WORDS), 100)[:10] == deep.ranking(" ".join(WORDS), 10)


def test_any_text_is_a_query_and_a_document(
    folder: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CollectionIndex(documents(6), profile)
    for text in ("", "the", '"', "NEAR(", "\ud800", "\0"):
        assert store.ranking(text, 10) == []
    odd = CollectionDocument(id="odd", title="a\0b", text="")
    plain = CollectionDocument(id="plain", title="", text="harbour\0lantern")
    assert CollectionIndex([odd, plain], profile).ranking("lantern", 10) == ["plain"]
    # Ids are not searched.
    assert CollectionIndex(read(folder).documents, profile).ranking("garden one", 10) == ["one/garden"]
    monkeypatch.setattr(index_file, "available", lambda: False)
    with pytest.raises(UsageError, match="no full-text search"):
        CollectionIndex([], profile)


HEADER = "query-id\tcorpus-id\tscore\n"


def test_reads_documents_queries_and_grades(folder: Path) -> None:
    collection = read(folder)
    assert (collection.name, collection.strays) == (folder.name, 0)
    assert [document.id for document in collection.documents][:2] == ["one/kettle", "one/train"]
    assert (collection.documents[0].title, collection.queries[0].text) == ("Kettle", "copper kettle")
    assert collection.grades["two/q1"] == {"two/opera": 2, "two/kettle": 1}
    assert read(folder, scoped=True) == collection
    with (folder / "qrels.tsv").open("a") as file:
        file.write("one/q1\tone/gone\t1\nnobody\tone/train\t1\n")
    assert read(folder).strays == 2  # of what is not there


def test_any_lines_that_programs_write_are_read(folder: Path) -> None:
    text = '\n{"id": "a", "text": "x\u2028y\x85z"}\r\n\n'
    (folder / "corpus.jsonl").write_text(text, encoding="utf-8")
    path = folder / "qrels.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    found = read(folder)
    assert [(each.id, each.title, each.text) for each in found.documents] == [("a", "", "x\u2028y\x85z")]
    assert found.grades["one/q1"] == {"one/kettle": 2}


@pytest.mark.parametrize(
    ("name", "text", "where", "expected"),
    [
        ("corpus.jsonl", "", "", "empty; expected one JSON object a line"),
        ("corpus.jsonl", '{"id": "a", "text": "x"}\n{"id": "a"}\n', ":2", "text: missing key; add it"),
        ("corpus.jsonl", '{"id": 7, "text": "x"}\n', ":1", "id: expected a text, got a number"),
        ("corpus.jsonl", '{"id": "", "text": "x"}\n', ":1", "id: "),
        ("corpus.jsonl", '{"id": "a\\tb", "text": "x"}\n', ":1", "id: "),
        ("corpus.jsonl", '{"id": "a", "text": "x"}\n' * 2, ":2", "id: 'a' is there twice"),
        ("corpus.jsonl", '\n\n{"id": "a", "text"\n', ":3", "not valid JSON (EOF while parsing"),
        ("corpus.jsonl", '{"id": "a", "text": "\\ud8"}\n', ":1", ": not valid JSON ("),
        ("corpus.jsonl", '["a"]\n', ":1", "expected an object"),
        ("queries.jsonl", '{"id": "a", "text": null}\n', ":1", "text: expected a text"),
        ("qrels.tsv", "", ":1", "expected the header query-id corpus-id score, separated by tabs"),
        ("qrels.tsv", "one/q1\tone/kettle\t1\n", ":1", "expected the header"),
        ("qrels.tsv", HEADER, "", "no judgements"),
        ("qrels.tsv", f"{HEADER}one/q1 one/kettle 1\n", ":2", "separated by tabs, got 1 fields"),
        ("qrels.tsv", f"{HEADER}a\tb\t1\na\tc\thigh\n", ":3", "characters, got 'high'"),
        ("qrels.tsv", f"{HEADER}a\tb\t0.5\n", ":2", "score: expected a whole number"),
        ("qrels.tsv", f"{HEADER}a\tb\t{'9' * 400}\n", ":2", "score: expected a whole number of at most 9"),
        ("qrels.tsv", f"{HEADER}a\tb\t{'9' * 5000}\n", ":2", "999…"),
        ("qrels.tsv", f"{HEADER}a\tb\t٣\n", ":2", "score: expected a whole number"),
        ("qrels.tsv", f"{HEADER}a\tb\t1\na\tb\t2\n", ":3", "a b: is there twice"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    folder: Path, name: str, text: str, where: str, expected: str
) -> None:
    (folder / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / name}{where}: ")
    assert expected in message
    assert "\n" not in message
    assert len(message) < len(str(folder)) + 200


def test_what_cannot_be_read_names_what_belongs_there(folder: Path) -> None:
    (folder / "queries.jsonl").write_bytes(b'{"id": "a", "text": "x"}\n{"id": "b", "text": "\xff"}\n')
    with pytest.raises(InputError, match=r"queries\.jsonl:\d+: not UTF-8"):
        read(folder)
    (folder / "queries.jsonl").write_text('{"id": "a", "text": "x"}\n')
    for name in ("qrels.tsv", "queries.jsonl", "corpus.jsonl"):
        (folder / name).unlink()
        with pytest.raises(
            InputError, match=r"expected a folder with corpus\.jsonl, queries\.jsonl and qrels"
        ):
            read(folder)


def test_ids_without_a_scope_are_refused_where_scopes_count(folder: Path) -> None:
    assert [scope(each) for each in ("a/b", "a/b/c", "a", "/a")] == ["a", "a", "a", ""]
    for name, wrong in (("queries.jsonl", "bare/"), ("corpus.jsonl", "bare")):
        (folder / name).write_text(json.dumps({"id": wrong, "text": "x"}) + "\n")
        with pytest.raises(InputError, match=rf"{name}: id: expected SCOPE/NAME, got 'bare"):
            read(folder, scoped=True)


# TREC's run format


def test_a_run_keeps_the_order_that_was_measured(tmp_path: Path) -> None:
    write(tmp_path / "run", [("q/1", ["b", "a"]), ("q/2", []), ("q/3", ["ü"])])
    tag = f"judgekit-{__version__}"
    assert (tmp_path / "run").read_text(encoding="utf-8").splitlines() == [
        f"q/1 Q0 b 1 2 {tag}",
        f"q/1 Q0 a 2 1 {tag}",
        f"q/3 Q0 ü 1 1 {tag}",
    ]
    names = [f"d{number}" for number in range(100)]
    write(tmp_path / "run", [("q", names)])
    rows = [line.split(" ") for line in (tmp_path / "run").read_text().splitlines()]
    assert [row[2] for row in sorted(rows, key=lambda row: -float(row[4]))] == names
    assert len({float(row[4]) for row in rows}) == 100


def test_what_cannot_be_written_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    for name in ("a b", "a\u2003b", " a", ""):
        with pytest.raises(InputError, match="a TREC run cannot hold ids with spaces; rename it"):
            check(tmp_path / "run", ["fine", name])
    with pytest.raises(UsageError, match=r"cannot be written \(.+\); name another file for --run"):
        check(tmp_path / "missing" / "run", [])
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path, [])
    (tmp_path / "run").write_text("earlier\n")
    check(tmp_path / "run", ["a"])
    assert (tmp_path / "run").read_text() == "earlier\n"
