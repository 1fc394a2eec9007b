"""Fits and measures the confidence of hits: which memories a prompt gets without any model.

python bench/confidence.py --data DIR [--json] [--fit] [--write FILE]

DIR is a collection whose ids name a scope (`SCOPE/NAME`), as `judgekit eval retrieval --scope-prefix` reads
it. Every query is asked in its own scope, in every other one, and in small stores drawn from its own, with
one of its answers and without any. `--fit` fits the coefficients, chooses the labels, and writes both into
retrieval/*.yaml (then run `make generate`); without it the shipped ones are measured. Either way the figures
are given twice: with the coefficients at hand, and with coefficients and labels from the other scopes alone.
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

from judgekit.evaluation import cases, retrieval, stats
from judgekit.evaluation.retrieval import MAX_INJECTED, POOL, SHOWN, CollectionIndex
from judgekit.evaluation.stats import Measure, intervals, mean
from judgekit.retrieval import compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from judgekit.evaluation.cases import Collection, CollectionDocument
    from judgekit.evaluation.stats import BootstrapInterval
    from judgekit.retrieval.compiled import Profile

FEATURES = ("odds", "titled", "near", "alone")
OWN, ELSEWHERE, ANSWERED, UNANSWERED = "own", "elsewhere", "small, answered", "small, unanswered"
SIZES = (1, 3, 10, 30, 150)  # of the small stores
WEIGHTS = {OWN: 1.0, ELSEWHERE: 0.3, ANSWERED: 0.05, UNANSWERED: 0.05}  # of a hit when fitting
RIDGE = 0.5  # of the coefficients: as if little were known of each beforehand
PRECISION, COVERAGE = 0.83, 0.27  # what `high` keeps clear of, either way: .80 and .25 are promised
MENTIONED = 0.05  # of the prompts elsewhere, that `mention` aims at
RETRIEVAL = Path(__file__).parent.parent / "retrieval"


class Hit(NamedTuple):
    """The features of a hit, and whether it is relevant."""

    features: tuple[float, ...]
    relevant: bool


class Asked(NamedTuple):
    """What a query finds in one store, best first; `kind` says in which, `scope` whose query it is."""

    scope: str
    kind: str
    size: int
    hits: list[Hit]


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
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    profile = compiled.Profiles(compiled.bundled()).by_kind[compiled.KINDS[0]]
    found = cases.read_collection(options.data)
    asked = ask_all(found, profile)
    model = train(asked) if options.fit else shipped(profile)
    others = left_out(asked)
    results = {
        "collection": found.name,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "model": model._asdict(),
        "in sample": measure(asked, [model] * len(asked)),
        "coefficients left out": measure(asked, [each._replace(labels=model.labels) for each in others]),
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


def ask_all(found: Collection, profile: Profile) -> list[Asked]:
    """Return what every query finds in its own scope, in all others and in small stores."""
    documents: dict[str, list[CollectionDocument]] = defaultdict(list)
    for document in found.documents:
        documents[retrieval.scope(document.id)].append(document)
    stores = {name: CollectionIndex(of, profile) for name, of in documents.items()}
    chance = random.Random(5)  # noqa: S311 - the same stores every time, not a secret
    asked = []
    for query in found.queries:
        scope, relevant = retrieval.scope(query.id), answers(found, query.id)
        for name, own in stores.items():
            kind = OWN if name == scope else ELSEWHERE
            asked.append(ask(own, query.text, relevant, Asked(scope, kind, len(documents[name]), [])))
        for size in SIZES:
            for kind in (ANSWERED, UNANSWERED):
                drawn = draw(documents[scope], relevant, size, chance, answered=kind == ANSWERED)
                with closing(CollectionIndex(drawn, profile)) as small:
                    asked.append(ask(small, query.text, relevant, Asked(scope, kind, size, [])))
    for opened in stores.values():
        opened.close()
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


def ask(store: CollectionIndex, text: str, relevant: set[str], asked: Asked) -> Asked:
    """Return `asked` with the hits that may be injected or are shown."""
    for candidate in store.candidates(text)[: max(POOL, SHOWN)]:
        features = tuple(candidate.features[name] for name in FEATURES)
        asked.hits.append(Hit(features, candidate.id in relevant))
    return asked


# Fitting


def logistic(coefficients: Sequence[float], features: Sequence[float]) -> float:
    """Return the probability that a hit with these features is relevant."""
    pairs = zip(coefficients[1:], features, strict=True)
    return 1 / (1 + exp(-coefficients[0] - sum(factor * value for factor, value in pairs)))


def fit(asked: Iterable[Asked]) -> list[float]:
    """Return the coefficients of greatest penalised likelihood, by Newton's method; the intercept is free."""
    rows = [
        ((1.0, *hit.features), float(hit.relevant), WEIGHTS[each.kind])
        for each in asked
        for hit in each.hits[:SHOWN]
    ]
    size = len(FEATURES) + 1
    coefficients = [0.0] * size
    for _ in range(30):
        gradient = [0.0, *[-RIDGE * coefficient for coefficient in coefficients[1:]]]
        curvature = [[RIDGE if a == b > 0 else 0.0 for a in range(size)] for b in range(size)]
        for values, relevant, weight in rows:
            expected = logistic(coefficients, values[1:])
            error, spread = weight * (relevant - expected), weight * expected * (1 - expected)
            for a in range(size):
                gradient[a] += error * values[a]
                for b in range(size):
                    curvature[a][b] += spread * values[a] * values[b]
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
    """The confidences of a query's hits, best first, and which of them are relevant."""

    kind: str
    confidences: list[float]
    relevant: list[bool]

    def injected(self, high: float) -> list[bool]:
        """Return, of what the hook injects, which is relevant."""
        rated = zip(self.confidences[:POOL], self.relevant[:POOL], strict=True)
        return [relevant for confidence, relevant in rated if confidence >= high][:MAX_INJECTED]


