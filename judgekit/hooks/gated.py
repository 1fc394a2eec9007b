"""One run of the gate: by the engine, so that a push waits for no import; in this process where none is.

Whatever goes wrong between here and the engine costs a push nothing but time: it is judged here then.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.engine import client
from judgekit.errors import JudgekitError
from judgekit.gate.report import Begin, Report, Row
from judgekit.hooks import session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.gate.push import Run
    from judgekit.gate.remotes import RefUpdate
    from judgekit.ledger.records import GateMode


class GateOptions(NamedTuple):
    """How a run is wanted: a `mode` that goes before the configured one, and whether the engine may be asked.

    `on_start` gets what is known when judging begins, `on_verdict` a row as each is known, `warn` lines for
    people.
    """

    mode: GateMode | None
    on_verdict: Callable[[Row], None]
    on_start: Callable[[Begin], None]
    warn: Callable[[str], None]
    engine: bool = True


def push(updates: Sequence[RefUpdate], remote: str, url: str, wanted: GateOptions) -> Report:
    """Judge what a push to `remote` brings there; raises as `judgekit.gate.push.check_push` does."""

    def here(run: Run) -> Report:
        from judgekit.gate.push import check_push  # noqa: PLC0415 - pydantic; the engine has it
        from judgekit.git import Repository  # noqa: PLC0415 - the same

        return check_push(Repository(Path.cwd()), updates, remote, url, run)

    return _run({"updates": [list(update) for update in updates], "remote": remote, "url": url}, wanted, here)


def since(base: str, wanted: GateOptions) -> Report:
    """Judge what the commits since `base` change; raises as `judgekit.gate.push.check_since` does."""

    def here(run: Run) -> Report:
        from judgekit.gate.push import check_since  # noqa: PLC0415 - pydantic; the engine has it
        from judgekit.git import Repository  # noqa: PLC0415 - the same

        return check_since(Repository(Path.cwd()), base, run)

    return _run({"base": base}, wanted, here)


def _run(body: dict[str, Any], wanted: GateOptions, here: Callable[[Run], Report]) -> Report:
    begun, run = time.monotonic(), os.urandom(16).hex()

    def request() -> bytes:
        nonlocal begun
        begun = time.monotonic()  # a start of the engine is none of the budget, as an import is not
        return json.dumps({**client.carried(git=True), **body, "run": run, "mode": wanted.mode}).encode()

    def read(response: client.Response) -> Report:
        from judgekit.engine import answers  # noqa: PLC0415 - where an engine is asked

        try:
            for event in answers.events(response):
                kind = event.pop("event")
                if kind == "begin":
                    wanted.on_start(Begin(**event))  # type: ignore[typeddict-item]  # as the protocol has it
                elif kind == "passed":
                    wanted.on_verdict(Row(**event))  # type: ignore[typeddict-item]  # the same
                elif kind == "end":
                    return Report(**event)
        except JudgekitError as error:  # whatever it is, it is found here again, and said
            raise client.EngineFault(str(error)) from None
        raise client.EngineLost("the engine was lost: its answer has no end")

    def locally(reason: client.NoEngine) -> Report:
        from judgekit.gate.push import Run  # noqa: PLC0415 - pydantic; the engine has it

        asked = not isinstance(reason, client.EngineOff | client.NotStarted)
        spent = time.monotonic() - begun if asked else 0.0
        if not asked:
            reason.tell(wanted.warn)
        return here(Run(wanted.mode, wanted.on_verdict, wanted.on_start, spent, run))

    return client.call("gate", request, read, locally, use=wanted.engine and session.wanted())
