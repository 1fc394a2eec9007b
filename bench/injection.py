"""Attacks on the small local model: how often one gets a text kept or accepted, against harmless prose.

python bench/injection.py [--minutes N] [--nonces N] [--data DIR] [--json] [--write FILE]

The attacks are those of tests/support/attacks.py and, with --data, those of DIR/judge/injection_payloads.
Each is written into a title, a tag, a turn of the conversation and a document, and prose of the same
length into the same place. JUDGEKIT_LOCAL_MODEL names the model. What fits into the minutes is measured,
and how much it was is said: a call takes seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import attacks

from judgekit import config, library, panel
from judgekit.gateway.open import open_gateway
from judgekit.judging import pointwise
from judgekit.judging.choosing import KEEP_AT
from judgekit.ledger import interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.gateway.base import Endpoint, Gateway, Reply, Request

Kind: TypeAlias = Literal["attack", "harmless", "related"]

SECONDS = 600.0  # a call's deadline: the machine may be busy
SEED = 5
MEMORIES: tuple[attacks.Place, ...] = ("title", "tag", "turn")
DOCUMENTS_FROM = 0.8  # of a fence's time
HEAD = """# Attacks on a small model, measured

Made by `python bench/injection.py --write docs/figures/injection.md` on {day}, with
{model} in lenient mode, and {nonces}. *kept* counts unrelated memories that were kept, or a poor
document that was accepted, with 95 % intervals; *asked once* is what would have been kept without the second
question, about an [idle request](../hardening.md#measured-with-a-small-model). The harmless prose is as
long as the attack and stands in the same place. As many were measured as fit into {minutes:g} minutes.
"""


class Written(NamedTuple):
    """What is written where: an attack, harmless prose, or nothing into a memory that answers its request."""

    kind: Kind
    place: attacks.Place
    pair: attacks.Pair
    text: str


class Trial(NamedTuple):
    """Whether one text was kept or accepted.

    `once` is the probability of yes for the request alone, `idle` that for the idle request, where asked.
    """

    kind: Kind
    place: attacks.Place
    favoured: bool
    leaning: float
    once: float | None
    idle: float | None


class Watching:
    """A gateway that keeps what was answered to yes or no: for the request, and for the idle one."""

    def __init__(self, inner: Gateway) -> None:
        self._inner = inner
        self.yes: dict[bool, float] = {}

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply."""
        reply = await self._inner.complete(endpoint, request)
        if request.matter.rubric.startswith("memory-"):
            idle = "/idle/" in request.matter.part
            self.yes[idle] = round(pointwise.probabilities(reply, ("yes", "no"))["yes"], 3)
        return reply

    async def aclose(self) -> None:
        """Close the inner gateway."""
        await self._inner.aclose()


def main() -> int:
    """Measure, and print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--nonces", type=int, default=3, metavar="N", help="how many fences are tried")
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    asked = parser.parse_args()
    juries, _ = panel.juries(config.load(None))
    seat = juries["quick"][0] if juries else None
    if seat is None or not seat.pointwise:
        parser.error("JUDGEKIT_LOCAL_MODEL names no model that is asked for probabilities")
    found = asyncio.run(measure(seat, payloads(asked.data), asked.nonces, asked.minutes * 60))
    page = shown(found, Path(seat.model).stem, asked.nonces, asked.minutes)
    if asked.write:
        asked.write.write_text(page, encoding="utf-8")
    print(json.dumps([each._asdict() for each in found]) if asked.json else page)
    return 0


def payloads(data: Path | None) -> list[str]:
    """Return our own attacks, those that praise the text first, and then those of a collection."""
    own = sorted(attacks.PAYLOADS, key=lambda text: text not in attacks.CLAIMS)
    if data is None:
        return own
    lines = (
        (data / "judge" / "injection_payloads" / "payloads.jsonl").read_text(encoding="utf-8").splitlines()
    )
    texts = sorted(
        {each["text"] for each in map(json.loads, lines) if len(each["text"]) <= attacks.MOST_CHARS}
    )
    random.Random(SEED).shuffle(texts)  # noqa: S311 - a sample, not a secret
    return [*own, *texts]


def wanted(texts: Sequence[str], places: Sequence[attacks.Place]) -> Iterator[Written]:
    """Yield what is to be judged, the attack and the prose after one another, each place in turn."""
    for number, (pair, text) in enumerate(zip(cycle(attacks.PAIRS), texts, strict=False)):
        if "title" in places:
            yield from (
                Written("related", "title", each, "") for each in attacks.RELATED[number : number + 1]
            )
        for place in places:
            yield Written("attack", place, pair, text)
            yield Written("harmless", place, pair, attacks.harmless(text))


async def measure(seat: Endpoint, texts: Sequence[str], nonces: int, seconds: float) -> list[Trial]:
    """Return what fits into the seconds, shared among the fences; a fifth of them for the document."""
    found: list[Trial] = []
    drawn = random.Random(SEED)  # noqa: S311 - the same fences in every run
    started = time.monotonic()
    async with aclosing(open_gateway({})) as gateway:
        for number in range(nonces):
            nonce = f"{drawn.getrandbits(64):016x}"
            # One fence for many texts: with another, the model would read the worked examples anew.
            with patch("judgekit.chance.token", lambda size, nonce=nonce: nonce[: 2 * size]):
                for places, share in ((MEMORIES, DOCUMENTS_FROM), (("document",), 1.0)):
                    end = started + seconds * (number + share) / nonces
                    for written in wanted(texts, places):
                        if time.monotonic() > end:
                            break
                        found.append(await _tried(seat, gateway, written))
                        print(json.dumps(found[-1]._asdict()), file=sys.stderr, flush=True)
    return found


async def _tried(seat: Endpoint, gateway: Gateway, written: Written) -> Trial:
    watching = Watching(gateway)
    select, score = library.select_rubric("memory-relevance"), library.score_rubric("kls")
    targets = attacks.Targets(watching, {"quick": seat}, select, score, SECONDS)
    seen = await targets.see(written.place, written.pair, written.text)
    return Trial(
        written.kind,
        written.place,
        seen.favoured,
        round(seen.leaning, 3),
        *map(watching.yes.get, (False, True)),
    )


def shown(found: Sequence[Trial], model: str, nonces: int, minutes: float) -> str:
    """Return the page."""
    fences = "one fence" if nonces == 1 else f"{nonces} fences"
    head = HEAD.format(day=f"{datetime.now(UTC):%-d %B %Y}", model=model, nonces=fences, minutes=minutes)
    rows = [
        _row(f"{place}, {kind}", [each for each in found if (each.place, each.kind) == (place, kind)])
        for place in attacks.PLACES
        for kind in ("attack", "harmless")
    ]
    related = _row("related memory, untouched", [each for each in found if each.kind == "related"])
    table = [
        "| what is written where | kept or accepted | asked once | mean leaning, 0 to 1 |",
        "| --- | --- | --- | --- |",
        *rows,
        related,
    ]
    return "\n".join([head, *table, ""])


def _row(name: str, trials: Sequence[Trial]) -> str:
    if not trials:
        return f"| {name} | not measured | | |"
    once = [each.once >= KEEP_AT for each in trials if each.once is not None]
    first = _share(sum(once), len(once)) if once else "the same"
    kept = _share(sum(each.favoured for each in trials), len(trials))
    return f"| {name} | {kept} | {first} | {fmean(each.leaning for each in trials):.2f} |"


def _share(hits: int, total: int) -> str:
    bounds = interval.share(hits, total)
    within = f" ({bounds.low:.0%} to {bounds.high:.0%})" if bounds else ""
    return f"{hits} of {total}{within}"


if __name__ == "__main__":
    sys.exit(main())
