"""`judgekit eval`: how well it does on labelled data."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit import paths
from judgekit.cli import evaluate_judge
from judgekit.cli.measured import figure, progress, resampling
from judgekit.cli.output import complain, emit, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.evaluation.report import Report
    from judgekit.retrieval.compiled import Profile

app = typer.Typer(no_args_is_help=True, help="Measure how well it does on labelled data.")


class Kind(enum.StrEnum):
    """The retrieval profiles."""

    CLAUDE_MEMORY = "claude-memory"
    CLAUDE_AUTO_MEMORY = "claude-auto-memory"
    MARKDOWN = "markdown"


app.command("judge")(evaluate_judge.judge)


@app.command()
def retrieval(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv.")
    ],
    scope_prefix: Annotated[
        bool,
        typer.Option(
            "--scope-prefix",
            help="Search only documents whose id has the same part before / as the query's.",
        ),
    ] = False,
    profile: Annotated[Kind, typer.Option(help="The retrieval profile that ranks.")] = Kind.CLAUDE_MEMORY,
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the rankings, in TREC run format.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Measure ranking, confidence and injection on a labelled collection."""
    from judgekit.evaluation import collection, trec
    from judgekit.evaluation import retrieval as evaluation

    found = collection.read(folder)
    if scope_prefix:
        collection.check_scopes(folder, found)
    if run is not None:
        trec.check(run, (each.id for each in (*found.queries, *found.documents)))
    used = _profile(profile.value)
    shown = progress(len(found.queries), "queries")
    seen = evaluation.search(found, used, scoped=scope_prefix, progress=shown)
    if run is not None:
        trec.write(run, ((each.query, each.ranking) for each in seen))
    report = evaluation.report(found, used, seen, scoped=scope_prefix)
    if report.strays:
        complain(
            f"{folder / collection.QRELS}: {report.strays} judgements of queries or documents that are not"
            " there; such a document counts as not found"
        )
    if as_json:
        emit(report.model_dump_json())
    else:
        for line in _lines(report):
            say(line)
    return 0


def _profile(kind: str) -> Profile:
    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.profile import compile_profiles

    return Profiles(compile_profiles(Path(paths.project_root(str(Path.cwd()))))).by_kind[kind]


def _lines(report: Report) -> Iterator[str]:
    scopes = f" in {report.scopes} scopes" if report.scopes is not None else ""
    profile = f"profile {report.profile.retrieval} {report.profile.version}"
    yield (
        f"{report.collection}: {report.documents} documents{scopes}, {report.queries} queries,"
        f" {report.judged} of them judged; {profile}"
    )
    yield ""
    for name, found in report.metrics.items():
        yield figure(name, found)
    yield ""
    yield from _confidence(report)
    yield ""
    injection = report.injection
    yield f"To {injection.prompts} prompts, {injection.answerable} of them answerable, the hook would add"
    yield figure("an injection, share of prompts", injection.injected)
    yield figure("a nudge, share of prompts", injection.nudged)
    yield figure("relevant, share of what is injected", injection.precision)
    yield figure("something relevant, share of answerable", injection.coverage)
    if report.elsewhere is not None:
        yield ""
        yield "Asked against the documents of the next scope"
        yield figure("an injection, share of prompts", report.elsewhere.injected)
        yield figure("a nudge, share of prompts", report.elsewhere.nudged)
    yield ""
    yield resampling(report.bootstrap, "queries")


def _confidence(report: Report) -> Iterator[str]:
    found = report.confidence
    if found.brier is None or found.ece is None:
        yield "Confidence: no query found anything"
        return
    yield f"Confidence of {found.hits} hits: Brier {found.brier:.4f}, ECE {found.ece:.4f}"
    yield f"  {'confidence':<12}{'hits':>8}{'mean':>8}{'relevant':>10}"
    for bin_ in found.bins:
        yield _row(f"{bin_.low:.1f} to {bin_.high:.1f}", bin_.count, bin_.confidence, bin_.relevant)
    for group in found.labels:
        yield _row(group.label, group.count, group.confidence, group.relevant)


def _row(name: str, count: int, confidence: float, relevant: float) -> str:
    return f"  {name:<12}{count:>8}{confidence:>8.3f}{relevant:>10.3f}"