def rate(asked: Asked, coefficients: Sequence[float]) -> Rated:
    """Return the confidences that these coefficients give."""
    confidences = [logistic(coefficients, hit.features) for hit in asked.hits]
    return Rated(asked.kind, confidences, [hit.relevant for hit in asked.hits])


def balanced(rated: Sequence[Rated]) -> float:
    """Return the confidence half way between the least with `PRECISION` and the greatest with `COVERAGE`."""
    own = [each for each in rated if each.kind == OWN]
    precise, covering = [], [0]
    for percent in range(1, 100):
        injected = [each.injected(percent / 100) for each in own]
        if sum(map(sum, injected)) >= PRECISION * sum(map(len, injected)):
            precise.append(percent)
        if sum(map(any, injected)) >= COVERAGE * len(own):
            covering.append(percent)
    return round((min(precise, default=99) + max(covering)) / 200, 2)


def quietest(rated: Sequence[Rated]) -> float:
    """Return the least confidence that at most `MENTIONED` of the prompts reach where nothing is relevant."""
    best = sorted(max(each.confidences, default=0.0) for each in rated if each.kind == ELSEWHERE)
    return round(best[int((1 - MENTIONED) * len(best))] + 0.005, 2)


# Measuring


def measure(asked: Sequence[Asked], models: Sequence[Model]) -> dict[str, Any]:
    """Return the figures, with intervals, of rating each query with its model."""
    rated = [rate(each, model.coefficients) for each, model in zip(asked, models, strict=True)]
    injected = [each.injected(model.labels["high"]) for each, model in zip(rated, models, strict=True)]
    mentioned = [
        any(confidence >= model.labels["mention"] for confidence in each.confidences[:POOL])
        for each, model in zip(rated, models, strict=True)
    ]
    own, elsewhere = ([n for n, each in enumerate(asked) if each.kind == kind] for kind in (OWN, ELSEWHERE))
    figures = intervals(
        {
            "precision": Measure([sum(injected[n]) for n in own], [len(injected[n]) for n in own]),
            "coverage": mean([any(injected[n]) for n in own]),
            "injected, own": mean([bool(injected[n]) for n in own]),
            "told, own": mean([mentioned[n] for n in own]),
        }
    ) | intervals(
        {
            "injected, elsewhere": mean([bool(injected[n]) for n in elsewhere]),
            "told, elsewhere": mean([mentioned[n] for n in elsewhere]),
        }
    )
    shown = [
        (c, r) for n in own for c, r in zip(rated[n].confidences[:SHOWN], rated[n].relevant, strict=False)
    ]
    confidences, relevant = [c for c, _ in shown], [r for _, r in shown]
    return {
        "figures": {name: rounded(bootstrap_interval) for name, bootstrap_interval in figures.items()},
        "memories injected": sum(len(injected[n]) for n in own),
        "hits": len(shown),
        "ece": round(stats.ece(confidences, relevant) or 0.0, 4),
        "brier": round(stats.brier(confidences, relevant) or 0.0, 4),
        "reliability": [
            [each.count, round(each.confidence, 3), round(each.relevant, 3)]
            for each in stats.table(confidences, relevant)
        ],
        "small": [small(asked, injected, kind, size) for size in SIZES for kind in (ANSWERED, UNANSWERED)],
    }


