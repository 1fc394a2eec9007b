"""How deep a text is judged: by one tier, by the tiers, by a panel of families, or by peers who review.

Rules choose by path, author and lines changed. What a project asks for beyond the user's limit is cut to it,
and nothing that the user's own rules ask for is lowered.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, get_args

from judgekit.config import DepthName
from judgekit.config.patterns import Patterns
from judgekit.judging.verdict import Depth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.settings import GateConfig

DEPTHS: tuple[DepthName, ...] = get_args(DepthName)


def choose(
    own: GateConfig, rules: GateConfig, path: str, lines: int, signed: Sequence[str] = ()
) -> Depth:
    """Return how deep a file with changed `lines` is judged by `rules` and the user's `own`.

    Those who `signed` it are given as `Name <address>`, with their trailers.
    """
    found = _first_fitting(rules, path, lines, signed)
    if (own.depth, own.review) == (rules.depth, rules.review):
        return found
    if _rank(found) > DEPTHS.index(own.depth_limit):
        rule = f"{found.rule}: {found.depth}, but your gate.depth_limit is {own.depth_limit}"
        found = Depth(depth=own.depth_limit, rule=rule)
    return max(found, _first_fitting(own, path, lines, signed), key=_rank)


def _rank(chosen: Depth) -> int:
    return DEPTHS.index(chosen.depth)


def _first_fitting(gate: GateConfig, path: str, lines: int, signed: Sequence[str]) -> Depth:
    if gate.review is not None:
        return Depth(depth=gate.review, rule="gate.review")
    people = [text.casefold() for text in signed]
    for rule in gate.depth:
        authors = [each.casefold() for each in rule.authors]
        if (
            (not rule.paths or Patterns(map(str.lower, rule.paths)).match(path.lower()))
            and (not authors or any(fnmatchcase(text, each) for each in authors for text in people))
            and rule.least_lines <= lines
            and (rule.most_lines is None or lines <= rule.most_lines)
        ):
            return Depth(depth=rule.depth, rule=rule.name)
    return Depth(depth="tiers", rule="no rule fits")
