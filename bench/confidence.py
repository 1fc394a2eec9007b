"""Fits and measures the confidence of hits: which memories a prompt gets without any model.

python bench/confidence.py --data DIR --talk DIR [--json] [--fit] [--write FILE]

--data is a collection whose ids name a scope (`SCOPE/NAME`), as `judgekit eval retrieval --scope-prefix`
reads it; the documents of --talk, in the same scopes, are what people say beside a question. Every query is
asked in its own scope, alone, together with another query, and between three pieces of talk from other
scopes; in every other scope; and in small stores drawn from its own, with one of its answers and without any.
Two of the ways to join two queries are never fitted on. `--fit` fits the coefficients, chooses the labels,
and writes both into retrieval/*.yaml (then run `make generate`); without it the shipped ones are measured.
Either way the figures are given twice: with the coefficients at hand, and with coefficients and labels from
the other scopes alone.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.config.settings import RetrievalConfig
from judgekit.evaluation import cases, retrieval, stats
from judgekit.evaluation.retrieval import SHOWN, SearchableCollection
from judgekit.evaluation.stats import Measure, intervals, mean
from judgekit.retrieval import bm25, compiled, parts
from judgekit.retrieval.confidence import PROMPT_POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.evaluation.cases import Collection, CollectionDocument
    from judgekit.ledger.rates import Interval
    from judgekit.retrieval.compiled import Profile

FEATURES = ("odds", "titled", "near", "alone")
OWN, PAIRED, WITHIN = "own", "paired", "within talk"
TALK, ELSEWHERE, ANSWERED, UNANSWERED = "talk", "elsewhere", "small, answered", "small, unanswered"
PROMPTS = (OWN, PAIRED, WITHIN)  # that something in the store answers
SIZES = (1, 3, 10, 30, 150)  # of the small stores
# Of a hit when fitting.
WEIGHTS = {
    OWN: 1.0,
    PAIRED: 1.0,
    WITHIN: 1.0,
    TALK: 0.5,
    ELSEWHERE: 0.3,
    ANSWERED: 0.05,
    UNANSWERED: 0.05,
}
# Not fitted: here a title is a person's name, and most talk has none, so that a part without a title's words
# would count for less than where titles name a subject. From 3 to 5.5 (fitted) the figures are about equal.
TITLED = 4.0
RIDGE = 0.5  # of the coefficients: as if little were known of each beforehand
PRECISION, COVERAGE = 0.83, 0.29  # what `high` keeps clear of, either way: .80 and .28 are promised
MENTIONED = 0.05  # of the prompts elsewhere, that `mention` aims at
TURNS = 3  # pieces of talk around a question
RETRIEVAL = Path(__file__).parent.parent / "retrieval"


def careless(text: str) -> str:
    """Return a text as people type it in a hurry: no capitals, no marks."""
    return re.sub(r"[?.!,]", "", text).lower()


JOINED: dict[str, Callable[[str, str], str]] = {
    "a space": lambda a, b: f"{a} {b}",
    "also": lambda a, b: f"{a} And also: {b}",
    "lines": lambda a, b: f"{a}\n{b}",
    "a list": lambda a, b: f"- {a}\n- {b}",
    "and": lambda a, b: f"{careless(a)} and {careless(b)}",
    "first, then": lambda a, b: f"first {careless(a)}, then {careless(b)}",
    "nothing": lambda a, b: f"{careless(a)} {careless(b)}",
    "a numbered list": lambda a, b: f"1. {a}\n2. {b}",
    "by the way": lambda a, b: f"{careless(a)} by the way {careless(b)} thanks",
}
HELD_OUT = ("by the way", "a numbered list")
AROUND: dict[str, Callable[[list[str]], str]] = {
    "spaces": " ".join,
    "lines": "\n".join,
    "nothing": lambda texts: careless(" ".join(texts)),
}


class Hit(NamedTuple):
    """The features of a hit, and which of the prompt's queries it answers."""

    features: tuple[float, ...]
    answers: tuple[bool, ...]

    @property
    def relevant(self) -> bool:
        return any(self.answers)


