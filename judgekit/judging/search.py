"""The flow from a query to memories: retrieval proposes, tiers judge, and BM25 answers where none can."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from judgekit import environment
from judgekit.config import TIERS, ModeName, check, require
from judgekit.config import settings as configuration
from judgekit.errors import ConfigError, InputError
from judgekit.judging import service
from judgekit.judging.documents import PROMPT_CHARS, Candidates, PromptCandidate, Query
from judgekit.judging.request import JudgeRequest
from judgekit.judging.select import CandidateJudge
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway, prepare
from judgekit.redaction import redact as redaction
from judgekit.retrieval import command, transcript
from judgekit.retrieval import search as api
from judgekit.retrieval.compiled import Profiles
from judgekit.retrieval.profiles import compile_profiles
from judgekit.rubric import loader
from judgekit.text import encodable, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config.settings import Config
    from judgekit.judging.verdict import Selection
    from judgekit.retrieval.search import Candidate

Judged: TypeAlias = "tuple[list[Candidate], list[Candidate], Selection]"

BODY_CHARS = 2_000
SNIPPET_CHARS = 300
WHOLE_CHARS = 20_000  # of a text whose secrets a passage must not show a half of
RESULTS = 10
ON_DEMAND_POOL = 20  # candidates that models see at least when somebody asks for a search
HOOK_SECONDS = (
    20.0  # that the hook judges at most: the client ends it at 30, and its answer would be lost
)
INJECTED_LABEL = "high"
NO_FULL_TEXT = "no model is asked without full-text search"


class Result(BaseModel, frozen=True):
    """One memory or document that was found; `kept_by` is the tier that kept it, "bm25" or "command".

    What `retrieval.command` found has no `bm25`, and no `confidence` but the program's own. A `status` is
    there only for what is not in force any more: superseded, deprecated or rejected.
    """

    id: str
    path: str
    title: str
    category: str
    tags: list[str]
    snippet: str
    bm25: float | None
    confidence: float | None
    confidence_label: str
    kept_by: str
    status: str | None = None

    @model_serializer(mode="wrap")
    def _without_empty_status(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        if self.status is None:
            del fields["status"]
        return fields


class SearchResult(BaseModel, frozen=True):
    """The answer to one search; `degraded` says why models had no part in it although they were asked."""

    query: str
    mode: str
    degraded: str | None
    results: list[Result]
    duration_ms: int
    notes: list[str] = []


def search(
    query: str,
    *,
    roots: Sequence[str] | None = None,
    project: str | None = None,
    mode: ModeName | None = None,
    judge: bool = False,
    limit: int = RESULTS,
) -> SearchResult:
    """Return what is stored about `query`, best first; with `judge` only what the models keep.

    `roots` are folders, relative ones from the current folder, or `claude:auto`; by default those of the
    configuration in `project` (the current one). When no model answers, a lenient search gives all BM25
    results and a strict one the few that BM25 is sure of. Raises `ConfigError`, `InputError` (a root is no
    folder) or `UsageError`.
    """
    require("search", query=query, limit=limit)
    check("search", mode=mode, roots=roots, project=project)
    for root in roots or ():
        require("search", **{"a root": root})
    started = time.perf_counter()
    home = project or environment.project_root(str(Path.cwd()))
    settings = configuration.load(Path(home))
    own = settings.retrieval
    redacts = settings.judge.redact
    asked = mode or own.search_mode
    if judge:
        pool = max(limit, ON_DEMAND_POOL, own.pool)
    else:
        pool = limit
    profiles = Profiles(compile_profiles(Path(home)))
    named = [_folder(root) for root in roots or ()]
    options = {
        "project": home,
        "limit": pool,
        "trusted": named or configuration.user_roots() or (),
        "profiles": profiles,
        "snippets": True,
        "scorer": own.scorer,
    }
    ranked = command.search(
        query, None if named else own.command, named or own.roots, own.deadline, options
    )
    kept = [(candidate, "bm25") for candidate in ranked.candidates]
    degraded = None
    notes = [*ranked.notes]
    if judge and (ranked.candidates or ranked.fallback):
        judged: Selection | str = NO_FULL_TEXT
        if ranked.fallback is None:
            most = BODY_CHARS + (redaction.MARGIN if redacts else 0)  # no secret is cut in two
            clean = redaction.words if redacts else str
            texts = []
            for each in ranked.candidates:
                texts.append(clean(api.body(each, most, profiles))[:BODY_CHARS])
            subject = _asked(Query(query), ranked.candidates, texts)
            judged = running.run(_judge(settings, Path(home), subject, mode=asked))
        notes += filter(None, [None if isinstance(judged, str) else judged.stale])
        kept, degraded = apply(judged, ranked.candidates, asked, own.fallback_top_k)
    why = "; ".join(filter(None, (ranked.degraded, degraded))) or None
    results = []
    for hit, by in kept[:limit]:
        results.append(Result(**hit.shown() | ({} if by == "bm25" else {"kept_by": by})))
    took = round((time.perf_counter() - started) * 1000)
    return SearchResult(
        query=encodable(query),
        mode=asked,
        degraded=why,
        results=results,
        duration_ms=took,
        notes=notes,
    )


def _folder(root: str) -> str:
    """Return the absolute path of a root that a caller names; raises `InputError` when it is no folder."""
    if root == api.AUTO_ROOT:
        return root
    path = Path(root)
    with suppress(RuntimeError):  # the home folder of nobody
        path = path.expanduser()
    if not root or not path.is_dir():
        raise InputError(
            f"{visible(root)}: no such folder; name a store or a folder of Markdown files"
        )
    return str(path.resolve())


def judged_hook(
    prompt: str,
    found: Sequence[Candidate],
    parts: Sequence[str],
    payload: Mapping[str, Any],
    project: str,
) -> Judged | str:
    """Return the kept and the undecided candidates, and what models selected; or why no model is asked."""
    settings = configuration.load(Path(project))
    own = settings.retrieval
    turns = transcript.last_turns(str(payload.get("transcript_path") or ""), own.context_turns)
    profiles = None  # the bundled ones, where the project's are wrong: said where candidates were looked for
    with suppress(ConfigError):
        profiles = Profiles(compile_profiles(Path(project)))
    texts = []
    for passage, body in api.passages(prompt, found, profiles):
        text = passage[:SNIPPET_CHARS]
        if settings.judge.redact and text:
            whole = redaction.redact(body[:WHOLE_CHARS])
            # A passage may begin or end within a secret: of a memory that has one, the beginning is shown.
            text = " ".join((whole.text if whole.secrets else redaction.words(text)).split())[
                :SNIPPET_CHARS
            ]
        texts.append(text)
    asked = _asked(Query(_best_first(prompt, parts, settings), turns), found, texts)
    judged = running.run(_judge(settings, Path(project), asked, mode=own.mode, hook=True))
    if isinstance(judged, str):
        return judged
    decided = []
    for each, decision in zip(found, judged.decisions, strict=True):
        decided.append((each, decision.decision))
    undecided = [candidate for candidate, word in decided if word == "undetermined"]
    fallback = [candidate for candidate in found[: own.fallback_top_k] if candidate in undecided]
    kept = []
    for candidate, word in decided:
        if word == "kept" or candidate in fallback:
            kept.append(candidate)
    return kept, undecided, judged


def _best_first(prompt: str, parts: Sequence[str], settings: Config) -> str:
    """Return a prompt that is longer than models are shown with its best parts first, and no secret cut."""
    if len(prompt) <= PROMPT_CHARS or not parts:
        return prompt
    if settings.judge.redact:
        without = redaction.redact(prompt[:WHOLE_CHARS]).text
        if settings.judge.redact == "refuse" and without != prompt[:WHOLE_CHARS]:
            return prompt
        prompt = without
        parts = [redaction.redact(part).text for part in parts]
    prompt = " ".join(prompt.split())
    return "\n".join([*[part for part in parts if part in prompt], prompt])


def apply(
    judged: Selection | str, candidates: Sequence[Candidate], mode: ModeName, top_k: int
) -> tuple[list[tuple[Candidate, str]], str | None]:
    """Return the candidates that stand, what kept each (BM25 where nothing was decided), and why, if so."""
    if isinstance(judged, str):
        sure = [
            candidate for candidate in candidates if candidate.confidence_label == INJECTED_LABEL
        ][:top_k]
        return [
            (candidate, "bm25") for candidate in (sure if mode == "strict" else candidates)
        ], judged
    fallback = candidates
    if mode == "strict":
        fallback = [hit for hit in candidates[:top_k] if hit.rated]
    kept: list[tuple[Candidate, str]] = []
    for candidate, decision in zip(candidates, judged.decisions, strict=True):
        if decision.decision == "kept":
            kept.append((candidate, decision.tier or ""))
        elif decision.decision == "undetermined" and candidate in fallback:
            kept.append((candidate, "bm25"))
    return kept, judged.degraded


async def _judge(
    config: Config, project: Path, asked: Candidates, *, mode: ModeName, hook: bool = False
) -> Selection | str:
    """Return the models' selection, or in one line why there is none."""
    own = config.retrieval
    if hook:  # between a person and an agent: each model answers once
        once = config.judge.model_copy(update={"samples": 1, "criteria": "together"})
        config = config.model_copy(update={"judge": once})
    loaded = loader.configured_rubric("retrieval", own.rubric, project)
    async with aclosing(open_gateway(environment.environ())) as gateway:
        request = JudgeRequest(mode=mode)
        tiers = own.tiers if hook else TIERS
        settings = service.judge_settings(config, loaded, project, request, tiers=tiers)
        if not settings.models_by_tier:
            return settings.no_model_reason
        if hook:
            left = min(own.deadline, HOOK_SECONDS)
        else:
            left = settings.timeout
        started = time.monotonic()
        if hook:  # what the endpoints need is imported first: no call's own timeout pays for it
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    for models in settings.models_by_tier.values():
                        for model in models:
                            await prepare(model)
        left -= time.monotonic() - started
        if left <= 0:
            return "not judged: importing litellm took longer than the deadline; raise retrieval.deadline"
        settings = replace(settings, timeout=left, call_timeout=own.timeout if hook else None)
        judge = CandidateJudge(gateway, settings, service.reply_cache(request))
        return await judge.select(asked.query, asked.candidates)


def _asked(query: Query, candidates: Sequence[Candidate], texts: Sequence[str]) -> Candidates:
    # An id that two stores share gets its place appended.
    ids = [candidate.id for candidate in candidates]
    names = []
    for place, each in enumerate(ids):
        names.append(each if ids.count(each) == 1 else f"{each}~{place}")
    shown = (
        PromptCandidate(name, candidate.title, candidate.category, tuple(candidate.tags), text)
        for name, candidate, text in zip(names, candidates, texts, strict=True)
    )
    return Candidates(query, tuple(shown))
