"""How deep a text is judged: by one tier, by the tiers, by a panel of families, or by peers who review.

Rules choose by path, author and lines changed. What a project asks for beyond the user's limit is cut to it,
and nothing that the user's own rules ask for is lowered.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, get_args

from judgekit.config import DepthName
from judgekit.config.patterns import Patterns
from judgekit.judging.verdict import Depth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.settings import GateConfig

DEPTHS: tuple[DepthName, ...] = get_args(DepthName)


class Change(NamedTuple):
    """A changed file: those who `signed` it (`Name <address>`) with their trailers, and its changed lines."""

    path: str
    lines: int
    signed: Sequence[str] = ()


def choose(own: GateConfig, rules: GateConfig, change: Change) -> Depth:
    """Return how deep a change is judged by `rules` and the user's `own`."""
    found = _first_fitting(rules, change)
    if (own.depth, own.review) == (rules.depth, rules.review):
        return found
    if _rank(found) > DEPTHS.index(own.depth_limit):
        rule = f"{found.rule}: {found.depth}, but your gate.depth_limit is {own.depth_limit}"
        found = Depth(depth=own.depth_limit, rule=rule)
    return max(found, _first_fitting(own, change), key=_rank)


def _rank(chosen: Depth) -> int:
    return DEPTHS.index(chosen.depth)


def _first_fitting(gate: GateConfig, change: Change) -> Depth:
    if gate.review is not None:
        return Depth(depth=gate.review, rule="gate.review")
    path, signed = change.path.lower(), [text.casefold() for text in change.signed]
    for rule in gate.depth:
        authors = [each.casefold() for each in rule.authors]
        if (
            (not rule.paths or Patterns(map(str.lower, rule.paths)).match(path))
            and (not authors or any(fnmatchcase(text, each) for each in authors for text in signed))
            and rule.least_lines <= change.lines
            and (rule.most_lines is None or change.lines <= rule.most_lines)
        ):
            return Depth(depth=rule.depth, rule=rule.name)
    return Depth(depth="tiers", rule="no rule fits")
