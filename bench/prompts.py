"""Measures the prompt hook with a judge that gives probabilities, beside BM25 alone.

python bench/prompts.py --data DIR [--ask] [--prompts N] [--recorded FILE] [--write FILE]

--data is a collection whose ids name a scope (`SCOPE/NAME`), such as conversations. Half of the prompts are
questions that a memory of their scope answers; the other half are asked in another scope, where none does.
`--ask` has the local model judge what the search finds for the prompts that aren't recorded yet, one call for
each candidate; without it the recorded probabilities are measured. The threshold of the model is learned on
one half of the prompts and measured on the other, and the other way round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
from collections import defaultdict
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from judgekit.config import settings as configuration
from judgekit.evaluation import cases, retrieval
from judgekit.evaluation.retrieval import SearchableCollection
from judgekit.hooks import fitting
from judgekit.hooks.trial import PromptTrial
from judgekit.judging import search, service
from judgekit.judging.documents import PromptCandidate, Query
from judgekit.judging.request import JudgeRequest
from judgekit.judging.select import CandidateJudge
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.retrieval import compiled, confidence
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import TierName
    from judgekit.evaluation.cases import Collection
    from judgekit.hooks.relevance import Answers
    from judgekit.retrieval.confidence import Candidate

LOCAL_MODEL = "qwen2.5-coder-1.5b"
QUICK: tuple[TierName, ...] = ("quick",)
PROMPTS = 60
RECORDED = Path(__file__).parent / "judged" / "prompts-local.jsonl"
SECONDS = 3_600.0  # for all candidates of a prompt: the model is as slow as this machine
MOST_INJECTED = 3

PAGE = """\
# Prompts that a model judges

Made by `python bench/prompts.py --data DIR --write docs/figures/prompts.md` on {when}. {count} prompts
from the questions of {name}: half are asked in the scope that answers them, half in another one. {model}
judged the {pool} best candidates of each; {machine}.

| what decides | injected | relevant | prompts with a relevant one, of {answerable} that have one | \
prompts with an injection, of {others} that have none |
| --- | --- | --- | --- | --- |
{rows}

{thresholds} A model this small is there to show how the threshold works: measure your own with
`judgekit eval memories --fit`.
"""


class Prompt(NamedTuple):
    """A question, and the scope in which it's asked; `relevant` are the ids that answer it there."""

    id: str
    text: str
    scope: str
    relevant: frozenset[str]


class Row(NamedTuple):
    """A line of the table: the injections, the relevant share of them, and the number of prompts."""

    injected: int
    relevant: int
    covered: int
    disturbed: int

    def text(self, name: str) -> str:
        share = f"{self.relevant / self.injected:.2f}" if self.injected else "-"
        return f"| {name} | {self.injected} | {share} | {self.covered} | {self.disturbed} |"


def main() -> int:
    """Ask if wanted, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--pool", type=int, default=configuration.RetrievalConfig().pool)
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    collection = cases.read_collection(options.data)
    prompts = draw_prompts(collection, options.prompts)
    if options.ask:
        judge_prompts(collection, prompts, options.pool, options.recorded)
    if not read_recorded(options.recorded):
        parser.error(f"{options.recorded}: nothing is recorded there; add --ask")
    text = page(collection, prompts, options.pool, options.recorded)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 0


def draw_prompts(collection: Collection, count: int) -> list[Prompt]:
    """Draw the same prompts each time: with an answer and without one in turn."""
    chance = random.Random(11)  # noqa: S311 - the same prompts every time, not a secret
    scopes = sorted({retrieval.get_scope(document.id) for document in collection.documents})
    queries = list(collection.queries)
    chance.shuffle(queries)
    prompts = []
    for number, query in enumerate(queries[:count]):
        own = retrieval.get_scope(query.id)
        relevant = frozenset(
            name for name, grade in collection.grades[query.id].items() if grade > 0
        )
        if number % 2 == 0:
            prompts.append(Prompt(query.id, query.text, own, relevant))
        else:
            other = chance.choice([scope for scope in scopes if scope != own])
            prompts.append(Prompt(query.id, query.text, other, frozenset()))
    return prompts


def judge_prompts(
    collection: Collection, prompts: Sequence[Prompt], pool: int, recorded: Path
) -> None:
    """Let the local model judge each prompt that isn't recorded, and append its answers."""
    os.environ["JUDGEKIT_LOCAL_MODEL"] = LOCAL_MODEL
    known = read_recorded(recorded)
    stores = open_stores(collection)
    texts = {document.id: document.text for document in collection.documents}
    for number, prompt in enumerate(prompts, 1):
        if prompt.id in known:
            continue
        hits = stores[prompt.scope].find_candidates(prompt.text, confidence.PROMPT_POOL)[:pool]
        likely = running.run(ask_local(prompt.text, hits, texts)) if hits else {}
        record = {"prompt": prompt.id, "scope": prompt.scope, "likely": likely}
        with recorded.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(record)}\n")
        print(f"{number} of {len(prompts)}: {len(likely)} candidates", file=sys.stderr, flush=True)


