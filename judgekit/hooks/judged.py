"""The hook with a judge: models decide which of a prompt's candidates to show.

The engine asks them, so that this process imports nothing. If none is running, one is started for later
prompts.
"""

from __future__ import annotations

from judgekit.engine import client
from judgekit.hooks import context, settings, watchdog
from judgekit.retrieval import confidence, quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    from judgekit.hooks.context import Shown
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

    # The kept and the undecided candidates, why these are undecided, a decision model's probabilities by
    # index, and whether models only drop.
    Judged: TypeAlias = tuple[
        list[Candidate], list[Candidate], str | None, Mapping[int, float], bool
    ]

MAX_SECONDS = 20.0  # the client ends a hook at 30, and its answer would be lost
_SLACK_SECONDS = 1.0  # seconds for the engine's answer at the deadline to arrive
# Seconds on top of the deadline for a process without an engine: 10 in all, with the default settings.
_IMPORT_SECONDS = 1.8
_HTTP_OK = 200
ONLY_DROPS = "the model that judges prompts decides without a calibration: it only drops what BM25 would show"
JUDGED = "judged"  # replaces the confidence of candidates that a model kept
_BM25_FALLBACK_NOTE = "showing the BM25 result"


def choose_by_judge(
    prompt: str,
    ranked: RankedCandidates,
    payload: Mapping[str, Any],
    configured: Settings,
    notes: list[str],
) -> Shown | None:
    """Choose the memories to inject and to mention by asking models.

    Returns None if there's nothing to judge or no model can be called, and adds the reason to `notes`. Also
    fills `ranked.judged_count` and `ranked.dropped_count`, the numbers of judged and dropped memories.
    """
    candidates = list_judged(ranked)
    if not candidates:
        return None

    decisions = _judge_or_explain(prompt, candidates, payload, configured)
    if isinstance(decisions, str):  # the reason why there are none
        notes.append(decisions)
        return None

    kept, undecided, why_undecided, probabilities, only_drops = decisions
    not_dropped = [*kept, *undecided]
    ranked.judged_count = len(candidates)
    # A memory can be both kept and undecided, so count each one once.
    ids_not_dropped = {id(hit) for hit in not_dropped}
    ranked.dropped_count = len(candidates) - len(ids_not_dropped)
    if why_undecided is not None:
        notes.append(why_undecided)

    # An uncalibrated decision model may only drop memories.
    if only_drops:
        notes += context.take_due_notes(configured.project, [ONLY_DROPS])
        return drop_only(ranked, not_dropped, configured)

    labels = _format_probabilities(probabilities, candidates)
    return choose_decided(ranked, kept, undecided, configured, labels)


def _judge_or_explain(
    prompt: str, candidates: list[Candidate], payload: Mapping[str, Any], configured: Settings
) -> Judged | str:
    """Judge the candidates. If that fails for any reason, return the reason."""
    try:
        return _judge(prompt, candidates, payload, configured)
    except Exception as error:  # noqa: BLE001 - the boundary to everything that needs a model
        return f"not judged ({type(error).__name__}: {error}); {_BM25_FALLBACK_NOTE}"


def _format_probabilities(
    probabilities: Mapping[int, float], candidates: Sequence[Candidate]
) -> dict[int, str]:
    """Format a decision model's probabilities, such as `0.85`, to show instead of the confidence.

    The keys of `probabilities` are indexes of candidates. The keys of the result are `id(candidate)`.
    """
    labels = {}
    for index, probability in probabilities.items():
        labels[id(candidates[index])] = f"{probability:.2f}"
    return labels


def list_judged(ranked: RankedCandidates) -> list[Candidate]:
    """List the candidates that models are asked about: memories in force, except damaged ones."""
    # Damaged memories may be retired. Pinned ones are shown anyway.
    return [hit for hit in confidence.select_in_force(ranked.candidates) if not hit.is_damaged]


