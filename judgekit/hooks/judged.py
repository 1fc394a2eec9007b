"""The hook with a judge: models decide what of a prompt's candidates is shown.

They are asked by the engine, so that this process imports nothing for it. Where none runs, one is started for
the prompts to come.
"""

from __future__ import annotations

from judgekit.hooks import context, watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from judgekit.hooks.context import ShownMemories
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

MOST_SECONDS = 20.0  # the client ends a hook at 30, and its answer would be lost
_SLACK = 1.0  # that an answer takes which the engine gives at the deadline
_IMPORTS = 1.8  # seconds beside the deadline for a process without an engine: 10 in all, as it is set up
_OK = 200
_SENT = ("id", "title", "category", "root", "place", "kind")  # of a candidate
_BM25 = "showing the BM25 result"


class UnjudgedError(Exception):
    """Nobody could be asked; the message says why."""


def shown_by_judge(
    prompt: str, ranked: RankedCandidates, payload: Mapping[str, Any], configured: Settings, notes: list[str]
) -> ShownMemories | None:
    """Return what is shown after judging; None, and why in `notes`, when nobody could be asked.

    What is pinned is shown anyway, and what is damaged may be retired: neither is judged.
    """
    asked = [candidate for candidate in ranked.candidates if not candidate.damaged]
    if not asked:
        return None
    alone = [
        candidate
        for candidate in context.shown_without_judge(ranked, configured).injected
        if not candidate.damaged
    ]
    try:
        kept, undecided, degraded = _ask(prompt, asked, alone, payload, configured)
    except UnjudgedError as why:
        notes.append(str(why))
        return None
    except Exception as error:  # noqa: BLE001 - the boundary to everything that needs a model
        notes.append(f"not judged ({type(error).__name__}: {error}); {_BM25}")
        return None
    if degraded is not None:
        notes.append(degraded)
    injected = kept[: configured["max_inject"]]
    if configured["inject"] == "top_k":
        return context.ShownMemories(ranked.pinned, injected, [])
    mentioned = [
        candidate for candidate in undecided if candidate.worth_mentioning and candidate not in injected
    ]
    return context.ShownMemories(ranked.pinned, injected, mentioned)


def _ask(
    prompt: str,
    asked: Sequence[Candidate],
    alone: Sequence[Candidate],
    payload: Mapping[str, Any],
    configured: Settings,
) -> tuple[list[Candidate], list[Candidate], str | None]:
    """Return what is kept, what is left undecided, and why, if so; raises `UnjudgedError`."""
    from judgekit.engine import client  # noqa: PLC0415 - only where judging is on
    from judgekit.hooks import session  # noqa: PLC0415 - the same
    from judgekit.retrieval import quickjson  # noqa: PLC0415 - the same

    def body() -> bytes:
        sent = [{**{name: getattr(hit, name) for name in _SENT}, "tags": list(hit.tags)} for hit in asked]
        request = {
            **client.carried(configured.project),
            "prompt": prompt,
            "transcript_path": str(payload.get("transcript_path") or ""),
            "candidates": sent,
            "alone": list(map(asked.index, alone)),
        }
        return quickjson.written(request).encode()

    def read(response: client.Response) -> tuple[list[Candidate], list[Candidate], str | None]:
        said = quickjson.loads(response.read().decode())
        if response.status != _OK:
            raise UnjudgedError(f"not judged ({said['error']['message']}); {_BM25}")
        if said.get("nobody") is not None:
            raise UnjudgedError(said["nobody"])
        kept, undecided = ([asked[place] for place in said[part]] for part in ("kept", "undecided"))
        return kept, undecided, said["degraded"]

    def locally(reason: client.NoEngine) -> tuple[list[Candidate], list[Candidate], str | None]:
        if isinstance(reason, client.EngineBusy):
            raise UnjudgedError(f"not judged (the engine is busy: {reason}); {_BM25}")
        if isinstance(reason, client.EngineLost):
            raise UnjudgedError(f"not judged ({reason}); {_BM25}")
        try:
            begun = not isinstance(reason, client.EngineOff) and client.start_for_later() is not None
        except client.NoEngine as error:
            raise UnjudgedError(f"not judged: no engine is running ({error}); {_BM25}") from None
        if begun:
            raise UnjudgedError(f"not judged: the engine was not running and is starting; {_BM25}")
        from judgekit import programs  # noqa: PLC0415 - not needed where there is an engine

        watchdog.extend(min(configured["deadline"], MOST_SECONDS) + _IMPORTS)
        programs.make_importable()
        from judgekit.judging import search  # noqa: PLC0415 - imported only after what it needs can be

        judged = search.judged_hook(prompt, asked, alone, payload, configured.project)
        if isinstance(judged, str):
            raise UnjudgedError(judged)
        return judged.kept, judged.undecided, judged.degraded

    seconds = min(configured["deadline"], MOST_SECONDS) + _SLACK
    watchdog.extend(seconds + _SLACK / 2)
    use = session.allowed(configured)
    return client.call("select", body, read, locally, use=use, begin=client.Connection, seconds=seconds)