def small(asked: Sequence[Asked], injected: Sequence[list[bool]], kind: str, size: int) -> dict[str, Any]:
    """Return the share of prompts that get something, and how much of it is relevant, in such stores."""
    of = [
        found for each, found in zip(asked, injected, strict=True) if (each.kind, each.size) == (kind, size)
    ]
    told, right = sum(map(len, of)), sum(map(sum, of))
    share = sum(map(bool, of)) / len(of)
    precision = round(right / told, 3) if told and kind == ANSWERED else None
    return {"kind": kind, "size": size, "injected": round(share, 3), "precision": precision}


def rounded(figure: BootstrapInterval | None) -> list[float] | None:
    """Return a figure and its bounds; None when there is none."""
    return None if figure is None else [round(each, 4) for each in (figure.value, figure.low, figure.high)]


# Writing


def shipped(profile: Profile) -> Model:
    """Return the coefficients and labels of a profile."""
    names = ("intercept", *FEATURES)
    return Model([profile.confidence[name] for name in names], profile.labels)


def store(path: Path, model: Model, comment: str) -> None:
    """Put a model into a profile's file, which must have a line for each; a language's file has none."""
    text = path.read_text(encoding="utf-8")
    names = ("intercept", *FEATURES)
    values = ", ".join(f"{name}: {value}" for name, value in zip(names, model.coefficients, strict=True))
    levels = ", ".join(f"{name}: {value}" for name, value in model.labels.items())
    text = re.sub(
        r"^confidence: \{intercept.*?(, body_share)", rf"confidence: {{{values}\1", text, flags=re.MULTILINE
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
        f"  {figures['precision']:.2f} of what is injected is relevant,",
        f"  {figures['coverage']:.0%} of the prompts get something relevant,",
        f"  {figures['injected, elsewhere']:.1%} of those asked in another scope get an injection.",
        f"  Calibration error {found['ece']:.3f}; by tenths, mean confidence and share that is relevant:",
        f"  {', '.join(tenths[:5])},",
        f"  {', '.join(tenths[5:])}.",
    ]
    return "".join(f"# {line}\n" for line in lines)


ROWS = {
    "precision": "relevant, of the memories injected",
    "coverage": "prompts with something relevant injected",
    "injected, own": "prompts with an injection",
    "told, own": "prompts with an injection or a nudge",
    "injected, elsewhere": "asked elsewhere: prompts with an injection",
    "told, elsewhere": "asked elsewhere: with an injection or a nudge",
}


def table(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    columns = [results[name] for name in ("in sample", "coefficients left out", "left out")]
    out = columns[-1]
    names = ", ".join(
        f"{name} {value}"
        for name, value in zip(("intercept", *FEATURES), results["model"]["coefficients"], strict=True)
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
        row(f"calibration error (ECE) of {out['hits']} hits", [f"{column['ece']:.3f}" for column in columns]),
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
