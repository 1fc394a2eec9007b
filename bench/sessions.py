"""How often the right session of a long conversation is found: a file a session, with the date in its text.

python bench/sessions.py --data FILE [--json] [--write FILE]

FILE is `locomo10.json` of LoCoMo (ten conversations, CC BY-NC 4.0). Each session becomes a text file: the
date in the first line, then a line a turn. Each question with evidence is asked of its own conversation, as
`judgekit search` asks it and as a prompt that the hook gets. A question counts if a session with evidence for
it comes first, or is among the first five. BM25 has each file as one text (Snowball stems, k1 1.2, b 0.75).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.notes import search_store
from judgekit.retrieval import confidence, terms
from judgekit.retrieval.compiled import KINDS, Profiles, get_bundled_data

if TYPE_CHECKING:
    from collections.abc import Callable

    Find = Callable[[str], list[str]]

FEW = 5
METHODS = ("BM25", "judgekit search", "prompt")
SEARCH_POOL = confidence.PROMPT_POOL * 10
EVIDENCE = re.compile(r"D(\d+):\d+")
K1, B = 1.2, 0.75


class Question(NamedTuple):
    """A query, and the files that hold evidence for the answer."""

    text: str
    relevant: set[str]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    conversations = json.loads(options.data.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as home:
        os.environ["JUDGEKIT_HOME"] = home
        results = {}
        for conversation in conversations:
            name = conversation["sample_id"]
            results[name] = measure(conversation, Path(home) / "stores" / name)
    report = table(results)
    print(json.dumps(results) if options.json else report)
    if options.write:
        options.write.write_text(f"# Sessions\n\n{report}\n", encoding="utf-8")
    return 0


def measure(conversation: dict[str, Any], store: Path) -> dict[str, Any]:
    """Return the hits of each method on one conversation."""
    files = write_sessions(conversation["conversation"])
    store.mkdir(parents=True)
    for name, text in files.items():
        (store / name).write_text(text, encoding="utf-8")
    questions = read_questions(conversation["qa"])
    methods: dict[str, Find] = {
        "BM25": plain_bm25(files),
        "judgekit search": lambda text: search_store(store, text, SEARCH_POOL, FEW),
        "prompt": lambda text: search_store(store, text, confidence.PROMPT_POOL, FEW),
    }
    hits = {name: count_hits(find, questions) for name, find in methods.items()}
    return {"files": len(files), "questions": len(questions), "hits": hits}


def write_sessions(conversation: dict[str, Any]) -> dict[str, str]:
    """Return the text of each session by the name of its file."""
    files = {}
    for key, turns in conversation.items():
        if not isinstance(turns, list) or not turns:
            continue
        lines = [f"Date: {conversation[f'{key}_date_time']}", ""]
        lines += [f"{turn['speaker']}: {' '.join(turn['text'].split())}" for turn in turns]
        files[f"{key}.txt"] = "\n".join([*lines, ""])
    return files


def read_questions(records: list[dict[str, Any]]) -> list[Question]:
    """Return the questions that have evidence."""
    questions = []
    for record in records:
        numbers = EVIDENCE.findall(" ".join(record["evidence"]))
        if numbers:
            relevant = {f"session_{number}.txt" for number in numbers}
            questions.append(Question(record["question"], relevant))
    return questions


def plain_bm25(files: dict[str, str]) -> Find:
    """Search with BM25 alone, over the stems of whole files."""
    language = Profiles(get_bundled_data()).by_kind[KINDS[0]].language
    counts = {name: Counter(terms.stem_text(text, language)) for name, text in files.items()}
    lengths = {name: sum(words.values()) for name, words in counts.items()}
    average = sum(lengths.values()) / len(lengths)
    holders = Counter(word for words in counts.values() for word in words)

    def score(name: str, words: set[str]) -> float:
        damping = K1 * (1 - B + B * lengths[name] / average)
        total = 0.0
        for word in words:
            frequency = counts[name][word]
            rest = len(files) - holders[word]
            rarity = math.log(1 + (rest + 0.5) / (holders[word] + 0.5))
            total += rarity * frequency * (K1 + 1) / (frequency + damping)
        return total

    def find(text: str) -> list[str]:
        words = set(terms.stem_text(text, language))
        return sorted(files, key=lambda name: -score(name, words))[:FEW]

    return find


def count_hits(find: Find, questions: list[Question]) -> list[int]:
    """Return for how many questions a right file comes first, and is among the first few."""
    first = 0
    few = 0
    for question in questions:
        found = find(question.text)
        first += bool(question.relevant.intersection(found[:1]))
        few += bool(question.relevant.intersection(found))
    return [first, few]


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the shares as Markdown, a row a conversation."""
    lines = [f"{datetime.now(UTC):%Y-%m-%d}, LoCoMo, a file a session.", ""]
    lines += [
        f"Share of the questions whose right session comes first / is among the first {FEW}.",
        "",
        f"| | sessions | questions | {' | '.join(METHODS)} |",
        f"| --- |{' --- |' * (2 + len(METHODS))}",
    ]
    for name, found in results.items():
        lines.append(row(name, [found]))
    lines.append(row("all", list(results.values())))
    return "\n".join(lines)


def row(name: str, results: list[dict[str, Any]]) -> str:
    """Return the row of one conversation, or of several together."""
    files = sum(found["files"] for found in results)
    questions = sum(found["questions"] for found in results)
    cells = []
    for method in METHODS:
        first = sum(found["hits"][method][0] for found in results)
        few = sum(found["hits"][method][1] for found in results)
        cells.append(f"{first / questions:.3f} / {few / questions:.3f}")
    return f"| {name} | {files} | {questions:,} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