class Asked(NamedTuple):
    """What a prompt finds in one store: for each of its parts the hits by document, best first.

    `kind` says in which store, `scope` whose query it is, `form` how it was joined with what else is asked.
    """

    scope: str
    kind: str
    size: int
    form: str
    queries: int
    parts: list[dict[str, Hit]]


class Model(NamedTuple):
    """Coefficients, the intercept first, and the least confidence of each label."""

    coefficients: list[float]
    labels: dict[str, float]

    def probability(self, features: Sequence[float]) -> float:
        """Return the confidence of a hit."""
        return logistic(self.coefficients, features)


def main() -> int:
    """Fit if asked, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--talk", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    profile = compiled.Profiles(compiled.bundled()).by_kind[compiled.KINDS[0]]
    found = cases.read_collection(options.data)
    asked = ask_all(found, cases.read_collection(options.talk), profile)
    model = train(asked) if options.fit else shipped(profile)
    others = left_out(asked)
    results = {
        "collection": found.name,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "model": model._asdict(),
        "in sample": measure(asked, [model] * len(asked)),
        "coefficients left out": measure(
            asked, [each._replace(labels=model.labels) for each in others]
        ),
        "left out": measure(asked, others),
    }
    if options.fit:
        for path in sorted(RETRIEVAL.glob("*.yaml")):
            store(path, model, provenance(results))
    print(json.dumps(results, indent=1) if options.json else table(results))
    if options.write:
        options.write.write_text(f"# Confidence\n\n{table(results)}\n", encoding="utf-8")
    return 0


# What is asked


def ask_all(found: Collection, talk: Collection, profile: Profile) -> list[Asked]:
    """Return what every query finds alone and with others in its scope, elsewhere, and in small stores."""
    documents: dict[str, list[CollectionDocument]] = defaultdict(list)
    for document in found.documents:
        documents[retrieval.scope(document.id)].append(document)
    stores = {name: SearchableCollection(of, profile) for name, of in documents.items()}
    chance = random.Random(5)  # noqa: S311 - the same stores every time, not a secret
    asked = []
    for number, query in enumerate(found.queries):
        scope, relevant = retrieval.scope(query.id), answers(found, query.id)
        for name, own in stores.items():
            kind = OWN if name == scope else ELSEWHERE
            asked.append(
                ask(own, profile, query.text, [relevant], (scope, kind, len(documents[name]), ""))
            )
        asked += among_others(found, talk, number, stores[scope], profile)
        for size in SIZES:
            for kind in (ANSWERED, UNANSWERED):
                drawn = draw(documents[scope], relevant, size, chance, answered=kind == ANSWERED)
                with closing(SearchableCollection(drawn, profile)) as small:
                    asked.append(
                        ask(small, profile, query.text, [relevant], (scope, kind, size, ""))
                    )
    for opened in stores.values():
        opened.close()
    return asked


def among_others(
    found: Collection, talk: Collection, number: int, store: SearchableCollection, profile: Profile
) -> list[Asked]:
    """Ask a query together with another one of its scope, and between talk; ask the talk alone, too."""
    query = found.queries[number]
    scope, relevant = retrieval.scope(query.id), answers(found, query.id)
    chance = random.Random(query.id)  # noqa: S311 - the same prompts every time, not a secret
    others = [
        each for each in found.queries if retrieval.scope(each.id) == scope and each is not query
    ]
    other = chance.choice(others)
    pair = [(query, relevant), (other, answers(found, other.id))]
    chance.shuffle(pair)
    form = list(JOINED)[number % len(JOINED)]
    joined = JOINED[form](*[each.text for each, _ in pair])
    asked = [ask(store, profile, joined, [right for _, right in pair], (scope, PAIRED, 0, form))]
    turns = [document.text for document in talk.documents if retrieval.scope(document.id) != scope]
    around, place = chance.sample(turns, TURNS), chance.randrange(TURNS + 1)
    form = list(AROUND)[number % len(AROUND)]
    prompt = AROUND[form]([*around[:place], query.text, *around[place:]])
    asked.append(ask(store, profile, prompt, [relevant], (scope, WITHIN, 0, form)))
    asked.append(
        ask(store, profile, AROUND[form](chance.sample(turns, TURNS)), [], (scope, TALK, 0, form))
    )
    return asked


def answers(found: Collection, query: str) -> set[str]:
    """Return the documents that are relevant to a query."""
    return {document for document, grade in found.grades.get(query, {}).items() if grade > 0}


def draw(
    documents: Sequence[CollectionDocument],
    relevant: set[str],
    size: int,
    chance: random.Random,
    *,
    answered: bool,
) -> list[CollectionDocument]:
    """Return some of a scope's documents, none of them relevant, or just one of them."""
    drawn = chance.sample([document for document in documents if document.id not in relevant], size)
    if answered and relevant:
        drawn[0] = chance.choice([document for document in documents if document.id in relevant])
    return drawn


