"""The answers of each bundled rubric that scores about its labelled cases, with the models set up here.

python bench/rubrics.py [--only ID]... [--json] [--write FILE]

Both modes are judged as `judgekit judge` would. JUDGEKIT_RECORD and JUDGEKIT_REPLAY work as everywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from judgekit.config import MODES, settings
from judgekit.evaluation import runner
from judgekit.evaluation.stats import UNDECIDED
from judgekit.judging.panel import resolve_panel
from judgekit.rubric import loader
from judgekit.rubric.loader import read_cases
from judgekit.rubric.schema import ScoreCase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.task import Tried
    from judgekit.rubric.loader import LoadedRubric

HEAD = """# Rubrics on their own cases, measured

Made by `python bench/rubrics.py --write docs/figures/rubrics.md` on {day}, with {models}. Every
rubric has [labelled cases](../rubrics.md#labelled-cases) that were written for it; they are few, and meant to
be hard: read the intervals. *AUC* is how often a case that should be accepted has a higher mean score than
one that should not: 0.5 is chance, 1 is a judge that only needs other thresholds. **Bold** verdicts are not
as labelled.
"""


class Effect(NamedTuple):
    """A rubric with its cases and the answers about them."""

    loaded: LoadedRubric
    cases: list[ScoreCase]
    tried: list[Tried]

    def of(self, mode: ModeName) -> list[Tried]:
        """Return the cases tried in one mode."""
        return [each for each in self.tried if each.mode == mode]


def main() -> int:
    """Try every rubric and print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="ID", action="append", help="try this rubric; may be repeated"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    namespace = parser.parse_args()
    effects = []
    for rubric in loader.load_rubrics():
        scored = [case for case in read_cases(rubric) if isinstance(case, ScoreCase)]
        if scored and rubric.rubric.rubric in (namespace.only or [rubric.rubric.rubric]):
            effects.append(Effect(rubric, scored, runner.judge_cases(rubric, scored)))
    page = "\n".join([_head(), *(_section(effect) for effect in effects)])
    if namespace.write:
        namespace.write.write_text(page, encoding="utf-8")
    found = [
        {"rubric": effect.loaded.rubric.ref} | tried._asdict()
        for effect in effects
        for tried in effect.tried
    ]
    print(json.dumps(found) if namespace.json else page)
    return 0


def _head() -> str:
    panel, _ = resolve_panel(settings.load(None))
    models = ", ".join(
        sorted({Path(endpoint.model).stem for jury in panel.values() for endpoint in jury})
    )
    return HEAD.format(day=f"{datetime.now(UTC):%-d %B %Y}", models=models)


def _section(effect: Effect) -> str:
    rubric = effect.loaded.rubric
    sums = [_sum(effect.of(mode), mode) for mode in MODES]
    rows = [_row(case, effect) for case in effect.cases]
    return "\n".join(
        [
            f"## {rubric.ref}",
            "",
            *(
                "| mode | as labelled | accepted or not, as labelled | AUC |",
                "| --- | --- | --- | --- |",
                *sums,
            ),
            "",
            *(
                "| case | strict | lenient | scores | why the label |",
                "| --- | --- | --- | --- | --- |",
                *rows,
            ),
            "",
        ]
    )


def _sum(tried: Sequence[Tried], mode: ModeName) -> str:
    accepted = [
        one._replace(expected=str(one.expected == "accept"), said=str(one.said == "accept"))
        for one in tried
        if one.said not in UNDECIDED
    ]
    return f"| {mode} | {_share(tried)} | {_share(accepted)} | {auc(tried):.2f} |"


def _share(tried: Sequence[Tried]) -> str:
    agreement = runner.count_agreements(tried)
    share = agreement.share
    if share is None:
        return "none decided"
    figures = f"{share.value:.0%}, {share.low:.0%} to {share.high:.0%}"
    left = f", {agreement.undecided} undecided" if agreement.undecided else ""
    return f"{agreement.right} of {agreement.decided} ({figures}){left}"


def auc(tried: Sequence[Tried]) -> float:
    """Return the share of pairs in which the acceptable case has the higher mean score; ties count half.

    0.5 if there's nothing to compare. Hanley and McNeil, "The meaning and use of the area under a
    receiver operating characteristic (ROC) curve", Radiology 143(1), 1982.
    """
    means = [(fmean(one.scores.values()), one.expected == "accept") for one in tried if one.scores]
    good, bad = ([mean for mean, accept in means if accept is wanted] for wanted in (True, False))
    wins = sum((one > other) + (one == other) / 2 for one in good for other in bad)
    return wins / (len(good) * len(bad)) if good and bad else 0.5


def _row(case: ScoreCase, effect: Effect) -> str:
    said = {tried.mode: tried for tried in effect.tried if tried.case == case.id}
    scores = next((tried.scores for tried in said.values() if tried.scores), {})
    shown = ", ".join(f"{name} {value:.1f}" for name, value in scores.items()) or "none"
    verdicts = " | ".join(_verdict(said[mode]) for mode in MODES)
    return f"| {case.id} | {verdicts} | {shown} | {case.why.replace('|', '/')} |"


def _verdict(tried: Tried) -> str:
    return tried.said if tried.agrees else f"**{tried.said}**, not {tried.expected}"


if __name__ == "__main__":
    sys.exit(main())
