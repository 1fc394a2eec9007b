"""Judges, panels and cascades on recorded answers of real models: accuracy, and calls to the strong one.

python bench/judging.py --data DIR [--json] [--write FILE] [--only SET]

DIR/judge/ holds alaofi_relevance, rewardbench2_scores, llmbar and prometheus_gpt4x3; a set that is missing
is left out. Gates, margins and panels are chosen on one part of the items and reported on the other, over
seeded splits. What is reported of cascades is what the judge itself says and asks, with the models' answers
replayed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.judged import best_of_four, pairs, relevance, self_agreement
from bench.judged.tables import markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.judged.tables import Table

SETS: dict[str, Callable[[Path], Iterator[Table]]] = {
    "alaofi_relevance": relevance.tables,
    "rewardbench2_scores": best_of_four.tables,
    "llmbar": pairs.tables,
    "prometheus_gpt4x3": self_agreement.tables,
}


def main() -> int:
    """Measure the sets that are there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", choices=SETS, help="measure one set")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    namespace = parser.parse_args()
    wanted = {name: make for name, make in SETS.items() if namespace.only in (None, name)}
    folders = {name: namespace.data / "judge" / name for name in wanted}
    tables = [
        table
        for name, make in wanted.items()
        if folders[name].is_dir()
        for table in make(folders[name])
    ]
    if not tables:
        parser.error(f"{namespace.data}/judge has none of {', '.join(wanted)}")
    page = markdown(tables)
    if namespace.write:
        namespace.write.write_text(page, encoding="utf-8")
    found = [{**table._asdict(), "rows": [row._asdict() for row in table.rows]} for table in tables]
    print(json.dumps(found) if namespace.json else page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
