"""Calibrations that tests learn, and judges that use them."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from making import document, document_judge, file, promise
from scripted import ScriptedGateway, scores, scripted_endpoint, three_models

from judgekit.evaluation import cases as labelled
from judgekit.evaluation import samples
from judgekit.evaluation.calibrate import learn
from judgekit.judging import calibration
from judgekit.judging.orchestrator import USUAL, JudgeOptions
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.config import TierName
    from judgekit.judging.calibration import Calibration
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import PanelModels

MADE = datetime(2026, 11, 1, tzinfo=UTC)
PANEL = three_models()
MODELS: dict[TierName, str] = {tier: endpoint.model for tier, endpoint in PANEL.items()}
KLS = loader.score_rubric("kls")
GOOD = {"semantic": 5.0, "pragmatic": 5.0, "syntactic": 5.0}
NEARLY = {"semantic": 4.8, "pragmatic": 4.7, "syntactic": 4.9}
PLAIN, DEEP = scripted_endpoint("small"), scripted_endpoint("large")
TELLING, POINTWISE = replace(PLAIN, logprobs=True), replace(PLAIN, pointwise=True)


def case(number: int, label: str = "accept", /, **judges: dict[str, Any]) -> labelled.Case:
    return labelled.Case.model_validate({"id": str(number), "label": label, "judges": judges})


def cases(count: int = 120, wrong: int = 0, **how: Any) -> list[labelled.Case]:  # noqa: ANN401 - any setting
    """Return cases in which the quick tier accepts with a large margin, `wrong` of them wrongly."""
    found = []
    for number in range(count):
        label = "reject" if number < wrong else "accept"
        deep = {"model": MODELS["deep"], "reply": scores(*(5 if label == "accept" else 1,) * 3)}
        third = {"model": MODELS["tiebreaker"], "failure": "not_recorded"}
        quick = {"model": MODELS["quick"], "scores": GOOD}
        found.append(case(number, label, quick=quick | how, deep=deep | how, tiebreaker=third | how))
    return found


def learned(
    found: list[labelled.Case],
    rate: float = 0.05,
    reference: TierName | None = None,
    **options: Any,  # noqa: ANN401 - any option
) -> Calibration:
    models, wanted = samples.models(found), promise(rate, reference=reference)
    return learn(found, models, KLS, "strict", wanted, made=MADE, labels_sha256="0" * 64, **options)


@functools.cache
def known(rate: float = 0.05) -> Calibration:
    return learned(cases(), rate)


def read_so(quick: dict[str, Any], count: int = 120, **how: Any) -> Calibration:  # noqa: ANN401 - any setting
    """Return what was learned of two models, `small` and `large`."""
    judges = {"quick": {"model": "small", **quick, **how}, "deep": {"model": "large", "scores": GOOD, **how}}
    return learned([case(number, **judges) for number in range(count)])


def find(project: Path | None = None, **more: Any) -> tuple[FinalityRules | None, str]:  # noqa: ANN401 - any option
    """Return the rules to judge by, and the warning."""
    found = calibration.find(KLS, "strict", PANEL, project, **more)
    return found.finality, found.calibration_warning or ""


def misfit(one: Calibration, panel: PanelModels, options: JudgeOptions = USUAL) -> str | None:
    return calibration.misfit(one, KLS, calibration.fingerprint(panel, KLS.rubric, options))


def judged(
    answers: dict[str, list[Any]],
    panel: PanelModels = PANEL,
    **how: Any,  # noqa: ANN401 - any option
) -> tuple[Verdict, list[str]]:
    """Judge by what is found, or by given rules; return the verdict with the tiers that were asked."""
    gateway, (rules, warning) = ScriptedGateway(answers), find()
    how = {"finality": rules, "calibration_warning": warning or None} | how
    own = document_judge(gateway, panel, loaded=KLS, mode="strict", **how)
    return asyncio.run(own.judge(document((file("a.md", "# A"),), "a.md"))), gateway.asked
