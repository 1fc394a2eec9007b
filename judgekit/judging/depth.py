"""How deep a text is judged: by one tier, by the tiers, by a panel of families, or by peers who review.

Rules choose by path, author and lines changed. What a project asks for beyond the user's limit is cut to it,
and nothing that the user's own rules ask for is lowered.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, get_args

from judgekit.config import DepthName
from judgekit.config.patterns import Patterns
from judgekit.judging.verdict import Depth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from judgekit.config.settings import GateConfig

DEPTHS: tuple[DepthName, ...] = get_args(DepthName)
UNMATCHED = Depth(depth="tiers", rule="no rule fits")


class Change(NamedTuple):
    """A changed file: those who `signed` it (`Name <address>`) with their trailers, and its changed lines."""

    path: str
    lines: int
    signed: Sequence[str] = ()


Chooser: TypeAlias = "Callable[[Change], Depth]"


def chooser(own: GateConfig, rules: GateConfig) -> Chooser:
    """Return what says how deep a change is judged by `rules` and the user's `own`."""
    theirs, mine = _matching(rules), _matching(own)
    if (own.depth, own.review) == (rules.depth, rules.review):
        return theirs

    def chosen(change: Change) -> Depth:
        found = theirs(change)
        if _rank(found) > DEPTHS.index(own.depth_limit):
            rule = f"{found.rule}: {found.depth}, but your gate.depth_limit is {own.depth_limit}"
            found = Depth(depth=own.depth_limit, rule=rule)
        return max(found, mine(change), key=_rank)

    return chosen


def _rank(chosen: Depth) -> int:
    return DEPTHS.index(chosen.depth)


def _matching(gate: GateConfig) -> Chooser:
    if gate.review is not None:
        everywhere = Depth(depth=gate.review, rule="gate.review")
        return lambda _: everywhere
    rules = [
        (rule, Patterns(path.lower() for path in rule.paths), [each.casefold() for each in rule.authors])
        for rule in gate.depth
    ]

    def first(change: Change) -> Depth:
        signed = [text.casefold() for text in change.signed]
        for rule, paths, authors in rules:
            if (
                (not rule.paths or paths.match(change.path.lower()))
                and (not authors or any(fnmatchcase(text, each) for each in authors for text in signed))
                and rule.least_lines <= change.lines
                and (rule.most_lines is None or change.lines <= rule.most_lines)
            ):
                return Depth(depth=rule.depth, rule=rule.name)
        return UNMATCHED

    return first