def ask(
    store: SearchableCollection,
    profile: Profile,
    text: str,
    relevant: Sequence[set[str]],
    where: tuple[str, str, int, str],
) -> Asked:
    """Return the hits of each part of a prompt that may be injected or are shown; `where` begins `Asked`."""
    cut = parts.parse(text, profile.language)
    pool = max(PROMPT_POOL // len(cut), bm25.LEAST) if cut else 0
    store.index.profile = profile
    hits = [
        {
            candidate.id: Hit(
                tuple(candidate.features[name] for name in FEATURES),
                tuple(candidate.id in right for right in relevant),
            )
            for candidate in bm25.match(store.index, [part], pool, quick=True)
        }
        for part in cut
    ]
    return Asked(*where, max(len(relevant), 1), hits)


# Fitting


def logistic(coefficients: Sequence[float], features: Sequence[float]) -> float:
    """Return the probability that a hit with these features is relevant."""
    pairs = zip(coefficients[1:], features, strict=True)
    return 1 / (1 + exp(-coefficients[0] - sum(factor * value for factor, value in pairs)))


def best_first(asked: Asked, coefficients: Sequence[float]) -> list[tuple[float, Hit]]:
    """Return the confidences and hits of a prompt: of each document the one for its best part."""
    best: dict[str, tuple[float, Hit]] = {}
    for hits in asked.parts:
        for name, hit in hits.items():
            confidence = logistic(coefficients, hit.features)
            if name not in best or best[name][0] < confidence:
                best[name] = confidence, hit
    found = list(best.values())
    return sorted(found, key=lambda each: -each[0]) if len(asked.parts) > 1 else found


def fit(asked: Iterable[Asked]) -> list[float]:
    """Return the coefficients of greatest penalised likelihood, by Newton's method; the intercept is free."""
    fitted = [each for each in asked if each.form not in HELD_OUT]
    size = len(FEATURES) + 1
    # Near enough to know the part that each document answers best.
    coefficients = [
        -4.7,
        0.4,
        TITLED,
        2.0,
        0.7,
    ]
    for _ in range(30):
        rows = [
            ((1.0, *hit.features), float(hit.relevant), WEIGHTS[each.kind])
            for each in fitted
            for _, hit in best_first(each, coefficients)[:SHOWN]
        ]
        gradient = [0.0, *[-RIDGE * coefficient for coefficient in coefficients[1:]]]
        curvature = [[RIDGE if a == b > 0 else 0.0 for a in range(size)] for b in range(size)]
        for values, relevant, weight in rows:
            expected = logistic(coefficients, values[1:])
            error, spread = weight * (relevant - expected), weight * expected * (1 - expected)
            for a in range(size):
                gradient[a] += error * values[a]
                for b in range(size):
                    curvature[a][b] += spread * values[a] * values[b]
        fixed = 1 + FEATURES.index("titled")
        gradient[fixed], curvature[fixed] = 0.0, [float(a == fixed) for a in range(size)]
        for line in curvature:
            line[fixed] = float(line is curvature[fixed])
        step = solve(curvature, gradient)
        coefficients = [old + each for old, each in zip(coefficients, step, strict=True)]
        if max(map(abs, step)) < 1e-9:  # noqa: PLR2004 - far below what is written down
            break
    return coefficients


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


def without_each(asked: Sequence[Asked]) -> dict[str, list[float]]:
    """Return, for each scope, the coefficients that all the other ones give."""
    return {name: fit([each for each in asked if each.scope != name]) for name in scopes(asked)}


def scopes(asked: Iterable[Asked]) -> list[str]:
    """Return the scopes whose queries these are."""
    return sorted({each.scope for each in asked})


def train(asked: Sequence[Asked]) -> Model:
    """Return coefficients, and labels that keep what is aimed at on queries that the fit did not see."""
    others = without_each(asked)
    rated = [rate(each, others[each.scope]) for each in asked]
    high, mention = balanced(rated), quietest(rated)
    labels = {"high": high, "medium": round((high + mention) / 2, 2), "mention": mention}
    return Model([round(each, 2) for each in fit(asked)], labels)


def left_out(asked: Sequence[Asked]) -> list[Model]:
    """Return, for each query, what is trained without any query of its scope."""
    models = {name: train([each for each in asked if each.scope != name]) for name in scopes(asked)}
    return [models[each.scope] for each in asked]


class Rated(NamedTuple):
    """The confidences of a prompt's hits, in the hook's order, and which of its queries each answers."""

    kind: str
    queries: int
    confidences: list[float]
    answers: list[tuple[bool, ...]]

    def injected(self, high: float) -> list[tuple[bool, ...]]:
        """Return, of what the hook injects, what it answers."""
        rated = zip(self.confidences[:PROMPT_POOL], self.answers[:PROMPT_POOL], strict=True)
        return [answers for confidence, answers in rated if confidence >= high][
            : RetrievalConfig().max_inject
        ]


def covered(injected: Sequence[tuple[bool, ...]]) -> int:
    """Return how many of a prompt's queries get something that answers them."""
    return sum(any(each) for each in zip(*injected, strict=True))


def right(injected: Sequence[tuple[bool, ...]]) -> int:
    """Return how many of the injected memories answer anything."""
    return sum(map(any, injected))


def rate(asked: Asked, coefficients: Sequence[float]) -> Rated:
    """Return the confidences that these coefficients give."""
    found = best_first(asked, coefficients)
    return Rated(
        asked.kind, asked.queries, [each for each, _ in found], [hit.answers for _, hit in found]
    )


def balanced(rated: Sequence[Rated]) -> float:
    """Return the confidence half way between the least with `PRECISION` and the greatest with `COVERAGE`."""
    answered = [each for each in rated if each.kind in PROMPTS]
    alone = [each for each in answered if each.kind == OWN]
    precise, covering = [], [0]
    for percent in range(1, 100):
        injected = [each.injected(percent / 100) for each in answered]
        if sum(map(right, injected)) >= PRECISION * sum(map(len, injected)):
            precise.append(percent)
        if sum(covered(each.injected(percent / 100)) for each in alone) >= COVERAGE * len(alone):
            covering.append(percent)
    return round((min(precise, default=99) + max(covering)) / 200, 2)


def quietest(rated: Sequence[Rated]) -> float:
    """Return the least confidence that at most `MENTIONED` of the prompts reach where nothing is relevant.

    Prompts of another scope and other talk count the same.
    """
    best = [
        [max(each.confidences, default=0.0) for each in rated if each.kind == kind]
        for kind in (ELSEWHERE, TALK)
    ]
    for percent in range(1, 100):
        shares = [sum(each >= percent / 100 for each in of) / len(of) for of in best]
        if sum(shares) <= MENTIONED * len(shares):
            return percent / 100
    return 1.0


# Measuring


def measure(asked: Sequence[Asked], models: Sequence[Model]) -> dict[str, Any]:
    """Return the figures, with intervals, of rating each query with its model."""
    rated = [rate(each, model.coefficients) for each, model in zip(asked, models, strict=True)]
    injected = [
        each.injected(model.labels["high"]) for each, model in zip(rated, models, strict=True)
    ]
    mentioned = [
        any(confidence >= model.labels["mention"] for confidence in each.confidences[:PROMPT_POOL])
        for each, model in zip(rated, models, strict=True)
    ]
    chosen = {kind: [n for n, each in enumerate(asked) if each.kind == kind] for kind in WEIGHTS}
    chosen["held out"] = [n for n in chosen[PAIRED] if asked[n].form in HELD_OUT]
    figures: dict[str, Interval | None] = {}
    for kind in (*PROMPTS, "held out"):
        of = chosen[kind]
        figures |= intervals(
            {
                f"precision, {kind}": Measure(
                    [right(injected[n]) for n in of], [len(injected[n]) for n in of]
                ),
                f"coverage, {kind}": Measure(
                    [covered(injected[n]) for n in of], [asked[n].queries for n in of]
                ),
                f"told, {kind}": mean([mentioned[n] for n in of]),
            }
        )
    for kind in (ELSEWHERE, TALK):
        of = chosen[kind]
        figures |= intervals(
            {
                f"injected, {kind}": mean([bool(injected[n]) for n in of]),
                f"told, {kind}": mean([mentioned[n] for n in of]),
            }
        )
    shown = [
        (confidence, any(answers))
        for kind in PROMPTS
        for n in chosen[kind]
        for confidence, answers in list(zip(rated[n].confidences, rated[n].answers, strict=True))[
            :SHOWN
        ]
    ]
    confidences, relevant = [c for c, _ in shown], [r for _, r in shown]
    return {
        "figures": {
            name: rounded(bootstrap_interval) for name, bootstrap_interval in figures.items()
        },
        "memories injected": sum(len(injected[n]) for kind in PROMPTS for n in chosen[kind]),
        "hits": len(shown),
        "ece": round(stats.ece(confidences, relevant) or 0.0, 4),
        "brier": round(stats.brier(confidences, relevant) or 0.0, 4),
        "reliability": [
            [each.count, round(each.confidence, 3), round(each.relevant, 3)]
            for each in stats.table(confidences, relevant)
        ],
        "small": [
            small(asked, injected, kind, size) for size in SIZES for kind in (ANSWERED, UNANSWERED)
        ],
    }


def small(
    asked: Sequence[Asked], injected: Sequence[list[tuple[bool, ...]]], kind: str, size: int
) -> dict[str, Any]:
    """Return the share of prompts that get something, and how much of it is relevant, in such stores."""
    of = [
        found
        for each, found in zip(asked, injected, strict=True)
        if (each.kind, each.size) == (kind, size)
    ]
    told, hits = sum(map(len, of)), sum(map(right, of))
    share = sum(map(bool, of)) / len(of)
    precision = round(hits / told, 3) if told and kind == ANSWERED else None
    return {"kind": kind, "size": size, "injected": round(share, 3), "precision": precision}


def rounded(figure: Interval | None) -> list[float] | None:
    """Return a figure and its bounds; None when there is none."""
    return (
        None
        if figure is None
        else [round(each, 4) for each in (figure.value, figure.low, figure.high)]
    )


# Writing


def shipped(profile: Profile) -> Model:
    """Return the coefficients and labels of a profile."""
    names = ("intercept", *FEATURES)
    return Model([profile.confidence[name] for name in names], profile.labels)


def store(path: Path, model: Model, comment: str) -> None:
    """Put a model into a profile's file, which must have a line for each; a language's file has none."""
    text = path.read_text(encoding="utf-8")
    names = ("intercept", *FEATURES)
    values = ", ".join(
        f"{name}: {value}" for name, value in zip(names, model.coefficients, strict=True)
    )
    levels = ", ".join(f"{name}: {value}" for name, value in model.labels.items())
    text = re.sub(
        r"^confidence: \{intercept.*?(, body_share)",
        rf"confidence: {{{values}\1",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"^labels: \{[^}]*\}", f"labels: {{{levels}}}", text, flags=re.MULTILINE)
    before = r"^(?:# Fitted .*\n(?:#   .*\n)*)*confidence: "
    text = re.sub(before, lambda _: f"{comment}confidence: ", text, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")


def provenance(results: dict[str, Any]) -> str:
    """Return the comment that says where the coefficients come from and how good they are."""
    found = results["left out"]
    figures = {name: each[0] for name, each in found["figures"].items()}
    tenths = [f"{said:.2f} {true:.2f}" for _, said, true in found["reliability"]]
    lines = [
        f"Fitted by bench/confidence.py on {results['collection']}, {results['date']}.",
        "  Measured scope by scope, with coefficients and labels of the others:",
        f"  Asked alone, {figures['precision, own']:.2f} of what is injected is relevant,",
        f"  {figures['coverage, own']:.0%} of the questions get something relevant; two in a prompt:",
        f"  {figures['precision, paired']:.2f} and {figures['coverage, paired']:.0%}, within talk:",
        f"  {figures['precision, within talk']:.2f} and {figures['coverage, within talk']:.0%}.",
        f"  {figures['injected, elsewhere']:.1%} of those asked in another scope get an injection.",
        f"  Calibration error {found['ece']:.3f}; by tenths, mean confidence and share that is relevant:",
        f"  {', '.join(tenths[:5])},",
        f"  {', '.join(tenths[5:])}.",
    ]
    return "".join(f"# {line}\n" for line in lines)


ROWS = {
    "precision, own": "asked alone: relevant, of the memories injected",
    "coverage, own": "asked alone: questions that get something relevant",
    "precision, paired": "two in a prompt: relevant",
    "coverage, paired": "two in a prompt: questions that get something relevant",
    "precision, within talk": "between three sentences of other talk: relevant",
    "coverage, within talk": "between three sentences of other talk: questions that get something relevant",
    "precision, held out": "joined in ways that nothing was fitted on: relevant",
    "coverage, held out": "joined in ways that nothing was fitted on: questions that get something relevant",
    "told, own": "asked alone: prompts with an injection or a nudge",
    "injected, elsewhere": "asked elsewhere: prompts with an injection",
    "told, elsewhere": "asked elsewhere: with an injection or a nudge",
    "injected, talk": "other talk alone: prompts with an injection",
    "told, talk": "other talk alone: with an injection or a nudge",
}


def table(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    columns = [results[name] for name in ("in sample", "coefficients left out", "left out")]
    out = columns[-1]
    names = ", ".join(
        f"{name} {value}"
        for name, value in zip(
            ("intercept", *FEATURES), results["model"]["coefficients"], strict=True
        )
    )
    labels = ", ".join(f"{name} {value}" for name, value in results["model"]["labels"].items())
    lines = [
        f"`{results['collection']}`, {results['date']}. Coefficients: {names}. Labels: {labels}.",
        "",
        "*As shipped* is measured on what it was fitted on. *Left out* rates each scope by coefficients from",
        "the other scopes, *labels too* has the labels chosen there as well. In brackets 95% intervals, from",
        "drawing the queries again.",
        "",
        "| | as shipped | left out | labels too |",
        "| --- | --- | --- | --- |",
        *(row(ROWS[name], [said(column["figures"][name]) for column in columns]) for name in ROWS),
        row("memories injected", [str(column["memories injected"]) for column in columns]),
        row(
            f"calibration error (ECE) of {out['hits']} hits",
            [f"{column['ece']:.3f}" for column in columns],
        ),
        row("Brier score", [f"{column['brier']:.3f}" for column in columns]),
        "",
        "Of the hits by confidence, each scope left out:",
        "",
        "| hits | mean confidence | relevant |",
        "| --- | --- | --- |",
        *(f"| {count} | {mean:.2f} | {true:.2f} |" for count, mean, true in out["reliability"]),
        "",
        "In small stores, drawn from the query's own scope with one answer or none, each scope left out:",
        "",
        "| memories | with an answer: injected for | of it relevant | without: injected for |",
        "| --- | --- | --- | --- |",
        *(small_row(size, out["small"]) for size in SIZES),
    ]
    return "\n".join(lines)


def small_row(size: int, found: Sequence[dict[str, Any]]) -> str:
    """Return the row of the stores of one size."""
    of = {each["kind"]: each for each in found if each["size"] == size}
    with_answer, without = of[ANSWERED], of[UNANSWERED]
    shares = [
        f"{with_answer['injected']:.0%}",
        f"{with_answer['precision']:.2f}",
        f"{without['injected']:.1%}",
    ]
    return row(str(size), shares)


def row(name: str, cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {name} | {' | '.join(cells)} |"


def said(figure: Sequence[float] | None) -> str:
    """Return a figure with its interval."""
    return "none" if figure is None else f"{figure[0]:.3f} ({figure[1]:.3f}-{figure[2]:.3f})"


if __name__ == "__main__":
    sys.exit(main())
