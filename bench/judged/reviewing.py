"""A review by peers with two models on this machine, of two families: calls, seconds, findings that held."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any
from unittest import mock

from bench.judged.tables import lines
from judgekit.config import files
from judgekit.judging import documents, service
from judgekit.judging.request import JudgeRequest
from judgekit.rubric import loader
from judgekit.rubric.loader import read_cases

if TYPE_CHECKING:
    from judgekit.judging.documents import Document
    from judgekit.judging.verdict import Verdict

PATIENCE = 600  # seconds of a call: the rubric's own are for models that are not on this machine
TAKEN_FROM = ("kls", "agent-task", "groundedness")  # rubrics whose labelled cases bring the texts
DEEP = "qwen2.5-coder-1.5b"
CONFIG = "judge: {deadline: 3600, tiers: {quick: local/%s, deep: local/%s}}\n"


def subjects(most: int) -> list[Document]:
    """Return the first texts of the labelled cases of some rubrics, as documents."""
    cases = [case for name in TAKEN_FROM for case in read_cases(loader.find_rubric(name))]
    texts = [(case.id, text) for case in cases if (text := getattr(case, "text", None))]
    return [
        documents.build_document([documents.make_file(f"{name}.md", text)])
        for name, text in texts[:most]
    ]


def reviewed(home: Path, most: int, second: str) -> tuple[list[Verdict], list[dict[str, Any]]]:
    """Return the verdicts after a review, and every call, with the configuration and recording in `home`."""
    profile = (files.get_data_folder("providers") / "local.yaml").read_text(encoding="utf-8")
    (home / "providers").mkdir(parents=True)
    # As a chat model with a schema: asked by single tokens a model finds nothing.
    chat = "".join(f"{line}\n" for line in profile.split("\n") if not line.startswith("pointwise"))
    chat += f"families: {{{json.dumps(second)}: another}}\n"
    (home / "providers" / "local.yaml").write_text(chat, encoding="utf-8")
    (home / "config.yaml").write_text(CONFIG % (second, DEEP), encoding="utf-8")
    patient, recording = home / "kls.yaml", home / "calls.jsonl"
    text = re.sub(
        r"timeout: \d+", f"timeout: {PATIENCE}", loader.find_rubric("kls").path.read_text("utf-8")
    )
    patient.write_text(text.replace("rubric: kls\n", "rubric: kls-patient\n"), encoding="utf-8")
    request = JudgeRequest(rubric=str(patient), mode="strict", cache=False, depth="peers")
    environ = {
        "XDG_CONFIG_HOME": str(home.parent),
        "JUDGEKIT_RECORD": str(recording),
        "JUDGEKIT_LOCAL_MODEL": DEEP,
    }
    with mock.patch.dict(os.environ, environ):
        verdicts = asyncio.run(service.ajudge_documents(subjects(most), None, request, at_once=1))
    if not any(one.opinion for each in verdicts for one in each.rounds):
        raise SystemExit(f"no model answered: {verdicts[0].degraded}")
    return verdicts, lines(recording)


def page(most: int, second: str) -> str:
    """Review up to `most` texts with two small models, `second` and ours; return the page of figures."""
    with tempfile.TemporaryDirectory() as home:
        verdicts, calls = reviewed(Path(home, "judgekit"), most, second)
    count = len(verdicts)
    found = [one for each in verdicts for one in each.review]
    rounds = [one for each in verdicts for one in each.rounds]
    words = [each.verdict for each in verdicts]
    rows = {
        "texts": count,
        "calls": len(calls),
        "of these reviews of findings": sum("review" in call.get("part", "") for call in calls),
        "calls that failed": sum("failure" in call and bool(call["failure"]) for call in calls),
        "seconds a text": f"{fmean(each.duration_ms for each in verdicts) / 1_000:.1f}",
        "texts with findings": sum(bool(each.review) for each in verdicts),
        "findings before": len(found),
        "dropped by code: a quote that is not in the text": sum(bool(one.dropped) for one in found),
        "refuted with a quote": sum(bool(one.refuted_by) for one in found),
        "findings after": sum(one.held for one in found),
        "texts whose scores were given again": sum(
            any(one.tier == "tiebreaker" and one.opinion for one in each.rounds)
            for each in verdicts
        ),
        "rounds without an opinion": sum(one.opinion is None for one in rounds),
        "accepted, improve, rejected, other": ", ".join(
            str(each)
            for each in (
                *(words.count(word) for word in ("accept", "improve", "reject")),
                sum(word in ("escalate", "undetermined") for word in words),
            )
        ),
    }
    about = (
        f"{count} short texts (cases of {', '.join(TAKEN_FROM)}) under `kls`, with longer time limits,"
        f" strict, by {Path(second).stem} and {DEEP}, on two cores. Each counts as a family of its own here."
        " This says what a review takes and drops, not how good it is."
    )
    table = ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n\n".join(["## A review by two small models", about, "\n".join(table)]) + "\n"