async def ask_local(
    text: str, hits: Sequence[Candidate], texts: Mapping[str, str]
) -> dict[str, float]:
    """Map the id of each hit to how likely the local model finds it relevant."""
    allowed = configuration.Config.model_validate({"providers": {"allow": ["local"]}})
    loaded = loader.load_configured_rubric("retrieval", allowed.retrieval.rubric, Path.cwd())
    request = JudgeRequest(mode=allowed.retrieval.mode, deadline=SECONDS)
    settings = service.judge_settings(allowed, loaded, None, request, tiers=QUICK)
    shown = []
    for hit in hits:
        passage = texts[hit.id][: search.SNIPPET_CHARS]
        shown.append(PromptCandidate.of(hit, hit.id, passage))
    async with aclosing(open_gateway(os.environ)) as gateway:
        judge = CandidateJudge(gateway, settings, service.open_reply_cache(request))
        selection = await judge.select(Query(text), tuple(shown))
    likely = {}
    for place, probability in search.probabilities_of(selection).items():
        likely[hits[place].id] = probability
    return likely


def read_recorded(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {record["prompt"]: record for record in records}


def open_stores(collection: Collection) -> dict[str, SearchableCollection]:
    profile = compiled.Profiles(compiled.get_bundled_data()).by_kind[compiled.KINDS[0]]
    documents = defaultdict(list)
    for document in collection.documents:
        documents[retrieval.get_scope(document.id)].append(document)
    return {scope: SearchableCollection(of, profile) for scope, of in documents.items()}


# --- What is measured


def page(collection: Collection, prompts: Sequence[Prompt], pool: int, recorded: Path) -> str:
    """Write the table of all recorded prompts."""
    known = read_recorded(recorded)
    stores = open_stores(collection)
    trials = []
    answers: Answers = {}
    judged = [prompt for prompt in prompts if prompt.id in known]
    for prompt in judged:
        hits = stores[prompt.scope].find_candidates(prompt.text, confidence.PROMPT_POOL)[:pool]
        likely = known[prompt.id]["likely"]
        injected, mentioned = confidence.choose_shown(
            hits, max_inject=MOST_INJECTED, inject="tiered", hint_on_zero=False
        )
        sureness = {hit.path: likely[hit.id] for hit in hits if hit.id in likely}
        made = PromptTrial(
            prompt.text, hits, (injected, mentioned), model=LOCAL_MODEL, sureness=sureness
        )
        trials.append(made)
        for hit in hits:
            answers[made.make_pair(hit)] = hit.id in prompt.relevant
    by_bm25 = [each.injected for each in trials]
    even = [choose_above(each, fitting.MIN_YES_PROBABILITY) for each in trials]
    learned, thresholds = choose_by_learned(trials, answers)
    rows = [
        count(trials, by_bm25, answers).text("BM25 alone"),
        count(trials, even, answers).text("the model, above an even probability"),
        count(trials, learned, answers).text("the model, above the threshold of the other half"),
    ]
    answerable = sum(bool(prompt.relevant) for prompt in judged)
    return PAGE.format(
        when=f"{datetime.now(UTC):%Y-%m-%d}",
        count=len(judged),
        name=collection.name,
        model=LOCAL_MODEL,
        pool=pool,
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        answerable=answerable,
        others=len(judged) - answerable,
        rows="\n".join(rows),
        thresholds=thresholds,
    )


def choose_above(made: PromptTrial, threshold: float) -> list[Candidate]:
    surest = made.list_surest(MOST_INJECTED)
    return [hit for hit in surest if made.sureness[hit.path] >= threshold]


def choose_by_learned(
    trials: Sequence[PromptTrial], answers: Answers
) -> tuple[list[list[Candidate]], str]:
    """Choose each half's injections by the threshold of the other; without one nothing is injected."""
    chosen: list[list[Candidate]] = [[] for _ in trials]
    said = []
    for start in (0, 1):
        # Pairs of prompts: with an answer and without one.
        half = [place for place in range(len(trials)) if place // 2 % 2 == start]
        rest = [each for place, each in enumerate(trials) if place not in half]
        fit = fitting.fit_model(LOCAL_MODEL, rest, answers, None, MOST_INJECTED)
        threshold = fit.after.get(fitting.INJECT_ABOVE)
        said.append(fit.refused or f"{threshold:.2f}")
        if threshold is None:
            continue
        for place in half:
            chosen[place] = choose_above(trials[place], threshold)
    return chosen, f"Learned from each half: {' / '.join(said)}."


def count(
    trials: Sequence[PromptTrial], chosen: Sequence[Sequence[Candidate]], answers: Answers
) -> Row:
    injected = 0
    relevant = 0
    covered = 0
    disturbed = 0
    for made, hits in zip(trials, chosen, strict=True):
        right = [hit for hit in hits if answers[made.make_pair(hit)]]
        injected += len(hits)
        relevant += len(right)
        covered += bool(right)
        is_answerable = any(answers[made.make_pair(hit)] for hit in made.hits)
        disturbed += bool(hits) and not is_answerable
    return Row(injected, relevant, covered, disturbed)


if __name__ == "__main__":
    sys.exit(main())