def drop_only(
    ranked: RankedCandidates, not_dropped: Sequence[Candidate], configured: Settings
) -> Shown:
    """Choose as without a judge, then leave out the memories that models dropped.

    Models dropped all judged candidates that aren't in `not_dropped`.
    """
    # An uncalibrated decision model can't be trusted to add memories, but it can still remove some.
    judged_ids = {id(hit) for hit in list_judged(ranked)}
    ids_not_dropped = {id(hit) for hit in not_dropped}
    dropped_ids = judged_ids - ids_not_dropped

    injected, mentioned = context.choose_without_judge(ranked, configured)
    remaining_injected = [hit for hit in injected if id(hit) not in dropped_ids]
    remaining_mentioned = [hit for hit in mentioned if id(hit) not in dropped_ids]
    return remaining_injected, remaining_mentioned


def choose_decided(
    ranked: RankedCandidates,
    kept: list[Candidate],
    undecided: list[Candidate],
    configured: Settings,
    labels: Mapping[int, str],
) -> Shown:
    """Choose the memories to inject and to mention, from those that models kept or left undecided.

    A memory can be in both lists. `labels` maps `id(candidate)` to a label, which defaults to "judged".
    """
    injectable = [hit for hit in kept if _may_be_injected(hit, undecided)]
    injected = injectable[: configured["max_inject"]]
    for candidate in injected:
        # If models decided on a memory, their label replaces its confidence.
        if candidate not in undecided:
            candidate.confidence_label = labels.get(id(candidate), JUDGED)

    if configured["inject"] == "top_k":  # this setting injects the best memories, and mentions none
        return injected, []

    not_injected = [hit for hit in undecided if hit not in injected]
    return injected, _choose_mentioned(ranked, not_injected)


def _choose_mentioned(ranked: RankedCandidates, undecided: Sequence[Candidate]) -> list[Candidate]:
    """Choose the memories to mention: those that models didn't decide on, or never saw (damaged ones)."""
    mentioned = []
    for hit in confidence.select_in_force(ranked.candidates):
        has_no_decision = hit.is_damaged or hit in undecided
        if has_no_decision and hit.worth_mentioning:
            mentioned.append(hit)
    return mentioned


def _may_be_injected(hit: Candidate, undecided: Sequence[Candidate]) -> bool:
    """Whether models decided on a kept hit, or it has at least a confidence. A rank isn't enough."""
    return hit.has_confidence or hit not in undecided


def list_parts(candidates: Sequence[Candidate]) -> list[str]:
    """List the distinct parts of a prompt that found the candidates."""
    texts = [candidate.part.text for candidate in candidates if candidate.part]
    return list(dict.fromkeys(texts))


def _judge(
    prompt: str, candidates: list[Candidate], payload: Mapping[str, Any], configured: Settings
) -> Judged | str:
    """Let the engine, a background process, judge the candidates. If it can't, judge them in this process.

    If no model can be called, the result is the reason, a string.
    """
    seconds = min(configured["deadline"], MAX_SECONDS)
    seconds_to_wait = seconds + _SLACK_SECONDS

    def judge_here(reason: client.NoEngine) -> Judged | str:
        """Judge in this process, or return the reason why it's better not to."""
        why_not = _explain_obstacle(reason)
        if why_not:
            return why_not

        # This process has to import the packages first, which takes time.
        watchdog.extend(seconds + _IMPORT_SECONDS)
        return _judge_in_process(prompt, candidates, payload, configured.project)

    # The watchdog ends this process when its time is up, so give it more time than the call below takes.
    watchdog.extend(seconds_to_wait + _SLACK_SECONDS / 2)
    return client.call(
        "select",
        lambda: _write_request(prompt, candidates, payload, configured.project),
        lambda response: _read_reply(response, candidates),
        judge_here,
        use=settings.is_engine_wanted(configured),
        connect=client.Connection,  # it starts no engine, which would take too long for this prompt
        seconds=seconds_to_wait,
    )


