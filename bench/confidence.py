"""Fits and measures the confidence of hits: which memories a prompt gets without any model.

python bench/confidence.py --data DIR --talk DIR [--notes DIR] [--fit] [--json] [--write FILE]

--data is a collection whose ids name a scope (`SCOPE/NAME`), as `judgekit eval retrieval --scope-prefix`
reads it. Each scope is written down as a memory store: what a document says is the title, and its title a
tag.
--talk are what people say in the same scopes. --notes has folders of notes with queries, as bench/notes.py
reads them. The sample project comes on top, with prompts of this folder.

All is asked as the hook asks it: every query alone, with another one, among three sentences and among three
turns of talk from other scopes, such talk alone, what other stores answer, and small stores with one answer
or none. Some of the ways to join two queries are never fitted on.

`--fit` fits the coefficients, chooses the labels and writes both into retrieval/*.yaml (then run
`make generate`); without it the shipped ones are measured. Either way the figures are given twice: with the
model at hand, and with coefficients and labels from the other scopes and collections alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
from collections import defaultdict
from copy import copy
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config.settings import RetrievalConfig
from judgekit.evaluation import cases, retrieval, stats
from judgekit.evaluation.stats import Measure, intervals, mean
from judgekit.hooks.context import MAX_MENTIONED
from judgekit.retrieval import bm25, compiled, confidence, index, parts, terms
from judgekit.retrieval.confidence import PROMPT_POOL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.ledger.rates import Interval
    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.confidence import Candidate
    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.parts import Part

EVIDENCE = ("odds", "titled", "near", "alone", "coverage")
REQUEST = ("parts", "statements", "matched")
MEMORIES, NOTES, PROJECT = "memories", "notes", "project"
SMALL_MEMORIES, SMALL_NOTES = "small memories", "small notes"
KINDS = (MEMORIES, SMALL_MEMORIES, NOTES, SMALL_NOTES, PROJECT)
ALONE, PAIRED, HELD_OUT = "alone", "paired", "paired, held out"
SENTENCES, TURNS = "among sentences", "among turns"
TALK_SENTENCES, TALK_TURNS, ELSEWHERE = "three sentences", "three turns", "elsewhere"
ANSWERED = (ALONE, PAIRED, HELD_OUT, SENTENCES, TURNS)
SIZES = {SMALL_MEMORIES: (1, 3, 10, 30, 150), SMALL_NOTES: (10, 30, 60)}
# The weight in the fit of a prompt of each kind of store, since the collections differ in size.
STORE_WEIGHTS = {MEMORIES: 1.0, SMALL_MEMORIES: 0.7, NOTES: 0.7, SMALL_NOTES: 0.3, PROJECT: 2.0}
UNANSWERED = 0.3  # the weight of a prompt that nothing answers, beside one that something answers
# What a part that is talk weighs beside one that asks. Talk has many more parts, and to be told nothing is
# worse than to be told too much once in thirty prompts.
TALK_WEIGHT = 0.2
LEAST_EVIDENCE = 0.1  # of a part's likeliest hit, below which it does not matter whether it asks
# Not fitted. In these conversations a title is the whole text, or a person's name, and in the notes few words
# of a prompt stand in any title; fitted freely it is .5 to 6, by the collections that weigh most.
FIXED = {"titled": 2.0}
RIDGE = 0.5  # of the coefficients: as if little were known of each beforehand
SHOWN = 10  # hits of a prompt that are fitted
LIKE = 0.75  # of a part's words are in a query that it was cut from
PIECES = 3  # of talk around a question
LOOSE = 0.5  # of the texts of two that are joined
FEWEST_WORDS = 4  # of a piece of talk
# What `high` keeps clear of, on prompts that the fit did not see: precision, and prompts of talk.
PRECISION = {ALONE: 0.78, PAIRED: 0.76, SENTENCES: 0.73, TURNS: 0.73}
INJECTED = {TALK_SENTENCES: 0.03, TALK_TURNS: 0.06}
COVERAGE = 0.31  # of the queries asked alone, at least
MENTIONED = 0.1  # of the prompts that nothing answers, that `mention` aims at
RETRIEVAL = Path(__file__).parent.parent / "retrieval"
SAMPLE = Path(__file__).parent.parent / "examples" / "project" / ".claude" / "memory"
SAMPLE_PROMPTS = Path(__file__).parent / "project_prompts.jsonl"

# Ways to join two queries; those of the second table are never fitted on.
JOINED = (
    "{} {}",
    "{}\n{}",
    "{}, {}",
    "{}; {}",
    "{} - {}",
    "{} or {}",
    "{} but {}",
    "{}, and {}",
    "{} And also: {}",
    "- {}\n- {}",
    "first {}, then {}",
)
JOINED_OTHERWISE = (
    "{} plus {}",
    "{} as well as {}",
    "1. {}\n2. {}",
    "{} / {}",
    "{} by the way {} thanks",
)
AROUND = ("{1} {0}", "{0} {1}", "{1}\n\n{0}")


class Store(NamedTuple):
    """A store to search; stores of one `group` are left out together."""

    group: str
    kind: str
    opened: Index


class Query(NamedTuple):
    """A question, and the names of the documents, any of which answers it."""

    text: str
    relevant: frozenset[str]


class Prompt(NamedTuple):
    """A prompt to a store: the queries in it, whose answers are in the store if it `is_answered`."""

    store: Store
    kind: str
    text: str
    queries: tuple[Query, ...]

    @property
    def is_answered(self) -> bool:
        return self.kind in ANSWERED


class FoundPart(NamedTuple):
    """A part of a prompt, with its hits; it `is_asked` if it was cut from a query."""

    part: Part
    is_asked: bool
    hits: list[Candidate]


class Model(NamedTuple):
    """The coefficients of both regressions by name, and the least confidence of each label."""

    evidence: dict[str, float]
    request: dict[str, float]
    labels: dict[str, float]


class Told(NamedTuple):
    """A hit of a prompt: its confidence, whether it stands out, and the queries that it answers."""

    confidence: float
    stands_out: bool
    answers: tuple[bool, ...]


class Answer(NamedTuple):
    """The hits of a prompt, best first."""

    prompt: Prompt
    hits: list[Told]

    def injected(self, labels: Mapping[str, float]) -> list[Told]:
        """Return the hits that the hook injects."""
        most = RetrievalConfig().max_inject
        return [hit for hit in self.hits if hit.confidence >= labels["high"]][:most]

    def mentioned(self, labels: Mapping[str, float]) -> list[Told]:
        """Return the hits that the hook only mentions."""
        rest = [hit for hit in self.hits if hit not in self.injected(labels)]
        worth = [hit for hit in rest if hit.stands_out or hit.confidence >= labels["mention"]]
        return worth[:MAX_MENTIONED]


def main() -> int:
    """Fit if asked, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--talk", type=Path, required=True)
    parser.add_argument("--notes", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JUDGEKIT_HOME"] = str(Path(folder) / "home")
        prompts = make_prompts(options.data, options.talk, options.notes, Path(folder))
        results = run(prompts, is_fitted=options.fit)
    results = {"collection": options.data.name, "date": f"{datetime.now(UTC):%Y-%m-%d}", **results}
    if options.fit:
        for path in sorted(RETRIEVAL.glob("*.yaml")):
            write_model(path, Model(**results["model"]), provenance(results))
    print(json.dumps(results, indent=1) if options.json else report(results))
    if options.write:
        options.write.write_text(f"# Confidence\n\n{report(results)}\n", encoding="utf-8")
    return 0


def run(prompts: Sequence[Prompt], *, is_fitted: bool) -> dict[str, Any]:
    """Return the model at hand, its figures, and those of models that didn't see the data they're used on."""
    found = [find_parts(prompt) for prompt in prompts]
    groups = sorted({prompt.store.group for prompt in prompts})
    models = {group: fit_without(group, prompts, found) for group in groups}
    unseen = [answer(prompt, models[prompt.store.group]) for prompt in prompts]
    labels = choose_labels(unseen)
    model = shipped()
    if is_fitted:
        model = fit(prompts, found)._replace(labels=labels)
    labels_by_group = {}
    for group in groups:
        others = [each for each in unseen if each.prompt.store.group != group]
        labels_by_group[group] = choose_labels(others)
    at_hand = [answer(prompt, model) for prompt in prompts]
    return {
        "model": model._asdict(),
        "in sample": measure(at_hand, [model.labels] * len(prompts)),
        "left out": measure(unseen, [labels_by_group[prompt.store.group] for prompt in prompts]),
    }


# What is asked


def make_prompts(data: Path, talk: Path, notes: Path | None, folder: Path) -> list[Prompt]:
    """Return all prompts, with the stores that they are asked of; these are written to `folder`."""
    chance = random.Random(5)  # noqa: S311 - the same prompts every time, not a secret
    collection = cases.read_collection(data)
    documents: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for document in collection.documents:
        scope, name = document.id.split("/", 1)
        documents[scope][f"decisions/{name}.json"] = (document.title, document.text)
    queries: dict[str, list[Query]] = defaultdict(list)
    for asked in collection.queries:
        grades = collection.grades.get(asked.id, {})
        names = [name.split("/", 1)[1] for name, grade in grades.items() if grade > 0]
        relevant = frozenset(f"decisions/{name}.json" for name in names)
        queries[retrieval.get_scope(asked.id)].append(Query(asked.text, relevant))
    turns = [
        (retrieval.get_scope(each.id), each.text) for each in cases.read_collection(talk).documents
    ]

    stores: dict[str, Store] = {}
    prompts: list[Prompt] = []
    for scope, texts in documents.items():
        stores[scope] = Store(scope, MEMORIES, open_memories(folder / scope, texts))
        for query in queries[scope][::3]:
            size = chance.choice(SIZES[SMALL_MEMORIES])
            for names, kind in draw_small(texts, query, size, chance):
                some = {name: texts[name] for name in names}
                opened = open_memories(folder / f"small{len(prompts)}", some)
                small = Store(scope, SMALL_MEMORIES, opened)
                prompts.append(Prompt(small, kind, query.text, (query,)))
    for path in sorted((notes or folder / "none").glob("*/corpus.jsonl")):
        name = path.parent.name
        files = {line["id"]: line["text"] for line in read_lines(path)}
        queries[name] = read_queries(path.with_name("queries.jsonl"))
        stores[name] = Store(name, NOTES, open_notes(folder / name, files))
        for query in queries[name]:
            for size in SIZES[SMALL_NOTES]:
                for names, kind in draw_small(files, query, size, chance):
                    some_files = {name: files[name] for name in names}
                    opened = open_notes(folder / f"small{len(prompts)}", some_files)
                    small = Store(name, SMALL_NOTES, opened)
                    prompts.append(Prompt(small, kind, query.text, (query,)))
    queries[PROJECT] = read_queries(SAMPLE_PROMPTS)
    stores[PROJECT] = Store(PROJECT, PROJECT, open_store(SAMPLE))
    for name, store in stores.items():
        around = [text for scope, text in turns if scope != name]
        others = [query for other, some in queries.items() if other != name for query in some[::6]]
        prompts += ask_all(store, queries[name], around, others, chance)
    return prompts


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_queries(path: Path) -> list[Query]:
    """Return the queries in a file of JSON lines."""
    return [Query(line["text"], frozenset(line["relevant"])) for line in read_lines(path)]


def open_store(root: Path) -> Index:
    """Open the index of a store."""
    return index.open_index(str(root.resolve()), compiled.Profiles(compiled.get_bundled_data()))


def open_memories(folder: Path, documents: Mapping[str, tuple[str, str]]) -> Index:
    """Write documents as records of claude-memory and open the store."""
    store = folder / ".claude" / "memory"
    (store / "decisions").mkdir(parents=True)
    lines = ["# Memory Index", ""]
    for name, (title, text) in documents.items():
        sentence = " ".join(text.replace("->", "to").replace("#", "").split())
        record = {
            "schema_version": "1.0",
            "category": "decision",
            "id": Path(name).stem,
            "title": sentence,
            "record_status": "active",
            "created_at": "2026-01-15T10:00:00Z",
            "updated_at": "2026-02-10T10:00:00Z",
            "tags": [title.lower()],
            "content": {"context": sentence},
        }
        (store / name).write_text(json.dumps(record), encoding="utf-8")
        path = f".claude/memory/{name}"
        lines.append(f"- [DECISION] {sentence} -> {path} #tags:{title.lower()}")
    (store / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return open_store(store)


def open_notes(folder: Path, files: Mapping[str, str]) -> Index:
    """Write files as they are and open the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return open_store(folder)


def draw_small(
    documents: Iterable[str], query: Query, size: int, chance: random.Random
) -> list[tuple[list[str], str]]:
    """Return the names of two small stores, one of them with an answer, and the kind of prompt for each."""
    names = chance.sample([name for name in documents if name not in query.relevant], size)
    answer_name = chance.choice(sorted(query.relevant))
    return [([answer_name, *names[1:]], ALONE), (names, ELSEWHERE)]


def ask_all(
    store: Store,
    queries: Sequence[Query],
    turns: Sequence[str],
    others: Sequence[Query],
    chance: random.Random,
) -> list[Prompt]:
    """Return the prompts for a whole store: its own queries in all ways, talk alone, and `others`."""
    turns = [re.sub(r"\[[^\]]*\]", "", text).strip() for text in turns]
    turns = [text for text in turns if len(text.split()) >= FEWEST_WORDS]
    sentences = [
        sentence
        for text in turns
        for sentence in re.split(r"(?<=[.!?])\s+", text)
        if len(sentence.split()) >= FEWEST_WORDS
    ]
    prompts = []
    for number, query in enumerate(queries):
        text = query.text if number % 2 else type_loosely(query.text)
        prompts.append(Prompt(store, ALONE, text, (query,)))
        for kind, joins in ((PAIRED, JOINED), (PAIRED, JOINED), (HELD_OUT, JOINED_OTHERWISE)):
            other = chance.choice([each for each in queries if each is not query])
            first, second = chance.sample([query, other], 2)
            texts = [
                type_loosely(each.text) if chance.random() < LOOSE else each.text
                for each in (first, second)
            ]
            joined = chance.choice(joins).format(texts[0].rstrip("?"), texts[1])
            prompts.append(Prompt(store, kind, joined, (first, second)))
        for kind, alone, pieces in (
            (SENTENCES, TALK_SENTENCES, sentences),
            (TURNS, TALK_TURNS, turns),
        ):
            talk = " ".join(chance.choice(pieces) for _ in range(PIECES))
            prompts.append(
                Prompt(store, kind, chance.choice(AROUND).format(query.text, talk), (query,))
            )
            prompts.append(Prompt(store, alone, talk, ()))
    return prompts + [Prompt(store, ELSEWHERE, query.text, ()) for query in others]


def type_loosely(text: str) -> str:
    """Return a text as people type it in a hurry: no capitals, no mark at the end."""
    return text.rstrip("?. ").lower()


# What is found


def find(prompt: Prompt, profile: Profile) -> list[tuple[Part, list[Candidate]]]:
    """Return the parts of a prompt with the hits of each, as the hook finds and orders them."""
    opened = prompt.store.opened
    opened.profile = profile
    languages = terms.choose_languages(
        terms.shorten_prompt(prompt.text), opened.languages, opened.rare_languages
    )
    cut = parts.parse(prompt.text, *languages)
    return bm25.match_parts(opened, cut, PROMPT_POOL, quick=True)


def find_parts(prompt: Prompt) -> list[FoundPart]:
    """Return the parts of a prompt, to be fitted on."""
    words = [set(re.findall(r"\w+", query.text.lower())) for query in prompt.queries]
    found = []
    for part, hits in find(prompt, prompt.store.opened.profile):
        own = re.findall(r"\w+", part.text.lower())
        is_asked = any(sum(word in of for word in own) >= LIKE * len(own) for of in words)
        found.append(FoundPart(part, is_asked, hits))
    return found


def answer(prompt: Prompt, model: Model) -> Answer:
    """Ask the store with the coefficients of a model, as the hook would."""
    profile = copy(prompt.store.opened.profile)
    profile.confidence = profile.confidence | model.evidence
    profile.request = model.request
    hits = []
    for hit in bm25.merge_parts(find(prompt, profile))[:PROMPT_POOL]:
        answers = [
            prompt.is_answered and hit.relative_path in query.relevant for query in prompt.queries
        ]
        hits.append(Told(hit.confidence, hit.stands_out, tuple(answers)))
    return Answer(prompt, hits)


# Fitting


class Row(NamedTuple):
    """One observation of a regression."""

    values: tuple[float, ...]
    outcome: bool
    weight: float


def fit_without(group: str, prompts: Sequence[Prompt], found: Sequence[list[FoundPart]]) -> Model:
    """Fit without the prompts of a group."""
    kept = [number for number, prompt in enumerate(prompts) if prompt.store.group != group]
    return fit([prompts[number] for number in kept], [found[number] for number in kept])


def fit(prompts: Sequence[Prompt], found: Sequence[list[FoundPart]]) -> Model:
    """Return the coefficients of both regressions, and the labels of the shipped model.

    Which entry is meant is learned from queries asked alone, and whether something is asked from all parts.
    """
    rows = []
    for prompt, found_parts in zip(prompts, found, strict=True):
        if prompt.kind in (ALONE, ELSEWHERE):
            rows += rate_rows(prompt, found_parts)
    evidence = regress(EVIDENCE, rows)
    rows = []
    for prompt, found_parts in zip(prompts, found, strict=True):
        if prompt.kind not in (HELD_OUT, ELSEWHERE):
            rows += request_rows(prompt, found_parts, evidence)
    request = regress(REQUEST, rows)
    return Model(evidence, request, shipped().labels)


def rate_rows(prompt: Prompt, found: Sequence[FoundPart]) -> list[Row]:
    """Return the likeliest hits of a prompt: of each entry the one for its best part."""
    weight = STORE_WEIGHTS[prompt.store.kind] * (1.0 if prompt.is_answered else UNANSWERED)
    best: dict[str, Candidate] = {}
    for part in found:
        for hit in part.hits:
            if hit.relative_path not in best or best[hit.relative_path].confidence < hit.confidence:
                best[hit.relative_path] = hit
    relevant = prompt.queries[0].relevant if prompt.is_answered else frozenset()
    likeliest = sorted(best.values(), key=lambda hit: -hit.confidence)[:SHOWN]
    return [
        Row(tuple(hit.features[name] for name in EVIDENCE), hit.relative_path in relevant, weight)
        for hit in likeliest
    ]


def request_rows(
    prompt: Prompt, found: Sequence[FoundPart], evidence: Mapping[str, float]
) -> list[Row]:
    """Return the parts of a prompt of which an entry is likely enough."""
    rows = []
    for part in found:
        likelihood = {}
        for hit in part.hits:
            features = {name: hit.features[name] for name in EVIDENCE}
            likelihood[id(hit)] = confidence.compute_probability(evidence, features)
        likeliest = max(part.hits, key=lambda hit: likelihood[id(hit)], default=None)
        if likeliest is None or likelihood[id(likeliest)] < LEAST_EVIDENCE:
            continue
        features = confidence.describe_request(likeliest, part.part)
        weight = STORE_WEIGHTS[prompt.store.kind] * (1.0 if part.is_asked else TALK_WEIGHT)
        rows.append(Row(tuple(features[name] for name in REQUEST), part.is_asked, weight))
    return rows


def regress(names: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Return the coefficients of greatest penalised likelihood, by Newton's method; the intercept is free."""
    size = len(names) + 1
    coefficients = [0.0, *[FIXED.get(name, 0.0) for name in names]]
    fixed = [place for place, name in enumerate(names, 1) if name in FIXED]
    for _ in range(30):
        gradient = [0.0, *[-RIDGE * coefficient for coefficient in coefficients[1:]]]
        curvature = [[RIDGE if a == b > 0 else 0.0 for a in range(size)] for b in range(size)]
        for row in rows:
            values = (1.0, *row.values)
            logit = sum(map(float.__mul__, coefficients, values))
            expected = 1 / (1 + exp(-logit))
            error = row.weight * (row.outcome - expected)
            spread = row.weight * expected * (1 - expected)
            for a in range(size):
                gradient[a] += error * values[a]
                for b in range(a + 1):
                    curvature[a][b] += spread * values[a] * values[b]
        for a in range(size):
            for b in range(a):
                curvature[b][a] = curvature[a][b]
        for place in fixed:
            gradient[place] = 0.0
            for other in range(size):
                curvature[place][other] = curvature[other][place] = float(other == place)
        step = solve(curvature, gradient)
        coefficients = [old + each for old, each in zip(coefficients, step, strict=True)]
        if max(map(abs, step)) < 1e-6:  # noqa: PLR2004 - far below what is written down
            break
    return {
        name: round(value, 2)
        for name, value in zip(("intercept", *names), coefficients, strict=True)
    }


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Return the solution of a symmetric positive definite system: Gauss without pivoting."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for place, row in enumerate(rows):
        for other in rows[place + 1 :]:
            factor = other[place] / row[place]
            other[:] = [b - factor * a for a, b in zip(row, other, strict=True)]
    found = [0.0] * len(rows)
    for place in reversed(range(len(rows))):
        known = sum(rows[place][after] * found[after] for after in range(place + 1, len(rows)))
        found[place] = (rows[place][-1] - known) / rows[place][place]
    return found


def choose_labels(answers: Sequence[Answer]) -> dict[str, float]:
    """Return labels for what these prompts found: `high` half way between too low and too high.

    Too low is below the least that keeps `PRECISION` and `INJECTED` in memory stores; too high is above the
    greatest that keeps `COVERAGE_DEVIATIONS`.
    """
    of_memories = [each for each in answers if each.prompt.store.kind == MEMORIES]
    careful, covering = [], [0]
    for percent in range(1, 100):
        labels = {"high": percent / 100, "mention": 1.0}
        figures = sum_up(of_memories, [labels] * len(of_memories))
        is_precise = all(figures[kind].precision >= least for kind, least in PRECISION.items())
        is_silent = all(figures[kind].prompts_told <= most for kind, most in INJECTED.items())
        if is_precise and is_silent:
            careful.append(percent)
        if figures[ALONE].coverage >= COVERAGE:
            covering.append(percent)
    high = round((min(careful, default=99) + max(covering)) / 200, 2)
    mention = min(choose_mention(answers), high)
    return {"high": high, "medium": round((high + mention) / 2, 2), "mention": mention}


def choose_mention(answers: Sequence[Answer]) -> float:
    """Return the least confidence that only few of the unanswerable prompts reach."""
    best = [
        max([hit.confidence for hit in each.hits], default=0.0)
        for each in answers
        if not each.prompt.is_answered
    ]
    for percent in range(1, 100):
        if sum(each >= percent / 100 for each in best) <= MENTIONED * len(best):
            return percent / 100
    return 1.0


# Measuring


class Sums(NamedTuple):
    """The results of prompts of one kind, one number a prompt."""

    memories: list[int]
    right: list[int]
    covered: list[int]
    queries: list[int]
    nudged: list[bool]

    @property
    def precision(self) -> float:
        return sum(self.right) / (sum(self.memories) or 1)

    @property
    def coverage(self) -> float:
        return sum(self.covered) / (sum(self.queries) or 1)

    @property
    def prompts_told(self) -> float:
        return sum(map(bool, self.memories)) / (len(self.memories) or 1)


def sum_up(answers: Sequence[Answer], labels: Sequence[Mapping[str, float]]) -> dict[str, Sums]:
    """Sum up the memories injected under each prompt's labels, by the kind of prompt."""
    sums: dict[str, Sums] = defaultdict(lambda: Sums([], [], [], [], []))
    for found, limits in zip(answers, labels, strict=True):
        of = sums[found.prompt.kind]
        told = found.injected(limits)
        of.memories.append(len(told))
        of.right.append(sum(any(hit.answers) for hit in told))
        covered = zip(*[hit.answers for hit in told], strict=True)
        of.covered.append(sum(map(any, covered)))
        of.queries.append(max(len(found.prompt.queries), 1))
        of.nudged.append(bool(told or found.mentioned(limits)))
    return sums


def measure(answers: Sequence[Answer], labels: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the figures, with intervals, by the kind of store and of prompt."""
    by_store = {}
    for kind in KINDS:
        places = [n for n, each in enumerate(answers) if each.prompt.store.kind == kind]
        sums = sum_up([answers[n] for n in places], [labels[n] for n in places])
        by_store[kind] = {name: describe(of, name in ANSWERED) for name, of in sums.items()}
    shown = [hit for found in answers if found.prompt.is_answered for hit in found.hits[:SHOWN]]
    confidences = [hit.confidence for hit in shown]
    relevant = [any(hit.answers) for hit in shown]
    return {
        "stores": by_store,
        "first": {kind: describe_first(answers, labels, kind) for kind in KINDS},
        "hits": len(shown),
        "ece": round(stats.ece(confidences, relevant) or 0.0, 4),
        "brier": round(stats.brier(confidences, relevant) or 0.0, 4),
        "reliability": [
            [each.count, round(each.confidence, 3), round(each.relevant, 3)]
            for each in stats.bin_probabilities(confidences, relevant)
        ],
    }


def describe(sums: Sums, is_answered: bool) -> dict[str, Any]:  # noqa: FBT001 - one of two tables
    """Return the figures of prompts of one kind, with intervals."""
    measures = {
        "injected": mean([bool(each) for each in sums.memories]),
        "told": mean(sums.nudged),
    }
    if is_answered:
        measures |= {
            "precision": Measure(sums.right, sums.memories),
            "coverage": Measure(sums.covered, sums.queries),
        }
    figures = {name: rounded(each) for name, each in intervals(measures).items()}
    return {"prompts": len(sums.memories), **figures}


def describe_first(
    answers: Sequence[Answer], labels: Sequence[Mapping[str, float]], kind: str
) -> dict[str, int]:
    """Count the queries asked alone whose right entry comes first, and the results of these."""
    counts = {"asked": 0, "first": 0, "injected": 0, "told": 0}
    for found, limits in zip(answers, labels, strict=True):
        if found.prompt.store.kind != kind or found.prompt.kind != ALONE:
            continue
        counts["asked"] += 1
        if not found.hits or not any(found.hits[0].answers):
            continue
        is_injected = found.hits[0] in found.injected(limits)
        counts["first"] += 1
        counts["injected"] += is_injected
        counts["told"] += is_injected or found.hits[0] in found.mentioned(limits)
    return counts


def rounded(figure: Interval | None) -> list[float] | None:
    """Return a figure and its bounds; None when there is none."""
    if figure is None:
        return None
    return [round(each, 4) for each in (figure.value, figure.low, figure.high)]


# Writing


def shipped() -> Model:
    """Return the coefficients and labels of the bundled profile of a memory store."""
    profile = compiled.Profiles(compiled.get_bundled_data()).by_kind[compiled.KINDS[0]]
    evidence = {name: profile.confidence[name] for name in ("intercept", *EVIDENCE)}
    return Model(evidence, profile.request, profile.labels)


def flow(values: Mapping[str, float]) -> str:
    """Return numbers by name, as YAML has them on one line."""
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def write_model(path: Path, model: Model, comment: str) -> None:
    """Put a model into a profile's file, which must have a line for each; a language's file has none."""
    text = path.read_text(encoding="utf-8")
    evidence = rf"confidence: {{{flow(model.evidence)}\1"
    text = re.sub(r"^confidence: \{intercept.*?(, body_share)", evidence, text, flags=re.MULTILINE)
    request = f"request: {{{flow(model.request)}}}"
    text = re.sub(r"^request: \{[^}]*\}", request, text, flags=re.MULTILINE)
    labels = f"labels: {{{flow(model.labels)}}}"
    text = re.sub(r"^labels: \{[^}]*\}", labels, text, flags=re.MULTILINE)
    before = r"^(?:# Fitted .*\n(?:#   .*\n)*)*confidence: "
    text = re.sub(before, lambda _: f"{comment}confidence: ", text, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")


def provenance(results: dict[str, Any]) -> str:
    """Return the comment about the origin and the quality of the coefficients."""
    found = results["left out"]["stores"][MEMORIES]

    def figure(kind: str, name: str) -> float:
        return float(found[kind][name][0])

    lines = [
        f"Fitted by bench/confidence.py on {results['collection']} and notes, {results['date']}.",
        "  Measured scope by scope, with coefficients and labels of the others, in memory stores:",
        f"  Asked alone, {figure(ALONE, 'precision'):.2f} of what is injected is relevant, and",
        f"  {figure(ALONE, 'coverage'):.0%} of the questions get something relevant; two in a prompt",
        f"  {figure(PAIRED, 'precision'):.2f} and {figure(PAIRED, 'coverage'):.0%}, among three turns of",
        f"  talk {figure(TURNS, 'precision'):.2f} and {figure(TURNS, 'coverage'):.0%}; of such talk alone",
        f"  {figure(TALK_TURNS, 'injected'):.1%} get an injection.",
    ]
    return "".join(f"# {line}\n" for line in lines)


NAMES = {
    ALONE: "asked alone",
    PAIRED: "two in a prompt",
    HELD_OUT: "two, joined in ways that nothing was fitted on",
    SENTENCES: "among three sentences of other talk",
    TURNS: "among three turns of other talk",
    TALK_SENTENCES: "three sentences of talk alone",
    TALK_TURNS: "three turns of talk alone",
    ELSEWHERE: "what the store does not answer",
}
STORE_NAMES = {
    MEMORIES: "Conversations, each a store of some hundred memories",
    SMALL_MEMORIES: "Small stores, 1 to 150 of the same memories",
    NOTES: "Collections of notes, long and short, in four languages",
    SMALL_NOTES: "Small collections, 10 to 60 of the same notes",
    PROJECT: "The sample project",
}


def report(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    model = results["model"]
    out = results["left out"]
    lines = [
        f"`{results['collection']}`, collections of notes and the sample project, {results['date']}.",
        "",
        f"Is this entry meant: {flow(model['evidence'])}.",
        f"Is something asked: {flow(model['request'])}. Labels: {flow(model['labels'])}.",
        "",
        "*At hand* is measured on what it was fitted on. *Left out* rates each conversation and collection",
        "by coefficients and labels from the others. Precision is the share of the injected memories that is",
        "relevant, covered the share of the questions that get a relevant one. In brackets 95% intervals,",
        "from drawing the prompts again.",
    ]
    for kind in KINDS:
        if out["stores"][kind]:
            lines += ["", f"## {STORE_NAMES[kind]}", "", *store_table(results, kind)]
    lines += [
        "",
        "## How right confidences are",
        "",
        f"Calibration error (ECE) of {out['hits']} hits: {out['ece']:.3f}; Brier score {out['brier']:.3f}.",
        "",
        "| hits | mean confidence | relevant |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {count} | {said:.2f} | {true:.2f} |" for count, said, true in out["reliability"]]
    return "\n".join(lines)


def store_table(results: dict[str, Any], kind: str) -> list[str]:
    """Return the table of one kind of store, and the sentence about first hits."""
    out = results["left out"]
    first = out["first"][kind]
    lines = [
        "| prompts | | at hand | left out |",
        "| --- | --- | --- | --- |",
    ]
    columns = [results[name]["stores"][kind] for name in ("in sample", "left out")]
    for name, words in NAMES.items():
        if name not in columns[0]:
            continue
        figures = ["injected", "told"]
        if name in ANSWERED:
            figures = ["precision", "coverage", "told"]
        for figure in figures:
            cells = [say(column[name][figure]) for column in columns]
            lines.append(f"| {words} | {FIGURES[figure]} | {' | '.join(cells)} |")
    asked = f"Of {first['asked']} questions asked alone, the right entry comes first for {first['first']}"
    told = f"{first['injected']} of these are injected, {first['told']} injected or mentioned"
    return [*lines, "", f"{asked}; {told}."]


FIGURES = {
    "precision": "precision",
    "coverage": "covered",
    "injected": "prompts with an injection",
    "told": "with an injection or a nudge",
}


def say(figure: Sequence[float] | None) -> str:
    """Return a figure with its interval."""
    if figure is None:
        return "none"
    value, low, high = figure
    return f"{value:.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
