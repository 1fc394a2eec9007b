"""How deep a text is judged: by one tier, by the tiers, by a panel of families, or with a review by peers.

Rules go by path, author and lines changed. A project can't ask for more than the user's limit, and it can't
lower the depth that the user's own rules ask for.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, get_args

from judgekit.config import DepthName
from judgekit.config.patterns import Patterns
from judgekit.judging.verdict import Depth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.settings import DepthRule, GateConfig

DEPTHS: tuple[DepthName, ...] = get_args(DepthName)


def choose(
    users_rules: GateConfig,
    rules: GateConfig,
    path: str,
    lines: int,
    signatures: Sequence[str] = (),
) -> Depth:
    """Choose the depth at which a changed file is judged, such as "quick".

    `rules` are the rules to apply. They can differ from the user's own rules if a project changes them.
    `lines` is the number of changed lines. `signatures` are the change's authors (`Name <address>`) and
    trailers.
    """
    depth = _apply_first_rule(rules, path, lines, signatures)
    is_changed_by_project = users_rules.depth != rules.depth or users_rules.review != rules.review
    if not is_changed_by_project:
        return depth

    # A project can ask for a deeper judging, up to the user's limit, but never for less than the user's own
    # rules do. These can exceed the limit.
    limited_depth = _limit_depth(depth, users_rules.depth_limit)
    users_depth = _apply_first_rule(users_rules, path, lines, signatures)
    return max(limited_depth, users_depth, key=_position_of)


def _limit_depth(depth: Depth, limit: DepthName) -> Depth:
    """Return the depth, or the limit if the depth exceeds it."""
    exceeds_limit = _position_of(depth) > DEPTHS.index(limit)
    if not exceeds_limit:
        return depth
    rule = f"{depth.rule}: {depth.depth}, but your gate.depth_limit is {limit}"
    return Depth(depth=limit, rule=rule)


def _position_of(depth: Depth) -> int:
    """Return a depth's position in the order from shallow to deep."""
    return DEPTHS.index(depth.depth)


def _apply_first_rule(gate: GateConfig, path: str, lines: int, signatures: Sequence[str]) -> Depth:
    """Return the depth of the first rule that matches a file. The default is `tiers`.

    `gate.review` is a depth for all files, and takes precedence over the rules.
    """
    if gate.review is not None:
        return Depth(depth=gate.review, rule="gate.review")
    for rule in gate.depth:
        if not _matches_length(rule, lines):
            continue
        if _matches_path(rule, path) and _matches_author(rule, signatures):
            return Depth(depth=rule.depth, rule=rule.name)
    return Depth(depth="tiers", rule="no rule fits")


def _matches_length(rule: DepthRule, lines: int) -> bool:
    """Whether the number of changed lines is within a rule's limits."""
    is_long_enough = rule.least_lines <= lines
    is_short_enough = rule.most_lines is None or lines <= rule.most_lines
    return is_long_enough and is_short_enough


def _matches_path(rule: DepthRule, path: str) -> bool:
    """Whether a path matches a rule's patterns, ignoring case. A rule without patterns matches any path."""
    if not rule.paths:
        return True
    lower_patterns = [pattern.lower() for pattern in rule.paths]
    return Patterns(lower_patterns).match(path.lower())


def _matches_author(rule: DepthRule, signatures: Sequence[str]) -> bool:
    """Whether one of a change's signatures (names with addresses) matches a rule's authors.

    A rule without authors matches any change.
    """
    if not rule.authors:
        return True
    for pattern in rule.authors:
        for signature in signatures:
            if fnmatchcase(signature.casefold(), pattern.casefold()):
                return True
    return False
