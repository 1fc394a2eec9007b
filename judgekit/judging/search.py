"""From a query to memories: retrieval proposes, tiers judge, and BM25 answers if they can't."""

from __future__ import annotations

import asyncio
import operator
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field

from judgekit import environment
from judgekit.config import TIERS, ModeName, check_arguments, require
from judgekit.config import settings as configuration
from judgekit.errors import ConfigError, InputError
from judgekit.judging import service
from judgekit.judging.documents import PROMPT_CHARS, Candidates, PromptCandidate, Query
from judgekit.judging.html import table_html
from judgekit.judging.notebook import make_data_frame
from judgekit.judging.request import JudgeRequest
from judgekit.judging.select import CandidateJudge
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway, prepare
from judgekit.redaction import redact as redaction
from judgekit.retrieval import command, transcript
from judgekit.retrieval import search as api
from judgekit.retrieval.compiled import Profiles
from judgekit.retrieval.index_file import describe_empty
from judgekit.retrieval.profiles import compile_profiles
from judgekit.rubric import loader
from judgekit.text import (
    escape_name,
    format_count,
    remove_invisible,
    replace_surrogates,
    shorten_to_line,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from judgekit.config.settings import Config, RetrievalConfig
    from judgekit.judging.settings import JudgeSettings
    from judgekit.judging.verdict import Decision, Selection
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

BODY_CHARS = 2_000
SNIPPET_CHARS = 300
MAX_REDACTED_CHARS = (
    20_000  # of a text that are searched for secrets, so that a passage can't show half of one
)
RESULTS = 10
ON_DEMAND_POOL = 20  # the least number of candidates for models if someone searches on purpose
HOOK_SECONDS = (
    20.0  # the longest the hook judges; the client stops it after 30 s and its answer would be lost
)
# How long a prompt waits for a decision model. It answers in tenths of a second, unless something's wrong.
DECISION_SECONDS = 1.5
SURE_LABEL = "high"
UNCALIBRATED = (
    "without a calibration, so nothing shows how far to believe it: learn that from labels "
    "(judgekit calibrate)"
)
NO_FULL_TEXT = "no model is asked without full-text search"


def _is_none(value: object) -> bool:
    return value is None


class Place(BaseModel, frozen=True):
    """A section of a text: its headings, and the line of the file it begins on, if known."""

    section: str
    line: int | None = Field(default=None, exclude_if=operator.not_)


_MAX_QUERY_CHARS = 100  # of a query in a result's short form


class Result(BaseModel, frozen=True):
    """One memory or document that was found; `kept_by` is the tier that kept it, "bm25" or "command".

    What `retrieval.command` found has no `bm25`, and no `confidence` but the program's own. A `status` is
    there only for what is not in force any more: superseded, deprecated or rejected. An `age` ("7 months") is
    there only for what is older than 90 days. `alike` counts older ones that say nearly the same, which share
    its place, and `alike_paths` names them. `because` is the row of the table of escalation that ended the
    judging of it, if it was judged. Of a long text, `section` (its headings, with " > " between them) and
    `line` are where the best passage begins, and `also` has a second one that is nearly as good.
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
    section: str | None = Field(default=None, exclude_if=_is_none)
    line: int | None = Field(default=None, exclude_if=operator.not_)
    also: list[Place] = Field(default=[], exclude_if=operator.not_)
    status: str | None = Field(default=None, exclude_if=operator.not_)
    age: str = Field(default="", exclude_if=operator.not_)
    alike: int = Field(default=0, exclude_if=operator.not_)
    alike_paths: list[str] = Field(default=[], exclude_if=operator.not_)
    because: str = Field(default="", exclude_if=operator.not_)


class KeptHit(NamedTuple):
    """A hit with the tier that kept it, or "bm25", and why its judging ended, if it was judged."""

    hit: Candidate
    kept_by: str
    because: str = ""


class HookChoice(NamedTuple):
    """The hits for a prompt that models keep, and their probabilities."""

    kept: list[Candidate]
    """In the order in which they're injected."""
    undecided: list[Candidate]
    """Hits that no model decided on; the first of them are kept anyway."""
    selection: Selection
    probabilities: Mapping[int, float]
    """The probability that the model keeps a hit, by its position; empty if it means nothing to a reader."""
    only_drops: bool
    """Whether the model's yes was never compared with labels, so that it's only trusted to drop hits."""


class _Choice(NamedTuple):
    """The hits that a search keeps, and the models' probabilities for them."""

    kept_hits: list[KeptHit]
    degraded: str | None = None
    """Why models didn't decide on all hits, or None."""
    probabilities: Mapping[int, float] = {}
    """A decision model's probabilities, by the hit's position."""
    notes: Sequence[str] = ()


class SearchResult(BaseModel, frozen=True):
    """The answer to one search; `degraded` says why models had no part in it although they were asked."""

    query: str
    mode: str
    degraded: str | None
    results: list[Result]
    duration_ms: int
    notes: list[str] = []

    def __repr__(self) -> str:
        """Return a line for people; `to_dict` has everything."""
        found = format_count(len(self.results), "result", "results")
        return escape_name(f"<{found} for {shorten_to_line(self.query, _MAX_QUERY_CHARS)!r}>")

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with a row for each result."""
        rows = []
        for result in self.results:
            location = result.path
            if result.line is not None:
                location = f"{result.path}:{result.line}"
            number = 0.0 if result.confidence is None else result.confidence
            confidence = f"{result.confidence_label} {number:.2f}"
            rows.append({"title": result.title, "confidence": confidence, "path": location})
        return table_html(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return self.model_dump(mode="json")

    def to_pandas(self) -> pd.DataFrame:
        """Build a data frame with a row for each result; raises `UsageError` without pandas."""
        return make_data_frame(self.to_dict()["results"])


def search(
    query: str,
    *,
    roots: Sequence[str] | None = None,
    project: str | None = None,
    mode: ModeName | None = None,
    judge: bool = False,
    limit: int = RESULTS,
) -> SearchResult:
    """Search for stored texts about `query`. The best ones come first.

    `roots` are folders, relative to the current one, or `claude:auto`. By default, the folders in the
    configuration of `project` are searched. The default `project` is the current one.

    With `judge`, models choose which texts to keep. If no model answers, a lenient search returns all BM25
    results, and a strict search only those that BM25 is sure of.

    Raises `ConfigError`, `UsageError`, or `InputError` if a root isn't a folder.
    """
    require("search", query=query, limit=limit)
    check_arguments("search", mode=mode, roots=roots, project=project)
    for root in roots or ():
        require("search", **{"a root": root})
    started = time.perf_counter()
    project_folder = project or environment.find_project_root(str(Path.cwd()))
    config = configuration.load(Path(project_folder))
    search_mode = mode or config.retrieval.search_mode
    profiles = Profiles(compile_profiles(Path(project_folder)))
    ranked = _find_candidates(
        query, config, project_folder, roots, profiles, limit=limit, judge=judge
    )
    # Without full-text search, even an empty result has to say that no model was asked, as the choice does.
    needs_choice = bool(ranked.candidates or ranked.fallback_reason)
    if judge and needs_choice:
        choice = _choose_with_models(query, ranked, config, project_folder, profiles, search_mode)
    else:
        choice = _Choice([KeptHit(candidate, "bm25") for candidate in ranked.candidates])

    return SearchResult(
        query=replace_surrogates(query),
        mode=search_mode,
        degraded=_join_problems(ranked, choice),
        results=_build_results(choice, ranked, limit),
        duration_ms=round((time.perf_counter() - started) * 1000),
        notes=[*ranked.notes, *map(describe_empty, ranked.empty_roots), *choice.notes],
    )


def _join_problems(ranked: RankedCandidates, choice: _Choice) -> str | None:
    """Join the problems of the ranking and of the models' choice, or return None if there are none."""
    problems = [ranked.degraded, choice.degraded]
    return "; ".join(filter(None, problems)) or None


def _build_results(choice: _Choice, ranked: RankedCandidates, limit: int) -> list[Result]:
    """Build the results for the first `limit` hits of a choice."""
    results = []
    for kept_hit in choice.kept_hits[:limit]:
        position = ranked.candidates.index(kept_hit.hit)
        probability = choice.probabilities.get(position)
        results.append(_build_result(kept_hit, probability))
    return results


def _build_result(kept: KeptHit, probability: float | None) -> Result:
    """Build the result for a hit. A decision model's `probability` replaces the hit's confidence."""
    fields = kept.hit.build_result_fields()
    fields["because"] = kept.because
    # "bm25" means that no model chose. Keep the field as it is then: it may name a program instead of BM25.
    if kept.kept_by != "bm25":
        fields["kept_by"] = kept.kept_by
    if probability is not None:
        fields["confidence"] = probability
    return Result(**fields)


def _find_candidates(
    query: str,
    config: Config,
    project_folder: str,
    roots: Sequence[str] | None,
    profiles: Profiles,
    *,
    limit: int,
    judge: bool,
) -> RankedCandidates:
    """Find the best candidates for a query: up to `limit`, or more if models will choose (`judge`).

    Without `roots`, the configured folders are searched, or the configured program is called.
    """
    retrieval = config.retrieval
    most_candidates = limit
    if judge:
        most_candidates = max(limit, ON_DEMAND_POOL, retrieval.pool)

    folders = [_resolve_root(root) for root in roots or ()]
    # A root outside the project is only searched if the caller or the user names it.
    trusted_folders = folders or configuration.read_user_roots() or ()
    options = {
        "project": project_folder,
        "limit": most_candidates,
        "trusted": trusted_folders,
        "profiles": profiles,
        "snippets": True,
        "scorer": retrieval.scorer,
    }
    if folders:  # the caller names them, so the program isn't called
        return command.search(query, None, folders, retrieval.deadline, options)
    return command.search(query, retrieval.command, retrieval.roots, retrieval.deadline, options)


def _choose_with_models(
    query: str,
    ranked: RankedCandidates,
    config: Config,
    project_folder: str,
    profiles: Profiles,
    mode: ModeName,
) -> _Choice:
    """Let models choose among the candidates. If no model is available, choose by the BM25 ranking.

    The choice contains notes for the user, and the reason if no model was used.
    """
    selection: Selection | str
    is_full_text_search = ranked.fallback_reason is None
    if is_full_text_search:
        candidates = _read_beginnings(query, ranked.candidates, config, profiles)
        selection = running.run(_ask_models(config, Path(project_folder), candidates, mode=mode))
    else:
        selection = NO_FULL_TEXT

    top_k = config.retrieval.fallback_top_k
    if isinstance(selection, str):  # the reason why no model was used
        kept_hits = choose_by_bm25(ranked.candidates, mode, top_k)
        return _Choice(kept_hits, degraded=selection)

    kept_hits = choose_results(selection, ranked.candidates, mode, top_k)
    probabilities: Mapping[int, float] = {}
    if selection.by_decisions:
        probabilities = probabilities_of(selection)
    notes = _write_calibration_notes(selection)
    return _Choice(kept_hits, selection.degraded, probabilities, notes)


def _read_beginnings(
    query: str, candidates: Sequence[Candidate], config: Config, profiles: Profiles
) -> Candidates:
    """Read the beginning of each candidate's text, without secrets if redaction is on."""
    beginnings = [_read_beginning(candidate, config, profiles) for candidate in candidates]
    return _build_prompt_candidates(Query(query), candidates, beginnings)


def _read_beginning(candidate: Candidate, config: Config, profiles: Profiles) -> str:
    """Read the first `BODY_CHARS` characters of a text, without secrets if redaction is on."""
    if not config.judge.redact:
        return api.read_body(candidate, BODY_CHARS, profiles)[:BODY_CHARS]
    # Half a secret isn't recognised, so read a bit more than is shown.
    text = api.read_body(candidate, BODY_CHARS + redaction.SEARCH_MARGIN_CHARS, profiles)
    return redaction.words(text)[:BODY_CHARS]


def _write_calibration_notes(selection: Selection) -> list[str]:
    """Write notes for the user if the models' calibration is out of date or missing."""
    notes = []
    if selection.stale:
        notes.append(selection.stale)
    if is_uncalibrated(selection):
        names = ", ".join(dict.fromkeys(row.model for row in selection.rounds))
        notes.append(f"kept by {names} {UNCALIBRATED}")
    return notes


def _resolve_root(root: str) -> str:
    """Return the absolute path of a store's folder, or `claude:auto` as it is.

    Raises `InputError` if it isn't a folder.
    """
    if root == api.AUTO_ROOT:  # the name of the client's own store
        return root
    path = Path(root)
    with suppress(RuntimeError):  # a user without a home folder
        path = path.expanduser()
    # An empty path would be the current folder.
    is_folder = root != "" and path.is_dir()
    if not is_folder:
        raise InputError(
            f"{remove_invisible(root)}: no such folder; name a store or a folder of Markdown files"
        )
    return str(path.resolve())


def let_models_choose(
    prompt: str,
    hits: Sequence[Candidate],
    parts: Sequence[str],
    payload: Mapping[str, object],
    project: str,
) -> HookChoice | str:
    """Let models choose among the hits (search results) for a prompt. If they can't, return the reason.

    `parts` are the prompt's most telling parts, and `payload` is the hook's event.
    """
    config = configuration.load(Path(project))
    query = _build_hook_query(prompt, parts, payload, config)
    passages = _read_passages(prompt, hits, config, project)
    candidates = _build_prompt_candidates(query, hits, passages)
    mode = config.retrieval.mode
    selection = running.run(_ask_models(config, Path(project), candidates, mode=mode, hook=True))
    if isinstance(selection, str):  # the reason why they can't
        return selection
    return choose_for_prompt(selection, hits, config.retrieval)


def _build_hook_query(
    prompt: str, parts: Sequence[str], payload: Mapping[str, object], config: Config
) -> Query:
    """Build the query from a prompt and the conversation's last turns, if the event names its transcript."""
    transcript_path = str(payload.get("transcript_path") or "")
    turns = transcript.read_last_turns(transcript_path, config.retrieval.context_turns)
    return Query(_put_best_parts_first(prompt, parts, config), turns)


def choose_for_prompt(
    selection: Selection, hits: Sequence[Candidate], retrieval: RetrievalConfig
) -> HookChoice:
    """Choose the search results (hits) to inject into a prompt.

    If the user has set a threshold for the model, hits with at least this probability are injected.
    Otherwise, the model's decision counts. Undecided hits are injected if they're among the first
    `fallback_top_k`.
    """
    threshold = retrieval.inject_above.get(model_of(selection))
    probabilities = probabilities_of(selection)
    kept_positions = []
    undecided = []
    for position, (hit, decision) in enumerate(zip(hits, selection.decisions, strict=True)):
        if decision.decision == "undetermined":
            undecided.append(hit)
            is_kept = position < retrieval.fallback_top_k
        else:
            is_kept = _is_kept(decision, probabilities.get(position), threshold)
        if is_kept:
            kept_positions.append(position)

    has_threshold = threshold is not None
    if has_threshold:  # the most probable first; hits without a probability come last
        kept_positions.sort(key=lambda position: -probabilities.get(position, 0.0))
    # Without a threshold, only decision models' probabilities are meaningful.
    are_meaningful = selection.by_decisions or has_threshold
    return HookChoice(
        kept=[hits[position] for position in kept_positions],
        undecided=undecided,
        selection=selection,
        probabilities=probabilities if are_meaningful else {},
        # Without a calibration or a threshold, nothing shows how far to trust the model's yes. So the model
        # may only remove hits.
        only_drops=is_uncalibrated(selection) and not has_threshold,
    )


def _is_kept(decision: Decision, probability: float | None, threshold: float | None) -> bool:
    """Whether a hit that was decided on is injected: by its probability if there's a threshold for it."""
    if threshold is None or probability is None:
        return decision.decision == "kept"
    return probability >= threshold


def _read_passages(
    prompt: str, hits: Sequence[Candidate], config: Config, project: str
) -> list[str]:
    """Return each hit's best passage for the prompt as a snippet, without secrets if redaction is on."""
    # If the project's profiles are invalid, use the bundled ones (None). The search has reported the problem.
    profiles = None
    with suppress(ConfigError):
        profiles = Profiles(compile_profiles(Path(project)))
    snippets = []
    for passage, body in api.list_passages(prompt, hits, profiles):
        if config.judge.redact:
            snippets.append(_cut_redacted_snippet(passage, body))
        else:
            snippets.append(passage[:SNIPPET_CHARS])
    return snippets


def _cut_redacted_snippet(passage: str, body: str) -> str:
    """Shorten a passage of a memory to a snippet on one line, without secrets. `body` is the whole memory."""
    beginning = passage[:SNIPPET_CHARS]
    if not beginning:
        return ""
    # Look for secrets in the body: the passage may start or end inside one, where it can't be recognised.
    redacted_body = redaction.redact(body[:MAX_REDACTED_CHARS])
    if redacted_body.secrets:  # then show the memory's start instead of the passage
        text = redacted_body.text
    else:
        # Only the body's first `MAX_REDACTED_CHARS` were searched, so a later passage can still have secrets.
        text = redaction.words(beginning)
    on_one_line = " ".join(text.split())
    return on_one_line[:SNIPPET_CHARS]


def is_uncalibrated(selection: Selection) -> bool:
    """Whether only decision models decided, without a calibration to back them."""
    return selection.by_decisions and selection.calibration is None


def probabilities_of(selection: Selection) -> dict[int, float]:
    """Return the probability of keeping each candidate that has one, by position."""
    probabilities = {}
    for position, decision in enumerate(selection.decisions):
        if decision.probability is not None:
            probabilities[position] = decision.probability
    return probabilities


def model_of(selection: Selection) -> str:
    """Return the name of the only model that answered, or ""."""
    names = {row.model for row in selection.rounds if row.opinion is not None}
    if len(names) != 1:
        return ""
    return names.pop()


def _put_best_parts_first(prompt: str, parts: Sequence[str], config: Config) -> str:
    """Return a long prompt with its best `parts` in front, because models only see the start.

    If redaction is on, secrets are removed.
    """
    if len(prompt) <= PROMPT_CHARS or not parts:
        return prompt
    if not config.judge.redact:
        return _prepend_parts(parts, prompt)

    beginning = prompt[:MAX_REDACTED_CHARS]
    redacted_beginning = redaction.redact(beginning).text
    has_secret = redacted_beginning != beginning
    if has_secret and config.judge.redact == "refuse":
        # The judge refuses prompts with secrets. Leave them in, so that it finds them.
        return prompt
    redacted_parts = [redaction.redact(part).text for part in parts]
    return _prepend_parts(redacted_parts, redacted_beginning)


def _prepend_parts(parts: Sequence[str], prompt: str) -> str:
    """Write a redacted prompt on one line, and above it the `parts` that occur in it."""
    one_line_prompt = " ".join(prompt.split())
    # A part that was cut in the middle of a secret still contains half of it, because redaction doesn't
    # recognise half a secret. The redacted prompt doesn't contain such a part, so drop it.
    safe_parts = [part for part in parts if part in one_line_prompt]
    return "\n".join([*safe_parts, one_line_prompt])


def choose_by_bm25(candidates: Sequence[Candidate], mode: ModeName, top_k: int) -> list[KeptHit]:
    """Choose candidates without a model: all, or in strict mode up to `top_k` that BM25 is sure of."""
    chosen_candidates = candidates
    if mode == "strict":
        sure_hits = [hit for hit in candidates if hit.confidence_label == SURE_LABEL]
        chosen_candidates = sure_hits[:top_k]
    return [KeptHit(hit, "bm25") for hit in chosen_candidates]


def choose_results(
    selection: Selection, candidates: Sequence[Candidate], mode: ModeName, top_k: int
) -> list[KeptHit]:
    """Choose the candidates that models kept, and some that they left undecided.

    Each comes with the tier that kept it, or "bm25" if it's undecided.
    """
    kept_if_undecided = _list_kept_if_undecided(candidates, mode, top_k)
    kept_hits = []
    for candidate, decision in zip(candidates, selection.decisions, strict=True):
        if decision.decision == "kept":
            kept_hits.append(KeptHit(candidate, decision.tier or "", decision.because))
        elif decision.decision == "undetermined" and candidate in kept_if_undecided:
            kept_hits.append(KeptHit(candidate, "bm25", decision.because))
    return kept_hits


def _list_kept_if_undecided(
    candidates: Sequence[Candidate], mode: ModeName, top_k: int
) -> Sequence[Candidate]:
    """List the candidates to keep without a decision.

    In strict mode, these are only the rated ones among the first `top_k`.
    """
    if mode != "strict":
        return candidates
    return [hit for hit in candidates[:top_k] if hit.has_confidence]


async def _ask_models(
    config: Config, project: Path, subject: Candidates, *, mode: ModeName, hook: bool = False
) -> Selection | str:
    """Let models select among candidates. If that's impossible, return the reason in one line.

    For a `hook`, only the tiers in `retrieval.tiers` are used, within the deadline in `retrieval`.
    """
    retrieval = config.retrieval
    if hook:
        config = _let_models_answer_once(config)
    loaded = loader.load_configured_rubric("retrieval", retrieval.rubric, project)

    async with aclosing(open_gateway(environment.environ())) as gateway:
        request = JudgeRequest(mode=mode)
        tiers = retrieval.tiers if hook else TIERS
        settings = service.judge_settings(config, loaded, project, request, tiers=tiers)
        if not settings.models_by_tier:
            return settings.no_model_reason
        if hook:
            seconds_left = await _prepare_for_hook(settings, retrieval.deadline)
            if seconds_left <= 0:
                return "not judged: importing litellm took longer than the deadline; raise retrieval.deadline"
            settings = replace(settings, timeout=seconds_left, call_timeout=retrieval.timeout)

        judge = CandidateJudge(gateway, settings, service.open_reply_cache(request))
        return await judge.select(subject.query, subject.candidates)


def _let_models_answer_once(config: Config) -> Config:
    """Change a configuration so that each model only answers once, because a person is waiting."""
    judge = config.judge.model_copy(update={"samples": 1, "criteria": "together"})
    return config.model_copy(update={"judge": judge})


async def _prepare_for_hook(settings: JudgeSettings, configured_deadline: float) -> float:
    """Import what the models' calls need, and return the seconds left for the calls.

    The result is 0 or negative if the imports took the whole deadline.
    """
    deadline = min(configured_deadline, HOOK_SECONDS)
    seconds_left = deadline - await _import_packages(settings, deadline)
    if settings.deciding_tiers:  # decision models answer fast, so don't wait long for them
        return min(seconds_left, DECISION_SECONDS)
    return seconds_left


async def _import_packages(settings: JudgeSettings, timeout: float) -> float:
    """Import the packages that the models' calls need, for up to `timeout` seconds.

    Returns the seconds it took. Call it before the calls, so that their timeouts don't include the imports.
    """
    started = time.monotonic()
    models = [model for models in settings.models_by_tier.values() for model in models]
    with suppress(TimeoutError):  # the caller sees from the seconds that no time is left
        async with asyncio.timeout(timeout):
            for model in models:
                await prepare(model)
    return time.monotonic() - started


def _build_prompt_candidates(
    query: Query, candidates: Sequence[Candidate], texts: Sequence[str]
) -> Candidates:
    """Build the candidates that models see, from hits and their texts."""
    prompt_candidates = []
    unique_ids = _make_ids_unique(candidates)
    for candidate, unique_id, text in zip(candidates, unique_ids, texts, strict=True):
        prompt_candidates.append(PromptCandidate.of(candidate, unique_id, text))
    return Candidates(query, tuple(prompt_candidates))


def _make_ids_unique(candidates: Sequence[Candidate]) -> list[str]:
    """Return the candidates' ids. If hits from different stores share an id, append their positions."""
    ids = [candidate.id for candidate in candidates]
    unique_ids = []
    for position, candidate_id in enumerate(ids):
        is_shared = ids.count(candidate_id) > 1
        unique_ids.append(f"{candidate_id}~{position}" if is_shared else candidate_id)
    return unique_ids