def _write_request(
    prompt: str, candidates: Sequence[Candidate], payload: Mapping[str, Any], project: str
) -> bytes:
    """Build the JSON request that asks the engine to judge the candidates."""
    request = {
        **client.build_caller_fields(project),
        "prompt": prompt,
        "candidates": [_describe_candidate(candidate) for candidate in candidates],
        "parts": list_parts(candidates),  # the parts of the prompt that found them
        "transcript_path": str(payload.get("transcript_path") or ""),
    }
    return quickjson.dumps_ascii(request).encode()


def _describe_candidate(candidate: Candidate) -> dict[str, Any]:
    """Build the part of the request that describes a candidate."""
    fields: dict[str, Any] = {
        "id": candidate.id,
        "title": candidate.title,
        "category": candidate.category,
        "root": candidate.root,
        "place": candidate.relative_path,
        "kind": candidate.kind,
        "tags": list(candidate.tags),
    }
    # A memory from a user's program has no file from which the engine could read the text.
    is_from_program = candidate.kind == confidence.COMMAND_KIND
    if is_from_program:
        fields["text"] = candidate.text
    return fields


def _read_reply(response: client.Response, candidates: Sequence[Candidate]) -> Judged | str:
    """Read the engine's decisions from its response. If there are none, return the reason."""
    reply = quickjson.loads(response.read().decode())
    if response.status != _HTTP_OK:
        return f"not judged ({reply['error']['message']}); {_BM25_FALLBACK_NOTE}"

    # If no model could choose, the reply has only this field.
    why_no_model_chose = reply.get("nobody")
    if why_no_model_chose is not None:
        return str(why_no_model_chose)

    kept = [candidates[index] for index in reply["kept"]]
    undecided = [candidates[index] for index in reply["undecided"]]
    # Only some models give probabilities. They come as pairs, because JSON has no numbers as keys.
    probability_pairs = reply.get("likely") or ()
    only_drops = bool(reply.get("only_drops"))
    why_undecided = reply["degraded"]
    return kept, undecided, why_undecided, dict(probability_pairs), only_drops


def _explain_obstacle(reason: client.NoEngine) -> str:
    """Explain to the user why nothing is judged. Returns "" if this process should judge instead.

    `reason` says why the engine didn't judge. If none is running, this starts one for later prompts.
    """
    if isinstance(reason, client.EngineBusy):
        return f"not judged (the engine is busy: {reason}); {_BM25_FALLBACK_NOTE}"
    if isinstance(reason, client.EngineLost):
        return f"not judged ({reason}); {_BM25_FALLBACK_NOTE}"

    if isinstance(reason, client.EngineOff):  # e.g. the user has switched the engine off
        return ""

    try:
        is_starting = client.start_for_later() is not None
    except client.NoEngine as error:
        return f"not judged: no engine is running ({error}); {_BM25_FALLBACK_NOTE}"

    if is_starting:
        # Judging while the engine starts would take too long.
        return f"not judged: the engine was not running and is starting; {_BM25_FALLBACK_NOTE}"

    # No engine can be started, so only this process can judge.
    return ""


def _judge_in_process(
    prompt: str, candidates: list[Candidate], payload: Mapping[str, Any], project: str
) -> Judged | str:
    """Judge the candidates without an engine. If no model can be called, return the reason."""
    from judgekit import programs  # noqa: PLC0415 - not needed with an engine

    programs.make_packages_importable()
    from judgekit.judging import search  # noqa: PLC0415 - its packages can only be imported now

    parts = list_parts(candidates)
    choice = search.let_models_choose(prompt, candidates, parts, payload, project)
    if isinstance(choice, str):  # the reason why no model can be called
        return choice
    why_undecided = choice.selection.degraded
    return choice.kept, choice.undecided, why_undecided, choice.probabilities, choice.only_drops
